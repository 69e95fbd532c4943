"""Markers: the lines that stand where something was cut, and that are no part of any file.

Models copy them: what they were shown in part they write back in part, with the marker in it. Knows
how every marker of ours is written. Refuses to know why something was cut.
"""

import re

from foldline.errors import BadInput

_NUMBER = r"[\d,]{1,20}"
# A marker is a line of its own: one that is quoted in code is somebody's work. Linear.
_MARKER = re.compile(
    r"^[ \t]*+(?P<said>"
    rf"\[truncated: kept [a-z+]{{4,12}} ~{_NUMBER} of ~{_NUMBER} tokens \([a-z]{{4,6}}\)\]"
    rf"|\[\.\.\. omitted {_NUMBER} of {_NUMBER} lines \.\.\.\]"
    r"|\[\.\.\. truncated for length \.\.\.\]"
    rf"|\[result masked — ~{_NUMBER} tokens removed\]"
    r"|\[(?:cut; )?whole: log:[^\]\n]{1,60}\]"
    r"|\[handoff: log:[^\]\n]{1,60}\]"
    r"|\[(?:errors|names) in the cut\][^\n]*"
    rf"|\[{_NUMBER} bytes of output are not kept\]"
    r"|\[[^\]\n]{0,80}go on: recall\([^\n]{1,200}\]"
    r")[ \t\r]*$",
    re.MULTILINE,
)
_PLACE = re.compile(r"\blog:\d{1,18}(?:-\d{1,18})?")


def copied(text: str, *, before: str = "") -> None:
    """Raise where a text has more markers than the file that it is for."""
    found = [*_MARKER.finditer(text)]
    if len(found) <= sum(1 for _ in _MARKER.finditer(before)):
        return
    had = {one["said"] for one in _MARKER.finditer(before)}
    new = next((one for one in found if one["said"] not in had), found[0])
    place = _PLACE.search(text, new.start(), new.end() + 80)
    line = text.count("\n", 0, new.start()) + 1
    raise BadInput(
        f"line {line:,} is no part of the file: {new['said'][:80]!r} stands where Foldline cut "
        f'what you were shown. Call recall with "{place[0] if place else "log:N"}" for the whole '
        "text, or use edit; nothing was written"
    )

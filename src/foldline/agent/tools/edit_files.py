"""The tools `write` and `edit`: a change is shown as a diff first, then made whole or not at all.

A file that changed since the user saw the diff is left alone. Text with a truncation marker in it
is refused: models that were shown a part of a file write it back with the marker.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.agent.tools.permission_rules import for_path
from foldline.agent.tools.read_files import (
    PathPlace,
    Root,
    convert_arguments,
    has_windows_line_ends,
    make_missing_path_error,
    make_object_schema,
    normalise_line_ends,
    read_whole_file,
)
from foldline.errors import BadInput

_LINES = 2_000  # that are compared; more would take too long, as the time grows with the square
_AROUND = 3
_START = re.compile(r"([-+])(\d+)")


def render_diff(before: str, after: str, name: str) -> str:
    r"""Render a unified diff; texts that differ in many lines as one block out, one in.

    Only `\n` ends a line: at anything else a changed line would look like two equal ones.
    """
    if has_windows_line_ends(after) and (not before or has_windows_line_ends(before)):
        before, after = normalise_line_ends(before), normalise_line_ends(after)
    old, new = _split_lines(before), _split_lines(after)
    first = _count_equal_pairs(zip(old, new, strict=False))
    left = min(len(old), len(new)) - first
    last = min(_count_equal_pairs(zip(reversed(old), reversed(new), strict=False)), left)
    gone, come = old[first : len(old) - last], new[first : len(new) - last]
    head = [f"--- a/{name.lstrip('/')}", f"+++ b/{name.lstrip('/')}"]
    if max(len(gone), len(come)) > _LINES:
        where = f"@@ -{first + 1},{len(gone)} +{first + 1},{len(come)} @@"
        return "\n".join([*head, where, *(f"-{one}" for one in gone), *(f"+{one}" for one in come)])
    lo, hi = max(first - _AROUND, 0), max(last - _AROUND, 0)
    lines = unified_diff(old[lo : len(old) - hi], new[lo : len(new) - hi], lineterm="", n=_AROUND)
    hunks = [_move_hunk_header(one, lo) for one in lines][2:]
    if before and after and before.endswith("\n") != after.endswith("\n"):
        hunks.append("[the end of the last line differs]")
    return "\n".join([*head, *hunks])


def _split_lines(text: str) -> list[str]:
    *lines, rest = text.split("\n")
    return [*lines, rest] if rest else lines


def _count_equal_pairs(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _move_hunk_header(line: str, by: int) -> str:
    """Shift a hunk header's line numbers; return any other line unchanged."""
    if not line.startswith("@@"):
        return line
    return _START.sub(lambda found: f"{found[1]}{int(found[2]) + by}", line)


_NUMBER = r"[\d,]{1,20}"
# A marker has a line to itself: one quoted in code is somebody's work. Matches in linear time.
_MARKER = re.compile(
    r"^[ \t]*+(?P<said>"
    rf"\[truncated: kept [a-z+]{{4,12}} ~{_NUMBER} of ~{_NUMBER} tokens \([a-z]{{4,6}}\)\]"
    rf"|\[\.\.\. omitted {_NUMBER} of {_NUMBER} lines \.\.\.\]"
    r"|\[\.\.\. truncated for length \.\.\.\]"
    rf"|\[result masked — ~{_NUMBER} tokens removed\]"
    r"|\[(?:cut; )?whole: log:[^\]\n]{1,60}\]"
    r"|\[log:\d{1,18}; (?:ok|error); [^\]\n]{1,60}\]"
    r"|\[handoff: log:[^\]\n]{1,60}\]"
    r"|\[(?:errors|names) in the cut\][^\n]*"
    rf"|\[cut: {_NUMBER} [a-z]{{4,12}}\b[^\n]*"
    rf"|\[[a-z ]{{3,20}}: {_NUMBER} [a-z]{{4,12}}, {_NUMBER} left out\]"
    rf"|\[{_NUMBER} bytes of output are not kept\]"
    r"|\[[^\]\n]{0,80}go on: recall\([^\n]{1,200}\]"
    r")[ \t\r]*$",
    re.MULTILINE,
)
_PLACE = re.compile(r"\blog:\d{1,18}(?:-\d{1,18})?")


def check_copied_markers(text: str, *, before: str = "") -> None:
    """Raise if a text has more truncation markers than the file it is for."""
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


_PLACES = 10  # line numbers in an error


class _Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    content: str


class _Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    old: str
    new: str
    all: bool | None = None


class _Change(NamedTuple):
    """A planned change of a file."""

    place: PathPlace
    before: bytes | None
    """None for a new file."""
    after: bytes
    what: str
    """One line for people: `edit a.py at line 3`."""


def build_write_tool(root: Root) -> Tool:
    """Build the tool `write`: create or overwrite a file."""

    def plan_write(arguments: Arguments) -> _Change:
        given = convert_arguments(arguments, _Write)
        place = root.resolve_path(given.path)
        if given.path.endswith("/") or place.real.is_dir():
            raise BadInput(f"{place.label} is a folder; give the path of a file in it")
        before = read_whole_file(place) if os.path.lexists(place.real) else None
        text = given.content
        if before is not None and has_windows_line_ends(_decode_text(before)):
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        check_copied_markers(text, before=_decode_text(before or b""))
        lines = text.count("\n") + (text[-1:] not in ("", "\n"))
        verb = "create" if before is None else "overwrite"
        size = f"{lines:,} line{'' if lines == 1 else 's'}"
        return _Change(place, before, text.encode(), f"{verb} {place.label}, {size}")

    return _build_change_tool(
        root,
        plan_write,
        name="write",
        description="Create or overwrite a file with its whole text.",
        takes=make_object_schema("path", "content", path="string", content="string"),
    )


def build_edit_tool(root: Root) -> Tool:
    """Build the tool `edit`: replace some text of a file."""

    def plan_edit(arguments: Arguments) -> _Change:
        given = convert_arguments(arguments, _Edit)
        place = root.resolve_path(given.path)
        if not place.real.exists():
            raise make_missing_path_error(place)
        before = read_whole_file(place)
        try:
            text = before.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{place.label} is not UTF-8 and cannot be edited") from None
        ends = has_windows_line_ends(text)
        body, old, new = (
            normalise_line_ends(one) if ends else one for one in (text, given.old, given.new)
        )
        if not old or old == new:
            raise BadInput("old must be some text of the file, and new another")
        lines = _list_match_lines(body, old)
        if not lines:
            raise BadInput(f"old is not in {place.label}{_describe_near_match(body, old)}")
        if len(lines) > 1 and not given.all:
            raise BadInput(
                f"old is in {place.label} {len(lines):,} times, at lines {_format_lines(lines)}; "
                "give more of the text around the one you mean, or all=true"
            )
        after = body.replace(old, new)
        after = after.replace("\n", "\r\n") if ends else after
        check_copied_markers(after, before=text)
        at = f"line{'s' if len(lines) > 1 else ''} {_format_lines(lines)}"
        return _Change(place, before, after.encode(), f"edit {place.label} at {at}")

    return _build_change_tool(
        root,
        plan_edit,
        name="edit",
        description="Replace exact text in a file.",
        takes=make_object_schema(
            "path",
            "old",
            "new",
            path="string",
            old={"type": "string", "description": "as it stands in the file, and only once there"},
            new="string",
            all={"type": "boolean", "description": "replace every occurrence"},
        ),
    )


def _build_change_tool(
    root: Root,
    change: Callable[[Arguments], _Change],
    *,
    name: str,
    description: str,
    takes: dict[str, Any],
) -> Tool:
    """Build a tool that shows a change, and makes only the one it has shown."""
    shown: dict[str, tuple[Path, bytes | None]] = {}

    def make_intent(arguments: Arguments) -> Intent | None:
        found = change(arguments)
        shown[str(arguments["path"])] = (found.place.real, found.before)
        if found.before == found.after:
            return None
        where = "" if found.place.inside else f", outside of {root.path}"
        before, after = _decode_text(found.before or b""), _decode_text(found.after)
        if found.before is not None and found.before.decode(errors="ignore") != before:
            before = f"[{len(found.before):,} bytes that are not UTF-8]\n"
        detail = render_diff(before, after, found.place.name)
        return Intent(found.what + where, detail, for_path("write", found.place.name))

    async def apply_change(arguments: Arguments) -> Result:
        found = change(arguments)
        seen = shown.pop(str(arguments["path"]), None)
        if seen is not None and seen != (found.place.real, found.before):
            raise BadInput(f"{found.place.label} has changed in between; read it and call again")
        if found.before == found.after:
            return said(f"{found.place.label} is so already")
        _replace_file(found.place, found.after, new=found.before is None)
        return said(f"done: {found.what}")

    def list_paths(arguments: Arguments) -> Sequence[Path]:
        return [root.resolve_path(str(arguments.get("path", ""))).real]

    return Tool(
        name=name,
        description=description,
        schema=takes,
        run=apply_change,
        intent=make_intent,
        touches=list_paths,
    )


def _replace_file(place: PathPlace, body: bytes, *, new: bool) -> None:
    """Write a file atomically: readers see the old content or the new, never a part."""
    path = place.real
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = None if new else path.stat().st_mode & 0o7777
    if mode is not None and not os.access(path, os.W_OK):
        raise BadInput(f"{place.label} is read-only; nothing was written")
    beside = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(body)
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _decode_text(body: bytes) -> str:
    return body.decode(errors="replace")


def _list_match_lines(body: str, old: str) -> list[int]:
    """List the lines, from 1, at which `old` begins, overlapping matches included."""
    found: list[int] = []
    line, counted, at = 1, 0, body.find(old)
    while at >= 0:
        line += body.count("\n", counted, at)
        counted = at
        found.append(line)
        at = body.find(old, at + 1)
    return found


def _format_lines(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - _PLACES:,} more" if len(lines) > _PLACES else ""
    return ", ".join(f"{one:,}" for one in lines[:_PLACES]) + more


def _describe_near_match(body: str, old: str) -> str:
    """Say where the text stands with other whitespace, or at least its first line."""
    wanted = [one.split() for one in old.strip().split("\n")]
    lines = [one.split() for one in body.split("\n")]
    near = [at for at, one in enumerate(lines, 1) if one == wanted[0]] if wanted[0] else []
    for at in near:
        if lines[at - 1 : at - 1 + len(wanted)] == wanted:
            return f"; at line {at:,} it stands with other blanks: read first={at}"
    if near:
        return f"; its first line stands at {_format_lines(near)}: read what is there"
    return "; read the file, and copy from it"

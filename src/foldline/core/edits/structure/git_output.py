"""What git prints: status, logs, patches."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise, zip_longest
from typing import NamedTuple

from foldline.core.edits.structure.outline import Outline, join_within, list_ends
from foldline.core.edits.structure.sample import Printed, Sample, list_fault_places
from foldline.core.names import format_count

_CERTAIN = 0.95  # of the lines
_FAULTS = 10  # one token of so many is for error lines
_STATUS = re.compile(r"On branch |HEAD detached |Changes |Untracked files:|Unmerged paths:")
_SHORT_STATUS = re.compile(r"(?:[ MADRCUT?!]{2}) \S|## ")
_CHANGED = re.compile(r"(?:\t|\s{8})(?:[a-z ]{3,20}: +)?(?=\S)|[ MADRCUT?!]{2} (?=\S)")


def is_status(sample: Sample) -> bool:
    """Whether it is the long or the short form of a status."""
    is_long = any(_STATUS.match(line) for line in sample.head[:3]) and sample.has_line(_CHANGED)
    return is_long or sample.has_share(_SHORT_STATUS, _CERTAIN)


def outline_status(printed: Printed, tokens: int) -> Outline:
    """Titles first; all paths, those that are cut by folder."""
    lines = printed.plain
    paths = [
        line[found.end() :] if (found := _CHANGED.match(line)) else "" for line in printed.plain
    ]

    def describe(lo: int, hi: int, room: int) -> str:
        return _join_by_folder([path for path in paths[lo:hi] if path], room)

    return Outline(
        kind="git status",
        pieces=printed.lines,
        order=chain(
            list_ends(len(lines)),
            (place for place, path in enumerate(paths) if not path),
            list_fault_places(printed, tokens // _FAULTS),
        ),
        describe=describe,
        details=0.7,
    )


def _join_by_folder(paths: Sequence[str], tokens: int) -> str:
    """Join paths, each folder named once: `src/{a.py b.py} tests/{c.py}`."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, slash, name = path.rpartition("/")
        folders.setdefault(f"{folder}{slash}", []).append(name)
    words = [
        word
        for folder, names in folders.items()
        for word in _add_braces(folder, list(dict.fromkeys(names)))
    ]
    return join_within(words, tokens, by=" ")


def _add_braces(folder: str, names: list[str]) -> list[str]:
    """Write a folder's names as words: `src/{a.py`, `b.py}`."""
    if not folder or len(names) == 1:
        return [f"{folder}{name}" for name in names]
    return [f"{folder}{{{names[0]}", *names[1:-1], f"{names[-1]}}}"]


_COMMIT = re.compile(r"[*|/\\ ]{0,20}commit [0-9a-f]{40}\b")
_SHORT_COMMIT = re.compile(r"[*|/\\ ]{0,20}[0-9a-f]{7,40} (?:\([^)]{1,200}\) )?\S|[*|/\\ ]{1,20}$")
_LOG_LINE = re.compile(
    r"[*|/\\ ]{0,20}(?:commit |Author: |Date: |Merge: |    |\w+Date: |Commit: |$)"
)


def is_log_of_commits(sample: Sample) -> bool:
    """Whether it is a log with bodies, or one line for each commit."""
    is_long = any(_COMMIT.match(line) for line in sample.head[:1])
    return (is_long and sample.has_share(_LOG_LINE, _CERTAIN)) or sample.has_share(
        _SHORT_COMMIT, _CERTAIN
    )


def outline_log_of_commits(printed: Printed, tokens: int) -> Outline:
    """The newest commits; of those that are cut, hashes and subjects before bodies."""
    lines = printed.plain
    commits = [place for place, line in enumerate(lines) if _COMMIT.match(line)]

    def describe(lo: int, hi: int, room: int) -> str:
        inside = _list_between(commits, lo, hi)
        if not inside:
            return ""
        count = f"{format_count(len(inside), 'commit')}: "
        named = (_describe_commit(lines, place) for place in inside)
        return count + join_within(named, room - 6, by="; ")

    return Outline(
        kind="git log",
        pieces=printed.lines,
        order=chain(
            list_ends(len(lines), 6, 2),
            list_fault_places(printed, tokens // _FAULTS),
            range(len(lines)),
        ),
        describe=describe if commits else None,
        details=0.5 if commits else 0.0,
    )


def _list_between(places: Sequence[int], lo: int, hi: int) -> Sequence[int]:
    """List the places, which are sorted, from `lo` to before `hi`."""
    return places[bisect_left(places, lo) : bisect_left(places, hi)]


def _describe_commit(lines: Sequence[str], place: int) -> str:
    """Describe a commit by its short hash and its subject."""
    short = lines[place].partition("commit ")[2][:9]
    behind = range(place + 1, min(place + 8, len(lines)))
    indented = (lines[at].lstrip("*|/\\ ") for at in behind if "    " in lines[at][:24])
    return f"{short} {next((line for line in indented if line), '')[:100]}"


_FILE = re.compile(r"diff --(?:git|cc|combined) |Index: \S")
_HUNK = re.compile(r"@@+ -\d")
_PATCH_LINE = re.compile(r"[ +\-@\\\t]|diff --|index [0-9a-f]|(?:new|deleted|old) |rename |simil|$")
_HUNK_LINES = 12  # of each hunk, before more of any
_PATCHED = 0.85  # of the lines: a commit's message may stand above its patch


def is_patch(sample: Sample) -> bool:
    """Whether files and hunks begin in it, and nearly all lines belong to them."""
    lines = (*sample.head, *sample.spread)
    begins = any(map(_FILE.match, lines)) or any(line.startswith("+++ ") for line in lines)
    return begins and any(map(_HUNK.match, lines)) and sample.has_share(_PATCH_LINE, _PATCHED)


def outline_patch(printed: Printed, tokens: int) -> Outline:
    """Headers of files, then of hunks; then the beginnings of hunks, of each file in turn."""
    lines = printed.plain
    patches = _list_patches(lines)
    starts = [patch.header[0] for patch in patches]
    hunks = [hunk for patch in patches for hunk in patch.hunks]
    added = [0, *accumulate(line[:1] == "+" for line in lines)]
    removed = [0, *accumulate(line[:1] == "-" for line in lines)]

    def describe(lo: int, hi: int, room: int) -> str:
        more, less = added[hi] - added[lo], removed[hi] - removed[lo]
        inside = _list_between(starts, lo, hi)
        names = (lines[place].split(" ")[-1] for place in inside)
        count = f" in {format_count(len(inside), 'file')}: " if inside else ""
        changed = f"+{more:,} -{less:,}{count}" if more or less or count else ""
        return changed + join_within(names, room - 12)

    def iterate_order() -> Iterator[int]:
        yield from starts
        for patch in patches:
            yield from patch.header
        for hunk in hunks:
            yield hunk[0]
        yield from list_fault_places(printed, tokens // _FAULTS)
        in_turn = [*_iterate_hunks(patches)]
        for hunk in in_turn:
            yield from hunk[:_HUNK_LINES]
        for hunk in in_turn:
            yield from hunk

    return Outline(
        kind="diff", pieces=printed.lines, order=iterate_order(), describe=describe, details=0.1
    )


class _Patch(NamedTuple):
    """The places of a file's header, and of the lines of its hunks."""

    header: range
    hunks: list[range]


def _list_patches(lines: Sequence[str]) -> list[_Patch]:
    """List the files of a patch."""
    starts = [place for place, line in enumerate(lines) if _FILE.match(line)]
    # Without git only two lines in a row begin a file: one alone may be a line that was removed.
    starts = starts or [
        place
        for place, (one, two) in enumerate(pairwise(lines))
        if one.startswith("--- ") and two.startswith("+++ ")
    ]
    patches: list[_Patch] = []
    for start, end in pairwise((*starts, len(lines))):
        hunks = [place for place in range(start, end) if _HUNK.match(lines[place])]
        inside = [range(*bounds) for bounds in pairwise((*hunks, end))]
        patches.append(_Patch(range(start, hunks[0] if hunks else end), inside))
    return patches


def _iterate_hunks(patches: Sequence[_Patch]) -> Iterator[range]:
    """Yield the first hunk of each file, then the second, and so on."""
    for same in zip_longest(*(patch.hunks for patch in patches)):
        yield from (hunk for hunk in same if hunk is not None)

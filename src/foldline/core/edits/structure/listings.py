"""Lists: paths and folders, tables, and the matches of a search."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from foldline.core.edits.structure.outline import (
    Outline,
    iterate_in_turn,
    join_within,
    list_ends,
)
from foldline.core.edits.structure.sample import Printed, Sample, list_fault_places, take_sample

_CERTAIN = 0.95  # of the lines
_FAULTS = 10  # one token of so many is for error lines
_RARE = 20  # a value is rare if at most one line of so many has it
_LONG_FORM = re.compile(r"[-dlcbps][-rwxsStT]{9}[.+@]?\s|total \d|$")
_BRANCH = re.compile(r"(?:[│|] {0,3}|\s{4}){0,40}(?:[├└|`]──|[├└|`]--) ?|\S+$")
_FORKS = re.compile(r".{0,160}(?:[├└]──|[|`]--) ")
_PATH = re.compile(r"(?:\./|\.\./|/|~/)?[\w.@+~-][^\s:;,(){}<>\"'=]*/?$")


def is_path_list(sample: Sample) -> bool:
    """Whether lines are paths, rows of a folder, or branches of a tree."""
    if sample.has_share(_LONG_FORM, _CERTAIN):
        return True
    if sample.has_share(_FORKS, 0.6) and sample.has_share(_BRANCH, 0.8):
        return True
    deep = sum(1 for line in sample.spread if "/" in line)
    return deep * 2 >= len(sample.spread) and sample.has_share(_PATH, _CERTAIN)


def outline_path_list(printed: Printed, tokens: int) -> Outline:
    """The first of every folder and paths with a rare ending; the others counted by folder."""
    lines = printed.plain
    folders, endings = _split_paths(lines)
    counted = Counter(endings)
    rare = {ending for ending, times in counted.items() if times <= max(len(lines) // _RARE, 1)}
    first: dict[str, list[int]] = {}
    for place, folder in enumerate(folders):
        first.setdefault(folder, []).append(place)

    def describe(lo: int, hi: int, room: int) -> str:
        inside = Counter(folders[lo:hi])
        if len(inside) == 1:
            inside = Counter(endings[lo:hi])
        return join_within(
            (f"{name or '.'} {times:,}" for name, times in inside.most_common()), room
        )

    return Outline(
        kind="paths",
        pieces=printed.lines,
        order=chain(
            list_ends(len(lines), 4, 4),
            list_fault_places(printed, tokens // _FAULTS),
            (place for place, ending in enumerate(endings) if ending in rare),
            iterate_in_turn(first.values()),
        ),
        facts=(join_within(_describe_endings(counted), tokens // 12),),
        describe=describe,
        details=0.4,
    )


def _split_paths(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split paths into folders and endings; the folder of a row is the one named above it."""
    folders: list[str] = []
    endings: list[str] = []
    above = ""
    for line in lines:
        name = line.rstrip()[-200:]
        name = name[name.rfind(" ") + 1 :] if " " in name else name
        folder, slash, last = name.rpartition("/")
        if name.endswith(":"):  # `ls -R` names the folder of the rows below
            above = name[:-1]
        folders.append(f"{folder}{slash}" or above)
        stem, dot, ending = last.rpartition(".")
        endings.append(f"{dot}{ending}" if stem and len(ending) < 12 else "")  # noqa: PLR2004
    return folders, endings


def _describe_endings(counted: Counter[str]) -> Iterator[str]:
    """Count lines by ending, the most frequent first."""
    yield f"{counted.total():,} paths by ending"
    for ending, times in counted.most_common():
        yield f"{ending or 'none'} {times:,}"


_MATCH = re.compile(  # `a.py:12:`, `a.py-12-`, `a.py(12,3):`, or with no number `src/a.py:`
    r"([^\s:][^:\n]{0,300}?)(?:[:-]\d{1,7}[:-]|\(\d{1,7},\d{1,7}\): )"
    r"|([^\s:]{1,200}/[^\s:/]{1,80}\.\w{1,8}):(?! )|--$"
)
_SEARCHED = 0.9  # of the lines


def is_search(sample: Sample) -> bool:
    """Whether lines begin with a path, most with a number: matches, or what a compiler says."""
    found = [_find_file(line) for line in sample.spread]
    named = sum(1 for name in found if "." in name or "/" in name)
    return sample.has_share(_MATCH, _SEARCHED) and named * 2 >= len(sample.spread)


def _find_file(line: str) -> str:
    """Find the path that a line begins with, or ""."""
    found = _MATCH.match(line)
    return (found[1] or found[2] or "") if found else ""


def outline_search(printed: Printed, tokens: int) -> Outline:
    """Some matches of every file, of each as many; the others counted by file."""
    lines = printed.plain
    files: list[str] = []
    groups: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        name = _find_file(line)
        files.append(name)
        if name:
            groups.setdefault(name, []).append(place)

    def describe(lo: int, hi: int, room: int) -> str:
        inside = Counter(name for name in files[lo:hi] if name)
        return join_within((f"{name} {times:,}" for name, times in inside.most_common()), room)

    return Outline(
        kind="matches",
        pieces=printed.lines,
        order=chain(
            list_ends(len(lines), 1, 1),
            list_fault_places(printed, tokens // _FAULTS),
            iterate_in_turn(groups.values()),
        ),
        facts=(f"{len(groups):,} files have matches",),
        describe=describe,
        details=0.15,
    )


_ROW = re.compile(r"\s*\|.*\|\s*$")
_RULE = re.compile(r"[\s|:+=-]+$")
_COLUMNS = re.compile(r"[A-Z][A-Z0-9()%/_-]*(?: [A-Z0-9()%/_-]+)*(?:\s{2,}[A-Z][^a-z]*)+$")
_BLANKS = re.compile(r"\s{2,}")
_ROW_WIDTH = 2_000  # characters of a row that are looked at
_CELLS = 12  # cells of a row that are looked at
_FEWEST_CELLS = 3
_USUAL = 0.6  # of the rows, that have the usual value of a column
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?%?$")


def is_table(sample: Sample) -> bool:
    """Whether all lines have the same cells: markdown, values between marks, or columns."""
    return _find_mark(sample) is not None


def _find_mark(sample: Sample) -> str | None:
    """Find what separates cells: `|`, a tab, a comma or a semicolon, or two blanks."""
    if sample.has_share(_ROW, _CERTAIN):
        return "|"
    lines = sample.spread
    for mark in "\t,;":
        counted = Counter(line.count(mark) for line in lines)
        cells, times = counted.most_common(1)[0] if counted else (0, 0)
        is_even = cells + 1 >= _FEWEST_CELLS and times >= _CERTAIN * len(lines)
        # Prose and code have blanks behind commas, and marks at their ends.
        dense = sum(1 for line in lines if f"{mark} " not in line and not line.endswith(mark))
        if is_even and (mark == "\t" or dense >= _CERTAIN * len(lines)):
            return mark
    if lines and _COLUMNS.match(lines[0]):
        starts = [found.start() for found in re.finditer(r"(?<=\s\s)\S", lines[0])]
        fits = sum(1 for line in lines if all(line[at - 1 : at] in ("", " ") for at in starts))
        if len(starts) + 1 >= _FEWEST_CELLS and fits >= _CERTAIN * len(lines):
            return "  "
    return None


def outline_table(printed: Printed, tokens: int) -> Outline:
    """The header, the first and last rows; then rows with rare values and extreme numbers."""
    lines = printed.plain
    mark = _find_mark(take_sample(printed.lines)) or ","
    rows = [_split_row(line, mark) for line in lines]

    def iterate_order() -> Iterator[int]:
        yield from list_ends(len(lines), 4, 3)
        yield from list_fault_places(printed, tokens // _FAULTS)
        yield from _iterate_odd_rows(rows)

    return Outline(kind="table", pieces=printed.lines, order=iterate_order())


def _split_row(line: str, mark: str) -> list[str]:
    row = line[:_ROW_WIDTH]
    cells = _BLANKS.split(row, _CELLS) if mark == "  " else row.split(mark, _CELLS)
    return [cell.strip() for cell in cells[:_CELLS]]


def _iterate_odd_rows(rows: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield rows that have other cells than most, a rare value, or an extreme number."""
    width = Counter(len(row) for row in rows).most_common(1)[0][0] if rows else 0
    even = [place for place, row in enumerate(rows) if len(row) == width]
    yield from (place for place, row in enumerate(rows) if len(row) != width)
    extremes: list[int] = []
    most = max(len(rows) // _RARE, 1)
    for column in range(width):
        cells = [(rows[place][column], place) for place in even[1:]]
        is_number = [_NUMBER.match(cell) is not None for cell, _ in cells]
        numbers = [
            (float(cell.rstrip("%")), place)
            for (cell, place), known in zip(cells, is_number, strict=True)
            if known
        ]
        if len(numbers) * 2 >= len(cells):
            extremes += [min(numbers)[1], max(numbers)[1]] if numbers else []
            others = zip(cells, is_number, strict=True)
            yield from (place for (cell, place), known in others if cell and not known)
            continue
        counted = Counter(cell for cell, _ in cells)
        # A rare value is only telling in a column in which most rows have the same.
        if counted and counted.most_common(1)[0][1] >= _USUAL * len(cells):
            yield from (place for cell, place in cells if counted[cell] <= most)
    yield from extremes

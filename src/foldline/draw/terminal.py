"""The picture for a terminal: a bar of the window, its tiers, a table, the next call's cost.

Knows columns and colours. Refuses to know what the numbers mean: every kind has a sign of its own,
so that nothing is told by colour alone.

The bar is three lines high and filled column by column, each from top to bottom, so a place on the
ruler below it is a size of the request.
"""

from textwrap import wrap
from typing import Literal, TypeAlias

from foldline.draw import words
from foldline.draw.picture import Fill, Picture, cells
from foldline.draw.text import clean, fit, width

SIGNS: dict[Fill, str] = {
    "system": "S",
    "tools": "T",
    "handoffs": "≡",
    "user": "█",
    "model": "▒",
    "results": "░",
    "free": "·",
    "margin": "-",
    "closed": "x",
    "reserve": "=",
}
Style: TypeAlias = Literal["plain", "strong", "dim", "green", "yellow", "red"] | Fill
_CODES: dict[Style, str] = {
    "strong": "1",
    "dim": "2",
    "green": "1;32",
    "yellow": "1;33",
    "red": "1;31",
    # From the 256: middle tones, to be seen on light and on dark.
    "system": "38;5;245",
    "tools": "38;5;73",
    "handoffs": "38;5;133",
    "user": "38;5;172",
    "model": "38;5;71",
    "results": "38;5;111",
    "free": "2",
    "margin": "2",
    "closed": "2",
    "reserve": "2",
}
_ROWS = 3
_NAME, _TOKENS, _SHARE = 8, 10, 7
_TITLE = 8  # columns of what titles the lines below the table
Line: TypeAlias = list[tuple[str, Style]]


def terminal(drawn: Picture, width: int = 80, *, colour: bool = True) -> str:
    """The picture as lines of at most `width` columns."""
    columns = max(width, 1)
    body: list[Line] = [
        *_title(drawn, columns),
        [],
        *_bar(drawn, columns),
        *_ruler(drawn, columns),
        [],
        *_table(drawn, columns),
        [],
        *_below(drawn, columns),
    ]
    return "\n".join(_paint(line, columns, colour=colour) for line in body) + "\n"


def _title(drawn: Picture, columns: int) -> list[Line]:
    used, name = words.usage(drawn), words.model(drawn)
    name = fit(name, max(columns - len(used) - 2, 0))
    gap = " " * (columns - len(used) - width(name))
    below: list[Line] = [[(line, "dim")] for line in wrap(words.under(drawn), columns)]
    return [[(name, "strong"), (gap, "plain"), (used, drawn.level)], *below]


def _bar(drawn: Picture, columns: int) -> list[Line]:
    across = _across(columns)
    filled = cells(drawn, across * _ROWS)
    return [
        [(" ", "plain"), *((SIGNS[fill], fill) for fill in filled[row::_ROWS])]
        for row in range(_ROWS)
    ]


def _across(columns: int) -> int:
    return max(columns - 2, 1)


def _ruler(drawn: Picture, columns: int) -> list[Line]:
    """A mark below the place of each tier, and the ends of the window."""
    across = _across(columns)
    lines: list[str] = []
    for name, tokens in drawn.tiers:
        place = min(max(tokens, 0) * across // drawn.window, across - 1)
        label = f"{name} {tokens:,}"
        before, behind = f"{label} ▲", f"▲ {label}"
        sides = [(place - len(label) - 1, before), (place, behind)]
        if name == drawn.tiers[-1][0]:
            sides.reverse()  # away from those before it
        free = [(at, text) for at, text in sides if at >= 0 and at + len(text) <= across]
        _put(lines, free or [(place, "▲")])
    each = f"column = {round(drawn.window / across):,}"
    window = f"{drawn.window:,}"
    scale = f"0{each.center(across - 1 - len(window))}{window}" if across > len(each) + 20 else ""
    found: list[Line] = [[(f" {line}", "plain")] for line in lines]
    return [*found, [(f" {scale}", "dim")]] if scale else found


def _put(lines: list[str], places: list[tuple[int, str]]) -> None:
    """Write a text at the first of its places that is free, on the highest line that has one."""
    for index, line in enumerate(lines):
        for at, text in places:
            if at > len(line):
                lines[index] = line.ljust(at) + text
                return
    at, text = places[0]
    lines.append(" " * at + text)


def _table(drawn: Picture, columns: int) -> list[Line]:
    head = f"  {'part':{_NAME}} {'tokens':>{_TOKENS}} {'share':>{_SHARE}}"
    lines: list[Line] = [[(head, "dim")]]
    for row in words.rows(drawn):
        share = f"{100 * row.tokens / drawn.window:.1f}%"
        sign: tuple[str, Style] = (SIGNS[row.fill], row.fill) if row.fill else (" ", "plain")
        numbers = f" {row.name:{_NAME}} {row.tokens:>{_TOKENS},} {share:>{_SHARE}}"
        style: Style = "plain" if row.fill else "strong"
        notes = words.wrapped(row.notes, columns - len(head) - 2)
        lines.append([sign, (numbers, style), ("  " + notes[0] if notes else "", "plain")])
        more: list[Line] = [[(" " * (len(head) + 2) + note, "plain")] for note in notes[1:]]
        lines += more
    return lines


def _below(drawn: Picture, columns: int) -> list[Line]:
    lines: list[Line] = []
    for title, text in words.lines(drawn):
        style: Style = "red" if title == "full" else "yellow" if title == "note" else "strong"
        pieces = wrap(clean(text), max(columns - _TITLE, 1))
        for index, piece in enumerate(pieces):
            lines.append([(("" if index else title).ljust(_TITLE), style), (piece, "plain")])
    return lines


def _paint(line: Line, columns: int, *, colour: bool) -> str:
    """One line, cut to the columns there are; neighbours of one style are painted together."""
    painted: list[str] = []
    at: Style = "plain"
    for text, style in line:
        shown = fit(text, columns)
        columns -= width(shown)
        if colour and shown and style != at:
            painted.append("\x1b[0m" if at != "plain" else "")
            painted.append(f"\x1b[{_CODES[style]}m" if style != "plain" else "")
            at = style
        painted.append(shown)
    end = "\x1b[0m" if at != "plain" else ""
    return "".join(painted).rstrip() + end

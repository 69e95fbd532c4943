"""Draw the picture for a terminal: a bar of the window, its tiers, a table, the next call's cost.

Every kind has a sign of its own, so that nothing depends on colour alone. The bar is three lines
high and filled column by column, so a place on the ruler below it is a size of the request.
"""

from textwrap import wrap
from typing import Literal, TypeAlias

from foldline.draw import wording
from foldline.draw.picture import Fill, Picture, fill_cells
from foldline.draw.wording import clean_line, measure_width, truncate_to_width

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
    # Middle tones of the 256, visible on light and on dark.
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
_TITLE = 8  # columns for the titles of the notes below the table
Line: TypeAlias = list[tuple[str, Style]]


def draw_picture_terminal(drawn: Picture, width: int = 80, *, colour: bool = True) -> str:
    """Draw a picture in lines of at most `width` columns."""
    columns = max(width, 1)
    body: list[Line] = [
        *_draw_title(drawn, columns),
        [],
        *_draw_bar(drawn, columns),
        *_draw_ruler(drawn, columns),
        [],
        *_draw_table(drawn, columns),
        [],
        *_draw_notes(drawn, columns),
    ]
    return "\n".join(_render_line(line, columns, colour=colour) for line in body) + "\n"


def _draw_title(drawn: Picture, columns: int) -> list[Line]:
    used, name = wording.format_picture_usage(drawn), wording.format_model_name(drawn)
    name = truncate_to_width(name, max(columns - len(used) - 2, 0))
    gap = " " * (columns - len(used) - measure_width(name))
    below: list[Line] = [
        [(line, "dim")] for line in wrap(wording.render_picture_subtitle(drawn), columns)
    ]
    return [[(name, "strong"), (gap, "plain"), (used, drawn.level)], *below]


def _draw_bar(drawn: Picture, columns: int) -> list[Line]:
    across = _measure_bar(columns)
    filled = fill_cells(drawn, across * _ROWS)
    return [
        [(" ", "plain"), *((SIGNS[fill], fill) for fill in filled[row::_ROWS])]
        for row in range(_ROWS)
    ]


def _measure_bar(columns: int) -> int:
    return max(columns - 2, 1)


def _draw_ruler(drawn: Picture, columns: int) -> list[Line]:
    """Draw a mark below each tier's place, and the ends of the window."""
    across = _measure_bar(columns)
    lines: list[str] = []
    for name, tokens in drawn.tiers:
        place = min(max(tokens, 0) * across // drawn.window, across - 1)
        label = f"{name} {tokens:,}"
        before, behind = f"{label} ▲", f"▲ {label}"
        sides = [(place - len(label) - 1, before), (place, behind)]
        if name == drawn.tiers[-1][0]:
            sides.reverse()  # away from those before it
        free = [(at, text) for at, text in sides if at >= 0 and at + len(text) <= across]
        _put_label(lines, free or [(place, "▲")])
    each = f"column = {round(drawn.window / across):,}"
    window = f"{drawn.window:,}"
    scale = f"0{each.center(across - 1 - len(window))}{window}" if across > len(each) + 20 else ""
    found: list[Line] = [[(f" {line}", "plain")] for line in lines]
    return [*found, [(f" {scale}", "dim")]] if scale else found


def _put_label(lines: list[str], places: list[tuple[int, str]]) -> None:
    """Write a label at its first free place, on the highest line that has one."""
    for index, line in enumerate(lines):
        for at, text in places:
            if at > len(line):
                lines[index] = line.ljust(at) + text
                return
    at, text = places[0]
    lines.append(" " * at + text)


def _draw_table(drawn: Picture, columns: int) -> list[Line]:
    head = f"  {'part':{_NAME}} {'tokens':>{_TOKENS}} {'share':>{_SHARE}}"
    lines: list[Line] = [[(head, "dim")]]
    for row in wording.build_table_rows(drawn):
        share = f"{100 * row.tokens / drawn.window:.1f}%"
        sign: tuple[str, Style] = (SIGNS[row.fill], row.fill) if row.fill else (" ", "plain")
        numbers = f" {row.name:{_NAME}} {row.tokens:>{_TOKENS},} {share:>{_SHARE}}"
        style: Style = "plain" if row.fill else "strong"
        notes = wording.wrap_notes(row.notes, columns - len(head) - 2)
        lines.append([sign, (numbers, style), ("  " + notes[0] if notes else "", "plain")])
        more: list[Line] = [[(" " * (len(head) + 2) + note, "plain")] for note in notes[1:]]
        lines += more
    return lines


def _draw_notes(drawn: Picture, columns: int) -> list[Line]:
    lines: list[Line] = []
    for title, text in wording.collect_notes(drawn):
        style: Style = "red" if title == "full" else "yellow" if title == "note" else "strong"
        pieces = wrap(clean_line(text), max(columns - _TITLE, 1))
        for index, piece in enumerate(pieces):
            lines.append([(("" if index else title).ljust(_TITLE), style), (piece, "plain")])
    return lines


def _render_line(line: Line, columns: int, *, colour: bool) -> str:
    """Render a line, cut to the columns; neighbours of one style share their codes."""
    painted: list[str] = []
    at: Style = "plain"
    for text, style in line:
        shown = truncate_to_width(text, columns)
        columns -= measure_width(shown)
        if colour and shown and style != at:
            painted.append("\x1b[0m" if at != "plain" else "")
            painted.append(f"\x1b[{_CODES[style]}m" if style != "plain" else "")
            at = style
        painted.append(shown)
    end = "\x1b[0m" if at != "plain" else ""
    return "".join(painted).rstrip() + end

"""The picture as SVG: one file that needs nothing else, on a light card of its own.

Knows pixels and colours. Refuses to know what the numbers mean: the words are those of the
terminal. Fonts are whatever the reader has; every place is chosen so that a wide one still fits.
"""

from itertools import groupby
from textwrap import wrap

from foldline.draw import words
from foldline.draw.paper import (
    EDGE,
    INK,
    LETTER,
    LINE,
    NEW,
    PALE,
    SEEN,
    WIDTH,
    box,
    card,
    text,
)
from foldline.draw.picture import KINDS, Fill, Picture, cells
from foldline.draw.text import clean, fit

COLOURS: dict[Fill, str] = {
    "system": "#76818d",
    "tools": "#3fa7a3",
    "handoffs": "#a05fb0",
    "user": "#dd8a26",
    "model": "#5aa55a",
    "results": "#6f86d6",
    "free": "#eef0f3",
    "margin": "url(#margin)",
    "closed": "url(#closed)",
    "reserve": "url(#reserve)",
}
_LEVELS = {"green": "#2e7d32", "yellow": "#a86500", "red": "#c62828"}
_ACROSS = WIDTH - 2 * EDGE
_BAR, _HIGH, _STRIP = 82, 40, 5
_NAME, _TOKENS, _SHARE, _NOTE = 52, 232, 306, 336
_ROW, _NOTES = 25, 18  # from line to line


def svg(drawn: Picture) -> str:
    """The picture as the text of an SVG file."""
    used, name = words.usage(drawn), words.model(drawn)
    body = [
        text(EDGE, 40, fit(name, 36), size=19, bold=True),
        text(WIDTH - EDGE, 40, used, size=19, bold=True, ink=_LEVELS[drawn.level], end=True),
        text(EDGE, 63, words.under(drawn), ink=PALE),
        *_bar(drawn),
        *_legend(),
    ]
    marks, y = _marks(drawn, _BAR + _HIGH + _STRIP)
    body += marks
    table, y = _table(drawn, y + 34)
    body += table
    below, y = _below(drawn, y + 8)
    body += below
    return card(body, y + 14, label=f"{name}: {used}")


def _bar(drawn: Picture) -> list[str]:
    """The window from left to right, pixel by pixel; below it what the provider has seen before."""
    found: list[str] = []
    x = EDGE
    for fill, run in groupby(cells(drawn, _ACROSS)):
        wide = len(list(run))
        found.append(box(x, _BAR, wide, _HIGH, COLOURS[fill]))
        x += wide
    kept, total = (min(size, drawn.window) for size in (drawn.prefix.kept, drawn.total))
    warm = drawn.prefix.cache != "cold"
    seen = round(_ACROSS * kept / drawn.window) if warm else 0
    sent = round(_ACROSS * total / drawn.window)
    y = _BAR + _HIGH + 2
    found.append(box(EDGE, y, seen, _STRIP, SEEN))
    found.append(box(EDGE + seen, y, sent - seen, _STRIP, NEW))
    return [box for box in found if box]


def _legend() -> list[str]:
    """What the strip below the bar says."""
    x, found = WIDTH - EDGE - 190.0, list[str]()
    for label, fill in (("as last sent", SEEN), ("new", NEW)):
        found.append(box(x, 57, 14, _STRIP, fill))
        found.append(text(x + 20, 63, label, ink=PALE))
        x += len(label) * LETTER + 34
    return found


def _marks(drawn: Picture, y: int) -> tuple[list[str], int]:
    """A mark at each tier, its name beside it; the ends of the window."""
    found: list[str] = []
    row, ends = y + 20, list[float]()
    for name, tokens in drawn.tiers:
        x = EDGE + min(round(_ACROSS * max(tokens, 0) / drawn.window), _ACROSS)
        label = f"{name} {tokens:,}"
        wide = len(label) * LETTER + 6
        # Left of the mark, and the last one right of it, away from the others; where there is room.
        last = name == drawn.tiers[-1][0] and x + wide <= WIDTH - EDGE
        left = x - wide >= EDGE and not last
        start = x - wide if left else x
        line = next((at for at, end in enumerate(ends) if start >= end), len(ends))
        ends[line : line + 1] = [start + wide]
        found.append(f'<path d="M{x} {_BAR - 5}V{row - 3}" stroke="{INK}" stroke-dasharray="3 2"/>')
        place = x - 6 if left else x + 6
        found.append(text(place, row + _NOTES * line, label, end=left))
    y = row + _NOTES * max(len(ends), 1)
    found.append(text(EDGE, y, "0", ink=PALE, size=11))
    found.append(text(WIDTH - EDGE, y, f"{drawn.window:,}", ink=PALE, size=11, end=True))
    return found, y


def _table(drawn: Picture, y: int) -> tuple[list[str], int]:
    found = [
        text(x, y, name, ink=PALE, size=11, end=end)
        for x, name, end in (
            (_NAME, "part", False),
            (_TOKENS, "tokens", True),
            (_SHARE, "share", True),
        )
    ]
    y += 8
    for row in words.rows(drawn):
        bold = row.fill is None
        if bold:
            found.append(box(EDGE, y + 4, _ACROSS, 1, LINE))
            y += 4
        y += _ROW - 6
        share = f"{100 * row.tokens / drawn.window:.1f}%"
        if row.fill is not None:
            edge = "" if row.fill in KINDS else f' stroke="{LINE}"'
            found.append(
                f'<rect x="{EDGE}" y="{y - 11}" width="13" height="13" rx="2" '
                f'fill="{COLOURS[row.fill]}"{edge}/>'
            )
        found.append(text(_NAME, y, row.name, bold=bold))
        found.append(text(_TOKENS, y, f"{row.tokens:,}", bold=bold, end=True, mono=True))
        found.append(text(_SHARE, y, share, bold=bold, end=True, mono=True))
        notes = words.wrapped(row.notes, int((WIDTH - EDGE - _NOTE) / LETTER))
        for index, note in enumerate(notes):
            found.append(text(_NOTE, y + _NOTES * index, note, ink=PALE))
        y += _NOTES * max(len(notes) - 1, 0) + 6
        if bold:
            found.append(box(EDGE, y + 3, _ACROSS, 1, LINE))
            y += 4
    return found, y


def _below(drawn: Picture, y: int) -> tuple[list[str], int]:
    found = [box(EDGE, y, _ACROSS, 1, LINE)]
    y += 4
    for title, said in words.lines(drawn):
        ink = {"full": _LEVELS["red"], "note": _LEVELS["yellow"]}.get(title, INK)
        for index, piece in enumerate(wrap(clean(said), int((WIDTH - EDGE - 100) / LETTER))):
            y += _NOTES + 2
            if not index:
                found.append(text(EDGE, y, title, bold=True, ink=ink))
            found.append(text(100, y, piece))
    return found, y + 6

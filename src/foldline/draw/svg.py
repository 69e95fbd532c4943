"""The picture as SVG: one file that needs nothing else, on a light card of its own.

Knows pixels and colours. Refuses to know what the numbers mean: the words are those of the
terminal. Fonts are whatever the reader has; every place is chosen so that a wide one still fits.
"""

from html import escape
from itertools import groupby
from textwrap import wrap

from foldline.draw import words
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
_INK, _PALE, _LINE = "#1f2328", "#59636e", "#d1d9e0"
_SEEN, _NEW = "#3d4650", "#e5b567"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SANS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', "
    "'DejaVu Sans Mono', sans-serif"  # a bare server has often that one only
)
_WIDTH, _EDGE = 860, 28
_ACROSS = _WIDTH - 2 * _EDGE
_BAR, _HIGH, _STRIP = 82, 40, 5
_NAME, _TOKENS, _SHARE, _NOTE = 52, 232, 306, 336
_ROW, _NOTES = 25, 18  # from line to line
_LETTER = 7.9  # the widest that a letter of a note is, where every letter is as wide
_PATTERNS = "".join(
    f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate({turn})"><rect width="8" height="8" fill="{ground}"/>'
    f'<rect width="{thick}" height="8" fill="{ink}"/></pattern>'
    for name, turn, ground, thick, ink in (
        ("margin", 45, "#eef0f3", 2, "#c3cad3"),
        ("reserve", -45, "#d9dfe6", 4, "#bcc5cf"),
        ("closed", 0, "#c7ced6", 4, "#9aa4af"),
    )
)


def svg(drawn: Picture) -> str:
    """The picture as the text of an SVG file."""
    used, name = words.usage(drawn), words.model(drawn)
    body = [
        _text(_EDGE, 40, fit(name, 36), size=19, bold=True),
        _text(_WIDTH - _EDGE, 40, used, size=19, bold=True, ink=_LEVELS[drawn.level], end=True),
        _text(_EDGE, 63, words.under(drawn), ink=_PALE),
        *_bar(drawn),
        *_legend(),
    ]
    marks, y = _marks(drawn, _BAR + _HIGH + _STRIP)
    body += marks
    table, y = _table(drawn, y + 34)
    body += table
    below, y = _below(drawn, y + 8)
    body += below
    high = y + 14
    label = _escaped(f"{name}: {used}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{high}" '
        f'viewBox="0 0 {_WIDTH} {high}" role="img" aria-label="{label}">\n'
        f"<title>{label}</title>\n<defs>{_PATTERNS}</defs>\n"
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{high - 1}" rx="10" '
        f'fill="#ffffff" stroke="{_LINE}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _bar(drawn: Picture) -> list[str]:
    """The window from left to right, pixel by pixel; below it what the provider has seen before."""
    found: list[str] = []
    x = _EDGE
    for fill, run in groupby(cells(drawn, _ACROSS)):
        wide = len(list(run))
        found.append(_box(x, _BAR, wide, _HIGH, COLOURS[fill]))
        x += wide
    kept, total = (min(size, drawn.window) for size in (drawn.prefix.kept, drawn.total))
    warm = drawn.prefix.cache != "cold"
    seen = round(_ACROSS * kept / drawn.window) if warm else 0
    sent = round(_ACROSS * total / drawn.window)
    y = _BAR + _HIGH + 2
    found.append(_box(_EDGE, y, seen, _STRIP, _SEEN))
    found.append(_box(_EDGE + seen, y, sent - seen, _STRIP, _NEW))
    return [box for box in found if box]


def _legend() -> list[str]:
    """What the strip below the bar says."""
    x, found = _WIDTH - _EDGE - 190.0, list[str]()
    for label, fill in (("as last sent", _SEEN), ("new", _NEW)):
        found.append(_box(x, 57, 14, _STRIP, fill))
        found.append(_text(x + 20, 63, label, ink=_PALE))
        x += len(label) * _LETTER + 34
    return found


def _marks(drawn: Picture, y: int) -> tuple[list[str], int]:
    """A mark at each tier, its name beside it; the ends of the window."""
    found: list[str] = []
    row, ends = y + 20, list[float]()
    for name, tokens in drawn.tiers:
        x = _EDGE + min(round(_ACROSS * max(tokens, 0) / drawn.window), _ACROSS)
        label = f"{name} {tokens:,}"
        wide = len(label) * _LETTER + 6
        # Left of the mark, and the last one right of it, away from the others; where there is room.
        last = name == drawn.tiers[-1][0] and x + wide <= _WIDTH - _EDGE
        left = x - wide >= _EDGE and not last
        start = x - wide if left else x
        line = next((at for at, end in enumerate(ends) if start >= end), len(ends))
        ends[line : line + 1] = [start + wide]
        found.append(
            f'<path d="M{x} {_BAR - 5}V{row - 3}" stroke="{_INK}" stroke-dasharray="3 2"/>'
        )
        place = x - 6 if left else x + 6
        found.append(_text(place, row + _NOTES * line, label, end=left))
    y = row + _NOTES * max(len(ends), 1)
    found.append(_text(_EDGE, y, "0", ink=_PALE, size=11))
    found.append(_text(_WIDTH - _EDGE, y, f"{drawn.window:,}", ink=_PALE, size=11, end=True))
    return found, y


def _table(drawn: Picture, y: int) -> tuple[list[str], int]:
    found = [
        _text(x, y, name, ink=_PALE, size=11, end=end)
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
            found.append(_box(_EDGE, y + 4, _ACROSS, 1, _LINE))
            y += 4
        y += _ROW - 6
        share = f"{100 * row.tokens / drawn.window:.1f}%"
        if row.fill is not None:
            edge = "" if row.fill in KINDS else f' stroke="{_LINE}"'
            found.append(
                f'<rect x="{_EDGE}" y="{y - 11}" width="13" height="13" rx="2" '
                f'fill="{COLOURS[row.fill]}"{edge}/>'
            )
        found.append(_text(_NAME, y, row.name, bold=bold))
        found.append(_text(_TOKENS, y, f"{row.tokens:,}", bold=bold, end=True, mono=True))
        found.append(_text(_SHARE, y, share, bold=bold, end=True, mono=True))
        notes = words.wrapped(row.notes, int((_WIDTH - _EDGE - _NOTE) / _LETTER))
        for index, note in enumerate(notes):
            found.append(_text(_NOTE, y + _NOTES * index, note, ink=_PALE))
        y += _NOTES * max(len(notes) - 1, 0) + 6
        if bold:
            found.append(_box(_EDGE, y + 3, _ACROSS, 1, _LINE))
            y += 4
    return found, y


def _below(drawn: Picture, y: int) -> tuple[list[str], int]:
    found = [_box(_EDGE, y, _ACROSS, 1, _LINE)]
    y += 4
    for title, said in words.lines(drawn):
        ink = {"full": _LEVELS["red"], "note": _LEVELS["yellow"]}.get(title, _INK)
        for index, piece in enumerate(wrap(clean(said), int((_WIDTH - _EDGE - 100) / _LETTER))):
            y += _NOTES + 2
            if not index:
                found.append(_text(_EDGE, y, title, bold=True, ink=ink))
            found.append(_text(100, y, piece))
    return found, y + 6


def _box(x: float, y: float, wide: float, high: float, fill: str) -> str:
    if wide <= 0:
        return ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" fill="{fill}" '
        'shape-rendering="crispEdges"/>'
    )


def _text(  # noqa: PLR0913 - how one text may look
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    ink: str = _INK,
    bold: bool = False,
    mono: bool = False,
    end: bool = False,
) -> str:
    anchor = ' text-anchor="end"' if end else ""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{_MONO if mono else _SANS}" font-size="{size}" '
        f'fill="{ink}"{weight}{anchor}>{_escaped(text)}</text>'
    )


def _escaped(text: str) -> str:
    return escape(clean(text))

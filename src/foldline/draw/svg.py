"""Draw the picture as SVG, and the light card, boxes and texts that all SVGs use.

A file needs nothing else: fonts are whatever the reader has, and there is room for a wide one. The
words are those of the terminal's picture.
"""

from collections.abc import Iterable
from html import escape
from itertools import groupby
from textwrap import wrap

from foldline.draw import wording
from foldline.draw.picture import KINDS, Fill, Picture, fill_cells
from foldline.draw.wording import clean_line, truncate_to_width

INK, PALE, LINE = "#1f2328", "#59636e", "#d1d9e0"
SEEN, NEW = "#3d4650", "#e5b567"
WIDTH, EDGE = 860, 28
LETTER = 7.9
"""The widest average letter of a note, in pixels."""
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SANS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', "
    "'DejaVu Sans Mono', sans-serif"  # often the only font of a bare server
)
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


def draw_card(body: Iterable[str], high: int, *, label: str) -> str:
    """Return the text of an SVG file; the label is for screen readers."""
    said = escape_xml(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{high}" '
        f'viewBox="0 0 {WIDTH} {high}" role="img" aria-label="{said}">\n'
        f"<title>{said}</title>\n<defs>{_PATTERNS}</defs>\n"
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{high - 1}" rx="10" '
        f'fill="#ffffff" stroke="{LINE}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def draw_box(x: float, y: float, wide: float, high: float, fill: str) -> str:
    """Draw a rectangle; "" if it has no width."""
    if wide <= 0:
        return ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" fill="{fill}" '
        'shape-rendering="crispEdges"/>'
    )


def draw_text(  # noqa: PLR0913 - how one text may look
    x: float,
    y: float,
    said: str,
    *,
    size: int = 13,
    ink: str = INK,
    bold: bool = False,
    mono: bool = False,
    end: bool = False,
) -> str:
    """Draw a text in one line."""
    anchor = ' text-anchor="end"' if end else ""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{_MONO if mono else _SANS}" font-size="{size}" '
        f'fill="{ink}"{weight}{anchor}>{escape_xml(said)}</text>'
    )


def escape_xml(words: str) -> str:
    """Clean and escape a text for XML."""
    return escape(clean_line(words))


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


def draw_picture_svg(drawn: Picture) -> str:
    """Draw a picture as the text of an SVG file."""
    used, name = wording.format_picture_usage(drawn), wording.format_model_name(drawn)
    body = [
        draw_text(EDGE, 40, truncate_to_width(name, 36), size=19, bold=True),
        draw_text(WIDTH - EDGE, 40, used, size=19, bold=True, ink=_LEVELS[drawn.level], end=True),
        draw_text(EDGE, 63, wording.render_picture_subtitle(drawn), ink=PALE),
        *_draw_bar(drawn),
        *_draw_legend(),
    ]
    marks, y = _draw_tier_marks(drawn, _BAR + _HIGH + _STRIP)
    body += marks
    table, y = _draw_table(drawn, y + 34)
    body += table
    below, y = _draw_notes(drawn, y + 8)
    body += below
    return draw_card(body, y + 14, label=f"{name}: {used}")


def _draw_bar(drawn: Picture) -> list[str]:
    """Draw the window from left to right, and below it what was sent before."""
    found: list[str] = []
    x = EDGE
    for fill, run in groupby(fill_cells(drawn, _ACROSS)):
        wide = len(list(run))
        found.append(draw_box(x, _BAR, wide, _HIGH, COLOURS[fill]))
        x += wide
    kept, total = (min(size, drawn.window) for size in (drawn.prefix.kept, drawn.total))
    warm = drawn.prefix.cache != "cold"
    seen = round(_ACROSS * kept / drawn.window) if warm else 0
    sent = round(_ACROSS * total / drawn.window)
    y = _BAR + _HIGH + 2
    found.append(draw_box(EDGE, y, seen, _STRIP, SEEN))
    found.append(draw_box(EDGE + seen, y, sent - seen, _STRIP, NEW))
    return [box for box in found if box]


def _draw_legend() -> list[str]:
    """Draw the legend of the strip below the bar."""
    x, found = WIDTH - EDGE - 190.0, list[str]()
    for label, fill in (("as last sent", SEEN), ("new", NEW)):
        found.append(draw_box(x, 57, 14, _STRIP, fill))
        found.append(draw_text(x + 20, 63, label, ink=PALE))
        x += len(label) * LETTER + 34
    return found


def _draw_tier_marks(drawn: Picture, y: int) -> tuple[list[str], int]:
    """Draw a mark and a name at each tier, and the ends of the window."""
    found: list[str] = []
    row, ends = y + 20, list[float]()
    for name, tokens in drawn.tiers:
        x = EDGE + min(round(_ACROSS * max(tokens, 0) / drawn.window), _ACROSS)
        label = f"{name} {tokens:,}"
        wide = len(label) * LETTER + 6
        # The name stands left of its mark, but the last one's right of it, away from the others.
        last = name == drawn.tiers[-1][0] and x + wide <= WIDTH - EDGE
        left = x - wide >= EDGE and not last
        start = x - wide if left else x
        line = next((at for at, end in enumerate(ends) if start >= end), len(ends))
        ends[line : line + 1] = [start + wide]
        found.append(f'<path d="M{x} {_BAR - 5}V{row - 3}" stroke="{INK}" stroke-dasharray="3 2"/>')
        place = x - 6 if left else x + 6
        found.append(draw_text(place, row + _NOTES * line, label, end=left))
    y = row + _NOTES * max(len(ends), 1)
    found.append(draw_text(EDGE, y, "0", ink=PALE, size=11))
    found.append(draw_text(WIDTH - EDGE, y, f"{drawn.window:,}", ink=PALE, size=11, end=True))
    return found, y


def _draw_table(drawn: Picture, y: int) -> tuple[list[str], int]:
    found = [
        draw_text(x, y, name, ink=PALE, size=11, end=end)
        for x, name, end in (
            (_NAME, "part", False),
            (_TOKENS, "tokens", True),
            (_SHARE, "share", True),
        )
    ]
    y += 8
    for row in wording.build_table_rows(drawn):
        bold = row.fill is None
        if bold:
            found.append(draw_box(EDGE, y + 4, _ACROSS, 1, LINE))
            y += 4
        y += _ROW - 6
        share = f"{100 * row.tokens / drawn.window:.1f}%"
        if row.fill is not None:
            edge = "" if row.fill in KINDS else f' stroke="{LINE}"'
            found.append(
                f'<rect x="{EDGE}" y="{y - 11}" width="13" height="13" rx="2" '
                f'fill="{COLOURS[row.fill]}"{edge}/>'
            )
        found.append(draw_text(_NAME, y, row.name, bold=bold))
        found.append(draw_text(_TOKENS, y, f"{row.tokens:,}", bold=bold, end=True, mono=True))
        found.append(draw_text(_SHARE, y, share, bold=bold, end=True, mono=True))
        notes = wording.wrap_notes(row.notes, int((WIDTH - EDGE - _NOTE) / LETTER))
        for index, note in enumerate(notes):
            found.append(draw_text(_NOTE, y + _NOTES * index, note, ink=PALE))
        y += _NOTES * max(len(notes) - 1, 0) + 6
        if bold:
            found.append(draw_box(EDGE, y + 3, _ACROSS, 1, LINE))
            y += 4
    return found, y


def _draw_notes(drawn: Picture, y: int) -> tuple[list[str], int]:
    found = [draw_box(EDGE, y, _ACROSS, 1, LINE)]
    y += 4
    for title, said in wording.collect_notes(drawn):
        ink = {"full": _LEVELS["red"], "note": _LEVELS["yellow"]}.get(title, INK)
        for index, piece in enumerate(wrap(clean_line(said), int((WIDTH - EDGE - 100) / LETTER))):
            y += _NOTES + 2
            if not index:
                found.append(draw_text(EDGE, y, title, bold=True, ink=ink))
            found.append(draw_text(100, y, piece))
    return found, y + 6

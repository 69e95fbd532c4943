"""The paper that every SVG is drawn on: a light card, its inks, its letters.

Knows pixels, colours and fonts, and that words may be a stranger's. Refuses to know what is drawn.
Fonts are whatever the reader has; every place is chosen so that a wide one still fits.
"""

from collections.abc import Iterable
from html import escape

from foldline.draw.text import clean

INK, PALE, LINE = "#1f2328", "#59636e", "#d1d9e0"
SEEN, NEW = "#3d4650", "#e5b567"
WIDTH, EDGE = 860, 28
LETTER = 7.9
"""The widest that a letter of a note is, where every letter is as wide."""
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SANS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', "
    "'DejaVu Sans Mono', sans-serif"  # a bare server has often that one only
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


def card(body: Iterable[str], high: int, *, label: str) -> str:
    """The text of an SVG file; the label is for those who do not see it."""
    said = escaped(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{high}" '
        f'viewBox="0 0 {WIDTH} {high}" role="img" aria-label="{said}">\n'
        f"<title>{said}</title>\n<defs>{_PATTERNS}</defs>\n"
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{high - 1}" rx="10" '
        f'fill="#ffffff" stroke="{LINE}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def box(x: float, y: float, wide: float, high: float, fill: str) -> str:
    """A rectangle, or nothing where it is empty."""
    if wide <= 0:
        return ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" fill="{fill}" '
        'shape-rendering="crispEdges"/>'
    )


def text(  # noqa: PLR0913 - how one text may look
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
    """Words in one line."""
    anchor = ' text-anchor="end"' if end else ""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{_MONO if mono else _SANS}" font-size="{size}" '
        f'fill="{ink}"{weight}{anchor}>{escaped(said)}</text>'
    )


def escaped(words: str) -> str:
    """Words as XML may hold them."""
    return escape(clean(words))

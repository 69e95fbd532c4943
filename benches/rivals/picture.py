"""Cost against what stays in sight, a dot a library, as SVG.

Knows pixels and where labels find room. Refuses to know how anything was measured.
"""

from dataclasses import dataclass

from foldline.draw.svg import EDGE, INK, LINE, PALE, WIDTH, draw_box, draw_card, draw_text

_OURS, _THEIRS, _BAD = "#a05fb0", "#6f86d6", "#c62828"
_LEFT, _TOP, _RIGHT, _FOOT = 74, 104, WIDTH - EDGE - 6, 436
_MOST = 120.0  # percent: what costs more stands at the edge
_LEAST = 88.0  # percent: what keeps less stands at the foot
_LETTER, _ROW = 6.9, 14


@dataclass(frozen=True)
class Point:
    """A way to keep a history small: what it costs and keeps, in percent."""

    name: str
    version: str
    cost: float
    kept: float
    over: float
    """Requests that were larger than the window."""

    @property
    def ours(self) -> bool:
        """Whether it is one of our policies."""
        return self.name.startswith("foldline")


def drawn(points: list[Point], *, sessions: int, window: int) -> str:
    """The picture as the text of an SVG file."""
    title = "Cheaper is left, more in sight is up"
    under = (
        f"{sessions} sessions, window {window:,}: cost of the input against sending everything; "
        f"names used again later that were in front of the model; this axis begins at {_LEAST:.0f} %"
    )
    body = [
        draw_text(EDGE, 40, title, size=19, bold=True),
        *(
            draw_text(EDGE, 62 + 17 * n, line, ink=PALE, size=12)
            for n, line in enumerate(_two(under))
        ),
        *_axes(),
    ]
    places = {one: _place(one) for one in points}
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in places.values()]
    for one in sorted(points, key=lambda one: not one.ours):
        body += _dot(one, places[one], taken)
    y = _FOOT + 62
    for line in (
        "Hollow and red: some requests were larger than the window, and a provider would have refused them.",
        "At an edge: beyond it, as the numbers say. Every library at its own settings or its documentation's,",
        "by its own code; no model is asked, quality is not measured.",
    ):
        body.append(draw_text(EDGE, y, line, ink=PALE, size=12))
        y += 17
    return draw_card(body, y, label=title)


def _two(line: str) -> list[str]:
    head, _, rest = line.partition("; ")
    return [f"{head};", rest]


def _place(one: Point) -> tuple[float, float]:
    across = min(one.cost, _MOST) / _MOST
    up = (max(one.kept, _LEAST) - _LEAST) / (100 - _LEAST)
    return _LEFT + across * (_RIGHT - _LEFT), _FOOT - up * (_FOOT - _TOP)


def _axes() -> list[str]:
    found: list[str] = []
    for percent in range(int(_LEAST), 101, 2):
        y = _FOOT - (percent - _LEAST) / (100 - _LEAST) * (_FOOT - _TOP)
        found.append(draw_box(_LEFT, y, _RIGHT - _LEFT, 1, LINE))
        found.append(draw_text(_LEFT - 8, y + 4, f"{percent} %", ink=PALE, size=11, end=True))
    for percent in range(0, int(_MOST) + 1, 20):
        x = _LEFT + percent / _MOST * (_RIGHT - _LEFT)
        found.append(draw_text(x + 12, _FOOT + 20, f"{percent} %", ink=PALE, size=11, end=True))
    found.append(draw_text(_RIGHT, _FOOT + 38, "cost of the input", ink=PALE, size=11, end=True))
    return found


def _dot(one: Point, at: tuple[float, float], taken: list[tuple[float, ...]]) -> list[str]:
    x, y = at
    ink = _OURS if one.ours else _BAD if one.over else _THEIRS
    fill = "#ffffff" if one.over else ink
    size = 7.5 if one.ours else 5.5
    told = one.name
    if one.cost > _MOST:
        told += f" (costs {one.cost:.0f} %)"
    if one.kept < _LEAST:
        told += f" (keeps {one.kept:.0f} %)"
    found = [
        (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{fill}" stroke="{ink}" '
            'stroke-width="2"/>'
        )
    ]
    wide = len(told) * _LETTER + 4
    spots = [
        (x + dx if side > 0 else x - dx - wide, y + dy)
        for reach in (0, 14, 28, 42)
        for dy in ((0,) if not reach else (-reach, reach))
        for side in (1, -1)
        for dx in (11,)
    ]
    left, row = next(
        (
            (sx, sy)
            for sx, sy in spots
            if sx >= _LEFT - 10
            and sx + wide <= WIDTH - 6
            and sy < _FOOT + 4
            and not any(
                sx < b[2] and sx + wide > b[0] and sy - _ROW / 2 < b[3] and sy + _ROW / 2 > b[1]
                for b in taken
            )
        ),
        spots[0],
    )
    taken.append((left, row - _ROW / 2, left + wide, row + _ROW / 2))
    if abs(row - y) > _ROW:
        edge = left if left > x else left + wide
        found.append(f'<path d="M{x:.1f} {y:.1f}L{edge:.1f} {row:.1f}" stroke="{LINE}"/>')
    side = left < x  # a label on the left ends at its dot, however wide its letters are
    place = (left + wide if side else left), row + 4
    words = draw_text(*place, told, size=12, bold=one.ours, ink=INK if one.ours else PALE, end=side)
    return [*found[::-1], words]

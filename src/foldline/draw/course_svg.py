"""Draw a session over time as SVG: tokens against the window, edits, money; a column per call.

Counted numbers are filled or solid, estimates dashed, and every kind of edit has a shape of its
own, so that nothing depends on colour alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from textwrap import wrap
from typing import TypeAlias

from foldline.draw import course as words
from foldline.draw.course import HOWS, Course, CourseColumn, How, build_course_columns
from foldline.draw.svg import (
    COLOURS,
    EDGE,
    INK,
    LETTER,
    LINE,
    NEW,
    PALE,
    WIDTH,
    draw_box,
    draw_card,
    draw_text,
)

_LEFT, _RIGHT = 84, WIDTH - EDGE - 116
_ACROSS = _RIGHT - _LEFT
_READ, _PAID, _DASHED = "#aab8ea", "#3c7d3c", "#5c3566"
_TOKENS, _LANE, _EACH, _SUM = 220, 20, 84, 104  # heights
_GAP = 34
_OVER = 1.13  # of the window: what is drawn above it
_SMALL = 12  # letters of labels
_ROW = 15  # from label to label
_LEGEND = 6.6  # a letter of a label, at its widest on average

_Label: TypeAlias = tuple[float, str, str]
"""Its height, its words, its ink."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """A place on the card, and the scale from 0 at its foot to `top`."""

    y: float
    high: float
    top: float

    def y_of(self, number: float) -> float:
        """Return the y of a number; one above the top is drawn at the top."""
        share = min(max(number / self.top, 0.0), 1.0) if self.top > 0 else 0.0
        return self.y + self.high * (1 - share)


def course_svg(drawn: Course) -> str:
    """Draw a course as the text of an SVG file."""
    shown = build_course_columns(drawn, _ACROSS)
    body = [
        draw_text(EDGE, 42, words.describe_course(drawn), size=19, bold=True),
        draw_text(EDGE, 66, words.describe_course_cost(drawn), size=15, ink=INK),
        draw_text(EDGE, 88, words.render_course_subtitle(drawn), size=_SMALL, ink=PALE),
        *_draw_legend(drawn, 116),
    ]
    y = 130.0
    panel = _Panel(y, _TOKENS, max(drawn.now.window, drawn.peak) * _OVER)
    body += _draw_requests(drawn, shown, panel)
    y += _TOKENS + 14
    for how in HOWS:
        body += _draw_edit_lane(drawn, shown, y, how)
        y += _LANE
    if drawn.dollars is not None:
        more, y = _draw_cost(drawn, shown, y + _GAP)
        body += more
    body += _draw_turn_axis(drawn, shown, y + 18)
    below, y = _draw_notes(drawn, y + 44)
    return draw_card(
        [*body, *below],
        round(y) + 12,
        label=f"{words.describe_course(drawn)}; {words.describe_course_cost(drawn)}",
    )


def _draw_legend(drawn: Course, y: float) -> list[str]:
    """Draw the legend of the upper panel."""
    x, found = float(EDGE), list[str]()
    entries: list[tuple[str, str]] = (
        [(words.describe_cached_share(drawn), _READ)] if drawn.caches else []
    )
    entries.append(
        ("sent anew" if drawn.caches else f"sent; {words.describe_cached_share(drawn)}", NEW)
    )
    for label, fill in entries:
        found.append(draw_box(x, y - 10, 13, 12, fill))
        found.append(draw_text(x + 19, y, label, size=_SMALL, ink=PALE))
        x += 19 + len(label) * _LEGEND + 22
    found.append(_draw_line([(x, y - 4), (x + 26, y - 4)], _DASHED, dash="6 4", wide=2))
    found.append(
        draw_text(x + 32, y, "everything, if it were sent (estimated)", size=_SMALL, ink=PALE)
    )
    return found


def _draw_requests(drawn: Course, shown: Sequence[CourseColumn], panel: _Panel) -> list[str]:
    """Draw each call's request over its cached part, the window, and everything, dashed."""
    now = drawn.now
    room = max(now.most - now.margin, 0)
    closed = panel.y_of(now.window), panel.y_of(room)
    found = [
        draw_box(_LEFT, closed[0], _ACROSS, closed[1] - closed[0], "url(#margin)"),
        *_draw_grid(
            panel, [(one, words.format_tokens(one)) for one in words.choose_ticks(panel.top, 4)]
        ),
        _draw_area(shown, panel, [one.largest.input for one in shown], NEW),
        _draw_area(shown, panel, [one.largest.read for one in shown], _READ),
    ]
    marks = [("window", now.window), ("room", room), *now.tiers]
    labels: list[_Label] = []
    for name, size in marks:
        if 0 < size <= panel.top:
            dash = {"window": "", "room": "1 3"}.get(name, "3 3")
            wide = 1.6 if name == "window" else 1.0
            y = panel.y_of(size)
            found.append(_draw_line([(_LEFT, y), (_RIGHT, y)], INK, dash=dash, wide=wide))
            labels.append((y, f"{name} {words.format_tokens(size)}", INK))
    ramp = [(_measure_middle(shown, at), one.everything) for at, one in enumerate(shown)]
    found += _draw_estimate(ramp, panel)
    beyond = [x for x, size in ramp if size > panel.top]
    if (note := words.describe_outgrown_window(drawn)) and beyond:
        wide = len(note) * _LEGEND
        before = next(x for x, size in ramp if size > now.window) - 10
        fits = beyond[0] + 10 + wide <= _RIGHT
        if fits or before - wide >= _LEFT:
            x = beyond[0] + 10 if fits else before
            found.append(draw_text(x, panel.y + 15, note, size=_SMALL, ink=_DASHED, end=not fits))
    return [*found, *_draw_side_labels(labels, low=panel.y + panel.high)]


def _draw_edit_lane(drawn: Course, shown: Sequence[CourseColumn], y: float, how: How) -> list[str]:
    """Draw the edits of one kind, each sized by how much it took."""
    middle = y + _LANE / 2
    found = [
        draw_text(_LEFT - 8, middle + 4, words.NAMES[how], size=_SMALL, ink=PALE, end=True),
        draw_box(_LEFT, round(middle), _ACROSS, 1, LINE),
        draw_text(_RIGHT + 8, middle + 4, words.describe_edits(drawn, how), size=_SMALL),
    ]
    most = max((one.tokens for one in drawn.taken), default=0) or 1
    places = [
        (_measure_middle(shown, at), column.select_edits(how)) for at, column in enumerate(shown)
    ]
    places.append((_RIGHT, tuple(one for one in drawn.later if one.how == how)))
    for x, some in places:
        if some:
            size = 3 + 4 * max(one.tokens for one in some) / most
            found.append(_draw_edit_mark(how, x, middle, size))
    return found


def _draw_edit_mark(how: How, x: float, y: float, size: float) -> str:
    match how:
        case "fold":
            shape = f"M{x - size:.1f} {y - size:.1f}h{2 * size:.1f}L{x:.1f} {y + size:.1f}z"
            return f'<path d="{shape}" fill="{COLOURS["handoffs"]}"/>'
        case "mask":
            side = 2 * size - 1
            return (
                f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" '
                f'height="{side:.1f}" fill="#ffffff" stroke="{COLOURS["results"]}" '
                'stroke-width="1.5"/>'
            )
        case "clip":
            high = 2 * size
            return (
                f'<path d="M{x:.1f} {y - high / 2:.1f}v{high:.1f}" stroke="{COLOURS["system"]}" '
                'stroke-width="2"/>'
            )


def _draw_cost(drawn: Course, shown: Sequence[CourseColumn], y: float) -> tuple[list[str], float]:
    """Draw the cost call by call, and summed up."""
    each = [one.dollars / len(one.steps) for one in shown]
    whole = [
        (_measure_middle(shown, at), one.all_dollars / len(one.steps))
        for at, one in enumerate(shown)
    ]
    panel = _Panel(y, _EACH, 1.25 * max(each) or 1.0)
    paid, all_paid = drawn.dollars or (0.0, 0.0)
    found = [
        draw_text(_LEFT, y - 8, "cost of a call", size=_SMALL, ink=PALE),
        *_draw_grid(panel, words.money_ticks(panel.top, 3)),
        _draw_area(shown, panel, each, COLOURS["model"]),
        *_draw_estimate(whole, panel),
    ]
    calls = len(drawn.steps)
    means = [
        (panel.y_of(total / calls), f"mean {words.format_dollars(total / calls)}", ink)
        for total, ink in ((paid, _PAID), (all_paid, _DASHED))
    ]
    found += _draw_side_labels(means, low=y + _EACH)
    y += _EACH + _GAP
    panel = _Panel(y, _SUM, 1.08 * max(paid, all_paid) or 1.0)
    found += [
        draw_text(_LEFT, y - 8, "cost so far", size=_SMALL, ink=PALE),
        *_draw_grid(panel, words.money_ticks(panel.top, 4)),
    ]
    labels: list[_Label] = []
    for amounts, name, ink in (
        ([one.dollars for one in shown], "paid", _PAID),
        ([one.all_dollars for one in shown], "everything", _DASHED),
    ):
        sums = [*accumulate(amounts)]
        line = [(_measure_middle(shown, at), total) for at, total in enumerate(sums)]
        if name == "paid":
            found.append(_draw_line([(x, panel.y_of(total)) for x, total in line], _PAID, wide=2.2))
        else:
            found += _draw_estimate(line, panel)
        labels.append((panel.y_of(sums[-1]), f"{words.format_dollars(sums[-1])} {name}", ink))
    return [*found, *_draw_side_labels(labels, low=y + _SUM)], y + _SUM


def _draw_turn_axis(drawn: Course, shown: Sequence[CourseColumn], y: float) -> list[str]:
    """Draw the numbers of turns, below the first call of each."""
    first: dict[int, float] = {}
    for at, column in enumerate(shown):
        for step in column.steps:
            first.setdefault(step.turn, _measure_middle(shown, at))
    found = [draw_text(_LEFT - 8, y, "turn", size=_SMALL, ink=PALE, end=True)]
    wanted = {1, *(int(one) for one in words.choose_ticks(drawn.turns, 8))}
    end = 0.0
    for turn in sorted(wanted & {*first}):
        x = max(first[turn] - len(str(turn)) * 3.8, _LEFT)
        if x >= end:
            found.append(draw_text(x, y, f"{turn:,}", size=_SMALL, ink=PALE))
            end = x + len(str(turn)) * 7.6 + 12
    return found


def _draw_notes(drawn: Course, y: float) -> tuple[list[str], float]:
    found: list[str] = []
    for piece in wrap(
        " ".join(words.explain_estimates(drawn)), int((WIDTH - 2 * EDGE) / LETTER * 1.15)
    ):
        found.append(draw_text(EDGE, y, piece, size=11, ink=PALE))
        y += 16
    return found, y


def _draw_grid(panel: _Panel, marks: Iterable[tuple[float, str]]) -> list[str]:
    found: list[str] = []
    for number, label in marks:
        y = panel.y_of(number)
        found.append(draw_box(_LEFT, round(y), _ACROSS, 1, LINE if number else PALE))
        found.append(draw_text(_LEFT - 8, y + 4, label, size=_SMALL, ink=PALE, end=True))
    return found


def _draw_side_labels(labels: Iterable[_Label], *, low: float) -> list[str]:
    """Draw labels right of a panel at their heights, pushed up where two would overlap."""
    found: list[str] = []
    before = low + _ROW
    for y, label, ink in sorted(labels, reverse=True):
        before = min(y + 4, before - _ROW)
        found.append(draw_text(_RIGHT + 8, before, label, size=_SMALL, ink=ink))
    return found


def _measure_middle(shown: Sequence[CourseColumn], at: int) -> float:
    return _LEFT + _ACROSS * (at + 0.5) / len(shown)


def _draw_area(
    shown: Sequence[CourseColumn], panel: _Panel, sizes: Sequence[float], fill: str
) -> str:
    """Draw columns side by side as one shape."""
    foot = panel.y + panel.high
    path = [f"M{_LEFT} {foot:g}"]
    for at, size in enumerate(sizes):
        end = _LEFT + _ACROSS * (at + 1) / len(shown)
        path.append(f"V{panel.y_of(size):.1f}H{end:.1f}")
    return f'<path d="{"".join(path)}V{foot:g}z" fill="{fill}"/>' if sizes else ""


def _draw_estimate(points: Sequence[tuple[float, float]], panel: _Panel) -> list[str]:
    """Draw an estimate as a dashed line, which ends at the panel's edge."""
    found: list[str] = []
    piece: list[tuple[float, float]] = []
    for (x, size), (_, before) in zip(points, [*points[:1], *points], strict=False):
        if min(size, before) <= panel.top:
            piece.append((x, panel.y_of(size)))
        else:
            found.append(_draw_line(piece, _DASHED, dash="6 4", wide=1.8))
            piece = []
    return [*found, _draw_line(piece, _DASHED, dash="6 4", wide=1.8)]


def _draw_line(
    points: Sequence[tuple[float, float]], ink: str, *, dash: str = "", wide: float = 1.0
) -> str:
    if not points:
        return ""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="M{path}" fill="none" stroke="{ink}" stroke-width="{wide:g}" '
        f'stroke-linejoin="round"{dashes}/>'
    )

"""The plots of a comparison as SVG: cost against retention, tokens per call, money by cause.

Every mark has a class, and the page's style sheet gives it a colour, light and dark. Each plot is
420 wide, so that its letters can be read on a phone as on a desk.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from math import ceil, floor, log10

from foldline.draw.wording import clean_line
from foldline.lab.comparison import Compared, Total
from foldline.lab.report.sentences import format_dollar_amount, format_percent, format_token_count

WIDE = 420
CAUSES = (
    ("new", "sent for the first time"),
    ("read", "read from the cache"),
    ("again", "written again"),
    ("output", "answers"),
    ("beside", "summaries"),
)
_LEFT, _RIGHT, _TOP, _FOOT = 46, 12, 16, 40
_LETTER, _HIGH = 6.7, 14  # width of a letter and height of a label
_MOST = 240  # points of one line: there are no pixels for more
_NARROW = 0.06  # of the width: a narrower bar has no room for a number


@dataclass(frozen=True, slots=True)
class Frame:
    """The coordinates of a plot."""

    x: tuple[float, float]
    y: tuple[float, float]
    high: float

    def map_point(self, x: float, y: float) -> tuple[float, float]:
        """Map values to pixels."""
        wide, tall = WIDE - _LEFT - _RIGHT, self.high - _TOP - _FOOT
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return _LEFT + wide * across, _TOP + tall * (1 - up)


def draw_frontier(totals: Sequence[Total], classes: Mapping[str, str], *, what: str) -> str:
    """Draw cost against retention: one point per policy, and the line of the unbeaten."""
    points = [
        (one.policy, one.dollars, one.kept_names if what == "names" else one.kept_lines)
        for one in totals
    ]
    low = min(kept for _, _, kept in points)
    bottom = max(floor((low - 4) / 10) * 10, 0)
    top = max(cost for _, cost, _ in points) or 1.0
    frame = Frame((0, top * 1.12), (bottom, 100 + (100 - bottom) * 0.06), 270)
    body = _draw_grid(
        frame,
        ((one, f"${one:,g}") for one in _choose_ticks(0, top * 1.12, 5)),
        ((one, f"{one:g} %") for one in _choose_ticks(bottom, 100, 5)),
    )
    body.append(_draw_text(WIDE - _RIGHT, frame.high - 6, "cost", "axis", "end"))
    best = select_unbeaten([(cost, kept) for _, cost, kept in points])
    body.append(f'<path class="front" d="{_draw_path(frame.map_point(*one) for one in best)}"/>')
    dots = {name: frame.map_point(cost, kept) for name, cost, kept in points}
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in dots.values()]
    for name, cost, kept in points:
        x, y = dots[name]
        label = f"{name}: {format_dollar_amount(cost)}, {format_percent(kept)} of {what} kept"
        body.append(
            f'<circle class="dot {classes[name]}" cx="{x:.1f}" cy="{y:.1f}" r="5.5">'
            f"<title>{escape_text(label)}</title></circle>"
        )
        body.append(_draw_label(name, x, y, taken, classes[name]))
    return _wrap_svg(frame.high, body, f"Cost against {what} kept, by policy")


def select_unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Select the points (cost, kept) that no other beats in both, the cheapest first."""
    best: list[tuple[float, float]] = []
    for cost, kept in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or kept > best[-1][1]:
            best.append((cost, kept))
    return best


def draw_sizes(session: Compared, policies: Sequence[str], classes: Mapping[str, str]) -> str:
    """Draw the tokens of each call, one line per policy; below it, where each folds."""
    results = [session.result_of(one) for one in policies]
    calls = max(2, *(len(one.sizes) for one in results))
    folding = [one for one in results if one.edits]
    peak = max(max(one.sizes, default=0) for one in results) or 1
    beyond = peak > session.window
    peak = min(peak, session.window * 1.1)  # requests over the window must not flatten the rest
    strips = 12.0 * len(folding)
    frame = Frame((1, calls), (0, peak * 1.05), 250)
    body = _draw_grid(
        frame,
        ((one, f"{one:g}") for one in _choose_ticks(1, calls, 5)),
        ((one, format_token_count(one) if one else "0") for one in _choose_ticks(0, peak, 4)),
    )
    if beyond:
        _, y = frame.map_point(1, session.window)
        body.append(f'<path class="limit" d="M{_LEFT} {y:.1f}H{WIDE - _RIGHT}"/>')
        body.append(
            _draw_text(_LEFT + 4, y - 4, f"window {format_token_count(session.window)}", "axis")
        )
    body.append(_draw_text(WIDE - _RIGHT, frame.high - 6, "call", "axis", "end"))
    for one in results:
        line = "".join(
            _draw_path(frame.map_point(at + 1, min(size, frame.y[1])) for at, size in run)
            for run in _split_runs(_sample_points(one.sizes), frame.y[1])
        )
        body.append(f'<path class="line {classes[one.policy]}" d="{line}"/>')
    for row, one in enumerate(folding):
        y = frame.high + 6 + 12 * row
        body.append(f'<path class="strip" d="M{_LEFT} {y:g}H{WIDE - _RIGHT}"/>')
        for edit in one.edits:
            x, _ = frame.map_point(edit.call + 1, 0)
            label = f"{one.policy}, call {edit.call + 1:,}: {edit.before:,} → {edit.after:,} tokens"
            body.append(
                f'<circle class="dot {classes[one.policy]}" cx="{x:.1f}" cy="{y:g}" r="3.2">'
                f"<title>{escape_text(label)}</title></circle>"
            )
    if folding:
        body.append(_draw_text(_LEFT - 6, frame.high + 10, "folds", "axis", "end"))
    return _wrap_svg(
        frame.high + strips + (6 if folding else 0), body, "Tokens of each call, by policy"
    )


def draw_spending(session: Compared, policies: Sequence[str], classes: Mapping[str, str]) -> str:
    """Draw the dollars so far, call by call, one line per policy."""
    results = [session.result_of(one) for one in policies]
    calls = max(2, *(len(one.spent) for one in results))
    peak = max(one.dollars for one in results) or 1.0
    frame = Frame((1, calls), (0, peak * 1.05), 250)
    body = _draw_grid(
        frame,
        ((one, f"{one:g}") for one in _choose_ticks(1, calls, 5)),
        ((one, f"${one:,g}") for one in _choose_ticks(0, peak, 4)),
    )
    body.append(_draw_text(WIDE - _RIGHT, frame.high - 6, "call", "axis", "end"))
    for one in results:
        so_far = _sample_points([*accumulate(one.spent)])
        line = _draw_path(frame.map_point(at + 1, dollars) for at, dollars in so_far)
        body.append(f'<path class="line {classes[one.policy]}" d="{line}"/>')
    return _wrap_svg(frame.high, body, "Dollars so far, by policy")


def draw_cost_bars(totals: Sequence[Total]) -> str:
    """Draw one bar per policy: what was paid for, by cause."""
    most = max(one.dollars for one in totals) or 1.0
    body: list[str] = []
    y = 0.0
    for one in totals:
        body.append(_draw_text(0, y + 15, one.policy, "name"))
        body.append(_draw_text(WIDE, y + 15, format_dollar_amount(one.dollars), "name", "end"))
        x = 0.0
        for cause, meaning in CAUSES:
            amount = max(float(getattr(one, f"{cause}_dollars")), 0.0)
            wide = WIDE * amount / most
            if wide < 0.05:  # noqa: PLR2004 - less than a pixel
                continue
            title = escape_text(f"{one.policy}, {meaning}: {format_dollar_amount(amount)}")
            body.append(
                f'<rect class="bar {cause}" x="{x:.1f}" y="{y + 22:g}" width="{wide:.1f}" '
                f'height="20"><title>{title}</title></rect>'
            )
            if wide > WIDE * _NARROW + len(format_dollar_amount(amount)) * 3:
                kind = f"inside on-{cause}"
                body.append(
                    _draw_text(x + wide / 2, y + 36.5, format_dollar_amount(amount), kind, "middle")
                )
            x += wide
        y += 56
    return _wrap_svg(y - 8, body, "Money by cause, by policy")


def _draw_grid(
    frame: Frame, across: Iterable[tuple[float, str]], up: Iterable[tuple[float, str]]
) -> list[str]:
    found: list[str] = []
    for value, label in up:
        _, y = frame.map_point(frame.x[0], value)
        found.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDE - _RIGHT}"/>')
        found.append(_draw_text(_LEFT - 6, y + 4, label, "axis", "end"))
    for value, label in across:
        x, y = frame.map_point(value, frame.y[0])
        found.append(_draw_text(x, y + 17, label, "axis", "middle"))
    return found


def _choose_ticks(low: float, high: float, about: int) -> list[float]:
    """Choose about so many round numbers between two."""
    rough = (high - low) / about or 1.0
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * one for one in (1, 2, 2.5, 5, 10) if unit * one >= rough * 0.999)
    first = ceil(low / step)
    return [round(step * at, 6) for at in range(first, floor(high / step + 1e-9) + 1)]


def _draw_label(
    name: str, x: float, y: float, taken: list[tuple[float, float, float, float]], kind: str
) -> str:
    """Draw a name beside its point, where nothing else is."""
    wide = len(name) * _LETTER
    places = [
        (x + side, y + down, anchor)
        for down in (4, -9, 18, -22, 31)
        for side, anchor in ((10, "start"), (-10, "end"), (0, "middle"))
        if anchor != "middle" or abs(down) > 4  # noqa: PLR2004 - else it covers the point
    ]
    for left, base, anchor in places:
        start = left - {"start": 0, "end": wide, "middle": wide / 2}[anchor]
        box = (start, base - _HIGH + 3, start + wide, base + 3)
        inside = box[0] >= _LEFT and box[2] <= WIDE and box[1] >= 0
        if inside and not any(_has_overlap(box, one) for one in taken):
            break
    else:
        left, base, anchor = places[0]
        box = (left, base - _HIGH, left + wide, base)
    taken.append(box)
    return _draw_text(left, base, name, f"name {kind}", anchor)


def _has_overlap(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _sample_points(values: Sequence[float]) -> list[tuple[int, float]]:
    """Return a line's points; if there are too many, the lowest and highest of each few."""
    points = list(enumerate(values))
    few = ceil(len(points) / (_MOST / 2))
    if few <= 2:  # noqa: PLR2004 - no point could be left out
        return points
    kept = {points[0], points[-1]}
    for start in range(0, len(points), few):
        some = points[start : start + few]
        kept |= {min(some, key=lambda one: one[1]), max(some, key=lambda one: one[1])}
    return sorted(kept)


def _split_runs(points: Sequence[tuple[int, float]], top: float) -> list[list[tuple[int, float]]]:
    """Split off the parts of a line above the plot; each run keeps the step over the edge."""
    found: list[list[tuple[int, float]]] = []
    for at, point in enumerate(points):
        around = points[max(at - 1, 0) : at + 2]
        if min(size for _, size in around) > top:
            continue
        if found and found[-1][-1] == points[at - 1] and at:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def _draw_path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _draw_text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{place}>{escape_text(text)}</text>'


def _wrap_svg(high: float, body: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDE} {high:g}" role="img" aria-label="{escape_text(label)}">'
        + "".join(body)
        + "</svg>"
    )


def escape_text(text: str) -> str:
    """Escape text for HTML, on one line without control characters."""
    return escape(clean_line(text))

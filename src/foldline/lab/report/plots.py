"""The plots of a comparison as SVG: cost against retention, tokens call by call, money by cause.

Knows pixels. Refuses to know colours: every mark has a class, the page gives it one, by day and by
night. Each plot is 420 wide, so that its letters are read on a phone and on a desk alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from foldline.draw.text import clean
from foldline.lab.comparison import Compared, Total
from foldline.lab.report.sentences import dollars, percent, tokens

WIDE = 420
CAUSES = (
    ("new", "sent for the first time"),
    ("read", "read from the cache"),
    ("again", "written again"),
    ("output", "answers"),
    ("beside", "summaries"),
)
_LEFT, _RIGHT, _TOP, _FOOT = 46, 12, 16, 40
_LETTER, _HIGH = 6.7, 14  # of a label
_MOST = 240  # points of one line: more than pixels say nothing
_NARROW = 0.06  # of a bar: less has no room for a number


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a plot's numbers lie on the paper."""

    x: tuple[float, float]
    y: tuple[float, float]
    high: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A point on the paper."""
        wide, tall = WIDE - _LEFT - _RIGHT, self.high - _TOP - _FOOT
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return _LEFT + wide * across, _TOP + tall * (1 - up)


def frontier(totals: Sequence[Total], classes: Mapping[str, str], *, what: str) -> str:
    """Cost against what stayed in sight: a point a policy, and the line of those not beaten."""
    points = [
        (one.policy, one.dollars, one.kept_names if what == "names" else one.kept_lines)
        for one in totals
    ]
    low = min(kept for _, _, kept in points)
    bottom = max(floor((low - 4) / 10) * 10, 0)
    top = max(cost for _, cost, _ in points) or 1.0
    frame = Frame((0, top * 1.12), (bottom, 100 + (100 - bottom) * 0.06), 270)
    body = _grid(
        frame,
        ((one, f"${one:,g}") for one in _steps(0, top * 1.12, 5)),
        ((one, f"{one:g} %") for one in _steps(bottom, 100, 5)),
    )
    body.append(_text(WIDE - _RIGHT, frame.high - 6, "cost", "axis", "end"))
    best = unbeaten([(cost, kept) for _, cost, kept in points])
    body.append(f'<path class="front" d="{_path(frame.at(*one) for one in best)}"/>')
    dots = {name: frame.at(cost, kept) for name, cost, kept in points}
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in dots.values()]
    for name, cost, kept in points:
        x, y = dots[name]
        told = f"{name}: {dollars(cost)}, {percent(kept)} of {what} kept"
        body.append(
            f'<circle class="dot {classes[name]}" cx="{x:.1f}" cy="{y:.1f}" r="5.5">'
            f"<title>{_safe(told)}</title></circle>"
        )
        body.append(_label(name, x, y, taken, classes[name]))
    return _svg(frame.high, body, f"Cost against {what} kept, by policy")


def unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points than which none is cheaper and keeps as much, from the cheapest on."""
    found: list[tuple[float, float]] = []
    for cost, kept in sorted(points, key=lambda one: (one[0], -one[1])):
        if not found or kept > found[-1][1]:
            found.append((cost, kept))
    return found


def sizes(session: Compared, policies: Sequence[str], classes: Mapping[str, str]) -> str:
    """Tokens of each call, a line a policy; below it, where each policy folds."""
    results = [session.under(one) for one in policies]
    calls = max(2, *(len(one.sizes) for one in results))
    folding = [one for one in results if one.edits]
    peak = max(max(one.sizes, default=0) for one in results) or 1
    beyond = peak > session.window
    peak = min(peak, session.window * 1.1)  # what no provider would take presses nothing down
    strips = 12.0 * len(folding)
    frame = Frame((1, calls), (0, peak * 1.05), 250)
    body = _grid(
        frame,
        ((one, f"{one:g}") for one in _steps(1, calls, 5)),
        ((one, tokens(one) if one else "0") for one in _steps(0, peak, 4)),
    )
    if beyond:
        _, y = frame.at(1, session.window)
        body.append(f'<path class="limit" d="M{_LEFT} {y:.1f}H{WIDE - _RIGHT}"/>')
        body.append(_text(_LEFT + 4, y - 4, f"window {tokens(session.window)}", "axis"))
    body.append(_text(WIDE - _RIGHT, frame.high - 6, "call", "axis", "end"))
    for one in results:
        line = "".join(
            _path(frame.at(at + 1, min(size, frame.y[1])) for at, size in run)
            for run in _runs(_thinned(one.sizes), frame.y[1])
        )
        body.append(f'<path class="line {classes[one.policy]}" d="{line}"/>')
    for row, one in enumerate(folding):
        y = frame.high + 6 + 12 * row
        body.append(f'<path class="strip" d="M{_LEFT} {y:g}H{WIDE - _RIGHT}"/>')
        for edit in one.edits:
            x, _ = frame.at(edit.call + 1, 0)
            told = f"{one.policy}, call {edit.call + 1:,}: {edit.before:,} → {edit.after:,} tokens"
            body.append(
                f'<circle class="dot {classes[one.policy]}" cx="{x:.1f}" cy="{y:g}" r="3.2">'
                f"<title>{_safe(told)}</title></circle>"
            )
    if folding:
        body.append(_text(_LEFT - 6, frame.high + 10, "folds", "axis", "end"))
    return _svg(frame.high + strips + (6 if folding else 0), body, "Tokens of each call, by policy")


def spent(session: Compared, policies: Sequence[str], classes: Mapping[str, str]) -> str:
    """Dollars so far, call by call, a line a policy."""
    results = [session.under(one) for one in policies]
    calls = max(2, *(len(one.spent) for one in results))
    peak = max(one.dollars for one in results) or 1.0
    frame = Frame((1, calls), (0, peak * 1.05), 250)
    body = _grid(
        frame,
        ((one, f"{one:g}") for one in _steps(1, calls, 5)),
        ((one, f"${one:,g}") for one in _steps(0, peak, 4)),
    )
    body.append(_text(WIDE - _RIGHT, frame.high - 6, "call", "axis", "end"))
    for one in results:
        total, so_far = 0.0, list[float]()
        for each in one.spent:
            total += each
            so_far.append(total)
        line = _path(frame.at(at + 1, size) for at, size in _thinned(so_far))
        body.append(f'<path class="line {classes[one.policy]}" d="{line}"/>')
    return _svg(frame.high, body, "Dollars so far, by policy")


def money(totals: Sequence[Total]) -> str:
    """A bar a policy: what was paid for, by cause."""
    most = max(one.dollars for one in totals) or 1.0
    body: list[str] = []
    y = 0.0
    for one in totals:
        body.append(_text(0, y + 15, one.policy, "name"))
        body.append(_text(WIDE, y + 15, dollars(one.dollars), "name", "end"))
        x = 0.0
        for cause, told in CAUSES:
            amount = max(float(getattr(one, f"{cause}_dollars")), 0.0)
            wide = WIDE * amount / most
            if wide < 0.05:  # noqa: PLR2004 - not a pixel
                continue
            title = _safe(f"{one.policy}, {told}: {dollars(amount)}")
            body.append(
                f'<rect class="bar {cause}" x="{x:.1f}" y="{y + 22:g}" width="{wide:.1f}" '
                f'height="20"><title>{title}</title></rect>'
            )
            if wide > WIDE * _NARROW + len(dollars(amount)) * 3:
                kind = f"inside on-{cause}"
                body.append(_text(x + wide / 2, y + 36.5, dollars(amount), kind, "middle"))
            x += wide
        y += 56
    return _svg(y - 8, body, "Money by cause, by policy")


def _grid(
    frame: Frame, across: Iterable[tuple[float, str]], up: Iterable[tuple[float, str]]
) -> list[str]:
    found: list[str] = []
    for value, label in up:
        _, y = frame.at(frame.x[0], value)
        found.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDE - _RIGHT}"/>')
        found.append(_text(_LEFT - 6, y + 4, label, "axis", "end"))
    for value, label in across:
        x, y = frame.at(value, frame.y[0])
        found.append(_text(x, y + 17, label, "axis", "middle"))
    return found


def _steps(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two, about so many."""
    rough = (high - low) / about or 1.0
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * one for one in (1, 2, 2.5, 5, 10) if unit * one >= rough * 0.999)
    first = ceil(low / step)
    return [round(step * at, 6) for at in range(first, floor(high / step + 1e-9) + 1)]


def _label(
    name: str, x: float, y: float, taken: list[tuple[float, float, float, float]], kind: str
) -> str:
    """A name beside its point, where nothing else stands."""
    wide = len(name) * _LETTER
    places = [
        (x + side, y + down, anchor)
        for down in (4, -9, 18, -22, 31)
        for side, anchor in ((10, "start"), (-10, "end"), (0, "middle"))
        if anchor != "middle" or abs(down) > 4  # noqa: PLR2004 - else it stands on the point
    ]
    for left, base, anchor in places:
        start = left - {"start": 0, "end": wide, "middle": wide / 2}[anchor]
        box = (start, base - _HIGH + 3, start + wide, base + 3)
        inside = box[0] >= _LEFT and box[2] <= WIDE and box[1] >= 0
        if inside and not any(_meet(box, one) for one in taken):
            break
    else:
        left, base, anchor = places[0]
        box = (left, base - _HIGH, left + wide, base)
    taken.append(box)
    return _text(left, base, name, f"name {kind}", anchor)


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _thinned(values: Sequence[float]) -> list[tuple[int, float]]:
    """A line's points; where there are too many, the lowest and the highest of each few."""
    few = ceil(len(values) / (_MOST / 2))
    if few <= 2:  # noqa: PLR2004 - as many as there are
        return list(enumerate(values))
    found: set[tuple[int, float]] = {(0, values[0]), (len(values) - 1, values[-1])}
    for start in range(0, len(values), few):
        some = list(enumerate(values))[start : start + few]
        found |= {min(some, key=lambda one: one[1]), max(some, key=lambda one: one[1])}
    return sorted(found)


def _runs(points: Sequence[tuple[int, float]], top: float) -> list[list[tuple[int, float]]]:
    """The pieces of a line that are not above the paper, each with the step over its edge."""
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


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{place}>{_safe(text)}</text>'


def _svg(high: float, body: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDE} {high:g}" role="img" aria-label="{_safe(label)}">'
        + "".join(body)
        + "</svg>"
    )


def _safe(text: str) -> str:
    return escape(clean(text))

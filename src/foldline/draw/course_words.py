"""A session over time in words: what was found, and how its numbers came about.

Knows what is worth saying. Refuses to know columns, colours and pixels.
"""

from math import ceil, floor, log10

from foldline.core.saying import many
from foldline.draw.course import Course, How
from foldline.draw.text import clean

NAMES: dict[How, str] = {"fold": "folds", "mask": "masks", "clip": "clips"}
_CENT = 0.01
_THOUSAND, _MILLION = 1_000, 1_000_000


def finding(drawn: Course) -> str:
    """The picture in one sentence."""
    if not drawn.steps:
        return "no call of a model yet"
    folds = drawn.sums()["fold"][0]
    told = many(folds, "fold") if folds else "no fold"
    window, peak = drawn.now.window, drawn.peak
    bound = "never above" if peak <= window else "up to"
    return f"{many(drawn.turns, 'turn')}, {told}: {bound} {above(peak)} of {tokens(window)} tokens"


def money(drawn: Course) -> str:
    """What it cost, and what sending everything would have."""
    if not drawn.steps:
        return ""
    if drawn.dollars is None:
        return "cost not known: a model of this session has no price in the catalogue"
    paid, whole = drawn.dollars
    if whole - paid >= _CENT:
        return (
            f"{dollars(paid)} instead of about {dollars(whole)} for sending everything every time"
        )
    return f"{dollars(paid)}; sending everything would have cost about {dollars(whole)}"


def under(drawn: Course) -> str:
    """What stands below the title."""
    calls = len(drawn.steps)
    counted = sum(step.counted for step in drawn.steps)
    source = "reported by the provider"
    if counted < calls:
        source = f"reported for {counted:,} calls, else estimated" if counted else "estimated"
    name = clean(drawn.now.model) or "no model yet"
    policy = clean(drawn.now.policy)
    return f"{name} · policy {policy} · {many(calls, 'call')} · tokens {source}"


def cached(drawn: Course) -> str:
    """How much was read from the cache."""
    if not drawn.caches:
        return "cache not reported"
    share = 100 * drawn.read / drawn.input if drawn.input else 0.0
    return f"read from the cache, {share:.0f}% of all"


def outgrown(drawn: Course) -> str:
    """What became of sending everything; empty where it still fits."""
    step = drawn.outgrown
    if step is None:
        return ""
    end = drawn.steps[-1].everything
    times = end / drawn.now.window
    return f"full at turn {step.turn:,}; {tokens(end)} at the end: {times:.1f} windows"


def notes(drawn: Course) -> tuple[str, ...]:
    """How the numbers came about that nobody counted."""
    bill = (
        "Its bill is the least it could be: all that the call before had sent is read from the "
        "cache, but where this session's own cache was cold."
    )
    found = ["Everything is estimated: the newest instructions and every message whole."]
    if drawn.dollars is not None:
        found.append(bill)
        if drawn.outgrown is not None:
            turn = f"turn {drawn.outgrown.turn:,}"
            found.append(f"From {turn} on it could not have been sent: that bill is a comparison.")
    found.append("Window and tiers are as they are now; what edits took is estimated.")
    if drawn.step is not None:
        found.append(f"Above {drawn.step:,} tokens of input every token of a call costs more.")
    if drawn.now.cost is not None and drawn.now.cost.assumed:
        found.append("The price of cached reads is assumed.")
    if drawn.told:
        found.append(
            f"{many(drawn.told, 'fold')} told by a model: what asking it cost is not in the log."
        )
    return tuple(found)


def taken(drawn: Course, how: How) -> str:
    """How many edits of one kind, and what they took."""
    number, gone = drawn.sums()[how]
    return f"{number:,} took {tokens(gone)}" if number else "none"


def tokens(number: float) -> str:
    """A number of tokens, short."""
    for unit, size in (("M", _MILLION), ("k", _THOUSAND)):
        if number >= size * (1 if unit == "k" else 0.9995):
            short = f"{number / size:.{1 if unit == 'M' else 0}f}"
            return f"{short}{unit}"
    return f"{number:,.0f}"


def above(number: int) -> str:
    """The same, never less than it is: nothing was above it."""
    return tokens(ceil(number / _THOUSAND) * _THOUSAND) if number >= _THOUSAND else f"{number:,}"


def dollars(amount: float) -> str:
    """Money, as exact as it matters."""
    if amount >= _THOUSAND:
        return f"${amount:,.0f}"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}" if amount else "$0"


def ticks(top: float, most: int) -> list[float]:
    """Round numbers from 0 to `top`, at most so many above 0."""
    if top <= 0 or most < 1:
        return [0.0]
    least = top / most
    size = 10 ** floor(log10(least))
    step = next((size * n for n in (1, 2, 5) if size * n >= least), size * 10)
    return [step * at for at in range(floor(top / step) + 1)]


def money_ticks(top: float, most: int) -> list[tuple[float, str]]:
    """The same of money, all with as many digits."""
    found = ticks(top, most)
    step = found[1] if len(found) > 1 else 1.0
    digits = 0 if step >= 1 else max(2, -floor(log10(step)))
    return [(one, f"${one:,.{digits}f}" if one else "$0") for one in found]

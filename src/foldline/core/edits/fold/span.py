"""Which span to fold, and the event that folds it.

Knows cut points and what is standing. Refuses to know what the handoff says.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

import msgspec

from foldline.core import rules
from foldline.core import spine as spines
from foldline.core.edits.fold.handoff import Handoff
from foldline.core.item import Item
from foldline.core.log import Excluded, Folded, Hiding
from foldline.core.parts import Stub
from foldline.core.policy import Tail
from foldline.core.prices import UNKNOWN, Prices, pays_back_after
from foldline.core.spine import Change, FoldAt, Range
from foldline.core.tokens import MESSAGE, count
from foldline.core.view import View
from foldline.errors import BrokenView

Merging: TypeAlias = Literal["rank", "sixth", "all"]
"""What a new fold merges with: neighbours of equal rank, only what must not be a sixth, or all."""
Why: TypeAlias = Literal["forced", "pays", "cold", "due"]
_STARTS = 8
MOST_FOLDS = 5  # older ones are merged before a sixth would stand


@dataclass(frozen=True, slots=True)
class Span:
    """What would be folded: the events, the items that show them, the folds among them."""

    range: Range
    items: tuple[Item, ...]
    merges: tuple[int, ...]
    reads: Range
    """What its handoff is written from: the span, and the turns before it that are read again."""
    tokens: int
    """What the items take now."""


def proposals(view: View, *, tail: int, folds: int, merging: Merging) -> Iterator[Span]:
    """Spans worth folding, gentlest first.

    First what leaves at most `tail` tokens behind it: beside the standing folds as long as these
    do not exceed `folds` tokens, else merged with them; then everything that was answered; then
    everything but the newest message, so that no session is ever stuck.
    """
    cuts = rules.cut_points(view)
    last_resort = rules.cut_points(view, unanswered=True)[-1:]
    cuts = cuts or last_resort
    if not cuts:
        return
    gentle = within(view, cuts, tail)
    yield from up_to(view, gentle, lo=beginning(view, merging, most=folds))
    yield from up_to(view, gentle, lo=beginning(view, "all"))
    for cut in (cuts[-1], *last_resort):
        if cut.index > gentle.index:
            yield from up_to(view, cut, lo=beginning(view, "all"))


def beginning(view: View, merging: Merging, *, most: int | None = None) -> int:
    """Where a new fold begins: behind the standing ones, or at the oldest that it merges with.

    By rank, like a tree of logs: a new fold takes its neighbour of equal rank with it, and that
    one's. At most so many stand, and where they exceed `most` tokens together, fewer do.
    """
    first, last = view.spine.segments[0], view.spine.segments[-1]
    assert isinstance(last, Range), "the newest events are never folded"  # noqa: S101
    if merging == "all":
        return first.lo if isinstance(first, Range) else view.fold_at(first.edit).change.span.lo
    folds = view.folds()
    sizes = Counter[int]()
    for item in (item for item in view.items if item.state == "folded") if folds else ():
        sizes[item.seq] += item.tokens
    lo, rank, alive, size = last.lo, 0, len(folds), sizes.total()
    older = [*view.spine.segments[:-1]]
    while older and isinstance(gap := older[-1], Range) and not _is_unfolded(view, gap):
        older.pop()
        lo = gap.lo  # a client has dropped messages in between
    for segment in reversed(older):
        if not isinstance(segment, FoldAt):
            if alive < MOST_FOLDS:
                break  # what a person unfolded stands between
            lo = segment.lo
            continue
        fold = folds[segment.edit]
        equal = merging == "rank" and fold.rank == rank
        if not equal and alive < MOST_FOLDS and (most is None or size <= most):
            break
        lo, rank, alive = fold.change.span.lo, max(rank, fold.rank) + 1, alive - 1
        size -= sizes[segment.edit]
    return lo


def _is_unfolded(view: View, span: Range) -> bool:
    """Whether a person has taken back a fold over part of a span."""
    return any(spines.overlap(kept, span) for kept in view.spine.unfolded)


def within(view: View, cuts: list[rules.Cut], tokens: int) -> rules.Cut:
    """The oldest of some cuts that leaves at most so many tokens behind it, else the newest."""
    behind = _tokens_behind(view)
    return next((cut for cut in cuts if behind[cut.index] <= tokens), cuts[-1])


def keeping(view: View, tail: Tail, *, stable: int | None = None) -> rules.Cut | None:
    """The newest cut that leaves the tail whole: until groups, messages or tokens are enough.

    With `stable`, none behind that event.
    """
    tokens = groups = seen = 0
    index = len(view.items)
    for cut in rules.cuts_back(view, stable=stable):
        while index > cut.index and not _reached(tail, groups, seen, tokens):
            index -= 1
            item = view.items[index]
            tokens, groups, seen = tokens + item.tokens, groups + (item.role == "model"), seen + 1
        if _reached(tail, groups, seen, tokens):
            return cut
    return None


def _reached(tail: Tail, groups: int, messages: int, tokens: int) -> bool:
    if groups < tail.least:
        return False
    return (
        (tail.groups is not None and groups >= tail.groups)
        or (tail.messages is not None and messages >= tail.messages)
        or (tail.tokens is not None and tokens > tail.tokens)
        or tail == Tail()
    )


def up_to(view: View, cut: rules.Cut, *, lo: int, overlap: int = 0) -> Iterator[Span]:
    """The span from `lo` to a cut, if anything is in it; its handoff reads so many turns before."""
    inside: list[Item] = []
    merges: list[int] = []
    for item in view.items[: cut.index]:
        if item.state == "folded":
            if view.fold_at(item.seq).change.span.lo >= lo:
                merges += [item.seq] if item.role == "handoff" else []
                inside.append(item)
        elif item.seq >= lo:
            inside.append(item)
    if inside:
        reads = Range(_again(view, lo, overlap), cut.seq - 1)
        tokens = sum(item.tokens for item in inside)
        yield Span(Range(lo, cut.seq - 1), tuple(inside), tuple(merges), reads, tokens)


def _again(view: View, lo: int, turns: int) -> int:
    """Where the turns begin that stand before a place and are read once more: A-32."""
    before = [fold for fold in view.folds().values() if fold.change.span.lo < lo]
    if any(fold.chain for fold in before):
        return lo  # of a client's history: what it has dropped lies in between
    starts = [start for fold in before for start in fold.starts][-turns:] if turns else []
    return starts[0] if starts else lo


def fold(  # noqa: PLR0913 - what the event records
    view: View,
    span: Span,
    handoff: Handoff,
    *,
    ratio: float = 1.0,
    why: Why = "forced",
    prices: Prices = UNKNOWN,
    by: str = "",
) -> Folded:
    """The event that installs a handoff, to be appended to `view` next."""
    seq, lo, hi = view.head + 1, span.range.lo, span.range.hi
    assert hi is not None, "an open span is never folded"  # noqa: S101
    folds = {at: fold.change.span for at, fold in view.folds().items()}
    gone = tuple(
        at for at in view.spine.masks if all(lo <= stub.seq <= hi for stub in _stubs(view, at))
    )
    change = Change(
        span=span.range,
        took=spines.covering(view.spine, lo=lo, hi=hi, folds=folds),
        put=(FoldAt(seq),),
        masks_off=gone,
        base=view.spine.base,
        turned_off=tuple(
            one for one in view.spine.turned if lo <= one.lo and one.hi is not None and one.hi <= hi
        ),
    )
    after = spines.swap(view.spine, change)
    if after is None:
        raise BrokenView(f"a fold over {span.range} takes {change.took}, which does not stand")
    size = count(handoff.text) + MESSAGE
    size += count(handoff.reply) + MESSAGE if handoff.reply else 0
    behind = view.tokens - span.tokens - before(view, span)
    after_calls = pays_back_after(prices, gone=span.tokens, left=size, behind=behind)
    return Folded(
        text=handoff.text,
        change=change,
        spine=msgspec.structs.replace(after, standing=view.standing(), base=view.instructed),
        verbatim=handoff.verbatim,
        clipped=handoff.clipped,
        facts=handoff.facts,
        lines=handoff.lines,
        by=by if handoff.lines else "",
        focus=handoff.focus,
        rank=max((view.fold_at(at).rank + 1 for at in span.merges), default=0),
        reads=span.reads if span.reads != span.range else None,
        starts=_starts(view, span),
        excluded=tuple(sorted(excluded(view, span))),
        before=span.tokens,
        after=size,
        ratio=ratio,
        errors=view.learned.errors,
        messages=messages(view, span),
        idle=view.idle_folds + 1,
        system=handoff.system,
        reply=handoff.reply,
        why=why,
        pays_after=None if after_calls == inf else round(after_calls, 1),
    )


def before(view: View, span: Span) -> int:
    """What stands before the span and is not written anew by folding it."""
    others = (item for item in view.items if item.state == "folded")
    return sum(item.tokens for item in others if item.seq not in span.merges)


def taken_back(view: View, span: Span) -> bool:
    """Whether a person unfolded part of it: automatic edits leave that alone until they must."""
    return _is_unfolded(view, span.range)


def messages(view: View, span: Span) -> int:
    """How many messages a span stands for, those of merged folds included."""
    own = sum(item.state != "folded" for item in span.items)
    return own + sum(view.fold_at(at).messages for at in span.merges)


def excluded(view: View, span: Span) -> set[int]:
    """What a person took out of the model's sight, in the span and in what was folded before."""
    hi = span.range.hi or 0
    return {seq for seq in hidden(view) if span.reads.lo <= seq <= hi}


def hidden(view: View) -> set[int]:
    """All that a person took out of the model's sight."""
    folded = {seq for fold in view.folds().values() for seq in fold.excluded}
    masks = (view.held[at] for at in view.spine.masks)
    return folded | {s.seq for mask in masks if isinstance(mask, Excluded) for s in mask.stubs}


def _starts(view: View, span: Span) -> tuple[int, ...]:
    """Where the newest of its turns began: a later fold may read them once more."""
    merged = (start for at in span.merges for start in view.fold_at(at).starts)
    return tuple(sorted({*merged, *rules.turn_starts(view, span.items)}))[-_STARTS:]


def _tokens_behind(view: View) -> list[int]:
    """For each index, the tokens from that item on."""
    behind = [sum(item.tokens for item in view.waiting)]
    for item in reversed(view.items):
        behind.append(behind[-1] + item.tokens)
    return behind[::-1]


def _stubs(view: View, at: int) -> tuple[Stub, ...]:
    mask = view.held[at]
    return mask.stubs if isinstance(mask, Hiding) else ()

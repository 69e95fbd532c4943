"""Choose the span to fold, tell when a fold pays, and build the event that folds it.

The cheapest size at which to fold is H = F + √(2·g·C/r), see `prices`. It is computed anew
before every call from the tail, the user's words and the prices of that moment, so a cheap moment
is used when it comes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

import msgspec

from foldline.core import ledger, rules
from foldline.core import spine as spines
from foldline.core.cold_cache import Cache
from foldline.core.edits.fold.handoff import MOST_WORDS, Handoff, count_quoted_tokens
from foldline.core.item import Item
from foldline.core.log import Excluded, Folded, Hiding, UsageReported
from foldline.core.parts import Stub
from foldline.core.policy import Priced, Tail
from foldline.core.prices import UNKNOWN, Prices, cheapest_size, fold_cost, pays_back_after
from foldline.core.spine import Change, FoldAt, Range
from foldline.core.tokens import MESSAGE, count_tokens
from foldline.core.view import View
from foldline.errors import BrokenView

_SOON = 0.8  # of the size at which a fold pays
_LEAST_FACTS = 600  # tokens
_FRAME = 120  # tokens of a handoff besides words and facts


@dataclass(frozen=True, slots=True)
class Span:
    """What would be folded: the events, the items that show them, the folds among them."""

    range: Range
    items: tuple[Item, ...]
    merges: tuple[int, ...]
    """The standing folds in it, by their places."""
    reads: Range
    """What its handoff is written from: the span, and the turns before it that are read again."""
    tokens: int
    """What the items take now."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A fold that pays: its span, the most tokens its handoff may take, and why."""

    span: Span
    cap: int
    why: Literal["pays", "cold"]
    ripe: bool = True
    """Whether it pays now; else it pays soon, and a narrative is worth asking for."""


def find_paying_fold(  # noqa: PLR0913 - everything that the decision rests on
    view: View,
    rule: Priced,
    *,
    prices: Prices,
    cache: Cache,
    request: int,
    most: int,
    narrative: float,
    stable: int | None = None,
    handoff: int | None = None,
) -> Moment | None:
    """Find the fold that pays now or soon, if any.

    `request` is the estimated size of all that would be sent; `narrative` is what the fold's
    narrative cost, in fresh input tokens: it is paid already, but the next one will cost as much.
    `handoff` is the size of the handoff once it is built; until then it is estimated, rather too
    small.
    """
    if request < rule.floor * _SOON:
        return None
    span = _find_fold_span(view, rule, most=most, stable=stable)
    if span is None or taken_back(view, span):
        return None
    cap, least = _estimate_handoff(view, span, rule.ledger)
    cap, handoff = min(cap, most), min(least, most) if handoff is None else handoff
    gain = span.tokens - handoff
    if gain < max(rule.gain, rule.gain_share * request):
        return None
    left = request - gain
    ended = rules.turn_end(view)
    if cache == "cold" and ended and request >= rule.floor:
        return Moment(span, cap, "cold") if request >= rule.when_cold * left else None
    tail = view.tokens - span.tokens - count_tokens_before(view, span)
    cost = fold_cost(prices, rewritten=handoff + tail, summary=narrative)
    size = cheapest_size(prices, left=left, growth=estimate_growth(view), cost=cost)
    if cache == "cold" and request >= rule.floor:
        # Inside a turn the model still works with what it read: fold no sooner than it pays.
        return Moment(span, cap, "cold") if request >= size else None
    size = max(size * (1.0 if ended else rule.inside_turn), rule.floor)
    if request < size * _SOON:
        return None
    return Moment(span, cap, "pays", ripe=request >= size)


def _estimate_handoff(view: View, span: Span, share: float) -> tuple[int, int]:
    """Estimate the most tokens that a handoff may take, and those that it will.

    Of the merged ones the words come again, but of all their facts only what one ledger holds.
    """
    words = sum(item.tokens for item in span.items if item.role == "user")
    merged = [view.fold_at(at) for at in span.merges]
    older = sum(one.after for one in merged)
    again = sum(min(count_quoted_tokens(one.text), one.after) for one in merged)
    every, new = (max(int(n * share), _LEAST_FACTS) for n in (span.tokens, span.tokens - older))
    facts = min(older - again + new, ledger.CEILING)
    most = words + older + min(every, ledger.CEILING) + _FRAME
    return most, min(words + again, MOST_WORDS) + facts + _FRAME


def estimate_growth(view: View) -> float:
    """Estimate the tokens that a call adds: the average over what is in sight."""
    return (view.tokens - view.sizes["handoff"]) / max(view.answers, 1)


def _find_fold_span(view: View, rule: Priced, *, most: int, stable: int | None) -> Span | None:
    """Find the span before the tail, with the standing folds that it merges with."""
    cut = find_cut_before_tail(view, rule.tail, stable=stable)
    if cut is None:
        return None
    return next(up_to(view, cut, lo=choose_fold_start(view, "rank", most=most // 2)), None)


Merging: TypeAlias = Literal["rank", "sixth", "all"]
"""What a new fold merges with: neighbours of equal rank, only what would make a sixth, or all."""
Why: TypeAlias = Literal["forced", "full", "pays", "cold", "due"]
_STARTS = 8  # turns whose starts a fold remembers
MOST_FOLDS = 5  # folds that stand side by side: a sixth is merged into them


def iterate_fold_spans(
    view: View, *, tail: int, folds: int, merging: Merging, unanswered: bool = False
) -> Iterator[Span]:
    """Yield spans worth folding, gentlest first.

    First what leaves at most `tail` tokens behind it: beside the standing folds while these take
    at most `folds` tokens, else merged with them; then everything that was answered. With
    `unanswered` messages that nobody has answered are folded too, all but the newest one.
    """
    cuts = rules.cut_points(view, unanswered=unanswered)
    if not cuts:
        return
    gentle = choose_cut_within(view, cuts, tail)
    yield from up_to(view, gentle, lo=choose_fold_start(view, merging, most=folds))
    yield from up_to(view, gentle, lo=choose_fold_start(view, "all"))
    if cuts[-1].index > gentle.index:
        yield from up_to(view, cuts[-1], lo=choose_fold_start(view, "all"))


def choose_fold_start(view: View, merging: Merging, *, most: int | None = None) -> int:
    """Choose where a new fold begins: behind the standing folds, or at the oldest it merges with.

    Walks back over the standing folds and merges each one while

    - its rank equals the new fold's (`merging="rank"`, like a log-structured merge tree), or
    - `MOST_FOLDS` or more would stand beside the new fold, or
    - the folds that stand take more than `most` tokens together.
    """
    first, last = view.spine.segments[0], view.spine.segments[-1]
    assert isinstance(last, Range), "the newest events are never folded"  # noqa: S101
    if merging == "all":
        return first.lo if isinstance(first, Range) else view.fold_at(first.edit).change.span.lo
    lo, older = last.lo, [*view.spine.segments[:-1]]
    while older and isinstance(gap := older[-1], Range) and not _is_unfolded(view, gap):
        older.pop()
        lo = gap.lo  # a client has dropped messages between this range and the next
    folds = view.list_folds()
    sizes = Counter[int]()
    for item in view.items if folds else ():
        if item.state == "folded":
            sizes[item.seq] += item.tokens
    rank, standing, size = 0, len(folds), sizes.total()
    for segment in reversed(older):
        too_many = standing >= MOST_FOLDS
        if isinstance(segment, Range):
            if not too_many:
                break  # what a person unfolded stays as it is
            lo = segment.lo
            continue
        fold = folds[segment.edit]
        equal = merging == "rank" and fold.rank == rank
        too_large = most is not None and size > most
        if not (equal or too_many or too_large):
            break
        lo, rank = fold.change.span.lo, max(rank, fold.rank) + 1
        standing, size = standing - 1, size - sizes[segment.edit]
    return lo


def _is_unfolded(view: View, span: Range) -> bool:
    return any(spines.has_overlap(kept, span) for kept in view.spine.unfolded)


def choose_cut_within(view: View, cuts: list[rules.Cut], tokens: int) -> rules.Cut:
    """Choose the oldest cut that leaves at most `tokens` behind it, else the newest."""
    behind = _tokens_behind(view)
    return next((cut for cut in cuts if behind[cut.index] <= tokens), cuts[-1])


def find_cut_before_tail(view: View, tail: Tail, *, stable: int | None = None) -> rules.Cut | None:
    """Find the newest cut that leaves the tail whole, and with `stable` none behind that event."""
    tokens = groups = seen = 0
    index = len(view.items)
    for cut in rules.cuts_back(view, stable=stable):
        while index > cut.index and not _is_tail_full(tail, groups, seen, tokens):
            index -= 1
            item = view.items[index]
            tokens, groups, seen = tokens + item.tokens, groups + (item.role == "model"), seen + 1
        if _is_tail_full(tail, groups, seen, tokens):
            return cut
    return None


def _is_tail_full(tail: Tail, groups: int, messages: int, tokens: int) -> bool:
    if groups < tail.least:
        return False
    return (
        (tail.groups is not None and groups >= tail.groups)
        or (tail.messages is not None and messages >= tail.messages)
        or (tail.tokens is not None and tokens > tail.tokens)
        or tail == Tail()
    )


def up_to(view: View, cut: rules.Cut, *, lo: int, overlap: int = 0) -> Iterator[Span]:
    """Yield the span from `lo` to a cut, if not empty; its handoff rereads `overlap` turns."""
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
        reads = Range(_choose_reread_start(view, lo, overlap), cut.seq - 1)
        tokens = sum(item.tokens for item in inside)
        yield Span(Range(lo, cut.seq - 1), tuple(inside), tuple(merges), reads, tokens)


def _choose_reread_start(view: View, lo: int, turns: int) -> int:
    """Choose where the last `turns` turns before `lo` begin, which are read once more."""
    before = [fold for fold in view.list_folds().values() if fold.change.span.lo < lo]
    if any(fold.chain for fold in before):
        return lo  # a client's history: messages that it dropped lie in between
    starts = [start for fold in before for start in fold.starts][-turns:] if turns else []
    return starts[0] if starts else lo


def fold_span(  # noqa: PLR0913 - what the event records
    view: View,
    span: Span,
    handoff: Handoff,
    *,
    ratio: float = 1.0,
    why: Why = "forced",
    prices: Prices = UNKNOWN,
    by: str = "",
    used: UsageReported | None = None,
) -> Folded:
    """Build the event that installs a handoff, to be appended to `view` next."""
    seq, lo, hi = view.head + 1, span.range.lo, span.range.hi
    assert hi is not None, "an open span is never folded"  # noqa: S101
    folds = {at: fold.change.span for at, fold in view.list_folds().items()}
    gone = tuple(
        at for at in view.spine.masks if all(lo <= stub.seq <= hi for stub in _list_stubs(view, at))
    )
    change = Change(
        span=span.range,
        took=spines.select_segments(view.spine, lo=lo, hi=hi, folds=folds),
        put=(FoldAt(seq),),
        masks_off=gone,
        base=view.spine.base,
        turned_off=tuple(
            one for one in view.spine.turned if lo <= one.lo and one.hi is not None and one.hi <= hi
        ),
    )
    after = spines.apply_spine_change(view.spine, change)
    if after is None:
        raise BrokenView(f"a fold over {span.range} takes {change.took}, which does not stand")
    size = count_tokens(handoff.text) + MESSAGE
    size += count_tokens(handoff.reply) + MESSAGE if handoff.reply else 0
    behind = view.tokens - span.tokens - count_tokens_before(view, span)
    after_calls = pays_back_after(prices, gone=span.tokens, left=size, behind=behind)
    return Folded(
        text=handoff.text,
        change=change,
        spine=msgspec.structs.replace(
            after, standing=view.list_standing_events(), base=view.instructed
        ),
        verbatim=handoff.verbatim,
        clipped=handoff.clipped,
        facts=handoff.facts,
        lines=handoff.lines,
        by=by if handoff.lines else "",
        focus=handoff.focus,
        rank=max((view.fold_at(at).rank + 1 for at in span.merges), default=0),
        reads=span.reads if span.reads != span.range else None,
        starts=_list_turn_starts(view, span),
        excluded=tuple(sorted(collect_hidden_in_span(view, span))),
        before=span.tokens,
        after=size,
        ratio=ratio,
        errors=view.learned.errors,
        messages=count_span_messages(view, span),
        idle=view.idle_folds + 1,
        system=handoff.system,
        reply=handoff.reply,
        why=why,
        pays_after=None if after_calls == inf else round(after_calls, 1),
        used=used if handoff.lines else None,
    )


def count_tokens_before(view: View, span: Span) -> int:
    """Count the tokens before the span, which folding it does not rewrite."""
    others = (item for item in view.items if item.state == "folded")
    return sum(item.tokens for item in others if item.seq not in span.merges)


def taken_back(view: View, span: Span) -> bool:
    """Whether a person unfolded part of it: automatic edits leave that alone while they can."""
    return _is_unfolded(view, span.range)


def count_span_messages(view: View, span: Span) -> int:
    """Count the messages a span stands for, those of merged folds included."""
    own = sum(item.state != "folded" for item in span.items)
    return own + sum(view.fold_at(at).messages for at in span.merges)


def collect_hidden_in_span(view: View, span: Span) -> set[int]:
    """Collect the events of a span, and of what it rereads, that a person excluded."""
    hi = span.range.hi or 0
    return {seq for seq in collect_hidden_events(view) if span.reads.lo <= seq <= hi}


def collect_hidden_events(view: View) -> set[int]:
    """Collect all events that a person excluded from the model's sight."""
    folded = {seq for fold in view.list_folds().values() for seq in fold.excluded}
    masks = (view.held[at] for at in view.spine.masks)
    return folded | {s.seq for mask in masks if isinstance(mask, Excluded) for s in mask.stubs}


def _list_turn_starts(view: View, span: Span) -> tuple[int, ...]:
    """List where the newest turns of a span began: a later fold may reread them."""
    merged = (start for at in span.merges for start in view.fold_at(at).starts)
    return tuple(sorted({*merged, *rules.turn_starts(view, span.items)}))[-_STARTS:]


def _tokens_behind(view: View) -> list[int]:
    """For each index, the tokens from that item on."""
    behind = [sum(item.tokens for item in view.waiting)]
    for item in reversed(view.items):
        behind.append(behind[-1] + item.tokens)
    return behind[::-1]


def _list_stubs(view: View, at: int) -> tuple[Stub, ...]:
    mask = view.held[at]
    return mask.stubs if isinstance(mask, Hiding) else ()

"""What a handoff is written from: the user's words, pins, and facts, of a span and the folds in it.

Knows which events may be quoted again and which of them a view no longer holds. Refuses to fetch.
"""

from collections.abc import Mapping
from itertools import chain

from foldline.core import ledger
from foldline.core.edits.fold.handoff import Material
from foldline.core.edits.fold.span import Span, excluded, hidden
from foldline.core.item import Item
from foldline.core.log import Event, Logged, UserSaid
from foldline.core.names import names
from foldline.core.parts import text_of
from foldline.core.spine import Range, Spine
from foldline.core.view import View, load


def lacking(view: View, span: Span, fetched: Mapping[int, Event]) -> tuple[Range, ...]:
    """The events that must be fetched before the span's handoff can be written."""
    before = range(span.reads.lo, span.range.lo)
    wanted = {*_words(view, span), *_pins(view, span), *before}
    missing = (seq for seq in sorted(wanted) if seq not in view.held and seq not in fetched)
    return tuple(Range(seq, seq) for seq in missing)


def gather(view: View, span: Span, fetched: Mapping[int, Event]) -> Material:
    """All that the span's handoff may say; nothing of `lacking` may be missing."""
    from foldline.core.ledger.collect import collect  # noqa: PLC0415 - 40 ms, for folds only

    def logged(seqs: list[int]) -> list[Logged]:
        return [Logged(seq, view.held.get(seq) or fetched[seq]) for seq in seqs]

    pins = _pins(view, span)
    words = [seq for seq in _words(view, span) if seq not in pins]
    merged = [view.fold_at(at) for at in span.merges]
    facts: ledger.Facts = ()
    for fold in merged:
        facts = ledger.merge(facts, fold.facts)
    standing = [fold for at, fold in view.folds().items() if at not in span.merges]
    known = tuple(chain.from_iterable(fold.facts for fold in standing))
    again = _overlap(span, {**fetched, **view.held})
    hidden = excluded(view, span)
    read = [item for item in (*again, *span.items) if item.seq not in hidden]
    new = collect(read, {**fetched, **view.held}, older=(*known, *facts))
    facts = ledger.merge(facts, new)
    behind = [item for item in view.items if item.seq > (span.range.hi or 0)]
    shown = (text_of(item.parts) for item in behind)
    return Material(
        logged(words),
        logged(pins),
        facts if standing else ledger.settled(facts),
        tuple(chain.from_iterable(fold.lines for fold in merged)),
        frozenset(names("\n".join((*(fold.text for fold in standing), *shown)))),
        next((fold.focus for fold in reversed(merged) if fold.focus), ""),
    )


def _words(view: View, span: Span) -> list[int]:
    """The user's messages that may be quoted: those in sight, and those that older folds quoted."""
    folds = (view.fold_at(at) for at in span.merges)
    older = chain.from_iterable((*fold.verbatim, *fold.clipped) for fold in folds)
    shown = (item.seq for item in span.items if item.role == "user" and item.state != "masked")
    said = (seq for seq in shown if isinstance(view.held[seq], UserSaid))
    return sorted({*older, *said} - excluded(view, span))


def _pins(view: View, span: Span) -> list[int]:
    """The pins up to the span's end that no other standing fold quotes whole."""
    hi = span.range.hi
    others = (fold for at, fold in view.folds().items() if at not in span.merges)
    quoted = {*chain.from_iterable(fold.verbatim for fold in others)}
    in_sight = {item.seq for item in view.items} - {item.seq for item in span.items}
    kept_out = quoted | in_sight | hidden(view)
    free = (seq for seq in sorted(view.pins) if seq not in kept_out)
    return [seq for seq in free if hi is not None and 0 <= seq <= hi]


def _overlap(span: Span, events: Mapping[int, Event]) -> list[Item]:
    """The items of the turns before the span that are read once more: A-32."""
    if span.reads.lo >= span.range.lo:
        return []
    before = Range(span.reads.lo, span.range.lo - 1)
    return load(Spine((before,)), events, head=span.range.lo - 1).items

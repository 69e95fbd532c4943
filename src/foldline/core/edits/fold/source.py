"""What a handoff is written from: the user's words, pins, and facts, of a span and the folds in it.

Knows which events may be quoted again and which of them a view no longer holds. Refuses to fetch.
"""

from collections.abc import Mapping

from foldline.core import ledger
from foldline.core.edits.fold.handoff import Handoff, write
from foldline.core.edits.fold.span import Span
from foldline.core.log import Event, Logged, UserSaid
from foldline.core.spine import Range
from foldline.core.view import View


def lacking(view: View, span: Span, fetched: Mapping[int, Event]) -> tuple[Range, ...]:
    """The events that must be fetched before the span's handoff can be written."""
    wanted = {*_words(view, span), *_pins(view, span)}
    missing = (seq for seq in sorted(wanted) if seq not in view.held and seq not in fetched)
    return tuple(Range(seq, seq) for seq in missing)


def draft(view: View, span: Span, fetched: Mapping[int, Event], *, cap: int) -> Handoff:
    """The span's handoff, at most `cap` tokens; nothing of `lacking` may be missing."""

    def logged(seqs: list[int]) -> list[Logged]:
        return [Logged(seq, view.held.get(seq) or fetched[seq]) for seq in seqs]

    pins = _pins(view, span)
    words = [seq for seq in _words(view, span) if seq not in pins]
    older = (fact for at in span.merges for fact in view.fold_at(at).facts)
    facts = [*older, *ledger.facts(span.items)]
    return write(span.range, words=logged(words), pins=logged(pins), facts=facts, cap=cap)


def _words(view: View, span: Span) -> list[int]:
    """The user's messages that may be quoted: those in sight, and those that older folds quoted."""
    older = (seq for at in span.merges for seq in view.fold_at(at).verbatim)
    shown = (item.seq for item in span.items if item.role == "user" and item.state != "masked")
    said = (seq for seq in shown if isinstance(view.held[seq], UserSaid))
    return sorted({*older, *said})


def _pins(view: View, span: Span) -> list[int]:
    hi = span.range.hi
    return [seq for seq in sorted(view.pins) if hi is not None and span.range.lo <= seq <= hi]

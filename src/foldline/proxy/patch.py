"""Edits as patches on a client's bytes: outside of them every byte is the client's.

Knows which bytes an edit replaces. Refuses to decide: what stands in the view is laid over the
body, and nothing else is touched.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from foldline.core.item import Item
from foldline.core.log import ModelSaid
from foldline.core.parts import Text, text_of
from foldline.core.view import View
from foldline.dialects.client_messages import last_mark
from foldline.dialects.json_slices import Splice, find_fields, splice
from foldline.proxy.request import ClientRequest
from foldline.session.client_row import ClientMessage, FoldedMessages, Piece, items_by_place

_WHOLE = ("whole", "interrupted", "late")
_ASIDES = "# Instructions that stood in between, as they were given"
_LEAST_BUDGET = 1_024  # tokens of thinking: no provider takes less


@dataclass(frozen=True, slots=True)
class Patched:
    """A body with patches."""

    body: bytes
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    """How many patches of each kind: fold, clip, stub, thinking, limit."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """How long an answer may be: what the client asked for, and what there is room for."""

    name: str
    asked: int
    allowed: int


def patch_request(
    request: ClientRequest,
    view: View,
    row: Sequence[Piece],
    *,
    limit: AnswerLimit | None = None,
    thoughtless: bool = False,
) -> Patched:
    """The client's body, showing what a view does of its messages.

    `thoughtless` leaves out the thinking of every answer behind an edit, also in a tool loop that
    is not over.
    """
    kinds: Counter[str] = Counter()
    splices: list[Splice] = []
    if limit is not None and limit.allowed < limit.asked:
        splices += _lower(request, limit)
        kinds["limit"] += 1
    if not view.spine.masks and all(item.state in _WHOLE for item in (*view.items, *view.waiting)):
        return Patched(splice(request.body, splices), dict(kinds))
    items = items_by_place(view)
    loop = len(request.places) if thoughtless else _tool_loop(request)
    edited = any(isinstance(piece, FoldedMessages) for piece in row) or bool(view.spine.masks)
    at = 0
    for piece in row:
        if isinstance(piece, FoldedMessages):
            splices.append(_fold(request, piece, items[piece.edit], start=at))
            kinds["fold"] += 1
            at = piece.upto
        elif not piece.is_aside:
            message = request.chained[at]
            thinks = edited and request.described[message].thinks and message < loop
            put = _message(request, message, view, piece, items, kinds, thinks=thinks)
            if put is not None:
                splices.append(Splice(*request.places[message], put))
            at += 1
    return Patched(splice(request.body, splices), dict(kinds))


def _fold(
    request: ClientRequest, piece: FoldedMessages, items: Sequence[Item], *, start: int
) -> Splice:
    """A handoff in place of a run of messages; system messages in the run are quoted in it."""
    first, last = request.chained[start], request.chained[piece.upto - 1]
    run = range(first, last + 1)
    words = [request.form.words_of(request.raw(at)) for at in request.asides if at in run]
    if said := [text for text in words if text.strip()]:
        head, *rest = items
        text = "\n".join((text_of(head.parts), _ASIDES, *said))
        items = [msgspec.structs.replace(head, parts=(Text(text),)), *rest]
    marked = [at for at in run if request.described[at].marked]
    mark = last_mark(request.raw(marked[-1])) if marked else b""
    put = request.form.write_handoff(items, mark)
    return Splice(request.places[first].start, request.places[last].end, put)


def _message(  # noqa: PLR0913, PLR0917 - one message, and what is shown of it
    request: ClientRequest,
    message: int,
    view: View,
    piece: ClientMessage,
    items: dict[int, list[Item]],
    kinds: Counter[str],
    *,
    thinks: bool,
) -> bytes | None:
    """One message as it is shown; None where that is as it came."""
    raw = put = request.raw(message)
    for seq in range(piece.first, piece.last + 1):
        event = view.held[seq]
        for item in items.get(seq, ()):
            if item.state in ("clipped", "masked"):
                put = request.form.replace_text(put, event, item)
                kinds["clip" if item.state == "clipped" else "stub"] += 1
        if thinks and isinstance(event, ModelSaid) and view.is_behind_an_edit(seq):
            before, put = put, request.form.drop_thinking(put)
            kinds["thinking"] += put != before
    return None if put == raw else put


def _tool_loop(request: ClientRequest) -> int:
    """Where the tool loop begins that the last message belongs to; behind all, if to none.

    An API that thinks wants the thinking of the calls whose results it is given.
    """
    start = len(request.places)
    for at in reversed(request.chained):
        role = request.described[at].role
        if role == "user" and not request.form.is_results(request.raw(at)):
            break
        if role == "assistant":
            start = at
    return start if request.chained and start < request.chained[-1] else len(request.places)


def _lower(request: ClientRequest, limit: AnswerLimit) -> list[Splice]:
    """Ask for a shorter answer, and for thinking that is shorter than that."""
    allowed = limit.allowed
    splices: list[Splice] = []
    place = request.fields.get("thinking")
    if place is not None and request.body[place.start : place.start + 1] == b"{":
        budget = find_fields(request.body, place).get("budget_tokens")
        if budget is not None:
            asked: object = msgspec.json.decode(request.body[slice(*budget)])
            if type(asked) is int and asked >= allowed:
                allowed = max(allowed, _LEAST_BUDGET + 1)
                less = max(min(asked, allowed // 2), _LEAST_BUDGET)
                splices.append(Splice(*budget, str(less).encode()))
    return [Splice(*request.fields[limit.name], str(min(allowed, limit.asked)).encode()), *splices]

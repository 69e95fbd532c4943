"""Applies edits as patches to a client's bytes: outside of them every byte is the client's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from foldline.core.item import Item
from foldline.core.log import ModelSaid
from foldline.core.parts import Text, text_of
from foldline.core.view import View
from foldline.dialects.client_messages import last_mark
from foldline.dialects.json_slices import Splice, apply_splices, find_fields
from foldline.errors import BrokenView
from foldline.proxy.client_request import ClientRequest
from foldline.session.client_row import ClientMessage, FoldedMessages, Piece, items_by_place

_WHOLE = ("whole", "interrupted", "late")
_ASIDES = "# Instructions that stood in between, as they were given"
_LEAST_BUDGET = 1_024  # tokens of thinking: no provider takes less


@dataclass(frozen=True, slots=True)
class Patched:
    """A body with patches."""

    body: bytes
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    """How many patches of each kind: fold, clip, stub, thinking, limit; and history, if the client
    only named what is written out here."""
    splices: list[Splice] = field(default_factory=list[Splice])
    """The patches themselves, in the bytes of the request that was planned."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The answer limit that the client asked for, and the one there is room for."""

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
    """Patch the client's body so that it shows its messages as a view does.

    `thoughtless` leaves out the thinking of every answer after an edit, even in a tool loop that
    is not over.
    """
    kinds: Counter[str] = Counter()
    splices: list[Splice] = []
    if limit is not None and limit.allowed < limit.asked:
        splices += _lower_answer_limit(request, limit)
        kinds["limit"] += 1
    if not view.spine.masks and all(item.state in _WHOLE for item in (*view.items, *view.waiting)):
        return Patched(apply_splices(request.body, splices), dict(kinds), splices)
    items = items_by_place(view)
    loop = len(request.places) if thoughtless else find_tool_loop(request)
    edited = any(isinstance(piece, FoldedMessages) for piece in row) or bool(view.spine.masks)
    at = 0
    for piece in row:
        if isinstance(piece, FoldedMessages):
            splices.append(_make_fold_splice(request, piece, items[piece.edit], start=at))
            kinds["fold"] += 1
            at = piece.upto
        elif not piece.is_aside:
            message = request.chained[at]
            if request.described[message].role == "fold":
                raise BrokenView("a fold that the client's history refers to does not stand")
            thinks = edited and request.described[message].thinks and message < loop
            put = _patch_message(request, message, view, piece, items, kinds, thinks=thinks)
            if put is not None:
                splices.append(Splice(*request.places[message], put))
            at += 1
    return Patched(apply_splices(request.body, splices), dict(kinds), splices)


def _make_fold_splice(
    request: ClientRequest, piece: FoldedMessages, items: Sequence[Item], *, start: int
) -> Splice:
    """Replace a run of messages by a handoff that quotes the run's system messages.

    What is no message, as the tools that stand in a list of items, is kept behind it.
    """
    first, last = request.chained[start], request.chained[piece.upto - 1]
    run = range(first, last + 1)
    inside = [at for at in request.asides if at in run]
    stays = [request.extract_message(at) for at in inside if request.described[at].stays]
    words = [
        request.form.words_of(request.extract_message(at))
        for at in inside
        if not request.described[at].stays
    ]
    if asides := [text for text in words if text.strip()]:
        head, *rest = items
        text = "\n".join((text_of(head.parts), _ASIDES, *asides))
        items = [msgspec.structs.replace(head, parts=(Text(text),)), *rest]
    marked = [at for at in run if request.described[at].marked]
    mark = last_mark(request.extract_message(marked[-1])) if marked else b""
    put = b",".join((request.form.write_handoff(items, mark), *stays))
    return Splice(request.places[first].start, request.places[last].end, put)


def _patch_message(  # noqa: PLR0913, PLR0917 - one message, and the view of it
    request: ClientRequest,
    message: int,
    view: View,
    piece: ClientMessage,
    items: dict[int, list[Item]],
    kinds: Counter[str],
    *,
    thinks: bool,
) -> bytes | None:
    """Patch one message; None if it stays as it came."""
    raw = put = request.extract_message(message)
    for seq in range(piece.first, piece.last + 1):
        event = view.held[seq]
        for item in items.get(seq, ()):
            if item.state in ("clipped", "masked"):
                before, put = put, request.form.replace_text(put, event, item)
                kinds["clip" if item.state == "clipped" else "stub"] += put != before
        if thinks and isinstance(event, ModelSaid) and view.is_behind_an_edit(seq):
            before, put = put, request.form.drop_thinking(put)
            kinds["thinking"] += put != before
    return None if put == raw else put


def find_tool_loop(request: ClientRequest) -> int:
    """Find the first message of the tool loop under way; without one, the number of messages.

    An API with thinking requires the thinking of the calls whose results it gets. Words of the
    user behind the newest results do not end the loop.
    """
    end = start = len(request.places)
    has_results = False
    for at in reversed(request.chained):
        role = request.described[at].role
        if role == "user" and request.form.is_results(request.extract_message(at)):
            has_results = True
        elif role == "user" and start < end:
            break
        elif role == "assistant":
            if not has_results:
                break
            start = at
    return start


def _lower_answer_limit(request: ClientRequest, limit: AnswerLimit) -> list[Splice]:
    """Lower the answer limit, and the thinking budget below it."""
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
    head, _, inner = limit.name.partition(".")
    place = request.fields[head]
    if inner:
        place = find_fields(request.body, place)[inner]
    return [Splice(*place, str(min(allowed, limit.asked)).encode()), *splices]

"""Applies edits as patches to a client's bytes: outside of them every byte is the client's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from foldline.core.item import Item
from foldline.core.log import ModelSaid
from foldline.core.parts import Text, calls_of, text_of
from foldline.core.view import View
from foldline.dialects.base import Dialect
from foldline.dialects.client_messages import KeptState, item_of, last_mark
from foldline.dialects.json_slices import (
    Splice,
    apply_splices,
    find_fields,
    make_field_splice,
)
from foldline.errors import BrokenView
from foldline.proxy.client_request import ClientRequest
from foldline.session.client_row import (
    ClientMessage,
    FoldedMessages,
    Piece,
    is_said,
    items_by_place,
)
from foldline.session.recall_tool import is_recall

_WHOLE = ("whole", "interrupted", "late")
_ASIDES = "# Instructions that stood in between, as they were given"


@dataclass(frozen=True, slots=True)
class Patched:
    """A body with patches."""

    body: bytes
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    """How many patches of each kind: fold, clip, stub, thinking, limit, budget; recall, the tool
    and each answer that called it; and history, if the client only named what is written here."""
    splices: list[Splice] = field(default_factory=list[Splice])
    """The patches themselves, in the bytes of the request that was planned."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The answer limit that the client asked for, and the one there is room for."""

    name: str
    asked: int
    allowed: int
    least: int
    """What every request of the conversation has room for: a thinking budget is lowered by it."""
    most_thinking: float
    """What the fullest request has room for: a larger thinking budget is lowered in every one.
    Anthropic forgets the cached messages whenever that budget changes."""


def patch_request(  # noqa: PLR0913 - a request, its view, and how it is shown
    request: ClientRequest,
    view: View,
    row: Sequence[Piece],
    *,
    limit: AnswerLimit | None = None,
    thoughtless: bool = False,
    tools: bytes | None = None,
    tail: str = "",
) -> Patched:
    """Patch the client's body so that it shows its messages as a view does.

    `thoughtless` leaves out the thinking of every answer after an edit: the model binds it to the
    words before it. Otherwise all of it stays, as in a session. `tools` are the client's tools and
    one of ours: then answers in which that was called are shown as the model gave them. `tail` is a
    line at the end of the newest message.
    """
    kinds: Counter[str] = Counter()
    splices: list[Splice] = []
    if limit is not None:
        splices, is_lowered = _lower_answer_limit(request, limit)
        kinds += Counter(limit=bool(splices), budget=is_lowered)  # without what is 0
    if tools is not None:
        name = request.dialect.fixed[1]
        splices.append(make_field_splice(request.body, request.fields, name, tools))
        kinds["recall"] += 1
    elif not view.spine.masks and all(
        item.state in _WHOLE for item in (*view.items, *view.waiting)
    ):
        _add_tail(request, tail, splices, kinds)
        return Patched(apply_splices(request.body, splices), dict(kinds), splices)
    items = items_by_place(view)
    at, results, is_behind, controls = 0, b"", False, list[bytes]()
    for piece in row:
        if isinstance(piece, FoldedMessages):
            splice, more = _fold_messages(
                request, piece, items[piece.edit], start=at, thoughtless=thoughtless
            )
            splices.append(splice)
            controls += more
            kinds["fold"] += 1
            at = piece.upto
        elif piece.is_open:
            if tools is not None and piece.is_joined:
                messages, results = _write_joined(request.dialect, view, piece, items)
                messages += [results] if results else []
                splices.append(_make_tail_splice(request, messages))
                kinds["recall"] += 1
        elif not piece.is_aside:
            message = request.chained[at]
            if request.described[message].role == "fold":
                raise BrokenView("a fold that the client's history refers to does not stand")
            thinks = thoughtless and request.described[message].thinks
            before, results = results, b""
            if tools is not None and piece.is_joined:
                put, results = _patch_joined(request, view, piece, items, thinks=thinks)
                is_behind = request.dialect.orders_results and _begins_with_clients_call(
                    view, piece
                )
                kinds["recall"] += 1
            else:
                put = _patch_message(request, message, view, piece, items, kinds, thinks=thinks)
            if before:
                raw = request.extract_message(message) if put is None else put
                put = _add_results(request, before, raw, is_behind=is_behind)
            if put is not None:
                splices.append(Splice(*request.places[message], put))
            splices += _place_controls(request, at, controls)
            at += 1
    _add_tail(request, tail, splices, kinds)
    body = _apply_with_thinking(request, splices, kinds)
    return Patched(body, dict(kinds), splices)


def _apply_with_thinking(
    request: ClientRequest, splices: list[Splice], kinds: Counter[str]
) -> bytes:
    """Apply the patches, and ask for no thinking where they took that of the loop under way.

    Otherwise the provider refuses the request; from the loop's end on it thinks again. A loop that
    has no thinking in the client's own request goes as it came.
    """
    body = apply_splices(request.body, splices)
    if not request.dialect.thinks_manually(request.parameters):
        return body
    change, name = request.dialect.change_thoughtless, request.dialect.messages
    changed = change(request.parameters, msgspec.json.decode(body[slice(*find_fields(body)[name])]))
    if changed and change(request.parameters, msgspec.json.decode(request.extract_field(name))):
        return body
    for name, value in changed.items():
        place = request.fields[name]
        splices[:] = [one for one in splices if not place.start <= one.start < place.end]
        splices.append(Splice(*place, msgspec.json.encode(value)))
        kinds["thinking"] = 1
    return apply_splices(request.body, splices) if changed else body


def _add_tail(
    request: ClientRequest, tail: str, splices: list[Splice], kinds: Counter[str]
) -> None:
    """Add a line at the end of the newest message, unless the client has begun an answer there."""
    at = request.chained[-1]
    if not tail or request.described[at].role not in ("user", "tool"):
        return
    place = request.places[at]
    ours = [one for one in splices if (one.start, one.end) == place]
    raw = ours[0].put if ours else request.extract_message(at)
    splices[:] = [one for one in splices if one not in ours]
    splices.append(Splice(*place, request.dialect.add_words(raw, tail)))
    kinds["context"] += 1


def _make_tail_splice(request: ClientRequest, messages: Sequence[bytes]) -> Splice:
    """Put messages behind the client's last one."""
    field = request.fields[request.dialect.messages]
    if request.body.startswith(b"[", field.start):
        end = request.places[-1].end
        return Splice(end, end, b"," + b",".join(messages))
    alone = request.dialect.write_listed(request.extract_message(0))
    return Splice(*field, b"[" + b",".join((alone, *messages)) + b"]")


def _write_joined(
    dialect: Dialect, view: View, piece: ClientMessage, items: dict[int, list[Item]]
) -> tuple[list[bytes], bytes]:
    """Write an answer in which a tool of ours was called as the messages that the model sees.

    Results at its end are returned beside them: where all results of an answer stand in one
    message, the client's next one must take them along.
    """
    groups: list[list[Item]] = []
    for seq in range(piece.first, piece.last + 1):
        event = view.held.get(seq)
        if event is None or not is_said(event):
            continue
        shown = [
            msgspec.structs.replace(item, native=None)
            for item in items.get(seq, ())
            if item.state in ("clipped", "masked")
        ]
        for item in shown or [item_of(event)]:
            if dialect.results_in and groups and item.role == groups[-1][-1].role == "result":
                groups[-1].append(item)
            else:
                groups.append([item])
    messages: list[bytes] = []
    for group in groups:
        written = dialect.write_message(group)
        if group[0].role == "result":
            written = dialect.fit_results(written, messages[-1])
        messages.append(written)
    if dialect.results_in and groups[-1][0].role == "result":
        return messages[:-1], messages[-1]
    return messages, b""


def _carry_state(request: ClientRequest, run: range, *, thoughtless: bool) -> KeptState:
    """Find what later requests depend on in a folded run, and messages that nobody understood."""
    described = request.described
    stays = [at for at in run if described[at].stays]
    opaque = [request.extract_message(at) for at in stays if described[at].is_opaque]
    if len(opaque) == len(stays):
        return KeptState(opaque)
    found = request.dialect.carry_state(
        [request.extract_message(at) for at in run],
        [at - run.start for at in stays if not described[at].is_opaque],
        request.extract_field(request.dialect.fixed[1]),
        # A tool loop begins with its thinking, if the client has it enabled.
        thinks=not thoughtless and request.dialect.thinks_manually(request.parameters),
    )
    return found._replace(behind=[*found.behind, *opaque])


def _place_controls(request: ClientRequest, at: int, controls: list[bytes]) -> list[Splice]:
    """Put system messages behind the user's words at a place in the chain, unless these go on.

    A provider takes them only behind the user's last words. System messages that the client has
    there come after them: of two settings the newer one holds.
    """
    place, rest = request.places[request.chained[at]], request.chained[at + 1 : at + 2]
    put = b",".join(controls)
    is_users = request.described[request.chained[at]].role == "user"
    if not put:
        return []
    before = range(request.chained[at - 1] + 1 if at else 0, request.chained[at])
    own = [request.places[one] for one in request.asides if one in before]
    if not own and is_users and any(request.described[one].role == "user" for one in rest):
        return []
    controls.clear()
    if own:
        return [Splice(own[0].start, own[0].start, put + b",")]
    if is_users:
        return [Splice(place.end, place.end, b"," + put)]
    return [Splice(place.start, place.start, put + b",")]


def _fold_messages(
    request: ClientRequest,
    piece: FoldedMessages,
    items: Sequence[Item],
    *,
    start: int,
    thoughtless: bool,
) -> tuple[Splice, Sequence[bytes]]:
    """Replace a run of messages by a handoff, and what later requests depend on.

    The handoff quotes the run's system messages. Those that set something are returned.
    """
    # The run includes system messages between two folds: providers refuse one between handoffs.
    first = request.chained[start - 1] + 1 if start else request.chained[0]
    run = range(min(first, request.chained[start]), request.chained[piece.upto - 1] + 1)
    carried = _carry_state(request, run, thoughtless=thoughtless)
    inside = [at for at in request.asides if at in run and not request.described[at].stays]
    words = [request.dialect.read_words(request.extract_message(at)) for at in inside]
    if asides := [text for text in words if text.strip()]:
        head, *rest = items
        text = "\n".join((text_of(head.parts), _ASIDES, *asides))
        items = [msgspec.structs.replace(head, parts=(Text(text),)), *rest]
    marked = [at for at in run if request.described[at].marked]
    mark = last_mark(request.extract_message(marked[-1])) if marked else b""
    put = b",".join((request.dialect.write_handoff(items, mark), *carried.behind))
    place = Splice(request.places[run[0]].start, request.places[run[-1]].end, put)
    return place, carried.controls


def _patch_joined(
    request: ClientRequest,
    view: View,
    piece: ClientMessage,
    items: dict[int, list[Item]],
    *,
    thinks: bool,
) -> tuple[bytes, bytes]:
    """Write a joined answer in place of what the client has of it, and results for the next."""
    messages, results = _write_joined(request.dialect, view, piece, items)
    if thinks:
        messages = [request.dialect.drop_thinking(one) for one in messages]
    return b",".join(messages), results


def _begins_with_clients_call(view: View, piece: ClientMessage) -> bool:
    """Whether the last answer of a joined one calls a tool of the client's first."""
    events = (view.held.get(seq) for seq in range(piece.last, piece.first - 1, -1))
    said = next(event for event in events if isinstance(event, ModelSaid))
    return any(not is_recall(call) for call in calls_of(said.parts)[:1])


def _add_results(request: ClientRequest, results: bytes, raw: bytes, *, is_behind: bool) -> bytes:
    """Put results of ours before the client's or behind them, in one message."""
    name = request.dialect.results_in
    place = find_fields(raw).get(name)
    is_list = place is not None and raw.startswith(b"[", place.start)
    if place is None or not is_list or not request.dialect.is_results(raw):
        return results + b"," + raw
    ours, theirs = results[slice(*find_fields(results)[name])], raw[slice(*place)]
    first, second = (theirs, ours) if is_behind else (ours, theirs)
    return apply_splices(raw, [Splice(*place, first[:-1] + b"," + second[1:])])


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
                before, put = put, request.dialect.replace_text(put, event, item)
                kinds["clip" if item.state == "clipped" else "stub"] += put != before
        if thinks and isinstance(event, ModelSaid) and view.is_behind_an_edit(seq):
            before, put = put, request.dialect.drop_thinking(put)
            kinds["thinking"] += put != before
    return None if put == raw else put


def _lower_answer_limit(request: ClientRequest, limit: AnswerLimit) -> tuple[list[Splice], bool]:
    """Lower the answer limit, and the thinking budget below it; return whether that was lowered."""
    allowed = limit.allowed
    splices: list[Splice] = []
    place = request.fields.get("thinking")
    if place is not None and request.body[place.start : place.start + 1] == b"{":
        budget = find_fields(request.body, place).get("budget_tokens")
        if budget is not None:
            asked: object = msgspec.json.decode(request.body[slice(*budget)])
            if type(asked) is int and asked >= min(allowed, limit.most_thinking):
                least = request.dialect.least_thinking
                allowed = max(allowed, least + 1)
                less = max(min(asked, allowed // 2, limit.least // 2), least)
                splices += [Splice(*budget, str(less).encode())] if less < asked else []
    is_lowered = bool(splices)
    if min(allowed, limit.asked) == limit.asked:
        return splices, is_lowered
    head, _, inner = limit.name.partition(".")
    place = request.fields[head]
    if inner:
        place = find_fields(request.body, place)[inner]
    return [Splice(*place, str(min(allowed, limit.asked)).encode()), *splices], is_lowered

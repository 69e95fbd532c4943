"""A client's messages as a log has them, in the client's order.

Knows folds and messages by their digests: which events of a view are which of the client's
messages, and whether these can be rendered again. Refuses to know requests, and stores.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import text_of
from foldline.core.spine import FoldAt, Range, Spine
from foldline.core.view import View
from foldline.dialects.client_messages import ClientForm, chain_on, digest_of, short

_EDITED = ("clipped", "masked", "folded")
Said = UserSaid | ModelSaid | ToolReturned


class ClientMessage(NamedTuple):
    """One message of the client: its digest, and its first and last event."""

    link: str
    first: int
    last: int
    is_aside: bool = False
    """Whether it is a system message: those are in no chain."""


class FoldedMessages(NamedTuple):
    """A fold that stands: how many messages it and all before it stand for, and their digest."""

    edit: int
    upto: int
    chain: str
    last: int


Piece: TypeAlias = ClientMessage | FoldedMessages
Chains: TypeAlias = Mapping[int, tuple[int, str]]
"""What folds stand for that a person made: the place of each → (upto, chain)."""


class ClientRow(NamedTuple):
    """A view's row, and of which view it is: later ones are read on from it."""

    spine: Spine
    head: int
    pieces: list[Piece]


def read_on(view: View, known: ClientRow | None, chains: Chains | None = None) -> ClientRow:
    """A view's row; where only messages came since a known one, just those are read."""
    if known is None or known.spine is not view.spine or known.head > view.head:
        return ClientRow(view.spine, view.head, read_row(view, chains))
    new = {seq: view.held[seq] for seq in range(known.head + 1, view.head + 1)}
    return ClientRow(view.spine, view.head, [*known.pieces, *read_messages(new)])


def read_row(view: View, chains: Chains | None = None) -> list[Piece]:
    """The client's messages that a view shows, in order."""
    row: list[Piece] = []
    for segment in view.spine.segments:
        match segment:
            case FoldAt(edit):
                fold = view.fold_at(edit)
                upto, chain = (chains or {}).get(edit, (fold.upto, fold.chain))
                row.append(FoldedMessages(edit, upto, chain, fold.change.span.hi or 0))
            case Range(lo, hi):
                last = view.head if hi is None else min(hi, view.head)
                row += read_messages({seq: view.held[seq] for seq in range(lo, last + 1)})
    return row


def read_messages(events: Mapping[int, Event]) -> list[ClientMessage]:
    """The client's messages among some events in order."""
    found: list[ClientMessage] = []
    first: int | None = None
    for seq, event in events.items():
        match event:
            case UserSaid() | ModelSaid() | ToolReturned():
                first = seq if first is None else first
                if not event.more:
                    found.append(ClientMessage(event.link, first, seq))
                    first = None
            case Instructed() if event.aside:
                found.append(ClientMessage(event.link, seq, seq, is_aside=True))
            case _:
                pass
    return found


def count_upto(row: Sequence[Piece], last: int) -> int:
    """How many of a client's messages a row has up to and including an event."""
    count = 0
    for piece in row:
        if piece.last > last:
            break
        if isinstance(piece, FoldedMessages):
            count = piece.upto
        elif not piece.is_aside:
            count += 1
    return count


def chain_of(
    messages: Sequence[ClientMessage], *, count: int = 0, chain: str = ""
) -> tuple[int, str]:
    """How many messages there are, and their digest, behind some others."""
    for message in messages:
        if not message.is_aside:
            count, chain = count + 1, chain_on(chain, message.link)
    return count, chain


def digest_shown(view: View, row: Sequence[Piece], form: ClientForm | None = None) -> str:
    """The digest of the messages that a view shows.

    With a `form` they are written and read anew from what the log holds: so it is proven that a
    past request can be rendered again, message for message.
    """
    items = items_by_place(view) if any(item.state in _EDITED for item in view.items) else {}
    edited = {item.seq for item in view.items if item.state in ("clipped", "masked")}
    edited |= {item.seq for item in view.waiting if item.state in ("clipped", "masked")}
    found: list[str] = []
    if not items and form is None:
        said = (piece for piece in row if isinstance(piece, ClientMessage) and not piece.is_aside)
        return short(" ".join([piece.link for piece in said]).encode())
    for piece in row:
        if isinstance(piece, FoldedMessages):
            found += [digest_of(text_of(item.parts)) for item in items[piece.edit]]
        elif edited and any(seq in edited for seq in range(piece.first, piece.last + 1)):
            places = range(piece.first, piece.last + 1)
            shown = [item for seq in places for item in items.get(seq, ())]
            found.append(digest_of([text_of(item.parts) for item in shown]))
        elif piece.is_aside:
            continue
        elif form is None:
            found.append(piece.link)
        else:
            events = (view.held[seq] for seq in range(piece.first, piece.last + 1))
            whole = [form.item_of(event) for event in events if isinstance(event, Said)]
            found.append(form.describe(form.write_message(whole)).digest)
    return short(" ".join(found).encode())


def items_by_place(view: View) -> dict[int, list[Item]]:
    """What a view shows of each event."""
    items: dict[int, list[Item]] = {}
    for item in (*view.items, *view.waiting):
        items.setdefault(item.seq, []).append(item)
    return items

"""A client's messages as a log has them, in the client's order.

Messages and folds are known by their digests. A row says which events of a view are which of the
client's messages.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeGuard

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import text_of
from foldline.core.spine import FoldAt, Range, Spine
from foldline.core.view import View
from foldline.dialects.client_messages import (
    ClientForm,
    chain_on,
    digest_bytes,
    digest_of,
    item_of,
)

_EDITED = ("clipped", "masked", "folded")
Said = UserSaid | ModelSaid | ToolReturned


def is_said(event: Event) -> TypeGuard[Said]:
    """Whether somebody said this: it is a client's message, or a part of one."""
    return isinstance(event, Said)


class ClientMessage(NamedTuple):
    """One message of the client: its digest, and its first and last event."""

    link: str
    first: int
    last: int
    is_aside: bool = False
    """Whether it is a system message: those are in no chain."""


class FoldedMessages(NamedTuple):
    """A fold in force: the number and digest of all messages up to its end."""

    edit: int
    upto: int
    chain: str
    last: int


Piece: TypeAlias = ClientMessage | FoldedMessages
Chains: TypeAlias = Mapping[int, tuple[int, str]]
"""For folds that a person made: place → (upto, chain)."""


class ClientRow(NamedTuple):
    """A view's row, and which view it belongs to: a later row continues it."""

    spine: Spine
    head: int
    pieces: list[Piece]


def read_on(view: View, known: ClientRow | None, chains: Chains | None = None) -> ClientRow:
    """Read a view's row; if only messages came since a known row, read just those."""
    if known is None or known.spine is not view.spine or known.head > view.head:
        return ClientRow(view.spine, view.head, read_row(view, chains))
    new = {seq: view.held[seq] for seq in range(known.head + 1, view.head + 1)}
    return ClientRow(view.spine, view.head, [*known.pieces, *read_messages(new)])


def read_row(view: View, chains: Chains | None = None) -> list[Piece]:
    """Read the client's messages that a view shows, in order."""
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
    """Read the client's messages among events in order."""
    messages: list[ClientMessage] = []
    first: int | None = None
    for seq, event in events.items():
        match event:
            case UserSaid() | ModelSaid() | ToolReturned():
                first = seq if first is None else first
                if not event.more:
                    messages.append(ClientMessage(event.link, first, seq))
                    first = None
            case Instructed() if event.aside:
                messages.append(ClientMessage(event.link, seq, seq, is_aside=True))
            case _:
                pass
    return messages


def count_upto(row: Sequence[Piece], last: int) -> int:
    """Count a row's messages up to and including an event."""
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
    """Extend a count of messages and their digest by more messages."""
    for message in messages:
        if not message.is_aside:
            count, chain = count + 1, chain_on(chain, message.link)
    return count, chain


def digest_shown(view: View, row: Sequence[Piece], form: ClientForm | None = None) -> str:
    """Digest the messages that a view shows.

    With a `form` they are written and read again from the log: this proves that a past request can
    be rebuilt, message for message.
    """
    items = items_by_place(view) if any(item.state in _EDITED for item in view.items) else {}
    every = (*view.items, *view.waiting)
    edited = {item.seq for item in every if item.state in ("clipped", "masked")}
    if not items and form is None:
        said = (piece for piece in row if isinstance(piece, ClientMessage) and not piece.is_aside)
        return digest_bytes(" ".join([piece.link for piece in said]).encode())
    digests: list[str] = []
    for piece in row:
        if isinstance(piece, FoldedMessages):
            digests += [digest_of(text_of(item.parts)) for item in items[piece.edit]]
        elif edited and any(seq in edited for seq in range(piece.first, piece.last + 1)):
            places = range(piece.first, piece.last + 1)
            shown = [item for seq in places for item in items.get(seq, ())]
            digests.append(digest_of([text_of(item.parts) for item in shown]))
        elif piece.is_aside:
            continue
        elif form is None:
            digests.append(piece.link)
        else:
            events = (view.held[seq] for seq in range(piece.first, piece.last + 1))
            whole = [item_of(event) for event in events if is_said(event)]
            digests.append(form.describe_message(form.write_message(whole)).digest)
    return digest_bytes(" ".join(digests).encode())


def items_by_place(view: View) -> dict[int, list[Item]]:
    """Group a view's items by event."""
    items: dict[int, list[Item]] = {}
    for item in (*view.items, *view.waiting):
        items.setdefault(item.seq, []).append(item)
    return items

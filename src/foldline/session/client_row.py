"""A client's messages as a log has them, in the client's order.

Messages and folds are known by their digests. A row says which events of a view are which of the
client's messages.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeGuard

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import text_of
from foldline.core.spine import FoldAt, Range, Spine
from foldline.core.view import View
from foldline.dialects.base import Dialect
from foldline.dialects.client_messages import (
    chain_on,
    digest_bytes,
    digest_of,
    item_of,
)

EDITED = ("clipped", "masked", "folded")
"""States of items that show less than was said."""
_OPEN = "open"  # instead of the digest of a message that is not over
Said = UserSaid | ModelSaid | ToolReturned


def is_said(event: Event) -> TypeGuard[Said]:
    """True for a client's message, or a part of one."""
    return isinstance(event, Said)


class ClientMessage(NamedTuple):
    """One message of the client: its digest, and its first and last event."""

    link: str
    first: int
    last: int
    is_aside: bool = False
    """Whether it is a system message: those are in no chain."""
    is_joined: bool = False
    """Whether it is an answer in which the model called a tool of ours: the client has it without
    these calls and their results, the model sees all of it."""

    @property
    def is_open(self) -> bool:
        """Whether it is such an answer that is not over: the client does not have it yet."""
        return self.link == _OPEN


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
    pieces, first = known.pieces, known.head + 1
    if pieces and isinstance(last := pieces[-1], ClientMessage) and last.is_open:
        pieces, first = pieces[:-1], last.first
    new = {seq: view.held[seq] for seq in range(first, view.head + 1)}
    return ClientRow(view.spine, view.head, [*pieces, *read_messages(new)])


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
    begun: list[int] = []  # the events of a message that goes on
    for seq, event in events.items():
        match event:
            case UserSaid() | ModelSaid() | ToolReturned():
                begun.append(seq)
                if not event.more:
                    messages.append(_make_message(event.link, begun, events))
                    begun = []
            case Instructed() if event.aside:
                messages.append(ClientMessage(event.link, seq, seq, is_aside=True))
            case _:
                pass
    if begun:
        messages.append(_make_message(_OPEN, begun, events))
    return messages


def _make_message(link: str, seqs: Sequence[int], events: Mapping[int, Event]) -> ClientMessage:
    """Make a message of its events; only an answer that we joined has words and results."""
    kinds = {type(events[seq]) for seq in seqs}
    is_joined = ModelSaid in kinds and ToolReturned in kinds
    return ClientMessage(link, seqs[0], seqs[-1], is_joined=is_joined)


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


def digest_shown(view: View, row: Sequence[Piece], dialect: Dialect | None = None) -> str:
    """Digest the messages that a view shows.

    With a `dialect` they are written and read again from the log: this proves that a past request
    can be rebuilt, message for message.
    """
    items = items_by_place(view) if any(item.state in EDITED for item in view.items) else {}
    every = (*view.items, *view.waiting)
    edited = {item.seq for item in every if item.state in ("clipped", "masked")}
    if not items and dialect is None:
        said = (piece for piece in row if isinstance(piece, ClientMessage) and not piece.is_aside)
        links = [_digest_joined(view, one) if one.is_joined else one.link for one in said]
        return digest_bytes(" ".join(links).encode())
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
        elif piece.is_joined:
            digests.append(_digest_joined(view, piece))
        elif dialect is None:
            digests.append(piece.link)
        else:
            events = (view.held[seq] for seq in range(piece.first, piece.last + 1))
            whole = [item_of(event) for event in events if is_said(event)]
            digests.append(dialect.describe_message(dialect.write_message(whole)).digest)
    return digest_bytes(" ".join(digests).encode())


def _digest_joined(view: View, piece: ClientMessage) -> str:
    """Digest what the model sees of a joined answer: it is always written from the log."""
    events = (view.held[seq] for seq in range(piece.first, piece.last + 1))
    return digest_bytes(msgspec.json.encode([one.parts for one in events if is_said(one)]))


def items_by_place(view: View) -> dict[int, list[Item]]:
    """Group a view's items by event."""
    items: dict[int, list[Item]] = {}
    for item in (*view.items, *view.waiting):
        items.setdefault(item.seq, []).append(item)
    return items

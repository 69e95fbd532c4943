"""The conversation that a request is of: planned on the way out, heard on the way back.

Knows `proxy` and what of it the gateway uses; all that does stands here. Refuses to know HTTP.
Without conversations nothing is planned: every request is relayed as it came (`--plain`).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from foldline.apps.gateway.keys import Client
from foldline.apps.gateway.limits import Copy
from foldline.dialects.base import Dialect
from foldline.errors import BrokenView, Conflict, Erased, FoldlineError, WireError
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Scope, family_of
from foldline.proxy.request import ServerStateError

_log = logging.getLogger("foldline.gateway")
_HELD = 1_000_000  # bytes of a refusal that are read before it is passed on
_HEARD = 64_000_000  # bytes of an answer that are read along


@dataclass(frozen=True, slots=True)
class PlanHeaders:
    """What clients and operators are told of a planned request."""

    session: str = ""
    tokens: int = 0
    edits: int = 0
    """Made for this very request."""
    unplanned: str = ""
    """Why it was sent without a plan, in a word."""
    patches: dict[str, int] = field(default_factory=dict[str, int])
    """What differs from what the client sent: how many patches of each kind."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The same for an answer's head."""
        found: list[tuple[bytes, bytes]] = []
        if self.session:
            found += [
                (b"x-foldline-session", self.session.encode()),
                (b"x-foldline-tokens", str(self.tokens).encode()),
                (b"x-foldline-edits", str(self.edits).encode()),
            ]
        if self.patches:
            kinds = ",".join(f"{kind}={count}" for kind, count in sorted(self.patches.items()))
            found.append((b"x-foldline-patches", kinds.encode()))
        if self.unplanned:
            found.append((b"x-foldline-unplanned", self.unplanned.encode()))
        return found


async def planned(  # noqa: PLR0913 - a request, and whose it is
    conversations: Conversations,
    dialect: Dialect,
    body: bytes,
    *,
    client: Client,
    session: str,
    headers: Sequence[tuple[bytes, bytes]],
    fold_from: int,
) -> Exchange | PlanHeaders:
    """Plan a request; where that cannot be done, why: the provider may take it as it came."""
    scope = _scope(client, session, headers)
    try:
        return await conversations.ask(dialect, body, scope=scope, fold_from=fold_from)
    except ServerStateError:
        return PlanHeaders(unplanned="server-state")
    except WireError:
        return PlanHeaders(unplanned="unreadable")
    except (BrokenView, Conflict, Erased) as fault:
        return PlanHeaders(unplanned=type(fault).__name__.lower())


def _scope(client: Client, session: str, headers: Sequence[tuple[bytes, bytes]]) -> Scope:
    """Whose conversation a request may be of.

    A bearer token may be renewed in the middle of a conversation: a client that names its
    conversations by ids that nobody can guess is known by those instead.
    """
    family = family_of(headers)
    renewed = any(
        name == b"authorization" and value[:7].lower() == b"bearer " for name, value in headers
    )
    key = "" if family and renewed and not client.owner else client.scope
    return Scope(client.tenant, key, session, client.owner, family)


def told(exchange: Exchange) -> PlanHeaders:
    """What was done with a request."""
    return PlanHeaders(
        exchange.session,
        exchange.report.total,
        exchange.edits,
        exchange.unplanned,
        exchange.patches,
    )


class PlannedExchange:
    """An exchange that hears an answer, whatever the answer is encoded in."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.begun = False
        self.held: list[bytes] = []
        """What came before the answer had opened, as it came."""
        self._copy = Copy(b"", most=_HEARD)
        self._size = 0

    def begin(self, status: int, encoding: bytes) -> None:
        """An answer begins."""
        self.begun = True
        self.held, self._size = [], 0
        self._copy = Copy(encoding, most=_HEARD)
        self.exchange.begin(status)

    @property
    def opened(self) -> bool:
        """Whether it may be passed on: no other request will be sent instead."""
        return self.exchange.opened or not self._copy.readable or self._size > _HELD

    @property
    def complete(self) -> bool:
        """Whether all of the answer was heard, though its bytes may go on."""
        return self.exchange.complete

    @property
    def relayed(self) -> bool:
        """Whether what is sent is what the client sent, byte for byte."""
        return self.exchange.relayed

    def hear(self, chunk: bytes) -> None:
        """A piece of it."""
        if not self.opened:
            self.held.append(chunk)
            self._size += len(chunk)
        if self._copy.readable and (piece := self._copy.feed(chunk)):
            self.exchange.hear(piece)

    async def again(self) -> bool:
        """Whether to send another request instead; where that cannot be kept, none is sent."""
        try:
            return await self.exchange.again()
        except FoldlineError as fault:
            _log.warning("a refusal was not healed: %s", fault)
            return False

    async def end(self) -> None:
        """No more comes: what was heard is taken in."""
        if self.begun and self._copy.readable:
            await self.exchange.end()
        else:
            self.exchange.leave()

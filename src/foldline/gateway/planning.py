"""The conversation that a request is of: planned on the way out, heard on the way back.

Knows `run.talks` and what of it the gateway uses; all that does stands here. Refuses to know HTTP.
Without talks nothing is planned: every request is relayed as it came (`--plain`).
"""

import logging
from dataclasses import dataclass

from foldline.errors import Conflict, Erased, FoldlineError, Overflow, WireError
from foldline.gateway.keys import Client
from foldline.gateway.limits import Copy
from foldline.run.exchange import Exchange
from foldline.run.known import Scope
from foldline.run.talks import Talks
from foldline.wire.dialects import Dialect

_log = logging.getLogger("foldline.gateway")
_HELD = 1_000_000  # bytes of a refusal that are read before it is passed on
_HEARD = 64_000_000  # bytes of an answer that are read along


@dataclass(frozen=True, slots=True)
class Told:
    """What clients and operators are told of a planned request."""

    session: str = ""
    tokens: int = 0
    edits: int = 0
    unplanned: str = ""
    """Why it was relayed as it came instead, in a word."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The same for an answer's head."""
        if self.unplanned:
            return [(b"x-foldline-unplanned", self.unplanned.encode())]
        if not self.session:
            return []
        return [
            (b"x-foldline-session", self.session.encode()),
            (b"x-foldline-tokens", str(self.tokens).encode()),
            (b"x-foldline-edits", str(self.edits).encode()),
        ]


async def planned(
    talks: Talks, dialect: Dialect, body: bytes, *, client: Client, session: str
) -> Exchange | Told:
    """Plan a request; where that cannot be done, why: the provider may take it as it came."""
    scope = Scope(client.tenant, client.scope, session, client.owner)
    try:
        return await talks.ask(dialect, body, scope=scope)
    except WireError:
        return Told(unplanned="unreadable")
    except (Conflict, Erased, Overflow) as fault:
        _log.warning("a request is relayed as it came: %s", fault)
        return Told(unplanned=type(fault).__name__.lower())


def told(exchange: Exchange) -> Told:
    """What was done with a request."""
    return Told(exchange.session, exchange.report.total if exchange.report else 0, exchange.edits)


class Hearing:
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

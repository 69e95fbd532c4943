"""Conversations known by their history: clients that send all of it again with every call.

Knows which log a history goes on with, and what of it is new; plans the call, and takes in the
answer. Refuses to know HTTP: bytes come in and go out. One history that is asked twice at a time is
two conversations; one that turns off from a known one is a new log that names its origin.
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from foldline.core.log import Event, Instructed, ModelSaid
from foldline.core.plan import Facts
from foldline.errors import WireError
from foldline.run import refused
from foldline.run.live import Live
from foldline.run.session import AsyncSession
from foldline.store.base import Name, Store
from foldline.wire import chain, dialects
from foldline.wire.chain import Link
from foldline.wire.dialects import Dialect
from foldline.wire.faults import classify
from foldline.wire.reading import parse
from foldline.wire.sse import Lines

MOST = 256
"""The conversations that one client knows at a time; one that was forgotten begins a new log."""
_REFUSED = 400
Known: TypeAlias = Callable[[str, int | None], Facts]
"""The facts of a model, and of how long its answer may be."""


@dataclass(slots=True)
class Talk:
    """One conversation: its log, and what its client's history must begin with."""

    live: Live
    chain: list[Link] = field(default_factory=list[Link])
    places: list[int] = field(default_factory=list[int])
    """Where in the log each message of the chain is."""
    led: Instructed = field(default_factory=Instructed)
    """The instructions that the client's last history began with."""
    busy: bool = False
    """Whether a call is under way."""
    lost: bool = False
    """Whether a message was left before it was known to be written: what follows is a fork."""

    async def take(self, event: Event, link: Link) -> None:
        """Into the log, and a message into the chain too."""
        self.lost = True
        place = self.live.view.head + 1
        await self.live.take(event)
        self.lost = False
        if link:
            self.chain.append(link)
            self.places.append(place)


class Talks:
    """The conversations that pass through one client."""

    def __init__(self, store: Store, known: Known) -> None:
        self.store = store
        self._known = known
        self._talks: OrderedDict[str, Talk] = OrderedDict()
        self._prefix, self._count = f"talk-{os.urandom(3).hex()}", 0

    @property
    def newest(self) -> Live | None:
        """The log that was asked last."""
        return next(reversed(self._talks.values())).live if self._talks else None

    async def ask(self, dialect: Dialect, body: bytes) -> "Exchange":
        """Plan a client's request."""
        given = dialect.decode(body)
        if dialect.must_bound and given.events and isinstance(given.events[-1], ModelSaid):
            raise WireError("an answer that the client has begun itself: sent on as it is")
        bound = refused.bound(dialect, given.parameters)
        facts = self._known(given.model, bound[1] if bound else None)
        said = [(chain.link(event), event) for event in given.events]
        talk = await self._found([link for link, _ in said if link], given.model, facts=facts)
        try:
            async with talk.live.lock:
                await self._go_on(talk, given.model, said)
                exchange = Exchange(talk, dialect, given.parameters, bound=bound)
                await exchange.plan(facts)
        except BaseException:
            talk.busy = False
            raise
        return exchange

    async def _found(self, given: list[Link], model: str, *, facts: Facts) -> Talk:
        """The conversation that a history goes on with, or a new one; it is busy from here on."""
        best, origin, shared = None, None, 0
        for name, talk in self._talks.items():
            same = chain.known(talk.chain, given)
            if same == len(talk.chain) and not talk.busy and not talk.lost:
                best = name if best is None or same >= len(self._talks[best].chain) else best
            if same > shared:
                origin, shared = talk, same
        if best is not None:
            talk = self._talks[best]
            talk.busy, talk.live.facts = True, facts
        else:
            best, self._count = f"{self._prefix}-{self._count}", self._count + 1
            if origin is None:
                talk = Talk(await Live.open(self.store, Name("local", best), facts=facts))
                talk.live.shared = True
            else:
                talk = await self._turned_off(origin, shared, best)
            talk.busy, talk.live.facts = True, facts
            await talk.live.begin(model)
            self._talks[best] = talk
        self._talks.move_to_end(best)
        idle = [name for name, one in self._talks.items() if not one.busy]
        for name in idle[: max(len(self._talks) - MOST, 0)]:
            del self._talks[name]
        return talk

    async def _turned_off(self, origin: Talk, shared: int, name: str) -> Talk:
        """A new log that begins as a known one was behind the messages that both share."""
        session = await AsyncSession(origin.live).fork(name, at=origin.places[shared - 1])
        led = session.live.view.newest  # those of that place, not the newest of the other log
        return Talk(session.live, origin.chain[:shared], origin.places[:shared], led)

    async def _go_on(self, talk: Talk, model: str, said: list[tuple[Link, Event]]) -> None:
        """Append what is new: another model, other instructions, the messages behind the chain."""
        await talk.live.begin(model)
        first = said[0][1] if said else None
        led = first if isinstance(first, Instructed) else Instructed()
        if led != talk.led:
            await talk.live.instruct(led)
            talk.led = led
        known, past = len(talk.chain), 0
        for link, event in said[led is first :]:
            past += bool(link)
            if past < known or (link and past == known):
                continue
            if link:
                await talk.take(event, link)
            elif isinstance(event, Instructed):
                await talk.live.instruct(event)


class Exchange:
    """One call: what to send, and what comes back."""

    body: bytes
    """What to send."""

    def __init__(
        self,
        talk: Talk,
        dialect: Dialect,
        parameters: dict[str, msgspec.Raw],
        *,
        bound: refused.Bound | None,
    ) -> None:
        self._talk, self._dialect = talk, dialect
        self._parameters, self._bound = parameters, bound
        self._streams = bytes(parameters.get("stream", b"")) == b"true"
        self._tried = False
        self.begin(0)

    async def plan(self, facts: Facts) -> bytes:
        """Say what to send under some facts."""
        parameters = {"model": self._talk.live.view.model, **self._parameters}
        parameters = refused.within(parameters, self._bound, reserve=facts.limits.reserve)
        self.body = await self._talk.live.ask(parameters, dialect=self._dialect, facts=facts)
        return self.body

    def begin(self, status: int) -> None:
        """A response begins."""
        self._status, self._failed = status, status >= _REFUSED
        self._lines, self._assembly = Lines(), self._dialect.assembly()
        self._unreadable = False
        self.held: list[bytes] = []
        """What was heard before the answer had opened."""
        self.opened = not self._streams and not self._failed
        """Whether the answer has begun: until then another request may be sent instead."""

    def hear(self, chunk: bytes) -> None:
        """Bytes of the response, as they come; what we cannot read, the client may."""
        if not self._streams or self._failed or not self.opened:
            self.held.append(chunk)
        if not self._streams or self._failed:
            return
        try:
            for sent in self._lines.feed(chunk):
                self._assembly.take(sent.data)
                self.opened = True
        except WireError:
            self.opened = self._unreadable = True

    async def again(self) -> bool:
        """Whether to send another body, once, because an edit may heal a refusal: R-08, R-13."""
        fault = self._assembly.fault
        if self._tried or not (self._failed or fault):
            return False
        self._tried = True
        live = self._talk.live
        body = fault or b"".join(self.held)
        meant = classify(body, status=self._status, filled=refused.filled(live))
        return await refused.healed(live, meant, self.plan) is not None

    async def end(self) -> None:
        """The response is over, or was left: take in what was answered."""
        if not self._talk.busy:
            return
        try:
            async with self._talk.live.lock:
                for event in self._answer():
                    await self._talk.take(event, chain.link(event))
        finally:
            self._talk.busy = False

    def leave(self) -> None:
        """Nothing came back."""
        self._talk.busy = False

    def _answer(self) -> list[Event]:
        """What was answered; nothing where it cannot be read: the client will say it again."""
        view = self._talk.live.view
        if self._failed or self._unreadable:
            return []
        try:
            if self._streams:
                for sent in self._lines.close():
                    self._assembly.take(sent.data, whole=False)
            body = self._assembly.body() if self._streams else parse(b"".join(self.held))
            events = dialects.events(body, own=self._dialect, saw=view.shown, asked=view.asked)
        except WireError:
            return []
        empty = isinstance(events[0], ModelSaid) and not events[0].parts
        return events[1:] if empty and self._streams and not self._assembly.done else events

"""Conversations known by their history: clients that send all of it again with every call.

Knows which log a history goes on with, and what of it is new; plans the call with that, in one
append. Refuses to know HTTP: bytes come in and go out. One history that is asked twice at a time is
two conversations; one that turns off from a known one is a new log that names its origin; one that
may be either of two is a new log.

What a client sent before is known by its bytes: then only what is new is read. Where a byte of it
is another (cache marks that moved, a process that has not seen it), all of it is read and hashed.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from foldline.core.log import Instructed, ModelSaid
from foldline.core.plan import Facts
from foldline.core.spine import Range
from foldline.errors import Conflict, WireError
from foldline.run import bounds
from foldline.run.exchange import Behind, Exchange, Said, Talk, leading
from foldline.run.known import Known, Place, Scope, Trail, follow
from foldline.run.live import Live
from foldline.run.sent import Plain, Sent, split
from foldline.run.session import AsyncSession
from foldline.store.base import Name, Store
from foldline.wire import chain
from foldline.wire.chain import Link
from foldline.wire.dialects import Dialect
from foldline.wire.reading import Decoded, readable, shaped_bytes

MOST = 256
"""The conversations that one process holds at a time; others are opened again, or begin anew."""
ALL = Scope()
_LOOKED_FOR = 24  # beginnings of a history that a store is asked for
_TRIES = 3  # at a conversation that other processes go on with meanwhile
_APART = 6  # messages: a store is told no more often; the log says how it went on behind them
_BEHIND = 64  # events that are read at a time to see how a log went on
FactsOf: TypeAlias = Callable[[str, int | None], Facts]
"""The facts of a model, and of how long its answer may be."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A request, as far as it had to be read, and the conversation that it goes on with."""

    talk: Talk
    """Busy from here on."""
    given: Decoded
    said: list[Said]
    known: int
    """How many of these messages the log has."""
    trail: Trail
    """Behind the last of them."""


class Talks:
    """The conversations that pass through one client, or one gateway."""

    def __init__(
        self,
        store: Store,
        facts_of: FactsOf,
        *,
        shared: bool = False,
        most: int = MOST,
        prefix: str = "talk",
    ) -> None:
        self.store = store
        self._facts_of = facts_of
        self._known = Known(store if shared else None)
        self._shared, self._most = shared, most
        self._talks: OrderedDict[Name, Talk] = OrderedDict()
        self._by_bytes: dict[tuple[Scope, bytes, tuple[bytes, ...]], Talk] = {}
        self._prefix, self._count = f"{prefix}-{os.urandom(6).hex()}", 0

    @property
    def newest(self) -> Live | None:
        """The log that was asked last."""
        return next(reversed(self._talks.values())).live if self._talks else None

    async def ask(self, dialect: Dialect, body: bytes, *, scope: Scope = ALL) -> Exchange:
        """Plan a client's request."""
        sent = split(body, dialect)
        for _ in range(_TRIES):
            with suppress(Conflict):  # another process went on with it: look at what is there now
                return await self._asked(dialect, sent, scope)
        return await self._asked(dialect, sent, scope)

    async def _asked(self, dialect: Dialect, sent: Sent, scope: Scope) -> Exchange:
        reading = self._by_its_bytes(dialect, sent, scope)
        if reading is None:
            reading = await self._by_what_it_says(dialect, sent, scope)
        talk, given = reading.talk, reading.given
        try:
            bound = bounds.stated(dialect, given.parameters)
            talk.live.facts = facts = self._facts_of(given.model, bound[1] if bound else None)
            exchange = Exchange(
                talk,
                self._known,
                fork=self._moved,
                drop=self._drop,
                dialect=dialect,
                given=given,
                sent=sent,
            )
            async with talk.live.lock:
                entering = talk.entering(given.model, reading.said, reading.known)
                await exchange.plan(facts, entering)
                self._settle(reading, sent)
        except BaseException:
            self._drop(talk)  # what became of it is in the log
            raise
        self._note(talk, exchange)
        return exchange

    def _note(self, talk: Talk, exchange: Exchange) -> None:
        """Let every process know where the history is: beside the call, over when that is."""
        place = Place(talk.live.name.session, talk.place)
        tenant, trail = talk.scope.tenant, talk.trail
        self._known.noted(tenant, trail.digest, place)
        if self._shared and not 0 <= trail.length - talk.noted < _APART:
            exchange.beside(self._known.note(tenant, trail.digest, place), trail.length)

    def _settle(self, reading: _Reading, sent: Sent) -> None:
        """A request was recorded: what goes on with it goes on from here."""
        talk = reading.talk
        self._by_bytes.pop(talk.key, None)
        talk.trail, talk.place, talk.behind = reading.trail, talk.newest(), []
        talk.fixed, talk.own = sent.fixed, frozenset(sent.fields) - {*reading.given.parameters}
        talk.beginning = sent.beginnings[0][1] if sent.messages else b""
        self._by_bytes[talk.key] = talk
        self._talks[talk.live.name] = talk
        self._talks.move_to_end(talk.live.name)
        idle = [one for one in self._talks.values() if not one.busy]
        for one in idle[: max(len(self._talks) - self._most, 0)]:
            self._drop(one)

    def _drop(self, talk: Talk) -> None:
        if self._talks.get(talk.live.name) is talk:
            del self._talks[talk.live.name]
        if self._by_bytes.get(talk.key) is talk:
            del self._by_bytes[talk.key]
        talk.busy = False

    def _by_its_bytes(self, dialect: Dialect, sent: Sent, scope: Scope) -> _Reading | None:
        """A request whose messages begin with bytes that a conversation was last asked in."""
        for count, digest in sent.beginnings:
            talk = self._by_bytes.get((scope, digest, sent.fixed))
            if talk is None:
                continue
            if talk.busy:
                return None
            given = _rest(dialect, sent, count, own=talk.own)
            said = [Said(chain.link(event), event) for event in given.events]
            links = [one.link for one in said]
            begun = dialect.must_bound and said and isinstance(said[-1].event, ModelSaid)
            if not all(links) or begun or not talk.goes_on(links):
                return None  # instructions in mid-talk, or it turns off: all of it is read
            talk.busy = True
            trail = talk.trail.copy()
            trail.walk(links)
            if isinstance(talk.led, Instructed) and talk.led != Instructed():
                said.insert(0, Said((), talk.led))
            return _Reading(talk, given, said, len(talk.behind), trail)
        return None

    async def _by_what_it_says(self, dialect: Dialect, sent: Sent, scope: Scope) -> _Reading:
        """A request, all of it read, and the conversation that it goes on with, or a new one."""
        given = dialect.decode(sent.body)
        if dialect.must_bound and given.events and isinstance(given.events[-1], ModelSaid):
            raise WireError("an answer that the client has begun itself: sent on as it is")
        said = [Said(chain.link(event), event) for event in given.events]
        if not said:
            raise WireError("a request in which nobody says anything: sent on as it is")
        links = [one.link for one in said if one.link]
        trail = Trail(scope)
        digests = trail.walk(links)
        facts = self._facts_of(given.model, None)
        # Words alone may be anybody's: a history is known again by an answer that it holds.
        least = 0 if scope.session else _first_answer(said)
        count, place = 0, None
        if least is not None:
            count, place = await self._placed(scope, links, digests)
        talk, more = None, 0
        if place is not None:
            talk, more = await self._gone_on(
                scope, place, links[count:], facts, least=(least or 0) - count
            )
        if talk is None:
            talk, count, more = await self._begun(scope, facts), 0, 0
        count += more
        talk.plain = Plain()
        if talk.led is None and _standing(said, count) == talk.newest_instructions:
            talk.led = leading(said)
        foreign = not scope.session and not talk.shows_only(said)
        if foreign or not talk.has_heard(said, count):
            talk.busy = False  # somebody else's who said the same, or a history with more in it
            talk, count = await self._begun(scope, facts), 0
            talk.plain = Plain()
        return _Reading(talk, given, said, count, trail)

    async def _placed(
        self, scope: Scope, links: Sequence[Link], digests: Sequence[bytes]
    ) -> tuple[int, Place | None]:
        """The longest beginning of a history that is known, and where it is; None: nobody knows."""
        for count in range(len(links), 0, -1):
            places = self._known.here(scope.tenant, digests[count - 1])
            if count > 1:  # behind an answer that this process has seen
                for digest in follow(digests[count - 2], links[count - 1]):
                    places = places or self._known.here(scope.tenant, digest)
            if places:
                return count, places[0] if len(places) == 1 else None
        ends = [*range(len(links), 0, -1)][:_LOOKED_FOR]
        which, found = await self._known.anywhere(scope.tenant, [digests[at - 1] for at in ends])
        if len(found) > 1:  # several began alike: whose answers are these?
            rest = links[ends[which] :]
            found = [one for one in found if await self._goes_on(scope, one, rest)]
        return (ends[which], found[0]) if len(found) == 1 else (0, None)

    async def _goes_on(self, scope: Scope, place: Place, links: Sequence[Link]) -> bool:
        """Whether a log goes on behind a place as a history does, with an answer at least."""
        name = Name(scope.tenant, place.session)
        live = await Live.open(self.store, name, facts=self._facts_of("", None))
        mine = [one.link for one in await self._behind(live, place.seq, most=len(links))]
        return bool(mine) and chain.known(mine, [*links], exactly=True) == len(mine)

    async def _begun(self, scope: Scope, facts: Facts) -> Talk:
        """A new conversation, under the name that its client gives it or one of ours."""
        if scope.session:
            name = Name(scope.tenant, scope.session)
            if not scope.owner or await self.store.claim(name, scope.owner) == scope.owner:
                live = await Live.open(self.store, name, facts=facts)
                if live.view.head < 0:
                    return self._held(Talk(live, scope, Trail(scope)))
        # Without a name of its own, or under one that is another's or has another history.
        live = await Live.open(self.store, Name(scope.tenant, self._named()), facts=facts)
        live.owner = scope.owner
        return self._held(Talk(live, scope, Trail(scope)))

    async def _gone_on(
        self, scope: Scope, place: Place, links: Sequence[Link], facts: Facts, *, least: int
    ) -> tuple[Talk | None, int]:
        """The conversation at a place, or one that turns off there; how many more it has.

        None where it was erased, or has fewer than the `least` messages behind that place.
        """
        name = Name(scope.tenant, place.session)
        talk = self._talks.get(name)
        if talk is None:
            live = await Live.open(self.store, name, facts=facts)
            if live.view.head < 0:
                return None, 0
            opened = Talk(live, scope, Trail(scope), place=place.seq)
            opened.behind = await self._behind(live, place.seq, most=len(links))
            talk = self._talks.get(name, opened)  # somebody else may have opened it meanwhile
        here = [at for at, one in enumerate(talk.behind) if one.seq == place.seq]
        if place.seq not in (talk.place, *(one.seq for one in talk.behind)):
            return (await self._turned_off(talk, place.seq) if least <= 0 else None), 0
        past = here[0] + 1 if here else 0  # of what is behind, this place is past so many
        rest = [one.link for one in talk.behind[past:]]
        same = chain.known(rest, [*links], exactly=not scope.session)
        if same < least:
            return None, 0
        if same == len(rest) and not talk.busy:
            return self._held(talk), same
        seq = talk.behind[past + same - 1].seq if past + same else talk.place
        return await self._turned_off(talk, seq), same

    async def _behind(self, live: Live, place: int, *, most: int) -> list[Behind]:
        """The messages that a log has behind a place; with more than `most` it is another's."""
        found: list[Behind] = []
        while place < live.view.head and len(found) <= most:
            last = min(live.view.head, place + _BEHIND)
            events = await live.events(Range(place + 1, last))
            found += [Behind(link, seq) for seq, event in events if (link := chain.link(event))]
            place = last
        return found

    async def _turned_off(self, origin: Talk, place: int) -> Talk:
        """A new log that begins as a known one was at a place."""
        live = await self._forked(origin.live, place)
        return self._held(Talk(live, origin.scope, Trail(origin.scope)))

    async def _moved(self, talk: Talk, place: int) -> None:
        """A conversation goes on in a log of its own: its old one is another's now."""
        if self._talks.get(talk.live.name) is talk:
            del self._talks[talk.live.name]
        talk.live = await self._forked(talk.live, place)
        self._held(talk)

    async def _forked(self, live: Live, place: int) -> Live:
        return (await AsyncSession(live).fork(self._named(), at=place)).live

    def _held(self, talk: Talk) -> Talk:
        """Held in this process from here on, and busy."""
        talk.live.shared, talk.busy = True, True
        self._talks[talk.live.name] = talk
        return talk

    def _named(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count - 1}"


def _rest(dialect: Dialect, sent: Sent, count: int, *, own: frozenset[str]) -> Decoded:
    """The messages behind so many, and the parameters; all else is as it was."""
    parameters = {name: raw for name, raw in sent.fields.items() if name not in own}
    readable(msgspec.json.encode(parameters))
    name = sent.fields.get("model")
    model = shaped_bytes(name, str, "a model's name", path="$.model") if name else ""
    return Decoded(model, dialect.decode(sent.rest(count)).events, parameters)


def _first_answer(said: Sequence[Said]) -> int | None:
    """How many messages of a history lead up to its first answer, with it; None: it holds none."""
    messages = [event for link, event in said if link]
    ends = (at for at, event in enumerate(messages, 1) if isinstance(event, ModelSaid))
    return next(ends, None)


def _standing(said: Sequence[Said], known: int) -> Instructed:
    """The instructions that hold behind so many messages of a history."""
    held, past = Instructed(), 0
    for link, event in said:
        past += bool(link)
        if past > known:
            break
        held = event if isinstance(event, Instructed) else held
    return held

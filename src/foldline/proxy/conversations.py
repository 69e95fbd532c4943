"""Which log a request goes on with: the conversations that pass through one client or gateway.

In this order: the name that the client gives; the id that this kind of client always sends; the
history, where it holds a model's answer; otherwise a new conversation. An id names a family: within
it the longest common beginning wins, and a history that shares none is a side conversation.

A new log begins only where a request returns to a branch that the client had left, or goes on
otherwise than one that is still being answered. Knows logs and requests. Refuses to know HTTP.
"""

import logging
import os
import re
from asyncio import Future, get_running_loop
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from foldline.core.log import ModelSaid
from foldline.core.parts import spoken
from foldline.core.plan import Facts
from foldline.dialects.base import Dialect
from foldline.dialects.client_messages import chain_on
from foldline.errors import BadInput, Conflict, FoldlineError
from foldline.proxy.conversation import Conversation, PlannedRequest
from foldline.proxy.exchange import Exchange, Flight
from foldline.proxy.identity import Caller, Scope
from foldline.proxy.index import Index, LogPlace
from foldline.proxy.match import Match
from foldline.proxy.patch import Patched
from foldline.proxy.request import ClientRequest, read_request
from foldline.session.log_handle import Live
from foldline.session.session import AsyncSession
from foldline.stores.base import Name, Store

MOST = 256
"""The conversations that one process holds at a time; others are opened again."""
ALL = Scope()
_TRIES = 3  # at a conversation that other processes go on with meanwhile
_APART = 6  # messages: a store is told of a history no more often
_BEHIND = 4  # answers of a request by which its history is noted, and looked for
_BEFORE = 3  # messages before an answer by which it is known again
_LARGE = 200_000  # bytes of a body that is read beside the event loop
_TAG = re.compile(r"</?\w{1,40}>")
_TELLING = 120  # characters of an answer by which it is known again in a summary
_log = logging.getLogger("foldline.proxy")
FactsOf: TypeAlias = Callable[[str], Facts]
"""The facts of a model."""
Prepare: TypeAlias = Callable[[Live], Awaitable[None]]
"""What is done with each log that is opened, before it is used."""


_Key: TypeAlias = tuple[Scope, Caller | None, int, bytes]
"""What a request in flight is known by: whose it is, its size, and its last message."""


class _Choice(NamedTuple):
    """The conversation that a request goes on with, and what of the request it has."""

    conversation: Conversation
    match: Match
    summary: int | None = None
    """The message, by its place in the body, in which the client has summed up what was before."""
    head: int = -1
    """Where the log ended when it was compared."""
    whole: bool = False
    """Whether an agent asks to sum up its own history: it is sent whole, as it came."""


class Conversations:
    """The conversations that pass through one client, or one gateway."""

    def __init__(  # noqa: PLR0913 - what they are kept in, decided by, and called
        self,
        store: Store,
        facts_of: FactsOf,
        *,
        shared: bool = False,
        prepare: Prepare | None = None,
        most: int = MOST,
        prefix: str = "talk",
    ) -> None:
        self.store = store
        self._facts_of = facts_of
        self._index = Index(store if shared else None)
        self._shared, self._most, self._prepare = shared, most, prepare
        self._held: OrderedDict[Name, Conversation] = OrderedDict()
        self._flights: dict[_Key, Future[Flight]] = {}
        self._answers: OrderedDict[str, deque[str]] = OrderedDict()
        self._prefix, self._count = f"{prefix}-{os.urandom(6).hex()}", 0

    def list_held(self, session: str = "") -> list[Live]:
        """The logs that this process holds, newest last; of one name, where it is given."""
        return [
            one.live for one in self._held.values() if not session or one.scope.session == session
        ]

    def find_newer(self, live: Live) -> Live:
        """A log as this process has it now, which may have opened it again."""
        held = self._held.get(live.name)
        return held.live if held else live

    async def close(self) -> None:
        """Ask nobody any more, and let go of the store."""
        for one in self._held.values():
            if one.live.narrator is not None:
                await one.live.narrator.close()
        await self.store.close()

    async def ask(
        self,
        dialect: Dialect,
        body: bytes,
        *,
        scope: Scope = ALL,
        caller: Caller | None = None,
        fold_from: int | None = None,
    ) -> Exchange:
        """Plan a client's request; `WireError` where it is to be sent as it came.

        Below `fold_from` tokens nothing is edited that could be sent as it is. Callers are told
        apart where their histories are alike.
        """
        request = await _read(dialect, body)
        facts = self._facts_of(request.model)
        if fold_from is not None:
            facts = replace(facts, fold_from=fold_from)
        key = (scope, caller, len(body), request.hashes[-1])
        flight = self._flights.get(key)
        if flight is not None:  # a client that did not wait: the same request once more
            with suppress(FoldlineError):
                same = await flight
                if same.request.body == body:
                    return Exchange(same)
        future: Future[Flight] = get_running_loop().create_future()
        self._flights[key] = future
        try:
            found = await self._ask(request, scope, facts, key)
            future.set_result(found)
        except BaseException as fault:
            self._flights.pop(key, None)
            future.set_exception(
                fault if isinstance(fault, FoldlineError) else BadInput("the first call ended")
            )
            future.exception()  # nobody may be waiting for it
            raise
        exchange = Exchange(found)
        self._note(found, exchange)
        return exchange

    async def _ask(self, request: ClientRequest, scope: Scope, facts: Facts, key: _Key) -> Flight:
        for _ in range(_TRIES):
            choice = await self._choose(request, scope, facts, key[1])
            conversation = choice.conversation
            if choice.whole:
                return await self._send_as_it_came(conversation, request, key, why="compaction")
            try:
                async with conversation.live.lock:
                    planned = await conversation.plan(
                        request, choice.match, facts, summary=choice.summary
                    )
                conversation.caller = key[1]
                return self._depart(conversation, request, planned, key)
            except Conflict:  # another process went on with it: look at what is there now
                self._drop(conversation)
            except BaseException:
                self._drop(conversation)  # what became of it is in the log
                raise
        # Others keep writing to its log: it is sent under the edits that stand, and not recorded.
        choice = await self._choose(request, scope, facts, key[1])
        self._drop(choice.conversation)
        patched = choice.conversation.show(request, choice.match)
        return await self._send_as_it_came(
            choice.conversation, request, key, why="conflict", patched=patched
        )

    async def _send_as_it_came(
        self,
        conversation: Conversation,
        request: ClientRequest,
        key: _Key,
        *,
        why: str,
        patched: Patched | None = None,
    ) -> Flight:
        """Send a request that is not recorded."""
        _log.warning("%s: a request is not recorded: %s", conversation.live.name.session, why)
        report = AsyncSession(conversation.live).report
        await conversation.reserve(report, conversation.live.view)
        planned = PlannedRequest(patched or Patched(request.body), report, -1, 0, unplanned=why)
        return self._fly(conversation, request, planned, key)

    def _fly(
        self,
        conversation: Conversation,
        request: ClientRequest,
        planned: PlannedRequest,
        key: _Key,
    ) -> Flight:
        def over(flight: Flight) -> None:
            self._flights.pop(key, None)
            if flight.conversation.flight is flight:
                flight.conversation.flight, flight.conversation.busy = None, False

        return Flight(conversation, request, planned, self._answered, over, self._drop)

    def _depart(
        self,
        conversation: Conversation,
        request: ClientRequest,
        planned: PlannedRequest,
        key: _Key,
    ) -> Flight:
        """A request is on its way: its conversation is busy until it is over."""
        flight = self._fly(conversation, request, planned, key)
        conversation.flight = flight
        self._held[conversation.live.name] = conversation
        self._held.move_to_end(conversation.live.name)
        idle = [one for one in self._held.values() if not one.busy]
        for one in idle[: max(len(self._held) - self._most, 0)]:
            self._drop(one)
        return flight

    def _answered(self, flight: Flight, answer: ModelSaid) -> Coroutine[None, None, None] | None:
        """An answer came: a history that has it goes on behind it."""
        live, scope = flight.conversation.live, flight.conversation.scope
        self._remember_words(scope, spoken(answer.parts))
        if flight.planned.asked < 0:
            return None
        place = LogPlace(live.name.session, live.view.head)
        self._index.remember(scope, chain_on(flight.request.chain[-1], answer.link), place)
        pairs = [_pair(digest, answer.link) for digest in flight.request.digests[-_BEFORE:]]
        for pair in pairs:
            self._index.remember(scope, pair, place)
        is_first = not flight.request.answers
        return self._note_all(scope, pairs, place) if self._shared and is_first else None

    async def _note_all(self, scope: Scope, chains: Sequence[str], place: LogPlace) -> None:
        for chain in chains:
            await self._index.note(scope, chain, place)

    def _remember_words(self, scope: Scope, words: str) -> None:
        """Keep an answer in mind: the client may begin anew with it, as its own summary."""
        who = _who(scope)
        if len(words) >= _TELLING:
            self._answers.setdefault(who, deque(maxlen=8)).append(words)
            self._answers.move_to_end(who)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)

    def _note(self, flight: Flight, exchange: Exchange) -> None:
        """Let every process know where the history is: beside the call, done before it is over."""
        conversation, request = flight.conversation, flight.request
        if flight.planned.asked < 0:
            return
        place = LogPlace(conversation.live.name.session, flight.planned.asked)
        scope, count = conversation.scope, len(request.chain)
        # Behind each answer too: what comes after the last one may not be said again.
        behind = [request.chain[at] for at in request.answers[-_BEHIND:]]
        for chain in (*behind, request.chain[-1]):
            self._index.remember(scope, chain, place)
        noted, chain = conversation.noted
        is_known = 0 < noted <= count and request.chain[noted - 1] == chain
        if not self._shared or (is_known and count - noted < _APART):
            return
        pairs = [
            _pair(request.digests[at - 1], request.digests[at])
            for at in request.answers[:1]
            if at and not is_known
        ]

        async def note() -> None:
            await self._note_all(scope, (*pairs, *behind[-1:], request.chain[-1]), place)
            conversation.noted = count, request.chain[-1]

        exchange.beside(note())

    def _drop(self, conversation: Conversation) -> None:
        if self._held.get(conversation.live.name) is conversation:
            del self._held[conversation.live.name]
        conversation.busy = False

    async def _choose(
        self, request: ClientRequest, scope: Scope, facts: Facts, caller: Caller | None
    ) -> _Choice:
        """The conversation that a request goes on with, from here on busy with it."""
        answers = request.answers
        first = answers[0] if answers else len(request.chain)
        is_family = bool(scope.session or scope.family)
        least = 0 if is_family else first
        count, places = await self._index.find(scope, request.chain, least=least)
        if not places and answers:
            near = [at for at in (*answers[:_BEHIND], *answers[-_BEHIND:]) if at]
            pairs = dict.fromkeys(
                _pair(request.digests[at - 1], request.digests[at]) for at in near
            )
            places = await self._index.find_pair(scope, [*pairs])
        names = dict.fromkeys(place.session for place in places)
        family = await self._index.family(scope)
        own = caller.session if caller is not None and answers else ""
        sessions = [*dict.fromkeys((*([own] if own else ()), *names, *family))]
        best: _Choice | None = None
        ties = 0
        # What a family has folded is looked into only where nothing else is known of a history.
        for inside in (False, True) if answers and (is_family or places) else (False,):
            if inside and best is None:
                family = await self._index.family(scope, anew=True)
                sessions = [*dict.fromkeys((*sessions, *family))]
            for session in sessions if best is None else ():
                known = max(count if session in names else 0, int(inside))
                found = await self._compare(
                    Name(scope.tenant, session), request, known, scope, facts
                )
                if found is None:
                    continue
                match = found.match
                if match.fresh <= first and not (is_family and match.common):
                    continue
                if best is None or _rank(match) > _rank(best.match):
                    best, ties = found, 0
                elif own != best.conversation.live.name.session:  # its own wins
                    ties += _rank(match) == _rank(best.match)
        is_left = count > (best.match.fresh if best else 0) and len(places) == 1
        if is_left and (found := await self._forked_at(places[0], scope, facts)) is not None:
            return await self._taken(found, request)  # back to a branch that the client had left
        if best is None:
            return await self._beginning(request, scope, facts, family)
        if ties and not is_family:
            return await self._begun(request, scope, facts)  # nobody can tell whose it is
        if best.conversation.is_compaction(request, best.match) and self._fits(best, facts):
            return best._replace(whole=True)
        if best.conversation.busy or (not is_family and _is_anothers(best, caller)):
            live = best.conversation.live
            found = await self._forked_at(LogPlace(live.name.session, live.view.head), scope, facts)
            if found is not None:
                return await self._taken(found, request)
            return await self._begun(request, scope, facts)
        if best.conversation.live.view.head == best.head and not best.match.closed:
            best.conversation.busy = True
            return best
        return await self._taken(best.conversation, request)

    async def _compare(
        self, name: Name, request: ClientRequest, known: int, scope: Scope, facts: Facts
    ) -> _Choice | None:
        """What a conversation has of a request; None where it was erased."""
        conversation = await self._open(name, scope, facts)
        if conversation is None:
            return None
        match = await conversation.match(request, known=known)
        if match.fresh < known and await conversation.catch_up():
            match = await conversation.match(request, known=known)
        return _Choice(conversation, match, head=conversation.live.view.head)

    async def _taken(self, conversation: Conversation, request: ClientRequest) -> _Choice:
        """A conversation, busy with a request, and what it has of it now."""
        conversation.busy = True
        try:
            return _Choice(conversation, await conversation.match(request, known=1))
        except BaseException:
            self._drop(conversation)
            raise

    def _fits(self, choice: _Choice, facts: Facts) -> bool:
        """Whether a request would fit without any edit, as far as one can tell."""
        view = choice.conversation.live.view
        hidden = sum(max(fold.before - fold.after, 0) for fold in view.folds().values())
        report = AsyncSession(choice.conversation.live).report
        return report.total + hidden < facts.limits.window - report.margin

    async def _beginning(
        self, request: ClientRequest, scope: Scope, facts: Facts, family: Sequence[str]
    ) -> _Choice:
        """A history that shares no beginning with any: new, or the client's own compaction."""
        words = [request.form.words_of(request.raw(at)) for at in request.chained[:2]]
        summed: list[tuple[int, Conversation, int]] = []
        for session in reversed(family):
            conversation = await self._open(Name(scope.tenant, session), scope, facts)
            if conversation is None:
                continue
            answers = [*conversation.last_answers(), *self._answers.get(_who(scope), ())]
            if (summary := _find_summary(words, answers)) is not None:
                summed.append((conversation.count_known(request), conversation, summary))
        free = [one for one in summed if not one[1].busy]
        if free:
            # Of several the one whose messages were kept beside the summary; else the oldest, since
            # the summary may have been asked for in a side conversation.
            _, conversation, summary = max(free, key=lambda one: one[0])
            conversation.busy = True
            match = Match(0, 0, [], [], [*request.asides], -1)
            return _Choice(conversation, match, summary=request.chained[summary])
        choice = await self._begun(request, scope, facts)
        main = self._held.get(Name(scope.tenant, family[-1])) if family else None
        side = choice.conversation.live.name.session
        if main is not None and main.live.name.session != side:
            main.links.append(side)
        summary = _find_summary(words, self._answers.get(_who(scope), ()))
        return choice._replace(summary=None if summary is None else request.chained[summary])

    async def _begun(self, request: ClientRequest, scope: Scope, facts: Facts) -> _Choice:
        """A new conversation, under the name that its client gives it or one of ours."""
        conversation = None
        if scope.session:
            name = Name(scope.tenant, scope.session)
            if not scope.owner or await self.store.claim(name, scope.owner) == scope.owner:
                live = await self._open_log(name, facts)
                if live.view.head < 0 and name not in self._held:
                    conversation = self._hold(Conversation(live, scope))
        if conversation is None:
            # Without a name of its own, or under one that is another's or has another history.
            name = Name(scope.tenant, self._next_name(scope))
            live = await self._open_log(name, facts)
            live.owner = scope.owner
            conversation = self._hold(Conversation(live, scope))
        await self._index.join_family(scope, conversation.live.name.session)
        return await self._taken(conversation, request)

    async def _open(self, name: Name, scope: Scope, facts: Facts) -> Conversation | None:
        """A conversation that is held, or as it was left; None where it was erased."""
        held = self._held.get(name)
        if held is not None:
            return held
        live = await self._open_log(name, facts)
        if live.view.head < 0 or not _is_proxied(live):
            return None
        return self._held.get(name) or Conversation(live, scope)

    async def _forked_at(self, place: LogPlace, scope: Scope, facts: Facts) -> Conversation | None:
        """A new log that begins as a known one was at a place."""
        name = Name(scope.tenant, place.session)
        held = self._held.get(name)
        live = held.live if held else await Live.open(self.store, name, facts=facts)
        try:
            forked = await AsyncSession(live).fork(self._next_name(scope), at=place.seq)
        except BadInput:
            return None
        forked.live.owner = scope.owner
        if self._prepare is not None:
            await self._prepare(forked.live)
        conversation = self._hold(Conversation(forked.live, scope))
        await self._index.join_family(scope, forked.live.name.session)
        return conversation

    async def _open_log(self, name: Name, facts: Facts) -> Live:
        live = await Live.open(self.store, name, facts=facts)
        if self._prepare is not None:
            await self._prepare(live)
        return live

    def _hold(self, conversation: Conversation) -> Conversation:
        """Held in this process from here on, and busy."""
        conversation.busy = True
        self._held[conversation.live.name] = conversation
        return conversation

    def _next_name(self, scope: Scope) -> str:
        """A name of ours; that of a branch begins with the name that its client gives."""
        self._count += 1
        given = f"{scope.session}+" if scope.session else ""
        return f"{given}{self._prefix}-{self._count - 1}"


def _rank(match: Match) -> tuple[int, int]:
    """How well a log fits a request: by what it has of it, then by what it need not drop."""
    return match.fresh, -len(match.dropped)


def _is_anothers(choice: _Choice, caller: Caller | None) -> bool:
    """Whether a request would drop an answer that another thread or task was given."""
    before, held = choice.conversation.caller, choice.conversation.live.view.held
    if caller is None or before is None or caller.id == before.id:
        return False
    return any(isinstance(held.get(one.first), ModelSaid) for one in choice.match.dropped)


def _who(scope: Scope) -> str:
    return f"{scope.tenant}\0{scope.owner or scope.key}"


def _pair(message: str, answer: str) -> str:
    return f"{message} → {answer}"


def _is_proxied(live: Live) -> bool:
    """Whether a log is of a proxied conversation that this release can go on with."""
    held = live.view.held.values()
    return any(getattr(event, "link", "") or getattr(event, "chain", "") for event in held)


def _find_summary(words: Sequence[str], answers: Sequence[str] | deque[str]) -> int | None:
    """Which of the messages that a history begins with repeats an answer, or much of it."""
    for answer in answers:
        # An agent may ask for thoughts before the summary, in tags, and repeats only the latter.
        said = _TAG.sub("\n", answer).splitlines()
        lines = [line.strip() for line in said if line.strip()]
        least = max(_TELLING, sum(map(len, lines)) // 4)
        for at, text in enumerate(words):
            if sum(len(line) for line in lines if len(line) > 1 and line in text) >= least:
                return at
    return None


async def _read(dialect: Dialect, body: bytes) -> ClientRequest:
    """Read a request; a large one beside the event loop."""
    if len(body) < _LARGE:
        return read_request(dialect, body)
    from asyncio import to_thread  # noqa: PLC0415 - half of the time of an import

    return await to_thread(read_request, dialect, body)

"""Finds the log that a request continues, among the conversations of one client or gateway.

In this order: the name that the client gives; the id that this kind of client always sends; the
history, if it holds a model's answer; otherwise a new conversation. An id names a family: within
it the longest common beginning wins, and a history that shares none is a side conversation.

A log is forked only if a request returns to a branch that the client had left, or differs from one
that is still being answered. One that goes on from there waits a moment for its end.
"""

import logging
import os
from asyncio import CancelledError, Future, get_running_loop, timeout
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from foldline.core.budget import measure_budget
from foldline.core.log import Event, ModelSaid, Opened
from foldline.core.parts import spoken_text_of
from foldline.core.plan import Facts
from foldline.core.request import build_report
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.dialects.base import Dialect, PathFacts
from foldline.dialects.client_messages import FoldMark, chain_on
from foldline.dialects.json_slices import (
    Splice,
    apply_splices,
    find_fields,
    make_field_splice,
    remove_field,
)
from foldline.errors import (
    BadInput,
    BrokenView,
    Conflict,
    FoldlineError,
    StoreFailed,
    WireError,
)
from foldline.proxy.client_request import (
    ClientRequest,
    ServerStateError,
    read_beside,
    weigh_request,
)
from foldline.proxy.conversation import Conversation, PlannedRequest
from foldline.proxy.exchange import Exchange, Flight
from foldline.proxy.identity import TELLING, Caller, Scope, find_summary, make_client_key
from foldline.proxy.index import Index, LogPlace, Match
from foldline.proxy.patch import Patched
from foldline.session.log_handle import Live
from foldline.session.session import AsyncSession
from foldline.stores.base import Name, Store
from foldline.stores.beside import run_beside

MOST = 256
"""The most conversations that one process holds; others are opened again."""
ALL = Scope()
_FOLD_TRIES = 8  # to fold for a client that cannot go on without it
_TRIES = 3  # with a conversation that other processes continue meanwhile
_ENDING = 1.0  # seconds that a call may take to end when its client goes on
_APART = 6  # a history is published again after this many messages
_BEHIND = 4  # answers of a request by which its history is indexed and looked up
_BEFORE = 3  # messages before an answer by which the answer is indexed
_HOLDING = 4  # bytes of memory that a conversation takes for each byte of its request, about
_log = logging.getLogger("foldline.proxy")
FactsOf: TypeAlias = Callable[[str], Facts]
"""Returns the facts of a model."""
Prepare: TypeAlias = Callable[[Live], Awaitable[None]]
"""Called with each log that is opened, before it is used."""
_Key: TypeAlias = tuple[Scope, Caller | None, int, bytes, PathFacts | None]
"""Identifies a request in flight: scope, caller, size, and hash of the last message."""


class _ConversationChoice(NamedTuple):
    """The conversation that a request continues, and how they match."""

    conversation: Conversation
    match: Match
    summary: int | None = None
    """The index in the body of the client's own summary of what was before."""
    whole: bool = False
    """Whether an agent asks to summarize its own history: it is sent whole, as it came."""


class Conversations:
    """The conversations that pass through one client, or one gateway."""

    def __init__(  # noqa: PLR0913 - store, facts, and options
        self,
        store: Store,
        facts_of: FactsOf,
        *,
        shared: bool = False,
        prepare: Prepare | None = None,
        most: int = MOST,
        prefix: str = "talk",
        own_history: bool = False,
        recall: bool = False,
        context: float | None = None,
        facts_of_tenant: Callable[[str, str], Facts] | None = None,
    ) -> None:
        self.store = store
        self._own_history, self._recall, self._context = own_history, recall, context
        self._facts_of, self._facts_of_tenant = facts_of, facts_of_tenant
        self._index = Index(store if shared else None)
        self._shared, self._most, self._prepare = shared, most, prepare
        self._held: OrderedDict[Name, Conversation] = OrderedDict()
        self._lost: OrderedDict[Name, Conversation] = OrderedDict()
        """What was held when the store could not be written."""
        self._sizes: dict[Name, int] = {}
        """How many bytes each held conversation takes, once it was asked."""
        self.held_bytes = 0
        """The bytes of all of them."""
        self._flights: dict[_Key, Future[Flight]] = {}
        self._answers: OrderedDict[str, deque[str]] = OrderedDict()
        self._prefix, self._count = f"{prefix}-{os.urandom(6).hex()}", 0

    def _build_facts(self, model: str, tenant: str) -> Facts:
        """Build the facts of a model, as the tenant's settings have them."""
        if self._facts_of_tenant is None:
            return self._facts_of(model)
        return self._facts_of_tenant(model, tenant)

    def list_held(self, session: str = "") -> list[Live]:
        """List the logs that this process holds, newest last; with `session` those of one name."""
        return [
            one.live for one in self._held.values() if not session or one.scope.session == session
        ]

    def drop_idle(self, size: int) -> None:
        """Drop the oldest idle conversations until `size` bytes are free, if there are so many."""
        least = self.held_bytes - size
        for one in [*self._held.values()]:
            if self.held_bytes <= least:
                return
            if not one.busy:
                self._drop_conversation(one)

    def find_newer(self, live: Live) -> Live:
        """Return a log as this process has it now; it may have been opened again."""
        held = self._held.get(live.name)
        return held.live if held else live

    async def open_stored(self, name: Name) -> Live | None:
        """Return a log as it is held or stored; None if there is none."""
        held = self._held.get(name)
        if held is not None:
            return held.live
        live = await self._open_log(name, self._build_facts("", name.tenant))
        live.facts, live.shared = self._build_facts(live.view.model, name.tenant), True
        return live if live.view.head >= 0 else None

    async def close(self) -> None:
        """Stop all narrators and close the store."""
        for one in self._held.values():
            if one.live.narrator is not None:
                await one.live.narrator.close()
        await self.store.close()

    async def start_exchange(  # noqa: PLR0913 - a request, and whose it is
        self,
        dialect: Dialect,
        body: bytes,
        *,
        scope: Scope = ALL,
        caller: Caller | None = None,
        fold_from: int | None = None,
        path: PathFacts | None = None,
    ) -> Exchange:
        """Plan a client's request; raises `WireError` if it must be sent as it came.

        Below `fold_from` tokens nothing is edited that could be sent as it is. `caller` tells
        callers with equal histories apart. `path` is what the request's path says.
        """
        request = await self._read_request(dialect, body, scope, path)
        facts = self._build_facts(request.model, scope.tenant)
        if fold_from is not None:
            facts = replace(facts, fold_from=fold_from)
        key = (scope, caller, len(body), request.hashes[-1], path)
        flight = self._flights.get(key)
        if flight is not None:  # an impatient client sends the same request once more
            with suppress(FoldlineError):
                same = await flight
                if (same.request.original or same.request.body) == body:
                    return Exchange(same)
        future: Future[Flight] = get_running_loop().create_future()
        self._flights[key] = future
        try:
            flight = await self._plan_request(request, scope, facts, key)
            future.set_result(flight)
        except BaseException as fault:
            self._flights.pop(key, None)
            future.set_exception(
                fault if isinstance(fault, FoldlineError) else BadInput("the first call ended")
            )
            future.exception()  # marks it as retrieved: maybe no call waits for it
            raise
        exchange = Exchange(flight)
        self._index_request(flight, exchange)
        return exchange

    async def start_unrecorded(
        self,
        dialect: Dialect,
        body: bytes,
        *,
        why: str,
        scope: Scope = ALL,
        path: PathFacts | None = None,
    ) -> Exchange | None:
        """Start a call with the edits that this process knows to be in force, without the store.

        Nothing of it is recorded. None if none of these edits is in the request.
        """
        try:
            request = await read_beside(dialect, body, path)
        except WireError:
            return None
        best: tuple[Conversation, Match] | None = None
        for one in (*self._lost.values(), *self._held.values()):
            match = one.match_held(request) if one.scope == scope else None
            if match and (best is None or _rank_match(match) >= _rank_match(best[1])):
                best = one, match
        if best is None:
            return None
        try:
            patch = partial(best[0].patch_without_recording, request, best[1])
            patched = await run_beside(patch, size=weigh_request(request))
        except (BrokenView, Conflict):
            return None
        except Exception:  # noqa: BLE001 - the edits are no reason to refuse it
            _log.exception("a request is sent as it came, by a fault of our own")
            return None
        if not patched.kinds:
            return None
        report = AsyncSession(best[0].live).report
        planned = PlannedRequest(patched, report, -1, 0, unplanned=why)
        key = (scope, None, len(body), request.hashes[-1], path)
        return Exchange(self._make_flight(best[0], request, planned, key))

    async def count_request(
        self, dialect: Dialect, body: bytes, *, scope: Scope = ALL, path: PathFacts | None = None
    ) -> int:
        """Estimate the tokens of a request; raises `WireError` if it cannot be read."""
        request = await self._read_request(dialect, body, scope, path)
        limits = self._build_facts(request.model, scope.tenant).limits

        def count() -> int:
            events: list[Event] = [Opened(request.model), request.read_instructions()]
            for at in range(len(request.leading), len(request.places)):
                if request.described[at].role != "fold":
                    events += request.read_message(at)
            view = load(Spine(), dict(enumerate(events)), head=len(events) - 1)
            return build_report(view, measure_budget(view, limits)).total

        return await run_beside(count, size=weigh_request(request))

    async def compact_history(
        self, dialect: Dialect, body: bytes, *, scope: Scope = ALL, caller: Caller | None = None
    ) -> tuple[FoldMark, int]:
        """Fold the history of a request, and send nothing.

        Returns the mark that names it from here on, and how many edits were made. Raises
        `WireError` if the request cannot be read.
        """
        request = await self._read_request(dialect, body, scope)
        facts = self._build_facts(request.model, scope.tenant)
        for left in reversed(range(_FOLD_TRIES)):
            try:
                mark, edits = await self._fold_chosen(request, scope, facts, caller)
            except Conflict:  # another process continued it: look at what is there now
                if not left:
                    raise
                continue
            place = LogPlace(mark.session, mark.place)
            for one in {scope, scope.of_holder}:
                await self._index.publish_history(one, mark.chain, place)
            return mark, edits
        raise AssertionError  # the last try returns or raises

    async def _fold_chosen(
        self, request: ClientRequest, scope: Scope, facts: Facts, caller: Caller | None
    ) -> tuple[FoldMark, int]:
        choice = await self._choose_conversation(request, scope, facts, caller)
        conversation = choice.conversation
        conversation.busy = True
        try:
            async with conversation.live.lock:
                made = await conversation.fold_history(request, choice.match, facts)
        except BaseException:
            self._drop_conversation(conversation)
            raise
        conversation.busy = False
        self._held[conversation.live.name] = conversation
        return made

    async def _read_request(
        self, dialect: Dialect, body: bytes, scope: Scope, path: PathFacts | None = None
    ) -> ClientRequest:
        """Read a request, and write out what it only names: history that is in a log of ours."""
        try:
            request = await read_beside(dialect, body, path)
        except ServerStateError as fault:
            if fault.field != dialect.chain_field:
                raise
            return await self._read_chained(dialect, body, scope)
        if request.mark is None:
            return request
        facts = self._build_facts(request.model, scope.tenant)
        return await self._open_marked(request, request.mark, scope, facts)

    async def _read_chained(self, dialect: Dialect, body: bytes, scope: Scope) -> ClientRequest:
        """Read a request that names an earlier answer, as if it had the whole history.

        It is sent so if we own the history, and else as it came. Raises `ServerStateError` if the
        answer did not pass here.
        """
        named = body[slice(*find_fields(body)[dialect.chain_field])]
        _, places = await self._index.find_history(scope, [_format_response(named)], least=0)
        without = await read_beside(dialect, remove_field(body, dialect.chain_field))
        if not places:
            raise ServerStateError(dialect.chain_field)
        facts = self._build_facts(without.model, scope.tenant)
        opened = await self._open_current(places[-1].session, scope, facts)
        mark = await opened.find_mark(places[-1].seq) if opened else None
        if opened is None or mark is None:
            raise ServerStateError(dialect.chain_field)
        found, written = opened, await opened.write_history(mark, dialect, instructed=True)
        if written is None or dialect.write_mark(mark) in written:
            # It goes on from an answer that the log shows no more, or in the middle of a fold.
            forked = await self._forked_at(places[-1], scope, facts)
            if forked is not None:
                forked.busy, found = False, forked
                written = await forked.write_history(mark, dialect, instructed=True)
        if written is None:
            raise ServerStateError(dialect.chain_field)
        new = (without.extract_message(at) for at in range(len(without.places)))
        raws = [*written, *map(dialect.write_listed, new)]
        place = without.fields[dialect.messages]
        whole = apply_splices(without.body, [Splice(*place, b"[" + b",".join(raws) + b"]")])
        return replace(
            await read_beside(dialect, _forget_at_server(whole)),
            original=body,
            log=found.live.name.session,
            is_relayed=not self._own_history,
        )

    async def _write_marked(
        self, conversation: Conversation, request: ClientRequest, mark: FoldMark
    ) -> ClientRequest | None:
        """Write out a request's mark from a conversation; None if that shows something else."""
        written = await conversation.write_history(mark, request.dialect)
        if written is None:
            return None
        described = request.described
        before = range(request.sealed)
        users = [at for at in before if described[at].role == "user"]
        said = await conversation.has_said([described[at].digest for at in users], mark.place)
        kept = {at for at in users if described[at].digest not in said}
        kept.update(at for at in before if described[at].role == "system")
        raws = [
            request.extract_message(at)
            for at in range(len(described))
            if at > request.sealed or at in kept
        ]
        first = next((at for at in before if described[at].role != "system"), request.sealed)
        place = request.fields[request.dialect.messages]
        listed = b"[" + b",".join((*raws[:first], *written, *raws[first:])) + b"]"
        body = apply_splices(request.body, [Splice(*place, listed)])
        session = conversation.live.name.session
        whole = await read_beside(request.dialect, body)
        return replace(whole, original=request.body, log=session)

    async def _open_marked(
        self, request: ClientRequest, mark: FoldMark, scope: Scope, facts: Facts
    ) -> ClientRequest:
        """Write out a mark from the conversation that has most of the request.

        What the client kept before the mark is in the log, or stays behind it.
        A client that forks its conversation takes the mark along, and may go back behind it: then
        the log is forked too. Raises `WireError` if the mark is none of this client's.
        """
        _, own = await self._index.find_history(scope, [mark.chain], least=0)
        _, held = await self._index.find_history(scope.of_holder, [mark.chain], least=0)
        if mark.session not in {place.session for place in (*own, *held)}:
            raise WireError("a fold that is not of this client, or is no longer kept")
        best: tuple[int, ClientRequest] | None = None
        for place in reversed(own):
            found = await self._open_current(place.session, scope, facts)
            whole = await self._write_marked(found, request, mark) if found else None
            if found is None or whole is None:
                continue
            rank = await found.rank_request(whole)
            if rank and (best is None or rank > best[0]):
                best = rank, whole
        if best is not None:
            return best[1]
        forked = await self._forked_at(LogPlace(mark.session, mark.place), scope, facts)
        whole = await self._write_marked(forked, request, mark) if forked else None
        if forked is None or whole is None:
            raise WireError("a history that its log does not show any more")
        forked.busy = False
        new = LogPlace(forked.live.name.session, mark.place)
        await self._index.publish_history(scope, mark.chain, new)
        return whole

    async def _open_current(self, session: str, scope: Scope, facts: Facts) -> Conversation | None:
        """Open a conversation with all that other processes have written, unless it is busy."""
        name = Name(scope.tenant, session)
        found = await self._open_conversation(name, scope, facts)
        if found is None:
            return None
        found = self._held.setdefault(name, found)
        await found.catch_up()
        return found

    async def _plan_request(
        self, request: ClientRequest, scope: Scope, facts: Facts, key: _Key
    ) -> Flight:
        for _ in range(_TRIES):
            choice = await self._choose_conversation(request, scope, facts, key[1])
            conversation = choice.conversation
            if choice.whole and not request.original:
                return await self._send_unrecorded(conversation, request, key, why="compaction")
            try:
                async with conversation.live.lock:
                    planned = await conversation.plan_request(
                        request, choice.match, facts, summary=choice.summary
                    )
                conversation.caller = key[1]
                return self._start_flight(conversation, request, planned, key)
            except Conflict:  # another process continued it: look at what is there now
                self._drop_conversation(conversation)
            except BaseException as fault:
                self._drop_conversation(conversation)  # the log knows its state
                if isinstance(fault, StoreFailed | CancelledError):
                    self._lost[conversation.live.name] = conversation
                    while len(self._lost) > self._most:
                        self._lost.popitem(last=False)
                raise
        # Others keep writing to its log: send it with the edits in force, and do not record it.
        choice = await self._choose_conversation(request, scope, facts, key[1])
        self._drop_conversation(choice.conversation)
        patch = partial(choice.conversation.patch_without_recording, request, choice.match)
        patched = await run_beside(patch, size=weigh_request(request))
        return await self._send_unrecorded(
            choice.conversation, request, key, why="conflict", patched=patched
        )

    async def _send_unrecorded(
        self,
        conversation: Conversation,
        request: ClientRequest,
        key: _Key,
        *,
        why: str,
        patched: Patched | None = None,
    ) -> Flight:
        _log.warning("%s: a request is not recorded: %s", conversation.live.name.session, why)
        report = AsyncSession(conversation.live).report
        await conversation.reserve_spending(report, conversation.live.view)
        planned = PlannedRequest(patched or Patched(request.body), report, -1, 0, unplanned=why)
        return self._make_flight(conversation, request, planned, key)

    def _make_flight(
        self, conversation: Conversation, request: ClientRequest, planned: PlannedRequest, key: _Key
    ) -> Flight:
        def end_flight(flight: Flight) -> None:
            self._flights.pop(key, None)
            self._count_bytes(flight)
            if flight.conversation.flight is flight:
                flight.conversation.flight, flight.conversation.busy = None, False
            flight.over.set()

        return Flight(
            conversation, request, planned, self._handle_answer, end_flight, self._drop_conversation
        )

    def _count_bytes(self, flight: Flight) -> None:
        """Count what a conversation holds of its newest request."""
        name = flight.conversation.live.name
        if self._held.get(name) is flight.conversation:
            size = len(flight.request.body) * _HOLDING
            self.held_bytes += size - self._sizes.get(name, 0)
            self._sizes[name] = size

    def _start_flight(
        self, conversation: Conversation, request: ClientRequest, planned: PlannedRequest, key: _Key
    ) -> Flight:
        """Mark a conversation busy with a request, and drop the oldest idle ones."""
        flight = self._make_flight(conversation, request, planned, key)
        conversation.flight = flight
        self._lost.pop(conversation.live.name, None)
        self._held[conversation.live.name] = conversation
        self._held.move_to_end(conversation.live.name)
        idle = [one for one in self._held.values() if not one.busy]
        for one in idle[: max(len(self._held) - self._most, 0)]:
            self._drop_conversation(one)
        return flight

    def _handle_answer(
        self, flight: Flight, answer: ModelSaid
    ) -> Coroutine[None, None, None] | None:
        """Index an answer, so that a history which contains it finds this log."""
        live, scope = flight.conversation.live, flight.conversation.scope
        self._remember_words(scope, spoken_text_of(answer.parts))
        if flight.planned.asked < 0:
            return None
        place = LogPlace(live.name.session, live.view.head)
        self._index.remember_history(scope, chain_on(flight.request.chain[-1], answer.link), place)
        pairs = [_format_pair(digest, answer.link) for digest in flight.request.digests[-_BEFORE:]]
        named = _format_response(flight.response_id) if flight.response_id else ""
        for pair in (*pairs, *filter(None, (named,))):
            self._index.remember_history(scope, pair, place)
        if not self._shared:
            return None
        noted = [] if flight.request.answers else pairs
        if named and _may_be_named(flight.request):
            noted = [*noted, named]
        return self._note_all(scope, noted, place) if noted else None

    async def _note_all(self, scope: Scope, chains: Sequence[str], place: LogPlace) -> None:
        for chain in chains:
            await self._index.publish_history(scope, chain, place)

    def _remember_words(self, scope: Scope, words: str) -> None:
        """Remember an answer: the client may start over with it, as its own summary."""
        who = make_client_key(scope)
        if len(words) >= TELLING:
            self._answers.setdefault(who, deque(maxlen=8)).append(words)
            self._answers.move_to_end(who)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)

    def _index_request(self, flight: Flight, exchange: Exchange) -> None:
        """Index a request's history; publish it in the background, before the call is over."""
        conversation, request = flight.conversation, flight.request
        if flight.planned.asked < 0:
            return
        place = LogPlace(conversation.live.name.session, flight.planned.asked)
        scope, count = conversation.scope, len(request.chain)
        # After each answer too: the client may not repeat what comes after the last one.
        behind = [request.chain[at] for at in request.answers[-_BEHIND:]]
        for chain in (*behind, request.chain[-1]):
            self._index.remember_history(scope, chain, place)
        noted, chain = conversation.noted
        is_known = 0 < noted <= count and request.chain[noted - 1] == chain
        if not self._shared or (is_known and count - noted < _APART):
            return
        pairs = [
            _format_pair(request.digests[at - 1], request.digests[at])
            for at in request.answers[:1]
            if at and not is_known
        ]

        async def publish_chains() -> None:
            await self._note_all(scope, (*pairs, *behind[-1:], request.chain[-1]), place)
            conversation.noted = count, request.chain[-1]

        exchange.run_in_background(publish_chains())

    def _drop_conversation(self, conversation: Conversation) -> None:
        if self._held.get(conversation.live.name) is conversation:
            del self._held[conversation.live.name]
            self.held_bytes -= self._sizes.pop(conversation.live.name, 0)
        conversation.busy = False

    async def _choose_conversation(
        self, request: ClientRequest, scope: Scope, facts: Facts, caller: Caller | None
    ) -> _ConversationChoice:
        """Choose the conversation that a request continues, and mark it busy."""
        if request.log:
            return await self._choose_written_out(request, scope, facts)
        answers = request.answers
        first = answers[0] if answers else len(request.chain)
        is_family = bool(scope.session or scope.family)
        least = 0 if is_family else first
        count, places = await self._index.find_history(scope, request.chain, least=least)
        if not places and answers:
            near = [at for at in (*answers[:_BEHIND], *answers[-_BEHIND:]) if at]
            pairs = dict.fromkeys(
                _format_pair(request.digests[at - 1], request.digests[at]) for at in near
            )
            places = await self._index.find_pair(scope, [*pairs])
        names = dict.fromkeys(place.session for place in places)
        family = await self._index.list_family(scope)
        own = caller.session if caller is not None and answers else ""
        sessions = [*dict.fromkeys((*([own] if own else ()), *names, *family))]
        best: _ConversationChoice | None = None
        ties = 0
        # Look inside the folds of a family only if nothing else is known of a history.
        for inside in (False, True) if answers and (is_family or places) else (False,):
            if inside and best is None:
                family = await self._index.list_family(scope, anew=True)
                sessions = [*dict.fromkeys((*sessions, *family))]
            for session in sessions if best is None else ():
                known = max(count if session in names else 0, int(inside))
                found = await self._match_conversation(
                    Name(scope.tenant, session), request, known, scope, facts
                )
                if found is None:
                    continue
                match = found.match
                if match.fresh <= first and not (is_family and match.common):
                    continue
                if best is None or _rank_match(match) > _rank_match(best.match):
                    best, ties = found, 0
                elif own != best.conversation.live.name.session:  # the caller's own wins
                    ties += _rank_match(match) == _rank_match(best.match)
        is_left = count > (best.match.fresh if best else 0) and len(places) == 1
        if is_left and (found := await self._forked_at(places[0], scope, facts)) is not None:
            # The client returns to a branch that it had left.
            return await self._claim_conversation(found, request)
        if best is None:
            return await self._resolve_unmatched(request, scope, facts, family)
        if ties and not is_family:  # no owner can be found
            return await self._start_conversation(request, scope, facts)
        compare = partial(best.conversation.is_compaction, request, best.match)
        compacts = await run_beside(compare, size=weigh_request(request))
        if compacts and self._can_fit_unedited(best, facts):
            return best._replace(whole=True)
        if caller is None and await _wait_for_end(best.conversation.flight, request):
            return await self._choose_conversation(request, scope, facts, caller)
        if best.conversation.busy or (not is_family and _is_anothers(best, caller)):
            live = best.conversation.live
            found = await self._forked_at(LogPlace(live.name.session, live.view.head), scope, facts)
            if found is not None:
                return await self._claim_conversation(found, request)
            return await self._start_conversation(request, scope, facts)
        if best.conversation.live.view.head == best.match.head and not best.match.closed:
            best.conversation.busy = True
            return best
        return await self._claim_conversation(best.conversation, request)

    async def _choose_written_out(
        self, request: ClientRequest, scope: Scope, facts: Facts
    ) -> _ConversationChoice:
        """Choose the conversation whose history was written out, or a branch if it is busy."""
        found = await self._open_conversation(Name(scope.tenant, request.log), scope, facts)
        if found is not None and found.busy:
            live = found.live
            found = await self._forked_at(LogPlace(live.name.session, live.view.head), scope, facts)
        if found is None:
            raise WireError("a history whose log was erased")
        return await self._claim_conversation(found, request)

    async def _match_conversation(
        self, name: Name, request: ClientRequest, known: int, scope: Scope, facts: Facts
    ) -> _ConversationChoice | None:
        """Compare a conversation with a request; None if it was erased."""
        conversation = await self._open_conversation(name, scope, facts)
        if conversation is None:
            return None
        match = await conversation.match_request(request, known=known)
        if match.fresh < known and await conversation.catch_up():
            match = await conversation.match_request(request, known=known)
        return _ConversationChoice(conversation, match)

    async def _claim_conversation(
        self, conversation: Conversation, request: ClientRequest
    ) -> _ConversationChoice:
        """Mark a conversation busy with a request, and compare the two."""
        conversation.busy = True
        try:
            return _ConversationChoice(
                conversation, await conversation.match_request(request, known=1)
            )
        except BaseException:
            self._drop_conversation(conversation)
            raise

    def _can_fit_unedited(self, choice: _ConversationChoice, facts: Facts) -> bool:
        view = choice.conversation.live.view
        hidden = sum(max(fold.before - fold.after, 0) for fold in view.list_folds().values())
        report = AsyncSession(choice.conversation.live).report
        return report.total + hidden < facts.limits.window - report.margin

    async def _resolve_unmatched(
        self, request: ClientRequest, scope: Scope, facts: Facts, family: Sequence[str]
    ) -> _ConversationChoice:
        """Resolve a history without a known beginning: new, or the client's own compaction."""
        # Some agents keep all of the user's messages before their summary, and no answer.
        looked_at = request.chained[:2] if request.answers else request.chained
        read = partial(request.read_words, looked_at)
        words = await run_beside(read, size=weigh_request(request))
        summed: list[tuple[int, Conversation, int]] = []
        for session in reversed(family):
            conversation = await self._open_conversation(Name(scope.tenant, session), scope, facts)
            if conversation is None:
                continue
            answers = [
                *conversation.last_answers(),
                *self._answers.get(make_client_key(scope), ()),
            ]
            if (summary := find_summary(words, answers)) is not None:
                summed.append((conversation.count_known(request), conversation, summary))
        free = [one for one in summed if not one[1].busy]
        if free:
            # Prefer the one whose messages were kept beside the summary, else the oldest: the
            # summary may have been asked for in a side conversation.
            _, conversation, summary = max(free, key=lambda one: one[0])
            conversation.busy = True
            head = conversation.live.view.head
            match = Match(0, 0, [], [], [*request.asides], -1, head)
            return _ConversationChoice(conversation, match, summary=request.chained[summary])
        choice = await self._start_conversation(request, scope, facts)
        main = self._held.get(Name(scope.tenant, family[-1])) if family else None
        side = choice.conversation.live.name.session
        if main is not None and main.live.name.session != side:
            main.links.append(side)
        summary = find_summary(words, self._answers.get(make_client_key(scope), ()))
        return choice._replace(summary=None if summary is None else request.chained[summary])

    async def _start_conversation(
        self, request: ClientRequest, scope: Scope, facts: Facts
    ) -> _ConversationChoice:
        """Start a conversation under the name that its client gives, or one of ours."""
        conversation = None
        if scope.session:
            name = Name(scope.tenant, scope.session)
            if not scope.owner or await self.store.claim(name, scope.owner) == scope.owner:
                live = await self._open_log(name, facts)
                if live.view.head < 0 and name not in self._held:
                    conversation = self._hold_conversation(self._make_conversation(live, scope))
        if conversation is None:
            # It has no name, or the name is another owner's or has another history.
            name = Name(scope.tenant, self._next_name(scope))
            live = await self._open_log(name, facts)
            live.owner = scope.owner
            conversation = self._hold_conversation(self._make_conversation(live, scope))
        await self._index.join_family(scope, conversation.live.name.session)
        return await self._claim_conversation(conversation, request)

    async def _open_conversation(
        self, name: Name, scope: Scope, facts: Facts
    ) -> Conversation | None:
        """Return a held or stored conversation; None if it was erased."""
        held = self._held.get(name)
        if held is not None:
            return held
        live = await self._open_log(name, facts)
        if live.view.head < 0 or not _is_proxied(live):
            return None
        return self._held.get(name) or self._make_conversation(live, scope)

    async def _forked_at(self, place: LogPlace, scope: Scope, facts: Facts) -> Conversation | None:
        """Fork a known log at a place; None if it has no such place."""
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
        conversation = self._hold_conversation(self._make_conversation(forked.live, scope))
        await self._index.join_family(scope, forked.live.name.session)
        return conversation

    async def _open_log(self, name: Name, facts: Facts) -> Live:
        live = await Live.open(self.store, name, facts=facts)
        if self._prepare is not None:
            await self._prepare(live)
        return live

    def _make_conversation(self, live: Live, scope: Scope) -> Conversation:
        return Conversation(live, scope, recall=self._recall, context=self._context)

    def _hold_conversation(self, conversation: Conversation) -> Conversation:
        conversation.busy = True
        self._held[conversation.live.name] = conversation
        return conversation

    def _next_name(self, scope: Scope) -> str:
        """Return a new name; a branch's begins with the name that its client gives."""
        self._count += 1
        start = f"{scope.session}+" if scope.session else ""
        return f"{start}{self._prefix}-{self._count - 1}"


def _rank_match(match: Match) -> tuple[int, int]:
    """Rank a match by what the log has of the request, then by how little it must drop."""
    return match.fresh, -len(match.dropped)


def _is_anothers(choice: _ConversationChoice, caller: Caller | None) -> bool:
    """Whether a request would drop an answer that another thread or task received."""
    before, held = choice.conversation.caller, choice.conversation.live.view.held
    if caller is None or before is None or caller.id == before.id:
        return False
    received = (one for one in choice.match.dropped if not one.is_open)
    return any(isinstance(held.get(one.first), ModelSaid) for one in received)


async def _wait_for_end(flight: Flight | None, request: ClientRequest) -> bool:
    """Wait for the end of a call that a request goes on from; return whether it ended soon.

    Its client did not read to the end: the answer is being recorded, or just broken off.
    """
    before = flight.request.chain if flight is not None else []
    if flight is None or len(before) not in request.answers:
        return False
    if request.chain[len(before) - 1] != before[-1]:
        return False
    with suppress(TimeoutError):
        async with timeout(_ENDING):
            return await flight.over.wait()
    return False


def _format_response(name: str | bytes) -> str:
    """Format an answer's id, as JSON or plain, as the index keeps it."""
    plain = name if isinstance(name, str) else name.decode("utf-8", "replace").strip('"')
    return f"response {plain}"


def _may_be_named(request: ClientRequest) -> bool:
    """Whether a later request may name the answer.

    Not if the client wants nothing to be kept, or sends its history itself.
    """
    if request.answers and not request.log:
        return False
    body = request.original or request.body  # what is written out is never kept at the server
    place = find_fields(body).get("store")
    return place is None or body[slice(*place)] != b"false"


def _forget_at_server(body: bytes) -> bytes:
    """Ask the server to keep nothing: the history is ours."""
    return apply_splices(body, [make_field_splice(body, find_fields(body), "store", b"false")])


def _format_pair(message: str, answer: str) -> str:
    return f"{message} → {answer}"


def _is_proxied(live: Live) -> bool:
    """Whether a log holds a proxied conversation that this release can continue."""
    held = live.view.held.values()
    return any(getattr(event, "link", "") or getattr(event, "chain", "") for event in held)

"""One request to its upstream, and its answer back.

    whole body → planned → asked → heard and passed on, piece by piece → ended

Knows what happens when either side hangs up, stalls or breaks off. Refuses to know who may ask and
where (`app`), and what a request says (`plan_request`). What is not planned goes out as it came in;
an answer always does. Nothing is read from the upstream before the client has taken what came
before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from yarl import URL

from foldline.apps.gateway import keys
from foldline.apps.gateway.audit import Note
from foldline.apps.gateway.calls import Calls, GatewayCall, Watch
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.keys import Client
from foldline.apps.gateway.limits import Gone, Message, Receive, Room, Share, unfolded, whole
from foldline.apps.gateway.plan_request import PlanHeaders, PlannedExchange, planned, told
from foldline.apps.gateway.settings import ANTHROPIC, GatewaySettings, Upstream
from foldline.apps.gateway.unplanned import Warnings, find_reason
from foldline.apps.gateway.upstream import Links, UpstreamAnswer, outward
from foldline.dialects.base import Dialect
from foldline.errors import FoldlineError
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange

Send: TypeAlias = Callable[[Message], Awaitable[None]]
_LONGEST = 200
_log = logging.getLogger("foldline.gateway")
_GONE = 499  # as nginx writes it: the client hung up


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A request that may be relayed."""

    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    client: Client
    speaks: str
    """Whose errors its client reads."""
    dialect: Dialect | None
    """What its body is written in, where that is planned."""
    upstream: Upstream
    watch: Watch | None = None
    """How to be told that the client is gone, where the server tells."""

    def header(self, name: bytes) -> bytes | None:
        """The first of a name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def url(self) -> URL:
        """Where it goes: below the operator's address."""
        query = f"?{self.query}" if self.query else ""
        return URL(f"{self.upstream.at(self.path, self.speaks)}{query}", encoded=True)


class Reply:
    """What the client is sent."""

    __slots__ = ("_note", "_send", "begun", "ended")

    def __init__(self, send: Send, note: Note) -> None:
        self._send, self._note = send, note
        self.begun = self.ended = False

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Its head."""
        self.begun, self._note.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_on(self, chunk: bytes, *, last: bool = False) -> None:
        """A piece of its body."""
        self.ended = last
        self._note.sent += len(chunk)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": not last})

    async def refuse(self, refusal: Refusal, speaks: str) -> None:
        """An error of ours; where an answer has begun, it is broken off instead."""
        if not self.begun:
            body = refusal.body(speaks)
            await self.begin(refusal.status, refusal.headers(len(body)))
            await self.pass_on(body, last=True)


@dataclass(frozen=True, slots=True)
class Way:
    """One request on its way."""

    asked: RelayRequest
    call: GatewayCall
    reply: Reply
    note: Note


class Relay:
    """All requests of one process."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        links: Links,
        calls: Calls,
        conversations: Conversations | None,
    ) -> None:
        self._settings, self._limits = settings, settings.limits
        self._links, self._calls, self._conversations = links, calls, conversations
        self._room = Room(settings.limits.held)
        self._warnings = Warnings()

    async def serve(
        self, asked: RelayRequest, reply: Reply, *, note: Note, receive: Receive
    ) -> None:
        """One of them, from its first byte to its last; `Refusal` where it goes no further."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        call, share = GatewayCall(begun + self._limits.body_seconds), Share(self._room)
        self._calls.enter(call, asked.client)
        unwatch: Callable[[], object] | None = None
        try:
            stated = asked.header(b"content-length")
            body = await whole(receive, stated, most=self._limits.body, share=share)
            note.received = len(body)
            call.deadline = loop.time() + self._limits.first_seconds
            if asked.watch is not None:
                unwatch = asked.watch(call.gone)
            else:
                unwatch = loop.create_task(_watch(receive, call)).cancel
            await self._relayed(Way(asked, call, reply, note), body)
        except Gone:
            note.ended, note.status = "gone", _GONE
        except asyncio.CancelledError:
            if (why := call.stopped()) is None:
                raise
            note.ended = why
            if why == "gone":
                note.status = note.status or _GONE
            else:
                await reply.refuse(_stopped(why, heard=unwatch is not None), asked.speaks)
        finally:
            call.ended = True
            if unwatch is not None:
                unwatch()
            share.give()
            self._calls.leave(call, asked.client)
            note.seconds = loop.time() - begun

    async def _relayed(self, way: Way, body: bytes) -> None:
        """Plan it where there is something to plan, and see to it that what was heard is kept."""
        clock = asyncio.get_running_loop().time
        started = clock()
        hearing = await way.call.unbroken(self._planned(way.asked, body))
        way.note.added = clock() - started
        if not isinstance(hearing, PlannedExchange):
            way.note.told = hearing
            if hearing is not None:
                self._warnings.warn(way.asked.client, way.asked.path, hearing.unplanned)
            way.call.check()
            await self._passed(way, body, None)
            return
        way.note.told = told(hearing.exchange)
        mode = way.asked.header(b"x-foldline-on-disconnect")
        way.call.stays = (mode or self._settings.on_disconnect.encode()) == b"continue"
        try:
            way.call.check()
            await self._passed(way, body, hearing)
        except asyncio.CancelledError:
            if way.call.stopped() is None:
                hearing.exchange.leave()
            else:
                await _kept(hearing)
            raise
        except BaseException:
            await _kept(hearing)
            raise

    async def _planned(
        self, asked: RelayRequest, body: bytes
    ) -> PlannedExchange | PlanHeaders | None:
        if self._conversations is None:
            return None
        if asked.method == "POST" and (
            reason := find_reason(asked.path, asked.headers, asked.dialect)
        ):
            return PlanHeaders(unplanned=reason)
        if asked.dialect is None:
            return None
        encoding = asked.header(b"content-encoding")
        plain = unfolded(body, encoding, most=self._limits.body) if encoding else body
        if plain is None:
            return PlanHeaders(unplanned="unreadable")
        named = asked.header(b"x-foldline-session")
        session = named.decode("utf-8", "replace") if named else ""
        if len(session) > _LONGEST or not session.isprintable():
            words = f"a session's name has at most {_LONGEST} signs that can be read"
            raise Refusal(400, "bad_session", words)
        try:
            exchange = await planned(
                self._conversations,
                asked.dialect,
                plain,
                client=asked.client,
                session=session,
                headers=asked.headers,
                fold_from=self._settings.fold_from_for(asked.header(b"user-agent") or b""),
            )
        except FoldlineError as fault:
            _log.warning("a request was not planned: %s", fault)
            words = f"the conversation cannot be kept now ({type(fault).__name__}); ask again"
            raise Refusal(503, "store_away", words, retry=1) from fault
        return PlannedExchange(exchange) if isinstance(exchange, Exchange) else exchange

    async def _passed(self, way: Way, body: bytes, hearing: PlannedExchange | None) -> None:
        """Ask, and pass on what is answered."""
        call, reply = way.call, way.reply
        answer = await self._answer(way, body, hearing)
        try:
            while hearing is not None:
                hearing.begin(answer.status, answer.encoding)
                while not hearing.opened and (chunk := await answer.next()):
                    hearing.hear(chunk)
                    self._moved(call)
                if answer.cut or not await call.unbroken(hearing.again()):
                    break
                call.check()
                answer.close()
                answer = await self._answer(way, body, hearing)
            call.check()
            headers = answer.headers()
            if hearing is not None:
                way.note.told = told(hearing.exchange)
            if way.note.told is not None:
                headers += way.note.told.headers()
            await reply.begin(answer.status, headers)
            if hearing is not None:
                await _kept_if_whole(hearing, call, last=answer.over)
                for chunk in hearing.held:
                    await reply.pass_on(chunk)
            while chunk := await answer.next():
                last = answer.over
                if hearing is not None:
                    hearing.hear(chunk)
                    await _kept_if_whole(hearing, call, last=last)
                call.ended = last
                self._moved(call)
                await reply.pass_on(chunk, last=last)
                self._moved(call)
            if hearing is not None:
                await call.unbroken(_kept(hearing))
            if answer.cut:
                way.note.ended = "cut"  # and so is ours: it is never ended as if it were whole
            elif not reply.ended:
                call.ended = True
                await reply.pass_on(b"", last=True)
        finally:
            answer.close()

    def _moved(self, call: GatewayCall) -> None:
        """Something came, or was taken: it may be still for so long again."""
        call.deadline = asyncio.get_running_loop().time() + self._limits.idle_seconds

    async def _answer(
        self, way: Way, body: bytes, hearing: PlannedExchange | None
    ) -> UpstreamAnswer:
        """Ask the upstream: what the client sent, or what was planned instead."""
        asked, clock = way.asked, asyncio.get_running_loop().time
        pairs, content = asked.headers, body
        if self._settings.keys is not None:
            is_anthropic = asked.speaks == ANTHROPIC
            pairs = keys.swapped(pairs, asked.upstream.key, anthropic=is_anthropic)
        planned = hearing is not None and not hearing.relayed
        if hearing is not None and planned:
            content = hearing.exchange.body
        headers = outward(pairs, len(content), readable=hearing is not None, decoded=planned)
        patient = asked.header(b"x-stainless-retry-count") is None  # SDKs that ask again themselves
        begun = clock()
        way.call.deadline = begun + self._limits.first_seconds
        answer = await self._links.ask(
            asked.method, asked.url, headers=headers, body=content, patient=patient
        )
        way.note.upstream += clock() - begun
        self._moved(way.call)
        return answer


async def _watch(receive: Receive, call: GatewayCall) -> None:
    """Wait for the client to hang up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    call.gone()


async def _kept_if_whole(hearing: PlannedExchange, call: GatewayCall, *, last: bool) -> None:
    """Take an answer in before its end is passed on: from there on a client may ask the next."""
    if last or hearing.complete:
        await call.unbroken(_kept(hearing))
        call.check()


async def _kept(hearing: PlannedExchange) -> None:
    """Take in what was heard; the client has its answer whatever becomes of that."""
    try:
        await hearing.end()
    except FoldlineError as fault:
        _log.warning("an answer was not kept: %s", fault)


def _stopped(why: str, *, heard: bool) -> Refusal:
    if why == "drain":
        return Refusal(503, "ending", "this gateway ends; ask again", retry=1, close=True)
    if heard:
        return Refusal(504, "upstream_timeout", "the upstream did not answer in time")
    return Refusal(408, "slow", "the request did not come in time", close=True)

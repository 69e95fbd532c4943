"""Relay one request to its upstream, and the answer back.

    serve_request       receives the body, and watches for the client to hang up
    _run_exchange       plans the request; records what was heard, however the exchange ends
    _pass_answer        asks the upstream, sends the answer's head, passes its chunks on
    _ask_until_opened   asks again where a refusal can be healed by another request
    _ask_upstream       sends the client's body, or the planned one

A request that is not planned goes out as it came in; an answer always does. Nothing is read from
the upstream before the client has taken what came before. `asgi` decides who may ask, and
`plan_request` reads what a request says.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec
from yarl import URL

from foldline.apps.gateway import api_keys
from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.audit import Note, parse_quota
from foldline.apps.gateway.call_figures import (
    CallMeter,
    asks_model,
    choose_usage_dialect,
)
from foldline.apps.gateway.call_limits import CallLimits
from foldline.apps.gateway.calls import Calls, GatewayCall, Watch
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limits import (
    Gone,
    Message,
    Receive,
    RequestBody,
    Room,
    Share,
    read_request_body,
)
from foldline.apps.gateway.plan_request import (
    IN_FORCE,
    PlanHeaders,
    PlannedExchange,
    Warnings,
    build_scope,
    find_reason,
    make_plan_headers,
    plan_exchange,
)
from foldline.apps.gateway.provider_routes import ALL_MODELS, ModelLimits
from foldline.apps.gateway.settings import GatewaySettings, Upstream
from foldline.apps.gateway.upstream import Links, UpstreamAnswer, build_upstream_headers
from foldline.dialects import base
from foldline.dialects.base import Dialect, Vendor, is_signed
from foldline.errors import FoldlineError, FormatError, Sealed, Spent
from foldline.proxy.compacted_history import CompactedHistory, answer_compaction
from foldline.proxy.conversations import Conversations
from foldline.proxy.identity import LONGEST, is_name
from foldline.stores.beside import run_beside

Send: TypeAlias = Callable[[Message], Awaitable[None]]
_log = logging.getLogger("foldline.gateway")
_UNKNOWN_ROUTE = (404, 405, 501)  # what servers say to a path that they do not have
_OTHER_BYTES = (b"content-length", b"content-encoding")  # of a body that is written anew
_PATIENCE = 1.0  # seconds of planning after which the store is asked whether it is there
_GONE = 499  # as nginx writes it: the client hung up


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A client's request that may be relayed."""

    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    client: Client
    vendor: Vendor
    """Whose client it is: how it reads errors and shows keys."""
    dialect: Dialect | None
    """The dialect of its body, if it is one that is planned."""
    upstream: Upstream
    compacts: bool = False
    """Whether its path is one to which histories are posted to be compacted."""
    watch: Watch | None = None
    """Subscribes to the client's disconnect, if the server reports it."""
    models: ModelLimits = ALL_MODELS
    """The models that it may ask."""

    def find_header(self, name: bytes) -> bytes | None:
        """Return the first header of this name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def url(self) -> URL:
        """The upstream's URL for this request, below the operator's address."""
        query = f"?{self.query}" if self.query else ""
        return URL(f"{self.upstream.build_url(self.path, self.vendor)}{query}", encoded=True)


ENDING = Refusal(503, "ending", "this gateway ends; ask again", retry=1, close=True)


class Reply:
    """The response to the client."""

    __slots__ = ("_note", "_send", "begun", "ended")

    def __init__(self, send: Send, note: Note) -> None:
        self._send, self._note = send, note
        self.begun = self.ended = False

    async def send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""
        self.begun, self._note.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_on(self, chunk: bytes, *, last: bool = False) -> None:
        """Send a chunk of the body."""
        self.ended = last
        self._note.sent += len(chunk)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": not last})

    async def send_refusal(self, refusal: Refusal, vendor: Vendor) -> None:
        """Send an error of ours; an answer that has begun is broken off instead."""
        if not self.begun:
            body = refusal.encode_body(vendor)
            await self.send_head(refusal.status, refusal.encode_headers(len(body)))
            await self.pass_on(body, last=True)


@dataclass(frozen=True, slots=True)
class Way:
    """One request on its way, with its reply and its line in the audit log."""

    request: RelayRequest
    call: GatewayCall
    reply: Reply
    note: Note
    meter: CallMeter | None = None


class Relay:
    """Relays all requests of one process."""

    def __init__(  # noqa: PLR0913 - what a relay is made of
        self,
        settings: GatewaySettings,
        *,
        links: Links,
        calls: Calls,
        conversations: Conversations | None,
        can_reach_store: Callable[[], Awaitable[bool]],
        call_limits: CallLimits,
    ) -> None:
        self._settings, self._limits = settings, settings.limits
        self._links, self._calls, self._conversations = links, calls, conversations
        self._can_reach_store = can_reach_store
        self.room = Room(settings.limits.held, conversations)
        self._warnings = Warnings()
        self._call_limits = call_limits

    async def serve_request(
        self, request: RelayRequest, reply: Reply, *, note: Note, receive: Receive
    ) -> None:
        """Serve one request from its first byte to its last; raises `Refusal`."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        call, share = GatewayCall(begun + self._limits.body_seconds), Share(self.room)
        note.meter = meter = self._build_meter(request)
        self._calls.add_call(call, request.client)
        unwatch: Callable[[], object] | None = None
        try:
            stated = request.find_header(b"content-length")
            sent = await read_request_body(receive, stated, most=self._limits.body, share=share)
            note.received = len(sent)
            body = self._make_body(request, sent, share)
            if request.models.sets:
                plain = await body.read()
                check = partial(request.models.check_request, request.path, plain)
                await run_beside(check, size=len(plain or b""))
            call.deadline = loop.time() + self._limits.first_seconds
            unwatch = _watch_disconnect(request, receive, call)
            if meter is not None:
                meter.body = sent
            await self._run_exchange(Way(request, call, reply, note, meter), body)
        except Refusal as refusal:
            note.error = refusal.code
            raise
        except Gone:
            note.ended, note.status = "gone", _GONE
        except asyncio.CancelledError:
            if (why := call.take_stop_reason()) is None:
                raise
            note.ended = why
            if why == "gone":
                note.status = note.status or _GONE
            else:
                refusal = _make_stop_refusal(why, received=unwatch is not None)
                note.error = refusal.code
                await reply.send_refusal(refusal, request.vendor)
        finally:
            call.ended = True
            if unwatch is not None:
                unwatch()
            share.release_bytes()
            self._calls.remove_call(call, request.client)
            note.seconds = loop.time() - begun

    def _build_meter(self, request: RelayRequest) -> CallMeter | None:
        """Build what reads the call's figures; None for a request that asks no model."""
        if not asks_model(request.method, request.path):
            return None
        dialect = choose_usage_dialect(request.dialect, request.vendor, request.path)
        return CallMeter(
            self._call_limits.prices_of, dialect, self._settings.name_upstream(request.vendor)
        )

    def _make_body(self, request: RelayRequest, sent: bytes, share: Share) -> RequestBody:
        encoding = request.find_header(b"content-encoding")
        return RequestBody(sent, encoding, request.dialect, limits=self._limits, share=share)

    async def _run_exchange(self, way: Way, body: RequestBody) -> None:
        """Plan the request, pass its answer on, and record what was heard however that ends."""
        if way.meter is not None:
            self._call_limits.check_client(way.request.client)
        planned = await self._plan_and_note(way, body)
        if isinstance(planned, CompactedHistory):
            way.note.meter = None  # no model is asked
            await _send_local_answer(way, planned.body, planned.content_type)
            return
        try:
            await self._admit_way(way, body, planned)
        except BaseException:
            if planned is not None:
                planned.exchange.mark_unanswered()
            raise
        if planned is None:
            way.call.check_not_stopped()
            await self._pass_answer(way, body, None)
            return
        mode = way.request.find_header(b"x-foldline-on-disconnect")
        way.call.stays = (mode or self._settings.on_disconnect.encode()) == b"continue"
        try:
            way.call.check_not_stopped()
            await self._pass_answer(way, body, planned)
        except asyncio.CancelledError:
            if way.call.take_stop_reason() is None:
                planned.exchange.mark_unanswered()
            else:
                await _record_answer(planned)
            raise
        except BaseException:
            await _record_answer(planned)
            raise

    async def _admit_way(
        self, way: Way, body: RequestBody, planned: PlannedExchange | None
    ) -> None:
        """Reserve what the call may take of the operator's limits; raises `Refusal`."""
        request, limits = way.request, self._call_limits
        if way.meter is None or not limits.limiter.has_rules:
            return
        plain = await body.read() if planned is None else None
        way.note.admission = await way.call.run_shielded(
            limits.admit_request(
                request.client, request.path, plain, dialect=request.dialect, planned=planned
            )
        )

    async def _plan_and_note(
        self, way: Way, body: RequestBody
    ) -> PlannedExchange | CompactedHistory | None:
        """Plan the request, and note how long that took and what came of it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        request = way.request
        is_planned = self._conversations is not None and request.dialect is not None
        if is_planned and not find_reason(request.path, request.headers, request.dialect):
            await body.read()  # it ends with its client, as nothing is recorded yet
        planned = await way.call.run_shielded(self._plan_while_stored(way.request, body))
        way.note.added = clock() - started
        if isinstance(planned, PlannedExchange):
            way.note.plan = make_plan_headers(planned.exchange)
            if way.meter is not None:
                way.meter.planned = planned
            return planned
        if isinstance(planned, CompactedHistory):
            patches = {"compaction": 1}
            way.note.plan = PlanHeaders(planned.session, edits=planned.edits, patches=patches)
            return planned
        way.note.plan = planned
        if planned is not None:
            self._warnings.warn_once(way.request.client, way.request.path, planned.unplanned)
            return await self._plan_by_edits_in_force(way, body, planned.unplanned)
        return None

    async def _plan_by_edits_in_force(
        self, way: Way, body: RequestBody, why: str
    ) -> PlannedExchange | None:
        """Edit a request as the ones before it, where it could have no plan of its own."""
        request = way.request
        if self._conversations is None or request.dialect is None or why not in IN_FORCE:
            return None
        exchange = await self._conversations.start_unrecorded(
            request.dialect,
            await body.read() or body.sent,
            why=why,
            scope=build_scope(request.client, _read_session_name(request), request.headers),
            path=request.dialect.read_path(request.path, request.query),
        )
        if exchange is None:
            return None
        way.note.plan = make_plan_headers(exchange)
        planned = PlannedExchange(exchange)
        if way.meter is not None:
            way.meter.planned = planned
        return planned

    async def _plan_while_stored(
        self, request: RelayRequest, body: RequestBody
    ) -> PlannedExchange | CompactedHistory | PlanHeaders | None:
        """Plan the request, unless its tenant rather goes on without a plan and the store is away.

        Planning is given up only if the store does not answer: a long history takes its time.
        """
        tenant = request.client.tenant
        if request.dialect is None or not self._settings.relays_without_store(tenant):
            return await self._plan_exchange(request, body)
        if not await self._can_reach_store():
            return PlanHeaders(unplanned="store-away")
        plan = asyncio.ensure_future(self._plan_exchange(request, body))
        while not plan.done():
            await asyncio.wait([plan], timeout=_PATIENCE)
            if not plan.done() and not await self._can_reach_store():
                plan.cancel()
                await asyncio.wait([plan])
                return PlanHeaders(unplanned="store-away")
        return plan.result()

    async def _plan_exchange(
        self, request: RelayRequest, body: RequestBody
    ) -> PlannedExchange | CompactedHistory | PlanHeaders | None:
        """Plan or answer the request, or say why not; None if it carries no conversation."""
        if self._conversations is None:
            return None
        if request.method == "POST" and (
            reason := find_reason(request.path, request.headers, request.dialect)
        ):
            return PlanHeaders(unplanned=reason)
        if request.dialect is None:
            return None
        plain = await body.read()
        if plain is None:
            return PlanHeaders(unplanned="unreadable")
        session = _read_session_name(request)
        try:
            answered = await answer_compaction(
                self._conversations,
                request.dialect,
                plain,
                posted=request.compacts,
                scope=build_scope(request.client, session, request.headers),
            )
            if answered is not None:
                return answered
            if request.compacts:
                return PlanHeaders(unplanned="compaction")
            return await plan_exchange(
                self._conversations,
                request.dialect,
                plain,
                client=request.client,
                session=session,
                headers=request.headers,
                path=request.dialect.read_path(request.path, request.query),
                fold_from=self._settings.fold_from_for(request.find_header(b"user-agent") or b""),
            )
        except FoldlineError as fault:
            _log.warning("a request was not planned: %s", fault)
            is_damaged = isinstance(fault, FormatError | Sealed)
            relays = self._settings.relays_without_store(request.client.tenant)
            if relays and not isinstance(fault, Spent):
                return PlanHeaders(unplanned="log-unreadable" if is_damaged else "store-away")
            if is_damaged:
                words = "the conversation's log cannot be read; the gateway's log says more"
                headers = ((b"x-should-retry", b"false"),)
                raise Refusal(501, "log_unreadable", words, headers=headers) from fault
            words = f"the conversation cannot be kept now ({type(fault).__name__}); ask again"
            raise Refusal(503, "store_away", words, retry=1) from fault
        except Refusal:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours is no reason to refuse a request
            _log.exception("a request was not planned by a fault of the gateway itself")
            return PlanHeaders(unplanned="fault")

    async def _pass_answer(
        self, way: Way, body: RequestBody, planned: PlannedExchange | None
    ) -> None:
        """Ask the upstream, and pass its answer on to the client."""
        answer = await self._ask_until_opened(way, body, planned)
        try:
            way.call.check_not_stopped()
            if planned is None and await self._send_count(way, body, answer.status):
                return
            await self._send_head(way, answer, planned)
            await self._pass_chunks(way, answer, planned)
            while planned is not None and planned.exchange.goes_on and not answer.cut:
                if not await way.call.run_shielded(planned.answer_calls()):
                    rest = planned.exchange.stop_rounds()
                    await way.call.run_shielded(_record_answer(planned))
                    await way.reply.pass_on(rest)
                    break
                answer.close()
                way.call.check_not_stopped()
                answer = await self._ask_until_opened(way, body, planned)
                way.note.plan = make_plan_headers(planned.exchange)
                await self._pass_chunks(way, answer, planned)
            if answer.cut:
                way.note.ended = "cut"  # and so is ours: it is never ended as if it were whole
            elif not way.reply.ended:
                way.call.ended = True
                await way.reply.pass_on(b"", last=True)
        finally:
            answer.close()

    async def _send_count(self, way: Way, body: RequestBody, status: int) -> bool:
        """Answer a request for a count by our own, where the upstream has none; return whether."""
        request, conversations = way.request, self._conversations
        dialect = base.find_count_dialect(request.path) if request.method == "POST" else None
        if dialect is None or conversations is None:
            return False
        if status not in _UNKNOWN_ROUTE or (plain := await body.read()) is None:
            return False
        scope = build_scope(request.client, _read_session_name(request), request.headers)
        try:
            path = dialect.read_path(request.path, request.query)
            tokens = await conversations.count_request(dialect, plain, scope=scope, path=path)
        except FoldlineError:
            return False
        counted = msgspec.json.encode(dialect.write_count(tokens))
        way.note.plan = PlanHeaders(tokens=tokens, patches={"count": 1})
        await _send_local_answer(way, counted, "application/json")
        return True

    async def _ask_until_opened(
        self, way: Way, body: RequestBody, planned: PlannedExchange | None
    ) -> UpstreamAnswer:
        """Ask the upstream, and once more if a smaller request heals its refusal."""
        while True:
            answer = await self._ask_upstream(way, body, planned)
            try:
                if planned is None or not await self._heal_refusal(way.call, answer, planned):
                    return answer
                way.call.check_not_stopped()
            except BaseException:
                answer.close()
                raise
            answer.close()

    async def _heal_refusal(
        self, call: GatewayCall, answer: UpstreamAnswer, planned: PlannedExchange
    ) -> bool:
        """Hold an answer back until it opens; True if another request is to be sent instead."""
        planned.start_response(answer.status, answer.encoding)
        while not planned.opened and (chunk := await answer.read_chunk()):
            planned.receive_chunk(chunk)
            self._extend_deadline(call)
        if answer.cut:
            return False
        if not planned.opened and planned.exchange.end_body():
            if await call.run_shielded(planned.answer_calls()):
                return True
            planned.exchange.stop_rounds()
            return False
        return await call.run_shielded(planned.heal_refusal())

    async def _ask_upstream(
        self, way: Way, body: RequestBody, planned: PlannedExchange | None
    ) -> UpstreamAnswer:
        """Send the client's body to the upstream, or the planned one instead."""
        request, clock = way.request, asyncio.get_running_loop().time
        sent, decoded = body.sent, False
        if planned is not None and not planned.relayed:
            sent, decoded = planned.exchange.body, True
        pairs = request.headers
        if self._settings.keys is not None:
            key = request.upstream.key
            pairs = api_keys.replace_credentials(pairs, key, header=request.vendor.key_header)
        headers = build_upstream_headers(
            pairs,
            len(sent),
            readable=planned is not None or (way.meter is not None and not is_signed(pairs)),
            decoded=decoded,
        )
        # SDKs that send this header ask again themselves.
        patient = request.find_header(b"x-stainless-retry-count") is None
        begun = clock()
        way.note.asked = True
        way.call.deadline = begun + self._limits.first_seconds
        answer = await self._links.send_request(
            request.method, request.url, headers=headers, body=sent, patient=patient
        )
        if way.meter is not None:
            way.meter.begin_answer(answer.status, answer.encoding, sent=len(sent))
            answer.listen = way.meter.receive_chunk
        way.note.upstream += clock() - begun
        self._extend_deadline(way.call)
        return answer

    async def _send_head(
        self, way: Way, answer: UpstreamAnswer, planned: PlannedExchange | None
    ) -> None:
        headers = answer.filter_headers()
        way.note.quota = parse_quota(headers)
        if planned is not None:  # healing may have changed the plan
            way.note.plan = make_plan_headers(planned.exchange)
            if planned.exchange.rewrites:
                headers = [pair for pair in headers if pair[0].lower() not in _OTHER_BYTES]
        if way.note.plan is not None:
            headers += way.note.plan.encode_headers()
        if way.note.admission is not None:
            headers += way.note.admission.encode_headers()
        await way.reply.send_head(answer.status, headers)

    async def _pass_chunks(
        self, way: Way, answer: UpstreamAnswer, planned: PlannedExchange | None
    ) -> None:
        """Pass the body on as it comes, and record it before its end reaches the client."""
        call, reply = way.call, way.reply
        if planned is not None:
            await _record_if_complete(planned, call, last=answer.over)
            for chunk in planned.list_held():
                await reply.pass_on(chunk)
        rewrites = planned is not None and planned.exchange.rewrites
        while chunk := await answer.read_chunk():
            last = answer.over and not rewrites
            if planned is not None:
                chunk = planned.receive_chunk(chunk)
                await _record_if_complete(planned, call, last=last)
            call.ended = last
            self._extend_deadline(call)
            await reply.pass_on(chunk, last=last)
            self._extend_deadline(call)
        if planned is None:
            return
        rest = planned.exchange.end_stream()
        if answer.cut:
            planned.exchange.stop_rounds()
        elif rest:
            await reply.pass_on(rest)
        if not planned.exchange.goes_on:
            await call.run_shielded(_record_answer(planned))

    def _extend_deadline(self, call: GatewayCall) -> None:
        """Something came, or was taken: either side may be idle for so long again."""
        call.deadline = asyncio.get_running_loop().time() + self._limits.idle_seconds


async def _send_local_answer(way: Way, body: bytes, content_type: str) -> None:
    """Send an answer of ours."""
    length = str(len(body)).encode()
    headers = [(b"content-type", content_type.encode()), (b"content-length", length)]
    added = way.note.plan.encode_headers() if way.note.plan else []
    await way.reply.send_head(200, [*headers, *added])
    way.call.ended = True
    await way.reply.pass_on(body, last=True)


def _watch_disconnect(
    request: RelayRequest, receive: Receive, call: GatewayCall
) -> Callable[[], object]:
    """Stop the call when its client hangs up; call the returned function to stop watching."""
    if request.watch is not None:
        return request.watch(call.handle_disconnect)

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        call.handle_disconnect()

    return asyncio.get_running_loop().create_task(wait_for_disconnect()).cancel


def _read_session_name(request: RelayRequest) -> str:
    named = request.find_header(b"x-foldline-session")
    session = named.decode("utf-8", "replace") if named else ""
    if session and not is_name(session):
        words = f"a session's name has at most {LONGEST} signs that can be read"
        raise Refusal(400, "bad_session", words)
    return session


async def _record_if_complete(planned: PlannedExchange, call: GatewayCall, *, last: bool) -> None:
    """Record an answer before its end is passed on: from there on a client may ask the next."""
    if (last and not planned.exchange.goes_on) or planned.complete:
        await call.run_shielded(_record_answer(planned))
        call.check_not_stopped()


async def _record_answer(planned: PlannedExchange) -> None:
    """Record what was heard; if that fails, the client has its answer all the same."""
    try:
        await planned.end_response()
    except FoldlineError as fault:
        _log.warning("an answer was not kept: %s", fault)


def _make_stop_refusal(why: str, *, received: bool) -> Refusal:
    if why == "drain":
        return ENDING
    if received:
        return Refusal(504, "upstream_timeout", "the upstream did not answer in time")
    return Refusal(408, "slow", "the request did not come in time", close=True)

"""Routes that run the agent's loop (`foldline.agent.loop`), and that add and follow events.

    POST …/messages   adds a message and runs a turn; answers at its end, or streams its events
    POST …/events     adds to the log without running a turn
    GET  …/events     reads the log from a place on, to resume a stream that broke

A message goes into the log first, whoever is at work there: under its key it is added once and
answered once. If a turn is under way it is queued, and whoever runs that turn goes on with it.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from foldline.agent import events as moments
from foldline.agent.factory import keep_host
from foldline.agent.loop import BROKEN, Agent, Ended, iterate_answers, told_to_go_on
from foldline.apps.gateway.api.api_call import (
    ApiAnswer,
    ApiCall,
    Reply,
    Stopped,
    Stream,
    build_error_answer,
    encode_sse_event,
)
from foldline.apps.gateway.api.pool import OpenSession, Pool
from foldline.apps.gateway.api.schemas import (
    AddedSchema,
    AnsweredSchema,
    EntrySchema,
    EventsSchema,
    HappenedSchema,
    MessageSchema,
    SaidSchema,
    StretchSchema,
    UsageSchema,
)
from foldline.apps.gateway.api.schemas import CallSchema as Asked
from foldline.core import log
from foldline.core.log import ModelSaid, UsageReported, UserSaid
from foldline.core.parts import calls_of, render_parts, text_of
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.dialects import base
from foldline.errors import BadInput, Busy, FoldlineError, ModelFailed
from foldline.models.port import Model
from foldline.session.host import agree_to_host, host_of, must_be_asked_at, recorded_host
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from foldline.apps.gateway.call_figures import TurnMeter

Tell: TypeAlias = Callable[[bytes], None]
_LOOK = 0.25  # seconds between two looks at a log that another process may write
_SHOWN = 2_000  # characters of a tool's result in an event
_LONGEST_KEY = 200


async def message(call: ApiCall) -> Reply:
    """Add a message, and let the agent answer it."""
    body: MessageSchema = call.body
    async with call.open_session() as kept:
        view = kept.session.live.view
        call.check_model(view.model)
        model = call.pool.place.model_of(view.model, call.tenant)  # before anything is written
        must_be_asked_at(call.name.session, view.settings, host_of(model))
        model = call.pool.place.limit_model(model, call.client)
        at = await _add_messages(kept.session, body, _make_message_key(call, body))
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        streams = body.stream or call.streams
        tell = queue.put_nowait if streams else None
        turn = _ApiTurn(call.pool, kept, model, at=at, tell=tell, meter=call.meter)
        work = call.pool.start_task(turn.answer_client(wait=body.wait), call.name, kept)
        work.add_done_callback(lambda _: queue.put_nowait(None))
        if call.meter is not None:
            call.meter.session = call.name.session
            work.add_done_callback(lambda _: turn.end_metering())
        goes_on = (body.on_disconnect or kept.on_disconnect) == "continue"
    if streams:
        over = None if goes_on else lambda: _stop_turn(work)
        return Stream(_iterate_turn_events(work, queue), over)
    return await _wait_for_answer(call, work, goes_on=goes_on)


async def _wait_for_answer(
    call: ApiCall, work: "asyncio.Task[AnsweredSchema]", *, goes_on: bool
) -> Reply:
    """Wait for the turn's answer; if the client leaves, the turn stops unless it `goes_on`."""
    try:
        answer = await call.unless_gone(work)
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
        raise Stopped from None
    finally:
        if not goes_on:
            await _stop_turn(work)
    if answer.ended == "queued":
        return ApiAnswer(msgspec.json.encode(answer), status=202)
    return answer


async def _iterate_turn_events(
    work: "asyncio.Task[AnsweredSchema]", queue: "asyncio.Queue[bytes | None]"
) -> AsyncGenerator[bytes]:
    """Yield a turn's events, and an error if it failed."""
    while (event := await queue.get()) is not None:
        yield event
    fault = Stopped() if work.cancelled() else work.exception()
    yield b"" if fault is None else encode_sse_event("error", build_error_answer(fault).body)


async def _stop_turn(work: "asyncio.Task[AnsweredSchema]") -> None:
    """Stop a turn: what happened in it is in the log."""
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


class _ApiTurn:
    """One message of a client, and the turn that answers it."""

    def __init__(  # noqa: PLR0913 - a message, and who listens
        self,
        pool: Pool,
        kept: OpenSession,
        model: Model,
        *,
        at: int,
        tell: Tell | None,
        meter: "TurnMeter | None" = None,
    ) -> None:
        self.pool, self.kept, self.session = pool, kept, kept.session
        self.model, self.at, self.tell, self.meter = model, at, tell, meter

    def end_metering(self) -> None:
        """Report what a turn took that has outlived its request."""
        if self.meter is not None:
            self.meter.end_turn()

    async def answer_client(self, *, wait: bool) -> AnsweredSchema:
        """Let the agent answer, unless the answer is there or another turn is under way."""
        self._send_event("accepted", {"at": self.at}, self.at)
        answer = await self._resolve_answer(wait=wait)
        self._send_event("ended", answer, self.session.live.view.head)
        return answer

    async def _resolve_answer(self, *, wait: bool) -> AnsweredSchema:
        if answer := await self._find_answer():
            return answer
        try:
            async with self.pool.lock_session(self.kept, wait=wait):
                answer = await self._find_answer() or await self._run_turn()
        except Busy:
            return self._build_answer("queued", "a turn is under way; it goes on with this message")
        # Only after the session is unlocked: whoever was refused the lock had added their message
        # before, so it is seen here.
        if _has_waiting_message(self.session.live.view):
            self.pool.start_task(self._run_queued_turns(), self.session.live.name, self.kept)
        return answer

    async def _run_turn(self) -> AnsweredSchema:
        view = self.session.live.view
        begun = view.head
        if view.open and not _has_waiting_message(view):
            return self._build_answer("calls", "other calls wait for their results")
        last = next(reversed((*view.items, *view.waiting)), None)
        if last is None or last.role == "model":
            said = None if last is None else view.held.get(last.seq)
            if not isinstance(said, ModelSaid) or said.stop not in BROKEN:
                raise BadInput("nothing stands unanswered; post a text or a message")
            await told_to_go_on(self.session)
        host = host_of(self.model)
        if host is not None and recorded_host(view.settings) is None:
            await agree_to_host(self.pool.place.store, self.session.live.name, host)
        ended = await self._let_agent_answer()
        return self._build_ended_answer(ended, begun)

    async def _run_queued_turns(self) -> None:
        """Answer messages that came in during a turn."""
        self.tell = None
        try:
            while _has_waiting_message(self.session.live.view):
                async with self.pool.lock_session(self.kept):
                    if _has_waiting_message(self.session.live.view):
                        await self._let_agent_answer()
        except FoldlineError:
            return  # they are in the log: the next turn answers them
        finally:
            self.end_metering()

    async def _let_agent_answer(self) -> Ended:
        try:
            return await self._prepare_agent().go_on()
        except ModelFailed as failed:
            if self.meter is not None:
                dialect = base.find_client_dialect(self.model)
                model = self.session.live.view.model
                self.meter.add_error(model, dialect, failed.fault.kind)
            raise

    def _prepare_agent(self) -> Agent:
        """Return the session's agent, set up for this turn."""
        place, kept = self.pool.place, self.kept
        if kept.agent is None:
            kept.agent = Agent(
                self.session,
                self.model,
                hooks=[kept.notify_listener],
                lent=True,
                rounds=place.rounds,
                patience=place.patience,
            )
            kept.agent.hooks.append(keep_host(kept.agent))
        kept.agent.model, kept.listener = self.model, self._handle_moment
        kept.agent.tools = {tool.name: tool for tool in place.tools_of(self.session)}
        return kept.agent

    async def _find_answer(self) -> AnsweredSchema | None:
        """Find the answer that this or another process has given already."""
        async for seq, said in iterate_answers(self.session, self.at):
            calls = calls_of(said.parts)
            if not calls:
                return self._build_answer("answered", text_of(said.parts), answer=seq)
            if all(call.id in self.session.live.view.open for call in calls):
                return self._build_answer("calls", text_of(said.parts), answer=seq)
        return None

    def _build_ended_answer(self, ended: Ended, begun: int) -> AnsweredSchema:
        new = [(seq, event) for seq, event in self.session.live.view.held.items() if seq > begun]
        said = [seq for seq, event in new if isinstance(event, ModelSaid)]
        used = [event for _, event in new if isinstance(event, UsageReported)]
        answer = self._build_answer(ended.how, ended.words, answer=max(said, default=None))
        edits = [seq for seq in self.session.edits if seq > begun]
        usage = msgspec.convert(used[-1], UsageSchema, from_attributes=True) if used else None
        return msgspec.structs.replace(answer, usage=usage, edits=edits)

    def _build_answer(self, how: Any, words: str, *, answer: int | None = None) -> AnsweredSchema:
        report = self.session.report
        return AnsweredSchema(
            ended=how,
            words=words,
            at=self.at,
            answer=answer,
            calls=_list_open_calls(self.session) if how == "calls" else [],
            tokens=report.total,
            window=report.window,
        )

    def _send_event(self, kind: str, what: Any, at: int | None = None) -> None:
        if self.tell is not None:
            self.tell(encode_sse_event(kind, what, at))

    def _handle_moment(self, moment: moments.Moment) -> None:
        """Send a moment of the turn as an event; its id is the place in the log, if it has one."""
        head = self.session.live.view.head
        match moment:
            case moments.Speaking(words):
                self._send_event("speaking", {"words": words})
            case moments.Answered(answer, calls, seconds):
                if self.meter is not None:
                    live, dialect = self.session.live, base.find_client_dialect(self.model)
                    self.meter.add_answer(live.view.model, dialect, answer, live)
                named = [{"id": call.id, "name": call.name} for call in calls]
                self._send_event("answered", {"calls": named, "seconds": seconds}, head)
            case moments.Calling(call):
                data = {"id": call.id, "name": call.name, "arguments": call.arguments}
                self._send_event("calling", data)
            case moments.Called(call, result, seconds):
                words = render_parts(result.parts)[:_SHOWN]
                data = {"id": call.id, "ok": result.ok, "seconds": seconds, "words": words}
                self._send_event("called", data, head)
            case moments.Passed(fold) if fold.kind == "fold":
                data = {"outcome": fold.outcome, "trigger": fold.trigger}
                data |= {"before": fold.before, "after": fold.after}
                self._send_event("folded", data, head)
            case _:
                pass


def _has_waiting_message(view: View) -> bool:
    """Whether there is a message that no model was shown yet."""
    return any(
        seq > view.shown and isinstance(event, UserSaid) and event.speaker != "notice"
        for seq, event in view.held.items()
    )


def _list_open_calls(session: AsyncSession) -> list[Asked]:
    """List the calls that wait for a result, under the ids that the model is shown."""
    view = session.live.view
    said = (call for item in view.items if item.role == "model" for call in calls_of(item.parts))
    waiting = [call for call in said if call.id in view.open]
    return [Asked(id=call.id, name=call.name, arguments=call.arguments) for call in waiting]


def _make_message_key(call: ApiCall, body: SaidSchema) -> str:
    """Return the client's key of a message, or a random one."""
    header = call.headers.get("idempotency-key")
    if header is not None and (not 0 < len(header) <= _LONGEST_KEY or "\0" in header):
        raise BadInput(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    if header and body.once and header != body.once:
        raise BadInput("`once` and Idempotency-Key are two keys; send one of them")
    key = body.once or header
    if key and "\0" in key:
        raise BadInput("a key with a NUL character; leave it out")
    return f"api:{key}" if key else f"new:{os.urandom(12).hex()}"


async def _add_messages(session: AsyncSession, body: SaidSchema, key: str) -> int:
    """Add what a client says, even during a turn; return the place of its last message."""
    forms = (body.text, body.message, getattr(body, "messages", None))
    said = [form for form in forms if form]
    if len(said) > 1:
        raise BadInput("say it once: as `text`, as `message` or as `messages`")
    if not said:
        return session.live.view.head
    return await session.add(said[0], speaker=body.speaker, author=body.author, once=key)


async def add(call: ApiCall) -> Reply:
    """Add what happened, without running a turn."""
    body: HappenedSchema = call.body
    async with call.open_session() as kept:
        if not (body.text or body.message or body.messages):
            raise BadInput("nothing to add; send `text`, `message` or `messages`")
        at = await _add_messages(kept.session, body, _make_message_key(call, body))
        return AddedSchema(at=at, calls=[one.id for one in _list_open_calls(kept.session)])


async def events(call: ApiCall) -> Reply:
    """Read the log from a place on; as server-sent events, follow it."""
    query: StretchSchema = call.query
    header = call.headers.get("last-event-id", "")
    after = query.after
    if after is None:
        if header and not header.isdecimal():
            raise BadInput(f"a Last-Event-ID of {header[:80]!r}; send the place of an event")
        after = int(header[:15] or -1) if header else -1
    async with call.open_session():
        pass  # an error must come before the stream's 200
    if call.streams:
        return Stream(_follow_log(call, after, query))
    reading = asyncio.ensure_future(_wait_for_events(call, after, query))
    try:
        return await call.unless_gone(reading)
    finally:
        reading.cancel()


async def _wait_for_events(call: ApiCall, after: int, query: StretchSchema) -> EventsSchema:
    """Return events after a place as soon as there are any; none if none come in time."""
    until = monotonic() + query.follow
    while True:
        found = await _read_events(call, after, query.limit)
        if found.events or monotonic() >= until or not await call.is_valid():
            return found
        await asyncio.sleep(_LOOK)


async def _read_events(call: ApiCall, after: int, limit: int) -> EventsSchema:
    async with call.open_session() as kept:
        live = kept.session.live
        head = live.view.head
        entries: list[EntrySchema] = []
        if after < head:
            for seq, event in await live.read_events(Range(after + 1, min(after + limit, head))):
                body = msgspec.json.decode(log.encode_event(event))
                entries.append(EntrySchema(seq=seq, event=body))
        return EventsSchema(events=entries, after=entries[-1].seq if entries else after, end=head)


async def _follow_log(call: ApiCall, after: int, query: StretchSchema) -> AsyncGenerator[bytes]:
    """Yield the log's events with their places as ids, and wait `follow` seconds for more."""
    until = monotonic() + query.follow
    while True:
        if not await call.is_valid():  # its key was revoked meanwhile
            return
        try:
            found = await _read_events(call, after, query.limit)
        except FoldlineError as fault:  # erased meanwhile
            yield encode_sse_event("error", build_error_answer(fault).body)
            return
        for entry in found.events:
            yield encode_sse_event(entry.event["kind"], entry.event, entry.seq)
        after = found.after
        if after >= found.end:
            if monotonic() >= until:
                return
            await asyncio.sleep(_LOOK)

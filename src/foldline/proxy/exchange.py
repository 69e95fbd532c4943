"""One call of a client: the body to send, and recording the answer as it passes by."""

import logging
from asyncio import Event as Signal
from asyncio import Task, create_task
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

import msgspec

from foldline.core.cold_cache import ColdCall
from foldline.core.log import Event, ModelSaid, UsageReported
from foldline.core.parts import Part
from foldline.core.plan import Facts
from foldline.core.request import Report
from foldline.dialects import base
from foldline.dialects.json_slices import Splice, parse_object
from foldline.dialects.provider_errors import Fault, classify_error
from foldline.dialects.sse import SseEvent, SseReader, write_event
from foldline.errors import Conflict, FoldlineError, WireError
from foldline.proxy.client_request import ClientRequest
from foldline.proxy.conversation import Conversation, PlannedRequest
from foldline.proxy.rounds import Rounds, list_recalls
from foldline.proxy.spared_tokens import SparedTokens
from foldline.session import refusals
from foldline.session.log_handle import Live

_REFUSED = 400
_SPARE = 64  # tokens left free beside an answer that was lowered to fit
_log = logging.getLogger("foldline.proxy")
_under_way: set[Task[None]] = set()  # an event loop holds its tasks only weakly


@dataclass(slots=True)
class Flight:
    """A request under way, perhaps sent more than once by an impatient client."""

    conversation: Conversation
    request: ClientRequest
    planned: PlannedRequest
    on_answer: Callable[["Flight", ModelSaid], Coroutine[None, None, None] | None]
    """Called when an answer is in the log; a returned coroutine is awaited before the end."""
    on_over: Callable[["Flight"], None]
    on_lost: Callable[[Conversation], None]
    """Called when the log is no longer as this process believes."""
    waiting: int = 0
    """How many exchanges wait for its answer."""
    is_answered: bool = False
    over: Signal = field(default_factory=Signal)
    """Set when the conversation may go on."""
    joiner: "Exchange | None" = None
    """The exchange that answers calls of `recall`, and asks again: two would write both."""
    response_id: str = ""
    """The id by which a later request may name the answer."""


class Exchange:
    """One call: the body to send, and the response."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        flight.waiting += 1
        self._dialect = flight.request.dialect
        self._streams = flight.request.streams
        self._tried = self._over = self._late = False
        self._taken = 0
        self._beside: Task[None] | None = None
        self._rounds = Rounds(self._dialect) if flight.planned.offers_recall else None
        self.healed = 0
        """How many refusals were answered by another request, so that the client never saw them."""
        self.heard: tuple[Part, ...] = ()
        """What was read of the newest answer."""
        self._has_open_calls = False  # whether the log has a round that could not be answered
        self.start_response(0)

    @property
    def body(self) -> bytes:
        """The body to send."""
        return self._flight.planned.patched.body

    @property
    def live(self) -> Live:
        """The conversation's log."""
        return self._flight.conversation.live

    @property
    def session(self) -> str:
        """The session's name."""
        return self.live.name.session

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self._flight.request.model

    @property
    def report(self) -> Report:
        """How the window is used."""
        return self._flight.planned.report

    @property
    def asked(self) -> int:
        """Where the request was recorded; -1 if it was not."""
        return self._flight.planned.asked

    @property
    def most_output(self) -> int | None:
        """The most tokens of an answer, if the request says."""
        request = self._flight.request
        bound = request.dialect.find_bound(request.parameters)
        return bound[1] if bound else None

    @property
    def answers(self) -> int:
        """How many answers the request asks for."""
        count = self._flight.request.extract_field("n")
        return int(count) if count.isdigit() else 1

    @property
    def splices(self) -> list[Splice]:
        """The patches that the client's body got."""
        return self._flight.planned.patched.splices

    @property
    def patches(self) -> dict[str, int]:
        """How many patches of each kind the client's body got."""
        return self._flight.planned.patched.kinds

    @property
    def edits(self) -> int:
        """How many edits were made for this request."""
        return self._flight.planned.edits

    @property
    def cold(self) -> ColdCall | None:
        """Its price, if the provider's cache has expired since the last request."""
        return self._flight.planned.cold

    @property
    def spared(self) -> SparedTokens | None:
        """How much larger the client's own request is; None if nothing was taken out of it."""
        return self._flight.planned.spared

    @property
    def unplanned(self) -> str:
        """Why it is sent without a plan, in a word; "" if it was planned."""
        return self._flight.planned.unplanned

    @property
    def relayed(self) -> bool:
        """Whether the body is the client's own, byte for byte."""
        request = self._flight.request
        return self.body == (request.original or request.body)

    @property
    def complete(self) -> bool:
        """Whether a streamed answer is complete, though more bytes may come."""
        return self._streams and self._assembly.done and not self.goes_on

    @property
    def rewrites(self) -> bool:
        """Whether the client may get other bytes than the provider sends."""
        return self._rounds is not None

    @property
    def goes_on(self) -> bool:
        """Whether the answer only calls `recall`: it is read to its end, and another follows."""
        return self._rounds is not None and self._rounds.goes_on

    @property
    def failed(self) -> bool:
        """Whether the provider refused the request."""
        return self._failed

    def start_response(self, status: int) -> None:
        """Begin to read a response."""
        self._status, self._failed = status, status >= _REFUSED
        self._lines, self._assembly = SseReader(), self._dialect.make_assembly()
        self._unreadable, self._whole = False, b""
        self.held: list[bytes] = []
        """Chunks received before the answer began; all chunks if it is not streamed."""
        self.opened = not (self._streams or self._failed or self._rounds)
        """Whether the answer has begun: until then another request may be sent instead."""
        if self._rounds is not None:
            self._rounds.start_answer()

    def receive_chunk(self, chunk: bytes) -> bytes:
        """Read bytes of the response; return what the client gets: the same, if none is ours."""
        is_open = self.opened
        passed = chunk
        is_read = not self._unreadable or self._rounds is not None
        if self._streams and is_read and not self._failed:
            passed = self._read_events(chunk)
        if not self._streams or self._failed or not is_open:
            self.held.append(passed)
        return passed

    def _read_events(self, chunk: bytes) -> bytes:
        passed: list[bytes] = []
        try:
            for sent in self._lines.feed(chunk):
                passed += (self._read_event(sent),)
        except WireError:
            self.opened = self._unreadable = True
            return chunk
        return b"".join(passed) if self._rounds is not None else chunk

    def _read_event(self, sent: SseEvent) -> bytes:
        try:
            self._assembly.add_event(sent.data, whole=sent.whole)
        except WireError:
            if self._rounds is None:
                raise
            self.opened = self._unreadable = True  # our calls behind it are still left out
        self._late = self._over
        self.opened = self.opened or self._assembly.has_begun
        return self._rounds.read_event(sent, self._assembly) if self._rounds is not None else b""

    def end_body(self) -> bool:
        """Read an answer that is not streamed, now that it is whole; return whether it goes on."""
        if self._rounds is None or self._streams or self._failed:
            return False
        self._whole = b"".join(self.held)
        self.held = [self._rounds.end_body(self._whole)]
        return self.goes_on

    def end_stream(self) -> bytes:
        """Read the end of a stream; return what the client gets besides, unless it goes on."""
        if self._rounds is None or not self._streams or self._failed:
            return b""
        passed: list[bytes] = []
        with suppress(WireError):
            passed += map(self._read_event, self._lines.close())
        if not self.goes_on:
            passed.append(self._rounds.end_rounds())
        return b"".join(passed)

    def list_held(self) -> list[bytes]:
        """List what was held back, for the client; a refusal inside a stream becomes an event."""
        if self._rounds is None:
            return self.held
        if not (self._streams or self._failed or self._whole):
            return []  # it was cut, and may hold calls of ours
        if not (self._rounds.count and self._streams and self._failed):
            return self.held
        return [write_event(SseEvent("error", b"".join(self.held).decode("utf-8", "replace")))]

    async def answer_calls(self) -> bool:
        """Answer the calls of `recall` and plan the next request; return whether there is one."""
        flight, rounds, live = self._flight, self._rounds, self.live
        if rounds is None or not rounds.goes_on or self._is_beside:
            return False
        flight.joiner = self
        events = self._read_answer()
        said = next((one for one in reversed(events) if isinstance(one, ModelSaid)), None)
        if said is None:
            return False
        open_ = msgspec.structs.replace(said, link="", more=True)
        usage = next((one for one in events if isinstance(one, UsageReported)), None)
        async with live.lock:
            if live.view.asked != self.asked:
                return False  # the conversation went on meanwhile
            self._has_open_calls = True
            await live.receive_events(*(open_ if one is said else one for one in events))
            await rounds.append_results(live, list_recalls(said))
            await flight.conversation.settle_spending(usage)
            planned = await flight.conversation.plan_round(flight.request)
            made = flight.planned.edits + planned.edits
            flight.planned = replace(planned, edits=made, cold=self.cold)
        rounds.ask_again()
        self._tried = self._has_open_calls = False
        return True

    @property
    def _is_beside(self) -> bool:
        """Whether another exchange of the same request has its answer in the log, or will."""
        joiner = self._flight.joiner
        return joiner is not self and (joiner is not None or self._flight.is_answered)

    def stop_rounds(self) -> bytes:
        """End an answer whose calls were not answered; return what the client gets besides."""
        return self._rounds.end_rounds() if self._rounds is not None else b""

    async def heal_refusal(self) -> bool:
        """Plan again after a refusal, once; return whether there is another body to send."""
        fault = self._assembly.fault
        if self._tried or self._over or not (self._failed or fault):
            return False
        self._tried = True
        body = fault or b"".join(self.held)
        filled = refusals.measure_fill(self.live)
        return await self.plan_again(classify_error(body, status=self._status, filled=filled))

    async def plan_again(self, meant: Fault) -> bool:
        """Plan a smaller request after a fault; return whether there is another body to send."""
        async with self.live.lock:
            if self.asked >= 0 and self.live.view.asked != self.asked:
                return False  # the conversation went on meanwhile
            planned = await self._plan_retry(meant)
        if planned is None or planned.patched.body == self.body:
            return False
        _log.info(
            "%s: a refusal is healed: %s → %s tokens (%s)",
            self.session, f"{self.report.total:,}", f"{planned.report.total:,}",
            ", ".join(planned.patched.kinds),
        )  # fmt: skip
        self._flight.planned = planned
        self.healed += 1
        return True

    async def _plan_retry(self, meant: Fault) -> PlannedRequest | None:
        conversation, request = self._flight.conversation, self._flight.request
        is_bound = await refusals.learn_binding(conversation.live, meant)
        facts = self.live.facts if is_bound else await refusals.find_smaller(self.live, meant)
        if facts is None:
            return None
        if self.asked < 0:
            return await self._plan_unrecorded(facts)
        if is_bound:
            return await conversation.heal_thinking(request)
        if meant.limit and meant.count and meant.count < meant.limit:  # the input alone fits
            return await conversation.heal_answer(request, meant.limit - meant.count - _SPARE)
        return await conversation.heal_length(request, facts)

    async def _plan_unrecorded(self, facts: Facts) -> PlannedRequest | None:
        """Plan and record a request whose newest messages are not in the log yet."""
        flight = self._flight
        conversation, request = flight.conversation, flight.request
        if conversation.busy:
            return None  # the conversation went on meanwhile
        conversation.busy, conversation.flight = True, flight
        match = await conversation.match_request(request, known=1)
        return await conversation.plan_request(request, match, facts)

    async def end_response(self) -> None:
        """Record the answer when the response is over or was abandoned."""
        flight = self._flight
        if self._over:  # the conversation may be busy with the next request by now
            await self._take_late()
            return
        self._over = True
        flight.waiting -= 1
        events: list[Event] = []
        try:
            # Of two answers to one request nobody knows which one the client will use.
            beside = self._rounds is not None and self._is_beside
            if not (beside or (flight.is_answered and flight.conversation.busy)):
                events = self._read_answer()
            if events:
                flight.is_answered = True
                await self._record_answer(events)
            if self._beside is not None:
                await self._beside
            usage = next((one for one in events if isinstance(one, UsageReported)), None)
            await flight.conversation.settle_spending(usage, free=self._failed)
        finally:
            if events or flight.waiting <= 0:
                flight.on_over(flight)

    async def _record_answer(self, events: list[Event]) -> None:
        flight = self._flight
        live = flight.conversation.live
        answer = next((one for one in events if isinstance(one, ModelSaid)), None)
        calls = list_recalls(answer) if answer and self._rounds is not None else []
        entering: list[Event] = [*events]
        if answer and calls:  # beside the client's own, whose results it sends itself
            entering[events.index(answer)] = msgspec.structs.replace(answer, link="", more=True)
        try:
            async with live.lock:
                if flight.planned.asked >= 0:
                    await live.receive_events(*entering)
                    self._taken = len(events)
                    if answer and calls and self._rounds is not None:
                        await self._rounds.append_results(live, calls, link=answer.link)
                noting = None
                if isinstance(events[0], ModelSaid):
                    noting = flight.on_answer(flight, events[0])
            if noting is not None:
                with suppress(FoldlineError):  # a later request indexes it again
                    await noting
        except Conflict:
            # Another process continued this log. The client will repeat the answer.
            _log.warning(
                "%s: an answer was not kept: another process continued this log; it is kept when "
                "the client says it again", live.name.session,
            )  # fmt: skip
            flight.on_lost(flight.conversation)
        except BaseException:
            # Whether it was written is unknown. The client has it, and will repeat it.
            if isinstance(events[0], ModelSaid) and (noting := flight.on_answer(flight, events[0])):
                noting.close()
            flight.on_lost(flight.conversation)
            raise

    async def _take_late(self) -> None:
        """Record what came after a complete answer: a stream's usage."""
        if not (self._taken and self._late):
            return
        self._late = False
        if late := self._read_answer()[self._taken :]:
            self._taken += len(late)
            live = self._flight.conversation.live
            async with live.lock:
                with suppress(Conflict):  # another process has the log and reports its own usage
                    await live.receive_events(*late)

    def run_in_background(self, noting: Coroutine[None, None, None]) -> None:
        """Run work beside the call; it is awaited before the call ends."""

        async def await_noting() -> None:
            with suppress(FoldlineError):  # the next request indexes it again
                await noting

        self._beside = task = create_task(await_noting())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)

    async def record_usage(self, usage: UsageReported) -> None:
        """Record what the provider counted, where the answer itself comes with a later request."""
        if self.asked >= 0:
            async with self.live.lock:
                await self.live.receive_events(usage)
        await self._flight.conversation.settle_spending(usage)

    async def release(self) -> None:
        """End the call here: its answer comes with a later request."""
        self.mark_unanswered()
        if self._beside is not None:
            await self._beside

    def mark_unanswered(self) -> None:
        """End the call without an answer."""
        if not self._over:
            self._over = True
            self._flight.waiting -= 1
            if self._flight.waiting <= 0:
                self._flight.on_over(self._flight)

    async def release_reservation(self) -> None:
        """Release what was reserved for a call that was not answered."""
        await self._flight.conversation.settle_spending(None, free=True)

    def _read_answer(self) -> list[Event]:
        """Parse the answer; [] if it cannot be read: the client will repeat it."""
        if self._failed or self._unreadable or (self.goes_on and self._over):
            return []
        if self._has_open_calls:  # the client will say it again, as it got it
            return []
        request, dialect = self._flight.request, self._flight.request.dialect
        try:
            if self._streams and not self._assembly.done:
                for sent in self._lines.close():
                    self._assembly.add_event(sent.data, whole=False)
            if self._streams:
                body = self._assembly.build_body()
            else:
                body = parse_object(self._whole or b"".join(self.held))
            asked = self._flight.planned.asked
            if self._dialect.chain_field and isinstance(body.get("id"), str):
                self._flight.response_id = body["id"]
            if request.prefill:
                body = dialect.complete_answer(body, request.prefill)
            events = base.parse_any_message(body, own=self._dialect, saw=None, asked=asked)
            if not isinstance(events[0], ModelSaid):
                return []
            self.heard = events[0].parts
            if not events[0].parts:
                cut = self._streams and not self._assembly.done
                return events[1:] if cut else events
            joined = self._rounds is not None and self._rounds.is_joined(events[0])
            said = [
                event
                for raw in dialect.encode_answer(body)
                for event in self._read_message(raw, exact=joined)
            ]
            if joined and self._rounds is not None and said and not self.goes_on:
                link, named = self._rounds.read_client_answer()
                self._flight.response_id = named if self._dialect.chain_field else ""
                said[-1] = msgspec.structs.replace(cast("ModelSaid", said[-1]), link=link)
        except WireError:
            return []
        if not said or not isinstance(said[-1], ModelSaid):
            return []
        said[-1] = msgspec.structs.replace(said[-1], stop=events[0].stop)
        return [*said, *(event for event in events if isinstance(event, UsageReported))]

    def _read_message(self, raw: bytes, *, exact: bool) -> list[Event]:
        """Read a message of the answer; `exact` keeps its JSON: it is written from the log."""
        dialect = self._flight.request.dialect
        described = dialect.describe_message(raw)
        return dialect.read_message(raw, described._replace(digest="") if exact else described)

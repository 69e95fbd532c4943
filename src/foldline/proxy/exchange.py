"""One call of a client: what to send, and what comes back.

Takes in the answer as it passes by. Knows one conversation. Refuses to know which one it is
(`conversations`), and HTTP.
"""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from foldline.core.log import Event, ModelSaid, UsageReported
from foldline.core.request import Report
from foldline.dialects import base
from foldline.dialects.json_reader import parse
from foldline.dialects.provider_errors import Fault, classify
from foldline.dialects.sse import SseReader
from foldline.errors import Conflict, FoldlineError, WireError
from foldline.proxy.conversation import Conversation, PlannedRequest
from foldline.proxy.request import ClientRequest
from foldline.session import healing
from foldline.session.log_handle import Live

if TYPE_CHECKING:
    from asyncio import Task

_REFUSED = 400
_SPARE = 64  # tokens left free beside an answer that was lowered to fit
_BINDING = "bound to a different conversation"
_log = logging.getLogger("foldline.proxy")
_under_way: "set[Task[None]]" = set()  # a loop alone does not keep them


@dataclass(slots=True)
class Flight:
    """A request on its way, perhaps sent more than once by an impatient client."""

    conversation: Conversation
    request: ClientRequest
    planned: PlannedRequest
    on_answer: Callable[["Flight", ModelSaid], Coroutine[None, None, None] | None]
    """Told of an answer, once it is in the log; what it gives back is done before all is over."""
    on_over: Callable[["Flight"], None]
    on_lost: Callable[[Conversation], None]
    """Told where the log is no longer as this process believes."""
    waiting: int = 0
    """How many exchanges wait for its answer."""
    is_answered: bool = False


class Exchange:
    """One call: what to send, and what comes back."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        flight.waiting += 1
        self._dialect = flight.request.dialect
        self._streams = flight.request.streams
        self._tried = self._over = self._late = False
        self._taken = 0
        self._beside: Task[None] | None = None
        self.begin(0)

    @property
    def body(self) -> bytes:
        """What to send."""
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
    def report(self) -> Report:
        """Where the window goes."""
        return self._flight.planned.report

    @property
    def patches(self) -> dict[str, int]:
        """What differs from what the client sent: how many patches of each kind."""
        return self._flight.planned.patched.kinds

    @property
    def edits(self) -> int:
        """How many edits were made for this request."""
        return self._flight.planned.edits

    @property
    def unplanned(self) -> str:
        """Why it is sent without a plan, in a word; "" where it was planned."""
        return self._flight.planned.unplanned

    @property
    def relayed(self) -> bool:
        """Whether the body is the client's own, byte for byte."""
        return self.body == self._flight.request.body

    @property
    def complete(self) -> bool:
        """Whether all of a streamed answer was heard, though its bytes may go on."""
        return self._streams and self._assembly.done

    def begin(self, status: int) -> None:
        """A response begins."""
        self._status, self._failed = status, status >= _REFUSED
        self._lines, self._assembly = SseReader(), self._dialect.assembly()
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
                self.opened, self._late = True, self._over
        except WireError:
            self.opened = self._unreadable = True

    async def again(self) -> bool:
        """Whether to send another body, once, because an edit may heal a refusal."""
        fault = self._assembly.fault
        if self._tried or self._over or not (self._failed or fault):
            return False
        self._tried = True
        live = self._flight.conversation.live
        body = fault or b"".join(self.held)
        meant = classify(body, status=self._status, filled=healing.filled(live))
        async with live.lock:
            planned = await self._heal(meant)
        if planned is None or planned.patched.body == self.body:
            return False
        _log.info("%s: a refusal is healed: %s", self.session, planned.patched.kinds)
        self._flight.planned = planned
        return True

    async def _heal(self, meant: Fault) -> PlannedRequest | None:
        conversation, request = self._flight.conversation, self._flight.request
        if _BINDING in meant.message:
            return await conversation.heal_thinking(request)
        smaller = await healing.find_smaller(conversation.live, meant)
        if smaller is None:
            return None
        if meant.limit and meant.count and meant.count < meant.limit:  # the input alone fits
            return await conversation.heal_answer(request, meant.limit - meant.count - _SPARE)
        return await conversation.heal_length(request, smaller)

    async def end(self) -> None:
        """The response is over, or was left: take in what was answered."""
        flight = self._flight
        if self._over:  # the conversation may be busy with the next request by now
            await self._take_late()
            return
        self._over = True
        flight.waiting -= 1
        events: list[Event] = []
        try:
            # Of two answers to one request nobody knows which one the client goes on with.
            if not (flight.is_answered and flight.conversation.busy):
                events = self._answer()
            if events:
                flight.is_answered = True
                await self._take(events)
            if self._beside is not None:
                await self._beside
            usage = next((one for one in events if isinstance(one, UsageReported)), None)
            await flight.conversation.settle(usage, free=self._failed)
        finally:
            if events or flight.waiting <= 0:
                flight.on_over(flight)

    async def _take(self, events: list[Event]) -> None:
        flight = self._flight
        live = flight.conversation.live
        try:
            async with live.lock:
                if flight.planned.asked >= 0:
                    await live.take(*events)
                    self._taken = len(events)
                noting = None
                if isinstance(events[0], ModelSaid):
                    noting = flight.on_answer(flight, events[0])
            if noting is not None:
                with suppress(FoldlineError):  # a later request notes it again
                    await noting
        except Conflict:
            # Another process went on with this log. The client says the answer again.
            _log.info("%s: an answer is kept when the client says it again", live.name.session)
            flight.on_lost(flight.conversation)
        except BaseException:
            # Whether it was written is not known. The client has it, and says it again.
            if isinstance(events[0], ModelSaid) and (noting := flight.on_answer(flight, events[0])):
                noting.close()
            flight.on_lost(flight.conversation)
            raise

    async def _take_late(self) -> None:
        """What came behind an answer that was taken in when it was complete: a stream's usage."""
        if not (self._taken and self._late):
            return
        self._late = False
        if late := self._answer()[self._taken :]:
            self._taken += len(late)
            live = self._flight.conversation.live
            async with live.lock:
                with suppress(Conflict):  # another process has the log: its own reports will do
                    await live.take(*late)

    def beside(self, noting: Coroutine[None, None, None]) -> None:
        """Do what need not be done before the answer is asked for, only before it is over."""
        from asyncio import create_task  # noqa: PLC0415 - half of the time of an import

        async def note() -> None:
            with suppress(FoldlineError):  # the next request notes it again
                await noting

        self._beside = task = create_task(note())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)

    def leave(self) -> None:
        """Nothing came back."""
        if not self._over:
            self._over = True
            self._flight.waiting -= 1
            if self._flight.waiting <= 0:
                self._flight.on_over(self._flight)

    async def release(self) -> None:
        """The call was not answered: what was set aside for it comes back."""
        await self._flight.conversation.settle(None, free=True)

    def _answer(self) -> list[Event]:
        """What was answered; nothing where it cannot be read: the client will say it again."""
        if self._failed or self._unreadable:
            return []
        request, form = self._flight.request, self._flight.request.form
        try:
            if self._streams and not self._assembly.done:
                for sent in self._lines.close():
                    self._assembly.take(sent.data, whole=False)
            body = self._assembly.body() if self._streams else parse(b"".join(self.held))
            asked = self._flight.planned.asked
            if request.prefill:
                body = form.complete_answer(body, request.prefill)
            events = base.events(body, own=self._dialect, saw=None, asked=asked)
            if not isinstance(events[0], ModelSaid):
                return []
            if not events[0].parts:
                cut = self._streams and not self._assembly.done
                return events[1:] if cut else events
            raw = form.answer_message(body)
            (said,) = form.read_message(raw, form.describe(raw))
        except WireError:
            return []
        said = msgspec.structs.replace(said, stop=events[0].stop)
        return [said, *events[1:]]

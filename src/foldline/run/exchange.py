"""One call of a client that sends its whole history: what to send, and what comes back.

Knows what a conversation's log has behind its last request, and what is new to it; takes in the
answer as it passes by. Refuses to know which conversation it is (`talks`), and HTTP.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from foldline.core import spine as spines
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.plan import Facts
from foldline.core.request import Report
from foldline.errors import Conflict, FoldlineError, WireError
from foldline.run import asking, bounds, refused
from foldline.run.known import Known, Place, Scope, Trail, follow
from foldline.run.live import Live
from foldline.run.sent import Plain, Sent
from foldline.wire import chain, dialects
from foldline.wire.chain import Link
from foldline.wire.dialects import Dialect
from foldline.wire.faults import classify
from foldline.wire.reading import Decoded, parse
from foldline.wire.sse import Lines

if TYPE_CHECKING:
    from asyncio import Task

_REFUSED = 400


_under_way: "set[Task[None]]" = set()  # a loop alone does not keep them


class Said(NamedTuple):
    """An event of a client's history, and what it is known by; nothing, if it is no message."""

    link: Link
    event: Event


class Behind(NamedTuple):
    """A message that a log has behind its last request."""

    link: Link
    seq: int


@dataclass(slots=True)
class Talk:
    """One conversation: its log, and what its client's history must go on with."""

    live: Live
    scope: Scope
    trail: Trail
    """The client's history as it was last asked."""
    place: int = -1
    """Where in the log its last message is."""
    behind: list[Behind] = field(default_factory=list[Behind])
    """The messages that the log has behind it: the answer, once it is there."""
    led: Instructed | None = None
    """The instructions that the client's last history began with; None: whatever holds."""
    plain: Plain | None = field(default_factory=Plain)
    """None, once it went out otherwise than it came."""
    beginning: bytes = b""
    """What the bytes of its messages are known by, as they were last asked."""
    fixed: tuple[bytes, ...] = ()
    own: frozenset[str] = frozenset()
    """The fields of the client's body that are no parameters."""
    busy: bool = False
    """Whether a call is under way."""
    noted: int = -1_000_000
    """How many messages its history had when every process was last told of it."""

    @property
    def key(self) -> tuple[Scope, bytes, tuple[bytes, ...]]:
        """What its next request is known by: whose it is, and the bytes that it begins with."""
        return self.scope, self.beginning, self.fixed

    def goes_on(self, links: Sequence[Link]) -> bool:
        """Whether a history that has come as far as this one goes on as the log does."""
        mine = [one.link for one in self.behind]
        return chain.known(mine, [*links]) == len(mine)

    def entering(self, model: str, said: Sequence[Said], known: int) -> list[Event]:
        """What is new to the log: another model, other instructions, messages behind the known."""
        found = self.live.beginning(model)
        led, now = leading(said), self.newest_instructions
        if led not in (self.led, now):
            found.append(msgspec.structs.replace(led, replaces=True))
            now = led
        self.led, past = led, 0
        for link, event in behind_leading(said):
            past += bool(link)
            if past < known or (link and past == known):
                continue
            if link or event != now:
                found.append(event)
                now = event if isinstance(event, Instructed) else now
        return found

    def shows_only(self, said: Sequence[Said]) -> bool:
        """Whether all instructions and answers that the log would show are stated in a request.

        Who said the same may have been answered with other thoughts, or under other instructions.
        """
        view, led = self.live.view, leading(said)
        told = {part for _, event in said if isinstance(event, Instructed) for part in event.parts}
        same = view.newest.tools == led.tools and told.issuperset(view.instructions.parts)
        if not same and led in (self.led, self.newest_instructions):  # else they are replaced
            return False
        answers: set[str] = set()
        for _, event in said:
            answers |= chain.strings_of(event) if isinstance(event, ModelSaid) else set()
        for item in (*view.items, *view.waiting):
            match view.held.get(item.seq):
                case Instructed(parts) if item.role == "system" and not told.issuperset(parts):
                    return False
                case ModelSaid() as event if item.role == "model":
                    if not answers.issuperset(chain.strings_of(event)):
                        return False
                case _:
                    pass
        return True

    def has_heard(self, said: Sequence[Said], known: int) -> bool:
        """Whether the log has every instruction that a request states among the known messages.

        Behind a fold nobody can tell: older ones are in it.
        """
        view, past = self.live.view, 0
        if spines.edits(view.spine):
            return True
        held = {
            part for one in view.held.values() if isinstance(one, Instructed) for part in one.parts
        }
        for link, event in behind_leading(said):
            past += bool(link)
            if past >= known:
                break
            if isinstance(event, Instructed) and not held.issuperset(event.parts):
                return False
        return True

    @property
    def newest_instructions(self) -> Instructed:
        """The newest instructions of the log, however they came in."""
        return msgspec.structs.replace(self.live.view.newest, replaces=False)

    def newest(self) -> int:
        """Where the newest message of the log is."""
        held = self.live.view.held
        places = range(self.live.view.head, -1, -1)
        messages = (UserSaid, ModelSaid, ToolReturned)
        return next((at for at in places if isinstance(held.get(at), messages)), -1)


def leading(said: Sequence[Said]) -> Instructed:
    """The instructions that a history begins with."""
    first = said[0].event if said else None
    return first if isinstance(first, Instructed) else Instructed()


def behind_leading(said: Sequence[Said]) -> Sequence[Said]:
    """A history without the instructions that it begins with."""
    return said[1:] if said and isinstance(said[0].event, Instructed) else said


Fork: TypeAlias = Callable[[Talk, int], Awaitable[None]]
"""Have a conversation go on in a log of its own, which begins as its log was at a place."""


class Exchange:
    """One call: what to send, and what comes back."""

    body: bytes
    """What to send."""
    report: Report | None = None
    """Where the window goes."""

    def __init__(  # noqa: PLR0913 - whose call, in whose words
        self,
        talk: Talk,
        known: Known,
        *,
        fork: Fork,
        drop: Callable[[Talk], None],
        dialect: Dialect,
        given: Decoded,
        sent: Sent,
    ) -> None:
        self._talk, self._known, self._fork, self._drop = talk, known, fork, drop
        self._dialect = dialect
        self._parameters = {"model": given.model, **given.parameters}
        self._bound, self._sent = bounds.stated(dialect, given.parameters), sent
        self._streams = bytes(given.parameters.get("stream", b"")) == b"true"
        self._tried = self._over = self._late = False
        self._taken = 0
        self._beside: Task[None] | None = None
        self.begin(0)

    @property
    def session(self) -> str:
        """The session's name."""
        return self._talk.live.name.session

    @property
    def relayed(self) -> bool:
        """Whether the body is the client's own, byte for byte."""
        return self.body is self._sent.body

    @property
    def complete(self) -> bool:
        """Whether all of a streamed answer was heard, though its bytes may go on."""
        return self._streams and self._assembly.done

    @property
    def edits(self) -> int:
        """How many edits stand in what is sent."""
        return len(spines.edits(self._talk.live.view.spine))

    async def plan(self, facts: Facts, entering: Sequence[Event] = ()) -> bytes:
        """Say what to send under some facts, and record it with what came in before."""
        live = self._talk.live
        parameters = bounds.within(self._parameters, self._bound, reserve=facts.limits.reserve)
        plain = self._talk.plain if parameters == self._parameters else None
        self.body = await asking.ask(
            live,
            parameters,
            dialect=self._dialect,
            facts=facts,
            entering=entering,
            relay=plain.relaying(self._dialect, self._sent) if plain else None,
        )
        if plain is None or not plain.went(self._sent):
            self._talk.plain = None
        self.report, self._saw, self._asked = live.report, live.view.shown, live.view.asked
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
                self.opened, self._late = True, self._over
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
        talk = self._talk
        if self._over:  # the talk may be busy with the next by now
            await self._take_late()
            return
        self._over = True
        try:
            if events := self._answer():
                async with talk.live.lock:
                    await self._take(events)
                    self._note(events[0])
                self._taken = len(events)
            if self._beside is not None:
                await self._beside
        except BaseException:
            self._drop(talk)  # what became of it is in the log
            raise
        finally:
            talk.busy = False

    async def _take_late(self) -> None:
        """What came behind an answer that was taken in when it was complete: a stream's usage."""
        if not (self._taken and self._late):
            return
        self._late = False
        if late := self._answer()[self._taken :]:
            self._taken += len(late)
            async with self._talk.live.lock:
                with suppress(Conflict):  # another process has the log: its own reports will do
                    await self._talk.live.take(*late)

    def beside(self, noting: Coroutine[None, None, None], length: int) -> None:
        """Do what need not be done before the answer is asked for, only before it is over."""
        from asyncio import create_task  # noqa: PLC0415 - half of the time of an import

        async def told() -> None:
            with suppress(FoldlineError):  # the next request tells it again
                await noting
                self._talk.noted = length

        self._beside = task = create_task(told())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)

    def leave(self) -> None:
        """Nothing came back."""
        if not self._over:
            self._over = True
            self._talk.busy = False

    async def _take(self, events: Sequence[Event]) -> None:
        """Into the log; where another process went on with it meanwhile, into one of its own."""
        talk = self._talk
        try:
            await talk.live.take(*events)
        except Conflict:
            await self._fork(talk, self._asked)
            await talk.live.take(*events)
            place = Place(talk.live.name.session, talk.place)
            await self._known.note(talk.scope.tenant, talk.trail.digest, place)

    def _note(self, event: Event) -> None:
        """An answer is in the log: a history that has it goes on behind it."""
        link = chain.link(event)
        if not link:
            return
        talk = self._talk
        seq = talk.newest()
        talk.behind.append(Behind(link, seq))
        for digest in follow(talk.trail.digest, link[:1]):
            self._known.noted(talk.scope.tenant, digest, Place(talk.live.name.session, seq))

    def _answer(self) -> list[Event]:
        """What was answered; nothing where it cannot be read: the client will say it again."""
        if self._failed or self._unreadable:
            return []
        try:
            if self._streams and not self._assembly.done:
                for sent in self._lines.close():
                    self._assembly.take(sent.data, whole=False)
            body = self._assembly.body() if self._streams else parse(b"".join(self.held))
            events = dialects.events(body, own=self._dialect, saw=self._saw, asked=self._asked)
        except WireError:
            return []
        empty = isinstance(events[0], ModelSaid) and not events[0].parts
        return events[1:] if empty and self._streams and not self._assembly.done else events

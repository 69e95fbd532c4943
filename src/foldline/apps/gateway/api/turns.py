"""A message, and the agent's work on it: the HTTP call site of the one loop (A-47).

    POST …/messages   into the log, then a turn: answered, or told moment by moment as it happens
    POST …/events     into the log, and nobody is asked
    GET  …/events     the log itself, from a place on: what a stream that broke is resumed by

Knows that a message goes into the log first, whoever is at work there: under its key it is there
once, and is answered once. Where a turn is under way it is queued, and whoever makes that turn goes
on with it (R-28, R-29). Refuses to know the loop: that is `foldline.agent.loop`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from time import monotonic
from typing import Any, TypeAlias

import msgspec

from foldline.agent import events as moments
from foldline.agent.host import keep_host
from foldline.agent.loop import Agent, Ended
from foldline.agent.unfinished import BROKEN, answers, told_to_go_on
from foldline.apps.gateway.api.calls import ApiAnswer, ApiCall, Reply, Stream, event
from foldline.apps.gateway.api.errors import Stopped, told
from foldline.apps.gateway.api.pool import OpenSession, Pool
from foldline.apps.gateway.api.schemas import (
    Added,
    Answered,
    Entry,
    Events,
    Happened,
    Message,
    Said,
    Stretch,
    Usage,
)
from foldline.apps.gateway.api.schemas import Call as Asked
from foldline.core import log
from foldline.core.log import ModelSaid, UsageReported, UserSaid
from foldline.core.parts import calls_of, retold, text_of
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.errors import BadInput, Busy, FoldlineError
from foldline.models.port import Model
from foldline.session.host import agree_to_host, host_of, must_be_asked_at, recorded_host
from foldline.session.session import AsyncSession

Tell: TypeAlias = Callable[[bytes], None]
_LOOK = 0.25  # seconds between two looks at a log that another process may write
_SHOWN = 2_000  # characters of a result that a moment tells
_LONGEST_KEY = 200


async def message(call: ApiCall) -> Reply:
    """Take in a message, and let the agent answer it."""
    body: Message = call.body
    async with call.seen() as kept:
        view = kept.session.live.view
        model = call.pool.place.model_of(view.model, call.tenant)  # before anything is written
        must_be_asked_at(call.name.session, view.settings, host_of(model))
        at = await _added(kept.session, body, _key(call, body))
        told: asyncio.Queue[bytes | None] = asyncio.Queue()
        streams = body.stream or call.streams
        turn = _ApiTurn(call.pool, kept, model, at=at, tell=told.put_nowait if streams else None)
        work = call.pool.spawn(turn.answered(wait=body.wait), call.name, kept)
        work.add_done_callback(lambda _: told.put_nowait(None))
        goes_on = (body.on_disconnect or view.settings.get("on_disconnect")) == "continue"
    if streams:
        return Stream(_told(work, told), None if goes_on else lambda: _stopped(work))
    return await _whole(call, work, goes_on=goes_on)


async def _whole(call: ApiCall, work: "asyncio.Task[Answered]", *, goes_on: bool) -> Reply:
    """The answer when it is there; a client that has gone meanwhile gets none."""
    try:
        answer = await call.unless_gone(work)
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
        raise Stopped from None
    finally:
        if not goes_on:
            await _stopped(work)
    if answer.ended == "queued":
        return ApiAnswer(msgspec.json.encode(answer), status=202)
    return answer


async def _told(
    work: "asyncio.Task[Answered]", moments: "asyncio.Queue[bytes | None]"
) -> AsyncGenerator[bytes]:
    """What happens in a turn, and how it ended."""
    while (one := await moments.get()) is not None:
        yield one
    yield _end(work)


def _end(work: "asyncio.Task[Answered]") -> bytes:
    """What is told of a turn that did not end as it should."""
    if work.cancelled():
        return event("error", told(Stopped()).body)
    fault = work.exception()
    return b"" if fault is None else event("error", told(fault).body)


async def _stopped(work: "asyncio.Task[Answered]") -> None:
    """Stop a turn that nobody waits for: what happened in it is in the log."""
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


class _ApiTurn:
    """One message of a client, and the work on it."""

    def __init__(
        self, pool: Pool, kept: OpenSession, model: Model, *, at: int, tell: Tell | None
    ) -> None:
        self.pool, self.kept, self.session = pool, kept, kept.session
        self.model, self.at, self.tell = model, at, tell

    async def answered(self, *, wait: bool) -> Answered:
        """Let the agent answer, unless that was done before or somebody is at work."""
        self._say("accepted", {"at": self.at}, self.at)
        found = await self._found(wait=wait)
        self._say("ended", found, self.session.live.view.head)
        return found

    async def _found(self, *, wait: bool) -> Answered:
        if found := await self._before():
            return found
        try:
            async with self.pool.changing(self.kept, wait=wait):
                found = await self._before() or await self._turn()
        except Busy:
            return self._now("queued", "a turn is under way; it goes on with this message")
        # Only after the session is free again: whoever was refused it had their message in the log
        # before, so that it is seen here.
        if _waits(self.session.live.view):
            self.pool.spawn(self._rest(), self.session.live.name, self.kept)
        return found

    async def _turn(self) -> Answered:
        view = self.session.live.view
        begun = view.head
        if view.open and not _waits(view):
            return self._now("calls", "other calls wait for their results")
        last = next(reversed((*view.items, *view.waiting)), None)
        if last is None or last.role == "model":
            said = None if last is None else view.held.get(last.seq)
            if not isinstance(said, ModelSaid) or said.stop not in BROKEN:
                raise BadInput("nothing stands unanswered; post a text or a message")
            await told_to_go_on(self.session)
        host = host_of(self.model)
        if host is not None and recorded_host(view.settings) is None:
            await agree_to_host(self.pool.place.store, self.session.live.name, host)
        ended = await self._agent().go_on()
        return self._after(ended, begun)

    async def _rest(self) -> None:
        """Go on with messages that came in during a turn."""
        self.tell = None
        try:
            while _waits(self.session.live.view):
                async with self.pool.changing(self.kept):
                    if _waits(self.session.live.view):
                        await self._agent().go_on()
        except FoldlineError:
            return  # they stand in the log: the next message goes on with them

    def _agent(self) -> Agent:
        """The session's agent, which listens to its folds for as long as the session is open."""
        place, kept = self.pool.place, self.kept
        if kept.agent is None:
            kept.agent = Agent(
                self.session,
                self.model,
                hooks=[kept.moment],
                lent=True,
                rounds=place.rounds,
                patience=place.patience,
            )
            kept.agent.hooks.append(keep_host(kept.agent))
        kept.agent.model, kept.listener = self.model, self._moment
        kept.agent.tools = {one.name: one for one in place.tools_of(self.session)}
        return kept.agent

    async def _before(self) -> Answered | None:
        """The answer that this message has already, from this or another process."""
        async for seq, found in answers(self.session, self.at):
            calls = calls_of(found.parts)
            if not calls:
                return self._now("answered", text_of(found.parts), answer=seq)
            if all(one.id in self.session.live.view.open for one in calls):
                return self._now("calls", text_of(found.parts), answer=seq)
        return None

    def _after(self, ended: Ended, begun: int) -> Answered:
        new = [(seq, one) for seq, one in self.session.live.view.held.items() if seq > begun]
        said = [seq for seq, one in new if isinstance(one, ModelSaid)]
        used = [one for _, one in new if isinstance(one, UsageReported)]
        answer = self._now(ended.how, ended.words, answer=max(said, default=None))
        edits = [seq for seq in self.session.edits if seq > begun]
        usage = msgspec.convert(used[-1], Usage, from_attributes=True) if used else None
        return msgspec.structs.replace(answer, usage=usage, edits=edits)

    def _now(self, how: Any, words: str, *, answer: int | None = None) -> Answered:
        report = self.session.report
        return Answered(
            ended=how,
            words=words,
            at=self.at,
            answer=answer,
            calls=_open(self.session) if how == "calls" else [],
            tokens=report.total,
            window=report.window,
        )

    def _say(self, kind: str, what: Any, at: int | None = None) -> None:
        if self.tell is not None:
            self.tell(event(kind, what, at))

    def _moment(self, moment: moments.Moment) -> None:
        """Tell a moment to who listens; those that are in the log have its place."""
        head = self.session.live.view.head
        match moment:
            case moments.Speaking(words):
                self._say("speaking", {"words": words})
            case moments.Answered(_, calls, seconds):
                named = [{"id": one.id, "name": one.name} for one in calls]
                self._say("answered", {"calls": named, "seconds": seconds}, head)
            case moments.Calling(call):
                told = {"id": call.id, "name": call.name, "arguments": call.arguments}
                self._say("calling", told)
            case moments.Called(call, result, seconds):
                told = {"id": call.id, "ok": result.ok, "seconds": seconds}
                self._say("called", {**told, "words": retold(result.parts)[:_SHOWN]}, head)
            case moments.Passed(one) if one.kind == "fold":
                told = {"outcome": one.outcome, "trigger": one.trigger}
                self._say("folded", {**told, "before": one.before, "after": one.after}, head)
            case _:
                pass


def _waits(view: View) -> bool:
    """Whether a message stands that no model was shown yet."""
    said = (seq for seq, one in view.held.items() if _speaks(one))
    return any(seq > view.shown for seq in said)


def _speaks(one: log.Event) -> bool:
    return isinstance(one, UserSaid) and one.speaker != "notice"


def _open(session: AsyncSession) -> list[Asked]:
    """The calls that wait for a result, under the ids that the model is shown."""
    view = session.live.view
    said = (call for item in view.items if item.role == "model" for call in calls_of(item.parts))
    waiting = [call for call in said if call.id in view.open]
    return [Asked(id=one.id, name=one.name, arguments=one.arguments) for one in waiting]


def _key(call: ApiCall, body: Said) -> str:
    """The key of a message: as the client says, or one that nobody else has."""
    header = call.headers.get("idempotency-key")
    if header is not None and (not 0 < len(header) <= _LONGEST_KEY or "\0" in header):
        raise BadInput(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    if header and body.once and header != body.once:
        raise BadInput("`once` and Idempotency-Key are two keys; send one of them")
    key = body.once or header
    if key and "\0" in key:
        raise BadInput("a key with a NUL character; leave it out")
    return f"api:{key}" if key else f"new:{os.urandom(12).hex()}"


async def _added(session: AsyncSession, body: Said, key: str) -> int:
    """Take in what a client says, beside whoever is at work; the place where it ends."""
    given = [one for one in (body.text, body.message, getattr(body, "messages", None)) if one]
    if len(given) > 1:
        raise BadInput("say it once: as `text`, as `message` or as `messages`")
    if not given:
        return session.live.view.head
    return await session.add(given[0], speaker=body.speaker, author=body.author, once=key)


async def add(call: ApiCall) -> Reply:
    """Take in what happened, and ask nobody."""
    body: Happened = call.body
    async with call.seen() as kept:
        if not (body.text or body.message or body.messages):
            raise BadInput("nothing to add; send `text`, `message` or `messages`")
        at = await _added(kept.session, body, _key(call, body))
        return Added(at=at, calls=[one.id for one in _open(kept.session)])


async def events(call: ApiCall) -> Reply:
    """A stretch of the log; as server-sent events for as long as the client wants to follow."""
    query: Stretch = call.query
    header = call.headers.get("last-event-id", "")
    after = query.after
    if after is None:
        if header and not header.isdecimal():
            raise BadInput(f"a Last-Event-ID of {header[:80]!r}; send the place of an event")
        after = int(header[:15] or -1) if header else -1
    async with call.seen():
        pass  # else an error would come behind a 200
    if call.streams:
        return Stream(_follow(call, after, query))
    reading = asyncio.ensure_future(_some(call, after, query))
    try:
        return await call.unless_gone(reading)
    finally:
        reading.cancel()


async def _some(call: ApiCall, after: int, query: Stretch) -> Events:
    """Events behind a place, as soon as there are any; none if there are none in time."""
    until = monotonic() + query.follow
    while True:
        found = await _stretch(call, after, query.limit)
        if found.events or monotonic() >= until:
            return found
        await asyncio.sleep(_LOOK)


async def _stretch(call: ApiCall, after: int, limit: int) -> Events:
    async with call.seen() as kept:
        live = kept.session.live
        head = live.view.head
        read = await live.events(Range(after + 1, min(after + limit, head))) if after < head else []
        found = [Entry(seq=s, event=msgspec.json.decode(log.encode(one))) for s, one in read]
        return Events(events=found, after=found[-1].seq if found else after, end=head)


async def _follow(call: ApiCall, after: int, query: Stretch) -> AsyncGenerator[bytes]:
    """The log's events, each under its place, until it ends and nobody wants to wait longer."""
    until = monotonic() + query.follow
    while True:
        try:
            found = await _stretch(call, after, query.limit)
        except FoldlineError as fault:  # erased meanwhile
            yield event("error", told(fault).body)
            return
        for one in found.events:
            yield event(one.event["kind"], one.event, one.seq)
        after = found.after
        if after >= found.end:
            if monotonic() >= until:
                return
            await asyncio.sleep(_LOOK)

"""A session: one conversation, kept, planned and sent.

Orders calls and nothing else: the wire reads and writes, the core decides, the store keeps. The
sync `Session` has the same verbs as `AsyncSession`, made by the portal.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast, overload

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.budget import learned, measure
from foldline.core.edits.fold import Loss
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    Pinned,
    Speaker,
    ToolReturned,
    Unpinned,
    UserSaid,
)
from foldline.core.parts import Text, sound
from foldline.core.plan import Blocked, Facts, lost, take_back
from foldline.core.request import Report, report
from foldline.core.spine import Range
from foldline.core.view import shape
from foldline.dialects import base
from foldline.errors import BadHandle, BadInput, Erased, NotAnEdit, Overflow
from foldline.session import answer_limit, planning
from foldline.session.arguments import (
    System,
    must_be_handle,
    must_be_names,
    must_be_places,
    must_be_speaker,
    must_be_text,
    must_be_tokens,
    must_not_be_own,
    read_system,
    read_tools,
)
from foldline.session.log_handle import Live, alone
from foldline.session.model_facts import known
from foldline.session.sdk_clients import AnthropicClient, OpenAIClient, find_create, must_not_stream
from foldline.session.sync import Face, verb, wait
from foldline.stores import event_log

if TYPE_CHECKING:
    from foldline.session.history import AsyncHistory, History

R = TypeVar("R")
_FOCUS = 2_000  # characters
Given: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | Event | object
"""What add() reads: text, a message dict, an SDK's response, an event, or a list of these."""


class AsyncSession:
    """A conversation that fits its model's window, for as long as it lasts: `foldline.aopen`.

    Also an async context manager, which closes it.
    """

    def __init__(self, live: Live) -> None:
        self.live = live

    @property
    def history(self) -> "AsyncHistory":
        """The past: turns, past requests, search, what is kept out of sight."""
        from foldline.session.history import AsyncHistory  # noqa: PLC0415 - few programs look back

        return AsyncHistory(self.live)

    @alone
    async def add(
        self, given: Given, *, speaker: Speaker = "human", author: str = "", once: str | None = None
    ) -> int:
        """Take in what happened: the user's words, the model's answer, a tool's result.

        Gives the place of the last of it; of a list all is taken in, or nothing. `speaker` and
        `author` say who spoke, where several do.
        With `once`, a key of the sender's, what is delivered twice is there once (R-81).
        """
        must_be_speaker(speaker)
        must_be_text(author=author)
        if once is not None:
            must_be_names(once=once)
        many = cast("Sequence[Given]", given) if isinstance(given, list | tuple) else (given,)
        said: list[Event] = []
        for one in many:
            said += [self._spoken(event, said, speaker, author) for event in self._read(one, said)]
        return await self.live.take(*said, once=once) if said else self.live.view.head

    @alone
    async def instruct(
        self,
        *,
        system: System | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Change the system's words or the tools from here on; what is not given stays.

        Words in several pieces are compared piece by piece: what is added behind them is told by
        itself, and not all of them again.
        """
        now = self.live.view.newest
        parts = now.parts if system is None else read_system(system)
        known = now.tools if tools is None else read_tools(tools)
        await self.live.instruct(Instructed(parts, known))

    @alone
    async def request(self, **parameters: Any) -> dict[str, Any]:
        """What to send now, as keyword arguments for the provider's SDK; recorded as sent.

        Edits that are due are made first. `parameters` go with it as they are: `temperature=0`.
        Room is made for an answer as long as `max_tokens=` says, up to half of the window; where it
        must be said and is not, it is the reserve, but 20,000 at most without `stream=True`.
        Raises `Overflow` where nothing makes it fit.
        """
        must_not_be_own(parameters)
        dialect = base.speaking(self.live.view.model)
        facts, sent = answer_limit.answerable(self.live.facts, dialect, parameters)
        return msgspec.json.decode(
            await planning.ask(self.live, sent, dialect=dialect, facts=facts)
        )

    @overload
    async def create(self, client: OpenAIClient[Awaitable[R]], **parameters: Any) -> R: ...
    @overload
    async def create(self, client: AnthropicClient[Awaitable[R]], **parameters: Any) -> R: ...
    async def create(self, client: Any, **parameters: Any) -> Any:
        """Ask an SDK's client what `request()` gives, and add its answer; gives the answer too.

        `client` is an `AsyncOpenAI` or an `AsyncAnthropic`, whichever the model is asked by. Not
        with `stream=True`: stream what `request()` gives, or use `foldline.wrap`.
        """
        must_not_stream(parameters)
        model = self.live.view.model
        ask = find_create(client, model=model, dialect=base.speaking(model))
        answer = ask(**await self.request(**parameters))
        if isawaitable(answer):
            answer = await answer
        await self.add(answer)
        return answer

    async def fold(self, *, focus: str = "", preview: bool = False) -> Loss | None:
        """Fold now what may be folded; gives what left the model's sight, None if nothing did.

        `focus` says what to keep above all. With `preview` nothing is folded, and what would be is
        told. Where the session has a summarizer, it is waited for.
        """
        must_be_text(focus=focus)
        told, focus = None, sound(focus)[:_FOCUS]
        if self.live.narrator is not None and not preview:
            told = await self.live.narrator.now(self.live, focus)
        return await self._fold(
            replace(self.live.facts, now=True, focus=focus, prepared=told), preview
        )

    @alone
    async def _fold(self, facts: Facts, preview: bool) -> Loss | None:  # noqa: FBT001
        left: Loss | None = None

        async def folding() -> Sequence[Event]:
            nonlocal left
            ready = await planning.plan(self.live, facts)
            left = lost(self.live.view, ready)
            return ready.events if left else ()

        if preview:
            await folding()
        else:
            await self.live.decide(folding)
        return left

    @alone
    async def undo(self, edit: int | None = None) -> int:
        """Take back an edit, or the newest one; gives the place to undo if you want it back."""
        must_be_places(edit=edit)
        if edit is None:
            if not self.edits:
                raise NotAnEdit("there is no edit to undo: the model sees everything as it came")
            edit = self.edits[-1]
        found = await self.live.events(Range(edit, edit))
        if not found or not isinstance(found[0].event, log.Edit):
            raise NotAnEdit(f"there is no edit at {edit}; those that stand: {self.edits or 'none'}")
        taken = found[0].event

        async def undoing() -> Sequence[Event]:
            undone = take_back(self.live.view, edit, taken, self.live.facts)
            if isinstance(undone, Blocked):
                raise Overflow(undone.parts, undone.limit)
            await self.live.must_hold(undone.spine)
            return [undone]

        await self.live.decide(undoing)
        return self.live.view.head

    @alone
    async def pin(self, place: int | str, *, on: bool = True) -> None:
        """Keep a message verbatim through every fold, or no longer; by its place or its handle."""
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        must_be_handle(place)
        seq = recall.place(place)
        found = await self.live.events(Range(seq, seq))
        message = found and isinstance(found[0].event, UserSaid | ModelSaid | ToolReturned)
        if on and not message:
            raise BadHandle(
                f"there is no message at {seq} to pin; this log ends at {self.live.view.head}"
            )
        await self.live.take(Pinned(seq) if on else Unpinned(seq))

    @alone
    async def switch(self, model: str, *, window: int | None = None) -> None:
        """Go on with another model; one that cannot hold what must stay changes nothing: R-14."""
        must_be_names(model=model)
        must_be_tokens(window=window)
        policy, limits = self.live.facts.policy, self.live.facts.limits
        facts = known(model, window=window, reserve=None, policy=policy)

        async def switching() -> Sequence[Event]:
            # Folded before the switch, in the counts of the model that has read it.
            smaller = learned(limits, facts.limits.window)
            ready = await planning.plan(self.live, replace(self.live.facts, limits=smaller))
            edits = any(isinstance(event, log.Edit) for event in ready.events)
            return [*(ready.events if edits else ()), ModelSwitched(model)]

        await self.live.decide(switching)
        self.live.facts = facts

    async def fork(self, to: str, *, at: int | None = None) -> Self:
        """A session of its own, named `to`, that begins as this one is, or was at a place."""
        must_be_names(to=to)
        must_be_places(at=at)
        live = self.live
        place = live.view.head if at is None else at
        await event_log.fork(live.store, live.name, to, at=place)
        child = await Live.open(live.store, live.name._replace(session=to), facts=live.facts)
        child.shared = True
        origin = f"{live.name.session}@{place}"
        await child.record(Opened(child.view.model, child.view.settings, origin=origin))
        return type(self)(child)

    async def recall(self, handle: str, *, most: int | None = None) -> str:
        """The original of anything in the log, by the handle that stands in its place.

        Whole, or as the text asks: `s.recall('recall("log:12", tail=40)')`; in pages of `most`
        tokens.
        """
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        must_be_handle(handle)
        must_be_tokens(most=most)
        asked = recall.parse(handle)
        found = await self.live.events(asked.span)
        if not found:
            head = await self.live.store.head(self.live.name)
            if head.trimmed and asked.hi < head.floor:
                raise Erased(handle, head.trimmed)
            raise recall.gone(asked.span, end=head.seq)
        return recall.show(found, asked, most=most)

    @alone
    async def close(self) -> None:
        """Let go of the store; the log stays."""
        await self.live.close()

    @property
    def report(self) -> Report:
        """Where the window goes: of the last request, or of what would be sent now."""
        return self.live.report or report(
            self.live.view, measure(self.live.view, self.live.facts.limits)
        )

    @property
    def edits(self) -> list[int]:
        """The edits that stand, oldest first."""
        return spines.edits(self.live.view.spine)

    @property
    def asked(self) -> int:
        """Where the newest request was recorded, or -1."""
        return self.live.view.asked

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        view = self.live.view
        return f"<session {self.live.name.session!r}, {view.head + 1} events>\n{shape(view)}"

    def _spoken(
        self, event: Event, before: Sequence[Event], speaker: Speaker, author: str
    ) -> Event:
        """An event by whom it is of; what a system message says is added to what holds."""
        if isinstance(event, UserSaid) and (speaker != "human" or author):
            # Its own JSON does not say so.
            return msgspec.structs.replace(event, speaker=speaker, author=author, native=None)
        if isinstance(event, Instructed):
            told = (one for one in reversed(before) if isinstance(one, Instructed))
            now = next(told, self.live.view.newest)
            return Instructed((*now.parts, *event.parts), now.tools)
        return event

    def _read(self, given: Given, before: Sequence[Event]) -> list[Event]:
        # The first answer after a request is to that request; any other is taken as it stands.
        view = self.live.view
        awaited = view.awaited and not any(isinstance(one, ModelSaid) for one in before)
        saw = view.shown if awaited else None
        match given:
            case str():
                return [UserSaid((Text(sound(given)),))]
            case _ if isinstance(given, log.Event):
                return [given]
            case Mapping():
                body = cast("Mapping[str, Any]", given)
                own = base.speaking(view.model)
                return base.events(body, own=own, saw=saw, asked=view.asked)
            case _ if hasattr(given, "model_dump"):
                body = cast("Any", given).model_dump(mode="json", exclude_unset=True)
                return self._read(body, before)
            case _:
                raise BadInput(
                    f"add() cannot read a {type(given).__name__}; give it text, a message dict, "
                    "an SDK's response object, an event, or a list of these"
                )


class Session(Face[AsyncSession]):
    """A conversation that fits its model's window, for as long as it lasts: `foldline.open`.

    Also a context manager, which closes it. `repr(s)` shows what the model sees, a line an item.
    """

    @property
    def history(self) -> "History":
        """The past: turns, past requests, search, what is kept out of sight."""
        from foldline.session.history import History  # noqa: PLC0415 - few programs look back

        return History(self.aio.history)

    add = verb(AsyncSession.add)
    instruct = verb(AsyncSession.instruct)
    request = verb(AsyncSession.request)
    fold = verb(AsyncSession.fold)
    undo = verb(AsyncSession.undo)
    pin = verb(AsyncSession.pin)
    switch = verb(AsyncSession.switch)
    recall = verb(AsyncSession.recall)
    close = verb(AsyncSession.close)

    @overload
    def create(self, client: OpenAIClient[R], **parameters: Any) -> R: ...
    @overload
    def create(self, client: AnthropicClient[R], **parameters: Any) -> R: ...
    def create(self, client: Any, **parameters: Any) -> Any:
        """Ask an SDK's client what `request()` gives, and add its answer; gives the answer too.

        `client` is an `OpenAI` or an `Anthropic`, whichever the model is asked by. Not with
        `stream=True`: stream what `request()` gives, or use `foldline.wrap`.
        """
        must_not_stream(parameters)
        model = self.aio.live.view.model
        ask = find_create(client, model=model, dialect=base.speaking(model))
        answer = ask(**self.request(**parameters))
        if iscoroutine(answer):
            answer.close()
            raise BadInput(
                f"{type(client).__name__} has to be awaited; give a client without `Async`, or "
                "open the session by foldline.aopen()"
            )
        self.add(answer)
        return answer

    def fork(self, to: str, *, at: int | None = None) -> "Session":
        """A session of its own, named `to`, that begins as this one is, or was at a place."""
        return Session(wait(self.aio.fork(to, at=at)))

    @property
    def report(self) -> Report:
        """Where the window goes: of the last request, or of what would be sent now."""
        return self.aio.report

    @property
    def edits(self) -> list[int]:
        """The edits that stand, oldest first."""
        return self.aio.edits

    @property
    def asked(self) -> int:
        """Where the newest request was recorded, or -1."""
        return self.aio.asked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self.aio)

"""A session: one conversation, recorded, planned and sent.

It only orders the calls: dialects read and write, the core decides, the store keeps. The sync
`Session` has the same methods as `AsyncSession`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast, overload

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.budget import apply_learned_window, measure_budget
from foldline.core.edits.fold import Loss
from foldline.core.fold_selection import explain_folding
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    Pinned,
    Setting,
    SettingsChanged,
    Speaker,
    ToolReturned,
    Unpinned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Text, replace_surrogates
from foldline.core.plan import Blocked, Facts, lost, take_back
from foldline.core.request import Report, build_report
from foldline.core.spine import Range
from foldline.core.view import shape
from foldline.dialects import base
from foldline.errors import BadHandle, BadInput, Erased, NotAnEdit, Overflow
from foldline.session import model_facts, planning
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
    select_metadata,
)
from foldline.session.given_objects import (
    AnthropicClient,
    GoogleClient,
    ModelTurn,
    OpenAIClient,
    find_create,
    join_given,
    must_not_stream,
)
from foldline.session.log_handle import Live, run_locked
from foldline.session.log_lines import log_fork
from foldline.session.model_facts import build_facts
from foldline.session.sync import Face, make_sync, run_coroutine
from foldline.stores import event_log

if TYPE_CHECKING:
    from foldline.session.carry import Carried
    from foldline.session.history import AsyncHistory, History

R = TypeVar("R")
_FOCUS = 2_000  # characters
Given: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | Event | object
"""What add() takes: text, a message dict, an SDK's response, the events of its stream, a message of
LangChain, an event, or a list of these."""


class AsyncSession:
    """A conversation that fits its model's window, for as long as it lasts: `foldline.aopen`.

    Also an async context manager, which closes it.
    """

    def __init__(self, live: Live, *, carried: "Carried | None" = None) -> None:
        self.live = live
        self._carried = carried

    @property
    def history(self) -> "AsyncHistory":
        """The past: turns, past requests, search, excluded messages."""
        from foldline.session.history import AsyncHistory  # noqa: PLC0415 - few programs look back

        return AsyncHistory(self.live)

    @property
    def carried(self) -> "Carried | None":
        """What this opening carried on from an earlier session."""
        return self._carried

    @run_locked
    async def add(
        self, given: Given, *, speaker: Speaker = "human", author: str = "", once: str | None = None
    ) -> int:
        """Add what happened: the user's words, the model's answer, a tool's result.

        Returns the place of the last message that was added, as `pin` and `recall` take it; a list
        is added whole or not at all. `speaker` and `author` say who spoke. `once` is the sender's
        key: what is delivered twice with the same key is added once.
        """
        must_be_speaker(speaker)
        must_be_text(author=author)
        if once is not None:
            must_be_names(once=once)
        many = cast("Sequence[Given]", given) if isinstance(given, list | tuple) else (given,)
        said: list[Event] = []
        for one in join_given(many):
            said += [
                self._set_speaker(event, said, speaker, author)
                for event in self._parse_given(one, said)
            ]
        return await self.live.receive_events(*said, once=once) if said else self.live.view.head

    @run_locked
    async def instruct(
        self, *, system: System | None = None, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Change the system prompt or the tools from here on; what is not given stays.

        Text blocks are compared one by one: a block added at the end is sent by itself, without
        repeating the others.
        """
        now = self.live.view.newest
        parts = now.parts if system is None else read_system(system)
        own = base.find_view_dialect(self.live.view)
        known = now.tools if tools is None else read_tools(tools, own=own)
        await self.live.record_instructions(Instructed(parts, known))

    @run_locked
    async def request(self, **parameters: Any) -> dict[str, Any]:
        """Return the next request as keyword arguments for the provider's SDK; record it as sent.

        Edits that are due are made first. `parameters` are passed on as they are: `temperature=0`.
        Room is kept for an answer of `max_tokens=`, up to half of the window; if the provider
        requires that and you leave it out, it is the reserve, but at most 20,000 without
        `stream=True`. Raises `Overflow` if nothing makes it fit.
        """
        must_not_be_own(parameters)
        dialect = base.find_view_dialect(self.live.view)
        facts, sent = model_facts.fit_answer_limit(self.live.facts, dialect, parameters)
        return msgspec.json.decode(
            await planning.plan_and_record_request(self.live, sent, dialect=dialect, facts=facts)
        )

    @overload
    async def create(self, client: OpenAIClient[Awaitable[R]], **parameters: Any) -> R: ...
    @overload
    async def create(self, client: AnthropicClient[Awaitable[R]], **parameters: Any) -> R: ...
    @overload
    async def create(self, client: GoogleClient[Awaitable[R]], **parameters: Any) -> R: ...
    async def create(self, client: Any, **parameters: Any) -> Any:
        """Send `request()` by an SDK's client, add the answer, and return it.

        `client` is an `AsyncOpenAI`, an `AsyncAnthropic` or the `aio` of a `genai.Client`, as the
        model needs it. A request that is refused as too long is sent once more by `heal`. Not with
        `stream=True`: stream what `request()` returns, or use `foldline.wrap`.
        """
        must_not_stream(parameters)
        view = self.live.view
        ask = find_create(client, model=view.model, dialect=base.find_view_dialect(view))

        async def send(request: dict[str, Any]) -> Any:
            answer = ask(**request)
            return await answer if isawaitable(answer) else answer

        first = await self.request(**parameters)
        try:
            answer = await send(first)
        except Exception as error:  # noqa: BLE001 - any but a refusal is raised again
            answer = await send(await self.heal(error, **parameters))
        await self.add(answer)
        return answer

    async def heal(self, error: Exception, **parameters: Any) -> dict[str, Any]:
        """Return a smaller request after the provider refused one as too long; `create` does this.

        Give the SDK's exception, and the parameters of `request()`. What the error states of the
        window is learned. Raises the error itself if it is about something else, and `Overflow` if
        nothing makes the request smaller.
        """
        from foldline.session import refusals  # noqa: PLC0415 - few requests are refused

        must_not_be_own(parameters)
        dialect = base.find_view_dialect(self.live.view)

        async def plan_smaller(facts: Facts) -> bytes:
            facts, sent = model_facts.fit_answer_limit(facts, dialect, parameters)
            return await planning.plan_and_record_request(
                self.live, sent, dialect=dialect, facts=facts
            )

        fault = refusals.classify_refusal(self.live, error)
        body = await refusals.heal_refusal(self.live, fault, plan_smaller)
        if body is None:
            raise error
        return msgspec.json.decode(body)

    async def fold(self, *, focus: str = "", preview: bool = False) -> Loss | None:
        """Fold now what can be folded; return what the model no longer sees, or None.

        `focus` says what to keep above all. With `preview` nothing is folded, and the result says
        what would be. If the session has a summarizer, its narrative is awaited: the result's
        `summary` is what now stands of it, `left_out` and `no_summary` say what does not and why.
        """
        must_be_text(focus=focus)
        narrative, focus = None, replace_surrogates(focus)[:_FOCUS]
        if self.live.narrator is not None and not preview:
            narrative = await self.live.narrator.fetch_narrative(self.live, focus)
        prepared = narrative if narrative is not None and narrative.lines else None
        found = await self._fold_now(
            replace(self.live.facts, now=True, focus=focus, prepared=prepared), preview
        )
        if found is None or narrative is None:
            return found
        answered = len(narrative.lines) + len(narrative.left_out)
        return replace(
            found, left_out=narrative.left_out, answered=answered, no_summary=narrative.reason
        )

    @run_locked
    async def _fold_now(self, facts: Facts, preview: bool) -> Loss | None:  # noqa: FBT001
        left: Loss | None = None

        async def decide_fold() -> Sequence[Event]:
            nonlocal left
            ready = await planning.plan_next_request(self.live, facts)
            left = lost(self.live.view, ready)
            return ready.events if left else ()

        if preview:
            await decide_fold()
            return left
        try:
            await self.live.append_decision(decide_fold)
        except Overflow as fault:
            self.live.passes.report_failed_fold(fault, self.live.view.model, "due")
            raise
        return left

    @run_locked
    async def undo(self, edit: int | None = None) -> int:
        """Undo an edit, or the newest one; return the place to undo if you want it back."""
        must_be_places(edit=edit)
        if edit is None:
            if not self.edits:
                raise NotAnEdit("there is no edit to undo: the model sees everything as it came")
            edit = self.edits[-1]
        found = await self.live.read_events(Range(edit, edit))
        if not found or not isinstance(found[0].event, log.Edit):
            raise NotAnEdit(f"there is no edit at {edit}; those that stand: {self.edits or 'none'}")
        taken = found[0].event

        async def decide_undo() -> Sequence[Event]:
            undone = take_back(self.live.view, edit, taken, self.live.facts)
            if isinstance(undone, Blocked):
                raise Overflow(undone.parts, undone.limit)
            await self.live.must_hold(undone.spine)
            return [undone]

        await self.live.append_decision(decide_undo)
        return self.live.view.head

    @run_locked
    async def pin(self, place: int | str, *, on: bool = True) -> None:
        """Keep a message verbatim in every fold, or no longer; by its place or handle."""
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        must_be_handle(place)
        seq = recall.parse_place(place)
        found = await self.live.read_events(Range(seq, seq))
        message = found and isinstance(found[0].event, UserSaid | ModelSaid | ToolReturned)
        if on and not message:
            raise BadHandle(
                f"there is no message at {seq} to pin; this log ends at {self.live.view.head}"
            )
        await self.live.receive_events(Pinned(seq) if on else Unpinned(seq))

    @run_locked
    async def switch(
        self, model: str, *, window: int | None = None, dialect: str | None = None
    ) -> None:
        """Continue with another model; changes nothing if it cannot hold what must stay.

        `dialect` is as in `open`; if it is left out, the session keeps its own where the model's
        vendor speaks it.
        """
        must_be_names(model=model)
        must_be_tokens(window=window)
        settings = self.live.view.settings
        if dialect is not None:
            settings = {**settings, "dialect": base.must_be_dialect(dialect)}
        policy, limits = self.live.facts.policy, self.live.facts.limits
        facts = build_facts(model, window=window, reserve=None, policy=policy)

        async def decide_switch() -> Sequence[Event]:
            # Fold before the switch, with the token counts of the model that has read it.
            smaller = apply_learned_window(limits, facts.limits.window)
            ready = await planning.plan_next_request(
                self.live, replace(self.live.facts, limits=smaller)
            )
            edits = any(isinstance(event, log.Edit) for event in ready.events)
            changed = [SettingsChanged(settings)] if settings != self.live.view.settings else []
            return [*(ready.events if edits else ()), *changed, ModelSwitched(model)]

        await self.live.append_decision(decide_switch)
        self.live.facts = facts

    async def fork(self, to: str, *, at: int | None = None) -> Self:
        """Create a session `to` that starts as this one is, or was at a place."""
        must_be_names(to=to)
        must_be_places(at=at)
        live = self.live
        place = live.view.head if at is None else at
        await event_log.fork_log(live.store, live.name, to, at=place)
        child = await Live.open(live.store, live.name._replace(session=to), facts=live.facts)
        child.shared = True
        origin = f"{live.name.session}@{place}"
        await child.record_events(Opened(child.view.model, child.view.settings, origin=origin))
        log_fork(live.name, to, place)
        return type(self)(child)

    @run_locked
    async def carry(
        self, session: str, *, parts: Sequence[str] | None = None, preview: bool = False
    ) -> "Carried":
        """Add the record of another session, as a notice; return it, with its size by part.

        `parts` are some of "summary", "pins", "files" and "facts"; all by default. With `preview`
        nothing is added. Raises `OtherHost` if that session is asked at another address.
        """
        from foldline.session import carry  # noqa: PLC0415 - few sessions carry on

        must_be_names(session=session)
        chosen = carry.read_parts(parts)
        if preview:
            return (await carry.prepare_carry(self.live, session, parts=chosen))[0]
        return await carry.carry_into(self.live, session, parts=chosen)

    async def recall(self, handle: str, *, most: int | None = None) -> str:
        """Return the original of anything in the log, by the handle that replaces it.

        All of it, or a part: `s.recall('recall("log:12", tail=40)')`; in pages of `most` tokens.
        """
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        must_be_handle(handle)
        must_be_tokens(most=most)
        query = recall.parse_query(handle)
        events = await self.live.read_events(query.span)
        if not events:
            head = await self.live.store.head(self.live.name)
            if head.trimmed and query.hi < head.floor:
                raise Erased(handle, head.trimmed)
            raise recall.make_missing_error(query.span, end=head.seq)
        return recall.render_recall(events, query, most=most)

    async def answer_recall(self, arguments: Mapping[str, Any] | str) -> str:
        """Answer a model's call of the tool `foldline.RECALL_TOOL`, with what fits in the window.

        `arguments` may be the JSON that the model wrote. What is wrong with the call is said in the
        answer, for the model.
        """
        from foldline.session import recall_tool  # noqa: PLC0415 - few sessions ask

        return await recall_tool.answer_recall(self, arguments)

    @run_locked
    async def record_usage(
        self,
        *,
        input: int | None = None,  # noqa: A002 - as the event has it
        output: int | None = None,
        cache_read: int | None = None,
        cache_write: int | None = None,
    ) -> None:
        """Record what the provider counted for the newest request; `input` is all of it.

        For answers that do not say it themselves: it corrects the estimates.
        """
        must_be_tokens(
            least=0, input=input, output=output, cache_read=cache_read, cache_write=cache_write
        )
        if self.asked < 0:
            raise BadInput("there is no request yet whose usage could be recorded")
        await self.live.receive_events(
            UsageReported(
                asked=self.asked,
                input=input,
                cache_read=cache_read,
                cache_write=cache_write,
                output=output,
            )
        )

    @run_locked
    async def close(self) -> None:
        """Close the store; the log stays."""
        await self.live.close()

    @property
    def report(self) -> Report:
        """How the window is used: by the last request, or by what would be sent now."""
        view, facts = self.live.view, self.live.facts
        found = self.live.report or build_report(view, measure_budget(view, facts.limits))
        return replace(found, rule=explain_folding(view, facts))

    @property
    def metadata(self) -> dict[str, Setting]:
        """The names and values that `open` was given for this session."""
        return select_metadata(self.live.view.settings)

    @property
    def edits(self) -> list[int]:
        """The edits in force, oldest first."""
        return spines.list_edits(self.live.view.spine)

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

    def _set_speaker(
        self, event: Event, before: Sequence[Event], speaker: Speaker, author: str
    ) -> Event:
        """Set the event's speaker. System messages extend the current instructions."""
        if isinstance(event, UserSaid) and (speaker != "human" or author):
            # The message's own JSON does not name the speaker, so it cannot be sent again.
            return msgspec.structs.replace(event, speaker=speaker, author=author, native=None)
        if isinstance(event, Instructed):
            earlier = (one for one in reversed(before) if isinstance(one, Instructed))
            now = next(earlier, self.live.view.newest)
            return Instructed((*now.parts, *event.parts), now.tools)
        return event

    def _parse_given(self, given: Given, before: Sequence[Event]) -> list[Event]:
        # The first answer after a request belongs to that request; any other to none.
        view = self.live.view
        awaited = view.awaited and not any(isinstance(one, ModelSaid) for one in before)
        saw = view.shown if awaited else None
        match given:
            case str():
                return [UserSaid((Text(replace_surrogates(given)),))]
            case _ if isinstance(given, log.Event):
                return [given]
            case ModelTurn(dialect, items):
                return dialect.parse_turn(items, saw)
            case Mapping():
                body = cast("Mapping[str, Any]", given)
                own = base.find_view_dialect(view)
                return base.parse_any_message(body, own=own, saw=saw, asked=view.asked)
            case _:
                raise BadInput(
                    f"add() cannot read a {type(given).__name__}; give it text, a message dict, "
                    "an SDK's response, all events of its stream, a message of LangChain, an "
                    "event, or a list of these"
                )


class Session(Face[AsyncSession]):
    """A conversation that fits its model's window, for as long as it lasts: `foldline.open`.

    Also a context manager, which closes it. `repr(s)` shows what the model sees, one line per item.
    """

    @property
    def history(self) -> "History":
        """The past: turns, past requests, search, excluded messages."""
        from foldline.session.history import History  # noqa: PLC0415 - few programs look back

        return History(self.aio.history)

    add = make_sync(AsyncSession.add)
    instruct = make_sync(AsyncSession.instruct)
    request = make_sync(AsyncSession.request)
    heal = make_sync(AsyncSession.heal)
    fold = make_sync(AsyncSession.fold)
    undo = make_sync(AsyncSession.undo)
    pin = make_sync(AsyncSession.pin)
    switch = make_sync(AsyncSession.switch)
    carry = make_sync(AsyncSession.carry)
    recall = make_sync(AsyncSession.recall)
    answer_recall = make_sync(AsyncSession.answer_recall)
    record_usage = make_sync(AsyncSession.record_usage)
    close = make_sync(AsyncSession.close)

    @overload
    def create(self, client: OpenAIClient[R], **parameters: Any) -> R: ...
    @overload
    def create(self, client: AnthropicClient[R], **parameters: Any) -> R: ...
    @overload
    def create(self, client: GoogleClient[R], **parameters: Any) -> R: ...
    def create(self, client: Any, **parameters: Any) -> Any:
        """Send `request()` by an SDK's client, add the answer, and return it.

        `client` is an `OpenAI`, an `Anthropic` or a `genai.Client`, as the model needs it. A
        request that is refused as too long is sent once more by `heal`. Not with `stream=True`:
        stream what `request()` returns, or use `foldline.wrap`.
        """
        must_not_stream(parameters)
        view = self.aio.live.view
        ask = find_create(client, model=view.model, dialect=base.find_view_dialect(view))
        first = self.request(**parameters)
        try:
            answer = ask(**first)
        except Exception as error:  # noqa: BLE001 - any but a refusal is raised again
            answer = ask(**self.heal(error, **parameters))
        if iscoroutine(answer):
            answer.close()
            raise BadInput(
                f"{type(client).__name__} has to be awaited; give a client without `Async`, or "
                "open the session by foldline.aopen()"
            )
        self.add(answer)
        return answer

    def fork(self, to: str, *, at: int | None = None) -> "Session":
        """Create a session `to` that starts as this one is, or was at a place."""
        return Session(run_coroutine(self.aio.fork(to, at=at)))

    @property
    def carried(self) -> "Carried | None":
        """What this opening carried on from an earlier session."""
        return self.aio.carried

    @property
    def report(self) -> Report:
        """How the window is used: by the last request, or by what would be sent now."""
        return self.aio.report

    @property
    def metadata(self) -> dict[str, Setting]:
        """The names and values that `open` was given for this session."""
        return self.aio.metadata

    @property
    def edits(self) -> list[int]:
        """The edits in force, oldest first."""
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

"""The agentic loop: ask, run what was called for, ask again, until the model has answered.

    agent = Agent(session, client("gpt-6.1-sol"), tools=[...], approve=ask_a_person)
    ended = await agent.turn("Make the parser tests pass.")

Read it as documentation for a loop of your own. Before every call of the model the session plans a
request that fits. Every result goes in by `session.add`, however large. What a user stops is in the
log as far as it came.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from time import perf_counter
from typing import Literal, NamedTuple, TypeAlias

from foldline.agent.events import (
    Answered,
    Asking,
    Called,
    Calling,
    Folding,
    Hook,
    Moment,
    Passed,
    Printing,
    Retrying,
    Speaking,
    Thinking,
)
from foldline.agent.tool import Arguments, Intent, Result, Tool, output_watcher, said
from foldline.core.edits.fold.ask import is_recall_name
from foldline.core.log import Event, Interrupted, ModelSaid, Speaker, ToolReturned
from foldline.core.parts import Call, calls_of
from foldline.core.spine import Range
from foldline.errors import FoldlineError
from foldline.models.port import AnswerListener, Model
from foldline.models.retries import PATIENT, Patience
from foldline.session.session import AsyncSession, Given
from foldline.session.turn import reply

BROKEN = ("cancelled", "cut")
"""Stop reasons of an unfinished answer."""
_PAGE = 200  # events read at a time
_GO_ON = "[The answer was stopped here. Go on with it.]"


async def iterate_answers(
    session: AsyncSession, place: int
) -> AsyncGenerator[tuple[int, ModelSaid]]:
    """Yield the finished answers of models that saw the message at a place, oldest first."""
    live = session.live
    for lo in range(place + 1, live.view.head + 1, _PAGE):
        for seq, event in await live.read_events(Range(lo, min(lo + _PAGE - 1, live.view.head))):
            if not isinstance(event, ModelSaid) or event.stop in BROKEN:
                continue
            if event.saw is None or event.saw >= place:
                yield seq, event


async def told_to_go_on(session: AsyncSession) -> None:
    """Add a notice after a cut answer: some providers refuse a request that ends in one."""
    await session.add(_GO_ON, speaker="notice")


Approve: TypeAlias = Callable[[Call, Intent], Awaitable[str | None]]
"""Asks the user about a call: None allows it, a text is the reason against, for the model."""
_STOPPED = "stopped by the user"


class Ended(NamedTuple):
    """How a turn ended; failures of the model or the store are raised instead."""

    how: Literal["answered", "calls", "rounds", "vetoed"]
    """`calls`: the client has tools to run; `rounds`: the limit of tool rounds was reached;
    `vetoed`: a hook forbade the call of the model."""
    words: str
    """The answer, or why there is none."""


class Agent:
    """A session, the model that answers in it, and the tools it may call.

    `approve` is asked before a tool that would change something; without it such calls are
    refused. `hooks` see every moment. `patience` is how long to wait for the model.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each thing that an agent has
        self,
        session: AsyncSession,
        model: Model,
        *,
        tools: Sequence[Tool] = (),
        approve: Approve | None = None,
        hooks: Sequence[Hook] = (),
        instructions: Callable[[], Sequence[str]] | None = None,
        lent: bool = False,
        rounds: int = 25,
        patience: Patience = PATIENT,
    ) -> None:
        self.session, self.model = session, model
        self.tools = {tool.name: tool for tool in tools}
        self.approve = approve
        self.hooks: list[Hook] = [*hooks]
        self.instructions = instructions
        """Returns the system texts; called before every call of the model."""
        self.lent = lent
        """Whether the session keeps the client's tools, and calls of them end the turn: the client
        runs them, adds their results, and calls `go_on`."""
        self.rounds = rounds
        """How often tools may be run in one turn: `session.max_tool_iterations`."""
        self.patience = patience
        self._wanted: list[Event] = []  # events from hooks, not yet added
        self._begun: set[str] = set()  # ids of calls that were started in this round
        if any(map(is_recall_name, self.tools)):  # it comes with the first call of the model
            session.live.facts = replace(session.live.facts, recall=True)
        passes = session.live.passes
        passes.vetoes.append(lambda fold: self._notify_hooks(Folding(fold)))
        passes.watchers.append(lambda one: self._notify_hooks(Passed(one)))

    async def turn(
        self, given: Given, *, speaker: Speaker = "human", author: str = "", once: str | None = None
    ) -> Ended:
        """Add a message, and let the agent work until it has answered."""
        await self.session.add(given, speaker=speaker, author=author, once=once)
        return await self.go_on()

    async def go_on(self) -> Ended:
        """Let the agent answer what is still unanswered."""
        for done in range(self.rounds):
            if why := self._notify_hooks(Asking(done + 1)):
                return Ended("vetoed", why)
            words, calls = await self._ask_model()
            if not calls:
                return Ended("answered", words)
            ours = [call for call in calls if not self._is_client_call(call)]
            await self._run_calls(ours)
            if len(ours) < len(calls):
                return Ended("calls", words)
        return Ended(
            "rounds", f"tools were run {self.rounds} times in this turn; say something to go on"
        )

    async def _ask_model(self) -> tuple[str, tuple[Call, ...]]:
        """Call the model once; returns its text and its tool calls."""
        while self._wanted:
            await self.session.add(self._wanted[0])
            del self._wanted[0]
        tools = None if self.lent else [tool.offered for tool in self.tools.values()]
        system = [*self.instructions()] if self.instructions else None
        await self.session.instruct(system=system, tools=tools)
        heard: list[str] = []

        def handle_piece(piece: str) -> None:
            heard.append(piece)
            self._notify_hooks(Speaking(piece))

        heard_by_hooks = AnswerListener(
            handle_piece,
            lambda piece: self._notify_hooks(Thinking(piece)),
            lambda why, seconds: self._notify_hooks(Retrying(why, seconds)),
        )
        begun = perf_counter()
        answer = await reply(self.session, self.model, patience=self.patience, heard=heard_by_hooks)
        calls = self._list_open_calls()
        self._notify_hooks(Answered(answer, calls, perf_counter() - begun))
        return "".join(heard), calls

    def _is_client_call(self, call: Call) -> bool:
        offered = self.session.live.view.newest.tools if self.lent else ()
        return call.name not in self.tools and any(one.name == call.name for one in offered)

    def _list_open_calls(self) -> tuple[Call, ...]:
        """List the calls that wait for a result, with the ids that the model sees."""
        view = self.session.live.view
        last = next((item for item in reversed(view.items) if item.role == "model"), None)
        return tuple(c for c in calls_of(last.parts) if c.id in view.open) if last else ()

    async def _run_calls(self, calls: Sequence[Call]) -> None:
        """Run the calls: those that only look side by side, those that change things in order."""
        self._begun.clear()
        try:
            for batch in self._iterate_batches(calls):
                await _run_together([self._run_call(call) for call in batch])
        except asyncio.CancelledError:
            for call in self._list_open_calls():
                await self.session.add(_make_stopped_event(call, begun=call.id in self._begun))
            raise

    def _iterate_batches(self, calls: Sequence[Call]) -> Iterator[list[Call]]:
        def can_run_beside(call: Call) -> bool:
            return call.name not in self.tools or self.tools[call.name].beside

        for side, group in groupby(calls, key=can_run_beside):
            batch = [*group]
            yield from [batch] if side else ([call] for call in batch)

    async def _run_call(self, call: Call) -> None:
        """Run one call, and record its result before anything else happens."""
        begun = perf_counter()
        result = await self._call_tool(call)
        await self.session.add(ToolReturned(call.id, result.parts, ok=result.ok))
        self._notify_hooks(Called(call, result, perf_counter() - begun))

    async def _call_tool(self, call: Call) -> Result:
        """Return a call's result; every error is a result for the model, not raised."""
        tool = self.tools.get(call.name)
        if tool is None:
            return said(
                f"there is no tool {call.name!r}; there are {', '.join(self.tools)}", ok=False
            )
        try:
            arguments = _parse_arguments(call)
            intent = tool.intent(arguments)
            why = await self._ask_approval(call, intent) if intent else None
            why = why or self._notify_hooks(Calling(call, tool, arguments, intent))
            if why:
                return said(f"not run: {why}", ok=False)
            self._begun.add(call.id)
            # Each call has a task or a row of awaits of its own, so this is seen by its tool only.
            output_watcher.set(lambda words: self._notify_hooks(Printing(call, words)))
            return await tool.run(arguments)
        except Exception as fault:  # noqa: BLE001 - a tool's failure is its result
            return said(f"{call.name} failed: {_describe_fault(fault)}", ok=False)

    async def _ask_approval(self, call: Call, intent: Intent) -> str | None:
        if self.approve is None:
            return "it changes something, and nobody is here to approve that"
        return await self.approve(call, intent)

    def _notify_hooks(self, moment: Moment) -> str | None:
        """Call the hooks; returns the first reason that one of them gives against it."""
        reasons: list[str] = []
        for hook in self.hooks:
            match hook(moment):
                case None:
                    pass
                case str(why):
                    reasons.append(why)
                case event:
                    self._wanted.append(event)
        return next((why for why in reasons if why), None)


def _parse_arguments(call: Call) -> Arguments:
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError as fault:
        raise ValueError(f"its arguments are no JSON: {fault}") from fault
    if not isinstance(given, dict):
        raise TypeError("its arguments are no JSON object")
    return given  # pyright: ignore[reportUnknownVariableType]


def _describe_fault(fault: Exception) -> str:
    ours = isinstance(fault, FoldlineError | ValueError | TypeError | OSError)
    return str(fault) if ours and str(fault) else f"{type(fault).__name__} {fault}".rstrip()


def _make_stopped_event(call: Call, *, begun: bool) -> Event:
    if begun:
        return Interrupted(call.id, _STOPPED)
    return ToolReturned(call.id, said(f"not run: {_STOPPED}").parts, ok=False)


async def _run_together(works: Sequence[Awaitable[None]]) -> None:
    """Run all side by side; if one fails, cancel the rest."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""The agentic loop: ask, run what was called for, ask again, until the model has answered.

    agent = Agent(session, client("gpt-5"), tools=[...], approve=ask_a_person)
    ended = await agent.turn("Make the parser tests pass.")

Read it as documentation for a loop of your own. Before every call of the model the session plans a
request that fits (A-01, R-03); every result goes in by `session.add`, however large (R-57); what a
person stops is in the log as far as it came (R-22, R-53). Refuses to know who listens (`events`),
and what tools do.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
    Speaking,
)
from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.core.log import Event, Interrupted, Speaker, ToolReturned
from foldline.core.parts import Call, calls_of
from foldline.errors import FoldlineError
from foldline.models.port import Model
from foldline.models.retries import PATIENT, Patience
from foldline.session.session import AsyncSession, Given
from foldline.session.turn import reply

Approve: TypeAlias = Callable[[Call, Intent], Awaitable[str | None]]
"""Ask a person: None agrees, a text is why not, for the model to read."""
_STOPPED = "stopped by the user"


class Ended(NamedTuple):
    """How a turn ended; what went wrong with the model or the store is raised instead."""

    how: Literal["answered", "calls", "rounds", "vetoed"]
    """answered; calls: the client has tools to run; rounds: tools were run often enough; vetoed."""
    words: str
    """The answer, or what keeps it from coming."""


class Agent:
    """A session that works: a model that is asked, and tools that it may call.

    `approve` is asked before a tool that says what it would change; without it such calls are
    refused. `hooks` are told everything. `patience` is how long the model is waited for.
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
        """The system's words, part by part; looked at before every call of the model: R-60."""
        self.lent = lent
        """Whether the session's own tools stay as they are, and calls of those that are not ours
        end the turn: whoever asked runs them, adds their results, and lets the agent go on."""
        self.rounds = rounds
        """How often in one turn tools may be run: `session.max_tool_iterations` (A-08)."""
        self.patience = patience
        self._wanted: list[Event] = []  # by hooks
        self._begun: set[str] = set()  # calls of this round
        passes = session.live.passes
        passes.vetoes.append(lambda fold: self._tell(Folding(fold)))
        passes.watchers.append(lambda one: self._tell(Passed(one)))

    async def turn(
        self, given: Given, *, speaker: Speaker = "human", author: str = "", once: str | None = None
    ) -> Ended:
        """Say something to the agent, and let it work until it has answered."""
        await self.session.add(given, speaker=speaker, author=author, once=once)
        return await self.go_on()

    async def go_on(self) -> Ended:
        """Let the agent answer what stands unanswered."""
        for done in range(self.rounds):
            if why := self._tell(Asking(done + 1)):
                return Ended("vetoed", why)
            words, calls = await self._ask()
            if not calls:
                return Ended("answered", words)
            ours = [call for call in calls if not self._theirs(call)]
            await self._run(ours)
            if len(ours) < len(calls):
                return Ended("calls", words)
        return Ended(
            "rounds", f"tools were run {self.rounds} times in this turn; say something to go on"
        )

    async def _ask(self) -> tuple[str, tuple[Call, ...]]:
        """One call of the model: what it said, and what it calls for."""
        while self._wanted:
            await self.session.add(self._wanted[0])
            del self._wanted[0]
        tools = None if self.lent else [tool.offered for tool in self.tools.values()]
        system = [*self.instructions()] if self.instructions else None
        await self.session.instruct(system=system, tools=tools)
        heard: list[str] = []

        def hearing(piece: str) -> None:
            heard.append(piece)
            self._tell(Speaking(piece))

        begun = perf_counter()
        answer = await reply(self.session, self.model, patience=self.patience, heard=hearing)
        calls = self._open()
        self._tell(Answered(answer, calls, perf_counter() - begun))
        return "".join(heard), calls

    def _theirs(self, call: Call) -> bool:
        """Whether whoever asked runs this."""
        offered = self.session.live.view.newest.tools if self.lent else ()
        return call.name not in self.tools and any(one.name == call.name for one in offered)

    def _open(self) -> tuple[Call, ...]:
        """The calls that wait for a result, under the ids that the model is shown."""
        view = self.session.live.view
        last = next((item for item in reversed(view.items) if item.role == "model"), None)
        return tuple(c for c in calls_of(last.parts) if c.id in view.open) if last else ()

    async def _run(self, calls: Sequence[Call]) -> None:
        """Run what was called for: what only looks side by side, what changes things in order."""
        self._begun.clear()
        try:
            for batch in self._batches(calls):
                await _together([self._result(call) for call in batch])
        except asyncio.CancelledError:
            for call in self._open():
                await self.session.add(_unfinished(call, begun=call.id in self._begun))
            raise

    def _batches(self, calls: Sequence[Call]) -> Iterator[list[Call]]:
        def beside(call: Call) -> bool:
            return call.name not in self.tools or self.tools[call.name].beside

        for side, group in groupby(calls, key=beside):
            some = [*group]
            yield from [some] if side else ([call] for call in some)

    async def _result(self, call: Call) -> None:
        """Run one call, and take in its result before anything else is done."""
        begun = perf_counter()
        result = await self._called(call)
        await self.session.add(ToolReturned(call.id, result.parts, ok=result.ok))
        self._tell(Called(call, result, perf_counter() - begun))

    async def _called(self, call: Call) -> Result:
        """What a call came to; whatever is wrong with it is told to the model, not raised."""
        tool = self.tools.get(call.name)
        if tool is None:
            return said(
                f"there is no tool {call.name!r}; there are {', '.join(self.tools)}", ok=False
            )
        try:
            arguments = _arguments(call)
            intent = tool.intent(arguments)
            why = await self._asked(call, intent) if intent else None
            why = why or self._tell(Calling(call, tool, arguments, intent))
            if why:
                return said(f"not run: {why}", ok=False)
            self._begun.add(call.id)
            return await tool.run(arguments)
        except Exception as fault:  # noqa: BLE001 - a tool's failure is its result
            return said(f"{call.name} failed: {_told(fault)}", ok=False)

    async def _asked(self, call: Call, intent: Intent) -> str | None:
        if self.approve is None:
            return "it changes something, and nobody is here to approve that"
        return await self.approve(call, intent)

    def _tell(self, moment: Moment) -> str | None:
        """Tell the hooks; the first reason that one of them gives against it."""
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


def _arguments(call: Call) -> Arguments:
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError as fault:
        raise ValueError(f"its arguments are no JSON: {fault}") from fault
    if not isinstance(given, dict):
        raise TypeError("its arguments are no JSON object")
    return given  # pyright: ignore[reportUnknownVariableType]


def _told(fault: Exception) -> str:
    ours = isinstance(fault, FoldlineError | ValueError | TypeError | OSError)
    return str(fault) if ours and str(fault) else f"{type(fault).__name__} {fault}".rstrip()


def _unfinished(call: Call, *, begun: bool) -> Event:
    """What is recorded of a call that was stopped: R-22."""
    if begun:
        return Interrupted(call.id, _STOPPED)
    return ToolReturned(call.id, said(f"not run: {_STOPPED}").parts, ok=False)


async def _together(works: Sequence[Awaitable[None]]) -> None:
    """All of them side by side; where one fails, none goes on."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

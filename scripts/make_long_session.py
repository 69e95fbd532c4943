"""Make a long session that Foldline itself ran: the one in the README's picture over time.

    python scripts/make_long_session.py sessions.db --name long --turns 300 --window 128000

A person talks to a coding agent for weeks. The agent is `foldline.agent.loop.Agent` on a real
store; the model is scripted: its calls, and the results of its tools, are those of the lab's
made-up coding sessions. It reports usage as a provider does that keeps prompts in a cache: blocks
that are as the call before sent them are read, the rest is written. Every thirtieth turn comes the
next morning, when the cache is cold. The same seed gives the same session.
"""

import argparse
import asyncio
import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

import foldline
from foldline.agent.loop import Agent
from foldline.agent.tool import Arguments, Result, Tool
from foldline.core.log import Instructed, ModelSaid, ToolReturned
from foldline.core.parts import Call, calls_of, text_of
from foldline.core.tokens import count_tokens
from foldline.testing import ScriptedModel

sys.path.append(str(Path(__file__).parents[1] / "benches"))

from made.generated import generate_coding_session

MODEL = "anthropic/claude-sonnet-4-5"
NIGHT = 30  # turns of one day
COUNTED = 0.9  # of our estimate: what this provider counts
LEAST = 1_024  # tokens from which on a prefix is kept
STEPS = (0, 1, 1, 2, 2, 3, 4)  # rounds of tools in one turn
ASKED = (
    "Look at {0} once more: I do not believe that it is right.",
    "Now {0}, please. The rule is the same as before.",
    "What does {0} do when its input is empty? Check, do not guess.",
    "Go on with {0}.",
    "The last build says that {0} is slow. Find out why, and tell me before you change it.",
    "Make {0} read like its neighbours.",
    "Is {0} still needed? If nobody calls it, remove it together with its tests.",
    "Somebody else was in {0} yesterday. Read what changed and see whether our plan still holds.",
    "Write a test for {0} that fails first.",
)
TOLD = (
    "Done: {0} is as you wanted it, and its tests pass. I have not looked at who else calls it.",
    "{0} was right; the test was not. I changed the test and nothing else.",
    "I found it in {0}: one branch returned the wrong value. It is repaired, and there is a test.",
    "{0} is read by two modules. I have left both as they are, since the task did not name them.",
)


class Step(NamedTuple):
    """One answer of the made-up agent that calls tools, and their results."""

    words: str
    calls: tuple[Call, ...]
    results: tuple[ToolReturned, ...]


def steps(seed: int) -> Iterator[Step]:
    """The steps of made-up sessions, one session after the other, without end."""
    while True:
        events = generate_coding_session(seed).recorded.events
        returned = {one.call_id: one for one in events if isinstance(one, ToolReturned)}
        for event in events:
            calls = calls_of(event.parts) if isinstance(event, ModelSaid) else ()
            if calls and all(call.id in returned for call in calls):
                yield Step(text_of(event.parts), calls, tuple(returned[one.id] for one in calls))
        seed += 1


class Caching(ScriptedModel):
    """A scripted model whose provider keeps what it was sent, and counts it."""

    def __init__(self, script: "Script") -> None:
        super().__init__(script, name=MODEL)
        self.before: list[tuple[bytes, int]] = []
        self.cold = False
        """Whether the cache has expired before the next call."""

    async def say(self, request: dict[str, Any], **more: Any) -> dict[str, Any]:
        """The next answer, with what was read, written and said."""
        answer = await super().say(request, **more)
        self.requests.clear()  # a thousand requests are large
        now = [*blocks(request)]
        shared = 0
        for old, new in zip([] if self.cold else self.before, now, strict=False):
            if old != new:
                break
            shared += new[1]
        total = sum(tokens for _, tokens in now)
        read = round(COUNTED * shared) if shared >= LEAST else 0
        self.before, self.cold = now, False
        answer["usage"] = {
            "input_tokens": 0,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": round(COUNTED * total) - read,
            "output_tokens": count_tokens(json.dumps(answer["content"])),
        }
        return answer


def blocks(request: dict[str, Any]) -> Iterator[tuple[bytes, int]]:
    """A request block by block in the order it is read, and what each takes; marks are no words."""
    fixed = [*request.get("tools", ()), request.get("system", "")]
    for block in [*fixed, *request["messages"]]:
        text = json.dumps(block, ensure_ascii=False).replace(MARK, "")
        yield text.encode(), count_tokens(text)


MARK = ', "cache_control": {"type": "ephemeral"}'


class Script:
    """What the model says, call by call, and what its tools give back."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a session that can be made again
        self.steps = steps(seed)
        self.results: deque[ToolReturned] = deque()
        self.left, self.made, self.name = 0, 0, "the parser"

    def asked(self) -> str:
        """What the person says next, to be answered in some steps."""
        self.left = self.random.choice(STEPS)
        return self.random.choice(ASKED).format(self.name)

    def __call__(self, _: dict[str, Any]) -> dict[str, Any] | str:
        """The next answer."""
        if not self.left:
            return self.random.choice(TOLD).format(self.name)
        self.left -= 1
        step = next(self.steps)
        self.results.extend(step.results)
        self.name = named(step.calls[0]) or self.name
        made = [{"id": self._id(), "function": _function(call)} for call in step.calls]
        return {"content": step.words, "tool_calls": made}

    def _id(self) -> str:
        self.made += 1
        return f"toolu_{self.made:06}"

    async def run(self, _: Arguments) -> Result:
        """The result that was recorded."""
        found = self.results.popleft()
        return Result(found.parts, found.ok)


def _function(call: Call) -> dict[str, str]:
    return {"name": call.name, "arguments": call.arguments}


def named(call: Call) -> str:
    """The file that a call is about, if any."""
    given = msgspec.json.decode(call.arguments)
    return f"`{given['path']}`" if isinstance(given.get("path"), str) else ""


async def agree(*_: object) -> None:
    """Approve whatever it is."""


async def make(address: str, *, name: str, turns: int, window: int, seed: int) -> None:
    """Run the session."""
    told = next(
        one
        for one in generate_coding_session(seed, calls=20).recorded.events
        if isinstance(one, Instructed)
    )
    script = Script(seed)
    model = Caching(script)
    tools = [
        Tool(
            name=one.name,
            description=one.description,
            schema=msgspec.json.decode(one.schema),
            run=script.run,
        )
        for one in told.tools
    ]
    system = [text_of(told.parts)]
    async with foldline.aopen(
        address, model=MODEL, window=window, session=name, system=system
    ) as session:
        agent = Agent(session, model, tools=tools, approve=agree)
        for turn in range(turns):
            model.cold = turn % NIGHT == 0
            await agent.turn(script.asked())


def main() -> None:
    """Read the arguments and run it."""
    line = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    line.add_argument("store", help="the file that keeps it")
    line.add_argument("--name", default="long")
    line.add_argument("--turns", type=int, default=300)
    line.add_argument("--window", type=int, default=128_000)
    line.add_argument("--seed", type=int, default=7)
    given = line.parse_args()
    made = {key: getattr(given, key) for key in ("name", "turns", "window", "seed")}
    asyncio.run(make(given.store, **made))


if __name__ == "__main__":
    main()

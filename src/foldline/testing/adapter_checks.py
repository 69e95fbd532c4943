"""Checks that an adapter must pass, over its framework's real runner and a scripted model.

    class MyHost(AdapterHost): ...  # an agent of the framework, with the adapter under test
    sys.exit(main(MyHost))          # prints a line for each check; 1 if one fails

Nothing here imports a framework or pytest, so the checks run in whichever environment has the
framework. A check looks at what arrives at the model's server, at the framework's own history, and
at the log; never inside the adapter.
"""

import asyncio
import base64
import hashlib
import itertools
import json
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self, TypeAlias, TypedDict

from foldline.core.log import Asked, Event, UsageReported
from foldline.core.spine import Range
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing.provider import Answer, Json, Provider, Script, Trouble

WINDOW = 8_000
SYSTEM = "You watch over the builds."
HELPER = "You read builds for another agent."
"""The system prompt of a sub-agent."""
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""
_LINES = 40
_SEALED = re.compile(r"Sealed(\d{6})")
_HANDOFF = re.compile(r"\[handoff: (log:\d+(?:-\d+)?) was folded\]")
_CLOSE = 0.05  # between an estimate and the provider's count
_REFUSALS = 3  # of 13 requests; not every server states its window
_LEARNING = 3  # reports after which estimates must be close


def read_log(name: str) -> str:
    """Read a build's log."""  # about 600 tokens
    return "\n".join(f"{name} line {n}: test {n * 7919} passed, nothing" for n in range(_LINES))


class AdapterHost(ABC):
    """An agent of a framework with the adapter under test, driven by the framework's own runner.

    The agent has the system prompt `SYSTEM` and the tool `read_log`, and the adapter's tool for
    recall. It asks the model at `url`, and the adapter gets `options`.
    """

    lacks: ClassVar[dict[str, str]] = {}
    """The checks for which the framework has nothing, each with the reason; they are not run."""
    limits: ClassVar[dict[str, str]] = {}
    """The checks that hold only in part, each with what is different: a "refused call" is raised,
    or the usage of a "streamed run" comes after the next call has begun."""
    helper_argument: ClassVar[str] = "words"
    """The argument of `ask_helper` that takes the task."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url, self.options = url, options

    @abstractmethod
    async def ask(
        self, thread: str, words: str, *, streams: bool = False, picture: bytes = b""
    ) -> str:
        """Run the agent on one message of a thread, and return its answer."""

    async def delegate(self, thread: str, words: str) -> str:
        """Run the agent as `ask` does, with one more tool: `ask_helper`.

        The tool runs another agent, as the framework has it: with a history of its own, the system
        prompt `HELPER` and the tool `read_log`, and planned by the same adapter.
        """
        raise NotImplementedError

    @abstractmethod
    async def read_history(self, thread: str) -> str:
        """Return all that the framework itself keeps of a thread, as one text."""

    @abstractmethod
    def instruct(self, words: str) -> None:
        """Change the system prompt from here on."""

    @abstractmethod
    async def restart(self) -> Self:
        """Return a new host that found the framework's own history again, and close this one."""

    @abstractmethod
    async def close(self) -> None:
        """Close what is open."""


Check: TypeAlias = "Callable[[_Ground], Awaitable[None]]"


class _Ground:
    """What a check stands on: a scripted model, a store, and a host that uses both."""

    def __init__(self, make: type[AdapterHost], folder: Path, provider: Provider) -> None:
        self.provider, self.store = provider, str(folder / "logs.db")
        self.kind = make
        self.host = make(provider.url, {"store": self.store, "window": WINDOW, "reserve": 500})

    def play(self, *readers: "Reader") -> None:
        """Let readers answer, each those requests in which its name stands."""

        def answer(body: Json) -> Answer:
            text = json.dumps(body)
            named = [one for one in readers if f"of {one.name}." in text]
            assert len(named) == 1, f"a request of {len(named)} conversations"
            return named[0](body)

        self.script(answer)

    def script(self, answer: Script) -> None:
        """Let a script answer; each response has an id of its own: frameworks go by it."""

        def number(body: Json) -> Answer:
            said = answer(body)
            if isinstance(said, Trouble) or "input" not in body:
                return said
            message = {"content": said} if isinstance(said, str) else said
            return {"id": f"resp_{next(_numbers)}", **message}

        self.provider.script = number

    def must_fit(self) -> None:
        """Nothing was refused, and something was folded."""
        assert set(self.provider.statuses) == {200}, self.provider.statuses
        assert any("[handoff:" in body.decode() for body in self.provider.bodies), "no fold"

    async def read_logs(self) -> dict[str, list[tuple[int, Event]]]:
        """Read the events of every session in the log."""
        store = store_at(self.store)
        try:
            logs: dict[str, list[tuple[int, Event]]] = {}
            for one in await store.sessions("local"):
                name = Name("local", one.session)
                every = Range(0, (await store.head(name)).seq)
                logs[one.session] = [*await event_log.read_events(store, name, every)]
            return logs
        finally:
            await store.close()

    async def list_sessions(self) -> list[str]:
        """List the sessions in the log."""
        return sorted(await self.read_logs())

    async def must_be_close(self) -> None:
        """Every request was counted, and in each log the estimates came close after a few."""
        counted, far = 0, list[float]()
        for logged in (await self.read_logs()).values():
            asked = {seq: one for seq, one in logged if isinstance(one, Asked)}
            shares = [
                asked[one.asked].tokens / one.input
                for _, one in logged
                if isinstance(one, UsageReported) and one.input and one.asked in asked
            ]
            counted += len(shares)
            far += [share for share in shares[_LEARNING:] if abs(share - 1) > _CLOSE]
        assert counted == len(self.provider.bodies), f"usage of {counted} requests"
        assert not far, f"estimates far from the count: {far}"


class Reader:
    """A scripted model that reads builds, a few at a time, and then says that it is done."""

    def __init__(self, name: str, builds: int, *, at_once: int = 1) -> None:
        self.name, self._builds, self._at_once = name, builds, at_once
        self._read = 0
        self.answer = f"All builds of {name} are fine."

    def __call__(self, _: Json) -> str | Json:
        """Call the tool for the next builds, or answer."""
        if self._read >= self._builds:
            self._read = 0
            return self.answer
        names = [f"{self.name}-{self._read + n}" for n in range(self._at_once)]
        self._read += self._at_once
        return {"content": None, "tool_calls": [_call("read_log", name=name) for name in names]}


_numbers = itertools.count()


def _call(tool: str, **arguments: Any) -> Json:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"call_{next(_numbers)}", "type": "function", "function": function}


async def check_long_run(ground: _Ground, *, streams: bool = False) -> None:
    """25 results of 600 tokens at 8,000: all fit, the framework's history is whole."""
    ground.play(Reader("ada", 25))
    said = await ground.host.ask("ada", "Read the builds of ada.", streams=streams)
    assert said == "All builds of ada are fine.", said
    ground.must_fit()
    assert len(ground.provider.bodies) == 26, len(ground.provider.bodies)
    kept = await ground.host.read_history("ada")
    for build in range(25):
        assert f"ada-{build} line {_LINES - 1}:" in kept, f"build {build} is lost"
    assert "[handoff:" not in kept, "the framework's own history has a handoff"
    assert len(await ground.list_sessions()) == 1, await ground.list_sessions()
    if not (streams and "streamed run" in ground.kind.limits):
        await ground.must_be_close()


async def check_streamed_run(ground: _Ground) -> None:
    """The same, streamed."""
    await check_long_run(ground, streams=True)


async def check_later_turns(ground: _Ground) -> None:
    """Five more questions in one thread: one log, and every request fits."""
    reader = Reader("ada", 5)
    ground.play(reader)
    for turn in range(5):
        said = await ground.host.ask("ada", f"Question {turn}: read the builds of ada.")
        assert said == reader.answer, said
    ground.must_fit()
    assert len(await ground.list_sessions()) == 1, await ground.list_sessions()


async def check_parallel_calls(ground: _Ground) -> None:
    """Three calls in each answer: their results stay together."""
    ground.play(Reader("ada", 24, at_once=3))
    said = await ground.host.ask("ada", "Read the builds of ada.")
    assert said == "All builds of ada are fine.", said
    ground.must_fit()


async def check_two_at_once(ground: _Ground) -> None:
    """Two threads at once: no request has a word of the other, and each has its log."""
    ground.play(Reader("ada", 15), Reader("grace", 15))
    ground.provider.delay = 0.01
    asked = [ground.host.ask(who, f"Read the builds of {who}.") for who in ("ada", "grace")]
    said = await asyncio.gather(*asked)
    assert said == ["All builds of ada are fine.", "All builds of grace are fine."], said
    ground.must_fit()
    for body in ground.provider.bodies:
        text = body.decode()
        assert ("ada-" in text) + ("grace-" in text) < 2, "a request of two conversations"
    assert len(await ground.list_sessions()) == 2, await ground.list_sessions()


async def check_recall(ground: _Ground) -> None:
    """A model that calls `recall` for what was folded gets it from the log."""
    reader, asked, wanted = Reader("ada", 12), [0], "ada-0 line 7:"

    def answer(body: Json) -> Answer:
        text = json.dumps(body)
        found = _HANDOFF.search(text)
        if found is None or asked[0] > 1:
            return reader(body)
        asked[0] += 1
        if asked[0] == 1:
            assert '"recall"' in json.dumps(body.get("tools")), "the tool is not offered"
            return {"content": None, "tool_calls": [_call("recall", handle=found[1], grep=wanted)]}
        assert f"{wanted} test" in text, "the answer to the call has not what was asked for"
        return reader(body)

    ground.script(answer)
    said = await ground.host.ask("ada", "Read the builds of ada.")
    assert said == "All builds of ada are fine.", said
    assert asked[0] == 2, "nothing was folded, so nothing was recalled"
    ground.must_fit()


async def check_wrong_recall(ground: _Ground) -> None:
    """A call of `recall` that makes no sense is answered, and the run goes on."""
    calls = [_call("recall", handle="nonsense"), _call("recall", handle="log:99999")]
    script = [{"content": None, "tool_calls": [one]} for one in calls]
    answers = iter([*script, "fine"])
    ground.script(lambda _: next(answers))
    assert await ground.host.ask("ada", "Look at the builds of ada.") == "fine"
    assert "is not a handle" in ground.provider.bodies[1].decode()


async def check_restart(ground: _Ground) -> None:
    """A thread that goes on in another process: the same log, and its folds stand."""
    ground.play(Reader("ada", 15))
    await ground.host.ask("ada", "Read the builds of ada.")
    before = len(ground.provider.bodies)
    ground.host = await ground.host.restart()
    ground.play(Reader("ada", 2))
    await ground.host.ask("ada", "Read two more builds of ada.")
    ground.must_fit()
    assert "[handoff:" in ground.provider.bodies[before].decode(), "the fold was forgotten"
    assert len(await ground.list_sessions()) == 1, await ground.list_sessions()


async def check_other_instructions(ground: _Ground) -> None:
    """A changed system prompt goes out as it is, and the conversation goes on."""
    ground.play(Reader("ada", 12))
    await ground.host.ask("ada", "Read the builds of ada.")
    ground.host.instruct("You are very brief.")
    ground.play(Reader("ada", 3))
    await ground.host.ask("ada", "Read more builds of ada.")
    ground.must_fit()
    last = ground.provider.bodies[-1].decode()
    assert "You are very brief." in last, "the new instructions are not sent"
    assert SYSTEM not in last, "the old instructions are still sent"
    assert len(await ground.list_sessions()) == 1, await ground.list_sessions()


async def check_refused_call(ground: _Ground) -> None:
    """The window is smaller than was said: each refusal is healed, or raised by the framework."""
    ground.provider.window = WINDOW * 2 // 3
    ground.play(Reader("ada", 12))
    try:
        said = await ground.host.ask("ada", "Read the builds of ada.")
    except Exception:
        if "refused call" in ground.kind.limits:
            return
        raise
    assert "refused call" not in ground.kind.limits, "it is healed: take it out of the limits"
    assert said == "All builds of ada are fine.", said
    refused = sum(status != 200 for status in ground.provider.statuses)
    assert 0 < refused <= _REFUSALS, ground.provider.statuses


async def check_troubles(ground: _Ground) -> None:
    """A server's error and a broken stream: asked again, the conversation goes on in its log."""
    reader = Reader("ada", 10)
    ground.play(reader)
    await ground.host.ask("ada", "Read the builds of ada.")
    good = ground.provider.script
    for trouble in (Trouble.ERROR, Trouble.CUT):
        answers = iter([trouble] * 6)
        ground.provider.script = lambda _, answers=answers: next(answers)
        streams = trouble is Trouble.CUT and "streamed run" not in ground.kind.lacks
        with suppress(Exception):  # whatever the framework raises
            await ground.host.ask("ada", "Read no builds of ada.", streams=streams)
        ground.provider.script = good
        said = await ground.host.ask("ada", "Read the builds of ada.")
        assert said == reader.answer, said
    assert {*ground.provider.statuses} <= {200, 500}, ground.provider.statuses
    assert len(await ground.list_sessions()) == 1, await ground.list_sessions()


async def check_picture(ground: _Ground) -> None:
    """A picture goes out as it came, beside folds of what is older."""
    ground.play(Reader("ada", 12))
    await ground.host.ask("ada", "Read the builds of ada.")
    ground.script(lambda _: "a dot")
    said = await ground.host.ask("ada", "What is this, of ada.", picture=PICTURE)
    assert said == "a dot", said
    shown = base64.b64encode(PICTURE).decode().rstrip("=")
    sent = ground.provider.bodies[-1].decode().replace("-", "+").replace("_", "/")
    assert shown in sent, "the picture is not sent"
    ground.must_fit()


class Recaller(Reader):
    """A reader that calls `recall` for its first build, once that is folded."""

    def __init__(self, name: str, builds: int) -> None:
        super().__init__(name, builds)
        self.is_answered = False
        self._wanted = f"{name}-0 line 7:"
        self._is_asked = False

    def __call__(self, body: Json) -> str | Json:
        """Call `recall` as soon as there is a handoff; else go on reading."""
        text = json.dumps(body)
        if self._is_asked and not self.is_answered:
            self.is_answered = f"{self._wanted} test" in text
        found = _HANDOFF.search(text)
        if self._is_asked or found is None:
            return super().__call__(body)
        self._is_asked = True
        call = _call("recall", handle=found[1], grep=self._wanted)
        return {"content": None, "tool_calls": [call]}


async def check_sub_agents(ground: _Ground) -> None:
    """An agent asks two others at once, one in its own words: three logs, none has another's."""
    chief, words = Recaller("ada", 16), "Read the builds of ada."
    helpers = {words: Recaller("grace", 15), "Read the builds of linus.": Recaller("linus", 15)}
    argument, asked = ground.kind.helper_argument, [0]

    def answer(body: Json) -> Answer:
        text = json.dumps(body)
        sender = chief
        if HELPER in text:
            (sender,) = (one for said, one in helpers.items() if said in text)
        asked[0] += sender is chief
        if sender is chief and asked[0] == 9:
            calls = [_call("ask_helper", **{argument: said}) for said in helpers]
            return {"content": None, "tool_calls": calls}
        return sender(body)

    ground.script(answer)
    said = await ground.host.delegate("ada", words)
    assert said == chief.answer, said
    assert set(ground.provider.statuses) == {200}, ground.provider.statuses
    for one in (chief, *helpers.values()):
        assert one.is_answered, f"{one.name} was not answered from its own log"
    assert all(len(find_owners(body.decode())) < 2 for body in ground.provider.bodies)
    logs = {name: find_owners(str(logged)) for name, logged in (await ground.read_logs()).items()}
    assert sorted(map(sorted, logs.values())) == [["ada"], ["grace"], ["linus"]], logs
    last = ground.provider.bodies[-1].decode()
    assert all(one.answer in last for one in helpers.values()), "what they answered is not sent"
    await ground.must_be_close()


def find_owners(text: str) -> set[str]:
    """Find whose builds a text has read."""
    return {name for name in ("ada", "grace", "linus") if re.search(rf"{name}-\d+ line", text)}


class Thinker(Reader):
    """A reader whose every answer has reasoning that nobody may change."""

    thoughts = 0

    def __call__(self, body: Json) -> str | Json:
        """Answer as a reader does, with one more thought."""
        said = super().__call__(body)
        message = {"content": said} if isinstance(said, str) else said
        is_chat = "messages" in body and "max_tokens" not in body  # Anthropic's always has it
        self.thoughts += 1
        return {**message, "reasoning_content" if is_chat else "reasoning": _seal(self.thoughts)}


def _seal(number: int) -> str:
    """Make reasoning as providers seal it, in base64: 780 characters that begin with a number."""
    digests = (hashlib.sha384(b"%d %d" % (number, n)).digest() for n in range(12))
    return f"Sealed{number:06d}" + base64.b64encode(b"".join(digests)).decode()


async def check_reasoning(ground: _Ground) -> None:
    """A model that reasons: its thoughts are sent with its calls as they came, and none alone."""
    thinker = Thinker("ada", 14)
    ground.play(thinker)
    assert await ground.host.ask("ada", "Read the builds of ada.") == thinker.answer
    await ground.must_be_close()  # not later: what a provider counts of an older turn is its own
    assert await ground.host.ask("ada", "Read more builds of ada.") == thinker.answer
    ground.must_fit()
    sent: dict[str, str] = {}
    for body in ground.provider.bodies:
        for answer in list_answers(json.loads(body)):
            seals = {*_SEALED.findall(answer)}
            if "read_log" in answer:
                assert len(seals) == 1, (
                    f"a call is sent with the thoughts {sorted(seals)}: {answer}"
                )
            for seal in seals:
                first = sent.setdefault(seal, answer)
                assert answer == first, f"thought {seal} was sent as {first}, then as {answer}"
    assert len(sent) >= thinker.thoughts - 2, f"only {len(sent)} thoughts were ever sent back"
    kept = await ground.host.read_history("ada")
    lost = [one for one in range(1, thinker.thoughts + 1) if f"Sealed{one:06d}" not in kept]
    assert not lost, f"the framework's own history has lost the thoughts {lost}"


def list_answers(body: Json) -> list[str]:
    """List the model's answers in a request, as they are written there."""
    listed: list[Json] = body.get("messages") or body.get("contents") or body["input"]
    if "input" not in body:
        return [json.dumps(one) for one in listed if one["role"] in ("assistant", "model")]
    answers: list[list[Json]] = [[]]
    for item in listed:
        if item.get("type") == "function_call_output" or item.get("role") == "user":
            answers.append([])
        else:  # an answer is several items in a row
            answers[-1].append(item)
    return [json.dumps(one) for one in answers if one]


CHECKS: dict[str, Check] = {
    "long run": check_long_run,
    "streamed run": check_streamed_run,
    "later turns": check_later_turns,
    "parallel calls": check_parallel_calls,
    "two at once": check_two_at_once,
    "recall": check_recall,
    "wrong recall": check_wrong_recall,
    "restart": check_restart,
    "other instructions": check_other_instructions,
    "refused call": check_refused_call,
    "troubles": check_troubles,
    "picture": check_picture,
    "sub-agents": check_sub_agents,
    "reasoning": check_reasoning,
}


async def run_check(make: type[AdapterHost], check: Check) -> str:
    """Run one check on a new host; return what is wrong, or ""."""
    with TemporaryDirectory() as folder, Provider(window=WINDOW) as provider:
        ground = _Ground(make, Path(folder), provider)
        try:
            await check(ground)
        except Exception as fault:  # noqa: BLE001 - it is reported
            last = traceback.extract_tb(fault.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            return f"{type(fault).__name__} at {where}: {fault}"[:1_000]
        finally:
            await ground.host.close()
    return ""


class CheckResult(TypedDict):
    """How a check ended."""

    check: str
    holds: str
    """yes; partly or no, as the host declares; wrong."""
    why: str
    """The reason that the host gives, or what is wrong."""


def run_named(make: type[AdapterHost], name: str) -> CheckResult:
    """Run a check by its name, unless the host lacks what it is about."""
    if reason := make.lacks.get(name):
        return CheckResult(check=name, holds="no", why=reason)
    if wrong := asyncio.run(run_check(make, CHECKS[name])):
        return CheckResult(check=name, holds="wrong", why=wrong)
    limit = make.limits.get(name, "")
    return CheckResult(check=name, holds="partly" if limit else "yes", why=limit)


def choose_host(hosts: Mapping[str, type[AdapterHost]]) -> type[AdapterHost]:
    """Choose a host by the command's first word, if that names one; "" is the usual one."""
    is_named = len(sys.argv) > 1 and sys.argv[1] in hosts
    return hosts[sys.argv.pop(1) if is_named else ""]


def main(make: type[AdapterHost], wanted: Sequence[str] | None = None) -> int:
    """Run the checks that are named, or all; print a line of JSON for each."""
    unknown = {*make.lacks, *make.limits} - {*CHECKS}
    assert not unknown, f"there are no checks {sorted(unknown)}"
    results: list[CheckResult] = []
    for name in wanted or sys.argv[1:] or CHECKS:
        results.append(run_named(make, name))
        print(json.dumps(results[-1]), flush=True)  # noqa: T201 - a command
    return int(any(one["holds"] == "wrong" for one in results))

"""Checks that an adapter must pass, over its framework's real runner and a scripted model.

    class MyHost(AdapterHost): ...        # an agent of the framework, with the adapter under test
    sys.exit(main(MyHost))         # prints a line for each check; 1 if one fails

Nothing here imports a framework or pytest, so the checks run in whichever environment has the
framework. A check looks at what arrives at the model's server, at the framework's own history, and
at the log; never inside the adapter.
"""

import asyncio
import base64
import json
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self, TypeAlias

from foldline.core.log import Asked, UsageReported
from foldline.core.spine import Range
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing.provider import Json, Provider, Trouble

WINDOW = 8_000
SYSTEM = "You watch over the builds."
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""
_LINES = 40
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

    heals: ClassVar[bool] = True
    """Whether the framework lets an adapter ask again after a refusal."""
    streams: ClassVar[bool] = True
    """Whether answers can be streamed."""
    tells_streams: ClassVar[bool] = True
    """Whether the framework tells the usage of a stream before the next call."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url, self.options = url, options

    @abstractmethod
    async def ask(
        self, thread: str, words: str, *, streams: bool = False, picture: bytes = b""
    ) -> str:
        """Run the agent on one message of a thread, and return its answer."""

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

        def answer(body: Json) -> Any:
            text = json.dumps(body)
            named = [one for one in readers if f"of {one.name}." in text]
            assert len(named) == 1, f"a request of {len(named)} conversations"
            return named[0](body)

        self.provider.script = answer

    def must_fit(self) -> None:
        """Nothing was refused, and something was folded."""
        assert set(self.provider.statuses) == {200}, self.provider.statuses
        assert any("[handoff:" in body.decode() for body in self.provider.bodies), "no fold"

    async def list_sessions(self) -> list[str]:
        """List the sessions in the log."""
        store = store_at(self.store)
        try:
            listed = await store.sessions("local")
            return sorted(one.session for one in listed)
        finally:
            await store.close()

    async def compare_estimates(self) -> list[float]:
        """Return the estimates of all counted requests, each as a share of its count."""
        store = store_at(self.store)
        shares: list[float] = []
        try:
            for session in await self.list_sessions():
                name = Name("local", session)
                every = Range(0, (await store.head(name)).seq)
                logged = await event_log.read_events(store, name, every)
                asked = {seq: one for seq, one in logged if isinstance(one, Asked)}
                shares += [
                    asked[one.asked].tokens / one.input
                    for _, one in logged
                    if isinstance(one, UsageReported) and one.input and one.asked in asked
                ]
        finally:
            await store.close()
        return shares


class Reader:
    """A scripted model that reads builds, a few at a time, and then says that it is done."""

    def __init__(self, name: str, builds: int, *, at_once: int = 1) -> None:
        self.name, self._builds, self._at_once = name, builds, at_once
        self._read = 0
        self.answer = f"All builds of {name} are fine."

    def __call__(self, _: Json) -> Any:
        """Call the tool for the next builds, or answer."""
        if self._read >= self._builds:
            self._read = 0
            return self.answer
        names = [f"{self.name}-{self._read + n}" for n in range(self._at_once)]
        self._read += self._at_once
        return {"content": None, "tool_calls": [_call("read_log", name=name) for name in names]}


_calls = iter(range(1_000_000))


def _call(tool: str, **arguments: Any) -> Json:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"call_{next(_calls)}", "type": "function", "function": function}


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
    shares = await ground.compare_estimates()
    if streams and not ground.kind.tells_streams:
        return
    assert len(shares) == len(ground.provider.bodies), f"usage of {len(shares)} requests"
    far = [share for share in shares[_LEARNING:] if abs(share - 1) > _CLOSE]
    assert not far, f"estimates far from the count: {far}"


async def check_streamed_run(ground: _Ground) -> None:
    """The same, streamed."""
    if ground.kind.streams:
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

    def answer(body: Json) -> Any:
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

    ground.provider.script = answer
    said = await ground.host.ask("ada", "Read the builds of ada.")
    assert said == "All builds of ada are fine.", said
    assert asked[0] == 2, "nothing was folded, so nothing was recalled"
    ground.must_fit()


async def check_wrong_recall(ground: _Ground) -> None:
    """A call of `recall` that makes no sense is answered, and the run goes on."""
    calls = [_call("recall", handle="nonsense"), _call("recall", handle="log:99999")]
    script = [{"content": None, "tool_calls": [one]} for one in calls]
    answers = iter([*script, "fine"])
    ground.provider.script = lambda _: next(answers)
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
    """The window is smaller than was told: each refusal is healed, or raised by the framework."""
    ground.provider.window = WINDOW * 2 // 3
    ground.play(Reader("ada", 12))
    try:
        said = await ground.host.ask("ada", "Read the builds of ada.")
    except Exception:
        if ground.kind.heals:
            raise
        return
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
        streams = trouble is Trouble.CUT and ground.kind.streams
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
    ground.provider.script = lambda _: "a dot"
    said = await ground.host.ask("ada", "What is this, of ada.", picture=PICTURE)
    assert said == "a dot", said
    shown = base64.b64encode(PICTURE).decode().rstrip("=")
    sent = ground.provider.bodies[-1].decode().replace("-", "+").replace("_", "/")
    assert shown in sent, "the picture is not sent"
    ground.must_fit()


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
}


async def run_check(make: type[AdapterHost], check: Check) -> str:
    """Run one check on a new host; return what is wrong, or ""."""
    with TemporaryDirectory() as folder, Provider(window=WINDOW) as provider:
        ground = _Ground(make, Path(folder), provider)
        try:
            await check(ground)
        except Exception as fault:  # noqa: BLE001 - it is what is told
            last = traceback.extract_tb(fault.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            return f"{type(fault).__name__} at {where}: {fault}"[:1_000]
        finally:
            await ground.host.close()
    return ""


def main(make: type[AdapterHost], wanted: Sequence[str] | None = None) -> int:
    """Run the checks that are named, or all; print a line of JSON for each."""
    failed = 0
    for name in wanted or sys.argv[1:] or CHECKS:
        wrong = asyncio.run(run_check(make, CHECKS[name]))
        failed += bool(wrong)
        print(json.dumps({"check": name, "wrong": wrong}), flush=True)  # noqa: T201 - a command
    return int(failed > 0)

"""The loop: rounds, results, hooks, approval, and what is left when it is stopped."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

import foldline
from foldline.agent.events import Answered, Asking, Called, Calling, Folding, Passed, Speaking
from foldline.agent.loop import Agent
from foldline.agent.tool import Intent, Tool, said
from foldline.core.log import Interrupted, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Text, text_of
from foldline.core.tokens import count_tokens
from foldline.dialects.provider_errors import Fault
from foldline.errors import ModelFailed, Spent
from foldline.session.spending import Cap, Caps
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def calls(*named):
    """A model's message that calls tools, given as (name, arguments)."""
    made = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for at, (name, given) in enumerate(named)
    ]  # fmt: skip
    return {"content": None, "tool_calls": made}


def tool(name, run, **more):
    return Tool(name=name, description=name, schema={"type": "object"}, run=run, **more)


def opened(**more):
    return foldline.aopen(":memory:", **{"model": "scripted", "window": 128_000, **more})


async def logged(session, kind):
    return [event for _, event in await session.history.events() if isinstance(event, kind)]


async def told(session):
    """What each call came to, in the order of the log."""
    return [
        (one.call_id, text_of(one.parts), one.ok) for one in await logged(session, ToolReturned)
    ]


async def test_r03_a_turn_of_200_calls_of_5000_tokens_finishes_within_its_window():
    """R-03, A-01: the request is planned before every call of the model, also between calls."""
    page = "The pages of the log are long and say that nothing was found in them. " * 340
    assert count_tokens(page) > 5_000
    asked = 0

    async def read(arguments):
        return said(f"{arguments['page']}: {page}")

    def script(_):
        nonlocal asked
        asked += 1
        return calls(("read", {"page": asked})) if asked <= 200 else "done"

    async with opened() as session:
        # A server that refuses what is over its window, by its own count: none is refused.
        model = ScriptedModel(script, window=128_000)
        agent = Agent(session, model, tools=[tool("read", read)], rounds=201)
        assert (await agent.turn("Read all 200 pages.")).how == "answered"
        whole = await logged(session, ToolReturned)
        assert [text_of(one.parts).split(":")[0] for one in whole] == [
            str(n + 1) for n in range(200)
        ]
        assert len(model.requests) == 201
        assert session.edits


async def test_a08_tools_are_run_so_often_and_no_more():
    """A-08: `max_tool_iterations`; what was done is in the log, and the next message goes on."""
    runs = []

    async def again(arguments):
        runs.append(arguments)
        return said("again")

    async with opened() as session:
        model = ScriptedModel(lambda _: calls(("again", {})))
        agent = Agent(session, model, tools=[tool("again", again)], rounds=3)
        ended = await agent.turn("For ever.")
        assert (ended.how, len(runs), len(model.requests)) == ("rounds", 3, 3)
        assert "3 times" in ended.words
        agent.model = ScriptedModel(["enough"])
        assert (await agent.turn("Stop.")).words == "enough"


async def test_what_only_looks_runs_side_by_side_and_what_changes_in_order():
    running, most, order = 0, 0, []

    async def look(arguments):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        order.append(arguments["n"])
        return said(str(arguments["n"]))

    async with opened() as session:
        asks = calls(
            *[("look", {"n": n}) for n in (1, 2, 3)], *[("change", {"n": n}) for n in (4, 5)]
        )
        tools = [tool("look", look, beside=True), tool("change", look)]
        await Agent(session, ScriptedModel([asks, "done"]), tools=tools).turn("Go.")
        assert most == 3
        assert order[3:] == [4, 5]
        assert len(await told(session)) == 5


async def test_calls_under_one_id_have_each_its_own_result():
    """Models repeat ids: a result goes to the call that it is of."""

    async def echo(arguments):
        await asyncio.sleep(0.02 / arguments["n"])
        return said(f"result {arguments['n']}")

    both = calls(("echo", {"n": 1}), ("echo", {"n": 9}))
    for one in both["tool_calls"]:
        one["id"] = "same"
    async with opened() as session:
        model = ScriptedModel([both, "done"])
        await Agent(session, model, tools=[tool("echo", echo, beside=True)]).turn("Go.")
        sent = model.requests[-1]["messages"]
        asked = {
            c["id"]: json.loads(c["function"]["arguments"])["n"]
            for m in sent
            for c in m.get("tool_calls", ())
        }
        got = {m["tool_call_id"]: m["content"] for m in sent if m["role"] == "tool"}
        assert got == {one: f"result {n}" for one, n in asked.items()}
        assert len(got) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nosuch", "{}", "there is no tool 'nosuch'; there are breaks"),
        ("breaks", "{not json", "its arguments are no JSON"),
        ("breaks", "[1]", "its arguments are no JSON object"),
        ("breaks", "{}", "breaks failed: RuntimeError boom"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told_to_the_model(name, arguments, words):
    async def breaks(_):
        raise RuntimeError("boom")

    message = calls((name, {}))
    message["tool_calls"][0]["function"]["arguments"] = arguments
    async with opened() as session:
        model = ScriptedModel([message, "I see"])
        ended = await Agent(session, model, tools=[tool("breaks", breaks)]).turn("Go.")
        assert ended.how == "answered"
        [(_, text, ok)] = await told(session)
        assert words in text
        assert not ok


async def test_nothing_is_changed_that_was_not_approved():
    """Approval before writing and running; why not is told to the model."""
    ran, asked = [], []

    async def write(arguments):
        ran.append(arguments["to"])
        return said("written")

    async def approve(_, intent):
        asked.append(intent.what)
        return None if "a.txt" in intent.what else "not that one"

    writes = tool("write", write, intent=lambda a: Intent(f"write {a['to']}"))
    asks = calls(("write", {"to": "a.txt"}), ("write", {"to": "b.txt"}))
    async with opened() as session:
        await Agent(session, ScriptedModel([asks, "ok"]), tools=[writes], approve=approve).turn(
            "Go."
        )
        assert ran == ["a.txt"]
        assert asked == ["write a.txt", "write b.txt"]
        assert (await told(session))[1] == ("c1", "not run: not that one", False)
    async with opened() as session:
        await Agent(session, ScriptedModel([asks, "ok"]), tools=[writes]).turn("Go.")
        assert ran == ["a.txt"]
        assert all("nobody is here to approve" in text for _, text, _ in await told(session))


async def test_a48_hooks_see_every_moment_and_may_forbid_it():
    """A-48: before and after model, tool and fold."""
    seen, ran = [], []

    async def run(arguments):
        ran.append(arguments)
        return said("x" * 40)

    def hook(moment):
        seen.append(type(moment))
        if isinstance(moment, Calling) and moment.arguments.get("n") == 2:
            return "two is forbidden"
        if isinstance(moment, Asking) and moment.round == 3:
            return "that is enough"
        if isinstance(moment, Called) and moment.result.ok:
            return UserSaid((Text("The hook says: note this."),), speaker="notice")
        return None

    async with opened() as session:
        model = ScriptedModel([calls(("run", {"n": 1})), calls(("run", {"n": 2})), "never asked"])
        agent = Agent(session, model, tools=[tool("run", run)], hooks=[hook])
        ended = await agent.turn("Go.")
        assert ended == ("vetoed", "that is enough")
        assert ran == [{"n": 1}]
        assert (await told(session))[1][1] == "not run: two is forbidden"
        assert "The hook says: note this." in json.dumps(model.requests[1])
        assert seen == [Asking, Answered, Calling, Called] * 2 + [Asking]


async def test_a48_a_fold_is_seen_before_and_after_and_may_be_forbidden():
    seen, allowed = [], False

    def hook(moment):
        seen.append(moment)
        return "not now" if isinstance(moment, Folding) and not allowed else None

    async with opened(window=16_000) as session:
        agent = Agent(
            session, ScriptedModel(lambda _: "Done, and nothing else. " * 60), hooks=[hook]
        )
        for n in range(12):
            await agent.turn(f"Message {n}. " + "Many words are said here, and more. " * 40)
        with pytest.raises(foldline.FoldlineError, match="not now"):
            await session.fold()
        allowed = True
        assert await session.fold()
        outcomes = [m.one.outcome for m in seen if isinstance(m, Passed)]
        assert outcomes[-2:] == ["vetoed", "applied"]
        assert any(isinstance(m, Speaking) for m in seen)


async def stopped(agent, words, *, when):
    """Stop a turn once something is so, as Ctrl-C does; how long that took."""
    turn = asyncio.create_task(agent.turn(words))
    while not when():  # noqa: ASYNC110 - a hook or a tool sets it
        await asyncio.sleep(0.005)
    begun = monotonic()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    return monotonic() - begun


async def test_r53_a_turn_that_is_stopped_keeps_what_happened(timed):
    """R-53, R-22: results that came stay, the running call is closed, what waited was not run."""
    running = []

    async def quick(_):
        return said("quick is done")

    async def slow(arguments):
        running.append(arguments["n"])
        await asyncio.sleep(60)
        return said("never")

    asks = calls(("quick", {}), ("slow", {"n": 1}), ("slow", {"n": 2}))
    async with opened() as session:
        model = ScriptedModel([asks, "good"])
        agent = Agent(session, model, tools=[tool("quick", quick), tool("slow", slow)])
        assert await stopped(agent, "Go.", when=lambda: running) < timed(1.0)
        assert running == [1]
        assert await told(session) == [
            ("c0", "quick is done", True),
            ("c2", "not run: stopped by the user", False),
        ]
        assert [one.call_id for one in await logged(session, Interrupted)] == ["c1"]
        assert (await agent.turn("And now?")).words == "good"
        sent = json.dumps(model.requests[-1])
        assert "outcome unknown" in sent


async def test_r53_words_that_were_heard_stay_when_the_answer_is_stopped(timed):
    heard = []

    class Endless(ScriptedModel):
        async def say(self, request, *, heard=None):  # noqa: ARG002 - it never answers
            heard("Once upon a time")
            await asyncio.sleep(60)

    def hook(moment):
        if isinstance(moment, Speaking):
            heard.append(moment.words)

    async with opened() as session:
        agent = Agent(session, Endless(), hooks=[hook])
        assert await stopped(agent, "A story.", when=lambda: heard) < timed(1.0)
        [said_] = await logged(session, ModelSaid)
        assert (text_of(said_.parts), said_.stop) == ("Once upon a time", "cancelled")


async def test_a_model_that_fails_leaves_the_message_and_the_next_turn_answers():
    async with opened() as session:
        model = ScriptedModel([Fault("other", "no such model"), "here"])
        agent = Agent(session, model)
        with pytest.raises(ModelFailed, match="no such model"):
            await agent.turn("Hello?")
        assert (await agent.go_on()).words == "here"
        assert len(await logged(session, UserSaid)) == 1


async def test_r49_a_cap_ends_the_turn_between_calls():
    """R-49: the cap of a turn holds over all of its calls."""

    async def run(_):
        return said("done")

    async with opened(caps=Caps(turn=Cap(tokens=14_500))) as session:
        agent = Agent(
            session, ScriptedModel(lambda _: calls(("run", {}))), tools=[tool("run", run)]
        )
        with pytest.raises(Spent, match="turn"):
            await agent.turn("Go.")
        assert 0 < len(await told(session)) < 25


async def test_instructions_that_grow_are_told_at_the_tail():
    """R-60: what is added while it works changes no earlier byte."""
    texts = ["You are careful."]

    async def look(_):
        texts.append("In this folder: tabs.")
        return said("looked")

    async with opened() as session:
        model = ScriptedModel([calls(("look", {})), "ok"])
        agent = Agent(session, model, tools=[tool("look", look)], instructions=lambda: texts)
        await agent.turn("Go.")
        first, second = (one["messages"] for one in model.requests)
        assert second[: len(first)] == first
        assert "In this folder: tabs." in json.dumps(second[len(first) :])
        assert "You are careful." not in json.dumps(second[len(first) :])


KILLED = """
import asyncio, json, os, sys
from pathlib import Path
import foldline
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool, said
from foldline.testing import ScriptedModel

folder = Path(sys.argv[1])

async def work(arguments):
    with (folder / "ran").open("a") as file:
        file.write(f"{arguments['n']}\\n")
    if arguments["n"] == 2:
        (folder / "ready").touch()
        await asyncio.sleep(60)
    return said(f"worked {arguments['n']}")

async def main():
    asks = [{"id": f"c{n}", "type": "function", "function": {"name": "work", "arguments": json.dumps({"n": n})}} for n in (1, 2, 3)]
    model = ScriptedModel([{"content": None, "tool_calls": asks}])
    tool = Tool(name="work", description="work", schema={"type": "object"}, run=work)
    async with foldline.aopen(str(folder / "chat.db"), model="scripted", window=64_000) as session:
        await Agent(session, model, tools=[tool]).turn("Go.")

asyncio.run(main())
"""


async def test_r22_killed_in_the_middle_of_a_tool_nothing_runs_twice(tmp_path: Path):
    """R-22: kill -9 while the second of three calls runs; reopened, each has its outcome."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])  # noqa: ASYNC220
    try:
        until = monotonic() + 30
        while not (tmp_path / "ready").exists() and monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    ran = []

    async def work(arguments):
        ran.append(arguments)
        return said("worked")

    async with foldline.aopen(
        str(tmp_path / "chat.db"), model="scripted", window=64_000
    ) as session:
        model = ScriptedModel(["I see"])
        await Agent(session, model, tools=[tool("work", work)]).turn("Where were we?")
        sent = {
            m["tool_call_id"]: m["content"]
            for m in model.requests[0]["messages"]
            if m["role"] == "tool"
        }
    assert (tmp_path / "ran").read_text().split() == ["1", "2"]
    assert not ran
    assert sent["c1"] == "worked 1"
    assert "interrupted, outcome unknown" in sent["c2"]
    assert "interrupted, outcome unknown" in sent["c3"]


async def test_calls_of_tools_that_others_run_end_the_turn_and_ours_are_run():
    """`lent`: the session's own tools stay offered; whoever asked brings their results."""
    ran = []

    async def ours(arguments):
        ran.append(arguments)
        return said("ours is done")

    theirs = {
        "type": "function",
        "function": {"name": "theirs", "parameters": {"type": "object"}},
    }
    own = tool("ours", ours)
    both = calls(("ours", {"n": 1}), ("theirs", {"n": 2}), ("nobodys", {}))
    async with opened(tools=[own.offered, theirs]) as session:
        model = ScriptedModel([both, "all done"])
        agent = Agent(session, model, tools=[own], lent=True)
        assert (await agent.turn("Go.")).how == "calls"
        assert ran == [{"n": 1}]
        assert [one[0] for one in await told(session)] == ["c0", "c2"]  # an unknown one is told of
        assert {*session.live.view.open} == {"c1"}
        await session.add({"role": "tool", "tool_call_id": "c1", "content": "theirs is done"})
        assert (await agent.go_on()).words == "all done"
        assert model.requests[1]["tools"] == model.requests[0]["tools"]
        assert "theirs is done" in json.dumps(model.requests[1])

"""`recall` and `search_history`: what was cut comes back, by the words that stand in its place."""

import json
import re

import pytest

import foldline
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool, said
from foldline.agent.tools import own
from foldline.core.log import ToolReturned
from foldline.core.parts import Media, Text, text_of
from foldline.core.plan import measure_recall_room
from foldline.core.tokens import count_tokens
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio
LINES = [
    f"{n:05}: the reading of sensor {n * 7919 % 1000} is {n * 31 % 97}.{n % 10}" for n in range(400)
]


@pytest.fixture
def anyio_backend():
    return "asyncio"


def opened(**more):
    return foldline.aopen(":memory:", **{"model": "scripted", "window": 128_000, **more})


def calls(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def fetching(text):
    async def run(_):
        return said(text)

    return Tool(name="fetch", description="fetch", schema={"type": "object"}, run=run)


def sent(request):
    """All words of a request."""
    return "\n".join(str(message.get("content")) for message in request["messages"])


async def results(session):
    return [event for _, event in await session.history.events() if isinstance(event, ToolReturned)]


async def test_r37_the_hint_of_a_clip_executed_returns_the_original(tmp_path):
    """R-37: the literal text out of the request that the model was sent; not clipped again."""
    original = "\n".join(f"{part}:{line}" for part in range(5) for line in LINES)
    hints = []

    def script(request):
        match len(model.requests):
            case 1:
                return calls("fetch")
            case 2:
                hints.extend(re.findall(r"^\[whole: log:.*\]$", sent(request), re.MULTILINE))
                assert original not in sent(request)
                return calls("recall", handle=hints[0])
            case _:
                assert original in sent(request)
                return "done"

    async with opened(window=400_000) as session:
        model = ScriptedModel(script)
        agent = Agent(session, model, tools=[*own(session, tmp_path), fetching(original)])
        assert (await agent.turn("Fetch it.")).how == "answered"
        assert len(hints) == 1
        fetched, recalled = await results(session)
        assert fetched.clip is not None
        assert recalled.clip is None
        assert recalled.ok
        assert text_of(recalled.parts) == original


async def test_r37_the_hint_of_a_mask_executed_returns_the_original(tmp_path):
    """R-37: with a preset that masks, each hint by itself and the whole stub."""
    texts = [f"result {n}: " + " ".join(LINES[n * 10 : n * 10 + 10]) for n in range(9)]
    asked = []

    def script(request):
        number = len(model.requests)
        if number <= 9:
            return calls("fetch", n=number)
        stubs = re.findall(
            r"\[result masked — .*\n\[whole: log:.*\]\n\[it began: .*\]", sent(request)
        )
        if not asked:
            asked.append(stubs[0])
            return calls("recall", handle=stubs[0])
        if len(asked) == 1:
            asked.append(stubs[1].split("\n")[1])
            return calls("recall", handle=asked[-1])
        return "done"

    given = iter(texts)

    async def run(_):
        return said(next(given))

    async with opened(policy="three-layer") as session:
        model = ScriptedModel(script)
        fetch = Tool(name="fetch", description="f", schema={"type": "object"}, run=run)
        agent = Agent(session, model, tools=[*own(session, tmp_path), fetch])
        assert (await agent.turn("Fetch them.")).how == "answered"
        *_, first, second = await results(session)
        assert text_of(first.parts) == texts[2]
        assert text_of(second.parts) == texts[3]
        assert (first.clip, second.clip) == (None, None)


async def test_r37_the_hint_of_a_fold_executed_returns_the_original(tmp_path):
    """R-37: the head of a handoff is a hint, and so is every line that begins with a handle."""
    original = "\n".join(LINES[:60])

    def script(request):
        match len(model.requests):
            case 1:
                return calls("fetch")
            case 2:
                return "It is fetched."
            case 3:
                assert LINES[30] not in sent(request)
                (hint,) = re.findall(
                    r"^\[handoff: log:.*was folded\]$", sent(request), re.MULTILINE
                )
                return calls("recall", handle=hint, grep="00030:", around=1)
            case 4:
                answer = request["messages"][-1]["content"]
                assert LINES[29] in answer
                assert LINES[31] in answer
                place = re.search(r"\[(log:\d+) tool_returned\]", answer)[1]
                return calls("recall", handle=f'recall("{place}")')
            case _:
                return "done"

    async with opened() as session:
        model = ScriptedModel(script)
        agent = Agent(session, model, tools=[*own(session, tmp_path), fetching(original)])
        await agent.turn("Fetch it.")
        for n in range(8):
            await session.add(f"And {n}?")
            await session.add({"role": "assistant", "content": f"Answer {n}. " + "Well. " * 300})
        assert await session.fold() is not None
        assert (await agent.turn("What was in line 30?")).how == "answered"
        *_, last = await results(session)
        assert text_of(last.parts) == original
        assert last.clip is None


async def test_recall_comes_in_pages_that_are_never_clipped_again(tmp_path):
    """R-37: bounded by what the window has room for; each page has the call that goes on."""
    original = "\n".join(LINES)
    pages = []

    def script(request):
        if len(model.requests) == 1:
            return calls("fetch")
        if len(model.requests) == 2:
            hint = re.search(r"^\[whole: log:.*\]$", sent(request), re.MULTILINE)[0]
            return calls("recall", handle=hint)
        answer = request["messages"][-1]["content"]
        pages.append(answer.split("\n", 1)[1])
        if found := re.search(r'go on: recall\("(?P<at>.*?)", lines=\((\d+), (\d+)\)\)', answer):
            if len(pages) == 1:  # as a call's arguments
                return calls("recall", handle=found["at"], lines=[int(found[2]), int(found[3])])
            return calls("recall", handle=found[0].removeprefix("go on: "))  # as it stands
        return "done"

    async with opened(window=16_000, reserve=1_000) as session:
        model = ScriptedModel(script)
        agent = Agent(
            session, model, tools=[*own(session, tmp_path), fetching(original)], rounds=60
        )
        assert (await agent.turn("Fetch it.")).how == "answered"
        assert len(pages) > 2
        assert "".join(pages) == original
        assert all(one.clip is None for one in (await results(session))[1:])


async def test_several_recalls_in_one_step_share_the_room(tmp_path):
    """Each is given what is left by then: not one of them is clipped."""
    original = "\n".join(LINES)
    many = [
        {"id": f"r{n}", "type": "function", "function": {"name": "recall", "arguments": '{"handle": "log:2"}'}}
        for n in range(4)
    ]  # fmt: skip

    async with opened(window=16_000, reserve=1_000) as session:
        await session.add("Look.")
        model = ScriptedModel([{"content": None, "tool_calls": many}, "done"])
        await session.add(original)
        agent = Agent(session, model, tools=own(session, tmp_path))
        assert (await agent.go_on()).how == "answered"
        found = await results(session)
        assert len(found) == 4
        assert all(one.clip is None for one in found)
        assert all(text_of(one.parts).startswith("[lines 1-") for one in found), text_of(
            found[0].parts
        )[:72_000]


async def test_a_picture_comes_back_as_a_picture(tmp_path):
    """Nothing lost: also what is no text is one recall away."""
    (tmp_path / "shot.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + bytes(8) + bytes([0, 0, 0, 40] * 2) + bytes(9)
    )
    model = ScriptedModel([calls("read", path="shot.png"), "done"])
    async with opened() as session:
        agent = Agent(session, model, tools=own(session, tmp_path))
        await agent.turn("Look at it.")
        ((seq, read),) = [
            one for one in await session.history.events() if isinstance(one.event, ToolReturned)
        ]
        recall = agent.tools["recall"]
        back = await recall.run({"handle": f"log:{seq}"})
        assert [type(part) for part in back.parts] == [Text, Media]
        assert back.parts[1] == read.parts[1]
        assert len((await recall.run({"handle": f"log:{seq}", "grep": "shot"})).parts) == 1


async def test_what_is_no_handle_is_the_result(tmp_path):
    async with opened() as session:
        await session.add("Hello.")
        tools = {tool.name: tool for tool in own(session, tmp_path)}
        recall = tools["recall"]
        for wrong, told in (
            ("log:999", "log:999 is beyond this session's log, which ends at"),
            ("the file", "'the file' is not a handle; write log:12"),
        ):
            result = await recall.run({"handle": wrong})
            assert not result.ok
            assert text_of(result.parts).startswith(told)
        result = await recall.run({"handle": "log:1", "head": 1, "tail": 1})
        assert "one way at a time" in text_of(result.parts)


async def test_search_history_finds_also_what_was_cut(tmp_path):
    async with opened() as session:
        tools = {tool.name: tool for tool in own(session, tmp_path)}
        await session.add("The deadline is the 14th of March, said Ann.")
        for n in range(12):
            await session.add(f"And {n}?")
            await session.add({"role": "assistant", "content": f"Answer {n}. " + "Well. " * 300})
        assert await session.fold() is not None
        search, recall = tools["search_history"], tools["recall"]
        answer = text_of((await search.run({"words": "DEADLINE march"})).parts)
        assert answer == 'recall("log:1"): The deadline is the 14th of March, said Ann.'
        back = await recall.run({"handle": answer.split(": ")[0]})
        assert text_of(back.parts) == "The deadline is the 14th of March, said Ann."
        lines = text_of((await search.run({"words": "well answer"})).parts).split("\n")
        assert len(lines) == 12
        assert lines[0].startswith('recall("log:25"): Answer 11. Well.')
        assert all(len(line) < 300 for line in lines)
        for n in range(6):
            await session.add(f"well, answer {n}")
        more = text_of((await search.run({"words": "well answer"})).parts).split("\n")
        assert (len(more), more[-1]) == (16, "[there are more; give further words]")
        nothing = text_of((await search.run({"words": "zebra"})).parts)
        assert nothing == "[no message has any of: zebra; try other words]"


async def test_search_history_leaves_out_the_question_and_joins_what_is_the_same(tmp_path):
    """The question that a person has just asked is no answer to it."""
    async with opened() as session:
        tools = {tool.name: tool for tool in own(session, tmp_path)}
        search = tools["search_history"]
        await session.add("My dog is named Rex, after my grandfather.")
        for _ in range(3):
            await session.add({"role": "assistant", "content": "Dogs like walks!"})
        await session.add("What was my dog named after?")
        answer = text_of((await search.run({"words": "what was my dog named after"})).parts)
        assert answer.split("\n") == [
            'recall("log:1"): My dog is named Rex, after my grandfather.',
            'recall("log:4"): Dogs like walks! [and 2 more alike]',
        ]
        alone = text_of((await search.run({"words": '"what was my dog"'})).parts)
        assert alone == 'recall("log:5"): What was my dog named after?'


async def test_all_schemas_together_are_small(tmp_path):
    """A model reads them on every call."""
    async with opened() as session:
        tools = own(session, tmp_path)
        names = ["read", "write", "edit", "list", "search", "shell", "recall", "search_history"]
        assert [tool.name for tool in tools] == names
        told = json.dumps([tool.offered for tool in tools], separators=(",", ":"))
        print(f"all schemas: {count_tokens(told)} tokens")
        assert count_tokens(told) < 900
        looking = own(session, tmp_path, write=False, shell=False)
        assert {tool.name for tool in looking if not tool.beside} == {"recall"}
        assert measure_recall_room(session.live.view, session.live.facts) > 10_000

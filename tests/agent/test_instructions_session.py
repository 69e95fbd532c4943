"""Instructions in a session: told piece by piece, changes at the tail, laid in front by a fold."""

import json
import re
from pathlib import Path

import pytest

import foldline
from foldline.agent.instructions import (
    Instructions,
    Trust,
    instruction_files,
    standing,
)
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool, said
from foldline.core.parts import text_of
from foldline.core.tokens import count_tokens
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    root = tmp_path / "home/work"
    for name in (".git", "a", "b"):
        (root / name).mkdir(parents=True)
    (root / "AGENTS.md").write_text("Root: use tabs.")
    (root / "a/AGENTS.md").write_text("In a: no prints.")
    (root / "b/AGENTS.md").write_text("In b: all typed.")
    return root


def reading(root):
    async def run(arguments):
        return said(f"{arguments['path']}: nothing in it")

    return Tool(
        name="read",
        description="read",
        schema={"type": "object"},
        run=run,
        touches=lambda arguments: [root / arguments["path"]],
    )


def call(path, at):
    told = {"name": "read", "arguments": json.dumps({"path": path})}
    return {"content": None, "tool_calls": [{"id": f"c{at}", "type": "function", "function": told}]}


async def trusting(root, trust=None):
    found = Instructions(root, trust=trust or Trust(), base="You are careful.")
    await found.answers.allow_folder(root)
    await found.load_files()
    return found


def notes(request):
    """What the system said in the midst of a request."""
    return [one["content"] for one in request["messages"][1:] if one["role"] == "system"]


def begins(later, earlier):
    """Whether every byte of an earlier request's messages stands at the front of a later one's."""
    before, after = (json.dumps(one["messages"], ensure_ascii=False) for one in (earlier, later))
    return after.startswith(before.removesuffix("]"))


async def test_r60_a_change_is_told_at_the_tail_by_itself_and_no_earlier_byte_is_another(root):
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        model = ScriptedModel(lambda _: "ok")
        agent = Agent(
            session, model, instructions=found.render_texts, hooks=[found.track_touched_paths]
        )
        await agent.turn("one")
        (root / "AGENTS.md").write_text("Root: use spaces.")
        await agent.turn("two")
        await agent.turn("three")
        first, second, third = model.requests
        assert begins(second, first)
        assert begins(third, second)
        assert notes(first) == []
        (note,) = notes(third)
        assert note.splitlines() == [
            "[changed instructions, from here on, each instead of what had its name]",
            "[instructions: AGENTS.md]",
            "Root: use spaces.",
        ]
        assert "use tabs" in first["messages"][0]["content"]


async def test_r60_after_the_next_fold_the_documented_order_stands_in_front(root):
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        script = iter([call("b/x.py", 0), call("a/x.py", 1), *["ok " * 3_000] * 8])
        model = ScriptedModel(lambda _: next(script))
        agent = Agent(
            session,
            model,
            tools=[reading(root)],
            instructions=found.render_texts,
            hooks=[found.track_touched_paths],
        )
        await agent.turn("look")
        (root / "AGENTS.md").write_text("Root: use spaces.")
        for at in range(4):
            await agent.turn(f"turn {at}")
        before = model.requests[-1]
        assert len(notes(before)) == 3  # b, a, and the change
        assert "In a" not in before["messages"][0]["content"]
        assert await session.fold()
        await agent.turn("and now")
        after = model.requests[-1]
        assert notes(after) == []
        wanted = "\n".join(found.render_texts())
        assert text_of(session.live.view.instructions.parts) == wanted
        front = after["messages"][0]["content"]
        places = [front.index(one) for one in ("You are", "spaces", "In a", "In b")]
        assert places == sorted(places)
        assert "tabs" not in json.dumps(after)


async def test_r60_a_removed_file_is_said_to_hold_no_longer(root):
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        model = ScriptedModel(lambda _: "ok")
        agent = Agent(session, model, instructions=found.render_texts)
        await agent.turn("one")
        (root / "AGENTS.md").unlink()
        await agent.turn("two")
        assert begins(model.requests[1], model.requests[0])
        assert notes(model.requests[1]) == ["[no longer in force: AGENTS.md]"]


async def test_r60_a_nested_file_is_told_once_its_folder_is_touched_and_only_then(root):
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        script = iter([call("b/x.py", 0), call("b/y.py", 1), "done"])
        model = ScriptedModel(lambda _: next(script))
        agent = Agent(
            session,
            model,
            tools=[reading(root)],
            instructions=found.render_texts,
            hooks=[found.track_touched_paths],
        )
        await agent.turn("look")
        first, second, third = model.requests
        assert "In b" not in json.dumps(first)
        assert begins(second, first)
        assert begins(third, second)
        assert len(notes(third)) == 1
        assert "In b: all typed." in notes(third)[0]
        assert "use tabs" not in notes(third)[0]


async def test_a_file_that_a_tool_writes_into_a_new_folder_is_told_next(root):
    async def run(_):
        (root / "new").mkdir()
        (root / "new/AGENTS.md").write_text("In new: be brief.")
        return said("written")

    tool = Tool(
        name="read",
        description="write",
        schema={},
        run=run,
        touches=lambda arguments: [root / arguments["path"]],
    )
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        script = iter([call("new/AGENTS.md", 0), "done"])
        model = ScriptedModel(lambda _: next(script))
        agent = Agent(
            session,
            model,
            tools=[tool],
            instructions=found.render_texts,
            hooks=[found.track_touched_paths],
        )
        await agent.turn("write")
        assert "In new: be brief." in notes(model.requests[-1])[0]


async def test_r60_a_session_that_is_opened_again_is_told_nothing_twice(root, tmp_path):
    trust, path = Trust(), str(tmp_path / "chat.db")
    for at in range(2):
        async with foldline.aopen(path, model="scripted", window=128_000) as session:
            found = await trusting(root, trust)
            found.restore_nested_folders(
                text_of((part,)) for part in session.live.view.newest.parts
            )
            script = iter([*([call("b/x.py", 0)] if at == 0 else []), "done"])
            model = ScriptedModel(lambda _, script=script: next(script))
            agent = Agent(
                session,
                model,
                tools=[reading(root)],
                instructions=found.render_texts,
                hooks=[found.track_touched_paths],
            )
            await agent.turn("go on")
    assert len(notes(model.requests[-1])) == 1


async def test_a06_memory_and_instructions_are_counted_in_the_fixed_part(root):
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        found.remember_line("Answer in German")
        await session.instruct(system=found.render_texts())
        await session.add("hello")
        sent = await session.request()
        assert "Answer in German" in sent["messages"][0]["content"]
        told = sum(map(count_tokens, found.render_texts()))
        assert told == count_tokens(found.base) + sum(entry.tokens for entry in found.list_files())
        assert session.report.parts["system"] >= told


async def test_touches_that_cannot_be_told_are_left_to_the_tool_to_complain_of(root):
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await trusting(root)
        bad = call("", 0)
        bad["tool_calls"][0]["function"]["arguments"] = "{}"
        script = iter([bad, "done"])
        model = ScriptedModel(lambda _: next(script))
        agent = Agent(
            session,
            model,
            tools=[reading(root)],
            instructions=found.render_texts,
            hooks=[found.track_touched_paths],
        )
        assert (await agent.turn("look")).how == "answered"


DOCS = (Path(__file__).parents[2] / "docs/how-to/instructions.md").read_text()


async def test_the_page_on_instructions_tells_the_truth(root, capsys):
    """Its code runs; the notes it shows are those that a model is sent."""
    code = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    space = {}
    exec(code[0], space)  # noqa: S102 - our own page
    cut, changed = re.findall(r"```text\n(.*?)\n```", DOCS, re.DOTALL)
    (root / "AGENTS.md").write_text("Use tabs. Never " + "x" * 2_032)
    async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
        found = await space["begin"](session, root)
        assert capsys.readouterr().out.startswith("AGENTS.md\n2048\nUse tabs.")
        small = Instructions(root, trust=found.answers, limit=len(cut.encode()) + 3)
        await small.answers.allow_folder(root)
        assert small.render_texts() == [cut]
        model = ScriptedModel(lambda _: "ok")
        agent = Agent(
            session, model, instructions=found.render_texts, hooks=[found.track_touched_paths]
        )
        await agent.turn("one")
        (root / "AGENTS.md").write_text("Use spaces.")
        await agent.turn("two")
        assert notes(model.requests[1]) == [changed]
        (root / "AGENTS.md").unlink()
        await agent.turn("three")
        assert notes(model.requests[2])[1] in DOCS


def test_the_page_on_instructions_has_the_numbers_and_names_of_the_code():
    for name in (
        *instruction_files.NAMES,
        *instruction_files.REPOSITORIES,
        *instruction_files.PROJECTS,
        *instruction_files.STRANGE,
    ):
        assert f"`{name}`" in DOCS
    assert f"{standing.TOKENS:,} tokens" in DOCS
    assert f"{standing.BYTES // 1024} KiB" in DOCS
    assert f"about {standing.MEMORY_TOKENS} tokens" in DOCS
    assert f"{instruction_files.DEPTH} files deep and {instruction_files.FILES} in all" in " ".join(
        DOCS.split()
    )

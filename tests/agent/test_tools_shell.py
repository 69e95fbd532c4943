"""`shell`: real processes, what they leave, what they are told."""

import asyncio
import gc
import os
import subprocess
import time
from uuid import uuid4

import pytest

import foldline
from foldline.agent.loop import Agent
from foldline.agent.tools import own, shell
from foldline.agent.tools.read_files import Root
from foldline.core.ledger.entries import parse_outcome
from foldline.core.log import Interrupted, ToolReturned
from foldline.core.parts import text_of
from foldline.errors import BadInput
from foldline.testing import ScriptedModel


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


def run(root, command, **more):
    result = asyncio.run(shell.build_shell_tool(root).run({"command": command, **more}))
    return text_of(result.parts), result.ok


def left(mark):
    """The processes that have a word of ours in their command line."""
    listed = subprocess.run(["/bin/ps", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True)  # fmt: skip
    lines = [line for line in listed.stdout.splitlines() if mark in line]
    return [line for line in lines if line.split()[1][0] != "Z"]


def test_what_it_prints_comes_in_order_with_its_status_last(root):
    command = "echo one; echo two >&2; echo three; pwd"
    assert run(root, command) == (f"one\ntwo\nthree\n{root.path}\n[exit status 0]", True)
    assert run(root, "printf half; exit 3") == ("half\n[exit status 3]", False)
    assert run(root, "true") == ("[exit status 0]", True)
    assert run(root, "kill -9 $$") == ("[exit status -9]", False)
    assert run(root, "nothere")[0].endswith("[exit status 127]")
    assert run(root, "printf '\\xff\\xfeok'") == ("\ufffd\ufffdok\n[exit status 0]", True)


def test_the_ledger_reads_the_status():
    """What a fold tells of a command rests on this line."""
    for status in (0, 3, 127, -9):
        told = parse_outcome(f"x\n[exit status {status}]", ok=True, shell=True)  # noqa: S604 - only read
        assert told.exit == status


def test_there_is_no_input_to_wait_for(root):
    assert run(root, "cat; read x || echo none", timeout=5) == ("none\n[exit status 0]", True)


def test_arguments_that_make_no_sense_are_said(root):
    for wrong in ({"command": "  "}, {"command": "ls", "timeout": 0}, {"cmd": "ls"}):
        with pytest.raises(BadInput):
            asyncio.run(shell.build_shell_tool(root).run(wrong))


@pytest.mark.real
@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["plain", "ignores SIGTERM"])
def test_a_timeout_ends_the_whole_group_and_keeps_what_was_printed(root, trap, timed):
    mark = f"31{uuid4().int % 10**8}"
    command = f"{trap}echo begun; (sleep {mark} & sleep {mark} | sleep {mark}) & sleep {mark}"
    begun = time.monotonic()
    text, ok = run(root, command, timeout=2)
    assert time.monotonic() - begun - 2 <= timed(1.5)
    assert (text, ok) == ("begun\n[killed: it did not end within 2 s]", False)
    assert left(mark) == []


@pytest.mark.real
def test_no_call_takes_longer_than_its_maker_allows(root):
    tool = shell.build_shell_tool(root, most=0.3)
    assert text_of(asyncio.run(tool.run({"command": "sleep 9", "timeout": 99})).parts) == (
        "[killed: it did not end within 0.3 s]"
    )
    assert "most 0.3" in str(tool.schema)


@pytest.mark.real
def test_what_is_left_in_the_background_is_ended(root, timed):
    mark = f"32{uuid4().int % 10**8}"
    begun = time.monotonic()
    text, ok = run(root, f"sleep {mark} & echo started")
    assert time.monotonic() - begun < timed(2)
    assert (text, ok) == ("started\n[what it left running was ended]\n[exit status 0]", True)
    assert left(mark) == []


@pytest.mark.real
def test_r22_stopped_by_a_person_it_ends_at_once_and_tells_what_it_printed(root, timed):
    """R-22, R-53: the group is gone within a second, and the log has what was printed."""
    mark = f"33{uuid4().int % 10**8}"

    async def talk():
        async with foldline.aopen(":memory:", model="scripted", window=128_000) as session:
            call = {"name": "shell", "arguments": f'{{"command": "echo so far; sleep {mark}"}}'}
            message = {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": call}]}  # fmt: skip

            async def yes(*_):
                return None

            agent = Agent(
                session, ScriptedModel([message]), tools=own(session, root.path), approve=yes
            )
            turn = asyncio.ensure_future(agent.turn("Wait."))
            for _ in range(500):
                if await asyncio.to_thread(left, mark):
                    break
                await asyncio.sleep(0.02)
            begun = time.monotonic()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            assert time.monotonic() - begun < timed(1.5)
            assert await asyncio.to_thread(left, mark) == []
            return [event for _, event in await session.history.events()]

    events = asyncio.run(talk())
    (result,) = [event for event in events if isinstance(event, ToolReturned)]
    assert text_of(result.parts) == "so far\n[killed: stopped by the user]"
    assert not result.ok
    assert not any(isinstance(event, Interrupted) for event in events)


@pytest.mark.real
def test_a_command_that_was_ended_is_known_to_have(root, monkeypatch):
    """The loop hears of it from a thread, perhaps late: one that ends next leaves nobody behind."""
    waitpid = os.waitpid

    def late(*given):
        found = waitpid(*given)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(os, "waitpid", late)
    _, ok = run(root, "sleep 30", timeout=0.1)
    assert not ok
    gc.collect()  # what still runs, as far as it is known, is told by a warning, which is an error


@pytest.mark.real
def test_output_without_end_is_held_within_its_bound(root, monkeypatch):
    monkeypatch.setattr(shell, "KEPT", 100_000)
    text, ok = run(root, "echo first; yes | head -c 30000000; echo last")
    assert ok
    assert len(text) < 101_000
    assert text.startswith("first\ny\n")
    assert text.endswith("y\nlast\n[exit status 0]")
    assert "\n[29,900,011 bytes of output are not kept]\n" in text
    text, ok = run(root, "yes", timeout=0.5)
    assert not ok
    assert len(text) < 101_000


def test_output_takes_no_more_memory_than_its_bound():
    output = shell._Output(1_000_000)
    for _ in range(1_000):
        output.add_chunk(b"x" * 65_536)
        assert len(output._first) + len(output._last) <= 1_600_000
    assert "[64,536,000 bytes of output are not kept]" in output.render_text()


def test_a_command_is_given_none_of_our_secrets(root, monkeypatch):
    gone = (
        *("OPENAI_API_KEY", "GH_TOKEN", "MY_SECRET", "FOLDLINE_STORE", "AWS_SECRET_ACCESS_KEY"),
        *("token", "DB_PASSWORD", "API_KEYS"),
    )
    for name in (*gone, "KEYBOARD", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "value-of-it")
    text, _ = run(root, "env")
    assert not {line.split("=")[0] for line in text.split("\n")} & {*gone}
    assert "KEYBOARD=value-of-it" in text
    assert "TOKENIZERS_PARALLELISM=value-of-it" in text
    assert f"PATH={os.environ['PATH']}" in text
    assert "GH_TOKEN" in shell.build_environment({"GH_TOKEN": "x"}, keep=["GH_TOKEN"])


def test_an_intent_shows_all_of_a_command(root):
    tool = shell.build_shell_tool(root)
    intent = tool.intent({"command": "cat > src/a.py <<'E'\nx\nE"})
    assert intent.what == "run cat > src/a.py <<'E' … (3 lines)"
    assert intent.detail == "cat > src/a.py <<'E'\nx\nE"
    assert tool.touches({"command": "cat > src/a.py <<'E'\nx\nE"}) == [
        root.path,
        root.path / "src/a.py",
    ]
    assert not tool.beside

"""What a person sees of a turn: output, changes, reasoning, retries, questions, cost, records."""

import asyncio
import re
import runpy
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.agent.approval import Approvals
from foldline.agent.tool import Tool, output_watcher, report_output, said
from foldline.agent.tools import own
from foldline.agent.tools.shell import run_shell_command
from foldline.apps.chat.approval_prompt import wrap_at_dots
from foldline.apps.chat.live_output import TurnOutput
from foldline.dialects.base import DIALECTS, get_dialect
from foldline.dialects.provider_errors import Fault
from foldline.dialects.sse import SseReader
from foldline.draw.wording import measure_width
from foldline.models.retries import Patience
from foldline.session.ledger import SessionLedger
from foldline.testing import ScriptedModel
from foldline.testing.provider import written

pytestmark = pytest.mark.anyio
REPL = runpy.run_path(str(Path(__file__).with_name("test_repl.py")))
ENTER, sitting, calls = REPL["ENTER"], REPL["sitting"], REPL["calls"]
CTRL_O = "\x0f"


@pytest.fixture
def anyio_backend():
    return "asyncio"


def live(one):
    """What is drawn again and again."""
    shown = one.line._live
    return shown if isinstance(shown, str) else shown()


class Printer:
    """A tool that prints until it may end."""

    def __init__(self, whole):
        self.whole, self.end = whole, asyncio.Event()

    @property
    def tool(self):
        """As the model is offered it."""
        return Tool(name="work", description="Works.", schema={"type": "object"}, run=self.run)

    async def run(self, _):
        """Print, and wait."""
        report_output(self.whole)
        await self.end.wait()
        return said(self.whole)


async def test_c4_output_is_seen_while_it_comes_bounded_and_whole_by_a_key():
    printer = Printer("".join(f"line {at}\n" for at in range(200)))
    async with sitting([calls(("work", {})), "done"], tools=[printer.tool]) as one:
        one.keys.send_text(f"go{ENTER}")
        await one.until(lambda: "line 199" in live(one))
        assert "line 190" not in live(one), "the end of it, and no more"
        assert "running" in live(one)
        printer.end.set()
        text = await one.sees("done", "response:")
        assert "  │ line 0\n" in text
        assert "… 191 more lines · Ctrl-O shows it" in text
        assert text.count("  │ ") == 10
        one.keys.send_text(CTRL_O)
        shown = await one.sees("▼ output of work(), 200 lines", "line 199\n")
        assert all(f"  line {at}\n" in shown for at in range(200))
        await one.enters("/expand 1", "line 100\n")
        await one.enters("/expand 7", "nothing was folded away here")


PRINTED = st.text(st.sampled_from("ab\n\n\r\t\x1b[31m\x07\u202e漢é"), max_size=400)


@given(PRINTED, st.integers(20, 120))
def test_c4_whatever_a_tool_prints_is_bounded_safe_and_kept_whole(text, columns):
    class Face:
        rows, expands = 30, "Ctrl-O"

        def refresh(self):
            """Nothing is drawn."""

    Face.columns = columns
    output = TurnOutput(Face(), None)
    rows = output.render_output("work()", text)
    assert len(rows) <= 10
    assert all(measure_width(row) <= columns and "\x1b" not in row for row in rows)
    assert not output.hidden or output.hidden[-1].text == text
    lines = text.rstrip("\n").split("\n")
    is_cut = len(lines) > 10 or any("…" in row for row in rows)
    assert bool(output.hidden) == (len(rows) > 0 and is_cut)
    output.show_output(text * 50, of="work")
    drawn = output._render_live_text().split("\n")
    assert len(drawn) <= Face.rows - 8
    assert all(measure_width(row) <= columns for row in drawn)


async def test_c4_a_command_reports_what_it_prints_while_it_runs(tmp_path):
    heard = []
    output_watcher.set(heard.append)
    command = "printf 'caf\\303'; sleep 0.3; printf '\\251\\n'; sleep 0.3; echo end"
    result = await run_shell_command(command, tmp_path, 10, {"PATH": "/usr/bin:/bin"})
    assert "".join(heard) == "café\nend\n", "a letter in two pieces is one"
    assert len(heard) >= 2
    assert result.parts[0].text.startswith("".join(heard))


def edits(path, old, new):
    return calls(("edit", {"path": path, "old": old, "new": new}))


async def test_c4_a_change_is_seen_in_colours_asked_about_or_not(tmp_path, monkeypatch):
    monkeypatch.setattr("foldline.apps.cli.output.has_colours", lambda: True)
    (tmp_path / "a.py").write_text("".join(f"line {at}\n" for at in range(40)))
    many = "".join(f"new {at}\n" for at in range(40))
    script = [edits("a.py", "line 5\n", "changed\n"), "one", edits("a.py", "line 20\n", many), "two"]  # fmt: skip
    async with sitting(script) as one:
        agent, session = one.talk.seat.agent, one.session
        agent.tools = {tool.name: tool for tool in own(session, tmp_path)}
        approvals = Approvals(session.live.store, "local", root=tmp_path, ask=one.talk._ask_approval, mode="edits")  # fmt: skip
        agent.approve = approvals
        text = await one.enters("go", "response:")
        assert "\x1b[31m  │ -line 5\x1b[0m" in text
        assert "\x1b[32m  │ +changed\x1b[0m" in text
        assert "\x1b[2m  │ --- a/a.py\x1b[0m" in text, "the name of a file is nothing removed"
        approvals.mode = "ask"
        one.keys.send_text(f"more{ENTER}")
        await one.asked()
        await one.sees("+new 0", "◇ edit a.py at line 21")
        text = await one.enters("y", "two", "response:")
        assert "+new" not in text, "who has just seen a change is not shown it again"
        approvals.mode = "edits"
    assert (tmp_path / "a.py").read_text().count("new ") == 40


async def test_c4_a_long_change_that_nobody_is_asked_about_is_bounded(tmp_path):
    many = "".join(f"new {at}\n" for at in range(100))
    async with sitting([calls(("write", {"path": "a.py", "content": many})), "ok"]) as one:
        agent, session = one.talk.seat.agent, one.session
        agent.tools = {tool.name: tool for tool in own(session, tmp_path)}
        agent.approve = Approvals(session.live.store, "local", root=tmp_path, ask=None, mode="all")
        text = await one.enters("go", "response:")
        assert "● write(a.py) · " in text
        assert "more lines · Ctrl-O shows it" in text
        assert "new 90" not in text
        one.keys.send_text(CTRL_O)
        await one.sees("▼ change by write(a.py)", "+new 99")


async def test_c9_the_line_says_that_it_waits_for_an_answer(tmp_path):
    script = [calls(("shell", {"command": "echo hello"})), "done"]
    async with sitting(script) as one:
        agent, session = one.talk.seat.agent, one.session
        agent.tools = {tool.name: tool for tool in own(session, tmp_path)}
        agent.approve = Approvals(session.live.store, "local", root=tmp_path, ask=one.talk._ask_approval)  # fmt: skip
        one.keys.send_text(f"go{ENTER}")
        await one.asked()
        assert "? waiting for your answer: run echo hello" in live(one)
        assert "thinking" not in live(one)
        text = await one.enters("y", "response:")
        assert "  │ hello\n" in text
        assert "│ echo hello" not in text, "it stands in the question already"


async def test_c5_retries_are_told_as_such():
    faults = [Fault("rate", "slow down", retry_after=0.3), Fault("overloaded", "full house")]
    async with sitting([*faults, "well"]) as one:
        one.talk.seat.agent.patience = Patience(first=0.2)
        one.keys.send_text(f"go{ENTER}")
        await one.sees("↻ no answer: slow down · asked again in 0.3s")
        assert "waiting to ask again" in live(one)
        await one.sees("↻ no answer: full house · asked again in 0.4s", "well", "response:")


def reads_all(dialect, message):
    """What a dialect makes of a stream's reasoning and text."""
    lines, found = SseReader(), ["", ""]
    _, events = written(dialect.name, {"model": "m", "stream": True}, message, 10)
    for sent in lines.feed("".join(events).encode()):
        if sent.data.startswith("{"):
            body = msgspec.json.decode(sent.data)
            found = [found[0] + dialect.read_thought(body), found[1] + dialect.read_delta(body)]
    return found


@pytest.mark.parametrize("name", ["openai-chat", "anthropic", "gemini"])
def test_c5_reasoning_is_read_from_a_stream_apart_from_the_text(name):
    message = {"content": "The answer.", "reasoning": "I think about it."}
    assert reads_all(get_dialect(name), message) == ["I think about it.", "The answer."]


def test_c5_reasoning_of_other_dialects_streams():
    responses = get_dialect("openai-responses")
    delta = {"type": "response.reasoning_summary_text.delta", "delta": "hm"}
    assert (responses.read_thought(delta), responses.read_delta(delta)) == ("hm", "")
    interactions = get_dialect("gemini-interactions")
    summary = {"type": "thought_summary", "content": {"type": "text", "text": "hm"}}
    body = {"event_type": "step.delta", "delta": summary}
    assert (interactions.read_thought(body), interactions.read_delta(body)) == ("hm", "")
    assert {*DIALECTS} == {"openai-chat", "anthropic", "gemini", "openai-responses", "gemini-interactions"}  # fmt: skip


async def test_c5_reasoning_is_folded_away_and_opens():
    message = {"content": "Done.", "reasoning": "First this.\nThen that."}
    model = ScriptedModel([message], name="claude-sonnet-5.5")
    async with sitting(model=model) as one:
        text = await one.enters("go", "response:")
        assert re.search(r"◌ thought.* · \d+ tokens · Ctrl-O shows it\n", text)
        assert text.count("◌") == 1
        assert "Then that." not in text
        one.keys.send_text(CTRL_O)
        await one.sees("▼ reasoning, ", "  First this.\n  Then that.\n")


async def test_c4_the_cost_is_right_when_the_prompt_returns():
    model = ScriptedModel(lambda _: "an answer", name="gpt-5")
    async with sitting(model=model) as one:
        for _ in range(3):
            await one.enters("go", "response:")
            shown = one.talk.ledger.sum_charges().known_dollars
            counted = SessionLedger(one.session)
            assert (await counted.catch_up()).dollars == shown > 0


async def test_c4_the_record_is_readable_after_a_fold():
    async with sitting(lambda _: "It stays as agreed. " * 200, window=6_000) as one:
        text = ""
        for turn in range(12):
            text = await one.enters(f"turn {turn}", "response:")
            if "◆ Folded: " in text:
                break
        assert "Ctrl-O shows the record" in text
        one.keys.send_text(CTRL_O)
        await one.sees("▼ the record of log:0-", "[handoff: log:", "# The user said")


async def test_an_own_command_is_seen_while_it_runs():
    async with sitting() as one:
        one.keys.send_text(f"!echo early; sleep 1; echo late{ENTER}")
        await one.until(lambda: "early" in live(one))
        assert "late" not in live(one).replace("echo late", "")
        await one.asked()
        await one.enters("n", "[y/N] n\n")


@given(st.text(st.sampled_from("ab ·é漢"), max_size=120), st.integers(10, 60))
def test_a_remark_is_wrapped_and_nothing_of_it_is_lost(text, columns):
    rows = wrap_at_dots(text, columns)
    assert re.sub(r"[ ·]", "", "".join(rows)) == re.sub(r"[ ·]", "", text)

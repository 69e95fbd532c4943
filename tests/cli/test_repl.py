"""The terminal of `foldline chat`, driven by keys: a real line, a real session, a scripted model."""

import asyncio
import json
import re
import stat
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from summary_prompts import FALSE, PROMPTS, TRUE, prose, talked

import foldline
from foldline.agent.approval import No, Yes
from foldline.agent.loop import Agent
from foldline.agent.tool import Intent, Tool, said
from foldline.apps.chat.approval_prompt import ask_approval
from foldline.apps.chat.chat_loop import PersonLeft, SessionChange, Talk
from foldline.apps.chat.chat_parts import ChatSeat
from foldline.apps.chat.input_line import InputLine
from foldline.core.edits.fold.handoff import PROSE
from foldline.core.log import Interrupted, ModelSaid, UserSaid
from foldline.core.parts import Call, text_of
from foldline.core.policy import CONFIRM, STEADY
from foldline.dialects.provider_errors import Fault
from foldline.draw.wording import measure_width
from foldline.errors import Busy, Spent, StoreFailed, Vetoed
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.testing import ScriptedModel, Trouble

pytestmark = pytest.mark.anyio
ONCE = Patience(tries=1)
CTRL_C, CTRL_D, ALT_ENTER, ENTER = "\x03", "\x04", "\x1b\r", "\r"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Screen(DummyOutput):
    """What is written above the line, and nothing of what is drawn again and again."""

    def __init__(self, columns=100):
        self.text, self.size = "", Size(rows=30, columns=columns)

    def write_raw(self, data):
        """Keep it, without what only draws at once."""
        self.text += re.sub(r"\x1b\[\?2026[hl]", "", data).replace("\r\n", "\n")

    def get_size(self):
        """As it was made."""
        return self.size


@dataclass
class Sitting:
    """A person at the terminal."""

    keys: Any
    screen: Screen
    line: InputLine
    talk: Talk
    work: asyncio.Task

    @property
    def session(self):
        """The session that is talked with."""
        return self.talk.session

    @property
    def model(self):
        """Who answers."""
        return self.talk.seat.agent.model

    async def sees(self, *words, seconds=30.0):
        """Wait until all of it was written, then forget it; gives what was written."""
        until = time.monotonic() + seconds
        while not all(word in self.screen.text for word in words):
            if time.monotonic() > until:
                raise AssertionError(f"{words} was not written:\n{self.screen.text}")
            await asyncio.sleep(0.01)
        text, self.screen.text = self.screen.text, ""
        return text

    async def enters(self, text, *words):
        """Type a line, and wait for what is written then."""
        self.keys.send_text(f"{text}{ENTER}")
        return await self.sees(*words) if words else ""

    async def until(self, what):
        """Wait until something is so."""
        for _ in range(3_000):
            if what():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not happen")

    async def asked(self):
        """Wait for a question."""
        await self.until(lambda: self.line._question is not None)


@asynccontextmanager
async def sitting(script=("ok",), *, columns=100, store=":memory:", tools=(), model=None, **more):
    given = {"model": model.name if model else "scripted", "window": 10_000, **more}
    async with foldline.aopen(store, **given) as session:
        with create_pipe_input() as keys:
            screen = Screen(columns)
            line = InputLine(input=keys, output=screen)
            scripted = model or ScriptedModel(script)
            agent = Agent(session, scripted, tools=tools, patience=ONCE)
            talk = Talk(
                ChatSeat(agent=agent, models=lambda name: ScriptedModel(["new"], name=name)), line
            )
            shown = asyncio.create_task(line.run())
            work = asyncio.create_task(talk.run())
            one = Sitting(keys, screen, line, talk, work)
            try:
                await one.until(lambda: line.words is not None)
                yield one
            finally:
                work.cancel()
                line.close()
                await asyncio.gather(work, shown, return_exceptions=True)


def messages(model):
    return [one["messages"][-1]["content"] for one in model.requests]


async def test_a42_a_turn_and_the_line_after_it():
    async with sitting(["A **bold** word.\n\nAnd a second block."]) as one:
        text = await one.enters("hello", "response:")
        assert "❯ hello" in text
        assert "A bold word.\n\nAnd a second block.\n" in text
        used = one.session.report.total
        share = round(100 * used / 10_000, 1)
        assert re.search(
            rf"^\[tokens: {used:,} / 10,000 \({share}%\) \| response: \d+ tokens\]$",
            text,
            re.MULTILINE,
        )
        assert messages(one.model) == ["hello"]


async def test_a43_the_usage_in_both_forms():
    async with sitting(["one", "two"]) as one:
        await one.enters("hello", "response:")
        await one.enters("again", "response:")
        text = await one.enters("/tokens", "threshold")
        used = one.session.report.total
        assert f"📊 Tokens: {used}/10000 ({100 * used / 10_000:.0f}% used)\n" in text
        assert "📊 Context Usage:\n" in text
        assert f"Used: {used:,} / 10,000 tokens ({100 * used / 10_000:.1f}%)\n" in text
        for word in ("Latest turn: ", "Avg turn: ", "Estimated turns remaining: ~"):
            assert word in text
        assert re.search(r"Compaction threshold: \d+%", text)
        assert len(one.model.requests) == 2, "commands never reach the model"


async def test_a45_every_command_answers_and_none_reaches_the_model():
    async with sitting(["one"]) as one:
        await one.enters("hello", "response:")
        for command, words in (
            ("/context", "as last sent"),
            ("/cost", "1 call"),
            ("/compaction-status", "breaker"),
            ("/instructions", "none"),
            ("/tools", "none"),
            ("/history", "1 turn,"),
            ("/help", "/compaction-status"),
            ("/search hello", "log:1"),
            ("/recall log:1", "hello"),
            ("/compact --preview", "nothing to fold"),
            ("/undo", "there is no edit to undo"),
            ("/redo", "nothing to make again"),
            ("/pin last", "pinned: log:1"),
            ("/unpin log:1", "nothing is pinned"),
            ("/exclude", "say what: /exclude"),
            ("/exclude folly", "is no place"),
            ("/carry", "the parts are summary, pins, files, facts"),
            ("/carry nobody", "nothing in a session 'nobody' to carry on from"),
            ("/carry main pictures", "there is no part 'pictures'"),
            ("/history --folds", "no folds"),
            ("/model", "scripted"),
            ("/remember x", "no memory file"),
            ("/toknes", "did you mean /tokens"),
            ("/recall nonsense", "handle"),
        ):
            text = await one.enters(command, words)
            assert "Traceback" not in text
        assert len(one.model.requests) == 1


async def test_two_slashes_say_something_that_begins_with_one():
    async with sitting(["one"]) as one:
        await one.enters("//etc is a folder", "response:")
        assert messages(one.model) == ["/etc is a folder"]


async def filled(one, turns=12):
    for turn in range(turns):
        await one.session.add(f"turn {turn}: " + "words about the parser " * 60)
        await one.session.add({"role": "assistant", "content": f"answer {turn} " + "fine " * 60})
    one.talk.reset_picture()


async def test_a36_compact_by_hand_then_undo_and_redo():
    async with sitting(["one"]) as one:
        await filled(one)
        total = one.session.report.total
        text = await one.enters("/compact --preview", "nothing was written")
        assert "tokens become" in text
        assert one.session.edits == []
        one.keys.send_text(f"/compact{ENTER}")
        await one.asked()
        assert one.line._question[0] == (
            f"Context: {total:,}/10,000 ({100 * total / 10_000:.0f}%). Compact conversation? [y/N] "
        )
        await one.enters("", "nothing was folded")
        assert one.session.edits == []
        one.keys.send_text(f"/compact the parser{ENTER}")
        await one.asked()
        text = await one.enters("y", "[tokens: ")
        assert f"{total:,} tokens became " in text
        assert "messages stay verbatim" in text or "answers" in text
        assert len(one.session.edits) == 1
        folded = one.session.report.total
        assert folded < total
        await one.enters("/undo", f"{folded:,} tokens became {total:,}")
        assert one.session.edits == []
        await one.enters("/redo", f"{total:,} tokens became {folded:,}")
        assert len(one.session.edits) == 1


SUMMARY = f"Here is the summary:\n\n{prose(*TRUE, FALSE[0])}"


def telling(answer):
    teller = ScriptedModel(lambda _: answer)
    return Tellers((teller,), ONCE, template=PROMPTS["aim"])


def flat(text):
    """Without the breaks of a terminal's lines."""
    return " ".join(text.split())


async def test_compact_shows_the_summary_and_then_the_usage():
    """P5-21, P5-22."""
    async with sitting(["one"], summarizer=telling(SUMMARY), window=20_000) as one:
        await talked(one.session)
        one.talk.reset_picture()
        one.keys.send_text(f"/compact{ENTER}")
        await one.asked()
        text = flat(await one.enters("y", "[tokens: "))
        edit = one.session.edits[-1]
        whole = await one.enters(f"/recall log:{edit}", f"# {PROSE}")
    places = [text.index(words) for words in (PROSE, *TRUE, "1 of 5 lines left out: not proven",
              "tokens became", f"/recall log:{edit} shows the record", "[tokens: ")]  # fmt: skip
    assert places == sorted(places)
    assert FALSE[0] not in text
    assert TRUE[3] in flat(whole)


async def test_compact_says_why_there_is_no_summary():
    """P1-31."""
    async with sitting(["one"], summarizer=telling(Fault("auth", "no key")), window=20_000) as one:
        await talked(one.session)
        one.talk.reset_picture()
        one.keys.send_text(f"/compact{ENTER}")
        await one.asked()
        text = flat(await one.enters("y", "[tokens: "))
    assert "without a narrative, asking for it failed: " in text
    assert PROSE not in text


async def test_a36_ask_mode_asks_after_every_answer_while_above():
    policy = replace(CONFIRM, soft=0.5)
    async with sitting(["one", "two", "three"], policy=policy, window=4_000) as one:
        for turn in range(7):
            await one.session.add(f"turn {turn}: " + "words about the parser " * 60)
            await one.session.add({"role": "assistant", "content": "fine " * 20})
        for said in ("hello", "again"):
            one.keys.send_text(f"{said}{ENTER}")
            await one.asked()
            used = one.session.report.total
            assert one.line._question[0] == (
                f"⚠ Context usage at {100 * used / 4_000:.0f}% ({used:,}/4,000 tokens). "
                "Compact conversation? [y/N] "
            )
            await one.enters("n", "[y/N] n")
            assert one.session.edits == []
        one.keys.send_text(f"third{ENTER}")
        await one.asked()
        await one.enters("y", "tokens became")
        assert len(one.session.edits) == 1


async def test_a43_a_fold_is_seen():
    async with sitting(lambda _: "ok", window=2_000, reserve=100) as one:
        text = ""
        for turn in range(12):
            text += await one.enters(f"turn {turn}: " + "words about it " * 60, "response:")
        assert re.search(r"◆ Folded: [\d,]+ → [\d,]+ tokens", text)
        assert "/undo takes it back" in text


async def test_r53_ctrl_c_stops_an_answer_and_keeps_what_was_said(timed):
    def script(request):
        return Trouble.TIMEOUT if "long" in str(request["messages"][-1]["content"]) else "short"

    async with sitting(script) as one:
        one.keys.send_text(f"a long one{ENTER}")
        await one.until(lambda: one.model.requests)
        begun = time.monotonic()
        one.keys.send_text(CTRL_C)
        await one.sees("stopped")
        assert time.monotonic() - begun < timed(1.0)
        await one.enters("next", "short", "response:")
        events = [event for _, event in await one.session.history.events()]
        assert [text_of(e.parts) for e in events if isinstance(e, UserSaid)] == [
            "a long one",
            "next",
        ]


async def test_r53_words_that_were_heard_before_ctrl_c_are_kept():
    class Slow(ScriptedModel):
        async def say(self, request, *, heard=None):
            self.requests.append(request)
            heard("the beginning\n\nof")
            await asyncio.Event().wait()

    async with sitting(model=Slow()) as one:
        one.keys.send_text(f"hello{ENTER}")
        await one.sees("the beginning")
        one.keys.send_text(CTRL_C)
        text = await one.sees("stopped")
        assert "of\n" in text, "what was not finished stays too"
        events = [event for _, event in await one.session.history.events()]
        (answer,) = (event for event in events if isinstance(event, ModelSaid))
        assert (text_of(answer.parts), answer.stop) == ("the beginning\n\nof", "cancelled")


async def test_what_is_entered_during_an_answer_is_sent_after_it():
    model = ScriptedModel(["first", "second"], delay=0.3)
    async with sitting(model=model) as one:
        one.keys.send_text(f"hello{ENTER}")
        await one.until(lambda: model.requests)
        one.keys.send_text(f"and then{ENTER}half a li")
        await one.sees("first", "second")
        assert messages(model) == ["hello", "and then"]
        assert one.line.buffer.text == "half a li"


async def test_c7_ctrl_c_puts_what_was_queued_back_on_the_line():
    async with sitting([Trouble.TIMEOUT, "second"]) as one:
        one.keys.send_text(f"hello{ENTER}")
        await one.until(lambda: one.model.requests)
        one.keys.send_text(f"and then{ENTER}and last{ENTER}half a li")
        await one.until(lambda: one.line.buffer.text == "half a li")
        one.keys.send_text(CTRL_C)
        await one.sees("stopped")
        assert one.line.buffer.text == "and then\nand last\nhalf a li"
        assert messages(one.model) == ["hello"], "nothing is sent unasked"
        one.keys.send_text(ENTER)
        await one.sees("second")
        assert messages(one.model)[1].endswith("and then\nand last\nhalf a li")


class Endless(ScriptedModel):
    """Says more than a screen has room for, and goes on."""

    async def say(self, request, *, heard=None):
        """Say it."""
        self.requests.append(request)
        heard("one word after another " * 400)
        await asyncio.Event().wait()


async def test_what_is_queued_hides_nothing_of_what_goes_on():
    async with sitting(model=Endless()) as one:
        one.keys.send_text(f"hello{ENTER}")
        await one.until(lambda: one.model.requests)
        one.keys.send_text("".join(f"line {n}{ENTER}" for n in range(7)) + f"a{ALT_ENTER}b")

        def drawn():
            screen = one.line.app.renderer.last_rendered_screen
            if screen is None:
                return []
            rows = screen.data_buffer
            return ["".join(rows[y][x].char for x in range(100)).rstrip() for y in range(30)]

        await one.until(lambda: "  and 3 more" in drawn())
        await one.until(lambda: any("Ctrl-C stops" in row for row in drawn()))
        rows = drawn()
        assert [row for row in rows if "next: " in row] == [f"  next: line {n}" for n in range(4)]
        end = next(at for at, row in enumerate(rows) if " / 10,000" in row)
        assert rows[end - 2 : end] == ["❯ a", "  b"]


class Stuck(ScriptedModel):
    """Says some words and stops; the second time it answers."""

    async def say(self, request, *, heard=None):
        """Stop the first time."""
        if not self.requests:
            self.requests.append(request)
            heard("half of it")
            await asyncio.Event().wait()
        return await super().say(request, heard=heard)


async def test_c10_an_answer_that_is_asked_for_again_stands_once():
    async with sitting(model=Stuck(["the whole of it", "another one"])) as one:
        one.keys.send_text(f"hello{ENTER}")
        await one.until(lambda: one.model.requests)
        one.keys.send_text(CTRL_C)
        await one.sees("stopped")
        await one.enters("/retry", "the whole of it", "response:")
        assert "half of it" not in str(one.model.requests[-1]), "the fragment is not sent again"
        answers = [item for item in one.session.live.view.items if item.role == "model"]
        assert [text_of(item.parts) for item in answers] == ["the whole of it"]
        await one.enters("/retry", "another one", "response:")
        answers = [item for item in one.session.live.view.items if item.role == "model"]
        assert [text_of(item.parts) for item in answers] == ["another one"]
        assert "half of it" in await one.enters("/recall log:3", "half of it"), "nothing is lost"


async def test_c12_the_last_words_are_pinned_after_a_fold_too():
    async with sitting(lambda _: "An answer of some length. " * 60) as one:
        for turn in range(8):
            await one.enters(f"Step {turn}", "response:")
        said = max(seq for seq, e in await one.session.history.events() if isinstance(e, UserSaid))
        await one.session.fold()
        live = one.session.live
        live.view.held = {
            seq: e for seq, e in live.view.held.items() if not isinstance(e, UserSaid)
        }
        await one.enters("/pin last", f"pinned: log:{said}")


async def test_c12_a_fault_of_the_server_is_not_told_as_nobody_there():
    async with sitting([Fault("overloaded", "The server had an error")]) as one:
        text = await one.enters("hello", "/retry")
        assert "nobody answers" not in text
        assert "the server failed, or has too much to do" in text


async def test_ctrl_c_clears_and_twice_leaves():
    async with sitting() as one:
        one.keys.send_text("half a line")
        await one.until(lambda: one.line.buffer.text)
        one.keys.send_text(CTRL_C)
        await one.until(lambda: not one.line.buffer.text)
        assert not one.work.done()
        one.keys.send_text(CTRL_C)
        await asyncio.sleep(0.1)
        assert not one.work.done()
        one.keys.send_text(CTRL_C)
        assert await asyncio.wait_for(one.work, 30) == PersonLeft()


@pytest.mark.parametrize("way", [CTRL_D, "/quit\r", "/exit\r"])
async def test_ways_to_leave(way):
    async with sitting() as one:
        one.keys.send_text(way)
        assert await asyncio.wait_for(one.work, 30) == PersonLeft()


async def test_leaving_during_an_answer_ends_it():
    async with sitting([Trouble.TIMEOUT]) as one:
        one.keys.send_text(f"hello{ENTER}")
        await one.until(lambda: one.model.requests)
        one.keys.send_text(CTRL_D)
        assert await asyncio.wait_for(one.work, 30) == PersonLeft()


@pytest.mark.parametrize(
    ("typed", "said_"),
    [
        (f"one{ALT_ENTER}two", "one\ntwo"),
        ("one\ntwo", "one\ntwo"),
        (f"one\\{ENTER}two", "one\ntwo"),
        ("\x1b[200~one\r\ntwo\r\n\x1b[201~", "one\ntwo"),
    ],
    ids=["alt-enter", "ctrl-j", "backslash", "paste"],
)
async def test_several_lines(typed, said_):
    async with sitting(["ok"]) as one:
        await one.enters(typed, "response:")
        assert messages(one.model) == [said_]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("rate", "slow down"), ("slow down", "/retry")),
        (Fault("overloaded", "Connection error"), ("Connection error", "has too much to do")),
        (Busy("main"), ("another terminal",)),
        (Vetoed("not now"), ("not now", "/compaction-status")),
        (StoreFailed("the disk is full"), ("the disk is full", "doctor")),
        (Spent("day", spent=1, would=2, limit=2, unit="tokens"), ("the cap per day",)),
        (RuntimeError("strange"), ("unexpected RuntimeError", "goes on")),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_errors_are_told_and_the_talk_goes_on(fault, words):
    async with sitting([fault, "well"]) as one:
        text = await one.enters("hello", *words)
        assert "Traceback" not in text
        await one.enters("/retry", "well", "response:")
        assert messages(one.model) == ["hello", "hello"]


async def test_an_overflow_names_its_way_out():
    async with sitting(["ok"], window=300, reserve=100) as one:
        one.session.live.facts = replace(
            one.session.live.facts, policy=replace(one.session.live.facts.policy, folds=False)
        )
        await one.session.instruct(system="rules " * 400)
        text = await one.enters("hello", "cannot be made to fit")
        assert "/compact or /model" in text


def a_tool(name="look", **more):
    async def run(arguments):
        if "bad" in str(arguments):
            return said("no such file", ok=False)
        return said("line\n" * 4_000)

    return Tool(name=name, description=f"{name}s", schema={"type": "object"}, run=run, **more)


def calls(*named):
    return {
        "content": None,
        "tool_calls": [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(named)
        ],
    }  # fmt: skip


async def test_tools_are_told_in_a_line_each():
    script = [calls(("look", {"path": "a.py"}), ("look", {"path": "bad\x1b]0;x\x07"})), "done"]
    async with sitting(script, tools=[a_tool()]) as one:
        text = await one.enters("hello", "response:")
        assert re.search(r"● look\(a\.py\) · \d\.\ds · [\d,]+ of [\d,]+ tokens, clipped\n", text)
        assert re.search(r"● look\(bad\) failed · \d\.\ds · \d+ tokens\n  │ no such file\n", text)
        await one.enters("/tools", "looks")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["y"], Yes()),
        ([""], No()),
        (["n not there"], No("not there")),
        (["what?", "s", "2"], Yes("session", "shell: *")),
        (["y no wait, do not", "yes, I mean no", "n"], No()),
        (["s 7", "p never mind", "y"], Yes()),
        (["p 1"], Yes("project", "shell: ls *")),
        ([CTRL_C], No()),
    ],
)
async def test_approval_is_asked(typed, answer):
    async with sitting() as one:
        one.keys.send_text("half a line")
        await one.until(lambda: one.line.buffer.text)
        intent = Intent("run ls -la", "+ls\n-la", ("shell: ls *", "shell: *"))
        work = asyncio.create_task(ask_approval(one.line, Call("c", "shell"), intent))
        for words in typed:
            await one.asked()
            question = one.line._question
            one.keys.send_text(words if words == CTRL_C else f"{words}{ENTER}")
            await one.until(lambda question=question: one.line._question is not question)
        assert await work == answer
        assert "◇ run ls -la" in one.screen.text
        assert one.line.buffer.text == "half a line"


async def test_the_only_rule_is_shown_before_and_after_it_is_agreed_to():
    async with sitting() as one:
        intent = Intent("run touch a && touch b", "", ("shell: touch a && touch b",))
        work = asyncio.create_task(ask_approval(one.line, Call("c", "shell"), intent))
        await one.asked()
        await one.sees("s and p allow shell: touch a && touch b")
        await one.enters(
            "p", "from now on in this folder, in every session: shell: touch a && touch b"
        )
        assert await work == Yes("project", "shell: touch a && touch b")


async def test_arguments_that_are_too_deep_are_told_to_the_model():
    call = {"name": "look", "arguments": "[" * 50_000 + "]" * 50_000}
    asks = {"tool_calls": [{"id": "c", "type": "function", "function": call}]}
    async with sitting([asks, "done"], window=200_000) as one:
        text = await one.enters("look", "response:")
        assert "failed" in text
        assert "done" in text


async def test_many_calls_at_once_never_fill_the_screen():
    async def run(_):
        await asyncio.sleep(60)

    tool = Tool(name="look", description="", schema={"type": "object"}, run=run, beside=True)
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for at in range(100)
    ]
    async with sitting([{"tool_calls": calls}], tools=[tool]) as one:
        one.keys.send_text(f"go{ENTER}")
        await one.until(lambda: len(one.talk.hearing._running) == 100)
        shown = one.talk.hearing._render_live_text().split("\n")
        assert len(shown) <= one.line.rows - 4
        assert any("and 78 more" in line for line in shown)
        one.keys.send_text(CTRL_C)
        await one.sees("stopped")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo hello" + " " * 300 + "; rm -rf ~", "; rm -rf ~"),
        ("echo \x1b] ; rm -rf ~ #\x07", r"echo \x1b] ; rm -rf ~ #\x07"),
        ("echo \x9d; rm -rf ~ #\x9c", r"echo \x9d; rm -rf ~ #\x9c"),
        ("echo \u202eolleh; rm -rf ~", r"echo \u202eolleh; rm -rf ~"),
        ("ls\rrm -rf ~", r"ls\rrm -rf ~"),
        ("./build\ufe0f.sh --fast", r"./build\ufe0f.sh --fast"),
        ("./a\u3164.sh", r"./a\u3164.sh"),
        ("./a\u2800\U000e0100.sh", r"./a\u2800\U000e0100.sh"),
    ],
)
async def test_nothing_of_what_is_agreed_to_is_hidden(command, shown):
    async with sitting(columns=60) as one:
        intent = Intent(f"run {command}", command, (f"shell: {command}",))
        work = asyncio.create_task(ask_approval(one.line, Call("c", "shell"), intent))
        await one.asked()
        rows = one.screen.text.split("\n")
        detail = "".join(row.removeprefix("  │ ") for row in rows if row.startswith("  │ "))
        assert shown in detail
        assert max(map(measure_width, rows)) <= 60
        assert "\x1b" not in one.screen.text
        await one.enters("n")
        assert await work == No()


async def test_the_rest_of_a_long_script_is_shown_when_it_is_asked_for():
    async with sitting() as one:
        script = "\n".join(f"line {at}" for at in range(60)) + "\nrm -rf ~"
        intent = Intent("run line 0", script, ())
        work = asyncio.create_task(ask_approval(one.line, Call("c", "shell"), intent))
        await one.asked()
        text = await one.sees("… and 21 more lines: v shows them")
        assert "rm -rf" not in text
        await one.enters("v", "line 40", "line 59", "rm -rf ~")
        await one.asked()
        await one.enters("y")
        assert await work == Yes()


async def test_two_questions_at_once_are_asked_one_after_the_other():
    async with sitting() as one:
        both = [asyncio.create_task(one.line.ask(f"{name}? ")) for name in "ab"]
        for name, answer in (("a? ", "1"), ("b? ", "2")):
            await one.until(lambda name=name: (one.line._question or ("",))[0] == name)
            one.keys.send_text(f"{answer}{ENTER}")
        assert await asyncio.gather(*both) == ["1", "2"]


async def test_r14_another_model_or_none():
    async with sitting(["one"]) as one:
        await one.enters("hello", "response:")
        old = one.model
        one.keys.send_text(f"/model gpt-5{ENTER}")
        await one.asked()
        assert "and fit" in one.screen.text
        await one.enters("y", "answers from here on")
        assert one.model.name == one.session.live.view.model == "gpt-5"
        assert not old.closed  # it may still be telling a narrative
        await filled(one)
        one.keys.send_text(f"/model tiny 200{ENTER}")
        await one.asked()
        text = await one.enters("y", "cannot be made to fit")
        assert "too many: what is old is folded first" in " ".join(text.split())
        assert one.model.name == one.session.live.view.model == "gpt-5"


async def test_export_asks_before_it_writes_over(tmp_path):
    async with sitting(["one"]) as one:
        await one.enters("hello", "response:")
        file = tmp_path / "out.md"
        await one.enters(f"/export {file}", "as markdown")
        assert "hello" in file.read_text()
        file.write_text("mine")
        one.keys.send_text(f"/export {file}{ENTER}")
        await one.asked()
        await one.enters("n", "nothing was written")
        assert file.read_text() == "mine"


async def test_another_session():
    async with sitting() as one:
        one.keys.send_text(f"/new side{ENTER}")
        assert await asyncio.wait_for(one.work, 30) == SessionChange("side")


async def test_r22_a_tool_that_was_interrupted_is_told_on_return(tmp_path):
    store = str(tmp_path / "s.db")
    async with foldline.aopen(store, model="scripted", window=10_000) as session:
        await session.add("look around")
        body = {"role": "assistant", **calls(("look", {"path": "a"}))}
        await session.add(body)
        await session.add(Interrupted("c0", "killed"))
    async with sitting(["ok"], store=store) as one:
        text = await one.sees("interrupted, outcome unknown", "[tokens:")
        assert "❯ look around" in text
        assert "goes on" in text


async def test_the_way_back_shows_the_last_exchange(tmp_path):
    store = str(tmp_path / "s.db")
    async with sitting(["a first answer"], store=store) as one:
        await one.enters("hello", "response:")
        one.keys.send_text(CTRL_D)
        await one.work
    async with sitting(["ok"], store=store) as one:
        await one.sees("main goes on", "❯ hello\n  a first answer\n", "[tokens:")


async def test_m13_messages_are_excluded_and_come_back():
    """M-13: what left, the tokens, and the way back."""
    async with sitting(["one", "two"]) as one:
        await one.enters("the code of the door is 4711", "response:")
        total = one.session.report.total
        text = await one.enters("/exclude last", "brings it back")
        assert "out of sight: log:1 user, " in text
        assert "the code of the door is 4711" in text
        assert re.search(rf"edit \d+: {total:,} tokens became \d", text)
        await one.enters("and now?", "response:")
        assert "4711" not in json.dumps(one.model.requests[1]["messages"])
        (edit,) = one.session.edits
        await one.enters(f"/undo {edit}", "taken back")
        assert one.session.edits == []


async def test_m10_a_session_is_carried_in_by_its_parts(tmp_path):
    """M-10, P4-16: the sizes are shown first, and nothing is carried without a yes."""
    store = str(tmp_path / "store.db")
    async with foldline.aopen(store, model="scripted", session="monday") as s:
        await s.pin(await s.add("Never touch the lexer."))
        await s.add("Fix the parser.")
    async with sitting(["ok"], store=store) as one:
        for answer, told in (("n", "nothing was carried"), ("y", "carried, as log:")):
            one.keys.send_text(f"/carry monday pins{ENTER}")
            await one.asked()
            assert re.search(r"tokens of session 'monday': pins \d+\n", one.screen.text)
            one.keys.send_text(f"{answer}{ENTER}")
            await one.sees(told)
        await one.enters("go on", "response:")
        said = json.dumps(one.model.requests[0]["messages"])
        assert said.count("Never touch the lexer.") == 1
        assert "Fix the parser." not in said


async def test_completion_of_commands_and_what_they_take():
    async with sitting(["one"]) as one:
        await one.enters("hello", "response:")
        await filled(one)
        await one.session.fold()
        words = one.line.words
        assert [word for word, _ in words("/co")] == [
            "/context",
            "/cost",
            "/compaction-status",
            "/compact",
        ]
        assert [word for word, _ in words("/undo ")] == [str(one.session.edits[0])]
        assert "last" in [word for word, _ in words("/pin ")]
        assert any(word.startswith("log:") for word, _ in words("/recall "))
        assert "gpt-5" in [word for word, _ in words("/model gpt")]
        assert [word for word, _ in words("/compact the parser --p")] == ["--preview"]
        await one.until(lambda: one.talk.names)
        assert [word for word, _ in words("/open m")] == ["main"]
        one.keys.send_text("/hel")
        await one.until(lambda: one.line.buffer.complete_state)
        one.keys.send_text("\t")
        await one.until(lambda: one.line.buffer.text == "/help")


async def test_what_was_entered_is_kept_privately(tmp_path):
    path = tmp_path / "data" / "chat_history"
    with create_pipe_input() as keys:
        line = InputLine(history=path, input=keys, output=Screen())
        shown = asyncio.create_task(line.run())
        keys.send_text(f"remember me{ENTER}")
        assert await asyncio.wait_for(line.said(), 5) == "remember me"
        line.close()
        await shown
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "remember me" in path.read_text()
    with create_pipe_input() as keys:
        line = InputLine(history=path, input=keys, output=Screen())
        shown = asyncio.create_task(line.run())
        await asyncio.sleep(0.2)
        keys.send_text(f"\x1b[A{ENTER}")
        assert await asyncio.wait_for(line.said(), 5) == "remember me"
        line.close()
        await shown


async def test_what_a_model_says_cannot_drive_the_terminal():
    evil = "a\x1b]0;title\x07b \x1b[2Jc \x9b31md \u202ee \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x07\r\x08"
    async with sitting([f"{evil}\n\n{evil}"]) as one:
        text = await one.enters("say \x1b[201~it", "response:")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
        assert "ab c d e link" in text


async def test_narrow_and_wide_letters(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    async with sitting(["漢字かな交じり文 " * 20, "ok"], columns=40) as one:
        text = await one.enters("hello", "response:")
        assert (
            max(measure_width(line) for line in text.split("\n") if not line.startswith("[")) <= 40
        )


async def test_text_that_a_person_pastes_is_shown_safely():
    async with sitting(["ok"]) as one:
        text = await one.enters("\x1b[200~a\x1b]0;t\x07b\x1b[201~", "response:")
        assert "\x1b" not in text
        assert "❯ ab" in text


BY_HAND = replace(STEADY, start="manual", priced=replace(STEADY.priced, floor=1_000_000))
BULK = "An answer that is long. " * 1_500


@asynccontextmanager
async def paused(policy, *, answers=("one", "two"), columns=100, seconds=400):
    """A talk of 30,000 tokens that nobody went on with for a while; only its last answer was drawn."""
    model = ScriptedModel(["last", *answers], name="claude-sonnet-4-5")
    async with sitting(model=model, window=200_000, policy=policy, columns=columns) as one:
        for turn in range(6):
            await one.session.add(f"turn {turn}")
            await one.session.add({"role": "assistant", "content": BULK})
        one.talk.reset_picture()
        await one.enters("turn 6", "response:")
        one.session.live.touched -= seconds
        yield one


@pytest.mark.parametrize("columns", [80, 120])
async def test_the_price_of_a_pause_is_named_and_a_fold_offered(columns):
    """Before the message is sent, in one line; yes folds first."""
    async with paused(BY_HAND, columns=columns) as one:
        one.keys.send_text(f"And now?{ENTER}")
        await one.asked()
        question = one.line._question[0]
        assert re.fullmatch(
            r"⚠ Cache expired: about \$0\.\d+ instead of \$0\.\d+\. "
            r"Compact first \(\$0\.\d+\)\? \[y/N\] ",
            question,
        )
        assert measure_width(question) <= 80
        assert len(one.model.requests) == 1, "nothing is sent before the answer"
        text = await one.enters("y", "response:")
        assert "tokens became" in text
        assert len(one.session.edits) == 1
        assert json.dumps(one.model.requests[1]).count(BULK) < 3, "the fold came first"


async def test_the_price_of_a_pause_is_named_once():
    async with paused(BY_HAND) as one:
        one.keys.send_text(f"And now?{ENTER}")
        await one.asked()
        one.keys.send_text(CTRL_C)
        await one.sees("stopped; nothing was sent")
        text = await one.enters("And now?", "response:")
        assert "Cache expired" not in text
        assert "And now?" in json.dumps(messages(one.model)[1])
        await one.enters("Go on.", "response:")
        assert not one.session.edits
        assert len(one.model.requests) == 3


async def test_no_price_is_named_without_a_pause():
    async with paused(BY_HAND, seconds=290) as one:
        text = await one.enters("And now?", "response:")
        assert "expired" not in text


async def test_what_is_folded_by_itself_is_not_asked_about():
    async with paused(STEADY) as one:
        text = await one.enters("And now?", "response:")
        assert re.search(
            r"⚠ The cache has expired: the next message costs about \$0\.\d+; unfolded, \$0\.\d+\.",
            text,
        )
        assert "[y/N]" not in text
        assert len(one.session.edits) == 1


async def test_an_answer_that_is_asked_for_again_has_a_price_too():
    async with paused(BY_HAND, answers=[Fault("rate", "slow down"), "two"]) as one:
        one.session.live.touched += 400
        await one.enters("And now?", "slow down")
        one.session.live.touched -= 400
        one.keys.send_text(f"/retry{ENTER}")
        await one.asked()
        await one.enters("n", "response:")
        assert len(one.model.requests) == 3

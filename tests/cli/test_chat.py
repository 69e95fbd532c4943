"""What `foldline chat` says of an answer that is not whole, and what it does with answers to its questions."""

import asyncio
import json
import runpy
from pathlib import Path

import pytest

from foldline.agent.approval import Approvals, Yes
from foldline.agent.instructions import Instructions
from foldline.agent.tool import Intent, Tool, said
from foldline.apps.chat.chat_parts import describe_stop
from foldline.apps.chat.markdown import render_markdown
from foldline.apps.chat.plain import Plain
from foldline.core.log import ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import text_of
from foldline.dialects.base import get_dialect
from foldline.testing import Provider, ScriptedModel

REPL = runpy.run_path(str(Path(__file__).with_name("test_repl.py")))
ENTER, CTRL_C, ESC = REPL["ENTER"], REPL["CTRL_C"], "\x1b"
calls, filled, flat, messages, sitting = (
    REPL[name] for name in ("calls", "filled", "flat", "messages", "sitting")
)
NO = "I cannot help with that."
NEXT = "No, rather explain what the parser does with an empty file."
HUGE = "".join(f"number {one}\n" for one in range(9_000))
KEPT = "answer y or n; what you wrote is kept for afterwards"


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    """A folder without instructions: this repository has an AGENTS.md."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Ending(ScriptedModel):
    """Ends its answers as it is told to."""

    reason = "length"

    async def say(self, request, *, heard=None):
        """Say it, and end."""
        answer = await super().say(request, heard=heard)
        answer["choices"][0]["finish_reason"] = self.reason
        return answer


class Unstreamed(ScriptedModel):
    """Gives its answer at once, as servers do that do not stream."""

    async def say(self, request, *, heard=None):
        """Say it."""
        del heard
        return await super().say(request)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [ScriptedModel, Unstreamed])
async def test_a_refusal_is_shown_and_named(kind):
    model = kind([{"content": None, "refusal": NO}, "fine"])
    async with sitting(model=model) as one:
        text = await one.enters("Do it.", "response:")
        assert text.count(NO) == 1
        assert text.index(NO) < text.index("the model refused to answer")
        assert "no words" not in text
        newest = next(one.session.live.view.iterate_newest(ModelSaid))[1]
        assert (text_of(newest.parts), newest.stop) == (NO, "refused")
        assert "refused" not in await one.enters("Well?", "response:")


@pytest.mark.anyio
@pytest.mark.parametrize("words", ["Half of", ""])
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("content_filter", "the provider's content filter ended the answer"),
        ("length", "the answer ended at its length limit; --reserve raises it"),
    ],
)
async def test_an_answer_that_is_not_whole_says_why(reason, told, words):
    model = Ending([words])
    model.reason = reason
    async with sitting(model=model) as one:
        text = await one.enters("Do it.", "response:")
        assert words in text
        assert told in text
        assert "no words" not in text


@pytest.mark.parametrize(
    ("stop", "answer", "told"),
    [
        ("done", {}, ""),
        (None, {}, ""),
        ("refused", {"stop_reason": "refusal"}, "the model refused"),
        ("refused", {"incomplete_details": {"reason": "content_filter"}}, "content filter"),
        ("refused", {"candidates": [{"finishReason": "SAFETY"}]}, "content filter"),
        ("refused", {"promptFeedback": {"blockReason": "SAFETY"}}, "content filter"),
        ("length", {}, "--reserve"),
    ],
)
def test_a_stop_is_described(stop, answer, told):
    assert told in describe_stop(stop, answer)
    assert bool(told) == bool(describe_stop(stop, answer))


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("openai-chat", {"choices": [{"delta": {"refusal": NO}}]}),
        ("openai-chat", {"choices": [{"delta": {"content": "", "refusal": NO}}]}),
        ("openai-responses", {"type": "response.refusal.delta", "delta": NO}),
    ],
)
def test_a_streamed_refusal_is_heard(name, event):
    assert get_dialect(name).read_delta(event) == NO


def to(provider, window=128_000):
    return "--model", "m", "--window", str(window), "--base-url", f"{provider.url}/v1"


def test_one_message_has_the_words_of_a_refusal(cli):
    with Provider([{"content": None, "refusal": NO}] * 2) as provider:
        done = cli("chat", "one", "-p", "Do it.", *to(provider))
        assert (done.code, done.out) == (8, f"{NO}\n")
        assert "the model refused to answer" in done.err
        done = cli("chat", "two", "-p", "Do it.", "--output", "json", *to(provider))
        assert (done.json["answer"], done.json["outcome"]) == (NO, "refused")


def test_one_message_that_is_cut_says_so(cli):
    with Provider(["ok"] * 2) as provider:
        done = cli("chat", "one", "-p", HUGE, "--output", "json", *to(provider, 12_000))
        assert "number 4500\n" not in json.loads(provider.bodies[-1])["messages"][-1]["content"]
        (told,) = [one for one in done.json["remarks"] if "is cut" in one]
        assert told.startswith("the message was too large for the window and is cut; log:")
        handle = told.partition("; ")[2].split()[0]
        assert "number 4500" in cli("show", "one", handle).out
        done = cli("chat", "two", "-p", "Small.", "--output", "json", *to(provider, 12_000))
        assert done.json["remarks"] == []


@pytest.mark.anyio
async def test_a_message_that_is_cut_is_told_once_before_its_answer():
    async with sitting(["one", "two", "three"]) as one:
        one.line._said.append(HUGE)  # as Enter does; so much takes a while to be typed
        one.line._more.set()
        text = await one.sees("response:", "one\n")
        events = [*one.session.live.view.iterate_newest(UserSaid)]
        told = f"your message was too large for the window and is cut; log:{events[0][0]} has all of it"
        assert told in flat(text)
        assert flat(text).index(told) < flat(text).rindex("one")
        for words in ("And now?", "/retry"):
            assert "is cut" not in await one.enters(words, "response:")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("before", "question"),
    [
        ("!echo out", "Add it to your next message"),
        ("/compact", "Compact conversation?"),
        ("/model gpt-5", "Switch?"),
    ],
)
async def test_a_message_is_no_answer_to_a_question(before, question):
    async with sitting(["one", "two"]) as one:
        await filled(one)
        one.keys.send_text(f"{before}{ENTER}")
        await one.asked()
        assert question in one.line._question[0]
        await one.enters(NEXT, KEPT)
        await one.asked()
        assert question in one.line._question[0]
        assert not one.model.requests
        await one.enters("n", "[y/N] n\n")
        await one.until(lambda: one.line._question is None)
        assert one.line.buffer.text == NEXT
        assert (one.session.edits, one.talk.pending, one.model.name) == ([], [], "scripted")
        one.keys.send_text(ENTER)
        await one.sees("response:")
        assert messages(one.model) == [NEXT]


@pytest.mark.anyio
@pytest.mark.parametrize("answer", ["", "n", " NO ", "y", "Yes"])
async def test_every_form_of_yes_and_no_is_an_answer(answer):
    async with sitting() as one:
        work = asyncio.create_task(one.talk.ask_yes_no("Well? [y/N]"))
        await one.asked()
        one.keys.send_text(f"{answer}{ENTER}")
        assert await work == (answer.strip().lower()[:1] == "y")


@pytest.mark.anyio
async def test_a_sentence_is_no_model():
    async def list_models():
        return ["one", "two"]

    async with sitting() as one:
        object.__setattr__(one.talk.seat, "list_models", list_models)
        one.keys.send_text(f"/model{ENTER}")
        await one.asked()
        await one.enters(NEXT, "that names no model")
        assert one.line.buffer.text == NEXT


@pytest.mark.anyio
async def test_without_a_terminal_a_kept_line_is_said_after_the_question():
    plain = Plain(prompt=False)
    plain.put_back(NEXT)
    assert await plain.said() == NEXT


@pytest.mark.anyio
async def test_what_is_remembered_is_told_with_its_file_and_listed_at_once(tmp_path):
    async with sitting() as one:
        known = Instructions(tmp_path, config=tmp_path / "config")
        await known.load_files()
        object.__setattr__(one.talk.seat, "instructions", known)
        text = await one.enters("/remember use tabs always", "kept in")
        assert flat(text).endswith(f"kept in {known.memory}: - use tabs always")
        assert known.memory.name == "preferences.md"
        await one.enters("/instructions", "memory whole")


async def working(one):
    """Give a sitting a tool that asks, and approvals."""
    done = []

    async def run(arguments):
        done.append(arguments)
        return said("done")

    def intent(arguments):
        command = arguments["command"]
        return Intent(f"run {command}", command, (f"shell: {command}",))

    agent, live = one.talk.seat.agent, one.session.live
    tool = Tool(name="shell", description="", schema={"type": "object"}, run=run, intent=intent)
    agent.tools = {tool.name: tool}
    approvals = Approvals(live.store, live.name.tenant, root=Path.cwd(), ask=one.talk._ask_approval)
    agent.approve = approvals
    object.__setattr__(one.talk.seat, "approvals", approvals)
    return done


@pytest.mark.anyio
async def test_ctrl_c_at_an_approval_ends_the_turn():
    script = [calls(("shell", {"command": "make"}), ("shell", {"command": "ls"})), "two"]
    async with sitting(script) as one:
        done = await working(one)
        one.keys.send_text("half a li")
        await one.until(lambda: one.line.buffer.text)
        one.line._said.append("and then")
        one.line.buffer.reset()
        one.line._said.appendleft("go")
        one.line._more.set()
        await one.asked()
        one.keys.send_text(f"n becau{CTRL_C}")
        text = await one.sees("stopped; what was said so far is kept")
        assert "two" not in text
        assert (len(one.model.requests), done) == (1, [])
        await one.until(lambda: one.line.buffer.text == "and then")
        events = [event for _, event in await one.session.history.events()]
        results = [text_of(one.parts) for one in events if isinstance(one, ToolReturned)]
        assert results == ["not run: stopped by the user"] * 2
        assert not one.line.stops_at_question
        one.keys.send_text(ENTER)
        await one.sees("two")


@pytest.mark.anyio
@pytest.mark.parametrize("key", [ESC, f"n{ENTER}"])
async def test_escape_at_an_approval_is_a_plain_no(key):
    async with sitting([calls(("shell", {"command": "make"})), "two"]) as one:
        done = await working(one)
        one.keys.send_text(f"go{ENTER}")
        await one.asked()
        one.keys.send_text(key)
        text = await one.sees("two", "response:")
        assert "the user said no" in text
        assert not done


@pytest.mark.anyio
async def test_ctrl_c_at_another_question_is_a_no():
    async with sitting() as one:
        await filled(one)
        one.keys.send_text(f"/compact{ENTER}")
        await one.asked()
        one.keys.send_text(CTRL_C)
        await one.sees("nothing was folded")


@pytest.mark.anyio
async def test_a_fold_that_cannot_be_taken_back_says_what_helps():
    async with sitting(lambda _: "ok", window=2_000, reserve=100) as one:
        for turn in range(12):
            await one.enters(f"turn {turn}: " + "words about it " * 60, "response:")
        (fold,) = one.talk.update_picture().folds[-1:]
        text = flat(await one.enters(f"/undo {fold.at}", "stays"))
        place = f"log:{fold.span.lo}-{fold.span.hi}"
        assert f"edit {fold.at} stays: without it the conversation does not fit" in text
        assert f"/recall {place} shows what it hides" in text
        assert "/retry" not in text
        await one.enters(f"/recall {place}", "turn 0")


@pytest.mark.anyio
async def test_permissions_are_listed_and_revoked():
    make = calls(("shell", {"command": "make all"}))
    async with sitting([make, "one", make, "two", make, "three"]) as one:
        done = await working(one)
        await one.enters("/permissions", "nothing was allowed")
        one.keys.send_text(f"go{ENTER}")
        await one.asked()
        await one.enters("p", "one", "response:")
        approvals = one.talk.seat.approvals
        await approvals._remember_answer(
            Yes("session", "shell: ls"), Intent("", "", ("shell: ls",))
        )
        approvals.allow = ("shell: pwd",)
        text = await one.enters("/permissions", "revoke N")
        assert "    1 in this folder, in every session: shell: make all\n" in text
        assert "    2 in this session: shell: ls\n" in text
        assert "by the settings: shell: pwd\n" in text
        await one.enters("go", "two", "response:")
        assert len(done) == 2
        for given, told in (
            ("revoke 3", "no permission 3"),
            ("revoke", "is no permission"),
            ("x", "lists"),
        ):
            await one.enters(f"/permissions {given}", told)
        await one.enters("/permissions revoke 1", "revoked: shell: make all\n")
        text = await one.enters("/permissions", "revoke N")
        assert "    1 in this session: shell: ls\n" in text
        assert "make" not in text
        one.keys.send_text(f"go{ENTER}")
        await one.asked()
        await one.enters("n", "three", "response:")
        assert len(done) == 2
        assert [word for word, _ in one.line.words("/permissions r")] == ["revoke"]


@pytest.mark.anyio
async def test_permissions_need_tools():
    async with sitting() as one:
        await one.enters("/permissions", "only talks")


@pytest.mark.anyio
async def test_tab_offers_the_servers_models_first_and_asks_for_them_once():
    asked = []

    async def list_models():
        asked.append(1)
        return ["served-large", "gpt-5"]

    async with sitting() as one:
        object.__setattr__(one.talk.seat, "list_models", list_models)
        assert not asked
        for _ in range(2):
            [*one.line.words("/mo")]
            await one.until(lambda: one.talk.model_names)
        offered = [word for word, _ in one.line.words("/model ")]
        assert offered[:2] == ["served-large", "gpt-5"]
        assert offered.count("gpt-5") == 1
        assert len(offered) > 2
        assert len(asked) == 1


@pytest.mark.anyio
async def test_tab_chooses_a_model_of_the_server_that_answered_late():
    answered = asyncio.Event()

    async def list_models():
        await answered.wait()
        return ["served-large"]

    async with sitting() as one:
        object.__setattr__(one.talk.seat, "list_models", list_models)
        one.keys.send_text("/model ")
        await one.until(lambda: one.line.buffer.complete_state)
        answered.set()
        await one.until(lambda: (state := one.line.buffer.complete_state) and state.completions[0].text == "served-large")  # fmt: skip
        one.keys.send_text("\t")
        await one.until(lambda: one.line.buffer.text == "/model served-large")


@pytest.mark.anyio
async def test_tab_offers_the_catalogue_if_the_server_lists_nothing():
    async def list_models():
        raise OSError("gone")

    async with sitting() as one:
        object.__setattr__(one.talk.seat, "list_models", list_models)
        [*one.line.words("/model ")]
        await asyncio.sleep(0.05)
        assert "gpt-5" in [word for word, _ in one.line.words("/model gpt")]


@pytest.mark.parametrize("columns", [100, 60, 30, 14])
def test_no_cell_of_a_table_is_cut(columns):
    address = (
        "https://example.org/a/very/long/url/that/does/not/break/anywhere/because/it/is/one/word"
    )
    head = "| Option | What it does | When |\n|---|---|---|\n"
    shown = render_markdown(f"{head}| `--beta` | short | {address} |\n", columns, colour=False)
    assert "…" not in shown
    assert max(map(len, shown.split("\n"))) <= columns
    assert address in "".join(shown.split())


@pytest.mark.parametrize("columns", [100, 40, 20])
def test_a_table_of_many_columns_keeps_every_cell(columns):
    names = [f"word{at}" for at in range(12)]
    table = "\n".join(f"|{'|'.join(row)}|" for row in (names, ["---"] * 12, names))
    shown = render_markdown(table, columns, colour=False)
    assert all(shown.count(f"word{at}") >= 2 for at in range(2, 12))

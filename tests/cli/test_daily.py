"""The first run, files by `@`, commands by `!`, planning, files taken back, sessions offered."""

import json
import os
import runpy
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from foldline.agent.approval import Approvals
from foldline.agent.checkpoints import Checkpoints
from foldline.agent.tools import own
from foldline.apps.chat import chat_loop
from foldline.apps.chat.approval_prompt import ask_approval
from foldline.apps.chat.attachments import find_mentions, iterate_files_for
from foldline.apps.chat.chat_parts import RecentSession
from foldline.apps.cli import build_agent, first_run, saved_keys
from foldline.apps.cli.build_agent import Wish
from foldline.apps.cli.context import make_desk
from foldline.dialects.provider_errors import Fault
from foldline.errors import ModelFailed
from foldline.session.host import Host
from foldline.testing import Provider, ScriptedModel

pytestmark = pytest.mark.anyio
REPL = runpy.run_path(str(Path(__file__).with_name("test_repl.py")))
ENTER, messages, sitting = REPL["ENTER"], REPL["messages"], REPL["sitting"]
FOLDLINE = Path(sys.executable).with_name("foldline")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working folder, and no settings but its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("XDG_CONFIG_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL", "FOLDLINE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return folder


class Person:
    """Answers questions one after the other; keeps what was shown."""

    def __init__(self, *answers):
        self.answers, self.shown, self.secrets = [*answers], "", []
        self.stop = None

    async def ask(self, question, *, secret=False):
        """Answer."""
        self.shown += f"{question}\n"
        answer = self.answers.pop(0) if self.answers else None
        self.secrets += [answer] if secret else []
        return answer

    def above(self, text):
        """Read."""
        self.shown += f"{text}\n"


async def test_c5_a_first_run_asks_for_provider_key_and_model(monkeypatch, tmp_path):
    asked = []

    def fetch(address, *, key="", vendor="openai"):
        asked.append((address, key, vendor))
        return ["alpha-1", "alpha-2", "beta"]

    monkeypatch.setattr(first_run, "fetch_model_names", fetch)
    monkeypatch.setattr(saved_keys, "find_spec", lambda _: None)
    person = Person("9", "1", "sk-secret", "alpha", "2")
    assert await first_run.set_up_model(person)
    assert asked == [("https://api.openai.com/v1", "sk-secret", "openai")]
    assert person.secrets == ["sk-secret"]
    assert "sk-secret" not in person.shown
    folder = tmp_path / "person" / ".config" / "foldline"
    keys = folder / "keys.json"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert saved_keys.find_saved_key("https://api.openai.com/v1") == "sk-secret"
    assert saved_keys.find_saved_key("https://evil.example/v1") is None, "a key has one address"
    monkeypatch.setenv("OPENAI_API_KEY", "own")
    assert saved_keys.find_saved_key("https://api.openai.com/v1") is None
    assert Wish(desk=make_desk()).load_settings().model.name == "alpha-2"


async def test_c5_a_server_of_ones_own_needs_no_key_and_a_wrong_address_is_asked_again(monkeypatch):
    lists = {"http://127.0.0.1:9/v1": [], "http://127.0.0.1:8080/v1": ["local"]}
    monkeypatch.setattr(first_run, "fetch_model_names", lambda address, **_: lists[address])
    person = Person("5", "no address", "http://127.0.0.1:9/v1", "", "", "5", "", "", "1")
    assert await first_run.set_up_model(person)
    assert "'no address' is no address; write one as http://127.0.0.1:8080/v1" in person.shown
    assert "lists no models: is the address right, and the key?" in person.shown
    settings = Wish(desk=make_desk()).load_settings()
    assert (settings.model.name, settings.model.base_url) == ("local", "http://127.0.0.1:8080/v1")


@pytest.mark.parametrize("said", ["127.0.0.1:9", "http://127.0.0.1:9/", "http://127.0.0.1:9/v1"])
async def test_what_people_leave_out_of_an_address_is_added(said, monkeypatch):
    monkeypatch.setattr(first_run, "fetch_model_names", lambda *_, **__: ["local"])
    assert await first_run.set_up_model(Person("5", said, "", ""))  # empty: the only model
    settings = Wish(desk=make_desk()).load_settings()
    assert (settings.model.name, settings.model.base_url) == ("local", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(("answer", "taken"), [("y", "alhpa"), ("n", "alpha")])
async def test_a_model_that_is_not_in_the_list_is_asked_about(answer, taken, monkeypatch):
    monkeypatch.setattr(first_run, "fetch_model_names", lambda *_, **__: ["alpha", "beta"])
    person = Person("5", "", "", "alhpa", answer, "1")
    assert await first_run.set_up_model(person)
    assert "alhpa is not in the list. Take it? [y/N]" in person.shown
    assert Wish(desk=make_desk()).load_settings().model.name == taken


async def test_an_extra_that_is_missing_is_told_beside_its_choice(monkeypatch):
    monkeypatch.setattr(first_run, "find_spec", lambda name: None if "google" in name else name)
    person = Person()
    assert not await first_run.set_up_model(person)
    assert "3 Google (needs: pip install 'foldline[google]')" in person.shown
    assert person.shown.count("needs") == 1


async def test_c5_whoever_gives_no_answer_has_nothing_set_up():
    assert not await first_run.set_up_model(Person())


def test_c5_without_a_terminal_the_error_says_what_to_set(cli):
    assert "which model? write --model NAME" in cli("chat", "-p", "x").err


class Ring:
    """A keyring that works."""

    kept: dict = {}  # noqa: RUF012

    def set_password(self, service, user, key):
        """Keep."""
        self.kept[service, user] = key

    def get_password(self, service, user):
        """Give."""
        return self.kept.get((service, user))


async def test_c5_a_key_goes_into_the_keyring_if_there_is_one(monkeypatch, tmp_path):
    ring = Ring()
    monkeypatch.setattr(saved_keys, "find_spec", lambda name: name)
    monkeypatch.setattr(saved_keys, "import_module", lambda _: ring)
    assert saved_keys.save_key("https://api.x.ai/v1/", "XAI_API_KEY", "k") == "the system's keyring"
    assert saved_keys.find_saved_key("https://api.x.ai/v1") == "k"
    written = (tmp_path / "person" / ".config" / "foldline" / "keys.json").read_text()
    assert json.loads(written) == {"https://api.x.ai/v1": {"variable": "XAI_API_KEY"}}


async def test_c5_files_that_a_message_names_go_along(here):
    (here / "a.py").write_text("print(1)\n")
    (here / "a name.txt").write_text("words")
    (here / ".env").write_text("SECRET=1")
    async with sitting(["ok", "ok"]) as one:
        text = await one.enters('See @a.py, @"a name.txt" and @property.', "response:")
        assert "@a.py: " in text
        assert "% of the window" in text
        (sent,) = messages(one.model)
        assert sent.startswith(
            'See @a.py, @"a name.txt" and @property.\n\n[a.py: 9 bytes, 1 line]\n'
        )
        assert sent.endswith("[a name.txt: 5 bytes, 1 line]\nwords")
        one.keys.send_text(f"And @.env?{ENTER}")
        await one.asked()
        assert "@.env is" in one.line._question[0]
        await one.enters("n", "nothing was sent")
        assert len(messages(one.model)) == 1


def test_c5_a_file_is_completed_with_its_size(here):
    (here / "src").mkdir()
    (here / "src" / "parser.py").write_text("x" * 3_500)
    (here / "my file").write_text("x")
    assert [*iterate_files_for("Look at @sr", here, 10_000)] == [("@src/", "folder")]
    assert [*iterate_files_for("@src/p", here, 10_000)] == [
        ("@src/parser.py", "3.5 kB · ~1,000 tokens, 10% of the room")
    ]
    assert [name for name, _ in iterate_files_for("@my", here, 0)] == ['@"my file"']
    assert [*iterate_files_for("me@src", here, 0)] == []
    assert find_mentions("me@src/parser.py", here) == []
    assert [one.asks for one in find_mentions("@/etc/passwd @src/parser.py", here)] == [True, False]


async def test_c5_a_command_of_ones_own_is_shown_and_goes_along_if_wanted():
    async with sitting(["ok", "ok"]) as one:
        one.keys.send_text(f"!echo out; echo $((20 + 2)) >&2{ENTER}")
        await one.asked()
        await one.sees("out\n22\n[exit status 0]\n")
        assert "Add it to your next message (" in one.line._question[0]
        await one.enters("y", "[y/N] y\n")
        await one.enters("What is it?", "response:")
        assert messages(one.model)[0].startswith(
            "What is it?\n\n[what `echo out; echo $((20 + 2)) >&2` printed: 22 bytes, 3 lines]\nout\n22"
        )
        one.keys.send_text(f"!true{ENTER}")
        await one.asked()
        await one.enters("n", "[y/N] n\n")
        await one.enters("Next", "response:")
        assert messages(one.model)[1] == "Next"


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": name, "type": "function", "function": function}]}


async def working(one, here, tmp_path, mode="all"):
    """Give a sitting tools, approvals and checkpoints."""
    points = Checkpoints(tmp_path / "kept", here)
    agent, live = one.talk.seat.agent, one.session.live
    agent.tools = {tool.name: points.watch_tool(tool) for tool in own(one.session, here)}
    approvals = Approvals(live.store, live.name.tenant, root=here, ask=partial(ask_approval, one.line), mode=mode)  # fmt: skip
    agent.approve = approvals
    agent.hooks.append(points.begin_turn)
    object.__setattr__(one.talk.seat, "checkpoints", points)
    object.__setattr__(one.talk.seat, "approvals", approvals)
    return approvals


async def test_c5_what_a_turn_changed_on_disk_is_taken_back_and_made_again(here, tmp_path):
    (here / "a.txt").write_text("before\n")
    script = [call("write", path="a.txt", content="after\n"), "done", call("shell", command="rm a.txt"), "gone"]  # fmt: skip
    async with sitting(script) as one:
        await working(one, here, tmp_path)
        text = await one.enters("Write it.", "changed on disk")
        assert "1 path changed on disk · /undo files takes it back" in text
        await one.enters("/undo", "/undo files takes back what changed on disk")
        await one.enters("/undo files", "1 path taken back; /redo files makes it again")
        assert (here / "a.txt").read_text() == "before\n"
        await one.enters("/redo files", "1 path made again")
        await one.enters("Remove it.", "changed on disk")
        assert "The person has made again on disk" in str(one.model.requests[-1])
        (here / "a.txt").write_text("mine\n")
        one.keys.send_text(f"/undo files{ENTER}")
        await one.asked()
        await one.sees("changed by somebody else since, or in between: a.txt")
        await one.enters("n", "nothing was restored")
        assert (here / "a.txt").read_text() == "mine\n"


async def test_c5_planning_changes_nothing_until_it_is_over(here, tmp_path):
    write = call("write", path="a.txt", content="x")
    async with sitting([write, "planned", write, "written"]) as one:
        approvals = await working(one, here, tmp_path)
        await one.enters("/plan", "planning: it may look")
        assert "plan · " in "".join(text for _, text in one.line.bar(120))
        await one.enters("Do it.", "planned")
        assert not (here / "a.txt").exists()
        assert "Change nothing until" in str(one.model.requests[0])
        await one.enters("/plan", "as before")
        assert approvals.mode == "all"
        await one.enters("Do it.", "written")
        assert (here / "a.txt").exists()


async def test_c5_a_model_is_picked_from_the_servers_list():
    async def list_models():
        return ["one", "other-large", "other-small"]

    async with sitting(["ok"]) as one:
        object.__setattr__(one.talk.seat, "list_models", list_models)
        one.keys.send_text(f"/model{ENTER}")
        await one.asked()
        await one.sees("    3 other-small")
        one.keys.send_text(f"large{ENTER}")
        await one.sees("other-large: a window of")
        await one.enters("y", "other-large answers from here on")


async def test_c5_the_last_sessions_are_offered_and_a_number_opens_one():
    recent = [RecentSession("parser", "Why do\nthe tests fail?", 0.0, 34_000, "gpt-6.1-sol")]
    async with sitting(["ok"]) as one:
        assert chat_loop.render_recent_sessions(recent)[0].endswith(" · 34 kB · gpt-6.1-sol")
        one.talk.recent = recent
        one.keys.send_text(f"1{ENTER}")
        assert await one.work == chat_loop.SessionChange("parser", known=True)
        assert not one.model.requests


def test_c12_hints_name_options_that_the_command_at_hand_has(cli, program):
    with Provider(["ok"]) as provider:
        told = cli("chat", "-p", "x", "--model", "m", "--base-url", f"{provider.url}/v1").err
    assert "does not say how large its window is; --set model.max_input_tokens=TOKENS does" in told
    for command in ("chat", "bot", "schedule run"):
        assert "--set" in program(*command.split(), "--help").out


def test_c12_no_line_of_a_help_screen_is_cut(program):
    for arguments in ((), ("lab",), ("schedule",)):
        shown = program(*arguments, "--help", env={"COLUMNS": "60"}).out
        lines = [line for line in shown.split("\n") if not line.startswith("Usage:")]
        assert not [line for line in lines if line.rstrip().endswith(("...", "…"))]


def test_c5_a_shell_completes_commands_and_sessions(cli):
    assert "_FOLDLINE_COMPLETE=complete_zsh" in cli("completion", "zsh").out


@pytest.mark.real
def test_c5_bash_completes_a_session(cli):
    files = Path(__file__).parents[1] / "importers" / "files"
    assert cli("import", files / "pi.jsonl", "--as", "my-session").code == 0
    script = subprocess.run([FOLDLINE, "completion", "bash"], capture_output=True, text=True, check=True).stdout  # fmt: skip
    asked = (
        script
        + '\nCOMP_WORDS=(foldline show my); COMP_CWORD=2; _foldline_completion foldline; echo "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PATH": f"{FOLDLINE.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=env, check=False)  # noqa: S607 # fmt: skip
    assert done.stdout.strip() == "my-session", done.stderr


async def test_a_saved_key_that_was_refused_is_read_again(monkeypatch):
    asked = []

    def build_client(_settings, name, _host, key):
        asked.append(key)
        return ScriptedModel(["ok"] if key == "right" else [Fault("auth", "no")] * 9, name=name)

    monkeypatch.setattr(build_agent, "_build_client", build_client)
    monkeypatch.setattr(saved_keys, "find_spec", lambda _: None)
    host = Host("http://127.0.0.1:9/v1", "openai-chat")
    saved_keys.save_key(host.base_url, "OPENAI_API_KEY", "wrong")
    model = build_agent.Later(Wish(desk=make_desk()).load_settings(), "m", host)
    request = {"messages": [{"role": "user", "content": "hi"}]}
    for _ in range(2):
        with pytest.raises(ModelFailed):
            await model.say(request)
    saved_keys.save_key(host.base_url, "OPENAI_API_KEY", "right")
    assert (await model.say(request))["choices"][0]["message"]["content"] == "ok"
    assert asked == ["wrong", "right"], "nobody is asked again with the same key"
    await model.close()

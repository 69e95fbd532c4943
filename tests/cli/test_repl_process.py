"""`foldline chat` as a program: one message, a pipe, a plain terminal, two terminals, the prompt."""

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import apsw
import pytest

import foldline
from foldline.testing import Provider

FOLDLINE = Path(sys.executable).with_name("foldline")
BARE = "import time; s = time.perf_counter(); import prompt_toolkit; print(time.perf_counter() - s)"


def to(provider):
    return "--model", "m", "--window", "128000", "--base-url", f"{provider.url}/v1"


def test_one_message(cli):
    with Provider(["An \x1b]0;x\x07*answer*."]) as provider:
        done = cli("chat", "one", "-m", "hello", *to(provider))
    assert (done.code, done.out) == (0, "An *answer*.\n")
    assert cli("history", "one").code == 0


def test_one_message_after_a_pause_names_its_price_only_on_a_terminal(cli, program, tmp_path):
    bulk = "An answer that is long. " * 1_500
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with Provider(lambda _: bulk) as provider:
        given = ("--model", "gpt-5", "--window", "128000", "--base-url", f"{provider.url}/v1")
        for turn in range(3):
            assert cli("chat", "one", "-m", f"turn {turn}", *given, "--store", store).code == 0
        aged = apsw.Connection(str(store))
        aged.execute("update events set time = time - 4000")
        aged.execute("vacuum into ?", (str(copy),))
        aged.close()
        piped = program("chat", "one", "-m", "And now?", *given, "--store", store)
        assert (piped.code, piped.out, piped.err) == (0, f"{bulk}\n", "")
        shown, terminal = pty.openpty()
        done = subprocess.run(
            [FOLDLINE, "chat", "one", "-m", "And now?", *given, "--store", copy],
            stdout=subprocess.PIPE, stderr=terminal, text=True, check=True, timeout=60,
        )  # fmt: skip
        os.close(terminal)
        said = os.read(shown, 65_536).decode()
        os.close(shown)
    assert done.stdout == f"{bulk}\n", "an answer and nothing else"
    assert re.search(
        r"foldline: The cache has expired: sending the next message costs about \$0\.0\d+ instead of "
        r"\$0\.0\d+\. `foldline fold one` first: \$0\.0\d+\.",
        said,
    )


def test_m10_a_chat_begins_with_chosen_parts_of_another(cli):
    """M-10, P4-16: `--carry SESSION --parts …`; what is carried is said, part by part."""
    with Provider(lambda _: "ok") as provider:
        assert cli("chat", "monday", "-m", "Never touch the lexer.", *to(provider)).code == 0
        assert cli("chat", "monday", "-m", "Fix the parser.", *to(provider)).code == 0
        first = next(
            one["seq"]
            for one in cli("show", "monday", "--json").json["items"]
            if "lexer" in one["words"]
        )
        assert cli("pin", "monday", f"log:{first}").code == 0
        begun = cli("chat", "tuesday", "--carry", "mon", "--parts", "pins,files", "-m", "on", *to(provider))  # fmt: skip
        assert begun.code == 0, begun.err
        assert re.search(
            r"carried on: \d+ tokens of session 'monday': pins \d+, files 0\n", begun.err
        )
        said = provider.bodies[-1]
        assert (b"Never touch the lexer." in said, b"Fix the parser." in said) == (True, False)
        again = cli("chat", "tuesday", "--carry", "monday", "-m", "on", *to(provider))
        assert "tuesday has begun already, and nothing was carried" in again.err
        assert provider.bodies[-1].count(b"carried on from session") == 1
        asked = len(provider.asked)
        for wrong, why in (
            (("--carry", "monday", "--parts", "pins,all"), "there is no part 'all'; give some of"),
            (("--parts", "pins"), "--parts goes with --carry SESSION"),
            (("--carry", "sunday"), "there is no session 'sunday' here"),
            (("--carry", "monday", "--parts", "files"), "has none of these to carry on: files"),
        ):
            done = cli("chat", "new", "-m", "x", *wrong, *to(provider))
            assert (done.code in (1, 2), why in done.err) == (True, True), done.err
        assert not [one for one in provider.asked[asked:] if "messages" in one]


def test_a_message_from_a_pipe_and_the_session_goes_on(program, tmp_path):
    env = {"XDG_DATA_HOME": str(tmp_path)}
    with Provider(["first", "second"]) as provider:
        done = program("chat", *to(provider), env=env, stdin="hello\nthere\n")
        assert (done.code, done.out) == (0, "first\n")
        done = program("chat", "-c", "--base-url", f"{provider.url}/v1", env=env, stdin="again")
        assert (done.code, done.out) == (0, "second\n")
        assert provider.bodies[-1].count(b'"role"') == 4, "it is the same session, the same model"


def test_the_beginning_of_a_name_is_enough_to_continue_and_begins_a_session_otherwise(cli):
    with Provider(lambda _: "ok") as provider:
        for given in (("please-list",), ("please",), ("-c", "please-l")):
            assert cli("chat", *given, "-p", "hi", *to(provider)).code == 0
    listed = cli("sessions", "--json").json["sessions"]
    assert {one["session"]: one["turns"] for one in listed} == {"please": 1, "please-list": 2}
    told = " ".join(cli("--help").out.split())
    assert "is enough, but not for `foldline chat NAME`: that begins a new session" in told
    told = " ".join(cli("chat", "--help").out.split())
    assert "The session, by its whole name: where it was left, or a new one." in told
    assert "Go on with NAME, or what begins so, or with the newest." in told


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["-m", "x"], "which model?", 2),
        (["-m", "", "--model", "m"], "nothing was said: write -p TEXT", 2),
        (["-m", " \n", "--model", "m"], "nothing was said: write -p TEXT", 2),
        (["-m", "x", "--model", "m", "--policy", "stedy"], "there is no policy 'stedy'", 2),
        (["-c", "-m", "x"], "no session to go on with", 1),
        (["-c", "nobody", "-m", "x"], "there is no session 'nobody'", 1),
        (["--start", "soon"], "soon", 2),
    ],
)
def test_what_is_wrong_is_said_in_a_line(cli, arguments, words, code):
    done = cli("chat", *arguments).tidy()
    assert (done.code, words in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    ("model", "variable"),
    [("gpt-5", "OPENAI_API_KEY"), ("claude-sonnet-5.5", "ANTHROPIC_API_KEY")],
)
def test_no_key_says_so_and_leaves_nothing_behind(cli, monkeypatch, model, variable):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    done = cli("chat", "-m", "x", "--model", model).tidy()
    assert done.code == 2
    assert done.err == (
        f"foldline: no key for {model!r}: set {variable}; for a server of your own say "
        "--base-url, in Python api_key= or base_url=\n"
    )
    assert cli("sessions", "--json").json["sessions"] == []


def test_a_server_that_is_down_says_so_and_leaves_nothing_behind(cli):
    url = "http://127.0.0.1:9/v1"
    done = cli("chat", "k", "-m", "x", "--model", "m", "--base-url", url).tidy()
    assert done.code == 6
    way = "start it, or correct --base-url"
    assert done.err == f"foldline: {url} cannot be reached (Connection refused); {way}\n"
    assert cli("sessions", "--json").json["sessions"] == []
    done = cli("chat", "k", "-m", "x", "--model", "m", "--base-url", url, "--window", "9000").tidy()
    assert done.code == 6
    assert f"m gave no answer (unreachable): {url} cannot be reached" in done.err
    assert way in done.err


def test_r63_a_session_is_one_terminals_at_a_time(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    store = str(tmp_path / "s.db")

    async def held():
        async with foldline.aopen(store, model="m", session="mine", exclusive=60):
            return await asyncio.to_thread(
                cli, "chat", "mine", "-m", "x", "--model", "m", "--store", store
            )

    done = asyncio.run(held()).tidy()
    assert done.code == 4
    assert "'mine' is open in another terminal" in done.err


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments, env):
        self.begun = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(arguments[0], [str(one) for one in arguments], {**os.environ, **env})  # noqa: S606
        self.text = ""

    def sees(self, words, seconds=60.0):
        """Wait until some words were written."""
        until = time.monotonic() + seconds
        while words not in self.text:
            ready, _, _ = select.select([self.fd], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise AssertionError(f"{words!r} was not seen:\n{self.text}")
            try:
                self.text += os.read(self.fd, 65_536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended:\n{self.text}") from None

    def types(self, text):
        """Type."""
        os.write(self.fd, text.encode())

    def ends(self):
        """Read on to the end; the exit code."""
        while True:
            try:
                got = os.read(self.fd, 65_536)
            except OSError:
                got = b""
            if not got:
                break
            self.text += got.decode(errors="replace")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(tmp_path):
    program = os.path.join(os.path.dirname(sys.executable), "foldline")  # noqa: PTH118, PTH120

    def opened(*arguments, before=(), **env):
        given = {"TERM": "xterm-256color", "XDG_DATA_HOME": str(tmp_path), **env}
        return Terminal(program, *before, "chat", *arguments, env=given)

    return opened


def test_a_plain_terminal(terminal):
    with Provider(["An *answer*."]) as provider:
        one = terminal("p", *to(provider), TERM="dumb")
        one.sees("> ")
        one.types("hello\n")
        one.sees("response:")
        one.types("/tokens\n")
        one.sees("threshold")
        one.types("\x04")
        assert one.ends() == 0
    assert "\x1b" not in one.text
    assert "An answer." in one.text


def test_no_colour_where_it_is_not_wanted(terminal):
    with Provider(["An **answer**."]) as provider:
        one = terminal("p", *to(provider), NO_COLOR="1")
        one.sees("/ 128,000")
        one.types("hello\r")
        one.sees("response:")
        one.types("\x04")
        assert one.ends() == 0
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;5;\d+)(;[0-9]+)*m", one.text)


def test_wrong_options_end_the_line_and_are_told(terminal):
    one = terminal("p", "--polic", "x")
    assert one.ends() == 2
    assert "No such option" in one.text
    assert "Traceback" not in one.text


def test_what_is_typed_before_it_is_open_is_not_lost(terminal):
    with Provider(["An answer."]) as provider:
        one = terminal("p", *to(provider))
        while termios.tcgetattr(one.fd)[0] & termios.ICRNL:  # until the program has begun
            time.sleep(0.001)
        one.types("hello\r")
        one.sees("response:")
        one.types("\x04")
        assert one.ends() == 0
        assert b"hello" in provider.bodies[-1]


def test_who_leaves_while_it_opens_waits_for_nobody(terminal, tmp_path, timed):
    """A server that does not start is given ten seconds, but not by somebody who has left."""
    folder = tmp_path / "config" / "foldline"
    folder.mkdir(parents=True)
    (folder / "foldline.toml").write_text('[mcp.servers.hangs]\ncommand = ["sleep", "60"]\n')
    one = terminal(
        "p", "--model", "m", "--window", "9000", XDG_CONFIG_HOME=str(tmp_path / "config")
    )
    one.sees("opening")
    time.sleep(1.5)
    begun = time.monotonic()
    one.types("\x04")
    assert one.ends() == 0
    assert time.monotonic() - begun < timed(6)
    assert "goes on" not in one.text


def test_the_prompt_is_there_at_once(terminal, capsys, timed):
    """Start to prompt < 400 ms, or, on a machine that is busy, little more than prompt_toolkit."""
    ours, bare = [], []
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", BARE], check=True, capture_output=True)
        bare.append(1_000 * float(done.stdout))
        one = terminal("p", "--model", "m", "--window", "1000")
        one.sees("❯")
        ours.append(1_000 * (time.perf_counter() - one.begun))
        one.types("\x04")
        one.ends()
        if len(ours) > 1 and min(ours) < max(400, 1.3 * min(bare)):
            break
    with capsys.disabled():
        print(
            f"\nstart to prompt {min(ours):.0f} ms; importing prompt_toolkit alone {min(bare):.0f} ms"
        )
    assert timed.met(min(ours) < max(400, 1.6 * min(bare)))


def test_options_before_the_command_lead_to_the_same_terminal(terminal, tmp_path):
    store = str(tmp_path / "other.db")
    with Provider(["An answer."]) as provider:
        one = terminal("p", *to(provider), before=("--store", store))
        one.sees("/ 128,000")
        one.types("hello\r")
        one.sees("response:")
        one.types("\x04")
        assert one.ends() == 0
    assert "❯" in one.text


def test_the_terminal_is_left_as_it_was(terminal):
    one = terminal("p", "--model", "m", "--window", "1000")
    before = termios.tcgetattr(one.fd)
    one.sees("/ 1,000")
    assert termios.tcgetattr(one.fd)[3] != before[3]
    one.types("\x04")
    one.sees("\x1b[?2004l")
    until = time.monotonic() + 20
    while termios.tcgetattr(one.fd)[:4] != before[:4] and time.monotonic() < until:
        time.sleep(0.05)
    assert termios.tcgetattr(one.fd)[:4] == before[:4]
    assert one.ends() == 0


def called(name, **arguments):
    made = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}  # fmt: skip
    return {"content": None, "tool_calls": [made]}


def test_an_agent_at_work_in_a_folder_asks_before_it_changes_anything(
    terminal, tmp_path, monkeypatch
):
    """Settings, AGENTS.md, tools and approval together: R-61, and a stranger's settings are asked about."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "AGENTS.md").write_text("Use tabs. The canary is 4711.\n")
    monkeypatch.chdir(folder)
    script = [called("write", path="note.txt", content="written\n"), "It is written."]
    with Provider([*script, "Once more."]) as provider:
        (folder / "foldline.toml").write_text(
            f'policy = "thrifty"\nmodel = "m"\n[profiles.work]\nmodel.base_url = "{provider.url}/v1"\n'
        )
        one = terminal("p", "--profile", "work", "--window", "64000")
        one.sees("Use what this folder's settings say? [y/N]")
        assert not provider.bodies
        one.types("y\r")
        one.sees("The canary is 4711.")
        one.sees("Follow them? [y/N]")
        one.types("y\r")
        one.sees("followed from the next turn on")
        one.types("Write a note.\r")
        one.sees("Allow it? [y/N]")
        assert not (folder / "note.txt").exists()
        one.types("p\r")
        one.sees("For which? [1]")
        one.types("1\r")
        one.sees("response:")
        assert (folder / "note.txt").read_text() == "written\n"
        one.types("/instructions\r")
        one.sees("root")
        one.types("/tools\r")
        one.sees("search_history")
        one.types("\x04")
        assert one.ends() == 0
        assert b"The canary is 4711." in provider.bodies[0]
        # The next time nobody is asked: the words are the same.
        again = terminal("p", "--profile", "work", "-c")
        again.sees("goes on")
        again.types("And now?\r")
        again.sees("Once more.")
        again.types("\x04")
        assert again.ends() == 0
        assert "Follow them?" not in again.text
        assert "settings say" not in again.text
        assert b"thrifty" in again.text.encode()

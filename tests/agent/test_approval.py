"""Approval: modes, rules, what is remembered, and what no remembered rule lets through."""

import asyncio
import json
import shlex
import shutil
import subprocess

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import foldline
from foldline.agent.approval import Approvals, No, Yes
from foldline.agent.factory import agent_of
from foldline.agent.loop import Agent
from foldline.agent.tool import Intent
from foldline.agent.tools import edit_files, own, read_files, shell
from foldline.agent.tools.permission_rules import (
    for_command,
    for_path,
    is_allowed_by,
    is_forbidden_by,
    split_simple_command,
)
from foldline.agent.tools.read_files import Root
from foldline.core.parts import Call
from foldline.errors import BadInput
from foldline.settings.layers import load_settings
from foldline.stores.base import Name
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio
META = ";&|<>()$`\\\n\r\t*?[]{}!#\"'\0"
CALL = Call("c", "shell")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def store():
    async with foldline.aopen(":memory:", model="scripted", window=8_000) as session:
        yield session.live.store


def running(command):
    """The intent of the shell tool for a command."""
    return Intent(f"run {command}", command, for_command(command))


class Person:
    """Somebody who answers from a list, and is never asked two things at once."""

    def __init__(self, *answers):
        self.answers, self.asked, self.now = [*answers], [], 0

    async def __call__(self, _, intent):
        """The next answer."""
        self.now += 1
        assert self.now == 1, "two things are asked at once"
        self.asked.append(intent.what)
        await asyncio.sleep(0.01)
        self.now -= 1
        return self.answers.pop(0)


def test_what_a_command_may_be_remembered_for():
    def offered(command):
        return [rule.removeprefix("shell: ") for rule in for_command(command)]

    assert offered("git status -s") == ["git status -s", "git status *"]
    assert offered("pytest -q tests/a.py") == ["pytest -q tests/a.py", "pytest *"]
    assert offered("git commit -m 'a; b'") == ["git commit -m 'a; b'", "git commit *"]
    assert offered("uv run pytest -q") == ["uv run pytest -q", "uv run pytest *"]
    assert offered("python -m pytest") == ["python -m pytest", "python -m pytest *"]
    assert offered("uv sync") == ["uv sync", "uv sync *"]
    assert offered("git diff HEAD~1")[-1] == "git diff *"
    assert offered("cargo test") == ["cargo test", "cargo test *", "cargo *"]
    assert offered("git -c alias.x=!ls x") == ["git -c alias.x=!ls x"], "that would allow anything"
    assert offered("tar -xf a.tar") == ["tar -xf a.tar"]
    for alone in (
        *(
            "git status; rm -rf /",
            "git log | head",
            "git add $(ls)",
            "git log > x",
            "a\nb",
            "a & b",
        ),
        *("bash -c ls", "env ls", "sudo ls", "find . -delete", "python x.py", "uv run python x.py"),
        *("A=1 git status", "git `x`", "git add {a,b}", 'git log "$HOME"', "./run", "git add ~/x"),
    ):
        assert offered(alone) == [alone]
    assert offered("rm *") == [r"rm \*"]


@pytest.mark.parametrize("allowed", ["git status", "git log -n 5", "pytest -q", "uv run pytest"])
@given(more=st.text(alphabet=META + " rm-/;&|", max_size=12))
@example(more="; rm -rf /")
@example(more=" && x")
@example(more="\nrm -rf /")
@example(more=" $(x)")
@example(more=" `x`")
@example(more=" 'a' ; x")
@example(more=' "$(x)"')
@example(more=" 2>&1 >x")
@example(more=" \\\nx")
def test_no_metacharacters_pass_a_wildcard(allowed, more):
    """Whatever of the shell's own is appended to an allowed command, no remembered rule has it."""
    quoted = more.replace("''", "").replace('""', "")
    assume(any(sign in quoted for sign in META))
    assume(not _inert(more))
    intent = running(allowed + more)
    for rule in for_command(allowed)[1:]:
        assert not is_allowed_by(rule, "shell", intent)
    assert intent.rules == for_command(allowed + more)[:1]


def _inert(more):
    """Whether all metacharacters stand in single quotes, or in double ones with none that acts."""
    state = ""
    for sign in more:
        if state:
            if sign == state:
                state = ""
            elif sign in "\n\r\0" or (state == '"' and sign in "$`\\!"):
                return False
        elif sign in "'\"":
            state = sign
        elif sign in META:
            return False
    return not state


@pytest.mark.real
@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_a_command_that_a_wildcard_lets_through_is_one_command_to_bash_too():
    """Its words as we read them are its words as bash does: nothing is expanded or run."""
    seen = []

    plain = [*"ab=~^%,+@:./-_ ", "'$(a)'", '"a;b"', " x~1"]
    kinds = (st.sampled_from(plain), st.sampled_from([*plain, *";&|<>()$`\\*?[]{}!#\n\"'"]))

    @settings(max_examples=100)
    @given(st.one_of(*(st.lists(kind, max_size=8) for kind in kinds)).map("".join))
    def collect(more):
        if (words := split_simple_command(f"show {more}")) is not None:
            seen.append((f"show {more}", words))

    collect()
    assert len(seen) > 20
    script = "show() { printf '%s\\0' show \"$@\"; printf '\\n'; }\n" + "\n".join(
        c for c, _ in seen
    )
    ran = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    lines = ran.stdout.decode().split("\0\n")[:-1]
    assert [one.split("\0") for one in lines] == [words for _, words in seen]
    assert ran.stderr == b""


def test_a_wildcard_is_for_whole_words():
    assert is_allowed_by("shell: git *", "shell", running("git push"))
    assert is_allowed_by("shell: git *", "shell", running("git"))
    assert is_allowed_by("shell: git push *", "shell", running("git 'push' origin"))
    assert not is_allowed_by("shell: git *", "shell", running("gitx push"))
    assert not is_allowed_by("shell: git push *", "shell", running("git pull"))
    assert not is_allowed_by("shell: git push *", "shell", running("git -c x=y push"))
    assert not is_allowed_by("shell: git push", "shell", running("git push -f"))
    assert is_allowed_by("shell: git push", "shell", running("git push"))
    assert is_allowed_by("shell", "shell", running("a; b"))
    assert is_allowed_by("shell: a; b", "shell", running("a; b"))


def test_a_command_with_a_star_is_not_remembered_as_a_wildcard():
    """`rm *` as its own exact text allows that, and no other command that begins with rm."""
    (exact,) = for_command("rm *")
    assert is_allowed_by(exact, "shell", running("rm *"))
    assert not is_allowed_by(exact, "shell", running("rm -rf src"))
    assert not is_allowed_by(exact, "shell", running(r"rm \*"))
    (named,) = for_path("write", "src/*")
    assert not is_allowed_by(named, "write", Intent("", "", for_path("write", "src/a.py")))
    assert is_allowed_by(named, "write", Intent("", "", for_path("write", "src/*")))


@given(st.text(alphabet="ab/*\\. ", min_size=1), st.text(alphabet="ab/*\\. ", min_size=1))
def test_an_exact_rule_is_for_one_thing(one, other):
    for make in (for_command, lambda text: for_path("write", text)):
        exact, intent = make(one)[0], Intent("", "", make(other))
        assert is_allowed_by(exact, "", intent) == (one == other)


def test_rules_for_files():
    def writes(name):
        return Intent("", "", for_path("write", name))

    assert for_path("write", "src/a.py") == ("write: src/a.py", "write: src/*", "write: *")
    assert for_path("write", "a.py") == ("write: a.py", "write: *")
    assert for_path("read", "/etc/hosts") == ("read: /etc/hosts", "read: /etc/*")
    assert is_allowed_by("write: src/*", "write", writes("src/deep/b.py"))
    assert not is_allowed_by("write: src/*", "write", writes("srcs/b.py"))
    assert not is_allowed_by("write: src/*", "write", writes("/src/b.py"))
    assert not is_allowed_by("write: *", "write", writes("/etc/passwd"))
    assert not is_allowed_by("read: src/*", "write", writes("src/a.py"))
    assert is_allowed_by("write: src/[id].ts", "write", writes("src/[id].ts"))
    assert not is_allowed_by("write: src/[id].ts", "write", writes("src/i.ts"))
    # What other programs act upon is let through by its exact rule alone.
    for name in (".git/hooks/pre-commit", "sub/.GIT/config", "foldline.toml", ".foldline/x"):
        assert for_path("write", name) == (f"write: {name}",)
        assert not is_allowed_by("write: *", "write", writes(name))
        assert is_allowed_by(f"write: {name}", "write", writes(name))


def test_what_is_forbidden_is_found_anywhere_in_a_command():
    for command in (
        *(
            "rm x",
            "git status; rm -rf /",
            "ls && sudo rm x",
            "echo $(rm x)",
            "x | xargs rm",
            "`rm x`",
        ),
        *(
            "bash -c 'rm -rf x'",
            "/bin/rm x",
            r"\rm x",
            "A=1 rm x",
            "'rm' x",
            "time -p rm x",
            "a\nrm x",
        ),
        *("env -i rm x", "(rm x)", "if true; then rm x; fi", 'r"m" x'),
    ):
        assert is_forbidden_by("shell: rm *", "shell", running(command)), command
    for command in ("git rm-cached", "ls rm", "cat rm.txt", "firm x"):
        assert not is_forbidden_by("shell: rm *", "shell", running(command)), command
    assert is_forbidden_by("shell: git push *", "shell", running('cd x && git "push" --force'))
    assert is_forbidden_by(
        "write: *.env", "write", Intent("", "", for_path("write", "deep/prod.env"))
    )
    assert is_forbidden_by("write: *", "write", Intent("", "", for_path("write", "/etc/x")))
    assert is_forbidden_by("mail: *@else.where", "m", Intent("", "", ("mail: ann@else.where",)))


async def test_answers_once_session_and_project(store, tmp_path):
    person = Person(Yes(), Yes("session", "shell: cargo *"), Yes("project"), No(), No("use make"))
    approvals = Approvals(store, "ann", root=tmp_path, ask=person)
    assert await approvals(CALL, running("ls -a")) is None
    assert await approvals(CALL, running("cargo build")) is None
    assert await approvals(CALL, running("cargo test")) is None  # remembered
    assert await approvals(CALL, running("just test")) is None
    assert await approvals(CALL, running("just test")) is None  # remembered, exactly
    assert await approvals(CALL, running("just test -x")) == "the user said no"
    assert await approvals(CALL, running("cargo test; rm -rf /")) == "the user said no: use make"
    assert len(person.asked) == 5
    listed = await approvals.list_remembered_rules()
    assert [(one.rule, one.span) for one in listed] == [
        ("shell: just test", "project"),
        ("shell: cargo *", "session"),
    ]
    assert listed[0].time >= listed[1].time > 1.7e9

    # Another session of the same project knows what is the project's; another project does not.
    again = Approvals(store, "ann", root=tmp_path, ask=None)
    assert await again(CALL, running("just test")) is None
    assert (
        await again(CALL, running("cargo test")) == "nobody is here to approve it: run cargo test"
    )
    (tmp_path / "other").mkdir()
    for other in (
        Approvals(store, "ann", root=tmp_path / "other", ask=None),
        Approvals(store, "bob", root=tmp_path, ask=None),
    ):
        assert await other(CALL, running("just test")) is not None

    # Revoked in one, it is asked about in all.
    assert await again.revoke("shell: just test")
    assert not await again.revoke("shell: just test")
    person.answers = [No()]
    assert await approvals(CALL, running("just test")) == "the user said no"
    assert await store.get(Name("ann", ""), "approved", str(tmp_path)) is None


async def test_only_a_rule_that_was_offered_can_be_remembered(store, tmp_path):
    approvals = Approvals(store, "ann", root=tmp_path, ask=Person(Yes("session", "shell: *")))
    with pytest.raises(BadInput, match=r"is no rule for 'run ls'; there are: 'shell: ls'"):
        await approvals(CALL, running("ls"))
    assert await approvals.list_remembered_rules() == []


async def test_modes(store, tmp_path):
    root = Root(tmp_path)
    inside = edit_files.build_write_tool(root).intent({"path": "a.py", "content": "x"})
    hook = edit_files.build_write_tool(root).intent({"path": ".git/hooks/x", "content": "x"})
    outside = edit_files.build_write_tool(root).intent({"path": "/elsewhere/a.py", "content": "x"})
    look = read_files.build_read_tool(root).intent({"path": "/etc/hostname"})
    run = shell.build_shell_tool(root).intent({"command": "ls"})
    other = Intent("send a mail")
    approvals = Approvals(store, "ann", root=tmp_path, ask=None)

    async def let(mode):
        approvals.mode = mode
        named = {"inside": inside, "hook": hook, "outside": outside, "look": look, "run": run, "other": other}  # fmt: skip
        return {name for name, one in named.items() if await approvals(CALL, one) is None}

    assert await let("ask") == set()
    assert await let("edits") == {"inside"}
    assert await let("all") == {"inside", "hook", "outside", "look", "run", "other"}
    assert await let("none") == set()
    approvals.ask = Person(*[Yes()] * 6)
    assert await let("none") == {"look"}
    assert approvals.ask.asked == [look.what]
    with pytest.raises(BadInput, match="there is no mode 'yolo'; there are ask, edits, all, none"):
        approvals.mode = "yolo"


async def test_rules_of_the_settings_and_deny_wins(store, tmp_path):
    person = Person(No(), No())
    approvals = Approvals(
        store,
        "ann",
        root=tmp_path,
        ask=person,
        allow=["shell: git *", "mail__send"],
        deny=["shell: git push *", "write: secrets/*"],
    )
    assert await approvals(CALL, running("git status")) is None
    assert await approvals(Call("c", "mail__send"), Intent("send")) is None
    assert (
        await approvals(CALL, running("git push -f")) == "the settings forbid 'shell: git push *'"
    )
    assert await approvals(CALL, running("git add . && git push")) is not None
    approvals.mode = "all"
    assert await approvals(CALL, running("git push")) == "the settings forbid 'shell: git push *'"
    secret = Intent("write", "", for_path("write", "secrets/key"))
    assert "forbid" in await approvals(Call("c", "write"), secret)
    assert person.asked == []


async def test_what_is_called_at_once_is_asked_one_after_another(store, tmp_path):
    """And an answer that settles the ones behind it is not asked for again."""
    person = Person(Yes("session", "shell: cargo *"), No(), Yes())
    approvals = Approvals(store, "ann", root=tmp_path, ask=person)
    commands = ["cargo build", "cargo test", "ls", "cargo run", "pwd"]
    answers = await asyncio.gather(*(approvals(CALL, running(one)) for one in commands))
    assert answers == [None, None, "the user said no", None, None]
    assert person.asked == ["run cargo build", "run ls", "run pwd"]


class Slow:
    """A store that lets others go first between what it reads and what is written."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def get(self, *given):
        """What is there, a moment ago."""
        found = await self._store.get(*given)
        await asyncio.sleep(0.001)
        return found


async def test_two_processes_remember_at_once(store, tmp_path):
    """Neither loses what the other has remembered."""

    def one():
        answers = Person(*[Yes("project")] * 5)
        return Approvals(Slow(store), "ann", root=tmp_path, ask=answers)

    both = {"a": one(), "b": one()}
    await asyncio.gather(
        *(each(CALL, running(f"make {name}{n}")) for name, each in both.items() for n in range(5))
    )
    assert len(await both["a"].list_remembered_rules()) == 10


async def test_the_agent_asks_before_it_writes_and_runs(tmp_path):
    """Through the loop: what was refused did not happen, and the model is told why."""
    calls = [
        ("write", {"path": "a.txt", "content": "a"}),
        ("write", {"path": "b.txt", "content": "b"}),
        ("shell", {"command": f"touch {shlex.quote(str(tmp_path / 'c.txt'))}"}),
        ("read", {"path": "a.txt"}),
    ]
    message = {
        "content": None,
        "tool_calls": [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(one)}}
            for at, (name, one) in enumerate(calls)
        ],
    }  # fmt: skip
    person = Person(Yes(), No("not b"), No())
    async with foldline.aopen(":memory:", model="scripted", window=64_000) as session:
        model = ScriptedModel([message, "done"])
        approvals = Approvals(session.live.store, "ann", root=tmp_path, ask=person)
        agent = Agent(session, model, tools=own(session, tmp_path), approve=approvals)
        assert (await agent.turn("Go.")).words == "done"
        told = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]
    assert told == [
        "done: create a.txt, 1 line",
        "Error: not run: the user said no: not b",
        "Error: not run: the user said no",
        "a",
    ]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.txt"]


@pytest.mark.parametrize("rule", ["read: .env", "read: .e*", "read"])
async def test_what_nobody_is_asked_about_is_forbidden_all_the_same(tmp_path, rule):
    (tmp_path / ".env").write_text("KEY=1")
    call = {"name": "read", "arguments": '{"path": "./.env"}'}
    asks = {"tool_calls": [{"id": "c", "type": "function", "function": call}]}
    settings = load_settings(tmp_path, env={}, flags={"model": "scripted", "approval.deny": [rule]})
    model = ScriptedModel([asks, "ok"])
    async with (
        foldline.aopen(":memory:", model="scripted", window=10_000) as session,
        agent_of(session, model, settings, root=tmp_path) as made,
    ):
        await made.agent.turn("look")
    told = model.requests[-1]["messages"][-1]["content"]
    assert f"not run: the settings forbid {rule!r}" in told
    assert "KEY=1" not in told

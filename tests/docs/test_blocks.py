"""Every fenced block of the documentation is run, or names the test that runs it.

A page's blocks run in order, in one folder and one namespace, against a scripted provider on a real
port. What a block prints is held to the `text` block behind it, and a `text` block that nothing
prints fails, unless a table names the test that holds it; a line `…` stands for any lines.
`FOLDLINE_DOCS=write` writes what was printed into the pages instead. In a comment above a block:

    <!-- run: peers -->     compiled; and run in the environment of `just peers`, by `just test-all`
    <!-- run: langchain --> the same in the environment of a framework, which the test installs

A block of a kind that nobody runs fails, with its page and line.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from agents import PACKAGES, RIG, install
from program import served

import foldline
from foldline.apps.cli.app import run_command
from foldline.apps.run.agent_setups import AGENTS
from foldline.testing import Provider

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PEERS = ROOT / ".rig" / "peers" / "bin" / "python"
FRAMEWORKS = [name for name, (kind, *_) in PACKAGES.items() if kind == "foldline"]
"""Environments with a framework and this package; each has a page of the same name, or a place on `SHARED`."""
SHARED = {
    "adk": "docs/how-to/gemini.md",
    "agent-framework": "docs/how-to/codex.md",
    "fastapi": "docs/how-to/web-service.md",
}
"""Frameworks without a page of their own."""
WRITE = os.environ.get("FOLDLINE_DOCS") == "write"
ELSEWHERE = {
    ("docs/reference/cli.md", "console"): "tests/cli/test_docs.py::test_every_line_runs",
    ("docs/reference/http.md", "console"): "tests/gateway/test_api_document.py::test_the_lines_of_the_page_are_true",
    ("docs/how-to/run-a-gateway.md", "console"): "benches/first_gateway.py::main",
    ("docs/how-to/runbook.md", "console"): "tests/gateway/test_runbook.py::test_every_line_runs_in_order",
    ("docs/how-to/policies.md", "console"): "tests/cli/test_docs.py::test_every_line_runs",
    ("docs/how-to/measure-quality.md", "console"): "tests/cli/test_lab_quality.py::test_every_line_of_the_page_runs",
    ("docs/how-to/chat.md", "sh"): "tests/cli/test_one_message.py::test_c2_a_pipe_goes_along_with_the_message",
    ("docs/how-to/chat.md", "text"): "scripts/screens.py::main",
    ("docs/how-to/run.md", "text"): "tests/run/test_run_report.py::test_the_page_shows_a_report",
    ("docs/how-to/cold-cache.md", "text"): "tests/docs/test_quoted.py::test_what_cold_cache_md_quotes_is_what_is_said",
    ("docs/how-to/codex.md", "toml"): "tests/docs/test_codex.py::test_codex_works_with_the_settings_of_the_page",
    ("docs/how-to/gateway.md", "console"): "tests/gateway/test_relay_docs.py::test_every_line_runs_in_order",
    ("docs/how-to/instructions.md", "python"): "tests/agent/test_instructions_session.py::test_the_page_on_instructions_tells_the_truth",
    ("docs/how-to/instructions.md", "text"): "tests/agent/test_instructions_session.py::test_the_page_on_instructions_tells_the_truth",
    ("docs/how-to/mcp.md", "json"): "tests/cli/test_mcp.py::test_what_the_page_tells_to_write_works",
    ("docs/how-to/schedule.md", "console"): "tests/cli/test_schedule.py::test_every_line_of_the_page_runs",
    ("docs/how-to/troubleshooting.md", "text"): "tests/docs/test_troubleshooting.py::test_what_is_quoted_is_what_is_said",
    **{
        ("docs/how-to/postgresql.md", kind): "tests/stores/test_postgres_page.py::test_every_block_runs"
        for kind in ("console", "ini", "python", "sql")
    },
}  # fmt: skip
"""Which blocks of which page are run by a test of their own."""
QUOTED = {
    ("docs/how-to/policies.md", "47 sessions"): "tests/docs/test_quoted.py::test_what_policies_md_quotes_is_what_is_said",
}  # fmt: skip
"""A `text` block that no block prints, by its page and first words, and the test that holds it."""
WINDOWS = {
    "docs/how-to/gemini.md": 3_000,
    "docs/how-to/raw-loop.md": 4_000,
    "docs/how-to/wrap.md": 3_000,
    **{f"docs/how-to/{name}.md": 8_000 for name in FRAMEWORKS},
}
"""The provider's window, in tokens, where a page goes past it."""
STRANGERS = {
    "codex",
    "curl",
    "docker",
    "git",
    "journalctl",
    "llama-server",
    "systemctl",
    "your-agent",
}
"""Programs of others, which a page may name; their lines are not run."""
FENCE = re.compile(
    r"(?:^<!-- run: (?P<how>[\w-]+) -->\n)?^(?P<fence>```+|~~~+)(?P<kind>[^\n]*)\n(?P<body>.*?)^(?P=fence)\s*$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: what it is, what it says, and where."""

    kind: str
    body: str
    page: str
    line: int
    how: str = ""

    @property
    def place(self) -> str:
        """As an editor finds it."""
        return f"{self.page}:{self.line}"


def blocks(text: str, page: str) -> list[Block]:
    """The fenced blocks of a page; the line is that of their first line."""
    return [
        Block(
            kind=found["kind"].strip(),
            body=found["body"],
            page=page,
            line=text.count("\n", 0, found.start("body")) + 1,
            how=found["how"] or "",
        )
        for found in FENCE.finditer(text)
    ]


def pages() -> list[str]:
    """All pages but the decisions, which tell why and not how."""
    found = [path for path in DOCS.rglob("*.md") if DOCS / "decisions" not in path.parents]
    return sorted(path.relative_to(ROOT).as_posix() for path in [*found, ROOT / "README.md"])


def answer(body):
    """What the scripted model says: it calls the first tool but `recall` once for each message, then it answers."""
    if "messages" not in body:
        return "ok"  # a server is also asked how large its window is
    newest = body["messages"][-1]
    content = newest.get("content")
    given = isinstance(content, list) and any(one.get("type") == "tool_result" for one in content)
    none = body.get("tool_choice") in ("none", {"type": "none"})
    if none or not body.get("tools") or newest["role"] == "tool" or given:
        return "Done: everything is fine."
    tools = [one.get("function", one) for one in body["tools"]]
    tool = next((one for one in tools if one["name"] != "recall"), tools[0])
    schema = tool.get("parameters") or tool.get("input_schema") or {}
    values = json.dumps(dict.fromkeys(schema.get("required", ()), "notes.txt"))
    call = {"id": f"call_{len(body['messages'])}", "type": "function", "function": {"name": tool["name"], "arguments": values}}  # fmt: skip
    return {"content": None, "tool_calls": [call]}


class Page:
    """A page while it is run: its folder, its names, its provider."""

    def __init__(self, name: str, folder: Path, provider: Provider) -> None:
        self.name, self.folder, self.provider = name, folder, provider
        self.names: dict = {"__name__": "__main__"}
        self.runs_elsewhere = WRITE
        """Whether to run the blocks of other environments, too."""

    def run(self, block: Block) -> str:
        """Run a block, and give what it printed."""
        match block.kind:
            case "python" if block.how:
                return self._run_elsewhere(block)
            case "python":
                return self._python(block)
            case "console":
                return "".join(self._line(line) for line in block.body.splitlines())
            case "toml" | "yaml" if "[Service]" not in block.body:
                return self._settings(block)
            case "json":
                json.loads(block.body)
            case _:
                raise AssertionError(f"nobody runs a block of {block.kind or 'no kind'!r}")
        return ""

    def _python(self, block: Block) -> str:
        tree = compile(
            "\n" * (block.line - 1) + block.body,
            block.page,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            made = eval(tree, self.names)  # noqa: S307
            if inspect.iscoroutine(made):
                asyncio.run(made)
        return said.getvalue()

    def _run_elsewhere(self, block: Block) -> str:
        compile(block.body, block.page, "exec")
        python = PEERS if block.how == "peers" else RIG / block.how / "bin" / "python"
        assert block.how in ("peers", *FRAMEWORKS), f"there is no environment {block.how!r}"
        if not self.runs_elsewhere or not python.exists():
            return ""
        here = {"PYTHONPATH": str(ROOT / "src"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        done = subprocess.run(
            [python, "-W", "ignore", "-c", block.body], env={**os.environ, **here},
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _settings(self, block: Block) -> str:
        if block.kind == "yaml" and "services:" in block.body:
            yaml.safe_load(block.body)
            return ""
        (self.folder / "quick.md").write_text("Be quick.")  # what file:// of a page may name
        file = self.folder / f"foldline.{block.kind}"
        file.write_text(block.body)
        code, out, err = ran(["config", "check", str(file)])
        assert code == 0, out + err
        return ""

    def _line(self, line: str) -> str:
        if not line.startswith("$ "):
            raise AssertionError(f"a line that does not begin with `$ `: {line}")
        last = line[2:].rpartition(" | ")[2]
        words = shlex.split(last.replace("http://127.0.0.1:8080", self.provider.url), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        program, *given = map(os.path.expanduser, words)
        match program:
            case "export":
                os.environ.update(pair.split("=", 1) for pair in given)
            case "pip":
                installable([one for one in given if one not in ("install", "--upgrade", "-U")])
            case "just":
                recipe(given)
            case "foldline" if (
                given[0] == "bot"
            ):  # without a token: it is asked for once all else is read
                os.environ.pop("TELEGRAM_BOT_TOKEN", None)
                code, _, err = ran(given)
                assert (code, "the environment has no TELEGRAM_BOT_TOKEN" in err) == (2, True), err
            case "foldline" if given[0] == "run":  # agents: tests/run/test_real_agents.py
                name = next(one for one in given[1:] if one in ("--", *AGENTS))
                code, _, err = ran([*given[: given.index(name)], "true"])
                assert code == 0, f"{line}\n{err}"
            case "foldline" if given[0] == "serve":
                comes_up(given, self.folder)
            case "foldline":
                given += ["--jobs", "1"] if given[:2] == ["lab", "compare"] else []
                # The page has the model in the settings; here there are none.
                given += ["--model", "gpt-6.1-sol"] if given[:2] == ["chat", "-p"] else []
                code, out, err = ran(given, stdin="Hello." if given[0] == "chat" else "")
                assert code == 0, f"{line}\n{out}{err}"
                return out
            case _ if program not in STRANGERS:
                raise AssertionError(f"nobody knows the program {program!r}")
        return ""

    def close(self) -> None:
        """Let go of what the page has opened."""
        for made in reversed([*self.names.values()]):
            if hasattr(made, "close") and not isinstance(made, type):
                ended = made.close()
                if inspect.iscoroutine(ended):
                    asyncio.run(ended)


def ran(given: list[str], stdin: str = "") -> tuple[int, str, str]:
    """Run the command in this process: its code, and what it wrote on both streams."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    with tempfile.TemporaryFile("w+") as said:  # a real file: the command asks for its number
        said.write(stdin)
        said.seek(0)
        sys.stdin = said if stdin else io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run_command(given)
        finally:
            sys.stdin = before
    return code, out.getvalue(), err.getvalue()


def comes_up(given: list[str], folder: Path) -> None:
    """A server is there, and goes by SIGTERM."""
    port = given.index("--port") + 1 if "--port" in given else None
    given = [*given, "--port", "0"] if port is None else [*given[:port], "0", *given[port + 1 :]]
    with (
        served(given[1:], folder) as (number, _),
        urllib.request.urlopen(f"http://127.0.0.1:{number}/healthz", timeout=20) as got,
    ):
        assert got.status == 200


def recipe(given: list[str]) -> None:
    """A recipe of the justfile, and a bench or a chaos that there is; they are run elsewhere."""
    name, *rest = given
    assert re.search(rf"^{re.escape(name)}[ :]", (ROOT / "justfile").read_text(), re.MULTILINE), (
        name
    )
    folder = {"bench": ROOT / "benches", "chaos": ROOT / "tests" / "chaos"}.get(name)
    assert folder is None or (folder / f"{rest[0]}.py").exists(), rest


def installable(given: list[str]) -> None:
    """What `pip install` is told is this package with extras that it has, or what these need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pins = [pin for name in FRAMEWORKS for pin in PACKAGES[name][1:]]
    known = {re.split(r"[\[>=]", one)[0] for need in (*extras.values(), pins) for one in need}
    for one in given:
        name, _, rest = one.rstrip("]").partition("[")
        assert name in {"foldline", ".", *known}, f"nobody installs {name!r} here"
        for extra in filter(None, rest.split(",") if name in ("foldline", ".") else ()):
            assert extra in extras, f"there is no extra {extra!r}"


def same(told: str, printed: str) -> bool:
    """Whether a `text` block is what was printed; `…` alone on a line stands for any lines."""
    wanted = [line.rstrip() for line in told.strip().splitlines()]
    pattern = "\n".join("(?:.*\n)*?.*" if line == "…" else re.escape(line) for line in wanted)
    lines = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def proven(page: Page, found: list[Block]) -> list[tuple[Block, str]]:
    """Run a page; the `text` blocks that are not what was printed, with what was."""
    wrong: list[tuple[Block, str]] = []
    printed = ""
    before: Block | None = None
    for block in found:
        if (page.name, block.kind) in ELSEWHERE:
            printed = ""
        elif block.kind == "text":
            quoted = any(
                page.name == name and block.body.startswith(words) for name, words in QUOTED
            )
            away = before is not None and before.how  # held where that environment is
            made = page.name.startswith("docs/reference/")  # from the code, by `just reference`
            if not (printed or quoted or away or made):
                raise AssertionError(f"nothing prints what {block.place} shows")
            if printed and not same(block.body, printed):
                wrong.append((block, printed))
            printed = ""
        else:
            try:
                printed = page.run(block)
            except BaseException as fault:
                fault.add_note(f"in {block.place}")
                raise
        before = block
    return wrong


@pytest.fixture(scope="module")
def talked(tmp_path_factory):
    """A store with a session to look at, under the name that pages use."""
    store = tmp_path_factory.mktemp("talked") / "sessions.db"
    with foldline.open(str(store), model="gpt-5", session="NAME") as talk:
        for turn in range(14):
            talk.add(f"Turn {turn}.")
            talk.request()
            talk.add({"role": "assistant", "content": "Fine."})
    return store


@pytest.fixture
def started(talked, tmp_path, monkeypatch):
    """A page's folder, its provider, and files as other agents leave them."""
    folder = tmp_path / "work"
    files = ROOT / "tests" / "importers" / "files"
    for place in ("work/sessions", "home/.claude/projects", "home/.codex/sessions", "home/.pi"):
        shutil.copytree(files, tmp_path / place)
    (folder / "notes.txt").write_text("The parser tests pass again.\n")
    for name in [one for one in os.environ if one.startswith(("FOLDLINE_", "OPENAI_", "ANTHROPIC_"))]:  # fmt: skip
        monkeypatch.delenv(name)
    for name, place in (("HOME", "home"), ("XDG_DATA_HOME", "home/d"), ("XDG_CONFIG_HOME", "home/c")):  # fmt: skip
        monkeypatch.setenv(name, str(tmp_path / place))
    uvx = tmp_path / "home" / "bin" / "uvx"  # whatever it is asked for, an MCP server of our own
    uvx.parent.mkdir()
    uvx.write_text(f"#!/bin/sh\nexec {sys.executable} {ROOT}/tests/agent/sdk_server.py\n")
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uvx.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(folder)
    store = tmp_path / "home" / "d" / "foldline" / "sessions.db"
    store.parent.mkdir(parents=True)
    shutil.copy(talked, store)
    with Provider(answer) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", provider.url)
        for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(key, "none")
        made: list[Page] = []

        def start(name: str) -> Page:
            provider.window = WINDOWS.get(name, provider.window)
            made.append(Page(name, folder, provider))
            return made[-1]

        kept = dict(os.environ)
        yield start
        for page in made:
            page.close()
        for name in {*os.environ} - {*kept}:
            os.environ.pop(name)


@pytest.mark.real
@pytest.mark.parametrize(
    "name", [one for one in pages() if "<!-- run: peers" in (ROOT / one).read_text()]
)
def test_the_peers_do_what_is_said_of_them(started, name):
    if not PEERS.exists():
        pytest.skip("no peers here: `just peers`")
    assert_page_is_true(started(name))


@pytest.fixture
def framework(request):
    """A framework, installed before `started` gives the test another HOME, and with it another cache."""
    install(request.param)
    return request.param


@pytest.mark.real
@pytest.mark.parametrize("framework", FRAMEWORKS, indirect=True)
def test_frameworks_do_what_their_pages_say(framework, started):
    page = started(SHARED.get(framework, f"docs/how-to/{framework}.md"))
    assert_page_is_true(page)
    if framework in SHARED:
        return
    assert page.provider.asked, "no block of the page was run"
    code, out, err = ran(["sessions", "--json", "--store", str(page.folder / "users.db")])
    assert code == 0, err
    assert {one["session"] for one in json.loads(out)["sessions"]} == {"ada", "grace"}


def assert_page_is_true(page: Page) -> None:
    """Run a page with its blocks of other environments."""
    page.runs_elsewhere = True
    text = (ROOT / page.name).read_text()
    told = [f"{one.place}\n{printed}" for one, printed in proven(page, blocks(text, page.name))]
    assert not told, "\n".join(told)


@pytest.mark.parametrize("name", pages())
def test_every_block_is_true(started, name):
    text = (ROOT / name).read_text()
    wrong = proven(started(name), blocks(text, name))
    if WRITE:
        lines = text.splitlines(keepends=True)
        for block, printed in reversed(wrong):
            lines[block.line - 1 : block.line - 1 + block.body.count("\n")] = printed.strip() + "\n"
        (ROOT / name).write_text("".join(lines))
        return
    told = [f"{block.place} says\n{block.body}and it was\n{printed}" for block, printed in wrong]
    assert not told, "\n".join(told)


def test_the_tests_that_are_named_are_there():
    for (name, kind), where in (*ELSEWHERE.items(), *QUOTED.items()):
        text = (ROOT / name).read_text()
        found = [one for one in blocks(text, name) if one.kind == kind or one.body.startswith(kind)]
        assert found, f"{name} has no block of {kind!r}: take it out of the table"
        file, _, test = where.partition("::")
        source = (ROOT / file).read_text()
        assert f"def {test}(" in source, where
        assert Path(name).name in source, f"{file} does not name {name}"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```ruby\nputs 1\n```\n", "nobody runs a block of 'ruby'"),
        ("```\nwords\n```\n", "nobody runs a block of 'no kind'"),
        ("```python\n1 / 0\n```\n", "division by zero"),
        ("```console\n$ foldline nothing\n```\n", "No such command"),
        ("```console\n$ pip install 'foldline[moon]'\n```\n", "there is no extra 'moon'"),
        ("```console\n$ rm -r home\n```\n", "nobody knows the program 'rm'"),
        ("```console\n$ just bench moon\n```\n", "moon"),
        ("```console\n$ foldline bot --moon\n```\n", "No such option"),
        ("```toml\npolicy = 'stedy'\n```\n", "steady"),
        ("```json\n{'a': 1}\n```\n", "Expecting property name"),
        ("<!-- run: peers -->\n```python\nif:\n```\n", "invalid syntax"),
        ("<!-- run: moon-ai -->\n```python\n1\n```\n", "there is no environment 'moon-ai'"),
    ],
)
def test_a_block_that_is_wrong_is_found(started, page, words):
    """The runner can fail, and says where."""
    with pytest.raises(Exception, match=re.escape(words)) as raised:
        proven(started("made.md"), blocks(f"# Made\n\n{page}", "made.md"))
    line = 5 if page.startswith("<!--") else 4
    assert raised.value.__notes__[-1] == f"in made.md:{line}"


@pytest.mark.parametrize(
    ("told", "wrong"), [("3", False), ("4", True), ("…", False), ("…\n4", True), ("3\n4", True)]
)
def test_an_output_that_is_wrong_is_found(started, told, wrong):
    page = f"```python\nprint(1 + 2)\n```\n\nIt prints:\n\n```text\n{told}\n```\n"
    assert bool(proven(started("made.md"), blocks(page, "made.md"))) == wrong


@pytest.mark.parametrize("before", ["", "```python\nx = 1\n```\n\n"])
def test_an_output_that_nothing_prints_is_found(started, before):
    page = f"# Made\n\n{before}```text\n3\n```\n"
    with pytest.raises(AssertionError, match="nothing prints what made"):
        proven(started("made.md"), blocks(page, "made.md"))

"""Adapters in their frameworks' own environments, by the checks of `foldline.testing.adapter_checks`.

Each host is a program beside this file: an agent of the framework, with the adapter, driven by the framework's own
runner against a scripted model on a real port. CI runs the short list; `just test-all` all of it, and the mutants.

The table of docs/reference/frameworks.md has what the checks found and what the hosts declare. Each run compares its row;
`FOLDLINE_DOCS=write pytest tests/adapters -k every_check` writes it anew.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from agents import RIG, install
from check_types import check_files

from foldline.testing.adapter_checks import CHECKS

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "foldline" / "adapters"
HOSTS = {
    "langchain": "LangChain",
    "langchain-sync": "LangChain, no `await`",
    "langchain-responses": "LangChain, Responses",
    "pydantic-ai": "pydantic-ai",
    "pydantic-ai-responses": "pydantic-ai, Responses",
    "pydantic-ai-anthropic": "pydantic-ai, Claude",
    "openai-agents": "openai-agents",
    "openai-agents-chat": "openai-agents, chat",
    "adk": "ADK",
    "litellm": "litellm",
}
"""What each framework is asked as, and its name in the table."""
PAGE = HERE.parents[1] / "docs" / "reference" / "frameworks.md"
BEGIN, END = "<!-- made by tests/adapters/test_adapters.py -->\n", "<!-- end -->\n"
FRAMEWORKS = ("langchain", "pydantic-ai", "openai-agents", "adk", "litellm")
SHORT = ("long run", "streamed run", "recall", "two at once", "restart")
MUTANT = """
import importlib.util, runpy, sys
name, file, host, *wanted = sys.argv[1:]
spec = importlib.util.spec_from_file_location(name, file)
sys.modules[name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.argv = [host, *wanted]
runpy.run_path(host, run_name="__main__")
"""
EDITED = ("if not plan.is_edited:", "if plan is not None:")
MUTANTS = {
    "langchain": (
        EDITED,
        ('input=usage.get("input_tokens")', "input=None"),
        ("self.tools = [self._build_recall_tool()] if recall else []", "self.tools = []"),
        ("for one in plan.shown if one.place is None or", "for one in plan.shown if one.place is not None and"),
    ),
    "pydantic-ai": (
        EDITED,
        ("input=usage.input_tokens or None", "input=None"),
        ("if not self._recall:", "if self._recall:"),
        ("for one in run if one.place is None]", "for one in run if one.place == -1]"),
    ),
    "openai-agents": (
        EDITED,
        ("input=usage.input_tokens or None", "input=None"),
        ("return await AsyncSession(call.plan.call.exchange.live)", "return await AsyncSession(None)"),
        ("one.message for one in plan.shown", "one.message for one in plan.shown if one.place is not None"),
    ),
    "adk": (
        ("if plan.is_edited:", "if plan is None:"),
        ("input=usage.prompt_token_count", "input=None"),
        ("if self._tool is not None and", "if self._tool is None and"),
        ("for one in plan.shown]", "for one in plan.shown if one.place is not None]"),
    ),
    "litellm": (
        EDITED,
        ("input=usage.prompt_tokens", "input=None"),
        ('str(metadata.get("session_id")', 'str(metadata.get("session")'),
        ("for one in plan.shown\n", "for one in plan.shown if one.place is not None\n"),
    ),
}  # fmt: skip
"""Lines of each adapter, and what they are replaced by; the checks must see each."""


NAMED = {
    "langchain": ('if one.partition(":")[0] == "tools"', 'if one == "tools"'),
    "pydantic-ai": ("str(ctx.conversation_id or ctx.run_id)", '"one"'),
    "openai-agents": ("if call.is_outer() else call.within", "if call is None else call.within"),
    "adk": ('f"{context.session.id}/{context.agent_name}"', '"one"'),
}
"""Lines that give a sub-agent its own log; the check of sub-agents must see each."""
THOUGHTS = {
    "langchain-responses": (
        "        return own\n",
        "        return own.model_copy(update={'content': own.text})\n",
    ),
    "pydantic-ai": (
        "messages.append(own)",
        'messages.append(replace(own, parts=[one for one in own.parts if one.part_kind != "thinking"]))',
    ),
    "pydantic-ai-anthropic": ("if thoughts:", "if not thoughts:"),
    "openai-agents": (
        "one.message for one in plan.shown",
        'one.message for one in plan.shown if one.message.get("type") != "reasoning"',
    ),
    "adk": (
        "return own[shown.place]",
        "return own[shown.place].model_copy(update={'parts': own[shown.place].parts[1:]})",
    ),
    "litellm": (
        "messages[one.place] if one.same and one.place is not None else one.message",
        "{key: value for key, value in one.message.items() if key != 'reasoning_content'}",
    ),
}
"""Lines that give the model's own thoughts back, and count them; the check of reasoning must see each."""


def name_package(host):
    return next(one for one in FRAMEWORKS if host.startswith(one))


def run_host(host, *wanted, mutant=None):
    """Run a host's checks, in place of a module with a mutant of it; how each ended."""
    package = name_package(host)
    install(package)
    program = str(HERE / f"{package.replace('-', '_')}_host.py")
    variant = [word for word in [host.removeprefix(package).strip("-")] if word]
    line = [program, *variant, *wanted]
    if mutant:
        line = ["-c", MUTANT, f"foldline.adapters.{mutant.stem}", mutant, *line]
    done = subprocess.run(
        [RIG / package / "bin" / "python", *line],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    found = [json.loads(one) for one in done.stdout.splitlines() if one.startswith('{"check"')]
    assert [one["check"] for one in found] == [*(wanted or CHECKS)], done.stdout + done.stderr
    return found


def list_wrong(results):
    return [one for one in results if one["holds"] == "wrong"]


def read_table(text):
    """Read the page's table: for each host its cell of every check, and the reasons below it."""
    rows = re.findall(r"^\| (.+?) \|$", text.partition(BEGIN)[2].partition(END)[0], re.MULTILINE)
    head, _, *cells = [row.split(" | ") for row in rows]
    names = {title: host for host, title in HOSTS.items()}
    table = {names[row[0]]: dict(zip(head[1:], row[1:], strict=True)) for row in cells}
    whys = re.findall(r"^- \*\*(.+?)\*\*, (.+?): (.+)\.$", text, re.MULTILINE)
    return table, {(names[title], check): why for title, check, why in whys}


def write_table(table, whys):
    """Write the table as the page has it, one row for each host."""
    rows = [["framework", *CHECKS], ["---"] * (len(CHECKS) + 1)]
    rows += [
        [HOSTS[host], *(table[host][check] for check in CHECKS)] for host in HOSTS if host in table
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    order = [(host, check) for host in HOSTS for check in CHECKS if (host, check) in whys]
    listed = [f"- **{HOSTS[host]}**, {check}: {whys[host, check]}." for host, check in order]
    return "\n".join([*lines, "", *listed, ""])


def tell_results(host, results):
    """Compare a host's results with its row of the page, or write them there."""
    text = PAGE.read_text()
    table, whys = read_table(text)
    found = {one["check"]: one["holds"] for one in results}
    reasons = {(host, one["check"]): one["why"] for one in results if one["why"]}
    if os.environ.get("FOLDLINE_DOCS") == "write":
        table[host] = table.get(host, {}) | found
        whys = {
            place: why for place, why in whys.items() if place[0] != host or place[1] not in found
        } | reasons
        made = f"{BEGIN}\n{write_table(table, whys)}\n{END}"
        PAGE.write_text(text.partition(BEGIN)[0] + made + text.partition(END)[2])
        return
    assert {check: table[host].get(check) for check in found} == found
    assert {
        place: why for place, why in whys.items() if place[0] == host and place[1] in found
    } == reasons


@pytest.mark.real
@pytest.mark.parametrize("host", FRAMEWORKS)
def test_a_long_run_fits_and_recalls(host):
    results = run_host(host, *SHORT)
    assert list_wrong(results) == []
    tell_results(host, results)


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("host", HOSTS)
def test_every_check_holds(host):
    results = run_host(host)
    assert list_wrong(results) == []
    tell_results(host, results)


def test_the_table_has_every_check_of_every_host():
    text = PAGE.read_text()
    table, whys = read_table(text)
    assert f"{BEGIN}\n{write_table(table, whys)}\n{END}" in text
    assert [*table] == [*HOSTS]
    for host, row in table.items():
        assert [*row] == [*CHECKS]
        assert {(host, check) for check, holds in row.items() if holds != "yes"} == {
            one for one in whys if one[0] == host
        }
        assert {*row.values()} <= {"yes", "partly", "no"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"check": "recall", "holds": "wrong", "why": "it is not answered"},
        {"check": "recall", "holds": "no", "why": "there are no tools"},
        {"check": "sub-agents", "holds": "yes", "why": ""},
    ],
)
def test_a_page_that_says_something_else_is_found(wrong, monkeypatch):
    monkeypatch.delenv("FOLDLINE_DOCS", raising=False)
    with pytest.raises(AssertionError):
        tell_results("litellm", [wrong])


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("host", FRAMEWORKS)
@pytest.mark.parametrize("number", range(4))
def test_mutants_are_caught(host, number, tmp_path):
    mutant = write_mutant(host, *MUTANTS[host][number], tmp_path)
    assert list_wrong(run_host(host, "long run", "recall", mutant=mutant))


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("host", NAMED)
def test_a_mutant_that_mixes_agents_is_caught(host, tmp_path):
    mutant = write_mutant(host, *NAMED[host], tmp_path)
    assert list_wrong(run_host(host, "sub-agents", mutant=mutant))


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("host", THOUGHTS)
def test_a_mutant_that_loses_thoughts_is_caught(host, tmp_path):
    mutant = write_mutant(host, *THOUGHTS[host], tmp_path)
    assert list_wrong(run_host(host, "reasoning", mutant=mutant))


def write_mutant(host, was, becomes, folder):
    """Write the module of an adapter that has a line, with another one in its place."""
    name = name_package(host).replace("-", "_")
    found = [path for path in SOURCE.glob(f"{name}*.py") if path.read_text().count(was) == 1]
    assert len(found) == 1, f"{was!r} stands once in {found}"
    mutant = folder / found[0].name
    mutant.write_text(found[0].read_text().replace(was, becomes))
    return mutant


@pytest.mark.real
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_pyright_agrees_where_the_framework_is(framework):
    install(framework)
    line = [
        *(sys.executable, "-m", "pyright"),
        "--pythonpath",
        RIG / framework / "bin" / "python",
        *SOURCE.glob(f"{framework.replace('-', '_')}*.py"),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout


PAGES = {one: f"{one}.md" for one in FRAMEWORKS} | {"adk": "gemini.md"}
BLOCK = re.compile(r"^<!-- run: ([\w-]+) -->\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
UNKNOWN = ("reportUnknownArgumentType", "reportUnknownMemberType", "reportUnknownVariableType")
LOOSE = {"langchain": UNKNOWN, "litellm": UNKNOWN}
"""Frameworks whose own functions have unknown types, and the rules that their users cannot keep."""
TYPED = {
    "langchain": ("FoldlineMiddleware", "Follower"),
    "pydantic-ai": ("FoldlineCapability", "AsyncFollower"),
    "openai-agents": ("FoldlineHooks", "AsyncFollower"),
    "adk": ("FoldlinePlugin", "AsyncFollower"),
    "litellm": ("FoldlineLogger", "AsyncFollower"),
}
USE = """
from typing import assert_type

import foldline
from foldline.adapters.{module} import {name}

adapter = {name}(store="chats.db", window=8_000, policy="steady")
assert_type(adapter, {name})
assert_type(adapter.follower, foldline.{follower})
"""
WRONG = (
    USE
    + """
number: int = adapter.follower.open_session("ada")
{name}(windw=8_000)
"""
)


def list_examples(framework):
    """List what users copy: the blocks of the framework's page that import its adapter, and all that an adapter has."""
    text = (HERE.parents[1] / "docs" / "how-to" / PAGES[framework]).read_text()
    blocks = [
        one
        for one in BLOCK.finditer(text)
        if one[1] == framework and "foldline.adapters." in one[2]
    ]
    files = {f"line_{text.count(chr(10), 0, one.start()) + 3}.py": one[2] for one in blocks}
    assert files, f"{PAGES[framework]} has no example of the adapter"
    return {**files, "use.py": write_use(framework, USE)}


def write_use(framework, text):
    name, follower = TYPED[framework]
    return text.format(module=framework.replace("-", "_"), name=name, follower=follower)


def check_examples(framework, files):
    install(framework)
    python = RIG / framework / "bin" / "python"
    folder = HERE.parents[1] / "build" / "types" / framework
    return check_files(files, folder, environment=python, without=LOOSE.get(framework, ()))


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_examples_are_clean_by_pyright_and_mypy(framework):
    assert check_examples(framework, list_examples(framework)) == ""


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_wrong_use_of_an_adapter_is_found_by_both(framework):
    told = check_examples(framework, {"wrong.py": write_use(framework, WRONG)})
    assert told.count("windw") >= 2, told
    assert "reportAssignmentType" in told
    assert "[assignment]" in told


def test_every_adapter_has_an_example_that_is_checked():
    assert {one: len(list_examples(one)) for one in FRAMEWORKS} == dict.fromkeys(FRAMEWORKS, 2)

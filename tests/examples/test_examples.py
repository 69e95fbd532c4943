"""Every example, started as a person starts it, against a provider on a real port."""

import ast
import io
import json
import re
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from gateway_thread import Served

from foldline.testing import Provider

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
TESTED = {
    name.removeprefix("test_")
    for node in ast.walk(ast.parse(Path(__file__).read_text()))
    if isinstance(node, ast.FunctionDef) and (name := node.name).startswith("test_")
}


@pytest.fixture
def start(tmp_path, monkeypatch, capfd):
    """Start an example in an empty folder; what it prints.

    In this process, because the SDKs take a second or two to import; `alone` gives it its own.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("FOLDLINE_STORE", "FOLDLINE_MODEL", "MODEL", "SESSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "none")

    def started(
        name: str, *args: str, provider: Provider | None = None, alone: bool = False
    ) -> str:
        if provider is not None:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        line = [str(EXAMPLES / f"{name}.py"), *args]
        if alone:
            subprocess.run([sys.executable, *line], check=True, timeout=120)
        else:
            monkeypatch.setattr(sys, "argv", line)
            runpy.run_path(line[0], run_name="__main__")
        said = capfd.readouterr()
        assert said.err == ""
        return said.out

    return started


def call(tool: str, /, **arguments: str) -> dict:
    """A model's message that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": f"call_{tool}", "type": "function", "function": function}]}  # fmt: skip


def tokens(line: str) -> int:
    """The size that a report states."""
    return int(re.search(r"([\d,]+) of [\d,]+ tokens", line)[1].replace(",", ""))


def said(body: dict) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_each_is_short_told_and_tested(path):
    text = path.read_text()
    told = ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= 60
    assert f"python examples/{path.name}" in told
    assert "Start it:   pip install" in told
    table = (EXAMPLES / "README.md").read_text()
    assert table.count(f"[{path.name}]({path.name})") == 1
    assert path.stem in TESTED, f"write test_{path.stem} here"


def test_the_table_names_no_other():
    named = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(named) == [path.name for path in SCRIPTS]


def test_loop_openai(start):
    with Provider([call("read", name="README.md"), "It lists the examples."]) as provider:
        out = start("loop_openai", provider=provider)
        first, second = provider.asked
    assert 'call: read {"name": "README.md"}\nanswer: It lists the examples.\n' in out
    assert first["tools"][0]["function"]["name"] == "read"
    assert "loop_anthropic.py" in second["messages"][-1]["content"], "the file was read"
    assert re.search(r"window: [\d,]+ of 1,050,000 tokens \(.*reported\)", out)


def test_loop_anthropic(start):
    with Provider([call("read", name="../README.md"), "It lists the examples."]) as provider:
        out = start("loop_anthropic", provider=provider)
        _, second = provider.asked
    assert "call: read {'name': '../README.md'}\nanswer: It lists the examples.\n" in out
    result = second["messages"][-1]["content"][0]
    assert result["tool_use_id"] == "call_read"
    assert "# Examples" in str(result["content"]), "this folder's file and not the one above"
    assert second["max_tokens"] == 1_000
    assert re.search(r"window: [\d,]+ of 200,000 tokens \(.*reported\)", out)


def test_wrap_client(start):
    with Provider(lambda _: "All is fine.", window=2_000) as provider:
        out = start("wrap_client", provider=provider)
        assert len(provider.asked) == 12
        assert set(provider.statuses) == {200}
        assert all(body["stream"] for body in provider.asked)
    assert out.count("All is fine.\n") == 12
    assert "own list has 25 messages" in out
    assert int(re.search(r"folds: (\d+);", out)[1]) >= 1
    assert tokens(out) <= 2_000
    assert "still there: Build 0 printed:" in out


def test_async_many(start):
    with Provider(lambda body: f"It is so: {said(body)[-40:]}") as provider:
        out = start("async_many", provider=provider)
        assert len(provider.asked) == 12
        for body in provider.asked:
            topics = [one for one in ("rivers", "bridges", "clocks", "bread") if one in said(body)]
            assert len(topics) == 1, "no session sees another"
    assert re.findall(r"^(\w+): 3 turns", out, re.MULTILINE) == ["rivers", "bridges", "clocks", "bread"]  # fmt: skip


def test_keep_in_a_file(start, tmp_path):
    with Provider(["Hello, Ann.", "Ann."]) as provider:
        first = start("keep_in_a_file", "chat.db", "My name is Ann.", provider=provider)
        second = start("keep_in_a_file", "chat.db", "What is my name?", alone=True)
        _, asked = provider.asked
    assert first.startswith("answer: Hello, Ann.\n")
    assert second.startswith("we have talked 1 times; it began with: My name is Ann.\nanswer: Ann.\n")  # fmt: skip
    assert [one["content"] for one in asked["messages"]] == [
        "Be brief.", "My name is Ann.", "Hello, Ann.", "What is my name?"
    ]  # fmt: skip
    assert (tmp_path / "chat.db").exists()


@pytest.mark.real
def test_postgres_workers(start, monkeypatch):
    from serving import address_of, an_empty_schema  # noqa: PLC0415 - it needs a server

    with an_empty_schema() as schema, Provider(lambda _: "On its way.") as provider:
        provider.delay = 1.0
        monkeypatch.setenv("FOLDLINE_STORE", address_of(schema))
        out = start("postgres_workers", provider=provider)
        assert len(provider.asked) == 1, "one worker asked"
    assert out.count(": holds order-4711\n") == 1
    assert out.count("is held by another worker; wait until it is released") == 1
    assert "answered; 2 messages of the user are in the log" in out
    assert "1 of 2 workers worked at a time" in out


def test_undo_and_recall(start):
    out = start("undo_and_recall")
    sizes = {
        line.partition(":")[0]: tokens(line) for line in out.splitlines() if " tokens (" in line
    }
    assert sizes["before"] == sizes["undone"] > 3 * sizes["folded"]
    assert sizes["folded"] == sizes["redone"]
    assert "a fold would take away: " in out
    assert "12 results" in out
    assert "the first rule is still in the request: True" in out
    assert "60: case 59 of step 1 was run and passed" in out
    assert "found: Step 7: run the tests. Never touch parser/v7.py." in out


def test_narrative(start):
    def told(body):
        asked = body["messages"][-1]["content"]
        seq = re.search(r"^(\d+) user: Keep Python", asked, re.MULTILINE)[1]
        wrong = "" if "could not be used" in asked else f"- Mend it by 2031. [{seq}]\n" * 2
        return f"## The user's goals and preferences\n- Keep Python 3.11 working. [{seq}]\n{wrong}"

    with Provider(told) as provider:
        out = start("narrative", provider=provider)
        assert len(provider.asked) == 2, "the first answer was sent back"
        assert "the number 2031 does not occur" in said(provider.asked[1])
    assert "left the window: " in out
    assert "told by: gpt-6-luna\n" in out
    assert "# The user's goals and preferences\n- Keep Python 3.11 working. [log:4]" in out
    assert "2031" not in out


def test_caps(start):
    with Provider(lambda _: "The Rhine.") as provider:
        out = start("caps", provider=provider)
        made = len(provider.asked)
    number = int(re.search(r"call (\d+) was not made: the cap per session is \$0.0050", out)[1])
    assert made == number - 1 >= 3
    assert f"{made} calls took" in out
    assert float(re.search(r"\$([\d.]+)\n$", out)[1]) <= 0.005


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("n\n", False)])
def test_agent_with_tools(start, tmp_path, monkeypatch, answer, written):
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("a lamp and two chairs")
    script = [
        call("read", path="a.txt"), call("today"),
        call("write", path="notes.md", content="A lamp, two chairs.\n"), "Done.",
    ]  # fmt: skip
    with Provider(script) as provider:
        out = start("agent_with_tools", "work", "Write notes.md.", provider=provider)
        last = said(provider.asked[-1])
    assert "read: ok\ntoday: ok\n" in out
    assert "notes.md" in out.partition("allow?")[0], "what is asked for is shown"
    assert out.endswith("Done.\n")
    assert "a lamp and two chairs" in last
    assert (tmp_path / "work" / "notes.md").exists() == written
    assert f"write: {'ok' if written else 'failed'}" in out
    assert ("the user said no" in last) != written


def test_expert_plan(start):
    out = start("expert_plan")
    assert out == start("expert_plan"), "the same decision every time"
    assert re.search(r"turn \d+: Folded before the request", out)
    events, items = map(int, re.search(r"(\d+) events, (\d+) items", out).groups())
    assert events > 80 > items + 20
    assert tokens(out) < 4_000


def test_import_and_compare(start, tmp_path):
    talk = []
    for turn in range(150):
        talk += [
            {"role": "user", "content": f"Look at module_{turn}."},
            {"role": "assistant", "content": f"module_{turn} is fine. " + "Nothing to do. " * 80},
        ]
    (tmp_path / "long.json").write_text(json.dumps({"model": "gpt-5-mini", "messages": talk}))
    (tmp_path / "other.json").write_text("[1, 2]")
    out = start("import_and_compare", "long.json", "other.json")
    assert "long: 301 events of gpt-5-mini" in out
    assert "left out: " in out
    rows = {line.split()[0]: line for line in out.splitlines() if "names still in sight" in line}
    assert {"off", "steady", "thrifty"} <= {*rows}
    price = {name: float(re.search(r"\$\s*([\d.]+)", row)[1]) for name, row in rows.items()}
    assert price["thrifty"] < price["steady"] < price["off"]
    assert "folds   0" in rows["off"]
    assert "folds   0" not in rows["steady"]
    assert re.search(r"would cost \$[\d.]+; with steady it would have cost", out)


def test_own_policy(start):
    out = start("own_policy")
    shown = dict(re.findall(r"(\w+): a result shows ([\d,]+) of 6,979 characters", out))
    sizes = {name: int(size.replace(",", "")) for name, size in shown.items()}
    assert 4 * sizes["ours"] < sizes["steady"] < 6_979
    folds = dict(re.findall(r"(\w+): (\d+) folds stand", out))
    assert int(folds["steady"]) > int(folds["ours"])


def test_gateway_client(start, tmp_path, monkeypatch):
    with (
        Provider(lambda _: "All is fine.", window=4_000) as provider,
        Served(provider.url, store=str(tmp_path / "gateway.db"), window=4_000) as gateway,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{gateway.url}/v1")
        out = start("gateway_client")
        assert len(provider.asked) == 15
    arrived = [int(size) for size in re.findall(r"(\d+) tokens arrived", out)]
    assert len(arrived) == 15
    assert max(arrived) <= 4_000
    assert any(after < before for before, after in pairwise(arrived)), "a fold"  # fmt: skip
    history = [int(one.replace(",", "")) for one in re.findall(r"([\d,]+) characters of", out)]
    assert history[-1] > 4 * 4_000, "the client sends more than the window holds"

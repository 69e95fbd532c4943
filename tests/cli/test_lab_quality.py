"""`foldline lab quality`: a model that looks facts up in its view, asked through the real command."""

import json
import re
import shlex
from pathlib import Path

import pytest

from foldline.lab.kept_names import iterate_strings
from foldline.lab.planted import is_in_view, is_stale_alone
from foldline.lab.quality import QualityRun, make_cases
from foldline.testing.provider import Provider

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure-quality.md"
WINDOW = 2_048
PRICES = ("--prices", "2,0.2,2.5,8")


class Lookup:
    """A model that answers from what it sees, and summarises by repeating what it saw."""

    def __init__(self, conversations=2, window=WINDOW):
        cases = make_cases(QualityRun(model="gpt-4o", window=window), conversations)
        self.facts = {fact.question: fact for case in cases for fact in case.facts}
        self.asked, self.calls = [], 0

    def __call__(self, body):
        """Answer one request."""
        if "messages" not in body:
            return "ok"  # somebody asks what the server is
        self.calls += 1
        assert body["temperature"] == 0
        text = "\n".join(iterate_strings(body["messages"]))
        last = "\n".join(iterate_strings(body["messages"][-1]["content"]))
        if last.startswith("Summarise"):
            return text[:1_500]
        fact = next(fact for question, fact in self.facts.items() if question in last)
        self.asked.append((fact.question, text))
        if is_in_view(fact, text):
            return f"It is {fact.value.upper()}."
        return fact.stale if is_stale_alone(fact, text) else "UNKNOWN"


@pytest.fixture
def model():
    """The model, on a port."""
    script = Lookup()
    with Provider(script) as provider:
        provider.lookup = script
        yield provider


@pytest.fixture
def quality(cli, model, tmp_path):
    """Ask it."""

    def ran(*more, base_url=None):
        return cli(
            *("lab", "quality", "--model", "gpt-4o", "--window", WINDOW, "--conversations", 2),
            *("--base-url", base_url or f"{model.url}/v1", "--out", tmp_path / "out.jsonl", *more),
        )

    return ran


def rows_of(tmp_path):
    _, *rows = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    return rows


def test_it_says_what_each_arm_remembers(quality, tmp_path):
    told = quality().tidy()
    assert told.code == 0
    assert "the server is your own, so it costs nothing" in told.err
    words = " ".join(told.out.split())
    assert words.startswith("What gpt-4o remembers at a window of 2,048 tokens arm right 95 %")
    assert "The limits: the conversations are made up" in words
    assert "2 conversations: few" in words
    for name in ("everything", "truncation", "last 20", "steady", "steady+search"):
        assert re.search(rf"^{re.escape(name)} +\d+ %", told.out, re.MULTILINE), name
    rows = rows_of(tmp_path)
    by_arm = {
        arm: [row for row in rows if row["arm"] == arm]
        for arm in ("everything", "truncation", "policy")
    }
    assert all(row["verdict"] == "right" for row in by_arm["everything"])
    assert any(row["verdict"] == "unknown" for row in by_arm["truncation"])
    for row in rows:  # the model finds what is in view, and nothing else
        wanted = (
            "right"
            if row["in_view"] or row["kind"] == "never"
            else "stale"
            if row["stale_alone"]
            else "unknown"
        )
        assert row["verdict"] == wanted, row
        assert row["tokens_in"] > 0
        assert row["arm"] == "everything" or row["tokens_in"] < 2 * WINDOW


def test_the_json_has_the_shares_and_the_paired_difference(quality):
    body = quality("--json").json
    arms = {one["arm"]: one for one in body["arms"]}
    assert [*arms] == ["everything", "truncation", "last", "policy", "search"]
    assert arms["truncation"]["difference"] is None
    mean, low, high = arms["everything"]["difference"]
    assert low <= mean <= high
    assert mean == pytest.approx(1.0 - arms["truncation"]["share"][0])
    assert arms["everything"]["by_kind"]["never"] == [4, 4]
    assert body["dollars"] == 0
    assert body["stopped"] is None
    for one in arms.values():
        assert one["asked"] == one["right"] + one["unknown"] + one["stale"] + one["wrong"]
        assert sum(asked for _, asked in one["by_kind"].values()) == one["asked"]


def test_a_second_start_asks_nothing_twice(quality, model, tmp_path):
    first = quality("--arms", "truncation,policy", "--json").json
    asked = len(model.lookup.asked)
    assert quality("--arms", "truncation,policy", "--json").json == first
    assert len(model.lookup.asked) == asked
    lines = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_text("".join(lines[:-3]) + lines[-3][:40])  # as after a crash
    assert quality("--arms", "truncation,policy", "--json").json["arms"] == first["arms"]
    assert len(model.lookup.asked) == asked + 3
    keys = [row["key"] for row in rows_of(tmp_path)]
    assert len({*keys}) == len(keys) == asked


def test_a_failure_keeps_what_was_answered(quality, model, tmp_path):
    def answer_five(body):
        if model.lookup.calls == 4:
            model.refusal = (401, {"error": {"message": "the key has expired"}})
        return model.lookup(body)

    model.script = answer_five
    told = quality("--arms", "truncation")
    assert told.code == 6
    assert "the key has expired" in told.err
    assert len(rows_of(tmp_path)) == 5
    model.refusal, model.script = None, model.lookup
    assert quality("--arms", "truncation", "--json").json["arms"][0]["asked"] > 5
    assert len(model.lookup.asked) == len(rows_of(tmp_path))


def test_other_settings_are_refused_for_the_same_file(quality):
    assert quality("--arms", "last").code == 0
    told = quality("--arms", "last", "--last", 10)
    assert told.code == 2
    assert "is of another run (last 20, now 10)" in told.err


def test_it_asks_before_it_costs_money(quality, model, tmp_path):
    told = quality(*PRICES)
    assert told.code == 2
    assert "at most about $" in told.err
    assert "nobody is there to agree: add --yes" in told.err
    assert model.lookup.calls == 0
    assert not (tmp_path / "out.jsonl").exists()
    assert quality(*PRICES, "--arms", "last", "--yes").code == 0


def test_the_price_that_is_said_is_not_exceeded(quality):
    told = quality(*PRICES, "--arms", "everything,truncation,policy", "--yes", "--json")
    said = float(re.search(r"at most about \$([\d.]+)", told.err)[1])
    assert 0 < told.json["dollars"] <= said + 0.01


def test_most_stops_before_it_is_exceeded_and_a_larger_one_goes_on(quality, model):
    options = (*PRICES, "--arms", "truncation", "--yes", "--json")
    told = quality(*options, "--most", 0.03)
    assert told.code == 1
    assert "--most is $0.03" in told.err
    body = told.json
    assert body["stopped"].startswith("stopped: $")
    assert 0 < body["dollars"] <= 0.03
    asked = len(model.lookup.asked)
    assert 0 < asked < 20
    rest = quality(*options, "--most", 1)
    assert rest.code == 0
    assert rest.json["arms"][0]["asked"] == len(model.lookup.asked) > asked


def test_a_summary_is_asked_for_once(quality, model, tmp_path):
    quality("--arms", "summary", "--json")
    pieces = [row for row in rows_of(tmp_path) if "piece" in row["key"]]
    assert pieces
    count = model.lookup.calls
    lines = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_text("".join(lines[:-1]))
    assert quality("--arms", "summary").code == 0
    assert model.lookup.calls == count + 1


def test_anthropic_is_asked_in_its_own_dialect(cli, model, tmp_path, monkeypatch):
    """Its calls must name their tools, and it must not call any."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    told = cli(
        *("lab", "quality", "--model", "claude-sonnet-4-5", "--window", WINDOW, "--json"),
        *("--conversations", 1, "--arms", "truncation,policy", "--base-url", model.url),
        *("--out", tmp_path / "out.jsonl"),
    )
    assert told.code == 0, told.err
    body = model.asked[-1]
    assert body["tool_choice"] == {"type": "none"}
    assert {one["name"] for one in body["tools"]} >= {"read_log", "run_tests"}
    assert {one["arm"] for one in told.json["arms"]} == {"truncation", "policy"}
    assert all(one["right"] for one in told.json["arms"])


def test_a_search_puts_its_hits_before_the_question(quality, model):
    quality("--arms", "search")
    assert model.lookup.asked
    assert all("A search of the whole conversation found" in text for _, text in model.lookup.asked)


def test_wrong_arms_and_models_are_told(quality, tmp_path):
    assert "there are everything, truncation" in quality("--arms", "all").err
    assert "no policy" in quality("--policy", "none").err
    (tmp_path / "out.jsonl").write_text("hello\n")
    assert "is no file of answers" in quality().err


def test_every_line_of_the_page_runs(cli, tmp_path, monkeypatch):
    """With fewer conversations and tasks, and a model that knows nothing."""
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^\$ foldline (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 4
    with Provider(lambda body: "I cannot." if body.get("tools") else "UNKNOWN") as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        for line in lines:
            ours = line.replace("http://127.0.0.1:8080", provider.url)
            few = ("--tasks", 1) if "lab tasks" in line else ("--conversations", 1)
            told = cli(*shlex.split(ours), *few)
            assert told.code == 0, told.err
            assert told.out.startswith("What ")

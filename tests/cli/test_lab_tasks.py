"""`foldline lab tasks`: a scripted model reads, runs the check, mends the line, and runs it again."""

import json
import re

import pytest

from foldline.lab.coding_tasks import CHECK, TASKS, list_files
from foldline.testing.provider import Provider

WINDOW = 8_192
PRICES = ("--prices", "2,0.2,2.5,8")


def call_tool(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


class Mender:
    """A model that knows what is wrong: the same correct steps for every task."""

    def __init__(self):
        self.steps = iter(())
        self.calls = self.summaries = 0
        self.results = []

    def __call__(self, body):
        """Answer one request."""
        if "messages" not in body:
            return "ok"  # somebody asks what the server is
        messages = body["messages"]
        if str(messages[-1]["content"]).startswith("The window is nearly full."):
            self.summaries += 1
            return "Most files were read; the fault is in the last stage."
        self.calls += 1
        self.results += [one["content"] for one in messages[-1:] if one["role"] == "tool"]
        if len(messages) == 2 and "Your summary" not in messages[1]["content"]:  # a new task
            task = next(task for task in TASKS if task.title in messages[1]["content"])
            self.steps = self.work(task)
        return next(self.steps)

    def work(self, task):
        """The steps of one task."""
        yield call_tool("shell", command=CHECK)
        for path in list_files():
            yield call_tool("read", path=path)
        yield call_tool("read", path="RULES.md")
        yield call_tool("write", path="../outside.txt", content="never")
        yield call_tool("shell", command="touch ../outside.txt")
        yield call_tool(
            "edit",
            path=list_files()[-1],
            old=f"return {task.wrong}\n",
            new=f"return {task.right}\n",
        )
        yield call_tool("shell", command=CHECK)
        yield "The tests pass."


@pytest.fixture
def model():
    """The model, on a port."""
    script = Mender()
    with Provider(script) as provider:
        provider.mender = script
        yield provider


@pytest.fixture
def work(cli, model, tmp_path, monkeypatch):
    """Let it work; the temporary folders are inside the test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def ran(*more):
        return cli(
            *("lab", "tasks", "--model", "gpt-4o", "--base-url", f"{model.url}/v1"),
            *("--window", WINDOW, "--tasks", 2, "--out", tmp_path / "out.jsonl", *more),
        )

    return ran


def test_it_says_what_each_arm_solved_and_took(work, model, tmp_path):
    told = work().tidy()
    assert told.code == 0, told.err
    assert "the server is your own, so it costs nothing" in told.err
    body = work("--json").json
    arms = {one["arm"]: one for one in body["arms"]}
    assert {arm: one["solved"] for arm, one in arms.items()} == {
        "plain": 0,
        "compaction": 2,
        "policy": 2,
    }
    assert arms["plain"]["overflowed"] == 2
    assert arms["plain"]["folds"] == 0
    for one in (arms["compaction"], arms["policy"]):
        assert one["folds"] >= 4
        assert one["reread"] == 2  # RULES.md, once in each task
        assert one["difference"] == [1.0, 1.0, 1.0]
        assert one["overflowed"] == 0
    assert model.mender.summaries == arms["compaction"]["folds"]
    assert arms["policy"]["calls"] == 2 * 18
    assert arms["compaction"]["calls"] == 2 * 18 + model.mender.summaries
    assert any("not run: " in one for one in model.mender.results)
    assert not (tmp_path / "outside.txt").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]  # the folders are gone
    words = " ".join(told.out.split())
    assert re.search(r"plain 0/2 .* compaction 2/2 .* steady 2/2 ", words)
    assert "plain: 2 tasks did not fit the window any more." in words


def test_a_larger_window_needs_no_folds(work):
    body = work("--window", 100_000, "--arms", "plain", "--json").json
    (plain,) = body["arms"]
    assert (plain["solved"], plain["folds"], plain["reread"]) == (2, 0, 0)


def test_a_second_start_works_nothing_twice(work, model):
    first = work("--arms", "policy", "--json").json
    calls = model.mender.calls
    assert work("--arms", "policy", "--json").json == first
    assert model.mender.calls == calls


def test_it_asks_before_it_costs_money(work, model):
    told = work(*PRICES)
    assert told.code == 2
    assert "nobody is there to agree: add --yes" in told.err
    assert model.mender.calls == 0


def test_most_counts_what_an_unfinished_task_cost(work, model):
    options = (*PRICES, "--arms", "policy", "--yes", "--json")
    told = work(*options, "--most", 0.2)
    assert told.code == 1
    body = told.json
    assert 0 < body["dollars"] <= 0.2
    assert sum(one["tasks"] for one in body["arms"]) < 2
    calls = model.mender.calls
    again = work(*options, "--most", 0.2)  # what was paid is not forgotten
    assert again.code == 1
    assert again.json["dollars"] <= 0.2
    assert work(*options, "--most", 5).json["arms"][0]["solved"] == 2
    assert model.mender.calls > calls


def test_wrong_arms_are_told(work):
    assert "there are plain, compaction, policy" in work("--arms", "all").err

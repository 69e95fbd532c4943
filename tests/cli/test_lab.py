"""`foldline lab compare`: what it says to a stranger, its JSON, its errors, and every way to run it."""

import json
import re
from pathlib import Path

import pytest

import foldline
from foldline.apps.cli import import_

FILES = Path(__file__).parents[1] / "importers" / "files"
KEYS = {
    *("headline", "baseline", "chosen", "recorded_dollars", "small", "policies", "sessions"),
    *("caveats", "passed", "html"),
}
POLICY = {
    *(
        "policy",
        "dollars",
        "percent",
        "new_dollars",
        "read_dollars",
        "again_dollars",
        "recall_dollars",
    ),
    *("output_dollars", "beside_dollars", "folds", "tokens_folded", "tokens_left", "names"),
    *("lines", "recalls", "peak", "over", "blocked", "kept_names", "kept_lines"),
}
SESSION = {
    *("session", "source", "model", "calls", "counts", "dated", "window", "window_assumed"),
    *("prices", "priced_as", "recorded_dollars", "folded", "results"),
}


def chat(turns: int, words: int = 60) -> str:
    """A chat that grows: each turn reads a file and says what is in it."""
    messages = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        call = {"name": "read", "arguments": json.dumps({"path": f"src/module_{turn}.py"})}
        calls = [{"id": f"c{turn}", "type": "function", "function": call}]
        body = "\n".join(f"def parse_{turn}_{at}(text): return text" for at in range(words))
        again = f"src/module_{max(turn - 6, 0)}.py has parse_{max(turn - 6, 0)}_1"
        messages += [
            {"role": "user", "content": f"What is in src/module_{turn}.py?"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": body},
            {"role": "assistant", "content": f"Functions; and {again}"},
        ]
    return json.dumps({"model": "gpt-4o", "messages": messages})


@pytest.fixture
def folder(tmp_path):
    """A long chat and a short one."""
    place = tmp_path / "chats"
    place.mkdir()
    (place / "long.json").write_text(chat(50))
    (place / "short.json").write_text(chat(2))
    return place


def test_the_first_screen(cli, folder):
    told = cli("lab", "compare", folder, "--jobs", 1).tidy()
    assert (told.code, told.err) == (0, "")
    words = " ".join(told.out.split())
    assert words.startswith("Your 2 sessions, with everything sent in every call, would cost $")
    assert re.search(r"Under steady they would have cost \$\S+ \(−\d+ %\)", words)
    assert re.search(r"in \d+ folds?, \S+ tokens gave way to \S+\.", words)
    assert "1 of them is too small to fold" in words
    assert "Quality is not measured" in words
    assert "All 2 sessions are without the provider's counts: tokens are estimated" in words
    assert "without times: the cache is taken to be warm" in words
    assert "Prices of the catalogue: gpt-4o $2.5 in, $1.25 read" in words
    rows = [line.split()[0] for line in told.out.splitlines() if "%" in line and "$" in line]
    assert [one for one in rows if one in ("off", "steady", "thrifty")] == [
        *("off", "steady", "thrifty")
    ]
    assert "as recorded" not in words


def test_the_json_has_its_shape(cli, folder):
    body = cli("lab", "compare", folder, "--jobs", 1, "--policy", "classic", "--json").json
    assert set(body) == KEYS
    assert all(set(one) == POLICY for one in body["policies"])
    assert all(set(one) == SESSION for one in body["sessions"])
    assert [one["policy"] for one in body["policies"]] == ["off", "classic"]
    assert [one["session"] for one in body["sessions"]] == ["long", "short"]
    assert (body["baseline"], body["chosen"], body["small"]) == ("off", "classic", 2)
    for session in body["sessions"]:
        for one in session["results"]:
            assert len(one["sizes"]) == len(one["spent"]) == one["calls"] == session["calls"]
            assert sum(one["spent"]) == pytest.approx(one["dollars"])


def test_sums_are_sums(cli, folder):
    line = ("lab", "compare", folder, "--jobs", 1, "--json", "--narratives")
    body = cli(*line, "--policy", "classic", "--window", 30_000).json
    for total in body["policies"]:
        mine = [
            one
            for session in body["sessions"]
            for one in session["results"]
            if one["policy"] == total["policy"]
        ]
        assert total["dollars"] == pytest.approx(sum(one["dollars"] for one in mine))
        causes = ("new", "read", "again", "output", "beside")
        assert total["dollars"] == pytest.approx(sum(total[f"{one}_dollars"] for one in causes))
        assert total["folds"] == sum(len(one["edits"]) for one in mine)
    assert body["policies"][1]["beside_dollars"] > 0, "summaries were billed"
    assert body["policies"][0]["beside_dollars"] == 0


def test_every_way_to_run_gives_the_same_bytes(cli, program, folder):
    line = ("lab", "compare", folder, "--json")
    here = cli(*line, "--jobs", 1).out
    assert cli(*line, "--jobs", 1).out == here
    assert program(*line, "--jobs", 2).out == here


@pytest.mark.real
def test_a_cluster_gives_the_same_bytes(cli, folder):
    distributed = pytest.importorskip("distributed")
    here = cli("lab", "compare", folder, "--json", "--jobs", 1).out
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        there = cli("lab", "compare", folder, "--json", "--cluster", cluster.scheduler_address)
    assert there.out == here


def test_a_cluster_that_is_not_there_is_said_so(cli, folder, monkeypatch):
    monkeypatch.setattr(import_, "find_spec", lambda _: None)
    ended = cli("lab", "compare", folder, "--cluster", "tcp://127.0.0.1:1")
    assert (ended.code, "pip install 'foldline[cluster]'" in ended.err) == (2, True)


def test_sessions_of_the_own_store(cli, folder, tmp_path):
    assert cli("import", folder).code == 0
    every = cli("lab", "compare", "--jobs", 1, "--json").json
    assert [one["session"] for one in every["sessions"]] == ["long", "short"]
    one = cli("lab", "compare", "lo", "--jobs", 1).tidy()
    assert "Your session, with everything sent" in " ".join(one.out.split())
    assert "why steady folds" in one.out
    files = cli("lab", "compare", folder, "--jobs", 1, "--json").json
    for kept, read in zip(every["sessions"], files["sessions"], strict=True):
        assert kept["results"] == read["results"], "imported or read at once: the same"
    both = cli("lab", "compare", folder, "long", "--jobs", 1, "--json").json
    assert [one["session"] for one in both["sessions"]] == ["long", "short", "long-2"]
    with foldline.open(str(tmp_path / "b.db"), model="m", session="empty") as s:
        s.add("hello?")
    ended = cli("lab", "compare", "--store", tmp_path / "b.db")
    assert (ended.code, "no answer of a model in it" in " ".join(ended.err.split())) == (1, True)


def test_prices_and_window_as_a_person_sets_them(cli, folder):
    line = ("lab", "compare", folder / "long.json", "--jobs", 1)
    given = cli(*line, "--prices", "3,0.3,3.75,15", "--window", 20_000, "--json").json
    (session,) = given["sessions"]
    assert (session["prices"]["read"], session["window"]) == (0.3, 20_000)
    assert any(one.startswith("Prices as given: $3 in, $0.3 read") for one in given["caveats"])
    assert "Window as given: 20,000 tokens." in given["caveats"]
    named = cli(*line, "--prices", "claude-opus-4-5", "--json").json
    assert named["sessions"][0]["prices"]["input"] == 5.0


def test_recorded_counts_are_the_baseline(cli):
    body = cli("lab", "compare", FILES / "pi.jsonl", FILES / "claude.jsonl", "--json").json
    assert body["baseline"] == "as recorded"
    assert body["recorded_dollars"] > 0
    told = " ".join(cli("lab", "compare", FILES / "pi.jsonl").tidy().out.split())
    assert re.search(r"Your session cost \$\S+ \(simulated; \$\S+ by the recorded counts\)", told)
    assert "too small to fold" in told


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (("nowhere.jsonl",), 1, "'nowhere.jsonl' is no file or folder here, and there is no store"),
        (("{folder}", "--policy", "best"), 2, "there is no policy 'best'; choose one of"),
        (("{folder}", "--prices", "3,x"), 2, "neither four numbers nor a model with a price"),
        (("{folder}", "--prices", "3,0,3,15"), 2, "must each cost more than nothing"),
        (("{folder}", "--prices", "nan,1,1,1"), 2, "neither four numbers"),
        (("{folder}", "--window", "0"), 2, "a window of 0 tokens holds nothing"),
        (("{folder}", "--jobs", "0"), 2, "at least one process must do the work"),
        (("{folder}", "--html", "{folder}/no/a.html"), 2, "No such file or directory"),
        (("{folder}/none",), 1, "is no file or folder here"),
        ((), 3, "there is no store at"),
    ],
)
def test_errors_name_the_thing_and_the_way_out(cli, folder, line, code, words):
    ended = cli("lab", "compare", *(one.format(folder=folder) for one in line))
    assert ended.code == code, ended
    assert ended.out == ""
    assert ended.err.startswith("foldline: ")
    assert words in " ".join(ended.err.split())
    assert "Traceback" not in ended.err


def test_a_name_that_is_nowhere_is_looked_for_in_both(sample):
    ended = sample("lab", "compare", "nobody-here")
    assert (ended.code, "no file or folder is called so" in ended.err) == (1, True)


def test_a_file_that_is_no_session_does_not_stop_the_others(cli, folder):
    (folder / "other.json").write_text('{"no": "session"}')
    ended = cli("lab", "compare", folder, "--jobs", 1)
    assert ended.code == 0
    assert "other.json: line 1" in " ".join(ended.err.split())


def test_the_group_has_help_of_its_own(cli):
    told = cli("lab", "--help").tidy()
    assert (told.code, "compare" in told.out) == (0, True)
    assert "--prices" in cli("lab", "compare", "--help").tidy().out
    assert cli("lab").code == 2
    assert "lab" in cli("--help").tidy().out


def test_two_recorded_sessions(cli, shared, capsys):
    """The numbers of the lab's own tests, through the command."""
    body = cli("lab", "compare", *sorted((shared / "data").glob("pi_*.gz")), "--json").json
    with capsys.disabled():
        print(f"\n{body['headline']}")
    assert body["recorded_dollars"] == pytest.approx(42.60 + 30.33, abs=0.01)
    then = next(one for one in body["policies"] if one["policy"] == "as recorded")
    assert then["dollars"] == pytest.approx(body["recorded_dollars"], rel=0.02)
    assert then["folds"] == 2


def test_what_was_not_compared_is_not_judged(cli, folder):
    """Sending everything is no policy that folds: that it does not says nothing of a session."""
    told = cli("lab", "compare", folder, "--policy", "off", "--jobs", 1).tidy()
    assert told.code == 0
    assert "too small" not in told.out


def test_forty_columns_still_name_the_policies(cli, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    told = cli("lab", "compare", folder, "--policy", "three-layer", "--jobs", 1).tidy()
    assert [line for line in told.out.splitlines() if line.startswith("three-layer $")]
    assert max(len(line) for line in told.out.splitlines()) <= 40

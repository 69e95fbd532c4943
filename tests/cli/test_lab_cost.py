"""`foldline lab cost` as a person runs it."""

import json
import re
from pathlib import Path

import pytest

import foldline
from foldline.core import log
from foldline.core.log import Instructed, ModelSaid, Opened, UsageReported, UserSaid
from foldline.core.parts import Text

CLOCK = "You help with code. The time is 12:03:4{}. Be kind."


@pytest.fixture
def clocked(tmp_path):
    """A log of ours: each call with another time in its system prompt, and nothing found."""
    events = [Opened("claude-sonnet-4-5")]
    for at in range(3):
        size = 9_000 * (at + 1)
        events += [
            Instructed((Text(CLOCK.format(at)),)),
            UserSaid((Text("word " * 9_000),)),
            ModelSaid((Text("done"),)),
            UsageReported(None, size, 0, size, 100),
        ]
    path = tmp_path / "clock.jsonl"
    path.write_bytes(b"\n".join(map(log.encode_event, events)))
    return path


def test_a_clock_in_the_system_prompt_is_shown(cli, clocked):
    done = cli("lab", "cost", clocked).tidy()
    assert done.code == 0
    assert "time in the system, changed in 2 calls" in done.out
    assert "  was  … with code. The time is 12:03:4|0. Be kind.…" in done.out
    assert "  then … with code. The time is 12:03:4|1. Be kind.…" in done.out
    assert "system: $0.09, 2 calls" in done.out
    assert "put date, time and ids at the end" in " ".join(done.out.split())


def test_as_a_document(cli, clocked):
    body = cli("lab", "cost", clocked, "--json").json
    (session,) = body["sessions"]
    assert [one["cause"] for one in session["cold"]] == ["system", "system"]
    assert [one["tokens"] for one in session["cold"]] == [9_000, 18_000]
    assert session["lost"] == pytest.approx(27_000 * (3.75 - 0.3) / 1e6) == body["lost"]
    parts = (session[part] for part in ("new", "read", "again", "output", "aside"))
    assert sum(parts) == pytest.approx(session["total"]) == body["total"]
    assert session["volatile"][0]["shown"].endswith("12:03:4|1. Be kind.…")
    assert cli("--json", "lab", "cost", clocked).json == body


def test_the_keys_are_all_told(cli, clocked):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    (told,) = re.findall(r"^\| `lab cost` \| (.*?) \|$", page, re.MULTILINE)
    body = cli("lab", "cost", clocked, "--json").json
    assert {*body, *body["sessions"][0]} <= {*re.findall(r"\w+", told)}


def test_prices_of_ones_own(cli, clocked):
    body = cli("lab", "cost", clocked, "--json", "--prices", "10,1,20,50").json
    assert body["lost"] == pytest.approx(27_000 * 19 / 1e6)
    for wrong in ("1,2,3", "a,b,c,d", "1,2,3,-4", ""):
        done = cli("lab", "cost", clocked, "--prices", wrong).tidy()
        assert (done.code, done.out) == (2, "")
        assert "write --prices 3,0.3,3.75,15" in done.err


def test_a_session_of_the_store(cli, clocked):
    """By its name: the same bill, from the same events."""
    from_file = cli("lab", "cost", clocked, "--json").json["sessions"][0]
    assert cli("import", clocked, "--as", "kept").code == 0
    from_store = cli("lab", "cost", "kept", "--json").json["sessions"][0]
    assert from_store["name"] == "kept"
    for part in ("total", "lost", "causes", "volatile"):
        assert from_store[part] == from_file[part]


def test_a_session_of_the_store_that_folded(cli, tmp_path):
    """It is billed for what was sent, not for what the folds had taken out."""
    path = tmp_path / "own.db"
    totals = []
    for policy in ("off", "thrifty"):
        with foldline.open(str(path), model="gpt-4.1", window=3_000_000 if policy == "off" else 12_000,
                           session=policy, policy=policy) as s:  # fmt: skip
            for turn in range(120):
                s.add(f"turn {turn}: read module_{turn}.py " + "and say what is in it " * 60)
                s.request()
                s.add({"role": "assistant", "content": f"module_{turn}.py holds parser_{turn}"})
            assert bool(s.edits) == (policy == "thrifty")
        done = cli("lab", "cost", policy, "--store", path, "--json").json["sessions"][0]
        totals.append(done)
    whole, folded = totals
    assert folded["total"] < whole["total"]
    assert folded["read"] < 0.9 * whole["read"]
    assert not any("compaction" in note for note in folded["notes"]), "no model was asked"


def test_what_is_not_there(cli, tmp_path, clocked):
    done = cli("lab", "cost", tmp_path / "nothing.jsonl").tidy()
    assert (done.code, "no file or folder" in " ".join(done.err.split())) == (1, True)
    assert cli("import", clocked, "--as", "kept").code == 0
    assert cli("lab", "cost", "nobody").code == 1
    (tmp_path / "bad.jsonl").write_text("no session\n")
    done = cli("lab", "cost", tmp_path / "bad.jsonl")
    assert (done.code, "bad.jsonl" in done.err) == (1, True)
    (tmp_path / "mute.jsonl").write_bytes(log.encode_event(Opened("m")))
    done = cli("lab", "cost", tmp_path / "mute.jsonl")
    assert (done.code, "no answer of a model" in " ".join(done.err.split())) == (1, True)


def test_help_and_the_group(cli):
    assert "cost" in cli("lab").out
    assert "lab" in cli("--help").out
    assert "--ttl" in cli("lab", "cost", "--help").out


def test_every_kind_of_recorded_session(cli, recordings):
    """Both pi sessions, Claude Code's and Codex's: nothing is wider than 80 columns."""
    done = cli("lab", "cost", recordings).tidy()
    print(done.out)
    assert done.code == 0
    assert "$42.60 for 484 calls" in done.out
    assert "$30.33 for 453 calls" in done.out
    assert "4 sessions: $" in done.out
    lines = done.out.split("\n")
    assert any("thinking" in line and "off → high" in line for line in lines)
    assert any(line.startswith("expired: $0.87, 1 call") for line in lines)


def test_a_longer_life(cli, recordings):
    """With an hour, pauses are no cause any more, and every write costs twice the input."""
    file = recordings / "pi_session_sonnet45.jsonl.gz"
    five, hour = (
        json.loads(cli("lab", "cost", file, "--json", *more).out)["sessions"][0]
        for more in ((), ("--ttl", 3_600))
    )
    assert "expired" in {one["cause"] for one in five["causes"]}
    assert "expired" not in {one["cause"] for one in hour["causes"]}
    assert hour["again"] == pytest.approx(five["again"] * 2 / 1.25, rel=0.01)

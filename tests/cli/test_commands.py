"""Every command: what it says, the keys of its JSON, its exit code, and 80 columns."""

import json
import sys
from pathlib import Path

import pytest

import foldline
from foldline.apps.cli import output
from foldline.apps.cli.context import resolve_default_store
from foldline.testing import Provider

FILES = Path(__file__).parents[1] / "importers" / "files"
KEYS = {
    ("sessions",): {"store", "sessions"},
    ("show", "cc-1"): {"session", "model", "items"},
    ("show", "cc-1", "--log", "0-2"): {"session", "events"},
    ("show", "cc-1", "log:1"): {"session", "handle", "text"},
    ("context", "cc-1"): {
        *("session", "model", "policy", "window", "source", "reserve", "margin", "room", "most"),
        *("counted", "pressure", "runs", "shorts", "folds", "tiers", "prefix", "cost", "warnings"),
        *("total", "percent", "level", "over", "spaces", "parts", "written"),
    },
    ("plan", "cc-1"): {"session", "model", "plans", "written"},
    ("history", "cc-1"): {
        *("session", "turns", "calls", "used", "window", "growth", "turns_left", "next_output"),
        "folds",
    },
    ("history", "cc-1", "1"): {
        *("session", "turn", "source", "tokens", "parts", "items", "before", "tokens_before"),
        *("fixed_changed", "changes"),
    },
    ("search", "look"): {"words", "found"},
    ("pin", "cc-1", "log:2"): {"session", "handle", "on", "pins"},
    ("export", "cc-1"): {"session", "format", "events", "bytes", "file", "text"},
    ("erase", "cc-1", "--dry-run"): {"sessions", "events", "size", "time", "dry"},
    ("models", "opus"): {"source", "date", "models", "resolved"},
    ("doctor",): {"store", "ok", "checks"},
}


@pytest.fixture
def talk():
    """A session of our own, in the store that is asked if none is named; with requests."""
    path = resolve_default_store()
    path.parent.mkdir(parents=True)
    with foldline.open(str(path), model="m", window=2_000, session="talk") as s:
        for turn in range(6):
            s.add(
                f"turn {turn}: the answer is {turn * 111}. "
                + "It is in the text of the answer. " * 12
            )
            s.request()
            s.add({"role": "assistant", "content": f"yes, {turn}"})
    return path


@pytest.mark.parametrize("line", KEYS, ids=" ".join)
def test_json_has_its_keys_and_text_fits(sample, line):
    ended = sample(*line, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert set(ended.json) == KEYS[line]
    if line[0] != "export":  # what is written out is as wide as it was
        told = sample(*line).tidy()
        assert told.code == 0
        assert told.out
        assert sample("--json", *line).json.keys() == KEYS[line]


def test_import_says_what_came_and_nothing_twice(cli, tmp_path):
    (tmp_path / "files").mkdir()
    broken = tmp_path / "files" / "x.json"
    broken.write_text('{"no": "session"}')
    first = cli("import", FILES, broken).tidy()
    assert first.code == 0
    assert "10 new sessions" in first.out
    assert str(resolve_default_store()) in first.out
    assert "x.json: line 1 of x is no record of" in " ".join(first.err.split())
    again = cli("import", FILES, "--json")
    assert [one["added"] for one in again.json["sessions"]] == [0] * 10
    assert "10 already there, nothing added" in cli("import", FILES).out
    assert resolve_default_store().stat().st_mode & 0o077 == 0, "conversations are private"
    assert cli("import", broken).code == 2


def test_a_file_that_has_grown_adds_what_is_new(cli, tmp_path):
    lines = (FILES / "codex.jsonl").read_text().splitlines()
    file = tmp_path / "grows.jsonl"
    file.write_text("\n".join(lines[:16]))
    (before,) = cli("import", file, "--json").json["sessions"]
    file.write_text("\n".join(lines))
    (after,) = cli("import", file, "--json").json["sessions"]
    assert after["session"] == before["session"]
    assert 0 < after["added"] < after["events"]
    (listed,) = cli("sessions", "--json").json["sessions"]
    assert listed["events"] == after["events"]


def test_another_session_of_the_same_name_has_another_name(cli, tmp_path):
    for folder, words in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        chat = {"messages": [{"role": "user", "content": words}]}
        (tmp_path / folder / "chat.json").write_text(json.dumps(chat))
    ended = cli("import", tmp_path / "a", tmp_path / "b", "--json")
    assert [one["session"] for one in ended.json["sessions"]] == ["chat", "chat-2"]
    assert cli("import", tmp_path / "a" / "chat.json", "--as", "mine").code == 0
    assert cli("show", "mine").code == 0


@pytest.mark.usefixtures("talk")
def test_sessions_list_the_last_changed_first(cli):
    assert cli("import", FILES / "pi.jsonl").code == 0
    names = [one["session"] for one in cli("sessions", "--json").json["sessions"]]
    assert names[-1] == "talk"
    (told,) = [
        one for one in cli("sessions", "--json").json["sessions"] if one["session"] == "talk"
    ]
    assert told["model"] == "m"
    assert told["turns"] == 6
    assert told["words"].startswith("turn 0: the answer")


@pytest.mark.parametrize("length", [30, 90])
def test_names_are_never_cut(cli, length):
    """A name is what a person types, and what a script reads out of a pipe."""
    name = "n" * length
    assert name in cli("import", FILES / "pi.jsonl", "--as", name).out
    assert cli("import", FILES / "pi.jsonl", "--as", "short").code == 0
    lines = cli("sessions").out.splitlines()
    assert sorted(line.split()[0] for line in lines[1:3]) == [name, "short"]
    assert "first words" in lines[0]


def test_a_terminal_cuts_other_columns_before_names(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    lines = output.render_table(
        [
            output.Column("session", most=24, whole=True),
            output.Column("model", most=15),
            output.Column("first words"),
        ],
        [("n" * 40, "m" * 30, "w" * 30), ("short", "m", "w")],
    )
    assert [line.split()[0] for line in lines[1:]] == ["n" * 40, "short"]
    assert max(map(len, lines)) <= 60


def test_a_file_that_is_not_there_makes_no_store(cli, tmp_path):
    ended = cli("import", tmp_path / "none.jsonl", tmp_path / "neither.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("none.jsonl: No such file or directory; nor can 1 other be read\n")
    assert not resolve_default_store().exists()


def test_what_is_advised_makes_the_store_that_is_missing(cli, tmp_path):
    """With --store where another than the usual one is meant."""
    place = tmp_path / "my store.db"
    told = cli("sessions", "--store", place)
    assert told.code == 3
    way = f"`foldline import FILE --store '{place}'` or `foldline chat --store '{place}'` makes one"
    assert way in told.err
    assert way in " ".join(cli("doctor", place).out.split())
    assert "`foldline import FILE` or `foldline chat` makes one" in cli("sessions").err
    assert cli("import", FILES / "pi.jsonl", "--store", place).code == 0
    assert place.exists()
    empty = cli("sessions", "--store", place, "--tenant", "nobody")
    assert f"`foldline import FILE --store '{place}'` takes some in" in " ".join(empty.out.split())


def test_the_beginning_of_a_name_is_enough(talk, cli):
    assert cli("show", "ta").code == 0
    with foldline.open(str(talk), model="m", session="tax"):
        pass
    ended = cli("show", "ta")
    assert ended.code == 2
    assert "begins several names: talk, tax; write more" in ended.err
    missing = cli("show", "tolk")
    assert missing.code == 1
    assert "did you mean talk?" in missing.err
    assert cli("sesions").err == "foldline: No such command 'sesions'. Did you mean 'sessions'?\n"


@pytest.mark.usefixtures("talk")
def test_show_gives_the_original_by_its_handle(cli):
    out = cli("show", "talk", "log:1").out
    assert out.startswith("turn 0: the answer is 0")
    assert "1: turn 0" in cli("show", "talk", "log:1", "--grep", "^turn").out
    assert cli("show", "talk", 'recall("log:1", head=1)').code == 0
    assert "user_said" in cli("show", "talk", "--log", "1-3").tidy().out
    assert len(cli("show", "talk", "--log", "12-", "--json").json["events"]) > 3


@pytest.mark.usefixtures("talk")
def test_context_through_other_facts_changes_nothing(cli, tmp_path):
    before = cli("export", "talk").out
    told = cli(
        "context", "talk", "--model", "claude-opus-4-5", "--policy", "classic", "--json"
    ).json
    assert (told["model"], told["window"], told["policy"]) == (
        "claude-opus-4-5",
        200_000,
        "classic",
    )
    assert cli("context", "talk", "--window", "5000", "--json").json["window"] == 5_000
    assert "m" in cli("context", "talk", "--width", "60").tidy().out
    drawing, pixels = tmp_path / "a.svg", tmp_path / "a.png"
    assert cli("context", "talk", "--svg", drawing, "--png", pixels).code == 0
    assert drawing.read_text().startswith("<svg")
    assert pixels.read_bytes().startswith(b"\x89PNG")
    assert cli("export", "talk").out == before


@pytest.mark.usefixtures("talk")
def test_plan_tells_what_why_and_what_is_lost(cli):
    one = cli("plan", "talk", "--window", "500").tidy()
    assert "it must: the window is nearly full" in " ".join(one.out.split())
    assert "tokens become" in one.out
    (plan,) = cli("plan", "talk", "--window", "500", "--json").json["plans"]
    assert plan["tokens_after"] < plan["tokens_before"]
    assert plan["edits"][0]["loss"]["before"] > plan["edits"][0]["loss"]["after"]
    two = cli("plan", "talk", "--window", "500", "--policy", "steady", "--policy", "off").tidy()
    assert two.code == 0
    assert "too large" in two.out
    off = cli("plan", "talk", "--window", "500", "--policy", "off").tidy()
    assert off.code == 5
    assert cli("plan", "talk").tidy().code == 0


@pytest.mark.usefixtures("talk")
def test_plan_draws_before_and_after(cli, tmp_path):
    drawing, pixels = tmp_path / "a.svg", tmp_path / "a.png"
    where = ("--svg", drawing, "--png", pixels)
    before = cli("export", "talk").out
    assert cli("plan", "talk", "--window", "500", *where).out.count("wrote ") == 2
    assert "folded into" in drawing.read_text()
    assert pixels.read_bytes().startswith(b"\x89PNG")
    assert cli("export", "talk").out == before
    both = cli("plan", "talk", "--policy", "steady", "--policy", "off", *where)
    assert (both.code, "one policy" in both.err) == (2, True)
    full = cli("plan", "talk", "--window", "500", "--policy", "off", *where)
    assert (full.code, "no after to draw" in full.err) == (2, True)


@pytest.mark.usefixtures("talk")
def test_fold_undo_and_pin(cli):
    whole = cli("export", "talk", "--format", "openai", "--sight").out
    preview = cli("fold", "talk", "--preview", "--json").json
    assert preview["loss"]
    assert not preview["folded"]
    assert cli("export", "talk", "--format", "openai", "--sight").out == whole
    assert cli("pin", "talk", "log:1").out.startswith("log:1 is pinned; pins: log:1")
    folded = cli("fold", "talk", "--json").json
    assert folded["tokens_after"] < folded["tokens_before"]
    assert "folded" in cli("show", "talk").out
    assert "handoffs" in cli("context", "talk").out
    undone = cli("undo", "talk", "--json").json
    assert undone["undone"] == folded["edit"]
    assert undone["tokens_after"] == folded["tokens_before"]
    assert f"edit {undone['redo']} taken back" in cli("undo", "talk", undone["redo"]).tidy().out
    assert cli("pin", "talk", "log:1", "--off", "--json").json["pins"] == []


def test_history_of_what_we_sent_is_proven_and_of_others_rendered(talk, cli):
    assert cli("history", "talk").tidy().out.count("\n") >= 7
    told = cli("history", "talk", "3", "--json").json
    assert (told["source"], told["before"]) == ("recorded", 2)
    assert [one["how"] for one in told["changes"]] == ["added", "added"]
    assert "sha256 proven" in cli("history", "talk", "3").tidy().out
    assert cli("import", FILES / "claude.jsonl", "--as", "other").code == 0
    assert cli("history", "other", "1", "--json").json["source"] == "rendered"
    assert cli("fold", "talk").code == 0
    with foldline.open(str(talk), model="m", window=2_000, session="talk") as s:
        s.add("and now?")
        s.request()
    told = cli("history", "talk", "7")
    assert "stands for log:" in told.tidy().out
    assert "\n- " in told.out


@pytest.mark.usefixtures("talk")
def test_search_marks_the_word_and_names_the_handle(cli):
    out = cli("search", "answer", "333").tidy().out
    assert "talk\n  log:" in out
    assert "«answer»" in out
    found, *others = cli("search", "answer", "333", "--json").json["found"]
    assert "333" in found["snippet"]
    assert "333" in cli("show", "talk", found["handle"]).out
    assert all(other["score"] < found["score"] for other in others)
    (quoted,) = cli("search", '"333"', "--json").json["found"]
    assert quoted["handle"] == found["handle"]
    assert cli("search", "nowhere-at-all").code == 1
    assert cli("search", "answer", "--session", "talk", "--limit", "2").code == 0


@pytest.mark.parametrize("name", ["pi", "claude", "codex", "openai", "anthropic", "swe"])
def test_export_is_imported_again_as_the_same_events(cli, tmp_path, name):
    (source,) = FILES.glob(f"{name}.*")
    for store, file in (("a.db", source), ("b.db", tmp_path / "same.jsonl")):
        assert cli("import", file, "--as", "same", "--store", tmp_path / store).code == 0
        there = cli("export", "same", "--store", tmp_path / store, "-o", tmp_path / "same.jsonl")
        assert there.code == 0
        (tmp_path / f"{store}.jsonl").write_bytes((tmp_path / "same.jsonl").read_bytes())
    assert (tmp_path / "a.db.jsonl").read_bytes() == (tmp_path / "b.db.jsonl").read_bytes()
    for form in ("openai", "anthropic"):
        assert json.loads(cli("export", "same", "--format", form, "--store", tmp_path / "a.db").out)
    text = cli("export", "same", "--format", "markdown", "--store", tmp_path / "a.db").out
    assert text.startswith("# same\n")


def test_an_export_is_imported_once_and_a_longer_one_adds_what_is_new(cli, tmp_path):
    """Into another store, into the one that it came from, and beside another session of its name."""
    file, other = tmp_path / "one.jsonl", ("--store", tmp_path / "other.db")
    with Provider(lambda _: "the answer") as provider:
        told = ("--model", "m", "--window", "9000", "--base-url", f"{provider.url}/v1")
        for turn in range(2):
            assert cli("chat", "one", "-p", f"say {turn}", *told).code == 0
            assert cli("export", "one", "-o", file).code == 0
            assert "1 already there, nothing added" in cli("import", file).out, "its own store"
            (first,) = cli("import", file, "--json", *other).json["sessions"]
            assert first["session"] == "one"
            assert (first["added"] == first["events"]) == (turn == 0)
            assert first["added"] > 0
            assert "1 already there, nothing added" in cli("import", file, *other).out
        assert cli("export", "one", *other).out == file.read_text()
        assert cli("chat", "two", "-p", "else", *told).code == 0
        assert cli("export", "two", "-o", file).code == 0
        for added in (True, False):
            (second,) = cli("import", file, "--json", *other).json["sessions"]
            assert (second["session"], second["added"] > 0) == ("one-2", added)


@pytest.mark.usefixtures("talk")
def test_export_of_a_chat_is_whole_whatever_was_folded(cli):
    before = cli("export", "talk", "--format", "anthropic").out
    assert cli("fold", "talk").code == 0
    assert cli("export", "talk", "--format", "anthropic").out == before
    assert cli("export", "talk", "--format", "anthropic", "--sight").out != before


def test_erase_asks_first_and_gives_a_receipt(sample, monkeypatch):
    assert sample("erase", "swe").code == 2, "nobody is there to answer"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert sample("erase", "swe").code == 130
    assert sample("show", "swe").code == 0
    done = sample("erase", "swe", "--yes")
    assert done.code == 0
    assert "erased at" in done.out
    gone = sample("import", FILES / "swe.traj")
    assert (gone.code, "--as gives it a new name" in " ".join(gone.err.split())) == (1, True)
    dry = sample("erase", "--keep", "2", "--dry-run", "--json").json
    assert (len(dry["sessions"]), dry["dry"]) == (7, True)
    assert len(sample("sessions", "--json").json["sessions"]) == 9
    assert sample("erase", "--older", "30", "--yes").code == 1
    assert len(sample("erase", "--all", "--yes", "--json").json["sessions"]) == 9
    assert sample("sessions").code == 1


def test_doctor_says_what_is_wrong(sample, tmp_path):
    well = sample("doctor").tidy()
    assert well.code == 0
    assert "ok   integrity  every page and index is sound" in well.out
    other = tmp_path / "other.db"
    other.write_bytes(b"no database at all" * 100)
    assert sample("doctor", other).code == 1
    assert sample("doctor", tmp_path / "none.db").code == 1
    spoilt = bytearray(resolve_default_store().read_bytes())
    spoilt[3 * 4096 : 3 * 4096 + 2_000] = b"\0" * 2_000
    other.write_bytes(spoilt)
    ended = sample("doctor", other).tidy()
    assert ended.code == 1
    assert "bad" in ended.out


def test_doctor_reads_the_settings(sample, tmp_path, monkeypatch):
    """What keeps `chat` and `serve` from beginning is not well."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "ok   settings   no file sets any" in sample("doctor").out
    file = tmp_path / "foldline" / "foldline.toml"
    file.parent.mkdir()
    file.write_text('policy = "steady"\n')
    (check,) = [
        one for one in sample("doctor", "--json").json["checks"] if one["what"] == "settings"
    ]
    assert (check["level"], check["told"]) == ("ok", str(file))
    file.write_text('policy = "stedy"\n')
    ended = sample("doctor")
    assert ended.code == 1
    assert "bad  settings" in ended.out
    assert 'policy = "stedy"' in " ".join(ended.out.split())
    assert "1 bad" in ended.out


def test_models_say_what_a_name_is_taken_for(cli):
    assert "is claude-opus-4-5" in cli("models", "claude-opus-4-5").tidy().out
    assert cli("models").tidy().code == 0
    assert cli("models", "zzz").code == 1
    assert cli("models", "claude-new", "--json").json["resolved"]["window"] == 200_000


def test_words_of_strangers_steer_no_terminal(cli, tmp_path, monkeypatch):
    chat = {
        "messages": [{"role": "user", "content": "\x1b[2Jboo\x07 \u202etxt\nnext " + "宽" * 99}]
    }
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    assert cli("import", tmp_path / "chat.json").code == 0
    for line in (("sessions",), ("show", "chat"), ("history", "chat"), ("search", "boo")):
        ended = cli(*line).tidy()
        assert "\x07" not in ended.out
        assert "\u202e" not in ended.out
    assert "\x1b[2J" in cli("show", "chat", "log:1").out, "for a program: as it was"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert output.escape_controls("\x1b[2Ja\nb\u202e") == "␛[2Ja\nb\ufffd"


def test_names_on_a_disk_need_not_be_text(cli, tmp_path):
    chat = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
    file = tmp_path / "ch\udce4t.json"
    file.write_text(chat)
    assert len(cli("import", tmp_path, "--json").json["sessions"]) == 1
    assert cli("sessions").tidy().code == 0
    assert cli("import", file, "--as", "\udce4").code == 0


def test_a_worker_that_holds_a_session_is_left_alone(talk, cli):
    """R-63: one folds at a time; whoever looks is not in the way."""
    with foldline.open(str(talk), model="m", window=2_000, session="talk", exclusive=60):
        for line in (("fold", "talk"), ("undo", "talk", "3"), ("pin", "talk", "log:1")):
            ended = cli(*line)
            assert (ended.code, "held by another worker" in ended.err) == (4, True)
        assert cli("fold", "talk", "--preview").code == 0
        assert cli("context", "talk").code == 0
    assert cli("pin", "talk", "log:1").code == 0
    with foldline.open(str(talk), model="m", window=2_000, session="talk", exclusive=60) as s:
        assert s.edits == []


def test_tenants_do_not_see_each_other(cli):
    assert cli("import", FILES / "pi.jsonl", "--tenant", "a").code == 0
    assert len(cli("--tenant", "a", "sessions", "--json").json["sessions"]) == 1
    assert cli("sessions", "--tenant", "b", "--json").json["sessions"] == []
    assert cli("show", "pi-1", "--tenant", "b").code == 1
    assert cli("search", "read", "--tenant", "b").code == 1


@pytest.mark.usefixtures("talk")
def test_m12_the_folds_of_a_session(cli):
    """M-12, P1-31: turns, sizes and ratio of each fold, for people and for scripts."""
    assert cli("history", "talk", "--folds").code == 1
    assert "no folds" in cli("history", "talk", "--folds").tidy().out
    made = cli("fold", "talk", "--json").json
    assert made["ratio"] == round(made["loss"]["before"] / made["loss"]["after"], 2) > 1
    (one,) = cli("history", "talk", "--folds", "--json").json["folds"]
    assert cli("history", "talk", "--json").json["folds"] == [one]
    assert (one["at"], one["ratio"], one["standing"]) == (made["edit"], made["ratio"], True)
    assert (one["first_turn"], one["used"], one["dollars"]) == (1, None, None)
    assert one["start_time"] <= one["end_time"] <= one["time"]
    shown = cli("history", "talk", "--folds").tidy().out
    assert "estimates of when a fold was made" in " ".join(shown.split()), "context has others"
    head, row, *_ = shown.splitlines()
    assert " ".join(head.split()) == "edit ago turns messages before after ratio cost told by"
    assert f"{one['before']:,}" in row.split()
    assert f"{one['first_turn']}-{one['last_turn']}" in row.split()
    assert f"{one['ratio']:.1f}" in row.split()
    assert "1 fold; --folds lists them" in cli("history", "talk").tidy().out
    assert "leave out" in cli("history", "talk", "3", "--folds").err
    cli("undo", "talk")
    assert "not in force" in cli("history", "talk", "--folds").out


@pytest.mark.usefixtures("talk")
def test_m13_exclude_takes_messages_out_of_sight_and_undo_brings_them_back(cli):
    """M-13: what left, how many tokens, and the way back."""
    whole = cli("export", "talk", "--format", "openai", "--sight").out
    assert "the answer is 111" in whole
    items = {one["seq"]: one for one in cli("show", "talk", "--json").json["items"]}
    first = next(seq for seq, one in items.items() if "answer is 111" in one["words"])
    gone = cli("exclude", "talk", f"log:{first}", "1", "--json").json
    assert [one["handle"] for one in gone["excluded"]] == ["log:1", f"log:{first}"]
    assert [one["tokens"] for one in gone["excluded"]] == [items[1]["tokens"], items[first]["tokens"]]  # fmt: skip
    assert gone["tokens_after"] < gone["tokens_before"]
    assert "the answer is 111" not in cli("export", "talk", "--format", "openai", "--sight").out
    assert "the answer is 111" in cli("show", "talk", f"log:{first}").out, "it stays in the log"
    undone = cli("undo", "talk", gone["edit"], "--json").json
    assert undone["tokens_after"] == gone["tokens_before"]
    assert cli("export", "talk", "--format", "openai", "--sight").out == whole
    out = cli("exclude", "talk", first).tidy().out
    assert f"out of sight: log:{first} user, " in out
    assert "tokens became" in out
    assert "`foldline undo talk " in out
    for wrong in ("log:99999", "log:1-3", "folly"):
        ended = cli("exclude", "talk", wrong)
        assert ended.code in (1, 2), wrong
        assert ended.err.startswith("foldline: ")

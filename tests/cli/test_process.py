"""The installed program: bad usage without a traceback, exit codes, pipes, recorded sessions."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import foldline
from foldline.apps.cli import is_debugging
from foldline.apps.cli.exit_codes import MEANINGS
from foldline.testing import Provider

FILES = Path(__file__).parents[1] / "importers" / "files"
PROGRAM = Path(sys.executable).with_name("foldline")
BAD = [
    ([], 2),
    (["nonsense"], 2),
    (["sesions"], 2),
    (["--nonsense"], 2),
    (["sessions", "extra"], 2),
    (["import"], 2),
    (["import", "{folder}/none.jsonl"], 2),
    (["import", "{folder}/empty.json"], 2),
    (["import", "{folder}/binary.jsonl"], 2),
    (["import", "{folder}/torn.json.gz"], 2),
    (["import", "{folder}/deep.json"], 2),
    (["import", "/dev/null"], 2),
    (["import", "{folder}/nothing"], 1),
    (["import", "{files}", "--store", "{folder}/no/such/folder/a.db"], 3),
    (["import", "{files}", "--store", "{folder}"], 3),
    (["sessions", "--store", "{folder}/none.db"], 3),
    (["sessions", "--store", "{folder}/binary.jsonl"], 3),
    (["sessions", "--store", "{folder}/other.db"], 3),
    (["sessions", "--store", "postgres://nobody/here"], 3),
    (["sessions", "--store"], 2),
    (["show"], 2),
    (["show", ""], 1),
    (["show", "nobody"], 1),
    (["show", "pi-1", "log:99999"], 2),
    (["show", "pi-1", "what?"], 2),
    (["show", "pi-1", "--tail", "3"], 2),
    (["show", "pi-1", "log:1", "--tail", "0"], 2),
    (["show", "pi-1", "log:1", "--grep", "("], 2),
    (["show", "pi-1", "--log", "x"], 2),
    (["show", "pi-1", "--log", "9-1"], 2),
    (["context", "pi-1", "--policy", "none"], 2),
    (["context", "pi-1", "--window", "-5"], 2),
    (["context", "pi-1", "--window", "many"], 2),
    (["context", "pi-1", "--width", "1"], 2),
    (["context", "pi-1", "--svg", "{folder}/no/folder.svg"], 2),
    (["plan", "pi-1", "--policy", "off", "--window", "10"], 5),
    (["fold", "pi-1", "--preview", "extra"], 2),
    (["undo", "openai"], 2),
    (["undo", "pi-1", "1"], 2),
    (["undo", "pi-1", "x"], 2),
    (["pin", "pi-1"], 2),
    (["pin", "pi-1", "log:999"], 2),
    (["history", "pi-1", "99"], 1),
    (["history", "pi-1", "0"], 1),
    (["search"], 2),
    (["search", "???"], 1),
    (["search", "x", "--limit", "0"], 2),
    (["export", "pi-1", "--format", "word"], 2),
    (["export", "pi-1", "--sight"], 2),
    (["export", "pi-1", "-o", "{folder}"], 2),
    (["erase"], 2),
    (["erase", "pi-1"], 2),
    (["erase", "pi-1", "--all", "--yes"], 2),
    (["erase", "pi", "--yes"], 2),
    (["erase", "nobody", "--yes"], 1),
    (["erase", "--older", "-1", "--yes"], 2),
    (["doctor", "{folder}/none.db"], 1),
    (["show", "\udce4\udcff"], 1),
    (["show", "x" * 10_000], 1),
    (["search", "\udce4x"], 1),
    (["models", "\udce4x"], 1),
    (["erase", "\udce4", "--yes"], 1),
    (["sessions", "--tenant", "\udce4"], 1),
    (["sessions", "--store", "{folder}/\udce4.db"], 3),
    (["import", "{files}", "--store", "{folder}/\udce4.db"], 3),
    (["context", "pi-1", "--model", "\udce4", "--window", "x"], 2),
    (["plan", "pi-1", "--model", "\udce4"], 0),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "empty.json").write_text(" \n")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "torn.json.gz").write_bytes(b"\x1f\x8b\x08\x00abcdef")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    import apsw  # noqa: PLC0415

    apsw.Connection(str(tmp_path / "other.db")).execute("create table mine (x)")
    return tmp_path


def test_bad_usage_is_one_line_and_a_code(cli, folder):
    """In this process, because there are many; `program` below shows that it is the same."""
    assert cli("import", FILES).code == 0
    for given, code in BAD:
        line = [one.format(folder=folder, files=FILES) for one in given]
        ended = cli(*line)
        assert ended.code == code, (given, ended)
        assert code in MEANINGS
        if code == 0:
            continue
        assert "Traceback" not in ended.out + ended.err, given
        if line and line[0] not in ("doctor", "plan", "search", "models", "sessions"):
            assert ended.err.startswith("foldline: "), (given, ended)
        if code in (2, 3) and line:
            assert ended.err.count("\n") == 1, (given, ended)
            assert ended.out == "", (given, ended)


def test_the_program_ends_as_it_says(program, tmp_path):
    assert program("--version").out == f"foldline {foldline.__version__}\n"
    told = program("--help").tidy()
    assert told.code == 0
    words = " ".join(told.out.split())
    assert all(f"{code} {text}" in words for code, text in MEANINGS.items())
    store = {"FOLDLINE_STORE": str(tmp_path / "a.db")}
    assert program("import", FILES, env=store).tidy().code == 0
    assert program("sessions", env=store).tidy().code == 0
    wrong = program("show", "nobody", env=store).tidy()
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (1, "", 1)
    listed = program("sessions", "--json", env=store).json["sessions"]
    assert len(listed) == 10
    ascii_only = {**store, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    assert program("context", "pi-1", env=ascii_only).tidy().code == 0
    narrow = program("sessions", env={**store, "COLUMNS": "40"})
    assert max(map(len, narrow.out.splitlines()[:-1])) <= 40
    refused = program("erase", "pi-1", env=store)
    assert (refused.code, "--yes" in refused.err) == (2, True)


def test_help_shows_everyday_commands_first(cli):
    told = cli("--help").tidy().out
    headings = [line for line in told.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings[:2] == ["Options:", "Everyday commands:"]
    listed = told.partition("Everyday commands:\n")[2].partition("\n\n")[0].splitlines()
    first = [line for line in listed if line[2] != " "]  # help is wrapped, not cut
    assert len(first) == 12
    assert [line.split()[0] for line in first[:2]] == ["run", "chat"]
    assert all(told.count(f"\n  {name} ") == 1 for name in ("undo", "pin", "config", "lab"))


@pytest.mark.parametrize("name", ["import", "show", "plan", "export", "erase"])
def test_help_fits(cli, name):
    told = cli(name, "--help").tidy()
    assert told.code == 0
    assert all(option in told.out for option in ("--store", "--tenant", "--json"))


def test_who_stops_reading_stops_us_quietly(program, tmp_path):
    store = tmp_path / "a.db"
    assert program("import", FILES, "--store", store).code == 0
    command = f"{PROGRAM} models --store {store} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_warnings_of_the_library_are_not_on_the_screen(program, tmp_path):
    """Python prints a warning that no handler takes; here only if it is asked for."""
    with Provider() as provider:
        given = ("chat", "one", "-m", "hi", "--model", "nobodys-model", "--store", tmp_path / "a.db", "--base-url", f"{provider.url}/v1")  # fmt: skip
        done = program(*given)
        assert (done.code, done.out) == (0, "ok\n")
        assert "are assumed" not in done.err
        assert "128,000 tokens are assumed" in program(*given, env={"FOLDLINE_DEBUG": "1"}).err


@pytest.mark.parametrize(("value", "shows"), [("0", False), ("off", False), ("1", True)])
def test_a_traceback_is_shown_only_where_it_was_asked_for(monkeypatch, value, shows):
    monkeypatch.setenv("FOLDLINE_DEBUG", value)
    assert is_debugging() == shows


def test_somebody_else_writes(program, tmp_path, monkeypatch):
    """A store that another process holds locked is a conflict, not a crash."""
    import apsw  # noqa: PLC0415

    from foldline.stores import sqlite  # noqa: PLC0415

    store = tmp_path / "a.db"
    assert program("import", FILES, "--store", store).code == 0
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.1)
    holding = apsw.Connection(str(store))
    holding.execute("begin immediate")
    from foldline.apps.cli.app import run_command  # noqa: PLC0415

    assert run_command(["pin", "pi-1", "log:1", "--store", str(store)]) in (3, 4)
    holding.execute("rollback")


def test_messages_at_the_same_time_begin_a_session_each(tmp_path):
    said = [f"hello {at}" for at in range(8)]
    store = tmp_path / "a.db"
    env = {**os.environ, "FOLDLINE_STORE": str(store), "OPENAI_API_KEY": "k"}
    with Provider(lambda body: body["messages"][-1]["content"].upper()) as provider:
        given = "--model", "m", "--window", "9000", "--base-url", f"{provider.url}/v1"
        every = [
            subprocess.Popen(
                [PROGRAM, "chat", "-p", words, *given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=env,
            )
            for words in said
        ]
        ended = [(*one.communicate(timeout=120), one.returncode) for one in every]
    assert ended == [(f"{words.upper()}\n", "", 0) for words in said]
    assert [len(json.loads(body)["messages"]) for body in provider.bodies] == [2] * 8
    listed = subprocess.run(
        [PROGRAM, "sessions", "--json"], capture_output=True, env=env, check=True
    )
    sessions = json.loads(listed.stdout)["sessions"]
    assert sorted(one["words"] for one in sessions) == said
    assert [one["turns"] for one in sessions] == [1] * 8


@pytest.mark.parametrize(
    ("closed", "shown"),
    [(">&-", ""), ("2>&-", "the answer\n"), ("<&-", "the answer\n"), ("<&- >&- 2>&-", "")],
)
def test_what_a_shell_has_closed_is_as_dev_null(cli, tmp_path, closed, shown):
    """The answer is paid for: it is kept, and printed where somebody reads it."""
    store = tmp_path / "a.db"
    with Provider(["the answer"]) as provider:
        given = "--model", "m", "--window", "9000", "--base-url", f"{provider.url}/v1"
        line = ["sh", "-c", f'exec "$@" {closed}', "sh", PROGRAM, "chat", "one", "-p", "x", *given]
        env = {**os.environ, "FOLDLINE_STORE": str(store)}
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=env, input="")
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")
    assert "the answer" in cli("show", "one", "--store", store).out


def test_an_interrupt_is_130_and_what_was_taken_stays(program, recordings, tmp_path):
    store = tmp_path / "a.db"
    started = subprocess.Popen(
        [PROGRAM, "import", recordings, "--store", store],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    deadline = time.monotonic() + 30
    while not store.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    threading.Timer(60, started.kill).start()
    _, err = started.communicate(timeout=60)
    assert "Traceback" not in err
    assert started.returncode in (0, 130), err  # it may have been done already
    again = program("import", recordings, "--store", store)
    assert again.code == 0
    assert len(program("sessions", "--json", "--store", store).json["sessions"]) == 4
    assert program("doctor", store).code == 0


def test_recorded_sessions_twice_and_out_and_in_again(cli, recordings, tmp_path, capsys):
    store, other = ("--store", tmp_path / "a.db"), ("--store", tmp_path / "b.db")
    start = time.perf_counter()
    first = cli("import", recordings, "--json", *store).json
    took = time.perf_counter() - start
    assert len(first["sessions"]) == 4
    events = sum(one["added"] for one in first["sessions"])
    with capsys.disabled():
        print(f"\nimport of 4 recorded sessions, {events:,} events: {took:.1f} s")
    again = cli("import", recordings, *store).tidy()
    assert "4 already there, nothing added" in again.out
    for one in first["sessions"]:
        name = one["session"]
        for line in (["show", name], ["context", name], ["plan", name], ["history", name]):
            assert cli(*line, *store).tidy().code == 0, line
    name = max(first["sessions"], key=lambda one: one["events"])["session"]
    file = tmp_path / f"{name}.jsonl"
    assert cli("export", name, "-o", file, *store).code == 0
    assert cli("import", file, *other).code == 0
    assert cli("export", name, *other).out == file.read_text()
    assert "1 already there" in cli("import", file, *store).out
    turns = cli("history", name, "--json", *store).json["turns"]
    assert json.dumps(turns)
    assert cli("history", name, "20", *store).tidy().code == 0

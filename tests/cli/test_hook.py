"""`foldline hook claude`: what it says of transcripts, how fast, and that it never stands in the way."""

import io
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foldline import __version__
from foldline.apps.cli.hook import describe_claude_session, find_last_call, run_claude_hook
from foldline.models.catalog import resolve_model

PLUGIN = Path(__file__).parents[2] / "examples" / "claude-code-plugin"
MODEL = "claude-sonnet-4-5"
NOW = 1_790_000_000.0
PROGRAM = [sys.executable, "-m", "foldline", "hook", "claude"]
MOST_CPU = 0.150  # seconds from the start of the program to its end


def stamp(seconds_ago):
    when = datetime.fromtimestamp(NOW - seconds_ago, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def answer(ago, *, read=60_000, written=500, fresh=3, lives="5m", **more):
    """A record of an answer, as Claude Code writes it."""
    usage = {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {
            f"ephemeral_{name}_input_tokens": written if name == lives else 0
            for name in ("5m", "1h")
        },
        "output_tokens": 300,
        "service_tier": "standard",
    }
    message = {"id": "m", "role": "assistant", "model": MODEL, "usage": usage, "content": []}
    record = {"type": "assistant", "timestamp": stamp(ago), "message": message}
    return {"uuid": str(ago), "isSidechain": False, "sessionId": "s", **record, **more}


def user(ago, **more):
    message = {"role": "user", "content": "Go on."}
    return {"type": "user", "timestamp": stamp(ago), "message": message, "sessionId": "s", **more}


def boundary(ago):
    return {"type": "system", "subtype": "compact_boundary", "timestamp": stamp(ago)}


@pytest.fixture
def write(tmp_path):
    def write_transcript(*records):
        path = tmp_path / "session.jsonl"
        lines = (one if isinstance(one, str) else json.dumps(one) for one in records)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write_transcript


def describe(path, prompt="And now?"):
    return describe_claude_session(path, NOW, prompt)


@pytest.mark.parametrize(
    ("event", "says"), [("UserPromptSubmit", True), ("SessionStart", True), ("Stop", False)]
)
def test_it_speaks_before_a_call_alone(write, capsys, monkeypatch, event, says):
    monkeypatch.delenv("FOLDLINE_RUN", raising=False)
    path = write(user(420), answer(400))
    given = {"transcript_path": str(path), "prompt": "hi", "hook_event_name": event}
    assert run_claude_hook(io.BytesIO(json.dumps(given).encode())) == 0
    assert bool(capsys.readouterr().out) == says


def test_a_pipe_and_a_count_that_no_model_has_say_nothing(write, tmp_path):
    """A pipe that nobody writes to would hold the prompt up (outside, 20)."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert describe(pipe) == ""
    assert describe(write(user(420), answer(400, read=2 * 10**21))) == ""


def test_it_names_the_price(write):
    said = describe(write(user(420), answer(400)))
    prices = resolve_model(MODEL).prices
    cold = (3 + 60_500 + 300) * prices.write / 1e6
    assert f"costs about ${cold:.2f} instead of $0.0" in said
    assert said.endswith(
        "/compact costs as much, /clear nothing. (At API prices, without the answer.)"
    )


def test_a_cache_of_an_hour_lives_longer_and_costs_more(write):
    path = write(answer(3_500, written=5_000, lives="1h"), answer(3_400, written=0))
    assert describe(path) == ""
    path = write(answer(3_800, written=5_000, lives="1h"), answer(3_700, written=0))
    dollars = (60_003 + 300) * 2 * resolve_model(MODEL).prices.input / 1e6
    assert f"costs about ${dollars:.2f} " in describe(path)
    assert find_last_call(path).lifetime == 3_600


SILENT = {
    "warm": [answer(299)],
    "empty": [],
    "no answer": [user(900)],
    "small": [answer(900, read=5_000)],
    "not cached": [answer(900, read=0, written=0, fresh=60_000)],
    "compacted since": [answer(900), boundary(800), user(800, isCompactSummary=True)],
    "compacted since, an older release": [answer(900), user(800, isCompactSummary=True)],
    "only a sub-agent": [answer(900, isSidechain=True)],
    "the client's own words": [answer(900, read=0, written=0, fresh=0)],
    "a clock that is behind": [answer(-5_000)],
    "told": [
        answer(900),
        {"type": "attachment", "attachment": {
            "type": "hook_system_message", "content": "The cache has expired: …"}},
    ],
    "no price": [answer(900, message={**answer(900)["message"], "model": "my-own-model"})],
}  # fmt: skip


@pytest.mark.parametrize("records", SILENT.values(), ids=SILENT)
def test_it_is_silent(write, records):
    assert describe(write(*records)) == ""


@pytest.mark.parametrize("prompt", ["/clear", "/compact", "/compact the errors"])
def test_it_is_silent_before_commands_that_begin_anew(write, prompt):
    path = write(answer(900))
    assert describe(path, prompt) == ""
    assert describe(path, "What does /clear do?") != ""


SPOKEN = {
    "a sub-agent that is newer": [answer(900), answer(10, isSidechain=True, read=200_000)],
    "a call that was not cached": [answer(900), answer(10, read=0, written=0)],
    "a compaction before": [answer(9_000, read=150_000), boundary(5_000), answer(900)],
    "words about a compaction": [answer(900), user(800, note='"subtype":"compact_boundary"')],
    "odd lines": [
        "{", "[]", "null", '"usage" "assistant"', "\x00\x7f", "[" * 5_000,
        answer(900),
        json.dumps(answer(100)).replace("60000", "-1.5"),
        json.dumps(answer(100)).replace('"timestamp": "', '"timestamp": "on '),
        json.dumps(answer(100, message=None)),
        json.dumps({"type": "assistant", "message": {"usage": None}}),
        json.dumps(answer(100))[:-40],
    ],
}  # fmt: skip


@pytest.mark.parametrize("records", SPOKEN.values(), ids=SPOKEN)
def test_the_last_call_of_the_conversation_counts(write, records):
    path = write(*records)
    assert "costs about $0.23 instead of" in describe(path)
    assert find_last_call(path).input == 60_503


@pytest.mark.parametrize("size", [0, 40_000_000])
def test_only_the_end_of_a_huge_file_is_read(write, tmp_path, size):
    """What was said earlier is not read; an answer that is far from the end is not looked for."""
    path = write(answer(900))
    huge = tmp_path / "huge.jsonl"
    with huge.open("wb") as file:
        file.truncate(400_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + path.read_bytes())
        for _ in range(size // 1_000_000):
            file.write(json.dumps(user(800, pasted="x" * 1_000_000)).encode() + b"\n")
    begun = time.process_time()
    assert (describe(huge) != "") is (size == 0)
    assert time.process_time() - begun < 1


def test_a_line_longer_than_a_block_is_read_whole(write):
    path = write(user(950), answer(900, text="é" * 2_500_000))
    assert find_last_call(path).input == 60_503


def run_hook(given, capsys):
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    assert run_claude_hook(io.BytesIO(body)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"no JSON",
        b"[]",
        {},
        {"transcript_path": None},
        {"transcript_path": "/nowhere/it.jsonl"},
    ],
)
def test_it_never_fails(given, capsys, tmp_path):
    assert run_hook(given, capsys) == ""
    assert run_hook({"transcript_path": str(tmp_path)}, capsys) == "", "a folder"


def test_it_says_it_in_json(write, capsys, monkeypatch):
    path = write(answer(900))  # years ago by the real clock
    given = {"transcript_path": str(path), "prompt": "Hi", "hook_event_name": "UserPromptSubmit"}
    said = json.loads(run_hook(given, capsys))
    assert said == {"systemMessage": said["systemMessage"]}, "nothing else: the prompt goes on"
    assert run_hook({"transcript_path": str(path)}, capsys), "a session that is resumed"
    monkeypatch.setenv("HOME", str(path.parent))
    assert run_hook({**given, "transcript_path": f"~/{path.name}"}, capsys)
    monkeypatch.setenv("FOLDLINE_RUN", "1")
    assert run_hook(given, capsys) == "", "a gateway of ours folds by itself"


def test_it_starts_fast(write):
    """In processor time, which other programs do not change; without the rest of the command line."""
    recent = {**answer(0), "timestamp": datetime.now(UTC).isoformat()}
    given = json.dumps({"transcript_path": str(write(recent)), "prompt": "Hi"}).encode()
    took = []
    for _ in range(5):
        process = subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin
        process.stdin.write(given)
        process.stdin.close()
        assert process.stdout.read() == b""
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = code
        process.stdout.close()
        took.append(used.ru_utime + used.ru_stime)
        assert code == 0
    assert min(took) < MOST_CPU, took
    listing = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:]],
        input=given, capture_output=True, check=True,
    )  # fmt: skip
    imported = {line.rpartition(b"|")[2].strip().decode() for line in listing.stderr.splitlines()}
    assert "foldline.apps.cli.hook" in imported
    assert not imported & {"typer", "rich", "asyncio", "foldline.core.log", "foldline.importers"}


def test_the_plugin_calls_it():
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    commands = [
        (event, hook["command"]) for event, groups in hooks.items()
        for group in groups for hook in group["hooks"]
    ]  # fmt: skip
    assert commands == [
        ("SessionStart", "foldline hook claude"),
        ("UserPromptSubmit", "foldline hook claude"),
    ]
    about = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    assert about["version"] == __version__

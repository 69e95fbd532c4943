"""One message by `-p`, as docs/how-to/chat.md tells: pipes, what goes to stdout and to stderr, JSON, exit codes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.apps.chat.attachments import LARGEST, attach_bytes, join_message
from foldline.apps.cli import chat_records, saved_keys
from foldline.apps.cli.chat_records import Record, RunResult
from foldline.apps.cli.one_message import _NO_WORDS
from foldline.core.log import UserSaid
from foldline.core.parts import text_of
from foldline.testing import Provider, Trouble

FOLDLINE = Path(sys.executable).with_name("foldline")
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(8) + (40).to_bytes(4, "big") + (30).to_bytes(4, "big")


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    """A folder without instructions: this repository has an AGENTS.md."""
    monkeypatch.chdir(tmp_path)


def to(provider, window=128_000):
    return "--model", "m", "--window", str(window), "--base-url", f"{provider.url}/v1"


WINDOW = ("--model", "m", "--window", "9000")


@pytest.fixture
def served():
    """A server that answers every request with one stream."""
    running = []

    def serve(stream):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(stream.encode())

            def log_message(self, *_):
                pass

        running.append(HTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=running[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_port}/v1"

    yield serve
    for one in running:
        one.shutdown()
        one.server_close()


def call(name, words=None, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": words,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


@pytest.fixture
def piped(tmp_path, monkeypatch):
    """Give the command something on its standard input."""
    opened = []

    def pipe(body):
        path = tmp_path / "stdin"
        path.write_bytes(body)
        opened.append(path.open())
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield pipe
    for one in opened:
        one.close()


def asked(provider):
    """The newest message that the provider was sent."""
    return json.loads(provider.bodies[-1])["messages"][-1]["content"]


def test_c2_a_pipe_goes_along_with_the_message(cli, piped):
    piped(b"line one\nline two\n")
    with Provider(["ok"]) as provider:
        done = cli("chat", "one", "-p", "What is this?", *to(provider))
        assert (done.code, done.out, done.err) == (0, "ok\n", "")
        assert asked(provider) == (
            "What is this?\n\n[standard input: 18 bytes, 2 lines]\nline one\nline two\n"
        )


def test_c2_a_pipe_that_is_too_large_is_cut_and_says_so_with_its_handle(cli, piped):
    piped(b"".join(b"number %d\n" % one for one in range(9_000)))
    with Provider(["ok"]) as provider:
        done = cli("chat", "one", "-p", "Sum?", "--output", "json", *to(provider, 12_000))
        body = asked(provider)
    assert "Sum?" in body
    assert "number 4500\n" not in body
    assert "[whole: log:" in body
    (taken,) = done.json["taken"]
    size = sum(len(f"number {one}\n") for one in range(9_000))
    assert (taken["name"], taken["bytes"], taken["whole"]) == ("standard input", size, False)
    assert "is cut" in done.json["remarks"][-1]
    whole = cli("show", "one", taken["handle"]).out
    assert "number 4500" in whole


def test_what_is_no_text_is_written_out_and_named(cli, piped):
    piped(b"caf\xe9\x00\n")
    with Provider(["ok"]) as provider:
        done = cli("chat", "-p", "?", *to(provider))
        assert asked(provider).endswith(
            "[standard input: 6 bytes, 1 line; 1 byte that are not UTF-8 are written as \\xNN]\n"
            "caf\\xe9\x00\n"
        )
    assert "standard input: 1 byte" in done.err


def test_a_picture_goes_along_as_a_picture(cli, piped, tmp_path):
    piped(PICTURE)
    (tmp_path / "a.png").write_bytes(PICTURE)
    with Provider(["ok"]) as provider:
        assert cli("chat", "-p", "?", "--file", tmp_path / "a.png", *to(provider)).code == 0
        parts = asked(provider)
    assert [one["type"] for one in parts] == ["text", "image_url", "image_url"]
    assert "a.png: image/png, 24 bytes]" in parts[0]["text"]


def test_more_than_a_message_may_carry_is_refused_before_anything_is_sent(cli, piped):
    piped(b"x" * (LARGEST + 1))
    done = cli(
        "chat", "-p", "?", "--model", "m", "--window", "9000", "--base-url", "http://[::1]:9"
    )
    assert (done.code, done.out) == (5, "")
    assert "standard input has more than 16,000,000 bytes; nothing was sent" in done.err


def test_c3_texts_between_tools_are_kept_apart_and_stdout_has_the_answer_alone(cli):
    script = [call("list", "Let me look.", path="."), call("write", path="a", content="b"), "Done."]
    with Provider(script) as provider:
        done = cli("chat", "-p", "Look.", *to(provider))
    assert (done.code, done.out) == (0, "Done.\n")
    first, listed, wrote, told = done.err.splitlines()
    assert first == "Let me look."
    assert listed.startswith('● list({"path": "."}) 0.')
    assert "✗ write(" in wrote
    assert told.startswith("foldline: 1 of its calls were not run: nobody is here to approve them")


def test_c3_in_a_terminal_messages_are_lines_of_their_own(cli, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    script = [call("list", "Let me look.", path="."), "Done."]
    with Provider(script) as provider:
        done = cli("chat", "-p", "Look.", *to(provider))
    assert done.out == "Let me look.\n\nDone.\n"


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_c5_what_is_printed_as_json_is_what_is_documented(cli, form):
    script = [call("list", "Let me look.", path="."), "Done."]
    with Provider(script) as provider:
        done = cli("chat", "s", "-p", "Look.", "--output", form, *to(provider))
    assert (done.code, done.err) == (0, "")
    records = [json.loads(line) for line in done.out.splitlines()]
    for record, line in zip(records, done.out.splitlines(), strict=True):
        read = msgspec.json.decode(line, type=Record)
        fields = {"type", *type(read).__struct_fields__}
        assert set(record) == fields, "each field is printed, and none that is not documented"
        assert record["version"] == chat_records.VERSION == 1
    result = records[-1]
    assert (result["outcome"], result["answer"], result["code"]) == ("answered", "Done.", 0)
    assert (result["session"], result["usage"]["calls"], len(result["calls"])) == ("s", 2, 1)
    assert cli("show", "s", result["calls"][0]["handle"]).code == 0
    types = [one["type"] for one in records]
    if form == "json":
        assert types == ["result"]
    else:
        assert (
            "".join(one["text"] for one in records if one["type"] == "words") == "Let me look.Done."
        )
        assert [one for one in types if one != "words"] == [
            "begun", "message", "call", "returned", "message", "result"
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "more", "outcome", "code"),
    [
        ([Trouble.REFUSAL], (), "refused", 8),
        ([call("list", path=".")] * 3, ("--rounds", "2"), "rounds", 7),
        (["ok"], ("--set", "caps.call.tokens=1"), "spent", 7),
        (["ok"], ("--window", "300", "--reserve", "100"), "overflow", 5),
        ([Trouble.EMPTY], (), "unanswered", 6),
        ([Trouble.BLANK], (), "unanswered", 6),
        ([call("list", path="."), ""], (), "unanswered", 6),
        ([{"bad": 1}], ("--set", "model.base_url=http://127.0.0.1:9/v1"), "unanswered", 6),
    ],
)
def test_how_a_run_ended_is_an_exit_code_and_a_word(cli, script, more, outcome, code):
    with Provider(script) as provider:
        given = [*to(provider)]
        if "base_url" in str(more):
            given = given[:4]
        done = cli("chat", "-p", "Look.", "--output", "json", *given, *more)
    assert (done.json["outcome"], done.json["code"], done.code) == (outcome, code, code), done
    assert (done.json["error"] is not None) == (outcome in ("spent", "overflow", "unanswered"))


def test_an_answer_without_words_prints_nothing_and_is_none(cli):
    with Provider([Trouble.EMPTY]) as provider:
        done = cli("chat", "-p", "Look.", *to(provider))
    assert (done.code, done.out, done.err) == (6, "", f"foldline: {_NO_WORDS}\n")


@pytest.mark.parametrize("more", [(), ("--no-tools",)])
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
@pytest.mark.parametrize("name", ["delta", "message"])
def test_text_in_parts_is_printed_and_so_is_what_no_listener_hears(cli, served, form, more, name):
    """A server may send a list of parts, or the whole message where a delta belongs."""
    said = {"role": "assistant", "content": [{"type": "text", "text": "in parts"}]}
    choice = {"index": 0, name: said, "finish_reason": "stop"}
    url = served(f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n")
    done = cli("chat", "s", "-p", "x", "--output", form, "--base-url", url, *WINDOW, *more)
    assert done.code == 0, done.err
    if form == "text":
        assert done.out == "in parts\n"
    else:
        records = [json.loads(line) for line in done.out.splitlines()]
        assert records[-1]["answer"] == "in parts"
        heard = [one["text"] for one in records if one["type"] in ("words", "message")]
        assert heard == (["in parts"] * 2 if form == "stream-json" else [])
    assert "in parts" in cli("show", "s").out


def test_an_error_before_anything_is_open_is_json_too(cli):
    done = cli("--json", "chat", "-p", "x")
    assert (done.code, done.json["outcome"], done.json["session"]) == (2, "failed", "")
    assert "which model?" in done.json["error"]["message"]
    assert "which model?" in done.err


def test_the_records_have_a_meaning_for_every_field():
    from typing import get_args, get_type_hints  # noqa: PLC0415

    every = [*get_args(Record), chat_records.RunUsage, chat_records.SentAlong]
    for record in every:
        hints = get_type_hints(record, include_extras=True)
        assert all(hint.__metadata__[0].description for hint in hints.values()), record
    assert set(get_args(chat_records.Outcome)) == set(chat_records.OUTCOMES)
    assert RunResult in every


@given(body=st.one_of(st.binary(max_size=400), st.text(max_size=200).map(str.encode)))
def test_no_byte_of_a_pipe_is_lost(body):
    """C-2, any bytes: each is in the message, by itself or by its number."""
    found = attach_bytes("p", body)
    if len(found.parts) > 1:
        return  # a picture, which has its bytes
    shown = text_of(found.parts).partition("\n")[2]
    letters = body.decode("utf-8", "surrogateescape")
    wanted = "".join(
        f"\\x{ord(one) - 0xDC00:02x}" if 0xDC80 <= ord(one) <= 0xDCFF else one for one in letters
    )
    if "UTF-16" in found.note:
        assert shown.encode("utf-16")[2:] in (body[2:], body[2:][::-1]) or shown
    else:
        assert shown == wanted


@given(
    body=st.one_of(
        st.binary(max_size=300),
        st.lists(st.binary(min_size=1, max_size=60), min_size=200, max_size=400).map(b"\n".join),
    ),
    words=st.text(max_size=30),
)
def test_a_pipe_is_in_the_request_or_cut_with_a_handle_to_all_of_it(body, words):
    """C-2: whatever is piped, the request has it, or names the cut and a handle that gives it."""
    found = attach_bytes("p", body)

    async def add():
        async with foldline.aopen(":memory:", model="m", window=6_000) as session:
            place = await session.add(UserSaid(join_message(words, [found])))
            sent = json.dumps((await session.request())["messages"], ensure_ascii=False)
            return place, sent, session.live.view.held[place]

    place, sent, event = asyncio.run(add())
    if event.clip is None:
        assert json.dumps(text_of(event.parts), ensure_ascii=False)[1:-1] in sent
    else:
        assert f"whole: log:{place}" in sent
        assert text_of(found.parts) in text_of(event.parts)


@pytest.fixture
def started(tmp_path):
    """The program, started beside us."""
    running = []

    def start(*arguments, **more):
        env = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "OPENAI_API_KEY": "k"}
        pipe = subprocess.PIPE
        running.append(
            subprocess.Popen(
                [FOLDLINE, "chat", *arguments], env=env, **{"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, **more}
            )
        )  # fmt: skip
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.wait(60)
        for stream in (one.stdin, one.stdout, one.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@pytest.mark.real
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order(started, cli, tmp_path, number, code):
    with Provider(["It goes on and on."]) as provider:
        provider.stall = 4
        one = started("s", "-p", "x", "--output", "stream-json", *to(provider))
        while b'"words"' not in (line := one.stdout.readline()):
            assert line, one.stderr.read()
        one.send_signal(number)
        out, err = one.communicate(timeout=60)
    assert one.returncode == code, err
    result = json.loads(out.splitlines()[-1])
    assert (result["outcome"], result["code"]) == ("interrupted", code)
    assert result["answer"].startswith("It go")
    store = tmp_path / "foldline" / "sessions.db"
    assert "It go" in cli("show", "s", "--store", store).out, "what was said is kept"


@pytest.mark.real
def test_whoever_closes_the_pipe_ends_the_turn_quietly(started):
    with Provider(["word " * 20_000]) as provider:
        one = started("s", "-p", "x", "--no-tools", *to(provider))
        assert one.stdout.read(5) == b"word "
        one.stdout.close()
        assert one.wait(60) == 0
        assert one.stderr.read() == b""


@pytest.mark.real
def test_a_closed_stdin_and_one_that_never_ends_and_a_hundred_megabytes(started):
    with Provider(lambda _: "ok") as provider:
        shell = "exec 0<&-; exec " + " ".join(
            map(str, [FOLDLINE, "chat", "-p", "x", *to(provider)])
        )
        closed = subprocess.run(["sh", "-c", shell], capture_output=True, check=False, timeout=120)  # noqa: S607
        assert (closed.returncode, closed.stdout) == (0, b"ok\n"), closed.stderr
        empty = subprocess.run(["sh", "-c", shell.replace("-p x", "")], capture_output=True, check=False, timeout=120)  # noqa: S607 # fmt: skip
        assert (empty.returncode, b"nothing was said" in empty.stderr) == (2, True)
        asked_before = len(provider.bodies)
        large = started("-p", "x", *to(provider), stdin=subprocess.PIPE)
        written = 0
        with suppress(BrokenPipeError):
            for _ in range(100):
                written += large.stdin.write(b"x" * 1_000_000)
        assert large.wait(60) == 5
        assert written < 20_000_000, "it reads no more than it may take"
        assert len(provider.bodies) == asked_before
        slow = started("-p", "x", *to(provider), stdin=subprocess.PIPE)
        line = slow.stderr.readline()
        assert b"waiting for the standard input to end; `</dev/null` goes without it" in line
        slow.stdin.write(b"late")
        slow.stdin.close()
        assert slow.wait(60) == 0
        assert b"late" in provider.bodies[-1], "what comes late is not lost"


WRONG_KEY = {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}
NO_MODEL = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}
BAD = {"error": {"message": "bad request", "type": "invalid_request_error"}}


def words_sent(provider):
    """What people said in the newest request."""
    sent = json.loads(provider.bodies[-1])["messages"]
    return [one["content"] for one in sent if one["role"] == "user"]


@pytest.mark.parametrize("refusal", [(401, WRONG_KEY), (404, NO_MODEL), (400, BAD)])
def test_a_message_that_was_refused_is_not_seen_by_the_model(cli, refusal):
    with Provider(lambda _: "ok") as provider:
        assert cli("chat", "s", "-p", "before", *to(provider)).code == 0
        provider.refusal = refusal
        for _ in range(2):
            assert cli("chat", "s", "-p", "once", *to(provider)).code == 6
        provider.refusal = None
        assert cli("chat", "s", "-p", "once", *to(provider)).code == 0
        assert words_sent(provider) == ["before", "once"]
    assert cli("history", "s").out.count("once") == 3, "the log has all"


def test_a_message_that_was_not_sent_is_not_seen_by_the_model(cli):
    with Provider(lambda _: "ok") as provider:
        assert cli("chat", "s", "-p", "x", *to(provider), "--set", "caps.call.tokens=1").code == 7
        assert cli("chat", "s", "-p", "again", *to(provider)).code == 0
        assert words_sent(provider) == ["again"]


def test_a_message_to_nobody_is_not_seen_by_the_model_and_begins_no_session(cli):
    with Provider(lambda _: "ok") as provider:
        nobody = "--model", "m", "--window", "9000", "--base-url", "http://127.0.0.1:9/v1"
        for _ in range(2):
            failed = cli("chat", "s", "-p", "first", *nobody)
            assert failed.code == 6
            assert failed.err.endswith("; start it, or correct --base-url; then repeat it\n")
        assert cli("chat", "s", "-p", "third", *to(provider)).code == 0
        assert words_sent(provider) == ["third"]
        assert cli("chat", "-p", "to nobody", *nobody).code == 6
    assert [one["session"] for one in cli("sessions", "--json").json["sessions"]] == ["s"]


def test_an_answer_that_broke_off_keeps_its_message(cli):
    with Provider([Trouble.CUT, "ok"]) as provider:
        assert cli("chat", "s", "-p", "first", *to(provider)).code == 6
        assert cli("chat", "s", "-p", "second", *to(provider)).code == 0
        assert words_sent(provider) == ["first", "second"]


def test_a_failure_names_the_way_out(cli, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with Provider(lambda _: "ok") as provider:
        provider.refusal = 401, WRONG_KEY
        told = cli("chat", "-p", "x", "--output", "json", *to(provider))
        way = "Incorrect API key; correct OPENAI_API_KEY in the environment"
        assert told.json["error"]["message"] == f"m gave no answer (auth): {way}"
        assert told.err.endswith(f"{way}\n")
        monkeypatch.delenv("OPENAI_API_KEY")
        assert "; set OPENAI_API_KEY to a key\n" in cli("chat", "-p", "x", *to(provider)).err
        monkeypatch.setattr(saved_keys, "find_spec", lambda _: None)
        where = saved_keys.save_key(f"{provider.url}/v1", "OPENAI_API_KEY", "wrong")
        told = cli("chat", "-p", "x", *to(provider)).err
        assert told.endswith(f"; correct the key in {where}, or set OPENAI_API_KEY\n")
        provider.refusal = 404, NO_MODEL
        told = cli("chat", "-p", "x", *to(provider)).err
        assert told.endswith("--model NAME takes another model; `foldline models` lists names\n")


def test_instructions_that_nobody_agreed_to_are_named(cli, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Use tabs.\n")
    monkeypatch.chdir(folder)
    with Provider(["yes"]) as provider:
        done = cli("chat", *to(provider), "-p", "hello")
        sent = str(provider.bodies)
    assert done.out == "yes\n"
    assert "AGENTS.md; `foldline chat` in this folder asks about it" in " ".join(done.err.split())
    assert "Use tabs" not in sent

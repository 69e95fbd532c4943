"""The README's ways in, and a long conversation, against a real model through the official client."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI

import foldline
from foldline.core.log import Asked, UsageReported
from foldline.core.spine import Range
from foldline.models.catalog import resolve_model

README = Path(__file__).parents[2] / "README.md"


PROGRAM = Path(sys.executable).with_name("foldline")
PORT = "8100"


def blocks(kind: str) -> list[str]:
    """The README's blocks of a kind, in order."""
    return re.findall(rf"```{kind}\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.fixture
def model(model_server, monkeypatch, tmp_path):
    """The real model as whoever follows the README finds it: by the SDK's own variables."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model_server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return model_server


@pytest.mark.real
def test_any_language_by_the_gateway(model, tmp_path):
    """The second way in: the line that serves, and an agent that knows only its base_url."""
    serve, agent = next(one for one in blocks("console") if "serve" in one).splitlines()
    program, *given = shlex.split(serve.removeprefix("$ "))
    assert program == "foldline"
    given = [{"https://api.openai.com": model.url, PORT: "0"}.get(one, one) for one in given]
    with subprocess.Popen([PROGRAM, *given], stdout=subprocess.PIPE, text=True) as server:
        try:
            told = ""
            while "/v1" not in told:
                told = server.stdout.readline()
                assert told, "it ended before it said where it listens"
            (port,) = re.findall(r"127\.0\.0\.1:(\d+)/v1", told)
            setting, name = shlex.split(agent.removeprefix("$ "))
            variable, address = setting.split("=", 1)
            assert (variable, name) == ("OPENAI_BASE_URL", "your-agent")
            client = OpenAI(base_url=address.replace(PORT, port))
            asked = [{"role": "user", "content": "Say hello."}]
            reply = client.chat.completions.create(model="gpt-5", messages=asked, max_tokens=8)
            assert reply.choices[0].message.content
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
    listed = subprocess.run([PROGRAM, "sessions", "--store", "sessions.db"], check=True, capture_output=True, text=True)  # fmt: skip
    assert "Say hello." in listed.stdout
    assert (tmp_path / "sessions.db").exists()


@pytest.mark.real
@pytest.mark.usefixtures("model")
def test_at_a_terminal():
    """The terminal: the line of the page, with something to say, and the same conversation again."""
    block = next(one for one in blocks("console") if "foldline chat" in one)
    (line,) = (one for one in block.splitlines() if one.startswith("$ foldline"))
    for words in (line.removeprefix("$ "), "foldline chat --continue"):
        program, *given = shlex.split(words)
        assert program == "foldline"
        said = ["--no-tools", "--reserve", "64", "-m", "Say hello."]
        done = subprocess.run([PROGRAM, *given, *said], capture_output=True, text=True, check=False, env=dict(os.environ))  # fmt: skip
        # So small a model may go on until --reserve ends it, which is 7.
        assert done.returncode in (0, 7), done.stderr
        assert done.stdout.strip()
    listed = subprocess.run([PROGRAM, "sessions"], check=True, capture_output=True, text=True)
    assert listed.stdout.count("Say hello.") == 1, "two lines, one conversation"


@pytest.mark.real
@pytest.mark.usefixtures("model")
def test_a_wrapped_client(capsys):
    """The block of the page that needs a client."""
    wrapped = blocks("python")[1]
    exec(compile(wrapped, str(README), "exec"), {})  # noqa: S102
    said = capsys.readouterr().out
    window = resolve_model("gpt-6.1-sol").window
    assert re.search(rf"\d+ of {window:,} tokens \(.*reported\)", said), said


def write_message(turn: int) -> str:
    tests = ("parse", "lex", "eval", "print", "load", "save")
    log = "\n".join(f"[{turn}] test_{name} ... ok, nothing to report" for name in tests)
    return f"Turn {turn}. The test run printed:\n{log}\nIs everything fine?"


@pytest.mark.real
def test_a_conversation_outlives_its_window(model, capsys):
    """The walking skeleton: 30 turns at 2,048 tokens, and the same without Foldline."""
    model_server, client = model, OpenAI()
    s = foldline.open(":memory:", model="smollm2", system="Be brief.", window=2_048, reserve=64)
    for turn in range(30):
        s.add(write_message(turn))
        s.create(client, max_tokens=8)
    history = [{"role": "system", "content": "Be brief."}]
    for turn in range(30):
        history.append({"role": "user", "content": write_message(turn)})
        try:
            reply = client.chat.completions.create(model="smollm2", messages=history, max_tokens=8)
        except BadRequestError as error:
            refused = str(error)
            break
        history.append({"role": "assistant", "content": reply.choices[0].message.content})
    assert "exceeds the available context size (2048 tokens)" in refused
    session = s.aio
    events = asyncio.run(session.live.read_events(Range(0, session.live.view.head)))
    asked = [(seq, event) for seq, event in events if isinstance(event, Asked)]
    counted = [event for _, event in events if isinstance(event, UsageReported)]
    assert len(asked) == len(counted) == 30
    assert {usage.asked for usage in counted} == {seq for seq, _ in asked}

    # Every request was within the window by the server's own count, with room for the answer.
    assert max(usage.input + usage.output for usage in counted) <= model_server.window
    # Learned from the server's own counts, the estimate is right.
    believed = [event.tokens for _, event in asked]
    errors = [abs(b / usage.input - 1) for b, usage in zip(believed, counted, strict=True)]
    late = sorted(errors[3:])
    p95 = late[int(len(late) * 0.95)]
    assert p95 <= 0.05
    # Far more was said than the window holds, and folds made it fit.
    assert sum(usage.input - usage.cache_read for usage in counted) > 2 * model_server.window
    assert s.edits
    # Most of each request was read from the server's own cache: the prefix stands still.
    hits = sum(usage.cache_read for usage in counted) / sum(usage.input for usage in counted)
    assert hits > 0.5
    # Every request can be had again, byte for byte (law 5), and nothing is lost (law 3).
    for seq, _ in asked:
        s.history.sent(seq)
    assert s.recall("log:2") == write_message(0)
    with capsys.disabled():
        worst = max(usage.input for usage in counted)
        print(
            f"\n30 turns at {model_server.window} tokens: largest request {worst}, cache hits {hits:.0%}, p95 error of the estimate {p95:.1%}; without: refused at turn {turn}"
        )

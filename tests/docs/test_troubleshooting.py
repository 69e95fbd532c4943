"""What docs/how-to/troubleshooting.md quotes is what is said: each situation is made, and heard."""

import os
import re
from pathlib import Path

import apsw
import pytest
from gateway_thread import Served
from openai import APIStatusError, OpenAI

import foldline
from foldline.apps.cli.app import run_command
from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.core.log import Folded
from foldline.dialects.provider_errors import Fault, classify_error
from foldline.errors import Conflict, FoldlineError, ModelFailed, Spent
from foldline.stores import sqlite
from foldline.stores.postgres import connections
from foldline.testing import Provider

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    (ROOT / "docs" / place).read_text()
    for place in ("how-to/troubleshooting.md", "reference/gateway.md")
)
QUOTED = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "description": "Do one thing of many. " * 20, "parameters": {"type": "object"}}}
    for n in range(40)
]  # fmt: skip


def opened(address=":memory:", **given):
    return foldline.open(address, **{"model": "local", **given})


def overflow():
    with opened(window=4_000, tools=TOOLS) as s:
        s.add("Hello.")
        s.request()


def talked(turns):
    """A session of some length at a small window, folded on the way where it must be."""
    s = opened(window=4_000)
    for n in range(turns):
        s.add(f"Report {n}: " + "the run printed nothing of note; " * 40)
        s.request()
        s.add({"role": "assistant", "content": "Fine."})
    return s


def undone_too_late():
    with talked(15) as s:
        s.undo()


def covered():
    with opened(window=20_000) as s:
        for n in range(2):
            for part in range(3):
                said = f"Report {n}.{part}: " + "nothing of note; " * 200
                s.add([said, {"role": "assistant", "content": "Fine. " * 300}])
            s.fold()
        first = next(seq for seq, event in s.history.events() if isinstance(event, Folded))
        s.undo(first)


def conflict():
    with opened("talks.db") as one, opened("talks.db") as two:
        one.add("One.")
        two.add("Two.")


def busy():
    with opened("held.db", exclusive=30):
        opened("held.db", exclusive=30)


def locked():
    opened("talks.db").close()
    other = apsw.Connection("talks.db")
    other.execute("begin exclusive")
    try:
        with opened("talks.db") as session:
            session.add("Hello.")
    finally:
        other.close()


def damaged():
    Path("notes.db").write_text("These are my notes, and no database.\n" * 100)
    opened("notes.db")


def warned(**given):
    with opened(**given) as s:
        (words,) = s.report.warnings
        return words


def refused(text):
    """A provider's words, as far as they are understood."""
    fault = classify_error(text, status=400)
    assert (fault.kind, fault.limit is not None, fault.count is not None) == ("tokens", True, True)
    return text


SITUATIONS = {
    "openai": lambda: refused(quoted("This model's maximum")),
    "anthropic": lambda: refused(quoted("prompt is too long")),
    "llama.cpp": lambda: refused(quoted("request (2052")),
    "unknown": warned,
    "tools": lambda: warned(window=8_000, tools=TOOLS),
    "clamped": lambda: warned(window=8_000, reserve=7_000),
    "overflow": overflow,
    "undo": undone_too_late,
    "conflict": conflict,
    "fence": lambda: str(Conflict.make_fence_conflict("main", 3, 4)),
    "busy": busy,
    "locked": locked,
    "away": lambda: opened("/none/talks.db"),
    "damaged": damaged,
    "postgres": lambda: opened("postgresql://127.0.0.1:1/none?connect_timeout=1"),
    "beyond": lambda: opened().recall("log:40"),
    "handle": lambda: opened().recall("message 3"),
    "nothing": lambda: opened().undo(),
    "covered": covered,
    "add": lambda: opened().add(42),
    "policy": lambda: opened(policy="stedy"),
    "role": lambda: opened().add({"role": "assistent", "content": "Hello."}),
    "spent": lambda: str(Spent("session", spent=0.48, would=0.03, limit=0.5, unit="dollars")),
    "failed": lambda: str(ModelFailed("gpt-6.1-sol", Fault("rate", "Rate limit reached"))),
}


def quoted(beginning):
    (found,) = (text for text in QUOTED if text.startswith(beginning))
    return found


def said(situation):
    try:
        return situation()
    except FoldlineError as fault:
        return str(fault)


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sqlite, "_PATIENCE", 1)
    monkeypatch.setattr(connections, "PATIENCE", 0.1)
    for name in [
        one
        for one in os.environ
        if one.startswith(("FOLDLINE_", "TELEGRAM_")) and one != "FOLDLINE_SHARED"
    ]:
        monkeypatch.delenv(name)


def told(text, folder):
    """Without the folder of the test, and with `…` for the lines that libpq adds."""
    first, _, more = text.replace(f"{folder}/", "").partition("\n")
    return f"{first}\n…" if more else first


def test_what_is_quoted_is_what_is_said(tmp_path, capsys):
    """Every situation says what the page quotes, and nothing on the page is left over."""
    heard = {told(said(one), tmp_path) for one in SITUATIONS.values()}
    bot = (ROOT / "src" / "foldline" / "apps" / "bot" / "bot_server.py").read_text()
    assert 'f"You are not allowed to talk with this bot. Your number is {user.id}."' in bot
    heard.add("You are not allowed to talk with this bot. Your number is 123456789.")
    assert run_command(["bot", "--model", "gpt-5"]) == 2
    heard.add(capsys.readouterr().err.removeprefix("foldline: ").strip())
    assert {*QUOTED} == heard


def test_providers_said_that(shared):
    """The refusals that are quoted were recorded."""
    recorded = (shared / "wire_errors.json").read_text()
    for beginning in ("This model's maximum", "prompt is too long"):
        assert quoted(beginning) in recorded


def test_the_gateway_says_what_the_table_says():
    sources = "".join(path.read_text() for path in (ROOT / "src" / "foldline" / "apps" / "gateway").glob("*.py"))  # fmt: skip
    rows = re.findall(r"^\| (\d{3}) `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    assert len(rows) == 20
    for status, code, words in rows:
        assert re.search(rf'Refusal\(\s*{status},\s*"{code}"', sources), code
        assert words.startswith("as under") or words in sources, words


def test_a_client_hears_it(tmp_path):
    """Two of them through a real gateway and SDK."""
    key = create_key(tmp_path / "keys", "ci", tenant="acme")
    with Provider() as provider:
        settings = GatewaySettings(
            upstreams=parse_upstreams([provider.url], {"FOLDLINE_UPSTREAM_KEY": "theirs"}),
            keys=Keys(tmp_path / "keys"),
        )
        with Served(settings, store=":memory:", window=4_000) as gateway:
            for api_key, status in (("fl-" + "0" * 40, 401), (key, 400)):
                with OpenAI(base_url=f"{gateway.url}/v1", api_key=api_key, max_retries=0) as client:
                    answered = client.chat.completions.with_raw_response
                    with pytest.raises(APIStatusError) as raised:
                        answered.create(model="local", messages=[{"role": "user", "content": "Hello."}], extra_headers={"X-Foldline-Session": "n" * 201})  # fmt: skip
                response = raised.value.response
                code = response.headers["x-foldline-error"]
                assert response.status_code == status
                assert f"| {status} `{code}` |" in PAGE
                message = response.json()["error"]["message"]
                assert message.partition(" 200 ")[0] in PAGE

"""The registry of dialects: a new one is a folder and one line, and everything else finds it there."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from google import genai

import foldline
from foldline import dialects
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.dialects import base, openai_chat
from foldline.errors import BadInput, FormatError
from foldline.proxy.conversations import Conversations
from foldline.session.model_facts import build_facts
from foldline.session.sync import run_coroutine
from foldline.stores.open_store import store_at

EVERY = pytest.mark.parametrize("dialect", base.list_dialects(), ids=lambda one: one.name)


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """A dialect of nobody's, as somebody would add it: chat under another name and path."""
    folder = tmp_path / "stub_chat"
    shutil.copytree(Path(openai_chat.__file__).parent, folder)
    for file in folder.glob("*.py"):
        text = file.read_text().replace("dialects.openai_chat", "dialects.stub_chat")
        file.write_text(text.replace('DIALECT = "openai-chat"', 'DIALECT = "stub-chat"'))
    monkeypatch.setattr(dialects, "__path__", [*dialects.__path__, str(tmp_path)])
    monkeypatch.setitem(base.DIALECTS, "stub-chat", base._Row("stub_chat", ("/v1/stub",)))
    yield base.get_dialect("stub-chat")
    for name in [one for one in sys.modules if ".stub_chat" in one]:
        del sys.modules[name]
    base.get_dialect.cache_clear()


def test_a_new_dialect_is_a_folder_and_one_line(stub):
    assert base.find_path_dialect("/v1/stub") is stub
    with foldline.open(":memory:", model="m", dialect="stub-chat") as session:
        session.add("Hello")
        assert session.request()["messages"] == [{"role": "user", "content": "Hello"}]
        asked = session.aio.live.view.held[session.aio.live.view.asked]
        assert asked.dialect == "stub-chat"
    facts = build_facts("m", window=8_000, reserve=None, policy="steady")
    proxy = Conversations(store_at(":memory:"), lambda _model: facts)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
    exchange = run_coroutine(proxy.start_exchange(stub, body))
    assert exchange.relayed
    assert not exchange.unplanned
    run_coroutine(proxy.close())


@EVERY
def test_a_dialect_is_found_by_its_path_its_name_and_its_sdk(dialect):
    for path in base.DIALECTS[dialect.name].paths:
        assert base.find_path_dialect(f"/base{path}") is dialect
    assert base.resolve_named_dialect(dialect.name) is dialect
    assert dialect.vendor in base.list_vendors().values()
    settings = GatewaySettings(upstreams=parse_upstreams(["http://127.0.0.1:1"], {}))
    assert settings.find_upstream(dialect.vendor)
    if dialect.vendor.name == "google":
        api = genai.Client(api_key="none")
    else:
        api = getattr(__import__(dialect.vendor.name), dialect.vendor.title)(api_key="none")
    for name in dialect.sdk_method:
        api = getattr(api, name)
    assert callable(api)


@EVERY
def test_a_session_speaks_what_it_was_opened_with(dialect):
    model = {"anthropic": "claude-sonnet-5", "google": "gemini-3-pro"}.get(
        dialect.vendor.name, "gpt-5"
    )
    with foldline.open(":memory:", model=model, dialect=dialect.name) as session:
        session.add("Hello")
        assert dialect.messages in session.request()


def test_a_switch_to_another_vendor_leaves_the_dialect_and_coming_back_takes_it_up():
    with foldline.open(":memory:", model="gpt-5", dialect="openai-responses") as session:
        session.add("Hello")
        session.switch("claude-sonnet-5")
        assert "messages" in session.request()
        session.switch("gpt-5")
        assert "input" in session.request()
        session.switch("gpt-5", dialect="openai-chat")
        assert "messages" in session.request()


def test_an_unknown_dialect_is_refused():
    with pytest.raises(
        BadInput, match="openai-chat, anthropic, gemini, gemini-interactions, openai-responses"
    ):
        foldline.open(":memory:", model="m", dialect="soap")
    with pytest.raises(FormatError, match="does not speak"):
        base.resolve_named_dialect("soap")


def test_an_sdks_response_object_is_added():
    from openai.types.responses import Response  # noqa: PLC0415 - half a second

    body = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "output": [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Hello yourself.", "annotations": []}]}],
        "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
                  "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
    }  # fmt: skip
    for dialect in (None, "openai-responses"):
        with foldline.open(":memory:", model="gpt-5", dialect=dialect) as session:
            session.add("Hello")
            session.request()
            session.add(Response.model_validate(body))
            assert "Hello yourself." in repr(session)
            assert session.report.source == "reported"


def test_the_items_of_a_turn_are_added_as_one_answer():
    turn = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"},
    ]  # fmt: skip
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4 files"}
    with foldline.open(":memory:", model="gpt-5", dialect="openai-responses") as session:
        session.add(["Look.", *turn, result, {"role": "user", "content": "And?"}])
        assert session.request()["input"] == [
            {"role": "user", "content": "Look."}, *turn, result, {"role": "user", "content": "And?"},
        ]  # fmt: skip

"""By which ids clients' conversations are known."""

import json

import pytest

from foldline.dialects.base import get_dialect
from foldline.proxy.conversations import Conversations
from foldline.proxy.identity import Scope, family_of
from foldline.session.model_facts import build_facts
from foldline.session.sync import run_coroutine
from foldline.stores.sqlite import SqliteStore

CODEX = {"user-agent": "codex_exec/0.169.0 (Linux)", "session-id": "s-1", "thread-id": "s-1"}
CHILD = {
    **CODEX,
    "thread-id": "t-2",
    "x-codex-parent-thread-id": "s-1",
    "x-openai-subagent": "collab_spawn",
}


def find_family(headers):
    return family_of([(name.encode(), value.encode()) for name, value in headers.items()])


def test_a_thread_of_codex_is_a_conversation():
    """A sub-agent has its parent's session; older releases, and any other client, send no thread."""
    assert find_family(CODEX) != find_family(CHILD)
    old = {key: value for key, value in CODEX.items() if key != "thread-id"}
    assert find_family(old) == find_family(CODEX)
    assert not find_family({**CODEX, "user-agent": "curl/8"})


@pytest.mark.parametrize("has_history", [False, True], ids=["alone", "with the parent's history"])
def test_a_sub_agent_of_codex_leaves_its_parents_log_alone(has_history):
    conversations = Conversations(
        SqliteStore(":memory:"),
        lambda model: build_facts(model, window=100_000, reserve=None, policy="steady"),
    )
    dialect = get_dialect("openai-responses")

    def ask(headers, history):
        body = json.dumps({"model": "gpt-6", "input": history}).encode()
        scope = Scope(key="one", family=find_family(headers))
        exchange = run_coroutine(conversations.start_exchange(dialect, body, scope=scope))
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Done, {len(history)}."}]}  # fmt: skip
        exchange.start_response(200)
        exchange.receive_chunk(
            json.dumps({"id": "r", "object": "response", "output": [said]}).encode()
        )
        run_coroutine(exchange.end_response())
        history.append(said)
        return exchange.session

    parent = [{"role": "user", "content": "Look at the parser."}]
    main = ask(CODEX, parent)
    parent.append({"role": "user", "content": "Let two others help."})
    assert ask(CODEX, parent) == main
    child = [*parent] if has_history else []
    child.append({"role": "user", "content": "You are a helper: read the lexer."})
    helper = ask(CHILD, child)
    assert helper != main
    parent.append({"role": "user", "content": "And now the lexer."})
    assert ask(CODEX, parent) == main
    child.append({"role": "user", "content": "Go on."})
    assert ask(CHILD, child) == helper

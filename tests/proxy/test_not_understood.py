"""What a client sends that nobody here understands, and what later requests depend on, holds its place."""

import json

import pytest

from foldline.dialects.base import get_dialect
from foldline.errors import BrokenView, StoreFailed
from foldline.proxy.conversations import Conversations
from foldline.proxy.identity import Scope
from foldline.session import planning
from foldline.session.model_facts import build_facts
from foldline.session.sync import run_coroutine
from foldline.stores.sqlite import SqliteStore

WORDS = "the log says shard {} is late, and there is nothing else to report. "
SCOPE = Scope(key="one")
ANSWER = {
    "anthropic": {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}]},
    "openai-chat": {"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]},
    "openai-responses": {"id": "r", "object": "response", "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}]},
}  # fmt: skip
REFERENCE = {"type": "tool_reference", "tool_name": "Deferred"}
TOOLS = [
    {"name": "ToolSearch", "input_schema": {"type": "object"}},
    {"name": "Deferred", "input_schema": {"type": "object"}, "defer_loading": True},
]
EFFORT = {"role": "system", "content": [], "output_config": {"effort": "high"}}


class Talk:
    """A client that repeats its history, and what goes upstream for it."""

    def __init__(self, dialect="anthropic", *, window=8_000, **fields):
        self.dialect, self.history = get_dialect(dialect), []
        self.fields = {"model": "m", "tools": TOOLS, **fields}
        if dialect == "anthropic":
            self.fields["max_tokens"] = 1_000
        self.conversations = Conversations(
            SqliteStore(":memory:"),
            lambda model: build_facts(model, window=window, reserve=None, policy="steady"),
        )

    def encode(self):
        """The body of the next request."""
        return json.dumps({**self.fields, self.dialect.messages: self.history}).encode()

    def ask(self):
        """Send the history; the exchange, whose answer is in the history."""
        exchange = run_coroutine(
            self.conversations.start_exchange(self.dialect, self.encode(), scope=SCOPE)
        )
        answer = ANSWER[self.dialect.name]
        exchange.start_response(200)
        exchange.receive_chunk(json.dumps(answer).encode())
        run_coroutine(exchange.end_response())
        self.history += [json.loads(raw) for raw in self.dialect.encode_answer(answer)]
        self.sent = json.loads(exchange.body)[self.dialect.messages]
        return exchange

    def say(self, number, *more):
        """Say something long, and perhaps more behind it."""
        self.history += [{"role": "user", "content": WORDS.format(number) * 60}, *more]
        return self.ask()

    def find(self, **fields):
        """The messages that went upstream last and have some fields."""
        return [one for one in self.sent if fields.items() <= one.items()]


@pytest.mark.parametrize("missing", [{"content": []}, {"content": ""}, {"content": None}, {}])
def test_a_message_without_words_is_no_fault(missing):
    """It stands beside folds, and is carried where it is folded itself: it sets the effort."""
    talk = Talk()
    empty = {"role": "system", **missing, "output_config": {"effort": "high"}}
    folded = 0
    for turn in range(20):
        exchange = talk.say(turn, *([empty] if turn == 6 else []))
        assert exchange.unplanned == ""
        assert exchange.report.total < 8_000
        folded += "fold" in exchange.patches
        if turn >= 6:
            assert talk.find(role="system") == [empty]
            place = talk.sent.index(empty)
            assert talk.sent[place - 1]["role"] == "user"
            assert place + 1 == len(talk.sent) or talk.sent[place + 1]["role"] == "assistant"
    assert folded > 10


@pytest.mark.parametrize("second", range(1, 12))
def test_controls_stay_in_the_clients_order(second):
    """Carried ones stand before the client's own: the newest says what holds."""
    talk = Talk()
    low = {**EFFORT, "output_config": {"effort": "low"}}
    folded = 0
    for turn in range(16):
        exchange = talk.say(turn, *{0: [EFFORT], second: [low]}.get(turn, []))
        folded += "fold" in exchange.patches
        assert talk.find(role="system") == [EFFORT, low][: 1 + (turn >= second)]
    assert folded > 5


@pytest.mark.parametrize("kind", ["web_search", "tool_search_tool"])
@pytest.mark.parametrize("window", [2_500, 4_000, 6_000])
def test_no_fold_ends_where_a_turn_has_paused(kind, window):
    """A result of the provider's own tool begins the next message; its call stays before it."""
    talk = Talk(window=window, tools=TOOLS)
    content = (
        {"type": "tool_search_tool_search_result", "tool_references": [REFERENCE]}
        if "tool_s" in kind
        else []
    )
    folded = 0
    for turn in range(24):
        name = f"srvtoolu_{turn}"
        call = {"type": "server_tool_use", "id": name, "name": kind, "input": {}}
        result = {
            "type": f"{kind}_tool_result".replace("tool_tool", "tool"),
            "tool_use_id": name,
            "content": content,
        }
        paused = [
            {"role": "assistant", "content": [call]},
            {"role": "assistant", "content": [result]},
        ]
        exchange = talk.say(turn, *paused, {"role": "user", "content": "and now?"})
        folded += "fold" in exchange.patches
        blocks = [one for said in talk.sent for one in said["content"] if isinstance(one, dict)]
        calls = {one["id"] for one in blocks if one["type"] == "server_tool_use"}
        assert {one["tool_use_id"] for one in blocks if "tool_use_id" in one} <= calls
    assert folded


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
def test_a_deferred_tool_takes_no_room(dialect):
    """The provider leaves it out of the prompt."""
    shape = {
        "type": "object",
        "properties": {"words": {"type": "string", "description": WORDS * 50}},
    }
    named = {
        "anthropic": {"input_schema": shape},
        "openai-responses": {"type": "function", "parameters": shape},
    }
    tools = [{"name": f"Rare{n}", "defer_loading": True, **named[dialect]} for n in range(20)]
    talk = Talk(dialect, tools=tools)
    assert talk.say(0).report.parts["tools"] == 0
    talk.fields["tools"] = [{**tool, "defer_loading": False} for tool in tools[:2]]
    assert talk.say(1).report.parts["tools"] > 1_000


@pytest.mark.parametrize("dialect", ANSWER)
def test_a_message_of_an_unknown_role_is_carried(dialect):
    talk = Talk(dialect, tools=[])
    odd = {"role": "critic", "content": "Is that so?", "weight": 1.50}
    for turn in range(16):
        exchange = talk.say(turn, *([odd] if turn == 2 else []))
        assert exchange.unplanned == ""
        assert talk.find(role="critic") == [odd] * (turn >= 2)
    assert "fold" in exchange.patches
    assert talk.sent.index(odd) < 3


def load_tool(talk):
    """The client looks a deferred tool up, and the model sees it from here on."""
    call = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"query": "x"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [REFERENCE]}
    talk.history += [
        {"role": "user", "content": "Load it."},
        {"role": "assistant", "content": [{"type": "text", "text": "I look it up."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "Tool loaded."}]},
    ]
    talk.ask()
    return call, result


def test_a_deferred_tool_stays_in_sight():
    """A pair that shows it stands behind the handoff, with nothing else of what was said there."""
    talk = Talk()
    talk.say(0)
    call, result = load_tool(talk)
    for turn in range(1, 16):
        talk.say(turn)
    head, asked, answered = talk.sent[:3]
    assert head["content"].startswith("[handoff: ")
    assert asked == {"role": "assistant", "content": [call]}
    assert answered == {"role": "user", "content": [result]}
    said = head["content"].partition("# The user said")[2].partition("\n#")[0]
    assert "Load it." in said
    assert "Tool loaded." not in said


def test_a_tool_that_is_no_longer_deferred_is_not_shown_again():
    talk = Talk()
    talk.say(0)
    load_tool(talk)
    talk.fields["tools"] = [{key: one[key] for key in ("name", "input_schema")} for one in TOOLS]
    for turn in range(1, 12):
        talk.say(turn)
    assert "tool_use" not in json.dumps(talk.sent)


def test_the_thinking_of_a_carried_call_stays_where_the_api_wants_it():
    """With manual thinking the last answer of a loop begins with thinking; else it is dropped."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "x" * 40}
    for kind, kept in (("enabled", True), ("adaptive", False)):
        talk = Talk(thinking={"type": kind, "budget_tokens": 1_024}, max_tokens=2_000)
        load_tool(talk)
        talk.history[1]["content"].insert(0, thinking)
        run = [json.dumps(one).encode() for one in talk.history[:3]]
        found = talk.dialect.carry_state(
            run, [2], json.dumps(TOOLS).encode(), thinks=kind == "enabled"
        )
        assert ("thinking" in found.behind[0].decode()) == kept


def test_what_a_server_found_and_files_of_a_container_are_carried():
    talk = Talk()
    server = [
        {"type": "server_tool_use", "id": "s1", "name": "tool_search_tool_regex", "input": {"query": "x"}},
        {"type": "tool_search_tool_result", "tool_use_id": "s1",
         "content": {"type": "tool_search_tool_search_result", "tool_references": [REFERENCE]}},
    ]  # fmt: skip
    upload = {"type": "container_upload", "file_id": "file_1"}
    talk.history = [
        {"role": "user", "content": [{"type": "text", "text": "Here."}, upload]},
        {"role": "assistant", "content": [*server, {"type": "text", "text": "Found."}]},
    ]
    for turn in range(14):
        talk.say(turn)
    assert talk.sent[1:3] == [
        {"role": "user", "content": [upload]},
        {"role": "assistant", "content": server},
    ]


def test_items_of_responses_that_later_requests_depend_on_are_carried():
    talk = Talk("openai-responses", tools=[])
    tool = {"type": "function", "name": "found", "parameters": {"type": "object"}}
    state = [
        {"type": "additional_tools", "role": "developer", "tools": [tool]},
        {"type": "configuration_update", "reasoning": {"effort": "high"}},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {"type": "tool_search_call", "id": "ts_1", "call_id": "c1", "execution": "client", "arguments": {}, "status": "completed"},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [tool], "status": "completed"},
    ]  # fmt: skip
    run = [
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_1", "outputs": None, "status": "completed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ran it."}]},
    ]  # fmt: skip
    talk.history = [{"role": "user", "content": "Go."}, *state, *run]
    for turn in range(14):
        talk.say(turn)
    assert talk.sent[0]["content"].startswith("[handoff: ")
    assert talk.sent[1:8] == [*state, *run[:2]]


def test_a_compaction_of_the_provider_is_never_folded():
    talk = Talk()
    block = {"type": "compaction", "content": "What was before.", "signature": "s"}
    talk.history = [{"role": "assistant", "content": [block]}]
    for turn in range(14):
        exchange = talk.say(turn)
    assert "fold" in exchange.patches
    assert talk.sent[0]["content"] == [block]


def break_plans(monkeypatch):
    """No edit can be made from here on."""

    async def fails(*_args, **_kwargs):
        raise BrokenView("an item shows nothing")

    monkeypatch.setattr(planning, "plan_next_request", fails)


def begin_edited(talk):
    """Go on until something is folded."""
    for turn in range(12):
        exchange = talk.say(turn)
    assert "fold" in exchange.patches


def test_without_a_plan_a_request_goes_out_with_the_edits_in_force(monkeypatch):
    talk = Talk()
    begin_edited(talk)
    break_plans(monkeypatch)
    for turn in range(2):
        exchange = talk.say(f"late {turn}")
        assert exchange.unplanned == "brokenview"
        assert "fold" in exchange.patches
        assert len(exchange.body) < 0.6 * len(talk.encode())
    assert exchange.asked >= 0  # it is in the log, and the next one has a plan again
    monkeypatch.undo()
    assert talk.say("again").unplanned == ""


@pytest.mark.parametrize("away", ["append", "read"])
def test_without_the_store_a_request_goes_out_with_the_edits_in_force(away, monkeypatch):
    talk = Talk()
    begin_edited(talk)

    async def fails(*_args, **_kwargs):
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(talk.conversations.store, away, fails)
    for turn in range(2):
        talk.history.append({"role": "user", "content": f"And now {turn}?"})
        if away == "append":
            with pytest.raises(StoreFailed):
                run_coroutine(
                    talk.conversations.start_exchange(talk.dialect, talk.encode(), scope=SCOPE)
                )
        exchange = run_coroutine(
            talk.conversations.start_unrecorded(talk.dialect, talk.encode(), why="x", scope=SCOPE)
        )
        assert exchange.unplanned == "x"
        assert {*exchange.patches} == {"fold"}
        assert len(exchange.body) < 0.6 * len(talk.encode())
        assert f"And now {turn}?" in exchange.body.decode()
        other = Scope(key="two")
        assert (
            run_coroutine(
                talk.conversations.start_unrecorded(
                    talk.dialect, talk.encode(), why="x", scope=other
                )
            )
            is None
        )
        exchange.mark_unanswered()
    monkeypatch.undo()
    assert talk.say("again").unplanned == ""

"""The OpenAI Responses dialect: there and back."""

import gzip
import json
from contextlib import suppress
from dataclasses import replace

import archive
import jury
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_json import texts
from openai.types.responses import ResponseInputParam, ToolParam
from pydantic import TypeAdapter

from foldline.core import rules
from foldline.core.item import Item
from foldline.core.log import (
    Instructed,
    ModelSaid,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Native, Text, Thought, Tool
from foldline.core.request import Request, render
from foldline.dialects import anthropic, openai_chat
from foldline.dialects import openai_responses as wire
from foldline.dialects.base import get_dialect
from foldline.dialects.openai_responses.dialect import DIALECT as RESPONSES
from foldline.dialects.openai_responses.items import kind_of
from foldline.dialects.openai_responses.write import own_id, write_items
from foldline.errors import BadInput, WireError
from foldline.proxy.client_request import read_request
from foldline.testing import Conversation, view_of
from foldline.testing.strategies import conversations

ADAPTERS = {"input": TypeAdapter(ResponseInputParam), "tools": TypeAdapter(list[ToolParam])}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
SECRET = "gAAA" * 2_000
ITEMS = [
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"},
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "plan"}], "encrypted_content": SECRET},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
        "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "w", "arguments": '{"c":"Oslo"}', "status": "completed"},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "v", "input": "free text"},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "4°"},
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
    {"role": "assistant", "content": "Four degrees."},
    {"role": "user", "content": "Thanks. Look it up."},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Oslo"}},
    {"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Rain.", "annotations": [
            {"type": "url_citation", "start_index": 0, "end_index": 4, "title": "t", "url": "https://a.b"}]}]},
]  # fmt: skip


def blocks_of(view):
    return [json.loads(block) for block in wire.encode_blocks(render(view))]


def there_and_back(items, *, model="m"):
    view = view_of([Opened(model), *wire.parse_items(items)])
    rules.check_view(view)
    return blocks_of(view)


def refused(request):
    """What either judge finds in a request, as it is encoded."""
    body = json.loads(wire.encode_request(request, {}))
    given = {name: body[name] for name in ADAPTERS if name in body}
    ours = wire.list_faults(body["input"], tools=body.get("tools", ())) if body["input"] else []
    return [*ours, *jury.mistyped(given, ADAPTERS)]


def closed(view):
    view = view.copy()
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    return view


# There and back


def test_items_come_back_as_they_were():
    """Law 2: reasoning, phases, annotations, hosted tools and pictures included."""
    assert there_and_back(ITEMS) == ITEMS


def test_a_turn_is_one_answer():
    events = wire.parse_items(ITEMS)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Instructed", "UserSaid", "ModelSaid", "ToolReturned", "ToolReturned", "ModelSaid", "UserSaid", "ModelSaid"]  # fmt: skip
    assert events[2].parts == (
        Thought("plan", SECRET, free=True),
        Text("Looking."),
        Call("call_1", "w", '{"c":"Oslo"}'),
        Call("call_2", "v", "free text"),
    )
    assert events[3].parts == (Text("4°"), Media("image", mime="image/png", base64="iVBORw0KGgo="))
    assert events[7].parts == (Gap("[web_search_call]"), Text("Rain."))


def test_native_is_kept_only_where_it_is_needed():
    natives = [bool(event.native) for event in wire.parse_items(ITEMS)]
    assert natives == [True, True, True, False, True, False, False, True]


def test_sealed_texts_are_not_counted_as_words():
    said = wire.parse_items(ITEMS)[2]
    assert "gAAA" not in said.native.body
    item = view_of([said]).items[0]
    assert item.tokens < 300
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": SECRET}
    said = wire.parse_message(compaction)[0]
    assert said.parts == (Thought("", SECRET, free=True), Gap("[compaction]"))
    assert "gAAA" not in said.native.body
    assert there_and_back([ITEMS[9], compaction, ITEMS[9]]) == [ITEMS[9], compaction, ITEMS[9]]


def test_a_picture_that_the_provider_made_is_media():
    made = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBO" * 5_000, "output_format": "webp"}  # fmt: skip
    empty = {"type": "image_generation_call", "id": "ig_2", "status": "failed", "result": None}
    said = wire.parse_items([made, empty])[0]
    assert said.parts == (
        Media("image", mime="image/webp", base64="iVBO" * 5_000),
        Gap("[image_generation_call]"),
    )
    assert len(said.native.body) < 300
    assert there_and_back([ITEMS[9], made, empty]) == [ITEMS[9], made, empty]


def test_a_plain_text_is_an_input():
    assert wire.parse_items("hi") == [wire.make_user_event("hi")]


def test_every_item_has_an_owner():
    kinds = {
        "user": [{"role": "user"}, {"type": "message", "role": "user"}],
        "system": [{"role": "system"}, {"type": "message", "role": "developer"}],
        "model": [{"role": "assistant"}, {"type": "reasoning"}, {"type": "web_search_call"}, {"type": "mcp_list_tools"},
                  {"type": "mcp_approval_request"}, {"type": "program"}, {"type": "made_up"}],
        "result": [{"type": "function_call_output"}, {"type": "program_output"}, {"type": "tool_search_output"},
                   {"type": "mcp_approval_response"}, {"type": "made_up_output"}],
        "tools": [{"type": "additional_tools"}, {"type": "configuration_update"}],
        "compaction": [{"type": "compaction"}],
        "trigger": [{"type": "compaction_trigger"}],
        "reference": [{"type": "item_reference"}, {"id": "msg_1"}],
        "unknown": [{}, {"type": 5}, {"type": ""}, {"role": "oracle"}, {"role": ["user"]}, {"type": "message"}],
    }  # fmt: skip
    assert {kind: [kind_of(item) for item in items] for kind, items in kinds.items()} == {
        kind: [kind] * len(items) for kind, items in kinds.items()
    }


def call(kind, call_id="c", **fields):
    return {"type": kind, "call_id": call_id, **fields}


SHELL = call("shell_call", "s", action={"commands": ["ls"]}, status="completed", id="sh_1")
SHELL_OUT = call("shell_call_output", "s", output=[{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}}])  # fmt: skip
FUNCTION = call("function_call", "f", name="w", arguments="{}")
FUNCTION_OUT = call("function_call_output", "f", output="done")
SAID = {"role": "assistant", "content": "Well."}
ASKED = {"role": "user", "content": "hi"}
PAIRS = {
    "shell": [SHELL, SHELL_OUT],
    "local shell": [
        call("local_shell_call", "l", id="lsh_1", status="completed", action={"type": "exec", "command": ["ls"], "env": {}}),
        {"type": "local_shell_call_output", "id": "l", "output": "a"},
    ],
    "patch": [
        call("apply_patch_call", "p", status="completed", operation={"type": "delete_file", "path": "a"}),
        call("apply_patch_call_output", "p", status="failed", output="no such file"),
    ],
    "computer": [
        call("computer_call", "k", id="cu_1", status="completed", pending_safety_checks=[], action={"type": "screenshot"}),
        call("computer_call_output", "k", output={"type": "computer_screenshot", "image_url": PICTURE}),
    ],
    "search": [call("tool_search_call", "t", arguments={"q": 1}, execution="client"), call("tool_search_output", "t", tools=[])],
    "approval": [
        {"type": "mcp_approval_request", "id": "mcpr_1", "arguments": "{}", "name": "n", "server_label": "s"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ],
    "new": [call("quantum_call", "q", spin=1), call("quantum_call_output", "q", result=[2])],
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_calls_of_every_kind_are_answered(name):
    """A client answers these, so a view may clip and mask what they gave back."""
    pair = PAIRS[name]
    items = [ASKED, *pair, SAID]
    called, returned = wire.parse_items(pair)
    assert called.parts[0].id == returned.call_id
    assert called.parts[0].name == pair[0]["type"]
    assert there_and_back(items) == items
    # Without its output, a call is answered in words, or lowered to a function's.
    log = [Opened("m"), wire.make_user_event("hi"), called]
    own = [item["type"] for item in pair] if name in ("shell", "local shell", "patch") else None
    for events in (log, [*log, msgspec.structs.replace(returned, native=None)]):
        request = render(closed(view_of(events)))
        assert refused(request) == []
        kinds = [json.loads(block).get("type") for block in wire.encode_blocks(request)]
        assert kinds == [None, *(own or ["function_call", "function_call_output"])]
    # Without its own JSON, a call is written again where its neutral form says all.
    request = render(view_of([*log[:2], msgspec.structs.replace(called, native=None), returned]))
    assert refused(request) == []
    kinds = [json.loads(block).get("type") for block in wire.encode_blocks(request)]
    own = [item["type"] for item in pair] if name in ("shell", "patch") else None
    assert kinds == [None, *(own or ["function_call", "function_call_output"])]


def test_the_words_of_outputs():
    words = [wire.parse_items(PAIRS[name])[1].parts for name in ("shell", "patch", "search", "new")]
    assert words == [
        (Text("a\nb\n[exit code 1]"),),
        (Text("no such file"),),
        (Text('{"tools":[]}'),),
        (Text('{"result":[2]}'),),
    ]
    assert not any(wire.parse_items(PAIRS[name])[1].ok for name in ("shell", "patch"))


@pytest.mark.parametrize(
    "items",
    [
        [ASKED, FUNCTION, SHELL, SHELL_OUT, SAID, FUNCTION_OUT, SAID],
        [ASKED, {"type": "program", "id": "prog_1", "call_id": "p", "code": "x", "fingerprint": "f"}, FUNCTION, FUNCTION_OUT,
         {**FUNCTION, "call_id": "g"}, {**FUNCTION_OUT, "call_id": "g"},
         {"type": "program_output", "id": "po_1", "call_id": "p", "result": "4", "status": "completed"}, SAID],
        [ASKED, {"type": "tool_search_call", "arguments": {}, "execution": "server"}, {"type": "tool_search_output", "tools": []}, SAID],
        [ASKED, {"type": "item_reference", "id": "fc_9"}, FUNCTION_OUT, SAID, ASKED],
        [ASKED, {"type": "quantum", "call_id": "q"}, {"type": "quantum_output", "call_id": "q"}, SAID],
        [ASKED, {"type": "compaction", "encrypted_content": "x"}, SAID, {"type": "compaction_trigger"}],
        [{"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]}, {"role": "system", "content": "S"},
         ASKED, SAID, {"type": "configuration_update", "reasoning": {"effort": "low"}}, {"role": "developer", "content": "T"}, ASKED],
    ],
    ids=["open calls", "program", "search", "reference", "new", "trigger", "developer"],
)  # fmt: skip
def test_what_stays_together_comes_back(items):
    """Outputs between a model's items are its own, or belong to calls that it did not wait for."""
    assert there_and_back(items) == items


def test_a_trigger_is_sent_only_at_the_end():
    trigger = {"type": "compaction_trigger"}
    assert there_and_back([ASKED, trigger]) == [ASKED, trigger]
    assert there_and_back([ASKED, trigger, SAID]) == [ASKED, SAID]


def test_tools_of_an_item_are_not_declared_twice():
    own = {"type": "function", "name": "a", "parameters": {}, "strict": True}
    item = {"type": "additional_tools", "role": "developer", "tools": [own]}
    told = Instructed((), (Tool("b"),))
    events = wire.parse_items([item, ASKED], instructed=told)
    assert [tool.name for tool in events[0].tools] == ["b", "a"]
    body = json.loads(wire.encode_request(render(view_of(events)), {}))
    assert [tool["name"] for tool in body["tools"]] == ["b"]
    assert body["input"][0] == item


# Items as they are generated: everything that the SDK's types allow us


def numbered(prefix, counter):
    counter[0] += 1
    return f"{prefix}_{counter[0]}"


words = texts.filter(str.strip)
pictures = st.sampled_from([
    {"type": "input_image", "image_url": PICTURE, "detail": "low"},
    {"type": "input_image", "image_url": "https://a.b/c.png", "detail": "auto"},
    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
    {"type": "input_file", "file_id": "file_1"},
    {"type": "input_image", "file_id": "file_2", "detail": "high"},
])  # fmt: skip
input_texts = st.builds(lambda text: {"type": "input_text", "text": text}, words)
contents = words | st.lists(input_texts | pictures, max_size=2).flatmap(
    lambda rest: input_texts.map(lambda first: [first, *rest])
)
statuses = st.sampled_from([{}, {"status": "completed"}])


@st.composite
def turns(draw, counter):
    """A model's turn and the outputs of its calls."""
    made, outputs = [], []
    for _ in range(draw(st.integers(0, 2))):
        sealed = draw(
            st.sampled_from([{}, {"encrypted_content": None}, {"encrypted_content": "s"}])
        )
        if sealed.get("encrypted_content"):
            sealed = {"encrypted_content": numbered("gAAA", counter)}
        summary = [
            {"type": "summary_text", "text": text} for text in draw(st.lists(texts, max_size=2))
        ]
        made.append(
            {"type": "reasoning", "id": numbered("rs", counter), "summary": summary, **sealed}
        )
    for _ in range(draw(st.integers(1, 3))):
        call_id = numbered("call", counter)
        match draw(st.integers(0, 5)):
            case 0:
                made.append({"role": "assistant", "content": draw(words)})
            case 1:
                content = [
                    {"type": "output_text", "text": text, "annotations": []}
                    for text in draw(st.lists(words, min_size=1, max_size=2))
                ]
                phase = draw(st.sampled_from([{}, {"phase": "commentary"}]))
                made.append(
                    {
                        "type": "message",
                        "id": numbered("msg", counter),
                        "role": "assistant",
                        "status": "completed",
                        "content": content,
                        **phase,
                    }
                )
            case 2:
                fields = draw(statuses) | (
                    {"id": numbered("fc", counter)} if draw(st.booleans()) else {}
                )
                made.append(
                    {
                        "type": "function_call",
                        "call_id": call_id,
                        "name": "run",
                        "arguments": draw(texts),
                        **fields,
                    }
                )
                outputs.append(
                    {
                        "type": "function_call_output",
                        "call_id": call_id,
                        "output": draw(contents),
                        **draw(statuses),
                    }
                )
            case 3:
                made.append(
                    {
                        "type": "custom_tool_call",
                        "call_id": call_id,
                        "name": "run",
                        "input": draw(texts),
                    }
                )
                outputs.append(
                    {"type": "custom_tool_call_output", "call_id": call_id, "output": draw(words)}
                )
            case 4:
                made.append(
                    {
                        "type": "web_search_call",
                        "id": numbered("ws", counter),
                        "status": "completed",
                        "action": {"type": "search", "query": draw(texts)},
                    }
                )
            case _:
                made.append({**SHELL, "call_id": call_id, "id": numbered("sh", counter)})
                outputs.append({**SHELL_OUT, "call_id": call_id})
    return made, draw(st.permutations(outputs))  # fmt: skip


@st.composite
def inputs(draw):
    """A whole input, and its turns."""
    counter, items, answers = [0], [], []
    items += [
        {"role": "developer", "content": draw(contents)} for _ in range(draw(st.integers(0, 2)))
    ]
    for _ in range(draw(st.integers(1, 4))):
        form = draw(st.sampled_from([{}, {"type": "message"}]))
        items.append(
            {
                **form,
                "role": draw(st.sampled_from(["user", "user", "system"])),
                "content": draw(contents),
            }
        )
        made, outputs = draw(turns(counter))
        answers.append(made)
        items += [*made, *outputs]
    return items, answers  # fmt: skip


@given(inputs())
def test_every_input_comes_back(drawn):
    """Law 2: nothing is lost, and the second encoding has the bytes of the first."""
    items, _ = drawn
    assert wire.list_faults(items) == []
    assert jury.mistyped({"input": items}, ADAPTERS) == []
    assert there_and_back(items) == items
    log = [msgspec.json.encode(event) for event in wire.parse_items(items)]
    request = render(view_of(wire.parse_items(there_and_back(items))))
    assert [msgspec.json.encode(event) for event in wire.parse_items(there_and_back(items))] == log
    assert wire.encode_request(request, {}) == wire.encode_request(
        render(view_of(wire.parse_items(items))), {}
    )


@given(inputs(), st.data())
def test_a_request_that_grew_begins_with_the_one_before(drawn, data):
    items, _ = drawn
    events = wire.parse_items(items)
    at = data.draw(st.integers(1, len(events)))
    before, after = view_of(events[:at]), view_of(events)
    if not before.open and before.instructions == after.instructions:
        head = wire.encode_request(render(before), {"store": False})[: -len("]}")]
        assert wire.encode_request(render(after), {"store": False}).startswith(head)


@given(inputs(), st.data())
def test_whatever_is_left_out_the_rest_is_valid(drawn, data):
    """Thoughts, own JSON and outputs that a view leaves out, in any combination."""
    items, _ = drawn
    view = view_of([Opened("m"), *wire.parse_items(items)])
    shown = []
    for item in view.items:
        native, parts = item.native, item.parts
        match data.draw(st.integers(0, 3)):
            case 1:
                native = None
            case 2:
                parts = tuple(part for part in parts if not isinstance(part, Thought))
            case 3 if item.role == "result":
                native, parts = None, (Text("[masked]"),)
            case _:
                pass
        shown.append(msgspec.structs.replace(item, native=native, parts=parts))
    doubled = [*shown, *shown] if data.draw(st.booleans()) else shown
    request = replace(render(view), items=tuple(doubled))
    assert refused(request) == []
    assert refused(replace(request, native=())) == []


@given(inputs(), st.data())
def test_edited_sessions_are_valid(drawn, data):
    items, _ = drawn
    talk = Conversation("m")
    talk.add(*wire.parse_items(items))
    for _ in range(data.draw(st.integers(1, 3))):
        results = [item.seq for item in talk.view.items if item.role == "result"]
        cuts = rules.cut_points(talk.view)
        match data.draw(st.integers(0, 2)):
            case 0 if cuts:
                talk.fold(data.draw(st.sampled_from(cuts)))
            case 1 if results:
                talk.mask([data.draw(st.sampled_from(results))])
            case _:
                seqs = [item.seq for item in talk.view.items if item.role in ("user", "model")]
                talk.mask([data.draw(st.sampled_from(seqs))], exclude=True) if seqs else None
    assert refused(render(closed(talk.view))) == []


@given(conversations())
def test_both_judges_take_every_conversation(talk):
    """However broken the log, whatever was folded, masked, excluded and undone."""
    assert refused(render(closed(talk.view))) == []


# Recorded sessions


def test_a_recorded_session_of_codex_comes_back(shared):
    with gzip.open(shared / "data" / "tracelab_codex_trace.json.gz", "rt") as file:
        records = [json.loads(one) for one in archive._SEPARATOR.split(file.read())[1:]]
    items = [record["payload"] for record in records if record["type"] == "response_item"]
    assert len(items) == 42
    assert wire.list_faults(items) == []
    assert there_and_back(items) == items


@pytest.mark.parametrize("source", archive.FILES)
def test_recorded_sessions_go_on_here(shared, source):
    """Recorded in three dialects; the first ten of each."""
    for session in archive.sessions(shared, source)[:10]:
        request = render(closed(view_of(session.events)))
        assert refused(request) == []


# Switching


CHAT = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}]},
    {"role": "assistant", "content": "x", "new": 1, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "no json"}},
        {"id": "c2", "type": "custom", "custom": {"name": "v", "input": "text"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "1"}, {"role": "tool", "tool_call_id": "c2", "content": "2"},
    {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
    {"role": "function", "name": "old", "content": "3"},
]  # fmt: skip
CLAUDE = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "t" * 70, "name": "w", "input": {"a": 1}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t" * 70, "is_error": True, "content": [
            {"type": "text", "text": "no"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}]},
        {"type": "text", "text": "and?"}]},
]  # fmt: skip


def test_a_session_of_chat_goes_on_here():
    view = view_of([Opened("m"), *map(openai_chat.parse_message, CHAT)])
    assert refused(render(view)) == []
    body = json.loads(wire.encode_request(render(view), {"store": False}))
    assert list(body) == ["model", "store", "instructions", "input"]
    assert body["instructions"] == "S"
    assert body["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]},
        {"role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "w", "arguments": "no json"},
        {"type": "function_call", "call_id": "c2", "name": "v", "arguments": "text"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
        {"type": "function_call", "call_id": "function:old", "name": "old", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "function:old", "output": "3"},
    ]  # fmt: skip


def test_a_session_of_claude_goes_on_here():
    events = [event for message in CLAUDE for event in anthropic.parse_message(message)]
    view = view_of([Opened("m"), *events])
    assert refused(render(view)) == []
    short = own_id("t" * 70)
    assert len(short) == 64
    assert blocks_of(view)[2:4] == [
        {"type": "function_call", "call_id": short, "name": "w", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": short, "output": [
            {"type": "input_text", "text": "Error: no"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "auto"}]},
    ]  # fmt: skip


@pytest.mark.parametrize("other", [openai_chat, anthropic], ids=lambda one: one.DIALECT)
def test_a_session_of_here_goes_on_elsewhere(other):
    view = view_of([Opened("m"), *wire.parse_items([*ITEMS, ASKED])])
    body = json.loads(other.encode_request(render(view), {}))
    assert other.list_faults(body["messages"]) == []
    assert "gAAA" not in json.dumps(body)


# Reasoning and ids


def test_reasoning_goes_only_with_the_ids_of_what_followed_it():
    item = view_of(wire.parse_items(ITEMS)).items[1]
    bare = tuple(part for part in item.parts if not isinstance(part, Thought))
    request = Request("m", (), (), (msgspec.structs.replace(item, parts=bare),))
    assert [json.loads(block) for block in wire.encode_blocks(request)] == [
        {"role": "assistant", "content": "Looking.", "phase": "commentary"},
        {"type": "function_call", "call_id": "call_1", "name": "w", "arguments": '{"c":"Oslo"}'},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "v", "input": "free text"},
    ]


def test_other_programs_items_keep_their_sealed_texts():
    """The importer of Codex keeps whole items, and no thought for what it cannot read."""
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": "e1"}
    blob = {"type": "compaction", "encrypted_content": "e2"}
    native = Native(wire.DIALECT, json.dumps([blob, reasoning, SAID]))
    said = ModelSaid((Gap("[compaction]"), Thought("", "e1"), Text("Well.")), native=native)
    assert blocks_of(view_of([said])) == [blob, reasoning, SAID]


def test_ids_are_unique_in_a_request():
    turn = [ITEMS[2], ITEMS[4], ITEMS[6]]
    written = there_and_back([ASKED, *turn, ASKED, *turn])
    assert written[:5] == [ASKED, *turn, ASKED]
    assert [item["type"] for item in written[5:]] == ["function_call", "function_call_output"]
    assert written[5]["call_id"] == written[6]["call_id"] != "call_1"
    assert "id" not in written[5]
    assert wire.list_faults(written) == []


def test_an_id_of_an_input_is_written_once():
    said = {"type": "message", "id": "msg_9", "role": "user", "content": "hi"}
    bare = {key: value for key, value in said.items() if key != "id"}
    assert there_and_back([said, SAID, said]) == [said, SAID, bare]
    output = {**FUNCTION_OUT, "id": "fc_7"}
    again = [{**FUNCTION, "call_id": "g"}, {**output, "call_id": "g"}]
    written = there_and_back([ASKED, FUNCTION, output, ASKED, *again])
    assert [item.get("id") for item in written] == [None, None, "fc_7", None, None, None]


def test_what_a_lowered_answer_keeps():
    """A compaction item stays; an output whose call only a reference names becomes words."""
    blob = {"type": "compaction", "encrypted_content": "e"}
    view = view_of(
        wire.parse_items([ASKED, {**blob, "id": "cmp_1"}, ITEMS[2], PAIRS["computer"][0]])
    )
    kinds = [one.get("type") for one in blocks_of(closed(view))]
    assert kinds == [None, "compaction", "function_call", "function_call_output"]
    turn = [{"type": "item_reference", "id": "fc_9"}, FUNCTION_OUT, SAID]
    written = there_and_back([ASKED, *turn, ASKED, *turn])
    assert written[:5] == [ASKED, *turn, ASKED]
    assert written[5:] == [
        {"role": "assistant", "content": "[item_reference]"},
        {"role": "assistant", "content": "[function_call_output]\ndone"},
        SAID,
    ]


def test_a_call_id_that_is_too_long_is_shortened_in_both():
    long = "call_" + "x" * 80
    items = [ASKED, {**ITEMS[4], "call_id": long}, {**FUNCTION_OUT, "call_id": long, "status": "completed"}]  # fmt: skip
    written = there_and_back(items)
    assert [item.get("call_id") for item in written] == [None, own_id(long), own_id(long)]
    assert written[1]["id"] == "fc_1"
    assert wire.list_faults(written) == []


def test_a_call_without_a_call_id_gets_its_own():
    """Some servers leave it empty: its item would be refused as it came, and its output too."""
    call = {"type": "function_call", "id": "fc_9", "call_id": "", "name": "w", "arguments": "{}"}
    asked, answer = wire.parse_items([ASKED, call])
    events = [Opened("m"), asked, answer, ToolReturned("fc_9", (Text("4"),))]
    request = render(view_of(events))
    assert refused(request) == []
    body = json.loads(wire.encode_request(request, {}))
    assert [item["call_id"] for item in body["input"][1:]] == ["fc_9", "fc_9"]


def test_custom_calls_are_known_by_their_output_or_their_tool():
    called = ModelSaid((Call("c", "v", "text"),))
    returned = wire.parse_message(call("custom_tool_call_output", output="ok"))[0]
    assert [one["type"] for one in blocks_of(view_of([called, returned]))] == ["custom_tool_call", "custom_tool_call_output"]  # fmt: skip
    told = Instructed((), (wire.parse_tool({"type": "custom", "name": "v"}),))
    plain = ToolReturned("c", (Text("ok"),))
    assert [one["type"] for one in blocks_of(view_of([told, called, plain]))] == ["custom_tool_call", "custom_tool_call_output"]  # fmt: skip
    assert [one["type"] for one in blocks_of(view_of([called, plain]))] == ["function_call", "function_call_output"]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "written"),
    [
        (Media("image", url="cid:a"), {"type": "input_text", "text": "[image at cid:a]"}),
        (Media("image", mime="image/png"), {"type": "input_text", "text": "[image]"}),
        (Media("file", mime="application/pdf", base64="aGk="), {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,aGk="}),
        (Media("file", url="https://a.b/c"), {"type": "input_file", "file_url": "https://a.b/c"}),
        (Media("audio", mime="audio/wav", base64="aGk="), {"type": "input_text", "text": "[audio audio/wav: this model takes none]"}),
    ],
)  # fmt: skip
def test_media(part, written):
    item = Item(0, "user", (part,), 0)
    assert write_items(item) == [{"role": "user", "content": [written]}]


def test_roles_of_what_we_say():
    parts = (Text("x"),)
    shown = [
        Item(0, "system", parts, 0),
        Item(0, "handoff", parts, 0),
        Item(0, "handoff", parts, 0, in_system=True),
    ]
    assert [write_items(item)[0]["role"] for item in shown] == ["developer", "user", "developer"]


# Responses


def response(*output, **fields):
    return {"id": "resp_1", "object": "response", "status": "completed", "output": [*output], **fields}  # fmt: skip


USAGE = {"input_tokens": 925, "input_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 5},
         "output_tokens": 40, "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 965}  # fmt: skip


def test_a_response_is_an_answer_and_its_usage():
    events = wire.parse_response(response(*ITEMS[2:5], usage=USAGE), saw=3, asked=4)
    assert [type(event) for event in events] == [ModelSaid, UsageReported]
    assert (events[0].saw, events[0].stop) == (3, "done")
    assert events[1] == UsageReported(
        asked=4, input=925, cache_read=900, cache_write=5, output=40, reasoning=30
    )


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (None, None),
        ({}, None),
        ({"input_tokens": -1, "output_tokens": "7"}, None),
        ({"input_tokens": 3.0, "input_tokens_details": None}, UsageReported(input=3)),
        ({"output_tokens": 2**60, "input_tokens": True, "output_tokens_details": {"reasoning_tokens": 1}}, UsageReported(reasoning=1)),
    ],
)  # fmt: skip
def test_a_figure_that_is_missing_or_wrong_is_unknown(usage, told):
    assert wire.parse_usage({"usage": usage}, asked=None) == told


@pytest.mark.parametrize(
    ("fields", "stop"),
    [
        ({}, "done"),
        ({"status": None}, "done"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refused"),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "cut"),
        ({"status": "incomplete", "incomplete_details": {"reason": "cut"}}, "cut"),
        ({"status": "incomplete"}, "cut"),
        ({"status": "failed", "error": {"code": "server_error", "message": "m"}}, "cut"),
        ({"status": "in_progress"}, "cut"),
        ({"status": "cancelled"}, "cancelled"),
    ],
)
def test_how_a_response_ended(fields, stop):
    assert wire.parse_response(response(SAID, **fields), saw=None, asked=None)[0].stop == stop


def test_a_refusal_is_refused():
    message = {**ITEMS[3], "content": [{"type": "refusal", "refusal": "No."}]}
    said = wire.parse_response(response(message), saw=None, asked=None)[0]
    assert (said.parts, said.stop) == ((Text("No."),), "refused")


def test_results_of_hosted_tools_stand_between():
    events = wire.parse_response(response(SHELL, SHELL_OUT, SAID), saw=1, asked=None)
    assert [type(event) for event in events] == [ModelSaid, ToolReturned, ModelSaid]
    waiting = wire.parse_response(response(FUNCTION, SHELL, SHELL_OUT, SAID), saw=1, asked=None)
    assert [type(event) for event in waiting] == [ModelSaid]
    assert [call.id for call in waiting[0].parts if isinstance(call, Call)] == ["f"]


def test_an_empty_answer_is_one_and_an_error_is_none():
    assert wire.parse_response(response(), saw=None, asked=None) == [ModelSaid(())]
    for bad in ({}, response(error={"message": "boom"}), {"output": None, "error": "boom"}):
        with pytest.raises(WireError):
            wire.parse_response(bad, saw=None, asked=None)


def test_reasoning_that_nothing_followed_is_not_sent():
    """An answer that used up its length in thought."""
    ended = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    said = wire.parse_response(response(ITEMS[3], ITEMS[2], **ended), saw=None, asked=None)[0]
    assert said.native is None
    assert blocks_of(view_of([said])) == [{"role": "assistant", "content": "Looking."}]


def test_what_the_sdk_adds_is_not_sent_back():
    dumped = {**ITEMS[2], "status": None, "content": None}
    message = {**ITEMS[3], "phase": None, "content": [{**ITEMS[3]["content"][0], "logprobs": None, "parsed": None}]}  # fmt: skip
    called = {**ITEMS[4], "namespace": None, "parsed_arguments": {"c": "Oslo"}}
    said = wire.parse_response(response(dumped, message, called), saw=None, asked=None)[0]
    assert blocks_of(view_of([said]))[:3] == [
        ITEMS[2],
        {key: value for key, value in ITEMS[3].items() if key != "phase"},
        ITEMS[4],
    ]


# Tools


def test_tools_come_back_as_they_were():
    given = [
        {"type": "function", "name": "w", "description": "d", "parameters": {"type": "object"}, "strict": False},
        {"type": "function", "name": "v", "parameters": {}, "strict": True},
        {"type": "custom", "name": "c", "format": {"type": "text"}},
        {"type": "web_search", "search_context_size": "low"},
        {"type": "mcp", "server_label": "a", "server_url": "https://a.b"},
        {"type": "mcp", "server_label": "b", "server_url": "https://a.b"},
        {"type": "namespace", "name": "n", "description": "d", "tools": []},
        {"type": "of_next_year", "x": 1.0},
    ]  # fmt: skip
    tools = tuple(map(wire.parse_tool, given))
    assert tools[0] == Tool("w", "d", '{"type":"object"}')
    assert [tool.native is None for tool in tools] == [True, *[False] * 7]
    body = wire.encode_request(Request("m", (), tools, ()), {"n": 1})
    assert json.loads(body)["tools"] == given
    assert body.endswith(b'"input":[]}')


def test_the_tools_of_a_namespace_are_read_one_by_one():
    """As Codex groups those of a server: a tool `recall` in it is known for what it is."""
    inside = {"type": "function", "name": "recall", "parameters": {"type": "object"}}
    given = {"type": "namespace", "name": "mcp__a", "tools": [inside, {"type": "web_search"}]}
    told = RESPONSES.read_instructions({"tools": json.dumps([given]).encode()}, [])
    assert told.tools == (
        Tool("mcp__a__recall", "", '{"type": "object"}'),
        Tool("mcp__a__web_search"),
    )
    for broken in ([], 5, None):
        rest = {**given, "tools": broken}
        told = RESPONSES.read_instructions({"tools": json.dumps([rest]).encode()}, [])
        assert [tool.name for tool in told.tools] in ([], ["mcp__a"])


def test_a_name_that_is_not_taken_is_written_safely():
    tool = wire.parse_tool({"type": "function", "name": "a.b", "parameters": {}, "strict": True})
    said = wire.parse_message({**FUNCTION, "name": "a.b", "id": "fc_1"})[0]
    request = render(closed(view_of([Instructed((), (tool,)), said])))
    assert refused(request) == []
    body = json.loads(wire.encode_request(request, {}))
    assert body["tools"][0]["name"] == body["input"][0]["name"] != "a.b"


@pytest.mark.parametrize("bad", [{}, {"type": "function"}, {"type": "function", "function": {"name": "a"}}, {"name": 5}])  # fmt: skip
def test_what_is_no_tool_is_a_typed_error(bad):
    with pytest.raises(WireError):
        wire.parse_tool(bad)


# Faults


GOOD = [ASKED, ITEMS[2], ITEMS[3], FUNCTION, FUNCTION_OUT, ITEMS[9]]
TOOL = {"type": "function", "name": "w", "parameters": {}, "strict": False}
MUTANTS = [
    ("empty", []),
    ("empty", [{"role": "user", "content": " "}]),
    ("empty", [{"role": "user", "content": []}]),
    ("type", [{"type": 5}]),
    ("type", [{"content": "hi"}]),
    ("kind", [{"type": "made_up"}]),
    ("kind", [{"role": "user", "content": [{"type": "input_smell"}]}]),
    ("role", [{"role": "tool", "content": "hi"}]),
    ("content", [{"role": "user", "content": {"text": "hi"}}]),
    ("content", [FUNCTION, {**FUNCTION_OUT, "output": {"a": 1}}]),
    ("part", [{"role": "user", "content": [{"type": "output_text", "text": "hi"}]}]),
    ("part", [{"role": "assistant", "content": [{"type": "input_text", "text": "hi"}]}]),
    ("part", [{"role": "user", "content": [{"type": "input_text", "text": None}]}]),
    ("part", [{"role": "user", "content": ["hi"]}]),
    ("part", [FUNCTION, {**FUNCTION_OUT, "output": [{"type": "refusal", "refusal": "hi"}]}]),
    ("long", [{"role": "user", "content": "x" * 10_485_761}]),
    ("media", [{"role": "user", "content": [{"type": "input_image", "detail": "auto"}]}]),
    ("media", [{"role": "user", "content": [{"type": "input_file", "file_data": "data:a/b;base64,"}]}]),
    ("call", [{**FUNCTION, "arguments": {}}, FUNCTION_OUT]),
    ("call", [{**FUNCTION, "name": ""}, FUNCTION_OUT]),
    ("name", [{**FUNCTION, "name": "a.b"}, FUNCTION_OUT]),
    ("id", [{**FUNCTION, "call_id": "x" * 65}, {**FUNCTION_OUT, "call_id": "x" * 65}]),
    ("id", [{key: value for key, value in FUNCTION.items() if key != "call_id"}]),
    ("prefix", [{**ITEMS[3], "id": "fc_1"}]),
    ("prefix", [{**FUNCTION, "id": "call_1"}, FUNCTION_OUT]),
    ("prefix", [{**ITEMS[3], "id": "msg 1"}]),
    ("unique", [ITEMS[3], ITEMS[3]]),
    ("unique", [FUNCTION, FUNCTION_OUT, FUNCTION, FUNCTION_OUT]),
    ("pairs", [FUNCTION]),
    ("pairs", [SHELL]),
    ("orphan", [FUNCTION_OUT]),
    ("orphan", [FUNCTION_OUT, FUNCTION]),
    ("orphan", [FUNCTION, {**FUNCTION_OUT, "type": "custom_tool_call_output"}]),
    ("twice", [FUNCTION, FUNCTION_OUT, FUNCTION_OUT]),
    ("reasoning", [ASKED, ITEMS[2]]),
    ("reasoning", [ITEMS[2], ASKED, SAID]),
    ("reasoning", [FUNCTION, ITEMS[2], FUNCTION_OUT]),
    ("field", [{"type": "compaction", "encrypted_content": ""}]),
    ("field", [{"type": "reasoning", "id": "rs_1"}, SAID]),
    ("field", [{"type": "item_reference"}]),
    ("last", [{"type": "compaction_trigger"}, ASKED]),
]  # fmt: skip


def test_what_is_good_has_no_fault():
    assert wire.list_faults(GOOD, tools=[TOOL]) == []
    assert wire.list_faults(ITEMS) == []


@pytest.mark.parametrize(("rule", "items"), MUTANTS, ids=lambda one: one if isinstance(one, str) else "")  # fmt: skip
def test_every_rule_can_be_broken(rule, items):
    assert rule in {fault.partition(":")[0] for fault in wire.list_faults(items)}


@pytest.mark.parametrize(
    ("rule", "tools"),
    [
        ("tools", [{"type": "made_up"}]),
        ("tools", [{**TOOL, "parameters": "x"}]),
        ("name", [{**TOOL, "name": "a.b"}]),
        ("unique", [TOOL, TOOL]),
    ],
)
def test_every_rule_of_tools_can_be_broken(rule, tools):
    assert [fault.partition(":")[0] for fault in wire.list_faults([ASKED], tools=tools)] == [rule]


@pytest.mark.parametrize(
    "bad",
    [
        {"input": [{"role": "user", "content": 5}]},
        {"input": [{"type": "reasoning"}]},
        {"input": [{"type": "function_call", "name": "a"}]},
        {"tools": [{"type": "function", "name": "a"}]},
    ],
)
def test_the_second_judge_can_say_no(bad):
    assert jury.mistyped(bad, ADAPTERS)


# Odd bodies


keys = st.sampled_from(["type", "role", "content", "id", "call_id", "output", "name", "arguments", "summary", "encrypted_content",
                        "result", "tools", "status", "error", "usage", "item", "response", "delta", "output_index", "image_url", "text"])  # fmt: skip
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["message", "user", "assistant", "developer", "reasoning", "function_call", "function_call_output", "additional_tools",
                       "image_generation_call", "compaction", "input_image", "shell_call_output", "computer_call_output", "program_output",
                       "item_reference", "compaction_trigger", "custom_tool_call", "response.output_item.done", "response.completed",
                       "response.output_text.delta", "error", "response.failed", "incomplete"])
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5)
)
objects = st.dictionaries(keys, values, max_size=6)


@given(objects, st.lists(objects, max_size=5))
def test_odd_bodies_are_typed_errors(body, many):
    for parse in (
        lambda: wire.parse_message(body),
        lambda: wire.parse_items(many),
        lambda: wire.parse_response({"output": many} | body, saw=None, asked=None),
        lambda: wire.parse_tool(body),
        lambda: wire.ResponsesAssembly().add_event(json.dumps(body)),
        lambda: wire.parse_usage(body, asked=None),
    ):
        with suppress(WireError):
            parse()
    assert isinstance(wire.list_faults(many, tools=[body]), list)


@given(st.lists(objects, min_size=1, max_size=6))
def test_what_is_read_can_be_sent(many):
    """Whatever odd items a session is given, it sends what its own rules allow, or new kinds."""
    events = []
    for body in many:
        with suppress(WireError):
            events += wire.parse_message(body)
    request = render(closed(view_of([Opened("m"), *events])))
    body = json.loads(wire.encode_request(request, {}))
    new = ("kind", "prefix", "empty: there are")
    assert [fault for fault in wire.list_faults(body["input"]) if not fault.startswith(new)] == []


@pytest.mark.parametrize("bad", [{}, {"role": "oracle"}, {"role": "user", "content": 5}, {"type": "reasoning", "summary": "x"}])  # fmt: skip
def test_what_is_no_item_is_a_typed_error(bad):
    with pytest.raises(BadInput):
        wire.parse_message(bad)


def test_halves_of_surrogate_pairs_are_mended():
    assert wire.make_user_event("a\ud800b") == UserSaid((Text("a\ufffdb"),))
    event = wire.parse_message({"role": "user", "content": "\udfff", "x\ud800": ["\ud800"]})[0]
    msgspec.json.encode(event)


# Clients' own items, patched

STUB = Item(0, "result", (Text("[masked]"),), 0, state="masked", call_id="s")


def put_stub(item):
    """A result with a stub in place of its words, as it goes upstream."""
    raw = json.dumps(item).encode()
    (event,) = RESPONSES.read_message(raw, RESPONSES.describe_message(raw))
    return json.loads(RESPONSES.replace_text(raw, event, STUB))


@pytest.mark.parametrize("outcome", [{"type": "exit", "exit_code": 2}, {"type": "timeout"}])
def test_what_a_shell_printed_is_replaced_in_its_own_form(outcome):
    chunk = {"stdout": "many lines", "stderr": "more", "outcome": outcome}
    put = put_stub({**SHELL_OUT, "call_id": "s", "output": [chunk, chunk]})
    assert put["output"] == [{"stdout": "[masked]", "stderr": "", "outcome": outcome}]
    call = {**SHELL, "call_id": "s"}
    assert wire.list_faults([ASKED, call, put]) == []
    assert jury.mistyped({"input": [ASKED, call, put]}, ADAPTERS) == []


def test_how_a_command_ended_is_not_among_the_words_that_are_clipped():
    outcome = {"type": "exit", "exit_code": 2}
    chunk = {"stdout": "out", "stderr": "err", "outcome": outcome}
    raw = json.dumps({**SHELL_OUT, "call_id": "s", "output": [chunk]}).encode()
    (event,) = RESPONSES.read_message(raw, RESPONSES.describe_message(raw))
    assert event.parts == (Text("out\nerr"),)


def test_a_screenshot_cannot_be_said_in_words():
    shot = {"type": "computer_screenshot", "image_url": PICTURE}
    item = {"type": "computer_call_output", "call_id": "s", "output": shot}
    assert put_stub(item) == item


def test_a_part_without_a_type_stays():
    item = {"type": "quantum_output", "call_id": "s", "output": [{"x": 1}, {"type": "input_text", "text": "a"}]}  # fmt: skip
    assert put_stub(item)["output"] == [{"x": 1}, {"type": "input_text", "text": "[masked]"}]


@pytest.mark.parametrize("field", [b"role", b"type", b"id"])
def test_bytes_that_are_no_text_are_a_typed_error(field):
    body = b'{"model":"m","input":[{"content":"x","%s":"\xed\xa0\x80"}]}' % field
    with pytest.raises(WireError):
        read_request(get_dialect(wire.DIALECT), body)

"""Whole requests as a gateway gets them: unedited, every message goes back byte for byte."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_json import numbers, texts, written

from foldline.core.log import Instructed, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Call, Text, Thought
from foldline.core.request import render
from foldline.errors import WireError
from foldline.testing import view_of
from foldline.wire import openai_chat as wire


class Fields(msgspec.Struct):
    """What must come back."""

    messages: list[msgspec.Raw]
    tools: list[msgspec.Raw] | None = None


def again(body: bytes) -> tuple[list[bytes], list[bytes]]:
    """What is encoded from a decoded request: its messages and its tools."""
    decoded = wire.decode(body)
    view = view_of([Opened(decoded.model), *decoded.events])
    fields = msgspec.json.decode(wire.encode(render(view), decoded.parameters), type=Fields)
    return [bytes(raw) for raw in fields.messages], [bytes(raw) for raw in fields.tools or ()]


def body_of(messages, tools=(), *, more=""):
    listed = f', "tools" : [{" , ".join(tools)}\n]' if tools else ""
    said = " ,\n".join(messages)
    return f'{{ "model":"m",\t"messages": [ {said} ]{listed}{more} }}'.encode()


ODD = [
    '{"content":"First.","role":"developer"}',
    '{"role":"system","content":[{"type":"text","text":"Second.","prompt_cache_breakpoint":{"mode":"explicit","ttl":"30m"}}]}',
    r'{ "role" : "user", "content" : "caf\u00e9 \/ \ud83d\ude00", "name":"Ann" }',
    '{"role":"user","content":"plain"}',
    '{"role":"user","content":[{"type":"hologram","hologram":{"x":1.0,"y":1e5,"z":12345678901234567890,"w":-0.0}}]}',
    '{"role":"user","role":"user","content":"a","content":"b","x":1,"x":2}',
    '{"role":"assistant","content":null,"refusal":"I will not.","annotations":[]}',
    '{"role":"system","content":"In the middle."}',
    '{"role":"user","content":""}',
    '{"role":"assistant","content":"","audio":{"id":"audio_1"}}',
    '{"role":"assistant","content":" "}',
    '{"role":"assistant","reasoning":"hm","reasoning_content":"hm","content":"Looking.","annotations":[{"type":"url_citation"}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"w","arguments":"{\\"c\\": 1.0}"}},{"type":"custom","id":"c2","custom":{"name":"x","input":"y"}}]}',
    '{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"two"}]}',
    '{"role":"tool","tool_call_id":"c1","content":"","name":"w"}',
    '{"role":"system","content":"Again."}',
    '{"role":"developer","content":null}',
    '{"role":"assistant","content":null,"function_call":{"name":"old","arguments":"{}"}}',
    '{"role":"function","name":"old","content":"done"}',
    '{"role":"assistant","content":null,"tool_calls":[{"id":"c3","type":"mcp","mcp":{}}]}',
    '{"role":"tool","tool_call_id":"c3","content":"x"}',
    '{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO","detail":"low"}},{"type":"file","file":{"file_id":"f"}}]}',
    '{"role":"assistant","content":"' + "x" * 50 + '","tool_calls":[{"id":"' + "i" * 60 + '","type":"function","function":{"name":"w","arguments":"{}"}}]}',
    '{"role":"tool","tool_call_id":"' + "i" * 60 + '","content":"ok"}',
]  # fmt: skip
TOOLS = [
    '{"type":"function","function":{"name":"w","description":"d","parameters":{"type":"object", "maximum":1.0}}}',
    '{"function":{"name":"v","strict":false,"parameters":null},"type":"function"}',
    '{"type":"custom","custom":{"name":"x","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"s: /a/"}}}}',
    '{"type":"web_search","filters":{}}',
]


def test_every_odd_message_goes_back_where_it_stood():
    """A-20, laws 2 and 5: order, whitespace, escapes, numbers, duplicates, unknown fields."""
    assert again(body_of(ODD, TOOLS)) == ([one.encode() for one in ODD], [one.encode() for one in TOOLS])  # fmt: skip


def test_native_only_where_our_own_bytes_differ():
    plain = [
        '{"role":"system","content":"S"}',
        '{"role":"user","content":"Hi"}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"w","arguments":"{}"}}]}',
        '{"role":"tool","tool_call_id":"c","content":"4°"}',
    ]
    decoded = wire.decode(body_of(plain, TOOLS[:1]))
    assert [event.native for event in decoded.events] == [(), None, None, None]
    assert decoded.events[0].tools[0].native is None
    assert decoded.events == (
        Instructed((Text("S"),), decoded.events[0].tools),
        UserSaid((Text("Hi"),)),
        ModelSaid((Call("c", "w", "{}"),)),
        ToolReturned("c", (Text("4°"),)),
    )


def test_parameters_are_as_they_came():
    body = b'{"temperature":1.0, "messages":[],"seed": 12345678901234567890123,"x_new":{"a" : [ ]},"tools":[ ],"model":"m"}'  # fmt: skip
    decoded = wire.decode(body)
    assert {name: bytes(raw) for name, raw in decoded.parameters.items()} == {
        "temperature": b"1.0",
        "seed": b"12345678901234567890123",
        "x_new": b'{"a" : [ ]}',
        "tools": b"[ ]",
    }
    assert (decoded.model, decoded.events) == ("m", ())
    assert b'"seed":12345678901234567890123' in wire.encode(render(view_of([])), decoded.parameters)


def test_what_it_says_is_read_too():
    decoded = wire.decode(body_of(ODD))
    instructed = [event for event in decoded.events if isinstance(event, Instructed)]
    assert [len(event.parts) for event in instructed] == [2, 3, 4, 4]
    assert decoded.events[1].author == "Ann"
    called = next(event for event in decoded.events if len(getattr(event, "parts", ())) == 4
                  and isinstance(event, ModelSaid))  # fmt: skip
    assert called.parts == (Thought("hm"), Text("Looking."), Call("c1", "w", '{"c": 1.0}'), Call("c2", "x", "y"))  # fmt: skip


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", "$"), (b"[]", "$"), (b"\xff", "$"), (b"{}", "$.messages"), (b'{"messages":{}}', "$.messages"),
        (b'{"messages":[5]}', "$.messages[0]"), (b'{"messages":[{"role":"user"},{"role":"oracle"}]}', "$.messages[1].role"),
        (b'{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}', "$.messages[0].content[0].text"),
        (b'{"messages":[{"role":"assistant","tool_calls":[{}]}]}', "$.messages[0].tool_calls[0]"),
        (b'{"messages":[],"tools":[{"type":"function"}]}', "$.tools[0]"), (b'{"messages":[],"tools":"x"}', "$.tools"),
        (b'{"messages":[],"model":5}', "$.model"), (b'{"messages":[' + b"[" * 100_000, "$"),
        (rb'{"messages":[{"role":"user","content":"\ud800"}]}', "$"),
        (b'{"messages":[{"role":"user","content":"x","x_new":1e999}]}', "$"),
        (b'{"messages":[],"x_new":' + b"[" * 300 + b"]" * 300 + b"}", "$"),
    ],
)  # fmt: skip
def test_errors_have_their_place(body, path):
    with pytest.raises(WireError) as fault:
        wire.decode(body)
    assert fault.value.path == path


def test_only_a_model_calls():
    body = b'{"messages":[{"role":"user","content":"x","tool_calls":[{"id":"c","type":"function","function":{"name":"w"}}]}]}'  # fmt: skip
    assert wire.decode(body).events[0].parts == (Text("x"),)
    assert again(body)[0] == [bytes(raw) for raw in msgspec.json.decode(body, type=Fields).messages]


def test_system_messages_in_every_turn_are_linear():
    """A thousand of them, each where it stood, and none repeats all before it."""
    talk = ['{"role":"system","content":"S"}'] + [
        f'{{"role":"{role}","content":"{n}"}}' for n in range(1_000) for role in ("user", "developer")
    ]  # fmt: skip
    body = body_of(talk)
    assert again(body)[0] == [one.encode() for one in talk]
    assert max(len(msgspec.json.encode(event)) for event in wire.decode(body).events) < 2_000


# Bodies at random: key order, whitespace, escapes, numbers, unknown fields.

unknown = st.dictionaries(
    st.sampled_from(["x_new", "é", "cache_control", "annotations", "prefix"]),
    st.one_of(numbers.map(lambda text: (text,)), texts, st.none(), st.just([]), st.just({"type": "ephemeral"})),
    max_size=2,
)  # fmt: skip
part = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.just({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "high"}}),
    st.just({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    texts.map(lambda text: {"type": "hologram", "text2": text}),
    texts.map(lambda text: {"type": "text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}}),
)  # fmt: skip
content = st.one_of(texts, texts, st.lists(part, max_size=3))


@st.composite
def talks(draw):
    """Messages that pair: groups of calls are answered at once, in any order."""
    found = []
    for at in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["system", "developer", "user", "assistant", "calls"]))
        more = draw(unknown) if draw(st.booleans()) else {}
        if kind in ("system", "developer", "user"):
            name = draw(st.sampled_from([{}, {}, {"name": "Ann"}]))
            found.append({"role": kind, "content": draw(content)} | name | more)
            continue
        said = {"role": "assistant", "content": draw(st.none() | texts)}
        extra = [
            {},
            {},
            {"refusal": None},
            {"refusal": "No."},
            {"audio": {"id": "a1"}},
            {"reasoning_content": "hm"},
        ]
        said |= draw(st.sampled_from(extra)) | more
        if kind == "assistant":
            found.append(said)
            continue
        ids = [f"c{at}_{n}" for n in range(draw(st.integers(1, 3)))]
        made = [
            {"id": one, "type": "custom", "custom": {"name": "x", "input": draw(texts)}} if draw(st.booleans())
            else {"id": one, "type": "function", "function": {"name": "w", "arguments": draw(texts)}}
            for one in ids
        ]  # fmt: skip
        found.append(said | {"tool_calls": made})
        found += [
            {"role": "tool", "tool_call_id": one, "content": draw(texts | st.just([{"type": "text", "text": "t"}]))}
            for one in draw(st.permutations(ids))
        ]  # fmt: skip
    return [draw(written(message)) for message in found]


@given(talks(), st.lists(st.sampled_from(TOOLS), max_size=2), unknown, st.data())
def test_unedited_messages_go_back_byte_for_byte(messages, tools, more, data):
    top = "".join(f",{json.dumps('p' + key)}:{data.draw(written(one))}" for key, one in more.items())  # fmt: skip
    body = body_of(messages, tools, more=top)
    expected = [one.encode() for one in messages], [one.encode() for one in tools]
    assert again(body) == expected
    decoded = wire.decode(body)
    stored = [msgspec.json.decode(msgspec.json.encode(event)) for event in decoded.events]
    assert len(stored) == len(decoded.events)

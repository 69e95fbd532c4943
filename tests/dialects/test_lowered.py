"""What a dialect has no place for: names, media, schemas and groups, written so that it takes them."""

import base64
import json
from importlib import import_module

import msgspec
import pytest

from foldline.core import rules
from foldline.core.log import Instructed, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Call, Media, Native, Text, Tool
from foldline.core.request import render
from foldline.dialects import anthropic, gemini, gemini_interactions, openai_chat, openai_responses
from foldline.dialects.base import DIALECTS, get_dialect
from foldline.dialects.openai_chat.write import own_id
from foldline.dialects.tools import make_safe_name
from foldline.testing import view_of

WIRES = [import_module(f"foldline.dialects.{row.folder}") for row in DIALECTS.values()]
ALL = pytest.mark.parametrize("wire", WIRES, ids=[*DIALECTS])
LONG = "x" * 60
NAMES = ["run", "memory.read", "memory read", "", "größe", "x" * 300, "memory_read"]


def body_of(wire, *events):
    """What is sent, and that it may be."""
    view = view_of([Opened("m"), *events])
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    body = json.loads(wire.encode_request(render(view), {}))
    assert get_dialect(wire.DIALECT).list_faults(body) == []
    return body


def messages_of(body):
    return next(body[name] for name in ("messages", "input", "contents") if name in body)


def defined(body):
    tools = body["tools"] if "tools" in body else body["config"]["tools"]
    tools = [one for tool in tools for one in tool.get("functionDeclarations", [tool])]
    return [tool.get("function", tool)["name"] for tool in tools]


def called(body):
    found = messages_of(body)
    calls = [call["function"] for one in found for call in one.get("tool_calls", ())]
    calls += [one for one in found if one.get("type") == "function_call"]
    parts = [part for one in found for part in one.get("parts", ())]
    calls += [part["functionCall"] for part in parts if "functionCall" in part]
    blocks = [block for one in found for block in anthropic_blocks(one)]
    return [one["name"] for one in (*calls, *(b for b in blocks if b["type"] == "tool_use"))]


def anthropic_blocks(message):
    content = message.get("content")
    return content if isinstance(content, list) else []


def said(body, *, place=0):
    """The parts or blocks of a message, without cache marks."""
    content = messages_of(body)[place]["content"]
    listed = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return [{k: v for k, v in one.items() if k != "cache_control"} for one in listed]


def encoded(text):
    return base64.b64encode(text).decode()


# Names


@ALL
def test_a_tool_and_its_calls_have_one_name_that_is_taken(wire):
    tools = tuple(Tool(name) for name in NAMES)
    calls = tuple(Call(f"c{n}", name) for n, name in enumerate(NAMES))
    body = body_of(wire, Instructed((), tools), UserSaid((Text("go"),)), ModelSaid(calls))
    assert called(body) == defined(body)
    assert len({*defined(body)}) == len(NAMES)
    assert defined(body)[0] == "run"
    assert defined(body)[-1] == "memory_read"
    # The same without the definitions, and so in every request.
    alone = body_of(wire, UserSaid((Text("go"),)), ModelSaid(calls))
    assert called(alone)[:5] == called(body)[:5]


@ALL
def test_a_safe_name_that_another_tool_has_is_not_taken(wire):
    taken = make_safe_name("a.b", 64)
    tools = (Tool("a.b"), Tool(taken))
    calls = ModelSaid((Call("c1", "a.b"), Call("c2", taken)))
    body = body_of(wire, Instructed((), tools), UserSaid((Text("go"),)), calls)
    assert called(body) == defined(body)
    assert len({*defined(body)}) == 2
    # A call of a tool that is no longer there is not taken for one of another's.
    body = body_of(wire, Instructed((), tools[1:]), UserSaid((Text("go"),)), calls)
    assert len({*called(body)}) == 2


@ALL
def test_of_tools_with_one_name_the_last_is_written(wire):
    tools = (Tool("run", "first"), Tool("look"), Tool("run", "last"))
    body = body_of(wire, Instructed((), tools), UserSaid((Text("go"),)))
    assert defined(body) == ["run", "look"]
    assert "last" in json.dumps(body)
    assert "first" not in json.dumps(body)


@ALL
def test_what_a_session_is_given_under_another_name_is_written_safely(wire):
    """Its own JSON is kept only where it would be taken."""
    if wire is openai_chat:
        tool = {"type": "function", "function": {"name": "a.b", "strict": True, "parameters": {}}}
        call = {"id": "c", "type": "function", "function": {"name": "a.b", "arguments": "{}"}}
        answer = [wire.parse_message({"role": "assistant", "x_new": 1, "tool_calls": [call]})]
    elif wire is openai_responses:
        tool = {"type": "function", "name": "a.b", "strict": True, "parameters": {}}
        call = {"type": "function_call", "call_id": "c", "name": "a.b", "arguments": "{}", "x": 1}
        answer = wire.parse_message(call)
    elif wire is gemini_interactions:
        tool = {"type": "function", "name": "a b", "parameters": {"type": "object"}}
        answer = wire.parse_message(
            {"type": "function_call", "id": "c", "name": "a b", "arguments": {}, "x": 1}
        )
    elif wire is gemini:
        tool = {"name": "a b", "parameters": {"type": "OBJECT"}, "behavior": "BLOCKING"}
        call = {"functionCall": {"id": "c", "name": "a b"}, "thoughtSignature": "c2ln"}
        answer = wire.parse_message({"role": "model", "parts": [call]})
    else:
        tool = {"name": "a.b", "input_schema": {}, "strict": True}
        call = {"type": "tool_use", "id": "c", "name": "a.b", "input": {}, "x_new": 1}
        answer = wire.parse_message({"role": "assistant", "content": [call]})
    tools = tuple(get_dialect(wire.DIALECT).parse_tools(tool))
    body = body_of(wire, Instructed((), tools), UserSaid((Text("go"),)), *answer)
    assert (
        called(body)
        == defined(body)
        == [make_safe_name("a b" if "gemini" in wire.DIALECT else "a.b", 64)]
    )


# Schemas


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ('{"type":"object","x":1.0}', {"type": "object", "x": 1.0}),
        ("{}", {"type": "object"}),
        ('{"properties":{"a":{}}}', {"type": "object", "properties": {"a": {}}}),
        ('{"type":["object","null"]}', {"type": "object"}),
        ('{"type":"string"}', {"type": "object"}),
        ("true", {"type": "object", "properties": {}}),
        ("not json", {"type": "object", "properties": {}}),
    ],
)
def test_a_schema_is_of_an_object(schema, written):
    told = Instructed((), (Tool("run", schema=schema),))
    body = body_of(anthropic, told, UserSaid((Text("go"),)))
    assert body["tools"][0]["input_schema"] == written
    parameters = body_of(openai_chat, told, UserSaid((Text("go"),)))["tools"][0]["function"]["parameters"]  # fmt: skip
    assert parameters == (json.loads(schema) if schema.startswith("{") else written)


# Media


UTF8, PDF, PNG = encoded("grüße".encode()), encoded(b"%PDF"), encoded(b"\x89PNG")
TAKEN = [
    (Media("image", mime="image/jpg", base64=PNG), {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}}),
    (Media("image", mime="IMAGE/PNG; x=y", base64=PNG), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
    (Media("image", mime="image/svg+xml", base64=PNG), "[image image/svg+xml: this model takes none]"),
    (Media("image", mime="image/bmp", base64=PNG, name="a.bmp"), "[image a.bmp image/bmp: this model takes none]"),
    (Media("image", base64=PNG), "[image: this model takes none]"),
    (Media("image", mime="image/png"), "[image image/png: this model takes none]"),
    (Media("file", mime="application/pdf", base64=PDF), {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}),
    (Media("file", mime="text/csv", base64=UTF8, name="a.csv"), {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "grüße"}, "title": "a.csv"}),
    (Media("file", mime="text/plain", base64=encoded(b"\xff\xfe")), "[file text/plain: this model takes none]"),
    (Media("file", mime="text/plain", base64="no base64"), "[file text/plain: this model takes none]"),
    (Media("file", mime="text/plain", base64=encoded(b" ")), "[file text/plain: this model takes none]"),
    (Media("file", mime="application/zip", base64=PDF, name="a.zip"), "[file a.zip application/zip: this model takes none]"),
    (Media("audio", mime="audio/wav", base64=PDF), "[audio audio/wav: this model takes none]"),
    (Media("audio", url="https://x/a.wav"), "[audio at https://x/a.wav: this model takes none]"),
]  # fmt: skip


@pytest.mark.parametrize(("media", "written"), TAKEN)
def test_media_that_anthropic_takes(media, written):
    """In messages and in results alike."""
    block = {"type": "text", "text": written} if isinstance(written, str) else written
    assert said(body_of(anthropic, UserSaid((Text("see"), media))))[1:] == [block]
    result = ToolReturned("c", (Text("see"), media))
    body = body_of(anthropic, UserSaid((Text("go"),)), ModelSaid((Call("c", "run"),)), result)
    assert said(body, place=2)[0]["content"][1:] == [block]


HEARD = [
    (Media("audio", mime="audio/mpeg", base64=PDF), {"data": PDF, "format": "mp3"}),
    (Media("audio", mime="audio/mp3", base64=PDF), {"data": PDF, "format": "mp3"}),
    (Media("audio", mime="audio/wav", base64=PDF), {"data": PDF, "format": "wav"}),
    (Media("audio", mime="audio/x-wav", base64=PDF), {"data": PDF, "format": "wav"}),
    (Media("audio", mime="audio/ogg", base64=PDF), "[audio audio/ogg: this model takes none]"),
    (Media("audio", mime="audio/wav"), "[audio]"),
    (Media("audio", mime="audio/wav", url="https://x/a.wav"), "[audio at https://x/a.wav]"),
    (Media("file", mime="application/pdf", name="a.pdf"), "[file a.pdf]"),
    (Media("image", url="ftp://x/a.png"), "[image at ftp://x/a.png]"),
    (Media("image", mime="image/png"), "[image]"),
]


@pytest.mark.parametrize(("media", "written"), HEARD)
def test_media_that_openai_takes(media, written):
    """In messages, and behind results."""
    part = {"type": "text", "text": written} if isinstance(written, str) else {"type": "input_audio", "input_audio": written}  # fmt: skip
    assert said(body_of(openai_chat, UserSaid((Text("see"), media))))[1:] == [part]
    result = ToolReturned("c", (Text("see"), media))
    body = body_of(openai_chat, ModelSaid((Call("c", "run"),)), result)
    assert said(body, place=2) == [part]


@pytest.mark.parametrize("wire", [anthropic, openai_chat, openai_responses])
def test_media_of_answers_and_instructions_are_named(wire):
    picture = Media("image", mime="image/png", base64=PNG, name="a.png")
    asked = UserSaid((Text("go"),))
    body = body_of(wire, asked, ModelSaid((Text("See"), picture)), UserSaid((Text("so"),)))
    assert "\n".join(one["text"] for one in said(body, place=1)) == "See\n[image a.png]"
    for parts, words in (((Text("Look"), picture), "Look\n[image a.png]"), ((picture,), "[image a.png]")):  # fmt: skip
        body = body_of(wire, Instructed(parts), asked)
        told = body.get("system") or [{"text": body.get("instructions")} if "input" in body else body["messages"][0]]  # fmt: skip
        assert "\n".join(one.get("text") or one["content"] for one in told) == words


@ALL
def test_blank_instructions_write_nothing(wire):
    body = body_of(wire, Instructed((Text(" \n"),)), UserSaid((Text("go"),)))
    assert not {"system", "instructions"} & {*body}
    assert len(messages_of(body)) == 1


def test_what_a_session_is_given_in_another_kind_is_named():
    """A picture in Anthropic's own JSON too, if Anthropic would not take it."""
    source = {"type": "base64", "media_type": "image/svg+xml", "data": PNG}
    picture = {"type": "image", "source": source, "x_new": 1}
    inner = {"type": "tool_result", "tool_use_id": "c", "content": [picture]}
    call = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
    talk = [
        *anthropic.parse_message({"role": "user", "content": [picture]}),
        *anthropic.parse_message({"role": "assistant", "content": [call, picture]}),
        *anthropic.parse_message({"role": "user", "content": [inner]}),
    ]
    assert "image/svg+xml: this model takes none" in json.dumps(body_of(anthropic, *talk))


# Groups of calls


def test_a_group_of_too_many_calls_is_written_in_pieces():
    """Each with its own results, in the order they came: no pair is broken, none is lost."""
    calls = tuple(Call(f"c{n}", "run", f'{{"n":{n}}}') for n in range(300))
    results = [ToolReturned(call.id, (Text(f"did {call.id}"),)) for call in reversed(calls)]
    body = body_of(openai_chat, UserSaid((Text("go"),)), ModelSaid((Text("All."), *calls)), *results)  # fmt: skip
    answers = [one for one in body["messages"] if one["role"] == "assistant"]
    assert [len(one["tool_calls"]) for one in answers] == [128, 128, 44]
    assert [one["content"] for one in answers] == ["All.", None, None]
    assert sum(one["role"] == "tool" for one in body["messages"]) == 300
    assert body["messages"][2]["content"] == "did c127"


@pytest.mark.parametrize("first", ["function:w", "b"])
def test_an_older_call_beside_others_is_written_as_they_are(first):
    """Its result could stand between theirs, where only results with an id may."""
    given = {
        "role": "assistant",
        "function_call": {"name": "w", "arguments": "{}"},
        "tool_calls": [
            {"id": "b", "type": "function", "function": {"name": "v", "arguments": "{}"}}
        ],
    }
    results = [openai_chat.parse_message({"role": "function", "name": "w", "content": "x", "x_new": 1}),
               openai_chat.parse_message({"role": "tool", "tool_call_id": "b", "content": "y"})]  # fmt: skip
    assert results[0].native is not None
    if first == "b":
        results.reverse()
    body = body_of(openai_chat, openai_chat.parse_message(given), *results)
    assert called(body) == ["w", "v"]
    assert [one["tool_call_id"] for one in body["messages"][1:]] == [one.call_id for one in results]


def test_an_older_call_alone_stays_one():
    call, done = Call("function:a.b", "a.b"), ToolReturned("function:a.b", (Text("x"),))
    answer, result = body_of(openai_chat, ModelSaid((call,)), done)["messages"]
    assert answer["function_call"]["name"] == result["name"] == make_safe_name("a.b", 64)
    assert result["role"] == "function"


def test_ids_that_are_shortened_alike_are_told_apart():
    calls = ModelSaid((Call(LONG, "run"), Call(own_id(LONG), "run")))
    results = [ToolReturned(own_id(LONG), (Text("short"),)), ToolReturned(LONG, (Text("long"),))]
    answer, short, long = body_of(openai_chat, calls, *results)["messages"]
    ids = [one["id"] for one in answer["tool_calls"]]
    assert [long["tool_call_id"], short["tool_call_id"]] == ids
    assert len({*ids}) == 2


def test_a_result_goes_with_its_call_however_either_came():
    """A client's own id may be too long: a call in its own JSON has it, one of ours has not."""
    call = {"id": LONG, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    own = Native(openai_chat.DIALECT, json.dumps({"role": "assistant", "tool_calls": [call]}))
    done = Native(openai_chat.DIALECT, json.dumps({"role": "tool", "tool_call_id": LONG, "content": "x"}))  # fmt: skip
    for natives in ((own, None), (None, done)):
        said = ModelSaid((Call(LONG, "f"),), native=natives[0])
        back = ToolReturned(LONG, (Text("x"),), native=natives[1])
        blocks = openai_chat.encode_blocks(render(view_of([Opened("m"), said, back])))
        answer, result = (msgspec.json.decode(one) for one in blocks)
        assert result["tool_call_id"] == answer["tool_calls"][0]["id"]

"""Google's Interactions: steps, answers and streams, and the steps of clients."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from odd_json import texts, written

import foldline
from foldline.core.item import Item
from foldline.core.log import Instructed, ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Gap, Media, Text, Thought, Tool
from foldline.dialects import gemini_interactions as wire
from foldline.dialects.base import get_dialect
from foldline.dialects.client_messages import FoldMark, item_of
from foldline.errors import WireError
from foldline.proxy.client_request import read_request

form = get_dialect("gemini-interactions")

DIALECT = get_dialect("gemini-interactions")
PIXEL = {"type": "image", "mime_type": "image/png", "data": "iVBORw0KGgo="}
TALK = [
    {"type": "user_input", "content": [{"type": "text", "text": "Weather?"}, PIXEL]},
    {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "plan"}]},
    {"type": "model_output", "content": [{"type": "text", "text": "Looking."}]},
    {"type": "function_call", "id": "a1", "name": "w", "arguments": {"c": "Oslo"}},
    {"type": "function_call", "id": "a2", "name": "w", "arguments": {"c": "Rome"}},
    {"type": "function_result", "call_id": "a1", "name": "w", "result": "4°"},
    {"type": "function_result", "call_id": "a2", "name": "w", "result": "no such city", "is_error": True},
]  # fmt: skip
TOOLS = [{"type": "function", "name": "w", "description": "d", "parameters": {"type": "object"}}]


def session(**options):
    given = {"model": "gemini-3-pro", "dialect": "gemini-interactions", **options}
    return foldline.open(":memory:", **given)


def test_a_conversation_goes_back_as_it_came():
    with session(system="S", tools=TOOLS) as s:
        s.add(TALK)
        request = s.request(generation_config={"max_output_tokens": 9})
    assert request["input"] == TALK
    assert (request["system_instruction"], request["tools"]) == ("S", TOOLS)
    assert DIALECT.list_faults(request) == []
    assert DIALECT.find_bound(request) == ("generation_config.max_output_tokens", 9)


def test_it_goes_through_all_dialects_and_comes_back_byte_for_byte():
    with session(system="S", tools=TOOLS) as s:
        s.add(TALK)
        first = s.request()
        for model, dialect in [("claude-sonnet-5", None), ("gpt-5", None), ("gpt-5", "openai-responses"), ("gemini-3-pro", "gemini"), ("gemini-3-pro", "gemini-interactions")]:  # fmt: skip
            s.switch(model, dialect=dialect)
            between = s.request()
            assert "Oslo" in json.dumps(between)
        assert between == first


def test_what_another_dialect_had_is_written_in_steps():
    with session(model="gpt-5", dialect=None) as s:
        s.add("go")
        call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "no JSON"}}
        s.add({"role": "assistant", "content": "So", "tool_calls": [call]})
        s.add({"role": "tool", "tool_call_id": "c1", "content": "done"})
        s.switch("gemini-3-pro", dialect="gemini-interactions")
        request = s.request()
    assert DIALECT.list_faults(request) == []
    assert request["input"][2] == {"type": "function_call", "id": "c1", "name": "run", "arguments": {"_raw": "no JSON"}}  # fmt: skip
    assert request["input"][3] == {"type": "function_result", "call_id": "c1", "name": "run", "result": "done"}  # fmt: skip


def test_an_answer_and_its_usage():
    body = {
        "id": "int_1", "object": "interaction", "status": "incomplete", "steps": [TALK[0], *TALK[1:4]],
        "usage": {"total_input_tokens": 90, "total_cached_tokens": 80, "total_tool_use_tokens": 5, "total_output_tokens": 7, "total_thought_tokens": 3},
    }  # fmt: skip
    said, usage = wire.parse_answer(body, saw=3, asked=7)
    assert said.parts == (Thought("plan", "c2ln", free=True), Text("Looking."), Call("a1", "w", '{"c":"Oslo"}'))  # fmt: skip
    assert (said.stop, said.saw) == ("length", 3)
    assert usage == UsageReported(asked=7, input=95, cache_read=80, output=10, reasoning=3)


def test_a_stream_says_what_the_whole_says():
    events = [
        {
            "event_type": "interaction.created",
            "interaction": {"id": "int_1", "status": "in_progress"},
        }
    ]
    for at, step in enumerate(TALK[1:4]):
        start = {"type": step["type"]} | {key: step[key] for key in ("id", "name") if key in step}
        events.append({"event_type": "step.start", "index": at, "step": start})
        deltas = {
            "thought": [{"type": "thought_summary", "content": {"type": "text", "text": "plan"}}, {"type": "thought_signature", "signature": "c2ln"}],
            "model_output": [{"type": "text", "text": "Loo"}, {"type": "text", "text": "king."}],
            "function_call": [{"type": "arguments_delta", "arguments": '{"c":'}, {"type": "arguments_delta", "arguments": '"Oslo"}'}],
        }[step["type"]]  # fmt: skip
        events += [{"event_type": "step.delta", "index": at, "delta": one} for one in deltas]
        events.append({"event_type": "step.stop", "index": at})
    end = {"event_type": "interaction.completed", "interaction": {"id": "int_1", "status": "requires_action", "usage": {"total_input_tokens": 5}}}  # fmt: skip
    whole = {"object": "interaction", "id": "int_1", "status": "requires_action", "steps": TALK[1:4], "usage": {"total_input_tokens": 5}}  # fmt: skip
    stream = wire.InteractionsAssembly()
    begun = []
    for event in [*events, end]:
        stream.add_event(json.dumps(event))
        begun.append(stream.has_begun)
    assert begun[:2] == [False, True]
    assert stream.done
    assert stream.build_body() == whole
    assert "".join(DIALECT.read_delta(event) for event in events) == "Looking."
    for cut in range(1, len(events)):  # a call whose arguments were cut must never run
        stream = wire.InteractionsAssembly()
        for event in events[:cut]:
            stream.add_event(json.dumps(event))
        said, *_ = wire.parse_answer(stream.build_body(), saw=None, asked=None)
        assert said.stop == "cut"
        assert len([part for part in said.parts if isinstance(part, Call)]) == (cut == len(events))
    stream = wire.InteractionsAssembly()
    stream.add_event('{"event_type":"error","error":{"code":"rate","message":"too many"}}')
    assert stream.fault == {"error": {"code": "rate", "message": "too many"}}


FAULTS = {
    "count": [],
    "blank": " ",
    "type": [{"content": []}],
    "empty": [{"type": "user_input", "content": []}],
    "text": [{"type": "user_input", "content": [{"type": "text"}]}],
    "media": [{"type": "user_input", "content": [{"type": "image"}]}],
    "mixed": [{"type": "text", "text": "x"}, TALK[0]],
    "pairs": TALK[:4],
    "orphan": [TALK[0], TALK[5]],
    "id": [TALK[0], {**TALK[3], "id": ""}],
    "unique": [TALK[0], TALK[3], TALK[3]],
    "name": [TALK[0], {**TALK[3], "name": "1 w"}],
    "object": [TALK[0], {**TALK[3], "arguments": "{}"}],
    "result": [TALK[0], TALK[3], {"type": "function_result", "call_id": "a1"}],
    "last": TALK[:3],
}


@pytest.mark.parametrize("rule", FAULTS)
def test_the_first_judge_can_say_no(rule):
    found = wire.list_faults(FAULTS[rule])
    assert any(one.startswith(f"{rule}:") for one in found), found
    assert wire.list_faults(TALK) == []
    assert wire.list_faults("hi") == wire.list_faults({"type": "text", "text": "hi"}) == []


# Clients' own steps

words = texts.filter(str.strip)
TOMORROW = {"type": "a_step_of_tomorrow", "x": 1}


@st.composite
def inputs(draw):
    contents = st.one_of(words.map(lambda text: {"type": "text", "text": text}), st.just(PIXEL))
    return [{"type": "user_input", "content": draw(st.lists(contents, min_size=1, max_size=3))}]


@st.composite
def turns(draw):
    output = {"type": "model_output", "content": [{"type": "text", "text": draw(words)}]}
    call = {"type": "function_call", "id": "c", "name": "run", "arguments": draw(st.dictionaries(words, words, max_size=2))}  # fmt: skip
    before = draw(st.lists(st.sampled_from([TALK[1], output, TOMORROW]), max_size=3))
    return [*before, draw(st.sampled_from([output, call]))]


@st.composite
def results(draw):
    result = draw(st.sampled_from(["4°", [{"type": "text", "text": "4°"}, PIXEL], {"a": 1}]))
    failed = draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
    return [{"type": "function_result", "call_id": "c", "name": "run", "result": result, **failed}]


messages = st.one_of(inputs(), turns(), results())


def raw(draw, steps):
    return b",".join(draw(written(step)).encode() for step in steps)


def digest(body):
    return form.describe_message(body).digest


@given(messages, st.data())
def test_what_means_nothing_changes_no_digest(steps, data):
    """Key order, thoughts, a text for a list with one, blanks at the ends, the function's name."""
    other = [json.loads(json.dumps(step)) for step in steps if step["type"] != "thought"]
    for step in other:
        content = step.get("content")
        if content and [one["type"] for one in content] == ["text"]:
            step["content"] = f" {content[0]['text']}\n"
        if step["type"] == "function_result":
            del step["name"]
            step["is_error"] = step.get("is_error", False)
    assert digest(raw(data.draw, other)) == digest(raw(data.draw, steps))


def other_words(step):
    for content in step.get("content", ()):
        if content["type"] == "text":
            content["text"] += "x"
            return True
    return False


def other_call(step):
    if step["type"] == "function_call":
        step["arguments"]["more"] = 1
    return step["type"] == "function_call"


def other_result(step):
    if step["type"] == "function_result":
        step["result"] = "other"
    return step["type"] == "function_result"


def failed(step):
    if step["type"] == "function_result":
        step["is_error"] = not step.get("is_error", False)
    return step["type"] == "function_result"


@given(messages, st.sampled_from([other_words, other_call, other_result, failed]))
def test_what_means_something_changes_the_digest(steps, vary):
    other = json.loads(json.dumps(steps))
    assume(any([vary(step) for step in other]))  # noqa: C419 - all of them
    assert digest(json.dumps(other)[1:-1].encode()) != digest(json.dumps(steps)[1:-1].encode())


@given(messages, st.data())
def test_what_is_read_says_the_same_when_it_is_written(steps, data):
    body = raw(data.draw, steps)
    described = form.describe_message(body)
    (event,) = form.read_message(body, described)
    assert event.link == described.digest
    assert digest(form.write_message([item_of(event)])) == described.digest


UNREADABLE = [b"", b"5", b"[]", b"{}", b"\xff", b'{"type":5}', b'{"type":"user_input","content":5}', b'{"type":"user_input","content":[5]}',
              b'{"type":"user_input","content":"x","content":"y"}', b'{"type":"foldline_fold","mark":"x"}',
              b'{"type":"user_input","content":[{"type":"text","text":"a","te\\u0078t":"b"}]}']  # fmt: skip


@pytest.mark.parametrize("body", UNREADABLE)
def test_what_cannot_be_read_is_refused(body):
    with pytest.raises(WireError):
        form.describe_message(body)


def test_inputs_of_every_form_are_one():
    step = {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}
    forms = ["Hi", {"type": "text", "text": "Hi"}, step, {"type": "user_input", "content": "Hi"}, [{"type": "text", "text": "Hi"}]]  # fmt: skip
    bodies = [json.dumps(one).encode() for one in forms]
    assert len({digest(body) for body in bodies}) == 1
    assert [json.loads(form.write_listed(body))["type"] for body in bodies] == ["user_input"] * 5
    for body in bodies:
        (event,) = form.read_message(body, form.describe_message(body))
        assert event.parts == (Text("Hi"),)
        put = form.replace_text(body, event, Item(0, "user", (Text("cut"),), 0, state="masked"))
        assert form.read_words(put) == "cut"


def test_plain_steps_are_kept_in_neutral_parts():
    bodies = [json.dumps(TALK[0]).encode(), json.dumps(TALK[2:4])[1:-1].encode(), json.dumps(TALK[5]).encode()]  # fmt: skip
    events = [
        event for body in bodies for event in form.read_message(body, form.describe_message(body))
    ]
    assert [event.native for event in events] == [None] * 3
    assert [type(event) for event in events] == [UserSaid, ModelSaid, ToolReturned]
    assert events[0].parts[1] == Media("image", mime="image/png", base64="iVBORw0KGgo=")
    assert [form.is_results(body) for body in bodies] == [False, False, True]
    assert [form.is_model_item(body) for body in bodies] == [
        False,
        False,
        False,
    ]  # several are none
    assert form.is_model_item(json.dumps(TALK[1]).encode())


def test_a_turn_that_is_masked_keeps_its_calls_and_their_thoughts():
    body = json.dumps(TALK[1:5])[1:-1].encode()
    (event,) = form.read_message(body, form.describe_message(body))
    item = Item(0, "model", (Text("STUB"), Call("a1", "w"), Call("a2", "w")), 0, state="masked")
    put = json.loads(b"[" + form.replace_text(body, event, item) + b"]")
    assert [step["type"] for step in put] == [
        "model_output",
        "thought",
        "function_call",
        "function_call",
    ]
    assert put[0]["content"][0]["text"] == "STUB"
    assert [step["arguments"] for step in put[2:]] == [{}, {}]


def test_a_mark_stands_for_a_history_and_is_never_sent():
    mark = FoldMark("s", 9, 4, "chain")
    described = form.describe_message(form.write_mark(mark))
    assert (described.role, FoldMark.parse(described.digest)) == ("fold", mark)
    assert wire.list_faults([json.loads(form.write_mark(mark))])


def test_instructions_and_tools_are_read():
    fields = {"system_instruction": b'"S"', "tools": json.dumps([*TOOLS, {"type": "google_search"}]).encode()}  # fmt: skip
    told = form.read_instructions(fields, [])
    assert told == Instructed((Text("S"),), (Tool("w", "d", '{"type":"object"}'), told.tools[1]), replaces=True)  # fmt: skip
    assert told.tools[1].name == "google_search"
    older = form.read_instructions({"system_instruction": b'{"parts":[{"text":"S"}]}'}, [])
    assert older.parts == (Text("S"),)


def test_steps_of_tomorrow_go_back():
    with session() as s:
        s.add("hi")
        s.add({"id": "i", "status": "completed", "steps": [TOMORROW, TALK[2]]})
        s.add("more")
        assert s.request()["input"][1:3] == [TOMORROW, TALK[2]]
        assert Gap("[a_step_of_tomorrow]") in next(iter(wire.parse_message(TOMORROW))).parts


def test_a_list_of_contents_is_one_input():
    """As the SDK takes it: it is cut within, stays a list, and comes back as a step of its own."""
    contents = [{"type": "text", "text": "one"}, PIXEL, {"type": "text", "text": "two"}]
    body = json.dumps({"model": "m", "input": contents}).encode()
    request = read_request(DIALECT, body)
    assert len(request.places) == 1
    raw = request.extract_message(0)
    step = json.dumps({"type": "user_input", "content": contents}).encode()
    assert digest(raw) == digest(step)
    (event,) = form.read_message(raw, form.describe_message(raw))
    put = form.replace_text(raw, event, Item(0, "user", (Text("cut"),), 0, state="masked"))
    assert json.loads(put) == [{"type": "text", "text": "cut"}]
    with pytest.raises(WireError):
        read_request(DIALECT, json.dumps({"model": "m", "input": [*contents, TALK[0]]}).encode())

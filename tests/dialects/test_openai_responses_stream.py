"""Streams of the Responses dialect: put together, they are the response that was not streamed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.log import ModelSaid
from foldline.core.parts import Call, Text
from foldline.dialects import openai_responses as wire
from foldline.errors import WireError

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
           "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]}  # fmt: skip
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "w", "arguments": '{"a":1}', "status": "completed"}  # fmt: skip
USAGE = {"input_tokens": 9, "output_tokens": 4}


def response(*output, **fields):
    return {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "error": None, "usage": USAGE, "output": [*output], **fields}  # fmt: skip


def begun(item):
    """An item as it is added: without what is still to come."""
    empty = {"content": [], "arguments": "", "input": "", "encrypted_content": "partial"}
    return {key: empty.get(key, value) for key, value in item.items()} | {"status": "in_progress"}


def item_events(place, item, *, size=3):
    """The events of one item, its words in pieces."""
    yield {"type": "response.output_item.added", "output_index": place, "item": begun(item)}
    for at, part in enumerate(item.get("content") or ()):
        kind = "output_text" if "text" in part else "refusal"
        text = part.get("text", part.get("refusal"))
        where = {"output_index": place, "content_index": at, "item_id": item.get("id")}
        yield {"type": "response.content_part.added", **where, "part": {"type": kind}}
        for start in range(0, len(text), size):
            yield {"type": f"response.{kind}.delta", **where, "delta": text[start : start + size]}
        yield {"type": f"response.{kind}.done", **where, kind.removeprefix("output_"): text}
    if "arguments" in item:
        for sign in item["arguments"]:
            yield {"type": "response.function_call_arguments.delta", "output_index": place, "delta": sign}  # fmt: skip
    yield {"type": "response.output_item.done", "output_index": place, "item": item}


def events_of(body, *, listed=True, size=3):
    """The events of a response."""
    start = {**body, "status": "in_progress", "output": [], "usage": None}
    found = [{"type": "response.created", "response": start}, {"type": "response.in_progress", "response": start}]  # fmt: skip
    for place, item in enumerate(body["output"]):
        found += item_events(place, item, size=size)
    end = body if listed else {**body, "output": []}
    found.append({"type": f"response.{body['status']}", "response": end})
    return [{**event, "sequence_number": place} for place, event in enumerate(found)]


def assembled(*events):
    made = wire.ResponsesAssembly()
    for event in events:
        made.add_event(json.dumps(event))
    return made


def answer(made):
    return wire.parse_response(made.build_body(), saw=None, asked=None)[0]


texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
messages = st.builds(
    lambda parts: {**MESSAGE, "content": parts},
    st.lists(
        texts.map(lambda text: {"type": "output_text", "text": text, "annotations": []})
        | texts.map(lambda text: {"type": "refusal", "refusal": text}),
        min_size=1,
        max_size=3,
    ),
)
items = messages | st.sampled_from([REASONING, CALL, {"type": "made_up", "id": "mu_1", "x": [1]}])
bodies = st.builds(
    lambda output, status: response(
        *({**item, "id": f"{item['id']}{place}"} for place, item in enumerate(output)),
        status=status,
    ),
    st.lists(items, max_size=5),
    st.sampled_from(["completed", "incomplete", "cancelled"]),
)


@given(bodies, st.booleans(), st.integers(1, 20))
def test_a_stream_is_the_response_that_was_not_streamed(body, listed, size):
    made = assembled(*events_of(body, listed=listed, size=size))
    assert made.done
    assert made.fault is None
    assert made.build_body() == body


@given(bodies, st.data())
def test_a_cut_stream_keeps_its_words(body, data):
    """Wherever it ends, what is done stays, and no half call or thought does."""
    events = events_of(body)
    at = data.draw(st.integers(0, len(events) - 1))
    made = assembled(*events[:at])
    assert not made.done
    cut = made.build_body()
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "cut"})
    finished = [event["item"] for event in events[:at] if event["type"].endswith("item.done")]
    assert cut["output"][: len(finished)] == finished
    for item in cut["output"][len(finished) :]:
        assert (item["type"], item["status"]) == ("message", "incomplete")
        assert all(part.get("text") or part.get("refusal") for part in item["content"])
    said = wire.parse_response(cut, saw=None, asked=None)[-1]
    assert said.stop == "cut"


def test_the_words_of_an_unfinished_message_stay():
    events = events_of(response(REASONING, MESSAGE, CALL), size=3)
    place = next(at for at, event in enumerate(events) if event.get("delta") == "kin")
    said = answer(assembled(*events[: place + 1]))
    assert isinstance(said, ModelSaid)
    assert said.parts[-1] == Text("Lookin")
    said = answer(assembled(*events[:-2]))
    assert not any(isinstance(part, Call) for part in said.parts)


def test_a_whole_text_is_kept_where_pieces_were_lost():
    where = {"output_index": 0, "content_index": 0}
    piece = {"type": "response.output_text.delta", **where, "delta": "Loo"}
    whole = {"type": "response.output_text.done", **where, "text": "Looking."}
    assert answer(assembled(piece, whole)).parts == (Text("Looking."),)
    assert answer(assembled(whole)).parts == (Text("Looking."),)


def test_the_end_of_a_stream_lists_what_was_not_done():
    """Servers that send no event for a whole item, or only the list at the end."""
    whole = {"type": "response.completed", "response": response(MESSAGE, CALL)}
    assert assembled(whole).build_body()["output"] == [MESSAGE, CALL]
    done = {"type": "response.output_item.done", "output_index": 1, "item": CALL}
    assert assembled(done, whole).build_body()["output"] == [MESSAGE, CALL]


def test_items_without_a_place_follow_each_other():
    for fields in ({}, {"output_index": 0}):
        done = [{"type": "response.output_item.done", "item": item, **fields} for item in (REASONING, MESSAGE, CALL)]  # fmt: skip
        end = {"type": "response.completed", "response": response(REASONING, MESSAGE, CALL)}
        assert assembled(*done, end).build_body()["output"] == [REASONING, MESSAGE, CALL]


ERRORS = {
    "event": ({"type": "error", "code": "c", "message": "m", "param": None, "sequence_number": 3}, {"code": "c", "message": "m", "param": None}),
    "nested": ({"type": "error", "error": {"code": "c", "message": "m"}}, {"code": "c", "message": "m"}),
    "bare": ({"error": {"message": "m"}}, {"message": "m"}),
    "text": ({"error": "m"}, {"message": "m"}),
    "failed": ({"type": "response.failed", "response": response(status="failed", error={"code": "c", "message": "m"})}, {"code": "c", "message": "m"}),
    "silent": ({"type": "response.failed", "response": {}}, {"message": "the response failed, and no error was given"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    event, fault = ERRORS[name]
    made = assembled(*events_of(response(MESSAGE))[:-1], event)
    assert made.fault == fault
    assert not made.done
    assert answer(made).stop == "cut"
    assert answer(made).parts == (Text("Looking."),)


def test_what_is_not_known_is_ignored():
    unknown = [{"type": "response.made_up", "item": 5}, {"type": 7}, {"type": "keepalive"}, {}]
    body = response(MESSAGE)
    made = assembled(*unknown, *events_of(body), *unknown)
    made.add_event("[DONE]")
    made.add_event("")
    assert made.build_body() == body


def test_broken_events():
    made = wire.ResponsesAssembly()
    made.add_event('{"type": "response.comp', whole=False)
    for bad in (
        '{"type": "response.comp',
        "5",
        '{"type": "response.completed", "response": 5}',
        '{"type": "response.output_item.done", "item": []}',
        '{"type": "response.output_text.delta", "delta": {}}',
    ):
        with pytest.raises(WireError):
            made.add_event(bad)


def test_a_stream_without_words_is_an_empty_answer():
    assert answer(wire.ResponsesAssembly()) == ModelSaid((), stop="cut")

"""Clients' own items of Responses, where a message may be several: the properties of every form."""

import json
from copy import deepcopy

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from odd_json import texts, written

from foldline.core.item import Item
from foldline.core.log import ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Media, Text
from foldline.dialects.base import get_dialect
from foldline.dialects.client_messages import item_of
from foldline.errors import WireError

form = get_dialect("openai-responses")

words = texts.filter(str.strip)
PICTURE = {"type": "input_image", "image_url": "https://x/y.png?sig=1", "detail": "auto"}


@st.composite
def users(draw):
    """What a user says: one item."""
    parts = [{"type": "input_text", "text": draw(words)}]
    parts += draw(st.lists(st.sampled_from([PICTURE, {"type": "hologram", "x": [1]}]), max_size=2))
    content = draw(words) if draw(st.booleans()) else parts
    return [{"type": "message", "role": "user", "content": content}]


@st.composite
def answers(draw):
    """A turn of the model: reasoning, words, calls of its client's tools and of the provider's."""
    items = []
    for number in range(draw(st.integers(0, 2))):
        sealed = {"summary": [], "encrypted_content": f"gAAA{number}"}
        items.append({"type": "reasoning", "id": f"rs_{number}", **sealed})
    part = {"type": "output_text", "text": draw(words), "annotations": []}
    said = {"id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    items.append({"type": "message", **said, **draw(st.sampled_from([{}, {"phase": "commentary"}]))})  # fmt: skip
    if draw(st.booleans()):
        action = {"type": "search", "query": "x"}
        items.append({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action})  # fmt: skip
    for number in range(draw(st.integers(0, 2))):
        given = draw(st.dictionaries(st.sampled_from(["a", "é"]), texts, max_size=2))
        own = {"id": f"fc_{number}", "call_id": f"c{number}", "status": "completed"}
        items.append({"type": "function_call", **own, "name": "run", "arguments": json.dumps(given)})  # fmt: skip
    return items


@st.composite
def results(draw):
    """What a tool returned: one item."""
    parts = [{"type": "input_text", "text": draw(words)}]
    output = draw(words) if draw(st.booleans()) else parts
    return [{"type": "function_call_output", "call_id": "c1", "output": output}]


messages = st.one_of(users(), answers(), results())


def raw_of(items) -> bytes:
    return b",".join(json.dumps(item).encode() for item in items)


@st.composite
def odd_raw(draw, items):
    """A message's bytes, as an odd client writes it."""
    return b",".join([draw(written(item)).encode() for item in items])


def digest(raw):
    return form.describe_message(raw).digest


# What means nothing


def lose_ids(items):
    for item in items:
        item.pop("status", None)
        if item["type"] != "reasoning":
            item.pop("id", None)


def move_ids(items):
    for number, item in enumerate(items):
        item["id"] = f"other_{number}"


def rethink(items):
    items[:] = [item for item in items if item["type"] != "reasoning"]


def lose_types(items):
    for item in items:
        if item["type"] == "message":
            del item["type"]


def as_list(items):
    for item in items:
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        for name in ("content", "output"):
            if isinstance(item.get(name), str):
                item[name] = [{"type": kind, "text": item[name]}]


def pad(items):
    for item in items:
        for name in ("content", "output"):
            if isinstance(item.get(name), str):
                item[name] = f" \n{item[name]}\t"


def respace(items):
    for item in items:
        if "arguments" in item:
            item["arguments"] = json.dumps(json.loads(item["arguments"]), indent=2)


def add_empty(items):
    for item in items:
        item["created_by"] = "x"
        if "role" not in item:
            item["internal_chat_message_metadata"] = {"a": 1}


def sign_anew(items):
    for item in items:
        for part in item["content"] if isinstance(item.get("content"), list) else ():
            if "image_url" in part:
                part["image_url"] = "https://x/y.png?sig=2"


HARMLESS = [lose_ids, move_ids, rethink, as_list, pad, respace, add_empty, sign_anew, lose_types]


@given(messages, st.sets(st.sampled_from(HARMLESS)), st.data())
def test_what_means_nothing_changes_no_digest(items, variants, data):
    """Ids, status, types of messages, key order, a string for a list, blanks, reasoning, queries."""
    other = deepcopy(items)
    for vary in HARMLESS:
        if vary in variants:
            vary(other)
    one = form.describe_message(data.draw(odd_raw(items)))
    assert form.describe_message(data.draw(odd_raw(other))) == one


# What means something


def other_words(items):
    for item in items:
        for name in ("content", "output"):
            held = item.get(name)
            if isinstance(held, str):
                item[name] += "x"
                return True
            for part in held or ():
                if "text" in part:
                    part["text"] += "x"
                    return True
    return False


def other_call(items):
    for item in items:
        if "call_id" in item:
            item["call_id"] = "other"
            return True
    return False


def other_arguments(items):
    for item in items:
        if "arguments" in item:
            item["arguments"] = json.dumps({**json.loads(item["arguments"]), "more": 1})
            return True
    return False


def other_search(items):
    for item in items:
        if "action" in item:
            item["action"]["query"] += "x"
            return True
    return False


def another_item(items):
    if items[-1]["type"] == "function_call_output" or items[0].get("role") == "user":
        return False
    items.append({"type": "function_call", "call_id": "c9", "name": "run", "arguments": "{}"})
    return True


def other_phase(items):
    for item in items:
        if item.get("role") == "assistant":
            item["phase"] = "final_answer"
            return True
    return False


MEANT = [other_words, other_call, other_arguments, other_search, another_item, other_phase]


@given(messages, st.sampled_from(MEANT), st.data())
def test_what_means_something_changes_the_digest(items, vary, data):
    other = deepcopy(items)
    assume(vary(other))
    assert digest(data.draw(odd_raw(items))) != digest(data.draw(odd_raw(other)))


# Read, and written again


@given(messages, st.data())
def test_what_is_read_says_the_same_when_it_is_written(items, data):
    raw = data.draw(odd_raw(items))
    described = form.describe_message(raw)
    (event,) = form.read_message(raw, described)
    assert (event.more, event.link) == (False, described.digest)
    assert isinstance(event, UserSaid | ModelSaid | ToolReturned)
    assert digest(form.write_message([item_of(event)])) == described.digest


@given(answers())
def test_sealed_reasoning_goes_back_with_the_rest_of_its_turn(items):
    raw = raw_of(items)
    (event,) = form.read_message(raw, form.describe_message(raw))
    again = json.loads(b"[" + form.write_message([item_of(event)]) + b"]")
    if any(item["type"] == "reasoning" for item in items):
        assert again == items
        assert "gAAA" not in (event.native.body if event.native else "")


# Patched


@given(st.one_of(users(), results()), st.data())
def test_a_text_is_replaced_and_nothing_else(items, data):
    raw = data.draw(odd_raw(items))
    (event,) = form.read_message(raw, form.describe_message(raw))
    shown = Item(0, "user", (Text("STUB"),), 0, state="masked")
    put = json.loads(form.replace_text(raw, event, shown))
    name = "output" if "output" in items[0] else "content"
    assert {**put, name: 0} == {**items[0], name: 0}
    if isinstance(items[0][name], str):
        assert put[name] == "STUB"
    else:
        kept = [part for part in items[0][name] if part["type"] == "hologram"]
        assert put[name] == [{"type": "input_text", "text": "STUB"}, *kept]


def test_pictures_stay_where_the_edit_keeps_them():
    raw = raw_of([{"role": "user", "content": [PICTURE, {"type": "input_text", "text": "long"}]}])
    event = UserSaid((Text("long"),))
    cut = Item(0, "user", (Text("cut"), Media("image", url="u")), 0, state="clipped")
    assert form.replace_text(raw, event, cut) == raw.replace(b"long", b"cut")


def test_a_text_alone_stays_one():
    event = UserSaid((Text("long"),))
    assert form.replace_text(b'"long"', event, Item(0, "user", (Text("cut"),), 0)) == b'"cut"'


def test_an_answer_that_is_masked_keeps_its_calls():
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"role": "assistant", "content": "Words"},
        {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
    ]
    (event,) = form.read_message(raw_of(items), form.describe_message(raw_of(items)))
    item = Item(0, "model", (Text("STUB"), Call("c", "run", "{}")), 0, state="masked")
    put = json.loads(b"[" + form.replace_text(raw_of(items), event, item) + b"]")
    assert put == [{"role": "assistant", "content": "STUB"}, items[2]]


@pytest.mark.parametrize(
    "item", [{"type": "compaction_trigger"}, {"type": "item_reference", "id": "msg_1"}, {"id": "x"}]
)
def test_what_stands_for_no_message_is_a_typed_error(item):
    with pytest.raises(WireError):
        form.describe_message(raw_of([item]))


@pytest.mark.parametrize("raw", [b"", b"{},", b"[]", b'{"role":"user","role":"user"}'])
def test_what_is_no_item_is_a_typed_error(raw):
    with pytest.raises(WireError):
        form.describe_message(raw)

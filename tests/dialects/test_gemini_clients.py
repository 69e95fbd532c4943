"""Contents as Gemini's clients write them: what each is known by, what is read, and how an edit is patched in."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from odd_json import texts, written

from foldline.core.item import Item
from foldline.core.log import Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Gap, Media, Text, Tool
from foldline.dialects.base import get_dialect
from foldline.dialects.client_messages import item_of
from foldline.errors import WireError

form = get_dialect("gemini")

words = texts.filter(str.strip)
arguments = st.dictionaries(st.sampled_from(["a", "é", "mime_type", "_raw"]), st.one_of(texts, st.booleans(), st.none()), max_size=3)  # fmt: skip
PIXEL = {"inlineData": {"mimeType": "image/png", "data": "aa+/"}}
FILE = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x/y.pdf?sig=1"}}
TOMORROW = {"aPartOfTomorrow": {"x": 1}}


@st.composite
def users(draw):
    """What a user says."""
    kinds = st.one_of(
        words.map(lambda text: {"text": text}), st.sampled_from([PIXEL, FILE, TOMORROW])
    )
    return {"role": "user", "parts": draw(st.lists(kinds, min_size=1, max_size=4))}


@st.composite
def answers(draw):
    """What a model says, perhaps with thoughts and calls."""
    ids = draw(st.sampled_from([{}, {"id": "c"}]))
    signed = draw(st.sampled_from([{}, {"thoughtSignature": "c2ln"}]))
    thoughts = [{"text": "hm", "thought": True}] * draw(st.integers(0, 1))
    said = [{"text": draw(words)}] * draw(st.integers(0, 1))
    calls = [{"functionCall": {**ids, "name": "run", "args": draw(arguments)}, **signed}] * draw(st.integers(0, 2))  # fmt: skip
    return {"role": "model", "parts": [*thoughts, *said, *calls] or [{"text": "x"}]}


@st.composite
def results(draw):
    """What tools returned, and perhaps words between them."""
    ids = draw(st.sampled_from([{}, {"id": "c"}]))
    said = draw(st.sampled_from([{"output": "4°"}, {"error": "no"}, {"result": {"a": 1}}, {}]))
    media = draw(st.sampled_from([{}, {"parts": [PIXEL]}]))
    more = draw(st.lists(words.map(lambda text: {"text": text}), max_size=2))
    part = {"functionResponse": {**ids, "name": "run", "response": said, **media}}
    return {"role": "user", "parts": draw(st.permutations([part, *more]))}


contents = st.one_of(users(), answers(), results())


def raw(draw, content):
    """A content's bytes, as an odd client writes it."""
    return draw(written(content)).encode()


def digest(body):
    return form.describe_message(body).digest


# What means nothing


def snake(content, _draw):
    """As Google's Python SDK writes it."""
    renamed = {"inlineData": "inline_data", "functionCall": "function_call", "functionResponse": "function_response", "thoughtSignature": "thought_signature"}  # fmt: skip
    content["parts"] = [{renamed.get(name, name): one for name, one in part.items()} for part in content["parts"]]  # fmt: skip
    for part in content["parts"]:
        for inner in ("inline_data", "fileData"):
            if inner in part and "mimeType" in part[inner]:
                part[inner] = {**part[inner]}
                part[inner]["mime_type"] = part[inner].pop("mimeType")


def url_letters(content, _draw):
    for part in content["parts"]:
        for name in ("inlineData", "inline_data"):
            if name in part:
                part[name] = {**part[name], "data": "aa-_"}


def cut_texts(content, draw):
    """A text in two parts; only where it has no thought."""
    parts = []
    for part in content["parts"]:
        if part.keys() == {"text"}:
            at = draw(st.integers(0, len(part["text"])))
            parts += [{"text": part["text"][:at]}, {"text": part["text"][at:]}]
        else:
            parts.append(part)
    content["parts"] = parts


def forget(content, _draw):
    """Thoughts and signatures, which clients that resume drop."""
    kept = [part for part in content["parts"] if not part.get("thought")]
    content["parts"] = [{name: one for name, one in part.items() if "ignature" not in name} for part in kept]  # fmt: skip


def sign_anew(content, _draw):
    for part in content["parts"]:
        if "fileData" in part:
            part["fileData"] = {**part["fileData"], "fileUri": "https://x/y.pdf?sig=2"}


def drop_role(content, _draw):
    if content["role"] == "user":
        del content["role"]


def invent_ids(content, _draw):
    """Ids of calls that had none, as gemini-cli gives them."""
    for at, part in enumerate(content["parts"]):
        for name in ("functionCall", "functionResponse"):
            if name in part:
                part[name] = {**part[name], "id": f"run_{at}"}


HARMLESS = [invent_ids, forget, cut_texts, sign_anew, url_letters, snake, drop_role]


@given(contents, st.sets(st.sampled_from(HARMLESS)), st.data())
def test_what_means_nothing_changes_no_digest(content, variants, data):
    """How fields are named, where texts are cut, thoughts, signatures, key order, queries."""
    other = json.loads(json.dumps(content))
    for vary in HARMLESS:
        if vary in variants:
            vary(other, data.draw)
    assert digest(raw(data.draw, other)) == digest(raw(data.draw, content))


# What means something


def other_words(content):
    for part in content["parts"]:
        if "text" in part and not part.get("thought"):
            part["text"] += "x"
            return True
    return False


def other_arguments(content):
    for part in content["parts"]:
        if "functionCall" in part:
            part["functionCall"]["args"] = {**part["functionCall"]["args"], "more": 1}
            return True
    return False


def other_result(content):
    for part in content["parts"]:
        if "functionResponse" in part:
            part["functionResponse"]["response"] = {"output": "other"}
            return True
    return False


def other_picture(content):
    for part in content["parts"]:
        if "inlineData" in part:
            part["inlineData"]["data"] = "AAAA"
            return True
    return False


def another_part(content):
    content["parts"].append({"text": "and more"})
    return True


def other_role(content):
    content["role"] = "model" if content["role"] == "user" else "user"
    return not any("functionCall" in part or part.get("thought") or "functionResponse" in part for part in content["parts"])  # fmt: skip


@given(contents, st.sampled_from([other_words, other_arguments, other_result, other_picture, another_part, other_role]))  # fmt: skip
def test_what_means_something_changes_the_digest(content, vary):
    other = json.loads(json.dumps(content))
    assume(vary(other))
    assert digest(json.dumps(other).encode()) != digest(json.dumps(content).encode())


UNREADABLE = [
    b"", b"5", b"[]", b"{}", b"\xff", b'{"role":5,"parts":[]}', b'{"role":"user","parts":5}', b'{"role":"user","parts":[5]}',
    b'{"role":"user"}', b'{"role":"user","parts":[],"parts":[]}', b'{"role":"user","parts":[{"text":"a","te\\u0078t":"b"}]}',
    b'{"role":"user","parts":[{"text":"\\ud800"}]}', b'{"role":"user","parts":[{"x":1e999}]}', b'{"role":["x"],"parts":[]}',
    b'{"role":"user","parts":' + b"[" * 999 + b"]" * 999 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("body", UNREADABLE)
def test_what_cannot_be_read_is_refused(body):
    with pytest.raises(WireError):
        form.describe_message(body)


# Read, and written again


@given(contents, st.data())
def test_what_is_read_says_the_same_when_it_is_written(content, data):
    """So a past request can be proven from the log."""
    body = raw(data.draw, content)
    described = form.describe_message(body)
    events = form.read_message(body, described)
    assert [event.more for event in events] == [True] * (len(events) - 1) + [False]
    assert [event.link for event in events] == [""] * (len(events) - 1) + [described.digest]
    again = form.write_message([item_of(event) for event in events])
    assert digest(again) == described.digest


def test_a_plain_content_is_kept_in_neutral_parts():
    said = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "So"}, {"functionCall": {"id": "c", "name": "run", "args": {"a": 1}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "run", "response": {"output": "4°"}}}]},
    ]  # fmt: skip
    bodies = [json.dumps(one).encode() for one in said]
    events = [
        event for body in bodies for event in form.read_message(body, form.describe_message(body))
    ]
    assert [event.native for event in events] == [None] * 3
    assert [(type(event), event.parts) for event in events] == [
        (UserSaid, (Text("Hi"),)),
        (ModelSaid, (Text("So"), Call("call:run", "run", '{"a":1}'))),
        (ToolReturned, (Text("4°"),)),
    ]
    assert [form.is_results(body) for body in bodies] == [False, False, True]
    assert [form.describe_message(body).role for body in bodies] == ["user", "assistant", "user"]


def test_a_content_without_words_is_counted():
    body = b'{"role":"user","parts":[]}'
    (event,) = form.read_message(body, form.describe_message(body))
    assert event.parts == (Gap("[says nothing]"),)


def test_instructions_and_tools_are_read():
    fields = {"systemInstruction": b'{"role":"user","parts":[{"text":"S"}]}', "tools": b'[{"functionDeclarations":[{"name":"f","parameters_json_schema":{"type":"object"}}]}]'}  # fmt: skip
    assert form.read_instructions(fields, []) == Instructed((Text("S"),), (Tool("f", "", '{"type":"object"}'),), replaces=True)  # fmt: skip
    assert form.read_instructions({"systemInstruction": b'"S"', "tools": b"null"}, []).parts == (
        Text("S"),
    )


# Patched


def shown(event, role, text="STUB", *media):
    call_id = getattr(event, "call_id", "")
    return Item(0, role, (Text(text), *media), 0, state="masked", call_id=call_id)


@given(users(), st.data())
def test_a_text_is_replaced_and_nothing_else(content, data):
    """The first text says the stub, other texts and pictures are gone, unknown parts stay."""
    body = raw(data.draw, content)
    (event,) = form.read_message(body, form.describe_message(body))
    put = json.loads(form.replace_text(body, event, shown(event, "user")))
    kept = [part for part in content["parts"] if part == TOMORROW]
    assume(len(kept) < len(content["parts"]))
    assert [part for part in put["parts"] if part != {"text": "STUB"}] == kept
    assert {"text": "STUB"} in put["parts"]


@given(results(), st.data())
def test_a_result_is_replaced_and_nothing_else(content, data):
    body = raw(data.draw, content)
    event = form.read_message(body, form.describe_message(body))[0]
    put = json.loads(form.replace_text(body, event, shown(event, "result")))
    for before, after in zip(content["parts"], put["parts"], strict=True):
        if "functionResponse" not in before:
            assert after == before
            continue
        wanted = {name: one for name, one in before["functionResponse"].items() if name != "parts"}
        name = next(iter(before["functionResponse"]["response"]), "output")
        assert after["functionResponse"] == {**wanted, "response": {name: "STUB"}}


def test_pictures_stay_where_the_edit_keeps_them():
    body = json.dumps({"role": "user", "parts": [PIXEL, {"text": "long"}]}).encode()
    event = UserSaid((Text("long"),))
    kept = form.replace_text(body, event, shown(event, "user", "cut", Media("image", url="u")))
    assert kept == body.replace(b"long", b"cut")
    assert json.loads(form.replace_text(body, event, shown(event, "user", "cut")))["parts"] == [
        {"text": "cut"}
    ]


def test_an_answer_that_is_masked_keeps_its_calls_and_their_signatures():
    call = {
        "functionCall": {"id": "c", "name": "run", "args": {"a": 1}},
        "thoughtSignature": "c2ln",
    }
    body = json.dumps({"role": "model", "parts": [{"text": "Words"}, call]}).encode()
    (event,) = form.read_message(body, form.describe_message(body))
    item = Item(0, "model", (Text("STUB"), Call("c", "run", "{}")), 0, state="masked")
    put = json.loads(form.replace_text(body, event, item))
    assert put["parts"] == [{"text": "STUB"}, {"functionCall": {"id": "c", "name": "run", "args": {}}, "thoughtSignature": "c2ln"}]  # fmt: skip

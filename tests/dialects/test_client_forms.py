"""Clients' own messages: what each is known by, what is read of it, and how an edit is patched in."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from odd_json import numbers, spaces, texts, written

from foldline.core.item import Item
from foldline.core.log import Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Gap, Media, Text
from foldline.dialects.base import DIALECTS, get_dialect, list_dialects, resolve_named_dialect
from foldline.dialects.client_messages import item_of
from foldline.errors import WireError

messages = get_dialect("anthropic")
chat = get_dialect("openai-chat")

BOTH = pytest.mark.parametrize("form", [chat, messages], ids=["openai-chat", "anthropic"])
NAMES = [name for name in DIALECTS if not name.startswith("gemini")]
FORMS = [resolve_named_dialect(name) for name in NAMES]
ALL = pytest.mark.parametrize("form", FORMS, ids=NAMES)
"""What holds wherever messages have a `content`; items of several are in test_client_items.py, contents of Gemini's in
test_gemini_clients.py."""
MARK = {"type": "ephemeral", "ttl": "1h"}
values = st.recursive(
    st.one_of(numbers.map(lambda text: (text,)), texts, st.none(), st.booleans()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
words = texts.filter(str.strip)
unknown = st.dictionaries(st.sampled_from(["x_new", "é", "context"]), values, max_size=2)
text_block = words.map(lambda text: {"type": "text", "text": text})
arguments = st.dictionaries(st.sampled_from(["a", "é", "cache_control", "_raw"]), values, max_size=3)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A message, and in which dialect."""

    form: object
    message: dict


# Messages of both dialects


@st.composite
def heard(draw, form):
    """A block of a user's message."""
    image = {"type": "url", "url": "https://x/y.png?sig=1"}
    kinds = [text_block, values.map(lambda value: {"type": "a_block_of_tomorrow", "x": value})]
    if form is messages:
        kinds += [st.just({"type": "image", "source": image}), st.just({"type": "document", "source": {"type": "file", "file_id": "f"}})]  # fmt: skip
    else:
        kinds += [st.just({"type": "image_url", "image_url": {"url": image["url"], "detail": "low"}}), st.just({"type": "file", "file": {"file_id": "f"}})]  # fmt: skip
    return draw(st.one_of(kinds))


@st.composite
def users(draw, form):
    """What a user says."""
    blocks = draw(st.lists(heard(form), min_size=1, max_size=3))
    content = draw(words) if draw(st.booleans()) else blocks
    return {"role": "user", "content": content}


@st.composite
def answers(draw, form):
    """What a model says, perhaps with thoughts and calls."""
    calls = [(f"c{n}", draw(arguments)) for n in range(draw(st.integers(0, 2)))]
    said = draw(words)
    if form is chat:
        made = [{"id": one, "type": "function", "function": {"name": "run", "arguments": draw(written(given))}} for one, given in calls]  # fmt: skip
        return {"role": "assistant", "content": said, **({"tool_calls": made} if made else {})}
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": "Eq=="}] * draw(st.integers(0, 1))  # fmt: skip
    made = [{"type": "tool_use", "id": one, "name": "run", "input": given} for one, given in calls]
    return {"role": "assistant", "content": [*thoughts, {"type": "text", "text": said}, *made]}


@st.composite
def results(draw, form):
    """What a tool returned."""
    content = draw(words) if draw(st.booleans()) else draw(st.lists(text_block, min_size=1, max_size=2))  # fmt: skip
    if form is chat:
        return {"role": "tool", "tool_call_id": "c1", "content": content}
    failed = draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
    block = {"type": "tool_result", "tool_use_id": "c1", "content": content, **failed}
    said = draw(st.lists(text_block, max_size=2))
    return {"role": "user", "content": draw(st.permutations([block, *said]))}


@st.composite
def cases(draw, *kinds):
    form = draw(st.sampled_from([chat, messages]))
    kind = draw(st.sampled_from(kinds or (users, answers, results)))
    return Case(form, draw(kind(form)))


def values_of(message):
    """A message whose numbers are values."""
    if isinstance(message, tuple):
        return json.loads(message[0])
    if isinstance(message, dict):
        return {key: values_of(one) for key, one in message.items()}
    return [values_of(one) for one in message] if isinstance(message, list) else message


@st.composite
def raw(draw, message):
    """A message's bytes, as an odd client writes it."""
    return draw(written(message)).encode()


def digest(form, body):
    return form.describe_message(body).digest


# What means nothing


def mark_last(message, _draw):
    blocks = message["content"]
    if isinstance(blocks, list):
        blocks[-1] = {**blocks[-1], "cache_control": MARK}


def as_list(message, _draw):
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]


def pad(message, draw):
    """Blanks at the ends of texts."""
    space = draw(st.sampled_from([" ", "\n", "\t\n "]))
    if isinstance(message["content"], str):
        message["content"] += space
        return
    for block in message["content"]:
        if block.get("type") == "text":
            block["text"] = space + block["text"]


def rethink(message, _draw):
    """Reasoning that is left out, or said in another way."""
    if message["role"] != "assistant":
        return
    if isinstance(message["content"], list):
        message["content"] = [one for one in message["content"] if one["type"] != "thinking"]
    else:
        message |= {"reasoning": "hm", "reasoning_content": "hm", "annotations": []}


def respace(message, draw):
    """Arguments that are written otherwise."""
    for call in message.get("tool_calls", ()):
        given = json.loads(call["function"]["arguments"])
        space = draw(st.sampled_from([None, 1]))
        call["function"]["arguments"] = json.dumps(given, indent=space)
        call["index"] = 0


def sign_anew(message, _draw):
    """An address that is signed anew."""
    if isinstance(message["content"], str):
        return
    for block in message["content"]:
        for inner in (block.get("source"), block.get("image_url")):
            if isinstance(inner, dict) and "url" in inner:
                inner["url"] = "https://x/y.png?sig=2"


def nulls(message, _draw):
    message |= {"name": None, "refusal": None} if message["role"] != "system" else {}


HARMLESS = [mark_last, as_list, pad, rethink, respace, sign_anew]


@given(cases(), st.sets(st.sampled_from(HARMLESS)), st.data())
def test_what_means_nothing_changes_no_digest(case, variants, data):
    """Marks, a string for a list with one text, key order, number format, blanks, reasoning, queries."""
    form = case.form
    other = values_of(case.message)
    for vary in HARMLESS:
        if vary in variants:
            vary(other, data.draw)
    if form is chat:
        nulls(other, data.draw)
    one = digest(form, data.draw(raw(case.message)))
    assert digest(form, data.draw(raw(other))) == one
    assert form.describe_message(json.dumps(other).encode()).role == other["role"]


# What means something


def other_words(message):
    content = message["content"]
    if isinstance(content, str):
        message["content"] += "x"
        return True
    for block in content:
        if block.get("type") == "text":
            block["text"] += "x"
            return True
        if isinstance(block.get("content"), str):
            block["content"] += "x"
            return True
    return False


def other_id(message):
    if "tool_call_id" in message:
        message["tool_call_id"] = "other"
        return True
    for call in message.get("tool_calls", ()):
        call["id"] = "other"
        return True
    for block in message["content"] if isinstance(message["content"], list) else ():
        for key in ("tool_use_id", "id", "file_id"):
            if key in block:
                block[key] = "other"
                return True
    return False


def other_arguments(message):
    for call in message.get("tool_calls", ()):
        given = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps({**given, "more": 1})
        return True
    for block in message["content"] if isinstance(message["content"], list) else ():
        if block.get("type") == "tool_use":
            block["input"] = {**block["input"], "more": 1}
            return True
    return False


def other_file(message):
    for block in message["content"] if isinstance(message["content"], list) else ():
        for key in ("source", "file"):
            if "file_id" in block.get(key, {}):
                block[key]["file_id"] = "other"
                return True
    return False


def another_block(message):
    if isinstance(message["content"], list):
        message["content"].append({"type": "text", "text": "and more"})
    return isinstance(message["content"], list)


def failed(message):
    for block in message["content"] if isinstance(message["content"], list) else ():
        if block.get("type") == "tool_result":
            block["is_error"] = not block.get("is_error", False)
            return True
    return False


@given(cases(), st.sampled_from([other_words, other_id, other_arguments, other_file, another_block, failed]), st.data())  # fmt: skip
def test_what_means_something_changes_the_digest(case, vary, data):
    """Words, ids, arguments, files, blocks, whether a call failed."""
    other = values_of(case.message)
    assume(vary(other))
    assert digest(case.form, data.draw(raw(case.message))) != digest(case.form, data.draw(raw(other)))  # fmt: skip


@ALL
def test_who_speaks_is_part_of_it(form):
    said = [form.describe_message(b'{"role":"%s","content":"Hi"}' % one) for one in (b"user", b"assistant", b"system")]  # fmt: skip
    assert len({one.digest for one in said}) == 3
    assert [one.role for one in said] == ["user", "assistant", "system"]


def test_a_developer_speaks_for_the_system():
    one, two = (chat.describe_message(b'{"role":"%s","content":"Hi"}' % who) for who in (b"system", b"developer"))  # fmt: skip
    assert one == two


@pytest.mark.parametrize("content", [b"null", b'""', b"[]", b"-"])
def test_nothing_beside_calls_is_nothing(content):
    calls = b'"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]'
    said = b"" if content == b"-" else b'"content":' + content + b","
    none = chat.describe_message(b'{"role":"assistant",' + calls + b"}")
    assert chat.describe_message(b'{"role":"assistant",' + said + calls + b"}") == none


@BOTH
def test_marks_and_thinking_are_seen(form):
    body = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": MARK}]}
    found = form.describe_message(json.dumps(body).encode())
    assert (found.marked, found.thinks) == (True, False)
    thinks = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "x"}]}  # fmt: skip
    assert messages.describe_message(json.dumps(thinks).encode()).thinks


UNREADABLE = [
    b"", b"5", b"[]", b"{}", b"\xff", b'{"role":5,"content":"x"}', b'{"role":"user","content":5}', b'{"role":"user","content":[5]}',
    b'{"role":"user","content":"\\ud800"}', b'{"role":"user","content":"x","content":"y"}',
    b'{"role":"user","content":[{"type":"text","text":"a","te\\u0078t":"b"}]}', b'{"role":"user","content":"x","y":1e999}',
    b'{"role":"user","content":' + b"[" * 999 + b"]" * 999 + b"}",
]  # fmt: skip


@ALL
@pytest.mark.parametrize("body", UNREADABLE)
def test_what_cannot_be_read_is_refused(form, body):
    with pytest.raises(WireError):
        form.describe_message(body)


# Read, and written again


@given(cases(), st.data())
def test_what_is_read_says_the_same_when_it_is_written(case, data):
    """So a past request can be proven from the log, which keeps a message's own JSON only where it must."""
    form, body = case.form, data.draw(raw(case.message | data.draw(unknown)))
    described = form.describe_message(body)
    events = form.read_message(body, described)
    assert [event.more for event in events] == [True] * (len(events) - 1) + [False]
    assert [event.link for event in events] == [""] * (len(events) - 1) + [described.digest]
    again = form.write_message([item_of(event) for event in events])
    assert digest(form, again) == described.digest


@BOTH
def test_a_plain_message_is_kept_in_neutral_parts(form):
    events = []
    if form is chat:
        call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a":1}'}}
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "4°"}]  # fmt: skip
    else:
        call = {"type": "tool_use", "id": "c", "name": "run", "input": {"a": 1}}
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "So"}, call]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "4°"}]}]  # fmt: skip
    for one in said:
        body = json.dumps(one, separators=(",", ":")).encode()
        events += form.read_message(body, form.describe_message(body))
    assert [event.native for event in events] == [None] * 3
    assert [(type(event), event.parts) for event in events] == [
        (UserSaid, (Text("Hi"),)),
        (ModelSaid, (Text("So"), Call("c", "run", '{"a":1}'))),
        (ToolReturned, (Text("4°"),)),
    ]


@ALL
def test_system_messages_are_asides(form):
    body = b'{"role":"system","content":[{"type":"text","text":"Be brief."}]}'
    described = form.describe_message(body)
    told = Instructed((Text("Be brief."),), aside=True, link=described.digest)
    assert form.read_message(body, described) == [told]
    assert form.read_words(body) == "Be brief."


@ALL
def test_a_message_without_words_is_counted(form):
    body = b'{"role":"user","content":[]}'
    (event,) = form.read_message(body, form.describe_message(body))
    assert event.parts == (Gap("[says nothing]"),)


def test_an_answer_with_too_many_calls_stays_one_message():
    """A session's own would be written in pieces; a client's is left to its provider."""
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "a.b", "arguments": "{}"}} for n in range(129)]  # fmt: skip
    body = json.dumps({"role": "assistant", "content": None, "tool_calls": calls}).encode()
    events = chat.read_message(body, chat.describe_message(body))
    again = chat.write_message([item_of(event) for event in events])
    assert len(json.loads(again)["tool_calls"]) == 129
    assert digest(chat, again) == digest(chat, body)


def test_results_are_told_from_words():
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    text = {"type": "text", "text": "x"}
    said = [[result], [result, text], [text], "x"]
    bodies = [json.dumps({"role": "user", "content": one}).encode() for one in said]
    assert [messages.is_results(one) for one in bodies] == [True, True, False, False]


# Patched


def shown(event, role, text="STUB", *media):
    call_id = getattr(event, "call_id", "")
    return Item(0, role, (Text(text), *media), 0, state="masked", call_id=call_id)


@given(cases(users, results), st.data())
def test_a_text_is_replaced_and_nothing_else(case, data):
    """The first text says the stub, other texts and pictures are gone, every other byte stays."""
    form, body = case.form, data.draw(raw(case.message))
    wanted = values_of(case.message)
    events = form.read_message(body, form.describe_message(body))
    event = events[0]
    put = form.replace_text(body, event, shown(event, "result" if isinstance(event, ToolReturned) else "user"))  # fmt: skip
    result = json.loads(put)
    spoken = result
    if form is messages and isinstance(event, ToolReturned):
        at = next(n for n, one in enumerate(wanted["content"]) if one["type"] == "tool_result")
        spoken, wanted_block = result["content"].pop(at), wanted["content"].pop(at)
        assert result["content"] == wanted["content"]
        assert {**spoken, "content": 0} == {**wanted_block, "content": 0}
        wanted = wanted_block
    assert {**spoken, "content": 0} == {**wanted, "content": 0}
    if isinstance(wanted["content"], str):
        assert spoken["content"] == "STUB"
        at = put.index(b'"STUB"')
        tail = len(put) - at - len('"STUB"')
        assert body.startswith(put[:at])
        assert body.endswith(put[-tail:])
        return
    kept = [one for one in wanted["content"] if one["type"] == "a_block_of_tomorrow"]
    texts_of = [one for one in spoken["content"] if isinstance(one, dict) and one.get("type") == "text"] if isinstance(spoken["content"], list) else []  # fmt: skip
    if any(one["type"] == "text" for one in wanted["content"]):
        assert [one["text"] for one in texts_of] == ["STUB"]
        assert [one for one in spoken["content"] if one not in texts_of] == kept
    elif len(kept) < len(wanted["content"]):
        assert "STUB" in json.dumps(spoken["content"])


@BOTH
def test_pictures_stay_where_the_edit_keeps_them(form):
    picture = {"type": "image", "source": {"type": "url", "url": "u"}} if form is messages else {"type": "image_url", "image_url": {"url": "u"}}  # fmt: skip
    body = json.dumps({"role": "user", "content": [picture, {"type": "text", "text": "long"}]}).encode()  # fmt: skip
    event = UserSaid((Text("long"),))
    assert form.replace_text(body, event, shown(event, "user", "cut", Media("image", url="u"))) == body.replace(b"long", b"cut")  # fmt: skip
    assert json.loads(form.replace_text(body, event, shown(event, "user", "cut")))["content"] == [{"type": "text", "text": "cut"}]  # fmt: skip


def test_results_between_words_stay():
    """Whatever order a client has them in: only its words are replaced."""
    result = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
    blocks = [{"type": "text", "text": "one"}, result, {"type": "text", "text": "two"}]
    body = json.dumps({"role": "user", "content": blocks}).encode()
    put = messages.replace_text(body, UserSaid((Text("one"),)), shown(None, "user"))
    assert json.loads(put)["content"] == [{"type": "text", "text": "STUB"}, result]


@BOTH
def test_a_mark_moves_to_the_text_that_stays(form):
    """A client's mark behind several texts still marks the end of what is left of them."""
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": MARK}]  # fmt: skip
    body = json.dumps({"role": "user", "content": blocks}).encode()
    put = form.replace_text(body, UserSaid((Text("one"),)), shown(None, "user"))
    assert json.loads(put)["content"] == [{"type": "text", "text": "STUB", "cache_control": MARK}]


@BOTH
def test_an_answer_that_is_masked_keeps_its_calls(form):
    if form is chat:
        call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a":1}'}}
        body = {"role": "assistant", "content": "Words", "tool_calls": [call]}
    else:
        call = {"type": "tool_use", "id": "c", "name": "run", "input": {"a": 1}}
        body = {"role": "assistant", "content": [{"type": "text", "text": "Words"}, call]}
    text = json.dumps(body).encode()
    (event,) = form.read_message(text, form.describe_message(text))
    item = Item(0, "model", (Text("STUB"), Call("c", "run", "{}")), 0, state="masked")
    put = form.replace_text(text, event, item)
    (again,) = form.read_message(put, form.describe_message(put))
    assert again.parts == (Text("STUB"), Call("c", "run", "{}"))


@given(answers(messages), st.data())
def test_thinking_is_dropped_and_nothing_else(message, data):
    body = data.draw(raw(message))
    put = messages.drop_thinking(body)
    wanted = values_of(message)
    wanted["content"] = [one for one in wanted["content"] if one["type"] != "thinking"]
    assert json.loads(put) == wanted
    assert digest(messages, put) == digest(messages, body)
    if len(wanted["content"]) == len(message["content"]):
        assert put == body


def test_thinking_alone_stays():
    """A message without any block would be refused."""
    body = b'{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]}'
    assert messages.drop_thinking(body) == body
    assert chat.drop_thinking(body) == body


@BOTH
@pytest.mark.parametrize("mark", [b"", b'{"type":"ephemeral", "ttl":"1h"}'])
def test_a_handoff_is_a_message_with_the_mark_of_what_it_replaces(form, mark):
    items = [
        Item(0, "user", (Text("[handoff: …]"),), 0, state="folded"),
        Item(0, "model", (Text("Understood."),), 0, state="folded"),
    ]
    for count in (1, 2):
        put = form.write_handoff(items[:count], mark)
        found = json.loads(b"[" + put + b"]")
        assert [one["role"] for one in found] == ["user", "assistant"][:count]
        assert put.count(b"cache_control") == bool(mark)
        assert mark in put
        last = found[-1]["content"]
        text = ["[handoff: …]", "Understood."][count - 1]
        assert last == ([{"type": "text", "text": text, "cache_control": json.loads(mark)}] if mark else text)  # fmt: skip


def test_a_begun_answer_is_completed():
    """Anthropic's prefill: what the client began and what came are one text, as it is said again."""
    body = {"content": [{"type": "text", "text": " is 4."}], "stop_reason": "end_turn"}
    prefill = b'{"role":"assistant","content":"The answer"}'
    whole = messages.complete_answer(body, prefill)
    (said,) = messages.encode_answer(whole)
    assert digest(messages, said) == digest(messages, b'{"role":"assistant","content":"The answer is 4."}')  # fmt: skip
    assert chat.complete_answer(body, prefill) is body


@BOTH
def test_instructions_and_tools_are_read(form):
    if form is chat:
        tool = '[{"type":"function","function":{"name":"run","description":"d","parameters":{"type":"object"}}}]'
        told = form.read_instructions({"tools": tool.encode()}, [b'{"role":"system","content":"S"}', b'{"role":"developer","content":[{"type":"text","text":"D"}]}'])  # fmt: skip
        words = (Text("S"), Text("D"))
    else:
        tool = '[{"name":"run","description":"d","input_schema":{"type":"object"}}]'
        told = form.read_instructions({"tools": tool.encode(), "system": b'[{"type":"text","text":"S"}]'}, [b'{"role":"system","content":"D"}'])  # fmt: skip
        words = (Text("S"), Text("D"))
    assert told.parts == words
    assert [(one.name, one.description) for one in told.tools] == [("run", "d")]
    assert told.replaces
    assert form.read_instructions({"tools": b"null"}, []) == Instructed(replaces=True)


@given(spaces)
def test_unreadable_tools_are_refused(space):
    for form in (dialect for dialect in list_dialects()):
        for tools in ("555", '{"a":1}', "[5]", "[{}]"):
            with pytest.raises(WireError):
                form.read_instructions({"tools": (tools + space).encode()}, [])


def test_the_context_that_qwen_tells_anew_is_the_same_message():
    """It is rewritten, or left out, when a conversation is continued; what a user says is never taken for it."""

    def digest(*texts):
        content = [{"type": "text", "text": text} for text in texts]
        raw = json.dumps({"role": "user", "content": content}).encode()
        return chat.describe_message(raw).digest

    told = "<system-reminder>\nThis is the Qwen Code. We are setting up the context for our chat.\nToday's date is {}.\n</system-reminder>"
    skills = "<system-reminder>\nSkills: {}\n</system-reminder>"
    assert digest(told.format("Monday")) == digest(told.format("Tuesday"))
    first, second = (digest(skills.format(n), told.format(n)) for n in (1, 2))
    assert first == second
    assert digest(told.format("Monday"), "Hello.") == digest(told.format("Tuesday"), "Hello.")
    assert digest(skills.format(1), told.format("Monday"), skills.format(2), "Hello.") == digest(
        "Hello."
    )
    assert digest(told.format("Monday"), "Hello.") != digest(told.format("Monday"), "Bye.")
    assert digest(skills.format(1) + "Hello.") != digest(skills.format(2) + "Hello.")
    assert digest(skills.format(1)) != digest(skills.format(2))

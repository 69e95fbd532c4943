"""Streams of the chat dialect: put together, they are the completion that was not streamed."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldline.core.log import ModelSaid
from foldline.core.parts import Call, Text, Thought
from foldline.dialects import openai_chat as wire
from foldline.dialects.base import get_dialect
from foldline.dialects.sse import SseReader
from foldline.errors import WireError


def delta(finish=None, *, index=0, **fields):
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def call(place=None, name=None, arguments=None, **fields):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value}
    return fields | ({} if place is None else {"index": place}) | {"function": function}


def assembled(*chunks, end="[DONE]"):
    made = wire.ChatAssembly()
    for chunk in chunks:
        made.add_event(json.dumps(chunk))
    if end:
        made.add_event(end)
    return made


def answer(made):
    return wire.parse_completion(made.build_body(), saw=None, asked=None)[0]


W = '{"c":"Oslo"}'
CALLS = ModelSaid((Call("a", "w", W), Call("b", "w", "{}")))
QUIRKS = {
    "as documented": [
        delta(role="assistant", content=""), delta(tool_calls=[call(0, "w", id="a", type="function")]),
        delta(tool_calls=[call(0, arguments='{"c":')]), delta(tool_calls=[call(0, arguments='"Oslo"}')]),
        delta(tool_calls=[call(1, "w", "{}", id="b")]), delta("tool_calls"),
    ],
    "no index": [
        delta(tool_calls=[call(None, "w", id="a")]), delta(tool_calls=[call(arguments='{"c":')]),
        delta(tool_calls=[call(arguments='"Oslo"}')]), delta(tool_calls=[call(None, "w", "{}", id="b")]), delta("stop"),
    ],
    "whole calls in one chunk": [delta("tool_calls", tool_calls=[call(None, "w", W, id="a"), call(None, "w", "{}", id="b")])],
    "id and name repeated": [
        delta(tool_calls=[call(0, "w", '{"c":', id="a")]), delta(tool_calls=[call(0, "w", '"Oslo"}', id="a")]),
        delta(tool_calls=[call(1, "w", "{}", id="b")]), delta("tool_calls"),
    ],
    "every index 0": [delta(tool_calls=[call(0, "w", W, id="a")]), delta(tool_calls=[call(0, "w", "{}", id="b")]), delta("stop")],
    "a new id in every chunk": [
        delta(tool_calls=[call(0, "w", id="a")]), delta(tool_calls=[call(0, arguments=W, id="z")]),
        delta(tool_calls=[call(1, "w", "{}", id="b")]), delta("tool_calls"),
    ],
    "stop though there are calls": [delta("stop", tool_calls=[call(0, "w", W, id="a"), call(1, "w", "{}", id="b")])],
    "arguments as objects": [delta("stop", tool_calls=[call(0, "w", {"c": "Oslo"}, id="a"), call(1, "w", "{}", id="b")])],
    "Azure": [
        {"choices": [], "prompt_filter_results": []}, delta(tool_calls=[call(0, "w", W, id="a"), call(1, "w", "{}", id="b")]),
        {"choices": [{"index": 0, "finish_reason": "tool_calls", "content_filter_results": {}}]},
        {"choices": [{"index": 0, "finish_reason": None}]},
    ],
    "several answers": [
        delta(index=1, content="other"), delta("stop", tool_calls=[call(0, "w", W, id="a"), call(1, "w", "{}", id="b")]),
        delta("length", index=1, tool_calls=[call(0, "v", "{}", id="q")]),
    ],
    "obfuscated": [delta("stop", tool_calls=[call(0, "w", W, id="a"), call(1, "w", "{}", id="b")]) | {"obfuscation": "xY"}],
}  # fmt: skip


@pytest.mark.parametrize("quirk", QUIRKS)
def test_quirks(quirk):
    """WIRE §6: whatever a server makes of deltas, these are two calls."""
    made = assembled(*QUIRKS[quirk])
    assert made.done
    assert answer(made) == CALLS
    assert made.build_body()["choices"][0]["finish_reason"] == "tool_calls"
    assert "obfuscation" not in made.build_body()


def test_a_finish_reason_ends_a_stream_without_marker():
    made = assembled(delta(content="Hi"), delta("length"), end=None)
    assert made.done
    assert answer(made) == ModelSaid((Text("Hi"),), stop="length")


def test_a_cut_stream_keeps_words_and_drops_what_was_being_written():
    """R-24's neighbour: half a call is no call; a whole one before it is."""
    made = assembled(
        delta(reasoning_content="hm", content="Loo"), delta(content="king"),
        delta(tool_calls=[call(0, "w", W, id="a")]), delta(tool_calls=[call(1, "w", '{"c":', id="b")]), end=None,
    )  # fmt: skip
    assert not made.done
    said = answer(made)
    assert (said.parts, said.stop) == ((Thought("hm"), Text("Looking"), Call("a", "w", W)), "cut")
    none = assembled(delta(content="x"), delta(tool_calls=[call(0, "w", id="a")]), end=None)
    assert answer(none) == ModelSaid((Text("x"),), stop="cut")
    assert answer(assembled(end=None)) == ModelSaid((), stop="cut")


def test_half_a_chunk_at_the_end_is_a_cut_and_no_error():
    lines, made = SseReader(), wire.ChatAssembly()
    for sent in lines.feed(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: {"cho'):
        made.add_event(sent.data, whole=sent.whole)
    for sent in lines.close():
        made.add_event(sent.data, whole=sent.whole)
    assert answer(made) == ModelSaid((Text("Hi"),), stop="cut")


@pytest.mark.parametrize(
    ("chunk", "fault"),
    [
        ({"error": {"message": "Overloaded", "code": 502}}, {"message": "Overloaded", "code": 502}),
        ({"error": "no"}, {"message": "no"}),
        ({"object": "error", "message": "old"}, {"object": "error", "message": "old"}),
        ({"error": {"code": 1}} | delta("error", content=""), {"code": 1}),
    ],
)
def test_an_error_in_the_stream(chunk, fault):
    made = assembled(delta(content="Hi"), chunk)
    assert (made.fault, made.done) == (fault, False)
    assert answer(made) == ModelSaid((Text("Hi"),), stop="cut")


@pytest.mark.parametrize(
    "chunk", ["{", "5", '{"choices":[{"delta":{"content":5}}]}', '{"choices":7}']
)
def test_what_is_no_chunk_is_an_error_with_its_place(chunk):
    with pytest.raises(WireError) as fault:
        wire.ChatAssembly().add_event(chunk)
    assert fault.value.path == ("$.choices[0].delta.content" if "content" in chunk else "$.choices" if "7" in chunk else "$")  # fmt: skip


def test_legacy_calls_pair_with_their_results():
    made = assembled(delta(function_call={"name": "w", "arguments": ""}), delta(function_call={"arguments": W}), delta("function_call"))  # fmt: skip
    assert answer(made) == ModelSaid((Call("function:w", "w", W),))
    assert made.build_body()["choices"][0]["message"]["function_call"] == {
        "name": "w",
        "arguments": W,
    }


def test_lists_of_parts_and_details_grow():
    """Mistral's content, OpenRouter's details."""
    made = assembled(
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]),
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}]),
        delta(content=[{"type": "text", "text": "A"}]), delta(content="B"),
        delta(reasoning_details=[{"type": "reasoning.text", "text": "a", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.text", "text": "b", "signature": "s", "index": 0}]), delta("stop"),
    )  # fmt: skip
    message = made.build_body()["choices"][0]["message"]
    assert message["content"][1] == {"type": "text", "text": "AB"}
    assert message["reasoning_details"] == [{"type": "reasoning.text", "text": "ab", "signature": "s", "index": 0}]  # fmt: skip
    assert answer(made).parts == (Thought("hm"), Text("AB"))


letters = st.text("abc é😀", min_size=1).filter(str.strip)
contents = st.lists(
    letters | st.lists(st.builds(dict, type=st.just("text"), text=letters), max_size=3)
)


@given(contents)
@example([[{"type": "text", "text": "hi"}]])
def test_a_listener_hears_all_the_text_that_the_answer_has(said):
    """Whether a server streams content as texts or as lists of parts."""
    chunks = [delta(content=one) for one in said]
    dialect = get_dialect(wire.DIALECT)
    heard = "".join(map(dialect.read_delta, chunks))
    parts = answer(assembled(*chunks, delta("stop"))).parts
    assert heard == "".join(part.text for part in parts if isinstance(part, Text))


@pytest.mark.parametrize(
    "content",
    [[{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}], [5, None, "x"], [{"text": 5}], {"text": "x"}, 5],
)  # fmt: skip
def test_what_is_no_text_is_not_heard(content):
    dialect = get_dialect(wire.DIALECT)
    assert dialect.read_delta(delta(content=content)) == ""
    assert dialect.read_delta(delta(index=1, content=[{"type": "text", "text": "other"}])) == ""


# Whole completions, cut into deltas and bytes at random.

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
names = st.text("abc_", min_size=1, max_size=8)
json_texts = st.recursive(
    st.none() | st.integers(-(2**60), 2**60) | words, lambda inner: st.lists(inner, max_size=3), max_leaves=4
).map(lambda value: json.dumps({"v": value}))  # fmt: skip


@st.composite
def completions(draw):
    calls = draw(st.lists(st.tuples(names, json_texts, st.booleans()), max_size=3))
    message = {"role": "assistant", "content": draw(st.none() | words.filter(bool))}
    for name in draw(st.sampled_from([(), ("refusal",), ("reasoning_content",), ("reasoning",)])):
        message[name] = draw(words.filter(bool))
    made = [
        {"id": f"c{at}", "type": "custom", "custom": {"name": name, "input": text}} if custom
        else {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": text}}
        for at, (name, text, custom) in enumerate(calls)
    ]  # fmt: skip
    if made:
        message["tool_calls"] = made
    finish = draw(st.sampled_from(["tool_calls" if made else "stop", "length", "content_filter"]))
    counts = st.none() | st.integers(0, 10_000)
    usage = {
        "prompt_tokens": draw(counts),
        "prompt_tokens_details": {"cached_tokens": draw(counts)},
    }
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "created": 5, "model": "m", "choices": [choice]}
    return body | draw(st.sampled_from([{}, {"usage": usage}]))


def pieces(draw, text):
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)))
    return [text[lo:hi] for lo, hi in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def chunks_of(draw, body):
    head = {key: body[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}  # fmt: skip
    message = body["choices"][0]["message"]
    deltas = [{"role": "assistant", "content": draw(st.sampled_from([None, ""])) if message["content"] else None}]  # fmt: skip
    for key in ("reasoning_content", "reasoning", "content", "refusal"):
        deltas += [{key: piece} for piece in pieces(draw, message.get(key) or "") if message.get(key)]  # fmt: skip
    for at, made in enumerate(message.get("tool_calls", ())):
        kind, wrote = ("custom", "input") if "custom" in made else ("function", "arguments")
        first, *rest = pieces(draw, made[kind][wrote])
        opening = made | {"index": at, kind: {"name": made[kind]["name"], wrote: first}}
        deltas += [{"tool_calls": [opening]}]
        deltas += [{"tool_calls": [{"index": at, kind: {wrote: piece}}]} for piece in rest]
    made = [head | {"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]  # fmt: skip
    made.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": body["choices"][0]["finish_reason"]}]})  # fmt: skip
    return [*made, head | {"choices": [], "usage": body["usage"]}] if "usage" in body else made


@given(completions(), st.data())
def test_a_streamed_completion_is_the_whole_one(body, data):
    """However it is cut into deltas and bytes, the events are the same."""
    ascii_only = data.draw(st.booleans())
    texts = [json.dumps(chunk, ensure_ascii=ascii_only) for chunk in chunks_of(data.draw, body)]
    stream = b"".join(b"data: %b\r\n\r\n" % text.encode() for text in (*texts, "[DONE]"))
    lines, made, last = SseReader(), wire.ChatAssembly(), 0
    for cut in [*sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8))), len(stream)]:
        for sent in lines.feed(stream[last:cut]):
            made.add_event(sent.data, whole=sent.whole)
        last = cut
    assert made.done
    whole = wire.parse_completion(body, saw=1, asked=2)
    assert wire.parse_completion(made.build_body(), saw=1, asked=2) == whole


@given(completions(), st.data())
def test_a_stream_cut_anywhere_is_an_answer(body, data):
    """No half call, whatever the place; the words are a beginning of the whole ones."""
    texts = [json.dumps(chunk) for chunk in chunks_of(data.draw, body)]
    stream = b"".join(b"data: %b\n\n" % text.encode() for text in texts)
    end = data.draw(st.integers(0, len(stream)))
    lines, made = SseReader(), wire.ChatAssembly()
    for sent in (*lines.feed(stream[:end]), *lines.close()):
        made.add_event(sent.data, whole=sent.whole)
    said = answer(made)
    assert said.stop == "cut" or made.done
    whole = wire.parse_completion(body, saw=None, asked=None)[0]
    calls = [part for part in whole.parts if isinstance(part, Call)]
    kept = [part for part in said.parts if isinstance(part, Call)]
    assert kept == calls[: len(kept)]

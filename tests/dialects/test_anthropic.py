"""Anthropic's dialect: exact in both directions, refused where the provider would refuse."""

import json
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core import rules
from foldline.core.log import Instructed, ModelSaid, Opened, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Media, Text, Thought
from foldline.core.request import render
from foldline.dialects import anthropic as wire
from foldline.dialects.anthropic.write import MOST
from foldline.errors import WireError
from foldline.testing import calls, model, result, user, view_of

WEATHER = [
    {"role": "user", "content": "Weather in Oslo and Rome?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "", "signature": "EqQB"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "toolu_1", "name": "w", "input": {"c": "Oslo"}},
            {"type": "tool_use", "id": "toolu_2", "name": "w", "input": {"c": "Rome"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {"type": "text", "text": "4°"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"},
                    },
                ],
            },
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": "no such city",
                "is_error": True,
            },
            {"type": "text", "text": "Be brief."},
        ],
    },
]


def events_of(messages):
    return [Opened("anthropic/claude-x"), *(e for m in messages for e in wire.parse_message(m))]


def sent(events, **parameters):
    view = view_of(events)
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    return json.loads(wire.encode_request(render(view), {"max_tokens": 10, **parameters}))


def unmarked(value):
    """A request without its cache marks."""
    if isinstance(value, dict):
        return {key: unmarked(one) for key, one in value.items() if key != "cache_control"}
    return [unmarked(one) for one in value] if isinstance(value, list) else value


def marks(body):
    every = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        every += message["content"] if isinstance(message["content"], list) else []
    return [place for place, block in enumerate(every) if "cache_control" in block]


def lists(messages):
    """One text alone may be written as a string or, where it is marked, as a list."""
    return [
        {**m, "content": [{"type": "text", "text": m["content"]}]}
        if isinstance(m["content"], str)
        else m
        for m in messages
    ]


def test_goes_back_as_it_came():
    """Text, thoughts, parallel calls, pictures and failures in results, words behind them."""
    events = events_of(WEATHER)
    assert [type(event) for event in events[1:]] == [
        UserSaid,
        ModelSaid,
        ToolReturned,
        ToolReturned,
        UserSaid,
    ]
    assert events[2].parts[0] == Thought("", "EqQB")
    assert events[3].parts[1] == Media("image", mime="image/png", base64="iVBO")
    assert not events[4].ok
    body = sent(events)
    assert lists(unmarked(body["messages"])) == lists(WEATHER)
    assert body["model"] == "claude-x"
    assert not wire.list_faults(body["messages"])


UNKNOWN = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}}
BLOCKS = [
    {"type": "text", "text": "words"},
    {"type": "text", "text": "cited", "citations": [{"type": "char_location", "cited_text": "x"}]},
    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}, "title": "t"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}, "context": "c"},
    {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
]  # fmt: skip
ANSWERS = [
    {"type": "text", "text": "said"},
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "opaque"},
    {"type": "tool_use", "id": "toolu_a", "name": "run", "input": {"b": 1, "a": [1.5, None, "ü"]}},
    {"type": "tool_use", "id": "toolu_b", "name": "run", "input": {}},
    UNKNOWN,
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "a_block_of_tomorrow", "x": {"y": [1, 2]}},
]


@st.composite
def talks(draw):
    """Conversations that a client may send: turns, every call answered at once."""
    messages = []
    for _ in range(draw(st.integers(1, 4))):
        words = draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3))
        alone = draw(st.booleans()) and words[0] == BLOCKS[0]
        messages.append({"role": "user", "content": "words" if alone else words})
        said = draw(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5))
        place = len(messages)
        said = [
            {**one, "id": f"{one['id']}_{place}_{n}"} if one["type"] == "tool_use" else one
            for n, one in enumerate(said)
        ]
        if not any(one["type"] in ("text", "tool_use") for one in said):
            said.append(ANSWERS[0])
        messages.append({"role": "assistant", "content": said})
        made = [one["id"] for one in said if one["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": one, **draw(st.sampled_from(({"content": "out"}, {"content": [{"type": "text", "text": "out"}]}, {"content": "no", "is_error": True}, {})))}
            for one in made
        ]  # fmt: skip
        if results:
            messages.append(
                {"role": "user", "content": results + draw(st.sampled_from(([], [BLOCKS[0]])))}
            )
            messages.append({"role": "assistant", "content": "done"})
    messages.append({"role": "user", "content": "and now?"})
    return messages


@given(talks())
def test_every_conversation_goes_back_as_it_came(messages):
    """Unedited ones are exact, unknown blocks and fields included; and valid."""
    body = sent(events_of(messages))
    assert lists(unmarked(body["messages"])) == lists(messages)
    assert len(marks(body)) <= MOST
    wrong = wire.list_faults(body["messages"])
    assert not [one for one in wrong if not one.startswith(("block", "server"))]


def test_ids_are_unique_in_the_whole_request():
    """Logs of other dialects repeat ids across groups, and use signs that are refused here."""
    events = [Opened("m"), user("go")]
    for _ in range(3):
        events += [calls("call 1", "b"), result("call 1"), result("b"), model("ok"), user("more")]
    body = sent(events)
    assert not wire.list_faults(body["messages"])
    uses = [b["id"] for m in body["messages"] for b in m["content"] if isinstance(b, dict) and b["type"] == "tool_use"]  # fmt: skip
    assert len({*uses}) == 6
    assert uses[1] == "b"


def test_arguments_that_are_no_object():
    """Wrapped under one key, and read back as they were."""
    for arguments in ("not json", "[1]", "", '{"a": 1}'):
        events = [Opened("m"), user("go"), ModelSaid((Call("a", "f", arguments),)), result("a")]
        body = sent(events)
        assert not wire.list_faults(body["messages"])
        (again,) = wire.parse_message(unmarked(body["messages"][1]))
        assert json.loads(again.parts[0].arguments or "{}") == json.loads(arguments) if arguments.startswith("{") else again.parts[0].arguments == (arguments or "{}")  # fmt: skip


def test_thoughts_of_others_are_left_out():
    """R-24: a thought goes back as it came, to whom it came from, or not at all."""
    events = [Opened("m"), user("go"), model("yes", thought="from elsewhere"), user("more")]
    assert "elsewhere" not in json.dumps(sent(events))


def test_begins_with_the_user_and_ends_as_it_is():
    """What must follow an answer is in the log: an encoder says nothing by itself at the end."""
    body = sent([Opened("m"), model("Hello!")])
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"]
    assert not wire.list_faults(body["messages"], prefill=True)


def test_marks_follow_a_long_step():
    """At most four; the end has one, and one stands within the look-back of it."""
    tools = wire.parse_tool({"name": "run", "input_schema": {"type": "object"}})
    events = [Opened("m"), Instructed((Text("Be brief."),), (tools,)), user("go")]
    for n in range(30):
        events += [calls(f"c{n}"), result(f"c{n}")]
        body = sent(events)
        places = marks(body)
        assert len(places) <= MOST
        every = 2 + sum(
            len(m["content"]) if isinstance(m["content"], list) else 1 for m in body["messages"]
        )
        assert places[-1] == every - 1
        assert places[0] == 1
        if n > 12:
            assert every - 1 - places[-2] == 19
    assert not wire.list_faults(body["messages"], tools=body["tools"], system=body["system"])


def test_the_clients_own_marks_in_messages_are_taken_out():
    """It moves them with every request: kept, they would pile up past the limit."""
    marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    (event,) = wire.parse_message(
        {"role": "user", "content": [marked, {"type": "text", "text": "y"}]}
    )
    assert event == UserSaid((Text("x"), Text("y")))
    inner = {"type": "tool_result", "tool_use_id": "a", "content": [marked], "x_new": 1}
    (event,) = wire.parse_message({"role": "user", "content": [inner]})
    assert "cache_control" not in event.native.body
    assert '"x_new":1' in event.native.body


def test_usage_counts_what_stands_beside():
    """R-43: here cached tokens are not inside the input."""
    body = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 25, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 75, "output_tokens": 7},
    }  # fmt: skip
    said, counted = wire.parse_answer(body, saw=3, asked=4)
    assert (said.stop, said.saw) == ("length", 3)
    assert counted == UsageReported(4, input=1_000, cache_read=900, cache_write=75, output=7)
    body["usage"] = {"output_tokens": 7}
    assert wire.parse_answer(body, saw=3, asked=4)[1] == UsageReported(4, output=7)


# Streams.


def streamed(answer, random):
    """The events by which a server would have streamed an answer."""
    start = {
        **answer,
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(answer["content"]):
        deltas, first = [], dict(block)
        for kind, field, name in (
            ("text", "text", "text_delta"),
            ("thinking", "thinking", "thinking_delta"),
        ):
            if block["type"] == kind:
                deltas = [{"type": name, field: piece} for piece in pieces(block[field], random)]
                first[field] = ""
        if block["type"] == "thinking":
            deltas.append({"type": "signature_delta", "signature": first.pop("signature")})
        if block["type"] == "tool_use":
            deltas = [
                {"type": "input_json_delta", "partial_json": p}
                for p in pieces(json.dumps(block["input"]), random)
            ]
            first["input"] = {}
        yield {"type": "content_block_start", "index": index, "content_block": first}
        yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": answer["stop_reason"]},
        "usage": answer["usage"],
    }
    yield {"type": "message_stop"}


def pieces(text, random):
    while text:
        size = random.randint(1, 4)
        yield text[:size]
        text = text[size:]


@given(
    st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5),
    st.integers(0, 99),
    st.integers(0, 60),
)
def test_a_stream_is_the_answer(content, seed, upto):
    """Whole, it is what a server that does not stream gives; cut, no half call and no half thought."""
    answer = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 9}}  # fmt: skip
    events = list(streamed(answer, Random(seed)))
    whole, cut = wire.MessagesAssembly(), wire.MessagesAssembly()
    for event in events:
        whole.add_event(json.dumps(event))
    assert whole.done
    assert wire.parse_answer(whole.build_body(), saw=0, asked=1) == wire.parse_answer(
        answer, saw=0, asked=1
    )
    for event in events[:upto]:
        cut.add_event(json.dumps(event))
    if not cut.done:
        said = wire.parse_answer(cut.build_body(), saw=0, asked=1)[0]
        assert said.stop == "cut"
        for part in said.parts:
            assert (
                not isinstance(part, Call | Thought)
                or part in wire.parse_answer(answer, saw=0, asked=1)[0].parts
            )


def test_an_error_in_a_stream():
    talk = wire.MessagesAssembly()
    talk.add_event('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')
    assert talk.fault == {"type": "overloaded_error", "message": "Overloaded"}
    assert not talk.done


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"role": "user"}, "$"),
        ({"role": "user", "content": 5}, "$.content"),
        ({"role": "user", "content": [5]}, "$.content[0]"),
        ({"role": "wizard", "content": "x"}, "$.role"),
    ],
)
def test_errors_name_the_place(given, path):
    with pytest.raises(WireError) as caught:
        wire.parse_message(given)
    assert caught.value.path == path
    assert msgspec.json.encode(given)

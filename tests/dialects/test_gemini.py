"""Gemini's `generateContent` (M-14): contents and answers, read and written again."""

import json

import pytest
from google.genai import errors
from hypothesis import assume, given
from hypothesis import strategies as st

import foldline
from foldline.core.item import Item
from foldline.core.log import ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Gap, Media, Text, Thought
from foldline.dialects import gemini as wire
from foldline.dialects.base import get_dialect
from foldline.dialects.gemini.content_parts import rename_fields
from foldline.dialects.provider_errors import classify_error, of_exception
from foldline.errors import WireError

DIALECT = get_dialect("gemini")
CALLS = [{"id": "a1", "name": "w", "args": {"c": "Oslo"}}, {"id": "a2", "name": "w", "args": {"c": "Rome"}}]  # fmt: skip
TALK = [
    {"role": "user", "parts": [{"text": "Weather?"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]},
    {"role": "model", "parts": [
        {"text": "plan", "thought": True}, {"text": "Looking."},
        {"functionCall": CALLS[0], "thoughtSignature": "Q2xhdWRl"}, {"functionCall": CALLS[1]}]},
    {"role": "user", "parts": [
        {"functionResponse": {"id": "a1", "name": "w", "response": {"output": "4°"}}},
        {"functionResponse": {"id": "a2", "name": "w", "response": {"error": "no such city"}}}]},
]  # fmt: skip
TOOLS = [{"functionDeclarations": [{"name": "w", "description": "d", "parametersJsonSchema": {"type": "object", "properties": {}}}]}]  # fmt: skip


def without_ids(talk):
    """The same as a server writes it that gives calls no ids."""
    bare = json.loads(json.dumps(talk))
    for content in bare:
        for part in content["parts"]:
            for kind in ("functionCall", "functionResponse"):
                part.get(kind, {}).pop("id", None)
    return bare


def in_snake_case(value):
    """The same as Google's SDK dumps its objects."""
    if isinstance(value, list):
        return [in_snake_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    snake = {name: "".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in value}
    own = ("args", "response", "parametersJsonSchema")
    return {snake[name]: one if name in own else in_snake_case(one) for name, one in value.items()}


def session(**options):
    return foldline.open(":memory:", **{"model": "gemini-3-pro", **options})


@pytest.mark.parametrize("talk", [TALK, without_ids(TALK)], ids=["ids", "no ids"])
@pytest.mark.parametrize("spelled", [lambda same: same, in_snake_case], ids=["camel", "snake"])
def test_a_conversation_goes_back_as_it_came(talk, spelled):
    with session(system="S", tools=spelled(TOOLS)) as s:
        for content in spelled(talk):
            s.add(content)
        request = s.request(config={"temperature": 0})
    assert request["contents"] == talk
    assert request["config"] == {"temperature": 0, "systemInstruction": {"parts": [{"text": "S"}]}, "tools": TOOLS}  # fmt: skip
    assert DIALECT.list_faults(request) == []


@pytest.mark.parametrize("talk", [TALK, without_ids(TALK)], ids=["ids", "no ids"])
def test_a_session_goes_through_all_dialects_and_comes_back_byte_for_byte(talk):
    with session(system="S", tools=TOOLS) as s:
        for content in talk:
            s.add(content)
        first = s.request()
        for model, dialect in [("claude-sonnet-5", None), ("gpt-5", None), ("gpt-5", "openai-responses"), ("gemini-3-pro", None)]:  # fmt: skip
            s.switch(model, dialect=dialect)
            between = s.request()
            assert "Oslo" in json.dumps(between)
        assert between == first


def test_calls_without_ids_are_told_apart_by_name_and_place():
    made, *_ = wire.parse_message(without_ids(TALK)[1])
    results = wire.parse_message(without_ids(TALK)[2])
    assert [part.id for part in made.parts if isinstance(part, Call)] == ["call:w", "call:w#2"]
    assert [one.call_id for one in results] == ["call:w", "call:w#2"]
    assert [one.ok for one in results] == [True, False]


def test_results_go_in_the_order_of_their_calls():
    with session() as s:
        s.add(TALK[0])
        s.add(TALK[1])
        s.add({"role": "user", "parts": [*reversed(TALK[2]["parts"]), {"text": "And now?"}]})
        request = s.request()
    assert request["contents"][2]["parts"] == [*TALK[2]["parts"], {"text": "And now?"}]


def test_a_call_of_another_model_is_signed_by_the_documented_value():
    with session(model="gpt-5") as s:
        s.add("go")
        call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a":1}'}}
        other = {
            "id": "c2",
            "type": "function",
            "function": {"name": "run", "arguments": "no JSON"},
        }
        s.add({"role": "assistant", "content": None, "tool_calls": [call, other]})
        s.add({"role": "tool", "tool_call_id": "c1", "content": "done"})
        s.switch("gemini-3-pro")
        request = s.request()
        s.switch("gemini-2.5-pro")
        older = s.request()
    made = request["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in made] == [
        "skip_thought_signature_validator",
        None,
    ]
    assert made[1]["functionCall"]["args"] == {"_raw": "no JSON"}
    assert DIALECT.list_faults(request) == []
    assert not any("thoughtSignature" in part for part in older["contents"][1]["parts"])


def test_an_unsigned_call_of_an_older_model_is_signed_for_a_newer_one():
    made = {"role": "model", "parts": [{"functionCall": {"name": "w", "args": {}, "x_new": 1}}]}
    with session(model="gemini-2.5-pro") as s:
        s.add("hi")
        s.add(made)
        s.add(
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "w", "response": {"result": "4"}}}],
            }
        )
        older = s.request()
        s.switch("gemini-3-pro")
        newer = s.request()
    assert DIALECT.list_faults(newer) == []
    assert "thoughtSignature" not in older["contents"][1]["parts"][0]
    assert (
        newer["contents"][1]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"
    )
    assert newer["contents"][2]["parts"][0]["functionResponse"]["response"] == {"result": "4"}


def test_a_signed_part_is_never_joined_or_dropped():
    chunks = [[{"text": "Hel"}], [{"text": "lo", "thoughtSignature": "c2ln"}], [{"text": " you"}], [{"text": "", "thoughtSignature": "ZW5k"}]]  # fmt: skip
    stream = wire.GenerateContentAssembly()
    for at, parts in enumerate(chunks):
        candidate = {"content": {"parts": parts}, **({"finishReason": "STOP"} if at == 3 else {})}
        stream.add_event(json.dumps({"candidates": [candidate]}))
    assert stream.done
    said, *_ = wire.parse_answer(stream.build_body(), saw=None, asked=None)
    with session() as s:
        s.add("hi")
        s.add(stream.build_body())
        s.add("more")
        request = s.request()
    assert request["contents"][1]["parts"] == [part for parts in chunks for part in parts]
    assert said.parts == (Text("Hel"), Text("lo"), Text(" you"))


def test_usage_counts_thoughts_and_googles_own_tools():
    body = {
        "candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "MAX_TOKENS"}],
        "usageMetadata": {"promptTokenCount": 925, "cachedContentTokenCount": 900, "toolUsePromptTokenCount": 5,
                          "candidatesTokenCount": 12, "thoughtsTokenCount": 28, "totalTokenCount": 970},
    }  # fmt: skip
    said, usage = wire.parse_answer(body, saw=3, asked=7)
    assert (said.stop, said.saw) == ("length", 3)
    assert usage == UsageReported(asked=7, input=930, cache_read=900, output=40, reasoning=28)


def test_a_blocked_prompt_is_a_refusal_without_words():
    for answer in (
        {"promptFeedback": {"blockReason": "SAFETY"}},
        {"candidates": [{"finishReason": "SAFETY"}]},
    ):
        said, *_ = wire.parse_answer(answer, saw=None, asked=None)
        assert (said.parts, said.stop) == ((), "refused")
    with pytest.raises(WireError, match="without candidates"):
        wire.parse_answer({"usageMetadata": {}}, saw=None, asked=None)


def test_media_and_results_of_every_kind_are_read():
    parts = [{"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}}, {"inlineData": {"mimeType": "audio/wav", "data": "AA-_"}}, {"executableCode": {"language": "PYTHON", "code": "1"}}]  # fmt: skip
    (said,) = wire.parse_message({"role": "user", "parts": parts})
    assert said.parts == (
        Media("file", mime="application/pdf", url="gs://b/a.pdf"),
        Media("audio", mime="audio/wav", base64="AA+/"),
        Gap("[executableCode]"),
    )
    results = [{"result": "plain"}, {"output": {"a": 1}}, {}]
    contents = [{"functionResponse": {"name": "f", "response": one}} for one in results]
    events = wire.parse_message({"role": "user", "parts": contents})
    assert [one.parts for one in events] == [(Text("plain"),), (Text('{"output":{"a":1}}'),), ()]


def test_tools_of_googles_own_schema_are_json_schemas_elsewhere():
    schema = {"type": "OBJECT", "properties": {"a": {"type": "ARRAY", "items": {"type": "STRING"}}}}
    with session(tools=[{"function_declarations": [{"name": "f", "parameters": schema}]}, {"google_search": {}}]) as s:  # fmt: skip
        s.add("hi")
        own = s.request()["config"]["tools"]
        s.switch("claude-sonnet-5")
        other = s.request(max_tokens=5)["tools"][0]
    assert own == [
        {"functionDeclarations": [{"name": "f", "parameters": schema}]},
        {"googleSearch": {}},
    ]
    assert other["input_schema"] == {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}  # fmt: skip


def test_a_system_prompt_of_one_part_needs_no_list():
    """As Google's own pages write it for curl."""
    for told in (b'{"parts":{"text":"S"}}', b'{"parts":[{"text":"S"}]}', b'"S"'):
        assert DIALECT.read_instructions({"systemInstruction": told}, []).parts == (Text("S"),)


FAULTS = {
    "count": [],
    "role": [{"role": "assistant", "parts": [{"text": "x"}]}],
    "first": [{"role": "model", "parts": [{"text": "x"}]}],
    "empty": [{"role": "user", "parts": []}],
    "kind": [{"role": "user", "parts": [{"video": 1}]}],
    "text": [{"role": "user", "parts": [{"text": 5}]}],
    "blank": [{"role": "user", "parts": [{"text": " "}]}],
    "media": [{"role": "user", "parts": [{"inlineData": {"data": "AA=="}}]}],
    "pairs": TALK[:2],
    "name": [*TALK[:1], {"role": "model", "parts": [{"functionCall": {"name": "1 w"}}]}],
    "object": [
        *TALK[:1],
        {"role": "model", "parts": [{"functionCall": {"name": "w", "args": "{}"}}]},
    ],
    "last": [*TALK, {"role": "model", "parts": [{"text": "x"}]}],
    "turns": [*TALK[:1], {"role": "model", "parts": [{"text": "x"}]}, TALK[1], TALK[2]],
    "signature": [TALK[0], {"role": "model", "parts": TALK[1]["parts"][3:]}],
}


@pytest.mark.parametrize("rule", FAULTS)
def test_the_first_judge_can_say_no(rule):
    found = wire.list_faults(FAULTS[rule], signed=True)
    assert any(one.startswith(f"{rule}:") for one in found), found


def test_results_must_be_as_many_and_in_order():
    swapped = {"role": "user", "parts": [*reversed(TALK[2]["parts"])]}
    fewer = {"role": "user", "parts": TALK[2]["parts"][:1]}
    assert wire.list_faults(TALK) == []
    assert wire.list_faults([*TALK[:2], swapped])
    assert wire.list_faults([*TALK[:2], fewer])


texts = st.text(min_size=1).filter(str.strip)
values = st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda one: st.lists(one, max_size=2) | st.dictionaries(texts, one, max_size=2), max_leaves=4)  # fmt: skip
signatures = st.sampled_from([{}, {"thoughtSignature": "c2ln"}])
made_parts = st.one_of(
    st.builds(lambda text, signed: {"text": text, **signed}, texts, signatures),
    texts.map(lambda text: {"text": text, "thought": True}),
    st.builds(lambda args, signed: {"functionCall": {"name": "run", "args": args}, **signed}, st.dictionaries(texts, values, max_size=2), signatures),
    st.just({"executableCode": {"language": "PYTHON", "code": "1"}}),
)  # fmt: skip


spoken_parts = st.lists(made_parts, min_size=1, max_size=5).filter(
    lambda parts: any("thought" not in part for part in parts)  # thoughts alone are no answer
)


@given(spoken_parts)
def test_any_answer_goes_back_as_it_came(parts):
    """But one of thoughts alone, which says nothing; models before Gemini 3 sign no calls."""
    assume(not all(part.get("thought") for part in parts))
    with session(model="gemini-2.5-pro") as s:
        s.add("hi")
        s.request()
        s.add(
            {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
        )
        calls = [part for part in parts if "functionCall" in part]
        results = [
            {"functionResponse": {"name": "run", "response": {"output": f"r{n}"}}}
            for n in range(len(calls))
        ]
        s.add({"role": "user", "parts": results or [{"text": "more"}]})
        request = s.request()
    assert request["contents"][1] == {"role": "model", "parts": parts}
    assert request["contents"][2]["parts"] == (results or [{"text": "more"}])


@given(st.lists(made_parts, min_size=1, max_size=5), st.data())
def test_a_stream_says_what_the_whole_answer_says(parts, data):
    """Wherever texts are cut into chunks; and of one that breaks off, what had come."""
    stream = wire.GenerateContentAssembly()
    for at, part in enumerate(parts):
        cut = data.draw(st.integers(0, len(part["text"]))) if part.keys() == {"text"} else None
        pieces = (
            [part] if cut is None else [{"text": part["text"][:cut]}, {"text": part["text"][cut:]}]
        )
        for piece in pieces:
            last = at == len(parts) - 1 and piece is pieces[-1]
            ends = {"finishReason": "STOP"} if last else {}
            assert not stream.done
            assert stream.build_body() is not None
            stream._candidate.pop("finishReason", None)
            stream.add_event(json.dumps({"candidates": [{"content": {"parts": [piece]}, **ends}]}))
    said, *_ = wire.parse_answer(stream.build_body(), saw=None, asked=None)
    whole, *_ = wire.parse_answer(
        {"candidates": [{"content": {"parts": parts}}]}, saw=None, asked=None
    )
    assert spoken(said) == spoken(whole)


def spoken(event):
    joined = "".join(part.text for part in event.parts if isinstance(part, Text))
    thought = "".join(part.text for part in event.parts if isinstance(part, Thought))
    return joined, thought, [part for part in event.parts if isinstance(part, Call)]


@given(st.recursive(st.dictionaries(st.sampled_from(["inline_data", "mime_type", "args", "text", "a_b"]), st.text()), lambda one: st.dictionaries(st.sampled_from(["function_call", "args", "parts"]), one, max_size=3)))  # fmt: skip
def test_names_of_fields_are_written_in_one_way_and_what_is_the_callers_stays(body):
    renamed = rename_fields(body)
    assert rename_fields(renamed) == renamed
    if "args" in body:
        assert renamed["args"] == body["args"]


def test_odd_contents_are_refused():
    for odd in (
        {"role": "assistant", "parts": []},
        {"role": "user"},
        {"role": "user", "parts": "x"},
    ):
        with pytest.raises(WireError):
            wire.parse_message(odd)
    assert wire.parse_message({"parts": [{"text": "hi"}]}) == [UserSaid((Text("hi"),))]
    assert isinstance(
        wire.parse_message(
            {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}
        )[0],
        ToolReturned,
    )
    assert isinstance(wire.parse_message({"role": "model", "parts": []})[0], ModelSaid)


def describe(*parts, role="user"):
    return DIALECT.describe_message(json.dumps({"role": role, "parts": parts}).encode())


def answer_with(response, **more):
    return {"functionResponse": {"name": "w", "response": response, **more}}


def test_a_call_is_known_again_whose_id_the_client_invented():
    bare, calls, results = without_ids(TALK), TALK[1]["parts"], TALK[2]["parts"]
    assert describe(*bare[1]["parts"], role="model") == describe(*calls, role="model")
    assert describe(*bare[2]["parts"]) == describe(*results)
    raw = json.dumps(TALK[2]).encode()
    events = DIALECT.read_message(raw, DIALECT.describe_message(raw))
    assert [one.call_id for one in events] == ["call:w", "call:w#2"]


@pytest.mark.parametrize("response", [{"result": "4°"}, {"b": 1, "a": "x"}, {"error": {"a": 1}}])
def test_a_result_of_any_shape_is_kept_once(response):
    raw = json.dumps({"role": "user", "parts": [answer_with(response, id="a1")]}).encode()
    (event,) = DIALECT.read_message(raw, DIALECT.describe_message(raw))
    assert event.native is None
    assert describe(answer_with(response)) != describe(answer_with({**response, "c": 1}))


@pytest.mark.parametrize("name", ["output", "result", "error"])
@pytest.mark.parametrize("field", ["functionResponse", "function_response"])
def test_a_masked_result_keeps_all_bytes_around_its_words(name, field):
    part = f'{{"{field}": {{"id": "a1", "response": {{ "{name}" : "4°" }},  "name": "w"}}}}'
    raw = f'{{ "parts":[ {part} ], "role": "user" }}'.encode()
    (event,) = DIALECT.read_message(raw, DIALECT.describe_message(raw))
    masked = Item(0, "result", (Text("[masked]"),), 0, call_id=event.call_id)
    put = DIALECT.replace_text(raw, event, masked)
    assert put == raw.replace(
        f'{{ "{name}" : "4°" }}'.encode(), f'{{"{name}":"[masked]"}}'.encode()
    )


def test_results_that_are_repeated_are_all_counted_and_all_masked():
    twice = [*TALK[2]["parts"], *TALK[2]["parts"]]
    raw = json.dumps({"role": "user", "parts": twice}).encode()
    events = DIALECT.read_message(raw, DIALECT.describe_message(raw))
    assert [one.call_id for one in events] == ["call:w", "call:w#2"] * 2
    assert [one.native for one in events] == [None] * 4
    masked = Item(0, "result", (Text("[masked]"),), 0, call_id="call:w")
    put = json.loads(DIALECT.replace_text(raw, events[2], masked))
    first, second = TALK[2]["parts"]
    stub = {"functionResponse": {**first["functionResponse"], "response": {"output": "[masked]"}}}
    assert put["parts"] == [stub, second, stub, second]


def test_a_first_message_is_known_again_when_the_session_around_it_has_changed():
    before, after = (
        {"text": f"<session_context>\nToday is {day}.\n</session_context>"}
        for day in ("Mon", "Tue")
    )
    asked = {"text": "Weather?"}
    assert describe(before, asked) == describe(after, asked)
    assert describe(before) != describe(after)
    assert describe(before, asked) != describe(before, {"text": "News?"})


NESTED = '{{"error":{{"message":"{{\\n  \\"error\\": {{\\n    \\"code\\": {0},\\n    \\"message\\": \\"{1}\\",\\n    \\"status\\": \\"{2}\\"\\n  }}\\n}}\\n","code":{0},"status":"x"}}}}'  # as gemini-cli shows them
PLACE, GONE = "User location is not supported for the API use.", "models/gemini-pro is not found for API version v1beta, or is not supported for generateContent."  # fmt: skip
FAILED = "An internal error has occurred. Please retry or report it."
ERRORS = [  # poenl/gemini-api#4, gemini-cli#24641, gnome-gemini-ai#22, continue#9939, gemini-cli#7316, AIClient2API#392
    (400, {"error": {"code": 400, "message": PLACE, "status": "FAILED_PRECONDITION"}}, "other"),
    (400, NESTED.format(400, PLACE, "FAILED_PRECONDITION"), "other"),
    (404, {"error": {"code": 404, "message": GONE, "status": "NOT_FOUND"}}, "other"),
    (404, NESTED.format(404, GONE, "NOT_FOUND"), "other"),
    (500, {"error": {"code": 500, "message": FAILED, "status": "INTERNAL"}}, "overloaded"),
    (500, NESTED.format(500, FAILED, "INTERNAL"), "overloaded"),
    (500, {"error": {"code": 500, "message": "Internal error encountered.", "status": "INTERNAL"}}, "overloaded"),
    (504, {"error": {"code": 504, "message": "Deadline exceeded", "status": "DEADLINE_EXCEEDED"}}, "overloaded"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind"), ERRORS)
def test_googles_errors_are_classified_as_bodies_and_as_its_sdk_raises_them(status, body, kind):
    """Beside the nineteen of Google's that `test_faults.py` reads from the shared collection."""
    found = classify_error(body, status=status, filled=0.99)
    assert (found.kind, found.limit, found.suspected) == (kind, None, False)
    if isinstance(body, dict):
        raised = of_exception(errors.APIError(status, body))
        assert (raised.kind, raised.message) == (kind, body["error"]["message"])

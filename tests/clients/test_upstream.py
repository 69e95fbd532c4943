"""The scripted provider refuses what providers refuse: else a gateway's defects would go unseen."""

import json

import pytest
from prompt_cache import CacheUse
from upstream import (
    HELPER,
    IMAGE_TOKENS,
    Answer,
    Job,
    Refusal,
    Upstream,
    drop_repeats,
    find_fault,
    find_turn,
    make_signature,
    prompt_of,
    read_anthropic,
    read_chat,
    seal,
    sign,
)

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": sign("hm")}
CALL = {"type": "tool_use", "id": "c", "name": "bash", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "done"}
THINKS = {"type": "enabled", "budget_tokens": 10}
REFERENCE = {"type": "tool_reference", "tool_name": "late"}
LATE = {"name": "late", "description": "word " * 100, "input_schema": {}, "defer_loading": True}
MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
CHAT_CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": "{}"}}],
}


def ask_anthropic(*contents, **more):
    """Messages of the user and the assistant in turn."""
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(contents)
    ]
    return read_anthropic({"max_tokens": 100, "messages": messages, **more})


def test_a_sound_request_is_answered():
    assert not find_fault(ask_anthropic("Begin.", [THOUGHT, CALL], [RESULT]))
    assert not find_fault(ask_anthropic("Begin.", [THOUGHT, CALL], [RESULT], thinking=THINKS))
    effort = {"role": "system", "content": [], "output_config": {"effort": "high"}}
    messages = [{"role": "user", "content": "Begin."}, effort]
    assert not find_fault(read_anthropic({"max_tokens": 9, "messages": messages}))
    assert not find_fault(
        read_chat({"messages": [CHAT_CALL, {"role": "tool", "tool_call_id": "c"}]})
    )


@pytest.mark.parametrize(
    "asked",
    [
        ask_anthropic("Begin.", [CALL], "Go on."),
        ask_anthropic("Begin.", "Yes.", [RESULT]),
        ask_anthropic("Begin.", [{**THOUGHT, "thinking": "ho"}, CALL], [RESULT]),
        ask_anthropic([MARKED] * 5),
        ask_anthropic("Begin.", thinking={"type": "enabled", "budget_tokens": 100}),
        ask_anthropic("Begin.", [CALL], [RESULT], thinking=THINKS),
        ask_anthropic("Begin.", [THOUGHT, CALL], [RESULT], [CALL], [RESULT], thinking=THINKS),
        ask_anthropic("Begin.", "Yes.", model="claude-opus-5-5"),
        ask_anthropic("Begin.", [], "Go on."),
        ask_anthropic("Begin.", [CALL], [{**RESULT, "content": [REFERENCE]}]),
        read_chat({"messages": [CHAT_CALL, {"role": "user", "content": "Go on."}]}),
        read_chat({"messages": [{"role": "tool", "tool_call_id": "c", "content": "done"}]}),
    ],
)
def test_a_broken_one_is_refused(asked):
    assert find_fault(asked)


def test_a_request_above_the_window_is_refused():
    upstream = Upstream(Job(1, (10, 20)), window=100)
    assert not upstream.find_overflow(ask_anthropic("word " * 50))
    assert upstream.find_overflow(ask_anthropic("word " * 200))


def test_a_turn_has_its_rounds_and_then_an_answer():
    job, tools = Job(2, (100, 200)), [{"name": "bash", "input_schema": {"required": ["command"]}}]
    kinds = [job.answer(ask_anthropic(prompt_of(1), tools=tools)).kind for _ in range(3)]
    assert kinds == ["call", "call", "answer"]
    assert job.answer(ask_anthropic(prompt_of(1), system="Write a title.")).kind == "title"
    asked = ask_anthropic(
        [{"type": "text", "text": text} for text in (prompt_of(1), "Sum it up.")], tools=tools
    )
    assert job.answer(asked).kind == "summary"


def test_a_deferred_tool_is_seen_and_counted_only_where_a_result_refers_to_it():
    plan = {1: ("search:late", "use:late", "use:late")}
    tools = [{"name": "ToolSearch", "input_schema": {"properties": {"query": {}}}}, LATE]
    job = Job(0, (0, 1), plan=plan)
    begin = prompt_of(1)
    unseen = ask_anthropic(begin, tools=tools)
    found = ask_anthropic(begin, [CALL], [{**RESULT, "content": [REFERENCE]}], tools=tools)
    assert [job.answer(unseen).calls, job.answer(found).tool] == [
        ({"query": "select:late"},),
        "late",
    ]
    assert job.answer(unseen).text == "Turn 1 cannot go on: there is no tool late."
    assert unseen.tokens < 100 < found.tokens


def test_a_picture_is_counted_as_one():
    image = {"type": "image", "source": {"type": "base64", "data": "x" * 9_000}}
    tokens = [
        ask_anthropic("Begin.", [CALL], [{**RESULT, "content": one}]).tokens
        for one in ([], [image])
    ]
    assert abs(tokens[1] - tokens[0] - IMAGE_TOKENS) < 10


def test_a_helper_has_a_turn_of_its_own():
    schema = {"properties": {"prompt": {}, "subagent_type": {}}}
    job = Job(1, (100, 200), plan={2: ("helper", "picture")}, work="/w")
    tools = [{"name": name, "input_schema": schema} for name in ("Agent", "bash")]
    tools.append({"name": "Read", "input_schema": {"properties": {"file_path": {}}}})
    call = job.answer(ask_anthropic(prompt_of(2), tools=tools))
    assert call.calls == ({"prompt": prompt_of(HELPER + 2), "subagent_type": "general-purpose"},)
    helper = ask_anthropic(prompt_of(HELPER + 2), tools=tools)
    assert job.answer(helper).tool == "bash"
    assert job.answer(helper).text == f"Turn {HELPER + 2} is done after 1 steps."
    parent = ask_anthropic(prompt_of(2), f"I asked: {prompt_of(HELPER + 2)}", "Go on.", tools=tools)
    assert find_turn(parent) == 2
    assert job.answer(ask_anthropic(prompt_of(2), tools=tools)).calls == (
        {"file_path": "/w/picture.png"},
    )


BASH = {"type": "function", "name": "bash", "parameters": {"properties": {"command": {}}}}
SAID = {"type": "message", "role": "user", "content": prompt_of(1)}
REASONING = {
    "type": "reasoning",
    "id": "rs_000001",
    "summary": [],
    "encrypted_content": seal("rs_000001"),
}
ITEM_CALL = {
    "type": "function_call",
    "id": "fc_t_000001_0",
    "call_id": "c",
    "name": "bash",
    "arguments": "{}",
}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "done"}
ROUND = (SAID, REASONING, ITEM_CALL, OUTPUT)
TRIGGER = {"type": "compaction_trigger"}


def ask_responses(upstream, *items, **more):
    """The output of one request over Responses, or its refusal."""
    asked = upstream.read(
        "/v1/responses", {"model": "m", "input": [*items], "tools": [BASH], **more}
    )
    if refusal := find_fault(asked):
        raise refusal
    answer = upstream.answer(asked)
    upstream.served.append(answer)
    return upstream.say(asked, answer, upstream.use_cache(asked))[0]


def test_a_round_over_responses_is_answered():
    upstream = Upstream(Job(1, (100, 200)))
    first = ask_responses(upstream, SAID)
    assert [item["type"] for item in first["output"]] == ["reasoning", "function_call"]
    output = {**OUTPUT, "call_id": first["output"][1]["call_id"]}
    second = ask_responses(upstream, SAID, *first["output"], output)
    assert second["output"][0]["content"][0]["text"] == "Turn 1 is done after 1 steps."


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((SAID, OUTPUT), "No tool call found for function call output with call_id c."),
        ((OUTPUT, *ROUND[:3]), "No tool call found for function call output with call_id c."),
        (ROUND[:3], "No tool output found for function call c."),
        ((*ROUND, {**SAID, "id": "fc_1"}), "Expected an ID that begins with 'msg'."),
        ((*ROUND, REASONING), "Duplicate item found with id rs_000001."),
        ((SAID, REASONING, SAID), "'reasoning' was provided without its required following item."),
        ((SAID, ITEM_CALL, OUTPUT), "without its required 'reasoning' item: 'rs_000001'."),
        ((SAID, {**REASONING, "id": "rs_000002"}, *ROUND[2:]), "could not be verified."),
        ((SAID, {**REASONING, "encrypted_content": "gAAAAA"}, *ROUND[2:]), "could not be verified."),
        ((SAID, {**REASONING, "encrypted_content": None}, *ROUND[2:]), "Item with id 'rs_000001' not found."),
        ((SAID, {"type": "item_reference", "id": "msg_1"}), "Item with id 'msg_1' not found."),
        (({"type": "compaction", "encrypted_content": "foldline:1"}, SAID), "could not be verified."),
        (({"type": "handoff"}, SAID), "Invalid value: 'handoff'."),
        ((TRIGGER, SAID), "Invalid value: 'compaction_trigger'."),
        (({**SAID, "content": [{"type": "text", "text": "Begin."}]},), "Invalid value: 'text'."),
    ],
)  # fmt: skip
def test_broken_items_are_refused(items, words):
    with pytest.raises(Refusal) as refused:
        ask_responses(Upstream(Job(1, (100, 200))), *items)
    assert words in str(refused.value)


def test_an_item_without_an_id_needs_no_reasoning():
    call = {name: value for name, value in ITEM_CALL.items() if name != "id"}
    assert ask_responses(Upstream(Job(1, (100, 200))), SAID, call, OUTPUT)


def test_a_response_that_was_stored_is_continued_by_its_id():
    upstream = Upstream(Job(1, (100, 200)))
    first = ask_responses(upstream, SAID)
    output = {**OUTPUT, "call_id": first["output"][1]["call_id"]}
    second = ask_responses(upstream, output, previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    assert ask_responses(upstream, SAID, reference, first["output"][1], output)


def test_a_response_that_was_not_stored_is_not_found():
    upstream = Upstream(Job(1, (100, 200)))
    first = ask_responses(upstream, SAID, store=False)
    with pytest.raises(Refusal, match=r"Previous response with id .* not found\."):
        ask_responses(upstream, SAID, previous_response_id=first["id"])


def test_a_stateless_provider_refuses_a_chain():
    upstream = Upstream(Job(1, (100, 200)), stateless=True)
    first = ask_responses(upstream, SAID)
    with pytest.raises(Refusal, match="stateless"):
        ask_responses(upstream, SAID, previous_response_id=first["id"])


def test_what_becomes_of_a_trigger():
    kinds = {}
    for way in ("ignored", "made"):
        upstream = Upstream(Job(1, (100, 200)), compaction=way)
        output = ask_responses(upstream, *ROUND, TRIGGER)["output"]
        kinds[way] = [item["type"] for item in output]
    assert kinds == {"ignored": ["message"], "made": ["compaction"]}
    assert ask_responses(upstream, output[0])["output"][-1]["type"] == "function_call"
    with pytest.raises(Refusal, match=r"Invalid value: .compaction_trigger.\."):
        ask_responses(Upstream(Job(1, (100, 200)), compaction="refused"), SAID, TRIGGER)


def test_what_is_cached_is_in_the_usage():
    upstream, long = (
        Upstream(Job(1, (100, 200))),
        {**SAID, "content": prompt_of(1) + " word" * 3_000},
    )
    cached = [
        ask_responses(upstream, long, *more)["usage"]["input_tokens_details"]["cached_tokens"]
        for more in ((), ROUND[1:], ({**SAID, "content": "Go on."},))
    ]
    assert cached[0] == 0
    assert all(one > 2_500 and one % 128 == 0 for one in cached[1:])


def test_a_stream_ends_with_the_whole_response():
    upstream = Upstream(Job(1, (100, 200)))
    asked = upstream.read("/v1/responses", {"model": "m", "input": "Begin.", "tools": [BASH]})
    whole, events = upstream.say(
        asked, Answer("call", tool="bash", calls=({"command": "ls"},)), CacheUse()
    )
    read = [json.loads(one.partition("data: ")[2]) for one in events]
    done = [one["item"] for one in read if one["type"] == "response.output_item.done"]
    assert done == whole["output"] == read[-1]["response"]["output"]
    assert [one["sequence_number"] for one in read] == list(range(len(read)))


ASKED = {"role": "user", "parts": [{"text": prompt_of(1)}]}
SIGNED = {"thoughtSignature": make_signature("hm")}
PART_CALL = {"functionCall": {"id": "c", "name": "bash", "args": {}}}
OTHER_CALL = {"functionCall": {"id": "d", "name": "bash", "args": {}}}
PART_RESULT = {"functionResponse": {"id": "c", "name": "bash", "response": {"output": "done"}}}
OTHER_RESULT = {"functionResponse": {"id": "d", "name": "bash", "response": {"output": "done"}}}
GEMINI_BASH = {
    "functionDeclarations": [{"name": "bash", "parametersJsonSchema": BASH["parameters"]}]
}


def called(*parts):
    return {"role": "model", "parts": [*parts]}


def returned(*parts):
    return {"role": "user", "parts": [*parts]}


STEP = (ASKED, called({**PART_CALL, **SIGNED}), returned(PART_RESULT))


def ask_gemini(*contents, model="gemini-3-pro-preview", method="generateContent", **more):
    """The upstream's reading of one request over Gemini."""
    path, body = f"/v1beta/models/{model}:{method}", {"contents": [*contents], **more}
    return Upstream(Job(1, (100, 200)), 100).read(path, body)


@pytest.mark.parametrize(
    "contents",
    [
        STEP,
        (ASKED, called({**PART_CALL, **SIGNED}, OTHER_CALL), returned(PART_RESULT, OTHER_RESULT)),
        (ASKED, called(PART_CALL), returned(PART_RESULT), called({"text": "Done."}), ASKED),
        (*STEP, called({**OTHER_CALL, "thoughtSignature": "skip_thought_signature_validator"}), returned(OTHER_RESULT)),
    ],
)  # fmt: skip
def test_a_round_over_gemini_is_answered(contents):
    assert not find_fault(ask_gemini(*contents))


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ((ASKED, called({**PART_CALL, **SIGNED}), returned(PART_RESULT, PART_RESULT)), "has 2 for 1"),
        ((ASKED, called({**PART_CALL, **SIGNED}), ASKED), "has 0 for 1"),
        ((ASKED, returned(PART_RESULT)), "has 1 for 0"),
        ((ASKED, called({**PART_CALL, **SIGNED}, OTHER_CALL), returned(OTHER_RESULT, PART_RESULT)), "in place of"),
        (STEP[:2], "end with a user role"),
        ((ASKED, called(PART_CALL), returned(PART_RESULT)), "missing a thought_signature"),
        ((*STEP, called(OTHER_CALL), returned(OTHER_RESULT)), "missing a thought_signature"),
        ((ASKED, called({**PART_CALL, "thoughtSignature": "aG0="}), returned(PART_RESULT)), "Corrupted"),
    ],
)  # fmt: skip
def test_broken_contents_are_refused(contents, words):
    assert words in str(find_fault(ask_gemini(*contents)))


def test_only_gemini_3_wants_signatures():
    contents = (ASKED, called(PART_CALL), returned(PART_RESULT))
    assert not find_fault(ask_gemini(*contents, model="gemini-2.5-pro"))


def test_results_that_repeat_can_be_let_pass():
    asked = ask_gemini(*STEP[:2], returned(PART_RESULT, PART_RESULT))
    assert drop_repeats(asked.body)["contents"] == [*STEP]


def test_a_request_above_the_window_is_refused_in_googles_words():
    refusal = Upstream(Job(1, (10, 20)), 10).find_overflow(ask_gemini(ASKED))
    count = ask_gemini(ASKED).tokens
    words = f"The input token count ({count}) exceeds the maximum number of tokens allowed (10)."
    error = {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}
    assert refusal.write("/v1beta/models/m:generateContent") == {"error": error}


@pytest.mark.parametrize("model", ["gemini-3-pro-preview", "gemini-2.5-pro"])
def test_a_stream_over_gemini_has_all_that_the_whole_answer_has(model):
    thinking = {"thinkingConfig": {"includeThoughts": True}}
    asked = ask_gemini(ASKED, model=model, tools=[GEMINI_BASH], generationConfig=thinking)
    for answer in (Answer("call", tool="bash", calls=({}, {})), Answer("answer", text="Done.")):
        whole, events = Upstream(Job(1, (100, 200))).say(asked, answer, CacheUse(1024))
        read = [json.loads(one.removeprefix("data: ")) for one in events]
        said = [part for one in read for part in one["candidates"][0]["content"]["parts"]]
        kept = whole["candidates"][0]["content"]["parts"]
        assert read[-1]["usageMetadata"] == whole["usageMetadata"]
        assert read[-1]["candidates"][0]["finishReason"] == "STOP"
        for field in ("text", "thoughtSignature"):
            words = ["".join(part.get(field, "") for part in parts) for parts in (said, kept)]
            assert words[0] == words[1]
        assert [one for one in said if "functionCall" in one] == [
            one for one in kept if "functionCall" in one
        ]

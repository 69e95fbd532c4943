"""Answers of a model, joined to the one that a client sees: it never hears of our tool.

Every dialect is written here as its server streams it, answer by answer, in pieces of any size.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import anthropic
import httpx2
import openai
import pytest
from google import genai
from hypothesis import given
from hypothesis import strategies as st

from foldline.dialects.base import get_dialect, list_dialects
from foldline.dialects.sse import SseEvent, SseReader, write_event
from foldline.testing.provider import written

OURS = "recall"
EVERY = pytest.mark.parametrize("name", [dialect.name for dialect in list_dialects()])
CHAT, ANTHROPIC, GEMINI = "openai-chat", "anthropic", "gemini"
RESPONSES, INTERACTIONS = "openai-responses", "gemini-interactions"
ONE_TEXT = (CHAT, GEMINI)
"""The dialects whose clients read the texts of an answer as one."""
ARGUMENTS = '{"q": "wombat"}'


def sse(*events, name="message"):
    """Events of a stream; those that name their type are called so."""
    return [
        SseEvent(str(event.get("type") or event.get("event_type") or name), json.dumps(event))
        if isinstance(event, dict)
        else SseEvent(name, event)
        for event in events
    ]


# How each server streams an answer: texts, thoughts, calls of ours and calls of the client's.


@dataclass
class Answer:
    """What a model says: pairs of a kind (text, thought, ours, own) and words, or a call's id."""

    blocks: list[tuple[str, str]]
    number: int = 0
    cuts: Random = field(default_factory=lambda: Random(1))

    @property
    def has_calls(self):
        """Whether it calls a tool, of ours or of the client's."""
        return any(kind in ("ours", "own") for kind, _ in self.blocks)

    @property
    def counts(self):
        """The tokens of its input, and of its output."""
        return 100 + self.number, 10 + self.number

    def cut(self, text):
        """A text in pieces."""
        at = sorted(self.cuts.randrange(len(text) + 1) for _ in range(self.cuts.randrange(3)))
        pieces = [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]
        return [piece for piece in pieces if piece] or [text]

    def events(self, name):
        """Return it as the server of a dialect streams it."""
        return WRITERS[name](self)


def tool(kind):
    return OURS if kind == "ours" else "run"


def write_messages(answer):
    fed, said = answer.counts
    usage = {"input_tokens": fed, "cache_read_input_tokens": answer.number, "output_tokens": 1}
    message = {"id": f"msg_{answer.number}", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    events = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for at, (kind, words) in enumerate(answer.blocks):
        start, deltas = {
            "text": ({"type": "text", "text": ""}, [{"type": "text_delta", "text": one} for one in answer.cut(words)]),
            "thought": ({"type": "thinking", "thinking": "", "signature": ""}, [*({"type": "thinking_delta", "thinking": one} for one in answer.cut(words)), {"type": "signature_delta", "signature": "sig"}]),
        }.get(kind) or ({"type": "tool_use", "id": words, "name": tool(kind), "input": {}}, [{"type": "input_json_delta", "partial_json": one} for one in answer.cut(ARGUMENTS)])  # fmt: skip
        events.append({"type": "content_block_start", "index": at, "content_block": start})
        events += [{"type": "content_block_delta", "index": at, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": at})
    stop = "tool_use" if answer.has_calls else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": said}})  # fmt: skip
    return sse(*events, {"type": "message_stop"})


def chunk(number, *choices, **more):
    return {"id": f"chatcmpl_{number}", "object": "chat.completion.chunk", "created": 1000 + number, "model": "m", "choices": [*choices], **more}  # fmt: skip


def delta(reason=None, **fields):
    return {"index": 0, "delta": fields, "finish_reason": reason}


def write_chat(answer):
    fed, said = answer.counts
    deltas = [delta(role="assistant", content="")]
    for field_, kind in (("reasoning_content", "thought"), ("content", "text")):
        texts = [words for one, words in answer.blocks if one == kind]
        deltas += [delta(**{field_: piece}) for text in texts for piece in answer.cut(text)]
    calls = [one for one in answer.blocks if one[0] in ("ours", "own")]
    for at, (kind, call_id) in enumerate(calls):
        first = {"id": call_id, "type": "function", "function": {"name": tool(kind), "arguments": ""}}  # fmt: skip
        pieces = [{"function": {"arguments": one}} for one in answer.cut(ARGUMENTS)]
        deltas += [delta(tool_calls=[{"index": at, **one}]) for one in (first, *pieces)]
    deltas.append(delta("tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": fed, "completion_tokens": said, "total_tokens": fed + said, "completion_tokens_details": {"reasoning_tokens": 2}}  # fmt: skip
    chunks = [chunk(answer.number, one, usage=None) for one in deltas]
    return sse(*chunks, chunk(answer.number, usage=usage), "[DONE]")


def write_items(answer):
    for at, (kind, words) in enumerate(answer.blocks):
        own = {"id": f"{kind}_{answer.number}_{at}"}
        match kind:
            case "text":
                part = {"type": "output_text", "text": words, "annotations": []}
                yield {"type": "message", **own, "role": "assistant", "status": "completed", "content": [part]}  # fmt: skip
            case "thought":
                yield {"type": "reasoning", **own, "summary": [{"type": "summary_text", "text": words}], "encrypted_content": "gAAA"}  # fmt: skip
            case _:
                yield {"type": "function_call", **own, "call_id": words, "name": tool(kind), "arguments": ARGUMENTS, "status": "completed"}  # fmt: skip


def write_responses(answer):
    fed, said = answer.counts
    items = [*write_items(answer)]
    usage = {"input_tokens": fed, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": said, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": fed + said}  # fmt: skip
    whole = {"id": f"resp_{answer.number}", "object": "response", "created_at": 1000 + answer.number, "model": "m", "status": "completed", "error": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [{"type": "function", "name": OURS, "parameters": {}}], "output": items, "usage": usage}  # fmt: skip
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": f"response.{one}", "response": begun} for one in ("created", "in_progress")]
    for at, item in enumerate(items):
        empty = {"content": [], "arguments": "", "summary": [], "encrypted_content": ""}
        start = {key: empty.get(key, one) for key, one in item.items()}
        where = {"item_id": item["id"], "output_index": at}
        events.append({"type": "response.output_item.added", "output_index": at, "item": start})
        for part in item.get("content", ()):
            place = {**where, "content_index": 0}
            events.append({"type": "response.content_part.added", **place, "part": {**part, "text": ""}})  # fmt: skip
            events += [{"type": "response.output_text.delta", **place, "delta": one, "logprobs": []} for one in answer.cut(part["text"])]  # fmt: skip
            events.append({"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []})  # fmt: skip
            events.append({"type": "response.content_part.done", **place, "part": part})
        if "arguments" in item:
            kind = "response.function_call_arguments"
            events += [{"type": f"{kind}.delta", **where, "delta": one} for one in answer.cut(ARGUMENTS)]  # fmt: skip
            events.append({"type": f"{kind}.done", **where, "name": item["name"], "arguments": ARGUMENTS})  # fmt: skip
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return sse(*({**event, "sequence_number": at} for at, event in enumerate(events)))


def gemini_chunk(number, *parts, **ends):
    fed, said = 100 + number, 10 + number
    usage = {"promptTokenCount": fed, "candidatesTokenCount": said, "thoughtsTokenCount": 2, "totalTokenCount": fed + said + 2}  # fmt: skip
    candidate = {"content": {"role": "model", "parts": [*parts]}, **ends, "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": f"r{number}"}  # fmt: skip


def function_call(kind, call_id, **more):
    return {"functionCall": {"id": call_id, "name": tool(kind), "args": {"q": "wombat"}}, **more}


def write_contents(answer):
    parts, signed = [], False
    for kind, words in answer.blocks:
        match kind:
            case "text":
                parts += [{"text": one} for one in answer.cut(words)]
            case "thought":
                parts += [{"text": one, "thought": True} for one in answer.cut(words)]
            case _:
                parts.append(function_call(kind, words, **({} if signed else {"thoughtSignature": "c2ln"})))  # fmt: skip
                signed = True
    groups = []
    while parts:
        size = answer.cuts.randrange(1, 4)
        groups.append(parts[:size])
        parts = parts[size:]
    last = groups.pop() if groups and answer.cuts.randrange(2) else [{"text": ""}]
    chunks = [gemini_chunk(answer.number, *group) for group in groups]
    return sse(*chunks, gemini_chunk(answer.number, *last, finishReason="STOP"))


def write_interactions(answer):
    fed, said = answer.counts
    own = {"id": f"int_{answer.number}", "object": "interaction", "model": "m"}
    status = {"event_type": "interaction.status_update", "interaction_id": own["id"]}
    events = [
        {"event_type": "interaction.created", "interaction": {**own, "status": "in_progress"}},
        {**status, "status": "in_progress"},
    ]
    for at, (kind, words) in enumerate(answer.blocks):
        start, deltas = {
            "text": ({"type": "model_output"}, [{"type": "text", "text": one} for one in answer.cut(words)]),
            "thought": ({"type": "thought"}, [*({"type": "thought_summary", "content": {"type": "text", "text": one}} for one in answer.cut(words)), {"type": "thought_signature", "signature": "c2ln"}]),
        }.get(kind) or ({"type": "function_call", "id": words, "name": tool(kind), "arguments": {}}, [{"type": "arguments_delta", "arguments": one} for one in answer.cut(ARGUMENTS)])  # fmt: skip
        events.append({"event_type": "step.start", "index": at, "step": start})
        events += [{"event_type": "step.delta", "index": at, "delta": one} for one in deltas]
        events.append({"event_type": "step.stop", "index": at})
    usage = {"total_input_tokens": fed, "total_output_tokens": said, "total_thought_tokens": 2, "total_tokens": fed + said + 2}  # fmt: skip
    ended = "requires_action" if answer.has_calls else "completed"
    events.append({**status, "status": ended})
    events.append({"event_type": "interaction.completed", "interaction": {**own, "status": ended, "usage": usage}})  # fmt: skip
    return [*sse(*events), *sse("[DONE]", name="done")]


WRITERS = {
    CHAT: write_chat,
    ANTHROPIC: write_messages,
    GEMINI: write_contents,
    INTERACTIONS: write_interactions,
    RESPONSES: write_responses,
}


# What a client makes of what it gets.


@dataclass(frozen=True)
class Shape:
    """What a whole answer says."""

    text: str
    thought: str
    calls: tuple[str, ...]
    stop: str
    fed: int
    output: int
    total: int | None
    id: str


def shape(name, body):
    """Read a body without our parsers; of texts apart, those with words."""
    texts, thoughts, calls = [], [], []
    get_dialect(name).parse_answer(body, None, None)  # raises if it is none
    match name:
        case "openai-chat":
            (choice,), usage = body["choices"], body["usage"]
            message, stop = choice["message"], choice["finish_reason"]
            texts, thoughts = [message["content"] or ""], [message.get("reasoning_content", "")]
            calls = [f"{call['id']} {call['function']['name']}" for call in message.get("tool_calls", ())]  # fmt: skip
            counts = usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]
        case "anthropic":
            for block in body["content"]:
                match block["type"]:
                    case "text":
                        texts.append(block["text"])
                    case "thinking":
                        thoughts.append(block["thinking"])
                    case "tool_use":
                        calls.append(f"{block['id']} {block['name']}")
            stop, usage = body["stop_reason"], body["usage"]
            counts = usage["input_tokens"], usage["output_tokens"], None
        case "openai-responses":
            for item in body["output"]:
                match item["type"]:
                    case "message":
                        texts.append(item["content"][0]["text"])
                    case "reasoning":
                        thoughts.append(item["summary"][0]["text"])
                    case "function_call":
                        calls.append(f"{item['call_id']} {item['name']}")
            stop, usage = body["status"], body["usage"]
            counts = usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]
        case "gemini":
            (candidate,), usage = body["candidates"], body["usageMetadata"]
            for part in candidate["content"].get("parts", ()):
                if "functionCall" in part:
                    calls.append("{id} {name}".format(**part["functionCall"]))
                else:
                    (thoughts if part.get("thought") else texts).append(part["text"])
            stop, output = candidate["finishReason"], usage["candidatesTokenCount"]
            counts = usage["promptTokenCount"], output, usage["totalTokenCount"]
        case _:
            for step in body["steps"]:
                match step["type"]:
                    case "model_output":
                        texts.append("".join(one["text"] for one in step["content"]))
                    case "thought":
                        thoughts += [one["text"] for one in step["summary"]]
                    case "function_call":
                        calls.append(f"{step['id']} {step['name']}")
            stop, usage = body["status"], body["usage"]
            counts = usage["total_input_tokens"], usage["total_output_tokens"], usage["total_tokens"]  # fmt: skip
    text = "".join(texts) if name in ONE_TEXT else "\n\n".join(one for one in texts if one.strip())
    own = body["responseId" if name == GEMINI else "id"]
    return Shape(text, "".join(thoughts), (*calls,), stop, *counts, own)


def expect(name, answers):
    """What the client should see of answers."""
    text = ""
    for answer in answers:
        said = [words for kind, words in answer.blocks if kind == "text"]
        if name in ONE_TEXT:
            more = "".join(said)
            if text.strip():
                more = "\n\n" + more if more.strip() else ""
            text += more
        else:
            text = "\n\n".join(one for one in [text, *said] if one.strip())
    blocks = [block for answer in answers for block in answer.blocks]
    calls = any(kind == "own" for kind, _ in answers[-1].blocks)
    ends = {CHAT: ("stop", "tool_calls"), ANTHROPIC: ("end_turn", "tool_use"), INTERACTIONS: ("completed", "requires_action"), GEMINI: ("STOP", "STOP"), RESPONSES: ("completed", "completed")}  # fmt: skip
    fed, output = answers[-1].counts[0], sum(answer.counts[1] for answer in answers)
    total = fed + output + (2 * len(answers) if name in (GEMINI, INTERACTIONS) else 0)
    first = {CHAT: "chatcmpl_", ANTHROPIC: "msg_", GEMINI: "r", INTERACTIONS: "int_", RESPONSES: "resp_"}[name]  # fmt: skip
    return Shape(
        text,
        "".join(words for kind, words in blocks if kind == "thought"),
        tuple(f"{words} run" for kind, words in blocks if kind == "own"),
        ends[name][calls],
        fed,
        output,
        None if name == ANTHROPIC else total,
        f"{first}{answers[0].number}",
    )


def is_ours(name):
    return name == OURS


def play(name, streams, *, waits=False):
    """What a client gets of answers, given as their events, as a proxy would relay them.

    The proxy decides as soon as an answer is complete. Of one that is not the last it reads the
    rest, too, for its usage.
    """
    joined = get_dialect(name).join_answers(is_ours)
    got = []
    for place, events in enumerate(streams):
        is_last = place == len(streams) - 1
        assembly = get_dialect(name).make_assembly()
        was_done = False
        for sent in events:
            got += joined.add_event(sent)
            assembly.add_event(sent.data)
            if is_last and assembly.done and not was_done and not waits:
                was_done = True
                got += joined.end_answer(last=True)
        if not was_done:
            got += joined.end_answer(last=is_last)
    return got


def build(name, events):
    assembly = get_dialect(name).make_assembly()
    for sent in events:
        assembly.add_event(sent.data)
    assert assembly.done
    return assembly.build_body()


def talk(*answers, **more):
    """Answers in a row, each given as its blocks."""
    return [Answer([*blocks], number, **more) for number, blocks in enumerate(answers)]


def check(name, answers):
    """Join answers as streams and as bodies, and see that the client gets what it should."""
    streams = [answer.events(name) for answer in answers]
    got = play(name, streams)
    assert play(name, streams, waits=True) == got
    expected = expect(name, answers)
    assert shape(name, build(name, got)) == expected
    bodies = [build(name, stream) for stream in streams]
    assert shape(name, get_dialect(name).join_answers(is_ours).join_bodies(bodies)) == expected
    check_events(name, got)
    return got


def check_events(name, got):
    """See that events name nothing of ours, count without a hole, begin once and end once."""
    assert not any(OURS in sent.data for sent in got)
    events = [json.loads(sent.data) for sent in got if sent.data != "[DONE]"]
    kinds = Counter(event.get("type") or event.get("event_type") for event in events)
    match name:
        case "openai-chat":
            deltas = [event["choices"][0] for event in events if event["choices"]]
            begun = [call["index"] for one in deltas for call in one["delta"].get("tool_calls", ()) if "id" in call]  # fmt: skip
            assert begun == [*range(len(begun))]
            assert [one["delta"].get("role") for one in deltas].count("assistant") == 1
            assert [one["finish_reason"] for one in deltas[:-1]] == [None] * (len(deltas) - 1)
            assert len({(event["id"], event["created"]) for event in events}) == 1
            assert [sent.data for sent in got].count("[DONE]") == 1
        case "anthropic":
            begun = [event["index"] for event in events if event["type"] == "content_block_start"]
            assert begun == [*range(len(begun))]
            assert [kinds[one] for one in ("message_start", "message_delta", "message_stop")] == [1] * 3  # fmt: skip
            assert events[-1]["type"] == "message_stop"
        case "openai-responses":
            begun = [one["output_index"] for one in events if one["type"] == "response.output_item.added"]  # fmt: skip
            assert begun == [*range(len(begun))]
            assert [event["sequence_number"] for event in events] == [*range(len(events))]
            assert [kinds[f"response.{one}"] for one in ("created", "in_progress", "completed")] == [1] * 3  # fmt: skip
            assert len({event["response"]["id"] for event in events if "response" in event}) == 1
            assert events[-1]["response"]["output"] == [one["item"] for one in events if one["type"] == "response.output_item.done"]  # fmt: skip
        case "gemini":
            ends = [bool(event["candidates"][0].get("finishReason")) for event in events]
            assert ends == [*[False] * (len(ends) - 1), True]
            assert len({event["responseId"] for event in events}) == 1
        case _:
            begun = [event["index"] for event in events if event["event_type"] == "step.start"]
            assert begun == [*range(len(begun))]
            assert kinds["interaction.created"] == kinds["interaction.completed"] == 1
            assert kinds["interaction.status_update"] == 2
            own = {event["interaction_id"] for event in events if "interaction_id" in event}
            assert own == {event["interaction"]["id"] for event in events if "interaction" in event}
            assert got[-1] == SseEvent("done", "[DONE]")


# The laws.

_words = st.text("ab \n", min_size=1, max_size=6)
_spoken = st.tuples(st.sampled_from(["text", "text", "thought"]), _words)
_calls = st.sampled_from(["ours", "own"]).map(lambda kind: (kind, ""))


def name_calls(answers):
    """Give every call an id of its own."""
    return [
        [(kind, words or f"call_{number}_{at}") for at, (kind, words) in enumerate(blocks)]
        for number, blocks in enumerate(answers)
    ]


_rounds = st.lists(st.one_of(_spoken, st.just(("ours", ""))), min_size=1, max_size=5)
_answers = st.tuples(
    st.lists(_rounds.filter(lambda one: ("ours", "") in one), max_size=3),
    st.lists(st.one_of(_spoken, _calls), max_size=6),
).map(lambda pair: name_calls([*pair[0], pair[1]]))


@EVERY
@given(_answers, st.randoms(use_true_random=False))
def test_the_client_sees_all_that_was_said_and_no_call_of_ours(name, answers, cuts):
    check(name, talk(*answers, cuts=cuts))


@EVERY
@given(st.lists(st.one_of(_spoken, st.just(("own", "")))), st.randoms(use_true_random=False))
def test_an_answer_without_our_calls_passes_unchanged(name, blocks, cuts):
    ((blocks),) = name_calls([blocks])
    events = [sent._replace(data=sent.data.replace(OURS, "run")) for sent in Answer(blocks, 7, cuts).events(name)]  # fmt: skip
    assert play(name, [events]) == events
    assert play(name, [events], waits=True) == events
    body = build(name, events)
    assert get_dialect(name).join_answers(is_ours).join_bodies([body]) == body


@EVERY
@pytest.mark.parametrize(
    "message",
    [
        {"content": "Looking."},
        {"content": ""},
        {"content": None, "refusal": "No."},
        {"content": "So", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": ARGUMENTS}}]},
    ],
)  # fmt: skip
def test_what_the_scripted_provider_says_passes_unchanged(name, message):
    asked = {"model": "m", "stream_options": {"include_usage": True}}
    whole, lines = written(name, asked, message, 9)
    reader = SseReader()
    events = reader.feed("".join(lines).encode())
    assert play(name, [events]) == events
    assert get_dialect(name).join_answers(is_ours).join_bodies([whole]) == whole


JUNK = (None, [], {}, "x", -1, 1.5, True, [1], {"a": [1]}, [None], 10**30)


def replace_any(value, cuts):
    """A JSON value in which some value, at any depth, is another."""
    if not isinstance(value, dict | list) or not value or cuts.random() < 0.2:
        return cuts.choice(JUNK)
    place = cuts.choice([*value] if isinstance(value, dict) else range(len(value)))
    inner = replace_any(value[place], cuts)
    if isinstance(value, dict):
        return {**value, place: inner}
    return [*value[:place], inner, *value[place + 1 :]]


@EVERY
@given(_answers, st.randoms(use_true_random=False))
def test_no_server_breaks_it(name, answers, cuts):
    """Whatever stands in a field: what to make of it is for others to say."""
    joined = get_dialect(name).join_answers(is_ours)
    bodies = []
    for answer in talk(*answers, cuts=cuts):
        events = answer.events(name)
        bodies.append(replace_any(build(name, events), cuts))
        for sent in events:
            data = sent.data
            if data != "[DONE]" and cuts.random() < 0.3:
                data = json.dumps(replace_any(json.loads(data), cuts))
            joined.add_event(sent._replace(data=data))
        joined.end_answer(last=False)
    bodies = [body for body in bodies if isinstance(body, dict)]
    get_dialect(name).join_answers(is_ours).join_bodies(bodies)


ODD = {
    CHAT: [
        chunk(0, prompt_filter_results=[]),
        chunk(0, delta(role="assistant")),
        chunk(0, delta()),
        {**chunk(0, {"index": 0, "delta": None, "finish_reason": None}), "choices": [{"index": 0}]},
        chunk(0, delta("stop")),
        chunk(0, {"index": 0, "content_filter_offsets": {}}),
        {"choices": [], "usage": {"completion_tokens": 1}},
    ],
    ANTHROPIC: [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_delta", "index": "x"},
        {"type": "message_delta", "delta": {}, "usage": {"input_tokens": None}},
        {"type": "ping"},
        {"type": "message_stop"},
    ],
    RESPONSES: [
        {"type": "response.created", "response": {}},
        {"type": "keepalive", "sequence_number": 8},
        {"type": "response.output_item.done", "output_index": 3, "item": {"type": "message"}},
        {"type": "response.completed", "response": {"output": []}, "sequence_number": 5},
    ],
    GEMINI: [
        {"candidates": [{"content": {"parts": [{"text": "A", "thought_signature": "c2ln"}]}}], "response_id": None},
        {"usageMetadata": {"totalTokenCount": 3.0}},
        {"prompt_feedback": {"block_reason": "SAFETY"}},
    ],
    INTERACTIONS: [
        {"event_type": "interaction.created", "interaction": None},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "A"}},
        {"event_type": "interaction.status_update", "status": "requires_action"},
        {"event_type": "interaction.completed", "interaction": {"steps": None}},
    ],
}  # fmt: skip


@EVERY
def test_odd_events_and_bodies_pass_unchanged_and_in_order(name):
    events = sse(*ODD[name])
    joined = get_dialect(name).join_answers(is_ours)
    assert joined.add_event(events[0]) == events[:1]
    joined = get_dialect(name).join_answers(is_ours)
    passed = [one for sent in events for one in joined.add_event(sent)]
    assert passed + joined.end_answer(last=True) == events
    for body in ({}, {"error": {"message": "no"}}, {"choices": []}, {"candidates": []}):
        assert get_dialect(name).join_answers(is_ours).join_bodies([body]) == body


@EVERY
def test_whole_bodies(name):
    """Bodies as a provider writes them: one has words and a call of ours, one only calls."""
    calls = [{"id": one, "type": "function", "function": {"name": called, "arguments": ARGUMENTS}} for one, called in (("c1", OURS), ("c2", "run"), ("c3", OURS))]  # fmt: skip
    messages = [{"content": "A", "tool_calls": calls[:1]}, {"content": None, "tool_calls": calls[1:]}]  # fmt: skip
    bodies = [written(name, {"model": "m"}, message, 9 + at)[0] for at, message in enumerate(messages)]  # fmt: skip
    if name == GEMINI:
        bodies[1]["candidates"][0]["content"]["parts"][0]["functionCall"]["id"] = "c2"
    if name == INTERACTIONS:
        bodies[0]["steps"][0]["summary"] = bodies[1]["steps"][0]["summary"] = []
    body = get_dialect(name).join_answers(is_ours).join_bodies(bodies)
    seen = shape(name, body)
    assert (seen.text, seen.calls, seen.fed, seen.output) == ("A", ("c2 run",), 10, 2)
    assert seen.stop in ("tool_calls", "tool_use", "requires_action", "completed", "STOP")
    assert OURS not in json.dumps(body)


# Cases by hand.

ROUNDS = {
    "one round": ([("text", "I look."), ("ours", "c1")], [("text", "Found.")]),
    "a silent round": ([("ours", "c1")], [("text", "Found.")]),
    "a call of the client's after ours": (
        [("thought", "hm"), ("text", "I look."), ("ours", "c1")],
        [("thought", "so"), ("text", "Now run."), ("own", "c2")],
    ),
    "ours before the client's": ([("text", "Both."), ("ours", "c1"), ("own", "c2")],),
    "ours behind the client's": ([("own", "c1"), ("ours", "c2")],),
    "ours between": ([("own", "c1"), ("ours", "c2"), ("own", "c3"), ("ours", "c4")],),
    "parallel calls of ours": ([("ours", "c1"), ("ours", "c2")], [("own", "c3"), ("own", "c4")]),
    "two rounds": (
        [("text", "A"), ("ours", "c1")],
        [("thought", "b"), ("ours", "c2")],
        [("text", "C"), ("ours", "c3"), ("own", "c4")],
    ),
    "given up": ([("text", "A"), ("ours", "c1")], [("text", "B"), ("ours", "c2")]),
    "given up in silence": ([("ours", "c1")], [("ours", "c2")]),
    "blank words": (
        [("text", "A"), ("ours", "c1")],
        [("text", " \n"), ("ours", "c2")],
        [("text", "\n B")],
    ),
    "blank words first": ([("text", "\n"), ("ours", "c1")], [("text", "B")]),
}


@EVERY
@pytest.mark.parametrize("case", ROUNDS)
def test_rounds(name, case):
    check(name, talk(*ROUNDS[case]))


@EVERY
def test_the_shape_of_an_answer_after_a_round(name):
    """Spelled out once, beside what `expect` computes."""
    answers = talk([("text", "I look."), ("ours", "c1")], [("text", "Now run."), ("own", "c2")])
    seen = shape(name, build(name, play(name, [one.events(name) for one in answers])))
    assert (seen.text, seen.calls, seen.fed, seen.output) == ("I look.\n\nNow run.", ("c2 run",), 101, 21)  # fmt: skip
    given_up = talk([("ours", "c1")])
    seen = shape(name, build(name, play(name, [one.events(name) for one in given_up])))
    assert seen.stop in ("stop", "end_turn", "completed", "STOP")


@EVERY
def test_words_pass_at_once_and_ends_wait(name):
    """After every event the client has every word that came; nothing ends before it is decided."""
    dialect = get_dialect(name)
    joined = dialect.join_answers(is_ours)
    first, second = (one.events(name) for one in talk([("text", "One two three"), ("ours", "c1")], [("text", "four five")]))  # fmt: skip
    came = heard = ""
    for place, events in enumerate((first, second)):
        assembly = dialect.make_assembly()
        for sent in events:
            got = joined.add_event(sent)
            assembly.add_event(sent.data)
            if sent.data != "[DONE]":
                came += dialect.read_delta(json.loads(sent.data))
            heard += "".join(dialect.read_delta(json.loads(one.data)) for one in got)
            assert heard.replace("\n\n", "") == came
            if assembly.done:
                break
        else:
            pytest.fail("the answer did not end")
        assert not any(reason in one.data for one in got for reason in ("finish", "message_stop", "completed"))  # fmt: skip
        held = joined.end_answer(last=place == 1)
        assert bool(held) == (place == 1)
    rest = second[second.index(sent) + 1 :]
    assert len(rest) == {CHAT: 2, INTERACTIONS: 2}.get(name, 0)
    assert all(len(joined.add_event(one)) == 1 for one in rest)


@EVERY
def test_errors_and_what_is_no_json_pass_at_once(name):
    joined = get_dialect(name).join_answers(is_ours)
    ended = Answer([("ours", "c1")]).events(name)
    for sent in ended:
        joined.add_event(sent)
    error = {ANTHROPIC: {"type": "error", "error": {"type": "overloaded_error"}}, RESPONSES: {"type": "error", "code": "x", "sequence_number": 2}, INTERACTIONS: {"event_type": "error", "error": {"code": "x"}}}.get(name, {"error": {"message": "no"}})  # fmt: skip
    odd = [*sse(error), *sse('{"half', "", "7"), SseEvent("ping", "{")]
    assert [joined.add_event(sent) for sent in odd] == [[sent] for sent in odd]


def test_an_event_is_written_as_it_was_read():
    events = [SseEvent("message", '{"a": 1}'), SseEvent("ping", "one\n\ntwo"), SseEvent("x", "ü")]
    assert SseReader().feed(b"".join(map(write_event, events))) == events
    assert write_event(events[0]) == b'data: {"a": 1}\n\n'


# Chunks that hold several things, and servers that differ.


def join_chunks(name, *streams):
    got = play(name, streams)
    assert not any(OURS in sent.data for sent in got)
    return [sent.data if sent.data == "[DONE]" else json.loads(sent.data) for sent in got]


def call(name, arguments="{}", **fields):
    return {**fields, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_white_space_waits_for_the_words_behind_it():
    """The blank line stands before all of a later text, however it is cut."""
    first, later = (sse(chunk(0, delta("tool_calls", content="A", tool_calls=[call(OURS, index=0, id="c1")]))), [chunk(1, delta(content=piece)) for piece in (" ", "\n", "B", " ")])  # fmt: skip
    got = join_chunks(CHAT, first, sse(*later, chunk(1, delta("stop"))))
    assert [one["choices"][0]["delta"].get("content") for one in got] == [
        "A",
        "\n\n \nB",
        " ",
        None,
    ]
    first = sse(gemini_chunk(0, {"text": "A"}, function_call("ours", "c1"), finishReason="STOP"))
    later = sse(*(gemini_chunk(1, {"text": piece}) for piece in (" ", "B")), gemini_chunk(1, finishReason="STOP"))  # fmt: skip
    (candidate,) = build(GEMINI, play(GEMINI, [first, later]))["candidates"]
    assert candidate["content"]["parts"] == [{"text": "A\n\n B"}]


def test_chat_chunks_that_hold_several_things():
    """The words of the chunk that ends an answer are heard, whether it is the last or not."""
    first = sse(chunk(0, {"index": 0, "delta": {"role": "assistant", "content": "A", "tool_calls": [call(OURS, index=0, id="c1"), call("run", index=1, id="c2")]}, "finish_reason": "tool_calls"}, usage={"completion_tokens": 3}))  # fmt: skip
    said, end = join_chunks(CHAT, first)
    assert said["choices"] == [delta(role="assistant", content="A", tool_calls=[call("run", index=0, id="c2")])]  # fmt: skip
    assert (end["choices"], end["usage"]) == ([delta("tool_calls")], {"completion_tokens": 3})
    assert "usage" not in said
    only = sse(chunk(0, delta("tool_calls", role="assistant", content="A", tool_calls=[call(OURS, index=0, id="c1")])))  # fmt: skip
    last = sse(chunk(1, delta("stop", role="assistant", content="B")))
    said, end = join_chunks(CHAT, only, last)
    assert [one["choices"] for one in (said, end)] == [[delta(role="assistant", content="A")], [delta("stop", content="\n\nB")]]  # fmt: skip


@pytest.mark.parametrize("ours_first", [True, False])
def test_chat_calls_that_all_have_the_index_0(ours_first):
    one, two = (OURS, "run") if ours_first else ("run", OURS)
    calls = [call(one, "", index=0, id="c1"), {"index": 0, "function": {"arguments": '{"x":1}'}}, call(two, "", index=0, id="c2"), {"index": 0, "id": "", "function": {"arguments": '{"x":1}'}}]  # fmt: skip
    events = sse(*(chunk(0, delta(tool_calls=[one])) for one in calls), chunk(0, delta("tool_calls")), "[DONE]")  # fmt: skip
    body = build(CHAT, play(CHAT, [events]))
    (left,) = body["choices"][0]["message"]["tool_calls"]
    assert left == call("run", '{"x":1}', id="c2" if ours_first else "c1")


def test_chat_calls_without_ids_and_a_beginning_without_one():
    calls = [call(OURS, "", index=0, id=""), call("run", "", index=1, id=""), {"index": 0, "id": "", "function": {"arguments": "{}"}}, {"index": 1, "id": "", "function": {"arguments": '{"x":1}'}}]  # fmt: skip
    events = sse(*(chunk(0, delta(tool_calls=[one])) for one in calls), chunk(0, delta("tool_calls")))  # fmt: skip
    got = build(CHAT, play(CHAT, [events]))["choices"][0]["message"]["tool_calls"]
    assert got == [call("run", '{"x":1}', id="")]
    bare = sse(chunk(0, delta(content="A")), {"choices": [delta("tool_calls", tool_calls=[call(OURS, id="c1")])]})  # fmt: skip
    said, end = join_chunks(CHAT, bare, sse(chunk(1, delta("stop"))))
    assert (said["id"], end["id"], end["created"]) == ("chatcmpl_0", "chatcmpl_0", 1000)


def test_chat_calls_without_an_index_and_whole_messages():
    message = {"role": "assistant", "content": None, "tool_calls": [call(OURS, id="c1"), call("run", id="c2")]}  # fmt: skip
    events = sse(chunk(0, {"index": 0, "message": message, "finish_reason": "stop"}))
    said, end = join_chunks(CHAT, events)
    assert said["choices"][0]["message"]["tool_calls"] == [call("run", id="c2")]
    assert end["choices"][0]["finish_reason"] == "stop"
    pieces = [[call(OURS, "{", id="c1")], [{"function": {"arguments": "}"}}], [call("run", "{", id="c2")], [{"function": {"arguments": "}"}}]]  # fmt: skip
    events = sse(*(chunk(0, delta(tool_calls=one)) for one in pieces), chunk(0, delta("tool_calls")))  # fmt: skip
    got = build(CHAT, play(CHAT, [events]))["choices"][0]
    assert got["message"]["tool_calls"] == [call("run", "{}", id="c2")]


def test_chat_the_old_way_to_call_a_function():
    deltas = [{"role": "assistant", "function_call": {"name": OURS, "arguments": ""}}, {"function_call": {"arguments": "{}"}}]  # fmt: skip
    events = sse(*(chunk(0, delta(**one)) for one in deltas), chunk(0, delta("function_call")))
    assert [one["choices"] for one in join_chunks(CHAT, events)] == [[delta(role="assistant")], [delta("stop")]]  # fmt: skip


def test_chat_contents_in_pieces_and_numbered_reasoning():
    """As Mistral and OpenRouter write them."""
    text = lambda words: [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": words}]  # noqa: E731
    deltas = [delta(content=text("A")), delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "x"}]), delta(tool_calls=[call(OURS, index=0, id="c1")]), delta("tool_calls")]  # fmt: skip
    later = [delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "y"}]), delta(content=text("B")), delta("stop")]  # fmt: skip
    streams = [sse(*(chunk(number, one) for one in some)) for number, some in enumerate((deltas, later))]  # fmt: skip
    got = [one["choices"][0]["delta"] for one in join_chunks(CHAT, *streams)]
    assert [one["content"] for one in got if "content" in one] == [text("A"), text("\n\nB")]
    assert [one["reasoning_details"][0]["index"] for one in got if "reasoning_details" in one] == [0, 1]  # fmt: skip
    bodies = [build(CHAT, stream) for stream in streams]
    message = get_dialect(CHAT).join_answers(is_ours).join_bodies(bodies)["choices"][0]["message"]
    assert message["content"] == [*text("A"), *text("\n\nB")]
    bodies[0]["choices"][0]["message"]["content"] = "A"
    message = get_dialect(CHAT).join_answers(is_ours).join_bodies(bodies)["choices"][0]["message"]
    assert message["content"] == [text("A")[1], *text("\n\nB")]


def test_chat_usage_that_comes_after_the_proxy_has_decided():
    """What was not given is not counted; the last answer's usage passes at once."""
    first, second = (one.events(CHAT) for one in talk([("ours", "c1")], [("text", "B")]))
    got = join_chunks(CHAT, first[:-2], second)
    assert got[-1] == "[DONE]"
    assert got[-2]["usage"]["completion_tokens"] == 11
    usage = join_chunks(CHAT, first, second)[-2]["usage"]
    assert usage == {"prompt_tokens": 101, "completion_tokens": 21, "total_tokens": 122, "completion_tokens_details": {"reasoning_tokens": 4}}  # fmt: skip


def test_ends_that_come_alone_or_early_wait_as_well():
    first = Answer([("ours", "c1")]).events(CHAT)
    early = [*first[:-3], first[-2], first[-3], first[-1]]
    got = join_chunks(CHAT, early, Answer([("text", "B")], 1).events(CHAT))
    assert [one["usage"]["completion_tokens"] for one in got[:-1] if one["usage"]] == [21]
    joined = get_dialect(ANTHROPIC).join_answers(is_ours)
    (stop,) = sse({"type": "message_stop"})
    assert (joined.add_event(stop), joined.end_answer(last=True)) == ([], [stop])


def test_what_is_dropped_of_one_answer_is_not_dropped_of_the_next():
    """Even if a server does not announce it."""
    first = Answer([("ours", "c1")]).events(ANTHROPIC)
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "B"}}
    got = join_chunks(ANTHROPIC, first, sse(word, {"type": "message_stop"}))
    assert got == [json.loads(first[0].data), {"type": "ping"}, word, {"type": "message_stop"}]
    nameless = delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])
    got = join_chunks(CHAT, Answer([("ours", "c1")]).events(CHAT), sse(chunk(1, nameless), chunk(1, delta("stop"))))  # fmt: skip
    assert [one["choices"][0] for one in got[1:]] == [nameless, delta("stop")]


def test_anthropic_counts_the_last_input_and_all_output():
    first, second = (one.events(ANTHROPIC) for one in talk([("ours", "c1")], [("text", "B")]))
    *_, end, _stop = join_chunks(ANTHROPIC, first, second)
    assert end["usage"] == {"input_tokens": 101, "cache_read_input_tokens": 1, "output_tokens": 21}
    told = {"input_tokens": None, "cache_read_input_tokens": 7, "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}}  # fmt: skip
    reported = [
        [*events[:-2], *sse({**json.loads(events[-2].data), "usage": told}), events[-1]]
        for events in (first, second)
    ]
    *_, end, _stop = join_chunks(ANTHROPIC, *reported)
    assert end["usage"] == {"input_tokens": 101, "cache_read_input_tokens": 7, "output_tokens": 10, "output_tokens_details": {"thinking_tokens": 4}}  # fmt: skip


def test_responses_of_servers_that_count_otherwise():
    """Items that are all numbered 0, or not at all; an end that lists nothing; ids that change."""
    events = [json.loads(sent.data) for sent in Answer([("text", "A"), ("ours", "c1"), ("own", "c2")]).events(RESPONSES)]  # fmt: skip
    zero = [{**event, **({"output_index": 0} if "output_index" in event else {})} for event in events]  # fmt: skip
    body = build(RESPONSES, play(RESPONSES, [sse(*zero)]))
    assert [item["type"] for item in body["output"]] == ["message", "function_call"]
    bare = [{key: one for key, one in event.items() if key not in ("output_index", "sequence_number")} for event in events]  # fmt: skip
    got = join_chunks(RESPONSES, sse(*bare))
    assert [event["item"]["type"] for event in got if event["type"] == "response.output_item.done"] == ["message", "function_call"]  # fmt: skip
    assert sum(event["type"] == "response.function_call_arguments.done" for event in got) == 1
    short = [*events[:-1], {**events[-1], "response": {**events[-1]["response"], "output": []}}]
    got = join_chunks(RESPONSES, sse(*short))
    assert [item["type"] for item in got[-1]["response"]["output"]] == ["message", "function_call"]
    later = Answer([("text", "B")], 1).events(RESPONSES)
    *_, end = join_chunks(RESPONSES, sse(*short[:-1], {**short[-1], "response": {"id": "resp_0"}}), later)  # fmt: skip
    assert [item["type"] for item in end["response"]["output"]] == ["message", "function_call", "message"]  # fmt: skip
    changed = [{**event, "item_id": f"x{at}"} if "item_id" in event else event for at, event in enumerate(events)]  # fmt: skip
    assert len(join_chunks(RESPONSES, sse(*changed))) == len(join_chunks(RESPONSES, sse(*events)))


def test_responses_keep_what_the_client_asked_and_hide_our_tool():
    streams = [one.events(RESPONSES) for one in talk([("ours", "c1")], [("text", "B")])]
    got = join_chunks(RESPONSES, *streams)
    (ended,) = [event["response"] for event in got if event["type"] == "response.completed"]
    assert (ended["id"], ended["created_at"], ended["tools"]) == ("resp_0", 1000, [])
    assert ended["usage"] == {"input_tokens": 101, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 21, "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 122}  # fmt: skip
    cut = {**json.loads(streams[1][-1].data), "type": "response.incomplete"}
    cut["response"] |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}  # fmt: skip
    *_, end = join_chunks(RESPONSES, streams[0], [*streams[1][:-1], *sse(cut)])
    assert (end["type"], end["response"]["status"]) == ("response.incomplete", "incomplete")


def test_gemini_signs_the_first_call_of_the_client():
    signed = {"thoughtSignature": "c2ln"}
    events = sse(gemini_chunk(0, {"text": "A"}, function_call("ours", "c1", **signed)), gemini_chunk(0, function_call("own", "c2"), function_call("own", "c3"), finishReason="STOP"))  # fmt: skip
    text, calls, end = join_chunks(GEMINI, events)
    assert text["candidates"][0]["content"]["parts"] == [{"text": "A"}]
    assert calls["candidates"] == [{"content": {"role": "model", "parts": [function_call("own", "c2", **signed), function_call("own", "c3")]}, "index": 0}]  # fmt: skip
    assert end["candidates"] == [{"content": {"role": "model"}, "finishReason": "STOP", "index": 0}]
    other = {"thoughtSignature": "b3Ro"}
    kept = [function_call("own", "c1", **other), function_call("own", "c3")]
    events = sse(gemini_chunk(0, kept[0], function_call("ours", "c2", **signed), kept[1], finishReason="STOP"))  # fmt: skip
    said, _ = join_chunks(GEMINI, events)
    assert said["candidates"][0]["content"]["parts"] == kept
    both = [function_call("ours", "c0", **signed), kept[0], kept[1]]
    said, _ = join_chunks(GEMINI, sse(gemini_chunk(0, *both, finishReason="STOP")))
    assert said["candidates"][0]["content"]["parts"] == kept
    first = sse(gemini_chunk(0, function_call("ours", "c1", **signed), finishReason="STOP"))
    _, end = play(GEMINI, [first, sse(gemini_chunk(1, {"text": "B"}), gemini_chunk(1, function_call("own", "c2"), finishReason="STOP"))])  # fmt: skip
    assert "thoughtSignature" not in end.data


def test_gemini_calls_in_pieces_and_names_in_snake_case():
    """As Vertex streams arguments, and as some proxies write fields; what is ours is found."""
    pieces = [{"functionCall": {"name": OURS, "willContinue": True}}, {"functionCall": {"partialArgs": [], "willContinue": True}}, {"functionCall": {}}]  # fmt: skip
    events = sse(*(gemini_chunk(0, one) for one in pieces), gemini_chunk(0, function_call("own", "c2"), finishReason="STOP"))  # fmt: skip
    assert len(join_chunks(GEMINI, events)) == 2
    parts = [{"function_call": {"name": OURS, "args": {"a_b": 1}}, "thought_signature": "c2ln"}, {"function_call": {"name": "run", "args": {"a_b": 1}}}]  # fmt: skip
    body = {"candidates": [{"content": {"parts": parts}, "finish_reason": "STOP"}], "response_id": "r"}  # fmt: skip
    got = get_dialect(GEMINI).join_answers(is_ours).join_bodies([body])
    assert got["candidates"][0]["content"]["parts"] == [{"functionCall": {"name": "run", "args": {"a_b": 1}}, "thoughtSignature": "c2ln"}]  # fmt: skip


def test_gemini_keeps_the_thoughts_apart_from_the_words():
    """The blank line stands before the first words, not before a thought."""
    streams = [one.events(GEMINI) for one in talk([("text", "A"), ("ours", "c1")], [("thought", "t"), ("text", "B")])]  # fmt: skip
    (candidate,) = build(GEMINI, play(GEMINI, streams))["candidates"]
    parts = [part for part in candidate["content"]["parts"] if part["text"]]
    assert parts == [{"text": "A"}, {"text": "t", "thought": True}, {"text": "\n\nB"}]


def test_interactions_whose_end_lists_the_steps():
    steps = [{"type": "model_output", "content": [{"type": "text", "text": "A"}]}, {"type": "function_call", "id": "c1", "name": OURS, "arguments": {}}]  # fmt: skip
    ends = [{"event_type": "interaction.completed", "interaction": {"id": f"int_{number}", "status": status, "steps": some}} for number, (status, some) in enumerate([("requires_action", steps), ("completed", steps[:1])])]  # fmt: skip
    got = join_chunks(INTERACTIONS, *(sse(end) for end in ends))
    assert got == [{"event_type": "interaction.completed", "interaction": {"id": "int_0", "status": "completed", "steps": [steps[0], steps[0]]}}]  # fmt: skip


# The vendors' own SDKs put the events together.

PLAYED = talk(
    [("thought", "hm"), ("text", "I look."), ("ours", "c1")],
    [("text", "Once more."), ("ours", "c2")],
    [("text", "Now run."), ("ours", "c3"), ("own", "c4"), ("own", "c5")],
)


def transport(name):
    """A server that streams the joined answer."""
    got = check(name, PLAYED)
    content = b"".join(map(write_event, got))
    headers = {"content-type": "text/event-stream"}
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, content=content, headers=headers))
    return httpx2.Client(transport=answer)


def test_openais_sdk_reads_a_joined_completion():
    with transport(CHAT) as http:
        api = openai.OpenAI(api_key="-", base_url="http://localhost", http_client=http)
        with api.chat.completions.stream(model="m", messages=[]) as stream:
            final = stream.get_final_completion()
    (choice,) = final.choices
    assert choice.message.content == "I look.\n\nOnce more.\n\nNow run."
    assert [(one.id, one.function.arguments) for one in choice.message.tool_calls] == [("c4", ARGUMENTS), ("c5", ARGUMENTS)]  # fmt: skip
    assert (choice.finish_reason, final.id, final.usage.completion_tokens) == ("tool_calls", "chatcmpl_0", 33)  # fmt: skip


def test_openais_sdk_reads_a_joined_response():
    with transport(RESPONSES) as http:
        api = openai.OpenAI(api_key="-", base_url="http://localhost", http_client=http)
        with api.responses.stream(model="m", input="x") as stream:
            final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "message", "message", "function_call", "function_call"]  # fmt: skip
    assert final.output_text == "I look.Once more.Now run."
    assert (final.id, final.usage.output_tokens, final.usage.total_tokens) == ("resp_0", 33, 135)


def test_anthropics_sdk_reads_a_joined_message():
    with transport(ANTHROPIC) as http:
        api = anthropic.Anthropic(api_key="-", base_url="http://localhost", http_client=http)
        with api.messages.stream(model="m", max_tokens=9, messages=[]) as stream:
            final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text", "text", "text", "tool_use", "tool_use"]  # fmt: skip
    assert final.content[-1].input == {"q": "wombat"}
    usage = final.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (102, 2, 33)
    assert (final.id, final.stop_reason) == ("msg_0", "tool_use")


def test_googles_sdk_reads_joined_contents_and_interactions():
    options = {"base_url": "http://localhost"}
    with transport(GEMINI) as http:
        api = genai.Client(api_key="-", http_options={**options, "httpx_client": http})
        chunks = [*api.models.generate_content_stream(model="m", contents="x")]
    parts = [part for one in chunks for part in one.candidates[0].content.parts or ()]
    assert "".join(one.text for one in parts if one.text and not one.thought) == "I look.\n\nOnce more.\n\nNow run."  # fmt: skip
    calls = [one for one in parts if one.function_call]
    assert [(one.function_call.id, one.thought_signature) for one in calls] == [("c4", b"sig"), ("c5", None)]  # fmt: skip
    assert chunks[-1].usage_metadata.candidates_token_count == 33
    with transport(INTERACTIONS) as http:
        api = genai.Client(api_key="-", http_options={**options, "httpx_client": http})
        events = [*api.interactions.create(model="m", input="x", stream=True)]
    assert [one.event_type for one in events][-1] == "interaction.completed"
    assert (events[-1].interaction.id, events[-1].interaction.usage.total_output_tokens) == ("int_0", 33)  # fmt: skip

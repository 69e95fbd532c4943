"""Tool loops of a model that thinks: whoever plans them, the provider is never shown one whose thinking is gone.

Sixty calls in a window that holds a dozen, by a session, a wrapped client and a gateway, whole and streamed, through the
vendors' own SDKs. The provider refuses what real ones document, by `session_programs`: the start of a Claude loop without
thinking where it has a budget, thinking that was changed or left out in the loop, reasoning without what followed it, a
first call without its signature, thinking that a model bound to other words.
"""

import json
from hashlib import sha256

import anthropic
import openai
import pytest
from google import genai
from google.genai import types
from session_programs import JUDGES, before_call

import foldline
from foldline.testing import Provider
from foldline.testing.gateways import Served

CALLS, WINDOW = 60, 12_000
LINES = "A line of what was found in the file, as it is. " * 70
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000}
INTERLEAVED = {**BUDGET, "extra_headers": {"anthropic-beta": "interleaved-thinking-2025-05-14"}}
ADAPTIVE = {"thinking": {"type": "adaptive"}, "max_tokens": 2_000}
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}
KINDS = {
    "manual": ("anthropic", "claude-sonnet-4-6", BUDGET),
    "interleaved": ("anthropic", "claude-sonnet-4-6", INTERLEAVED),
    "adaptive": ("anthropic", "claude-opus-4-6", ADAPTIVE),
    "bound": ("anthropic", "claude-sonnet-5-5", ADAPTIVE),
    "reasoning": ("openai-responses", "gpt-6.1-sol", STATELESS),
    "signatures": ("gemini", "gemini-3-pro", {}),
}


class Thinker:
    """A model that calls a tool sixty times, and knows what it thought before each call."""

    def __init__(self, kind):
        self.kind, (self.dialect, self.model, _) = kind, KINDS[kind]
        self.number, self.thoughts, self.faults, self.folded = 0, {}, [], 0

    def __call__(self, body):
        """The next answer."""
        found = JUDGES[self.dialect]({"max_tokens": 2_000, **body})
        found = [one for one in found if not one.endswith("twice")]  # a role twice is joined
        shown = json.dumps(body)
        self.folded += '"log:' in shown or "[log:" in shown or "was folded" in shown
        for call_id, thought in self.thoughts.items():
            if f'"{call_id}"' in shown and self.kind != "bound":
                kept = before_call(self.dialect, body, call_id)
                found += [f"{thought} is gone before {call_id}"] * (thought not in kept)
        if self.kind == "bound":
            for at, message in enumerate(body["messages"]):
                for block in message["content"]:
                    is_thought = isinstance(block, dict) and block["type"] == "thinking"
                    if is_thought and block["signature"] != self.seal(body["messages"][:at]):
                        found.append(f"messages.{at} is bound to a different conversation")
        self.faults += [f"call {self.number}: {one}" for one in found]
        self.number += 1
        if self.number > CALLS:
            return "done"
        thought = f"c2ln{self.number:04d}"
        if self.kind == "bound":
            thought = self.seal(body["messages"])
        call_id = f"call_{self.number}"
        function = {"name": "look", "arguments": json.dumps({"at": self.number})}
        answer = {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}
        if self.kind in ("interleaved", "manual") and self.number > 1 and self.number % 3 == 0:
            return answer  # it does not think before every call
        self.thoughts[call_id] = thought
        return {**answer, "reasoning": thought, "id": f"{self.number}"}

    def seal(self, messages):
        """The signature of thinking behind some messages."""
        said = []
        for message in messages:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            said += [[message["role"], {key: one[key] for key in sorted(one) if key not in ("cache_control", "caller")}] for one in blocks if one["type"] != "thinking"]  # fmt: skip
        return sha256(json.dumps(said).encode()).hexdigest()


@pytest.fixture(params=KINDS)
def thinker(request):
    """A model of each kind."""
    return Thinker(request.param)


TOOLS = {
    "anthropic": [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}],
    "openai-responses": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    "gemini": [{"function_declarations": [{"name": "look", "parameters_json_schema": {"type": "object"}}]}],
}  # fmt: skip


def make_client(dialect, url):
    """The vendor's SDK."""
    if dialect == "anthropic":
        return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    if dialect == "gemini":
        return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def ask(client, dialect, body, *, stream):
    """One call by an SDK; the answer in the dialect's JSON, as clients keep it."""
    if dialect == "anthropic":
        if stream:
            with client.messages.stream(**body) as streamed:
                reply = streamed.get_final_message()
        else:
            reply = client.messages.create(**body)
        return [{"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in reply.content]}]  # fmt: skip
    if dialect == "gemini":
        models = client.models
        if not stream:
            return [models.generate_content(**body).candidates[0].content]
        parts = [part for chunk in models.generate_content_stream(**body) for part in chunk.candidates[0].content.parts or ()]  # fmt: skip
        return [types.Content(role="model", parts=parts)]
    if stream:
        ended = [one for one in client.responses.create(**body, stream=True) if one.type == "response.completed"]  # fmt: skip
        reply = ended[0].response
    else:
        reply = client.responses.create(**body)
    return [one.model_dump(exclude_none=True) for one in reply.output]


def answer_calls(dialect, said):
    """The results of the calls in an answer."""
    if dialect == "anthropic":
        calls = [one["id"] for one in said[0]["content"] if one["type"] == "tool_use"]
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": f"{one}: {LINES}"} for one in calls]}] if calls else []  # fmt: skip
    if dialect == "gemini":
        calls = [part.function_call for part in said[0].parts if part.function_call]
        parts = [types.Part(function_response=types.FunctionResponse(id=one.id, name=one.name, response={"output": f"{one.args}: {LINES}"})) for one in calls]  # fmt: skip
        return [types.Content(role="user", parts=parts)] if parts else []
    return [{"type": "function_call_output", "call_id": one["call_id"], "output": f"{one['call_id']}: {LINES}"} for one in said if one["type"] == "function_call"]  # fmt: skip


def work(client, thinker, *, stream):
    """A loop that keeps its history itself."""
    dialect, model, fields = KINDS[thinker.kind]
    question = types.Content(role="user", parts=[types.Part(text="Read all.")]) if dialect == "gemini" else {"role": "user", "content": "Read all."}  # fmt: skip
    history, results = [question], [question]
    while results:
        if dialect == "gemini":
            body = {"model": model, "contents": history, "config": {"tools": TOOLS[dialect]}}
        else:
            listed = "input" if dialect == "openai-responses" else "messages"
            body = {"model": model, "tools": TOOLS[dialect], listed: history, **fields}
        said = ask(client, dialect, body, stream=stream)
        results = answer_calls(dialect, said)
        history += [*said, *results]


def check(thinker, provider):
    """All calls were made, at least two folds stood between them, and nothing was refused."""
    assert not thinker.faults[:3]
    assert thinker.number == CALLS + 1
    assert {*provider.statuses} == {200}
    assert thinker.folded > CALLS // 3


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@STREAMS
def test_a_session_keeps_the_thinking_of_a_loop(thinker, stream):
    """Answers as SDKs give them; the request's manual thinking stays where it may."""
    dialect, model, fields = KINDS[thinker.kind]
    with (
        Provider(thinker, window=WINDOW) as provider,
        foldline.open(":memory:", model=model, dialect=dialect, window=WINDOW, tools=TOOLS[dialect]) as s,
    ):  # fmt: skip
        client = make_client(dialect, provider.url)
        s.add("Read all.")
        results = [None]
        while results:
            said = ask(client, dialect, s.request(**fields), stream=stream)
            results = answer_calls(dialect, said)
            s.add(said)
            s.add(results)
        check(thinker, provider)


@STREAMS
def test_a_wrapped_client_keeps_the_thinking_of_a_loop(thinker, stream):
    with Provider(thinker, window=WINDOW) as provider:
        client = foldline.wrap(make_client(thinker.dialect, provider.url), window=WINDOW)
        work(client, thinker, stream=stream)
        client.close()
        check(thinker, provider)


@STREAMS
def test_a_gateway_keeps_the_thinking_of_a_loop(thinker, stream):
    with Provider(thinker, window=WINDOW) as provider, Served(provider.url, store=":memory:", window=WINDOW) as gateway:  # fmt: skip
        work(make_client(thinker.dialect, gateway.url), thinker, stream=stream)
        check(thinker, provider)

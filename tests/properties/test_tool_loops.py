"""Tool loops of a model that thinks: whoever plans them, the provider is never shown one whose thinking is gone.

Sixty calls in a window that holds a dozen, by a session, a wrapped client, a gateway and a follower, whole and streamed,
through the vendors' own SDKs; eighteen calls in CI. The provider refuses what real ones document, by `session_programs`: the start of a Claude loop without
thinking where it has a budget, thinking that was changed or left out in the loop, reasoning without what followed it, a
first call without its signature, thinking that a model bound to other words.
"""

import asyncio
import json
from contextlib import closing
from hashlib import sha256

import anthropic
import openai
import pytest
from gateway_thread import Served
from google import genai
from google.genai import types
from mutants import broken
from session_programs import JUDGES, before_call

import foldline
from foldline.core.log import Folded, ModelSaid
from foldline.core.spine import Range
from foldline.stores.base import Name
from foldline.stores.event_log import read_events
from foldline.stores.open_store import store_at
from foldline.testing import Provider

CALLS, SHORT = 60, 16
WINDOWS = {CALLS: 12_000, SHORT: 6_000}
LINES = "A line of what was found in the file, as it is. " * 70
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000}
INTERLEAVED = {**BUDGET, "extra_headers": {"anthropic-beta": "interleaved-thinking-2025-05-14"}}
CLEARS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
CLEARED = {**BUDGET, "context_management": CLEARS}
ADAPTIVE = {"thinking": {"type": "adaptive"}, "max_tokens": 2_000}
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}
KINDS = {
    "manual": ("anthropic", "claude-sonnet-4-6", BUDGET),
    "once": ("anthropic", "claude-sonnet-4-6", CLEARED),
    "interleaved": ("anthropic", "claude-sonnet-4-6", INTERLEAVED),
    "adaptive": ("anthropic", "claude-opus-4-6", ADAPTIVE),
    "bound": ("anthropic", "claude-sonnet-5-5", ADAPTIVE),
    "reasoning": ("openai-responses", "gpt-6.1-sol", STATELESS),
    "signatures": ("gemini", "gemini-3-pro", {}),
}


class Thinker:
    """A model that calls a tool sixty times, and knows what it thought before each call."""

    def __init__(self, kind, calls):
        self.kind, (self.dialect, self.model, _), self.calls = kind, KINDS[kind], calls
        self.number, self.thoughts, self.faults = 0, {}, []

    def __call__(self, body):
        """The next answer."""
        found = JUDGES[self.dialect]({"max_tokens": 2_000, **body})
        found = [one for one in found if not one.endswith("twice")]  # a role twice is joined
        shown = json.dumps(body)
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
        if self.number > self.calls:
            return "done"
        thought = f"c2ln{self.number:04d}"
        if self.kind == "bound":
            thought = self.seal(body["messages"])
        call_id = f"call_{self.number}"
        function = {"name": "look", "arguments": json.dumps({"at": self.number})}
        answer = {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}
        rests = self.kind in ("interleaved", "manual") and self.number % 3 == 0
        if self.number > 1 and (rests or self.kind == "once"):
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


LONG = (pytest.mark.slow, pytest.mark.long)
SHORTS = [pytest.param(kind, SHORT, at % 2 == 0, id=f"{kind}-short") for at, kind in enumerate(KINDS)]  # fmt: skip
LONGS = [
    pytest.param(kind, CALLS, stream, id=f"{kind}-{'stream' if stream else 'whole'}", marks=LONG)
    for kind in KINDS
    for stream in (False, True)
]
loops = pytest.mark.parametrize(("kind", "calls", "stream"), SHORTS + LONGS)


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
        beta = {name: one for name, one in body.items() if name == "context_management"}
        body = {name: one for name, one in body.items() if name not in beta} | {"extra_body": beta}
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


def work(client, thinker, *, stream, follow=dict):
    """A loop that keeps its history itself; `follow` plans each request."""
    dialect, model, fields = KINDS[thinker.kind]
    question = types.Content(role="user", parts=[types.Part(text="Read all.")]) if dialect == "gemini" else {"role": "user", "content": "Read all."}  # fmt: skip
    history, results = [question], [question]
    while results:
        if dialect == "gemini":
            body = {"model": model, "contents": history, "config": {"tools": TOOLS[dialect]}}
        else:
            listed = "input" if dialect == "openai-responses" else "messages"
            body = {"model": model, "tools": TOOLS[dialect], listed: history, **fields}
        said = ask(client, dialect, follow(body), stream=stream)
        results = answer_calls(dialect, said)
        history += [*said, *results]


def check(thinker, provider, events):
    """All calls were made, at least two folds stand between them in the log, and nothing was refused."""
    assert not thinker.faults[:3]
    assert thinker.number == thinker.calls + 1
    assert {*provider.statuses} == {200}
    folds = [at for at, event in enumerate(events) if isinstance(event, Folded)]
    said = [at for at, event in enumerate(events) if isinstance(event, ModelSaid)]
    assert sum(said[0] < at < said[-1] for at in folds) >= 2, len(folds)


def list_events(history):
    """The events of a session."""
    return [one.event for one in history.events()]


@loops
def test_a_session_keeps_the_thinking_of_a_loop(kind, calls, stream):
    """Answers as SDKs give them; the request's manual thinking stays where it may."""
    dialect, model, fields = KINDS[kind]
    thinker, window = Thinker(kind, calls), WINDOWS[calls]
    with (
        Provider(thinker, window=window) as provider,
        closing(make_client(dialect, provider.url)) as client,
        foldline.open(":memory:", model=model, dialect=dialect, window=window, tools=TOOLS[dialect]) as s,
    ):  # fmt: skip
        s.add("Read all.")
        results = [None]
        while results:
            said = ask(client, dialect, s.request(**fields), stream=stream)
            results = answer_calls(dialect, said)
            s.add(said)
            s.add(results)
        check(thinker, provider, list_events(s.history))


@loops
def test_a_wrapped_client_keeps_the_thinking_of_a_loop(kind, calls, stream):
    thinker, window = Thinker(kind, calls), WINDOWS[calls]
    with (
        Provider(thinker, window=window) as provider,
        closing(make_client(thinker.dialect, provider.url)) as bare,
        closing(foldline.wrap(bare, window=window)) as client,
    ):
        work(client, thinker, stream=stream)
        check(thinker, provider, list_events(foldline.session_of(client).history))


@loops
def test_a_gateway_keeps_the_thinking_of_a_loop(kind, calls, stream, tmp_path):
    thinker, window, store = Thinker(kind, calls), WINDOWS[calls], str(tmp_path / "log.db")
    with (
        Provider(thinker, window=window) as provider,
        Served(provider.url, store=store, window=window) as gateway,
        closing(make_client(thinker.dialect, gateway.url)) as client,
    ):
        work(client, thinker, stream=stream)
    check(thinker, provider, asyncio.run(read_only_log(store)))


async def read_only_log(address):
    """The events of the one session in a store."""
    store = store_at(address)
    try:
        (listed,) = await store.sessions("local")
        name = Name("local", listed.session)
        return [one.event for one in await read_events(store, name, Range(0, listed.head))]
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("kind", "calls", "stream"), [one for one in SHORTS + LONGS if one.values[0] != "signatures"]
)
def test_a_follower_keeps_the_thinking_of_a_loop(kind, calls, stream):
    """The path of the adapters of frameworks, which keep the history and send the request."""
    dialect, _, fields = KINDS[kind]
    thinker, window = Thinker(kind, calls), WINDOWS[calls]
    headers = {name: one for name, one in fields.items() if name == "extra_headers"}
    with (
        Provider(thinker, window=window) as provider,
        closing(make_client(dialect, provider.url)) as client,
        closing(foldline.Follower(window=window, store=":memory:")) as follower,
    ):

        def follow(body):
            plain = {name: one for name, one in body.items() if name not in headers}
            plan = follower.plan(plain, session="a", dialect=dialect)
            assert not plan.unplanned
            return {**plan.request, **headers}

        work(client, thinker, stream=stream, follow=follow)
        check(thinker, provider, list_events(follower.open_session("a").history))


WRITE = "foldline.dialects.anthropic.write"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("or find_thoughtless_loop(messages) is None:", "or True:"),
        ('.startswith("clear_thinking")', '.startswith("never")'),
    ],
)
def test_a_loop_that_would_be_refused_is_caught(line, instead):
    """A budget in a loop whose thinking was folded; thoughts to be cleared where there are none."""
    with broken(WRITE, line, instead), pytest.raises(AssertionError, match="thinking"):
        test_a_wrapped_client_keeps_the_thinking_of_a_loop("once", SHORT, stream=False)

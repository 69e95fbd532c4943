"""A client that keeps its own history, in every dialect, for tests of what is done to its requests on their way."""

import json

from foldline.core.item import Item
from foldline.core.log import ModelSaid
from foldline.core.parts import Text, calls_of, text_of
from foldline.dialects.base import get_dialect
from foldline.dialects.sse import SseReader

WINDOW = 12_000
LINES = "\n".join(f"line {n}: test {n * 7919} passed, nothing to report" for n in range(30))
MODELS = {
    "openai-chat": ("gpt-5", "/v1/chat/completions"),
    "anthropic": ("claude-sonnet-4-5", "/v1/messages"),
    "openai-responses": ("gpt-5", "/v1/responses"),
    "gemini": ("gemini-3-pro", "/v1beta/models/gemini-3-pro"),
    "gemini-interactions": ("gemini-3-pro", "/v1beta/interactions"),
}
WAYS = [(name, streams) for name in MODELS for streams in (False, True)]
READ = {"name": "read", "description": "Read a log.", "parameters": {"type": "object", "properties": {"build": {"type": "integer"}}}}  # fmt: skip


def tools_of(dialect, name="read"):
    given = {**READ, "name": name}
    if dialect == "openai-chat":
        return [{"type": "function", "function": given}]
    if dialect == "anthropic":
        schema = given.pop("parameters")
        return [{**given, "input_schema": schema}]
    if dialect == "gemini":
        return [{"functionDeclarations": [given]}]
    return [{"type": "function", **given}]


class Talk:
    """A client that keeps its own history, as agents do: it knows nothing of recall."""

    def __init__(self, http, url, dialect, *, streams, tools=None, **more):
        self.http, self.url, self.streams, self.more = http, url, streams, more
        self.dialect = get_dialect(dialect)
        self.tools = tools_of(dialect) if tools is None else tools
        self.history = []
        self.raw = b""

    def post(self):
        """Send the history."""
        model, path = MODELS[self.dialect.name]
        body = {self.dialect.messages: self.history, **self.more}
        if self.tools:
            body["tools"] = self.tools
        if self.dialect.name == "gemini":
            path += ":streamGenerateContent?alt=sse" if self.streams else ":generateContent"
        else:
            body |= {"model": model, **({"stream": True} if self.streams else {})}
        if self.dialect.name == "anthropic":
            body["max_tokens"] = 300
        if self.dialect.name == "openai-chat" and self.streams:
            body["stream_options"] = {"include_usage": True}
        answer = self.http.post(self.url + path, json=body, timeout=30)
        self.raw = answer.content
        return answer

    def ask(self):
        """Ask, keep the answer as an SDK does, and return its words and the names of its calls."""
        answer = self.post()
        assert answer.status_code == 200, answer.text
        if self.streams:
            heard = self.dialect.make_assembly()
            reader = SseReader()
            for one in (*reader.feed(self.raw), *reader.close()):
                heard.add_event(one.data)
            assert heard.done
            self.body = heard.build_body()
        else:
            self.body = answer.json()
        form, self.said = self.dialect, ModelSaid(())
        for raw in form.encode_answer(self.body):
            self.history += json.loads(b"[" + raw + b"]")
            self.said = form.read_message(raw, form.describe_message(raw))[0]
        return text_of(self.said.parts).strip(), [call.name for call in calls_of(self.said.parts)]

    def say(self, words):
        """Say something, and ask."""
        self.history.append(self.dialect.write_question(words))
        return self.ask()

    def give(self, words):
        """Give the results of the newest answer's calls."""
        items = [
            Item(0, "result", (Text(words),), 0, call_id=call.id)
            for call in calls_of(self.said.parts)
        ]
        groups = [items] if self.dialect.results_in else [[item] for item in items]
        answer = json.dumps(self.history[-1]).encode()
        for group in groups:
            written = self.dialect.write_message(group)
            self.history.append(json.loads(self.dialect.fit_results(written, answer)))
        return self.ask()


def call(name, number=0, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}_{number}", "type": "function", "function": function}


def grow(talk, provider, *, more=0):
    """Turns with calls, until something was folded, and some more."""
    for n in range(99):
        if provider.bodies and b"[handoff" in provider.bodies[-1]:
            more -= 1
        if more < 0:
            return
        provider.script = lambda _, n=n: {
            "content": "I read it.",
            "tool_calls": [call("read", n, build=n)],
        }
        assert talk.say(f"Is build {n} fine?") == ("I read it.", ["read"])
        provider.script = lambda _, n=n: f"Build {n} is fine."
        talk.give(f"build {n}\n{LINES}")

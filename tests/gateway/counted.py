"""An upstream that says what each call took, at random, and keeps count of it."""

import gzip
import json
from collections import Counter
from random import Random
from threading import Lock
from typing import NamedTuple

from raw_upstream import Upstream

from foldline.core.log import UsageReported
from foldline.dialects.base import find_path_dialect
from foldline.testing.provider import written

REQUESTS = {
    "openai-chat": ("/v1/chat/completions", "messages"),
    "openai-responses": ("/v1/responses", "input"),
    "anthropic": ("/v1/messages", "messages"),
    "gemini": ("/v1beta/models/{model}:{method}", "contents"),
    "gemini-interactions": ("/v1beta/interactions", "input"),
}
"""By dialect: the path, and the field of the messages."""


class Request(NamedTuple):
    """A request of a client."""

    path: str
    body: bytes


def make_request(dialect, model, texts, *, streams=False):
    """A conversation: the user's texts, each but the last answered by `ok`."""
    path, field = REQUESTS[dialect]
    said = []
    for text in texts:
        said += [said_by(dialect, "user", text), said_by(dialect, "assistant", "ok")]
    body = {field: said[:-1]}
    if dialect == "gemini":
        method = "streamGenerateContent?alt=sse" if streams else "generateContent"
        return Request(path.format(model=model, method=method), json.dumps(body).encode())
    body |= {"model": model, **({"stream": True} if streams else {})}
    if dialect == "openai-chat" and streams:
        body["stream_options"] = {"include_usage": True}
    if dialect == "anthropic":
        body["max_tokens"] = 1_000
    if dialect == "openai-responses":
        body["store"] = False
    return Request(path, json.dumps(body).encode())


def said_by(dialect, role, text):
    """A message in a dialect."""
    if dialect == "gemini":
        return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
    if dialect == "gemini-interactions":
        kind = "model_output" if role == "assistant" else "user_input"
        return {"type": kind, "content": [{"type": "text", "text": text}]}
    return {"role": role, "content": text}


def draw_usage(random, dialect):
    """A usage at random: ours, and as the dialect writes it."""
    read, write, fresh = random.randrange(9_000), random.randrange(900), random.randrange(1, 5_000)
    output = random.randrange(1, 2_000)
    if dialect in ("gemini", "gemini-interactions"):
        write = 0
    total = read + write + fresh
    ours = UsageReported(input=total, cache_read=read, cache_write=write, output=output)
    match dialect:
        case "openai-chat":
            details = {"cached_tokens": read, "cache_write_tokens": write}
            theirs = {"prompt_tokens": total, "completion_tokens": output}
            theirs |= {"prompt_tokens_details": details}
        case "openai-responses":
            details = {"cached_tokens": read, "cache_write_tokens": write}
            theirs = {"input_tokens": total, "output_tokens": output}
            theirs |= {"input_tokens_details": details}
        case "anthropic":
            theirs = {"input_tokens": fresh, "cache_read_input_tokens": read}
            theirs |= {"cache_creation_input_tokens": write, "output_tokens": output}
        case "gemini":
            theirs = {"promptTokenCount": total, "cachedContentTokenCount": read}
            theirs |= {"candidatesTokenCount": output}
        case _:
            theirs = {"total_input_tokens": total, "total_cached_tokens": read}
            theirs |= {"total_output_tokens": output}
    return ours, theirs


def replace_usage(body, usage):
    """Write a usage wherever an answer, or an event, has one."""
    for name, value in body.items():
        if name in ("usage", "usageMetadata") and isinstance(value, dict):
            if body.get("type") == "message_delta":  # tells only what is new
                body[name] = {"output_tokens": usage["output_tokens"]}
            else:
                body[name] = usage
        elif isinstance(value, dict):
            replace_usage(value, usage)
    return body


def write_answer(dialect, given, usage, *, streams, words="ok"):
    """An answer's bytes."""
    whole, events = written(dialect, given, {"content": words}, 7)
    if not streams:
        return json.dumps(replace_usage(whole, usage)).encode()
    lines = []
    for event in events:
        head, mark, data = event.partition("data: ")
        if mark and data.strip() != "[DONE]":
            data = json.dumps(replace_usage(json.loads(data), usage)) + "\n\n"
        lines.append(head + mark + data)
    return "".join(lines).encode()


class CountingUpstream(Upstream):
    """Answers in every dialect, with usage at random, packed where the client allows that."""

    def __init__(self, seed=0):
        super().__init__(self.answer)
        self.random, self.lock = Random(seed), Lock()
        self.counted = Counter()
        """The sums of all that was said."""
        self.given = []
        """Each usage, in order."""

    def answer(self, asked):
        """Answer a request."""
        path = asked.target.decode()
        dialect = find_path_dialect(path.partition("?")[0]).name
        given = json.loads(asked.body)
        given.setdefault("model", "m")
        streams = bool(given.get("stream")) or "stream" in path
        with self.lock:
            ours, theirs = draw_usage(self.random, dialect)
            self.given.append(ours)
            self.counted += Counter(calls=1, input=ours.input, output=ours.output)
            self.counted += Counter(cache_read=ours.cache_read, cache_write=ours.cache_write)
            packs = self.random.random() < 0.3
        body = write_answer(dialect, given, theirs, streams=streams)
        kind = b"text/event-stream" if streams else b"application/json"
        more = b""
        if packs and b"gzip" in (asked.header("accept-encoding") or b""):
            body, more = gzip.compress(body), b"content-encoding: gzip\r\n"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%scontent-length: %d\r\n\r\n"
        cut = self.random.randrange(len(body))
        return [head % (kind, more, len(body)) + body[:cut], body[cut:]]

"""Reads the objects that callers give `add`: of the SDKs and of LangChain, and pieces of a stream.

No SDK is imported: an object is known by what it has. Neighbours in a list are joined where they
are one thing: the items of a model's turn, or the events of one stream.

The protocols of clients:

client.chat.completions.create(…)    openai.OpenAI, AzureOpenAI, and their async forms
client.responses.create(…)           the same, for a session opened with dialect="openai-responses"
client.messages.create(…)            anthropic.Anthropic, AnthropicBedrock, …
client.models.generate_content(…)    google.genai.Client, and its `aio`
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.errors import BadInput

R_co = TypeVar("R_co", covariant=True)


class Creates(Protocol[R_co]):
    """`client.messages` or `client.chat.completions`."""

    def create(self, *args: Any, **parameters: Any) -> R_co:
        """Send a request and return its answer."""
        ...


class HasCompletions(Protocol[R_co]):
    """`client.chat`."""

    @property
    def completions(self) -> Creates[R_co]:
        """The chat completions."""
        ...


class OpenAIClient(Protocol[R_co]):
    """A client of OpenAI's SDK."""

    @property
    def chat(self) -> HasCompletions[R_co]:
        """The chat API."""
        ...


class AnthropicClient(Protocol[R_co]):
    """A client of Anthropic's SDK."""

    @property
    def messages(self) -> Creates[R_co]:
        """The messages API."""
        ...


class Generates(Protocol[R_co]):
    """`client.models` of Google's SDK."""

    def generate_content(self, *args: Any, **parameters: Any) -> R_co:
        """Send a request and return its answer."""
        ...


class GoogleClient(Protocol[R_co]):
    """A client of Google's SDK."""

    @property
    def models(self) -> Generates[R_co]:
        """The models."""
        ...


def find_create(client: Any, *, model: str, dialect: Dialect) -> Any:
    """Find the client's method that takes a model's requests."""
    api = client
    try:
        for name in dialect.sdk_method:
            api = getattr(api, name)
    except AttributeError:
        raise BadInput(
            f"{model!r} is asked by a client of {dialect.vendor.title}'s SDK, and this is a "
            f"{type(client).__name__}; give such a client, or switch() to another model"
        ) from None
    return api


def must_not_stream(parameters: dict[str, Any]) -> None:
    """Raise if the parameters ask for a stream."""
    if parameters.get("stream"):
        raise BadInput(
            "create(stream=True) would give pieces, and a session adds whole answers; give "
            "request(stream=True) to the client and add() what came, or stream by foldline.wrap()"
        )


_LANGCHAIN = "langchain_core.messages"
_ROLES = {"human": "user", "system": "system", "tool": "tool"}


class ModelTurn(NamedTuple):
    """The items of one turn of the model, as the Responses API has them."""

    dialect: Dialect
    items: list[Mapping[str, Any]]


class _Stream(NamedTuple):
    """The events of one streamed answer."""

    dialect: Dialect
    events: list[Mapping[str, Any]]

    def build_answer(self) -> Mapping[str, Any]:
        """Build the answer, as if it had not been streamed."""
        assembly = self.dialect.make_assembly()
        for event in self.events:
            assembly.add_event(json.dumps(event))
        if assembly.fault is not None:
            raise BadInput(f"the stream ended with an error: {json.dumps(assembly.fault)[:200]}")
        return assembly.build_body()


def join_given(objects: Sequence[Any]) -> list[Any]:
    """Return plain JSON for objects, with neighbours that belong together joined."""
    joined: list[Any] = []
    for one in _add_chunks(objects):
        body = to_plain(one)
        item: Mapping[str, Any] = cast("Any", body) if isinstance(body, Mapping) else {}
        last: Any = joined[-1] if joined else None
        streamed = base.find_stream_dialect(item)
        dialect = base.find_turn_dialect(item) if streamed is None else None
        if streamed is not None:
            if isinstance(last, _Stream) and last.dialect is streamed:
                last.events.append(item)
            else:
                joined.append(_Stream(streamed, [item]))
        elif dialect is None:
            joined.append(body)
        elif isinstance(last, ModelTurn) and last.dialect is dialect:
            last.items.append(item)
        else:
            joined.append(ModelTurn(dialect, [item]))
    return [one.build_answer() if isinstance(one, _Stream) else one for one in joined]


def to_plain(value: Any) -> Any:
    """Return an object as plain JSON; text, dicts, events and what is unknown stay as they are."""
    if type(value).__module__.startswith(_LANGCHAIN):
        return _write_langchain(value)
    if isinstance(value, Mapping | str) or not hasattr(value, "model_dump"):
        return cast("Any", value)
    return value.model_dump(mode="json", exclude_unset=True)


def _add_chunks(objects: Sequence[Any]) -> list[Any]:
    """Add up neighbouring chunks of LangChain's streams, as LangChain does it."""
    added: list[Any] = []
    for one in objects:
        is_chunk = getattr(one, "type", "") == "AIMessageChunk"
        if is_chunk and added and getattr(added[-1], "type", "") == "AIMessageChunk":
            added[-1] = added[-1] + one
        else:
            added.append(one)
    return added


def _write_langchain(message: Any) -> Mapping[str, Any]:
    """Write a message of LangChain as OpenAI's chat has it; an answer with its usage."""
    if message.type in _ROLES:
        written: dict[str, Any] = {"role": _ROLES[message.type], "content": message.content}
        if message.type == "tool":
            written["tool_call_id"] = message.tool_call_id
        return written
    if message.type not in ("ai", "AIMessageChunk"):
        raise BadInput(f"add() cannot read LangChain's message of type {message.type!r}")
    said: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for call in message.tool_calls
    ]
    if calls:
        said["tool_calls"] = calls
    usage: dict[str, Any] = dict(message.usage_metadata or {})
    if not usage:
        return said
    details: dict[str, Any] = dict(usage.get("input_token_details") or {})
    counted: dict[str, Any] = {"prompt_tokens": usage.get("input_tokens")}
    counted["completion_tokens"] = usage.get("output_tokens")
    if (read := details.get("cache_read")) is not None:
        counted["prompt_tokens_details"] = {"cached_tokens": read}
    return {"object": "chat.completion", "choices": [{"message": said}], "usage": counted}

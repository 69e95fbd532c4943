"""Which dialect: the one a model is asked in, and the one that something was written in.

Knows the dialects side by side. Refuses to know what is in a message beyond the signs of its form.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias, cast

from foldline.core.log import Event
from foldline.core.parts import Tool
from foldline.core.request import Request
from foldline.core.view import View
from foldline.dialects import openai_chat
from foldline.dialects.client_messages import ClientForm
from foldline.dialects.json_reader import Json
from foldline.errors import FormatError

Encode: TypeAlias = Callable[[Request, Mapping[str, Any]], bytes]
_CLAUDE = re.compile(r"anthropic/|claude|([a-z-]+\.)?anthropic\.")
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image")


class Assembly(Protocol):
    """A streamed answer on its way."""

    fault: Json | None

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        ...

    def take(self, data: str, *, whole: bool = True) -> None:
        """Take in one event's data."""
        ...

    def body(self) -> Json:
        """The answer as it would have come whole."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests are written, and how clients' requests and servers' answers are read."""

    name: str
    encoder: int
    encode: Encode
    assembly: Callable[[], Assembly]
    blocks: Callable[[Request], list[bytes]]
    """What is said in a request, piece by piece, without cache marks."""
    bounds: tuple[str, ...]
    """The parameters that say how long the answer may be."""
    is_silent: Callable[[Request], bool]
    """Whether a request would have no message."""
    must_bound: bool = False
    must_be_told: Callable[[View, Mapping[str, Any]], bool] = lambda _view, _parameters: False
    """Whether a request would end with an answer that the provider does not go on with."""

    @property
    def form(self) -> ClientForm:
        """How clients write messages: imported by those who relay them."""
        return _form(self.name)

    def parameters(self, given: Mapping[str, Any], *, most: int) -> Json:
        """What is sent beside the conversation; where it must say so, the answer takes `most`."""
        bound = {"max_tokens": most} if self.must_bound else {}
        return {**bound, **given}


OPENAI = Dialect(
    openai_chat.DIALECT,
    openai_chat.ENCODER,
    openai_chat.encode,
    assembly=lambda: openai_chat.Assembly(),  # noqa: PLW0108 - imported when it is asked for
    blocks=openai_chat.blocks,
    bounds=("max_completion_tokens", "max_tokens"),
    is_silent=lambda request: not openai_chat.blocks(request),
)


@cache
def _form(name: str) -> ClientForm:
    from foldline.dialects.anthropic import client_messages as anthropic  # noqa: PLC0415
    from foldline.dialects.openai_chat import client_messages as openai  # noqa: PLC0415

    found: Any = openai if name == OPENAI.name else anthropic
    return found


@cache
def _anthropic() -> Dialect:
    """Imported by those who speak it."""
    from foldline.dialects import anthropic as it  # noqa: PLC0415

    return Dialect(
        it.DIALECT,
        it.ENCODER,
        it.encode,
        assembly=it.Assembly,
        blocks=it.blocks,
        bounds=("max_tokens",),
        must_bound=True,
        is_silent=it.is_silent,
        must_be_told=it.must_be_told,
    )


def at(path: str) -> Dialect | None:
    """The dialect that is spoken at an address, by its path."""
    if path.endswith("/chat/completions"):
        return OPENAI
    return _anthropic() if path.endswith("/v1/messages") else None


def speaking(model: str) -> Dialect:
    """The dialect that a model is asked in, by its name; Bedrock's and Vertex's names too."""
    return _anthropic() if _CLAUDE.match(model.lower()) else OPENAI


def named(name: str) -> Dialect:
    """The dialect that a request was recorded in."""
    if name == OPENAI.name:
        return OPENAI
    if name == _anthropic().name:
        return _anthropic()
    raise FormatError(f"a request in the dialect {name!r}, which this release does not speak")


def events(
    body: Mapping[str, Any], *, own: Dialect, saw: int | None, asked: int | None
) -> list[Event]:
    """A message or an answer, in whichever dialect it is; where both could be, in `own`."""
    if "choices" in body:
        return openai_chat.completion(body, saw=saw, asked=asked)
    answer = body.get("type") == "message" and "content" in body
    if not answer and (_is_openai(body) or (own is OPENAI and not _is_anthropic(body))):
        return [openai_chat.message(body, saw=saw)]
    from foldline.dialects import anthropic  # noqa: PLC0415

    if answer:
        return anthropic.answer(body, saw=saw, asked=asked)
    return anthropic.message(body, saw=saw)


def tool(given: Mapping[str, Any]) -> Tool:
    """A tool, in whichever dialect it is."""
    if "function" in given:
        return openai_chat.tool(given)
    from foldline.dialects import anthropic  # noqa: PLC0415

    return anthropic.tool(given)


def _is_openai(body: Mapping[str, Any]) -> bool:
    return "tool_calls" in body or body.get("role") in ("tool", "function", "developer")


def _is_anthropic(body: Mapping[str, Any]) -> bool:
    content = body.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    kinds = [cast("Json", one).get("type") for one in blocks if isinstance(one, dict)]
    return any(isinstance(kind, str) and kind in _BLOCKS for kind in kinds)

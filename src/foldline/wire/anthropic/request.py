"""A whole request of a client: its model, its conversation as events, and the rest as it came.

Knows where a body keeps what. Refuses to know sessions: whose conversation it is, and what of it is
known already.
"""

from dataclasses import dataclass
from typing import Any, cast

import msgspec

from foldline.core.log import Event, Instructed
from foldline.core.parts import Part, Tool
from foldline.errors import WireError
from foldline.wire.anthropic.read import message, system, tool
from foldline.wire.reading import Json, parse


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a client sent."""

    model: str
    events: tuple[Event, ...]
    parameters: dict[str, msgspec.Raw]
    """Every other field of the body, known or not."""


def decode(body: bytes) -> Decoded:
    """Read a body; an error names the place that is wrong."""
    given = parse(body)
    model = given.pop("model", "")
    if not isinstance(model, str):
        raise WireError("a model that is no text at $.model", path="$.model")
    instructed = Instructed(_system(given.pop("system", None)), _tools(given.pop("tools", None)))
    events: list[Event] = [instructed] if instructed != Instructed() else []
    for place, one in enumerate(_rows(given.pop("messages", None), "$.messages")):
        events += message(one, path=f"$.messages[{place}]")
    parameters = {name: msgspec.Raw(msgspec.json.encode(one)) for name, one in given.items()}
    return Decoded(model, tuple(events), parameters)


def _system(given: Any) -> tuple[Part, ...]:
    if given is None or isinstance(given, str):
        return system(given or "")
    return system(_rows(given, "$.system"))


def _tools(given: Any) -> tuple[Tool, ...]:
    rows = enumerate(_rows(given, "$.tools") if given is not None else ())
    return tuple(tool(one, path=f"$.tools[{place}]") for place, one in rows)


def _rows(given: Any, path: str) -> list[Json]:
    """A list of objects."""
    if not isinstance(given, list):
        raise WireError(f"a list was expected at {path}", path=path)
    for place, one in enumerate(cast("list[Any]", given)):
        if not isinstance(one, dict):
            raise WireError(f"an object was expected at {path}[{place}]", path=f"{path}[{place}]")
    return cast("list[Json]", given)

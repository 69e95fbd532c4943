"""The tool `recall` as data: its name, its schema, and the answer to a call from a session's log.

An answer never exceeds the room in the window: longer ones come in pages, each with the call for
the next. It also takes the text of any hint that Foldline leaves, unchanged.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from foldline.core.names import format_handle
from foldline.core.parts import Call, Tool
from foldline.core.plan import RECALL, measure_recall_room
from foldline.errors import BadHandle, BadInput, Erased

if TYPE_CHECKING:
    from foldline.core.recall import Query
    from foldline.session.session import AsyncSession

_NUMBER = {"type": "integer"}
RECALL_TOOL: Final[dict[str, Any]] = {
    "name": RECALL,
    "description": "Get back what was cut, masked or folded, by the handle in its place.",
    "parameters": {
        "type": "object",
        "properties": {
            "handle": {
                "type": "string",
                "description": "log:12, log:12-40, or the hint as it stands",
            },
            "lines": {"type": "array", "items": _NUMBER, "description": "first and last"},
            "tail": _NUMBER,
            "grep": {"type": "string", "description": "only lines that match"},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
}
"""The tool's name, description and parameters, for a program that offers it to its model."""


def make_tool() -> Tool:
    """Make the tool as a log has it."""
    schema = msgspec.json.encode(RECALL_TOOL["parameters"]).decode()
    return Tool(RECALL, RECALL_TOOL["description"], schema)


class RecallArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every argument a hint may have; the tool's schema names only the common ones."""

    handle: str
    head: int | None = None
    tail: int | None = None
    lines: tuple[int, int] | None = None
    start: int | None = None
    grep: str | None = None
    around: int | None = None
    skip: int | None = None


def is_recall(call: Call) -> bool:
    """Whether a model called the tool by the name that we offer."""
    return call.name == RECALL


def parse_arguments(arguments: Mapping[str, Any]) -> RecallArguments:
    """Read a call's arguments; raises `BadInput` that the model can read."""
    stated = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(stated, RecallArguments, strict=False)
    except msgspec.ValidationError as fault:
        raise BadInput(f"these arguments cannot be read: {fault}") from fault


def _decode_arguments(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError as fault:
        raise BadInput(f"these arguments cannot be read: {fault}") from fault


def build_query(arguments: RecallArguments) -> "Query":
    """Build the query: the hint's own, unless other arguments say how to look."""
    from foldline.core import recall  # noqa: PLC0415 - slow import, seldom needed

    query = recall.parse_query(arguments.handle)
    ways = {
        name: getattr(arguments, name) for name in arguments.__struct_fields__ if name != "handle"
    }
    if all(way is None for way in ways.values()):
        return query
    return recall.build_query(format_handle(query.lo, query.hi), **ways)


def measure_room(session: "AsyncSession") -> int:
    """Measure how many tokens the answer to a recall may have."""
    from foldline.core.recall.pages import LEAST  # noqa: PLC0415 - slow import, seldom needed

    return max(measure_recall_room(session.live.view, session.live.facts), LEAST)


async def answer_recall(session: "AsyncSession", arguments: Mapping[str, Any] | str) -> str:
    """Answer a call of the tool; what is wrong with it is said in the answer."""
    from foldline.core.recall import render_call  # noqa: PLC0415 - slow import, seldom needed

    try:
        if isinstance(arguments, str):
            arguments = _decode_arguments(arguments)
        query = build_query(parse_arguments(arguments))
        return await session.recall(render_call(query), most=measure_room(session))
    except (BadHandle, BadInput, Erased) as fault:
        return str(fault)

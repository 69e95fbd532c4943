"""The tools `recall` and `search_history`: the session's past, also what the model no longer sees.

An answer never exceeds the room in the window: longer ones come in pages, each with the call for
the next. `recall` also takes the text of any hint that Foldline leaves, unchanged.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from foldline.agent.tool import Arguments, Result, Tool, said
from foldline.agent.tools.read_files import convert_arguments, make_object_schema
from foldline.core.log import ToolReturned, UserSaid
from foldline.core.names import format_handle
from foldline.core.parts import Media, Part, media_tokens
from foldline.core.plan import RECALL, measure_recall_room
from foldline.errors import BadHandle, BadInput, Erased
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from foldline.core.recall import Query

_HITS = 15


class _Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every argument a hint may have; the tool's schema names only the common ones."""

    handle: str
    head: int | None = None
    tail: int | None = None
    lines: tuple[int, int] | None = None
    start: int | None = None
    grep: str | None = None
    around: int | None = None
    skip: int | None = None


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: str


def build_recall_tool(session: AsyncSession) -> Tool:
    """Build the tool `recall`: the original behind a handle."""

    async def run_recall(arguments: Arguments) -> Result:
        from foldline.core.recall import render_call  # noqa: PLC0415 - slow import, seldom needed
        from foldline.core.recall.pages import LEAST  # noqa: PLC0415

        given = convert_arguments(arguments, _Recall)
        most = max(measure_recall_room(session.live.view, session.live.facts), LEAST)
        try:
            asked = _build_query(given)
            answer = said(await session.recall(render_call(asked), most=most))
            return Result((*answer.parts, *await _collect_pictures(session, asked, most=most)))
        except (BadHandle, Erased) as fault:
            return said(str(fault), ok=False)

    number = {"type": "integer"}
    return Tool(
        name=RECALL,
        description="Get back what was cut, masked or folded, by the handle in its place.",
        schema=make_object_schema(
            "handle",
            handle={"type": "string", "description": "log:12, log:12-40, or the hint as it stands"},
            lines={"type": "array", "items": number, "description": "first and last"},
            tail=number,
            grep={"type": "string", "description": "only lines that match"},
        ),
        run=run_recall,
        # One after another: each gets the room that is left by then.
        beside=False,
    )


def search_history(session: AsyncSession) -> Tool:
    """Build the tool `search_history`: find messages of this session by words."""

    async def run_search(arguments: Arguments) -> Result:
        words = convert_arguments(arguments, _Words).words
        if re.search(r"\w", words) is None:
            raise BadInput(f"{words!r} has no word to search for")
        found = await session.history.search(words, limit=_HITS + 1)
        if not found:
            return said(f"[no message has any of: {words}; try other words]")
        lines = [
            f'recall("{one.handle}"): {one.snippet}'
            f"{f' [and {one.same} more alike]' if one.same else ''}"
            for one in found[:_HITS]
        ]
        more = ["[there are more; give further words]"] if len(found) > _HITS else []
        return said("\n".join([*lines, *more]))

    return Tool(
        name="search_history",
        description="Search this conversation, all of it, by words; best match first.",
        schema=make_object_schema("words", words="string"),
        run=run_search,
        beside=True,
    )


def _build_query(given: _Recall) -> "Query":
    """Build the query: the hint's own, unless other arguments say how to look."""
    from foldline.core.recall import build_query, parse_query  # noqa: PLC0415 - slow import

    query = parse_query(given.handle)
    ways = {name: getattr(given, name) for name in given.__struct_fields__ if name != "handle"}
    if all(way is None for way in ways.values()):
        return query
    return build_query(format_handle(query.lo, query.hi), **ways)


async def _collect_pictures(session: AsyncSession, asked: "Query", *, most: int) -> list[Part]:
    """Return the pictures of a single event that is recalled whole, if they fit."""
    from foldline.core.recall import Whole  # noqa: PLC0415 - slow import

    if asked.lo != asked.hi or not isinstance(asked.way, Whole):
        return []
    (one,) = await session.history.events(asked.lo, asked.hi)
    parts = one.event.parts if isinstance(one.event, UserSaid | ToolReturned) else ()
    pictures = [part for part in parts if isinstance(part, Media)]
    return [*pictures] if sum(map(media_tokens, pictures)) <= most else []

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
from foldline.core.parts import Media, Part, media_tokens
from foldline.core.plan import RECALL
from foldline.errors import BadHandle, BadInput, Erased
from foldline.session import recall_tool
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from foldline.core.recall import Query

_HITS = 15


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: str


def build_recall_tool(session: AsyncSession) -> Tool:
    """Build the tool `recall`: the original behind a handle."""

    async def run_recall(arguments: Arguments) -> Result:
        from foldline.core.recall import render_call  # noqa: PLC0415 - slow import, seldom needed

        given = convert_arguments(arguments, recall_tool.RecallArguments)
        most = recall_tool.measure_room(session)
        try:
            asked = recall_tool.build_query(given)
            answer = said(await session.recall(render_call(asked), most=most))
            return Result((*answer.parts, *await _collect_pictures(session, asked, most=most)))
        except (BadHandle, Erased) as fault:
            return said(str(fault), ok=False)

    return Tool(
        name=RECALL,
        description=recall_tool.RECALL_TOOL["description"],
        schema=recall_tool.RECALL_TOOL["parameters"],
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


async def _collect_pictures(session: AsyncSession, asked: "Query", *, most: int) -> list[Part]:
    """Return the pictures of a single event that is recalled whole, if they fit."""
    from foldline.core.recall import Whole  # noqa: PLC0415 - slow import

    if asked.lo != asked.hi or not isinstance(asked.way, Whole):
        return []
    (one,) = await session.history.events(asked.lo, asked.hi)
    parts = one.event.parts if isinstance(one.event, UserSaid | ToolReturned) else ()
    pictures = [part for part in parts if isinstance(part, Media)]
    return [*pictures] if sum(map(media_tokens, pictures)) <= most else []

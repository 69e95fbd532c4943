"""The past of the session: `recall` and `search_history`.

Knows that what a model no longer sees is in the log and comes back by its handle. Refuses to give
more than the window has room for: what is longer comes in pages, each with the call that goes on.
The text of any hint that Foldline leaves is read as it stands (R-37).
"""

import re
from typing import TYPE_CHECKING

import msgspec

from foldline.agent.tool import Arguments, Result, Tool, said
from foldline.agent.tools.arguments import schema, taken
from foldline.core.handles import handle
from foldline.core.log import ToolReturned, UserSaid
from foldline.core.media import media_tokens
from foldline.core.parts import Media, Part
from foldline.core.plan import RECALL, recallable
from foldline.errors import BadHandle, BadInput, Erased
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from foldline.core.recall import Query

_HITS = 15
_AROUND = 80  # characters on each side of a word that was found


class _Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a hint may say; the schema names what a model would think of by itself."""

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


def recall(session: AsyncSession) -> Tool:
    """`recall`: what a handle stands for."""

    async def run(arguments: Arguments) -> Result:
        from foldline.core.recall import call  # noqa: PLC0415 - few sessions ask
        from foldline.core.recall.pages import LEAST  # noqa: PLC0415 - and it takes a while

        given = taken(arguments, _Recall)
        most = max(recallable(session.live.view, session.live.facts), LEAST)
        try:
            asked = _asked(given)
            answer = said(await session.recall(call(asked), most=most))
            return Result((*answer.parts, *await _pictures(session, asked, most=most)))
        except (BadHandle, Erased) as fault:
            return said(str(fault), ok=False)

    number = {"type": "integer"}
    return Tool(
        name=RECALL,
        description="Get back what was cut, masked or folded, by the handle in its place.",
        schema=schema(
            "handle",
            handle={"type": "string", "description": "log:12, log:12-40, or the hint as it stands"},
            lines={"type": "array", "items": number, "description": "first and last"},
            tail=number,
            grep={"type": "string", "description": "only lines that match"},
        ),
        run=run,
        # One after another: each is given what room is left by then.
        beside=False,
    )


def search_history(session: AsyncSession) -> Tool:
    """`search_history`: places in the session's own log by words."""

    async def run(arguments: Arguments) -> Result:
        words = taken(arguments, _Words).words
        tokens = re.findall(r"\w+", words)
        if not tokens:
            raise BadInput(f"{words!r} has no word to search for")
        found = await session.history.search(words, limit=_HITS + 1)
        if not found:
            return said(f"[no message has all of: {' '.join(tokens)}; try fewer words]")
        lines = [
            f'recall("{handle(one.seq)}"): {_near(one.words, tokens)}' for one in found[:_HITS]
        ]
        more = ["[there are more; give further words]"] if len(found) > _HITS else []
        return said("\n".join([*lines, *more]))

    return Tool(
        name="search_history",
        description="Search this conversation, all of it, by words; newest first.",
        schema=schema("words", words="string"),
        run=run,
        beside=True,
    )


def _asked(given: _Recall) -> "Query":
    """What is asked for: as the hint says, unless a way to look is given beside it."""
    from foldline.core import recall as recalling  # noqa: PLC0415 - it takes a while

    asked = recalling.parse(given.handle)
    ways = {name: getattr(given, name) for name in given.__struct_fields__ if name != "handle"}
    if all(one is None for one in ways.values()):
        return asked
    return recalling.look(handle(asked.lo, asked.hi), **ways)


async def _pictures(session: AsyncSession, asked: "Query", *, most: int) -> list[Part]:
    """The pictures of one event that is asked for whole, where there is room for them."""
    from foldline.core.recall import Whole  # noqa: PLC0415 - it takes a while

    if asked.lo != asked.hi or not isinstance(asked.way, Whole):
        return []
    (one,) = await session.history.events(asked.lo, asked.hi)
    parts = one.event.parts if isinstance(one.event, UserSaid | ToolReturned) else ()
    pictures = [part for part in parts if isinstance(part, Media)]
    return [*pictures] if sum(map(media_tokens, pictures)) <= most else []


def _near(text: str, tokens: list[str]) -> str:
    """What stands around the first of some words, on one line."""
    flat = " ".join(text.split())
    low = flat.casefold()
    at = next((place for one in tokens if (place := low.find(one.casefold())) >= 0), 0)
    start, end = max(at - _AROUND, 0), at + 2 * _AROUND
    return f"{'…' if start else ''}{flat[start:end]}{'…' if end < len(flat) else ''}"

"""`/recall`, `/search`, `/history` and `/export`: what was, and taking it along.

Knows how the past is asked for. Refuses to read it: that is the session's history.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from foldline.apps.chat.commands.table import ChatCommand, Misused
from foldline.apps.chat.safe import safe
from foldline.apps.cli.history import hits, outline, totals, turn_table
from foldline.apps.cli.output import paint, size, wrapped
from foldline.core.parts import sound
from foldline.core.saying import many
from foldline.session.export import Format, exported

if TYPE_CHECKING:
    from foldline.apps.chat.conversation import Talk

_EVERYWHERE = "--everywhere"
_LIMIT = 20
_PAGE = 4_000  # tokens of an original that are shown at once
_FORMS: dict[str, Format] = {".md": "markdown", ".json": "openai"}
_TURNS = 30


async def _recall(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say what: /recall log:12; /search finds places")
    handle = f"log:{given}" if given.isdecimal() else given
    talk.say(safe(await talk.session.recall(handle, most=_PAGE)).rstrip("\n"))


async def _search(talk: "Talk", given: str) -> None:
    words = " ".join(word for word in given.split() if word != _EVERYWHERE)
    if not words:
        raise Misused("say what: /search WORDS; --everywhere looks in all sessions")
    found = await talk.session.history.search(
        sound(words), everywhere=_EVERYWHERE in given.split(), limit=_LIMIT
    )
    talk.say(*hits(found, words, _LIMIT, way="/recall log:N gives the whole one"))


async def _history(talk: "Talk", _: str) -> None:
    turns = await talk.session.history.turns()
    body = outline(talk.session, turns)
    if len(turns) > _TURNS:
        talk.say(paint(f"… {many(len(turns) - _TURNS, 'earlier turn')}", "dim"))
    talk.say(*turn_table(turns[-_TURNS:]), *totals(body))


async def _export(talk: "Talk", given: str) -> None:
    name = talk.session.live.name.session
    file = Path(given or f"{name.replace('/', '-')}.md").expanduser()  # noqa: ASYNC240 - a moment
    if file.exists() and not await talk.agreed(f"{file} is there already. Write over it? [y/N]"):
        talk.say(paint("nothing was written", "dim"))
        return
    form = _FORMS.get(file.suffix, "jsonl")
    events = await talk.session.history.events()
    body = exported(talk.session, events, form, sight=False)
    file.write_bytes(body)
    talk.say(*wrapped(f"wrote {file}: {many(len(events), 'event')} as {form}, {size(len(body))}"))


def _handles(talk: "Talk") -> Iterable[tuple[str, str]]:
    for fold in reversed(talk.picture().folds):
        told = f"what a fold covers: {many(fold.messages, 'message')}"
        yield f"log:{fold.span.lo}-{fold.span.hi}", told


COMMANDS = (
    ChatCommand(
        name="recall",
        arguments="HANDLE",
        help="the original of anything, by its handle",
        work=_recall,
        choices=_handles,
    ),
    ChatCommand(
        name="search",
        arguments="WORDS [--everywhere]",
        help="find what was said",
        work=_search,
        choices=lambda _: ((_EVERYWHERE, "in all sessions"),),
    ),
    ChatCommand(name="history", help="the turns of this session", work=_history),
    ChatCommand(
        name="export",
        arguments="[FILE]",
        help="write it out: .md to read, .json for OpenAI, else the log",
        work=_export,
    ),
)

"""The sessions of a tenant, each told in a line.

Knows which events say what a session is about, and reads only those. Refuses to load views.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from foldline.core import log
from foldline.core.log import ModelSwitched, Opened
from foldline.core.parts import retold
from foldline.errors import FormatError
from foldline.stores import event_log
from foldline.stores.base import Listed, Name, Store

_PAGE = 100  # sessions that are listed at a time
_TELLING = ("opened", "model_switched", "user_said")


@dataclass(frozen=True, slots=True)
class Summary:
    """One session: what the store says of it, and what its log says first."""

    listed: Listed
    model: str = ""
    turns: int = 0
    words: str = ""
    """The first words that a person said in it."""
    fault: str = ""
    """Why its log could not be read, where it could not."""

    @property
    def name(self) -> str:
        """The session's name."""
        return self.listed.session


async def listed(store: Store, tenant: str) -> AsyncGenerator[Listed]:
    """Every session, by name, page after page."""
    after = ""
    while page := await store.sessions(tenant, after=after, limit=_PAGE):
        for one in page:
            yield one
        after = page[-1].session


async def summaries(store: Store, tenant: str) -> AsyncGenerator[Summary]:
    """Every session of a tenant, by name, with what its log says of it."""
    async for one in listed(store, tenant):
        yield await summary(store, Name(tenant, one.session), one)


async def summary(store: Store, name: Name, known: Listed) -> Summary:
    """What a session's log says of it: its model now, its turns, its first words."""
    model, turns, words = "", 0, ""
    try:
        async for row in event_log.walk(store, name, known.head):
            if row.kind not in _TELLING:
                continue
            event = log.decode(row.body)
            if isinstance(event, Opened | ModelSwitched):
                model = event.model
            elif log.by_user(event):
                turns += 1
                words = words or " ".join(retold(event.parts).split())
    except FormatError as fault:
        return Summary(known, model, turns, words, fault=str(fault))
    return Summary(known, model, turns, words)

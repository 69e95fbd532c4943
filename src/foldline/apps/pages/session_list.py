"""The list of sessions: all of a tenant's, in the order that was asked for, page by page.

A store lists by name. Any other order needs the whole list, which is read in the background, kept
in this process, and read again while a visitor looks at it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from foldline.apps.pages.figures import FiguresKept, SessionFigures
from foldline.apps.pages.fleet_sums import UsageKept
from foldline.stores.base import Listed, Store

_PIECE = 5_000  # sessions listed at a time
_FRESH = 2.0  # seconds in which a list is not read again
_CALM = 10.0  # times as long as reading it took, that a list is not read again
_PATIENCE = 0.08  # seconds that a page waits for a list
_LISTS = 32
PER_PAGE = 50

ORDERS: dict[str, str] = {
    "changed": "last changed",
    "opened": "newest",
    "name": "name",
    "owner": "owner",
    "size": "size",
    "cost": "cost",
    "fullness": "fullness",
    "model": "model",
}
_BY_FIGURES = ("cost", "fullness", "model")
_KEYS: dict[str, tuple[Callable[[Listed], Any], bool]] = {
    "changed": (lambda one: one.changed, True),
    "opened": (lambda one: one.opened, True),
    "name": (lambda one: one.session, False),
    "owner": (lambda one: (not one.owner, one.owner, one.session), False),
    "size": (lambda one: one.size, True),
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What was asked for."""

    words: str = ""
    owner: str = ""
    model: str = ""
    order: str = "changed"
    page: int = 1


@dataclass(frozen=True, slots=True)
class ListRow:
    """A session of the list, with its figures if they are known."""

    listed: Listed
    figures: SessionFigures | None


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of the list, and what it is a page of."""

    rows: list[ListRow]
    query: ListQuery
    found: int
    """How many sessions fit the query."""
    total: int
    known: int
    """Of how many of the found ones the figures are known."""
    pages: int
    whole: bool
    """Whether all sessions are listed; else the list is still being read."""


@dataclass(slots=True)
class _KeptList:
    entries: list[Listed] = field(default_factory=list[Listed])
    whole: bool = False
    orders: dict[str, list[Listed]] = field(default_factory=dict[str, list[Listed]])
    read_at: float = 0.0
    took: float = 0.0
    task: "asyncio.Task[None] | None" = None


class SessionLists:
    """The lists that visitors look at, one for each tenant and owner."""

    def __init__(self, store: Store, figures: FiguresKept) -> None:
        self._store, self.figures, self.usage = store, figures, UsageKept(store)
        self._kept: OrderedDict[tuple[str, str | None], _KeptList] = OrderedDict()

    async def close(self) -> None:
        """Stop reading."""
        tasks = [kept.task for kept in self._kept.values() if kept.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.figures.close()
        await self.usage.close()

    async def list_all(self, tenant: str, sees: str | None) -> tuple[list[Listed], bool]:
        """Return all sessions that are listed so far, and whether that is all."""
        kept = await self._get_list(tenant, sees)
        return self._order_entries(kept, "changed"), kept.whole

    async def find_page(self, tenant: str, sees: str | None, query: ListQuery) -> ListPage:
        """Find one page of the sessions that fit a query."""
        kept = await self._get_list(tenant, sees)
        base = "changed" if query.order in _BY_FIGURES else query.order
        found = self._order_entries(kept, base)
        known = self.figures.of_tenant(tenant).known
        if query.owner:
            found = [one for one in found if one.owner == query.owner]
        if query.model:
            found = [one for one in found if _has_model(known.get(one.session), query.model)]
        if query.words:
            words = query.words.lower()
            found = [one for one in found if _has_words(one, known.get(one.session), words)]
        if query.order in _BY_FIGURES:
            found = _sort_by_figures(found, known, query.order)
        known_count = sum(one.session in known for one in found)
        pages = max(-(-len(found) // PER_PAGE), 1)
        page = min(max(query.page, 1), pages)
        rows = [
            ListRow(one, known.get(one.session))
            for one in found[(page - 1) * PER_PAGE : page * PER_PAGE]
        ]
        query = ListQuery(query.words, query.owner, query.model, query.order, page)
        return ListPage(rows, query, len(found), len(kept.entries), known_count, pages, kept.whole)

    async def _get_list(self, tenant: str, sees: str | None) -> _KeptList:
        key = tenant, sees
        kept = self._kept.setdefault(key, _KeptList())
        self._kept.move_to_end(key)
        while len(self._kept) > _LISTS:
            _, oldest = self._kept.popitem(last=False)
            if oldest.task is not None:
                oldest.task.cancel()
        is_reading = kept.task is not None and not kept.task.done()
        if not is_reading and monotonic() - kept.read_at > max(_FRESH, _CALM * kept.took):
            kept.task = asyncio.create_task(self._read_list(kept, tenant, sees))
            is_reading = True
        if is_reading and kept.task is not None:
            await asyncio.wait({kept.task}, timeout=_PATIENCE)
        return kept

    async def _read_list(self, kept: _KeptList, tenant: str, sees: str | None) -> None:
        began, after = monotonic(), ""
        entries: list[Listed] = []
        while page := await self._store.sessions(tenant, after=after, limit=_PIECE, owner=sees):
            entries += [one for one in page if one.head >= 0]
            after = page[-1].session
            if not kept.whole:
                kept.entries, kept.orders = entries[:], {}
            if len(page) < _PIECE:
                break
            await asyncio.sleep(0)
        kept.entries, kept.orders, kept.whole = entries, {}, True
        kept.read_at = monotonic()
        kept.took = kept.read_at - began
        newest = await asyncio.to_thread(self._order_entries, kept, "changed")
        self.figures.want(tenant, newest, is_all=sees is None)

    def _order_entries(self, kept: _KeptList, order: str) -> list[Listed]:
        if order not in kept.orders:
            key, down = _KEYS[order]
            kept.orders[order] = sorted(kept.entries, key=key, reverse=down)
        return kept.orders[order]


def _has_model(known: SessionFigures | None, model: str) -> bool:
    return known is not None and model.lower() in known.model.lower()


def _has_words(one: Listed, known: SessionFigures | None, words: str) -> bool:
    if words in one.session.lower() or words in one.owner.lower():
        return True
    return known is not None and words in known.text


def _sort_by_figures(
    found: list[Listed], known: dict[str, SessionFigures], order: str
) -> list[Listed]:
    """Sort by what is known; sessions whose figures are not known come last."""
    sized: list[tuple[Any, Listed]] = []
    rest: list[Listed] = []
    for one in found:
        figures = known.get(one.session)
        if figures is None:
            rest.append(one)
        elif order == "model":
            sized.append((figures.model or "\U0010ffff", one))
        else:
            size = figures.dollars if order == "cost" else figures.fullness
            sized.append((-(size or 0.0), one))
    sized.sort(key=lambda pair: pair[0])
    return [*(one for _, one in sized), *rest]

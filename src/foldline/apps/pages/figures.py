"""What sessions cost and how full they are, read from their logs in the background.

A store lists names, sizes and times; all else is in the logs. They are read one by one, the last
changed first, and what was found is kept in this process until the session changes. A page says of
how many sessions the figures are known.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import gmtime, monotonic, strftime
from typing import Any

import msgspec

from foldline.core import log
from foldline.core.log import Asked, Folded, ModelSaid, Opened, Setting, UsageReported, UserSaid
from foldline.core.own_words import read_own_words
from foldline.core.parts import Part, render_parts
from foldline.errors import FoldlineError
from foldline.session.ledger import Ledger
from foldline.session.model_facts import FactsOf
from foldline.session.usage_records import UsageSums
from foldline.stores import event_log
from foldline.stores.base import Listed, Name, Store

_SAID = UserSaid(())
_BARE = {"model_said": ModelSaid(()), "user_said": _SAID, "tool_returned": _SAID}
"""Events of which a bill needs the kind alone: decoding their words takes long."""
_READ = (
    *("opened", "settings_changed", "model_switched", "asked", "usage_reported", "folded"),
    *_BARE,
)
_WORDS = 200  # characters of a first message
_MOST = 200_000  # sessions of a tenant whose figures are kept
_QUIET, _ASIDE = 0.5, 0.05  # seconds after a request, and between two sessions until then
_REST = 0.5  # of the time: reading the logs leaves room for the requests


class DayFigures(msgspec.Struct):
    """What a session did on a day with a model."""

    day: str
    model: str
    sums: UsageSums
    """Calls that were not counted are among those without a price."""
    folded: int = 0
    """The tokens that folds took out of sight."""


class SessionFigures(msgspec.Struct):
    """What the log of a session says in all."""

    changed: float
    """When the session had last changed."""
    model: str = ""
    words: str = ""
    """The first words of a person."""
    tokens: int = 0
    """The size of its newest request."""
    window: int = 0
    assumed: bool = False
    """Whether a price or the window is a guess."""
    days: list[DayFigures] = []
    text: str = ""
    """Its first words and its model, as a search compares them."""
    owner: str = ""
    dollars: float | None = None
    """What its calls cost; None if none has a price."""
    fault: str = ""
    """Why its log could not be read, or ""."""

    @property
    def calls(self) -> int:
        """Its calls, those for narratives too."""
        return sum(one.sums.calls for one in self.days)

    @property
    def fullness(self) -> float:
        """The part of the window that its newest request filled."""
        return self.tokens / self.window if self.window else 0.0


async def read_figures(
    store: Store, name: Name, listed: Listed, facts_of: FactsOf
) -> SessionFigures:
    """Read the figures of a session from its log."""
    found = SessionFigures(listed.changed, days=[], owner=listed.owner)
    days: dict[tuple[str, str], DayFigures] = {}
    settings: dict[str, Setting] = {}
    ledger = Ledger()
    key, has_own_words = ("", ""), False
    try:
        async for row in event_log.iterate_rows(store, name, listed.head):
            if row.kind == "user_said" and not has_own_words:
                said = log.decode_event(row.body)
                if log.by_user(said):
                    has_own_words = _take_words(found, said.parts)
            if row.kind not in _READ:
                continue
            event = _BARE[row.kind] if row.kind in _BARE else log.decode_event(row.body)
            charge = ledger.apply_event(row.seq, event)
            day = strftime("%Y-%m-%d", gmtime(row.time))
            if charge is not None:
                key = key if charge.is_correction else (day, charge.model)
                charge.add_to(days.setdefault(key, DayFigures(*key, UsageSums())).sums)
            match event:
                case Opened(settings=settings):
                    days.clear()  # in the middle: a fork, and all before it is a copy
                case log.SettingsChanged(settings):
                    pass
                case Asked(tokens=tokens):
                    found.tokens = tokens
                case UsageReported() as used:
                    found.tokens = used.input or found.tokens
                case Folded() as fold:
                    own = day, ledger.model
                    figures = days.setdefault(own, DayFigures(*own, UsageSums()))
                    figures.sums.folds += 1
                    figures.folded += max(fold.before - fold.after, 0)
                case _:
                    pass
        found.model, found.assumed = ledger.model, ledger.assumed
        limits = facts_of(found.model, settings).limits
        found.window = limits.window
    except FoldlineError as fault:
        found.fault = str(fault)
    found.text = f"{found.words}\n{found.model}".lower()
    found.days = list(days.values())
    found.dollars = ledger.sum_charges().known_dollars
    for one in found.days:
        one.sums.unpriced += one.sums.estimated
        one.sums.estimated = 0
    return found


def _take_words(found: SessionFigures, parts: Sequence[Part]) -> bool:
    """Take a message's own words, or until there are some all of the first; whether it has any."""
    own = read_own_words(parts)
    if own or not found.words:
        found.words = (own or " ".join(render_parts(parts)[: 4 * _WORDS].split()))[:_WORDS]
    return bool(own)


class TenantFigures:
    """The figures of a tenant's sessions by name, and their sums."""

    def __init__(self) -> None:
        self.known: dict[str, SessionFigures] = {}
        """Of a session that has changed, those of its earlier state until the new ones are read."""
        self.groups: dict[tuple[str, str, str], UsageSums] = {}
        """By day, owner and model."""

    def keep(self, name: str, found: SessionFigures) -> None:
        """Keep the figures of a session, in place of its earlier ones."""
        self.drop(name)
        self.known[name] = found
        self._count(found, 1)

    def drop(self, name: str) -> None:
        """Forget a session."""
        before = self.known.pop(name, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, one: SessionFigures, sign: int) -> None:
        for day in one.days:
            key = day.day, one.owner, day.model
            sums = self.groups.setdefault(key, UsageSums())
            sums.merge(day.sums, sign)
            if not (sums.calls or sums.folds):
                del self.groups[key]


class FiguresKept:
    """The figures that are known, and the work that finds the rest."""

    def __init__(self, store: Store, facts_of_tenant: Callable[[str], FactsOf]) -> None:
        self._store, self._facts_of_tenant = store, facts_of_tenant
        self._kept: dict[str, TenantFigures] = {}
        self._wanted: dict[str, list[Listed]] = {}
        self._task: asyncio.Task[Any] | None = None
        self._asked = 0.0

    def of_tenant(self, tenant: str) -> TenantFigures:
        """Return the figures of a tenant's sessions."""
        return self._kept.setdefault(tenant, TenantFigures())

    def step_aside(self) -> None:
        """Read slowly for a moment: a visitor waits for a page."""
        self._asked = monotonic()

    def want(self, tenant: str, listed: list[Listed], *, is_all: bool) -> None:
        """Begin to read the figures of sessions, the last changed first.

        With `is_all` these are all of the tenant's, and the figures of others are dropped.
        """
        kept = self.of_tenant(tenant)
        if is_all and len(kept.known) > 0:
            for name in kept.known.keys() - {one.session for one in listed}:
                kept.drop(name)
        self._wanted[tenant] = listed
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_wanted())

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read_wanted(self) -> None:
        while self._wanted:
            tenant, listed = self._wanted.popitem()
            kept = self.of_tenant(tenant)
            for one in listed:
                if tenant in self._wanted:  # a newer list: its newest sessions come first
                    break
                known = kept.known.get(one.session)
                if known is not None and known.changed >= one.changed:
                    continue
                began = monotonic()
                name = Name(tenant, one.session)
                facts_of = self._facts_of_tenant(tenant)
                kept.keep(one.session, await read_figures(self._store, name, one, facts_of))
                if len(kept.known) > _MOST:
                    kept.drop(next(iter(kept.known)))
                is_busy = monotonic() - self._asked < _QUIET
                await asyncio.sleep(_ASIDE if is_busy else (monotonic() - began) * _REST)

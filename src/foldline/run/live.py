"""A log and its view, kept in step: what sessions, wrapped clients and gateways stand on.

Knows the store, the view and the facts, and that an event is written before it is shown. Refuses to
know who speaks: it takes in events and gives requests in a dialect that it is told.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from foldline.core import log
from foldline.core.budget import learned
from foldline.core.log import Asked, Event, Instructed, Logged, ModelSwitched, Opened, WindowLearned
from foldline.core.plan import Blocked, Facts, Need, Ready, admit, plan
from foldline.core.request import Report, render
from foldline.core.spine import Range
from foldline.core.view import View, load
from foldline.errors import BadHandle, BadInput, BrokenView, FormatError, Overflow
from foldline.store import logs
from foldline.store.base import Name, Store
from foldline.wire import dialects
from foldline.wire.dialects import Dialect
from foldline.wire.faults import Fault

_SMALLER = 0.8  # of a request that was refused without a number: what to try next


class Live:
    """One session's log, open."""

    def __init__(self, store: Store, name: Name, *, view: View, facts: Facts) -> None:
        self.store = store
        self.name = name
        self.view = view
        self.facts = facts
        self.report: Report | None = None
        """Of the newest request, until something else happens."""

    @classmethod
    async def open(cls, store: Store, name: Name, *, facts: Facts) -> "Live":
        """A log where it was left, or none yet."""
        tail = await logs.tail(store, name)
        view = load(tail.spine, dict(tail.events), head=tail.head)
        return cls(store, name, view=view, facts=facts)

    async def begin(self, model: str, *, origin: str = "") -> None:
        """Record what is new about this opening: the session, its model."""
        if self.view.head < 0:
            await self.append([Opened(model, origin=origin, format=log.FORMAT)])
        elif self.view.model != model:
            await self.append([ModelSwitched(model)])

    async def instruct(self, told: Instructed) -> None:
        """From here on these instructions hold, if they are others."""
        now = self.view.newest
        if (told.parts, told.tools, told.native) != (now.parts, now.tools, now.native):
            await self.append([told])

    async def take(self, event: Event) -> None:
        """Take in what arrived: clipped where it is too large, repairs noted."""
        await self.append(admit(self.view, event, self.facts))

    async def append(self, events: Sequence[Event]) -> None:
        """Write first, then show: a view never holds what the log does not."""
        for event in events:
            log.check(event)
        await logs.append(self.store, self.name, events, after=self.view.head)
        self.report = None
        for event in events:
            if isinstance(event, log.Edit) and not self.view.holds(event.spine):
                tail = await logs.tail(self.store, self.name)
                self.view = load(tail.spine, dict(tail.events), head=tail.head)
                return
            self.view.append(self.view.head + 1, event)

    async def events(self, span: Range) -> list[Logged]:
        """A stretch of the log, whatever the view shows of it."""
        return await logs.read(self.store, self.name, span)

    async def ask(
        self, parameters: Mapping[str, Any], *, dialect: Dialect, facts: Facts | None = None
    ) -> bytes:
        """What to send now, in a dialect's bytes; recorded as sent."""
        ready = await self._plan(facts or self.facts)
        at = self.view.head + len(ready.events)
        given = _json(parameters)
        body = dialect.encode(
            ready.request, msgspec.json.decode(given, type=dict[str, msgspec.Raw])
        )
        asked = Asked(
            at=at,
            dialect=dialect.name,
            sha256=_sha256(body),
            encoder=dialect.encoder,
            parameters=given,
            tokens=ready.report.total,
            estimate=ready.report.estimate,
        )
        await self.append([*ready.events, asked])
        self.report = ready.report
        return body

    async def sent(self, at: int) -> bytes:
        """A past request again, byte for byte: `at` is the place where it was recorded."""
        found = await self.events(Range(at, at))
        asked = found[0].event if found else None
        if not isinstance(asked, Asked):
            raise BadHandle(f"no request was recorded at {at}")
        tail = await logs.tail(self.store, self.name, at=asked.at)
        request = render(load(tail.spine, dict(tail.events), head=tail.head))
        dialect = dialects.named(asked.dialect)
        parameters = msgspec.json.decode(asked.parameters, type=dict[str, msgspec.Raw])
        body = dialect.encode(request, parameters)
        if _sha256(body) != asked.sha256:
            raise FormatError(
                f"the request at {at} differs from what was sent: "
                f"encoder {asked.encoder} wrote it, this release has {dialect.encoder}"
            )
        return body

    async def refused(self, fault: Fault) -> Facts | None:
        """Learn from a refusal (R-08): the facts to ask again under, None if no edit heals it."""
        asked = self.view.held.get(self.view.asked)
        if fault.kind not in ("tokens", "bytes") or not isinstance(asked, Asked):
            return None
        stated = fault.limit if fault.kind == "tokens" and not fault.suspected else None
        if stated is None:
            most = asked.tokens * _SMALLER
        else:
            await self._learn(stated, fault.message)
            # In the measure of our own estimate, which a larger count shows to be too small.
            most = min(stated * min(asked.tokens / (fault.count or 1), 1.0), asked.tokens)
        return replace(self.facts, limits=learned(self.facts.limits, int(most)))

    async def _learn(self, window: int, source: str) -> None:
        known = learned(self.facts.limits, self.view.windows.get(self.view.model)).window
        if window < known:
            await self.append([WindowLearned(self.view.model, window, source[:200])])

    async def _plan(self, facts: Facts) -> Ready:
        while True:
            match plan(self.view, facts):
                case Ready() as ready:
                    return ready
                case Blocked(parts, limit):
                    raise Overflow(parts, limit)
                case Need(ranges):
                    fetched = dict(facts.fetched)
                    for span in ranges:
                        fetched.update(await self.events(span))
                    if len(fetched) == len(facts.fetched):
                        raise BrokenView(f"the log no longer holds {ranges}, which a fold quotes")
                    facts = replace(facts, fetched=fetched)


def _json(parameters: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(parameters).decode()
    except (TypeError, UnicodeEncodeError) as fault:
        raise BadInput(
            f"a parameter that is not JSON: {fault}; give it to the client itself, not to request()"
        ) from fault


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

"""A session: one conversation, kept, planned and sent.

Orders calls and nothing else: the wire reads and writes, the core decides, the store keeps. The
sync `Session` has the same verbs as `AsyncSession`, made by the portal.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias, cast

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.budget import measure
from foldline.core.log import (
    Asked,
    Event,
    Instructed,
    Logged,
    ModelSwitched,
    Opened,
    Speaker,
    UserSaid,
)
from foldline.core.parts import Text, sound
from foldline.core.plan import Blocked, Facts, Need, Ready, admit, plan, take_back
from foldline.core.request import Report, render, report
from foldline.core.spine import Range
from foldline.core.view import View, load, shape
from foldline.errors import BadHandle, BadInput, BrokenView, FormatError, NotAnEdit, Overflow
from foldline.run.sync import Face, verb
from foldline.store.base import Name, Store
from foldline.wire import dialects

Given: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | Event | object
"""What add() reads: text, a message dict, an SDK's response, an event, or a list of these."""


class AsyncSession:
    """A conversation that fits its model's window, for as long as it lasts."""

    def __init__(self, store: Store, name: Name, *, view: View, facts: Facts) -> None:
        self._store = store
        self._name = name
        self._view = view
        self._facts = facts
        self._report: Report | None = None

    async def begin(
        self, *, model: str, system: str | None, tools: Sequence[Mapping[str, Any]]
    ) -> None:
        """Record what is new about this opening: the session, its model, its instructions."""
        if self._view.head < 0:
            await self._append([Opened(model, format=log.FORMAT)])
        elif self._view.model != model:
            await self._append([ModelSwitched(model)])
        await self.instruct(system=system, tools=tools or None)

    async def add(self, given: Given, *, speaker: Speaker = "human", author: str = "") -> None:
        """Take in what happened: the user's words, the model's answer, a tool's result."""
        if isinstance(given, list | tuple):
            for one in cast("Sequence[Given]", given):
                await self.add(one, speaker=speaker, author=author)
            return
        for event in self._read(given):
            match event:
                case UserSaid() if speaker != "human" or author:
                    # Its own JSON does not say so.
                    said = msgspec.structs.replace(
                        event, speaker=speaker, author=author, native=None
                    )
                    await self._append(admit(self._view, said, self._facts))
                case Instructed():  # what a system message says is added to what holds
                    now = self._view.newest
                    await self._append([Instructed((*now.parts, *event.parts), now.tools)])
                case _:
                    await self._append(admit(self._view, event, self._facts))

    async def instruct(
        self, *, system: str | None = None, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Change the system's words or the tools from here on; what is not given stays."""
        now = self._view.newest
        parts = now.parts if system is None else (Text(sound(system)),) if system else ()
        known = now.tools if tools is None else tuple(dialects.tool(tool) for tool in tools)
        if (parts, known) != (now.parts, now.tools):
            await self._append([Instructed(parts, known)])

    async def request(self, **parameters: Any) -> dict[str, Any]:
        """What to send now, as keyword arguments for the provider's SDK; recorded as sent."""
        ready = await self._plan()
        at = self._view.head + len(ready.events)
        dialect = dialects.speaking(self._view.model)
        given = _json(dialect.parameters(parameters, reserve=self._facts.limits.reserve))
        body = dialect.encode(ready.request, msgspec.json.decode(given))
        asked = Asked(
            at=at,
            dialect=dialect.name,
            sha256=_sha256(body),
            encoder=dialect.encoder,
            parameters=given,
            tokens=ready.report.total,
            estimate=ready.report.estimate,
        )
        await self._append([*ready.events, asked])
        self._report = ready.report
        return msgspec.json.decode(body)

    async def undo(self, edit: int | None = None) -> int:
        """Take back an edit, or the newest one; gives the place to undo if you want it back."""
        if edit is None:
            if not self.edits:
                raise NotAnEdit("there is no edit to undo: the model sees everything as it came")
            edit = self.edits[-1]
        found = await self._events(Range(edit, edit))
        if not found or not isinstance(found[0].event, log.Edit):
            raise NotAnEdit(f"there is no edit at {edit}; those that stand: {self.edits or 'none'}")
        undone = take_back(self._view, edit, found[0].event, self._facts)
        if isinstance(undone, Blocked):
            raise Overflow(undone.parts, undone.limit)
        await self._append([undone])
        return self._view.head

    async def recall(self, handle: str, *, most: int | None = None) -> str:
        """The original of anything in the log, by the handle that stands in its place.

        Whole, or as the handle asks: `recall("log:12", tail=40)`; in pages of `most` tokens.
        """
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        asked = recall.parse(handle)
        found = await self._events(asked.span)
        if not found:
            raise recall.gone(asked.span, end=self._view.head)
        return recall.show(found, asked, most=most)

    async def sent(self, at: int) -> dict[str, Any]:
        """A past request again, byte for byte: `at` is the place where it was recorded."""
        found = await self._events(Range(at, at))
        asked = found[0].event if found else None
        if not isinstance(asked, Asked):
            raise BadHandle(f"no request was recorded at {at}")
        tail = await self._store.tail(self._name, at=asked.at)
        request = render(load(tail.spine, dict(tail.events), head=tail.head))
        dialect = dialects.named(asked.dialect)
        body = dialect.encode(request, msgspec.json.decode(asked.parameters))
        if _sha256(body) != asked.sha256:
            raise FormatError(
                f"the request at {at} differs from what was sent: "
                f"encoder {asked.encoder} wrote it, this release has {dialect.encoder}"
            )
        return msgspec.json.decode(body)

    async def close(self) -> None:
        """Let go of the store; the log stays."""
        await self._store.close()

    @property
    def report(self) -> Report:
        """Where the window goes: of the last request, or of what would be sent now."""
        return self._report or report(self._view, measure(self._view, self._facts.limits))

    @property
    def edits(self) -> list[int]:
        """The edits that stand, oldest first."""
        return spines.edits(self._view.spine)

    @property
    def asked(self) -> int:
        """Where the newest request was recorded, or -1."""
        return self._view.asked

    def __repr__(self) -> str:
        return (
            f"<session {self._name.session!r}, {self._view.head + 1} events>\n{shape(self._view)}"
        )

    async def _plan(self) -> Ready:
        facts = self._facts
        while True:
            match plan(self._view, facts):
                case Ready() as ready:
                    return ready
                case Blocked(parts, limit):
                    raise Overflow(parts, limit)
                case Need(ranges):
                    fetched = dict(facts.fetched)
                    for span in ranges:
                        fetched.update(await self._events(span))
                    if len(fetched) == len(facts.fetched):
                        raise BrokenView(f"the log no longer holds {ranges}, which a fold quotes")
                    facts = replace(facts, fetched=fetched)

    async def _append(self, events: Sequence[Event]) -> None:
        """Write first, then show: a view never holds what the log does not."""
        for event in events:
            log.check(event)
        await self._store.append(self._name, events, after=self._view.head)
        self._report = None
        for event in events:
            if isinstance(event, log.Edit) and not self._view.holds(event.spine):
                tail = await self._store.tail(self._name)
                self._view = load(tail.spine, dict(tail.events), head=tail.head)
                return
            self._view.append(self._view.head + 1, event)

    async def _events(self, span: Range) -> list[Logged]:
        return await self._store.read(self._name, span.lo, span.lo if span.hi is None else span.hi)

    def _read(self, given: Given) -> list[Event]:
        # The first answer after a request is to that request; any other is taken as it stands.
        saw = self._view.shown if self._view.awaited else None
        match given:
            case str():
                return [UserSaid((Text(sound(given)),))]
            case _ if isinstance(given, log.Event):
                return [given]
            case Mapping():
                body = cast("Mapping[str, Any]", given)
                own, asked = dialects.speaking(self._view.model), self._view.asked
                return dialects.events(body, own=own, saw=saw, asked=asked)
            case _ if hasattr(given, "model_dump"):
                return self._read(cast("Any", given).model_dump(mode="json", exclude_unset=True))
            case _:
                raise BadInput(
                    f"add() cannot read a {type(given).__name__}; give it text, a message dict, "
                    "an SDK's response object, an event, or a list of these"
                )


class Session(Face[AsyncSession]):
    """The same session for code without `await`."""

    add = verb(AsyncSession.add)
    instruct = verb(AsyncSession.instruct)
    request = verb(AsyncSession.request)
    undo = verb(AsyncSession.undo)
    recall = verb(AsyncSession.recall)
    sent = verb(AsyncSession.sent)
    close = verb(AsyncSession.close)

    @property
    def report(self) -> Report:
        """Where the window goes: of the last request, or of what would be sent now."""
        return self.aio.report

    @property
    def edits(self) -> list[int]:
        """The edits that stand, oldest first."""
        return self.aio.edits

    @property
    def asked(self) -> int:
        """Where the newest request was recorded, or -1."""
        return self.aio.asked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self.aio)


def _json(parameters: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(parameters).decode()
    except (TypeError, UnicodeEncodeError) as fault:
        raise BadInput(
            f"a parameter that is not JSON: {fault}; give it to the client itself, not to request()"
        ) from fault


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

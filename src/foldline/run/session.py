"""A session: one conversation, kept, planned and sent.

Orders calls and nothing else: the wire reads and writes, the core decides, the store keeps. The
sync `Session` has the same verbs as `AsyncSession`, made by the portal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias, cast

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.budget import measure
from foldline.core.log import Event, Instructed, Speaker, UserSaid
from foldline.core.parts import Text, sound
from foldline.core.plan import Blocked, take_back
from foldline.core.request import Report, report
from foldline.core.spine import Range
from foldline.core.view import shape
from foldline.errors import BadInput, NotAnEdit, Overflow
from foldline.run.live import Live
from foldline.run.sync import Face, verb
from foldline.wire import dialects

Given: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | Event | object
"""What add() reads: text, a message dict, an SDK's response, an event, or a list of these."""


class AsyncSession:
    """A conversation that fits its model's window, for as long as it lasts."""

    def __init__(self, live: Live) -> None:
        self._live = live

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
                    await self._live.take(said)
                case Instructed():  # what a system message says is added to what holds
                    now = self._live.view.newest
                    await self._live.append([Instructed((*now.parts, *event.parts), now.tools)])
                case _:
                    await self._live.take(event)

    async def instruct(
        self, *, system: str | None = None, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Change the system's words or the tools from here on; what is not given stays."""
        now = self._live.view.newest
        parts = now.parts if system is None else (Text(sound(system)),) if system else ()
        known = now.tools if tools is None else tuple(dialects.tool(tool) for tool in tools)
        await self._live.instruct(Instructed(parts, known))

    async def request(self, **parameters: Any) -> dict[str, Any]:
        """What to send now, as keyword arguments for the provider's SDK; recorded as sent."""
        dialect = dialects.speaking(self._live.view.model)
        given = dialect.parameters(parameters, reserve=self._live.facts.limits.reserve)
        return msgspec.json.decode(await self._live.ask(given, dialect=dialect))

    async def undo(self, edit: int | None = None) -> int:
        """Take back an edit, or the newest one; gives the place to undo if you want it back."""
        if edit is None:
            if not self.edits:
                raise NotAnEdit("there is no edit to undo: the model sees everything as it came")
            edit = self.edits[-1]
        found = await self._live.events(Range(edit, edit))
        if not found or not isinstance(found[0].event, log.Edit):
            raise NotAnEdit(f"there is no edit at {edit}; those that stand: {self.edits or 'none'}")
        undone = take_back(self._live.view, edit, found[0].event, self._live.facts)
        if isinstance(undone, Blocked):
            raise Overflow(undone.parts, undone.limit)
        await self._live.append([undone])
        return self._live.view.head

    async def recall(self, handle: str, *, most: int | None = None) -> str:
        """The original of anything in the log, by the handle that stands in its place.

        Whole, or as the handle asks: `recall("log:12", tail=40)`; in pages of `most` tokens.
        """
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        asked = recall.parse(handle)
        found = await self._live.events(asked.span)
        if not found:
            raise recall.gone(asked.span, end=self._live.view.head)
        return recall.show(found, asked, most=most)

    async def sent(self, at: int) -> dict[str, Any]:
        """A past request again, byte for byte: `at` is the place where it was recorded."""
        return msgspec.json.decode(await self._live.sent(at))

    async def close(self) -> None:
        """Let go of the store; the log stays."""
        await self._live.store.close()

    @property
    def report(self) -> Report:
        """Where the window goes: of the last request, or of what would be sent now."""
        return self._live.report or report(
            self._live.view, measure(self._live.view, self._live.facts.limits)
        )

    @property
    def edits(self) -> list[int]:
        """The edits that stand, oldest first."""
        return spines.edits(self._live.view.spine)

    @property
    def asked(self) -> int:
        """Where the newest request was recorded, or -1."""
        return self._live.view.asked

    def __repr__(self) -> str:
        view = self._live.view
        return f"<session {self._live.name.session!r}, {view.head + 1} events>\n{shape(view)}"

    def _read(self, given: Given) -> list[Event]:
        # The first answer after a request is to that request; any other is taken as it stands.
        saw = self._live.view.shown if self._live.view.awaited else None
        match given:
            case str():
                return [UserSaid((Text(sound(given)),))]
            case _ if isinstance(given, log.Event):
                return [given]
            case Mapping():
                body = cast("Mapping[str, Any]", given)
                own, asked = dialects.speaking(self._live.view.model), self._live.view.asked
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

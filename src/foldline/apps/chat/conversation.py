"""A person and an agent, one turn after the other, until the person leaves.

    ended = await Talk(seat, face).run()      # Left(), or Another(name): the session to go on with

Knows the order of things: what was entered, a command or words for the model; how a turn is
stopped; what is said after it (A-36, A-42). Refuses to know the terminal (`face`), and to make an
agent (`startup`). Commands never reach the model.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from foldline.agent.loop import Ended
from foldline.apps.chat import bar
from foldline.apps.chat.approving import asked, trusting
from foldline.apps.chat.commands import TABLE, endings, find
from foldline.apps.chat.commands.folding import fold
from foldline.apps.chat.faults import told
from foldline.apps.chat.line import MARK
from foldline.apps.chat.live_output import TurnOutput
from foldline.apps.chat.safe import safe
from foldline.apps.chat.startup import ChatFace, ChatSeat
from foldline.apps.cli.output import Style, paint, wrapped
from foldline.core.log import Interrupted, UsageReported, by_user
from foldline.core.parts import retold
from foldline.core.plan import waits
from foldline.core.spine import Range
from foldline.core.tokens import count
from foldline.draw.picture import Picture, picture
from foldline.draw.text import clean, fit
from foldline.errors import FoldlineError
from foldline.session.costs import Bill
from foldline.session.session_list import listed

_TICK = 0.2  # seconds between two pictures of what is under way
_NAMES = 500  # sessions that may be completed
_MARGIN = "  "
_BRIEF = 3  # lines of what was said last


class PersonLeft(NamedTuple):
    """The person has left."""


class Another(NamedTuple):
    """The person wants another session; "" is a new one without a name of its own."""

    name: str
    known: bool = False
    """Whether it must be there already."""


End: TypeAlias = PersonLeft | Another


class Talk:
    """One session, talked with."""

    def __init__(self, seat: ChatSeat, face: ChatFace) -> None:
        self.seat, self.face = seat, face
        self.session = seat.agent.session
        self.bill = Bill(self.session)
        self.hearing = TurnOutput(face, self.session)
        self.redo: int | None = None
        """The undo that /redo takes back."""
        self.names: list[str] = []
        self._end: End | None = None
        self._picture: Picture | None = None

    async def run(self) -> End:
        """Talk until the person leaves, or wants another session."""
        face, agent = self.face, self.seat.agent
        self.hearing.changed = self.moved
        agent.hooks.append(self._hook)
        face.bar = self._bar
        if self.seat.approvals is not None:
            self.seat.approvals.ask = partial(asked, face)
        face.words = lambda text: endings(TABLE, self, text)
        beside = [asyncio.create_task(work) for work in (self._ticks(), self._looked())]
        try:
            await self._greet()
            await self._stoppable(self._trust())
            while self._end is None:
                said = await face.said()
                if said is None:
                    return PersonLeft()
                await self._one(said)
            return self._end
        finally:
            agent.hooks.remove(self._hook)
            face.words, face.stop = None, None
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def say(self, *lines: str) -> None:
        """Lines for the person, which stay."""
        self.face.above("".join(f"{line}\n" for line in lines))

    def note(self, text: str, style: Style = "dim") -> None:
        """What is said beside the conversation, on as many lines as it takes."""
        self.say(*(paint(line, style) for one in text.split("\n") for line in wrapped(one)))

    def picture(self) -> Picture:
        """What the model sees now."""
        if self._picture is None:
            self._picture = picture(self.session.live.view, self.session.live.facts)
        return self._picture

    def moved(self) -> None:
        """The window is another now."""
        self._picture = None
        self.face.refresh()

    def another(self, name: str, *, known: bool = False) -> None:
        """End here, and go on with another session."""
        self._end = Another(name, known)

    async def agreed(self, question: str) -> bool:
        """Whether the person says yes."""
        said = await self.face.ask(f"{question} ")
        yes = (said or "").strip().lower() in ("y", "yes")
        self.say(f"{question} {'y' if yes else 'n'}")
        return yes

    def usage(self, response: int | None = None) -> None:
        """The line after each answer: A-42."""
        drawn = self.picture()
        line, level = bar.after(drawn.total, drawn.window, response)
        self.say(paint(line, level))

    async def go_on(self) -> None:
        """Have answered what stands unanswered."""
        await self._turn(self.seat.agent.go_on())

    async def _one(self, said: str) -> None:
        """One thing that was entered; whatever goes wrong, the talk goes on."""
        self.say("", *(paint(line, "strong") for line in _echo(said)), "")
        words = said[1:] if said.startswith("//") else said
        command = said.startswith("/") and not said.startswith("//")
        work = self._command(said) if command else self._turn(self.seat.agent.turn(words))
        try:
            await self._stoppable(work)
        except asyncio.CancelledError:
            self.hearing.end()
            if (us := asyncio.current_task()) is not None and us.cancelling():
                raise  # it is the talk itself that ends
            self.note("stopped" if command else "stopped; what was said so far is kept", "yellow")
        except Exception as fault:  # noqa: BLE001 - the talk goes on, whatever it was
            self.hearing.end()
            self.note(told(fault), "red")
        self.moved()
        with suppress(FoldlineError):
            await self.bill.catch_up()

    async def _stoppable(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that Ctrl-C ends; whoever ends us ends it too."""
        task = asyncio.create_task(work)
        self.face.stop = task.cancel
        try:
            await asyncio.wait([task])
        finally:
            self.face.stop = None
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        task.result()

    async def _command(self, said: str) -> None:
        command, rest = find(TABLE, said)
        await command.work(self, rest)

    async def _turn(self, work: Coroutine[Any, Any, Ended]) -> None:
        start = self.session.live.view.head
        self.hearing.begin()
        ended = await work
        self.hearing.end()
        if ended.how != "answered":
            self.note(ended.words, "yellow")
        elif not ended.words.strip():
            self.note("the answer has no words")
        self.moved()
        self.usage(await self._response(start, ended.words))
        await self._ask_to_fold()
        await self._trust()

    async def _trust(self) -> None:
        """Ask about instructions of this folder that nobody has agreed to: R-61."""
        known = self.seat.instructions
        if known is not None and (files := known.untrusted()):
            answer = await trusting(self.face, files)
            await known.trust(answer)
            self.note("not followed" if answer == "no" else "followed from the next turn on")

    async def _response(self, start: int, words: str) -> int:
        """What the turn's answers took, as counted or estimated."""
        events = await self.session.live.events(Range(start + 1, self.session.live.view.head))
        told = [one.output for _, one in events if isinstance(one, UsageReported)]
        return sum(out for out in told if out) or count(words)

    async def _ask_to_fold(self) -> None:
        """Above the line where a fold is due, a person is asked after every answer: A-36."""
        live = self.session.live
        if not waits(live.view, live.facts):
            return
        drawn = self.picture()
        share, sizes = 100 * drawn.total / drawn.window, f"{drawn.total:,}/{drawn.window:,}"
        asked = f"⚠ Context usage at {share:.0f}% ({sizes} tokens). Compact conversation? [y/N]"
        if await self.agreed(asked):
            await fold(self)

    def _hook(self, moment: Any) -> None:
        self.hearing.hear(moment)

    def _bar(self, columns: int) -> list[tuple[str, str]]:
        name = self.session.live.name.session
        stand = bar.Stand(name, self.picture(), self.bill.known, self.hearing.more)
        return bar.pieces(stand, columns)

    async def _ticks(self) -> None:
        """What is under way is drawn again and again: its time runs."""
        while True:
            await asyncio.sleep(_TICK)
            if self.face.stop is not None:
                self.face.refresh()

    async def _looked(self) -> None:
        """What takes a while and nobody waits for: the bill, and the names of other sessions."""
        with suppress(FoldlineError):
            await self.bill.catch_up()
            self.face.refresh()
            live = self.session.live
            async for one in listed(live.store, live.name.tenant):
                self.names.append(one.session)
                if len(self.names) >= _NAMES:
                    break

    async def _greet(self) -> None:
        """Where this is, and what was said last."""
        live, name = self.session.live, clean(self.session.live.name.session)
        for line in self.seat.notes:
            self.note(line)
        turns = [seq for seq, event in live.view.held.items() if by_user(event)]
        drawn = self.picture()
        model = clean(drawn.model)
        if not turns and not live.view.items:
            self.note(f"{name} · {model} · /help lists commands, Ctrl-D leaves")
            return
        self.note(f"{name} goes on · {model} · /help lists commands, Ctrl-D leaves")
        for role in ("user", "model"):
            found = [one for one in live.view.items if one.role == role and retold(one.parts)]
            if found and (role == "user" or found[-1].seq > max(turns, default=-1)):
                self._brief(role, retold(found[-1].parts))
        if lost := self._interrupted():
            self.note(f"{lost}: interrupted, outcome unknown", "yellow")
        self.usage(await self._response(max(turns, default=live.view.head), "") or None)

    def _brief(self, role: str, words: str) -> None:
        lines = [clean(line) for line in words.strip().split("\n") if line.strip()]
        room = self.face.columns - 3
        shown = [fit(line, room) for line in lines[:_BRIEF]]
        more = [f"… {len(lines) - _BRIEF} more lines"] if len(lines) > _BRIEF else []
        mark = MARK if role == "user" else _MARGIN
        said = [f"{_MARGIN if at else mark}{line}" for at, line in enumerate([*shown, *more])]
        self.say(*(paint(line, "dim") for line in said))

    def _interrupted(self) -> str:
        """The calls of the newest round whose outcome nobody knows."""
        view = self.session.live.view
        last = max((seq for seq, event in view.held.items() if by_user(event)), default=-1)
        closed = [e.call_id for seq, e in view.held.items()
                  if seq > last and isinstance(e, Interrupted)]  # fmt: skip
        names = [*view.open, *closed]
        if not names:
            return ""
        return f"{len(names)} call{'' if len(names) == 1 else 's'} of a tool"


def _echo(said: str) -> list[str]:
    lines = safe(said).expandtabs(4).split("\n")
    return [f"{_MARGIN if at else MARK}{line}" for at, line in enumerate(lines)]

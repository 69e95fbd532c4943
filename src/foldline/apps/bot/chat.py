"""One chat: what comes in, turn after turn, and every answer delivered once.

    hear     a message goes into the log first, under its update's number (R-81)
    turn     what came in during a turn is answered by the next one (R-28, R-29)
    deliver  answers are written from the log into messages whose numbers are kept before

Knows the order of things. Refuses to know what commands do (`commands`), and how calls are made
(`bot_api`). One worker for each chat; a turn holds the session's lease, so that of several
processes one answers.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from math import inf
from time import monotonic

from foldline.agent.approval import Answer
from foldline.agent.events import Moment, Passed
from foldline.agent.loop import Ended
from foldline.agent.tool import Intent
from foldline.apps.bot import cards, html
from foldline.apps.bot.approval import ApprovalQuestions
from foldline.apps.bot.bot_api import ApiRefused, BotCalls, Buttons, Unreachable
from foldline.apps.bot.commands import work_off
from foldline.apps.bot.delivery import AUTHOR, Track
from foldline.apps.bot.html import HtmlText, plainly
from foldline.apps.bot.inbox import Inbox
from foldline.apps.bot.live_message import Pen
from foldline.apps.bot.rules import Rules, Seat
from foldline.apps.bot.session_names import ChatPlace
from foldline.core.log import ModelSaid, UserSaid
from foldline.core.parts import Call, Part, calls_of, spoken
from foldline.core.plan import waits
from foldline.errors import Busy, Conflict, FoldlineError, ModelFailed, StoreFailed
from foldline.models.retries import PASSING
from foldline.session.hooks import Pass
from foldline.session.stored_session import taken

_DRAFT = "…"
_AGAIN = 2.0  # seconds after which work that failed is begun again
_BROKEN = {"cancelled": "(stopped)", "cut": "(it broke off here)", "length": "(cut at its length)"}


class Chat:
    """A session that is talked with in Telegram."""

    def __init__(  # noqa: PLR0913 - one keyword for each thing that a chat works with
        self,
        place: ChatPlace,
        seat: Seat,
        *,
        line: BotCalls,
        rules: Rules,
        asking: ApprovalQuestions,
        track: Track,
        tell: Callable[[str], None],
    ) -> None:
        self.place, self.seat, self.line, self.rules = place, seat, line, rules
        self.agent, self.session = seat.agent, seat.agent.session
        self.track, self.asking, self.tell = track, asking, tell
        live = self.session.live
        self.inbox = Inbox(live.store, live.name)
        self.users = 0
        """Who is putting something in just now."""
        self._wake = asyncio.Event()
        self._wake.set()
        self._closed = False
        self._work: asyncio.Task[Ended] | None = None
        self._stopping = False
        self._delivering = asyncio.Lock()
        self._shown: dict[int, str] = {}
        self._pen: Pen | None = None
        self._folds: list[Pass] = []
        self._reply: int | None = None
        self._waits, self._failed = 0.0, 0
        self._orders = True  # whether commands may be waiting
        self.agent.hooks.append(self._hear)
        if seat.approvals is not None:
            seat.approvals.ask = self._ask

    @property
    def idle(self) -> bool:
        """Whether nothing happens here, and nothing is to happen."""
        return (
            not self.users
            and not self._wake.is_set()
            and self._work is None
            and (self.track.still and not self._orders)
        )

    async def hear(
        self, number: int, parts: tuple[Part, ...], *, author: str, message: int
    ) -> None:
        """Take in a message; when this returns it is in the log, and will be answered."""
        said = UserSaid(parts, author=author)
        at = await self.session.add(said, author=author, once=f"tg:{number}")
        self.track.know(message, at)
        self._reply = None if self.place.private else message
        self._waits = 0.0
        self._wake.set()

    async def order(self, number: int, update: dict[str, object]) -> None:
        """Take in a command or a button."""
        if await self.inbox.put(number, update):
            self._orders = True
        self._wake.set()

    def wake(self) -> None:
        """Look whether there is something to do."""
        self._wake.set()

    def retry(self) -> bool:
        """Ask again for an answer that did not come; whether there is one to ask for."""
        self._waits, self._failed = 0.0, 0
        self._wake.set()
        return self.track.pending

    def stop(self) -> bool:
        """Stop what is under way; whether anything is."""
        if self._work is None or self._work.done():
            return False
        self._stopping = True
        self._work.cancel()
        return True

    def close(self) -> None:
        """Let the worker end when it has nothing to do."""
        self._closed = True
        self._wake.set()

    async def work(self) -> None:
        """Answer and deliver, for as long as the chat is open."""
        while not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            try:
                await self._round()
            except Unreachable as fault:
                self._waits = inf  # until somebody writes
                self.tell(f"{self.place.name}: nobody is there: {fault}")
            except Exception as fault:  # noqa: BLE001 - told, and begun again: no chat is stuck
                self.tell(f"{self.place.name}: {type(fault).__name__}: {fault}")
                self._waits = monotonic() + _AGAIN

    def _pause(self) -> float | None:
        return None if self._waits in (0.0, inf) else max(self._waits - monotonic(), 0.0)

    async def _round(self) -> None:
        """All that is to do now."""
        await self._fresh()
        await self.deliver()
        while not self._closed:
            if self._orders:
                self._orders = False  # before it is looked: what comes meanwhile says so anew
                if update := await self.inbox.take():
                    self._orders = True
                    async with self.held():
                        await work_off(self, update)
            elif self.track.pending and monotonic() >= self._waits:
                self._waits = 0.0
                await self._turn()
            else:
                break
        await self.track.seen()

    async def _fresh(self) -> None:
        """Take in what other processes wrote."""
        async with self.session.live.lock:
            await self.session.live.catch_up()
        await self.track.look(self.session.live)

    def held(self) -> AbstractAsyncContextManager[object]:
        """The session for ourselves, waited for where another process has it."""
        return taken(self.session, seconds=self.rules.lease)

    async def _turn(self) -> None:
        note: HtmlText | None = None
        async with self.held():
            await self.track.look(self.session.live)
            if not self.track.pending:
                return  # another process has answered
            note = await self._answered()
            await self.track.look(self.session.live)
        await self.deliver()
        if note is None and self.track.draft and not self.track.pending:
            note = plainly("The answer has no words.")
        if note is not None:
            await self.note(note)
        await self._after()

    async def _answered(self) -> HtmlText | None:
        """Let the agent work; what is to be said of it besides its answer."""
        full = self.rules.notices == "full"
        pen = Pen(self._show, self.deliver, every=self.line.pace.stream, tools=full)
        self._stopping, self._pen = False, pen
        self._work = asyncio.create_task(self.agent.go_on())
        beside = asyncio.create_task(self.line.typing(self.place))
        try:
            ended = await self._work
            self._failed = 0
        except asyncio.CancelledError:
            if not self._stopping:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)
                raise
            return await self._over("The turn was stopped by the user.", "Stopped.")
        except Exception as fault:  # noqa: BLE001 - the chat goes on, whatever it was
            return self._fault(fault)
        finally:
            self._work, self._pen = None, None
            await pen.end()
            await asyncio.gather(beside, return_exceptions=True)
        match ended.how:
            case "answered":
                return None
            case "vetoed":
                self._waits = inf
                return plainly(f"⚠ {ended.words}")
            case _:
                return await self._over(ended.words, f"⚠ {ended.words}")

    async def _over(self, why: str, told: str) -> HtmlText | None:
        """A turn ended without an answer: noted, so that it is not begun again after a restart."""
        await self.track.look(self.session.live)
        said = not self.track.pending
        if not said:
            await self.session.add(f"[{why}]", speaker="notice", author=AUTHOR)
        return None if said else plainly(told)

    def _fault(self, fault: Exception) -> HtmlText | None:
        """What somebody is told of a turn that failed; what they said stays, to be answered."""
        if isinstance(fault, Busy | Conflict):  # another process has it, and may answer
            self.tell(f"{self.place.name}: {fault}; it is looked at again")
            self._waits = monotonic() + self.rules.lease
            return None
        passing = isinstance(fault, ModelFailed) and fault.fault.kind in PASSING
        if passing or isinstance(fault, StoreFailed):
            pause = min(self.rules.again * 2**self._failed, 3_600.0)
            self._waits, self._failed = monotonic() + pause, self._failed + 1
            way = f"It is asked again in {pause:,.0f} s; /retry asks now."
        else:
            self._waits = inf
            way = "What you said is kept; /retry asks again."
        self.tell(f"{self.place.name}: {type(fault).__name__}: {fault}")
        ours = isinstance(fault, FoldlineError)
        told = str(fault) if ours else f"{type(fault).__name__}, a fault of foldline"
        return plainly(f"⚠ {told}\n{way}")

    async def _after(self) -> None:
        """What is said behind an answer: folds that were made, and that one is due (A-36)."""
        folds, self._folds = self._folds, []
        if self.rules.notices != "off":
            for one in folds:
                await self.say(*cards.folded(one), quiet=True)
        if waits(self.session.live.view, self.session.live.facts):
            await self.say(*cards.asked(self.session))

    async def deliver(self) -> None:
        """Write answers that nobody has seen into messages."""
        async with self._delivering:
            await self.track.look(self.session.live)
            while self.track.undelivered:
                _, said = self.track.undelivered[0]
                last = len(self.track.undelivered) == 1 and not calls_of(said.parts)
                await self._write(self._text(said), foot=self._footer() if last else "")
                await self.track.delivered()
                self._shown.clear()

    def _text(self, said: ModelSaid) -> str:
        broken = _BROKEN.get(said.stop, "")
        return f"{spoken(said.parts).strip()}{f'{chr(10) * 2}{broken}' if broken else ''}"

    def _footer(self) -> str:
        if self.rules.notices == "off":
            return ""
        now = self.session.report
        return html.footer(now.total, now.window)

    async def _write(self, text: str, *, foot: str) -> None:
        room = html.units(foot) + 2 if foot else 0
        parts = html.split(text, html.MOST - room)
        if foot:
            parts[-1] += f"\n\n{foot}"
        for at, part in enumerate(parts):
            await self._part(at, html.words(part))
        for extra in self.track.draft[len(parts) :]:
            await self.line.remove(self.place, extra)

    async def _show(self, text: str) -> None:
        """What is not finished yet: the last part of it grows."""
        async with self._delivering:
            for at, part in enumerate(html.split(text)):
                await self._part(at, html.words(part), tries=1)

    async def _part(self, at: int, words: HtmlText, *, tries: int | None = None) -> None:
        """One part of an answer in its message, which is made first, and its number kept."""
        for _ in range(3):
            draft = self.track.draft
            if at >= len(draft):
                reply = self._reply if at == 0 else None
                await self.track.drafted(
                    await self.line.send(self.place, plainly(_DRAFT), reply=reply)
                )
            message = self.track.draft[at]
            if self._shown.get(message) == words.html:
                return
            try:
                await self.line.edit(self.place, message, words, tries=tries)
            except ApiRefused as fault:  # it was taken away, or is too old
                self.tell(f"{self.place.name}: a message is made anew: {fault}")
                del self.track.draft[at:]
            else:
                self._shown[message] = words.html
                return
        self.tell(f"{self.place.name}: a part of an answer is not taken by the API, and left out")

    async def note(self, words: HtmlText) -> None:
        """Something that is said in place of an answer, in the message that waits for one."""
        if not self.track.draft:
            await self.say(words)
            return
        first, *more = self.track.draft
        with suppress(ApiRefused):
            await self.line.edit(self.place, first, words)
        for extra in more:
            await self.line.remove(self.place, extra)
        self._shown.clear()
        await self.track.emptied()

    async def say(self, words: HtmlText, buttons: Buttons = (), *, quiet: bool = False) -> None:
        """A message beside the conversation; one that the API does not take is left out."""
        try:
            await self.line.send(self.place, words, buttons=buttons, quiet=quiet)
        except ApiRefused as fault:
            self.tell(f"{self.place.name}: a notice is not taken by the API: {fault}")

    def _hear(self, moment: Moment) -> None:
        if isinstance(moment, Passed) and moment.one.kind == "fold" and self._pen is not None:
            self._folds.append(moment.one)
        if self._pen is not None:
            self._pen.hear(moment)

    async def _ask(self, call: Call, intent: Intent) -> Answer:
        return await self.asking.ask(self.place, call, intent)

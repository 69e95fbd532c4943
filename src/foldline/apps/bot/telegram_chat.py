"""One chat: it takes messages in, runs turns, and delivers every answer once.

    hear             a message goes into the log first, under its update's number
    _run_turn        answers what came in, also during the turn before
    deliver_answers  writes answers from the log into messages whose numbers are stored before

Each chat has one worker. A turn holds the session's lease, so that only one of several processes
answers.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from math import inf
from random import Random
from time import monotonic

from foldline.agent.events import Moment, Passed
from foldline.agent.loop import Ended
from foldline.apps.bot import approval_cards, html
from foldline.apps.bot.approval_cards import ApprovalQuestions, BotSeat, Rules
from foldline.apps.bot.bot_api import ApiRefused, BotCalls, Buttons, ChatPlace, Unreachable
from foldline.apps.bot.commands import work_off
from foldline.apps.bot.delivery import AUTHOR, DraftWriter, Inbox, Track
from foldline.apps.bot.html import HtmlText, render_plain_text
from foldline.core.log import ModelSaid, UserSaid
from foldline.core.parts import Part, calls_of, spoken_text_of
from foldline.core.plan import is_fold_waiting
from foldline.errors import Busy, Conflict, FoldlineError, ModelFailed, StoreFailed
from foldline.models.retries import PASSING
from foldline.session.hooks import Pass
from foldline.session.stored_session import wait_and_hold_session

_DRAFT = "…"
_RANDOM = Random()  # noqa: S311 - pauses need no secrecy
_AGAIN = 2.0  # seconds after which failed work is tried again
_BROKEN = {"cancelled": "(stopped)", "cut": "(it broke off here)", "length": "(cut at its length)"}


class Chat:
    """A session in a Telegram chat."""

    def __init__(  # noqa: PLR0913 - one keyword for each thing that a chat works with
        self,
        place: ChatPlace,
        seat: BotSeat,
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
        """How many updates are being taken in right now."""
        self._wake = asyncio.Event()
        self._wake.set()
        self._closed = False
        self._work: asyncio.Task[Ended] | None = None
        self._stopping = False
        self._delivering = asyncio.Lock()
        self._shown: dict[int, str] = {}
        self._pen: DraftWriter | None = None
        self._folds: list[Pass] = []
        self._reply: int | None = None
        self._waits, self._failed = 0.0, 0
        self._orders = True  # whether commands may be waiting
        self.agent.hooks.append(self._handle_moment)
        if seat.approvals is not None:
            seat.approvals.ask = partial(asking.ask, place)

    @property
    def idle(self) -> bool:
        """Whether nothing happens here, and nothing is to happen."""
        busy = self.users or self._wake.is_set() or self._work is not None or self._orders
        return not busy and self.track.still

    async def hear(
        self, number: int, parts: tuple[Part, ...], *, author: str, message: int
    ) -> None:
        """Add a message to the log; once this returns, it will be answered."""
        said = UserSaid(parts, author=author)
        at = await self.session.add(said, author=author, once=f"tg:{number}")
        self.track.record_place(message, at)
        self._reply = None if self.place.private else message
        self._waits = 0.0
        self._wake.set()

    async def accept_command(self, number: int, update: dict[str, object]) -> None:
        """Store a command or a button, to be carried out in its turn."""
        if await self.inbox.put(number, update):
            self._orders = True
        self._wake.set()

    def wake(self) -> None:
        """Have the worker look for something to do."""
        self._wake.set()

    def retry_answer(self) -> bool:
        """Ask again for an answer that did not come; False if none is missing."""
        self._waits, self._failed = 0.0, 0
        self._wake.set()
        return self.track.pending

    def stop_turn(self) -> bool:
        """Stop the turn under way; False if there is none."""
        if self._work is None or self._work.done():
            return False
        self._stopping = True
        self._work.cancel()
        return True

    def close(self) -> None:
        """Let the worker end after what it is doing."""
        self._closed = True
        self._wake.set()

    async def run_worker(self) -> None:
        """Answer and deliver, for as long as the chat is open."""
        while not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._measure_pause()):
                    await self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            try:
                await self._run_round()
            except Unreachable as fault:
                self._waits = inf  # until a person writes
                self.tell(f"{self.place.name}: nobody is there: {fault}")
            except Exception as fault:  # noqa: BLE001 - reported and tried again: no chat is stuck
                self.tell(f"{self.place.name}: {type(fault).__name__}: {fault}")
                self._waits = monotonic() + _AGAIN

    def _measure_pause(self) -> float | None:
        return None if self._waits in (0.0, inf) else max(self._waits - monotonic(), 0.0)

    async def _run_round(self) -> None:
        """Do all that is to do now: deliver, carry out commands, answer."""
        await self._read_new_events()
        await self.deliver_answers()
        while not self._closed:
            if self._orders:
                self._orders = False  # before the look: a command that comes meanwhile sets it
                if update := await self.inbox.take():
                    self._orders = True
                    async with self.lock_session():
                        await work_off(self, update)
            elif self.track.pending and monotonic() >= self._waits:
                self._waits = 0.0
                await self._run_turn()
            else:
                break
        await self.track.save_progress()

    async def _read_new_events(self) -> None:
        """Read what other processes wrote."""
        async with self.session.live.lock:
            await self.session.live.catch_up()
        await self.track.read_new_events(self.session.live)

    def lock_session(self) -> AbstractAsyncContextManager[object]:
        """Lock the session, after waiting for another process that has it."""
        return wait_and_hold_session(self.session, seconds=self.rules.lease)

    async def _run_turn(self) -> None:
        note: HtmlText | None = None
        async with self.lock_session():
            await self.track.read_new_events(self.session.live)
            if not self.track.pending:
                return  # another process has answered
            note = await self._run_agent()
            await self.track.read_new_events(self.session.live)
        await self.deliver_answers()
        if note is None and self.track.draft and not self.track.pending:
            note = render_plain_text("The answer has no words.")
        if note is not None:
            await self.replace_draft(note)
        await self._send_notices()

    async def _run_agent(self) -> HtmlText | None:
        """Run the agent; return what to say besides its answer."""
        full = self.rules.notices == "full"
        pen = DraftWriter(
            self._show_draft, self.deliver_answers, every=self.line.pace.stream, tools=full
        )
        self._stopping, self._pen = False, pen
        self._work = asyncio.create_task(self.agent.go_on())
        beside = asyncio.create_task(self.line.send_typing(self.place))
        try:
            ended = await self._work
            self._failed = 0
        except asyncio.CancelledError:
            if not self._stopping:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)
                raise
            return await self._record_turn_end("The turn was stopped by the user.", "Stopped.")
        except Exception as fault:  # noqa: BLE001 - the chat goes on, whatever failed
            return self._handle_fault(fault)
        finally:
            self._work, self._pen = None, None
            await pen.stop_writing()
            await asyncio.gather(beside, return_exceptions=True)
        match ended.how:
            case "answered":
                return None
            case "vetoed":
                self._waits = inf
                return render_plain_text(f"⚠ {ended.words}")
            case _:
                return await self._record_turn_end(ended.words, f"⚠ {ended.words}")

    async def _record_turn_end(self, why: str, text: str) -> HtmlText | None:
        """Record that a turn ended without an answer, so that no restart begins it again."""
        await self.track.read_new_events(self.session.live)
        if not self.track.pending:
            return None
        await self.session.add(f"[{why}]", speaker="notice", author=AUTHOR)
        return render_plain_text(text)

    def _handle_fault(self, fault: Exception) -> HtmlText | None:
        """Say that a turn failed, and plan the next try: the message stays to be answered."""
        if isinstance(fault, Busy | Conflict):  # another process has it, and may answer
            self.tell(f"{self.place.name}: {fault}; it is looked at again")
            self._waits = monotonic() + self.rules.lease
            return None
        passing = isinstance(fault, ModelFailed) and fault.fault.kind in PASSING
        if passing or isinstance(fault, StoreFailed):
            # Drawn: chats whose provider failed at once do not ask it again at once.
            pause = min(self.rules.again * 2**self._failed, 3_600.0) * _RANDOM.uniform(0.5, 1.0)
            self._waits, self._failed = monotonic() + pause, self._failed + 1
            way = f"It is asked again in {pause:,.0f} s; /retry asks now."
        else:
            self._waits = inf
            way = "What you said is kept; /retry asks again."
        self.tell(f"{self.place.name}: {type(fault).__name__}: {fault}")
        ours = isinstance(fault, FoldlineError)
        text = str(fault) if ours else f"{type(fault).__name__}, a fault of foldline"
        return render_plain_text(f"⚠ {text}\n{way}")

    async def _send_notices(self) -> None:
        """Report folds that were made, and ask about one that is due."""
        folds, self._folds = self._folds, []
        if self.rules.notices != "off":
            for fold in folds:
                await self.send_notice(*approval_cards.render_fold_notice(fold), quiet=True)
        if is_fold_waiting(self.session.live.view, self.session.live.facts):
            await self.send_notice(*approval_cards.render_fold_question(self.session))

    async def deliver_answers(self) -> None:
        """Write undelivered answers into messages."""
        async with self._delivering:
            await self.track.read_new_events(self.session.live)
            while self.track.undelivered:
                _, said = self.track.undelivered[0]
                last = len(self.track.undelivered) == 1 and not calls_of(said.parts)
                foot = self._render_footer() if last else ""
                await self._write_answer(_render_answer(said), foot=foot)
                await self.track.record_delivery()
                self._shown.clear()

    def _render_footer(self) -> str:
        if self.rules.notices == "off":
            return ""
        now = self.session.report
        return html.render_usage_footer(now.total, now.window)

    async def _write_answer(self, text: str, *, foot: str) -> None:
        room = html.count_utf16_units(foot) + 2 if foot else 0
        parts = html.split_message_text(text, html.MOST - room)
        if foot:
            parts[-1] += f"\n\n{foot}"
        written = 0
        for part in parts:
            written += await self._write_part(written, html.render_model_text(part))
        for extra in self.track.draft[written:]:
            await self.line.delete_message(self.place, extra)

    async def _show_draft(self, text: str) -> None:
        """Show an unfinished answer: its last part grows."""
        async with self._delivering:
            for at, part in enumerate(html.split_message_text(text)):
                await self._edit_part(at, html.render_model_text(part), tries=1)

    async def _write_part(self, at: int, words: HtmlText) -> bool:
        """Write one part of an answer; one that the API does not take by an edit is sent.

        False if it does not take it at all.
        """
        try:
            await self._edit_part(at, words)
        except ApiRefused as fault:
            self.tell(f"{self.place.name}: an answer is sent anew: {fault}")
        else:
            return True
        await self._delete_drafts(at)
        try:
            await self._send_part(at, words)
        except ApiRefused as fault:
            self.tell(f"{self.place.name}: a part of an answer is left out: {fault}")
            text = "⚠ Telegram does not take a part of this answer; it is in the session's log."
            await self.send_notice(render_plain_text(text))
            return False
        return True

    async def _send_part(self, at: int, words: HtmlText) -> None:
        reply = self._reply if at == 0 else None
        sent = await self.line.send_message(self.place, words, reply=reply)
        self._shown[sent] = words.html
        await self.track.record_draft(sent)

    async def _delete_drafts(self, at: int) -> None:
        """Delete the drafts from one part on: parts that follow must be below it."""
        drafts = self.track.draft[at:]
        del self.track.draft[at:]
        for message in drafts:
            await self.line.delete_message(self.place, message)

    async def _edit_part(self, at: int, words: HtmlText, *, tries: int | None = None) -> None:
        """Write one part of an answer into its message, which is sent and stored first."""
        refused = ApiRefused("no message can be edited")
        for _ in range(3):
            if at >= len(self.track.draft):
                await self._send_part(at, render_plain_text(_DRAFT))
            message = self.track.draft[at]
            if self._shown.get(message) == words.html:
                return
            try:
                await self.line.edit_message(self.place, message, words, tries=tries)
            except ApiRefused as fault:
                if not fault.is_gone:
                    raise
                refused = fault
                self.tell(f"{self.place.name}: a message is made anew: {fault}")
                await self._delete_drafts(at)
            else:
                self._shown[message] = words.html
                return
        raise refused

    async def replace_draft(self, words: HtmlText) -> None:
        """Say something in place of an answer, in the message that waits for one."""
        if not self.track.draft:
            await self.send_notice(words)
            return
        first, *more = self.track.draft
        refused = False
        try:
            await self.line.edit_message(self.place, first, words)
        except ApiRefused:
            more, refused = self.track.draft, True
        for extra in more:
            await self.line.delete_message(self.place, extra)
        self._shown.clear()
        await self.track.clear_draft()
        if refused:
            await self.send_notice(words)

    async def send_notice(
        self, words: HtmlText, buttons: Buttons = (), *, quiet: bool = False
    ) -> None:
        """Send a notice outside the conversation; one that the API refuses is left out."""
        try:
            await self.line.send_message(self.place, words, buttons=buttons, quiet=quiet)
        except ApiRefused as fault:
            self.tell(f"{self.place.name}: a notice is not taken by the API: {fault}")

    def _handle_moment(self, moment: Moment) -> None:
        if self._pen is None:
            return
        if isinstance(moment, Passed) and moment.one.kind == "fold":
            self._folds.append(moment.one)
        self._pen.handle_moment(moment)


def _render_answer(said: ModelSaid) -> str:
    text, broken = spoken_text_of(said.parts).strip(), _BROKEN.get(said.stop)
    return f"{text}\n\n{broken}" if broken else text

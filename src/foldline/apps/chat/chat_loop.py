"""A person and an agent, one turn after the other, until the person leaves.

    end = await Talk(seat, face).run()   # PersonLeft(), or SessionChange(name)

Each line is a command, which never reaches the model, or a turn. After a turn the usage is shown,
and a fold is offered where one is due.
"""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from foldline.agent.approval import Answer, Mode
from foldline.agent.events import Answered, Asking, Moment
from foldline.agent.tool import Intent, output_watcher
from foldline.agent.tools.shell import run_shell_command
from foldline.apps.chat import status_bar
from foldline.apps.chat.approval_prompt import ask_approval, ask_trust, explain_fault
from foldline.apps.chat.attachments import (
    LARGEST,
    Attachment,
    attach_bytes,
    find_mentions,
    iterate_files_for,
    join_message,
    read_mention,
)
from foldline.apps.chat.chat_parts import (
    ChatFace,
    ChatSeat,
    RecentSession,
    describe_cut,
    describe_stop,
    render_recent_sessions,
)
from foldline.apps.chat.input_line import MARK
from foldline.apps.chat.live_output import Hidden, TurnOutput
from foldline.apps.chat.safe import clean_text
from foldline.apps.chat.slash_commands import (
    TABLE,
    fold_and_report,
    iterate_completions,
    parse_chat_command,
)
from foldline.apps.cli.output import Style, apply_style, wrap_text
from foldline.core.cold_cache import render_cold_call
from foldline.core.log import Interrupted, ModelSaid, UsageReported, UserSaid, begins_turn
from foldline.core.names import format_count, format_handle
from foldline.core.parts import Call, render_parts, text_of
from foldline.core.plan import is_fold_waiting
from foldline.core.prices import format_dollars
from foldline.core.spine import Range
from foldline.core.tokens import count_tokens
from foldline.draw.picture import Picture, build_picture
from foldline.draw.wording import clean_line, shorten_model_name, truncate_to_width
from foldline.errors import FoldlineError
from foldline.models.port import Json
from foldline.session.cold_call import preview_cold_call
from foldline.session.ledger import SessionLedger
from foldline.session.session import Given
from foldline.session.stored_session import iterate_sessions

_COLLECT = (700, 10, 1_000)  # a look at all objects takes some 25 ms: after a turn, not at a key
_TICK = 0.2  # seconds between redraws during a turn
_NAMES = 500  # sessions offered as completions
_MARGIN = "  "
_SHELL = 3_600.0  # seconds that a person's own command may take
_MOST_LINES = 60  # of its output that are shown
_TITLE = 60  # columns of it in a title
_BRIEF = 3  # lines of the last messages shown at the start
_ANSWERS = {"": "n", "n": "n", "no": "n", "y": "y", "yes": "y"}


class PersonLeft(NamedTuple):
    """The person has left."""


class SessionChange(NamedTuple):
    """The person wants another session; "" is a new one without a name of its own."""

    name: str
    known: bool = False
    """Whether it must exist already."""


End: TypeAlias = PersonLeft | SessionChange


class Talk:
    """The chat of one session."""

    def __init__(
        self, seat: ChatSeat, face: ChatFace, *, recent: Sequence[RecentSession] = ()
    ) -> None:
        self.recent = recent
        """The sessions that the first line may name by number."""
        self.seat, self.face = seat, face
        self.session = seat.agent.session
        self.ledger = SessionLedger(self.session)
        self.hearing = TurnOutput(face, self.session)
        self.redo: int | None = None
        """The undo event that /redo takes back."""
        self.names: list[str] = []
        self.pending: list[Attachment] = []
        """What goes along with the next message."""
        self.model_names: list[str] = []
        """The models of the session's server, once Tab has asked for them."""
        self.planning: Mode | None = None
        """The approval mode to come back to from /plan."""
        self._end: End | None = None
        self._pause = 0.0  # since when the model was not asked, at the last warning of it
        self._picture: Picture | None = None
        self._answer: Json = {}  # the newest, as the provider sent it
        self._cut = -1  # the newest message that was reported as cut
        self._loading: asyncio.Task[None] | None = None  # the names of the server's models

    async def run(self) -> End:
        """Chat until the person leaves, or wants another session."""
        gc.freeze()  # what was imported stays: looking through it again would hold keys up
        gc.set_threshold(*_COLLECT)
        face, agent = self.face, self.seat.agent
        self.hearing.changed = self.reset_picture
        agent.hooks.append(self._handle_moment)
        face.bar = self._draw_bar
        if self.seat.approvals is not None:
            self.seat.approvals.ask = self._ask_approval
        face.words, face.expand = self._complete_input, self.hearing.open_hidden
        beside = [
            asyncio.create_task(work)
            for work in (self._run_refresh_loop(), self._load_ledger_and_names())
        ]
        try:
            await self._show_greeting()
            await self._run_stoppable(self._ask_about_instructions())
            while self._end is None:
                said = await face.said()
                if said is None:
                    return PersonLeft()
                recent, self.recent = self.recent, ()
                if said.isdecimal() and 0 < int(said) <= len(recent):
                    return SessionChange(recent[int(said) - 1].name, known=True)
                await self._handle_input(said)
            return self._end
        finally:
            agent.hooks.remove(self._handle_moment)
            face.words, face.stop, face.expand = None, None, None
            beside += [] if self._loading is None else [self._loading]
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def _complete_input(self, text: str) -> Iterable[tuple[str, str]]:
        """Complete a command, or the name of a file at the end of a message."""
        if text.startswith("/") and not text.startswith("//"):
            if text.startswith("/m"):  # by the time that /model is written they may be there
                self._begin_loading_models()
            return iterate_completions(TABLE, self, text)
        drawn = self.update_picture()
        return iterate_files_for(text, Path.cwd(), drawn.window - drawn.total)

    def show_lines(self, *lines: str) -> None:
        """Show lines above the input line, for good."""
        self.face.above("".join(f"{line}\n" for line in lines))

    def show_text(self, text: str) -> None:
        """Show a text above the input line, wrapped."""
        self.show_lines(*wrap_text(text))

    def show_note(self, text: str, style: Style = "dim") -> None:
        """Show a remark that is no part of the conversation, wrapped."""
        self.show_lines(
            *(apply_style(line, style) for one in text.split("\n") for line in wrap_text(one))
        )

    def update_picture(self) -> Picture:
        """Return the picture of what the model sees now."""
        if self._picture is None:
            self._picture = build_picture(self.session.live.view, self.session.live.facts)
        return self._picture

    def reset_picture(self) -> None:
        """Forget the picture after the window has changed, and redraw."""
        self._picture = None
        self.face.refresh()

    def switch_session(self, name: str, *, known: bool = False) -> None:
        """End this talk, and go on with another session."""
        self._end = SessionChange(name, known)

    async def ask_yes_no(self, question: str) -> bool:
        """Ask a question; return whether the person says yes."""
        return await self._ask_yes_no_or_stop(question) is True

    async def _ask_yes_no_or_stop(self, question: str) -> bool | None:
        """Ask until the answer is yes or no; None if the person stops the question.

        Whatever else they write is a message that they were about to send: it is kept for them.
        """
        while (said := await self.face.ask(f"{question} ")) is not None:
            word = said.strip().lower()
            if word in _ANSWERS:
                self.show_lines(f"{question} {_ANSWERS[word]}")
                return _ANSWERS[word] == "y"
            self.face.put_back(said)
            self.show_note("  answer y or n; what you wrote is kept for afterwards")
        self.show_lines(f"{question} n")
        return None

    def show_usage(self, response: int | None = None) -> None:
        """Show the usage line that follows each answer."""
        drawn = self.update_picture()
        line, level = status_bar.render_usage_line(drawn.total, drawn.window, response)
        self.show_lines(apply_style(line, level))

    async def go_on(self) -> None:
        """Have the model answer the message that waits."""
        await self._run_turn(None)

    async def _handle_input(self, said: str) -> None:
        """Run a command or a turn; whatever goes wrong, the talk goes on."""
        self.show_lines("", *(apply_style(line, "strong") for line in _render_input(said)), "")
        words = said[1:] if said.startswith("//") else said
        command = said.startswith("/") and not said.startswith("//")
        if command:
            work = self._run_command(said)
        elif said.startswith("!") and said[1:].strip():
            command, work = True, self._run_shell(said[1:].strip())
        else:
            work = self._run_turn(words)
        try:
            await self._run_stoppable(work)
        except asyncio.CancelledError:
            self.hearing.stop_activity()
            if (us := asyncio.current_task()) is not None and us.cancelling():
                raise  # it is the talk itself that ends
            self.show_note(
                "stopped" if command else "stopped; what was said so far is kept", "yellow"
            )
        except Exception as fault:  # noqa: BLE001 - the talk goes on
            self.hearing.stop_activity()
            self.show_note(explain_fault(fault), "red")
        self.reset_picture()
        with suppress(FoldlineError):
            await self.ledger.catch_up()

    async def _run_stoppable(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that Ctrl-C cancels; cancelling us cancels it, too."""
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

    async def _run_command(self, said: str) -> None:
        command, rest = parse_chat_command(TABLE, said)
        await command.work(self, rest)

    async def _ask_approval(self, call: Call, intent: Intent) -> Answer:
        """Ask the person about a call, and say meanwhile that they are waited for."""
        self.hearing.start_question(call, intent.what)
        self.face.stops_at_question = True
        try:
            return await ask_approval(self.face, call, intent)
        finally:
            self.face.stops_at_question = False
            self.hearing.end_question()

    async def _run_shell(self, command: str) -> None:
        """Run a person's own command, show what it prints, and offer it to the model."""
        self.hearing.start_activity("running")
        title = truncate_to_width(clean_line(command), _TITLE)
        output_watcher.set(partial(self.hearing.show_output, of=title))
        try:
            result = await run_shell_command(command, Path.cwd(), _SHELL, os.environ)
        finally:
            self.hearing.stop_activity()
        text = text_of(result.parts)
        lines = clean_text(text).expandtabs(4).rstrip("\n").split("\n")
        if len(lines) > _MOST_LINES:
            half = _MOST_LINES // 2
            way = self.hearing.hide_text(Hidden(f"output of {title}", text))
            rest = f"… {len(lines) - 2 * half:,} more lines · {way}"
            lines = [*lines[:half], apply_style(rest, "yellow"), *lines[-half:]]
        self.show_lines(*lines)
        body = text.encode(errors="replace")
        found = attach_bytes(f"what `{command}` printed", body[: LARGEST // 2])
        asked = f"Add it to your next message ({self._describe_size(found)})? [y/N]"
        if await self.ask_yes_no(asked):
            self.pending.append(found)

    async def _gather_message(self, words: str) -> Given | None:
        """Add what goes along with a message; None if the person would rather not send it."""
        root = Path.cwd()
        attached: list[Attachment] = []
        for one in find_mentions(words, root):
            asked = f"@{clean_line(one.name)} is {clean_line(str(one.path))}. Send it? [y/N]"
            if one.asks and not await self.ask_yes_no(asked):
                self.show_note("nothing was sent", "yellow")
                return None
            found = await asyncio.to_thread(read_mention, one)
            self.show_note(f"@{one.name}: {self._describe_size(found)}")
            attached.append(found)
        attached, self.pending = [*self.pending, *attached], []
        return UserSaid(join_message(words, attached)) if attached else words

    def _describe_size(self, found: Attachment) -> str:
        """Say how large an attachment is, compared with what is left."""
        drawn = self.update_picture()
        tokens, window = found.tokens, drawn.window
        note = f"; {found.note}" if found.note else ""
        cut = ", will be cut to fit" if tokens > window - drawn.total else ""
        return f"{tokens:,} tokens, {100 * tokens / window:.1f}% of the window{cut}{note}"

    async def _run_turn(self, words: str | None) -> None:
        """Send a message; without one, have the model answer the message that waits."""
        given = None if words is None else await self._gather_message(words)
        if words is not None and given is None:
            return
        if not await self._warn_of_pause(words or ""):
            return
        files = self.seat.checkpoints
        points = len(files.points) if files is not None else 0
        start, agent = self.session.live.view.head, self.seat.agent
        self.hearing.start_activity()
        ended = await (agent.go_on() if given is None else agent.turn(given))
        self.hearing.stop_activity()
        if ended.how != "answered":
            self.show_note(ended.words, "yellow")
        elif stop := self._describe_stop():
            self.show_note(stop, "yellow")
        elif not ended.words.strip() and not self.hearing.heard_words:
            self.show_note("the answer has no words")
        self.reset_picture()
        await self.ledger.catch_up()  # what it has cost is right when the line is there
        self.show_usage(await self._count_response_tokens(start, ended.words))
        if files is not None and len(files.points) > points:
            count = format_count(len(files.points[-1].changes), "path")
            self.show_note(f"{count} changed on disk · /undo files takes it back")
        gc.collect()
        await self._ask_to_fold()
        await self._ask_about_instructions()

    def _describe_stop(self) -> str:
        newest = next(self.session.live.view.iterate_newest(ModelSaid), None)
        return describe_stop(newest[1].stop if newest is not None else None, self._answer)

    async def _warn_of_pause(self, words: str) -> bool:
        """Say what a message costs after the cache has expired, and offer to fold before it.

        Once per pause: who has said no is not asked again. Returns whether to send the message: not
        if the question was left without an answer.
        """
        live = self.session.live
        if live.touched == self._pause or (found := await preview_cold_call(live, words)) is None:
            return True
        self._pause = live.touched
        if found.is_folded or found.folded is None:
            self.show_note(f"⚠ {render_cold_call(found)}", "yellow")
            return True
        each = (found.cold, found.warm, found.folded)
        cold, warm, folded = (format_dollars(one, is_rough=True) for one in each)
        more = "" if live.narrator is None else " and the summarizer"
        said = f"⚠ Cache expired: about {cold} instead of {warm}. Compact first ({folded}{more})?"
        answer = await self._ask_yes_no_or_stop(f"{said} [y/N]")
        if answer is None:
            self.show_note("stopped; nothing was sent", "yellow")
        elif answer:
            await fold_and_report(self)
        return answer is not None

    async def _ask_about_instructions(self) -> None:
        """Ask about this folder's instructions that are not trusted yet."""
        known = self.seat.instructions
        if known is not None and (files := known.list_untrusted_files()):
            answer = await ask_trust(self.face, files)
            await known.apply_answer(answer)
            self.show_note("not followed" if answer == "no" else "followed from the next turn on")

    async def _count_response_tokens(self, start: int, words: str) -> int:
        """Sum the output tokens that were reported since `start`; estimate if none were."""
        events = await self.session.live.read_events(Range(start + 1, self.session.live.view.head))
        outputs = (one.output for _, one in events if isinstance(one, UsageReported))
        return sum(out for out in outputs if out) or count_tokens(words)

    async def _ask_to_fold(self) -> None:
        """Offer a fold after every answer for as long as one is due."""
        live = self.session.live
        if not is_fold_waiting(live.view, live.facts):
            return
        drawn = self.update_picture()
        share, sizes = 100 * drawn.total / drawn.window, f"{drawn.total:,}/{drawn.window:,}"
        asked = f"⚠ Context usage at {share:.0f}% ({sizes} tokens). Compact conversation? [y/N]"
        if await self.ask_yes_no(asked):
            await fold_and_report(self)

    def _handle_moment(self, moment: Moment) -> None:
        self.hearing.handle_moment(moment)
        match moment:
            case Asking():
                self._tell_of_cut_message()
            case Answered(answer):
                self._answer = answer
            case _:
                pass

    def _tell_of_cut_message(self) -> None:
        """Say once of a person's newest message that the model does not see all of it."""
        for seq, event in self.session.live.view.iterate_newest(UserSaid):
            if event.speaker == "human":
                if event.clip is not None and seq > self._cut:
                    self._cut = seq
                    recall = event.clip.recall
                    note = describe_cut("your message", format_handle(seq), recall=recall)
                    self.show_note(note, "yellow")
                return

    def _begin_loading_models(self) -> None:
        if self._loading is None and self.seat.list_models is not None:
            self._loading = asyncio.create_task(self._load_model_names(self.seat.list_models))

    async def _load_model_names(self, ask: Callable[[], Awaitable[Sequence[str]]]) -> None:
        with suppress(Exception):  # then the catalogue is all that Tab offers
            self.model_names += await ask()
            self.face.renew_completions()

    def _draw_bar(self, columns: int) -> list[tuple[str, str]]:
        name = self.session.live.name.session
        name = f"plan · {name}" if self.planning is not None else name
        dollars = self.ledger.sum_charges().known_dollars
        stand = status_bar.StatusFigures(name, self.update_picture(), dollars, self.hearing.more)
        return status_bar.draw_status_bar(stand, columns)

    async def _run_refresh_loop(self) -> None:
        """Redraw regularly during a turn: its clock runs."""
        while True:
            await asyncio.sleep(_TICK)
            if self.face.stop is not None:
                with suppress(FoldlineError):
                    await self.ledger.catch_up()
                self.face.refresh()

    async def _load_ledger_and_names(self) -> None:
        """Load in the background what takes a while: the ledger, and the names of sessions."""
        with suppress(FoldlineError):
            await self.ledger.catch_up()
            self.face.refresh()
            live = self.session.live
            async for one in iterate_sessions(live.store, live.name.tenant):
                self.names.append(one.session)
                if len(self.names) >= _NAMES:
                    break

    async def _show_greeting(self) -> None:
        """Show the session, its model, and what was said last."""
        live, name = self.session.live, clean_line(self.session.live.name.session)
        for line in self.seat.notes:
            self.show_note(line)
        turns = [seq for seq, event in live.view.held.items() if begins_turn(event)]
        drawn = self.update_picture()
        model = shorten_model_name(drawn.model)
        if not turns and not live.view.items:
            self.show_note(f"{name} · {model} · /help lists commands, Ctrl-D leaves")
            if self.recent:
                self.show_lines(*render_recent_sessions(self.recent))
                self.show_note("a number goes on with one of these; all else begins a new session")
            return
        self.show_note(f"{name} goes on · {model} · /help lists commands, Ctrl-D leaves")
        for role in ("user", "model"):
            found = [one for one in live.view.items if one.role == role and render_parts(one.parts)]
            if found and (role == "user" or found[-1].seq > max(turns, default=-1)):
                self._show_excerpt(role, render_parts(found[-1].parts))
        if lost := self._describe_interrupted_calls():
            self.show_note(f"{lost}: interrupted, outcome unknown", "yellow")
        self.show_usage(
            await self._count_response_tokens(max(turns, default=live.view.head), "") or None
        )

    def _show_excerpt(self, role: str, words: str) -> None:
        lines = [clean_line(line) for line in words.strip().split("\n") if line.strip()]
        room = self.face.columns - 3
        shown = [truncate_to_width(line, room) for line in lines[:_BRIEF]]
        more = [f"… {len(lines) - _BRIEF} more lines"] if len(lines) > _BRIEF else []
        mark = MARK if role == "user" else _MARGIN
        said = [f"{_MARGIN if at else mark}{line}" for at, line in enumerate([*shown, *more])]
        self.show_lines(*(apply_style(line, "dim") for line in said))

    def _describe_interrupted_calls(self) -> str:
        """Count the calls of the newest turn whose outcome is unknown."""
        view = self.session.live.view
        last = max((seq for seq, event in view.held.items() if begins_turn(event)), default=-1)
        closed = [e.call_id for seq, e in view.held.items()
                  if seq > last and isinstance(e, Interrupted)]  # fmt: skip
        names = [*view.open, *closed]
        if not names:
            return ""
        return f"{len(names)} call{'' if len(names) == 1 else 's'} of a tool"


def _render_input(said: str) -> list[str]:
    lines = clean_text(said).expandtabs(4).split("\n")
    return [f"{_MARGIN if at else MARK}{line}" for at, line in enumerate(lines)]

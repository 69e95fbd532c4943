"""One message, its answer, and out: `foldline chat -p TEXT`, for pipes and scripts.

    text         stdout has the answer and nothing else; tools and remarks are on stderr
    json         one record when it is over (`chat_records.RunResult`)
    stream-json  a record for each thing that happens, the same one last

A message that comes before a tool call is no answer: without a terminal it goes to stderr. Whoever
closes stdout ends the turn, as Ctrl-C does; what was said until then is kept.

A message that nobody answered is taken back: the log keeps it, and no later request shows it, so
who repeats the command says it once. A session that was begun for it is erased.
"""

import asyncio
import json
import os
import select
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeAlias

from foldline.agent.events import Answered, Called, Calling, Moment, Passed, Speaking
from foldline.apps.chat import status_bar
from foldline.apps.chat.attachments import LARGEST, Attachment, attach_bytes, join_message
from foldline.apps.chat.chat_parts import (
    ChatSeat,
    describe_cut,
    describe_stop,
    read_answer_after,
)
from foldline.apps.chat.safe import Safe, clean_text
from foldline.apps.cli.build_agent import Wish, erase_unused_sessions, open_agent
from foldline.apps.cli.chat_records import (
    CallBegun,
    CallEnded,
    FoldMade,
    MessageEnded,
    Outcome,
    Record,
    RunBegun,
    RunError,
    RunNote,
    RunResult,
    RunUsage,
    SentAlong,
    WindowUse,
    WordsHeard,
    encode_record,
)
from foldline.apps.cli.exit_codes import (
    BUG,
    DONE,
    LIMITED,
    REFUSED,
    STOPPED,
    TOO_LARGE,
    UNANSWERED,
    TooMuch,
    explain_error,
)
from foldline.apps.cli.output import apply_style, print_remark
from foldline.core.cold_cache import render_cold_call
from foldline.core.edits.undo import rewind_view
from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid
from foldline.core.names import format_handle
from foldline.core.parts import Call, text_of
from foldline.core.plan import offers_recall
from foldline.core.spine import Range
from foldline.core.tokens import count_parts
from foldline.draw.wording import clean_line, truncate_to_width
from foldline.errors import BadInput, FoldlineError, ModelFailed
from foldline.models.port import Json
from foldline.session.cold_call import preview_cold_call
from foldline.session.ledger import SessionLedger
from foldline.session.session import AsyncSession
from foldline.session.usage_records import UsageSums

Form: TypeAlias = Literal["text", "json", "stream-json"]
STANDARD_INPUT = "standard input"
_WAIT = 3.0  # seconds until a person reads that the pipe is waited for
_PIECE = 1 << 20
_SHOWN = 2_000  # characters of a result in a record
_TOLD = 60  # columns of a call on stderr
_UNAPPROVED = "not run: nobody is here to approve it"
_NO_WORDS = "the answer has no words: ask again, or another model"
_CODES: dict[Outcome, int] = {
    "answered": DONE,
    "unanswered": UNANSWERED,
    "length": LIMITED,
    "rounds": LIMITED,
    "spent": LIMITED,
    "refused": REFUSED,
    "vetoed": REFUSED,
}
_OUTCOMES: dict[int, Outcome] = {
    TOO_LARGE: "overflow",
    UNANSWERED: "unanswered",
    LIMITED: "spent",
    REFUSED: "vetoed",
    STOPPED: "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneMessage:
    """What the command line says of one message."""

    words: str | None
    form: Form = "text"
    files: Sequence[Path] = ()

    def send_message(self, wish: Wish) -> int:
        """Send it; return the exit code."""
        printer = AnswerPrinter(self.form)
        try:
            words, attached = self._gather()
            return asyncio.run(_send(wish, words, attached, printer))
        except BaseException as fault:
            printer.print_failure(fault)
            if printer.gone:
                return DONE
            if printer.signal:
                print_remark("ended by a signal; what was said so far is kept")
                return 128 + printer.signal
            raise

    def _gather(self) -> tuple[str, list[Attachment]]:
        """Read what goes along, before anything is opened or asked."""
        attached = [_attach_file(path) for path in self.files]
        words = self.words
        if words is None:
            if (body := read_standard_input()) is not None:
                # A plain text is the message itself; anything else is attached, with a note.
                found = attach_bytes(STANDARD_INPUT, body)
                plain = not found.note and len(found.parts) == 1
                words = body.decode() if plain else ""
                attached += [] if plain else [found]
        elif body := read_standard_input():
            attached.append(attach_bytes(STANDARD_INPUT, body))
        if not (words or "").strip() and not attached:
            raise BadInput("nothing was said: write -p TEXT, or give a text on the standard input")
        return words or "", attached


def read_standard_input() -> bytes | None:
    """Read a pipe or a file on stdin to its end; None if there is neither.

    Raises `TooMuch` as soon as there is more than a message may carry.
    """
    try:
        source = sys.stdin.fileno()
        mode = os.fstat(source).st_mode
    except (AttributeError, OSError, ValueError):  # it is closed
        return None
    if stat.S_ISCHR(mode) or stat.S_ISDIR(mode):  # a terminal, or /dev/null
        return None
    body, noted = bytearray(), False
    while True:
        if not noted and not select.select([source], [], [], _WAIT)[0]:
            noted = True
            print_remark("waiting for the standard input to end; `</dev/null` goes without it")
        piece = os.read(source, _PIECE)
        if not piece:
            return bytes(body)
        body += piece
        if len(body) > LARGEST:
            raise TooMuch(f"the {STANDARD_INPUT}", LARGEST)


def _attach_file(path: Path) -> Attachment:
    path = path.expanduser()
    if path.is_dir():
        raise BadInput(f"{path} is a folder; --file takes a file")
    with path.open("rb") as file:
        body = file.read(LARGEST + 1)
    return attach_bytes(str(path), body)


async def _send(
    wish: Wish, words: str, attached: Sequence[Attachment], printer: "AnswerPrinter"
) -> int:
    """Send one message, and print what happens."""
    with suppress(ValueError, RuntimeError):  # not in the main thread, or not on this system
        _end_on_signals(printer)
    wish = await wish.resolve_trust()
    name = await wish.choose_session_name()
    async with erase_unanswered(wish, name), open_agent(wish, name, sure=True) as seat:
        try:
            await printer.begin_run(seat, attached)
            message = UserSaid(join_message(words, attached))
            if sys.stderr.isatty() and (
                cold := await preview_cold_call(seat.agent.session.live, text_of(message.parts))
            ):
                printer.print_note(render_cold_call(cold, f"`foldline fold {name}` first"))
            seat.agent.hooks.append(printer.handle_moment)
            async with withdraw_unanswered(seat):
                ended = await seat.agent.turn(message)
            outcome: Outcome = ended.how if ended.how != "calls" else "answered"
            if outcome == "answered":
                outcome = printer.read_stop()
            else:
                printer.print_note(ended.words)
            return await printer.finish_run(outcome)
        except BaseException:
            with suppress(Exception):
                await printer.measure_usage()
            raise


def _end_on_signals(printer: "AnswerPrinter") -> None:
    """End the turn on SIGTERM and SIGHUP as on Ctrl-C: in order, and with nothing lost."""
    loop, us = asyncio.get_running_loop(), asyncio.current_task()

    def end_turn(number: int) -> None:
        printer.signal = number
        if us is not None:
            us.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end_turn, number)
    printer.cancel = us.cancel if us is not None else None


@dataclass(slots=True)
class AnswerPrinter:
    """Prints a turn as it happens, in one of the three forms."""

    form: Form
    gone: bool = False
    """Whether nobody reads stdout any more."""
    signal: int = 0
    """The signal that ended it."""
    cancel: Callable[[], object] | None = None
    _begun: float = field(default_factory=perf_counter)
    _seat: ChatSeat | None = None
    _ledger: SessionLedger | None = None
    _start: int = 0
    _last: int = -1
    """The newest place of the log when a message ended last."""
    _before: UsageSums = field(default_factory=UsageSums)
    _usage: RunUsage | None = None
    _window: WindowUse | None = None
    _sent: list[SentAlong] = field(default_factory=list[SentAlong])
    _attached: Sequence[Attachment] = ()
    _cut: str = ""
    """The handle of the message, if its own words were cut."""
    _answer: Json = field(default_factory=dict[str, Any])
    _heard: list[str] = field(default_factory=list[str])
    _flow: Safe = field(default_factory=Safe)
    _printed: str = ""
    """The end of what stands on stdout."""
    _calls: list[CallEnded] = field(default_factory=list[CallEnded])
    _notes: list[str] = field(default_factory=list[str])
    _unapproved: int = 0
    _over: bool = False

    async def begin_run(self, seat: ChatSeat, attached: Sequence[Attachment]) -> None:
        """Begin with an open session."""
        self._seat, self._attached = seat, attached
        session = seat.agent.session
        self._start = self._last = session.live.view.head
        self._ledger = SessionLedger(session)
        self._before = await self._ledger.catch_up()
        self._print_record(
            RunBegun(
                session=session.live.name.session,
                model=seat.agent.model.name,
                window=session.live.facts.limits.window,
            )
        )
        for note in seat.notes:
            self.print_note(note)
        known = seat.instructions
        if known is not None and (files := known.list_untrusted_files()):
            names = ", ".join(clean_line(str(one.path)) for one in files)
            self.print_note(f"not followed: {names}; `foldline chat` in this folder asks about it")
        for one in attached:
            if one.note:
                self.print_note(f"{one.name}: {one.note}")

    def handle_moment(self, moment: Moment) -> None:
        """Print one moment of the turn: a hook of the agent."""
        match moment:
            case Speaking(words):
                self._print_words(words)
            case Answered(answer, calls):
                self._answer = answer
                self._end_message(calls)
            case Calling(call):
                given: Any = call.arguments
                with suppress(ValueError, RecursionError):
                    given = json.loads(call.arguments or "{}")
                self._print_record(CallBegun(id=call.id, tool=call.name, arguments=given))
            case Called():
                self._print_result(moment)
            case Passed(one) if one.kind == "fold" and one.outcome == "applied":
                self._print_record(FoldMade(before=one.before, after=one.after, why=one.trigger))
                self._print_aside(f"folded: {one.before:,} → {one.after:,} tokens")
            case _:
                pass

    def print_note(self, text: str) -> None:
        """Print a remark: on stderr, or as a record."""
        self._notes.append(text)
        self._print_record(RunNote(text=text))
        if self.form == "text":
            self._end_line()
            with suppress(OSError):
                print_remark(text)

    def read_stop(self) -> Outcome:
        """Return how the last answer ended; print a remark if it is missing or not whole."""
        if self._seat is None:
            return "answered"
        newest = next(self._seat.agent.session.live.view.iterate_newest(ModelSaid), None)
        stop = newest[1].stop if newest is not None else None
        if note := describe_stop(stop, self._answer):
            self.print_note(note)
        if stop == "length" or stop == "refused":  # noqa: PLR1714 - the type is narrowed so
            return stop
        if not "".join(self._heard).strip():
            self.print_note(_NO_WORDS)
            return "unanswered"
        return "answered"

    async def measure_usage(self) -> None:
        """Count what the turn used, and how full the window is."""
        if self._seat is None or self._ledger is None:
            return
        session = self._seat.agent.session
        report = session.report
        self._window = WindowUse(used=report.total, total=report.window)
        used = await self._ledger.catch_up()
        has_price = used.known_dollars is not None
        used.merge(self._before, -1)
        self._usage = RunUsage(
            calls=used.calls,
            input=used.input,
            cached=used.cache_read,
            output=used.output,
            dollars=round(used.dollars, 6) if has_price else None,
        )
        for seq, event in await session.live.read_events(
            Range(self._start + 1, session.live.view.head)
        ):
            if isinstance(event, UserSaid) and event.speaker == "human":
                self._cut = format_handle(seq) if event.clip and not self._attached else ""
                self._sent = [
                    SentAlong(
                        name=one.name,
                        bytes=one.size,
                        whole=event.clip is None,
                        handle=format_handle(seq),
                        note=one.note,
                    )
                    for one in self._attached
                ]
                break

    async def finish_run(self, outcome: Outcome) -> int:
        """End in order; return the exit code."""
        await self.measure_usage()
        live = self._seat.agent.session.live if self._seat else None
        recall = live is not None and offers_recall(live.view, live.facts)
        cut = [(one.name, one.handle) for one in self._sent if not one.whole]
        for what, handle in [*cut, *([("the message", self._cut)] if self._cut else [])]:
            self.print_note(describe_cut(what, handle, recall=recall))
        if self._unapproved:
            self.print_note(
                f"{self._unapproved} of its calls were not run: nobody is here to approve them; "
                "--approve edits or --approve all does so beforehand"
            )
        code = _CODES[outcome]
        silent = RunError(kind="ModelFailed", message=_NO_WORDS)
        self._print_result_record(outcome, code, silent if outcome == "unanswered" else None)
        if self.form == "text":
            self._end_line()
            if self._seat is not None and self._window is not None and sys.stderr.isatty():
                line = status_bar.render_usage_line(self._window.used, self._window.total)[0]
                print_remark(f"{self._seat.agent.session.live.name.session}: {line}")
        return code

    def print_failure(self, fault: BaseException) -> None:
        """Print the result of a run that failed or was ended; the caller prints the error."""
        if self.form == "text":
            if self._heard and not self._streams:
                self._write(self._flow.feed("".join(self._heard)))
            self._end_line()
        if self._over:
            return
        if isinstance(fault, asyncio.CancelledError | KeyboardInterrupt):
            code = 128 + self.signal if self.signal else STOPPED
            self._print_result_record("interrupted", code)
        elif isinstance(fault, Exception):
            code, line = explain_error(fault)
            outcome: Outcome = "failed" if code == BUG else _OUTCOMES.get(code, "failed")
            error = RunError(kind=type(fault).__name__, message=line)
            self._print_result_record(outcome, code, error)

    @property
    def _streams(self) -> bool:
        """Whether words are printed as they come: in a terminal, or if they must be the answer."""
        return sys.stdout.isatty() or self._seat is None or not self._seat.agent.tools

    def _print_words(self, words: str) -> None:
        first = not self._heard
        self._heard.append(words)
        self._print_record(WordsHeard(text=words))
        if self.form == "text" and self._streams:
            if first:
                self._begin_message()
            self._write(self._flow.feed(words))

    def _begin_message(self) -> None:
        """Keep a message apart from the one before it."""
        self._flow = Safe()
        if self._printed:
            self._write("\n" if self._printed.endswith("\n") else "\n\n")

    def _end_message(self, calls: Sequence[Call]) -> None:
        logged = self._read_logged_words()
        if logged and not self._heard:
            self._print_words(logged)
        text = "".join(self._heard)
        self._print_record(MessageEnded(text=text, calls=[call.id for call in calls]))
        if calls:
            self._heard.clear()
        if self.form != "text" or self._streams:
            return
        shown = clean_text(text)
        if not calls:
            self._begin_message()
            self._write(shown)
            self._heard = [text]
        elif shown.strip():
            self._print_aside(shown.strip())

    def _read_logged_words(self) -> str:
        """Return the text of the message that has ended: not every server streams it as text."""
        if self._seat is None:
            return ""
        view = self._seat.agent.session.live.view
        words, self._last = read_answer_after(view, self._last), view.head
        return words

    def _print_result(self, moment: Called) -> None:
        call, result = moment.call, moment.result
        text = text_of(result.parts)
        ended = CallEnded(
            id=call.id,
            tool=call.name,
            ok=result.ok,
            seconds=round(moment.seconds, 3),
            tokens=count_parts(result.parts),
            text=text[:_SHOWN],
            handle=self._find_handle(call),
        )
        self._calls.append(ended)
        self._unapproved += text.startswith(_UNAPPROVED)
        self._print_record(ended)
        given = truncate_to_width(clean_line(call.arguments), _TOLD)
        name = f"{clean_line(call.name)}({given})"
        tail = f"{moment.seconds:.1f}s, {ended.tokens:,} tokens"
        why = "" if result.ok else f": {truncate_to_width(clean_line(text), 200)}"
        self._print_aside(f"{'●' if result.ok else '✗'} {name} {tail}{why}")

    def _find_handle(self, call: Call) -> str:
        if self._seat is None:
            return ""
        results = self._seat.agent.session.live.view.iterate_newest(ToolReturned)
        return next((format_handle(seq) for seq, one in results if one.call_id == call.id), "")

    def _print_aside(self, text: str) -> None:
        """Print what is no answer on stderr."""
        if self.form == "text":
            self._end_line()
            with suppress(OSError):
                shown = apply_style(text, "dim") if sys.stderr.isatty() else text
                sys.stderr.write(f"{shown}\n")
                sys.stderr.flush()

    def _end_line(self) -> None:
        """End the line on stdout, so that stderr begins on one of its own in a terminal."""
        if self._printed and not self._printed.endswith("\n"):
            self._write("\n")

    def _print_result_record(
        self, outcome: Outcome, code: int, error: RunError | None = None
    ) -> None:
        agent = None if self._seat is None else self._seat.agent
        self._over = True
        if self.form == "text":
            return
        result = RunResult(
            outcome=outcome,
            code=code,
            answer="".join(self._heard),
            session=agent.session.live.name.session if agent else "",
            model=agent.model.name if agent else "",
            seconds=round(perf_counter() - self._begun, 3),
            calls=self._calls,
            taken=self._sent,
            usage=self._usage,
            window=self._window,
            remarks=self._notes,
            error=error,
        )
        self._write(encode_record(result).decode())

    def _print_record(self, record: Record) -> None:
        if self.form == "stream-json":
            self._write(encode_record(record).decode())

    def _write(self, text: str) -> None:
        """Write to stdout; if nobody reads it, end the turn."""
        if not text or self.gone:
            return
        self._printed = text[-2:]
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            self.gone = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if self.cancel is not None:
                self.cancel()


_WAYS = {
    "rate": "the provider asks to slow down: wait, then repeat it",
    "overloaded": "the server failed, or has too much to do: wait a moment, then repeat it",
    "unreachable": "then repeat it",
    "tokens": "`foldline fold {session}` makes room, --model NAME takes another model",
}
_OTHER = "--model NAME takes another model; `foldline models` lists names"


@asynccontextmanager
async def erase_unanswered(wish: Wish, name: str) -> AsyncGenerator[None]:
    """Erase a session that was begun for a message, if nobody answered it."""
    try:
        yield
    except FoldlineError:
        if wish.is_nameless:
            await erase_unused_sessions(wish.desk, [name])
        raise


@asynccontextmanager
async def withdraw_unanswered(seat: ChatSeat) -> AsyncGenerator[None]:
    """Take a message that is added meanwhile out of the model's sight if nobody answers it."""
    session = seat.agent.session
    start = session.live.view.head
    try:
        yield
    except FoldlineError as fault:
        with suppress(FoldlineError):  # the error that ended the turn matters more
            await _withdraw_message(session, start)
        if isinstance(fault, ModelFailed):
            fault.add_note(_choose_way(fault, seat))
        raise
    await _withdraw_message(session, start)


async def _withdraw_message(session: AsyncSession, start: int) -> None:
    """Take the first message since `start` out of sight, if no model said anything since."""
    live = session.live

    async def decide_rewind() -> Sequence[Event]:
        since = [one for one in live.view.iterate_newest(ModelSaid, UserSaid) if one[0] > start]
        said = [at for at, one in since if isinstance(one, UserSaid) and one.speaker == "human"]
        if not said or any(isinstance(one, ModelSaid) for _, one in since):
            return []
        return [rewind_view(live.view, dropped=[Range(said[-1], said[-1])])]

    async with live.lock:
        await live.append_decision(decide_rewind)


def _choose_way(fault: ModelFailed, seat: ChatSeat) -> str:
    kind = fault.fault.kind
    if kind == "auth" and seat.explain_key is not None:
        return seat.explain_key()
    return _WAYS.get(kind, _OTHER).format(session=seat.agent.session.live.name.session)

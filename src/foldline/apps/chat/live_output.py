"""Show a turn as it happens: words, reasoning, tools and what they print, folds.

What is long is folded away, and stays within reach: `Hidden` is the whole of it, and Ctrl-O or
/expand shows it.
"""

import json
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, NamedTuple, cast

from foldline.agent.events import (
    Answered,
    Asking,
    Called,
    Calling,
    Folding,
    Moment,
    Passed,
    Printing,
    Retrying,
    Speaking,
    Thinking,
)
from foldline.agent.tool import Intent
from foldline.apps.chat.approval_prompt import render_detail, wrap_at_dots
from foldline.apps.chat.chat_parts import ChatFace, read_answer_after
from foldline.apps.chat.markdown import MarkdownStream
from foldline.apps.chat.safe import clean_text
from foldline.apps.cli.output import apply_style, has_colours
from foldline.core.log import Folded, ModelSaid, ToolReturned
from foldline.core.names import format_count
from foldline.core.parts import Call, Thought, text_of
from foldline.core.tokens import count_parts, count_tokens
from foldline.draw.wording import clean_line, measure_width, truncate_to_width
from foldline.session.hooks import Pass
from foldline.session.session import AsyncSession

_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPUN = 0.1  # seconds per spinner frame
_LEFT = 8  # rows kept for the input line, the bar and some earlier text
_SHORT = 60
_TAIL = 4  # lines of a running tool's output
_TAIL_SIZE = 4_000  # characters kept of it meanwhile
_FIRST, _LAST = 3, 6  # lines of a finished one
_DIFF = 16  # lines of a diff without a question
_KEPT = 50  # things that can be opened
_LARGEST = 400_000  # characters of one
_MOST_LINES = 2_000  # lines shown of one
_FINE = "[exit status 0]"
_LONGEST_REASON = 200
_REASONS = {
    "forced": "the window was nearly full",
    "full": "the window was full: it could not be sent otherwise, so no yes was waited for",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache was cold: it cost nothing",
    "due": "the policy's rule asked for it",
}


class Hidden(NamedTuple):
    """Something that is shown in part, or not at all."""

    title: str
    text: str
    kind: Literal["text", "diff"] = "text"


@dataclass(slots=True)
class _RunningCall:
    """A call under way, and the end of what it has printed."""

    text: str
    begun: float
    looks: bool = False
    """Whether it only looks: what it found is for the model."""
    intent: Intent | None = None
    tail: str = ""
    lines: int = 0

    def add_output(self, words: str) -> None:
        self.lines += words.count("\n")
        self.tail = (self.tail + words)[-_TAIL_SIZE:]


class TurnOutput:
    """Shows the events of turns, one after the other."""

    def __init__(self, face: ChatFace, session: AsyncSession) -> None:
        self._face, self._session = face, session
        self.more = 0
        """Tokens of the coming answer, not yet in the log."""
        self.last: Pass | None = None
        """The newest fold or narrative."""
        self.changed: Any = None
        """Called when the window has changed."""
        self.quiet = False
        """Whether the caller of a fold reports it itself."""
        self.waiting = ""
        """What the person is asked; "" if nothing."""
        self.hidden: deque[Hidden] = deque(maxlen=_KEPT)
        """What can be opened, the newest last."""
        self._opened = 0  # how many of the newest were opened, one after the other
        self._said: MarkdownStream | None = None
        self._thought: list[str] = []
        self._thought_tokens = 0
        self._thinking_since = 0.0
        self._heard_thought = False  # since the model was asked last
        self._asked_at = -1  # the place of the newest event when it was asked
        self.heard_words = False
        """Whether the model has said something since it was asked last."""
        self._apart = False  # whether a result is directly above
        self._doing = ""
        self._begun = 0.0
        self._running: dict[str, _RunningCall] = {}
        self._asked: set[str] = set()  # calls whose change a person has seen

    def start_activity(self, doing: str = "thinking") -> None:
        """Show that something is under way, and since when."""
        self._doing, self._begun = doing, monotonic()
        self._asked.clear()
        self._face.live(self._render_live_text)

    def stop_activity(self) -> None:
        """End it; the words so far stay."""
        self._finish_thought()
        self._finish_answer()
        self._running.clear()
        self._doing = ""
        self._face.live("")

    def start_question(self, call: Call, what: str) -> None:
        """Show that the person is waited for, and not the model."""
        self._asked.add(call.id)
        self.waiting = what
        self._face.refresh()

    def end_question(self) -> None:
        """Go on."""
        self.waiting = ""
        self._face.refresh()

    def show_output(self, words: str, *, of: str = "") -> None:
        """Show what a command prints while it runs."""
        one = self._running.setdefault(of, _RunningCall(of, monotonic()))
        one.add_output(words)
        self._face.refresh()

    def handle_moment(self, moment: Moment) -> None:
        """Show one moment of a turn: a hook of the agent."""
        match moment:
            case Asking():
                self._doing, self._heard_thought = "thinking", False
                self._asked_at, self.heard_words = self._session.live.view.head, False
                self._notify_change()
            case Thinking(words):
                self._add_thought(words)
            case Speaking(words):
                self._doing = "answering"
                self._finish_thought()
                self._show_words(words)
            case Retrying(why, seconds):
                self._show_retry(why, seconds)
            case Answered():
                self._find_unheard_thought()
                self._finish_thought()
                self._find_unheard_words()
                self._finish_answer()
                self._notify_change()
            case Calling(call, tool, _, intent):
                text = _describe_call(call)
                self._running[call.id] = _RunningCall(text, monotonic(), tool.beside, intent)
                self._face.refresh()
            case Printing(call, words):
                if (one := self._running.get(call.id)) is not None:
                    one.add_output(words)
                    self._face.refresh()
            case Called(call):
                self._show_result(moment, self._running.pop(call.id, None))
                self._notify_change()
            case Folding():
                self._doing = "folding"
            case Passed(one):
                self._show_pass(one)

    def open_hidden(self, number: int | None = None) -> bool:
        """Show in full what is folded away; without a number, the newest that was not opened yet.

        Returns whether there was anything.
        """
        if number is None:
            number = self._opened = self._opened + 1
        if not 0 < number <= len(self.hidden):
            self._opened = 0
            return False
        self._face.above("\n".join(self._render_hidden(self.hidden[-number])))
        return True

    def hide_text(self, one: Hidden) -> str:
        """Keep something to be opened; return how."""
        text = one.text if len(one.text) <= _LARGEST else f"{one.text[:_LARGEST]}\n… (cut)"
        self.hidden.append(one._replace(text=text))
        self._opened = 0
        return f"{self._face.expands} shows it"

    def _render_hidden(self, one: Hidden) -> list[str]:
        rows = (
            render_detail(one.text, self._face.columns)
            if one.kind == "diff"
            else [f"  {line}" for line in _split_output(one.text)]
        )
        more = [f"  … {format_count(len(rows) - _MOST_LINES, 'more line')}; /recall has them"]
        return [
            apply_style(truncate_to_width(f"▼ {one.title}", self._face.columns), "strong"),
            *rows[:_MOST_LINES],
            *(more if len(rows) > _MOST_LINES else []),
            "",
        ]

    def _add_thought(self, words: str) -> None:
        if not self._thought:
            self._thinking_since, self._heard_thought = monotonic(), True
        self._thought.append(words)
        self._thought_tokens += count_tokens(words)
        self._face.refresh()

    def _find_unheard_thought(self) -> None:
        """Take reasoning from the log that was not streamed."""
        if self._heard_thought:
            return
        said = next(self._session.live.view.iterate_newest(ModelSaid), None)
        for part in said[1].parts if said is not None else ():
            if isinstance(part, Thought) and part.text.strip():
                self._add_thought(part.text)
                self._thinking_since = 0.0

    def _find_unheard_words(self) -> None:
        """Take an answer from the log that was not streamed as text."""
        if self.heard_words:
            return
        if words := read_answer_after(self._session.live.view, self._asked_at).strip():
            self._show_words(words)

    def _finish_thought(self) -> None:
        """Fold reasoning away that has ended."""
        text, since = "".join(self._thought).strip(), self._thinking_since
        tokens, self._thought_tokens = self._thought_tokens, 0
        self._thought.clear()
        if not text:
            return
        took = f" for {monotonic() - since:.0f}s" if since else ""
        note = f"◌ thought{took} · {tokens:,} tokens"
        way = self.hide_text(Hidden(f"reasoning, {tokens:,} tokens", text))
        self._show_note(f"{note} · {way}", "dim")

    def _show_words(self, words: str) -> None:
        self.heard_words = self.heard_words or bool(words.strip())
        if self._said is None:
            if self._apart:
                self._face.above("\n")
            self._apart = False
            self._said = MarkdownStream(self._face.columns, colour=has_colours())
        self.more += count_tokens(words)
        if done := self._said.feed(words):
            self._face.above(done)
        self._face.refresh()

    def _show_retry(self, why: str, seconds: float) -> None:
        self._doing = "waiting to ask again"
        self._thought.clear()
        self._thought_tokens = 0
        text = truncate_to_width(clean_line(why), _LONGEST_REASON)
        self._show_note(f"↻ no answer: {text} · asked again in {seconds:.1f}s", "yellow")

    def _finish_answer(self) -> None:
        said, self._said, self.more = self._said, None, 0
        if said is not None and (rest := said.finish_answer()):
            self._face.above(rest)

    def _notify_change(self) -> None:
        if self.changed is not None:
            self.changed()
        self._face.refresh()

    def _render_live_text(self) -> str:
        """Render what is unfinished: words, running tools and their output, elapsed time."""
        columns, now = self._face.columns, monotonic()
        lines: list[str] = []
        if self._said is not None:
            lines += self._said.render_rest(max(self._face.rows - _LEFT, 3)).split("\n")
        # Text higher than the screen could not be erased again.
        room = max(self._face.rows - _LEFT - len(lines), 3)
        running = [*self._running.values()]
        tail = min(_TAIL, max(room // max(len(running), 1) - 1, 0))
        for one in running[:room]:
            text = f"  ⋯ {one.text} · {now - one.begun:.0f}s"
            lines.append(apply_style(truncate_to_width(text, columns), "dim"))
            shown = _split_output(one.tail)[-tail:] if tail and one.tail.strip() else []
            lines += (
                apply_style(truncate_to_width(f"    │ {line}", columns), "dim") for line in shown
            )
        if (more := len(running) - room) > 0:
            lines.append(apply_style(truncate_to_width(f"  ⋯ and {more:,} more", columns), "dim"))
        if self._doing:
            lines += [*([""] if lines else []), self._render_spinner(columns, now)]
        return "\n".join(lines)

    def _render_spinner(self, columns: int, now: float) -> str:
        """Render what is waited for, and since when."""
        if self.waiting:
            text = f"? waiting for your answer: {self.waiting}"
            return apply_style(truncate_to_width(clean_line(text), columns), "yellow")
        spin = _SPIN[int(now / _SPUN) % len(_SPIN)]
        doing = self._doing
        if self._running:
            doing = "running" if len(self._running) == 1 else f"running {len(self._running)} tools"
        elif self._thought:
            doing = f"thinking ({self._thought_tokens:,} tokens)"
        text = f"{spin} {doing} {now - self._begun:.0f}s · Ctrl-C stops"
        return apply_style(truncate_to_width(text, columns), "dim")

    def _show_result(self, moment: Called, ran: _RunningCall | None) -> None:
        """Show how a call ended, and the beginning and the end of what it printed."""
        columns, result, call = self._face.columns, moment.result, moment.call
        self._apart = True
        seconds = monotonic() - ran.begun if ran is not None else 0.0
        lines = [self._render_call_result(moment, seconds)]
        text = text_of(result.parts)
        changes = ran is not None and ran.intent is not None and ran.intent.is_diff
        if not result.ok and ran is None:
            why = truncate_to_width(clean_line(text), max(columns - 4, 8))
            lines += [apply_style(f"  {why}", "dim")] if why else []
        elif result.ok and changes and ran is not None and ran.intent is not None:
            if call.id not in self._asked:
                lines += self._render_bounded_diff(_describe_call(call), ran.intent.detail)
        else:
            hides_all = result.ok and (ran is None or ran.looks)
            lines += self.render_output(_describe_call(call), text, whole=not hides_all)
        self._face.above("\n".join(lines))

    def render_output(self, title: str, text: str, *, whole: bool = True) -> list[str]:
        """Render the beginning and the end of an output; what is left out can be opened.

        Without `whole`, nothing of it is shown.
        """
        rows = _split_output(text)
        if rows and rows[-1] == _FINE:
            rows.pop()
        if not rows or not any(row.strip() for row in rows):
            return []
        columns = self._face.columns
        name = f"output of {title}, {format_count(len(rows), 'line')}"
        if not whole:
            self.hide_text(Hidden(name, text))
            return []
        shown = [apply_style(truncate_to_width(f"  │ {row}", columns), "dim") for row in rows]
        if len(rows) <= _FIRST + _LAST + 1:
            if any(measure_width(row) > columns - 4 for row in rows):
                self.hide_text(Hidden(name, text))
            return shown
        way = self.hide_text(Hidden(name, text))
        left = format_count(len(rows) - _FIRST - _LAST, "more line")
        rest = truncate_to_width(f"  │ … {left} · {way}", columns)
        return [*shown[:_FIRST], apply_style(rest, "yellow"), *shown[-_LAST:]]

    def _render_bounded_diff(self, title: str, detail: str) -> list[str]:
        rows = render_detail(detail, self._face.columns)
        if len(rows) <= _DIFF + 1:
            return rows
        way = self.hide_text(Hidden(f"change by {title}", detail, "diff"))
        rest = f"  │ … {format_count(len(rows) - _DIFF, 'more line')} · {way}"
        return [*rows[:_DIFF], apply_style(truncate_to_width(rest, self._face.columns), "yellow")]

    def _render_call_result(self, moment: Called, seconds: float) -> str:
        """Render a line about a call; its seconds are its own, without those of a question."""
        call, result = moment.call, moment.result
        results = self._session.live.view.iterate_newest(ToolReturned)
        clip = next((one.clip for _, one in results if one.call_id == call.id), None)
        if clip is not None:
            size = f"{clip.shown:,} of {clip.whole:,} tokens, clipped"
        else:
            size = f"{count_parts(result.parts):,} tokens"
        rest = f" · {seconds:.1f}s · {size}"
        columns = self._face.columns
        if result.ok:
            name = truncate_to_width(_describe_call(call), max(columns - len(rest) - 3, 8))
            return f"{apply_style('●', 'green')} {name}{apply_style(rest, 'dim')}"
        name = truncate_to_width(_describe_call(call), max(columns - len(rest) - 10, 8))
        return (
            f"{apply_style('●', 'red')} {name} "
            f"{apply_style('failed', 'red')}{apply_style(rest, 'dim')}"
        )

    def _show_pass(self, one: Pass) -> None:
        self.last = one
        if self.quiet:
            pass
        elif one.kind == "fold" and one.outcome == "applied":
            why = _REASONS.get(one.trigger, "")
            said = f"◆ Folded: {one.before:,} → {one.after:,} tokens"
            tail = f" · {why}" if why else ""
            self._show_note(f"{said}{tail} · {self.hide_record()} · /undo takes it back", "yellow")
        elif one.kind == "fold":
            self._show_note(f"◆ A fold was forbidden: {one.reason}", "yellow")
        elif one.outcome == "failed":
            self._show_note(f"◆ No narrative for the next fold: {one.reason}", "dim")
        self._notify_change()

    def hide_record(self) -> str:
        """Keep the newest fold's record to be opened; return how."""
        newest = next(self._session.live.view.iterate_newest(Folded), None)
        if newest is None:
            return "/recall shows the record"
        seq, fold = newest
        span = fold.change.span
        title = f"the record of log:{span.lo}-{'' if span.hi is None else span.hi} (log:{seq})"
        self.hide_text(Hidden(title, fold.text))
        return f"{self._face.expands} shows the record"

    def _show_note(self, text: str, style: Any) -> None:
        """Show a remark; one that is too long goes on below."""
        self._finish_answer()
        rows = wrap_at_dots(clean_line(text), self._face.columns)
        self._face.above("\n".join(apply_style(row, style) for row in rows))


def _split_output(text: str) -> list[str]:
    """Split what a program printed into safe lines; of a line written over, the last state."""
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    last = (line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return [clean_text(line).expandtabs(4) for line in last]


def _describe_call(call: Call) -> str:
    """Describe a call in a few words; a path or a single argument has no name before it."""
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    text = call.arguments
    if isinstance(given, dict):
        named = cast("dict[str, Any]", given)
        if call.name in ("write", "edit") and isinstance(named.get("path"), str):
            named = {"path": named["path"]}  # its change is shown as a diff
        text = ", ".join(
            f"{value}" if len(named) == 1 else f"{key}={value}" for key, value in named.items()
        )
    return f"{clean_line(call.name)}({truncate_to_width(clean_line(text), _SHORT)})"

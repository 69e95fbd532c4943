"""Show a turn as it happens: words as they come, a line per tool call, a notice per fold."""

import json
from time import monotonic
from typing import Any, cast

from foldline.agent.events import Answered, Asking, Called, Calling, Moment, Passed, Speaking
from foldline.apps.chat.chat_parts import ChatFace
from foldline.apps.chat.markdown import Saying
from foldline.apps.cli.output import apply_style, has_colours
from foldline.core.log import ToolReturned
from foldline.core.parts import Call, text_of
from foldline.core.tokens import count_parts, count_tokens
from foldline.draw.wording import clean_line, truncate_to_width
from foldline.session.hooks import Pass
from foldline.session.session import AsyncSession

_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPUN = 0.1  # seconds per spinner frame
_LEFT = 8  # rows kept for the input line, the bar and some earlier text
_SHORT = 60
_REASONS = {
    "forced": "the window was nearly full",
    "full": "the window was full: it could not be sent otherwise, so no yes was waited for",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache was cold: it cost nothing",
    "due": "the policy's rule asked for it",
}


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
        self._said: Saying | None = None
        self._doing = ""
        self._begun = 0.0
        self._running: dict[str, tuple[str, float]] = {}

    def start_activity(self, doing: str = "thinking") -> None:
        """Show that something is under way, and since when."""
        self._doing, self._begun = doing, monotonic()
        self._face.live(self._render_live_text)

    def stop_activity(self) -> None:
        """End it; the words so far stay."""
        self._finish_answer()
        self._running.clear()
        self._doing = ""
        self._face.live("")

    def handle_moment(self, moment: Moment) -> None:
        """Show one moment of a turn: a hook of the agent."""
        match moment:
            case Asking():
                self._doing = "thinking"
                self._notify_change()
            case Speaking(words):
                self._show_words(words)
            case Answered():
                self._finish_answer()
                self._notify_change()
            case Calling(call):
                self._running[call.id] = (_describe_call(call), monotonic())
                self._face.refresh()
            case Called():
                self._running.pop(moment.call.id, None)
                self._face.above(self._render_call_result(moment))
                self._notify_change()
            case Passed(one):
                self._show_pass(one)
            case _:
                pass

    def _show_words(self, words: str) -> None:
        if self._said is None:
            self._said = Saying(self._face.columns, colour=has_colours())
        self.more += count_tokens(words)
        if done := self._said.feed(words):
            self._face.above(done)
        self._face.refresh()

    def _finish_answer(self) -> None:
        said, self._said, self.more = self._said, None, 0
        if said is not None and (rest := said.finish_answer()):
            self._face.above(rest)

    def _notify_change(self) -> None:
        if self.changed is not None:
            self.changed()
        self._face.refresh()

    def _render_live_text(self) -> str:
        """Render what is unfinished: words, running tools, elapsed time."""
        columns, now = self._face.columns, monotonic()
        lines: list[str] = []
        if self._said is not None:
            lines += self._said.render_rest(max(self._face.rows - _LEFT, 3)).split("\n")
        # Text higher than the screen could not be erased again.
        room = max(self._face.rows - _LEFT - len(lines), 3)
        for told, begun in [*self._running.values()][:room]:
            lines.append(
                apply_style(truncate_to_width(f"  ⋯ {told} · {now - begun:.0f}s", columns), "dim")
            )
        if (more := len(self._running) - room) > 0:
            lines.append(apply_style(truncate_to_width(f"  ⋯ and {more:,} more", columns), "dim"))
        if self._doing:
            spin = _SPIN[int(now / _SPUN) % len(_SPIN)]
            doing = "answering" if self._said is not None else self._doing
            told = f"{spin} {doing} {now - self._begun:.0f}s · Ctrl-C stops"
            lines += [
                *([""] if lines else []),
                apply_style(truncate_to_width(told, columns), "dim"),
            ]
        return "\n".join(lines)

    def _render_call_result(self, moment: Called) -> str:
        call, result = moment.call, moment.result
        held = self._session.live.view.held
        logged = next(
            (one for _, one in sorted(held.items(), reverse=True)
             if isinstance(one, ToolReturned) and one.call_id == call.id),
            None,
        )  # fmt: skip
        clip = logged.clip if logged else None
        if clip is not None:
            size = f"{clip.shown:,} of {clip.whole:,} tokens, clipped"
        else:
            size = f"{count_parts(result.parts):,} tokens"
        rest = f" · {moment.seconds:.1f}s · {size}"
        columns = self._face.columns
        if result.ok:
            name = truncate_to_width(_describe_call(call), max(columns - len(rest) - 3, 8))
            return f"{apply_style('●', 'green')} {name}{apply_style(rest, 'dim')}"
        name = truncate_to_width(_describe_call(call), max(columns - len(rest) - 10, 8))
        why = truncate_to_width(clean_line(text_of(result.parts)), max(columns - 4, 8))
        first = (
            f"{apply_style('●', 'red')} {name} "
            f"{apply_style('failed', 'red')}{apply_style(rest, 'dim')}"
        )
        return f"{first}\n{apply_style(f'  {why}', 'dim')}" if why else first

    def _show_pass(self, one: Pass) -> None:
        self.last = one
        if self.quiet:
            pass
        elif one.kind == "fold" and one.outcome == "applied":
            why = _REASONS.get(one.trigger, "")
            said = f"◆ Folded: {one.before:,} → {one.after:,} tokens"
            tail = f" · {why}" if why else ""
            self._show_note(f"{said}{tail} · /undo takes it back", "yellow")
        elif one.kind == "fold":
            self._show_note(f"◆ A fold was forbidden: {one.reason}", "yellow")
        elif one.outcome == "failed":
            self._show_note(f"◆ No narrative for the next fold: {one.reason}", "dim")
        self._notify_change()

    def _show_note(self, text: str, style: Any) -> None:
        self._finish_answer()
        columns = self._face.columns
        for line in [text] if len(text) <= columns else text.split(" · ", 1):
            self._face.above(apply_style(truncate_to_width(clean_line(line), columns), style))


def _describe_call(call: Call) -> str:
    """Describe a call in a few words; a single argument stands without its name."""
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    text = call.arguments
    if isinstance(given, dict):
        named = cast("dict[str, Any]", given)
        text = ", ".join(
            f"{value}" if len(named) == 1 else f"{key}={value}" for key, value in named.items()
        )
    return f"{clean_line(call.name)}({truncate_to_width(clean_line(text), _SHORT)})"

"""A turn as it happens, shown to whoever sits there.

Knows the moments of a turn, and how each is told: words as they come, a line for each tool, a
notice for each fold (A-43). Refuses to know what is done about them.
"""

import json
from time import monotonic
from typing import Any, cast

from foldline.agent.events import Answered, Asking, Called, Calling, Moment, Passed, Speaking
from foldline.apps.chat.markdown import Saying
from foldline.apps.chat.startup import ChatFace
from foldline.apps.cli.output import coloured, paint
from foldline.core.log import ToolReturned
from foldline.core.parts import Call, text_of
from foldline.core.tokens import count, count_parts
from foldline.draw.text import clean, fit
from foldline.session.hooks import Pass
from foldline.session.session import AsyncSession

_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPUN = 0.1  # seconds for one picture
_LEFT = 8  # rows that the line, the bar and some of the past keep
_SHORT = 60
_REASONS = {
    "forced": "the window was nearly full",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache was cold: it cost nothing",
    "due": "the policy's rule asked for it",
}


class TurnOutput:
    """What is heard of turns, one after the other."""

    def __init__(self, face: ChatFace, session: AsyncSession) -> None:
        self._face, self._session = face, session
        self.more = 0
        """Tokens that are being said, and not yet in the log."""
        self.last: Pass | None = None
        """The newest fold or narrative."""
        self.changed: Any = None
        """Told when the window has changed."""
        self.quiet = False
        """Whether a fold is told by whoever asked for it."""
        self._said: Saying | None = None
        self._doing = ""
        self._begun = 0.0
        self._running: dict[str, tuple[str, float]] = {}

    def begin(self, doing: str = "thinking") -> None:
        """Something is under way."""
        self._doing, self._begun = doing, monotonic()
        self._face.live(self._live)

    def end(self) -> None:
        """It is over: what was said stays."""
        self._finish()
        self._running.clear()
        self._doing = ""
        self._face.live("")

    def hear(self, moment: Moment) -> None:
        """A hook of the agent's: it watches, and forbids nothing."""
        match moment:
            case Asking():
                self._doing = "thinking"
                self._moved()
            case Speaking(words):
                self._speak(words)
            case Answered():
                self._finish()
                self._moved()
            case Calling(call):
                self._running[call.id] = (_call(call), monotonic())
                self._face.refresh()
            case Called():
                self._running.pop(moment.call.id, None)
                self._face.above(self._called(moment))
                self._moved()
            case Passed(one):
                self._passed(one)
            case _:
                pass

    def _speak(self, words: str) -> None:
        if self._said is None:
            self._said = Saying(self._face.columns, colour=coloured())
        self.more += count(words)
        if done := self._said.feed(words):
            self._face.above(done)
        self._face.refresh()

    def _finish(self) -> None:
        said, self._said, self.more = self._said, None, 0
        if said is not None and (rest := said.end()):
            self._face.above(rest)

    def _moved(self) -> None:
        if self.changed is not None:
            self.changed()
        self._face.refresh()

    def _live(self) -> str:
        """What is not finished: words, tools that run, and how long it takes."""
        columns, now = self._face.columns, monotonic()
        lines: list[str] = []
        if self._said is not None:
            lines += self._said.rest(max(self._face.rows - _LEFT, 3)).split("\n")
        room = max(
            self._face.rows - _LEFT - len(lines), 3
        )  # what is higher stays when it is erased
        for told, begun in [*self._running.values()][:room]:
            lines.append(paint(fit(f"  ⋯ {told} · {now - begun:.0f}s", columns), "dim"))
        if (more := len(self._running) - room) > 0:
            lines.append(paint(fit(f"  ⋯ and {more:,} more", columns), "dim"))
        if self._doing:
            spin = _SPIN[int(now / _SPUN) % len(_SPIN)]
            doing = "answering" if self._said is not None else self._doing
            told = f"{spin} {doing} {now - self._begun:.0f}s · Ctrl-C stops"
            lines += [*([""] if lines else []), paint(fit(told, columns), "dim")]
        return "\n".join(lines)

    def _called(self, moment: Called) -> str:
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
            name = fit(_call(call), max(columns - len(rest) - 3, 8))
            return f"{paint('●', 'green')} {name}{paint(rest, 'dim')}"
        name = fit(_call(call), max(columns - len(rest) - 10, 8))
        why = fit(clean(text_of(result.parts)), max(columns - 4, 8))
        first = f"{paint('●', 'red')} {name} {paint('failed', 'red')}{paint(rest, 'dim')}"
        return f"{first}\n{paint(f'  {why}', 'dim')}" if why else first

    def _passed(self, one: Pass) -> None:
        self.last = one
        if self.quiet:
            pass
        elif one.kind == "fold" and one.outcome == "applied":
            why = _REASONS.get(one.trigger, "")
            said = f"◆ Folded: {one.before:,} → {one.after:,} tokens"
            tail = f" · {why}" if why else ""
            self._note(f"{said}{tail} · /undo takes it back", "yellow")
        elif one.kind == "fold":
            self._note(f"◆ A fold was forbidden: {one.reason}", "yellow")
        elif one.outcome == "failed":
            self._note(f"◆ No narrative for the next fold: {one.reason}", "dim")
        self._moved()

    def _note(self, text: str, style: Any) -> None:
        self._finish()
        columns = self._face.columns
        for line in [text] if len(text) <= columns else text.split(" · ", 1):
            self._face.above(paint(fit(clean(line), columns), style))


def _call(call: Call) -> str:
    """A call in a few words."""
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return f"{clean(call.name)}({fit(clean(call.arguments), _SHORT)})"
    named = cast("dict[str, Any]", given)
    if len(named) == 1:
        (one,) = named.values()
        return f"{clean(call.name)}({fit(clean(str(one)), _SHORT)})"
    told = ", ".join(f"{key}={value}" for key, value in named.items())
    return f"{clean(call.name)}({fit(clean(told), _SHORT)})"

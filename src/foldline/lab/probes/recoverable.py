"""Whether what was taken out of sight comes back: every byte, by the handle in its place.

Knows a replay's log and the session that it was fed. Refuses to trust either the log's own copy of
an original or any handle but the one that the model is shown: a stub's, a clip's, a handoff's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foldline.core import item, recall
from foldline.core.log import (
    Event,
    Folded,
    Instructed,
    Logged,
    Masked,
    ModelSaid,
    ToolReturned,
    UserSaid,
    kind,
)
from foldline.core.parts import Call, Media, text_of
from foldline.core.recall import Query, Whole, handle
from foldline.core.spine import places
from foldline.errors import BadHandle
from foldline.lab.recorded import Recorded

_SAID = (Instructed, UserSaid, ModelSaid, ToolReturned)


@dataclass(slots=True)
class Recovered:
    """Bytes that edits took out of sight, and those that one recall by the shown handle gave."""

    edits: int = 0
    removed: int = 0
    recovered: int = 0

    def take(self, removed: int, *, whole: bool) -> None:
        """One original: all of it came back as it was, or nothing counts."""
        self.removed += removed
        self.recovered += removed if whole else 0

    @property
    def percent(self) -> float:
        """Of what was removed; all of nothing is all."""
        return 100 * self.recovered / self.removed if self.removed else 100.0


def recovered(log: Sequence[Event], session: Recorded) -> Recovered:
    """Every clip, mask and fold of a log that grew from a session."""
    originals = dict(_originals(log, session))
    found = Recovered()
    for at, event in enumerate(log):
        match event:
            case Folded():
                span = event.change.span
                inside = {seq: originals[seq] for seq in places(span) if seq in originals}
                _look(found, log, event.text, inside)
            case Masked(stubs):
                for stub in stubs:
                    _look(found, log, stub.text, {stub.seq: originals[stub.seq]})
            case UserSaid() | ToolReturned() if event.clip is not None:
                _look(found, log, _clipped(at, event), {at: originals[at]})
            case _:
                pass
    return found


def _look(found: Recovered, log: Sequence[Event], shown: str, originals: dict[int, str]) -> None:
    """One edit: ask once, by the first handle that the text shows in brackets."""
    found.edits += 1
    asked = _asked(shown)
    told = ""
    if asked is not None and isinstance(asked.way, Whole):
        logged = [Logged(seq, log[seq]) for seq in places(asked.span) if seq < len(log)]
        try:
            told = recall.show(logged, asked)
        except BadHandle:
            told = ""
    alone = len(originals) == 1 and told in originals.values()
    for seq, text in originals.items():
        # Among others each stands under a line of its own, and ends where the next one begins.
        title = f"[{handle(seq)} {kind(log[seq])}]\n"
        behind = f"\n{told}\n".partition(f"\n{title}")[2]
        whole = alone or (behind.startswith(text) and behind[len(text) :][:5] in ("\n", "\n[log"))
        found.take(len(text.encode()), whole=whole)


def _asked(shown: str) -> Query | None:
    for line in shown.split("\n"):
        if line.startswith("[") and "log:" in line:
            try:
                return recall.parse(line)
            except BadHandle:
                continue
    return None


def _clipped(seq: int, event: UserSaid | ToolReturned) -> str:
    """What the model is shown of a clipped event."""
    if isinstance(event, ToolReturned):
        return text_of(item.result(seq, event, None, call_id=event.call_id).parts)
    shown = item.user(seq, event, None)
    return text_of(shown.parts) if shown else ""


def _originals(log: Sequence[Event], session: Recorded) -> Iterator[tuple[int, str]]:
    """What each event of a log said, in the words of the session that was fed to it."""
    said = iter([event for event in session.events if isinstance(event, _SAID)])
    for seq, event in enumerate(log):
        if isinstance(event, Folded):
            yield seq, event.text
        elif isinstance(event, _SAID):
            yield seq, _words(next(said))


def _words(event: Instructed | UserSaid | ModelSaid | ToolReturned) -> str:
    """Text as it is, a call as its name and what was given."""
    lines: list[str] = []
    for part in event.parts:
        assert not isinstance(part, Media), "made-up sessions have no pictures"  # noqa: S101
        call = isinstance(part, Call)
        lines.append(f"{part.name} {part.arguments}" if call else text_of((part,)))
    return "\n".join(lines)

"""Probe: whether recall returns every byte that edits removed, by the handle the model sees.

Originals are taken from the recorded session, not from the log under test; handles only from the
text that the model sees: a stub's, a clip's, a handoff's.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
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
    event_kind_of,
)
from foldline.core.parts import Call, Media, text_of
from foldline.core.recall import Query, Whole, format_handle
from foldline.core.spine import places_of
from foldline.errors import BadHandle
from foldline.lab.recorded import Recorded

_SAID = (Instructed, UserSaid, ModelSaid, ToolReturned)


@dataclass(slots=True)
class Recovered:
    """Bytes that edits removed, and those that one recall by the shown handle returned."""

    edits: int = 0
    removed: int = 0
    recovered: int = 0

    def count_original(self, removed: int, *, whole: bool) -> None:
        """Count one original; it is recovered only if it came back whole."""
        self.removed += removed
        self.recovered += removed if whole else 0

    @property
    def percent(self) -> float:
        """The share in percent; 100 if nothing was removed."""
        return 100 * self.recovered / self.removed if self.removed else 100.0


def measure_recovery(log: Sequence[Event], session: Recorded) -> Recovered:
    """Recall every clip, mask and fold of a log that was made from a session."""
    originals = dict(_iterate_originals(log, session))
    found = Recovered()
    for at, event in enumerate(log):
        match event:
            case Folded():
                span = event.change.span
                inside = {seq: originals[seq] for seq in places_of(span) if seq in originals}
                _recall_edit(found, log, event.text, inside)
            case Masked(stubs):
                for stub in stubs:
                    _recall_edit(found, log, stub.text, {stub.seq: originals[stub.seq]})
            case UserSaid() | ToolReturned() if event.clip is not None:
                _recall_edit(found, log, _render_clipped(at, event), {at: originals[at]})
            case _:
                pass
    return found


def _recall_edit(
    found: Recovered, log: Sequence[Event], shown: str, originals: dict[int, str]
) -> None:
    """Recall one edit, by the first handle that its text shows in brackets."""
    found.edits += 1
    query = _find_query(shown)
    recalled = ""
    if query is not None and isinstance(query.way, Whole):
        logged = [Logged(seq, log[seq]) for seq in places_of(query.span) if seq < len(log)]
        with suppress(BadHandle):
            recalled = recall.render_recall(logged, query)
    alone = len(originals) == 1 and recalled in originals.values()
    for seq, text in originals.items():
        # One of several comes after a title line, and ends where the next title begins.
        title = f"[{format_handle(seq)} {event_kind_of(log[seq])}]\n"
        behind = f"\n{recalled}\n".partition(f"\n{title}")[2]
        whole = alone or (behind.startswith(text) and behind[len(text) :][:5] in ("\n", "\n[log"))
        found.count_original(len(text.encode()), whole=whole)


def _find_query(shown: str) -> Query | None:
    for line in shown.split("\n"):
        if line.startswith("[") and "log:" in line:
            with suppress(BadHandle):
                return recall.parse_query(line)
    return None


def _render_clipped(seq: int, event: UserSaid | ToolReturned) -> str:
    if isinstance(event, ToolReturned):
        return text_of(item.make_result_item(seq, event, None, call_id=event.call_id).parts)
    shown = item.make_user_item(seq, event, None)
    return text_of(shown.parts) if shown else ""


def _iterate_originals(log: Sequence[Event], session: Recorded) -> Iterator[tuple[int, str]]:
    """Yield the original text of each event of a log, from the session it was made from."""
    said = iter([event for event in session.events if isinstance(event, _SAID)])
    for seq, event in enumerate(log):
        if isinstance(event, Folded):
            yield seq, event.text
        elif isinstance(event, _SAID):
            yield seq, _render_words(next(said))


def _render_words(event: Instructed | UserSaid | ModelSaid | ToolReturned) -> str:
    """Render text unchanged, and a call as its name and arguments."""
    lines: list[str] = []
    for part in event.parts:
        assert not isinstance(part, Media), "made-up sessions have no pictures"
        call = isinstance(part, Call)
        lines.append(f"{part.name} {part.arguments}" if call else text_of((part,)))
    return "\n".join(lines)

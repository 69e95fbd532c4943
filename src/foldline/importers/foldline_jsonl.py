"""Reads Foldline's own logs, as `foldline export --format jsonl` writes them: one event per line.

A log is imported whole, edits included. A broken one is refused, not repaired: an edit that shows
what the file does not hold would make a session that nobody can open.
"""

from collections.abc import Sequence

import msgspec

from foldline.core.log import Asked, Event, Opened
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.dialects.json_slices import Json
from foldline.errors import BrokenView, WireError
from foldline.importers.source import Imported, Notes, Record, stem_of

KIND = "foldline"
_KINDS = frozenset(str(one.__struct_config__.tag) for one in Event.__args__)


def can_read(body: Json) -> bool:
    """Whether a record looks like an event."""
    kind = body.get("kind")
    return isinstance(kind, str) and kind in _KINDS and "type" not in body


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read the one log of a file."""
    events: list[Event] = []
    view = load(Spine(), {}, head=-1)
    if lost := notes.render_lines():
        raise WireError(f"a log with {lost[0]}: its places would be others", path="line 1")
    for number, (at, body) in enumerate(records):
        place = at or "line 1"
        try:
            event = msgspec.convert(body, Event)
            _check_position(number, event)
            view.append(number, event)
        except (msgspec.ValidationError, BrokenView) as fault:
            raise WireError(f"{place}: {fault}", path=place) from fault
        events.append(event)
    return [Imported(stem_of(name) or KIND, view.model, events, [], is_log=True)]


def _check_position(number: int, event: Event) -> None:
    """Raise if an event belongs to another position."""
    if number == 0 and not isinstance(event, Opened):
        raise BrokenView("a log begins with its opening; this is a part of one")
    if isinstance(event, Asked) and event.at >= number:
        raise BrokenView("it names a later place; this is a part of a log")

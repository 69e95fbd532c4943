"""The rules of a sendable view, and where it may be cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foldline.core.item import Item
from foldline.core.log import (
    Event,
    Instructed,
    Interrupted,
    ModelSaid,
    Repaired,
    ToolReturned,
    UserSaid,
    begins_turn,
)
from foldline.core.parts import calls_of
from foldline.core.view import View
from foldline.errors import BrokenView


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a view may be cut: before `items[index]`, and before the event `seq`."""

    index: int
    seq: int


def cut_points(view: View, *, unanswered: bool = False, stable: int | None = None) -> list[Cut]:
    """List where a fold may end, oldest first.

    Only what was answered is folded, unless `unanswered` is set, for a view that nothing else makes
    fit; the newest message stays even then. With `stable`, no fold goes beyond that event.
    """
    return [*cuts_back(view, unanswered=unanswered, stable=stable)][::-1]


def cuts_back(view: View, *, unanswered: bool = False, stable: int | None = None) -> Iterator[Cut]:
    """Yield the cut points newest first, computed one at a time."""
    items = view.items
    end = _find_items_end(view) - 1 if unanswered and not view.open else find_protected_start(view)
    oldest = min((_find_first_event(view, item) for item in view.waiting), default=view.head + 1)
    for index in range(len(items), 0, -1):
        if index < len(items):
            oldest = min(oldest, _find_first_event(view, items[index]))
        # Settled: no event on either side of the cut is shown on the other, now or later.
        settled = view.tops[index - 1] < oldest
        # Whole groups: a result stays with its call.
        inside = index < len(items) and items[index].role == "result"
        # Whole messages: the events of one client message are folded together.
        inside = inside or _goes_on(view, items[index - 1])
        known = stable is None or view.tops[index - 1] <= stable
        if index <= end and settled and known and not inside:
            yield Cut(index, oldest)


def find_protected_start(view: View) -> int:
    """Find where the part begins that no fold may take: the newest group, or what is unanswered."""
    index = _find_items_end(view)
    last = index
    if not view.open:
        while index and view.items[index - 1].role in ("user", "system"):
            index -= 1  # not answered yet
        if index < last:
            return index
    while index and view.items[index - 1].role == "result":
        index -= 1
    index = max(index - 1, 0)
    while index and _goes_on(view, view.items[index - 1]):
        index -= 1
    return index


def _find_items_end(view: View) -> int:
    """Find where the items end, without system messages that a client put behind all others."""
    index = len(view.items)
    while index and view.items[index - 1].role == "system":
        said = view.held.get(view.items[index - 1].seq)
        if not isinstance(said, Instructed) or not said.aside:
            break
        index -= 1
    return index


def is_in_tool_loop(view: View) -> bool:
    """Whether the model has called tools and not said anything since."""
    last = next((item for item in reversed(view.items) if item.role == "model"), None)
    return last is not None and any(calls_of(last.parts))


def turn_end(view: View) -> bool:
    """Whether the next call opens a turn: the newest item is a message, and no call is open."""
    return not view.open and bool(view.items) and view.items[-1].role == "user"


def count_turns(view: View) -> int:
    """Count the turns in sight that the model answered, scheduled ones too."""
    return len(turn_starts(view, view.items))


def turn_starts(view: View, items: Sequence[Item]) -> list[int]:
    """List where the answered turns among items began."""
    starts: list[int] = []
    spoke: int | None = None
    for item in items:
        said = view.held.get(item.seq)
        if item.role == "user":
            if spoke is None and begins_turn(said):
                spoke = item.seq
        elif item.role == "model" and item.state != "folded" and spoke is not None:
            starts.append(spoke)
            spoke = None
    return starts


def make_closing_events(view: View) -> list[Interrupted]:
    """Make the events that close open calls, so that the view can be sent."""
    return [
        Interrupted(came, "the conversation went on before the result")
        for came in view.open.values()
    ]


def list_repairs(view: View, event: Event) -> list[Repaired]:
    """List what the view will repair when `event` is appended next."""
    match event:
        case ToolReturned(call_id) if not view.waits_for(call_id):
            return [Repaired("result without a call", f"{call_id!r} is shown as a notice")]
        case ModelSaid():
            notes = [
                Repaired("call never answered", f"{came!r} is closed as interrupted")
                for came in view.open.values()
            ]
            seen: set[str] = set()
            for call in calls_of(event.parts):
                if not call.id.strip() or call.id.strip() in seen:
                    notes.append(
                        Repaired("call id not unique", f"{call.id!r} is shown under another")
                    )
                seen.add(call.id.strip())
            return notes
        case _:
            return []


def check_view(view: View) -> None:
    """Raise `BrokenView` if a view breaks a rule that every provider has.

    A message that came without words holds its place; one that an edit left without is a fault.
    """
    if view.open:
        raise BrokenView(f"calls {list(view.open)} at {view.head} are open; close them first")
    awaited: set[str] = set()
    for item in view.items:
        if item.role == "result":
            if item.call_id not in awaited:
                raise BrokenView(
                    f"result for call {item.call_id!r} at {item.seq} does not follow its call; "
                    "cut only at rules.cut_points()"
                )
            awaited.discard(item.call_id)
            continue
        if awaited:
            raise BrokenView(
                f"calls {sorted(awaited)} before {item.seq} have no result behind them"
            )
        calls = [call.id for call in calls_of(item.parts)]
        awaited = set(calls)
        if len(awaited) < len(calls):
            raise BrokenView(f"call ids {calls} at {item.seq} are not unique in their group")
        if not item.parts and item.state != "whole":
            raise BrokenView(f"the item at {item.seq} shows nothing")
    if awaited:
        raise BrokenView(f"calls {sorted(awaited)} at the end have no result behind them")


def _goes_on(view: View, item: Item) -> bool:
    """Whether the message continues in the next item: the client's, or a turn that paused."""
    event = view.held.get(item.seq)
    if isinstance(event, ModelSaid) and event.stop == "paused":
        return True
    return isinstance(event, UserSaid | ModelSaid | ToolReturned) and event.more


def _find_first_event(view: View, item: Item) -> int:
    return view.fold_at(item.seq).change.span.lo if item.state == "folded" else item.seq

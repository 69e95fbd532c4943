"""What makes a view sendable, and where it may be cut.

Knows pairs, groups and answers. Refuses to know sizes and dialects.
"""

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
    by_user,
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
    """Where a fold may end, oldest first: the places that every rule below allows.

    `unanswered` gives up the last rule, that only what was answered is folded: for a view that
    nothing else makes fit. The newest message stays even then. With `stable`, no fold reaches
    behind that event.
    """
    return [*cuts_back(view, unanswered=unanswered, stable=stable)][::-1]


def cuts_back(view: View, *, unanswered: bool = False, stable: int | None = None) -> Iterator[Cut]:
    """The same, newest first, as far as one asks."""
    items = view.items
    end = _end(view) - 1 if unanswered and not view.open else newest(view)
    oldest = min((_first(view, item) for item in view.waiting), default=view.head + 1)
    for index in range(len(items), 0, -1):
        if index < len(items):
            oldest = min(oldest, _first(view, items[index]))
        # Settled: no event on either side of the cut is shown on the other, now or later.
        settled = view.tops[index - 1] < oldest
        # Whole groups: a result stays with its call.
        inside = index < len(items) and items[index].role == "result"
        # Whole messages: what a client said in one is folded as one.
        inside = inside or _goes_on(view, items[index - 1])
        known = stable is None or view.tops[index - 1] <= stable
        if index <= end and settled and known and not inside:
            yield Cut(index, oldest)


def newest(view: View) -> int:
    """Where the part begins that no fold may take: the newest group, and whatever is unanswered."""
    index = _end(view)
    last = index
    if not view.open:
        while index and view.items[index - 1].role in ("user", "system"):
            index -= 1  # not answered yet
        if index < last:
            return index
    while index and view.items[index - 1].role == "result":
        index -= 1
    return max(index - 1, 0)


def _end(view: View) -> int:
    """Where the items end, without system messages that a client has put behind all others."""
    index = len(view.items)
    while index and view.items[index - 1].role == "system":
        said = view.held.get(view.items[index - 1].seq)
        if not isinstance(said, Instructed) or not said.aside:
            break
        index -= 1
    return index


def turn_end(view: View) -> bool:
    """Whether the next call opens a turn: the newest item is a message, all before answered."""
    return not view.open and bool(view.items) and view.items[-1].role == "user"


def turns(view: View) -> int:
    """The turns in sight that a person began and the model answered; others' words are no turns."""
    return len(turn_starts(view, view.items))


def turn_starts(view: View, items: Sequence[Item]) -> list[int]:
    """Where the answered turns among some items began."""
    starts: list[int] = []
    spoke: int | None = None
    for item in items:
        said = view.held.get(item.seq)
        if item.role == "user":
            if spoke is None and by_user(said):
                spoke = item.seq
        elif item.role == "model" and item.state != "folded" and spoke is not None:
            starts.append(spoke)
            spoke = None
    return starts


def closing(view: View) -> list[Interrupted]:
    """The events that close what is open, so that the view can be sent."""
    return [
        Interrupted(came, "the conversation went on before the result")
        for came in view.open.values()
    ]


def repairs(view: View, event: Event) -> list[Repaired]:
    """What the view will have to mend when it takes in `event` next."""
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


def check(view: View) -> None:
    """Raise where a view breaks a rule that every provider has."""
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
        if not item.parts:
            raise BrokenView(f"the item at {item.seq} shows nothing")
    if awaited:
        raise BrokenView(f"calls {sorted(awaited)} at the end have no result behind them")


def _goes_on(view: View, item: Item) -> bool:
    """Whether the client's message that an item shows goes on behind it."""
    event = view.held.get(item.seq)
    return isinstance(event, UserSaid | ModelSaid | ToolReturned) and event.more


def _first(view: View, item: Item) -> int:
    """The first event that an item stands for."""
    return view.fold_at(item.seq).change.span.lo if item.state == "folded" else item.seq

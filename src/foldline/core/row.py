"""Items in the order they are shown.

Every result follows its call, and a message that came during an answer follows that answer, so
that it does not look answered.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import NamedTuple

from foldline.core import item as items
from foldline.core.item import Item, Role
from foldline.core.log import ModelSaid, ToolReturned
from foldline.core.parts import Call, Part, Text, Thought, calls_of
from foldline.core.token_bounds import count_cautiously

_FEW = 64  # bounds that are kept whatever is in view


class Bounds(NamedTuple):
    """Sums of items."""

    tokens: int
    """Their estimates."""
    most: int
    """Their upper bounds."""
    plain: int
    """Of these, plain English and code."""


_NOTHING = Bounds(0, 0, 0)


class ItemRow:
    """The items, and those that still wait for their place."""

    items: list[Item]
    waiting: list[Item]
    """What arrived during an open group: placed behind its results."""
    open: dict[str, str]
    """The calls of the newest group that have no result: the id shown → the id as it came."""
    tokens: int
    """The estimate of all items, before the correction by reports."""
    shown: int
    """The last event that any request has shown, or -1."""
    sizes: Counter[Role]
    """The estimate by role."""
    answers: int
    """How many of the items are answers."""
    tops: list[int]
    """For each item, the last event that it and all before it stand for."""
    binds_thinking: bool
    """Whether the model was learned to refuse its thinking behind an edit."""
    _bounds: dict[tuple[Item, Callable[[str], int]], tuple[int, int]]
    """The bounds of items that were asked for; copies of a view share them."""
    _summed: tuple[Callable[[str], int], int, Bounds] | None
    """How many of the items are summed, by which count, and their sums."""
    _stubs: dict[int, str]
    _breaks: list[tuple[int, int]]
    """For each edit, the place it changed and its own place: what was said between them now
    follows other words than it did then."""

    def _clear_items(self) -> None:
        self.items, self.waiting, self.open, self._stubs, self._breaks = [], [], {}, {}, []
        self.tokens, self.shown, self.answers = 0, -1, 0
        self.sizes, self.tops, self._summed = Counter(), [], None

    def bound_items(self, after: int, count: Callable[[str], int]) -> Bounds:
        """Sum the items behind an event: their estimates, their bounds, and the plain part."""
        if after >= 0:
            behind = takewhile(lambda item: item.seq > after, reversed(self.items))
            return self._sum_bounds((*behind, *self.waiting), count)
        number, total = 0, _NOTHING
        if self._summed is not None and self._summed[0] is count:
            _, number, total = self._summed
        total = self._sum_bounds(self.items[number:], count, total)
        self._summed = count, len(self.items), total
        return self._sum_bounds(self.waiting, count, total)

    def _sum_bounds(
        self, some: Iterable[Item], count: Callable[[str], int], total: Bounds = _NOTHING
    ) -> Bounds:
        tokens, most, plain = total
        for item in some:
            bound = self._bound_item(item, count)
            tokens, most, plain = tokens + item.tokens, most + bound[0], plain + bound[1]
        return Bounds(tokens, most, plain)

    def bound_item(self, item: Item, count: Callable[[str], int] = count_cautiously) -> int:
        """Count an item's tokens by what decides whether it fits."""
        return self._bound_item(item, count)[0]

    def _bound_item(self, item: Item, count: Callable[[str], int]) -> tuple[int, int]:
        bound = self._bounds.get((item, count))  # each item is read once
        if bound is None:
            if len(self._bounds) > 2 * len(self.items) + _FEW:
                self._bounds.clear()
            bound = self._bounds[item, count] = items.bound_item(item, count)
        return bound

    def waits_for(self, call_id: str) -> bool:
        """Whether a result with this id would be paired."""
        return self._find_open_call(call_id) is not None

    def find_answered_call(self, call_id: str) -> Call | None:
        """Find the open call that a result with this id would answer."""
        shown = self._find_open_call(call_id)
        for item in reversed(self.items):
            if item.role == "model":
                return next((call for call in calls_of(item.parts) if call.id == shown), None)
        return None

    def _append_item(self, item: Item, *, last: int | None = None) -> None:
        """Append an item; `last` is the last event it replaces, if not its own."""
        top = item.seq if last is None else last
        self.tops.append(max(top, self.tops[-1]) if self.tops else top)
        self.items.append(item)
        self._update_totals(item, 1)

    def _take_off(self) -> Item:
        item = self.items.pop()
        self.tops.pop()
        self._summed = None
        self._update_totals(item, -1)
        return item

    def _update_totals(self, item: Item, sign: int) -> None:
        self.tokens += sign * item.tokens
        self.sizes[item.role] += sign * item.tokens
        self.answers += sign * (item.role == "model")

    def _add_or_defer_item(self, item: Item | None) -> None:
        if item is None:
            return
        if self.open:
            self.waiting.append(item)
        else:
            self._append_item(item)

    def _add_answer(self, seq: int, event: ModelSaid) -> None:
        self._close_calls(seq)  # the conversation went on without these results
        parts, came_as = self._own_ids(seq, event)
        if not parts:
            return  # an empty answer, which no provider would accept
        # The model has not answered what it was not shown. What any request has shown stays put.
        seen = max(seq if event.saw is None else event.saw, self.shown)
        unseen: list[Item] = []
        while (
            self.items and self.items[-1].role in ("user", "system") and self.items[-1].seq > seen
        ):
            unseen.append(self._take_off())
        unseen.reverse()
        native = event.native if parts == event.parts else None
        self._append_item(items.make_item(seq, "model", parts, native=native))
        self.open, self.waiting = came_as, unseen
        self._release_waiting_items()

    def _own_ids(self, seq: int, event: ModelSaid) -> tuple[tuple[Part, ...], dict[str, str]]:
        """Return the parts to show, with ids unique in the group, and each id → as it came."""
        parts: list[Part] = []
        came_as: dict[str, str] = {}
        stub = self._stubs.get(seq)
        bare = (Call(call.id, call.name) for call in calls_of(event.parts))
        shown = event.parts if stub is None else (Text(stub), *bare)
        for index, part in enumerate(shown):
            match part:
                case Text(text) if not text.strip():
                    continue
                case Thought() if self._is_bound(part) and self.is_behind_an_edit(seq):
                    continue  # its signature binds it to words that are gone
                case Call(came, name, arguments):
                    own = came.strip() or f"call_{seq}_{index}"
                    while own in came_as:
                        own = f"{own}_{index}"
                    came_as[own] = came
                    parts.append(part if own == came else Call(own, name, arguments))
                case _:
                    parts.append(part)
        if all(isinstance(part, Thought) for part in parts):
            return (), {}
        return tuple(parts), came_as

    def _is_bound(self, thought: Thought) -> bool:
        return bool(thought.signature) and (self.binds_thinking or not thought.free)

    def is_behind_an_edit(self, seq: int) -> bool:
        """Whether an answer now follows other words than it did when it was said."""
        return any(place < seq < edit for place, edit in self._breaks)

    def _find_open_call(self, call_id: str) -> str | None:
        """Find the oldest open call that a result can belong to, by the id it is shown under."""
        for shown, came in self.open.items():
            if call_id == came:
                return shown
        for shown, came in self.open.items():
            if call_id.strip() in (came.strip(), shown):
                return shown
        return None

    def _add_result(self, seq: int, event: ToolReturned) -> None:
        shown = self._find_open_call(event.call_id)
        stub = self._stubs.get(seq)
        if shown is None:
            self._add_or_defer_item(items.make_late_item(seq, event, stub))
            return
        del self.open[shown]
        self._append_item(items.make_result_item(seq, event, stub, call_id=shown))
        self._release_waiting_items()

    def _close_interrupted_call(self, seq: int, call_id: str) -> None:
        shown = self._find_open_call(call_id)
        if shown is not None:
            self._close_call(seq, shown)

    def _close_calls(self, seq: int) -> None:
        for shown in list(self.open):
            self._close_call(seq, shown)

    def _close_call(self, seq: int, shown: str) -> None:
        del self.open[shown]
        # It stands for nothing but its call: folded with that, the event that closed it is silent.
        self._append_item(items.make_lost_item(seq, shown), last=self.tops[-1])
        self._release_waiting_items()

    def _release_waiting_items(self) -> None:
        if not self.open:
            for item in self.waiting:
                self._append_item(item)
            self.waiting = []

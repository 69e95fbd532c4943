"""Items in the order they are shown: every result behind its call, nothing taken for answered.

Knows pairs, ids, and where an item goes that came in the middle of an answer. Refuses to know the
spine, and what is in force besides.
"""

from collections import Counter

from foldline.core import item as items
from foldline.core.item import Item, Role
from foldline.core.log import ModelSaid, ToolReturned
from foldline.core.parts import Call, Part, Text, Thought, calls_of


class ItemRow:
    """The items, and what is still to be placed among them."""

    items: list[Item]
    waiting: list[Item]
    """What arrived during an open group: placed behind its results."""
    open: dict[str, str]
    """The calls of the newest group that have no result: the id shown → the id as it came."""
    tokens: int
    """The estimate of all items, before what reports have taught."""
    shown: int
    """The last event that any request has shown, or -1."""
    sizes: Counter[Role]
    """The same by role."""
    answers: int
    """How many of the items are answers."""
    tops: list[int]
    """For each item, the last event that it and all before it stand for."""
    _stubs: dict[int, str]
    _breaks: list[tuple[int, int]]
    """Of each edit, the place it changed and its own: what came between stands behind other words
    than it was said behind."""

    def _clear(self) -> None:
        self.items, self.waiting, self.open, self._stubs, self._breaks = [], [], {}, {}, []
        self.tokens, self.shown, self.answers = 0, -1, 0
        self.sizes, self.tops = Counter(), []

    def waits_for(self, call_id: str) -> bool:
        """Whether a result with this id would be paired."""
        return self._match(call_id) is not None

    def tool_of(self, call_id: str) -> str:
        """The name of the open call that a result with this id would answer."""
        shown = self._match(call_id)
        for item in reversed(self.items):
            if item.role == "model":
                return next((c.name for c in calls_of(item.parts) if c.id == shown), "")
        return ""

    def _place(self, item: Item, *, last: int | None = None) -> None:
        """At the end; `last` is the last event it stands for, where that is not its own."""
        top = item.seq if last is None else last
        self.tops.append(max(top, self.tops[-1]) if self.tops else top)
        self.items.append(item)
        self._count(item, 1)

    def _take_off(self) -> Item:
        item = self.items.pop()
        self.tops.pop()
        self._count(item, -1)
        return item

    def _count(self, item: Item, sign: int) -> None:
        self.tokens += sign * item.tokens
        self.sizes[item.role] += sign * item.tokens
        self.answers += sign * (item.role == "model")

    def _arrive(self, item: Item | None) -> None:
        if item is None:
            return
        if self.open:
            self.waiting.append(item)
        else:
            self._place(item)

    def _answer(self, seq: int, event: ModelSaid) -> None:
        for shown in list(self.open):
            self._close(seq, shown)  # the conversation went on without these results
        parts, came_as = self._own_ids(seq, event)
        if not parts:
            return  # an empty answer: nothing that a provider would take back
        # What the model was not shown it has not answered. What any request has shown stays put.
        seen = max(seq if event.saw is None else event.saw, self.shown)
        unseen: list[Item] = []
        while (
            self.items and self.items[-1].role in ("user", "system") and self.items[-1].seq > seen
        ):
            unseen.append(self._take_off())
        unseen.reverse()
        native = event.native if parts == event.parts else None
        self._place(items.make(seq, "model", parts, native=native))
        self.open, self.waiting = came_as, unseen
        self._settle()

    def _own_ids(self, seq: int, event: ModelSaid) -> tuple[tuple[Part, ...], dict[str, str]]:
        """The parts that can be shown, ids made unique in the group, and each id → as it came."""
        parts: list[Part] = []
        came_as: dict[str, str] = {}
        stub = self._stubs.get(seq)
        bare = (Call(call.id, call.name) for call in calls_of(event.parts))
        shown = event.parts if stub is None else (Text(stub), *bare)
        for index, part in enumerate(shown):
            match part:
                case Text(text) if not text.strip():
                    continue
                case Thought() if part.signature and self.is_behind_an_edit(seq):
                    continue  # its signature binds it to words that are not there any more: R-24
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

    def is_behind_an_edit(self, seq: int) -> bool:
        """Whether an answer stands behind other words than it was said behind."""
        return any(place < seq < edit for place, edit in self._breaks)

    def _match(self, call_id: str) -> str | None:
        """The oldest open call that a result can belong to, by the id it is shown under."""
        for shown, came in self.open.items():
            if call_id == came:
                return shown
        for shown, came in self.open.items():
            if call_id.strip() in (came.strip(), shown):
                return shown
        return None

    def _result(self, seq: int, event: ToolReturned) -> None:
        shown = self._match(event.call_id)
        stub = self._stubs.get(seq)
        if shown is None:
            self._arrive(items.late(seq, event, stub))
            return
        del self.open[shown]
        self._place(items.result(seq, event, stub, call_id=shown))
        self._settle()

    def _interrupt(self, seq: int, call_id: str) -> None:
        shown = self._match(call_id)
        if shown is not None:
            self._close(seq, shown)

    def _close(self, seq: int, shown: str) -> None:
        del self.open[shown]
        self._place(items.lost(seq, shown))
        self._settle()

    def _settle(self) -> None:
        if not self.open:
            for item in self.waiting:
                self._place(item)
            self.waiting = []

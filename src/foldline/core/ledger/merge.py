"""Facts of two spans as one: the newest of each thing holds, counts add up.

Knows which of two facts about one thing stands. Refuses to know where they came from.

Merging is associative, so frozen folds may be merged in any grouping with the same outcome.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from foldline.core.parts import Fact, FactKind

Facts: TypeAlias = tuple[Fact, ...]


def merge(older: Sequence[Fact], newer: Sequence[Fact]) -> Facts:
    """The facts of two neighbouring spans, in the order of the events they rest on."""
    found: dict[tuple[FactKind, str], Fact] = {}
    for fact in (*older, *newer):
        place = (fact.kind, fact.key)
        before = found.pop(place, None)
        found[place] = fact if before is None else _both(before, fact)
    return tuple(sorted(found.values(), key=lambda fact: fact.seq))


def settled(facts: Sequence[Fact]) -> Facts:
    """Without what only takes back something older, where nothing older is left."""
    return tuple(fact for fact in facts if not (fact.kind == "test" and fact.text == "passed"))


def _both(old: Fact, new: Fact) -> Fact:
    count = old.count + new.count
    match new.kind:
        case "file":
            return _file(old, new, count)
        case "name":  # written by the model once is written, whatever showed it later
            text = new.text and old.text
            return Fact(max(old.seq, new.seq), "name", new.key, text, count)
        case _:
            return msgspec.structs.replace(new, count=count)


def _file(old: Fact, new: Fact, count: int) -> Fact:
    """A read does not undo what was changed; a read of what was gone says that it is back."""
    if new.text.startswith("read"):
        if old.text.startswith(("removed", "moved", "back")):
            return Fact(new.seq, "file", new.key, new.text.replace("read", "back", 1), count)
        if not old.text.startswith("read"):
            return msgspec.structs.replace(old, count=count)
    return msgspec.structs.replace(new, count=count)

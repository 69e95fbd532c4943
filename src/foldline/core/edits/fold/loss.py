"""What a fold takes out of the model's sight: by kind, each with its handle.

Knows items before and words after. Refuses to judge: a person reads this before, or instead of,
undoing it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.core.handles import handle
from foldline.core.item import Item
from foldline.core.log import Folded
from foldline.core.saying import many
from foldline.core.view import View

_KINDS = {
    "user": "user messages",
    "model": "answers",
    "result": "results",
    "system": "instructions",
    "handoff": "earlier records",
    "late": "late results",
}
_LATE = "late"


@dataclass(frozen=True, slots=True)
class Left:
    """One thing that left the window: where it is, and what it took."""

    handle: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What a fold takes out of the model's sight."""

    left: dict[str, tuple[Left, ...]]
    """By kind, oldest first: what is no longer shown as it was."""
    cut: tuple[str, ...]
    """The handles of messages that are quoted only in part."""
    unquoted: tuple[str, ...]
    """The handles of messages that a merged record quoted and this one does not."""
    quoted: int
    """How many messages are still there verbatim."""
    facts: dict[str, int]
    """How many facts of each kind are kept beside them."""
    before: int
    """What the span took, in tokens."""
    after: int
    """What the handoff takes."""
    rewritten: int
    """How often the oldest of it has now been written anew."""
    pays_after: float | None
    """The calls after which it has paid for the cache it broke, where that is known."""

    def __str__(self) -> str:
        lines = [f"{self.before:,} tokens become {self.after:,}"]
        for kind, left in self.left.items():
            first, last = left[0].handle, left[-1].handle
            where = first if first == last else f"{first} … {last}"
            tokens = sum(one.tokens for one in left)
            lines.append(f"{many(len(left), kind.removesuffix('s'))}, {tokens:,} tokens: {where}")
        if self.quoted:
            stay = "stays" if self.quoted == 1 else "stay"
            lines.append(f"{many(self.quoted, 'message')} {stay} verbatim")
        if self.unquoted:
            lines.append(f"no longer quoted: {', '.join(self.unquoted)}")
        if self.cut:
            lines.append(f"cut: {', '.join(self.cut)}")
        if self.facts:
            kept = ", ".join(f"{kind} {n}" for kind, n in self.facts.items())
            lines.append(f"kept as facts: {kept}")
        return "\n".join(lines)


def loss(view: View, fold: Folded) -> Loss:
    """What `fold` takes out of `view`, to which it has not been appended yet."""
    inside = [item for item in view.items if _inside(view, item, fold)]
    gone = [item for item in inside if item.seq not in fold.verbatim]
    merged = (view.fold_at(item.seq) for item in inside if item.role == "handoff")
    quoted = {seq for one in merged for seq in (*one.verbatim, *one.clipped)}
    facts: dict[str, int] = {}
    for fact in fold.facts:
        facts[fact.kind] = facts.get(fact.kind, 0) + 1
    return Loss(
        left={name: found for role, name in _KINDS.items() if (found := _of(gone, role, view))},
        cut=tuple(handle(seq) for seq in fold.clipped),
        unquoted=tuple(handle(s) for s in sorted(quoted - {*fold.verbatim, *fold.clipped})),
        quoted=len(fold.verbatim),
        facts=facts,
        before=fold.before,
        after=fold.after,
        rewritten=fold.rank,
        pays_after=fold.pays_after,
    )


def _inside(view: View, item: Item, fold: Folded) -> bool:
    span = fold.change.span
    lo = view.fold_at(item.seq).change.span.lo if item.state == "folded" else item.seq
    return span.lo <= lo <= (span.hi if span.hi is not None else lo)


def _of(items: Iterable[Item], role: str, view: View) -> tuple[Left, ...]:
    found: list[Left] = []
    for item in items:
        if (_LATE if item.state == "late" else item.role) != role:
            continue
        where = handle(item.seq)
        if item.state == "folded":
            span = view.fold_at(item.seq).change.span
            where = handle(span.lo, span.hi)
        found.append(Left(where, item.tokens))
    return tuple(found)

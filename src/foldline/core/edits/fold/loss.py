"""What a fold takes out of the model's sight, by kind and with handles, for a person to judge."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from foldline.core.edits.fold.handoff import render_narrative
from foldline.core.item import Item
from foldline.core.log import Folded
from foldline.core.names import format_count, format_handle
from foldline.core.view import View

_KINDS = {
    "user": "user messages",
    "model": "answers",
    "result": "results",
    "system": "instructions",
    "handoff": "earlier records",
    "late": "late results",
}


@dataclass(frozen=True, slots=True)
class Left:
    """One item that left the window: its handle, and the tokens it took."""

    handle: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What a fold takes out of the model's sight."""

    left: dict[str, tuple[Left, ...]]
    """What is no longer shown as it was, by kind, oldest first."""
    cut: tuple[str, ...]
    """The handles of messages that are quoted only in part."""
    unquoted: tuple[str, ...]
    """The handles of messages that a merged handoff quoted and this one does not."""
    quoted: int
    """How many messages stay verbatim."""
    facts: dict[str, int]
    """How many facts of each kind are kept."""
    before: int
    """The tokens of the span."""
    after: int
    """The tokens of the handoff."""
    rewritten: int
    """How often its oldest part has been rewritten by merging."""
    pays_after: float | None
    """The calls after which it has paid for the cache it broke, if known."""
    summary: str = ""
    """The narrative that the handoff holds, as the model reads it; "" if it has none."""
    left_out: tuple[str, ...] = ()
    """Why each line of the summarizer's answer that was left out is not proven."""
    answered: int = 0
    """How many lines the summarizer's answer had."""
    no_summary: str = ""
    """Why there is no narrative; "" if there is one, or none was asked for."""

    @property
    def ratio(self) -> float:
        """Tokens before ÷ after."""
        return self.before / self.after if self.after else 0.0

    def describe_left_out(self) -> str:
        """Say how many lines of the summarizer's answer were left out; "" if none was."""
        if not self.left_out:
            return ""
        return f"{len(self.left_out)} of {format_count(self.answered, 'line')} left out: not proven"

    def __str__(self) -> str:
        lines = [f"{self.before:,} tokens become {self.after:,}"]
        for kind, left in self.left.items():
            first, last = left[0].handle, left[-1].handle
            where = first if first == last else f"{first} … {last}"
            tokens = sum(one.tokens for one in left)
            lines.append(
                f"{format_count(len(left), kind.removesuffix('s'))}, {tokens:,} tokens: {where}"
            )
        if self.quoted:
            stay = "stays" if self.quoted == 1 else "stay"
            lines.append(f"{format_count(self.quoted, 'message')} {stay} verbatim")
        if self.unquoted:
            lines.append(f"no longer quoted: {', '.join(self.unquoted)}")
        if self.cut:
            lines.append(f"cut: {', '.join(self.cut)}")
        if self.facts:
            kept = ", ".join(f"{kind} {n}" for kind, n in self.facts.items())
            lines.append(f"kept as facts: {kept}")
        return "\n".join(lines)


def measure_loss(view: View, fold: Folded) -> Loss:
    """Measure what `fold` takes out of `view`, to which it has not been appended yet."""
    inside = [item for item in view.items if _is_inside(view, item, fold)]
    gone = [item for item in inside if item.seq not in fold.verbatim]
    merged = (view.fold_at(item.seq) for item in inside if item.role == "handoff")
    quoted = {seq for one in merged for seq in (*one.verbatim, *one.clipped)}
    return Loss(
        left={
            name: found
            for role, name in _KINDS.items()
            if (found := _list_left_items(gone, role, view))
        },
        cut=tuple(format_handle(seq) for seq in fold.clipped),
        unquoted=tuple(format_handle(s) for s in sorted(quoted - {*fold.verbatim, *fold.clipped})),
        quoted=len(fold.verbatim),
        facts=dict(Counter(fact.kind for fact in fold.facts)),
        before=fold.before,
        after=fold.after,
        rewritten=fold.rank,
        pays_after=fold.pays_after,
        summary=render_narrative(fold.lines),
    )


def _is_inside(view: View, item: Item, fold: Folded) -> bool:
    span = fold.change.span
    lo = view.fold_at(item.seq).change.span.lo if item.state == "folded" else item.seq
    return span.lo <= lo <= (span.hi if span.hi is not None else lo)


def _list_left_items(items: Iterable[Item], role: str, view: View) -> tuple[Left, ...]:
    left: list[Left] = []
    for item in items:
        if ("late" if item.state == "late" else item.role) != role:
            continue
        handle = format_handle(item.seq)
        if item.state == "folded":
            span = view.fold_at(item.seq).change.span
            handle = format_handle(span.lo, span.hi)
        left.append(Left(handle, item.tokens))
    return tuple(left)

"""The picture in words: the rows of its table and the lines below it, the same in every output.

Knows what is worth saying of each part. Refuses to know columns, colours and pixels.
"""

from dataclasses import dataclass
from textwrap import wrap

from foldline.core.budget import Source
from foldline.core.request import Pressure
from foldline.draw.picture import KINDS, Cost, Fill, Fold, Picture, Prefix
from foldline.draw.text import clean

_LEAST = 16  # columns: less is no place for a note
_SOURCES: dict[Source, str] = {
    "user": "as given",
    "provider": "by the provider",
    "learned": "learned from an error",
    "catalogue": "from the catalogue",
    "default": "assumed",
}
_FOLDING: tuple[Pressure, ...] = ("soft", "hard")
_MOST_FOLDS = 5  # told one by one, the newest


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of the table; `fill` None is the sum of those above."""

    fill: Fill | None
    tokens: int
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What stands in the first column."""
        return self.fill or "request"


def usage(drawn: Picture) -> str:
    """The line of A-42: used, window, share."""
    return f"{drawn.total:,} / {drawn.window:,} ({drawn.percent:.1f}%)"


def block(drawn: Picture, *, latest: int, growth: int, turns_left: int | None) -> list[str]:
    """The block of A-43: the window, what turns add to it, and how many more of them fit."""
    sizes = dict(drawn.tiers)
    at = next((sizes[name] for name in _FOLDING if name in sizes), drawn.window)
    rows = (
        f"Used: {drawn.total:,} / {drawn.window:,} tokens ({drawn.percent:.1f}%)",
        f"Latest turn: {latest:,}",
        f"Avg turn: {growth:,}",
        f"Estimated turns remaining: {'unknown' if turns_left is None else f'~{turns_left:,}'}",
        f"Compaction threshold: {100 * at / drawn.window:.0f}%",
    )
    return ["📊 Context Usage:", *(f"  {row}" for row in rows)]


def model(drawn: Picture) -> str:
    """The model's name, which anybody may have chosen."""
    return clean(drawn.model) or "no model yet"


def under(drawn: Picture) -> str:
    """What stands below the title."""
    return (
        f"pressure {drawn.pressure} · policy {clean(drawn.policy)} · "
        f"tokens {drawn.counted} · window {_SOURCES[drawn.source]}"
    )


def rows(drawn: Picture) -> tuple[TableRow, ...]:
    """The request part by part, its sum, and what it leaves of the window."""
    found: list[TableRow] = []
    for kind in KINDS:
        runs = drawn.of(kind)
        if runs:
            found.append(TableRow(kind, sum(run.tokens for run in runs), _notes(drawn, kind)))
    found.append(TableRow(None, drawn.total, (f"room for the conversation: {drawn.room:,}",)))
    found += [
        TableRow(space, size, _why(drawn, space))
        for space, size in drawn.spaces().items()
        if size or space == "free"
    ]
    return tuple(found)


def lines(drawn: Picture) -> tuple[tuple[str, str], ...]:
    """What is said below the table, each with its title."""
    found = [("cache", _cache(drawn.prefix))]
    if drawn.total:
        found.append(("cost", _cost(drawn.cost)))
    if drawn.over:
        found.append(("full", f"{drawn.over:,} tokens too many to be sent as it is"))
    return (*found, *(("note", warning) for warning in drawn.warnings))


def wrapped(notes: tuple[str, ...], columns: int) -> list[str]:
    """Notes on lines of their own where they are long, else side by side."""
    if columns < _LEAST:
        return []
    lines: list[str] = []
    for note in notes:
        joined = f"{lines[-1]}; {note}" if lines else note
        if lines and len(joined) <= columns and not note.startswith("fold"):
            lines[-1] = joined
        else:
            lines += wrap(note, columns, subsequent_indent="  ")
    return lines


def _notes(drawn: Picture, kind: Fill) -> tuple[str, ...]:
    runs = [run for run in drawn.runs if run.kind == kind]
    match kind:
        case "system":
            return ()
        case "handoffs":
            return tuple(_folds(drawn.folds))
        case "tools":
            name = "tool"
        case "results":
            name = "result"
        case _:
            name = "message"
    notes = [_many(sum(run.items for run in runs), name)]
    notes += [
        f"{short.state} {short.items:,}: {short.shown:,} of {short.whole:,} shown"
        for short in drawn.shorts
        if short.kind == kind
    ]
    for state, meaning in (
        ("late", "came after its call was closed"),
        ("interrupted", "no result"),
    ):
        if count := sum(run.items for run in runs if run.state == state):
            notes.append(f"{state} {count:,}: {meaning}")
    return tuple(notes)


def _folds(folds: tuple[Fold, ...]) -> list[str]:
    newest = folds[-_MOST_FOLDS:]
    older = folds[: len(folds) - len(newest)]
    notes = [
        f"fold {fold.span.lo:,}–{fold.span.hi:,}: "  # noqa: RUF001 - from, to
        f"{_many(fold.messages, 'message')}, {fold.before:,} → {fold.after:,}"
        for fold in newest
    ]
    if older:
        sums = (sum(f.messages for f in older), sum(f.before for f in older))
        after = sum(fold.after for fold in older)
        told = f"{_many(len(older), 'older fold')}: {_many(sums[0], 'message')}"
        notes.insert(0, f"{told}, {sums[1]:,} → {after:,}")
    return notes


def _why(drawn: Picture, space: Fill) -> tuple[str, ...]:
    match space:
        case "margin":
            return ("kept for errors of the count",)
        case "closed":
            return (f"the model takes at most {drawn.most:,}",)
        case "reserve":
            return ("kept for the answer",)
        case _:
            return ()


def _cache(prefix: Prefix) -> str:
    if not prefix.kept + prefix.new:
        return "nothing to send yet"
    if not prefix.sent:
        return f"nothing of this was sent before: all {prefix.new:,} tokens are new"
    if prefix.cache == "cold":
        return f"expired: all {prefix.kept + prefix.new:,} tokens are written anew"
    held = "read from the cache" if prefix.cache == "warm" else "read from the cache if it is warm"
    return f"{prefix.kept:,} tokens as last sent, {held}; {prefix.new:,} new"


def _cost(cost: Cost | None) -> str:
    if cost is None:
        return "not known: this model has no price in the catalogue"
    least = "at least " if cost.step is not None else ""
    said = f"next call {least}{_dollars(cost.dollars)} for its input"
    if cost.dollars < cost.uncached:
        said += f", {_dollars(cost.uncached)} if nothing were cached"
    if cost.assumed:
        said += "; price of cached reads assumed"
    if cost.step is not None:
        said += f"; above {cost.step:,} every token costs more"
    return said


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"

"""Outlines: a text as many pieces of one kind, of which the important ones stay verbatim.

Every line that is written is a piece of the text, or our own in brackets. What is left out is
counted where it stood: `[cut: 12 lines]`. So pieces kept and pieces counted make up the text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice, pairwise, takewhile

from foldline.core.names import format_count
from foldline.core.tokens import count_tokens

_BLANK = 3  # characters of a single piece that costs less than counting it
_LEAST_WIDTH = 160  # characters of a piece that are quoted at least
_DETAIL = 12  # tokens in which a small gap is described
_BEGINNING = 160  # characters of a piece that is too wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The pieces of a text, and which of them matter most."""

    kind: str
    """What it is, in one or two words: `test run`."""
    pieces: Sequence[str]
    order: Iterable[int]
    """Places of pieces, the most important first; pieces that it does not name come last."""
    noun: str = "line"
    facts: tuple[str, ...] = ()
    """What is said of the whole, one line each."""
    notes: Mapping[int, str] = field(default_factory=dict[int, str])
    """What is said of single pieces, if they are kept."""
    describe: Callable[[int, int, int], str] | None = None
    """Says what is between two places, in at most so many tokens."""
    details: float = 0.0
    """The share of tokens for what `describe` says."""
    before: str = ""
    after: str = ""
    """What surrounds the pieces; both stay."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """An outline as it is shown, and some of what it leaves out."""

    text: str
    cut: str


def write_outline(outline: Outline, tokens: int, *, look: int) -> Shortened | None:
    """Write an outline within `tokens`; None if nothing of it fits.

    `look` is the number of characters that are returned of what was left out.
    """
    draft = _Draft(outline, _LEAST_WIDTH + tokens // 2)
    order = draft.list_order(2 * tokens)
    kept = _choose_pieces(draft, order, tokens - int(tokens * outline.details))
    if kept is None:
        return None
    details = draft.describe_gaps(kept, tokens)
    if details:
        # What descriptions did not need is for more pieces.
        used = sum(count_tokens(one) + 1 for one in details.values())
        more = _choose_pieces(draft, order, tokens - used - used // 4)
        if more is not None and len(more) > len(kept):
            kept = more
            details = draft.describe_gaps(kept, tokens)
    text = draft.render(kept, details)
    if count_tokens(text) > tokens:
        text = draft.render(kept, {})
    return Shortened(text, draft.join_cut(kept, look)) if kept or details else None


def _choose_pieces(draft: "_Draft", order: Sequence[int], tokens: int) -> list[int] | None:
    """Choose as many pieces in order as fit, and return them as they stand in the text."""
    costs = accumulate(count_tokens(draft.show_piece(place)) for place in order)
    low, high = 0, sum(1 for _ in takewhile(lambda cost: cost <= tokens, costs))
    if count_tokens(draft.render([], {})) > tokens:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(draft.render(sorted(order[:middle]), {})) <= tokens:
            low = middle
        else:
            high = middle - 1
    return sorted(order[:low])


@dataclass(frozen=True, slots=True)
class _Draft:
    """An outline, and the width up to which a piece is shown whole."""

    outline: Outline
    width: int

    def list_order(self, most: int) -> list[int]:
        """List at most so many places: those that the outline names, then the others."""
        size = len(self.outline.pieces)
        found: dict[int, None] = {}
        for place in chain(self.outline.order, _iterate_from_ends(size)):
            found[place] = None
            if len(found) >= min(most, size):
                break
        return [*found]

    def is_wide(self, place: int) -> bool:
        return len(self.outline.pieces[place]) > self.width

    def show_piece(self, place: int) -> str:
        """Show a piece, or the beginning of one that is too wide."""
        piece = self.outline.pieces[place]
        if not self.is_wide(place):
            return piece
        beginning = " ".join(piece[:_BEGINNING].split())
        return f"[cut: 1 {self.outline.noun} of {len(piece):,} characters] {beginning}"

    def list_gaps(self, kept: Sequence[int]) -> list[tuple[int, int]]:
        """List the runs of pieces that are left out: the first of each, and where it ends."""
        bounds = (-1, *kept, len(self.outline.pieces))
        pairs = pairwise(bounds)
        return [(a + 1, b) for a, b in pairs if b > a + 1 and not self.is_blank(a + 1, b)]

    def is_blank(self, lo: int, hi: int) -> bool:
        """Whether a gap costs less if it is filled."""
        return hi == lo + 1 and len(self.outline.pieces[lo]) <= _BLANK

    def render(self, kept: Sequence[int], details: Mapping[int, str]) -> str:
        outline = self.outline
        wide = sum(1 for place in kept if self.is_wide(place))
        left = sum(hi - lo for lo, hi in self.list_gaps(kept)) + wide
        total = format_count(len(outline.pieces), outline.noun)
        lines = [f"[{outline.kind}: {total}, {left:,} left out]"]
        lines += [f"[{fact}]" for fact in outline.facts]
        lines += [outline.before] if outline.before else []
        at = 0
        for place in (*kept, len(outline.pieces)):
            said = [outline.notes[place]] if place in outline.notes else []
            if place > at and self.is_blank(at, place):
                lines.append(outline.pieces[at])
            elif place > at:
                said.insert(
                    0, f"cut: {format_count(place - at, outline.noun)}{details.get(at, '')}"
                )
            lines += [f"[{'; '.join(said)}]"] if said else []
            lines += [self.show_piece(place)] if place < len(outline.pieces) else []
            at = place + 1
        lines += [outline.after] if outline.after else []
        return "\n".join(lines)

    def describe_gaps(self, kept: Sequence[int], tokens: int) -> dict[int, str]:
        """Describe what is left out, the largest gaps first, as far as there is room."""
        describe = self.outline.describe
        if describe is None:
            return {}
        room = tokens - count_tokens(self.render(kept, {})) - 1
        gaps = sorted(self.list_gaps(kept), key=lambda gap: (gap[0] - gap[1], gap[0]))
        left = sum(hi - lo for lo, hi in gaps)
        details: dict[int, str] = {}
        for at, (lo, hi) in enumerate(gaps):
            others = min(_DETAIL * (len(gaps) - at - 1), room // 2)  # what smaller ones need
            own = min(max(room * (hi - lo) // left, _DETAIL), room - others)
            said = describe(lo, hi, own - 2)
            cost = count_tokens(f", {said}")
            left -= hi - lo
            if said and cost <= own:
                details[lo] = f", {said}"
                room -= cost
        return details

    def join_cut(self, kept: Sequence[int], look: int) -> str:
        """Join pieces that are left out, up to `look` characters."""
        pieces = self.outline.pieces
        found: list[str] = []
        for place in chain.from_iterable(range(*gap) for gap in self.list_gaps(kept)):
            found.append(pieces[place][:look])
            look -= len(pieces[place]) + 1
            if look < 0:
                break
        return "\n".join(found)


def _iterate_from_ends(size: int) -> Iterator[int]:
    """Yield all places: two from the beginning, one from the end, and so on."""
    first, last = 0, size - 1
    while first <= last:
        yield from range(first, min(first + 2, last + 1))
        first += 2
        if first <= last:
            yield last
        last -= 1


def list_ends(size: int, first: int = 2, last: int = 3) -> tuple[int, ...]:
    """List the places of the ends: titles, and how it ended."""
    return (*range(min(first, size)), *range(max(size - last, first, 0), size))


def iterate_in_turn(groups: Iterable[Sequence[int]], *, step: int = 1) -> Iterator[int]:
    """Yield the first places of every group, then the next ones of every group, and so on."""
    waiting = [iter(group) for group in groups]
    while waiting:
        left: list[Iterator[int]] = []
        for group in waiting:
            some = [*islice(group, step)]
            yield from some
            if len(some) == step:
                left.append(group)
        waiting, step = left, 2 * step


def join_within(words: Iterable[str], tokens: int, *, by: str = ", ") -> str:
    """Join as many words as fit into `tokens`, with a mark where some are missing."""
    kept: list[str] = []
    tokens -= 2
    for word in words:
        tokens -= count_tokens(f"{by}{word}")
        if tokens < 0:
            return f"{by.join(kept)}{by}…" if kept else ""
        kept.append(word)
    return by.join(kept)

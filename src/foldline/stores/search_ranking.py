"""How a search ranks messages: BM25 over posting lists that every store keeps in the same form.

A posting says that a term stands in the message at a place, and how much it counts there (BM25's
saturated frequency, from 1 to 255). The postings of one term in `BLOCK` places of a session are one
row: (term, session, block) → body. A store keeps these rows, finds those of a query's terms, and
has them ranked here. So all stores return the same messages in the same order.

    score = sum over the query's terms of  ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + norm)
    norm  = K1 * (1 - B + B * length / LENGTH)

N is the number of messages in the scope (a session, an owner's sessions, a tenant's), n that of
messages with the term, f how often it stands in the message, length its characters. The average
length is a constant, so that a posting never changes after it was written. Equal scores: the
session that changed last comes first, and in it the newest place.
"""

import hashlib
import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from math import log
from typing import NamedTuple

from foldline.stores.base import Found
from foldline.stores.search_terms import list_token_terms, split_tokens

BLOCK = 4_096
"""Places whose postings are one row."""
SPOKEN = ("user_said", "model_said", "tool_returned")
"""The kinds of rows that a search finds."""
EVERY = 0
"""The term that every message has: its postings count the messages of a scope."""
MOST_PLACES = 2_000
"""From this many candidates on (or the limit, if that is more), a commoner word adds no further
ones: then a message that has none of the query's rarer words may be missed. The messages of the
rarest word are always all ranked."""
_K1, _B, _LENGTH = 1.2, 0.75, 600
_STEP = 64  # characters by which lengths differ: short messages are alike, and the newest is first
_FULL = 255
_FINE = 1_000  # weights are whole numbers: sums do not depend on the order of addition
_PLACES = 32  # bits of a place; those above are the number of its session
_SEQ = 2**_PLACES - 1


class PostingRow(NamedTuple):
    """The postings of one term in one block of a session."""

    term: int
    session: str
    changed: float
    """When the session changed last."""
    block: int
    messages: int
    """How many postings it has."""
    body: bytes
    """Empty for `EVERY`, of which only the count is needed."""


class _BlockPostings(dict[str, Callable[[int], object]]):
    """The postings of a block; for each token, what adds a place to the lists of its terms.

    A place stands in a term's list as often as the term in the message. So a message is added
    without a look at its terms one by one, which would be most of the time that indexing takes.
    """

    def __init__(self, only: Collection[int] | None) -> None:
        super().__init__()
        self._only = only
        self._places: dict[int, list[int]] = {EVERY: []}
        self._once: dict[int, int] = {}
        self._norms: dict[int, float] = {}

    def __missing__(self, token: str) -> Callable[[int], object]:
        terms = (one for one in list_token_terms(token) if self._only is None or one in self._only)
        adds = [self._places.setdefault(term, []).append for term in terms]
        add = self[token] = adds[0] if len(adds) == 1 else lambda at: [one(at) for one in adds]
        return add

    def add_message(self, at: int, text: str) -> None:
        """Add the postings of a message."""
        tokens = split_tokens(text)
        if not tokens:
            return
        self._places[EVERY].append(at)
        norm = self._norms[at] = _K1 * (1 - _B + _B * (len(text) // _STEP * _STEP) / _LENGTH)
        self._once[at] = at << 8 | max(round(_FULL / (1 + norm)), 1)
        for add in map(self.__getitem__, tokens):
            add(at)

    def iterate_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield each term with its postings."""
        once = self._once
        for term, places in self._places.items():
            if len({*places}) == len(places):
                row = array("I", map(once.__getitem__, places))
            else:
                counts = Counter(places).items()
                row = array("I", (once[at] if n == 1 else self._weigh(at, n) for at, n in counts))
            yield term, _swap_bytes(row).tobytes()

    def _weigh(self, at: int, count: int) -> int:
        return at << 8 | max(round(_FULL * count / (count + self._norms[at])), 1)


class PostingBatch:
    """The postings of messages, given in the order of their places; of all terms, or some."""

    def __init__(self, only: Collection[int] | None = None) -> None:
        self._only = None if only is None else {*only}
        self._blocks: dict[int, _BlockPostings] = {}

    def add_message(self, seq: int, text: str) -> None:
        """Add the postings of a message."""
        block = self._blocks.get(seq // BLOCK)
        if block is None:
            block = self._blocks[seq // BLOCK] = _BlockPostings(self._only)
        block.add_message(seq % BLOCK, text)

    def rank_messages(self, session: str, limit: int) -> list[Found]:
        """Rank these messages, all of one session, by the terms of this batch."""
        rows = (
            PostingRow(term, session, 0.0, block, len(body) // 4, body)
            for term, block, body in self.list_rows()
        )
        return rank_postings(rows, limit)

    def list_rows(self, mark: int = 0) -> list[tuple[int, int, bytes]]:
        """List (term, block, body) in order; `mark` is mixed into every term."""
        return sorted(
            (term ^ mark, number, body)
            for number, block in self._blocks.items()
            for term, body in block.iterate_rows()
            if body
        )


def _swap_bytes(row: "array[int]") -> "array[int]":
    """Swap bytes on a machine that needs it: bodies are little-endian everywhere."""
    if sys.byteorder == "big":
        row.byteswap()
    return row


def find_block_end(seq: int) -> int:
    """Return the last place of the block that a place is in."""
    return seq | BLOCK - 1


def mark_tenant(tenant: str) -> int:
    """Return what is mixed into a tenant's terms, so that no row of an index is of two tenants."""
    digest = hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def rank_postings(rows: Iterable[PostingRow], limit: int) -> list[Found]:
    """Rank the messages that have a query's terms, best first; `rows` are all of the scope."""
    documents, found = 0, dict[int, list[PostingRow]]()
    for row in rows:
        if row.term == EVERY:
            documents += row.messages
        else:
            found.setdefault(row.term, []).append(row)
    if not found or limit < 1:
        return []
    times = {row.session: row.changed for some in found.values() for row in some}
    sessions = sorted(times, key=lambda one: (times[one], one))
    numbers = {session: at << _PLACES for at, session in enumerate(sessions)}
    terms = sorted(
        (_TermPostings(some, documents, numbers) for some in found.values()),
        key=lambda one: (one.count, one.term),
    )
    scores = _score_places(terms, limit)
    best = nlargest(limit, ((score, place) for place, score in scores.items()))
    return [
        Found(sessions[place >> _PLACES], place & _SEQ, round(score / _FULL / _FINE, 3))
        for score, place in best
    ]


class _TermPostings:
    """A term's postings in the scope, by the number of their block."""

    def __init__(
        self, rows: Sequence[PostingRow], documents: int, numbers: Mapping[str, int]
    ) -> None:
        self.term = rows[0].term
        self.count = sum(row.messages for row in rows)
        rarity = log(1 + (documents - self.count + 0.5) / (self.count + 0.5))
        self.weight = max(round(rarity * _FINE), 1)
        self.most = self.weight * _FULL
        self._blocks: dict[int, array[int]] = {}
        for row in rows:
            block = array("I")
            block.frombytes(row.body)
            self._blocks[numbers[row.session] + row.block * BLOCK] = _swap_bytes(block)

    def add_scores(self, scores: dict[int, int]) -> None:
        """Add this term's share to the scores of all places that have it."""
        weight, known = self.weight, scores.get
        for start, block in self._blocks.items():
            for posting in block:
                place = start + (posting >> 8)
                scores[place] = known(place, 0) + weight * (posting & _FULL)

    def raise_scores(self, scores: dict[int, int]) -> None:
        """Add this term's share to the scores of the places that are there already."""
        weight, blocks = self.weight, self._blocks
        for place in scores:
            block = blocks.get(place & -BLOCK)
            if block is not None:
                wanted = (place & BLOCK - 1) << 8
                at = bisect_left(block, wanted)
                # Postings are in order: this one is of the wanted place, or of a later one.
                if at < len(block) and (impact := block[at] - wanted) <= _FULL:
                    scores[place] += weight * impact


def _score_places(terms: Sequence[_TermPostings], limit: int) -> dict[int, int]:
    """Score the places that may be among the best, by all terms; the terms are rarest first."""
    scores: dict[int, int] = {}
    left = sum(term.most for term in terms)  # the most that the terms not yet added can give
    adding = True
    for term in terms:
        if scores:
            enough = nlargest(limit, scores.values())
            least = enough[-1] if len(enough) == limit else 0
            # A place that has only the terms left cannot reach the best, or there are too many.
            adding = (
                adding and least <= left and len(scores) + term.count <= max(MOST_PLACES, limit)
            )
            if not adding:
                scores = {one: score for one, score in scores.items() if score + left >= least}
        if adding:
            term.add_scores(scores)
        else:
            term.raise_scores(scores)
        left -= term.most
    return scores

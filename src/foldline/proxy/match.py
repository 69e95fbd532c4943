"""What a request makes of its log: what both begin with, what is new, what it no longer shows.

Knows digests. Refuses to know bytes and stores.

    the log shows:   fold (m1…m4) · m5 · reminder · a5
    a request has:   m1 … m4 · m5 · a5 · m6        →  the reminder is out of sight, m6 is new
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foldline.core.log import Event, Folded
from foldline.proxy.request import ClientRequest
from foldline.session.client_row import ClientMessage, FoldedMessages, Piece


class Match(NamedTuple):
    """What a request makes of a row."""

    common: int
    """How many messages both begin with."""
    fresh: int
    """From which of the request's messages on all is new to the log."""
    dropped: list[ClientMessage]
    """What the request no longer shows."""
    closed: list[int]
    """The folds that the request does not begin with: they must be opened to compare further."""
    asides: list[int]
    """Which system messages of the request are new, by their place in the body."""
    stable: int
    """The last event that stood at the same place in an earlier request, or -1."""
    opened: Mapping[int, Folded] = {}
    """The folds that had to be opened: the request does not begin with them."""
    fetched: Mapping[int, Event] = {}
    """What was read of the log for that."""


def match_row(row: Sequence[Piece], request: ClientRequest, *, shown: int) -> Match:
    """Compare a row with a request; `shown` is the last event that any request has shown."""
    if (quick := _match_whole(row, request, shown=shown)) is not None:
        return quick
    digests, at, stable = request.digests, 0, -1
    rest: list[ClientMessage] = []
    closed: list[int] = []
    asides = Counter(request.described[one].digest for one in request.asides)
    stale: list[ClientMessage] = []
    for index, piece in enumerate(row):
        if isinstance(piece, FoldedMessages):
            # The newest message is always shown.
            fits = piece.chain and at <= piece.upto < len(digests)
            if fits and request.chain[piece.upto - 1] == piece.chain:
                at, stable = piece.upto, piece.last
                continue
        elif piece.is_aside:
            if asides[piece.link] > 0:
                asides[piece.link] -= 1
            else:
                stale.append(piece)
            continue
        elif at < len(digests) and piece.link == digests[at]:
            at += 1
            stable = piece.last if piece.last <= shown else stable
            continue
        behind = row[index:]
        closed = [one.edit for one in behind if isinstance(one, FoldedMessages)]
        rest = [one for one in behind if isinstance(one, ClientMessage) and not one.is_aside]
        for one in behind:
            if isinstance(one, ClientMessage) and one.is_aside:
                if asides[one.link] > 0:
                    asides[one.link] -= 1
                else:
                    stale.append(one)
        break
    kept, fresh = _find_in_order(rest, digests, at)
    dropped = [*stale, *(one for place, one in enumerate(rest) if place not in kept)]
    new = [one for one in request.asides if _take(asides, request.described[one].digest)]
    return Match(at, fresh, dropped, closed, new, stable)


def _match_whole(row: Sequence[Piece], request: ClientRequest, *, shown: int) -> Match | None:
    """The same where a request only adds messages, which is almost always so; else None."""
    at, stable, first = 0, -1, 0
    while first < len(row) and isinstance(fold := row[first], FoldedMessages):
        fits = fold.chain and at <= fold.upto < len(request.chain)
        if not fits or request.chain[fold.upto - 1] != fold.chain:
            return None
        at, stable, first = fold.upto, fold.last, first + 1
    said = [one for one in row[first:] if isinstance(one, ClientMessage) and not one.is_aside]
    end = at + len(said)
    if request.asides or len(said) < len(row) - first:
        return None
    if [one.link for one in said] != request.digests[at:end]:
        return None
    stable = next((one.last for one in reversed(said) if one.last <= shown), stable)
    return Match(end, end, [], [], [], stable)


def _find_in_order(
    rest: Sequence[ClientMessage], digests: Sequence[str], at: int
) -> tuple[set[int], int]:
    """Which of a row's remaining messages a request goes on with, and where it says new ones."""
    kept: set[int] = set()
    place = 0
    while at < len(digests):
        found = next((n for n in range(place, len(rest)) if rest[n].link == digests[at]), None)
        if found is None:
            break
        kept.add(found)
        place, at = found + 1, at + 1
    return kept, at


def _take(left: Counter[str], digest: str) -> bool:
    left[digest] -= 1
    return left[digest] >= 0

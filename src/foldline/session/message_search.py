"""Search for messages: those that a store ranks best, without the question, each with a passage.

The store ranks (`stores.search_ranking`). Here the question itself is left out, messages that say
the same are joined, and of each message the passage is chosen that has most of what was asked for.
A query in double quotes finds only messages with exactly these words.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import log
from typing import NamedTuple

from foldline.session.history import FoundMessage
from foldline.stores import event_log
from foldline.stores.base import Found, Name, Store
from foldline.stores.beside import run_beside
from foldline.stores.search_terms import count_terms, find_terms, fold_letters, list_query_terms

PASSAGE = 240
"""The most characters of a snippet."""
_SPARE, _MOST = 4, 512  # hits asked for beyond the limit, and the most that are read
_NEAR, _NEAR_ASKED = 0.8, 0.5  # shared terms of a question and a message that is just that question
_QUESTION, _LONGER = 3, 4  # terms of a question at least; how much longer its message may be
_READ = 100_000  # characters of a message in which its passage is looked for
_PIECES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - of Chinese
_SLOW = 4  # times as long as other bytes of the same size
_WORD = re.compile(r"[^\W_]+")


class _ReadHit(NamedTuple):
    found: Found
    text: str
    plain: str
    """Its words without case, accents and signs."""


async def search_tenant_messages(  # noqa: PLR0913 - the parameters of the store's search
    store: Store,
    tenant: str,
    words: str,
    *,
    session: str | None = None,
    limit: int = 20,
    owner: str | None = None,
    asked: int | None = None,
) -> list[FoundMessage]:
    """Find messages of a tenant with any of the words, best first.

    `asked` is the place of the session's newest message of a person, which may be the question.
    """
    quoted = re.fullmatch(r'\s*"([^"]*\w[^"]*)"\s*', words)
    phrase = _simplify_text(quoted[1]) if quoted else ""
    wanted = _MOST if phrase else min(limit + _SPARE, max(limit, _MOST))
    while True:
        found = await store.search(tenant, words, session=session, limit=wanted, owner=owner)
        hits = [hit for hit in await _read_hits(store, tenant, found) if _has(hit, phrase)]
        kept = (
            _join_same(hits)
            if phrase
            else await run_beside(partial(_join_others, hits, words, asked))
        )
        if len(kept) >= limit or len(found) < wanted or wanted >= _MOST:
            return await run_beside(partial(_add_snippets, kept[:limit], words))
        wanted = min(wanted * 4, _MOST)


async def _read_hits(store: Store, tenant: str, found: Sequence[Found]) -> list[_ReadHit]:
    """Read the messages of hits; those that were erased meanwhile are left out."""
    read: dict[tuple[str, int], tuple[str, str]] = {}
    for session in {one.session for one in found}:
        spans = sorted((one.seq, one.seq) for one in found if one.session == session)
        for row in await store.read(Name(tenant, session), spans):
            read[session, row.seq] = await run_beside(
                partial(_read_texts, row.body), size=len(row.body) * _SLOW
            )
    there = ((one, read.get((one.session, one.seq), ("", ""))) for one in found)
    return [_ReadHit(one, *texts) for one, texts in there if texts[0]]


def _read_texts(body: bytes) -> tuple[str, str]:
    text = event_log.extract_search_text(body)
    return text, _simplify_text(text)


def _simplify_text(text: str) -> str:
    return f" {' '.join(_WORD.findall(fold_letters(text).casefold()))} "


def _has(hit: _ReadHit, phrase: str) -> bool:
    # Where a script puts no blanks between words, a phrase is inside of a run of letters.
    return (phrase if phrase.isascii() else phrase.strip()) in hit.plain


def _leave_out_question(hits: list[_ReadHit], words: str, asked: int | None) -> list[_ReadHit]:
    """Leave out messages that are just the question, unless nothing else was found."""
    terms = count_terms(words).keys()

    def is_question(hit: _ReadHit) -> bool:
        if len(terms) < _QUESTION or len(hit.text) > _LONGER * len(words):
            return False
        theirs = count_terms(hit.text).keys()
        near = _NEAR_ASKED if hit.found.seq == asked else _NEAR
        return len(terms & theirs) >= near * len(terms | theirs)

    return [hit for hit in hits if not is_question(hit)] or hits


def _join_others(hits: list[_ReadHit], words: str, asked: int | None) -> list[FoundMessage]:
    return _join_same(_leave_out_question(hits, words, asked))


def _join_same(hits: Iterable[_ReadHit]) -> list[FoundMessage]:
    """Join messages with the same words: the newest is kept."""
    kept: dict[str, FoundMessage] = {}
    for found, text, plain in hits:
        one = kept.get(plain)
        if one is None:
            kept[plain] = FoundMessage(found.session, found.seq, text, score=found.score)
            continue
        one = replace(one, same=one.same + 1)
        newer = found.session == one.session and found.seq > one.seq
        kept[plain] = replace(one, seq=found.seq, words=text) if newer else one
    return list(kept.values())


def _add_snippets(found: list[FoundMessage], words: str) -> list[FoundMessage]:
    terms = frozenset(list_query_terms(words))
    pieces = [_PIECES.split(one.words[:_READ]) for one in found]
    held = [[terms & count_terms(piece).keys() for piece in some] for some in pieces]
    in_messages = [frozenset[int]().union(*some) for some in held]
    counts = {term: sum(term in one for one in in_messages) for term in terms}
    weights = {term: log(1 + len(found) / (1 + count)) for term, count in counts.items()}
    return [
        replace(one, snippet=_choose_passage(some, [_weigh(one, weights) for one in theirs], terms))
        for one, some, theirs in zip(found, pieces, held, strict=True)
    ]


def _weigh(terms: Iterable[int], weights: dict[int, float]) -> float:
    return sum(weights[term] for term in sorted(terms))


def _choose_passage(pieces: list[str], weights: list[float], terms: frozenset[int]) -> str:
    """Choose the piece that weighs most, with its neighbours as far as there is room; one line."""
    best = max(range(len(pieces)), key=weights.__getitem__)
    first = last = best
    lines = [" ".join(piece.split()) for piece in pieces]
    if len(lines[best]) > PASSAGE:
        return _cut_passage(lines[best], terms)
    room = PASSAGE - len(lines[best])
    while room > 0:
        after = last + 1 < len(lines) and len(lines[last + 1]) < room
        before = not after and first > 0 and len(lines[first - 1]) < room
        if not after and not before:
            break
        last, first = last + after, first - before
        room -= len(lines[last if after else first]) + 1
    cut = " ".join(line for line in lines[first : last + 1] if line)
    return f"{'…' if first else ''}{cut}{'…' if last + 1 < len(lines) else ''}"


def _cut_passage(line: str, terms: frozenset[int]) -> str:
    """Cut the part of a long line in which most of the terms stand."""
    spots = find_terms(line, terms)
    near = [sum(at <= other < at + PASSAGE for other in spots) for at in spots]
    at = spots[near.index(max(near))] if spots else 0
    start = max(min(at - PASSAGE // 6, len(line) - PASSAGE), 0)
    end = start + PASSAGE
    return f"{'…' if start else ''}{line[start:end].strip()}{'…' if end < len(line) else ''}"

"""The laws of search: every store ranks alike, by its scope alone, and a rare word is always found."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import asynccontextmanager
from math import log

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mutants import broken

from foldline.core.log import UserSaid
from foldline.core.parts import Text
from foldline.session.message_search import PASSAGE, search_tenant_messages
from foldline.stores import event_log, search_terms
from foldline.stores.base import Found, Name
from foldline.stores.encryption import CryptStore
from foldline.stores.postgres import PostgresStore
from foldline.stores.search_ranking import EVERY, PostingBatch
from foldline.stores.sqlite import SqliteStore

SERVER = os.environ.get("FOLDLINE_PG", "postgresql:///test?host=127.0.0.1")
WORDS = [
    "lamp", "lamps", "Lampe", "oil", "oiled", "the", "who", "parse_count", "parseCount", "a/b.py",
    "café", "cafe", "東京", "東京都庁", "ทดสอบ", "한국어", "12", "x-12", "AND", "NEAR(", "*", '"', "\0", "it's",
]  # fmt: skip
said = st.lists(st.sampled_from(WORDS), min_size=0, max_size=6).map(" ".join) | st.text(max_size=12)
logs = st.lists(said, min_size=1, max_size=12)
queries = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join) | st.text(max_size=8)
few = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
until_seen = settings(few, database=None, phases=[Phase.generate], report_multiple_bugs=False)
"""For a mutant: the first example that shows it is enough, and nobody reads it."""


def drafted(texts: Sequence[str]) -> list[UserSaid]:
    """Messages; what no store takes as text is replaced."""
    return [UserSaid((Text(text.replace("\ud800", "?")),)) for text in texts]


def ranked_plainly(texts: Sequence[str], query: str) -> list[int]:
    """The places that a search finds, by the definition: no index, no bound, no pruning."""
    terms = search_terms.list_query_terms(query)
    counts = [search_terms.count_terms(text) for text in texts]
    every = sum(bool(search_terms.split_tokens(text)) for text in texts)
    scores: dict[int, int] = {}
    for term in terms:
        having = sum(term in one for one in counts)
        weight = max(round(log(1 + (every - having + 0.5) / (having + 0.5)) * 1_000), 1)
        for at, one in enumerate(counts):
            if term in one:
                norm = 1.2 * (0.25 + 0.75 * (len(texts[at]) // 64 * 64) / 600)
                scores[at] = scores.get(at, 0) + weight * max(round(255 * one[term] / (one[term] + norm)), 1)  # fmt: skip
    return sorted(scores, key=lambda at: (-scores[at], -at))


def rank(texts: Sequence[str], query: str, limit: int = 99) -> list[Found]:
    """A search without a store."""
    batch = PostingBatch(search_terms.list_query_terms(query))
    for at, text in enumerate(texts):
        batch.add_message(at, text)
    return batch.rank_messages("one", limit)


RANKED = (logs, queries, st.integers(1, 9))


def check_ranks(texts, query, limit):
    wanted = ranked_plainly(texts, query)
    assert [hit.seq for hit in rank(texts, query)] == wanted
    assert [hit.seq for hit in rank(texts, query, limit)] == wanted[:limit]


@given(*RANKED)
def test_a_search_ranks_by_the_definition(texts, query, limit):
    check_ranks(texts, query, limit)


PRUNED = (
    st.lists(st.sampled_from(["lamp", "oil", "lamp oil", "rare", "rare lamp", "oil " * 40]), min_size=30, max_size=90),
    st.just("rare lamp oil"),
    st.integers(1, 5),
)  # fmt: skip


@given(*PRUNED)
def test_pruning_changes_nothing(texts, query, limit):
    """Many candidates, few wanted: what is left out could not have been among the best."""
    check_ranks(texts, query, limit)


@given(logs, st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1, max_size=9))
def test_a_rare_word_is_always_found(texts, word):
    everywhere = [*texts, f"before {word} behind", *texts]
    assert len(texts) in [hit.seq for hit in rank(everywhere, word)]


@given(st.text(), st.text())
def test_no_text_is_too_odd(text, query):
    terms = search_terms.list_query_terms(query)
    assert len(terms) <= search_terms.MOST_TERMS
    assert EVERY not in search_terms.count_terms(text)
    rank([text, query, text], query)
    assert search_terms.find_terms(text, set(terms)) == sorted(search_terms.find_terms(text, terms))


@given(st.text(alphabet="abcdegilnsxyz", min_size=1, max_size=12))
def test_a_word_and_its_plain_forms_are_one(word):
    stem = search_terms.stem_word(word)
    assert stem
    assert len(stem) >= min(len(word), 3)
    if len(word) > 3 and word[-1] not in "aeiouysxzh":
        assert search_terms.stem_word(f"{word}s") == stem


def test_words_and_their_forms():
    forms = {
        "store": "stores stored storing", "plan": "plans planned planning", "company": "companies",
        "class": "classes", "try": "tries tried", "match": "matches matched", "call": "called calling",
    }  # fmt: skip
    for word, others in forms.items():
        assert {search_terms.stem_word(one) for one in others.split()} <= {
            search_terms.stem_word(word),
            f"{word[:-1]}y",
        }, word
    for alone in ("thing", "need", "bus", "this", "red", "sing", "analysis"):
        assert search_terms.stem_word(alone) == alone


def test_a_megabyte_of_a_word():
    long = "x" * 1_000_000
    assert [hit.seq for hit in rank(["other", long, "x"], long)] == [1]


@asynccontextmanager
async def three_stores():
    """SQLite, SQLite inside of encryption, and PostgreSQL."""
    made = f"foldline_laws{os.getpid()}"
    inner, bare = SqliteStore(":memory:"), SqliteStore(":memory:")
    server = PostgresStore(f"{SERVER}{'&' if '?' in SERVER else '?'}schema={made}")
    try:
        yield [bare, CryptStore(inner, bytes(32)), server]
    finally:
        for store in (bare, inner, server):
            await store.close()
        with psycopg.connect(SERVER, autocommit=True) as owner:
            owner.execute(f"drop schema if exists {made} cascade".encode())
            owner.execute(f"drop role if exists {made}_app".encode())


PARTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["alice", "bob"]), logs),
    min_size=1,
    max_size=4,
)
"""Sessions, who claims them, and what is said."""


def check_stores_agree(drawn: settings) -> None:
    """Random logs, scopes and queries on all stores at once."""

    async def play(stores, number, parts, query, limit):
        tenant = f"t{number}"
        for session, owner, texts in parts:
            name = Name(tenant, session)
            for store in stores:
                if (await store.head(name)).seq < 0:
                    await store.claim(name, owner)
                await event_log.append_events(store, name, drafted(texts))
                await store.search(tenant, query, session=session)
        for session in "ab":
            found = [
                await one.search(tenant, query, session=session, limit=limit) for one in stores
            ]
            assert all(one == found[0] for one in found), (session, found)
        plain = [one for one in stores if not isinstance(one, CryptStore)]
        for owner in (None, "alice", "bob"):
            found = [await one.search(tenant, query, owner=owner, limit=limit) for one in plain]
            assert all(one == found[0] for one in found), (owner, found)
            if owner == "alice":  # what others say changes nothing
                for store, before in zip(plain, found, strict=True):
                    other = Name(tenant, "c")
                    await store.claim(other, "carol")
                    await event_log.append_events(store, other, drafted([query, *WORDS]))
                    again = await store.search(tenant, query, owner=owner, limit=limit)
                    assert again == before

    async def run() -> None:
        numbers = iter(range(10_000))
        async with three_stores() as stores:
            loop = asyncio.get_running_loop()

            @drawn
            @given(
                PARTS,
                queries,
                st.integers(1, 9),
            )
            def law(parts, query, limit):
                work = play(stores, next(numbers), parts, query, limit)
                asyncio.run_coroutine_threadsafe(work, loop).result(60)

            await asyncio.to_thread(law)

    asyncio.run(run())


@pytest.mark.real
def test_all_stores_agree():
    check_stores_agree(few)


@given(logs, queries)
@few
def test_messages_are_told_with_a_passage(texts, query):
    async def run():
        store = SqliteStore(":memory:")
        await event_log.append_events(store, Name("t", "s"), drafted(texts))
        hits = await store.search("t", query, session="s", limit=99)
        found = await search_tenant_messages(store, "t", query, session="s", limit=99)
        await store.close()
        return hits, found

    hits, found = asyncio.run(run())
    assert bool(hits) == bool(found) or query.strip().startswith('"')
    for one in found:
        assert one.handle == f"log:{one.seq}"
        assert "\n" not in one.snippet
        assert len(one.snippet) <= PASSAGE + 2
    assert len({one.seq for one in found}) == len(found)


RANKING = "foldline.stores.search_ranking"
MUTANTS = [
    ("the oldest first", RANKING, "nlargest(limit, ((score, place) for", "nlargest(limit, ((score, -place) for", RANKED),
    ("a common word counts as much", RANKING, "round(rarity * _FINE)", "_FINE", PRUNED),
    ("a long message counts as much", RANKING, "(len(text) // _STEP * _STEP)", "64", PRUNED),
    ("often counts as once", RANKING, "once[at] if n == 1 else", "once[at] if n else", RANKED),
    ("a place beside counts", RANKING, "(impact := block[at] - wanted) <= _FULL", "(impact := block[at] - wanted) <= 1_000", PRUNED),
    ("pruned by what is there", RANKING, "if score + left >= least", "if score > least", PRUNED),
    ("adding ends too early", RANKING, "adding and least <= left and", "adding and False and", PRUNED),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one[0] for one in MUTANTS])
def test_a_broken_ranking_is_seen(mutant):
    _, module, line, instead, strategies = mutant
    with (
        broken(module, line, instead),
        pytest.raises((AssertionError, BaseExceptionGroup)),
    ):
        settings(until_seen, max_examples=3_000)(given(*strategies)(check_ranks))()


STORES = [
    ("SQLite counts other messages", "foldline.stores.sqlite.session_rows", "search_ranking.PostingRow(row[0] ^ mark, *row[1:])", "search_ranking.PostingRow(row[0] ^ mark, *row[1:4], row[4] * 2, row[5])"),
    ("encryption looks at fewer terms", "foldline.stores.encryption", "batch = PostingBatch(terms)", "batch = PostingBatch(terms[:1])"),
    ("other owners are in the scope", "foldline.stores.sqlite.session_rows", "for column, value in columns.items() if value is not None", 'for column, value in columns.items() if value is not None and column != "owner"'),
]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("mutant", STORES, ids=[one[0] for one in STORES])
def test_a_store_of_its_own_is_seen(mutant):
    with broken(*mutant[1:]), pytest.raises((AssertionError, BaseExceptionGroup)):
        check_stores_agree(settings(until_seen, max_examples=30))

"""The conformance suite finds a store that breaks its promises: one line broken at a time."""

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from mutants import broken

from foldline.errors import FoldlineError
from foldline.stores.sqlite import SqliteStore
from foldline.testing.stores import Conformance


class Mutant(NamedTuple):
    """A broken store, and the test that must see it."""

    what: str
    module: str
    line: str
    instead: str
    test: str


MUTANTS = [
    Mutant("the end is not compared", "session_rows", "if after is not None and after != found.head:", "if False:", "an_append_is_all_or_nothing"),
    Mutant("the end is not compared for one row", "session_rows", "if after is not None and after != found.head:", "if after is not None and after != found.head and len(draft.rows) > 1:", "an_append_of_one_row_is_compared_too"),
    Mutant("the fence is not compared", "session_rows", "if fence is not None and fence != found.fence:", "if False:", "a_lease_is_one_holders"),
    Mutant("an edit of any time", "session_rows", "and seq > ? and seq <= ? order", "and seq > ? and ? is not null order", "the_newest_edit"),
    Mutant("the oldest edit", "session_rows", "order by seq desc limit 1", "order by seq limit 1", "the_newest_edit"),
    Mutant("lists without a tenant", "retention", "where tenant = ? and session > ?", "where ? is not null and session > ?", "no_other_tenants_strings"),
    Mutant("deliveries are not remembered", "session_rows", 'db.sql("insert into seen values (?, ?, ?)", (found.sid, once, end))', "pass", "once"),
    Mutant("deliveries of all sessions are one list", "session_rows", '"select seq from seen where sid = ? and key = ?", (found.sid, once)', '"select seq from seen where key = ?", (once,)', "once"),
    Mutant("sizes are not counted", "session_rows", "sum(len(row.body) for row in draft.rows)", "0", "sessions_by_pages"),
    Mutant("a head has no past", "session_rows", "end = found.head if at is None else min(at, found.head)", "end = found.head", "the_newest_edit"),
    Mutant("spans are read as they are asked for", "session_rows", "return [rows[seq] for seq in sorted(rows)]", "return list(rows.values())", "spans"),
    Mutant("a hash opens every piece", "session_rows", 'if db.sql("select 1 from pieces where hash = ? and sid = ?", (digest, found.sid)):', "if True:", "large_pieces_are_kept_once"),
    Mutant("a fork has no ancestors", "session_rows", "if found.origin is not None and lo <= found.origin_at:", "if False:", "a_fork_shares_what_was_before"),
    Mutant("a fork sees its ancestor go on", "session_rows", "min(hi, found.origin_at)", "hi", "a_fork_shares_what_was_before"),
    Mutant("a fork has its own edits alone", "session_rows", "while above is not None and end <= above.origin_at:", "while False:", "a_fork_has_the_edits_of_its_ancestors"),
    Mutant("a fork has its parent's edits alone", "session_rows", "while above is not None and end <= above.origin_at:", "while above is found and end <= above.origin_at:", "a_fork_has_the_edits_of_its_ancestors"),
    Mutant("a fork has the oldest of its ancestors' edits", "session_rows", "(above.sid, newest.seq if newest else -1, end)", "(above.sid, -1, end if newest is None else 10)", "a_fork_has_the_edits_of_its_ancestors"),
    Mutant("a fork has its ancestor's later edits", "session_rows", "while above is not None and end <= above.origin_at:", "while above is not None:", "a_fork_sees_no_edit_behind_it"),
    Mutant("a fork copies no pieces", "session_rows", "db.sql(_SHARED, (made.sid, ancestor.sid, made.sid))", "pass", "a_fork_outlives_its_ancestors"),
    Mutant("a fork begins anywhere", "session_rows", "if found is None or at > found.head:", "if found is None:", "a_fork_shares_what_was_before"),
    Mutant("a fork forgets its origin", "session_rows", "(at, size, found.sid, at, name.session, found.floor, found.owner, made.sid)", '(at, size, found.sid, at, "", found.floor, found.owner, made.sid)', "a_fork_shares_what_was_before"),
    Mutant("a fork forgets its owner", "session_rows", "found.floor, found.owner, made.sid)", 'found.floor, "", made.sid)', "a_fork_has_its_origins_owner"),
    Mutant("a head has no owner", "session_rows", "found.trimmed, found.owner)", "found.trimmed)", "an_owner_stays"),
    Mutant("a claim overwrites", "retention", "if found.owner or found.head >= 0:", "if False:", "an_owner_stays"),
    Mutant("a claim overwrites while there is no event", "retention", "if found.owner or found.head >= 0:", "if found.head >= 0:", "an_owner_stays"),
    Mutant("a claim takes what others wrote", "retention", "if found.owner or found.head >= 0:", "if found.owner:", "what_somebody_else_wrote_is_not_claimed"),
    Mutant("a claim brings back what was erased", "connection", "        self.refuse_erased(name)\n", "", "what_was_erased_is_not_claimed"),
    Mutant("lists others' sessions", "retention", "where tenant = ? and owner = ? and session > ?", "where tenant = ? and ? is not null and session > ?", "sessions_of_one_owner"),
    Mutant("lists the owner's of all tenants", "retention", "where tenant = ? and owner = ? and session > ?", "where ? is not null and owner = ? and session > ?", "sessions_of_one_owner"),
    Mutant("searches others' sessions", "session_rows", "for column, value in columns.items() if value is not None", 'for column, value in columns.items() if value is not None and column != "owner"', "a_search_for_one_owner"),
    Mutant("sessions are found without a tenant", "connection", 'self.sql(f"{_SESSION} where tenant = ? and session = ?", name)', 'self.sql(f"{_SESSION} where session = ?", name[1:])', "no_other_tenants_strings"),
    Mutant("erased sessions come back", "connection", "        if rows:\n", "        if False:\n", "erasure"),
    Mutant("a held session is taken", "session_rows", "if found.holder and found.until > now and not mine:", "if False:", "a_lease_is_one_holders"),
    Mutant("a lease never runs out", "session_rows", "if found.holder and found.until > now and not mine:", "if found.holder and not mine:", "a_lease_is_one_holders"),
    Mutant("a renewed lease has a new fence", "session_rows", "fence = found.fence if mine and found.until > now else found.fence + 1", "fence = found.fence + 1", "a_lease_is_one_holders"),
    Mutant("a new lease has the old fence", "session_rows", "fence = found.fence if mine and found.until > now else found.fence + 1", "fence = found.fence", "a_lease_is_one_holders"),
    Mutant("who comes late releases another's lease", "session_rows", "and fence = ? and holder = ?", "and ? is not ?", "a_lease_is_one_holders"),
    Mutant("side values never run out", "session_rows", "(expires is null or expires > ?)", "? > 0", "entries_run_out"),
    Mutant("versions are not compared", "session_rows", "if version is not None and version != (now.version if now else 0):", "if False:", "compare_and_set"),
    Mutant("versions stand still", "session_rows", "next_version = (now.version if now else 0) + 1", "next_version = 1", "compare_and_set"),
    Mutant("side values without a tenant", "session_rows", "select value, version from side where tenant = ? and session = ? and space = ? ", "select value, version from side where ? is not null and session = ? and space = ? ", "no_other_tenants_strings"),
    Mutant("side values come late", "session_rows", "db.refuse_erased(name)", "pass", "erasure"),
    Mutant("a search of all sessions", "session_rows", "for column, value in columns.items() if value is not None", 'for column, value in columns.items() if value is not None and column != "session"', "a_search_knows_only_its_scope"),
    Mutant("the index is made once", "session_rows", "and indexed < head", "and indexed < 0", "search"),
    Mutant("a block is written over", "session_rows", "set body = cast(body || excluded.body as blob)", "set body = excluded.body", "a_search_after_blocks_and_trimming"),
    Mutant("an index ends with its first block", "session_rows", "        while _index_block(db, sid, mark):", "        for _ in range(_index_block(db, sid, mark)):", "a_search_after_blocks_and_trimming"),
    Mutant("a trim leaves its index", "session_rows", 'db.sql("delete from postings where sid = ?", (sid,))', "pass", "a_search_after_blocks_and_trimming"),
    Mutant("a limit that holds nothing back", "session_rows", "rank_postings(found, limit)", "rank_postings(found, 99)", "search"),
    Mutant("retention takes what is held", "retention", "from sessions where tenant = ? and not held ", "from sessions where tenant = ? ", "retention"),
    Mutant("retention of all tenants", "retention", "from sessions where tenant = ? and not held ", "from sessions where ? is not null and not held ", "retention"),
    Mutant("the newest go first", "retention", '"order by changed"', '"order by changed desc"', "retention"),
    Mutant("a dry run erases", "retention", "erase_session(db, Name(tenant, one), dry=dry,", "erase_session(db, Name(tenant, one), dry=False,", "retention"),
    Mutant("a trim forgets what to keep", "retention", "kept = set(keep)", "kept = set()", "a_floor"),
    Mutant("a trim leaves no floor", "retention", "(floor, time.time(), found.sid)", "(0, time.time(), found.sid)", "a_floor"),
    Mutant("no tombstone", "retention", 'db.sql("insert or replace into erased values (?, ?)", (make_tombstone(name), now))', "pass", "erasure"),
    Mutant("side values outlive their session", "retention", 'db.sql("delete from side where tenant = ? and session = ?", name)', "pass", "erasure"),
    Mutant("a piece goes with the first who named it", "retention", "db.sql(_ORPHANS, (digest, digest))", 'db.sql("delete from blobs where hash = ?", (digest,))', "a_piece_stays_while_another_session_names_it"),
]  # fmt: skip
SEEN = (AssertionError, pytest.fail.Exception, FoldlineError, ValueError)
"""How a promise is seen to be broken: SQL that is no SQL would show nothing."""


@contextmanager
def altered(module: str, line: str, instead: str) -> Iterator[None]:
    """Run with a line replaced: in a statement that the module names, or in a function."""
    there = importlib.import_module(module)
    named = {
        n: value for n, value in vars(there).items() if isinstance(value, str) and n[1:].isupper()
    }
    for name, value in named.items():
        if line in value:
            setattr(there, name, value.replace(line, instead))
            try:
                yield
            finally:
                setattr(there, name, value)
            return
    with broken(module, line, instead):
        yield


def asked(test: str) -> None:
    """One test of the suite, on a new store."""

    async def run() -> None:
        store = SqliteStore(":memory:")
        try:
            await getattr(Conformance(), f"test_{test}")(store)
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.what for one in MUTANTS])
def test_a_broken_store_is_seen(mutant):
    asked(mutant.test)
    with (
        altered(f"foldline.stores.sqlite.{mutant.module}", mutant.line, mutant.instead),
        pytest.raises(SEEN),
    ):
        asked(mutant.test)

"""Reads, forks, leases, side values and search in PostgreSQL; one statement each.

Every body is checked against its sha256. The server's clock decides when a lease expires; its
holder counts by its own. A search first indexes what is new. Terms are marked by their tenant: so
an index entry lists one tenant's places only and is never longer for the others'.
"""

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from foldline.errors import BadInput, Conflict, Erased, FormatError
from foldline.stores import event_log, search_ranking, search_terms
from foldline.stores.base import Entry, Found, Head, Lease, Name, Row
from foldline.stores.beside import run_beside
from foldline.stores.postgres.append import (
    BYTEA,
    INT4,
    INT8,
    TEXT,
    UUID_,
    Value,
    build_select,
    encode_values,
    run_binary_statement,
)
from foldline.stores.postgres.connections import (
    Connection,
    Connections,
    build_call_statement,
    sid_of,
)
from foldline.stores.search_ranking import PostingBatch, PostingRow

_HEAD = build_call_statement("head_and_owner", "uuid", "int4")
_READ = build_call_statement("read", "uuid", "int4[]", "int4[]")
_PIECES = build_call_statement("pieces", "uuid", "text[]")
_FORK = build_call_statement("fork", "uuid", "uuid", "text", "text", "int4", "int4[]", "int4[]")
_MOST = 2**31 - 1  # the largest possible place
_EACH = 400  # bytes that take as long to read as a row


async def read_head(db: Connections, name: Name, *, at: int | None = None) -> Head:
    """Return where a log ends; rows after `at` are ignored."""
    place = None if at is None else min(at, _MOST)
    ((owner, end, floor, trimmed, *edit),) = await db.run_statement(
        _HEAD, name.tenant, sid_of(name), place, again=True
    )
    if end is None:
        return Head()
    return Head(end, None if edit[0] is None else _decode_row(name, edit), floor, trimmed, owner)


async def read_rows(db: Connections, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
    """Return the rows of spans in order; a fork's include its ancestors'."""
    los, his = _split_spans(spans)
    columns = await db.run_statement(_READ, name.tenant, sid_of(name), los, his, again=True)
    size = sum(len(row[5]) for row in columns) + len(columns) * _EACH
    return await run_beside(partial(_decode_rows, name, columns), size=size)


def _decode_rows(name: Name, columns: Sequence[Sequence[Any]]) -> list[Row]:
    rows: dict[int, Row] = {}
    for row in columns:  # a session's own rows come before its ancestors'
        if row[0] not in rows:
            rows[row[0]] = _decode_row(name, row)
    return [rows[seq] for seq in sorted(rows)]


async def read_blobs(db: Connections, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
    """Return the pieces that this session or an ancestor refers to: a hash alone opens nothing."""
    rows = await db.run_statement(_PIECES, name.tenant, sid_of(name), list(hashes), again=True)
    return dict(rows)


async def fork_session(
    db: Connections, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]
) -> None:
    """Create a session that continues after `at`, with the rows of `keep` copied."""
    new = sid_of(Name(name.tenant, to))
    los, his = _split_spans(keep)
    place = min(at, _MOST)
    ((outcome, head, moment),) = await db.run_statement(
        _FORK, name.tenant, sid_of(name), new, name.session, to, place, los, his
    )
    match outcome:
        case 1:
            raise Conflict.make_name_conflict(to, head)
        case 2:
            raise BadInput(f"session {name.session!r} has no place {at} to fork at")
        case 3:
            raise Erased(to, moment)
        case _:
            return


def _split_spans(spans: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [max(lo, 0) for lo, _ in spans], [min(hi, _MOST) for _, hi in spans]


def _decode_row(name: Name, columns: Sequence[Any]) -> Row:
    seq, kind, edit, moment, sha256, body = columns[:6]
    if hashlib.sha256(body).digest() != sha256:
        raise FormatError(
            f"the event at {seq} of {name.session!r} is not what was written: "
            "its sha256 is another; restore a backup"
        )
    return Row(kind, body, edit, seq, moment)


_LEASE = build_call_statement("lease", "uuid", "text", "text", "float8")
_RELEASE = build_call_statement("release", "uuid", "text", "int8")
_GET = build_call_statement("get", "uuid", "text", "text")
_PUT = build_call_statement("put", "uuid", "text", "text", "bytea", "int8", "float8")
_ERASED = 3


async def take_lease(db: Connections, name: Name, holder: str, *, seconds: float) -> Lease | None:
    """Take or renew the lease of a session; None while another holds it."""
    before = time.time()  # read before the server's clock: we never think we hold it for longer
    ((outcome, fence, moment),) = await db.run_statement(
        _LEASE, name.tenant, sid_of(name), name.session, holder, float(seconds), again=True
    )
    if outcome == _ERASED:
        raise Erased(name.session, moment)
    return None if outcome else Lease(name, holder, fence, before + seconds)


async def release_lease(db: Connections, lease: Lease) -> None:
    """Release a lease; does nothing if it has expired."""
    name = lease.name
    await db.run_statement(
        _RELEASE, name.tenant, sid_of(name), lease.holder, lease.fence, again=True
    )


async def find_entry(db: Connections, name: Name, space: str, key: str) -> Entry | None:
    """Return a side value unless it has expired."""
    rows = await db.run_statement(_GET, name.tenant, sid_of(name), space, key, again=True)
    return Entry(*rows[0]) if rows else None


async def put_entry(  # noqa: PLR0913 - a side table is a table
    db: Connections,
    name: Name,
    space: str,
    key: str,
    value: bytes | None,
    *,
    version: int | None = None,
    seconds: float | None = None,
) -> bool:
    """Set or remove (None) a side value; with `version` only if it is current (0: no entry)."""
    lasting = None if seconds is None else float(seconds)
    ((outcome, moment),) = await db.run_statement(
        _PUT, name.tenant, sid_of(name), space, key, value, version, lasting
    )
    if outcome == _ERASED:
        raise Erased(name.session, moment)
    return outcome == 0


_MOMENT = 0.1  # seconds of indexing before somebody must still wait for it
_UNINDEXED = build_call_statement("unindexed_sessions", "uuid")
_SPOKEN = build_call_statement("spoken_between", "uuid", "int4", "int4")
_POST = (TEXT, UUID_, INT4, INT4, INT8, INT4, BYTEA)
_POSTINGS = build_call_statement("postings_of", "uuid", "text", "int8", "int8[]")


async def search_index(  # noqa: PLR0913 - what the port narrows a search by
    db: Connections,
    tenant: str,
    words: str,
    *,
    session: str | None = None,
    limit: int = 20,
    owner: str | None = None,
) -> list[Found]:
    """Search what is indexed; `index_some` first indexes what is new."""
    terms = search_terms.list_query_terms(words)
    within = None if session is None else sid_of(Name(tenant, session))
    mark = search_ranking.mark_tenant(tenant)
    every = search_ranking.EVERY ^ mark
    marked = [every, *(term ^ mark for term in terms)]
    rows = await db.run_statement(_POSTINGS, tenant, within, owner, every, marked, again=True)
    found = (PostingRow(row[0] ^ mark, *row[1:]) for row in rows)
    return await run_beside(partial(search_ranking.rank_postings, found, limit))


async def index_some(db: Connections, tenant: str, *, session: str | None = None) -> bool:
    """Index blocks of sessions that have something new, for a moment; whether that was all.

    Appends stay as fast as without an index, and the event loop waits for none of it.
    """
    sid_of(Name(tenant, ""))  # checks the name
    within = None if session is None else sid_of(Name(tenant, session))
    mark, is_all, until = search_ranking.mark_tenant(tenant), True, time.monotonic() + _MOMENT
    for sid, indexed, head in await db.run_statement(_UNINDEXED, tenant, within, again=True):
        end = min(search_ranking.find_block_end(indexed + 1), head)
        is_all &= end == head
        await _index_block(db, tenant, sid, indexed=indexed, end=end, mark=mark)
        if time.monotonic() > until:
            return False
    return is_all


async def _index_block(  # noqa: PLR0913 - a session's row, and where
    db: Connections, tenant: str, sid: UUID, *, indexed: int, end: int, mark: int
) -> None:
    """Index what is new in a block of a session, unless another process was faster."""
    batch, at = PostingBatch(), indexed + 1

    def add_messages(rows: Sequence[tuple[int, bytes]]) -> None:
        for seq, body in rows:
            batch.add_message(seq, event_log.extract_search_text(body))

    while rows := await db.run_statement(_SPOKEN, tenant, sid, at, end, again=True):
        await run_beside(partial(add_messages, rows))
        at = rows[-1][0] + 1
    statement = build_select(db, "post", _POST, arrays=4)

    def encode_rows() -> list[Value]:
        columns = zip(*batch.list_rows(mark), strict=True)
        return encode_values(
            statement, (tenant, sid, indexed, end, *(tuple(columns) or ((), (), ())))
        )

    values = await run_beside(encode_rows)

    async def post(connection: Connection) -> None:
        await run_binary_statement(connection, statement, values)

    await db.run_with_retries(post, again=True)

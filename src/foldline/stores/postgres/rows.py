"""Logs in tables: heads, rows, pieces, forks; one statement each.

Knows the functions that read and fork (`sql/003`, `008`, `009`) and checks every body against its
sha256. Refuses to know events.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from foldline.errors import BadInput, Conflict, Erased, FormatError
from foldline.stores.base import Head, Name, Row
from foldline.stores.postgres.connections import Connections, call, sid

_HEAD = call("head_and_owner", "uuid", "int4")
_READ = call("read", "uuid", "int4[]", "int4[]")
_PIECES = call("pieces", "uuid", "text[]")
_FORK = call("fork", "uuid", "uuid", "text", "text", "int4", "int4[]", "int4[]")
_MOST = 2**31 - 1  # the last place there can be


async def head(db: Connections, name: Name, *, at: int | None = None) -> Head:
    """Where a log ends; what is behind `at` counts as not there yet."""
    asked = None if at is None else min(at, _MOST)
    ((owner, end, floor, trimmed, *edit),) = await db.ask(
        _HEAD, name.tenant, sid(name), asked, again=True
    )
    if end is None:
        return Head()
    return Head(end, None if edit[0] is None else _row(name, edit), floor, trimmed, owner)


async def read(db: Connections, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
    """The rows of some spans in order; of a fork also its ancestors'."""
    los, his = _ends(spans)
    found = await db.ask(_READ, name.tenant, sid(name), los, his, again=True)
    rows: dict[int, Row] = {}
    for one in found:  # a session's own come first
        if one[0] not in rows:
            rows[one[0]] = _row(name, one)
    return [rows[seq] for seq in sorted(rows)]


async def blobs(db: Connections, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
    """Only what this session or an ancestor names: a hash alone opens nothing."""
    found = await db.ask(_PIECES, name.tenant, sid(name), list(hashes), again=True)
    return dict(found)


async def fork(
    db: Connections, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]
) -> None:
    """A new session that goes on behind `at`, with the rows of `keep` copied."""
    new = sid(Name(name.tenant, to))
    los, his = _ends(keep)
    place = min(at, _MOST)
    ((outcome, found, moment),) = await db.ask(
        _FORK, name.tenant, sid(name), new, name.session, to, place, los, his
    )
    match outcome:
        case 1:
            raise Conflict.taken(to, found)
        case 2:
            raise BadInput(f"session {name.session!r} has no place {at} to fork at")
        case 3:
            raise Erased(to, moment)
        case _:
            return


def _ends(spans: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [max(lo, 0) for lo, _ in spans], [min(hi, _MOST) for _, hi in spans]


def _row(name: Name, found: Sequence[Any]) -> Row:
    seq, kind, edit, moment, sha256, body = found[:6]
    if hashlib.sha256(body).digest() != sha256:
        raise FormatError(
            f"the event at {seq} of {name.session!r} is not what was written: "
            "its sha256 is another; restore a backup"
        )
    return Row(kind, body, edit, seq, moment)

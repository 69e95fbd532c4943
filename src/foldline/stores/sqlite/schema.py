"""The tables of a SQLite file, and the migrations from every earlier version.

A migration is one transaction: a file has one version or the next, whatever kills the process.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from foldline.errors import BadInput, FormatError

Sql: TypeAlias = Callable[..., list[tuple[Any, ...]]]
APPLICATION = 0x464F4C44  # "FOLD"
VERSION = 4

_TABLES = """
    create table sessions (
        sid       integer primary key,
        tenant    text not null,
        session   text not null,
        head      integer not null default -1,
        floor     integer not null default 0,
        trimmed   real,
        size      integer not null default 0,
        opened    real not null,
        changed   real not null,
        origin    integer references sessions (sid) on delete set null,
        origin_at integer not null default -1,
        origin_name text not null default '',
        fence     integer not null default 0,
        holder    text not null default '',
        until     real not null default 0,
        held      integer not null default 0,
        indexed   integer not null default -1,
        owner     text not null default '',
        unique (tenant, session)
    ) strict;
    create index sessions_by_owner on sessions (tenant, owner, session);
    create table events (
        sid  integer not null,
        seq  integer not null,
        kind text not null,
        edit integer not null,
        time real not null,
        body blob not null,
        primary key (sid, seq)
    ) without rowid, strict;
    create index edits on events (sid, seq) where edit;
    create table seen (
        sid integer not null,
        key text not null,
        seq integer not null,
        primary key (sid, key)
    ) without rowid, strict;
    create table blobs (hash text primary key, body blob not null) without rowid, strict;
    create table pieces (
        hash text not null,
        sid  integer not null,
        seq  integer not null,
        primary key (hash, sid, seq)
    ) without rowid, strict;
    create index piece_of on pieces (sid, seq);
    create table side (
        tenant  text not null,
        session text not null,
        space   text not null,
        key     text not null,
        value   blob not null,
        version integer not null,
        expires real,
        primary key (tenant, session, space, key)
    ) without rowid, strict;
    create table erased (key blob primary key, time real not null) without rowid, strict;
"""
_POSTINGS = """
    create table postings (
        term  integer not null,
        sid   integer not null,
        block integer not null,
        body  blob not null,
        primary key (term, sid, block)
    ) without rowid, strict;
    create index postings_by_session on postings (sid);
"""
_FROM_1 = """
    alter table events rename to events_1;
    drop index edits;
"""
_ROWS_FROM_1 = """
    insert into sessions (tenant, session, head, size, opened, changed)
        select tenant, session, max(seq), sum(length(body)),
            unixepoch(min(time), 'subsec'), unixepoch(max(time), 'subsec')
        from events_1 group by tenant, session;
    insert into events (sid, seq, kind, edit, time, body)
        select sid, seq, kind, edit, unixepoch(time, 'subsec'), body
        from events_1 join sessions using (tenant, session);
    drop table events_1;
"""
_FROM_2 = """
    alter table sessions add column owner text not null default '';
    create index sessions_by_owner on sessions (tenant, owner, session);
"""
_FROM_3 = """
    drop table words;
    update sessions set indexed = -1;
"""


def is_current(sql: Sql) -> bool:
    """Whether a file has the tables of this release and needs no migration."""
    ours = sql("pragma application_id")[0][0] == APPLICATION
    return ours and sql("pragma user_version")[0][0] == VERSION


def migrate_schema(sql: Sql, path: str) -> None:
    """Create the tables in an empty file, or migrate an older one; call it in a transaction."""
    ours = sql("pragma application_id")[0][0] == APPLICATION
    version: int = sql("pragma user_version")[0][0]
    if not ours and sql("select count(*) from sqlite_master")[0][0]:
        raise BadInput(f"{path!r} is a database of another program; name another file")
    if ours and version > VERSION:
        raise FormatError(
            f"{path} has schema {version}, this release reads {VERSION}: upgrade foldline"
        )
    if ours and version == VERSION:
        return
    match version if ours else 0:
        case 0:
            sql(_TABLES)
        case 1:
            sql(_FROM_1)
            sql(_TABLES)
            sql(_ROWS_FROM_1)
        case 2:
            sql(_FROM_2)
            sql(_FROM_3)
        case _:
            sql(_FROM_3)
    sql(_POSTINGS)
    sql(f"pragma application_id = {APPLICATION}")
    sql(f"pragma user_version = {VERSION}")

"""The numbered migrations in `sql/`, and applying them.

All missing migrations are applied in one transaction under an advisory lock: a database has a
migration or not, whatever kills the process, and any number of processes may start at once. Each
file states the oldest schema whose releases can live with it (`lives-with`).
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg

from foldline.errors import BadInput, FormatError
from foldline.stores.postgres.url import PostgresSchema

_FILE = re.compile(r"(\d{3})_\w+\.sql")
_LIVES_WITH = re.compile(r"-- lives-with: (\d+)\n")
_LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"
# The catalogue's tables, not to_regclass(): that may be cached from before we had the lock.
_HAS_MIGRATIONS = """
    select from pg_class join pg_namespace as n on n.oid = relnamespace
        where nspname = %s and relname = 'migrations'
"""
_TRIES = 4
_TABLE = """
    do $$
    begin
        -- `if not exists` needs the right to create a schema even where there is one.
        if to_regnamespace('{schema}') is null then
            create schema {schema};
        end if;
    end $$;
    create table if not exists {schema}.migrations (
        number     integer primary key,
        name       text not null,
        sha256     text not null,
        lives_with integer not null,
        applied    timestamptz not null default now()
    )
"""


_RIGHTS = """
    do $$
    begin
        if to_regrole('{role}') is not null then
            grant usage on schema {schema} to {role};
            grant select on {schema}.migrations to {role};
            grant select, insert, update, delete on {schema}.heads, {schema}.events, {schema}.seen,
                {schema}.blobs, {schema}.side, {schema}.erased, {schema}.unindexed to {role};
            grant execute on all routines in schema {schema} to {role};
        end if;
        if to_regrole('{reader}') is not null then
            grant usage on schema {schema} to {reader};
            grant select on {schema}.migrations, {schema}.heads, {schema}.events, {schema}.seen,
                {schema}.blobs, {schema}.side, {schema}.erased, {schema}.unindexed to {reader};
            grant execute on all routines in schema {schema} to {reader};
        end if;
    end $$
"""
_LACKS = """
    select rolname from pg_roles
        where rolname = any(%s) and not (
            has_schema_privilege(rolname, %s, 'usage')
            and has_table_privilege(rolname, %s, 'select')
            and (rolname <> %s or has_table_privilege(rolname, %s, 'insert'))
        )
        order by rolname
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/`."""

    number: int
    name: str
    text: str
    lives_with: int
    """Releases that know this schema and no later one can work with a database that has it."""

    @property
    def sha256(self) -> str:
        """The checksum of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def load_migrations() -> list[Migration]:
    """Load the migrations of this release, in order."""
    migrations: list[Migration] = []
    for file in resources.files("foldline.stores.postgres").joinpath("sql").iterdir():
        if named := _FILE.fullmatch(file.name):
            text = file.read_text(encoding="utf-8")
            lives_with = _LIVES_WITH.match(text)
            if lives_with is None:
                raise FormatError(f"{file.name} does not begin with '-- lives-with: NUMBER'")
            migrations.append(Migration(int(named[1]), file.name, text, int(lives_with[1])))
    return sorted(migrations, key=lambda one: one.number)


def list_missing_migrations(
    known: Sequence[Migration], applied: Sequence[tuple[int, str, str, int]], shown: str
) -> list[Migration]:
    """List the migrations that a database needs; raises if it has one we cannot live with."""
    ours = {one.number: one for one in known}
    for number, name, sha256, lives_with in applied:
        mine = ours.get(number)
        if mine is None and lives_with > known[-1].number:
            raise FormatError(
                f"{shown} has migration {name}, which releases before it cannot live with; "
                "upgrade foldline"
            )
        if mine is not None and mine.sha256 != sha256:
            raise FormatError(
                f"{shown} was migrated by another {name} than this release's; "
                "use the release that made it, or a new schema"
            )
    done = {number for number, *_ in applied}
    return [one for one in known if one.number not in done]


@asynccontextmanager
async def hold_migration_lock(
    connection: "psycopg.AsyncConnection[Any]", what: str
) -> AsyncGenerator[None]:
    """Open the transaction in which a process may change `what`: tables, or the rights in them.

    Read the catalogue in it, by its tables: another process may have changed it before.
    """
    async with connection.transaction():
        await connection.execute(_LOCK, (f"foldline {what}",))
        yield


async def migrate_schema(connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema) -> None:
    """Apply the missing migrations; the connection is in autocommit mode."""
    known = load_migrations()
    applied = await _list_applied_migrations(connection, place)
    if not list_missing_migrations(known, applied, place.shown):
        return
    for tries in range(1, _TRIES + 1):
        try:
            await _apply_migrations(connection, place, known)
        except psycopg.errors.InsufficientPrivilege as fault:
            raise BadInput(
                f"{place.shown} has to be migrated, and this login may not: "
                f"{fault.diag.message_primary}; run `foldline migrate` as the schema's owner"
            ) from fault
        except (psycopg.errors.UniqueViolation, psycopg.errors.RaiseException):
            # Roles belong to the server, and a lock to one database: a process that migrates
            # another database made the role at this moment.
            if tries == _TRIES:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def _apply_migrations(
    connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema, known: Sequence[Migration]
) -> None:
    async with hold_migration_lock(connection, f"migrations of {place.schema}"):
        # Read again under the lock: another process may have applied them meanwhile.
        applied = await _list_applied_migrations(connection, place)
        missing = list_missing_migrations(known, applied, place.shown)
        if missing and not applied:
            await connection.execute(place.put_in(_TABLE))
        for one in missing:
            await connection.execute(place.put_in(one.text))
            await connection.execute(
                place.put_in(
                    "insert into {schema}.migrations (number, name, sha256, lives_with) "
                    "values (%s, %s, %s, %s)"
                ),
                (one.number, one.name, one.sha256, one.lives_with),
            )


async def list_pending(
    connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema
) -> list[str]:
    """Say what `migrate_schema` and `grant_rights` would do; nothing is changed."""
    known = load_migrations()
    applied = await _list_applied_migrations(connection, place)
    missing = list_missing_migrations(known, applied, place.shown)
    if missing:
        return [f"migration {one.name}" for one in missing]
    roles = [place.role, place.reader]
    heads = f"{place.schema}.heads"
    cursor = await connection.execute(_LACKS, (roles, place.schema, heads, place.role, heads))
    return [f"rights of {row[0]} in schema {place.schema}" for row in await cursor.fetchall()]


async def grant_rights(connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema) -> None:
    """Give the roles that exist their rights in the schema, as if they had existed before it."""
    async with hold_migration_lock(connection, f"migrations of {place.schema}"):
        await connection.execute(place.put_in(_RIGHTS.replace("{reader}", place.reader)))


async def _list_applied_migrations(
    connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema
) -> list[tuple[int, str, str, int]]:
    cursor = await connection.execute(_HAS_MIGRATIONS, (place.schema,))
    if not cursor.rowcount:
        return []
    cursor = await connection.execute(
        place.put_in("select number, name, sha256, lives_with from {schema}.migrations")
    )
    return await cursor.fetchall()

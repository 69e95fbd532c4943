"""`foldline migrate`: bring a PostgreSQL database to this release's schema, as its owner.

The tables of sessions and keys, the jobs of workers, and the rights of the roles that programs log
in as. Programs may go on running meanwhile, also those of the release before.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldline.apps.cli.build_agent import Wish
from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import clean_line, print_lines, print_remark
from foldline.errors import BadInput, StoreFailed
from foldline.stores.base import POSTGRES

if TYPE_CHECKING:  # of an extra
    from psycopg import AsyncConnection

    from foldline.stores.postgres.url import PostgresSchema

_NO_WORKER = "the jobs of workers are left out: pip install 'foldline[worker]'"
_ROLES = """\
-- Roles for the schema {schema}. Run this once as a superuser, with psql.
-- Passwords: \\password {schema}_gateway, and so on; or a line for each in pg_hba.conf.

-- It owns the tables. Only `foldline migrate` logs in as it.
create role {schema}_owner login nosuperuser nobypassrls;

-- It has the rights of programs, and nobody logs in as it. Row-level security keeps tenants apart.
create role {role} nologin nosuperuser nobypassrls;

-- Programs log in as these.
create role {schema}_gateway login nosuperuser nobypassrls in role {role};
create role {schema}_worker login nosuperuser nobypassrls in role {role};
alter role {schema}_gateway set statement_timeout = '30s';
alter role {schema}_worker set statement_timeout = '60s';

-- It reads sessions and changes nothing: for `foldline sessions`, `export`, `usage` and `doctor`.
create role {reader} login nosuperuser nobypassrls;
alter role {reader} set default_transaction_read_only = on;

-- It reads everything, past row-level security: for pg_dump alone.
create role {schema}_backup login bypassrls in role pg_read_all_data;

-- Then make the database, and migrate it as its owner:
--   create database {database} owner {schema}_owner;
--   foldline migrate --store postgresql://{schema}_owner@HOST/{database}
"""


@make_command
async def migrate(
    desk: Desk,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is to be done; exit 1 if something is.")
    ] = False,
    roles: Annotated[
        bool, typer.Option("--roles", help="Print the roles as SQL, and do nothing.")
    ] = False,
) -> int:
    """Bring the tables on PostgreSQL to this release: do it as their owner, before its start.

    Programs of the release before may run meanwhile. A store in a file is brought there when it is
    opened.
    """
    wish = Wish(desk=desk)
    desk = wish.apply_settings(wish.load_settings()).desk
    if not desk.address.startswith(POSTGRES):
        if roles:
            raise BadInput("a file has no roles; name a database: --store postgresql://…")
        return await _open_file(desk)
    if find_spec("psycopg") is None:
        raise BadInput("a PostgreSQL address needs the extra `pg`: pip install 'foldline[pg]'")
    from foldline.stores.postgres.url import parse_postgres_url  # noqa: PLC0415 - an extra

    place = parse_postgres_url(desk.address)
    if roles:
        print_lines(_format_roles(place))
        return DONE
    pending = await _list_pending(desk.address, place)
    if not check and pending:
        await _migrate_database(desk.address, place)
    return _print_outcome(desk, pending, done=not check)


def _format_roles(place: "PostgresSchema") -> str:
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - an extra

    named = conninfo_to_dict(place.address).get("dbname") or place.schema
    text = _ROLES.replace("{schema}", place.schema).replace("{role}", place.role)
    return text.replace("{reader}", place.reader).replace("{database}", str(named)).rstrip()


async def _open_file(desk: Desk) -> int:
    """Open a file, which migrates it."""
    async with desk.open_store() as store:
        await store.sessions(desk.tenant, limit=1)
    return _print_outcome(desk, [], done=True)


async def _connect(place: "PostgresSchema") -> "AsyncConnection[Any]":
    import psycopg  # noqa: PLC0415 - an extra

    try:
        return await psycopg.AsyncConnection.connect(
            place.address, autocommit=True, prepare_threshold=None, connect_timeout=10
        )
    except psycopg.OperationalError as fault:
        raise StoreFailed(f"no connection to {place.shown}: {fault}") from fault


async def _list_pending(address: str, place: "PostgresSchema") -> list[str]:
    from foldline.stores.postgres import schema  # noqa: PLC0415 - an extra

    async with await _connect(place) as connection:
        pending = await schema.list_pending(connection, place)
    if find_spec("procrastinate") is None:
        print_remark(_NO_WORKER)
        return pending
    from foldline.session.fold_queue import list_pending_queue  # noqa: PLC0415 - an extra

    return pending + await list_pending_queue(address)


async def _migrate_database(address: str, place: "PostgresSchema") -> None:
    import psycopg  # noqa: PLC0415 - an extra

    from foldline.stores.postgres import schema  # noqa: PLC0415

    async with await _connect(place) as connection:
        await schema.migrate_schema(connection, place)
        try:
            await schema.grant_rights(connection, place)
        except psycopg.errors.InsufficientPrivilege as fault:
            reason = fault.diag.message_primary
            raise BadInput(f"this login may give no rights in {place.shown}: {reason}") from fault
    if find_spec("procrastinate") is not None:
        from foldline.session.fold_queue import migrate_queue  # noqa: PLC0415 - an extra

        await migrate_queue(address)


def _print_outcome(desk: Desk, pending: list[str], *, done: bool) -> int:
    word = "done" if done else "to do"
    ready = f"{clean_line(desk.where)}: nothing to do"
    desk.print_answer(
        {"done" if done else "pending": pending, "ok": done or not pending},
        lambda: [f"{word}  {one}" for one in pending] or [ready],
    )
    return DONE if done or not pending else NOTHING

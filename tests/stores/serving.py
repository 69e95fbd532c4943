"""A schema of PostgreSQL for one test: made by the store that opens it, dropped with its role.

Most tests change only rows: they are given `an_empty_schema`, which others had before.

`FOLDLINE_PG` names a database whose login may make roles; without it, the one on this machine.
`FOLDLINE_PGBOUNCER` names the pooler's program where it is not on the path.
"""

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

PGBOUNCER = os.environ.get("FOLDLINE_PGBOUNCER") or shutil.which(
    "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"
)
SERVER = os.environ.get("FOLDLINE_PG", "postgresql:///test?host=127.0.0.1")


def connected(**given: Any) -> "psycopg.Connection[Any]":
    """A connection beside the store, as the one who owns the schema."""
    return psycopg.connect(SERVER, autocommit=True, **given)


def address_of(schema: str, server: str = SERVER) -> str:
    """The address of a schema."""
    return with_setting(server, f"schema={schema}")


def with_setting(address: str, setting: str) -> str:
    """An address with one setting more."""
    return f"{address}{'&' if '?' in address else '?'}{setting}"


def _new_name() -> str:
    return f"foldline_t{uuid.uuid4().hex[:12]}"


@contextmanager
def a_schema() -> Iterator[str]:
    """The name of a schema that nobody else has."""
    schema = _new_name()
    try:
        yield schema
    finally:
        _drop(schema)


_emptied: list[str] = []


@contextmanager
def an_empty_schema() -> Iterator[str]:
    """A schema without rows, for a test that changes nothing else: used by one after another.

    A new one is 860 files, and the server's next checkpoint waits for the disk once for each.
    """
    schema = _emptied.pop() if _emptied else _new_name()
    try:
        yield schema
    finally:
        with connected() as server:
            tables = server.execute(
                "select format('%%I.%%I', %s::text, relname) from pg_class "
                "where relnamespace = to_regnamespace(%s) and relkind in ('r', 'p') "
                "and not relispartition and relname <> 'migrations'",
                (schema, schema),
            ).fetchall()
            for (table,) in tables:
                server.execute(f"delete from {table}")  # noqa: S608 - of the catalogue
        _emptied.append(schema)


def _drop_emptied(process: int) -> None:
    while _emptied and os.getpid() == process:  # no fork of it
        _drop(_emptied.pop())


atexit.register(_drop_emptied, os.getpid())


def _drop(schema: str) -> None:
    with connected() as server:
        server.execute(f"drop schema if exists {schema} cascade")
        server.execute(f"drop role if exists {schema}_app")


@contextmanager
def a_login(schema: str) -> Iterator[str]:
    """A login that works in a schema and goes round no policy: what a pooler needs."""
    login = f"{schema}_login"
    with connected() as server:
        server.execute(f"create role {login} login in role {schema}_app")
    try:
        yield login
    finally:
        with connected() as server:
            server.execute(f"drop role if exists {login}")


@contextmanager
def pooler(folder: Path, logins: Sequence[str], *, size: int) -> Iterator[str]:
    """A pgbouncer before the server, so many connections for each login; ended by its id."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    given = conninfo_to_dict(SERVER)
    (folder / "users").write_text("".join(f'"{login}" ""\n' for login in logins))
    (folder / "ini").write_text(
        f"[databases]\n* = host={given.get('host', '127.0.0.1')} port={given.get('port', 5432)}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n"
        f"default_pool_size = {size}\nmax_client_conn = 100\nlog_connections = 0\n"
        "log_disconnections = 0\nlog_stats = 0\n"
    )
    # It will not run as root, and pytest's folders are their owner's alone.
    nobody = pwd.getpwnam("nobody") if os.getuid() == 0 else None
    for path in (folder, *folder.iterdir(), *list(folder.parents)[:3]):
        if nobody and path.stat().st_uid == 0 and str(path) not in ("/", "/tmp"):  # noqa: S108
            path.chmod(0o755)
    process = subprocess.Popen(
        [str(PGBOUNCER), "-q", str(folder / "ini")],
        user=nobody.pw_uid if nobody else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"127.0.0.1:{port}/{given['dbname']}"
    finally:
        process.terminate()
        process.wait(timeout=10)


class Documented(NamedTuple):
    """A database of its own with the roles that `foldline migrate --roles` prints."""

    schema: str
    database: str

    def address(self, role: str) -> str:
        """The store, for one of these roles: owner, gateway, worker, reader."""
        given = conninfo_to_dict(SERVER)
        where = f"{given.get('host', '127.0.0.1')}:{given.get('port', 5432)}"
        return f"postgresql://{self.schema}_{role}@{where}/{self.database}?schema={self.schema}"


@contextmanager
def documented_roles() -> Iterator[Documented]:
    """Make the roles as printed, and a database of their owner; all of it is gone afterwards."""
    name = _new_name()
    made = Documented(name, name)
    with connected() as server:
        printed = subprocess.run(
            [Path(sys.executable).with_name("foldline"), "migrate", "--roles", "--store", made.address("owner")],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        server.execute(printed.encode())
        server.execute(f"create database {name} owner {name}_owner".encode())
    try:
        yield made
    finally:
        with connected() as server:
            server.execute(f"drop database {name} with (force)".encode())
            for role in ("owner", "gateway", "worker", "reader", "backup", "app"):
                server.execute(f"drop role if exists {name}_{role}".encode())

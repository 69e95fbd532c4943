"""Behind pgbouncer, which gives every transaction another connection and knows no prepared statements.

`FOLDLINE_PGBOUNCER` names the program where it is not on the path.
"""
# ruff: noqa: S608 - the names in these statements are made here

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from serving import SERVER, a_schema, address_of, connected

from foldline.errors import BadInput
from foldline.store.base import Name
from foldline.store.postgres import PostgresStore
from foldline.testing.stores import Conformance, rows

PROGRAM = os.environ.get("FOLDLINE_PGBOUNCER") or shutil.which("pgbouncer")
pytestmark = [
    pytest.mark.real,
    pytest.mark.anyio,
    pytest.mark.skipif(
        PROGRAM is None, reason="pgbouncer is not here; FOLDLINE_PGBOUNCER names it"
    ),
]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@contextmanager
def pooler(tmp_path, logins):
    """A pgbouncer in front of the server, two connections for each login; ended by its id."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    given = conninfo_to_dict(SERVER)
    (tmp_path / "users").write_text("".join(f'"{login}" ""\n' for login in logins))
    (tmp_path / "ini").write_text(
        f"[databases]\n* = host={given.get('host', '127.0.0.1')} port={given.get('port', 5432)}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {tmp_path}/users\npool_mode = transaction\n"
        "default_pool_size = 2\nmax_client_conn = 50\n"
    )
    # It will not run as root, and pytest's folders are their owner's alone.
    nobody = pwd.getpwnam("nobody") if os.getuid() == 0 else None
    for path in (tmp_path, *tmp_path.iterdir(), *list(tmp_path.parents)[:3]):
        if nobody and path.stat().st_uid == 0 and str(path) != "/tmp":  # noqa: S108
            path.chmod(0o755)
    process = subprocess.Popen(
        [str(PROGRAM), str(tmp_path / "ini")],
        user=nobody.pw_uid if nobody else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
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
        process.communicate(timeout=10)


async def test_behind_pgbouncer(tmp_path):
    """The suite's harder tests, two tenants at once on two connections; a superuser is refused."""
    with a_schema() as schema:
        owner = PostgresStore(address_of(schema))
        await owner.head(Name("acme", "one"))
        await owner.close()
        login = f"{schema}_login"
        with connected() as server:
            user = server.execute("select current_user").fetchone()[0]
            server.execute(f"create role {login} login in role {schema}_app")
        try:
            with pooler(tmp_path, [login, user]) as place:
                refused = PostgresStore(address_of(schema, f"postgresql://{user}@{place}"))
                with pytest.raises(BadInput, match="pooler"):
                    await refused.head(Name("acme", "one"))
                store = PostgresStore(address_of(schema, f"postgresql://{login}@{place}"))
                suite = Conformance()
                await suite.test_many_writers_of_one_log(store)
                await suite.test_search(PostgresStoreOf(store, "searching"))
                await both(store)
                await store.close()
                with psycopg.connect(
                    f"postgresql://{login}@{place}", autocommit=True, prepare_threshold=None
                ) as raw:
                    for _ in range(20):  # whichever connection it is: no tenant was left behind
                        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not set"):
                            raw.execute(f"select * from {schema}.events")
        finally:
            with connected() as server:
                server.execute(f"drop role if exists {login}")


class PostgresStoreOf:
    """The same store under other tenants' names, so that one schema serves several tests."""

    def __init__(self, store, prefix):
        self._store, self._prefix = store, prefix

    def __getattr__(self, verb):
        async def asked(first, *args, **kwargs):
            renamed = (
                first._replace(tenant=self._prefix + first.tenant)
                if isinstance(first, Name)
                else self._prefix + first
            )
            return await getattr(self._store, verb)(renamed, *args, **kwargs)

        return asked


async def both(store):
    """Two tenants write and read at once; each sees its own."""

    async def one(tenant):
        for at in range(30):
            await asyncio.gather(
                *(store.append(Name(tenant, f"s{n}"), rows(tenant), once=f"{at}") for n in range(6))
            )
            found = await store.read(Name(tenant, "s3"), [(0, 99)])
            assert len(found) == at + 1
            assert all(tenant.encode() in row.body for row in found)

    await asyncio.gather(one("firsttenant"), one("secondtenant"))

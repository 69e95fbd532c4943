"""Behind pgbouncer, which gives every transaction another connection and knows no prepared statements.

`FOLDLINE_PGBOUNCER` names the program where it is not on the path.
"""
# ruff: noqa: S608 - the names in these statements are made here

import asyncio

import psycopg
import pytest
from serving import PGBOUNCER, a_login, a_schema, address_of, connected, pooler

from foldline.errors import BadInput
from foldline.stores.base import Name
from foldline.stores.postgres import PostgresStore
from foldline.testing.stores import Conformance, rows

pytestmark = [
    pytest.mark.real,
    pytest.mark.anyio,
    pytest.mark.skipif(
        PGBOUNCER is None, reason="pgbouncer is not here; FOLDLINE_PGBOUNCER names it"
    ),
]


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_behind_pgbouncer(tmp_path):
    """The suite's harder tests, two tenants at once on two connections; a superuser is refused."""
    with a_schema() as schema:
        owner = PostgresStore(address_of(schema))
        await owner.head(Name("acme", "one"))
        await owner.close()
        with connected() as server:
            user = server.execute("select current_user").fetchone()[0]
        with a_login(schema) as login, pooler(tmp_path, [login, user], size=2) as place:
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

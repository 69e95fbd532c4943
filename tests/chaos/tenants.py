"""Ten tenants do all they can through one connection of a pooler, and nobody sees another's strings.

    just chaos tenants            10 tenants x 10,000 operations
    just chaos tenants --short    10 x 100, some 30 seconds

PostgreSQL behind pgbouncer in transaction mode with a pool of one: each statement of each tenant comes
on the connection that another has just used. The tenants' sessions have the same names; every text, side
value, picture, holder and search has the tenant's canary. All verbs of the store are drawn at random, and
what each gives back is searched for the canaries of others. Between them a client looks at the database
beside the store: without a tenant, at every table of pg_class; as a tenant, at every table, and with
another tenant's names into every function. At the end the owner looks at every row of every table for
two tenants' canaries.

Four controls must be caught, or the run fails: a tenant that is set for the connection and not for the
transaction, a table without row-level security, a policy that lets everybody in, and a definer function that
compares no tenant. Installs nothing: it needs PostgreSQL on this machine or at `FOLDLINE_PG`, and pgbouncer.
"""
# ruff: noqa: S608 - the names in these statements are made here

import argparse
import asyncio
import hashlib
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))
from serving import PGBOUNCER, a_login, a_schema, address_of, connected, pooler

from foldline.core.log import UserSaid
from foldline.core.parts import Media, Text
from foldline.errors import BadInput, Conflict, Erased
from foldline.stores import event_log
from foldline.stores.base import Lease, Name, Retention
from foldline.stores.postgres import PostgresStore
from foldline.stores.postgres.connections import Connections, sid_of
from foldline.stores.search_ranking import mark_tenant
from foldline.stores.search_terms import list_query_terms
from foldline.testing.stores import rows

TENANTS = [f"canary{n}x" for n in range(10)]
CANARY = re.compile("canary[0-9]x")
STORES = 3
SAMPLE, EACH = 4, 50  # tables and functions that are looked at, and after how many operations
VALUES = {
    "integer": "99", "bigint": "99", "numeric": "0", "double precision": "0", "boolean": "false",
    "bytea": "''", "integer[]": "'{0,1,2,3}'", "text[]": "'{}'", "bytea[]": "'{}'",
    "boolean[]": "'{}'", "double precision[]": "'{}'",
}  # fmt: skip
"""What a function is given beside names."""


class Found(Counter[str]):
    """Where foreign canaries were seen, and how often."""

    done = 0
    """Operations."""
    own = 0
    """The canaries that a tenant saw of its own: the control that there was something to see."""

    def look(self, told: Any, tenant: str, where: str) -> None:
        """Search an answer; a tenant that is "" has none of its own."""
        seen = CANARY.findall(told if isinstance(told, str) else repr(told))
        own = seen.count(tenant) if tenant else 0
        self.own += own
        if len(seen) > own:
            self[where] += len(seen) - own


class Tenant:
    """One tenant's sessions, and all that it can do with them."""

    def __init__(self, tenant: str, seed: int) -> None:
        self.tenant, self.random = tenant, Random(seed)
        self.ages = Counter[str]()
        self.leases: list[Lease] = []
        self.done = Counter[str]()
        picture = Media("image", base64=f"{tenant}" * 2_400)
        self.picture = [UserSaid((Text(f"a picture of {tenant}"), picture))]

    def name(self) -> Name:
        """One of its sessions; one that was erased has a successor."""
        slot = self.random.choice(["s0", "s1", "s2", "fork", f"own {self.tenant}"])
        return Name(self.tenant, f"{slot} {self.ages[slot]}")

    def gone(self, name: Name) -> None:
        """It was erased: the next is another."""
        slot, _, age = name.session.rpartition(" ")
        self.ages[slot] = max(self.ages[slot], int(age) + 1)

    async def one(self, store: PostgresStore, verb: str) -> Any:
        """One operation: what it gave."""
        name, random, mark = self.name(), self.random, f"mark {self.tenant} mark"
        other = random.choice(TENANTS)
        try:
            match verb:
                case "append":
                    return await self._append(store, name, mark)
                case "head":
                    return await store.head(name, at=random.choice([None, 3]))
                case "read":
                    return await store.read(name, [(0, 5), (random.randrange(40), 60)])
                case "blobs":
                    theirs = hashlib.sha256((other * 2_400).encode()).hexdigest()
                    mine = hashlib.sha256((self.tenant * 2_400).encode()).hexdigest()
                    return await store.blobs(name, [mine, theirs])
                case "fork":
                    head = (await store.head(name)).seq
                    slot = f"fork {self.ages['fork']}"
                    return await store.fork(name, slot, at=max(head, 0), keep=[(0, 2)])
                case "lease":
                    took = await store.lease(
                        name, f"{self.tenant} {random.randrange(2)}", seconds=1
                    )
                    self.leases += [took] if took else []
                    return took
                case "release":
                    return await store.release(self.leases.pop()) if self.leases else None
                case "sessions":
                    return await store.sessions(self.tenant, limit=50)
                case "search":
                    within = name.session if random.random() < 0.3 else None
                    found = await store.search(self.tenant, other, session=within)
                    return found if other == self.tenant else [f"{other} found"] * len(found)
                case "hold":
                    return await store.hold(name, on=random.random() < 0.3)
                case "trim":
                    return await store.trim(name, random.randrange(1, 20), keep=[0])
                case "retain":
                    rule = random.choice([Retention(sessions=6), Retention(size=200_000)])
                    receipt = await store.retain(self.tenant, rule, dry=random.random() < 0.5)
                    for session in () if receipt.dry else receipt.sessions:
                        self.gone(Name(self.tenant, session))
                    return receipt
                case "erase":
                    if random.random() < 0.7:  # a session has to live for a while
                        return None
                    receipt = await store.erase(name)
                    self.gone(name)
                    return receipt
                case "get":
                    return await store.get(name, "space", f"k{random.randrange(3)}")
                case _:
                    key = f"k{random.randrange(3)}"
                    return await store.put(name, "space", key, mark.encode(), seconds=60)
        except Erased:
            self.gone(name)
        except (Conflict, BadInput) as refused:  # a place or a session that is not there
            return str(refused)
        return None

    async def _append(self, store: PostgresStore, name: Name, mark: str) -> int:
        match self.random.randrange(8):
            case 0:
                return await event_log.append_events(store, name, self.picture)
            case 1:
                return await store.append(name, rows(mark, mark), after=self.random.randrange(4))
            case 2:
                return await store.append(name, rows(mark), once=f"{self.random.randrange(50)}")
            case 3:
                return await store.append(name, rows(mark), fence=self.random.randrange(4))
            case _:
                return await store.append(name, rows(mark, edit=self.random.random() < 0.2))


VERBS = [
    *["append"] * 4, *["read", "put"] * 2, "search", "head", "blobs", "fork", "lease", "release",
    "sessions", "hold", "trim", "retain", "erase", "get",
]  # fmt: skip


class Beside:
    """A client of the pooler that does not go through the store."""

    def __init__(self, schema: str, address: str, found: Found) -> None:
        self.schema, self.address, self.found = schema, address, found
        with connected() as owner:
            tables = owner.execute(
                "select relname from pg_class where relnamespace = %s::regnamespace "
                "and relkind in ('r', 'p', 'v', 'm', 'f') order by relname",
                (schema,),
            )
            self.tables = [name for (name,) in tables.fetchall()]
            functions = owner.execute(
                "select proname, proargnames[:pronargs], "
                "array(select format_type(t, null) from unnest(proargtypes) as t) from pg_proc "
                "where pronamespace = %s::regnamespace and prokind = 'f' and 'p_tenant' = any (proargnames)",
                (schema,),
            )
            self.functions = functions.fetchall()
        self.refused = 0

    async def __aenter__(self) -> Self:
        self.raw = await psycopg.AsyncConnection.connect(
            self.address, autocommit=True, prepare_threshold=None
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.raw.close()

    async def ask(self, tenant: str, statement: str, where: str) -> None:
        """One statement in a transaction that is taken back; refused is well."""
        set_to = f"select set_config('foldline.tenant', '{tenant}', true);" if tenant else ""
        try:
            cursor = await self.raw.execute(
                f"begin; set local bytea_output = 'escape'; {set_to} {statement}; rollback".encode()
            )
            while True:
                if cursor.description and cursor.description[0].name == "told":
                    for row in await cursor.fetchall():
                        self.found.look(row, tenant, where)
                if not cursor.nextset():
                    break
        except psycopg.Error as refused:
            self.refused += isinstance(refused, psycopg.errors.InsufficientPrivilege)
            await self.raw.execute(b"rollback")

    async def table(self, tenant: str, table: str) -> None:
        """The canaries in all rows that can be seen."""
        which = f"{self.schema}.{table}"
        await self.ask(
            tenant,
            "select distinct m[1] as told "
            f"from {which} as t, regexp_matches(t::text, 'canary[0-9]x', 'g') as m",
            f"table {table}" + ("" if tenant else " without a tenant"),
        )

    async def function(self, tenant: str, other: str, function: tuple[Any, ...]) -> None:
        """What a function gives a tenant who names another."""
        name, names, types = function
        marked = [term ^ mark_tenant(other) for term in list_query_terms(other)]
        texts = {"p_tenant": f"'{other}'", "p_terms": f"'{{{', '.join(map(str, marked))}}}'"}
        for session in ("s0 0", f"own {other} 0"):
            one = f"'{sid_of(Name(other, session))}'"
            given = [
                texts.get(argument, "''") if kind in ("text", "bigint[]")
                else ("null" if name in ("search", "postings_of") else one) if kind == "uuid"
                else VALUES[kind]
                for argument, kind in zip(names, types, strict=True)
            ]  # fmt: skip
            call = f"{self.schema}.{name}({', '.join(given)})"
            await self.ask(tenant, f"select r::text as told from {call} as r", f"function {name}")

    async def some(self, tenant: Tenant) -> None:
        """A few of all tables and functions."""
        other = tenant.random.choice([one for one in TENANTS if one != tenant.tenant])
        for table in tenant.random.sample(self.tables, SAMPLE):
            await self.table("", table)
            await self.table(tenant.tenant, table)
        await self.function(tenant.tenant, other, tenant.random.choice(self.functions))

    async def all(self, tenant: str, other: str, *, partitions: bool = True) -> None:
        """All of them, the partitions too or not."""
        for table in self.tables:
            if not partitions and table[-1].isdecimal():
                continue
            await self.table("", table)
            await self.table(tenant, table)
        for function in self.functions:
            await self.function(tenant, other, function)


async def work(
    stores: list[PostgresStore], tenant: Tenant, operations: int, beside: Beside
) -> None:
    """One tenant's operations, and a look beside them now and then."""
    for at in range(operations):
        verb = tenant.random.choice(VERBS)
        told = await tenant.one(tenant.random.choice(stores), verb)
        beside.found.look(told, tenant.tenant, f"verb {verb}")
        tenant.done[verb] += 1
        beside.found.done += 1
        if beside.found.done % 10_000 == 0:
            print(f"{beside.found.done:,} operations, foreign: {dict(beside.found)}", flush=True)
        if at % EACH == EACH - 1:
            await beside.some(tenant)


def owner_looks(schema: str, found: Found) -> tuple[int, int]:
    """Every row of every table, as one who sees all: how many tables, how many rows."""
    count = 0
    with connected() as owner:
        owner.execute("set bytea_output = 'escape'")
        tables = owner.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and relkind = 'r'",
            (schema,),
        ).fetchall()
        for (table,) in tables:
            looked = owner.execute(
                f"select count(*), count(*) filter (where (select count(distinct m[1]) from "
                f"regexp_matches(t::text, 'canary[0-9]x', 'g') as m) > 1) from {schema}.{table} as t"
            ).fetchone()
            count += looked[0]
            if looked[1]:
                found[f"rows of {table}"] += looked[1]
    return len(tables), count


# The controls.


async def caught(
    beside: Beside, what: str, breaking: Callable[[], Awaitable[None]], mending: str
) -> bool:
    """Whether what is broken is seen; mended by a statement of the owner."""
    before, beside.found = beside.found, Found()
    await breaking()
    try:
        await beside.all(TENANTS[0], TENANTS[1], partitions=False)
    finally:
        broken, beside.found = beside.found, Found()
        with connected() as owner:
            owner.execute(mending.encode())
        await beside.raw.execute(b"reset foldline.tenant")
    await beside.table(TENANTS[0], "heads")
    mended, beside.found = not beside.found, before
    seen = ", ".join(f"{where} {count}" for where, count in broken.most_common(3)) or "nothing"
    print(f"control: {what}: {sum(broken.values())} foreign strings ({seen})")
    return bool(broken) and mended


async def controls(schema: str, store: PostgresStore, beside: Beside) -> bool:
    """Four ways in which it could be wrong."""

    def as_owner(statement: str) -> Callable[[], Awaitable[None]]:
        async def doing() -> None:
            with connected() as owner:
                owner.execute(statement.encode())

        return doing

    async def for_the_connection() -> None:
        text = Connections.encode_statement
        store.db._texts.clear()
        Connections.encode_statement = lambda self, one: text(self, one).replace(
            b", true)", b", false)"
        )  # type: ignore[method-assign]
        try:
            await store.head(Name(TENANTS[3], "s0 0"))
        finally:
            Connections.encode_statement = text  # type: ignore[method-assign]

    with connected() as owner:
        ((own,),) = owner.execute(
            "select pg_get_functiondef(oid) from pg_proc where proname = 'own' "
            "and pronamespace = %s::regnamespace",
            (schema,),
        ).fetchall()
    tried = [
        (
            "the tenant is set for the connection",
            for_the_connection,
            "select 1",
        ),
        (
            "a table has no row-level security",
            as_owner(f"alter table {schema}.events disable row level security"),
            f"alter table {schema}.events enable row level security",
        ),
        (
            "a policy lets everybody in",
            as_owner(f"alter policy tenants on {schema}.side using (true)"),
            f"alter policy tenants on {schema}.side using (tenant = {schema}.tenant())",
        ),
        (
            "a definer function compares no tenant",
            as_owner(re.sub(r"if p_tenant is distinct.*end if;", "", own, flags=re.DOTALL)),
            own,
        ),
    ]
    return all([await caught(beside, *one) for one in tried])


async def run(schema: str, address: str, operations: int) -> bool:
    """All tenants at once, then the looks, then the controls."""
    found = Found()
    stores = [PostgresStore(address_of(schema, address)) for _ in range(STORES)]
    tenants = [Tenant(tenant, seed) for seed, tenant in enumerate(TENANTS)]
    async with Beside(schema, address, found) as beside:
        for tenant in tenants:  # something of each, for the looks
            for slot in ("s0 0", f"own {tenant.tenant} 0"):
                name = Name(tenant.tenant, slot)
                await stores[0].append(name, rows(f"mark {tenant.tenant}"))
                await stores[0].put(name, "space", "k0", tenant.tenant.encode())
            await stores[0].search(tenant.tenant, "mark")
        ok = await controls(schema, stores[0], beside)
        started = time.monotonic()
        async with AsyncExitStack() as clients, asyncio.TaskGroup() as group:
            looking = [
                await clients.enter_async_context(Beside(schema, address, found)) for _ in tenants
            ]
            for tenant, client in zip(tenants, looking, strict=True):
                group.create_task(work(stores, tenant, operations, client))
        seconds = time.monotonic() - started
        for at, tenant in enumerate(TENANTS):
            await beside.all(tenant, TENANTS[at - 1], partitions=at == 0 or operations >= 10_000)
        refused = sum(one.refused for one in (beside, *looking))
    for store in stores:
        await store.close()
    tables, rows_looked = owner_looks(schema, found)
    done = Counter[str]()
    for tenant in tenants:
        done.update(tenant.done)
    total = sum(done.values())
    print(
        f"{len(TENANTS)} tenants, {total:,} operations through one connection in {seconds:.0f} s, "
        f"{total / seconds:.0f}/s: {', '.join(f'{v} {n:,}' for v, n in sorted(done.items()))}\n"
        f"{len(beside.tables)} tables and {len(beside.functions)} functions looked at by tenants, "
        f"{refused:,} looks refused; {tables} tables with {rows_looked:,} rows by their owner\n"
        f"{found.own:,} own strings seen, {sum(found.values())} foreign: {dict(found)}"
    )
    return ok and not found and found.own > total


def main() -> int:
    """A schema, a login, a pooler, and a verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--short", action="store_true", help="100 operations a tenant")
    parser.add_argument("--operations", type=int, help="so many a tenant")
    given = parser.parse_args()
    if PGBOUNCER is None:
        print("pgbouncer is not here: apt-get install pgbouncer, or name it by FOLDLINE_PGBOUNCER")
        return 1
    operations = given.operations or (100 if given.short else 10_000)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foldline-tenants-")))
        schema = stack.enter_context(a_schema())

        async def make() -> None:
            store = PostgresStore(address_of(schema))
            await store.head(Name("none", "none"))
            await store.close()

        asyncio.run(make())
        login = stack.enter_context(a_login(schema))
        with connected() as owner:  # what is asked is who sees what, not what survives a fall
            owner.execute(f"alter role {login} set synchronous_commit = off")
        place = stack.enter_context(pooler(folder, [login], size=1))
        ok = asyncio.run(run(schema, f"postgresql://{login}@{place}", operations))
    print("nobody saw another's strings" if ok else "FAILED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

"""docs/how-to/postgresql.md is true: its statements, lines and programs run, in a database of their own."""
# ruff: noqa: S607 - the page's own lines

import asyncio
import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from serving import SERVER, connected

from foldline.apps.cli.doctor_postgres import inspect_postgres
from foldline.stores.base import Name
from foldline.stores.postgres import PostgresStore, append, retention
from foldline.stores.postgres.url import parse_postgres_url
from foldline.testing.stores import rows

pytestmark = pytest.mark.real
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "postgresql.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


class Own:
    """The page with names that nobody else has."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex[:10]
        self.schema = f"foldline_p{self.mark}"
        self.given = conninfo_to_dict(SERVER)
        with connected() as server:
            self.user = server.execute("select current_user").fetchone()[0]

    def __call__(self, text: str) -> str:
        """A block of it as it is run here."""
        host = f"{self.given.get('host', '127.0.0.1')}:{self.given.get('port', 5432)}"
        text = re.sub(r"(postgresql://talks_(?:owner|login)@db\.example/\w+)", self._ours, text)
        text = re.sub(
            r"\bfoldline(?=\.(?:events|blobs|words|heads|erased|unindexed))", self.schema, text
        )
        text = text.replace("'foldline'", f"'{self.schema}'").replace(
            "foldline_app", f"{self.schema}_app"
        )
        text = re.sub(r"\btalks(?=[_\b@;' \n\"?]|$)", f"talks{self.mark}", text)
        return text.replace("postgres@db", f"{self.user}@db").replace("db.example", host)

    def _ours(self, found: "re.Match[str]") -> str:
        return f"{found[1]}?schema={self.schema}"

    def dropped(self) -> None:
        """Leave nothing behind."""
        with connected() as server:
            for name in (f"talks{self.mark}", f"talks{self.mark}_again"):
                server.execute(f"drop database if exists {name} with (force)")
            for role in ("login", "owner", "backup"):
                server.execute(f"drop role if exists talks{self.mark}_{role}")
            server.execute(f"drop role if exists {self.schema}_app")


@pytest.fixture
def own():
    """Names of this test's, dropped behind it."""
    names = Own()
    try:
        yield names
    finally:
        names.dropped()


def run_sql(own: Own, text: str) -> None:
    """A block as psql would run it: one statement after another, in the database it names."""
    where = re.match(r"-- in (\w+), as a superuser\n", text)
    assert where, text
    base = "test" if where[1] == "postgres" else own(where[1])
    address = {**own.given, "dbname": own.given["dbname"] if base == "test" else base}
    bare = "\n".join(line for line in own(text).splitlines() if not line.startswith("--"))
    with psycopg.connect(**address, autocommit=True) as connection:
        for statement in bare.split(";\n"):
            if statement.strip():
                connection.execute(statement.strip().removesuffix(";"))


def run_console(own: Own, text: str, folder: Path) -> None:
    """Lines of a person; an empty store has no sessions to list, which is told by a code of 1."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in own(text).splitlines():
        mark, *arguments = shlex.split(line)
        assert mark == "$"
        ended = subprocess.run(
            arguments, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        empty = arguments[1] == "sessions" and "no sessions" in ended.stdout + ended.stderr
        assert ended.returncode == 0 or empty, (line, ended)


def test_every_block_runs(own, tmp_path):
    """In the page's order, as it says; the restored database is as well as the first."""
    kinds = [kind for kind, _ in BLOCK.findall(PAGE)]
    assert (kinds.count("sql"), kinds.count("console"), kinds.count("python")) == (5, 2, 1)
    assert {*kinds} == {"sql", "console", "python", "ini"}
    kept = Name("local", "kept")
    for at, (kind, text) in enumerate(BLOCK.findall(PAGE)):
        if kind == "sql":
            run_sql(own, text)
        elif kind == "console":
            run_console(own, text, tmp_path)
        elif kind == "python":
            told = subprocess.run(
                [sys.executable, "-c", own(text)], capture_output=True, text=True, check=True
            )
            assert told.stdout.startswith("Receipt(sessions=()")
        else:
            configure(text)
        if at == kinds.index("console"):
            assert asyncio.run(done(own, "talks", "append", kept, rows("one", "two"))) == 1
    assert asyncio.run(done(own, "talks_again", "head", kept)).seq == 1
    # Why the page makes a role for dumps: row-level security is forced on the owner too.
    owner = own("postgresql://talks_owner@db.example/talks").partition("?")[0]
    told = subprocess.run(
        ["pg_dump", "--file=/dev/null", f"--dbname={owner}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, "row-level security" in told.stderr) == (1, True)
    # The login that sees all of it, as the page says.
    address = own("postgresql://talks_backup@db.example/talks") + f"?schema={own.schema}"
    _, checks = asyncio.run(inspect_postgres(address, "local"))
    assert [one for one in checks if "may not" in one.told or one.level == "bad"] == []


async def done(own: Own, database: str, verb: str, *given: Any) -> Any:
    """One operation of a program."""
    store = PostgresStore(own(f"postgresql://talks_login@db.example/{database}"))
    try:
        return await getattr(store, verb)(*given)
    finally:
        await store.close()


def configure(text: str) -> None:
    """Lines of a configuration: names that the server has, with values that it takes."""
    with connected() as server:
        for line in text.splitlines():
            name, value = (part.strip() for part in line.partition("#")[0].split("="))
            row = server.execute("select context from pg_settings where name = %s", [name])
            (context,) = row.fetchone()
            if context in ("user", "superuser"):
                server.execute(sql.SQL("set {} = {}").format(sql.Identifier(name), value))


def test_its_numbers_are_the_code_s():
    assert f"pool={parse_postgres_url('postgresql://x/y').pool}`" in PAGE
    assert f"up to {append._TOGETHER} appends or {append._BYTES // 10**6} MB" in PAGE
    assert append.LANES == 2
    assert "Appends take two" in PAGE
    assert f"{retention._BATCH:,} a\ntransaction" in PAGE
    assert f"repeated for {append.PATIENCE:.0f} s" in PAGE
    assert PAGE.count("\n") <= 210

"""G-9: `foldline migrate`, with the roles that it prints, on a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "stores"))
from serving import connected, documented_roles

PROGRAM = Path(sys.executable).with_name("foldline")


def run(*given, code=0):
    """What it prints; its exit code is looked at."""
    ended = subprocess.run(
        [PROGRAM, *given], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}, check=False
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def made():
    with documented_roles() as one:
        yield one


@pytest.mark.real
def test_g9_it_says_what_is_to_be_done_does_it_and_exits_0(made):
    owner, gateway = made.address("owner"), made.address("gateway")
    told = run("migrate", "--check", "--store", owner, code=1)
    assert told.splitlines()[0] == "to do  migration 001_tables.sql"
    assert f"the workers' jobs, in schema {made.schema}_jobs" in told
    refused = run("sessions", "--store", gateway, code=2)  # a program cannot, and says who can
    assert "run `foldline migrate` as the schema's owner" in " ".join(refused.split())
    assert "done  migration 001_tables.sql" in run("migrate", "--store", owner)
    for again in (["migrate"], ["migrate", "--check"]):
        assert "nothing to do" in run(*again, "--store", owner)
        assert "nothing to do" in run(*again, "--store", gateway)  # a program may look
    body = json.loads(run("migrate", "--check", "--json", "--store", owner))
    assert (body["ok"], body["pending"]) == (True, [])

    # Roles that were made later, or rights that somebody took, are seen and given.
    with psycopg.connect(made.address("owner").partition("?")[0], autocommit=True) as server:
        server.execute(f"revoke all on schema {made.schema} from {made.schema}_reader")
        server.execute(f"revoke all on schema {made.schema}_jobs from {made.schema}_app")
    told = run("migrate", "--check", "--store", owner, code=1)
    assert told.splitlines() == [
        f"to do  rights of {made.schema}_reader in schema {made.schema}",
        f"to do  rights of {made.schema}_app in schema {made.schema}_jobs",
    ]
    run("migrate", "--store", owner)
    assert "nothing to do" in run("migrate", "--check", "--store", owner)


@pytest.mark.real
def test_each_role_may_do_what_it_is_for_and_no_more(made, tmp_path):
    owner, gateway, reader = map(made.address, ("owner", "gateway", "reader"))
    run("migrate", "--store", owner)
    said = tmp_path / "said.json"
    said.write_text(json.dumps([{"role": "user", "content": "a canary"}]))
    run("import", str(said), "--as", "one", "--store", gateway, "--tenant", "acme")
    for role in (gateway, reader, made.address("worker")):
        assert "one" in run("sessions", "--store", role, "--tenant", "acme")
        assert "canary" in run("export", "one", "--store", role, "--tenant", "acme")
    run("sessions", "--store", reader, code=1)  # another tenant has none
    run("import", str(said), "--as", "two", "--store", reader, "--tenant", "acme", code=3)
    assert "one" not in run("sessions", "--store", gateway, "--tenant", "other", code=1)

    for role in ("gateway", "worker", "reader"):
        with psycopg.connect(made.address(role).partition("?")[0], autocommit=True) as login:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="without a tenant"):
                login.execute(f"table {made.schema}.heads")
            with pytest.raises(psycopg.errors.Error):
                login.execute(f"create table {made.schema}.mine (a int)")
            with pytest.raises(psycopg.errors.Error):
                login.execute(f"alter table {made.schema}.heads disable row level security")
    with connected() as server:
        found = server.execute(
            "select rolname from pg_roles where rolname like %s and (rolsuper or rolbypassrls or rolcreaterole)",
            (f"{made.schema}_%",),
        ).fetchall()  # fmt: skip
    assert found == [(f"{made.schema}_backup",)]


def test_a_file_needs_no_migration_and_has_no_roles(cli, tmp_path):
    there = tmp_path / "talks.db"
    assert cli("migrate", "--store", there).tidy().code == 3
    there.touch()
    ended = cli("migrate", "--check", "--store", there).tidy()
    assert ended.code == 0
    assert "nothing to do" in ended.out
    assert "a file has no roles" in cli("migrate", "--roles", "--store", there).tidy().err


def test_a_server_that_is_away_is_an_error_of_the_store(cli):
    ended = cli("migrate", "--check", "--store", "postgresql://127.0.0.1:1/none").tidy()
    assert ended.code == 3
    assert "no connection to postgresql://127.0.0.1:1/none" in ended.err

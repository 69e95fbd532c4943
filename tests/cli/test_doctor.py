"""The doctor's judgement of a server: each answer that is not well is told, with the way out."""

import json
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from foldline.apps.cli import doctor_postgres as schema_side
from foldline.apps.cli import doctor_postgres as server_side
from foldline.apps.cli.doctor_postgres import (
    inspect_connections,
    inspect_login,
    inspect_server_settings,
    inspect_version,
)
from foldline.stores.postgres.health import (
    IndexHealth,
    Login,
    OldestTransaction,
    PendingWork,
    Plan,
    PlanSession,
    Routine,
    ServerState,
    Slot,
    Table,
    Unseen,
    compare_migrations,
)
from foldline.stores.postgres.schema import load_migrations

GB = 1 << 30
WELL = ServerState(
    number=150_020,
    replica=False,
    settings={
        "autovacuum": "on", "track_counts": "on", "fsync": "on", "full_page_writes": "on",
        "synchronous_commit": "on", "wal_level": "replica", "max_wal_size": GB,
        "shared_buffers": GB, "effective_cache_size": 3 * GB, "max_connections": "100",
        "superuser_reserved_connections": "3", "statement_timeout": 0, "lock_timeout": 0,
        "idle_in_transaction_session_timeout": 0, "default_transaction_read_only": "off",
    },
    lz4=True,
    taken=10,
    pooled=False,
)  # fmt: skip
APP = Login(
    name="app",
    bypasses=False,
    watches=False,
    role="foldline_app",
    role_there=True,
    role_bypasses=False,
    member=True,
    owner="owner",
    owns=False,
    enters=True,
)
PART = Table(
    name="events_00",
    parent="events",
    bounds="FOR VALUES WITH (modulus 64, remainder 0)",
    secured=True,
    forced=True,
    heap=0,
    indexes=0,
    toast=0,
    live=0,
    dead=0,
    analyzed=True,
    lz4=True,
    grants=(),
)


def levels(found):
    return {check.what: check.level for check in found}


def test_a_server_that_is_well():
    assert {*levels([*inspect_version(WELL), *inspect_server_settings(WELL)]).values()} == {"ok"}


@pytest.mark.parametrize(
    ("name", "value", "what", "level", "todo"),
    [
        ("fsync", "off", "durable", "bad", "alter system set fsync = 'on'"),
        ("full_page_writes", "off", "durable", "bad", "set full_page_writes"),
        ("synchronous_commit", "off", "durable", "bad", "set synchronous_commit"),
        ("wal_level", "minimal", "journal", "warn", "set wal_level = 'replica'"),
        ("max_wal_size", 64 << 20, "journal", "warn", "set max_wal_size"),
        ("shared_buffers", 16 << 20, "memory", "warn", "set shared_buffers"),
        ("effective_cache_size", 8 << 20, "memory", "warn", "set effective_cache_size"),
        ("autovacuum", "off", "vacuum", "warn", "set autovacuum"),
        ("track_counts", "off", "vacuum", "warn", "set track_counts"),
        ("statement_timeout", 5_000, "timeouts", "warn", "set statement_timeout = 0"),
        ("lock_timeout", 100, "timeouts", "warn", "set lock_timeout = 0"),
        ("transaction_timeout", 100, "timeouts", "warn", "set transaction_timeout = 0"),
        ("default_transaction_read_only", "on", "server", "bad", "default_transaction_read_only"),
    ],
)
def test_each_setting_is_judged(name, value, what, level, todo):
    server = replace(WELL, settings={**WELL.settings, name: value})
    found = [
        one
        for one in (*inspect_version(server), *inspect_server_settings(server))
        if one.level != "ok"
    ]
    assert [(one.what, one.level) for one in found] == [(what, level)]
    assert todo in found[0].todo


def test_a_setting_that_is_well_otherwise():
    """Durable on a standby too, a long timeout, a limit for idle transactions."""
    more = {"synchronous_commit": "remote_apply", "statement_timeout": 3_600_000}
    server = replace(WELL, settings={**WELL.settings, **more})
    assert {*levels(inspect_server_settings(server)).values()} == {"ok"}


@pytest.mark.parametrize(
    ("server", "level"),
    [
        (replace(WELL, number=140_000), "ok"),
        (replace(WELL, number=130_018), "bad"),
        (replace(WELL, replica=True), "warn"),
    ],
)
def test_versions_and_replicas(server, level):
    assert levels(inspect_version(server))["server"] == level


def test_room_for_a_pool():
    assert inspect_connections(WELL, 8).level == "ok"
    assert inspect_connections(replace(WELL, taken=92), 8).level == "warn"
    assert inspect_connections(WELL, 98).level == "bad"
    assert inspect_connections(replace(WELL, pooled=True), 98).level == "ok"


def test_logins():
    well = inspect_login(APP, pooled=True)
    assert (well.level, "member of foldline_app" in well.told) == ("ok", True)
    assert inspect_login(replace(APP, member=False, owns=True), pooled=False).level == "ok"
    stranger = inspect_login(replace(APP, member=False), pooled=False)
    assert (stranger.level, stranger.todo) == ("bad", "grant foldline_app to app")
    root = replace(APP, bypasses=True)
    assert inspect_login(root, pooled=False).level == "warn"
    assert inspect_login(root, pooled=True).level == "bad"
    backup = inspect_login(replace(root, member=False), pooled=False)
    assert (backup.level, backup.todo) == ("bad", "grant foldline_app to app")
    assert inspect_login(replace(root, role_there=False), pooled=False).level == "bad"
    assert inspect_login(replace(APP, role_bypasses=True), pooled=False).level == "bad"


def test_what_holds_up_vacuum_and_journal():
    told = server_side.inspect_oldest_transaction
    assert told(None, WELL).level == "ok"
    assert told(OldestTransaction(7, "x", "active", 60), WELL).level == "ok"
    old = told(OldestTransaction(7, "x", "idle in transaction", 7_200), WELL)
    assert (old.level, "pg_terminate_backend(7)" in old.todo) == ("warn", True)
    assert "idle_in_transaction_session_timeout" in old.todo
    limited = {**WELL.settings, "idle_in_transaction_session_timeout": 60_000}
    limits = told(OldestTransaction(7, "x", "active", 7_200), replace(WELL, settings=limited))
    assert "idle_in_transaction" not in limits.todo
    assert told(OldestTransaction(0, "x", "prepared as g", 100_000), WELL).level == "bad"
    assert told(Unseen("may not"), WELL).level == "warn"
    held = [
        Slot("gone", active=False, held=9 * 10**9),
        Slot("behind", active=True, held=9 * 10**9),
        Slot("ok", active=True, held=9),
    ]
    assert [(one.level, one.told.split()[0]) for one in server_side.inspect_slots(held)] == [
        ("bad", "gone"),
        ("warn", "behind"),
    ]
    assert [one.level for one in server_side.inspect_slots([])] == ["ok"]
    assert [one.level for one in server_side.inspect_slots(Unseen("may not"))] == ["warn"]
    ages = [
        server_side.inspect_wraparound((age, 5)).level for age in (10, 600_000_000, 1_600_000_000)
    ]
    assert ages == ["ok", "warn", "bad"]
    assert server_side.inspect_wraparound((5, 1_600_000_000)).level == "bad"


def test_migrations_are_compared():
    known = load_migrations()
    rows = [(one.number, one.name, one.sha256, one.lives_with) for one in known]
    last = rows[-1][0]

    def found(applied):
        return [
            (one.level, one.told) for one in schema_side.inspect_migrations(applied, "foldline")
        ]

    assert [level for level, _ in found(rows)] == ["ok"]
    assert found(rows[:-1]) == [("warn", f"{known[-1].name} not applied yet")]
    assert found([*rows[:2], *rows[3:]])[0][0] == "bad"
    assert found([*rows[:-1], (last, known[-1].name, "other", 1)])[0][0] == "bad"
    assert found([*rows, (last + 1, "007_more.sql", "x", last)])[0][0] == "warn"
    assert found([*rows, (last + 1, "007_more.sql", "x", last + 1)])[0][0] == "bad"
    assert found([])[0][0] == "bad"
    both = compare_migrations(known, [*rows[1:], (99, "099_far.sql", "x", 99)])
    assert ([one.number for one in both.removed], both.strange[0][0]) == ([1], 99)


def test_partitions_are_counted_and_weighed():
    def parts(large=0):
        return [
            replace(
                PART,
                name=f"{parent}_{at:02}",
                parent=parent,
                bounds=f"FOR VALUES WITH (modulus 64, remainder {at})",
                heap=large if at == 5 else 10,
            )
            for parent in ("events", "seen", "blobs")
            for at in range(64)
        ]

    assert schema_side.inspect_partitions(parts(), "s").level == "ok"
    assert schema_side.inspect_partitions(parts(large=2 * 10**9), "s").level == "warn"
    lost = schema_side.inspect_partitions([one for one in parts() if one.name != "seen_63"], "s")
    assert (lost.level, lost.told) == ("bad", "1 missing: seen_63")
    assert "alter table s.seen attach partition s.seen_63 for values with" in lost.todo


def test_dead_rows_and_blind_planners():
    def found(**given):
        return levels(schema_side.inspect_sizes([replace(PART, **given)], "s"))

    assert found(live=10**6, dead=1_000) == {"size": "ok", "dead rows": "ok"}
    assert found(live=10**6, dead=900_000)["dead rows"] == "warn"
    assert found(live=10, dead=90)["dead rows"] == "ok"
    assert found(live=10**6, analyzed=False)["statistics"] == "warn"


def test_bodies_without_lz4():
    assert schema_side.inspect_compression([PART], "s", lz4=True).level == "ok"
    slow = schema_side.inspect_compression([replace(PART, lz4=False)], "s", lz4=True)
    assert (slow.level, slow.todo) == (
        "warn",
        "alter table s.events_00 alter column body set compression lz4",
    )
    assert (
        "built with it"
        in schema_side.inspect_compression([replace(PART, lz4=False)], "s", lz4=False).todo
    )


def test_work_that_waits():
    def found(*given):
        return [one.level for one in schema_side.inspect_pending_work(PendingWork(*given))]

    assert found(0, None, 900, "acme") == ["ok"]
    assert found(1, "acme", 0, None) == ["warn"]
    assert found(0, None, 5_000, "acme") == ["warn"]
    assert found(2, "acme", 5_000, "acme") == ["warn", "warn"]
    assert [one.level for one in schema_side.inspect_pending_work(Unseen("may not"))] == ["warn"]


def test_slow_plans():
    session = PlanSession("acme", None, 999)

    def found(**given):
        plan = Plan(**{"what": "read", "buffers": 5, "most": 32, "scanned": (), **given})
        return [
            (one.level, one.told) for one in schema_side.inspect_query_plans(session, [plan], "s")
        ]

    assert found()[0][0] == "ok"
    assert found(buffers=33) == [("warn", "read touches 33 pages, 32 would do")]
    assert found(scanned=("events_07",)) == [("bad", "read reads events_07 from end to end")]
    assert found(buffers=None, what="append")[0][0] == "ok"
    for nothing in (None, Unseen("may not")):
        assert [one.level for one in schema_side.inspect_query_plans(nothing, [], "s")] == [
            "ok" if nothing is None else "warn"
        ]


def test_functions_and_indexes_that_nobody_may_see():
    assert schema_side.inspect_routines(Unseen("may not")).level == "warn"
    one = Routine("head", definer=False, search_path=None, public=False, signature="s.head()")
    assert schema_side.inspect_routines([one]).level == "bad"
    assert schema_side.inspect_indexes(Unseen("may not"), "s").level == "warn"
    every = [IndexHealth(name, valid=True) for name in schema_side.INDEXES]
    assert schema_side.inspect_indexes(every, "s").level == "ok"
    broken = [IndexHealth(one.name, valid=one.name != "edits") for one in every]
    assert schema_side.inspect_indexes(broken, "s").todo == "reindex index s.edits"


def extras(cli):
    """What the doctor says of them."""
    told = json.loads(cli("doctor", "--json").out)["checks"]
    return next(one for one in told if one["what"] == "extras")


def test_every_extra_is_known(cli):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    told = extras(cli)
    named = {one for part in told["told"].split("; ") for one in part.split(": ")[1].split(", ")}
    assert named == {*project["optional-dependencies"]} - {"all"}


def test_an_extra_is_there_when_all_that_it_brings_is(cli, monkeypatch):
    required = ["apsw>=3", "rich>=14; extra == 'cli'", "rich>=14; extra == 'worker'", "no-such-thing[x]>=1; extra == 'worker'"]  # fmt: skip
    monkeypatch.setattr("foldline.apps.cli.doctor.requires", lambda _: required)
    assert extras(cli) == {
        "level": "ok",
        "what": "extras",
        "told": "installed: cli; not: worker",
        "todo": "pip install 'foldline[NAME]' adds one",
    }


def test_without_the_extra(cli, monkeypatch):
    """The message names it, and the rest is looked at."""
    monkeypatch.delitem(sys.modules, "foldline.apps.cli.doctor_postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    ended = cli("doctor", "postgresql://u:secret@host/talks").tidy()
    assert ended.code == 1
    assert "pip install 'foldline[pg]'" in ended.out
    assert "secret" not in ended.out + ended.err


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:sec@ret@127.0.0.1:1/test",
        "postgresql://u:sec?ret@127.0.0.1:1/test",
        "postgresql://u:sec?ret=1@127.0.0.1:1/test",
        "postgresql://u:secret@127.0.0.1:1/test",
        "postgresql://127.0.0.1:1/test?user=u&password=secret",
        "postgresql://127.0.0.1:1/test?user=u&pasword=secret",
        "postgresql://u:secret@127.0.0.1:x1/test",
        "postgresql://u:secret@127.0.0.1/test?schema=A",
    ],
)
def test_no_server_there_and_no_password_shown(cli, address):
    for option in ([], ["--json"]):
        ended = cli("doctor", address, *option)
        assert ended.code == 1
        assert "bad" in ended.out
        assert not [word for word in ("secret", "sec@", "sec?", "ret@") if word in ended.out]
        assert not ended.err

"""`foldline usage`: as a table, as CSV and as JSON; its errors say what to write."""

import asyncio
import csv
import io
from time import time

import pytest

from foldline.session.usage_records import UsageGroup, UsageRecorder, UsageSums
from foldline.stores.sqlite import SqliteStore

DAY = 86_400


@pytest.fixture
def store(tmp_path):
    """A store with the calls of two owners, of a second tenant, and of a week ago."""
    path = str(tmp_path / "s.db")

    async def fill():
        kept = SqliteStore(path)
        for tenant, owner, model, ago, pico in (
            ("local", "alice", "opus", 0, 3 * 10**12),
            ("local", "alice", "haiku", 0, 10**12),
            ("local", "=bob", "opus", 0, 10**10),
            ("local", "alice", "opus", 10 * DAY, 7 * 10**12),
            ("acme", "carol", "opus", 0, 5 * 10**12),
        ):
            recorder = UsageRecorder(kept, clock=lambda ago=ago: time() - ago)
            sums = UsageSums(calls=2, input=1_000, cache_read=250, output=10, pico=pico)
            sums.saved_pico, sums.errors = 2 * pico, {"cut": 1}
            recorder.add(tenant, UsageGroup(owner, "laptop", model, "openai"), sums)
            await recorder.flush()
        await kept.close()

    asyncio.run(fill())
    return path


def test_a_table(cli, store):
    ended = cli("usage", "--store", store).tidy()
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["owner", "model", "dollars", "saved", "calls", "input", "cached", "output", "folds", "bad"]  # fmt: skip
    assert lines[1] == ["alice", "opus", "3.00", "6.00", "2", "1k", "25%", "10", "0", "1"]
    assert [line[:3] for line in lines[2:4]] == [["alice", "haiku", "1.00"], ["=bob", "opus", "0.01"]]  # fmt: skip
    assert lines[4][:4] == ["all", "4.01", "8.02", "6"]
    assert lines[-1] == ["bad:", "3", "cut"]


def test_csv_and_json(cli, store):
    ended = cli("usage", "--store", store, "--by", "owner", "--since", "2w", "--csv")
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert [(one["owner"], one["dollars"]) for one in rows] == [("alice", "11.000000"), ("'=bob", "0.010000")]  # fmt: skip
    body = cli("usage", "--store", store, "--by", "tenant", "--every-tenant", "--json").json
    assert [(one["tenant"], one["dollars"]) for one in body["rows"]] == [("acme", 5.0), ("local", 4.01)]  # fmt: skip
    assert body["total"]["calls"] == 8
    days = cli("usage", "--store", store, "--by", "day", "--since", "4w", "--until", "5d", "--json")
    assert [one["dollars"] for one in days.json["rows"]] == [7.0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--by", "owner,colour"], "'colour' is none of tenant, owner, key"),
        (["--by", "owner,owner"], "name each once"),
        (["--since", "yesterday"], "write 24h, 7d, 4w or 2026-11-01"),
        (["--since", "1d", "--until", "2d"], "is not before"),
        (["--csv", "--json"], "not both"),
    ],
)
def test_what_cannot_be_read(cli, store, given, told):
    ended = cli("usage", "--store", store, *given)
    assert ended.code == 2
    assert told in ended.err


def test_no_calls(cli, store):
    ended = cli("usage", "--store", store, "--tenant", "nobody")
    assert ended.code == 1
    assert "no calls in this time" in ended.out

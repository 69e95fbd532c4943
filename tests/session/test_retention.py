"""Retention on a schedule: off by default, once at a time, whoever runs for long."""

import asyncio
from time import time

import pytest

from foldline.core.log import Opened
from foldline.errors import StoreFailed
from foldline.session.log_handle import Live
from foldline.session.model_facts import of_session
from foldline.session.retention import apply_retention_when_due, run_retention
from foldline.settings.layers import load_settings
from foldline.settings.tree import RetentionSettings
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
TWO = RetentionSettings(sessions=2)
HOUR = 3_600.0


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def store():
    opened = SqliteStore(":memory:")
    for number in range(4):
        await made(opened, f"s{number}")
    yield opened
    await opened.close()


async def made(store, session, tenant="local"):
    live = await Live.open(store, Name(tenant, session), facts=of_session("m", {}))
    await live.append([Opened("m", {})])


async def names_of(store, tenant="local"):
    return [one.session for one in await store.sessions(tenant)]


async def test_it_is_off_unless_a_limit_is_set(store, tmp_path):
    """P1-50: nothing is erased by itself."""
    assert load_settings(tmp_path, env={}).retention == RetentionSettings()
    told = []
    async with run_retention(store, lambda: ["local"], RetentionSettings(), notify=told.append):
        await asyncio.sleep(0.05)
    assert (await names_of(store), told) == (["s0", "s1", "s2", "s3"], [])
    assert await store.get(Name("local", ""), "retention", "next") is None


async def test_it_runs_at_the_start_and_then_once_in_its_time(store):
    """P1-50, M-13: by rule, from time to time."""
    now = time()
    first = await apply_retention_when_due(store, "local", TWO, now=now)
    assert first.sessions == ("s0", "s1")
    await made(store, "s4")
    assert await apply_retention_when_due(store, "local", TWO, now=now + 23 * HOUR) is None
    again = await apply_retention_when_due(store, "local", TWO, now=now + 25 * HOUR)
    assert again.sessions == ("s2",)


async def test_of_many_processes_one_erases(store):
    done = await asyncio.gather(*(apply_retention_when_due(store, "local", TWO) for _ in range(8)))
    assert len([one for one in done if one is not None]) == 1


async def test_days_are_those_since_a_session_changed(store):
    rule = RetentionSettings(days=30, every_hours=1.0)
    assert (await apply_retention_when_due(store, "local", rule)).sessions == ()
    assert len(await names_of(store)) == 4


async def test_every_tenant_has_its_own_turn_and_says_what_went(store):
    await made(store, "a", "acme")
    told, over = [], asyncio.Event()

    def tell(line):
        told.append(line)
        over.set()

    async with (
        run_retention(store, lambda: ["local", "acme"], TWO, notify=tell, look=0.01),
        asyncio.timeout(5),
    ):
        await over.wait()
    assert await names_of(store) == ["s2", "s3"]
    assert await names_of(store, "acme") == ["a"]
    assert told[0].startswith("retention erased 2 sessions of local (2 events")
    assert told[0].endswith("s0, s1")


async def test_a_session_that_is_held_stays(store):
    await store.hold(Name("local", "s0"), on=True)
    await apply_retention_when_due(store, "local", RetentionSettings(sessions=1))
    assert "s0" in await names_of(store)


async def test_after_a_failure_it_is_tried_again_soon(store, monkeypatch):
    async def away(*_, **__):
        raise StoreFailed("the disk is full")

    now = time()
    with monkeypatch.context() as broken:
        broken.setattr(store, "retain", away)
        with pytest.raises(StoreFailed):
            await apply_retention_when_due(store, "local", TWO, now=now)
    assert await apply_retention_when_due(store, "local", TWO, now=now + 60) is None
    assert (await apply_retention_when_due(store, "local", TWO, now=now + 700)) is not None


def test_a_stranger_s_folder_cannot_switch_it_on(tmp_path):
    (tmp_path / "foldline.toml").write_text("retention.days = 1")
    said = load_settings(tmp_path, env={"HOME": str(tmp_path / "home")})
    assert said.retention.days is None
    assert [one.name for one in said.untrusted] == ["retention.days"]

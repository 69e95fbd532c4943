"""Every way that an address may be named for a session, against the rule in five lines."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from mutants import broken

import foldline
from foldline.apps.cli.build_agent import Wish, open_agent
from foldline.apps.cli.context import Desk
from foldline.dialects.openai import VENDOR
from foldline.errors import OtherHost
from foldline.session.host import agree_to_host, choose_host, host_of, record_host, recorded_host
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider

DEFAULT = VENDOR.address


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with nobody's settings in it, and no address in the environment."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def says(folder, text):
    """The user's own settings."""
    path = folder / "config" / "foldline" / "foldline.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


A, B = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"


def expected(recorded, flag, env, settings):
    """The rule in five lines: where it goes, or None where it is refused."""
    if flag:
        return flag
    named = settings or env
    if recorded and named and recorded != named:
        return None
    return recorded or named or DEFAULT


CASES = [*itertools.product((None, A, DEFAULT), (None, A, B), (None, A, B), (None, A, B))]


async def outcome(case, place, monkeypatch):
    """Where an agent of such a session would ask, and what its log says then."""
    recorded, flag, env, settings = case
    if env:
        monkeypatch.setenv("OPENAI_BASE_URL", env)
    else:
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    says(place, f'model.base_url = "{settings}"' if settings else "")
    store = store_at(":memory:")
    name = Name("local", "one")
    async with foldline.aopen(":memory:", model="m", session="one", store=store) as session:
        await session.add("a secret")
        if recorded:
            host = choose_host("one", "m", recorded=None, named=None)
            host = replace(host, base_url=recorded)
            await session.live.record_events(record_host(session.live.view.settings, host))
            await agree_to_host(store, name, host)
    flags = {"model.max_input_tokens": 9_000, **({"model.base_url": flag} if flag else {})}
    before = (await store.head(name)).seq
    goes = None
    try:
        async with open_agent(Wish(desk=Desk(":memory:", given=True), flags=flags), "one", store=store) as seat:  # fmt: skip
            goes = host_of(await seat.agent.model.wait_for_model()).base_url
    except OtherHost:
        if (await store.head(name)).seq != before:
            goes = "refused too late"
    view = (await open_stored_session(store, name)).live.view
    log = recorded_host(view.settings)
    await store.close()
    return goes, log and log.base_url


async def is_wrong(case, place, monkeypatch):
    goes, log = await outcome(case, place, monkeypatch)
    right = expected(*case)
    return goes != right or log != (right or case[0])


MUTANTS = {
    "the environment wins": (
        "foldline.session.host",
        "    if recorded is None or (named is not None and named.is_explicit):",
        "    if recorded is None or named is not None:",
    ),
    "nothing is written down": (
        "foldline.apps.cli.build_agent",
        "    if changed is None or not (before or live.view.items):",
        "    if True:",
    ),
    "the log is not looked at": (
        "foldline.apps.cli.build_agent",
        "        recorded = recorded_host(origin.view.settings)",
        "        recorded = None",
    ),
    "a flag is no better than a file": (
        "foldline.apps.cli.build_agent",
        "is_explicit=origin == LINE and wish.moves)",
        "is_explicit=False)",
    ),
    "what is written is not what is asked": (
        "foldline.apps.cli.build_agent",
        "name=name, base_url=host.given)",
        "name=name, base_url=None)",
    ),
}


@pytest.mark.anyio
async def test_every_way_that_an_address_may_be_named(place, monkeypatch):
    assert len(CASES) == 81
    assert [case for case in CASES if await is_wrong(case, place, monkeypatch)] == []


@pytest.mark.anyio
@pytest.mark.parametrize("mutant", MUTANTS)
async def test_what_would_break_the_rule_is_caught(place, monkeypatch, mutant):
    with broken(*MUTANTS[mutant]):
        for case in CASES:
            if await is_wrong(case, place, monkeypatch):
                return
    raise AssertionError("all cases are as they should be")


def test_a_session_that_was_moved_meanwhile_is_not_asked_where_it_was(place):
    """A bot has sessions open for days, and a terminal may move one."""

    async def work(url):
        flags = {"model": "m", "model.base_url": url, "model.max_input_tokens": 9_000}
        wish = Wish(desk=Desk(str(place / "talks.db"), given=True), flags=flags, tools=False)
        async with open_agent(wish, "one", alone=False) as seat:
            assert (await seat.agent.turn("a secret")).how == "answered"
            live = seat.agent.session.live
            moved = replace(host_of(seat.agent.model), base_url=B)
            await live.record_events(record_host(live.view.settings, moved))
            return await seat.agent.turn("hello")

    with Provider() as here:
        ended = asyncio.run(work(f"{here.url}/v1"))
        assert (ended.how, f"is asked at {B}" in ended.words) == ("vetoed", True)
        assert len(here.asked) == 1

"""Where a session is asked: addresses compared, logs that say nothing readable, who may tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.core.log import SettingsChanged
from foldline.errors import BadInput, OtherHost
from foldline.models.clients import is_same_address, normalize_address
from foldline.session.host import (
    Host,
    Named,
    agree_to_host,
    choose_host,
    find_host,
    host_of,
    make_teller,
    must_be_agreed,
    record_host,
    recorded_host,
)
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import ScriptedModel

HERE = Host("http://127.0.0.1:8080/v1", "openai-chat", "http://127.0.0.1:8080/v1")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://API.OpenAI.com/v1", "https://api.openai.com:443/v1/", True),
        ("http://a.example:80", "http://a.example/", True),
        ("https://api.openai.com./v1", "https://api.openai.com/v1", True),
        ("http://ann:pw@a.example/v1?key=1#x", "http://a.example/v1", True),
        ("http://localhost:8080/v1", "http://127.0.0.1:8080/v1", True),
        ("http://[::1]:8080/v1", "http://127.0.0.1:8080/v1", True),
        ("http://localhost:8080/v1", "http://127.0.0.1:8081/v1", False),
        ("http://localhost:8080/v1", "http://a.example:8080/v1", False),
        ("http://127.0.0.1.a.example/v1", "http://127.0.0.1/v1", False),
        ("http://a.example/v1", "https://a.example/v1", False),
        ("http://a.example/v1", "http://a.example/v2", False),
        ("http://a.example@b.example/v1", "http://a.example/v1", False),
        ("https://a.example:80/v1", "http://a.example:80/v1", False),
    ],
)
def test_addresses_are_compared_by_what_they_mean(one, other, same):
    assert is_same_address(one, other) is same
    assert is_same_address(other, one) is same
    assert is_same_address(one, normalize_address(one))


@pytest.mark.parametrize("url", ["a.example/v1", "ftp://a/", "http://", "http://a:99999/", "http://a b/", "http://a:0/", "", "http://[::1/v1"])  # fmt: skip
def test_what_is_no_address_is_told(url):
    with pytest.raises(BadInput, match="is no address; write --base-url"):
        normalize_address(url)


def test_a_password_is_not_told():
    with pytest.raises(BadInput) as told:
        normalize_address("ftp://ann:hunter2@a.example/")
    assert "hunter2" not in str(told.value)


WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?#@[]\\:%"), min_size=1, max_size=8)  # fmt: skip


@given(name=WORDS, word=WORDS, host=st.sampled_from(["A.example", "[::1]", "127.0.0.1"]), port=st.sampled_from(["", ":80", ":8080"]), path=st.sampled_from(["", "/", "/v1", "/v1/"]))  # fmt: skip
def test_no_name_and_no_key_is_ever_kept(name, word, host, port, path):
    plain = normalize_address(f"http://{host}{port}{path}")
    assert normalize_address(f"http://{name}:{word}@{host}{port}{path}?key={word}#{name}") == plain
    assert normalize_address(plain) == plain


# What a log may say


@pytest.mark.parametrize("dialect", [None, 7, "somebody-elses"])
def test_a_dialect_that_this_release_does_not_know_is_no_leave_to_go_elsewhere(dialect):
    found = recorded_host({"base_url": HERE.base_url, "dialect": dialect})
    with pytest.raises(OtherHost, match="say where it is asked"):
        choose_host("s", "m", recorded=found, named=None)


@pytest.mark.anyio
async def test_an_address_that_nobody_can_read_is_none_and_a_flag_mends_it():
    store = store_at(":memory:")
    found = recorded_host({"base_url": "nonsense", "dialect": "openai-chat"})
    with pytest.raises(OtherHost):
        choose_host("s", "m", recorded=found, named=Named(HERE.base_url, "env X"))
    chosen = choose_host("s", "m", recorded=found, named=None)
    with pytest.raises(OtherHost, match="nothing from here was sent before"):
        await must_be_agreed(store, Name("local", "s"), chosen)
    named = Named(HERE.base_url, "the command line", is_explicit=True)
    assert choose_host("s", "m", recorded=found, named=named) == HERE
    assert record_host({"base_url": "nonsense"}, HERE) is not None
    await store.close()


@pytest.mark.anyio
async def test_what_was_agreed_to_is_one_tenants():
    store = store_at(":memory:")
    await agree_to_host(store, Name("ann", "s"), HERE)
    await must_be_agreed(store, Name("ann", "other"), HERE)
    with pytest.raises(OtherHost):
        await must_be_agreed(store, Name("bob", "s"), HERE)
    await store.close()


@pytest.mark.anyio
async def test_what_is_carried_on_goes_where_it_went():
    store = store_at(":memory:")
    async with foldline.aopen(":memory:", model="m", session="old", store=store) as old:
        await old.add("a secret")
        await old.live.record_events(record_host(old.live.view.settings, HERE))
    async with foldline.aopen(
        ":memory:", model="m", session="new", carry="old", store=store
    ) as new:
        assert recorded_host(new.live.view.settings) == HERE
    await store.close()


@pytest.mark.anyio
async def test_what_a_session_was_made_with_stays_when_it_is_opened_otherwise():
    store = store_at(":memory:")
    async with foldline.aopen(":memory:", model="m", session="s", store=store) as one:
        settings = {**one.live.view.settings, "on_disconnect": "continue"}
        await one.live.record_events(SettingsChanged(settings))
    async with foldline.aopen(":memory:", model="m", session="s", window=9_000, store=store) as one:
        assert one.live.view.settings == {**settings, "window": 9_000}
    await store.close()


# Who may tell what is folded


def test_a_summarizer_is_asked_where_its_session_is_or_where_it_is_said_to_be():
    assert host_of(make_teller("gpt-5-mini", HERE)) == HERE
    there = host_of(make_teller("claude-haiku-4.5@https://proxy.example/x", HERE))
    assert there == Host("https://proxy.example/x", "anthropic")
    with pytest.raises(
        OtherHost, match=r"write claude-haiku-4\.5@https://api\.anthropic\.com to send"
    ):
        make_teller("claude-haiku-4.5", HERE)
    assert host_of(make_teller("gpt-5", None)).base_url == "https://api.openai.com/v1"
    assert host_of(ScriptedModel([])) is None


@pytest.mark.anyio
async def test_a_programs_summarizer_by_name_is_asked_at_the_sessions_host(monkeypatch):
    store = store_at(":memory:")
    name = Name("local", "s")
    async with foldline.aopen(":memory:", model="m", session="s", store=store) as one:
        await one.add("a secret")
        await one.live.record_events(record_host(one.live.view.settings, HERE))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    given = {"model": "m", "session": "s", "store": store, "summarizer": "gpt-5-mini"}
    with pytest.raises(OtherHost, match="it may be a stranger's log"):
        async with foldline.aopen(":memory:", **given):
            pass
    await agree_to_host(store, name, HERE)
    async with foldline.aopen(":memory:", **given) as one:
        (teller,) = one.live.narrator.tellers.models
        assert host_of(teller) == HERE
    await store.close()


@pytest.mark.anyio
async def test_a_worker_asks_each_session_at_its_own_host(monkeypatch):
    from foldline.apps.cli.run_worker import SummarizerClients  # noqa: PLC0415 - the only one who needs it

    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    store = store_at(":memory:")
    async with foldline.aopen(":memory:", model="m", session="s", store=store) as one:
        await one.live.record_events(
            SettingsChanged({"base_url": HERE.base_url, "dialect": HERE.dialect})
        )
    await agree_to_host(store, Name("local", "s"), HERE)
    host = await find_host((await open_stored_session(store, Name("local", "s"))).live)
    asked = SummarizerClients(("model", "gpt-5"))
    assert [host_of(one) for one in asked("m", host).models] == [HERE, HERE]
    assert host_of(asked("m").models[0]).base_url == "http://127.0.0.1:9/v1"
    said = SummarizerClients(base_url="http://127.0.0.1:10/v1")
    assert host_of(said("m", host).models[0]).base_url == "http://127.0.0.1:10/v1"
    with pytest.raises(OtherHost):
        SummarizerClients(("claude-haiku-4.5",))("m", host)
    await asked.close()
    await said.close()
    await store.close()

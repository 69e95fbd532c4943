"""Sessions over HTTP are asked at the operator's upstream, and not where they were not begun."""

import asyncio

import pytest
from api_server import serving

from foldline.models.clients import client
from foldline.testing import Provider


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def upstream(provider):
    """Models at an operator's upstream, both dialects at one address."""

    def of(name, _tenant):
        path = "" if name.startswith("claude") else "/v1"
        return client(name, base_url=f"{provider.url}{path}", api_key="none")

    return of


def kept(served, name):
    settings = {}
    for one in served.events(name):
        settings = one["event"].get("settings", settings)
    return settings.get("base_url")


def test_a_session_is_asked_where_it_was_begun_or_not_at_all(tmp_path):
    store = str(tmp_path / "s.db")
    with Provider() as here, Provider() as there:
        with serving(store, upstream(here)) as served:
            served.made("one")
            assert kept(served, "one") is None, "nobody was asked yet"
            assert served.say("one", "a secret")["words"] == "ok"
            assert kept(served, "one") == f"{here.url}/v1"
            served.made("two", carry="one")
            served.ok("POST", "/sessions/one/fork", {"to": "three"})
        with serving(store, upstream(there)) as served:
            before = served.events("one")
            for name in ("one", "two", "three"):
                status, body = served.call("POST", f"/sessions/{name}/messages", {"text": "on"})
                assert (status, body["error"]["kind"]) == (409, "other_host"), body
                assert f"is asked at {here.url}/v1" in body["error"]["message"]
                assert there.url not in str(body), "an upstream is the operator's"
            assert (served.events("one"), there.bodies) == (before, [])
            served.made("four")
            assert served.say("four", "hello")["words"] == "ok"
        with serving(store, upstream(here)) as served:
            assert served.say("one", "and on")["words"] == "ok"
        assert (len(here.asked), len(there.asked)) == (2, 1)


def test_another_model_does_not_take_it_to_another_provider(tmp_path):
    with Provider() as here, serving(str(tmp_path / "s.db"), upstream(here)) as served:
        served.made("one")
        served.say("one", "a secret")
        status, body = served.call("PUT", "/sessions/one/model", {"model": "claude-sonnet-5.5"})
        assert (status, body["error"]["kind"]) == (409, "other_host")
        served.ok("PUT", "/sessions/one/model", {"model": "gpt-5"})
        assert served.say("one", "on")["words"] == "ok"
        assert [one["model"] for one in here.asked] == ["scripted", "gpt-5"]


def test_a_terminal_goes_on_with_it_at_the_same_host(tmp_path, monkeypatch):
    from foldline.apps.cli.build_agent import Wish, open_agent  # noqa: PLC0415
    from foldline.apps.cli.context import Desk  # noqa: PLC0415 - a terminal in this room

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    store = str(tmp_path / "s.db")
    with Provider() as here:
        with serving(store, upstream(here)) as served:
            served.made("one")
            served.say("one", "a secret")

        async def goes_on():
            wish = Wish(desk=Desk(store, given=True), tools=False)
            async with open_agent(wish, "one") as seat:
                return (await seat.agent.turn("and on")).words

        assert asyncio.run(goes_on()) == "ok"
        assert len([one for one in here.asked if "messages" in one]) == 2

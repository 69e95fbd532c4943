"""A bot's chats are asked where they were begun, whatever its next process is told by others."""

from functools import partial

import pytest

from foldline.apps.cli.build_agent import Wish, open_agent
from foldline.apps.cli.context import Desk as Place
from foldline.core.log import UserSaid
from foldline.testing import Provider

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv(
        "HTTPS_PROXY", "http://127.0.0.1:9"
    )  # no broken rule sends words out of here
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def told(desk, **flags):
    """The bot as the command makes it, with what was written on its command line."""
    given = {"model": "m", "model.max_input_tokens": 64_000, **flags}
    wish = Wish(desk=Place(desk.address, given=True), flags=given, tools=False)

    def seat(name, store=None):
        return open_agent(wish, name, alone=False, store=store)

    desk.seat = partial(seat)


async def test_a_chat_is_asked_where_it_was_begun_and_nowhere_else(desk, monkeypatch):
    with Provider() as here, Provider() as there:
        told(desk, **{"model.base_url": f"{here.url}/v1"})
        async with desk.running():
            await desk.ann.say("a secret")
            await desk.api.until(lambda: desk.api.screen(7).count("📊 Context:") == 1, 60)
        told(desk)
        async with desk.running():  # nobody names an address: where it was begun
            await desk.ann.say("again")
            await desk.api.until(lambda: desk.api.screen(7).count("📊 Context:") == 2, 60)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{there.url}/v1")
        async with desk.running():
            await desk.ann.say("and again")
            await desk.api.until(lambda: "could not be taken in" in desk.api.screen(7), 60)
        assert any(
            f"is asked at {here.url}/v1, and env OPENAI_BASE_URL" in one for one in desk.told
        )
        assert len(await desk.events("tg-7", UserSaid)) == 2, "nothing was written"
        assert (len(here.asked), there.bodies) == (2, [])
        told(desk, **{"model.base_url": f"{there.url}/v1"})
        async with desk.running():  # the operator asks for it
            await desk.ann.say("over there")
            await desk.api.until(lambda: desk.api.screen(7).count("📊 Context:") == 3, 60)
        assert (len(here.asked), len(there.asked)) == (2, 1)


async def test_another_providers_model_is_refused_in_the_chat(desk):
    with Provider() as here:
        told(desk, **{"model.base_url": f"{here.url}/v1"})
        async with desk.running():
            await desk.bob.say("a secret")
            await desk.api.until(lambda: desk.api.screen(8).count("📊 Context:") == 1, 60)
            await desk.bob.say("/model claude-sonnet-5.5")
            await desk.api.until(lambda: f"is asked at {here.url}/v1" in desk.api.screen(8), 60)
            await desk.bob.say("still the same")
            await desk.api.until(lambda: desk.api.screen(8).count("📊 Context:") == 2, 60)
        assert {one["model"] for one in here.asked} == {"m"}

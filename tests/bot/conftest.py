"""A bot at the double, with a scripted model, on a file or a schema of its own."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
from fake_telegram import BotApi
from serving import address_of, an_empty_schema

import foldline
from foldline.agent.approval import Approvals
from foldline.agent.loop import Agent
from foldline.apps.bot.approval_cards import Rules
from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of
from foldline.apps.bot.bot_server import Telegram
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import ScriptedModel

FAST = CallPace(chat=0.0, stream=0.05, again=0.02, reading=5.0, polling=20)
ANN, BOB = 7, 8


@pytest.fixture
def anyio_backend():
    return "asyncio"


@dataclass
class Desk:
    """What a test works with."""

    api: BotApi
    model: ScriptedModel
    address: str
    rules: Rules
    pace: CallPace = FAST
    opening: dict = field(default_factory=dict)
    tools: tuple = ()
    told: list = field(default_factory=list)
    telegram: Telegram | None = None

    def __post_init__(self):
        self.ann, self.bob = self.api.person(ANN, "Ann"), self.api.person(BOB, "Bob")

    @asynccontextmanager
    async def seat(self, name, store=None):
        """An agent for a session, in the bot's store or one of its own."""
        given = {"model": "scripted", "window": 128_000, "store": store, **self.opening}
        async with foldline.aopen(self.address, session=name, **given) as session:
            approvals = Approvals(session.live.store, "local", root="/nowhere", ask=None)
            agent = Agent(session, self.model, tools=self.tools, approve=approvals)
            yield SimpleNamespace(agent=agent, models=lambda other: ScriptedModel(lambda _: "other", name=other), approvals=approvals)  # fmt: skip

    @asynccontextmanager
    async def running(self, *, poll=True):
        """The bot, until it is left."""
        store = store_at(self.address)
        line = BotCalls(
            bot_of(self.api.token, base_url=self.api.url, pace=self.pace), pace=self.pace
        )
        self.telegram = Telegram(
            line,
            seats=partial(self.seat, store=store),
            store=store,
            tenant="local",
            rules=self.rules,
            tell=self.told.append,
        )
        await self.telegram.start_bot()
        polling = asyncio.create_task(self.telegram.poll_updates()) if poll else None
        try:
            yield self.telegram
        finally:
            if polling is not None:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
            await self.telegram.close()
            await store.close()

    async def events(self, name, kind):
        """What a session's log holds of a kind."""
        store = store_at(self.address)
        try:
            seen = await open_stored_session(store, Name("local", name))
            return [one for _, one in await seen.history.events() if isinstance(one, kind)]
        finally:
            await store.close()


@pytest.fixture
def kind():
    """Which store; a test that is parametrized with it runs on several."""
    return "sqlite"


@pytest.fixture
def address(kind, tmp_path):
    if kind == "sqlite":
        yield str(tmp_path / "chat.db")
        return
    with an_empty_schema() as schema:
        yield address_of(schema)


@pytest.fixture
async def desk(address):
    async with BotApi() as api:
        yield Desk(
            api,
            ScriptedModel(lambda _: "fine, thank you"),
            address,
            Rules(allowed=frozenset({ANN, -100}), admins=(BOB,), lease=2.0, again=0.05, look=0.2),
        )

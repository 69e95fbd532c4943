"""A bot that is stopped or killed: nothing is lost, nothing is said twice; webhooks; the command."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientSession

from foldline.apps.bot.bot_server import serve_webhook
from foldline.core.log import ModelSaid, UserSaid
from foldline.errors import StoreFailed
from foldline.session.log_handle import Live
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
PROGRAM = Path(sys.executable).with_name("foldline")


async def settled(desk, count, chat=7):
    await desk.api.until(lambda: desk.api.screen(chat).count("📊 Context:") >= count, 120)


@BOTH
async def test_r81_a_message_that_was_logged_and_not_answered_is_answered_after_a_restart(desk):
    desk.model.delay = 60.0
    async with desk.running():
        await desk.ann.say("are you there?")
        await desk.api.until(lambda: desk.model.requests)
    desk.model.delay = 0.0
    async with desk.running():
        await settled(desk, 1)
        await asyncio.sleep(0.3)
    assert len(await desk.events("tg-7", UserSaid)) == 1
    assert [one for one in desk.api.said(7) if one != "…"] == [desk.api.said(7)[-1]]


@BOTH
async def test_an_answer_that_was_logged_and_not_delivered_is_delivered_after_a_restart_once(desk):
    desk.api.fault = lambda method: "error" if method == "editMessageText" else None
    async with desk.running():
        await desk.ann.say("hello")
        await desk.api.until(lambda: any(one.method == "editMessageText" for one in desk.api.calls))
    assert desk.api.said(7) == ["…"]
    desk.api.fault = lambda _: None
    for _ in range(2):
        async with desk.running():
            await settled(desk, 1)
            await asyncio.sleep(0.2)
    (told,) = desk.api.said(7)
    assert told.startswith("fine, thank you")
    assert len(desk.model.requests) == 1, "what is in the log is not asked for again"


@BOTH
async def test_what_another_process_says_in_a_session_is_answered_and_delivered(desk):
    """A-47: a scheduler speaks into the same log; the bot finds it."""
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk, 1)
        async with desk.seat("tg-7") as seat:
            await seat.agent.session.add("time to stretch", speaker="cron", once="cron:1")
        await settled(desk, 2)
    assert "[cron]\ntime to stretch" in str(desk.model.requests[-1]).replace("\\n", "\n")


@BOTH
async def test_a_turn_whose_session_was_taken_meanwhile_is_begun_again_by_itself(desk, monkeypatch):
    """A process that stood still for longer than its lease: no one is told, no one has to ask."""

    async def still(_live):
        """Renew nothing."""

    monkeypatch.setattr("foldline.session.stored_session._renew_lease", still)
    desk.rules = replace(desk.rules, lease=0.3)
    desk.model.delay = 1.0
    store = store_at(desk.address)
    async with desk.running():
        await desk.ann.say("are you there?")
        await desk.api.until(lambda: desk.model.requests)
        taken = None
        while taken is None:
            taken = await store.lease(Name("local", "tg-7"), "another", seconds=2.0)
            await asyncio.sleep(0.02)
        desk.model.delay = 0.0
        await settled(desk, 1)
    await store.close()
    assert any("it is looked at again" in one for one in desk.told)
    assert len(await desk.events("tg-7", ModelSaid)) == 1
    (told,) = desk.api.said(7)
    assert told.startswith("fine, thank you")


async def test_a_driver_that_loses_a_cancellation_holds_up_no_chat_and_no_end(desk, monkeypatch):
    """As asyncio.wait_for of Python 3.11 does, which drivers of databases wait by."""
    renew = Live.renew

    async def deaf(live):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.3)
        await renew(live)

    monkeypatch.setattr(Live, "renew", deaf)
    desk.rules = replace(desk.rules, lease=0.3)
    desk.model.delay = 0.4
    async with desk.running():
        for n in range(3):
            await desk.ann.say(f"message {n}")
            await settled(desk, n + 1)
        await desk.ann.say("and now it ends")
        await desk.api.until(lambda: len(desk.model.requests) == 4)
    assert len(await desk.events("tg-7", ModelSaid)) >= 3


async def test_a_store_that_fails_in_a_turn_is_tried_again_by_itself(desk, monkeypatch):
    """R-64: told, and no chat waits for a person to ask again."""
    append, left = Live.append, [2]

    async def failing(live, events):
        if left[0] and any(isinstance(one, ModelSaid) for one in events):
            left[0] -= 1
            raise StoreFailed("the disk is full; make room")
        await append(live, events)

    monkeypatch.setattr(Live, "append", failing)
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk, 1)
    assert left == [0]
    assert "the disk is full; make room" in desk.api.screen(7)
    assert len(await desk.events("tg-7", ModelSaid)) == 1


@BOTH
async def test_webhooks_bring_updates_and_only_with_the_secret(desk):
    async with desk.running(poll=False) as telegram, ClientSession() as client:
        url, own = "http://127.0.0.1:{}/hook", "s3cret"
        async with serve_webhook(
            telegram, url=url.format(1), secret=own, host="127.0.0.1", port=0
        ) as port:
            update = {"update_id": 5, "message": {}}
            for head in ({}, {"X-Telegram-Bot-Api-Secret-Token": "s3creT"}):
                async with client.post(url.format(port), json=update, headers=head) as told:
                    assert told.status == 403
            await telegram.register_webhook(url.format(port), own)
            await desk.ann.say("by the door")
            await settled(desk, 1)
            await desk.api.until(lambda: not desk.api.pending)
    (heard,) = await desk.events("tg-7", UserSaid)
    assert heard.parts[0].text == "by the door"


@pytest.mark.real
async def test_the_command_survives_kill_9_in_the_middle_of_an_answer(desk, tmp_path):
    """The real program, a provider on a real port; R-80 at its smallest."""
    answers = iter(["half an answer " * 400])
    with Provider(lambda _: next(answers, "the whole answer")) as provider:
        (tmp_path / "foldline.toml").write_text("")
        env = {
            **os.environ,
            "TELEGRAM_BOT_TOKEN": desk.api.token,
            "OPENAI_API_KEY": "none",
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "FOLDLINE_TELEGRAM__BASE_URL": desk.api.url,
            "FOLDLINE_TELEGRAM__ALLOWED": "7",
        }

        def begun():
            given = [PROGRAM, "bot", "--store", tmp_path / "bot.db", "--model", "scripted", "--base-url", provider.url, "--no-tools", "--set", "model.max_input_tokens=64000"]  # fmt: skip
            return subprocess.Popen([str(one) for one in given], env=env, cwd=tmp_path)

        provider.stall = 4  # so that it is killed in the middle, however fast this machine is
        one = begun()
        await desk.ann.say("hello")
        await desk.api.until(lambda: desk.api.said(7), 120)  # the draft is there
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        provider.stall = None
        one = begun()
        try:
            await settled(desk, 1)
            await asyncio.sleep(0.5)
        finally:
            one.send_signal(signal.SIGTERM)
            assert one.wait(20) == 0
    (told,) = [
        one for one in desk.api.said(7) if one != "…"
    ]  # a draft may be left, never an answer
    assert told.endswith("%)")

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
from foldline.apps.bot.telegram_chat import Chat
from foldline.core.log import ModelSaid, UserSaid
from foldline.core.parts import text_of
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


def forge(one, data):
    """A button as no bot made it, under a message of the bot."""
    button = {"text": "forged", "callback_data": data}
    one.message["reply_markup"] = {"inline_keyboard": [[button]]}
    return one


@pytest.mark.parametrize("data", ["ok:x", "ok:", "ok:::", "ok:x:0@7", "compact \ud800", "help", "@", "@9"])  # fmt: skip
async def test_a_button_that_we_did_not_make_is_answered_and_the_bot_goes_on(desk, data):
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk, 1)
        pressed = await desk.ann.press(forge(desk.api.shown(7)[-1], data), "forged")
        await desk.ann.say("still there?")
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 2, 10)
        await desk.api.until(lambda: not desk.api.pending)
    told = desk.api.answered[pressed]["text"]
    assert told in ("Only admins decide this.", "This button is not known.", "This is about another's session.")  # fmt: skip
    assert len(desk.api.said(7)) == 2, "nothing is said in the chat"
    assert desk.told == []


async def test_lone_surrogates_are_replaced_where_updates_come_in(desk):
    sticker = {"file_id": "s", "file_unique_id": "s", "width": 1, "height": 1, "is_animated": False, "is_video": False, "type": "regular", "emoji": "\ud83d"}  # fmt: skip
    async with desk.running():
        for text, told in [
            ("/compact \ud800", "Nothing to fold"),
            ("/preview \ud800", "Nothing to fold"),
            ("/carry \udc00", "Only your own chats"),
            ("/model \ud800", "Only admins change the model."),
        ]:
            await desk.ann.say(text)
            await desk.api.until(lambda n=told: n in "".join(desk.api.said(7)[-1:]), 10)
        await desk.bob.say("/model a\ud800b")
        await desk.api.until(lambda: "a\ufffdb answers from here on" in desk.api.screen(8), 10)
        await desk.ann.say(sticker=sticker)
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 1, 10)
        await desk.ann.say("say \ud83d\ude42 and \ud83d")
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 2, 10)
    said = [text_of(one.parts) for one in await desk.events("tg-7", UserSaid)]
    assert said == ["[sticker \ufffd]", "say 🙂 and \ufffd"]
    assert desk.told == []


MALFORMED = [
    ({"message": {"message_id": "hidden words"}}, "KeyError"),
    ({"message": ["hidden words"]}, "TypeError"),
    ({"message": {"message_id": 1, "date": 1, "text": "hidden words", "chat": {"id": [7], "type": "private"}}}, "TypeError"),
    ({"message": {"message_id": 1, "date": 1e30, "text": "hidden words", "chat": {"id": 7, "type": "private"}}}, "OverflowError"),
]  # fmt: skip


@pytest.mark.parametrize(("update", "error"), MALFORMED)
async def test_an_update_that_cannot_be_parsed_is_confirmed_and_told_in_one_line(
    desk, caplog, update, error
):
    async with desk.running():
        number = await desk.api.put(**update)
        await desk.ann.say("still there?")
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 1, 10)
        await desk.api.until(lambda: not desk.api.pending, 10)
    assert desk.told == [f"update {number} is left out: {error}"]
    assert "hidden words" not in caplog.text


async def test_by_a_webhook_too_an_update_that_cannot_be_parsed_is_confirmed(desk):
    url, own = "http://127.0.0.1:{}/hook", "s3cret"
    async with (
        desk.running(poll=False) as telegram,
        serve_webhook(telegram, url=url.format(1), secret=own, host="127.0.0.1", port=0) as port,
    ):
        await telegram.register_webhook(url.format(port), own)
        for update, _ in MALFORMED:
            await desk.api.put(**update)
        await desk.ann.say("by the \ud800 door")
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 1, 10)
        await desk.api.until(lambda: not desk.api.pending, 10)
    assert [line.rpartition(": ")[2] for line in desk.told] == [error for _, error in MALFORMED]
    (heard,) = await desk.events("tg-7", UserSaid)
    assert text_of(heard.parts) == "by the \ufffd door"


async def test_an_update_that_always_fails_is_dropped_and_the_others_go_on(desk, monkeypatch):
    """Whatever the fault is: unconfirmed, the update would end every restart of the bot."""
    hear, tried = Chat.hear, []

    async def fail(chat, number, parts, **more):
        if "poison" in text_of(parts):
            tried.append(number)
            raise LookupError(text_of(parts))
        await hear(chat, number, parts, **more)

    monkeypatch.setattr(Chat, "hear", fail)
    async with desk.running():
        number = await desk.ann.say("poison words")
        await desk.bob.say("and I?")
        await desk.ann.say("still there?")
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 1, 10)
        await desk.api.until(lambda: desk.api.screen(8).count("📊") == 1, 10)
        await desk.api.until(lambda: not desk.api.pending, 10)
    assert tried == [number] * 3
    assert desk.told == [f"update {number} is left out: LookupError"]
    assert "could not be taken in" in desk.api.screen(7)


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

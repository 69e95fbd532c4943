"""A person, a bot and an agent, over real HTTP: messages in, answers out, each once."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from fake_telegram import BotApi
from fake_telegram.messages import Refused

from foldline.agent.tool import Intent, Tool, said
from foldline.apps.bot.bot_api import CallPace
from foldline.apps.bot.delivery import Inbox
from foldline.apps.bot.html import render_plain_text
from foldline.apps.bot.telegram_chat import Chat
from foldline.core.log import Excluded, Folded, ModelSaid, Pinned, ToolReturned, Undone, UserSaid
from foldline.core.parts import Media, text_of
from foldline.core.policy import named
from foldline.dialects.provider_errors import Fault
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
WORDS = "The parser reads a line and says where it ends, and the tests say the same of it. "


class Slow(ScriptedModel):
    """A model that takes its time for each word."""

    async def say(self, request, *, heard=None):
        """Word by word."""
        for word in (WORDS * 20).split(" "):
            heard(f"{word} ")
            await asyncio.sleep(0.002)
        return await super().say(request)


def calls(name, given):
    body = {"name": name, "arguments": json.dumps(given)}
    return {"content": None, "tool_calls": [{"id": "c0", "type": "function", "function": body}]}


async def settled(desk, chat=7, count=1, topic=None):
    """So many answers stand in a chat."""
    await desk.api.until(lambda: desk.api.screen(chat, topic).count("📊 Context:") >= count)


def card(desk, chat, words):
    return next(one for one in reversed(desk.api.shown(chat)) if words in one.text)


async def test_a44_an_answer_arrives_with_its_footer(desk):
    async with desk.running():
        await desk.ann.say("how are you?")
        await settled(desk)
    (told,) = desk.api.said(7)
    answer, footer = told.split("\n\n")
    assert answer == "fine, thank you"
    (report,) = await desk.events("tg-7", ModelSaid)
    assert text_of(report.parts) == "fine, thank you"
    assert footer.startswith("📊 Context: ")
    assert footer.endswith("/128,000 (0.0%)")
    (heard,) = await desk.events("tg-7", UserSaid)
    assert (text_of(heard.parts), heard.author, heard.speaker) == ("how are you?", "", "human")


@BOTH
async def test_r81_an_update_that_comes_again_is_there_once_and_answered_once(desk):
    async with desk.running(poll=False) as telegram:
        await desk.ann.say("once")
        updates = await telegram.line.bot.get_updates()
        for _ in range(3):
            await telegram.receive_updates(updates)
        await settled(desk)
        await telegram.receive_updates(updates)
        await asyncio.sleep(0.2)
    assert len(await desk.events("tg-7", UserSaid)) == 1
    assert len(desk.api.said(7)) == 1


@BOTH
async def test_r81_an_update_is_confirmed_only_when_it_is_in_the_log(desk, monkeypatch):
    """Whatever the bot confirms stands in the log by then, also where the store takes its time."""
    hear, answer, seen = Chat.hear, BotApi._do_getupdates, []

    async def late(chat, *given, **more):
        await asyncio.sleep(0.1)
        await hear(chat, *given, **more)

    async def watched(api, given):
        offset = int(given.get("offset", 0))
        gone = [one for one in api.pending if one["update_id"] < offset]
        if gone:
            logged = {text_of(one.parts) for one in await desk.events("tg-7", UserSaid)}
            seen.extend(one["message"]["text"] in logged for one in gone)
        return await answer(api, given)

    monkeypatch.setattr(Chat, "hear", late)
    monkeypatch.setattr(BotApi, "_do_getupdates", watched)
    async with desk.running():
        for n in range(4):
            await desk.ann.say(f"message {n}")
            await settled(desk, count=n + 1)
        await desk.api.until(lambda: len(seen) == 4)
    assert seen == [True] * 4


@BOTH
async def test_r82_a_group_is_one_session_whose_people_are_told_apart(desk):
    async with desk.running():
        cid = desk.api.person(9, "Cid [admin]")
        await desk.ann.say("I like tea", chat=-100)
        await settled(desk, -100)
        await cid.say("I like coffee", chat=-100)
        await settled(desk, -100, 2)
    heard = await desk.events("tg--100", UserSaid)
    assert [one.author for one in heard] == ["Ann", "Cid [admin]"]
    asked = [one["content"] for one in desk.model.requests[-1]["messages"] if one["role"] == "user"]
    assert asked == ["[human: Ann]\nI like tea", "[human: Cid (admin)]\nI like coffee"]


@BOTH
async def test_topics_are_sessions_of_their_own_and_answered_where_they_are(desk):
    async with desk.running():
        await desk.ann.say("a", chat=-100, topic=4)
        await desk.ann.say("b", chat=-100, topic=5)
        await settled(desk, -100, topic=4)
        await settled(desk, -100, topic=5)
    assert len(await desk.events("tg--100-4", UserSaid)) == 1
    assert len(await desk.events("tg--100-5", UserSaid)) == 1


@BOTH
async def test_r28_r29_what_comes_during_a_turn_is_answered_by_the_next_in_order(desk):
    desk.model.delay = 0.3
    async with desk.running():
        await desk.ann.say("first")
        await desk.api.until(lambda: desk.model.requests)
        await desk.ann.say("second")
        await desk.ann.say("third")
        await settled(desk, count=2)
    assert len(desk.model.requests) == 2
    said = [one["content"] for one in desk.model.requests[1]["messages"] if one["role"] != "system"]
    assert said == ["first", "fine, thank you", "second", "third"] or said[-1].endswith("second\n\nthird")  # fmt: skip
    assert len(desk.api.said(7)) == 2


async def test_words_are_shown_while_they_are_said_in_one_message(desk):
    desk.model = Slow(lambda _: WORDS * 20)
    desk.pace = CallPace(chat=0.0, stream=0.02, again=0.02, reading=5.0, polling=20)
    async with desk.running():
        await desk.ann.say("tell me")
        await settled(desk)
    edits = [one.given["text"] for one in desk.api.of("editMessageText")]
    assert len(edits) > 3
    assert all(len(a) < len(b) for a, b in pairwise(edits))
    assert len(desk.api.of("sendMessage")) == 1


async def test_a_long_answer_comes_in_parts_and_whole(desk):
    code = "```python\n" + "\n".join(f"print({n})" for n in range(900)) + "\n```"
    long = f"{WORDS * 60}\n\n{code}\n\n{WORDS}"
    desk.model = ScriptedModel(lambda _: long)
    async with desk.running():
        await desk.ann.say("all of it")
        await settled(desk)
    told = desk.api.said(7)
    assert len(told) > 3
    assert all(f"print({n})" in "\n".join(told) for n in range(900))
    assert told[-1].endswith("%)")


async def test_limits_a_429_is_waited_for_and_nothing_is_lost(desk):
    desk.api.rate, desk.api.retry_after = 0.05, 0.1
    async with desk.running():
        for n in range(4):
            await desk.ann.say(f"message {n}")
        await settled(desk)
        await desk.ann.say("last")
        await desk.api.until(lambda: not desk.telegram._chats["tg-7"].ready.result().track.pending and "…" not in desk.api.said(7), 20)  # fmt: skip
    assert any(one.status == 429 for one in desk.api.calls)
    assert all(one.count("📊") == 1 for one in desk.api.said(7))


@BOTH
@pytest.mark.parametrize("trouble", ["error", "drop", "late"])
async def test_faults_on_the_way_lose_no_answer_and_show_none_twice(desk, trouble):
    left = {"sendMessage": 2, "editMessageText": 2, "getUpdates": 1}

    def fault(method):
        if left.get(method):
            left[method] -= 1
            return trouble
        return None

    desk.api.fault = fault
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk)
        await desk.ann.say("again")
        await settled(desk, count=2)
    answers = [one for one in desk.api.said(7) if one != "…"]
    assert len(answers) == 2
    assert len(await desk.events("tg-7", UserSaid)) == 2


async def test_html_that_the_api_refuses_is_sent_plain(desk, monkeypatch):
    monkeypatch.setattr("foldline.apps.bot.html.html", lambda text: f"<x>{text}")
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk)
    assert desk.api.said(7)[0].startswith("fine, thank you")


async def test_a_message_that_was_taken_away_is_made_anew(desk):
    desk.model.delay = 0.2
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk)
        chat = desk.telegram._chats["tg-7"].ready.result()
        await chat.track.record_draft(4_711)
        await desk.ann.say("again")
        await settled(desk, count=2)


async def test_a_draft_of_several_messages_that_is_made_anew_leaves_none_of_them(desk):
    """Parts below one that was deleted are written anew, in order; the old ones go."""
    desk.model = ScriptedModel(lambda _: WORDS * 60)
    async with desk.running():
        await desk.ann.say("hello")
        await settled(desk)
        chat = desk.telegram._chats["tg-7"].ready.result()
        await chat.track.record_draft(4_711)
        await chat._send_part(1, render_plain_text("…"))
        await desk.ann.say("again")
        await settled(desk, count=2)
    assert "…" not in desk.api.said(7)
    assert " ".join(desk.api.said(7)).split().count("parser") == 120


def refuse_edits(monkeypatch, words="Bad Request: message text is empty"):
    async def refuse(_api, _given):
        raise Refused(400, words)

    monkeypatch.setattr(BotApi, "_do_editmessagetext", refuse)


@pytest.mark.parametrize("why", ["message text is empty", "MEDIA_EMPTY", "message to edit not found", "message can't be edited"])  # fmt: skip
@pytest.mark.parametrize("parts", [1, 3])
async def test_an_answer_whose_edit_is_refused_is_sent_and_no_draft_stays(desk, monkeypatch, why, parts):  # fmt: skip
    refuse_edits(monkeypatch, f"Bad Request: {why}")
    desk.model = ScriptedModel(lambda _: (WORDS * 40) * parts)
    async with desk.running():
        await desk.ann.say("tell me")
        await desk.api.until(lambda: "📊" in desk.api.screen(7), 10)
    told = desk.api.said(7)
    assert "…" not in told
    assert " ".join(told).split().count("parser") == 40 * parts
    assert told[-1].endswith("%)")
    assert len(desk.model.requests) == 1


async def test_a_part_that_the_api_takes_in_no_way_is_told_and_the_others_stand(desk, monkeypatch):
    send = BotApi._do_sendmessage

    async def refuse(api, given):
        if given["text"].startswith("second"):
            raise Refused(400, "Bad Request: not this one")
        return await send(api, given)

    refuse_edits(monkeypatch)
    monkeypatch.setattr(BotApi, "_do_sendmessage", refuse)
    desk.model = ScriptedModel(
        lambda _: f"first {'a ' * 1_900}\n\nsecond {'b ' * 1_900}\n\nthird {'c ' * 1_900}"
    )
    async with desk.running():
        await desk.ann.say("tell me")
        await desk.api.until(lambda: "📊" in desk.api.screen(7), 10)
        await desk.ann.say("and now?")
        await desk.api.until(lambda: desk.api.screen(7).count("📊") == 2, 10)
    first, notice, third = desk.api.said(7)[:3]
    assert first.startswith("first a a")
    assert notice.startswith("⚠ Telegram does not take a part of this answer")
    assert third.startswith("third")
    assert "…" not in desk.api.said(7)


async def test_what_stands_in_place_of_an_answer_is_told_though_edits_are_refused(desk, monkeypatch):  # fmt: skip
    refuse_edits(monkeypatch)
    desk.model = Slow(lambda _: Fault("auth", "the key is wrong"))
    desk.pace = CallPace(chat=0.0, stream=0.02, again=0.02, reading=5.0, polling=20)
    async with desk.running():
        await desk.ann.say("tell me")
        await desk.api.until(lambda: "the key is wrong" in desk.api.screen(7), 10)
        await desk.api.until(lambda: "…" not in desk.api.said(7), 10)


async def test_strangers_are_refused_once_and_nothing_of_theirs_is_kept(desk):
    async with desk.running():
        mallory = desk.api.person(66, "Mallory")
        for _ in range(3):
            await mallory.say("let me in")
        await mallory.say("/compact")
        await desk.ann.say("hello")
        await settled(desk)
    assert desk.api.said(66) == ["You are not allowed to talk with this bot. Your number is 66."]
    assert await desk.events("tg-66", UserSaid) == []
    assert not any("let me in" in str(one) for one in desk.model.requests)


async def test_stop_ends_an_answer_and_the_next_message_goes_on(desk):
    desk.model.delay = 30.0
    async with desk.running():
        await desk.ann.say("think for long")
        await desk.api.until(lambda: desk.model.requests)
        await desk.ann.say("/stop")
        await desk.api.until(lambda: "Stopped." in desk.api.screen(7))
        desk.model.delay = 0.0
        await desk.ann.say("hello")
        await settled(desk)
    async with desk.running():  # what was stopped is not begun again
        await asyncio.sleep(0.3)
    assert len(desk.model.requests) == 2


async def test_a_model_that_is_overloaded_is_asked_again_by_itself(desk):
    down = [Fault("overloaded", "no room")] * 7
    desk.model = ScriptedModel(lambda _: down.pop() if down else "here I am")
    async with desk.running():
        await desk.ann.say("hello")
        await desk.api.until(lambda: "here I am" in desk.api.screen(7), 30)
    assert "⚠" in desk.api.screen(7)
    assert len(await desk.events("tg-7", UserSaid)) == 1


async def test_photos_and_files_come_in(desk):
    async with desk.running():
        await desk.ann.photo(b"\x89PNG picture", caption="what is this?")
        await settled(desk)
        await desk.ann.document("notes.md", "# Ünits\nkeep".encode())
        await settled(desk, count=2)
        await desk.ann.document("tool.bin", b"\0\1", mime="application/octet-stream")
        await settled(desk, count=3)
        await desk.ann.say(sticker={"file_id": "s", "file_unique_id": "s", "width": 1, "height": 1, "is_animated": False, "is_video": False, "type": "regular", "emoji": "🙂"})  # fmt: skip
        await settled(desk, count=4)
    photo, notes, other, sticker = await desk.events("tg-7", UserSaid)
    words, picture = photo.parts
    assert words.text == "what is this?"
    assert isinstance(picture, Media)
    assert picture.form == "image"
    assert text_of(notes.parts) == "[file notes.md]\n# Ünits\nkeep"
    assert text_of(other.parts) == "[file tool.bin, application/octet-stream, 2 bytes: not read]"
    assert text_of(sticker.parts) == "[sticker 🙂]"


async def test_somebody_who_blocks_the_bot_finds_the_answer_when_they_are_back(desk):
    desk.api.blocked.add(7)
    async with desk.running():
        await desk.ann.say("hello")
        await desk.api.until(lambda: any("nobody is there" in one for one in desk.told))
        desk.api.blocked.clear()
        await desk.ann.say("I am back")
        await settled(desk, count=1)
        await desk.api.until(lambda: len(desk.api.said(7)) == 2)


async def test_a36_ask_mode_is_a_card_after_every_answer_while_above(desk):
    desk.opening = {"window": 8_000, "policy": replace(named("confirm"), soft=0.5)}
    desk.model = ScriptedModel(lambda _: WORDS * 8)
    async with desk.running():
        for _ in range(60):
            await desk.ann.say(WORDS * 20)
            n = len(desk.api.of("sendMessage"))
            await desk.api.until(lambda n=n: len(desk.api.of("sendMessage")) > n)
            await asyncio.sleep(0.05)
            if "⚠ Context usage" in desk.api.screen(7):
                break
        asked = card(desk, 7, "⚠ Context usage")
        share = asked.text.split("%")[0].removeprefix("⚠ Context usage at ")
        assert asked.text == f"⚠ Context usage at {share}%. Reply /compact to summarize and continue, or keep chatting."  # fmt: skip
        assert [*asked.buttons] == ["Compact", "Preview"]
        await desk.ann.press(asked, "Preview")
        await desk.api.until(lambda: "nothing was changed" in desk.api.screen(7))
        assert await desk.events("tg-7", Folded) == []
        await desk.ann.press(card(desk, 7, "nothing was changed"), "Compact")
        await desk.api.until(lambda: "◆ Context: " in desk.api.screen(7))
        assert len(await desk.events("tg-7", Folded)) == 1
        made = card(desk, 7, "◆ Context: ")
        assert "→" in made.text
        await desk.ann.press(made, "Undo")
        await desk.api.until(lambda: "taken back" in desk.api.screen(7))
        assert len(await desk.events("tg-7", Undone)) == 1
        await desk.ann.press(card(desk, 7, "taken back"), "Redo")
        await desk.api.until(lambda: "Made again" in desk.api.screen(7))


async def test_a_command_that_comes_while_the_last_is_looked_for_is_not_left(desk, monkeypatch):
    """It comes when the list was read as empty and nothing was made of that yet."""
    empty, take = asyncio.Event(), Inbox.take

    async def slowly(inbox):
        found = await take(inbox)
        if found is None:
            empty.set()
            await asyncio.sleep(0.3)
        return found

    monkeypatch.setattr(Inbox, "take", slowly)
    async with desk.running():
        for count in range(1, 4):
            await desk.ann.say("/help")
            await desk.api.until(lambda n=count: len(desk.api.said(7)) == n, 5)
            await empty.wait()
            empty.clear()


@BOTH
async def test_commands_each_say_what_they_are_for(desk):
    async with desk.running():
        await desk.ann.say("remember the number 4711")
        await settled(desk)
        first = desk.api.shown(7)[0]
        for said, told in [
            ("/start", "scripted answers here. This chat is the session tg-7"),
            ("/help", "/compact [FOCUS]: "),
            ("/tokens", "📊 Context Usage:"),
            ("/history", "1 turn;"),
            ("/cost", "1 call: "),
            ("/model", "scripted, window 128,000"),
            ("/model other", "Only admins change the model."),
            ("/compact", "Nothing to fold"),
            ("/preview", "Nothing to fold"),
            ("/undo", "there is no edit to undo"),
            ("/redo", "nothing to make again"),
            ("/retry", "Nothing stands unanswered."),
            ("/nonsense", "There is no /nonsense"),
            ("/stop", "Nothing is under way."),
            ("/unpin", "Reply to a message with /unpin"),
            ("/exclude", "Reply to a message with /exclude"),
            ("/carry", "Write /carry and the session"),
        ]:
            n = len(desk.api.said(7))
            await desk.ann.say(said)
            await desk.api.until(lambda n=n: len(desk.api.said(7)) > n)
            assert told in desk.api.said(7)[-1], said
        (block,) = [one for one in desk.api.said(7) if one.startswith("📊 Context Usage:")]
        names = [row.strip().partition(":")[0] for row in block.split("\n")]
        assert names == ["📊 Context Usage", "Used", "Latest turn", "Avg turn", "Estimated turns remaining", "Compaction threshold"]  # fmt: skip
        await desk.ann.say("/pin", reply=first)
        await desk.api.until(lambda: "Pinned: log:" in desk.api.screen(7))
        await desk.ann.say("/context")
        await desk.api.until(lambda: any(one.photo for one in desk.api.shown(7)))
        picture = next(one for one in desk.api.shown(7) if one.photo)
        assert picture.photo.startswith(b"\x89PNG")
        await desk.bob.say("/model other 64000")
        await desk.api.until(lambda: "other answers from here on" in desk.api.screen(8))
    (pin,) = await desk.events("tg-7", Pinned)
    (heard,) = await desk.events("tg-7", UserSaid)
    assert text_of(heard.parts) == "remember the number 4711"
    assert len(desk.model.requests) == 1, "no command reaches the model"
    assert pin.seq >= 0
    assert {one["command"] for one in desk.api.commands} >= {"compact", "context", "stop"}


async def test_m13_a_message_is_excluded_by_a_reply_and_comes_back(desk):
    async with desk.running():
        await desk.ann.say("the door's code is 4711")
        await settled(desk)
        answered = desk.api.shown(7)[0]
        await desk.ann.say("/exclude", reply=answered)
        await desk.api.until(lambda: "is out of the model's sight" in desk.api.screen(7))
        await desk.ann.say("and now?")
        await settled(desk, count=2)
        await desk.ann.say("/undo")
        await desk.api.until(lambda: "taken back" in desk.api.screen(7))
    (gone,) = await desk.events("tg-7", Excluded)
    (back,) = await desk.events("tg-7", Undone)
    assert len(gone.stubs) == 1
    assert back.change.masks_off
    assert "[taken out by the user]" in json.dumps(desk.model.requests[1]["messages"])


async def test_m10_a_person_carries_their_own_chats_on_and_no_others(desk):
    """P4-16: the parts that they name; another's session is refused, whoever asks."""
    async with desk.running():
        await desk.ann.say("my number is 4711")
        await settled(desk, 7)
        await desk.bob.say("what do you know?")
        await settled(desk, 8)
        for name in ("tg-7", "tg-7-1", "notes", "tg--100-u7"):
            n = len(desk.api.said(8))
            await desk.bob.say(f"/carry {name}")
            await desk.api.until(lambda n=n: len(desk.api.said(8)) > n)
            assert "Only your own chats" in desk.api.said(8)[-1], name
        await desk.ann.say("/carry tg-7")
        await desk.api.until(lambda: "cannot carry on from itself" in desk.api.screen(7))
        await desk.ann.say("hello, all", chat=-100)
        await settled(desk, -100)
        await desk.ann.say("/carry tg-7 pictures", chat=-100)
        await desk.api.until(lambda: "there is no part" in desk.api.screen(-100))
        await desk.ann.say("/carry tg-7 summary", chat=-100)
        await desk.api.until(lambda: "Carried: " in desk.api.screen(-100))
        assert "tokens of session 'tg-7': summary " in desk.api.screen(-100)
    said = [text_of(one.parts) for one in await desk.events("tg--100", UserSaid)]
    assert ["4711" in one for one in said] == [False, True]
    assert not any("4711" in text_of(one.parts) for one in await desk.events("tg-8", UserSaid))


@pytest.mark.parametrize(
    ("label", "ok"), [("Yes, once", True), ("No", False), ("Always: ring *", True)]
)
async def test_tools_are_approved_by_buttons_of_admins_only(desk, label, ok):
    rung = []

    async def ring(given):
        rung.append(given)
        return said("rang")

    desk.tools = (Tool(name="ring", description="ring", schema={"type": "object"}, run=ring,
                       intent=lambda _: Intent("ring the bell", "- silence\n+ noise", ("ring *",))),)  # fmt: skip
    answers = iter([calls("ring", {}), "done", calls("ring", {}), "done again"])
    desk.model = ScriptedModel(lambda _: next(answers))
    async with desk.running():
        await desk.ann.say("ring it", chat=-100)
        await desk.api.until(lambda: "Allow it?" in desk.api.screen(-100))
        question = card(desk, -100, "Allow it?")
        pressed = await desk.ann.press(question, label)
        await desk.api.until(lambda: pressed in desk.api.answered)
        assert desk.api.answered[pressed]["text"] == "Only admins decide this."
        assert rung == []
        await desk.bob.press(question, label)
        await settled(desk, -100)
        assert card(desk, -100, "ring the bell").buttons == {}
        late = await desk.bob.press(question, label) if question.buttons else None
        assert late is None
        await desk.ann.say("and again", chat=-100)
        if label.startswith("Always"):
            await settled(desk, -100, 2)
            assert len(rung) == 2
        else:
            await desk.api.until(lambda: "Allow it?" in desk.api.screen(-100))
    first, *_ = await desk.events("tg--100", ToolReturned)
    assert first.ok is ok
    assert bool(rung) is ok


async def test_notices_off_leaves_answers_alone(desk):
    desk.rules = replace(desk.rules, notices="off")
    async with desk.running():
        await desk.ann.say("hello")
        await desk.api.until(lambda: desk.api.said(7) == ["fine, thank you"])

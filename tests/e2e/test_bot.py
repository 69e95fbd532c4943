"""`foldline bot` as an operator runs it: a process of its own, settings in a file, a real model of 2,048 tokens.

Ann writes more than the window holds, and the bot is killed in the middle of an answer. Every request is
held against the model server's own count, also the one whose answer never came. `FOLDLINE_LAWS=deep` makes
it 100 messages and three kills.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_telegram import BotApi

from foldline.core.log import Asked, Folded, ModelSaid, UsageReported, UserSaid
from foldline.core.parts import text_of
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

DEEP = os.environ.get("FOLDLINE_LAWS") == "deep"
pytestmark = [
    pytest.mark.real,
    pytest.mark.anyio,
    pytest.mark.skipif(
        not (DEEP or os.environ.get("FOLDLINE_BOT")),
        reason="two minutes: FOLDLINE_BOT=1 for 8 messages, FOLDLINE_LAWS=deep for 100",
    ),
]
MESSAGES = 100 if DEEP else 8
KILLED = (20, 50, 80) if DEEP else (5,)
RESERVE = 48  # tokens, for answers of some twenty
ROOMS = 4 if DEEP else 20  # of a message: few messages must be long ones to fill the window
PROGRAM = Path(sys.executable).with_name("foldline")
ANN = 7
FOOTER = re.compile(r"\n\n📊 Context: ([\d,]+)/2,048 \(([\d.]+)%\)")
SETTINGS = """
model = {{ name = "smollm2", base_url = "{model}/v1", max_output_tokens = {reserve} }}
summarizer = "off"
store = "{store}"

[telegram]
base_url = "{telegram}"
allowed = ["{ann}"]
"""


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Bot:
    """The program, begun again when it was killed."""

    def __init__(self, folder, env):
        self.folder, self.env, self.process = folder, env, None

    def begin(self):
        """Begin."""
        with (self.folder / "told").open("ab") as told:
            self.process = subprocess.Popen(
                [PROGRAM, "bot", "--no-tools"], env=self.env, cwd=self.folder, stderr=told
            )

    def kill(self):
        """As a power cut does it."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self):
        """As an operator does it; how it ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@pytest.fixture
def bot(tmp_path, terse_server):
    def made(api):
        written = SETTINGS.format(
            model=terse_server.url,
            reserve=RESERVE,
            store=tmp_path / "bot.db",
            telegram=api.url,
            ann=ANN,
        )
        (tmp_path / "config" / "foldline").mkdir(parents=True)
        (tmp_path / "config" / "foldline" / "foldline.toml").write_text(written)
        ours = {one: said for one, said in os.environ.items() if not one.startswith("FOLDLINE_")}
        home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path)}
        keys = {"TELEGRAM_BOT_TOKEN": api.token, "OPENAI_API_KEY": "none"}
        started.append(Bot(tmp_path, {**ours, **home, **keys}))
        return started[0]

    started = []
    yield made
    for one in started:
        if one.process is not None and one.process.poll() is None:
            one.kill()


def note(at):
    """What Ann says: all of it together is more than the window holds."""
    rooms = (
        f"Room {at}.{n} is locked and its key hangs in room {at}.{n + 1}." for n in range(ROOMS)
    )
    return f"Note {at}. {' '.join(rooms)} Where is the key of room {at}.3?"


def counted(server, request):
    """How many tokens a request is to the server: its own template, its own tokens."""
    prompt = server.post("/apply-template", {"messages": request["messages"]})["prompt"]
    return server.tokens(prompt)


async def events_of(address):
    """The log of Ann's chat, and each request that was sent, byte for byte (law 5)."""
    store = store_at(address)
    try:
        session = await open_stored_session(store, Name("local", f"tg-{ANN}"))
        events = await session.history.events()
        asked = [seq for seq, one in events if isinstance(one, Asked)]
        return events, [await session.history.sent(seq) for seq in asked]
    finally:
        await store.close()


async def test_messages_past_a_real_window_are_each_answered_once(bot, terse_server, capsys):
    begun, waits = time.monotonic(), []
    async with BotApi() as api:
        ann, one = api.person(ANN, "Ann"), bot(api)
        answered = lambda: [said for said in api.said(ANN) if FOOTER.search(said)]  # noqa: E731
        one.begin()
        for at in range(MESSAGES):
            asked, drafts = time.monotonic(), len(api.said(ANN))
            await ann.say(note(at))
            if at in KILLED:
                await api.until(lambda drafts=drafts: len(api.said(ANN)) > drafts, 240)
                assert len(answered()) == at, "it is killed in the middle of an answer"
                one.kill()
                one.begin()
            await api.until(lambda at=at: len(answered()) > at, 240)
            if at not in KILLED:
                waits.append(time.monotonic() - asked)
        await asyncio.sleep(2)  # a card comes behind its answer, and may be lost with the process
        assert one.end() == 0
        told = api.said(ANN)
    took = time.monotonic() - begun
    remarks = (one.folder / "told").read_text()
    assert "Traceback" not in remarks, remarks
    events, sent = await events_of(str(one.folder / "bot.db"))

    # Each message is in the log once, in order, and each answer follows the one that it answers.
    talk = [event for _, event in events if isinstance(event, UserSaid | ModelSaid)]
    assert [text_of(event.parts) for event in talk[::2]] == [note(at) for at in range(MESSAGES)]
    assert [type(event) for event in talk] == [UserSaid, ModelSaid] * MESSAGES
    # Each answer stands in the chat once, in order, whole, with its footer.
    shown = [FOOTER.split(text) for text in told if FOOTER.search(text)]
    assert len(shown) == MESSAGES
    for (words, used, percent, rest), event in zip(shown, talk[1::2], strict=True):
        assert _words(words) == _words(_plain(text_of(event.parts), event.stop))
        assert percent == f"{100 * int(used.replace(',', '')) / 2_048:.1f}"
        assert rest == ""
    strays = told.count("…")
    assert strays <= len(KILLED), "an empty draft is all that a kill may leave"
    cards = [text for text in told if text.startswith("◆ Folded: ")]
    assert len(shown) + len(cards) + strays == len(told), told

    # No request was over the window, by the server's own count; what it reported agrees.
    sizes = [counted(terse_server, request) for request in sent]
    used = {event.asked: event for _, event in events if isinstance(event, UsageReported)}
    seqs = [seq for seq, event in events if isinstance(event, Asked)]
    assert max(sizes) + RESERVE <= terse_server.window
    assert max(event.input + event.output for event in used.values()) <= terse_server.window
    assert MESSAGES == len(used) <= len(sent) <= MESSAGES + len(KILLED)
    assert all(
        used[seq].input == size for seq, size in zip(seqs, sizes, strict=True) if seq in used
    )
    folds = sum(isinstance(event, Folded) for _, event in events)
    assert 0 < len(cards) <= folds <= len(cards) + len(KILLED), (
        "a kill may take a fold's card along"
    )
    said = sum(terse_server.tokens(note(at)) for at in range(MESSAGES))
    assert said > terse_server.window
    waits.sort()
    with capsys.disabled():
        print(
            f"\n{MESSAGES} messages of {said:,} tokens at a window of 2,048 in {took:.0f} s, {len(KILLED)} kills: "
            f"{folds} folds, {len(sent)} requests, at most {max(sizes):,} tokens, {strays} empty drafts; "
            f"an answer took {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (most)"
        )


def _plain(text, stop):
    return text.strip() + ("\n\n(cut at its length)" if stop == "length" else "")


def _words(text):
    """Without the marks that the chat shows as bold, code or a heading."""
    return re.findall(r"\w+", text)

"""A Telegram or a store that cannot be reached: pauses that grow and differ, and a line per state."""

import asyncio
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest
from telegram.error import Conflict, NetworkError, TelegramError

from foldline.apps.bot import bot_server
from foldline.apps.bot.approval_cards import Rules
from foldline.apps.bot.bot_api import CallPace, UpdatesRequest
from foldline.apps.bot.bot_server import Telegram
from foldline.errors import StoreFailed
from foldline.models.retries import Outage

pytestmark = pytest.mark.anyio
FAST = CallPace(chat=0.0, stream=0.05, again=0.02, reading=5.0, polling=20)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class FarBot:
    """An API that fails in one way after the other, then works once, then ends the test."""

    def __init__(self, faults):
        self.faults = [*faults]

    async def get_updates(self, **_):
        """Fail as planned."""
        if not self.faults:
            raise asyncio.CancelledError
        fault = self.faults.pop(0)
        if fault is not None:
            raise fault
        return []

    async def delete_webhook(self, **_):
        """Fine."""

    async def initialize(self):
        """The same."""
        await self.get_updates()

    async def get_me(self):
        """Say who it is."""
        return SimpleNamespace(username="bot", id=1)

    async def set_my_commands(self, _):
        """Fine."""


def far(faults, monkeypatch):
    """A Telegram at it, the pauses that it made, and what the operator was told."""
    pauses, told = [], []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(bot_server.asyncio, "sleep", sleep)
    line = SimpleNamespace(bot=FarBot(faults), pace=FAST)
    one = Telegram(line, seats=None, store=None, tenant="local", rules=Rules(), tell=told.append)
    return one, pauses, told


async def test_c11_polling_an_unreachable_host_waits_longer_each_time_and_tells_it_once(monkeypatch):  # fmt: skip
    faults = [NetworkError("no route")] * 30
    one, pauses, told = far([*faults, None, Conflict("other"), None], monkeypatch)
    with pytest.raises(asyncio.CancelledError):
        await one.poll_updates()
    assert told[0] == "Telegram does not answer: no route; tried again, less and less often"
    assert told[1].startswith("Telegram does not answer: it works again, after ")
    assert told[1].endswith(" and 30 tries")
    assert "elsewhere too: other" in told[2].replace("updates are asked for ", "")
    assert len(told) == 4, told
    wholes = [min(FAST.again * 2**at, 60.0) for at in range(30)]
    assert all(whole / 2 <= pause <= whole for whole, pause in zip(wholes, pauses, strict=False))
    assert sum(pauses[:30]) > 300, "an hour of outage is a few dozen tries, not thousands"
    assert len({round(pause, 6) for pause in pauses[15:30]}) > 10, "no two programs beat together"


async def test_an_answer_that_the_library_cannot_read_does_not_end_the_polling(monkeypatch):
    one, pauses, told = far([KeyError("hidden words"), TypeError("hidden"), None], monkeypatch)
    with pytest.raises(asyncio.CancelledError):
        await one.poll_updates()
    assert len(pauses) == 2
    assert told[0] == "Telegram does not answer: KeyError; tried again, less and less often"
    assert len(told) == 2


@pytest.mark.parametrize(
    "payload", [b"", b"no json", b"[]", b"1", b"[" * 100_000, b'{"ok": true}', b'{"ok": true, "result": 1}', b'{"ok": true, "result": [{}]}']
)  # fmt: skip
def test_an_answer_that_is_none_is_a_fault_of_the_api_and_not_logged(payload, caplog):
    with pytest.raises(TelegramError):
        UpdatesRequest.parse_json_payload(payload)
    assert caplog.text == ""


async def test_c11_a_start_without_network_is_patient_too(monkeypatch):
    one, pauses, told = far([NetworkError("down")] * 8 + [None], monkeypatch)
    monkeypatch.setattr(one, "_resume_unfinished_chats", lambda **_: asyncio.sleep(0))
    try:
        assert await one.start_bot() == "bot"
    finally:
        one._looking.cancel()
    assert len(told) == 2
    assert pauses[7] > pauses[0] * 8


async def test_c11_a_store_that_is_away_is_told_once(monkeypatch):
    one, _, told = far([], monkeypatch)
    left = [StoreFailed("the disk is full")] * 5

    async def handle(_):
        if left:
            raise left.pop()

    monkeypatch.setattr(one, "_handle_update", handle)
    await one._in_order([SimpleNamespace(update_id=1)])
    assert [line.split(",")[0] for line in told] == [
        "the store: the disk is full; tried again",
        "the store: it works again",
    ]


def test_c11_pauses_double_to_a_limit_and_begin_anew_after_a_success():
    told = []
    one = Outage("it", told.append, first=1.0, longest=8.0, random=Random(3))
    pauses = [one.note_failure("why") for _ in range(2_000)]
    assert max(pauses) <= 8.0
    assert min(pauses[3:]) >= 4.0
    assert all(b <= 2 * 2 * a for a, b in pairwise(pauses))
    one.note_success()
    one.note_success()
    assert one.note_failure("again") <= 1.0
    assert len(told) == 3

"""Calls of the Bot API for a chat, and the names of the sessions that chats have.

Calls for one chat are paced. A call that is one too many is repeated when the API says, and one
that fails on the way is tried again. A text that the API does not take as HTML is sent plain.

Updates are cleaned where they come in: lone surrogates are replaced, and one that cannot be parsed
leaves its number, so that it can be confirmed.

    a private chat                       tg-<chat>
    a group, all who are in it           tg-<chat>
    a topic of a forum                   tg-<chat>-<topic>
    by="user", in groups and topics      tg-<chat>-u<user>, tg-<chat>-<topic>-u<user>

A session's name is all that is needed to answer: after a restart nothing else is looked up.
"""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters, Update
from telegram.constants import ParseMode
from telegram.error import BadRequest, Forbidden, NetworkError, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from foldline.apps.bot.html import HtmlText
from foldline.core.parts import replace_surrogates

By: TypeAlias = Literal["chat", "user"]
PREFIX = "tg-"
T = TypeVar("T")
API = "https://api.telegram.org"
_NAME = re.compile(r"tg-(-?\d{1,19})(?:-(\d{1,19}))?(?:-u(\d{1,19}))?")
_SAME = "message is not modified"
_UNREADABLE = ("can't parse entities", "text is empty")  # as HTML: plain it may be taken
_GONE = ("not found", "can't be edited", "message_id_invalid")
_ALERT = 200  # letters that a pressed button is answered with, at most
MALFORMED = "malformed"
"""The key under which an update that could not be parsed has the type of its error."""
_LONGEST = 30.0  # seconds between two tries
_CONNECTIONS = 64
_RANDOM = Random()  # noqa: S311 - pauses need no secrecy


class ChatPlace(NamedTuple):
    """A chat, or the part of it that has its own session."""

    chat: int
    topic: int | None = None
    user: int | None = None
    """The session's only person, in a chat of several."""

    @property
    def name(self) -> str:
        """The session's name."""
        topic = "" if self.topic is None else f"-{self.topic}"
        return f"{PREFIX}{self.chat}{topic}{'' if self.user is None else f'-u{self.user}'}"

    @property
    def private(self) -> bool:
        """Whether it is one person's chat with the bot: groups have ids below zero."""
        return self.chat > 0


def make_chat_place(chat: int, *, topic: int | None, user: int, by: By) -> ChatPlace:
    """Return the place of a message; `by="user"` gives each person in a group their own."""
    return ChatPlace(chat, topic, user if by == "user" and chat < 0 else None)


def parse_session_name(name: str) -> ChatPlace | None:
    """Return the place that a session's name means; None if it is not the bot's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    chat, topic, user = found.groups()
    return ChatPlace(int(chat), topic and int(topic), user and int(user))  # type: ignore[arg-type]


def encode_button_data(says: str, place: ChatPlace) -> str:
    """Encode what a button says, and whose session it is about if each person has one."""
    return says if place.user is None else f"{says}@{place.user}"


def decode_button_data(data: str) -> tuple[str, int | None]:
    """Decode what a button said, and whose session it is about."""
    says, _, user = data.partition("@")
    return says, int(user) if user.isdecimal() else None


class Button(NamedTuple):
    """A button's label, and what it sends when it is pressed."""

    label: str
    says: str


Buttons: TypeAlias = Sequence[Sequence[Button]]


class Unreachable(Exception):  # noqa: N818 - named for what a chat is
    """The bot was blocked or removed, or the chat is gone."""


class ApiRefused(Exception):  # noqa: N818 - named for what happened
    """The API refuses a call, and will refuse it next time."""

    @property
    def is_gone(self) -> bool:
        """Whether the message to edit was deleted, or is too old."""
        return any(words in str(self).lower() for words in _GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPace:
    """How fast calls follow each other, and how long they may take."""

    chat: float = 1.0
    """Seconds between two calls for one chat."""
    stream: float = 1.0
    """Seconds between two edits of a draft: an answer that is faster is written once."""
    again: float = 0.5
    """Seconds before a call that failed on the way is repeated; doubled each time."""
    reading: float = 20.0
    """Seconds that the API may take to answer."""
    polling: int = 50
    """Seconds that the API may hold a poll for updates."""


class UpdatesRequest(HTTPXRequest):
    """Asks for updates; one that cannot be parsed does not hold up the others."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse an answer of the API. The library would log what it cannot parse, word for word."""
        try:
            answer = json.loads(payload.decode(errors="replace"))
        except (ValueError, RecursionError):
            raise TelegramError("Invalid server response") from None
        if not isinstance(answer, dict):
            raise TelegramError("Invalid server response")
        answer = cast("dict[str, Any]", answer)
        if answer.get("ok"):
            answer["result"] = _clean_updates(answer.get("result"))
        return answer


def _clean_updates(given: object) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise TelegramError("Invalid server response")
    updates = [clean_update(one) for one in cast("list[object]", given)]
    found = [update for update in updates if update is not None]
    if given and not found:  # nothing could be confirmed: they would come again at once
        raise TelegramError("updates without numbers")
    return found


def clean_update(given: object) -> dict[str, Any] | None:
    """Replace lone surrogates in an update; None for what has no number.

    Of an update that cannot be parsed only its number is kept, and the type of the error.
    """
    if not isinstance(given, dict):
        return None
    update = cast("dict[str, Any]", given)
    number = update.get("update_id")
    if not isinstance(number, int):
        return None
    try:
        update = json.loads(replace_surrogates(json.dumps(update, ensure_ascii=False)))
        chat = Update.de_json(update).effective_chat
        if chat is not None:
            int(chat.id)  # updates are sorted by it
    except Exception as fault:  # noqa: BLE001 - whatever it is, the update would come again
        return {"update_id": number, MALFORMED: type(fault).__name__}
    return update


def bot_of(token: str, *, base_url: str | None = None, pace: CallPace) -> Bot:
    """Make a bot at Telegram, or at another server of the Bot API."""
    # Without this the library logs a deprecation warning at every RetryAfter.
    os.environ.setdefault("PTB_TIMEDELTA", "true")
    base = (base_url or API).rstrip("/")

    return Bot(
        token,
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=HTTPXRequest(_CONNECTIONS, read_timeout=pace.reading, pool_timeout=pace.reading),
        get_updates_request=UpdatesRequest(2, read_timeout=pace.reading, pool_timeout=pace.reading),
    )


class BotCalls:
    """Makes calls of the API for all chats of a bot."""

    def __init__(self, bot: Bot, *, pace: CallPace) -> None:
        self.bot, self.pace = bot, pace
        self._turns: dict[int, asyncio.Lock] = {}
        self._next: dict[int, float] = {}

    async def send_message(
        self,
        place: ChatPlace,
        words: HtmlText,
        *,
        buttons: Buttons = (),
        quiet: bool = False,
        reply: int | None = None,
    ) -> int:
        """Send a message and return its id; if it may not have arrived, it is sent again."""

        async def send_text(text: str, mode: str | None) -> int:
            sent = await self.bot.send_message(
                place.chat,
                text,
                parse_mode=mode,
                message_thread_id=place.topic,
                reply_markup=_build_keyboard(buttons, place),
                disable_notification=quiet,
                reply_parameters=_make_reply(reply),
            )
            return sent.message_id

        return await self._send_with_fallback(place.chat, words, send_text)

    async def edit_message(
        self,
        place: ChatPlace,
        message: int,
        words: HtmlText,
        *,
        buttons: Buttons = (),
        tries: int | None = None,
    ) -> None:
        """Edit a message's text; the same text is no error."""

        async def edit_text(text: str, mode: str | None) -> None:
            await self.bot.edit_message_text(
                text,
                place.chat,
                message,
                parse_mode=mode,
                reply_markup=_build_keyboard(buttons, place),
            )

        try:
            await self._send_with_fallback(place.chat, words, edit_text, tries=tries)
        except ApiRefused as fault:
            if _SAME not in str(fault).lower():
                raise

    async def delete_message(self, place: ChatPlace, message: int) -> None:
        """Delete a message, if possible."""
        chat = place.chat
        with suppress(ApiRefused, Unreachable, TelegramError):
            await self._call_with_retries(
                chat, lambda: self.bot.delete_message(chat, message), tries=3
            )

    async def send_photo(
        self, place: ChatPlace, picture: bytes, *, words: HtmlText, buttons: Buttons = ()
    ) -> None:
        """Send a picture with a caption."""

        async def send_caption(text: str, mode: str | None) -> None:
            await self.bot.send_photo(
                place.chat,
                picture,
                caption=text,
                parse_mode=mode,
                message_thread_id=place.topic,
                reply_markup=_build_keyboard(buttons, place),
            )

        await self._send_with_fallback(place.chat, words, send_caption)

    async def send_typing(self, place: ChatPlace) -> None:
        """Show that the bot is typing, if that works at once."""
        with suppress(TelegramError):
            await self.bot.send_chat_action(place.chat, "typing", message_thread_id=place.topic)

    async def answer_button(self, query: str, text: str = "", *, loud: bool = False) -> None:
        """Confirm a pressed button; it is no error if that comes too late."""
        with suppress(TelegramError):
            await self.bot.answer_callback_query(query, text[:_ALERT] or None, show_alert=loud)

    async def _send_with_fallback(
        self,
        chat: int,
        words: HtmlText,
        send: Callable[[str, str | None], Awaitable[T]],
        *,
        tries: int | None = None,
    ) -> T:
        try:
            return await self._call_with_retries(
                chat, lambda: send(words.html, ParseMode.HTML), tries=tries
            )
        except ApiRefused as fault:
            if not any(words in str(fault).lower() for words in _UNREADABLE):
                raise
        return await self._call_with_retries(chat, lambda: send(words.plain, None), tries=tries)

    async def _call_with_retries(
        self, chat: int, call: Callable[[], Awaitable[T]], *, tries: int | None = None
    ) -> T:
        """Make one call for a chat at a time, and repeat it as long as that may help."""
        async with self._turns.setdefault(chat, asyncio.Lock()):
            wait, tried = self.pace.again, 0
            while True:
                await asyncio.sleep(max(self._next.get(chat, 0.0) - monotonic(), 0))
                tried += 1
                try:
                    return await call()
                except RetryAfter as fault:
                    pause = retry_seconds_of(fault)
                except Forbidden as fault:
                    raise Unreachable(fault.message) from fault
                except BadRequest as fault:
                    if "chat not found" in fault.message.lower():
                        raise Unreachable(fault.message) from fault
                    raise ApiRefused(fault.message) from fault
                except NetworkError:
                    if tries is not None and tried >= tries:
                        raise
                    # Drawn: chats that were cut off together do not come back together.
                    pause, wait = _RANDOM.uniform(wait / 2, wait), min(wait * 2, _LONGEST)
                finally:
                    self._next[chat] = monotonic() + self.pace.chat
                await asyncio.sleep(pause)


def retry_seconds_of(fault: RetryAfter) -> float:
    """Return the seconds that the API asks to wait."""
    after = fault.retry_after
    return after.total_seconds() if isinstance(after, timedelta) else float(after)


def _build_keyboard(buttons: Buttons, place: ChatPlace) -> InlineKeyboardMarkup | None:
    if not buttons:
        return None

    def build_button(button: Button) -> InlineKeyboardButton:
        data = encode_button_data(button.says, place)
        return InlineKeyboardButton(button.label, callback_data=data)

    return InlineKeyboardMarkup([[build_button(button) for button in row] for row in buttons])


def _make_reply(message: int | None) -> ReplyParameters | None:
    if message is None:
        return None
    return ReplyParameters(message, allow_sending_without_reply=True)

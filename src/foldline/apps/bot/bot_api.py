"""The line to Telegram: every call of the Bot API that is made for a chat.

Knows the API's limits: calls for one chat follow each other at a pace, what is refused for being
too many is made again when the API says, what fails on the way is tried again. Words that the API
does not take as HTML are sent plain. Refuses to know what is said.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import NamedTuple, TypeAlias, TypeVar

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters
from telegram.constants import ParseMode
from telegram.error import BadRequest, Forbidden, NetworkError, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from foldline.apps.bot.html import HtmlText
from foldline.apps.bot.session_names import ChatPlace, signed

T = TypeVar("T")
API = "https://api.telegram.org"
_SAME = "message is not modified"
_UNREADABLE = "can't parse entities"
_LONGEST = 30.0  # seconds between two tries
_CONNECTIONS = 64


class Button(NamedTuple):
    """What is written on it, and what comes back when it is pressed."""

    label: str
    says: str


Buttons: TypeAlias = Sequence[Sequence[Button]]


class Unreachable(Exception):  # noqa: N818 - named for what a chat is
    """Nobody is there: the bot was blocked or removed, or the chat is gone."""


class ApiRefused(Exception):  # noqa: N818 - named for what happened
    """The API does not take this, and will not next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPace:
    """How fast calls follow each other, and how long failing ones are tried."""

    chat: float = 1.0
    """Seconds between two calls for one chat."""
    stream: float = 1.0
    """Seconds between two looks at what is being said: an answer that is faster is written once."""
    again: float = 0.5
    """Seconds before a call that failed on the way is made again; doubled each time."""
    reading: float = 20.0
    """Seconds that the API may take for an answer."""
    polling: int = 50
    """Seconds that the API may hold a question for updates."""


def bot_of(token: str, *, base_url: str | None = None, pace: CallPace) -> Bot:
    """A bot at Telegram, or at a server of one's own that speaks as it does."""
    # Else the library warns about a change of its own each time that we are asked to slow down.
    os.environ.setdefault("PTB_TIMEDELTA", "true")
    base = (base_url or API).rstrip("/")

    def asking(seconds: float, size: int) -> HTTPXRequest:
        return HTTPXRequest(size, read_timeout=seconds, pool_timeout=seconds)

    return Bot(
        token,
        base_url=f"{base}/bot",
        base_file_url=f"{base}/file/bot",
        request=asking(pace.reading, _CONNECTIONS),
        get_updates_request=asking(pace.reading, 2),
    )


class BotCalls:
    """The API, for all chats of a bot."""

    def __init__(self, bot: Bot, *, pace: CallPace) -> None:
        self.bot, self.pace = bot, pace
        self._turns: dict[int, asyncio.Lock] = {}
        self._next: dict[int, float] = {}

    async def send(
        self,
        place: ChatPlace,
        words: HtmlText,
        *,
        buttons: Buttons = (),
        quiet: bool = False,
        reply: int | None = None,
    ) -> int:
        """A new message; its number. Where nobody knows whether it arrived, it is sent again."""

        async def made(text: str, mode: str | None) -> int:
            sent = await self.bot.send_message(
                place.chat,
                text,
                parse_mode=mode,
                message_thread_id=place.topic,
                reply_markup=_markup(buttons, place),
                disable_notification=quiet,
                reply_parameters=_reply(reply),
            )
            return sent.message_id

        return await self._words(place.chat, words, made)

    async def edit(
        self,
        place: ChatPlace,
        message: int,
        words: HtmlText,
        *,
        buttons: Buttons = (),
        tries: int | None = None,
    ) -> None:
        """Other words in a message; the same ones are no fault."""

        async def made(text: str, mode: str | None) -> None:
            await self.bot.edit_message_text(
                text,
                place.chat,
                message,
                parse_mode=mode,
                reply_markup=_markup(buttons, place),
            )

        try:
            await self._words(place.chat, words, made, tries=tries)
        except ApiRefused as fault:
            if _SAME not in str(fault).lower():
                raise

    async def remove(self, place: ChatPlace, message: int) -> None:
        """Take a message away, if that can be done."""
        await self.lightly(place.chat, lambda: self.bot.delete_message(place.chat, message))

    async def photo(
        self, place: ChatPlace, picture: bytes, *, words: HtmlText, buttons: Buttons = ()
    ) -> None:
        """A picture with words under it."""

        async def made(text: str, mode: str | None) -> None:
            await self.bot.send_photo(
                place.chat,
                picture,
                caption=text,
                parse_mode=mode,
                message_thread_id=place.topic,
                reply_markup=_markup(buttons, place),
            )

        await self._words(place.chat, words, made)

    async def typing(self, place: ChatPlace) -> None:
        """Show that something is under way, if that can be done at once."""
        try:
            await self.bot.send_chat_action(place.chat, "typing", message_thread_id=place.topic)
        except TelegramError:
            return  # nobody misses it

    async def lightly(self, chat: int, call: Callable[[], Awaitable[object]]) -> None:
        """Do something that may as well fail."""
        try:
            await self._paced(chat, call, tries=3)
        except (ApiRefused, Unreachable, TelegramError):
            return

    async def pressed(self, query: str, told: str = "", *, loud: bool = False) -> None:
        """Say that a button was heard; too late is no fault."""
        try:
            await self.bot.answer_callback_query(query, told or None, show_alert=loud)
        except TelegramError:
            return

    async def _words(
        self,
        chat: int,
        words: HtmlText,
        made: Callable[[str, str | None], Awaitable[T]],
        *,
        tries: int | None = None,
    ) -> T:
        try:
            return await self._paced(chat, lambda: made(words.html, ParseMode.HTML), tries=tries)
        except ApiRefused as fault:
            if _UNREADABLE not in str(fault).lower():
                raise
        return await self._paced(chat, lambda: made(words.plain, None), tries=tries)

    async def _paced(
        self, chat: int, call: Callable[[], Awaitable[T]], *, tries: int | None = None
    ) -> T:
        """One call for a chat after the other; tried again for as long as it may help."""
        async with self._turns.setdefault(chat, asyncio.Lock()):
            wait, tried = self.pace.again, 0
            while True:
                await asyncio.sleep(max(self._next.get(chat, 0.0) - monotonic(), 0))
                tried += 1
                try:
                    return await call()
                except RetryAfter as fault:
                    pause = seconds(fault)
                except Forbidden as fault:
                    raise Unreachable(fault.message) from fault
                except BadRequest as fault:
                    if "chat not found" in fault.message.lower():
                        raise Unreachable(fault.message) from fault
                    raise ApiRefused(fault.message) from fault
                except NetworkError:
                    if tries is not None and tried >= tries:
                        raise
                    pause, wait = wait, min(wait * 2, _LONGEST)
                finally:
                    self._next[chat] = monotonic() + self.pace.chat
                await asyncio.sleep(pause)


def seconds(fault: RetryAfter) -> float:
    """How long the API wants to be left alone."""
    after = fault.retry_after
    return after.total_seconds() if isinstance(after, timedelta) else float(after)


def _markup(buttons: Buttons, place: ChatPlace) -> InlineKeyboardMarkup | None:
    if not buttons:
        return None
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(one.label, callback_data=signed(one.says, place)) for one in row]
            for row in buttons
        ]
    )


def _reply(message: int | None) -> ReplyParameters | None:
    if message is None:
        return None
    return ReplyParameters(message, allow_sending_without_reply=True)

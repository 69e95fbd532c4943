"""Receive updates from Telegram, by polling or a webhook, and hand each to its chat.

    telegram = Telegram(line, seats=seats, store=store, tenant="local", rules=rules, tell=print)
    await telegram.start_bot()
    await telegram.poll_updates()

An update is in its session's log before it is confirmed; one that was not confirmed comes again.
Work that a killed process left undone is found by the sessions' names, and so is what another
process has written into them.
"""

import asyncio
import hmac
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from telegram import BotCommand, CallbackQuery, Message, Update, User
from telegram.error import (
    BadRequest,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)

from foldline.apps.bot import approval_cards, commands
from foldline.apps.bot import delivery as reading
from foldline.apps.bot.approval_cards import ApprovalQuestions, BotSeat, Rules
from foldline.apps.bot.bot_api import (
    MALFORMED,
    ApiRefused,
    BotCalls,
    ChatPlace,
    Unreachable,
    clean_update,
    decode_button_data,
    make_chat_place,
    parse_session_name,
    retry_seconds_of,
)
from foldline.apps.bot.delivery import SPACE, Track, done_upto
from foldline.apps.bot.html import render_plain_text
from foldline.apps.bot.telegram_chat import Chat
from foldline.draw.wording import clean_line
from foldline.errors import BadInput, FoldlineError, StoreFailed
from foldline.models.retries import Outage
from foldline.session.stored_session import cancel_tasks, iterate_sessions
from foldline.stores.base import Name, Store

HEADER = "X-Telegram-Bot-Api-Secret-Token"
KINDS = ["message", "callback_query"]
_LARGEST = 1024 * 1024  # bytes of an update
_REFUSED = 30 * 86_400.0  # seconds after which a stranger is refused in words again
_EXPECTED = (FoldlineError, TelegramError, ApiRefused, Unreachable)
_TRIES = 3  # of an update that fails for a reason of its own
_PAUSE = 1.0  # seconds before an update that failed is tried again
_LONGEST_PAUSE = 15.0
Seats: TypeAlias = Callable[[str], AbstractAsyncContextManager[BotSeat]]
"""Opens an agent for the session of a name."""


@dataclass(slots=True)
class _Opened:
    """An open chat, and the task that runs it."""

    task: "asyncio.Task[None]"
    ready: "asyncio.Future[Chat]"


class Telegram:
    """A running bot."""

    def __init__(  # noqa: PLR0913 - one keyword for each thing that it works with
        self,
        line: BotCalls,
        *,
        seats: Seats,
        store: Store,
        tenant: str,
        rules: Rules,
        tell: Callable[[str], None],
    ) -> None:
        self.line, self.rules, self.tell = line, rules, tell
        self._seats, self._store, self._tenant = seats, store, tenant
        self._asking = ApprovalQuestions(line, rules)
        self._chats: dict[str, _Opened] = {}
        self._me: User | None = None
        self._looking: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._outage = Outage("Telegram does not answer", tell, first=line.pace.again)
        self._store_outage = Outage("the store", tell, first=_PAUSE, longest=_LONGEST_PAUSE)
        self._look_outage = Outage("looking for work", tell)

    async def start_bot(self) -> str:
        """Connect to the API, resume unfinished chats, and return the bot's name."""
        while True:
            try:
                await self.line.bot.initialize()
                self._me = await self.line.bot.get_me()
                listing = [BotCommand(one.name, one.help) for one in commands.list_bot_commands()]
                await self.line.bot.set_my_commands(listing)
                break
            except InvalidToken as fault:
                raise BadInput(
                    f"Telegram does not know this token: {fault.message}; set TELEGRAM_BOT_TOKEN "
                    "to the one that BotFather gave you"
                ) from fault
            except RetryAfter as fault:
                await asyncio.sleep(retry_seconds_of(fault))
            except NetworkError as fault:
                await asyncio.sleep(self._outage.note_failure(fault.message))
        self._outage.note_success()
        await self._resume_unfinished_chats(orders=True)
        self._looking = asyncio.create_task(self._look_on())
        return self._me.username or ""

    async def poll_updates(self) -> None:
        """Poll for updates forever; each poll confirms the updates before it."""
        await self._call_until_accepted(
            lambda: self.line.bot.delete_webhook(drop_pending_updates=False)
        )
        offset = None
        while True:
            try:
                updates = await self.line.bot.get_updates(
                    offset=offset,
                    timeout=self.line.pace.polling,
                    allowed_updates=KINDS,
                )
                self._outage.note_success()
            except (Forbidden, InvalidToken) as fault:
                raise BadInput(f"Telegram no longer takes this token: {fault.message}") from fault
            except RetryAfter as fault:
                await asyncio.sleep(retry_seconds_of(fault))
                continue
            except TelegramError as fault:
                why, state = fault.message, "down"
                if isinstance(fault, Conflict | BadRequest):
                    why, state = f"updates are asked for elsewhere too: {why}", "elsewhere"
                await asyncio.sleep(self._outage.note_failure(why, state=state))
                continue
            except Exception as fault:  # noqa: BLE001 - what was answered must not end the bot
                await asyncio.sleep(self._outage.note_failure(type(fault).__name__))
                continue
            await self.receive_updates(updates)
            if updates:
                offset = max(update.update_id for update in updates) + 1

    async def receive_updates(self, updates: Sequence[Update]) -> None:
        """Put updates into their logs: chats in parallel, each chat's in order."""
        by_chat: dict[int, list[Update]] = {}
        for update in updates:
            chat = update.effective_chat
            by_chat.setdefault(chat.id if chat else 0, []).append(update)
        await asyncio.gather(*map(self._in_order, by_chat.values()))

    async def _in_order(self, updates: Sequence[Update]) -> None:
        for update in updates:
            tried = 0
            while True:
                try:
                    await self._handle_update(update)
                    self._store_outage.note_success()
                    break
                except (StoreFailed, OSError) as fault:  # unconfirmed until the store takes it
                    await asyncio.sleep(self._store_outage.note_failure(str(fault)))
                except Exception as fault:  # noqa: BLE001 - unconfirmed, it would end every restart
                    tried += 1
                    expected = isinstance(fault, _EXPECTED)
                    if expected:
                        self.tell(f"update {update.update_id}: {type(fault).__name__}: {fault}")
                    if tried >= _TRIES:
                        if not expected:  # logged without its text, which may hold the message
                            self._tell_dropped(update, type(fault).__name__)
                        await self._left_out(update)
                        break
                    await asyncio.sleep(_PAUSE)

    def _tell_dropped(self, update: Update, fault: str) -> None:
        self.tell(f"update {update.update_id} is left out: {fault}")

    async def _left_out(self, update: Update) -> None:
        """Say that a message was dropped, so that its author does not wait for an answer."""
        with suppress(Exception):  # what is said here is a courtesy
            if update.callback_query is not None:
                words = "This could not be taken in; try again later."
                await self.line.answer_button(update.callback_query.id, words, loud=True)
            elif update.effective_chat is not None:
                words = "⚠ This message could not be taken in; send it again later."
                place = ChatPlace(update.effective_chat.id)
                await self.line.send_message(place, render_plain_text(words))

    async def _handle_update(self, update: Update) -> None:
        if fault := update.api_kwargs.get(MALFORMED):
            self._tell_dropped(update, str(fault))
            return
        if update.callback_query is not None:
            await self._handle_button(update.update_id, update.callback_query)
            return
        message = update.message
        if message is None or not _has_content(message):
            return
        user = message.from_user
        chat = message.chat
        if user is None or user.is_bot:
            return
        if not self.rules.is_allowed(user.id, chat.id):
            await self._refuse_user(message, user)
            return
        topic = message.message_thread_id if message.is_topic_message else None
        place = make_chat_place(chat.id, topic=topic, user=user.id, by=self.rules.by)
        async with self._use_chat(place) as opened:
            await self._handle_message(opened, update.update_id, message, user)

    async def _handle_message(self, chat: Chat, number: int, message: Message, user: User) -> None:
        me = self._me
        text = message.text or ""
        asked = commands.parse_bot_command(text, (me and me.username) or "")
        if asked is not None and asked.name == "stop":
            if not chat.stop_turn():
                self._start_task(chat.send_notice(render_plain_text("Nothing is under way.")))
            return
        if asked is not None:
            to = message.reply_to_message
            asked = asked._replace(
                admin=user.id in self.rules.admins,
                reply=to.message_id if to else None,
                user=user.id,
            )
            await chat.accept_command(number, commands.encode_command(asked))
            return
        if text.startswith("/") and "@" in text.partition(" ")[0]:
            return  # for another bot
        parts = await reading.build_message_parts(
            message, self._fetch_file, ours=me.id if me else 0
        )
        author = "" if chat.place.private else user.full_name or str(user.id)
        await chat.hear(number, parts, author=author, message=message.message_id)

    async def _handle_button(self, number: int, query: CallbackQuery) -> None:
        message, (says, owner) = query.message, decode_button_data(query.data or "")
        if message is None or not self.rules.is_allowed(query.from_user.id, message.chat.id):
            await self.line.answer_button(query.id, "You are not allowed to.", loud=True)
            return
        if says.startswith(approval_cards.PREFIX):
            name = clean_line(query.from_user.full_name)
            words, loud = self._asking.handle_press(says, query.from_user.id, name)
            await self.line.answer_button(query.id, words, loud=loud)
            return
        user = query.from_user.id
        if owner not in (None, user):
            await self.line.answer_button(query.id, "This is about another's session.", loud=True)
            return
        if says not in approval_cards.COMMANDS:
            await self.line.answer_button(query.id, approval_cards.UNKNOWN, loud=True)
            return
        known = isinstance(message, Message)
        topic = message.message_thread_id if known and message.is_topic_message else None
        place = make_chat_place(message.chat.id, topic=topic, user=user, by=self.rules.by)
        async with self._use_chat(place) as chat:
            card = (message.text or message.caption or "") if known else ""
            asked = commands.parse_button(says, card)
            await chat.accept_command(number, commands.encode_command(asked))
        await self.line.answer_button(query.id)

    async def _refuse_user(self, message: Message, user: User) -> None:
        """Refuse a stranger, in words once; nothing of what they say is kept."""
        key = f"refused:{user.id}"
        nobody = Name(self._tenant, "")
        if await self._store.put(nobody, SPACE, key, b"1", version=0, seconds=_REFUSED):
            words = f"You are not allowed to talk with this bot. Your number is {user.id}."
            place = ChatPlace(message.chat.id, None)
            with suppress(ApiRefused, Unreachable):
                await self.line.send_message(place, render_plain_text(words))

    async def _fetch_file(self, file: str) -> bytes:
        for tried in range(_TRIES):
            try:
                found = await self.line.bot.get_file(file)
                return bytes(await found.download_as_bytearray())
            except (BadRequest, Forbidden):
                raise
            except NetworkError:
                if tried == _TRIES - 1:
                    raise
                await asyncio.sleep(self.line.pace.again)
        raise NetworkError("not reached")

    @asynccontextmanager
    async def _use_chat(self, place: ChatPlace) -> AsyncGenerator[Chat]:
        """Open a chat, and keep it open inside the block."""
        chat = await self._open_chat(place)
        chat.users += 1
        try:
            yield chat
        finally:
            chat.users -= 1

    async def _open_chat(self, place: ChatPlace) -> Chat:
        name = place.name
        opened = self._chats.get(name)
        if opened is None:
            ready: asyncio.Future[Chat] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run_chat(place, ready))
            opened = self._chats[name] = _Opened(task, ready)
            self._make_room()
        return await asyncio.shield(opened.ready)

    async def _run_chat(self, place: ChatPlace, ready: "asyncio.Future[Chat]") -> None:
        """Run a chat: its agent is made, works and is closed in this one task."""
        name = place.name
        try:
            async with self._seats(name) as seat:
                live = seat.agent.session.live
                track = await Track.load(live.store, live.name)
                chat = Chat(
                    place,
                    seat,
                    line=self.line,
                    rules=self.rules,
                    asking=self._asking,
                    track=track,
                    tell=self.tell,
                )
                ready.set_result(chat)
                await chat.run_worker()
        except Exception as fault:  # noqa: BLE001 - goes to whoever waits, or to the operator
            if not ready.done():
                ready.set_exception(fault)
            else:
                self.tell(f"{name}: {type(fault).__name__}: {fault}; it is opened again")
        finally:
            if (now := self._chats.get(name)) is not None and now.ready is ready:
                del self._chats[name]
            if not ready.done():
                ready.cancel()

    def _make_room(self) -> None:
        """Close idle chats, the oldest first, until there are few enough."""
        for name, opened in [*self._chats.items()]:
            if len(self._chats) <= self.rules.most:
                return
            ready = opened.ready
            if ready.done() and not ready.exception() and ready.result().idle:
                del self._chats[name]
                ready.result().close()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(self.rules.look)
            try:
                await self._resume_unfinished_chats()
                self._look_outage.note_success()
            except (FoldlineError, OSError) as fault:
                self._look_outage.note_failure(str(fault))

    async def _resume_unfinished_chats(self, *, orders: bool = False) -> None:
        """Open or wake chats with unanswered messages, undelivered answers or waiting commands."""
        async for session in iterate_sessions(self._store, self._tenant):
            place = parse_session_name(session.session)
            if place is None:
                continue
            name = Name(self._tenant, session.session)
            opened = self._chats.get(session.session)
            if opened is None:
                waiting = orders and await self._store.get(name, SPACE, "inbox") is not None
                if not waiting and session.head <= await done_upto(self._store, name):
                    continue
                self._start_task(self._try_open_chat(place))
            elif opened.ready.done() and not opened.ready.exception():
                chat = opened.ready.result()
                if session.head > chat.session.live.view.head:
                    chat.wake()

    async def _try_open_chat(self, place: ChatPlace) -> None:
        try:
            await self._open_chat(place)
        except (FoldlineError, OSError) as fault:
            self.tell(f"{place.name} cannot be opened: {fault}")

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def register_webhook(self, url: str, secret: str) -> None:
        """Have Telegram send updates to a URL."""
        bot = self.line.bot
        await self._call_until_accepted(
            lambda: bot.set_webhook(url, secret_token=secret, allowed_updates=KINDS)
        )

    async def _call_until_accepted(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeat a call until Telegram accepts it."""
        while True:
            try:
                await call()
            except RetryAfter as fault:
                await asyncio.sleep(retry_seconds_of(fault))
            except BadRequest as fault:
                raise BadInput(f"Telegram does not take this: {fault.message}") from fault
            except NetworkError as fault:
                await asyncio.sleep(self._outage.note_failure(fault.message))
            else:
                self._outage.note_success()
                return

    async def close(self) -> None:
        """Stop; turns under way are in the log as far as they came, and go on next time."""
        tasks = [*self._beside, *(opened.task for opened in self._chats.values())]
        tasks += [self._looking] if self._looking else []
        await cancel_tasks(*tasks)
        with suppress(TelegramError):
            await self.line.bot.shutdown()


@asynccontextmanager
async def serve_webhook(
    telegram: Telegram, *, url: str, secret: str, host: str, port: int
) -> AsyncGenerator[int]:
    """Serve updates at the path of `url`, and yield the port.

    The secret is compared in constant time. An update that fails is answered by an error, so that
    Telegram sends it again.
    """
    try:
        from aiohttp import web  # noqa: PLC0415 - an extra; polling needs none
    except ModuleNotFoundError:
        raise BadInput(
            "webhooks need 'aiohttp', which is not installed: "
            "pip install 'foldline[telegram,gateway]'; without --webhook the bot polls"
        ) from None

    async def handle_request(request: web.Request) -> web.Response:
        shown = request.headers.get(HEADER, "")
        if not hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), secret.encode()):
            return web.Response(status=403)
        try:
            found = clean_update(json.loads(await request.read()))
        except (ValueError, RecursionError):
            found = None
        if found is None:  # no update at all
            return web.Response(status=400)
        await telegram.receive_updates([Update.de_json(found, telegram.line.bot)])
        return web.Response()

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(urlsplit(url).path or "/", handle_request)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_port: int = runner.addresses[0][1]
        await telegram.register_webhook(url, secret)
        yield bound_port
    finally:
        await runner.cleanup()


def _has_content(message: Message) -> bool:
    """Whether it has words: no one only joined, left or changed a picture."""
    return bool(message.text or message.caption or message.effective_attachment)

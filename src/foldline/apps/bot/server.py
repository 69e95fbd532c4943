"""Updates in: each in its session's log before Telegram is told that we have it (R-81).

    telegram = Telegram(line, seats=seats, store=store, tenant="local", rules=rules, tell=print)
    await telegram.poll()

Knows who may talk, which session an update belongs to, and that an update that was not confirmed
comes again. Refuses to know how agents are made (`seats`). What was left undone by a process that
was killed is found by the sessions' names, also what another process has written into them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

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

from foldline.apps.bot import approval, commands
from foldline.apps.bot import message as reading
from foldline.apps.bot.approval import ApprovalQuestions
from foldline.apps.bot.bot_api import ApiRefused, BotCalls, Unreachable, seconds
from foldline.apps.bot.chat import Chat
from foldline.apps.bot.delivery import SPACE, Track, done_upto
from foldline.apps.bot.html import plainly
from foldline.apps.bot.rules import Rules, Seat
from foldline.apps.bot.session_names import ChatPlace, named, placed, whose
from foldline.core.parts import sound
from foldline.draw.text import clean
from foldline.errors import BadInput, FoldlineError, StoreFailed
from foldline.session.session_list import listed
from foldline.stores.base import Name, Store

Seats: TypeAlias = Callable[[str], AbstractAsyncContextManager[Seat]]
"""An agent for a session, by its name; open until it is left."""
KINDS = ["message", "callback_query"]
_REFUSED = 30 * 86_400.0  # seconds after which a stranger is told once more
_TRIES = 3  # of an update whose intake fails for a reason of its own
_PAUSE = 1.0  # seconds before a batch is tried again that the store did not take


@dataclass(slots=True)
class _Opened:
    """A chat that is open, and the task that keeps it so."""

    task: "asyncio.Task[None]"
    ready: "asyncio.Future[Chat]"


class Telegram:
    """A bot at work."""

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

    async def begin(self) -> str:
        """Say hello to the API, and go on where the process before us was; the bot's name."""
        while True:
            try:
                await self.line.bot.initialize()
                self._me = await self.line.bot.get_me()
                listing = [BotCommand(one.name, one.help) for one in commands.shown()]
                await self.line.bot.set_my_commands(listing)
                break
            except InvalidToken as fault:
                raise BadInput(
                    f"Telegram does not know this token: {fault.message}; set TELEGRAM_BOT_TOKEN "
                    "to the one that BotFather gave you"
                ) from fault
            except RetryAfter as fault:
                await asyncio.sleep(seconds(fault))
            except NetworkError as fault:
                self.tell(f"Telegram cannot be reached: {fault.message}; tried again")
                await asyncio.sleep(self.line.pace.again)
        await self._look(orders=True)
        self._looking = asyncio.create_task(self._look_on())
        return self._me.username or ""

    async def poll(self) -> None:
        """Ask for updates, for ever; what was taken in is confirmed by the next question."""
        await self._surely(lambda: self.line.bot.delete_webhook(drop_pending_updates=False))
        offset, wait = None, self.line.pace.again
        while True:
            try:
                updates = await self.line.bot.get_updates(
                    offset=offset,
                    timeout=self.line.pace.polling,
                    allowed_updates=KINDS,
                )
                wait = self.line.pace.again
            except (Forbidden, InvalidToken) as fault:
                raise BadInput(f"Telegram no longer takes this token: {fault.message}") from fault
            except RetryAfter as fault:
                await asyncio.sleep(seconds(fault))
                continue
            except TelegramError as fault:
                if isinstance(fault, Conflict | BadRequest):
                    self.tell(f"updates are asked for elsewhere too: {fault.message}")
                await asyncio.sleep(wait)
                wait = min(wait * 2, 30.0)
                continue
            await self.take(updates)
            if updates:
                offset = updates[-1].update_id + 1

    async def take(self, updates: Sequence[Update]) -> None:
        """Have updates in their logs: chats side by side, each chat's in order."""
        by: dict[int, list[Update]] = {}
        for one in updates:
            chat = one.effective_chat
            by.setdefault(chat.id if chat else 0, []).append(one)
        await asyncio.gather(*(self._in_order(some) for some in by.values()))

    async def _in_order(self, updates: Sequence[Update]) -> None:
        for update in updates:
            tried = 0
            while True:
                try:
                    await self._one(update)
                    break
                except (StoreFailed, OSError) as fault:  # it stays with Telegram until it is in
                    self.tell(f"update {update.update_id}: {fault}")
                    await asyncio.sleep(_PAUSE)
                except (FoldlineError, TelegramError, ApiRefused, Unreachable) as fault:
                    tried += 1
                    self.tell(f"update {update.update_id}: {type(fault).__name__}: {fault}")
                    if tried >= _TRIES:
                        await self._left_out(update)
                        break
                    await asyncio.sleep(_PAUSE)

    async def _left_out(self, update: Update) -> None:
        """Say that a message could not be taken in: nobody waits for an answer that never comes."""
        chat = update.effective_chat
        if chat is not None:
            with suppress(ApiRefused, Unreachable, TelegramError):
                words = plainly("⚠ This message could not be taken in; send it again later.")
                await self.line.send(ChatPlace(chat.id), words)

    async def _one(self, update: Update) -> None:
        if update.callback_query is not None:
            await self._pressed(update.update_id, update.callback_query)
            return
        message = update.message
        if message is None or not _says(message):
            return
        user = message.from_user
        chat = message.chat
        if user is None or user.is_bot:
            return
        if not self.rules.lets(user.id, chat.id):
            await self._refuse(message, user)
            return
        topic = message.message_thread_id if message.is_topic_message else None
        place = placed(chat.id, topic=topic, user=user.id, by=self.rules.by)
        opened = await self._chat(place)
        opened.users += 1
        try:
            await self._heard(opened, update.update_id, message, user)
        finally:
            opened.users -= 1

    async def _heard(self, chat: Chat, number: int, message: Message, user: User) -> None:
        me = self._me
        text = message.text or ""
        asked = commands.read(text, (me and me.username) or "") if text.startswith("/") else None
        if asked is not None and asked.name == "stop":
            if not chat.stop():
                self._spawn(chat.say(plainly("Nothing is under way.")))
            return
        if asked is not None:
            to = message.reply_to_message
            asked = asked._replace(
                admin=user.id in self.rules.admins, reply=to.message_id if to else None
            )
            await chat.order(number, commands.ordered(asked))
            return
        if text.startswith("/") and "@" in text.partition(" ")[0]:
            return  # for another bot
        parts = await reading.parts(message, self._fetch, ours=me.id if me else 0)
        author = "" if chat.place.private else sound(user.full_name or str(user.id))
        await chat.hear(number, parts, author=author, message=message.message_id)

    async def _pressed(self, number: int, query: CallbackQuery) -> None:
        message, (says, owner) = query.message, whose(query.data or "")
        if message is None or not self.rules.lets(query.from_user.id, message.chat.id):
            await self.line.pressed(query.id, "You are not allowed to.", loud=True)
            return
        if says.startswith(approval.PREFIX):
            name = clean(query.from_user.full_name)
            told, loud = self._asking.press(says, query.from_user.id, name)
            await self.line.pressed(query.id, told, loud=loud)
            return
        user = query.from_user.id
        if owner not in (None, user):
            await self.line.pressed(query.id, "This is about another's session.", loud=True)
            return
        known = isinstance(message, Message)
        topic = message.message_thread_id if known and message.is_topic_message else None
        chat = await self._chat(placed(message.chat.id, topic=topic, user=user, by=self.rules.by))
        chat.users += 1
        try:
            card = (message.text or message.caption or "") if known else ""
            asked = commands.pressed(says, card)
            await chat.order(number, commands.ordered(asked))
        finally:
            chat.users -= 1
        await self.line.pressed(query.id)

    async def _refuse(self, message: Message, user: User) -> None:
        """Tell a stranger, once; nothing of what they say is kept."""
        key = f"refused:{user.id}"
        nobody = Name(self._tenant, "")
        if await self._store.put(nobody, SPACE, key, b"1", version=0, seconds=_REFUSED):
            words = f"You are not allowed to talk with this bot. Your number is {user.id}."
            place = ChatPlace(message.chat.id, None)
            with suppress(ApiRefused, Unreachable):
                await self.line.send(place, plainly(words))

    async def _fetch(self, file: str) -> bytes:
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

    async def _chat(self, place: ChatPlace) -> Chat:
        """The chat of a place, opened if it is not."""
        name = place.name
        opened = self._chats.get(name)
        if opened is None:
            ready: asyncio.Future[Chat] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._keep(place, ready))
            opened = self._chats[name] = _Opened(task, ready)
            self._make_room()
        return await asyncio.shield(opened.ready)

    async def _keep(self, place: ChatPlace, ready: "asyncio.Future[Chat]") -> None:
        """One chat's life: its agent is made, works and is closed in one and the same task."""
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
                await chat.work()
        except Exception as fault:  # noqa: BLE001 - told to whoever waits, or to the operator
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
        """Let go of chats in which nothing happens, the oldest first."""
        for name, one in [*self._chats.items()]:
            if len(self._chats) <= self.rules.most:
                return
            if one.ready.done() and not one.ready.exception() and one.ready.result().idle:
                del self._chats[name]
                one.ready.result().close()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(self.rules.look)
            try:
                await self._look()
            except (FoldlineError, OSError) as fault:
                self.tell(f"looking for work: {fault}")

    async def _look(self, *, orders: bool = False) -> None:
        """Find what was left undone: unanswered, undelivered, or not worked off."""
        async for one in listed(self._store, self._tenant):
            place = named(one.session)
            if place is None:
                continue
            name = Name(self._tenant, one.session)
            opened = self._chats.get(one.session)
            if opened is None:
                waiting = orders and await self._store.get(name, SPACE, "inbox") is not None
                if not waiting and one.head <= await done_upto(self._store, name):
                    continue
                self._spawn(self._open(place))
            elif opened.ready.done() and not opened.ready.exception():
                chat = opened.ready.result()
                if one.head > chat.session.live.view.head:
                    chat.wake()

    async def _open(self, place: ChatPlace) -> None:
        try:
            await self._chat(place)
        except (FoldlineError, OSError) as fault:
            self.tell(f"{place.name} cannot be opened: {fault}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def hook(self, url: str, secret: str) -> None:
        """Have Telegram bring updates to an address."""
        bot = self.line.bot
        await self._surely(lambda: bot.set_webhook(url, secret_token=secret, allowed_updates=KINDS))

    async def _surely(self, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call until it is heard."""
        while True:
            try:
                await call()
            except RetryAfter as fault:
                await asyncio.sleep(seconds(fault))
            except BadRequest as fault:
                raise BadInput(f"Telegram does not take this: {fault.message}") from fault
            except NetworkError:
                await asyncio.sleep(self.line.pace.again)
            else:
                return

    async def close(self) -> None:
        """Stop: what is under way stands in the log as far as it came, and goes on next time."""
        tasks = [*self._beside, *(one.task for one in self._chats.values())]
        tasks += [self._looking] if self._looking else []
        await ended(tasks)
        with suppress(TelegramError):
            await self.line.bot.shutdown()


async def ended(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    """Cancel tasks until all are over: before Python 3.12 a driver can lose a cancellation."""
    rest = {*tasks}
    while rest:
        for task in rest:
            task.cancel()
        _, rest = await asyncio.wait(rest, timeout=_PAUSE)


def _says(message: Message) -> bool:
    """Whether somebody says something: not that they came, left or changed a picture."""
    return bool(message.text or message.caption or message.effective_attachment)

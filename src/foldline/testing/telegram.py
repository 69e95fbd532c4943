"""Telegram's Bot API on a real port, as its documentation tells it, and people who write to a bot.

    async with BotApi() as api:
        ann = api.person(7, "Ann")
        ...                                     # a bot with base_url=api.url, token=api.token
        await ann.say("hello")
        await api.until(lambda: "hi" in api.screen(ann.id))

Knows what a bot can see of Telegram: updates that come again until they are confirmed, webhooks
with their secret, limits of length and rate, edits, buttons, files; and faults, where they are
wanted. `calls` is all that was asked; `screen` is what a person sees. Needs aiohttp.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser
from time import monotonic
from typing import Any, Literal, Self, TypeAlias

from aiohttp import ClientError, ClientSession, ClientTimeout, web

Json: TypeAlias = dict[str, Any]
Fault: TypeAlias = Literal["error", "drop", "late", "slow"]
"""error: 500. drop: the connection ends before anything is done. late: it is done, and then the
connection ends: nobody knows. slow: nothing is answered for a long time."""
HEADER = "X-Telegram-Bot-Api-Secret-Token"
_LONGEST = 4_096
_CAPTION = 1_024
_BUTTON = 64
_SPEAKING = ("sendMessage", "sendPhoto", "editMessageText")
_TAGS = {"b", "strong", "i", "em", "u", "s", "a", "code", "pre", "blockquote", "tg-spoiler", "span"}


@dataclass(frozen=True, slots=True)
class Called:
    """One call of the bot."""

    method: str
    given: Json
    status: int
    time: float


@dataclass(slots=True)
class Shown:
    """A message as people see it."""

    message: Json
    by_bot: bool
    photo: bytes = b""
    edits: int = 0
    gone: bool = False

    @property
    def id(self) -> int:
        """Its number."""
        return self.message["message_id"]

    @property
    def text(self) -> str:
        """Its words."""
        return self.message.get("text") or self.message.get("caption") or ""

    @property
    def buttons(self) -> dict[str, str]:
        """What its buttons say, by their labels."""
        rows = self.message.get("reply_markup", {}).get("inline_keyboard", [])
        return {one["text"]: one["callback_data"] for row in rows for one in row}


class _Refused(Exception):  # noqa: N818 - named for what happened
    def __init__(self, status: int, why: str, **parameters: Any) -> None:
        super().__init__(why)
        self.status, self.why, self.parameters = status, why, parameters


@dataclass(slots=True)
class BotApi:
    """The API of one bot, until it is left."""

    token: str = "7000000:made-for-tests"  # noqa: S105 - it opens nothing
    name: str = "foldline_bot"
    rate: float = 0.0
    """Seconds that must lie between two calls that write into one chat; fewer are answered 429."""
    retry_after: float = 1
    """What such an answer says; Telegram itself says whole seconds."""
    port: int = 0
    fault: "Callable[[str], Fault | None]" = lambda _: None
    """Asked before every call, by its method: what is to go wrong with it."""
    calls: list[Called] = field(default_factory=list[Called])
    watch: Callable[[Called], None] = lambda _: None
    """Told of every call."""
    keep: bool = True
    """Whether calls are kept: a year of them is many."""
    pending: list[Json] = field(default_factory=list[Json])
    """Updates that were not confirmed."""
    commands: list[Json] = field(default_factory=list[Json])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    seen: dict[int, dict[int, Shown]] = field(default_factory=dict[int, dict[int, Shown]])
    """Every message, by chat and number."""
    answered: dict[str, Json] = field(default_factory=dict[str, Json])
    """What was told to whoever pressed a button."""
    blocked: set[int] = field(default_factory=set[int])
    """Chats that want nothing more from the bot."""
    _hook: Json = field(default_factory=dict[str, Any])
    _numbers: int = 1_000
    _last: dict[int, float] = field(default_factory=dict[int, float])
    _moved: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None
    _bringing: "asyncio.Task[None] | None" = None

    @property
    def url(self) -> str:
        """The address that a bot is given."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=50 * 1024 * 1024)
        app.router.add_route("*", "/bot{token}/{method}", self._called)
        app.router.add_get("/file/bot{token}/{path:.*}", self._file)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._bringing is not None:
            self._bringing.cancel()
            await asyncio.gather(self._bringing, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    def person(self, number: int, name: str) -> "Person":
        """Somebody who writes to the bot."""
        return Person(self, number, name)

    def of(self, method: str) -> list[Called]:
        """The calls of one method that were done."""
        return [one for one in self.calls if one.method == method and one.status == 200]

    def shown(self, chat: int, topic: int | None = None) -> list[Shown]:
        """The messages of a chat, or of a topic, that stand there now."""
        found = (one for one in self.seen.get(chat, {}).values() if not one.gone)
        return [one for one in found if one.message.get("message_thread_id") == topic]

    def screen(self, chat: int, topic: int | None = None) -> str:
        """What stands in a chat: a line for each message, the bot's behind a mark."""
        some = self.shown(chat, topic)
        return "\n".join(f"{'» ' if one.by_bot else ''}{one.text}" for one in some)

    def said(self, chat: int, topic: int | None = None) -> list[str]:
        """What the bot says in a chat."""
        return [one.text for one in self.shown(chat, topic) if one.by_bot]

    async def until(self, true: Callable[[], object], seconds: float = 10.0) -> None:
        """Wait until something is so; every call is a reason to look again."""
        end = monotonic() + seconds
        while not true():
            if monotonic() > end:
                screens = "\n".join(f"-- {chat}\n{self.screen(chat)}" for chat in self.seen)
                raise AssertionError(f"not in {seconds} s; the screens end:\n{screens[-2_000:]}")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05), self._moved:
                    await self._moved.wait()

    async def put(self, **update: Any) -> int:
        """An update for the bot; its number."""
        self._numbers += 1
        self.pending.append({"update_id": self._numbers, **update})
        await self._notify()
        return self._numbers

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def _called(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        try:
            given = {**request.query, **(await request.post())}
        except ConnectionResetError:  # who asked was killed
            return web.Response()
        trouble = self.fault(method)
        if trouble in ("drop", "slow"):
            if trouble == "slow":
                await asyncio.sleep(3_600)
            return _cut(request)
        status, body = await self._answer(request.match_info["token"], method, given, trouble)
        called = Called(method, given, status, monotonic())
        self.watch(called)
        if self.keep:
            self.calls.append(called)
        await self._notify()
        if trouble == "late":
            return _cut(request)
        return web.json_response(body, status=status)

    async def _answer(
        self, token: str, method: str, given: Json, trouble: Fault | None
    ) -> tuple[int, Json]:
        try:
            return 200, {"ok": True, "result": await self._work(token, method, given, trouble)}
        except _Refused as one:
            told: Json = {"ok": False, "error_code": one.status, "description": one.why}
            if one.parameters:
                told["parameters"] = one.parameters
            return one.status, told

    async def _work(self, token: str, method: str, given: Json, trouble: Fault | None) -> Any:
        if token != self.token:
            raise _Refused(401, "Unauthorized")
        if trouble == "error":
            raise _Refused(500, "Internal Server Error")
        work = getattr(self, f"_do_{method.lower()}", None)
        if work is None:
            raise _Refused(404, "Not Found")
        if method in _SPEAKING:
            self._limit(int(given["chat_id"]))
        return await work(given)

    def _limit(self, chat: int) -> None:
        if chat in self.blocked:
            raise _Refused(403, "Forbidden: bot was blocked by the user")
        now = monotonic()
        if self.rate and now - self._last.get(chat, -1e9) < self.rate:
            told = f"Too Many Requests: retry after {self.retry_after}"
            raise _Refused(429, told, retry_after=self.retry_after)
        self._last[chat] = now

    async def _file(self, request: web.Request) -> web.Response:
        body = self.files.get(request.match_info["path"])
        known = body is not None and request.match_info["token"] == self.token
        return web.Response(body=body) if known else web.Response(status=404)

    @property
    def me(self) -> Json:
        """The bot."""
        number = int(self.token.partition(":")[0])
        return {"id": number, "is_bot": True, "first_name": "Foldline", "username": self.name}

    async def _do_getme(self, _: Json) -> Json:
        return self.me

    async def _do_setmycommands(self, given: Json) -> bool:
        self.commands = json.loads(given["commands"])
        return True

    async def _do_getupdates(self, given: Json) -> list[Json]:
        if self._hook:
            raise _Refused(409, "Conflict: can't use getUpdates method while webhook is active")
        offset, limit = int(given.get("offset", 0)), int(given.get("limit", 100))
        self.pending[:] = [one for one in self.pending if one["update_id"] >= offset]
        with suppress(TimeoutError):
            async with asyncio.timeout(float(given.get("timeout", 0))), self._moved:
                await self._moved.wait_for(lambda: self.pending)
        return self.pending[:limit]

    async def _do_setwebhook(self, given: Json) -> bool:
        self._hook = given
        if self._bringing is None:
            self._bringing = asyncio.create_task(self._bring())
        return True

    async def _do_deletewebhook(self, _: Json) -> bool:
        self._hook = {}
        return True

    async def _bring(self) -> None:
        """Bring each update until it is taken."""
        async with ClientSession(timeout=ClientTimeout(total=30)) as client:
            while True:
                async with self._moved:
                    await self._moved.wait_for(lambda: self.pending and self._hook)
                update, head = self.pending[0], {HEADER: self._hook.get("secret_token", "")}
                with suppress(ClientError, TimeoutError):
                    async with client.post(self._hook["url"], json=update, headers=head) as told:
                        if told.status == 200:
                            self.pending.remove(update)
                            continue
                await asyncio.sleep(0.05)

    async def _do_sendchataction(self, given: Json) -> bool:
        return bool(given["chat_id"])

    async def _do_answercallbackquery(self, given: Json) -> bool:
        if given["callback_query_id"] in self.answered:
            raise _Refused(400, "Bad Request: query is too old and response timeout expired")
        self.answered[given["callback_query_id"]] = given
        return True

    async def _do_getfile(self, given: Json) -> Json:
        if given["file_id"] not in self.files:
            raise _Refused(400, "Bad Request: invalid file_id")
        name = given["file_id"]
        return {"file_id": name, "file_unique_id": name, "file_path": name}

    async def _do_sendmessage(self, given: Json) -> Json:
        words = _words(given, "text", _LONGEST)
        if not words.strip():
            raise _Refused(400, "Bad Request: message text is empty")
        return self._stand(given, {"text": words}).message

    async def _do_sendphoto(self, given: Json) -> Json:
        photo = given["photo"]
        body = photo.file.read() if hasattr(photo, "file") else b""
        if not body:
            raise _Refused(400, "Bad Request: there is no photo in the request")
        one = self._stand(given, {"caption": _words(given, "caption", _CAPTION)})
        sizes = {"file_id": f"sent-{one.id}", "file_unique_id": str(one.id)}
        one.message["photo"] = [{**sizes, "width": 1, "height": 1}]
        one.photo = body
        return one.message

    async def _do_editmessagetext(self, given: Json) -> Json:
        one = self.seen.get(int(given["chat_id"]), {}).get(int(given["message_id"]))
        if one is None or one.gone or not one.by_bot:
            raise _Refused(400, "Bad Request: message to edit not found")
        words = _words(given, "text", _LONGEST)
        new: Json = {"text": words, **_markup(given)}
        if not words.strip():
            raise _Refused(400, "Bad Request: message text is empty")
        if new == {key: one.message[key] for key in ("text", "reply_markup") if key in one.message}:
            raise _Refused(
                400,
                "Bad Request: message is not modified: specified new message content and reply "
                "markup are exactly the same as a current content and reply markup of the message",
            )
        one.message.pop("reply_markup", None)
        one.message.update(new)
        one.edits += 1
        return one.message

    async def _do_deletemessage(self, given: Json) -> bool:
        one = self.seen.get(int(given["chat_id"]), {}).get(int(given["message_id"]))
        if one is None or one.gone:
            raise _Refused(400, "Bad Request: message to delete not found")
        one.gone = True
        return True

    def _stand(self, given: Json, more: Json) -> Shown:
        chat = int(given["chat_id"])
        if chat not in self.seen:
            raise _Refused(400, "Bad Request: chat not found")
        topic = given.get("message_thread_id")
        return self.stand(
            chat,
            {**more, "from": self.me, **_markup(given)},
            topic=int(topic) if topic else None,
            by_bot=True,
        )

    def stand(self, chat: int, message: Json, *, topic: int | None, by_bot: bool) -> Shown:
        """Have a message in a chat."""
        there = self.seen.setdefault(chat, {})
        number = len(there) + 1
        kind: Json = {"id": chat, "type": "private" if chat > 0 else "supergroup"}
        if chat < 0:
            kind |= {"title": "A group", "is_forum": topic is not None}
        whole: Json = {
            "message_id": number,
            "date": 1_750_000_000 + number,
            "chat": kind,
            **message,
        }
        if topic is not None:
            whole |= {"message_thread_id": topic, "is_topic_message": True}
        there[number] = Shown(whole, by_bot)
        return there[number]


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who writes, presses buttons and sends files."""

    api: BotApi
    id: int
    name: str

    @property
    def user(self) -> Json:
        """As updates tell of them."""
        return {"id": self.id, "is_bot": False, "first_name": self.name}

    async def say(
        self,
        text: str = "",
        *,
        chat: int | None = None,
        topic: int | None = None,
        reply: Shown | None = None,
        **more: Any,
    ) -> int:
        """Write a message, here or in a group; the update's number."""
        message: Json = {"from": self.user, **({"text": text} if text else {}), **more}
        if text.startswith("/"):
            size = len(text.split(maxsplit=1)[0])
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": size}]
        if reply is not None:
            message["reply_to_message"] = reply.message
        one = self.api.stand(chat or self.id, message, topic=topic, by_bot=False)
        return await self.api.put(message=one.message)

    async def press(self, one: Shown, label: str) -> str:
        """Press a button of a message; the number of the question."""
        query = f"q{one.message['chat']['id']}-{one.id}-{len(self.api.answered)}-{self.id}"
        await self.api.put(
            callback_query={
                "id": query,
                "from": self.user,
                "chat_instance": "1",
                "message": one.message,
                "data": one.buttons[label],
            }
        )
        return query

    async def photo(self, body: bytes, *, caption: str = "", chat: int | None = None) -> int:
        """Send a picture."""
        name = f"photo-{len(self.api.files)}"
        self.api.files[name] = body
        size = {"file_id": name, "file_unique_id": name, "width": 90, "height": 90}
        more: Json = {"caption": caption} if caption else {}
        return await self.say(chat=chat, photo=[{**size, "file_size": len(body)}], **more)

    async def document(self, name: str, body: bytes, *, mime: str = "", caption: str = "") -> int:
        """Send a file."""
        key = f"file-{len(self.api.files)}"
        self.api.files[key] = body
        about: Json = {"file_id": key, "file_unique_id": key, "file_name": name}
        about |= {"file_size": len(body)} | ({"mime_type": mime} if mime else {})
        more: Json = {"caption": caption} if caption else {}
        return await self.say(document=about, **more)


def _cut(request: web.Request) -> web.Response:
    """End a connection without a word."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _markup(given: Json) -> Json:
    markup: Json = json.loads(given["reply_markup"]) if given.get("reply_markup") else {}
    for row in markup.get("inline_keyboard", []):
        for one in row:
            if not 0 < len(one["callback_data"].encode()) <= _BUTTON:
                raise _Refused(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"reply_markup": markup} if markup else {}


def _words(given: Json, key: str, most: int) -> str:
    """The words that people see, or why they cannot be shown."""
    text = given.get(key, "")
    if given.get("parse_mode") == "HTML":
        text = _Entities.read(text)
    if len(text.encode("utf-16-le")) // 2 > most:
        raise _Refused(400, f"Bad Request: message {'' if key == 'text' else key + ' '}is too long")
    return text


class _Entities(HTMLParser):
    """HTML as Telegram reads it: few tags, each of them closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []

    @classmethod
    def read(cls, text: str) -> str:
        one = cls()
        one.feed(text)
        one.close()
        if one.open:
            told = f'can\'t find end tag corresponding to start tag "{one.open[-1]}"'
            raise _Refused(400, f"Bad Request: can't parse entities: {told}")
        return "".join(one.words)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the parser's
        if tag not in _TAGS:
            told = f'unsupported start tag "{tag}"'
            raise _Refused(400, f"Bad Request: can't parse entities: {told}")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise _Refused(400, f'Bad Request: can\'t parse entities: unmatched end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.words.append(data)

"""The Bot API of one bot on a real port: methods, updates and webhooks, limits of rate, faults.

Knows the order of things at Telegram. Refuses to know what a message may hold (`messages`).
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, Self, TypeAlias

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from fake_telegram.messages import (
    CAPTION,
    LONGEST,
    Called,
    Json,
    Refused,
    Shown,
    markup,
    words,
)
from fake_telegram.people import Person

Fault: TypeAlias = Literal["error", "drop", "late", "slow"]
"""error: 500. drop: the connection ends before anything is done. late: it is done, and then the
connection ends: nobody knows. slow: nothing is answered for a long time."""
HEADER = "X-Telegram-Bot-Api-Secret-Token"
_SPEAKING = ("sendMessage", "sendPhoto", "editMessageText")


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

    def person(self, number: int, name: str) -> Person:
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

    async def until(self, true: Callable[[], object], seconds: float = 30.0) -> None:
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
        except Refused as one:
            told: Json = {"ok": False, "error_code": one.status, "description": one.why}
            if one.parameters:
                told["parameters"] = one.parameters
            return one.status, told

    async def _work(self, token: str, method: str, given: Json, trouble: Fault | None) -> Any:
        if token != self.token:
            raise Refused(401, "Unauthorized")
        if trouble == "error":
            raise Refused(500, "Internal Server Error")
        work = getattr(self, f"_do_{method.lower()}", None)
        if work is None:
            raise Refused(404, "Not Found")
        if method in _SPEAKING:
            self._limit(int(given["chat_id"]))
        return await work(given)

    def _limit(self, chat: int) -> None:
        if chat in self.blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        now = monotonic()
        if self.rate and now - self._last.get(chat, -1e9) < self.rate:
            told = f"Too Many Requests: retry after {self.retry_after}"
            raise Refused(429, told, retry_after=self.retry_after)
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
            raise Refused(409, "Conflict: can't use getUpdates method while webhook is active")
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
            raise Refused(400, "Bad Request: query is too old and response timeout expired")
        self.answered[given["callback_query_id"]] = given
        return True

    async def _do_getfile(self, given: Json) -> Json:
        if given["file_id"] not in self.files:
            raise Refused(400, "Bad Request: invalid file_id")
        name = given["file_id"]
        return {"file_id": name, "file_unique_id": name, "file_path": name}

    async def _do_sendmessage(self, given: Json) -> Json:
        text = words(given, "text", LONGEST)
        if not text.strip():
            raise Refused(400, "Bad Request: message text is empty")
        return self._stand(given, {"text": text}).message

    async def _do_sendphoto(self, given: Json) -> Json:
        photo = given["photo"]
        body = photo.file.read() if hasattr(photo, "file") else b""
        if not body:
            raise Refused(400, "Bad Request: there is no photo in the request")
        one = self._stand(given, {"caption": words(given, "caption", CAPTION)})
        sizes = {"file_id": f"sent-{one.id}", "file_unique_id": str(one.id)}
        one.message["photo"] = [{**sizes, "width": 1, "height": 1}]
        one.photo = body
        return one.message

    async def _do_editmessagetext(self, given: Json) -> Json:
        one = self.seen.get(int(given["chat_id"]), {}).get(int(given["message_id"]))
        if one is None or one.gone or not one.by_bot:
            raise Refused(400, "Bad Request: message to edit not found")
        text = words(given, "text", LONGEST)
        new: Json = {"text": text, **markup(given)}
        if not text.strip():
            raise Refused(400, "Bad Request: message text is empty")
        if new == {key: one.message[key] for key in ("text", "reply_markup") if key in one.message}:
            raise Refused(
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
            raise Refused(400, "Bad Request: message to delete not found")
        one.gone = True
        return True

    def _stand(self, given: Json, more: Json) -> Shown:
        chat = int(given["chat_id"])
        if chat not in self.seen:
            raise Refused(400, "Bad Request: chat not found")
        topic = given.get("message_thread_id")
        return self.stand(
            chat,
            {**more, "from": self.me, **markup(given)},
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


def _cut(request: web.Request) -> web.Response:
    """End a connection without a word."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()

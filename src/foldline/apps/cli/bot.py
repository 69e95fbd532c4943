"""`bot`: the agent in Telegram, for as long as it is let run.

Knows how settings become rules, and where the token is: in TELEGRAM_BOT_TOKEN, never on the command
line and in no file. Refuses to know Telegram: that is `foldline.apps.bot`.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from importlib.util import find_spec
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldline.apps.chat.startup import ChatSeat
from foldline.apps.cli.build_agent import Wish, address_of, seated
from foldline.apps.cli.config import ProfileOption, SetOption, flags
from foldline.apps.cli.context import StoreOption, TenantOption, desk
from foldline.apps.cli.exit_codes import DONE
from foldline.apps.cli.output import remark
from foldline.draw.text import clean
from foldline.errors import BadInput
from foldline.settings.values import Settings
from foldline.stores.open import store_at

if TYPE_CHECKING:
    from foldline.apps.bot.rules import Rules
    from foldline.apps.bot.server import Telegram

_TOKEN = "TELEGRAM_BOT_TOKEN"  # noqa: S105 - the variable's name
_SECRET = "TELEGRAM_WEBHOOK_SECRET"  # noqa: S105 - the variable's name


def bot(  # noqa: PLR0913 - one for each option
    ctx: typer.Context,
    *,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Who answers in new chats.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="A server that speaks as OpenAI does."),
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools/--no-tools", help="Whether it may read, write and run.")
    ] = True,
    profile: ProfileOption = None,
    set_: SetOption = None,
    store_: StoreOption = None,
    tenant_: TenantOption = None,
) -> int:
    """Answer in Telegram: every chat is a session.

    The token is in TELEGRAM_BOT_TOKEN, who may talk in telegram.allowed: docs/how-to/telegram.md.
    """
    if find_spec("telegram") is None:
        raise BadInput(
            "the bot needs 'python-telegram-bot', which is not installed; "
            "pip install 'foldline[telegram]'"
        )
    token = os.environ.get(_TOKEN)
    if not token:
        raise BadInput(f"the environment has no {_TOKEN}; set it to what BotFather gave you")
    said = {"model": model, "model.base_url": base_url}
    wish = Wish(
        desk=desk(store=store_, tenant=tenant_, under=ctx.obj),
        flags={**{key: one for key, one in said.items() if one is not None}, **flags(set_)},
        profile=profile,
        tools=tools,
    )
    return asyncio.run(_served(wish, token))


async def _served(wish: Wish, token: str) -> int:
    """Answer until somebody ends it."""
    from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of  # noqa: PLC0415 - it takes half a second
    from foldline.apps.bot.server import Telegram  # noqa: PLC0415

    wish = await wish.settled()
    settings = wish.settings()
    if settings.model.name is None:
        raise BadInput('which model? write --model NAME, or `model = "NAME"` into foldline.toml')

    store = store_at(address_of(wish.desk))

    @asynccontextmanager
    async def seats(name: str) -> AsyncGenerator[ChatSeat]:
        # One store for all chats: on PostgreSQL each would have connections of its own.
        async with seated(wish, name, alone=False, store=store) as seat:
            for note in seat.notes:
                remark(f"{name}: {note}")
            yield seat

    rules, pace = _rules(settings), CallPace()
    if not rules.allowed and not rules.admins:
        remark("nobody may talk yet: write the number of your account into telegram.allowed")
    line = BotCalls(bot_of(token, base_url=settings.telegram.base_url, pace=pace), pace=pace)
    telegram = Telegram(
        line,
        seats=seats,
        store=store,
        tenant=wish.desk.tenant,
        rules=rules,
        tell=lambda text: remark(clean(text.replace(token, "TOKEN"))),
    )
    try:
        name = await telegram.begin()
        remark(f"@{name} answers; sessions are in {clean(wish.desk.where)}")
        await _until_ended(_working(telegram, settings))
    finally:
        await telegram.close()
        await store.close()
    return DONE


async def _working(telegram: "Telegram", settings: Settings) -> None:
    """Take updates in, by polling or by a webhook."""
    hook = settings.telegram.webhook
    if hook is None:
        await telegram.poll()
        return
    from foldline.apps.bot.webhook import hooked  # noqa: PLC0415 - few have one

    host, _, port = settings.telegram.listen.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"telegram.listen = {settings.telegram.listen!r}; write 127.0.0.1:8443")
    secret = os.environ.get(_SECRET) or token_urlsafe(32)
    async with hooked(telegram, url=hook, secret=secret, host=host, port=int(port)):
        remark(f"updates come to {host}:{port} for {hook}")
        await asyncio.Event().wait()


async def _until_ended(work: Coroutine[Any, Any, None]) -> None:
    """Work until a signal comes; what is under way goes on next time."""
    from foldline.apps.bot.server import ended  # noqa: PLC0415 - as above

    task, over = asyncio.create_task(work), asyncio.Event()
    task.add_done_callback(lambda _: over.set())
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, over.set)
    try:
        await over.wait()
        await ended([task])
        if not task.cancelled():
            task.result()
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)


def _rules(settings: Settings) -> "Rules":
    from foldline.apps.bot.rules import Rules  # noqa: PLC0415 - as above

    said = settings.telegram
    return Rules(
        allowed=frozenset(_numbers("telegram.allowed", said.allowed)),
        admins=_numbers("telegram.admins", said.admins),
        by=said.sessions,
        notices=said.notices,
    )


def _numbers(name: str, given: tuple[str, ...]) -> tuple[int, ...]:
    wrong = [one for one in given if not one.removeprefix("-").isdecimal()]
    if wrong:
        raise BadInput(
            f"{name} has {wrong[0]!r}; write numbers of accounts or groups, as the bot tells them "
            "to whoever is not allowed: names can change hands"
        )
    return tuple(map(int, given))

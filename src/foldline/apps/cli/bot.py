"""`foldline bot`: run the agent in Telegram until a signal ends it.

The token is in TELEGRAM_BOT_TOKEN, never on the command line or in a file. Everything about
Telegram itself is in `foldline.apps.bot`.
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

from foldline.apps.chat.chat_parts import ChatSeat
from foldline.apps.cli.build_agent import Wish, address_of, open_agent
from foldline.apps.cli.config import ProfileOption, SetOption, parse_flags
from foldline.apps.cli.context import StoreOption, TenantOption, make_desk
from foldline.apps.cli.exit_codes import DONE
from foldline.apps.cli.output import print_remark
from foldline.draw.wording import clean_line
from foldline.errors import BadInput
from foldline.session.stored_session import cancel_tasks
from foldline.settings.tree import Settings
from foldline.stores.open_store import store_at

if TYPE_CHECKING:
    from foldline.apps.bot.approval_cards import Rules
    from foldline.apps.bot.bot_server import Telegram

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
        desk=make_desk(store=store_, tenant=tenant_, under=ctx.obj),
        flags={**{key: one for key, one in said.items() if one is not None}, **parse_flags(set_)},
        profile=profile,
        tools=tools,
    )
    return asyncio.run(_run_bot(wish, token))


async def _run_bot(wish: Wish, token: str) -> int:
    from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of  # noqa: PLC0415 - it takes half a second
    from foldline.apps.bot.bot_server import Telegram  # noqa: PLC0415
    from foldline.session.retention import run_retention  # noqa: PLC0415

    wish = await wish.resolve_trust()
    settings = wish.load_settings()
    if settings.model.name is None:
        raise BadInput('which model? write --model NAME, or `model = "NAME"` into foldline.toml')

    store = store_at(address_of(wish.desk))

    @asynccontextmanager
    async def open_seat(name: str) -> AsyncGenerator[ChatSeat]:
        # One store for all chats: on PostgreSQL each store has connections of its own.
        async with open_agent(wish, name, alone=False, store=store) as seat:
            for note in seat.notes:
                print_remark(f"{name}: {note}")
            yield seat

    rules, pace = _build_rules(settings), CallPace()
    if not rules.allowed and not rules.admins:
        print_remark("nobody may talk yet: write the number of your account into telegram.allowed")
    line = BotCalls(bot_of(token, base_url=settings.telegram.base_url, pace=pace), pace=pace)
    telegram = Telegram(
        line,
        seats=open_seat,
        store=store,
        tenant=wish.desk.tenant,
        rules=rules,
        tell=lambda text: print_remark(clean_line(text.replace(token, "TOKEN"))),
    )
    try:
        name = await telegram.start_bot()
        print_remark(f"@{name} answers; sessions are in {clean_line(wish.desk.where)}")
        tenants = (wish.desk.tenant,)
        async with run_retention(store, lambda: tenants, settings.retention, notify=print_remark):
            await _until_ended(_receive_updates(telegram, settings))
    finally:
        await telegram.close()
        await store.close()
    return DONE


async def _receive_updates(telegram: "Telegram", settings: Settings) -> None:
    """Receive updates by polling, or by a webhook if one is set."""
    hook = settings.telegram.webhook
    if hook is None:
        await telegram.poll_updates()
        return
    from foldline.apps.bot.bot_server import serve_webhook  # noqa: PLC0415 - few have one

    host, _, port = settings.telegram.listen.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"telegram.listen = {settings.telegram.listen!r}; write 127.0.0.1:8443")
    secret = os.environ.get(_SECRET) or token_urlsafe(32)
    async with serve_webhook(telegram, url=hook, secret=secret, host=host, port=int(port)):
        print_remark(f"updates come to {host}:{port} for {hook}")
        await asyncio.Event().wait()


async def _until_ended(work: Coroutine[Any, Any, None]) -> None:
    """Work until a signal comes; unfinished turns go on at the next start."""
    task, over = asyncio.create_task(work), asyncio.Event()
    task.add_done_callback(lambda _: over.set())
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, over.set)
    try:
        await over.wait()
        await cancel_tasks(task)
        if not task.cancelled():
            task.result()
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)


def _build_rules(settings: Settings) -> "Rules":
    from foldline.apps.bot.approval_cards import Rules  # noqa: PLC0415 - as above

    said = settings.telegram
    return Rules(
        allowed=frozenset(_parse_account_ids("telegram.allowed", said.allowed)),
        admins=_parse_account_ids("telegram.admins", said.admins),
        by=said.sessions,
        notices=said.notices,
    )


def _parse_account_ids(name: str, given: tuple[str, ...]) -> tuple[int, ...]:
    wrong = [one for one in given if not one.removeprefix("-").isdecimal()]
    if wrong:
        raise BadInput(
            f"{name} has {wrong[0]!r}; write numbers of accounts or groups, as the bot tells them "
            "to whoever is not allowed: names can change hands"
        )
    return tuple(map(int, given))

"""Updates that Telegram brings: a page that takes them, and says so when they are in the log.

Knows the secret that Telegram sends along, and compares it in constant time. Refuses to know what
updates say. Whatever is not taken in is answered by an error: Telegram brings it again.
"""

import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from telegram import Update

from foldline.apps.bot.server import Telegram
from foldline.errors import BadInput

HEADER = "X-Telegram-Bot-Api-Secret-Token"
_LARGEST = 1024 * 1024  # bytes of an update


@asynccontextmanager
async def hooked(
    telegram: Telegram, *, url: str, secret: str, host: str, port: int
) -> AsyncGenerator[int]:
    """A server that takes updates at the path of `url`; the port it listens on."""
    try:
        from aiohttp import web  # noqa: PLC0415 - an extra; polling needs none
    except ModuleNotFoundError:
        raise BadInput(
            "webhooks need 'aiohttp', which is not installed: "
            "pip install 'foldline[telegram,gateway]'; without --webhook the bot polls"
        ) from None

    async def page(request: web.Request) -> web.Response:
        given = request.headers.get(HEADER, "")
        if not hmac.compare_digest(given.encode(), secret.encode()):
            return web.Response(status=403)
        try:
            update = Update.de_json(json.loads(await request.read()), telegram.line.bot)
        except (ValueError, KeyError, TypeError, AttributeError):  # no update at all
            return web.Response(status=400)
        await telegram.take([update])
        return web.Response()

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(urlsplit(url).path or "/", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        found: int = runner.addresses[0][1]
        await telegram.hook(url, secret)
        yield found
    finally:
        await runner.cleanup()

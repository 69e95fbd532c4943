"""Words shown while they are said: one message that grows by edits, no faster than the API takes.

Knows the moments of a turn. Refuses to know how words are written: `chat` does. What it shows is
only a foretaste: the answer itself is written from the log, by `Chat.deliver`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from telegram.error import TelegramError

from foldline.agent.events import Answered, Called, Calling, Moment, Speaking
from foldline.apps.bot.bot_api import ApiRefused, Unreachable
from foldline.draw.text import clean, fit
from foldline.errors import FoldlineError

_SHORT = 80


class Pen:
    """One turn's."""

    def __init__(
        self,
        show: Callable[[str], Awaitable[None]],
        deliver: Callable[[], Awaitable[None]],
        *,
        every: float,
        tools: bool,
    ) -> None:
        self._show, self._deliver = show, deliver
        self._every, self._tools = every, tools
        self._words, self._doing = "", ""
        self._answered = False
        self._moved, self._over = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def hear(self, moment: Moment) -> None:
        """A moment of the turn."""
        match moment:
            case Speaking(words):
                self._words += words
            case Answered():
                self._words, self._answered = "", True
            case Calling(call) if self._tools:
                self._doing = fit(f"⋯ {clean(call.name)} {clean(call.arguments)}", _SHORT)
            case Called():
                self._doing = ""
            case _:
                return
        self._moved.set()

    async def end(self) -> None:
        """Nothing more is said; what is being sent just now is waited for, to know its number."""
        self._over.set()
        self._moved.set()
        await self._task

    async def _run(self) -> None:
        while not self._over.is_set():
            await self._moved.wait()
            self._moved.clear()
            if self._over.is_set():
                return
            # Whatever fails here is no loss: the answer is written when the turn has ended.
            with suppress(ApiRefused, Unreachable, TelegramError, FoldlineError):
                if self._answered:
                    self._answered = False
                    await self._deliver()
                elif text := "\n".join(one for one in (self._words, self._doing) if one.strip()):
                    await self._show(text)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._over.wait()

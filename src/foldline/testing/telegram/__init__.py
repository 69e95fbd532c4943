"""Telegram's Bot API on a real port, as its documentation tells it, and people who write to a bot.

    async with BotApi() as api:
        ann = api.person(7, "Ann")
        ...                                     # a bot with base_url=api.url, token=api.token
        await ann.say("hello")
        await api.until(lambda: "hi" in api.screen(ann.id))

Knows what a bot can see of Telegram: updates that come again until they are confirmed, webhooks
with their secret, limits of length and rate, edits, buttons, files; and faults, where they are
wanted. `calls` is all that was asked; `screen` is what a person sees. Needs aiohttp.

    api       the server and its methods          messages  what it takes, refuses and shows
    people    who write, press and send files
"""

from foldline.testing.telegram.api import HEADER, BotApi, Fault
from foldline.testing.telegram.messages import Called, Shown
from foldline.testing.telegram.people import Person

__all__ = ["HEADER", "BotApi", "Called", "Fault", "Person", "Shown"]

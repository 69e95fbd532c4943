"""Telegram's Bot API on a real port, as its documentation tells it, and people who write to a bot.

    async with BotApi() as api:
        ann = api.person(7, "Ann")
        ...                                     # a bot with base_url=api.url, token=api.token
        await ann.say("hello")
        await api.until(lambda: "hi" in api.screen(ann.id))

Knows what a bot can see of Telegram: updates that come again until they are confirmed, webhooks
with their secret, limits of length and rate, edits, buttons, files; and faults, where they are
wanted. `calls` is all that was asked; `screen` is what a person sees. Needs aiohttp.

    api       The Bot API of one bot on a real port
    messages  Messages as Telegram takes and shows them
    people    People at the other side of the Bot API: they write, press buttons and send files
"""

from fake_telegram.api import HEADER, BotApi, Fault
from fake_telegram.messages import Called, Shown
from fake_telegram.people import Person

__all__ = ["HEADER", "BotApi", "Called", "Fault", "Person", "Shown"]

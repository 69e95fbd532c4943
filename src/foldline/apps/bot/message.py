"""A message from Telegram, as the parts that go into the log.

    words            as they were written
    photo            a picture, its caption before it
    text file        its words, under its name
    any other        named: what it is, how large, and that it was not read

Knows what people send. What they reply to or pass on is quoted as such: it is not their own word.
Refuses to know sessions.
"""

import base64
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from telegram import Document, Message
from telegram.error import TelegramError

from foldline.core.parts import Media, Part, Text, sound

Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]
"""A file's bytes, by its id."""
LARGEST = 10 * 1024 * 1024
"""Bytes of a picture that is taken in; the API gives none above 20 MiB."""
LONGEST = 512 * 1024
"""Bytes of a text file that is taken in."""
_QUOTED = 300  # letters of what somebody replies to
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = re.compile(
    r"\.(?:c|cfg|conf|cpp|css|csv|diff|go|h|html|ini|java|js|jsonl?|log|md|patch|py|rb|rs|rst|sh|sql"
    r"|svg|tex|toml|ts|tsv|txt|xml|ya?ml)$",
    re.IGNORECASE,
)


async def parts(message: Message, fetch: Fetch, *, ours: int) -> tuple[Part, ...]:
    """What a message says; `ours` is the bot's own number, whose words need no quoting."""
    said: list[Part] = [Text(sound(line)) for line in _before(message, ours)]
    words = message.text or message.caption or ""
    if words:
        said.append(Text(sound(words)))
    said += await _attached(message, fetch)
    return tuple(said) or (Text("[a message of a kind that is not read]"),)


def _before(message: Message, ours: int) -> list[str]:
    """What is said of a message that quotes another."""
    found: list[str] = []
    if message.forward_origin is not None:
        found.append("[passed on; not the sender's own words:]")
    to = message.reply_to_message
    if to is not None and to.forum_topic_created is None:
        quoted = (to.text or to.caption or "").strip()
        if quoted:
            short = quoted if len(quoted) <= _QUOTED else f"{quoted[:_QUOTED]}…"
            whose = to.from_user
            who = "you" if whose is not None and whose.id == ours else whose and whose.full_name
            lines = "\n".join(f"> {line}" for line in short.split("\n"))
            found.append(f"[in reply to {who or 'somebody'}:]\n{lines}")
    return found


async def _attached(message: Message, fetch: Fetch) -> list[Part]:
    if message.photo:
        fitting = [one for one in message.photo if (one.file_size or 0) <= LARGEST]
        largest = max(fitting or message.photo[:1], key=lambda one: one.width * one.height)
        return [await _picture(largest.file_id, "image/jpeg", "photo", fetch)]
    if message.document is not None:
        return [await _document(message.document, fetch)]
    return [Text(named) for named in _named(message)]


async def _picture(file: str, mime: str, name: str, fetch: Fetch) -> Part:
    try:
        body = await fetch(file)
    except TelegramError as fault:
        return Text(f"[{name}: it could not be loaded: {fault.message}]")
    if len(body) > LARGEST:
        return Text(f"[{name}: too large, {len(body):,} bytes]")
    return Media("image", mime=mime, base64=base64.b64encode(body).decode(), name=name)


async def _document(one: Document, fetch: Fetch) -> Part:
    name, mime = sound(one.file_name or "file"), one.mime_type or ""
    size = one.file_size or 0
    if mime in _PICTURES and size <= LARGEST:
        return await _picture(one.file_id, mime, name, fetch)
    textual = mime.startswith("text/") or _TEXTS.search(name) is not None
    about = f"{name}, {mime or 'of unknown kind'}, {size:,} bytes"
    if not textual:
        return Text(f"[file {about}: not read]")
    if size > LONGEST:
        return Text(f"[file {about}: too large to be read; the most is {LONGEST:,}]")
    try:
        body = await fetch(one.file_id)
    except TelegramError as fault:
        return Text(f"[file {about}: it could not be loaded: {fault.message}]")
    if b"\0" in body:
        return Text(f"[file {about}: not read, it is no text]")
    return Text(f"[file {name}]\n{sound(body.decode('utf-8', 'replace'))}")


def _named(message: Message) -> list[str]:
    """What is not read, by its name."""
    if message.sticker is not None:
        return [f"[sticker {message.sticker.emoji or ''}]"]
    if message.location is not None:
        return [f"[location {message.location.latitude:.5f}, {message.location.longitude:.5f}]"]
    if message.contact is not None:
        return [f"[contact {sound(message.contact.first_name)}]"]
    kinds = ("voice", "audio", "video", "video_note", "animation", "poll", "dice")
    return [f"[{kind.replace('_', ' ')}: not read]" for kind in kinds if getattr(message, kind)]

"""Telegram messages into the log, and answers out of it.

    track = await Track.load(store, name)
    await track.read_new_events(live)
    track.pending                   # whether a message is unanswered
    track.undelivered               # answers that no message shows yet

The numbers of messages that will show an answer are stored before the answer is written into them.
Editing a message twice to the same words is harmless, so no answer is shown twice, even after a
kill. `DraftWriter` shows a draft while the model speaks; the answer itself is written from the log.

A command is taken off the list before it begins: a process that is killed in the middle of one does
not repeat it, because an undo made twice would undo two edits.
"""

import asyncio
import base64
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from telegram import Document, Message
from telegram.error import TelegramError

from foldline.agent.events import Answered, Called, Calling, Moment, Speaking
from foldline.apps.bot.bot_api import ApiRefused, Unreachable
from foldline.core.log import Asked, Event, ModelSaid, UserSaid
from foldline.core.parts import Media, Part, Text, calls_of, replace_surrogates, spoken_text_of
from foldline.core.spine import Range
from foldline.draw.wording import clean_line, truncate_to_width
from foldline.errors import FoldlineError
from foldline.session.log_handle import Live
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Downloads a file by its id."""
LARGEST = 10 * 1024 * 1024
"""Bytes of the largest picture that is read; the API serves none above 20 MiB."""
LONGEST = 512 * 1024
"""Bytes of the largest text file that is read."""
AUTHOR = "foldline"
"""The author of notices that end a turn without an answer."""
SPACE = "telegram"
_KEY = "out"
_PAGE = 200  # events that are read at a time
_KNOWN = 400  # messages whose places are kept, for pins by reply
_SHORT = 80  # columns of a tool call in a draft
_QUOTED = 300  # letters of the message that is replied to
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = re.compile(
    r"\.(?:c|cfg|conf|cpp|css|csv|diff|go|h|html|ini|java|js|jsonl?|log|md|patch|py|rb|rs|rst|sh|sql"
    r"|svg|tex|toml|ts|tsv|txt|xml|ya?ml)$",
    re.IGNORECASE,
)


async def build_message_parts(message: Message, fetch: Fetch, *, ours: int) -> tuple[Part, ...]:
    """Convert a message to parts for the log; `ours` is the bot's own user id.

    Pictures and text files are read; any other attachment is only named. What the message replies
    to or forwards is quoted as such, because it is not the sender's own word.
    """
    lines = [*_render_quotes(message, ours), message.text or message.caption or ""]
    parts: list[Part] = [Text(replace_surrogates(line)) for line in lines if line]
    parts += await _read_attachments(message, fetch)
    return tuple(parts) or (Text("[a message of a kind that is not read]"),)


def _render_quotes(message: Message, ours: int) -> list[str]:
    quotes: list[str] = []
    if message.forward_origin is not None:
        quotes.append("[passed on; not the sender's own words:]")
    to = message.reply_to_message
    if to is not None and to.forum_topic_created is None:
        quoted = (to.text or to.caption or "").strip()
        if quoted:
            short = quoted if len(quoted) <= _QUOTED else f"{quoted[:_QUOTED]}…"
            whose = to.from_user
            who = "you" if whose is not None and whose.id == ours else whose and whose.full_name
            lines = "\n".join(f"> {line}" for line in short.split("\n"))
            quotes.append(f"[in reply to {who or 'somebody'}:]\n{lines}")
    return quotes


async def _read_attachments(message: Message, fetch: Fetch) -> list[Part]:
    if message.photo:
        fitting = [size for size in message.photo if (size.file_size or 0) <= LARGEST]
        largest = max(fitting or message.photo[:1], key=lambda size: size.width * size.height)
        return [await _read_picture(largest.file_id, "image/jpeg", "photo", fetch)]
    if message.document is not None:
        return [await _read_document(message.document, fetch)]
    return [Text(line) for line in _describe_unread(message)]


async def _read_picture(file: str, mime: str, name: str, fetch: Fetch) -> Part:
    try:
        body = await fetch(file)
    except TelegramError as fault:
        return Text(f"[{name}: it could not be loaded: {fault.message}]")
    if len(body) > LARGEST:
        return Text(f"[{name}: too large, {len(body):,} bytes]")
    return Media("image", mime=mime, base64=base64.b64encode(body).decode(), name=name)


async def _read_document(document: Document, fetch: Fetch) -> Part:
    name, mime = replace_surrogates(document.file_name or "file"), document.mime_type or ""
    size = document.file_size or 0
    if mime in _PICTURES and size <= LARGEST:
        return await _read_picture(document.file_id, mime, name, fetch)
    textual = mime.startswith("text/") or _TEXTS.search(name) is not None
    about = f"{name}, {mime or 'of unknown kind'}, {size:,} bytes"
    if not textual:
        return Text(f"[file {about}: not read]")
    if size > LONGEST:
        return Text(f"[file {about}: too large to be read; the most is {LONGEST:,}]")
    try:
        body = await fetch(document.file_id)
    except TelegramError as fault:
        return Text(f"[file {about}: it could not be loaded: {fault.message}]")
    if b"\0" in body:
        return Text(f"[file {about}: not read, it is no text]")
    return Text(f"[file {name}]\n{replace_surrogates(body.decode('utf-8', 'replace'))}")


def _describe_unread(message: Message) -> list[str]:
    if message.sticker is not None:
        return [f"[sticker {message.sticker.emoji or ''}]"]
    if message.location is not None:
        return [f"[location {message.location.latitude:.5f}, {message.location.longitude:.5f}]"]
    if message.contact is not None:
        return [f"[contact {replace_surrogates(message.contact.first_name)}]"]
    kinds = ("voice", "audio", "video", "video_note", "animation", "poll", "dice")
    return [f"[{kind.replace('_', ' ')}: not read]" for kind in kinds if getattr(message, kind)]


class DraftWriter:
    """Shows a turn's words while the model speaks, in messages that grow by edits."""

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
        self._task = asyncio.create_task(self._run_writer())

    def handle_moment(self, moment: Moment) -> None:
        """Take in a moment of the turn."""
        match moment:
            case Speaking(words):
                self._words += words
            case Answered():
                self._words, self._answered = "", True
            case Calling(call) if self._tools:
                self._doing = truncate_to_width(
                    f"⋯ {clean_line(call.name)} {clean_line(call.arguments)}", _SHORT
                )
            case Called():
                self._doing = ""
            case _:
                return
        self._moved.set()

    async def stop_writing(self) -> None:
        """Stop, after what is being sent has arrived and its number is known."""
        self._over.set()
        self._moved.set()
        await self._task

    async def _run_writer(self) -> None:
        while not self._over.is_set():
            await self._moved.wait()
            self._moved.clear()
            if self._over.is_set():
                return
            # A failure here loses nothing: the answer is written when the turn has ended.
            with suppress(ApiRefused, Unreachable, TelegramError, FoldlineError):
                if self._answered:
                    self._answered = False
                    await self._deliver()
                elif text := "\n".join(filter(str.strip, (self._words, self._doing))):
                    await self._show(text)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._over.wait()


class _Kept(msgspec.Struct):
    """A track as the store has it."""

    upto: int = -1
    """All up to here was read, and every answer in it is delivered."""
    said: int = -1
    """The newest message that wants an answer."""
    covered: int = -1
    """The newest place that an answer has seen."""
    shown: int = -1
    """The newest place that a request has shown."""
    draft: list[int] = []
    """Messages that were sent for the next answer."""
    known: list[tuple[int, int]] = []
    """Messages in the chat, and where each is in the log."""


class Track:
    """What of a session's log is answered and delivered; kept in the store."""

    def __init__(self, store: Store, name: Name, kept: _Kept) -> None:
        self._store, self._name = store, name
        self._upto, self._at = kept.upto, kept.upto
        self._said, self._covered, self._shown = kept.said, kept.covered, kept.shown
        self.draft: list[int] = kept.draft
        """The messages that the next answer will be written into."""
        self.undelivered: deque[tuple[int, ModelSaid]] = deque()
        self._known: OrderedDict[int, int] = OrderedDict(kept.known)
        self._written = kept.upto

    @classmethod
    async def load(cls, store: Store, name: Name) -> "Track":
        """Load a session's track, or begin one."""
        return cls(store, name, await _load_state(store, name))

    @property
    def pending(self) -> bool:
        """Whether there is a message that no answer has seen."""
        return self._said > self._covered

    @property
    def still(self) -> bool:
        """Whether there is nothing to answer and nothing to deliver."""
        return not self.pending and not self.undelivered

    def record_place(self, message: int, place: int) -> None:
        """Remember which place of the log a message in the chat has."""
        self._known[message] = place
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def find_place(self, message: int) -> int | None:
        """Return a message's place in the log, if it is known."""
        return self._known.get(message)

    async def read_new_events(self, live: Live) -> None:
        """Read what is new in the log."""
        head = live.view.head
        while self._at < head:
            upto = min(self._at + _PAGE, head)
            for seq, event in await live.read_events(Range(self._at + 1, upto)):
                self.apply_event(seq, event)
            self._at = upto

    def apply_event(self, seq: int, event: Event) -> None:
        """Take one event into account."""
        match event:
            case UserSaid(speaker="notice"):
                if event.author == AUTHOR:  # the turn ended without an answer
                    self._covered = max(self._covered, self._shown)
            case Asked(at=at):
                self._shown = max(self._shown, at)
            case UserSaid():
                self._said = max(self._said, seq)
            case ModelSaid():
                if not calls_of(event.parts):
                    saw = seq if event.saw is None else event.saw
                    self._covered = max(self._covered, saw)
                if spoken_text_of(event.parts).strip():
                    self.undelivered.append((seq, event))
            case _:
                pass

    async def record_draft(self, message: int) -> None:
        """Store that a message was sent for the next answer."""
        self.draft.append(message)
        await self._save_state()

    async def record_delivery(self) -> None:
        """Store that the oldest answer was written into its messages."""
        seq, _ = self.undelivered.popleft()
        self._upto = seq
        for message in self.draft:
            self.record_place(message, seq)
        self.draft = []
        await self.save_progress()

    async def clear_draft(self) -> None:
        """Forget the draft: its messages were used for something else."""
        self.draft = []
        await self._save_state()

    async def save_progress(self) -> None:
        """Store up to where all is done, if that has changed."""
        self._upto = self._upto if self.undelivered else max(self._at, self._upto)
        if self._upto != self._written:
            await self._save_state()

    async def _save_state(self) -> None:
        kept = _Kept(
            self._upto,
            self._said,
            self._covered,
            self._shown,
            self.draft,
            [*self._known.items()],
        )
        await self._store.put(self._name, SPACE, _KEY, msgspec.json.encode(kept))
        self._written = self._upto


async def _load_state(store: Store, name: Name) -> _Kept:
    entry = await store.get(name, SPACE, _KEY)
    return _Kept() if entry is None else msgspec.json.decode(entry.value, type=_Kept)


async def done_upto(store: Store, name: Name) -> int:
    """Return up to where all of a session is answered and delivered."""
    return (await _load_state(store, name)).upto


Update: TypeAlias = dict[str, Any]
_INBOX = "inbox"
_SEEN = 200  # numbers that are remembered


class _InboxEntry(msgspec.Struct):
    seen: list[int] = []
    waiting: list[Update] = []


class Inbox:
    """The waiting commands of one session."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store, self._name = store, name

    async def put(self, number: int, update: Update) -> bool:
        """Store an update; False if it came before."""

        def add_update(kept: _InboxEntry) -> bool:
            if number in kept.seen:
                return False
            kept.seen = [*kept.seen, number][-_SEEN:]
            kept.waiting.append(update)
            return True

        return await self._update_entry(add_update)

    async def take(self) -> Update | None:
        """Remove and return the oldest update."""
        taken: list[Update] = []

        def remove_oldest(kept: _InboxEntry) -> bool:
            taken[:] = kept.waiting[:1]
            kept.waiting = kept.waiting[1:]
            return bool(taken)

        return taken[0] if await self._update_entry(remove_oldest) else None

    async def _update_entry(self, change: Callable[[_InboxEntry], bool]) -> bool:
        def write(value: bytes | None) -> bytes | None:
            kept = msgspec.json.decode(value or b"{}", type=_InboxEntry)
            return msgspec.json.encode(kept) if change(kept) else value

        return await change_value(self._store, self._name, SPACE, _INBOX, write)

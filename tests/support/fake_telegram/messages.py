"""Messages as Telegram takes and shows them: lengths, buttons, entities, and why one is refused.

Knows what the documentation says of one message. Refuses to know chats and who is asking.
"""

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
LONGEST = 4_096
CAPTION = 1_024
_BUTTON = 64
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


class Refused(Exception):  # noqa: N818 - named for what happened
    """What the API answers in place of a result."""

    def __init__(self, status: int, why: str, **parameters: Any) -> None:
        super().__init__(why)
        self.status, self.why, self.parameters = status, why, parameters


def markup(given: Json) -> Json:
    """The buttons that a message is given."""
    found: Json = json.loads(given["reply_markup"]) if given.get("reply_markup") else {}
    for row in found.get("inline_keyboard", []):
        for one in row:
            if not 0 < len(one["callback_data"].encode()) <= _BUTTON:
                raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"reply_markup": found} if found else {}


def words(given: Json, key: str, most: int) -> str:
    """The words that people see, or why they cannot be shown."""
    text = given.get(key, "")
    if given.get("parse_mode") == "HTML":
        text = Entities.read(text)
    if len(text.encode("utf-16-le")) // 2 > most:
        raise Refused(400, f"Bad Request: message {'' if key == 'text' else key + ' '}is too long")
    return text


class Entities(HTMLParser):
    """HTML as Telegram reads it: few tags, each of them closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []

    @classmethod
    def read(cls, text: str) -> str:
        """The words without their tags."""
        one = cls()
        one.feed(text)
        one.close()
        if one.open:
            told = f'can\'t find end tag corresponding to start tag "{one.open[-1]}"'
            raise Refused(400, f"Bad Request: can't parse entities: {told}")
        return "".join(one.words)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the parser's
        """One more is open."""
        if tag not in _TAGS:
            told = f'unsupported start tag "{tag}"'
            raise Refused(400, f"Bad Request: can't parse entities: {told}")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The newest is closed."""
        if not self.open or self.open.pop() != tag:
            raise Refused(400, f'Bad Request: can\'t parse entities: unmatched end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        """Words."""
        self.words.append(data)

"""Which session a message belongs to: a stated policy, and its way back.

    a private chat                       tg-<chat>
    a group, all who are in it           tg-<chat>
    a topic of a forum                   tg-<chat>-<topic>
    by="user", in groups and topics      tg-<chat>-u<user>, tg-<chat>-<topic>-u<user>

Knows names. The name is all that is needed to answer: after a restart nothing else is looked up.
"""

import re
from typing import Literal, NamedTuple, TypeAlias

By: TypeAlias = Literal["chat", "user"]
PREFIX = "tg-"
_NAME = re.compile(r"tg-(-?\d{1,19})(?:-(\d{1,19}))?(?:-u(\d{1,19}))?")


class ChatPlace(NamedTuple):
    """Where a session is talked with."""

    chat: int
    topic: int | None = None
    user: int | None = None
    """The one person whose session it is, in a chat of several."""

    @property
    def name(self) -> str:
        """The session's name."""
        topic = "" if self.topic is None else f"-{self.topic}"
        return f"{PREFIX}{self.chat}{topic}{'' if self.user is None else f'-u{self.user}'}"

    @property
    def private(self) -> bool:
        """Whether it is one person's chat with the bot: groups have numbers below zero."""
        return self.chat > 0


def placed(chat: int, *, topic: int | None, user: int, by: By) -> ChatPlace:
    """The place of a message, by the policy."""
    return ChatPlace(chat, topic, user if by == "user" and chat < 0 else None)


def named(name: str) -> ChatPlace | None:
    """The place that a session's name means, if it is one of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    chat, topic, user = found.groups()
    return ChatPlace(int(chat), topic and int(topic), user and int(user))  # type: ignore[arg-type]


def signed(says: str, place: ChatPlace) -> str:
    """What a button says, and whose session it is about where each has one."""
    return says if place.user is None else f"{says}@{place.user}"


def whose(data: str) -> tuple[str, int | None]:
    """What a button said, and whose session it is about."""
    says, _, user = data.partition("@")
    return says, int(user) if user.isdecimal() else None

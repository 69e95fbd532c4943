"""Which conversation the calls of a program belong to, as the program itself says it.

    with foldline.conversation("order-1042"):
        client.chat.completions.create(…)

Knows names and the calls that a thread or task has made. Refuses to know logs: `wrap` finds those.
"""

from asyncio import current_task
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from foldline.errors import BadInput
from foldline.proxy.identity import Caller

if TYPE_CHECKING:
    from foldline.proxy.conversations import Conversations
    from foldline.session.log_handle import Live

LONGEST = 200
"""Characters that a name may have."""
_named: ContextVar[str] = ContextVar("foldline_conversation", default="")
_asked: "ContextVar[WeakKeyDictionary[Conversations, LastAsked] | None]" = ContextVar(
    "foldline_asked", default=None
)


class LastAsked(NamedTuple):
    """What a thread or task asked last."""

    live: "Live"
    session: str
    """The name that the call gave its conversation, or ""."""


@contextmanager
def conversation(name: str) -> Generator[str]:
    """Name the conversation that calls through wrapped clients belong to, inside this block.

    Each thread and each asyncio task has its own. Blocks may be nested; the innermost counts.
    """
    token = _named.set(check_name(name))
    try:
        yield name
    finally:
        _named.reset(token)


def check_name(name: str) -> str:
    """The name itself, if a conversation can have it."""
    readable = isinstance(name, str) and 0 < len(name) <= LONGEST and name.isprintable()  # pyright: ignore[reportUnnecessaryIsInstance]
    if not readable:
        raise BadInput(
            f"{str(name)[:40]!r} cannot name a conversation; give a text of at most {LONGEST} "
            "printable characters"
        )
    return name


def current_name() -> str:
    """The name that this thread or task has given, or ""."""
    return _named.get()


def remember_asked(conversations: "Conversations", live: "Live", session: str) -> None:
    """Note which log this thread or task asked last, and under which name."""
    # A new mapping each time: tasks share the one they were started with.
    known = WeakKeyDictionary(_asked.get() or {})
    known[conversations] = LastAsked(live, session)
    _asked.set(known)


def last_asked(conversations: "Conversations", session: str) -> "Live | None":
    """The log that this thread or task asked last, if that was under this name."""
    found = (_asked.get() or {}).get(conversations)
    return found.live if found and found.session == session else None


def find_caller(conversations: "Conversations", session: str) -> Caller:
    """Who asks now: the thread, or the task that runs in it, and the log that it asked last."""
    try:
        task = id(current_task())
    except RuntimeError:  # no loop runs in this thread
        task = 0
    last = last_asked(conversations, session)
    return Caller((get_ident(), task), last.name.session if last else "")

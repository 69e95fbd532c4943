"""Names and ids by which a request's conversation is known.

    with foldline.conversation("order-1042"):
        client.chat.completions.create(…)

A program can name a conversation, and some clients send an id with every request. Histories are
compared in `conversations`.
"""

import re
from asyncio import current_task
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from foldline.errors import BadInput

if TYPE_CHECKING:
    from foldline.proxy.conversations import Conversations
    from foldline.session.log_handle import Live

CLIENTS: tuple[tuple[str, str], ...] = (
    ("claude-cli/", "x-claude-code-session-id"),
    ("opencode/", "x-session-affinity"),
    ("opencode/", "x-session-id"),
    ("codex", "thread-id"),
    ("codex", "session-id"),
)
"""How a client's user agent begins, and the header in which it names a conversation. The same
header from any other client is ignored. A sub-agent of Codex has its parent's session, and a thread
of its own."""
LONGEST = 200
"""The most characters in the name of a conversation."""
TELLING = 120
"""Characters of an answer by which a summary is recognised."""
_TAG = re.compile(r"</?\w{1,40}>")


class Scope(NamedTuple):
    """Whose conversations: nothing of one scope is ever found from another."""

    tenant: str = "local"
    key: str = ""
    """A digest of the client's key."""
    session: str = ""
    """The session that the client names, if any."""
    owner: str = ""
    """Who owns new sessions; "" if owners are not distinguished."""
    family: str = ""
    """The id that the client sends with every request of a conversation, if any."""
    holder: str = ""
    """Who may open what was folded for this client, in whichever of its conversations: its owner,
    or a digest of its key; "" if only the same conversation may."""

    @property
    def of_holder(self) -> "Scope":
        """The scope in which a client's folds are known to all of its conversations."""
        return Scope(self.tenant, self.holder) if self.holder else self

    @property
    def label(self) -> str:
        """The key under which conversations of this scope are indexed."""
        return _format_label(self)


class Caller(NamedTuple):
    """The thread or task that makes a call."""

    id: tuple[int, int]
    session: str = ""
    """The session that it used last, if any: it wins among equal histories."""


def _format_label(scope: Scope) -> str:
    return "\0".join((scope.owner or scope.key, scope.session, scope.family))


def is_name(text: str) -> bool:
    """Whether a text can be the name of a conversation."""
    return 0 < len(text) <= LONGEST and text.isprintable()


def family_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id by which a known client names its conversation; "" for any other client."""
    texts = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    agent = texts.get("user-agent", "").lower()
    for begins, header in CLIENTS:
        value = texts.get(header, "")
        if agent.startswith(begins) and is_name(value):
            return f"{begins}{value}"
    return ""


_named: ContextVar[str] = ContextVar("foldline_conversation", default="")
_asked: "ContextVar[WeakKeyDictionary[Conversations, LastAsked] | None]" = ContextVar(
    "foldline_asked", default=None
)


class LastAsked(NamedTuple):
    """The log that a thread or task used last."""

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
    """Return a conversation's name; raises `BadInput` if it cannot be one."""
    if not isinstance(name, str) or not is_name(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(
            f"{str(name)[:40]!r} cannot name a conversation; give a text of at most {LONGEST} "
            "printable characters"
        )
    return name


def current_name() -> str:
    """Return the name that this thread or task has set, or ""."""
    return _named.get()


def remember_asked(conversations: "Conversations", live: "Live", session: str) -> None:
    """Remember which log this thread or task used last, and under which name."""
    # A new mapping each time: tasks share the one they were started with.
    known = WeakKeyDictionary(_asked.get() or {})
    known[conversations] = LastAsked(live, session)
    _asked.set(known)


def last_asked(conversations: "Conversations", session: str) -> "Live | None":
    """Return the log that this thread or task used last, if it was under this name."""
    found = (_asked.get() or {}).get(conversations)
    return found.live if found and found.session == session else None


def find_caller(conversations: "Conversations", session: str) -> Caller:
    """Return the current thread and task, and the session that they used last."""
    try:
        task = id(current_task())
    except RuntimeError:  # no loop runs in this thread
        task = 0
    last = last_asked(conversations, session)
    return Caller((get_ident(), task), last.name.session if last else "")


def make_client_key(scope: Scope) -> str:
    """Name whoever shares what was recently said: an owner, else a key."""
    return f"{scope.tenant}\0{scope.owner or scope.key}"


def find_summary(words: Sequence[str], answers: Iterable[str]) -> int | None:
    """Find the first message that repeats an answer, or a quarter of it."""
    for answer in answers:
        # An agent may ask for thoughts and a summary, in tags, and repeat only the summary.
        said = _TAG.sub("\n", answer).splitlines()
        lines = [line.strip() for line in said if line.strip()]
        least = max(TELLING, sum(map(len, lines)) // 4)
        for at, text in enumerate(words):
            if sum(len(line) for line in lines if len(line) > 1 and line in text) >= least:
                return at
    return None

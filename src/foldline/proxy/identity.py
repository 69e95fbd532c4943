"""Whose conversation a request belongs to: the name it gives, the id its client always sends.

Knows the headers of known clients. Refuses to know histories: `conversations` compares those.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

CLIENTS: tuple[tuple[str, str], ...] = (
    ("claude-cli/", "x-claude-code-session-id"),
    ("opencode/", "x-session-affinity"),
    ("opencode/", "x-session-id"),
    ("codex", "session-id"),
)
"""How the user agent of a client begins, and the header in which it names a conversation. The same
header from anybody else is not counted."""
_LONGEST = 200


class Scope(NamedTuple):
    """Whose conversations: nothing of one scope is ever found from another."""

    tenant: str = "local"
    key: str = ""
    """A digest of the client's key."""
    session: str = ""
    """The session that the client names, if it does."""
    owner: str = ""
    """Whose new sessions are; "" where owners are not told apart."""
    family: str = ""
    """The id that this kind of client sends with every request of a conversation, if it does."""

    @property
    def label(self) -> str:
        """What conversations of this scope are found by."""
        return _label(self)


class Caller(NamedTuple):
    """Who asks within one program, where that is known: a thread or a task."""

    id: tuple[int, int]
    session: str = ""
    """The session that it asked last, if any: where histories are alike, that one is its own."""


def _label(scope: Scope) -> str:
    return "\0".join((scope.owner or scope.key, scope.session, scope.family))


def family_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id by which a known client names its conversation; "" for any other client."""
    found: Mapping[str, str] = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers
    }
    agent = found.get("user-agent", "").lower()
    for begins, header in CLIENTS:
        value = found.get(header, "")
        if agent.startswith(begins) and 0 < len(value) <= _LONGEST and value.isprintable():
            return f"{begins}{value}"
    return ""

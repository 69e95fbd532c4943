"""Who looks at the pages: signing in, the cookie, and what a change has to show.

A browser signs in once, by a ticket that is printed where the pages are started, or by a key of
the gateway. It then has a cookie with a random word, which is kept in this process together with
what the browser showed; the key is checked again at each request, so that a removed one is refused.

A change must come from a form of ours: from this origin, with the cookie, and with the word that
the form holds.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from foldline.apps.gateway.api_keys import Client, Secret

_MOST = 4_096  # browsers that are signed in at a time
_IDLE = 12 * 3_600.0  # seconds after which one that shows nothing has to sign in again
CheckSecret = Callable[[str], Client | None]
"""Returns the client that a key or a token belongs to; None if it is not valid, or no longer."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks for a page, and what they may do."""

    tenant: str
    sees: str | None
    """The owner whose sessions are shown; None for all of the tenant's."""
    name: str
    may_edit: bool
    form_word: str
    """What each form of this browser holds."""

    @property
    def is_operator(self) -> bool:
        """Whether all of the tenant's sessions are shown."""
        return self.sees is None


@dataclass(slots=True)
class _SignedIn:
    secret: Secret
    form_word: str
    seen: float


class SignIns:
    """The browsers that are signed in."""

    def __init__(self, check: CheckSecret, *, cookie: str, may_edit: bool) -> None:
        self._check, self.cookie, self._may_edit = check, cookie, may_edit
        self._kept: OrderedDict[str, _SignedIn] = OrderedDict()
        self._tickets: dict[str, Secret] = {}

    def issue_ticket(self, secret: Secret) -> str:
        """Make a word that signs one browser in, once, as whoever has this key or token."""
        ticket = secrets.token_urlsafe(32)
        self._tickets[ticket] = secret
        return ticket

    def redeem_ticket(self, ticket: str) -> str | None:
        """Sign a browser in by a ticket; return its cookie's value, or None."""
        found = None
        for known in self._tickets:
            if hmac.compare_digest(known.encode(), ticket.encode("utf-8", "surrogateescape")):
                found = known
        return None if found is None else self.sign_in(self._tickets.pop(found).reveal())

    def sign_in(self, given: str) -> str | None:
        """Sign a browser in by a key or a token; return its cookie's value, or None."""
        if self._check(given) is None:
            return None
        word = secrets.token_urlsafe(32)
        self._kept[word] = _SignedIn(Secret(given), secrets.token_urlsafe(32), monotonic())
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return word

    def sign_out(self, scope: Any) -> None:
        """Forget a browser."""
        for word in self._list_words(scope):
            self._kept.pop(word, None)

    def find_visitor(self, scope: Any) -> Visitor | None:
        """Return who asks, by the cookie; None if nobody is signed in."""
        for word in self._list_words(scope):
            kept = self._kept.get(word)
            if kept is None:
                continue
            client = self._check(kept.secret.reveal())
            if client is None or monotonic() - kept.seen > _IDLE:
                del self._kept[word]
                continue
            kept.seen = monotonic()
            self._kept.move_to_end(word)
            sees = None if client.admin or not client.owner else client.owner
            return Visitor(client.tenant, sees, client.name, self._may_edit, kept.form_word)
        return None

    def _list_words(self, scope: Any) -> list[str]:
        found: list[str] = []
        for name, value in scope["headers"]:
            if name == b"cookie":
                try:
                    cookies = SimpleCookie(value.decode("latin-1"))
                except CookieError:
                    continue
                found += [one.value for key, one in cookies.items() if key == self.cookie]
        return found

    def format_cookie(self, word: str, *, path: str, secure: bool) -> str:
        """Format the header that sets the cookie; an empty word removes it."""
        age = "" if word else "; Max-Age=0"
        safe = "; Secure" if secure else ""
        return f"{self.cookie}={word}; Path={path}; HttpOnly; SameSite=Strict{age}{safe}"


def is_from_here(scope: Any) -> bool:
    """Whether a request comes from a page of this origin, as browsers say of every change."""
    headers: list[tuple[bytes, str]] = [
        (name, value.decode("latin-1")) for name, value in scope["headers"]
    ]
    hosts = [value for name, value in headers if name == b"host"]
    origins = [value for name, value in headers if name == b"origin"]
    sites = [value for name, value in headers if name == b"sec-fetch-site"]
    if len(hosts) != 1 or len(origins) != 1 or any(site != "same-origin" for site in sites):
        return False
    try:
        origin = urlsplit(origins[0])
    except ValueError:
        return False
    plain = not (origin.path or origin.query or origin.fragment)
    return (
        plain
        and origin.scheme in ("http", "https")
        and hmac.compare_digest(origin.netloc.lower().encode(), hosts[0].lower().encode())
    )


def holds_form_word(visitor: Visitor, given: str) -> bool:
    """Whether a form holds the word of this browser."""
    return hmac.compare_digest(visitor.form_word.encode(), given.encode("utf-8", "surrogateescape"))

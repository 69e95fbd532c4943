"""Who looks at the pages: signing in, the cookie, and what a change has to show.

A browser signs in once, by a ticket that is printed where the pages are started, or by a key of
the gateway. It then has a cookie with a random word. Digests of the word and of the key are kept
where all processes of a gateway find them; the key is checked again at each request, so that a
removed one is refused. No key, word or ticket can be read from what is kept.

A ticket is signed with the token of the start, so each process of a gateway knows it; that it was
used is kept, too.

A change must come from a form of ours: from this origin, with the cookie, and with the word that
the form holds.
"""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from time import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from foldline.apps.gateway.api_keys import Client, Secret, digest_of
from foldline.stores.base import Entry, Name
from foldline.stores.side_values import SideTable, change_value

_BROWSERS = 64  # that are signed in with one key at a time
_TICKETS = 1_000  # used ones that are remembered
_IDLE = 12 * 3_600.0  # seconds after which a browser that shows nothing has to sign in again
_NOTED = 600.0  # seconds between two notes that a browser was seen
_TICKET = 7 * 86_400.0  # seconds that a ticket is good for
_COOKIES = 4  # of one request that are looked at
_SIGN_INS, _USED = "sign-ins", "tickets"
_COOKIE = re.compile("[0-9a-f]{32}[.][A-Za-z0-9_-]{20,80}")

CheckDigest = Callable[[str], Awaitable[Client | None]]
"""Returns the client whose key has this digest; None if it is not valid, or no longer."""


class MemorySide:
    """In this process alone: nothing is written to a store that is only looked at."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Name, str, str], Entry] = {}

    async def get(self, name: Name, space: str, key: str) -> Entry | None:
        """Return a value."""
        return self._kept.get((name, space, key))

    async def put(  # noqa: PLR0913 - as a store's
        self,
        name: Name,
        space: str,
        key: str,
        value: bytes | None,
        *,
        version: int | None = None,
        seconds: float | None = None,  # noqa: ARG002 - a process ends
    ) -> bool:
        """Write a value if that version is the current one."""
        place, known = (name, space, key), self._kept.get((name, space, key))
        if version not in (None, known.version if known else 0):
            return False
        self._kept[place] = Entry(value or b"", (known.version if known else 0) + 1)
        return True


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks for a page, and what they may do."""

    tenant: str
    sees: str | None
    """The owner whose sessions are shown; None for all of the tenant's."""
    owner: str
    """The owner of the key: what is shared with it is shown, too."""
    words: bool
    """Whether what was said is shown; else figures alone, and what is shared."""
    name: str
    may_edit: bool
    form_word: str
    """What each form of this browser holds."""
    reaches_all: bool = False
    """Whether figures of all tenants are shown: to operators."""

    @property
    def sees_all(self) -> bool:
        """Whether all of the tenant's sessions are shown."""
        return self.sees is None

    def may_change(self, owner: str) -> bool:
        """Whether an owner's session may be changed."""
        return self.may_edit and self.words and (self.sees is None or self.sees == owner)


class _Browsers(msgspec.Struct):
    """The browsers that are signed in with one key, or tickets that were used."""

    digest: str = ""
    """Of the key."""
    until: dict[str, float] = {}
    """By the digest of each cookie's word, or of each ticket: when it is forgotten."""
    tenants: dict[str, str] = {}
    """By the digest of a cookie's word: the tenant that an operator chose."""


class SignIns:
    """The browsers that are signed in."""

    def __init__(  # noqa: PLR0913 - where they are kept, and by whom they are checked
        self,
        check: CheckDigest,
        *,
        cookie: str,
        may_edit: bool,
        token: Secret | None = None,
        side: SideTable | None = None,
        tenant: str = "local",
    ) -> None:
        self._check, self.cookie, self._may_edit = check, cookie, may_edit
        self._token, self._side = token, side or MemorySide()
        self._name = Name(tenant, "")

    def issue_ticket(self) -> str:
        """Make a word that signs one browser in, once, as whoever has the token; "" without one."""
        if self._token is None:
            return ""
        shown = f"{int(time() + _TICKET):x}.{secrets.token_urlsafe(24)}"
        return f"{shown}.{_sign_ticket(shown, self._token)}"

    async def redeem_ticket(self, ticket: str) -> str | None:
        """Sign a browser in by a ticket; return its cookie's value, or None."""
        shown, _, mac = ticket.rpartition(".")
        if self._token is None or not hmac.compare_digest(
            _sign_ticket(shown, self._token).encode(), mac.encode("utf-8", "surrogateescape")
        ):
            return None
        until = float(int(shown.partition(".")[0], 16))
        if until < time() or not await self._use_ticket(digest_of(shown), until):
            return None
        return await self.sign_in(self._token.reveal())

    async def _use_ticket(self, digest: str, until: float) -> bool:
        """Note that a ticket is used; False if it was."""

        def add(kept: _Browsers) -> bool:
            if digest in kept.until:
                return False
            kept.until[digest] = until
            return True

        return await self._change(_USED, "used", add, most=_TICKETS)

    async def sign_in(self, given: str, *, tenant: str = "") -> str | None:
        """Sign a browser in by a key or a token; return its cookie's value, or None.

        An operator may choose a `tenant`; others have their own.
        """
        digest = digest_of(given)
        client = await self._check(digest)
        if client is None or _place_client(client, tenant) is None:
            return None
        place, word = _name_place(digest), secrets.token_urlsafe(32)

        def add(kept: _Browsers) -> bool:
            kept.digest = digest
            kept.until[digest_of(word)] = time() + _IDLE
            if tenant:
                kept.tenants[digest_of(word)] = tenant
            return True

        kept = await self._change(_SIGN_INS, place, add, most=_BROWSERS)
        return f"{place}.{word}" if kept else None

    async def sign_out(self, scope: Any) -> None:
        """Forget a browser, in every process."""
        for value in self._list_cookies(scope):
            place, _, word = value.partition(".")
            await self._change(
                _SIGN_INS,
                place,
                lambda kept, word=word: kept.until.pop(digest_of(word), None) is not None,
            )

    async def find_visitor(self, scope: Any) -> Visitor | None:
        """Return the visitor of a cookie; None without a sign-in."""
        for value in self._list_cookies(scope):
            place, _, word = value.partition(".")
            entry = await self._side.get(self._name, _SIGN_INS, place)
            if entry is None:
                continue
            kept, known = _decode_browsers(entry.value), digest_of(word)
            until = kept.until.get(known, 0.0)
            client = await self._check(kept.digest) if until > time() else None
            if client is not None:
                client = _place_client(client, kept.tenants.get(known, ""))
            if client is None:
                continue
            if until < time() + _IDLE - _NOTED:
                kept.until[known] = time() + _IDLE
                body = msgspec.json.encode(kept)
                await self._side.put(self._name, _SIGN_INS, place, body, version=entry.version)
            sees = client.sees or None  # without keys there are no owners
            form_word = hmac.digest(word.encode(), b"the word of a form", "sha256").hex()
            return Visitor(
                client.tenant, sees, client.owner, client.rights.words, client.name,
                self._may_edit, form_word, client.rights.reaches == "all",
            )  # fmt: skip
        return None

    async def _change(
        self, space: str, place: str, change: Callable[[_Browsers], bool], *, most: int = 0
    ) -> bool:
        """Change what is kept at a place; False if there was nothing to change."""

        def write(value: bytes | None) -> bytes | None:
            kept = _decode_browsers(value) if value else _Browsers(until={}, tenants={})
            if not change(kept):
                return value
            now = time()
            kept.until = {one: until for one, until in kept.until.items() if until > now}
            while most and len(kept.until) > most:
                del kept.until[min(kept.until, key=kept.until.__getitem__)]
            kept.tenants = {one: name for one, name in kept.tenants.items() if one in kept.until}
            return msgspec.json.encode(kept)

        return await change_value(self._side, self._name, space, place, write)

    def _list_cookies(self, scope: Any) -> list[str]:
        """List the values of our cookie that have the form of those that we set."""
        found: list[str] = []
        for name, value in scope["headers"]:
            if name == b"cookie":
                try:
                    cookies = SimpleCookie(value.decode("latin-1"))
                except CookieError:
                    continue
                found += [one.value for key, one in cookies.items() if key == self.cookie]
        return [one for one in found if _COOKIE.fullmatch(one)][:_COOKIES]

    def format_cookie(self, word: str, *, path: str, secure: bool) -> str:
        """Format the header that sets the cookie; an empty word removes it."""
        age = "" if word else "; Max-Age=0"
        safe = "; Secure" if secure else ""
        return f"{self.cookie}={word}; Path={path}; HttpOnly; SameSite=Strict{age}{safe}"


def _place_client(client: Client, tenant: str) -> Client | None:
    """Put a client into the tenant that was chosen; None if it does not reach that."""
    if tenant in ("", client.tenant):
        return client
    if client.rights.reaches != "all" or tenant.split() != [tenant] or not tenant.isprintable():
        return None
    return client._replace(tenant=tenant, owner="")


def _name_place(digest: str) -> str:
    """Name the place of a key's browsers: its cookies begin with it, and do not tell the digest."""
    return sha256(b"foldline sign-ins " + digest.encode()).hexdigest()[:32]


def _sign_ticket(shown: str, token: Secret) -> str:
    return hmac.digest(
        token.reveal().encode(), f"ticket {shown}".encode("utf-8", "replace"), "sha256"
    ).hex()


def _decode_browsers(value: bytes) -> _Browsers:
    return msgspec.json.decode(value, type=_Browsers)


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

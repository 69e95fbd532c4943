"""The gateway's own keys, and providers' keys that pass through.

Keys of ours are kept as digests, in a file of lines. No key is stored or shown, and none of ours is
passed on to an upstream.

    3f1c…64 hex digits…  acme  ci-runner           digest, tenant, name
    9a04…64 hex digits…  acme  ops  admin          the same, of an admin

A key's name is the owner of the sessions that are made with it. Through the session API a key
reaches its owner's sessions; an admin key reaches all of its tenant.
"""

import hmac
import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from foldline.errors import BadInput

PREFIX: Final = "fl-"
"""The beginning of every key of ours, which tells it from a provider's."""
ADMIN: Final = "admin"
"""The word behind the name of a key that reaches all sessions of its tenant."""
OWN_HEADER: Final = b"x-foldline-key"
"""For clients that present a key of ours beside their provider's."""
CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"))
_log = logging.getLogger("foldline.gateway")
_LOOK = 1.0  # seconds between two looks at the file: a removed key is refused soon
_SHORT = 8  # digits of a digest by which keys are found before they are compared
_DIGEST = 64
_PRIVATE = 0o600
Headers = Iterable[tuple[bytes, bytes]]


class Secret:
    """A key that no `repr`, `str`, format or pickle shows by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the key itself, for the header that it goes into."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


class Client(NamedTuple):
    """Who sent a request."""

    tenant: str
    scope: str
    """The digest of the presented key: conversations are found under it."""
    name: str = ""
    """What the operator calls the key."""
    owner: str = ""
    """The owner of sessions that this client makes; "" if there are no keys."""
    admin: bool = False
    """Whether the client reaches all sessions of its tenant."""


class KeyRefused(NamedTuple):
    """Why a client is refused."""

    why: str


class _KeyEntry(NamedTuple):
    digest: str
    tenant: str
    name: str
    admin: bool = False


class Keys:
    """The gateway's keys, as the operator's file has them now."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._looked, self._stamp = -_LOOK, (0, 0)
        self._entries: dict[str, list[_KeyEntry]] = {}
        self._reload_file()

    def find_client(self, key: str) -> Client | None:
        """Return the client that a key belongs to."""
        if monotonic() - self._looked >= _LOOK:
            self._reload_file()
        digest = digest_of(key)
        found = None
        for entry in self._entries.get(digest[:_SHORT], ()):
            if hmac.compare_digest(entry.digest, digest):
                found = entry
        if found is None:
            return None
        return Client(found.tenant, digest, found.name, owner=found.name, admin=found.admin)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    @property
    def tenants(self) -> set[str]:
        """The tenants that have keys."""
        return {entry.tenant for entries in self._entries.values() for entry in entries}

    def _reload_file(self) -> None:
        """Read the file again if it has changed; if it is gone, no key is valid."""
        first, self._looked = not self._stamp[0], monotonic()
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            lines = self._path.read_text().splitlines()
        except OSError as fault:
            if first:
                raise BadInput(f"keys: {self._path}: {fault.strerror}") from fault
            self._stamp, self._entries = (1, 0), {}
            return
        self._stamp = stamp
        try:
            self._entries = _parse_entries(lines, self._path)
        except BadInput as fault:
            if first:
                raise
            _log.error("%s; the keys stay as they were", fault)


def _parse_entries(lines: Iterable[str], path: Path) -> dict[str, list[_KeyEntry]]:
    entries: dict[str, list[_KeyEntry]] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        digest, rest = fields[0], fields[1:]
        if len(rest) not in (2, 3) or not _is_digest(digest):
            raise BadInput(
                f"{path}, line {number}: no key; a line is DIGEST TENANT NAME [{ADMIN}], "
                f"and `foldline keys add NAME --keys {path}` writes it"
            )
        if rest[2:] not in ([], [ADMIN]):
            raise BadInput(
                f"{path}, line {number}: a key is nothing or {ADMIN!r}, not {rest[2]!r}; "
                f"end the line behind the name, or write {ADMIN!r} there"
            )
        entry = _KeyEntry(digest, rest[0], rest[1], admin=bool(rest[2:]))
        entries.setdefault(digest[:_SHORT], []).append(entry)
    return entries


def _is_digest(text: str) -> bool:
    return len(text) == _DIGEST and not text.strip("0123456789abcdef")


def digest_of(key: str) -> str:
    """Return the digest that is stored of a key."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def create_key(path: str | Path, name: str, *, tenant: str, admin: bool = False) -> str:
    """Make a key and append its digest to the file; the key itself is in no file."""
    if not name or not tenant or len((tenant + name).split()) != 1 or name.startswith("#"):
        raise BadInput(f"a key's name and tenant are one word each, not {name!r} and {tenant!r}")
    path = Path(path)
    if path.exists() and any(line.split()[2:3] == [name] for line in path.read_text().splitlines()):
        raise BadInput(f"{path} has a key {name!r} already; remove its line, or take another name")
    key = PREFIX + secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE)
    with os.fdopen(descriptor, "a") as file:
        file.write(f"{digest_of(key)}  {tenant}  {name}{f'  {ADMIN}' if admin else ''}\n")
    return key


def resolve_client(headers: Headers, keys: Keys | None, *, tenant: str) -> Client | KeyRefused:
    """Tell who sent a request by its headers."""
    tokens = [
        (name, token_of(name, value))
        for name, value in headers
        if name in CREDENTIALS or name == OWN_HEADER
    ]
    ours = {token for name, token in tokens if name == OWN_HEADER or token.startswith(PREFIX)}
    if keys is None:
        if ours:
            return KeyRefused("this gateway has no keys of its own: send your provider's key")
        return Client(tenant, digest_of("\n".join(token for _, token in tokens)) if tokens else "")
    if len(ours) != 1:
        return KeyRefused(
            "send one key of this gateway (fl-…) as bearer token, as x-api-key, or beside your "
            "provider's key as X-Foldline-Key"
        )
    return keys.find_client(ours.pop()) or KeyRefused(
        "this gateway does not know the key that was sent"
    )


def token_of(name: bytes, value: bytes) -> str:
    """Return the key in a header's value."""
    text = value.decode("utf-8", "surrogateescape").strip()
    if name == b"authorization" and text[:7].lower() == "bearer ":
        return text[7:].strip()
    return text


def replace_credentials(
    pairs: Sequence[tuple[bytes, bytes]], key: Secret | None, *, header: tuple[bytes, str]
) -> list[tuple[bytes, bytes]]:
    """Replace each key of ours in the headers by the operator's, or drop it if there is none."""
    headers: list[tuple[bytes, bytes]] = []
    has_key = False
    for name, value in pairs:
        if name not in CREDENTIALS:
            headers.append((name, value))
        elif not token_of(name, value).startswith(PREFIX):
            headers.append((name, value))
            has_key = True
        elif key is not None:
            bearer = "Bearer " if name == b"authorization" else ""
            headers.append((name, (bearer + key.reveal()).encode()))
            has_key = True
    if key is not None and not has_key:
        name, before = header
        headers.append((name, (before + key.reveal()).encode()))
    return headers

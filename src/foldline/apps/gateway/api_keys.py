"""The gateway's own keys, and providers' keys that pass through.

Keys of ours are kept as digests, in a file of lines. No key is stored or shown, and none of ours is
passed on to an upstream.

    3f1c…64 hex digits…  acme  ci-runner                   digest, tenant, name
    9a04…64 hex digits…  acme  ops  admin                  the same, with a role
    77b2…64 hex digits…  acme  ci-2  client  owner=ci-runner   and with an owner

A key belongs to an owner, by default one of the key's own name. The owner has the sessions that are
made with it, and keeps them when another key takes its place. What a key may do is its role's:

    client     relays requests, and reaches its owner's sessions
    reader     reads figures: /metrics, and of its tenant's sessions what holds no words; one of the
               gateway's own tenant reads the metrics of all
    admin      reaches all sessions of its tenant, and its tenant's metrics
    operator   reaches all tenants, and all figures

`Client.rights` has them; the routes ask for what they need.
"""

import hmac
import logging
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, get_args
from urllib.parse import unquote_to_bytes

from foldline.apps.gateway.error_response import Refusal
from foldline.errors import BadInput

Role: TypeAlias = Literal["client", "reader", "admin", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)


class Rights(NamedTuple):
    """What a role is allowed."""

    relays: bool = False
    """Whether its requests are relayed to upstreams."""
    reaches: Literal["own", "tenant", "all"] = "own"
    """Whose sessions it reaches: its owner's, its tenant's, or all tenants'."""
    words: bool = True
    """Whether it may read what was said, and change it; else figures alone."""
    metrics: Literal["none", "tenant", "all"] = "none"
    """Whose series of /metrics it may read."""


RIGHTS: Final[dict[Role, Rights]] = {
    "client": Rights(relays=True),
    "reader": Rights(reaches="tenant", words=False, metrics="tenant"),
    "admin": Rights(relays=True, reaches="tenant", metrics="tenant"),
    "operator": Rights(relays=True, reaches="all", metrics="all"),
}


def parse_role(text: str) -> Role:
    """Return a role by its name; raises `BadInput` if there is none."""
    if text not in ROLES:
        raise BadInput(f"{text!r} is no role of a key; write {', '.join(ROLES)}")
    return text


PREFIX: Final = "fl-"
"""The beginning of every key of ours, which tells it from a provider's."""
OWN_HEADER: Final = b"x-foldline-key"
"""For clients that present a key of ours beside their provider's."""
CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"))
_log = logging.getLogger("foldline.gateway")
_LOOK = 1.0  # seconds between two looks at the file: a removed key is refused soon
_SHORT = 8  # digits of a digest by which keys are found before they are compared
_DIGEST = 64
_OWNER = "owner="
_PRIVATE = 0o600
_LONGEST = 200  # characters of a name
_OWN_KEY = re.compile(rb"fl-(?:local-)?[A-Za-z0-9_-]{43}")  # as `create_key` makes them
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
    """The digest of the presented key. Without an owner conversations are found under it."""
    name: str = ""
    """What the operator calls the key."""
    owner: str = ""
    """Who has the sessions that this client makes, whichever key it shows; "" without keys."""
    role: Role = "client"
    """What it may do."""
    models: tuple[str, ...] = ()
    """Patterns of the models that it may ask; () for all that the gateway allows."""
    routes: tuple[str, ...] = ()
    """Routes of the provider that it may use beside those that the gateway allows."""

    @property
    def rights(self) -> Rights:
        """What its role is allowed."""
        return RIGHTS[self.role]

    @property
    def sees(self) -> str | None:
        """The owner whose sessions it sees; None for all of the tenant's."""
        return self.owner if self.rights.reaches == "own" else None


class KeySource(Protocol):
    """The gateway's keys, wherever they are."""

    @property
    def tenants(self) -> set[str]:
        """The tenants that have keys."""
        ...

    @property
    def trouble(self) -> str:
        """Why keys cannot be checked as usual, in words; "" if they can."""
        ...

    def describe(self) -> str:
        """Say in words which keys these are."""
        ...

    async def start(self) -> None:
        """Begin to look for changes, inside the event loop of the gateway."""
        ...

    async def close(self) -> None:
        """Stop looking."""
        ...

    async def identify(self, digest: str, *, anew: bool = False) -> Client | None:
        """Return the client whose key has this digest, if it is valid.

        `anew` looks for changes first, if that was not done just now. Raises `StoreFailed` if
        nobody can tell.
        """
        ...


class KeyRefused(NamedTuple):
    """Why a client is refused."""

    why: str


class KeyEntry(NamedTuple):
    """A key as a line of the file has it."""

    digest: str
    tenant: str
    name: str
    role: Role = "client"
    owner: str = ""


class Keys:
    """The gateway's keys, as the operator's file has them now."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._looked, self._stamp = -_LOOK, (0, 0)
        self._entries: dict[str, list[KeyEntry]] = {}
        self._is_gone = False
        self._reload_file()

    async def identify(self, digest: str, *, anew: bool = False) -> Client | None:
        """Return the client whose key has this digest; `anew` reads the file first."""
        return self._find_digest(digest, anew=anew)

    async def start(self) -> None:
        """Do nothing: the file is looked at when a key is shown."""

    async def close(self) -> None:
        """Do nothing."""

    def describe(self) -> str:
        """Say in words which keys these are."""
        return f"{len(self)} of the gateway's own"

    @property
    def trouble(self) -> str:
        """Why no key is valid; "" if the file is there."""
        if monotonic() - self._looked >= _LOOK:
            self._reload_file()
        return "the file of the keys is gone" if self._is_gone else ""

    def _find_digest(self, digest: str, *, anew: bool = False) -> Client | None:
        if anew or monotonic() - self._looked >= _LOOK:
            self._reload_file()
        return self._find_entry(digest)

    def _find_entry(self, digest: str) -> Client | None:
        found = None
        for entry in self._entries.get(digest[:_SHORT], ()):
            if hmac.compare_digest(entry.digest, digest):
                found = entry
        if found is None:
            return None
        return Client(found.tenant, digest, found.name, found.owner or found.name, found.role)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def list_entries(self) -> "list[KeyEntry]":
        """List all keys, in the order of the file."""
        return [entry for entries in self._entries.values() for entry in entries]

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
            if not self._is_gone:
                _log.error("keys: %s: %s; no key is valid", self._path, fault.strerror)
            self._is_gone = True
            return
        self._stamp, self._is_gone = stamp, False
        try:
            self._entries = _parse_entries(lines, self._path)
            if not first:
                _log.info("keys: %s is read again: %d keys", self._path, len(self))
        except BadInput as fault:
            if first:
                raise
            _log.error("%s; the keys stay as they were", fault)


def _parse_entries(lines: Iterable[str], path: Path) -> dict[str, list[KeyEntry]]:
    entries: dict[str, list[KeyEntry]] = {}
    for number, line in enumerate(lines, 1):
        if not line.split() or line.startswith("#"):
            continue
        try:
            entry = _parse_entry(line, path)
        except BadInput as fault:
            raise BadInput(f"{path}, line {number}: {fault}") from None
        entries.setdefault(entry.digest[:_SHORT], []).append(entry)
    return entries


def _parse_entry(line: str, path: Path) -> KeyEntry:
    digest, *rest = line.split()
    words = rest[2:]
    owner = words.pop()[len(_OWNER) :] if words and words[-1].startswith(_OWNER) else ""
    if len(rest) < 2 or len(words) > 1 or not _is_digest(digest):  # noqa: PLR2004 - tenant, name
        raise BadInput(
            "no key; a line is DIGEST TENANT NAME [ROLE] [owner=OWNER], "
            f"and `foldline keys add NAME --keys {path}` writes it"
        )
    role = parse_role(words[0]) if words else "client"
    return KeyEntry(digest, rest[0], rest[1], role, owner)


def _is_digest(text: str) -> bool:
    return len(text) == _DIGEST and not text.strip("0123456789abcdef")


def digest_of(key: str) -> str:
    """Return the digest that is stored of a key."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def create_key(
    path: str | Path, name: str, *, tenant: str, role: Role = "client", owner: str = ""
) -> str:
    """Make a key and append its digest to the file; the key itself is in no file."""
    check_words(name, tenant, owner or name)
    path = Path(path)
    if path.exists() and any(line.split()[2:3] == [name] for line in path.read_text().splitlines()):
        raise BadInput(f"{path} has a key {name!r} already; remove its line, or take another name")
    key = PREFIX + secrets.token_urlsafe(32)
    named = f"  owner={owner}" if owner else ""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE)
    with os.fdopen(descriptor, "a") as file:
        file.write(
            f"{digest_of(key)}  {tenant}  {name}{f'  {role}' if role != 'client' else ''}{named}\n"
        )
    return key


def check_words(*words: str) -> None:
    """Refuse names of keys, tenants and owners that are not one word each."""
    for word in words:
        if word.split() != [word] or not word.isprintable() or word[0] in "#=":
            raise BadInput(f"names of keys, tenants and owners are one word each, not {word!r}")
        if len(word) > _LONGEST:
            raise BadInput(f"a name of at most {_LONGEST} characters is asked for, not {len(word)}")


async def resolve_client(
    headers: Headers, keys: KeySource | None, *, tenant: str
) -> Client | KeyRefused:
    """Tell who sent a request by its headers; raises `StoreFailed` if nobody can tell."""
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
    strays = {
        found.decode()
        for name, value in headers
        if name in CREDENTIALS
        for found in _OWN_KEY.findall(value)
    }
    if len(ours) != 1 or strays - ours:  # a key in another form is one, too: nobody guesses which
        return KeyRefused(
            "send one key of this gateway (fl-…) as bearer token, as x-api-key, or beside your "
            "provider's key as X-Foldline-Key"
        )
    return await keys.identify(digest_of(ours.pop())) or KeyRefused(
        "this gateway does not know the key that was sent"
    )


def must_hide_keys(query: bytes) -> None:
    """Refuse a key of ours in an address: it would be passed on, and written to logs."""
    if query and _OWN_KEY.search(unquote_to_bytes(query)):
        words = "a key of this gateway is in the address, where others see it: send it as a header"
        raise Refusal(401, "bad_key", words)


def token_of(name: bytes, value: bytes) -> str:
    """Return the key in a header's value."""
    text = value.decode("utf-8", "surrogateescape").strip(" \t")
    if name == b"authorization" and text[:7].lower() == "bearer ":
        return text[7:].strip(" \t")
    return text


def replace_credentials(
    pairs: Sequence[tuple[bytes, bytes]], key: Secret | None, *, header: tuple[bytes, str]
) -> list[tuple[bytes, bytes]]:
    """Replace each key of ours in the headers by the operator's, or drop it if there is none.

    A header that holds one where none belongs is dropped: no key of ours reaches an upstream.
    """
    headers: list[tuple[bytes, bytes]] = []
    has_key = False
    for name, value in pairs:
        is_credential = name in CREDENTIALS
        if is_credential and token_of(name, value).startswith(PREFIX):
            if key is not None:
                bearer = "Bearer " if name == b"authorization" else ""
                headers.append((name, (bearer + key.reveal()).encode()))
                has_key = True
        elif b"fl-" not in value or not _OWN_KEY.search(value):
            headers.append((name, value))
            has_key = has_key or is_credential
    if key is not None and not has_key:
        name, before = header
        headers.append((name, (before + key.reveal()).encode()))
    return headers

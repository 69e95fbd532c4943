"""A session's keys: what seals its rows, pieces and side values, and what opens them.

    master key ── wraps ── secret of one session ──┬── a key for each row, by the row's own salt
                                                   ├── a name and a key for each piece, by its hash
                                                   └── a key for side values and once-keys

Knows AES-256-GCM and the form of sealed bytes. Refuses to know stores: `stores.encryption` fetches
and keeps. Tenant and session are bound by the secret, which is wrapped for both; kind, edit flag
and place are bound as associated data. A row has a key of its own so that a fork can be given the
keys of the rows that were copied for it and no others: it reads on when its ancestor's secret is
gone, and opens nothing else that may be left of the ancestor.
"""

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from foldline.errors import BadInput, Sealed
from foldline.stores.base import Name, Row

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY = 32  # bytes of every key
_SALT, _NONCE, _COUNT = 16, 12, 4
_WRAPPED = _NONCE + KEY + 16
_ONCE_USED = bytes(_NONCE)  # a row's key is never used again, so its nonce need not be new
_PLACED, _FREE = b"\x01", b"\x02"  # the first byte of a row: whether its place is bound


Pieces: TypeAlias = dict[str, dict[str, bytes]]
"""Of each hash: the names that the store has for it, each with its key."""


class OpenedRow(NamedTuple):
    """A row as it was given, and what a fork would need to open it too."""

    row: Row
    salt: bytes
    key: bytes
    pieces: Pieces


class ForkKeys(msgspec.Struct, frozen=True):
    """What a fork was given: its origin's name, the keys of the copied rows and of their pieces."""

    origin: str = ""
    rows: dict[bytes, bytes] = msgspec.field(default_factory=dict[bytes, bytes])
    """By their salts."""
    pieces: Pieces = msgspec.field(default_factory=dict[str, dict[str, bytes]])


@dataclass(frozen=True, slots=True, repr=False)  # a key is in no traceback
class Ring:
    """The keys of one session."""

    secret: bytes
    kept: ForkKeys

    def seal(self, row: Row, *, place: int | None) -> Row:
        """A row that only this session opens, at this place if it is known."""
        form = _FREE if place is None else _PLACED
        salt = os.urandom(_SALT)
        names = "\n".join(row.pieces).encode()
        plain = b"".join((len(names).to_bytes(_COUNT), names, row.body))
        box = cipher(self._key(b"row", salt)).encrypt(_ONCE_USED, plain, _bound(form, row, place))
        pieces = tuple(self.name(one) for one in row.pieces)
        return row._replace(body=form + salt + box, pieces=pieces)

    def open(self, row: Row) -> OpenedRow | None:
        """What was sealed; None where none of these keys opens it."""
        form, salt, sealed = row.body[:1], row.body[1 : 1 + _SALT], row.body[1 + _SALT :]
        bound = _bound(form, row, row.seq if form == _PLACED else None)
        given = self.kept.rows.get(salt)
        key = given or self._key(b"row", salt)
        plain = _opened(key, sealed, nonce=_ONCE_USED, bound=bound)
        if plain is None:
            return None
        end = _COUNT + int.from_bytes(plain[:_COUNT])
        digests = plain[_COUNT:end].decode().split("\n") if end > _COUNT else []
        own = {one: {self.name(one): self.key(one)} for one in digests}
        pieces = own if given is None else {one: self.kept.pieces.get(one, {}) for one in digests}
        return OpenedRow(row._replace(body=plain[end:]), salt, key, pieces)

    def name(self, digest: str) -> str:
        """What a piece is called in this session and in no other."""
        return self._key(b"name", digest.encode()).hex()

    def key(self, digest: str) -> bytes:
        """A piece's own key."""
        return self._key(b"piece", digest.encode())

    def pieces(self, digest: str) -> dict[str, bytes]:
        """What a piece may be called here, each name with its key."""
        return {self.name(digest): self.key(digest), **self.kept.pieces.get(digest, {})}

    def side(self, value: bytes, *place: str) -> bytes:
        """A side value that opens at its own place only."""
        return box(self._key(b"side"), value, *place)

    def side_of(self, sealed: bytes, *place: str) -> bytes | None:
        """A side value as it was given."""
        return unbox(self._key(b"side"), sealed, *place)

    def once(self, key: str) -> str:
        """What a delivery is remembered by: the same for the same, and nothing to read."""
        return self._key(b"once", key.encode()).hex()

    def wrapped(self, master: bytes, name: Name) -> bytes:
        """These keys as a store may keep them."""
        empty = self.kept == ForkKeys()
        kept = b"" if empty else box(self._key(b"kept"), msgspec.msgpack.encode(self.kept))
        return box(master, self.secret, *name) + kept

    def forked(self, sealed: bytes, name: Name) -> "Ring":
        """This ring with what it was forked with, if it was."""
        if not sealed:
            return self
        plain = unbox(self._key(b"kept"), sealed)
        if plain is None:
            raise Sealed(f"the fork {name.session!r} has keys that were altered; restore a backup")
        return Ring(self.secret, msgspec.msgpack.decode(plain, type=ForkKeys))

    def _key(self, use: bytes, of: bytes = b"") -> bytes:
        return hmac.digest(self.secret, use + b"\0" + of, "sha256")


def new() -> Ring:
    """The keys of a new session."""
    return Ring(os.urandom(KEY), ForkKeys())


def unwrap(wrapped: bytes, masters: Sequence[bytes], name: Name) -> tuple[Ring, bytes]:
    """A session's keys, and the master key that opened them."""
    for master in masters:
        secret = unbox(master, wrapped[:_WRAPPED], *name)
        if secret is not None:
            return Ring(secret, ForkKeys()).forked(wrapped[_WRAPPED:], name), master
    raise Sealed(
        f"session {name.session!r} was sealed with another master key, or its key was altered; "
        "open the store with the key it was written with, or name that one in `older`"
    )


def box(key: bytes, plain: bytes, *bound: str) -> bytes:
    """Sealed bytes with their nonce before them."""
    nonce = os.urandom(_NONCE)
    return nonce + cipher(key).encrypt(nonce, plain, msgspec.json.encode(bound))


def unbox(key: bytes, sealed: bytes, *bound: str) -> bytes | None:
    """What was sealed; None where the key is another or a byte was changed."""
    return _opened(key, sealed[_NONCE:], nonce=sealed[:_NONCE], bound=msgspec.json.encode(bound))


def cipher(key: bytes) -> "AESGCM":
    """AES-256-GCM, from the extra that has it."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput("CryptStore needs an extra: pip install 'foldline[crypt]'") from fault
    return AESGCM(key)


def _bound(form: bytes, row: Row, place: int | None) -> bytes:
    """What a row's bytes hold only together with."""
    return form + msgspec.json.encode((row.kind, bool(row.edit), place))


def _opened(key: bytes, sealed: bytes, *, nonce: bytes, bound: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    try:
        return cipher(key).decrypt(nonce, sealed, bound)
    except (InvalidTag, ValueError):  # too short to be anything sealed is a ValueError
        return None

"""Encryption at rest around any store.

    store = CryptStore(SqliteStore("talks.db"), key)       # 32 bytes, from where you keep secrets

    master key ── wraps ── secret of one session ──┬── a key for each row, by the row's own salt
                                                   ├── a name and a key for each piece, by its hash
                                                   └── a key for side values and once-keys

Encrypted with AES-256-GCM: rows, pieces, side values and once-keys. In clear: the names of tenants,
owners, sessions and side entries, kinds, edit flags, sizes, times. A piece has a different name in
each session, so nobody can see that two sessions hold the same picture. The wrapped keys are kept
in the side space `crypt`.

The secret is wrapped for its tenant and session; kind, edit flag and place are associated data. A
row is bound to its place only if the caller gives `after`. Otherwise the store chooses the place
while it writes, and a row could be moved unnoticed inside its own session: never into another, and
never as another kind.

A fork gets the keys of the rows that are copied for it, and of their pieces, and no others: the
parent's secret would keep an erased parent readable for as long as a fork of it lives. Rows that
are not copied are read with the ancestors' keys, while those exist. Erasing destroys the keys
first: whatever is left of a session, in a backup or after a crash, is noise from then on.
"""

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from foldline.errors import BadInput, Conflict, Erased, FoldlineError, Sealed, Unsupported
from foldline.stores.base import Draft, Entry, Found, Head, Name, Receipt, Retention, Row, Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from foldline.stores.search_ranking import PostingBatch

KEY = 32  # bytes of every key
_SALT, _NONCE, _COUNT = 16, 12, 4
_WRAPPED = _NONCE + KEY + 16
_ONCE_USED = bytes(_NONCE)  # a row's key is used only once, so its nonce need not be new
_PLACED, _FREE = b"\x01", b"\x02"  # the first byte of a row: whether its place is bound


Pieces: TypeAlias = dict[str, dict[str, bytes]]
"""For each hash: the names that the store has for it, each with its key."""


class OpenedRow(NamedTuple):
    """A decrypted row, and the keys a fork needs to open it too."""

    row: Row
    salt: bytes
    key: bytes
    pieces: Pieces


class ForkKeys(msgspec.Struct, frozen=True):
    """A fork's origin, and the keys of the copied rows and their pieces."""

    origin: str = ""
    rows: dict[bytes, bytes] = msgspec.field(default_factory=dict[bytes, bytes])
    """By salt."""
    pieces: Pieces = msgspec.field(default_factory=dict[str, dict[str, bytes]])


@dataclass(frozen=True, slots=True, repr=False)  # no repr: a traceback must not show keys
class Ring:
    """The keys of one session."""

    secret: bytes
    kept: ForkKeys

    def encrypt_row(self, row: Row, *, place: int | None) -> Row:
        """Encrypt a row for this session, and for this place if it is known."""
        form = _FREE if place is None else _PLACED
        salt = os.urandom(_SALT)
        names = "\n".join(row.pieces).encode()
        plain = b"".join((len(names).to_bytes(_COUNT), names, row.body))
        box = make_cipher(self._derive_key(b"row", salt)).encrypt(
            _ONCE_USED, plain, _encode_associated_data(form, row, place)
        )
        pieces = tuple(self.derive_piece_name(one) for one in row.pieces)
        return row._replace(body=form + salt + box, pieces=pieces)

    def decrypt_row(self, row: Row) -> OpenedRow | None:
        """Decrypt a row; None if none of these keys opens it."""
        form, salt, sealed = row.body[:1], row.body[1 : 1 + _SALT], row.body[1 + _SALT :]
        bound = _encode_associated_data(form, row, row.seq if form == _PLACED else None)
        given = self.kept.rows.get(salt)
        key = given or self._derive_key(b"row", salt)
        plain = _try_decrypt(key, sealed, nonce=_ONCE_USED, bound=bound)
        if plain is None:
            return None
        end = _COUNT + int.from_bytes(plain[:_COUNT])
        digests = plain[_COUNT:end].decode().split("\n") if end > _COUNT else []
        own = {one: {self.derive_piece_name(one): self.derive_piece_key(one)} for one in digests}
        pieces = own if given is None else {one: self.kept.pieces.get(one, {}) for one in digests}
        return OpenedRow(row._replace(body=plain[end:]), salt, key, pieces)

    def derive_piece_name(self, digest: str) -> str:
        """Derive the name that a piece has in this session only."""
        return self._derive_key(b"name", digest.encode()).hex()

    def derive_piece_key(self, digest: str) -> bytes:
        """Derive a piece's own key."""
        return self._derive_key(b"piece", digest.encode())

    def list_piece_keys(self, digest: str) -> dict[str, bytes]:
        """List the names that a piece may have here, each with its key."""
        return {
            self.derive_piece_name(digest): self.derive_piece_key(digest),
            **self.kept.pieces.get(digest, {}),
        }

    def encrypt_side_value(self, value: bytes, *place: str) -> bytes:
        """Encrypt a side value so that it opens only at its own place."""
        return encrypt_bytes(self._derive_key(b"side"), value, *place)

    def side_of(self, sealed: bytes, *place: str) -> bytes | None:
        """Decrypt a side value; None if it does not open."""
        return decrypt_bytes(self._derive_key(b"side"), sealed, *place)

    def derive_once_key(self, key: str) -> str:
        """Derive an unreadable once-key; equal keys give equal results."""
        return self._derive_key(b"once", key.encode()).hex()

    def wrap_keys(self, master: bytes, name: Name) -> bytes:
        """Encrypt these keys so that a store may keep them."""
        wrapped = encrypt_bytes(master, self.secret, *name)
        if self.kept == ForkKeys():
            return wrapped
        kept = msgspec.msgpack.encode(self.kept)
        return wrapped + encrypt_bytes(self._derive_key(b"kept"), kept)

    def add_fork_keys(self, sealed: bytes, name: Name) -> "Ring":
        """Return this ring with its fork keys, if the session is a fork."""
        if not sealed:
            return self
        plain = decrypt_bytes(self._derive_key(b"kept"), sealed)
        if plain is None:
            raise Sealed(f"the fork {name.session!r} has keys that were altered; restore a backup")
        return Ring(self.secret, msgspec.msgpack.decode(plain, type=ForkKeys))

    def _derive_key(self, use: bytes, of: bytes = b"") -> bytes:
        return hmac.digest(self.secret, use + b"\0" + of, "sha256")


def make_ring() -> Ring:
    """Make the keys of a new session."""
    return Ring(os.urandom(KEY), ForkKeys())


def unwrap_keys(wrapped: bytes, masters: Sequence[bytes], name: Name) -> tuple[Ring, bytes]:
    """Decrypt a session's keys; also return the master key that opened them."""
    for master in masters:
        secret = decrypt_bytes(master, wrapped[:_WRAPPED], *name)
        if secret is not None:
            return Ring(secret, ForkKeys()).add_fork_keys(wrapped[_WRAPPED:], name), master
    raise Sealed(
        f"session {name.session!r} was sealed with another master key, or its key was altered; "
        "open the store with the key it was written with, or name that one in `older`"
    )


def encrypt_bytes(key: bytes, plain: bytes, *bound: str) -> bytes:
    """Encrypt bytes; the nonce comes first in the result."""
    nonce = os.urandom(_NONCE)
    return nonce + make_cipher(key).encrypt(nonce, plain, msgspec.json.encode(bound))


def decrypt_bytes(key: bytes, sealed: bytes, *bound: str) -> bytes | None:
    """Decrypt bytes; None if the key is wrong or a byte was changed."""
    return _try_decrypt(
        key, sealed[_NONCE:], nonce=sealed[:_NONCE], bound=msgspec.json.encode(bound)
    )


def make_cipher(key: bytes) -> "AESGCM":
    """Make an AES-256-GCM cipher; raises `BadInput` without the extra `crypt`."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput("CryptStore needs an extra: pip install 'foldline[crypt]'") from fault
    return AESGCM(key)


def _encode_associated_data(form: bytes, row: Row, place: int | None) -> bytes:
    return form + msgspec.json.encode((row.kind, bool(row.edit), place))


def _try_decrypt(key: bytes, sealed: bytes, *, nonce: bytes, bound: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    try:
        return make_cipher(key).decrypt(nonce, sealed, bound)
    except (InvalidTag, ValueError):  # bytes that are too short raise ValueError
        return None


SPACE = "crypt"
"""The space of the side table that holds the keys."""
REACH = 10_000
"""How many of a session's newest places a search covers."""
_STEP = 500
_CACHED = 1_024  # sessions whose keys are held in memory
_PLACE = (SPACE, "keys")


class CryptStore:
    """Encrypts what an inner store keeps; `older` are master keys that still open sessions."""

    def __init__(self, inner: Store, key: bytes, *, older: Sequence[bytes] = ()) -> None:
        for one in (key, *older):
            _check_master_key(one)
        self._inner = inner
        self._masters = (key, *older)
        self._rings: dict[Name, Ring] = {}
        self.lease = inner.lease
        self.release = inner.release
        self.claim = inner.claim
        self.sessions = inner.sessions
        self.hold = inner.hold
        self.trim = inner.trim
        self.close = inner.close

    async def append(
        self,
        name: Name,
        draft: Draft,
        *,
        after: int | None = None,
        fence: int | None = None,
        once: str | None = None,
    ) -> int:
        """Append encrypted rows to a log and return the place of the last one."""
        ring = await self._find_or_make_ring(name)
        places = [None if after is None else after + at for at in range(1, len(draft.rows) + 1)]
        rows = [ring.encrypt_row(row, place=at) for row, at in zip(draft.rows, places, strict=True)]
        named = (
            (ring.derive_piece_name(one), ring.derive_piece_key(one), body)
            for one, body in draft.blobs.items()
        )
        blobs = {stored: encrypt_bytes(key, body, stored) for stored, key, body in named}
        known = None if once is None else ring.derive_once_key(once)
        try:
            return await self._inner.append(
                name, Draft(rows, blobs), after=after, fence=fence, once=known
            )
        except Erased:
            self._rings.pop(name, None)
            raise

    async def head(self, name: Name, *, at: int | None = None) -> Head:
        """Return where a log ends; rows after `at` are ignored."""
        head = await self._inner.head(name, at=at)
        if head.edit is None:
            return head
        ((edit, _),) = await self._decrypt_rows(name, [head.edit])
        return msgspec.structs.replace(head, edit=edit.row)

    async def read(self, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
        """Return the rows of spans in order; a fork's include its ancestors'."""
        rows = await self._inner.read(name, spans)
        return [one.row for one, _ in await self._decrypt_rows(name, rows)]

    async def blobs(self, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return those of the large pieces that this session has, by hash."""
        wanted: dict[str, tuple[str, bytes]] = {}
        ring = await self._find_ring(name)
        while ring is not None:
            for digest in hashes:
                names = ring.list_piece_keys(digest).items()
                wanted |= {stored: (digest, key) for stored, key in names}
            ring = await self._find_origin_ring(name, ring)
        found: dict[str, bytes] = {}
        for stored, sealed in (await self._inner.blobs(name, list(wanted))).items():
            digest, key = wanted[stored]
            body = decrypt_bytes(key, sealed, stored)
            if body is None:
                raise Sealed(f"a piece of session {name.session!r} was altered; restore a backup")
            found[digest] = body
        return found

    async def fork(self, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
        """Create a session that continues after `at`, with the keys of the copied rows."""
        new = Name(name.tenant, to)
        taken = (await self._inner.head(new)).seq
        if taken >= 0:
            raise Conflict(to, -1, taken)
        copied = await self._decrypt_rows(name, await self._inner.read(name, keep))
        entry = await self._inner.get(new, *_PLACE)
        ring = make_ring() if entry is None else unwrap_keys(entry.value, self._masters, new)[0]
        ring = Ring(ring.secret, _collect_fork_keys(name.session, [one for one, _ in copied]))
        if not await self._save_ring(new, ring, entry):
            raise Conflict(to, -1, (await self._inner.head(new)).seq)
        try:
            await self._inner.fork(name, to, at=at, keep=keep)
        except FoldlineError:
            await self._inner.put(new, *_PLACE, None if entry is None else entry.value)
            raise
        self._cache_ring(new, ring)

    async def search(
        self,
        tenant: str,
        words: str,
        *,
        session: str | None = None,
        limit: int = 20,
        owner: str | None = None,
    ) -> list[Found]:
        """Rank messages among the newest `REACH` places of one session, as any store does."""
        if session is None:
            raise Unsupported(
                "an encrypted store has no index to search all sessions by; name one `session`"
            )
        from foldline.stores.beside import run_beside  # noqa: PLC0415 - half of the time of an import
        from foldline.stores.search_ranking import PostingBatch  # noqa: PLC0415 - for a search alone
        from foldline.stores.search_terms import list_query_terms  # noqa: PLC0415

        name, terms = Name(tenant, session), list_query_terms(words)
        head = await self._inner.head(name)
        if not terms or (owner is not None and head.owner != owner):
            return []
        batch = PostingBatch(terms)
        for start in range(max(head.seq - REACH + 1, 0), head.seq + 1, _STEP):
            span = (start, min(start + _STEP - 1, head.seq))
            opened = await self._decrypt_rows(name, await self._inner.read(name, [span]))
            own = [one.row for one, own in opened if own]  # like any store: not the ancestors'
            await run_beside(partial(_add_messages, batch, own))
        return batch.rank_messages(session, limit)

    async def retain(self, tenant: str, rule: Retention, *, dry: bool = False) -> Receipt:
        """Erase the sessions that exceed a rule, together with their keys."""
        receipt = await self._inner.retain(tenant, rule, dry=dry)
        for session in () if dry else receipt.sessions:
            self._rings.pop(Name(tenant, session), None)
        return receipt

    async def erase(self, name: Name) -> Receipt:
        """Destroy a session's keys, then erase it."""
        self._rings.pop(name, None)
        if name.session:
            await self._inner.put(name, *_PLACE, None)
        return await self._inner.erase(name)

    async def get(self, name: Name, space: str, key: str) -> Entry | None:
        """Return a side value unless it has expired."""
        _check_space(space)
        entry = await self._inner.get(name, space, key)
        if entry is None:
            return None
        ring = await self._find_ring(name)
        value = None if ring is None else ring.side_of(entry.value, space, key)
        if value is None:
            raise Sealed(_explain_lost_key(name, f"the entry {space}/{key}"))
        return Entry(value, entry.version)

    async def put(  # noqa: PLR0913 - a side table is a table
        self,
        name: Name,
        space: str,
        key: str,
        value: bytes | None,
        *,
        version: int | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Set an encrypted side value, or remove it."""
        _check_space(space)
        sealed = None
        if value is not None:
            sealed = (await self._find_or_make_ring(name)).encrypt_side_value(value, space, key)
        return await self._inner.put(name, space, key, sealed, version=version, seconds=seconds)

    async def rekey(self, key: bytes, *, tenants: Sequence[str]) -> int:
        """Wrap the keys of all sessions with another master key; return how many.

        Rows stay as they are. Safe to repeat after a crash. A session with side values but no log
        is in no list and is wrapped again when it is next used, so keep giving the previous key as
        `older` while there may be such sessions.
        """
        _check_master_key(key)
        self._masters = (key, *(one for one in self._masters if one != key))
        count = 0
        for tenant in tenants:
            session = ""
            page = await self._inner.sessions(tenant)
            count += await self._replace_master_key(Name(tenant, ""))
            while page:
                for listed in page:
                    session = listed.session
                    count += await self._replace_master_key(Name(tenant, session))
                page = await self._inner.sessions(tenant, after=session)
        return count

    async def _replace_master_key(self, name: Name) -> bool:
        while entry := await self._inner.get(name, *_PLACE):
            ring, master = unwrap_keys(entry.value, self._masters, name)
            if master == self._masters[0] or await self._save_ring(name, ring, entry):
                return master != self._masters[0]
        return False

    async def _find_ring(self, name: Name) -> Ring | None:
        """Return a session's keys, cached after the first read."""
        ring = self._rings.pop(name, None)
        if ring is None:
            entry = await self._inner.get(name, *_PLACE)
            if entry is None:
                return None
            ring, master = unwrap_keys(entry.value, self._masters, name)
            if master != self._masters[0]:
                await self._save_ring(name, ring, entry)
        self._cache_ring(name, ring)
        return ring

    async def _find_or_make_ring(self, name: Name) -> Ring:
        while (ring := await self._find_ring(name)) is None:
            begun = (await self._inner.head(name)).seq >= 0
            if begun and await self._inner.get(name, *_PLACE) is None:
                raise Sealed(_explain_lost_key(name, "its log"))
            new = make_ring()
            if await self._save_ring(name, new, None):
                self._cache_ring(name, new)
                return new
        return ring

    async def _save_ring(self, name: Name, ring: Ring, entry: Entry | None) -> bool:
        """Save keys; False if somebody else saved some first."""
        wrapped = ring.wrap_keys(self._masters[0], name)
        version = 0 if entry is None else entry.version
        return await self._inner.put(name, *_PLACE, wrapped, version=version)

    def _cache_ring(self, name: Name, ring: Ring) -> None:
        self._rings[name] = ring
        if len(self._rings) > _CACHED:
            del self._rings[next(iter(self._rings))]

    async def _find_origin_ring(self, name: Name, ring: Ring) -> Ring | None:
        """Return the keys of a fork's origin, if they still exist."""
        origin = ring.kept.origin
        return await self._find_ring(Name(name.tenant, origin)) if origin else None

    async def _decrypt_rows(self, name: Name, rows: Sequence[Row]) -> list[tuple[OpenedRow, bool]]:
        """Decrypt rows, each with whether it is the session's own."""
        held = name in self._rings
        try:
            return await self._try_decrypt_rows(name, rows)
        except Sealed:
            if not held:
                raise
        self._rings.pop(name, None)  # another process may have forked into this name meanwhile
        return await self._try_decrypt_rows(name, rows)

    async def _try_decrypt_rows(
        self, name: Name, rows: Sequence[Row]
    ) -> list[tuple[OpenedRow, bool]]:
        found: list[tuple[OpenedRow, bool]] = []
        chain: list[Ring] = []
        for row in rows:
            depth, one = 0, None
            while one is None:
                if depth == len(chain):
                    more = await (
                        self._find_origin_ring(name, chain[-1]) if chain else self._find_ring(name)
                    )
                    if more is None:
                        raise Sealed(_explain_lost_key(name, f"the row at {row.seq}"))
                    chain.append(more)
                one = chain[depth].decrypt_row(row)
                depth += 1
            found.append((one, depth == 1))
        return found


def _collect_fork_keys(origin: str, copied: Sequence[OpenedRow]) -> ForkKeys:
    pieces: Pieces = {}
    for one in copied:
        for digest, names in one.pieces.items():
            pieces[digest] = pieces.get(digest, {}) | names
    return ForkKeys(origin, {one.salt: one.key for one in copied}, pieces)


def _add_messages(batch: "PostingBatch", rows: Sequence[Row]) -> None:
    from foldline.stores.event_log import extract_search_text  # noqa: PLC0415 - for a search alone
    from foldline.stores.search_ranking import SPOKEN  # noqa: PLC0415

    for row in rows:
        if row.kind in SPOKEN:
            batch.add_message(row.seq, extract_search_text(row.body))


def _check_master_key(key: bytes) -> None:
    if len(key) != KEY:
        raise BadInput(f"a master key is {KEY} bytes, not {len(key)}: os.urandom({KEY})")
    make_cipher(key)


def _check_space(space: str) -> None:
    if space == SPACE:
        raise BadInput(f"the side space {SPACE!r} holds the keys; choose another name")


def _explain_lost_key(name: Name, what: str) -> str:
    return (
        f"no key of session {name.session!r} opens {what}: it was written without encryption, "
        "altered, or its erasure was cut short; open it without a key, restore it, or erase it"
    )

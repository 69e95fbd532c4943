"""Encryption at rest around any store: R-71.

    store = CryptStore(SqliteStore("talks.db"), key)       # 32 bytes, from where you keep secrets

Knows which operation seals or opens what, and where a session's keys are kept: wrapped by the
master key, in its own part of the side table. Refuses to know ciphers (`stores.keyring`) and
backends.

Sealed: rows, pieces, side values, and the keys by which deliveries are known. In clear: the names
of tenants, owners, sessions and side entries, kinds, edit flags, sizes, times. A piece has another
name in each session, so equal pictures in two of them cannot be told to be equal.

A row is bound to its place where the caller knows it, that is where it gives `after`. Without it
the store chooses the place only while it writes, and a row could be moved inside its own session
unnoticed: never into another, and never as another kind.

A fork is given the keys of the rows that are copied for it, and of their pieces, one by one: the
port has no way to write them anew, and the parent's own secret would let an erased parent be read
for as long as a fork of it lives. What is not copied it reads with its ancestors' keys, while they
are there. Erasing destroys the keys first: whatever is left of a session, in a backup or after a
crash, is noise from then on.
"""

from collections.abc import Sequence

import msgspec

from foldline.errors import BadInput, Conflict, Erased, FoldlineError, Sealed, Unsupported
from foldline.stores import keyring
from foldline.stores.base import Draft, Entry, Found, Head, Name, Receipt, Retention, Row, Store
from foldline.stores.keyring import ForkKeys, OpenedRow, Ring

SPACE = "crypt"
"""The part of the side table that is ours."""
REACH = 10_000
"""How many of a session's newest places a search looks at."""
_STEP = 500
_CACHED = 1_024  # sessions whose keys are held in memory
_PLACE = (SPACE, "keys")


class CryptStore:
    """A store that keeps nothing readable; `older` are master keys that still open sessions."""

    def __init__(self, inner: Store, key: bytes, *, older: Sequence[bytes] = ()) -> None:
        for one in (key, *older):
            _check(one)
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
        """Add rows at the end of a log, sealed; the place of the last one."""
        ring = await self._writing(name)
        places = [None if after is None else after + at for at in range(1, len(draft.rows) + 1)]
        rows = [ring.seal(row, place=at) for row, at in zip(draft.rows, places, strict=True)]
        named = ((ring.name(one), ring.key(one), body) for one, body in draft.blobs.items())
        blobs = {stored: keyring.box(key, body, stored) for stored, key, body in named}
        known = None if once is None else ring.once(once)
        try:
            return await self._inner.append(
                name, Draft(rows, blobs), after=after, fence=fence, once=known
            )
        except Erased:
            self._rings.pop(name, None)
            raise

    async def head(self, name: Name, *, at: int | None = None) -> Head:
        """Where a log ends; what is behind `at` counts as not there yet."""
        head = await self._inner.head(name, at=at)
        if head.edit is None:
            return head
        ((edit, _),) = await self._opened(name, [head.edit])
        return msgspec.structs.replace(head, edit=edit.row)

    async def read(self, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
        """The rows of some spans in order; of a fork also its ancestors'."""
        rows = await self._inner.read(name, spans)
        return [one.row for one, _ in await self._opened(name, rows)]

    async def blobs(self, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
        """Large pieces by their hash, as far as this session has them."""
        wanted: dict[str, tuple[str, bytes]] = {}
        ring = await self._ring(name)
        while ring is not None:
            for digest in hashes:
                names = ring.pieces(digest).items()
                wanted |= {stored: (digest, key) for stored, key in names}
            ring = await self._origin(name, ring)
        found: dict[str, bytes] = {}
        for stored, sealed in (await self._inner.blobs(name, list(wanted))).items():
            digest, key = wanted[stored]
            body = keyring.unbox(key, sealed, stored)
            if body is None:
                raise Sealed(f"a piece of session {name.session!r} was altered; restore a backup")
            found[digest] = body
        return found

    async def fork(self, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
        """A new session that goes on behind `at`, with the keys of what is copied for it."""
        new = Name(name.tenant, to)
        taken = (await self._inner.head(new)).seq
        if taken >= 0:
            raise Conflict(to, -1, taken)
        copied = await self._opened(name, await self._inner.read(name, keep))
        entry = await self._inner.get(new, *_PLACE)
        ring = (
            keyring.new() if entry is None else keyring.unwrap(entry.value, self._masters, new)[0]
        )
        ring = Ring(ring.secret, _given(name.session, [one for one, _ in copied]))
        if not await self._keep(new, ring, entry):
            raise Conflict(to, -1, (await self._inner.head(new)).seq)
        try:
            await self._inner.fork(name, to, at=at, keep=keep)
        except FoldlineError:
            await self._inner.put(new, *_PLACE, None if entry is None else entry.value)
            raise
        self._remember(new, ring)

    async def search(
        self,
        tenant: str,
        words: str,
        *,
        session: str | None = None,
        limit: int = 20,
        owner: str | None = None,
    ) -> list[Found]:
        """Messages of one session that hold all words, among its newest `REACH` places."""
        if session is None:
            raise Unsupported(
                "an encrypted store has no index to search all sessions by; name one `session`"
            )
        from asyncio import to_thread  # noqa: PLC0415 - half of the time of an import

        name = Name(tenant, session)
        head = await self._inner.head(name)
        if owner is not None and head.owner != owner:
            return []
        end = head.seq
        last, found = max(-1, end - REACH), list[Found]()
        while end > last and len(found) < limit:
            start = max(end - _STEP, last) + 1
            opened = await self._opened(name, await self._inner.read(name, [(start, end)]))
            own = [one.row for one, own in opened if own]  # as a store does: ancestors have theirs
            left = limit - len(found)
            found += await to_thread(_matching, name, own, words=words, limit=left)
            end = start - 1
        return found

    async def retain(self, tenant: str, rule: Retention, *, dry: bool = False) -> Receipt:
        """Erase the sessions that a rule leaves no room for; their keys go in the same moment."""
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
        """A value of the side table, unless it has run out."""
        _check_space(space)
        entry = await self._inner.get(name, space, key)
        if entry is None:
            return None
        ring = await self._ring(name)
        value = None if ring is None else ring.side_of(entry.value, space, key)
        if value is None:
            raise Sealed(_lost(name, f"the entry {space}/{key}"))
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
        """Set a value, sealed, or remove it."""
        _check_space(space)
        sealed = None
        if value is not None:
            sealed = (await self._writing(name)).side(value, space, key)
        return await self._inner.put(name, space, key, sealed, version=version, seconds=seconds)

    async def rekey(self, key: bytes, *, tenants: Sequence[str]) -> int:
        """Wrap the keys of all sessions with another master key; how many it were.

        Rows stay as they are. Safe to repeat after a crash. A session that has side values but no
        log is in no list: it is wrapped anew when it is next used, so give the key before as
        `older` for as long as there may be such.
        """
        _check(key)
        self._masters = (key, *(one for one in self._masters if one != key))
        count = 0
        for tenant in tenants:
            session = ""
            page = await self._inner.sessions(tenant)
            count += await self._rewrap(Name(tenant, ""))
            while page:
                for listed in page:
                    session = listed.session
                    count += await self._rewrap(Name(tenant, session))
                page = await self._inner.sessions(tenant, after=session)
        return count

    async def _rewrap(self, name: Name) -> bool:
        while entry := await self._inner.get(name, *_PLACE):
            ring, master = keyring.unwrap(entry.value, self._masters, name)
            if master == self._masters[0] or await self._keep(name, ring, entry):
                return master != self._masters[0]
        return False

    async def _ring(self, name: Name) -> Ring | None:
        """A session's keys: read once, then held until it is erased."""
        ring = self._rings.pop(name, None)
        if ring is None:
            entry = await self._inner.get(name, *_PLACE)
            if entry is None:
                return None
            ring, master = keyring.unwrap(entry.value, self._masters, name)
            if master != self._masters[0]:
                await self._keep(name, ring, entry)
        self._remember(name, ring)
        return ring

    async def _writing(self, name: Name) -> Ring:
        """A session's keys, made where it is new."""
        while (ring := await self._ring(name)) is None:
            begun = (await self._inner.head(name)).seq >= 0
            if begun and await self._inner.get(name, *_PLACE) is None:
                raise Sealed(_lost(name, "its log"))
            new = keyring.new()
            if await self._keep(name, new, None):
                self._remember(name, new)
                return new
        return ring

    async def _keep(self, name: Name, ring: Ring, entry: Entry | None) -> bool:
        """Write keys down, unless somebody else has; False then."""
        wrapped = ring.wrapped(self._masters[0], name)
        version = 0 if entry is None else entry.version
        return await self._inner.put(name, *_PLACE, wrapped, version=version)

    def _remember(self, name: Name, ring: Ring) -> None:
        self._rings[name] = ring
        if len(self._rings) > _CACHED:
            del self._rings[next(iter(self._rings))]

    async def _origin(self, name: Name, ring: Ring) -> Ring | None:
        """The keys of the session that another was forked from, while they are there."""
        origin = ring.kept.origin
        return await self._ring(Name(name.tenant, origin)) if origin else None

    async def _opened(self, name: Name, rows: Sequence[Row]) -> list[tuple[OpenedRow, bool]]:
        """Rows as they were given, each with whether it is the session's own."""
        held = name in self._rings
        try:
            return await self._tried(name, rows)
        except Sealed:
            if not held:
                raise
        self._rings.pop(name, None)  # another process may have forked into it since it was read
        return await self._tried(name, rows)

    async def _tried(self, name: Name, rows: Sequence[Row]) -> list[tuple[OpenedRow, bool]]:
        found: list[tuple[OpenedRow, bool]] = []
        chain: list[Ring] = []
        for row in rows:
            depth, one = 0, None
            while one is None:
                if depth == len(chain):
                    more = await (self._origin(name, chain[-1]) if chain else self._ring(name))
                    if more is None:
                        raise Sealed(_lost(name, f"the row at {row.seq}"))
                    chain.append(more)
                one = chain[depth].open(row)
                depth += 1
            found.append((one, depth == 1))
        return found


def _given(origin: str, copied: Sequence[OpenedRow]) -> ForkKeys:
    pieces: keyring.Pieces = {}
    for one in copied:
        for digest, names in one.pieces.items():
            pieces[digest] = pieces.get(digest, {}) | names
    return ForkKeys(origin, {one.salt: one.key for one in copied}, pieces)


def _matching(name: Name, rows: Sequence[Row], *, words: str, limit: int) -> list[Found]:
    """What SQLite's own index finds among some rows: in memory, and forgotten at once."""
    import apsw  # noqa: PLC0415 - for a search alone

    from foldline.stores import event_log  # noqa: PLC0415
    from foldline.stores.sqlite import rows as tables  # noqa: PLC0415
    from foldline.stores.sqlite import schema  # noqa: PLC0415
    from foldline.stores.sqlite import search as finding  # noqa: PLC0415
    from foldline.stores.sqlite.connection import Db  # noqa: PLC0415

    db = Db(apsw.Connection(":memory:"), event_log.words)
    db.sql("pragma temp_store = memory")  # what is sorted for an answer never touches the disk
    schema.prepare(db.sql, ":memory:")
    tables.append(db, name, Draft(rows))
    hits = finding.search(db, name.tenant, words, session=name.session, limit=limit)
    db.connection.close()
    return [Found(session, rows[at].seq) for session, at in hits]


def _check(key: bytes) -> None:
    if len(key) != keyring.KEY:
        raise BadInput(
            f"a master key is {keyring.KEY} bytes, not {len(key)}: os.urandom({keyring.KEY})"
        )
    keyring.cipher(key)


def _check_space(space: str) -> None:
    if space == SPACE:
        raise BadInput(f"the side space {SPACE!r} holds the keys; choose another name")


def _lost(name: Name, what: str) -> str:
    return (
        f"no key of session {name.session!r} opens {what}: it was written without encryption, "
        "altered, or its erasure was cut short; read it without CryptStore, restore it, or erase it"
    )

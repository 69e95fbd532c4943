"""What a server says of itself and of our schema, as values: `Health`.

Every answer is a value, or `Unseen` where this login may not see it. Knows what a schema of ours
has: its tables, indexes, functions, migrations. Refuses to know how it is asked (`health_queries`),
and what is well and what is not: whoever looks judges.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from foldline.stores.postgres.schema import Migration, released

Applied: TypeAlias = tuple[int, str, str, int]
Setting: TypeAlias = int | str
PARTED: Final = ("events", "seen", "blobs")
BUCKETS: Final = 64
SECURED: Final = ("heads", *PARTED, "side", "erased", "unindexed")
"""The tables that the tenants' policy is forced on."""
DEFINERS: Final = ("learn", "search", "search_of", "forget")
INDEXES: Final = {
    "heads_pkey": "alter table {schema}.heads add primary key (sid)",
    "heads_by_name": "create index heads_by_name on {schema}.heads (tenant, session)",
    "heads_by_owner": "create index heads_by_owner on {schema}.heads (tenant, owner_name, session)",
    "events_pkey": "alter table {schema}.events add primary key (sid, seq)",
    "edits": "create index edits on {schema}.events (sid, seq) where edit",
    "seen_pkey": "alter table {schema}.seen add primary key (sid, key)",
    "blobs_pkey": "alter table {schema}.blobs add primary key (sid, hash)",
    "side_pkey": "alter table {schema}.side add primary key (sid, space, key)",
    "erased_pkey": "alter table {schema}.erased add primary key (sid)",
    "unswept": "create index unswept on {schema}.erased (tenant) where not swept",
    "unindexed_pkey": "alter table {schema}.unindexed add primary key (tenant, sid)",
    "words_pkey": "alter table {schema}.words add primary key (sid, seq)",
    "words_found": "create index words_found on {schema}.words using gin (found) "
    "with (fastupdate = off)",
}
"""How each index is made again."""
_ROUTINE = re.compile(r"create (?:function|procedure) \{schema\}\.(\w+)")


@dataclass(frozen=True, slots=True)
class Unseen:
    """A question without an answer."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The server, and how it is set for this login; sizes in bytes, times in milliseconds."""

    number: int
    """Its version: 150020 is 15.20."""
    replica: bool
    settings: dict[str, Setting]
    lz4: bool
    taken: int
    """Connections of clients."""
    pooled: bool
    """Whether a pooler is between it and us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who we are there."""

    name: str
    bypasses: bool
    """Whether row-level security does not hold for it."""
    watches: bool
    """Whether it sees what others do."""
    role: str
    """The role that works: `SCHEMA_app`."""
    role_there: bool
    role_bypasses: bool
    member: bool
    owner: str | None
    """Who owns the schema; None where there is none."""
    owns: bool
    enters: bool
    """Whether it may use the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table or partition of the schema; sizes in bytes."""

    name: str
    parent: str | None
    bounds: str
    secured: bool
    forced: bool
    heap: int
    indexes: int
    toast: int
    live: int
    dead: int
    analyzed: bool
    lz4: bool | None
    """How its bodies are compressed, where it has any."""
    grants: tuple[tuple[str, str], ...]
    """Who but its owner may do what."""

    @property
    def size(self) -> int:
        """All of it."""
        return self.heap + self.indexes + self.toast


@dataclass(frozen=True, slots=True)
class RowPolicy:
    """A policy of row-level security."""

    table: str
    name: str
    every: bool
    """For every command and role."""
    using: str
    check: str


@dataclass(frozen=True, slots=True)
class Routine:
    """A function or procedure of the schema."""

    name: str
    definer: bool
    search_path: str | None
    public: bool
    """Whether everybody may call it."""
    signature: str


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """An index of the schema that is no partition's."""

    name: str
    valid: bool


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The transaction that began first, of those under way."""

    pid: int
    user: str
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot."""

    name: str
    active: bool
    held: int
    """Bytes of journal that are kept for it."""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """Work that was left for later."""

    unswept: int
    unswept_tenant: str | None
    unindexed: int
    unindexed_tenant: str | None
    """The tenant with the most of them, and how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All answers; of a schema that is not there, None."""

    server: ServerState
    login: Login
    ages: tuple[int, int] | Unseen
    """Transactions and row locks since the oldest that is not frozen."""
    slots: list[Slot] | Unseen
    oldest: OldestTransaction | Unseen | None
    applied: list[Applied] | Unseen
    tables: list[Table] | Unseen
    policies: list[RowPolicy] | Unseen
    routines: list[Routine] | Unseen
    indexes: list[IndexHealth] | Unseen
    public: bool | Unseen
    """Whether everybody may use the schema."""
    waiting: PendingWork | Unseen


@dataclass(frozen=True, slots=True)
class MigrationState:
    """The migrations that a database has against those of this release."""

    missing: list[Migration]
    """Not applied yet."""
    removed: list[Migration]
    """Not in its table, though later ones are."""
    altered: list[Applied]
    newer: list[Applied]
    """Of a later release, that this one can live with."""
    strange: list[Applied]
    """Of a later release, that this one cannot live with."""


def expected_routines() -> set[str]:
    """The functions that this release's migrations make."""
    return {name for one in released() for name in _ROUTINE.findall(one.text)}


def compared(known: Sequence[Migration], applied: Iterable[Applied]) -> MigrationState:
    """What is missing, and what is not as it was released."""
    had = {one[0]: one for one in applied}
    ours = {one.number: one for one in known}
    last = max(had, default=0)
    others = [one for number, one in had.items() if number not in ours]
    lacking = [one for one in known if one.number not in had]
    return MigrationState(
        missing=[one for one in lacking if one.number > last],
        removed=[one for one in lacking if one.number < last],
        altered=[one for one in had.values() if one[0] in ours and ours[one[0]].sha256 != one[2]],
        newer=[one for one in others if one[3] <= known[-1].number],
        strange=[one for one in others if one[3] > known[-1].number],
    )

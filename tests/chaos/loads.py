"""Sessions that append while something is done to their server, and what became of each append.

Knows what an append was told: its place, that nothing was written, or that nobody knows. Afterwards each
that was acknowledged is at its place, once and whole; none that was said not to be written is there; the
others are there once or not at all. Refuses to know what is done to the server.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random

from sqlite import Broken

from foldline.errors import StoreFailed
from foldline.stores.base import Draft, Name, Row
from foldline.stores.postgres import PostgresStore

SESSIONS = 16
WIDE = 7
"""Each so many appends one has three rows; those are sent alone, one row may be sent with others."""
_numbers = count(1)


@dataclass
class Said:
    """What was appended by one load, and what became of it. Its sessions are its own."""

    keyed: bool
    wide: bool = True
    size: int = 8
    """The most bytes of a body beside its name."""
    tenant: str = field(default_factory=lambda: f"load{next(_numbers)}")
    told: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    """How many rows each has."""
    slowest: float = 0.0
    """The most seconds that one waited to hear that it failed."""

    def names(self) -> list[Name]:
        """Its sessions."""
        return [Name(self.tenant, f"s{number}") for number in range(SESSIONS)]

    def failed(self) -> int:
        """How many were not acknowledged."""
        return len(self.unknown) + len(self.refused)


async def talking(store: PostgresStore, said: Said, ended: asyncio.Event) -> None:
    """Sessions append until they are told to end; each event has words of its own."""

    async def one(name: Name) -> None:
        random = Random(name.session)
        for at in count(1):
            if ended.is_set():
                return
            words = f"{name.session}:{at}"
            body = words.encode() + b" " + random.randbytes(random.randint(1, said.size))
            rows = [Row("user_said", body)] * (3 if said.wide and at % WIDE == 0 else 1)
            said.tried[words] = len(rows)
            once, since = words if said.keyed else None, time.monotonic()
            try:
                said.told[words] = await store.append(name, Draft(rows), once=once)
            except StoreFailed as fault:
                why = said.refused if "nothing was written" in str(fault) else said.unknown
                why[words] = str(fault)
                said.slowest = max(said.slowest, time.monotonic() - since)
                await asyncio.sleep(0.05)

    await asyncio.gather(*(one(name) for name in said.names()))


async def verified(store: PostgresStore, said: Said) -> Counter[str]:
    """Every acknowledged append at its place, once; the unknown ones at most once."""
    found: Counter[str] = Counter()
    for name in said.names():
        rows = await store.read(name, [(0, 2**31 - 1)])
        if [row.seq for row in rows] != list(range(len(rows))):
            raise Broken(f"{name.session} is not dense")
        bodies = [row.body.partition(b" ")[0].decode() for row in rows]
        times = Counter(bodies)
        if times.keys() - said.tried.keys():
            raise Broken(f"{name.session} holds what nobody appended")
        last = -1
        for words, whole in said.tried.items():
            if words.partition(":")[0] != name.session:
                continue
            place = said.told.get(words)
            if place is not None and not times[words]:
                raise Broken(f"lost: {words} was acknowledged at {place}")
            if times[words] > whole:
                raise Broken(f"duplicated: {words} is there {times[words]} times")
            if times[words] not in (0, whole):
                raise Broken(f"torn: {times[words]} of {whole} rows of {words}")
            if words in said.refused and times[words]:
                raise Broken(f"{words} is there, and was said not to be: {said.refused[words]}")
            if times[words]:
                end = bodies.index(words) + whole - 1
                if place not in (None, end) or bodies[end] != words or end <= last:
                    raise Broken(f"reordered: {words} ends at {end}, acknowledged at {place}")
                last = end
            found["appends"] += place is not None
            found["said not to be written"] += words in said.refused
            found["unknown, there"] += words in said.unknown and times[words] > 0
            found["unknown, not there"] += words in said.unknown and not times[words]
    return found

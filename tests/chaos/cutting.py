"""A TCP proxy between a store and its server: it does one thing, once, at the n-th message.

    before       cut; the server never had it
    half         cut in the midst of its bytes
    after        cut; the server did it, and nobody hears the answer
    half answer  cut in the midst of the answer
    panic        the same, and the answer is the last word of a server whose journal's disk is full
    late         it arrives after 0.3 s
    stalled      it arrives long after the caller lost patience and called again

for every n of what one client sends: opening, appends alone, together and of several rows, reading,
good-bye. Appends with a key go on by themselves, but behind a stall, and are there once and in order;
those without are told what became of them, and that is true. Knows messages as what a client sends at
once. Refuses to know what is in them.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from clusters import Cluster
from sqlite import Broken

from foldline.errors import StoreFailed
from foldline.stores.base import Draft, Name, Row
from foldline.stores.postgres import PostgresStore

CUTS = ("before", "half", "after", "half answer", "panic")
HOWS = (*CUTS, "late", "stalled")
LATE, STALL, PATIENCE = 0.3, 1.2, 0.4
AT_ONCE = 8
TURNS = 2
TOGETHER = 6
_numbers = count(1)

_FIELDS = (b"SPANIC", b"VPANIC", b"C53100", b'Mcould not write to file "pg_wal/xlogtemp.1": No space left on device')  # fmt: skip
_BODY = b"\0".join(_FIELDS) + b"\0\0"
PANIC = b"E" + (len(_BODY) + 4).to_bytes(4, "big") + _BODY


@dataclass
class _Line:
    """One connection: once it is deaf its client hears nothing more."""

    deaf: bool = False
    answer: bytes = b""
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """Strikes at the n-th message of all its connections; never, where n is 0."""

    def __init__(self, port: int, at: int, how: str) -> None:
        self.port, self.at, self.how, self.seen = port, at, how, 0
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def done(self) -> bool:
        """Whether there was an n-th message."""
        return 0 < self.at <= self.seen

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one side ends it or we do."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await self._relayed(reader, writer)
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _relayed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self.port)
        line = _Line()
        back = asyncio.create_task(self._answers(there, writer, line))
        try:
            while chunk := await reader.read(1 << 16):
                self.seen += 1
                if self.seen == self.at:
                    if await self._cuts(chunk, to, writer, line=line):
                        break
                else:
                    to.write(chunk)
                    await to.drain()
        finally:
            back.cancel()
            to.transport.abort()

    async def close(self) -> None:
        """End what is left."""
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _cuts(
        self, chunk: bytes, to: asyncio.StreamWriter, writer: asyncio.StreamWriter, *, line: _Line
    ) -> bool:
        """Do it; whether the connection ends here."""
        match self.how:
            case "before":
                return True
            case "half":
                to.write(chunk[: len(chunk) // 2])
                await to.drain()
                return True
            case "late" | "stalled":
                await asyncio.sleep(LATE if self.how == "late" else STALL)
                to.write(chunk)
                await to.drain()
                return False
        line.deaf = True
        to.write(chunk)
        await to.drain()
        with contextlib.suppress(TimeoutError):  # a good-bye has no answer
            await asyncio.wait_for(line.answered.wait(), 5)
        if self.how == "half answer":
            writer.write(line.answer[: len(line.answer) // 2])
        elif self.how == "panic":
            writer.write(PANIC)
        await writer.drain()
        return True

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: _Line
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                if line.deaf:
                    line.answer = line.answer or chunk
                    line.answered.set()
                else:
                    writer.write(chunk)
                    await writer.drain()
            line.answered.set()
            if not line.deaf:
                writer.close()


async def struck(cluster: Cluster, schema: str, at: int, *, how: str, pool: int) -> Proxy:
    """Open, append in every way and read, through a proxy that strikes once: all there once."""
    proxy = Proxy(cluster.port, at, how)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    store = PostgresStore(cluster.address(schema, port=port, pool=pool))
    try:
        await _spoken(store, f"{how} at {at}, {next(_numbers)}", patient=how != "stalled")
    except StoreFailed as fault:
        raise Broken(f"{how} at message {at}: an append with a key gave up: {fault}") from fault
    finally:
        await store.close()
        listening.close()
        await proxy.close()
    return proxy


async def _spoken(store: PostgresStore, tenant: str, *, patient: bool) -> None:
    async def append(name: Name, *bodies: bytes, key: str) -> None:
        async def work() -> int:
            return await store.append(name, Draft([Row("user_said", one) for one in bodies]), once=key)  # fmt: skip

        await (work() if patient else _until_done(work))

    names = [Name(tenant, f"s{n}") for n in range(TOGETHER)]
    await _until_done(lambda: store.head(names[0]))
    wanted: dict[Name, list[bytes]] = {name: [] for name in names}
    plain, told = Name(tenant, "plain"), dict[bytes, str]()
    for turn in range(TURNS):
        alone, wide, own = (f"{word} {turn}".encode() for word in ("alone", "wide", "plain"))
        together = b"together %d" % turn
        await append(names[0], alone, key=f"alone {turn}")
        await asyncio.gather(*(append(name, together, key=f"together {turn}") for name in names))
        await append(names[1], wide, wide, key=f"wide {turn}")
        wanted[names[0]].append(alone)
        for name in names:
            wanted[name].append(together)
        wanted[names[1]] += [wide, wide]
        try:
            await store.append(plain, Draft([Row("user_said", own)]))
            told[own] = "done"
        except StoreFailed as fault:
            told[own] = str(fault)
    for name in names:
        found = [row.body for row in await store.read(name, [(0, 99)])]
        if found != wanted[name]:
            raise Broken(f"{tenant}: {name.session} holds {found}")
    found = [row.body for row in await store.read(plain, [(0, 99)])]
    if found != [body for body in told if body in found]:
        raise Broken(f"{tenant}: what has no key holds {found}")
    for body, words in told.items():
        if (words == "done" and body not in found) or (
            "nothing was written" in words and body in found
        ):
            raise Broken(f"{tenant}: {body!r} was told {words!r}, and the log holds {found}")


async def _until_done(work: Callable[[], Awaitable[object]]) -> None:
    """A caller without patience: it asks again. Before the first connection stood nothing is repeated."""
    last: Exception | None = None
    for _ in range(50):
        try:
            async with asyncio.timeout(PATIENCE):
                await work()
        except (StoreFailed, TimeoutError) as fault:
            last = fault
            await asyncio.sleep(0.01)
        else:
            return
    raise Broken(f"fifty calls, and none came through: {last!r}")


async def every_message(
    cluster: Cluster, schema: str, hows: Sequence[str] = HOWS, *, pool: int = 1, each: int = 1
) -> Counter[str]:
    """Strike at every message there is, or each so many, in every way; some at once, each for itself."""
    seen: Counter[str] = Counter()
    messages = (await struck(cluster, schema, 0, how="late", pool=pool)).seen
    room = asyncio.Semaphore(AT_ONCE)

    async def one(how: str, at: int) -> None:
        async with room:
            if (await struck(cluster, schema, at, how=how, pool=pool)).done:
                seen[how] += 1

    for start, how in enumerate(hows):
        places = range(1 + start % each, messages + 1, each)
        try:
            async with asyncio.TaskGroup() as group:
                for at in places:
                    group.create_task(one(how, at))
        except BaseExceptionGroup as found:
            raise found.exceptions[0] from None
        # With one connection the order is given; with more, some are opened or not by chance.
        if seen[how] < (len(places) if pool == 1 else len(places) // 2):
            raise Broken(f"only {seen[how]} of {len(places)} messages were struck: {how}")
    return seen

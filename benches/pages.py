"""The pages: how soon they begin to arrive and how large they are, however much there is to show.

    just bench pages

Of a store with one session, of one with 100,000, and of two sessions of 100,000 events each (one
that was folded as it grew, one that never was), every page is asked for in turn. The first request
of a page is counted too: it is the one that people wait for.

Exits 1 where the median of the first byte takes 200 ms or more, or a page has more than 300 kB.
"""

import argparse
import asyncio
import http.client
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from urllib.parse import urlencode

import apsw

import foldline
from foldline.core.log import Asked, ModelSaid, Opened, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Text
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

MODEL = "anthropic/claude-sonnet-4-5"
SECONDS, BYTES = 0.2, 300_000
PROGRAM = Path(sys.executable).with_name("foldline")
WORDS = "Look at parser.py and tell me why line {0} fails; the last change was in build {0}. " * 3


def make_turn(at: int) -> list:
    """A turn of five events, as an agent records it."""
    text = WORDS.format(at)
    return [
        UserSaid((Text(text),)),
        ModelSaid(
            (
                Text(f"I read it first. {at}"),
                Call(f"c{at}", "read_file", f'{{"path":"src/m{at}.py"}}'),
            )
        ),
        ToolReturned(f"c{at}", (Text(text * 2),)),
        ModelSaid((Text(f"Done: {text}"),)),
        UsageReported(input=20_000 + at % 9_000, cache_read=18_000, output=400),
    ]


async def make_folded(path: Path, name: str, events: int) -> None:
    """A session that was planned as it grew, and so was folded."""
    async with await foldline.aopen(
        str(path), model=MODEL, window=128_000, session=name
    ) as session:
        at = 0
        while session.live.view.head < events:
            batch = [event for turn in range(at, at + 20) for event in make_turn(turn)[:-1]]
            await session.add(batch)
            at += 20
            await session.add(f"Go on with {at}.")
            await session.request()
            await session.add([ModelSaid((Text(f"Yes, {at}."),))])


async def make_plain(path: Path, name: str, events: int) -> None:
    """A session of another agent, which recorded no requests and folded nothing."""
    store, at = store_at(str(path)), 0
    await event_log.append_events(store, Name("local", name), [Opened(MODEL)])
    while at * 5 < events:
        batch = [event for turn in range(at, at + 400) for event in make_turn(turn)]
        await event_log.append_events(store, Name("local", name), batch)
        at += 400
    await store.close()


async def make_small(path: Path, name: str) -> None:
    """A session of a few turns."""
    store = store_at(str(path))
    asked = Asked(at=1, dialect="anthropic", sha256="0" * 64, encoder=1, tokens=900)
    events = [Opened(MODEL), make_turn(0)[0], asked, *make_turn(0)[1:]]
    await event_log.append_events(store, Name("local", name), events)
    await store.close()


def multiply(path: Path, name: str, count: int) -> None:
    """Copy a session until there are so many; through SQL, since each append waits for the disk."""
    db = apsw.Connection(str(path))
    ((sid,),) = db.execute("select sid from sessions where session = ?", (name,)).fetchall()
    with db:
        db.execute(
            "create temp table n as with recursive n(i) as (select 1 union all"
            " select i + 1 from n where i < ?) select i from n",
            (count - 1,),
        )
        db.execute(
            "insert into sessions (sid, tenant, session, head, size, opened, changed, owner)"
            " select 1000000 + i, 'local', printf('talk-%06d', i), head, size + i % 977, opened - i,"
            " changed - i, printf('owner%d', i % 40) from n, sessions where sid = ?",
            (sid,),
        )
        db.execute(
            "insert into events select 1000000 + i, seq, kind, edit, time, body"
            " from n, events where sid = ?",
            (sid,),
        )
    db.close()


def make_stores(folder: Path, *, sessions: int, events: int) -> tuple[Path, Path]:
    """Make a store of one session and one of many in a folder, unless they are there."""
    one, many = folder / "one.db", folder / "many.db"
    if not one.exists():
        asyncio.run(make_small(one, "first"))
    if not many.exists():
        part = folder / "part.db"
        asyncio.run(make_small(part, "first"))
        asyncio.run(make_folded(part, "folded", events))
        asyncio.run(make_plain(part, "plain", events))
        multiply(part, "first", sessions)
        part.replace(many)
    return one, many


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[int, str]]:
    """`foldline ui` as a process: its port, and the cookie of a browser that is signed in."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [PROGRAM, "ui", "--store", path, *options], stdout=subprocess.PIPE, text=True
    )
    try:
        found = re.search(r":(\d+)(/enter\S+)", process.stdout.readline())
        port = int(found[1])
        cookie = ask(port, found[2])[3]
        yield port, cookie
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()


def ask(port: int, path: str, cookie: str = "") -> tuple[int, float, int, str]:
    """Status, seconds to the first byte, bytes, and the cookie that was set."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = perf_counter()
    client.request("GET", path, headers={"cookie": cookie} if cookie else {})
    answer = client.getresponse()
    answer.read(1)
    first = perf_counter() - began
    size = 1 + len(answer.read())
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    client.close()
    return answer.status, first, size, cookie


def link(page: str, /, **given: object) -> str:
    """The address of a page."""
    return f"/{page}?{urlencode(given)}"


def list_pages(events: int) -> dict[str, str]:
    """The pages that are asked for, by what they are."""
    middle = events // 2
    return {
        "list": "/",
        "list, searched": link("", q="99"),
        "list, by cost": link("", sort="cost"),
        "list, by name, page 900": link("", sort="name", page=900),
        "folded, last request": link("session", name="folded"),
        "folded, middle": link("session", name="folded", at=middle),
        "folded, now": link("session", name="folded", at="now"),
        "folded, original": link("original", name="folded", at=middle),
        "plain, last request": link("session", name="plain"),
        "plain, middle": link("session", name="plain", at=middle),
        "search, a session": link("search", name="folded", q="build 4711"),
        "search, all messages": link("search", q="build 4711"),
        "fleet": "/fleet",
    }


def measure(path: Path, pages: dict[str, str], rounds: int, *, calm: float) -> bool:
    """Ask for each page in turn; print its figures, and say whether all are within the targets."""
    fine = True
    with served(path) as (port, cookie):
        opening = ask(port, "/", cookie)[1]
        sleep(calm)
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in pages}
        for _ in range(rounds):
            for name, address in pages.items():
                status, first, size, _ = ask(port, address, cookie)
                assert status == 200, (name, status)
                found[name].append((first, size))
        print(f"  {'the very first request':28} {1000 * opening:7.1f} ms")
        for name, rows in found.items():
            median = statistics.median(first for first, _ in rows)
            most, size = max(first for first, _ in rows), max(size for _, size in rows)
            good = median < SECONDS and size <= BYTES
            fine &= good
            said = "" if good else "  MISSED"
            print(
                f"  {name:28} {1000 * median:7.1f} ms  most {1000 * most:7.1f}  {size / 1000:6.1f} kB{said}"
            )
    return fine and opening < SECONDS


def main() -> int:
    """Make the stores, ask, and print."""
    given = argparse.ArgumentParser()
    given.add_argument("--sessions", type=int, default=100_000)
    given.add_argument("--events", type=int, default=100_000)
    given.add_argument("--rounds", type=int, default=9)
    given.add_argument("--keep", type=Path, help="A folder for the stores; made once.")
    wanted = given.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as made:
        folder = wanted.keep or Path(made)
        folder.mkdir(exist_ok=True)
        one, many = make_stores(folder, sessions=wanted.sessions, events=wanted.events)
        print("one session")
        fine = measure(
            one,
            {
                "list": "/",
                "session": link("session", name="first"),
                "now": link("session", name="first", at="now"),
            },
            wanted.rounds,
            calm=0.5,
        )
        print(f"{wanted.sessions:,} sessions, two of them of {wanted.events:,} events")
        fine &= measure(many, list_pages(wanted.events), wanted.rounds, calm=5.0)
    print("within 200 ms and 300 kB" if fine else "a target was missed")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

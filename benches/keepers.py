"""What other libraries take to load a session from SQLite and append a turn: the child of benches/sqlite.py.

Runs in the environment of `just peers`, without Foldline. Reads one JSON line from stdin, with a folder,
the messages and the turns that follow; then a peer's name a line, and answers each with a JSON line:
seconds to load, seconds to append, and how many items were loaded. A peer that is not installed is named
with the reason, and left out. The history is written and the new items are made before the clock starts.
"""

import asyncio
import gc
import importlib.metadata
import json
import logging
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from peers import adk_event

Messages = list[dict[str, str]]
"""Each a role (user, model, call, result), its text, and a call's id."""


class Agents:
    """openai-agents' `SQLiteSession`."""

    package = "openai-agents"

    def __init__(self, path: str) -> None:
        from agents import SQLiteSession  # noqa: PLC0415

        self.open = lambda: SQLiteSession("one", path)

    def made(self, messages: Messages) -> list[Any]:
        """The library's own items."""
        return [self.one(**message) for message in messages]

    def one(self, role: str, text: str, call: str = "") -> Any:
        """One of them."""
        if role == "call":
            arguments = json.dumps({"n": call, "text": text})
            return {"type": "function_call", "call_id": call, "name": "run", "arguments": arguments}
        if role == "result":
            return {"type": "function_call_output", "call_id": call, "output": text}
        return {"role": "user" if role == "user" else "assistant", "content": text}

    async def write(self, items: list[Any]) -> None:
        """The history, before anything is measured."""
        session = self.open()
        await session.add_items(items)
        session.close()

    async def load(self) -> int:
        """As a new process does; how many items."""
        self.session = self.open()
        return len(await self.session.get_items())

    async def append(self, items: list[Any]) -> None:
        """A turn."""
        await self.session.add_items(items)

    async def close(self) -> None:
        """Until the next time."""
        self.session.close()


class Adk:
    """google-adk's `SqliteSessionService`."""

    package = "google-adk"

    def __init__(self, path: str) -> None:
        from google.adk.sessions.sqlite_session_service import (  # noqa: PLC0415
            SqliteSessionService,
        )

        self.path = path
        self.open = lambda: SqliteSessionService(path)
        self.key = {"app_name": "bench", "user_id": "acme", "session_id": "one"}

    def made(self, messages: Messages) -> list[Any]:
        """The library's own events."""
        return [adk_event(**message) for message in messages]

    async def write(self, items: list[Any]) -> None:
        """The history, in one transaction: by its own door each event is one."""
        session = await self.open().create_session(**self.key)
        key = (session.app_name, session.user_id, session.id)
        rows = [(e.id, *key, "i", e.timestamp, e.model_dump_json(exclude_none=True)) for e in items]
        with sqlite3.connect(self.path) as connection:
            connection.executemany(
                "insert into events (id, app_name, user_id, session_id, invocation_id, timestamp,"
                " event_data) values (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
        connection.close()

    async def load(self) -> int:
        """As a new process does; how many events."""
        self.service = self.open()
        self.session = await self.service.get_session(**self.key)
        return len(self.session.events)

    async def append(self, items: list[Any]) -> None:
        """A turn."""
        for event in items:
            await self.service.append_event(self.session, event)

    async def close(self) -> None:
        """It keeps nothing open."""


PEERS = {"openai-agents SQLiteSession": Agents, "adk SqliteSessionService": Adk}


async def measured(peer: Any, turn: Messages) -> dict[str, Any]:
    """Load, append, close."""
    new = peer.made(turn)
    gc.collect()
    start = time.perf_counter()
    count = await peer.load()
    loaded = time.perf_counter()
    await peer.append(new)
    end = time.perf_counter()
    await peer.close()
    return {"load": loaded - start, "append": end - loaded, "items": count}


async def main() -> None:
    """Say who is here, then answer one line at a time."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    logging.disable(logging.CRITICAL)
    given = json.loads(sys.stdin.readline())
    found: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name, peer in PEERS.items():
        try:
            made = peer(str(Path(given["folder"]) / f"{peer.package}.db"))
            await made.write(made.made(given["history"]))
            found[name] = made
            notes[name] = f"{peer.package} {importlib.metadata.version(peer.package)}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured
            first = (str(error).splitlines() or [""])[0]
            notes[name] = f"not here: {type(error).__name__}: {first[:120]}"
    print(json.dumps({"python": sys.version.split()[0], "peers": notes}), file=answers)
    turns = dict.fromkeys(found, 0)
    for line in sys.stdin:
        name = line.strip()
        answer = await measured(found[name], given["turns"][turns[name]])
        turns[name] += 1
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    asyncio.run(main())

"""What other libraries take of PostgreSQL for the same history: the child of benches/postgres.py.

Runs in the environment of `just peers`, without Foldline. Reads one JSON line from stdin: where the server
is, a schema, the messages and the turns that follow; then a peer's name and what is asked of it a line, and
answers each with a JSON line: seconds, and how many items there were. Services and their connections stay
open, as in a server. The history is written and the new items are made before the clock starts. A peer that
is not installed is named with the reason, and left out.
"""

import asyncio
import gc
import importlib.metadata
import json
import logging
import os
import sys
import time
from typing import Any

import keepers
from keepers import Messages


def engine(given: dict[str, Any]) -> Any:
    """By the driver that both document; each keeps its tables in our schema."""
    from sqlalchemy import URL  # noqa: PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    return create_async_engine(
        URL.create("postgresql+asyncpg", **given["server"]),
        connect_args={"server_settings": {"search_path": given["schema"]}},
    )


class Agents(keepers.Agents):
    """openai-agents' `SQLAlchemySession`."""

    def __init__(self, given: dict[str, Any]) -> None:
        from agents.extensions.memory import SQLAlchemySession  # noqa: PLC0415

        self.session = SQLAlchemySession("one", engine=engine(given), create_tables=True)

    async def write(self, items: list[Any]) -> None:
        """The history."""
        await self.session.add_items(items)

    async def load(self) -> int:
        """All, as its runner does before a turn."""
        return len(await self.session.get_items())

    async def last(self, count: int) -> int:
        """The newest ones, as its runner does where it was given a limit."""
        return len(await self.session.get_items(limit=count))


class Adk(keepers.Adk):
    """google-adk's `DatabaseSessionService`."""

    def __init__(self, given: dict[str, Any]) -> None:
        from google.adk.sessions.database_session_service import (  # noqa: PLC0415
            DatabaseSessionService,
        )

        self.service = DatabaseSessionService(db_engine=engine(given))
        self.key = {"app_name": "bench", "user_id": "acme", "session_id": "one"}

    async def write(self, items: list[Any]) -> None:
        """The history, in one transaction: by its own door each event is one."""
        from google.adk.sessions.schemas.v1 import StorageEvent  # noqa: PLC0415

        session = await self.service.create_session(**self.key)
        async with self.service.database_session_factory() as transaction:
            transaction.add_all([StorageEvent.from_event(session, event) for event in items])
            await transaction.commit()
        await self.last(1)

    async def load(self) -> int:
        """All, as its runner does before a turn."""
        self.session = await self.service.get_session(**self.key)
        return len(self.session.events)

    async def last(self, count: int) -> int:
        """The newest ones, as its runner does where it was told so."""
        from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: PLC0415

        config = GetSessionConfig(num_recent_events=count)
        self.session = await self.service.get_session(**self.key, config=config)
        return len(self.session.events)


PEERS = {"openai-agents SQLAlchemySession": Agents, "adk DatabaseSessionService": Adk}


async def measured(peer: Any, what: str, turn: Messages) -> dict[str, Any]:
    """One thing."""
    new = peer.made(turn)
    gc.collect()
    start = time.perf_counter()
    match what:
        case "append":
            await peer.append(new)
            count = len(new)
        case "last":
            count = await peer.last(40)
        case _:
            count = await peer.load()
    return {"seconds": time.perf_counter() - start, "items": count}


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
            made = peer(given)
            await made.write(made.made(given["history"]))
            found[name] = made
            packages = (peer.package, "sqlalchemy", "asyncpg")
            notes[name] = ", ".join(f"{one} {importlib.metadata.version(one)}" for one in packages)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured
            first = (str(error).splitlines() or [""])[0]
            notes[name] = f"not here: {type(error).__name__}: {first[:120]}"
    print(json.dumps({"python": sys.version.split()[0], "peers": notes}), file=answers)
    turns = dict.fromkeys(found, 0)
    for line in sys.stdin:
        name, what = line.rstrip("\n").split("\t")
        answer = await measured(found[name], what, given["turns"][turns[name]])
        turns[name] += what == "append"
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    asyncio.run(main())

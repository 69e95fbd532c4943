"""Keys are rotated every second under load: no call fails, no conversation begins anew, no cache goes cold.

Several gateway processes at one port, over one PostgreSQL. Each conversation sends its whole history with
whichever key is the newest. At the end the keys are revoked, and all processes refuse them within two seconds.

    just chaos rotation --seconds 600 --processes 4
"""

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from program import served
from serving import address_of, an_empty_schema

from foldline.apps.gateway.key_store import KeyRecord, KeyTable
from foldline.stores.open_store import store_at
from foldline.testing import Provider

CONVERSATIONS = 50
_EVERY = 1.0  # seconds between two rotations
_GRACE = 20.0  # seconds that a key is valid after it was rotated: longer than a call waits on a busy machine
_LEAST = 4  # turns of each conversation
_WINDOW = 6_000
_WORDS = 600  # of a message: a conversation is folded after a few turns


@dataclass
class Rotation:
    """What happened."""

    key: str = ""
    keys: int = 0
    calls: int = 0
    folds: int = 0
    failed: list = field(default_factory=list)
    moved: list = field(default_factory=list)
    cold: list = field(default_factory=list)
    given: dict = field(default_factory=dict)
    """When each key was handed out."""
    slow: float = 0.0
    """How long the slowest rotation took."""
    revoked: float = 0.0
    """Seconds after its revocation that a key was taken last."""

    def __str__(self):
        return (
            f"{self.calls} calls of {CONVERSATIONS} conversations with {self.keys} keys: "
            f"{len(self.failed)} failed, {len(self.moved)} began anew, {len(self.cold)} cold, "
            f"{self.folds} edits; a revoked key was taken for {self.revoked:.2f} s; "
            f"a rotation took {self.slow:.1f} s at most"
        )


async def talk(port, seen, name, until):
    """One conversation: its history is sent whole, each time with the newest key."""
    said = [{"role": "system", "content": f"You are {name}."}]
    session, before = "", []
    turns = 0
    client = aiohttp.ClientSession()
    try:
        while time.monotonic() < until or turns < _LEAST:
            turns += 1
            words = " ".join(f"{name}-{turns}-{at}" for at in range(_WORDS // 5))
            said.append({"role": "user", "content": f"{words} {'and so on ' * (_WORDS // 3)}"})
            body = {"model": "m", "messages": said, "user": name}
            headers = {"authorization": f"Bearer {seen.key}"}
            if turns % 3 == 0:
                await client.close()  # another connection, so often another process
                client = aiohttp.ClientSession()
            seen.calls += 1
            key, begun = seen.key, time.monotonic()
            try:
                async with client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, headers=headers) as answer:  # fmt: skip
                    told = await answer.json(content_type=None)
                    if answer.status != 200:
                        seen.failed.append(
                            (
                                name,
                                turns,
                                answer.status,
                                str(told)[:80],
                                f"took {time.monotonic() - begun:.1f} s, key given {begun - seen.given[key]:.1f} s before",
                            )
                        )
                        continue
            except aiohttp.ClientError as fault:
                seen.failed.append((name, turns, repr(fault)))
                continue
            sent = seen.sent.pop(name)
            edits = int(answer.headers["x-foldline-edits"])
            seen.folds += edits
            if session and answer.headers["x-foldline-session"] != session:
                seen.moved.append((name, turns))
            if sent[: len(before)] != before and not edits:
                seen.cold.append((name, turns))
            session, before = answer.headers["x-foldline-session"], sent
            said.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})
    finally:
        await client.close()


async def rotate(table, seen):
    """Make a new key every second, and hand it out."""
    while True:
        await asyncio.sleep(_EVERY)
        begun = time.monotonic()
        seen.key, _ = await table.rotate_key("acme", "fleet", grace=_GRACE)
        seen.given[seen.key] = time.monotonic()
        seen.slow = max(seen.slow, time.monotonic() - begun)
        seen.keys += 1


async def revoke(table, port, seen):
    """Revoke all keys, and see how long one is taken by any process."""
    async with aiohttp.ClientSession() as known:
        url, headers = f"http://127.0.0.1:{port}/sessions", {"authorization": f"Bearer {seen.key}"}

        async def ask():
            async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as answer:  # fmt: skip
                return answer.status

        async with known.get(url, headers=headers) as answer:
            assert answer.status == 200
        assert {*await asyncio.gather(*(ask() for _ in range(24)))} == {200}
        await table.revoke_keys("acme", "fleet")
        begun = time.monotonic()
        while time.monotonic() < begun + 3.0:
            asked = time.monotonic()
            if 200 in await asyncio.gather(*(ask() for _ in range(8))):
                seen.revoked = asked - begun
        async with known.get(url, headers=headers) as answer:
            assert answer.status == 401


async def run_load(address, port, seconds, sent):
    """All conversations, while keys are rotated."""
    store = store_at(address)
    table, seen = KeyTable(store), Rotation()
    seen.sent = sent
    seen.key = await table.add_key(KeyRecord(digest="", tenant="acme", name="fleet", owner="fleet"))
    seen.given[seen.key] = time.monotonic()
    seen.keys = 1
    rotating = asyncio.create_task(rotate(table, seen))
    until = time.monotonic() + seconds
    await asyncio.gather(*(talk(port, seen, f"talk-{at}", until) for at in range(CONVERSATIONS)))
    rotating.cancel()
    await asyncio.gather(rotating, return_exceptions=True)
    await revoke(table, port, seen)
    await store.close()
    return seen


def rotate_under_load(address, folder, *, seconds, processes):
    """Start the gateways, and return what happened."""
    sent = {}

    def answer(given):
        sent[given["user"]] = given["messages"]
        return {"content": f"Heard {len(given['messages'])}."}

    with Provider(answer, window=_WINDOW) as provider, ExitStack() as stack:
        options = ["--upstream", provider.url, "--keys", "store", "--store", address, "--window", _WINDOW, "--reuse-port"]  # fmt: skip
        env = {"FOLDLINE_UPSTREAM_KEY": "sk-operators", "HOME": str(folder)}
        port = 0
        for _ in range(processes):
            begun = stack.enter_context(served([*map(str, options), "--port", str(port)], folder, **env))  # fmt: skip
            port = begun.port
        return asyncio.run(run_load(address, port, seconds, sent))


def main(given=None):
    """Run it for as long as is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--processes", type=int, default=3)
    asked = parser.parse_args(given)
    with an_empty_schema() as schema, tempfile.TemporaryDirectory() as folder:
        seen = rotate_under_load(address_of(schema), Path(folder), seconds=asked.seconds, processes=asked.processes)  # fmt: skip
    print(seen, *seen.failed[:5], sep="\n")
    return 1 if seen.failed or seen.moved or seen.cold or seen.revoked >= 2 else 0


if __name__ == "__main__":
    sys.exit(main())

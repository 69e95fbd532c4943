"""The gateway beside a bare pass-through of the same stack: requests a second with prompts of 100 kB.

One run, on loopback, rounds in turn: an upstream that answers at once, the bare pass-through of uvicorn and
aiohttp below, and `foldline serve --plain`, each a process of its own. Exits 1 where the relay without sessions
is below 0.7 of the bare one's rate.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLAIN = 0.7
HERE = Path(__file__)
BODY = b'{"model":"m","messages":[{"role":"user","content":"%s"}]}' % (b"word " * 20_000)
ANSWER = b'{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}'


# What each is beside: as little as the stack allows.


async def answering(_scope: Any, receive: Any, send: Any) -> None:
    """An upstream that takes all and answers at once."""
    while (await receive()).get("more_body"):
        pass
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": ANSWER})


class Bare:
    """A pass-through: reads, asks, streams back; no key, no limit, no clock, no count."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.session = upstream, None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        import aiohttp  # noqa: PLC0415 - only where it runs

        if self.session is None:
            self.session = aiohttp.ClientSession(
                auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
            )
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [
            (n.decode(), v.decode())
            for n, v in scope["headers"]
            if n not in (b"host", b"content-length")
        ]
        url = self.upstream + scope["raw_path"].decode()
        async with self.session.request(scope["method"], url, data=body, headers=headers) as answer:
            kept = [
                (n, v)
                for n, v in answer.raw_headers
                if n.lower() not in (b"transfer-encoding", b"connection")
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def stand(what: str, port: int, upstream: str) -> None:
    """Be one of them, in this process."""
    import uvicorn  # noqa: PLC0415

    app = answering if what == "upstream" else Bare(upstream)
    uvicorn.run(app, port=port, log_level="error", lifespan="off", access_log=False)


@contextmanager
def process(*command: str, port: int) -> Iterator[tuple[str, int]]:
    """One of them in a process of its own: its address, and the process."""
    import socket  # noqa: PLC0415

    started = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)  # noqa: S603 - our own
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", started.pid
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(20)


def worked(process_id: int) -> float:
    """Seconds of a core that a process has taken: what a busy machine cannot blur."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(url: str, *, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Requests a second by some clients that wait for each answer, and how long each took."""
    import aiohttp  # noqa: PLC0415

    took: list[float] = []
    end = time.perf_counter() + seconds

    async def one(session: Any) -> None:
        while time.perf_counter() < end:
            begun = time.perf_counter()
            async with session.post(
                url + "/v1/chat/completions",
                data=BODY,
                headers={"authorization": "Bearer none", "content-type": "application/json"},
            ) as answer:
                assert await answer.read() == ANSWER
            took.append(time.perf_counter() - begun)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun = time.perf_counter()
        await asyncio.gather(*(one(session) for _ in range(clients)))
        return len(took) / (time.perf_counter() - begun), took


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--stand", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stand:
        stand(given.stand[0], int(given.stand[1]), given.stand[2])
        return 0
    first = 20_000 + os.getpid() % 20_000
    up, bare, ours = first, first + 1, first + 2
    rates: dict[str, list[float]] = {"bare": [], "plain": []}
    alone: dict[str, list[float]] = {"bare": [], "plain": []}
    work: dict[str, list[float]] = {"bare": [], "plain": []}
    program = str(Path(sys.executable).with_name("foldline"))
    with (
        process(str(HERE), "--stand", "upstream", str(up), "-", port=up) as (upstream, _),
        process(str(HERE), "--stand", "bare", str(bare), upstream, port=bare) as at_bare,
        process(
            program, "serve", "--plain", "--port", str(ours), "--upstream", upstream, port=ours
        ) as at_ours,
    ):
        places = {"bare": at_bare, "plain": at_ours}
        for _ in range(given.rounds):
            for name, (url, process_id) in places.items():
                before = worked(process_id)
                rate, took = asyncio.run(load(url, clients=16, seconds=given.seconds))
                rates[name].append(rate)
                work[name].append((worked(process_id) - before) / len(took) * 1_000)
                _rate, took = asyncio.run(load(url, clients=1, seconds=given.seconds / 2))
                alone[name].append(statistics.median(took) * 1_000)
    for name in places:
        many, one, core = (statistics.median(of[name]) for of in (rates, alone, work))
        print(
            f"{name:8}{many:8.0f} requests/s of 16 clients {core:8.3f} ms of a core each {one:8.2f} ms p50 of one client"
        )
    share = statistics.median(
        of_ours / of_bare for of_ours, of_bare in zip(rates["plain"], rates["bare"], strict=True)
    )
    print(
        f"relay without sessions / bare pass-through: {share:.2f} of its requests/s (target {PLAIN})"
    )
    return 1 if share < PLAIN else 0


if __name__ == "__main__":
    sys.exit(main())

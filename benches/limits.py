"""Limits that several processes of the gateway keep together, under load: what passed, and what was lost.

    just bench limits

Eight gateways at one PostgreSQL, 200 conversations of ten owners that ask any of them, too often. In the midst
two gateways are killed with -9, and PostgreSQL too, which starts again. An upstream counts what really passed:
requests and tokens of each minute, dollars, calls at a time. For each limit: how much more passed than it allows,
how much of it was used, and whether the store has counted less than passed (lost) or more (a killed process'
lease counts as spent).
What limits cost a call is in `just bench gateway`. `--only silence`: what one client can do to all others, see
benches/silence.py. `--only factors`: how much memory requests take, for the runbook.

Exits 1 where more than 1 % passes over a limit, or where a count is lost.
`--short`: three gateways, 30 conversations, some seconds, no kills; on the database that `FOLDLINE_PG` names. The
long form uses a private cluster: see tests/chaos/clusters.py.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import uvloop
from aiohttp import web
from pg_place import a_schema, address_of
from silence import measure_factors, measure_silence

from foldline.apps.gateway.api_keys import create_key
from foldline.stores.open_store import store_at
from gateway import process

sys.path += [str(Path(__file__).parents[1] / "tests" / one) for one in ("chaos", "support")]
from clusters import Cluster, a_cluster
from tallies import count_taken, read_tallies

OVER = 0.01
"""The most that may pass over a limit."""
PICO = 10**12
HERE = Path(__file__).parent
FOLDLINE = str(Path(sys.executable).with_name("foldline"))
QUIET_BEFORE, QUIET_AFTER = 1.5, 0.3  # seconds around a minute's end without requests
ANSWER = 400  # tokens that a call may be answered with
PRICES = {"plain": (1.0, 5.0), "dear-1": (10.0, 50.0), "dear-2": (10.0, 50.0)}
"""Dollars for a million tokens, of input and output."""


@dataclass
class Size:
    """How large a run is, and the limits that it meets."""

    processes: int
    conversations: int
    seconds: float
    requests: int
    tokens: int
    dear: float
    month: float
    places: int
    kills: bool = False


LONG = Size(8, 200, 150.0, 60, 250_000, 0.5, 0.8, 6, kills=True)
SHORT = Size(3, 30, 9.0, 20, 40_000, 0.1, 0.15, 2)


@dataclass
class Passed:
    """One call that reached the upstream."""

    at: float
    owner: str
    tenant: str
    model: str
    tokens: int
    pico: int
    ended: float = 0.0


@dataclass
class Upstream:
    """Answers every call after a moment, and keeps what it took."""

    calls: list[Passed] = field(default_factory=list[Passed])
    dice: random.Random = field(default_factory=lambda: random.Random(7))

    async def answer(self, request: web.Request) -> web.Response:
        """One call; it costs what it costs, whether or not somebody is left to hear it."""
        body = await request.json()
        size = int(request.headers["content-length"])
        tokens_in, tokens_out = size // 5, self.dice.randint(1, body["max_tokens"])
        owner = request.headers["x-owner"]
        dollars_in, dollars_out = PRICES[body["model"]]
        pico = round((tokens_in * dollars_in + tokens_out * dollars_out) * PICO / 1_000_000)
        tenant = owner.partition("-")[0]
        call = Passed(time.time(), owner, tenant, body["model"], tokens_in + tokens_out, pico)
        self.calls.append(call)
        await asyncio.sleep(self.dice.uniform(0.02, 0.3))
        call.ended = time.time()
        said = {"role": "assistant", "content": "ok"}
        usage = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": call.tokens,
        }
        return web.json_response({
            "id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "usage": usage,
            "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
        })  # fmt: skip


@dataclass
class Conversation:
    """A client that asks too often, at any gateway."""

    owner: str
    key: str
    dice: random.Random
    past: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    async def work(self, stage: "LimitStage", session: aiohttp.ClientSession, end: float) -> None:
        """Ask until the end."""
        while (now := time.time()) < end:
            second = now % 60
            if second > 60 - QUIET_BEFORE or second < QUIET_AFTER:
                await asyncio.sleep(0.1)
                continue
            await asyncio.sleep(await self._ask(stage, session))

    async def _ask(self, stage: "LimitStage", session: aiohttp.ClientSession) -> float:
        """One call; returns the seconds until the next."""
        question = {"role": "user", "content": f"{self.owner} {self.dice.random()} " * 30}
        body = {
            "model": self.dice.choice(("plain", "plain", "plain", "dear-1", "dear-2")),
            "max_tokens": ANSWER,
            "messages": [*self.past[-6:], question],
        }
        headers = {"x-foldline-key": self.key, "x-owner": self.owner}
        port = self.dice.choice(stage.ports)
        try:
            async with session.post(
                f"http://127.0.0.1:{port}/v1/chat/completions", json=body, headers=headers,
                timeout=aiohttp.ClientTimeout(20),
            ) as answer:  # fmt: skip
                await answer.read()
                stage.seen[answer.status, answer.headers.get("x-foldline-error", "")] += 1
                if answer.status == 200:
                    self.past += (question, {"role": "assistant", "content": "ok"})
                    return 0.0
                return self.dice.uniform(0.2, 1.0)  # too soon, on purpose
        except (aiohttp.ClientError, TimeoutError, OSError):
            stage.seen[0, "no answer"] += 1
            return 0.2


@dataclass
class LimitStage:
    """What stands in one run."""

    ports: list[int]
    pids: dict[int, int]
    seen: Counter[tuple[int, str]] = field(default_factory=Counter[tuple[int, str]])


def write_settings(folder: Path, size: Size) -> dict[str, str]:
    """The operator's settings and prices; the environment that names them."""
    place = folder / "config" / "foldline"
    place.mkdir(parents=True)
    tables = (
        {"owner": "*", "requests_per_minute": size.requests, "soft": 0.8},
        {"tenant": "acme", "tokens_per_minute": size.tokens},
        {"owner": "*", "model": "dear-*", "dollars_per_day": size.dear, "soft": 0.9},
        {"tenant": "*", "dollars_per_month": 1_000},
        {"tenant": "globex", "dollars_per_month": size.month},
        {"key": "*", "concurrent_calls": size.places},
    )
    text = "\n".join(
        "[[gateway.limits]]\n" + "\n".join(f"{name} = {json.dumps(one)}" for name, one in table.items())
        for table in tables
    )  # fmt: skip
    (place / "foldline.toml").write_text(text)
    models = "\n".join(
        f'["{name}"]\nwindow = 200000\ninput = {one}\noutput = {two}\nmax_output = {ANSWER}'
        for name, (one, two) in PRICES.items()
    )
    (place / "models.toml").write_text(models)
    return {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "FOLDLINE_MODELS": str(place / "models.toml"),
    }


@contextmanager
def gateways(size: Size, *, upstream: str, keys: Path, store: str, env: dict[str, str]) -> Iterator[LimitStage]:  # fmt: skip
    """Several gateways at one store."""
    base = 22_000 + os.getpid() % 20_000
    with ExitStack() as stack:
        stage = LimitStage([], {})
        for at in range(size.processes):
            port = base + at
            command = (FOLDLINE, "serve", "--port", str(port), "--upstream", upstream, "--keys", str(keys), "--store", store)  # fmt: skip
            stage.pids[port] = stack.enter_context(process(*command, port=port, **env))
            stage.ports.append(port)
        yield stage


async def break_things(stage: LimitStage, cluster: Cluster, begun: float, seconds: float) -> None:
    """Kill two gateways, and PostgreSQL between them."""
    for share, what in ((0.25, "gateway"), (0.45, "postgres"), (0.65, "gateway")):
        await asyncio.sleep(max(begun + share * seconds - time.time(), 0))
        if what == "gateway":
            port = stage.ports.pop()
            os.kill(stage.pids[port], signal.SIGKILL)
            print(f"  {time.time() - begun:5.1f} s: a gateway is killed with -9")
            continue
        await asyncio.to_thread(cluster.kill)
        await asyncio.sleep(2.0)
        await asyncio.to_thread(cluster.start)
        print(f"  {time.time() - begun:5.1f} s: PostgreSQL was killed with -9, and is back")


async def run_load(size: Size, folder: Path, store: str, cluster: Cluster | None) -> "Upstream":
    """Let all conversations ask; what the upstream saw, once all is over."""
    upstream = Upstream()
    application = web.Application(client_max_size=10**8)
    application.router.add_post("/v1/chat/completions", upstream.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    keys = folder / "keys"
    owners = [f"acme-{n}" for n in range(8)] + [f"globex-{n}" for n in range(2)]
    shown = {one: create_key(keys, one, tenant=one.partition("-")[0]) for one in owners}
    env = write_settings(folder, size)
    with contextlib.ExitStack() as stack:
        made = gateways(
            size, upstream=f"http://127.0.0.1:{port}/v1", keys=keys, store=store, env=env
        )
        stage = await asyncio.to_thread(stack.enter_context, made)
        left = 60 - time.time() % 60
        if left < min(size.seconds + 3, 50):
            await asyncio.sleep(left + 0.2)
        begun = time.time()
        talks = [
            Conversation(one, shown[one], random.Random(at))
            for at, one in enumerate(owners[n % len(owners)] for n in range(size.conversations))
        ]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            breaking = None
            if cluster is not None:
                breaking = asyncio.create_task(break_things(stage, cluster, begun, size.seconds))
            await asyncio.gather(*(one.work(stage, session, begun + size.seconds) for one in talks))
            if breaking is not None:
                await breaking
        print("  answers:", ", ".join(f"{count} x {status} {code}".rstrip() for (status, code), count in stage.seen.most_common()))  # fmt: skip
        await asyncio.to_thread(stack.close)  # they report what they used
    await runner.cleanup()
    return upstream


def most_at_once(calls: list[Passed]) -> int:
    """The most calls that were under way at the same time."""
    moments = sorted([(one.at, 1) for one in calls] + [(one.ended or one.at, -1) for one in calls])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


@dataclass
class Line:
    """One limit: the worst of all that it counts apart."""

    name: str
    limit: float
    passed: float
    lost: float = 0.0
    more: float = 0.0
    apart: int = 1

    @property
    def over(self) -> float:
        """How much more passed than is allowed, as a share."""
        return max(self.passed / self.limit - 1, 0.0)

    def show(self) -> bool:
        """Print it; whether it holds."""
        met = self.over <= OVER and self.lost <= 1e-6
        print(
            f"  {self.name:52}{self.limit:12,.2f}{self.passed:13,.2f}{self.over:9.2%}"
            f"{self.passed / self.limit:9.1%}{self.lost:10,.2f}{self.more:11,.2f}{'' if met else '  MISSED'}"
        )
        return met


async def count_lines(size: Size, upstream: Upstream, store_address: str) -> list[Line]:
    """What passed of each limit, beside what the store has counted."""
    calls, lines = upstream.calls, list[Line]()
    by_minute: dict[tuple[str, int], list[Passed]] = defaultdict(list)
    for one in calls:
        by_minute[one.owner, int(one.at // 60)].append(one)
        by_minute[one.tenant, int(one.at // 60)].append(one)
    owners = sorted({one.owner for one in calls})
    worst = max(len(by) for (name, _), by in by_minute.items() if name in owners)
    lines.append(
        Line(f"requests a minute, of {len(owners)} owners", size.requests, worst, apart=len(owners))
    )
    tokens = max(
        sum(one.tokens for one in by) for (name, _), by in by_minute.items() if name == "acme"
    )
    lines.append(Line("tokens a minute, of tenant acme", size.tokens, tokens))
    most = max(most_at_once([one for one in calls if one.owner == owner]) for owner in owners)
    lines.append(Line("calls at a time, of each key", size.places, most))
    store = store_at(store_address)
    try:
        dear = Line("dollars a day, of owners x dear-*", size.dear, 0.0)
        for owner in owners:
            tenant = owner.partition("-")[0]
            real = sum(one.pico for one in calls if one.owner == owner and one.model != "plain")
            subject = f"tenant {tenant}, owner {owner}, model dear-*"
            tally = (await read_tallies(store, tenant, subject))["dollars_per_day"]
            dear.passed = max(dear.passed, real / PICO)
            dear.lost += max(real - count_taken(tally), 0) / PICO
            dear.more = max(dear.more, (count_taken(tally) - real) / PICO)
        month = Line("dollars a month, of tenant globex", size.month, 0.0)
        real = sum(one.pico for one in calls if one.tenant == "globex")
        tally = (await read_tallies(store, "globex", "tenant globex"))["dollars_per_month"]
        month.passed, month.lost = real / PICO, max(real - count_taken(tally), 0) / PICO
        month.more = max(count_taken(tally) - real, 0) / PICO
        lines += (dear, month)
    finally:
        await store.close()
    return lines


async def measure_load(size: Size) -> bool:
    """All of it; whether every limit held."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foldline-limits-")))
        cluster = (
            await asyncio.to_thread(stack.enter_context, a_cluster(memory=True))
            if size.kills
            else None
        )
        store = cluster.address() if cluster else address_of(stack.enter_context(a_schema()))
        print(
            f"{size.processes} gateways, {size.conversations} conversations, {size.seconds:.0f} s"
        )
        upstream = await run_load(size, folder, store, cluster)
        print(f"  {len(upstream.calls)} calls reached the upstream")
        print(
            f"  {'limit':52}{'allowed':>12}{'passed':>13}{'over':>9}{'used':>9}{'lost':>10}{'counted +':>11}"
        )
        lines = await count_lines(size, upstream, store)
        shown = [one.show() for one in lines]
        return all(shown)


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=("counts", "silence", "factors"))
    parser.add_argument("--load", default="", help="one load of `silence`, by a word of its name")
    given = parser.parse_args()
    if given.only == "factors":
        measure_factors()
        return 0
    met = given.only == "silence" or uvloop.run(measure_load(SHORT if given.short else LONG))
    if given.only != "counts":
        met &= measure_silence(short=given.short, only=given.load)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

"""Kill gateways and their store under load, break their upstream and hang up on them; miss no answer.

    just chaos gateway              three minutes
    just chaos gateway --short      half a minute

Real `foldline serve` processes before an upstream that answers each call in words of its own, and often not:
429, 500, silence, garbage, an answer cut in its midst. Clients keep their history, send each call to any of the
gateways, hang up on some, ask two things at a time of one conversation, and say a message again until it is
answered, as agents do.

postgresql  two gateways on one private server (`clusters.py`): the server is stopped and started again, a
            gateway is killed -9, another told to end by SIGTERM, and each is started again
sqlite      one gateway on a file, killed and told to end

While the store is away a call waits, and is refused with 503 and a time to come back after when it was away for
half a minute. At the end each conversation
makes one more call in peace, and its log is what its client holds: every message once, in order, every answer
that came whole. Every request of every log is rendered again to its hash, no upstream call is open, no gateway
has grown, and the clients' key is nowhere in the store, in a dump of it, in the logs or in a core.

Controls must be caught, or the run fails: answers that are not kept, messages that enter twice, clients that are
gone and not noticed.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import aiohttp
from clusters import Cluster, a_cluster

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("properties", "support")]
from mutants import broken  # noqa: E402 - beside us
from raw_upstream import CUT, HANG, Recorded, Step, Upstream, chunk, head  # noqa: E402

from foldline.core.edits.undo import iterate_covered_ranges  # noqa: E402
from foldline.core.log import Asked, Folded, ModelSaid, UserSaid  # noqa: E402
from foldline.core.parts import text_of  # noqa: E402
from foldline.core.spine import Range  # noqa: E402
from foldline.session import planning  # noqa: E402
from foldline.session.log_handle import Live  # noqa: E402
from foldline.session.model_facts import build_facts  # noqa: E402
from foldline.stores.base import Name  # noqa: E402
from foldline.stores.open_store import store_at  # noqa: E402
from foldline.testing.provider import written  # noqa: E402

CANARY = "sk-canary-7f3a9c51e2d84b60"
FACTS = build_facts("m", window=None, reserve=None, policy="steady")
GROWTH = 200.0  # megabytes that a gateway may grow by
AWAY = 33.0  # seconds: a store's patience is 30
_PATIENCE = 2.0  # seconds that a client waits
_AFTER = 3.0  # seconds of load when nobody is ended any more
_BACK = 15.0  # seconds in which an answer comes once everything is there again
MUTANTS = {
    "answers that are not kept": (
        "foldline.proxy.exchange", "events = self._read_answer()\n            if events:", "events = []\n            if events:",
    ),
    "messages that enter twice": (
        "foldline.proxy.conversation", "request.chained[match.fresh :]", "request.chained[max(match.fresh - 1, 0) :]",
    ),
    "clients that are gone and not noticed": (
        "foldline.apps.gateway.calls", 'and not (why == "gone" and self.stays)', 'and why != "gone"',
    ),
}  # fmt: skip


class Broken(Exception):  # noqa: N818 - named for what was found
    """Something is not as it must be."""


# The upstream.


@dataclass
class Script:
    """What the upstream does: an answer of its own to each call, or some fault."""

    random: Random
    faults: bool = True
    count: int = 0
    did: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, asked: Recorded) -> list[Step]:
        """The steps of one answer."""
        self.count += 1
        kind = self.random.choice(["429", "500", "hang", "garbage", "cut", "slow"])
        if not self.faults or self.random.random() > 0.25:
            kind = "answer"
        self.did[kind] += 1
        given = json.loads(asked.body)
        words = f"answer {self.count} " + "said in some words " * 5
        whole, events = written("openai", given, {"content": words}, 9)
        parts = [chunk(one.encode()) for one in events] if given.get("stream") else []
        said = json.dumps(whole).encode()
        match kind:
            case "429":
                return [head(429, length=2, more=b"retry-after: 0\r\n") + b"{}"]
            case "500":
                return [head(500, length=2) + b"{}"]
            case "hang":
                return [HANG]
            case "garbage":
                return [head() + chunk(b"\x00\xff no answer \n\n data: {{{\n\n") + chunk(b"")]
            case "cut":
                return [head(), *(parts[:3] or [chunk(said[:40])]), CUT]
            case "slow":
                return [head(), *(step for part in parts for step in (part, 0.05)), *([] if parts else [chunk(said)]), chunk(b"")]  # fmt: skip
            case _:
                if parts:
                    return [head() + b"".join(parts) + chunk(b"")]
                return [head(length=len(said)) + said]


# The gateways.


@dataclass
class Gateway:
    """One real process, started again when it ended."""

    store: str
    upstream: str
    folder: Path
    name: str
    mutant: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    port: int = 0
    started: float = 0.0
    """Megabytes at its start."""
    most: float = 0.0

    def start(self) -> None:
        """Start, and wait until it listens."""
        program = [sys.executable, __file__, "--mutant", self.mutant] if self.mutant else [str(Path(sys.executable).with_name("foldline"))]  # fmt: skip
        given = ["serve", "--upstream", self.upstream, "--port", str(self.port), "--store", self.store, "--drain", "2", "--audit", str(self.folder / "audit"), "--window", "20000", "--retries", "1"]  # fmt: skip
        with (self.folder / f"{self.name}.err").open("ab") as err:
            self.process = subprocess.Popen(
                [*program, *given], stdout=subprocess.PIPE, stderr=err, cwd=self.folder,
                preexec_fn=_may_dump,  # noqa: PLW1509 - it calls nothing that takes a lock
            )  # fmt: skip
        assert self.process.stdout is not None
        found = re.search(rb"http://[^:]+:(\d+)", self.process.stdout.readline())
        if found is None:
            raise Broken(f"a gateway does not start: {self.said()[-400:]}")
        self.port = int(found[1])
        self.started = self.memory()

    def memory(self) -> float:
        """Megabytes that it holds."""
        assert self.process is not None
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0.0
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) / 1_024 if found else 0.0

    def end(self, how: signal.Signals) -> int:
        """End it; with what code it did."""
        assert self.process is not None
        self.most = max(self.most, self.memory() - self.started)
        self.process.send_signal(how)
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Broken(f"a gateway does not end by {how.name}") from None
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def said(self) -> str:
        """What it told on standard error."""
        return (self.folder / f"{self.name}.err").read_text(errors="replace")


def _may_dump() -> None:
    """As on a machine where cores are written."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


# The clients.


@dataclass
class Client:
    """A conversation, and what was answered."""

    name: str
    gateways: list[Gateway]
    random: Random
    told: Counter[str]
    history: list[Any] = field(default_factory=list[Any])
    session: str = ""
    """Where the last answer says it is."""
    aside: list[str] = field(default_factory=list[str])
    """Whole answers to what was asked beside the conversation."""
    unrecorded: set[str] = field(default_factory=set[str])
    """Answers that came with the word that they are in no log."""
    turn: int = 0
    patience: float = _PATIENCE

    async def call(self, web: aiohttp.ClientSession, messages: list[Any], *, calm: bool) -> tuple[str, str] | None:  # fmt: skip
        """One call to any gateway: the answer and its session, if it came whole."""
        gateway = self.random.choice(self.gateways)
        stream = self.random.random() < 0.5
        body = {"model": "m", "messages": messages, **({"stream": True} if stream else {})}
        leaves = None if calm or self.random.random() > 0.1 else self.random.choice([0.01, 0.1])
        try:
            async with asyncio.timeout(leaves or (10.0 if calm else self.patience)):
                async with web.post(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {CANARY}-{self.name}"}) as answer:  # fmt: skip
                    got = await answer.read()
        except TimeoutError:
            self.told["left by its client"] += 1
            return None
        except aiohttp.ClientError:
            self.told["no gateway, or cut"] += 1
            return None
        if answer.status != 200:
            ours = answer.headers.get("x-foldline-error", "")
            self.told[f"{answer.status} {ours}".strip()] += 1
            if answer.status == 500 and ours:
                raise Broken(f"a fault of the gateway: {got!r}")
            if answer.status == 503 and ours and "retry-after" not in answer.headers:
                raise Broken(f"503 without a time to come back after: {got!r}")
            return None
        words = spoken(got, stream=stream)
        self.told["answered" if words else "200, no answer"] += 1
        if words and answer.headers.get("x-foldline-unplanned") == "conflict":
            # Others wrote to its log: it is sent unrecorded, and says so. The client's next request would bring it.
            self.told["unrecorded, and told so"] += 1
            self.unrecorded.add(words)
        return (words, answer.headers["x-foldline-session"]) if words else None

    async def say(self, web: aiohttp.ClientSession, *, calm: bool = False, until: float = 0.0) -> bool:  # fmt: skip
        """Say something until it is answered; whether it was."""
        self.turn += 1
        messages = [*self.history, {"role": "user", "content": f"{self.name} turn {self.turn}. " + "Some words. " * 20}]  # fmt: skip
        while (found := await self.call(web, messages, calm=calm)) is None:
            if until and time.monotonic() > until:
                self.turn -= 1
                return False
            await asyncio.sleep(0.05)
        self.history = [*messages, {"role": "assistant", "content": found[0]}]
        self.session = found[1]
        return True

    async def ask_aside(self, web: aiohttp.ClientSession) -> None:
        """Another question behind the same history, at the same time."""
        asked = {
            "role": "user",
            "content": f"{self.name} aside {self.turn}.{len(self.aside)}. Why?",
        }
        if found := await self.call(web, [*self.history, asked], calm=False):
            self.aside.append(found[0])

    async def talk(self, web: aiohttp.ClientSession, ended: asyncio.Event) -> None:
        """Talk until the end."""
        while not ended.is_set():
            if self.random.random() < 0.15:
                await asyncio.gather(self.ask_aside(web), self.say(web, until=time.monotonic() + 20))  # fmt: skip
            else:
                await self.say(web, until=time.monotonic() + 20)


def spoken(got: bytes, *, stream: bool) -> str:
    """The words of a whole answer; none, if it is not whole."""
    try:
        if not stream:
            return json.loads(got)["choices"][0]["message"]["content"]
        text = got.decode()
        if not text.endswith("data: [DONE]\n\n"):
            return ""
        pieces = [json.loads(one[6:]) for one in text.split("\n\n") if one.startswith("data: {")]
        return "".join(one["choices"][0]["delta"].get("content") or "" for one in pieces)
    except (ValueError, KeyError, IndexError, TypeError):
        return ""


# What must be.


async def looked_at(address: str, clients: list[Client], lost: int, *, every: int) -> Counter[str]:  # fmt: skip
    """Every log is what its client holds, and every request (or one of so many) can be had again."""
    found: Counter[str] = Counter()
    store = store_at(address)
    try:
        sessions: list[str] = []
        while page := await store.sessions("local", after=sessions[-1] if sessions else "", limit=100):  # fmt: skip
            sessions += [one.session for one in page]
        answers: dict[str, list[str]] = {}
        for name in sessions:
            live = await Live.open(store, Name("local", name), facts=FACTS)
            events = dict(await live.read_events(Range(0, live.view.head)))
            folds = {seq: event for seq, event in events.items() if isinstance(event, Folded)}
            spans = [*iterate_covered_ranges(live.view.spine.segments, folds)]
            for seq, event in events.items():
                if isinstance(event, Asked):
                    found["requests"] += 1
                    if found["requests"] % every == 0:
                        await planning.rebuild_request(live, seq)
                        found["rendered again"] += 1
            said = [
                ("user" if isinstance(event, UserSaid) else "assistant", text_of(event.parts))
                for seq, event in events.items()
                if isinstance(event, UserSaid | ModelSaid)
                and any(one.lo <= seq and (one.hi is None or seq <= one.hi) for one in spans)
            ]
            # What a client has dropped is out of sight, and in the log.
            for event in events.values():
                if isinstance(event, ModelSaid):
                    answers.setdefault(text_of(event.parts), []).append(name)
            for client in (one for one in clients if one.session == name):
                held = [(one["role"], one["content"]) for one in client.history]
                if said != held:
                    at = next((n for n, pair in enumerate(zip(said, held, strict=False)) if pair[0] != pair[1]), min(len(said), len(held)))  # fmt: skip
                    raise Broken(f"{client.name}: {name} is not what its client holds: {len(said)} and {len(held)} messages, from {at} on: {said[at : at + 2]} and {held[at : at + 2]}")  # fmt: skip
                found["messages in order"] += len(held)
            for words, times in Counter(words for role, words in said if role == "assistant").items():  # fmt: skip
                if times > 1:
                    raise Broken(f"{name} holds an answer {times} times: {words[:40]}")
        found["logs"], found["conversations"] = len(sessions), len(clients)
        missing = [words for one in clients for words in one.aside if words not in answers and words not in one.unrecorded]  # fmt: skip
        found["answers aside"] = sum(len(one.aside) for one in clients)
        found["answers aside that were not kept, as was told"] = len(missing)
        if len(missing) > lost:
            raise Broken(f"{len(missing)} answers came whole and are in no log: {missing[:2]}")
        absent = {one.session for one in clients} - {*sessions}
        if absent:
            raise Broken(f"sessions that were told are not there: {absent}")
    finally:
        await store.close()
    return found


def no_canary(where: str, held: bytes) -> None:
    """The clients' key is not in something."""
    if CANARY.encode() in held:
        raise Broken(f"a provider's key is in {where}")


@asynccontextmanager
async def load(clients: list[Client]) -> AsyncIterator[aiohttp.ClientSession]:
    """Clients that talk until the block ends; then each says one thing more, in peace."""
    ended = asyncio.Event()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True)
    ) as web:
        talking = asyncio.gather(*(client.talk(web, ended) for client in clients))
        try:
            yield web
        finally:
            ended.set()
            await talking


async def in_peace(clients: list[Client], web: aiohttp.ClientSession) -> None:
    """One more call of each, which must be answered."""
    until = time.monotonic() + _BACK
    done = await asyncio.gather(*(one.say(web, calm=True, until=until) for one in clients))
    if not all(done):
        raise Broken(f"{done.count(False)} conversations do not go on")


@dataclass
class Stage:
    """All that takes part."""

    address: str
    gateways: list[Gateway]
    clients: list[Client]
    upstream: Upstream
    script: Script
    told: Counter[str]
    cluster: Cluster | None = None

    async def forsake(self) -> None:
        """Take the store away for longer than it is waited for."""
        assert self.cluster is not None
        for one in self.clients:
            one.patience = 3 * AWAY
        await asyncio.to_thread(self.cluster.stop)
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(self.cluster.start)
        for one in self.clients:
            one.patience = _PATIENCE
        if not self.told["503 store_away"]:
            raise Broken("the store was away, and nobody was told")

    async def disturb(self, random: Random, seconds: float) -> None:
        """Do something to somebody, again and again."""
        until = time.monotonic() + seconds
        turn = 0
        kinds = ("kill", "store", "term") if self.cluster else ("kill", "term")
        while time.monotonic() < until or turn < len(kinds):
            await asyncio.sleep(random.uniform(0.5, 1.0))
            kind = kinds[turn % len(kinds)]
            turn += 1
            self.told[f"[{kind}]"] += 1
            if kind == "store" and self.cluster is not None:
                await asyncio.to_thread(random.choice([self.cluster.stop, self.cluster.kill]))
                await asyncio.sleep(random.uniform(1.0, 2.0))
                await asyncio.to_thread(self.cluster.start)
                continue
            gateway = random.choice(self.gateways)
            how = signal.SIGKILL if kind == "kill" else signal.SIGTERM
            code = await asyncio.to_thread(gateway.end, how)
            if kind == "term" and code != 0:
                raise Broken(f"SIGTERM ended a gateway with {code}: {gateway.said()[-400:]}")
            await asyncio.to_thread(gateway.start)


async def campaign(stage: Stage, random: Random, seconds: float) -> Counter[str]:
    """Load, faults, peace; then what is there."""
    async with load(stage.clients):
        await stage.disturb(random, seconds)
        if stage.cluster is not None and seconds > AWAY:
            await stage.forsake()
        await asyncio.sleep(_AFTER)
    stage.script.faults = False
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as web:
        await in_peace(stage.clients, web)
    if not await asyncio.to_thread(stage.upstream.closed):
        raise Broken(f"{stage.upstream.open} upstream calls are still open")
    # The store was away, or the other gateway continued the log: it says so, and the client repeats the answer.
    lost = sum(one.said().count("an answer was not kept") for one in stage.gateways)
    for one in stage.gateways:
        one.most = max(one.most, one.memory() - one.started)
        if one.most > GROWTH:
            raise Broken(f"a gateway has grown by {one.most:.0f} MB")
        if "Traceback" in one.said():
            raise Broken(f"a gateway says: {one.said()[-1_500:]}")
    every = 1 if seconds > AWAY else 4
    return await looked_at(stage.address, stage.clients, lost, every=every)


def crashed(gateway: Gateway) -> None:
    """Ended by a fault of its own: what it leaves behind holds no key."""
    assert gateway.process is not None
    code = gateway.end(signal.SIGABRT)
    if code != -signal.SIGABRT:
        raise Broken(f"SIGABRT ended it with {code}")
    left = [one for one in gateway.folder.iterdir() if one.name.startswith("core")]
    for one in left:
        no_canary(f"a core of {one.stat().st_size:,} bytes", one.read_bytes())


def staged(address: str, folder: Path, *, gateways: int, seed: int, seconds: float, cluster: Cluster | None = None, mutant: str = "") -> Counter[str]:  # noqa: PLR0913  # fmt: skip
    """A campaign on a store."""
    random, told = Random(seed), Counter[str]()
    script = Script(Random(seed + 1))
    with Upstream(script) as upstream:
        ours = [Gateway(address, upstream.url, folder, f"g{n}", mutant) for n in range(gateways)]
        try:
            for one in ours:
                one.start()
            clients = [
                Client(f"c{n}", ours, Random(seed + 2 + n), told)
                for n in range(10 if seconds > AWAY else 6)
            ]
            stage = Stage(address, ours, clients, upstream, script, told, cluster)
            found = asyncio.run(campaign(stage, random, seconds))
            crashed(ours[0])
            for one in ours:
                no_canary("a gateway's words", one.said().encode())
            no_canary("the audit log", (folder / "audit").read_bytes())
        except Broken:
            for one in ours if not mutant else ():
                told_, _, trace = one.said().partition("Traceback")
                print(f"  {one.name}: {told_[-300:]}{trace[:3_000]}")
            raise
        finally:
            for one in ours:
                if one.process is not None and one.process.poll() is None:
                    one.process.kill()
                    one.process.wait()
        did = ", ".join(f"{kind} {many}" for kind, many in sorted(script.did.items()))
        calls = ", ".join(f"{kind} {many}" for kind, many in sorted(told.items()))
        if not mutant:
            print(f"  upstream: {did}\n  clients: {calls}\n  gateways grew by {max(one.most for one in ours):.0f} MB at most")  # fmt: skip
    return found


def part(name: str, work: Any) -> bool:
    """One campaign; whether all was as it must be."""
    print(name, flush=True)
    begun = time.monotonic()
    try:
        found = work()
    except Broken as fault:
        print(f"  BROKEN: {fault}")
        return False
    print("  " + ", ".join(f"{what} {many:,}" for what, many in found.items()))
    print(f"  as it must be, in {time.monotonic() - begun:.0f} s", flush=True)
    return True


def on_postgres(seed: int, seconds: float) -> Counter[str]:
    """Two gateways on one server."""
    with a_cluster(memory=True) as cluster, tempfile.TemporaryDirectory() as made:
        found = staged(cluster.address(), Path(made), gateways=2, seed=seed, seconds=seconds, cluster=cluster)  # fmt: skip
        dump = subprocess.run(
            [shutil.which("pg_dump") or str(cluster.bin / "pg_dump"), "-h", "127.0.0.1", "-p", str(cluster.port), "-U", "postgres", "postgres"],
            check=True, capture_output=True,
        ).stdout  # fmt: skip
        if b"COPY" not in dump:
            raise Broken("the dump is empty")
        no_canary("a dump of PostgreSQL", dump)
        found["bytes of a dump without a key"] = len(dump)
        return found


def on_sqlite(seed: int, seconds: float, mutant: str = "") -> Counter[str]:
    """One gateway on a file."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        found = staged(str(folder / "s.db"), folder, gateways=1, seed=seed, seconds=seconds, mutant=mutant)  # fmt: skip
        for one in folder.glob("s.db*"):
            no_canary(one.name, one.read_bytes())
        return found


def control(name: str, seed: int) -> bool:
    """A gateway with one rule taken out must be caught."""
    try:
        on_sqlite(seed, 1.0, mutant=name)
    except Broken as fault:
        if "does not start" in str(fault):
            raise  # the rule was not taken out, and nothing was caught
        print(f"control: {name}: caught: {str(fault)[:150]}", flush=True)
        return True
    print(f"control: {name}: NOT CAUGHT", flush=True)
    return False


def run_mutant() -> NoReturn:
    """The command, with one rule taken out."""
    from foldline.apps.cli.app import run_command  # noqa: PLC0415 - behind the mutation

    with broken(*MUTANTS[sys.argv[2]]):
        sys.exit(run_command(sys.argv[3:]))


def main() -> int:
    """All of it."""
    if sys.argv[1:2] == ["--mutant"]:
        run_mutant()
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    os.environ.pop("FOLDLINE_STORE", None)
    begun = time.monotonic()
    good = part("postgresql", lambda: on_postgres(args.seed, 1.0 if args.short else 60.0))
    good &= part("sqlite", lambda: on_sqlite(args.seed, 1.0 if args.short else 40.0))
    names = [*MUTANTS]
    for name in names[:1] if args.short else names:
        good &= control(name, args.seed)
    print(f"{'all as it must be' if good else 'BROKEN'} in {time.monotonic() - begun:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""The gateway beside a bare pass-through of the same stack: conversations of 100 kB that are sent whole each time.

    just gateways && just bench gateway

One run, on loopback, in turn, each a process of its own: an upstream that answers at once, a bare pass-through
of uvicorn and aiohttp, `foldline serve --plain`, the same with sessions in SQLite and in PostgreSQL, and the
gateways of others that `just gateways` has installed.

a. Requests a second of 32 clients, and p50 of one: each goes on with a conversation of 100 messages, about
   100 kB, by one small exchange a call. Beside it what a request takes of a core, which a busy machine cannot blur:
   the gateway's own, and that of PostgreSQL's backends.
b. The same as Claude Code sends it: Anthropic's dialect, its cache marks moved with each call.
c. 1,000 slow streams at a time through the gateway with sessions: memory before, with all of them open, later.
d. What a call takes of a core with all that a company switches on, beside the same gateway with nothing of it, both
   under load at the same time: keys in the store, an owner, six limits, allowed models, an audit file, spans,
   and Prometheus every two seconds. Both know the model's prices. PostgreSQL's backends are counted in.

Medians. Exits 1 where a target is missed. `--only d` measures that alone. `--short`: fewer and shorter rounds, 100 streams; others' gateways
and b are left out. The targets are the same. `FOLDLINE_PG` names the database.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psycopg
import uvloop
from gateway_load import EVERY, Client, Talk, load
from pg_place import a_schema, address_of, connected

PLAIN, SQLITE, POSTGRES = 0.7, 0.4, 0.3
ADDED_MS = 5.0
STREAM_KB, GROWTH = 700.0, 1.1
CLIENTS = 32
PATIENCE = 60.0  # seconds for a process to listen
HERE = Path(__file__).parent
PARTS = str(HERE / "gateway_load.py")
RIG = HERE.parent / ".rig"
PORTKEY = RIG / "portkey/node_modules/@portkey-ai/gateway"
LITELLM = RIG / "litellm/bin/litellm"
RELEASED = RIG / "released/bin/foldline"  # `just released`
CORE = 1.0
COMPANY = 1.10
COMPANY_SETTINGS = """
[gateway]
on_store_failure = "open"
[gateway.tenants.acme]
policy = "steady"
retention.days = 90
[[gateway.limits]]
owner = "*"
requests_per_minute = 1000000
tokens_per_minute = 1000000000000
soft = 0.8
[[gateway.limits]]
owner = "*"
model = "*"
dollars_per_day = 100000
[[gateway.limits]]
tenant = "*"
tokens_per_minute = 1000000000000
dollars_per_month = 1000000
[[gateway.limits]]
key = "*"
concurrent_calls = 10000
"""
COMPANY_PRICES = "[bench]\nwindow = 200000\ninput = 1.0\noutput = 5.0\n"
TRACED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

class Nowhere(SpanExporter):
    def export(self, spans):
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Nowhere()))
trace.set_tracer_provider(provider)
from foldline.apps.cli import main
sys.exit(main())
"""
"""The gateway in a process that has a tracer, whose spans go nowhere."""
_PORTKEY = "x-portkey-provider: openai\r\nx-portkey-custom-host: {upstream}/v1\r\n"
_LITELLM = """model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "{upstream}/v1", api_key: none}}
litellm_settings: {{telemetry: false}}
"""


@dataclass
class Place:
    """Something that relays, and what was measured at it."""

    name: str
    port: int
    process_id: int
    headers: str = ""
    schema: str = ""
    """Of PostgreSQL, where it keeps sessions there."""
    scraper: str = ""
    """What the one who reads its metrics sends, where there is one."""
    rates: list[float] = field(default_factory=list[float])
    alone: list[float] = field(default_factory=list[float])
    """The median of one client, in milliseconds."""
    core: list[float] = field(default_factory=list[float])
    """Milliseconds of a core for each request."""
    backends: list[float] = field(default_factory=list[float])
    """The same of PostgreSQL."""

    async def round(self, seconds: float, *, coding: bool = False) -> int:
        """Measure once: many clients, then one; the size of the largest request."""
        before = [0.0, 0.0]

        async def warmed() -> None:
            before[:] = self.worked()

        many = await load(self._clients(CLIENTS, coding=coding), seconds=seconds, warmed=warmed)
        own, backends = (b - a for a, b in zip(before, self.worked(), strict=True))
        self.rates.append(many.rate)
        self.core.append(own / len(many.took) * 1_000)
        self.backends.append(backends / len(many.took) * 1_000)
        one = await load(self._clients(1, coding=coding), seconds=seconds / 2)
        self.alone.append(statistics.median(one.took) * 1_000)
        return many.largest

    async def measure_calls(self, seconds: float, *, clients: int) -> float:
        """Milliseconds of a core that a call takes, PostgreSQL's and Prometheus' included."""
        before = [0.0, 0.0]

        async def warmed() -> None:
            before[:] = self.worked()

        scraping = asyncio.create_task(self._scrape())
        many = await load(self._clients(clients, coding=False), seconds=seconds, warmed=warmed)
        scraping.cancel()
        own, backends = (b - a for a, b in zip(before, self.worked(), strict=True))
        self.core.append(own / len(many.took) * 1_000)
        self.backends.append(backends / len(many.took) * 1_000)
        return self.core[-1] + self.backends[-1]

    async def _scrape(self) -> None:
        """Be Prometheus, where there is one; seven times as often as examples/gateway lets it ask."""
        while self.scraper:
            client = Client(self.port, self.scraper, "/metrics", method="GET")
            async with client.open():
                await client.ask(b"")
            await asyncio.sleep(2.0)

    def _clients(self, count: int, *, coding: bool) -> list[tuple[Client, Talk]]:
        path = "/v1/messages" if coding else "/v1/chat/completions"
        new = [os.urandom(4).hex() for _ in range(count)]
        return [(Client(self.port, self.headers, path), Talk(name, coding=coding)) for name in new]

    def worked(self) -> tuple[float, float]:
        """Seconds of a core: its own, and its backends'."""
        backends = 0.0
        if self.schema:
            with connected() as server:
                found = server.execute(
                    "select pid from pg_stat_activity where query like %s and pid <> pg_backend_pid()",
                    (f"%{self.schema}%",),
                )
                backends = sum(worked(pid) for (pid,) in found)
        return worked(self.process_id), backends

    def line(self) -> str:
        """Its medians."""
        many, one, core, pg = map(
            statistics.median, (self.rates, self.alone, self.core, self.backends)
        )
        beside = f" + {pg:.2f} of PostgreSQL's" if self.schema else ""
        return f"{self.name:24}{many:7.0f} requests/s of {CLIENTS} clients{one:8.2f} ms p50 of one{core:7.2f} ms of a core each{beside}"


def worked(process_id: int) -> float:
    """Seconds of a core that a process has taken."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process_id: int) -> float:
    """MB that a process has in memory."""
    text = Path(f"/proc/{process_id}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1_024 if found else 0.0


class NotThereError(Exception):
    """A process that did not come up."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def process(*command: str, port: int, **env: str) -> Iterator[int]:
    """One of them in a process of its own, once it listens."""
    started = subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if env else None,
        env={**os.environ, **env},
    )  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE
        while not _listens(port):
            if started.poll() is not None or time.monotonic() > end:
                raise NotThereError(
                    f"{Path(command[0]).name} does not listen after {PATIENCE:.0f} s"
                )
            time.sleep(0.05)
        yield started.pid
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()


class Stage:
    """All that stands in one run."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.upstream = ""

    def process(self, *command: str, **env: str) -> tuple[int, int]:
        """Start one; its port and its process. `PORT` in a command is the port's place."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        given = [one.replace("PORT", str(port)) for one in command]
        return port, self._stack.enter_context(process(*given, port=port, **env))

    def serve(
        self, name: str, *options: str, schema: str = "", program: str | Path | None = None
    ) -> Place:
        """The gateway, with some options; of another release, where its program is given."""
        program = str(program or Path(sys.executable).with_name("foldline"))
        fixed = ("serve", "--port", "PORT", "--window", "200000", "--upstream", self.upstream)
        port, pid = self.process(program, *fixed, *options)
        return Place(name, port, pid, schema=schema)

    def others(self, folder: str) -> list[Place]:
        """The gateways of others that are installed, and come up."""
        found: list[Place] = []
        for name, there, place in (
            ("portkey", PORTKEY, self._portkey),
            ("litellm", LITELLM, lambda: self._litellm(folder)),
        ):
            if not there.exists():
                print(f"{name} is not installed: `just gateways`")
                continue
            try:
                found.append(place())
            except NotThereError as fault:
                print(f"{name} is left out: {fault}")
        return found

    def _portkey(self) -> Place:
        said = re.search(r'"version": "(.*?)"', (PORTKEY / "package.json").read_text())
        server = str(PORTKEY / "build/start-server.js")
        node = shutil.which("node") or "node"
        port, pid = self.process(node, server, "--port=PORT", "--headless", NODE_ENV="production")
        headers = _PORTKEY.format(upstream=self.upstream)
        return Place(f"portkey {said[1] if said else '?'}", port, pid, headers)

    def _litellm(self, folder: str) -> Place:
        file = Path(folder, "litellm.yaml")
        file.write_text(_LITELLM.format(upstream=self.upstream))
        (named,) = (LITELLM.parent.parent / "lib").glob("python*/site-packages/litellm-*.dist-info")
        port, pid = self.process(
            str(LITELLM), "--config", str(file), "--port", "PORT", "--host", "127.0.0.1",
            LITELLM_LOG="ERROR", LITELLM_LOCAL_MODEL_COST_MAP="True",
        )  # fmt: skip
        return Place(f"litellm {named.name.split('-')[1].removesuffix('.dist')}", port, pid)


def shares(of: Place, beside: Place) -> list[float]:
    """The shares of another's requests a second, round by round."""
    return [one / other for one, other in zip(of.rates, beside.rates, strict=True)]


def share(of: Place, beside: Place) -> float:
    """The median of them."""
    return statistics.median(shares(of, beside))


def spread(of: Place, beside: Place) -> str:
    """How much to believe of a share: its rounds, the medians of both sides, and the work of a core."""
    all_ = shares(of, beside)
    many, other = statistics.median(of.rates), statistics.median(beside.rates)
    core, bare = statistics.median(of.core), statistics.median(beside.core)
    return (
        f"    rounds {min(all_):.2f} to {max(all_):.2f}; medians {many:.0f} / {other:.0f} = {many / other:.2f}; "
        f"of a core {bare:.2f} / {core:.2f} ms = {bare / core:.2f}"
    )


def added(of: Place, beside: Place) -> float:
    """The median of what one client waits longer, round by round."""
    pairs = zip(of.alone, beside.alone, strict=True)
    return statistics.median(one - other for one, other in pairs)


def told(what: str, figure: float, bound: float, *, most: bool = False) -> bool:
    """Print a figure with its target; whether it is met."""
    met = figure <= bound if most else figure >= bound
    sign = "<=" if most else ">="
    print(f"  {what:66}{figure:8.2f}  {sign} {bound:<6g} {'' if met else 'MISSED'}".rstrip())
    return met


def told_core(of: Place, beside: Place) -> bool:
    """Print what a request takes of a core beside another release; whether it is no more."""
    core, other = statistics.median(of.core), statistics.median(beside.core)
    return told(
        f"of a core for each request, {core:.2f} / {other:.2f} ms of 0.1.0",
        core / other,
        CORE,
        most=True,
    )


async def streams(place: Place, count: int, *, pieces: int) -> tuple[float, float, float]:
    """Memory before, with so many slow streams open, and some pieces later; all of them end well."""
    before = memory(place.process_id)
    opened = [0]
    ended = [0]

    async def one(at: int) -> None:
        first = True

        def piece() -> None:
            nonlocal first
            opened[0] += first
            first = False

        talk = Talk(f"stream {at} {os.urandom(4).hex()}")
        async with Client(place.port, f"x-pieces: {pieces}\r\n").open() as client:
            found = await client.ask(talk.body(stream=True), piece)
            assert found.endswith(b"data: [DONE]\n\n"), found[-200:]
            ended[0] += 1

    gate = asyncio.Semaphore(20)  # that come at a time

    async def coming(at: int) -> asyncio.Task[None]:
        async with gate:
            task = asyncio.create_task(one(at))
            await asyncio.sleep(0.02)
            return task

    tasks = await asyncio.gather(*(coming(at) for at in range(count)))
    while opened[0] < count:
        await asyncio.sleep(0.05)
        for task in tasks:
            if task.done():
                task.result()
    assert not ended[0], f"{ended[0]} streams ended before all were open"
    held = memory(place.process_id)
    await asyncio.sleep(8 * EVERY)
    assert not ended[0], f"{ended[0]} streams ended while all were held"
    later = memory(place.process_id)
    await asyncio.gather(*tasks)
    return before, held, later


async def compared(
    places: list[Place], *, rounds: int, seconds: float, coding: bool = False
) -> int:
    """Rounds in turn; the size of the largest request."""
    return max([await one.round(seconds, coding=coding) for _ in range(rounds) for one in places])


@contextmanager
def company_pair(folder: Path) -> Iterator[tuple[Place, Place]]:
    """Two gateways: with nothing switched on, and with all that a company switches on."""
    with ExitStack() as stack:
        stage = Stage(stack)
        port, _ = stage.process(sys.executable, PARTS, "upstream", "PORT")
        stage.upstream = f"http://127.0.0.1:{port}"
        schemas = [stack.enter_context(a_schema()) for _ in range(2)]
        config = folder / "config" / "foldline"
        config.mkdir(parents=True)
        (config / "foldline.toml").write_text(COMPANY_SETTINGS)
        (config / "models.toml").write_text(COMPANY_PRICES)
        known = {"FOLDLINE_MODELS": str(config / "models.toml")}
        port, pid = stage.process(
            str(Path(sys.executable).with_name("foldline")), "serve", "--port", "PORT",
            "--upstream", stage.upstream, "--store", address_of(schemas[0]), **known,
        )  # fmt: skip
        off = Place("nothing switched on", port, pid, schema=schemas[0])
        keys = [
            add_key(address_of(schemas[1]), *one)
            for one in (("alice",), ("prometheus", "--role", "operator"))
        ]
        port, pid = stage.process(
            sys.executable, "-c", TRACED, "serve", "--port", "PORT", "--upstream", stage.upstream,
            "--store", address_of(schemas[1]), "--keys", "store", "--allow-model", "bench*",
            "--audit", str(folder / "audit.jsonl"),
            XDG_CONFIG_HOME=str(folder / "config"), **known,
        )  # fmt: skip
        own, reader = (f"x-foldline-key: {key}\r\n" for key in keys)
        on = Place("all switched on", port, pid, own, schemas[1], scraper=reader)
        yield off, on


def add_key(store: str, name: str, *role: str) -> str:
    """Make a key in a store."""
    program = Path(sys.executable).with_name("foldline")
    command = [program, "keys", "add", name, *role, "--tenant", "acme", "--store", store, "--json"]
    made = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return json.loads(made.stdout)["key"]


async def measure_company(*, rounds: int, seconds: float) -> bool:
    """Part d; whether all of it costs no more than it may."""
    with (
        tempfile.TemporaryDirectory(dir=HERE.parent, prefix=".bench-") as folder,
        company_pair(Path(folder)) as pair,
    ):
        ratios: list[float] = []
        for _ in range(rounds):
            off, on = await asyncio.gather(*(one.measure_calls(seconds, clients=8) for one in pair))
            ratios.append(on / off)
        print(
            f"d. With all that a company switches on ({rounds} rounds of {seconds:.0f} s, both at the same time)"
        )
        for one in pair:
            print(
                f"  {one.name:24}{statistics.median(one.core):7.2f} ms of a core"
                f" + {statistics.median(one.backends):.2f} of PostgreSQL's, each call"
            )
        print(f"    rounds {min(ratios):.3f} to {max(ratios):.3f}")
        return told("all switched on / nothing", statistics.median(ratios), COMPANY, most=True)


async def measured(given: argparse.Namespace) -> int:
    """All of it."""
    if given.only:
        return 0 if await measure_company(rounds=given.rounds * 2, seconds=given.seconds) else 1
    rounds, seconds = (3, 0.7) if given.short else (given.rounds, given.seconds)
    met: list[bool] = []
    with ExitStack() as stack:
        stage = Stage(stack)
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=HERE.parent, prefix=".bench-"))
        port, _pid = stage.process(sys.executable, PARTS, "upstream", "PORT")
        stage.upstream = f"http://127.0.0.1:{port}"
        schema = stack.enter_context(a_schema())
        bare = Place(
            "bare pass-through",
            *stage.process(sys.executable, PARTS, "bare", "PORT", stage.upstream),
        )
        plain = stage.serve("foldline, no sessions", "--plain")
        sqlite = stage.serve("foldline on SQLite", "--store", f"{folder}/sessions.db")
        postgres = stage.serve(
            "foldline on PostgreSQL", "--store", address_of(schema), schema=schema
        )
        ours = [bare, plain, sqlite, postgres]
        before: list[Place] = []
        if RELEASED.exists():
            old = stack.enter_context(a_schema())
            before = [
                stage.serve(
                    "0.1.0 on PostgreSQL",
                    "--store",
                    address_of(old),
                    schema=old,
                    program=RELEASED,
                )
            ]
            ours += before
        else:
            print("0.1.0 is not installed: `just released`")
        others = [] if given.short else stage.others(folder)
        size = await compared([*ours, *others], rounds=rounds, seconds=seconds)
        print(
            f"a. Conversations of 100 messages and more, up to {size:,} bytes ({rounds} rounds of {seconds} s)"
        )
        for one in [*ours, *others]:
            print(f"  {one.line()}")
        base = bare.alone
        print(
            f"  one client, bare pass-through: {statistics.median(base):.2f} ms; shares are of its requests/s"
        )
        for what, one, bound in (
            ("no sessions", plain, PLAIN),
            ("sessions in SQLite", sqlite, SQLITE),
            ("sessions in PostgreSQL", postgres, POSTGRES),
        ):
            met.append(told(f"{what} / bare pass-through", share(one, bare), bound))
            print(spread(one, bare))
        met += [
            told(
                "added to p50 of one client, PostgreSQL, ms",
                added(postgres, bare),
                ADDED_MS,
                most=True,
            ),
        ]
        for one in before:
            met.append(told_core(postgres, one))
        for one in others:
            print(
                f"  {one.name} / bare pass-through: {share(one, bare):.2f} of its requests/s, {added(one, bare):.2f} ms added"
            )
        if not given.short:
            marked = [
                Place(one.name, one.port, one.process_id, schema=one.schema)
                for one in (bare, postgres, *before)
            ]
            size = await compared(marked, rounds=rounds, seconds=seconds, coding=True)
            print(
                f"b. As Claude Code sends it: Anthropic's dialect, marks that move, up to {size:,} bytes"
            )
            for one in marked:
                print(f"  {one.line()}")
            print(
                f"  sessions in PostgreSQL / bare pass-through: {share(marked[1], marked[0]):.2f}, {added(marked[1], marked[0]):.2f} ms added"
            )
            met += [told_core(marked[1], one) for one in marked[2:]]
        count, pieces = (100, 24) if given.short else (1_000, 120)
        first, held, later = await streams(postgres, count, pieces=pieces)
        print(
            f"c. {count:,} slow streams of 100 kB prompts, sessions in PostgreSQL: {first:.0f} MB before, {held:.0f} MB with all open, {later:.0f} MB {8 * EVERY:.0f} s later"
        )
        met += [
            told("kB for each stream", (later - first) * 1_024 / count, STREAM_KB, most=True),
            told("memory later / with all open", later / held, GROWTH, most=True),
        ]
    if not given.short:
        met.append(await measure_company(rounds=rounds * 2, seconds=seconds))
    return 0 if all(met) else 1


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=("d",))
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8_192), hard), hard))
    print(
        f"foldline {version('foldline')}, aiohttp {version('aiohttp')}, uvicorn {version('uvicorn')}, psycopg {psycopg.__version__}"
    )
    return uvloop.run(measured(given))


if __name__ == "__main__":
    sys.exit(main())

"""Drive real agents through a real `foldline serve`, and frameworks with Foldline inside, and compare with the same without it.

    just clients                     all agents: ten turns of five tool rounds; prints a table in Markdown
    just clients claude              those whose names begin so; `just clients langchain`
    just clients --short             Claude Code, Codex, gemini-cli, an SDK and all frameworks, two turns of two rounds
    just clients codex --direct      only without Foldline
    just clients --out table.md --keep .rig/recordings

Each agent runs twice: directly against a scripted provider without a limit, and through the gateway with the
provider holding it to a window it does not fit in. A framework has Foldline inside its own process instead, by a
wrapped client, and records there what it sends. Exits 1 where a figure is not as it should be.
Recordings hold the vendors' prompts: they stay below a temporary folder, or where `--keep` says.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from agents import AGENTS, ROOT, Agent, Place, Turn, install, run_agent
from aiohttp import web
from comparison import (
    LISTS,
    Kept,
    Prefixes,
    compare_prefixes,
    compare_requests,
    count_new_bytes,
    write_plain,
)
from tap import Exchange, Tap, read_answer, read_output
from upstream import SIDE_WORDS, Job, Served, Upstream

FOLDLINE = ROOT / ".venv" / "bin" / "foldline"
ROOM = 30_000  # tokens that a window has at least beside the agent's fixed part
STORED = 1.3  # message events may have so many times the bytes that the client sent newly
EDITED, FEW = 0.2, 3  # edits may be made in such a share of the requests, and in a few more
ANSWERED = 0.2  # seconds in which a compaction is answered
SHOWN = "gateway.txt"  # what the gateway writes
MESSAGE_EVENTS = ("user_said", "model_said", "tool_returned")


@dataclass(frozen=True)
class Row:
    """One line of the table: an agent, and a window if not the one that is worked out."""

    agent: str
    window: int = 0
    fold_from: int = 0
    """For an agent that compacts by itself: Foldline is to begin above that, and has nothing to do."""
    beside: str = ""
    """The agent to compare with, for one that cannot finish without Foldline."""
    complaint: str = ""
    """What such an agent says without Foldline."""
    is_small: bool = False
    """Whether the window was asked for: in a small one every other result is clipped, and folds are frequent."""


OWN = (
    Row("claude-own", window=200_000, fold_from=150_000),
    Row("codex-own", window=60_000, fold_from=50_000),
    Row("codex-remote", window=40_000, beside="codex", complaint="expected exactly one compaction output item"),
)  # fmt: skip
"""Agents that compact by themselves."""
FORGETFUL = ("gemini-resume",)
"""Agents that lose their first message in a long job, by themselves: they only run the short one."""
LONG = (
    *(Row(agent, window) for agent in ("claude", "claude-stream") for window in (60_000, 80_000)),
    *OWN,
    *(
        Row(name)
        for name in AGENTS
        if not name.startswith("claude") and name not in {*FORGETFUL, *(row.agent for row in OWN)}
    ),
)
CHAINED = ("agent-framework",)
"""Agents that leave their history to the server, so that the gateway must own it."""
SHORT = (
    Row("claude"), Row("sdk"), Row("langchain"), Row("litellm"), Row("pydantic-chat"),
    Row("pydantic-anthropic"), Row("openai-agents"), Row("codex"), OWN[2], Row("pi-openai"), Row("vercel-openai"),
    Row("pydantic-openai"), Row("openai-agents-responses"), Row("agent-framework"), Row("agent-framework-inside"),
    Row("pydantic-openai-inside"), Row("openai-agents-responses-inside"),
    Row("gemini"), Row("gemini-2"), Row("gemini-resume"), Row("adk"), Row("adk-inside"), Row("adk-inside-stream"),
)  # fmt: skip


@dataclass(frozen=True)
class Length:
    """How long a job is: turns, rounds of each, bytes that a tool prints, and calls at a time."""

    turns: int
    rounds: int
    size: tuple[int, int] = (2_000, 6_000)
    calls: int = 1

    def make_job(self, agent: Agent) -> Job:
        """The job for an agent; one without tools gets answers that are long instead."""
        return (
            Job(self.rounds, self.size, self.calls)
            if agent.has_tools
            else Job(0, (40_000, 50_000), has_tools=False)
        )

    def turns_of(self, agent: Agent) -> int:
        """The turns; half as many without tools."""
        return self.turns if agent.has_tools else self.turns // 2


@dataclass(frozen=True)
class Run:
    """What was recorded of one run."""

    turns: list[Turn]
    exchanges: list[Exchange]
    served: list[Served]
    logs: list[list[str]]
    """The log of each session that the gateway made, a line for each event."""
    history: str = ""
    """What `foldline history` says of a conversation that the agent had compacted by us."""
    undone: str = ""
    """What `foldline undo` says of it then."""

    def list_main(self) -> list[tuple[Exchange, int]]:
        """The job's own requests, no titles and summaries: as the client sent them, and which the upstream got."""
        sent = {one.number: one for one in self.exchanges}
        joined = (
            (sent.get(one.tap), at)
            for at, one in enumerate(self.served)
            if one.kind in ("call", "answer")
        )
        return [(exchange, at) for exchange, at in joined if exchange]

    def list_steps(self) -> list[tuple[str, ...]]:
        """What the client was told, in order."""
        return [read_answer(exchange) for exchange, _ in self.list_main()]

    def read_kept(self) -> Kept:
        """What requests over Responses refer to, and what the client sent at all."""
        kept = Kept()
        for one in self.exchanges:
            if has_messages(one.raw):
                kept.record(one.raw, *read_output(one))
        return kept

    def measure_prefixes(self) -> Prefixes:
        """How much consecutive requests have in common."""
        kept = self.read_kept()
        pairs = [(exchange.raw, self.served[at].raw) for exchange, at in self.list_main()]
        patches = [compare_requests(*pair, kept).patches for pair in pairs]
        written = [(kept.write_out(sent), kept.write_out(got)) for sent, got in pairs]
        if any(one != sent for (one, _), (sent, _) in zip(written, pairs, strict=True)):
            written = [(write_plain(one), write_plain(other)) for one, other in written]
        return compare_prefixes(
            [one for one, _ in written], [other for _, other in written], patches
        )


def has_messages(raw: str) -> bool:
    """Whether a request has a conversation."""
    return raw.startswith("{") and any(name in json.loads(raw) for name in LISTS)


def take_port() -> int:
    """A port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@asynccontextmanager
async def serve_app(app: web.Application) -> AsyncIterator[str]:
    """An application at an address of its own."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    port = take_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_gateway(upstream: str, folder: Path, row: Row) -> AsyncIterator[str]:
    """A `foldline serve` of this checkout, ended by its process id."""
    port = take_port()
    options = ["--upstream", upstream, "--port", port, "--store", folder / "store.db"]
    options += ["--window", row.window, *(["--fold-from", row.fold_from] if row.fold_from else [])]
    options += ["--own-history"] if row.agent in CHAINED else []
    command = map(str, (FOLDLINE, "serve", *options))
    with (folder / SHOWN).open("w") as shown:
        process = await asyncio.create_subprocess_exec(
            *command, env=make_env(folder), stdout=shown, stderr=shown
        )
    try:
        while process.returncode is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        else:
            raise SystemExit(f"foldline serve ended at its start: {(folder / SHOWN).read_text()}")
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 60)


def make_folder(path: Path) -> Path:
    """A new folder."""
    path.mkdir(parents=True)
    return path


def make_env(folder: Path) -> dict[str, str]:
    """An environment in which Foldline finds nobody's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOLDLINE_")}
    return {**kept, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


def call_foldline(folder: Path, *options: str) -> str:
    """What a command of Foldline prints."""
    command = [FOLDLINE, *options, "--store", str(folder / "store.db")]
    return subprocess.run(
        command, env=make_env(folder), cwd=folder, capture_output=True, text=True, check=False
    ).stdout


def read_logs(folder: Path) -> list[list[str]]:
    """The log of each session in the store."""
    listed = json.loads(call_foldline(folder, "sessions", "--json") or '{"sessions": []}')
    names = [one["session"] for one in listed["sessions"]]
    return [
        call_foldline(folder, "export", name, "--format", "jsonl").splitlines() for name in names
    ]


def read_recording(file: Path) -> list[Exchange]:
    """The exchanges that an agent with Foldline inside has recorded."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Exchange(**json.loads(line)) for line in lines]


async def run_once(row: Row, length: Length, parent: Path, *, stateless: bool = False) -> Run:
    """Take the agent through the job: through the gateway, or directly where there is no window."""
    agent = AGENTS[row.agent]
    folder = make_folder(parent / row.agent / (str(row.window) if row.window else "direct"))
    ways = {"stateless": stateless, "takes_repeats": agent.repeats_results}
    upstream = Upstream(length.make_job(agent), row.window, **ways)
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(serve_app(upstream.make_app()))
        tap = Tap(base)
        if not agent.has_foldline:
            if row.window:
                tap.target = await stack.enter_async_context(serve_gateway(base, folder, row))
            base = await stack.enter_async_context(serve_app(tap.make_app()))
        place = Place(base, folder, row.window)
        turns = await run_agent(agent, place, length.turns_of(agent))
    recorded = read_recording(place.recording) if agent.has_foldline else tap.exchanges
    exchanges = sorted(recorded, key=lambda one: one.number)
    run = Run(turns, exchanges, upstream.served, read_logs(folder) if row.window else [])
    if row.beside and row.window:
        listed = json.loads(call_foldline(folder, "sessions", "--json"))["sessions"]
        name = listed[0]["session"]
        told = call_foldline(folder, "history", name)
        run = replace(run, history=told, undone=call_foldline(folder, "undo", name))
    (folder / "recording.json").write_text(json.dumps(asdict(run)))
    return run


@dataclass(frozen=True)
class Figures:
    """What one row of the table says, and what is wrong with it."""

    agent: str
    window: str
    plain: str
    turns: str
    refusals: int
    sessions: str
    edits: str
    prefix: str
    broken: int
    stored: str
    folds: str
    diff: str
    steps: str
    faults: list[str]


HEADS = {
    "plain": "largest plain request",
    "turns": "finished turns",
    "edits": "requests in which an edit was made",
    "prefix": "common prefix, through / direct",
    "broken": "prefixes broken",
    "stored": "message events to new bytes",
    "folds": "bytes of other events",
    "steps": "steps as direct",
}


def measure(row: Row, direct: Run, through: Run) -> Figures:
    """Work out a row's figures, and judge them."""
    turns, finished = len(direct.turns), sum(turn.is_finished for turn in through.turns)
    refusals = [
        one.answer[:150] for one in through.exchanges if one.status != web.HTTPOk.status_code
    ]
    side = sum(map(is_side, through.logs))
    conversations = len(through.logs) - side

    sent = {one.number: one.raw for one in through.exchanges}
    pairs = [(sent[one.tap], one.raw) for one in through.served if one.tap in sent]
    kept = through.read_kept()
    compared = [compare_requests(*pair, kept) for pair in pairs]
    wrong = [fault for one in compared for fault in one.faults]
    patched = sum(bool(one.patches) for one in compared)
    unjoined = len(through.served) - len(pairs)
    unplanned = [one.unplanned for one, _ in through.list_main() if one.unplanned]
    alone, prefixes = direct.measure_prefixes(), through.measure_prefixes()
    edits, requests = len(prefixes.edited), len(through.list_main())

    raws = [one.raw for one in through.exchanges if has_messages(one.raw)]
    new = count_new_bytes([kept.write_out(one) for one in raws])
    sizes = [
        (json.loads(line)["kind"] in MESSAGE_EVENTS, len(line.encode()))
        for log in through.logs
        for line in log
    ]
    stored = sum(size for is_message, size in sizes if is_message)
    steps, expected = through.list_steps(), direct.list_steps()
    same = sum(one == other for one, other in zip(steps, expected, strict=False))
    plain = max(one.tokens for one in direct.served)
    checks = {
        f"{sum(turn.is_finished for turn in direct.turns)} of {turns} turns finished without a gateway": all(
            turn.is_finished for turn in direct.turns
        ),
        f"{finished} of {turns} turns finished": finished == turns,
        f"{len(refusals)} refusals, the first: {refusals[:1]}": not refusals,
        f"{conversations} sessions for one conversation": conversations == 1,
        f"edits in {edits} of {requests} requests": row.is_small
        or edits <= EDITED * requests + FEW,
        f"{patched} requests edited though the agent compacts by itself": not (
            row.fold_from and patched
        ),
        f"nothing had to be edited: {plain} tokens in {row.window}": row.fold_from
        or plain > row.window,
        f"prefixes broken without an edit at requests {prefixes.broken[:9]}": not prefixes.broken,
        f"stored {stored:,} bytes of messages, {new:,} were new": new / 2
        <= stored
        <= (STORED + row.is_small) * new,
        f"changed on the way: {wrong[:2]}": not wrong,
        f"{unjoined} upstream requests are not the client's": not unjoined,
        f"{len(unplanned)} requests without a plan: {unplanned[:1]}": not unplanned,
        f"{same} of {len(expected)} steps as without a gateway, {len(steps)} in all": steps
        == expected,
    }
    asked = [one for one in through.exchanges if '"compaction_trigger"' in one.raw]
    if row.beside:
        # The fastest: whoever else is at work here only ever takes time from it.
        fastest = min((one.seconds for one in asked), default=9.0)
        print(f"{row.agent}: {len(asked)} compactions, the fastest in {fastest * 1000:.0f} ms")
        checks |= {
            f"{len(asked)} compactions were asked for": bool(asked),
            f"a compaction took {fastest * 1000:.0f} ms": fastest < ANSWERED,
            f"the history does not show what was folded: {through.history[:200]!r}": "fold" in through.history,
            f"it cannot be undone: {through.undone[:200]!r}": "taken back" in through.undone,
        }  # fmt: skip
    return Figures(
        agent=row.agent, window=f"{row.window:,}", plain=f"{plain:,}", turns=f"{finished}/{turns}",
        refusals=len(refusals), sessions=f"{conversations} + {side} side", edits=f"{edits} of {requests}, {patched} patched",
        prefix=f"{prefixes.share:.1%} / {alone.share:.1%}", broken=len(prefixes.broken),
        stored=f"{stored / max(new, 1):.2f} of {new:,}", folds=f"{sum(size for _, size in sizes) - stored:,}",
        diff=f"{len(wrong)} faults" if wrong else "only patches", steps=f"{same}/{len(expected)}",
        faults=[fault for fault, holds in checks.items() if not holds],
    )  # fmt: skip


def is_side(log: list[str]) -> bool:
    """Whether the model of a session was asked for nothing but titles or summaries."""
    kinds = [json.loads(line)["kind"] for line in log]
    first = (
        kinds.index("asked") if "asked" in kinds else 0
    )  # what the client brings along is before
    said = [
        line for line, kind in zip(log[first:], kinds[first:], strict=True) if kind == "model_said"
    ]
    return bool(said) and all(any(words in line for words in SIDE_WORDS) for line in said)


def find_window(direct: Run) -> int:
    """A third of the plain run's largest request, but room beside what its first request has anyway."""
    largest = max(one.tokens for one in direct.served)
    fixed = direct.list_main()[0][1]
    return max(largest // 3, direct.served[fixed].tokens + ROOM)


def print_table(rows: list[Figures], skipped: list[str]) -> str:
    """The figures as a table in Markdown, and what is wrong below it."""
    names = [one.name for one in fields(Figures) if one.name != "faults"]
    heads = [HEADS.get(name, name) for name in names]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(str(getattr(row, name)) for name in names)} |" for row in rows]
    lines += [
        "",
        *skipped,
        *(f"- {row.agent} at {row.window}: {fault}" for row in rows for fault in row.faults),
    ]
    return "\n".join(lines)


async def run_rows(
    rows: tuple[Row, ...], length: Length, folder: Path, *, stateless: bool = False
) -> tuple[list[Figures], list[str]]:
    """Run each row, and each agent once without a gateway; a `stateless` provider is only behind Foldline."""
    help_text = call_foldline(folder, "serve", "--help")
    alone: dict[str, Run] = {}
    measured, skipped = [], []
    for row in rows:
        if row.fold_from and "--fold-from" not in help_text:
            skipped.append(f"- {row.agent} was left out: this `foldline serve` has no --fold-from")
            continue
        begun = time.monotonic()
        install(AGENTS[row.agent].package)
        for name in {row.agent, row.beside or row.agent} - alone.keys():
            alone[name] = await run_once(Row(name), length, folder)
        direct = alone[row.beside or row.agent]
        if not direct.list_main():
            output = direct.turns[0].output[-2000:]
            raise SystemExit(f"{row.agent} asked nothing, even without a gateway: {output}")
        there = replace(row, window=row.window or find_window(direct))
        through = await run_once(there, length, folder, stateless=stateless)
        figures = measure(there, direct, through)
        if row.complaint and not any(row.complaint in one.output for one in alone[row.agent].turns):
            figures.faults.append(f"without Foldline it did not say {row.complaint!r}")
        measured.append(figures)
        verdict = "; ".join(measured[-1].faults) or "fine"
        print(
            f"{row.agent} at {there.window:,}: {time.monotonic() - begun:.0f} s, {verdict}",
            flush=True,
        )
    return measured, skipped


async def run_directly(rows: tuple[Row, ...], length: Length, folder: Path) -> int:
    """Run each agent without a gateway, and print how it went; 1 where one did not end as it should."""
    is_wrong = False
    for row in {row.agent: row for row in rows}.values():
        install(AGENTS[row.agent].package)
        run = await run_once(Row(row.agent), length, folder)
        finished = sum(turn.is_finished for turn in run.turns)
        refused = [one.why for one in run.served if one.why]
        said = any(row.complaint in turn.output for turn in run.turns)
        is_fine = said if row.complaint else finished == len(run.turns) and not refused
        is_wrong = is_wrong or not is_fine
        kinds = " ".join(one.kind for one in run.served)
        print(f"{row.agent}: {finished}/{len(run.turns)} turns, {kinds}", *refused, sep="\n  ")
    return int(is_wrong)


def main() -> int:
    """Read the command line, run, print; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "agents", nargs="*", help="only those whose names begin so: " + ", ".join(AGENTS)
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="Claude Code, Codex, gemini-cli, an SDK, frameworks; two turns of two rounds",
    )
    parser.add_argument("--out", type=Path, help="a file for the table")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the recordings, which are vendors' prompts"
    )
    parser.add_argument(
        "--stateless",
        action="store_true",
        help="the provider behind Foldline keeps nothing, and refuses previous_response_id",
    )
    parser.add_argument(
        "--direct", action="store_true", help="only without Foldline: how each turn ended"
    )
    parser.add_argument(
        "--exactly", action="store_true", help="only the agents with these very names"
    )
    parser.add_argument("--window", type=int, default=0, help="the window of all, in tokens")
    given = parser.parse_args()
    named = tuple(given.agents) or ("",)
    rows = tuple(
        replace(row, window=given.window or row.window, is_small=bool(given.window))
        for row in (SHORT if given.short else LONG)
        if (row.agent in named if given.exactly else row.agent.startswith(named))
    )
    if not rows:
        parser.error(f"no agent's name begins with {' or '.join(map(repr, named))}")
    length = Length(2, 2, (4_500, 5_500), calls=5) if given.short else Length(10, 5)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all that was started ends too
    with tempfile.TemporaryDirectory(prefix="clients-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve()
        # Agents look for a repository around the folder they work in, and write into it.
        if any((parent / ".git").exists() for parent in folder.parents):
            raise SystemExit(f"{folder} is inside a repository: set TMPDIR to a folder that is not")
        try:
            if given.direct:
                return asyncio.run(run_directly(rows, length, folder))
            measured, skipped = asyncio.run(
                run_rows(rows, length, folder, stateless=given.stateless)
            )
        finally:
            for file in (
                (*folder.glob("*/*/*.json"), *folder.glob("*/*/*.txt")) if given.keep else ()
            ):
                kept = given.keep / file.relative_to(folder)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, kept)
    table = print_table(measured, skipped)
    print(f"\n{table}")
    if given.out:
        given.out.write_text(table + "\n")
    return int(any(row.faults for row in measured))


if __name__ == "__main__":
    sys.exit(main())

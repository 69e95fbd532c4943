"""Serve the same conversations by two releases on one database, in turn and at once: nothing is lost.

    just chaos releases                 1,000 conversations, some minutes
    just chaos releases --short         36 of them, and two controls

The release before is built as a wheel from its commit, into an environment of its own; the release after is what is
here. A private server (`clusters.py`) has the roles that `foldline migrate --roles` prints, and both releases log in
as the gateway. Each conversation sends its whole history, with a key of a file that both releases read:

1. the release before serves, on the tables that it made
2. `foldline migrate` of the release after runs while it serves
3. the release before goes on, on the tables of the release after
4. the release after goes on with the same conversations
5. the release before again
6. both at once: each call goes to either of them
7. the release after to the end

Prints conversations, calls, errors, sessions that began anew, and requests that differ: those that do not begin with
the bytes sent before although no edit was made for them. Then every log is read, and must hold what its client holds,
each message once and in order; requests are rendered again to their hashes, and both releases must export the same.

Controls must be caught, or the run fails: a release that knows the key by another owner, and one that keeps no answer.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn, Self

import aiohttp
from clusters import DIRECT, Cluster, a_cluster

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "properties"), str(ROOT / "scripts")]
import release_building as building  # noqa: E402 - beside us
from mutants import broken  # noqa: E402

from foldline.core.edits.undo import iterate_covered_ranges  # noqa: E402
from foldline.core.log import Asked, Folded, ModelSaid, UserSaid  # noqa: E402
from foldline.core.parts import text_of  # noqa: E402
from foldline.core.spine import Range  # noqa: E402
from foldline.session import planning  # noqa: E402
from foldline.session.log_handle import Live  # noqa: E402
from foldline.session.model_facts import build_facts  # noqa: E402
from foldline.stores.base import Name  # noqa: E402
from foldline.stores.open_store import store_at  # noqa: E402
from foldline.testing import Provider  # noqa: E402

BEFORE = "a1e3cf5"  # the commit before the gateway for a company
TENANT, OWNER = "acme", "fleet"
AFTER = Path(sys.executable).with_name("foldline")
MUTANT = (
    "foldline.proxy.exchange",
    "events = self._read_answer()\n            if events:",
    "events = []\n            if events:",
)
_WINDOW = 6_000
_WORDS = 600  # of a message: a conversation is folded after some turns
_AT_ONCE = 16
_EXPORTED = 5
_EVERY = 10  # of how many requests one is rendered again


@dataclass
class Talk:
    """A conversation as its client holds it."""

    name: str
    said: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    session: str = ""
    sent: list[str] = field(default_factory=list[str])
    """What the provider was sent last, message by message."""


@dataclass
class Outcome:
    """What happened."""

    calls: int = 0
    edits: int = 0
    errors: list[str] = field(default_factory=list[str])
    anew: list[str] = field(default_factory=list[str])
    differ: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])

    def is_good(self) -> bool:
        """Whether all was as it must be."""
        return not (self.errors or self.anew or self.differ or self.lost)


class Gateway:
    """A real `foldline serve` of one of the releases."""

    def __init__(self, program: Sequence[str | Path], options: list[str], folder: Path) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "FOLDLINE_UPSTREAM_KEY": "sk-operators",
        }
        self.said = (folder / "gateways.err").open("ab")
        self.process = subprocess.Popen(
            [*program, "serve", *options, "--port", "0"],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=self.said,
        )  # fmt: skip
        assert self.process.stdout is not None
        found = re.search(rb"http://[^:]+:(\d+)", self.process.stdout.readline())
        if found is None:
            words = (folder / "gateways.err").read_text()[-600:]
            raise SystemExit(f"a gateway did not start: {words}")
        self.port = int(found[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self.said.close()


def build_before(folder: Path) -> Path:
    """The wheel of the release before, in an environment of its own; its program."""
    tree, packed = folder / "tree", folder / "tree.tar"
    building.git("archive", "--output", str(packed), BEFORE)
    with tarfile.open(packed) as archive:
        archive.extractall(tree, filter="data")
    when = building.git("log", "-1", "--format=%ct", BEFORE).strip()
    wheel = building.build(tree, folder / "dist", when=when)["whl"]
    python = folder / "env" / "bin" / "python"
    pins = tree / "requirements" / "dev.txt"
    for line in (
        ["venv", "--python", sys.executable, folder / "env"],
        ["pip", "install", "--python", python, "--constraint", pins, f"{wheel}[gateway,pg]"],
    ):
        subprocess.run(["uv", "--quiet", *line], check=True)  # noqa: S607
    return python.with_name("foldline")


def run(*line: str | Path, code: int = 0) -> str:
    """Run a command that must end with a code; what it prints."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    if done.returncode != code:
        told = f"{done.stdout[-600:]}{done.stderr[-600:]}"
        raise SystemExit(f"{' '.join(map(str, line))}: code {done.returncode}: {told}")
    return done.stdout


def make_database(cluster: Cluster) -> tuple[str, str]:
    """The roles that the command prints, and a database of their owner; addresses of owner and gateway."""
    host = f"127.0.0.1:{cluster.port}/talks?{DIRECT}"
    roles = run(AFTER, "migrate", "--roles", "--store", f"postgresql://postgres@{host}")
    with cluster.owner() as superuser:
        superuser.execute(roles.encode())
        superuser.execute(b"create database talks owner foldline_owner")
    return f"postgresql://foldline_owner@{host}", f"postgresql://foldline_gateway@{host}"


@dataclass
class Load:
    """All conversations, and those who serve them."""

    talks: list[Talk]
    key: str
    arrived: dict[str, list[str]]
    """What the provider was sent last in each conversation."""
    random: Random
    found: Outcome = field(default_factory=Outcome)

    async def say(self, web: aiohttp.ClientSession, talk: Talk, gateways: list[Gateway]) -> None:
        """One turn of a conversation, by any of the gateways."""
        port = self.random.choice(gateways).port
        at = len(talk.said)
        words = " ".join(f"{talk.name}-{at}-{n}" for n in range(_WORDS // 5))
        body = [*talk.said, {"role": "user", "content": f"{words} {'and so on ' * (_WORDS // 3)}"}]
        given = {"model": "m", "messages": body, "user": talk.name}
        headers = {"authorization": f"Bearer {self.key}"}
        self.found.calls += 1
        place = f"{talk.name}, message {at}"
        try:
            async with web.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=given, headers=headers) as answer:  # fmt: skip
                told = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            self.found.errors.append(f"{place}: {fault!r}")
            return
        unplanned = answer.headers.get("x-foldline-unplanned")
        if answer.status != 200 or unplanned:
            self.found.errors.append(f"{place}: {answer.status} {unplanned} {str(told)[:120]}")
            return
        edits = int(answer.headers["x-foldline-edits"])
        self.found.edits += edits
        session, sent = answer.headers["x-foldline-session"], self.arrived.pop(talk.name)
        if talk.session and session != talk.session:
            self.found.anew.append(place)
        if sent[: len(talk.sent)] != talk.sent and not edits:
            self.found.differ.append(place)
        talk.session, talk.sent = session, sent
        reply = told["choices"][0]["message"]["content"]
        talk.said = [*body, {"role": "assistant", "content": reply}]

    async def talk(self, gateways: list[Gateway], turns: int) -> None:
        """Some turns of every conversation, many at a time."""
        seats = asyncio.Semaphore(_AT_ONCE)
        patience = aiohttp.ClientTimeout(total=120)

        async def one(talk: Talk) -> None:
            async with seats:
                for _ in range(turns):
                    await self.say(web, talk, gateways)

        async with aiohttp.ClientSession(timeout=patience) as web:
            await asyncio.gather(*map(one, self.talks))

    def serve(
        self,
        name: str,
        gateways: list[Gateway],
        turns: int,
        until: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        """A step of the run, for as long as a process lives; prints what happened in it."""
        begun, found = time.monotonic(), self.found
        counts = found.calls, found.edits
        asyncio.run(self.talk(gateways, turns))
        while until is not None and until.poll() is None:
            asyncio.run(self.talk(gateways, turns))
        took = time.monotonic() - begun
        told = f"{found.calls - counts[0]:6,} calls, {found.edits - counts[1]:5,} edits"
        print(f"  {took:6.1f} s  {told}  {name}", flush=True)


async def find_lost(address: str, talks: list[Talk]) -> list[str]:
    """The logs that do not hold what their clients hold, or whose requests cannot be had again."""
    lost: list[str] = []
    asked = 0
    facts = build_facts("m", window=None, reserve=None, policy="steady")
    store = store_at(address)
    try:
        for talk in talks:
            live = await Live.open(store, Name(TENANT, talk.session), facts=facts)
            events = dict(await live.read_events(Range(0, live.view.head)))
            folds = {seq: event for seq, event in events.items() if isinstance(event, Folded)}
            spans = [*iterate_covered_ranges(live.view.spine.segments, folds)]
            said = [
                ("user" if isinstance(event, UserSaid) else "assistant", text_of(event.parts))
                for seq, event in events.items()
                if isinstance(event, UserSaid | ModelSaid)
                and any(one.lo <= seq and (one.hi is None or seq <= one.hi) for one in spans)
            ]
            held = [(one["role"], one["content"]) for one in talk.said if one["role"] != "system"]
            if said != held:
                lost.append(f"{talk.name}: {len(said)} messages in the log, {len(held)} said")
            for seq, event in events.items():
                asked += isinstance(event, Asked)
                if isinstance(event, Asked) and asked % _EVERY == 0:
                    try:
                        await planning.rebuild_request(live, seq)
                    except Exception as fault:  # noqa: BLE001 - whatever it is, it is found
                        lost.append(f"{talk.name}: its request at {seq}: {fault!r}")
    finally:
        await store.close()
    return lost


def compare_exports(before: Path, address: str, talks: list[Talk]) -> list[str]:
    """The sessions that the two releases do not export alike."""
    differing: list[str] = []
    for talk in talks:
        line = ("export", talk.session, "--store", address, "--tenant", TENANT)
        if run(before, *line) != run(AFTER, *line):
            differing.append(f"{talk.name}: the releases export it differently")
    return differing


def serve_by_both(before: Path, many: int, *, owner: str = OWNER, mutant: bool = False) -> Outcome:
    """The whole run, on a server of its own."""
    arrived: dict[str, list[str]] = {}

    def answer(given: dict[str, Any]) -> dict[str, str]:
        arrived[given["user"]] = [json.dumps(one) for one in given["messages"]]
        return {"content": f"Heard {len(given['messages'])}, of {given['user']}."}

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="releases-")))
        cluster = stack.enter_context(a_cluster(memory=True))
        provider = stack.enter_context(Provider(answer, window=_WINDOW))
        theirs, address = make_database(cluster)
        # As their owner it makes its tables; it finds no session, and says so by its code.
        run(before, "sessions", "--store", theirs, code=1)
        keys, others = folder / "keys", folder / "others"
        key = run(before, "keys", "add", OWNER, "--tenant", TENANT, "--keys", keys)
        key = re.findall(r"fl-\S+", key)[0]
        others.write_text(keys.read_text().replace(f" {OWNER}", f" {owner}"))
        others.chmod(0o600)
        options = ["--upstream", provider.url, "--store", address, "--window", str(_WINDOW)]
        program = [sys.executable, __file__, "--mutant"] if mutant else [AFTER]
        talks = [Talk(f"talk-{n}", [{"role": "system", "content": f"You are talk-{n}."}]) for n in range(many)]  # fmt: skip
        load = Load(talks, key, arrived, Random(7))

        def before_serves() -> Gateway:
            return Gateway([before], [*options, "--keys", str(keys)], folder)

        def after_serves() -> Gateway:
            return Gateway(program, [*options, "--keys", str(others)], folder)

        with before_serves() as one:
            load.serve("before, on its own tables", [one], 1)
            migrating = subprocess.Popen([AFTER, "migrate", "--store", theirs], stdout=subprocess.DEVNULL)  # fmt: skip
            load.serve("before, while `foldline migrate` of after runs", [one], 1, until=migrating)
            if migrating.wait() != 0:
                raise SystemExit("`foldline migrate` failed while the release before served")
            run(AFTER, "migrate", "--check", "--store", address)
            load.serve("before, on the tables of after", [one], 1)
        with after_serves() as two:
            load.serve("after", [two], 2)
        with before_serves() as one:
            load.serve("before again", [one], 1)
            with after_serves() as two:
                load.serve("both at once", [one, two], 2)
        with after_serves() as two:
            load.serve("after, to the end", [two], 1)
        found = load.found
        found.lost = asyncio.run(find_lost(address, talks))
        found.lost += compare_exports(before, address, talks[:_EXPORTED])
    return found


def print_outcome(found: Outcome, many: int) -> None:
    """The figures, and some of each fault."""
    print(
        f"{many:,} conversations, {found.calls:,} calls, {found.edits:,} edits: "
        f"{len(found.errors)} errors, {len(found.anew)} sessions that began anew, "
        f"{len(found.differ)} requests that differ, {len(found.lost)} lost"
    )
    for name in ("errors", "anew", "differ", "lost"):
        for one in getattr(found, name)[:3]:
            print(f"  {name}: {one}")


def run_controls(before: Path) -> bool:
    """Whether faults that are made on purpose are found."""
    print("control: a release that knows the key by another owner")
    anew = serve_by_both(before, 4, owner="others").anew
    print(f"  {'caught' if anew else 'NOT CAUGHT'}: {len(anew)} began anew")
    print("control: a release that keeps no answer")
    lost = serve_by_both(before, 4, mutant=True).lost
    print(f"  {'caught' if lost else 'NOT CAUGHT'}: {lost[:1]}")
    return bool(anew and lost)


def run_mutant() -> NoReturn:
    """The command, with one rule taken out."""
    from foldline.apps.cli.app import run_command  # noqa: PLC0415 - behind the mutation

    with broken(*MUTANT):
        sys.exit(run_command(sys.argv[2:]))


def main() -> int:
    """All of it."""
    if sys.argv[1:2] == ["--mutant"]:
        run_mutant()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--conversations", type=int, default=0)
    given = parser.parse_args()
    many = given.conversations or (36 if given.short else 1_000)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="release-before-") as made:
        before = build_before(Path(made))
        print(f"before is {BEFORE}: {run(before, '--version').strip()}, built in {time.monotonic() - begun:.0f} s")  # fmt: skip
        found = serve_by_both(before, many)
        print_outcome(found, many)
        good = found.is_good() and found.edits > 0
        if given.short:
            good &= run_controls(before)
    print(f"{'all as it must be' if good else 'BROKEN'} in {time.monotonic() - begun:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

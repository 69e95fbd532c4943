"""From nothing to a first folded conversation of Claude Code through a gateway, by what the page says, timed.

    just bench first_gateway

Every line of docs/how-to/run-a-gateway.md is typed into a shell with an empty home, against a PostgreSQL server of its
own that asks for passwords, and each must end with code 0. What is replaced: the package by the built wheel, as it is
on no index; Anthropic's address by a scripted provider on loopback; keys that are shown as `…`; the port, by a free
one; and what Claude Code is asked, by words that the provider knows. Claude Code is the pinned one from npm.
Prints the seconds of each step, and exits 1 where a line fails, nothing was folded, the conversation is not one
session, or the provider saw another key than the operator's.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / one) for one in ("tests/clients", "tests/chaos", "scripts")]
import release_building as building  # noqa: E402 - not a package
from agents import RIG, install  # noqa: E402
from clusters import Cluster, a_cluster  # noqa: E402
from scripted import Scripted, start_provider  # noqa: E402
from upstream import prompt_of  # noqa: E402

PAGE = ROOT / "docs" / "how-to" / "run-a-gateway.md"
STEP = re.compile(r"^## ([^\n]+)$|^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPERATORS = f"sk-ant-{'o' * 30}"
ROUNDS = 8
MOST_TURNS = 8
WINDOW = 60_000  # as the page serves
IN_PEACE = " < /dev/null"
"""A person types into a terminal; here the shell's lines come through a pipe, and Claude Code would read them."""


def read_steps() -> list[tuple[str, str]]:
    """The lines of the page, each with the heading that it is under."""
    steps: list[tuple[str, str]] = []
    heading = ""
    for found in STEP.finditer(PAGE.read_text()):
        heading = found[1] or heading
        for line in (found[2] or "").splitlines():
            if not line.startswith("$ "):
                raise SystemExit(f"{PAGE.name}: a line that does not begin with `$ `: {line}")
            steps.append((heading, line[2:]))
    return steps


class Shell:
    """A shell that a person would type into."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],  # noqa: S607
            cwd=folder, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it left running."""
        if self.process.poll() is None:
            self.type("kill $(jobs -p); for n in 1 2 3 4 5; do jobs %1 || break; sleep 1; done")
            self.process.kill()
        self.process.wait()

    def type(self, line: str) -> tuple[int, str]:
        """Run a line; its code, and what it printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f'{line}\ncode=$?; echo; echo "ended with $code"\n')
        self.process.stdin.flush()
        said: list[str] = []
        for one in self.process.stdout:
            if found := re.fullmatch(r"ended with (\d+)\n", one):
                return int(found[1]), "".join(said).strip()
            said.append(one)
        raise SystemExit(f"the shell ended at: {line}\n{''.join(said)}")


class Reader:
    """Who does what the page says, line by line."""

    def __init__(self, shell: Shell, wheel: Path, provider: Scripted, folder: Path) -> None:
        self.shell, self.wheel, self.provider, self.folder = shell, wheel, provider, folder
        self.keys: list[str] = []
        self.turn = 0
        self.taken: dict[str, float] = {}
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]

    def follow(self) -> None:
        """All lines of the page."""
        for heading, line in read_steps():
            begun = time.monotonic()
            if line.startswith("foldline serve "):
                self.serve(self.replace(line))
            elif line.startswith("claude "):
                self.ask(line)
            else:
                self.do(self.replace(line))
            took = time.monotonic() - begun
            self.taken[heading] = self.taken.get(heading, 0.0) + took
            print(f"{took:8.1f} s  {line}", flush=True)

    def do(self, line: str) -> str:
        """A line that must end with code 0; what it printed."""
        code, said = self.shell.type(line)
        if code:
            log = self.folder / "serve.log"
            told = log.read_text()[-1_500:] if log.exists() else ""
            raise SystemExit(f"code {code}: {line}\n{said[-2_000:]}\n{told}")
        self.keys += re.findall(r"^(fl-\S+)", said, re.MULTILINE)
        return said

    def replace(self, line: str) -> str:
        """A line as it is run here."""
        line = line.replace("foldline[", f"{self.wheel}[").replace("sk-ant-…", OPERATORS)
        line = line.replace("https://api.anthropic.com", self.provider.url)
        line = line.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        return line.replace("fl-…", self.keys[0]) if "fl-…" in line else line

    def serve(self, line: str) -> None:
        """In a terminal of its own, until it is ready."""
        self.do(f"{line} --port {self.port} > {self.folder}/serve.log 2>&1 &")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5).close()
                return
            time.sleep(0.1)
        raise SystemExit(f"it does not serve: {(self.folder / 'serve.log').read_text()[-1_500:]}")

    def ask(self, line: str) -> None:
        """A turn of Claude Code; the one that goes on is repeated until something is folded."""
        while True:
            self.turn += 1
            said = self.do(re.sub(r'"[^"]*"', f'"{prompt_of(self.turn)}"', line) + IN_PEACE)
            if f"Turn {self.turn} is done" not in said:
                raise SystemExit(f"Claude Code did not finish turn {self.turn}: {said[-1_000:]}")
            if "--continue" not in line:
                return
            time.sleep(6)  # sums are written every five seconds
            if self.count_folds():
                return
            if self.turn == MOST_TURNS:
                raise SystemExit(f"nothing was folded in {self.turn} turns")

    def count_folds(self) -> int:
        """The folds of alice's conversations."""
        rows = json.loads(self.do("foldline usage --by owner --tenant acme --json"))["rows"]
        return sum(row["folds"] for row in rows if row["owner"] == "alice")

    def list_faults(self) -> list[str]:
        """What is not as the page says."""
        found: list[str] = []
        sessions = json.loads(self.do("foldline sessions --tenant acme --json"))["sessions"]
        if len(sessions) != 1:
            found.append(f"{len(sessions)} sessions of one conversation")
        ops = self.keys[1]
        told = self.do(f"curl --silent --fail -H 'authorization: Bearer {ops}' http://127.0.0.1:{self.port}/sessions")  # fmt: skip
        pages = f"http://127.0.0.1:{self.port}/ui"
        self.do(f"curl --silent --fail --cookie-jar jar --data key={ops} --header 'Origin: http://127.0.0.1:{self.port}' {pages}/sign-in")  # fmt: skip
        told_there = self.do(f"curl --silent --fail --cookie jar {pages}/")
        if sessions and not (sessions[0]["session"] in told and sessions[0]["session"] in told_there):  # fmt: skip
            found.append("the key of ops does not see the session")
        lines = [json.loads(one) for one in (self.folder / "served.jsonl").read_text().splitlines()]
        asked = [one for one in lines if one["path"].startswith("/v1/messages")]
        if not asked or {one["headers"].get("x-api-key") for one in asked} != {OPERATORS}:
            found.append("the provider did not see the operator's key alone")
        if any(key in json.dumps(lines) for key in self.keys):
            found.append("the provider saw a key of the gateway")
        print(f"one conversation of {self.turn} turns, {len(asked)} calls of the provider, {self.count_folds()} folds")  # fmt: skip
        return found


def ask_for_passwords(cluster: Cluster) -> None:
    """Let only the superuser in without one."""
    lines = ("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256")
    (cluster.at / "pg_hba.conf").write_text("\n".join(lines) + "\n")
    with cluster.owner() as superuser:
        superuser.execute(b"select pg_reload_conf()")


def make_environment(folder: Path, cluster: Cluster) -> dict[str, str]:
    """An empty home, the programs of the machine, and the server's port."""
    (folder / "home").mkdir()
    work = folder / "work"
    work.mkdir()
    (work / "ledger.txt").write_text("Nothing is in it yet.\n")
    node, programs = Path(shutil.which("node") or "").parent, Path(sys.base_prefix) / "bin"
    own = RIG / "claude" / "node_modules" / ".bin"
    found = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {
        **found,
        "HOME": str(folder / "home"),
        "PATH": f"{own}:{programs}:{node}:{cluster.bin}:/usr/local/bin:/usr/bin:/bin",
        "PGPORT": str(cluster.port),
        "LANG": "C.UTF-8",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def main() -> int:
    """Do what run-a-gateway.md says, and print how long it took."""
    if missing := [one for one in ("npm", "node", "uv", "curl", "psql", "createdb") if not shutil.which(one)]:  # fmt: skip
        raise SystemExit(f"not here: {', '.join(missing)}")
    install("claude")
    with tempfile.TemporaryDirectory(prefix="first-gateway-") as name, a_cluster() as cluster:
        folder = Path(name)
        wheel = building.build(ROOT, folder / "dist", when=building.epoch())["whl"]
        ask_for_passwords(cluster)
        env = make_environment(folder, cluster)
        with (
            start_provider(folder, window=WINDOW, rounds=ROUNDS, reports_cache=True) as provider,
            Shell(folder / "work", env) as shell,
        ):
            reader = Reader(shell, wheel, provider, folder)
            reader.follow()
            faults = reader.list_faults()
            reader.do("kill -TERM %1 && wait %1")
    print()
    for heading, took in reader.taken.items():
        print(f"{took:8.1f} s  {heading}")
    print(f"{sum(reader.taken.values()):8.1f} s  together, each line with code 0")
    for one in faults:
        print(f"WRONG: {one}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

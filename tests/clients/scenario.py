"""A day with Claude Code in its own terminal: what a person does in it, and what became of the conversation.

    python tests/clients/scenario.py claude-new --window 30000                    with `foldline run`
    python tests/clients/scenario.py claude-new --window 60000 --way serve        through a gateway, or `direct`

Twelve turns of five tool rounds: `/effort` twice, `/model` once, a deferred tool that is loaded before the first fold
and used until the last turn, a picture, and a sub-agent. Prints the figures, and exits 1 where one is not as it should
be. What is recorded stays in the folder that `--keep` names; it holds the vendor's prompts.
"""

import argparse
import json
import os
import re
import runpy
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents import RIG, install
from bills import bill_served, compare_bills
from measure_clients import is_side
from scripted import Scripted, start_provider
from upstream import HELPER, PICTURE, prompt_of

Tmux = runpy.run_path(str(Path(__file__).parents[1] / "e2e" / "tmux.py"))["Tmux"]
FOLDLINE = Path(sys.executable).with_name("foldline")
KEY = f"sk-ant-api03-{'x' * 30}"
TOOL = "CronList"
"""A deferred tool of Claude Code that needs nothing and changes nothing."""
FIVE = ("shell",) * 5
PLAN = dict.fromkeys(range(1, 13), FIVE) | {
    1: ("shell", f"search:{TOOL}", "shell", f"use:{TOOL}", "shell"),
    3: ("shell", "picture", "shell", "shell", "shell"),
    5: ("shell", "helper", "shell", "shell", "shell"),
    6: ("shell", "shell", f"use:{TOOL}", "shell", "shell"),
    9: ("shell", f"use:{TOOL}", "shell", "shell", "shell"),
    12: ("shell", "shell", "shell", "shell", f"use:{TOOL}"),
    HELPER + 5: ("shell", "shell"),
}
SAID_AFTER = {4: "/effort high", 6: "/model sonnet", 8: "/effort low"}
"""What is typed behind a turn."""
FOLDS = 3
CENT = 0.01
SIZE = (5_000, 8_000)
QUIET_SECONDS, REFUSED_SECONDS = 90, 8
"""A turn in which nothing reached the provider for so long has ended, one way or the other; sooner after a refusal."""
_HANDOFF = re.compile(r"\[handoff: ")
_MARK = re.compile(r"Turn (\d+) of the ledger job")


@dataclass
class Day:
    """What was seen of one day."""

    agent: str
    version: str
    way: str
    window: int
    ended: int = 0
    """Turns that ended as the script says."""
    turns: int = len(PLAN) - 1
    requests: int = 0
    above: int = 0
    """Requests above the window."""
    refused: int = 0
    """Requests that were refused for any other reason."""
    largest: int = 0
    folds: int = 0
    """How often the beginning of the conversation changed for a handoff."""
    uses: list[int] = field(default_factory=list)
    """The folds before each use of the deferred tool."""
    sessions: int = 0
    """Sessions in which the user speaks; a helper's is not one."""
    helpers: int = 0
    bill: float = 0.0
    """What the provider asks for, in dollars."""
    views: list[str] = field(default_factory=list)
    """Views that say another bill."""
    paid: float = 0.0
    """What the run says that was paid."""
    why: list[str] = field(default_factory=list)
    report: list[str] = field(default_factory=list)
    """What the run says at its end."""

    def list_faults(self) -> list[str]:
        """What is not as it should be."""
        holds = {
            f"{self.ended} of {self.turns} turns ended": self.ended == self.turns,
            f"{self.above} requests above the window": not self.above,
            f"{self.refused} requests refused: {self.why[:1]}": not self.refused,
        }
        if self.way != "direct":
            most = max(self.uses, default=0)
            holds |= {
                f"{self.folds} folds": self.folds >= FOLDS,
                f"the tool was used behind {most} folds": most >= FOLDS,
                f"{self.sessions} sessions for one conversation": self.sessions == 1,
                f"bills that differ: {self.views}": not self.views,
            }
        if self.way == "run":
            is_equal = abs(self.paid - self.bill) < CENT / 2
            holds[f"${self.paid:.4f} are said, ${self.bill:.4f} were asked"] = is_equal
        return [fault for fault, is_so in holds.items() if not is_so]


def write_picture(folder: Path) -> None:
    """A small picture."""
    side = 64
    rows = b"".join(
        b"\0" + bytes((y * 4 % 256, x * 4 % 256, 99)[z] for x in range(side) for z in range(3))
        for y in range(side)
    )
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    (folder / PICTURE).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(written))


def make_env(home: Path, package: str) -> dict[str, str]:
    """What the agent and Foldline find: of this machine only where programs are."""
    kept = {one: os.environ[one] for one in ("LANG", "TMPDIR") if one in os.environ}
    path = f"{RIG / package / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    return {
        **kept, "PATH": path, "HOME": str(home), "TERM": "xterm-256color", "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTO_COMPACT": "1", "IS_SANDBOX": "1",
    }  # fmt: skip


def configure(home: Path, work: Path) -> None:
    """Answer what Claude Code asks at its first start."""
    asked_before = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "bypassPermissionsModeAccepted": True,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(work): {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(asked_before))


@contextmanager
def start_gateway(upstream: str, folder: Path, window: int, env: dict[str, str]) -> Iterator[str]:
    """A `foldline serve` of this checkout."""
    port = upstream_port(upstream) + 1
    options = ("--upstream", upstream, "--port", port, "--window", window)
    command = [*map(str, (FOLDLINE, "serve", *options))]
    with (folder / "gateway.txt").open("w") as shown:
        process = subprocess.Popen(command, env=env, stdout=shown, stderr=shown)
        try:
            while "http://" not in (folder / "gateway.txt").read_text():
                assert process.poll() is None, (folder / "gateway.txt").read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def upstream_port(url: str) -> int:
    """The port of an address."""
    return int(url.rpartition(":")[2])


def spend_day(folder: Path, package: str, window: int, way: str) -> Day:
    """Take Claude Code through the day, and look at what reached the provider and what is stored."""
    install(package)
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir()
    write_picture(work)
    configure(home, work)
    env = make_env(home, package)
    version = subprocess.run(
        ["claude", "--version"],  # noqa: S607 - the one that was installed
        env=env, capture_output=True, text=True, check=True,
    ).stdout.split()[0]  # fmt: skip
    day = Day(package, version, way, window)
    plan = ("--plan", json.dumps(PLAN), "--size", *SIZE, "--work", work)
    limit = 0 if way == "direct" else window
    with start_provider(folder, window=limit, reports_cache=True, more=plan) as provider:
        if way == "serve":
            with start_gateway(provider.url, folder, window, env) as base:
                talk(day, folder, env | {"ANTHROPIC_BASE_URL": base})
        else:
            talk(day, folder, env | {"ANTHROPIC_BASE_URL": provider.url})
        look_at(day, provider)
        if way != "direct":
            day.views = compare_bills(find_store(env), provider.log)
    if way != "direct":
        day.sessions, day.helpers = count_sessions(env)
    (folder / "day.json").write_text(json.dumps(asdict(day), indent=1))
    return day


def talk(day: Day, folder: Path, env: dict[str, str]) -> None:
    """Type what the day is about, turn by turn."""
    window = Tmux(folder / "work", columns=110, rows=45, env=env)
    begin = f"{FOLDLINE} run --window {day.window} " if day.way == "run" else ""
    try:
        window.types(f"{begin}claude --model opus --dangerously-skip-permissions", "Enter")
        window.sees("API Usage Billing")
        time.sleep(1)
        for turn in range(1, day.turns + 1):
            say(window, prompt_of(turn))
            if has_ended(window, turn, folder / "served.jsonl"):
                day.ended += 1
            else:
                shown = [line for line in window.screen().splitlines() if line.strip()]
                day.why.append(f"turn {turn} did not end: {shown[-12:]}")
                window.types("", "Escape")
                time.sleep(1)
            if turn in SAID_AFTER:
                say(window, SAID_AFTER[turn])
                time.sleep(2)
                if "❯ 1." in window.screen():  # it asks whether that is meant
                    window.types("", "Enter")
                    time.sleep(1)
        say(window, "/exit")
        if day.way == "run":
            screen = window.sees("  look  ", seconds=30)
            day.report = screen[screen.rindex("foldline: ") :].strip().splitlines()
            paid = re.search(r"  paid +\$([\d.]+)", screen)
            day.paid = float(paid[1]) if paid else 0.0
    finally:
        (folder / "screen.txt").write_text(window.screen(past=True))
        window.close()


def has_ended(window: Any, turn: int, log: Path) -> bool:
    """Wait for the end of a turn; false if it ended otherwise than the script says, or never."""
    size, since, quiet = log.stat().st_size, time.monotonic(), QUIET_SECONDS
    while time.monotonic() < since + quiet:
        screen = window.screen(past=True)
        if f"Turn {turn} is done after {len(PLAN[turn])} steps." in screen:
            return True
        if f"Turn {turn} cannot go on" in screen:
            return False
        if log.stat().st_size != size:
            size, since = log.stat().st_size, time.monotonic()
            is_refused = '"kind": "refused"' in log.read_text().splitlines()[-1]
            quiet = REFUSED_SECONDS if is_refused else QUIET_SECONDS
        time.sleep(0.4)
    return False


def say(window: Any, words: str) -> None:
    """Type words, and send them when they are there."""
    window.types(words)
    window.sees(words[:60], seconds=10)
    time.sleep(0.4)
    window.types("", "Enter")


def look_at(day: Day, provider: Scripted) -> None:
    """What reached the provider."""
    handoff, day.bill = "", float(bill_served(provider.log).dollars or 0)
    seen: set[str] = set()
    for line in provider.list_served():
        day.requests += 1
        day.largest = max(day.largest, line["tokens"])
        if line["kind"] == "refused":
            is_above = "too long" in line["why"]
            day.above += is_above
            day.refused += not is_above
            day.why.append(line["why"])
        body = json.loads(line["raw"])
        texts = [text for message in body["messages"] for text in list_texts(message)]
        marks = [int(one) for text in texts for one in _MARK.findall(text)]
        if not body.get("tools") or not marks or min(marks) > HELPER:
            continue  # a title or a helper
        newest = next((text for text in texts if _HANDOFF.match(text)), "")
        day.folds += newest != handoff
        handoff = newest
        calls = (block for message in body["messages"] for block in list_blocks(message))
        used = {one["id"] for one in calls if one.get("name") == TOOL} - seen
        day.uses += [day.folds] * len(used)
        seen |= used


def list_blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a message."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def list_texts(message: dict[str, Any]) -> list[str]:
    """The words of a message."""
    return [block["text"] for block in list_blocks(message) if block["type"] == "text"]


def count_sessions(env: dict[str, str]) -> tuple[int, int]:
    """How many sessions in the store of a HOME are a user's, and how many a helper's."""
    users = helpers = 0
    for name in json.loads(call_foldline(env, "sessions", "--json"))["sessions"]:
        log = call_foldline(env, "export", name["session"], "--format", "jsonl")
        if is_side(log.splitlines()):
            continue
        said = [line for line in log.splitlines() if json.loads(line)["kind"] == "user_said"]
        marks = [int(one) for line in said for one in _MARK.findall(line)]
        users += bool(marks) and min(marks) < HELPER
        helpers += bool(marks) and min(marks) > HELPER
    return users, helpers


def find_store(env: dict[str, str]) -> str:
    """The store in a HOME."""
    return f"{env['HOME']}/.local/share/foldline/sessions.db"


def call_foldline(env: dict[str, str], *options: str) -> str:
    """What a command of Foldline prints."""
    return subprocess.run(
        [FOLDLINE, *options], env=env, capture_output=True, text=True, check=True
    ).stdout


def main() -> int:
    """Spend the day, and print its figures; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("agent", nargs="?", default="claude-new")
    parser.add_argument("--window", type=int, default=60_000)
    parser.add_argument("--way", choices=("run", "serve", "direct"), default="run")
    parser.add_argument("--keep", type=Path, help="a folder for what is recorded")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="day-", ignore_cleanup_errors=True) as temporary:
        day = spend_day(Path(temporary).resolve(), given.agent, given.window, given.way)
        if given.keep:
            shutil.copytree(
                temporary,
                given.keep,
                ignore=shutil.ignore_patterns("node_modules", "tmux"),
                dirs_exist_ok=True,
            )
    for name, value in asdict(day).items():
        print(f"{name:9} {value}")
    print(*day.list_faults() or ["fine"], sep="\n")
    return int(bool(day.list_faults()))


if __name__ == "__main__":
    sys.exit(main())

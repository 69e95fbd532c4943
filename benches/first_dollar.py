"""From `pip install` of the built wheel to the first dollar saved, by what README and docs say, timed.

    just bench first_dollar              nine turns, which fit whole in 200,000 tokens
    just bench first_dollar --turns 16

A newcomer who uses Claude Code already has an empty home but for that, and a provider of ours on loopback, which
bills as Anthropic does. The commands are taken from README.md and docs/how-to/run.md, as they stand there; only the
name of the package is replaced by the wheel, as it is on no index. Installing Claude Code itself is timed apart.
Prints the seconds of each step and what was saved, and exits 1 where that is less than a dollar.
"""

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "clients"))
sys.path.append(str(ROOT / "scripts"))

import release_building as building  # noqa: E402
from agents import CLAUDE, PACKAGES  # noqa: E402
from scripted import start_provider  # noqa: E402
from upstream import prompt_of  # noqa: E402

Tmux = runpy.run_path(str(ROOT / "tests" / "e2e" / "tmux.py"))["Tmux"]
PAGES = (ROOT / "README.md", ROOT / "docs" / "how-to" / "run.md")
INSTALL, RUN, LIST = "pip install 'foldline[gateway]'", "foldline run claude", "foldline sessions"
KEY = f"sk-ant-api03-{'x' * 30}"
ROUNDS = 10
TURN_SECONDS = 240.0
ENOUGH = 1.0  # dollars
SAVED = re.compile(
    r"^  saved +\$([\d.]+): sending everything would have cost about \$([\d.]+)", re.MULTILINE
)
PAID = re.compile(r"^  paid +\$([\d.]+)", re.MULTILINE)
LOOK = re.compile(r"^  look +(foldline history .+)$", re.MULTILINE)


class Steps:
    """What was done, and how long it took."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step, and print it."""
        begun = time.monotonic()
        yield
        self.taken.append((name, time.monotonic() - begun))
        print(f"{self.taken[-1][1]:8.1f} s  {name}", flush=True)


def find_command(words: str) -> str:
    """A command, if every page has it, as a line that is to be typed."""
    for page in PAGES:
        if words != LIST and f"\n$ {words}\n" not in page.read_text():
            raise SystemExit(f"{page.name} does not say `{words}`")
    return words


def make_home(folder: Path) -> tuple[Path, Path]:
    """A home with nothing in it but what Claude Code has asked its user before, and a folder to work in."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(work): {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(known))
    return home, work


def install_foldline(folder: Path, wheel: Path) -> Path:
    """The documented `pip install` in an environment of its own; its programs."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)  # noqa: S603
    asked = find_command(INSTALL).replace("foldline[", f"{wheel}[")
    programs = folder / "env" / "bin"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    command = f"{asked} --quiet --no-cache-dir --disable-pip-version-check"
    subprocess.run(command, shell=True, check=True, env={**os.environ, "PATH": path})  # noqa: S602
    return programs


def install_claude(folder: Path) -> Path:
    """Claude Code from npm; its programs."""
    quiet = ("--silent", "--no-audit", "--no-fund", "--no-package-lock")
    _, pin = PACKAGES["claude"]
    line = ["npm", "install", *quiet, "--prefix", folder / "agent", pin]
    subprocess.run(line, check=True)  # noqa: S603
    return folder / "agent" / "node_modules" / ".bin"


def say(window: Any, words: str) -> None:
    """Type words into the agent's prompt, and send them when they are there."""
    window.types(words)
    window.sees(words[:60], seconds=30)
    time.sleep(0.3)
    window.types("", "Enter")


def talk(window: Any, turns: int, steps: Steps) -> str:
    """Run the agent as a person does, through some turns; the screen behind it."""
    with steps.step(f"`{RUN}`, until it can be talked to"):
        window.types(f"{find_command(RUN)} --model {CLAUDE} --allowedTools Bash", "Enter")
        window.sees("API Usage Billing")
    with steps.step(f"{turns} turns of {ROUNDS} tool calls"):
        for turn in range(1, turns + 1):
            say(window, prompt_of(turn))
            window.sees(f"Turn {turn} is done after {ROUNDS} steps.", seconds=TURN_SECONDS)
    with steps.step("`/exit`, until the report is there"):
        say(window, "/exit")
        return window.sees("  look  ")


def main() -> int:
    """Do it, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--screen", type=Path, help="a file for all that the terminal showed")
    given = parser.parse_args()
    if missing := [name for name in ("npm", "node", "tmux", "uv") if shutil.which(name) is None]:
        raise SystemExit(f"not here: {', '.join(missing)}")
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="first-dollar-") as name:
        folder = Path(name)
        wheel = building.build(ROOT, folder / "dist", when=building.epoch())["whl"]
        with steps.step(f"`{INSTALL}`, in an empty environment, without a cache"):
            programs = install_foldline(folder, wheel)
        installed = len(steps.taken)
        with steps.step("Claude Code by npm, which a newcomer here has"):
            agent = install_claude(folder)
        home, work = make_home(folder)
        with start_provider(folder, window=200_000, rounds=ROUNDS, reports_cache=True) as provider:
            env = {
                "HOME": str(home), "PATH": f"{programs}:{agent}:/usr/local/bin:/usr/bin:/bin",
                "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": provider.url,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            }  # fmt: skip
            env["PATH"] = f"{env['PATH']}:{Path(shutil.which('node') or '').parent}"
            window = Tmux(work, columns=100, rows=40, env=env)
            try:
                screen = talk(window, given.turns, steps)
                with steps.step("what the report says to look at, and the list of sessions"):
                    for command in (LOOK.findall(screen)[-1], find_command(LIST)):
                        window.types(f"{command}; echo code $?", "Enter")
                        screen = window.sees("code 0", count=2 if command == LIST else 1)
            finally:
                if given.screen:
                    given.screen.write_text(window.screen(past=True))
                window.close()
    saved, whole = (float(one) for one in SAVED.findall(screen)[-1])
    paid = float(PAID.findall(screen)[-1])
    own = sum(seconds for at, (_, seconds) in enumerate(steps.taken) if at != installed)
    print(f"{own:8.1f} s  together, without Claude Code's own installation")
    print(f"paid ${paid:.2f}, saved ${saved:.2f} of about ${whole:.2f}")
    return 0 if saved >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())

"""Real agents through `foldline run`, from an empty home, past their window, turn by turn.

CI has time for two of these: Claude Code from an empty home, whose dollars are the provider's to the
cent, and Claude Code whose gateway is killed in the middle of an answer. What needs a terminal or a
subscription is shown there by a scripted agent, in test_run.py; all else is for `just test-all`.
"""

import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import CLAUDE, GPT, RIG, install
from bills import compare_bills
from processes import find_gateway, list_processes, wait_until
from scenario import count_sessions, find_store, spend_day
from scripted import start_provider
from upstream import HELPER, prompt_of

FOLDLINE = Path(sys.executable).with_name("foldline")
Tmux = runpy.run_path(str(Path(__file__).parents[1] / "e2e" / "tmux.py"))["Tmux"]
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: no agents to install"),
]


@dataclass(frozen=True)
class RealAgent:
    """How an agent is started in an empty home, and a window that it does not fit in."""

    window: int
    first: tuple[str, ...]
    """Its command for the first turn; the words of the turn are appended."""
    later: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    own: tuple[str, ...]
    """What it writes at home by itself."""
    settings: tuple[tuple[str, dict[str, Any]], ...] = ()
    """What stands in its files before the first turn."""
    provider: tuple[str, ...] = ()
    """Options of the provider that can work with it."""


KEYS = tuple((f"{one}_API_KEY", "k") for one in ("ANTHROPIC", "OPENAI", "CODEX", "GEMINI"))
QUIET = (("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("DISABLE_AUTOUPDATER", "1"))
OFFLINE = tuple(
    (f"OPENCODE_DISABLE_{name}", "1")
    for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
)
BYPASS = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
SONNET = ("--model", CLAUDE)
PRO = "gemini-2.5-pro"
AGENTS = {
    "claude": RealAgent(
        60_000,
        ("claude", *SONNET, "--allowedTools", "Bash", "-p"),
        ("claude", *SONNET, "--allowedTools", "Bash", "--continue", "-p"),
        (*KEYS, *QUIET, ("DISABLE_TELEMETRY", "1"), ("DISABLE_AUTO_COMPACT", "1")),
        (".claude", ".claude.json"),
    ),
    "codex": RealAgent(
        40_000,
        ("codex", "-c", f"model={GPT}", "exec", *BYPASS),
        ("codex", "-c", f"model={GPT}", "exec", "resume", "{session}", *BYPASS),  # the last may be a helper's
        KEYS,
        (".codex", ".cache"),
    ),
    "opencode": RealAgent(
        40_000,
        ("opencode", "run", "-m", f"anthropic/{CLAUDE}"),
        ("opencode", "run", "-c", "-m", f"anthropic/{CLAUDE}"),
        (*KEYS, *OFFLINE),
        (".config", ".local/share/opencode", ".local/state", ".cache", ".opencode", ".bun", ".npm"),
    ),
    "pi": RealAgent(
        24_000,
        ("pi", "-p", "--offline", "--provider", "anthropic", *SONNET),
        ("pi", "-p", "-c", "--offline", "--provider", "anthropic", *SONNET),
        (*KEYS, ("PI_OFFLINE", "1")),
        (".pi",),
    ),
    "gemini": RealAgent(
        40_000,
        ("gemini", "-m", PRO, "--yolo", "--skip-trust", "-p"),
        ("gemini", "--resume", "latest", "-m", PRO, "--yolo", "--skip-trust", "-p"),
        KEYS,
        (".gemini", ".cache", ".config"),
        ((".gemini/settings.json", {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
        }),),
        ("--takes-repeats",),  # behind --resume it sends results twice
    ),
    "qwen": RealAgent(
        40_000,
        ("qwen", "--yolo", "-p"),
        ("qwen", "--continue", "--yolo", "-p"),
        (*KEYS, ("OPENAI_MODEL", GPT), ("QWEN_TELEMETRY_ENABLED", "0")),
        (".qwen", ".cache", ".config"),
        ((".qwen/settings.json", {
            "security": {"auth": {"selectedType": "openai"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
            "$version": 4,  # else it adds that itself
        }),),
    ),
}  # fmt: skip
AGENTS["claude-new"] = AGENTS["claude"]


def read_dollars(screen, word):
    """An amount of a report, by the word before it."""
    words = screen.split()
    return float(words[words.index(word) + 1].strip("$:"))


def hash_files(home):
    files = (file for file in home.rglob("*") if file.is_file() and not file.is_symlink())
    return {
        file.relative_to(home).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def make_places(folder):
    """An empty home, and an empty folder to work in."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    return home, work


def make_environment(agent, name, home):
    """What an agent finds: of this machine only where programs are."""
    kept = {one: os.environ[one] for one in ("LANG", "TERM") if one in os.environ}
    path = f"{RIG / name / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**kept, "PATH": path, "HOME": str(home), "CI": "1", "NO_COLOR": "1"}
    return env | dict(agent.environment)


def name_provider(provider):
    """The variables by which agents are told an address."""
    return {
        "ANTHROPIC_BASE_URL": provider.url,
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "GOOGLE_GEMINI_BASE_URL": provider.url,
    }


def drive(name, turns, rounds, folder, *options, plan=None):
    """Take an agent through the turns of a job, or of a plan; returns what each run printed."""
    agent = AGENTS[name]
    install(name)
    home, work = make_places(folder)
    (home / "notes.txt").write_text("the user's own\n")
    for path, settings in agent.settings:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(json.dumps(settings))
    before = hash_files(home)
    screens = []
    window = 0 if "--dry" in options else agent.window
    more = ("--plan", json.dumps(plan or {}), "--work", work, *agent.provider)
    with start_provider(
        folder, window=window, rounds=rounds, reports_cache=True, more=more
    ) as provider:
        env = make_environment(agent, name, home) | name_provider(provider)
        known = ""
        for number in range(1, turns + 1):
            words = agent.first if number == 1 else agent.later
            command = [*(one.format(session=known) for one in words), prompt_of(number)]
            done = subprocess.run(
                [FOLDLINE, "run", "--window", str(agent.window), *options, *command],
                cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=170, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"turn {number}: {done.stdout}\n{done.stderr}"
            assert f"Turn {number} is done" in done.stdout, done.stdout
            screens.append(done.stderr)
            known = next(iter(re.findall(r"session id: (\S+)", done.stderr)), known)
        print(f"\n{name}, {turns} turns")
        assert not compare_bills(find_store(env), provider.log, screens)
    users, helpers = count_sessions(env)
    assert users == 1, f"one conversation became {users} sessions"
    assert helpers == sum(int(turn) > HELPER for turn in plan or ())
    after = hash_files(home)
    assert after.items() >= before.items(), "a file of the user's was changed"
    mine = [".local/share/foldline/", *(f"{own}/" for own in agent.own), *agent.own]
    assert not [path for path in {*after} - {*before} if not path.startswith(tuple(mine))]
    assert not [*work.iterdir()], "and nothing is left where it worked"
    return screens


def test_claude_code_in_an_empty_home(tmp_path):
    screens = drive("claude", 2, 2, tmp_path)
    assert all("  paid      $" in screen for screen in screens)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", AGENTS)
def test_every_view_says_what_the_provider_billed(name, tmp_path):
    """`just bills` shows the table."""
    drive(name, 3, 4, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", AGENTS)
def test_ten_turns_past_the_window(name, tmp_path):
    screens = drive(name, 10, 5, tmp_path)
    assert any("  folds     " in screen for screen in screens), screens[-1]
    looked = {screen.split("foldline history ")[1].split()[0] for screen in screens}
    assert len(looked) == 1, "ten runs continue one session"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", ["run", "serve"])
@pytest.mark.parametrize("window", [60_000, 30_000])
def test_a_day_with_claude_code_in_its_terminal(window, way, tmp_path):
    """Effort and model changed on the way, a deferred tool, a picture, a helper; several folds."""
    day = spend_day(tmp_path, "claude-new", window, way)
    print(f"\n{day}")
    assert not day.list_faults()


@pytest.mark.long
def test_a_helper_of_codex_has_a_session_of_its_own(tmp_path):
    helps = ("shell", "helper", "wait", "shell")
    plan = {
        1: helps,
        2: ("shell",) * 4,
        3: helps,
        HELPER + 1: ("shell",) * 3,
        HELPER + 3: ("shell",),
    }
    drive("codex", 4, 4, tmp_path, plan=plan)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", AGENTS)
def test_dry_predicts_what_folding_then_costs(name, tmp_path):
    """Within 5 %, on the same script, by a second run that folds."""
    for folder in ("dry", "folded"):
        (tmp_path / folder).mkdir()
    screens = drive(name, 10, 5, tmp_path / "dry", "--dry")
    predicted = sum(read_dollars(screen, "been") for screen in screens)
    whole = sum(read_dollars(screen, "paid") for screen in screens)
    folded = drive(name, 10, 5, tmp_path / "folded")
    paid = sum(read_dollars(screen, "paid") for screen in folded)
    print(
        f"\n{name}: everything ${whole:.4f}, predicted ${predicted:.4f}, folded ${paid:.4f}: "
        f"{predicted / paid - 1:+.1%}"
    )
    assert predicted == pytest.approx(paid, rel=0.05)


@pytest.mark.long
def test_claude_code_with_a_subscription(tmp_path):
    """Its login passes through, the figures are tokens and quota, and what is stored has no token."""
    install("claude")
    home, work = make_places(tmp_path)
    token = f"sk-ant-oat01-{'x' * 30}"
    login = {"accessToken": token, "refreshToken": "r", "expiresAt": int(time.time() + 9e6) * 1000,
             "scopes": ["user:inference", "user:profile"], "subscriptionType": "max"}  # fmt: skip
    (home / ".claude").mkdir()
    (home / ".claude" / ".credentials.json").write_text(json.dumps({"claudeAiOauth": login}))
    with start_provider(tmp_path, rounds=2, reports_cache=True) as provider:
        env = make_environment(AGENTS["claude"], "claude", home)
        del env["ANTHROPIC_API_KEY"]
        done = subprocess.run(
            [FOLDLINE, "run", *AGENTS["claude"].first, prompt_of(1)], cwd=work,
            env=env | {"ANTHROPIC_BASE_URL": provider.url}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Turn 1 is done" in done.stdout
    assert "Claude Code uses its own login, which passes through unread" in done.stderr
    assert "  quota     5h: from 31% to 33% used\n" in done.stderr
    assert "$" not in done.stderr
    stored = [file for file in (home / ".local").rglob("*") if file.is_file()]
    assert stored
    assert not [file for file in stored if token.encode() in file.read_bytes()]


KEY = f"sk-ant-api03-{'x' * 30}"


@pytest.mark.long
def test_claude_code_in_a_terminal(tmp_path):
    """Ctrl-C in the middle of an answer, another size, Ctrl-Z and `fg`, a turn, and its exit code."""
    install("claude")
    home, work = make_places(tmp_path)
    asked_before = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(work): {"hasTrustDialogAccepted": True}},
    }
    (home / ".claude.json").write_text(json.dumps(asked_before))
    env = make_environment(AGENTS["claude"], "claude", home) | {"ANTHROPIC_API_KEY": KEY}
    del env["CI"]
    with start_provider(tmp_path, rounds=2, reports_cache=True, pace=0.2) as provider:
        env |= {"ANTHROPIC_BASE_URL": provider.url}
        window = Tmux(work, columns=100, rows=40, env=env)
        try:
            command = " ".join(AGENTS["claude"].first[:-1])
            window.types(f"{FOLDLINE} run {command}", "Enter")
            window.sees("API Usage Billing")
            say(window, prompt_of(1))
            wait_until(lambda: any("tool_result" in one for one in provider.list_sent()))
            window.types("", "C-c")
            window.sees("Interrupted")
            window.resize(80, 30)
            window.sees("╮\n", seconds=10)
            window.types("", "C-z")
            window.sees("Stopped")
            window.types("fg", "Enter")
            window.sees("API Usage Billing", count=2)
            say(window, prompt_of(2))
            window.sees("Turn 2 is done after 2 steps.")
            say(window, "/exit")
            screen = window.sees("  look  ")
            window.types("echo code $?", "Enter")
            window.sees("code 0")
        finally:
            window.close()
    assert "  paid      $" in screen


def say(window, words):
    """Type words into an agent's prompt, and send them when they are there."""
    window.types(words)
    window.sees(words[:60], seconds=10)
    time.sleep(0.3)
    window.types("", "Enter")


def test_claude_code_whose_gateway_is_killed_in_the_middle_of_an_answer(tmp_path):
    kill_the_gateway_of("claude", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in AGENTS if name != "claude"])
def test_agents_whose_gateway_is_killed_in_the_middle_of_an_answer(name, tmp_path):
    kill_the_gateway_of(name, tmp_path)


def kill_the_gateway_of(name, tmp_path):
    """The agent asks again by itself, ends its turn, and leaves no process."""
    agent = AGENTS[name]
    install(name)
    home, work = make_places(tmp_path)
    with start_provider(tmp_path, rounds=2, pace=0.4) as provider:
        env = make_environment(agent, name, home) | name_provider(provider)
        process = subprocess.Popen(
            [FOLDLINE, "run", *agent.first, prompt_of(1)], cwd=work, env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            wait_until(
                lambda: any("call_" in one or "toolu_" in one for one in provider.list_sent()), 60
            )
            time.sleep(0.6)  # the next answer has begun, and takes seconds
            gateway, _ = find_gateway(process.pid)
            os.kill(gateway, signal.SIGKILL)
            printed = process.communicate(timeout=120)[0]
        finally:
            process.kill()
    assert process.returncode == 0, printed
    assert "Turn 1 is done" in printed
    assert "the gateway died and was started again 1 time" in printed
    assert not list_processes(home)

"""Real Claude Code after a pause: what the hook and the gateway name is what the provider charges."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import apsw
import pytest
from agents import CLAUDE, RIG, install
from gateway_thread import Served
from scripted import start_provider
from upstream import prompt_of

from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.models.catalog import resolve_model

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: no agents to install"),
]
PLUGIN = Path(__file__).parents[2] / "examples" / "claude-code-plugin"
TURNS, HOURS = 4, 3
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_AUTO_COMPACT": "1",
}


def run_claude(folder, url, prompt, *more, home="home"):
    program = RIG / "claude/node_modules/.bin/claude"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where `foldline` is
    env = {**QUIET, "PATH": path, "HOME": str(folder / home), "ANTHROPIC_BASE_URL": url}
    done = subprocess.run(
        [program, "-p", prompt, "--model", CLAUDE, "--allowedTools", "Bash", *more],
        cwd=folder / "work", env={**env, "ANTHROPIC_API_KEY": "k"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def age_transcript(home):
    (path,) = home.glob(".claude/projects/*/*.jsonl")

    def move_back(found):
        when = datetime.fromisoformat(found[1]) - timedelta(hours=HOURS)
        return f'"timestamp":"{when.isoformat(timespec="milliseconds").replace("+00:00", "Z")}"'

    path.write_text(re.sub(r'"timestamp":"([^"]+)"', move_back, path.read_text()))


def age_store(path):
    store = apsw.Connection(str(path))
    store.execute("update events set time = time - ?", (HOURS * 3_600,))
    store.close()


def charge(used):
    prices = resolve_model(CLAUDE).prices
    tokens = used["cache_creation_input_tokens"], used["cache_read_input_tokens"]
    return (
        used["input_tokens"] * prices.input + tokens[0] * prices.write + tokens[1] * prices.read
    ) / 1e6


def test_the_prices_named_are_what_is_charged(tmp_path):
    """The hook's in plain Claude Code, cold; the hook's and the gateway's for a fold: within 5 %."""
    install("claude")
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    store, audit = tmp_path / "store.db", tmp_path / "audit.jsonl"
    with start_provider(tmp_path, reports_cache=True, rounds=6) as provider:
        upstreams = parse_upstreams([provider.url], {})
        patient = GatewaySettings(upstreams=upstreams, fold_from={"": 10_000_000})
        with Served(patient, store=str(store)) as gateway:
            for turn in range(1, TURNS + 1):
                again = ["--continue"] if turn > 1 else []
                run_claude(tmp_path, gateway.url, prompt_of(turn), *again)
        age_store(store)
        age_transcript(tmp_path / "home")
        shutil.copytree(tmp_path / "home", tmp_path / "other")

        provider.expire_cache()
        calls = len(provider.list_usage())
        stream = ("--output-format", "stream-json", "--verbose", "--plugin-dir", str(PLUGIN))
        said = run_claude(
            tmp_path, provider.url, prompt_of(TURNS + 1), "--continue", *stream, home="other"
        )
        events = [json.loads(line) for line in said.splitlines()]
        (shown,) = (one for one in events if one.get("subtype") == "hook_response")
        words = json.loads(shown["stdout"])["systemMessage"]
        named = [float(one) for one in re.findall(r"\$(\d+\.\d+)", words)]
        cold = charge(provider.list_usage()[calls])
        assert events[-1]["result"].startswith(f"Turn {TURNS + 1} is done"), "the prompt went on"
        (transcript,) = (tmp_path / "other").glob(".claude/projects/*/*.jsonl")
        assert transcript.read_text().count('"hook_system_message"') == 2, "resumed, and prompted"

        provider.expire_cache()
        calls = len(provider.list_usage())
        usual = GatewaySettings(upstreams=upstreams)
        with Served(usual, store=str(store), audit=audit) as gateway:
            run_claude(tmp_path, gateway.url, prompt_of(TURNS + 1), "--continue")
        folded = charge(provider.list_usage()[calls])
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        (noted,) = (one["cold"] for one in lines if one["cold"])
    assert named[0] == pytest.approx(cold, rel=0.05)
    assert noted["unfolded"] == pytest.approx(cold, rel=0.05)
    assert folded < cold * 0.7
    assert named[2] == pytest.approx(folded, rel=0.05)
    assert noted["cost"] == pytest.approx(folded, rel=0.05)
    print(f"\n{words}\ncharged: {cold:.4f} cold, {folded:.4f} folded; header: {noted}")

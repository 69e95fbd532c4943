"""Real agents through a real gateway, in the short form that CI runs; `just clients` is the long one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: no agents to install"),
]


def measure_short(*agents: str) -> None:
    """Run the short form of some agents, and fail with its table where a figure is wrong."""
    program = Path(__file__).with_name("measure_clients.py")
    command = [sys.executable, program, "--short", "--exactly", *agents]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_claude_code_and_an_sdk_work_through_the_gateway_as_without_it():
    measure_short("claude", "sdk")


def test_codex_works_through_the_gateway_as_without_it():
    measure_short("codex")


@pytest.mark.long
def test_gemini_cli_works_through_the_gateway_as_without_it():
    measure_short("gemini")


@pytest.mark.long
def test_codex_compacts_remotely_through_the_gateway_which_it_cannot_without_it():
    measure_short("codex-remote")


@pytest.mark.long
def test_other_agents_work_over_responses_through_the_gateway_as_without_it():
    measure_short("pi-openai", "vercel-openai")
    measure_short("pydantic-openai", "openai-agents-responses", "agent-framework")


@pytest.mark.long
def test_other_clients_of_gemini_work_through_the_gateway_as_without_it():
    measure_short("gemini-2", "gemini-resume", "adk")

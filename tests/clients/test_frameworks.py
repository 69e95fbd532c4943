"""Frameworks with Foldline inside, in a short form; `just clients langchain` is a long one.

CI has no time for these: it runs the frameworks' pages, by tests/docs/test_blocks.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.long]
PROGRAM = Path(__file__).with_name("measure_clients.py")
SECONDS = 240


def measure_short(*agents: str) -> None:
    """Run the short form of some agents, and fail with its table where a figure is wrong."""
    command = [sys.executable, PROGRAM, "--short", "--exactly", *agents]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    for agent in agents:
        assert f"| {agent} |" in done.stdout, f"{agent} was not measured"


def test_langchain_works_as_without_foldline():
    measure_short("langchain")


def test_litellm_works_as_without_foldline():
    measure_short("litellm")


def test_pydantic_ai_works_as_without_foldline():
    measure_short("pydantic-chat", "pydantic-anthropic")


def test_openai_agents_works_as_without_foldline():
    measure_short("openai-agents")


def test_adk_works_as_without_foldline():
    measure_short("adk-inside", "adk-inside-stream")


def test_frameworks_over_responses_work_as_without_foldline():
    measure_short("pydantic-openai-inside", "openai-agents-responses-inside")


def test_a_framework_that_chains_responses_works_as_without_foldline():
    measure_short("agent-framework-inside")

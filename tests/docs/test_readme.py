"""The first page: short, its first block runs with the wheel alone, and its table names what was driven."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from agents import PACKAGES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MOST_WORDS = 1_000


def test_it_is_short():
    assert len(README.split()) <= MOST_WORDS


def test_the_agents_are_those_that_are_driven():
    """Each at the versions that the tests install."""
    rows = re.findall(
        r"^\| [A-Za-z -]+ ([\d., ]+) \| (?:yes|no) \| (?:yes|no) \|$", README, re.MULTILINE
    )
    pins = {
        pin.rpartition("@")[2] if "@" in pin else pin.partition("==")[2]
        for name in ("claude", "claude-new", "codex", "opencode", "pi", "gemini", "qwen", "aider", "llm")
        for pin in PACKAGES[name][1:]
    }  # fmt: skip
    assert len(rows) == 8
    assert {version for found in rows for version in found.split(", ")} == pins


@pytest.mark.real
def test_the_first_block_prints_what_stands_under_it_with_the_wheel_alone(tmp_path):
    """In an empty environment: no extra, no key, no settings, no server, and nothing of this checkout."""
    code, printed = re.search(
        r"```python\n(.*?)```.*?```text\n(.*?)```", README, re.DOTALL
    ).groups()

    def run(*command: object) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        env |= {
            name: value for name, value in os.environ.items() if name.startswith(("UV_", "SSL_"))
        }
        done = subprocess.run(
            [str(one) for one in command],
            cwd=tmp_path, env=env, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("uv", "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    run("uv", "venv", "--quiet", "--python", sys.executable, "env")
    python = tmp_path / "env" / "bin" / "python"
    run("uv", "pip", "install", "--quiet", "--python", python, wheel)
    assert run(python, "-I", "-c", code) == printed
    listed = run("uv", "pip", "list", "--python", python, "--format", "freeze")
    assert len(listed.split()) == 4, "the wheel and its three dependencies"

"""Real agents through a real gateway, in the short form that CI runs; `just clients` is the long one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.real
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: no agents to install")
def test_claude_code_and_an_sdk_work_through_the_gateway_as_without_it():
    program = Path(__file__).with_name("measure_clients.py")
    command = [sys.executable, program, "--short", "claude", "sdk"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

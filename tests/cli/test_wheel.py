"""The built wheel without the extra and with it, in an empty environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "importers" / "files"


@pytest.mark.real
def test_the_command_says_which_extra_it_lacks(tmp_path):
    def run(*command: object) -> subprocess.CompletedProcess[str]:
        line = [str(one) for one in command]
        env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "home")}
        return subprocess.run(
            line, cwd=tmp_path, env=env, check=False, capture_output=True, text=True
        )

    assert run("uv", "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    assert run("uv", "venv", "--quiet", "--python", sys.executable, "env").returncode == 0
    binaries = tmp_path / "env" / "bin"
    install = ("uv", "pip", "install", "--quiet", "--python", binaries / "python")
    assert run(*install, wheel).returncode == 0
    program = binaries / "foldline"
    assert run(program, "--version").returncode == 0
    lacking = run(program, "sessions")
    assert (lacking.returncode, lacking.stdout) == (2, "")
    assert "pip install 'foldline[cli]'" in lacking.stderr
    assert lacking.stderr.count("\n") == 1
    assert run(*install, f"{wheel}[cli]").returncode == 0
    assert run(program, "import", FILES).returncode == 0
    assert run(program, "sessions").returncode == 0
    picture = run(program, "context", "pi-1", "--png", "a.png")
    assert (picture.returncode, "foldline[png]" in picture.stderr) == (2, True)
    assert run(*install, f"{wheel}[png]").returncode == 0
    assert run(program, "context", "pi-1", "--png", "a.png").returncode == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

"""The built wheel in an empty environment: it installs small, imports fast and works."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRY = """
import sys, time
start = time.perf_counter()
import foldline
took = time.perf_counter() - start
s = foldline.open(":memory:", model="m", window=1_000)
for turn in range(30):
    s.add(f"turn {turn} " + "words " * 40)
    s.request()
    s.add({"role": "assistant", "content": "yes"})
assert s.edits, "it folds"
assert s.recall("log:1").startswith("turn 0")
print(f"{took * 1000:.0f}")
"""


@pytest.mark.real
def test_wheel(tmp_path):
    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    run("uv", "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    run("uv", "venv", "--quiet", "--python", sys.executable, "env")
    python = tmp_path / "env" / "bin" / "python"
    run("uv", "pip", "install", "--quiet", "--python", python, wheel)
    packages = run("uv", "pip", "list", "--quiet", "--python", python, "--format", "freeze")
    assert len(packages.splitlines()) < 8
    fastest = min(int(run(python, "-c", TRY)) for _ in range(3))
    assert fastest < 100, f"import took {fastest} ms"

"""What is measured more than once: slow each time fails, slow by chance does not, wrong fails at once."""

import shutil
import subprocess
import sys
from pathlib import Path

WRITTEN = """
import pytest

@pytest.fixture(scope="module")
def kept():
    return []

@pytest.fixture
def new():
    return []

def measured(slow, kept, new):
    assert new == []
    new.append(1)
    kept.append(slow)
    return 1e9 if kept.count(slow) <= slow else 0.5

@pytest.mark.parametrize("slow", [0, 2, 9])
def test_seconds(slow, kept, new, timed):
    assert measured(slow, kept, new) < timed(1.0)

@pytest.mark.parametrize("slow", [1, 8])
def test_own_measure(slow, kept, new, timed):
    assert timed.met(measured(slow, kept, new) <= 0.5)

def test_wrong(kept, timed):
    kept.append("wrong")
    assert 0.5 < timed(1.0)
    raise AssertionError("wrong")

def test_tries(kept):
    assert kept == [0, 2, 2, 2, 9, 9, 9, 1, 1, 8, 8, 8, "wrong"]
"""


def test_what_misses_its_bound_is_tried_three_times_and_nothing_else(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(WRITTEN)
    (tmp_path / "pytest.ini").touch()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rfE", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "3 failed, 4 passed" in done.stdout, done.stdout
    for failed in ("seconds[9]", "own_measure[8]", "wrong"):
        assert f"FAILED test_it.py::test_{failed}" in done.stdout

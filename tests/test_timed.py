"""What is measured more than once: slow each time fails, slow by chance does not."""

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

@pytest.mark.parametrize("slow", [0, 2, 9])
def test_one(slow, kept, new, request, timed):
    assert timed(1.0) >= 1.0
    request.addfinalizer(lambda: kept.append(slow))
    assert new == []
    new.append(1)
    assert kept.count(slow) >= slow

def test_other(kept):
    assert kept == [0, 2, 2, 2, 9, 9, 9]
    raise AssertionError("once")
"""


def test_what_asks_for_timed_is_tried_three_times_and_no_other(tmp_path):
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
    assert "2 failed, 2 passed" in done.stdout, done.stdout
    assert "FAILED test_it.py::test_one[9]" in done.stdout
    assert "FAILED test_it.py::test_other - AssertionError: once" in done.stdout

"""The page on the command line is true: its lines run, its keys and codes are the real ones."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from foldline.cli.codes import MEANINGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture
def place(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "tests" / "imports" / "files", tmp_path / "sessions")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("place")
def test_every_line_runs(cli):
    assert len(LINES) > 25
    for line in LINES:
        _, _, *arguments = shlex.split(line)
        ended = cli(*arguments)
        wanted = (0, 1) if "--preview" in line or "--dry-run" in line else (0,)
        assert ended.code in wanted, (line, ended)


@pytest.mark.usefixtures("place")
def test_the_keys_are_all_told(cli):
    """What a script may read is on the page."""
    rows = re.findall(r"^\| `(\w+)[^|]*\| (.*?) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 16
    assert cli("import", "sessions").code == 0
    for line in (
        "import sessions/swe.traj",
        "sessions",
        "show pi-1",
        "show pi-1 log:2",
        "show pi-1 --log 0-1",
        "context pi-1",
        "history pi-1",
        "history pi-1 1",
        "search read",
        "plan pi-1",
        "fold pi-1 --preview",
        "pin pi-1 log:2",
        "export pi-1",
        "erase --all --dry-run",
        "models opus",
        "doctor",
    ):
        command, *rest = line.split()
        told = [set(re.findall(r"\w+", keys)) for name, keys in rows if name == command]
        body = json.loads(cli(command, *rest, "--json").out)
        assert any(set(body) <= keys for keys in told), line
        for value in body.values():
            rows_of = isinstance(value, list) and value and isinstance(value[0], dict)
            if rows_of and len(told) == 1 and command not in ("context", "models"):
                assert set(value[0]) <= told[0], line


def test_the_codes_are_all_told():
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in PAGE

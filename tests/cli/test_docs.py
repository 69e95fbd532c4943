"""The pages on the command line are true: lines run, keys and codes are the real ones."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from foldline.apps.cli.exit_codes import MEANINGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
LAB = (ROOT / "docs" / "how-to" / "policies.md").read_text()


def lines(page: str) -> list[str]:
    """What a person would type."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def place(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "tests" / "importers" / "files", tmp_path / "sessions")
    agents = Path.home() / ".claude" / "projects"
    agents.mkdir(parents=True)
    shutil.copy(tmp_path / "sessions" / "claude.jsonl", agents)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("page", "least"), [(PAGE, 25), (LAB, 8)], ids=["cli", "lab"])
def test_every_line_runs(cli, page, least):
    assert len(lines(page)) > least
    for line in lines(page):
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
        "exclude pi-1 log:13",
        "history cc-1 --folds",
        "export pi-1",
        "erase --all --dry-run",
        "models opus",
        "doctor",
        "lab compare pi-1 cc-1 --jobs 1",
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

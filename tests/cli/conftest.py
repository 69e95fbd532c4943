"""The command as a person runs it: in this process where that is fast, else as the real program."""

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foldline.apps.cli.app import run_command
from foldline.draw.wording import measure_width

FILES = Path(__file__).parents[1] / "importers" / "files"
PROGRAM = Path(sys.executable).with_name("foldline")
SEPARATOR = re.compile(r"^===== record \d+ =====$", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """How a run ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document."""
        return json.loads(self.out)

    def tidy(self) -> "Ended":
        """No traceback, no colour, and nothing of the answer wider than a terminal."""
        assert "Traceback" not in self.out + self.err
        assert "\x1b" not in self.out + self.err
        wide = [line for line in self.out.split("\n") if measure_width(line) > 80]
        paths = (".db", ".jsonl")  # stay whole
        assert [line for line in wide if not any(one in line for one in paths)] == []
        return self


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No store but the test's own, no home, and no terminal's size."""
    for name in ("FOLDLINE_STORE", "COLUMNS", "NO_COLOR", "FOLDLINE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


@pytest.fixture
def cli(capsys):
    """Run the command here."""

    def ran(*arguments: object) -> Ended:
        capsys.readouterr()
        code = run_command([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return ran


@pytest.fixture
def program():
    """Run the installed program."""

    def ran(*arguments: object, env: dict[str, str] | None = None, stdin: str = "") -> Ended:
        done = subprocess.run(
            [PROGRAM, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            check=False,
            timeout=120,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return ran


@pytest.fixture
def sample(cli):
    """The store with a session of every kind of file, none of them long."""
    assert cli("import", FILES).code == 0
    return cli


@pytest.fixture
def recordings(shared, tmp_path) -> Path:
    """A folder with the recorded sessions of pi, Claude Code and Codex."""
    folder = tmp_path / "recorded"
    (folder / "deep").mkdir(parents=True)
    for name in ("opus45", "sonnet45"):
        file = f"pi_session_{name}.jsonl.gz"
        (folder / file).write_bytes((shared / "data" / file).read_bytes())
    for name in ("claude", "codex"):
        with gzip.open(shared / "data" / f"tracelab_{name}_trace.json.gz", "rt") as file:
            records = SEPARATOR.split(file.read())[1:]
        lines = "\n".join(json.dumps(json.loads(record)) for record in records)
        (folder / "deep" / f"{name}.jsonl").write_text(lines)
    return folder

"""The page and the examples are true: every line runs, every option and word is a real one."""

import os
import re
import shlex
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml
from program import PROGRAM, served

from foldline.apps.cli.serve_workers import KILL
from foldline.apps.gateway import plan_request, relay, settings

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    (ROOT / "docs" / folder / "gateway.md").read_text() for folder in ("how-to", "reference")
)
EXAMPLES = ROOT / "examples" / "gateway"
UNIT, COMPOSE = EXAMPLES / "foldline-gateway.service", EXAMPLES / "compose.yaml"
LINES = [
    shlex.split(line)[2:]
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def run(arguments, folder):
    """Run the command in a folder of its own; a server until it has shown itself and was ended."""
    env = {**os.environ, "XDG_DATA_HOME": str(folder)}
    if arguments[0] != "serve":
        return subprocess.run([PROGRAM, *arguments], cwd=folder, env=env, check=True, capture_output=True).stdout.decode()  # fmt: skip
    port = [] if "--port" in arguments else ["--port", "0"]
    given = ["0" if one == "8081" else one for one in arguments]
    with served([*given[1:], *port], folder, XDG_DATA_HOME=str(folder)) as (number, shown):
        for page in ("healthz", "readyz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{number}/{page}", timeout=10) as got:
                assert got.status == 200
    return shown


def test_every_line_runs_in_order(tmp_path):
    """What a person would type, as it stands but for the port."""
    assert len(LINES) == 7
    shown = [run(line, tmp_path) for line in LINES]
    assert "OPENAI_BASE_URL=http://127.0.0.1:" in shown[0]
    assert "\ntoken     fl-local-" in shown[0]
    assert shown[3].startswith("fl-")
    assert shown[4].startswith("fl-")
    assert "of the gateway's own, in the store" in shown[5]
    assert (tmp_path / "talks.db").stat().st_mode & 0o777 == 0o600


def test_options_that_are_named_are_there():
    commands = ("serve", "share", "usage", "migrate", *(f"keys {one}" for one in ("add", "list", "rotate", "revoke", "import")))  # fmt: skip
    told = "".join(
        subprocess.run([PROGRAM, *one.split(), "--help"], capture_output=True, text=True, check=True).stdout
        for one in commands
    )  # fmt: skip
    for text in (PAGE, UNIT.read_text().partition("[Service]")[2], COMPOSE.read_text()):
        for option in set(re.findall(r"--[a-z][a-z-]+", text)) - {"--help", "--admin"}:
            assert option in told, option


def test_words_and_numbers_are_the_real_ones():
    limits = settings.GatewayLimits()
    folder = Path(relay.__file__).parent
    sources = "".join(path.read_text() for path in folder.rglob("*.py"))
    for code in re.findall(r"\d{3} `(\w+)`", PAGE):
        assert f'"{code}"' in sources
    for number in (limits.first_seconds, limits.idle_seconds):
        assert f"{number:.0f} s" in PAGE
    assert f"{limits.head_seconds:.0f} s for them and {limits.body_seconds:.0f} s" in PAGE
    assert f"{limits.body // 1_000_000} MB" in PAGE
    assert f"{limits.each:,} requests" in PAGE


def test_edits_and_patches_are_told_apart():
    """Edits were made for this request; patches are what differs in it, whenever that was decided."""
    rows = dict(re.findall(r"^\| `X-Foldline-(\w+)` \| gateway \| (.*?) \|$", PAGE, re.MULTILINE))
    assert {"Session", "Tokens", "Edits", "Patches", "Cold", "Limit", "Unplanned", "Error"} == {
        *rows
    }
    assert "made for this very request" in rows["Edits"]
    assert "byte for byte" in rows["Patches"]
    example = re.search(r"`(\w+=\d+(?:,\w+=\d+)+)`", PAGE)[1]
    kinds = [one.partition("=")[0] for one in example.split(",")]
    told = PAGE.partition("## What was changed")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == kinds


def test_reasons_for_not_planning_are_the_real_ones():
    told = PAGE.partition("## What is not planned")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `([\w-]+)` \|", told, re.MULTILINE))
    assert rows == {*plan_request._WHY, "overflow", "compaction"}


def test_the_compose_file_is_one():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    command = services["gateway"]["command"]
    assert command[:2] == ["foldline", "serve"]
    drain = next(float(one.partition("=")[2]) for one in command if one.startswith("--drain"))
    linger = next(float(one.partition("=")[2]) for one in command if one.startswith("--linger"))
    assert float(services["gateway"]["stop_grace_period"].rstrip("s")) > drain + linger + KILL


def test_the_unit_waits_for_the_drain():
    text = UNIT.read_text()
    drain = float(re.search(r"--drain (\d+)", text)[1])
    assert float(re.search(r"TimeoutStopSec=(\d+)", text)[1]) > drain + KILL


@pytest.mark.skipif(not Path("/usr/bin/systemd-analyze").exists(), reason="no systemd here")
def test_the_unit_is_one(tmp_path):
    made = tmp_path / UNIT.name
    made.write_text(UNIT.read_text().replace("/opt/foldline/bin/foldline", str(PROGRAM)))
    ended = subprocess.run(["/usr/bin/systemd-analyze", "verify", made], capture_output=True, text=True, check=False)  # fmt: skip
    assert UNIT.name not in ended.stderr

"""docs/how-to/runbook.md is true: its lines run on a server with the printed roles, its words are the real ones."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from program import PROGRAM

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
INLINE = re.findall(r"`foldline ([^`]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))


@pytest.fixture
def server():
    """A private server, as tests of chaos have it."""
    sys.path.append(str(ROOT / "tests" / "chaos"))
    try:
        from clusters import a_cluster  # noqa: PLC0415 - beside them

        with a_cluster(memory=True) as cluster:
            yield cluster
    finally:
        sys.path.remove(str(ROOT / "tests" / "chaos"))


@pytest.mark.real
def test_every_line_runs_in_order(server, tmp_path):
    """What an operator would type, as it stands but for the host."""
    host = f"127.0.0.1:{server.port}"
    gateway = f"postgresql://foldline_gateway@{host}/talks"
    env = {**os.environ, "FOLDLINE_STORE": gateway, "PGHOST": "127.0.0.1", "PGPORT": str(server.port),
           "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}  # fmt: skip

    def run(*given):
        done = subprocess.run(given, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)  # fmt: skip
        unused = given[1] == "usage" and done.stdout.startswith("no calls in this time")
        assert done.returncode == (1 if unused else 0), (given, done.stdout, done.stderr)
        return done.stdout

    roles = run(PROGRAM, "migrate", "--roles", "--store", gateway)
    with server.owner() as superuser:
        superuser.execute(roles)
        superuser.execute("create database talks owner foldline_owner")
    run(PROGRAM, "migrate", "--store", gateway.replace("_gateway", "_owner"))
    run(PROGRAM, "keys", "add", "alice", "--tenant", "acme")
    lines = [line for block in BLOCKS for line in block.splitlines()]
    assert len(lines) == 13
    for line in lines:
        mark, *given = shlex.split(line.replace("db.example", host))
        assert mark == "$"
        run(*given)
    again = gateway.replace("/talks", "/talks_again")
    assert "alice" in run(PROGRAM, "keys", "list", "--tenant", "acme", "--store", again)


def test_commands_and_options_that_are_named_are_there():
    words = [re.findall(r"(?<!\S)[a-z]+(?!\S)", one) for one in INLINE]
    commands = {tuple(one[: 1 + (one[0] in ("keys", "lab"))]) for one in words}
    told = {}
    for command in [*commands, ("serve",)]:
        done = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, command
        told[command] = done.stdout
    for one in INLINE:
        command = next(known for known in told if one.split()[: len(known)] == [*known])
        for option in re.findall(r"--[a-z][a-z-]+", one):
            assert option in told[command], one
    options = {*re.findall(r"`(--[a-z][a-z-]+)", PAGE)} - {"--owner"}  # of `keys add`
    assert options <= {*re.findall(r"--[a-z][a-z-]+", told["serve",])}


def test_errors_that_are_named_are_the_gateways():
    sources = "".join(one.read_text() for one in (ROOT / "src/foldline/apps/gateway").rglob("*.py"))
    rows = re.findall(r"^\| \d{3} `(\w+)` \|", PAGE, re.MULTILINE)
    assert {"bad_key", "limit_reached", "limit_spent", "store_away", "limits_away"} <= {*rows}
    for word in [*rows, "upstream_away", "proxy_refused"]:
        assert f'"{word}"' in sources, word


def test_the_page_is_short():
    assert PAGE.count("\n") <= 150

"""The line that CONTRIBUTING begins with makes a working checkout, and runs a test in it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def test_it_begins_with_one_line():
    head = re.match(r"# [^\n]+\n\n```sh\n([^\n]+)\n```\n", PAGE)
    assert head is not None
    (path,) = re.findall(r"tests/\S+\.py", head[1])
    assert (ROOT / path).exists()


def test_the_tree_has_every_folder():
    tree = PAGE.partition("## Where things are")[2].partition("Imports go one way")[0]
    source = ROOT / "src" / "foldline"
    folders = {path.name for path in source.iterdir() if (path / "__init__.py").exists()}
    assert folders <= {*re.findall(r"^ +(\w+)/", tree, re.MULTILINE)}


@pytest.mark.real
@pytest.mark.long
def test_the_line_works_in_a_new_checkout_within_two_minutes(tmp_path):
    line = re.search(r"```sh\n([^\n]+)\n```", PAGE)[1]
    checkout = tmp_path / "checkout"
    clone = ("git", "clone", "--quiet", ROOT, checkout)
    subprocess.run(clone, check=True)
    shell = ("bash", "-c", line)
    ours = ("VIRTUAL_ENV", "PYTHON", "PYTEST", "FOLDLINE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        shell, cwd=checkout, env=env, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)

"""Adapters in their frameworks' own environments, by the checks of `foldline.testing.adapter_checks`.

Each host is a program beside this file: an agent of the framework, with the adapter, driven by the framework's own
runner against a scripted model on a real port. CI runs the short list; `just test-all` all of it, and the mutants.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from agents import RIG, install

from foldline.testing.adapter_checks import CHECKS

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "foldline" / "adapters"
HOSTS = {
    "langchain": ("",), "langchain-sync": ("sync",), "pydantic-ai": ("",), "pydantic-ai-responses": ("responses",),
    "openai-agents": ("",), "openai-agents-chat": ("chat",), "adk": ("",), "litellm": ("",),
}  # fmt: skip
FRAMEWORKS = ("langchain", "pydantic-ai", "openai-agents", "adk", "litellm")
SHORT = ("long run", "streamed run", "recall", "two at once", "restart")
MUTANT = """
import importlib.util, runpy, sys
name, file, host, *wanted = sys.argv[1:]
spec = importlib.util.spec_from_file_location(name, file)
sys.modules[name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.argv = [host, *wanted]
runpy.run_path(host, run_name="__main__")
"""
EDITED = ("if not plan.is_edited:", "if plan is not None:")
MUTANTS = {
    "langchain": (
        EDITED,
        ('input=usage.get("input_tokens")', "input=None"),
        ("self.tools = [self._build_recall_tool()] if recall else []", "self.tools = []"),
        ("for one in plan.shown if one.place is None or", "for one in plan.shown if one.place is not None and"),
    ),
    "pydantic-ai": (
        EDITED,
        ("input=usage.input_tokens or None", "input=None"),
        ("if not self._recall:", "if self._recall:"),
        ("for one in run if one.place is None]", "for one in run if one.place == -1]"),
    ),
    "openai-agents": (
        EDITED,
        ("input=usage.input_tokens or None", "input=None"),
        ("given, session=self._name_session()", "given, session=self._session"),
        ("one.message for one in plan.shown", "one.message for one in plan.shown if one.place is not None"),
    ),
    "adk": (
        ("if plan.is_edited:", "if plan is None:"),
        ("input=usage.prompt_token_count", "input=None"),
        ("if self._tool is not None and", "if self._tool is None and"),
        ("for one in plan.shown]", "for one in plan.shown if one.place is not None]"),
    ),
    "litellm": (
        EDITED,
        ("input=usage.prompt_tokens", "input=None"),
        ('str(metadata.get("session_id")', 'str(metadata.get("session")'),
        ("for one in plan.shown\n", "for one in plan.shown if one.place is not None\n"),
    ),
}  # fmt: skip
"""Lines of each adapter, and what they are replaced by; the checks must see each."""


def name_package(host):
    return next(one for one in FRAMEWORKS if host.startswith(one))


def run_host(host, *wanted, mutant=""):
    """Run a host's checks; what is wrong, by check."""
    package = name_package(host)
    install(package)
    program = str(HERE / f"{package.replace('-', '_')}_host.py")
    variant = [word for word in HOSTS[host] if word]
    line = [program, *variant, *wanted]
    if mutant:
        module = f"foldline.adapters.{package.replace('-', '_')}"
        line = ["-c", MUTANT, module, mutant, program, *variant, *wanted]
    done = subprocess.run(
        [RIG / package / "bin" / "python", *line],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    found = [json.loads(one) for one in done.stdout.splitlines() if one.startswith('{"check"')]
    assert [one["check"] for one in found] == [*(wanted or CHECKS)], done.stdout + done.stderr
    return {one["check"]: one["wrong"] for one in found if one["wrong"]}


@pytest.mark.real
@pytest.mark.parametrize("host", FRAMEWORKS)
def test_a_long_run_fits_and_recalls(host):
    assert run_host(host, *SHORT) == {}


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("host", HOSTS)
def test_every_check_holds(host):
    assert run_host(host) == {}


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("host", FRAMEWORKS)
@pytest.mark.parametrize("number", range(4))
def test_mutants_are_caught(host, number, tmp_path):
    file = f"{host.replace('-', '_')}.py"
    sound = (SOURCE / file).read_text()
    was, becomes = MUTANTS[host][number]
    assert sound.count(was) == 1, f"{was!r} stands {sound.count(was)} times in {file}"
    (tmp_path / file).write_text(sound.replace(was, becomes))
    assert run_host(host, "long run", "recall", mutant=str(tmp_path / file))


@pytest.mark.real
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_pyright_agrees_where_the_framework_is(framework):
    install(framework)
    line = [
        *(sys.executable, "-m", "pyright"),
        "--pythonpath",
        RIG / framework / "bin" / "python",
        SOURCE / f"{framework.replace('-', '_')}.py",
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout

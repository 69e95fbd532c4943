"""Profiles for Hypothesis, which tests are slow, recorded data, and tries for what measures seconds."""

import gc
import gzip
import json
import os
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

# What decides whether a change lands is the same twice; `just test-all` and `just laws` look further each time.
for name, examples, same in (
    ("quick", 5, True),
    ("short", 20, True),
    ("usual", 100, False),
    ("deep", 10_000, False),
):
    settings.register_profile(
        name,
        max_examples=examples,
        derandomize=same,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile(os.environ.get("FOLDLINE_LAWS", "quick"))

DURATIONS = Path(__file__).with_name("durations.txt")
"""The seconds of every test that `just test` has no time for; `just durations` measures them anew."""
SLOW = 0.5  # seconds from which a test is listed there, all of its parameters together
LONG = 1.0  # seconds from which CI leaves a test out
LONG_REAL = 2.0  # the same of a test with real parts
LONG_DECIDING = 60.0  # the same of a test that decides
DECIDES = (
    "tests/adapters/test_adapters.py",
    "tests/cli/test_docs.py",
    "tests/cli/test_one_settings_file.py",
    "tests/clients/",
    "tests/core/test_prose.py",
    "tests/core/test_thresholds.py",
    "tests/docs/test_blocks.py",
    "tests/docs/test_named_models.py",
    "tests/docs/test_reference.py",
    "tests/docs/test_troubleshooting.py",
    "tests/e2e/test_terminal.py",
    "tests/gateway/test_rights_matrix.py",
    "tests/papers/",
    "tests/properties/",
    "tests/test_house.py",
)
"""Where the tests that decide are: laws, promises, real clients, rights, and pages that go stale."""


def read_durations() -> dict[str, float]:
    """The listed tests, each with its seconds."""
    text = DURATIONS.read_text() if DURATIONS.exists() else ""
    lines = (line.split(maxsplit=1) for line in text.splitlines())
    return {fields[1]: float(fields[0]) for fields in lines if fields and fields[0] != "#"}


def draws_examples(item: pytest.Item) -> bool:
    """Whether Hypothesis draws a test's examples; a mutant is the same whatever it draws."""
    test = getattr(item, "obj", None)
    inside = getattr(getattr(test, "__code__", None), "co_names", ())
    drawn = getattr(test, "is_hypothesis_test", False) or "given" in inside
    return drawn and "catches" not in item.name


# What was imported is never garbage: to look through it took a third of the seconds of collecting.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, in what the tests make."""
    gc.enable()
    gc.freeze()


def choose_limit(item: pytest.Item) -> float:
    """The seconds from which CI leaves a test out."""
    if item.nodeid.startswith(DECIDES):
        return LONG_DECIDING
    return LONG_REAL if "real" in item.keywords else LONG


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, what is long, and what is checked again with more examples."""
    seconds = read_durations()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in seconds:
            item.add_marker("slow")
            if seconds[name] >= choose_limit(item):
                item.add_marker("long")
        if draws_examples(item):
            item.add_marker("property")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the durations where `just durations` asks for them.

    Tests that draw examples are left out: in `just test` they draw a few, whatever they take with more.
    """
    path = os.environ.get("FOLDLINE_DURATIONS")
    if not path:
        return
    took: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and "property" not in report.keywords:
                name = report.nodeid.partition("[")[0]
                took[name] = took.get(name, 0.0) + report.duration
    listed = sorted(
        (one for one in took.items() if one[1] >= SLOW), key=lambda one: (-one[1], one[0])
    )
    head = "# Seconds, all parameters together, with four at a time on two cores: `just durations`."
    lines = [f"{seconds:.1f} {name}" for name, seconds in listed]
    Path(path).write_text("\n".join((head, *lines, "")))


TRIES = 3
CALM = 0.0060  # seconds of `walked` on a machine of this kind with nobody else on it
MISSED = pytest.StashKey[bool]()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Measure again, from new fixtures, where `timed` was missed: others at work only ever add time."""
    if "timed" not in getattr(item, "fixturenames", ()):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(TRIES):
        item.stash[MISSED] = False
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not item.stash[MISSED]:
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class Timed:
    """Bounds in seconds. A test that misses one is tried again; one that fails otherwise is not."""

    def __init__(self, stash: pytest.Stash) -> None:
        self._stash = stash

    def __call__(self, seconds: float) -> "Seconds":
        """Seconds of a calm machine, as they are here and now."""
        here = Seconds(seconds * max(1.0, mean(walked() for _ in range(10)) / CALM))
        here.timed = self
        return here

    def met(self, fast: bool) -> bool:  # noqa: FBT001 - it is asserted as it is
        """Whether it was fast enough, by a measure of the test's own."""
        self._stash[MISSED] |= not fast
        return fast


class Seconds(float):
    """A bound that what took is compared with: `took < timed(1.0)`."""

    timed: Timed

    def __gt__(self, took: float) -> bool:
        return self.timed.met(float(self) > took)

    def __ge__(self, took: float) -> bool:
        return self.timed.met(float(self) >= took)


def walked() -> float:
    """Seconds that a known way takes now."""
    begun, way = perf_counter(), 0
    for step in range(100_000):
        way += step
    return perf_counter() - begun


@pytest.fixture
def timed(request: pytest.FixtureRequest) -> Timed:
    """For a test that holds seconds: what it misses by others' work is measured up to three times."""
    return Timed(request.node.stash)


@pytest.fixture
def shared() -> Path:
    """The folder with recorded sessions and tokenizer ranks, where there is one."""
    folder = os.environ.get("FOLDLINE_SHARED")
    if not folder:
        pytest.skip("FOLDLINE_SHARED is not set: no recorded data here")
    return Path(folder)


@pytest.fixture
def recorded(shared):
    """Recorded sessions, one a line, by the file's name."""

    def read(name: str) -> list[dict[str, Any]]:
        with gzip.open(shared / "data" / name, "rt") as lines:
            return [json.loads(line) for line in lines]

    return read

"""Profiles for Hypothesis, and the skips that CI does not allow."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

for name, examples in (("fast", 200), ("deep", 10_000)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile(os.environ.get("FOLDLINE_LAWS", "fast"))


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

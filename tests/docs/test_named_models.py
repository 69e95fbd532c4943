"""What is written to be copied names models that exist, and will for a year: D-8."""

import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from foldline.models.catalog import explain_match, find, read_edition

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\b(?:gpt|claude|gemini|grok|deepseek|kimi|o\d)-[a-z]*-?[0-9](?:[\w.:-]*\w)?")
TOLD = {  # pages that tell of names, and do not say what to write
    "docs/papers.md",
    "docs/requirements.md",
    "src/foldline/lab/bill/cache.py",
    "src/foldline/models/catalog.py",
}
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "src" / "foldline").rglob("*.py")),
]


def list_bad_names(text: str) -> list[str]:
    """The names that the catalogue does not know, or that end within a year of its date."""
    year = (date.fromisoformat(read_edition().date) + timedelta(days=365)).isoformat()
    return sorted(
        name
        for name in {*NAME.findall(text)}
        if not explain_match(name).startswith("is ")
        or ((end := find(name).ends) is not None and (end == "ended" or end < year))
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_model_lives(page):
    told = str(page.relative_to(ROOT))
    if told in TOLD or told.startswith("docs/decisions/"):
        return
    assert list_bad_names(page.read_text()) == []


def test_it_notices():
    assert list_bad_names('client("gpt-5"), "openai/gpt-5-mini", gpt-4o.') == ["gpt-4o", "gpt-5", "gpt-5-mini"]  # fmt: skip
    assert list_bad_names("claude-sonnet-9-9 and gemini-2.0-flash") == ["claude-sonnet-9-9", "gemini-2.0-flash"]  # fmt: skip
    assert list_bad_names("gpt-6.1-sol, claude-sonnet-5.5, gemini-3.8-flash") == []

"""What pages quote of the program, and no block prints: its fixed words are those of the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "foldline"
FILLED = re.compile(
    r"[−$]?\d[\d,.]*\d|\d|[%;]|\b(?:sessions of|steady|they|Claude Code and Codex|claude)\b|\n"
)
"""What stands in a sentence for something that differs: amounts, names, ends of lines."""


def list_literals(*places: str) -> list[str]:
    """List the texts that modules are written with; the parts of f-strings are apart."""
    return [
        " ".join(node.value.split())
        for place in places
        for node in ast.walk(ast.parse((SOURCE / place).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def find_foreign(quoted: str, literals: list[str]) -> list[str]:
    """Find the words of a quotation, at least two together, that are in none of the texts."""
    parts = (" ".join(one.split()).strip(" .;:()") for one in FILLED.split(quoted))
    return [one for one in parts if " " in one and not any(one in text for text in literals)]


def read_quoted(page: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_what_cold_cache_md_quotes_is_what_is_said():
    chat, header, hook, _ = read_quoted("docs/how-to/cold-cache.md")
    literals = list_literals("apps/chat/chat_loop.py", "core/cold_cache.py", "apps/cli/hook.py")
    assert find_foreign(chat.partition("⚠")[2].partition("[y/N]")[0], literals) == []
    assert find_foreign(hook.partition("says: ")[2], literals) == []
    assert {*re.findall(r"(\w+)=", header)} <= {*literals}


def test_what_policies_md_quotes_is_what_is_said():
    (headline,) = read_quoted("docs/how-to/policies.md")[:1]
    assert find_foreign(headline, list_literals("lab/report/sentences.py")) == []


@pytest.mark.parametrize(
    ("quoted", "foreign"),
    [("a fold of 12 tokens", []), ("a fald of 12 tokens", ["a fald of"]), ("12 34", [])],
)
def test_a_quotation_that_is_not_so_is_found(quoted, foreign):
    assert find_foreign(quoted, ["made a fold of", "tokens"]) == foreign

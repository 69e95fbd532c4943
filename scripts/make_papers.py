"""Make the page docs/papers.md: every item of the five design papers, and what shows it.

.venv/bin/python scripts/make_papers.py [--check]

The items are in scripts/papers.toml. Each names the tests or the commands that show it; an item
that is done differently names the decision that says why. A name that leads nowhere is an error.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
ITEMS = Path(__file__).with_name("papers.toml")
JUSTFILE = ROOT / "justfile"
COMMAND = "$ "
"""Begins a recipe that a person runs; anything else is a test below tests/."""
HEAD = """\
# The papers, item by item

<!-- made by scripts/make_papers.py from scripts/papers.toml: change that -->

Foldline implements five design papers. Here is every concrete item of theirs, in our words, and
what shows it: a test, or a command. "Preset" names the policy under which an item holds; without
one it holds under all of them. What we do differently has a [decision](decisions/index.md) that
says why.

Where the papers contradict each other, a preset follows each. The default, `steady`, follows none
of them: it folds when a fold pays, see [policies](how-to/policies.md). Tokens are counted the same
way in all of them.
"""
CHOICES = {
    "preset": "preset",
    "folds": "when it folds",
    "keeps": "what stays",
    "summary": "the summary",
    "reserve": "kept for the answer",
    "results": "long results",
}
"""What the papers contradict each other in: a key of each paper, and its column."""
TABLE = "| id | asked | preset | here | shown by |\n|---|---|---|---|---|"


def page() -> str:
    """The whole page."""
    papers = tomllib.loads(ITEMS.read_text())
    return "\n".join([HEAD, *_choices(papers), "", *_tables(papers)])


def _choices(papers: dict[str, Any]) -> Iterator[str]:
    """One row per paper: what its preset does where papers differ."""
    yield f"| paper | {' | '.join(CHOICES.values())} |\n|{'---|' * (len(CHOICES) + 1)}"
    for number, paper in enumerate(papers.values(), 1):
        yield f"| {number} | {' | '.join(paper.get(key, '') for key in CHOICES)} |"


def _tables(papers: dict[str, Any]) -> Iterator[str]:
    for paper in papers.values():
        yield f"## {paper['title']}\n\n{TABLE}"
        for name, item in paper["items"].items():
            asked = item["asked"].replace("|", "\\|")
            preset = f"`{item['preset']}`" if "preset" in item else ""
            yield f"| {name} | {asked} | {preset} | {_state(name, item)} | {_shown(name, item)} |"
        yield ""


def _state(name: str, item: dict[str, Any]) -> str:
    """Whether it is done, or how it differs and where that is decided."""
    if ("differently" in item) != ("decision" in item):
        raise ValueError(f"{name}: what is done differently needs a decision, and only that")
    if "differently" not in item:
        return "done"
    found = [*(ROOT / "docs" / "decisions").glob(f"{item['decision']:03}-*.md")]
    if len(found) != 1:
        raise ValueError(f"{name}: there is no decision {item['decision']}")
    link = f"[decision {item['decision']}](decisions/{found[0].name})"
    return f"differently: {item['differently']} {link}"


def _shown(name: str, item: dict[str, Any]) -> str:
    if not item["shown"]:
        raise ValueError(f"{name}: nothing shows it")
    return "<br>".join(_link(name, one) for one in item["shown"])


def _link(name: str, shown: str) -> str:
    """A command as it is typed, or a link to a test that exists."""
    if shown.startswith(COMMAND):
        words = shown.removeprefix(COMMAND).split()
        if words[0] != "just" or not re.search(
            rf"^{words[1]}[ :]", JUSTFILE.read_text(), re.MULTILINE
        ):
            raise ValueError(f"{name}: there is no recipe {words[1]}")
        return f"`{' '.join(words)}`"
    file, _, test = shown.partition("::")
    if not (ROOT / "tests" / file).is_file() or (test and test not in _tests_in(file)):
        raise ValueError(f"{name}: there is no test {shown}")
    return f"[{file}](../tests/{file})" + (f": `{test}`" if test else "")


@cache
def _tests_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def main() -> int:
    """Write the page, or with `--check` say whether it is stale."""
    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    if PAGE.exists() and PAGE.read_text() == made:
        return 0
    sys.stderr.write("docs/papers.md is stale: run `just reference`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Print sentences of code and docs, before and after: `python scripts/sample_prose.py REVISION`.

Draws 40 docstrings of classes and 20 paragraphs of pages with a fixed seed, as they stood in
REVISION and as they stand now, so that a review reads what chance chose and not what we liked.
"""

import ast
import subprocess
import sys
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
SEED, DOCSTRINGS, PARAGRAPHS = 25, 40, 20


def read_old_files(revision: str, folder: str, ending: str) -> dict[str, str]:
    """Every file of `folder` in `revision`, by its path."""
    names = _run_git("ls-tree", "-r", "--name-only", revision, folder).split()
    return {one: _run_git("show", f"{revision}:{one}") for one in names if one.endswith(ending)}


def _run_git(*words: str) -> str:
    return subprocess.run(  # noqa: S603
        ["git", "-C", str(ROOT), *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def list_class_docstrings(sources: dict[str, str]) -> dict[str, str]:
    """The docstring of each class whose name is used once."""
    found: dict[str, list[str]] = {}
    for text in sources.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and (said := ast.get_docstring(node)):
                found.setdefault(node.name, []).append(said)
    return {name: said[0] for name, said in found.items() if len(said) == 1}


def list_paragraphs(page: str) -> list[str]:
    """The paragraphs of a page that are prose."""
    parts = [one.strip() for one in page.split("\n\n")]
    return [one for one in parts if one[:1].isalpha() and len(one) > 80]  # noqa: PLR2004


def print_pair(name: str, before: str, after: str) -> None:
    """One sample, below each other."""
    print(f"## {name}\n- {' '.join(before.split())}\n+ {' '.join(after.split())}\n")  # noqa: T201


def main(revision: str) -> None:
    """Draw and print."""
    random = Random(SEED)  # noqa: S311
    now = {str(p): p.read_text() for p in (ROOT / "src").rglob("*.py")}
    old_classes = list_class_docstrings(read_old_files(revision, "src", ".py"))
    new_classes = list_class_docstrings(now)
    shared = sorted(old_classes.keys() & new_classes.keys())
    for name in random.sample(shared, DOCSTRINGS):
        print_pair(name, old_classes[name], new_classes[name])
    pages = {
        name: (list_paragraphs(text), list_paragraphs((ROOT / name).read_text()))
        for name, text in read_old_files(revision, "docs", ".md").items()
        if "reference" not in name and (ROOT / name).exists()
    }
    places = [
        (name, at)
        for name, (old, new) in sorted(pages.items())
        if len(old) == len(new)
        for at in range(len(old))
    ]
    for name, at in random.sample(places, PARAGRAPHS):
        print_pair(f"{name}, paragraph {at + 1}", pages[name][0][at], pages[name][1][at])


if __name__ == "__main__":
    main(sys.argv[1])

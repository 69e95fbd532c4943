"""Count the tests and assertions that each recipe runs, here and at another commit.

python scripts/count_tests.py               # this tree
python scripts/count_tests.py --before REV  # and a commit, in a worktree that is removed afterwards

An assertion is an `assert` or a `pytest.raises` in a test's own function; it counts once for every
parameter. What helpers assert is in the last row, which counts the statements in tests/.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = "not broken and not crypt and not weigh and not (eight and postgres)"
BEFORE = {
    "just test": ["-m", "not real"],
    "just test-all": ["-m", "real", "-k", LEFT_OUT],
    "no recipe of CI": ["-m", "real", "-k", f"not ({LEFT_OUT})"],
}
NOW = {
    "just test": ["-m", "not real and not slow"],
    "just test-most (CI)": ["-m", "(real or slow or property) and not long"],
    "just test-all": ["-m", "real or slow or property"],
}
EVERY = "together, each once"


def collect_tests(tree: Path, chosen: list[str]) -> list[str]:
    """The names of the tests that a choice of pytest's leaves."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    seen = subprocess.run(
        [*command, *chosen],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    names = [line for line in seen.stdout.splitlines() if "::" in line]
    if not names:
        raise SystemExit(
            f"no test was collected in {tree}:\n{seen.stdout[-2000:]}{seen.stderr[-2000:]}"
        )
    return names


@cache
def count_assertions(path: Path) -> Counter[str]:
    """How many assertions stand in each test of a file; under "" in all of it."""
    counts: Counter[str] = Counter()

    def walk(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                not name.rpartition("::")[2].startswith("test_")
            ):
                inner = f"{name}::{child.name}" if name else child.name
            if is_assertion(child):
                counts[name] += 1
                counts[""] += bool(name)
            walk(child, inner)

    walk(ast.parse(path.read_text()), "")
    return counts


def is_assertion(node: ast.AST) -> bool:
    """Whether a statement claims something."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return isinstance(node, ast.Assert) or (called and node.func.attr == "raises")


def count_recipes(tree: Path, recipes: dict[str, list[str]]) -> dict[str, tuple[int, int]]:
    """For each recipe its tests, and the assertions in them."""
    found = {recipe: collect_tests(tree, chosen) for recipe, chosen in recipes.items()}
    found[EVERY] = sorted({name for names in found.values() for name in names})
    counts: dict[str, tuple[int, int]] = {}
    for recipe, names in found.items():
        claims = 0
        for name in names:
            path, _, test = name.partition("[")[0].partition("::")
            claims += count_assertions(tree / path)[test]
        counts[recipe] = (len(names), claims)
    files = list((tree / "tests").rglob("*.py"))
    counts["statements in tests/"] = (len(files), sum(count_assertions(one)[""] for one in files))
    return counts


def print_table(title: str, counts: dict[str, tuple[int, int]]) -> None:
    """One row per recipe."""
    print(f"\n| {title} | tests | assertions |\n|---|---|---|")
    for recipe, (tests, claims) in counts.items():
        unit = " files" if "/" in recipe else ""
        print(f"| {recipe} | {tests:,}{unit} | {claims:,} |")


def main() -> None:
    """Print one table, or two."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", metavar="REV")
    given = parser.parse_args()
    if given.before:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            git = ["git", "-C", str(ROOT), "worktree"]
            subprocess.run(
                [*git, "add", "--quiet", "--detach", str(tree), given.before], check=True
            )
            try:
                print_table(f"before ({given.before[:12]})", count_recipes(tree, BEFORE))
            finally:
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    print_table("now", count_recipes(ROOT, NOW))


if __name__ == "__main__":
    main()

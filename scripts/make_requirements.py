"""Make the page docs/requirements.md: what each requirement asks for, and the tests that hold it.

.venv/bin/python scripts/make_requirements.py [--check]

The sentences are in scripts/requirements.toml. A test holds a requirement if it mentions the id in
its name (`test_r61_…`), its docstring or a comment. An id outside any test counts for its file.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "requirements.md"
MEANINGS = Path(__file__).with_name("requirements.toml")
NOT_HELD = ("tests/docs/test_reference.py",)
"""Files whose ids are examples."""
HEAD = """\
# Requirements

<!-- made by scripts/make_requirements.py from scripts/requirements.toml and tests: change those -->

What Foldline must do, one line each, and the tests that hold it. Tests mention a requirement by its
id. Ids with A come from the papers that Foldline implements, ids with R from problems that people
who run agents report, ids with P, M and C from faults that were found in 0.1.0. Every item of
[the papers](papers.md) has a row on a page of its own.

A file without the name of a test holds the requirement as a whole. "—" means that no test mentions
the id.
"""

TABLE = "| id | what it asks for | tests |\n|---|---|---|"

Mentions = dict[str, set[str]]
"""Names of tests by file; the name is empty where the id stands outside any test."""


def page() -> str:
    """The whole page."""
    meanings = tomllib.loads(MEANINGS.read_text())
    held = find_mentions(ROOT / "tests")
    known = {name for group in meanings.values() for name in group}
    if unknown := sorted(held.keys() - known):
        raise ValueError(f"tests mention {', '.join(unknown)}: add a sentence to {MEANINGS.name}")
    return "\n".join([HEAD, *_tables(meanings, held)])


def find_mentions(folder: Path) -> dict[str, Mentions]:
    """Each id that is mentioned below a folder, with the files and tests that mention it."""
    found: dict[str, Mentions] = defaultdict(lambda: defaultdict(set))
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder.parent).as_posix()
        if name not in NOT_HELD:
            for one, test in mentions_in(path.read_text()):
                found[one][name].add(test)
    return found


def mentions_in(source: str) -> Iterator[tuple[str, str]]:
    """Pairs of an id and the test that mentions it."""
    tests = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]
    test_at = {
        line: test.name
        for test in tests
        for line in range(
            min([test.lineno, *(one.lineno for one in test.decorator_list)]),
            (test.end_lineno or test.lineno) + 1,
        )
    }
    for number, line in enumerate(source.splitlines(), 1):
        for one in ids_in(line):
            yield one, test_at.get(number, "")
    for test in tests:
        # Not `p1_31`: that is an item of a paper.
        letters = re.match(
            r"test((?:_(?:[ar]\d\d|[pmc]\d{1,2}(?!\d|_\d\d(?:_|$))))+)(?:_|$)", test.name
        )
        for one in letters[1].strip("_").split("_") if letters else ():
            yield f"{one[0].upper()}-{one[1:]}", test.name


def ids_in(line: str) -> Iterator[str]:
    """The ids in a line; `R-20 to R-23` is four."""
    for found in re.finditer(r"\b([ARPMC])-(\d{1,2})\b(?: to \1-(\d\d)\b)?", line):
        letter, first, last = found.groups()
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}-{number}" if letter in "PMC" else f"{letter}-{number:02}"


def _tables(meanings: dict[str, dict[str, str]], held: dict[str, Mentions]) -> Iterator[str]:
    for group, sentences in meanings.items():
        yield f"## {group.replace('-', ' ').capitalize()}\n\n{TABLE}"
        for one in sentences:
            files = held.get(one, {})
            tests = "<br>".join(_cell(file, files[file]) for file in sorted(files))
            yield f"| {one} | {sentences[one]} | {tests or '—'} |"
        yield ""


def _cell(file: str, tests: set[str]) -> str:
    names = ", ".join(f"`{test}`" for test in sorted(tests - {""}))
    link = f"[{file.removeprefix('tests/')}](../{file})"
    return f"{link}: {names}" if names else link


def main() -> int:
    """Write the page, or with `--check` say whether it is stale."""
    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    if PAGE.exists() and PAGE.read_text() == made:
        return 0
    sys.stderr.write("docs/requirements.md is stale: run `just reference`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

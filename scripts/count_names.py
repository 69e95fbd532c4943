# pyright: basic
"""How our names read, and how large each room is: `just names`. Exits 1 where a figure grew.

    python scripts/count_names.py            # compare with what was reached
    python scripts/count_names.py --record   # and lower scripts/rooms.toml to it; or `--record lab`

    class names defined twice or more    a name should mean one thing
    one-word function names              they say what, seldom what is done
    functions that begin with a verb     of a list of usual verbs
    module names that repeat             a newcomer opens the wrong file

Properties, dunders and overloads may be nouns and are left out, and so is `foldline.testing`.
The aim is what the best libraries have; `REACHED` only goes that way.

A room is a folder of `src/foldline`, or one of `src/foldline/apps`; modules outside of them are
`root`, and `src` is all of it. `scripts/rooms.toml` records the lines and files of each, and counts
of the whole that only go down: class names defined twice, the word "told" in `src`, and assertions
on prose in `tests` (an `assert` or a `match=` with a text of four words or more).
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "foldline"
RECORD = ROOT / "scripts" / "rooms.toml"
VERBS = frozenset(
    """
    accept add admit allocate allow answer append apply ask assemble assert assign await begin bind
    block build cache call can cancel catch chain change check choose claim clamp classify clean
    clear clip close collect compare compile complete compose compute connect consume convert copy
    count create cut decide decode decrypt defer delete deliver derive describe detect diff digest
    discard dispatch draw drop edit emit encode encrypt end enter erase escape estimate evaluate
    exclude execute exit expand explain export extend extract fetch fill filter find finish fit
    flush fold follow fork format gather generate get give guess handle has hash have heal hear
    hide hold import include index insert inspect install instruct invoke is iterate join keep kill
    leave limit link list listen load lock log look lower make map mark mask match measure merge
    migrate move must name narrow normalise note notify observe open order pack parse pass patch
    pause pick pin plan play prepare price print process prove provide publish pull push put quote
    raise rank read rebuild recall receive record recover redact redo reduce refuse register release
    reload remember remove rename render renew repair replace replay report request require reserve
    reset resolve restore resume retain retry return reuse reverse rewind rewrite run sample save
    scan schedule score search select send serve set settle shape shorten show sign skip sort split
    start state stop store stream strip subscribe sum summarise switch tag take teach tell test
    tidy touch trace track translate trim truncate try turn undo unfold unlock unpack unwrap update
    upgrade use validate verify visit wait walk warn watch weigh wrap write yield
    """.split()  # noqa: SIM905 - read as words
)


class Figures(NamedTuple):
    """The table, for one tree."""

    repeated_classes: int
    classes: int
    one_word: float
    verb_first: float
    repeated_modules: int


REACHED = Figures(2, 633, 0.09, 0.90, 10)
"""Better these when you have mended names; they are checked in CI."""


def list_files() -> list[Path]:
    """Every module that is counted."""
    return [one for one in SOURCE.rglob("*.py") if SOURCE / "testing" not in one.parents]


def list_functions(tree: ast.AST) -> Iterator[str]:
    """The names of functions and methods, without what may be a noun."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}
        is_noun = marks & {"property", "cached_property", "overload", "setter"}
        if not is_noun and not node.name.startswith("__"):
            yield node.name.strip("_")


def count_names() -> Figures:
    """The figures of our tree."""
    classes: Counter[str] = Counter()
    functions: list[str] = []
    stems: Counter[str] = Counter()
    for path in list_files():
        tree = ast.parse(path.read_text())
        classes.update(one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
        functions += list_functions(tree)
        if path.stem != "__init__":
            stems[path.stem] += 1
    return Figures(
        sum(count > 1 for count in classes.values()),
        len(classes),
        sum("_" not in name for name in functions) / len(functions),
        sum(name.partition("_")[0] in VERBS for name in functions) / len(functions),
        sum(count > 1 for count in stems.values()),
    )


def find_room(path: Path) -> str:
    """The room of a module of src."""
    folders = path.relative_to(SOURCE).parts[:-1]
    return "/".join(folders[: 2 if folders[:1] == ("apps",) else 1]) or "root"


def is_prose(node: ast.AST) -> bool:
    """Whether a test's statement or argument compares a text of four words or more."""
    if not isinstance(node, ast.Assert) and not (
        isinstance(node, ast.keyword) and node.arg == "match"
    ):
        return False
    compared = node.test if isinstance(node, ast.Assert) else node.value
    return any(
        isinstance(one, ast.Constant)
        and isinstance(one.value, str)
        and len(re.findall(r"[^\W\d_]+", one.value)) >= 4  # noqa: PLR2004
        and len(one.value.split()) >= 4  # noqa: PLR2004
        for one in ast.walk(compared)
    )


def measure_tree() -> dict[str, dict[str, int]]:
    """What `scripts/rooms.toml` records, as it is now."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    told = 0
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for room in (find_room(path), "src"):
            lines[room] += text.count("\n")
            files[room] += 1
        told += len(re.findall(r"\btold\b", text, re.IGNORECASE))
        nodes = ast.walk(ast.parse(text))
        classes.update(node.name for node in nodes if isinstance(node, ast.ClassDef))
    tests = [ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py")]
    counts = {
        "repeated_classes": sum(count > 1 for count in classes.values()),
        "told": told,
        "prose_assertions": sum(is_prose(node) for tree in tests for node in ast.walk(tree)),
    }
    return {"lines": dict(lines), "files": dict(files), "counts": counts}


def compare_sizes(recorded: Collection[str] | None = None) -> list[str]:
    """What grew above `scripts/rooms.toml`; what shrank is written to it for names to record."""
    text = RECORD.read_text()
    limits = tomllib.loads(text)
    now = measure_tree()
    grown: list[str] = []

    def is_recorded(name: str) -> bool:
        return recorded is not None and (not recorded or name in recorded)

    for table, values in now.items():
        for name in sorted(values.keys() | limits[table].keys()):
            value, limit = values.get(name, 0), limits[table].get(name, 0)
            if value > limit:
                by = f"{value:,}, {value - limit:,} above the {limit:,} that are recorded"
                grown.append(f"{table} of {name}: {by}")
            elif value < limit and is_recorded(name):
                head, mark, rest = text.partition(f"[{table}]\n")
                old = re.compile(rf'^("?{re.escape(name)}"? = ){limit}\n', re.MULTILINE)
                text = head + mark + old.sub(rf"\g<1>{value}\n" if value else "", rest, count=1)
    if recorded is not None:
        RECORD.write_text(text)
    return grown


def main() -> int:
    """Print the table; 1 where a figure is worse than it was, or a room larger."""
    now = count_names()
    rows = (
        ("class names defined twice or more", f"{now.repeated_classes} of {now.classes}", "≤ 5"),
        ("one-word function names", f"{now.one_word:.0%}", "≤ 40 %"),
        ("functions that begin with a usual verb", f"{now.verb_first:.0%}", "≥ 40 %"),
        ("module names that repeat", f"{now.repeated_modules}", "≤ 10"),
    )
    print("| | now | aim |\n|---|---|---|")  # noqa: T201
    for row in rows:
        print(f"| {' | '.join(row)} |")  # noqa: T201
    worse = [
        name
        for name, before, after in (
            ("class names defined twice", REACHED.repeated_classes, now.repeated_classes),
            ("one-word function names", REACHED.one_word + 0.005, now.one_word),
            ("functions without a verb", -REACHED.verb_first + 0.005, -now.verb_first),
            ("module names that repeat", REACHED.repeated_modules, now.repeated_modules),
        )
        if after > before
    ]
    for name in worse:
        print(f"worse than before: {name}")  # noqa: T201
    _, is_recording, names = " ".join(sys.argv).partition("--record")
    grown = compare_sizes(names.split() if is_recording else None)
    for name in grown:
        print(f"grown: {name} (scripts/rooms.toml)")  # noqa: T201
    return bool(worse or grown)


if __name__ == "__main__":
    sys.exit(main())

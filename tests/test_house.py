"""The house keeps its rules: sizes, names, headers, dependencies."""

import ast
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from re import _compiler as re_compiler
from re import _parser as re_parser

import count_names
import pytest

from foldline import AsyncSession

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "foldline"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 850  # lines; over about 800 it may be two subjects
SMALLER = {"session/sync.py": 100}
MAPPED = (
    "agent",
    "apps/bot",
    "apps/chat",
    "apps/cli",
    "apps/gateway",
    "apps/gateway/api",
    "apps/pages",
    "dialects",
    "draw",
    "lab",
    "models",
    "proxy",
    "session",
    "settings",
    "stores",
    "stores/postgres",
    "stores/sqlite",
)
BANNED = {"utils", "helpers", "manager", "handler", "data", "info"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_small_and_says_what_it_knows(path):
    name = name_of(path)
    text = path.read_text()
    assert text.count("\n") <= SMALLER.get(name, LONGEST)
    assert ast.get_docstring(ast.parse(text))
    assert not BANNED & {*re.split(r"[/_.]", name)}


@pytest.mark.parametrize("room", [*MAPPED, "core"])
def test_a_room_names_what_is_in_it(room):
    """Its first lines, or the core's README, say where a newcomer looks for what."""
    page = SOURCE / room / ("README.md" if room == "core" else "__init__.py")
    text = page.read_text()
    told = text if room == "core" else ast.get_docstring(ast.parse(text))
    inside = [one.parent if one.name == "__init__.py" else one for one in MODULES]
    names = {one.stem for one in inside if one.parent == SOURCE / room}
    assert names <= {*re.findall(r"\w+", told)}, names - {*re.findall(r"\w+", told)}


def test_a_session_has_few_verbs():
    verbs = [name for name in vars(AsyncSession) if not name.startswith("_")]
    assert len([name for name in verbs if callable(getattr(AsyncSession, name))]) <= 15


def test_no_download_host_is_committed():
    """No lock files, and no addresses in what installs things."""
    bad = re.compile(r"https?://")
    for path in (
        ROOT / "pyproject.toml",
        ROOT / "justfile",
        *ROOT.glob("requirements/*"),
        *ROOT.glob(".ci/*"),
    ):
        assert not bad.search(path.read_text()), path.name
    assert not list(ROOT.glob("*.lock"))


POSSESSIVE = re.compile(r"[)}](?:[*+?]|\{+[\d,]+\}+)\+")


def list_patterns(path):
    """Texts of a module that may be such patterns, parsed; values inside them are any word."""
    if not POSSESSIVE.search(path.read_text()):
        return
    tree = ast.parse(path.read_text())
    joined = [one for one in ast.walk(tree) if isinstance(one, ast.JoinedStr)]
    pieces = {id(piece) for one in joined for piece in one.values}
    texts = [
        "".join(one.value if isinstance(one, ast.Constant) else "(?:ab?)" for one in text.values)
        for text in joined
    ]
    texts += [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in pieces
    ]
    for text in filter(POSSESSIVE.search, texts):
        with suppress(re.error, OverflowError):
            yield text, re_parser.parse(text)


def repeats_groups_possessively(parsed):
    if not isinstance(parsed, re_parser.SubPattern):
        return isinstance(parsed, tuple | list) and any(map(repeats_groups_possessively, parsed))
    return any(
        (code is re_parser.POSSESSIVE_REPEAT and not re_compiler._simple(given[2]))
        or repeats_groups_possessively(given)
        for code, given in parsed
    )


@pytest.mark.filterwarnings("ignore")
def test_no_group_is_repeated_possessively():
    """Python before 3.11.5 mismatches `(?:…)++` (its gh-106052), `(?>(?:…)+)` not; Debian 12 has 3.11.2."""
    assert repeats_groups_possessively(re_parser.parse("a(?:(?:bc?)++)?"))
    assert not repeats_groups_possessively(re_parser.parse("[a-c]++(?>(?:bc?)+)x?+"))
    found = [
        f"{name_of(path)}: {text}"
        for path in MODULES
        for text, parsed in list_patterns(path)
        if repeats_groups_possessively(parsed)
    ]
    assert not found


def test_a_room_that_grew_is_named_and_the_record_only_goes_down(tmp_path, monkeypatch):
    record = tmp_path / "rooms.toml"
    now = {
        "lines": {"core": 107, "apps/bot": 91, "new": 3},
        "files": {"core": 4, "apps/bot": 2},
        "counts": {"told": 0},
    }
    monkeypatch.setattr(count_names, "RECORD", record)
    monkeypatch.setattr(count_names, "measure_tree", lambda: now)
    was = '# head\n[lines]\ncore = 100\n"apps/bot" = 100\ngone = 5\n\n[files]\ncore = 4\n"apps/bot" = 3\n\n[counts]\ntold = 12\n'
    record.write_text(was)
    grown = ["lines of core: 107, 7 above", "lines of new: 3, 3 above"]
    for names in (None, ["apps/bot"], []):
        assert [one.partition(" the")[0] for one in count_names.compare_sizes(names)] == grown
        if names is None:
            assert record.read_text() == was
        elif names:
            assert record.read_text() == was.replace("= 100\ngone", "= 91\ngone").replace(
                "= 3", "= 2"
            )
    assert tomllib.loads(record.read_text()) == {
        "lines": {"core": 100, "apps/bot": 91},
        "files": {"core": 4, "apps/bot": 2},
        "counts": {},
    }


def test_an_assertion_on_prose_is_counted():
    def count(source):
        return sum(map(count_names.is_prose, ast.walk(ast.parse(source))))

    assert count("assert 'a session is open' in words") == 1
    assert count("with raises(Fault, match='a session is open'): pass") == 1
    assert count("assert f'a session is {state}' in words") == 0
    assert count("assert words, 'what went wrong here is this'") == 0
    assert count("assert [1, 2] == rows('1 2 3 4 5')") == 0

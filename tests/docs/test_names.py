"""Every name that a page gives exists: commands, options, functions, settings, variables, files, recipes, extras.

Names are read from code: spans in backticks, and lines at a prompt. The check knows what exists from the command
line itself, from the package, and from the tables of the reference, which are made from the code.
"""

import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import foldline
from foldline.apps.cli.app import build_app
from foldline.core.request import Report
from foldline.proxy.follow import AsyncFollower, Follower, FollowPlan, PlannedMessage
from foldline.session.history import History

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAPERS = ("README", "CONTRIBUTING", "AGENTS", "SECURITY")
OWN = {DOCS / "papers.md", DOCS / "requirements.md"}
PAGES = sorted(
    path
    for path in [*DOCS.rglob("*.md"), *(ROOT / f"{name}.md" for name in PAPERS)]
    if path not in OWN and DOCS / "decisions" not in path.parents
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OPTION = re.compile(r"(?<![\w-])--[a-z][A-Za-z-]+")
OBJECTS: dict[str, tuple[type, ...]] = {
    "s": (foldline.Session, foldline.AsyncSession),
    "session": (foldline.Session, foldline.AsyncSession),
    "s.history": (History,),
    "s.report": (Report,),
    "follower": (Follower, AsyncFollower),
    "plan": (FollowPlan,),
    "plan.shown": (PlannedMessage,),
}
"""What the examples call their objects."""
OTHERS = frozenset(("--allowedTools", "--extension", "--mcp-config", "--settings", "--short"))
"""Options of other programs, or of our recipes, that a page names by themselves."""


class Fault(NamedTuple):
    """A name that does not exist."""

    kind: str
    name: str


@cache
def list_commands() -> dict[str, frozenset[str]]:
    """List all commands with their options."""

    def walk(group: Any, before: str = "") -> Iterator[tuple[str, frozenset[str]]]:
        for name, command in group.commands.items():
            opts = frozenset(o for one in command.params for o in (*one.opts, *one.secondary_opts))
            yield f"{before}{name}", opts
            if getattr(command, "commands", None):
                yield from walk(command, f"{before}{name} ")

    line: Any = typer.main.get_command(build_app(["--help"]))
    top = frozenset(o for one in line.params for o in (*one.opts, *one.secondary_opts))
    return {name: opts | top | {"--help"} for name, opts in walk(line)}


@cache
def list_settings() -> tuple[frozenset[str], frozenset[str]]:
    """List the settings and their variables, with NAME where a name of one's own stands."""
    page = (DOCS / "reference" / "settings.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)`[ †]* \| `(FOLDLINE_\w+)` \|", page, re.MULTILINE)
    assert len(rows) > 50
    return frozenset(name for name, _ in rows), frozenset(variable for _, variable in rows)


def is_variable(name: str) -> bool:
    """Whether a variable is a setting's; a name of one's own may stand in its middle."""
    patterns = (re.sub("__NAME(?=__|$)", "__[A-Z_]+", one) for one in list_settings()[1])
    return any(re.fullmatch(one, name) for one in patterns)


@cache
def read_source() -> str:
    """Read all of the package and its examples: variables and words that are in no table."""
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "justfile"]
    places += [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".yml", ".yaml", ".service")]  # fmt: skip
    return "\n".join(path.read_text() for path in places if path != Path(__file__))


def find_faults(text: str) -> Iterator[Fault]:
    """Find the names in a page that do not exist."""
    spans = SPAN.findall(FENCED.sub("", text))
    prompts = [
        line.removeprefix("$ ")
        for kind, body in FENCED.findall(text)
        if kind in ("console", "sh")
        for line in body.splitlines()
    ]
    for one in (*spans, *prompts):
        words = re.sub(r"^(?:[A-Z_]+=\S* )+", "", one)
        if words.startswith("foldline "):
            yield from check_command(words)
        elif words.startswith("just "):
            yield from check_recipe(words)
        elif one in spans and one.startswith("--"):
            every = frozenset().union(*list_commands().values()) | OTHERS
            yield from (Fault("option", name) for name in OPTION.findall(one) if name not in every)
        if one in spans:
            yield from check_names(one)
    for extra in re.findall(r"foldline\[([\w,-]+)\]", text):
        for name in extra.split(","):
            if name not in {*list_extras(), "NAME"}:
                yield Fault("extra", name)
    for name in re.findall(r"\bFOLDLINE_[A-Z_]+[A-Z]\b", text):
        if not is_variable(name) and name not in read_source():
            yield Fault("variable", name)


def check_command(words: str) -> Iterator[Fault]:
    """Check a line of `foldline`: the command, and the options that are its own."""
    try:
        parts = shlex.split(words.partition(" | ")[0].replace("…", ""), comments=True)[1:]
    except ValueError:
        parts = words.split()[1:]
    known = list_commands()
    while parts and parts[0].startswith("-"):  # options before the command
        parts = parts[2:] if parts[0] in ("--store", "--tenant", "--profile") else parts[1:]
    if not parts or parts[0] in ("COMMAND", "NAME") or not re.match(r"[a-z]", parts[0]):
        return
    name = " ".join(parts[:2]) if " ".join(parts[:2]) in known else parts[0]
    if name not in known:
        yield Fault("command", parts[0])
        return
    own = parts
    if name == "run":  # what stands behind the agent is the agent's
        behind = [at for at, part in enumerate(parts[1:], 1) if re.fullmatch(r"--|claude|codex|opencode|pi|gemini|aider", part)]  # fmt: skip
        own = parts[: behind[0]] if behind else parts
    groups = any(other.startswith(f"{name} ") for other in known)
    every = frozenset().union(*(o for other, o in known.items() if other.startswith(f"{name} ")))
    options = known[name] | (every if groups else frozenset())
    for part in own:
        if OPTION.fullmatch(part.partition("=")[0]) and part.partition("=")[0] not in options:
            yield Fault("option", f"foldline {name} {part}")


def check_recipe(words: str) -> Iterator[Fault]:
    """Check a recipe of the justfile, and the bench or chaos that it names."""
    name, *rest = words.split()[1:] or ["check"]
    if not re.search(rf"^{re.escape(name)}[ :]", (ROOT / "justfile").read_text(), re.MULTILINE):
        yield Fault("recipe", name)
    folder = {"bench": ROOT / "benches", "chaos": ROOT / "tests" / "chaos"}.get(name)
    if folder and rest and rest[0].isidentifier() and not (folder / f"{rest[0]}.py").exists():
        yield Fault(name, rest[0])


@cache
def list_extras() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return frozenset(project["optional-dependencies"])


def has_member(owner: str, name: str) -> bool:
    """Whether one of the types that an object of the examples may have has a member."""
    return any(
        hasattr(kind, name) or name in getattr(kind, "__annotations__", ())
        for kind in OBJECTS[owner]
    )


def check_names(span: str) -> Iterator[Fault]:
    """Check a span: a name of the package, a member of an object, a setting, a file."""
    called = re.match(r"(?:await )?(\w+(?:\.\w+)*)\.(\w+)\(", span)
    named = re.fullmatch(r"(\w+(?:\.\w+)*)\.(\w+)", span)
    either = called or named
    owner, name = either.groups() if either else ("", "")
    if found := re.match(r"(?:await )?(foldline(?:\.\w+)+)", span):
        is_path = re.search(r"\.(?:toml|ya?ml|db|jsonl|service|html)\b", span)
        if not is_path and f'"{found[1]}"' not in read_source():
            yield from check_import(found[1])
    elif owner in OBJECTS:
        is_setting = named and not [*check_setting(span)]
        if not has_member(owner, name) and not (owner == "session" and is_setting):
            yield Fault("method" if called else "attribute", f"{owner}.{name}")
    elif re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", span):
        yield from check_setting(span)
    is_file = re.fullmatch(r"(?:src|tests|docs|benches|scripts|examples)/[\w./-]+", span)
    if is_file and "NNN" not in span and not (ROOT / span).exists():
        yield Fault("file", span)


def check_import(name: str) -> Iterator[Fault]:
    """Check a dotted name of the package."""
    parts = name.split(".")
    here: Any = foldline
    for at, part in enumerate(parts[1:], 2):
        if hasattr(here, part):
            here = getattr(here, part)
            continue
        try:
            here = importlib.import_module(".".join(parts[:at]))
        except ImportError as fault:
            if (fault.name or "foldline").startswith("foldline"):
                yield Fault("name", name)
            return


def check_setting(name: str) -> Iterator[Fault]:
    """Check a setting by its whole name, or the table that holds some."""
    known, _ = list_settings()
    tops = {one.partition(".")[0] for one in known if "." in one}
    first = name.partition(".")[0]
    if first not in tops or name.rpartition(".")[2] in ("toml", "py", "md", "db", "db_", "jsonl"):
        return
    parts = name.split(".")
    for one in known:
        pattern = one.split(".")
        if all(p == q or q.isupper() for p, q in zip(parts, pattern, strict=False)):
            return
    yield Fault("setting", name)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_name_on_a_page_exists(path):
    assert [*find_faults(path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("Use `foldline recal log:2`.", "command", "recal"),
        ("```console\n$ foldline undo NAME --gently\n```\n", "option", "foldline undo --gently"),
        ("Give `--gentle`.", "option", "--gentle"),
        ("Call `s.unfold()`.", "method", "s.unfold"),
        ("Look at `plan.reprot`.", "attribute", "plan.reprot"),
        ("See `foldline.opne(path)`.", "name", "foldline.opne"),
        ("See `foldline.stores.opener`.", "name", "foldline.stores.opener"),
        ("Set `gateway.max_valuse`.", "setting", "gateway.max_valuse"),
        ("Set FOLDLINE_UPSTREEM_KEY.", "variable", "FOLDLINE_UPSTREEM_KEY"),
        ("Run `just benhc lab`.", "recipe", "benhc"),
        ("Run `just bench lap`.", "bench", "lap"),
        ("Read `src/foldline/core/planning.py`.", "file", "src/foldline/core/planning.py"),
        ("$ pip install 'foldline[gatewya]'", "extra", "gatewya"),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(text, kind, name):
    assert [*find_faults(text)] == [Fault(kind, name)]

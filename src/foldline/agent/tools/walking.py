"""Walking a tree: its files in order, without what nobody looks for.

Knows which folders hold no work of a person's (`.git`, `node_modules`, …) and what `.gitignore`
files say, as ripgrep does with the flags that `searching` gives it. Refuses to follow links.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, cast

from foldline.agent.tools.places import Root
from foldline.errors import BadInput

SKIPPED = (".git", ".hg", "node_modules", ".venv", "__pycache__")
_GLOB = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[!?[^\]/]+\]|\\.|.", re.DOTALL)
_BRACES = {"{": "(?:", ",": "|", "}": ")"}


class _Rule(NamedTuple):
    """A line of a .gitignore."""

    pattern: Any
    folders: bool
    """Whether it is for folders alone."""
    keeps: bool
    """Whether it takes back what another ignores."""


class _Rules(NamedTuple):
    """The rules of one folder; paths are relative to it."""

    folder: str
    rules: list[_Rule]


def walk(root: Root, start: Path, *, only: Any, stop: Event) -> Iterator[Path]:
    """The files below a folder, sorted by path, until stopped; those whose path from it matches."""
    for path in _below(str(start), _above(root, start), stop):
        if only is None or only.search(os.path.relpath(path, start)) is not None:
            yield Path(path)


def named(root: Root, path: Path) -> str:
    """A file as a model calls it: from the root on, or by its whole path."""
    return path.relative_to(root.path).as_posix() if path.is_relative_to(root.path) else str(path)


def matching(names: str) -> Any:
    """A pattern of names: without a `/` at any depth, with one from the folder on."""
    where = "^" if "/" in names.strip("/") else "(?:^|/)"
    braces = names.count("{") == names.count("}") > 0
    return compiled(f"{where}{_translated(names.strip('/'), braces=braces)}$")


def compiled(pattern: str | bytes) -> Any:
    """A pattern of RE2, whose time is in proportion to the text: models write them."""
    import re2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - only who searches waits

    engine = cast("Any", re2)
    options = engine.Options()
    options.log_errors = False
    options.never_nl = True
    try:
        return engine.compile(pattern, options)
    except engine.error as fault:
        why = fault.args[0] if fault.args else ""
        why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise BadInput(
            f"the pattern is refused: {why}; it is RE2: no look-around, no references back, and a "
            r"backslash before ( ) [ ] { } . * + ? | that stand for themselves"
        ) from None


def _below(folder: str, above: list[_Rules], stop: Event) -> Iterator[str]:
    if stop.is_set():
        return
    rules = [*above, *_of(folder)]
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=_place)
    except OSError:
        return  # a folder that may not be looked into has no files for us
    for one in entries:
        if one.is_symlink() or one.name in SKIPPED:
            continue
        folders = one.is_dir()
        if _ignored(one.path, rules, folder=folders):
            continue
        if folders:
            yield from _below(one.path, rules, stop)
        elif one.is_file():
            yield one.path


def _place(one: os.DirEntry[str]) -> bytes:
    return os.fsencode(one.name)


def _above(root: Root, start: Path) -> list[_Rules]:
    """The rules of the root and of every folder from there to the one before `start`."""
    if not start.is_relative_to(root.path):
        return []
    found: list[_Rules] = []
    for folder in reversed(start.parents):
        if folder.is_relative_to(root.path):
            found += _of(str(folder))
    return found


def _of(folder: str) -> list[_Rules]:
    try:
        text = Path(folder, ".gitignore").read_text(errors="replace")
    except OSError:
        return []
    rules = [rule for line in text.splitlines() if (rule := _rule(line)) is not None]
    return [_Rules(folder, rules)] if rules else []


def _rule(line: str) -> _Rule | None:
    line = line.rstrip(" ") if not line.endswith("\\ ") else line
    keeps = line.startswith("!")
    body = line[1:] if keeps else line
    if not body or body.startswith("#"):
        return None
    where = "^" if "/" in body.rstrip("/") else "(?:^|/)"
    try:
        pattern = compiled(f"{where}{_translated(body.strip('/'))}$")
    except BadInput:
        return None
    return _Rule(pattern, body.endswith("/"), keeps)


def _ignored(path: str, rules: list[_Rules], *, folder: bool) -> bool:
    """What the last rule that matches says."""
    for of in reversed(rules):
        inner = os.path.relpath(path, of.folder)
        for rule in reversed(of.rules):
            if (folder or not rule.folders) and rule.pattern.search(inner) is not None:
                return not rule.keeps
    return False


def _translated(glob: str, *, braces: bool = False) -> str:
    """A glob as a pattern: `*` stays within a folder, `**` does not; `{a,b}` where it is known."""
    found: list[str] = []
    for one in _GLOB.findall(glob):
        match one[0]:
            case "*" if one == "**/":
                found.append("(?:.*/)?")
            case "/" if one == "/**":
                found.append("/.*")
            case "*":
                found.append("[^/]*")
            case "?":
                found.append("[^/]")
            case "[" if len(one) > 1:
                found.append(one.replace("[!", "[^", 1))
            case "\\":
                found.append(re.escape(one[1:]))
            case "{" | "," | "}" if braces:
                found.append(_BRACES[one])
            case _:
                found.append(re.escape(one))
    return "".join(found)

"""Settings files: where they are looked for, what stands in them, and on which line.

Knows folders, TOML and YAML. Refuses to know settings, and to read what is no plain, small file.

    $XDG_CONFIG_HOME/foldline/foldline.toml    the user's (~/.config where that is not set)
    foldline.toml                              the project's: nearest, from here up to its root
"""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from foldline.settings.kinds import Wrong

NAMES = ("foldline.toml", "foldline.yaml", "foldline.yml")
FILE = "file://"
_REPOSITORY = (".git", ".hg")
_PACKAGE = ("go.mod", "package.json", "pyproject.toml", "Cargo.toml")
_MOST = 1_000_000  # bytes: nobody writes a longer one
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"({_PART}(?:\s*\.\s*{_PART})*)"
_TABLE = re.compile(rf"\s*\[\s*{_NAME}\s*\]")
_KEY = re.compile(rf"\s*{_NAME}\s*=")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_QUOTES = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class File:
    """One file, read."""

    path: Path
    said: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    body: bytes = b""

    def origin(self, name: str) -> str:
        """The file, and the line of a setting in it, or of the table that it stands in."""
        while name:
            if name in self.lines:
                return f"{self.path}:{self.lines[name]}"
            name = name.rpartition(".")[0]
        return str(self.path)

    def sealed(self, *more: bytes) -> str:
        """The sha256 of all that it says, also in the files that it names."""
        parts = (self.body, *more)
        sized = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        return hashlib.sha256(self.body if len(parts) == 1 else sized).hexdigest()


def user_folder(env: Mapping[str, str]) -> Path:
    """The user's config folder of ours."""
    named = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME", "")
    base = (
        Path(named) if named.startswith("/") else (Path(home) if home else Path.home()) / ".config"
    )
    return base / "foldline"


def root(folder: Path) -> Path:
    """The project that a folder is in: its repository, else its package, else itself (A-23)."""
    above = (folder, *folder.parents)
    for marks in (_REPOSITORY, _PACKAGE):
        for one in above:
            if any(_is_there(one / mark) for mark in marks):
                return one
    return folder


def folders(here: Path) -> Iterator[Path]:
    """Where a project's file may lie, the nearest first."""
    last = root(here)
    for one in (here, *here.parents):
        yield one
        if one == last:
            return


def found(folder: Path) -> Path | None:
    """The file of a folder; `Wrong` where there are two."""
    there = [folder / name for name in NAMES if _is_there(folder / name)]
    if len(there) > 1:
        names = " and ".join(path.name for path in there)
        raise Wrong(
            f"{folder} has {names}: keep {there[0].name}, and remove "
            f"{' and '.join(path.name for path in there[1:])}"
        )
    return there[0] if there else None


def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib's raises where a folder is another's


def read(path: Path) -> File:
    """What stands in a file; `Wrong` where that cannot be told."""
    body = plain(path)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise Wrong(f"{path} is no text in UTF-8 (byte {fault.start}); save it as UTF-8") from None
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, text, body)
    return _toml(path, text, body)


def beside(path: str, folder: Path) -> Path:
    """A path that is relative to a folder, or to somebody's home."""
    try:
        return folder / Path(path).expanduser()
    except RuntimeError:  # nobody of that name is here
        return folder / path


def plain(path: Path) -> bytes:
    """The bytes of a file that is one."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise Wrong(f"{path} is no file; remove it, or name another")
        if state.st_size > _MOST:
            raise Wrong(f"{path} has {state.st_size:,} bytes; at most {_MOST:,} are read")
        return path.read_bytes()
    except (OSError, ValueError) as fault:
        if isinstance(fault, Wrong):
            raise
        why = getattr(fault, "strerror", None) or str(fault)
        raise Wrong(f"{path} cannot be read: {why}") from None


def _toml(path: Path, text: str, body: bytes) -> File:
    try:
        said = tomllib.loads(text)
    except RecursionError:
        raise Wrong(f"{path} is no TOML: it is nested too deep") from None
    except ValueError as fault:
        told = str(fault)
        at = _LINE.search(told)
        place = f"{path}:{at[1]}" if at else str(path)
        why = _LINE.sub("", told).strip()
        raise Wrong(
            f"{place} is no TOML: {why}; write lines like name = value, texts in quotes"
        ) from None
    return File(path, said, _toml_lines(text), body)


def _toml_lines(text: str) -> dict[str, int]:
    """Where each name stands, as far as a look at single lines can tell."""
    lines: dict[str, int] = {}
    before, inside = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if table := _TABLE.match(line):
            before = f"{_bare(table[1])}."
            lines.setdefault(before[:-1], number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{before}{_bare(key[1])}", number)
            opened = [quote for quote in _QUOTES if line.count(quote) % 2]
            inside = opened[0] if opened else ""
    return lines


def _bare(name: str) -> str:
    return ".".join(part.strip("\"'") for part in re.findall(_PART, name))


def _yaml(path: Path, text: str, body: bytes) -> File:
    try:
        import yaml  # noqa: PLC0415 - an extra, and few have such a file
    except ImportError:
        raise Wrong(
            f"{path} needs the extra `yaml`: pip install 'foldline[yaml]', or write it in TOML"
        ) from None
    lines: dict[str, int] = {}
    try:
        loader: Any = yaml.SafeLoader(text)
        node: Any = loader.get_single_node()
        _yaml_lines(node, lines)  # before its merged keys are put in
        said: Any = {} if node is None else loader.construct_document(node)
    except Wrong as fault:
        raise Wrong(f"{path}:{fault}") from None
    except Exception as fault:  # noqa: BLE001 - of many kinds, whatever is wrong with the text
        mark: Any = getattr(fault, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        why = getattr(fault, "problem", None) or " ".join(str(fault).split()) or repr(fault)
        raise Wrong(f"{place} is no YAML: {why}; write lines like name: value") from None
    if not isinstance(said, dict):
        raise Wrong(f"{path} holds no names; write lines like policy: steady")
    return File(path, cast("dict[str, Any]", said), lines, body)


def _yaml_lines(node: Any, lines: dict[str, int], before: str = "", depth: int = 0) -> None:
    """Where each name stands; `Wrong` where one stands twice, of which YAML says nothing."""
    pairs: Any = getattr(node, "value", None)
    if getattr(node, "id", "") != "mapping" or depth > 8:  # noqa: PLR2004 - no setting is deeper
        return
    own: set[str] = set()
    for key, value in pairs:
        name, number = f"{before}{key.value}", key.start_mark.line + 1
        if name in own:
            raise Wrong(f"{number} has {name} for the second time; keep one")
        own.add(name)
        lines.setdefault(name, number)
        if len(lines) < _MOST // 100:
            _yaml_lines(value, lines, f"{name}.", depth + 1)

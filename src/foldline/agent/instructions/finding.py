"""Where instructions may lie: the config folder, the roots, and the folders down to the work.

The root of a folder is the nearest one above it, itself included, that is a repository; where there
is none, the nearest that has a project's file; else the folder itself. The home folder and what is
above it are nobody's root, however they are marked, unless work is done right there: a repository
of dotfiles makes no project of everything below. Knows folders and names. Refuses to open files.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORIES = (".git", ".hg")
PROJECTS = ("go.mod", "package.json", "pyproject.toml", "Cargo.toml")
NAMES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""In each folder the first of these that holds anything counts."""
STRANGE = frozenset({"node_modules", "site-packages", "vendor", "third_party"})
"""Folders of other people's code: their instructions are not for us. Nor are hidden folders'."""


def config_folder() -> Path:
    """The user's own: `$XDG_CONFIG_HOME/foldline`, or `~/.config/foldline`."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "foldline"


def root_of(folder: Path, *, home: Path) -> Path:
    """The root of the project that a folder belongs to; `folder` is absolute, without symlinks."""
    above = [folder, *(one for one in folder.parents if not home.is_relative_to(one))]
    for marks in (REPOSITORIES, PROJECTS):
        found = (one for one in above if any((one / mark).exists() for mark in marks))
        if (root := next(found, None)) is not None:
            return root
    return folder


def roots_of(cwd: Path, roots: Iterable[Path], *, home: Path) -> list[Path]:
    """The workspace's roots, that of the working folder last: it is the nearest."""
    given = list(dict.fromkeys(Path(os.path.realpath(one)) for one in roots))
    own = innermost(cwd, given) or root_of(cwd, home=home)
    return [*(one for one in given if one != own), own]


def innermost(folder: Path, roots: Iterable[Path]) -> Path | None:
    """The root that a folder lies in; of several, the deepest."""
    inside = [one for one in roots if folder.is_relative_to(one)]
    return max(inside, key=lambda one: len(one.parts), default=None)


def down(root: Path, folder: Path) -> list[Path]:
    """The folders from a root down to one inside it, both included."""
    inner = folder.relative_to(root).parts
    return [root.joinpath(*inner[:n]) for n in range(len(inner) + 1)]


def strange(root: Path, folder: Path) -> bool:
    """Whether a folder is hidden, or other people's."""
    return any(name in STRANGE or name.startswith(".") for name in folder.relative_to(root).parts)


def steps(one: Path, other: Path) -> int:
    """How far one folder is from another."""
    way = os.path.relpath(one, other)
    return 0 if way == "." else way.count("/") + 1


def signature(folders: Iterable[Path], names: Sequence[str]) -> list[tuple[int, ...]]:
    """What changes when a file in one of these folders does; no file is opened."""
    return [state(folder / name) for folder in folders for name in names]


def state(path: Path) -> tuple[int, ...]:
    """A file's identity, size and times; () where there is none."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return ()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns

"""A file of instructions with what it imports: one unit, agreed to as a whole.

    @docs/style.md          a line of its own, relative to the file that it stands in

Lines in code are no imports. A file is taken once, however often and by whomever it is imported, so
cycles end; at most `DEPTH` files deep and `FILES` in all; never from outside the boundary, which is
the project's root or, for the user's global file, the config folder. `@~/…` is another unit: what
lies in the home folder is asked about by itself. Knows lines and places. Refuses to know who trusts
whom.
"""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from foldline.agent.instructions.reading import FileRead, FileRefused, read, read_own, words

DEPTH = 5
FILES = 64
Scope: TypeAlias = Literal["global", "memory", "root", "nested", "import"]
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_IMPORT = re.compile(r" {0,3}(?:[-*+] +)?@(\S+)\s*")
_NAMED = re.compile(r"[./]")  # `@alice` alone on a line is a person, no path


class ImportedFile(NamedTuple):
    """A file that was found, or an import that leads nowhere."""

    path: Path
    scope: Scope
    body: bytes = b""
    size: int = 0
    why: str = ""
    """Why it is not read; "" where it is."""


class Unit(NamedTuple):
    """A file and its imports, in the order in which they are told."""

    sources: tuple[ImportedFile, ...]
    boundary: Path

    @property
    def path(self) -> Path:
        """Of the file that imports the others."""
        return self.sources[0].path

    @property
    def sha(self) -> str:
        """Of everything that would be loaded."""
        found = sha256()
        for source in self.sources:
            if not source.why:
                found.update(
                    f"{source.path}\0{len(source.body)}\0".encode(errors="surrogateescape")
                )
                found.update(source.body)
        return found.hexdigest()


class Boundary(NamedTuple):
    """A folder that imports must not leave."""

    folder: Path
    own: bool = False
    """Whether it is the user's own config folder, where symlinks are the user's choice."""
    home: Path | None = None
    """Where `~` leads."""

    def inner(self, path: str) -> tuple[str, ...] | None:
        """Where an absolute path lies inside, by its words alone: no symlink is followed."""
        inner = os.path.relpath(path, self.folder).split("/")
        return None if inner[0] in {"..", "."} else tuple(inner)

    def read(self, inner: tuple[str, ...], most: int) -> FileRead | FileRefused | None:
        """A file inside."""
        if self.own:
            return read_own(self.folder.joinpath(*inner), most=most)
        return read(self.folder, inner, most=most)


def unit(boundary: Boundary, inner: tuple[str, ...], *, scope: Scope, most: int) -> list[Unit]:
    """A file with its imports, and behind it a unit for each import from the home folder.

    None at all where there is no such file, or nothing in it.
    """
    path = boundary.folder.joinpath(*inner)
    found = boundary.read(inner, most)
    if found is None or (isinstance(found, FileRead) and not words(found.body).text.strip()):
        return []
    walk = _Walk(boundary, most)
    walk.take(path, scope, found, depth=0)
    for importer, depth, asked in walk.asked:  # grows while it is walked
        walk.follow(asked, importer, depth)
    return [Unit(tuple(walk.sources), boundary.folder), *walk.beside]


class _Walk:
    """Imports, those of the file first and then theirs, so that each is met by its shortest way."""

    def __init__(self, boundary: Boundary, most: int) -> None:
        self.boundary, self.most = boundary, most
        self.sources: list[ImportedFile] = []
        self.seen: set[Path] = set()
        self.beside: list[Unit] = []
        self.asked: list[tuple[Path, int, str]] = []

    def take(
        self, path: Path, scope: Scope, found: FileRead | FileRefused | None, *, depth: int
    ) -> None:
        self.seen.add(path)
        if not isinstance(found, FileRead):
            why = found.why if found else "there is no such file"
            self.sources.append(ImportedFile(path, scope, why=why))
            return
        self.sources.append(ImportedFile(path, scope, found.body, found.size))
        self.asked += [(path, depth + 1, asked) for asked in imported(words(found.body).text)]

    def follow(self, asked: str, importer: Path, depth: int) -> None:
        home = self.boundary.home
        at_home = asked.startswith("~/") and home is not None
        joined = f"{home}/{asked[2:]}" if at_home else os.path.join(importer.parent, asked)  # noqa: PTH118 - a Path would keep `..`
        path = Path(os.path.normpath(joined))
        if path in self.seen:
            return
        inner = self.boundary.inner(str(path))
        refused = ""
        if depth > DEPTH:
            refused = f"it is imported more than {DEPTH} files deep"
        elif len(self.seen) > FILES:
            refused = f"it is behind {FILES} other imports"
        elif inner is None and not at_home:
            refused = f"it is outside {self.boundary.folder}"
        if refused:
            self.take(path, "import", FileRefused(refused), depth=depth)
        elif inner is not None:
            self.take(path, "import", self.boundary.read(inner, self.most), depth=depth)
        elif home is not None:
            self.seen.add(path)
            self._beside(home, path)

    def _beside(self, home: Path, path: Path) -> None:
        there = Boundary(home)
        inner = there.inner(str(path))
        found = unit(there, inner, scope="import", most=self.most) if inner else []
        missing = ImportedFile(path, "import", why="there is no such file, or nothing in it")
        self.beside += found or [Unit((missing,), home)]


def imported(text: str) -> Iterator[str]:
    """The paths that a text imports, outside of code."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.fullmatch(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        elif not fence and (found := _IMPORT.fullmatch(line)) and _NAMED.search(found[1]):
            yield found[1]

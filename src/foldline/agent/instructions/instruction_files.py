"""Instruction files: where they are, what they import, and how they are read safely.

Roots. A folder's root is the nearest repository at or above it; if there is none, the nearest
folder with a project file; else the folder itself. The home folder and its parents are never a
root, unless they are the working folder: a repository of dotfiles makes no project of all below.

Imports. A line `@docs/style.md`, outside code, imports a file relative to the one it is in. A file
and its imports are one unit, trusted as a whole. Each file is imported once, so cycles end; at most
`DEPTH` files deep and `FILES` in all; never from outside the boundary, which is the project's root
or, for the user's global file, the config folder. `@~/…` is a unit of its own: the user is asked
about it separately.

Reading. Files are opened folder by folder from the boundary's descriptor, without following
symlinks: whatever is swapped meanwhile, what is read lies inside. Only regular files, so a pipe
cannot block us, and never more than `most` bytes.
"""

import codecs
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

REPOSITORIES = (".git", ".hg")
PROJECTS = ("go.mod", "package.json", "pyproject.toml", "Cargo.toml")
NAMES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""In each folder the first of these that is not empty is used."""
STRANGE = frozenset({"node_modules", "site-packages", "vendor", "third_party"})
"""Folders of other people's code: their instructions are ignored, as are hidden folders'."""


def config_folder() -> Path:
    """Return the user's config folder: `$XDG_CONFIG_HOME/foldline` or `~/.config/foldline`."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "foldline"


def root_of(folder: Path, *, home: Path) -> Path:
    """Return the root of a folder's project; `folder` is absolute, without symlinks."""
    candidates = [folder, *(one for one in folder.parents if not home.is_relative_to(one))]
    for marks in (REPOSITORIES, PROJECTS):
        for candidate in candidates:
            if any((candidate / mark).exists() for mark in marks):
                return candidate
    return folder


def roots_of(cwd: Path, roots: Iterable[Path], *, home: Path) -> list[Path]:
    """Return the workspace's roots, the working folder's last as it is the nearest."""
    given = list(dict.fromkeys(Path(os.path.realpath(one)) for one in roots))
    own = find_innermost_root(cwd, given) or root_of(cwd, home=home)
    return [*(one for one in given if one != own), own]


def find_innermost_root(folder: Path, roots: Iterable[Path]) -> Path | None:
    """Find the deepest root that contains a folder."""
    inside = [one for one in roots if folder.is_relative_to(one)]
    return max(inside, key=lambda one: len(one.parts), default=None)


def list_folders_between(root: Path, folder: Path) -> list[Path]:
    """List the folders from a root down to one inside it, both included."""
    inner = folder.relative_to(root).parts
    return [root.joinpath(*inner[:n]) for n in range(len(inner) + 1)]


def is_excluded_folder(root: Path, folder: Path) -> bool:
    """Whether a folder is hidden or holds other people's code."""
    return any(name in STRANGE or name.startswith(".") for name in folder.relative_to(root).parts)


def count_steps(one: Path, other: Path) -> int:
    """Count the steps from one folder to another."""
    way = os.path.relpath(one, other)
    return 0 if way == "." else way.count("/") + 1


def read_file_states(folders: Iterable[Path], names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return a state that changes when one of the files does; opens none."""
    return [read_file_state(folder / name) for folder in folders for name in names]


def read_file_state(path: Path) -> tuple[int, ...]:
    """Return a file's identity, size and times; () if there is none."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return ()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


DEPTH = 5
FILES = 64
Scope: TypeAlias = Literal["global", "memory", "root", "nested", "import"]
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_IMPORT = re.compile(r" {0,3}(?:[-*+] +)?@(\S+)\s*")
_NAMED = re.compile(r"[./]")  # `@alice` alone on a line is a person, not a path


class ImportedFile(NamedTuple):
    """A file that was read, or one that could not be."""

    path: Path
    scope: Scope
    body: bytes = b""
    size: int = 0
    why: str = ""
    """Why it was not read; "" if it was."""


class Unit(NamedTuple):
    """A file and its imports, in the order the model reads them."""

    sources: tuple[ImportedFile, ...]
    boundary: Path

    @property
    def path(self) -> Path:
        """The path of the file that imports the others."""
        return self.sources[0].path

    @property
    def sha(self) -> str:
        """The hash of everything that would be loaded."""
        digest = sha256()
        for source in self.sources:
            if not source.why:
                head = f"{source.path}\0{len(source.body)}\0"
                digest.update(head.encode(errors="surrogateescape") + source.body)
        return digest.hexdigest()


class FileRead(NamedTuple):
    """A file's content, as far as it was read."""

    body: bytes
    size: int
    """Bytes of the whole file."""


class FileRefused(NamedTuple):
    """A file that exists but is not read."""

    why: str


class Boundary(NamedTuple):
    """A folder that imports must not leave."""

    folder: Path
    own: bool = False
    """Whether it is the user's own config folder, where symlinks are the user's choice."""
    home: Path | None = None
    """Where `~` leads."""

    def find_inner_path(self, path: str) -> tuple[str, ...] | None:
        """Return an absolute path's parts inside the folder; follows no symlink."""
        inner = os.path.relpath(path, self.folder).split("/")
        return None if inner[0] in {"..", "."} else tuple(inner)

    def read_file(self, inner: tuple[str, ...], most: int) -> FileRead | FileRefused | None:
        """Read a file inside the folder."""
        if self.own:
            return read_own(self.folder.joinpath(*inner), most=most)
        return read_inside(self.folder, inner, most=most)


def read_units(
    boundary: Boundary, inner: tuple[str, ...], *, scope: Scope, most: int
) -> list[Unit]:
    """Read a file with its imports, then a unit for each import from the home folder.

    Returns no unit if the file is missing or empty.
    """
    file = boundary.read_file(inner, most)
    if file is None or (
        isinstance(file, FileRead) and not decode_file_text(file.body).text.strip()
    ):
        return []
    walk = _Walk(boundary, most)
    walk.add_source(boundary.folder.joinpath(*inner), scope, file, depth=0)
    for importer, depth, asked in walk.asked:  # grows while it is walked
        walk.follow_import(asked, importer, depth)
    return [Unit(tuple(walk.sources), boundary.folder), *walk.beside]


class _Walk:
    """Follows imports breadth first, so that each file is reached by its shortest way."""

    def __init__(self, boundary: Boundary, most: int) -> None:
        self.boundary, self.most = boundary, most
        self.sources: list[ImportedFile] = []
        self.seen: set[Path] = set()
        self.beside: list[Unit] = []
        self.asked: list[tuple[Path, int, str]] = []

    def add_source(
        self, path: Path, scope: Scope, found: FileRead | FileRefused | None, *, depth: int
    ) -> None:
        self.seen.add(path)
        if not isinstance(found, FileRead):
            why = found.why if found else "there is no such file"
            self.sources.append(ImportedFile(path, scope, why=why))
            return
        self.sources.append(ImportedFile(path, scope, found.body, found.size))
        self.asked += [
            (path, depth + 1, asked) for asked in iterate_imports(decode_file_text(found.body).text)
        ]

    def follow_import(self, asked: str, importer: Path, depth: int) -> None:
        home = self.boundary.home
        at_home = asked.startswith("~/") and home is not None
        joined = f"{home}/{asked[2:]}" if at_home else os.path.join(importer.parent, asked)  # noqa: PTH118 - a Path would keep `..`
        path = Path(os.path.normpath(joined))
        if path in self.seen:
            return
        inner = self.boundary.find_inner_path(str(path))
        refused = ""
        if depth > DEPTH:
            refused = f"it is imported more than {DEPTH} files deep"
        elif len(self.seen) > FILES:
            refused = f"it is behind {FILES} other imports"
        elif inner is None and not at_home:
            refused = f"it is outside {self.boundary.folder}"
        if refused:
            self.add_source(path, "import", FileRefused(refused), depth=depth)
        elif inner is not None:
            self.add_source(path, "import", self.boundary.read_file(inner, self.most), depth=depth)
        elif home is not None:
            self.seen.add(path)
            self._add_home_units(home, path)

    def _add_home_units(self, home: Path, path: Path) -> None:
        there = Boundary(home)
        inner = there.find_inner_path(str(path))
        found = read_units(there, inner, scope="import", most=self.most) if inner else []
        missing = ImportedFile(path, "import", why="there is no such file, or nothing in it")
        self.beside += found or [Unit((missing,), home)]


def iterate_imports(text: str) -> Iterator[str]:
    """Yield the paths that a text imports, outside code."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.fullmatch(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        elif not fence and (found := _IMPORT.fullmatch(line)) and _NAMED.search(found[1]):
            yield found[1]


_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LINKED = {errno.ELOOP, errno.EMLINK}  # errors of O_NOFOLLOW on a symlink, by system
_GONE = (FileNotFoundError, NotADirectoryError)
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, strings for the terminal
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
# Other control characters, and invisible ones: direction marks, tags, byte order marks.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


class FileWords(NamedTuple):
    """A file's text, without what could control a terminal or hide from a reader."""

    text: str
    replaced: bool
    """Whether some bytes were not UTF-8."""


def read_inside(
    boundary: Path, inner: tuple[str, ...], *, most: int
) -> FileRead | FileRefused | None:
    """Read a file inside a folder, following no symlink; None if there is none."""
    if not inner or any(name in {"", ".", ".."} or "/" in name for name in inner):
        return FileRefused("its path leaves the folder")
    try:
        folder = os.open(boundary, _FOLDER | os.O_NOFOLLOW)
        try:
            for name in inner[:-1]:
                deeper = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = deeper
            return _read_in_folder(inner[-1], folder, most)
        finally:
            os.close(folder)
    except NotADirectoryError:  # some systems raise it for a symlink to a folder
        linked = any(Path(boundary, *inner[:n]).is_symlink() for n in range(1, len(inner)))
        return FileRefused("a folder on its path is a symlink") if linked else None
    except (OSError, ValueError) as fault:
        return _make_refusal(fault)


def read_own(path: Path, *, most: int) -> FileRead | FileRefused | None:
    """Read a file of the user's config folder, where a symlink is the user's choice."""
    try:
        return _read_regular_file(os.open(path, _FILE) if _is_file(path.stat()) else None, most)
    except (OSError, ValueError) as fault:
        return _make_refusal(fault)


def decode_file_text(body: bytes) -> FileWords:
    """Decode a file, dropping hidden characters and a last letter that is cut in two."""
    utf8, replaced = codecs.getincrementaldecoder("utf-8"), False
    try:
        text = utf8("strict").decode(body)
    except UnicodeDecodeError:
        text, replaced = utf8("replace").decode(body), True
    return FileWords(
        strip_hidden_characters(text.replace("\r\n", "\n").replace("\r", "\n")), replaced
    )


def strip_hidden_characters(text: str) -> str:
    """Remove escape sequences, control characters and invisible marks."""
    return _HIDDEN.sub("", _SEQUENCE.sub("", text))


def _read_in_folder(name: str, folder: int, most: int) -> FileRead | FileRefused | None:
    # Checked first, as opening a device may have effects; checked again after opening.
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return FileRefused("it is a symlink")
    there = _is_file(found)
    return _read_regular_file(
        os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=folder) if there else None, most
    )


def _read_regular_file(file: int | None, most: int) -> FileRead | FileRefused:
    if file is None:
        return FileRefused("it is no regular file")
    try:
        found = os.fstat(file)
        if not _is_file(found):
            return FileRefused("it is no regular file")
        pieces: list[bytes] = []
        while most > 0 and (piece := os.read(file, most)):
            pieces.append(piece)
            most -= len(piece)
        body = b"".join(pieces)
        return FileRead(body, max(found.st_size, len(body)))
    finally:
        os.close(file)


def _is_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode)


def _make_refusal(fault: OSError | ValueError) -> FileRefused | None:
    if isinstance(fault, _GONE):
        return None
    if isinstance(fault, OSError) and fault.errno in _LINKED:
        return FileRefused("it is a symlink, or a folder on its path is")
    why = fault.strerror if isinstance(fault, OSError) else None
    return FileRefused(f"it cannot be read: {why or fault}")

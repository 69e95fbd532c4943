"""Reading one file of instructions, and nothing but that file.

    read(root, ("src", "AGENTS.md"), most=32_768)   # Read | Refused | None where there is none

Folder by folder from the boundary's own descriptor, no step through a symlink: whatever is swapped
while we read, what is read lies inside. Regular files only, so that a pipe cannot hold us up; never
more than `most` bytes, so that a large one cannot either. Knows files and their bytes. Refuses to
know which files there should be.
"""

import codecs
import errno
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LINKED = {errno.ELOOP, errno.EMLINK}  # what O_NOFOLLOW says of a symlink, by system
_GONE = (FileNotFoundError, NotADirectoryError)
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, strings for the terminal
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
# Other controls, and what is not seen: marks that turn the direction of text, tags, a byte order's.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


class FileRead(NamedTuple):
    """What a file holds, as far as it was read."""

    body: bytes
    size: int
    """Of all of it, in bytes."""


class FileRefused(NamedTuple):
    """A file that is there and is not read."""

    why: str


class FileWords(NamedTuple):
    """A file's text, without what could drive a terminal or hide from a reader."""

    text: str
    replaced: bool
    """Whether some of its bytes are no UTF-8."""


def read(boundary: Path, inner: tuple[str, ...], *, most: int) -> FileRead | FileRefused | None:
    """A file by its place inside a folder that must not be left."""
    if not inner or any(name in {"", ".", ".."} or "/" in name for name in inner):
        return FileRefused("its path leaves the folder")
    try:
        folder = os.open(boundary, _FOLDER | os.O_NOFOLLOW)
        try:
            for name in inner[:-1]:
                deeper = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = deeper
            return _opened(inner[-1], folder, most)
        finally:
            os.close(folder)
    except NotADirectoryError:  # what some systems say of a symlink to a folder
        linked = any(Path(boundary, *inner[:n]).is_symlink() for n in range(1, len(inner)))
        return FileRefused("a folder on its path is a symlink") if linked else None
    except (OSError, ValueError) as fault:
        return _fault(fault)


def read_own(path: Path, *, most: int) -> FileRead | FileRefused | None:
    """A file of the user's own config folder, where a symlink is the user's choice."""
    try:
        return _regular(os.open(path, _FILE) if _is_file(path.stat()) else None, most)
    except (OSError, ValueError) as fault:
        return _fault(fault)


def words(body: bytes) -> FileWords:
    """Bytes as text; a letter that the end cuts in two is left out."""
    utf8, replaced = codecs.getincrementaldecoder("utf-8"), False
    try:
        text = utf8("strict").decode(body)
    except UnicodeDecodeError:
        text, replaced = utf8("replace").decode(body), True
    return FileWords(clean(text.replace("\r\n", "\n").replace("\r", "\n")), replaced)


def clean(text: str) -> str:
    """Text without escape sequences, control characters and marks that nobody sees."""
    return _HIDDEN.sub("", _SEQUENCE.sub("", text))


def _opened(name: str, folder: int, most: int) -> FileRead | FileRefused | None:
    # Asked first, as opening may be an act on a device; asked again of what was really opened.
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return FileRefused("it is a symlink")
    there = _is_file(found)
    return _regular(os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=folder) if there else None, most)


def _regular(file: int | None, most: int) -> FileRead | FileRefused:
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


def _fault(fault: OSError | ValueError) -> FileRefused | None:
    if isinstance(fault, _GONE):
        return None
    if isinstance(fault, OSError) and fault.errno in _LINKED:
        return FileRefused("it is a symlink, or a folder on its path is")
    why = fault.strerror if isinstance(fault, OSError) else None
    return FileRefused(f"it cannot be read: {why or fault}")

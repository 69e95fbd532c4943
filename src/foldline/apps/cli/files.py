"""Session files on a disk: which there are under what a person named, and the text of each.

Knows folders, endings, gzip and what is no text. Refuses to know what a session is.
"""

import gzip
import os
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from foldline.core.parts import sound
from foldline.errors import BadInput

ENDINGS = (".jsonl", ".json", ".traj", ".jsonl.gz", ".json.gz", ".traj.gz")
MOST = 512 * 1024 * 1024
"""The bytes of text that one file may unpack to: more is no conversation."""
_BEGINNING = 4_096


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold sessions."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class FilesPassed:
    """What was not taken, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Under:
    """What lies under the places that a person named."""

    files: list[Candidate]
    passed: list[FilesPassed]
    others: int = 0
    """Files of folders that end like no session file."""


def under(places: Sequence[Path]) -> Under:
    """Every file that may hold sessions; one that is named itself may end as it likes."""
    found = Under([], [])
    seen: set[tuple[int, int]] = set()
    for place in places:
        inside = list(_inside(place, found)) if place.is_dir() else [place]
        if place.is_dir() and not inside:
            reason = f"no file in it ends in {', '.join(ENDINGS[:3])} or .gz"
            found.passed.append(FilesPassed(sound(str(place)), reason))
        for path in inside:
            try:
                known = path.stat()
            except OSError as fault:
                found.passed.append(
                    FilesPassed(sound(str(path)), fault.strerror or "cannot be read")
                )
                continue
            if (known.st_dev, known.st_ino) not in seen:
                seen.add((known.st_dev, known.st_ino))
                found.files.append(Candidate(path, known.st_size))
    return found


def _inside(folder: Path, found: Under) -> Generator[Path]:
    def refused(fault: OSError) -> None:
        found.passed.append(
            FilesPassed(sound(str(fault.filename)), fault.strerror or "cannot be read")
        )

    for root, folders, names in os.walk(folder, onerror=refused):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(ENDINGS):
                yield Path(root) / name
            else:
                found.others += 1


def text_of(path: Path) -> str:
    """The text of a file, unpacked; raises with the reason why it is none."""
    if not path.is_file():
        raise BadInput("neither a file nor a folder")
    try:
        body = _unpacked(path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as fault:
        raise BadInput(f"not whole as gzip: {fault}") from fault
    except OSError as fault:
        raise BadInput(fault.strerror or "cannot be read") from fault
    if len(body) > MOST:
        raise BadInput(f"more than {MOST // 1024**2:,} MB of text: no conversation")
    if not body.strip():
        raise BadInput("empty")
    if b"\0" in body[:_BEGINNING]:
        raise BadInput("not text")
    return body.decode("utf-8-sig", "replace")


def _unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return file.read(MOST + 1)
        with gzip.open(file) as unpacked:
            return unpacked.read(MOST + 1)

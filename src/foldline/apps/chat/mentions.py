"""Files that a person names in a message: `@src/a.py`, `@"a name.txt"`, `@shot.png`.

    find_mentions("Compare @a.py and @b.py.", root)   →  [a.py, b.py], those that exist
    iterate_files_for("Look at @sr", root)            →  ("@src/", "folder"), …

A word that names no file stays as it is: `@property` is a word.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from foldline.agent.tools.permission_rules import is_guarded_path
from foldline.agent.tools.read_files import SKIPPED
from foldline.apps.chat.attachments import LARGEST, Attachment, attach_bytes
from foldline.apps.cli.output import format_size
from foldline.errors import BadInput

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
_TYPED = re.compile(r'(?<!\S)@("?)([^"\n]*)$')
_TAIL = ".,;:!?)]}'"
_MOST = 30  # names offered
_LOOKED = 2_000  # entries of a folder that are looked at
_PER_TOKEN = 3.5  # bytes, for a first guess


class Mention(NamedTuple):
    """A file that a message names."""

    name: str
    """As it was written."""
    path: Path
    asks: bool
    """Whether it is outside of the working folder or holds settings: a pasted text may name it."""


def find_mentions(text: str, root: Path) -> list[Mention]:
    """Find the files that a text names, each once."""
    found: dict[Path, Mention] = {}
    for quoted, plain in _MENTION.findall(text):
        for written in [quoted] if quoted else _iterate_shorter(plain):
            path = _resolve(written, root)
            if path is not None:
                inside = path.is_relative_to(root.resolve())
                hidden = any(part.startswith(".") for part in path.parts[len(root.parts) :])
                guarded = is_guarded_path(written) or hidden
                found.setdefault(path, Mention(written, path, not inside or guarded))
                break
    return [*found.values()]


def read_mention(one: Mention) -> Attachment:
    """Read a file that was named."""
    try:
        with one.path.open("rb") as file:
            return attach_bytes(one.name, file.read(LARGEST + 1))
    except OSError as fault:
        raise BadInput(f"@{one.name}: {fault.strerror}; nothing was sent") from fault


def iterate_files_for(text: str, root: Path, room: int) -> Iterable[tuple[str, str]]:
    """Yield what may complete the `@name` at the end of a text, with its size and share of room."""
    typed = _TYPED.search(text)
    if typed is None:
        return
    quote, given = typed.groups()
    if not quote and " " in given:
        return
    folder, _, start = given.rpartition("/")
    place = (
        (root / Path(folder or ".").expanduser())
        if not given.startswith("/")
        else Path(f"{folder}/")
    )
    try:
        with os.scandir(place) as entries:
            some = [one for one, _ in zip(entries, range(_LOOKED), strict=False)]
    except OSError:
        return
    some.sort(key=lambda one: (not one.name.startswith(start), one.name.lower()))
    count = 0
    for one in some:
        hidden = one.name.startswith(".") and not start.startswith(".")
        if one.name in SKIPPED or hidden or start.lower() not in one.name.lower():
            continue
        name = (
            f"{folder}/{one.name}" if folder else ("/" if given.startswith("/") else "") + one.name
        )
        marks = '"' if quote or " " in name else ""
        try:
            if one.is_dir():
                yield f"@{marks}{name}/", "folder"
            else:
                yield f"@{marks}{name}{marks}", _describe_size(one.stat().st_size, room)
        except OSError:
            continue
        count += 1
        if count >= _MOST:
            return


def _describe_size(size: int, room: int) -> str:
    tokens = int(size / _PER_TOKEN)
    share = f", {100 * tokens / room:.0f}% of the room" if room > 0 else ""
    return f"{format_size(size)} · ~{tokens:,} tokens{share}"


def _iterate_shorter(written: str) -> Iterable[str]:
    """Yield a word, then without the punctuation at its end."""
    yield written
    while written and written[-1] in _TAIL:
        written = written[:-1]
        yield written


def _resolve(written: str, root: Path) -> Path | None:
    try:
        path = (root / Path(written).expanduser()).resolve()
        return path if written.strip() and path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None

r"""What goes along with a message: a pipe, a file, a command, or files it names by `@`.

    attach_bytes("standard input", body)   →  Attachment(parts, note)

Each has a heading that names it and its size. Bytes that are not UTF-8 are written as `\xNN`, so
that nothing is lost; a picture becomes a picture. What is too large for the window is clipped by
the session as every message is, with a handle to the whole.

    find_mentions("Compare @a.py and @b.py.", root)   →  [a.py, b.py], those that exist
    iterate_files_for("Look at @sr", root)            →  ("@src/", "folder"), …

A word that names no file stays as it is: `@property` is a word.
"""

import base64
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from foldline.agent.tools.permission_rules import is_guarded_path
from foldline.agent.tools.read_files import SKIPPED, detect_picture_type
from foldline.apps.cli.exit_codes import TooMuch
from foldline.apps.cli.output import format_size
from foldline.core.names import format_count
from foldline.core.parts import Media, Part, Text, replace_surrogates
from foldline.core.tokens import count_parts
from foldline.errors import BadInput

LARGEST = 16_000_000
"""Bytes that are taken from one source; the rest would only be stored."""


class Attachment(NamedTuple):
    """What is added to a message."""

    name: str
    parts: tuple[Part, ...]
    size: int
    """Its bytes."""
    note: str = ""
    """What was changed on the way, for the person; "" if nothing was."""

    @property
    def tokens(self) -> int:
        """How much of the window it would take whole."""
        return count_parts(self.parts)


def attach_bytes(name: str, body: bytes) -> Attachment:
    """Turn bytes into parts of a message, under a heading with their name."""
    if len(body) > LARGEST:
        raise TooMuch(name, LARGEST)
    shown = replace_surrogates(name)
    if mime := detect_picture_type(body[:16]):
        about = Text(f"[{shown}: {mime}, {len(body):,} bytes]")
        picture = Media("image", mime, base64=base64.b64encode(body).decode(), name=shown)
        return Attachment(shown, (about, picture), len(body))
    text, note = _decode_whole(body)
    if len(text) > 4 * LARGEST:  # only escapes can make it so long
        raise TooMuch(name, LARGEST)
    lines = body.count(b"\n") + (not body.endswith(b"\n") and bool(body))
    size = f"{len(body):,} bytes, {format_count(lines, 'line')}"
    heading = f"[{shown}: {size}{f'; {note}' if note else ''}]"
    return Attachment(shown, (Text(f"{heading}\n{text}"),), len(body), note)


def join_message(words: str, attached: Sequence[Attachment]) -> tuple[Part, ...]:
    """Build a message: the person's words first, which a clip keeps, then what goes along."""
    texts, media = [replace_surrogates(words)] if words.strip() else [], list[Part]()
    for one in attached:
        texts += [part.text for part in one.parts if isinstance(part, Text)]
        media += [part for part in one.parts if not isinstance(part, Text)]
    return (Text("\n\n".join(texts)), *media)


def _decode_whole(body: bytes) -> tuple[str, str]:
    r"""Decode bytes without losing any: what is not UTF-8 is written as `\xNN`."""
    try:
        return body.decode(), ""
    except UnicodeDecodeError:
        pass
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            text = body.decode("utf-16")
        except UnicodeDecodeError:
            pass
        else:
            if text.encode("utf-16-le" if body[:1] == b"\xff" else "utf-16-be") == body[2:]:
                return text, "it was UTF-16"
    text = body.decode(errors="backslashreplace")
    strange = len(body) - len(body.decode(errors="ignore").encode())
    return text, rf"{format_count(strange, 'byte')} that are not UTF-8 are written as \xNN"


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

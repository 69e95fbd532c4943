"""Looking at files: `read` and `list`.

Knows lines, pictures and folders. Refuses to number lines: what is shown of a file are its own
characters, so that they can be given to `edit` as they stand; where it is not all of the file, the
first line says in brackets which lines they are. `search` gives numbers.
"""

import asyncio
import base64
import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from threading import Event

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.agent.tools.arguments import schema, taken
from foldline.agent.tools.places import PathPlace, Root, missing
from foldline.agent.tools.walking import matching, named, walk
from foldline.core.parts import Media, Text, sound
from foldline.errors import BadInput

LARGEST = 10_000_000
"""Bytes that are read of one file at a time."""
_LISTED = 300
_LOOK = 8_192  # bytes in which a NUL means that a file is no text
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


class _Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    first: int | None = None
    lines: int | None = None


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str | None = None
    names: str | None = None


def reading(root: Root) -> Tool:
    """`read`: a file's text, or a picture."""

    def intent(arguments: Arguments) -> Intent | None:
        return root.outside("read", taken(arguments, _Read).path)

    def touches(arguments: Arguments) -> Sequence[Path]:
        return [root.place(taken(arguments, _Read).path).real]

    async def run(arguments: Arguments) -> Result:
        asked = taken(arguments, _Read)
        return await asyncio.to_thread(_read, root.agreed(asked.path), asked)

    return Tool(
        name="read",
        description="Read a text file or a picture.",
        schema=schema(
            "path",
            path="string",
            first={"type": "integer", "description": "first line, from 1"},
            lines={"type": "integer", "description": "how many; default all"},
        ),
        run=run,
        intent=intent,
        touches=touches,
        beside=True,
    )


def listing(root: Root) -> Tool:
    """`list`: what is in a folder, or the files below it that have some name."""

    def intent(arguments: Arguments) -> Intent | None:
        return root.outside("list", taken(arguments, _List).path or ".")

    def touches(arguments: Arguments) -> Sequence[Path]:
        return [root.place(taken(arguments, _List).path or ".").real]

    async def run(arguments: Arguments) -> Result:
        asked = taken(arguments, _List)
        place = root.agreed(asked.path or ".")
        if not place.real.exists():
            raise missing(place)
        if not place.real.is_dir():
            raise BadInput(f"{place.told} is a file; read shows it")
        if asked.names:
            stop = Event()
            try:
                return await asyncio.to_thread(_found, root, place, asked.names, stop)
            finally:
                stop.set()  # the thread ends when nobody waits for it any more
        return await asyncio.to_thread(_list, place)

    return Tool(
        name="list",
        description="List a folder, or find files below it by name.",
        schema=schema(
            path={"type": "string", "description": "default: the working folder"},
            names={"type": "string", "description": "like *.py or src/**/test_*.py"},
        ),
        run=run,
        intent=intent,
        touches=touches,
        beside=True,
    )


def content(place: PathPlace) -> bytes:
    """All of a file; what is none, or too large, is said."""
    size = _regular(place)
    if size > LARGEST:
        raise BadInput(f"{place.told} has {size:,} bytes; read it by first and lines, or search it")
    return place.real.read_bytes()


def plain(text: str) -> str:
    r"""A text with `\n` at the ends of its lines, where each of them is `\r\n`."""
    return text.replace("\r\n", "\n") if windows(text) else text


def windows(text: str) -> bool:
    r"""Whether every line of a text ends in `\r\n`."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")


def _regular(place: PathPlace) -> int:
    """The size of what must be a file."""
    try:
        found = place.real.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise missing(place) from None
    if stat.S_ISDIR(found.st_mode):
        raise BadInput(f"{place.told} is a folder; list shows what is in it")
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{place.told} is no file but a device, a pipe or a socket")
    return found.st_size


def _read(place: PathPlace, asked: _Read) -> Result:
    first, lines = asked.first or 1, asked.lines
    if first < 1 or (lines is not None and lines < 1):
        raise BadInput("lines count from 1; write first=1, lines=100")
    size = _regular(place)
    with place.real.open("rb") as file:
        start = file.read(_LOOK)
    if mime := _picture(start):
        about = Text(sound(f"{place.told}: {mime}, {size:,} bytes"))
        if size > LARGEST:
            return Result((Text(f"{about.text}; too large to be shown"),))
        body = base64.b64encode(place.real.read_bytes()).decode()
        return Result((about, Media("image", mime, base64=body, name=sound(place.real.name))))
    if b"\0" in start:
        return said(f"{place.told} is binary, {size:,} bytes: not shown")
    if size > LARGEST and lines is not None:
        return _part(place, first, lines)
    whole = content(place)
    text, note = _decoded(whole)
    if first == 1 and lines is None:
        return said(f"[{note}]\n{text}" if note else text or "[the file is empty]")
    *ended, rest = text.split("\n")
    every = [f"{one}\n" for one in ended] + ([rest] if rest else [])
    if first > len(every):
        raise BadInput(f"{place.told} has {len(every):,} lines; there is no line {first:,}")
    last = len(every) if lines is None else min(first - 1 + lines, len(every))
    about = f"lines {first:,}-{last:,} of {len(every):,}" + (f"; {note}" if note else "")
    return said(f"[{about}]\n{''.join(every[first - 1 : last])}")


def _part(place: PathPlace, first: int, lines: int) -> Result:
    """Some lines of a file that is too large to be held."""
    body = bytearray()
    with place.real.open("rb") as file:
        for line in islice(file, first - 1, first - 1 + lines):
            body += line
            if len(body) > LARGEST:
                raise BadInput(f"these lines have over {LARGEST:,} bytes; ask for fewer")
    if not body:
        raise BadInput(f"{place.told} has no line {first:,}")
    text, note = _decoded(bytes(body))
    last = first - 1 + text.count("\n") + (not text.endswith("\n"))
    size = f"{place.real.stat().st_size:,} bytes"
    return said(f"[lines {first:,}-{last:,} of {size}{'; ' + note if note else ''}]\n{text}")


def _decoded(body: bytes) -> tuple[str, str]:
    """A file's text, and what must be said of it."""
    try:
        return plain(body.decode()), ""
    except UnicodeDecodeError:
        return plain(body.decode(errors="replace")), "not UTF-8: \N{REPLACEMENT CHARACTER} is lost"


def _picture(start: bytes) -> str:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for sign, mime in _PICTURES.items() if start.startswith(sign)), "")


def _list(place: PathPlace) -> Result:
    with os.scandir(place.real) as found:
        entries = sorted(found, key=lambda one: one.name)
    lines = [_entry(one) for one in entries[:_LISTED]]
    if len(entries) > _LISTED:
        lines.append(f"[{len(entries) - _LISTED:,} more; names=… shows some of them]")
    return said("\n".join(lines) or "[the folder is empty]")


def _entry(one: os.DirEntry[str]) -> str:
    if one.is_symlink():
        return f"{one.name} -> {Path(one.path).readlink()}"
    return f"{one.name}/" if one.is_dir() else one.name


def _found(root: Root, place: PathPlace, names: str, stop: Event) -> Result:
    """The files below a folder whose path from it matches."""
    pattern = matching(names)
    every = (named(root, path) for path in walk(root, place.real, only=pattern, stop=stop))
    shown = [*islice(every, _LISTED)]
    if more := sum(1 for _ in every):
        shown.append(f"[{more:,} more; ask for fewer names, or in a smaller folder]")
    return said("\n".join(shown) or f"[no file below {place.told} is named like {names}]")

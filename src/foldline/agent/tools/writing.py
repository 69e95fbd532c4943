"""Changing files: `write` and `edit`.

Knows how a file is changed as a whole or not at all, and how that is shown before: as a diff.
Refuses what a model copied from a cut text: a marker that Foldline left is no part of any file. A
file that has changed since a person was shown what would become of it is left alone.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.agent.tools.arguments import schema, taken
from foldline.agent.tools.diffs import diff
from foldline.agent.tools.files import content, plain, windows
from foldline.agent.tools.markers import copied
from foldline.agent.tools.places import PathPlace, Root, missing
from foldline.agent.tools.rules import for_path
from foldline.errors import BadInput

_PLACES = 10  # lines of matches that are named


class _Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    content: str


class _Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    old: str
    new: str
    all: bool | None = None


class _Change(NamedTuple):
    """What is to become of a file."""

    place: PathPlace
    before: bytes | None
    """What is there, or None."""
    after: bytes
    what: str
    """In a few words."""


def write(root: Root) -> Tool:
    """`write`: a file's whole text."""

    def change(arguments: Arguments) -> _Change:
        given = taken(arguments, _Write)
        place = root.place(given.path)
        if given.path.endswith("/") or place.real.is_dir():
            raise BadInput(f"{place.told} is a folder; give the path of a file in it")
        before = content(place) if os.path.lexists(place.real) else None
        text = given.content
        if before is not None and windows(_text(before)):
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        copied(text, before=_text(before or b""))
        lines = text.count("\n") + (text[-1:] not in ("", "\n"))
        verb = "create" if before is None else "overwrite"
        size = f"{lines:,} line{'' if lines == 1 else 's'}"
        return _Change(place, before, text.encode(), f"{verb} {place.told}, {size}")

    return _tool(
        root,
        change,
        name="write",
        description="Create or overwrite a file with its whole text.",
        takes=schema("path", "content", path="string", content="string"),
    )


def edit(root: Root) -> Tool:
    """`edit`: some text of a file in place of other text."""

    def change(arguments: Arguments) -> _Change:
        given = taken(arguments, _Edit)
        place = root.place(given.path)
        if not place.real.exists():
            raise missing(place)
        before = content(place)
        try:
            text = before.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{place.told} is not UTF-8 and cannot be edited") from None
        ends = windows(text)
        body, old, new = (plain(one) if ends else one for one in (text, given.old, given.new))
        if not old or old == new:
            raise BadInput("old must be some text of the file, and new another")
        lines = _lines(body, old)
        if not lines:
            raise BadInput(f"old is not in {place.told}{_nearly(body, old)}")
        if len(lines) > 1 and not given.all:
            raise BadInput(
                f"old is in {place.told} {len(lines):,} times, at lines {_told(lines)}; "
                "give more of the text around the one you mean, or all=true"
            )
        after = body.replace(old, new)
        after = after.replace("\n", "\r\n") if ends else after
        copied(after, before=text)
        at = f"line{'s' if len(lines) > 1 else ''} {_told(lines)}"
        return _Change(place, before, after.encode(), f"edit {place.told} at {at}")

    return _tool(
        root,
        change,
        name="edit",
        description="Replace exact text in a file.",
        takes=schema(
            "path",
            "old",
            "new",
            path="string",
            old={"type": "string", "description": "as it stands in the file, and only once there"},
            new="string",
            all={"type": "boolean", "description": "replace every occurrence"},
        ),
    )


def _tool(
    root: Root,
    change: Callable[[Arguments], _Change],
    *,
    name: str,
    description: str,
    takes: dict[str, Any],
) -> Tool:
    """A tool that shows a change, and makes the one that was shown."""
    shown: dict[str, tuple[Path, bytes | None]] = {}

    def intent(arguments: Arguments) -> Intent | None:
        found = change(arguments)
        shown[str(arguments["path"])] = (found.place.real, found.before)
        if found.before == found.after:
            return None
        where = "" if found.place.inside else f", outside of {root.path}"
        before, after = _text(found.before or b""), _text(found.after)
        if found.before is not None and found.before.decode(errors="ignore") != before:
            before = f"[{len(found.before):,} bytes that are not UTF-8]\n"
        detail = diff(before, after, found.place.name)
        return Intent(found.what + where, detail, for_path("write", found.place.name))

    async def run(arguments: Arguments) -> Result:
        found = change(arguments)
        seen = shown.pop(str(arguments["path"]), None)
        if seen is not None and seen != (found.place.real, found.before):
            raise BadInput(f"{found.place.told} has changed in between; read it and call again")
        if found.before == found.after:
            return said(f"{found.place.told} is so already")
        _replace(found.place, found.after, new=found.before is None)
        return said(f"done: {found.what}")

    def touches(arguments: Arguments) -> Sequence[Path]:
        return [root.place(str(arguments.get("path", ""))).real]

    return Tool(
        name=name,
        description=description,
        schema=takes,
        run=run,
        intent=intent,
        touches=touches,
    )


def _replace(place: PathPlace, body: bytes, *, new: bool) -> None:
    """Put a file there in one step: whoever reads it sees all of it or what was there before."""
    path = place.real
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = None if new else path.stat().st_mode & 0o7777
    if mode is not None and not os.access(path, os.W_OK):
        raise BadInput(f"{place.told} is read-only; nothing was written")
    beside = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(body)
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _text(body: bytes) -> str:
    return body.decode(errors="replace")


def _lines(body: str, old: str) -> list[int]:
    """The lines at which a text begins, from 1, also where it overlaps itself."""
    found: list[int] = []
    line, counted, at = 1, 0, body.find(old)
    while at >= 0:
        line += body.count("\n", counted, at)
        counted = at
        found.append(line)
        at = body.find(old, at + 1)
    return found


def _told(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - _PLACES:,} more" if len(lines) > _PLACES else ""
    return ", ".join(f"{one:,}" for one in lines[:_PLACES]) + more


def _nearly(body: str, old: str) -> str:
    """Where lines stand that differ from a text in blanks alone, or in what is behind the first."""
    wanted = [one.split() for one in old.strip().split("\n")]
    lines = [one.split() for one in body.split("\n")]
    near = [at for at, one in enumerate(lines, 1) if one == wanted[0]] if wanted[0] else []
    for at in near:
        if lines[at - 1 : at - 1 + len(wanted)] == wanted:
            return f"; at line {at:,} it stands with other blanks: read first={at}"
    if near:
        return f"; its first line stands at {_told(near)}: read what is there"
    return "; read the file, and copy from it"

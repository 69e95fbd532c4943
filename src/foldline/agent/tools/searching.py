r"""Searching files: `search`, by ripgrep where it is installed, otherwise by a walk of our own.

Knows both, and gives the same form: `path:line: text`, sorted by path, so many lines and how many
more there are. Refuses binary files, links, and what `walking` leaves out. A pattern is one that
RE2 takes: linear on any text. ripgrep knows the letters and digits of all scripts by `\w` and
`\d`, our own walk those of ASCII.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.agent.tools.arguments import schema, taken
from foldline.agent.tools.files import LARGEST
from foldline.agent.tools.places import PathPlace, Root, missing
from foldline.agent.tools.walking import SKIPPED, compiled, matching, named, walk

_SHOWN = 100  # lines
_WIDTH = 200  # characters of a line
_COUNTED = 10_000  # matches that are counted
_SECONDS = 30.0
_PIECE = 65_536
_KEPT = 4 * _WIDTH + 4_096  # bytes of a line of ripgrep's: a path and what is shown


class _Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    path: str | None = None
    names: str | None = None


@dataclass(slots=True)
class _Matches:
    """The lines that match, as many as are shown, and how many there are."""

    lines: list[str] = field(default_factory=list[str])
    number: int = 0
    files: set[str] = field(default_factory=set[str])
    late: bool = False

    @property
    def enough(self) -> bool:
        return self.number >= _COUNTED

    def take(self, path: str, line: int, text: bytes) -> None:
        self.number += 1
        self.files.add(path)
        if len(self.lines) < _SHOWN:
            words = text[: 4 * _WIDTH].decode("utf-8", "replace").rstrip("\r\n")
            cut = len(words) > _WIDTH or len(text) > 4 * _WIDTH
            self.lines.append(f"{path}:{line}: {words[:_WIDTH]}{' […]' if cut else ''}")

    def told(self, where: str) -> str:
        lines = [*self.lines]
        late = f"stopped after {_SECONDS:.0f} s" if self.late else ""
        if not lines:
            return f"[{late or 'no match'} in {where}; (?i) before a pattern ignores case]"
        if more := self.number - len(lines):
            number = f"{more:,} {'or more ' if self.enough else ''}further matches"
            files = f"{len(self.files):,} files in all"
            late = f"; {late}" if late else ""
            lines.append(f"[{number}, {files}{late}; narrow the pattern, path or names]")
        elif late:
            lines.append(f"[{late}; narrow path or names]")
        return "\n".join(lines)


def searching(root: Root, *, rg: str | None = None) -> Tool:
    """`search`: lines of files by a pattern; `rg` is ripgrep's path, "" for none."""

    def intent(arguments: Arguments) -> Intent | None:
        return root.outside("search", taken(arguments, _Search).path or ".")

    def touches(arguments: Arguments) -> Sequence[Path]:
        return [root.place(taken(arguments, _Search).path or ".").real]

    async def run(arguments: Arguments) -> Result:
        asked = taken(arguments, _Search)
        place = root.agreed(asked.path or ".")
        if not place.real.exists():
            raise missing(place)
        from shutil import which  # noqa: PLC0415 - it brings all archives along

        engine = which("rg") or "" if rg is None else rg
        found = _Matches()
        pattern = compiled(b"(?m)" + asked.pattern.encode("utf-8", "replace"))
        only = matching(asked.names) if asked.names and place.real.is_dir() else None
        if not engine or not await _by_ripgrep(engine, root, place, (asked.pattern, only), found):
            await _by_walk(root, place, (pattern, only), found)
        return said(found.told("." if place.real == root.path else place.told))

    return Tool(
        name="search",
        description="Search the text of files by a regular expression, line by line.",
        schema=schema(
            "pattern",
            pattern="string",
            path={"type": "string", "description": "file or folder; default all"},
            names={"type": "string", "description": "only files like *.py"},
        ),
        run=run,
        intent=intent,
        touches=touches,
        beside=True,
    )


async def _by_ripgrep(
    engine: str, root: Root, place: PathPlace, pattern: tuple[str, Any], found: _Matches
) -> bool:
    """Whether ripgrep could read the pattern; then what it found."""
    words, only = pattern
    process = await asyncio.create_subprocess_exec(
        *(engine, "--no-config", "--no-messages", "--color=never", "--no-heading", "-nH0"),
        *("--sort=path", "--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-global"),
        *("--no-ignore-exclude", f"--max-filesize={LARGEST}"),
        *(f"-g!{name}" for name in SKIPPED),
        *("-e", words, "--", place.name),
        cwd=root.path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None, "it was asked for"  # noqa: S101
    try:
        async with asyncio.timeout(_SECONDS):
            async for line in _lines(process.stdout):
                path, zero, rest = line.partition(b"\0")
                number, colon, text = rest.partition(b":")
                name = os.fsdecode(path).removeprefix("./")
                if zero and colon and _wanted(root.path / name, place, only):
                    found.take(name, int(number), text)
                if found.enough:
                    return True
            return await process.wait() in (0, 1)
    except TimeoutError:
        found.late = True
        return True
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _wanted(path: Path, place: PathPlace, only: Any) -> bool:
    # Looked at by us: names given to ripgrep by -g would bring back what is ignored.
    return only is None or only.search(os.path.relpath(path, place.real)) is not None


async def _lines(out: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, of long ones the beginning."""
    line = b""
    while piece := await out.read(_PIECE):
        first, *more = piece.split(b"\n")
        line += first[: max(_KEPT - len(line), 0)]
        for one in more:
            yield line
            line = one[:_KEPT]
    if line:
        yield line


async def _by_walk(root: Root, place: PathPlace, pattern: tuple[Any, Any], found: _Matches) -> None:
    """Our own search, in a thread that ends when nobody waits for it any more."""
    stop = Event()

    def look() -> None:
        tree = walk(root, place.real, only=pattern[1], stop=stop)
        files = [place.real] if place.real.is_file() else tree
        for path in files:
            name = named(root, path)
            for number, text in _matches(path, pattern[0]):
                found.take(name, number, text)
                if found.enough:
                    return
            if stop.is_set():
                return

    try:
        async with asyncio.timeout(_SECONDS):
            await asyncio.to_thread(look)
    except TimeoutError:
        found.late = True
    finally:
        stop.set()


def _matches(path: Path, pattern: Any) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that match, each once, with its number."""
    try:
        if path.stat().st_size > LARGEST:
            return
        body = path.read_bytes()
    except OSError:
        return
    if b"\0" in body:
        return
    at, line, counted = 0, 1, 0
    while at < len(body) and (hit := pattern.search(body, at)) is not None:
        begin = body.rfind(b"\n", 0, hit.start()) + 1
        if begin >= len(body):
            return
        line += body.count(b"\n", counted, begin)
        counted = begin
        end = body.find(b"\n", hit.start())
        end = len(body) if end < 0 else end
        yield line, body[begin:end]
        at = end + 1

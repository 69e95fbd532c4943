r"""The tool `search`: by ripgrep where it is installed, otherwise by our own walk.

Both return lines `path:line: text`, sorted by path, and how many more there are. Both skip binary
files, links, and what `read_files.iterate_files` skips. Patterns are RE2: linear in the text. One
difference: `\w` and `\d` match all scripts in ripgrep, only ASCII in our own walk.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from foldline.agent.tool import Arguments, Result, Tool, said
from foldline.agent.tools.read_files import (
    LARGEST,
    SKIPPED,
    PathPlace,
    Root,
    build_look_tool,
    compile_name_pattern,
    compile_re2_pattern,
    convert_arguments,
    format_path_from_root,
    iterate_files,
    make_missing_path_error,
    make_object_schema,
)

_SHOWN = 100  # lines
_WIDTH = 200  # characters of a line
_COUNTED = 10_000  # matches after which the search ends
_SECONDS = 30.0
_MEMORY = 1_000_000_000  # bytes of address space for ripgrep; a search takes some 50 million
_PIECE = 65_536
_KEPT = 4 * _WIDTH + 4_096  # bytes kept of a line from ripgrep: a path and the shown text


class _Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    path: str | None = None
    names: str | None = None


@dataclass(slots=True)
class _Matches:
    """The matching lines to show, and how many matches there are."""

    lines: list[str] = field(default_factory=list[str])
    number: int = 0
    files: set[str] = field(default_factory=set[str])
    late: bool = False

    @property
    def enough(self) -> bool:
        return self.number >= _COUNTED

    def add_match(self, path: str, line: int, text: bytes) -> None:
        self.number += 1
        self.files.add(path)
        if len(self.lines) < _SHOWN:
            words = text[: 4 * _WIDTH].decode("utf-8", "replace").rstrip("\r\n")
            cut = len(words) > _WIDTH or len(text) > 4 * _WIDTH
            self.lines.append(f"{path}:{line}: {words[:_WIDTH]}{' […]' if cut else ''}")

    def render_lines(self, where: str) -> str:
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


def build_search_tool(root: Root, *, rg: str | None = None) -> Tool:
    """Build the tool `search`; `rg` is ripgrep's path, "" for our own walk."""

    async def run_search(arguments: Arguments) -> Result:
        asked = convert_arguments(arguments, _Search)
        place = root.resolve_agreed_path(asked.path or ".")
        if not place.real.exists():
            raise make_missing_path_error(place)
        from shutil import which  # noqa: PLC0415 - imports every archive format

        engine = which("rg") or "" if rg is None else rg
        found = _Matches()
        pattern = compile_re2_pattern(b"(?m)" + asked.pattern.encode("utf-8", "replace"))
        only = compile_name_pattern(asked.names) if asked.names and place.real.is_dir() else None
        if not engine or not await _by_ripgrep(engine, root, place, (asked.pattern, only), found):
            await _by_walk(root, place, (pattern, only), found)
        return said(found.render_lines("." if place.real == root.path else place.label))

    return build_look_tool(
        root,
        lambda arguments: convert_arguments(arguments, _Search).path or ".",
        name="search",
        description="Search the text of files by a regular expression, line by line.",
        schema=make_object_schema(
            "pattern",
            pattern="string",
            path={"type": "string", "description": "file or folder; default all"},
            names={"type": "string", "description": "only files like *.py"},
        ),
        run=run_search,
    )


async def _by_ripgrep(
    engine: str, root: Root, place: PathPlace, pattern: tuple[str, Any], found: _Matches
) -> bool:
    """Search with ripgrep; returns False if it cannot parse the pattern."""
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
    _limit_memory(process.pid)
    try:
        async with asyncio.timeout(_SECONDS):
            async for line in _iterate_lines(process.stdout):
                path, zero, rest = line.partition(b"\0")
                number, colon, text = rest.partition(b":")
                name = os.fsdecode(path).removeprefix("./")
                file = root.path / name
                wanted = zero and colon and _has_wanted_name(file, place, only)
                if wanted and not root.holds_keys(file):
                    found.add_match(name, int(number), text)
                if found.enough:
                    return True
            return await process.wait() in (0, 1)
    except TimeoutError:
        found.late = True
        return True
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        while await process.stdout.read(_PIECE):  # wait() returns only after the last byte is read
            pass
        await process.wait()


def _limit_memory(process: int) -> None:
    """Limit what ripgrep may take, where the system can: a .gitignore may lead to a device."""
    with suppress(ImportError, AttributeError, OSError, ValueError):
        import resource  # noqa: PLC0415 - not on every system

        resource.prlimit(process, resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _has_wanted_name(path: Path, place: PathPlace, only: Any) -> bool:
    # Not by ripgrep's -g: that would bring back ignored files.
    return only is None or only.search(os.path.relpath(path, place.real)) is not None


async def _iterate_lines(out: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, each cut at `_KEPT` bytes."""
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
    """Search in a thread, which ends when the call is cancelled."""
    stop = Event()

    def search_files() -> None:
        tree = iterate_files(root, place.real, only=pattern[1], stop=stop)
        files = [place.real] if place.real.is_file() else tree
        for path in files:
            name = format_path_from_root(root, path)
            for number, text in _iterate_matches(path, pattern[0]):
                found.add_match(name, number, text)
                if found.enough:
                    return
            if stop.is_set():
                return

    try:
        async with asyncio.timeout(_SECONDS):
            await asyncio.to_thread(search_files)
    except TimeoutError:
        found.late = True
    finally:
        stop.set()


def _iterate_matches(path: Path, pattern: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the matching lines of a file, each once, with their numbers."""
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

"""The tools `read` and `list`, and what all file tools share: paths, arguments, walking a tree.

    Root("/home/ann/project").resolve_path("src/../a.py")   # PathPlace(name="a.py", inside=True, …)

A place is named by where it really is: inside the root by its relative path, elsewhere by its
absolute one, so the name alone says which. Our own settings folder, where keys are, is never
inside. Walking skips folders like `.git` and `node_modules`,
links, and what `.gitignore` files exclude, as ripgrep does with the flags of `search_files`.

`read` does not number lines: the model can pass to `edit` exactly what it was shown. If it shows
only a part, the first line says in brackets which lines these are.
"""

import asyncio
import base64
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.agent.tools.permission_rules import for_path
from foldline.core.parts import Media, Text, replace_surrogates
from foldline.errors import BadInput
from foldline.settings.layers import user_folder


class PathPlace(NamedTuple):
    """Where a path leads."""

    real: Path
    """The path with every link followed."""
    name: str
    inside: bool
    through: str = ""
    """The path as the model wrote it, if it goes through a link; else ""."""

    @property
    def label(self) -> str:
        """The name on one line, and the link that leads there."""
        name = one_line(self.name)
        return f"{name} (through the link {one_line(self.through)})" if self.through else name


class Root:
    """The working folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_dir():
            raise BadInput(f"{path} is no folder to work in; give one that is there")
        self._agreed: dict[str, Path] = {}
        self._own = user_folder(os.environ).resolve()

    def holds_keys(self, path: Path) -> bool:
        """Whether a path is in our own settings folder: keys are kept there."""
        return path.is_relative_to(self._own)

    def resolve_path(self, text: str) -> PathPlace:
        """Resolve a path; relative ones start at the root."""
        if not text.strip() or "\0" in text:
            raise BadInput(f"{text!r} is no path; write one like src/main.py")
        try:
            given = self.path / Path(text).expanduser()
            real = given.resolve()
        except (RuntimeError, OSError) as fault:  # a loop of links, no such home, a name too long
            raise BadInput(f"{one_line(text)} leads nowhere: {fault}") from None
        inside = real.is_relative_to(self.path) and not self.holds_keys(real)
        name = real.relative_to(self.path).as_posix() if inside else real.as_posix()
        linked = Path(os.path.normpath(given)) != real
        return PathPlace(real, name, inside, text if linked else "")

    def make_outside_intent(self, verb: str, text: str) -> Intent | None:
        """Return what to ask before a place is read; None inside the root."""
        place = self.resolve_path(text)
        self._agreed[text] = place.real
        if place.inside:
            return None
        return Intent(
            f"{verb} {place.label}, outside of {self.path}", "", for_path("read", place.name)
        )

    def resolve_agreed_path(self, text: str) -> PathPlace:
        """Resolve a path again; raises if a link now leads elsewhere than what was approved."""
        place = self.resolve_path(text)
        if self._agreed.pop(text, place.real) != place.real:
            raise BadInput(f"{one_line(text)} leads to {place.label} by now; call again")
        return place


def make_missing_path_error(place: PathPlace) -> BadInput:
    """Build the error for a missing path, with similar names that exist."""
    folder = place.real.parent
    while not folder.is_dir():
        folder = folder.parent
    if folder != place.real.parent:
        at = os.path.relpath(folder, place.real.parent)
        return BadInput(f"there is no {place.label}, nor its folder; what is there is {at}")
    near = get_close_matches(place.real.name, [path.name for path in folder.iterdir()])
    like = f"; like it: {', '.join(near)}" if near else "; list shows what is there"
    return BadInput(f"there is no {place.label}{like}")


def one_line(text: str) -> str:
    """Return a name unchanged, or its repr if it has line ends or control characters."""
    return text if text.isprintable() else repr(text)


T = TypeVar("T", bound=msgspec.Struct)


def make_object_schema(*required: str, **properties: str | Mapping[str, Any]) -> dict[str, Any]:
    """Build an object's JSON Schema; a property given as a string is of that type."""
    schemas = {
        name: {"type": schema} if isinstance(schema, str) else dict(schema)
        for name, schema in properties.items()
    }
    return {"type": "object", "properties": schemas, "required": [*required]}


def build_look_tool(  # noqa: PLR0913 - what a tool has
    root: Root,
    path_of: Callable[[Arguments], str],
    *,
    name: str,
    description: str,
    schema: Mapping[str, Any],
    run: Callable[[Arguments], Awaitable[Result]],
) -> Tool:
    """Build a tool that only looks at one path, and asks before it looks outside the root."""
    return Tool(
        name=name,
        description=description,
        schema=schema,
        run=run,
        intent=lambda arguments: root.make_outside_intent(name, path_of(arguments)),
        touches=lambda arguments: [root.resolve_path(path_of(arguments)).real],
        beside=True,
    )


def convert_arguments(arguments: Arguments, kind: type[T]) -> T:
    """Convert a model's arguments; the error names what is missing, unknown or mistyped."""
    try:
        return msgspec.convert(arguments, kind, strict=False)
    except msgspec.ValidationError as fault:
        names = ", ".join(kind.__struct_fields__)
        raise BadInput(f"wrong arguments: {fault}; it takes {names}") from None


_MOST_RULES = 1_000_000  # letters of a .gitignore that are read
SKIPPED = (".git", ".hg", "node_modules", ".venv", "__pycache__")
_GLOB = re.compile(r"\*\*/|/\*\*$|\*+|\?|\[!?[^\]/]+\]|\\.|.", re.DOTALL)
_BRACES = {"{": "(?:", ",": "|", "}": ")"}


class _Rule(NamedTuple):
    """A line of a .gitignore."""

    pattern: Any
    folders: bool
    """Whether it matches folders only."""
    keeps: bool
    """Whether it begins with `!`: it brings back what another rule ignores."""


class _Rules(NamedTuple):
    """The .gitignore rules of one folder; their paths are relative to it."""

    folder: str
    rules: list[_Rule]


def iterate_files(root: Root, start: Path, *, only: Any, stop: Event) -> Iterator[Path]:
    """Yield the files below a folder whose relative path matches, sorted, until stopped."""
    for path in _iterate_paths(str(start), _read_rules_above(root, start), stop):
        if root.holds_keys(Path(path)):
            continue
        if only is None or only.search(os.path.relpath(path, start)) is not None:
            yield Path(path)


def format_path_from_root(root: Root, path: Path) -> str:
    """Format a path relative to the root, or whole if it is outside."""
    return path.relative_to(root.path).as_posix() if path.is_relative_to(root.path) else str(path)


def compile_name_pattern(names: str) -> Any:
    """Compile a glob: without `/` it matches at any depth, with one from the folder on."""
    where = "^" if "/" in names.strip("/") else "(?:^|/)"
    braces = names.count("{") == names.count("}") > 0
    return compile_re2_pattern(f"{where}{_translate_glob(names.strip('/'), braces=braces)}$")


def compile_re2_pattern(pattern: str | bytes) -> Any:
    """Compile an RE2 pattern: linear in the text, whatever pattern a model writes."""
    import re2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - slow to import

    engine = cast("Any", re2)
    options = engine.Options()
    options.log_errors = False
    options.never_nl = True
    try:
        return engine.compile(pattern, options)
    except engine.error as fault:
        why = fault.args[0] if fault.args else ""
        why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise BadInput(
            f"the pattern is refused: {why}; it is RE2: no look-around, no references back, and a "
            r"backslash before ( ) [ ] { } . * + ? | that stand for themselves"
        ) from None


def _iterate_paths(folder: str, above: list[_Rules], stop: Event) -> Iterator[str]:
    if stop.is_set():
        return
    rules = [*above, *_read_ignore_rules(folder)]
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return  # a folder we may not read has no files for us
    for entry in entries:
        if entry.is_symlink() or entry.name in SKIPPED:
            continue
        is_folder = entry.is_dir()
        if _is_ignored(entry.path, rules, folder=is_folder):
            continue
        if is_folder:
            yield from _iterate_paths(entry.path, rules, stop)
        elif entry.is_file():
            yield entry.path


def _read_rules_above(root: Root, start: Path) -> list[_Rules]:
    """Read the rules from the root down to the parent of `start`."""
    return [
        rules
        for folder in reversed(start.parents)
        if folder.is_relative_to(root.path)
        for rules in _read_ignore_rules(str(folder))
    ]


def _read_ignore_rules(folder: str) -> list[_Rules]:
    path = Path(folder, ".gitignore")
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a link to a device would never end
            return []
        with path.open(errors="replace") as file:
            text = file.read(_MOST_RULES)
    except OSError:
        return []
    rules = [rule for line in text.splitlines() if (rule := _parse_ignore_rule(line)) is not None]
    return [_Rules(folder, rules)] if rules else []


def _parse_ignore_rule(line: str) -> _Rule | None:
    line = line.rstrip(" ") if not line.endswith("\\ ") else line
    keeps = line.startswith("!")
    body = line[1:] if keeps else line
    if not body or body.startswith("#"):
        return None
    where = "^" if "/" in body.rstrip("/") else "(?:^|/)"
    try:
        pattern = compile_re2_pattern(f"{where}{_translate_glob(body.strip('/'))}$")
    except BadInput:
        return None
    return _Rule(pattern, body.endswith("/"), keeps)


def _is_ignored(path: str, rules: list[_Rules], *, folder: bool) -> bool:
    for folder_rules in reversed(rules):
        inner = os.path.relpath(path, folder_rules.folder)
        for rule in reversed(folder_rules.rules):
            if (folder or not rule.folders) and rule.pattern.search(inner) is not None:
                return not rule.keeps
    return False


def _translate_glob(glob: str, *, braces: bool = False) -> str:
    """Translate a glob to a pattern: `*` stays within a folder, `**` does not."""
    found: list[str] = []
    for one in _GLOB.findall(glob):
        match one[0]:
            case "*" if one == "**/":
                found.append("(?:.*/)?")
            case "/" if one == "/**":
                found.append("/.*")
            case "*":
                found.append("[^/]*")
            case "?":
                found.append("[^/]")
            case "[" if len(one) > 1:
                found.append(one.replace("[!", "[^", 1))
            case "\\":
                found.append(re.escape(one[1:]))
            case "{" | "," | "}" if braces:
                found.append(_BRACES[one])
            case _:
                found.append(re.escape(one))
    return "".join(found)


LARGEST = 10_000_000
"""Bytes read from one file at a time."""
_LISTED = 300
_LOOK = 8_192  # first bytes of a file; a NUL among them means it is binary
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


def build_read_tool(root: Root) -> Tool:
    """Build the tool `read`: a file's text, or a picture."""

    async def run_read(arguments: Arguments) -> Result:
        asked = convert_arguments(arguments, _Read)
        return await asyncio.to_thread(_read_file, root.resolve_agreed_path(asked.path), asked)

    return build_look_tool(
        root,
        lambda arguments: convert_arguments(arguments, _Read).path,
        name="read",
        description="Read a text file or a picture.",
        schema=make_object_schema(
            "path",
            path="string",
            first={"type": "integer", "description": "first line, from 1"},
            lines={"type": "integer", "description": "how many; default all"},
        ),
        run=run_read,
    )


def build_list_tool(root: Root) -> Tool:
    """Build the tool `list`: a folder's entries, or the files below it by name."""

    async def run_list(arguments: Arguments) -> Result:
        asked = convert_arguments(arguments, _List)
        place = root.resolve_agreed_path(asked.path or ".")
        if not place.real.exists():
            raise make_missing_path_error(place)
        if not place.real.is_dir():
            raise BadInput(f"{place.label} is a file; read shows it")
        if asked.names:
            stop = Event()
            try:
                return await asyncio.to_thread(_list_matching_files, root, place, asked.names, stop)
            finally:
                stop.set()  # ends the thread when the call is cancelled
        return await asyncio.to_thread(_list_folder, place)

    return build_look_tool(
        root,
        lambda arguments: convert_arguments(arguments, _List).path or ".",
        name="list",
        description="List a folder, or find files below it by name.",
        schema=make_object_schema(
            path={"type": "string", "description": "default: the working folder"},
            names={"type": "string", "description": "like *.py or src/**/test_*.py"},
        ),
        run=run_list,
    )


def read_whole_file(place: PathPlace) -> bytes:
    """Read a file; raises if it is missing, not a regular file, or over `LARGEST`."""
    size = _measure_file(place)
    if size > LARGEST:
        raise BadInput(
            f"{place.label} has {size:,} bytes; read it by first and lines, or search it"
        )
    return place.real.read_bytes()


def normalise_line_ends(text: str) -> str:
    r"""Replace `\r\n` by `\n`, if every line ends in `\r\n`."""
    return text.replace("\r\n", "\n") if has_windows_line_ends(text) else text


def has_windows_line_ends(text: str) -> bool:
    r"""Whether every line of a text ends in `\r\n`."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")


def _measure_file(place: PathPlace) -> int:
    """Return a regular file's size; raises for anything else."""
    try:
        found = place.real.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise make_missing_path_error(place) from None
    if stat.S_ISDIR(found.st_mode):
        raise BadInput(f"{place.label} is a folder; list shows what is in it")
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{place.label} is no file but a device, a pipe or a socket")
    return found.st_size


def _read_file(place: PathPlace, asked: _Read) -> Result:
    first, lines = asked.first or 1, asked.lines
    if first < 1 or (lines is not None and lines < 1):
        raise BadInput("lines count from 1; write first=1, lines=100")
    size = _measure_file(place)
    with place.real.open("rb") as file:
        start = file.read(_LOOK)
    if mime := detect_picture_type(start):
        about = Text(replace_surrogates(f"{place.label}: {mime}, {size:,} bytes"))
        if size > LARGEST:
            return Result((Text(f"{about.text}; too large to be shown"),))
        body = base64.b64encode(place.real.read_bytes()).decode()
        return Result(
            (about, Media("image", mime, base64=body, name=replace_surrogates(place.real.name)))
        )
    if b"\0" in start:
        return said(f"{place.label} is binary, {size:,} bytes: not shown")
    if size > LARGEST and lines is not None:
        return _read_lines(place, first, lines)
    whole = read_whole_file(place)
    text, note = _decode_text(whole)
    if first == 1 and lines is None:
        return said(f"[{note}]\n{text}" if note else text or "[the file is empty]")
    *ended, rest = text.split("\n")
    every = [f"{one}\n" for one in ended] + ([rest] if rest else [])
    if first > len(every):
        raise BadInput(f"{place.label} has {len(every):,} lines; there is no line {first:,}")
    last = len(every) if lines is None else min(first - 1 + lines, len(every))
    about = f"lines {first:,}-{last:,} of {len(every):,}" + (f"; {note}" if note else "")
    return said(f"[{about}]\n{''.join(every[first - 1 : last])}")


def _read_lines(place: PathPlace, first: int, lines: int) -> Result:
    """Read some lines of a file too large to be read whole."""
    body = bytearray()
    with place.real.open("rb") as file:
        for line in islice(file, first - 1, first - 1 + lines):
            body += line
            if len(body) > LARGEST:
                raise BadInput(f"these lines have over {LARGEST:,} bytes; ask for fewer")
    if not body:
        raise BadInput(f"{place.label} has no line {first:,}")
    text, note = _decode_text(bytes(body))
    last = first - 1 + text.count("\n") + (not text.endswith("\n"))
    size = f"{place.real.stat().st_size:,} bytes"
    return said(f"[lines {first:,}-{last:,} of {size}{'; ' + note if note else ''}]\n{text}")


def _decode_text(body: bytes) -> tuple[str, str]:
    """Return a file's text, and a note if it is not UTF-8."""
    try:
        return normalise_line_ends(body.decode()), ""
    except UnicodeDecodeError:
        text = normalise_line_ends(body.decode(errors="replace"))
        return text, "not UTF-8: \N{REPLACEMENT CHARACTER} is lost"


def detect_picture_type(start: bytes) -> str:
    """Return the type of a picture by its first bytes; "" if they are none."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for sign, mime in _PICTURES.items() if start.startswith(sign)), "")


def _list_folder(place: PathPlace) -> Result:
    with os.scandir(place.real) as found:
        entries = sorted(found, key=lambda one: one.name)
    lines = [_format_entry(one) for one in entries[:_LISTED]]
    if len(entries) > _LISTED:
        lines.append(f"[{len(entries) - _LISTED:,} more; names=… shows some of them]")
    return said("\n".join(lines) or "[the folder is empty]")


def _format_entry(one: os.DirEntry[str]) -> str:
    if one.is_symlink():
        return f"{one.name} -> {Path(one.path).readlink()}"
    return f"{one.name}/" if one.is_dir() else one.name


def _list_matching_files(root: Root, place: PathPlace, names: str, stop: Event) -> Result:
    pattern = compile_name_pattern(names)
    every = (
        format_path_from_root(root, path)
        for path in iterate_files(root, place.real, only=pattern, stop=stop)
    )
    shown = [*islice(every, _LISTED)]
    if more := sum(1 for _ in every):
        shown.append(f"[{more:,} more; ask for fewer names, or in a smaller folder]")
    return said("\n".join(shown) or f"[no file below {place.label} is named like {names}]")

"""The current instructions: found, trusted, and fitted to a budget of tokens and bytes.

    find the files → keep those the user trusts → fit them, nearest first → one text per file

`render_texts()` always follows the files as they are now. Each text opens with its file's name, and
the session sends only texts that differ from those sent before, until the next fold puts them all
in front again; so nothing here remembers what the model was sent. Asks nobody: a surface calls
`list_untrusted_files` and `apply_answer`.

    trust = Trust(store)                     # answers are kept in the store's side table
    await trust.load()
    trust.is_trusted(path, sha)              # does not ask, only looks
    await trust.allow_file(path, sha)        # this text and no other
    await trust.allow_folder(folder)         # everything in it, also when it changes: by path only

Without a store, answers hold for the process.

The memory file is a plain list, `preferences.md` in the config folder, and part of every request:
its newest lines, about `MEMORY_TOKENS` of them, as it grows at its end.
"""

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from foldline.agent.events import Calling, Moment
from foldline.agent.instructions.instruction_files import (
    NAMES,
    Boundary,
    FileRead,
    ImportedFile,
    Scope,
    Unit,
    config_folder,
    count_steps,
    decode_file_text,
    find_innermost_root,
    is_excluded_folder,
    list_folders_between,
    read_file_state,
    read_file_states,
    read_own,
    read_units,
    roots_of,
    strip_hidden_characters,
)
from foldline.core import truncate
from foldline.core.item import NAMED
from foldline.core.tokens import count_tokens
from foldline.errors import BadInput
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

_SPACE, _KEY = "trusted", "instructions"
_HASHES = 8  # kept of one path, for users who switch between branches


class Trusted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user trusts at a path: certain contents, or anything there."""

    shas: tuple[str, ...] = ()
    """Hashes of trusted contents, the newest last."""
    always: bool = False
    """Whether anything at the path and below it is trusted."""


_Answers: TypeAlias = dict[str, Trusted]
_DECODER = msgspec.json.Decoder(dict[str, Trusted])


class Trust:
    """The user's answers about instruction files."""

    def __init__(self, store: Store | None = None, *, tenant: str = "local") -> None:
        self._store, self._name = store, Name(tenant, "")
        self._answers: _Answers = {}

    async def load(self) -> None:
        """Read the answers, also those of another process."""
        if self._store is not None:
            entry = await self._store.get(self._name, _SPACE, _KEY)
            self._answers = _DECODER.decode(entry.value) if entry else {}

    def is_trusted(self, path: Path, sha: str) -> bool:
        """Whether the user trusts this content, or anything at this path."""
        answers = (self._answers.get(str(place), Trusted()) for place in (path, *path.parents))
        return self.is_exactly_trusted(path, sha) or any(answer.always for answer in answers)

    def is_exactly_trusted(self, path: Path, sha: str) -> bool:
        """Whether the user trusts this very content, whatever holds for the folder.

        For settings, which run programs: "always in this folder" was said of instructions.
        """
        return sha in self._answers.get(str(path), Trusted()).shas

    def is_known_path(self, path: Path) -> bool:
        """Whether the user trusts some content at this path."""
        return bool(self._answers.get(str(path), Trusted()).shas)

    async def allow_file(self, path: Path, sha: str) -> None:
        """Trust this content at this path."""

        def add_hash(now: Trusted) -> Trusted:
            shas = (*(old for old in now.shas if old != sha), sha)[-_HASHES:]
            return msgspec.structs.replace(now, shas=shas)

        await self._change_answer(path, add_hash)

    async def allow_folder(self, folder: Path) -> None:
        """Trust whatever a folder holds, now and later."""
        await self._change_answer(folder, lambda now: msgspec.structs.replace(now, always=True))

    async def revoke(self, path: Path) -> None:
        """Trust nothing at a path any more."""
        await self._change_answer(path, lambda _: Trusted())

    async def _change_answer(self, path: Path, change: Callable[[Trusted], Trusted]) -> None:
        def write(value: bytes | None) -> bytes:
            answers = _DECODER.decode(value) if value else {}
            changed = change(answers.pop(str(path), Trusted()))
            if changed != Trusted():
                answers[str(path)] = changed
            self._answers = answers
            return msgspec.json.encode(answers)

        if self._store is None:
            write(msgspec.json.encode(self._answers))
        else:
            await change_value(self._store, self._name, _SPACE, _KEY, write)


MEMORY_NAME = "preferences.md"
MEMORY_TOKENS = 500
_LONGEST = 1_000  # characters of a line
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


def append_memory_line(path: Path, line: str) -> str:
    """Append a line to the memory file; returns the line as written."""
    visible = strip_hidden_characters(line).encode(errors="replace").decode()
    words = " ".join(visible.split()).removeprefix("- ")
    if not words:
        raise BadInput("there is nothing to remember; write it behind the command: /remember …")
    if len(words) > _LONGEST:
        raise BadInput(
            f"{len(words):,} characters are too many for one line to remember, {_LONGEST:,} at "
            f"most; write it into {path} yourself, or into an AGENTS.md"
        )
    written = f"- {words}"
    try:
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, _PRIVATE_FILE), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            ended = file.read(1) in {b"", b"\n"}
            file.write((b"" if ended else b"\n") + f"{written}\n".encode())
    except OSError as fault:
        raise BadInput(f"{path} cannot be written: {fault.strerror}") from fault
    return written


TOKENS = 8_000
BYTES = 32 * 1024
NOTICE = "[instructions truncated to fit limit]"
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}
_SKIN = range(0x1F3FB, 0x1F400)  # modifiers that change the emoji before them


class FilePiece(NamedTuple):
    """A file's text before it is fitted."""

    head: str
    """The line above the text, which names the file."""
    text: str
    size: int
    """Bytes of the whole file; more than the text's if it was not read to its end."""
    near: tuple[int, ...] = ()
    """Sort key: the smaller, the nearer to the working folder."""
    newest: bool = False
    """Whether truncation keeps the end instead of the beginning."""
    whole: bool = True
    """Whether the file was read to its end."""


class Fit(NamedTuple):
    """A fitted piece; `text` is None if there is no room even for the notice."""

    text: str | None
    tokens: int
    whole: bool


class RoomLeft(NamedTuple):
    """The tokens and bytes that are still free; both limits hold at once."""

    tokens: int
    size: int

    def can_hold(self, text: str) -> bool:
        """Whether a text fits."""
        return len(text.encode()) <= self.size and count_tokens(text) <= self.tokens

    def reduce_by(self, text: str) -> "RoomLeft":
        """Return the room that remains after a text."""
        return RoomLeft(self.tokens - count_tokens(text), self.size - len(text.encode()))


def fit_pieces(pieces: Sequence[FilePiece], room: RoomLeft) -> list[Fit]:
    """Fit pieces into a room, the nearest first; returns the fits in the order given."""
    fits: dict[int, Fit] = {}
    for at in sorted(range(len(pieces)), key=lambda at: pieces[at].near):
        fit = fits[at] = fit_piece(pieces[at], room)
        if fit.text is not None:
            room = room.reduce_by(fit.text)
    return [fits[at] for at in range(len(pieces))]


def fit_piece(piece: FilePiece, room: RoomLeft) -> Fit:
    """Keep as much of a piece as the room holds, with a notice if it is truncated."""
    whole = f"{piece.head}\n{piece.text}"
    if piece.whole and room.can_hold(whole):
        return Fit(whole, count_tokens(whole), whole=True)
    left = room.reduce_by(_render_truncated(piece, ""))
    if left.tokens < 0 or left.size < 0:
        return Fit(None, 0, whole=False)
    kept = piece.text
    while True:
        kept = _truncate_text(kept, left, newest=piece.newest)
        text = _render_truncated(piece, kept)
        if room.can_hold(text):
            return Fit(text, count_tokens(text), whole=False)
        if not kept:
            return Fit(None, 0, whole=False)
        # A part may have more tokens than it had in the whole, and the notice's figures grow.
        left = RoomLeft(
            min(left.tokens, count_tokens(kept)) - 1, min(left.size, len(kept.encode())) - 1
        )


def _render_truncated(piece: FilePiece, kept: str) -> str:
    notice = f"{NOTICE}\n{len(kept.encode()):,} of {piece.size:,} bytes"
    parts = (piece.head, notice, kept) if piece.newest else (piece.head, kept, notice)
    return "\n".join(part for part in parts if part)


def _truncate_text(text: str, room: RoomLeft, *, newest: bool) -> str:
    if room.tokens <= 0 or room.size <= 0:
        return ""
    if newest:
        end = text.encode()[-room.size :].decode(errors="ignore")
        return truncate.truncate_to_tail(end, room.tokens).strip("\n")
    start = text.encode()[: room.size].decode(errors="ignore")
    return _strip_broken_letter(text, truncate.truncate_to_head(start, room.tokens)).rstrip("\n")


def _strip_broken_letter(text: str, kept: str) -> str:
    """Drop a last letter whose accents or joined parts were cut off."""
    end = len(kept)
    while 0 < end < len(text) and (_is_joiner(text[end]) or text[end - 1] == "\u200d"):
        end -= 1
    return text[:end]


def _is_joiner(letter: str) -> bool:
    return bool(unicodedata.combining(letter)) or letter in _JOINERS or ord(letter) in _SKIN


State: TypeAlias = Literal["whole", "truncated", "untrusted", "changed", "left out"]
Answer: TypeAlias = Literal["yes", "no", "always"]
_SETTLED = 2_000_000_000  # ns: a file that changed just now may change again under the same times
_LINES, _COLUMNS = 5, 200  # of a file the user is asked about
_TO_ASK = ("untrusted", "changed")
_FAR = 1_000_000  # steps: the global file is the farthest


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFile:
    """One file, and whether the model reads it."""

    path: Path
    name: str
    """As the model reads it."""
    scope: Scope
    state: State
    tokens: int = 0
    """Of the text the model reads, with the line above it."""
    size: int = 0
    """Bytes of the file."""
    why: str = ""
    """Why the model does not read the file, or not as it is on disk."""
    lines: tuple[str, ...] = ()
    """The first lines, for the user who is asked about it."""


class _Found(NamedTuple):
    """A unit, and how near it is."""

    unit: Unit
    near: tuple[int, ...]
    """Sort key: the smaller, the nearer to the working folder."""
    own: bool = False
    """Whether it is in the user's config folder, which is always trusted."""


class _Line(NamedTuple):
    """A file of the list: with a piece that waits to be fitted, or with its final text."""

    entry: InstructionFile
    piece: FilePiece | None = None
    text: str = ""


class Instructions:
    """AGENTS.md and similar files, from the config folder down to the working folder."""

    def __init__(  # noqa: PLR0913 - one keyword for each setting
        self,
        cwd: Path,
        *,
        config: Path | None = None,
        roots: Sequence[Path] = (),
        trust: Trust | None = None,
        most: int = TOKENS,
        limit: int = BYTES,
        names: Sequence[str] = NAMES,
        memory: Path | None = None,
        base: str = "",
    ) -> None:
        if bad := [name for name in names if not name or "/" in name or name in {".", ".."}]:
            raise BadInput(f"{bad[0]!r} is no file's name; write it without a folder: AGENTS.md")
        if most < 0 or limit < 0:
            raise BadInput(f"instructions of {most} tokens and {limit} bytes: write 0 or more")
        self.cwd = Path(os.path.realpath(cwd))
        self.home = Path(os.path.realpath(Path.home()))
        self.config = (config or config_folder()).absolute()
        self.memory = memory.absolute() if memory else self.config / MEMORY_NAME
        self.roots = roots_of(self.cwd, roots, home=self.home)
        self.names, self.most, self.limit, self.base = tuple(names), most, limit, base
        self.answers = trust or Trust()
        self._touched: set[Path] = set()
        self._nested: set[Path] = set()
        self._agreed: dict[Path, Unit] = {}  # the version the model read last
        self._refused: set[tuple[Path, str]] = set()
        self._asked: list[Unit] = []
        self._shown: list[Unit] | None = None  # to the user, and not answered yet
        self._texts: list[str] = []
        self._entries: list[InstructionFile] = []
        self._seen: list[tuple[int, ...]] | None = None
        self._paths: list[Path] = []  # of imports: they may have any name

    async def load_files(self) -> None:
        """Read the files and the user's answers about them again."""
        await self.answers.load()
        self._rebuild_texts()

    def render_texts(self) -> list[str]:
        """Return the system texts; reads the files again only if one may have changed."""
        self._collect_nested_folders()
        if self._seen is None or self._seen != self._read_file_states():
            self._rebuild_texts()
        return [*self._texts]

    def track_touched_paths(self, moment: Moment) -> None:
        """Hook: note the folders that tools touch, for their own instructions."""
        if isinstance(moment, Calling):
            try:
                touched = [*moment.tool.touches(moment.arguments)]
            except (KeyError, OSError, TypeError, ValueError):
                return  # running the tool reports what is wrong
            self.add_touched_paths(touched)

    def add_touched_paths(self, paths: Iterable[Path]) -> None:
        """Follow the instructions of these paths' folders from the next `render_texts` on."""
        self._touched.update(self.cwd / path for path in paths)

    def restore_nested_folders(self, texts: Iterable[str]) -> None:
        """Restore the nested folders of an earlier session from its system texts."""
        for text in texts:
            first = text.partition("\n")[0]
            if first.startswith(NAMED):
                name = first[len(NAMED) : -1]
                near = self.home / name[2:] if name.startswith("~/") else self.roots[-1] / name
                self.add_touched_paths([near.parent])

    def list_files(self) -> list[InstructionFile]:
        """List every file that was found, in the order the model reads them."""
        return [*self._entries]

    def list_untrusted_files(self) -> list[InstructionFile]:
        """List the files the user must be asked about, imports included."""
        self._shown = self._list_unanswered_units()
        waiting = {source.path for one in self._shown for source in one.sources}
        return [e for e in self._entries if e.path in waiting and e.state in _TO_ASK]

    async def apply_answer(self, answer: Answer, *, paths: Sequence[Path] | None = None) -> None:
        """Record the answer to `list_untrusted_files`, or to some of it; then load the files again.

        "yes" trusts the text as it is; "always" trusts whatever the project's folder holds, also
        when it changes (a home folder, and imports from it, are trusted only as they are: too much
        lies there); "no" holds until the text changes, or this process ends.
        """
        # What was shown, not what was written while the user thought about it.
        shown = self._list_unanswered_units() if self._shown is None else self._shown
        for one in shown:
            if paths is not None and one.path not in paths:
                continue
            if answer == "no":
                self._refused.add((one.path, one.sha))
            elif answer == "always" and one.boundary in self.roots and one.boundary != self.home:
                await self.answers.allow_folder(one.boundary)
            else:
                await self.answers.allow_file(one.path, one.sha)
        self._shown = None
        await self.load_files()

    def remember_line(self, line: str) -> str:
        """Add a line to the memory file; `render_texts` has it from the next call on."""
        remembered = append_memory_line(self.memory, line)
        self._seen = None
        return remembered

    def _rebuild_texts(self) -> None:
        self._collect_nested_folders()
        # Taken before any file is read: what changes meanwhile is noticed by the next call.
        states = self._read_file_states()
        lines = self._fit_lines(self._collect_lines())
        self._entries = [line.entry for line in lines]
        self._texts = [text for text in (self.base, *(line.text for line in lines)) if text]
        imports = [entry.path for entry in self._entries if entry.scope == "import"]
        self._seen = states if imports == self._paths and _is_settled(states) else None
        self._paths = imports

    def _collect_lines(self) -> list[_Line]:
        """List the files in the order the model reads them: global, memory, project."""
        self._asked = []
        listed: set[Path] = set()
        boundary = Boundary(self.config, own=True, home=self.home)
        lines = [
            line
            for unit in self._iterate_units(boundary, self.config, "global")
            for line in self._iterate_lines(_Found(unit, (_FAR,), own=True), listed)
        ]
        if memory := self._read_memory_line():
            lines.append(memory)
        for found in self._iterate_project_units():
            lines += self._iterate_lines(found, listed)
        return lines

    def _fit_lines(self, lines: Sequence[_Line]) -> list[_Line]:
        """Give every piece its final text; lines that have one already keep it, and its room."""
        room = RoomLeft(self.most, self.limit)
        for line in lines:
            room = room.reduce_by(line.text)
        fits = iter(fit_pieces([line.piece for line in lines if line.piece], room))
        return [_apply_fit(line.entry, next(fits)) if line.piece else line for line in lines]

    def _iterate_project_units(self) -> Iterator[_Found]:
        """Yield the units of each root: down to the working folder, then nested folders."""
        for root in self.roots:
            boundary = Boundary(root, home=self.home)
            path = list_folders_between(root, self.cwd) if root == self.roots[-1] else [root]
            nested = (one for one in self._nested if find_innermost_root(one, self.roots) == root)
            for folder in (*path, *sorted(nested)):
                scope = "root" if folder in path else "nested"
                near = (count_steps(folder, self.cwd), scope == "nested")
                for unit in self._iterate_units(boundary, folder, scope):
                    yield _Found(unit, near)

    def _iterate_units(self, boundary: Boundary, folder: Path, scope: Scope) -> Iterator[Unit]:
        """Yield a folder's first readable file, and those before it that cannot be read."""
        inner = folder.relative_to(boundary.folder).parts
        for name in self.names:
            units = read_units(boundary, (*inner, name), scope=scope, most=self.limit + 1)
            yield from units
            if units and not units[0].sources[0].why:
                return

    def _iterate_lines(self, found: _Found, listed: set[Path]) -> Iterator[_Line]:
        """Yield a unit's files that are not listed yet; adds those the model reads to `listed`."""
        unit, trusted = found.unit, self._choose_trusted_version(found)
        new = {source.path: source for source in unit.sources}
        old = {source.path: source for source in trusted.sources} if trusted else {}
        for path in dict.fromkeys((*new, *old)):
            if path in listed:
                continue
            kept = old.get(path)
            entry = self._build_entry(new.get(path) or old[path], kept, unit, trusted)
            if kept is None or kept.why:
                yield _Line(entry)
                continue
            listed.add(path)
            yield _Line(entry, self._build_piece(kept, (*found.near, len(listed))))

    def _choose_trusted_version(self, found: _Found) -> Unit | None:
        """Choose the unit as it is now, as it was when it was trusted, or None."""
        unit, answers = found.unit, self.answers
        if found.own or answers.is_trusted(unit.path, unit.sha):
            self._agreed[unit.path] = unit
            return unit
        if all(source.why for source in unit.sources):
            return None  # nothing to ask about
        self._asked.append(unit)
        before = self._agreed.get(unit.path)
        return before if before and answers.is_trusted(unit.path, before.sha) else None

    def _build_entry(
        self, source: ImportedFile, kept: ImportedFile | None, unit: Unit, trusted: Unit | None
    ) -> InstructionFile:
        entry = InstructionFile(
            path=source.path,
            name=self._format_path(source.path),
            scope=source.scope,
            state="left out" if source.why else "whole",
            size=source.size,
            why=source.why,
            lines=_list_first_lines(source.body),
        )
        if source.why or unit is trusted:
            return replace(entry, why=source.why or _describe_replaced_bytes(source.body))
        said_no = "; you said no" if (unit.path, unit.sha) in self._refused else ""
        if kept is not None:
            why = "it changed; the words that were agreed to hold until you agree to these"
            return replace(entry, state="changed", why=why + said_no)
        if self.answers.is_known_path(unit.path):
            why = f"it changed since it was agreed to{said_no}"
            return replace(entry, state="changed", why=why)
        return replace(entry, state="untrusted", why=f"nobody agreed to it yet{said_no}")

    def _build_piece(self, source: ImportedFile, near: tuple[int, ...]) -> FilePiece:
        text = decode_file_text(source.body[: self.limit]).text.strip("\n")
        if note := _describe_replaced_bytes(source.body):
            text = f"[{note}]\n{text}"
        head = f"{NAMED}{self._format_path(source.path)}]"
        whole = source.size <= min(len(source.body), self.limit)
        return FilePiece(head, text, source.size, near, whole=whole)

    def _read_memory_line(self) -> _Line | None:
        """Read the memory file; it is fitted to its own budget and keeps its newest lines."""
        file = read_own(self.memory, most=1 << 20)  # of a larger file the beginning is used
        if file is None or (isinstance(file, FileRead) and not file.body.strip()):
            return None
        name = self._format_path(self.memory)
        entry = InstructionFile(path=self.memory, name=name, scope="memory", state="whole")
        if not isinstance(file, FileRead):
            return _Line(replace(entry, state="left out", why=file.why))
        text = decode_file_text(file.body).text.strip("\n")
        piece = FilePiece(f"{NAMED}{name}]", text, file.size, newest=True)
        fit = fit_piece(piece, RoomLeft(min(self.most, MEMORY_TOKENS), self.limit))
        return _apply_fit(replace(entry, size=file.size), fit)

    def _collect_nested_folders(self) -> None:
        """Add the touched folders that have instructions, and their parents that do."""
        on_path = {*list_folders_between(self.roots[-1], self.cwd)}
        for path in self._touched:
            real = Path(os.path.realpath(path))
            folder = real if real.is_dir() else real.parent
            root = find_innermost_root(folder, self.roots)
            if root is None or is_excluded_folder(root, folder):
                continue
            for inner in list_folders_between(root, folder)[1:]:
                if inner not in on_path and any(read_file_states([inner], self.names)):
                    self._nested.add(inner)
        self._touched.clear()

    def _read_file_states(self) -> list[tuple[int, ...]]:
        on_path = list_folders_between(self.roots[-1], self.cwd)
        folders = [self.config, *self.roots, *on_path, *sorted(self._nested)]
        states = read_file_states(folders, self.names)
        return [*states, *map(read_file_state, (self.memory, *self._paths))]

    def _list_unanswered_units(self) -> list[Unit]:
        return [one for one in self._asked if (one.path, one.sha) not in self._refused]

    def _format_path(self, path: Path) -> str:
        if path.is_relative_to(self.roots[-1]):
            name = path.relative_to(self.roots[-1]).as_posix()
        elif path.is_relative_to(self.home):
            name = f"~/{path.relative_to(self.home).as_posix()}"
        else:
            name = path.as_posix()
        return "".join(letter if letter.isprintable() else "?" for letter in name)


def _apply_fit(entry: InstructionFile, fit: Fit) -> _Line:
    entry = replace(entry, tokens=fit.tokens)
    if fit.text is None:
        why = "nearer files take all the room there is"
        return _Line(replace(entry, state="left out", why=why))
    if not fit.whole:
        state = "truncated" if entry.state == "whole" else entry.state
        entry = replace(entry, state=state, why=entry.why or "it does not fit")
    return _Line(entry, text=fit.text)


def _list_first_lines(body: bytes) -> tuple[str, ...]:
    lines = decode_file_text(body[: 1 << 12]).text.splitlines()
    return tuple([line[:_COLUMNS] for line in lines if line.strip()][:_LINES])


def _describe_replaced_bytes(body: bytes) -> str:
    replaced = decode_file_text(body).replaced
    return "not all of it is UTF-8: what is not was replaced" if replaced else ""


def _is_settled(states: Iterable[tuple[int, ...]]) -> bool:
    """Whether file times can be relied on: not those of a file changed a moment ago."""
    return all(time_ns() - state[3] > _SETTLED for state in states if state)

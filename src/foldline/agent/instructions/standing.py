"""The instructions that stand: found, agreed to, fitted, and told piece by piece.

`texts()` is always what the order and the budget say of the files as they are now. A piece opens
with its name, and the session tells at its tail only those that differ from what was told before,
until the next fold lays them all in front again (R-60); so nothing here remembers what the model
was told. Knows the order. Refuses to know sessions, and to ask anybody.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Literal, NamedTuple, TypeAlias

from foldline.agent.events import Calling, Moment
from foldline.agent.instructions import budget, finding
from foldline.agent.instructions import memory as remembered
from foldline.agent.instructions.budget import FilePiece, Fit, RoomLeft
from foldline.agent.instructions.imports import Boundary, ImportedFile, Scope, Unit, unit
from foldline.agent.instructions.reading import FileRead, read_own, words
from foldline.agent.instructions.trust import Trust
from foldline.core.item import NAMED
from foldline.errors import BadInput

State: TypeAlias = Literal["whole", "truncated", "untrusted", "changed", "left out"]
Answer: TypeAlias = Literal["yes", "no", "always"]
_SETTLED = 2_000_000_000  # ns: a file that changed just now may change again under the same times
_LINES, _COLUMNS = 5, 200  # of a file that is asked about
_TO_ASK = ("untrusted", "changed")
_FAR = 1_000_000  # steps: the global file is the farthest


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFile:
    """One file, and what became of it."""

    path: Path
    name: str
    """As the model is told."""
    scope: Scope
    state: State
    tokens: int = 0
    """Of what is told, the line above it included."""
    size: int = 0
    """Bytes of the file."""
    why: str = ""
    """Why it is not told, or not as it stands."""
    lines: tuple[str, ...] = ()
    """Its first lines, for whoever is asked about it."""


class _Found(NamedTuple):
    """A unit in its place."""

    unit: Unit
    near: tuple[int, ...]
    """The smaller, the nearer to where work is done."""
    own: bool = False
    """Whether it is the user's: nobody is asked."""


class _Line(NamedTuple):
    """A file in the list, and what is to be told of it."""

    entry: InstructionFile
    piece: FilePiece | None = None


class Instructions:
    """AGENTS.md and its like, from the config folder down to where work is done."""

    def __init__(  # noqa: PLR0913 - one keyword for each setting
        self,
        cwd: Path,
        *,
        config: Path | None = None,
        roots: Sequence[Path] = (),
        trust: Trust | None = None,
        most: int = budget.TOKENS,
        limit: int = budget.BYTES,
        names: Sequence[str] = finding.NAMES,
        memory: Path | None = None,
        base: str = "",
    ) -> None:
        if bad := [name for name in names if not name or "/" in name or name in {".", ".."}]:
            raise BadInput(f"{bad[0]!r} is no file's name; write it without a folder: AGENTS.md")
        if most < 0 or limit < 0:
            raise BadInput(f"instructions of {most} tokens and {limit} bytes: write 0 or more")
        self.cwd = Path(os.path.realpath(cwd))
        self.home = Path(os.path.realpath(Path.home()))
        self.config = (config or finding.config_folder()).absolute()
        self.memory = memory.absolute() if memory else self.config / remembered.NAME
        self.roots = finding.roots_of(self.cwd, roots, home=self.home)
        self.names, self.most, self.limit, self.base = tuple(names), most, limit, base
        self.answers = trust or Trust()
        self._touched: set[Path] = set()
        self._nested: set[Path] = set()
        self._agreed: dict[Path, Unit] = {}  # as it was told last
        self._refused: set[tuple[Path, str]] = set()
        self._asked: list[Unit] = []
        self._shown: list[Unit] | None = None  # by untrusted(), and not answered yet
        self._texts: list[str] = []
        self._entries: list[InstructionFile] = []
        self._seen: list[tuple[int, ...]] | None = None
        self._paths: list[Path] = []  # of imports, which no folder's names cover

    async def look(self) -> None:
        """Read everything again: files, and what was answered about them."""
        await self.answers.load()
        self._lay()

    def texts(self) -> list[str]:
        """The system's words, piece by piece; reads again only what may have changed."""
        self._settle()
        if self._seen is None or self._seen != self._signature():
            self._lay()
        return [*self._texts]

    def notice(self, moment: Moment) -> None:
        """A hook: the folders that tools touch have instructions of their own."""
        if isinstance(moment, Calling):
            try:
                touched = [*moment.tool.touches(moment.arguments)]
            except (KeyError, OSError, TypeError, ValueError):
                return  # running it says what is wrong
            self.touch(touched)

    def touch(self, paths: Iterable[Path]) -> None:
        """Work is done there: what its folders say counts, from the next look on."""
        self._touched.update(self.cwd / path for path in paths)

    def resume(self, told: Iterable[str]) -> None:
        """Go on with an earlier session's nested files: `told` are the words that held in it."""
        for text in told:
            first = text.partition("\n")[0]
            if first.startswith(NAMED):
                name = first[len(NAMED) : -1]
                near = self.home / name[2:] if name.startswith("~/") else self.roots[-1] / name
                self.touch([near.parent])

    def listed(self) -> list[InstructionFile]:
        """Every file that was found, in the order in which they are told."""
        return [*self._entries]

    def untrusted(self) -> list[InstructionFile]:
        """What somebody has to be asked about, imports included."""
        self._shown = self._waiting()
        waiting = {source.path for one in self._shown for source in one.sources}
        return [e for e in self._entries if e.path in waiting and e.state in _TO_ASK]

    async def trust(self, answer: Answer, *, paths: Sequence[Path] | None = None) -> None:
        """Take in what was answered about what `untrusted` showed, or some of it; then look again.

        "yes" agrees to the words as they are; "always" to whatever the project's folder holds, also
        when it changes (a home folder, and what an import brings from there, is agreed to as it
        is: too much lies in it); "no" holds until the words change, or this process ends.
        """
        # What was shown, and not what may have been written while somebody thought about it.
        shown = self._waiting() if self._shown is None else self._shown
        for one in shown:
            if paths is not None and one.path not in paths:
                continue
            if answer == "no":
                self._refused.add((one.path, one.sha))
            elif answer == "always" and one.boundary in self.roots and one.boundary != self.home:
                await self.answers.always(one.boundary)
            else:
                await self.answers.trust(one.path, one.sha)
        self._shown = None
        await self.look()

    def remember(self, line: str) -> str:
        """Add a line to the memory file; it is told from the next look on."""
        said = remembered.remember(self.memory, line)
        self._seen = None
        return said

    # How they are found, in the order in which they are told.

    def _lay(self) -> None:
        self._settle()
        seen, self._asked = self._signature(), []
        told: set[Path] = set()
        lines = [line for found in self._global() for line in self._lines(found, told)]
        room, own = RoomLeft(self.most, self.limit), self._remembered()
        if own is not None:
            lines.append(own)
            if own.piece:
                room = room.without(own.piece.text)
        lines += [line for found in self._projects() for line in self._lines(found, told)]
        fits = iter(
            budget.fitted([one.piece for one in lines if one.piece and one is not own], room)
        )
        self._entries, self._texts = [], [self.base] if self.base else []
        for line in lines:
            if line is own and line.piece:
                self._texts.append(line.piece.text)
            fit = next(fits) if line.piece and line is not own else None
            self._entries.append(_fitted(line.entry, fit) if fit else line.entry)
            if fit and fit.text:
                self._texts.append(fit.text)
        imports = [one.path for one in self._entries if one.scope == "import"]
        # Taken before anything was read: what changed meanwhile is seen at the next look.
        self._seen = seen if imports == self._paths and _settled(seen) else None
        self._paths = imports

    def _global(self) -> Iterator[_Found]:
        boundary = Boundary(self.config, own=True, home=self.home)
        for one in self._first_of(boundary, self.config, "global"):
            yield _Found(one, (_FAR,), own=True)

    def _projects(self) -> Iterator[_Found]:
        for root in self.roots:
            boundary = Boundary(root, home=self.home)
            path = finding.down(root, self.cwd) if root == self.roots[-1] else [root]
            nested = (one for one in self._nested if finding.innermost(one, self.roots) == root)
            for folder in (*path, *sorted(nested, key=lambda one: one.parts)):
                scope = "root" if folder in path else "nested"
                near = (finding.steps(folder, self.cwd), scope == "nested")
                for one in self._first_of(boundary, folder, scope):
                    yield _Found(one, near)

    def _first_of(self, boundary: Boundary, folder: Path, scope: Scope) -> Iterator[Unit]:
        """What counts in a folder; before it what would, were it no symlink or the like."""
        inner = folder.relative_to(boundary.folder).parts
        for name in self.names:
            found = unit(boundary, (*inner, name), scope=scope, most=self.limit + 1)
            yield from found
            if found and not found[0].sources[0].why:
                return

    def _lines(self, found: _Found, told: set[Path]) -> Iterator[_Line]:
        """The files of a unit; those that are told already are there already."""
        asked = found.unit
        agreed = self._agreed_to(found)
        old = {one.path: one for one in agreed.sources} if agreed else {}
        new = {one.path: one for one in asked.sources}
        for path, source in (
            new | {path: one for path, one in old.items() if path not in new}
        ).items():
            if path in told:
                continue
            kept = old.get(path)
            entry = self._entry(source, kept, asked, agreed)
            if kept is None or kept.why:
                yield _Line(entry)
                continue
            told.add(path)
            yield _Line(entry, self._piece(kept, (*found.near, len(told))))

    def _agreed_to(self, found: _Found) -> Unit | None:
        """A unit as it may be told: as it is, as it was when it was agreed to, or not at all."""
        one, answers = found.unit, self.answers
        if found.own or answers.trusted(one.path, one.sha):
            self._agreed[one.path] = one
            return one
        if all(source.why for source in one.sources):
            return None  # nothing to ask about
        self._asked.append(one)
        before = self._agreed.get(one.path)
        return before if before and answers.trusted(one.path, before.sha) else None

    def _entry(
        self, source: ImportedFile, kept: ImportedFile | None, asked: Unit, agreed: Unit | None
    ) -> InstructionFile:
        entry = InstructionFile(
            path=source.path,
            name=self._name(source.path),
            scope=source.scope,
            state="left out" if source.why else "whole",
            size=source.size,
            why=source.why,
            lines=_first_lines(source.body),
        )
        if source.why or asked is agreed:
            return replace(entry, why=source.why or _strange_bytes(source.body))
        said_no = "; you said no" if (asked.path, asked.sha) in self._refused else ""
        if kept is not None:
            why = "it changed; the words that were agreed to hold until you agree to these"
            return replace(entry, state="changed", why=why + said_no)
        if self.answers.known(asked.path):
            return replace(
                entry, state="changed", why=f"it changed since it was agreed to{said_no}"
            )
        return replace(entry, state="untrusted", why=f"nobody agreed to it yet{said_no}")

    def _piece(self, source: ImportedFile, near: tuple[int, ...]) -> FilePiece:
        text = words(source.body[: self.limit]).text.strip("\n")
        if note := _strange_bytes(source.body):
            text = f"[{note}]\n{text}"
        whole = source.size <= min(len(source.body), self.limit)
        return FilePiece(f"{NAMED}{self._name(source.path)}]", text, source.size, near, whole=whole)

    def _remembered(self) -> _Line | None:
        # Read to its end, as that is told; whoever has more than this in it is told the beginning.
        found = read_own(self.memory, most=1 << 20)
        if found is None or (isinstance(found, FileRead) and not found.body.strip()):
            return None
        name = self._name(self.memory)
        if not isinstance(found, FileRead):
            return _Line(
                InstructionFile(
                    path=self.memory, name=name, scope="memory", state="left out", why=found.why
                )
            )
        entry = InstructionFile(
            path=self.memory, name=name, scope="memory", state="whole", size=found.size
        )
        text = words(found.body).text.strip("\n")
        piece = FilePiece(f"{NAMED}{name}]", text, found.size, newest=True)
        fit = budget.fitting(piece, RoomLeft(min(self.most, remembered.TOKENS), self.limit))
        entry = _fitted(entry, fit)
        return _Line(entry, piece._replace(text=fit.text)) if fit.text else _Line(entry)

    def _settle(self) -> None:
        """Of the folders that were touched, those count that have instructions."""
        way = {*finding.down(self.roots[-1], self.cwd)}
        for path in self._touched:
            real = Path(os.path.realpath(path))
            folder = real if real.is_dir() else real.parent
            root = finding.innermost(folder, self.roots)
            if root is None or finding.strange(root, folder):
                continue
            for one in finding.down(root, folder)[1:]:
                if one not in way and any(finding.signature([one], self.names)):
                    self._nested.add(one)
        self._touched.clear()

    def _signature(self) -> list[tuple[int, ...]]:
        folders = [self.config, *self.roots, *finding.down(self.roots[-1], self.cwd)]
        found = finding.signature([*folders, *sorted(self._nested)], self.names)
        return [*found, *map(finding.state, (self.memory, *self._paths))]

    def _waiting(self) -> list[Unit]:
        return [one for one in self._asked if (one.path, one.sha) not in self._refused]

    def _name(self, path: Path) -> str:
        if path.is_relative_to(self.roots[-1]):
            name = path.relative_to(self.roots[-1]).as_posix()
        elif path.is_relative_to(self.home):
            name = f"~/{path.relative_to(self.home).as_posix()}"
        else:
            name = path.as_posix()
        return "".join(letter if letter.isprintable() else "?" for letter in name)


def _fitted(entry: InstructionFile, fit: Fit) -> InstructionFile:
    entry = replace(entry, tokens=fit.tokens)
    if fit.whole:
        return entry
    if fit.text is None:
        return replace(entry, state="left out", why="nearer files take all the room there is")
    why = entry.why or "it does not fit"
    return replace(entry, state="truncated" if entry.state == "whole" else entry.state, why=why)


def _first_lines(body: bytes) -> tuple[str, ...]:
    lines = [line[:_COLUMNS] for line in words(body[: 1 << 12]).text.splitlines() if line.strip()]
    return tuple(lines[:_LINES])


def _strange_bytes(body: bytes) -> str:
    return "not all of it is UTF-8: what is not was replaced" if words(body).replaced else ""


def _settled(seen: Iterable[tuple[int, ...]]) -> bool:
    """Whether times tell: not of a file that was changed a moment ago."""
    return all(time_ns() - one[3] > _SETTLED for one in seen if one)

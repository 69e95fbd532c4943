"""Checkpoints: what the tools changed in files during a turn, and how to take it back.

    points = Checkpoints(folder, root)
    agent = Agent(session, model, tools=[points.watch_tool(tool) for tool in tools],
                  hooks=[points.begin_turn])
    found = points.plan_undo()          # what would be restored, and the conflicts
    points.restore_files(found)               # exactly: content, mode, deletions, creations, links

`write` and `edit` say which file they change. A shell command may change any: the working folder is
compared before and after it. Not kept: what is in `.git`, `node_modules` and the like, files over
`LARGEST`, owners, times, and what a command changes elsewhere. A new file over `LARGEST`
stays, as it may be an old one moved. A folder that is too large to be compared is reported, and
only the files that a command names are kept.

A file that was changed from outside since, or between two calls of the turn, is a conflict.
Contents are kept in `folder`, readable by its owner only, and dropped once nothing needs them.
"""

import asyncio
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from foldline.agent.events import Asking, Moment
from foldline.agent.tool import Arguments, Result, Tool
from foldline.agent.tools.read_files import SKIPPED

LARGEST = 4_000_000
"""Bytes of a file that are kept."""
MOST_FILES, MOST_BYTES = 20_000, 100_000_000
"""A working folder with more is not compared as a whole."""
KEPT = 50
"""Turns that can be taken back."""
_CHANGING = ("write", "edit", "shell")
_RACY = 50_000_000  # nanoseconds: a younger file may change again without a sign of it
Kind: TypeAlias = Literal["absent", "file", "link", "folder", "other"]


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """What is at a path."""

    kind: Kind
    mode: int = 0
    content: str = ""
    """The sha256 of a file's bytes, or of a link's target; of what is not kept, its outside."""
    kept: bool = True
    """Whether the content can be restored."""


_ABSENT = FileState("absent")


class FileChange(msgspec.Struct, array_like=True):
    """What a turn made of one path."""

    path: str
    before: FileState
    after: FileState
    mixed: bool = False
    """True if it was changed from outside between two calls, or by an unknown writer."""


class Checkpoint(msgspec.Struct):
    """What one turn changed."""

    time: float
    changes: list[FileChange] = []
    partial: bool = False
    """Whether a command may have changed more than is known."""


class _CheckpointFile(msgspec.Struct):
    """The file `checkpoints.json`."""

    done: list[Checkpoint] = []
    undone: list[Checkpoint] = []
    begun: list[tuple[str, FileState]] | None = None
    """What stood before a call that has not ended: its process was killed."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """What undoing or redoing a turn would change on disk."""

    point: Checkpoint
    again: bool
    changes: tuple[FileChange, ...]
    """Those that differ from what is there; `before` is what is restored."""
    conflicts: tuple[str, ...]
    """Paths that were changed from outside."""
    lost: tuple[str, ...]
    """Paths that stay as they are: what to restore, or what is there, is not kept."""


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of one session in one working folder."""

    folder: Path
    root: Path
    fault: str = ""
    """Why something could not be kept."""
    _kept: _CheckpointFile = field(default_factory=_CheckpointFile)
    _open: Checkpoint | None = None
    _index: dict[str, tuple[tuple[int, ...], FileState]] = field(
        default_factory=dict[str, tuple[tuple[int, ...], FileState]]
    )
    _too_large: bool = False

    def __post_init__(self) -> None:
        """Load what an earlier process has left."""
        self.root = self.root.resolve()
        with suppress(OSError, msgspec.MsgspecError):
            self._kept = msgspec.json.decode(self._file.read_bytes(), type=_CheckpointFile)
        if self._kept.begun is not None:  # a process was killed during a call
            self._open = Checkpoint(time.time())
            for name, before in self._kept.begun:
                self._note_change(name, before, self._read_state(_to_path(name)), mixed=True)
            self._kept.begun = None
            self._close_turn()

    @property
    def points(self) -> Sequence[Checkpoint]:
        """The turns that can be taken back, the oldest first."""
        return [*self._kept.done, *([self._open] if self._open and self._open.changes else [])]

    def begin_turn(self, moment: Moment) -> None:
        """Hook: a turn begins with its first call of the model."""
        if isinstance(moment, Asking) and moment.round == 1:
            self._close_turn()

    def watch_tool(self, tool: Tool) -> Tool:
        """Return the tool with what it changes kept; one that changes no file as it is."""
        if tool.name not in _CHANGING:
            return tool

        async def run_watched(arguments: Arguments) -> Result:
            whole = tool.name == "shell"
            named = [*tool.touches(arguments)]
            before = await asyncio.to_thread(self.note_before, named, whole=whole)
            try:
                return await tool.run(arguments)
            finally:
                after = asyncio.to_thread(self.note_after, before, named, whole=whole)
                await asyncio.shield(asyncio.ensure_future(after))

        return replace(tool, run=run_watched)

    def note_before(self, named: Iterable[Path], *, whole: bool) -> dict[str, FileState]:
        """Keep what a call may change; return it."""
        try:
            found = self._look(named, whole=whole)
            self._kept.begun = [*found.items()]
            self._save()
        except OSError as fault:
            self.fault = f"{fault.strerror or fault}"
            return {}
        return found

    def note_after(
        self, before: Mapping[str, FileState], named: Iterable[Path], *, whole: bool
    ) -> None:
        """Note what the call has changed."""
        try:
            now = self._look(named, whole=whole)
            if self._open is None:
                self._open = Checkpoint(time.time())
            if whole and self._too_large:
                self._open.partial = True
            for name in sorted(before.keys() | now.keys()):
                then = before.get(name, _ABSENT)
                self._note_change(name, then, now.get(name, _ABSENT))
            self._kept.begun = None
            self._save()
        except OSError as fault:
            self.fault = f"{fault.strerror or fault}"

    def plan_undo(self) -> Restoring | None:
        """Plan to undo the newest turn; None if there is none."""
        self._close_turn()
        return self._plan(self._kept.done[-1], again=False) if self._kept.done else None

    def plan_redo(self) -> Restoring | None:
        """Plan to redo the turn that was undone last; None if there is none."""
        self._close_turn()
        return self._plan(self._kept.undone[-1], again=True) if self._kept.undone else None

    def restore_files(self, plan: Restoring) -> list[str]:
        """Restore what a plan says; return what could not be, with the reason."""
        faults: list[str] = []
        still: list[FileChange] = []
        for one in plan.changes:
            path = _to_path(one.path)
            if self._read_state(path) == one.after:
                still.append(one)
            else:
                faults.append(f"{path}: it was changed while you were asked")
        faults += _apply_changes(still, self._read_blob)
        here, there = self._kept.done, self._kept.undone
        if plan.again:
            here, there = there, here
        here.remove(plan.point)
        there.append(plan.point)
        # What the person had there is gone by their consent: it is no conflict the other way.
        for change in plan.point.changes:
            change.mixed = False
        self._index.clear()
        self._save()
        return faults

    def end_session(self) -> None:
        """End the turn, and drop the contents that no turn needs."""
        self._close_turn()
        with suppress(OSError):
            self._drop_blobs()
            if not self._kept.done and not self._kept.undone:
                shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _file(self) -> Path:
        return self.folder / "checkpoints.json"

    def _close_turn(self) -> None:
        ended, self._open = self._open, None
        if ended is not None and ended.changes:
            self._kept.done.append(ended)
            del self._kept.done[:-KEPT]
            self._kept.undone.clear()  # what was taken back cannot be made again on top of this
            with suppress(OSError):
                self._save()

    def _note_change(
        self, name: str, before: FileState, after: FileState, *, mixed: bool = False
    ) -> None:
        if before == after or self._open is None:
            return
        known = next((one for one in self._open.changes if one.path == name), None)
        if known is None:
            self._open.changes.append(FileChange(name, before, after, mixed))
            return
        known.mixed = known.mixed or mixed or known.after != before
        known.after = after
        if known.before == after and not known.mixed:
            self._open.changes.remove(known)

    def _plan(self, point: Checkpoint, *, again: bool) -> Restoring:
        changes: list[FileChange] = []
        conflicts: list[str] = []
        lost: list[str] = []
        leaves = {one.path for one in point.changes}
        for one in point.changes:
            old, new = (one.after, one.before) if again else (one.before, one.after)
            path = _to_path(one.path)
            present = self._read_state(path)
            if present == old and not _is_moved(path):
                continue
            if (
                present != new
                or one.mixed
                or _is_moved(path)
                or (
                    new.kind == "folder"
                    and old.kind not in ("absent", "folder")
                    and any(_to_name(below) not in leaves for below in _walk_below(path))
                )
            ):
                conflicts.append(one.path)
            missing = not old.kept or (old.kind == "file" and not self._has_blob(old))
            # What is there may be all that is left of a large file: a command may have moved it.
            only = present.kind != "absent" and not present.kept
            if _is_moved(path) or missing or only:
                lost.append(one.path)
            else:
                changes.append(FileChange(one.path, old, present))
        return Restoring(point, again, tuple(changes), tuple(conflicts), tuple(lost))

    def _look(self, named: Iterable[Path], *, whole: bool) -> dict[str, FileState]:
        """Read the states of what a call may change, and keep the contents."""
        if whole and not self._too_large:
            found = self._scan_root()
            if found is not None:
                outside = [path for path in named if not path.is_relative_to(self.root)]
                return found | self._read_states(outside)
            self._too_large = True
        return self._read_states(path for path in named if path != self.root)

    def _read_states(self, paths: Iterable[Path]) -> dict[str, FileState]:
        """Read the states of paths, and of the folders above them that do not exist."""
        found: dict[str, FileState] = {}
        for path in paths:
            found[_to_name(path)] = self._read_state(path, keep=True)
            for above in path.parents:
                name = _to_name(above)
                if name in found or above in (self.root, above.parent):
                    break
                found[name] = self._read_state(above)
        return found

    def _scan_root(self) -> dict[str, FileState] | None:
        """Read the state of everything in the working folder; None if it is too large."""
        found: dict[str, FileState] = {}
        index: dict[str, tuple[tuple[int, ...], FileState]] = {}
        size, now = 0, time.time_ns()
        for path, seen in _walk_tree(str(self.root)):
            name = os.fsencode(path).decode("latin-1")
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= LARGEST:
                size += seen.st_size
            if len(found) >= MOST_FILES or size > MOST_BYTES:
                return None
            signs = (seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
            known = self._index.get(name)
            if known is not None and known[0] == signs:
                state = known[1]
            else:
                state = self._read_state(Path(path), keep=True)
            found[name] = state
            if now - max(seen.st_mtime_ns, seen.st_ctime_ns) > _RACY:
                index[name] = (signs, state)
        self._index = index
        return found

    def _read_state(self, path: Path, *, keep: bool = False) -> FileState:
        """Read what is at a path; with `keep` its content is kept."""
        try:
            seen = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return _ABSENT
        mode = stat.S_IMODE(seen.st_mode)
        outside = f"{seen.st_size}:{seen.st_mtime_ns}:{seen.st_ino}"
        try:
            if stat.S_ISLNK(seen.st_mode):
                return FileState("link", 0, os.fsencode(path.readlink()).decode("latin-1"))
            if stat.S_ISDIR(seen.st_mode):
                return FileState("folder", mode)
            if not stat.S_ISREG(seen.st_mode):
                return FileState("other", mode, kept=False)
            if seen.st_size > LARGEST:
                return FileState("file", mode, outside, kept=False)
            body = path.read_bytes()
        except OSError:
            return FileState("file", mode, outside, kept=False)
        sha = hashlib.sha256(body).hexdigest()
        if keep:
            self._write_blob(sha, body)
        return FileState("file", mode, sha)

    def _blob_path(self, sha: str) -> Path:
        return self.folder / "contents" / sha

    def _has_blob(self, state: FileState) -> bool:
        return self._blob_path(state.content).exists()

    def _read_blob(self, sha: str) -> bytes:
        return self._blob_path(sha).read_bytes()

    def _write_blob(self, sha: str, body: bytes) -> None:
        path = self._blob_path(sha)
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_private(path, body)

    def _drop_blobs(self) -> None:
        states = (
            state
            for point in (*self._kept.done, *self._kept.undone)
            for change in point.changes
            for state in (change.before, change.after)
        )
        needed = {state.content for state in states}
        with suppress(FileNotFoundError):
            for path in (self.folder / "contents").iterdir():
                if path.name not in needed:
                    path.unlink()

    def _save(self) -> None:
        """Write the file anew: a reader sees the old one or the new one."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = self._kept
        if self._open is not None and self._open.changes:
            now = msgspec.structs.replace(now, done=[*now.done, self._open], undone=[])
        _write_private(self._file, msgspec.json.encode(now))


def describe_change(change: FileChange, root: Path) -> str:
    """Describe one restored path in a line: what is there now, and what will be."""
    path = _to_path(change.path)
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    old, present = change.before, change.after
    if old.kind == "absent":
        return f"- {shown} (it was created)"
    if present.kind == "absent":
        return f"+ {shown} (it was removed)"
    if old.content == present.content and old.kind == present.kind:
        return f"~ {shown} (mode {present.mode:o} → {old.mode:o})"
    return f"~ {shown}"


def describe_path(name: str, root: Path) -> str:
    """Return a path as people write it."""
    path = _to_path(name)
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _apply_changes(changes: Sequence[FileChange], read: Callable[[str], bytes]) -> Iterator[str]:
    """Make each path what `before` says; yield what failed."""
    by_depth = sorted(changes, key=lambda one: one.path.count("/"))
    for one in reversed(by_depth):  # the deepest first
        path = _to_path(one.path)
        if one.after.kind in ("absent", one.before.kind):
            continue
        try:
            if one.after.kind == "folder":
                path.rmdir()
            else:
                path.unlink()
        except OSError as fault:
            if one.after.kind == "folder" and one.before.kind == "absent":
                continue  # it holds files from outside
            yield f"{path}: {fault.strerror}"
    for one in by_depth:
        path = _to_path(one.path)
        try:
            if one.before.kind == "folder":
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(one.before.mode | 0o700)  # for what is written into it
            elif one.before.kind == "link":
                _replace_link(path, os.fsdecode(one.before.content.encode("latin-1")))
            elif one.before.kind == "file":
                _replace_file(path, one, read)
        except OSError as fault:
            yield f"{path}: {fault.strerror}"
    for one in reversed(by_depth):
        if one.before.kind == "folder":
            with suppress(OSError):
                _to_path(one.path).chmod(one.before.mode)


def _replace_link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}")
    beside.symlink_to(target)
    beside.replace(path)


def _replace_file(path: Path, one: FileChange, read: Callable[[str], bytes]) -> None:
    if (one.after.kind, one.after.content) == ("file", one.before.content):
        path.chmod(one.before.mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}")
    try:
        _write_private(beside, read(one.before.content))
        beside.chmod(one.before.mode)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _write_private(path: Path, body: bytes) -> None:
    beside = path.with_name(f"{path.name[:200]}.{os.urandom(4).hex()}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(body)
    beside.replace(path)


def _is_moved(path: Path) -> bool:
    """Whether a folder above the path is a link by now, which leads elsewhere."""
    return any(above.is_symlink() for above in path.parents)


def _walk_tree(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a folder but what is skipped, links not followed."""
    try:
        with os.scandir(folder) as found:
            entries = [*found]
    except OSError:
        return
    for one in entries:
        if one.name in SKIPPED:
            continue
        try:
            seen = one.stat(follow_symlinks=False)
        except OSError:
            continue
        yield one.path, seen
        if stat.S_ISDIR(seen.st_mode):
            yield from _walk_tree(one.path)


def _walk_below(path: Path) -> Iterator[Path]:
    return (Path(one) for one, _ in _walk_tree(str(path)))


def _to_name(path: Path) -> str:
    return os.fsencode(path).decode("latin-1")


def _to_path(name: str) -> Path:
    return Path(os.fsdecode(name.encode("latin-1")))

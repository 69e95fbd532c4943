"""`foldline import`: session files of other agents, and our own, into the store.

A file's session is found again by its name. If the session begins with the file's first events, the
rest is appended; if not, the file is another session and gets another name. Compactions that a file
records become folds, which are not ours (`importers.recorded_folds`).

Also here: session files on disk (`collect_session_files`, `text_of`), and work in parallel with a
progress bar (`run_jobs`, `open_executor`, `show_progress`), which the lab uses, too.
"""

import asyncio
import gzip
import hashlib
import os
import re
import signal
import sys
import zlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import (
    Column,
    format_size,
    print_remark,
    render_table,
    truncate_line,
    wrap_text,
)
from foldline.core import log
from foldline.core.log import Event, Opened, UserSaid
from foldline.core.names import format_count
from foldline.core.parts import render_parts, replace_surrogates
from foldline.core.spine import Range
from foldline.core.tokens import count_parts
from foldline.draw.wording import clean_line
from foldline.errors import BadInput, Erased, FoldlineError
from foldline.importers import Imported, read
from foldline.importers.recorded_folds import LogDraft
from foldline.stores import event_log
from foldline.stores.base import Name, Store

ENDINGS = (".jsonl", ".json", ".traj", ".jsonl.gz", ".json.gz", ".traj.gz")
MOST = 512 * 1024 * 1024
"""The bytes of text that a file may unpack to: more is no conversation."""
_BEGINNING = 4_096


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold sessions."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class FilesPassed:
    """A file or session that was passed over, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Under:
    """What lies under the files and folders that a person named."""

    files: list[Candidate]
    passed: list[FilesPassed]
    others: int = 0
    """Files in folders whose endings are not those of session files."""


def collect_session_files(places: Sequence[Path]) -> Under:
    """Collect every file that may hold sessions; one that is named may have any ending."""
    found = Under([], [])
    seen: set[tuple[int, int]] = set()
    for place in places:
        inside = list(iterate_session_files(place, found)) if place.is_dir() else [place]
        if place.is_dir() and not inside:
            reason = f"no file in it ends in {', '.join(ENDINGS[:3])} or .gz"
            found.passed.append(FilesPassed(replace_surrogates(str(place)), reason))
        for path in inside:
            try:
                known = path.stat()
            except OSError as fault:
                found.passed.append(
                    FilesPassed(replace_surrogates(str(path)), fault.strerror or "cannot be read")
                )
                continue
            if (known.st_dev, known.st_ino) not in seen:
                seen.add((known.st_dev, known.st_ino))
                found.files.append(Candidate(path, known.st_size))
    return found


def iterate_session_files(folder: Path, found: Under) -> Generator[Path]:
    """Yield the files below a folder that may hold sessions; what cannot be read is noted."""

    def record_refusal(fault: OSError) -> None:
        if isinstance(fault, FileNotFoundError):
            return
        found.passed.append(
            FilesPassed(replace_surrogates(str(fault.filename)), fault.strerror or "cannot be read")
        )

    for root, folders, names in os.walk(folder, onerror=record_refusal):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(ENDINGS):
                yield Path(root) / name
            else:
                found.others += 1


def text_of(path: Path) -> str:
    """Read a file, unpack it and decode it; raises `BadInput` if it is no text."""
    if not path.is_file():
        raise BadInput("neither a file nor a folder")
    try:
        body = _unpack_file(path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as fault:
        raise BadInput(f"not whole as gzip: {fault}") from fault
    except OSError as fault:
        raise BadInput(fault.strerror or "cannot be read") from fault
    if len(body) > MOST:
        raise BadInput(f"more than {MOST // 1024**2:,} MB of text: no conversation")
    if not body.strip():
        raise BadInput("empty")
    if b"\0" in body[:_BEGINNING]:
        raise BadInput("not text")
    return body.decode("utf-8-sig", "replace")


def _unpack_file(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return file.read(MOST + 1)
        with gzip.open(file) as unpacked:
            return unpacked.read(MOST + 1)


Job = TypeVar("Job")
Done = TypeVar("Done")
_PATIENCE = "10s"  # until a cluster must have answered


async def run_jobs(
    work: Callable[[Job], Done],
    jobs: Sequence[Job],
    executor: Executor | None,
    *,
    bar: Callable[[], None],
) -> list[Done]:
    """Run all jobs; results are in the order of the jobs.

    An interrupt waits at most for the job that runs in this process.
    """
    if executor is None:
        found: list[Done] = []
        for job in jobs:
            found.append(work(job))
            bar()
            await asyncio.sleep(0)  # lets an interrupt through
        return found
    futures = [asyncio.wrap_future(executor.submit(work, job)) for job in jobs]
    for future in futures:
        future.add_done_callback(lambda _: bar())
    try:
        return await asyncio.gather(*futures)
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def open_executor(
    *, jobs: int | None, cluster: str | None, most: int, worth: bool
) -> Generator[Executor | None]:
    """Open a cluster if one is named, else processes if they are worth starting, else None."""
    if cluster is not None:
        with _open_cluster(cluster) as remote:
            yield remote
        return
    if jobs is not None and jobs < 1:
        raise BadInput(f"--jobs {jobs}: at least one process must do the work; write --jobs 1")
    hands = min(jobs or os.cpu_count() or 1, most)
    if hands == 1 or (jobs is None and not worth):
        yield None
        return
    pool = ProcessPoolExecutor(
        hands, mp_context=get_context("spawn"), initializer=_block_interrupts
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():  # do not wait for half-done work
            child.terminate()
        raise
    pool.shutdown()


@contextmanager
def _open_cluster(address: str) -> Generator[Executor]:
    if find_spec("distributed") is None:
        raise BadInput(
            "--cluster needs 'distributed', which is not installed; pip install 'foldline[cluster]'"
        )
    distributed: Any = __import__("distributed")
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as fault:
        raise BadInput(
            f"no Dask scheduler answers at {address!r} "
            f"({' '.join(str(fault).split())[:80] or type(fault).__name__}); "
            "`dask scheduler` starts one and prints its address, as tcp://HOST:8786"
        ) from fault
    with client, client.get_executor() as remote:
        yield remote


def _block_interrupts() -> None:
    """Ignore Ctrl-C: the process that a person started ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def show_progress(
    title: str, total: int, unit: str, *, on: bool, timed: bool = True
) -> Generator[Callable[[], None]]:
    """Show a progress bar on stderr, if it is a terminal; call the yielded function per thing done.

    With `timed` it also estimates the time remaining.
    """
    if not on or total < 2 or not sys.stderr.isatty():  # noqa: PLR2004
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a bar needs it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(title),
        BarColumn(32 if timed else 40),
        MofNCompleteColumn(),
        TextColumn(unit),
        *([TimeRemainingColumn()] if timed else []),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda: shown.advance(task)


_BATCH = 500  # events that are appended, or compared, at a time
_LONGEST = 40  # letters of a name
_WORDS = 18  # letters of the first words, in the name of a file that is called by a number
_NUMBERED = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f]{4}-.*|.*[0-9a-f]{12}", re.IGNORECASE)
_NO_NAME = re.compile(r"[^\w.@-]+")
_TAGS = re.compile(r"<[^<>]{1,200}>")
_SHOWN = 5  # rows of a list that are shown, where there are many


@dataclass(frozen=True, slots=True)
class Taken:
    """A session, and what its file added to it."""

    session: str
    model: str
    added: int
    """New events."""
    events: int
    tokens: int
    file: str
    notes: list[str] = field(default_factory=list[str])


@make_command
async def take(
    desk: Desk,
    places: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER", help="Session files, or folders of them."),
    ],
    *,
    named: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Call it so; several are numbered.")
    ] = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Tell what each file held that events cannot.")
    ] = False,
) -> int:
    """Take in sessions that other agents left on disk.

    Of Claude Code, Codex, pi, gemini-cli, opencode and SWE-agent, chats as lists of messages, and
    what `export` wrote; files, or folders with all that is in them, packed (.gz) or not.

    What was taken before is not taken twice; a file that has grown adds what is new. A file that is
    no session is named, and does not stop the others.
    """
    found = collect_session_files(places)
    taken: list[Taken] = []
    passed = found.passed
    erased = False
    if not found.files:
        _must_be_found(places, passed)
    async with desk.open_store(make=True) as store:
        count = len(found.files)
        with show_progress("reading", count, "files", on=not desk.json, timed=False) as bar:
            for one in found.files:
                file = replace_surrogates(str(one.path))  # names on a disk need not be text
                try:
                    sessions = read(text_of(one.path), file)
                except FoldlineError as fault:
                    passed.append(FilesPassed(file, str(fault)))
                    sessions = list[Imported]()
                for at, session in enumerate(sessions):
                    name = replace_surrogates(named or name_of(session))
                    try:
                        taken.append(
                            await _append_session(store, Name(desk.tenant, name), session, file)
                        )
                    except Erased as fault:
                        erased = True
                        passed.append(FilesPassed(file, f"{fault}; --as gives it a new name"))
                    sessions[at] = Imported("", "", [], [])  # frees its memory
                bar()
    if not taken and not erased:
        _must_be_found(places, passed)
    desk.print_answer(
        {
            "store": desk.where,
            "sessions": [asdict(one) for one in taken],
            "passed": [asdict(one) for one in passed],
            "others": found.others,
        },
        lambda: _render_import(desk, taken, passed, notes=notes),
    )
    if not desk.json:
        _print_passed_files(passed, found.others)
    return DONE if taken else NOTHING


def _must_be_found(places: Sequence[Path], passed: Sequence[FilesPassed]) -> None:
    """Raise if files were named and none can be read; a folder may be empty."""
    if passed and not all(place.is_dir() for place in places):
        first, more = passed[0], len(passed) - 1
        rest = f"; nor can {format_count(more, 'other')} be read" if more else ""
        raise BadInput(f"{first.path}: {first.reason}{rest}")


def name_of(session: Imported) -> str:
    """Make a name to read and type: the file's own, or the first words and a number."""
    own = session.name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].removesuffix(".traj")
    own = _NO_NAME.sub("-", own).strip("-.")
    if own and not _NUMBERED.fullmatch(own) and len(own) <= _LONGEST:
        return own
    first = next(
        (one for one in session.events if log.by_user(one) and _extract_user_text(one)), None
    )
    said = clean_line(_TAGS.sub(" ", _extract_user_text(first))).lower()
    words: list[str] = []
    for word in re.findall(r"\w+", said):
        if words and sum(map(len, words)) + len(words) + len(word) > _WORDS:
            break
        words.append(word[:_WORDS])
    number = hashlib.sha256(session.name.encode()).hexdigest()[:6]
    return "-".join([*(words or ["session"]), number])


def _extract_user_text(event: Event | None) -> str:
    return render_parts(event.parts).strip() if isinstance(event, UserSaid) else ""


async def _append_session(store: Store, name: Name, session: Imported, file: str) -> Taken:
    """Append the new events of a session, under its name or the next free one."""
    first, number = name.session, 1
    draft = await _read_draft(store, name)
    while (new := draft.add_session(session)) is None:
        number += 1
        name = name._replace(session=f"{first}-{number}")
        draft = await _read_draft(store, name)
    events = draft.events
    digest = hashlib.sha256(b"\n".join(map(log.encode_event, events))).hexdigest()
    for at in range(len(events) - len(new), len(events), _BATCH):
        piece = slice(at, at + _BATCH)
        dated = event_log.build_draft(events[piece], draft.times[piece])
        await store.append(name, dated, after=at - 1, once=f"import {digest} {at}")
    tokens = sum(count_parts(one.parts) for one in new if isinstance(one, event_log.Said))
    return Taken(name.session, session.model, len(new), len(events), tokens, file, session.notes)


async def _read_draft(store: Store, name: Name) -> LogDraft:
    """Read what is in the store of a session; erased events fit no file."""
    end, stored = (await store.head(name)).seq, list[Event]()
    for lo in range(0, end + 1, _BATCH):
        found = await event_log.read_events(store, name, Range(lo, min(lo + _BATCH - 1, end)))
        stored += [one.event for one in found]
    if len(stored) != end + 1:
        stored = [Opened("erased")]
    return LogDraft.of_stored(stored)


def _render_import(
    desk: Desk, taken: list[Taken], passed: list[FilesPassed], *, notes: bool
) -> list[str]:
    new = [one for one in taken if one.added == one.events]
    grown = [one for one in taken if 0 < one.added < one.events]
    changed = [*new, *grown]
    lines = _render_sessions(changed if len(changed) <= 2 * _SHOWN else changed[:_SHOWN])
    if len(changed) > 2 * _SHOWN:
        lines.append(f"and {format_count(len(changed) - _SHOWN, 'other')}")
    if notes:
        notes_by_session = [(one.session, note) for one in taken for note in one.notes]
        lines += [
            truncate_line("note: ", f"{session}: {note}") for session, note in notes_by_session
        ]
    there = len(taken) - len(changed)
    events, tokens = sum(one.added for one in taken), sum(one.tokens for one in taken)
    total = (
        f"{format_count(len(new), 'new session')}, {format_count(events, 'event')}, "
        f"{tokens:,} tokens"
    )
    if grown:
        total += f"; {format_count(len(grown), 'session')} grown"
    if there:
        total += f"; {there:,} already there, nothing added"
    if passed:
        total += f"; {format_count(len(passed), 'file')} passed over"
    if not notes and (noted := sum(bool(one.notes) for one in changed)):
        total += f"; of {noted:,} the file held more than events can: --notes"
    lines += wrap_text(total)
    if taken:
        lines += wrap_text(f"in {desk.where} ({_format_store_size(desk.address)})")
    return lines


def _render_sessions(changed: list[Taken]) -> list[str]:
    if not changed:
        return []
    heads = (
        Column("session", most=29, whole=True),
        Column("new events", most=10, right=True),
        Column("tokens", most=10, right=True),
        Column("model", most=28),
    )
    rows = [(one.session, f"{one.added:,}", f"{one.tokens:,}", one.model) for one in changed]
    return render_table(heads, rows)


def _format_store_size(address: str) -> str:
    path = Path(address).expanduser()
    return format_size(path.stat().st_size) if path.is_file() else "in memory"


def _print_passed_files(passed: list[FilesPassed], others: int) -> None:
    for one in passed if len(passed) <= 2 * _SHOWN else passed[:_SHOWN]:
        for line in wrap_text(f"{one.path}: {one.reason}", title="foldline: "):
            sys.stderr.write(f"{line}\n")
    if len(passed) > 2 * _SHOWN:
        print_remark(f"and {len(passed) - _SHOWN:,} others; --json names each")
    if others:
        print_remark(f"{format_count(others, 'file')} with other endings not looked at")

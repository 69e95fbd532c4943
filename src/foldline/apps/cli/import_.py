"""`foldline import`: other agents' session files, and our own, into the store.

Knows names that people can type, and that a file which is read again adds only what is new. Refuses
to read records: that is `foldline.importers`.

A file's session is found again by its name. Where its first events are those of the file, the rest
is appended; where they are others, it is another session and has another name.
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.files import FilesPassed, text_of, under
from foldline.apps.cli.output import Column, remark, short, size, table, wrapped
from foldline.core import log
from foldline.core.log import Event, UserSaid
from foldline.core.parts import retold, sound
from foldline.core.saying import many
from foldline.core.spine import Range
from foldline.core.tokens import count_parts
from foldline.draw.text import clean
from foldline.errors import BadInput, Erased, FoldlineError
from foldline.importers import Imported, read
from foldline.stores import event_log
from foldline.stores.base import Name, Store

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_BATCH = 500  # events that are appended, or compared, at a time
_LONGEST = 40  # letters of a name
_WORDS = 18  # letters of its first words, where a file has only a number
_NUMBERED = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f]{4}-.*|.*[0-9a-f]{12}", re.IGNORECASE)
_NO_NAME = re.compile(r"[^\w.@-]+")
_TAGS = re.compile(r"<[^<>]{1,200}>")
_SHOWN = 5  # of each list, told one by one


@dataclass(frozen=True, slots=True)
class Taken:
    """One session, and what its file added to it."""

    session: str
    model: str
    added: int
    """Events that are new."""
    events: int
    tokens: int
    file: str
    notes: list[str] = field(default_factory=list[str])


@command
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

    Of Claude Code, Codex, pi and SWE-agent, chats of OpenAI's and Anthropic's form, and what
    `export` wrote; files, or folders with all that is in them, packed (.gz) or not.

    What was taken before is not taken twice; a file that has grown adds what is new. A file that is
    no session is named, and does not stop the others.
    """
    found = under(places)
    taken: list[Taken] = []
    passed = found.passed
    erased = False
    if not found.files:
        _must_be_found(places, passed)
    async with desk.store(make=True) as store:
        with _progress(len(found.files), on=not desk.json) as bar:
            for one in found.files:
                file = sound(str(one.path))  # a disk's names need not be text
                try:
                    sessions = read(text_of(one.path), file)
                except FoldlineError as fault:
                    passed.append(FilesPassed(file, str(fault)))
                    sessions = list[Imported]()
                for at, session in enumerate(sessions):
                    name = sound(named or name_of(session))
                    try:
                        taken.append(await _take(store, Name(desk.tenant, name), session, file))
                    except Erased as fault:
                        erased = True
                        passed.append(FilesPassed(file, f"{fault}; --as gives it a new name"))
                    sessions[at] = Imported("", "", [], [])  # its memory is free
                bar()
    if not taken and not erased:
        _must_be_found(places, passed)
    desk.answer(
        {
            "store": desk.where,
            "sessions": [asdict(one) for one in taken],
            "passed": [asdict(one) for one in passed],
            "others": found.others,
        },
        lambda: _told(desk, taken, passed, notes=notes),
    )
    if not desk.json:
        _remarks(passed, found.others)
    return DONE if taken else NOTHING


def _must_be_found(places: Sequence[Path], passed: Sequence[FilesPassed]) -> None:
    """Refuse files that were named and of which none can be read; a folder may hold nothing."""
    if passed and not all(place.is_dir() for place in places):
        first, more = passed[0], len(passed) - 1
        rest = f"; nor can {many(more, 'other')} be read" if more else ""
        raise BadInput(f"{first.path}: {first.reason}{rest}")


def name_of(session: Imported) -> str:
    """A name that a person can read and type: the file's own, or the first words and a number."""
    own = session.name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].removesuffix(".traj")
    own = _NO_NAME.sub("-", own).strip("-.")
    if own and not _NUMBERED.fullmatch(own) and len(own) <= _LONGEST:
        return own
    first = next((one for one in session.events if log.by_user(one) and _said(one)), None)
    said = clean(_TAGS.sub(" ", _said(first))).lower()
    words: list[str] = []
    for word in re.findall(r"\w+", said):
        if words and sum(map(len, words)) + len(words) + len(word) > _WORDS:
            break
        words.append(word[:_WORDS])
    number = hashlib.sha256(session.name.encode()).hexdigest()[:6]
    return "-".join([*(words or ["session"]), number])


def _said(event: Event | None) -> str:
    return retold(event.parts).strip() if isinstance(event, UserSaid) else ""


async def _take(store: Store, name: Name, session: Imported, file: str) -> Taken:
    """Append what is new of a session, under its name or the next that is free."""
    events, first, number = session.events, name.session, 1
    while not await _same(store, name, events, end=(end := (await store.head(name)).seq)):
        number += 1
        name = name._replace(session=f"{first}-{number}")
    digest = hashlib.sha256(b"\n".join(map(log.encode, events))).hexdigest()
    new = events[end + 1 :]
    for at in range(end + 1, len(events), _BATCH):
        piece = slice(at, at + _BATCH)
        dated = event_log.draft(events[piece], session.times[piece])
        await store.append(name, dated, after=at - 1, once=f"import {digest} {at}")
    tokens = sum(count_parts(one.parts) for one in new if isinstance(one, event_log.Said))
    return Taken(name.session, session.model, len(new), len(events), tokens, file, session.notes)


async def _same(store: Store, name: Name, events: Sequence[Event], *, end: int) -> bool:
    """Whether a session begins as some events do, as far as both go."""
    for lo in range(0, min(end + 1, len(events)), _BATCH):
        hi = min(lo + _BATCH - 1, end, len(events) - 1)
        kept = await event_log.read(store, name, Range(lo, hi))
        if [one.event for one in kept] != list(events[lo : hi + 1]):
            return False
    return True


def _progress(files: int, *, on: bool) -> "AbstractContextManager[Any]":
    """A bar that moves by a file, where somebody looks and there is something to wait for."""
    if not on or files < 2 or not sys.stderr.isatty():  # noqa: PLR2004
        return nullcontext(lambda: None)
    from rich.console import Console  # noqa: PLC0415 - only who waits needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("reading"), BarColumn(40), MofNCompleteColumn(), TextColumn("files"))
    return _Bar(Progress(*columns, console=Console(stderr=True), transient=True), files)


class _Bar:
    """Rich's bar as a call for each file."""

    def __init__(self, progress: Any, files: int) -> None:
        self._progress, self._files = progress, files

    def __enter__(self) -> Any:
        self._progress.start()
        task = self._progress.add_task("", total=self._files)
        return lambda: self._progress.advance(task)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _told(desk: Desk, taken: list[Taken], passed: list[FilesPassed], *, notes: bool) -> list[str]:
    new = [one for one in taken if one.added == one.events]
    grown = [one for one in taken if 0 < one.added < one.events]
    changed = [*new, *grown]
    lines = _table(changed if len(changed) <= 2 * _SHOWN else changed[:_SHOWN])
    if len(changed) > 2 * _SHOWN:
        lines.append(f"and {many(len(changed) - _SHOWN, 'other')}")
    if notes:
        told = [(one.session, note) for one in taken for note in one.notes]
        lines += [short("note: ", f"{session}: {note}") for session, note in told]
    there = len(taken) - len(changed)
    events, tokens = sum(one.added for one in taken), sum(one.tokens for one in taken)
    total = f"{many(len(new), 'new session')}, {many(events, 'event')}, {tokens:,} tokens"
    if grown:
        total += f"; {many(len(grown), 'session')} grown"
    if there:
        total += f"; {there:,} already there, nothing added"
    if passed:
        total += f"; {many(len(passed), 'file')} passed over"
    if not notes and (noted := sum(bool(one.notes) for one in changed)):
        total += f"; of {noted:,} the file held more than events can: --notes"
    lines += wrapped(total)
    return [*lines, *(wrapped(f"in {desk.where} ({_size(desk.address)})") if taken else [])]


def _table(changed: list[Taken]) -> list[str]:
    if not changed:
        return []
    heads = (
        Column("session", most=29, whole=True),
        Column("new events", most=10, right=True),
        Column("tokens", most=10, right=True),
        Column("model", most=28),
    )
    rows = [(one.session, f"{one.added:,}", f"{one.tokens:,}", one.model) for one in changed]
    return table(heads, rows)


def _size(address: str) -> str:
    path = Path(address).expanduser()
    return size(path.stat().st_size) if path.is_file() else "in memory"


def _remarks(passed: list[FilesPassed], others: int) -> None:
    for one in passed if len(passed) <= 2 * _SHOWN else passed[:_SHOWN]:
        for line in wrapped(f"{one.path}: {one.reason}", title="foldline: "):
            sys.stderr.write(f"{line}\n")
    if len(passed) > 2 * _SHOWN:
        remark(f"and {len(passed) - _SHOWN:,} others; --json names each")
    if others:
        remark(f"{many(others, 'file')} with other endings not looked at")

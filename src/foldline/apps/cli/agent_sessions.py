"""Find the sessions of the coding agents on this machine, the newest first.

Agents keep them below the user's home, or in a folder that a variable names. They are only read:
opencode's database is copied first, because SQLite writes beside a database that it opens.
"""

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from foldline.apps.cli.import_ import MOST, FilesPassed, Under, iterate_session_files, text_of
from foldline.apps.run.agent_setups import Surroundings
from foldline.core.log import Opened
from foldline.core.parts import replace_surrogates
from foldline.importers import claude_code, codex, gemini_cli, opencode, pi
from foldline.lab.recorded import Recorded

_NAMES = {
    claude_code.KIND: "Claude Code",
    codex.KIND: "Codex",
    pi.KIND: "pi",
    gemini_cli.KIND: "gemini-cli",
    opencode.KIND: "opencode",
}
_DATABASE = "opencode.db"


@dataclass(frozen=True, slots=True)
class AgentFolder:
    """Where an agent keeps its sessions."""

    agent: str
    path: Path


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A session that an agent keeps: a file, or rows of a database."""

    folder: AgentFolder
    place: str
    size: int
    changed: float
    row: str = ""
    """Its name in the database."""
    text: str = ""
    """What the database holds of it."""

    def read_text(self) -> str:
        """Read it; raises `BadInput` if it is no text."""
        return self.text if self.row else text_of(Path(self.place))


@dataclass(slots=True)
class AgentSessions:
    """What agents keep on this machine."""

    folders: list[AgentFolder]
    """Where sessions were looked for."""
    files: list[SessionFile] = field(default_factory=list[SessionFile])
    """What to read, the newest first."""
    left: list[SessionFile] = field(default_factory=list[SessionFile])
    """What is beyond the bound."""
    passed: list[FilesPassed] = field(default_factory=list[FilesPassed])


def find_agent_name(session: Recorded) -> str:
    """Return the name of the agent that wrote a session; "" if it was none of those known."""
    first = session.events[0] if session.events else None
    origin = first.origin if isinstance(first, Opened) else ""
    return _NAMES.get(origin.removeprefix("import:"), "")


def list_agent_folders(found: Surroundings) -> list[AgentFolder]:
    """List the folders in which agents keep their sessions, whether they exist or not."""
    codex_home = found.find_folder("CODEX_HOME", ".codex")
    return [
        AgentFolder("Claude Code", found.find_folder("CLAUDE_CONFIG_DIR", ".claude") / "projects"),
        AgentFolder("Codex", codex_home / "sessions"),
        AgentFolder("Codex", codex_home / "archived_sessions"),
        AgentFolder("pi", found.find_folder("PI_CODING_AGENT_DIR", ".pi", "agent") / "sessions"),
        AgentFolder("gemini-cli", found.find_folder("GEMINI_CLI_HOME") / ".gemini" / "tmp"),
        AgentFolder("opencode", found.find_folder("XDG_DATA_HOME", ".local", "share") / "opencode"),
    ]


def find_agent_sessions(found: Surroundings, bound: int) -> AgentSessions:
    """Find the newest sessions of all agents, as many as `bound` bytes hold."""
    sessions = AgentSessions(list_agent_folders(found))
    every: list[SessionFile] = []
    with ExitStack() as stack:
        databases: dict[AgentFolder, sqlite3.Connection] = {}
        for folder in sessions.folders:
            if folder.agent != "opencode":
                every += _iterate_files(folder, sessions.passed)
                continue
            path = folder.path / _DATABASE
            try:
                if path.exists():
                    databases[folder] = stack.enter_context(_open_copy(path))
                    every += _iterate_rows(folder, databases[folder])
            except (OSError, sqlite3.Error) as fault:
                reason = f"cannot be read: {fault}"
                sessions.passed.append(FilesPassed(replace_surrogates(str(path)), reason))
        for file in sorted(every, key=lambda one: (-one.changed, one.place)):
            if file.size > bound:
                sessions.left.append(file)
                continue
            bound -= file.size
            if file.row:
                text = _export_session(databases[file.folder], file.row)
                file = replace(file, text=text)  # noqa: PLW2901 - only those that are read
            sessions.files.append(file)
    return sessions


def _iterate_files(folder: AgentFolder, passed: list[FilesPassed]) -> Iterator[SessionFile]:
    for path in iterate_session_files(folder.path, Under([], passed)):
        if folder.agent == "gemini-cli" and "chats" not in path.parts:
            continue  # what it keeps beside its sessions
        try:
            known = path.stat()
        except OSError as fault:
            reason = fault.strerror or "cannot be read"
            passed.append(FilesPassed(replace_surrogates(str(path)), reason))
            continue
        yield SessionFile(folder, str(path), known.st_size, known.st_mtime)


@contextmanager
def _open_copy(path: Path) -> Generator[sqlite3.Connection]:
    """Open a copy of a database, with what its writer has not merged into it yet."""
    files = [one for one in (path, path.with_name(f"{path.name}-wal")) if one.exists()]
    if sum(file.stat().st_size for file in files) > MOST:
        raise OSError(f"larger than {MOST // 1024**2:,} MB; `opencode export` writes one session")
    with tempfile.TemporaryDirectory(prefix="foldline-") as place:
        for file in files:
            shutil.copyfile(file, Path(place) / file.name)
        with closing(sqlite3.connect(Path(place) / path.name)) as database:
            yield database


_SESSIONS = """
select session.id, session.time_updated,
    (select coalesce(sum(length(data)), 0) from part where session_id = session.id)
from session
"""
_MESSAGES = "select id, data from message where session_id = ? order by time_created, id"
_PARTS = "select message_id, data from part where session_id = ? order by id"


def _iterate_rows(folder: AgentFolder, database: sqlite3.Connection) -> Iterator[SessionFile]:
    for session, changed, size in database.execute(_SESSIONS):
        place = f"{folder.path / _DATABASE} {session}"
        yield SessionFile(folder, place, size, changed / 1_000, session)


def _export_session(database: sqlite3.Connection, session: str) -> str:
    """Write a session as `opencode export` does; one that cannot be read is empty."""
    parts: defaultdict[str, list[msgspec.Raw]] = defaultdict(list)
    try:
        for message, data in database.execute(_PARTS, (session,)):
            parts[message].append(msgspec.Raw(data.encode()))
        messages = [
            {"info": msgspec.Raw(data.encode()), "parts": parts[message]}
            for message, data in database.execute(_MESSAGES, (session,))
        ]
    except sqlite3.Error:
        return ""
    return msgspec.json.encode({"info": {"id": session}, "messages": messages}).decode()

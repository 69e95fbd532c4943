"""`foldline doctor`: check the installation, the settings and the store, and name remedies.

Nothing is written or mended. `doctor_postgres` checks servers.
"""

import asyncio
import os
import platform
import re
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import apsw
import typer

from foldline import __version__
from foldline.apps.cli.context import MEMORY, Desk, explain_missing_store, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import apply_style, format_size, wrap_text
from foldline.core.names import format_count
from foldline.errors import BadInput
from foldline.models.catalog import read_edition
from foldline.settings.layers import find_settings_files, list_problems
from foldline.stores.base import POSTGRES
from foldline.stores.sqlite.schema import APPLICATION, VERSION

Level: TypeAlias = Literal["ok", "warn", "bad"]
_COLOURS: dict[Level, Literal["green", "yellow", "red"]] = {
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}
_NAMED = 4  # names in a list; of more, only their number


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked: how it is (a key of the JSON answer), and the remedy."""

    level: Level
    what: str
    told: str
    todo: str = ""


def render_check(check: Check) -> list[str]:
    """Render a check for a person."""
    first, *rest = wrap_text(check.told, title=f"     {check.what:10} ")
    todo = wrap_text(check.todo, title=f"{'':14}→ ") if check.todo else []
    return [apply_style(f"{check.level:4}", _COLOURS[check.level]) + first[4:], *rest, *todo]


def describe_checks(checks: Sequence[Check]) -> str:
    """Count the checks of each level, in one line."""
    counts = Counter(check.level for check in checks)
    parts = [f"{counts[level]} {level}" for level in _COLOURS if counts[level]]
    return apply_style(", ".join(parts), "dim")


def join_names(names: Sequence[str]) -> str:
    """Join the first few names, and count the rest."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


_SECONDS = 3.0


async def explain_unreachable(url: str, *, option: str) -> str:
    """Say why an address cannot be reached, and the remedy; "" if it can.

    Raises `BadInput` if it is no HTTP address.
    """
    try:
        found = urlsplit(url)
        known = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        found, known = urlsplit(""), False
    if not known or not url.isprintable() or " " in url:
        raise BadInput(f"{url!r} is no address; write {option} http://127.0.0.1:8080/v1")
    # Without the login: it is secret, and urllib would take it for a part of the host's name.
    place = found._replace(netloc=found.netloc.rpartition("@")[2], query="").geturl()
    why = await asyncio.to_thread(_find_connection_fault, place)
    return f"{place} cannot be reached ({why}); start it, or correct {option}" if why else ""


def _find_connection_fault(url: str) -> str:
    try:
        urlopen(url, timeout=_SECONDS).close()  # noqa: S310 - http, as checked above
    except HTTPError:
        return ""  # it answers
    except URLError as fault:
        return getattr(fault.reason, "strerror", None) or str(fault.reason)
    except (OSError, ValueError, HTTPException):
        return ""  # it was reached, but does not speak HTTP
    return ""


_BRINGS = re.compile(r"([\w.-]+).*; extra == '([\w-]+)'")
_OLD = 180  # days after which prices and windows have likely changed
_JOURNAL = 64 * 1024 * 1024  # bytes; a reader that never ends makes a larger one


@make_command
async def doctor(
    desk: Desk,
    address: Annotated[
        str | None, typer.Argument(metavar="STORE", help="The store to look at.")
    ] = None,
) -> int:
    """Look whether all is well here, and say what to do if not."""
    place, given = address or desk.address, desk.given or address is not None
    if place.startswith(POSTGRES):
        shown, found = await _inspect_server(place, desk.tenant)
    else:
        shown, found = place, [*_inspect_store(place, given=given)]
    checks = [*_inspect_installation(), *_inspect_settings(), *found]
    bad = any(check.level == "bad" for check in checks)
    body = {"store": shown, "ok": not bad, "checks": [asdict(check) for check in checks]}
    desk.print_answer(
        body,
        lambda: [
            *(line for check in checks for line in render_check(check)),
            describe_checks(checks),
        ],
    )
    return NOTHING if bad else DONE


def _inspect_installation() -> Generator[Check]:
    yield Check("ok", "foldline", __version__)
    yield Check("ok", "python", f"{platform.python_version()} on {platform.system()}")
    yield Check("ok", "sqlite", f"{apsw.sqlite_lib_version()} by apsw {apsw.apsw_version()}")
    here, away = _split_extras(requires("foldline") or ())
    finding = "; ".join(
        f"{what}: {', '.join(names)}"
        for what, names in (("installed", here), ("not", away))
        if names
    )
    yield Check("ok", "extras", finding, "pip install 'foldline[NAME]' adds one" if away else "")
    known = read_edition()
    days = (datetime.now(tz=UTC).date() - date.fromisoformat(known.date)).days
    finding = f"{format_count(known.models, 'model')} of {known.date}, from {known.source}"
    todo = "prices may have changed: upgrade foldline" if days > _OLD else ""
    yield Check("warn" if todo else "ok", "catalogue", finding, todo)


def _inspect_settings() -> Generator[Check]:
    faults = list_problems(Path.cwd())
    for fault in faults:
        yield Check("bad", "settings", fault, "`foldline config check` tells when it is right")
    if not faults:
        read = [
            str(one) for one in find_settings_files(Path.cwd(), env=os.environ, faults=[]) if one
        ]
        yield Check("ok", "settings", ", ".join(read) or "no file sets any")


def _split_extras(required: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split our extras into those that are wholly installed and the others."""
    away: dict[str, bool] = {}
    for found in filter(None, map(_BRINGS.match, required)):
        package, extra = found.groups()
        away[extra] = away.get(extra, False) or not _is_installed(package)
    away.pop("all", None)  # it is the sum of the others
    return sorted(one for one in away if not away[one]), sorted(one for one in away if away[one])


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


async def _inspect_server(address: str, tenant: str) -> tuple[str, list[Check]]:
    """Return a server's address without secrets, and its checks."""
    try:
        from foldline.apps.cli.doctor_postgres import inspect_postgres  # noqa: PLC0415 - an extra
    except ImportError as fault:
        finding = f"a PostgreSQL address needs the extra `pg`, which is not here: {fault}"
        check = Check("bad", "store", finding, "pip install 'foldline[pg]'")
        return "postgresql://…", [check]
    return await inspect_postgres(address, tenant)


def _inspect_store(address: str, *, given: bool) -> Generator[Check]:
    path = Path(address).expanduser()
    if address == MEMORY:
        yield Check("ok", "store", "in memory: nothing is kept")
        return
    if not path.exists():
        level: Level = "bad" if given else "warn"
        yield Check(level, "store", f"{address} is not there", explain_missing_store(address))
        return
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(2_000)
        yield from _inspect_store_file(connection, path)
        connection.close()
    except apsw.Error as fault:
        todo = "give the path of a store, or restore it from a backup"
        yield Check("bad", "store", f"{address} cannot be read: {fault}", todo)


def _inspect_store_file(connection: apsw.Connection, path: Path) -> Generator[Check]:
    def fetch_value(statement: str) -> Any:
        return cast("Any", connection).execute(statement).fetchall()[0][0]

    if fetch_value("pragma application_id") != APPLICATION:
        todo = "name a file of foldline's"
        yield Check("bad", "store", f"{path} is no store of foldline", todo)
        return
    yield Check("ok", "store", f"{path}, {format_size(path.stat().st_size)}")
    schema = fetch_value("pragma user_version")
    newer, older = schema > VERSION, schema < VERSION
    todo = "upgrade foldline" if newer else "it is brought up to date when it is next opened"
    level: Level = "bad" if newer else "warn" if older else "ok"
    finding = f"{schema}, this release writes {VERSION}"
    yield Check(level, "schema", finding, todo if newer or older else "")
    if newer or older:
        return
    mode = fetch_value("pragma journal_mode")
    todo = "" if mode == "wal" else "no foldline wrote it so: is it on a network disk?"
    yield Check("warn" if todo else "ok", "journal", str(mode), todo)
    log = path.with_name(f"{path.name}-wal")
    waiting = log.stat().st_size if log.exists() else 0
    if waiting > _JOURNAL:
        finding = f"{format_size(waiting)} not merged yet"
        yield Check("warn", "journal", finding, "end the program that reads it for so long")
    state = fetch_value("pragma integrity_check(1)")
    if state == "ok":
        yield Check("ok", "integrity", "every page and index is sound")
    else:
        todo = "restore a backup; `foldline export` may still read some sessions"
        yield Check("bad", "integrity", str(state), todo)
    sessions = fetch_value("select count(*) from sessions")
    events = fetch_value("select count(*) from events")
    size = fetch_value("select total(length(body)) from events")
    size += fetch_value("select total(length(body)) from blobs")
    finding = f"{format_count(sessions, 'session')}, {format_count(events, 'event')}"
    yield Check("ok", "content", f"{finding}, {format_size(size)}")

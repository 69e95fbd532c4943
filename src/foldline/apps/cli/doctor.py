"""`foldline doctor`: whether all is well with this machine and this store, and what to do if not.

Knows what a store file should say of itself, and looks without writing; `doctor_postgres` knows it
of a server. Refuses to mend anything.
"""

import os
import platform
import re
from collections.abc import Generator, Iterable
from dataclasses import asdict
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Annotated, Any, cast

import apsw
import typer

from foldline import __version__
from foldline.apps.cli.checks import Check, Level, lines, summed
from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import size
from foldline.apps.cli.store_location import MEMORY, making
from foldline.core.saying import many
from foldline.models.catalog import edition
from foldline.settings.layers import places, problems
from foldline.stores.sqlite.schema import APPLICATION, VERSION
from foldline.stores.url import POSTGRES

_BRINGS = re.compile(r"([\w.-]+).*; extra == '([\w-]+)'")
_OLD = 180  # days after which prices and windows have changed
_JOURNAL = 64 * 1024 * 1024  # a larger one has a reader that never ends


@command
async def doctor(
    desk: Desk,
    address: Annotated[
        str | None, typer.Argument(metavar="STORE", help="The store to look at.")
    ] = None,
) -> int:
    """Look whether all is well here, and say what to do if not."""
    place, given = address or desk.address, desk.given or address is not None
    if place.startswith(POSTGRES):
        shown, found = await _server(place, desk.tenant)
    else:
        shown, found = place, [*_store(place, given=given)]
    checks = [*_house(), *_settings(), *found]
    bad = any(check.level == "bad" for check in checks)
    body = {"store": shown, "ok": not bad, "checks": [asdict(check) for check in checks]}
    desk.answer(
        body, lambda: [*(line for check in checks for line in lines(check)), summed(checks)]
    )
    return NOTHING if bad else DONE


def _house() -> Generator[Check]:
    yield Check("ok", "foldline", __version__)
    yield Check("ok", "python", f"{platform.python_version()} on {platform.system()}")
    yield Check("ok", "sqlite", f"{apsw.sqlite_lib_version()} by apsw {apsw.apsw_version()}")
    here, away = _extras(requires("foldline") or ())
    told = "; ".join(
        f"{what}: {', '.join(names)}"
        for what, names in (("installed", here), ("not", away))
        if names
    )
    yield Check("ok", "extras", told, "pip install 'foldline[NAME]' adds one" if away else "")
    known = edition()
    days = (datetime.now(tz=UTC).date() - date.fromisoformat(known.date)).days
    told = f"{many(known.models, 'model')} of {known.date}, from {known.source}"
    todo = "prices may have changed: upgrade foldline" if days > _OLD else ""
    yield Check("warn" if todo else "ok", "catalogue", told, todo)


def _settings() -> Generator[Check]:
    """Settings that are wrong keep `chat`, `serve` and others from beginning."""
    faults = problems(Path.cwd())
    for fault in faults:
        yield Check("bad", "settings", fault, "`foldline config check` tells when it is right")
    if not faults:
        read = [str(one) for one in places(Path.cwd(), env=os.environ, faults=[]) if one]
        yield Check("ok", "settings", ", ".join(read) or "no file sets any")


def _extras(required: Iterable[str]) -> tuple[list[str], list[str]]:
    """Our extras of which everything is installed, and the others: as our own package says."""
    away: dict[str, bool] = {}
    for found in filter(None, map(_BRINGS.match, required)):
        package, extra = found.groups()
        away[extra] = away.get(extra, False) or not _installed(package)
    away.pop("all", None)  # it is the others
    return sorted(one for one in away if not away[one]), sorted(one for one in away if away[one])


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


async def _server(address: str, tenant: str) -> tuple[str, list[Check]]:
    """A schema of PostgreSQL: as a message may show it, and what there is to say of it."""
    try:
        from foldline.apps.cli.doctor_postgres import examined  # noqa: PLC0415 - an extra
    except ImportError as fault:
        told = f"a PostgreSQL address needs the extra `pg`, which is not here: {fault}"
        check = Check("bad", "store", told, "pip install 'foldline[pg]'")
        return "postgresql://…", [check]
    return await examined(address, tenant)


def _store(address: str, *, given: bool) -> Generator[Check]:
    path = Path(address).expanduser()
    if address == MEMORY:
        yield Check("ok", "store", "in memory: nothing is kept")
        return
    if not path.exists():
        level: Level = "bad" if given else "warn"
        yield Check(level, "store", f"{address} is not there", making(address))
        return
    try:
        flags = apsw.SQLITE_OPEN_READONLY
        connection = apsw.Connection(str(path), flags=flags)
        connection.set_busy_timeout(2_000)
        yield from _file(connection, path)
        connection.close()
    except apsw.Error as fault:
        todo = "give the path of a store, or restore it from a backup"
        yield Check("bad", "store", f"{address} cannot be read: {fault}", todo)


def _file(connection: apsw.Connection, path: Path) -> Generator[Check]:
    def ask(statement: str) -> Any:
        return cast("Any", connection).execute(statement).fetchall()[0][0]

    if ask("pragma application_id") != APPLICATION:
        todo = "name a file of foldline's"
        yield Check("bad", "store", f"{path} is no store of foldline", todo)
        return
    yield Check("ok", "store", f"{path}, {size(path.stat().st_size)}")
    schema = ask("pragma user_version")
    newer, older = schema > VERSION, schema < VERSION
    todo = "upgrade foldline" if newer else "it is brought up to date when it is next opened"
    level: Level = "bad" if newer else "warn" if older else "ok"
    told = f"{schema}, this release writes {VERSION}"
    yield Check(level, "schema", told, todo if newer or older else "")
    if newer or older:
        return
    mode = ask("pragma journal_mode")
    todo = "" if mode == "wal" else "no foldline wrote it so: is it on a network disk?"
    yield Check("warn" if todo else "ok", "journal", str(mode), todo)
    log = path.with_name(f"{path.name}-wal")
    waiting = log.stat().st_size if log.exists() else 0
    if waiting > _JOURNAL:
        told, todo = f"{size(waiting)} not merged yet", "end the program that reads it for so long"
        yield Check("warn", "journal", told, todo)
    state = ask("pragma integrity_check(1)")
    if state == "ok":
        yield Check("ok", "integrity", "every page and index is sound")
    else:
        todo = "restore a backup; `foldline export` may still read some sessions"
        yield Check("bad", "integrity", str(state), todo)
    sessions, events = ask("select count(*) from sessions"), ask("select count(*) from events")
    body, blobs = (
        ask("select total(length(body)) from events"),
        ask("select total(length(body)) from blobs"),
    )
    told = f"{many(sessions, 'session')}, {many(events, 'event')}, {size(body + blobs)}"
    yield Check("ok", "content", told)

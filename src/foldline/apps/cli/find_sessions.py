"""Find the sessions for `foldline lab`: files, folders, names in the store, or what agents keep."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from foldline.apps.cli import context
from foldline.apps.cli.agent_sessions import (
    AgentSessions,
    find_agent_name,
    find_agent_sessions,
)
from foldline.apps.cli.context import Desk
from foldline.apps.cli.exit_codes import NothingFound, Unusable
from foldline.apps.cli.import_ import (
    FilesPassed,
    collect_session_files,
    name_of,
    show_progress,
    text_of,
)
from foldline.apps.cli.output import print_remark, wrap_text
from foldline.apps.run.agent_setups import Surroundings
from foldline.core.budget import UNKNOWN_WINDOW
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.core.prices import Prices
from foldline.errors import BadInput, FoldlineError
from foldline.importers import read
from foldline.lab.comparison import Case
from foldline.lab.recorded import Recorded, convert_imported, load_stored_session
from foldline.models.catalog import find
from foldline.session.stored_session import iterate_sessions
from foldline.stores.base import Name

_FOUR = 4
_LEAST_WINDOW = 256  # tokens: each call of a session would be planned in vain
_EXAMPLE = "--prices 3,0.3,3.75,15 (dollars per million: input, cached read, cache write, output)"
NO_ANSWER = "no answer of a model in it: nothing to replay"
_SHOWN = 5  # files that were passed over and are named, where there are many


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The prices and window to replay under; None is those of each session's model."""

    prices: Prices | None = None
    priced_as: str = ""
    window: int | None = None

    @property
    def fixed(self) -> tuple[str, ...]:
        """The names of what was given."""
        said = {"prices": self.prices is not None, "window": self.window is not None}
        return tuple(name for name, given in said.items() if given)


def parse_terms(prices: str | None, window: int | None) -> Terms:
    """Parse `--prices` and `--window`; raises `BadInput` for what cannot be used."""
    if window is not None and window < _LEAST_WINDOW:
        raise BadInput(
            f"a window of {window:,} tokens holds nothing that agents send; write --window 128000"
        )
    if prices is None:
        return Terms(window=window)
    given = replace_surrogates(prices).strip()
    four = tuple(_parse_number(one) for one in given.split(","))
    if len(four) == _FOUR and None not in four:
        fresh, cached, write, output = (one or 0.0 for one in four)
        if min(fresh, cached, write) <= 0 or output < 0:
            raise BadInput(
                f"--prices {given}: input, cached read and cache write must each cost more than "
                f"nothing, or no fold could be weighed; write {_EXAMPLE}"
            )
        return Terms(prices=Prices(fresh, cached, write, output), window=window)
    found = find(given)
    if not found.prices.is_known:
        raise BadInput(
            f"--prices {given!r} is neither four numbers nor a model with a price; write "
            f"{_EXAMPLE}, or a name that `foldline models` lists"
        )
    return Terms(prices=found.prices, priced_as=given, window=window)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


async def collect_cases(
    desk: Desk, given: Sequence[str], terms: Terms
) -> tuple[list[Case], list[FilesPassed]]:
    """Collect the named sessions, each under a unique name, and what was passed over."""
    paths = [Path(one) for one in given if _is_there(one)]
    names = [one for one in given if not _is_there(one)]
    found: list[tuple[str, Recorded]] = []
    passed: list[FilesPassed] = []
    if paths:
        found += _from_files(paths, passed, on=not desk.json)
    if names or not given:
        found += await _from_store(desk, names, passed)
    return _build_cases(found, passed, terms), passed


def collect_agent_cases(
    desk: Desk, terms: Terms, bound: int
) -> tuple[list[Case], list[FilesPassed], AgentSessions]:
    """Collect the newest sessions that agents keep on this machine, of so many bytes at most."""
    sessions = find_agent_sessions(Surroundings(os.environ, Path.home(), Path.cwd()), bound)
    passed = sessions.passed
    found: list[tuple[str, Recorded]] = []
    with show_progress("reading", len(sessions.files), "sessions", on=not desk.json) as bar:
        for one in sessions.files:
            found += _read_sessions(one.read_text, replace_surrogates(one.place), passed)
            bar()
    return _build_cases(found, passed, terms), passed, sessions


def _build_cases(
    found: Sequence[tuple[str, Recorded]], passed: list[FilesPassed], terms: Terms
) -> list[Case]:
    """Build the cases of sessions with their sources, each under a unique name."""
    cases: list[Case] = []
    taken: set[str] = set()
    for source, session in found:
        if not session.calls:
            place = source or f"session {session.name}"
            passed.append(FilesPassed(place, NO_ANSWER))
            continue
        name, number = session.name, 1
        while name in taken:
            number += 1
            name = f"{session.name}-{number}"
        taken.add(name)
        cases.append(_build_case(replace(session, name=name), source, terms))
    return cases


def _is_there(given: str) -> bool:
    try:
        return Path(given).exists()
    except (OSError, ValueError):
        return False


def _from_files(
    paths: Sequence[Path], passed: list[FilesPassed], *, on: bool
) -> list[tuple[str, Recorded]]:
    inside = collect_session_files(paths)
    passed += inside.passed
    found: list[tuple[str, Recorded]] = []
    with show_progress("reading", len(inside.files), "files", on=on) as bar:
        for one in inside.files:
            file = replace_surrogates(str(one.path))
            found += _read_sessions(partial(text_of, one.path), file, passed)
            bar()
    return found


def _read_sessions(
    read_text: Callable[[], str], source: str, passed: list[FilesPassed]
) -> list[tuple[str, Recorded]]:
    """Read the sessions of a text; a text that holds none is passed over."""
    try:
        sessions = read(read_text(), source)
    except FoldlineError as fault:
        passed.append(FilesPassed(source, str(fault)))
        sessions = []
    return [
        (source, replace(convert_imported(one), name=replace_surrogates(name_of(one))))
        for one in sessions
    ]


async def _from_store(
    desk: Desk, names: Sequence[str], passed: list[FilesPassed]
) -> list[tuple[str, Recorded]]:
    """Load sessions of the store: those named, else all."""
    found: list[tuple[str, Recorded]] = []
    try:
        async with desk.open_store() as store:
            if names:
                every = [
                    await context.resolve_session_name(store, desk.tenant, one) for one in names
                ]
            else:
                every = [
                    Name(desk.tenant, one.session)
                    async for one in iterate_sessions(store, desk.tenant)
                ]
            for name in dict.fromkeys(every):
                try:
                    found.append(("", await load_stored_session(store, name)))
                except FoldlineError as fault:
                    if names:
                        raise
                    passed.append(FilesPassed(f"session {name.session}", str(fault)))
    except NothingFound as fault:
        raise NothingFound(f"{fault}; and no file or folder is called so") from fault
    except Unusable as fault:
        if not names:
            raise
        raise NothingFound(
            f"{replace_surrogates(names[0])!r} is no file or folder here, and there is no store at "
            f"{desk.where} to look for a session of that name; "
            f"{context.explain_missing_store(desk.address)}"
        ) from fault
    return found


def _build_case(session: Recorded, source: str, terms: Terms) -> Case:
    known = find(session.model)
    own = terms.prices is None
    priced = own and known.prices.is_known
    return Case(
        session,
        known.prices if terms.prices is None else terms.prices,
        terms.window or known.window or UNKNOWN_WINDOW,
        source=source,
        agent=find_agent_name(session),
        priced_as=session.model if priced else terms.priced_as,
        window_assumed=terms.window is None and known.window is None,
    )


def print_passed_files(passed: Sequence[FilesPassed]) -> None:
    """Write to stderr what was passed over, and why."""
    for one in passed if len(passed) <= 2 * _SHOWN else passed[:_SHOWN]:
        for line in wrap_text(f"{one.path}: {one.reason}", title="foldline: "):
            sys.stderr.write(f"{line}\n")
    if len(passed) > 2 * _SHOWN:
        print_remark(
            f"and {format_count(len(passed) - _SHOWN, 'other')} passed over; --json names each"
        )

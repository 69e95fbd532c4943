"""The sessions that a person names for the lab: files, folders, or names of the own store.

Knows where each is found, and what it is priced by. Refuses to compare.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foldline.apps.cli import store_location
from foldline.apps.cli.context import Desk
from foldline.apps.cli.exit_codes import NothingFound, Unusable
from foldline.apps.cli.files import FilesPassed, text_of, under
from foldline.apps.cli.import_ import name_of
from foldline.apps.cli.output import remark, wrapped
from foldline.apps.cli.parallel import progress
from foldline.core.budget import UNKNOWN_WINDOW
from foldline.core.parts import sound
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.saying import many
from foldline.errors import BadInput, FoldlineError
from foldline.importers import read
from foldline.lab.comparison import Case
from foldline.lab.recorded import Recorded, imported
from foldline.lab.stored import stored
from foldline.models.catalog import find
from foldline.session.session_list import listed
from foldline.stores.base import Name

_FOUR = 4
_EXAMPLE = "--prices 3,0.3,3.75,15 (dollars per million: input, cached read, cache write, output)"
_SHOWN = 5  # of what was passed over, told one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What sessions are replayed under, where a person said so; None is as their model says."""

    prices: Prices | None = None
    priced_as: str = ""
    window: int | None = None

    @property
    def fixed(self) -> tuple[str, ...]:
        """What was said."""
        said = {"prices": self.prices is not None, "window": self.window is not None}
        return tuple(name for name, given in said.items() if given)


def terms(prices: str | None, window: int | None) -> Terms:
    """What a person said of prices and window."""
    if window is not None and window < 1:
        raise BadInput(f"a window of {window} tokens holds nothing; write --window 128000")
    if prices is None:
        return Terms(window=window)
    given = sound(prices).strip()
    four = tuple(_number(one) for one in given.split(","))
    if len(four) == _FOUR and None not in four:
        fresh, cached, write, output = (one or 0.0 for one in four)
        if min(fresh, cached, write) <= 0 or output < 0:
            raise BadInput(
                f"--prices {given}: input, cached read and cache write must each cost more than "
                f"nothing, or no fold could be weighed; write {_EXAMPLE}"
            )
        return Terms(prices=Prices(fresh, cached, write, output), window=window)
    found = find(given)
    if found.prices == UNKNOWN:
        raise BadInput(
            f"--prices {given!r} is neither four numbers nor a model with a price; write "
            f"{_EXAMPLE}, or a name that `foldline models` lists"
        )
    return Terms(prices=found.prices, priced_as=given, window=window)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


async def gather(
    desk: Desk, given: Sequence[str], terms: Terms
) -> tuple[list[Case], list[FilesPassed]]:
    """Every session that was named, under a name of its own, and what was passed over."""
    paths = [Path(one) for one in given if _is_there(one)]
    names = [one for one in given if not _is_there(one)]
    found: list[tuple[str, Recorded]] = []
    passed: list[FilesPassed] = []
    if paths:
        found += _from_files(paths, passed, on=not desk.json)
    if names or not given:
        found += await _from_store(desk, names, passed)
    cases: list[Case] = []
    taken: set[str] = set()
    for source, session in found:
        if not session.calls:
            place_ = source or f"session {session.name}"
            passed.append(FilesPassed(place_, "no answer of a model in it: nothing to replay"))
            continue
        name, number = session.name, 1
        while name in taken:
            number += 1
            name = f"{session.name}-{number}"
        taken.add(name)
        cases.append(_case(replace(session, name=name), source, terms))
    return cases, passed


def _is_there(given: str) -> bool:
    try:
        return Path(given).exists()
    except (OSError, ValueError):
        return False


def _from_files(
    paths: Sequence[Path], passed: list[FilesPassed], *, on: bool
) -> list[tuple[str, Recorded]]:
    inside = under(paths)
    passed += inside.passed
    found: list[tuple[str, Recorded]] = []
    with progress("reading", len(inside.files), "files", on=on) as bar:
        for one in inside.files:
            file = sound(str(one.path))
            try:
                sessions = read(text_of(one.path), file)
            except FoldlineError as fault:
                passed.append(FilesPassed(file, str(fault)))
                sessions = []
            found += [(file, replace(imported(one), name=sound(name_of(one)))) for one in sessions]
            bar()
    return found


async def _from_store(
    desk: Desk, names: Sequence[str], passed: list[FilesPassed]
) -> list[tuple[str, Recorded]]:
    """Sessions of the own store: those named, else all."""
    found: list[tuple[str, Recorded]] = []
    try:
        async with desk.store() as store:
            if names:
                every = [await store_location.named(store, desk.tenant, one) for one in names]
            else:
                every = [Name(desk.tenant, one.session) async for one in listed(store, desk.tenant)]
            for name in dict.fromkeys(every):
                try:
                    found.append(("", await stored(store, name)))
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
            f"{sound(names[0])!r} is no file or folder here, and there is no store at "
            f"{desk.where} to look for a session of that name; "
            f"{store_location.making(desk.address)}"
        ) from fault
    return found


def _case(session: Recorded, source: str, terms: Terms) -> Case:
    known = find(session.model)
    own = terms.prices is None
    priced = own and known.prices != UNKNOWN
    return Case(
        session,
        known.prices if terms.prices is None else terms.prices,
        terms.window or known.window or UNKNOWN_WINDOW,
        source=source,
        priced_as=session.model if priced else terms.priced_as,
        window_assumed=terms.window is None and known.window is None,
    )


def remarks(passed: Sequence[FilesPassed]) -> None:
    """What was passed over, beside the answer."""
    for one in passed if len(passed) <= 2 * _SHOWN else passed[:_SHOWN]:
        for line in wrapped(f"{one.path}: {one.reason}", title="foldline: "):
            sys.stderr.write(f"{line}\n")
    if len(passed) > 2 * _SHOWN:
        remark(f"and {many(len(passed) - _SHOWN, 'other')} passed over; --json names each")

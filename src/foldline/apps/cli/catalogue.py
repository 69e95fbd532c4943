"""`foldline models`: windows and prices, and what a model's name is taken for.

Knows how the catalogue, the user's own file and a server's word are shown beside each other.
Refuses to decide between them: `session.model_facts` does.
"""

from typing import Annotated, Any

import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import Column, table, wrapped
from foldline.apps.cli.reachable import unreached
from foldline.core.parts import sound
from foldline.core.prices import UNKNOWN
from foldline.models.catalog import Model, edition, find, names, why
from foldline.models.overrides import believed, place, said_of
from foldline.models.servers import Reported
from foldline.models.servers import ask as ask_server


@command
async def models(
    desk: Desk,
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="A name, or a part of names.")
    ] = None,
    ask: Annotated[
        str | None, typer.Option(metavar="URL", help="A server to ask what it says of the name.")
    ] = None,
) -> int:
    """List windows and prices; say what a name is taken for."""
    pattern = sound(pattern or "").strip()
    wanted = pattern.lower()
    found = [believed(name) for name in names() if wanted in name.lower()]
    taken = believed(pattern) if pattern else None
    said = await ask_server(ask, pattern) if ask else None
    fault = await unreached(ask, option="--ask") if ask and said is None else ""
    known = edition()
    body = {
        "source": known.source,
        "date": known.date,
        "models": [_body(one) for one in found],
        "resolved": None if taken is None else {**_body(taken), "why": why(taken.name)},
    }
    if ask:
        body["server"] = {"url": ask, **_said(said), "fault": fault or None}
    desk.answer(
        body,
        lambda: [
            *_table(found),
            *_resolved(taken),
            *(_heard(ask, said, fault) if ask else []),
            *_footer(len(found)),
        ],
    )
    exists = said or found or (taken is not None and taken.source != "default")
    return DONE if exists else NOTHING


def _body(one: Model) -> dict[str, Any]:
    priced = one.prices != UNKNOWN
    prices = one.prices
    return {
        "name": one.name,
        "window": one.window,
        "source": one.source,
        "max_input": one.max_input,
        "max_output": one.max_output,
        "input": prices.input if priced else None,
        "read": prices.read if priced else None,
        "write": prices.write if priced else None,
        "output": prices.output if priced else None,
        "step": prices.step,
        "assumed": prices.assumed if priced else None,
        "own": list(said_of(one.name)),
    }


def _table(found: list[Model]) -> list[str]:
    if not found:
        return []
    heads = (
        Column("model"),
        Column("window", most=9, right=True),
        Column("max in", most=9, right=True),
        Column("max out", most=8, right=True),
        Column("input", most=7, right=True),
        Column("cached", most=7, right=True),
        Column("output", most=7, right=True),
    )
    rows = [
        (
            one.name,
            _count(one.window),
            _count(one.max_input),
            _count(one.max_output),
            *(
                f"{price:g}" if one.prices != UNKNOWN else "-"
                for price in (one.prices.input, round(one.prices.read, 4), one.prices.output)
            ),
        )
        for one in found
    ]
    return table(heads, rows)


def _count(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"


def _resolved(taken: Model | None) -> list[str]:
    if taken is None:
        return []
    window = f"window {taken.window:,}" if taken.window else "window not known: 128,000 is assumed"
    lines = wrapped(f"{taken.name!r} {why(taken.name)}: {window}")
    if own := said_of(taken.name):
        before = find(taken.name).window
        lines += wrapped(
            f"your own file says its {', '.join(own)} ({place()}); "
            f"the catalogue's window is {_count(before)}"
        )
    return lines


def _said(said: Reported | None) -> dict[str, Any]:
    prices = said.prices if said else None
    return {
        "window": said.window if said else None,
        "max_output": said.max_output if said else None,
        "input": prices.input if prices else None,
        "output": prices.output if prices else None,
        "source": said.source if said else None,
    }


def _heard(url: str, said: Reported | None, fault: str) -> list[str]:
    if said is None:
        return wrapped(
            fault or f"{url} says nothing of it: is the address that of an API, as in …/v1?"
        )
    parts = [f"window {_count(said.window)}"]
    parts += [f"max out {said.max_output:,}"] if said.max_output else []
    if said.prices:
        parts.append(f"input {said.prices.input:g}, output {said.prices.output:g}")
    return wrapped(f"{url} says: {', '.join(parts)} ({said.source}); its word goes first")


def _footer(count: int) -> list[str]:
    known = edition()
    return wrapped(
        f"{count:,} of {known.models:,} models; dollars for a million tokens; "
        f"{known.source}, {known.date}"
    )

"""`foldline models`: windows and prices, and what a model's name is taken for.

Knows how the catalogue is shown. Refuses to ask anybody else.
"""

from typing import Annotated, Any

import typer

from foldline.cli.codes import DONE, NOTHING
from foldline.cli.desk import Desk, command
from foldline.cli.output import Column, table, wrapped
from foldline.core.parts import sound
from foldline.core.prices import UNKNOWN
from foldline.models.catalog import Model, edition, find, names, why


@command
async def models(
    desk: Desk,
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="A name, or a part of names.")
    ] = None,
) -> int:
    """List windows and prices; say what a name is taken for."""
    pattern = sound(pattern or "").strip()
    wanted = pattern.lower()
    found = [find(name) for name in names() if wanted in name.lower()]
    taken = find(pattern) if pattern else None
    known = edition()
    body = {
        "source": known.source,
        "date": known.date,
        "models": [_body(one) for one in found],
        "resolved": None if taken is None else {**_body(taken), "why": why(taken.name)},
    }
    desk.answer(body, lambda: [*_table(found), *_resolved(taken), *_footer(len(found))])
    exists = found or (taken is not None and taken.source != "default")
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
    return wrapped(f"{taken.name!r} {why(taken.name)}: {window}")


def _footer(count: int) -> list[str]:
    known = edition()
    return wrapped(
        f"{count:,} of {known.models:,} models; dollars for a million tokens; "
        f"{known.source}, {known.date}"
    )

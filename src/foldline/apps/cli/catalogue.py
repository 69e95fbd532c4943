"""`foldline models`: windows and prices, and the catalogue entry that a name resolves to.

Shows the catalogue, the user's own file and a server's answer; `session.model_facts` decides
between them.
"""

from typing import Annotated, Any

import typer

from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.doctor import explain_unreachable
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import Column, render_table, wrap_text
from foldline.core.parts import replace_surrogates
from foldline.models.catalog import (
    ModelEntry,
    explain_match,
    find,
    list_model_names,
    read_edition,
    resolve_model,
    resolve_overrides_path,
    said_of,
)
from foldline.models.servers import Reported
from foldline.models.servers import ask as ask_server


@make_command
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
    pattern = replace_surrogates(pattern or "").strip()
    wanted = pattern.lower()
    found = [resolve_model(name) for name in list_model_names() if wanted in name.lower()]
    taken = resolve_model(pattern) if pattern else None
    said = await ask_server(ask, pattern) if ask else None
    fault = await explain_unreachable(ask, option="--ask") if ask and said is None else ""
    known = read_edition()
    body = {
        "source": known.source,
        "date": known.date,
        "models": [_encode_model(one) for one in found],
        "resolved": None
        if taken is None
        else {**_encode_model(taken), "why": explain_match(taken.name)},
    }
    if ask:
        body["server"] = {"url": ask, **_encode_server_report(said), "fault": fault or None}
    desk.print_answer(
        body,
        lambda: [
            *_render_models(found),
            *_render_resolved_model(taken),
            *(_render_server_report(ask, said, fault) if ask else []),
            *_render_footer(len(found)),
        ],
    )
    exists = said or found or (taken is not None and taken.source != "default")
    return DONE if exists else NOTHING


def _encode_model(one: ModelEntry) -> dict[str, Any]:
    priced = one.prices.is_known
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
        "ends": one.ends,
        "own": list(said_of(one.name)),
    }


def _render_models(found: list[ModelEntry]) -> list[str]:
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
            _format_tokens(one.window),
            _format_tokens(one.max_input),
            _format_tokens(one.max_output),
            *(
                f"{price:g}" if one.prices.is_known else "-"
                for price in (one.prices.input, round(one.prices.read, 4), one.prices.output)
            ),
        )
        for one in found
    ]
    return render_table(heads, rows)


def _format_tokens(tokens: int | None) -> str:
    return "-" if tokens is None else f"{tokens:,}"


def _render_resolved_model(taken: ModelEntry | None) -> list[str]:
    if taken is None:
        return []
    window = f"window {taken.window:,}" if taken.window else "window not known: 128,000 is assumed"
    lines = wrap_text(f"{taken.name!r} {explain_match(taken.name)}: {window}")
    if taken.ends:
        when = "has ended" if taken.ends == "ended" else f"ends on {taken.ends}"
        lines += wrap_text(f"its maker says that it {when}; choose another for new work")
    if own := said_of(taken.name):
        before = find(taken.name).window
        lines += wrap_text(
            f"your own file says its {', '.join(own)} ({resolve_overrides_path()}); "
            f"the catalogue's window is {_format_tokens(before)}"
        )
    return lines


def _encode_server_report(said: Reported | None) -> dict[str, Any]:
    prices = said.prices if said and said.prices and said.prices.is_known else None
    return {
        "window": said.window if said else None,
        "max_output": said.max_output if said else None,
        "input": prices.input if prices else None,
        "output": prices.output if prices else None,
        "source": said.source if said else None,
    }


def _render_server_report(url: str, said: Reported | None, fault: str) -> list[str]:
    if said is None:
        return wrap_text(
            fault or f"{url} says nothing of it: is the address that of an API, as in …/v1?"
        )
    parts = [f"window {_format_tokens(said.window)}"]
    parts += [f"max out {said.max_output:,}"] if said.max_output else []
    if said.prices and said.prices.is_known:
        parts.append(f"input {said.prices.input:g}, output {said.prices.output:g}")
    return wrap_text(f"{url} says: {', '.join(parts)} ({said.source}); its word goes first")


def _render_footer(count: int) -> list[str]:
    known = read_edition()
    return wrap_text(
        f"{count:,} of {known.models:,} models; dollars for a million tokens; "
        f"{known.source}, {known.date}"
    )

"""`foldline sessions`, `show` and `context`: list sessions, and show what the model sees."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import asdict

from foldline.apps.cli.context import (
    Desk,
    Look,
    apply_look,
    complete_session_name,
    format_store_option,
    make_command,
    open_named_session,
)
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import (
    Column,
    escape_controls,
    format_age,
    format_size,
    has_colours,
    measure_terminal,
    render_table,
    truncate_line,
    wrap_text,
)
from foldline.core import log, recall
from foldline.core.fold_selection import explain_folding
from foldline.core.names import format_count
from foldline.core.parts import calls_of, render_parts
from foldline.core.view import shape
from foldline.draw import (
    Picture,
    build_picture,
    draw_picture_svg,
    draw_picture_terminal,
    encode_picture,
)
from foldline.errors import BadInput
from foldline.session.session import AsyncSession
from foldline.session.stored_session import Summary, iterate_summaries

_UNKNOWN = "unknown"  # the model of an imported file that names none
_SPAN = re.compile(r"(?:log:)?(\d{1,15})?(-)?(?:log:)?(\d{1,15})?")
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The session; the beginning of its name is enough.",
        autocompletion=complete_session_name,
    ),
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="POLICY", help="Look through another policy.")
]
WindowOption = Annotated[
    int | None, typer.Option("--window", metavar="TOKENS", help="Look through another window.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="Look through another model.")
]
SvgOption = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture as SVG.")
]
PngOption = Annotated[
    Path | None, typer.Option("--png", metavar="FILE", help="Write it as PNG: extra [png].")
]


@make_command
async def sessions(desk: Desk) -> int:
    """List the sessions, the last changed first."""
    async with desk.open_store() as store:
        found = [one async for one in iterate_summaries(store, desk.tenant)]
    found.sort(key=lambda one: one.happened, reverse=True)
    body = {"store": desk.where, "sessions": [_encode_summary(one) for one in found]}
    desk.print_answer(body, lambda: _render_sessions(desk, found))
    return DONE if found else NOTHING


def _encode_summary(one: Summary) -> dict[str, Any]:
    kept: dict[str, Any] = asdict(one.listed)
    events = kept.pop("head") + 1
    described = {"model": one.model, "turns": one.turns, "words": one.words, "fault": one.fault}
    described |= {"title": one.title, "happened": one.happened}
    return {**kept, "events": events, **described, "metadata": one.metadata}


def _render_sessions(desk: Desk, found: list[Summary]) -> list[str]:
    if not found:
        hint = f"`foldline import FILE{format_store_option(desk.address)}` takes some in"
        return wrap_text(f"no sessions in {desk.where}; {hint}")
    heads = (
        Column("session", most=24, whole=True),
        Column("model", most=15),
        Column("turns", most=5, right=True),
        Column("events", most=6, right=True),
        Column("size", most=6, right=True),
        Column("ago", most=4, right=True),
        Column("first words"),
    )
    rows = [
        (
            one.name,
            "-" if one.model == _UNKNOWN else one.model.rpartition("/")[2],
            str(one.turns),
            str(one.listed.head + 1),
            format_size(one.listed.size),
            format_age(one.happened),
            one.fault or one.title or one.words,
        )
        for one in found
    ]
    whole = sum(one.listed.size for one in found)
    total = f"{format_count(len(found), 'session')}, {format_size(whole)}, in {desk.where}"
    return [*render_table(heads, rows), *wrap_text(total)]


@make_command
async def show(  # noqa: PLR0913 - one for each way to look
    desk: Desk,
    name: NameArgument,
    handle: Annotated[
        str | None,
        typer.Argument(metavar="HANDLE", help="log:12, log:12-40, or a whole recall(…) call."),
    ] = None,
    *,
    span: Annotated[
        str | None, typer.Option("--log", metavar="LO-HI", help="The events of a stretch.")
    ] = None,
    head: Annotated[int | None, typer.Option(help="Of the handle: its first lines.")] = None,
    tail: Annotated[int | None, typer.Option(help="Of the handle: its last lines.")] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Of the handle: lines that match.")
    ] = None,
) -> None:
    """Show what the model sees now, or a handle's original."""
    if handle is None and (head is not None or tail is not None or grep is not None):
        raise BadInput("--head, --tail and --grep go with a handle: show NAME log:12 --tail 20")
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        if handle is not None:
            ways = {"head": head, "tail": tail, "grep": grep}
            await _print_original(desk, seen, handle, ways)
        elif span is not None:
            await _print_events(desk, seen, span)
        else:
            _print_view(desk, seen)


async def _print_original(
    desk: Desk, seen: AsyncSession, handle: str, ways: dict[str, Any]
) -> None:
    asked = handle
    if any(way is not None for way in ways.values()):
        asked = recall.render_call(recall.build_query(handle, **ways))
    text = await seen.recall(asked)
    desk.print_answer(
        {"session": seen.live.name.session, "handle": asked, "text": text},
        lambda: [escape_controls(text).removesuffix("\n")],
    )


async def _print_events(desk: Desk, seen: AsyncSession, span: str) -> None:
    found = _SPAN.fullmatch(span.strip())
    if found is None or not (found[1] or found[3]):
        raise BadInput(f"{span!r} is no stretch of the log; write --log 12-40, --log 12- or 12")
    end = seen.live.view.head
    lo = int(found[1] or 0)
    hi = int(found[3] or (end if found[2] else lo))
    if lo > hi or lo > end:
        raise BadInput(f"--log {span}: this log goes from 0 to {end}")
    events = await seen.history.events(lo, min(hi, end))
    desk.print_answer(
        {
            "session": seen.live.name.session,
            "events": [
                {"seq": seq, "event": msgspec.json.decode(log.encode_event(event))}
                for seq, event in events
            ],
        },
        lambda: [
            truncate_line(f"{seq:>6} {log.event_kind_of(event):14} ", describe_event(event))
            for seq, event in events
        ],
    )


def describe_event(event: log.Event) -> str:
    """Describe an event in a line: its words, or the fields of its JSON."""
    if isinstance(event, log.UserSaid | log.ModelSaid | log.ToolReturned):
        calls = " ".join(f"{call.name}({call.arguments})" for call in calls_of(event.parts))
        return f"{render_parts(event.parts)[:2_000]} {calls[:2_000]}".strip()
    if isinstance(event, log.Instructed):
        return f"{format_count(len(event.tools), 'tool')}; {render_parts(event.parts)[:2_000]}"
    body = msgspec.json.decode(log.encode_event(event), type=dict[str, Any])
    plain = {key: value for key, value in body.items() if isinstance(value, str | int | float)}
    return ", ".join(f"{key} {value}" for key, value in plain.items() if key != "kind")


def _print_view(desk: Desk, seen: AsyncSession) -> None:
    view = seen.live.view
    items = [
        {
            "seq": item.seq,
            "role": item.role,
            "state": item.state,
            "tokens": item.tokens,
            "call_id": item.call_id,
            "words": " ".join(render_parts(item.parts).split())[:200],
            "calls": [call.name for call in calls_of(item.parts)],
        }
        for item in (*view.items, *view.waiting)
    ]
    body = {"session": seen.live.name.session, "model": view.model, "items": items}
    desk.print_answer(
        body,
        lambda: [
            *(truncate_line("", line) for line in shape(view).split("\n") if line),
            *wrap_text(f"{format_count(len(items), 'item')} in the model's sight: {seen.report}"),
        ],
    )


@make_command
async def context(  # noqa: PLR0913 - one for each way to look
    desk: Desk,
    name: NameArgument,
    *,
    vector: SvgOption = None,
    pixels: PngOption = None,
    width: Annotated[
        int | None, typer.Option(metavar="COLUMNS", help="As wide as this.", min=20, max=500)
    ] = None,
    policy: PolicyOption = None,
    window: WindowOption = None,
    model: ModelOption = None,
) -> None:
    """Draw where the window goes: parts, tiers, cache, cost."""
    look = Look(policy=policy, window=window, model=model)
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
    view, facts = apply_look(seen, look)
    drawn, rule = build_picture(view, facts), explain_folding(view, facts)
    written = write_picture(draw_picture_svg(drawn), vector=vector, pixels=pixels)
    body = {"session": seen.live.name.session, **encode_picture(drawn), "rule": rule}
    body["written"] = written
    across = width or measure_terminal()
    desk.print_answer(
        body,
        lambda: (
            [f"wrote {one}" for one in written]
            or [
                *draw_picture_terminal(drawn, across, colour=has_colours()).splitlines(),
                *wrap_text(rule, title="rule    "),
                *_render_advice(drawn, seen),
            ]
        ),
    )


def _render_advice(drawn: Picture, seen: AsyncSession) -> list[str]:
    """Say what to do about a session that is too large to be sent."""
    name = seen.live.name.session
    steps = (f"`foldline plan {name}` says what would be folded", f"`foldline fold {name}` does it")
    return [line for step in steps for line in wrap_text(step, title=" " * 8)] if drawn.over else []


def write_picture(drawing: str, *, vector: Path | None, pixels: Path | None) -> list[str]:
    """Write a drawing as SVG and PNG where wanted; return the files' names."""
    if vector is not None:
        vector.write_text(drawing, encoding="utf-8")
    if pixels is not None:
        pixels.write_bytes(_encode_png(drawing))
    return [str(one) for one in (vector, pixels) if one is not None]


def _encode_png(drawing: str) -> bytes:
    try:
        import resvg_py  # noqa: PLC0415 - an extra of its own
    except ModuleNotFoundError:
        raise BadInput(
            "a PNG needs 'resvg-py', which is not installed: pip install 'foldline[png]'; "
            "--svg needs nothing"
        ) from None
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=2))

"""`foldline fold`, `undo`, `exclude` and `pin`: edit a session, and say what it saves and loses."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer

from foldline.apps.cli.context import Desk, make_command, open_named_session
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import truncate_line, wrap_text
from foldline.apps.cli.show import NameArgument
from foldline.core.budget import measure_budget
from foldline.core.edits.fold import Loss
from foldline.core.item import Item
from foldline.core.names import format_count, format_handle
from foldline.core.parts import render_parts, replace_surrogates
from foldline.core.request import Report, build_report
from foldline.session.session import AsyncSession
from foldline.session.stored_session import hold_stored_session

_SUMMARY = 40  # lines that are shown at once


def lost_lines(lost: Loss) -> list[str]:
    """Describe what a fold takes out of the model's sight."""
    lines = [line for one in str(lost).split("\n") for line in wrap_text(one, title=" " * 7)]
    if lost.pays_after is not None:
        lines += wrap_text(f"pays for itself after {lost.pays_after:.1f} calls", title=" " * 7)
    return lines


def summary_lines(lost: Loss, *, rest: str) -> list[str]:
    """Render the summary that now stands, and how much of the answer was left out of it.

    `rest` says how to see the lines that are too many for a screen.
    """
    lines = [line for one in lost.summary.splitlines() for line in wrap_text(one)]
    if len(lines) > _SUMMARY:
        more = f"… {format_count(len(lines) - _SUMMARY, 'more line')}: {rest}"
        lines = [*lines[:_SUMMARY], *wrap_text(more)]
    left_out = lost.describe_left_out()
    missing = f"without a narrative, {lost.no_summary}" if lost.no_summary else ""
    return [*lines, *(line for one in (left_out, missing) if one for line in wrap_text(one))]


@make_command
async def fold(  # noqa: PLR0913 - its options
    desk: Desk,
    name: NameArgument,
    *,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only say what would leave the model's sight.")
    ] = False,
    focus: Annotated[str, typer.Option(help="What to keep above all.")] = "",
    summarizer: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Have this model tell what is folded.")
    ] = None,
    template: Annotated[
        str, typer.Option(metavar="TEXT", help="Ask it so; file://PATH names a file.")
    ] = "",
) -> int:
    """Fold now what may be folded; `undo` takes it back."""
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        narrator = None
        if summarizer and not preview:
            from foldline.session.host import find_host  # noqa: PLC0415 - few ask for it
            from foldline.session.summaries import make_narrator  # noqa: PLC0415

            narrator = await make_narrator(summarizer, host=lambda: find_host(seen.live))
            if template:
                narrator.tellers = replace(narrator.tellers, template=template)
            seen.live.narrator = narrator
        before = _build_report(seen)
        if preview:
            lost = await seen.fold(preview=True)
        else:
            async with hold_stored_session(seen):
                lost = await seen.fold(focus=replace_surrogates(focus))
        then = _build_report(seen)
        narrative = narrator.last if narrator else None  # how asking for the narrative went
        if narrator:
            await narrator.close()
        edit = seen.edits[-1] if lost is not None and not preview else None
    body = {
        "session": seen.live.name.session,
        "folded": lost is not None and not preview,
        "preview": preview,
        "edit": edit,
        "tokens_before": before.total,
        "tokens_after": None if preview else then.total,
        "ratio": None if lost is None else round(lost.ratio, 2),
        "summary": "" if lost is None else lost.summary,
        "loss": None if lost is None else asdict(lost),
        "narrative": None
        if narrative is None
        else {"outcome": narrative.outcome, "reason": narrative.reason},
    }
    desk.print_answer(body, lambda: _render_fold(seen, lost, before=before, then=then, edit=edit))
    return DONE if lost is not None else NOTHING


def _build_report(seen: AsyncSession) -> Report:
    return build_report(seen.live.view, measure_budget(seen.live.view, seen.live.facts.limits))


def _render_fold(
    seen: AsyncSession, lost: Loss | None, *, before: Report, then: Report, edit: int | None
) -> list[str]:
    name = seen.live.name.session
    if lost is None:
        return wrap_text(f"nothing to fold in {name}: what is there is in use, or too little")
    lines = lost_lines(lost)
    if edit is None:
        return [*wrap_text(f"a fold of {name} would do this; nothing was written:"), *lines]
    rest = f"`foldline show {name} {format_handle(edit)}` shows all of it"
    return [
        *summary_lines(lost, rest=rest),
        *wrap_text(f"{before.total:,} tokens became {then.total:,} in {name}, edit {edit}:"),
        *lines,
        *wrap_text(f"`foldline undo {name}` takes it back"),
    ]


@make_command
async def undo(
    desk: Desk,
    name: NameArgument,
    edit: Annotated[
        int | None, typer.Argument(metavar="EDIT", help="Which edit; the newest if not said.")
    ] = None,
) -> None:
    """Take back an edit.

    The number that it prints, undone, makes the edit again.
    """
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        undone = edit if edit is not None else (seen.edits[-1] if seen.edits else None)
        before = _build_report(seen)
        async with hold_stored_session(seen):
            redo = await seen.undo(edit)
        then = _build_report(seen)
    session_name = seen.live.name.session
    body = {
        "session": session_name,
        "undone": undone,
        "redo": redo,
        "edits": seen.edits,
        "tokens_before": before.total,
        "tokens_after": then.total,
    }
    sentence = (
        f"edit {undone} taken back: {before.total:,} tokens became {then.total:,}; "
        f"`foldline undo {session_name} {redo}` makes it again"
    )
    desk.print_answer(body, lambda: wrap_text(sentence))


@make_command
async def exclude(
    desk: Desk,
    name: NameArgument,
    handles: Annotated[
        list[str], typer.Argument(metavar="HANDLE...", help="The messages: log:12, or 12.")
    ],
) -> None:
    """Take messages out of the model's sight; `undo` brings them back.

    No fold reads or quotes them any more. In the log they stay.
    """
    places = [f"log:{one}" if one.isdecimal() else one for one in handles]
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        before = _build_report(seen)
        async with hold_stored_session(seen):
            items = list_excluded_items(seen, places)
            edit = await seen.history.exclude(*places)
        then = _build_report(seen)
    session_name = seen.live.name.session
    body = {
        "session": session_name,
        "edit": edit,
        "excluded": [
            {"handle": format_handle(one.seq), "role": one.role, "tokens": one.tokens}
            for one in items
        ],
        "tokens_before": before.total,
        "tokens_after": then.total,
    }
    sentence = (
        f"edit {edit}: {before.total:,} tokens became {then.total:,}; "
        f"`foldline undo {session_name} {edit}` brings it back"
    )
    desk.print_answer(body, lambda: [*excluded_lines(items), *wrap_text(sentence)])


def list_excluded_items(seen: AsyncSession, places: Sequence[int | str]) -> list[Item]:
    """List the items in the model's sight that stand at some places."""
    from foldline.core import recall  # noqa: PLC0415 - few exclude anything

    seqs = {recall.parse_place(one) for one in places}
    view = seen.live.view
    return [one for one in (*view.items, *view.waiting) if one.seq in seqs]


def excluded_lines(items: Sequence[Item]) -> list[str]:
    """Describe what leaves the model's sight, one line per message."""
    return [
        truncate_line(
            f"out of sight: {format_handle(one.seq)} {one.role}, {one.tokens:,} tokens: ",
            " ".join(render_parts(one.parts)[:2_000].split()),
        )
        for one in items
    ]


@make_command
async def pin(
    desk: Desk,
    name: NameArgument,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="The message: log:12.")],
    *,
    off: Annotated[bool, typer.Option("--off", help="No longer.")] = False,
) -> None:
    """Keep a message verbatim through every fold."""
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        async with hold_stored_session(seen):
            await seen.pin(handle, on=not off)
    pins = sorted(seen.live.view.pins)
    pinned = ", ".join(f"log:{one}" for one in pins) or "none"
    desk.print_answer(
        {"session": seen.live.name.session, "handle": handle, "on": not off, "pins": pins},
        lambda: wrap_text(f"{handle} is {'no longer pinned' if off else 'pinned'}; pins: {pinned}"),
    )

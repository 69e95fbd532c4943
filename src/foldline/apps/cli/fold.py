"""`foldline fold`, `undo` and `pin`: edit a session, and say what it saves and loses."""

from dataclasses import asdict
from typing import Annotated

import typer

from foldline.apps.cli.context import Desk, make_command, open_named_session
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import wrap_text
from foldline.apps.cli.show import NameArgument
from foldline.core.budget import measure_budget
from foldline.core.edits.fold import Loss
from foldline.core.parts import replace_surrogates
from foldline.core.request import Report, build_report
from foldline.session.session import AsyncSession
from foldline.session.stored_session import hold_stored_session


def lost_lines(lost: Loss) -> list[str]:
    """Describe what a fold takes out of the model's sight."""
    lines = [line for one in str(lost).split("\n") for line in wrap_text(one, title=" " * 7)]
    if lost.pays_after is not None:
        lines += wrap_text(f"pays for itself after {lost.pays_after:.1f} calls", title=" " * 7)
    return lines


@make_command
async def fold(
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
) -> int:
    """Fold now what may be folded; `undo` takes it back."""
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        narrator = None
        if summarizer and not preview:
            from foldline.session.host import find_host  # noqa: PLC0415 - few ask for it
            from foldline.session.summaries import make_narrator  # noqa: PLC0415

            narrator = await make_narrator(summarizer, host=lambda: find_host(seen.live))
            seen.live.narrator = narrator
        before = _build_report(seen)
        if preview:
            lost = await seen.fold(preview=True)
        else:
            async with hold_stored_session(seen):
                lost = await seen.fold(focus=replace_surrogates(focus))
        then = _build_report(seen)
        told = narrator.last if narrator else None  # how asking for the narrative went
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
        "loss": None if lost is None else asdict(lost),
        "narrative": None if told is None else {"outcome": told.outcome, "reason": told.reason},
    }
    lines = (
        []
        if told is None or told.outcome == "told"
        else explain_missing_narrative(told.outcome, told.reason)
    )
    desk.print_answer(
        body,
        lambda: [*lines, *_render_fold(seen, lost, before=before, then=then, edit=edit)],
    )
    return DONE if lost is not None else NOTHING


def explain_missing_narrative(outcome: str, reason: str) -> list[str]:
    """Say why a fold has no narrative."""
    how = "asking for it failed" if outcome == "failed" else f"it was {outcome}"
    return wrap_text(f"without a narrative, {how}: {reason}")


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
    total = f"{before.total:,} tokens became {then.total:,} in {name}, edit {edit}:"
    return [*wrap_text(total), *lines, *wrap_text(f"`foldline undo {name}` takes it back")]


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
    told = (
        f"edit {undone} taken back: {before.total:,} tokens became {then.total:,}; "
        f"`foldline undo {session_name} {redo}` makes it again"
    )
    desk.print_answer(body, lambda: wrap_text(told))


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
    told = ", ".join(f"log:{one}" for one in pins) or "none"
    desk.print_answer(
        {"session": seen.live.name.session, "handle": handle, "on": not off, "pins": pins},
        lambda: wrap_text(f"{handle} is {'no longer pinned' if off else 'pinned'}; pins: {told}"),
    )

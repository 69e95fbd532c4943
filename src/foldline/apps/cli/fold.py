"""`fold`, `undo` and `pin`: doing something about a session, and saying what it did.

Knows how an edit is told: what it saves and what it loses. Refuses to decide one.
"""

from dataclasses import asdict
from typing import Annotated

import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import wrapped
from foldline.apps.cli.show import NameArgument
from foldline.apps.cli.store_location import named
from foldline.core.budget import measure
from foldline.core.edits.fold import Loss
from foldline.core.parts import sound
from foldline.core.request import Report, report
from foldline.session.session import AsyncSession
from foldline.session.stored_session import held, left


def lost_lines(lost: Loss) -> list[str]:
    """What a fold takes out of sight, for people."""
    lines = [line for one in str(lost).split("\n") for line in wrapped(one, title=" " * 7)]
    if lost.pays_after is not None:
        lines += wrapped(f"pays for itself after {lost.pays_after:.1f} calls", title=" " * 7)
    return lines


@command
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
    async with desk.store() as store:
        seen = await left(store, await named(store, desk.tenant, name))
        narrator = None
        if summarizer and not preview:
            from foldline.session.host import find_host  # noqa: PLC0415 - few ask for it
            from foldline.session.summaries import preparing  # noqa: PLC0415

            narrator = await preparing(summarizer, host=lambda: find_host(seen.live))
            seen.live.narrator = narrator
        before = _now(seen)
        if preview:
            lost = await seen.fold(preview=True)
        else:
            async with held(seen):
                lost = await seen.fold(focus=sound(focus))
        then = _now(seen)
        told = narrator.last if narrator else None
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
    lines = [] if told is None or told.outcome == "told" else untold(told.outcome, told.reason)
    desk.answer(
        body,
        lambda: [*lines, *_folded(seen, lost, before=before, then=then, edit=edit)],
    )
    return DONE if lost is not None else NOTHING


def untold(outcome: str, reason: str) -> list[str]:
    """Why a fold has no narrative."""
    how = "asking for it failed" if outcome == "failed" else f"it was {outcome}"
    return wrapped(f"without a narrative, {how}: {reason}")


def _now(seen: AsyncSession) -> Report:
    return report(seen.live.view, measure(seen.live.view, seen.live.facts.limits))


def _folded(
    seen: AsyncSession, lost: Loss | None, *, before: Report, then: Report, edit: int | None
) -> list[str]:
    name = seen.live.name.session
    if lost is None:
        return wrapped(f"nothing to fold in {name}: what is there is in use, or too little")
    lines = lost_lines(lost)
    if edit is None:
        return [*wrapped(f"a fold of {name} would do this; nothing was written:"), *lines]
    total = f"{before.total:,} tokens became {then.total:,} in {name}, edit {edit}:"
    return [*wrapped(total), *lines, *wrapped(f"`foldline undo {name}` takes it back")]


@command
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
    async with desk.store() as store:
        seen = await left(store, await named(store, desk.tenant, name))
        undone = edit if edit is not None else (seen.edits[-1] if seen.edits else None)
        before = _now(seen)
        async with held(seen):
            redo = await seen.undo(edit)
        then = _now(seen)
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
    desk.answer(body, lambda: wrapped(told))


@command
async def pin(
    desk: Desk,
    name: NameArgument,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="The message: log:12.")],
    *,
    off: Annotated[bool, typer.Option("--off", help="No longer.")] = False,
) -> None:
    """Keep a message verbatim through every fold."""
    async with desk.store() as store:
        seen = await left(store, await named(store, desk.tenant, name))
        async with held(seen):
            await seen.pin(handle, on=not off)
    pins = sorted(seen.live.view.pins)
    told = ", ".join(f"log:{one}" for one in pins) or "none"
    desk.answer(
        {"session": seen.live.name.session, "handle": handle, "on": not off, "pins": pins},
        lambda: wrapped(f"{handle} is {'no longer pinned' if off else 'pinned'}; pins: {told}"),
    )

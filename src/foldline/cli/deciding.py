"""`plan`, `fold`, `undo` and `pin`: what would be done about a session, and doing it.

Knows how a decision is told: what, why, what it saves and what it loses. Refuses to make one.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from foldline.cli.codes import DONE, NOTHING, TOO_LARGE
from foldline.cli.desk import Desk, command
from foldline.cli.looking import ModelOption, NameArgument, WindowOption
from foldline.cli.output import Column, many, paint, table, wrapped
from foldline.cli.place import Look, named, sight
from foldline.core import log
from foldline.core.budget import measure
from foldline.core.edits.fold import Loss, loss
from foldline.core.log import Event, Folded, Interrupted, Masked
from foldline.core.parts import sound
from foldline.core.plan import Facts, Ready, after
from foldline.core.request import Report, report
from foldline.core.view import View
from foldline.draw import Picture, picture
from foldline.draw.picture import KINDS
from foldline.errors import Overflow
from foldline.run.left import held, left
from foldline.run.live import Live
from foldline.run.session import AsyncSession

_WHY = {
    "": "no reason was recorded",
    "forced": "it must: the window is nearly full",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache is cold: it costs nothing now",
    "due": "the policy's own rule asks for it",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One thing that would be done."""

    kind: str
    what: str
    why: str
    saves: int
    lost: Loss | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a policy would do now, and what would be sent then; `fault` where nothing fits."""

    policy: str
    before: Picture
    after: Picture | None
    edits: tuple[Edit, ...]
    fault: str = ""
    due: bool = False


@command
async def plan(
    desk: Desk,
    name: NameArgument,
    *,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="POLICY", help="By this policy; twice to compare."),
    ] = None,
    window: WindowOption = None,
    model: ModelOption = None,
) -> int:
    """Say what would be sent now, edited first, and why.

    Nothing is written. With two policies, both stand side by side.
    """
    async with desk.store() as store:
        seen = await left(store, await named(store, desk.tenant, name))
        looks = [Look(policy=one, window=window, model=model) for one in policies or (None,)]
        found = [await _outlook(seen, look) for look in looks]
    body = {
        "session": seen.live.name.session,
        "model": found[0].before.model,
        "plans": [_body(one) for one in found],
    }
    desk.answer(body, lambda: _one(found[0]) if len(found) == 1 else _beside(found))
    return TOO_LARGE if all(one.fault for one in found) else DONE


async def _outlook(seen: AsyncSession, look: Look) -> Outlook:
    view, facts = sight(seen, look)
    before = picture(view, facts)
    live = Live(seen.live.store, seen.live.name, view=view, facts=facts)
    try:
        ready = await live.plan(facts)
    except Overflow as fault:
        return Outlook(facts.policy.name, before, None, (), fault=str(fault))
    then = picture(after(view, ready.events), facts)
    edits = tuple(_edits(view, ready, facts))
    return Outlook(facts.policy.name, before, then, edits, due=ready.report.due)


def _edits(view: View, ready: Ready, facts: Facts) -> list[Edit]:
    found: list[Edit] = []
    for at, event in enumerate(ready.events):
        here = after(view, ready.events[:at])
        then = after(here, [event])
        saves = measure(here, facts.limits).request - measure(then, facts.limits).request
        found.append(_edit(here, event, saves))
    return found


def _edit(here: View, event: Event, saves: int) -> Edit:
    match event:
        case Folded():
            span = event.change.span
            what = f"log:{span.lo}-{span.hi}, {many(event.messages, 'message')}"
            return Edit("fold", what, _WHY[event.why], saves, loss(here, event))
        case Masked(stubs):
            return Edit("mask", many(len(stubs), "result"), "they are old in this turn", saves)
        case Interrupted(call_id):
            return Edit("close", f"call {call_id}", "it has no result", saves)
        case _:
            return Edit(log.kind(event), "", "", saves)


def _body(one: Outlook) -> dict[str, Any]:
    then = one.after
    return {
        "policy": one.policy,
        "fits": not one.fault,
        "fault": one.fault,
        "due": one.due,
        "tokens_before": one.before.total,
        "tokens_after": None if then is None else then.total,
        "window": one.before.window,
        "pressure_before": one.before.pressure,
        "pressure_after": None if then is None else then.pressure,
        "cost_before": one.before.cost and one.before.cost.dollars,
        "cost_after": then and then.cost and then.cost.dollars,
        "edits": [_edit_body(edit) for edit in one.edits],
    }


def _edit_body(edit: Edit) -> dict[str, Any]:
    lost = None if edit.lost is None else asdict(edit.lost)
    return {
        "kind": edit.kind,
        "what": edit.what,
        "why": edit.why,
        "saves": edit.saves,
        "loss": lost,
    }


def _one(found: Outlook) -> list[str]:
    before = found.before
    lines = wrapped(f"policy {found.policy}, {before.model}, nothing is written")
    lines += wrapped(_sent(before), title="now    ")
    if found.fault:
        return [*lines, *wrapped(found.fault, title="full   ")]
    if not found.edits:
        waits = "; a fold is due and waits for `foldline fold`" if found.due else ""
        return [*lines, *wrapped(f"none: it is sent as it stands{waits}", title="edits  ")]
    for edit in found.edits:
        lines += wrapped(
            f"{edit.what}: {edit.saves:,} tokens fewer; {edit.why}", title=f"{edit.kind:6} "
        )
        lines += [] if edit.lost is None else lost_lines(edit.lost)
    return [*lines, *(wrapped(_sent(found.after), title="then   ") if found.after else [])]


def _sent(drawn: Picture) -> str:
    sizes = [(kind, sum(run.tokens for run in drawn.of(kind))) for kind in KINDS]
    parts = ", ".join(f"{kind} {tokens:,}" for kind, tokens in sizes if tokens)
    cost = f", ${drawn.cost.dollars:.4f} for its input" if drawn.cost else ""
    return (
        f"{drawn.total:,} of {drawn.window:,} tokens ({drawn.percent:.1f}%, "
        f"pressure {drawn.pressure}){cost}: {parts}"
    )


def lost_lines(lost: Loss) -> list[str]:
    """What a fold takes out of sight, for people."""
    lines = [line for one in str(lost).split("\n") for line in wrapped(one, title=" " * 7)]
    if lost.pays_after is not None:
        lines += wrapped(f"pays for itself after {lost.pays_after:.1f} calls", title=" " * 7)
    return lines


def _beside(found: list[Outlook]) -> list[str]:
    first = found[0].before
    heads = [Column("nothing is written", most=26)]
    heads += [Column(one.policy, most=24, right=True) for one in found]
    rows: list[list[str]] = [
        ["tokens now", *(f"{one.before.total:,}" for one in found)],
        ["pressure now", *(one.before.pressure for one in found)],
        ["edits", *(_kinds(one) for one in found)],
        ["why", *(_whys(one) for one in found)],
        ["tokens then", *(f"{one.after.total:,}" if one.after else "too large" for one in found)],
        ["pressure then", *(one.after.pressure if one.after else "-" for one in found)],
        ["input of the next call", *(_dollars(one.after) for one in found)],
        ["messages out of sight", *(str(_out(one)) for one in found)],
        ["messages kept verbatim", *(str(_kept(one)) for one in found)],
    ]
    title = f"{first.model}, window {first.window:,}"
    return [paint(title, "strong"), *table(heads, rows)]


def _kinds(one: Outlook) -> str:
    return ", ".join(edit.kind for edit in one.edits) or ("-" if one.fault else "none")


def _whys(one: Outlook) -> str:
    folds = [edit.why.partition(":")[0] for edit in one.edits if edit.lost is not None]
    return folds[0] if folds else "waits for you" if one.due else "-"


def _dollars(drawn: Picture | None) -> str:
    return f"${drawn.cost.dollars:.4f}" if drawn and drawn.cost else "-"


def _out(one: Outlook) -> int:
    return sum(len(left) for edit in one.edits if edit.lost for left in edit.lost.left.values())


def _kept(one: Outlook) -> int:
    return sum(edit.lost.quoted for edit in one.edits if edit.lost)


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
            from foldline.run.preparing import preparing  # noqa: PLC0415 - few ask for it

            seen.live.narrator = narrator = await preparing(summarizer)
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

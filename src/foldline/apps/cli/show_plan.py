"""`foldline plan`: what a policy would do about a session now, why, and what it would lose.

Nothing is written to the log.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from foldline.apps.cli.context import (
    Desk,
    Look,
    apply_look,
    make_command,
    open_named_session,
)
from foldline.apps.cli.exit_codes import DONE, TOO_LARGE
from foldline.apps.cli.fold import lost_lines
from foldline.apps.cli.output import Column, apply_style, render_table, wrap_text
from foldline.apps.cli.show import (
    ModelOption,
    NameArgument,
    PngOption,
    SvgOption,
    WindowOption,
    write_picture,
)
from foldline.core import log
from foldline.core.budget import measure_budget
from foldline.core.edits.fold import Loss, measure_loss
from foldline.core.log import Event, Folded, Interrupted, Masked
from foldline.core.names import format_count
from foldline.core.plan import Facts, Ready, after
from foldline.core.view import View
from foldline.draw import Picture, build_picture
from foldline.draw.change_svg import change_svg
from foldline.draw.picture import KINDS
from foldline.errors import BadInput, Overflow
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.session.session import AsyncSession

_WHY = {
    "": "no reason was recorded",
    "forced": "it must: the window is nearly full",
    "full": "it must: the window is full, and it cannot be sent otherwise",
    "pays": "it pays: fewer tokens are read from now on",
    "cold": "the cache is cold: it costs nothing now",
    "due": "the policy's own rule asks for it",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that would be made."""

    kind: str
    what: str
    why: str
    saves: int
    lost: Loss | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a policy would do now, and what would be sent then; `fault` if nothing fits."""

    policy: str
    before: Picture
    after: Picture | None
    edits: tuple[Edit, ...]
    fault: str = ""
    due: bool = False


@make_command
async def plan(  # noqa: PLR0913 - one for each way to look
    desk: Desk,
    name: NameArgument,
    *,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="POLICY", help="By this policy; twice to compare."),
    ] = None,
    window: WindowOption = None,
    model: ModelOption = None,
    vector: SvgOption = None,
    pixels: PngOption = None,
) -> int:
    """Say what would be sent now, edited first, and why.

    Nothing is written to the log. Two policies stand side by side; a picture shows one, before and
    after.
    """
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        looks = [Look(policy=one, window=window, model=model) for one in policies or (None,)]
        found = [await _build_outlook(seen, look) for look in looks]
    body = {
        "session": seen.live.name.session,
        "model": found[0].before.model,
        "plans": [_encode_outlook(one) for one in found],
    }
    written = _write_change_picture(found, vector=vector, pixels=pixels)
    desk.print_answer(
        {**body, "written": written},
        lambda: (
            [f"wrote {one}" for one in written]
            or (_render_outlook(found[0]) if len(found) == 1 else _render_comparison(found))
        ),
    )
    return TOO_LARGE if all(one.fault for one in found) else DONE


def _write_change_picture(
    found: list[Outlook], *, vector: Path | None, pixels: Path | None
) -> list[str]:
    if vector is None and pixels is None:
        return []
    if len(found) > 1:
        raise BadInput("a picture shows one policy, before and after: leave out the others")
    one = found[0]
    if one.after is None:
        raise BadInput(f"there is no after to draw: {one.fault}")
    lost = next((edit.lost for edit in one.edits if edit.lost is not None), None)
    drawing = change_svg(one.before, one.after, lost=lost)
    return write_picture(drawing, vector=vector, pixels=pixels)


async def _build_outlook(seen: AsyncSession, look: Look) -> Outlook:
    view, facts = apply_look(seen, look)
    before = build_picture(view, facts)
    live = Live(seen.live.store, seen.live.name, view=view, facts=facts)
    try:
        ready = await planning.plan_next_request(live, facts)
    except Overflow as fault:
        return Outlook(facts.policy.name, before, None, (), fault=str(fault))
    then = build_picture(after(view, ready.events), facts)
    edits = tuple(_collect_edits(view, ready, facts))
    return Outlook(facts.policy.name, before, then, edits, due=ready.report.due)


def _collect_edits(view: View, ready: Ready, facts: Facts) -> list[Edit]:
    found: list[Edit] = []
    for at, event in enumerate(ready.events):
        here = after(view, ready.events[:at])
        then = after(here, [event])
        saves = (
            measure_budget(here, facts.limits).request - measure_budget(then, facts.limits).request
        )
        found.append(_make_edit(here, event, saves))
    return found


def _make_edit(here: View, event: Event, saves: int) -> Edit:
    match event:
        case Folded():
            span = event.change.span
            what = f"log:{span.lo}-{span.hi}, {format_count(event.messages, 'message')}"
            return Edit("fold", what, _WHY[event.why], saves, measure_loss(here, event))
        case Masked(stubs):
            return Edit(
                "mask", format_count(len(stubs), "result"), "they are old in this turn", saves
            )
        case Interrupted(call_id):
            return Edit("close", f"call {call_id}", "it has no result", saves)
        case _:
            return Edit(log.event_kind_of(event), "", "", saves)


def _encode_outlook(one: Outlook) -> dict[str, Any]:
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
    body = asdict(edit)
    body["loss"] = body.pop("lost")
    return body


def _render_outlook(found: Outlook) -> list[str]:
    before = found.before
    lines = wrap_text(f"policy {found.policy}, {before.model}, nothing is written")
    lines += wrap_text(_describe_request(before), title="now    ")
    if found.fault:
        return [*lines, *wrap_text(found.fault, title="full   ")]
    if not found.edits:
        waits = "; a fold is due and waits for `foldline fold`" if found.due else ""
        return [*lines, *wrap_text(f"none: it is sent as it stands{waits}", title="edits  ")]
    for edit in found.edits:
        lines += wrap_text(
            f"{edit.what}: {edit.saves:,} tokens fewer; {edit.why}", title=f"{edit.kind:6} "
        )
        lines += [] if edit.lost is None else lost_lines(edit.lost)
    return [
        *lines,
        *(wrap_text(_describe_request(found.after), title="then   ") if found.after else []),
    ]


def _describe_request(drawn: Picture) -> str:
    sizes = [(kind, sum(run.tokens for run in drawn.select_runs(kind))) for kind in KINDS]
    parts = ", ".join(f"{kind} {tokens:,}" for kind, tokens in sizes if tokens)
    cost = f", ${drawn.cost.dollars:.4f} for its input" if drawn.cost else ""
    return (
        f"{drawn.total:,} of {drawn.window:,} tokens ({drawn.percent:.1f}%, "
        f"pressure {drawn.pressure}){cost}: {parts}"
    )


def _render_comparison(found: list[Outlook]) -> list[str]:
    first = found[0].before
    heads = [Column("nothing is written", most=26)]
    heads += [Column(one.policy, most=24, right=True) for one in found]
    rows: list[list[str]] = [
        ["tokens now", *(f"{one.before.total:,}" for one in found)],
        ["pressure now", *(one.before.pressure for one in found)],
        ["edits", *(_format_kinds(one) for one in found)],
        ["why", *(_describe_reason(one) for one in found)],
        ["tokens then", *(f"{one.after.total:,}" if one.after else "too large" for one in found)],
        ["pressure then", *(one.after.pressure if one.after else "-" for one in found)],
        ["input of the next call", *(_format_cost(one.after) for one in found)],
        ["messages out of sight", *(str(_count_hidden_messages(one)) for one in found)],
        ["messages kept verbatim", *(str(_count_kept_messages(one)) for one in found)],
    ]
    title = f"{first.model}, window {first.window:,}"
    return [apply_style(title, "strong"), *render_table(heads, rows)]


def _format_kinds(one: Outlook) -> str:
    return ", ".join(edit.kind for edit in one.edits) or ("-" if one.fault else "none")


def _describe_reason(one: Outlook) -> str:
    folds = [edit.why.partition(":")[0] for edit in one.edits if edit.lost is not None]
    return folds[0] if folds else "waits for you" if one.due else "-"


def _format_cost(drawn: Picture | None) -> str:
    return f"${drawn.cost.dollars:.4f}" if drawn and drawn.cost else "-"


def _count_hidden_messages(one: Outlook) -> int:
    return sum(len(left) for edit in one.edits if edit.lost for left in edit.lost.left.values())


def _count_kept_messages(one: Outlook) -> int:
    return sum(edit.lost.quoted for edit in one.edits if edit.lost)

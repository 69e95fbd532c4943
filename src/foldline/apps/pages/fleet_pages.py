"""The fleet: models and owners over time, and the dearest sessions and why; for operators.

The numbers are those of the sessions whose figures are known, which the page says.
"""

import csv
import io
from heapq import nlargest

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.pages.figures import FleetSum, SessionFigures
from foldline.apps.pages.page_call import CSV, PageAnswer, PageCall
from foldline.stores.base import Listed

_DAYS = 30
_DEAREST = 10
_GROUPS = 20
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FULL, _COLD, _LARGE = 0.8, 0.3, 50_000


async def _list_fleet(call: PageCall) -> tuple[list[Listed], bool]:
    if not call.visitor.is_operator:
        raise Refusal(403, "operators", "the fleet is shown to operators: to admin keys")
    return await call.lists.list_all(call.visitor.tenant, call.visitor.sees)


def _sort_sums(sums: dict[str, FleetSum]) -> list[FleetSum]:
    return sorted(sums.values(), key=lambda one: (-one.dollars, one.name))[:_GROUPS]


async def show_fleet(call: PageCall) -> PageAnswer:
    """Show the fleet."""
    listed, whole = await _list_fleet(call)
    figures = call.lists.figures.of_tenant(call.visitor.tenant)
    days = sorted(figures.days.values(), key=lambda one: one.name)[-_DAYS:]
    dearest = nlargest(_DEAREST, figures.known.items(), key=lambda pair: pair[1].dollars or 0.0)
    return call.render(
        "fleet.html",
        known=len(figures.known),
        total=len(listed),
        whole=whole,
        all=figures.all,
        models=_sort_sums(figures.models),
        owners=_sort_sums(figures.owners),
        days=days,
        peak=max((one.dollars for one in days), default=0.0),
        dearest=[(name, one, explain_cost(one)) for name, one in dearest if one.dollars],
    )


def explain_cost(figures: SessionFigures) -> str:
    """Say in a line why a session cost what it did."""
    calls = sum(one.calls for one in figures.days)
    given = sum(one.input for one in figures.days)
    read = sum(one.read for one in figures.days)
    folds = sum(one.folds for one in figures.days)
    if not calls or not given:
        return "no counts"
    each, share = given / calls, read / given
    said = [f"{calls:,} calls of {each:,.0f} tokens on average"]
    if share < _COLD and each > _LARGE:
        said.append(f"only {100 * share:.0f} % came from the cache")
    elif each > _LARGE:
        said.append(f"large requests, {100 * share:.0f} % of them from the cache")
    if not folds and figures.fullness > _FULL:
        said.append("never folded, and nearly full")
    elif not folds and each > _LARGE:
        said.append("never folded")
    return "; ".join(said)


async def export_fleet(call: PageCall) -> PageAnswer:
    """Export one row for each session, day and model."""
    await _list_fleet(call)
    known = call.lists.figures.of_tenant(call.visitor.tenant).known
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(
        ("session", "owner", "day", "model", "calls", "input", "cache_read", "output", "dollars",
         "folds", "tokens_folded", "calls_without_price")
    )  # fmt: skip
    for name, one in known.items():
        for day in one.days:
            writer.writerow(
                (_guard_cell(name), _guard_cell(one.owner), day.day, _guard_cell(day.model),
                 day.calls, day.input, day.read, day.output, f"{day.dollars:.6f}", day.folds,
                 day.folded, day.unpriced)
            )  # fmt: skip
    body = file.getvalue().encode("utf-8", "replace")
    given = 'attachment; filename="foldline-fleet.csv"'
    return PageAnswer(body, f"{CSV}; charset=utf-8", headers=(("content-disposition", given),))


def _guard_cell(text: str) -> str:
    """Keep a spreadsheet from reading a name as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text

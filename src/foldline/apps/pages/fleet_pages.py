"""The fleet: tenants, owners and models over time, errors, and the dearest sessions and why.

A client sees what its owner did, readers and admins their tenant, operators all tenants. Figures
are of usage rows where there are some, else of the logs that are known; the page says which.
"""

import asyncio
import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from time import time
from typing import NamedTuple

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.pages.access import Visitor
from foldline.apps.pages.figures import SessionFigures, TenantFigures
from foldline.apps.pages.fleet_sums import (
    SECONDS,
    AddedTime,
    FleetRow,
    FleetSums,
    FleetTotal,
    UsageRead,
    find_added,
    list_log_rows,
    name_day,
    sum_fleet,
)
from foldline.apps.pages.page_call import CSV, PageAnswer, PageCall
from foldline.apps.pages.safe_text import show_controls
from foldline.session.usage_records import UsageSums, list_tenants

SPANS = (7, 30, 90)
"""The days that a page may show; a link for each."""
_DAYS = 30
_DEAREST = 10
_GROUPS = 20
_TENANTS = 200  # that are read for one page
_EARLIEST = 100  # days after 1970
_EXPORT = 20.0  # seconds that an export waits until all days are read
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FULL, _COLD, _LARGE = 0.8, 0.3, 50_000
_MEDIAN, _MOST = 0.5, 0.95
_COLUMNS = (
    "tenant", "owner", "day", "model", "source", "calls", "input", "cache_read", "cache_share",
    "output", "dollars", "saved_dollars", "folds", "healed", "errors", "errors_by_kind",
    "added_p50_ms", "added_p95_ms", "calls_without_price",
)  # fmt: skip


@dataclass(slots=True)
class _FleetView:
    """The part of the fleet that a visitor may see, in some days."""

    rows: list[FleetRow]
    tenants: list[str]
    chosen: str
    """The tenant that is shown alone; "" for an operator who sees all."""
    log_tenant: str
    """The tenant whose logs are read."""
    first: int
    last: int
    today: int
    known: dict[str, SessionFigures]
    """The sessions that are shown, and whose figures are known."""
    listed: int
    is_listed: bool
    is_whole: bool
    fault: str
    left: int
    """How many tenants are too many to be read."""
    before: str
    """The newest day before these of which a log has figures."""

    @property
    def days(self) -> int:
        """How many days are shown."""
        return self.last - self.first + 1


class _ErrorKind(NamedTuple):
    """Calls without a good answer, of one kind."""

    name: str
    calls: int
    share: float
    """Of the calls of which usage is known."""
    model: str
    """The model that has most of them."""


class _DayBar(NamedTuple):
    """A day of the picture; without calls it is a gap."""

    name: str
    total: FleetTotal | None


class _DayLine(NamedTuple):
    """A line of the table of days: a day, or several in a row without calls."""

    name: str
    until: str = ""
    total: FleetTotal | None = None


async def _view_fleet(call: PageCall, *, patience: float | None = None) -> _FleetView:
    visitor = call.visitor
    tenants, chosen, left = await _list_tenants(call)
    log_tenant = chosen or visitor.tenant
    listed, is_listed = await call.lists.list_all(log_tenant, visitor.sees)
    figures = _select_figures(call.lists.figures.of_tenant(log_tenant), visitor)
    today = int(time()) // SECONDS
    span, last = _read_span(call, today)

    async def read_rows() -> tuple[list[FleetRow], UsageRead]:
        first = last - span + 1
        read = await call.lists.usage.read_days(tenants, first, last, patience=patience)
        rows = [one for one in read.rows if _may_see(visitor, one.owner)]
        logged = list_log_rows(log_tenant, figures, first, last, counted=rows)
        return rows + logged, read

    rows, read = await read_rows()
    if not rows and read.is_whole and not call.get("until"):
        last = _find_newest(figures, last)
        rows, read = await read_rows()
    first = last - span + 1
    begin = name_day(first)
    return _FleetView(
        rows, tenants, chosen, log_tenant, first, last, today, figures.known, len(listed),
        is_listed, read.is_whole, read.fault, left,
        max((day for day, _, _ in figures.groups if day < begin), default=""),
    )  # fmt: skip


async def _list_tenants(call: PageCall) -> tuple[list[str], str, int]:
    """List the tenants that are shown, the one that is chosen, and how many are left out."""
    visitor, wanted = call.visitor, call.get("tenant")
    if not visitor.reaches_all:
        if wanted not in ("", visitor.tenant):
            raise Refusal(403, "operators", "other tenants are shown to operators")
        return [visitor.tenant], visitor.tenant, 0
    found = sorted({visitor.tenant, *await list_tenants(call.pool.place.store)})
    if wanted:
        if wanted not in found:
            raise Refusal(404, "no_tenant", "there is no usage of such a tenant")
        return [wanted], wanted, 0
    return found[:_TENANTS], "", max(len(found) - _TENANTS, 0)


def _may_see(visitor: Visitor, owner: str) -> bool:
    """Whether figures of an owner are shown."""
    return visitor.sees is None or visitor.sees == owner


def _select_figures(figures: TenantFigures, visitor: Visitor) -> TenantFigures:
    """Select what logs say of the owners that are shown."""
    if visitor.sees_all:
        return figures
    selected = TenantFigures()
    known, groups = figures.known.items(), figures.groups.items()
    selected.known = {name: one for name, one in known if _may_see(visitor, one.owner)}
    selected.groups = {key: one for key, one in groups if _may_see(visitor, key[1])}
    return selected


def _read_span(call: PageCall, today: int) -> tuple[int, int]:
    """Read how many days are shown, and up to which one."""
    span = call.get_number("days", _DAYS)
    if span not in SPANS:
        raise Refusal(400, "bad_days", f"days is one of {', '.join(map(str, SPANS))}")
    if not call.get("until"):
        return span, today
    try:
        until = datetime.strptime(call.get("until")[:20], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise Refusal(400, "bad_day", "until is a day such as 2026-11-01") from None
    return span, min(max(int(until.timestamp()) // SECONDS, _EARLIEST), today)


def _find_newest(figures: TenantFigures, last: int) -> int:
    """Find the newest day of logs: what is shown if the last days have nothing."""
    newest = max((day for day, _, _ in figures.groups), default="")
    return _number_day(newest) if newest and newest < name_day(last) else last


def _number_day(name: str) -> int:
    return int(datetime.fromisoformat(name).replace(tzinfo=UTC).timestamp()) // SECONDS


async def show_fleet(call: PageCall) -> PageAnswer:
    """Show the fleet."""
    view = await _view_fleet(call)
    visitor, span = call.visitor, view.days
    sums = await asyncio.to_thread(sum_fleet, view.rows)  # requests are relayed meanwhile
    bars = [
        _DayBar(name, sums.days.get(name))
        for name in map(name_day, range(view.first, view.last + 1))
    ]
    dearest = nlargest(_DEAREST, view.known.items(), key=lambda pair: pair[1].dollars or 0.0)
    kept = {
        "tenant": view.chosen if visitor.reaches_all else "",
        "days": span if span != _DAYS else "",
    }
    return call.render(
        "fleet.html",
        refresh=0 if view.is_whole else 2,
        view=view,
        all=sums.whole,
        added=_format_quantiles,
        course=partial(_draw_course, view),
        groups=_list_groups(call, sums),
        errors=_list_errors(view.rows),
        bars=bars,
        lines=_list_lines(bars),
        marks=[bars[at].name for at in (0, len(bars) // 2, len(bars) - 1)],
        peak=max((one.sums.dollars for one in sums.days.values()), default=0.0),
        dearest=[(name, one, explain_cost(one)) for name, one in dearest if one.dollars],
        kept=kept,
        spans=[
            (one, {**kept, "days": one if one != _DAYS else "", "until": call.get("until")})
            for one in SPANS
        ],
        earlier=name_day(view.first - 1) if view.first > _EARLIEST else "",
        later=name_day(min(view.last + span, view.today)) if view.last < view.today else "",
    )


def _list_groups(call: PageCall, sums: FleetSums) -> list[tuple[str, str, list[FleetTotal], int]]:
    """List the tables: title, dimension, the dearest rows, and how many rows there are."""
    tables = [("Models", "model", sums.models), ("Owners", "owner", sums.owners)]
    if call.visitor.reaches_all:
        tables.insert(0, ("Tenants", "tenant", sums.tenants))
    return [(title, by, found[:_GROUPS], len(found)) for title, by, found in tables]


def _list_errors(rows: Sequence[FleetRow]) -> list[_ErrorKind]:
    """List errors by kind, the most frequent first."""
    kinds: dict[str, dict[str, int]] = {}
    for row in rows:
        for kind, count in row.sums.errors.items():
            models = kinds.setdefault(kind, {})
            models[row.model] = models.get(row.model, 0) + count
    calls = sum(row.sums.calls for row in rows if row.source == "usage")
    found = [
        _ErrorKind(
            kind,
            count := sum(models.values()),
            count / calls if calls else 0.0,
            max(models, key=lambda one: (models[one], one)),
        )
        for kind, models in kinds.items()
    ]
    return sorted(found, key=lambda one: (-one.calls, one.name))[:_GROUPS]


def _list_lines(bars: Sequence[_DayBar]) -> list[_DayLine]:
    """List the lines of the table of days, the newest first; days without calls are one line."""
    found: list[_DayLine] = []
    for bar in reversed(bars):
        if bar.total is not None:
            found.append(_DayLine(bar.name, total=bar.total))
        elif found and found[-1].total is None:
            found[-1] = _DayLine(bar.name, found[-1].until or found[-1].name)
        else:
            found.append(_DayLine(bar.name))
    return found


def _draw_course(view: _FleetView, total: FleetTotal) -> str:
    """Draw the dollars of each day as a path; its tallest stroke is the dearest day."""
    peak = max(total.days.values(), default=0)
    if peak <= 0:
        return ""
    strokes = [
        f"M{4 * (_number_day(day) - view.first) + 2} 20V{20 - max(18 * pico / peak, 1):.1f}"
        for day, pico in sorted(total.days.items())
        if pico > 0
    ]
    return "".join(strokes)


def _format_quantiles(sums: UsageSums) -> str:
    """Format the added latency: half of the requests, and 95 in 100."""
    found = [_format_added(find_added(sums, one)) for one in (_MEDIAN, _MOST)]
    return " / ".join(found) if any(sums.added_counts) else "\u2013"


def _format_added(one: AddedTime) -> str:
    shown = f"{one.most:g}\u00a0s" if one.most >= 1 else f"{1_000 * one.most:g}\u00a0ms"
    return f"{'>' if one.is_longer else '≤'}\u00a0{shown}"


def explain_cost(figures: SessionFigures) -> str:
    """Say in a line why a session cost what it did."""
    sums = UsageSums()
    for day in figures.days:
        sums.merge(day.sums)
    if not sums.calls or not sums.input:
        return "no counts"
    each, share = sums.input / sums.calls, sums.cache_read / sums.input
    said = [f"{sums.calls:,} calls of {each:,.0f} tokens on average"]
    if share < _COLD and each > _LARGE:
        said.append(f"only {100 * share:.0f} % came from the cache")
    elif each > _LARGE:
        said.append(f"large requests, {100 * share:.0f} % of them from the cache")
    if not sums.folds and figures.fullness > _FULL:
        said.append("never folded, and nearly full")
    elif not sums.folds and each > _LARGE:
        said.append("never folded")
    return "; ".join(said)


async def export_fleet(call: PageCall) -> PageAnswer:
    """Export one row for each day, tenant, owner and model; or for each session, if asked."""
    view = await _view_fleet(call, patience=_EXPORT)
    if not view.is_whole:
        raise Refusal(503, "reading", "usage is still being read; ask again in a moment")
    file = io.StringIO()
    writer = csv.writer(file)
    if call.get("by") == "session":
        _write_sessions(writer.writerow, view.known)
    elif call.get("by"):
        raise Refusal(400, "bad_export", "by is session, or left out")
    else:
        writer.writerow(_COLUMNS)
        for row in sorted(view.rows, key=lambda one: (one.day, one.tenant, one.owner, one.model)):
            writer.writerow(_format_row(row))
    body = file.getvalue().encode("utf-8", "replace")
    # The name says so if some logs are not read yet: a sum over the file would be too small.
    is_all = view.is_listed and len(view.known) >= view.listed and not view.fault
    given = f'attachment; filename="foldline-fleet{"" if is_all else "-partial"}.csv"'
    return PageAnswer(body, f"{CSV}; charset=utf-8", headers=(("content-disposition", given),))


def _format_row(row: FleetRow) -> list[str | int]:
    """Format a row; what logs do not tell is left empty."""
    sums, has_usage = row.sums, row.source == "usage"
    kinds = "; ".join(f"{kind}={count}" for kind, count in sorted(sums.errors.items()))
    known: list[str | int] = ["", "", "", ""]
    if has_usage:
        added = (find_added(sums, share) for share in (_MEDIAN, _MOST))
        known = [sum(sums.errors.values()), _guard_cell(kinds), *map(_format_milliseconds, added)]
    return [
        _guard_cell(row.tenant), _guard_cell(row.owner), row.day, _guard_cell(row.model),
        row.source, sums.calls, sums.input, sums.cache_read,
        f"{sums.cache_read / sums.input:.4f}" if sums.input else "", sums.output,
        f"{sums.dollars:.6f}", f"{sums.saved_dollars:.6f}" if has_usage else "", sums.folds,
        sums.healed if has_usage else "", *known, sums.unpriced,
    ]  # fmt: skip


def _format_milliseconds(one: AddedTime) -> str:
    return f"{'>' if one.is_longer else ''}{1_000 * one.most:g}" if one.most else ""


def _write_sessions(
    write: Callable[[Sequence[object]], object], known: dict[str, SessionFigures]
) -> None:
    write(
        ("session", "owner", "day", "model", "calls", "input", "cache_read", "output", "dollars",
         "folds", "tokens_folded", "calls_without_price")
    )  # fmt: skip
    for name, one in known.items():
        for day in one.days:
            sums = day.sums
            write(
                (_guard_cell(name), _guard_cell(one.owner), day.day, _guard_cell(day.model),
                 sums.calls, sums.input, sums.cache_read, sums.output, f"{sums.dollars:.6f}",
                 sums.folds, day.folded, sums.unpriced)
            )  # fmt: skip


def _guard_cell(text: str) -> str:
    """Keep a spreadsheet from reading a name as a formula, and a terminal from obeying it."""
    shown = show_controls(text)
    return f"'{shown}" if text.startswith(_FORMULA) else shown

"""`foldline usage`: what calls through a gateway took, by whom and of which model."""

import csv
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Annotated, Any

import typer

from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING, USAGE
from foldline.apps.cli.output import Column, print_remark, render_table
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.draw.course import format_tokens
from foldline.errors import BadInput
from foldline.session.usage_records import (
    DIMENSIONS,
    Dimension,
    UsageRow,
    UsageSums,
    UsageTotal,
    group_usage,
    list_tenants,
    read_usage,
)

_AGE = re.compile(r"(\d{1,5})([hdw])")
_SECONDS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COUNTS = (
    "calls", "input", "cache_read", "cache_write", "output", "dollars", "saved_dollars", "edits",
    "folds", "healed", "stored", "estimated", "unpriced",
)  # fmt: skip


@make_command
async def usage(  # noqa: PLR0913 - one option for each thing that may be otherwise
    desk: Desk,
    *,
    by: Annotated[
        str,
        typer.Option(metavar="LIST", help=f"What to sum by: some of {', '.join(DIMENSIONS)}."),
    ] = "owner,model",
    since: Annotated[
        str, typer.Option(metavar="AGE|DATE", help="From when on: 24h, 7d, 4w or 2026-11-01.")
    ] = "7d",
    until: Annotated[
        str | None, typer.Option(metavar="AGE|DATE", help="Up to when, without it; else now.")
    ] = None,
    every_tenant: Annotated[
        bool, typer.Option("--every-tenant", help="Of all tenants, not of one.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
) -> int:
    """Show what calls through a gateway took: tokens, dollars, what was saved.

    Hours are those of UTC, and whole. A gateway writes its figures every few seconds.
    """
    dimensions, now = _parse_dimensions(by), time()
    begin, end = _parse_time(since, "--since", now), now
    if until is not None:
        end = _parse_time(until, "--until", now)
    if begin >= end:
        raise BadInput(f"--since {since} is not before --until {until or 'now'}")
    rows: list[UsageRow] = []
    async with desk.open_store() as store:
        for tenant in await list_tenants(store) if every_tenant else [desk.tenant]:
            rows += await read_usage(store, tenant, since=begin, until=end)
    totals = group_usage(rows, dimensions)
    if as_csv:
        if desk.json:
            print_remark("give --csv or --json, not both")
            return USAGE
        print(_format_csv(dimensions, totals), end="")  # noqa: T201 - the answer itself
        return DONE
    (whole,) = group_usage(rows, ()) or [UsageTotal((), UsageSums())]
    body = {
        "since": _format_moment(begin - begin % 3_600),
        "until": _format_moment(end),
        "by": dimensions,
        "rows": [
            {**dict(zip(dimensions, one.values, strict=True)), **encode_sums(one.sums)}
            for one in totals
        ],
        "total": encode_sums(whole.sums),
    }
    desk.print_answer(body, lambda: _render(dimensions, totals, whole.sums))
    return DONE if totals else NOTHING


def encode_sums(sums: UsageSums) -> dict[str, Any]:
    """Encode sums for JSON."""
    return {
        **{name: getattr(sums, name) for name in _COUNTS},
        "added_ms": round(sums.added_micros / 1_000, 3),
        "added_counts": sums.added_counts,
        "errors": sums.errors,
    }


def _parse_dimensions(text: str) -> list[Dimension]:
    names = [one.strip() for one in replace_surrogates(text).split(",") if one.strip()]
    found: list[Dimension] = [one for one in DIMENSIONS if one in names]
    if not names or len(found) < len(names):
        wrong = [one for one in names if one not in DIMENSIONS]
        said = f"{wrong[0]!r} is none of" if wrong else "name each once, of"
        raise BadInput(f"--by {text!r}: {said} {', '.join(DIMENSIONS)}")
    found.sort(key=names.index)
    return found


def _parse_time(text: str, option: str, now: float) -> float:
    """Parse an age or a date, as seconds since 1970."""
    if age := _AGE.fullmatch(text):
        return now - int(age[1]) * _SECONDS[age[2]]
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise BadInput(
            f"{option} {replace_surrogates(text)!r} is no time; write 24h, 7d, 4w or 2026-11-01"
        ) from None


def _format_moment(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _render(by: Sequence[Dimension], totals: Sequence[UsageTotal], whole: UsageSums) -> list[str]:
    if not totals:
        return ["no calls in this time; gateways write what they relay: `foldline serve`"]
    heads = [
        *(Column(name) for name in by),
        *(
            Column(title, 9, right=True)
            for title in ("dollars", "saved", "calls", "input", "cached", "output", "folds", "bad")
        ),
    ]
    rows = [[*(one or "-" for one in values), *_format_sums(sums)] for values, sums in totals]
    if len(totals) > 1:
        rows.append(["all", *[""] * (len(by) - 1), *_format_sums(whole)])
    notes = [
        f"{format_count(count, 'call')} {what}"
        for count, what in (
            (whole.estimated, "estimated: no counts came"),
            (whole.unpriced, "without a known price"),
        )
        if count
    ]
    kinds = sorted(whole.errors.items(), key=lambda one: -one[1])
    notes += ["bad: " + ", ".join(f"{count} {kind}" for kind, count in kinds)] if kinds else []
    return [*render_table(heads, rows), *([""] if notes else []), *notes]


def _format_sums(sums: UsageSums) -> list[str]:
    share = f"{100 * sums.cache_read / sums.input:.0f}%" if sums.input else "-"
    return [
        f"{sums.dollars:,.2f}",
        f"{sums.saved_dollars:,.2f}",
        f"{sums.calls:,}",
        format_tokens(sums.input),
        share,
        format_tokens(sums.output),
        f"{sums.folds:,}",
        f"{sum(sums.errors.values()):,}",
    ]


def _format_csv(by: Sequence[Dimension], totals: Sequence[UsageTotal]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*by, *_COUNTS, "added_ms", "bad"))
    for values, sums in totals:
        cells = [_format_cell(getattr(sums, name)) for name in _COUNTS]
        bad = sum(sums.errors.values())
        names = (_guard_cell(one) for one in values)
        writer.writerow((*names, *cells, f"{sums.added_micros / 1_000:.3f}", bad))
    return file.getvalue()


def _format_cell(value: float) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _guard_cell(text: str) -> str:
    """Keep a spreadsheet from reading a name as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text

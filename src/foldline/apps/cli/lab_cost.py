"""`foldline lab cost`: what sessions cost, which calls found no cache, why, and what to do.

Knows how a bill is laid out for a person. Refuses to compute one: that is the lab's.
"""

import time
from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.find_sessions import gather, remarks, terms
from foldline.apps.cli.output import Column, paint, short, table, wrapped
from foldline.core.prices import Prices
from foldline.core.saying import many
from foldline.lab.bill.advice import span
from foldline.lab.bill.cache import CacheRules
from foldline.lab.bill.costs import FOLDED, CostReport, costs
from foldline.lab.bill.providers import living, rules_for
from foldline.models.catalog import find

_CENT = 0.01


@command
async def cost(
    desk: Desk,
    sessions: Annotated[
        list[str],
        typer.Argument(metavar="SESSION", help="Session files, folders of them, or names."),
    ],
    *,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="IN,READ,WRITE,OUT|MODEL",
            help="Dollars per million tokens, or a model's; else each call's own model's.",
        ),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long the cache lived, if you know.", min=1),
    ] = None,
) -> int:
    """Say what sessions cost, and name every call that found no cache.

    Of each such call: its cause, as far as the record shows one, and what it cost more than a call
    that finds one. A cause with a ? is a guess from what was counted. Below stands what to do, and
    which bytes of the system prompt or the tools changed, where the record holds them.
    """
    said = terms(prices, None)
    ruled = _ruled(said.prices, ttl)
    cases, passed = await gather(desk, sessions, said)
    reports = [costs(one.session, ruled(one.session.model), by_model=ruled) for one in cases]
    body = {
        "total": sum(one.total for one in reports),
        "lost": sum(one.lost for one in reports),
        "sessions": [_body(one) for one in reports],
        "passed": [msgspec.to_builtins(one) for one in passed],
    }
    desk.answer(body, lambda: [*_told(reports)])
    remarks(passed)
    return DONE if reports else NOTHING


def _ruled(prices: Prices | None, ttl: float | None) -> Callable[[str], CacheRules]:
    def rules(model: str) -> CacheRules:
        found = rules_for(model, prices or find(model).prices)
        return living(found, ttl) if ttl else found

    return rules


def _body(report: CostReport) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(report)
    for change, one in zip(body["volatile"], report.volatile, strict=True):
        change["shown"] = one.shown
    return {**body, "lost": report.lost}


def _told(reports: Sequence[CostReport]) -> Generator[str]:
    for at, report in enumerate(reports):
        if at:
            yield ""
        yield from _report(report)
    if len(reports) > 1:
        total, lost = (sum(getattr(one, part) for one in reports) for part in ("total", "lost"))
        yield ""
        said = f"{many(len(reports), 'session')}: ${total:.2f}, of it ${lost:.2f} for cold calls"
        yield paint(said, "strong")


def _report(report: CostReport) -> Generator[str]:
    said = f": ${report.total:.2f} for {many(report.calls, 'call')} of {report.model}"
    yield paint(short("", f"{report.name}{said}"), "strong")
    yield from _parts(report)
    if report.cold:
        share = f"{report.lost / report.total:.0%}" if report.total else "0%"
        calls = many(len(report.cold), "cold call")
        yield ""
        yield from wrapped(
            f"{calls} paid again for what the call before had sent: ${report.lost:.2f} more than "
            f"from the cache, {share} of the bill"
        )
        yield from _calls(report)
        yield ""
        yield from _causes(report)
    elif report.read:
        yield "no cold calls: every call found what the call before had left"
    yield from _volatile(report)
    for note in _notes(report):
        yield from wrapped(note, title="note: ")


def _parts(report: CostReport) -> Generator[str]:
    told = (
        ("new input", report.new),
        ("read from the cache", report.read),
        ("sent before, paid again", report.again),
        ("answers", report.output),
        ("calls beside", report.aside),
    )
    for name, dollars in told:
        if dollars:
            yield f"  {name:24} ${dollars:8.2f} {dollars / report.total:5.0%}"


def _calls(report: CostReport) -> list[str]:
    heads = (
        Column("call", right=True, most=6),
        Column("sent", most=11),
        Column("after", right=True, most=8),
        Column("tokens", right=True, most=9),
        Column("$", right=True, most=7),
        Column("cause", most=12),
        Column("what shows it"),
    )
    rows = [
        (
            f"{one.call}",
            time.strftime("%m-%d %H:%M", time.localtime(one.time)) if one.time else "-",
            span(one.gap) if one.gap else "-",
            f"{one.tokens:,}",
            f"{one.dollars:.2f}" if one.dollars >= _CENT else f"{one.dollars:.4f}",
            f"{one.cause}{'' if one.sure else '?'}",
            one.told,
        )
        for one in report.cold
    ]
    return table(heads, rows)


def _causes(report: CostReport) -> Generator[str]:
    """The sums by cause, each with what to do about it."""
    for one in report.causes:
        mark = "" if one.sure else "?"
        yield paint(f"{one.cause}{mark}: ${one.dollars:.2f}, {many(one.calls, 'call')}", "strong")
        yield from wrapped(one.advice, title="  ")
    fold = report.folded
    if fold is not None:
        yield from wrapped(
            f"A fold to {FOLDED:,} tokens before {many(fold.calls, 'large cold call')} would have "
            f"cost ${fold.dollars:.2f} there instead of ${fold.paid:.2f}, and made every call "
            "behind it smaller."
        )


def _volatile(report: CostReport) -> Generator[str]:
    for one in report.volatile:
        yield ""
        calls = f"changed in {many(one.times, 'call')}"
        yield from wrapped(
            f"{one.kind} in the {one.where}, {calls}, first behind {many(one.offset, 'character')}:"
        )
        if one.old:
            yield short("  was  ", f"…{one.before}|{one.old}…")
        if one.new:
            yield short("  then ", one.shown)


def _notes(report: CostReport) -> Generator[str]:
    if report.unbilled:
        calls = many(report.unbilled, "call")
        yield f"{calls} broken off before anything was counted: not in the bill, nor as cold"
    if report.assumed:
        yield "some prices are guesses: the catalogue does not have them; --prices sets them"
    if any(not one.sure for one in report.cold):
        yield "? is a guess from the counts; the record itself names no cause"
    yield from report.notes

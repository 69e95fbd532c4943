"""`foldline lab compare`: what policies would have cost, and folded away, on your own sessions.

Knows how a comparison is asked for and told in a terminal. Refuses to compute it: `foldline.lab`
does, on whatever hands there are.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NothingFound
from foldline.apps.cli.files import FilesPassed
from foldline.apps.cli.find_sessions import gather, remarks, terms
from foldline.apps.cli.output import Column, paint, short, table, wrapped
from foldline.apps.cli.parallel import executor, progress, spread
from foldline.core.parts import sound
from foldline.core.policy import named
from foldline.errors import BadInput
from foldline.lab.comparison import EVERYTHING, RECORDED, Comparison, compared, tasks, work
from foldline.lab.report.sentences import (
    MEANINGS,
    REASONS,
    caveats,
    change,
    dollars,
    headline,
    percent,
    small,
    tokens,
)

_POLICIES = ("steady", "thrifty")
_MOST = 6  # sessions, and folds, told one by one
_WORTH = 2_000  # replayed events from which on other processes are worth starting


@command
async def compare(  # noqa: PLR0913 - the options of one command
    desk: Desk,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|FOLDER|NAME",
            help="Session files, folders of them, or names in the store; all of it if not said.",
            show_default=False,
        ),
    ] = None,
    *,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="POLICY", help="Compare this one; may be repeated."),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="IN,READ,WRITE,OUT|MODEL",
            help="Dollars per million tokens, or a model's; else each session's own model's.",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="The model's window; else its own."),
    ] = None,
    narratives: Annotated[
        bool,
        typer.Option("--narratives", help="Bill a summary by the model for each fold, too."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write it as one page, with plots.", dir_okay=False),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes at a time; as many as there are cores."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Compute on a Dask cluster; extra [lab]."),
    ] = None,
) -> int:
    """Say what your sessions cost, and would have cost under other policies.

    Sessions are replayed call by call from their files (as `import` takes them) or from the store.
    No model is asked; what was still in the model's sight is measured, quality is not.
    """
    wanted = list(dict.fromkeys(sound(one) for one in policies or _POLICIES))
    for one in wanted:
        named(one)
    said = terms(prices, window)
    cases, passed = await gather(desk, sessions or [], said)
    if not cases:
        remarks(passed)
        raise NothingFound("no session to replay; `foldline import --help` says what is read")
    todo = tasks(cases, wanted, narratives=narratives)
    worth = sum(len(one.case.session.events) for one in todo) >= _WORTH
    with (
        executor(jobs=jobs, cluster=cluster, most=len(todo), worth=worth) as hands,
        progress("replaying", len(todo), "replays", on=not desk.json) as bar,
    ):
        results = await spread(work, todo, hands, bar=bar)
    told = compared(cases, results, narratives=narratives, fixed=said.fixed)
    if html is not None:
        _write(html, told)
    page = "" if html is None else sound(str(html))
    desk.answer(_body(told, passed, page), lambda: _lines(told, page))
    if not desk.json:
        remarks(passed)
    return DONE


def _write(path: Path, told: Comparison) -> None:
    from foldline.lab.report.page import page  # noqa: PLC0415 - only who wants a page

    try:
        path.write_text(page(told), encoding="utf-8")
    except OSError as fault:
        raise BadInput(
            f"--html {path}: {fault.strerror}; name a file that can be written"
        ) from fault


def _body(told: Comparison, passed: list[FilesPassed], page: str) -> dict[str, Any]:
    def total(one: Any) -> dict[str, Any]:
        kept = {"kept_names": one.kept_names, "kept_lines": one.kept_lines}
        return {**msgspec.to_builtins(one), **kept}

    return {
        "headline": headline(told),
        "baseline": told.baseline,
        "chosen": told.chosen,
        "recorded_dollars": told.recorded_dollars,
        "small": told.small,
        "policies": [total(one) for one in told.totals],
        "sessions": msgspec.to_builtins(told.sessions),
        "caveats": caveats(told),
        "passed": msgspec.to_builtins(passed),
        "html": page or None,
    }


def _lines(told: Comparison, page: str) -> list[str]:
    lines = [*wrapped(headline(told)), *wrapped(small(told))]
    lines = [paint(line, "strong") if line else line for line in lines if line]
    lines += ["", *_policies(told), ""]
    lines += _sessions(told)
    lines += _folds(told)
    for one in caveats(told):
        lines += wrapped(one)
    if page:
        lines += ["", f"The page: {page}"]
    else:
        lines += ["", *wrapped("--html FILE writes all of it as one page, with plots.")]
    return lines


def _policies(told: Comparison) -> list[str]:
    heads = (
        Column("policy", most=11),  # whole, however narrow: a row without its name says nothing
        Column("cost", right=True, most=9),
        Column("change", right=True, most=8),
        Column("folds", right=True, most=6),
        Column("names kept", right=True, most=10),
        Column("lines kept", right=True, most=10),
        Column("peak tokens", right=True, most=11),
    )
    rows = [
        (
            one.policy,
            dollars(one.dollars),
            "baseline" if one.policy == told.baseline else change(one.percent),
            f"{one.folds:,}",
            percent(one.kept_names),
            percent(one.kept_lines),
            f"{one.peak:,}",
        )
        for one in told.totals
    ]
    shown = [name for name in (RECORDED, EVERYTHING) if any(t.policy == name for t in told.totals)]
    legend = "; ".join(f"{name}: {MEANINGS[name]}" for name in shown)
    kept = (
        "kept: of what the agent wrote again later (names that look like code, long lines), the "
        "share that was in the request then"
    )
    return [
        *table(heads, rows),
        *(paint(line, "dim") for line in wrapped(f"{legend}; {kept}.")),
    ]


def _sessions(told: Comparison) -> list[str]:
    """The most notable: where the chosen policy changes most."""
    chosen, base = told.chosen, told.baseline
    if len(told.sessions) == 1 or chosen == base:
        return []
    notable = sorted(
        (one for one in told.sessions if one.under(chosen).edits),
        key=lambda one: (-abs(one.under(base).dollars - one.under(chosen).dollars), one.session),
    )
    if not notable:
        return []
    heads = (
        Column("session"),
        Column("calls", right=True, most=6),
        Column(base if base == RECORDED else "everything", right=True, most=11),
        Column(chosen, right=True, most=11),
        Column("change", right=True, most=8),
        Column("folds", right=True, most=5),
        Column("names kept", right=True, most=10),
    )
    rows: list[tuple[str, ...]] = []
    for one in notable[:_MOST]:
        was, now = one.under(base), one.under(chosen)
        less = 100 * (now.dollars / was.dollars - 1) if was.dollars else 0.0
        rows.append(
            (
                one.session,
                f"{one.calls:,}",
                dollars(was.dollars),
                dollars(now.dollars),
                change(less),
                f"{len(now.edits):,}",
                percent(now.retention.names.percent),
            )
        )
    rest = len(told.sessions) - len(rows)
    more = [short(f"and {rest:,} more: --json and --html have every one")] if rest > 0 else []
    return [*table(heads, rows), *more, ""]


def _folds(told: Comparison) -> list[str]:
    """Of the one session, what would have been folded, fold by fold."""
    if len(told.sessions) != 1 or told.chosen == EVERYTHING:
        return []
    edits = told.sessions[0].under(told.chosen).edits
    if not edits:
        return []
    heads = (
        Column("call", right=True, most=6),
        Column("messages", right=True, most=8),
        Column("tokens", right=True, most=8),
        Column("become", right=True, most=8),
        Column(f"why {told.chosen} folds"),
    )
    rows = [
        (
            f"{one.call + 1:,}",
            f"{one.messages:,}",
            tokens(one.before),
            tokens(one.after),
            REASONS.get(one.why, one.why),
        )
        for one in edits[:_MOST]
    ]
    rest = len(edits) - len(rows)
    more = [f"and {rest:,} more: --json and --html have every one"] if rest else []
    return [*table(heads, rows), *more, ""]

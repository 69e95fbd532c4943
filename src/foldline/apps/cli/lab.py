"""`foldline lab compare` and `foldline lab cost`: options, and reports in the terminal.

`compare` replays sessions under other policies; `cost` bills them and explains every call that
found no cache. `foldline.lab` computes both.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.agent_sessions import AgentSessions
from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING, NothingFound, Unusable
from foldline.apps.cli.find_sessions import (
    NO_ANSWER,
    Terms,
    collect_agent_cases,
    collect_cases,
    parse_terms,
    print_passed_files,
)
from foldline.apps.cli.import_ import FilesPassed, open_executor, run_jobs, show_progress
from foldline.apps.cli.output import (
    Column,
    apply_style,
    format_size,
    format_time,
    render_table,
    truncate_line,
    wrap_text,
)
from foldline.core.cold_cache import FOLDED
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.core.policy import named
from foldline.core.prices import Prices
from foldline.errors import BadInput
from foldline.lab.bill.cache import CacheRules, replace_cache_lifetime, rules_for
from foldline.lab.bill.causes import format_duration
from foldline.lab.bill.costs import CostReport, build_cost_report
from foldline.lab.comparison import (
    EVERYTHING,
    RECORDED,
    Case,
    Comparison,
    build_comparison,
    make_tasks,
    run_task,
)
from foldline.lab.report.sentences import (
    MEANINGS,
    REASONS,
    describe_basis,
    describe_cost,
    describe_folded,
    describe_small_sessions,
    format_change,
    format_dollar_amount,
    format_percent,
    format_token_count,
    list_caveats,
    render_headline,
)
from foldline.models.catalog import find

_CENT = 0.01


@make_command
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
    said = parse_terms(prices, None)
    ruled = _make_rules_lookup(said.prices, ttl)
    cases, passed = await collect_cases(desk, sessions, said)
    reports = [
        build_cost_report(one.session, ruled(one.session.model), by_model=ruled) for one in cases
    ]
    body = {
        "total": sum(one.total for one in reports),
        "lost": sum(one.lost for one in reports),
        "sessions": [_encode_report(one) for one in reports],
        "passed": [msgspec.to_builtins(one) for one in passed],
    }
    desk.print_answer(body, lambda: [*_render_reports(reports)])
    print_passed_files(passed)
    return DONE if reports else NOTHING


def _make_rules_lookup(prices: Prices | None, ttl: float | None) -> Callable[[str], CacheRules]:
    def choose_rules(model: str) -> CacheRules:
        found = rules_for(model, prices or find(model).prices)
        return replace_cache_lifetime(found, ttl) if ttl else found

    return choose_rules


def _encode_report(report: CostReport) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(report)
    for change, one in zip(body["volatile"], report.volatile, strict=True):
        change["shown"] = one.shown
    return {**body, "lost": report.lost}


def _render_reports(reports: Sequence[CostReport]) -> Generator[str]:
    for at, report in enumerate(reports):
        if at:
            yield ""
        yield from _render_report(report)
    if len(reports) > 1:
        total, lost = (sum(getattr(one, part) for one in reports) for part in ("total", "lost"))
        yield ""
        said = (
            f"{format_count(len(reports), 'session')}: ${total:.2f}, of it ${lost:.2f} "
            f"for cold calls"
        )
        yield apply_style(said, "strong")


def _render_report(report: CostReport) -> Generator[str]:
    said = f": ${report.total:.2f} for {format_count(report.calls, 'call')} of {report.model}"
    yield apply_style(truncate_line("", f"{report.name}{said}"), "strong")
    yield from _render_cost_parts(report)
    if report.cold:
        share = f"{report.lost / report.total:.0%}" if report.total else "0%"
        calls = format_count(len(report.cold), "cold call")
        yield ""
        yield from wrap_text(
            f"{calls} paid again for what the call before had sent: ${report.lost:.2f} more than "
            f"from the cache, {share} of the bill"
        )
        yield from _render_cold_calls(report)
        yield ""
        yield from _render_causes(report)
    elif report.read:
        yield "no cold calls: every call found what the call before had left"
    yield from _render_volatile_parts(report)
    for note in _iterate_notes(report):
        yield from wrap_text(note, title="note: ")


def _render_cost_parts(report: CostReport) -> Generator[str]:
    figures = (
        ("new input", report.new),
        ("read from the cache", report.read),
        ("sent before, paid again", report.again),
        ("answers", report.output),
        ("calls beside", report.aside),
    )
    for name, dollars in figures:
        if dollars:
            yield f"  {name:24} ${dollars:8.2f} {dollars / report.total:5.0%}"


def _render_cold_calls(report: CostReport) -> list[str]:
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
            format_duration(one.gap) if one.gap else "-",
            f"{one.tokens:,}",
            f"{one.dollars:.2f}" if one.dollars >= _CENT else f"{one.dollars:.4f}",
            f"{one.cause}{'' if one.sure else '?'}",
            one.told,
        )
        for one in report.cold
    ]
    return render_table(heads, rows)


def _render_causes(report: CostReport) -> Generator[str]:
    """Render the sums by cause, each with its remedy."""
    for one in report.causes:
        mark = "" if one.sure else "?"
        yield apply_style(
            f"{one.cause}{mark}: ${one.dollars:.2f}, {format_count(one.calls, 'call')}", "strong"
        )
        yield from wrap_text(one.advice, title="  ")
    fold = report.folded
    if fold is not None:
        yield from wrap_text(
            f"A fold to {FOLDED:,} tokens before "
            f"{format_count(fold.calls, 'large cold call')} would have "
            f"cost ${fold.dollars:.2f} there instead of ${fold.paid:.2f}, and made every call "
            "behind it smaller."
        )


def _render_volatile_parts(report: CostReport) -> Generator[str]:
    for one in report.volatile:
        yield ""
        calls = f"changed in {format_count(one.times, 'call')}"
        yield from wrap_text(
            f"{one.kind} in the {one.where}, {calls}, first behind "
            f"{format_count(one.offset, 'character')}:"
        )
        if one.old:
            yield truncate_line("  was  ", f"…{one.before}|{one.old}…")
        if one.new:
            yield truncate_line("  then ", one.shown)


def _iterate_notes(report: CostReport) -> Generator[str]:
    if report.unbilled:
        calls = format_count(report.unbilled, "call")
        yield f"{calls} broken off before anything was counted: not in the bill, nor as cold"
    if report.assumed:
        yield "some prices are guesses: the catalogue does not have them; --prices sets them"
    if any(not one.sure for one in report.cold):
        yield "? is a guess from the counts; the record itself names no cause"
    yield from report.notes


_POLICIES = ("steady", "thrifty")
_BYTES_EACH = 2_000_000  # of found sessions that a process replays, in a few seconds
_MOST = 6  # rows of sessions, and of folds
_WORTH = 2_000  # replayed events from which more processes are worth starting


@make_command
async def compare(  # noqa: PLR0913 - the options of one command
    desk: Desk,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|FOLDER|NAME",
            help="Session files, folders of them, or names in the store; else what agents keep.",
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
        typer.Option(metavar="ADDRESS", help="Compute on a Dask cluster; extra [cluster]."),
    ] = None,
) -> int:
    """Say what your sessions cost, and would have cost under other policies.

    Sessions are replayed call by call from their files (as `import` takes them) or from the store.
    No model is asked; what was still in the model's sight is measured, quality is not.

    Without an argument: the newest sessions of every coding agent on this machine, as many as take
    seconds; with `--store` alone, or if there are none, all sessions of the store.
    """
    wanted = list(dict.fromkeys(replace_surrogates(one) for one in policies or _POLICIES))
    for one in wanted:
        named(one)
    said = parse_terms(prices, window)
    # A store that a person names in the command is an argument; one in a variable is not.
    if sessions or (desk.given and desk.address != os.environ.get("FOLDLINE_STORE")):
        (cases, passed), found = await collect_cases(desk, sessions or [], said), None
    else:
        cases, passed, found = await _collect_found(desk, said, jobs)
        wanted = wanted[:1] if found and not policies else wanted  # each takes as long again
    if not cases:
        print_passed_files(passed)
        raise NothingFound("no session to replay; `foldline import --help` says what is read")
    todo = make_tasks(cases, wanted, narratives=narratives)
    worth = sum(len(one.case.session.events) for one in todo) >= _WORTH
    with (
        open_executor(jobs=jobs, cluster=cluster, most=len(todo), worth=worth) as hands,
        show_progress("replaying", len(todo), "replays", on=not desk.json) as bar,
    ):
        results = await run_jobs(run_task, todo, hands, bar=bar)
    comparison = build_comparison(cases, results, narratives=narratives, fixed=said.fixed)
    if html is not None:
        _write_page(html, comparison)
    page = "" if html is None else replace_surrogates(str(html))
    desk.print_answer(
        _encode_comparison(comparison, found, passed, page),
        lambda: _render_comparison(comparison, found, page),
    )
    if not desk.json:
        ordinary = () if found is None else (NO_ANSWER,)  # agents leave many of these
        print_passed_files([one for one in passed if one.reason not in ordinary])
    return DONE


async def _collect_found(
    desk: Desk, terms: Terms, jobs: int | None
) -> tuple[list[Case], list[FilesPassed], AgentSessions | None]:
    """Collect what agents keep on this machine, else all sessions of the store."""
    bound = _BYTES_EACH * (jobs or os.cpu_count() or 1)
    cases, passed, found = collect_agent_cases(desk, terms, max(bound, _BYTES_EACH))
    if cases:
        return cases, passed, found
    kept: list[FilesPassed] = []
    try:
        cases, kept = await collect_cases(desk, (), terms)
    except Unusable as fault:
        print_passed_files(passed)
        looked = ", ".join(f"{one.agent} in {_format_path(one.path)}" for one in found.folders)
        raise NothingFound(
            f"no session to replay: looked for those of {looked}; and {fault}"
        ) from fault
    return cases, [*passed, *kept], None


def _format_path(path: Path) -> str:
    """Format a path as a person would type it."""
    if path.is_relative_to(Path.home()):
        return f"~/{quote(replace_surrogates(str(path.relative_to(Path.home()))))}"
    return quote(replace_surrogates(str(path)))


def _render_found(found: AgentSessions, comparison: Comparison) -> Generator[str]:
    """Render how many sessions each agent left, and what was not read."""
    counts = Counter(one.agent for one in comparison.sessions).most_common()
    since = format_time(min(one.changed for one in found.files)).partition(" ")[0]
    listed = ", ".join(f"{name} {count:,}" for name, count in counts)
    yield from wrap_text(f"Found on this machine: {listed}; changed since {since}.")
    if not found.left:
        return
    left = Counter(one.folder for one in found.left)
    listed = ", ".join(f"{folder.agent} {count:,}" for folder, count in left.most_common())
    places = " ".join(_format_path(one.path) for one in left if one.agent != "opencode")
    size = format_size(sum(one.size for one in found.left))
    yield from wrap_text(f"Left out, to answer in seconds: {listed}, older or larger ({size}).")
    if places:
        yield from wrap_text(f"All of them: foldline lab compare {places}")


def _write_page(path: Path, comparison: Comparison) -> None:
    from foldline.lab.report.page import render_comparison_page  # noqa: PLC0415 - only who wants a page

    try:
        path.write_text(render_comparison_page(comparison), encoding="utf-8")
    except OSError as fault:
        raise BadInput(
            f"--html {path}: {fault.strerror}; name a file that can be written"
        ) from fault


def _encode_comparison(
    comparison: Comparison, found: AgentSessions | None, passed: list[FilesPassed], page: str
) -> dict[str, Any]:
    def encode_total(one: Any) -> dict[str, Any]:
        kept = {"kept_names": one.kept_names, "kept_lines": one.kept_lines}
        return {**msgspec.to_builtins(one), **kept}

    return {
        "sentence": describe_cost(comparison),
        "headline": render_headline(comparison),
        "cost": comparison.paid,
        "predicted": comparison.predicted,
        "agents": [] if found is None else [*_encode_found(found)],
        "baseline": comparison.baseline,
        "chosen": comparison.chosen,
        "recorded_dollars": comparison.recorded_dollars,
        "small": comparison.small,
        "policies": [encode_total(one) for one in comparison.totals],
        "sessions": msgspec.to_builtins(comparison.sessions),
        "caveats": list_caveats(comparison),
        "passed": msgspec.to_builtins(passed),
        "html": page or None,
    }


def _encode_found(found: AgentSessions) -> Generator[dict[str, Any]]:
    for folder in found.folders:
        left = [one for one in found.left if one.folder == folder]
        yield {
            "agent": folder.agent,
            "folder": replace_surrogates(str(folder.path)),
            "read": sum(one.folder == folder for one in found.files),
            "left": len(left),
            "left_bytes": sum(one.size for one in left),
        }


def _render_comparison(comparison: Comparison, found: AgentSessions | None, page: str) -> list[str]:
    lines = [apply_style(line, "strong") for line in wrap_text(describe_cost(comparison))]
    lines += [] if found is None else [*_render_found(found, comparison)]
    more = (
        describe_basis(comparison),
        describe_folded(comparison),
        describe_small_sessions(comparison),
    )
    lines += [line for one in more if one for line in wrap_text(one)]
    lines += ["", *_render_policies(comparison), ""]
    lines += _render_sessions(comparison)
    lines += _render_folds(comparison)
    for one in list_caveats(comparison):
        lines += wrap_text(one)
    if page:
        lines += ["", f"The page: {page}"]
    else:
        lines += ["", *wrap_text("--html FILE writes all of it as one page, with plots.")]
    return lines


def _render_policies(comparison: Comparison) -> list[str]:
    heads = (
        Column("policy", most=11),  # never narrower: a row without its name says nothing
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
            format_dollar_amount(one.dollars),
            "baseline" if one.policy == comparison.baseline else format_change(one.percent),
            f"{one.folds:,}",
            format_percent(one.kept_names),
            format_percent(one.kept_lines),
            f"{one.peak:,}",
        )
        for one in comparison.totals
    ]
    shown = [
        name for name in (RECORDED, EVERYTHING) if any(t.policy == name for t in comparison.totals)
    ]
    legend = "; ".join(f"{name}: {MEANINGS[name]}" for name in shown)
    kept = (
        "kept: of what the agent wrote again later (names that look like code, long lines), the "
        "share that was in the request then"
    )
    again = ", ".join(
        f"{one.policy} {format_dollar_amount(one.recall_dollars)}"
        for one in comparison.totals
        if one.recalls
    )
    return [
        *render_table(heads, rows),
        *(wrap_text(f"Read again, not in the cost: {again}.") if again else ()),
        *(apply_style(line, "dim") for line in wrap_text(f"{legend}; {kept}.")),
    ]


def _render_sessions(comparison: Comparison) -> list[str]:
    """Render the sessions on which the chosen policy changes the cost most."""
    chosen, base = comparison.chosen, comparison.baseline
    if len(comparison.sessions) == 1 or chosen == base:
        return []
    notable = sorted(
        (one for one in comparison.sessions if one.result_of(chosen).edits),
        key=lambda one: (
            -abs(one.result_of(base).dollars - one.result_of(chosen).dollars),
            one.session,
        ),
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
        was, now = one.result_of(base), one.result_of(chosen)
        less = 100 * (now.dollars / was.dollars - 1) if was.dollars else 0.0
        rows.append(
            (
                one.session,
                f"{one.calls:,}",
                format_dollar_amount(was.dollars),
                format_dollar_amount(now.dollars),
                format_change(less),
                f"{len(now.edits):,}",
                format_percent(now.retention.names.percent),
            )
        )
    rest = len(comparison.sessions) - len(rows)
    more = (
        [truncate_line(f"and {rest:,} more: --json and --html have every one")] if rest > 0 else []
    )
    return [*render_table(heads, rows), *more, ""]


def _render_folds(comparison: Comparison) -> list[str]:
    """Render the folds of a single session."""
    if len(comparison.sessions) != 1 or comparison.chosen == EVERYTHING:
        return []
    edits = comparison.sessions[0].result_of(comparison.chosen).edits
    if not edits:
        return []
    heads = (
        Column("call", right=True, most=6),
        Column("messages", right=True, most=8),
        Column("tokens", right=True, most=8),
        Column("become", right=True, most=8),
        Column(f"why {comparison.chosen} folds"),
    )
    rows = [
        (
            f"{one.call + 1:,}",
            f"{one.messages:,}",
            format_token_count(one.before),
            format_token_count(one.after),
            REASONS.get(one.why, one.why),
        )
        for one in edits[:_MOST]
    ]
    rest = len(edits) - len(rows)
    more = [f"and {rest:,} more: --json and --html have every one"] if rest else []
    return [*render_table(heads, rows), *more, ""]

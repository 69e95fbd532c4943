"""What if: a stored session replayed under other policies, side by side.

The replay takes seconds of a processor, so it runs in a process of its own, one at a time, on a log
of bounded length, and is ended when it takes too long. Nothing is written.
"""

import asyncio
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from markupsafe import Markup

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.pages.page_call import PageAnswer, PageCall
from foldline.core.budget import UNKNOWN_WINDOW
from foldline.core.names import format_count
from foldline.core.policy import PRESETS
from foldline.lab.comparison import (
    EVERYTHING,
    RECORDED,
    Case,
    Comparison,
    build_comparison,
    make_tasks,
    run_task,
)
from foldline.lab.recorded import Recorded, load_stored_session
from foldline.lab.report import plots
from foldline.lab.report.sentences import (
    MEANINGS,
    REASONS,
    describe_folded,
    format_change,
    format_dollar_amount,
    format_percent,
    list_caveats,
    render_headline,
)
from foldline.models.catalog import find

_MOST_EVENTS = 20_000
_SECONDS = 60.0
_MOST_POLICIES = 3
_LISTED = 50  # folds of a policy
_CHOICES = tuple(name for name in PRESETS if name != "off")
_running = asyncio.Lock()


async def show_choice(call: PageCall) -> PageAnswer:
    """Show which policies a session can be replayed under."""
    name, head = await call.find_session()
    return call.render(
        "what_if.html",
        name=name.session,
        choices=_CHOICES,
        chosen=("steady", "thrifty"),
        too_long=head.seq >= _MOST_EVENTS,
        most=_MOST_EVENTS,
        most_policies=_MOST_POLICIES,
        compared=None,
    )


async def compare(call: PageCall) -> PageAnswer:
    """Replay a session under the chosen policies, and show the results side by side."""
    name, head = await call.find_session(call.form.get("name", ""))
    policies = tuple(dict.fromkeys(one for one in call.chosen if one in _CHOICES))
    if not 0 < len(policies) <= _MOST_POLICIES:
        raise Refusal(400, "bad_policies", f"choose one to {_MOST_POLICIES} policies")
    if head.seq >= _MOST_EVENTS:
        raise Refusal(413, "too_long", f"a log of more than {_MOST_EVENTS:,} events; "
                      "`foldline lab compare NAME` takes any")  # fmt: skip
    if _running.locked():
        raise Refusal(409, "busy", "another comparison is under way; try again in a minute")
    async with _running:
        recorded = await load_stored_session(call.pool.place.store, name)
        if not recorded.calls:
            raise Refusal(409, "no_calls", "no answer of a model is in it: nothing to replay")
        compared = await asyncio.to_thread(run_comparison, recorded, policies)
    return call.render(
        "what_if.html",
        name=name.session,
        choices=_CHOICES,
        chosen=policies,
        too_long=False,
        most=_MOST_EVENTS,
        most_policies=_MOST_POLICIES,
        compared=compared,
        headline=render_headline(compared),
        folded=describe_folded(compared),
        rows=[_describe_total(compared, at) for at in range(len(compared.totals))],
        meanings=[
            (one.policy, MEANINGS[one.policy]) for one in compared.totals if one.policy in MEANINGS
        ],
        caveats=list_caveats(compared),
        plots=_draw_plots(compared),
        folds=_list_folds(compared),
    )


def run_comparison(recorded: Recorded, policies: Sequence[str]) -> Comparison:
    """Replay in another process, and end it if it takes too long."""
    case = build_case(recorded)
    tasks = make_tasks([case], policies, narratives=False)
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    try:
        results = list(pool.map(run_task, tasks, timeout=_SECONDS))
    except TimeoutError:
        for process in [*pool._processes.values()]:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType] - Python 3.14 has a method for it
            process.kill()  # pyright: ignore[reportUnknownMemberType]
        raise Refusal(
            503,
            "too_slow",
            f"the replay took more than {_SECONDS:.0f} seconds; "
            "`foldline lab compare NAME` has no limit",
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return build_comparison([case], results)


def build_case(recorded: Recorded) -> Case:
    """Build the case of a stored session, at the prices and the window of its model."""
    known = find(recorded.model)
    return Case(
        recorded,
        known.prices,
        known.window or UNKNOWN_WINDOW,
        priced_as=recorded.model if known.prices.is_known else "",
        window_assumed=known.window is None,
    )


def _describe_total(compared: Comparison, at: int) -> dict[str, str]:
    one = compared.totals[at]
    is_base = one.policy == compared.baseline
    return {
        "policy": one.policy,
        "colour": _choose_colours(compared)[one.policy],
        "cost": format_dollar_amount(one.dollars),
        "change": "baseline" if is_base else format_change(one.percent),
        "tone": "" if is_base or not round(one.percent) else "less" if one.percent < 0 else "more",
        "folds": f"{one.folds:,}",
        "names": format_percent(one.kept_names),
        "lines": format_percent(one.kept_lines),
        "peak": f"{one.peak:,}",
        "over": f"{one.over:,}",
        "again": f"+ {format_dollar_amount(one.recall_dollars)}",
    }


def _choose_colours(compared: Comparison) -> dict[str, str]:
    others = [one.policy for one in compared.totals if one.policy not in (RECORDED, EVERYTHING)]
    found = {name: f"p{at + 1}" for at, name in enumerate(others)}
    return {RECORDED: "rec", EVERYTHING: "off", **found}


def _draw_plots(compared: Comparison) -> list[tuple[str, Markup]]:
    """Draw the lab's plots; their texts are escaped there, and their colours are classes."""
    session, colours = compared.sessions[0], _choose_colours(compared)
    policies = [one.policy for one in compared.totals]
    drawn = (
        ("Tokens of each call", plots.draw_sizes(session, policies, colours)),
        ("Dollars so far", plots.draw_spending(session, policies, colours)),
    )
    return [(title, Markup(svg)) for title, svg in drawn]  # noqa: S704 - as the docstring says


def _list_folds(
    compared: Comparison,
) -> list[tuple[str, str, list[tuple[int, int, str, str]], int]]:
    session = compared.sessions[0]
    found: list[tuple[str, str, list[tuple[int, int, str, str]], int]] = []
    for total in compared.totals:
        edits = session.result_of(total.policy).edits
        rows = [
            (
                one.call + 1,
                one.messages,
                f"{one.before:,} → {one.after:,}",
                REASONS.get(one.why, one.why),
            )
            for one in edits[:_LISTED]
        ]
        if rows:
            found.append((total.policy, format_count(len(edits), "fold"), rows, len(edits)))
    return found

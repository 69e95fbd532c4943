"""`foldline lab quality`: what a model remembers, under several ways to fit the window."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.context import Desk, make_command
from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.import_ import show_progress
from foldline.apps.cli.lab_model import (
    BaseUrlOption,
    ModelOption,
    MostOption,
    OutOption,
    PricesOption,
    YesOption,
    format_difference,
    format_range,
    format_share,
    must_have_consent,
    open_asked_model,
    parse_arms,
    print_stopped,
)
from foldline.apps.cli.output import Column, apply_style, render_table, wrap_text
from foldline.core.names import format_count
from foldline.core.parts import replace_surrogates
from foldline.core.policy import named
from foldline.lab.answer_file import AnswerFile, MoneySpent, RunMoney
from foldline.lab.quality import (
    ARMS,
    BASELINE,
    USUAL,
    ArmResult,
    QualityRun,
    ask_questions,
    build_results,
    choose_arms,
    estimate_price,
    make_cases,
    name_arm,
)

_FEW = 10  # conversations below which an interval says little
_KINDS = ("single", "corrected", "two-part", "never")
_SPEAKERS = ("user", "assistant", "result")


@make_command
async def quality(  # noqa: PLR0913 - the options of one command
    desk: Desk,
    *,
    model: ModelOption,
    base_url: BaseUrlOption = None,
    window: Annotated[
        int, typer.Option(metavar="TOKENS", min=1_024, help="The window that must be fitted.")
    ] = 8_192,
    conversations: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many conversations are asked about.")
    ] = 10,
    arms: Annotated[
        str | None,
        typer.Option(metavar="ARM,…", help=f"Of {', '.join(ARMS)}; all but the last if not said."),
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="The policy of the arms policy and search.")
    ] = "steady",
    last: Annotated[int, typer.Option(metavar="N", min=1, help="Messages of the arm last.")] = 20,
    length: Annotated[
        float,
        typer.Option(metavar="FACTOR", min=0.5, help="Conversations are so many windows long."),
    ] = 1.5,
    seed: Annotated[int, typer.Option(metavar="N", help="Other conversations.")] = 0,
    most: MostOption = None,
    prices: PricesOption = None,
    out: OutOption = Path("foldline-quality.jsonl"),
    yes: YesOption = False,
) -> int:
    """Ask a model about planted facts of made-up conversations; say what each arm remembers.

    The arms: everything (if the real window holds it), truncation to the window, the last messages,
    a policy, the policy with one search, and a summary by the model. The price is said first. Every
    answer is kept: the same command goes on where it was stopped, and asks nothing twice.
    """
    named(policy)
    run = QualityRun(
        model=replace_surrogates(model),
        window=window,
        policy=policy,
        last=last,
        length=length,
        seed=seed,
    )
    file = AnswerFile(out, msgspec.to_builtins(run))
    cases = [*make_cases(run, conversations)]
    async with open_asked_model(model, base_url, prices) as asked:
        chosen, notes = choose_arms(run, parse_arms(arms, ARMS, USUAL), cases, asked.window)
        money = RunMoney(file, asked.prices, most)
        price = estimate_price(run, chosen, cases, money)
        if price.calls:
            estimate = (
                f"{format_count(price.calls, 'question')} to {run.model}, about "
                f"{price.tokens_in:,} tokens in and {price.tokens_out:,} out"
            )
            must_have_consent(asked, estimate, price.dollars, yes=yes)
        total = len(chosen) * sum(len(case.facts) for case in cases)
        try:
            with show_progress("asking", total, "answers", on=not desk.json) as bar:
                await ask_questions(run, chosen, cases, asked.model, money, progress=bar)
            stopped = ""
        except MoneySpent as fault:
            stopped = f"stopped: {fault}"
    results = build_results(run, file)
    limits = [*notes, *_list_limits(run, conversations)]
    desk.print_answer(
        _encode_results(run, results, limits, file=file, stopped=stopped),
        lambda: _render_results(run, results, limits, file=file),
    )
    if stopped:
        print_stopped(stopped)
    return NOTHING if stopped or not results else DONE


def _encode_results(
    run: QualityRun,
    results: Sequence[ArmResult],
    limits: Sequence[str],
    *,
    file: AnswerFile,
    stopped: str,
) -> dict[str, Any]:
    return {
        "run": msgspec.to_builtins(run),
        "baseline": BASELINE,
        "arms": [msgspec.to_builtins(one) for one in results],
        "dollars": file.dollars,
        "answers": str(file.path),
        "stopped": stopped or None,
        "limits": [*limits],
    }


def _render_results(
    run: QualityRun, results: Sequence[ArmResult], limits: Sequence[str], *, file: AnswerFile
) -> list[str]:
    if not results:
        return ["nothing was answered"]
    title = f"What {run.model} remembers at a window of {run.window:,} tokens"
    lines = [apply_style(title, "strong"), "", *_render_arms(results), "", *_render_kinds(results)]
    lines += ["", *wrap_text(f"{_explain_columns(run)} Answers: {file.path}")]
    for one in limits:
        lines += wrap_text(one)
    return lines


def _render_arms(results: Sequence[ArmResult]) -> list[str]:
    heads = (
        Column("arm", most=16),
        Column("right", right=True, most=5),
        Column("95 %", right=True, most=9),
        Column(f"less {BASELINE}", right=True, most=16),
        Column("unknown", right=True, most=7),
        Column("old", right=True, most=4),
        Column("wrong", right=True, most=5),
        Column("in view", right=True, most=7),
        Column("tokens", right=True, most=7),
    )
    rows = [
        (
            one.name,
            format_share(one.share.mean if one.share else None),
            format_range(one.share),
            format_difference(one.difference),
            f"{one.unknown}",
            f"{one.stale}",
            f"{one.wrong}",
            format_share(one.said_in_view),
            f"{one.tokens:,.0f}",
        )
        for one in results
    ]
    return render_table(heads, rows)


def _render_kinds(results: Sequence[ArmResult]) -> list[str]:
    """Render the share of right answers by the kind of fact and by who said it."""
    names = (*_KINDS, *_SPEAKERS)
    heads = (Column("right", most=16), *(Column(name, right=True, most=9) for name in names))
    rows: list[tuple[str, ...]] = []
    for one in results:
        counts = {**one.by_kind, **one.by_speaker}
        rows.append((one.name, *(_format_count_share(counts.get(name)) for name in names)))
    return render_table(heads, rows)


def _explain_columns(run: QualityRun) -> str:
    return (
        "right: the answer contains the value. unknown: the model said that it cannot see it. old: "
        "it gave the value from before a correction. in view: of the facts that were said, those "
        "whose subject and value the request held together. never: nobody said it, UNKNOWN is "
        f"right. {name_arm(run, 'search')}: the question's own words were searched once."
    )


def _list_limits(run: QualityRun, conversations: int) -> list[str]:
    made_up = (
        "The limits: the conversations are made up, and shorter and plainer than real work; one "
        "question at a time, answers are matched exactly, and one model says nothing of another."
    )
    drawn = (
        f"Each conversation is about {run.length:g} windows long. Intervals resample "
        "conversations, not questions."
    )
    few = f"{format_count(conversations, 'conversation')}: few, so the intervals are too narrow."
    return [made_up, drawn, *([few] if conversations < _FEW else [])]


def _format_count_share(counts: tuple[int, int] | None) -> str:
    return format_share(counts[0] / counts[1]) if counts else "-"

"""`foldline lab tasks`: small coding tasks, worked by our own agent under several arms."""

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
from foldline.lab.coding_tasks import TASKS
from foldline.lab.task_run import (
    TASK_ARMS,
    TaskArmResult,
    TaskRun,
    build_task_results,
    estimate_task_price,
    work_tasks,
)

_LIMITS = (
    "The limits: the repositories are made up, small and alike, and one fault each; a solved task "
    "says that the test passes, not how well it was mended; one model says nothing of another. "
    "Intervals resample tasks. plain: nothing is folded, and a task that outgrows the window "
    "ends. compaction: the model summarises its past and starts anew (folds: its summaries). "
    "again: file ranges that were read once more after they had left the view."
)


@make_command
async def tasks(  # noqa: PLR0913 - the options of one command
    desk: Desk,
    *,
    model: ModelOption,
    base_url: BaseUrlOption = None,
    window: Annotated[
        int, typer.Option(metavar="TOKENS", min=4_096, help="The window that must be fitted.")
    ] = 8_192,
    count: Annotated[
        int, typer.Option("--tasks", metavar="N", min=1, max=len(TASKS), help="How many tasks.")
    ] = len(TASKS),
    arms: Annotated[
        str | None,
        typer.Option(metavar="ARM,…", help=f"Of {', '.join(TASK_ARMS)}; all if not said."),
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="POLICY", help="The policy of the arm policy.")
    ] = "steady",
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, help="How often tools may be run in one task.")
    ] = 30,
    most: MostOption = None,
    prices: PricesOption = None,
    out: OutOption = Path("foldline-tasks.jsonl"),
    yes: YesOption = False,
) -> int:
    """Let a model mend small repositories with our agent; say what each arm solved and took.

    The arms: plain (nothing is folded), compaction (the model summarises its past), and a
    policy. Each task has a temporary folder; the agent may change files there and run its check.
    The price is said first, and the same command goes on where it was stopped.
    """
    named(policy)
    run = TaskRun(model=replace_surrogates(model), window=window, policy=policy, rounds=rounds)
    file = AnswerFile(out, msgspec.to_builtins(run))
    chosen, wanted = parse_arms(arms, TASK_ARMS, TASK_ARMS), TASKS[:count]
    async with open_asked_model(model, base_url, prices) as asked:
        money = RunMoney(file, asked.prices, most)
        price = estimate_task_price(run, chosen, wanted, money)
        if price.tasks:
            estimate = (
                f"{format_count(price.tasks, 'task')} for {run.model}, up to "
                f"{price.tokens_in:,} tokens in and {price.tokens_out:,} out"
            )
            must_have_consent(asked, estimate, price.dollars, yes=yes)
        total = len(chosen) * len(wanted)
        try:
            with show_progress("working", total, "tasks", on=not desk.json) as bar:
                await work_tasks(run, chosen, wanted, asked.model, money, progress=bar)
            stopped = ""
        except MoneySpent as fault:
            stopped = f"stopped: {fault}"
    results = build_task_results(run, file)
    body: dict[str, Any] = {
        "run": msgspec.to_builtins(run),
        "arms": [msgspec.to_builtins(one) for one in results],
        "dollars": file.dollars,
        "outcomes": str(file.path),
        "stopped": stopped or None,
        "limits": _LIMITS,
    }
    desk.print_answer(body, lambda: _render_results(run, results, file))
    if stopped:
        print_stopped(stopped)
    return NOTHING if stopped or not results else DONE


def _render_results(run: TaskRun, results: Sequence[TaskArmResult], file: AnswerFile) -> list[str]:
    if not results:
        return ["nothing was worked"]
    heads = (
        Column("arm", most=11),
        Column("solved", right=True, most=7),
        Column("95 %", right=True, most=10),
        Column("less plain", right=True, most=18),
        Column("$", right=True, most=7),
        Column("calls", right=True, most=6),
        Column("tokens", right=True, most=10),
        Column("again", right=True, most=5),
        Column("folds", right=True, most=5),
    )
    rows = [
        (
            one.name,
            f"{one.solved}/{one.tasks}",
            format_range(one.share),
            format_difference(one.difference),
            f"{one.dollars:.2f}",
            f"{one.calls:,}",
            f"{one.tokens_in + one.tokens_out:,}",
            f"{one.reread}",
            f"{one.folds}",
        )
        for one in results
    ]
    title = f"What {run.model} mended at a window of {run.window:,} tokens"
    full = [
        f"{one.name}: {format_count(one.overflowed, 'task')} did not fit the window any more."
        for one in results
        if one.overflowed
    ]
    lines = [apply_style(title, "strong"), "", *render_table(heads, rows), ""]
    for text in (*full, f"{_LIMITS} Outcomes: {file.path}"):
        lines += wrap_text(text)
    return lines

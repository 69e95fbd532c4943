"""The chat's commands that only look: `/tokens`, `/context`, `/cost`, `/tools` and others.

Each is a function of the talk and of the text after the command's name, as in `slash_commands`.
"""

from time import time
from typing import TYPE_CHECKING

from foldline.apps.cli.output import (
    Column,
    apply_style,
    has_colours,
    render_table,
    truncate_line,
    wrap_text,
)
from foldline.core.names import format_count
from foldline.core.prices import format_dollars
from foldline.draw import draw_picture_terminal, wording
from foldline.draw.picture import choose_level
from foldline.draw.wording import clean_line, describe_charges
from foldline.session.history import measure_pace
from foldline.session.summaries import Preparing
from foldline.session.summaries import read_narrator_state as breaker

if TYPE_CHECKING:
    from foldline.apps.chat.chat_loop import Talk


async def show_token_usage(talk: "Talk", _: str) -> None:
    """Show how full the window is, and how long it will do."""
    drawn = talk.update_picture()
    turns = await talk.session.history.turns()
    share = 100 * drawn.total / drawn.window
    line = f"📊 Tokens: {drawn.total}/{drawn.window} ({share:.0f}% used)"
    on = measure_pace(turns, talk.session.report)
    block = wording.render_usage_block(
        drawn, latest=on.latest, growth=on.growth, turns_left=on.turns_left
    )
    talk.show_lines(apply_style(line, choose_level(drawn.percent)), *block)


async def show_context(talk: "Talk", _: str) -> None:
    """Draw what the model sees now."""
    talk.show_lines(
        draw_picture_terminal(
            talk.update_picture(), min(talk.face.columns, 100), colour=has_colours()
        ).rstrip("\n")
    )


async def show_cost(talk: "Talk", _: str) -> None:
    """Show what was spent."""
    await talk.ledger.catch_up()
    for line in describe_charges(talk.ledger):
        talk.show_lines(*wrap_text(line))
    drawn = talk.update_picture()
    if drawn.cost:
        talk.show_text(f"the next call's input is about {format_dollars(drawn.cost.dollars)}")
    spending = talk.session.live.spending
    if spending is not None:
        counted = await spending.read_spent()
        talk.show_text(
            f"counted against caps: {format_dollars(counted.session.dollars)} in this session, "
            f"{format_dollars(counted.folds.dollars)} of it for folds"
        )


async def show_fold_status(talk: "Talk", _: str) -> None:
    """Show when folds happen, and how they went."""
    live, drawn = talk.session.live, talk.update_picture()
    policy = live.facts.policy
    rows = [
        (
            "policy",
            f"{policy.name}, started {_describe_fold_start(policy.start, folds=policy.folds)}",
        )
    ]
    rows += [("window", f"{drawn.total:,} of {drawn.window:,} tokens, pressure {drawn.pressure}")]
    tiers = " · ".join(f"{name} {tokens:,}" for name, tokens in drawn.tiers)
    rows.append(("tiers", tiers))
    if drawn.folds:
        for fold in drawn.folds[-5:]:
            covered = f"log:{fold.span.lo}-{fold.span.hi}: {format_count(fold.messages, 'message')}"
            rows.append(("fold", f"edit {fold.at}, {covered}, {fold.before:,} → {fold.after:,}"))
    else:
        rows.append(("folds", "none stands: the model sees everything as it came"))
    rows.append(("prepared", await _describe_narrative(talk)))
    failing = await breaker(live.store, live.name)
    if failing.failures:
        wait = max(failing.until - time(), 0)
        then = f"asked again in {wait:.0f} s" if wait else "asked again next time"
        rows.append(
            ("breaker", f"open: failed {failing.failures} times ({failing.reason}), {then}")
        )
    else:
        rows.append(("breaker", "closed: nothing failed"))
    rows.append(("last", _describe_last_pass(talk)))
    talk.show_lines(
        *(line for title, text in rows for line in wrap_text(text, title=f"{title:9} "))
    )


def _describe_fold_start(how: str, *, folds: bool) -> str:
    if not folds:
        return "never: this policy only counts"
    wording = {
        "auto": "by itself",
        "ask": "when you agree",
        "manual": "by /compact",
        "off": "only where it must",
    }
    return wording.get(how, how)


async def _describe_narrative(talk: "Talk") -> str:
    narrator = talk.session.live.narrator
    if narrator is None:
        return "nothing: folds are made without a model (--summarizer names one)"
    found = await narrator.find_prepared(talk.session.live)
    return "a narrative for the next fold" if found else "no narrative yet"


def _describe_last_pass(talk: "Talk") -> str:
    one = talk.hearing.last
    narrator = talk.session.live.narrator
    if one is not None:
        why = f" ({one.reason})" if one.reason else ""
        return f"{one.kind} {one.outcome}, {one.before:,} → {one.after:,} tokens{why}"
    if isinstance(narrator, Preparing) and narrator.last is not None:
        return f"narrative {narrator.last.outcome} {narrator.last.reason}".rstrip()
    return "nothing since this terminal was opened"


async def show_tools(talk: "Talk", _: str) -> None:
    """List the tools of the agent."""
    tools = talk.seat.agent.tools
    if not tools:
        talk.show_text("none: this agent only talks")
    for tool in tools.values():
        talk.show_lines(truncate_line(f"  {clean_line(tool.name):14} ", tool.description))


async def show_instructions(talk: "Talk", _: str) -> None:
    """List the files of instructions that apply."""
    known = talk.seat.instructions
    if known is not None:
        known.render_texts()  # a file may be new since the last turn
    if known is not None and (files := known.list_files()):
        heads = (
            Column("scope", 8),
            Column("state", 10),
            Column("tokens", 6, right=True),
            Column("file"),
        )
        rows = [(one.scope, one.state, f"{one.tokens:,}", str(one.path)) for one in files]
        talk.show_lines(*render_table(heads, rows))
        talk.show_lines(
            *(line for one in files if one.why for line in wrap_text(f"{one.name}: {one.why}"))
        )
        return
    drawn = talk.update_picture()
    size = sum(run.tokens for run in drawn.select_runs("system"))
    text = f"{size:,} tokens of instructions" if size else "none: no instructions were given"
    talk.show_text(text)

"""`foldline history` and `search`: turns, what the model saw at one, and where something was said.

`history --over-time` draws a session from its first call to its last. `session.history` does the
reading.
"""

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from foldline.apps.cli.context import (
    Desk,
    Look,
    apply_look,
    make_command,
    open_named_session,
    resolve_session_name,
)
from foldline.apps.cli.exit_codes import DONE, NOTHING, NothingFound
from foldline.apps.cli.output import (
    Column,
    Style,
    apply_style,
    format_age,
    format_time,
    measure_terminal,
    render_table,
    truncate_line,
    wrap_text,
)
from foldline.apps.cli.show import (
    NameArgument,
    PngOption,
    SvgOption,
    WindowOption,
    write_picture,
)
from foldline.core import log
from foldline.core.budget import Limits, measure_budget
from foldline.core.item import Item
from foldline.core.names import format_count
from foldline.core.parts import calls_of, render_parts, replace_surrogates
from foldline.core.prices import format_dollars
from foldline.core.request import Report, build_report
from foldline.core.view import View
from foldline.draw.course import Course, Following, describe_course
from foldline.draw.course_svg import course_svg
from foldline.draw.course_terminal import course_terminal
from foldline.draw.picture import build_picture
from foldline.draw.wording import clean_line, find_word, truncate_to_width
from foldline.errors import BadInput
from foldline.session.fold_records import FoldRecord, read_fold_records
from foldline.session.history import Changed, FoundMessage, Turn, diff_views, measure_pace
from foldline.session.ledger import find_prices
from foldline.session.message_search import search_tenant_messages
from foldline.session.session import AsyncSession
from foldline.stores import event_log


async def over_time(
    desk: Desk, seen: AsyncSession, *, vector: Path | None, pixels: Path | None
) -> int:
    """Draw every call of a session, to files or to the terminal."""
    drawn = await _build_course(seen)
    written = write_picture(course_svg(drawn), vector=vector, pixels=pixels)
    body = {"session": seen.live.name.session, **_encode_course(drawn), "written": written}
    desk.print_answer(
        body,
        lambda: (
            [f"wrote {one}" for one in written]
            or course_terminal(drawn, measure_terminal()).splitlines()
        ),
    )
    return DONE if drawn.steps else NOTHING


async def _build_course(seen: AsyncSession) -> Course:
    live = seen.live
    following = Following(build_picture(live.view, live.facts), find_prices)
    async for row in event_log.iterate_rows(live.store, live.name, live.view.head):
        following.apply_event(row.seq, log.decode_event(row.body))
    return following.build_course()


def _encode_course(drawn: Course) -> dict[str, Any]:
    """Encode a course as the JSON document that scripts read."""
    paid, whole = drawn.dollars or (None, None)
    return {
        "finding": describe_course(drawn),
        "turns": drawn.turns,
        "window": drawn.now.window,
        "tiers": dict(drawn.now.tiers),
        "peak": drawn.peak,
        "counted": drawn.counted,
        "input": drawn.input,
        "read": drawn.read,
        "dollars": paid,
        "all_dollars": whole,
        "edits": {
            how: {"count": n, "tokens": gone} for how, (n, gone) in drawn.sum_edits().items()
        },
        "calls": [
            {**msgspec.to_builtins(one), "dollars": one.dollars, "all_dollars": one.all_dollars}
            for one in drawn.steps
        ],
    }


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_STYLES: dict[str, Style] = {"added": "green", "removed": "red", "changed": "yellow"}
_APART = 1.3  # times the provider's count: no estimate is off by more
_ALONE = 3  # removed neighbours that are listed one by one


@make_command
async def history(  # noqa: PLR0913 - one for each way to look
    desk: Desk,
    name: NameArgument,
    number: Annotated[
        int | None, typer.Argument(metavar="TURN", help="What the model saw at this turn.")
    ] = None,
    *,
    drawn: Annotated[
        bool, typer.Option("--over-time", help="Draw tokens, edits and cost call by call.")
    ] = False,
    only_folds: Annotated[
        bool, typer.Option("--folds", help="List the folds: turns, tokens, cost.")
    ] = False,
    vector: SvgOption = None,
    pixels: PngOption = None,
    window: WindowOption = None,
) -> int | None:
    """List the turns, or show what the model saw at one.

    What is new since the turn before stands behind +, what went behind -, what is another behind ~.
    """
    drawn = drawn or vector is not None or pixels is not None
    if drawn and number is not None:
        raise BadInput("--over-time, --svg and --png draw all turns: leave out the turn's number")
    if only_folds and (drawn or number is not None):
        raise BadInput("--folds lists all folds: leave out the turn's number and the drawing")
    async with desk.open_store() as store:
        seen = await open_named_session(store, desk.tenant, name)
        seen.live.facts, seen.live.report = apply_look(seen, Look(window=window))[1], None
        if drawn:
            return await over_time(desk, seen, vector=vector, pixels=pixels)
        turns = await seen.history.turns()
        if number is None:
            folds = await read_fold_records(seen.live, turns)
            if only_folds:
                return _print_folds(desk, seen, folds)
            return _print_turns(desk, seen, turns, folds)
        if not 1 <= number <= len(turns):
            raise NothingFound(f"there is no turn {number}; this session has 1 to {len(turns)}")
        return await _print_turn(desk, seen, turns[:number])


def _print_turns(desk: Desk, seen: AsyncSession, turns: list[Turn], folds: list[FoldRecord]) -> int:
    body = build_outline(seen, turns, folds)
    more = f"{format_count(len(folds), 'fold')}; --folds lists them"
    lines = wrap_text(more) if folds else []
    desk.print_answer(body, lambda: [*turn_table(turns), *render_totals(body), *lines])
    return DONE if turns else NOTHING


def _print_folds(desk: Desk, seen: AsyncSession, folds: list[FoldRecord]) -> int:
    body = {"session": seen.live.name.session, "folds": [encode_fold(one) for one in folds]}
    desk.print_answer(body, lambda: fold_table(folds))
    return DONE if folds else NOTHING


def encode_fold(one: FoldRecord) -> dict[str, Any]:
    """Encode a fold's record as the JSON document that scripts read."""
    used = None if one.used is None else msgspec.to_builtins(one.used)
    return {**asdict(one), "used": used, "ratio": round(one.ratio, 2)}


def fold_table(folds: list[FoldRecord]) -> list[str]:
    """Render a table with a row per fold, and what asking for their narratives cost."""
    if not folds:
        return wrap_text("no folds: the model sees everything as it came")
    heads = (
        Column("edit", most=7, right=True),
        Column("ago", most=4, right=True),
        Column("turns", most=9, right=True),
        Column("messages", most=8, right=True),
        Column("before", most=10, right=True),
        Column("after", most=9, right=True),
        Column("ratio", most=6, right=True),
        Column("cost", most=8, right=True),
        Column("told by"),
    )
    rows = [
        (
            str(one.at),
            format_age(one.time),
            _render_turn_span(one),
            f"{one.messages:,}",
            f"{one.before:,}",
            f"{one.after:,}",
            f"{one.ratio:.1f}",
            "-" if one.dollars is None else format_dollars(one.dollars),
            _describe_teller(one) + ("" if one.standing else ", not in force"),
        )
        for one in folds
    ]
    note = (
        "before and after are estimates of when a fold was made; `foldline context` scales them to "
        "what the provider has counted since"
    )
    return [*render_table(heads, rows), *wrap_text(note)]


def _describe_teller(one: FoldRecord) -> str:
    return f"{one.client}, not ours" if one.client else one.model or "no model"


def _render_turn_span(one: FoldRecord) -> str:
    if one.first_turn is None:
        return "-"
    same = one.first_turn == one.last_turn
    return str(one.first_turn) if same else f"{one.first_turn}-{one.last_turn}"


def build_outline(seen: AsyncSession, turns: list[Turn], folds: list[FoldRecord]) -> dict[str, Any]:
    """Encode the turns, their sums, the folds, and how many more turns will fit."""
    now = seen.report
    on = measure_pace(turns, now)
    return {
        "session": seen.live.name.session,
        "turns": [{**asdict(turn), "total": turn.total} for turn in turns],
        "calls": sum(turn.calls for turn in turns),
        "used": now.total,
        "window": now.window,
        "growth": on.growth,
        "turns_left": on.turns_left,
        "next_output": on.next_output,
        "folds": [encode_fold(one) for one in folds],
    }


def turn_table(turns: list[Turn]) -> list[str]:
    """Render a table with a row per turn."""
    heads = (
        Column("turn", most=5, right=True),
        Column("at", most=7, right=True),
        Column("calls", most=5, right=True),
        Column("input", most=10, right=True),
        Column("output", most=9, right=True),
        Column("total", most=10, right=True),
        Column("ago", most=4, right=True),
        Column("fold", most=4),
        Column("first words"),
    )
    rows = [
        (
            str(turn.number),
            str(turn.at),
            str(turn.calls),
            f"{turn.input:,}" if turn.input else "-",
            f"{turn.output:,}" if turn.output else "-",
            f"{turn.total:,}" if turn.total else "-",
            format_age(turn.time),
            "yes" if turn.folded else "",
            turn.words,
        )
        for turn in turns
    ]
    return render_table(heads, rows)


def render_totals(body: dict[str, Any]) -> list[str]:
    """Render the sums of an outline."""
    turns = body["turns"]
    output = sum(turn["output"] for turn in turns)
    sentence = (
        f"{format_count(len(turns), 'turn')}, {format_count(body['calls'], 'call')}, "
        f"{output:,} tokens of output"
    )
    share = 100 * body["used"] / body["window"]
    now = f"{body['used']:,} of {body['window']:,} tokens used now ({share:.1f}%)"
    if body["turns_left"] == 0:
        now += "; as it stands no further turn fits"
    elif body["turns_left"] is not None:
        now += f"; a turn adds {body['growth']:,}, so about {body['turns_left']:,} more fit"
    return [*wrap_text(sentence), *wrap_text(now)]


async def _print_turn(desk: Desk, seen: AsyncSession, turns: list[Turn]) -> None:
    turn = turns[-1]
    view = await seen.history.seen(turn)
    earlier = next((one for one in reversed(turns[:-1]) if one.saw >= 0), None)
    before = await seen.history.seen(earlier) if earlier else None
    changes = diff_views(before, view)
    limits = seen.live.facts.limits
    total = _build_report(view, limits)
    source = "recorded" if turn.asked >= 0 else "rendered"
    fixed = [] if before is None else _list_prefix_changes(before, view)
    body = {
        "session": seen.live.name.session,
        "turn": {**asdict(turn), "total": turn.total},
        "source": source,
        "tokens": total.total,
        "parts": total.parts,
        "items": len(view.items) + len(view.waiting),
        "before": None if before is None or earlier is None else earlier.number,
        "tokens_before": None if before is None else _build_report(before, limits).total,
        "fixed_changed": fixed,
        "changes": [_encode_change(one) for one in changes],
    }
    desk.print_answer(body, lambda: [*_render_heading(turn, body), *_render_changes(view, changes)])


def _build_report(view: View, limits: Limits) -> Report:
    return build_report(view, measure_budget(view, limits))


def _list_prefix_changes(before: View, view: View) -> list[str]:
    """Name the parts that open every request and have changed."""
    return [
        name
        for name, changed in (
            ("system", before.instructions.parts != view.instructions.parts),
            ("tools", before.newest.tools != view.newest.tools),
            ("model", before.model != view.model),
        )
        if changed
    ]


def _encode_change(one: Changed) -> dict[str, Any]:
    item = one.item
    return {
        "how": one.how,
        "seq": item.seq,
        "role": item.role,
        "state": item.state,
        "tokens": item.tokens,
        "tokens_before": None if one.was is None else one.was.tokens,
        "words": _render_words(item)[:200],
    }


def _render_heading(turn: Turn, body: dict[str, Any]) -> list[str]:
    called = f"turn {turn.number} ({format_time(turn.time)}), {format_count(turn.calls, 'call')}: "
    how = (
        f"its last request, as recorded at log:{turn.asked}, sha256 proven"
        if turn.asked >= 0
        else "no request of it was recorded: the log as it stood before its last answer"
    )
    size = f"{format_count(body['items'], 'item')}, {body['tokens']:,} tokens"
    lines = [apply_style(truncate_line(called, turn.words), "strong"), *wrap_text(how)]
    if turn.asked < 0 and 0 < turn.input * _APART < body["tokens"]:
        sentence = f"its agent sent less of it: the provider counted {turn.input:,} tokens of input"
        lines += wrap_text(sentence)
    if body["before"] is None:
        return [*lines, *wrap_text(f"{size}; the first that a model saw"), ""]
    grown = body["tokens"] - body["tokens_before"]
    lines += wrap_text(f"{size}; {grown:+,} since turn {body['before']}:")
    if body["fixed_changed"]:
        lines += wrap_text(f"changed at its beginning: {', '.join(body['fixed_changed'])}")
    return [*lines, ""]


def _render_changes(view: View, changes: list[Changed]) -> list[str]:
    lines: list[str] = []
    for how, group in groupby(changes, key=lambda one: one.how):
        some = list(group)
        if how == "removed" and len(some) > _ALONE:
            tokens = sum(one.item.tokens for one in some)
            places = f"log:{some[0].item.seq} … log:{some[-1].item.seq}"
            sentence = f"- {format_count(len(some), 'item')}, {tokens:,} tokens, {places}"
            lines.append(apply_style(truncate_line(sentence), "red"))
            continue
        lines += [_render_change(view, one) for one in some]
    return lines or ["nothing else: the same items"]


def _render_change(view: View, one: Changed) -> str:
    item = one.item
    tokens = f"{item.tokens:,}" if one.was is None else f"{one.was.tokens:,}→{item.tokens:,}"
    words = _render_words(item)
    if item.role == "handoff" and one.how != "removed":
        span = view.fold_at(item.seq).change.span
        words = f"stands for log:{span.lo}-{span.hi}: {words}"
    state = "" if item.state == "whole" else f" {item.state}"
    line = truncate_line(
        f"{_SIGNS[one.how]} {item.seq:>6} {item.role:7} {tokens:>7}{state} ", words
    )
    return apply_style(line, _STYLES[one.how])


def _render_words(item: Item) -> str:
    calls = " ".join(f"{call.name}({call.arguments[:200]})" for call in calls_of(item.parts))
    return " ".join(f"{render_parts(item.parts)[:2_000]} {calls}".split())


@make_command
async def search(
    desk: Desk,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="Messages that hold any of them.")
    ],
    *,
    within: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="In this session only.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=1_000)] = 20,
) -> int:
    """Find what was said; "quoted words" as a phrase."""
    asked = replace_surrogates(" ".join(words))
    async with desk.open_store() as store:
        only = (await resolve_session_name(store, desk.tenant, within)).session if within else None
        found = await search_tenant_messages(store, desk.tenant, asked, session=only, limit=limit)
    body = {
        "words": asked,
        "found": [
            {
                "session": one.session,
                "handle": one.handle,
                "score": one.score,
                "same": one.same,
                "snippet": clean_line(one.snippet),
            }
            for one in found
        ],
    }
    desk.print_answer(body, lambda: render_hits(found, asked, limit))
    return DONE if found else NOTHING


def render_hits(
    found: list[FoundMessage],
    asked: str,
    limit: int,
    *,
    way: str = "`foldline show NAME log:N` gives the whole one",
) -> list[str]:
    """Render the messages that were found, each with its best passage."""
    if not found:
        return wrap_text(f"nothing holds any of: {asked}")
    lines: list[str] = []
    for name in dict.fromkeys(one.session for one in found):
        lines.append(apply_style(truncate_line("", name), "strong"))
        for one in (one for one in found if one.session == name):
            text = clean_line(one.snippet)
            at, end = find_word(text, asked)
            place = f"  {one.handle:<10} "
            same = f" (and {one.same} more alike)" if one.same else ""
            cut = truncate_to_width(text, measure_terminal() - len(place) - len(same) - 2)
            marked = f"{cut[:at]}{_mark_match(cut[at:end])}{cut[end:]}" if end <= len(cut) else cut
            lines.append(f"{place}{marked}{same}")
    more = "; --limit shows more" if len(found) == limit else ""
    last = f"{format_count(len(found), 'message')}{more}; {way}"
    return [*lines, *wrap_text(last)]


def _mark_match(word: str) -> str:
    painted = apply_style(word, "yellow")
    return painted if painted != word or not word else f"«{word}»"

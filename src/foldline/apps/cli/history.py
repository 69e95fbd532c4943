"""`history` and `search`: what happened, what the model saw then, and where something was said.

Knows how a turn and a difference between two requests are told. Refuses to find them out: that is
the session's history.
"""

from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

import typer

from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.exit_codes import DONE, NOTHING, NothingFound
from foldline.apps.cli.output import (
    Column,
    Style,
    age,
    columns,
    moment,
    paint,
    short,
    table,
    wrapped,
)
from foldline.apps.cli.show import NameArgument, PngOption, SvgOption
from foldline.apps.cli.store_location import named
from foldline.core.budget import Limits, measure
from foldline.core.item import Item
from foldline.core.parts import calls_of, retold, sound
from foldline.core.request import Report, report
from foldline.core.saying import many
from foldline.core.view import View
from foldline.draw.text import fit, snippet
from foldline.errors import BadInput
from foldline.session import history as pasts
from foldline.session.history import Changed, Found, Turn, difference, pace
from foldline.session.session import AsyncSession
from foldline.session.stored_session import left

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_STYLES: dict[str, Style] = {"added": "green", "removed": "red", "changed": "yellow"}
_APART = 1.3  # times what was counted: more than an estimate is off by
_ALONE = 3  # removed neighbours that are told one by one


@command
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
    vector: SvgOption = None,
    pixels: PngOption = None,
) -> int | None:
    """List the turns, or show what the model saw at one.

    What is new since the turn before stands behind +, what went behind -, what is another behind ~.
    """
    drawn = drawn or vector is not None or pixels is not None
    if drawn and number is not None:
        raise BadInput("--over-time, --svg and --png draw all turns: leave out the turn's number")
    async with desk.store() as store:
        seen = await left(store, await named(store, desk.tenant, name))
        if drawn:
            from foldline.apps.cli.over_time import over_time  # noqa: PLC0415 - few want it drawn

            return await over_time(desk, seen, vector=vector, pixels=pixels)
        turns = await seen.history.turns()
        if number is None:
            return _turns(desk, seen, turns)
        if not 1 <= number <= len(turns):
            raise NothingFound(f"there is no turn {number}; this session has 1 to {len(turns)}")
        return await _turn(desk, seen, turns[:number])


def _turns(desk: Desk, seen: AsyncSession, turns: list[Turn]) -> int:
    body = outline(seen, turns)
    desk.answer(body, lambda: [*turn_table(turns), *totals(body)])
    return DONE if turns else NOTHING


def outline(seen: AsyncSession, turns: list[Turn]) -> dict[str, Any]:
    """The turns and what they come to: A-41."""
    now = seen.report
    on = pace(turns, now)
    return {
        "session": seen.live.name.session,
        "turns": [{**asdict(turn), "total": turn.total} for turn in turns],
        "calls": sum(turn.calls for turn in turns),
        "used": now.total,
        "window": now.window,
        "growth": on.growth,
        "turns_left": on.turns_left,
        "next_output": on.next_output,
    }


def turn_table(turns: list[Turn]) -> list[str]:
    """The turns, a row each."""
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
            age(turn.time),
            "yes" if turn.folded else "",
            turn.words,
        )
        for turn in turns
    ]
    return table(heads, rows)


def totals(body: dict[str, Any]) -> list[str]:
    """What an outline's turns come to."""
    turns = body["turns"]
    output = sum(turn["output"] for turn in turns)
    told = f"{many(len(turns), 'turn')}, {many(body['calls'], 'call')}, {output:,} tokens of output"
    share = 100 * body["used"] / body["window"]
    now = f"{body['used']:,} of {body['window']:,} tokens used now ({share:.1f}%)"
    if body["turns_left"] == 0:
        now += "; as it stands no further turn fits"
    elif body["turns_left"] is not None:
        now += f"; a turn adds {body['growth']:,}, so about {body['turns_left']:,} more fit"
    return [*wrapped(told), *wrapped(now)]


async def _turn(desk: Desk, seen: AsyncSession, turns: list[Turn]) -> None:
    turn = turns[-1]
    view = await seen.history.seen(turn)
    earlier = next((one for one in reversed(turns[:-1]) if one.saw >= 0), None)
    before = await seen.history.seen(earlier) if earlier else None
    changes = difference(before, view)
    limits = seen.live.facts.limits
    total = _report(view, limits)
    source = "recorded" if turn.asked >= 0 else "rendered"
    fixed = [] if before is None else _fixed(before, view)
    body = {
        "session": seen.live.name.session,
        "turn": {**asdict(turn), "total": turn.total},
        "source": source,
        "tokens": total.total,
        "parts": total.parts,
        "items": len(view.items) + len(view.waiting),
        "before": None if before is None or earlier is None else earlier.number,
        "tokens_before": None if before is None else _report(before, limits).total,
        "fixed_changed": fixed,
        "changes": [_change(one) for one in changes],
    }
    desk.answer(body, lambda: [*_heading(turn, body), *_diff(view, changes)])


def _report(view: View, limits: Limits) -> Report:
    return report(view, measure(view, limits))


def _fixed(before: View, view: View) -> list[str]:
    """What opens every request and is another now."""
    return [
        name
        for name, changed in (
            ("system", before.instructions.parts != view.instructions.parts),
            ("tools", before.newest.tools != view.newest.tools),
            ("model", before.model != view.model),
        )
        if changed
    ]


def _change(one: Changed) -> dict[str, Any]:
    item = one.item
    return {
        "how": one.how,
        "seq": item.seq,
        "role": item.role,
        "state": item.state,
        "tokens": item.tokens,
        "tokens_before": None if one.was is None else one.was.tokens,
        "words": _words(item)[:200],
    }


def _heading(turn: Turn, body: dict[str, Any]) -> list[str]:
    called = f"turn {turn.number} ({moment(turn.time)}), {many(turn.calls, 'call')}: "
    how = (
        f"its last request, as recorded at log:{turn.asked}, sha256 proven"
        if turn.asked >= 0
        else "no request of it was recorded: the log as it stood before its last answer"
    )
    size = f"{many(body['items'], 'item')}, {body['tokens']:,} tokens"
    lines = [paint(short(called, turn.words), "strong"), *wrapped(how)]
    if turn.asked < 0 and 0 < turn.input * _APART < body["tokens"]:
        told = f"its agent sent less of it: the provider counted {turn.input:,} tokens of input"
        lines += wrapped(told)
    if body["before"] is None:
        return [*lines, *wrapped(f"{size}; the first that a model saw"), ""]
    grown = body["tokens"] - body["tokens_before"]
    lines += wrapped(f"{size}; {grown:+,} since turn {body['before']}:")
    if body["fixed_changed"]:
        lines += wrapped(f"changed at its beginning: {', '.join(body['fixed_changed'])}")
    return [*lines, ""]


def _diff(view: View, changes: list[Changed]) -> list[str]:
    lines: list[str] = []
    for how, group in groupby(changes, key=lambda one: one.how):
        some = list(group)
        if how == "removed" and len(some) > _ALONE:
            tokens = sum(one.item.tokens for one in some)
            places = f"log:{some[0].item.seq} … log:{some[-1].item.seq}"
            told = f"- {many(len(some), 'item')}, {tokens:,} tokens, {places}"
            lines.append(paint(short(told), "red"))
            continue
        lines += [_line(view, one) for one in some]
    return lines or ["nothing else: the same items"]


def _line(view: View, one: Changed) -> str:
    item = one.item
    tokens = f"{item.tokens:,}" if one.was is None else f"{one.was.tokens:,}→{item.tokens:,}"
    words = _words(item)
    if item.role == "handoff" and one.how != "removed":
        span = view.fold_at(item.seq).change.span
        words = f"stands for log:{span.lo}-{span.hi}: {words}"
    state = "" if item.state == "whole" else f" {item.state}"
    line = short(f"{_SIGNS[one.how]} {item.seq:>6} {item.role:7} {tokens:>7}{state} ", words)
    return paint(line, _STYLES[one.how])


def _words(item: Item) -> str:
    calls = " ".join(f"{call.name}({call.arguments[:200]})" for call in calls_of(item.parts))
    return " ".join(f"{retold(item.parts)[:2_000]} {calls}".split())


@command
async def search(
    desk: Desk,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="Messages that hold all of them.")
    ],
    *,
    within: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="In this session only.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=1_000)] = 20,
) -> int:
    """Find what was said, the newest first."""
    asked = sound(" ".join(words))
    async with desk.store() as store:
        only = (await named(store, desk.tenant, within)).session if within else None
        found = await pasts.search(store, desk.tenant, asked, session=only, limit=limit)
    body = {
        "words": asked,
        "found": [
            {
                "session": one.session,
                "handle": f"log:{one.seq}",
                "snippet": snippet(one.words, asked)[0],
            }
            for one in found
        ],
    }
    desk.answer(body, lambda: hits(found, asked, limit))
    return DONE if found else NOTHING


def hits(
    found: list[Found],
    asked: str,
    limit: int,
    *,
    way: str = "`foldline show NAME log:N` gives the whole one",
) -> list[str]:
    """Messages that were found, with the words around."""
    if not found:
        return wrapped(f"nothing holds all of: {asked}")
    lines: list[str] = []
    for name, group in groupby(found, key=lambda one: one.session):
        lines.append(paint(short("", name), "strong"))
        for one in group:
            text, at, end = snippet(one.words, asked)
            place = f"  log:{one.seq:<6} "
            cut = fit(text, columns() - len(place) - 2)
            marked = f"{cut[:at]}{_mark(cut[at:end])}{cut[end:]}" if end <= len(cut) else cut
            lines.append(f"{place}{marked}")
    more = "; --limit shows more" if len(found) == limit else ""
    last = f"{many(len(found), 'message')}{more}; {way}"
    return [*lines, *wrapped(last)]


def _mark(word: str) -> str:
    painted = paint(word, "yellow")
    return painted if painted != word or not word else f"«{word}»"

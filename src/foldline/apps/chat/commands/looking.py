"""`/tokens`, `/context`, `/cost`, `/compaction-status`, `/tools`, `/instructions`: where it stands.

Knows what a person wants to see. Refuses to change anything.
"""

from time import time
from typing import TYPE_CHECKING

from foldline.apps.chat.bar import level, money
from foldline.apps.chat.commands.table import ChatCommand
from foldline.apps.cli.output import Column, coloured, paint, short, table, wrapped
from foldline.core.saying import many
from foldline.draw import terminal, words
from foldline.draw.text import clean
from foldline.session.history import pace
from foldline.session.summaries import Preparing
from foldline.session.summaries import state as breaker

if TYPE_CHECKING:
    from foldline.apps.chat.conversation import Talk


async def _tokens(talk: "Talk", _: str) -> None:
    drawn = talk.picture()
    turns = await talk.session.history.turns()
    share = 100 * drawn.total / drawn.window
    line = f"📊 Tokens: {drawn.total}/{drawn.window} ({share:.0f}% used)"
    on = pace(turns, talk.session.report)
    block = words.block(drawn, latest=on.latest, growth=on.growth, turns_left=on.turns_left)
    talk.say(paint(line, level(drawn.percent)), *block)


async def _context(talk: "Talk", _: str) -> None:
    talk.say(terminal(talk.picture(), min(talk.face.columns, 100), colour=coloured()).rstrip("\n"))


async def _cost(talk: "Talk", _: str) -> None:
    bill = talk.bill
    await bill.catch_up()
    cached = f", {bill.read:,} of them read from the cache" if bill.read else ""
    talk.say(
        *wrapped(
            f"{many(bill.calls, 'call')}: {bill.input:,} tokens in{cached}, {bill.output:,} out"
        ),
        *wrapped(_dollars(talk)),
    )
    drawn = talk.picture()
    if drawn.cost:
        talk.say(*wrapped(f"the next call's input is about {money(drawn.cost.dollars)}"))
    spending = talk.session.live.spending
    if spending is not None:
        counted = await spending.spent()
        talk.say(
            *wrapped(
                f"counted against caps: {money(counted.session.dollars)} in this session, "
                f"{money(counted.folds.dollars)} of it for folds"
            )
        )


def _dollars(talk: "Talk") -> str:
    bill = talk.bill
    if bill.known is None:
        return "in dollars not known: no model of this session has a price in the catalogue"
    told = f"{money(bill.dollars)} so far"
    if bill.unpriced:
        told += f", without {many(bill.unpriced, 'call')} whose price is not known"
    return f"{told}{'; prices of cached reads assumed' if bill.assumed else ''}"


async def _status(talk: "Talk", _: str) -> None:
    live, drawn = talk.session.live, talk.picture()
    policy = live.facts.policy
    rows = [("policy", f"{policy.name}, started {_started(policy.start, folds=policy.folds)}")]
    rows += [("window", f"{drawn.total:,} of {drawn.window:,} tokens, pressure {drawn.pressure}")]
    tiers = " · ".join(f"{name} {tokens:,}" for name, tokens in drawn.tiers)
    rows.append(("tiers", tiers))
    if drawn.folds:
        for fold in drawn.folds[-5:]:
            told = f"log:{fold.span.lo}-{fold.span.hi}: {many(fold.messages, 'message')}"
            rows.append(("fold", f"edit {fold.at}, {told}, {fold.before:,} → {fold.after:,}"))
    else:
        rows.append(("folds", "none stands: the model sees everything as it came"))
    rows.append(("prepared", await _prepared(talk)))
    failing = await breaker(live.store, live.name)
    if failing.failures:
        wait = max(failing.until - time(), 0)
        then = f"asked again in {wait:.0f} s" if wait else "asked again next time"
        rows.append(
            ("breaker", f"open: failed {failing.failures} times ({failing.reason}), {then}")
        )
    else:
        rows.append(("breaker", "closed: nothing failed"))
    rows.append(("last", _last(talk)))
    talk.say(*(line for title, told in rows for line in wrapped(told, title=f"{title:9} ")))


def _started(how: str, *, folds: bool) -> str:
    if not folds:
        return "never: this policy only counts"
    words = {
        "auto": "by itself",
        "ask": "when you agree",
        "manual": "by /compact",
        "off": "only where it must",
    }
    return words.get(how, how)


async def _prepared(talk: "Talk") -> str:
    narrator = talk.session.live.narrator
    if narrator is None:
        return "nothing: folds are made without a model (--summarizer names one)"
    found = await narrator.find(talk.session.live)
    return "a narrative for the next fold" if found else "no narrative yet"


def _last(talk: "Talk") -> str:
    one = talk.hearing.last
    narrator = talk.session.live.narrator
    if one is not None:
        why = f" ({one.reason})" if one.reason else ""
        return f"{one.kind} {one.outcome}, {one.before:,} → {one.after:,} tokens{why}"
    if isinstance(narrator, Preparing) and narrator.last is not None:
        return f"narrative {narrator.last.outcome} {narrator.last.reason}".rstrip()
    return "nothing since this terminal was opened"


async def _tools(talk: "Talk", _: str) -> None:
    tools = talk.seat.agent.tools
    if not tools:
        talk.say(*wrapped("none: this agent only talks"))
    for tool in tools.values():
        talk.say(short(f"  {clean(tool.name):14} ", tool.description))


async def _instructions(talk: "Talk", _: str) -> None:
    known = talk.seat.instructions
    if known is not None and (files := known.listed()):
        heads = (
            Column("scope", 8),
            Column("state", 10),
            Column("tokens", 6, right=True),
            Column("file"),
        )
        rows = [(one.scope, one.state, f"{one.tokens:,}", str(one.path)) for one in files]
        talk.say(*table(heads, rows))
        talk.say(*(line for one in files if one.why for line in wrapped(f"{one.name}: {one.why}")))
        return
    drawn = talk.picture()
    size = sum(run.tokens for run in drawn.of("system"))
    told = f"{size:,} tokens of instructions" if size else "none: no instructions were given"
    talk.say(*wrapped(told))


COMMANDS = (
    ChatCommand(
        name="tokens", help="how full the window is, and how long it will do", work=_tokens
    ),
    ChatCommand(name="context", help="what the model sees now, drawn", work=_context),
    ChatCommand(name="cost", help="what was spent", work=_cost),
    ChatCommand(
        name="compaction-status", help="when folding happens, and how it went", work=_status
    ),
    ChatCommand(name="tools", help="what the model may have done", work=_tools),
    ChatCommand(name="instructions", help="what the model is told first", work=_instructions),
)

"""Verbs that only look: lists, sizes, pictures, the past, what is kept out of sight.

Knows what each answer is made of. Refuses to change anything.
"""

from dataclasses import asdict
from typing import Any

import msgspec

from foldline.apps.gateway.api.calls import ApiAnswer, ApiCall, Reply
from foldline.apps.gateway.api.pool import OpenSession
from foldline.apps.gateway.api.schemas import (
    Context,
    Cost,
    Exporting,
    Found,
    Handle,
    History,
    Hit,
    Instructions,
    Listed,
    Page,
    Recalled,
    Session,
    Sessions,
    Tokens,
    Tool,
    Turn,
    Words,
)
from foldline.core import log
from foldline.core.log import Asked, ModelSwitched, Opened, UsageReported
from foldline.core.parts import retold, sound
from foldline.core.prices import Prices
from foldline.draw import Picture, picture, pictured, svg
from foldline.draw.text import snippet
from foldline.draw.words import usage
from foldline.errors import BadInput
from foldline.session import planning
from foldline.session.export import exported
from foldline.session.history import pace
from foldline.session.model_facts import of_session
from foldline.session.session import AsyncSession
from foldline.session.spending import NOTHING, price
from foldline.stores import event_log

SVG = "image/svg+xml"
_MEDIA = {"jsonl": "application/jsonl", "markdown": "text/markdown; charset=utf-8"}
_LONGEST = 2**40  # a place that no log reaches


async def sessions(call: ApiCall) -> Reply:
    """A page of the sessions that the client may see, by name."""
    query: Page = call.query
    after = sound(query.after).replace("\0", "")
    page = await call.pool.place.store.sessions(
        call.tenant, after=after, limit=query.limit, owner=call.sees
    )
    found = [
        Listed(
            name=one.session,
            events=one.head + 1,
            bytes=one.size,
            opened=one.opened,
            changed=one.changed,
            origin=one.origin,
            owner=one.owner,
        )
        for one in page
        if one.head >= 0  # claimed or leased, and nothing said yet: there is no such session
    ]
    return Sessions(sessions=found, after=page[-1].session if len(page) == query.limit else None)


async def session(call: ApiCall) -> Reply:
    """A session as it is."""
    async with call.seen() as kept:
        return told(kept)


def told(kept: OpenSession) -> Session:
    """A session as it is."""
    view, now = kept.session.live.view, kept.session.report
    goes_on = view.settings.get("on_disconnect") == "continue"
    return Session(
        name=kept.session.live.name.session,
        model=view.model,
        policy=kept.session.live.facts.policy.name,
        on_disconnect="continue" if goes_on else "pause",
        at=view.head,
        tokens=now.total,
        window=now.window,
        edits=kept.session.edits,
        pins=sorted(view.pins),
        calls=sorted(view.open),
        busy=kept.turn.locked(),
    )


def _drawn(seen: AsyncSession) -> Picture:
    return picture(seen.live.view, seen.live.facts)


async def context(call: ApiCall) -> Reply:
    """What the model sees now: as JSON, or drawn."""
    async with call.seen() as kept:
        drawn = _drawn(kept.session)
    if SVG in call.headers.get("accept", ""):
        return ApiAnswer(svg(drawn).encode(), SVG)
    body = {"session": call.name.session, **pictured(drawn)}
    return msgspec.convert(body, Context)


async def tokens(call: ApiCall) -> Reply:
    """Where the window goes."""
    async with call.seen() as kept:
        drawn, now = _drawn(kept.session), kept.session.report
    return Tokens(
        session=call.name.session,
        line=f"[tokens: {usage(drawn)}]",
        total=drawn.total,
        window=drawn.window,
        percent=drawn.percent,
        level=drawn.level,
        pressure=drawn.pressure,
        counted=drawn.counted,
        window_source=drawn.source,
        reserve=drawn.reserve,
        margin=drawn.margin,
        room=drawn.room,
        parts=now.parts,
    )


async def recall(call: ApiCall) -> Reply:
    """The original of anything in the log."""
    query: Handle = call.query
    async with call.seen() as kept:
        text = await kept.session.recall(query.handle, most=query.most)
    return Recalled(handle=query.handle, text=text)


async def search(call: ApiCall) -> Reply:
    """Messages that hold all of some words."""
    query: Words = call.query
    asked = sound(query.words).replace("\0", " ")
    async with call.seen() as kept:
        found = await kept.session.history.search(
            asked, everywhere=query.everywhere, limit=query.limit, owner=call.sees
        )
    hits = [
        Hit(session=one.session, handle=f"log:{one.seq}", snippet=snippet(one.words, asked)[0])
        for one in found
    ]
    return Found(words=asked, found=hits)


async def history(call: ApiCall) -> Reply:
    """Every turn, and how fast the window fills."""
    async with call.seen() as kept:
        turns = await kept.session.history.turns()
        now = kept.session.report
    on = pace(turns, now)
    return History(
        turns=[Turn(**asdict(one)) for one in turns],
        used=now.total,
        window=now.window,
        growth=on.growth,
        turns_left=on.turns_left,
        next_output=on.next_output,
    )


async def request(call: ApiCall) -> Reply:
    """A past request, byte for byte."""
    place = call.path[1]
    if not place.isascii() or not place.isdecimal() or int(place[:16]) > _LONGEST:
        raise BadInput(f"{place[:80]!r} is no place in a log; write a number")
    async with call.seen() as kept:
        return ApiAnswer(await planning.sent(kept.session.live, int(place)))


async def instructions(call: ApiCall) -> Reply:
    """The system's words and the tools that hold now."""
    async with call.seen() as kept:
        return instructed(kept.session)


def instructed(seen: AsyncSession) -> Instructions:
    """The system's words and the tools that hold now."""
    now = seen.live.view.newest
    tools = [
        Tool(
            name=one.name,
            description=one.description,
            parameters=msgspec.json.decode(one.schema),
        )
        for one in now.tools
    ]
    return Instructions(system=[retold((part,)) for part in now.parts], tools=tools)


async def cost(call: ApiCall) -> Reply:
    """What the calls of a session took, by what their provider counted, at today's prices."""
    async with call.seen() as kept:
        live = kept.session.live
        prices: Prices = live.facts.prices
        calls = asked = 0
        amount, assumed = NOTHING, False
        counted = {"input": 0, "cache_read": 0, "cache_write": 0, "output": 0}
        async for row in event_log.walk(live.store, live.name, live.view.head):
            match log.decode(row.body):
                case Opened(model) | ModelSwitched(model):
                    prices = of_session(model, {}).prices
                case Asked():
                    asked += 1
                case UsageReported() as used:
                    calls += 1
                    assumed |= prices.assumed
                    amount += price(prices, used)
                    for part in counted:
                        counted[part] += getattr(used, part) or 0
                case _:
                    pass
        drawn = _drawn(kept.session)
    sums: dict[str, Any] = {**counted, "dollars": amount.dollars, "next_call": drawn.cost}
    return Cost(calls=calls, uncounted=max(asked - calls, 0), assumed=assumed, **sums)


async def export(call: ApiCall) -> Reply:
    """A session written out: as a log, a chat or a text."""
    query: Exporting = call.query
    async with call.seen() as kept:
        events = await kept.session.history.events()
        body = exported(kept.session, events, query.format, sight=query.sight)
    return ApiAnswer(body, _MEDIA.get(query.format, "application/json"))

"""What to send now: planned, recorded as sent, and given again byte for byte.

Knows what a decision needs besides the view (events that are out of sight, a narrative, who forbids
a fold) and where to get it. Refuses to decide, which `core.plan` does, and to write to the log by
itself: that is `log_handle`'s. The dialect is told by whoever asks.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any

import msgspec

from foldline.core import plan as plans
from foldline.core.edits.fold import cached
from foldline.core.log import Asked, Event, UserSaid
from foldline.core.parts import Text
from foldline.core.plan import Blocked, Facts, Need, Plan, Ready
from foldline.core.request import render
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.errors import BadHandle, BadInput, BrokenView, Erased, FormatError, Overflow
from foldline.session.client_row import digest_shown, read_row
from foldline.session.log_handle import Live
from foldline.stores import event_log

_GO_ON = "[nothing new was said; go on]"
_LARGE = 30_000  # tokens of a view: folding more of it takes tens of milliseconds


async def ask(
    live: Live,
    parameters: Mapping[str, Any],
    *,
    dialect: Dialect,
    facts: Facts | None = None,
) -> bytes:
    """What to send now, in a dialect's bytes; recorded as sent."""
    given = _json(parameters)
    fields = msgspec.json.decode(given, type=dict[str, msgspec.Raw])
    body, seen, worth = b"", live.report, None

    async def asking() -> Sequence[Event]:
        nonlocal body, seen, worth
        told, view = live.entered(say_to_go_on(live.view, fields, dialect=dialect))
        ready = await plan(live, facts or live.facts, view=view)
        if dialect.is_silent(ready.request):
            raise BadInput("nothing was said in this session that could be sent; add() a message")
        worth, seen = ready.ask, ready.report
        body = dialect.encode(ready.request, fields)
        asked = Asked(
            at=view.head + len(ready.events),
            dialect=dialect.name,
            sha256=_sha256(body),
            encoder=dialect.encoder,
            parameters=given,
            tokens=ready.report.total,
            estimate=ready.report.estimate,
        )
        return [*told, *ready.events, asked]

    await live.decide(asking)  # where a message came in, what is sent is planned with it
    live.report, live.touched = seen, time()
    if worth is not None and live.narrator is not None:
        live.narrator.wanted(live, worth)
    return body


def say_to_go_on(view: View, parameters: Mapping[str, Any], *, dialect: Dialect) -> list[Event]:
    """What is said behind an answer that the provider does not go on with by itself.

    It is written to the log: what was sent once stands in every later request.
    """
    if not dialect.must_be_told(view, parameters):
        return []
    return [UserSaid((Text(_GO_ON),), speaker="notice")]


async def sent(live: Live, at: int) -> bytes:
    """A past request again, byte for byte: `at` is the place where it was recorded.

    Of a client's own request its messages are given again, one by one, in our own words; each is
    proven to say what it said.
    """
    found = await live.events(Range(at, at))
    asked = found[0].event if found else None
    if not isinstance(asked, Asked):
        raise BadHandle(f"no request was recorded at {at}")
    whole = asked.relayed and asked.proxied is None
    tail = await event_log.tail(live.store, live.name, at=at if whole else asked.at)
    view = tail.view()
    request = render(view)
    dialect = base.named(asked.dialect)
    parameters = msgspec.json.decode(asked.parameters, type=dict[str, msgspec.Raw])
    body = dialect.encode(request, parameters)
    said = _sha256(b"".join(dialect.blocks(request))) if whole else _sha256(body)
    if asked.proxied is not None:
        said = digest_shown(view, read_row(view), dialect.form)
    if said != asked.sha256:
        raise FormatError(
            f"the request at {at} differs from what was sent: "
            f"encoder {asked.encoder} wrote it, this release has {dialect.encoder}"
        )
    return body


async def plan(live: Live, facts: Facts, *, view: View | None = None) -> Ready:
    """What to send and to append under some facts, without folds that somebody forbids."""
    seen = view or live.view
    return await live.passes.allowed(lambda one: _plan(live, one, seen), facts, seen.model)


async def _plan(live: Live, facts: Facts, view: View) -> Ready:
    """What to send and to append, with all that a fold is written from."""
    if live.prepared is not None and not live.prepared.suits(view.spine):
        live.prepared = None
    told = facts.prepared or live.prepared
    facts = replace(facts, cache=cached(time() - live.touched, facts.prices), prepared=told)
    while True:
        match await _planned(view, facts):
            case Ready() as ready:
                if await _is_told(live, ready, facts):
                    facts = replace(facts, prepared=live.prepared)
                    continue
                return ready
            case Blocked(parts, limit):
                raise Overflow(parts, limit)
            case Need() as need:
                facts = await fetched(live, facts, need)


async def _is_told(live: Live, ready: Ready, facts: Facts) -> bool:
    """Whether a narrative is there that a plan could not know of: looked for near a fold."""
    near = ready.ask or ready.folded
    if not near or facts.prepared is not None or live.narrator is None:
        return False
    live.prepared = await live.narrator.find(live)
    return live.prepared is not None


async def fetched(live: Live, facts: Facts, need: Need) -> Facts:
    """The facts with the events that a decision needs."""
    found = {**facts.fetched, **dict(await live.events(*need.ranges))}
    if len(found) == len(facts.fetched):
        if (await live.store.head(live.name)).seq < 0:
            raise Erased(live.name.session, time())
        raise BrokenView(f"the log no longer holds {need.ranges}, which a fold quotes")
    return replace(facts, fetched=found)


async def _planned(view: View, facts: Facts) -> Plan:
    """The plan; of a large view in a thread, so that the event loop goes on (R-44)."""
    if view.tokens < _LARGE:
        return plans.plan(view, facts)
    from asyncio import to_thread  # noqa: PLC0415 - half of the time of an import

    return await to_thread(plans.plan, view, facts)


def _json(parameters: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(parameters).decode()
    except (TypeError, UnicodeEncodeError) as fault:
        raise BadInput(
            f"a parameter that is not JSON: {fault}; give it to the client itself, not to request()"
        ) from fault


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

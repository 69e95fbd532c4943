"""Plans a request, records it as sent, and rebuilds it byte for byte.

`core.plan` decides; this module fetches what a decision needs besides the view: hidden events, a
narrative, vetoes on folds.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import time
from typing import Any

import msgspec

from foldline.core import plan as plans
from foldline.core.cold_cache import estimate_cache_state
from foldline.core.log import Asked, Event, UserSaid
from foldline.core.parts import Text
from foldline.core.plan import Blocked, Facts, Need, Plan, Ready, after
from foldline.core.policy import limit_to_forced_folds
from foldline.core.request import render
from foldline.core.rules import is_in_tool_loop
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.dialects.model_names import write_model_name
from foldline.errors import BadHandle, BadInput, BrokenView, Erased, FormatError, Overflow
from foldline.session.client_row import digest_shown, read_row
from foldline.session.log_handle import Live
from foldline.session.log_lines import (
    log_folding_rule,
    warn_of_assumed_window,
    warn_of_dropped_fields,
)
from foldline.stores import event_log

_GO_ON = "[nothing new was said; go on]"
_LARGE = 30_000  # tokens of a view: folding more of it takes tens of milliseconds
_MANY = 250  # items: the same
_BYTES = 4  # of a token, about


async def plan_and_record_request(
    live: Live,
    parameters: Mapping[str, Any],
    *,
    dialect: Dialect,
    facts: Facts | None = None,
    address: str | None = None,
) -> bytes:
    """Plan the next request, record it as sent, and return its bytes.

    `address` is the server's, where the caller knows it better than the session.
    """
    encoded = _encode_parameters({**_name_model(live.view, address), **parameters})
    fields = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    body, seen, worth = b"", live.report, None

    async def decide_request() -> Sequence[Event]:
        nonlocal body, seen, worth
        own = facts or live.facts
        notice, view = live.admit_events(say_to_go_on(live.view, fields, dialect=dialect))
        own = limit_in_loop(own, view, fields, dialect)
        try:
            ready = await plan_next_request(live, own, view=view)
            said = say_to_go_on(after(view, ready.events), fields, dialect=dialect)
            if said and not notice:  # an edit took away what stood behind the answer
                notice, view = live.admit_events(said)
                ready = await plan_next_request(live, own, view=view)
        except Overflow as fault:
            live.passes.report_failed_fold(fault, view.model)
            raise
        if dialect.is_silent(ready.request):
            raise BadInput("nothing was said in this session that could be sent; add() a message")
        worth, seen = ready.ask, ready.report
        sent = dialect.fit_parameters(ready.request, fields)
        warn_of_dropped_fields(live.name, fields.keys() - sent.keys())
        body = dialect.encode_request(ready.request, sent)
        asked = Asked(
            at=view.head + len(ready.events),
            dialect=dialect.name,
            sha256=_hash_body(body),
            encoder=dialect.encoder,
            parameters=encoded if sent is fields else msgspec.json.encode(sent).decode(),
            tokens=ready.report.total,
            estimate=ready.report.estimate,
        )
        return [*notice, *ready.events, asked]

    await live.append_decision(decide_request)  # plans again if a message came in meanwhile
    live.report, live.touched = seen, time()
    if worth is not None and live.narrator is not None:
        live.narrator.schedule_narrative(live, worth)
    return body


def say_to_go_on(view: View, parameters: Mapping[str, Any], *, dialect: Dialect) -> list[Event]:
    """Make the notice after an answer that the provider does not continue by itself.

    It is written to the log: what was sent once stays in every later request.
    """
    if not dialect.refuses_end(view, parameters):
        return []
    return [UserSaid((Text(_GO_ON),), speaker="notice")]


def limit_in_loop(
    facts: Facts, view: View, parameters: Mapping[str, Any], dialect: Dialect
) -> Facts:
    """Return the facts with forced folds alone, in a tool loop that goes on with its thinking."""
    if not (dialect.thinks_manually(parameters) and is_in_tool_loop(view)):
        return facts
    policy = replace(limit_to_forced_folds(facts.policy), start=facts.policy.start)
    return replace(facts, policy=policy)


def _name_model(view: View, address: str | None) -> dict[str, str]:
    """Return the parameter that names the model as its server knows it, if the session does not.

    It is recorded with the request, so that a rebuilt request has the same name.
    """
    own = view.settings.get("base_url")
    name = write_model_name(view.model, address or (own if isinstance(own, str) else None))
    return {} if name == view.model else {"model": name}


async def rebuild_request(live: Live, at: int) -> bytes:
    """Rebuild a past request, byte for byte; `at` is the place where it was recorded.

    The messages of a client's own request are rebuilt in our encoding, each checked against its
    digest.
    """
    found = await live.read_events(Range(at, at))
    asked = found[0].event if found else None
    if not isinstance(asked, Asked):
        raise BadHandle(f"no request was recorded at {at}")
    whole = asked.relayed and asked.proxied is None
    tail = await event_log.read_tail(live.store, live.name, at=at if whole else asked.at)
    view = await tail.load_view()
    request = render(view)
    dialect = base.resolve_named_dialect(asked.dialect)
    parameters = msgspec.json.decode(asked.parameters, type=dict[str, msgspec.Raw])
    body = dialect.encode_request(request, parameters)
    said = _hash_body(b"".join(dialect.encode_blocks(request))) if whole else _hash_body(body)
    if asked.proxied is not None:
        said = digest_shown(view, read_row(view), dialect)
    if said != asked.sha256:
        raise FormatError(
            f"the request at {at} differs from what was sent: "
            f"encoder {asked.encoder} wrote it, this release has {dialect.encoder}"
        )
    return body


async def plan_next_request(live: Live, facts: Facts, *, view: View | None = None) -> Ready:
    """Plan what to send and append, without vetoed folds."""
    seen = view or live.view
    if facts.limits.source == "default" and seen.model not in seen.windows:
        warn_of_assumed_window(seen.model, facts.limits.window)
    if seen.asked < 0:
        log_folding_rule(live.name, seen, facts)
    return await live.passes.plan_allowed_folds(
        lambda one: _plan_until_ready(live, one, seen), facts, seen.model
    )


async def _plan_until_ready(live: Live, facts: Facts, view: View) -> Ready:
    """Plan, and fetch what the plan needs, until it is ready."""
    if live.prepared is not None and not live.prepared.is_valid_for(view.spine):
        live.prepared = None
    cache = estimate_cache_state(time() - live.touched, facts.prices, facts.lifetime)
    facts = replace(facts, cache=cache, prepared=facts.prepared or live.prepared)
    while True:
        match await compute_plan(view, facts):
            case Ready() as ready:
                if await _is_told(live, ready, facts):
                    facts = replace(facts, prepared=live.prepared)
                    continue
                return ready
            case Blocked(parts, limit):
                raise Overflow(parts, limit)
            case Need() as need:
                facts = await fetch_needed_events(live, facts, need)


async def _is_told(live: Live, ready: Ready, facts: Facts) -> bool:
    """Whether a narrative was prepared that the plan did not know; checked only near a fold."""
    near = ready.ask or ready.folded
    if not near or facts.prepared is not None or live.narrator is None:
        return False
    live.prepared = await live.narrator.find_prepared(live)
    return live.prepared is not None


async def fetch_needed_events(live: Live, facts: Facts, need: Need) -> Facts:
    """Return the facts with the events that a decision needs."""
    fetched = {**facts.fetched, **dict(await live.read_events(*need.ranges))}
    if len(fetched) == len(facts.fetched):
        if (await live.store.head(live.name)).seq < 0:
            raise Erased(live.name.session, time())
        raise BrokenView(f"the log no longer holds {need.ranges}, which a fold quotes")
    return replace(facts, fetched=fetched)


async def compute_plan(view: View, facts: Facts) -> Plan:
    """Plan; for a large view in a thread, so that the event loop is not blocked."""
    if view.tokens < _LARGE and len(view.items) < _MANY:
        return plans.plan(view, facts)
    from foldline.stores.beside import LARGE, run_beside  # noqa: PLC0415 - half of the time of an import

    size = max(view.tokens * _BYTES, LARGE)
    return await run_beside(partial(plans.plan, view, facts), size=size)


def _encode_parameters(parameters: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(parameters).decode()
    except (TypeError, UnicodeEncodeError) as fault:
        raise BadInput(
            f"a parameter that is not JSON: {fault}; give it to the client itself, not to request()"
        ) from fault


def _hash_body(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()

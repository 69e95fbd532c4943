"""Verbs that change a session: made, folded, undone, pinned, switched, forked, erased.

Knows that whoever changes a session has it for itself meanwhile. Refuses to decide: the session
does.
"""

import os
from typing import Any

from foldline.apps.gateway.api.calls import ApiAnswer, ApiCall, Reply, sound_name
from foldline.apps.gateway.api.errors import NameTaken, NotFound
from foldline.apps.gateway.api.read_routes import instructed, told
from foldline.apps.gateway.api.schemas import (
    Excluded,
    Excluding,
    Folded,
    Folding,
    Forking,
    Instructing,
    Json,
    NewSession,
    Pinning,
    Pins,
    Receipt,
    Switching,
    Undoing,
    Undone,
    Wanted,
)
from foldline.dialects import base
from foldline.errors import BadInput, Conflict, Erased, FoldlineError, NotAnEdit, OtherHost
from foldline.models.addresses import dialect_of
from foldline.session import answer_limit, planning
from foldline.session.carry import nothing_to_carry
from foldline.session.host import recorded_host
from foldline.session.log_handle import Live, Settings
from foldline.session.model_facts import known
from foldline.session.open import begun
from foldline.session.session import AsyncSession
from foldline.stores.base import Name

_OURS = ("model", "messages", "system", "tools")
"""Fields of a request that the session writes itself."""


async def create(call: ApiCall) -> Reply:
    """Make a session."""
    body: NewSession = call.body
    name = Name(call.tenant, sound_name(body.name or f"s-{os.urandom(8).hex()}"))
    carry = None if body.carry is None else sound_name(body.carry)
    tools = [*map(base.tool, body.tools or ())]  # what cannot be read leaves no session behind
    facts = known(body.model, window=body.window, reserve=body.reserve, policy=body.policy)
    if carry is not None:
        await _check_carried(call, carry)
    await _claim(call, name)
    live = await Live.open(call.pool.place.store, name, facts=facts)
    if live.view.head >= 0:
        raise NameTaken(name.session)
    settings: Settings = {
        "policy": body.policy,
        "window": body.window,
        "reserve": body.reserve,
    }
    if body.on_disconnect != "pause":
        settings["on_disconnect"] = body.on_disconnect
    session = await begun(live, body.model, settings=settings, carry=carry)
    if body.system or tools:
        await _instruct(call, session, body.system, body.tools or [])
    async with call.seen(name.session) as kept:
        return told(kept)


async def _claim(call: ApiCall, name: Name) -> None:
    """Make a session the client's own; a name that is another's, or was, is taken."""
    if not call.owner:
        return
    try:
        owner = await call.pool.place.store.claim(name, call.owner)
    except Erased as fault:
        raise _hidden(call, fault, name.session) from fault
    if owner != call.owner:
        raise NameTaken(name.session)


def _hidden(call: ApiCall, fault: Erased, session: str) -> FoldlineError:
    """An erased name as the client may hear of it: nobody knows any more whose it was."""
    return fault if call.admin else NameTaken(session)


async def _check_carried(call: ApiCall, session: str) -> None:
    """Refuse to carry on from another owner's session, as from one that is not there."""
    try:
        async with call.seen(session):
            pass
    except NotFound:
        raise nothing_to_carry(Name(call.tenant, session)) from None


async def _instruct(
    call: ApiCall, session: AsyncSession, system: str | list[str] | None, tools: list[Json] | None
) -> None:
    """Change what holds; tools that the gateway runs itself are offered beside the client's."""
    if tools is not None:
        own = call.pool.place.tools_of(session)
        names = {one.name for one in own}
        theirs = [one for one in tools if base.tool(one).name not in names]
        tools = [*(one.offered for one in own), *theirs]
    await session.instruct(system=system, tools=tools)


async def erase(call: ApiCall) -> Reply:
    """Erase a session for good."""
    name = call.name
    async with call.seen() as kept, call.pool.changing(kept, wait=call.query.wait):
        receipt = await call.pool.place.store.erase(name)
        call.pool.forget(name)
    if not receipt.sessions:
        raise NotFound(f"there is no session {name.session!r}")
    return Receipt(
        sessions=[*receipt.sessions], events=receipt.events, bytes=receipt.size, time=receipt.time
    )


async def request(call: ApiCall) -> Reply:
    """What to send now, as the provider's JSON; recorded as sent."""
    body: Wanted = call.body
    if taken := [one for one in _OURS if one in body.parameters]:
        raise BadInput(f"{taken[0]!r} is written by the session; leave it out of the parameters")
    async with call.seen() as kept, call.pool.changing(kept, wait=call.query.wait):
        live = kept.session.live
        dialect = base.speaking(live.view.model)
        async with live.lock:
            facts, given = answer_limit.answerable(live.facts, dialect, body.parameters)
            sent = await planning.ask(live, given, dialect=dialect, facts=facts)
            headers = (("x-foldline-asked", str(live.view.asked)),)
    return ApiAnswer(sent, headers=headers)


async def fold(call: ApiCall) -> Reply:
    """Fold now what may be folded, or say what would be."""
    body: Folding = call.body
    async with call.seen() as kept:
        if body.preview:
            now = kept.session.report.total
            lost = await kept.session.fold(focus=body.focus, preview=True)
            return Folded(folded=False, preview=True, edit=None, before=now, after=now, loss=lost)
        async with call.pool.changing(kept, wait=call.query.wait) as session:
            before = session.report.total
            lost = await session.fold(focus=body.focus)
            return Folded(
                folded=lost is not None,
                preview=False,
                edit=session.edits[-1] if lost is not None else None,
                before=before,
                after=session.report.total,
                loss=lost,
            )


async def undo(call: ApiCall) -> Reply:
    """Take back an edit."""
    body: Undoing = call.body
    async with call.seen() as kept, call.pool.changing(kept, wait=call.query.wait):
        return await _undone(kept.session, body.edit)


async def redo(call: ApiCall) -> Reply:
    """Make the edit again that was undone last, if nothing was edited since."""
    async with call.seen() as kept, call.pool.changing(kept, wait=call.query.wait):
        newest = await kept.session.history.taken_back()
        if newest is None:
            raise NotAnEdit("there is nothing to redo: the newest edit is no undoing")
        return await _undone(kept.session, newest)


async def _undone(session: AsyncSession, edit: int | None) -> Undone:
    before, standing = session.report.total, session.edits
    redo = await session.undo(edit)
    return Undone(
        undone=standing[-1] if edit is None else edit,
        redo=redo,
        edits=session.edits,
        before=before,
        after=session.report.total,
    )


async def pin(call: ApiCall) -> Reply:
    """Keep a message verbatim through every fold."""
    return await _pinned(call, on=True)


async def unpin(call: ApiCall) -> Reply:
    """Keep it no longer."""
    return await _pinned(call, on=False)


async def _pinned(call: ApiCall, *, on: bool) -> Reply:
    body: Pinning = call.body
    async with call.seen() as kept:
        async with call.pool.changing(kept, wait=call.query.wait) as session:
            await session.pin(body.place, on=on)
        return Pins(pins=sorted(kept.session.live.view.pins))


async def exclude(call: ApiCall) -> Reply:
    """Take messages out of the model's sight."""
    body: Excluding = call.body
    async with call.seen() as kept, call.pool.changing(kept, wait=call.query.wait):
        before = kept.session.report.total
        edit = await kept.session.history.exclude(*body.places)
        return Excluded(edit=edit, before=before, after=kept.session.report.total)


async def instruct(call: ApiCall) -> Reply:
    """Change the system's words or the tools from here on."""
    body: Instructing = call.body
    async with call.seen() as kept:
        async with call.pool.changing(kept, wait=call.query.wait) as session:
            await _instruct(call, session, body.system, body.tools)
        return instructed(kept.session)


async def switch(call: ApiCall) -> Reply:
    """Go on with another model; one that cannot hold what must stay changes nothing."""
    body: Switching = call.body
    async with call.seen() as kept:
        async with call.pool.changing(kept, wait=call.query.wait) as session:
            host = recorded_host(session.live.view.settings)
            if host is not None and host.dialect != dialect_of(body.model):
                raise OtherHost(
                    f"session {call.name.session!r} is asked at {host.base_url}, and "
                    f"{body.model!r} is another provider's; name a model of the same provider, or "
                    "begin another session"
                )
            await session.switch(body.model, window=body.window)
            live = session.live
            settings: Any = {**live.view.settings, "window": body.window}
            async with live.lock:
                await live.begin(body.model, settings=settings)
        return told(kept)


async def fork(call: ApiCall) -> Reply:
    """A session of its own that begins as this one is, or was at a place."""
    body: Forking = call.body
    to = sound_name(body.to or f"s-{os.urandom(8).hex()}")
    async with call.seen() as kept:
        try:
            await kept.session.fork(to, at=body.at)
        except Conflict as fault:
            raise NameTaken(to) from fault
        except Erased as fault:
            raise _hidden(call, fault, to) from fault
    async with call.seen(to) as made:
        return told(made)

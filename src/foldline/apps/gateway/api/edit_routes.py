"""Routes that change a session; each locks the session for the time of its change."""

import os
from typing import Any

import msgspec

from foldline.apps.gateway import session_shares
from foldline.apps.gateway.api.api_call import (
    ApiAnswer,
    ApiCall,
    NameTaken,
    NotFound,
    Reply,
    sound_name,
)
from foldline.apps.gateway.api.read_routes import build_instructions, build_session_answer
from foldline.apps.gateway.api.schemas import (
    ExcludedSchema,
    ExcludingSchema,
    FoldedSchema,
    FoldingSchema,
    ForkingSchema,
    InstructingSchema,
    Json,
    NewSessionSchema,
    PinningSchema,
    PinsSchema,
    ReceiptSchema,
    SharesSchema,
    SwitchingSchema,
    UndoingSchema,
    UndoneSchema,
    WantedSchema,
)
from foldline.core import policy
from foldline.dialects import base
from foldline.errors import BadInput, Conflict, Erased, FoldlineError, NotAnEdit, OtherHost
from foldline.models.clients import dialect_of
from foldline.session import model_facts, planning
from foldline.session.carry import nothing_to_carry, read_parts
from foldline.session.host import recorded_host
from foldline.session.log_handle import Live, Settings
from foldline.session.open import start_session
from foldline.session.session import AsyncSession
from foldline.session.session_settings import GIVEN
from foldline.stores.base import Name

_OURS = ("model", "messages", "system", "tools")
"""Fields of a request that only the session writes."""


async def create(call: ApiCall) -> Reply:
    """Make a session."""
    body: NewSessionSchema = call.body
    call.check_model(body.model)
    name = Name(call.tenant, sound_name(body.name or f"s-{os.urandom(8).hex()}"))
    carry = None if body.carry is None else sound_name(body.carry)
    parts = None if body.parts is None else read_parts(body.parts)
    if parts is not None and carry is None:
        raise BadInput("`parts` are those of the session that `carry` names; name it")
    for tool in body.tools or ():
        base.parse_any_tools(tool)  # before the session is made: a bad tool leaves none behind
    settings: Settings = {"window": body.window, "reserve": body.reserve}
    if body.policy is not None:
        policy.named(body.policy)  # raises if there is none
        settings |= {"policy": body.policy, GIVEN: True}
    facts = call.pool.place.facts_of_tenant(call.tenant)(body.model, settings)
    if carry is not None:
        await _check_carried(call, carry)
    await _claim_name(call, name)
    live = await Live.open(call.pool.place.store, name, facts=facts)
    if live.view.head >= 0:
        raise NameTaken(name.session)
    settings["policy"] = facts.policy.name
    if body.on_disconnect is not None:
        settings["on_disconnect"] = body.on_disconnect
    session = await start_session(live, body.model, settings=settings, carry=carry, parts=parts)
    if body.system or body.tools:
        await _change_instructions(call, session, body.system, body.tools or [])
    carried = session.carried.tokens if session.carried is not None else None
    async with call.open_session(name.session) as kept:
        return msgspec.structs.replace(build_session_answer(kept), carried=carried)


async def _claim_name(call: ApiCall, name: Name) -> None:
    """Make the client the session's owner; a name that is or was another's is taken."""
    if not call.owner:
        return
    try:
        owner = await call.pool.place.store.claim(name, call.owner)
    except Erased as fault:
        raise _hide_erased(call, fault, name.session) from fault
    if owner != call.owner:
        raise NameTaken(name.session)


def _hide_erased(call: ApiCall, fault: Erased, session: str) -> FoldlineError:
    """Hide from all but admins that a name was erased: nobody knows any more whose it was."""
    return fault if call.admin else NameTaken(session)


async def _check_carried(call: ApiCall, session: str) -> None:
    """Refuse to carry from another owner's session as if there were none."""
    try:
        async with call.open_session(session):
            pass
    except NotFound:
        raise nothing_to_carry(Name(call.tenant, session)) from None


async def _change_instructions(
    call: ApiCall, session: AsyncSession, system: str | list[str] | None, tools: list[Json] | None
) -> None:
    """Change system prompt and tools; the gateway's own tools are offered beside the client's."""
    if tools is not None:
        own = call.pool.place.tools_of(session)
        names = {tool.name for tool in own}
        theirs = [
            tool
            for tool in tools
            if not names.intersection(one.name for one in base.parse_any_tools(tool))
        ]
        tools = [*(tool.offered for tool in own), *theirs]
    await session.instruct(system=system, tools=tools)


async def erase(call: ApiCall) -> Reply:
    """Erase a session for good."""
    name = call.name
    async with call.open_session() as kept, call.pool.lock_session(kept, wait=call.query.wait):
        receipt = await call.pool.place.store.erase(name)
        call.pool.drop_session(name)
    if not receipt.sessions:
        raise NotFound(f"there is no session {name.session!r}")
    return ReceiptSchema(
        sessions=[*receipt.sessions], events=receipt.events, bytes=receipt.size, time=receipt.time
    )


async def request(call: ApiCall) -> Reply:
    """Build the next request as the provider's JSON, and record it as sent."""
    body: WantedSchema = call.body
    if taken := [field for field in _OURS if field in body.parameters]:
        raise BadInput(f"{taken[0]!r} is written by the session; leave it out of the parameters")
    async with call.open_session() as kept, call.pool.lock_session(kept, wait=call.query.wait):
        live = kept.session.live
        dialect = base.find_view_dialect(live.view)
        async with live.lock:
            facts, parameters = model_facts.fit_answer_limit(live.facts, dialect, body.parameters)
            planned = await planning.plan_and_record_request(
                live, parameters, dialect=dialect, facts=facts
            )
            headers = (("x-foldline-asked", str(live.view.asked)),)
    return ApiAnswer(planned, headers=headers)


async def fold(call: ApiCall) -> Reply:
    """Fold now what may be folded, or preview it."""
    body: FoldingSchema = call.body
    async with call.open_session() as kept:
        if body.preview:
            now = kept.session.report.total
            lost = await kept.session.fold(focus=body.focus, preview=True)
            return FoldedSchema(
                folded=False,
                preview=True,
                edit=None,
                before=now,
                after=now,
                ratio=lost.ratio if lost is not None else None,
                summary=lost.summary if lost is not None else "",
                left_out=len(lost.left_out) if lost is not None else 0,
                no_summary=lost.no_summary if lost is not None else "",
                loss=lost,
            )
        async with call.pool.lock_session(kept, wait=call.query.wait) as session:
            before = session.report.total
            lost = await session.fold(focus=body.focus)
            return FoldedSchema(
                folded=lost is not None,
                preview=False,
                edit=session.edits[-1] if lost is not None else None,
                before=before,
                after=session.report.total,
                ratio=lost.ratio if lost is not None else None,
                summary=lost.summary if lost is not None else "",
                left_out=len(lost.left_out) if lost is not None else 0,
                no_summary=lost.no_summary if lost is not None else "",
                loss=lost,
            )


async def undo(call: ApiCall) -> Reply:
    """Undo an edit."""
    body: UndoingSchema = call.body
    async with call.open_session() as kept, call.pool.lock_session(kept, wait=call.query.wait):
        return await _undo_edit(kept.session, body.edit)


async def redo(call: ApiCall) -> Reply:
    """Redo the edit that was undone last, if nothing was edited since."""
    async with call.open_session() as kept, call.pool.lock_session(kept, wait=call.query.wait):
        newest = await kept.session.history.taken_back()
        if newest is None:
            raise NotAnEdit("there is nothing to redo: the newest edit is no undoing")
        return await _undo_edit(kept.session, newest)


async def _undo_edit(session: AsyncSession, edit: int | None) -> UndoneSchema:
    before, standing = session.report.total, session.edits
    redo = await session.undo(edit)
    return UndoneSchema(
        undone=standing[-1] if edit is None else edit,
        redo=redo,
        edits=session.edits,
        before=before,
        after=session.report.total,
    )


async def pin(call: ApiCall) -> Reply:
    """Keep a message verbatim through every fold."""
    return await _set_pin(call, on=True)


async def unpin(call: ApiCall) -> Reply:
    """Unpin a message."""
    return await _set_pin(call, on=False)


async def _set_pin(call: ApiCall, *, on: bool) -> Reply:
    body: PinningSchema = call.body
    async with call.open_session() as kept:
        async with call.pool.lock_session(kept, wait=call.query.wait) as session:
            await session.pin(body.place, on=on)
        return PinsSchema(pins=sorted(kept.session.live.view.pins))


async def exclude(call: ApiCall) -> Reply:
    """Exclude messages from what the model sees."""
    body: ExcludingSchema = call.body
    async with call.open_session() as kept, call.pool.lock_session(kept, wait=call.query.wait):
        before = kept.session.report.total
        edit = await kept.session.history.exclude(*body.places)
        return ExcludedSchema(edit=edit, before=before, after=kept.session.report.total)


async def instruct(call: ApiCall) -> Reply:
    """Change the system prompt or the tools from here on."""
    body: InstructingSchema = call.body
    async with call.open_session() as kept:
        async with call.pool.lock_session(kept, wait=call.query.wait) as session:
            await _change_instructions(call, session, body.system, body.tools)
        return build_instructions(kept.session)


async def switch(call: ApiCall) -> Reply:
    """Switch to another model; one whose window is too small for what must stay is refused."""
    body: SwitchingSchema = call.body
    call.check_model(body.model)
    async with call.open_session() as kept:
        async with call.pool.lock_session(kept, wait=call.query.wait) as session:
            host = recorded_host(session.live.view.settings)
            if host is not None and host.dialect != dialect_of(body.model, host.base_url):
                raise OtherHost(
                    f"session {call.name.session!r} is asked at {host.base_url}, and "
                    f"{body.model!r} is another provider's; name a model of the same provider, or "
                    "begin another session"
                )
            await session.switch(body.model, window=body.window)
            live = session.live
            settings: Any = {**live.view.settings, "window": body.window}
            async with live.lock:
                await live.record_opening(body.model, settings=settings)
        return build_session_answer(kept)


async def share(call: ApiCall) -> Reply:
    """Let the keys of another owner read a session."""
    async with call.open_session():
        shared = await session_shares.share_session(call.pool.place.store, call.name, call.path[1])
    return SharesSchema(session=call.name.session, shared=shared)


async def unshare(call: ApiCall) -> Reply:
    """End what an owner was allowed to read."""
    async with call.open_session():
        shared = await session_shares.unshare_session(
            call.pool.place.store, call.name, call.path[1]
        )
    return SharesSchema(session=call.name.session, shared=shared)


async def fork(call: ApiCall) -> Reply:
    """Make a new session that begins as this one is, or was at a place."""
    body: ForkingSchema = call.body
    to = sound_name(body.to or f"s-{os.urandom(8).hex()}")
    async with call.open_session() as kept:
        try:
            await kept.session.fork(to, at=body.at)
        except Conflict as fault:
            raise NameTaken(to) from fault
        except Erased as fault:
            raise _hide_erased(call, fault, to) from fault
    async with call.open_session(to) as made:
        return build_session_answer(made)

"""Routes that only read."""

from dataclasses import asdict

import msgspec

from foldline.apps.gateway import session_shares
from foldline.apps.gateway.api.api_call import ApiAnswer, ApiCall, Reply
from foldline.apps.gateway.api.pool import OpenSession
from foldline.apps.gateway.api.schemas import (
    ContextSchema,
    CostSchema,
    ExportingSchema,
    FoldRecordSchema,
    FoundSchema,
    HandleSchema,
    HistorySchema,
    HitSchema,
    InstructionsSchema,
    ListedSchema,
    PageSchema,
    RecalledSchema,
    SessionSchema,
    SessionsSchema,
    SharesSchema,
    TokensSchema,
    ToolSchema,
    TurnSchema,
    WordsSchema,
)
from foldline.core.parts import render_parts, replace_surrogates
from foldline.draw import Picture, build_picture, draw_picture_svg, encode_picture
from foldline.draw.wording import clean_line, format_picture_usage
from foldline.errors import BadInput
from foldline.session import planning
from foldline.session.export_log import export_session
from foldline.session.fold_records import read_fold_records
from foldline.session.history import measure_pace
from foldline.session.ledger import SessionLedger
from foldline.session.session import AsyncSession

SVG = "image/svg+xml"
_MEDIA = {"jsonl": "application/jsonl", "markdown": "text/markdown; charset=utf-8"}
_LONGEST = 2**40  # longer than any log


async def sessions(call: ApiCall) -> Reply:
    """List the sessions that the client may see, by name, page by page."""
    query: PageSchema = call.query
    after = replace_surrogates(query.after).replace("\0", "")
    store = call.pool.place.store
    page = await store.sessions(call.tenant, after=after, limit=query.limit, owner=call.sees)
    listed = [
        ListedSchema(
            name=each.session,
            events=each.head + 1,
            bytes=each.size,
            opened=each.opened,
            changed=each.changed,
            origin=each.origin,
            owner=each.owner,
        )
        for each in page
        if each.head >= 0  # else it is only claimed or leased, and no session yet
    ]
    last = page[-1].session if len(page) == query.limit else None
    shared = [] if after else await session_shares.list_shared(store, call.tenant, call.owner)
    return SessionsSchema(sessions=listed, after=last, shared=shared)


async def session(call: ApiCall) -> Reply:
    """Show a session."""
    async with call.open_session() as kept:
        return build_session_answer(kept)


def build_session_answer(kept: OpenSession) -> SessionSchema:
    """Describe a session as it is now."""
    view, now = kept.session.live.view, kept.session.report
    return SessionSchema(
        name=kept.session.live.name.session,
        model=view.model,
        policy=kept.session.live.facts.policy.name,
        on_disconnect=kept.on_disconnect,
        at=view.head,
        tokens=now.total,
        window=now.window,
        edits=kept.session.edits,
        pins=sorted(view.pins),
        calls=sorted(view.open),
        busy=kept.turn.locked(),
    )


def _draw_picture(session: AsyncSession) -> Picture:
    return build_picture(session.live.view, session.live.facts)


async def context(call: ApiCall) -> Reply:
    """Show what the model sees now, as JSON or drawn."""
    async with call.open_session() as kept:
        picture = _draw_picture(kept.session)
    if SVG in call.headers.get("accept", ""):
        return ApiAnswer(draw_picture_svg(picture).encode(), SVG)
    body = {"session": call.name.session, **encode_picture(picture)}
    return msgspec.convert(body, ContextSchema)


async def tokens(call: ApiCall) -> Reply:
    """Show how the window is used."""
    async with call.open_session() as kept:
        picture, report = _draw_picture(kept.session), kept.session.report
    return TokensSchema(
        session=call.name.session,
        line=f"[tokens: {format_picture_usage(picture)}]",
        total=picture.total,
        window=picture.window,
        percent=picture.percent,
        level=picture.level,
        pressure=picture.pressure,
        counted=picture.counted,
        window_source=picture.source,
        reserve=picture.reserve,
        margin=picture.margin,
        room=picture.room,
        parts=report.parts,
    )


async def recall(call: ApiCall) -> Reply:
    """Return the original of anything in the log."""
    query: HandleSchema = call.query
    async with call.open_session() as kept:
        text = await kept.session.recall(query.handle, most=query.most)
    return RecalledSchema(handle=query.handle, text=text)


async def search(call: ApiCall) -> Reply:
    """Search for messages that hold any of some words."""
    query: WordsSchema = call.query
    words = replace_surrogates(query.words).replace("\0", " ")
    async with call.open_session() as kept:
        # Another's session may be open because it is shared; that says nothing of others.
        everywhere = query.everywhere and call.words
        found = await kept.session.history.search(
            words, everywhere=everywhere, limit=query.limit, owner=call.sees if everywhere else None
        )
    hits = [
        HitSchema(
            session=hit.session,
            handle=hit.handle,
            score=hit.score,
            same=hit.same,
            snippet=clean_line(hit.snippet),
        )
        for hit in found
    ]
    return FoundSchema(words=words, found=hits)


async def history(call: ApiCall) -> Reply:
    """List every turn and every fold, and say how fast the window fills."""
    async with call.open_session() as kept:
        turns = await kept.session.history.turns()
        folds = await read_fold_records(kept.session.live, turns)
        report = kept.session.report
    pace = measure_pace(turns, report)
    return HistorySchema(
        turns=[TurnSchema(**asdict(turn)) for turn in turns],
        folds=msgspec.convert(folds, list[FoldRecordSchema], from_attributes=True),
        used=report.total,
        window=report.window,
        growth=pace.growth,
        turns_left=pace.turns_left,
        next_output=pace.next_output,
    )


async def request(call: ApiCall) -> Reply:
    """Rebuild a past request, byte for byte."""
    place = call.path[1]
    if not place.isascii() or not place.isdecimal() or int(place[:16]) > _LONGEST:
        raise BadInput(f"{place[:80]!r} is no place in a log; write a number")
    async with call.open_session() as kept:
        return ApiAnswer(await planning.rebuild_request(kept.session.live, int(place)))


async def instructions(call: ApiCall) -> Reply:
    """Show the current system prompt and tools."""
    async with call.open_session() as kept:
        return build_instructions(kept.session)


def build_instructions(seen: AsyncSession) -> InstructionsSchema:
    """Describe the current system prompt and tools."""
    now = seen.live.view.newest
    tools = [
        ToolSchema(
            name=tool.name,
            description=tool.description,
            parameters=msgspec.json.decode(tool.schema),
        )
        for tool in now.tools
    ]
    return InstructionsSchema(system=[render_parts((part,)) for part in now.parts], tools=tools)


async def cost(call: ApiCall) -> Reply:
    """Sum up what a session's calls cost, as the provider counted, at today's prices."""
    async with call.open_session() as kept:
        ledger = SessionLedger(kept.session)
        sums = await ledger.catch_up()
        next_call = _draw_picture(kept.session).cost
    return CostSchema(
        calls=sums.calls - sums.estimated,
        uncounted=sums.estimated,
        unpriced=sums.unpriced,
        input=sums.input,
        cache_read=sums.cache_read,
        cache_write=sums.cache_write,
        output=sums.output,
        dollars=sums.known_dollars if sums.calls else 0.0,
        assumed=ledger.assumed,
        next_call=next_call,
    )


async def shares(call: ApiCall) -> Reply:
    """List the owners who may read a session beside its own."""
    async with call.open_session():
        shared = await session_shares.list_readers(call.pool.place.store, call.name)
    return SharesSchema(session=call.name.session, shared=shared)


async def export(call: ApiCall) -> Reply:
    """Export a session as a log, a chat or a text."""
    query: ExportingSchema = call.query
    async with call.open_session() as kept:
        events = await kept.session.history.events()
        body = export_session(kept.session, events, query.format, sight=query.sight)
    return ApiAnswer(body, _MEDIA.get(query.format, "application/json"))

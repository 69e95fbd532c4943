"""The pages that change a session: fold, undo and pin, each with a page that asks first.

What a page shows before the change was computed then; the change itself is decided anew under the
session's lock, as the session API does it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.pages import logged_calls
from foldline.apps.pages.page_call import PageAnswer, PageCall
from foldline.apps.pages.safe_text import fit_text
from foldline.apps.pages.session_pages import list_left
from foldline.core.log import Edit
from foldline.core.parts import render_parts
from foldline.core.spine import Range, list_edits
from foldline.errors import NotAnEdit
from foldline.session.history import diff_views
from foldline.session.session import AsyncSession
from foldline.stores import event_log
from foldline.stores.base import Name

_SHOWN = 4_000  # bytes of a message that is to be pinned


@asynccontextmanager
async def _lock_session(call: PageCall, name: Name) -> AsyncGenerator[AsyncSession]:
    """Open and lock a session, if the visitor may see it."""
    async with (
        call.pool.open_session(name, owner=call.visitor.sees) as kept,
        call.pool.lock_session(kept) as session,
    ):
        yield session


def _get_form_number(call: PageCall, key: str) -> int:
    given = call.form.get(key, "")
    if not given.isascii() or not given.isdecimal() or len(given) > 15:  # noqa: PLR2004
        raise Refusal(400, "bad_number", f"{key} is a number, not {given[:40]!r}")
    return int(given)


async def show_fold(call: PageCall) -> PageAnswer:
    """Preview a fold: what would leave the model's sight. Nothing is written."""
    name, head = await call.find_session(to_change=True)
    async with call.pool.open_session(name, owner=call.visitor.sees) as kept:
        lost = await kept.session.fold(preview=True)
        now = kept.session.report
        tells = kept.session.live.narrator is not None
    return call.render(
        "fold.html",
        name=name.session,
        head=head,
        lost=lost,
        loss_lines=str(lost).split("\n") if lost else [],
        left=list_left(lost) if lost else [],
        total=now.total,
        window=now.window,
        tells=tells,
    )


async def fold(call: PageCall) -> PageAnswer:
    """Fold a session now."""
    name, _ = await call.find_session(call.form.get("name", ""), to_change=True)
    async with _lock_session(call, name) as session:
        lost = await session.fold(focus=call.form.get("focus", ""))
        edit = session.edits[-1] if lost is not None else None
    if edit is None:
        raise Refusal(409, "nothing", "nothing was folded: what is there is in use, or too little")
    return call.redirect("edit", name=name.session, at=edit, done="folded")


async def show_undo(call: PageCall) -> PageAnswer:
    """Show what an undo would bring back, and ask."""
    name, head = await call.find_session(to_change=True)
    at = call.get_number("at", -1)
    store = call.pool.place.store
    read = await event_log.read_events(store, name, Range(at, at)) if at >= 0 else []
    if not read or not isinstance(read[0].event, Edit):
        raise NotAnEdit(f"there is no edit at {at}; the session's page lists them")
    now = await logged_calls.load_view(store, name, head.seq)
    before, after = (
        await logged_calls.load_view(store, name, at - 1),
        await logged_calls.load_view(store, name, at),
    )
    changes = diff_views(after.view, before.view)
    return call.render(
        "undo.html",
        name=name.session,
        at=at,
        title=logged_calls.summarise_edit(read[0].event).describe(),
        back=sum(one.how == "added" for one in changes),
        tokens=sum(one.item.tokens for one in changes if one.how == "added"),
        stands=at in list_edits(now.view.spine),
    )


async def undo(call: PageCall) -> PageAnswer:
    """Take an edit back."""
    name, _ = await call.find_session(call.form.get("name", ""), to_change=True)
    at = _get_form_number(call, "at")
    async with _lock_session(call, name) as session:
        redo = await session.undo(at)
    return call.redirect("edit", name=name.session, at=redo, done="undone")


async def show_pin(call: PageCall) -> PageAnswer:
    """Show the message that would be pinned, or no longer be, and ask."""
    name, head = await call.find_session(to_change=True)
    at = call.get_number("at", -1)
    view = (await logged_calls.load_view(call.pool.place.store, name, head.seq)).view
    read = await event_log.read_events(call.pool.place.store, name, Range(at, at))
    if at < 0 or not read:
        raise Refusal(404, "no_event", f"there is no message at {at}")
    parts = getattr(read[0].event, "parts", ())
    return call.render(
        "pin.html",
        name=name.session,
        at=at,
        is_pinned=at in view.pins,
        text_shown=fit_text(render_parts(parts), _SHOWN),
    )


async def pin(call: PageCall) -> PageAnswer:
    """Pin a message, or no longer."""
    name, _ = await call.find_session(call.form.get("name", ""), to_change=True)
    at = _get_form_number(call, "at")
    async with _lock_session(call, name) as session:
        await session.pin(at, on=call.form.get("on") == "1")
    return call.redirect("session", name=name.session, at="now")

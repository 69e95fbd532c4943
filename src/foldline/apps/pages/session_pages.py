"""The pages that show: the list of sessions, one session at one of its calls, originals, edits.

The first search of a store reads all messages, which takes minutes where there are very many: the
page then says so, and asks again by itself.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from markupsafe import escape

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.session_shares import list_shared
from foldline.apps.pages import logged_calls
from foldline.apps.pages.logged_calls import BoundedView, LoggedCall, NearbyCalls
from foldline.apps.pages.page_call import SVG, PageAnswer, PageCall
from foldline.apps.pages.safe_text import FittedText, fit_text, shorten_line
from foldline.apps.pages.session_list import ORDERS, ListQuery
from foldline.core import log
from foldline.core.edits.fold import Loss, measure_loss
from foldline.core.fold_selection import Facts
from foldline.core.item import Item
from foldline.core.log import Edit, Event, Folded
from foldline.core.parts import calls_of, render_parts
from foldline.core.prices import PICO
from foldline.core.recall.query import render_whole_event
from foldline.core.spine import Range, list_edits
from foldline.core.view import View
from foldline.draw.change_svg import change_svg
from foldline.draw.picture import KINDS, Picture, build_picture
from foldline.draw.svg import draw_picture_svg
from foldline.draw.wording import build_table_rows, collect_notes, format_picture_usage
from foldline.errors import NotAnEdit, Unsupported
from foldline.session.history import Changed, FoundMessage, diff_views
from foldline.session.ledger import price_usage
from foldline.session.message_search import search_tenant_messages
from foldline.stores import event_log
from foldline.stores.base import Name

_LIVE = 5  # seconds between two looks at a list that is live
_ITEMS = 30  # messages on a page
_TEXTS = 150_000  # bytes of all messages on a page, as they are sent
_FIRST, _MORE = 2_400, 12_000  # bytes of one message: shown at once, and when opened
_CHANGES = 40  # rows of a comparison
_AROUND = 6  # calls listed on each side
_EDITS = 12  # edits listed
_ORIGINAL = 150_000  # bytes of a page of an original
_HANDLES = 100  # handles listed of what a fold took
_WORDS = 140  # characters of a message in a list
_LIVE_REFRESH = {True: _LIVE, False: 0}


async def show_sessions(call: PageCall) -> PageAnswer:
    """Show the list of sessions."""
    if not call.visitor.words:
        return call.redirect("fleet")
    order = call.get("sort") or "changed"
    if order not in ORDERS:
        raise Refusal(400, "bad_sort", f"sessions are sorted by {', '.join(ORDERS)}")
    query = ListQuery(
        call.get("q")[:200].strip(),
        call.get("owner")[:200].strip(),
        call.get("model")[:200].strip(),
        order,
        call.get_number("page", 1),
    )
    page = await call.lists.find_page(call.visitor.tenant, call.visitor.sees, query)
    live = call.get("live") == "1"
    store, visitor = call.pool.place.store, call.visitor
    return call.render(
        "sessions.html",
        page=page,
        shared=await list_shared(store, visitor.tenant, visitor.owner),
        query=page.query,
        orders=ORDERS,
        live=live,
        refresh=_LIVE_REFRESH[live],
    )


@dataclass(frozen=True, slots=True)
class ShownItem:
    """A message as the page shows it."""

    item: Item
    how: str
    """added, changed, or "" if the request before showed the same."""
    text: FittedText
    more: FittedText | None
    """What opens below, if the text is longer."""
    calls: list[tuple[str, FittedText]]
    is_pinned: bool
    can_pin: bool


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A row of the comparison with the request before."""

    how: str
    role: str
    state: str
    seq: int
    last: int
    """The last place, of several neighbours that were removed."""
    count: int
    tokens: int
    words: str


async def show_session(call: PageCall) -> PageAnswer:
    """Show a session at one of its calls, or as it is now."""
    name, head = await call.find_session()
    store, place = call.pool.place.store, call.pool.place
    is_now = call.get("at") == "now"
    at = head.seq if is_now else min(call.get_number("at", head.seq), head.seq)
    near = await logged_calls.find_calls(store, name, at, head=head.seq)
    current = near.current
    if current is None:
        is_now = True
    seen_at = head.seq if is_now or current is None else current.shown
    until = call.get_number("until", seen_at)
    bounded = await logged_calls.load_view(store, name, seen_at, until=until)
    view = bounded.view
    facts = place.facts_of_tenant(name.tenant)(view.model, view.settings)
    earlier = current if is_now else near.before
    past, changes = await _compare_with(call, name, near, bounded, earlier)
    items = (*view.items, *view.waiting)
    part, parts = _choose_part(call, len(items))
    answer = await _read_answer(call, name, None if is_now else current)
    newest = await logged_calls.list_newest_edits(store, name, head=head.seq, most=_EDITS)
    picture = None if bounded.left_out else build_picture(view, facts)
    paid = None if is_now or current is None else price_usage(facts.prices, current.usage)
    return call.render(
        "session.html",
        name=name.session,
        head=head,
        at=head.seq if is_now or current is None else current.at,
        is_now=is_now,
        near=near,
        current=None if is_now else current,
        nearby=near.calls[max(near.index - _AROUND, 0) : near.index + _AROUND + 1],
        bounded=bounded,
        earlier_part=bounded.first - 1 if bounded.first > 0 else None,
        first_part=logged_calls.NEWEST - 1,
        later_part=None if bounded.last < 0 else min(bounded.last + logged_calls.NEWEST, seen_at),
        picture=picture,
        bar_parts=() if picture is None else draw_bar(picture),
        rows=() if picture is None else build_table_rows(picture),
        usage="" if picture is None else format_picture_usage(picture),
        notes=() if picture is None else collect_notes(picture),
        finding=None if is_now else logged_calls.explain_cache(near, view, past, facts),
        dollars=None if paid is None else paid / PICO,
        assumed=facts.prices.assumed,
        earlier=earlier,
        changes=_group_changes(changes),
        change_count=len(changes),
        items=_show_items(items[(part - 1) * _ITEMS : part * _ITEMS], changes, view),
        item_count=len(items),
        part=part,
        parts=parts,
        answer=answer,
        edits=[(seq, edit.describe()) for seq, edit in newest],
        standing=list_edits(view.spine),
        between=near.list_edits(
            earlier.shown + 1 if earlier else 0, seen_at + (0 if is_now else 1)
        ),
        model=view.model,
    )


async def _compare_with(
    call: PageCall,
    name: Name,
    near: NearbyCalls,
    bounded: BoundedView,
    earlier: LoggedCall | None,
) -> tuple[View | None, list[Changed]]:
    """Compare a view with an earlier call's, which is loaded only if more than messages changed."""
    view = bounded.view
    if earlier is None:
        return None, diff_views(None, view)
    if not near.changed_front(earlier.shown + 1, view.head):
        return view, logged_calls.list_added(view, earlier.shown)
    past = await logged_calls.load_view(call.pool.place.store, name, earlier.shown)
    return past.view, diff_views(past.view, view)


def _choose_part(call: PageCall, count: int) -> tuple[int, int]:
    """Choose which messages are shown: the newest by default."""
    parts = max(-(-count // _ITEMS), 1)
    return min(max(call.get_number("part", parts), 1), parts), parts


def _show_items(items: Sequence[Item], changes: list[Changed], view: View) -> list[ShownItem]:
    how = {(one.item.seq, one.item.role): one.how for one in changes if one.how != "removed"}
    left = _TEXTS
    found: list[ShownItem] = []
    for item in items:
        words = render_parts(item.parts)
        first = fit_text(words, _FIRST)
        more = None
        if first.left and left > _FIRST:
            more = fit_text(words, min(_MORE, left - _FIRST), start=len(words) - first.left)
        named = [(one.name, fit_text(one.arguments, _FIRST)) for one in calls_of(item.parts)[:20]]
        left -= sum(
            len(str(escape(one.shown)).encode())
            for one in (first, *([more] if more else []), *(text for _, text in named))
        )
        found.append(
            ShownItem(
                item,
                how.get((item.seq, item.role), ""),
                first,
                more,
                named,
                item.seq in view.pins,
                item.role in ("user", "model", "result"),
            )
        )
    return found


def _group_changes(changes: list[Changed]) -> list[ShownChange]:
    """Group removed neighbours, and keep as many rows as can be read."""
    found: list[ShownChange] = []
    for one in changes:
        item, last = one.item, found[-1] if found else None
        if one.how == "removed" and last is not None and last.how == "removed":
            found[-1] = ShownChange(
                "removed", "", "", last.seq, item.seq, last.count + 1, last.tokens + item.tokens, ""
            )
            continue
        named = " ".join(call.name for call in calls_of(item.parts))
        words = shorten_line(f"{render_parts(item.parts)[: 4 * _WORDS]} {named}", _WORDS)
        found.append(
            ShownChange(one.how, item.role, item.state, item.seq, item.seq, 1, item.tokens, words)
        )
    return found[:_CHANGES]


async def _read_answer(
    call: PageCall, name: Name, current: LoggedCall | None
) -> tuple[FittedText, list[tuple[str, FittedText]]] | None:
    if current is None or current.answered < 0:
        return None
    span = Range(current.answered, current.answered)
    read = await event_log.read_events(call.pool.place.store, name, span)
    event = read[0].event if read else None
    if not isinstance(event, log.ModelSaid):
        return None
    named = [(one.name, fit_text(one.arguments, _FIRST)) for one in calls_of(event.parts)[:20]]
    return fit_text(render_parts(event.parts), _MORE), named


@dataclass(frozen=True, slots=True)
class BarPart:
    """A piece of the bar that shows the window."""

    kind: str
    x: float
    width: float
    tokens: int


def draw_bar(picture: Picture) -> list[BarPart]:
    """Divide the bar of the window: the request's parts, then what it leaves free."""
    whole = max(picture.window, picture.total, 1)
    sizes: list[tuple[str, int]] = [
        (kind, sum(run.tokens for run in picture.select_runs(kind))) for kind in KINDS
    ]
    sizes += [(str(kind), size) for kind, size in picture.measure_spaces().items()]
    found: list[BarPart] = []
    start = 0
    for kind, tokens in sizes:
        if tokens:
            found.append(BarPart(kind, 1000 * start / whole, 1000 * tokens / whole, tokens))
        start += tokens
    return found


async def show_picture(call: PageCall) -> PageAnswer:
    """Return the picture of the window at a place as a file."""
    name, head = await call.find_session()
    at = min(call.get_number("at", head.seq), head.seq)
    bounded = await logged_calls.load_view(call.pool.place.store, name, at)
    if bounded.left_out:
        raise Refusal(404, "too_large", "this view is too large to be drawn")
    facts = call.pool.place.facts_of_tenant(name.tenant)(bounded.view.model, bounded.view.settings)
    drawn = draw_picture_svg(build_picture(bounded.view, facts))
    return PageAnswer(drawn.encode("utf-8", "replace"), SVG)


async def show_original(call: PageCall) -> PageAnswer:
    """Show the event at a place of the log, whole, page by page."""
    name, head = await call.find_session()
    at = call.get_number("at", -1)
    read = await event_log.read_events(call.pool.place.store, name, Range(at, at))
    if not 0 <= at <= head.seq or not read:
        raise Refusal(404, "no_event", f"there is no event {at} here; the log ends at {head.seq}")
    event = read[0].event
    text = render_whole_event(event, bulk=False)
    if text is None:
        text = log.encode_event(event).decode()
    start = min(call.get_number("from", 0), len(text))
    fitted = fit_text(text, _ORIGINAL, start=start)
    return call.render(
        "original.html",
        name=name.session,
        at=at,
        head=head,
        kind=log.event_kind_of(event).replace("_", " "),
        start=start,
        fitted=fitted,
        text_left=fitted.left,
        end=len(text) - fitted.left,
        size=len(text),
    )


@dataclass(frozen=True, slots=True)
class EditShown:
    """What an edit changed."""

    event: Event
    before: BoundedView
    after: BoundedView
    lost: Loss | None
    facts: Facts


async def _read_edit(call: PageCall, name: Name, at: int) -> EditShown:
    store = call.pool.place.store
    read = await event_log.read_events(store, name, Range(at, at)) if at > 0 else []
    event = read[0].event if read else None
    if not isinstance(event, Edit):
        raise NotAnEdit(f"there is no edit at {at}; the session's page lists them")
    before, after = (
        await logged_calls.load_view(store, name, at - 1),
        await logged_calls.load_view(store, name, at),
    )
    whole = not before.left_out
    lost = measure_loss(before.view, event) if isinstance(event, Folded) and whole else None
    facts = call.pool.place.facts_of_tenant(name.tenant)(after.view.model, after.view.settings)
    return EditShown(event, before, after, lost, facts)


async def show_edit(call: PageCall) -> PageAnswer:
    """Show what the model saw before and after an edit, and what it lost."""
    name, head = await call.find_session()
    at = call.get_number("at", -1)
    shown = await _read_edit(call, name, at)
    newest = await logged_calls.load_view(call.pool.place.store, name, head.seq)
    pictures = [
        (title, picture, draw_bar(picture), format_picture_usage(picture))
        for title, bounded in (("before", shown.before), ("after", shown.after))
        if not bounded.left_out
        for picture in (build_picture(bounded.view, shown.facts),)
    ]
    stubs = getattr(shown.event, "stubs", ())
    return call.render(
        "edit.html",
        name=name.session,
        at=at,
        head=head,
        title=logged_calls.summarise_edit(shown.event).describe(),
        event=shown.event,
        why=describe_reason(shown.event),
        pictures=pictures,
        lost=shown.lost,
        loss_lines=str(shown.lost).split("\n") if shown.lost else [],
        left=list_left(shown.lost) if shown.lost else [],
        handoff=fit_text(shown.event.text, _ORIGINAL // 2)
        if isinstance(shown.event, Folded)
        else None,
        stubs=[(one.seq, shorten_line(one.text, _WORDS)) for one in stubs[:_HANDLES]],
        stub_count=len(stubs),
        stands=at in list_edits(newest.view.spine),
        done=call.get("done"),
    )


def list_left(lost: Loss) -> list[tuple[str, list[tuple[str, int, int]], int]]:
    """List what a fold took out of sight: kind, its handles with their tokens, how many in all."""
    return [
        (
            kind,
            [(one.handle, _find_place(one.handle), one.tokens) for one in some[:_HANDLES]],
            len(some),
        )
        for kind, some in lost.left.items()
    ]


def _find_place(handle: str) -> int:
    """Return the first place of a handle: an earlier fold's has two."""
    return int(handle.removeprefix("log:").partition("-")[0])


_REASONS = {
    "": "no reason was recorded",
    "forced": "the window was nearly full",
    "full": "the window was full, and it could not be sent otherwise",
    "pays": "it pays: fewer tokens are read from then on",
    "cold": "the cache was cold: it cost nothing",
    "due": "the policy or a person asked for it",
}


def describe_reason(event: Event) -> str:
    """Say why a fold was made."""
    return _REASONS.get(event.why, event.why) if isinstance(event, Folded) else ""


async def show_change_picture(call: PageCall) -> PageAnswer:
    """Return the picture of an edit as a file."""
    name, _ = await call.find_session()
    shown = await _read_edit(call, name, call.get_number("at", -1))
    if shown.before.left_out or shown.after.left_out:
        raise Refusal(404, "too_large", "this view is too large to be drawn")
    before, after = (build_picture(one.view, shown.facts) for one in (shown.before, shown.after))
    drawn = change_svg(before, after, lost=shown.lost)
    return PageAnswer(drawn.encode("utf-8", "replace"), SVG)


_MOST = 40  # messages on the page
_LONGEST = 200  # characters of a question
_PATIENCE = 0.1  # seconds that a page waits for its search
_AGAIN = 2  # seconds after which it asks again
_GOING = 16  # searches at most that go on without a page
_Search: TypeAlias = tuple[str | None, ...]
_Found: TypeAlias = list[FoundMessage]


class Searches:
    """Searches that go on when their page was sent without what they find."""

    def __init__(self) -> None:
        self._going: dict[_Search, asyncio.Task[_Found]] = {}

    async def find_in_time(
        self, search: _Search, start: Callable[[], Coroutine[Any, Any, _Found]]
    ) -> _Found | None:
        """Return what a search finds; None if it takes longer than a page waits."""
        if search not in self._going:
            self._make_room()
            self._going[search] = asyncio.create_task(start())
        task = self._going[search]
        await asyncio.wait([task], timeout=_PATIENCE)
        if not task.done():
            return None
        self._going.pop(search, None)
        return task.result()

    def _make_room(self) -> None:
        """Drop what was found and is asked for no more, where very many go on."""
        if len(self._going) < _GOING:
            return
        done = next((search for search, task in self._going.items() if task.done()), None)
        if done is None:
            raise Refusal(503, "busy", "too many searches are under way; try again in a minute")
        del self._going[done]

    async def close(self) -> None:
        """Stop all of them."""
        for task in self._going.values():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def show_search(call: PageCall) -> PageAnswer:
    """Show the messages that a store finds; an encrypted one searches a single session."""
    words = call.get("q").replace("\0", " ")[:_LONGEST].strip()
    name, is_sealed = "", False
    if call.get("name"):
        name = (await call.find_session())[0].session
    else:
        call.must_read_words()
    found: _Found | None = []
    if words:
        visitor, owner = call.visitor, None if name else call.visitor.sees
        try:
            found = await call.searches.find_in_time(
                (visitor.tenant, words, name or None, owner),
                lambda: search_tenant_messages(
                    call.pool.place.store,
                    visitor.tenant,
                    words,
                    session=name or None,
                    limit=_MOST,
                    owner=owner,
                ),
            )
        except Unsupported:
            is_sealed = True
    return call.render(
        "search.html",
        name=name,
        words=words,
        found=found or [],
        is_sealed=is_sealed,
        is_going_on=found is None,
        most=_MOST,
        refresh=_AGAIN if found is None else 0,
    )

"""Search for words in messages: of all sessions that the visitor sees, or of one.

The first search of a store reads all messages, which takes minutes where there are very many: the
page then says so, and asks again by itself.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.pages.page_call import PageAnswer, PageCall
from foldline.errors import Unsupported
from foldline.session.history import FoundMessage
from foldline.session.message_search import search_tenant_messages

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

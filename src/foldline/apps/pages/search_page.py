"""Search for words in messages: of all sessions that the visitor sees, or of one."""

from foldline.apps.pages.page_call import PageAnswer, PageCall
from foldline.errors import Unsupported
from foldline.session.history import FoundMessage
from foldline.session.message_search import search_tenant_messages

_MOST = 40  # messages on the page
_LONGEST = 200  # characters of a question


async def show_search(call: PageCall) -> PageAnswer:
    """Show the messages that a store finds; an encrypted one searches a single session."""
    words = call.get("q").replace("\0", " ")[:_LONGEST].strip()
    name, is_sealed = "", False
    if call.get("name"):
        name = (await call.find_session())[0].session
    else:
        call.must_read_words()
    found: list[FoundMessage] = []
    if words:
        try:
            found = await search_tenant_messages(
                call.pool.place.store,
                call.visitor.tenant,
                words,
                session=name or None,
                limit=_MOST,
                owner=None if name else call.visitor.sees,
            )
        except Unsupported:
            is_sealed = True
    return call.render(
        "search.html", name=name, words=words, found=found, is_sealed=is_sealed, most=_MOST
    )

"""Recall: look up the originals behind a handle.

    pages  Render a page of a text, or grep it, with the call that continues
    query  Parse and render queries: a handle, and one way to look at what it names

Works on events and reads no store. An answer that is not the whole original begins with a note in
brackets that says what it is. The original's own characters follow, so the pages of a text, put
together, are that text.
"""

from collections.abc import Iterable

from foldline.core.log import Logged
from foldline.core.recall.pages import render_grep_matches, render_page
from foldline.core.recall.query import (
    Grep,
    HeadLines,
    LineRange,
    Query,
    TailLines,
    Whole,
    build_query,
    format_handle,
    list_missing_ranges,
    list_recalled_events,
    make_missing_error,
    parse_place,
    parse_query,
    render_call,
    render_recalled_text,
)
from foldline.core.spine import Range

__all__ = [
    "Grep",
    "HeadLines",
    "LineRange",
    "Query",
    "TailLines",
    "Whole",
    "build_query",
    "format_handle",
    "list_missing_ranges",
    "make_missing_error",
    "parse_place",
    "parse_query",
    "render_call",
    "render_recall",
]


def render_recall(
    events: Iterable[Logged], asked: Query | None = None, *, most: int | None = None
) -> str:
    """Render originals: a single one as it was, several each under a line with its handle.

    Without a query, renders all events whole. With `most` (at least 100), takes at most so many
    tokens: media are named instead of spelled out, and the call that continues is given. Places of
    the query that are not among the events are named as missing.
    """
    logged = list(events)
    absent: tuple[Range, ...] = ()
    if asked is None:
        if not logged:
            return ""
        asked = Query(Range(logged[0].seq, logged[-1].seq))
    else:
        logged = [one for one in logged if asked.lo <= one.seq <= asked.hi]
        absent = list_missing_ranges(asked.span, logged)
        if not logged:
            raise make_missing_error(asked.span)
    if isinstance(asked.way, Grep):
        recalled = list_recalled_events(logged, bulk=False)
        return render_grep_matches(recalled, asked, asked.way, most=most)
    words = render_recalled_text(list_recalled_events(logged, bulk=most is None), absent)
    return render_page(words, asked, asked.way, most=most)

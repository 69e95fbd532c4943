"""Recall: what a handle stands for, and the ways to look at it.

    grep   Grep: the lines of events that match a pattern, numbered, with lines around them
    pages  A page: as many lines of a text as fit, and the call that goes on
    query  A question to recall: a handle, and one way to look at what it names
    words  The words of events: what recall looks at

Pure over events: knows no store. An answer that is not all of the original opens with one line in
brackets that says what it is; behind that line stand the original's own characters, so that the
pages of one text, put together, are that text.
"""

from collections.abc import Iterable

from foldline.core.log import Logged
from foldline.core.recall.grep import matching
from foldline.core.recall.pages import page
from foldline.core.recall.query import (
    Grep,
    HeadLines,
    LineRange,
    Query,
    TailLines,
    Way,
    Whole,
    call,
    handle,
    look,
    parse,
    place,
)
from foldline.core.recall.words import entries, gone, missing, text, whole
from foldline.core.spine import Range

__all__ = [
    "Grep",
    "HeadLines",
    "LineRange",
    "Query",
    "TailLines",
    "Way",
    "Whole",
    "call",
    "gone",
    "handle",
    "look",
    "missing",
    "parse",
    "place",
    "show",
    "whole",
]


def show(events: Iterable[Logged], asked: Query | None = None, *, most: int | None = None) -> str:
    """Originals: one alone as it was, several each under a line with its handle.

    Without a query, all of the events, whole. At most `most` tokens where that is given, 100 or
    more: pictures are then named instead of spelled out, and what is left out has the call that
    goes on. Places of the query that are not among the events are named as not there.
    """
    found = list(events)
    if asked is None:
        if not found:
            return ""
        asked = Query(Range(found[0].seq, found[-1].seq))
        absent: tuple[Range, ...] = ()
    else:
        found = [one for one in found if asked.lo <= one.seq <= asked.hi]
        absent = missing(asked.span, found)
        if not found:
            raise gone(asked.span)
    if isinstance(asked.way, Grep):
        return matching(entries(found, bulk=False), asked, asked.way, most=most)
    words = text(entries(found, bulk=most is None), absent)
    return page(words, asked, asked.way, most=most)

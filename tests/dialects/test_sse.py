"""Server-sent events: however the bytes are cut, the same events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.dialects.sse import SseEvent, SseReader
from foldline.errors import WireError

ODD = '\ufeffdata: {"a": "é😀"}\r\n\r\n: OPENROUTER PROCESSING\n\nevent: delta\rdata: one\rdata:two\r\rdata\n\nid: 7\nretry: 5\n\nevent: lost\n\n data: no field\ndata:  two spaces\n\r\ndata: [DONE]'  # fmt: skip
EVENTS = [
    SseEvent("message", '{"a": "é😀"}'),
    SseEvent("delta", "one\ntwo"),
    SseEvent("message", ""),
    SseEvent("message", " two spaces"),
    SseEvent("message", "[DONE]", whole=False),
]


def events(stream, cuts):
    lines, sent, last = SseReader(), [], 0
    for cut in [*sorted(cuts), len(stream)]:
        sent += lines.feed(stream[last:cut])
        last = cut
    return [*sent, *lines.close()]


def test_fields_are_read_by_the_standard():
    """Line ends of three kinds, comments, several data lines, a mark, no blank line at the end."""
    assert events(ODD.encode(), []) == EVENTS


@given(st.sets(st.integers(0, len(ODD.encode()))))
def test_any_cutting_of_a_known_stream(cuts):
    assert events(ODD.encode(), cuts) == EVENTS


_pieces = st.sampled_from(
    [b"data:", b"data: ", b"event: x", b"\r", b"\n", b"\r\n", b"\n\n", b":", b"\xef\xbb\xbf", b"\xff",
     "é😀".encode(), b"{}", b" ", b"[DONE]"]
)  # fmt: skip


@given(st.lists(_pieces, max_size=40).map(b"".join), st.data())
def test_any_cutting_of_any_stream(stream, data):
    cuts = data.draw(st.sets(st.integers(0, len(stream))))
    assert events(stream, cuts) == events(stream, range(len(stream))) == events(stream, [])


def test_an_event_without_end_is_refused_and_comments_are_not_counted():
    lines = SseReader(largest=1_000)
    for _ in range(100):
        lines.feed(b": keep-alive, which says nothing\n")
        lines.feed(b"data: 0123456789\n\n")
    for _ in range(60):
        lines.feed(b"data: 0123456789\n")
    with pytest.raises(WireError, match="1,000 bytes"):
        lines.feed(b"data: 0123456789\n" * 10)
    with pytest.raises(WireError):
        SseReader(largest=1_000).feed(b"x" * 1_001)

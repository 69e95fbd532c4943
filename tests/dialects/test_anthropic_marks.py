"""Cache marks on blocks: they come off as they went on, and nothing else does."""

import json

from hypothesis import given
from hypothesis import strategies as st
from odd_json import numbers, texts, written

from foldline.dialects.anthropic.blocks import Block
from foldline.dialects.anthropic.write import add_mark, strip_block_marks

values = st.recursive(
    st.one_of(numbers.map(lambda text: (text,)), texts, st.none(), st.booleans()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
source = st.sampled_from(
    [
        {"type": "base64", "media_type": "image/png", "data": "iVBO"},
        {"type": "url", "url": "https://x/y.png"},
        {"type": "file", "file_id": "f"},
        {"type": "text", "media_type": "text/plain", "data": "plain"},
    ]
)
text_block = texts.map(lambda text: {"type": "text", "text": text})
heard_block = st.one_of(
    text_block,
    source.map(lambda one: {"type": "image", "source": one}),
    source.map(lambda one: {"type": "document", "source": one, "title": "t"}),
    texts.map(lambda text: {"type": "search_result", "source": "s", "title": text, "content": []}),
    values.map(lambda value: {"type": "a_block_of_tomorrow", "cache": value}),
)
arguments = st.dictionaries(st.sampled_from(["a", "é", "cache_control", "_raw"]), values, max_size=3)  # fmt: skip
spoken_block = st.one_of(
    text_block,
    texts.map(lambda text: {"type": "thinking", "thinking": text, "signature": "Eq+/="}),
    texts.map(lambda text: {"type": "redacted_thinking", "data": text}),
    arguments.map(lambda given: {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": given}),
    values.map(lambda value: {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "page": value}]}),
    values.map(lambda value: {"type": "a_block_of_tomorrow", "x": value}),
)  # fmt: skip


@given(st.one_of(heard_block, spoken_block).flatmap(written))
def test_a_mark_comes_off_as_it_went_on(block):
    body = Block(block.encode())
    assert strip_block_marks(add_mark(body)) == body
    assert strip_block_marks(body) == body
    assert json.loads(add_mark(body).body)["cache_control"] == {"type": "ephemeral"}


def test_only_marks_come_off():
    """A tool's own argument of that name stays, and so do words that look like one."""
    stays = [
        b'{"type":"tool_use","id":"a","name":"f","input":{"cache_control":{"type":"ephemeral"},"content":[{"cache_control":1}]}}',
        rb'{"type":"text","text":"\",\"cache_control\":{}"}',
        b'{"type":"x","content":{"cache_control":1}}',
    ]
    assert [strip_block_marks(Block(one)).body for one in stays] == stays
    assert strip_block_marks(Block(b'{"cache_control":1,"cache_control":2}')).body == b"{}"
    twice = b'{"cache_control":1 , "cache_control":2, "a":[ 1 ] ,"cache_control":3, "b":2}'
    assert strip_block_marks(Block(twice)).body == b'{"a":[ 1 ] , "b":2}'
    inner = b'{"type":"tool_result","content":[ {"type":"search_result","content":[{"cache_control":1,"a":2}]} ],"b":3}'  # fmt: skip
    assert strip_block_marks(Block(inner)).body == inner.replace(b'"cache_control":1,', b"")

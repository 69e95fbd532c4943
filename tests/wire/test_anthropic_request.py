"""Whole requests as a gateway gets them: unedited, every block goes back byte for byte."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_json import numbers, spaces, texts, written

from foldline.core import log, rules
from foldline.core.log import Instructed, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Call, Gap, Text
from foldline.core.request import render
from foldline.errors import WireError
from foldline.testing import view_of
from foldline.wire import anthropic as wire
from foldline.wire.anthropic.block import Block
from foldline.wire.anthropic.marks import MOST, marked, unmarked

OURS = b',"cache_control":{"type":"ephemeral"}}'


class Said(msgspec.Struct):
    """One message of what is sent."""

    role: str
    content: msgspec.Raw


class Fields(msgspec.Struct):
    """What must come back."""

    messages: list[Said]
    tools: list[msgspec.Raw] = []
    system: msgspec.Raw = msgspec.Raw(b"[]")


def bare(raw):
    """A block without a mark of ours."""
    body = bytes(raw)
    return body.removesuffix(OURS) + b"}" if body.endswith(OURS) else body


def blocks(raw):
    """The blocks of a content; a string is the block of one text."""
    if bytes(raw).startswith(b'"'):
        return [b'{"type":"text","text":' + bytes(raw) + b"}"]
    return [bare(one) for one in msgspec.json.decode(raw, type=list[msgspec.Raw])]


def again(body, *, stored=False):
    """What is encoded from a decoded request."""
    decoded = wire.decode(body)
    events = [Opened(decoded.model), *decoded.events]
    if stored:
        events = [log.decode(log.encode(event)) for event in events]
    view = view_of(events)
    for event in rules.closing(view):
        view.append(view.head + 1, event)
    return wire.encode(render(view), decoded.parameters)


def sent(body):
    return msgspec.json.decode(body, type=Fields)


def merged(messages):
    """Messages as (role, blocks), neighbours of one role as one."""
    found = []
    for role, content in messages:
        if found and found[-1][0] == role:
            found[-1] = (role, found[-1][1] + content)
        else:
            found.append((role, content))
    return found


def body_of(messages, *, tools=(), system="", more=""):
    listed = f', "tools" : [{" , ".join(tools)}\n]' if tools else ""
    first = f',"system": {system}' if system else ""
    said = " ,\n".join(messages)
    return f'{{ "model":"m"{first},\t"messages": [ {said} ]{listed}{more} }}'.encode()


ODD = [
    r'{ "role" : "user", "content" : "caf\u00e9 \/ \ud83d\ude00" }',
    '{"content":[{"thinking" : "", "type":"thinking","signature":"EqQB\\u002b"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":""},{"type":"text","text":"Looking.","citations":null},{"type":"tool_use","id":"t1","name":"w","input":{"c": 1.50,"n":1e3,"big":1000000000000000000000000000000}},{"input":{},"type":"tool_use","id":"' + "t2" * 40 + '","name":"w","caller":{"type":"direct"}}],"role":"assistant"}',
    '{"role":"user","content":[ {"type":"tool_result","tool_use_id":"t1","content":[ {"type":"text","text":"4"} ]} , {"tool_use_id":"' + "t2" * 40 + '","type":"tool_result","is_error":true},{"type":"text", "text":"Be brief."}]}',
    '{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":"x"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","encrypted_content":"E","url":"u"}]}]}',
    '{"role":"user","content":[{"type":"image","source":{"type":"url","url":"u"}},{"type":"a_block_of_tomorrow","x":-0.0}]}',
    '{"role":"assistant","content":[{"type":"thinking","thinking":"only","signature":"s"}]}',
    '{"role":"user","content":" "}',
    '{"role":"assistant","content":"done"}',
    '{"role":"user","content":[{"type":"text","text":"alone"}]}',
]  # fmt: skip
TOOLS = [
    '{"name":"w","description":"d","input_schema":{"type":"object", "maximum":1.0}}',
    '{"input_schema":{"type":"object"},"name":"v","strict":false}',
    '{"type":"web_search_20250305","name":"web_search","cache_control":{"type":"ephemeral"}}',
    '{"type":"mcp_toolset","mcp_server_name":"m"}',
]


def expected(messages):
    raws = [msgspec.json.decode(one, type=Said) for one in messages]
    return [(raw.role, blocks(raw.content)) for raw in raws]


def test_every_odd_block_goes_back():
    """A-20, laws 2 and 5: escapes, numbers, whitespace, key order, unknown fields, blank words."""
    made = sent(again(body_of(ODD, tools=TOOLS, system=' [ {"text":"S","type":"text"} ]')))
    assert [(one.role, blocks(one.content)) for one in made.messages] == expected(ODD)
    assert [bytes(tool) for tool in made.tools] == [tool.encode() for tool in TOOLS]
    assert bytes(made.system) == b'[{"text":"S","type":"text"}]'  # no mark: the tools have one
    strings = [bytes(one.content)[:1] == b'"' for one in made.messages]
    assert strings == [False, False, False, False, False, False, True, True, False]  # 0 is marked


def test_a_calls_arguments_are_what_was_written():
    said = wire.decode(body_of(ODD)).events[1]
    call = next(part for part in said.parts if isinstance(part, Call))
    assert call.arguments == '{"c": 1.50,"n":1e3,"big":1000000000000000000000000000000}'


def test_native_only_where_our_own_bytes_differ():
    plain = [
        '{"role":"user","content":"Hi"}',
        '{"role":"assistant","content":[{"type":"text","text":"So"},{"type":"tool_use","id":"c","name":"w","input":{"a":1}}]}',
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"4°"},{"type":"text","text":"And?"}]}',
    ]
    tools = ['{"name":"w","input_schema":{"type":"object"}}']
    decoded = wire.decode(body_of(plain, tools=tools, system='[{"type":"text","text":"S"}]'))
    assert [event.native for event in decoded.events] == [(), None, None, None, None]
    assert decoded.events[0].tools[0].native is None
    assert decoded.events[1:] == (
        UserSaid((Text("Hi"),)),
        ModelSaid((Text("So"), Call("c", "w", '{"a":1}'))),
        ToolReturned("c", (Text("4°"),)),
        UserSaid((Text("And?"),)),
    )


def test_parameters_are_as_they_came():
    body = b'{"temperature":1.0, "messages":[],"seed": 12345678901234567890123,"x_new":{"a" : [ ]},"tools":[ ],"system":null,"model":"m"}'  # fmt: skip
    decoded = wire.decode(body)
    assert {name: bytes(raw) for name, raw in decoded.parameters.items()} == {
        "temperature": b"1.0",
        "seed": b"12345678901234567890123",
        "x_new": b'{"a" : [ ]}',
        "tools": b"[ ]",
        "system": b"null",
    }
    assert (decoded.model, decoded.events) == ("m", ())
    made = msgspec.json.decode(again(body), type=dict[str, msgspec.Raw])
    assert all(made[name] == raw for name, raw in decoded.parameters.items())


def test_system_messages_of_mid_talk_are_told_where_they_stood():
    """Their words reach the model; neither the tools nor the system itself are lost."""
    talk = ['{"role":"user","content":"a"}', '{"role":"system","content":[{"type":"text","text":"More."}]}',
            '{"role":"assistant","content":"b"}', '{"role":"user","content":"c"}', '{"role":"system","content":"Yet more."}']  # fmt: skip
    system = '[{"type":"text","text":"S","cache_control":{"type":"ephemeral","ttl":"1h"}}]'
    body = body_of(talk, tools=TOOLS[:1], system=system)
    made = sent(again(body))
    assert [bytes(tool) for tool in made.tools] == [TOOLS[0].encode()]
    assert bytes(made.system) == system.encode()
    told = b"".join(bytes(one.content) for one in made.messages)
    assert told.count(b"[further instructions, from here on]") == 2
    assert wire.decode(body).events[-1].parts == (Text("S"), Text("More."), Text("Yet more."))
    many = [line for n in range(300) for line in (talk[0], talk[4].replace("Yet", str(n)))]
    assert max(len(log.encode(event)) for event in wire.decode(body_of(many)).events) < 2_000


def test_an_answer_in_pieces_is_one():
    """A client that keeps one message for each block: no call is taken for unanswered."""
    use = '{{"role":"assistant","content":[{{"type":"tool_use","id":"{0}","name":"w","input":{{}}}}]}}'
    done = (
        '{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{0}","content":"x"}}]}}'
    )
    talk = ['{"role":"user","content":"go"}', '{"role":"assistant","content":"Both."}',
            use.format("a"), use.format("b"), done.format("b"), done.format("a")]  # fmt: skip
    made = sent(again(body_of(talk)))
    assert [(one.role, blocks(one.content)) for one in made.messages] == merged(expected(talk))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", "$"), (b"[]", "$"), (b"\xff", "$"), (b"{}", "$.messages"), (b'{"messages":{}}', "$.messages"),
        (b'{"messages":[5]}', "$.messages[0]"), (b'{"messages":[{"role":"user","content":"x"},{"role":"oracle","content":""}]}', "$.messages[1].role"),
        (b'{"messages":[{"role":"user","content":[{},5]}]}', "$.messages[0].content[1]"),
        (b'{"messages":[{"role":"user","content":5}]}', "$.messages[0].content"),
        (b'{"messages":[],"tools":[{"type":"custom"}]}', "$.tools[0]"), (b'{"messages":[],"tools":"x"}', "$.tools"),
        (b'{"messages":[],"tools":[{"name":"x","input_schema":[]}]}', "$.tools[0].input_schema"),
        (b'{"messages":[],"system":[5]}', "$.system[0]"), (b'{"messages":[],"system":55}', "$.system"),
        (b'{"messages":[],"model":5}', "$.model"), (b'{"messages":[' + b"[" * 100_000, "$"),
        (rb'{"messages":[{"role":"user","content":"\ud800"}]}', "$"),
        (rb'{"messages":[{"role":"user","content":[{"type":"x","y":"\udc00 and more"}]}]}', "$"),
        (b'{"messages":[{"role":"user","content":"x","x_new":1e999}]}', "$"),
    ],
)  # fmt: skip
def test_errors_have_their_place(body, path):
    """Half a surrogate pair too is refused, as everywhere: it is no text that could be kept."""
    with pytest.raises(WireError) as fault:
        wire.decode(body)
    assert fault.value.path == path


# Bodies at random: key order, whitespace, escapes, numbers, unknown fields and blocks, marks.

MARKS = ('{"type":"ephemeral"}', '{ "ttl" : "1h", "type":"ephemeral"}', "null")
KEYS = ('"cache_control"', r'"cache\u005fcontrol"', '"cache_control" ')
values = st.recursive(
    st.one_of(numbers.map(lambda text: (text,)), texts, st.none(), st.booleans()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
unknown = st.dictionaries(st.sampled_from(["x_new", "é", "citations", "context"]), values, max_size=2)  # fmt: skip
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


@st.composite
def marks_on(draw, block):
    """A block's JSON as the client wrote it, with a mark or without, and what must come back."""
    if not draw(st.integers(0, 3)) or block == "{}":
        return block, block
    mark = draw(st.sampled_from(KEYS)) + draw(spaces) + ":" + draw(st.sampled_from(MARKS))
    if draw(st.booleans()):
        return f"{block[:-1]},{draw(spaces)}{mark}{block[-1]}", block
    inside = block[1:].lstrip()
    space = block[1 : len(block) - len(inside)]
    return f"{{{space}{mark}{draw(spaces)},{draw(spaces)}{inside}", block


@st.composite
def results(draw, call_id):
    """A result, marks on it and in it."""
    head = f'"tool_use_id":{json.dumps(call_id)},{draw(spaces)}"type" :"tool_result"'
    how = draw(st.integers(0, 3))
    if how == 0:
        return f"{{{head}}}", f"{{{head}}}"
    if how == 1:
        more = draw(st.sampled_from(["", ',"is_error":true', ',"is_error": false']))
        block = f'{{{head},"content":{draw(texts.flatmap(written))}{more}}}'
        return draw(marks_on(block))
    inner = [draw(marks_on(draw(written(one)))) for one in draw(st.lists(heard_block, max_size=3))]
    one, other = (
        f'{{{head},"content":[{", ".join(pair[way] for pair in inner)}]}}' for way in (0, 1)
    )
    return one, other


@st.composite
def talks(draw):
    """Messages as (role, content as sent, blocks that must come back); None where it is one text."""
    found = []
    for at in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            words = draw(texts.flatmap(written))
            found.append(("user", words, None))
        else:
            made = draw(st.lists(heard_block, min_size=1, max_size=3))
            found.append(("user", *both(draw, made)))
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
            if not draw(st.integers(0, 3)):
                found.append(("assistant", draw(texts.flatmap(written)), None))
                continue
            made = draw(st.lists(spoken_block, min_size=1, max_size=3))
            found.append(("assistant", *both(draw, made)))
        if draw(st.booleans()):
            ids = [f"toolu_{at}_{n}" for n in range(draw(st.integers(1, 3)))]
            made = draw(st.lists(spoken_block, max_size=2))
            made += [{"type": "tool_use", "id": one, "name": "run", "input": draw(arguments)} | draw(unknown) for one in ids]  # fmt: skip
            found.append(("assistant", *both(draw, made)))
            pairs = [draw(results(one)) for one in draw(st.permutations(ids))]
            made = draw(st.lists(heard_block, max_size=2))
            pairs += [draw(marks_on(draw(written(one)))) for one in made]
            found.append(("user", *joined(draw, pairs)))
    found.append(("user", '"and now?"', None))
    return found


def both(draw, made):
    more = [one | draw(unknown) if draw(st.booleans()) else one for one in made]
    return joined(draw, [draw(marks_on(draw(written(one)))) for one in more])


def joined(draw, pairs):
    space = draw(spaces)
    listed = f"[{space}{f'{space},'.join(one for one, _ in pairs)}]"
    return listed, [other.encode() for _, other in pairs]


def one_text(words):
    return [b'{"type":"text","text":' + words.encode() + b"}"]


@given(talks(), st.lists(st.sampled_from(TOOLS), max_size=2), st.one_of(st.none(), texts, st.lists(text_block, min_size=1, max_size=2)), unknown, st.data())  # fmt: skip
def test_unedited_bodies_go_back_byte_for_byte(talk, tools, system, more, data):
    """Every block, tool, system and parameter; also from a log that was stored."""
    messages = [f'{{"role":"{role}", "content":{content}}}' for role, content, _ in talk]
    top = {f"p{key}": data.draw(written(one)) for key, one in more.items()}
    said = data.draw(written(system)) if system is not None else ""
    fields = "".join(f",{json.dumps(key)} :{one}" for key, one in top.items())
    body = body_of(messages, tools=tools, system=said, more=fields)
    encoded = again(body)
    made = sent(encoded)
    wanted = [(role, one_text(content) if kept is None else kept) for role, content, kept in talk]
    assert [(one.role, blocks(one.content)) for one in made.messages] == merged(wanted)
    assert [bare(tool) for tool in made.tools] == [bare(tool.encode()) for tool in tools]
    if system:
        assert blocks(made.system) == blocks(said.encode())
    came = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    assert {key: bytes(came[key]) for key in top} == {key: one.encode() for key, one in top.items()}
    assert again(body, stored=True) == encoded
    # A string stays one, where it has neither a neighbour nor a mark.
    if len(merged(wanted)) == len(wanted):
        for (_, content, kept), one in zip(talk, made.messages, strict=True):
            listed = bytes(one.content).startswith(b"[")
            assert listed == (kept is not None) or OURS in bytes(one.content), content
    assert not [one for one in wire.faults(json.loads(encoded)["messages"]) if "marks" in one]


@given(st.one_of(heard_block, spoken_block).flatmap(written))
def test_a_mark_comes_off_as_it_went_on(block):
    body = Block(block.encode())
    assert unmarked(marked(body)) == body
    assert unmarked(body) == body
    assert json.loads(marked(body).body)["cache_control"] == {"type": "ephemeral"}


def test_only_marks_come_off():
    """A tool's own argument of that name stays, and so do words that look like one."""
    stays = [
        b'{"type":"tool_use","id":"a","name":"f","input":{"cache_control":{"type":"ephemeral"},"content":[{"cache_control":1}]}}',
        rb'{"type":"text","text":"\",\"cache_control\":{}"}',
        b'{"type":"x","content":{"cache_control":1}}',
    ]
    assert [unmarked(Block(one)).body for one in stays] == stays
    assert unmarked(Block(b'{"cache_control":1,"cache_control":2}')).body == b"{}"
    twice = b'{"cache_control":1 , "cache_control":2, "a":[ 1 ] ,"cache_control":3, "b":2}'
    assert unmarked(Block(twice)).body == b'{"a":[ 1 ] , "b":2}'
    inner = b'{"type":"tool_result","content":[ {"type":"search_result","content":[{"cache_control":1,"a":2}]} ],"b":3}'  # fmt: skip
    assert unmarked(Block(inner)).body == inner.replace(b'"cache_control":1,', b"")


def clients_request(turn, *, fixed):
    """A client's request at a turn: two marks at its end, moved each time, and `fixed` at the top."""
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = []
    for n in range(turn + 1):
        messages.append({"role": "user", "content": [{"type": "text", "text": f"say {n}"}]})
        use = {"type": "tool_use", "id": f"t{n}", "name": "w", "input": {"n": n}}
        messages.append({"role": "assistant", "content": [use]})
        inner = [{"type": "text", "text": "x"} | (mark if n == turn else {})]
        done = {"type": "tool_result", "tool_use_id": f"t{n}", "content": inner}
        messages.append({"role": "user", "content": [done]})
        messages.append({"role": "assistant", "content": "so"})
    messages.append({"role": "user", "content": [{"type": "text", "text": "now?"}]})
    for place in (-3, -1):
        messages[place]["content"][-1] |= mark
    marked = mark if fixed > 1 else {}
    tools = [
        {"name": f"w{n}", "input_schema": {"type": "object"}, **marked}
        for n in range(max(1, fixed - 1))
    ]
    system = [{"type": "text", "text": "S"} | (mark if fixed else {})]
    return {"model": "m", "tools": tools, "system": system, "messages": messages}


@pytest.mark.parametrize("fixed", range(6))
def test_marks_that_move_do_not_pile_up(fixed):
    """30 turns of a client that moves two marks: what each turn adds is kept, as a gateway does."""
    events = [Opened("m")]
    known = 0
    for turn in range(30):
        decoded = wire.decode(json.dumps(clients_request(turn, fixed=fixed)).encode())
        first, *rest = decoded.events
        events += [first] * (not turn) + rest[known:]
        known = len(rest)
        body = json.loads(wire.encode(render(view_of(events)), {}))
        faults = wire.faults(body["messages"], tools=body["tools"], system=body["system"])
        if fixed <= MOST:
            assert not faults
        else:  # as it came: the provider says so
            assert faults == [f"marks: {fixed} cache marks, {MOST} are allowed"]
        count = json.dumps(body).count('"cache_control"')
        assert count <= max(MOST, fixed)
        if turn > 6:
            assert count == max(MOST, fixed)
        if 0 < fixed < MOST:
            assert "cache_control" in body["messages"][-1]["content"][-1]


def test_a_client_that_lets_the_provider_mark_is_left_to_it():
    body = body_of(['{"role":"user","content":"x"}'], more=',"cache_control":{"type":"ephemeral","ttl":"1h"}')  # fmt: skip
    made = msgspec.json.decode(again(body))
    assert made["messages"] == [{"role": "user", "content": "x"}]
    assert made["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_a_message_without_blocks_stands_where_it_stood():
    talk = ['{"role":"user","content":"a"}', '{"role":"assistant","content":[]}', '{"role":"user","content":"b"}']  # fmt: skip
    assert wire.decode(body_of(talk)).events[1].parts == (Gap("[says nothing]"),)
    made = sent(again(body_of(talk)))
    assert [(one.role, blocks(one.content)) for one in made.messages] == expected(talk)


def test_a_system_that_takes_no_mark():
    """Found by benches/fuzz.py: a field cannot be added to an object without any."""
    tools = ['{"name":"w","input_schema":{}}']
    made = msgspec.json.decode(again(body_of(ODD[:1], system='[{},{"type":"text","text":""}]', tools=tools)))  # fmt: skip
    assert made["system"] == [{}, {"type": "text", "text": ""}]
    assert made["tools"][0]["cache_control"] == {"type": "ephemeral"}


def test_instructions_alone():
    decoded = wire.decode(b'{"system":"S","messages":[]}')
    assert decoded.events[0].parts == (Text("S"),)
    assert isinstance(decoded.events[0], Instructed)

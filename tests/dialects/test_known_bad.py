"""Requests that providers refuse, each with the rules that say so, beside a twin that they take.

Behind every one stands who documents the rule: a section of WIRE.md, the official SDK's own types,
or an issue that quotes the provider's answer. Rules are named in the order in which they are found.
"""

import inspect
import re

import pytest

from foldline.dialects import anthropic, openai, openai_chat

ONE, TWO = "c1", "c2"
LONG = "x" * 10_485_761


def talk(*messages, **fixed):
    """The arguments of a judge."""
    return {"messages": list(messages), **fixed}


def rules(findings):
    """The rules' names of some findings."""
    return " ".join(finding.split(":")[0] for finding in findings)


# OpenAI chat


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def calling(*ids, **changes):
    """An answer that calls a function once for each id."""
    function = {"name": "run", "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": {**function, **changes}} for one in ids]
    return said("assistant", None, tool_calls=calls)


def done(call_id, content="done"):
    return said("tool", content, tool_call_id=call_id)


def function(**changes):
    return {"type": "function", "function": {"name": "run", "parameters": {}, **changes}}


def sound(form):
    return {"type": "input_audio", "input_audio": {"data": "AAAA", "format": form}}


ASK, ANSWER = said("user", "go"), said("assistant", "yes")
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
TEXT = {"type": "text", "text": "words"}
CUSTOM = {"id": ONE, "type": "custom", "custom": {"name": "run", "input": "x"}}
LEGACY = said("assistant", None, function_call={"name": "run", "arguments": "{}"})

CHAT = {
    # WIRE.md §2, Pairing
    "no result at the end": ("pairs", talk(ASK, calling(ONE)), talk(ASK, calling(ONE), done(ONE))),
    "no result before more words": ("pairs", talk(ASK, calling(ONE), ASK), talk(ASK, calling(ONE), done(ONE), ASK)),
    "one of two results missing": ("pairs", talk(ASK, calling(ONE, TWO), done(TWO)), talk(ASK, calling(ONE, TWO), done(TWO), done(ONE))),
    "a result behind a user message": ("pairs orphan", talk(ASK, calling(ONE), ASK, done(ONE)), talk(ASK, calling(ONE), done(ONE), ASK)),
    "a result between two results' system note": ("pairs orphan", talk(ASK, calling(ONE, TWO), done(ONE), said("system", "s"), done(TWO)), talk(ASK, calling(ONE, TWO), done(ONE), done(TWO), said("system", "s"))),
    "a result of nothing": ("orphan", talk(ASK, done(ONE)), talk(ASK)),
    "a result of another call": ("orphan pairs", talk(ASK, calling(ONE), done(TWO)), talk(ASK, calling(TWO), done(TWO))),
    "a result without an id": ("orphan pairs", talk(ASK, calling(ONE), said("tool", "x")), talk(ASK, calling(ONE), done(ONE, "x"))),
    "a result of an older call": ("orphan", talk(ASK, calling(ONE), done(ONE), ANSWER, done(ONE)), talk(ASK, calling(ONE), done(ONE), ANSWER)),
    "a result twice": ("twice", talk(ASK, calling(ONE, TWO), done(ONE), done(TWO), done(ONE)), talk(ASK, calling(ONE, TWO), done(ONE), done(TWO))),
    # WIRE.md §2: `tool_calls` ≤ 128; an empty list: openai/openai-node#1341, home-assistant/core#118577
    "an empty list of calls": ("calls", talk(ASK, {**ANSWER, "tool_calls": []}), talk(ASK, {**ANSWER, "tool_calls": None})),
    "too many calls": ("calls", talk(ASK, calling(*map(str, range(129))), *map(done, map(str, range(129)))), talk(ASK, calling(*map(str, range(128))), *map(done, map(str, range(128))))),
    "a call that is no object": ("calls", talk(ASK, {**ANSWER, "tool_calls": ["c1"]}), talk(ASK, ANSWER)),
    # WIRE.md §0, table of ids
    "an id too long": ("id", talk(ASK, calling("x" * 41), done("x" * 41)), talk(ASK, calling("x" * 40), done("x" * 40))),
    "an empty id": ("id", talk(ASK, calling(""), done("")), talk(ASK, calling(" "), done(" "))),
    "an id twice in one message": ("unique", talk(ASK, calling(ONE, ONE), done(ONE), done(ONE)), talk(ASK, calling(ONE), done(ONE), calling(ONE), done(ONE))),
    # WIRE.md §2, Assistant; SDK: ChatCompletionMessageFunctionToolCallParam
    "arguments as an object": ("call", talk(ASK, calling(ONE, arguments={}), done(ONE)), talk(ASK, calling(ONE, arguments="not json"), done(ONE))),
    "a call without a name": ("call", talk(ASK, calling(ONE, name=""), done(ONE)), talk(ASK, calling(ONE), done(ONE))),
    "a call of no kind": ("call", talk(ASK, said("assistant", None, tool_calls=[{"id": ONE, "type": "function"}]), done(ONE)), talk(ASK, said("assistant", None, tool_calls=[CUSTOM]), done(ONE))),
    "an old call without arguments": ("call", talk(ASK, said("assistant", None, function_call={"name": "run"})), talk(ASK, LEGACY, said("function", "x", name="run"))),
    # SDK: FunctionDefinition.name; in calls: mcp-use/mcp-use#90
    "a call's name with a dot": ("name", talk(ASK, calling(ONE, name="functions.run"), done(ONE)), talk(ASK, calling(ONE, name="functions-run"), done(ONE))),
    "a tool's name too long": ("name", talk(ASK, tools=[function(name="x" * 65)]), talk(ASK, tools=[function(name="x" * 64)])),
    "a tool without a name": ("name", talk(ASK, tools=[function(name=None)]), talk(ASK, tools=[function()])),
    "an old result without a name": ("name", talk(ASK, LEGACY, said("function", "x")), talk(ASK, LEGACY, said("function", "x", name="run"))),
    # WIRE.md §2, Tools
    "a tool of no kind": ("tools", talk(ASK, tools=[{"name": "run", "input_schema": {}}]), talk(ASK, tools=[function()])),
    "a tool's parameters as text": ("tools", talk(ASK, tools=[function(parameters="{}")]), talk(ASK, tools=[{"type": "custom", "custom": {"name": "run"}}])),
    # DeepSeek, and OpenRouter before Anthropic: router-for-me/CLIProxyAPI#4788
    "two tools of one name": ("unique", talk(ASK, tools=[function(), function()]), talk(ASK, tools=[function(), function(name="other")])),
    # WIRE.md §2, Roles
    "an unknown role": ("role", talk(said("model", "hi")), talk(said("developer", "hi"))),
    "no role": ("role", talk({"content": "hi"}), talk(ASK)),
    # WIRE.md §2, Assistant, and §0.2, empty or blank text; no messages: run-llama/llama_index#9373
    "no messages": ("empty", talk(), talk(ASK)),
    "an empty answer": ("empty", talk(ASK, said("assistant", None)), talk(ASK, said("assistant", None, refusal="No."))),
    "a blank question": ("empty", talk(said("user", " \n")), talk(ASK)),
    "a question without parts": ("empty", talk(said("user", [])), talk(said("user", [TEXT]))),
    # WIRE.md §2, User parts and Tool content; SDK: ChatCompletion*MessageParam.content
    "a user without content": ("content empty", talk({"role": "user"}), talk(ASK)),
    "a result without content": ("content", talk(ASK, calling(ONE), done(ONE, None)), talk(ASK, calling(ONE), done(ONE, ""))),
    "a content that is an object": ("content", talk(said("user", TEXT)), talk(said("user", [TEXT]))),
    "a picture in a result": ("part", talk(ASK, calling(ONE), done(ONE, [PICTURE])), talk(ASK, calling(ONE), done(ONE, [TEXT]), said("user", [PICTURE]))),
    "a picture of the system": ("part", talk(said("system", [PICTURE]), ASK), talk(said("system", [TEXT]), ASK)),
    "a picture of the assistant": ("part", talk(ASK, said("assistant", [PICTURE])), talk(ASK, said("assistant", [{"type": "refusal", "refusal": "No."}]))),
    "a part of the other dialect": ("part", talk(said("user", [{"type": "tool_result", "tool_use_id": ONE}])), talk(said("user", [PICTURE]))),
    "a part that is bare text": ("part", talk(said("user", ["words"])), talk(said("user", [TEXT]))),
    "a text that is a number": ("part", talk(said("user", [{"type": "text", "text": 5}])), talk(said("user", [TEXT]))),
    # WIRE.md §2, User parts; SDK: ChatCompletionContentPart*Param
    "a picture from nowhere": ("media", talk(said("user", [{"type": "image_url", "image_url": {"url": ""}}])), talk(said("user", [PICTURE]))),
    "a picture without bytes": ("media", talk(said("user", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}])), talk(said("user", [PICTURE]))),
    "a sound of another kind": ("media", talk(said("user", [sound("mpeg")])), talk(said("user", [sound("mp3")]))),
    "a sound without bytes": ("media", talk(said("user", [{"type": "input_audio", "input_audio": {"format": "wav"}}])), talk(said("user", [sound("wav")]))),
    "a file without bytes": ("media", talk(said("user", [{"type": "file", "file": {"file_data": "data:application/pdf;base64,"}}])), talk(said("user", [{"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE"}}]))),
    "a file from nowhere": ("media", talk(said("user", [{"type": "file", "file": {"filename": "a.pdf"}}])), talk(said("user", [{"type": "file", "file": {"file_id": "file-1"}}]))),
    # WIRE.md §2: one string ≤ 10 485 760
    "a text too long": ("long", talk(said("user", LONG)), talk(said("user", LONG[:-1]))),
    "arguments too long": ("long", talk(ASK, calling(ONE, arguments=LONG), done(ONE)), talk(ASK, calling(ONE, arguments=LONG[:-1]), done(ONE))),
}  # fmt: skip


# Anthropic


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def reply(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def use(call_id=ONE, **changes):
    return {"type": "tool_use", "id": call_id, "name": "run", "input": {}, **changes}


def out(call_id=ONE, **changes):
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done", **changes}


def tool(**changes):
    return {"name": "run", "input_schema": {"type": "object"}, **changes}


def words(text="words", **more):
    return {"type": "text", "text": text, **more}


def picture(mime, kind="image"):
    return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": "iVBO"}}


HI, YES = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "EqQB"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
MARK, LONGER = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
MARKED = words(cache_control=MARK)
CALLED = talk(HI, reply(use()), user(out()))

MESSAGES = {
    # WIRE.md §1.2, first three rows
    "no result at the end": ("pairs last", talk(HI, reply(use())), CALLED),
    "no result in the next message": ("pairs", talk(HI, reply(use()), HI), CALLED),
    "one of two results missing": ("pairs", talk(HI, reply(use(ONE), use(TWO)), user(out(TWO))), talk(HI, reply(use(ONE), use(TWO)), user(out(TWO), out(ONE)))),
    "a result one message late": ("pairs orphan", talk(HI, reply(use()), HI, YES, user(out())), talk(HI, reply(use()), user(out()), YES, HI)),
    "a result behind words": ("order", talk(HI, reply(use()), user(words(), out())), talk(HI, reply(use()), user(out(), words()))),
    "a result of nothing": ("orphan", talk(HI, YES, user(out())), talk(HI, YES, HI)),
    "a result in the first message": ("orphan", talk(user(out())), talk(HI)),
    "a result of another call": ("orphan pairs", talk(HI, reply(use(ONE)), user(out(TWO))), talk(HI, reply(use(TWO)), user(out(TWO)))),
    "a result twice": ("twice", talk(HI, reply(use()), user(out(), out())), CALLED),
    # WIRE.md §1.2, rows 4 and 5
    "an id twice in one message": ("unique", talk(HI, reply(use(), use()), user(out(), out())), talk(HI, reply(use(ONE), use(TWO)), user(out(ONE), out(TWO)))),
    "an id again later": ("unique", talk(*CALLED["messages"], reply(use()), user(out())), talk(*CALLED["messages"], reply(use(TWO)), user(out(TWO)))),
    "an id with a space": ("id", talk(HI, reply(use("a b")), user(out("a b"))), talk(HI, reply(use("a_b")), user(out("a_b")))),
    "an empty id": ("id", talk(HI, reply(use("")), user(out(""))), CALLED),
    # WIRE.md §1.1, content blocks: `input` is an object
    "arguments as text": ("call", talk(HI, reply(use(input="{}")), user(out())), CALLED),
    "a call without a name": ("call", talk(HI, reply(use(name="")), user(out())), CALLED),
    # WIRE.md §1.1, tools; 128 and 200 long today: anthropics/claude-code#96152, openclaw/openclaw#13134
    "a call's name with a dot": ("name", talk(HI, reply(use(name="functions.run")), user(out())), talk(HI, reply(use(name="functions-run")), user(out()))),
    "a call's name too long": ("name", talk(HI, reply(use(name="x" * 201)), user(out())), talk(HI, reply(use(name="x" * 200)), user(out()))),
    "a tool's name with a dot": ("name", talk(HI, tools=[tool(name="memory.read")]), talk(HI, tools=[tool(name="memory_read")])),
    "a tool's name too long": ("name", talk(HI, tools=[tool(name="x" * 129)]), talk(HI, tools=[tool(name="x" * 128)])),
    # danny-avila/LibreChat#13162: Tool names must be unique
    "two tools of one name": ("unique", talk(HI, tools=[tool(), tool()]), talk(HI, tools=[tool(), tool(name="other")])),
    # WIRE.md §1.1: `input_schema` of type object, unless the tool is a server's
    "a tool without a schema": ("tools", talk(HI, tools=[{"name": "run"}]), talk(HI, tools=[{"name": "web_search", "type": "web_search_20250305"}])),
    "a schema of no type": ("tools", talk(HI, tools=[tool(input_schema={})]), talk(HI, tools=[tool()])),
    "a schema that is no object's": ("tools", talk(HI, tools=[tool(input_schema={"type": "string"})]), talk(HI, tools=[tool(type="custom")])),
    "a tool of the other dialect": ("name tools", talk(HI, tools=[{"type": "custom", "function": {"name": "run"}}]), talk(HI, tools=[tool()])),
    # WIRE.md §1.1, messages
    "no messages": ("count", talk(), talk(HI)),
    "too many messages": ("count", talk(*[HI, YES] * 50_000, HI), talk(*[HI, YES] * 49_999, HI)),
    "an unknown role": ("role", talk(HI, YES, {"role": "tool", "content": "x"}), talk(HI, YES, HI)),
    "the other dialect's system": ("role first", talk({"role": "system", "content": "x"}, HI), talk(HI, system="x")),
    "the assistant first": ("first", talk(YES, HI), talk(HI, YES, HI)),
    "two of one role": ("turns", talk(HI, HI), talk(HI, YES, HI)),
    # WIRE.md §1.2: final assistant (prefill)
    "the assistant last": ("last", talk(HI, YES), talk(HI, YES, HI)),
    # WIRE.md §1.2, empty and whitespace-only text; of system: the same text with `system:` before it
    "an empty message": ("empty", talk(user()), talk(HI)),
    "an empty answer": ("empty", talk(HI, reply(), HI), talk(HI, YES, HI)),
    "an empty text": ("blank", talk(user(words(""))), talk(user(words()))),
    "a blank text": ("blank", talk({"role": "user", "content": " \n"}), talk(HI)),
    "a blank answer beside a call": ("blank", talk(HI, reply(words(" "), use()), user(out())), talk(HI, reply(words(), use()), user(out()))),
    "a blank text in a result": ("blank", talk(HI, reply(use()), user(out(content=[words(" ")]))), talk(HI, reply(use()), user(out(content=[words()])))),
    "a blank system": ("blank", talk(HI, system=[words("")]), talk(HI, system=[words()])),
    # WIRE.md §1.1: `system` is text, or blocks of it
    "a picture of the system": ("system", talk(HI, system=[picture("image/png")]), talk(HI, system=[words()])),
    # WIRE.md §1.1, content blocks
    "a call of the user": ("block", talk(user(use())), talk(HI)),
    "a thought of the user": ("block", talk(user(THOUGHT)), talk(HI, reply(THOUGHT, words()), HI)),
    "a result of the assistant": ("block pairs last", talk(HI, reply(use(), out())), CALLED),
    "a call in a result": ("block", talk(HI, reply(use()), user(out(content=[use(TWO)]))), talk(HI, reply(use()), user(out(content=[words()])))),
    "a result that is a number": ("block", talk(HI, reply(use()), user(out(content=5))), talk(HI, reply(use()), user(out(content=None)))),
    "a failure in words": ("block", talk(HI, reply(use()), user(out(is_error="yes"))), talk(HI, reply(use()), user(out(is_error=True)))),
    "a block that is bare text": ("block", talk(user(words(), "words")), talk(user(words(), words()))),
    "a text that is a number": ("block", talk(user(words(5))), talk(user(words("5")))),
    # WIRE.md §1.2: a server tool's result needs its call before it
    "a served result of nothing": ("server", talk(HI, reply(SEARCHED, words()), HI), talk(HI, reply(SEARCH, SEARCHED, words()), HI)),
    # WIRE.md §1.5: blocks with no signature: never send
    "a thought without a signature": ("thought", talk(HI, reply({"type": "thinking", "thinking": "hm"}, words()), HI), talk(HI, reply(THOUGHT, words()), HI)),
    "a redacted thought without data": ("thought", talk(HI, reply({"type": "redacted_thinking", "data": ""}, words()), HI), talk(HI, reply({"type": "redacted_thinking", "data": "x"}, words()), HI)),
    # WIRE.md §1.2: Expected `thinking` or `redacted_thinking`, but found `tool_use`
    "a call without its thinking": ("thinking", talk(HI, reply(words(), use()), user(out()), thinks=True), talk(HI, reply(THOUGHT, use()), user(out()), thinks=True)),
    "a loop that does not begin with thinking": ("thinking", talk(HI, reply(words(), use()), user(out()), reply(THOUGHT, use(TWO)), user(out(TWO)), thinks=True), talk(HI, reply(THOUGHT, use()), user(out()), reply(use(TWO)), user(out(TWO), words()), thinks=True)),
    "thinking behind the words of a call": ("thinking", talk(HI, reply(words(), THOUGHT, use()), user(out()), thinks=True), talk(HI, reply(words(), THOUGHT, use()), user(out()))),
    # WIRE.md §1.1 and §1.3: JPEG, PNG, GIF, WebP; PDF
    "a picture of another kind": ("media", talk(user(picture("image/svg+xml"))), talk(user(picture("image/webp")))),
    "a picture in a result of another kind": ("media", talk(HI, reply(use()), user(out(content=[picture("image/bmp")]))), talk(HI, reply(use()), user(out(content=[picture("image/gif")])))),
    "a document of another kind": ("media", talk(user(picture("text/html", "document"))), talk(user(picture("application/pdf", "document")))),
    "a picture from nowhere": ("media", talk(user({"type": "image"})), talk(user({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}))),
    "a picture without bytes": ("media", talk(user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}})), talk(user(picture("image/png")))),
    # SEMOSS/Semoss#2323: 'image' blocks are not permitted within assistant turns
    "a picture of the assistant": ("media", talk(HI, reply(picture("image/png")), HI), talk(HI, YES, user(picture("image/png")))),
    # WIRE.md §1.2, last row, and §8
    "five marks": ("marks", talk(user(*[MARKED] * 5)), talk(user(*[MARKED] * 4))),
    "five marks, of all places": ("marks", talk(user(*[MARKED] * 3), tools=[tool(cache_control=MARK)], system=[MARKED]), talk(user(*[MARKED] * 2), tools=[tool(cache_control=MARK)], system=[MARKED])),
    "a mark on a thought": ("marks", talk(HI, reply({**THOUGHT, "cache_control": MARK}, words()), HI), talk(HI, reply(THOUGHT, MARKED), HI)),
    "a mark on nothing": ("blank marks", talk(user(words("", cache_control=MARK))), talk(user(MARKED))),
    "a longer mark behind a shorter": ("marks", talk(user(MARKED, words(cache_control=LONGER))), talk(user(words(cache_control=LONGER), MARKED))),
    "a mark of another kind": ("marks", talk(user(words(cache_control={"type": "eternal"}))), talk(user(words(cache_control=LONGER)))),
}  # fmt: skip

JUDGES = {
    "openai-chat": (openai_chat.list_faults, CHAT),
    "anthropic": (anthropic.list_faults, MESSAGES),
}
CASES = [
    pytest.param(judge, *case, id=f"{dialect}: {name}")
    for dialect, (judge, table) in JUDGES.items()
    for name, case in table.items()
]


@pytest.mark.parametrize(("judge", "rule", "bad", "good"), CASES)
def test_a_known_bad_request_is_refused_by_its_rule(judge, rule, bad, good):
    """Law 2: with exactly the rules that it breaks; what differs in that alone is taken."""
    assert rules(judge(**bad)) == rule
    assert judge(**good) == []


@pytest.mark.parametrize("dialect", JUDGES)
def test_every_rule_has_its_request(dialect):
    """A rule that nothing here breaks may be one that cannot be broken."""
    judge, table = JUDGES[dialect]
    sources = [inspect.getmodule(judge), *([openai] if dialect == "openai-chat" else [])]
    named = {*re.findall(r'f?"([a-z]+): ', "".join(map(inspect.getsource, sources)))}
    assert {rule for case in table.values() for rule in case[0].split()} == named
    assert len(table) >= 20

"""Write the golden logs of today's format and encoders, where there are none yet.

python tests/golden/make.py
"""

import asyncio
import json
from pathlib import Path
from random import Random

import msgspec

from foldline.core import log, rules
from foldline.core.log import (
    FORMAT,
    Clipped,
    Excluded,
    Instructed,
    Interrupted,
    Linked,
    ModelSaid,
    Repaired,
    Rewound,
    ServerTruncated,
    SettingsChanged,
    ToolReturned,
    Unpinned,
    UserSaid,
    WindowLearned,
)
from foldline.core.parts import Call, Media, Native, Text, Thought
from foldline.core.spine import Range
from foldline.dialects import (
    anthropic,
    gemini,
    gemini_interactions,
    openai_chat,
    openai_responses,
)
from foldline.dialects.anthropic.blocks import content_of
from foldline.dialects.anthropic.messages import (
    build_model_event,
    from_user,
    message_content,
    message_of,
    parse_instructions,
    tool_of,
)
from foldline.dialects.base import (
    Dialect,
    PathFacts,
    get_dialect,
    list_dialects,
    resolve_named_dialect,
)
from foldline.dialects.gemini_interactions.messages import parse_turn
from foldline.dialects.gemini_interactions.steps import is_models
from foldline.dialects.json_slices import find_values
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.proxy.client_request import read_request
from foldline.proxy.conversations import Conversations
from foldline.session.model_facts import build_facts
from foldline.stores.open_store import store_at
from foldline.testing import Conversation, play, steps
from foldline.testing.provider import written as answer_of

HERE = Path(__file__).parent
RESPONSES = get_dialect(openai_responses.DIALECT)
GEMINI = get_dialect(gemini.DIALECT)
INTERACTIONS = get_dialect(gemini_interactions.DIALECT)
PROXIED = {Clipped, Rewound}
"""What only happens to the conversations of clients: their logs are `format-N-proxied-…`."""
SENT = r"""{"model":"m","max_tokens":9,
"system":[{"type":"text","text":"Be\u0020brief.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
"tools":[{"name":"run","input_schema":{"type":"object", "maximum":1.0}},{"type":"web_search_20250305","name":"web_search"}],
"messages":[{"role":"user","content":"caf\u00e9?"},
{"role":"assistant","content":[{"thinking":"","type":"thinking","signature":"EqQB"},{"type":"redacted_thinking","data":"opaque"},
 {"type":"text","text":"Both."},{"type":"tool_use","id":"toolu_1","name":"run","input":{"n": 1.50}},{"type":"tool_use","id":"toolu_2","name":"run","input":{}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_2","content":[ {"type":"text","text":"two","cache_control":{"type":"ephemeral"}} ]},
 {"type":"tool_result","tool_use_id":"toolu_1","content":"no","is_error":true},{"type":"text","text":"Be brief."}]},
{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":"x"}},
 {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","encrypted_content":"E","url":"u"}]},
 {"type":"text","text":"Found.","citations":[{"type":"x","cited_text":"y"}]}]},
{"role":"user","content":[{"type":"a_block_of_tomorrow","x":1e3},{"type":"image","source":{"type":"file","file_id":"f"}}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"toolu_3","name":"run","input":{"big":1000000000000000000000000000000}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_3"}]}]}"""


def everything(dialect: Dialect) -> Conversation:
    """A conversation that has every kind of event, every kind of part, and what is the dialect's."""
    talk = common(dialect)
    if dialect.name == anthropic.DIALECT:
        blocks_and_edits(talk)
    if dialect is RESPONSES:
        items_and_edits(talk)
    if dialect is GEMINI:
        contents_and_edits(talk)
    if dialect is INTERACTIONS:
        steps_and_edits(talk)
    assert {type(event) for event in talk.events} == set(log.Event.__args__) - PROXIED
    return talk


def client_events(body: bytes) -> list[log.Event]:
    """A body of Anthropic's as events that keep every block as it came."""
    request = read_request(resolve_named_dialect(anthropic.DIALECT), body)
    rows = [msgspec.Raw(body[slice(*at)]) for at in find_values(body, request.fields["tools"])]
    tools = [tool_of(raw, path="$.tools", exact=True) for raw in rows]
    told = parse_instructions(content_of(request.extract_field("system")))
    found: list[log.Event] = [Instructed(told, tuple(tools))]
    for at in request.chained:
        content = message_content(message_of(request.extract_message(at)))
        if request.described[at].role == "assistant":
            found.append(build_model_event(content, exact=True))
        else:
            found += from_user(content, exact=True)
    return found


def blocks_and_edits(talk: Conversation) -> None:
    """A client's request as it came, then behind masks and folds, and these taken back."""
    talk.add(*client_events(SENT.encode()))
    talk.ask()
    thought = ModelSaid((Thought("so", "sig"), Text("Done.")))
    talk.add(msgspec.structs.replace(thought, native=Native(anthropic.DIALECT, OWN)))
    talk.add(UserSaid((Text("Go on."),)))
    talk.ask()
    results = [item.seq for item in talk.view.items if item.role == "result"][-3:]
    assert talk.mask(results[:2])
    talk.ask()
    masked = len(talk.events) - 2
    assert talk.fold(rules.cut_points(talk.view)[-2])
    talk.ask()
    assert talk.undo(len(talk.events) - 2)
    talk.ask()
    assert talk.undo(masked)
    talk.ask()


ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "caf\u00e9?"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"}]},
    {"type": "reasoning", "id": "rs_g1", "summary": [{"type": "summary_text", "text": "plan"}], "encrypted_content": "gAAAsealed"},
    {"type": "message", "id": "msg_g1", "role": "assistant", "status": "completed", "phase": "commentary",
        "content": [{"type": "output_text", "text": "Both.", "annotations": []}]},
    {"type": "function_call", "id": "fc_g1", "call_id": "call_g1", "name": "run", "arguments": '{"n": 1.50}', "status": "completed"},
    {"type": "custom_tool_call", "id": "ctc_g1", "call_id": "call_g2", "name": "v", "input": "free text"},
    {"type": "function_call_output", "call_id": "call_g1", "output": "no", "status": "completed"},
    {"type": "custom_tool_call_output", "call_id": "call_g2", "output": [{"type": "input_text", "text": "two"}]},
    {"type": "web_search_call", "id": "ws_g1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "message", "id": "msg_g2", "role": "assistant", "status": "completed", "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Found.", "annotations": [{"type": "url_citation", "start_index": 0, "end_index": 5, "title": "t", "url": "https://a.b"}]}]},
    {"role": "user", "content": "Go on."},
    {"type": "shell_call", "id": "sh_g1", "call_id": "call_g3", "action": {"commands": ["ls"]}, "status": "completed"},
    {"type": "shell_call_output", "call_id": "call_g3", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    {"type": "image_generation_call", "id": "ig_g1", "status": "completed", "result": "iVBORw0KGgo="},
    {"type": "an_item_of_tomorrow", "id": "x_g1", "x": 1e3},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "And now?"},
]  # fmt: skip


def items_and_edits(talk: Conversation) -> None:
    """Items as a provider sends them, then behind a mask and a fold, and these taken back."""
    own = {"type": "custom", "name": "v", "description": "Takes any text."}
    tools = (openai_responses.parse_tool(own), openai_responses.parse_tool({"type": "web_search"}))
    talk.add(Instructed((Text("Be brief."),), tools))
    talk.add(*openai_responses.parse_items(ITEMS))
    edit_and_undo(talk)


def edit_and_undo(talk: Conversation) -> None:
    """Ask for what was said, then behind a mask and a fold, and these taken back."""
    talk.ask()
    results = [item.seq for item in talk.view.items if item.role == "result"][-3:]
    assert talk.mask(results[:2])
    talk.ask()
    masked = len(talk.events) - 2
    assert talk.fold(rules.cut_points(talk.view)[-2])
    talk.ask()
    assert talk.undo(len(talk.events) - 2)
    talk.ask()
    assert talk.undo(masked)
    talk.ask()


CONTENTS = [
    {"role": "user", "parts": [{"text": "caf\u00e9?"}, {"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}},
        {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}}]},
    {"role": "model", "parts": [{"text": "plan", "thought": True}, {"text": "Both."},
        {"functionCall": {"id": "g1", "name": "run", "args": {"n": 1.5}}, "thoughtSignature": "c2lnbmVkLTE="},
        {"functionCall": {"id": "g2", "name": "run", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"id": "g1", "name": "run", "response": {"error": "no"}}},
        {"functionResponse": {"id": "g2", "name": "run", "response": {"output": "two"}, "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}}]},
    {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "1 + 1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"text": "Found.", "thoughtSignature": "c2lnbmVkLTI="}, {"text": "", "thoughtSignature": "c2lnbmVkLTM="}]},
    {"parts": [{"text": "Go on."}, {"a_part_of_tomorrow": {"x": 1e3}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {"a_b": [1, None]}}, "thoughtSignature": "c2lnbmVkLTQ="},
        {"functionCall": {"name": "run", "args": {"n": 2}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {"result": {"a_b": 1}}}},
        {"functionResponse": {"name": "run", "response": {"output": "second"}}}, {"text": "And now?"}]},
    {"role": "model", "parts": [{"text": "Do"}, {"text": "ne."}]},
    {"role": "user", "parts": [{"text": "Thanks."}]},
]  # fmt: skip


def contents_and_edits(talk: Conversation) -> None:
    """Contents as a provider sends them, then behind a mask and a fold, and these taken back."""
    own = {"functionDeclarations": [{"name": "v", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}}]}  # fmt: skip
    tools = (*gemini.parse_tools(own), *gemini.parse_tools({"googleSearch": {}}))
    talk.add(Instructed((Text("Be brief."),), tools))
    talk.add(*(event for one in CONTENTS for event in gemini.parse_message(one)))
    edit_and_undo(talk)


STEPS = [
    {"type": "user_input", "content": [{"type": "text", "text": "caf\u00e9?"}, {"type": "image", "mime_type": "image/png", "data": "iVBORw0KGgo="}]},
    {"type": "thought", "signature": "c2lnbmVk", "summary": [{"type": "text", "text": "so"}]},
    {"type": "model_output", "content": [{"type": "text", "text": "Both.", "annotations": [{"type": "url_citation", "url": "u"}]}]},
    {"type": "function_call", "id": "c1", "name": "run", "arguments": {"n": 1.5}},
    {"type": "function_call", "id": "c2", "name": "run", "arguments": {}},
    {"type": "function_result", "call_id": "c1", "name": "run", "result": "no", "is_error": True},
    {"type": "function_result", "call_id": "c2", "name": "run", "result": [{"type": "text", "text": "two"}]},
    {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["x"]}},
    {"type": "google_search_result", "call_id": "s1", "result": [{"search_suggestions": "y"}], "signature": "c2lnbmVk"},
    {"type": "model_output", "content": [{"type": "text", "text": "Done."}]},
    {"type": "user_input", "content": [{"type": "text", "text": "Thanks."}]},
]  # fmt: skip


def steps_and_edits(talk: Conversation) -> None:
    """Steps as a provider sends them, then behind a mask and a fold, and these taken back."""
    own = {"type": "function", "name": "v", "parameters": {"type": "object", "properties": {}}}
    tools = (
        gemini_interactions.parse_tool(own),
        gemini_interactions.parse_tool({"type": "google_search"}),
    )
    talk.add(Instructed((Text("Be brief."),), tools))
    turn: list[dict[str, object]] = []
    for step in [*STEPS, {}]:
        if step and is_models(step):
            turn.append(step)
            continue
        if turn:
            talk.add(*parse_turn(turn, saw=None))
        turn = []
        if step:
            talk.add(*gemini_interactions.parse_message(step))
    edit_and_undo(talk)


OWN = '[{"type":"thinking","thinking":"so","signature":"sig"},{"type":"text", "text":"Done."}]'


def common(dialect: Dialect) -> Conversation:
    """What every dialect's golden log has."""
    talk = play(steps(Random(20), 260), dialect=dialect)
    native = Native(openai_chat.DIALECT, '{"role":"assistant","content":"Hi","x_new":[1, 2.50]}')
    picture = Media("image", mime="image/png", base64="iVBORw0KGgo=")
    talk.add(
        SettingsChanged(
            {"policy": "steady", "window": 2048, "ratio": 1.5, "ask": False, "x": None}
        ),
        UserSaid((Text("look\x00 ü 😀"), picture), author="Ann"),
    )
    talk.ask()
    talk.add(
        ModelSaid(
            (Thought("hm", "sig=="), Text("Hi"), Call("z", "run", '{"a": 1}')), stop="length"
        ),
        ModelSaid((Text("Hi"),), native=native),
        ModelSaid((Call("y", "run", "not json"),)),
        Interrupted("y", "gone"),
        ToolReturned("y", (Text("late"), Media("file", url="u", name="n"))),
        Repaired("result without a call", "'y' is shown as a notice"),
        ServerTruncated(100, 50),
        WindowLearned("test/model", 4096, "error text"),
        Linked("sub", "y"),
        Unpinned(3),
    )
    talk.mask([talk.view.items[-1].seq], exclude=True)
    talk.ask()
    assert any(isinstance(event, Excluded) for event in talk.events)
    return talk


# A client's conversation


ODD = {
    OPENAI.name: [
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "caf\u00e9?"}, {"type": "image_url", "image_url": {"url": "https://x/y.png?sig=1"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"n": 1.50}'}}, {"id": "c2", "type": "custom", "custom": {"name": "x", "input": "y"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "no"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "developer", "content": "Be very brief."},
    ],
    anthropic.DIALECT: [
        *json.loads(SENT)["messages"][:4],
        {"role": "user", "content": [{"type": "a_block_of_tomorrow", "x": 1e3}]},
        {"role": "system", "content": "Be very brief."},
        {"role": "assistant", "content": "Yes."},
    ],
    RESPONSES.name: [
        *ITEMS[:9],
        {"role": "developer", "content": "Be very brief."},
        {"type": "item_reference", "id": "rs_g9"},
        {"role": "assistant", "content": "Yes."},
    ],
    GEMINI.name: CONTENTS[:8],
    INTERACTIONS.name: STEPS[:10],
}  # fmt: skip


class Client:
    """A client that sends all of its history with every call, and edits it."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.history = dialect, list[dict[str, object]]()
        self.store = store_at(":memory:")
        facts = build_facts("m", window=3_000, reserve=200, policy="steady")
        self.proxy = Conversations(self.store, lambda _: facts)

    async def say(self, words: str, *, refusal: bytes = b"") -> None:
        """One turn; first refused, where there is something to refuse it with."""
        self.history.append(self.dialect.write_question(words))
        bound = "max_tokens" if self.dialect is OPENAI else self.dialect.bounds[0]
        fixed: dict[str, object] = {"model": "m", bound: 50, "temperature": 0.5}
        path = None
        if self.dialect is GEMINI:
            fixed = {"generationConfig": {"maxOutputTokens": 50, "temperature": 0.5}}
            path = PathFacts("m", streams=False)
        if self.dialect is INTERACTIONS:
            fixed = {"model": "m", "generation_config": {"max_output_tokens": 50}, "store": False}
        body = json.dumps({**fixed, self.dialect.messages: self.history}).encode()
        one = await self.proxy.start_exchange(self.dialect, body, path=path)
        if refusal:
            one.start_response(400)
            one.receive_chunk(refusal)
            assert await one.heal_refusal()
        said = f"Noted: {words[:20]}"
        count = len(one.body) // 4
        whole, _ = answer_of(self.dialect.name, json.loads(one.body), {"content": said}, count)
        one.start_response(200)
        one.receive_chunk(json.dumps(whole).encode())
        await one.end_response()
        answer = {"role": "assistant", "content": said}
        if self.dialect is GEMINI:
            answer = {"role": "model", "parts": [{"text": said}]}
        if self.dialect is INTERACTIONS:
            answer = {"type": "model_output", "content": [{"type": "text", "text": said}]}
        self.history.append(answer)

    async def events(self) -> list[log.Event]:
        """Its log."""
        live = self.proxy.list_held()[-1]
        assert live is not None
        return [event for _, event in await live.read_events(Range(0, live.view.head))]


async def proxied(dialect: Dialect) -> list[log.Event]:
    """A client's log: odd messages, folds, a rewound tail, a message that had to be cut again."""
    client = Client(dialect)
    client.history += ODD[dialect.name]
    for turn in range(12):
        await client.say(f"Turn {turn}. " + "Words are said, and more of them. " * 20)
    del client.history[-3:]
    await client.say("Or rather this.")
    refusal = b'{"error":{"message":"prompt is too long: 3400 tokens > 2600 maximum"}}'
    await client.say("A long one: " + "1 2 3 " * 400, refusal=refusal)
    await client.say("And now?")
    events = await client.events()
    await client.store.close()
    assert {type(event) for event in events} >= PROXIED
    return events


def lines(events: list[log.Event]) -> bytes:
    """A log as a file has it."""
    return b"\n".join(log.encode_event(event) for event in events) + b"\n"


if __name__ == "__main__":
    for one in list_dialects():
        name = "encoder" if one is OPENAI else one.name
        path = HERE / f"format-{FORMAT}-{name}-{one.encoder}.jsonl"
        if not path.exists():  # old ones are never rewritten
            path.write_bytes(lines(everything(one).events))
        path = HERE / f"format-{FORMAT}-proxied-{one.name}-{one.encoder}.jsonl"
        if not path.exists():
            path.write_bytes(lines(asyncio.run(proxied(one))))

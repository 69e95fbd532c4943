"""Write the golden logs of today's format and encoders, where there are none yet.

python tests/golden/make.py
"""

from pathlib import Path
from random import Random

import msgspec

from foldline.core import log, rules
from foldline.core.log import (
    FORMAT,
    Excluded,
    Interrupted,
    Linked,
    ModelSaid,
    Repaired,
    ServerTruncated,
    SettingsChanged,
    ToolReturned,
    Unpinned,
    UserSaid,
    WindowLearned,
)
from foldline.core.parts import Call, Media, Native, Text, Thought
from foldline.testing import Conversation, play, steps
from foldline.wire import anthropic, openai_chat
from foldline.wire.dialects import OPENAI, Dialect, named

HERE = Path(__file__).parent
DIALECTS = (OPENAI, named(anthropic.DIALECT))
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
    assert {type(event) for event in talk.events} == set(log.Event.__args__)
    return talk


def blocks_and_edits(talk: Conversation) -> None:
    """A client's request as it came, then behind masks and folds, and these taken back."""
    talk.add(*anthropic.decode(SENT.encode()).events)
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


def written(dialect: Dialect) -> bytes:
    """The golden log that would be written today."""
    return b"\n".join(log.encode(event) for event in everything(dialect).events) + b"\n"


if __name__ == "__main__":
    for one in DIALECTS:
        name = "encoder" if one is OPENAI else one.name
        path = HERE / f"format-{FORMAT}-{name}-{one.encoder}.jsonl"
        if not path.exists():  # old ones are never rewritten
            path.write_bytes(written(one))

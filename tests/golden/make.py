"""Write a golden log of today's format: `python tests/golden/make.py`. Old ones are never rewritten."""

from pathlib import Path
from random import Random

from foldline.core import log
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
from foldline.wire import openai_chat as wire


def everything() -> Conversation:
    """A conversation that has every kind of event and every kind of part."""
    talk = play(steps(Random(20), 260))
    native = Native(wire.DIALECT, '{"role":"assistant","content":"Hi","x_new":[1, 2.50]}')
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
    assert {type(event) for event in talk.events} == set(log.Event.__args__)
    assert any(isinstance(event, Excluded) for event in talk.events)
    return talk


if __name__ == "__main__":
    path = Path(__file__).parent / f"format-{FORMAT}-encoder-{wire.ENCODER}.jsonl"
    path.write_bytes(b"\n".join(log.encode(event) for event in everything().events) + b"\n")

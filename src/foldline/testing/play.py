"""Logs at random: steps as plain data, and the player that turns them into a conversation.

A step is a name and two small numbers, which choose among what is possible at that moment, so any
list of steps is a conversation and shrinks to a short one. `steps` draws them from any source of
random numbers; `strategies.py` draws them with Hypothesis.
"""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from foldline.core import rules
from foldline.core.edits.clip import clip_event
from foldline.core.log import (
    Checkpointed,
    Edit,
    Instructed,
    Interrupted,
    ModelSwitched,
    Pinned,
    Speaker,
    Unpinned,
    UsageReported,
)
from foldline.core.parts import Media, Text, Tool
from foldline.dialects.base import Dialect
from foldline.dialects.openai_chat.dialect import DIALECT as CHAT
from foldline.testing.logs import Conversation, calls, model, result, user
from foldline.testing.own_items import give_own_items

IDS = (
    "a",
    "b",
    "c",
    "",
    " a ",
    "a_long_identifier_that_no_provider_would_take_as_it_is_12345",
    "function:run",
)
TOOLS = ("run", "run", "memory.read", "", "größe", "x" * 210, "memory read", "memory_read")
"""What is called and defined; no provider takes all of these as they are."""
SCHEMAS = ("{}", '{"type":"object"}', '{"type":"string"}', '{"properties":{}}', "true", "not json")
_BYTES = "aGVsbG8gd29ybGQ="
MEDIA = (
    Media("image", mime="image/png", base64=_BYTES),
    Media("image", mime="image/jpg", base64=_BYTES),
    Media("image", mime="image/svg+xml", base64=_BYTES, name="a.svg"),
    Media("image", url="https://example.org/a.png"),
    Media("image", url="cid:a"),
    Media("image"),
    Media("file", mime="application/pdf", base64=_BYTES, name="a.pdf"),
    Media("file", mime="text/csv", base64=_BYTES),
    Media("file", mime="text/plain", base64="/w=="),
    Media("file", mime="application/zip", base64=_BYTES),
    Media("file", url="https://example.org/a.pdf", name="a.pdf"),
    Media("audio", mime="audio/mpeg", base64=_BYTES),
    Media("audio", mime="audio/ogg", base64=_BYTES),
    Media("audio", url="https://example.org/a.wav"),
)
"""What is shown; every dialect refuses some of these."""
MANY = 130
"""Calls of one answer: more than one message of OpenAI's may hold."""
SPEAKERS: tuple[Speaker, ...] = ("human", "human", "human", "notice", "cron", "heartbeat")
NAMES = (
    *("user",) * 5,
    *("model",) * 4,
    *("calls",) * 5,
    *("result",) * 8,
    *("ask",) * 6,
    *("fold",) * 3,
    *("mask",) * 2,
    *("undo",) * 3,
    *("instruct",) * 2,
    *("pin",) * 2,
    *("exclude", "interrupt", "tools", "switch", "unpin", "record"),
)
LARGEST = 11


class Step(NamedTuple):
    """What happens, and two numbers that choose how."""

    name: str
    a: int
    b: int


def steps(random: Random, length: int) -> list[Step]:
    """A conversation to play."""
    return [
        Step(random.choice(NAMES), random.randint(0, LARGEST), random.randint(0, LARGEST))
        for _ in range(length)
    ]


def play(
    script: list[Step], *, dialect: Dialect = CHAT, dialects: Sequence[Dialect] = ()
) -> Conversation:
    """The conversation that a list of steps tells, compared in some dialects or in all."""
    conversation = Conversation(dialect=dialect, dialects=dialects)
    for step in script:
        take(conversation, step)
    return conversation


def take(talk: Conversation, step: Step) -> None:  # noqa: PLR0915 - one case a kind of step
    """One step; a step that is not possible now does nothing."""
    name, a, b = step
    view = talk.view
    place = len(talk.events)
    # An answer may be to the newest request, to an older one, or from a log that records none.
    saw = None if b == 0 or not talk.sent else talk.sent[-1 - (b % min(2, len(talk.sent)))].at
    own = partial(give_own_items, talk.dialect, place=place, a=a, b=b)
    match name:
        case "user":
            text = "" if a == 0 else f"user word {place} " + "pasted bulk\n" * (a * b)
            author = ("", "", "Ann", "[cron]")[b % 4]
            speaker = SPEAKERS[a % len(SPEAKERS)]
            talk.add(own(user(text, *_media(step), speaker=speaker, author=author)))
        case "model":
            words = "" if a == 0 else f"answer word {place}"
            thought = f"thought {place}" * (a % 2)
            talk.add(own(model(words, *_media(step), saw=saw, thought=thought)))
        case "calls":
            ids = [IDS[(a + index) % len(IDS)] for index in range(1 + b % 3)]
            if a == b == LARGEST:
                ids = [f"{index}" for index in range(MANY)]
            known = [tool.name for tool in view.newest.tools]
            made = calls(
                *(ids if a else ids[:1] * 2),
                text="calling" * (b % 2),
                saw=saw,
                thought="hm" * (a % 3 % 2),
                names=known if known and b % 2 else TOOLS[(a + b) % len(TOOLS) :],
            )
            talk.add(own(made))
        case "result":
            ids = list(view.open.values()) if a % 4 else list(IDS)
            if ids:
                words = f"result word {place} " * (a * 5)
                event = own(result(ids[b % len(ids)], words, *_media(step), ok=bool(b % 3)))
                talk.add(clip_event(event, cap=60, how=("head", "ends", "both", "lines")[a % 4]))
        case "interrupt" if view.open:
            talk.add(Interrupted(list(view.open.values())[a % len(view.open)]))
        case "ask":
            talk.ask()
        case "fold":
            cuts = rules.cut_points(view)
            if cuts:
                talk.fold(
                    cuts[a % len(cuts)],
                    merging=("all", "rank", "sixth")[b % 3],
                    cap=(2_000, 400, 150)[a % 3],
                )
        case "mask" | "exclude":
            roles = ("result",) if name == "mask" else ("result", "user")
            seqs = [item.seq for item in view.items if item.role in roles and item.state == "whole"]
            talk.mask(sorted(seqs[a % 3 : a % 3 + 1 + b % 3]), exclude=name == "exclude")
        case "undo":
            edits = [seq for seq, event in talk.log if isinstance(event, Edit)]
            if edits:
                talk.undo(edits[-1 - a % min(4, len(edits))])
        case "instruct":
            rule = (Text(f"rule {a}" if a > 1 else " "),) if a else ()
            parts = (*view.newest.parts * (b % 2), *rule, *_media(step))
            talk.add(Instructed(parts, view.newest.tools))
        case "tools":
            talk.changes += 1
            odd = [
                Tool(TOOLS[(a + index) % len(TOOLS)], schema=SCHEMAS[(b + index) % len(SCHEMAS)])
                for index in range(b % 4)
            ]
            tools = (Tool(f"tool_{place}"), *odd)
            replaces = (a + b) % 5 == 4  # as a proxied request's own do
            stated = (Text(f"stated {place}"),) if replaces else view.newest.parts
            talk.add(Instructed(stated, tools, replaces=replaces))
        case "switch":
            talk.changes += 1
            talk.add(ModelSwitched(f"test/model-{a}"))
        case "pin" if view.items:
            talk.add(Pinned(view.items[a % len(view.items)].seq))
        case "unpin" if view.pins:
            talk.add(Unpinned(sorted(view.pins)[a % len(view.pins)]))
        case "record":
            talk.add(UsageReported(input=a), Checkpointed(f"snapshot {b}"))
        case _:
            pass


def _media(step: Step) -> tuple[Media, ...]:
    """What is shown beside the words: mostly nothing."""
    return (MEDIA[(step.a * 5 + step.b) % len(MEDIA)],) if (step.a + step.b) % 4 == 0 else ()

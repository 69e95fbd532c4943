"""Loads that are no coding session: talk, documents, support, voice.

Knows how such sessions grow and pause. Refuses to know policies. The same name gives the same bytes.
"""

import json
from collections.abc import Iterator
from random import Random

from foldline.core.log import Event, Instructed, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Call, Text
from foldline.lab.recorded import Recorded

LOADS = ("chat", "documents", "support", "voice")
_MODEL, _START = "test/model", 1e9
_SYSTEM = "You are a careful assistant. " + "Follow the house rules when you answer. " * 120
_LETTER_SETS = ("bcdfglmnprst", "aeiou", "lmnrst", "aeo", "", "dnrst")


def generate_load(name: str) -> Recorded:
    """A load by its name."""
    random = Random(name)
    words = ["".join(random.choice(one) for one in _LETTER_SETS if one) for _ in range(3_000)]
    opening = [(_START, Opened(_MODEL)), (_START, Instructed((Text(_SYSTEM),), ()))]
    timed = [*opening, *_WRITERS[name](random, words)]
    events = tuple(event for _, event in timed)
    return Recorded(name, _MODEL, events, tuple(at for at, _ in timed))


def _say(random: Random, words: list[str], least: int, most: int) -> tuple[Text]:
    """Words of about so many tokens."""
    return (Text(" ".join(random.choices(words, k=random.randint(least, most) // 2 + 1))),)


def _write_chat(random: Random, words: list[str]) -> Iterator[tuple[float, Event]]:
    for turn in range(300):
        at = _START + 40 * turn
        yield at, UserSaid(_say(random, words, 30, 200))
        yield at + 8, ModelSaid(_say(random, words, 80, 600))


def _write_documents(random: Random, words: list[str]) -> Iterator[tuple[float, Event]]:
    for turn in range(40):
        at = _START + 60 * turn
        yield at, UserSaid(_say(random, words, 5_000, 11_000))
        yield at + 10, ModelSaid(_say(random, words, 150, 450))


def _write_support(random: Random, words: list[str]) -> Iterator[tuple[float, Event]]:
    for turn in range(150):
        at = _START + 3_600 * (turn // 6) + 40 * (turn % 6)
        call = Call(
            f"call_{turn}", "lookup_order", json.dumps({"id": random.randint(1_000, 9_999)})
        )
        yield at, UserSaid(_say(random, words, 20, 100))
        yield at + 3, ModelSaid((call,))
        yield at + 4, ToolReturned(call.id, _say(random, words, 400, 1_500))
        yield at + 8, ModelSaid(_say(random, words, 60, 250))


def _write_voice(random: Random, words: list[str]) -> Iterator[tuple[float, Event]]:
    for turn in range(600):
        at = _START + 6 * turn
        yield at, UserSaid(_say(random, words, 8, 50))
        yield at + 1, ModelSaid(_say(random, words, 12, 90))


_WRITERS = {
    "chat": _write_chat,
    "documents": _write_documents,
    "support": _write_support,
    "voice": _write_voice,
}

"""The words of a message, as a probe looks for them.

Knows that a call's arguments are JSON whose texts have lines of their own. Refuses to know whose
words they are. What a model thought is not counted: it is shown to nobody.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from foldline.core.parts import Call, Part, Thought, text_of

LONG = 25  # characters from which on a line is worth keeping whole


def words_of(parts: Iterable[Part]) -> str:
    """What was said and called; arguments as text, so that lines in them are lines."""
    said: list[str] = []
    for part in parts:
        if isinstance(part, Thought):
            continue
        said.append(_plain(part.arguments) if isinstance(part, Call) else text_of((part,)))
    return "\n".join(said)


def lines_of(words: str) -> set[str]:
    """The lines of a text that are long enough to be known again."""
    return {line for raw in words.splitlines() if len(line := raw.strip()) >= LONG}


def _plain(arguments: str) -> str:
    try:
        return "\n".join(_strings(msgspec.json.decode(arguments)))
    except msgspec.DecodeError:
        return arguments


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in cast("dict[str, Any]", value).values():
                yield from _strings(one)
        case list():
            for one in cast("list[Any]", value):
                yield from _strings(one)
        case _:
            yield str(value)

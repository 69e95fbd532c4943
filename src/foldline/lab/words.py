"""The text of a message as probes search it: with call arguments, without thinking."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from foldline.core.parts import Call, Part, Thought, text_of

LONG = 25  # characters of a line that is recognised again


def words_of(parts: Iterable[Part]) -> str:
    """Return text and call arguments; JSON strings as text, so that their lines are lines."""
    return "\n".join(
        _render_arguments(part.arguments) if isinstance(part, Call) else text_of((part,))
        for part in parts
        if not isinstance(part, Thought)
    )


def lines_of(words: str) -> set[str]:
    """Return the lines of a text that are long enough to be recognised again."""
    return {line for raw in words.splitlines() if len(line := raw.strip()) >= LONG}


def _render_arguments(arguments: str) -> str:
    try:
        return "\n".join(iterate_strings(msgspec.json.decode(arguments)))
    except msgspec.DecodeError:
        return arguments


def iterate_strings(value: Any) -> Iterator[str]:
    """Yield the texts, numbers and other values of some JSON, without the names of its fields."""
    match value:
        case str():
            yield value
        case dict():
            for one in cast("dict[str, Any]", value).values():
                yield from iterate_strings(one)
        case list():
            for one in cast("list[Any]", value):
                yield from iterate_strings(one)
        case _:
            yield str(value)

"""What a caller gives to a session: looked at before anything is done with it.

Knows what each argument may be, and says what to give where it is something else. Refuses to know
what a session does with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast, get_args

from foldline.core.log import Speaker
from foldline.core.parts import Text, Tool, sound
from foldline.dialects import base
from foldline.errors import BadHandle, BadInput

System: TypeAlias = str | Sequence[str | Mapping[str, Any]]
"""The system's words: a text, or a list of texts and text blocks, `{"type": "text", "text": …}`."""
_OWN = {
    "model": "switch({value!r}) goes on with another model, and plans for it",
    "messages": "add() takes in messages, and the request holds what was added",
    "system": "instruct(system=…) says it from here on",
    "tools": "instruct(tools=…) gives them from here on",
}


def read_system(given: System) -> tuple[Text, ...]:
    """The system's words, piece by piece; what is empty is none."""
    pieces = [given] if isinstance(given, str) else _list("system", given, "a text, or text blocks")
    words = [_words(f"system[{place}]", piece) for place, piece in enumerate(pieces)]
    return tuple(Text(sound(one)) for one in words if one)


def read_tools(given: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """The tools, each as either provider writes it."""
    rows = _list("tools", given, "tools as the provider's API has them")
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadInput(
                f"tools[{place}] is a {type(row).__name__}, not a tool as the provider's API has "
                'it; give {"name": …, "input_schema": …} or {"type": "function", "function": …}. '
                "A Python function is a tool of `foldline.agent`"
            )
    return tuple(base.tool(cast("Mapping[str, Any]", row)) for row in rows)


def must_be_names(**given: object) -> None:
    """Raise unless each is a name: text, and not empty."""
    for what, said in given.items():
        if not isinstance(said, str) or not said:
            raise BadInput(f"{what}={said!r} is no name; give it as text")


def must_be_text(**given: object) -> None:
    """Raise unless each is a text."""
    for what, said in given.items():
        if not isinstance(said, str):
            raise BadInput(f"{what}={said!r} is no text; give words, or leave it out")


def must_be_tokens(**given: object) -> None:
    """Raise unless each is left out, or a number of tokens above 0."""
    for what, said in given.items():
        if said is not None and (type(said) is not int or said <= 0):
            raise BadInput(
                f"{what}={said!r} is no number of tokens; give a whole number above 0, or leave "
                "it out"
            )


def must_be_places(**given: object) -> None:
    """Raise unless each is left out, or a place in the log."""
    for what, said in given.items():
        if said is not None and type(said) is not int:
            raise BadInput(f"{what}={said!r} is no place in the log; give its number, as in 12")


def must_be_handle(given: object) -> None:
    """Raise unless it is a place in the log, or the handle of one."""
    if type(given) is not int and not isinstance(given, str):
        raise BadHandle(f'{given!r} is no handle; give a place, as in 12, or "log:12"')


def must_be_seconds(**given: object) -> None:
    """Raise unless each is left out, or a number of seconds."""
    for what, said in given.items():
        number = isinstance(said, int | float) and not isinstance(said, bool) and said >= 0
        if said is not None and not number:
            raise BadInput(f"{what}={said!r} is no number of seconds; give one, as in 30")


def must_be_speaker(speaker: object) -> None:
    """Raise where nobody speaks by that name."""
    if speaker not in get_args(Speaker):
        known = ", ".join(map(repr, get_args(Speaker)))
        raise BadInput(f"speaker={speaker!r} is nobody; give one of {known}")


def must_be_summarizer(given: object) -> None:
    """Raise unless it is a model's name, a model, tellers, or a list of names and models."""
    many = cast("Sequence[object]", given) if isinstance(given, list | tuple) else (given,)
    for one in many:
        if not isinstance(one, str) and not hasattr(one, "say") and not hasattr(one, "models"):
            raise BadInput(
                f"summarizer={one!r} is nobody who can tell; give a model's name, a Model of "
                "`foldline.models`, a list of these, or Tellers"
            )


def must_not_be_own(parameters: Mapping[str, Any]) -> None:
    """Raise where a request's parameters say what the session itself says."""
    for name, way in _OWN.items():
        if name in parameters:
            told = way.format(value=parameters[name])
            raise BadInput(f"request({name}=…): that is the session's own; {told}")


def _list(what: str, given: object, wanted: str) -> Sequence[object]:
    if isinstance(given, Mapping):
        raise BadInput(f"{what} is one mapping; give {wanted}, in a list")
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise BadInput(f"{what}={given!r} is no list; give {wanted}, in a list")
    return cast("Sequence[object]", given)


def _words(where: str, piece: object) -> str:
    if isinstance(piece, str):
        return piece
    block: Mapping[str, object] = {}
    if isinstance(piece, Mapping):
        block = cast("Mapping[str, object]", piece)
    words = block.get("text")
    if block.get("type", "text") != "text" or not isinstance(words, str):
        raise BadInput(
            f"{where}={piece!r} is no text; the system takes texts and text blocks, as in "
            '{"type": "text", "text": "Be brief."}; give other things by add()'
        )
    return words

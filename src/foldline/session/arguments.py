"""Checks what a caller passes to a session, before anything is done with it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast, get_args

from foldline.core.log import Setting, Speaker
from foldline.core.parts import Text, Tool, replace_surrogates
from foldline.dialects import base
from foldline.errors import BadHandle, BadInput

System: TypeAlias = str | Sequence[str | Mapping[str, Any]]
"""A system prompt: a text, or a list of texts and text blocks, `{"type": "text", "text": …}`."""
_METADATA = "metadata."  # before a caller's own names, among a session's settings
_OWN = {
    "model": "switch({value!r}) goes on with another model, and plans for it",
    "messages": "add() takes in messages, and the request holds what was added",
    "system": "instruct(system=…) says it from here on",
    "tools": "instruct(tools=…) gives them from here on",
}


def read_system(value: System) -> tuple[Text, ...]:
    """Read a system prompt as text blocks, without empty ones."""
    is_text = isinstance(value, str)
    pieces = [value] if is_text else _check_list("system", value, "a text, or text blocks")
    words = [_read_text_block(f"system[{place}]", piece) for place, piece in enumerate(pieces)]
    return tuple(Text(replace_surrogates(one)) for one in words if one)


def read_tools(
    value: Sequence[Mapping[str, Any]], *, own: base.Dialect | None = None
) -> tuple[Tool, ...]:
    """Read tools, each in any dialect's format; if several fit, in `own`."""
    rows = _check_list("tools", value, "tools as the provider's API has them")
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadInput(
                f"tools[{place}] is a {type(row).__name__}, not a tool as the provider's API has "
                'it; give {"name": …, "input_schema": …} or {"type": "function", "function": …}. '
                "A Python function is a tool of `foldline.agent`"
            )
    several = (base.parse_any_tools(cast("Mapping[str, Any]", row), own=own) for row in rows)
    return tuple(tool for tools in several for tool in tools)


def must_be_names(**values: object) -> None:
    """Raise unless each is a non-empty text."""
    for what, said in values.items():
        if not isinstance(said, str) or not said:
            raise BadInput(f"{what}={said!r} is no name; give it as text")


def must_be_text(**values: object) -> None:
    """Raise unless each is a text."""
    for what, said in values.items():
        if not isinstance(said, str):
            raise BadInput(f"{what}={said!r} is no text; give words, or leave it out")


def must_be_tokens(*, least: int = 1, **values: object) -> None:
    """Raise unless each is None or a number of tokens, `least` or more."""
    for what, said in values.items():
        if said is not None and (type(said) is not int or said < least):
            raise BadInput(
                f"{what}={said!r} is no number of tokens; give a whole number above {least - 1}, "
                "or leave it out"
            )


def must_be_places(**values: object) -> None:
    """Raise unless each is None or a place in the log."""
    for what, said in values.items():
        if said is not None and type(said) is not int:
            raise BadInput(f"{what}={said!r} is no place in the log; give its number, as in 12")


def must_be_handle(value: object) -> None:
    """Raise unless it is a place in the log or a handle."""
    if type(value) is not int and not isinstance(value, str):
        raise BadHandle(f'{value!r} is no handle; give a place, as in 12, or "log:12"')


def must_be_seconds(**values: object) -> None:
    """Raise unless each is None or a number of seconds."""
    for what, said in values.items():
        number = isinstance(said, int | float) and not isinstance(said, bool) and said >= 0
        if said is not None and not number:
            raise BadInput(f"{what}={said!r} is no number of seconds; give one, as in 30")


def must_be_speaker(speaker: object) -> None:
    """Raise unless it is a known kind of speaker."""
    if speaker not in get_args(Speaker):
        known = ", ".join(map(repr, get_args(Speaker)))
        raise BadInput(f"speaker={speaker!r} is nobody; give one of {known}")


def must_be_summarizer(value: object) -> None:
    """Raise unless it is a model's name, a model, tellers, or a list of names and models."""
    many = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    for one in many:
        if not isinstance(one, str) and not hasattr(one, "say") and not hasattr(one, "models"):
            raise BadInput(
                f"summarizer={one!r} is nobody who can tell; give a model's name, a Model of "
                "`foldline.models`, a list of these, or Tellers"
            )


def must_be_caps(value: object) -> None:
    """Raise unless it looks like `Caps`."""
    if not hasattr(value, "call"):
        raise BadInput(f"caps={value!r} are none; give foldline.session.spending.Caps(…)")


def read_metadata(metadata: Mapping[str, Any]) -> dict[str, Setting]:
    """Read a caller's own names and values, as a session's settings keep them."""
    if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"metadata={metadata!r}; give names and values, as in {{'ticket': 17}}")
    for name, value in metadata.items():
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"metadata: {name!r} is no name; give a text")
        if not isinstance(value, get_args(Setting)):
            raise BadInput(f"metadata[{name!r}]={value!r}; give a text, a number, a truth or None")
    return {f"{_METADATA}{replace_surrogates(name)}": one for name, one in metadata.items()}


def select_metadata(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Select the caller's own names and values from a session's settings; None removes one."""
    return {
        name.removeprefix(_METADATA): one
        for name, one in settings.items()
        if name.startswith(_METADATA) and one is not None
    }


def must_not_be_own(parameters: Mapping[str, Any]) -> None:
    """Raise if a request's parameters set what the session itself sets."""
    for name, way in _OWN.items():
        if name in parameters:
            hint = way.format(value=parameters[name])
            raise BadInput(f"request({name}=…): that is the session's own; {hint}")


def _check_list(what: str, value: object, wanted: str) -> Sequence[object]:
    if isinstance(value, Mapping):
        raise BadInput(f"{what} is one mapping; give {wanted}, in a list")
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise BadInput(f"{what}={value!r} is no list; give {wanted}, in a list")
    return cast("Sequence[object]", value)


def _read_text_block(where: str, piece: object) -> str:
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


def must_be_settings(settings: object) -> None:
    """Raise unless these are settings that were loaded."""
    from foldline.settings.tree import Settings  # noqa: PLC0415 - few have any

    if not isinstance(settings, Settings):
        raise BadInput(f"settings={settings!r}; give what load_settings(Path.cwd()) returns")

"""The kinds of values: the type that checks them, and what people read and write of them.

Seconds: TypeAlias = Annotated[float, Meta(gt=0), Kind("seconds", "write seconds above 0")]
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from foldline.core.policy import PRESETS

_MOST = 10**12  # of any count
_SHOWN = 60  # characters of a value in an error message
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_PLAIN = r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]"  # not a control character


class SettingError(ValueError):
    """An invalid value; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What people read and write of a kind of values."""

    label: str
    """Its name in tables."""
    hint: str
    """What to write instead of an invalid value."""
    parse: Callable[[str], Any] = str
    """Parses the text of an environment variable or a flag, before the check."""
    convert: Callable[[Any], Any] | None = None
    """Checks a file's value if the type alone cannot; raises `SettingError`."""


def format_setting_value(value: Any) -> str:
    """Format a value for a message as a file would have it, shortened."""
    try:
        text = msgspec.json.encode(value).decode() if _is_plain(value) else str(value)
    except (ValueError, TypeError, RecursionError, OverflowError):  # also a huge integer
        return "a value that cannot be shown"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | list | Mapping)


def _parse_number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _parse_bool(text: str) -> Any:
    word = text.strip().lower()
    return word in _YES if word in (*_YES, *_NO) else text


def _parse_list(text: str) -> Any:
    """Parse `["a", "b"]` or `a, b`."""
    if text.lstrip().startswith("["):
        return parse_json(text)
    return [one.strip() for one in text.split(",") if one.strip()]


def parse_json(text: str) -> Any:
    """Parse a variable or a flag with JSON; other text stays text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _convert_command(value: Any) -> tuple[str, ...]:
    words = msgspec.convert(value, tuple[Text, ...])
    if not words or not words[0]:
        raise msgspec.ValidationError("no program")
    return words


def _convert_summarizer(value: Any) -> tuple[str, ...]:
    names = msgspec.convert((value,) if isinstance(value, str) else value, tuple[Text, ...])
    if not all(names) or not names or ("off" in names and len(names) > 1):
        raise msgspec.ValidationError("no models")
    return names


def make_choice_kind(*names: str) -> Kind:
    """Make the kind of a setting that allows only some words."""
    return Kind(", ".join(names), f"write one of {', '.join(names)}")


Text: TypeAlias = Annotated[
    str,
    Meta(pattern=rf"\A{_PLAIN}*\Z"),
    Kind("text", "write it in quotes, without control characters"),
]
LongText: TypeAlias = Annotated[
    Text, Kind("text, or file://PATH", "write it in quotes, without control characters")
]
NameText: TypeAlias = Annotated[
    str,
    Meta(pattern=rf"\A(?!\s*\Z)(?:(?!\n){_PLAIN})+\Z"),
    Kind("text", "write a name in quotes, in one line, without control characters"),
]
Preset: TypeAlias = Annotated[
    str, Meta(pattern=rf"\A(?:{'|'.join(PRESETS)})\Z"), make_choice_kind(*PRESETS)
]
Address: TypeAlias = Annotated[
    str,
    Meta(pattern=rf"\Ahttps?://(?![\s/])(?:(?!\s){_PLAIN})+\Z"),
    Kind("address", 'write an address, like "http://127.0.0.1:8080/v1"'),
]
KeyVariable: TypeAlias = Annotated[
    str,
    Meta(pattern=r"\A[A-Z_][A-Z0-9_]{0,63}\Z"),  # upper case, so that it is not the key itself
    Kind(
        "variable's name",
        "write the name of the environment variable that holds the key, "
        'like "OPENAI_API_KEY", never the key itself',
    ),
]
Switch: TypeAlias = Annotated[bool, Kind("true or false", "write true or false", _parse_bool)]
Count: TypeAlias = Annotated[
    int,
    Meta(ge=0, le=_MOST),
    Kind("whole number", "write a whole number, 0 for none", _parse_number),
]
Positive: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=_MOST),
    Kind(
        "whole number above 0",
        "write a whole number above 0; for no limit, a very large one",
        _parse_number,
    ),
]
Share: TypeAlias = Annotated[
    float,
    Meta(gt=0, le=1),
    Kind("share, 0 to 1", "write a share of the window between 0 and 1, like 0.7", _parse_number),
]
Seconds: TypeAlias = Annotated[
    float, Meta(gt=0, le=_MOST), Kind("seconds", "write seconds above 0, like 120", _parse_number)
]
Hours: TypeAlias = Annotated[
    float, Meta(gt=0, le=_MOST), Kind("hours", "write hours above 0, like 24", _parse_number)
]
Dollars: TypeAlias = Annotated[
    float, Meta(ge=0, le=_MOST), Kind("dollars", "write dollars, like 2.50", _parse_number)
]
Texts: TypeAlias = Annotated[
    tuple[Text, ...],
    Kind("list of texts", 'write a list of texts, like ["one", "two"]', _parse_list),
]
Command: TypeAlias = Annotated[
    tuple[str, ...],
    Kind(
        "list of texts",
        'write the program and its arguments as a list, like ["npx", "-y", "server"]',
        _parse_list,
        _convert_command,
    ),
]
Summarizer: TypeAlias = Annotated[
    tuple[str, ...],
    Kind(
        "name, list, model, off",
        'write a model\'s name, a list of them, "model" for the agent\'s own, or "off"',
        _parse_list,
        _convert_summarizer,
    ),
]
TextTable: TypeAlias = Annotated[
    dict[str, Text],
    Kind("table of texts", 'write a table of texts, like { NAME = "value" }', parse_json),
]

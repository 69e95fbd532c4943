"""What a setting's value may be, and what to write instead of a wrong one.

Knows kinds of values, as a file gives them and as an environment's words do. Refuses to know names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

_MOST = 10**12  # of anything that is counted
_SHOWN = 60  # characters of a value that a message repeats
_YES = {"true": True, "yes": True, "on": True, "1": True}
_NO = {"false": False, "no": False, "off": False, "0": False}
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # in capitals, as few keys are
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Wrong(ValueError):  # noqa: N818 - named for what a value is
    """A value that a setting cannot have; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of values."""

    told: str
    """For people: what it is."""
    read: Callable[[Any], Any]
    """A file's value, checked; `Wrong` says what to write."""
    spoken: Callable[[str], Any]
    """What an environment's words stand for, before they are checked."""


def shown(value: Any) -> str:
    """A value as a message repeats it: as a file would have it, and not all of a long one."""
    try:
        text = msgspec.json.encode(value).decode() if _plain(value) else str(value)
    except (ValueError, TypeError, RecursionError, OverflowError):  # also a number without end
        return "a value that cannot be shown"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | list | Mapping)


def _words(text: str) -> str:
    return text


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _either(text: str) -> Any:
    return (_YES | _NO).get(text.strip().lower(), text)


def _several(text: str) -> Any:
    """`["a", "b"]`, or `a, b`."""
    if text.lstrip().startswith("["):
        return _json(text)
    return [one.strip() for one in text.split(",") if one.strip()]


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong("write it in quotes")
    if _CONTROL.search(value):
        raise Wrong("write it without control characters")
    return value


def _name(value: Any) -> str:
    if not _text(value).strip() or "\n" in value:
        raise Wrong("write a name, in one line")
    return value


def _one_word(example: str, shape: "re.Pattern[str]") -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not shape.fullmatch(_text(value)):
            raise Wrong(f"write {example}")
        return value

    return read


def _true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("write true or false")
    return value


def _whole(value: Any, told: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise Wrong(told)
    return value


def _count(value: Any) -> int:
    return _whole(value, "write a whole number, 0 for none")


def _positive(value: Any) -> int:
    if _whole(value, "write a whole number above 0") == 0:
        raise Wrong("write a number above 0; for no limit, a very large one")
    return value


def _real(value: Any, told: str, *, most: float) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= most:
        raise Wrong(told)
    return float(value)


def _share(value: Any) -> float:
    told = "write a share of the window between 0 and 1, like 0.7"
    if _real(value, told, most=1) == 0:
        raise Wrong(told)
    return float(value)


def _seconds(value: Any) -> float:
    told = "write seconds above 0, like 120"
    if _real(value, told, most=_MOST) == 0:
        raise Wrong(told)
    return float(value)


def _dollars(value: Any) -> float:
    return _real(value, "write dollars, like 2.50", most=_MOST)


def _texts(value: Any) -> tuple[str, ...]:
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not listed or not all(isinstance(one, str) for one in cast("Sequence[Any]", value)):
        raise Wrong('write a list of texts, like ["one", "two"]')
    return tuple(_text(one) for one in cast("Sequence[str]", value))


def _command(value: Any) -> tuple[str, ...]:
    told = 'write the program and its arguments as a list, like ["npx", "-y", "server"]'
    if isinstance(value, str) or not (words := _texts(value)) or not words[0]:
        raise Wrong(told)
    return words


def _tellers(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    try:
        found = _texts(names)
    except Wrong:
        found = ()
    if not found or not all(found) or ("off" in found and len(found) > 1):
        raise Wrong('write a model\'s name, a list of them, "model" for the agent\'s own, or "off"')
    return found


def _pairs(value: Any) -> dict[str, str]:
    told = 'write a table of texts, like { NAME = "value" }'
    if not isinstance(value, Mapping):
        raise Wrong(told)
    pairs = cast("Mapping[Any, Any]", value)
    if not all(isinstance(one, str) for pair in pairs.items() for one in pair):
        raise Wrong(told)
    return {name: _text(one) for name, one in pairs.items()}


def _key(value: Any) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise Wrong(
            "write the name of the environment variable that holds the key, "
            'like "OPENAI_API_KEY", never the key itself'
        )
    return value


def choice(*names: str) -> Kind:
    """One of some words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise Wrong(f"write one of {', '.join(names)}")
        return value

    return Kind(", ".join(names), read, _words)


_ADDRESS = re.compile(r"https?://[^\s/]+\S*")
TEXT = Kind("text", _text, _words)
NAME = Kind("text", _name, _words)
LONG = Kind("text, or file://PATH", _text, _words)
ADDRESS = Kind(
    "address", _one_word('an address, like "http://127.0.0.1:8080/v1"', _ADDRESS), _words
)
KEY = Kind("variable's name", _key, _words)
YES = Kind("true or false", _true, _either)
COUNT = Kind("whole number", _count, _number)
POSITIVE = Kind("whole number above 0", _positive, _number)
SHARE = Kind("share, 0 to 1", _share, _number)
SECONDS = Kind("seconds", _seconds, _number)
DOLLARS = Kind("dollars", _dollars, _number)
TEXTS = Kind("list of texts", _texts, _several)
COMMAND = Kind("list of texts", _command, _several)
TELLERS = Kind("name, list, model, off", _tellers, _several)
PAIRS = Kind("table of texts", _pairs, _json)

"""The typed `Settings`, and the kinds of values with their checks.

A check's error says what to write instead.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from foldline.core.policy import Policy

Mode: TypeAlias = Literal["ask", "edits", "all", "none"]
OWN, NOBODY = "model", "off"
"""In `summarizer`: the agent's own model, and none."""


class Limit(NamedTuple):
    """A spending limit; None is no limit."""

    tokens: int | None = None
    dollars: float | None = None


class Held(NamedTuple):
    """A setting of an untrusted file, not in force until the file is trusted."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The agent's model."""

    name: str | None = None
    """With its provider: `anthropic/claude-sonnet-5`."""
    provider: str = ""
    max_input_tokens: int | None = None
    """Its window; overrides every other source."""
    max_output_tokens: int | None = None
    """The reserve for its answer."""
    base_url: str | None = None
    key_env: str | None = None


@dataclass(frozen=True, slots=True)
class InstructionSettings:
    """Instruction files, and the user's own text."""

    text: str = ""
    max_tokens: int = 0
    names: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    memory: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """Which actions need approval."""

    mode: Mode = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """The tool that runs commands."""

    enabled: bool = True
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """An MCP server: a program, or an address."""

    name: str
    command: tuple[str, ...] | None = None
    env: Mapping[str, str] | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = None
    trusted: bool = False
    tools: tuple[str, ...] | None = None
    """The tools to offer; None is all."""
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """The Telegram bot."""

    allowed: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    sessions: Literal["chat", "user"] = "chat"
    notices: Literal["off", "quiet", "full"] = "quiet"
    base_url: str | None = None
    webhook: str | None = None
    listen: str = ""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What long-running processes erase by themselves; a limit of None erases nothing."""

    days: int | None = None
    sessions: int | None = None
    every_hours: float = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, checked and typed."""

    policy: Policy
    """A preset with the user's changes."""
    model: ModelSettings
    on_disconnect: Literal["pause", "continue"]
    max_tool_iterations: int
    prompt_template: str
    """The question for a narrative; empty is the built-in one."""
    summarizer: tuple[str, ...]
    limits: Mapping[str, Limit]
    """By call, turn, session, user and day; `session.use_settings.caps` makes them `Caps`."""
    store: str | None
    tenant: str
    instructions: InstructionSettings
    approval: ApprovalSettings
    shell: ShellSettings
    servers: tuple[ServerSettings, ...]
    telegram: TelegramSettings
    retention: RetentionSettings
    profile: str | None
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Every value that was set, by the setting's name."""
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where each of those comes from; a missing one is a default."""
    outranked: frozenset[str] = frozenset()
    """Names for the fold threshold that a stronger source overrides."""
    untrusted: tuple[Held, ...] = ()
    tenants: Mapping[str, "Settings"] = field(default_factory=dict[str, "Settings"])
    """The settings of tenants that have a table of their own: see `gateway_tables`."""


_MOST = 10**12  # of any count
_SHOWN = 60  # characters of a value in an error message
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")  # upper case, so that it is not the key itself
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Wrong(ValueError):  # noqa: N818 - named for what a value is
    """An invalid value; the message says what to write."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values."""

    told: str
    """A description for people."""
    read: Callable[[Any], Any]
    """Checks a file's value; raises `Wrong`."""
    spoken: Callable[[str], Any] = str
    """Parses the text of an environment variable or a flag, before the check."""


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
    """Parse a value that a variable or a flag gives as JSON; other text stays text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong("write it in quotes")
    if _CONTROL.search(value):
        raise Wrong("write it without control characters")
    return value


def _check_name(value: Any) -> str:
    if not _check_text(value).strip() or "\n" in value:
        raise Wrong("write a name, in one line")
    return value


def _check_address(value: Any) -> str:
    if not _ADDRESS.fullmatch(_check_text(value)):
        raise Wrong('write an address, like "http://127.0.0.1:8080/v1"')
    return value


def _check_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("write true or false")
    return value


def _check_whole_number(value: Any, hint: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise Wrong(hint)
    return value


def _check_count(value: Any) -> int:
    return _check_whole_number(value, "write a whole number, 0 for none")


def _check_positive(value: Any) -> int:
    if _check_whole_number(value, "write a whole number above 0") == 0:
        raise Wrong("write a number above 0; for no limit, a very large one")
    return value


def _check_real_number(value: Any, hint: str, *, most: float, zero: bool = False) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= most or (value == 0 and not zero):
        raise Wrong(hint)
    return float(value)


def _check_share(value: Any) -> float:
    hint = "write a share of the window between 0 and 1, like 0.7"
    return _check_real_number(value, hint, most=1)


def _check_seconds(value: Any) -> float:
    return _check_real_number(value, "write seconds above 0, like 120", most=_MOST)


def _check_dollars(value: Any) -> float:
    return _check_real_number(value, "write dollars, like 2.50", most=_MOST, zero=True)


def _check_texts(value: Any) -> tuple[str, ...]:
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not listed or not all(isinstance(one, str) for one in cast("Sequence[Any]", value)):
        raise Wrong('write a list of texts, like ["one", "two"]')
    return tuple(_check_text(one) for one in cast("Sequence[str]", value))


def _check_command(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not (words := _check_texts(value)) or not words[0]:
        raise Wrong('write the program and its arguments as a list, like ["npx", "-y", "server"]')
    return words


def _check_tellers(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    try:
        found = _check_texts(names)
    except Wrong:
        found = ()
    if not found or not all(found) or ("off" in found and len(found) > 1):
        raise Wrong('write a model\'s name, a list of them, "model" for the agent\'s own, or "off"')
    return found


def _check_pairs(value: Any) -> dict[str, str]:
    pairs = cast("Mapping[Any, Any]", value)
    if not isinstance(value, Mapping) or not all(
        isinstance(one, str) for pair in pairs.items() for one in pair
    ):
        raise Wrong('write a table of texts, like { NAME = "value" }')
    return {name: _check_text(one) for name, one in pairs.items()}


def _check_key_variable(value: Any) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise Wrong(
            "write the name of the environment variable that holds the key, "
            'like "OPENAI_API_KEY", never the key itself'
        )
    return value


def make_choice(*names: str) -> Kind:
    """Make a kind that allows only some words."""

    def check_choice(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise Wrong(f"write one of {', '.join(names)}")
        return value

    return Kind(", ".join(names), check_choice)


_ADDRESS = re.compile(r"https?://[^\s/]+\S*")
TEXT = Kind("text", _check_text)
NAME = Kind("text", _check_name)
LONG = Kind("text, or file://PATH", _check_text)
ADDRESS = Kind("address", _check_address)
KEY = Kind("variable's name", _check_key_variable)
YES = Kind("true or false", _check_bool, _parse_bool)
COUNT = Kind("whole number", _check_count, _parse_number)
POSITIVE = Kind("whole number above 0", _check_positive, _parse_number)
SHARE = Kind("share, 0 to 1", _check_share, _parse_number)
SECONDS = Kind("seconds", _check_seconds, _parse_number)
DOLLARS = Kind("dollars", _check_dollars, _parse_number)
TEXTS = Kind("list of texts", _check_texts, _parse_list)
COMMAND = Kind("list of texts", _check_command, _parse_list)
TELLERS = Kind("name, list, model, off", _check_tellers, _parse_list)
PAIRS = Kind("table of texts", _check_pairs, parse_json)

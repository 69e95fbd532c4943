"""Settings as a program uses them: one frozen value, typed to its leaves.

Knows what each setting is called in a program. Refuses to know where it was written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from foldline.core.policy import Policy

Mode: TypeAlias = Literal["ask", "edits", "all", "none"]
OWN, NOBODY = "model", "off"
"""In `summarizer`: the agent's own model; none at all."""


class Limit(NamedTuple):
    """The most that may be spent; None is no limit."""

    tokens: int | None = None
    dollars: float | None = None


class Held(NamedTuple):
    """What a stranger's file says, and what is not in force until the file is trusted."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model that is asked."""

    name: str | None = None
    """With its provider before it: `anthropic/claude-sonnet-5.5`."""
    provider: str = ""
    max_input_tokens: int | None = None
    """Its window; wins over whatever else is known."""
    max_output_tokens: int | None = None
    """The reserve for its answer."""
    base_url: str | None = None
    key_env: str | None = None


@dataclass(frozen=True, slots=True)
class InstructionSettings:
    """Files of instructions, and words of one's own."""

    text: str = ""
    max_tokens: int = 0
    names: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    memory: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """What is asked before it is done."""

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
    """Which of its tools are offered; None: all."""
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """The bot."""

    allowed: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    sessions: Literal["chat", "user"] = "chat"
    notices: Literal["off", "quiet", "full"] = "quiet"
    base_url: str | None = None
    webhook: str | None = None
    listen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is set, checked."""

    policy: Policy
    """A preset, with what was changed of it."""
    model: ModelSettings
    on_disconnect: Literal["pause", "continue"]
    max_tool_iterations: int
    prompt_template: str
    """The question for a narrative; empty: ours."""
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
    profile: str | None
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Every value that somebody set, by the setting's name."""
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where each of those comes from; what is not here is a default."""
    untrusted: tuple[Held, ...] = ()

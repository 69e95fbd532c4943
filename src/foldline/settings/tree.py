"""All settings, as one typed tree: to add a setting, write a field.

    timeout: Annotated[Seconds, free("Seconds that a command may take")] = 120.0

Its name, its environment variable, its check, its row in `docs/reference/settings.md` and its
attribute of `Settings` come from the field. `guarded` settings could run a program, send data
elsewhere or loosen a limit: a project's file sets them only if it is trusted. `free` ones may be
set by any file. A table is a class; in a `dict` of tables, users choose the names.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct, field

from foldline.core.policy import How, Policy, Start
from foldline.core.tokens import Estimator
from foldline.settings.kinds import (
    Address,
    Command,
    Count,
    Dollars,
    Hours,
    KeyVariable,
    LongText,
    NameText,
    Positive,
    Preset,
    Seconds,
    Share,
    Summarizer,
    Switch,
    Text,
    Texts,
    TextTable,
)
from foldline.settings.limit_rules import LimitTables

OWN_MODEL, NO_MODEL = "model", "off"
"""In `summarizer`: the agent's own model, and none."""


def _describe(description: str, *, guarded: bool, secret: bool = False, policy: str = "") -> Meta:
    """Describe a setting; `policy` is the attribute of the policy with its default."""
    return Meta(
        description=description, extra={"guarded": guarded, "secret": secret, "policy": policy}
    )


guarded = partial(_describe, guarded=True)
free = partial(_describe, guarded=False)


class SettingsTable(Struct, frozen=True, kw_only=True):
    """A table of a settings file."""


class ModelSettings(SettingsTable, frozen=True):
    """The agent's model."""

    provider: Annotated[Text, guarded("The part before the slash in the model's name")] = ""
    name: Annotated[NameText | None, guarded("The model that is asked")] = None
    """In `Settings` with its provider: `anthropic/claude-sonnet-5`."""
    max_input_tokens: Annotated[
        Positive | None, free("Its window; by default as the server or the catalogue says")
    ] = None
    max_output_tokens: Annotated[
        Positive | None, free("Tokens kept free for its answer", policy="reserve")
    ] = None
    base_url: Annotated[Address | None, guarded("The server's address")] = None
    key_env: Annotated[
        KeyVariable | None, guarded("The environment variable that holds its key")
    ] = None


class ContextSettings(SettingsTable, frozen=True):
    """The sizes of history and tool results in the context."""

    max_history_tokens: Annotated[
        Count | None,
        free("Fold at a turn's end above and down to this many; 0: not by number", policy="fill"),
    ] = None
    max_tool_result_tokens: Annotated[
        Positive | None, free("The most tokens of a tool's result", policy="clip.tokens")
    ] = None
    tool_result_truncation: Annotated[
        How | None, free("How a longer result is cut", policy="clip.how")
    ] = None
    max_tool_result_bytes: Annotated[
        Positive | None,
        free("The most bytes of a result that is cut by lines", policy="clip.lines.bytes"),
    ] = None
    max_tool_result_lines: Annotated[
        Positive | None, free("The most lines of such a result", policy="clip.lines.lines")
    ] = None
    tool_result_head_lines: Annotated[
        Count | None,
        free(
            "How many of its first lines stay, if it has more; by default half of them at most",
            policy="clip.lines.head",
        ),
    ] = None
    tool_result_tail_lines: Annotated[
        Count | None, free("The same, of its last lines", policy="clip.lines.tail")
    ] = None
    tool_result_keep_first: Annotated[
        Count | None,
        free("How many of a turn's first results are never masked", policy="mask.first"),
    ] = None
    tool_result_keep_last: Annotated[
        Count | None,
        free("The same, of its last; 0 and 0: nothing is masked", policy="mask.last"),
    ] = None


class SessionSettings(SettingsTable, frozen=True):
    """Turns of a session."""

    on_disconnect: Annotated[
        Literal["pause", "continue"], free("What a turn does after its client disconnects")
    ] = "pause"
    max_tool_iterations: Annotated[Positive, free("How often tools may be run in one turn")] = 25
    context: ContextSettings = ContextSettings()


class ToolSettings(SettingsTable, frozen=True):
    """One tool's results."""

    max_tool_result_tokens: Annotated[
        Positive | None, free("The most tokens of a result of this tool")
    ] = None
    tool_result_truncation: Annotated[How | None, free("How a result of this tool is cut")] = None


class ToolTables(SettingsTable, frozen=True):
    """The table `[context]`."""

    tools: dict[str, ToolSettings] = {}


class ProviderSettings(SettingsTable, frozen=True):
    """One provider's models."""

    compact_threshold: Annotated[
        Share | None, free("compact_threshold for one provider's models")
    ] = None


class CompactionSettings(SettingsTable, frozen=True):
    """When folds are due, and the question for their narrative."""

    enabled: Annotated[Switch, free("false: fold only when a request would not fit")] = True
    invocation_threshold: Annotated[
        Count | None, free("Fold after this many turns; 0: not by turns", policy="turns")
    ] = None
    overlap_size: Annotated[
        Count | None, free("Turns before its span that a fold reads again", policy="overlap")
    ] = None
    token_threshold: Annotated[
        Positive | None, free("Fold from this many tokens", policy="soft_tokens")
    ] = None
    safety_ratio: Annotated[
        Share | None, free("A paper's name for compact_threshold", policy="soft")
    ] = None
    prompt_template: Annotated[
        LongText, guarded("The question for a narrative; empty: the built-in question")
    ] = ""


class CapSettings(SettingsTable, frozen=True):
    """A spending cap; None is no cap."""

    tokens: Annotated[Count | None, guarded("The most tokens to spend on …")] = None
    dollars: Annotated[Dollars | None, guarded("The most dollars to spend on …")] = None


class CapTables(SettingsTable, frozen=True):
    """The spending caps; `session.use_settings.build_caps` makes them `Caps`."""

    call: Annotated[CapSettings, Meta(description="one call of the model")] = CapSettings()
    turn: Annotated[CapSettings, Meta(description="one turn")] = CapSettings()
    session: Annotated[CapSettings, Meta(description="one session")] = CapSettings()
    user: Annotated[CapSettings, Meta(description="one user")] = CapSettings()
    day: Annotated[CapSettings, Meta(description="a day, all of a tenant's sessions")] = (
        CapSettings()
    )


class RetentionSettings(SettingsTable, frozen=True):
    """Sessions that long-running processes erase; a limit of None erases nothing."""

    days: Annotated[
        Positive | None,
        guarded("serve, worker, bot and schedule erase sessions unchanged for this many days"),
    ] = None
    sessions: Annotated[
        Positive | None, guarded("They erase the least recently changed until this many are left")
    ] = None
    every_hours: Annotated[Hours, guarded("Hours between two such erasures")] = 24.0


class InstructionSettings(SettingsTable, frozen=True):
    """Instruction files, and the user's own text."""

    text: Annotated[
        LongText, guarded("Text for the system prompt; in a profile: the agent's own")
    ] = ""
    max_tokens: Annotated[
        Count, free("The most tokens that files of instructions may take; 0: none is read")
    ] = 8_192
    names: Annotated[
        Texts, guarded("Names of these files; the first one that exists in a folder is read")
    ] = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md")
    roots: Annotated[Texts, guarded("More folders whose instructions are read")] = ()
    memory: Annotated[
        Text, guarded("The memory file, in the user's config folder; empty: none")
    ] = "preferences.md"


class ApprovalSettings(SettingsTable, frozen=True):
    """Which actions need approval."""

    mode: Annotated[
        Literal["ask", "edits", "all", "none"],
        guarded(
            "ask before writing and running; edits: only before running; all: nothing is asked; "
            "none: both are refused"
        ),
    ] = "ask"
    allow: Annotated[Texts, guarded("Actions that need no approval")] = ()
    deny: Annotated[Texts, guarded("Actions that are always refused")] = ()


class ShellSettings(SettingsTable, frozen=True):
    """The tool that runs commands."""

    enabled: Annotated[Switch, guarded("Whether the shell is among the tools")] = True
    timeout: Annotated[Seconds, free("Seconds that a command may take")] = 120.0


class ServerSettings(SettingsTable, frozen=True):
    """An MCP server: a program, or an address."""

    command: Annotated[
        Command | None, guarded("The program that is an MCP server, and its arguments")
    ] = None
    env: Annotated[
        TextTable | None, guarded("Environment variables of the program", secret=True)
    ] = None
    url: Annotated[
        Address | None, guarded("The address of an MCP server, instead of a program")
    ] = None
    headers: Annotated[TextTable | None, guarded("Headers of each request", secret=True)] = None
    trusted: Annotated[Switch, guarded("true: its tools are called unasked")] = False
    tools: Annotated[Texts | None, guarded("Which of its tools are offered; else all")] = None
    seconds: Annotated[Seconds, guarded("Seconds that an answer may take")] = 60.0


class ServerTables(SettingsTable, frozen=True):
    """The table `[mcp]`."""

    servers: dict[str, ServerSettings] = {}


class TelegramSettings(SettingsTable, frozen=True):
    """The Telegram bot."""

    allowed: Annotated[
        Texts,
        guarded("Who may talk with the bot: numbers of accounts; of groups (below 0): all members"),
    ] = ()
    admins: Annotated[Texts, guarded("Who may also approve tools and switch to another model")] = ()
    sessions: Annotated[
        Literal["chat", "user"],
        guarded("Whether a group is one session, or one for each of its members"),
    ] = "chat"
    notices: Annotated[
        Literal["off", "quiet", "full"],
        guarded("off: answers alone; quiet: footers and folds; full: also what tools do"),
    ] = "quiet"
    base_url: Annotated[Address | None, guarded("The address of your own Bot API server")] = None
    webhook: Annotated[
        Address | None, guarded("Where Telegram sends updates; without it, the bot polls")
    ] = None
    listen: Annotated[
        NameText, guarded("Where the bot listens for them, behind a proxy with TLS")
    ] = "127.0.0.1:8443"


class GatewayTable(SettingsTable, frozen=True):
    """The operator's settings of `serve`."""

    on_store_failure: Annotated[
        Literal["open", "closed"],
        guarded(
            "While the store is away, serve refuses conversations (closed) or relays them (open)"
        ),
    ] = "closed"
    prepare_folds: Annotated[
        Literal["gateway", "worker"],
        guarded(
            "Who asks the summarizers of relayed conversations: serve itself, or `foldline worker`"
        ),
    ] = "gateway"
    limits: Annotated[
        LimitTables, guarded("The most that clients of serve may use: tables `[[gateway.limits]]`")
    ] = ()
    max_messages: Annotated[
        Positive, guarded("The most messages of a request that serve reads")
    ] = 10_000
    max_values: Annotated[
        Positive, guarded("The most JSON values of a request that serve reads")
    ] = 250_000
    max_memory: Annotated[
        Positive, guarded("Bytes of memory for a process's requests and idle conversations")
    ] = 1_000_000_000


class SettingsTree(SettingsTable, frozen=True):
    """The content of a settings file."""

    profile: Annotated[
        NameText | None, guarded("The profile in force: a name of [profiles.NAME]")
    ] = None
    preset: Annotated[Preset, free("The preset: when and how the conversation is folded")] = field(
        name="policy", default="steady"
    )
    start: Annotated[
        Start | None,
        free(
            "Who starts folds; unless auto, none is made without a yes while a request can be sent",
            policy="start",
        ),
    ] = None
    summarizer: Annotated[
        Summarizer,
        guarded(
            "Who writes the narrative of a fold: models in order of preference; NAME@URL elsewhere"
        ),
    ] = (OWN_MODEL,)
    compact_threshold: Annotated[
        Share | None,
        free(
            "Share of the window from which a fold is due, and before which none is; also in a "
            "profile",
            policy="soft",
        ),
    ] = None
    estimator: Annotated[
        Estimator | None,
        free(
            "How requests are estimated until a provider has counted them; bytes/4 is far less "
            "exact",
            policy="estimator",
        ),
    ] = None
    store: Annotated[
        NameText | None, guarded("Where sessions are kept: a file, or a postgresql:// address")
    ] = None
    tenant: Annotated[NameText, guarded("Whose sessions")] = "local"
    model: ModelSettings = ModelSettings()
    session: SessionSettings = SessionSettings()
    context: ToolTables = ToolTables()
    providers: dict[str, ProviderSettings] = {}
    compaction: CompactionSettings = CompactionSettings()
    caps: CapTables = CapTables()
    retention: RetentionSettings = RetentionSettings()
    instructions: InstructionSettings = InstructionSettings()
    approval: ApprovalSettings = ApprovalSettings()
    shell: ShellSettings = ShellSettings()
    mcp: ServerTables = ServerTables()
    telegram: TelegramSettings = TelegramSettings()
    gateway: GatewayTable = GatewayTable()


OF_TENANT = (
    "profile",
    "policy",
    "start",
    "summarizer",
    "compact_threshold",
    "model.max_input_tokens",
    "model.max_output_tokens",
    "retention.days",
    "retention.sessions",
    "gateway.on_store_failure",
)
"""The settings that `[gateway.tenants.NAME]` may have, there without `gateway.`."""


class UntrustedSetting(NamedTuple):
    """A setting of an untrusted file, not in force until the file is trusted."""

    name: str
    value: Any
    origin: str


class Settings(SettingsTree, frozen=True, kw_only=True):
    """All settings, checked and typed."""

    policy: Policy = field(name="policy in force")
    """The preset with the user's changes."""
    values: Mapping[str, Any] = {}
    """Every value that was set, by the setting's name."""
    origins: Mapping[str, str] = {}
    """The place of each of those; a missing one is a default."""
    outranked: frozenset[str] = frozenset()
    """Names for the fold threshold that a stronger source overrides."""
    untrusted: tuple[UntrustedSetting, ...] = ()
    tenants: Mapping[str, "Settings"] = {}
    """The settings of tenants that have a table of their own."""

    def find_tenant(self, tenant: str) -> "Settings":
        """Return the settings of a tenant: its own, or these."""
        return self.tenants.get(tenant, self)

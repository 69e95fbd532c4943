"""The table of all settings: name, kind, default and meaning.

`docs/reference/settings.md` is made from this table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from foldline.core.policy import PRESETS, Policy
from foldline.settings import gateway_tables, kinds, limit_rules
from foldline.settings.kinds import Kind

SLOT = "NAME"
"""Placeholder in a setting's name for a name the user gives: a tool, a server, a provider."""
PREFIX = "FOLDLINE_"
SHORT = {"model": "model.name", "instructions": "instructions.text"}
"""Text allowed in place of a table: `model = "gpt-6.1-sol"` sets `model.name`."""


@dataclass(frozen=True, slots=True)
class Known:
    """One setting."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    guarded: bool = False
    """Could run a program, send data elsewhere or loosen a limit: needs a trusted file."""
    secret: bool = False
    """Its values are never displayed."""
    of: Callable[[Policy], Any] | None = None
    """Reads the default from the policy."""

    @property
    def env(self) -> str:
        """The environment variable that sets it: upper case, two underscores for a dot."""
        return variable_of(self.name)

    def match_slot(self, name: str) -> str | None:
        """Return the slot's value in a matching name, "" without a slot, None for no match."""
        before, slot, behind = self.name.partition(SLOT)
        if not slot:
            return "" if name == self.name else None
        inside = name[len(before) : len(name) - len(behind)]
        fits = name.startswith(before) and name.endswith(behind) and inside
        return inside if fits and len(name) > len(before) + len(behind) else None


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.replace(".", "__").upper()


CAPS = "caps."
_guarded = partial(Known, guarded=True)
_C = "session.context."
_ON = True
_ON_STORE_FAILURE = kinds.make_choice("open", "closed")
_SETTINGS: tuple[Known, ...] = (
    _guarded("profile", kinds.NAME, None, "The profile in force: a name of [profiles.NAME]"),
    Known(
        "policy",
        kinds.make_choice(*PRESETS),
        "steady",
        "The preset: when and how the conversation is folded",
    ),
    Known(
        "start",
        kinds.make_choice("auto", "ask", "manual", "off"),
        None,
        "Who starts folds; unless auto, none is made without a yes while a request can be sent",
        of=lambda p: p.start,
    ),
    _guarded(
        "summarizer",
        kinds.TELLERS,
        ("model",),
        "Who tells the narrative of a fold: models in order of preference; NAME@URL elsewhere",
    ),
    Known(
        "compact_threshold",
        kinds.SHARE,
        None,
        "Share of the window from which a fold is due, and before which none is; also in a profile",
        of=lambda p: p.soft,
    ),
    Known(
        "estimator",
        kinds.make_choice("classes", "bytes/4"),
        None,
        "How requests are estimated until a provider has counted them; bytes/4 is far less exact",
        of=lambda p: p.estimator,
    ),
    _guarded(
        "store", kinds.NAME, None, "Where sessions are kept: a file, or a postgresql:// address"
    ),
    _guarded("tenant", kinds.NAME, "local", "Whose sessions"),
    _guarded("model.provider", kinds.TEXT, "", "What stands before the model's name and a slash"),
    _guarded("model.name", kinds.NAME, None, "The model that is asked"),
    Known(
        "model.max_input_tokens",
        kinds.POSITIVE,
        None,
        "Its window; else the server's or the catalogue's word",
    ),
    Known(
        "model.max_output_tokens",
        kinds.POSITIVE,
        None,
        "Kept free for its answer",
        of=lambda p: p.reserve,
    ),
    _guarded("model.base_url", kinds.ADDRESS, None, "The server's address"),
    _guarded("model.key_env", kinds.KEY, None, "The environment variable that holds its key"),
    Known(
        "session.on_disconnect",
        kinds.make_choice("pause", "continue"),
        "pause",
        "What a turn does when nobody listens any more",
    ),
    Known(
        "session.max_tool_iterations", kinds.POSITIVE, 25, "How often tools may be run in one turn"
    ),
    Known(
        f"{_C}max_history_tokens",
        kinds.COUNT,
        None,
        "Fold at a turn's end above so many tokens, down to as many; 0: not by number",
        of=lambda p: p.fill,
    ),
    Known(
        f"{_C}max_tool_result_tokens",
        kinds.POSITIVE,
        None,
        "The most that one result may take",
        of=lambda p: p.clip.tokens,
    ),
    Known(
        f"{_C}tool_result_truncation",
        kinds.make_choice("head", "tail", "both", "lines", "ends"),
        None,
        "How a longer one is cut",
        of=lambda p: p.clip.how,
    ),
    Known(
        f"{_C}max_tool_result_bytes",
        kinds.POSITIVE,
        None,
        "The most bytes of a result that is cut by lines",
        of=lambda p: p.clip.lines.bytes,
    ),
    Known(
        f"{_C}max_tool_result_lines",
        kinds.POSITIVE,
        None,
        "The most lines of such a result",
        of=lambda p: p.clip.lines.lines,
    ),
    Known(
        f"{_C}tool_result_head_lines",
        kinds.COUNT,
        None,
        "How many of its first lines stay, if it has more; by default half of them at most",
        of=lambda p: p.clip.lines.head,
    ),
    Known(
        f"{_C}tool_result_tail_lines",
        kinds.COUNT,
        None,
        "The same, of its last lines",
        of=lambda p: p.clip.lines.tail,
    ),
    Known(
        f"{_C}tool_result_keep_first",
        kinds.COUNT,
        None,
        "Results of a turn that are never masked: the first",
        of=lambda p: p.mask and p.mask.first,
    ),
    Known(
        f"{_C}tool_result_keep_last",
        kinds.COUNT,
        None,
        "The same, the last; 0 and 0: nothing is masked",
        of=lambda p: p.mask and p.mask.last,
    ),
    Known(
        f"context.tools.{SLOT}.max_tool_result_tokens",
        kinds.POSITIVE,
        None,
        "The most that a result of this tool may take",
    ),
    Known(
        f"context.tools.{SLOT}.tool_result_truncation",
        kinds.make_choice("head", "tail", "both", "lines", "ends"),
        None,
        "How a result of this tool is cut",
    ),
    Known(
        f"providers.{SLOT}.compact_threshold",
        kinds.SHARE,
        None,
        "compact_threshold for one provider's models",
    ),
    Known("compaction.enabled", kinds.YES, _ON, "false: fold only what is forced"),
    Known(
        "compaction.invocation_threshold",
        kinds.COUNT,
        None,
        "Fold after so many turns; 0: not by turns",
        of=lambda p: p.turns,
    ),
    Known(
        "compaction.overlap_size",
        kinds.COUNT,
        None,
        "Turns before its span that a fold reads once more",
        of=lambda p: p.overlap,
    ),
    Known(
        "compaction.token_threshold",
        kinds.POSITIVE,
        None,
        "Fold from so many tokens",
        of=lambda p: p.soft_tokens,
    ),
    Known(
        "compaction.safety_ratio",
        kinds.SHARE,
        None,
        "A paper's word for compact_threshold",
        of=lambda p: p.soft,
    ),
    _guarded(
        "compaction.prompt_template",
        kinds.LONG,
        "",
        "The question for a narrative, instead of ours",
    ),
    *(
        _guarded(f"{CAPS}{whose}.{unit}", kind, None, f"The most {unit} to spend on {meant}")
        for whose, meant in (
            ("call", "one call of the model"),
            ("turn", "one turn"),
            ("session", "one session"),
            ("user", "one user"),
            ("day", "a day, all of a tenant's sessions"),
        )
        for unit, kind in (("tokens", kinds.COUNT), ("dollars", kinds.DOLLARS))
    ),
    _guarded(
        "retention.days",
        kinds.POSITIVE,
        None,
        "serve, worker, bot and schedule erase sessions that nobody changed for so many days",
    ),
    _guarded(
        "retention.sessions",
        kinds.POSITIVE,
        None,
        "They erase the least recently changed until this many are left",
    ),
    _guarded("retention.every_hours", kinds.SECONDS, 24.0, "Hours between two such erasures"),
    _guarded(
        "instructions.text",
        kinds.LONG,
        "",
        "Words for the system prompt; in a profile: the agent's own",
    ),
    Known(
        "instructions.max_tokens",
        kinds.COUNT,
        8_192,
        "The most that files of instructions may take; 0: none is read",
    ),
    _guarded(
        "instructions.names",
        kinds.TEXTS,
        ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md"),
        "Their names, the first that is there counts",
    ),
    _guarded("instructions.roots", kinds.TEXTS, (), "More folders whose instructions are read"),
    _guarded(
        "instructions.memory",
        kinds.TEXT,
        "preferences.md",
        "The memory file, in the user's config folder; empty: none",
    ),
    _guarded(
        "approval.mode",
        kinds.make_choice("ask", "edits", "all", "none"),
        "ask",
        "ask before writing and running; edits: only before running; all: nothing is asked; "
        "none: both are refused",
    ),
    _guarded("approval.allow", kinds.TEXTS, (), "What is done unasked"),
    _guarded("approval.deny", kinds.TEXTS, (), "What is never done"),
    _guarded("shell.enabled", kinds.YES, _ON, "Whether the shell is among the tools"),
    Known("shell.timeout", kinds.SECONDS, 120.0, "Seconds that a command may take"),
    _guarded(
        f"mcp.servers.{SLOT}.command",
        kinds.COMMAND,
        None,
        "The program that is an MCP server, and its arguments",
    ),
    _guarded(
        f"mcp.servers.{SLOT}.env",
        kinds.PAIRS,
        None,
        "Variables that the program is given",
        secret=True,
    ),
    _guarded(
        f"mcp.servers.{SLOT}.url",
        kinds.ADDRESS,
        None,
        "The address of an MCP server, instead of a program",
    ),
    _guarded(
        f"mcp.servers.{SLOT}.headers", kinds.PAIRS, None, "Headers that it is sent", secret=True
    ),
    _guarded(
        f"mcp.servers.{SLOT}.trusted", kinds.YES, not _ON, "true: its tools are called unasked"
    ),
    _guarded(
        f"mcp.servers.{SLOT}.tools", kinds.TEXTS, None, "Which of its tools are offered; else all"
    ),
    _guarded(f"mcp.servers.{SLOT}.seconds", kinds.SECONDS, 60.0, "That it may take for an answer"),
    _guarded(
        "telegram.allowed",
        kinds.TEXTS,
        (),
        "Who may talk with the bot: numbers of accounts; of groups (below 0): all who are there",
    ),
    _guarded(
        "telegram.admins", kinds.TEXTS, (), "Who may also approve tools and take another model"
    ),
    _guarded(
        "telegram.sessions",
        kinds.make_choice("chat", "user"),
        "chat",
        "Whether a group is one session, or one for each of its people",
    ),
    _guarded(
        "telegram.notices",
        kinds.make_choice("off", "quiet", "full"),
        "quiet",
        "off: answers alone; quiet: footers and folds; full: also what tools do",
    ),
    _guarded("telegram.base_url", kinds.ADDRESS, None, "A Bot API server of one's own"),
    _guarded(
        "telegram.webhook",
        kinds.ADDRESS,
        None,
        "Where Telegram brings updates; else they are asked for",
    ),
    _guarded(
        "telegram.listen",
        kinds.NAME,
        "127.0.0.1:8443",
        "Where the bot waits for them, behind whoever speaks TLS",
    ),
)


def _make_tenant_settings() -> tuple[Known, ...]:
    """Make the settings of `[gateway.tenants.NAME]` from those of the same names for everybody."""
    table = f"{gateway_tables.TENANTS}{SLOT}."
    everybody = {one.name: one for one in _SETTINGS}
    own = (everybody[name] for name in gateway_tables.OF_TENANT)
    return (
        *(
            _guarded(f"{table}{one.name}", one.kind, None, f"`{one.name}` for this tenant alone")
            for one in own
        ),
        _guarded(
            f"{table}{gateway_tables.ON_STORE_FAILURE}",
            _ON_STORE_FAILURE,
            None,
            f"`{gateway_tables.GATEWAY}{gateway_tables.ON_STORE_FAILURE}` for this tenant alone",
        ),
    )


def _make_bound(name: str, about: str) -> Known:
    setting, default = gateway_tables.BOUNDS[name]
    return _guarded(setting, kinds.POSITIVE, default, about)


KNOWN: tuple[Known, ...] = (
    *_SETTINGS,
    _guarded(
        f"{gateway_tables.GATEWAY}{gateway_tables.ON_STORE_FAILURE}",
        _ON_STORE_FAILURE,
        "closed",
        "While the store is away, serve refuses conversations (closed) or relays them (open)",
    ),
    _guarded(
        gateway_tables.PREPARE_FOLDS,
        kinds.make_choice("gateway", "worker"),
        "gateway",
        "Who asks the summarizers of relayed conversations: serve itself, or `foldline worker`",
    ),
    _guarded(
        gateway_tables.LIMITS,
        limit_rules.LIMIT_TABLES,
        (),
        "What clients of serve may use at most, in tables `[[gateway.limits]]`",
    ),
    _make_bound("messages", "The most messages of a request that serve reads"),
    _make_bound("values", "The most JSON values of a request that serve reads"),
    _make_bound("held", "Bytes of memory for a process's requests and idle conversations"),
    *_make_tenant_settings(),
)

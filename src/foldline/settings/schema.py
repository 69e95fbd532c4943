"""Every setting there is: its name, what it may be, what it is where nobody says, what it means.

Knows also which of them a stranger's file may not decide. Refuses to know where values come from,
and how a name is found: `names` does. `docs/reference/settings.md` is made from this table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foldline.core.policy import PRESETS, Policy
from foldline.settings import kinds
from foldline.settings.kinds import Kind

SLOT = "NAME"
"""Stands in a setting's name for one that a person gives: a tool, a server, a provider."""
PREFIX = "FOLDLINE_"
SHORT = {"model": "model.name", "instructions": "instructions.text"}
"""A text where a table could stand: `model = "gpt-5"` is all of the model's name."""


@dataclass(frozen=True, slots=True)
class Known:
    """One setting."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    guarded: bool = False
    """Could run a program, send words elsewhere or loosen a limit: not from a stranger's file."""
    secret: bool = False
    """Its values are not shown."""
    of: Callable[[Policy], Any] | None = None
    """What the policy says, where nobody says otherwise."""

    @property
    def env(self) -> str:
        """The variable that sets it: capitals, and two underlines for a dot."""
        return variable(self.name)

    def named(self, name: str) -> str | None:
        """What stands in the slot of a name that is this setting's; "" where there is no slot."""
        before, slot, behind = self.name.partition(SLOT)
        if not slot:
            return "" if name == self.name else None
        inside = name[len(before) : len(name) - len(behind)]
        fits = name.startswith(before) and name.endswith(behind) and inside
        return inside if fits and len(name) > len(before) + len(behind) else None


def variable(name: str) -> str:
    """The environment's name of a setting."""
    return PREFIX + name.replace(".", "__").upper()


_C = "session.context."
_ON = True
KNOWN: tuple[Known, ...] = (
    Known(
        "profile",
        kinds.NAME,
        None,
        "The profile in force: a name of [profiles.NAME]",
        guarded=True,
    ),
    Known(
        "policy",
        kinds.choice(*PRESETS),
        "steady",
        "The preset: when and how the conversation is folded",
    ),
    Known(
        "start",
        kinds.choice("auto", "ask", "manual", "off"),
        None,
        "Who starts a fold that is due; what is forced is never asked for",
        of=lambda p: p.start,
    ),
    Known(
        "summarizer",
        kinds.TELLERS,
        ("model",),
        "Who tells the narrative of a fold: models in order of preference; NAME@URL elsewhere",
        guarded=True,
    ),
    Known(
        "compact_threshold",
        kinds.SHARE,
        None,
        "Share of the window from which a fold is due; also in a profile",
        of=lambda p: p.soft,
    ),
    Known(
        "store",
        kinds.NAME,
        None,
        "Where sessions are kept: a file, or a postgresql:// address",
        guarded=True,
    ),
    Known("tenant", kinds.NAME, "local", "Whose sessions", guarded=True),
    Known(
        "model.provider",
        kinds.TEXT,
        "",
        "What stands before the model's name and a slash",
        guarded=True,
    ),
    Known("model.name", kinds.NAME, None, "The model that is asked", guarded=True),
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
    Known("model.base_url", kinds.ADDRESS, None, "The server's address", guarded=True),
    Known(
        "model.key_env",
        kinds.KEY,
        None,
        "The environment variable that holds its key",
        guarded=True,
    ),
    Known(
        "session.on_disconnect",
        kinds.choice("pause", "continue"),
        "pause",
        "What a turn does when nobody listens any more",
    ),
    Known(
        "session.max_tool_iterations",
        kinds.POSITIVE,
        25,
        "How often tools may be run in one turn",
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
        kinds.choice("head", "tail", "both", "lines", "ends"),
        None,
        "How a longer one is cut",
        of=lambda p: p.clip.how,
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
        kinds.choice("head", "tail", "both", "lines", "ends"),
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
    Known(
        "compaction.prompt_template",
        kinds.LONG,
        "",
        "The question for a narrative, instead of ours",
        guarded=True,
    ),
    *(
        Known(
            f"caps.{whose}.{unit}",
            kind,
            None,
            f"The most {unit} to spend on {meant}",
            guarded=True,
        )
        for whose, meant in (
            ("call", "one call of the model"),
            ("turn", "one turn"),
            ("session", "one session"),
            ("user", "one user"),
            ("day", "a day, all of a tenant's sessions"),
        )
        for unit, kind in (("tokens", kinds.COUNT), ("dollars", kinds.DOLLARS))
    ),
    Known(
        "instructions.text",
        kinds.LONG,
        "",
        "Words for the system prompt; in a profile: the agent's own",
        guarded=True,
    ),
    Known(
        "instructions.max_tokens",
        kinds.COUNT,
        8_192,
        "The most that files of instructions may take; 0: none is read",
    ),
    Known(
        "instructions.names",
        kinds.TEXTS,
        ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md"),
        "Their names, the first that is there counts",
        guarded=True,
    ),
    Known(
        "instructions.roots",
        kinds.TEXTS,
        (),
        "More folders whose instructions are read",
        guarded=True,
    ),
    Known(
        "instructions.memory",
        kinds.TEXT,
        "preferences.md",
        "The memory file, in the user's config folder; empty: none",
        guarded=True,
    ),
    Known(
        "approval.mode",
        kinds.choice("ask", "edits", "all", "none"),
        "ask",
        "ask before writing and running; edits: only before running; all: nothing is asked; "
        "none: both are refused",
        guarded=True,
    ),
    Known("approval.allow", kinds.TEXTS, (), "What is done unasked", guarded=True),
    Known("approval.deny", kinds.TEXTS, (), "What is never done", guarded=True),
    Known("shell.enabled", kinds.YES, _ON, "Whether the shell is among the tools", guarded=True),
    Known("shell.timeout", kinds.SECONDS, 120.0, "Seconds that a command may take"),
    Known(
        f"mcp.servers.{SLOT}.command",
        kinds.COMMAND,
        None,
        "The program that is an MCP server, and its arguments",
        guarded=True,
    ),
    Known(
        f"mcp.servers.{SLOT}.env",
        kinds.PAIRS,
        None,
        "Variables that the program is given",
        guarded=True,
        secret=True,
    ),
    Known(
        f"mcp.servers.{SLOT}.url",
        kinds.ADDRESS,
        None,
        "The address of an MCP server, instead of a program",
        guarded=True,
    ),
    Known(
        f"mcp.servers.{SLOT}.headers",
        kinds.PAIRS,
        None,
        "Headers that it is sent",
        guarded=True,
        secret=True,
    ),
    Known(
        f"mcp.servers.{SLOT}.trusted",
        kinds.YES,
        not _ON,
        "true: its tools are called unasked",
        guarded=True,
    ),
    Known(
        f"mcp.servers.{SLOT}.tools",
        kinds.TEXTS,
        None,
        "Which of its tools are offered; else all",
        guarded=True,
    ),
    Known(
        f"mcp.servers.{SLOT}.seconds",
        kinds.SECONDS,
        60.0,
        "That it may take for an answer",
        guarded=True,
    ),
    Known(
        "telegram.allowed",
        kinds.TEXTS,
        (),
        "Who may talk with the bot: numbers of accounts; of groups (below 0): all who are there",
        guarded=True,
    ),
    Known(
        "telegram.admins",
        kinds.TEXTS,
        (),
        "Who may also approve tools and take another model",
        guarded=True,
    ),
    Known(
        "telegram.sessions",
        kinds.choice("chat", "user"),
        "chat",
        "Whether a group is one session, or one for each of its people",
        guarded=True,
    ),
    Known(
        "telegram.notices",
        kinds.choice("off", "quiet", "full"),
        "quiet",
        "off: answers alone; quiet: footers and folds; full: also what tools do",
        guarded=True,
    ),
    Known(
        "telegram.base_url",
        kinds.ADDRESS,
        None,
        "A Bot API server of one's own",
        guarded=True,
    ),
    Known(
        "telegram.webhook",
        kinds.ADDRESS,
        None,
        "Where Telegram brings updates; else they are asked for",
        guarded=True,
    ),
    Known(
        "telegram.listen",
        kinds.NAME,
        "127.0.0.1:8443",
        "Where the bot waits for them, behind whoever speaks TLS",
        guarded=True,
    ),
)

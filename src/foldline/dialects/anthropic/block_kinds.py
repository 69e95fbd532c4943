"""The kinds of blocks, as the SDK's types name them: who says each, and what it is.

A kind that is missing here holds its place and goes back as it came; where it is folded it is gone.
A test compares the table with the types of the SDK, and fails when these have more.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

Meaning: TypeAlias = Literal[
    "words", "media", "thought", "call", "result", "served", "summary", "state"
]
"""`served` is a call of the provider's own tools, or its result. A `summary` is the provider's, of
all that stands before it. Later requests depend on `state`: where it is folded it is carried behind
the handoff."""


class BlockKind(NamedTuple):
    """What a block is, and where it may stand: in a message of a role, or in a tool's result."""

    meaning: Meaning
    places: tuple[str, ...]


_SAID, _SHOWN, _ANSWERED = ("user", "assistant", "system"), ("user", "result"), ("assistant",)
BLOCKS: Final[dict[str, BlockKind]] = {
    "text": BlockKind("words", (*_SAID, "result")),
    "image": BlockKind("media", _SHOWN),
    "document": BlockKind("media", _SHOWN),
    "search_result": BlockKind("media", _SHOWN),
    "browser_state": BlockKind("media", ("result",)),
    "thinking": BlockKind("thought", _ANSWERED),
    "redacted_thinking": BlockKind("thought", _ANSWERED),
    "tool_use": BlockKind("call", _ANSWERED),
    "tool_result": BlockKind("result", ("user",)),
    "tool_reference": BlockKind("state", ("result",)),
    "tool_search_tool_result": BlockKind("state", _ANSWERED),
    "tool_addition": BlockKind("state", ("system",)),
    "tool_removal": BlockKind("state", ("system",)),
    "container_upload": BlockKind("state", ("user", "assistant")),
    "compaction": BlockKind("summary", _ANSWERED),
    **dict.fromkeys(
        (
            *("server_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"),
            *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
            *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
            *("advisor_tool_result", "fallback"),
        ),
        BlockKind("served", _ANSWERED),
    ),
}
MESSAGE_FIELDS: Final[dict[str, Literal["words", "state"]]] = {
    **dict.fromkeys(("role", "content", "clear_at"), "words"),
    "output_config": "state",
}
"""The fields of a message; those that are missing here are carried as state."""


def _find_meanings(meaning: Meaning) -> frozenset[str]:
    return frozenset(name for name, kind in BLOCKS.items() if kind.meaning == meaning)


def find_kinds(place: str) -> frozenset[str]:
    """Find the kinds of blocks that may stand in a place."""
    return frozenset(name for name, kind in BLOCKS.items() if place in kind.places)


CALLS: Final = _find_meanings("call")
STATE: Final = _find_meanings("state")
SERVED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls that the provider runs; it may pause there, and go on when the answer is sent back."""
SUMMARIES: Final = _find_meanings("summary")
THOUGHTS: Final = {"thinking": "signature", "redacted_thinking": "data"}
"""The blocks of thinking, and the field without which the provider takes none."""

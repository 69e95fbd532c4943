"""The types of items, who each belongs to, and which output answers which call.

An item is not a message. A model's turn is a row of items: reasoning, messages and calls. Calls and
outputs are paired by an id, and need not be neighbours. A provider's own tools put calls, and
sometimes outputs, into the model's turn; nobody else answers them.

A type that is not known here belongs to the model, or is a result if its name ends with `_output`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "user",
    "system",
    "model",
    "result",
    "tools",
    "compaction",
    "trigger",
    "reference",
    "unknown",
]
PLAIN_OUTPUTS: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""The calls that hold a name and what the model wrote, and the type of their outputs."""
SEALED: Final = ("reasoning", "compaction")
"""Items with an `encrypted_content` that only their provider reads."""
APPROVAL: Final = "mcp_approval_request"
_APPROVED: Final = "mcp_approval_response"
_LOCAL_OUTPUT: Final = "local_shell_call_output"
_ROLES: Final[dict[str, Kind]] = {
    "user": "user",
    "system": "system",
    "developer": "system",
    "assistant": "model",
}
_KINDS: Final[dict[str, Kind]] = {
    "additional_tools": "tools",
    "configuration_update": "tools",
    "compaction": "compaction",
    "compaction_trigger": "trigger",
    "item_reference": "reference",
    _APPROVED: "result",
}
CALLS: Final = frozenset(
    (
        *PLAIN_OUTPUTS,
        *("local_shell_call", "shell_call", "apply_patch_call", "computer_call"),
        "tool_search_call",
    )
)
"""The calls that a client answers, if they have a `call_id`."""
HOSTED: Final = frozenset(
    (
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools", "program"),
    )
)
"""The provider's own calls, which it answers itself."""
OUTPUTS: Final = frozenset((*(f"{call}_output" for call in CALLS - {"tool_search_call"}),)) | {
    "tool_search_output",
    "program_output",
    _APPROVED,
}
STATE: Final = frozenset(
    (
        *("additional_tools", "configuration_update"),
        *("tool_search_output", "code_interpreter_call"),
    )
)
"""What later requests depend on: where it is folded it is carried behind the handoff."""
KNOWN: Final = frozenset(
    ("message", "reasoning", APPROVAL, *CALLS, *HOSTED, *OUTPUTS, *_KINDS),
)
"""The types that the provider documents."""


def type_of(item: Mapping[str, Any]) -> str:
    """Return an item's type; a message and a reference may leave theirs out. "" if it has none."""
    found = item.get("type")
    if found is None:
        if "role" in item:
            return "message"
        return "item_reference" if isinstance(item.get("id"), str) else ""
    return found if isinstance(found, str) else ""


def kind_of(item: Mapping[str, Any]) -> Kind:
    """Return whose item this is, or what it is for."""
    name = type_of(item)
    if name == "message":
        role = item.get("role")
        return _ROLES.get(role, "unknown") if isinstance(role, str) else "unknown"
    if not name:
        return "unknown"
    return _KINDS.get(name) or ("result" if name.endswith("_output") else "model")


def is_awaited(item: Mapping[str, Any]) -> bool:
    """Whether a model's item is a call that the client answers."""
    name = type_of(item)
    if name in PLAIN_OUTPUTS:
        return True
    if name == APPROVAL:
        return bool(call_id_of(item))
    at_server = name == "tool_search_call" and item.get("execution") == "server"
    return name.endswith("_call") and bool(call_id_of(item)) and not at_server


def is_hosted_output(item: Mapping[str, Any]) -> bool:
    """Whether an output is the provider's own, in the middle of the model's turn."""
    match type_of(item):
        case "program_output":
            return True
        case "tool_search_output":
            return item.get("execution") == "server" or not call_id_of(item)
        case _:
            return False


def call_id_field(item: Mapping[str, Any]) -> str:
    """Return the name of the field by which a call and its output are paired."""
    match type_of(item):
        case "mcp_approval_request":
            return "id"
        case "mcp_approval_response":
            return "approval_request_id"
        case "local_shell_call_output" if not item.get("call_id"):
            return "id"
        case _:
            return "call_id"


def call_id_of(item: Mapping[str, Any]) -> str:
    """Return the id by which a call and its output are paired, or ""."""
    found = item.get(call_id_field(item))
    return found if isinstance(found, str) else ""


def item_id_of(item: Mapping[str, Any]) -> str:
    """Return the id of the item itself, or ""; the output of a local shell has its call's."""
    found = item.get("id")
    return found if isinstance(found, str) and type_of(item) != _LOCAL_OUTPUT else ""


def output_type_of(call: str) -> str:
    """Return the type of the output that answers a call of this type."""
    match call:
        case "mcp_approval_request":
            return _APPROVED
        case "tool_search_call":
            return "tool_search_output"
        case _:
            return f"{call}_output"

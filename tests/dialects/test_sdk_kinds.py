"""The tables of what clients may send name all that the SDKs' own types know: a new release is met here."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from anthropic.types import beta as anthropic_beta
from google.genai import types as gemini_types
from google.genai._gaos.types.interactions import step as interaction_steps
from openai.types import chat as openai_chat
from openai.types.responses import ResponseOutputItem, response_input_item_param

from foldline.dialects.anthropic.blocks import BLOCKS, MESSAGE_FIELDS, STATE, find_kinds
from foldline.dialects.gemini.content_parts import PARTS
from foldline.dialects.gemini_interactions import steps
from foldline.dialects.openai_chat.dialect import ROLES
from foldline.dialects.openai_responses import items


def list_classes(union: Any) -> list[Any]:
    """The classes of a union, however it is nested."""
    inside = get_args(union)
    if not inside and hasattr(union, "__value__"):
        return list_classes(union.__value__)
    if get_origin(union) is None and not inside:
        return [union] if isinstance(union, type) else []
    return [one for each in inside for one in list_classes(each)]


def read_fields(cls: Any) -> dict[str, Any]:
    """The types of a class's fields."""
    if hasattr(cls, "model_fields"):
        return {name: field.annotation for name, field in cls.model_fields.items()}
    return get_type_hints(cls) if hasattr(cls, "__required_keys__") else {}


def read_literals(cls: Any, field: str) -> set[str]:
    """What a field of a class may be."""
    return {one for one in _flatten(read_fields(cls).get(field)) if isinstance(one, str)}


def _flatten(given: Any) -> list[Any]:
    if get_origin(given) is Literal:
        return [*get_args(given)]
    return [one for inner in get_args(given) for one in _flatten(inner)]


def read_types(union: Any, field: str = "type") -> set[str]:
    """What a field may be in any class of a union."""
    return {name for cls in list_classes(union) for name in read_literals(cls, field)}


PLACES = {
    "user": anthropic_beta.BetaContentBlockParam,
    "result": anthropic_beta.beta_tool_result_block_param.Content,
    "system": anthropic_beta.beta_system_message_param.ContentBlock,
}


@pytest.mark.parametrize("place", PLACES)
def test_blocks_of_anthropic(place):
    known = {*BLOCKS} if place == "user" else find_kinds(place)
    found = read_types(PLACES[place])
    assert len(found) > 2
    assert found <= known


def test_blocks_of_answers_of_anthropic():
    found = read_types(anthropic_beta.BetaContentBlock)
    assert len(found) > 15
    assert found <= {*BLOCKS}


def test_messages_of_anthropic():
    fields, roles = set(), set()
    for cls in list_classes(anthropic_beta.BetaMessageParam):
        fields |= {*read_fields(cls)}
        roles |= read_literals(cls, "role")
    assert roles == {"user", "assistant", "system"}
    assert fields <= {*MESSAGE_FIELDS}


def test_what_holds_a_tool_reference_is_state():
    """Where a block may hold a reference to a tool, the tool is in sight by it."""
    names = set()
    for cls in list_classes(anthropic_beta.BetaContentBlockParam):
        inner = read_fields(cls).get("content")
        for one in list_classes(inner):
            if "tool_references" in read_fields(one):
                names |= read_literals(cls, "type")
    assert names <= STATE
    assert names


@pytest.mark.parametrize(
    "union", [response_input_item_param.ResponseInputItemParam, ResponseOutputItem]
)
def test_items_of_responses(union):
    found = read_types(union)
    assert len(found) > 20
    assert found <= items.KNOWN
    said = [cls for cls in list_classes(union) if "message" in read_literals(cls, "type")]
    roles = {name for cls in said for name in read_literals(cls, "role")}
    kinds = {items.kind_of({"type": "message", "role": one}) for one in roles}
    assert "model" in kinds
    assert "unknown" not in kinds


def test_tools_and_containers_in_items_are_state():
    """Items that make tools available, set something for later requests, or name a container."""
    names = set()
    for cls in list_classes(response_input_item_param.ResponseInputItemParam):
        fields = {*read_fields(cls)}
        if fields & {"tools", "container_id", "reasoning"}:
            names |= read_literals(cls, "type")
    assert names - {"mcp_list_tools"} == items.STATE  # servers list theirs again


def test_roles_of_chat():
    found = read_types(openai_chat.ChatCompletionMessageParam, "role")
    assert found <= {*ROLES}
    assert len(found) > 5


def test_parts_of_gemini():
    found = {field.alias or name for name, field in gemini_types.Part.model_fields.items()}
    assert found == {*PARTS}


def test_steps_of_interactions():
    found = read_types(interaction_steps.Step)
    assert len(found) > 15
    assert found - {"UNKNOWN"} == {*steps.STEPS}

"""What a tool is called with: its JSON Schema, and a model's arguments, checked.

Knows how both are written. Refuses to know tools.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from foldline.agent.tool import Arguments
from foldline.errors import BadInput

T = TypeVar("T", bound=msgspec.Struct)


def schema(*required: str, **properties: str | Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object; a property that is one word is of that type."""
    told = {
        name: {"type": one} if isinstance(one, str) else dict(one)
        for name, one in properties.items()
    }
    return {"type": "object", "properties": told, "required": [*required]}


def taken(arguments: Arguments, kind: type[T]) -> T:
    """The arguments as a value; what is missing, unknown or of another type is said."""
    try:
        return msgspec.convert(arguments, kind, strict=False)
    except msgspec.ValidationError as fault:
        names = ", ".join(kind.__struct_fields__)
        raise BadInput(f"wrong arguments: {fault}; it takes {names}") from None

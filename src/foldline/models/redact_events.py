"""Events without secrets: what a summarizer may be shown of them (R-70).

Knows which words of an event a model would read: its texts, the arguments of its calls, its clip.
Refuses to know what a secret looks like: that is `redact`'s.
"""

from typing import Any

import msgspec

from foldline.core.log import Logged, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Part, Text
from foldline.models.redact import redact


def struck(one: Logged) -> Logged:
    """An event without secrets; what is no message stays as it is."""
    event = one.event
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return one
    changes: dict[str, Any] = {"parts": _parts(event.parts), "native": None}
    if not isinstance(event, ModelSaid) and event.clip is not None:
        parts = _parts(event.clip.parts)
        changes["clip"] = msgspec.structs.replace(event.clip, parts=parts)
    return Logged(one.seq, msgspec.structs.replace(event, **changes))


def _parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(
        msgspec.structs.replace(one, text=redact(one.text).text)
        if isinstance(one, Text)
        else msgspec.structs.replace(one, arguments=redact(one.arguments).text)
        if isinstance(one, Call)
        else one
        for one in parts
    )

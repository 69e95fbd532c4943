"""Requests that ask to compact a history, and answers that name a fold of ours.

An item `compaction` is opaque to clients: they carry its `encrypted_content` and send it back in
place of their history. Ours holds a `FoldMark`: which log has that history, and up to where.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from foldline.dialects.client_messages import FoldMark
from foldline.dialects.json_slices import (
    Json,
    dict_of,
    find_fields,
    find_values,
    list_of,
    parse_object,
)
from foldline.dialects.openai_responses.items import kind_of
from foldline.errors import WireError

_TRIGGER = b'"compaction_trigger"'
_JSON = "application/json"
_NOTHING = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
_USAGE: Json = {
    **_NOTHING,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
"""No model was asked."""


def remove_trigger(body: bytes) -> bytes | None:
    """Remove the last item of a request, if it asks to compact the history; else None."""
    if _TRIGGER not in body:
        return None
    try:
        listed = find_fields(body).get("input")
        places = find_values(body, listed) if listed is not None else []
    except WireError:
        return None
    if not places or listed is None:
        return None
    last = dict_of(msgspec.json.decode(body[slice(*places[-1])]))
    if kind_of(last) != "trigger":
        return None
    start = places[-2].end if len(places) > 1 else places[-1].start
    return body[:start] + body[places[-1].end :]


def find_threshold(parameters: Mapping[str, Any]) -> int | None:
    """Return the least `compact_threshold` that a request's `context_management` states."""
    given = parameters.get("context_management")
    if given is None:
        return None
    rows = list_of(msgspec.json.decode(given) if isinstance(given, msgspec.Raw) else given)
    stated = [
        row.get("compact_threshold")
        for row in map(dict_of, rows)
        if row.get("type") == "compaction"
    ]
    return min((one for one in stated if type(one) is int and one > 0), default=None)


def write_compaction(
    body: bytes, mark: FoldMark, *, name: str, created: int, posted: bool
) -> tuple[str, bytes]:
    """Write the content type and the body of an answer that names a fold."""
    request = parse_object(body)
    if posted:
        return _JSON, msgspec.json.encode(_write_compacted(request, mark, name, created))
    response = _write_response(mark, name, str(request.get("model")), created)
    if request.get("stream") is not True:
        return _JSON, msgspec.json.encode(response)
    return "text/event-stream; charset=utf-8", _write_stream(response)


def _write_item(mark: FoldMark, name: str) -> Json:
    return {"id": f"cmp_{name}", "type": "compaction", "encrypted_content": mark.encode()}


def _write_response(mark: FoldMark, name: str, model: str, created: int) -> Json:
    """Write the answer to a request that ended with a trigger."""
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": created,
        "status": "completed",
        "model": model,
        "output": [_write_item(mark, name)],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": _USAGE,
    }


def _write_stream(response: Json) -> bytes:
    """Write an answer as the events of a stream."""
    begun: Json = {**response, "status": "in_progress", "output": [], "usage": None}
    (item,) = response["output"]
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return b"".join(
        b"event: %s\ndata: %s\n\n"
        % (event["type"].encode(), msgspec.json.encode({**event, "sequence_number": at}))
        for at, event in enumerate(events)
    )


def _write_compacted(request: Json, mark: FoldMark, name: str, created: int) -> Json:
    """Write the answer to a posted history: the user's messages, then the item."""
    items = [one for one in list_of(request.get("input")) if kind_of(dict_of(one)) == "user"]
    return {
        "id": f"resp_{name}",
        "object": "response.compaction",
        "created_at": created,
        "output": [*items, _write_item(mark, name)],
        "usage": _USAGE,
    }

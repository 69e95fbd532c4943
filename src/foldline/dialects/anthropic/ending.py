"""How a request ends: with words to the model, or with the model's own, which it goes on with.

A request that ends with an answer asks the model to continue that answer. After `pause_turn`
providers want it so, whatever the model. An answer that the caller began ("prefill"), or that was
cut at its length, is continued by models up to 4.5. Later ones refuse it, as does any model that
thinks, or where the last words end in blanks. An answer that a model ended by itself is not
continued.

Knows these rules. Refuses to know what is said instead, and who writes it to the log.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.log import ModelSaid
from foldline.core.parts import Call, Media, spoken
from foldline.core.request import Request
from foldline.core.view import View
from foldline.dialects.anthropic.blocks import opened

_CALLS = {"server_tool_use", "mcp_tool_use"}  # the provider runs these, and may pause there
_CONTINUES = re.compile(  # models up to 4.5, by name, with or without a date
    r"claude-(?:v?2|instant|3|[a-z]+-4(?:[-.][0-5](?!\d))?(?=$|[@:]|-v\d|-\d{8}|-latest))"
)


def is_silent(request: Request) -> bool:
    """Whether a request has no message: the system's words alone are none."""
    return all(map(_is_blank, request.items))


def must_be_told(view: View, parameters: Mapping[str, Any]) -> bool:
    """Whether a request would end with an answer that the provider does not go on with."""
    if view.open:
        return False  # the calls are closed first, and end the request
    shown = (one for one in reversed((*view.items, *view.waiting)) if not _is_blank(one))
    last = next(shown, None)
    if last is None or last.role != "model":
        return False
    said = view.held.get(last.seq)
    if not isinstance(said, ModelSaid):
        return True
    return not (_is_paused(said) or _is_continued(said, view.model, parameters))


def _is_paused(said: ModelSaid) -> bool:
    """Whether the provider paused: its answer says so, or ends with a call that it runs itself."""
    if said.stop == "paused":
        return True
    content = opened(said.native)
    return bool(content and content.blocks and content.blocks[-1].kind in _CALLS)


def _is_continued(said: ModelSaid, model: str, parameters: Mapping[str, Any]) -> bool:
    """Whether the model goes on with words that it was given, or that were cut."""
    words = spoken(said.parts)
    ended = said.stop in ("done", "refused") and said.saw is not None
    takes = _CONTINUES.search(model.lower()) is not None and not _thinks(parameters)
    return takes and not ended and words == words.rstrip()


def _thinks(parameters: Mapping[str, Any]) -> bool:
    thinking = parameters.get("thinking")
    if isinstance(thinking, msgspec.Raw):
        thinking = msgspec.json.decode(thinking)
    return isinstance(thinking, Mapping) and thinking != {"type": "disabled"}


def _is_blank(item: Item) -> bool:
    """Whether nothing is written of an item: a thought or blank words, and nothing else."""
    if item.role == "result" or opened(item.native) is not None:
        return False
    return not any(isinstance(one, Call | Media) or spoken((one,)).strip() for one in item.parts)

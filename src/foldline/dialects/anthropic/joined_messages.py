"""Joins several messages of a model to the one that a client sees."""

from collections.abc import Mapping
from typing import Any, ClassVar

from foldline.dialects.joined_answers import JoinedEvents, Split
from foldline.dialects.json_slices import Json, dict_of, list_of

_COUNTS = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("cache_creation", "output_tokens"),
)
_CALL = "tool_use"


class JoinedMessages(JoinedEvents):
    """Messages, one after the other, as one: their blocks follow each other."""

    ids = ("id",)
    outputs = ("output_tokens", "output_tokens_details", "server_tool_use")
    stops: ClassVar[Mapping[str, str]] = {_CALL: "end_turn"}

    def _split_event(self, event: Json) -> Split:
        match event.get("type"):
            case "message_start":
                self._usage = dict_of(dict_of(event.get("message")).get("usage"))
                return ([event] if self._is_first else []), []
            case "content_block_start":
                ours = self._is_our_block(event.get("content_block"))
                self._places.mark(event.get("index"), ours=ours)
            case "message_delta":
                return [], [self._convert_end(event)]
            case "message_stop":
                return [], [event]
            case _:
                pass
        shown = self._places.renumber(event, "index")
        return ([] if shown is None else [shown]), []

    def _is_our_block(self, block: Any) -> bool:
        found = dict_of(block)
        return found.get("type") == _CALL and self._note_call(found.get("name"))

    def _convert_end(self, event: Json) -> Json:
        """Show the last answer's input, which its own beginning may have told, and all output."""
        given = dict_of(event.get("usage"))
        told = {name: count for name, count in given.items() if count is not None}
        self._usage = self._usage | told
        if not self._is_first:
            counts = {name: self._usage[name] for name in _COUNTS if name in self._usage}
            event = {**event, "usage": self._add_spent(counts | told)}
        delta = dict_of(event.get("delta"))
        stop = {"stop_reason": self._convert_stop(delta.get("stop_reason"))}
        return {**event, "delta": {**delta, **stop}} if "stop_reason" in delta else event

    def _join_body(self, joined: Json, body: Json) -> Json:
        shown = [block for block in list_of(body.get("content")) if not self._is_our_block(block)]
        said: Json = {
            "content": [*list_of(joined.get("content")), *shown],
            "stop_reason": self._convert_stop(body.get("stop_reason")),
        }
        told = self._join_usage(self._keep_ids(body))
        return {**joined, **told, **{name: said[name] for name in said if name in body}}

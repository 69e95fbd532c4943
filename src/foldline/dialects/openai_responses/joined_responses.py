"""Joins several responses of a model to the one that a client sees."""

from collections.abc import Callable
from typing import Any

from foldline.dialects.joined_answers import JoinedEvents, Split
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.openai_responses.items import PLAIN_OUTPUTS
from foldline.dialects.sse import SseEvent

_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_NUMBER = "sequence_number"


class JoinedResponses(JoinedEvents):
    """Responses, one after the other, as one: their items follow each other."""

    ids = ("id", "created_at", "previous_response_id")
    outputs = ("output_tokens", "output_tokens_details")

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        super().__init__(is_ours)
        self._before: list[Any] = []  # the items of earlier answers
        self._done: list[Any] = []  # the items of this one, as each was done
        self._listed: list[Any] = []  # the same, as the end lists them
        self._dropped_ids: set[str] = set()
        self._number = -1  # of the last event that the client got
        self._has_gap = False

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; its items stand before those of the next."""
        if not last:
            self._before += max(self._listed, self._done, key=len)
            self._done, self._listed = [], []
            self._has_gap = True
        return super().end_answer(last=last)

    def _split_event(self, event: Json) -> Split:
        kind = event.get("type")
        if self._must_drop(event):
            self._has_gap = True
            return [], []
        shown = {**event, **(self._places.renumber(event, "output_index") or {})}
        if kind == "response.output_item.done":
            self._done.append(event.get("item"))
        if isinstance(event.get("response"), dict):
            response = self._convert_response(event["response"])
            shown["response"] = self._list_output(response) if kind in _ENDS else response
        if type(event.get(_NUMBER)) is int:
            shown[_NUMBER] = self._number + 1 if self._has_gap else event[_NUMBER]
            # An end that is dropped leaves its number to what follows.
            self._number = self._number if kind in _ENDS else shown[_NUMBER]
        return ([], [shown]) if kind in _ENDS else ([shown], [])

    def _must_drop(self, event: Json) -> bool:
        """Whether the client must not see an event: our calls, and later beginnings."""
        if event.get("type") in _BEGINNINGS:
            return not self._is_first
        if isinstance(event.get("item"), dict):
            ours = self._is_our_item(event["item"])
            self._places.mark(event.get("output_index"), ours=ours)
            self._dropped_ids |= {str(event["item"].get("id"))} if ours else set()
            return ours
        if "output_index" in event:
            return self._places.renumber(event, "output_index") is None
        return str(event.get("item_id")) in self._dropped_ids

    def _is_our_item(self, item: Any) -> bool:
        found = dict_of(item)
        return str(found.get("type")) in PLAIN_OUTPUTS and self._note_call(found.get("name"))

    def _convert_response(self, response: Json) -> Json:
        return self._hide_tools(self._join_usage(self._keep_ids(response)))

    def _list_output(self, response: Json) -> Json:
        """Put the items of all answers into the last; a server may list fewer than it sent."""
        output = list_of(response.get("output"))
        self._listed = [item for item in output if not self._is_our_item(item)]
        if not (self._before or self._has_ours):
            return response
        return {**response, "output": self._before + max(self._listed, self._done, key=len)}

    def _join_body(self, joined: Json, body: Json) -> Json:
        return {**joined, **self._list_output(self._convert_response(body))}

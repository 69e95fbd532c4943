"""Assembles streamed responses, and joins several to the one that a client sees.

Items are taken whole, from the event that says they are done. A stream is complete when its last
event came: completed, incomplete or cancelled. One that ended before, or with an error, is cut: its
words stay, unfinished calls and reasoning are dropped.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from foldline.dialects.answers import Assembly, JoinedAnswer, Split
from foldline.dialects.json_slices import Json, convert_to_shape, dict_of, list_of
from foldline.dialects.openai_responses.items import PLAIN_OUTPUTS, item_id_of
from foldline.dialects.sse import SseEvent


class _ItemEvent(msgspec.Struct):
    item: Json
    output_index: int | None = None


class _TextEvent(msgspec.Struct):
    output_index: int | None = None
    content_index: int | None = None
    item_id: str | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None


class _ResponseEvent(msgspec.Struct):
    response: Json


DONE = "[DONE]"
_ITEM = "response.output_item."
_WORDS = {
    "response.output_text.delta": "output_text",
    "response.output_text.done": "output_text",
    "response.refusal.delta": "refusal",
    "response.refusal.done": "refusal",
}
_STATES = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_WHAT = "an event of a Responses stream"


class ResponsesAssembly(Assembly):
    """The events of one answer, as they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self._top: Json = {}
        self._listed: list[Json] = []
        self._items: dict[int, Json] = {}
        self._begun: dict[int, Json] = {}
        self._words: dict[int, dict[tuple[int, str], list[str]]] = {}

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return self.fault is None and self._ended

    @property
    def has_begun(self) -> bool:
        """Whether an item has begun, or the answer has ended."""
        return bool(self._ended or self.fault or self._begun or self._items or self._words)

    def add_event(self, data: str, *, whole: bool = True) -> None:
        """Add an event's data; what comes behind the end is ignored."""
        if not self._ended and data.strip() not in ("", DONE):
            super().add_event(data, whole=whole)

    def _apply_event(self, event: Json) -> None:
        kind = str(event.get("type"))
        if (fault := _find_fault(event)) is not None:
            self.fault = fault
        elif kind in _ENDS or kind in _STATES:
            self._apply_state(event, is_end=kind in _ENDS)
        elif kind in (f"{_ITEM}added", f"{_ITEM}done"):
            self._apply_item(event, is_done=kind == f"{_ITEM}done")
        elif kind in _WORDS:
            self._apply_words(event, _WORDS[kind])

    def build_body(self) -> Json:
        """Return the response as if not streamed; incomplete, its reason is "cut"."""
        body: Json = {"object": "response", **self._top, "output": self._build_output()}
        if not self.done:
            body |= {"status": "incomplete", "incomplete_details": {"reason": "cut"}}
            body.pop("error", None)
        return body

    def _build_output(self) -> list[Json]:
        """Return the items in order; the list of the last event may be empty or shorter."""
        known = {item_id_of(item) for item in self._items.values()} - {""}
        found = self._build_messages()
        for place, item in enumerate(self._listed):
            # Items have ids almost everywhere; without one, the place must do.
            if item_id_of(item) not in known and (item_id_of(item) or place not in self._items):
                found[place] = item
        found |= self._items
        return [found[place] for place in sorted(found)]

    def _build_messages(self) -> dict[int, Json]:
        """Build the messages that were begun and never done."""
        if self._listed:
            return {}
        found: dict[int, Json] = {}
        for place, words in self._words.items():
            texts = {key: "".join(pieces) for key, pieces in sorted(words.items())}
            content = [_make_part(kind, text) for (_, kind), text in texts.items() if text]
            if content:
                begun = self._begun.get(place, {})
                message = begun if begun.get("type") == "message" else {"type": "message"}
                fields = {"role": "assistant", "status": "incomplete", "content": content}
                found[place] = {**message, **fields}
        return found

    def _apply_state(self, event: Json, *, is_end: bool) -> None:
        response = convert_to_shape(event, _ResponseEvent, _WHAT).response
        self._top |= {key: value for key, value in response.items() if key != "output"}
        if not is_end:
            return
        self._ended = True
        self._listed = [dict_of(item) for item in list_of(response.get("output")) if dict_of(item)]
        if event["type"] == "response.failed":
            known = dict_of(response.get("error"))
            self.fault = known or {"message": "the response failed, and no error was given"}

    def _apply_item(self, event: Json, *, is_done: bool) -> None:
        came = convert_to_shape(event, _ItemEvent, _WHAT)
        if not is_done:
            if came.output_index is not None:
                self._begun[came.output_index] = came.item
            return
        place = came.output_index
        taken = self._items.get(place) if place is not None else None
        # Some servers leave the index out, or count every item as 0.
        if place is None or (taken and taken.get("id") != came.item.get("id")):
            place = max(self._items, default=-1) + 1
        self._items[place] = came.item

    def _apply_words(self, event: Json, kind: str) -> None:
        came = convert_to_shape(event, _TextEvent, _WHAT)
        words = self._words.setdefault(came.output_index or 0, {})
        key = (came.content_index or 0, kind)
        whole = came.text if kind == "output_text" else came.refusal
        if whole is not None and str(event["type"]).endswith(".done"):
            words[key] = [whole]
        elif came.delta:
            words.setdefault(key, []).append(came.delta)


def _make_part(kind: str, text: str) -> Json:
    if kind == "refusal":
        return {"type": kind, "refusal": text}
    return {"type": kind, "text": text, "annotations": []}


def _find_fault(event: Json) -> Json | None:
    """Return the error in an event, in any of the forms that servers use."""
    kind = event.get("type")
    fault = event.get("error")
    if isinstance(fault, dict) and (kind is None or kind == "error"):
        return cast("Json", fault)
    if kind == "error" or (kind is None and (fault or event.get("object") == "error")):
        words = {"message": fault} if isinstance(fault, str) else {}
        hidden = ("type", "sequence_number", "error")
        return {key: value for key, value in event.items() if key not in hidden} | words
    return None


_NUMBER = "sequence_number"


class JoinedResponses(JoinedAnswer):
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
        """End the answer under way; its items come before those of the next."""
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
        if event.get("type") in _STATES:
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

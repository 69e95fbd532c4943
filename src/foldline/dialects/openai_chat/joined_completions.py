"""Joins several completions of a model to the one that a client sees."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

from foldline.dialects.joined_answers import JoinedEvents, Places, Split, find_kept
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.sse import SseEvent

_WORDS = ("content", "refusal", "reasoning", "reasoning_content")
_LEGACY = "function_call"
_DETAILS = "reasoning_details"


class JoinedCompletions(JoinedEvents):
    """Completions, one after the other, as one: their texts are one text for the client."""

    ids = ("id", "created")
    outputs = ("completion_tokens", "completion_tokens_details")
    stops: ClassVar[Mapping[str, str]] = {"tool_calls": "stop", _LEGACY: "stop"}

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        super().__init__(is_ours)
        self._ours: dict[Any, bool] = {}  # by id and by index
        self._is_newest_ours = False
        self._details = Places()
        self._message: Json = {}

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; calls of the next are other calls."""
        if not last:
            self._ours.clear()
            self._details.start_answer()
        return super().end_answer(last=last)

    def _split_event(self, event: Json) -> Split:
        chunk = self._join_usage(self._keep_ids(event))
        choices = list_of(chunk.get("choices"))
        place = find_kept(choices)
        if place is None:
            is_report = not choices and isinstance(chunk.get("usage"), dict)
            return ([], [chunk]) if is_report else ([chunk], [])
        choice = dict_of(choices[place])
        name = "delta" if isinstance(choice.get("delta"), dict) else "message"
        given = dict_of(choice.get(name))
        delta = self._convert_delta(given)
        reason = choice.get("finish_reason")

        def write(said: Json, reason: Any) -> Json:
            changed = {**choice, "finish_reason": reason} if "finish_reason" in choice else choice
            changed = changed if said == given else {**changed, name: said}
            return {**chunk, "choices": [*choices[:place], changed, *choices[place + 1 :]]}

        if not reason:
            is_empty = delta != given and not any(delta.values())
            return ([] if is_empty else [write(delta, reason)]), []
        ended = self._convert_stop(reason)
        if not self._has_ours:  # no other answer follows
            return [], [write(delta, ended)]
        said = {key: value for key, value in write(delta, None).items() if key != "usage"}
        return ([said] if any(delta.values()) else []), [write({}, ended)]

    def _convert_delta(self, given: Json) -> Json:
        """Return a delta, or a whole message, without our calls."""
        delta = {key: one for key, one in given.items() if self._is_first or key != "role"}
        if "content" in delta:
            delta["content"] = self._convert_content(delta["content"])
        if details := list_of(given.get(_DETAILS)):
            delta[_DETAILS] = [self._details.renumber(dict_of(one), "index") for one in details]
        legacy = given.get(_LEGACY)
        if isinstance(legacy, dict) and self._is_our_call([_LEGACY], cast("Json", legacy)):
            del delta[_LEGACY]
        if calls := list_of(given.get("tool_calls")):
            shown = [self._convert_call(dict_of(call)) for call in calls]
            delta["tool_calls"] = [call for call in shown if call is not None]
            if not delta["tool_calls"]:
                del delta["tool_calls"]
        return delta

    def _convert_content(self, content: Any) -> Any:
        if not isinstance(content, list):
            return self._text.add_piece(content)
        pieces = [dict_of(piece) for piece in cast("list[Any]", content)]
        return [
            {**piece, "text": self._text.add_piece(piece.get("text"))}
            if piece.get("type") == "text" and "text" in piece
            else piece
            for piece in pieces
        ]

    def _convert_call(self, call: Json) -> Json | None:
        named = dict_of(call.get("function")) or dict_of(call.get("custom"))
        given = (call.get("id"), call.get("index"))
        keys = [key for key in given if isinstance(key, str | int) and key != ""]
        ours = self._is_our_call(keys, named)
        self._places.mark(call.get("index"), ours=ours)
        return None if ours else self._places.renumber(call, "index")

    def _is_our_call(self, keys: Sequence[Any], named: Json) -> bool:
        """Find whose a call is: by its name, which may come only once, or by what it came with."""
        if name := named.get("name"):
            ours = self._note_call(name)
            self._ours |= dict.fromkeys(keys, ours)
        elif keys:
            ours = next((self._ours[key] for key in keys if key in self._ours), False)
        else:
            ours = self._is_newest_ours
        self._is_newest_ours = ours
        return ours

    def _join_body(self, joined: Json, body: Json) -> Json:
        told = self._join_usage(self._keep_ids(body))
        choices = list_of(told.get("choices"))
        place = find_kept(choices)
        if place is None:
            return {**told, **joined} if joined else told
        choice = {**dict_of(choices[place])}
        if isinstance(choice.get("message"), dict):
            for name, value in self._convert_delta(choice["message"]).items():
                self._message[name] = _join_values(name, self._message.get(name), value)
            choice["message"] = self._message
        if "finish_reason" in choice:
            choice["finish_reason"] = self._convert_stop(choice["finish_reason"])
        return {**joined, **told, "choices": [*choices[:place], choice, *choices[place + 1 :]]}


def _join_values(name: str, said: Any, value: Any) -> Any:
    """Add what a later message has in a field to what the earlier ones had."""
    if said is None or value is None:
        return cast("Any", said if value is None else value)
    if name in _WORDS and isinstance(said, str) and isinstance(value, str):
        return said + value
    if name == "content" or (isinstance(said, list) and isinstance(value, list)):
        return [*_list_pieces(said), *_list_pieces(value)]
    return value


def _list_pieces(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list_of(content)

"""Assembles streamed completions, and joins several to the one that a client sees.

A stream is complete when its marker came, or a finish reason if the server sends no marker. One
that ended before, or with an error, is cut: its words stay, unfinished calls are dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import msgspec

from foldline.dialects.answers import Assembly, JoinedAnswer, Places, Split, find_kept
from foldline.dialects.json_slices import Json, convert_to_shape, dict_of, list_of
from foldline.dialects.sse import SseEvent


class _FunctionDelta(msgspec.Struct):
    name: str | None = None
    arguments: str | Json | None = None


class _CustomDelta(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class _CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionDelta | None = None
    custom: _CustomDelta | None = None


class _Delta(msgspec.Struct):
    content: str | list[Json] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallDelta] | None = None
    function_call: _FunctionDelta | None = None


class _StreamChoice(msgspec.Struct):
    index: int | None = None
    delta: Json | None = None
    message: Json | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_StreamChoice] | None = None


DONE = "[DONE]"
_WORDS = ("refusal", "reasoning", "reasoning_content")
_READ = {*_WORDS, "role", "content", "tool_calls", "function_call"}
_GROWS = ("text", "summary", "data", "transcript", "thinking")
"""Keys of texts, inside a delta's lists and objects, that arrive in pieces."""
_DEEPEST = 16
_PER_CHUNK = {"choices", "object", "obfuscation", "error"}


@dataclass(slots=True)
class _PartialCall:
    """The part of a call that has arrived."""

    id: str = ""
    name: str = ""
    custom: bool = False
    wrote: list[str] = field(default_factory=list[str])
    place: int | None = None

    @property
    def text(self) -> str:
        return "".join(self.wrote)


class ChatAssembly(Assembly):
    """The deltas of one answer, as they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = True  # every event of this dialect says something
        self._reason: str | None = None
        self._top: Json = {}
        self._words: dict[str, list[str]] = {}
        self._content: list[str | Json] = []
        self._calls: list[_PartialCall] = []
        self._places: dict[int, _PartialCall] = {}
        self._ids: dict[str, _PartialCall] = {}
        self._legacy: _PartialCall | None = None
        self._newest: _PartialCall | None = None
        self._more: dict[str, list[Any]] = {}
        self._answered = False

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return self.fault is None and (self._ended or self._reason is not None)

    def add_event(self, data: str, *, whole: bool = True) -> None:
        """Add an event's data; the mark at the end is none."""
        self._ended = self._ended or data.strip() == DONE
        if not self._ended and data.strip():
            super().add_event(data, whole=whole)

    def _apply_event(self, event: Json) -> None:
        if (fault := _find_fault(event)) is not None:
            self.fault = fault
            return
        came = convert_to_shape(event, _Chunk, "a chunk of an OpenAI completion")
        for name, value in event.items():
            if name not in _PER_CHUNK and value is not None:
                self._top[name] = value
        for place, choice in enumerate(came.choices or ()):
            if not choice.index:  # of several answers, keep the first
                self._apply_choice(choice, f"$.choices[{place}]")

    def build_body(self) -> Json:
        """Return the completion as if not streamed; incomplete, its finish reason is "cut"."""
        if self.done and not self._answered:
            return {**self._top, "object": "chat.completion", "choices": []}
        calls = [call for call in self._calls if self.done or self._is_finished(call)]
        message: Json = {"role": "assistant", "content": self._join_content()}
        message |= {name: "".join(words) for name, words in self._words.items()}
        message |= {name: _merge_values(values, name) for name, values in self._more.items()}
        if self._legacy and (self.done or self._is_finished(self._legacy)):
            function = {"name": self._legacy.name, "arguments": self._legacy.text}
            message["function_call"] = function
        if calls:
            message["tool_calls"] = [_encode_call(call) for call in calls]
        reason = (self._reason or "stop") if self.done else "cut"
        reason = "tool_calls" if reason == "stop" and calls else reason
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {**self._top, "object": "chat.completion", "choices": [choice]}

    def _apply_choice(self, choice: _StreamChoice, path: str) -> None:
        # A server that does not stream may send the whole message in place of a delta.
        more = choice.delta if choice.delta is not None else choice.message
        self._reason = choice.finish_reason or self._reason
        self._answered = self._answered or more is not None or self._reason is not None
        if more is None:
            return
        where = f"{path}.{'delta' if choice.delta is not None else 'message'}"
        delta = convert_to_shape(more, _Delta, "a delta of an OpenAI completion", path=where)
        if delta.content:
            self._content += [delta.content] if isinstance(delta.content, str) else delta.content
        elif delta.content == "" and not self._content:
            self._content.append("")
        for name in _WORDS:
            if words := getattr(delta, name):
                self._words.setdefault(name, []).append(words)
        if delta.function_call:
            self._legacy = self._legacy or _PartialCall()
            self._apply_function_delta(self._legacy, delta.function_call)
        for call in delta.tool_calls or ():
            self._apply_call_delta(call)
        for name, value in more.items():
            if name not in _READ and value is not None:
                self._more.setdefault(name, []).append(value)

    def _apply_call_delta(self, came: _CallDelta) -> None:
        call = self._resolve_call(came)
        call.id = call.id or came.id or ""
        if came.function:
            self._apply_function_delta(call, came.function)
        if came.custom:
            call.custom = True
            call.name = call.name or came.custom.name or ""
            call.wrote.append(came.custom.input or "")
            self._newest = call

    def _resolve_call(self, came: _CallDelta) -> _PartialCall:
        """Find a delta's call by index or id, else the last one; add it if it is new."""
        of = came.function or came.custom
        named = bool(of and of.name)
        call: _PartialCall | None = None
        if came.id in self._ids and self._ids[came.id].place == came.index:
            call = self._ids[came.id]
        elif came.index is not None:
            call = self._places.get(came.index)
            # Some servers count every call as 0: another id with a name is another call.
            if call and call.id and came.id and named:
                call = None
        elif not came.id and self._calls and not (named and self._calls[-1].name):
            call = self._calls[-1]
        if call is None:
            call = _PartialCall(place=came.index)
            self._calls.append(call)
        if came.index is not None:
            self._places[came.index] = call
        if came.id:
            self._ids.setdefault(came.id, call)
        return call

    def _apply_function_delta(self, call: _PartialCall, came: _FunctionDelta) -> None:
        call.name = call.name or came.name or ""
        if isinstance(came.arguments, dict):
            call.wrote.append(msgspec.json.encode(came.arguments).decode())
        elif came.arguments:
            call.wrote.append(came.arguments)
        self._newest = call

    def _is_finished(self, call: _PartialCall) -> bool:
        """Whether a call of a broken stream is complete."""
        last = call is self._newest
        if call.custom or not call.text:
            return bool(call.name) and not last
        try:
            wrote = msgspec.json.decode(call.text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return False
        return bool(call.name) and isinstance(wrote, dict)

    def _join_content(self) -> str | list[Json] | None:
        if all(isinstance(piece, str) for piece in self._content):
            return "".join(cast("list[str]", self._content)) if self._content else None
        return _join_pieces(
            [
                {"type": "text", "text": piece} if isinstance(piece, str) else piece
                for piece in self._content
            ]
        )


def _encode_call(call: _PartialCall) -> Json:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.text}}
    function = {"name": call.name, "arguments": call.text}
    return {"id": call.id, "type": "function", "function": function}


def _find_fault(chunk: Json) -> Json | None:
    """Return the error in a chunk, in any of the forms that servers use."""
    fault = chunk.get("error")
    if isinstance(fault, dict):
        return cast("Json", fault)
    if fault:
        return {"message": str(fault)}
    return chunk if chunk.get("object") == "error" else None


def _merge_values(values: list[Any], name: str, depth: int = 0) -> Any:
    """Merge the deltas of a field that we do not read; runs once at the end, so it is linear."""
    values = [value for value in values if value is not None] or [None]
    if len(values) == 1 or depth > _DEEPEST:
        return values[-1]
    if all(isinstance(value, str) for value in values):
        return "".join(values) if name in _GROWS else values[-1]
    if all(isinstance(value, dict) for value in values):
        fields: dict[str, list[Any]] = {}
        for value in cast("list[Json]", values):
            for key, one in value.items():
                fields.setdefault(key, []).append(one)
        return {key: _merge_values(ones, key, depth + 1) for key, ones in fields.items()}
    if all(isinstance(value, list) for value in values):
        return _join_pieces([piece for value in values for piece in value], depth + 1)
    return values[-1]


def _join_pieces(pieces: list[Any], depth: int = 0) -> list[Any]:
    """Merge neighbours in a list that continue each other."""
    runs: list[list[Any]] = []
    for piece in pieces:
        if runs and _goes_on(runs[-1][-1], piece):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [_merge_values(run, "", depth) for run in runs]


def _goes_on(last: Any, piece: Any) -> bool:
    if not isinstance(last, dict) or not isinstance(piece, dict):
        return False
    before, new = cast("Json", last), cast("Json", piece)
    same = all(before.get(key) == new.get(key) for key in ("type", "index"))
    return same and any(isinstance(new.get(key), str | list) for key in _GROWS)


_TEXTS = ("content", "refusal", "reasoning", "reasoning_content")
_LEGACY = "function_call"
_DETAILS = "reasoning_details"


class JoinedCompletions(JoinedAnswer):
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
        merged = self._join_usage(self._keep_ids(body))
        choices = list_of(merged.get("choices"))
        place = find_kept(choices)
        if place is None:
            return {**merged, **joined} if joined else merged
        choice = {**dict_of(choices[place])}
        if isinstance(choice.get("message"), dict):
            for name, value in self._convert_delta(choice["message"]).items():
                self._message[name] = _join_values(name, self._message.get(name), value)
            choice["message"] = self._message
        if "finish_reason" in choice:
            choice["finish_reason"] = self._convert_stop(choice["finish_reason"])
        return {**joined, **merged, "choices": [*choices[:place], choice, *choices[place + 1 :]]}


def _join_values(name: str, said: Any, value: Any) -> Any:
    """Add what a later message has in a field to what the earlier ones had."""
    if said is None or value is None:
        return cast("Any", said if value is None else value)
    if name in _TEXTS and isinstance(said, str) and isinstance(value, str):
        return said + value
    if name == "content" or (isinstance(said, list) and isinstance(value, list)):
        return [*_list_pieces(said), *_list_pieces(value)]
    return value


def _list_pieces(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list_of(content)

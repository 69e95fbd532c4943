"""Assembles streamed answers, and joins several to the one answer that a client sees.

A proxy may offer the model tools of its own. It answers their calls itself and asks again; its
client sees the words of every answer, and never those calls. This module has the rules that all
dialects share: which events pass, which wait for the end of their answer, and which counts are
added. Each dialect says which of its events are which.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, cast

import msgspec

from foldline.dialects.json_slices import Json, dict_of, list_of, parse_count, parse_object
from foldline.dialects.sse import SseEvent
from foldline.errors import WireError

Split: TypeAlias = tuple[list[Json], list[Json]]
"""The events that the client gets at once, and those that wait for the end of the answer."""
_DONE = "[DONE]"
_BLANK_LINE = "\n\n"


class Assembly(ABC):
    """An answer being streamed."""

    def __init__(self) -> None:
        self.fault: Json | None = None
        """The error that the server sent in the middle of its answer."""
        self._ended = self._begun = False

    @property
    def done(self) -> bool:
        """Whether it is complete; one without its end was cut."""
        return self._ended

    @property
    def has_begun(self) -> bool:
        """Whether words or a refusal came: the events before only announce an answer."""
        return self._begun

    def add_event(self, data: str, *, whole: bool = True) -> None:
        """Add an event's data; the last of a broken stream may not be `whole`, and is ignored."""
        try:
            event = parse_object(data)
        except WireError:
            if whole:
                raise
            return
        self._apply_event(event)

    @abstractmethod
    def _apply_event(self, event: Json) -> None:
        """Apply an event to what has arrived; unknown events are ignored."""

    @abstractmethod
    def build_body(self) -> Json:
        """Return the answer as if it had not been streamed; of a cut one only whole parts."""


class Places:
    """Where a client sees the items of an answer: behind the earlier ones, without our calls."""

    def __init__(self) -> None:
        self._start = self._end = 0
        self._dropped: set[int] = set()

    def mark(self, index: Any, *, ours: bool) -> None:
        """Say whose the item at an index is; a server may use an index again."""
        if type(index) is int:
            (self._dropped.add if ours else self._dropped.discard)(index)

    def renumber(self, event: Json, name: str) -> Json | None:
        """Return an event with the index that the client sees; None if its item is dropped."""
        index = event.get(name)
        if type(index) is not int:
            return event
        if index in self._dropped:
            return None
        place = self._start + index - sum(one < index for one in self._dropped)
        self._end = max(self._end, place + 1)
        return {**event, name: place}

    def start_answer(self) -> None:
        """Count the next answer's items behind all that the client has seen."""
        self._start = self._end
        self._dropped.clear()


class JoinedText:
    """Puts a blank line between the texts of answers that are one text for the client."""

    def __init__(self) -> None:
        self._has_said = self._is_saying = False
        self._blank = ""

    def add_piece(self, piece: Any) -> Any:
        """Return a piece of text as the client gets it; white space waits for the words after."""
        if not isinstance(piece, str):
            return piece
        has_words = bool(piece.strip())
        if self._has_said and not self._is_saying:
            piece = self._blank + piece
            self._blank = "" if has_words else piece
            piece = _BLANK_LINE + piece if has_words else ""
        self._is_saying = self._is_saying or has_words
        return piece

    def start_answer(self) -> None:
        """Remember whether the answer has said anything."""
        self._has_said = self._has_said or self._is_saying
        self._is_saying, self._blank = False, ""


class JoinedAnswer(ABC):
    """Answers of a model, one after the other, as the one answer that a client sees.

    `is_ours` says which tools the client must not see: the proxy answers their calls itself.
    """

    ids: ClassVar[tuple[str, ...]]
    """Fields of an answer that stay as the first answer has them."""
    usage: ClassVar[str] = "usage"
    outputs: ClassVar[tuple[str, ...]]
    """Fields of its usage that are summed over all answers; the others are the last answer's."""
    total: ClassVar[str] = "total_tokens"
    stops: ClassVar[Mapping[str, str]] = {}
    """Why an answer with calls ended → the reason for a client that sees none of them."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._is_first = True
        self._is_last = False
        self._held: list[SseEvent] = []
        self._first_ids: Json = {}
        self._calls: set[bool] = set()  # of the answer under way: whether each is ours
        self._usage: Json = {}
        self._spent: Json = {}  # the output of the answers before
        self._places = Places()
        self._text = JoinedText()

    @abstractmethod
    def _split_event(self, event: Json) -> Split:
        """Return the events that the client gets for one, with the end of the answer apart."""

    @abstractmethod
    def _join_body(self, joined: Json, body: Json) -> Json:
        """Add a whole answer to those before."""

    def add_event(self, sent: SseEvent) -> list[SseEvent]:
        """Take an event of the answer under way; return the events that the client gets."""
        if sent.data.strip() == _DONE:
            return self._hold_ends([], [sent])
        try:
            event = parse_object(sent.data)
        except WireError:
            return [sent]
        kinds = (event.get(name) for name in ("type", "event_type", "object"))
        if event.get("error") or "error" in kinds:
            return [sent]

        def write(body: Json) -> SseEvent:
            same = body == event
            return sent if same else sent._replace(data=msgspec.json.encode(body).decode())

        passed, ends = self._split_event(event)
        return self._hold_ends([*map(write, passed)], [*map(write, ends)])

    def _hold_ends(self, passed: list[SseEvent], ends: list[SseEvent]) -> list[SseEvent]:
        if self._is_last:
            return passed + ends
        if self._held:  # the end has begun: nothing passes it
            passed, ends = [], passed + ends
        self._held += ends
        return passed

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; return its delayed events if it is the `last`.

        Call it once the answer is complete, or broken. What comes after the last passes at once.
        """
        held, self._held = self._held, []
        self._is_last = last
        if last:
            return held
        self._is_first = False
        counted = {name: _add_counts(self._spent, self._usage, name) for name in self.outputs}
        self._spent = {name: count for name, count in counted.items() if count is not None}
        self._usage = {}
        self._calls.clear()
        self._places.start_answer()
        self._text.start_answer()
        return []

    def join_bodies(self, bodies: Sequence[Json]) -> Json:
        """Return whole answers as one body."""
        joined: Json = {}
        for body in bodies:
            joined = self._join_body(joined, body)
            self.end_answer(last=False)
        return joined

    def _note_call(self, name: Any) -> bool:
        """Return whether a call that the answer has is ours."""
        ours = isinstance(name, str) and self._is_ours(name)
        self._calls.add(ours)
        return ours

    @property
    def _has_ours(self) -> bool:
        return True in self._calls

    def _convert_stop(self, reason: Any) -> Any:
        """Return why the answer ended, for a client that does not see our calls."""
        hides_all = self._calls == {True} and isinstance(reason, str)
        return self.stops.get(reason, reason) if hides_all else reason

    def _keep_ids(self, body: Json) -> Json:
        """Return an answer, or a chunk of it, with the first answer's ids."""
        if self._is_first:
            found = {name: body[name] for name in self.ids if name in body}
            self._first_ids = found | self._first_ids
            return body
        return {name: self._first_ids.get(name, value) for name, value in body.items()}

    def _join_usage(self, body: Json) -> Json:
        """Return what reports an answer's usage, with the output of the answers before."""
        usage = body.get(self.usage)
        if not isinstance(usage, dict):
            return body
        self._usage = cast("Json", usage)
        return {**body, self.usage: self._add_spent(self._usage)}

    def _add_spent(self, usage: Json) -> Json:
        joined = {**usage}
        for name in self._spent:
            joined[name] = _add_counts(self._spent, usage, name)
        total = parse_count(usage, self.total)
        if total is not None:
            joined[self.total] = total + sum(
                parse_count(self._spent, name) or 0 for name in self._spent
            )
        return joined

    def _hide_tools(self, body: Json) -> Json:
        """Return an answer that repeats the tools of its request, without ours."""
        tools = [dict_of(tool) for tool in list_of(body.get("tools"))]
        shown = [tool for tool in tools if not self._is_ours(str(tool.get("name")))]
        return body if shown == tools else {**body, "tools": shown}


def _add_counts(one: Json, other: Json, name: str) -> Any:
    """Add a count, or the counts inside an object; None if neither has it."""
    first, second = one.get(name), other.get(name)
    if isinstance(first, dict) and isinstance(second, dict):
        held, more = cast("Json", first), cast("Json", second)
        return {key: _add_counts(held, more, key) for key in held | more}
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return cast("Any", first if second is None else second)


def find_kept(answers: Sequence[Any]) -> int | None:
    """Return the place of the first answer, if a server gives several at once; else None."""
    found = (place for place, one in enumerate(answers) if not dict_of(one).get("index"))
    return next(found, None)

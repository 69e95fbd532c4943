"""Answers in which the model calls the tool `recall`, which its client does not know.

    model:    words · recall(…)        →  asked again, with the answer from the log
    model:    more words · read(…)     →  the client gets: words · more words · read(…)

The client sees one answer, without the calls and results of `recall`. In later requests the model
is shown all of it: `session.client_row` calls such an answer joined.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from foldline.core.log import Event, ModelSaid, ToolReturned
from foldline.core.parts import Call, Text, calls_of
from foldline.core.plan import RECALL, measure_recall_room
from foldline.dialects.base import Assembly, Dialect
from foldline.dialects.json_slices import Json, parse_object
from foldline.dialects.sse import SseEvent, write_event
from foldline.errors import WireError
from foldline.session import recall_tool
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from foldline.session.log_handle import Live

_MOST_ROUNDS = 8  # of one answer
_LEAST = 200  # tokens: with less room there is nothing to recall
_SILENT = "silent"  # stands for the digest of an answer of which the client gets nothing
_ENOUGH = "This answer has recalled enough: go on with what you know."


def _is_recall_name(name: str) -> bool:
    return name == RECALL


class Rounds:
    """The answers to one request of a client, of which each but the last only calls `recall`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._joined = dialect.join_answers(_is_recall_name)
        self._client = dialect.make_assembly()  # the answer as the client gets it
        self._bodies: list[Json] = []  # the answers that were not streamed
        self._over = self._has_enough = False
        self.count = 0
        """How often the model was asked again."""
        self.goes_on = False
        """Whether the newest answer only calls `recall`: the model is asked again."""

    def start_answer(self) -> None:
        """Begin to read an answer; what was read of one that is asked for again is forgotten."""
        self.goes_on = self._over = False
        if self.count:
            self._joined.end_answer(last=False)
        else:
            self._joined = self._dialect.join_answers(_is_recall_name)
            self._client = self._dialect.make_assembly()

    def read_event(self, sent: SseEvent, heard: Assembly) -> bytes:
        """Take an event, which `heard` has read; return what the client gets."""
        passed = self._joined.add_event(sent)
        if self.goes_on:
            return b""  # all is said, but the usage may come
        if heard.done and not self._over:
            self._over, self.goes_on = True, self._calls_only_recall(heard.build_body())
            passed += [] if self.goes_on else self._joined.end_answer(last=True)
        return self._write_events(passed)

    def end_rounds(self) -> bytes:
        """Ask no more: the answer was cut, or its calls are not answered; return what is left."""
        if self._bodies or (self._over and not self.goes_on):
            self.goes_on = False
            return b""
        self._over, self.goes_on = True, False
        return self._write_events(self._joined.end_answer(last=True))

    def end_body(self, raw: bytes) -> bytes:
        """Take an answer that was not streamed; return what the client gets of all so far."""
        try:
            body = parse_object(raw)
        except WireError:
            return raw
        self.goes_on = self._calls_only_recall(body)
        self._bodies.append(body)
        joined = self._join_bodies()
        return raw if joined == body else msgspec.json.encode(joined)

    def ask_again(self) -> None:
        """Go on to the next answer: the calls of this one are answered."""
        self.count += 1

    def is_joined(self, said: ModelSaid) -> bool:
        """Whether the client has less than all of an answer, of which this is the newest part."""
        return self.count > 0 or bool(list_recalls(said))

    def read_client_answer(self) -> tuple[str, str]:
        """Return the digest of the answer as its client will repeat it, and its id."""
        body = self._join_bodies() if self._bodies else self._client.build_body()
        said = self._dialect.encode_answer(body)
        digest = self._dialect.describe_message(said[-1]).digest if said else _SILENT
        return digest, str(body.get("id") or "")

    async def append_results(self, live: "Live", calls: Sequence[Call], *, link: str = "") -> None:
        """Answer calls from the log, into the log; with `link` the client's message ends there."""
        for at, call in enumerate(calls):
            if self.count >= _MOST_ROUNDS or measure_recall_room(live.view, live.facts) < _LEAST:
                words, self._has_enough = _ENOUGH, True
            else:
                words = await recall_tool.answer_recall(AsyncSession(live), call.arguments)
            ends = bool(link) and at == len(calls) - 1
            result = ToolReturned(call.id, (Text(words),), link=link if ends else "", more=not ends)
            await live.receive_events(result)

    def _join_bodies(self) -> Json:
        return self._dialect.join_answers(_is_recall_name).join_bodies(self._bodies)

    def _write_events(self, events: Sequence[SseEvent]) -> bytes:
        for one in events:
            with suppress(WireError):  # the client reads it as well or as badly
                self._client.add_event(one.data)
        return b"".join(map(write_event, events))

    def _calls_only_recall(self, body: Json) -> bool:
        if self._has_enough:
            return False
        try:
            said = self._dialect.parse_answer(body, None, None)[0]
        except WireError:
            return False
        calls = calls_of(said.parts) if isinstance(said, ModelSaid) else ()
        return bool(calls) and all(recall_tool.is_recall(call) for call in calls)


def list_recalls(said: Event) -> list[Call]:
    """List the calls of `recall` in an answer."""
    calls = calls_of(said.parts) if isinstance(said, ModelSaid) else ()
    return [call for call in calls if recall_tool.is_recall(call)]

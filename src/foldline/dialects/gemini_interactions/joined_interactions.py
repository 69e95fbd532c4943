"""Joins several interactions of a model to the one that a client sees."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from foldline.dialects.gemini_interactions.steps import CALL, type_of
from foldline.dialects.gemini_interactions.stream import ENDED
from foldline.dialects.joined_answers import JoinedEvents, Split
from foldline.dialects.json_slices import Json, dict_of
from foldline.dialects.sse import SseEvent


class JoinedInteractions(JoinedEvents):
    """Interactions, one after the other, as one: their steps follow each other."""

    ids = ("id", "created", "previous_interaction_id")
    outputs = ("total_output_tokens", "total_thought_tokens")
    stops: ClassVar[Mapping[str, str]] = {"requires_action": "completed"}

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        super().__init__(is_ours)
        self._before: list[Any] = []  # the steps of earlier answers, if they were listed
        self._listed: list[Any] = []

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; its steps stand before those of the next."""
        if not last:
            self._before += self._listed
            self._listed = []
        return super().end_answer(last=last)

    def _split_event(self, event: Json) -> Split:
        if isinstance(event.get("interaction"), dict):
            event = {**event, "interaction": self._convert_interaction(event["interaction"])}
        match event.get("event_type"):
            case "interaction.created":
                return ([event] if self._is_first else []), []
            case "interaction.completed":
                return [], [event]
            case "interaction.status_update":
                event = self._convert_status(self._join_usage(event))
                if event.get("status") in ENDED:
                    return [], [event]
                return ([event] if self._is_first else []), []
            case "step.start":
                self._places.mark(event.get("index"), ours=self._is_our_step(event.get("step")))
            case _:
                pass
        shown = self._places.renumber(event, "index")
        return ([] if shown is None else [shown]), []

    def _is_our_step(self, step: Any) -> bool:
        found = dict_of(step)
        return type_of(found) == CALL and self._note_call(found.get("name"))

    def _convert_status(self, told: Json) -> Json:
        ids = {"interaction_id": self._first_ids.get("id", told.get("interaction_id"))}
        stop = {"status": self._convert_stop(told.get("status"))}
        return {**told, **{name: one for name, one in (ids | stop).items() if name in told}}

    def _convert_interaction(self, told: Json) -> Json:
        if isinstance(told.get("steps"), list):
            self._listed = [step for step in told["steps"] if not self._is_our_step(step)]
            told = {**told, "steps": self._before + self._listed}
        return self._convert_status(self._hide_tools(self._join_usage(self._keep_ids(told))))

    def _join_body(self, joined: Json, body: Json) -> Json:
        return {**joined, **self._convert_interaction(body)}

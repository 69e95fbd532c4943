"""Assembles an interaction from the events of a stream, and joins several to one."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from foldline.dialects.answers import Assembly, JoinedAnswer, Split
from foldline.dialects.gemini_interactions.steps import CALL, type_of
from foldline.dialects.json_slices import Json, decode_object, dict_of, list_of
from foldline.dialects.sse import SseEvent
from foldline.errors import WireError

_MOST_STEPS = 10_000  # of one answer: a server that counts further is broken
ENDED = ("completed", "requires_action", "incomplete", "budget_exceeded", "failed", "cancelled")
"""How an interaction ends."""
_CONTENTS = ("image", "audio", "document", "video")


class InteractionsAssembly(Assembly):
    """An interaction being streamed."""

    def __init__(self) -> None:
        super().__init__()
        self._interaction: Json = {}
        self._steps: dict[int, Json] = {}
        self._texts: dict[int, list[str]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._whole: set[int] = set()

    def add_event(self, data: str, *, whole: bool = True) -> None:
        """Add an event's data; a mark at the end is none."""
        if data != "[DONE]":
            super().add_event(data, whole=whole)

    def _apply_event(self, event: Json) -> None:
        match event.get("event_type"):
            case "interaction.created" | "interaction.completed" as kind:
                interaction = dict_of(event.get("interaction"))
                self._interaction |= {
                    key: one for key, one in interaction.items() if one is not None
                }
                self._ended = self._ended or kind == "interaction.completed"
                self._begun = self._begun or self._ended
            case "interaction.status_update":
                status = event.get("status")
                self._interaction["status"] = status
                self._ended = self._ended or status in ENDED
            case "step.start":
                index = self._parse_index(event)
                self._steps[index] = {**dict_of(event.get("step"))}
                self._begun = True
            case "step.delta":
                self._apply_delta(self._parse_index(event), dict_of(event.get("delta")))
            case "step.stop":
                self._whole.add(self._parse_index(event))
            case "error":
                self.fault = {"error": dict_of(event.get("error")) or event}
            case _:
                pass

    def _parse_index(self, event: Json) -> int:
        index = event.get("index")
        if not isinstance(index, int) or not 0 <= index < _MOST_STEPS:
            raise WireError(f"a step at {index!r} in a stream", path="$.index")
        return index

    def _apply_delta(self, index: int, delta: Json) -> None:
        step = self._steps.setdefault(index, {"type": "model_output"})
        match delta.get("type"):
            case "text":
                self._texts.setdefault(index, []).append(str(delta.get("text") or ""))
            case "arguments_delta":
                self._arguments.setdefault(index, []).append(str(delta.get("arguments") or ""))
            case "thought_signature":
                step["signature"] = delta.get("signature")
            case "thought_summary":
                step["summary"] = [*list_of(step.get("summary")), delta.get("content")]
            case kind if kind in _CONTENTS:
                self._end_text(index)
                step["content"] = [*list_of(step.get("content")), delta]
            case _:
                rest = {key: one for key, one in delta.items() if key not in ("type", "text")}
                step |= rest if type_of(step) == delta.get("type") else {}

    def _end_text(self, index: int) -> None:
        words = "".join(self._texts.pop(index, ()))
        if words:
            step = self._steps[index]
            content = list_of(step.get("content"))
            last = dict_of(content[-1]) if content else {}
            if last.get("type") == "text":
                content = [*content[:-1], {**last, "text": f"{last.get('text') or ''}{words}"}]
            else:
                content = [*content, {"type": "text", "text": words}]
            step["content"] = content

    def build_body(self) -> Json:
        """Return the interaction so far; of a cut stream, only whole steps and texts."""
        listed = list_of(self._interaction.get("steps"))
        steps = listed or [
            step for index in sorted(self._steps) if (step := self._build_step(index)) is not None
        ]
        stop: Json = {} if self.done else {"status": "cut"}
        return {"object": "interaction", **self._interaction, "steps": steps, **stop}

    def _build_step(self, index: int) -> Json | None:
        self._end_text(index)
        step = self._steps[index]
        if index in self._arguments:
            arguments = decode_object("".join(self._arguments[index]))
            if arguments is None:
                return None  # a call whose arguments were cut must never run
            step = {**step, "arguments": arguments}
        is_cut = index not in self._whole and not self.done
        return None if is_cut and type_of(step) != "model_output" else step


class JoinedInteractions(JoinedAnswer):
    """Interactions, one after the other, as one: their steps follow each other."""

    ids = ("id", "created", "previous_interaction_id")
    outputs = ("total_output_tokens", "total_thought_tokens")
    stops: ClassVar[Mapping[str, str]] = {"requires_action": "completed"}

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        super().__init__(is_ours)
        self._before: list[Any] = []  # the steps of earlier answers, if they were listed
        self._listed: list[Any] = []

    def end_answer(self, *, last: bool) -> list[SseEvent]:
        """End the answer under way; its steps come before those of the next."""
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

    def _convert_status(self, event: Json) -> Json:
        ids = {"interaction_id": self._first_ids.get("id", event.get("interaction_id"))}
        stop = {"status": self._convert_stop(event.get("status"))}
        return {**event, **{name: one for name, one in (ids | stop).items() if name in event}}

    def _convert_interaction(self, interaction: Json) -> Json:
        if isinstance(interaction.get("steps"), list):
            self._listed = [step for step in interaction["steps"] if not self._is_our_step(step)]
            interaction = {**interaction, "steps": self._before + self._listed}
        return self._convert_status(self._hide_tools(self._join_usage(self._keep_ids(interaction))))

    def _join_body(self, joined: Json, body: Json) -> Json:
        return {**joined, **self._convert_interaction(body)}

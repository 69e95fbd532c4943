"""OpenHands in a replay: its summarizing condenser over the view that a conversation keeps.

Knows its events, and the order of an agent's step: the condenser is asked before every call, a condensation
becomes an event of the view, and a refusal becomes a request for one. Refuses to copy what it decides. Each
call of an answer is an event of its own there, so its sizes in events are larger than in messages. Tokens
are counted by its own model class, which asks litellm.
"""

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from litellm.types.utils import Choices, ModelResponse
from litellm.types.utils import Message as Answer
from openhands.sdk.agent.utils import prepare_llm_messages
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.condenser.llm_summarizing_condenser import default_condenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from openhands.sdk.event.condenser import (
    Condensation,
    CondensationRequest,
    CondensationSummaryEvent,
)
from openhands.sdk.llm import LLM, LLMResponse, Message, MessageToolCall, TextContent
from openhands.sdk.llm.utils.metrics import MetricsSnapshot
from openhands.sdk.tool.schema import Action, Observation
from pydantic import PrivateAttr

from foldline.core.parts import spoken_text_of
from rivals.base import Peer, Returned, Said, Scribe, Shown

_PRIMED = 3  # tokens that litellm adds once to a list
_STEPS = 5  # condensations in a row before one call


class RanAction(Action):
    """A call, with its arguments as they were written."""

    arguments: str


class RanObservation(Observation):
    """A result."""


class Scripted(LLM):
    """A model that answers a summary's prompt from the events in it."""

    _scribe: Scribe | None = PrivateAttr(default=None)
    _counts: dict[Hashable, int] = PrivateAttr(default_factory=dict)

    def get_token_count(self, messages: list[Message], *_: Any, **__: Any) -> int:
        """Its own count, message by message: each is counted once, and not before every call."""
        total = 0
        for message in messages:
            words = tuple(part.text for part in message.content if isinstance(part, TextContent))
            calls = tuple(call.id for call in message.tool_calls or ())
            key = (message.role, words, calls, message.tool_call_id)
            if key not in self._counts:
                self._counts[key] = super().get_token_count([message]) - _PRIMED
            total += self._counts[key]
        return total + _PRIMED

    def generate(self, messages: list[Message], *_: Any, **__: Any) -> LLMResponse:
        """The summary."""
        assert self._scribe
        texts = [
            part.text
            for message in messages
            for part in message.content
            if isinstance(part, TextContent)
        ]
        given = re.findall(r"<EVENT>\n(.*?)\n</EVENT>", texts[-1], re.DOTALL)
        told = self._scribe.tell(given, prompt="\n".join(texts))
        raw = ModelResponse(
            id=f"summary {self._scribe.asked}",
            choices=[Choices(message=Answer(role="assistant", content=told))],
        )
        return LLMResponse(
            message=Message(role="assistant", content=[TextContent(text=told)]),
            metrics=MetricsSnapshot(),
            raw_response=raw,
        )


class _Condensed(Peer):
    """Events of OpenHands in one view, which takes condensations as it takes events."""

    package = "openhands-sdk"

    def condenser(self, llm: LLM) -> LLMSummarizingCondenser:
        """Who keeps the view small."""
        raise NotImplementedError

    def start(self) -> None:
        """A model for both, and an empty view."""
        self._llm = Scripted(model="gpt-4o", api_key="none", max_input_tokens=self.window)
        self._llm._scribe = self.scribe  # noqa: SLF001 - our own
        self._condenser = self.condenser(self._llm)
        self._view = View()
        self._actions: dict[str, str] = {}

    def user(self, said: Said) -> None:
        """A user's."""
        self._message("user", said)

    def model(self, said: Said) -> None:
        """An answer: a message, or an action for each of its calls."""
        if not said.calls:
            self._message("agent", said)
        for place, call in enumerate(said.calls):
            words = [TextContent(text=said.text)] if said.text and not place else []
            event = ActionEvent(
                id=f"{said.at}:{place}",
                thought=words,
                action=RanAction(arguments=call.arguments),
                tool_name=call.name,
                tool_call_id=call.id,
                tool_call=MessageToolCall(
                    id=call.id, name=call.name, arguments=call.arguments, origin="completion"
                ),
                llm_response_id=f"answer {said.at}",
            )
            self._actions[call.id] = event.id
            self._append(event)

    def results(self, batch: Sequence[Returned]) -> None:
        """An observation each."""
        for one in batch:
            self._append(
                ObservationEvent(
                    id=f"{one.at}:0",
                    observation=RanObservation(content=[TextContent(text=one.text)]),
                    action_id=self._actions.pop(one.call_id),
                    tool_name=one.name,
                    tool_call_id=one.call_id,
                )
            )

    def _message(self, source: Any, said: Said) -> None:
        role: Any = "user" if source == "user" else "assistant"
        words = Message(role=role, content=[TextContent(text=said.text)])
        self._append(MessageEvent(id=f"{said.at}:0", source=source, llm_message=words))

    def _append(self, event: Any) -> None:
        """Behind the system's words, which stand first in every view and are among those kept."""
        if not len(self._view):
            words = TextContent(text=spoken_text_of(self._system))
            self._view.append_event(SystemPromptEvent(system_prompt=words, tools=[]))
        self._view.append_event(event)

    def before_call(self) -> None:
        """As its agent does: until there are messages and no condensation."""
        for _ in range(_STEPS):
            made = prepare_llm_messages(self._view, condenser=self._condenser, llm=self._llm)
            if not isinstance(made, Condensation):
                break
            self._view.append_event(made)

    def request(self) -> Iterable[Shown]:
        """The view's events; the calls of one answer are one message."""
        for event in self._view.events:
            if isinstance(event, CondensationSummaryEvent):
                yield Shown(None, event.summary)
            elif not isinstance(event, SystemPromptEvent):  # it is in the front
                at, _, place = event.id.partition(":")
                if place == "0":
                    yield Shown(int(at))

    def refused(self) -> bool:
        """As its agent does: a request for a condensation, handled in the next step."""
        before = len(self._view)
        self._view.append_event(CondensationRequest())
        self.before_call()
        return len(self._view) < before


class Preset(_Condensed):
    """The condenser of its default agent."""

    label = "openhands default"
    note = "default_condenser: 80 events to 40, the first 4 kept; and the window's tokens"

    def condenser(self, llm: LLM) -> LLMSummarizingCondenser:
        """As its default agent has it."""
        return default_condenser(llm)


class Large(_Condensed):
    """The condenser by the defaults of its class."""

    label = "openhands condenser"
    note = "max_size=240, keep_first=2: its class's defaults; and the window's tokens"

    def condenser(self, llm: LLM) -> LLMSummarizingCondenser:
        """By its defaults."""
        return LLMSummarizingCondenser(llm=llm)


class ByTokens(_Condensed):
    """The same by tokens alone."""

    label = "openhands condenser, tokens"
    note = "max_tokens=0.8 of the window, to half of that; no limit of events"

    def condenser(self, llm: LLM) -> LLMSummarizingCondenser:
        """By tokens."""
        return LLMSummarizingCondenser(
            llm=llm, max_size=1_000_000, max_tokens=self.window * 8 // 10
        )


PEERS = (Preset, Large, ByTokens)

"""Strands in a replay: its conversation managers, on an agent of its own that never asks a model.

Knows when an agent calls its manager: at the end of an invocation, before a model's call by a hook, and
after a refusal. Refuses to copy what a manager decides. All results of one answer are one message, as its
event loop makes them. The size that its hook is told is the replay's own count, where its loop would take
the last usage and estimate the rest.
"""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import (
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.hooks import BeforeModelCallEvent
from strands.models import Model
from strands.types.exceptions import ContextWindowOverflowException

from rivals.base import Peer, Returned, Said, Scribe, Shown


class Scripted(Model):
    """A model that answers a summary's request from its messages."""

    def __init__(self, scribe: Scribe, window: int) -> None:
        self._scribe, self._config = scribe, {"context_window_limit": window}

    def update_config(self, **model_config: Any) -> None:
        """Nothing else is set."""

    def get_config(self) -> Any:
        """Its window."""
        return self._config

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Nobody asks for it."""
        raise NotImplementedError

    async def stream(
        self,
        messages: list[Any],
        tool_specs: Any = None,  # noqa: ARG002
        system_prompt: str | None = None,
        **_: Any,
    ) -> AsyncIterator[Any]:
        """The summary, as a stream of one piece."""
        texts = ["\n".join(map(_words, message["content"])) for message in messages]
        prompt = "\n".join([system_prompt or "", *texts])
        told = self._scribe.tell(texts[:-1], prompt=prompt)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": told}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def _words(block: dict[str, Any]) -> str:
    """A block as the counter reads it."""
    if "toolUse" in block:
        return f"{block['toolUse']['name']} {json.dumps(block['toolUse']['input'])}"
    if "toolResult" in block:
        return "\n".join(item["text"] for item in block["toolResult"]["content"])
    return str(block["text"])


class _Managed(Peer):
    """Messages of strands: the agent's own list, which its manager changes in place."""

    package = "strands-agents"

    def manager(self) -> Any:
        """Who keeps the history small."""
        raise NotImplementedError

    def start(self) -> None:
        """A real agent; only its history and its hooks are used."""
        model = Scripted(self.scribe, self.window)
        self._agent = Agent(model=model, conversation_manager=self.manager(), callback_handler=None)
        self._places: dict[int, int] = {}
        """The event of each message that is no results, by the message's identity."""
        self._kept: list[Any] = []
        self._results_of: dict[str, tuple[int, str]] = {}

    def user(self, said: Said) -> None:
        """A user's."""
        self._add("user", [{"text": said.text}], said.at)

    def model(self, said: Said) -> None:
        """An answer, with its calls."""
        blocks: list[dict[str, Any]] = [{"text": said.text}] if said.text else []
        for call in said.calls:
            use = {"toolUseId": call.id, "name": call.name, "input": _input(call.arguments)}
            blocks.append({"toolUse": use})
        self._add("assistant", blocks or [{"text": ""}], said.at)

    def results(self, batch: Sequence[Returned]) -> None:
        """One message for all of them."""
        blocks: list[Any] = []
        for one in batch:
            status = "success" if one.ok else "error"
            result = {"toolUseId": one.call_id, "status": status, "content": [{"text": one.text}]}
            blocks.append({"toolResult": result})
            self._results_of[one.call_id] = one.at, one.text
        self._agent.messages.append({"role": "user", "content": blocks})

    def _add(self, role: str, content: list[Any], at: int) -> None:
        message: Any = {"role": role, "content": content}
        self._kept.append(message)  # an identity is only one as long as it is held
        self._places[id(message)] = at
        self._agent.messages.append(message)

    def turn_ended(self) -> None:
        """At the end of an invocation."""
        self._agent.conversation_manager.apply_management(self._agent)

    def before_call(self) -> None:
        """The hooks that its event loop calls."""
        self._pieces()
        event = BeforeModelCallEvent(agent=self._agent, projected_input_tokens=round(self.total))
        self._agent.hooks.invoke_callbacks(event)

    def request(self) -> Iterable[Shown]:
        """The agent's messages."""
        for message in self._agent.messages:
            at = self._places.get(id(message))
            if at is not None:
                yield Shown(at)
                continue
            for block in message["content"]:
                if "toolResult" in block:
                    place, before = self._results_of[block["toolResult"]["toolUseId"]]
                    text = _words(block)
                    yield Shown(place, None if text == before else text)
                else:
                    yield Shown(None, _words(block), message["role"])

    def refused(self) -> bool:
        """As its event loop does after an overflow; whether it found something to reduce."""
        try:
            overflow = ContextWindowOverflowException("too large")
            self._agent.conversation_manager.reduce_context(self._agent, e=overflow)
        except ContextWindowOverflowException:
            return False
        return True


class Slid(_Managed):
    """The newest 40 messages stay: its default."""

    label = "strands sliding"
    note = "window_size=40 at the end of each turn, results cut after a refusal: its defaults"

    def manager(self) -> Any:
        """By its defaults."""
        return SlidingWindowConversationManager()


class SlidAlways(_Managed):
    """The same before every call."""

    label = "strands sliding, per call"
    note = "window_size=40, per_turn=True"

    def manager(self) -> Any:
        """For agents with many calls in a turn."""
        return SlidingWindowConversationManager(per_turn=True)


class Summed(_Managed):
    """The oldest 30 % of the messages become a summary, after a refusal: its default."""

    label = "strands summary"
    note = "summary_ratio=0.3, 10 messages kept, only after a refusal: its defaults"

    def manager(self) -> Any:
        """By its defaults."""
        return SummarizingConversationManager()


class SummedAhead(_Managed):
    """The same from 70 % of the window on."""

    label = "strands summary, ahead"
    note = "the same, and proactive_compression=True: from 0.7 of the window on"

    def manager(self) -> Any:
        """Before it is refused."""
        return SummarizingConversationManager(proactive_compression=True)


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {"arguments": arguments}


PEERS = (Slid, SlidAlways, Summed, SummedAhead)

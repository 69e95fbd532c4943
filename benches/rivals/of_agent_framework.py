"""Microsoft's agent-framework in a replay: its compaction strategies, as a chat client applies them.

Knows its messages, and `apply_compaction` on one list that is kept: exclusions are flags on the messages,
and summaries are put between them, so both last. Refuses to copy what a strategy decides. It counts four
characters for a token, its own estimate. Nothing of it recovers from a refusal.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agent_framework import (
    CharacterEstimatorTokenizer,
    ChatResponse,
    Content,
    ContextWindowCompactionStrategy,
    Message,
    SlidingWindowStrategy,
    SummarizationStrategy,
    TruncationStrategy,
    apply_compaction,
)

from rivals.base import Peer, Returned, Said, Scribe, Shown

_FIVE_SENTENCES = 150  # tokens: what its prompt asks for
_MESSAGE = re.compile(r"^\d+\. (?=\[)", re.MULTILINE)


class Client:
    """A chat client that answers a summary's prompt from the transcript in it."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    async def get_response(self, messages: Sequence[Message], **_: Any) -> ChatResponse:
        """The summary."""
        given = messages[-1].text
        prompt = "\n".join(message.text for message in messages)
        parts = _MESSAGE.split(given)[1:]
        told = self._scribe.tell(parts, prompt=prompt, tokens=_FIVE_SENTENCES)
        return ChatResponse(messages=[Message("assistant", [told])])


class _Grouped(Peer):
    """Messages of agent-framework; the id of each says which event it is."""

    package = "agent-framework-core"

    def strategy(self) -> Any:
        """What compacts."""
        raise NotImplementedError

    def start(self) -> None:
        """The one list that is kept, and a loop for what is only awaited."""
        self.messages: list[Message] = []
        self._sent: list[Message] = []
        self._strategy = self.strategy()
        self._loop = asyncio.new_event_loop()

    def user(self, said: Said) -> None:
        """A user's."""
        self._add("user", [said.text], said.at)

    def model(self, said: Said) -> None:
        """An answer, with its calls."""
        calls = [
            Content.from_function_call(call.id, call.name, arguments=call.arguments)
            for call in said.calls
        ]
        self._add("assistant", [*([said.text] if said.text else []), *calls], said.at)

    def results(self, batch: Sequence[Returned]) -> None:
        """A message each."""
        for one in batch:
            self._add("tool", [Content.from_function_result(one.call_id, result=one.text)], one.at)

    def _add(self, role: str, contents: list[Any], at: int) -> None:
        self.messages.append(Message(role, contents, message_id=f"e{at}"))

    def before_call(self) -> None:
        """As its clients do before every call."""
        work = apply_compaction(self.messages, strategy=self._strategy)
        self._sent = self._loop.run_until_complete(work)

    def request(self) -> Iterable[Shown]:
        """What is not excluded; it never changes a message, it puts others in its place."""
        for message in self._sent:
            name = message.message_id or ""
            if name[:1] == "e" and name[1:].isdigit():
                yield Shown(int(name[1:]))
            else:
                yield Shown(None, message.text, str(message.role))


class Truncated(_Grouped):
    """The oldest groups go."""

    label = "agent-fw truncation"
    note = "max_n=0.8, compact_to=0.5 of the window (it has no defaults; these are ContextWindow's)"

    def strategy(self) -> Any:
        """By tokens."""
        return TruncationStrategy(
            max_n=self.window * 8 // 10,
            compact_to=self.window // 2,
            tokenizer=CharacterEstimatorTokenizer(),
        )


class ContextWindow(_Grouped):
    """Old calls become their results' first 4,096 characters, then the oldest groups go."""

    label = "agent-fw context window"
    note = "thresholds 0.5 and 0.8, 4 groups of calls kept: its defaults; output 4 % of the window"

    def strategy(self) -> Any:
        """By its defaults."""
        return ContextWindowCompactionStrategy(
            max_context_window_tokens=self.window, max_output_tokens=self.window // 25
        )


class Slid(_Grouped):
    """The newest groups stay."""

    label = "agent-fw sliding"
    note = "keep_last_groups=20, as in its own example; it knows no tokens"

    def strategy(self) -> Any:
        """As its documentation shows it."""
        return SlidingWindowStrategy(keep_last_groups=20)


class Summed(_Grouped):
    """The oldest messages become a summary of five sentences."""

    label = "agent-fw summary"
    note = "target_count=4, threshold=2, reads 8,000 tokens: its defaults; it knows no window"

    def strategy(self) -> Any:
        """By its defaults."""
        return SummarizationStrategy(client=Client(self.scribe))


PEERS = (Truncated, ContextWindow, Slid, Summed)

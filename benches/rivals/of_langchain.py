"""LangChain in a replay: `trim_messages`, and the two middlewares of its agents that shorten a history.

Knows its message classes and how an agent calls a middleware: `before_model` with the state, and
`wrap_model_call` with the request. Refuses to copy what they decide. Answers carry the usage that the
replay would report, as a provider's do. Nothing of these recovers from a refusal; `before_model` writes
into the agent's state, the other two change one request only.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
from langchain.agents.middleware import SummarizationMiddleware as Summarization
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph.message import add_messages

from rivals.base import Peer, Returned, Said, Shown

_MESSAGE = re.compile(r"<message [^>]*>")


class ChatScripted(BaseChatModel):
    """A chat model that answers a summary's prompt from the prompt."""

    scribe: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        prompt = "\n".join(message.text for message in messages)
        _, _, given = prompt.partition("Messages to summarize:")
        told = self.scribe.tell(_MESSAGE.split(given)[1:], prompt=prompt)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(told))])


class _Chain(Peer):
    """Messages of LangChain; the id of each says which event it is."""

    package = "langchain"

    def start(self) -> None:
        self.messages: list[AnyMessage] = []
        self._contents: dict[str, Any] = {}

    def user(self, said: Said) -> None:
        """A human's."""
        self._add(HumanMessage(said.text, id=f"e{said.at}"))

    def model(self, said: Said) -> None:
        """An answer, with the usage that was reported for it."""
        calls = [
            {"id": call.id, "name": call.name, "args": _object(call.arguments)}
            for call in said.calls
        ]
        total, output = round(self.total), round(self._weighed[said.at].tokens)
        usage = {"input_tokens": total, "output_tokens": output, "total_tokens": total + output}
        self._add(
            AIMessage(
                said.text,
                id=f"e{said.at}",
                tool_calls=calls,
                usage_metadata=usage,
                response_metadata={"model_provider": "scripted"},
            )
        )

    def results(self, batch: Sequence[Returned]) -> None:
        """A message each."""
        for one in batch:
            self._add(
                ToolMessage(one.text, tool_call_id=one.call_id, name=one.name, id=f"e{one.at}")
            )

    def _add(self, message: AnyMessage) -> None:
        self.messages.append(message)
        self._contents[str(message.id)] = message.content

    def shown(self, messages: Iterable[Any]) -> Iterable[Shown]:
        """Which of the messages are as they were."""
        for message in messages:
            before = self._contents.get(message.id)
            if before is None:
                yield Shown(None, message.text, message.type)
            else:
                same = before == message.content
                yield Shown(int(message.id[1:]), None if same else message.text)


class Trimmed(_Chain):
    """`trim_messages` before every call, from the whole history."""

    package, label = "langchain-core", "langchain trim"
    note = "max_tokens=window, strategy=last, start_on=human, its approximate counter"

    def request(self) -> Iterable[Shown]:
        """What it leaves."""
        return self.shown(
            trim_messages(
                self.messages,
                max_tokens=self.window,
                token_counter=count_tokens_approximately,
                strategy="last",
                start_on="human",
                end_on=("human", "tool"),
                include_system=True,
            )
        )


class Edited(_Chain):
    """`ContextEditingMiddleware`: results become `[cleared]`, from the whole history at every call."""

    label = "langchain editing"
    note = "ClearToolUsesEdit: trigger=window/2 (its 100,000 of 200,000), keep=3"

    def start(self) -> None:
        """The middleware, with its defaults."""
        super().start()
        edit = ClearToolUsesEdit(trigger=self.window // 2)
        self._middleware = ContextEditingMiddleware(edits=[edit])
        self._chat = ChatScripted(scribe=self.scribe)

    def request(self) -> Iterable[Shown]:
        """What its handler would be given."""
        given: list[Any] = []

        def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            given.extend(request.messages)
            return ModelResponse(result=[AIMessage("")])

        request = ModelRequest(model=self._chat, messages=self.messages)
        self._middleware.wrap_model_call(request, handler)
        return self.shown(given)


class Summarized(_Chain):
    """`SummarizationMiddleware`: the oldest messages become one, for good."""

    label = "langchain summary"
    note = "trigger=0.8 of the window (it has no default), keep=20 messages, reads the last 4,000 tokens"

    def settings(self) -> dict[str, Any]:
        """What is not left to its defaults."""
        return {"trigger": ("fraction", 0.8)}

    def start(self) -> None:
        """The middleware, with a model that says how large its window is."""
        super().start()
        chat = ChatScripted(scribe=self.scribe, profile={"max_input_tokens": self.window})
        self._middleware = Summarization(chat, **self.settings())

    def before_call(self) -> None:
        """Its hook, and what it says of the state, reduced as an agent's graph does."""
        update = self._middleware.before_model({"messages": self.messages}, None)  # type: ignore[arg-type]
        if update:
            assert isinstance(update["messages"][0], RemoveMessage)
            self.messages = list(add_messages(self.messages, update["messages"]))

    def request(self) -> Iterable[Shown]:
        """The state's messages."""
        return self.shown(self.messages)


class Deep(Summarized):
    """The same by shares of the window, and a summary of all that goes: as `deepagents` sets it."""

    label = "langchain summary, shares"
    note = (
        "trigger=0.85 and keep=0.10 of the window, reads all that goes: the settings of deepagents"
    )

    def settings(self) -> dict[str, Any]:
        """Shares."""
        return {
            "trigger": ("fraction", 0.85),
            "keep": ("fraction", 0.10),
            "trim_tokens_to_summarize": None,
        }


def _object(arguments: str) -> dict[str, Any]:
    """Arguments as the library wants them; what is no object becomes one."""
    try:
        found = json.loads(arguments)
    except ValueError:
        found = arguments
    return found if isinstance(found, dict) else {"arguments": found}


PEERS = (Trimmed, Edited, Summarized, Deep)

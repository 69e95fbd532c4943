"""Google's ADK in a replay: the compaction of a session's events, as its runner and its flow call it.

Knows its events, and when it compacts: after a turn by a count of turns, and before a call by tokens.
Refuses to copy what it decides; the doors that its runner uses are private, there are no others. A summary
hides the events between two times, so events are given their place as the time.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps import compaction as doors
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events import Event
from google.adk.flows.llm_flows import contents
from google.adk.models import BaseLlm, LlmResponse
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import PrivateAttr

from rivals.base import Peer, Returned, Said, Scribe, Shown

_AGENT = "agent"
_MESSAGE = re.compile(
    rf"^(?=user: |{_AGENT}: |{_AGENT} called tool: |Tool response from )", re.MULTILINE
)


class Scripted(BaseLlm):
    """A model that answers a summary's prompt from the history in it."""

    _scribe: Scribe | None = PrivateAttr(default=None)

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> AsyncGenerator[LlmResponse, None]:
        """The summary."""
        assert self._scribe
        prompt = llm_request.contents[0].parts[0].text
        told = self._scribe.tell(_MESSAGE.split(prompt)[1:], prompt=prompt)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=told)]))


class _Compacted(Peer):
    """Events of ADK in a session of its own service, all of which stay there."""

    package = "google-adk"

    def settings(self) -> dict[str, Any]:
        """When it compacts."""
        raise NotImplementedError

    def start(self) -> None:
        """An app, an agent and a session."""
        llm = Scripted(model="scripted")
        llm._scribe = self.scribe  # noqa: SLF001 - our own
        self._config = EventsCompactionConfig(
            summarizer=LlmEventSummarizer(llm=llm), **self.settings()
        )
        self._agent = LlmAgent(name=_AGENT, model=llm)
        self._app = App(
            name="replay", root_agent=self._agent, events_compaction_config=self._config
        )
        self._service = InMemorySessionService()
        self._loop = asyncio.new_event_loop()
        self._session = self._wait(
            self._service.create_session(app_name="replay", user_id="user", session_id="one")
        )
        self._turn = 0
        self._texts: dict[tuple[str, str], list[int]] = {}
        """Where a text was said, by role: a request's contents are copies without names."""
        self._places: dict[str, int] = {}
        """Where a call was made, or its result came, by the call's id."""

    def user(self, said: Said) -> None:
        """A user's."""
        self._texts.setdefault(("user", said.text), []).append(said.at)
        self._add("user", "user", [types.Part(text=said.text)], said.at)

    def model(self, said: Said) -> None:
        """An answer, with its calls and the usage that was reported for it."""
        parts = [types.Part(text=said.text)] if said.text else []
        for call in said.calls:
            self._places[f"model {call.id}"] = said.at
            made = types.FunctionCall(id=call.id, name=call.name, args=_object(call.arguments))
            parts.append(types.Part(function_call=made))
        if not said.calls:
            self._texts.setdefault(("model", said.text), []).append(said.at)
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=round(self.total))
        self._add(_AGENT, "model", parts, said.at, usage_metadata=usage)

    def results(self, batch: Sequence[Returned]) -> None:
        """One event for all of them."""
        parts = []
        for one in batch:
            self._places[f"user {one.call_id}"] = one.at
            answer = types.FunctionResponse(
                id=one.call_id, name=one.name, response={"result": one.text}
            )
            parts.append(types.Part(function_response=answer))
        self._add(_AGENT, "user", parts, batch[-1].at)

    def _add(self, author: str, role: str, parts: list[Any], at: int, **more: Any) -> None:
        event = Event(
            author=author,
            invocation_id=f"turn {self._turn}",
            content=types.Content(role=role, parts=parts),
            timestamp=float(at + 1),
            **more,
        )
        self._wait(self._service.append_event(self._session, event))

    def _wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def turn_ended(self) -> None:
        """As its runner does after an invocation."""
        self._turn += 1
        self._wait(self._compact())

    async def _compact(self) -> None:
        run = doors._run_compaction_for_sliding_window  # noqa: SLF001 - the runner's own door
        async for event in run(self._app, self._session, self._service):
            await self._service.append_event(self._session, event)

    def before_call(self) -> None:
        """As its flow does before a call, where a limit of tokens is set."""
        run = doors._run_compaction_for_token_threshold_config  # noqa: SLF001 - the flow's own door
        self._wait(
            run(
                config=self._config,
                session=self._session,
                session_service=self._service,
                agent=self._agent,
                agent_name=_AGENT,
            )
        )

    def request(self) -> Iterable[Shown]:
        """Its contents; each is found again by what it says, in order."""
        last = -1
        for content in contents._get_contents(None, self._session.events, _AGENT):  # noqa: SLF001 - no other door
            for shown in self._found(content, last):
                yield shown
                last = last if shown.at is None else shown.at

    def _found(self, content: Any, last: int) -> Iterable[Shown]:
        role, parts = content.role, content.parts
        calls = [part.function_call.id for part in parts if part.function_call]
        answers = [part.function_response.id for part in parts if part.function_response]
        if calls:
            yield Shown(self._places[f"model {calls[0]}"])
        elif answers:
            yield from (Shown(self._places[f"user {one}"]) for one in answers)
        else:
            text = "\n".join(part.text or "" for part in parts)
            places = self._texts.get((role, text), [])
            at = next((place for place in places if place > last), None)
            yield Shown(None, text, role) if at is None else Shown(at)


class ByTurns(_Compacted):
    """Every three turns become a summary."""

    label = "adk turns"
    note = "compaction_interval=3, overlap_size=1, as in its documentation; it knows no tokens"

    def settings(self) -> dict[str, Any]:
        """By turns."""
        return {"compaction_interval": 3, "overlap_size": 1}


class ByTokens(_Compacted):
    """From a number of tokens on, all but the last events become a summary."""

    label = "adk tokens"
    note = "token_threshold=0.7 of the window, event_retention_size=20 (it has no defaults)"

    def settings(self) -> dict[str, Any]:
        """By tokens."""
        return {"token_threshold": self.window * 7 // 10, "event_retention_size": 20}


def _object(arguments: str) -> dict[str, Any]:
    try:
        found = json.loads(arguments)
    except ValueError:
        found = arguments
    return found if isinstance(found, dict) else {"arguments": found}


PEERS = (ByTurns, ByTokens)

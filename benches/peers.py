"""What other libraries take from a whole history to a model-ready list: the child of benches/core.py.

Runs in the environment of `just peers`, without Foldline. Reads one JSON line from stdin, with the
messages, the turns that follow and the budget; then lines of a peer's name and `cold` or `turn`, and
answers each with a JSON line: seconds, and how many messages it would send. A peer that is not
installed is named with the reason, and left out. Messages and events are made before the clock starts.
"""

import gc
import importlib.metadata
import json
import logging
import os
import sys
import time
from typing import Any

Messages = list[dict[str, str]]
"""Each a role (user, model, call, result), its text, and a call's id."""


class Trimmed:
    """`trim_messages` of langchain-core, with a counter that estimates."""

    package = "langchain-core"

    def __init__(self, history: Messages, budget: int) -> None:
        from langchain_core.messages import trim_messages  # noqa: PLC0415

        self.trim, self.budget, self.counter = trim_messages, budget, self.count()
        self.messages = self.made(history)

    def count(self) -> Any:
        """What counts the tokens of a list."""
        from langchain_core.messages.utils import count_tokens_approximately  # noqa: PLC0415

        return count_tokens_approximately

    def made(self, messages: Messages) -> list[Any]:
        """The library's own objects."""
        return [self.one(**message) for message in messages]

    def one(self, role: str, text: str, call: str = "") -> Any:
        """One of them."""
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: PLC0415

        match role:
            case "user":
                return HumanMessage(text)
            case "model":
                return AIMessage(text)
            case "call":
                return AIMessage(
                    text, tool_calls=[{"name": "run", "args": {"n": call}, "id": call}]
                )
            case _:
                return ToolMessage(text, tool_call_id=call)

    def cold(self) -> int:
        """From the whole list; how many messages are left."""
        return len(
            self.trim(
                self.messages,
                max_tokens=self.budget,
                token_counter=self.counter,
                strategy="last",
                start_on="human",
                include_system=True,
            )
        )

    def turn(self, new: list[Any]) -> int:
        """With some more messages: from the whole list again."""
        self.messages += new
        return self.cold()


class Exact(Trimmed):
    """The same with o200k's own count of every text."""

    def count(self) -> Any:
        """What counts the tokens of a list."""
        import tiktoken  # noqa: PLC0415 - it looks for its ranks when it is first used

        o200k = tiktoken.get_encoding("o200k_base")

        def counted(messages: list[Any]) -> int:
            texts = (m.text + json.dumps(getattr(m, "tool_calls", "")) for m in messages)
            return sum(len(o200k.encode_ordinary(text)) + 3 for text in texts)

        return counted


def adk_event(role: str, text: str, call: str = "") -> Any:
    """A message as google-adk has it."""
    from google.adk.events import Event  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415

    parts = [types.Part(text=text)]
    if role == "call":
        parts += [
            types.Part(function_call=types.FunctionCall(id=call, name="run", args={"n": call}))
        ]
    if role == "result":
        answer = types.FunctionResponse(id=call, name="run", response={"result": text})
        parts = [types.Part(function_response=answer)]
    author = "user" if role == "user" else "agent"
    said = "model" if role in ("model", "call") else "user"
    return Event(author=author, invocation_id="i", content=types.Content(role=said, parts=parts))


class Contents:
    """google-adk's list of contents out of a session's events; it has no budget."""

    package = "google-adk"

    def __init__(self, history: Messages, budget: int) -> None:  # noqa: ARG002 - it has none
        from google.adk.flows.llm_flows import contents  # noqa: PLC0415

        self.contents = contents._get_contents  # noqa: SLF001 - there is no other door
        self.events = self.made(history)

    def made(self, messages: Messages) -> list[Any]:
        """The library's own objects."""
        return [adk_event(**message) for message in messages]

    def cold(self) -> int:
        """From the whole list; how many contents are sent."""
        return len(self.contents(None, self.events, "agent"))

    def turn(self, new: list[Any]) -> int:
        """With some more events: from the whole list again."""
        self.events += new
        return self.cold()


class Viewed:
    """OpenHands' view; it keeps one between steps, so a turn is appended, as its agent does."""

    package = "openhands-sdk"

    def __init__(self, history: Messages, budget: int) -> None:  # noqa: ARG002 - a condenser's
        from openhands.sdk.context.view import View  # noqa: PLC0415

        self.view_of = View.from_events
        self.one = self.maker()
        self.events = self.made(history)
        self.view = self.view_of(self.events)

    def maker(self) -> Any:
        """What makes one event: its own tool has to be declared first."""
        from openhands.sdk.event import ActionEvent, MessageEvent, ObservationEvent  # noqa: PLC0415
        from openhands.sdk.llm import Message, MessageToolCall, TextContent  # noqa: PLC0415
        from openhands.sdk.tool.schema import Action, Observation  # noqa: PLC0415

        class RunAction(Action):
            n: str

        class RunObservation(Observation):
            pass

        actions: dict[str, str] = {}

        def one(role: str, text: str, call: str = "") -> Any:
            words = [TextContent(text=text)]
            if role == "call":
                event = ActionEvent(
                    thought=words,
                    action=RunAction(n=call),
                    tool_name="run",
                    tool_call_id=call,
                    tool_call=MessageToolCall(
                        id=call, name="run", arguments=json.dumps({"n": call}), origin="completion"
                    ),
                    llm_response_id=f"answer {call}",
                )
                actions[call] = event.id
                return event
            if role == "result":
                return ObservationEvent(
                    observation=RunObservation(content=words),
                    action_id=actions.pop(call),
                    tool_name="run",
                    tool_call_id=call,
                )
            source, said = ("user", "user") if role == "user" else ("agent", "assistant")
            return MessageEvent(source=source, llm_message=Message(role=said, content=words))

        return one

    def made(self, messages: Messages) -> list[Any]:
        """The library's own objects."""
        return [self.one(**message) for message in messages]

    def cold(self) -> int:
        """From the whole list; how many events are in it."""
        return len(self.view_of(self.events))

    def turn(self, new: list[Any]) -> int:
        """With some more events: into the view that is kept."""
        for event in new:
            self.view.append_event(event)
        return len(self.view)


class Prepared(Viewed):
    """The same, and the messages for the model out of the view; without a condenser."""

    def __init__(self, history: Messages, budget: int) -> None:
        from openhands.sdk.agent.utils import prepare_llm_messages  # noqa: PLC0415

        super().__init__(history, budget)
        self.prepare = prepare_llm_messages

    def cold(self) -> int:
        """From the whole list; how many messages."""
        return len(self.prepare(self.view_of(self.events)))

    def turn(self, new: list[Any]) -> int:
        """With some more events: into the view that is kept, and all messages anew."""
        super().turn(new)
        return len(self.prepare(self.view))


class Condensed(Prepared):
    """The same of a log that was condensed as it grew, as its default condenser would: 240 to 120."""

    def made(self, messages: Messages) -> list[Any]:
        """Its own objects; for a whole history with the condensations that it would have."""
        from openhands.sdk.context.view import View  # noqa: PLC0415
        from openhands.sdk.event import Condensation  # noqa: PLC0415

        view, events = View(), []
        for message in messages:
            events.append(self.one(**message))
            view.append_event(events[-1])
            if len(view) > 240:
                end = view.manipulation_indices.find_next(len(view) - 117)
                start = view.manipulation_indices.find_next(2)
                gone = {event.id for event in view.events[start:end]}
                events.append(
                    Condensation(
                        forgotten_event_ids=gone,
                        summary="What happened so far. " * 200,
                        summary_offset=start,
                        llm_response_id=f"summary {len(events)}",
                    )
                )
                view.append_event(events[-1])
        return events


PEERS = {
    "langchain trim, estimated": Trimmed,
    "langchain trim, exact": Exact,
    "adk contents": Contents,
    "openhands view": Viewed,
    "openhands view + messages": Prepared,
    "openhands condensed": Condensed,
}


def installed(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The peers that are here, each with the history; and the version of each, or what is missing."""
    found: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name, peer in PEERS.items():
        if name not in given["wanted"]:
            continue
        try:
            found[name] = peer(given["history"], given["budget"])
            notes[name] = f"{peer.package} {importlib.metadata.version(peer.package)}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured
            first = (str(error).splitlines() or [""])[0]
            notes[name] = f"not here: {type(error).__name__}: {first[:120]}"
    return found, notes


def main() -> None:
    """Say who is here, then answer one line at a time."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    logging.disable(logging.CRITICAL)
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network
    os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
    given = json.loads(sys.stdin.readline())
    found, notes = installed(given)
    print(json.dumps({"python": sys.version.split()[0], "peers": notes}), file=answers)
    turns = dict.fromkeys(found, 0)
    for line in sys.stdin:
        name, what = line.strip().split("\t")
        peer, new = found[name], []
        if what == "turn":
            new = peer.made(given["turns"][turns[name]])
            turns[name] += 1
        gc.collect()
        start = time.perf_counter()
        sent = peer.cold() if what == "cold" else peer.turn(new)
        took = time.perf_counter() - start
        print(json.dumps({"seconds": took, "messages": sent}), file=answers)


if __name__ == "__main__":
    main()

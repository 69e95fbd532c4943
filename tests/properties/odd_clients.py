"""Random histories with what nobody here understands, sent through the proxied path, and what became of them.

    broken = play_history(seed, "anthropic")   # [] unless a request is stuck, invalid or too large

A history grows turn by turn in one dialect: words, calls and results, and between them unknown
blocks, fields and roles, empty messages, instructions in between, tools that are deferred and shown.
"""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

from transparency_oracle import FORGIVEN, faults_of

from foldline.core.tokens import count_tokens
from foldline.dialects.base import PathFacts, get_dialect
from foldline.errors import FoldlineError
from foldline.proxy.conversations import Conversations
from foldline.proxy.identity import Scope
from foldline.session.model_facts import build_facts
from foldline.stores.sqlite import SqliteStore

Json = dict[str, Any]
NAMES = ("anthropic", "openai-chat", "openai-responses", "gemini", "gemini-interactions")
WINDOWS = (3_000, 4_000, 6_000)
LINES = ("The build printed many lines. ", "Ünï 你好. ", "See src/a.py:12 for details. ")
REFERENCE = {"type": "tool_reference", "tool_name": "Hidden"}
TOOLS = [
    {"name": "ToolSearch", "description": "Finds tools.", "input_schema": {"type": "object"}},
    {
        "name": "Hidden",
        "description": "Is deferred.",
        "input_schema": {"type": "object"},
        "defer_loading": True,
    },
]


class Writer:
    """Writes a history in one dialect; `state` is what must be in every later request."""

    def __init__(self, dialect: str, rng: Random) -> None:
        self.dialect, self.rng, self.count = dialect, rng, 0
        self.state: list[str] = []

    def text(self) -> str:
        """Some words, seldom many."""
        return self.rng.choice(LINES) * self.rng.choice((1, 3, 10, 25))

    def user(self, *blocks: Json, fields: Json | None = None) -> Json:
        """A user's message: words, and blocks beside them."""
        text, more = self.text(), fields or {}
        match self.dialect:
            case "gemini":
                return {"role": "user", "parts": [{"text": text}, *blocks], **more}
            case "gemini-interactions":
                return {"type": "user_input", "content": [{"type": "text", "text": text}, *blocks], **more}  # fmt: skip
            case "openai-responses":
                return {"role": "user", "content": [{"type": "input_text", "text": text}, *blocks], **more}  # fmt: skip
            case _:
                content: Any = [{"type": "text", "text": text}, *blocks] if blocks else text
                return {"role": "user", "content": content, **more}

    def answer(self) -> list[Json]:
        """An answer in words."""
        text = self.text()
        match self.dialect:
            case "gemini":
                return [{"role": "model", "parts": [{"text": text}]}]
            case "gemini-interactions":
                return [{"type": "model_output", "content": [{"type": "text", "text": text}]}]
            case "openai-responses":
                said = {"type": "output_text", "text": text, "annotations": []}
                return [{"type": "message", "role": "assistant", "content": [said]}]
            case _:
                return [{"role": "assistant", "content": text}]

    def call(self) -> list[Json]:
        """A call and its result."""
        self.count += 1
        name, text = f"call_{self.count}", self.text()
        match self.dialect:
            case "anthropic":
                result = {"type": "tool_result", "tool_use_id": name, "content": text}
                call = {"type": "tool_use", "id": name, "name": "run", "input": {"x": "ls"}}
                return [
                    {"role": "assistant", "content": [call]},
                    {"role": "user", "content": [result]},
                ]
            case "openai-chat":
                function = {"name": "run", "arguments": "{}"}
                call = {"id": name, "type": "function", "function": function}
                return [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": name, "content": text},
                ]
            case "openai-responses":
                return [
                    {"type": "function_call", "call_id": name, "name": "run", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": name, "output": text},
                ]
            case "gemini":
                answer = {"name": "run", "response": {"output": text}}
                return [
                    {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {}}}]},
                    {"role": "user", "parts": [{"functionResponse": answer}]},
                ]
            case _:
                return [
                    {"type": "function_call", "id": name, "name": "run", "arguments": {}},
                    {"type": "function_result", "call_id": name, "name": "run", "result": text},
                ]

    def odd(self) -> list[Json]:
        """What is not understood, or what later requests depend on; behind a user's message."""
        self.count += 1
        mark = f"ODD_{self.count}_"
        odd: list[Callable[[], list[Json]]] = [
            lambda: [self.user({"type": "x_unknown", "x": mark}) if self.dialect != "gemini" else self.user({"xUnknown": {"x": mark}})],
            lambda: [self.user(fields={"x_field": {"deep": [mark]}})],
        ]  # fmt: skip
        if self.dialect != "gemini-interactions":
            odd.append(lambda: [self.keep(mark, self.foreign(mark))])
        if self.dialect == "anthropic":
            odd += [
                lambda: [self.keep(mark, {"role": "system", "content": [], "output_config": {"effort": "low", "x": mark}})],
                lambda: [{"role": "system", "content": f"Be brief. {mark}"}],
                lambda: [self.keep(f"file_{mark}", self.user({"type": "container_upload", "file_id": f"file_{mark}"}))],
                self.load,
            ]  # fmt: skip
        if self.dialect == "openai-responses":
            tools = [{"type": "function", "name": mark, "parameters": {"type": "object"}}]
            odd += [
                lambda: [self.keep(mark, {"type": "additional_tools", "role": "developer", "tools": tools})],
                lambda: [{"type": "tool_search_call", "call_id": mark, "execution": "client", "arguments": {}},
                         self.keep(mark, {"type": "tool_search_output", "call_id": mark, "execution": "client", "tools": tools})],
            ]  # fmt: skip
        if self.dialect in ("openai-chat", "openai-responses"):
            odd += [lambda: [{"role": "developer", "content": f"Be brief. {mark}"}]]
            odd += [lambda: [{"role": "user", "content": ""}]]
        return self.rng.choice(odd)()

    def foreign(self, mark: str) -> Json:
        """A message of a role that no one knows."""
        name = "parts" if self.dialect == "gemini" else "content"
        said: Any = [{"text": mark}] if self.dialect == "gemini" else mark
        return {"role": self.rng.choice(("critic", "ipython")), name: said}

    def keep(self, mark: str, message: Json) -> Json:
        """Note that a message must stay in sight."""
        self.state.append(mark)
        return message

    def load(self) -> list[Json]:
        """A deferred tool is shown to the model."""
        name = f"load_{self.count}"
        self.state.append('"tool_reference"')
        call = {"type": "tool_use", "id": name, "name": "ToolSearch", "input": {"query": "x"}}
        result = {"type": "tool_result", "tool_use_id": name, "content": [REFERENCE]}
        loaded = {"type": "text", "text": "Tool loaded."}
        return [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, loaded]},
        ]


def write_fields(dialect: str) -> Json:
    """All but the messages of a request."""
    match dialect:
        case "anthropic":
            return {"model": "m", "max_tokens": 100, "tools": TOOLS}
        case "gemini-interactions":
            return {"model": "m", "store": False}
        case "gemini":
            return {}
        case "openai-responses":
            return {"model": "m", "store": False}
        case _:
            return {"model": "m", "max_tokens": 100}


def play_history(seed: int, dialect: str) -> list[str]:
    """Send a history as it grows; what is wrong with the requests that went upstream."""
    return asyncio.run(_play_history(seed, dialect))


async def _play_history(seed: int, dialect: str) -> list[str]:
    rng = Random(f"{seed} {dialect}")
    writer, spoken = Writer(dialect, rng), get_dialect(dialect)
    window = rng.choice(WINDOWS)
    conversations = Conversations(
        SqliteStore(":memory:"),
        lambda model: build_facts(model, window=window, reserve=200, policy="steady"),
    )
    path = PathFacts("m", streams=False) if dialect == "gemini" else None
    history, broken = list[Json](), list[str]()
    for turn in range(rng.randint(6, 22)):
        history.append(writer.user())
        if rng.random() < 0.4:
            history += writer.odd()
        body = json.dumps({**write_fields(dialect), spoken.messages: history}).encode()
        try:
            exchange = await conversations.start_exchange(
                spoken, body, scope=Scope(key="k"), path=path
            )
        except FoldlineError as fault:
            return [*broken, f"{turn}: stuck: {fault!r}"]
        sent = json.loads(exchange.body)
        if exchange.unplanned:
            broken.append(f"{turn}: unplanned: {exchange.unplanned}")
        new = {one.partition(":")[0] for one in faults_of(dialect, sent)} - FORGIVEN
        new -= {one.partition(":")[0] for one in faults_of(dialect, json.loads(body))}
        if new:
            broken.append(f"{turn}: invalid: {sorted(new)}")
        size = sum(map(count_tokens, list_texts(sent)))
        if size > window:
            broken.append(f"{turn}: too large: {size} of {window}")
        text = exchange.body.decode()
        broken += [f"{turn}: lost: {mark}" for mark in writer.state if mark not in text]
        broken += [f"{turn}: {fault}" for fault in list_misplaced(sent, dialect)]
        exchange.mark_unanswered()
        for _ in range(rng.choice((0, 0, 1, 3))):
            history += writer.call()
        history += writer.answer()
    return broken


def list_texts(value: Any) -> list[str]:
    """All texts of a request, wherever they stand: what a model reads of it, at least."""
    if isinstance(value, str):
        return [value]
    inside: list[Any] = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []  # fmt: skip
    return [text for one in inside for text in list_texts(one)]


def list_misplaced(sent: Json, dialect: str) -> list[str]:
    """Instructions of Anthropic's stand behind a user's message, and last or before an answer."""
    if dialect != "anthropic":
        return []
    messages = [one for one in sent["messages"] if one["role"] in ("user", "assistant", "system")]
    roles = [one["role"] for one in messages]
    found = list[str]()
    for at, role in enumerate(roles):
        if role != "system":
            continue
        before = next((one for one in roles[:at][::-1] if one != "system"), "")
        behind = next((one for one in roles[at:] if one != "system"), "assistant")
        if (before, behind) != ("user", "assistant"):
            found.append(f"misplaced: instructions between {before} and {behind}")
    return found

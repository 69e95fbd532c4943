"""Clients that send their whole history with every call, and the model that answers them.

A client holds messages as values and writes them anew for every request, with the habits that real
clients have: cache marks that move, strings that become lists, keys in another order, a system
prompt with a clock. Clients share first words, first answers and the ids of tool calls. Behind that
beginning every word holds a canary, so that what reaches the provider tells whose it is.

Knows no proxy, and of Foldline only the names of its dialects: `programs` plays clients through one, `oracle` judges what became of their requests.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple, TypeAlias, cast
from zlib import crc32

from foldline.dialects.base import ANTHROPIC, CHAT, GEMINI

DialectName: TypeAlias = str
"""A dialect's name in the registry; each has a writer of messages, of fields and of answers here."""
RESPONSES = "openai-responses"
INTERACTIONS = "gemini-interactions"
Json: TypeAlias = dict[str, Any]

HABITS: dict[str, float] = {
    "clock": 0.5,
    "tools": 0.75,
    "tools_change": 0.25,
    "marks": 0.55,
    "forms": 0.35,
    "key_order": 0.25,
    "spaces": 0.25,
    "arguments": 0.35,
    "blanks": 0.25,
    "empty_content": 0.35,
    "transient_tail": 0.3,
    "moving_pair": 0.15,
    "moving_note": 0.2,
    "unknown_fields": 0.25,
    "unknown_blocks": 0.15,
    "thoughts": 0.4,
    "echoes_thoughts": 0.7,
    "images": 0.15,
    "streams": 0.35,
    "parallel_calls": 0.5,
    "works": 0.35,
    "large": 0.3,
    "slow": 0.4,
    "item_types": 0.4,
    "moving_ids": 0.4,
    "hosted_items": 0.3,
}
"""What a client does again and again, and how many of them do."""
GEMINI_HABITS: dict[str, float] = {
    "snake_case": 0.3,
    "null_fields": 0.15,
    "drops_signatures": 0.3,
    "leaves_out_role": 0.2,
    "urlsafe": 0.5,
    "interjects": 0.3,
    "result_images": 0.2,
}
"""The same of Gemini's clients alone: drawn by a source of their own, see `draw_own_habits`."""
GEMINI_MODEL = "gemini-3-pro-preview"
"""The model that Gemini's clients ask, in the path: it wants calls to be signed."""
TOOLS = ("run", "read_file")
SENTENCES = (
    "The build printed many lines of which none matters much here. ",
    "See src/parser/lexer.py:214 and tests/test_lexer.py for details. ",
    'Grüße aus Köln, 你好, and a "quoted" word. ',
    "It failed with exit code 2 because the path C:\\temp was missing. ",
    "Then the second worker took over\nand finished the remaining jobs. ",
    "We measured 1,284 requests per second on a calm machine. ",
)
TASKS = (
    "Please make the tests of the parser pass.",
    "Go on.",
    "And now the lexer, please.",
    "yes",
)
ANSWERS = ("Hello! How can I help you today?", "Let me look.", "I see.", "Done so far.")
_SHELL = "shell_"  # how ids of calls begin that the provider's own kind of shell makes
_CALLS_IN = (1, 2)  # which of the first answers hold calls
_PAIR = ("I am not sharing any files that you can edit yet.", "Ok.")
_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CHARACTERS = 4  # per token, roughly: only sizes are drawn by it


@dataclass(frozen=True, slots=True)
class Persona:
    """Who a client is."""

    dialect: DialectName
    key: str
    family: str
    session: str
    is_linear: bool
    """Whether it has one conversation, which nobody can take for another's."""
    shared: int
    """How many turns are the same as those of others."""
    habits: frozenset[str]
    bound: int | None
    """How long it lets answers be."""
    style: int


def draw_own_habits(style: int) -> set[str]:
    """What a client does that only one dialect's clients do; those of others do not look at it."""
    rng = Random(style ^ 0x6E31)
    return {name for name, share in GEMINI_HABITS.items() if rng.random() < share}


class ToolCall(NamedTuple):
    """A call of a tool."""

    id: str
    name: str
    arguments: tuple[tuple[str, Any], ...]


class ToolResult(NamedTuple):
    """What a tool gave back."""

    id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a client holds it, whatever bytes it will be."""

    role: str
    """"user", "assistant", "results" or "system"."""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    thought: str = ""
    has_image: bool = False
    unknown: str = ""
    """What an unknown block of it says."""
    is_listed: bool = False
    """Whether its text usually comes as a list of one block."""
    is_passing: bool = False
    """Whether it is in one request only."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What it is, apart from how it is written."""
        text = self.text.strip()
        return self.role, text, self.calls, self.results, self.has_image, self.unknown

    @property
    def size(self) -> int:
        """The bytes of what it says, with some for being a message."""
        said = (self.text, self.unknown, self.thought, _PIXEL * self.has_image)
        inside = [json.dumps(dict(one.arguments)) + one.name + one.id for one in self.calls]
        inside += [one.text + one.id for one in self.results]
        return sum(len(one.encode()) for one in (*said, *inside)) + 60 * (1 + len(inside))


class Client:
    """One client: its conversation, and the bytes that it makes of it."""

    def __init__(self, number: int, persona: Persona, window: int, tags: Counter[str]) -> None:
        self.number, self.persona, self.window, self.tags = number, persona, window, tags
        self.conversation = 0
        self.history: list[Message] = []
        self.branches: list[list[Message]] = []
        self.key = persona.key
        self._count = 0
        self._rng = Random(persona.style)
        self.clock = self.canary()
        self.tools = self.canary()

    def canary(self) -> str:
        """A word that nobody else has, and that this client says once."""
        self._count += 1
        return f"CANARY_{self.number}_{self.conversation}_{self._count}_"

    def has(self, habit: str, rng: Random, share: float = 0.5) -> bool:
        """Whether it does now what it often does."""
        if habit in self.persona.habits and rng.random() < share:
            self.tags[habit] += 1
            return True
        return False

    def begin_anew(self) -> None:
        """Another conversation of the same client."""
        self.conversation += 1
        self.history, self.branches = [], []
        self.clock, self.tools = self.canary(), self.canary()

    def fill(self, rng: Random, *, shares: Sequence[float]) -> str:
        """Words of no meaning: so much of the window."""
        size = int(min(self.window, 8_000) * CHARACTERS * rng.choice(shares))
        start = rng.randrange(len(SENTENCES))
        words, at = list[str](), 0
        while at < size:
            words.append(SENTENCES[(start + len(words)) % len(SENTENCES)])
            at += len(words[-1])
        return "".join(words)

    def next_message(self, rng: Random) -> Message:
        """What it says next: results where calls are open, else something."""
        last = self.history[-1] if self.history else None
        answers = sum(one.role == "assistant" for one in self.history)
        is_shared = answers < self.persona.shared and self._is_shared()
        if last is not None and last.calls:
            return self._results(rng, last, is_shared=is_shared)
        turn = sum(one.role == "user" for one in self.history)
        if is_shared and turn < len(TASKS):
            return Message("user", TASKS[turn] + " " + SENTENCES[0] * 6)
        shares = (0, 0.01, 0.04, 0.1, 0.2)
        if self.has("large", rng, 0.25):
            shares = (0.6, 1.3, 3.0) if self.window < 100_000 else (0.5,)
        text = f"My word is {self.canary()}. {self.fill(rng, shares=shares)}".strip()
        image, unknown = self.has("images", rng, 0.3), self.has("unknown_blocks", rng, 0.3)
        return Message(
            "user",
            text,
            has_image=image,
            unknown=self.canary() if unknown else "",
            is_listed=self.has("forms", rng),
        )

    def _is_shared(self) -> bool:
        """Whether it has said nothing of its own yet."""
        return not any("CANARY" in one.text for one in self.history)

    def _results(self, rng: Random, last: Message, *, is_shared: bool) -> Message:
        results = list[ToolResult]()
        for call in last.calls:
            if is_shared:
                results.append(ToolResult(call.id, f"{call.name}: ok"))
                continue
            shares = (0, 0.02, 0.1, 0.3)
            if self.has("large", rng, 0.3):
                shares = (0.8, 1.5) if self.window < 100_000 else (0.3,)
            failed = rng.random() < 0.2
            self.tags["tool_error"] += failed
            text = f"{self.canary()} {self.fill(rng, shares=shares)}"
            results.append(ToolResult(call.id, ("error: " * failed) + text, failed))
        if len(results) > 1 and rng.random() < 0.3:
            rng.shuffle(results)
        text, has_image = "", False
        if self.persona.dialect in (GEMINI, INTERACTIONS) and not is_shared:
            has_image = self.has("result_images", rng, 0.3)
            if self.has("interjects", rng, 0.3):
                text = (
                    f"Wait, {self.canary()}. {self.fill(rng, shares=(0, 0.01, 0.1, 0.4))}".strip()
                )
        listed = self.has("forms", rng)
        return Message(
            "results", text, results=tuple(results), has_image=has_image, is_listed=listed
        )

    def answer_to(
        self, history: Sequence[Message], rng: Random, *, prefix: str = "", may_call: bool = True
    ) -> Message:
        """What the model says: what it says to everybody, and behind that something of its own."""
        turn = sum(one.role == "assistant" and not one.is_passing for one in history)
        is_shared = turn < self.persona.shared and not any("CANARY" in one.text for one in history)
        thought = ""
        if self.has("thoughts", rng, 0.8):
            thought = f"I serve {self.canary()}"
        has_tools = may_call and "tools" in self.persona.habits
        if is_shared:
            text = ANSWERS[turn % len(ANSWERS)]
            several = range(1 + turn % 2) if has_tools and turn in _CALLS_IN else ()
        else:
            text = f"Noted {self.canary()}. {self.fill(rng, shares=(0, 0.01, 0.03, 0.1))}".strip()
            wanted = rng.choice((0, 0, 1, 2, 3)) if has_tools else 0
            if has_tools and self.has("works", rng, 0.95):
                wanted = 3
            is_parallel = {"parallel_calls", "works"} & self.persona.habits
            several = range(wanted if is_parallel else min(wanted, 1))
            text = "" if several and rng.random() < 0.4 else text
        self.tags["parallel_calls_made"] += len(several) > 1
        calls = tuple(self._call(turn, at, is_shared=is_shared) for at in several)
        unknown = ""
        hosts = self.persona.dialect in (RESPONSES, GEMINI, INTERACTIONS)
        if hosts and self.has("hosted_items", rng, 0.3):
            unknown = f"search {self.canary()}"
        return Message("assistant", prefix + text, calls, thought=thought, unknown=unknown)

    def _call(self, turn: int, at: int, *, is_shared: bool) -> ToolCall:
        words = "ls" if is_shared else f"cat {self.canary()}"
        if self.persona.dialect == RESPONSES and self.persona.style % 3 == 0 and at % 2:
            self.tags["shell_calls"] += 1
            return ToolCall(f"{_SHELL}{turn}_{at}", "shell", (("commands", (words,)),))
        return ToolCall(f"call_{turn}_{at}", TOOLS[at % 2], (("command", words), ("n", 1)))

    # --- Bytes

    def body(
        self, rng: Random, history: Sequence[Message], tail: Sequence[Message] = ()
    ) -> "Written":
        """A request: the history, and what is in this request only."""
        persona = self.persona
        if self.has("clock", rng, 0.6):
            self.clock = self.canary()
        if self.has("tools_change", rng, 0.3):
            self.tools = self.canary()
        shown = [*history]
        is_text = bool(shown) and shown[-1].role == "user"
        if is_text and not tail and self.has("moving_pair", rng, 0.9):
            asked, said = _PAIR
            shown[-1:] = [
                Message("user", asked, is_passing=True),
                Message("assistant", said, is_passing=True),
                shown[-1],
            ]
        if not tail and self.has("transient_tail", rng):
            words = f"<reminder>{self.canary()} three things are to be done</reminder>"
            shown.append(Message("user", words, is_passing=True))
        if not tail and self.has("moving_note", rng, 0.8):
            shown.append(Message("system", f"Always say {self.clock}.", is_passing=True))
        shown += tail
        if persona.dialect in (GEMINI, INTERACTIONS):  # which have no instructions in between
            shown = [replace(one, role="user") if one.role == "system" else one for one in shown]
        marks = self.has("marks", rng, 0.8)
        mark = (
            {"type": "ephemeral", "ttl": "1h"}
            if marks and rng.random() < 0.3
            else {"type": "ephemeral"}
        )
        messages = [one for message in shown for one in self._write(message, rng)]
        if marks and persona.dialect == ANTHROPIC:
            for place in {len(messages) - 1, rng.randrange(len(messages))}:
                messages[place] = _marked(messages[place], mark)
        fields = self._fields(rng, mark if marks else None)
        role = "developer" if persona.style % 5 == 0 else "system"
        if persona.dialect == CHAT and persona.style % 7:
            messages.insert(0, {"role": role, "content": self._system()})
        streams = bool(fields.get("stream"))
        if persona.dialect == RESPONSES:
            fields["input"] = self._input(messages, role)
        elif persona.dialect == INTERACTIONS:
            fields["input"] = self._first_input(messages)
        elif persona.dialect == GEMINI:
            fields["contents"] = messages
            fields.pop("stream", None)  # its path says so
        else:
            fields["messages"] = messages
        names = [*fields]
        Random(persona.style).shuffle(names)
        if self.has("key_order", rng):
            rng.shuffle(names)
        body = self._dump({name: fields[name] for name in names}, rng)
        return Written(body, tuple(one for one in shown if one.role != "system"), streams)

    def _input(self, items: list[Json], role: str) -> list[Json] | str:
        """The items of a Responses request, with what leads them; a text alone may be a string."""
        leading: list[Json] = []
        if self.persona.style % 11 == 3 and "tools" in self.persona.habits:
            tools = [_flat_tool(name, self.tools) for name in ("look", "list_files")]
            leading = [{"type": "additional_tools", "role": "developer", "tools": tools}]
        if self.persona.style % 7 > 3:
            leading.append({"role": role, "content": self._system()})
        content = items[0].get("content") if len(items) == 1 else None
        is_text = isinstance(content, str) and items[0]["role"] == "user"
        if is_text and not leading and self.persona.style % 2:
            self.tags["input_text"] += 1
            return cast("str", content)
        return [*leading, *items]

    def _first_input(self, steps: list[Json]) -> Any:
        """The steps of an interaction; a text alone may be a string, or a content."""
        if len(steps) > 1 or steps[0]["type"] != "user_input" or self.persona.style % 3 == 0:
            return steps
        content = steps[0]["content"]
        if isinstance(content, str):
            return content
        is_text = [one["type"] for one in content] == ["text"]
        if self.persona.style % 3 == 1 and is_text:
            self.tags["input_text"] += 1
            return content[0]["text"]
        if is_text:
            self.tags["input_content"] += 1
            return content[0]
        return steps

    def _system(self) -> str:
        return f"You are a careful assistant. It is {self.clock} now. " + SENTENCES[1] * 2

    def _fields(self, rng: Random, mark: Json | None) -> Json:
        """All but the messages."""
        persona = self.persona
        is_openai = persona.dialect == CHAT
        if persona.dialect == RESPONSES:
            return self._response_fields(rng)
        if persona.dialect == GEMINI:
            return self._gemini_fields(rng)
        if persona.dialect == INTERACTIONS:
            return self._interaction_fields(rng)
        fields: Json = {"model": "gpt-4o" if is_openai else "claude-sonnet-4-5"}
        tool = {"description": f"Runs a command. {self.tools}"}
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        if "tools" in persona.habits:
            named = [{"name": name, **tool} for name in ("run", "read_file")]
            if is_openai:
                fields["tools"] = [
                    {"type": "function", "function": {**one, "parameters": schema}} for one in named
                ]
            else:
                fields["tools"] = [{**one, "input_schema": schema} for one in named]
                if mark and rng.random() < 0.3:
                    fields["tools"][-1]["cache_control"] = mark
        if not is_openai and persona.style % 7:
            block: Json = {"type": "text", "text": self._system()}
            if mark and rng.random() < 0.5:
                fields["system"] = [{**block, "cache_control": mark}]
            else:
                fields["system"] = [block] if persona.style % 3 else self._system()
        if persona.bound is not None:
            fields["max_completion_tokens" if is_openai and persona.style % 2 else "max_tokens"] = (
                persona.bound
            )
        most = persona.bound or 0
        if not is_openai and "thoughts" in persona.habits and most > 1_024:
            fields["thinking"] = {"type": "enabled", "budget_tokens": most - 1}
        if self.has("streams", rng, 0.7):
            fields["stream"] = True
        if self.has("unknown_fields", rng):
            fields["x_custom"] = {"note": self.canary(), "empty": {}, "list": [1, None, True]}
            fields["temperature"] = "@number@"
        return fields

    def _response_fields(self, rng: Random) -> Json:
        """All but the input of a Responses request."""
        persona = self.persona
        fields: Json = {"model": "gpt-5.5"}
        if "tools" in persona.habits:
            fields["tools"] = [_flat_tool(name, self.tools) for name in ("run", "read_file")]
        if persona.style % 7 in (1, 2, 3):
            fields["instructions"] = self._system()
        if persona.bound is not None:
            fields["max_output_tokens"] = persona.bound
        if "thoughts" in persona.habits:
            fields |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if self.has("streams", rng, 0.7):
            fields["stream"] = True
        if self.has("unknown_fields", rng):
            fields["x_custom"] = {"note": self.canary(), "empty": {}, "list": [1, None, True]}
            fields["temperature"] = "@number@"
        return fields

    def _gemini_fields(self, rng: Random) -> Json:
        """All but the contents of a Gemini request, and whether it is streamed."""
        persona, fields = self.persona, dict[str, Any]()
        if "tools" in persona.habits:
            kind = "parameters" if persona.style % 2 else "parametersJsonSchema"
            named = {"type": "OBJECT" if persona.style % 2 else "object"}
            schema = {**named, "properties": {"command": {"type": "string"}}}
            said = {"description": f"Runs a command. {self.tools}", kind: schema}
            fields["tools"] = [{"functionDeclarations": [{"name": name, **said} for name in TOOLS]}]
            if persona.style % 11 == 3:
                fields["tools"].append({"googleSearch": {}})
        if persona.style % 7:
            role = {"role": "user"} if persona.style % 3 else {}
            told: Any = {"text": self._system()}
            alone = persona.style % 13 == 5  # as Google's own pages write it for curl
            fields["systemInstruction"] = {**role, "parts": told if alone else [told]}
        config: Json = {"maxOutputTokens": persona.bound} if persona.bound is not None else {}
        if "thoughts" in persona.habits:
            config["thinkingConfig"] = {"includeThoughts": True, "thinkingBudget": -1}
        if self.has("streams", rng, 0.7):
            fields["stream"] = True
        if self.has("unknown_fields", rng):
            fields["x_custom"] = {"note": self.canary(), "empty": {}, "list": [1, None, True]}
            config["temperature"] = "@number@"
        if config:
            fields["generationConfig"] = config
        if self.has("snake_case", rng, 0.3):
            fields = {_snake(name): value for name, value in fields.items()}
            if "generation_config" in fields:
                fields["generation_config"] = _in_snake_case(config)
        return fields

    def _interaction_fields(self, rng: Random) -> Json:
        """All but the input of an interaction."""
        persona = self.persona
        fields: Json = {"model": GEMINI_MODEL, "store": False}
        if "tools" in persona.habits:
            fields["tools"] = [_flat_tool(name, self.tools) for name in TOOLS]
            for one in fields["tools"]:
                del one["strict"]
            if persona.style % 11 == 3:
                fields["tools"].append({"type": "google_search"})
        if persona.style % 7:
            fields["system_instruction"] = self._system()
        config: Json = {"max_output_tokens": persona.bound} if persona.bound is not None else {}
        if "thoughts" in persona.habits:
            config["thinking_summaries"] = "auto"
        if self.has("streams", rng, 0.7):
            fields["stream"] = True
        if self.has("unknown_fields", rng):
            fields["x_custom"] = {"note": self.canary(), "empty": {}, "list": [1, None, True]}
            config["temperature"] = "@number@"
        if config:
            fields["generation_config"] = config
        return fields

    def _write(self, message: Message, rng: Random) -> list[Json]:
        """A message in this client's dialect, this time."""
        write = {
            CHAT: self._write_openai,
            ANTHROPIC: self._write_anthropic,
            RESPONSES: self._write_responses,
            GEMINI: self._write_gemini,
            INTERACTIONS: self._write_steps,
        }[self.persona.dialect]
        written = write(message, rng)
        if self.has("key_order", rng, 0.2):
            written = [cast("Json", _shuffled(one, rng)) for one in written]
        return written

    def _text(self, message: Message, rng: Random) -> str:
        blanks = bool(message.text) and self.has("blanks", rng, 0.15)
        return message.text + rng.choice((" ", "\n", "  \n")) if blanks else message.text

    def _is_listed(self, message: Message, rng: Random) -> bool:
        return message.is_listed != self.has("forms", rng, 0.2)

    def _write_openai(self, message: Message, rng: Random) -> list[Json]:
        text = self._text(message, rng)
        listed: Any = [{"type": "text", "text": text}]
        match message.role:
            case "results":
                written_results: list[Json] = []
                for one in message.results:
                    inside: Any = one.text
                    if self._is_listed(message, rng):
                        inside = [{"type": "text", "text": one.text}]
                    result = {"role": "tool", "tool_call_id": one.id, "content": inside}
                    written_results.append(result)
                return written_results
            case "assistant":
                content: Any = listed if text and self._is_listed(message, rng) else text
                written: Json = {"role": "assistant", "content": content}
                if message.calls:
                    written["tool_calls"] = [self._call_openai(one, rng) for one in message.calls]
                    if not text:
                        written["content"] = None
                        if self.has("empty_content", rng):
                            written["content"] = ""
                            if rng.random() < 0.5:
                                del written["content"]
                if message.thought and "echoes_thoughts" in self.persona.habits:
                    written["reasoning_content"] = message.thought
                if self.has("unknown_fields", rng, 0.3):
                    written |= {"refusal": None, "annotations": []}
                return [written]
            case _:
                if message.has_image:
                    url = {"url": f"data:image/png;base64,{_PIXEL}"}
                    listed.append({"type": "image_url", "image_url": url})
                if message.unknown:
                    listed.append({"type": "x_unknown", "x": {"says": message.unknown}})
                if len(listed) == 1 and not self._is_listed(message, rng):
                    listed = text
                return [{"role": message.role, "content": listed}]

    def _call_openai(self, call: ToolCall, rng: Random) -> Json:
        given = dict(call.arguments)
        arguments = json.dumps(given)
        if self.has("arguments", rng):
            arguments = json.dumps(dict(reversed(given.items())), separators=(",", ":"))
        return {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }

    def _write_anthropic(self, message: Message, rng: Random) -> list[Json]:
        text = self._text(message, rng)
        blocks: list[Json] = [{"type": "text", "text": text}] if text else []
        match message.role:
            case "results":
                for one in message.results:
                    inside = [{"type": "text", "text": one.text}]
                    content = inside if self._is_listed(message, rng) else one.text
                    block: Json = {"type": "tool_result", "tool_use_id": one.id, "content": content}
                    blocks.append({**block, "is_error": True} if one.is_error else block)
                return [{"role": "user", "content": blocks}]
            case "assistant":
                if message.thought and "echoes_thoughts" in self.persona.habits:
                    blocks.insert(0, _thinking(message))
                for call in message.calls:
                    given = dict(call.arguments)
                    if self.has("arguments", rng):
                        given = dict(reversed(given.items()))
                    blocks.append(
                        {"type": "tool_use", "id": call.id, "name": call.name, "input": given}
                    )
            case _:
                if message.has_image:
                    source = {"type": "base64", "media_type": "image/png", "data": _PIXEL}
                    blocks.append({"type": "image", "source": source})
                if message.unknown:
                    blocks.append({"type": "x_unknown", "x": {"says": message.unknown}})
        is_plain = len(blocks) == 1 and blocks[0]["type"] == "text"
        if is_plain and not self._is_listed(message, rng):
            return [{"role": message.role, "content": text}]
        return [{"role": message.role, "content": blocks}]

    def _write_responses(self, message: Message, rng: Random) -> list[Json]:
        text = self._text(message, rng)
        listed: list[Json] = [{"type": "input_text", "text": text}]
        match message.role:
            case "results":
                outputs: list[Json] = []
                for one in message.results:
                    inside: Any = one.text
                    if self._is_listed(message, rng):
                        inside = [{"type": "input_text", "text": one.text}]
                    output = {"type": "function_call_output", "call_id": one.id, "output": inside}
                    if one.id.startswith(_SHELL):
                        exited = {"type": "exit", "exit_code": int(one.is_error)}
                        printed = [{"stdout": one.text, "stderr": "", "outcome": exited}]
                        output = {**output, "type": "shell_call_output", "output": printed}
                    outputs.append(self._with_id(output, "fco", rng))
                return outputs
            case "assistant":
                items = write_turn(replace(message, text=text))
                if "echoes_thoughts" not in self.persona.habits:
                    items = [one for one in items if one["type"] != "reasoning"]
                return [self._rewrite_item(one, rng) for one in items]
            case _:
                if message.has_image:
                    url = f"data:image/png;base64,{_PIXEL}"
                    listed.append({"type": "input_image", "image_url": url, "detail": "auto"})
                if message.unknown:
                    listed.append({"type": "x_unknown", "x": {"says": message.unknown}})
                is_plain = len(listed) == 1 and not self._is_listed(message, rng)
                role = "developer" if message.role == "system" else message.role
                item: Json = {"role": role, "content": text if is_plain else listed}
                return [{"type": "message", **item} if self.has("item_types", rng) else item]

    def _write_gemini(self, message: Message, rng: Random) -> list[Json]:
        parts: list[Json] = []
        match message.role:
            case "results":
                parts += [self._result_part(one) for one in message.results]
                if message.has_image:
                    image = {"inlineData": {"mimeType": "image/png", "data": _PIXEL}}
                    parts[-1]["functionResponse"]["parts"] = [image]
                if message.text:  # what the user says meanwhile
                    said = [{"text": self._text(message, rng)}]
                    parts += self._cut_texts(said, message, rng)
            case "assistant":
                if message.thought and "echoes_thoughts" not in self.persona.habits:
                    message = replace(message, thought="")
                parts += write_content(
                    replace(message, text=self._text(message, rng)), self.gives_ids
                )
                parts = self._cut_texts(parts, message, rng)
                if self.has("arguments", rng):
                    parts = [_with_arguments_turned(one) for one in parts]
                if self.has("drops_signatures", rng, 0.3):
                    parts = [_without_signature(one) for one in parts]
                    parts = [one for one in parts if one != {"text": ""}]
            case _:
                parts = self._cut_texts([{"text": self._text(message, rng)}], message, rng)
                if message.has_image:
                    data = _PIXEL
                    if self.has("urlsafe", rng):
                        data = data.replace("+", "-").replace("/", "_")
                    parts.append({"inlineData": {"mimeType": "image/png", "data": data}})
                if message.unknown:
                    place = len(parts) if self.persona.style & 8 else 0
                    parts.insert(place, {"x_unknown": {"says": message.unknown}})
        if self.has("null_fields", rng, 0.3):
            parts = [{**one, "videoMetadata": None} for one in parts]
        if self.has("snake_case", rng, 0.3):
            parts = [cast("Json", _in_snake_case(one)) for one in parts]
        content: Json = {"role": "model" if message.role == "assistant" else "user", "parts": parts}
        if content["role"] == "user" and self.has("leaves_out_role", rng, 0.7):
            del content["role"]
        return [content]

    def _write_steps(self, message: Message, rng: Random) -> list[Json]:
        """A message as the steps of an interaction."""
        content: list[Json] = [{"type": "text", "text": self._text(message, rng)}]
        image = {"type": "image", "mime_type": "image/png", "data": _PIXEL}
        match message.role:
            case "results":
                steps: list[Json] = []
                for one in message.results:
                    inside: Any = one.text
                    if message.has_image and one is message.results[-1]:
                        inside = [{"type": "text", "text": one.text}, image]
                    elif self._is_listed(message, rng):
                        inside = [{"type": "text", "text": one.text}]
                    step: Json = {"type": "function_result", "call_id": one.id, "result": inside}
                    if not self.has("leaves_out_role", rng, 0.7):
                        step["name"] = TOOLS[int(one.id.rpartition("_")[2]) % 2]
                    if one.is_error or self.has("null_fields", rng, 0.3):
                        step["is_error"] = one.is_error
                    steps.append(step)
                if message.text:  # what the user says meanwhile
                    steps.append({"type": "user_input", "content": content})
                return steps
            case "assistant":
                steps = write_interaction(replace(message, text=content[0]["text"]))
                if "echoes_thoughts" not in self.persona.habits:
                    steps = [one for one in steps if one["type"] != "thought"]
                return [self._rewrite_step(one, rng) for one in steps]
            case _:
                if message.has_image:
                    content.append(image)
                if message.unknown:
                    place = len(content) if self.persona.style & 8 else 0
                    content.insert(place, {"type": "x_unknown", "x": {"says": message.unknown}})
                is_plain = len(content) == 1 and self.has("forms", rng, 0.2)
                said: Any = content[0]["text"] if is_plain else content
                return [{"type": "user_input", "content": said}]

    def _rewrite_step(self, step: Json, rng: Random) -> Json:
        """A step of an answer, as this client sends it back this time."""
        step = {**step}
        if step["type"] == "function_call" and self.has("arguments", rng):
            step["arguments"] = dict(reversed(step["arguments"].items()))
        if step["type"] == "model_output" and self.has("null_fields", rng, 0.3):
            step["content"] = [{**one, "annotations": None} for one in step["content"]]
        if "signature" in step and self.has("drops_signatures", rng, 0.3):
            del step["signature"]
        return step

    @property
    def gives_ids(self) -> bool:
        """Whether its server gives calls ids: Google's older models, and Vertex AI, give none."""
        return self.persona.style % 3 > 0

    def _result_part(self, result: ToolResult) -> Json:
        """What a tool gave back, as a part; the place of a call in its step tells its name."""
        name = TOOLS[int(result.id.rpartition("_")[2]) % 2]
        said = ("output", "output", "result")[self.persona.style % 5 % 3]
        answer = {"error" if result.is_error else said: result.text}
        shown = {"id": result.id} if self.gives_ids else {}
        return {"functionResponse": {**shown, "name": name, "response": answer}}

    def _cut_texts(self, parts: list[Json], message: Message, rng: Random) -> list[Json]:
        """Parts, perhaps with their text cut into several, never inside a word."""
        if not self._is_listed(message, rng):
            return parts
        found: list[Json] = []
        for part in parts:
            gaps = [at for at, one in enumerate(part.get("text", "")) if one == " " and at]
            if part.keys() != {"text"} or not gaps or not part["text"].strip():
                found.append(part)
                continue
            cuts = sorted({rng.choice(gaps) + rng.randrange(2) for _ in range(rng.choice((1, 2)))})
            ends = zip((0, *cuts), (*cuts, len(part["text"])), strict=True)
            pieces = [part["text"][start:end] for start, end in ends]
            if all(piece.strip() for piece in pieces):
                self.tags["text_cut"] += 1
                found += [{"text": piece} for piece in pieces]
            else:
                found.append(part)
        return found

    def _rewrite_item(self, item: Json, rng: Random) -> Json:
        """An item of an answer, as this client sends it back this time."""
        item = {**item}
        if item["type"] == "function_call" and self.has("arguments", rng):
            given = json.loads(item["arguments"])
            written = json.dumps(dict(reversed(given.items())), separators=(",", ":"))
            item["arguments"] = written
        if item["type"] == "message" and self.has("forms", rng, 0.3):
            (part,) = item["content"]
            item = {"role": "assistant", "content": part["text"]}
        elif self.has("moving_ids", rng, 0.3) and item["type"] != "reasoning":
            item["id"] = f"{item['id']}_{rng.randrange(9)}{self._count}"
            if rng.random() < 0.5:
                del item["id"]
            item.pop("status", None)
        return item

    def _with_id(self, item: Json, name: str, rng: Random) -> Json:
        if self.has("moving_ids", rng, 0.3):
            self._count += 1
            return {"id": f"{name}_{self._count}_{rng.randrange(1 << 30)}", **item}
        return item

    def _dump(self, body: Json, rng: Random) -> bytes:
        """JSON in one of the ways that are written."""
        style = self.persona.style if not self.has("spaces", rng) else rng.randrange(1 << 20)
        indent, separators = ((None, (",", ":")), (None, (", ", ": ")), (1, (",", ": ")))[
            min(style % 12, 11) // 5
        ]
        text = json.dumps(body, separators=separators, indent=indent, ensure_ascii=bool(style & 64))
        if style & 128 and style & 256:
            text = text.replace("/", "\\/")
        return text.replace('"@number@"', "1.00e+0").encode()


class Written(NamedTuple):
    """A request's bytes, the messages that it shows, and whether its answer is streamed."""

    body: bytes
    shown: tuple[Message, ...]
    streams: bool


def _thinking(message: Message) -> Json:
    """The block that an answer's thoughts are, signed."""
    signature = f"sig-{message.thought}"
    return {"type": "thinking", "thinking": message.thought, "signature": signature}


def write_turn(message: Message) -> list[Json]:
    """An answer as the items of a response; the same message has the same ids."""
    name = f"{crc32(repr((message.text, message.calls, message.thought)).encode()):08x}"
    items: list[Json] = []
    if message.thought:
        sealed = {"summary": [], "encrypted_content": f"sig-{message.thought}"}
        items.append({"type": "reasoning", "id": f"rs_{name}", **sealed})
    if message.unknown:
        action = {"type": "search", "query": message.unknown}
        own = {"id": f"ws_{name}", "status": "completed", "action": action}
        items.append({"type": "web_search_call", **own})
    if message.text or not (message.calls or message.unknown):
        content = [{"type": "output_text", "text": message.text, "annotations": []}]
        own = {"id": f"msg_{name}", "status": "completed", "role": "assistant", "content": content}
        items.append({"type": "message", **own})
    for at, one in enumerate(message.calls):
        said = {"call_id": one.id, "name": one.name, "arguments": json.dumps(dict(one.arguments))}
        own = {"id": f"fc_{name}_{at}", "status": "completed"}
        if one.id.startswith(_SHELL):
            own = {"id": f"sh_{name}_{at}", "call_id": one.id, "action": dict(one.arguments)}
            items.append({"type": "shell_call", **own, "status": "completed"})
            continue
        items.append({"type": "function_call", **own, **said})
    return items


def write_interaction(message: Message) -> list[Json]:
    """An answer as the steps of an interaction; the same message has the same signatures."""
    name = crc32(repr((message.text.strip(), message.calls)).encode())
    signature = {"signature": f"c2ln{name:08x}"}
    steps: list[Json] = []
    if message.thought:
        summary = [{"type": "text", "text": message.thought}]
        steps.append({"type": "thought", **signature, "summary": summary})
    if message.unknown and name % 2:
        steps.append({"type": "x_unknown", "x": {"says": message.unknown}})
    elif message.unknown:
        code = {"language": "python", "code": message.unknown}
        own = {"id": f"code_{name:08x}", "arguments": code, **signature}
        steps.append({"type": "code_execution_call", **own})
        told = {"call_id": own["id"], "result": "4", **signature}
        steps.append({"type": "code_execution_result", **told})
    if message.text or not (message.calls or message.unknown):
        content = [{"type": "text", "text": message.text}]
        steps.append({"type": "model_output", "content": content})
    for one in message.calls:
        call = {"id": one.id, "name": one.name, "arguments": dict(one.arguments)}
        steps.append({"type": "function_call", **call})
        if message.thought and one is not message.calls[-1] and name % 3 == 0:
            steps.append({"type": "thought", **signature})  # between two calls
    return steps


def write_content(message: Message, gives_ids: bool) -> list[Json]:  # noqa: FBT001 - of a server
    """An answer as the parts of a content; the same message has the same signature.

    The first call is signed; of an answer without calls the last part may be, even an empty one.
    """
    name = crc32(repr((message.text.strip(), message.calls)).encode())
    signature = {"thoughtSignature": f"c2ln{name:08x}"}
    parts: list[Json] = []
    if message.thought:
        parts.append({"text": message.thought, "thought": True})
    if message.unknown:
        parts.append({"executableCode": {"language": "PYTHON", "code": message.unknown}})
        parts.append({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}})
    if message.text:
        parts.append({"text": message.text})
    for one in message.calls:
        shown = {"id": one.id} if gives_ids else {}
        call = {**shown, "name": one.name, "args": dict(one.arguments)}
        parts.append({"functionCall": call, **({} if one is not message.calls[0] else signature)})
    if message.calls:
        return parts
    match name % 4:
        case 0:
            parts.append({"text": "", **signature})
        case 1:
            parts[-1] |= signature
        case _:
            pass
    return parts


def _with_arguments_turned(part: Json) -> Json:
    """A part, the arguments of its call in another order."""
    if "functionCall" not in part:
        return part
    call = part["functionCall"]
    return {**part, "functionCall": {**call, "args": dict(reversed(call["args"].items()))}}


def _without_signature(part: Json) -> Json:
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


_OWN = ("args", "response", "x_unknown")  # what is inside is nobody's to rename


def _in_snake_case(value: Any) -> Any:
    """The same value, its fields named as Google's Python SDK names them."""
    if isinstance(value, list):
        return [_in_snake_case(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    return {
        _snake(name): inner if name in _OWN else _in_snake_case(inner)
        for name, inner in cast("Json", value).items()
    }


def _snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name)


def _flat_tool(name: str, words: str) -> Json:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    said = {"description": f"Runs a command. {words}", "parameters": schema, "strict": False}
    return {"type": "function", "name": name, **said}


def _marked(message: Json, mark: Json) -> Json:
    """A message with a cache mark on its last block that takes one."""
    content = message["content"]
    plain: list[Json] = [{"type": "text", "text": content}]
    blocks = plain if isinstance(content, str) else [*cast("list[Json]", content)]
    for place in range(len(blocks) - 1, -1, -1):
        if blocks[place]["type"] in ("text", "tool_result", "tool_use", "image"):
            blocks[place] = {**blocks[place], "cache_control": mark}
            break
    return {**message, "content": blocks}


def _shuffled(value: Any, rng: Random) -> Any:
    """The same value, its keys in another order."""
    if isinstance(value, dict):
        items = [*cast("Json", value).items()]
        rng.shuffle(items)
        return {name: _shuffled(inner, rng) for name, inner in items}
    if isinstance(value, list):
        return [_shuffled(inner, rng) for inner in cast("list[Any]", value)]
    return value


# --- Answers -----------------------------------------------------------------------------------


def write_answer(
    dialect: DialectName, message: Message, *, tokens: int, streams: bool, gives_ids: bool = True
) -> list[bytes]:
    """A response in a dialect's own bytes, whole or as the events of a stream.

    Without `gives_ids`, the calls of a Gemini answer have none.
    """
    if dialect == GEMINI:
        return _answer_gemini(message, tokens, streams=streams, gives_ids=gives_ids)
    writers = {CHAT: _answer_openai, ANTHROPIC: _answer_anthropic, RESPONSES: _answer_responses}
    writers[INTERACTIONS] = _answer_interactions
    return writers[dialect](message, tokens, streams=streams)


def _answer_openai(message: Message, tokens: int, *, streams: bool) -> list[bytes]:
    calls: list[Json] = []
    for one in message.calls:
        function = {"name": one.name, "arguments": json.dumps(dict(one.arguments))}
        calls.append({"id": one.id, "type": "function", "function": function})
    said: Json = {"role": "assistant", "content": message.text or None}
    said |= {"tool_calls": calls} if calls else {}
    said |= {"reasoning_content": message.thought} if message.thought else {}
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
    base = {"id": "c", "created": 0, "model": "gpt-4o"}
    if not streams:
        choice = {"index": 0, "message": said, "finish_reason": reason}
        return [
            json.dumps(
                {"object": "chat.completion", **base, "choices": [choice], "usage": usage}
            ).encode()
        ]
    half = len(message.text) // 2
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": message.thought}] if message.thought else []
    deltas += [{"content": piece} for piece in (message.text[:half], message.text[half:]) if piece]
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls)]
    choices: list[Json] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    events: list[Json] = [{"choices": [one]} for one in choices]
    events.append({"choices": [], "usage": usage})
    chunks = [{"object": "chat.completion.chunk", **base, **one} for one in events]
    return [*(f"data: {json.dumps(one)}\n\n".encode() for one in chunks), b"data: [DONE]\n\n"]


def _answer_anthropic(message: Message, tokens: int, *, streams: bool) -> list[bytes]:
    blocks: list[Json] = []
    if message.thought:
        blocks.append(_thinking(message))
    blocks += [{"type": "text", "text": message.text}] if message.text else []
    blocks += [
        {"type": "tool_use", "id": one.id, "name": one.name, "input": dict(one.arguments)}
        for one in message.calls
    ]
    reason = "tool_use" if message.calls else "end_turn"
    usage = {"input_tokens": tokens, "output_tokens": 9}
    whole: Json = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
    whole |= {"content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage}
    if not streams:
        return [json.dumps(whole).encode()]
    empty: Json
    deltas: list[Json]
    events: list[Json] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    ]
    for at, block in enumerate(blocks):
        match block["type"]:
            case "thinking":
                empty = {**block, "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            case "text":
                empty, deltas = (
                    {**block, "text": ""},
                    [{"type": "text_delta", "text": block["text"]}],
                )
            case _:
                empty = {**block, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        events += [{"type": "content_block_delta", "index": at, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": at})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}
    )
    events.append({"type": "message_stop"})
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]


def _answer_responses(message: Message, tokens: int, *, streams: bool) -> list[bytes]:
    items = write_turn(message)
    usage = {"input_tokens": tokens, "output_tokens": 9, "total_tokens": tokens + 9}
    name = f"resp_{crc32(repr((message, tokens)).encode()):08x}"
    whole: Json = {"id": name, "object": "response", "created_at": 0, "model": "gpt-5.5"}
    whole |= {"status": "completed", "error": None, "output": items, "usage": usage}
    if not streams:
        return [json.dumps(whole).encode()]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for at, item in enumerate(items):
        place: Json = {"output_index": at, "item_id": item["id"]}
        empty = {**item, "status": "in_progress"}
        for field, nothing in (("content", []), ("arguments", ""), ("encrypted_content", "")):
            empty |= {field: nothing} if field in item else {}
        events.append({"type": "response.output_item.added", "output_index": at, "item": empty})
        if item["type"] == "message":
            half = len(message.text) // 2
            for piece in filter(None, (message.text[:half], message.text[half:])):
                delta = {**place, "content_index": 0, "delta": piece}
                events.append({"type": "response.output_text.delta", **delta})
        elif item["type"] == "function_call":
            delta = {**place, "delta": item["arguments"]}
            events.append({"type": "response.function_call_arguments.delta", **delta})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    numbered = ({**one, "sequence_number": at} for at, one in enumerate(events))
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in numbered]


def _answer_gemini(message: Message, tokens: int, *, streams: bool, gives_ids: bool) -> list[bytes]:
    parts = write_content(message, gives_ids)
    thought = {"thoughtsTokenCount": 3} if message.thought else {}
    usage: Json = {"promptTokenCount": tokens, "candidatesTokenCount": 9, **thought}
    usage["totalTokenCount"] = sum(usage.values())
    base = {"modelVersion": GEMINI_MODEL, "responseId": "r"}

    def build(some: list[Json], **ends: Any) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": some}, "index": 0}
        return {"candidates": [{**candidate, **ends}], **base}

    if not streams:
        whole = {**build(parts, finishReason="STOP"), "usageMetadata": usage}
        return [json.dumps(whole).encode()]
    pieces: list[Json] = []
    for part in parts:
        if part.keys() == {"text"}:
            half = len(part["text"]) // 2
            halves = (part["text"][:half], part["text"][half:])
            pieces += [{"text": one} for one in halves if one]
        else:
            pieces.append(part)
    chunks = [build([one]) for one in pieces[:-1]]
    chunks.append({**build(pieces[-1:], finishReason="STOP"), "usageMetadata": usage})
    return [f"data: {json.dumps(one)}\r\n\r\n".encode() for one in chunks]


def _answer_interactions(message: Message, tokens: int, *, streams: bool) -> list[bytes]:
    steps = write_interaction(message)
    usage: Json = {"total_input_tokens": tokens, "total_output_tokens": 9}
    usage |= {"total_thought_tokens": 3} if message.thought else {}
    usage["total_tokens"] = sum(usage.values())
    status = "requires_action" if message.calls else "completed"
    base: Json = {"id": f"int_{crc32(repr((message, tokens)).encode()):08x}", "model": GEMINI_MODEL}
    base["object"] = "interaction"
    if not streams:
        whole = {**base, "status": status, "steps": steps, "usage": usage}
        return [json.dumps(whole).encode()]
    begun = {**base, "status": "in_progress"}
    events: list[Json] = [{"event_type": "interaction.created", "interaction": begun}]
    for at, step in enumerate(steps):
        deltas: list[Json] = []
        start = step
        match step["type"]:
            case "thought":
                start = {"type": "thought"}
                deltas = [
                    {"type": "thought_summary", "content": one} for one in step.get("summary", ())
                ]
                deltas.append({"type": "thought_signature", "signature": step["signature"]})
            case "model_output":
                start, half = {"type": "model_output"}, len(message.text) // 2
                halves = (message.text[:half], message.text[half:])
                deltas = [{"type": "text", "text": one} for one in halves if one]
            case "function_call":
                start = {**step, "arguments": {}}
                given = json.dumps(step["arguments"])
                half = len(given) // 2
                deltas = [
                    {"type": "arguments_delta", "arguments": one}
                    for one in (given[:half], given[half:])
                ]
            case "code_execution_call" | "code_execution_result":
                start = {name: step[name] for name in ("type", "id", "call_id") if name in step}
                start |= {"arguments": {}} if "arguments" in step else {"result": ""}
                shown = ("type", "arguments", "result", "signature")
                deltas = [{name: step[name] for name in shown if name in step}]
            case _:
                pass
        events.append({"event_type": "step.start", "index": at, "step": start})
        events += [{"event_type": "step.delta", "index": at, "delta": one} for one in deltas]
        events.append({"event_type": "step.stop", "index": at})
    ended = {**base, "status": status, "usage": usage}
    events.append({"event_type": "interaction.completed", "interaction": ended})
    lines = [f"event: {one['event_type']}\ndata: {json.dumps(one)}\n\n" for one in events]
    return [line.encode() for line in (*lines, "event: done\ndata: [DONE]\n\n")]

"""Random programs of sessions, and what their requests are judged by, without any of the engine's own judges.

A program is a list of steps as `foldline.testing.play` draws them: a name and two small numbers that choose among what
is possible at that moment. It plays a whole life of a session in any dialect: messages small and large, calls that are
answered, half answered, answered late or never (a crash), messages while a tool runs, new instructions and tools, undo,
pins, exclusions, folds by hand, other models in other dialects, processes that end and open the session again.

The provider here knows what it said. It refuses what providers document: calls and results that do not pair, messages
that say nothing, a request that ends with the model's words, a tool loop whose thinking is gone or changed (Claude: as it
was, and with a budget at its beginning; Responses: reasoning before what followed it; Gemini 3: a signature on each step's first
call), thinking behind other words than it was said behind (the models that bind it), and what is above the window.
"""

# One method for each kind of step, all of which take two numbers:
# ruff: noqa: ARG001, ARG002, D102

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from foldline.errors import BadHandle, BadInput, NotAnEdit, Overflow, UndoFirst
from foldline.session.open import aopen
from foldline.testing.play import Step

Json = dict[str, Any]
LARGEST = 11
BOUND = "claude-sonnet-5-5"
CONTINUES = "claude-sonnet-4-5"
ENDS = "it ends with the model's words"
MODELS = (
    ("gpt-6.1-sol", "openai-chat", {}),
    ("gpt-6.1-sol", "openai-responses", {"store": False}),
    ("claude-sonnet-4-5", "anthropic", {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
    ("claude-opus-4-6", "anthropic", {"thinking": {"type": "adaptive"}}),
    (BOUND, "anthropic", {"thinking": {"type": "adaptive"}}),
    ("claude-sonnet-4-5", "anthropic", {}),
    ("gemini-3-pro", "gemini", {}),
    ("gemini-3-pro", "gemini-interactions", {}),
)
POLICIES = ("steady", "thrifty", "classic", "sliding", "window", "three-layer", "confirm")
WINDOWS = (1_200, 1_500, 2_000, 2_500, 4_000)
NAMES = (
    *("user",) * 4,
    *("large",) * 3,
    *("ask",) * 6,
    *("loop",) * 6,
    *("result",) * 5,
    *("steer",) * 2,
    *("crash",) * 2,
    *("instruct",) * 2,
    *("undo", "pin", "unpin", "exclude", "fold", "switch", "reopen", "reopen"),
    *("tools", "late", "doubled", "interrupt", "usage", "again", "begun", "blank"),
)
PLAIN = [
    "the",
    "file",
    "has",
    "one",
    "more",
    "line",
    "that",
    "says",
    "what",
    "was",
    "done",
    "and",
    "why",
    "it",
    "was",
    "left",
]
PIECE = re.compile(r"[A-Za-z]{1,7}|\d{1,3}|[^\sA-Za-z\d]")
OVERHEAD = 4  # tokens of a message
CLIP = 64 + OVERHEAD  # tokens of a message or a result that is cut as far as it goes
HANDOFF = 200  # tokens of one that says little more than what it covers
UNSURE = 1.4  # tokens that a token may have to be counted as, where no tokenizer is known


class Refused(AssertionError):  # noqa: N818 - it is what the provider says
    """What a provider would refuse, or a session that is stuck."""


def steps(random: Random, length: int) -> list[Step]:
    """A program; its first step chooses model, policy and window."""
    chosen = (random.choice(NAMES) for _ in range(length))
    return [Step(name, random.randint(0, LARGEST), random.randint(0, LARGEST)) for name in chosen]


def count(given: object) -> int:
    """Tokens as a simple tokenizer counts them: pieces of words, digits by three, signs one by one."""
    if isinstance(given, dict):
        return sum(count(value) + 1 for key, value in given.items() if key not in _UNCOUNTED)
    if isinstance(given, list):
        return sum(count(one) for one in given)
    return len(PIECE.findall(given)) if isinstance(given, str) else 1


_UNCOUNTED = {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "cache_control", "id", "call_id"}  # fmt: skip


@dataclass
class Program:
    """One session, and the provider that it asks."""

    random: Random
    window: int
    policy: str
    model: str
    dialect: str
    parameters: Json
    session: Any = None
    number: int = 0
    pending: list[tuple[str, str]] = field(default_factory=list)
    """Calls without a result: id and name."""
    done: list[tuple[str, str]] = field(default_factory=list)
    loop: dict[str, str] = field(default_factory=dict)
    """Of the tool loop under way: the id of an answer's first call → its thinking's signature."""
    sent: Json | None = None
    """The newest request, if it is not answered."""
    least: int = 0
    """What the newest answer's calls take, which nothing makes smaller."""
    system: str = "Be brief."
    tools: int = 1
    begun: bool = False
    """Whether the newest answer was begun by the caller: early models continue it."""
    fresh: list[int] = field(default_factory=list)
    """The sizes of messages and results since the last answer, which are cut at most."""
    crashed: tuple[list[str], int] = ([], 0)
    """Calls whose process ended, until a request closes them, and what they take."""
    counts: bool = False
    """Whether the session knows the provider's tokenizer."""
    store: Any = None
    seen: Counter[str] = field(default_factory=Counter)

    # What happens

    async def open(self) -> None:
        """Open the session, a new one or the one that was closed."""
        fixed: Json = (
            {} if self.seen["opened"] else {"system": self.system, "tools": self.list_tools()}
        )
        self.session = await aopen(":memory:", model=self.model, dialect=self.dialect, window=self.window, policy=self.policy, store=self.store, tokenizer=count if self.counts else None, **fixed)  # fmt: skip
        self.store = self.session.live.store
        self.seen["opened"] += 1

    def list_tools(self) -> list[Json]:
        """Tools in the form that every dialect takes."""
        return [
            {"name": name, "description": f"To {name}.", "input_schema": {"type": "object"}}
            for name in ("read", "run", "note")[: self.tools]
        ]

    def words(self, tokens: int) -> str:
        """So many tokens of plain words, other ones each time."""
        self.number += 1
        return f"{self.number}: " + " ".join(self.random.choices(PLAIN, k=max(tokens, 1)))

    async def take(self, step: Step) -> None:
        """One step; one that is not possible now does nothing."""
        _, a, b = step
        self.seen[step.name] += 1
        await getattr(self, f"take_{step.name}")(a, b)

    async def say(self, text: str) -> None:
        """Add a message of the user's."""
        self.begun = False
        await self.session.add(text)
        self.fresh.append(count(text) + OVERHEAD)

    async def take_user(self, a: int, b: int) -> None:
        await self.say(self.words(3 * a + b))

    async def take_large(self, a: int, b: int) -> None:
        await self.say(self.words(self.window * (1 + a) // 10))

    async def take_steer(self, a: int, b: int) -> None:
        for _ in range(1 + b % 4):
            await self.say(self.words(self.window * a // 20))

    async def take_blank(self, a: int, b: int) -> None:
        await self.session.add(("", "  \n")[a % 2])

    async def take_begun(self, a: int, b: int) -> None:
        """An answer that nobody asked for, or that was cut."""
        if not self.pending and self.dialect in ("openai-chat", "anthropic"):
            await self.session.add({"role": "assistant", "content": self.words(a)})
            self.loop, self.sent, self.least, self.fresh = {}, None, 0, []
            self.begun = True

    async def take_ask(self, a: int, b: int) -> None:
        if await self.ask():
            await self.answer(calls=(a % 4 if b % 3 else 0), size=a * b)

    async def take_loop(self, a: int, b: int) -> None:
        """Some rounds of a tool loop, results of all sizes."""
        for _ in range(1 + a % 2):
            if not await self.ask():
                return
            await self.answer(calls=1 + b % 2, size=a)
            await self.give_results(len(self.pending), size=self.window * b // 60)

    async def take_again(self, a: int, b: int) -> None:
        """The same request twice: the first answer never came."""
        await self.ask()
        await self.ask()

    async def take_result(self, a: int, b: int) -> None:
        """Results of some calls, or of all."""
        most = len(self.pending)
        await self.give_results(most if a % 3 else min(1, most), size=self.window * b // 15)

    async def take_crash(self, a: int, b: int) -> None:
        """A call is under way, the process ends, and a message comes."""
        if await self.ask():
            await self.answer(calls=1 + a % 2, size=self.window * (b % 4) // 12, most=self.window)
            await self.take_reopen(a, b)
            await self.say(self.words(self.window * (1 + a) // 14))
            self.done += self.pending
            self.crashed = [one for one, _ in self.pending], self.least
            self.pending, self.least = [], 0  # all that can be folded, unless a result comes yet

    async def take_reopen(self, a: int, b: int) -> None:
        """The session is opened again; what was asked is asked once more."""
        if b % 2:
            await self.open()

    async def take_interrupt(self, a: int, b: int) -> None:
        """The user's program stops the calls and says so."""
        for call_id, name in self.pending[: 1 + a % 2]:
            await self.add_result(call_id, name, "stopped by the user")

    async def take_instruct(self, a: int, b: int) -> None:
        """New instructions, perhaps right behind an answer, with nothing said since."""
        if b % 2 and await self.ask():
            await self.answer(calls=0, size=8 * a)
        self.system = f"Be brief {self.number}. " + self.words((a % 4) * self.window // 30)
        await self.session.instruct(system=self.system)
        if b % 2:
            await self.ask()

    async def take_tools(self, a: int, b: int) -> None:
        self.tools = 1 + a % 3
        await self.session.instruct(tools=self.list_tools())

    async def take_undo(self, a: int, b: int) -> None:
        try:
            await self.session.undo()
        except (Overflow, UndoFirst, NotAnEdit):
            self.seen["not undone"] += 1

    async def take_pin(self, a: int, b: int) -> None:
        await self._mark(a, on=True)

    async def take_unpin(self, a: int, b: int) -> None:
        await self._mark(a, on=False)

    async def _mark(self, a: int, *, on: bool) -> None:
        head = self.session.live.view.head
        try:
            await self.session.pin(max(head - a, 0), on=on)
        except BadHandle:
            self.seen["no message"] += 1

    async def take_exclude(self, a: int, b: int) -> None:
        """A person hides a message; a loop of which something is hidden has no thinking to keep."""
        try:
            await self.session.history.exclude(max(self.session.live.view.head - a, 0))
            self.loop = {}
        except (BadHandle, BadInput, NotAnEdit, UndoFirst):
            self.seen["not excluded"] += 1

    async def take_fold(self, a: int, b: int) -> None:
        try:
            await self.session.fold()
        except Overflow as fault:
            self.check_stuck(fault)

    async def take_switch(self, a: int, b: int) -> None:
        """Another model, in another dialect perhaps, with another window."""
        model, dialect, parameters = MODELS[a % len(MODELS)]
        window = max(int(self.window * (0.6, 1, 1, 1.5)[b % 4]), WINDOWS[0])
        try:
            await self.session.switch(model, window=window, dialect=dialect)
        except Overflow:
            self.seen["not switched"] += 1
            return
        self.model, self.dialect, self.parameters, self.window = model, dialect, parameters, window
        self.loop = {}  # what another model thought is of no use to this one

    async def take_late(self, a: int, b: int) -> None:
        if self.done:
            await self.add_result(*self.done[a % len(self.done)], self.words(b))

    async def take_doubled(self, a: int, b: int) -> None:
        await self.add_result(f"never{a}", "run", self.words(b))

    async def take_usage(self, a: int, b: int) -> None:
        """Counts of servers that do not count, or later than the answer."""
        if self.session.asked >= 0:
            await self.session.record_usage(input=(0, None)[a % 2], output=(0, 7)[b % 2])

    # The provider

    async def ask(self) -> bool:
        """Make a request, and judge it; False if there is none."""
        thinks = "budget_tokens" in self.parameters.get("thinking", {})
        given = {**self.parameters, "max_tokens": 2_000} if thinks else self.parameters
        try:
            request = await self.session.request(**given)
        except Overflow as fault:
            self.check_stuck(fault)
            return False
        except BadInput as fault:
            if "nothing was said" not in str(fault):
                raise
            return False
        request = json.loads(json.dumps(request))
        self.seen["requests"] += 1
        self.seen[self.dialect] += 1
        faults = JUDGES[self.dialect](request)
        if self.begun and self.model == CONTINUES and "thinking" not in request:
            faults = [one for one in faults if one != ENDS]
        faults += self.list_thinking_faults(request)
        if faults:
            raise Refused(f"{self.dialect}: {faults[:3]}")
        size = measure(request)
        if size > self.window and self.policy != "confirm":  # which does not fold in doubt
            raise Refused(f"{size} tokens of {self.window}: {self.session.report}")
        self.sent, self.crashed = request, ([], 0)
        return True

    def check_stuck(self, fault: Overflow) -> None:
        """A session may refuse only what nothing makes smaller."""
        self.seen["overflow"] += 1
        least = self.measure_least()
        if least <= self.window:
            raise Refused(f"stuck: {least} of {self.window} would do: {fault.parts}")

    def measure_least(self) -> int:
        """What nothing makes smaller: fixed parts, the answer's room, newest calls, and clips of what is unanswered."""
        limits = self.session.live.facts.limits
        reserve = limits.reserve
        if "budget_tokens" in self.parameters.get("thinking", {}):
            reserve = min(max(reserve, 2_000), self.window // 2)
        said = sum(min(size, CLIP) for size in self.fresh) + CLIP * len(self.pending)
        kept = count(self.system) + count(self.list_tools()) + self.least + said + HANDOFF
        return int(kept * (1 if self.counts else UNSURE) + reserve + limits.margin * self.window)

    async def answer(self, *, calls: int, size: int, most: int = 0) -> None:
        """The model's answer to the newest request, with or without calls."""
        assert self.sent is not None
        self.number += 1
        ids = [
            (f"call_{self.number}_{n}", ("read", "run", "note")[n % self.tools])
            for n in range(calls)
        ]
        most = most or max(self.session.live.facts.limits.reserve * 2 // 3, 20)
        text = "" if calls and size % 2 else self.words(min(size, most))
        arguments = {"text": self.words(min(size, most))} if size > 40 else {}
        seal = self.seal(self.sent["messages"]) if self.model == BOUND else f"c2ln{self.number:08d}"
        given, thinks = SAID[self.dialect](self, text, ids, arguments, seal)
        tokens = measure(self.sent)
        await self.session.add(given)
        if self.number % 3:
            await self.session.record_usage(input=tokens, output=count(text) + 30)
        if not calls:
            self.loop = {}
        elif thinks:
            self.loop[ids[0][0]] = seal
        self.pending, self.sent, self.fresh, self.crashed = ids, None, [], ([], 0)
        self.least = count(arguments) * calls + count(text) + 20 * (calls + 1)

    async def give_results(self, most: int, *, size: int) -> None:
        for call_id, name in self.pending[:most]:
            await self.add_result(call_id, name, self.words(size))

    async def add_result(self, call_id: str, name: str, text: str) -> None:
        await self.session.add(RESULT[self.dialect](call_id, name, text))
        self.fresh.append(count(text) + OVERHEAD)
        if call_id in self.crashed[0]:
            self.least = self.crashed[1]
        self.done += [(call_id, name)] * (len(self.done) < 20)
        self.pending = [one for one in self.pending if one[0] != call_id]

    def list_thinking_faults(self, request: Json) -> list[str]:
        """What was thought in the loop under way and is not as it was, or stands behind other words."""
        if self.dialect == "anthropic" and self.model == BOUND:
            return self.list_bound_faults(request)
        body = json.dumps(request)
        shown = {first: seal for first, seal in self.loop.items() if f'"{first}"' in body}
        return [
            f"thinking: {seal} is not before {first}"
            for first, seal in shown.items()
            if seal not in before_call(self.dialect, request, first)
        ]

    def list_bound_faults(self, request: Json) -> list[str]:
        """Thinking that this model signed behind other words."""
        messages = request["messages"]
        return [
            f"bound: messages.{at} is behind other words"
            for at, message in enumerate(messages)
            for block in _blocks(message)
            if block["type"] == "thinking" and block["signature"].startswith("bound")
            if block["signature"] != self.seal(messages[:at])
        ]

    def seal(self, messages: list[Json]) -> str:
        """The signature of thinking behind some messages, for the models that bind it."""
        said: list[Any] = []
        for message in messages:
            for block in _blocks(message):
                if block["type"] != "thinking":
                    bare = {key: value for key, value in block.items() if key != "cache_control"}
                    said.append([message["role"], bare])
        return "bound" + sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def measure(request: Json) -> int:
    """The tokens of a request and of the answer that has no room of its own."""
    listed = next(request[key] for key in ("messages", "contents", "input") if key in request)
    fixed = [
        request.get(key)
        for key in ("system", "tools", "instructions", "system_instruction", "config")
    ]
    return count(listed) + OVERHEAD * len(listed) + count([one for one in fixed if one])


# What each provider says


def _say_chat(_: Program, text: str, ids: Any, arguments: Json, seal: str) -> tuple[Any, bool]:
    calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}} for one, name in ids]  # fmt: skip
    return {"role": "assistant", "content": text or None} | (
        {"tool_calls": calls} if calls else {}
    ), False


def _say_responses(_: Program, text: str, ids: Any, arguments: Json, seal: str) -> tuple[Any, bool]:
    items: list[Json] = [
        {"type": "reasoning", "id": f"rs_{seal}", "summary": [], "encrypted_content": seal}
    ]
    if text:
        items.append({"type": "message", "id": f"msg_{seal}", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})  # fmt: skip
    items += [{"type": "function_call", "id": f"fc_{one}", "call_id": one, "name": name, "arguments": json.dumps(arguments)} for one, name in ids]  # fmt: skip
    return items if text or ids else [], bool(ids)


def _say_anthropic(
    self: Program, text: str, ids: Any, arguments: Json, seal: str
) -> tuple[Any, bool]:
    kind = self.sent and self.sent.get("thinking")
    thinks = bool(kind) and (not self.loop or self.number % 3 > 0)
    blocks: list[Json] = (
        [{"type": "thinking", "thinking": f"hm {self.number}", "signature": seal}] if thinks else []
    )
    if thinks and self.number % 5 == 0 and self.model != BOUND:
        blocks = [{"type": "redacted_thinking", "data": seal}]
    blocks += [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "tool_use", "id": one, "name": name, "input": arguments} for one, name in ids
    ]
    return {"role": "assistant", "content": blocks}, thinks


def _say_gemini(_: Program, text: str, ids: Any, arguments: Json, seal: str) -> tuple[Any, bool]:
    parts: list[Json] = [{"text": text}] if text else []
    calls: list[Json] = [
        {"functionCall": {"id": one, "name": name, "args": arguments}} for one, name in ids
    ]
    if calls:
        calls[0]["thoughtSignature"] = seal
    return {"role": "model", "parts": parts + calls or [{"text": "ok"}]}, bool(ids)


def _say_steps(_: Program, text: str, ids: Any, arguments: Json, seal: str) -> tuple[Any, bool]:
    found: list[Json] = [{"type": "thought", "signature": seal, "summary": []}]
    found += [{"type": "model_output", "content": [{"type": "text", "text": text}]}] if text else []
    found += [
        {"type": "function_call", "id": one, "name": name, "arguments": arguments}
        for one, name in ids
    ]
    return found if text or ids else [], bool(ids)


SAID = {
    "openai-chat": _say_chat,
    "openai-responses": _say_responses,
    "anthropic": _say_anthropic,
    "gemini": _say_gemini,
    "gemini-interactions": _say_steps,
}
RESULT = {
    "openai-chat": lambda one, _, text: {"role": "tool", "tool_call_id": one, "content": text},
    "openai-responses": lambda one, _, text: {"type": "function_call_output", "call_id": one, "output": text},
    "anthropic": lambda one, _, text: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": text}]},
    "gemini": lambda one, name, text: {"role": "user", "parts": [{"functionResponse": {"id": one, "name": name, "response": {"output": text}}}]},
    "gemini-interactions": lambda one, name, text: {"type": "function_result", "call_id": one, "name": name, "result": text},
}  # fmt: skip


# What each provider refuses


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def judge_chat(request: Json) -> list[str]:
    faults: list[str] = []
    waits: list[str] = []
    for at, message in enumerate(request["messages"]):
        calls = [one["id"] for one in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            if message["tool_call_id"] not in waits:
                faults.append(f"messages.{at}: a result without its call")
            waits = [one for one in waits if one != message["tool_call_id"]]
            continue
        if waits:
            faults.append(f"messages.{at}: calls {waits} have no result")
        waits = calls
        if len({*calls}) < len(calls):
            faults.append(f"messages.{at}: ids {calls}")
        if not calls and not str(message.get("content") or "").strip():
            faults.append(f"messages.{at}: says nothing")
    return faults + ["the last calls have no result"] * bool(waits)


def judge_anthropic(request: Json) -> list[str]:
    faults: list[str] = []
    waits: list[str] = []
    role = "assistant"
    for at, message in enumerate(request["messages"]):
        blocks = _blocks(message)
        if message["role"] == role:
            faults.append(f"messages.{at}: {role} twice")
        role = message["role"]
        if not blocks or any(
            block["type"] == "text" and not block["text"].strip() for block in blocks
        ):
            faults.append(f"messages.{at}: says nothing")
        answered = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        if sorted(answered) != sorted(waits):
            faults.append(f"messages.{at}: results {answered} for calls {waits}")
        if any(one["type"] != "tool_result" for one in blocks[: len(answered)]):
            faults.append(f"messages.{at}: words before results")
        waits = [one["id"] for one in blocks if one["type"] == "tool_use"]
    if role != "user":
        faults.append(ENDS)
    kind = (request.get("thinking") or {}).get("type")
    if kind == "enabled":
        begun = _begin_loop(request["messages"])
        if begun and "thinking" not in begun[0]:
            faults.append(f"Expected `thinking`, but found {begun[0]!r}")
        if request["max_tokens"] <= request["thinking"]["budget_tokens"]:
            faults.append("max_tokens must be greater than thinking.budget_tokens")
    elif kind != "adaptive" and "clear_thinking" in json.dumps(request.get("context_management")):
        faults.append("`clear_thinking_20251015` strategy requires `thinking` to be enabled")
    marks = json.dumps(request).count('"cache_control"')
    return faults + [f"{marks} cache marks"] * (marks > 4)


def _begin_loop(messages: list[Json]) -> list[str]:
    """The kinds of blocks of the answer with which the tool loop under way began."""
    begun: list[str] = []
    turns = [(one["role"], [block["type"] for block in _blocks(one)]) for one in messages]
    while len(turns) > 1 and "tool_result" in turns[-1][1] and turns[-2][0] == "assistant":
        begun = turns[-2][1]
        turns = turns[:-2]
    return begun


def judge_responses(request: Json) -> list[str]:
    faults: list[str] = []
    items = request["input"]
    waits: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            after = items[at + 1] if at + 1 < len(items) else {}
            follows = (
                after.get("type") in ("function_call", "reasoning")
                or after.get("role") == "assistant"
            )
            if not follows:
                faults.append(f"input[{at}]: reasoning without its following item")
        elif kind == "function_call":
            waits.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in waits:
                faults.append(f"input[{at}]: an output without its call")
            waits.discard(item["call_id"])
        elif kind == "message":
            if waits:
                faults.append(f"input[{at}]: calls {waits} have no output")
            if not json.dumps(item["content"]).strip('"[] '):
                faults.append(f"input[{at}]: says nothing")
    return faults + [f"calls {waits} have no output"] * bool(waits)


def judge_gemini(request: Json) -> list[str]:
    faults: list[str] = []
    waits: list[str] = []
    role = ""
    for at, content in enumerate(request["contents"]):
        parts = content["parts"]
        if content["role"] == role:
            faults.append(f"contents.{at}: {role} twice")
        role = content["role"]
        if not parts or any("text" in part and not part["text"].strip() for part in parts):
            faults.append(f"contents.{at}: says nothing")
        calls = [part for part in parts if "functionCall" in part or "function_call" in part]
        answered = sum("functionResponse" in part or "function_response" in part for part in parts)
        if answered != len(waits):
            faults.append(f"contents.{at}: {answered} results for {len(waits)} calls")
        if calls and not (calls[0].get("thoughtSignature") or calls[0].get("thought_signature")):
            faults.append(f"contents.{at}: the first call has no signature")
        waits = [*map(str, calls)]
    return faults + [ENDS] * (role != "user")


def judge_steps(request: Json) -> list[str]:
    faults: list[str] = []
    waits: set[str] = set()
    items = request["input"]
    for at, item in enumerate(items):
        kind = item["type"]
        if kind == "function_call":
            waits.add(item["id"])
        elif kind == "function_result":
            if item["call_id"] not in waits:
                faults.append(f"input[{at}]: a result without its call")
            waits.discard(item["call_id"])
        elif kind == "user_input":
            if waits:
                faults.append(f"input[{at}]: calls {waits} have no result")
            if not item["content"]:
                faults.append(f"input[{at}]: says nothing")
    if waits:
        faults.append(f"calls {waits} have no result")
    if items[-1]["type"] not in ("user_input", "function_result"):
        faults.append(ENDS)
    return faults


JUDGES = {
    "openai-chat": judge_chat,
    "anthropic": judge_anthropic,
    "openai-responses": judge_responses,
    "gemini": judge_gemini,
    "gemini-interactions": judge_steps,
}


def before_call(dialect: str, request: Json, call_id: str) -> str:
    """What the provider reads of an answer's thinking, together with a call."""
    if dialect == "anthropic":
        for message in request["messages"]:
            blocks = _blocks(message)
            at = [n for n, one in enumerate(blocks) if one.get("id") == call_id]
            if at:
                return json.dumps([one for one in blocks[: at[0]] if "thinking" in one["type"]])
    if dialect == "gemini":
        for content in request["contents"]:
            for part in content["parts"]:
                call = part.get("functionCall") or part.get("function_call")
                if call and call.get("id") == call_id:
                    return json.dumps(part)
    if dialect in ("openai-responses", "gemini-interactions"):
        items = request["input"]
        at = next(
            n for n, one in enumerate(items) if call_id in (one.get("call_id"), one.get("id"))
        )
        return json.dumps(items[max(at - 3, 0) : at + 1])
    return ""


async def play(program: list[Step]) -> Program:
    """Play a program to its end, with one more request there; raises `Refused` at the first fault."""
    first, *rest = program
    random = Random(repr(program[:2]))
    model, dialect, parameters = MODELS[(first.a + len(first.name)) % len(MODELS)]
    policy, window = (
        POLICIES[first.b % len(POLICIES)],
        WINDOWS[(first.a * 5 + first.b) % len(WINDOWS)],
    )
    counts = (first.a + first.b) % 3 == 0
    talk = Program(random, window, policy, model, dialect, parameters, counts=counts)
    await talk.open()
    try:
        for step in rest:
            await talk.take(step)
        if talk.fresh or talk.pending:
            await talk.ask()
    finally:
        await talk.store.close()
    return talk

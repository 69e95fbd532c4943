"""Programs of clients, drawn at random and played through the proxied path.

A program is a seed, which says who the clients are, and steps as plain data. Every step has a seed
of its own, so a program stays the same when another step is left out, and shrinks to a short one.

    result = play_program(draw_program(seed))
    laws.transparent(result)

`ProxyAdapter` is the only thing here that knows the proxy.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from client_habits import (
    ANSWERS,
    CHARACTERS,
    GEMINI_MODEL,
    HABITS,
    INTERACTIONS,
    RESPONSES,
    SENTENCES,
    TASKS,
    Client,
    DialectName,
    Json,
    Message,
    Persona,
    Written,
    draw_own_habits,
    write_answer,
)
from hypothesis import strategies as st

from foldline.core.plan import Facts
from foldline.dialects.base import ANTHROPIC, CHAT, GEMINI, PathFacts, get_dialect
from foldline.errors import FoldlineError, WireError
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Scope
from foldline.session.model_facts import build_facts
from foldline.stores.base import Draft, Name, Store
from foldline.stores.sqlite import SqliteStore

ACTIONS: dict[str, int] = {
    "say": 44,
    "retry": 7,
    "continue_twice": 6,
    "leave": 5,
    "refuse": 12,
    "fail": 2,
    "edit": 5,
    "edit_tail": 6,
    "regenerate": 5,
    "drop": 6,
    "reorder": 8,
    "branch": 4,
    "return": 8,
    "compact": 7,
    "note": 5,
    "begin_anew": 3,
    "renew_token": 6,
    "prefill": 6,
    "begin_late": 4,
    "send_odd_body": 2,
    "restart": 5,
}
"""What may happen, and how often."""
HARMLESS = ("say", "retry", "leave", "refuse", "fail", "edit_tail", "regenerate", "renew_token")
"""What a client may do that has one conversation and expects one session."""
WINDOWS = (2_000, 2_000, 3_000, 4_000, 6_000, 200_000)
POLICIES = ("steady", "steady", "steady", "three-layer", "three-layer", "classic", "sliding")
_TOO_LONG = {"type": "invalid_request_error", "code": "context_length_exceeded"}
_TOO_LARGE = {"type": "invalid_request_error"}
REFUSALS: dict[DialectName, tuple[tuple[int, str, Json], ...]] = {
    CHAT: (
        (
            400,
            (
                "This model's maximum context length is {limit} tokens. However, your messages "
                "resulted in {count} tokens. Please reduce the length of the messages."
            ),
            {"error": {"message": "", **_TOO_LONG, "param": "messages"}},
        ),
        (
            400,
            (
                "Your input exceeds the context window of this model. Please adjust your input and "
                "try again."
            ),
            {"error": {"message": "", **_TOO_LONG, "param": "input"}},
        ),
        (
            400,
            (
                "request ({count} tokens) exceeds the available context size ({limit} tokens), try "
                "increasing it"
            ),
            {"error": {"code": 400, "message": "", "type": "exceed_context_size_error"}},
        ),
        (
            400,
            (
                "The input ({count} tokens) is longer than the model's context length "
                "({limit} tokens)."
            ),
            {"object": "error", "message": "", "type": "BadRequestError", "code": 400},
        ),
        (
            400,
            "prompt token count of {count} exceeds the limit of {limit}",
            {"error": {"message": "", "code": "model_max_prompt_tokens_exceeded"}},
        ),
        (400, "Please reduce the length of the messages or completion.", {}),
        (413, "413 status code (no body)", {}),
    ),
    ANTHROPIC: (
        (
            400,
            "prompt is too long: {count} tokens > {limit} maximum",
            {"type": "error", "error": {**_TOO_LARGE, "message": ""}, "request_id": "req_011C"},
        ),
        (
            413,
            "Request size exceeds model context window",
            {"type": "error", "error": {**_TOO_LARGE, "message": ""}, "request_id": "req_011C"},
        ),
        (400, "Input is too long for requested model.", {}),
    ),
}
REFUSALS[RESPONSES] = REFUSALS[CHAT]
_INVALID = {"error": {"code": 400, "message": "", "status": "INVALID_ARGUMENT"}}
REFUSALS[GEMINI] = (
    (
        400,
        ("The input token count ({count}) exceeds the maximum number of tokens allowed ({limit})."),
        _INVALID,
    ),
    (
        400,
        "The input token count exceeds the maximum number of tokens allowed ({limit}).",
        _INVALID,
    ),
    (
        400,
        (
            "Unable to submit request because the input token count is {count} but model only "
            "supports up to {limit}. Reduce the input token count and try again."
        ),
        _INVALID,
    ),
)
REFUSALS[INTERACTIONS] = REFUSALS[GEMINI]
"""How providers refuse what is too long, as users reported it: status, words, what is around."""
_SUMMARISE = "Summarise the conversation so far, so that it can be continued from your summary."
_CONTINUED = "This session is being continued from a previous conversation. Summary:\n"

# --- The adapter -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is, as a gateway knows it from headers."""

    tenant: str
    key: str
    session: str
    family: str


@dataclass(slots=True)
class Call:
    """One request on its way."""

    body: bytes
    """What goes upstream."""
    session: str = ""
    patches: tuple[object, ...] = ()
    is_planned: bool = True
    """False: the proxy would not read it, and it goes out as it came."""
    fault: str = ""
    """What the proxy raised, if that says nothing of the body: it must relay instead."""
    handle: Any = None


class Adapter(Protocol):
    """A process that relays requests."""

    async def ask(
        self, dialect: DialectName, body: bytes, caller: Caller, *, streams: bool = False
    ) -> Call:
        """What goes upstream for a request; `streams` is what its path says, if bodies do not."""
        ...

    async def answer(self, call: Call, status: int, chunks: Sequence[bytes]) -> bool:
        """Take in a response; True: it is a refusal, and `call` has another body to send."""
        ...

    async def leave(self, call: Call) -> None:
        """Nothing came back."""
        ...


class ProxyAdapter:
    """The proxied path in this process. The one place that knows its interface."""

    def __init__(self, store: Store, *, window: int, policy: str) -> None:
        def facts_of(model: str) -> Facts:
            return build_facts(model, window=window, reserve=None, policy=policy)

        self._conversations = Conversations(store, facts_of, shared=True)

    async def ask(
        self, dialect: DialectName, body: bytes, caller: Caller, *, streams: bool = False
    ) -> Call:
        """What goes upstream for a request."""
        # As the gateway does: a client that names its conversations may renew its token.
        key = "" if caller.family else caller.key
        scope = Scope(caller.tenant, key, caller.session, family=caller.family)
        path = PathFacts(GEMINI_MODEL, streams) if dialect == GEMINI else None
        try:
            exchange = await self._conversations.start_exchange(
                get_dialect(dialect), body, scope=scope, path=path
            )
        except WireError:
            return Call(body, is_planned=False)
        except FoldlineError as fault:
            return Call(body, is_planned=False, fault=repr(fault))
        return Call(exchange.body, exchange.session, _patches(exchange), handle=exchange)

    async def answer(self, call: Call, status: int, chunks: Sequence[bytes]) -> bool:
        """Take in a response; True: it is a refusal, and `call` has another body to send."""
        exchange = cast("Exchange | None", call.handle)
        if exchange is None:
            return False
        exchange.start_response(status)
        for chunk in chunks:
            exchange.receive_chunk(chunk)
        if status >= 400 and await exchange.heal_refusal():
            call.body, call.patches = exchange.body, _patches(exchange)
            return True
        await exchange.end_response()
        call.session = exchange.session
        return False

    async def leave(self, call: Call) -> None:
        """Nothing came back."""
        if call.handle is not None:
            cast("Exchange", call.handle).mark_unanswered()


def _patches(exchange: Exchange) -> tuple[object, ...]:
    return tuple(exchange.patches.items())


# --- Programs ----------------------------------------------------------------------------------


class Step(NamedTuple):
    """Who does what, and a seed that says how."""

    client: int
    action: str
    seed: int


class Program(NamedTuple):
    """A seed that says who the clients are and what is between them, and what they do."""

    seed: int
    steps: tuple[Step, ...]
    dialect: DialectName = ""
    """The dialect of all clients, where it is not left to the seed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Between whom a program is played."""

    window: int
    policy: str
    processes: int
    personas: tuple[Persona, ...]


def draw_program(seed: int, *, longest: int = 20, dialect: DialectName = "") -> Program:
    """A program out of one number, and perhaps of one dialect."""
    rng = Random(seed)
    names, weights = [*ACTIONS], [*ACTIONS.values()]
    length = rng.randint(4, longest)
    actions = rng.choices(names, weights, k=length)
    # Mostly one client at a time, so that histories become long enough to be folded.
    client, steps = 0, list[Step]()
    for action in actions:
        client = rng.randrange(4) if rng.random() < 0.5 else client
        steps.append(Step(client, action, rng.randrange(1 << 30)))
    return Program(seed, tuple(steps), dialect)


def setting_of(program: Program) -> Setting:
    """Who plays a program, and on what."""
    rng = Random(program.seed ^ 0x5EED)
    window, policy = rng.choice(WINDOWS), rng.choice(POLICIES)
    dialect: DialectName = rng.choice((CHAT, ANTHROPIC))
    # By other sources of numbers: programs of the dialects before them stay what they were.
    if Random(program.seed ^ 0xD1A).random() < 1 / 3:
        dialect = RESPONSES
    if Random(program.seed ^ 0x6E31).random() < 1 / 4:
        dialect = GEMINI
    if Random(program.seed ^ 0x17E4).random() < 1 / 5:
        dialect = INTERACTIONS
    shared = rng.choice((1, 2, 2, 3))
    personas = [
        _draw_persona(rng, number, program.dialect or dialect, shared, window)
        for number in range(rng.choice((2, 2, 3, 4)))
    ]
    if program.dialect:
        personas = [replace(one, dialect=program.dialect) for one in personas]
    return Setting(window, policy, rng.choice((1, 1, 2, 3)), tuple(personas))


def _draw_persona(
    rng: Random, number: int, dialect: DialectName, shared: int, window: int
) -> Persona:
    if rng.random() < 0.12:
        dialect = ANTHROPIC if dialect == CHAT else CHAT
    habits = {name for name, share in HABITS.items() if rng.random() < share}
    habits |= {"tools"} if "works" in habits else set()
    key, family, session = rng.choice(("key", "key", "key", "key", "other key")), "", ""
    is_linear = rng.random() < 0.33
    known_by = rng.choice(("key", "family", "session", "words"))
    if is_linear:
        shared = 0 if known_by == "words" else shared
        key = f"key of {number}" if known_by == "key" else key
        family = f"family-{number}" if known_by == "family" else ""
        session = f"session-{number}" if known_by == "session" else ""
        habits -= {"moving_pair"} if known_by != "words" else set()
    elif rng.random() < 0.35:
        family = f"family-{number}" if rng.random() < 0.7 else ""
        session = "" if family else f"session-{number}"
    bounds = (64, 256, window // 8, window // 4, 32_000)
    bound = rng.choice(bounds) if dialect == ANTHROPIC or rng.random() < 0.5 else None
    style = rng.randrange(1 << 20)
    kept = frozenset(habits | draw_own_habits(style))
    return Persona(dialect, key, family, session, is_linear, shared, kept, bound, style)


@dataclass(slots=True)
class Sent:
    """One request: what the client asked, what went upstream, and where it was recorded."""

    client: int
    conversation: int
    persona: Persona
    asked: bytes
    sent: bytes
    patches: tuple[object, ...]
    session: str
    is_planned: bool
    tags: frozenset[str]
    shown: tuple[Message, ...] = ()
    """The history it showed, without instructions."""
    answer: Message | None = None
    cut: Message | None = None
    """An answer of which only the beginning came."""
    answered_in: str = ""
    """The session that has the answer, where a race moved it."""
    is_retry: bool = False
    is_heal: bool = False

    @property
    def owner(self) -> tuple[int, int]:
        """Whose canaries it may hold."""
        return self.client, self.conversation


@dataclass(slots=True, repr=False)  # asyncio writes out what a task gave, once per program
class ProgramResult:
    """What a program did: everything that law 9 speaks of."""

    program: Program
    setting: Setting
    window: int
    """The smallest that anybody stated."""
    sent: list[Sent] = field(default_factory=list[Sent])
    kinds: Counter[str] = field(default_factory=Counter[str])
    """Events written, by kind; and forks."""
    stored: Counter[str] = field(default_factory=Counter[str])
    """Bytes of messages written, by session."""
    tags: Counter[str] = field(default_factory=Counter[str])
    """What clients did."""
    faults: list[str] = field(default_factory=list[str])
    """What the proxy did that no body shows."""


MESSAGES = ("user_said", "model_said", "tool_returned")


class WatchedStore:
    """A store that counts what is written into it, by kind and by session."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.kinds: Counter[str] = Counter()
        self.stored: Counter[tuple[str, str]] = Counter()
        """Bytes of messages, by tenant and session."""
        self._pieces: set[tuple[Name, str]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, name: Name, draft: Draft, **given: Any) -> int:
        """Append, and count."""
        end = await self._inner.append(name, draft, **given)
        for row in draft.rows:
            self.kinds[row.kind] += 1
            self._count(name, row.kind, len(row.body))
        for digest, body in draft.blobs.items():
            if (name, digest) not in self._pieces:
                self._pieces.add((name, digest))
                self.stored[name] += len(body)
        return end

    async def fork(self, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
        """Fork, and count that; what is copied is what was live there, once a branch."""
        await self._inner.fork(name, to, at=at, keep=keep)
        self.kinds["fork"] += 1

    def _count(self, name: Name, kind: str, size: int) -> None:
        if kind in MESSAGES:
            self.stored[name] += size


@dataclass(slots=True)
class Pending:
    """A request without an answer."""

    call: Call
    sent: Sent
    history: list[Message]
    """What the answer is added to, if it comes."""
    streams: bool
    prefix: str = ""
    may_call: bool = True
    process: int = 0
    outcome: str = "answer"
    seed: int = 0


# --- Playing -----------------------------------------------------------------------------------

Begin: TypeAlias = Callable[[int], Awaitable[Adapter]]
"""Starts a process, by its number; the one that had the number before is gone."""


class Player:
    """Plays a program through some processes, and records every request."""

    def __init__(self, program: Program, begin: Begin, *, tenant: str = "local") -> None:
        self.setting = setting_of(program)
        self.result = ProgramResult(program, self.setting, self.setting.window)
        self.tenant, self._begin = tenant, begin
        self.processes: list[Adapter] = []
        self._pending: dict[int, list[Pending]] = defaultdict(list)
        tags, window = self.result.tags, self.setting.window
        personas = enumerate(self.setting.personas)
        self.clients = [Client(number, one, window, tags) for number, one in personas]

    async def play(self) -> ProgramResult:
        """All steps, one after another."""
        await self.start()
        for step in self.result.program.steps:
            await self.take(step)
        for client in self.clients:
            await self._settle(client)
        return self.result

    async def play_at_once(self) -> ProgramResult:
        """All clients at the same time, each of them step by step."""
        await self.start()
        count = len(self.clients)

        async def follow(number: int) -> None:
            for step in self.result.program.steps:
                if step.client % count == number:
                    await self.take(step)
            await self._settle(self.clients[number])

        await asyncio.gather(*map(follow, range(count)))
        return self.result

    async def start(self) -> None:
        """Start all processes."""
        self.processes = [await self._begin(at) for at in range(self.setting.processes)]

    async def take(self, step: Step) -> None:
        """One step."""
        rng = Random(step.seed)
        client = self.clients[step.client % len(self.clients)]
        action = step.action
        if action == "restart":
            place = rng.randrange(len(self.processes))
            self.processes[place] = await self._begin(place)
            self.result.tags["restart"] += 1
            return
        await self._settle(client)
        if client.persona.is_linear and action not in HARMLESS:
            action = "say"
        await self._act(client, action, rng)

    async def _act(self, client: Client, action: str, rng: Random) -> None:  # noqa: PLR0915 - one case per action
        tags, history = self.result.tags, client.history
        users = [at for at, one in enumerate(history) if one.role == "user"]
        match action:
            case "retry":
                tags["retry"] += 1
                await self._retry(client, rng)
                return
            case "continue_twice":
                tags["continue_twice"] += 1
                await self._continue_twice(client, rng)
                return
            case "compact" if len(history) > 2:
                tags["compact"] += 1
                await self._compact(client, rng)
                return
            case "prefill" if get_dialect(client.persona.dialect).allows_prefill:
                self._add(client, rng)
                if client.history[-1].role == "user":
                    tags["prefill"] += 1
                    begun = Message("assistant", "Sure, ", is_passing=True)
                    pending = await self._ask(client, rng, client.history, tail=[begun])
                    pending.prefix = begun.text
                    await self._finish(client, pending, rng)
                    return
            case "send_odd_body":
                tags["send_odd_body"] += 1
                await self._send_odd_body(client, rng)
                return
            case "leave" | "fail" | "refuse":
                tags[action] += 1
                self._add(client, rng)
                pending = await self._ask(client, rng, client.history)
                pending.outcome = action
                if await self._finish(client, pending, rng) is None and rng.random() < 0.4:
                    client.history.pop()
                return
            case "edit" if users:
                tags["edit"] += 1
                place = rng.choice(users)
                text = f"Rather this: {client.canary()}"
                history[place] = replace(history[place], text=text)
            case "edit_tail" | "regenerate" if users:
                tags[action] += 1
                client.history = history = history[: users[-1] + 1]
                if action == "edit_tail":
                    history[-1] = replace(history[-1], text=f"I meant {client.canary()}")
                await self._ask_and_finish(client, rng)
                return
            case "drop" if len(users) > 1:
                tags["drop"] += 1
                first = rng.choice(users[:-1])
                second = users[users.index(first) + 1]
                begin = 0 if rng.random() < 0.5 else first
                client.history = [*history[:begin], *history[second:]]
            case "reorder" if len(users) > 2:
                tags["reorder"] += 1
                one, two, three = users[-3:]
                client.history = [
                    *history[:one],
                    *history[two:three],
                    *history[one:two],
                    *history[three:],
                ]
            case "branch":
                tags["branch"] += 1
                client.branches.append([*history])
            case "return" if client.branches or len(users) > 1:
                tags["return"] += 1
                client.branches.append([*history])
                if len(client.branches) > 1:
                    client.history = client.branches.pop(rng.randrange(len(client.branches) - 1))
                else:  # to a place of its own history, from where it goes on otherwise
                    client.history = history[: rng.choice(users[1:])]
            case "note":
                tags["note"] += 1
                if history and not history[-1].calls:
                    history.append(Message("system", f"From now on: {client.canary()}."))
            case "begin_anew":
                tags["begin_anew"] += 1
                client.begin_anew()
            case "renew_token" if client.persona.family:
                tags["renew_token"] += 1
                client.key = f"token {rng.randrange(1 << 30)}"
            case "begin_late":  # it spoke with the model before the proxy was there
                tags["begin_late"] += 1
                if history:
                    client.begin_anew()
                client.history = [
                    Message("user", TASKS[0] + " " + SENTENCES[0] * 6),
                    Message("assistant", ANSWERS[0]),
                ]
            case _:
                pass
        self._add(client, rng)
        await self._ask_and_finish(client, rng)

    def _add(self, client: Client, rng: Random) -> None:
        """Say something; where the last message has no answer, perhaps only ask again."""
        last = client.history[-1] if client.history else None
        if last is not None and last.role in ("user", "results") and rng.random() < 0.6:
            self.result.tags["ask_again"] += 1
            return
        client.history.append(client.next_message(rng))

    async def _ask_and_finish(self, client: Client, rng: Random) -> None:
        pending = await self._ask(client, rng, client.history)
        if client.has("slow", rng, 0.3):
            pending.seed = rng.randrange(1 << 30)
            self._pending[client.number].append(pending)
            return
        await self._finish(client, pending, rng)

    async def _settle(self, client: Client) -> None:
        """Give a client the answers that it still waits for."""
        while self._pending[client.number]:
            pending = self._pending[client.number].pop()
            await self._finish(client, pending, Random(pending.seed))

    async def _ask(  # noqa: PLR0913 - a request
        self,
        client: Client,
        rng: Random,
        history: list[Message],
        *,
        tail: Sequence[Message] = (),
        written: Written | None = None,
        process: int | None = None,
        odd: str = "",
    ) -> Pending:
        is_retry = written is not None
        written = written or client.body(rng, history, tail)
        persona = client.persona
        place = rng.randrange(len(self.processes)) if process is None else process
        caller = Caller(self.tenant, client.key, persona.session, persona.family)
        body = _oddly(written.body, odd) if odd else written.body
        call = await self.processes[place].ask(
            persona.dialect, body, caller, streams=written.streams
        )
        sent = Sent(
            client.number,
            client.conversation,
            persona,
            body,
            call.body,
            call.patches,
            call.session,
            call.is_planned,
            frozenset({odd} if odd else ()),
            shown=written.shown,
            is_retry=is_retry,
        )
        self.result.sent.append(sent)
        self.result.tags["request"] += 1
        self.result.tags["unplanned"] += not call.is_planned
        if call.fault:
            self.result.faults.append(f"raises: {call.fault}")
        self._written = written
        return Pending(call, sent, history, written.streams, process=place)

    async def _finish(self, client: Client, pending: Pending, rng: Random) -> Message | None:
        """What comes back; the answer is added to the history that asked for it."""
        call, persona = pending.call, client.persona
        proxy = self.processes[pending.process]
        tags = self.result.tags
        if pending.outcome == "leave":
            await proxy.leave(call)
            return None
        if pending.outcome == "fail":
            error = b'{"error": {"message": "The server had an error", "type": "server_error"}}'
            if await proxy.answer(call, 500, [error]):
                self.result.faults.append("again: another body after a server's error")
            return None
        if pending.outcome == "refuse" and not await self._refuse(pending, rng):
            return None
        shown, may_call = pending.sent.shown, pending.may_call
        message = client.answer_to(shown, rng, prefix=pending.prefix, may_call=may_call)
        heard = replace(message, text=message.text.removeprefix(pending.prefix))
        tokens = len(call.body) // CHARACTERS
        chunks = write_answer(
            persona.dialect,
            heard,
            tokens=tokens,
            streams=pending.streams,
            gives_ids=client.gives_ids,
        )
        if pending.streams and rng.random() < 0.1:
            tags["cut_stream"] += 1
            await proxy.answer(call, 200, chunks[: len(chunks) // 2])
            pending.sent.cut = message
            return None
        await proxy.answer(call, 200, chunks)
        pending.sent.answer, pending.sent.answered_in = message, call.session
        pending.history.append(message)
        return message

    async def _refuse(self, pending: Pending, rng: Random) -> bool:
        """Refuse what was sent for its length; whether what was sent instead is answered."""
        call, sent = pending.call, pending.sent
        proxy, before = self.processes[pending.process], call.body
        count = len(before) // CHARACTERS
        limit = max(int(count * rng.choice((0.5, 0.7, 0.9, 0.97))), 300)
        status, said = _write_refusal(rng, sent.persona.dialect, limit=limit, count=count)
        self.result.window = min(self.result.window, limit)
        if not await proxy.answer(call, status, [said]):
            return False
        self.result.tags["heal"] += 1
        again = replace(sent, sent=call.body, patches=call.patches, is_heal=True)
        self.result.sent.append(again)
        if len(call.body) > len(before) or call.body == before:
            sizes = f"{len(before)} bytes were refused, {len(call.body)} sent"
            self.result.faults.append(f"again: {sizes}")
        if len(call.body) // CHARACTERS > limit and rng.random() < 0.5:
            if await proxy.answer(call, status, [said]):
                self.result.faults.append("again: a third body for one request")
            return False
        pending.sent = again
        return True

    async def _retry(self, client: Client, rng: Random) -> None:
        """The same body again while the first has no answer: an SDK's timeout."""
        self._add(client, rng)
        first = await self._ask(client, rng, client.history)
        same = first.process if client.persona.is_linear else None
        second = await self._ask(client, rng, [], written=self._written, process=same)
        pair = [first, second]
        rng.shuffle(pair)
        history = client.history
        pair[0].history, pair[1].history = [], []
        if rng.random() < 0.4:
            pair[0].outcome = "leave"
        answers = [await self._finish(client, one, rng) for one in pair]
        said = [one for one in answers if one is not None]
        if said:
            history.append(rng.choice(said))

    async def _continue_twice(self, client: Client, rng: Random) -> None:
        """Two continuations of one history at once; the client goes on with one of them."""
        base = client.history
        pair: list[Pending] = []
        for _ in range(2):
            client.history = [*base]
            self._add(client, rng)
            pair.append(await self._ask(client, rng, client.history))
        rng.shuffle(pair)
        for one in pair:
            await self._finish(client, one, rng)
        client.history = pair[0].history
        client.branches.append(pair[1].history)

    async def _compact(self, client: Client, rng: Random) -> None:
        """The client's own compaction: it asks for a summary, and goes on with that instead."""
        if client.history[-1].calls:
            client.history.append(client.next_message(rng))
        asking = [*client.history, Message("user", _SUMMARISE, is_passing=True)]
        pending = await self._ask(client, rng, asking)
        pending.may_call = False
        answer = await self._finish(client, pending, rng)
        if answer is None:
            return
        users = [at for at, one in enumerate(client.history) if one.role == "user"]
        kept = client.history[users[-1] :] if users and rng.random() < 0.4 else []
        first = Message("user", _CONTINUED + answer.text)
        client.history = [first, *kept] if kept else [first]
        if kept:
            client.history.insert(1, Message("assistant", "Understood."))
            self._add(client, rng)
        await self._ask_and_finish(client, rng)

    async def _send_odd_body(self, client: Client, rng: Random) -> None:
        """A body that must pass as it is: it names the server's state, or says a thing twice."""
        if not client.history:
            client.history.append(client.next_message(rng))
        states = {ANTHROPIC: "thread", RESPONSES: "previous_response", GEMINI: "cached_content"}
        states[INTERACTIONS] = "previous_interaction"
        odd = "duplicate_key"
        if state := states.get(client.persona.dialect):
            odd = rng.choice((state, "duplicate_key"))
        pending = await self._ask(client, rng, [*client.history], odd=odd)
        await self._finish(client, pending, rng)


def _write_refusal(
    rng: Random, dialect: DialectName, *, limit: int, count: int
) -> tuple[int, bytes]:
    """A provider's refusal: its status and its body."""
    status, words, around = rng.choice(REFUSALS[dialect])
    said = words.format(limit=limit, count=count)
    if not around:
        return status, said.encode()
    if "error" in around:
        body: Any = {**around, "error": {**around["error"], "message": said}}
        if dialect in (GEMINI, INTERACTIONS) and rng.random() < 0.3:
            body = [body]  # as Google answers those who asked for a stream
        return status, json.dumps(body).encode()
    return status, json.dumps({**around, "message": said}).encode()


def _oddly(body: bytes, odd: str) -> bytes:
    return _ODD[odd] + body.lstrip()[1:]


_ODD = {
    "thread": b'{"thread":{"type":"continue","previous_message_id":"m"},',
    "previous_response": b'{"previous_response_id":"resp_of_nobody",',
    "cached_content": b'{"cached_content":"cachedContents/of-nobody",',
    "previous_interaction": b'{"previous_interaction_id":"int_of_nobody",',
    "duplicate_key": b'{"user":"a","user":"b",',
}
"""How bodies begin that must pass as they are."""


Open: TypeAlias = Callable[[Store, Setting], Adapter]
"""Makes a process over a store."""


def open_proxy(store: Store, setting: Setting) -> Adapter:
    """The real one."""
    return ProxyAdapter(store, window=setting.window, policy=setting.policy)


async def play(
    program: Program, *, at_once: bool = False, open_one: Open = open_proxy
) -> ProgramResult:
    """Play a program over a store in memory; its processes are objects of this one."""
    store = WatchedStore(SqliteStore(":memory:"))
    setting = setting_of(program)

    async def begin(_: int) -> Adapter:
        return open_one(cast("Store", store), setting)

    player = Player(program, begin)
    try:
        result = await (player.play_at_once() if at_once else player.play())
    finally:
        await store.close()
    take_counts(result, store.kinds, store.stored)
    return result


def take_counts(
    result: ProgramResult, kinds: Mapping[str, int], stored: Mapping[tuple[str, str], int]
) -> None:
    """Add what a store counted to a result."""
    result.kinds += Counter(kinds)
    for (_, session), size in stored.items():
        result.stored[session] += size


def play_program(
    program: Program, *, at_once: bool = False, open_one: Open = open_proxy
) -> ProgramResult:
    """The same, for callers that do not await."""
    return asyncio.run(play(program, at_once=at_once, open_one=open_one))


def programs(*, longest: int = 20) -> st.SearchStrategy[Program]:
    """Programs of clients behind a proxy, which shrink to few steps."""
    names = [name for name, weight in ACTIONS.items() for _ in range(weight)]
    seeds = st.integers(0, (1 << 30) - 1)
    step = st.builds(Step, st.integers(0, 3), st.sampled_from(names), seeds)
    steps = st.integers(4, longest).flatmap(
        lambda least: st.lists(step, min_size=least, max_size=longest)
    )
    return st.builds(Program, seeds, steps.map(tuple), st.just(""))

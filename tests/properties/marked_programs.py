"""Programs of clients whose history is in our log: compacted into a mark, or chained by an answer.

A client of Responses says things, calls tools, lets its history be compacted, goes on behind the
mark, in this process or another, and may take the fold back. What goes upstream is compared with a
history that the client keeps beside it, whole. Every fault found is a line that begins with its law.

    assert not play_marked(seed)
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import jury

from foldline.core.item import Item
from foldline.core.log import Edit, Folded
from foldline.core.plan import Facts
from foldline.core.spine import Range
from foldline.dialects.base import get_dialect
from foldline.dialects.client_messages import FoldMark
from foldline.errors import FoldlineError, Overflow, WireError
from foldline.proxy.client_request import read_request
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Scope
from foldline.session.model_facts import build_facts
from foldline.session.session import AsyncSession
from foldline.stores.base import Store
from foldline.stores.sqlite import SqliteStore

Json = dict[str, Any]
RESPONSES = get_dialect("openai-responses")
OWN = Scope(key="key of one", owner="one")
OTHERS = (Scope(key="key of two"), Scope(owner="two"), Scope(tenant="two", key="key of one", owner="one"))  # fmt: skip
OURS = b"foldline:1:"
FILL = "Words are said, and more of them, about the parser and its tests. "


WINDOWS = (1_000_000, 1_000_000, 4_000)
"""In the large one nothing is folded unless a client asks for it."""


@dataclass
class Marked:
    """A client, its history as it sends it, and the same written out."""

    rng: Random
    store: Store
    window: int
    owns: bool
    """Whether the proxy owns the history of clients that chain."""
    chains: bool
    """Whether the client names its last answer instead of repeating its history."""
    history: list[Json] = field(default_factory=list[Json])
    """What it sends: behind a compaction, a mark and what came after."""
    whole: list[Json] = field(default_factory=list[Json])
    """All that was ever said."""
    sent: list[tuple[int, list[bytes]]] = field(default_factory=list[tuple[int, list[bytes]]])
    """The edits in its log, and the messages that went upstream, for every request."""
    faults: list[str] = field(default_factory=list[str])
    answer_id: str = ""
    count: int = 0
    seen: list[Item] = field(default_factory=list[Item])
    """What the log showed when it was compacted, until the next request."""
    compactions: int = 0
    """How often it went on behind a mark: from there on its messages are in our form."""

    def __post_init__(self) -> None:
        self.proxy = self.begin()

    def begin(self) -> Conversations:
        """Start a process over the same store."""

        def facts_of(model: str) -> Facts:
            return build_facts(model, window=self.window, reserve=None, policy="steady")

        return Conversations(self.store, facts_of, shared=True, own_history=self.owns)

    def add(self, *items: Json) -> None:
        """Say something."""
        self.history += items
        self.whole += items

    def number(self) -> int:
        """A number that was not used."""
        self.count += 1
        return self.count

    def user(self) -> Json:
        """What a person says, in one of the forms that clients write."""
        text = f"Turn {self.number()}. " + FILL * self.rng.choice((1, 2, 12))
        parts = [{"type": "input_text", "text": text}]
        content: Any = parts if self.rng.random() < 0.4 else text
        item: Json = {"role": "user", "content": content}
        return {"type": "message", **item} if self.rng.random() < 0.4 else item

    def turn(self) -> tuple[list[Json], list[Json]]:
        """What the model says, and what its tools return."""
        made: list[Json] = []
        name = self.number()
        if self.rng.random() < 0.6:
            sealed = {"summary": [], "encrypted_content": f"gAAA{name}"}
            made.append({"type": "reasoning", "id": f"rs_{name}", **sealed})
        if self.rng.random() < 0.2:
            search = {"status": "completed", "action": {"type": "search", "query": "x"}}
            made.append({"type": "web_search_call", "id": f"ws_{name}", **search})
        calls = self.rng.choice((0, 0, 1, 2))
        if not calls or self.rng.random() < 0.5:
            content = [{"type": "output_text", "text": f"Noted {name}. {FILL}", "annotations": []}]
            own = {"id": f"msg_{name}", "status": "completed", "role": "assistant"}
            phase = {"phase": "commentary"} if calls else {}
            made.append({"type": "message", **own, **phase, "content": content})
        outputs: list[Json] = []
        for at in range(calls):
            said = {"call_id": f"c_{name}_{at}", "name": "run", "arguments": '{"a": 1}'}
            made.append({"type": "function_call", "id": f"fc_{name}_{at}", **said})
            output = f"Found {self.number()}. " + FILL * self.rng.choice((1, 8))
            kind = "function_call_output"
            outputs.append({"type": kind, "call_id": said["call_id"], "output": output})
        return made, outputs

    def body(self, new: list[Json]) -> bytes:
        """A request for what was said, of which `new` is not in any answer's chain yet."""
        fields: Json = {"model": "m", "instructions": "Be brief."}
        if self.chains and self.answer_id:
            fields |= self.rng.choice(({}, {"store": True}))
            return json.dumps(
                {**fields, "previous_response_id": self.answer_id, "input": new}
            ).encode()
        return json.dumps({**fields, "input": self.history}).encode()

    async def ask(self, new: list[Json]) -> None:
        """Send what is there, judge what goes upstream, and add the answer."""
        body = self.body(new)
        try:
            exchange = await self.proxy.start_exchange(RESPONSES, body, scope=OWN)
        except FoldlineError as fault:
            self.faults.append(f"raises: {fault!r}")
            return
        await self.judge(exchange, body)
        made, outputs = self.turn()
        name = f"resp_{self.number()}"
        answer = {"id": name, "object": "response", "status": "completed", "output": made}
        exchange.start_response(200)
        exchange.receive_chunk(json.dumps({**answer, "model": "m", "error": None}).encode())
        await exchange.end_response()
        self.answer_id = name
        self.add(*made)
        if outputs:
            self.add(*outputs)
            await self.ask(outputs)

    async def judge(self, exchange: Exchange, body: bytes) -> None:
        """Compare what goes upstream with all that was said."""
        sent = json.loads(exchange.body)
        is_named = self.chains and b"previous_response_id" in body
        if OURS in exchange.body:
            self.faults.append("9: a mark goes upstream")
        if is_named and not self.owns:
            if exchange.body != body:
                self.faults.append("9: a request of a chain is not sent as it came")
            return
        if is_named and ("previous_response_id" in sent or sent.get("store") is not False):
            self.faults.append("9: the server is asked for a history that is ours")
        self.faults += [f"2: {one}" for one in jury.refused_body(RESPONSES, sent)]
        request = read_request(RESPONSES, exchange.body)
        events = await exchange.live.read_events(Range(0, exchange.live.view.head))
        edits = sum(isinstance(event, Edit) for _, event in events) + self.compactions
        if not exchange.edits and exchange.live.view.items[: len(self.seen)] != self.seen:
            self.faults.append("4: behind a compaction other items are shown than were folded")
        self.seen = []
        folds = exchange.live.view.list_folds().values()
        upto = max((fold.upto for fold in folds), default=0)
        said = read_request(RESPONSES, json.dumps({"input": self.whole}).encode())
        handoffs = len({fold.text for fold in folds})
        shown, wanted = request.digests[handoffs:], said.digests[upto:]
        if exchange.patches.keys() - {"fold"}:  # some are cut or masked
            shown, wanted = [""] * len(shown), [""] * len(wanted)
        if shown != wanted:
            self.faults.append(
                f"3: behind {upto} folded messages are {len(request.digests) - handoffs}, not the "
                f"{len(said.digests) - upto} that were said"
            )
        raws = [request.extract_message(at) for at in request.chained]
        if self.sent and self.sent[-1][0] == edits:
            before = [json.loads(b"[" + one + b"]") for one in self.sent[-1][1]]
            now = [json.loads(b"[" + one + b"]") for one in raws[: len(before)]]
            # What was new in the request before came in the client's own form.
            if now[:-1] != before[:-1]:
                self.faults.append("4: a request rewrites the one before")
        self.sent.append((edits, raws))

    async def compact(self) -> None:
        """Let the history be folded, and go on behind the mark; nobody else may use it."""
        body = json.dumps({"model": "m", "input": self.history}).encode()
        before = len(read_request(RESPONSES, json.dumps({"input": self.whole}).encode()).chain)
        mark, _ = await self.proxy.compact_history(RESPONSES, body, scope=OWN)
        if mark.messages != before:
            self.faults.append(f"3: the mark stands for {mark.messages} messages of {before}")
        item = {"type": "compaction", "encrypted_content": mark.encode()}
        if self.rng.random() < 0.5:
            item["id"] = f"cmp_{self.number()}"
        held = {live.name.session: live for live in self.proxy.list_held()}
        self.seen = [*held[mark.session].view.items]
        kept: list[Json] = []
        if self.rng.random() < 0.4:  # as a posted history is answered
            kept = [one for one in self.history if one.get("role") == "user"]
        self.history = [*kept, item]
        self.compactions += 1
        if self.rng.random() < 0.5:
            await self.try_others(mark)

    async def try_others(self, mark: FoldMark) -> None:
        """The same mark from others, and a mark that was made up, are refused."""
        new = {"role": "user", "content": "What was said?"}
        forged = mark._replace(session=f"{mark.session}-2")
        for scope, one in (*((scope, mark) for scope in OTHERS), (OWN, forged)):
            item = {"type": "compaction", "encrypted_content": one.encode()}
            body = json.dumps({"model": "m", "input": [item, new]}).encode()
            try:
                exchange = await self.begin().start_exchange(RESPONSES, body, scope=scope)
            except WireError:
                continue
            exchange.mark_unanswered()
            self.faults.append(f"scope: {scope} may use a mark of {OWN}")

    async def undo(self) -> None:
        """Take the newest fold back."""
        held = self.proxy.list_held()
        if not held:
            return
        live = held[-1]
        folds = [at for at, one in live.view.list_folds().items() if isinstance(one, Folded)]
        if folds:
            with suppress(Overflow):  # what comes back would not fit
                await AsyncSession(live).undo(max(folds))


async def play(seed: int) -> list[str]:
    """Play a program; what was broken."""
    rng = Random(seed)
    store = SqliteStore(":memory:")
    chains = rng.random() < 0.4
    client = Marked(
        rng, store, rng.choice(WINDOWS), owns=not chains or rng.random() < 0.7, chains=chains
    )
    actions = ("say",) * 5 + ("compact",) * 2 + ("restart",) * 2 + ("undo", "again")
    try:
        for action in ("say", *rng.choices(actions, k=rng.randint(3, 9))):
            match action:
                case "compact" if not chains and client.history:
                    await client.compact()
                    client.add(client.user())
                    await client.ask([])
                case "restart":
                    client.proxy = client.begin()
                case "undo":
                    await client.undo()
                    client.seen = []
                case "again" if client.history and not chains:
                    client.add(client.user())
                    await client.ask([])
                case _:
                    new = client.user()
                    client.add(new)
                    await client.ask([new])
            if client.faults:
                break
    finally:
        await store.close()
    return client.faults


def play_marked(seed: int) -> list[str]:
    """The same, for callers that do not await."""
    return asyncio.run(play(seed))

"""System prompt and tools of a proxied request are its own, whoever else said the same words before.

Random clients share a key, first words and first answers: only their instructions differ. Every word
of those holds a canary, so that what reaches the provider tells whose it is.
"""

import asyncio
import inspect
import json
import random
from dataclasses import dataclass, field

import anthropic
import openai
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from mutants import broken
from test_conversations import facts_of

import foldline
from foldline.core.log import ModelSaid, Opened
from foldline.core.spine import Range
from foldline.dialects.base import resolve_named_dialect
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Scope
from foldline.session.sync import run_coroutine
from foldline.stores.open_store import store_at
from foldline.testing import Provider
from foldline.testing.provider import written

ANTHROPIC = resolve_named_dialect("anthropic")
BOTH = pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=lambda one: one.name)
ANSWERS = ("Hello! How can I help you today?", "Noted.")


@dataclass
class Person:
    """A client with instructions of its own, which says what everybody says."""

    dialect: object
    name: str
    history: list = field(default_factory=list)
    clock: int = 0
    notes: list = field(default_factory=list)
    """System messages in mid-talk: the place of each, and its words."""
    has_tools: bool = True
    thinks: bool = False
    """Whether its model thinks aloud, of whom it serves."""
    says_thoughts: bool = True
    """Whether it says those again."""
    session: str = ""

    def body(self) -> dict:
        """What it sends: its instructions as they are now, and all of its history."""
        words = f"Customer: {self.name}, CANARY-{self.name}-{self.clock}."
        tool = {"name": f"tool_{self.name}_{self.clock}", "description": f"CANARY-{self.name}-tool"}
        messages = [dict(one) for one in self.history]
        for place, note in reversed(self.notes):
            messages.insert(place, {"role": "system", "content": note})
        if self.dialect is OPENAI:
            tools = [{"type": "function", "function": {**tool, "parameters": {"type": "object"}}}]
            fixed = {"model": "m", "messages": [{"role": "system", "content": words}, *messages]}
        else:
            tools = [{**tool, "input_schema": {"type": "object"}}]
            fixed = {"model": "m", "max_tokens": 50, "system": words, "messages": messages}
        return {**fixed, **({"tools": tools} if self.has_tools else {})}

    def hear(self, came: dict) -> dict:
        """Put thoughts into an answer; the message that it is in this client's history."""
        thought = f"I serve CANARY-{self.name}"
        if self.dialect is OPENAI:
            message = came["choices"][0]["message"]
            said = {"role": "assistant", "content": message["content"]}
            message |= {"reasoning_content": thought, "annotations": [{"type": "url_citation", "url": f"http://CANARY-{self.name}"}]} if self.thinks else {}  # fmt: skip
            return {**message} if self.says_thoughts else said
        said = {"role": "assistant", "content": came["content"][0]["text"]}
        if self.thinks:
            came["content"].insert(0, {"type": "thinking", "thinking": thought, "signature": f"CANARY-{self.name}"})  # fmt: skip
        return {"role": "assistant", "content": came["content"]} if self.says_thoughts else said


def stated(body: dict) -> tuple:
    """The words of a request's system prompt, and its tools, without cache marks."""
    leading = [one["content"] for one in body["messages"][:1] if one["role"] == "system"]
    given = body.get("system") or []
    blocks = [{"text": given}] if isinstance(given, str) else given
    tools = [{**one, "cache_control": None} for one in body.get("tools", ())]
    return [*leading, *(one["text"] for one in blocks)], tools


def asked(proxy: Conversations, person: Person, answer: str, *, is_answered: bool = True) -> dict:
    """One call of a person; what the provider got."""
    exchange = begin(proxy, person)
    end(exchange, person, answer if is_answered else "")
    return json.loads(exchange.body)


def begin(proxy: Conversations, person: Person) -> Exchange:
    """A person asks, and waits for the answer."""
    scope = Scope("local", "one key", person.session)
    return run_coroutine(
        proxy.start_exchange(person.dialect, json.dumps(person.body()).encode(), scope=scope)
    )


def end(exchange: Exchange, person: Person, answer: str) -> None:
    """The answer comes; none where the call is cut off."""
    exchange.start_response(200)
    if answer:
        sent = json.loads(exchange.body)
        came, _ = written(person.dialect.name, sent, {"content": answer}, 10)
        person.history.append(person.hear(came))
        exchange.receive_chunk(json.dumps(came).encode())
    run_coroutine(exchange.end_response())


def converse(dialect, seed: int, window: int) -> None:
    """Several people at once, through processes that come and go over one store."""
    rng, store = random.Random(seed), store_at(":memory:")

    def process() -> Conversations:
        return Conversations(store, facts_of(window), shared=True)

    processes = [process() for _ in range(rng.choice((1, 1, 2)))]
    people = [Person(dialect, name) for name in ("ALICE", "BOB", "CAROL")[: rng.choice((2, 3))]]
    for person in people:
        person.has_tools = rng.random() < 0.8
        person.thinks, person.says_thoughts = rng.random() < 0.5, rng.random() < 0.7
        person.session = person.name.lower() if rng.random() < 0.2 else ""
    filler = "The same words for everybody. " * 40
    waiting: list[tuple[Person, str, Exchange]] = []
    for _ in range(14):
        person = rng.choice([one for one in people if one not in [asking for asking, *_ in waiting]] or people[:1])  # fmt: skip
        if any(one is person for one, *_ in waiting):
            end_all(waiting)
        if rng.random() < 0.15:
            processes[rng.randrange(len(processes))] = process()  # restarted
        if rng.random() < 0.2 and not person.history:
            # It spoke with the model before the gateway was there.
            person.history += [{"role": "user", "content": f"Hi 0. {filler}"}, {"role": "assistant", "content": ANSWERS[0]}]  # fmt: skip
        person.clock += rng.random() < 0.3
        turn = sum(one["role"] == "user" for one in person.history)
        person.history.append({"role": "user", "content": f"Hi {turn}. {filler}"})
        if rng.random() < 0.15 and turn:
            person.notes.append((len(person.history) - 1, f"CANARY-{person.name}-note-{turn}"))
        answer = ANSWERS[min(turn, 1)] if rng.random() < 0.9 else ""
        waiting.append((person, answer, begin(rng.choice(processes), person)))
        text = waiting[-1][2].body.decode()
        foreign = [one.name for one in people if one is not person and f"CANARY-{one.name}" in text]
        assert not foreign, f"the words of {foreign} in a request of {person.name}"
        assert stated(json.loads(text)) == stated(person.body()), "not the request's own"
        missing = [note for _, note in person.notes if note not in text]
        assert not missing, f"{person.name} is not told {missing}"
        if rng.random() < 0.8:  # else others ask meanwhile
            end_all(waiting)
    end_all(waiting)
    run_coroutine(store.close())


def end_all(waiting: list[tuple[Person, str, Exchange]]) -> None:
    """All answers come that somebody waits for."""
    for person, answer, exchange in waiting:
        end(exchange, person, answer)
        if person.history[-1]["role"] == "user":
            person.history.pop()  # it was cut off: it says that again
            person.notes = [note for note in person.notes if note[0] < len(person.history)]
    waiting.clear()


@BOTH
@given(seed=st.integers(0, 100_000), window=st.sampled_from((1_500, 1_000_000)))
def test_no_instructions_of_another_reach_the_provider(dialect, seed, window):
    """Also across restarts, with two processes, with system prompts and tools that change."""
    converse(dialect, seed, window)


@pytest.mark.parametrize(
    ("module", "line", "instead"),
    [
        # Whoever ends with the same words while another waits is given the other's request.
        (
            "foldline.proxy.conversations",
            """        key = (scope, caller, len(body), request.hashes[-1], path)
        flight = self._flights.get(key)
        if flight is not None:  # an impatient client sends the same request once more
            with suppress(FoldlineError):
                same = await flight
                if (same.request.original or same.request.body) == body:
""",
            """        key = (scope, caller, 0, request.hashes[-1], path)
        flight = self._flights.get(key)
        if flight is not None:
            with suppress(FoldlineError):
                same = await flight
                if same:
""",
        ),
        # Instructions of mid-talk are lost in a fold.
        ("foldline.proxy.patch", "for at in request.asides if at in run", "for at in ()"),
    ],
)
def test_the_property_catches(module, line, instead):
    """Each of these variants leaks."""

    @settings(max_examples=200, database=None, phases=[Phase.generate], report_multiple_bugs=False)
    @given(st.sampled_from((OPENAI, ANTHROPIC)), st.integers(0, 100_000))
    def holds(dialect, seed):
        converse(dialect, seed, 1_500)

    with broken(module, line, instead), pytest.raises(AssertionError):
        holds()


def begin_alike(dialect) -> None:
    """Two who say the same, one behind the other: the second has a log of its own."""
    store = store_at(":memory:")
    for later in (False, True):  # in the same process, and in another
        proxy = Conversations(store, facts_of(), shared=True)
        for place in range(2):
            if place and later:
                proxy = Conversations(store, facts_of(), shared=True)
            person = Person(dialect, "ALICE", [{"role": "user", "content": f"Hi {later}"}])
            asked(proxy, person, "Hello!")
            live = proxy.list_held()[-1]
            events = [
                event for _, event in run_coroutine(live.read_events(Range(0, live.view.head)))
            ]
            assert [event.origin for event in events if isinstance(event, Opened)] == [""]
            assert sum(isinstance(event, ModelSaid) for event in events) == 1
    run_coroutine(store.close())


@BOTH
def test_a_first_request_joins_nobody(dialect):
    """Nor does it begin as a copy of what another was told."""
    begin_alike(dialect)
    least = "least = 0 if is_family else first"
    with broken("foldline.proxy.conversations", least, "least = 0"), pytest.raises(AssertionError):
        begin_alike(dialect)


@BOTH
def test_an_instruction_of_mid_talk_is_never_lost(dialect):
    """Said anew among messages that the log has, it reaches the provider all the same."""
    store = store_at(":memory:")
    proxy = Conversations(store, facts_of(), shared=True)
    person = Person(dialect, "ALICE", [{"role": "user", "content": "Hi"}])
    asked(proxy, person, "Hello!")
    person.history.append({"role": "user", "content": "go on"})
    asked(proxy, person, "Well.")
    del person.history[-1]
    for place in (2, 1):  # before the newest message, and before the answer
        person.notes = [(place, f"CANARY-note-{place}")]
        sent = asked(proxy, person, "Well.")
        del person.history[-1]
        assert f"CANARY-note-{place}" in json.dumps(sent)
    run_coroutine(store.close())


@pytest.mark.parametrize("leads", [True, False], ids=["led", "not led"])
def test_a_new_instruction_of_mid_talk_keeps_its_session(leads):
    """Whether or not the history begins with instructions: it is new, not missed."""
    store, names = store_at(":memory:"), set()
    proxy = Conversations(store, facts_of(), shared=True)
    history = [{"role": "system", "content": "Be brief."}] if leads else []
    for turn in range(4):
        note = [{"role": "developer", "content": f"note {turn}"}] if turn else []
        history += [*note, {"role": "user", "content": f"turn {turn}"}]
        body = {"model": "m", "messages": history}
        exchange = run_coroutine(proxy.start_exchange(OPENAI, json.dumps(body).encode()))
        assert json.loads(exchange.body) == body
        exchange.start_response(200)
        came, _ = written(OPENAI.name, body, {"content": f"answer {turn}"}, 10)
        exchange.receive_chunk(json.dumps(came).encode())
        run_coroutine(exchange.end_response())
        names.add(exchange.session)
        history.append({"role": "assistant", "content": f"answer {turn}"})
    assert len(names) == 1
    run_coroutine(store.close())


@BOTH
def test_a_changed_system_prompt_is_sent_once_and_keeps_its_session(dialect):
    """A clock in the prompt: the request that goes out is as large as the one that came."""
    store = store_at(":memory:")
    proxy = Conversations(store, facts_of(), shared=True)
    person, names = Person(dialect, "ALICE"), set()
    for turn in range(12):
        person.clock = turn
        person.history.append({"role": "user", "content": f"turn {turn}"})
        assert asked(proxy, person, "ok") == {**person.body(), "messages": asked_messages(person)}
        names.add(proxy.list_held()[-1].name.session)
    assert len(names) == 1
    run_coroutine(store.close())


def asked_messages(person: Person) -> list:
    """The messages of the request that was answered last."""
    messages = person.body()["messages"]
    return messages[:-1]


def client_of(kind: str, provider: Provider):
    """A wrapped client of an SDK, and how to ask through it."""
    if kind.startswith("openai"):
        made = {"openai": openai.OpenAI, "openai async": openai.AsyncOpenAI}[kind]
        client = foldline.wrap(made(base_url=f"{provider.url}/v1", api_key="one-key"))

        def say(system, messages):
            said = [{"role": "system", "content": system}, *messages]
            return client.chat.completions.create(model="m", messages=said)
    else:
        made = {"anthropic": anthropic.Anthropic, "anthropic async": anthropic.AsyncAnthropic}[kind]
        client = foldline.wrap(made(base_url=provider.url, api_key="one-key"))

        def say(system, messages):
            return client.messages.create(model="m", max_tokens=9, system=system, messages=messages)

    return client, say


@pytest.mark.parametrize("kind", ["openai", "openai async", "anthropic", "anthropic async"])
def test_two_people_behind_one_wrapped_client(kind):
    """The same first words and the same answer: each request has the system prompt of its own."""
    first = [{"role": "user", "content": "Hi"}]
    second = [*first, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "thanks"}]
    with Provider(lambda _: "ok") as provider:
        client, say = client_of(kind, provider)

        async def one_after_another():
            for messages in (first, second):
                for name in ("ALICE", "BOB", "CAROL"):
                    if inspect.isawaitable(reply := say(f"Customer: CANARY-{name}", messages)):
                        await reply
                    others = {"ALICE", "BOB", "CAROL"} - {name}
                    text = json.dumps(provider.asked[-1])
                    assert f"CANARY-{name}" in text
                    assert not [one for one in others if f"CANARY-{one}" in text]
            if inspect.isawaitable(closed := client.close()):
                await closed

        asyncio.run(one_after_another())

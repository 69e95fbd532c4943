"""Conversations that clients send whole, again and again: found by bytes, by hash, in any process."""

import asyncio
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.core.log import Asked, ModelSaid, Opened, UserSaid
from foldline.core.plan import Facts
from foldline.core.spine import Range
from foldline.errors import Conflict, Overflow, StoreFailed, WireError
from foldline.run import asking
from foldline.run.facts import known
from foldline.run.known import Scope
from foldline.run.live import Live
from foldline.run.talks import Talks
from foldline.store.at import store_at
from foldline.store.base import Name
from foldline.testing.provider import written
from foldline.wire.dialects import OPENAI, named

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("dialect", [OPENAI, named("anthropic")], ids=lambda one: one.name)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def facts_of(window: int = 1_000_000):
    def of(model: str, most: int | None) -> Facts:
        return known(model, window=window, reserve=most, policy="steady")

    return of


class Client:
    """A loop in any language: it keeps the history, and sends all of it with every call."""

    def __init__(self, dialect, *, spacing=(",", ":"), **fields):
        self.dialect, self.spacing, self.fields, self.history = dialect, spacing, fields, []

    def body(self) -> bytes:
        """What it sends."""
        fixed = {"model": "m", **self.fields}
        if self.dialect is not OPENAI:
            fixed |= {"max_tokens": 50}
        return json.dumps({**fixed, "messages": self.history}, separators=self.spacing).encode()

    def user(self, words):
        """A person speaks."""
        self.history.append({"role": "user", "content": words})

    def results(self, calls, words):
        """Its tools were run."""
        if self.dialect is OPENAI:
            self.history += [
                {"role": "tool", "tool_call_id": one["id"], "content": f"{one['id']}: {words}"} for one in calls
            ]  # fmt: skip
        else:
            self.history.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": one["id"], "content": f"{one['id']}: {words}"} for one in calls
            ]})  # fmt: skip

    def heard(self, answer):
        """Keep the answer, as most clients do: what it says, and not all that it came with."""
        if self.dialect is OPENAI:
            said = answer["choices"][0]["message"]
            self.history.append({key: one for key, one in said.items() if one is not None})
            return said.get("tool_calls") or ()
        self.history.append({"role": "assistant", "content": answer["content"]})
        return [one for one in answer["content"] if one["type"] == "tool_use"]


def message(words, calls=()):
    made = [{"id": one, "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}} for one in calls]  # fmt: skip
    return {"content": words, **({"tool_calls": made} if made else {})}


async def exchange(talks, client, said, *, scope=None):
    """One call through the talks; what went upstream, and the answer."""
    one = await talks.ask(client.dialect, client.body(), **({"scope": scope} if scope else {}))
    answer, _ = written(client.dialect.name, json.loads(one.body), said, 10)
    one.begin(200)
    one.hear(json.dumps(answer).encode())
    await one.end()
    return one, answer


async def logged(store, name, tenant="local"):
    live = await Live.open(store, Name(tenant, name), facts=facts_of()("m", None))
    return live, [event for _, event in await live.events(Range(0, live.view.head))]


@BOTH
@given(seed=st.integers(0, 10_000), anew=st.booleans(), wide=st.booleans())
@settings(max_examples=40, deadline=None)
async def test_unedited_bytes_go_out_as_they_came_and_can_be_had_again(dialect, seed, anew, wide):
    """Laws 4 and 5 for a relayed body; by bytes in one process or by hash in a new one, the same log."""
    rng, store = random.Random(seed), store_at(":memory:")
    talks = Talks(store, facts_of(), shared=True)
    system = {"system": "Be brief."} if dialect is not OPENAI else {}
    client = Client(
        dialect, spacing=(", ", ": ") if wide else (",", ":"), temperature=0.5, **system
    )
    if dialect is OPENAI and rng.random() < 0.5:
        client.history.append({"role": "system", "content": "Be brief."})
    names, calls = set(), ()
    for turn in range(6):
        if calls:
            client.results(calls, "found ✓ \u2028")
        if not calls or rng.random() < 0.2:
            client.user(rng.choice([f"Turn {turn}", f"  é {turn} \n", [{"type": "text", "text": f"part {turn}"}]]))  # fmt: skip
        if anew:
            talks = Talks(store, facts_of(), shared=True)
        said = message(f"noted {turn}", [f"c{turn}{n}" for n in range(rng.choice([0, 0, 1, 2]))])
        one, answer = await exchange(talks, client, said)
        assert one.body == client.body()
        names.add(one.session)
        calls = client.heard(answer)
    assert len(names) == 1
    live, events = await logged(store, names.pop())
    asked = [seq for seq, event in enumerate(events) if isinstance(event, Asked)]
    assert len(asked) == 6
    for seq in asked:
        assert events[seq].relayed
        await asking.sent(live, seq)
    people = [event for event in events if isinstance(event, UserSaid | ModelSaid)]
    assert len([event for event in people if isinstance(event, ModelSaid)]) == 6
    await store.close()


@BOTH
async def test_an_answer_whose_writing_was_not_known_is_in_the_log_once(dialect, monkeypatch):
    """The store went away behind its commit: what the client says again is found there."""
    store = store_at(":memory:")
    talks, client, write = Talks(store, facts_of(), shared=True), Client(dialect), store.append

    async def lost(*given, **named):
        await write(*given, **named)
        raise StoreFailed("the connection is gone; whether it was written is not known")

    client.user("Turn 0")
    one = await talks.ask(dialect, client.body())
    answer, _ = written(dialect.name, json.loads(one.body), message("noted"), 10)
    one.begin(200)
    one.hear(json.dumps(answer).encode())
    monkeypatch.setattr(store, "append", lost)
    with pytest.raises(StoreFailed):
        await one.end()
    monkeypatch.undo()
    client.heard(answer)
    client.user("Turn 1")
    two, _ = await exchange(talks, client, message("yes"))
    assert two.session == one.session
    _, events = await logged(store, one.session)
    said = [event.parts[0].text for event in events if isinstance(event, UserSaid | ModelSaid)]
    assert said == ["Turn 0", "noted", "Turn 1", "yes"]
    await store.close()


@BOTH
async def test_what_is_edited_is_ours_and_says_so(dialect):
    """Past the window our own bytes go out; each can be had again, and one log holds it all."""
    store = store_at(":memory:")
    talks = Talks(store, facts_of(4_000), shared=True)
    client, sent = Client(dialect), []
    for turn in range(30):
        client.user(f"Turn {turn}. " + "Words are said, and more of them. " * 20)
        one, answer = await exchange(talks, client, message("noted"))
        sent.append((one.body == client.body(), one.edits, one.report.total))
        client.heard(answer)
    assert sent[0][:2] == (True, 0)
    assert sent[-1][0] is False
    assert sent[-1][1] > 0
    assert all(total <= 4_000 for _, _, total in sent)
    live, events = await logged(store, one.session)
    for seq, event in enumerate(events):
        if isinstance(event, Asked):
            await asking.sent(live, seq)
    assert len([event for event in events if isinstance(event, UserSaid)]) == 30


async def test_an_answer_said_again_in_other_bytes_is_the_clients_from_then_on():
    """Law 4: what went upstream once goes so again, also when what follows is edited."""
    store = store_at(":memory:")
    talks = Talks(store, facts_of(), shared=True)
    client = Client(OPENAI)
    client.user("hi")
    await exchange(talks, client, message("Hello   there"))
    client.history.append({"content": "Hello there", "role": "assistant", "refusal": None})
    client.user("go on")
    one, _ = await exchange(talks, client, message("well"))
    assert one.body == client.body()
    live, events = await logged(store, one.session)
    assert [len(event.echoes) for event in events if isinstance(event, Asked)] == [0, 1]
    shown = OPENAI.blocks((await asking.plan(live, live.facts)).request)
    assert shown[1] == json.dumps(client.history[1], separators=(",", ":")).encode()


async def test_the_same_again_appends_no_message():
    """A retry: the trap of the message that is there three times."""
    store = store_at(":memory:")
    talks = Talks(store, facts_of(), shared=True)
    client = Client(OPENAI)
    client.user("hi")
    names = set()
    for _ in range(3):
        one = await talks.ask(OPENAI, client.body())
        one.leave()  # nothing came back
        names.add(one.session)
    assert len(names) == 1
    _, events = await logged(store, names.pop())
    assert [type(event) for event in events] == [Opened, UserSaid, Asked, Asked, Asked]


async def test_where_a_history_turns_off_a_log_is_forked():
    store = store_at(":memory:")
    for anew in (False, True):
        talks = Talks(store, facts_of(), shared=True)
        client = Client(OPENAI, user=f"{anew}")
        client.user(f"hi {anew}")
        one, answer = await exchange(talks, client, message("hello"))
        client.heard(answer)
        client.user("this way")
        two, _ = await exchange(talks, client, message("ok"))
        assert two.session == one.session
        client.history[-1] = {"role": "user", "content": "no, that way"}
        if anew:
            talks = Talks(store, facts_of(), shared=True)
        three, _ = await exchange(talks, client, message("ok"))
        assert three.session != one.session
        _, events = await logged(store, three.session)
        origins = [event.origin.partition("@")[0] for event in events if isinstance(event, Opened)]
        assert origins[-1] == one.session
        said = [event.parts[0].text for event in events if isinstance(event, UserSaid)]
        assert said == [f"hi {anew}", "no, that way"]


async def test_what_may_be_either_of_two_is_a_new_session():
    """Two users of one key say the same, and are answered the same: nobody's log is taken."""
    store = store_at(":memory:")
    first, second = (Talks(store, facts_of(), shared=True) for _ in range(2))
    client = Client(OPENAI)
    client.user("hi")
    one = await first.ask(OPENAI, client.body())
    two = await second.ask(OPENAI, client.body())  # at the same time, in another process
    for each in (one, two):
        each.begin(200)
        each.hear(
            json.dumps(written("openai-chat", {"model": "m"}, message("hello"), 1)[0]).encode()
        )
        await each.end()
    names = {one.session, two.session}  # an answer that came late has a log of its own
    client.history.append({"role": "assistant", "content": "hello"})
    client.user("who am I?")
    three, _ = await exchange(Talks(store, facts_of(), shared=True), client, message("you"))
    assert three.session not in names
    assert len(names) == 2


@BOTH
async def test_those_who_began_alike_are_told_apart_by_their_answers(dialect):
    """Three people open with the same words and are answered differently: a new process finds each."""
    store, people = store_at(":memory:"), []
    for name in ("alice", "bob", "carol"):
        client = Client(dialect)
        client.user("hi")
        one, answer = await exchange(Talks(store, facts_of(), shared=True), client, message(f"hello {name}"))  # fmt: skip
        client.heard(answer)
        people.append((client, one.session))
    assert len({session for _, session in people}) == 3
    for _ in range(3):
        for client, session in people:
            client.user("go on")
            talks = Talks(store, facts_of(), shared=True)
            one, answer = await exchange(talks, client, message("well"))
            assert one.session == session
            client.heard(answer)
    await store.close()


async def test_who_differs_only_in_instructions_keeps_a_log_of_its_own():
    """The same words and the same answers: in one process the instructions tell them apart."""
    store = store_at(":memory:")
    talks, names = Talks(store, facts_of(), shared=True), {}
    people = [Client(named("anthropic"), system=f"You serve {name}.") for name in ("alice", "bob")]
    for _ in range(4):
        for client in people:
            client.user("hi")
            one, answer = await exchange(talks, client, message("hello"))
            client.heard(answer)
            names.setdefault(client.fields["system"], set()).add(one.session)
    assert [len(found) for found in names.values()] == [1, 1]
    await store.close()


async def test_scopes_never_meet():
    """The same words under another key, tenant or name: another session."""
    store = store_at(":memory:")
    talks = Talks(store, facts_of(), shared=True)
    client = Client(OPENAI)
    client.user("hi")
    scopes = [Scope("a", "1"), Scope("a", "2"), Scope("b", "1"), Scope("a", "1", "mine")]
    firsts = []
    for scope in scopes:
        one, answer = await exchange(talks, client, message("hello"), scope=scope)
        firsts.append((scope.tenant, one.session))
    assert len({*firsts}) == 4
    assert firsts[-1] == ("a", "mine")
    client.heard(answer)
    client.user("go on")
    for scope, (_, name) in zip(scopes, firsts, strict=True):
        one, _ = await exchange(talks, client, message("ok"), scope=scope)
        assert one.session == name


async def test_two_processes_take_turns_with_one_conversation():
    """A balancer that knows nothing: each call may come to any process."""
    store = store_at(":memory:")
    several = [Talks(store, facts_of(4_000), shared=True) for _ in range(3)]
    client, names = Client(OPENAI), set()
    for turn in range(24):
        client.user(f"Turn {turn}. " + "Words are said, and more of them. " * 20)
        one, answer = await exchange(several[turn % 3], client, message("noted"))
        names.add(one.session)
        client.heard(answer)
    assert len(names) == 1
    _, events = await logged(store, names.pop())
    said = [event.parts[0].text.split(".")[0] for event in events if isinstance(event, UserSaid)]
    assert said == [f"Turn {n}" for n in range(24)]
    assert len([event for event in events if isinstance(event, ModelSaid)]) == 24


@pytest.mark.parametrize("results", [0, 1, 12])
async def test_another_process_finds_a_conversation_at_any_of_its_calls(results):
    """Also behind calls that the store was told nothing of: the log says how it went on."""
    for calls in range(1, 12):
        store = store_at(":memory:")
        first, second = (Talks(store, facts_of(), shared=True) for _ in range(2))
        client = Client(OPENAI)
        client.user("Begin.")
        for turn in range(calls):
            made = [f"c{turn}.{n}" for n in range(results)]
            one, answer = await exchange(first, client, message("noted", made))
            asked = client.heard(answer)
            if asked:
                client.results(asked, "so")
            else:
                client.user(f"Turn {turn}.")
        other, _ = await exchange(second, client, message("noted"))
        assert other.session == one.session


async def test_only_what_is_new_is_read_also_where_marks_moved():
    """A client like Claude Code: the marks go with the newest message, the rest is known by its bytes."""
    read = []
    dialect = named("anthropic")

    def reading(body):
        read.append(len(json.loads(body)["messages"]))
        return dialect.decode(body)

    talks, client = Talks(store_at(":memory:"), facts_of(), shared=True), Client(dialect)
    watched = replace(dialect, decode=reading)
    for turn in range(5):
        for one in client.history:
            one["content"][-1].pop("cache_control", None)
        mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        client.user([{"type": "text", "text": f"Turn {turn}", **mark}])
        client.dialect = watched
        _, answer = await exchange(talks, client, message("noted"))
        client.dialect = dialect
        client.heard(answer)
    assert read == [1, 2, 2, 2, 2]


async def test_marks_that_a_client_moves_do_not_matter():
    """Anthropic's clients mark the newest messages: other bytes, the same conversation."""
    store, dialect = store_at(":memory:"), named("anthropic")
    talks, client, names = Talks(store, facts_of(), shared=True), Client(dialect), set()
    for turn in range(5):
        for one in client.history:
            for block in one["content"] if isinstance(one["content"], list) else ():
                block.pop("cache_control", None)
        client.user(
            [{"type": "text", "text": f"Turn {turn}", "cache_control": {"type": "ephemeral"}}]
        )
        one, answer = await exchange(talks, client, message("noted"))
        assert one.body == client.body()
        names.add(one.session)
        client.heard(answer)
    assert len(names) == 1
    live, events = await logged(store, names.pop())
    for seq, event in enumerate(events):
        if isinstance(event, Asked):
            await asking.sent(live, seq)


DOUBLE = [
    '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"A"}],"messages":[{"role":"user","content":"B"}]}',
    '{"model":"n","mod\\u0065l":"m","max_tokens":5,"messages":[{"role":"user","content":"B"}]}',
    '{"model":"m","max_tokens":50,"max_tokens":5,"messages":[{"role":"user","content":"B"}]}',
    '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"B"}],"stream":true,"stream":false}',
]


@BOTH
@pytest.mark.parametrize("body", DOUBLE)
async def test_a_field_that_is_there_twice_goes_out_once(dialect, body):
    """Of two fields one reader takes the other: the log and the upstream read the same body."""
    store = store_at(":memory:")
    one = await Talks(store, facts_of(), shared=True).ask(dialect, body.encode())
    names = []
    json.loads(one.body, object_pairs_hook=lambda pairs: names.append([k for k, _ in pairs]))
    assert all(len(set(found)) == len(found) for found in names)
    assert '"A"' not in one.body.decode()
    assert not one.relayed
    await store.close()


async def test_a_message_that_says_two_things_says_one():
    """The same inside a message, where our record holds the last of them only."""
    store = store_at(":memory:")
    body = b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"A","content":"B"}]}'
    one = await Talks(store, facts_of(), shared=True).ask(named("anthropic"), body)
    assert b'"A"' not in one.body
    await store.close()


@pytest.mark.parametrize("away", [1, 20, 40])
async def test_a_log_that_went_on_elsewhere_for_long_is_gone_on_with(away):
    """However many turns another process made: no message enters the log twice."""
    store = store_at(":memory:")
    here, there = (Talks(store, facts_of(), shared=True) for _ in range(2))
    client, names = Client(OPENAI), set()
    for turn in range(away + 4):
        client.user(f"turn {turn}")
        one, answer = await exchange(
            there if 2 <= turn < away + 2 else here, client, message(f"noted {turn}")
        )
        names.add(one.session)
        client.heard(answer)
    (name,) = names
    _, events = await logged(store, name)
    said = [event.parts[0].text for event in events if isinstance(event, UserSaid)]
    assert said == [f"turn {turn}" for turn in range(away + 4)]
    await store.close()


async def test_who_turns_off_first_in_a_new_process_keeps_nobody_from_going_on():
    """A conversation that was only turned off from is not busy."""
    store = store_at(":memory:")
    talks = Talks(store, facts_of(), shared=True)
    client = Client(OPENAI)
    for turn in range(3):
        client.user(f"turn {turn}")
        first, answer = await exchange(talks, client, message(f"noted {turn}"))
        client.heard(answer)
    other = Client(OPENAI)
    other.history = [*client.history[:3], {"role": "assistant", "content": "otherwise"}]
    other.user("what now?")
    anew = Talks(store, facts_of(), shared=True)
    turned, _ = await exchange(anew, other, message("well"))
    assert turned.session != first.session
    client.user("on")
    on, _ = await exchange(anew, client, message("yes"))
    assert on.session == first.session
    await store.close()


@pytest.mark.parametrize("model", ["5", "null", "[1]", "{}"])
async def test_a_model_that_is_no_name_is_told_also_behind_known_bytes(model):
    store = store_at(":memory:")
    talks, client = Talks(store, facts_of(), shared=True), Client(OPENAI)
    client.user("one")
    _, answer = await exchange(talks, client, message("two"))
    client.heard(answer)
    client.user("three")
    with pytest.raises(WireError, match="model's name"):
        await talks.ask(OPENAI, client.body().replace(b'"model":"m"', f'"model":{model}'.encode()))
    await store.close()


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(2, 4),
)
@settings(max_examples=40, deadline=None)
async def test_no_conversation_crosses_tenants_keys_or_names(seed, count):
    """All say the same, in any order, through any process: each finds its own log, or a new one."""
    rng, store = random.Random(seed), store_at(":memory:")
    processes = [Talks(store, facts_of(), shared=True) for _ in range(2)]
    names = [("a", "b"), ("", "1", "2"), ("", "s")]
    scopes = [Scope(*(rng.choice(one) for one in names)) for _ in range(count)]
    owner, clients = {}, [(scope, Client(OPENAI)) for scope in scopes]
    for _ in range(14):
        scope, client = rng.choice(clients)
        if len(client.history) > 5 and rng.random() < 0.3:
            client.history = client.history[: rng.choice([0, 2, 4])]
        mine = f"canary {scope.tenant} {scope.key} {scope.session}."
        client.user(rng.choice(["hello", "hello", mine]))
        one, answer = await exchange(rng.choice(processes), client, message("ok"), scope=scope)
        client.heard(answer)
        assert owner.setdefault((scope.tenant, one.session), scope) == scope
        assert one.body.count(b"canary") == one.body.count(mine.encode())
    for (tenant, name), scope in owner.items():
        _, events = await logged(store, name, tenant)
        mine = f"canary {scope.tenant} {scope.key} {scope.session}."
        assert {e.parts[0].text for e in events if isinstance(e, UserSaid)} <= {"hello", mine}
    await store.close()


@pytest.mark.parametrize("seed", range(8))
async def test_one_conversation_asked_at_a_time_by_many_is_nobodys_fault(seed):
    """In a process that has not seen it: one goes on with the log, the others get their own."""
    store = store_at(":memory:")
    client = Client(OPENAI)
    for turn in range(3):
        client.user(f"turn {turn}")
        _, answer = await exchange(Talks(store, facts_of(), shared=True), client, message("ok"))
        client.heard(answer)
    rng, several = random.Random(seed), []
    for number in range(6):
        one = Client(OPENAI)
        one.history = client.history[: rng.choice([2, 4, 6, 6])]
        one.user(f"of {rng.choice([0, number])}")
        several.append(one)
    processes = [Talks(store, facts_of(), shared=True) for _ in range(2)]

    async def asked(one):
        await asyncio.sleep(rng.choice([0, 0, 0.001]))
        try:
            return await exchange(rng.choice(processes), one, message("yes"))
        except Conflict:
            return None  # told to ask again

    found = [one for one in await asyncio.gather(*map(asked, several)) if one]
    assert found
    for one, _ in found:
        live, events = await logged(store, one.session)
        said = [event.parts[0].text for event in events if isinstance(event, UserSaid)]
        assert len(said) == len({*said})
        for seq, event in enumerate(events):
            if isinstance(event, Asked):
                await asking.sent(live, seq)
    await store.close()


async def test_a_conversation_has_its_clients_owner_and_one_that_no_plan_fits_leaves_nothing():
    store, scope = store_at(":memory:"), Scope("acme", "key", owner="alice")
    client = Client(OPENAI)
    client.user("many words " * 20)
    client.history.insert(0, {"role": "system", "content": "many rules " * 2_000})
    with pytest.raises(Overflow):
        await Talks(store, facts_of(300), shared=True).ask(OPENAI, client.body(), scope=scope)
    assert await store.sessions("acme") == []
    one, _ = await exchange(
        Talks(store, facts_of(), shared=True), client, message("ok"), scope=scope
    )
    (listed,) = await store.sessions("acme", owner="alice")
    assert listed.session == one.session
    assert await store.sessions("acme", owner="bob") == []
    await store.close()

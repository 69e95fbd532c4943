"""OpenAI's Responses, through `wrap` and the official SDK: planned, compacted, chained.

The provider is the scripted one of tests/clients, on a real port: it counts, refuses what is above its window, an output
without its call, reasoning that was altered, and any compaction that it did not make.
"""

import json
import time

import openai
import pytest
from openai import OpenAI
from scripted import start_provider

import foldline
from foldline.dialects.client_messages import FoldMark

WINDOW = 8_000
TOOL = {
    "type": "function",
    "name": "bash",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def provider(tmp_path):
    with start_provider(tmp_path, window=WINDOW) as provider:
        yield provider


@pytest.fixture
def client(provider, tmp_path):
    with wrap(provider, tmp_path) as wrapped:
        yield wrapped


def wrap(provider, folder, **options):
    """A wrapped client of the provider; its conversations are in a file."""
    inner = OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
    return foldline.wrap(inner, store=folder / "talks.db", window=WINDOW, **options)


class Agent:
    """An agent of a few lines: it keeps its items, and answers each call with a page of text."""

    def __init__(self, client, **options):
        self.client, self.options, self.items = client, options, []
        self.tokens = []

    def ask(self, **more):
        """Send all items, and keep the answer's."""
        answer = self.client.responses.create(
            model="gpt-5", input=self.items, tools=[TOOL], store=False, **self.options, **more
        )
        self.tokens.append(answer.usage.input_tokens)
        self.items += [one.model_dump(exclude_none=True) for one in answer.output]
        return answer

    def ask_compaction(self):
        """Ask for a compaction as Codex does: by a last item."""
        trigger = {"type": "compaction_trigger"}
        return self.client.responses.create(
            model="gpt-5", input=[*self.items, trigger], tools=[TOOL], store=False
        )

    def take_turn(self, number):
        """Say something, and run what is called until nothing is."""
        self.items.append(
            {"role": "user", "content": f"Turn {number} of the ledger job: go on with it."}
        )
        while calls := [one for one in self.ask().output if one.type == "function_call"]:
            for call in calls:
                output = f"Line of {call.call_id}.\n" * 60
                self.items.append(
                    {"type": "function_call_output", "call_id": call.call_id, "output": output}
                )


def test_a_long_conversation_fits_and_the_clients_own_history_is_untouched(client):
    agent = Agent(client, instructions="Be brief.")
    for number in range(1, 9):
        agent.take_turn(number)
    assert len(agent.tokens) >= 25
    assert max(agent.tokens) < WINDOW
    assert len(json.dumps(agent.items)) > 4 * WINDOW  # and all of it was sent each time
    assert foldline.session_of(client).edits


def test_a_history_is_compacted_by_a_fold_without_the_provider(client, provider):
    agent = Agent(client)
    for number in range(1, 5):
        agent.take_turn(number)
    asked = len(agent.tokens)
    before = time.perf_counter()
    (item,) = agent.ask_compaction().output
    took = time.perf_counter() - before
    assert item.type == "compaction"
    assert FoldMark.parse(item.encrypted_content)
    assert took < 1.0  # the fold itself takes milliseconds; the machine may be busy
    session = foldline.session_of(client)
    assert session.edits
    # As Codex does it: what the user said is kept, all else is behind the item.
    said = [one for one in agent.items if one.get("role") == "user"]
    agent.items = [*said, item.model_dump(exclude_none=True)]
    agent.take_turn(5)
    assert max(agent.tokens[asked:]) < WINDOW
    assert not any("foldline:1:" in raw for raw in provider.list_sent())


def test_undo_brings_back_what_a_compaction_folded(client, provider):
    agent = Agent(client)
    agent.take_turn(1)
    (item,) = agent.ask_compaction().output
    session = foldline.session_of(client)
    assert len(session.edits) == 1
    session.undo()
    agent.items = [item.model_dump(exclude_none=True), {"role": "user", "content": "Go on."}]
    agent.ask()
    sent = json.loads(provider.list_sent()[-1])["input"]
    outputs = [one["output"] for one in sent if one.get("type") == "function_call_output"]
    assert len(outputs) == 4
    assert all(one.startswith("Line of call") for one in outputs)
    assert sent[-1] == {"role": "user", "content": "Go on."}


def test_another_process_knows_the_fold_and_another_client_does_not(provider, tmp_path):
    with wrap(provider, tmp_path) as client:
        agent = Agent(client)
        for number in (1, 2, 3):
            agent.take_turn(number)
        (item,) = agent.ask_compaction().output
    kept = [item.model_dump(exclude_none=True), {"role": "user", "content": "Go on."}]
    with wrap(provider, tmp_path) as client:
        again = Agent(client)
        again.items = [*kept]
        again.ask()
        assert "[handoff: log:" in provider.list_sent()[-1]
    with wrap(provider, tmp_path, session="mine") as client:
        stranger = Agent(client)
        stranger.items = [*kept]
        with pytest.raises(openai.BadRequestError):  # the provider's: it goes there as it came
            stranger.ask()
        assert "[handoff: log:" not in provider.list_sent()[-1]


def test_a_history_may_be_posted_to_be_compacted(client):
    agent = Agent(client)
    agent.take_turn(1)
    compacted = client.responses.compact(model="gpt-5", input=agent.items)
    assert compacted.object == "response.compaction"
    *said, item = compacted.output
    assert [one.role for one in said] == ["user"]
    assert item.type == "compaction"


def test_a_compaction_of_the_provider_stays_as_it_is(client, provider):
    foreign = {"type": "compaction", "encrypted_content": "gAAAAB-not-ours"}
    with pytest.raises(openai.BadRequestError):  # this provider made none
        client.responses.create(model="gpt-5", input=[foreign, {"role": "user", "content": "Hi"}])
    assert json.loads(provider.list_sent()[-1])["input"][0] == foreign


def test_a_chain_is_recorded_and_sent_as_it_came(client, provider):
    chain(client, turns=1)
    bodies = [json.loads(raw) for raw in provider.list_sent()]
    assert [len(one["input"]) for one in bodies] == [1] * 5
    assert sum("previous_response_id" in one for one in bodies) == 4
    session = foldline.session_of(client)
    assert len(session.history.turns()) == 1
    assert session.report.total > 400  # all of it, and not only what came last


def test_a_chain_is_written_out_where_the_history_is_ours(provider, tmp_path):
    with wrap(provider, tmp_path, own_history=True) as client:
        tokens = chain(client, turns=6)
        assert foldline.session_of(client).edits
    assert len(tokens) >= 25
    assert max(tokens) < WINDOW
    bodies = [json.loads(raw) for raw in provider.list_sent()]
    assert not any("previous_response_id" in one for one in bodies)
    assert all(one["store"] is False for one in bodies[1:])


def chain(client, *, turns):
    """Talk as agents do that leave their history to the server; the input tokens of all calls."""
    tokens, last = [], None
    for number in range(1, turns + 1):
        new = f"Turn {number} of the ledger job: go on with it."
        while True:
            answer = client.responses.create(
                model="gpt-5", input=new if isinstance(new, list) else [{"role": "user", "content": new}],
                tools=[TOOL], **({"previous_response_id": last} if last else {}),
            )  # fmt: skip
            tokens.append(answer.usage.input_tokens)
            last = answer.id
            calls = [one for one in answer.output if one.type == "function_call"]
            if not calls:
                break
            new = [
                {"type": "function_call_output", "call_id": one.call_id, "output": f"Line of {one.call_id}.\n" * 60}
                for one in calls
            ]  # fmt: skip
    return tokens


def test_instructions_among_the_items_of_a_chain_are_written_out_too(provider, tmp_path):
    told = {"role": "developer", "content": "Answer in Dutch."}
    more = {"role": "developer", "content": "And be polite."}
    with wrap(provider, tmp_path, own_history=True) as client:
        first = client.responses.create(
            model="gpt-5", input=[told, {"role": "user", "content": "One."}]
        )
        second = client.responses.create(
            model="gpt-5", previous_response_id=first.id,
            input=[more, {"role": "user", "content": "Two."}],
        )  # fmt: skip
        client.responses.create(model="gpt-5", previous_response_id=second.id, input="Three.")
    sent = json.loads(provider.list_sent()[-1])["input"]
    said = [one["content"] for one in sent if one.get("role") in ("user", "developer")]
    assert said == ["Answer in Dutch.", "One.", "And be polite.", "Two.", "Three."]


def say(client, text, after=None):
    """One request of a client that chains its answers; the answer's id."""
    named = {"previous_response_id": after} if after else {}
    return client.responses.create(model="gpt-5", input=text, **named).id


def list_said(provider):
    """What the user said in the newest request that reached the provider."""
    sent = json.loads(provider.list_sent()[-1])["input"]
    return [one["content"] for one in sent if one.get("role") == "user"]


def test_a_chain_may_branch_and_come_back(provider, tmp_path):
    with wrap(provider, tmp_path, own_history=True) as client:
        zero = say(client, "q0")
        two = say(client, "q2", say(client, "q1", zero))
        say(client, "aside", zero)
        assert list_said(provider) == ["q0", "aside"]
        say(client, "q3", two)
    assert list_said(provider) == ["q0", "q1", "q2", "q3"]


def test_a_chain_goes_on_in_another_process(provider, tmp_path):
    with (
        wrap(provider, tmp_path, own_history=True) as one,
        wrap(provider, tmp_path, own_history=True) as other,
    ):
        last = say(other, "My dog is Rex.", say(one, "I am Ada."))
        say(one, "What is my dog called?", last)
    assert list_said(provider) == ["I am Ada.", "My dog is Rex.", "What is my dog called?"]


def test_a_chain_goes_on_from_an_answer_that_was_folded_since(provider, tmp_path):
    page = "Nothing of note was printed here. " * 60
    with wrap(provider, tmp_path, own_history=True) as client:
        ids = []
        for number in range(20):
            ids.append(say(client, f"{number}: {page}", ids[-1] if ids else None))
        assert foldline.session_of(client).edits
        say(client, "And what was that?", ids[1])
    assert [one[:2] for one in list_said(provider)] == ["0:", "1:", "An"]


def test_a_fold_may_be_gone_back_to_after_a_later_one(client, provider):
    agent = Agent(client)
    agent.take_turn(1)
    (item,) = agent.ask_compaction().output
    item = item.model_dump(exclude_none=True)
    agent.items = [item]
    for number in range(2, 7):
        agent.take_turn(number)
    assert len(foldline.session_of(client).edits) > 0
    for _ in range(2):  # and again, as a client does that retries
        agent.items = [item, {"role": "user", "content": "Or rather this."}]
        agent.ask()
        assert list_said(provider)[-1] == "Or rather this."
        assert "foldline:1:" not in provider.list_sent()[-1]
        assert "Turn 3 of" not in provider.list_sent()[-1]

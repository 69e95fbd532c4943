"""The price that is named before a call is what a provider then charges, cold and after a fold."""

import asyncio
import gzip
from dataclasses import replace

import pytest
from scripted import start_provider
from upstream import count_tokens, load_encoding, prompt_of

import foldline
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool, said
from foldline.core.budget import estimate_request, measure_budget
from foldline.core.log import (
    Asked,
    Instructed,
    ModelSaid,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Text
from foldline.core.plan import Ready, after, plan
from foldline.core.policy import STEADY
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.importers import read
from foldline.models.catalog import resolve_model
from foldline.models.clients import client
from foldline.session import planning
from foldline.session.cold_call import (
    estimate_edited_size,
    estimate_planned_call,
    preview_cold_call,
)
from foldline.session.model_facts import build_facts

pytestmark = pytest.mark.anyio
BY_HAND = replace(STEADY, start="manual", priced=replace(STEADY.priced, floor=1_000_000))
PAUSES = {"claude-sonnet-4-5": 400, "gpt-5": 4_000, "gpt-5.6": 2_000}
"""Seconds after which each one's provider has forgotten: five minutes, perhaps an hour, 30 minutes."""


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def run_command(arguments):
    process = await asyncio.create_subprocess_shell(arguments["command"], stdout=-1)
    return said((await process.communicate())[0].decode())


RULE = "Rule {}: an entry that is open stays open until somebody has said in writing who closes it."
SHELL = Tool(
    name="bash",
    description="Runs a command.",
    schema={"type": "object", "properties": {"command": {"type": "string"}}},
    run=run_command,
)


def charge(provider, model):
    """What the newest call's input cost, by the provider's own count: what is not read is written."""
    used, prices = provider.list_usage()[-1], resolve_model(model).prices
    if "prompt_tokens" in used:
        read = used["prompt_tokens_details"]["cached_tokens"]
        fresh, written = 0, used["prompt_tokens"] - read
    else:
        fresh, read = used["input_tokens"], used["cache_read_input_tokens"]
        written = used["cache_creation_input_tokens"]
    return (fresh * prices.input + read * prices.read + written * prices.write) / 1e6


class Chat:
    """A session of some turns with tools, asked at a provider that counts with its cache."""

    def __init__(self, session, provider, model):
        self.session, self.provider, self.model, self.name = session, provider, model, model.name

    def make_agent(self):
        """Make the agent that answers."""
        told = [RULE.format(number) for number in range(100)]
        return Agent(
            self.session, self.model, tools=[SHELL], approve=allow, instructions=lambda: told
        )

    async def take_turns(self, first, last):
        """Take turns to their ends."""
        for number in range(first, last + 1):
            agent = self.make_agent()
            await agent.turn(prompt_of(number))

    async def fork(self, name):
        """Return the same chat in another session."""
        return Chat(await self.session.fork(name), self.provider, self.model)

    def pause(self, seconds):
        """Let time pass for the session and for the provider."""
        self.session.live.touched -= seconds
        self.provider.expire_cache()

    async def charge_message(self, number):
        """Say something, and return what the first call of the turn was charged."""
        await self.session.add(prompt_of(number))
        agent = self.make_agent()
        await agent._ask_model()
        return charge(self.provider, self.name)


async def allow(*_):
    return None


@pytest.fixture
async def chat(tmp_path, request):
    model = request.param
    with start_provider(tmp_path, reports_cache=True, rounds=6) as provider:
        address = provider.url if model.startswith("claude") else f"{provider.url}/v1"
        asked = client(model, base_url=address, api_key="k")
        async with foldline.aopen(
            str(tmp_path / "chat.db"), model=model, policy=BY_HAND
        ) as session:
            made = Chat(session, provider, asked)
            await made.take_turns(1, 6)
            yield made
        await asked.close()


each_model = pytest.mark.parametrize("chat", PAUSES, indirect=True)


@each_model
async def test_the_price_named_is_what_is_charged(chat):
    """Cold, after a fold by hand, and had there been no pause: each within 5 %."""
    folded, warm = await chat.fork("folded"), await chat.fork("warm")
    would_be_warm = await warm.charge_message(7)
    chat.pause(PAUSES[chat.name])
    named = await preview_cold_call(chat.session.live, prompt_of(7))
    assert named is not None
    assert not named.is_folded
    assert named.warm == pytest.approx(would_be_warm, rel=0.05)
    assert named.cold == pytest.approx(await chat.charge_message(7), rel=0.05)
    assert named.folded < named.cold / 2
    chat.provider.expire_cache()
    await folded.session.fold()
    assert named.folded == pytest.approx(await folded.charge_message(7), rel=0.05)


@each_model
async def test_a_policy_that_folds_by_itself_has_its_price_named(chat):
    live = chat.session.live
    live.facts = replace(live.facts, policy=STEADY)
    chat.pause(PAUSES[chat.name])
    named = await preview_cold_call(live, prompt_of(7))
    assert named.is_folded
    assert named.cost == named.folded < named.cold
    assert named.cost == pytest.approx(await chat.charge_message(7), rel=0.05)
    assert chat.session.edits


@pytest.mark.parametrize("chat", ["claude-sonnet-4-5"], indirect=True)
async def test_nothing_is_named_where_no_cache_was_lost(chat):
    """A short pause, a conversation that was not counted, or one that was folded since."""
    live = chat.session.live
    assert await preview_cold_call(live, "Hello") is None, "nobody has paused"
    live.touched -= 299
    assert await preview_cold_call(live, "Hello") is None, "five minutes are not over"
    live.touched -= 2
    assert await preview_cold_call(live, "Hello") is not None
    await chat.session.fold()
    assert await preview_cold_call(live, "Hello") is None, "what is sent now was never cached"
    async with foldline.aopen(":memory:", model=chat.name) as other:
        await other.add("words " * 20_000)
        assert await preview_cold_call(other.live, "Hello") is None, "nothing was sent yet"


@pytest.mark.parametrize("chat", ["claude-sonnet-4-5"], indirect=True)
async def test_a_warm_call_is_not_planned_again(chat, monkeypatch):
    """The guard compares two times; a second plan is for what is cold."""
    live, plans = chat.session.live, []
    said = after(live.view, [UserSaid((Text("Hello"),))])
    ready = await planning.compute_plan(said, live.facts)

    async def count_plan(view, facts, compute=planning.compute_plan):
        plans.append(facts)
        return await compute(view, facts)

    monkeypatch.setattr(planning, "compute_plan", count_plan)
    assert await estimate_planned_call(live, live.facts, said, ready, seconds=10) is None
    assert await preview_cold_call(live, "Hello") is None
    assert not plans
    assert await estimate_planned_call(live, live.facts, said, ready, seconds=400) is not None
    assert [facts.now for facts in plans] == [True]


@pytest.mark.parametrize("name", ["pi_session_opus45", "pi_session_sonnet45"])
def test_a_fold_of_a_recorded_session_has_its_size(name, shared):
    """Code, logs and prose, counted by o200k: the size after a fold is right within 5 %."""
    if load_encoding() is None:
        pytest.skip("there is no encoding to count with")
    with gzip.open(shared / "data" / f"{name}.jsonl.gz", "rt") as file:
        (recorded, *_) = read(file.read(), f"{name}.jsonl")
    prompt = Text("You write code with care, and you say what you have changed. " * 500)
    view = load(Spine(), {0: Opened("claude-sonnet-4-5"), 1: Instructed((prompt,))}, head=1)
    facts = build_facts("claude-sonnet-4-5", window=1_000_000, reserve=None, policy=STEADY)
    compared = 0
    for event in recorded.events:
        if isinstance(event, ModelSaid):
            asked = Asked(view.head, "", "", 0, estimate=estimate_request(view))
            counted = UsageReported(input=count_view(view, prompt))
            for one in (asked, event, counted):
                view.append(view.head + 1, one)
        elif isinstance(event, UserSaid | ToolReturned):
            view.append(view.head + 1, event)
        if view.answers % 20 or view.open or not isinstance(event, ModelSaid):
            continue
        said = after(view, [UserSaid((Text("Go on with the next step."),))])
        made = plan(said, replace(facts, cache="cold"))
        if isinstance(made, Ready) and made.folded:
            whole = measure_budget(said, facts.limits).request
            size = count_view(after(said, made.events), prompt)
            assert estimate_edited_size(said, whole, made) == pytest.approx(size, rel=0.05)
            compared += 1
    assert compared


def count_view(view, prompt):
    texts = [prompt.text]
    for item in (*view.items, *view.waiting):
        words = (getattr(part, name, "") for part in item.parts for name in ("text", "arguments"))
        texts.append("\n".join(one for one in words if isinstance(one, str)))
    return sum(count_tokens(text) + 4 for text in texts)


def test_the_lifetime_that_a_provider_states_is_a_fact():
    def lifetime_of(model):
        return build_facts(model, window=None, reserve=None, policy=STEADY).lifetime

    assert lifetime_of("gpt-5.6") == 1_800
    assert lifetime_of("gpt-5") is None, "it may live for an hour"
    assert lifetime_of("claude-sonnet-4-5") is None, "five minutes, as prices of writes show"

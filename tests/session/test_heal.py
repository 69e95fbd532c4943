"""`heal`: a request that is refused for its length is made smaller, once, without our insides."""

import asyncio
import json
from itertools import pairwise

import anthropic
import openai
import pytest
from bound_thoughts import bind_thoughts, has_foreign_thought

import foldline
from foldline.core.log import Folded, WindowLearned
from foldline.core.spine import Range
from foldline.errors import Overflow
from foldline.testing.provider import Provider

PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "
SDKS = ("openai", "anthropic")


def connect(provider, sdk, *, awaited=False):
    given = {"api_key": "none", "max_retries": 0}
    if sdk == "openai":
        kind = openai.AsyncOpenAI if awaited else openai.OpenAI
        return kind(base_url=f"{provider.url}/v1", **given), "gpt-4o"
    kind = anthropic.AsyncAnthropic if awaited else anthropic.Anthropic
    return kind(base_url=provider.url, **given), "claude-sonnet-5-5"


def ask(client, request):
    if isinstance(client, openai.OpenAI):
        return client.chat.completions.create(**request)
    return client.messages.create(**request)


@pytest.mark.parametrize("sdk", SDKS)
def test_a_loop_of_ones_own(sdk):
    """P-7: told 100,000 and given 3,000; an old history, then a new message that is too large."""
    with Provider(lambda _: "noted", window=3_000) as provider:
        client, model = connect(provider, sdk)
        refused = (openai.BadRequestError, anthropic.BadRequestError)
        with foldline.open(":memory:", model=model, window=100_000, reserve=200) as s:
            for turn in range(30):
                s.add(f"Turn {turn}. {PROSE * 9}")
                try:
                    answer = ask(client, s.request(max_tokens=150))
                except refused as error:
                    answer = ask(client, s.heal(error, max_tokens=150))
                s.add(answer)
            assert provider.statuses.count(400) == 1
            s.add("A large one. " + PROSE * 400)
            answer = ask(client, s.request(max_tokens=150))
            assert provider.statuses.count(400) == 1, "and the window is known from then on"


@pytest.mark.parametrize("sdk", SDKS)
def test_the_newest_message_alone_is_too_large(sdk):
    """P-7: the clip made on arrival was too large; it is cut once more."""
    with Provider(lambda _: "noted", window=3_000) as provider:
        client, model = connect(provider, sdk)
        with foldline.open(":memory:", model=model, window=100_000, reserve=200) as s:
            s.add("A large one. " + PROSE * 400)
            assert s.create(client, max_tokens=150)
            assert provider.statuses == [400, 200]
            assert s.recall("log:1").startswith("A large one. "), "nothing is lost"


@pytest.mark.parametrize("sdk", SDKS)
def test_create_heals_awaited(sdk):
    async def run(provider):
        client, model = connect(provider, sdk, awaited=True)
        async with foldline.aopen(":memory:", model=model, window=100_000, reserve=200) as s:
            for turn in range(24):
                await s.add(f"Turn {turn}. {PROSE * 9}")
                assert await s.create(client, max_tokens=150)
            await client.close()
            found = await s.live.read_events(Range(0, s.live.view.head))
            return [one.event for one in found if isinstance(one.event, WindowLearned)]

    with Provider(lambda _: "noted", window=3_000) as provider:
        (learned,) = asyncio.run(run(provider))
        assert provider.statuses.count(400) == 1
        assert learned.window == 3_000


def test_what_is_no_refusal_for_length_is_raised_as_it_is():
    with foldline.open(":memory:", model="gpt-4o") as s:
        s.add("hello")
        s.request()
        for error in (ValueError("no"), KeyError("max_tokens")):
            with pytest.raises(type(error)) as raised:
                s.heal(error)
            assert raised.value is error


def test_nothing_left_to_shrink_names_the_part():
    """Never a loop: where nothing can be made smaller, `Overflow` says what is too large."""
    with Provider(lambda _: "noted", window=3_000) as provider:
        client, model = connect(provider, "openai")
        given = {"model": model, "window": 100_000, "reserve": 200, "system": PROSE * 300}
        with foldline.open(":memory:", **given) as s:
            s.add("hello")
            with pytest.raises(Overflow, match="system"):
                s.create(client, max_tokens=150)
            assert provider.statuses == [400]


class RefusedError(Exception):
    """A refusal as an SDK raises it."""

    status_code = 400

    def __init__(self, words, code="context_length_exceeded"):
        super().__init__(words)
        self.message, self.body = words, {"message": words, "code": code}


def test_a_stated_count_teaches_how_the_model_counts():
    words = "This model's maximum context length is 8192 tokens. However, your messages resulted in {} tokens."
    with foldline.open(":memory:", model="gpt-4o", window=8_192, reserve=200) as s:
        for n in range(10):
            s.add(f"{n}. {PROSE * 20}")
            s.add({"role": "assistant", "content": "ok"})
        s.add("and now?")
        before = len(str(s.request()))
        s.heal(RefusedError(words.format(2 * s.report.total)))
        assert len(str(s.request())) < 0.75 * before
        assert s.aio.live.view.strains["gpt-4o"] > 1.3, "for the rest of the session"


def test_every_refusal_shrinks_or_ends():
    """A provider that refuses whatever comes, stating nothing: smaller each time, then an end."""
    with foldline.open(":memory:", model="gpt-4o", window=16_000, reserve=200) as s:
        for n in range(20):
            s.add(f"{n}. {PROSE * 20}")
            s.add({"role": "assistant", "content": "ok"})
        s.add("and now?")
        sizes = [len(str(s.request()))]
        while len(sizes) < 60:
            try:
                sizes.append(len(str(s.heal(RefusedError("prompt is too long")))))
            except Overflow:
                break
        assert 3 < len(sizes) < 60
        assert all(later < earlier for earlier, later in pairwise(sizes))


BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."  # fmt: skip


def test_a_model_that_binds_thinking_refuses_once():
    """An unknown name: what its refusal teaches holds for later edits, for the log, and for no other model."""
    with foldline.open(":memory:", model="claude-alias", window=4_000) as s:
        refused, thoughts = 0, 0
        for turn in range(60):
            s.add(f"Turn {turn}. {PROSE * 6}")
            request = s.request(thinking={"type": "adaptive"})
            if has_foreign_thought(request["messages"]):
                refused += 1
                error = RefusedError(BOUND, "invalid_request_error")
                request = s.heal(error, thinking={"type": "adaptive"})
                assert not has_foreign_thought(request["messages"])
                assert s.history.sent(s.asked) == request
                with pytest.raises(RefusedError):
                    s.heal(error, thinking={"type": "adaptive"})
            thoughts += "thinking" in json.dumps(request["messages"])
            seal = bind_thoughts(request["messages"], len(request["messages"]))
            said = [{"type": "thinking", "thinking": "hm", "signature": seal}, {"type": "text", "text": PROSE * 3}]  # fmt: skip
            s.add({"role": "assistant", "content": said})
        assert len([one for _, one in s.history.events() if isinstance(one, Folded)]) >= 3
        assert refused == 1
        assert thoughts > 40, "those behind no edit stay"
        assert s.aio.live.view.binds_thinking
        s.switch("claude-opus-4-6")
        assert not s.aio.live.view.binds_thinking
        s.switch("claude-alias")
        assert s.aio.live.view.binds_thinking

"""What is logged: one line per event, at its level, and never what was said. And `foldline.watch`."""

import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import openai
import pytest
from folding import settled
from prometheus_client import CollectorRegistry

import foldline
from foldline.core import fold_selection
from foldline.core.budget import measure_budget
from foldline.core.log import Folded, UsageReported, UserSaid
from foldline.core.parts import Text
from foldline.core.spine import Range
from foldline.core.tokens import count_tokens
from foldline.dialects.provider_errors import Fault
from foldline.errors import BadInput, Overflow, StoreFailed, Vetoed
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.session import log_lines, metrics
from foldline.session.model_facts import build_facts
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore
from foldline.testing import ScriptedModel
from foldline.testing.provider import Provider

pytestmark = pytest.mark.anyio
CANARY = "xylophone-4711"
PROSE = f"Most of the tests pass, said the {CANARY}, and nobody complained about it. "
TOOLS = [{"type": "function", "function": {"name": "look", "description": CANARY, "parameters": {"type": "object"}}}]  # fmt: skip


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _everything(caplog, monkeypatch):
    """Everything is captured, and no line of any test says what was said in it."""
    caplog.set_level(logging.DEBUG, "foldline")
    monkeypatch.setattr(log_lines, "_assumed", set())
    yield
    said = [one for one in caplog.records if one.name.startswith("foldline")]
    assert all("\n" not in one.getMessage() and not one.exc_info for one in said)
    assert CANARY not in " ".join(one.getMessage() for one in said)


def lines(caplog, level, words=""):
    """The messages of a level that hold some words, all but how each session is folded."""
    found = (one for one in caplog.records if one.name.startswith("foldline") and one.funcName != "log_folding_rule")  # fmt: skip
    return [one.getMessage() for one in found if one.levelname == level and words in one.getMessage()]  # fmt: skip


def opened(**more):
    given = {"model": "scripted", "window": 4_000, "reserve": 300, "system": PROSE, "tools": TOOLS}
    return foldline.aopen(":memory:", **(given | more))


async def talk(s, turns):
    """Turns with a call and its result, all of which say the canary."""
    for n in range(turns):
        await s.add(f"Look at module_{n} today. " + PROSE * 3)
        await s.request()
        call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        await s.add({"role": "assistant", "content": PROSE, "tool_calls": [call]})
        await s.add({"role": "tool", "tool_call_id": f"c{n}", "content": PROSE * 3})
        await s.request()
        await s.add({"role": "assistant", "content": f"I looked at {n}. " + PROSE * 3})
        await settled(s)


async def folds(s):
    found = await s.live.read_events(Range(0, s.live.view.head))
    return [event for _, event in found if isinstance(event, Folded)]


async def test_every_fold_is_one_line(caplog):
    """M-4."""
    async with opened(session="alpha") as s:
        await talk(s, 20)
        await s.fold()
        made = await folds(s)
    assert {fold.why for fold in made} == {"forced", "due"}
    assert lines(caplog, "INFO") == [
        f"alpha: folded {fold.messages} messages ({fold.why}): "
        f"{fold.before:,} → {fold.after:,} tokens"
        for fold in made
    ]
    assert lines(caplog, "WARNING") == []


async def test_from_where_on_a_session_is_folded_is_one_line(caplog):
    async with opened(session="alpha") as s:
        await talk(s, 2)
        rule = s.report.rule
    said = [one for one in caplog.records if one.funcName == "log_folding_rule"]
    assert [(one.levelname, one.getMessage()) for one in said] == [("INFO", f"alpha: {rule}")]


async def test_a_cut_of_what_nobody_has_answered_is_a_warning(caplog):
    """One message above the window when it comes, and two that only together are above it."""
    for size, count in ((60, 1), (20, 2)):
        caplog.clear()
        async with opened(session="alpha", window=2_000, tools=()) as s:
            for _ in range(count):
                await s.add(PROSE * size * 5)
            await s.request()
            cut = s.report.clipped
        assert cut
        assert lines(caplog, "WARNING")
        if count > 1:
            assert all(lines(caplog, "WARNING", f"log:{seq}") for seq in cut)


async def test_a_fold_that_nobody_agreed_to_says_that_the_window_is_full(caplog):
    """M-3: in the line and for watchers; while the request can be sent there is no fold."""
    seen = []
    async with opened(session="alpha", policy="confirm") as s:
        s.live.passes.watchers.append(seen.append)
        while not seen:
            await talk(s, 1)
    assert [(one.kind, one.trigger, one.outcome) for one in seen] == [("fold", "full", "applied")]
    (line,) = lines(caplog, "INFO")
    why = "the window is full: it cannot be sent otherwise, so no yes was waited for"
    assert f"({why}): {seen[0].before:,} → {seen[0].after:,} tokens" in line


async def test_a_fold_that_was_only_previewed_is_no_line(caplog):
    async with opened() as s:
        await talk(s, 3)
        assert await s.fold(preview=True)
    assert lines(caplog, "INFO") == []


async def test_a_fork(caplog):
    async with opened(session="alpha") as s:
        await s.add(PROSE)
        await s.fork("beta", at=2)
    assert lines(caplog, "INFO") == ["alpha: forked at 2 into beta"]


def test_a_refusal_that_is_healed_and_the_window_that_it_teaches(caplog):
    """The provider quotes what it refuses, and no line does."""
    words = f"This model's maximum context length is 3000 tokens. However, your messages resulted in {{}} tokens: {PROSE}"  # fmt: skip

    def refuse(body, *_):
        tokens = count_tokens(body.decode())
        said = {"error": {"code": "context_length_exceeded", "message": words.format(tokens)}}
        return (400, said) if tokens > 3_000 else None

    with Provider(lambda _: "noted") as provider:
        provider.refuse = refuse
        client = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        with client, foldline.open(":memory:", model="gpt-4o", window=100_000, reserve=200) as s:
            for turn in range(30):
                s.add(f"Turn {turn}. {PROSE * 9}")
                s.create(client, max_tokens=150)
        assert provider.statuses.count(400) == 1
    (healed,) = lines(caplog, "INFO", "healed")
    assert healed.startswith("main: a refusal is healed: ")
    before, after = (int(one.replace(",", "")) for one in healed.split()[-4:-1:2])
    assert after < before
    assert lines(caplog, "INFO", "learned") == [
        "main: the window of gpt-4o is 3,000 tokens, learned from a refusal"
    ]


def test_a_refusal_that_teaches_nothing_is_no_heal(caplog):
    with Provider(lambda _: "noted") as provider:
        provider.refusal = (401, {"error": {"message": f"bad key; you said {PROSE}"}})
        client = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        with client, foldline.open(":memory:", model="gpt-4o") as s:
            s.add(PROSE)
            with pytest.raises(openai.AuthenticationError):
                s.create(client)
    assert lines(caplog, "INFO") + lines(caplog, "WARNING") == []


def test_a_proxied_refusal_that_is_healed_and_its_folds(caplog):
    with Provider(lambda _: "noted", window=3_000) as provider:
        plain = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        said = [{"role": "system", "content": PROSE}]
        with foldline.wrap(plain, window=100_000, session="alpha") as client:
            for turn in range(30):
                said.append({"role": "user", "content": f"Turn {turn}. {PROSE * 9}"})
                client.chat.completions.create(model="gpt-4o", messages=said, max_tokens=150)
                said.append({"role": "assistant", "content": "noted"})
        assert provider.statuses.count(400) == 1
    (healed,) = lines(caplog, "INFO", "healed")
    assert healed.startswith("alpha: a refusal is healed: ")
    assert lines(caplog, "INFO", "alpha: folded ")
    assert len(lines(caplog, "INFO", "alpha: the window of gpt-4o is 3,000 tokens")) == 1
    assert lines(caplog, "WARNING") == []


def test_a_proxied_fork(caplog):
    """A client that returns to a branch which it had left."""
    with Provider(lambda _: "noted") as provider:
        plain = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        begun = [{"role": "user", "content": PROSE}]
        with foldline.wrap(plain, session="alpha") as client:
            for ending in ("one", "two", "one"):
                said = [*begun]
                for words in (ending, "go on", "and on")[: 3 if ending == "one" else 1]:
                    client.chat.completions.create(model="gpt-4o", messages=said)
                    said += [{"role": "assistant", "content": "noted"}, {"role": "user", "content": words}]  # fmt: skip
                    client.chat.completions.create(model="gpt-4o", messages=said)
    assert lines(caplog, "INFO", " into alpha+")
    assert all(one.startswith("alpha") for one in lines(caplog, "INFO", "forked at"))


async def test_a_vetoed_fold_of_a_request_that_is_sent(caplog):
    async with opened(policy="sliding", window=9_000) as s:
        s.live.passes.vetoes.append(lambda _: "not on\nFridays")
        await talk(s, 7)
        assert await folds(s) == []
        told = lines(caplog, "WARNING")
        assert {*told} == {
            "main: a fold was vetoed, and the request is sent without it: not on Fridays"
        }
        with pytest.raises(Vetoed):
            await s.fold()
        assert lines(caplog, "WARNING") == told, "nothing was sent, and the error says why"


def test_a_vetoed_fold_of_a_proxied_request_that_needs_it(caplog):
    with Provider(lambda _: "noted") as provider:
        plain = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        said = []
        with foldline.wrap(plain, window=4_000, session="alpha") as client:
            for turn in range(12):
                said.append({"role": "user", "content": f"Turn {turn}. {PROSE * 20}"})
                client.chat.completions.create(model="gpt-4o", messages=said)
                said.append({"role": "assistant", "content": "noted"})
                if not turn:
                    live = client.foldline.session.aio.live
                    live.passes.vetoes.append(lambda _: "not on Fridays")
        assert provider.statuses == [200] * 12
    told = lines(caplog, "WARNING", "alpha: a request may not fit, and is sent")
    assert told
    assert "not on Fridays" in told[0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (f"- {PROSE} [99]", "rejected"),
        (Fault("auth", f"bad key; you said {PROSE}"), "failed (auth)"),
        (ZeroDivisionError(PROSE), "failed (ZeroDivisionError)"),
    ],
    ids=["rejected", "refused", "raises"],
)
async def test_a_narrative_that_is_not_there(answer, words, caplog):
    teller = Tellers((ScriptedModel(lambda _: answer, name="teller"),), Patience(tries=1))
    async with opened(summarizer=teller) as s:
        await talk(s, 20)
    told = lines(caplog, "WARNING")
    assert told
    assert {*told} == {f"main: a narrative of teller {words}; the fold goes without one"}


async def test_a_narrative_that_takes_too_long(caplog):
    slow = ScriptedModel(lambda _: "late", name="teller", delay=5.0)
    async with opened(summarizer=Tellers((slow,), Patience(tries=1), seconds=0.05)) as s:
        await talk(s, 20)
    told = lines(caplog, "WARNING", "a narrative of teller failed (timeout)")
    assert len(told) == 1, "then it is left alone for a while"


async def test_an_assumed_window_is_said_once_per_model(caplog):
    for model in ("nobodys-1", "nobodys-1", "gpt-4o", "nobodys-2\x1b[2J\nforged"):
        async with opened(model=model, window=None) as s:
            for _ in range(2):
                await s.add(PROSE)
                await s.request()
    ending = "its window is unknown, 128,000 tokens are assumed; set `window` or models.toml (said once)"  # fmt: skip
    assert lines(caplog, "WARNING") == [f"nobodys-1: {ending}", f"nobodys-2?[2J forged: {ending}"]


async def test_a_window_that_is_given_is_not_assumed(caplog):
    async with opened(model="nobodys-1", window=4_000) as s:
        await s.add(PROSE)
        await s.request()
    assert lines(caplog, "WARNING") == []


async def test_strangers_cannot_fill_the_log_with_models(caplog):
    for n in range(1_100):
        log_lines.warn_of_assumed_window(f"made-up-{n}", 128_000)
    assert len(lines(caplog, "WARNING")) == 1_000


async def test_a_server_that_cuts_the_prompt(caplog):
    async with opened(window=100_000) as s:
        await s.add(PROSE * 400)
        await s.request()
        await s.live.receive_events(UsageReported(asked=s.live.view.asked, input=9))
    (told,) = lines(caplog, "WARNING")
    assert told.startswith("main: the server has cut the prompt: ")
    assert told.endswith(" tokens were sent, 9 were read")


# `foldline.watch`: every session of the process.


async def test_a_watcher_of_all_sessions_present_and_future():
    seen, own = [], []
    async with opened(session="before") as before:
        end = foldline.watch(seen.append)
        before.live.passes.watchers.append(own.append)
        await talk(before, 20)
        made = await folds(before)
    assert own == seen
    assert [(one.name.session, one.before, one.after) for one in seen] == [
        ("before", fold.before, fold.after) for fold in made
    ]
    async with opened(session="after") as after:
        await talk(after, 20)
        told = len(seen)
        assert {one.name.session for one in seen} == {"before", "after"}
        end()
        end()
        await talk(after, 20)
    assert len(seen) == told


async def test_two_watches_of_one_watcher_end_apart():
    seen = []
    ends = [foldline.watch(seen.append) for _ in range(2)]
    try:
        async with opened() as s:
            ends[0]()
            ends[0]()
            await talk(s, 20)
            assert len(seen) == len(await folds(s)) > 0
    finally:
        ends[1]()


def test_what_is_no_watcher_is_refused():
    with pytest.raises(BadInput, match="cannot be called"):
        foldline.watch("print")


def test_the_page_lists_every_metric_and_span():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "logs-and-metrics.md").read_text()
    values = [one for key, one in vars(metrics).items() if key.isupper() and isinstance(one, str)]
    names = [re.sub(r"^(foldline_gateway_|foldline\.(?!pass)|gen_ai\.)", "", one) for one in values]
    assert len(names) > 20
    assert [one for one in names if not re.search(rf"`{re.escape(one)}(_total)?`", page)] == []


def test_importing_foldline_does_not_import_logging():
    code = "import sys, foldline; sys.exit('logging' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What fails is logged, too, and counted.


async def test_p3_24_a_fold_that_cannot_help_is_one_line_and_is_counted(caplog):
    """P3-24, P3-31: level and one line; the metric has an outcome of its own."""
    registry = CollectorRegistry()
    async with opened(session="alpha", window=2_000) as s:
        s.live.passes.watchers.append(metrics.prometheus(registry))
        await s.instruct(system=PROSE * 900)
        await s.live.receive_events(UserSaid((Text(PROSE * 900),)))
        s.live.facts = build_facts("scripted", window=1_000, reserve=900, policy="steady")
        with pytest.raises(Overflow):
            await s.request()
        with pytest.raises(Overflow):
            await s.fold()
        with pytest.raises(Overflow):
            await s.fold(preview=True)
    told = lines(caplog, "ERROR")
    assert len(told) == 2, "a preview folds nothing, so nothing failed"
    assert all(re.fullmatch(r"alpha: a fold failed \(Overflow: [\d,]+ tokens, and 1,000 fit\)", one) for one in told)  # fmt: skip
    count = {"trigger": "forced", "outcome": "failed"}
    assert registry.get_sample_value("foldline_folds_total", count) == 1.0
    assert registry.get_sample_value("foldline_folds_total", count | {"trigger": "due"}) == 1.0


class Full(SqliteStore):
    """A store whose disk is full from some moment on."""

    full = False

    async def append(self, *args, **more):
        """Fail, with words that quote a message."""
        if self.full:
            raise StoreFailed(f"disk full at {PROSE}")
        return await super().append(*args, **more)

    async def put(self, *args, **more):
        """The same of side values."""
        if self.full:
            raise StoreFailed(f"disk full at {PROSE}")
        return await super().put(*args, **more)

    async def head(self, *args, **more):
        """The same of reading."""
        if self.full:
            raise StoreFailed(f"disk full at {PROSE}")
        return await super().head(*args, **more)


async def test_p3_24_a_fold_that_the_store_does_not_take(caplog):
    store = Full(":memory:")
    async with opened(session="alpha", store=store) as s:
        seen = []
        s.live.passes.watchers.append(seen.append)
        await talk(s, 3)
        store.full = True
        with pytest.raises(StoreFailed):
            await s.fold()
        store.full = False
    await store.close()
    assert lines(caplog, "ERROR") == ["alpha: a fold failed (StoreFailed)"]
    assert [(one.kind, one.outcome, one.trigger) for one in seen] == [("fold", "failed", "due")]


async def test_p3_24_a_narrative_that_the_store_does_not_take(caplog):
    """Nobody waits for it, and still it is said."""
    store, teller = Full(":memory:"), ScriptedModel(lambda _: "no", name="teller")
    seen = []
    async with opened(session="alpha", store=store, summarizer=teller) as s:
        s.live.passes.watchers.append(seen.append)
        await talk(s, 3)
        budget = measure_budget(s.live.view, s.live.facts.limits)
        facts = replace(s.live.facts, now=True)
        ask = fold_selection.plan_narrative(s.live.view, None, budget=budget, facts=facts)
        store.full = True
        s.live.narrator.schedule_narrative(s.live, ask)
        await settled(s)
        store.full = False
    await store.close()
    (told,) = lines(caplog, "WARNING", "StoreFailed")
    assert told == "alpha: a narrative of teller failed (StoreFailed); the fold goes without one"
    assert [one.outcome for one in seen if one.kind == "narrative"][-1] == "failed"


async def test_p3_24_a_session_that_cannot_be_opened_for_its_fold(caplog):
    from foldline.session.fold_worker import fold_session  # noqa: PLC0415 - an extra

    store = Full(":memory:")
    assert (await fold_session(store, Name("local", "nobody"))).outcome == "gone"
    assert lines(caplog, "ERROR") == []
    store.full = True
    with pytest.raises(StoreFailed):
        await fold_session(store, Name("local", "alpha"))
    await store.close()
    assert lines(caplog, "ERROR") == [
        "alpha: the session cannot be opened for a fold (StoreFailed)"
    ]

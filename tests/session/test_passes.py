"""Folds and narratives watched, counted, traced and forbidden: A-46, A-48, R-76."""

import pytest
from folding import settled
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import foldline
from foldline.core.log import Folded
from foldline.core.spine import Range
from foldline.errors import Vetoed
from foldline.session import metrics
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def opened(**more):
    given = {"model": "scripted", "window": 4_000, "reserve": 300}
    return foldline.aopen(":memory:", **(given | more))


async def talk(s, turns):
    for n in range(turns):
        await s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
        await s.request()
        await s.add({"role": "assistant", "content": f"I looked at {n}. " + "So it is. " * 25})
        await settled(s)


async def folds(s):
    found = await s.live.read_events(Range(0, s.live.view.head))
    return [event for _, event in found if isinstance(event, Folded)]


async def test_every_pass_is_told_once_with_what_the_log_says():
    seen = []
    async with opened(summarizer=ScriptedModel(lambda _: "no")) as s:
        s.live.passes.watchers.append(seen.append)
        await talk(s, 30)
        made = await folds(s)
    told = [one for one in seen if one.kind == "fold"]
    assert [(one.before, one.after, one.trigger) for one in told] == [
        (fold.before, fold.after, fold.why) for fold in made
    ]
    assert all(one.outcome == "applied" and one.seconds > 0 and one.ratio > 1 for one in told)
    narratives = [one for one in seen if one.kind == "narrative"]
    assert {one.outcome for one in narratives} == {"rejected"}
    assert all(one.reason and one.before > 0 for one in narratives)


async def test_prometheus():
    registry = CollectorRegistry()
    async with opened(summarizer=ScriptedModel(lambda _: "no")) as s:
        s.live.passes.watchers.append(metrics.prometheus(registry))
        await talk(s, 30)
        made = await folds(s)
    text = generate_latest(registry).decode()
    assert f'{metrics.FOLDS}_total{{outcome="applied",trigger="forced"}} {len(made)}.0' in text
    gone = sum(fold.before - fold.after for fold in made)
    assert f'{metrics.FOLDED_TOKENS}_total{{trigger="forced"}} {float(gone)}' in text
    assert f'{metrics.FOLD_RATIO}_count{{trigger="forced"}} {len(made)}.0' in text
    assert f'{metrics.NARRATIVES}_total{{form="prefix",outcome="rejected"}}' in text


async def test_one_span_a_pass():
    """R-76: trigger, before, after, outcome."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    async with opened() as s:
        s.live.passes.watchers.append(metrics.spans(provider.get_tracer("test")))
        await talk(s, 20)
        made = await folds(s)
    spans = kept.get_finished_spans()
    assert len(spans) == len(made) > 0
    for span, fold in zip(spans, made, strict=True):
        assert span.name == metrics.SPAN
        assert span.attributes[metrics.TRIGGER] == fold.why
        assert span.attributes[metrics.BEFORE] == fold.before
        assert span.attributes[metrics.AFTER] == fold.after
        assert span.attributes[metrics.OUTCOME] == "applied"
        assert span.attributes[metrics.CONVERSATION] == "main"
        assert span.end_time > span.start_time


async def test_a_veto_holds_back_what_is_not_forced():
    """The session goes on unfolded for as long as it fits; then it says who forbids it."""
    seen = []
    async with opened(policy="sliding", window=9_000) as s:
        s.live.passes.vetoes.append(lambda fold: f"{fold.messages} are dear to me")
        s.live.passes.watchers.append(seen.append)
        await talk(s, 12)
        assert await folds(s) == []
        assert {one.outcome for one in seen} == {"vetoed"}
        with pytest.raises(Vetoed, match="dear to me"):
            await s.fold()
        with pytest.raises(Vetoed, match="dear to me"):
            await talk(s, 60)
        head = s.live.view.head
        s.live.passes.vetoes.clear()
        await s.request()
        assert len(await folds(s)) == 1
        assert s.live.view.head > head


async def test_a_watcher_that_fails_stops_nothing(caplog):
    def broken(_):
        raise ZeroDivisionError

    async with opened() as s:
        s.live.passes.watchers.append(broken)
        await talk(s, 20)
        assert await folds(s)
    assert "a watcher of passes failed" in caplog.text

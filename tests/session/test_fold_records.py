"""A fold's record: when, which turns, how much smaller, by whom and at what price."""

import time
from dataclasses import replace

import msgspec
import pytest
from folding import goals, settled

import foldline
from foldline.core import log
from foldline.core.log import Folded, UsageReported
from foldline.core.policy import STEADY
from foldline.core.tokens import MESSAGE, count_tokens
from foldline.models.catalog import resolve_model
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def talk(s, turns, *, first=0):
    for turn in range(first, first + turns):
        s.add(f"turn {turn}: " + "pasted text " * 40)
        s.request()
        s.add({"role": "assistant", "content": f"answer {turn} " + "so it is " * 40})


def test_m12_a_record_has_time_turns_sizes_and_ratio():
    """M-12, P3-05 to P3-08, P1-31: the ratio is the span's tokens by the handoff's."""
    begun = time.time()
    with foldline.open(":memory:", model="m", window=3_000, reserve=100) as s:
        talk(s, 60)
        records = s.history.folds()
        made = [(seq, one) for seq, one in s.history.events() if isinstance(one, Folded)]
        turns = s.history.turns()
        standing = s.edits
    assert len(records) == len(made) > 3
    for record, (seq, event) in zip(records, made, strict=True):
        span = event.change.span
        assert (record.at, record.lo, record.hi) == (seq, span.lo, span.hi)
        assert (record.messages, record.why) == (event.messages, event.why)
        assert (record.before, record.after) == (event.before, event.after)
        assert record.after == count_tokens(event.text) + MESSAGE
        assert record.ratio == pytest.approx(event.before / event.after)
        assert record.ratio > 1
        assert begun <= record.start_time <= record.end_time <= record.time <= time.time()
        inside = [turn.number for turn in turns if span.lo <= turn.at <= span.hi]
        assert (record.first_turn, record.last_turn) == (inside[0], inside[-1])
        assert (record.model, record.used, record.dollars) == ("", None, None)
        assert (record.quoted, record.facts) == (
            len(event.verbatim) + len(event.clipped),
            len(event.facts),
        )
        assert record.standing == (seq in standing)
    assert len({record.standing for record in records}) == 2, "an older one was merged"


async def test_p1_31_the_narrative_is_counted_and_priced():
    """What a model took to tell the fold, and its price; the log keeps it."""
    teller, passes = ScriptedModel(goals, name="gpt-5-mini"), []
    async with foldline.aopen(":memory:", model="m", window=6_000, reserve=300, summarizer=teller) as s:  # fmt: skip
        s.live.passes.watchers.append(passes.append)
        for n in range(8):
            await s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
            await s.request()
            await s.add({"role": "assistant", "content": "So it is. " * 25})
            await settled(s)
        await s.fold()
        records = await s.history.folds()
        events = [one for _, one in await s.history.events() if isinstance(one, Folded)]
    counts = {(one.before, one.after) for one in passes if one.outcome == "told"}
    prices = resolve_model("gpt-5-mini").prices
    told = [record for record in records if record.model]
    assert told
    for record in told:
        used = record.used
        assert (record.model, (used.input, used.output) in counts) == ("gpt-5-mini", True)
        cost = (used.input * prices.input + used.output * prices.output) / 1e6
        assert record.dollars == pytest.approx(cost)
        assert record.dollars > 0
    assert [event.used for event in events] == [record.used for record in records]


def test_old_folds_are_read_and_written_as_before():
    """A fold of an earlier release names no usage, and none is written into it."""
    with foldline.open(":memory:", model="m", window=3_000, reserve=100) as s:
        talk(s, 24)
        (first, *_) = (one for _, one in s.history.events() if isinstance(one, Folded))
    body = log.encode_event(first)
    assert b'"used"' not in body
    assert log.encode_event(log.decode_event(body)) == body
    told = msgspec.structs.replace(first, used=UsageReported(input=7, output=1))
    assert log.decode_event(log.encode_event(told)) == told


def test_no_fold_no_record_and_an_undone_one_stays():
    with foldline.open(":memory:", model="m", window=100_000) as s:
        assert s.history.folds() == []
        talk(s, 12)
        s.fold()
        assert [one.standing for one in s.history.folds()] == [True]
        s.undo()
        assert [one.standing for one in s.history.folds()] == [False]


def test_a_trimmed_log_has_no_times_of_what_is_erased():
    often = replace(STEADY, rest=0.80)  # small folds, and old ones beside them
    with foldline.open(":memory:", model="m", window=3_000, reserve=100, policy=often) as s:
        talk(s, 30)
        assert s.history.trim() > 0
        records = s.history.folds()
    assert records
    assert all(one.end_time is None or one.end_time <= one.time for one in records)
    assert any(one.end_time is None for one in records)

"""A session of our own store in the lab: what was sent then, and what others would send."""

import asyncio
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_usage

import foldline
from foldline.core.budget import limits
from foldline.core.log import (
    Asked,
    Checkpointed,
    Folded,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Native, Proxied, Text
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.spine import Change, FoldAt, Range, Spine
from foldline.errors import BadInput
from foldline.lab.comparison import (
    EVERYTHING,
    RECORDED,
    Case,
    Task,
    build_comparison,
    make_tasks,
    run_task,
)
from foldline.lab.policy_run import Ours, as_recorded
from foldline.lab.recorded import Recorded, convert_log, load_stored_session
from foldline.lab.replay import replay_session
from foldline.lab.report.sentences import list_caveats
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore


@pytest.fixture
def kept(tmp_path):
    """A session that folded, with the model's own counts; and the sizes of what it sent."""
    path, sizes = tmp_path / "a.db", []
    with foldline.open(str(path), model="m", window=3_000, session="talk") as s:
        for turn in range(40):
            s.add(f"turn {turn}: read module_{turn}.py " + "and say what is in it " * 12)
            s.request()
            sizes.append(s.report.total)
            usage = {"prompt_tokens": s.report.estimate, "completion_tokens": 9, "total_tokens": 9}
            answer = {"role": "assistant", "content": f"module_{turn}.py holds parser_{turn}"}
            choice = {"index": 0, "message": answer, "finish_reason": "stop"}
            s.add({"object": "chat.completion", "choices": [choice], "usage": usage})
        assert s.edits
    return path, sizes


async def read(path, name="talk"):
    store = SqliteStore(str(path))
    try:
        return await load_stored_session(store, Name("local", name))
    finally:
        await store.close()


def test_the_calls_have_the_sizes_they_had(kept):
    path, sizes = kept
    session = asyncio.run(read(path))
    assert session.counts
    assert len(session.calls) == 40
    assert all(one.time for one in session.calls)
    case = Case(session, UNKNOWN, 3_000)
    results = [run_task(one) for one in make_tasks([case], ["steady"], narratives=False)]
    by = {one.policy: one for one in results}
    then = by[RECORDED].sizes
    assert len(by[RECORDED].edits) >= 1
    far = sorted(abs(a / b - 1) for a, b in zip(then, sizes, strict=True))
    assert far[len(far) // 2] < 0.05
    assert max(by["off"].sizes) > 1.2 * max(then), "it had folded"
    told = build_comparison([case], results)
    assert told.baseline == RECORDED
    assert told.recorded_dollars > 0


def test_a_fold_tells_what_it_left_standing():
    said = [UserSaid((Text(f"message {at}"),)) for at in range(6)]
    spine = Spine((FoldAt(5), Range(4)))
    fold = Folded("what was", Change(Range(1, 3)), spine)
    made = convert_log(
        "x", [Opened("m"), *said[:4], fold, *said[4:]], [float(at) for at in range(8)]
    )
    assert made.events[5:7] == (
        Checkpointed("compaction", "what was"),
        Checkpointed("kept from", "4"),
    )
    assert made.events[7:] == tuple(said[4:])
    assert made.times == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0, 7.0)
    assert made.model == "m"


def test_a_compaction_of_the_record_is_no_miss_of_the_others():
    """What the record's own edit lost was lost to it alone: who sends everything reads it."""
    events = [Opened("m")]
    counted = [(4_000, 0), (5_000, 4_000), (6_000, 5_000), (2_500, 1_100), (3_500, 2_500)]
    for turn, (size, found) in enumerate(counted):
        if turn == 3:
            events += [Checkpointed("compaction", "what was said so far")]
        events += [UserSaid((Text("word " * 1_000),)), ModelSaid((Text("yes"),))]
        events += [UsageReported(input=size, output=5, cache_read=found, cache_write=size - found)]
    made = Recorded("x", "m", tuple(events))
    assert not any(call.missed for call in made.calls)
    case = Case(made, UNKNOWN, 200_000)
    assert "missed" not in run_task(Task(case, EVERYTHING)).lost
    assert "missed" not in run_task(Task(case, RECORDED)).lost


def test_above_a_price_step_the_parts_are_still_the_sum():
    """Long requests cost more: in the bill, in its parts, by the counts, and in words."""
    events = [Opened("m")]
    for size in (2_000, 4_000, 6_000, 8_000):
        events += [UserSaid((Text("word " * 2_000),)), ModelSaid((Text("yes"),))]
        events += [UsageReported(input=size, output=5, cache_read=size - 2_000, cache_write=2_000)]
    session = Recorded("x", "m", tuple(events))
    told = {}
    for step in (3_000, 1_000_000):
        prices = Prices(1.0, 0.1, 1.25, 5.0, step, above=2.0)
        case = Case(session, prices, 200_000, priced_as="m")
        results = [run_task(one) for one in make_tasks([case], ["steady"], narratives=False)]
        told[step] = build_comparison([case], results)
    low, high = told[3_000], told[1_000_000]
    assert low.recorded_dollars == pytest.approx(
        (2_000 * 1.25 + 2 * (12_000 * 0.1 + 6_000 * 1.25) + 4 * 5 * 5.0) / 1e6
    )
    whole, cheap = low.total_of(EVERYTHING), high.total_of(EVERYTHING)
    assert whole.read_dollars == pytest.approx(2 * cheap.read_dollars)
    assert any("higher input prices of m;" in one for one in list_caveats(low))
    assert not any("higher" in one.lower() for one in list_caveats(high))


def test_an_edit_that_was_taken_back_is_one_fold_not_two():
    said = [UserSaid((Text(f"message {at} " * 50),)) for at in range(6)]
    yes = ModelSaid((Text("yes"),))
    change = Change(Range(1, 3))
    fold = Folded("what was", change, Spine((FoldAt(5), Range(4))))
    undone = Undone(5, change, Spine((Range(0),)))
    events = [Opened("m"), said[0], yes, said[1], yes, fold, said[2], yes, undone, said[3], yes]
    made = convert_log("x", events)
    result = run_task(Task(Case(made, UNKNOWN, 200_000), RECORDED))
    assert [edit.call for edit in result.edits] == [2]


def test_a_record_that_folded_without_counts_is_not_what_everything_would_cost():
    said = [UserSaid((Text(f"message {at} " * 50),)) for at in range(6)]
    yes = ModelSaid((Text("yes"),))
    fold = Folded("what was", Change(Range(1, 3)), Spine((FoldAt(5), Range(4))))
    whole = [Opened("m"), said[0], yes, said[1], yes, said[2], yes]
    for events, shown in ((whole, False), ([*whole[:5], fold, *whole[5:]], True)):
        case = Case(convert_log("x", events), UNKNOWN, 200_000)
        told = build_comparison(
            [case], [run_task(one) for one in make_tasks([case], ["steady"], narratives=False)]
        )
        assert told.baseline == EVERYTHING
        assert (RECORDED in [one.policy for one in told.totals]) == shown


def test_names_in_the_system_prompt_were_in_sight_then_too():
    """As they are under every policy: else a compaction seems to have lost them."""
    said, yes = UserSaid((Text("look at parse_url"),)), ModelSaid((Text("parse_url it is"),))
    told = Instructed((Text("Never change parse_url."),))
    made = Recorded(
        "x", "m", (Opened("m"), told, said, yes, Checkpointed("compaction", "talk"), said, yes)
    )
    gone = Recorded("x", "m", (*made.events[:5], UserSaid((Text("go on"),)), yes))
    for one in (made, gone):
        kept = run_task(Task(Case(one, UNKNOWN, 200_000), RECORDED)).retention.names
        assert (kept.used, kept.there) == (2, 2)


def test_another_model_finds_no_cache():
    """Whatever the policy: a cache belongs to one model."""
    events = [Opened("a")]
    for turn in range(4):
        events += [ModelSwitched("b")] if turn == 2 else []
        events += [UserSaid((Text("word " * 2_000),)), ModelSaid((Text("yes"),))]
    case = Case(Recorded("x", "a", tuple(events)), UNKNOWN, 200_000)
    for policy in (RECORDED, EVERYTHING, "steady"):
        assert set(run_task(Task(case, policy)).lost) == {"model"}


def test_a_log_that_is_not_whole_is_refused_with_the_reason(kept):
    path, _ = kept

    async def trimmed():
        store = SqliteStore(str(path))
        try:
            await store.trim(Name("local", "talk"), 20, keep=[0])
            return await load_stored_session(store, Name("local", "talk"))
        finally:
            await store.close()

    with pytest.raises(BadInput, match=r"'talk' holds .* only whole logs are replayed"):
        asyncio.run(trimmed())


@pytest.mark.parametrize("reminds", [True, False])
@pytest.mark.parametrize("thinks", [True, False])
def test_a_loop_of_tools_with_thinking_waits_until_the_window_is_full(thinks, reminds):
    """As in proxied conversations; only our own logs hold what was asked for.

    A reminder behind a result, as Claude Code's, does not end the loop.
    """
    parameters = '{"thinking":{"type":"enabled","budget_tokens":9}}' if thinks else "{}"
    events = [Opened("m"), UserSaid((Text("Read them all."),))]
    for step in range(60):
        called = f"call_{step}"
        words = " ".join(f"line {step}.{n} of the file is open," for n in range(60))
        events += [
            Asked(len(events) - 1, "anthropic", "", 1, parameters),
            ModelSaid((Call(called, "read", "{}"),)),
            ToolReturned(called, (Text(words),)),
            *[UserSaid((Text("Mind the time."),))] * reminds,
        ]
    events += [Asked(len(events) - 1, "anthropic", "", 1, parameters), ModelSaid((Text("Done."),))]
    recorded = Recorded("loop", "m", tuple(events))
    facts = Facts(limits(20_000, None), STEADY, Prices(3.0, 0.3, 3.75, 15.0))
    ours = Ours(recorded, facts)
    replay_session(recorded, ours)
    whys = {fold.why for fold in ours.folds()}
    assert whys == {"full"} if thinks else "full" not in whys
    assert whys


def make_counted_log(*, native: bool = False):
    """A log of ours whose counts no straight line fits: words and digits take turns."""
    events = [Opened("m")]
    counted, counts = 3_000, []
    for turn in range(8):
        words = " ".join(f"{turn * n}" if turn % 2 else "word" for n in range(400))
        counted += 1_500 if turn % 2 else 450
        body = f'[{{"type":"reasoning","encrypted_content":"{"x" * 900}"}}]'
        own = Native("openai-responses", body) if native else None
        events += [
            UserSaid((Text(words),)),
            Asked(len(events), "openai-responses", "", 1, "{}"),
            ModelSaid((Text("Yes."),), native=own),
            UsageReported(asked=len(events) + 1, input=counted),
        ]
        counts.append(counted)
    return Recorded("talk", "m", tuple(events), is_ours=True), counts


@pytest.mark.parametrize("native", [True, False])
def test_a_log_of_ours_has_the_providers_counts_call_by_call(native):
    """A line through all of them would miss each: then folds are replayed at other calls."""
    recorded, counts = make_counted_log(native=native)
    sent = [round(sum(block.tokens for block in call.blocks)) for call in as_recorded(recorded)]
    assert sent == counts
    ours = Ours(recorded, Facts(limits(1_000_000, None), STEADY))
    steps = replay_session(recorded, ours).steps
    assert [round(sum(one.tokens for one in step.sent.blocks)) for step in steps] == counts
    line = replace(recorded, is_ours=False)
    rough = [round(sum(block.tokens for block in call.blocks)) for call in as_recorded(line)]
    assert rough != counts


def test_a_replay_estimates_as_the_session_did():
    """What an answer holds in the provider's own form is counted by the provider too."""
    sizes = []
    for native in (True, False):
        recorded, _ = make_counted_log(native=native)
        ours = Ours(recorded, Facts(limits(1_000_000, None), STEADY))
        replay_session(recorded, ours)
        sizes.append(ours.view.tokens)
    assert sizes[0] > sizes[1] + 8 * 50


def test_growth_that_no_message_explains_is_no_ratio():
    """One call has something beside the log: it and the next have the line of all calls."""
    recorded, counts = make_counted_log()
    events = [
        replace_usage(event, input=event.input + 9_000 * (event.input == counts[4]))
        if isinstance(event, UsageReported)
        else event
        for event in recorded.events
    ]
    odd = replace(recorded, events=tuple(events))
    assert len(odd.scale.ratios) == len(recorded.scale.ratios) - 4


def test_a_thinking_budget_that_must_be_lowered_costs_the_cached_messages():
    """As in proxied conversations, once: where the answer's limit no longer has room."""
    parameters = '{"max_tokens":8000,"thinking":{"type":"enabled","budget_tokens":7999}}'
    costs = {}
    for asked in (parameters, '{"max_tokens":8000}'):
        events = [Opened("claude-sonnet-4-5")]
        for turn in range(8):
            events += [
                UserSaid((Text(f"Turn {turn}. " + "word " * 1_200),)),
                Asked(len(events), "anthropic", "", 1, asked),
                ModelSaid((Text("Yes."),)),
            ]
        recorded = Recorded("talk", "claude-sonnet-4-5", tuple(events), is_ours=True)
        case = Case(recorded, Prices(3.0, 0.3, 3.75, 15.0), 14_000)
        costs[asked] = run_task(Task(case, "steady"))
    with_budget, without = (costs[asked].lost for asked in costs)
    assert with_budget.get("thinking", 0) > 0
    assert "thinking" not in without
    assert costs[parameters].spent[:4] == costs['{"max_tokens":8000}'].spent[:4], "while it fits"


@pytest.mark.parametrize("counted", [False, True])
def test_answers_of_a_clients_own_history_are_no_calls(counted):
    """As with `--continue`: only what was asked for is replayed, under the record and under a policy."""
    events = [Opened("gpt-5")]
    for n in range(6):
        events.append(UserSaid((Text(f"question {n} " * 50),)))
        if n >= 4:
            at = len(events) - 1
            events.append(
                Asked(at, "openai-chat", "", 1, tokens=900, estimate=900, proxied=Proxied("", ""))
            )
        events.append(ModelSaid((Text(f"answer {n}"),)))
        if counted and n >= 4:
            events.append(UsageReported(asked=at + 1, input=900, output=5))
    made = convert_log("x", events)
    assert len(as_recorded(made)) == 2

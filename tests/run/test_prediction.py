"""What `foldline run --dry` predicts: exactly what was paid, where folding would change nothing."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.apps.cli.run_agent import Prediction, SeenSession, predict_dollars
from foldline.core.log import Instructed, ModelSaid, Opened, UsageReported, UserSaid
from foldline.core.parts import Text, Tool
from foldline.core.prices import Prices
from foldline.draw.course import Course, CourseStep
from foldline.lab import recorded
from foldline.lab.comparison import EVERYTHING, RECORDED, Case, Task, run_task
from foldline.lab.recorded import Recorded

bills = st.lists(st.floats(0.001, 10), min_size=1, max_size=9)


@given(bills, bills)
def test_the_same_bill_is_what_was_paid(paid, sent):
    sent = (sent * 9)[: len(paid)]
    assert predict_dollars(paid, sent, sent) == pytest.approx(sum(paid))
    folded = [*sent[:-1], sent[-1] / 2]
    assert predict_dollars(paid, sent, folded) == pytest.approx(sum(paid) - paid[-1] / 2)


def make_session(calls=1):
    """As Claude Code asks: a long system prompt and tools, then a short one inside the messages."""
    tool = Tool("Bash", "Run a command. " * 4_000, '{"type":"object"}')
    events = [Opened("claude-sonnet-4-5"), Instructed((Text("You are an agent. " * 500),), (tool,))]
    for at in range(calls):
        events += [UserSaid((Text(f"hi {at}"),)), Instructed((Text("be brief " * 90),), aside=True)]
        events += [ModelSaid((Text("hello"),))]
        size = 19_000 + 800 * at
        read = size - 500 if at else 3_000
        events += [UsageReported(input=size, output=53, cache_read=read, cache_write=size - read)]
    return Recorded("talk", "claude-sonnet-4-5", tuple(events))


def test_a_system_message_inside_a_conversation_is_no_front():
    """It stands for itself: the first instructions and tools are sent with every call."""
    session = make_session(1)
    sizes = {
        one: run_task(Task(Case(session, Prices(3.0, 0.3, 3.75, 15.0), 200_000), one)).sizes
        for one in (RECORDED, EVERYTHING, "steady")
    }
    assert sizes[RECORDED] == pytest.approx(sizes["steady"], rel=0.01)
    assert sizes[EVERYTHING] == sizes["steady"]


@pytest.mark.parametrize("calls", [1, 2, 7])
@pytest.mark.parametrize("policy", ["steady", "thrifty"])
def test_a_run_without_a_fold_would_have_cost_what_it_cost(monkeypatch, calls, policy):
    """Also a single call, whatever its first call found in a cache (outside, 1)."""

    async def load(*_):
        return make_session(calls)

    monkeypatch.setattr(recorded, "load_stored_session", load)
    steps = tuple(
        CourseStep(at, 1, "m", 19_000, 53, 19_000, pico=94_900_000_000 // (at + 1), all_pico=10**12)
        for at in range(calls)
    )
    dry = Prediction(policy, None)
    asyncio.run(
        dry.add_session(None, None, SeenSession(Course(None, steps, 1), frozenset(range(calls)), 0))
    )
    assert dry.dollars == pytest.approx(sum(one.dollars for one in steps))

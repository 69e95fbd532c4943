"""Requests whose history somebody else keeps: what a plan says of its messages, and what the log has of them."""

import asyncio
import json
from copy import deepcopy

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.core.tokens import count_tokens
from foldline.errors import BadInput
from foldline.proxy.follow import NewestPlans
from foldline.testing import Provider

WORDS = "\n".join(f"line {n}: test {n * 7919} passed, nothing to report" for n in range(40))
SYSTEM = {"role": "system", "content": "You watch over the builds."}


def write_turn(n, *, calls=1, words=WORDS):
    """A turn of a chat: the user's words, calls, their results, and an answer."""
    ids = [f"call_{n}_{at}" for at in range(calls)]
    function = {"name": "read", "arguments": f'{{"build": {n}}}'}
    made = [{"id": one, "type": "function", "function": function} for one in ids]
    return [
        {"role": "user", "content": f"Is build {n} fine?"},
        {"role": "assistant", "content": None, "tool_calls": made},
        *({"role": "tool", "tool_call_id": one, "content": f"build {n}\n{words}"} for one in ids),
        {"role": "assistant", "content": f"Build {n} is fine."},
    ]


def items_of(messages):
    """The same history as the Responses API has it."""
    items = []
    for one in messages:
        if one["role"] == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": one["tool_call_id"],
                    "output": one["content"],
                }
            )
        elif one.get("tool_calls"):
            items += [
                {"type": "function_call", "call_id": call["id"], **call["function"]}
                for call in one["tool_calls"]
            ]
        else:
            items.append({"role": one["role"], "content": one["content"]})
    return items


def contents_of(messages):
    """The same history as Gemini has it."""
    contents = []
    for one in messages:
        if one["role"] == "tool":
            answer = {"name": "read", "response": {"output": one["content"]}}
            contents.append({"role": "user", "parts": [{"functionResponse": answer}]})
        elif one.get("tool_calls"):
            calls = [
                {
                    "functionCall": {
                        "name": "read",
                        "args": json.loads(call["function"]["arguments"]),
                    }
                }
                for call in one["tool_calls"]
            ]
            contents.append({"role": "model", "parts": calls})
        else:
            role = "model" if one["role"] == "assistant" else "user"
            contents.append({"role": role, "parts": [{"text": one["content"]}]})
    return contents


DIALECTS = {
    "openai-chat": ("messages", list),
    "openai-responses": ("input", items_of),
    "gemini": ("contents", contents_of),
}


def must_be_true(plan, listed, given, before):
    """What a plan says of its messages is so, and nothing that was given has changed."""
    assert [one.message for one in plan.shown] == plan.request[listed]
    places = [one.place for one in plan.shown if one.place is not None]
    assert places == sorted({*places}), "a place twice, or out of order"
    for one in plan.shown:
        if one.same:
            assert one.message is given[one.place]
        elif one.place is not None:
            assert one.message != given[one.place]
    assert plan.is_edited == (plan.request[listed] != given)
    assert given == before, "the history that was given has changed"


@given(
    dialect=st.sampled_from([*DIALECTS]),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("more"), st.integers(1, 3)),
            st.tuples(st.just("back"), st.integers(1, 3)),
            st.tuples(st.just("edit"), st.integers(0, 30)),
        ),
        min_size=4,
        max_size=16,
    ),
)
@pytest.mark.property
def test_places_are_true_whatever_happens_to_a_history(dialect, steps):
    """Histories that grow, go back and are edited in the middle, in three dialects."""
    listed, convert = DIALECTS[dialect]
    with Provider(window=6_000) as provider:
        follower = foldline.Follower(window=6_000, reserve=500)
        try:
            turns, number = [write_turn(0)], 1
            for what, count in steps:
                if what == "more":
                    for _ in range(count):
                        turns.append(write_turn(number, calls=1 if dialect == "gemini" else count))
                        number += 1
                elif what == "back":
                    turns = turns[:-count] or turns[:1]
                else:
                    turns = deepcopy(turns)
                    turns[count % len(turns)][0]["content"] += " Really?"
                given_now = convert(
                    [*(m for turn in turns for m in turn), {"role": "user", "content": "And now?"}]
                )
                request = {"model": "gpt-5", listed: given_now}
                before = deepcopy(given_now)
                plan = follower.plan(request, session="s", dialect=dialect)
                assert not plan.unplanned
                must_be_true(plan, listed, given_now, before)
                sent = json.dumps({k: v for k, v in plan.request.items() if k != "model"}).encode()
                assert provider.refuse(sent) is None, "above the window"
                assert plan.report is not None
                follower.record_usage(plan, input=count_tokens(sent.decode()), output=9)
        finally:
            follower.close()


def grow(follower, turns, session="s", **more):
    """Plan a history of some turns, one request a turn; the last plan and the history."""
    history, plan = [SYSTEM], None
    for n in range(turns):
        history = [*history, *write_turn(n)]
        plan = follower.plan({"model": "gpt-5", "messages": history, **more}, session=session)
    return plan, history


@pytest.fixture
def follower():
    made = foldline.Follower(window=8_000, reserve=500)
    yield made
    made.close()


def test_a_history_that_fits_goes_back_as_it_is(follower):
    plan, history = grow(follower, 3)
    assert not plan.is_edited
    assert plan.request["messages"] == history


def test_the_system_prompt_and_the_newest_messages_stay(follower):
    plan, history = grow(follower, 20)
    assert plan.is_edited
    assert plan.shown[0].same
    assert plan.shown[0].place == 0
    assert plan.shown[-1].message is history[-1]
    assert "[handoff:" in plan.shown[1].message["content"]


def test_an_unnamed_conversation_and_a_wrong_dialect_are_refused(follower):
    with pytest.raises(BadInput, match="cannot name"):
        follower.plan({"model": "m", "messages": []}, session="")
    with pytest.raises(BadInput, match="give one of"):
        follower.plan({"model": "m", "messages": []}, session="s", dialect="morse")
    with pytest.raises(BadInput, match="not JSON"):
        follower.plan({"model": "m", "messages": [object()]}, session="s")
    with pytest.raises(BadInput, match="the session to each"):
        foldline.Follower(session="s")


def test_without_a_name_a_conversation_is_found_by_its_history(tmp_path):
    """Two conversations in turns, and both again after a restart."""
    options = {"store": tmp_path / "logs.db", "window": 8_000, "reserve": 500}
    follower = foldline.Follower(**options)
    histories = {
        who: [{"role": "system", "content": f"You serve {who}."}] for who in ("Ada", "Bob")
    }
    logs = {who: set() for who in histories}
    for n in range(20):
        for who, history in histories.items():
            history.extend(write_turn(n + 100 * (who == "Bob")))
            plan = follower.plan({"model": "gpt-5", "messages": history})
            logs[who].add(plan.session)
    assert plan.is_edited
    assert all(len(names) == 1 for names in logs.values()), logs
    assert logs["Ada"] != logs["Bob"]
    assert follower.open_session(plan.session).edits
    follower.close()
    follower = foldline.Follower(**options)
    for who, history in histories.items():
        again = follower.plan(
            {"model": "gpt-5", "messages": [*history, {"role": "user", "content": "Thanks."}]}
        )
        assert {again.session} == logs[who]
        assert again.is_edited
        assert follower.answer_recall({"handle": "log:2"}, session=again.session).strip()
    follower.close()


def test_a_plan_outside_of_named_conversations_is_not_theirs(follower):
    _, history = grow(follower, 3)
    request = {"model": "gpt-5", "messages": history}
    unnamed = follower.plan(request)
    with foldline.conversation("ada"):
        named = follower.plan(request)
        assert follower.plan(request, session="s").session == "s"
    assert named.session == "ada"
    assert unnamed.session not in ("", "s", "ada")
    odd = follower.plan({"model": "gpt-5", "messages": [{"role": "user"}, 5]})
    assert (odd.unplanned, odd.session) == ("unreadable", "")


def test_what_cannot_be_read_is_returned_as_it_was_given(follower, caplog):
    odd = {"model": "gpt-5", "messages": [{"role": "user"}, 5]}
    plan = follower.plan(odd, session="s")
    assert plan.request == odd
    assert plan.unplanned == "unreadable"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    chained = {"model": "gpt-5", "input": "go on", "previous_response_id": "resp_1"}
    assert (
        follower.plan(chained, session="s", dialect="openai-responses").unplanned == "server-state"
    )


def test_a_refusal_is_healed_and_its_window_is_learned(follower):
    with Provider(window=5_000) as provider:
        client = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
        history, healed = [SYSTEM], 0
        for n in range(14):
            history = [*history, *write_turn(n)]
            plan = follower.plan({"model": "gpt-5", "messages": history}, session="s")
            try:
                client.chat.completions.create(**plan.request)
            except openai.BadRequestError as error:
                plan = follower.heal(plan, error)
                must_be_true(plan, "messages", history, deepcopy(history))
                client.chat.completions.create(**plan.request)
                healed += 1
        assert healed == 1, "the window was not learned"


def test_another_error_is_raised_as_it_is(follower):
    plan, _ = grow(follower, 2)
    error = ValueError("something else")
    with pytest.raises(ValueError, match="something else"):
        follower.heal(plan, error)


def test_usage_corrects_the_estimate_and_comes_late_without_harm(follower):
    plan, history = grow(follower, 4)
    first = plan.report.total
    follower.record_usage(plan, input=round(first * 1.2), output=10)
    again = follower.plan({"model": "gpt-5", "messages": [*history, *write_turn(9)]}, session="s")
    assert again.report.total > first * 1.2
    # The count of a request that a fold has followed is kept for the bill, and teaches nothing.
    late = again
    plan, _ = grow(follower, 25, session="t")
    before = follower.open_session("s").report.total
    follower.record_usage(late, input=7_000)
    follower.open_session("s").fold()
    follower.record_usage(late, input=100_000)
    assert follower.open_session("s").report.total < max(before, 7_000)


def test_sub_agents_under_one_name_get_logs_of_their_own(tmp_path):
    follower = foldline.Follower(store=tmp_path / "logs.db", window=8_000)
    grow(follower, 3)
    side = [
        {"role": "user", "content": "You are another agent."},
        {"role": "assistant", "content": "Yes."},
    ]
    follower.plan(
        {"model": "gpt-5", "messages": [*side, {"role": "user", "content": "Go."}]}, session="s"
    )
    plan, history = grow(follower, 4)
    assert [one.place for one in plan.shown] == [*range(len(history))]
    follower.close()


def test_a_restarted_process_finds_the_fold(tmp_path):
    follower = foldline.Follower(store=tmp_path / "logs.db", window=8_000, reserve=500)
    plan, history = grow(follower, 20)
    handoff = next(one.message for one in plan.shown if one.place is None)
    follower.close()
    follower = foldline.Follower(store=tmp_path / "logs.db", window=8_000, reserve=500)
    assert follower.answer_recall({"handle": "log:2"}, session="s").strip()
    more = [*history, {"role": "user", "content": "Thanks."}]
    again = follower.plan({"model": "gpt-5", "messages": more}, session="s")
    assert handoff in [one.message for one in again.shown]
    with pytest.raises(BadInput, match="nothing was planned"):
        follower.open_session("nobody")
    follower.close()


def test_the_async_follower_does_the_same():
    asyncio.run(_follow_async())


async def _follow_async():
    follower = foldline.AsyncFollower(window=8_000, reserve=500)
    history = [SYSTEM]
    for n in range(20):
        history = [*history, *write_turn(n)]
        plan = await follower.plan({"model": "gpt-5", "messages": history}, session="s")
        await follower.record_usage(plan, input=plan.report.total)
    assert plan.is_edited
    session = await follower.open_session("s")
    assert session.edits
    answer = await follower.answer_recall(
        {"handle": f"log:0-{session.live.view.head}", "grep": "build 3$"}, session="s"
    )
    assert "build 3" in answer
    await follower.close()


def test_a_session_answers_recall_and_takes_usage():
    with foldline.open(":memory:", model="gpt-5", window=8_000) as session:
        session.add("Look at the builds.")
        with pytest.raises(BadInput, match="no request yet"):
            session.record_usage(input=10)
        session.request()
        session.record_usage(input=1_000, output=20)
        assert session.report.total >= 900
        assert "Look at the builds." in session.answer_recall({"handle": "log:1"})
        assert "is not a handle" in session.answer_recall({"handle": "x"})
        assert "cannot be read" in session.answer_recall({"line": 3})


def test_plans_of_calls_that_never_end_are_forgotten(follower):
    plan, _ = grow(follower, 1)
    plans = NewestPlans(most=2)
    for name in ("a", "b", "c"):
        plans.put(name, plan)
    assert plans.take("a") is None
    assert plans.take("c") is plan
    assert plans.take("c") is None


def test_a_fault_of_our_own_is_no_reason_to_stop(follower, monkeypatch, caplog):
    """In every patch: the request is returned as it was given, and the fault is in the log."""

    def fail(*_, **__):
        raise IndexError

    grow(follower, 2)
    monkeypatch.setattr("foldline.proxy.conversation.patch_request", fail)
    plan, listed = grow(follower, 3)
    assert (plan.unplanned, plan.request["messages"]) == ("fault", listed)
    assert "IndexError" in caplog.text
    monkeypatch.undo()
    plan, _ = grow(follower, 3)
    assert not plan.unplanned

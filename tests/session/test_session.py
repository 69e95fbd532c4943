"""A session as a developer uses it, on the real store."""

import asyncio
import json
import multiprocessing
import re
import threading
from collections import Counter

import pytest
from openai.types.chat import ChatCompletion

import foldline
from foldline.core import log
from foldline.core.log import UserSaid
from foldline.core.view import View
from foldline.errors import BadHandle, BadInput, Conflict, NotAnEdit, Overflow

TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def completion(text, *, calls=()):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": one, "type": "function", "function": {"name": "run", "arguments": "{}"}}
            for one in calls
        ]
    return ChatCompletion.model_validate({
        "id": "x", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    })  # fmt: skip


def talk(s, turns, *, size=60):
    for turn in range(turns):
        s.add(f"turn {turn} " + "pasted text " * size)
        s.request()
        s.add(completion(f"answer {turn}"))


def test_a_turn():
    s = foldline.open(":memory:", model="m", system="Be brief.", tools=[TOOL])
    s.add("Make the tests pass.")
    request = s.request(temperature=0)
    assert request == {
        "model": "m",
        "temperature": 0,
        "tools": [TOOL],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Make the tests pass."},
        ],
    }
    s.add(completion(None, calls=["c1"]))
    s.add({"role": "tool", "tool_call_id": "c1", "content": "2 passed"})
    again = s.request()["messages"]
    assert again[:2] == request["messages"]
    assert [message["role"] for message in again[2:]] == ["assistant", "tool"]


def test_a_long_talk_folds_and_nothing_is_lost():
    """Laws 1, 3 and 5 through the public face."""
    s = foldline.open(":memory:", model="m", window=2_000, reserve=100)
    asked = []
    requests = []
    for turn in range(40):
        s.add(f"turn {turn}: " + "pasted text " * 40)
        requests.append(s.request())
        asked.append(s.asked)
        assert s.report.total <= 2_000 - 100 - 200
        s.add(completion(f"answer {turn}"))
    assert s.edits
    assert [s.history.sent(at) for at in asked] == requests
    assert s.recall("log:1") == "turn 0: " + "pasted text " * 40
    assert "turn 0" in json.dumps(requests[-1])  # the first task stays


def test_undo_is_refused_with_sizes_where_it_would_not_fit():
    s = foldline.open(":memory:", model="m", window=4_000)
    while not s.edits:
        s.add("Most of the tests pass when the file is read in one piece. " * 8)
        s.request()
        s.add(completion("So they do."))
    edits = s.edits
    with pytest.raises(Overflow, match="what comes back"):
        s.undo()
    assert s.edits == edits


def test_undo_holds_and_redo_takes_it_back(tmp_path):
    """R-36: with room for it, what was folded is sent again, whole, in the next request."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m", window=4_000) as s:
        s.add("the first task")
        while not s.edits:
            talk(s, 1)
        folded = s.history.sent(s.asked)["messages"]
    with foldline.open(path, model="m", window=16_000) as s:
        redo = s.undo()
        assert s.edits == []
        unfolded = s.request()["messages"]
        assert unfolded[0] == {"role": "user", "content": "the first task"}
        assert len(unfolded) > len(folded)
        s.undo(redo)
        assert s.request()["messages"][: len(folded)] == folded


def test_a_fold_reads_nothing_back(monkeypatch):
    """Law 6: installing a fold needs no event that the view does not hold already."""
    s = foldline.open(":memory:", model="m", window=2_000)
    tails = []
    read = s.aio.live.store.head
    monkeypatch.setattr(
        s.aio.live.store, "head", lambda *args, **kw: tails.append(args) or read(*args, **kw)
    )
    talk(s, 20)
    assert s.edits
    assert tails == []


def test_a_session_goes_on_after_a_restart(tmp_path):
    """Law 4 after a restart: the new process sends what the old one would have."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m", system="Be brief.", window=2_000) as s:
        talk(s, 20)
        s.add("go on")
        last = s.request()
    with foldline.open(path, model="m", system="Be brief.", window=2_000) as s:
        assert s.history.sent(s.asked) == last
        s.add(completion("yes"))
        assert s.request()["messages"][: len(last["messages"])] == last["messages"]
        s.add("and now?")


def test_two_writers_conflict_loudly(tmp_path):
    """R-63, R-64: nobody reloads and goes on behind your back."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m") as one, foldline.open(path, model="m") as two:
        one.add("hello")
        with pytest.raises(Conflict, match="open the session again"):
            two.add("hello")


def test_a_switched_model_is_recorded(tmp_path):
    path = str(tmp_path / "chat.db")
    foldline.open(path, model="m").close()
    with foldline.open(path, model="n") as s:
        s.add("hi")
        assert s.request()["model"] == "n"


def test_an_open_call_is_closed_before_the_next_request():
    """R-22: the outcome is unknown, and said so; a late result is told as a notice."""
    s = foldline.open(":memory:", model="m", tools=[TOOL])
    s.add("go")
    s.request()
    s.add(completion("", calls=["c1", "c2"]))
    s.add({"role": "tool", "tool_call_id": "c1", "content": "ok"})
    s.add("never mind")
    roles = [message["role"] for message in s.request()["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    s.add({"role": "tool", "tool_call_id": "c2", "content": "at last"})
    assert "Late result" in s.request()["messages"][-1]["content"]


def test_overflow_names_the_parts():
    s = foldline.open(":memory:", model="m", system="rule " * 3_000, window=2_000)
    s.add("hi")
    with pytest.raises(Overflow, match=r"system \d,\d\d\d, tools 0") as overflow:
        s.request()
    assert overflow.value.parts["system"] > 2_000


def test_a_message_is_checked_once_and_costs_as_much_as_the_first(monkeypatch):
    """`add` was quadratic: it applied each event to two views and bounded all items in one of them."""
    counted = Counter()

    def count_calls(owner, name):
        before = getattr(owner, name)

        def call(*args):
            counted[name] += 1
            return before(*args)

        monkeypatch.setattr(owner, name, call)

    with foldline.open(":memory:", model="m", window=1_000_000) as s:
        talk(s, 30)
        count_calls(log, "check_event")
        count_calls(View, "append")
        count_calls(View, "_bound_item")
        s.add("one more")
        s.add("and another")
        assert counted["check_event"] == counted["append"] == 2
        assert counted["_bound_item"] <= 10  # not of all 90 messages
    with foldline.open(":memory:", model="m") as s, pytest.raises(BadInput):
        s.add(UserSaid(("not a part",)))


def test_a_huge_result_is_clipped_and_comes_back():
    """R-05, R-54: one item of many windows fits; its original is kept byte for byte."""
    s = foldline.open(":memory:", model="m", tools=[TOOL], window=4_000)
    s.add("go")
    s.request()
    s.add(completion(None, calls=["c1"]))
    whole = "\n".join(f"line {n}" for n in range(20_000))
    s.add({"role": "tool", "tool_call_id": "c1", "content": whole})
    shown = s.request()["messages"][-1]["content"]
    assert len(shown) < 8_000
    (handle,) = re.findall(r"log:\d+", shown)
    assert s.recall(handle) == whole


def test_answers_stand_where_they_were_said():
    """A transcript given after a request keeps its order: only the first answer is to the request."""
    for give in (lambda s, talk: s.add(talk), lambda s, talk: [s.add(one) for one in talk]):
        s = foldline.open(":memory:", model="m")
        s.add("q1")
        s.request()
        talk = [("assistant", "a1"), ("user", "q2"), ("assistant", "a2"), ("user", "q3")]
        give(s, [{"role": role, "content": words} for role, words in talk])
        assert [m["content"] for m in s.request()["messages"]] == ["q1", "a1", "q2", "a2", "q3"]


def test_system_messages_add_up_and_instruct_replaces():
    s = foldline.open(":memory:", model="m", system="Be careful.")
    s.add([{"role": "system", "content": "Never delete."}, {"role": "user", "content": "hi"}])
    assert s.request()["messages"][0]["content"] == "Be careful.\nNever delete."
    s.add(completion("hello"))
    s.add({"role": "developer", "content": "Answer in French."})
    note = s.request()["messages"][-1]
    assert note == {
        "role": "system",
        "content": "[further instructions, from here on]\nAnswer in French.",
    }
    s.instruct(system="")
    assert "no longer hold" in s.request()["messages"][-1]["content"]


@pytest.mark.parametrize("wrong", [{"speaker": "system"}, {"author": 7}, {"author": "\ud800"}])
def test_nothing_enters_the_log_that_could_not_be_read_back(tmp_path, wrong):
    path = str(tmp_path / "chat.db")
    s = foldline.open(path, model="m")
    with pytest.raises(BadInput):
        s.add("hi", **wrong)
    s.add("goes on")
    s.close()
    with foldline.open(path, model="m") as s:
        assert s.request()["messages"][0]["content"] == "goes on"


def test_what_is_sent_is_what_is_counted():
    """R-40, R-41: fields of a provider's own and files count too."""
    s = foldline.open(":memory:", model="m", window=100_000)
    s.add({"role": "user", "content": "hi", "x": "word " * 5_000})
    assert s.report.total > 4_000
    pdf = {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "QUJD" * 100_000}
    s.add({"role": "user", "content": [{"type": "file", "file": pdf}]})
    assert s.report.total > 20_000
    assert s.request()["messages"][1]["content"] == [{"type": "file", "file": pdf}]
    assert "QUJDQUJD" in s.recall("log:2")


def test_after_a_fork():
    """The portal's thread does not survive a fork; the child has its own."""
    foldline.open(":memory:", model="m").add("x")
    child = multiprocessing.get_context("fork").Process(target=use_it)
    child.start()
    child.join(20)
    assert child.exitcode == 0


def use_it():
    foldline.open(":memory:", model="m").add("y")


def test_what_it_cannot_read_it_says():
    s = foldline.open(":memory:", model="m")
    with pytest.raises(BadInput, match="not JSON"):
        s.request(timeout=object())
    with pytest.raises(BadInput, match="cannot read a int"):
        s.add(5)
    with pytest.raises(BadHandle, match="ends at"):
        s.recall("log:99")
    with pytest.raises(NotAnEdit, match="no edit to undo"):
        s.undo()
    with pytest.raises(BadHandle, match="no request"):
        s.history.sent(0)


def test_the_same_verbs_awaited():
    async def main():
        async with foldline.aopen(":memory:", model="m") as s:
            await s.add("hi", author="Ann")
            return await s.request()

    assert asyncio.run(main())["messages"][0]["content"] == "[human: Ann]\nhi"


def test_from_many_threads():
    """The portal serves any thread; verbs of one session come one after the other."""
    s = foldline.open(":memory:", model="m")
    threads = [threading.Thread(target=s.add, args=(f"from {n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [message["content"] for message in s.request()["messages"]]
    assert sorted(said) == sorted(f"from {n}" for n in range(20))


def test_the_public_names():
    for name in foldline.__all__:
        assert getattr(foldline, name).__doc__

"""The session's verbs, on real stores."""

import asyncio
import json
import multiprocessing
import os
import time
from random import Random

import apsw
import msgspec
import pytest

import foldline
from foldline.core.log import Folded, ModelSwitched, Opened, SettingsChanged, UserSaid
from foldline.core.parts import text_of
from foldline.errors import BadHandle, BadInput, Busy, Conflict, Erased, Overflow, StoreFailed
from foldline.stores.sqlite import SqliteStore


def answer(text="ok", **usage):
    body = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}  # fmt: skip
    return body | ({"usage": usage} if usage else {})


def talk(s, turns, *, words="pasted text " * 40):
    for turn in range(turns):
        s.add(f"turn {turn}: {words}")
        s.request()
        s.add(answer(f"answer {turn}"))


def said(request):
    return json.dumps(request["messages"])


@pytest.fixture(params=[":memory:", "file"])
def path(request, tmp_path):
    return request.param if request.param == ":memory:" else str(tmp_path / "chat.db")


def test_fold_now_preview_and_undo(path):
    """R-38, A-36: by hand; what would leave, then what left, then back."""
    with foldline.open(path, model="m", window=100_000) as s:
        assert s.fold() is None
        for turn in range(12):
            s.add(f"turn {turn}")
            s.request()
            s.add(answer("long answer " * 400))
        before = s.request()
        seen = s.fold(preview=True)
        assert not s.edits
        left = s.fold()
        assert (left.before, left.after) == (seen.before, seen.after)
        assert "user messages" in str(left) or "answers" in str(left)
        (edit,) = s.edits
        assert s.history.loss(edit) == left
        assert len(said(s.request())) < len(said(before))
        s.undo()
        assert s.request()["messages"] == before["messages"]


def test_a_pin_outlives_folds(path):
    """R-25: by place or by handle; and no longer, when it is lifted."""
    with foldline.open(path, model="m", window=2_000, reserve=100) as s:
        s.add("never touch the production database")
        s.request()
        s.add(answer())
        s.pin("log:1")
        talk(s, 30)
        assert s.edits
        assert "never touch the production database" in said(s.request())
        s.pin(1, on=False)
        with pytest.raises(BadHandle, match="no message at 9999"):
            s.pin(9_999)


def test_switching_recounts_and_folds_first(path):
    """R-14: a smaller window folds first, in the larger model's counts."""
    with foldline.open(path, model="gpt-5", window=50_000) as s:
        talk(s, 30, words="pasted text " * 300)
        assert not s.edits
        s.switch("smaller", window=8_000)
        kinds = [type(event) for _, event in s.history.events()]
        assert kinds.index(Folded) < kinds.index(ModelSwitched)
        request = s.request()
        assert request["model"] == "smaller"
        assert s.report.total < 8_000 == s.report.window


def test_a_model_that_cannot_hold_it_changes_nothing():
    """R-14."""
    with foldline.open(":memory:", model="gpt-5", system="rule " * 3_000) as s:
        talk(s, 3)
        before = s.history.events()
        with pytest.raises(Overflow, match="system"):
            s.switch("tiny", window=2_000)
        assert s.history.events() == before
        assert s.request()["model"] == "gpt-5"


def test_a_fork_goes_its_own_way(path):
    """Both go on alone; the fork recalls what its ancestor had."""
    with foldline.open(path, model="m", window=3_000, reserve=100) as s:
        talk(s, 30)
        at = s.asked
        then = s.history.sent(at)
        s.add("this way")
        with s.fork("other", at=at - 1) as other:
            assert other.request()["messages"] == then["messages"]
            other.add(answer("another answer"))
            assert "turn 0" in other.recall("log:1")
            opened = [
                event for _, event in other.history.events(at, at) if isinstance(event, Opened)
            ]
            assert [one.origin for one in opened] == [f"main@{at - 1}"]
        assert "this way" in said(s.request())
        assert "another answer" not in said(s.request())
        with pytest.raises(Conflict):
            s.fork("other")


def test_carrying_on(tmp_path):
    """A-24: a record of the earlier session opens the new one; a fresh start is the default."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m", session="monday") as s:
        s.add("Fix the parser in src/parse.py, and never touch the lexer.")
        s.request()
        s.add(answer("done"))
    with foldline.open(path, model="m", session="tuesday", carry="monday") as s:
        s.add("Go on.")
        words = said(s.request())
        assert "never touch the lexer" in words
        assert "carried on from session 'monday'" in words
    with foldline.open(path, model="m", session="tuesday", carry="monday") as s:  # opened again
        assert said(s.request()).count("carried on") == 1
    with foldline.open(path, model="m", session="fresh") as s:
        s.add("Hello.")
        assert "lexer" not in said(s.request())
    with pytest.raises(BadInput, match="nothing in a session 'nobody'"):
        foldline.open(path, model="m", session="x", carry="nobody")


def test_delivered_twice_is_there_once(path):
    """R-81."""
    with foldline.open(path, model="m") as s:
        for _ in range(3):
            s.add("hello", once="update 7")
        s.add(["one", "two"], once="update 8")
        s.add(["one", "two"], once="update 8")
        s.add("hello", once="update 9")
        words = [text_of(e.parts) for _, e in s.history.events() if isinstance(e, UserSaid)]
        assert words == ["hello", "one", "two", "hello"]
        assert said(s.request()).count("hello") == 2


def test_one_worker_at_a_time(tmp_path):
    """R-63: the second is told, the first may be waited for; who lost its lease writes nothing."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m", exclusive=60) as s:
        s.add("hi")
        with pytest.raises(Busy, match="held by another worker"):
            foldline.open(path, model="m", exclusive=60)
    slow = foldline.open(path, model="m", exclusive=0.05)
    asyncio.run(asyncio.sleep(0.1))
    with foldline.open(path, model="m", exclusive=60) as s:
        s.add("mine now")
        with pytest.raises((Conflict, Busy)):
            slow.add("too late")
        words = [text_of(e.parts) for _, e in s.history.events() if isinstance(e, UserSaid)]
    assert words == ["hi", "mine now"]
    slow.close()


def test_messages_that_come_in_during_a_turn(tmp_path):
    """R-28, R-29: 300 interleavings with a turn that folds: each is there once, in order, unanswered ones verbatim."""
    path = str(tmp_path / "chat.db")
    random = Random(4)

    async def turn_and_inbound(seed):
        name = f"s{seed}"
        async with foldline.aopen(path, model="m", window=2_000, reserve=100, session=name, exclusive=60) as s:  # fmt: skip
            outside = foldline.aopen(path, model="m", window=2_000, reserve=100, session=name)
            async with outside as other:
                sent = []
                for step in range(12):
                    await s.add(f"turn {step} " + "pasted text " * 60)
                    if random.random() < 0.6:
                        sent.append(f"inbound-{step}.")
                        await other.add(sent[-1], once=f"k{step}")
                        assert sent[-1] in json.dumps(await s.request())
                    await s.request()
                    if random.random() < 0.3:
                        sent.append(f"during-{step}.")
                        await other.add(sent[-1], once=f"d{step}")
                    await s.add(answer(f"answer {step}"))
                    if sent and sent[-1] == f"during-{step}.":
                        last = (await s.request())["messages"][-1]
                        assert last == {
                            "role": "user",
                            "content": sent[-1],
                        }  # not taken for answered
                words = [
                    text_of(e.parts) for _, e in await s.history.events() if isinstance(e, UserSaid)
                ]
                assert [w for w in words if w in sent] == sent
                assert s.edits

    async def all_of_them():
        for seed in range(25):  # 12 turns each
            await turn_and_inbound(seed)

    asyncio.run(all_of_them())


def test_verbs_at_once_are_one_after_another(path):
    """Whatever a program starts at once, each verb decides of a view that stays."""

    async def many():
        async with foldline.aopen(path, model="m", window=2_000, reserve=100) as s:

            async def one(n):
                await s.add(f"message {n} " + "pasted " * 30)
                await s.request()

            await asyncio.gather(*(one(n) for n in range(40)))
            words = [e for _, e in await s.history.events() if isinstance(e, UserSaid)]
            assert len(words) == 40

    asyncio.run(many())


def test_cancelled_in_the_middle(tmp_path):
    """R-53: an append that was left before its outcome was known is looked up, never guessed."""

    async def cancelled():
        async with foldline.aopen(str(tmp_path / "chat.db"), model="m") as s:
            for n in range(60):
                task = asyncio.create_task(s.add(f"message {n}"))
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await s.add("last")
            request = await s.request()
            logged = [
                text_of(e.parts) for _, e in await s.history.events() if isinstance(e, UserSaid)
            ]
            assert [m["content"] for m in request["messages"]] == logged
            assert len(set(logged)) == len(logged)

    asyncio.run(cancelled())


def test_a_store_that_fails_is_loud(path, monkeypatch):
    """R-64: nothing is shown that was not written."""
    with foldline.open(path, model="m") as s:
        s.add("one")
        good = SqliteStore.append

        async def bad(*_, **__):
            raise OSError("disk full")

        monkeypatch.setattr(SqliteStore, "append", bad)
        with pytest.raises(OSError, match="disk full"):
            s.add("two")
        with pytest.raises(OSError, match="disk full"):
            s.request()
        monkeypatch.setattr(SqliteStore, "append", good)
        s.add("three")
        assert [m["content"] for m in s.request()["messages"]] == ["one", "three"]


def test_settings_are_events(tmp_path):
    """What was decided under which settings is in the log."""
    path = str(tmp_path / "chat.db")
    foldline.open(path, model="m", policy="classic", window=9_000).close()
    with foldline.open(path, model="m", policy="classic", window=9_000) as s:
        s.add("x")
    with foldline.open(path, model="m", policy="steady") as s:
        events = [event for _, event in s.history.events()]
    assert events[0].settings == {"policy": "classic", "window": 9_000, "reserve": None}
    changed = [event for event in events if isinstance(event, SettingsChanged)]
    assert [one.settings["policy"] for one in changed] == ["steady"]


def test_turns(path):
    """A-40, A-41."""
    with foldline.open(path, model="m") as s:
        for n in range(3):
            s.add(f"do {n}")
            s.request()
            s.add(answer("yes", prompt_tokens=100 + 50 * n, completion_tokens=10, total_tokens=0))
        turns = s.history.turns()
        assert [(t.number, t.words, t.input, t.output, t.total, t.calls, t.folded) for t in turns] == [
            (1, "do 0", 100, 10, 110, 1, False), (2, "do 1", 150, 10, 160, 1, False), (3, "do 2", 200, 10, 210, 1, False),
        ]  # fmt: skip
        assert turns[-1].asked == s.asked
        assert turns[0].time > 0


def test_search(path):
    with foldline.open(path, model="m") as s:
        talk(s, 3)
        s.add("where is the Zugspitze?")
        assert [(hit.seq, hit.words) for hit in s.history.search("zugspitze")] == [(s.aio.live.view.head, "where is the Zugspitze?")]  # fmt: skip
        assert len(s.history.search("turn")) == 3
        assert s.history.search("nothing like it") == []


def test_excluded(path):
    with foldline.open(path, model="m") as s:
        s.add("my password is hunter2")
        s.add("go on")
        edit = s.history.exclude(1)
        assert "hunter2" not in said(s.request())
        s.undo(edit)
        assert "hunter2" in said(s.request())


def test_trimmed_handles_say_so(path):
    """R-67: what was folded away may be erased; the view goes on, handles answer when it went."""
    with foldline.open(path, model="m", window=2_000, reserve=100) as s:
        talk(s, 40)
        before = s.request()["messages"]
        assert s.history.trim() > 50
        assert s.request()["messages"] == before
        with pytest.raises(Erased, match="erased on"):
            s.recall("log:5")
        talk(s, 30)
        assert s.request()
        s.recall(f"log:{s.aio.live.view.head - 1}")


def test_a_cold_cache_is_a_cheap_moment(tmp_path):
    """R-46: after a long pause nothing is cached any more, so folding costs no cache; also known after a restart."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="claude-sonnet-4-5", session="one") as s:
        for turn in range(17):
            s.add(f"turn {turn}")
            s.request()
            s.add({"role": "assistant", "content": "long answer " * 1_500})
        s.add("back from lunch")
        s.request()
        assert not s.edits
        s.aio.live.touched -= 400
        s.request()
        assert [s.history.events(at, at)[0].event.why for at in s.edits] == ["cold"]
    with foldline.open(path, model="claude-sonnet-4-5", session="one") as s:
        assert s.aio.live.touched > 0


def test_a_large_fold_does_not_stop_the_event_loop(timed):
    """R-44: while 200k tokens are folded, the loop goes on."""

    async def ticking(done, gaps):
        last = time.perf_counter()
        while not done.is_set():
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    async def measured():
        async with foldline.aopen(":memory:", model="m", window=230_000, reserve=1_000) as s:
            for turn in range(40):
                await s.add(
                    f"turn {turn} " + f"see src/part_{turn}/file_{turn}.py line {turn} " * 400
                )
                await s.add({"role": "assistant", "content": f"def name_{turn}(): pass\n" * 30})
            assert s.report.total > 150_000
            done, gaps = asyncio.Event(), []
            ticks = asyncio.create_task(ticking(done, gaps))
            await asyncio.sleep(0.01)
            start = time.perf_counter()
            await s.fold()
            took = time.perf_counter() - start
            done.set()
            await ticks
            return took, max(gaps)

    took, gap = asyncio.run(measured())
    print(
        f"\nfolding 200k tokens took {took * 1000:.0f} ms, the loop stood for {gap * 1000:.0f} ms"
    )
    assert gap < timed(0.05) or gap < took / 2


def test_a_lease_renewed_in_the_middle_of_a_fold(tmp_path):
    """R-63: what was decided of one view is never written behind another."""
    path = str(tmp_path / "chat.db")
    options = {"model": "m", "window": 4_000, "reserve": 100}
    with foldline.open(path, **options) as s:
        for n in range(60):
            s.add(f"turn {n} " + "some words of text " * 20)
            s.add({"role": "assistant", "content": "ok " * 20})
    with foldline.open(path, **options, exclusive=60) as s:
        with foldline.open(path, **options) as other:
            other.add("URGENT: stop", once="k1")
        s.aio.live.lease = msgspec.structs.replace(s.aio.live.lease, until=time.time() + 1)
        assert "URGENT: stop" in said(s.request())
        assert s.edits
    with foldline.open(path, **options) as s:
        assert "URGENT: stop" in said(s.request())


def test_undoing_what_was_erased_is_refused(path):
    """After a trim the originals are gone: said before anything is written, in forks too."""
    with foldline.open(path, model="m", window=40_000, reserve=100) as s:
        for n in range(40):
            s.add(f"turn {n} " + "some words of text " * 20)
            s.add({"role": "assistant", "content": "ok " * 20})
        s.fold()
        s.history.trim()
        with s.fork("other") as other, pytest.raises(Erased, match="erased on"):
            other.undo()
        with pytest.raises(Erased, match="erased on"):
            s.undo()
        assert s.request()
        with pytest.raises(BadInput, match="0 or more"):
            s.history.trim(keep=-5)


def test_what_poses_as_a_piece_is_kept_as_it_is(path):
    """Nobody can make a session unreadable by what they send."""
    forged = {"type": "image_url", "image_url": {"url": "data:image/png;base64,blob:deadbeef"}}
    with foldline.open(path, model="m") as s:
        s.add({"role": "user", "content": [forged]})
        assert s.history.events(1, 1)[0].event.parts[0].base64 == "blob:deadbeef"
        assert s.request()["messages"][-1]["content"] == [forged]


def test_a_session_in_a_forked_child_says_so(tmp_path):
    with foldline.open(str(tmp_path / "chat.db"), model="m") as s:
        s.add("hi")
        child = multiprocessing.get_context("fork").Process(target=_in_a_child, args=(s,))
        child.start()
        child.join(20)
        assert child.exitcode == 7
        s.add("still here")


def _in_a_child(s):
    try:
        s.add("from the child")
    except BadInput as fault:
        os._exit(7 if "before a fork" in str(fault) else 8)
    os._exit(9)


def test_an_opening_that_fails_leaves_nothing(tmp_path):
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m", session="old") as s:
        s.add("keep the lexer")
    with pytest.raises(BadInput):
        foldline.open(path, model="m", session="new", carry="odl")
    with foldline.open(path, model="m", session="new", carry="old") as s:
        assert "keep the lexer" in said(s.request())
    for place in (-5, 99):
        with foldline.open(path, model="m", session="new") as s, pytest.raises(BadInput):
            s.fork("x", at=place)


def test_excluding_waits_its_turn(path):
    async def many():
        async with foldline.aopen(path, model="m") as s:
            await s.add(["one", "two"])
            done = await asyncio.gather(
                s.add("three"), s.history.exclude(1), s.add("four"), s.history.exclude(2)
            )
            assert len(done) == 4
            words = said(await s.request())
            assert "three" in words
            assert "four" in words

    asyncio.run(many())


def test_a_store_that_is_locked_or_full_says_so(tmp_path):
    """R-64: our own error, with the way out; nothing is lost, and it goes on afterwards."""
    path = str(tmp_path / "chat.db")
    with foldline.open(path, model="m") as s:
        s.aio.live.store.db.connection.set_busy_timeout(50)
        other = apsw.Connection(path)
        other.execute("begin immediate")
        with pytest.raises(StoreFailed, match="another program holds a lock"):
            s.add("one")
        other.execute("rollback")
        pages = s.aio.live.store.db.sql("pragma page_count")[0][0]
        s.aio.live.store.db.sql(f"pragma max_page_count = {pages + 1}")
        with pytest.raises(StoreFailed, match="make room"):
            s.add("x" * 100_000)
        s.aio.live.store.db.sql("pragma max_page_count = 100000")
        s.add("two")
        assert [m["content"] for m in s.request()["messages"]] == ["two"]

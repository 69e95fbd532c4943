"""Narratives in the background: in nobody's way, asked once, taken by the fold, given up with a reason."""

import asyncio
import re
import time

import pytest
from folding import settled

import foldline
from foldline.core.log import Folded, encode_event
from foldline.core.spine import Range
from foldline.core.tokens import count_tokens
from foldline.dialects.provider_errors import Fault
from foldline.errors import Spent
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.session.spending import Cap, Caps
from foldline.session.summaries import Preparing, _hash_spine, read_narrator_state, read_prepared
from foldline.session.turn import reply
from foldline.stores.base import Name
from foldline.testing import ScriptedModel
from foldline.testing.provider import Trouble

pytestmark = pytest.mark.anyio
NAME = Name("local", "main")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def goals(request):
    """Every message of the user's that is shown, in the user's own words."""
    text = request["messages"][-1]["content"]
    fenced = re.findall(r'<event (\d+) from="user">\n(.*?)\n</event>', text, re.DOTALL)
    said = fenced or re.findall(r"^(\d+) user: (.*)$", text, re.MULTILINE)
    lines = [f"- {' '.join(words.split()[:4])} [{seq}]" for seq, words in said]
    return "## The user's goals and preferences\n" + "\n".join(lines[:4])


async def turn(s, n, seconds=20.0):
    """One turn, and at most so long for what runs beside it."""
    await s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
    begun = time.perf_counter()
    await s.request()
    took = time.perf_counter() - begun
    await s.add({"role": "assistant", "content": f"I looked at module_{n}. " + "So it is. " * 25})
    await settled(s, seconds)
    return took


async def folds(s):
    found = await s.live.read_events(Range(0, s.live.view.head))
    return [event for _, event in found if isinstance(event, Folded)]


def opened(teller, **more):
    given = {"model": "scripted", "window": 4_000, "reserve": 300, "summarizer": teller}
    return foldline.aopen(":memory:", **(given | more))


async def claims(s):
    """Who is being told of now: by the spine."""
    return [_hash_spine(s.live.view.spine)]


async def test_a_fold_takes_the_narrative_that_was_prepared_for_it():
    teller = ScriptedModel(goals)
    async with opened(teller) as s:
        for n in range(40):
            await turn(s, n)
        made = await folds(s)
        told = [fold for fold in made if fold.by]
        print(f"\n{len(made)} folds, {len(told)} told, {len(teller.requests)} questions")
        assert 3 * len(told) >= 2 * len(made) >= 6  # a fold may follow too soon upon another
        assert len(teller.requests) <= 2 * len(made) + 2
        for fold in told:
            assert fold.by == "scripted"
            assert "# The user's goals and preferences" in fold.text
            lo, hi = fold.change.span.lo, fold.change.span.hi
            assert all(lo <= seq <= hi for line in fold.lines for seq in line.seqs)
        again = await s.history.sent(s.asked)
        assert again["messages"]


async def test_without_a_summarizer_nobody_is_asked_and_folds_are_the_same_but_for_it():
    async with opened(None) as s:
        for n in range(40):
            await turn(s, n)
        assert not any(fold.by for fold in await folds(s))


async def test_a_teller_that_sleeps_is_in_nobodys_way(timed):
    """R-50: a minute of sleep adds nothing to a turn, and closing does not wait for it."""
    teller = ScriptedModel(goals, delay=60.0)
    async with opened(teller) as s:
        times = [await turn(s, n, seconds=0.01) for n in range(25)]
        assert teller.requests
        assert await folds(s)
        begun = time.perf_counter()
    closed = time.perf_counter() - begun
    print(f"\nslowest turn {max(times) * 1e3:.1f} ms, closing {closed * 1e3:.1f} ms")
    assert closed < timed(1)
    async with opened(None) as s:
        without = [await turn(s, n) for n in range(25)]
    assert max(times) - max(without) < timed(0.1)


async def test_failures_are_counted_and_it_is_left_alone():
    """A teller that is away is not asked at every turn; why is stated."""
    teller = ScriptedModel(lambda _: Fault("overloaded", "gone fishing"))
    tellers = Tellers((teller,), Patience(tries=1))
    async with opened(tellers) as s:
        for n in range(40):
            await turn(s, n)
        assert len(await folds(s)) > 2
        assert len(teller.requests) == 1
        now = await read_narrator_state(s.live.store, NAME)
        assert now.failures == 1
        assert "gone fishing" in now.reason
        assert now.until > time.time() + 20
        assert s.live.narrator.last.outcome == "skipped"
        assert "gone fishing" in s.live.narrator.last.reason


async def test_what_is_no_narrative_is_not_asked_for_again():
    """R-17: once and its repair for one view; the fold goes without, and the log is unharmed."""
    teller = ScriptedModel(lambda _: "Sure! The user seems happy.")
    async with opened(teller) as s:
        asked = []
        for n in range(40):
            await turn(s, n)
            asked.append(len(teller.requests))
        made = await folds(s)
        assert not any(fold.by or fold.lines for fold in made)
        assert asked[-1] <= 2 * (len(made) + 1)
        assert s.live.narrator.last.outcome == "rejected"


async def test_one_process_asks_at_a_time(tmp_path):
    """R-63: whoever comes second leaves it to the first."""
    path = str(tmp_path / "talks.db")
    teller = ScriptedModel(lambda _: Trouble.TIMEOUT)
    given = {"model": "scripted", "window": 4_000, "reserve": 300, "summarizer": teller}
    async with foldline.aopen(path, **given) as s:
        for n in range(40):
            await turn(s, n, seconds=0.01)
            if teller.requests:
                break
        other = ScriptedModel(goals)
        second = Preparing(Tellers((other,)))
        missing = await second.fetch_narrative(s.live, "")
        assert (missing.lines, missing.reason) == (
            (),
            "it was skipped: another process is asking for it",
        )
        assert second.last.outcome == "skipped"
        assert "another process" in second.last.reason
        assert not other.requests
        await s.live.narrator.close()
        again = await second.fetch_narrative(s.live, "")
        assert again.lines == ()  # not at once: whoever closes may open again
        assert (
            again.reason == "it was skipped: it was interrupted; it is asked again in half a minute"
        )
        for claim in await claims(s):
            await s.live.store.put(NAME, "preparing", claim, None)
        assert (await second.fetch_narrative(s.live, "")).lines


async def test_a_fold_by_hand_waits_for_its_narrative_and_has_the_focus():
    """R-78: in the question, and in a fold that no model told."""
    for teller in (ScriptedModel(goals), None):
        async with opened(teller, window=20_000) as s:
            for n in range(8):
                await turn(s, n)
            loss = await s.fold(focus="module_3 above all")
            (made,) = await folds(s)
            assert loss is not None
            assert made.focus == "module_3 above all"
            assert "module_3 above all" in made.text
            assert bool(made.by) == (teller is not None)
            if teller:
                assert "Keep above all: module_3 above all" in str(teller.requests[-1])
            await s.undo()
            assert "module_3 above all" not in str(await s.request())


async def test_a_preview_asks_nobody():
    teller = ScriptedModel(goals)
    async with opened(teller, window=20_000) as s:
        for n in range(8):
            await turn(s, n)
        assert await s.fold(preview=True)
        assert not teller.requests


async def test_what_is_prepared_goes_with_its_session():
    """R-73."""
    teller = ScriptedModel(goals)
    async with opened(teller) as s:
        store = s.live.store
        for n in range(40):
            await turn(s, n)
            spine = s.live.view.spine
            if await read_prepared(store, NAME, spine):
                break
        else:
            pytest.fail("nothing was prepared")
        await store.erase(NAME)
        assert await read_prepared(store, NAME, spine) is None


async def test_the_log_is_the_same_whatever_a_teller_does():
    """R-31: all but the folds' narrative is byte-identical, for ten troubles."""
    logs = set()
    for trouble in (None, *Trouble):
        teller = ScriptedModel(lambda _, t=trouble: t or "none")
        tellers = Tellers((teller,), Patience(tries=1, call=0.1))
        async with opened(tellers) as s:
            for n in range(14):
                await turn(s, n)
            assert teller.requests
            found = await s.live.read_events(Range(0, s.live.view.head))
            logs.add(b"".join(encode_event(event) for _, event in found))
    assert len(logs) == 1


def test_the_sync_face_prepares_in_the_background():
    with foldline.open(
        ":memory:", model="scripted", window=4_000, reserve=300, summarizer=ScriptedModel(goals)
    ) as s:
        for n in range(40):
            s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
            s.request()
            s.add({"role": "assistant", "content": f"I looked at module_{n}. " + "So it is. " * 25})
            time.sleep(0.02)
        made = [s.history.events(edit, edit)[0].event for edit in s.edits]
        assert any(getattr(fold, "by", "") for fold in made)


async def test_what_was_clipped_away_is_not_told_of():
    """A teller reads what the model saw, not ten times that."""
    teller = ScriptedModel(goals, name="another")
    async with opened(teller, window=20_000) as s:
        for n in range(6):
            await s.add(f"Look at module_{n} today.")
            await s.request()
            call = {
                "id": f"c{n}",
                "type": "function",
                "function": {"name": "run", "arguments": "{}"},
            }
            await s.add({"role": "assistant", "content": None, "tool_calls": [call]})
            await s.add(
                {"role": "tool", "tool_call_id": f"c{n}", "content": "a line of it\n" * 30_000}
            )
            await s.request()
            await s.add({"role": "assistant", "content": "So it is."})
        shown = s.report.total
        assert await s.fold()
        asked = sum(count_tokens(str(request)) for request in teller.requests)
        assert asked < 2 * shown


async def test_after_a_switch_the_other_models_request_is_not_asked_behind():
    teller = ScriptedModel(goals, name="claude-other")
    async with opened(teller, window=20_000) as s:
        for n in range(8):
            await turn(s, n)
        await s.switch("claude-other", window=20_000)
        assert await s.fold()
    assert all(len(request["messages"]) == 1 for request in teller.requests)
    assert all(request["model"] == "claude-other" for request in teller.requests)


async def test_secrets_outside_the_span_are_not_shown_either():
    """R-70: in the system's words, in a focus, in what a provider quotes."""
    key = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    teller = ScriptedModel(goals)
    async with opened(teller, window=20_000, system=f"Push with {key}.") as s:
        for n in range(8):
            await turn(s, n)
        await s.fold(focus=f"the token {key}")
    assert teller.requests
    assert key not in str(teller.requests)
    quoting = ScriptedModel(lambda _: Fault("auth", f"Incorrect API key provided: {key}"))
    async with opened(Tellers((quoting,), Patience(tries=1)), window=20_000) as s:
        for n in range(8):
            await turn(s, n)
        await s.fold()
        assert key not in (await read_narrator_state(s.live.store, NAME)).reason
        assert s.live.narrator.last.outcome == "failed"


async def test_a_model_that_raises_anything_is_an_outcome():
    teller = ScriptedModel(lambda _: KeyError("choices"))
    async with opened(teller) as s:
        for n in range(20):
            await turn(s, n)
        assert len(teller.requests) == 1
        assert (await read_narrator_state(s.live.store, NAME)).failures == 1
        assert await s.fold(focus="x")


async def test_what_is_prepared_is_not_paid_for_again():
    teller = ScriptedModel(goals)
    async with opened(teller) as s:
        for n in range(40):
            await turn(s, n)
            if await read_prepared(s.live.store, NAME, s.live.view.spine):
                break
        asked = len(teller.requests)
        assert await s.fold()
        assert len(teller.requests) == asked
        assert (await folds(s))[-1].by


async def test_an_edit_meanwhile_ends_the_asking():
    """What a person takes out of sight is in no later question."""
    pieces = []

    def excluding(request):
        pieces.append(request)
        return goals(request)

    teller = ScriptedModel(excluding, name="another")
    async with opened(Tellers((teller,), window=1_400), window=20_000) as s:
        for n in range(12):
            await turn(s, n)
        telling = asyncio.create_task(s.live.narrator.fetch_narrative(s.live, "all"))
        while not pieces:  # noqa: ASYNC110 - a script cannot wait for it
            await asyncio.sleep(0)
        await s.history.exclude(s.live.view.items[-2].seq)
        assert (await telling).lines == ()
        assert s.live.narrator.last.outcome == "skipped"
        assert "edited meanwhile" in s.live.narrator.last.reason


async def test_steady_asks_before_its_floor_is_reached():
    """Where the floor decides, a fold that pays is told, too."""
    teller = ScriptedModel(goals)
    async with opened(teller, window=64_000, model="gpt-4.1") as s:
        for n in range(60):
            await s.add(f"Look at module_{n} today. " + "It may be there. " * 120)
            await s.request()
            await s.add({"role": "assistant", "content": f"I looked at {n}. " + "So it is. " * 60})
            await settled(s)
            if len(await folds(s)) > 1:
                break
        made = await folds(s)
        assert [fold.why for fold in made][:1] == ["pays"]
        assert made[0].by


async def test_folds_are_paid_from_the_sessions_caps():
    """R-49: what a narrative takes is counted, and one that would pass a cap is not asked for."""
    talking = ScriptedModel(lambda _: "So it is. " * 25)
    met = {}
    for most in (10**6, 20_000):
        teller = ScriptedModel(goals)
        async with opened(teller, caps=Caps(session=Cap(tokens=most))) as s:
            met[most] = False
            for n in range(20):
                await s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
                try:
                    await reply(s, talking)
                except Spent:
                    met[most] = True
                    break
                await settled(s)
            told = await s.live.spending.read_spent()
            assert told.session.tokens <= most
            assert (told.folds.tokens > 0) == bool(teller.requests)
    assert met == {10**6: False, 20_000: True}

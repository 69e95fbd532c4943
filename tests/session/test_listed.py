"""Sessions in a line each, what was seen at a turn, and what differs between two of them."""

import asyncio

import pytest

import foldline
from foldline.core.log import UsageReported
from foldline.errors import BadInput
from foldline.session.history import Turn, diff_views, measure_growth
from foldline.session.stored_session import iterate_sessions, iterate_summaries
from foldline.stores.sqlite import SqliteStore


def talk(s, turns, *, start=0):
    for turn in range(start, start + turns):
        s.add(f"turn {turn} " + "words " * 40)
        s.request()
        s.add({"role": "assistant", "content": "yes"})


def test_every_session_is_told_in_a_line(tmp_path):
    path = str(tmp_path / "a.db")
    for name in ("b", "a"):
        with foldline.open(path, model="m", session=name) as s:
            talk(s, 2)
            s.switch("other")

    async def every():
        store = SqliteStore(path)
        names = [one.session async for one in iterate_sessions(store, "local")]
        told = [one async for one in iterate_summaries(store, "local")]
        await store.close()
        return names, told

    names, told = asyncio.run(every())
    assert names == ["a", "b"]
    assert [(one.name, one.model, one.turns, one.words[:6]) for one in told] == [
        ("a", "other", 2, "turn 0"),
        ("b", "other", 2, "turn 0"),
    ]


def test_what_was_seen_at_a_turn_and_what_was_new():
    with foldline.open(":memory:", model="m", window=1_000) as s:
        talk(s, 3)
        turns = s.history.turns()
        views = [s.history.seen(turn) for turn in turns]
        assert [len(view.items) for view in views] == [1, 3, 5]
        new = diff_views(views[1], views[2])
        assert [(one.how, one.item.role) for one in new] == [("added", "model"), ("added", "user")]
        talk(s, 12, start=3)
        assert s.edits
        turns = s.history.turns()
        folded = next(turn.number for turn in turns if turn.folded)
        after = diff_views(s.history.seen(turns[folded - 2]), s.history.seen(turns[folded - 1]))
        hows = [one.how for one in after]
        assert "removed" in hows
        assert [one.item.role for one in after if one.item.state == "folded"] == ["handoff"]
        s.add("nobody answered this")
        with pytest.raises(BadInput, match="called no model"):
            s.history.seen(s.history.turns()[-1])


def test_a_call_that_broke_off_is_no_growth():
    """A turn of which nothing was counted is left out, else the next one grew from nothing."""
    turns = [Turn(1, 0, "", 0.0, input=100), Turn(2, 1, "", 0.0), Turn(3, 2, "", 0.0, input=150)]
    assert measure_growth(turns) == 50
    with foldline.open(":memory:", model="m") as s:
        talk(s, 1)
        s.add(UsageReported(input=300, output=5))
        s.add(UsageReported(input=0, output=0))
        assert s.history.turns()[0].input == 300


def test_a_session_keeps_names_and_values_of_its_maker(tmp_path):
    """P1-42: free metadata, kept in the log, never sent, listed with the session."""
    address = tmp_path / "talks.db"
    given = {"model": "m", "window": 8_000}
    with foldline.open(address, **given, metadata={"ticket": 17, "customer": "Ann"}) as s:
        s.add("Hello")
        assert s.metadata == {"ticket": 17, "customer": "Ann"}
        assert "Ann" not in str(s.request())
    with foldline.open(address, **given) as s:  # left out: it stays
        assert s.metadata == {"ticket": 17, "customer": "Ann"}
    with foldline.open(address, **given, metadata={"ticket": None, "open": False}) as s:
        assert s.metadata == {"customer": "Ann", "open": False}

    async def listed():
        store = SqliteStore(str(address))
        try:
            return [one.metadata async for one in iterate_summaries(store, "local")]
        finally:
            await store.close()

    assert asyncio.run(listed()) == [{"customer": "Ann", "open": False}]


@pytest.mark.parametrize("wrong", [["ticket"], {"": 1}, {7: 1}, {"ticket": [1]}, {"t": {"u": 1}}])
def test_metadata_are_names_and_plain_values(wrong):
    with pytest.raises(BadInput, match="metadata"):
        foldline.open(":memory:", model="m", metadata=wrong)

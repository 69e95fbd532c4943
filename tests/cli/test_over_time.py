"""`history --over-time`, and the session of the README's picture, which Foldline itself ran."""

import asyncio
import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from foldline.core.log import Asked, Folded, UsageReported, by_user

ROOT = Path(__file__).parents[2]
WINDOW = 40_000
KEYS = {
    *("session", "finding", "turns", "window", "tiers", "peak", "counted", "input", "read"),
    *("dollars", "all_dollars", "edits", "calls", "written"),
}


@pytest.fixture
def maker():
    """The command that makes the long session."""
    path = ROOT / "scripts" / "make_long_session.py"
    spec = importlib.util.spec_from_file_location("make_long_session", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(maker, path):
    """The log of a session that was made at a path."""

    async def made():
        await maker.make(str(path), name="long", turns=45, window=WINDOW, seed=3)
        async with maker.foldline.aopen(
            str(path), model=maker.MODEL, window=WINDOW, session="long"
        ) as session:
            return [event for _, event in await session.history.events()]

    return asyncio.run(made())


def test_the_long_session_is_the_same_each_time_and_never_above_its_window(maker, tmp_path):
    events = ran(maker, tmp_path / "one.db")
    assert ran(maker, tmp_path / "two.db") == events
    assert sum(by_user(event) for event in events) == 45
    told = [event for event in events if isinstance(event, UsageReported)]
    assert len(told) == sum(isinstance(event, Asked) for event in events)
    assert max(one.input for one in told) < WINDOW
    assert sum(isinstance(event, Folded) for event in events) >= 2
    nights = [one for one in told[1:] if one.cache_read == 0]
    assert len(nights) == 1, "turn 31 comes the next morning"


def test_the_figures_of_the_command_are_those_of_the_log(maker, cli, tmp_path):
    address = tmp_path / "one.db"
    events = ran(maker, address)
    told = [event for event in events if isinstance(event, UsageReported)]
    vector, pixels = tmp_path / "a.svg", tmp_path / "a.png"
    files = ("--svg", vector, "--png", pixels)
    body = cli("history", "long", "--store", address, *files, "--json").json
    assert set(body) == KEYS
    assert body["input"] == sum(one.input for one in told)
    assert body["read"] == sum(one.cache_read for one in told)
    assert body["peak"] == max(one.input for one in told)
    assert len(body["calls"]) == len(told)
    assert body["edits"]["fold"]["count"] == sum(isinstance(one, Folded) for one in events)
    assert body["dollars"] < body["all_dollars"]
    assert body["written"] == [str(vector), str(pixels)]
    title = ET.fromstring(vector.read_text()).get("aria-label")  # noqa: S314 - our own
    assert title.startswith(body["finding"])
    assert pixels.read_bytes().startswith(b"\x89PNG")


def test_over_time_is_asked_for(sample):
    """Without the option the turns are listed as ever; a turn's number does not go with it."""
    plain = sample("history", "cc-1").tidy()
    assert plain.out.split()[:3] == ["turn", "at", "calls"]
    drawn = sample("history", "cc-1", "--over-time").tidy()
    assert drawn.code == 0
    assert drawn.out.startswith("2 turns, 1 fold: ")  # its own compaction
    for line in ("tokens", "everything", "folds", "masks", "clips"):
        assert f"\n{line} " in drawn.out
    refused = sample("history", "cc-1", "1", "--over-time")
    assert (refused.code, "leave out the turn's number" in refused.err) == (2, True)


def test_a_session_that_called_no_model(cli, tmp_path):
    file = tmp_path / "chat.json"
    file.write_text('{"messages": [{"role": "user", "content": "hello"}]}')
    assert cli("import", file, "--as", "chat").code == 0
    ended = cli("history", "chat", "--over-time").tidy()
    assert (ended.code, ended.out.splitlines()[0]) == (1, "no call of a model yet")


def test_the_pictures_in_the_repo_are_small():
    for name in ("context.png", "course.png"):
        picture = (ROOT / "docs" / "pictures" / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 200_000

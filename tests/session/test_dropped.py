"""Sessions that nobody closed: what they held is given back, and somebody is told."""

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import foldline
from foldline.session.session import AsyncSession, Session

FILES = Path("/proc/self/fd")


def held():
    """Threads and descriptors of this process."""
    return threading.active_count(), len([*FILES.iterdir()])


def settled(wanted):
    """What is held once threads that were told to end have ended."""
    end = time.monotonic() + 10
    while (
        any(now > then for now, then in zip(held(), wanted, strict=True)) and time.monotonic() < end
    ):
        time.sleep(0.01)
    return held()


@pytest.mark.skipif(not FILES.is_dir(), reason="counts descriptors by /proc")
def test_dropped_sessions_give_back_what_they_held(tmp_path):
    path = tmp_path / "talks.db"
    foldline.open(path, model="gpt-4o").close()  # the loop's own thread stays
    gc.collect()
    before = held()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(20):
            s = foldline.open(path, model="gpt-4o", session=f"s{number}")
            s.add("x")
            child = s.fork(f"child of {number}")
            child.add("y")
            del s, child
        gc.collect()
        assert settled(before)[0] <= before[0]
        assert held()[1] <= before[1]
    found = [one for one in told if one.category is ResourceWarning]
    assert len(found) == 20
    assert all(
        f"{str(path)!r}" in str(one.message) and "close()" in str(one.message) for one in found
    )


def test_a_closed_session_is_not_told_of(tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for address in (tmp_path / "talks.db", ":memory:"):
            with foldline.open(address, model="gpt-4o") as s:
                s.add("x")
            del s
        foldline.open(":memory:", model="gpt-4o").add("x")  # it holds no thread and no file
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []


def test_left_open_at_the_end_of_a_program(tmp_path):
    code = "import foldline; s = foldline.open('a.db', model='gpt-4o'); s.add('x'); t = foldline.open(':memory:', model='gpt-4o')"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    told = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", f"{code}; del s"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert told.returncode == 0
    assert "ResourceWarning: " in told.stderr
    assert "'a.db'" in told.stderr
    assert "Traceback" not in told.stderr
    with foldline.open(tmp_path / "a.db", model="gpt-4o") as s:
        assert s.request()["messages"] == [{"role": "user", "content": "x"}] * 2


def test_aopen_is_awaited_or_entered(tmp_path):
    async def talk():
        session = await foldline.aopen(tmp_path / "talks.db", model="gpt-4o")
        assert isinstance(session, AsyncSession)
        await session.add("x")
        async with session as same:
            assert same is session
        with pytest.raises(foldline.FoldlineError, match="closed"):
            await session.add("y")
        async with foldline.aopen(tmp_path / "talks.db", model="gpt-4o") as again:
            assert len(await again.history.turns()) == 1
        with pytest.raises(foldline.FoldlineError, match="closed"):
            await again.add("y")
        with pytest.raises(foldline.FoldlineError, match="window"):
            async with foldline.aopen(":memory:", model="gpt-4o", window=-1):
                pass

    asyncio.run(talk())


def test_signatures():
    one, other = inspect.signature(foldline.open), inspect.signature(foldline.aopen)
    assert one.return_annotation is Session
    assert other.return_annotation == "Opening"
    assert list(one.parameters.values()) == list(other.parameters.values())
    from foldline.session.open import open_session  # noqa: PLC0415

    assert list(inspect.signature(open_session).parameters.values()) == list(
        one.parameters.values()
    )


@pytest.mark.parametrize("name", ["open", "aopen"])
def test_help_fits_one_screen(name):
    import pydoc  # noqa: PLC0415
    import textwrap  # noqa: PLC0415

    shown = pydoc.plain(pydoc.render_doc(getattr(foldline, name))).strip()
    lines = [wrapped for line in shown.splitlines() for wrapped in textwrap.wrap(line, 80) or [""]]
    assert len(lines) <= 40

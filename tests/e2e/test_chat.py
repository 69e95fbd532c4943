"""`foldline chat` as a person meets it: from the wheel, in tmux, with a real model.

Eighteen turns past a window of 2,048 tokens (`FOLDLINE_TURNS` makes them more); compacted with a
preview, undone, left, gone on with: and the next request is the very bytes that would have been sent without leaving (laws 4 and 5).
"""

import asyncio
import os
import re
import runpy
import sqlite3
import time
from itertools import pairwise
from pathlib import Path

import pytest

import foldline
from foldline.core.log import Asked, Folded, ModelSaid, UsageReported
from foldline.models.servers import ask

ROOT = Path(__file__).parents[2]
Tmux = runpy.run_path(str(Path(__file__).with_name("tmux.py")))["Tmux"]
RESERVE = 24
TURNS = int(os.environ.get("FOLDLINE_TURNS", "18"))
WORDS = "The test run printed nothing of note and the file is as it was before we began. " * 5
USAGE = re.compile(r"\[tokens: ([\d,]+) / 2,048 \([\d.]+%\) \| response: ([\d,]+) tokens\]")


@pytest.fixture
def terminal(tmp_path):
    one = Tmux(tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "home")})
    yield one
    one.close()


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def copied(store: Path, to: Path) -> Path:
    """The store as it is now, also while somebody writes to it."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as here, sqlite3.connect(to) as there:
        here.backup(there)
    here.close()
    there.close()
    return to


def past(store: Path) -> dict:
    """What was logged, and every request that was sent, rendered again and held to its sha256."""

    async def work():
        async with foldline.aopen(str(store), model="smollm2", session="talk") as s:
            events = await s.history.events()
            asked = {seq: e.sha256 for seq, e in events if isinstance(e, Asked)}
            for seq in asked:
                await s.history.sent(seq)
            return {"events": [e for _, e in events], "asked": asked, "edits": s.edits}

    return asyncio.run(work())


def planned(store: Path, url: str, words: str) -> str:
    """The sha256 of the request that would be sent if somebody said this now."""

    async def work():
        reported = await ask(url, "smollm2")
        async with foldline.aopen(
            str(store), model="smollm2", session="talk", reserve=RESERVE, reported=reported
        ) as s:
            await s.add(words)
            await s.request()
            return s.live.view.held[s.asked].sha256

    return asyncio.run(work())


@pytest.mark.real
def test_turns_past_the_window(terse_server, program, terminal, tmp_path, capsys):  # noqa: PLR0915
    url, store = f"{terse_server.url}/v1", tmp_path / "home" / "foldline" / "sessions.db"
    chat = f"{program} chat --no-tools --summarizer off --base-url {url}"
    begun = time.monotonic()
    terminal.types(f"{chat} talk --model smollm2 --reserve {RESERVE}", "Enter")
    terminal.sees("0 / 2,048 (0.0%)")
    for turn in range(1, TURNS + 1):
        terminal.types(f"Turn {turn}. {WORDS}What is {turn} and 1?", "Enter")
        terminal.sees("| response: ", count=turn, seconds=120)
    text = terminal.screen(past=True)
    sizes = [_count(size) for size, _ in USAGE.findall(text)]
    assert len(sizes) == TURNS
    assert max(sizes) < terse_server.window
    assert "◆ Folded: " in text, "it was folded, and said so"
    took = time.monotonic() - begun

    terminal.types("/compact --preview", "Enter")
    terminal.sees("nothing was written:")
    assert re.search(r"[\d,]+ tokens become [\d,]+", terminal.screen(past=True))
    terminal.types("/compact", "Enter")
    terminal.sees("Compact conversation? [y/N]")
    terminal.types("y", "Enter")
    text = terminal.sees("/undo takes it back", count=text.count("/undo takes it back") + 1)
    before, after = re.findall(r"([\d,]+) tokens became ([\d,]+), edit", text)[-1]
    assert _count(after) < _count(before)
    terminal.types("/undo", "Enter")
    text = terminal.sees("/redo makes it again")
    undone = re.findall(rf"{after} tokens became ([\d,]+);", text)
    assert abs(_count(undone[-1]) - _count(before)) <= 2, "the same, but for rounding"

    running = copied(store, tmp_path / "running.db")
    terminal.types("", "C-d")
    time.sleep(2)
    left = copied(store, tmp_path / "left.db")
    before_leaving = past(running)
    assert before_leaving == past(left)
    question = "And what is 1 and 1?"
    same = {planned(one, url, question) for one in (running, left)}
    assert len(same) == 1

    terminal.types("clear", "Enter")
    terminal.types(f"{chat} --continue", "Enter")
    terminal.sees("talk goes on · smollm2")
    terminal.types(question, "Enter")
    terminal.sees("| response: ", count=TURNS + 2, seconds=120)  # one of them is the greeting's
    terminal.types("/quit", "Enter")
    time.sleep(2)
    end = past(store)
    assert end["asked"][max(end["asked"])] in same, "the same bytes as without leaving"
    earlier = before_leaving["asked"]
    assert {seq: end["asked"][seq] for seq in earlier} == earlier

    events = end["events"]
    used = [e.input + e.output for e in events if isinstance(e, UsageReported)]
    assert sum(isinstance(e, ModelSaid) for e in events) == TURNS + 1
    assert max(used) <= terse_server.window
    grown = [here - there for there, here in pairwise(sizes) if here > there]
    assert sizes[0] + sum(grown) > terse_server.window, "more was said than the window holds"
    assert "Traceback" not in terminal.screen(past=True)
    folds = sum(isinstance(e, Folded) for e in events)
    with capsys.disabled():
        print(
            f"\n{TURNS} turns in tmux in {took:.0f} s, {folds} folds, at most {max(sizes):,} of 2,048"
        )


@pytest.mark.real
def test_ctrl_c_in_tmux_stops_a_real_answer_within_a_second(
    endless_server, program, terminal, timed
):
    terminal.types(f"{program} chat long --no-tools --summarizer off --base-url {endless_server.url}/v1 --model smollm2 --reserve 900", "Enter")  # fmt: skip
    terminal.sees("0 / 2,048 (0.0%)")
    terminal.types("Count from one to one thousand, in words.", "Enter")
    terminal.sees("answering")
    begun = time.monotonic()
    terminal.types("", "C-c")
    terminal.sees("stopped; what was said so far is kept", seconds=5)
    assert time.monotonic() - begun < timed(1.0 + 0.5)  # half a second is tmux's and ours
    terminal.types("/tokens", "Enter")
    terminal.sees("threshold")

"""`foldline schedule` as a person and a script use it; the real program, ended by a signal."""

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from foldline.agent.schedule import schedule_entry
from foldline.agent.schedule.schedule_store import Schedules
from foldline.apps.cli.app import run_command
from foldline.session.stored_session import hold_stored_session, open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider

PROGRAM = Path(sys.executable).with_name("foldline")
DAILY = ("--cron", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--say", "What is new?")


@pytest.fixture
def provider(monkeypatch, tmp_path):
    """A model on a real port, and a folder of one's own."""
    with Provider() as one:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{one.url}/v1")
        monkeypatch.setenv("FOLDLINE_MODEL", "gpt-5")
        monkeypatch.setenv("FOLDLINE_STORE", str(tmp_path / "talks.db"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.chdir(tmp_path)
        yield one


@pytest.fixture
def line(cli, provider):
    assert provider
    assert cli("schedule", "add", "news", "--session", "main", *DAILY, "--new").code == 0
    return cli


def test_entries_are_made_shown_paused_and_taken_away(line):
    listed = line("schedule", "list").tidy()
    assert [*listed.out.splitlines()[1].split()[:2], listed.out.split()[-1]] == [
        "news",
        "main",
        "on",
    ]
    (entry,) = line("schedule", "list", "--json").json["entries"]
    assert (entry["cron"], entry["zone"], entry["rule"]) == ("0 9 * * 1-5", "Europe/Berlin", "once")
    assert datetime.fromisoformat(entry["next"]).weekday() < 5
    soon = line("schedule", "next", "news", "-n", "3", "--json").json["next"]
    assert [one["entry"] for one in soon] == ["news"] * 3
    assert soon[0]["at"] == entry["next"]
    assert len(line("schedule", "next").tidy().out.splitlines()) == 6
    assert "paused" in line("schedule", "pause", "news").tidy().out
    assert line("schedule", "list", "--json").json["entries"][0]["state"] == "paused"
    assert line("schedule", "next").code == 1
    assert line("schedule", "resume", "news", "--json").json["state"] == "on"
    assert line("schedule", "remove", "news").code == 0
    ended = line("schedule", "list").tidy()
    assert (ended.code, "there is no entry" in ended.out) == (1, True)


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (("--cron", "0 25 * * *"), 2, "its hour '25' cannot be read; it takes 0-23"),
        (("--cron", "@daily"), 2, "write '0 0 * * *'"),
        (("--zone", "Berlin"), 2, "did you mean Europe/Berlin"),
        (("--late", "soon"), 2, "like 2h"),
        (("--say", " "), 2, "not blanks alone"),
        (("--session", "mian"), 1, "did you mean main?; --new begins it"),
        (("--missed", "twice"), 2, "'skip', 'once', 'all'"),
        ((), 2, "there is an entry 'news' already"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_write_instead(line, more, code, told):
    ended = line("schedule", "add", "news", "--session", "main", *DAILY, *more).tidy()
    assert ended.code == code
    assert told in ended.err


def test_an_entry_that_is_not_there_and_a_store_that_is_not(line, monkeypatch, tmp_path):
    for verb in ("pause", "resume", "remove", "fire", "next"):
        ended = line("schedule", verb, "nwes").tidy()
        assert (ended.code, "did you mean news?" in ended.err) == (2, True)
    monkeypatch.setenv("FOLDLINE_STORE", str(tmp_path / "other.db"))
    assert line("schedule", "list").code == 3
    assert not (tmp_path / "other.db").exists()


def test_without_its_extra_it_says_which(line, monkeypatch):
    monkeypatch.setattr(schedule_entry, "find_spec", lambda _: None)
    schedule_entry.times_of.cache_clear()
    ended = line("schedule", "add", "x", "--session", "main", *DAILY)
    assert (ended.code, "foldline[schedule]" in ended.err) == (2, True)


def test_by_hand_it_is_answered_now(line, provider):
    assert line("schedule", "fire", "news").out == "ok\n"
    sent = turns(provider)[-1]["messages"]
    assert sent[-1]["content"] == "[cron: news]\nWhat is new?"
    assert "[human" not in json.dumps(sent)


def test_every_line_of_the_page_runs(line):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "schedule.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    lines = [text for block in blocks for text in block.splitlines()]
    assert len(lines) > 8
    assert line("schedule", "remove", "news").code == 0
    for text in lines:
        _, program, *arguments = shlex.split(text)
        assert (program, line(*arguments).code) == ("foldline", 0), text


def turns(provider):
    """What a model was asked; a server is also asked how large its window is."""
    return [one for one in provider.asked if "messages" in one]


async def _held(address, work):
    store = store_at(address)
    async with hold_stored_session(await open_stored_session(store, Name("local", "main"))):
        await work()
    await store.close()


@pytest.mark.anyio
async def test_a_session_that_is_open_elsewhere_keeps_the_message(provider, tmp_path):
    def line(*given):
        return asyncio.to_thread(run_command, [*given])

    assert await line("schedule", "add", "news", "--session", "main", *DAILY, "--new") == 0

    async def busy():
        assert await line("schedule", "fire", "news") == 4

    await _held(str(tmp_path / "talks.db"), busy)
    assert turns(provider) == []
    store = store_at(str(tmp_path / "talks.db"))
    session = await open_stored_session(store, Name("local", "main"))
    assert "What is new?" in repr(session)
    assert (await Schedules(store, "local").read_entry("news")).owed is not None
    await store.close()


def test_two_programs_fire_each_time_once_and_end_by_a_signal(line, provider):
    assert line("schedule", "add", "tick", "--session", "main", "--cron", "* * * * * *",
                "--say", "Tick.").code == 0  # fmt: skip
    begun = [
        subprocess.Popen([PROGRAM, "schedule", "run", "--json"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    until = time.monotonic() + 60
    while time.monotonic() < until and len(turns(provider)) < 2:
        time.sleep(0.1)
    for one in begun:
        one.send_signal(signal.SIGTERM)
    told = []
    for one in begun:
        out, _ = one.communicate(timeout=30)
        assert one.returncode == 0
        told += [json.loads(text) for text in out.splitlines()]
    fired = [one for one in told if one["what"] == "fired"]
    tick = next(
        e for e in line("schedule", "list", "--json").json["entries"] if e["name"] == "tick"
    )
    count = line("export", "main").out.count('"text":"Tick."')
    assert len(fired) == tick["fired"] == count >= 2
    assert any(one["what"] == "answered" for one in told), told

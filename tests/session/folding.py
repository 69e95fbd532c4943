"""Sessions whose fold is due, for tests of workers: built by hand, one like the other; and the wait for what is told beside one."""

import asyncio
import re

from foldline.core import log
from foldline.core.spine import Range
from foldline.models.retries import Patience
from foldline.models.summarize import Tellers
from foldline.stores import event_log
from foldline.testing import ScriptedModel, model, user

SETTINGS = {"policy": "steady", "window": 2_000, "reserve": 100}


def due(said="pasted text ", turns=8):
    """The events of a session that the next request would fold."""
    talk = [
        event
        for n in range(turns)
        for event in (user(f"module_{n} {said * 20}"), model("answer text " * 80))
    ]
    return [log.Opened("scripted", SETTINGS), *talk, user("go on")]


async def made(store, name, events=None):
    """A session in a store."""
    await event_log.append_events(store, name, events or due(), after=-1)


async def events_of(store, name):
    """All that its log holds, which is dense."""
    head = (await store.head(name)).seq
    found = await event_log.read_events(store, name, Range(0, head))
    assert [seq for seq, _ in found] == list(range(head + 1))
    return [event for _, event in found]


async def folds_of(store, name):
    """The folds in its log."""
    return [event for event in await events_of(store, name) if isinstance(event, log.Folded)]


def goals(request):
    """Every message of the user's that is shown, in the user's own words."""
    text = request["messages"][-1]["content"]
    fenced = re.findall(r'<event (\d+) from="user">\n(.*?)\n</event>', text, re.DOTALL)
    said = fenced or re.findall(r"^(\d+) user: (.*)$", text, re.MULTILINE)
    lines = [f"- {' '.join(words.split()[:4])} [{seq}]" for seq, words in said]
    return "## The user's goals and preferences\n" + "\n".join(lines[:4])


def telling(teller=None, **more):
    """A scripted teller for every session."""
    tellers = Tellers((teller or ScriptedModel(goals),), Patience(tries=1), **more)
    return lambda _model, _host: tellers


async def settled(s, seconds=20.0):
    """Wait until nobody is asked beside a session any more, or for so long."""
    if s.live.narrator is not None and (task := s.live.narrator._task) is not None:
        await asyncio.wait([task], timeout=seconds)

"""Recorded sessions through every preset, into both dialects: Law 2 on what people really sent."""

import gzip
import json

import msgspec
import pytest

from foldline.core.budget import limits
from foldline.core.plan import Blocked, Facts, Ready
from foldline.core.policy import PRESETS
from foldline.imports import read
from foldline.testing import Planned
from foldline.wire import anthropic, openai_chat

FILES = {
    "tau_bench_gpt4o_airline.json.gz": 60,
    "swe_agent_demo_trajs.jsonl.gz": 22,
    "pi_session_opus45.jsonl.gz": 1,
    "pi_session_sonnet45.jsonl.gz": 1,
}
WINDOWS = (8_192, 32_768, 200_000)


def sessions(shared, name):
    with gzip.open(shared / "data" / name, "rt") as file:
        text = file.read()
    texts = [json.dumps(chat) for chat in json.loads(text)] if name.endswith(".json.gz") else [text]
    found = [one for text in texts[: FILES[name]] for one in read(text, name.removesuffix(".gz"))]
    return found[: FILES[name]]


def refused(request):
    """What either dialect's rules find in a request."""
    chat = msgspec.json.decode(openai_chat.encode(request, {}))
    body = msgspec.json.decode(anthropic.encode(request, {}))
    fixed = [*body.get("tools", ()), *body.get("system", ())]
    return openai_chat.faults(chat["messages"]) + anthropic.faults(body["messages"], fixed=fixed)


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_session_is_planned_and_valid(shared, name):
    """R-20: three budgets, all presets, both dialects."""
    planned = blocked = 0
    for session in sessions(shared, name):
        for window in WINDOWS:
            for preset in PRESETS.values():
                talk = Planned(Facts(limits(window, None), preset))
                talk.add(*session.events[1:])
                made = talk.plan()
                if isinstance(made, Blocked):
                    blocked += 1
                    assert preset.name == "off", (session.name, window, preset.name, made)
                    continue
                assert isinstance(made, Ready)
                assert not refused(made.request), (session.name, window, preset.name)
                planned += 1
    print(f"{name}: {planned} requests valid in both dialects, {blocked} blocked")
    assert planned

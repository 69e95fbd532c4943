"""Recorded sessions through every preset, into both dialects: Law 2 on what people really sent."""

import gzip
import json
import re

import msgspec
import pytest

from foldline.core import rules
from foldline.core.budget import limits
from foldline.core.log import Opened
from foldline.core.plan import Blocked, Facts, Ready
from foldline.core.policy import PRESETS
from foldline.core.request import render
from foldline.imports import read
from foldline.testing import Planned, view_of
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
    fixed = {key: body[key] for key in ("tools", "system") if key in body}
    return openai_chat.faults(chat["messages"], tools=chat.get("tools", ())) + anthropic.faults(
        body["messages"], **fixed
    )


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


def traced(shared, name):
    """A trace's records, each made one line again."""
    with gzip.open(shared / "data" / name, "rt") as file:
        records = re.split(r"^===== record \d+ =====$", file.read(), flags=re.MULTILINE)[1:]
    return read("\n".join(json.dumps(json.loads(record)) for record in records), "trace.jsonl")


def closed(events):
    view = view_of(events)
    for event in rules.closing(view):
        view.append(view.head + 1, event)
    return render(view)


@pytest.mark.parametrize(
    "name", [*FILES, "tracelab_claude_trace.json.gz", "tracelab_codex_trace.json.gz"]
)
def test_every_recorded_session_goes_through_a_gateway_unchanged(shared, name):
    """As Anthropic bodies, read as a client's and written again: the same bytes, marks and all."""
    found = sessions(shared, name) if name in FILES else traced(shared, name)
    assert found
    for session in found:
        body = anthropic.encode(closed(session.events), {"max_tokens": 9})
        # A person's words that pose as a notice would get a tag: here nobody does.
        body = re.sub(rb'"\[(notice|cron|heartbeat|human)', rb'"(\1', body)
        assert relayed(body) == body, session.name
        # That could be had from values alone; as another client writes it, its blocks differ.
        odd = relayed(json.dumps(json.loads(body), indent=1).encode())
        assert odd.count(b"\n") > body.count(b'"type"')
        assert json.loads(odd) == json.loads(body), session.name


def relayed(body):
    """A body as a gateway would send it on."""
    came = anthropic.decode(body)
    return anthropic.encode(closed([Opened(came.model), *came.events]), came.parameters)

"""Logs of every release still load, and their requests are still the same bytes."""

import hashlib
from pathlib import Path

import pytest

from foldline.core import log
from foldline.core.log import Asked, Logged
from foldline.core.request import render
from foldline.core.view import load, spine_at
from foldline.wire import openai_chat as wire

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_golden(path):
    """Law 5 across releases."""
    lines = path.read_bytes().splitlines()
    events = [log.decode(line) for line in lines]
    assert [log.encode(event) for event in events] == lines
    assert {type(event) for event in events} == set(log.Event.__args__)
    logged = [Logged(seq, event) for seq, event in enumerate(events)]
    asked = [event for event in events if isinstance(event, Asked)]
    for event in asked:
        view = load(spine_at(logged, event.at), dict(logged[: event.at + 1]), head=event.at)
        body = wire.encode(render(view), {})
        if event.encoder == wire.ENCODER:
            assert hashlib.sha256(body).hexdigest() == event.sha256
    assert len(asked) > 10


def test_there_is_a_golden_log_of_this_format():
    assert f"format-{log.FORMAT}-encoder-{wire.ENCODER}" in [path.stem for path in LOGS]

"""Logs of every release still load, and their requests are still the same bytes."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from spine_at import spine_at

from foldline.core import log
from foldline.core.log import Asked, Clipped, Folded, Logged, Rewound
from foldline.core.request import render
from foldline.core.view import load
from foldline.dialects.base import list_dialects, resolve_named_dialect
from foldline.session.client_row import digest_shown, read_row

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_golden(path):
    """Law 5 across releases."""
    lines = path.read_bytes().splitlines()
    events = [log.decode_event(line) for line in lines]
    assert [log.encode_event(event) for event in events] == lines
    kinds = {type(event) for event in events}
    if "proxied" in path.stem:
        assert kinds >= {Clipped, Folded, Rewound}
    else:
        assert kinds == set(log.Event.__args__) - {Clipped, Rewound}
    logged = [Logged(seq, event) for seq, event in enumerate(events)]
    asked = [event for event in events if isinstance(event, Asked)]
    for event in asked:
        view = load(spine_at(logged, event.at), dict(logged[: event.at + 1]), head=event.at)
        dialect = resolve_named_dialect(event.dialect)
        body = dialect.encode_request(render(view), {})
        if event.proxied is not None:
            assert digest_shown(view, read_row(view), dialect) == event.sha256
        elif event.encoder == dialect.encoder:
            assert hashlib.sha256(body).hexdigest() == event.sha256
    assert len(asked) > 10


@pytest.mark.parametrize("dialect", list_dialects(), ids=lambda one: one.name)
def test_there_is_a_golden_log_of_each_newest_encoder(dialect):
    """Of this format too: whoever raises an encoder writes its log, see make.py."""
    logs = [[log.decode_event(line) for line in path.read_bytes().splitlines()] for path in LOGS]
    newest = [events for events in logs if events[0].format == log.FORMAT]
    assert (dialect.name, dialect.encoder) in {
        (event.dialect, event.encoder)
        for events in newest
        for event in events
        if isinstance(event, Asked)
    }


def test_encoder_4_differs_only_where_3_spoke_last():
    """Encoder 3 put words behind an answer that came last; every other request is as it was."""
    lines = (Path(__file__).parent / "format-1-anthropic-3.jsonl").read_bytes().splitlines()
    events = [log.decode_event(line) for line in lines]
    logged = [Logged(seq, event) for seq, event in enumerate(events)]
    same = 0
    for event in (one for one in events if isinstance(one, Asked)):
        view = load(spine_at(logged, event.at), dict(logged[: event.at + 1]), head=event.at)
        body = resolve_named_dialect(event.dialect).encode_request(render(view), {})
        if json.loads(body)["messages"][-1]["role"] == "user":
            assert hashlib.sha256(body).hexdigest() == event.sha256
            same += 1
    assert same > 10


def test_the_log_of_anthropic_shows_what_only_it_has():
    """Some request holds each of these as it came, some was edited: else the log pins nothing."""
    newest = [path for path in LOGS if re.search(r"format-\d+-anthropic", path.stem)][-1]
    events = [log.decode_event(line) for line in newest.read_bytes().splitlines()]
    logged = [Logged(seq, event) for seq, event in enumerate(events)]
    asked = [event for event in events if isinstance(event, Asked)]
    views = [load(spine_at(logged, one.at), dict(logged[: one.at + 1]), head=one.at) for one in asked]  # fmt: skip
    bodies = [
        resolve_named_dialect(asked[0].dialect).encode_request(render(view), {}) for view in views
    ]
    for shown in (b'"signature":"EqQB"', b'"data":"opaque"', b"web_search_tool_result", b'{"n": 1.50}',
                  b"[result masked]", rb"caf\u00e9?", b'"a_block_of_tomorrow","x":1e3'):  # fmt: skip
        assert any(shown in body for body in bodies), shown
    assert any(shown.state == "folded" for view in views[-3:] for shown in view.items)


def test_the_log_of_responses_shows_what_only_it_has():
    """Some request holds each of these as it came, some was edited: else the log pins nothing."""
    newest = [path for path in LOGS if re.search(r"format-\d+-openai-responses", path.stem)][-1]
    events = [log.decode_event(line) for line in newest.read_bytes().splitlines()]
    logged = [Logged(seq, event) for seq, event in enumerate(events)]
    asked = [event for event in events if isinstance(event, Asked)]
    views = [load(spine_at(logged, one.at), dict(logged[: one.at + 1]), head=one.at) for one in asked]  # fmt: skip
    bodies = [
        resolve_named_dialect(asked[0].dialect).encode_request(render(view), {}) for view in views
    ]
    for shown in (b'"encrypted_content":"gAAAsealed"', b'"phase":"commentary"', b"custom_tool_call_output",
                  b"shell_call_output", b"[result masked]", b"an_item_of_tomorrow", b'"result":"iVBORw0KGgo="'):  # fmt: skip
        assert any(shown in body for body in bodies), shown
    assert any(shown.state == "folded" for view in views[-3:] for shown in view.items)


def test_the_log_of_gemini_shows_what_only_it_has():
    """Some request holds each of these as it came, some was edited: else the log pins nothing."""
    newest = [path for path in LOGS if re.search(r"format-\d+-gemini-\d", path.stem)][-1]
    events = [log.decode_event(line) for line in newest.read_bytes().splitlines()]
    logged = [Logged(seq, event) for seq, event in enumerate(events)]
    asked = [event for event in events if isinstance(event, Asked)]
    views = [load(spine_at(logged, one.at), dict(logged[: one.at + 1]), head=one.at) for one in asked]  # fmt: skip
    bodies = [
        resolve_named_dialect(asked[0].dialect).encode_request(render(view), {}) for view in views
    ]
    for shown in (b'"thoughtSignature":"c2lnbmVkLTE="', b'{"text":"","thoughtSignature":"c2lnbmVkLTM="}', b'"thought":true',
                  b"codeExecutionResult", b"[result masked]", b"PartOfTomorrow", b'{"a_b":[1,null]}', b'"fileUri":"gs://b/a.pdf"'):  # fmt: skip
        assert any(shown in body for body in bodies), shown
    assert any(shown.state == "folded" for view in views[-3:] for shown in view.items)

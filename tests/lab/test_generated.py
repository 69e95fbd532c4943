"""Made-up sessions: the same from the same seed, like real ones, and true to their own files."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made.generated import generate_coding_session
from made.repository import generate_repository

from foldline.core.log import ModelSaid, ToolReturned, UserSaid, encode_event
from foldline.core.parts import calls_of, text_of
from foldline.lab.recorded import estimate_event_tokens

SMALL = {"calls": 100, "tokens": 60_000}


def test_the_same_seed_gives_the_same_bytes():
    first, again, other = (
        generate_coding_session(3, **SMALL),
        generate_coding_session(3, **SMALL),
        generate_coding_session(4, **SMALL),
    )
    assert [*map(encode_event, first.recorded.events)] == [
        *map(encode_event, again.recorded.events)
    ]
    assert first.truth == again.truth
    assert [*map(encode_event, first.recorded.events)] != [
        *map(encode_event, other.recorded.events)
    ]


def test_sessions_are_as_large_as_real_ones():
    sessions = [generate_coding_session(seed) for seed in range(5)]
    totals = [sum(map(estimate_event_tokens, one.recorded.events)) for one in sessions]
    assert 110_000 <= sum(totals) / 5 <= 130_000
    assert all(195 <= len(one.recorded.calls) <= 205 for one in sessions)
    results = [
        estimate_event_tokens(event)
        for one in sessions
        for event in one.recorded.events
        if isinstance(event, ToolReturned)
    ]
    assert 4_000 <= max(results) <= 6_500
    assert sum(results) / sum(totals) > 0.7
    results.sort()
    assert sum(results[len(results) * 9 // 10 :]) > 0.4 * sum(results), "a heavy tail"
    for one in sessions:
        users = [event for event in one.recorded.events if isinstance(event, UserSaid)]
        assert 6 <= len(users) <= 10


def plain(path, root):
    return path.removeprefix(f"{root}/")


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000))
def test_what_an_edit_changes_has_been_read(seed):
    """Every old text stands in what was read of the file, with the changes made since."""
    session = generate_coding_session(seed, **SMALL)
    results = {
        event.call_id: event for event in session.recorded.events if isinstance(event, ToolReturned)
    }
    root, known, edits = session.truth.root, {}, 0
    for event in session.recorded.events:
        if not isinstance(event, ModelSaid):
            continue
        for call in calls_of(event.parts):
            given, told = json.loads(call.arguments), results[call.id]
            text = text_of(told.parts)
            if call.name == "read_file":
                known.setdefault(plain(given["path"], root), []).append(text)
            elif call.name == "write_file":
                known[plain(given["path"], root)] = [given["content"]]
            elif call.name == "edit_file" and told.ok:
                texts = known.get(plain(given["path"], root), [])
                assert any(given["old_text"] in one for one in texts), given
                edits += 1
                known[plain(given["path"], root)] = [
                    one.replace(given["old_text"], given["new_text"]) for one in texts
                ]
            elif call.name == "bash":
                run(given["command"], text, known)
    assert edits > 3


def run(command, text, known):
    """What a command shows or changes, as far as these sessions go."""
    words = command.split()
    if words[0] == "cat" and ">" in words:
        return
    if words[0] == "sed" and words[1] == "-i":
        _, old, new, _ = command.partition("'")[2].partition("'")[0].split("/")
        path = words[-1]
        texts = known.get(path, [])
        known[path] = [one.replace(old.strip("^$"), new) for one in texts]
    elif words[0] in ("cat", "sed"):
        known.setdefault(words[-1], []).append(text)
    elif words[0] == "cd" and words[3] == "cat":
        known.setdefault(f"{words[1]}/{words[4]}", []).append(text)
    elif words[0] == "mkdir":
        known[words[5]] = [command.partition("<<'EOF'\n")[2].removesuffix("EOF")]


def test_tests_fail_as_long_as_their_fault_stands():
    repository = generate_repository(Random(1))
    fault = repository.list_open_faults()[0]
    assert f"FAILED {fault.test}" in repository.render_test_run((fault.place,))
    while repository.list_open_faults((fault.place,)):
        one = repository.list_open_faults((fault.place,))[0]
        assert repository.replace_text(one.path, one.wrong, one.right)
    assert "failed" not in repository.render_test_run((fault.place,))
    assert not repository.replace_text(fault.path, "no such text", "")


@pytest.mark.parametrize("seed", range(3))
def test_what_was_planted_was_said(seed):
    """Every fact, rule and correction stands before the call that it is dated by, and once."""
    session = generate_coding_session(seed, **SMALL)
    truth, call, said = session.truth, 0, {}
    for event in session.recorded.events:
        if isinstance(event, ModelSaid):
            call += 1
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            said[call] = said.get(call, "") + text_of(event.parts) + "\n"
    assert {one.by for one in truth.facts} == {"user", "result"}
    for fact in truth.facts:
        assert fact.value in said[fact.call]
        assert sum(fact.value in text for text in said.values()) == 1
    for rule in truth.constraints:
        assert rule.text in said[rule.call]
    assert truth.corrections
    for one in truth.corrections:
        assert one.new in said[one.call]
        assert not any(one.old in text for at, text in said.items() if at > one.call)
    for one in truth.obligations:
        before = "".join(
            text_of(event.parts) + "".join(c.arguments for c in calls_of(event.parts))
            for event in session.recorded.events
            if isinstance(event, ModelSaid)
        )
        assert json.dumps(one.text, ensure_ascii=False)[1:-1] in before

"""Our own logs, written out and read back: the same events, edits and all; never half of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldline
from foldline.core import log
from foldline.errors import WireError
from foldline.importers import detect, read
from foldline.importers.recorded_folds import LogDraft


def written(*, turns=14):
    with foldline.open(":memory:", model="m", window=1_000) as s:
        for turn in range(turns):
            s.add(f"turn {turn} \u2028 😀 " + "words " * 40)
            s.request()
            s.add({"role": "assistant", "content": "yes"})
        assert bool(s.edits) == (turns > 9)
        return [log.encode_event(event).decode() for _, event in s.history.events()]


def test_a_log_is_read_back_byte_for_byte():
    lines = written()
    text = "\n".join(lines)
    assert detect(text) == "foldline"
    (session,) = read(text, "folder/mine.jsonl.gz")
    assert (session.name, session.model, session.notes) == ("mine", "m", [])
    assert [log.encode_event(event).decode() for event in session.events] == lines
    (one,) = read(lines[0], "x")
    assert len(one.events) == 1


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda lines: lines[1:], "begins with its opening"),
        (lambda lines: [lines[0], "{", *lines[1:]], "broken line"),
        (lambda lines: lines[:1] + lines[8:], "names a later place"),
        (lambda lines: [*lines, '{"kind":"user_said","parts":5}'], "line"),
    ],
)
def test_a_part_of_a_log_is_none(spoil, match):
    """A log with holes would show other events than its edits name."""
    with pytest.raises(WireError, match=match):
        read("\n".join(spoil(written())), "x")


LOGS = {turns: written(turns=turns) for turns in (3, 14)}


@given(st.sampled_from(sorted(LOGS)), st.integers(1, 100), st.integers(1, 100))
@example(3, 100, 100)
def test_of_two_exports_of_a_log_the_longer_adds_what_is_new_and_nothing_twice(turns, first, then):
    """Also where nothing was folded: a log that was only spoken in has no edits."""
    lines = LOGS[turns]
    (all_of_it,) = read("\n".join(lines), "x")
    draft = LogDraft()
    added = 0
    for end in (first, then, first):
        (session,) = read("\n".join(lines[:end]), "x")
        new = draft.add_session(session)
        assert new == all_of_it.events[added:end]
        added += len(new)
        draft = LogDraft.of_stored(draft.events)
    assert draft.events == all_of_it.events[:added]
    (other,) = read("\n".join([*lines[:2], *lines[4:5]]), "x")
    assert draft.add_session(other) is None or added <= 2

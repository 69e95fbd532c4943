"""Our own logs, written out and read back: the same events, edits and all; never half of them."""

import pytest

import foldline
from foldline.core import log
from foldline.errors import WireError
from foldline.importers import detect, read


def written(*, turns=14):
    with foldline.open(":memory:", model="m", window=1_000) as s:
        for turn in range(turns):
            s.add(f"turn {turn} \u2028 😀 " + "words " * 40)
            s.request()
            s.add({"role": "assistant", "content": "yes"})
        assert s.edits
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

"""Recorded sessions through presets into every dialect: Law 2 on what people really sent.

A few of each source here; `just bench recorded` asks all of them, under every preset.
"""

from collections import Counter

import archive
import pytest
from mutants import broken

from foldline.core.policy import STEADY, THRIFTY
from foldline.dialects.base import DIALECTS

AS_RECORDED = {"tau": 200, "swe": 17}
FEW = {"tau": 4, "swe": 3, "pi": 1, "claude": 1, "codex": 1}


@pytest.mark.parametrize("source", archive.FILES)
def test_some_are_planned_and_valid(shared, source):
    """R-20: by both judges, on their way and at their end."""
    seen: Counter[str] = Counter()
    for session in archive.sessions(shared, source)[-FEW[source] :]:
        asked, refused = archive.planned(
            session, windows=archive.WINDOWS[1:], presets=(STEADY, THRIFTY)
        )
        assert refused == []
        seen += asked
    assert seen["requests"] >= 4 * FEW[source]


@pytest.mark.parametrize("source", archive.FILES)
def test_each_message_says_the_same_when_it_is_written_again(shared, source):
    seen: Counter[str] = Counter()
    for session in archive.sessions(shared, source):
        asked, differs = archive.changed(session)
        assert differs == []
        seen += asked
    for way in (*DIALECTS, "indented"):
        assert seen[way] == len(archive.sessions(shared, source))
    assert seen["as it was recorded"] == AS_RECORDED.get(source, 0)


@pytest.mark.parametrize(
    ("module", "line", "instead"),
    [
        ("foldline.dialects.openai_chat.dialect", "msgspec.json.encode(write_item(items[0]))", "b'{\"role\":\"user\"}'"),
        ("foldline.dialects.openai_chat.dialect", "digest_of(_normalise_message(body))", "digest_of(repr(raw))"),
        ("foldline.dialects.anthropic.dialect", "            blocks += encode_parts(item.parts)", "            pass"),
        ("foldline.dialects.anthropic.dialect", "        digest_of(normal),", "        digest_of(repr(raw)),"),
        ("foldline.dialects.openai_responses.dialect", "return _join_items(write_items(items[0]) if restored is None else restored)", "return b'{\"role\":\"user\",\"content\":\"x\"}'"),
        ("foldline.dialects.openai_responses.dialect", "return Described(role, digest, marked=False, thinks=False, stays=stays)", "return Described(role, digest_of(repr(raw)), marked=False, thinks=False, stays=stays)"),
    ],
)  # fmt: skip
def test_a_message_that_differs_is_found(shared, module, line, instead):
    """A check that cannot fail is a defect."""
    session = archive.sessions(shared, "tau")[0]
    assert archive.changed(session)[1] == []
    with broken(module, line, instead):
        assert archive.changed(session)[1]

"""Of the names that agents used later, a clip by structure keeps no fewer than one by the ends."""

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest
from made.generated import generate_coding_session
from mutants import broken
from sessions import chats, pi, swe

from foldline.core.edits import structure
from foldline.core.edits.clip import clip_event
from foldline.core.log import ModelSaid, ToolReturned, UserSaid
from foldline.core.names import count_names
from foldline.core.parts import text_of
from foldline.core.tokens import count_tokens
from foldline.lab.kept_names import words_of

CAPS = (400, 800, 1_500, 2_500)  # tokens: few results of these sessions exceed the largest


def load_sessions(shared: Path | None):
    if shared is None:
        return [generate_coding_session(seed).recorded for seed in (951, 952, 953)]
    return [swe(shared), pi(shared, "opus45"), pi(shared, "sonnet45"), *chats(shared)]


@cache
def list_results(shared: Path | None):
    """Every large result, with the names that occurred in it first and that the agent used later.

    Recorded sessions, or made-up ones, which have more test runs.
    """
    found = []
    for session in load_sessions(shared):
        said = [
            one for one in session.events if isinstance(one, UserSaid | ModelSaid | ToolReturned)
        ]
        names = [{*count_names(words_of(one.parts))} for one in said]
        used: set[str] = set()
        later: list[set[str]] = []
        for one, own in zip(reversed(said), reversed(names), strict=True):
            later.append({*used} if isinstance(one, ToolReturned) else set())
            used |= own if isinstance(one, ModelSaid) else set()
        seen: set[str] = set()
        for one, own, needed in zip(said, names, reversed(later), strict=True):
            if needed and count_tokens(text_of(one.parts)) > CAPS[0]:
                found.append((msgspec.structs.replace(one, clip=None), (own - seen) & needed))
            seen |= own
    return found


def count_kept(shared: Path | None) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """By cap: names that were used, names that clips keep, results that were recognised."""
    used, kept, known = Counter(), Counter(), Counter()
    for event, names in list_results(shared):
        for cap in CAPS:
            clip = clip_event(event, cap=cap, how="ends").clip
            if clip is not None:
                text = text_of(clip.parts)
                used[cap] += len(names)
                kept[cap] += sum(name in text for name in names)
                known[cap] += "kept parts" in text
    return used, kept, known


@cache
def count_kept_by_ends(shared: Path | None) -> Counter[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "shorten_structure", lambda *_, **__: None)
        _, kept, known = count_kept(shared)
    assert not known.total()
    return kept


@pytest.mark.real
def test_no_fewer_names_are_kept_than_by_the_ends(shared):
    compare_with_ends(shared)


def test_no_fewer_names_are_kept_in_made_up_sessions():
    compare_with_ends(None)


def compare_with_ends(shared):
    used, kept, known = count_kept(shared)
    before = count_kept_by_ends(shared)
    for cap in CAPS:
        now, then = (100 * one[cap] / used[cap] for one in (kept, before))
        print(
            f"cap {cap:,}: {now:.2f} % of {used[cap]:,} names; ends {then:.2f} %; {known[cap]} by structure"
        )
        assert kept[cap] >= before[cap]
    assert known.total() > 20
    assert kept.total() > before.total()


@pytest.mark.long
@pytest.mark.real
def test_a_clip_that_keeps_less_is_caught(shared):
    with broken("foldline.core.edits.clip", "Text(found.text))", "Text(found.text[:200]))"):
        _, kept, _ = count_kept(shared)
    assert kept.total() < count_kept_by_ends(shared).total()

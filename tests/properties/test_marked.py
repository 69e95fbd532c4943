"""Histories that are in our log: compacted into a mark, chained by an answer, written out again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marked_programs import play_marked
from mutants import broken

from foldline.errors import FoldlineError

CONVERSATION, CONVERSATIONS = "foldline.proxy.conversation", "foldline.proxy.conversations"


@given(st.integers(0, 1 << 30))
def test_what_a_mark_stands_for_is_all_there(seed):
    """Laws 2, 3, 4 and 9 behind compactions, chains, restarts and undos; no mark serves another."""
    assert play_marked(seed) == []


MUTANTS = [
    # A mark that is not written out, and one of another scope that is.
    ("9", CONVERSATIONS, "        if request.mark is None:\n            return request\n",
     "        if True:\n            return request\n"),
    ("scope", CONVERSATIONS, "if mark.session not in {place.session for place in (*own, *held)}:", "if False:"),
    # What a client keeps beside a mark, said twice; a history without its newest message.
    ("3", CONVERSATIONS, "kept = {at for at in users if described[at].digest not in said}", "kept = {*users}"),
    ("3", CONVERSATION, "if messages >= mark.messages and not (", "if messages >= mark.messages - 1 and not ("),
    # Sealed reasoning that does not go back, and a server that is asked to keep what is ours.
    ("2", "foldline.dialects.openai_responses.dialect",
     "restored = restore_sealed(own, items[0].parts) if own is not None else None", "restored = own and own[:1]"),
    ("9", CONVERSATIONS, 'find_fields(body), "store", b"false"', 'find_fields(body), "store", b"true"'),
    # An answer that another process cannot find.
    ("raises", CONVERSATIONS, "    body = request.original or request.body  #", "    body = request.body  #"),
    ("3", CONVERSATION, "name, place = live.name.session, live.view.head", "name, place = live.name.session, 0"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "module", "line", "instead"), MUTANTS)
def test_a_broken_variant_is_caught(rule, module, line, instead):
    with broken(module, line, instead):
        assert any(is_broken(seed, rule) for seed in range(200))


def is_broken(seed, rule):
    """Whether a program finds a fault of a rule; an error of another kind counts too."""
    try:
        found = play_marked(seed)
    except (FoldlineError, AssertionError, IndexError, KeyError):
        return True
    return any(one.startswith((rule, "raises")) for one in found)

"""Turns: who begins one, and how many were answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core import rules
from foldline.core.log import UserSaid, begins_turn, by_user
from foldline.core.parts import Text
from foldline.core.policy import PRESETS
from foldline.testing import model, user, view_of

SPEAKERS = ("human", "cron", "heartbeat", "notice")


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_a_notice_begins_no_turn_and_only_a_person_speaks_as_the_user(speaker):
    """M-6: scheduled turns are turns, and their words are not the user's."""
    said = UserSaid((Text("Look."),), speaker=speaker)
    assert begins_turn(said) == (speaker != "notice")
    assert by_user(said) == (speaker == "human")


@given(st.lists(st.tuples(st.lists(st.sampled_from(SPEAKERS), max_size=3), st.booleans())))
def test_a_turn_is_what_was_said_before_an_answer_by_anybody_but_us(rounds):
    """Counted once per answer, however many spoke before it; a notice alone counts for nothing."""
    events, expected, waiting = [], 0, False
    for speakers, answered in rounds:
        events += [user(f"Look, {one}.", speaker=one) for one in speakers]
        waiting = waiting or any(one != "notice" for one in speakers)
        if answered and speakers:
            events.append(model("Done."))
            expected, waiting = expected + waiting, False
    assert rules.count_turns(view_of(events)) == expected


def test_the_preset_that_counts_turns_counts_five():
    """P3-10: the paper's `invocation_threshold`."""
    assert PRESETS["sliding"].turns == 5

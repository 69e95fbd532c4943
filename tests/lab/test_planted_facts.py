"""Planted facts stand where they say, nowhere else, and whether one is in view can go wrong."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.lab import planted
from foldline.lab.planted import (
    FLAVOURS,
    SPEAKERS,
    UNKNOWN,
    PlantedFact,
    is_in_view,
    is_stale_alone,
    make_conversation,
)

MODULE = "foldline.lab.planted"
CONVERSATIONS = st.builds(
    make_conversation,
    st.integers(0, 100_000),
    st.integers(12, 160),
    st.sampled_from(FLAVOURS),
    facts=st.none() | st.integers(0, 40),
)


def text_of(messages):
    return "\n".join(one["content"] or "" for one in messages)


def check_places(messages, facts):
    """A fact is in view with its messages, and with none of them missing."""
    for fact in facts:
        if fact.kind == "never":
            assert fact.value == UNKNOWN
            assert not is_in_view(fact, text_of(messages))
            continue
        places = {fact.place} | ({fact.earlier} if fact.kind == "two-part" else set())
        assert is_in_view(fact, text_of([messages[place] for place in places]))
        assert is_in_view(fact, text_of(messages))
        for place in places:
            rest = text_of([*messages[:place], *messages[place + 1 :]])
            assert not is_in_view(fact, rest)
            assert is_stale_alone(fact, rest) == (fact.kind == "corrected")
        assert not is_stale_alone(fact, text_of(messages))


def check_values(messages, facts):
    """Nothing that is asked for stands anywhere else, or within something else."""
    said = [one["content"].casefold() for one in messages if one["content"]]
    for fact in facts:
        if fact.kind != "never":
            assert sum(fact.value.casefold() in text for text in said) == 1
        if fact.kind == "corrected":  # the correction may name the old value
            assert 1 <= sum(fact.stale.casefold() in text for text in said) <= 2
    subjects = [fact.subject for fact in facts]
    assert len({*subjects}) == len(subjects)


@given(CONVERSATIONS)
def test_a_fact_is_in_view_with_its_messages_and_not_without(made):
    check_places(*made)


@given(CONVERSATIONS)
def test_a_value_stands_nowhere_else(made):
    check_values(*made)


@given(st.integers(0, 1_000), st.integers(12, 90), st.sampled_from(FLAVOURS))
def test_the_same_seed_makes_the_same_conversation(seed, messages, flavour):
    made = make_conversation(seed, messages, flavour)
    assert made == make_conversation(seed, messages, flavour)
    assert made != make_conversation(seed + 1, messages, flavour)
    assert len(made[0]) == messages + messages % 2
    assert made[0][0]["role"] == "user"
    assert made[0][-1]["role"] == "assistant"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("text, fact.subject, fact.link) and _stand", "text, fact.subject, fact.link) or _stand"),
        ("all(pattern.search", "any(pattern.search"),
        ("and not _stand_together(text, fact.subject, fact.value)", ""),
        ("place=at[-1] if at else -1", "place=at[0] if at else -1"),
    ],
)
def test_a_wrong_place_is_caught(line, instead):
    with broken(MODULE, line, instead), pytest.raises(AssertionError):
        check_many(check_places, 20, 60)


def test_a_value_drawn_twice_is_caught():
    broken_draw = broken(MODULE, "if plain not in self.noise and not any(", "if True or any(")
    with broken_draw, pytest.raises(AssertionError):
        check_many(check_values, 60, 400, facts=100)


def check_many(check, seeds, messages, **more):
    for seed in range(seeds):
        check(*make_conversation(seed, messages, **more))


FACT = PlantedFact("single", "user", "north gate", "Which port?", "5123")


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("The port of the north gate is 5123.", True),
        ("NORTH_GATE_PORT=5123", True),
        ("| north-gate | 5123 |", True),
        ("The north gate. 5123", False),
        ("north gate\n5123", False),
        ("The port of the north gate is 51234.", False),
        ("The port of the north gatehouse is 5123.", False),
    ],
)
def test_subject_and_value_stand_in_one_line_or_sentence(text, there):
    assert is_in_view(FACT, text) == there


def test_a_corrected_fact_is_stale_where_only_the_old_value_stands():
    fact = replace(FACT, kind="corrected", stale="4000")
    assert is_stale_alone(fact, "The port of the north gate is 4000.")
    assert not is_stale_alone(fact, "The north gate has 5123 instead of 4000.")
    assert not is_stale_alone(fact, "It is 4000.")
    assert not is_stale_alone(FACT, "The port of the north gate is .")


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_a_speaker_has_many_ways_to_say_a_fact(speaker):
    forms = planted.TABLES.said[speaker]
    assert len({*forms}) >= 12
    for form in (*forms, *planted.TABLES.corrected[speaker]):
        for flavour in FLAVOURS:
            for attribute in planted.TABLES.attributes[flavour]:
                said = planted._fill_template(
                    form, "north gate", attribute, value="5123", stale="4000"
                )
                assert is_in_view(FACT, said), said


def test_every_speaker_has_facts_of_every_kind():
    seen = {(one.kind, one.speaker) for seed in range(10) for one in make_conversation(seed, 60)[1]}
    assert len(seen) == 12


def test_a_conversation_without_room_is_refused():
    with pytest.raises(ValueError, match="at least 12"):
        make_conversation(1, 10)
    with pytest.raises(ValueError, match="at most 100"):
        make_conversation(1, 1_000, facts=101)

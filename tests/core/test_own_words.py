"""Titles are a person's own words, not what an agent wrote around them (outside, 15)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.apps.pages.figures import read_figures
from foldline.core.log import UserSaid
from foldline.core.own_words import read_own_words
from foldline.core.parts import Text, render_parts
from foldline.session.model_facts import of_session
from foldline.session.stored_session import iterate_sessions, read_summary
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore

REMINDER = "<system-reminder>\nAs you answer, you can use:\n# claudeMd\n</system-reminder>\n"
OWN = "Turn 1 of job w4: go"


@pytest.mark.parametrize(
    "texts",
    [
        (REMINDER, REMINDER, OWN),
        (REMINDER + OWN,),
        (OWN, REMINDER),
        ("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>", OWN),
        ("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nno\n</INSTRUCTIONS>", OWN),
        ('<ide_selection path="/x">12</ide_selection>', f" {OWN}\n"),
    ],
)
def test_what_agents_add_is_left_out(texts):
    assert read_own_words([Text(one) for one in texts]) == OWN


@given(st.text())
def test_words_without_such_blocks_stay(text):
    if "<" not in text and "#" not in text:
        assert read_own_words((Text(text),)) == " ".join(text.split())


@given(st.lists(st.sampled_from((REMINDER, "<system-reminder>", "</system-reminder>", OWN, "<"))))
def test_a_block_that_does_not_end_takes_nothing_along(texts):
    found = read_own_words((Text("".join(texts)),))
    assert len(found) <= len(render_parts((Text("".join(texts)),)))


def test_blocks_of_a_long_message_take_no_long_time():
    """Each beginning without an end is looked at once: squared, it would take minutes."""
    assert read_own_words((Text("<skill>" * 1_000_000),))


def test_titles_everywhere_are_what_the_person_said(tmp_path):
    """In the list of sessions, of turns, and of the pages; a message of an agent alone is passed over."""
    path = str(tmp_path / "a.db")
    with foldline.open(path, model="m", session="talk") as s:
        s.add(UserSaid((Text("<environment_context>x</environment_context>"),)))
        s.add(UserSaid((Text(REMINDER), Text(OWN))))
        assert [turn.words for turn in s.history.turns()][-1] == OWN

    async def read():
        store = SqliteStore(path)
        name = Name("local", "talk")
        (listed,) = [one async for one in iterate_sessions(store, "local")]
        summary = await read_summary(store, name, listed)
        figures = await read_figures(store, name, listed, of_session)
        await store.close()
        return summary.words, figures.words

    assert asyncio.run(read()) == (OWN, OWN)

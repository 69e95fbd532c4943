"""Carrying on from an earlier session: everything, or the parts that somebody chose."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldline
from foldline.core import log
from foldline.core.log import Opened, UserSaid
from foldline.core.parts import text_of
from foldline.core.policy import PRESETS
from foldline.core.tokens import count_tokens
from foldline.errors import BadInput, OtherHost
from foldline.session.carry import PARTS, read_parts
from foldline.session.host import Host, record_host, recorded_host
from foldline.stores.open_store import store_at

HERE = Host("http://127.0.0.1:1/v1", "openai-chat")
THERE = Host("http://127.0.0.1:2/v1", "openai-chat")
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("write_file", "bash", "recall")
]


def answer(text="ok", **more):
    return {"role": "assistant", "content": text, **more}


def call(name, at, **arguments):
    one = {"name": name, "arguments": json.dumps(arguments)}
    return answer("", tool_calls=[{"id": f"c{at}", "type": "function", "function": one}])


def monday(store, **more):
    """A session with words, a pin, a file, a command that failed, and what the model said."""
    with foldline.open(":memory:", model="m", session="monday", store=store, tools=TOOLS, **more) as s:  # fmt: skip
        s.add("Fix the parser in src/parse.py for the pelican release.")
        s.request()
        s.add(call("write_file", 1, path="src/parse.py", content="x = 1\n"))
        s.add({"role": "tool", "tool_call_id": "c1", "content": "written"})
        s.request()
        s.add(call("bash", 2, command="pytest tests/test_lexer.py"))
        s.add({"role": "tool", "tool_call_id": "c2", "content": "1 failed\nexit code: 1"})
        s.request()
        s.add(answer("The tokenizer is at fault, because it drops trailing blanks."))
        at = s.add("Never touch the lexer, whatever happens.")
        s.pin(at)
        s.request()
        s.add(answer("Noted."))


@pytest.fixture
def store():
    return store_at(":memory:")


def opened(store, **more):
    return foldline.open(":memory:", model="m", session="tuesday", store=store, **more)


def carried_words(s):
    """What the carried message says."""
    said = [one for _, one in s.history.events() if isinstance(one, UserSaid)]
    return text_of(said[0].parts) if said else ""


FOUND = {
    "summary": ["# The user said", "pelican release"],
    "pins": ["# Pinned", "Never touch the lexer"],
    "files": ["# Files", "written"],
    "facts": ["# Commands", "pytest tests/test_lexer.py"],
}


def test_everything_is_the_default(store):
    """P4-15."""
    monday(store)
    with opened(store, carry="monday") as s:
        words = carried_words(s)
        assert all(one in words for found in FOUND.values() for one in found)
        assert "[carried on from session 'monday': a record of it." in words
        assert [*s.carried.tokens] == [*PARTS]
        assert s.carried.total == count_tokens(words) > sum(s.carried.tokens.values()) > 0
        assert 'recall("log:N")' not in words, "its handles are another session's"
        (event,) = (one for _, one in s.history.events() if isinstance(one, Opened))
        assert (event.origin, event.carried) == ("monday", ())
        assert b'"carried"' not in log.encode_event(event)


@given(st.sets(st.sampled_from(PARTS), min_size=1))
@settings(max_examples=15, deadline=None)
def test_m10_only_the_chosen_parts_are_there(parts):
    """M-10, P4-16: whichever are chosen, and nothing of the others."""
    store = store_at(":memory:")
    monday(store)
    with opened(store, carry="monday", parts=sorted(parts)) as s:
        words = carried_words(s)
        for part, found in FOUND.items():
            for one in found:
                said = "summary" in parts and one == "Never touch the lexer"  # the user's words too
                assert (one in words) == (part in parts or said), (part, one)
        assert {*s.carried.tokens} == parts
        assert all(s.carried.tokens.values())
        (event,) = (one for _, one in s.history.events() if isinstance(one, Opened))
        chosen = tuple(one for one in PARTS if one in parts)
        assert (event.origin, event.carried) == ("monday", chosen)
        assert log.decode_event(log.encode_event(event)) == event
        s.add("Go on.")
        assert words in json.dumps(s.request()["messages"], ensure_ascii=False).replace("\\n", "\n").replace('\\"', '"')  # fmt: skip


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"parts": ["summary", "pictures"]}, "no part 'pictures'; give some of: summary, pins, files, facts"),
        ({"parts": "summary,all"}, "no part 'all'"),
        ({"parts": []}, "no part is named"),
        ({"parts": 3}, "parts=3 is no list"),
        ({"parts": ["pins"], "carry": None}, "goes with carry="),
    ],
)  # fmt: skip
def test_an_unknown_part_is_refused_by_name(store, given, why):
    monday(store)
    with pytest.raises(BadInput, match=why):
        opened(store, **({"carry": "monday"} | given))
    with opened(store) as s:
        assert not [one for _, one in s.history.events() if isinstance(one, UserSaid)]


def test_parts_are_read_from_a_list_or_from_words():
    assert read_parts(None) == PARTS
    assert read_parts("files, pins") == read_parts(["files", "pins"]) == ("pins", "files")


def test_parts_that_a_session_lacks(store):
    with foldline.open(":memory:", model="m", session="monday", store=store) as s:
        s.add("Hello.")
    with pytest.raises(BadInput, match="session 'monday' has none of these to carry on: pins, files"):  # fmt: skip
        opened(store, carry="monday", parts=["files", "pins"])


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_what_is_carried_is_a_record_under_every_policy(store, policy):
    """Also under one that only says how many messages it omits."""
    monday(store)
    with opened(store, carry="monday", policy=policy) as s:
        assert "pelican release" in carried_words(s)
        assert "Never touch the lexer" in carried_words(s)


def test_it_is_carried_into_a_session_that_has_begun(store):
    """Previewed first, with the size of each part; then added behind what is there."""
    monday(store)
    with opened(store) as s:
        s.add("Good morning.")
        s.request()
        s.add(answer("Good morning."))
        before = s.history.events()
        seen = s.carry("monday", parts=["pins", "files"], preview=True)
        assert s.history.events() == before
        assert str(seen).startswith(f"{seen.total:,} tokens of session 'monday': pins ")
        made = s.carry("monday", parts=["pins", "files"])
        assert made == seen
        assert s.history.events()[-1].event == made.message
        assert "Never touch the lexer" in json.dumps(s.request()["messages"])
        with pytest.raises(BadInput, match="cannot carry on from itself"):
            s.carry("tuesday")
        with pytest.raises(BadInput, match="nothing in a session 'sunday'"):
            s.carry("sunday")


def test_another_tenants_session_is_none(store):
    monday(store)
    with pytest.raises(BadInput, match="nothing in a session 'monday'"):
        opened(store, tenant="other", carry="monday")
    with (
        opened(store, tenant="other") as s,
        pytest.raises(BadInput, match="nothing in a session 'monday'"),
    ):
        s.carry("monday")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_words_go_to_no_other_host(store):
    """What was sent to one address is carried into no session of another."""
    for name, host in (("old", HERE), ("same", HERE), ("other", THERE), ("new", None)):
        async with foldline.aopen(":memory:", model="m", session=name, store=store) as s:
            await s.add(f"a secret of {name}")
            if host is not None:
                await s.live.record_events(record_host(s.live.view.settings, host))
    async with foldline.aopen(":memory:", model="m", session="other", store=store) as s:
        before = s.live.view.head
        for preview in (True, False):
            with pytest.raises(OtherHost, match="begin another session"):
                await s.carry("old", preview=preview)
        assert s.live.view.head == before
    for name in ("same", "new"):
        async with foldline.aopen(":memory:", model="m", session=name, store=store) as s:
            await s.carry("old")
            assert recorded_host(s.live.view.settings) == HERE
    async with foldline.aopen(":memory:", model="m", session="other", store=store) as s:
        await s.add("on")
        with pytest.raises(OtherHost):
            await s.carry("new")

"""What a session does not take is refused in words: what is wrong, and what to give instead."""

import pytest

import foldline
from foldline.dialects import base
from foldline.errors import BadHandle, BadInput, FoldlineError
from foldline.models.catalog import find


def opened(**settings):
    return foldline.open(":memory:", **{"model": "gpt-4o", **settings})


def read(path: str) -> str:
    """Read a file."""
    return path


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"system": 5}, r"system=5.*text"),
        ({"system": {"type": "text", "text": "Be brief."}}, "in a list"),
        ({"system": [5]}, r"system\[0\]=5"),
        ({"system": [{"type": "image", "source": {}}]}, r"system\[0\].*text blocks"),
        ({"system": ["Be brief.", {"type": "text", "text": 5}]}, r"system\[1\]"),
        ({"tools": [read]}, r"tools\[0\].*function.*foldline\.agent"),
        ({"tools": 5}, r"tools=5.*list"),
        ({"tools": {"name": "read"}}, "in a list"),
        ({"tools": "read"}, "list"),
        ({"window": -1}, r"window=-1.*tokens"),
        ({"window": 0}, r"window=0.*tokens"),
        ({"reserve": -1}, r"reserve=-1.*tokens"),
        ({"reserve": 0}, r"reserve=0.*tokens"),
        ({"summarizer": 3}, r"summarizer=3.*model's name"),
        ({"summarizer": ["gpt-5-mini", 3]}, r"summarizer=3.*model's name"),
        ({"policy": 3}, "steady"),
        ({"caps": 3}, r"caps=3.*foldline\.session\.spending\.Caps"),
        ({"carry": 3}, r"carry=3.*name"),
        ({"exclusive": "x"}, r"exclusive='x'.*seconds"),
        ({"exclusive": -1}, r"exclusive=-1.*seconds"),
        ({"exclusive": True}, r"exclusive=True.*seconds"),
    ],
)
def test_settings(wrong, told):
    with pytest.raises(BadInput, match=told):
        opened(**wrong)


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5"])
def test_a_system_in_blocks(model):
    mark = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": mark}, "Be kind."]
    with opened(model=model, system=blocks) as s, opened(model=model, system=["Be brief.", "Be kind."]) as plain:  # fmt: skip
        for one in (s, plain):
            one.add("go")
        assert s.request() == plain.request(), "marks are the session's own"
        s.instruct(system=[*blocks, {"type": "text", "text": "Be true."}])
        with pytest.raises(BadInput, match=r"system=5"):
            s.instruct(system=5)
        with pytest.raises(BadInput, match=r"tools\[0\]"):
            s.instruct(tools=[read])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "gpt-4.1"}, r"switch\('gpt-4\.1'\)"),
        ({"messages": [{"role": "user", "content": "hi"}]}, r"add\("),
        ({"system": "Be brief."}, r"instruct\(system="),
        ({"tools": []}, r"instruct\(tools="),
    ],
)
def test_parameters_that_are_the_sessions_own(given, told):
    with opened() as s:
        s.add("go")
        with pytest.raises(BadInput, match=told):
            s.request(**given)
        assert s.asked == -1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.fold(focus=3),
        lambda s: s.undo("x"),
        lambda s: s.undo(1.5),
        lambda s: s.undo(edit=True),
        lambda s: s.fork(5),
        lambda s: s.fork(""),
        lambda s: s.fork("b", at="x"),
        lambda s: s.fork("b", at=True),
        lambda s: s.switch(5),
        lambda s: s.switch(None),
        lambda s: s.switch("gpt-4.1", window="x"),
        lambda s: s.switch("gpt-4.1", window=-1),
        lambda s: s.pin([1]),
        lambda s: s.pin(place=True),
        lambda s: s.recall(["log:1"]),
        lambda s: s.recall("log:1", most="x"),
        lambda s: s.recall("log:1", most=-1),
        lambda s: s.add("x", speaker="robot"),
        lambda s: s.add("x", author=5),
        lambda s: s.add("x", once=5),
        lambda s: s.add(None),
        lambda s: s.add([5]),
    ],
    ids=lambda one: " ".join(map(str, one.__code__.co_consts[1:])),
)
def test_verbs_given_something_odd(wrong):
    with opened() as s:
        s.add(["go", {"role": "assistant", "content": "gone"}, "on"])
        before = repr(s)
        with pytest.raises(FoldlineError, match=r"give|name|log:|there is no") as found:
            wrong(s)
        assert isinstance(found.value, BadInput | BadHandle)
        assert repr(s) == before


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-3-haiku", 4_096),
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-sonnet-latest", 8_192),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", 4_096),
        ("claude-sonnet-4-5", 20_000),
    ],
)
def test_no_more_is_asked_for_than_a_model_gives(model, most):
    with opened(model=model) as s:
        s.add("go")
        assert s.request()["max_tokens"] == most
        assert s.request(max_tokens=5_000)["max_tokens"] == 5_000, "what is said is sent"


@pytest.mark.parametrize(
    "model",
    [
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5@20250929",
        "anthropic/claude-sonnet-4-5",
    ],
)
def test_names_of_other_hosts_of_claude(model):
    assert base.choose_model_dialect(model).name == "anthropic"
    assert find(model).prices == find("claude-sonnet-4-5").prices
    assert find(model).window == 200_000
    with opened(model=model) as s:
        s.add("go")
        assert s.request()["model"] == model.removeprefix("anthropic/"), "as its host wants it"

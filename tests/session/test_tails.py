"""How a request to Anthropic ends: with words to the model, or with its own, which it goes on with."""

import json

import pytest

import foldline
from foldline.core.log import UserSaid
from foldline.dialects import anthropic
from foldline.errors import BadInput

GO_ON = "[nothing new was said; go on]"
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}  # fmt: skip


def opened(model="claude-sonnet-4-5", **settings):
    return foldline.open(":memory:", model=model, **settings)


def answer(stop, *blocks):
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "c", "content": [*blocks],
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def text(words):
    return {"type": "text", "text": words}


def roles(request):
    return [message["role"] for message in request["messages"]]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-6", "claude-sonnet-5.5"])
@pytest.mark.parametrize(
    "paused",
    [
        answer("pause_turn", SEARCH),
        answer("pause_turn", SEARCH, text("I am looking.")),
        {"role": "assistant", "content": [text("I am looking."), SEARCH]},
    ],
    ids=["call", "words", "message"],
)
def test_a_paused_turn_goes_on_as_it_is(model, paused):
    """Whatever the model, the paused message comes last."""
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    with opened(model, tools=tools) as s:
        s.add("q")
        s.request()
        s.add(paused)
        request = s.request()
    assert roles(request) == ["user", "assistant"]
    assert GO_ON not in json.dumps(request)


def test_a_prefill_goes_on_as_it_is():
    with opened() as s:
        s.add("go")
        s.add({"role": "assistant", "content": "half an ans"})
        assert roles(s.request()) == ["user", "assistant"]
        s.add({"role": "assistant", "content": "wer"})
        s.add("next")
        assert s.request()["messages"][1]["content"] == [text("half an ans"), text("wer")]


@pytest.mark.parametrize(
    ("model", "prefilled", "parameters"),
    [
        ("claude-opus-4-6", "half an ans", {}),
        ("claude-sonnet-5.5", "half an ans", {}),
        ("us.anthropic.claude-sonnet-4-6-v1:0", "half an ans", {}),
        ("claude-sonnet-4-5", "ends with a space ", {}),
        ("claude-sonnet-4-5", "half", {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
    ],
)
def test_where_a_prefill_is_refused_the_model_is_told_to_go_on(model, prefilled, parameters):
    """Newer models, blanks at the end, thinking: a word of ours follows, and it stays."""
    with opened(model) as s:
        s.add("go")
        s.add({"role": "assistant", "content": prefilled})
        request = s.request(**parameters)
        assert roles(request) == ["user", "assistant", "user"]
        assert GO_ON in json.dumps(request["messages"][-1])
        assert anthropic.list_faults(request["messages"]) == []
        s.add(answer("end_turn", text("wer")))
        s.add("next")
        later = s.request()
        assert roles(later) == ["user", "assistant", "user", "assistant", "user"]
        assert GO_ON in json.dumps(later["messages"][2])


def test_an_answer_that_is_done_is_not_gone_on_with():
    """It answered a request and ended by itself; to ask again takes a word, which is in the log."""
    with opened() as s:
        s.add("go")
        s.request()
        s.add(answer("end_turn", text("Done.")))
        assert GO_ON in json.dumps(s.request()["messages"][-1])
        assert GO_ON in json.dumps(s.request()["messages"][-1]), "once is enough"
        assert json.dumps(s.request()).count(GO_ON) == 1
        said = [one.event for one in s.history.events() if isinstance(one.event, UserSaid)]
        assert [one.speaker for one in said] == ["human", "notice"]


def test_an_answer_cut_at_its_length_is_gone_on_with():
    for model, ends in (("claude-sonnet-4-5", "assistant"), ("claude-opus-4-6", "user")):
        with opened(model) as s:
            s.add("go")
            s.request()
            s.add(answer("max_tokens", text("One, two, thr")))
            assert roles(s.request())[-1] == ends


def test_a_past_request_is_given_again():
    """Law 5, for each of these ends."""
    with opened("claude-opus-4-6") as s:
        s.add("go")
        s.add({"role": "assistant", "content": "half an ans"})
        asked = []
        for said in ({"role": "assistant", "content": "wer"}, "next"):
            request = s.request()
            asked.append((s.asked, request))
            s.add(said)
        for at, request in asked:
            assert s.history.sent(at) == request


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5"])
def test_nothing_said_is_nothing_to_send(model):
    with opened(model) as s:
        with pytest.raises(BadInput, match=r"nothing was said.*add\("):
            s.request()
        s.add("  ")
        with pytest.raises(BadInput, match="nothing was said"):
            s.request()
        assert s.asked == -1, "and nothing is recorded as sent"
        s.add("hello")
        assert roles(s.request()) == ["user"]


def test_words_of_the_system_alone():
    """OpenAI takes them, Anthropic wants a message."""
    with opened("gpt-4o", system="Tell a joke.") as s:
        assert roles(s.request()) == ["system"]
    with opened(system="Tell a joke.") as s, pytest.raises(BadInput, match="nothing was said"):
        s.request()


@pytest.mark.parametrize("words", ["", "  ", "\n", "\u2003"])
@pytest.mark.parametrize(
    "shape", [lambda one: one, lambda one: [text(one)], lambda one: [text(one), text(one)]]
)
def test_blank_words_of_a_result_are_not_sent(words, shape):
    with opened() as s:
        s.add("go")
        call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
        s.add({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": "t1", "content": shape(words)}
        s.add({"role": "user", "content": [result]})
        sent = s.request()["messages"][-1]["content"][0]
        sent.pop("cache_control")
        assert sent == {"type": "tool_result", "tool_use_id": "t1"}


def test_blank_words_beside_others_of_a_result_are_not_sent():
    picture = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    known = {"type": "search_result", "source": "s", "title": "t", "content": [text("found")]}
    for beside in (text("words"), picture, known):
        with opened() as s:
            s.add("go")
            call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
            s.add({"role": "assistant", "content": [call]})
            content = [text(" "), beside, text("\n")]
            result = {"type": "tool_result", "tool_use_id": "t1", "content": content}
            s.add({"role": "user", "content": [result]})
            sent = s.request()["messages"][-1]["content"][0]
            assert sent["content"] in ([beside], beside.get("text"))


def test_blank_words_elsewhere_are_not_sent():
    with opened(system=" ") as s:
        s.add({"role": "user", "content": [text(" "), text("go"), text("")]})
        s.add({"role": "assistant", "content": [text("\n"), text("yes"), text(" ")]})
        s.add([" ", "on"])
        request = s.request()
    assert anthropic.list_faults(request["messages"]) == []
    assert "system" not in request

"""The line that tells a model how full its window is: at the end of the newest message, and nowhere else."""

import json
import re

import httpx
import pytest
from recall_talk import MODELS, WINDOW, Talk, call, grow

import foldline
from foldline.errors import BadInput
from foldline.testing import Provider

LINE = re.compile(r"\[context: ([\d,]+) of 12,000 tokens\]")


def number_of(text):
    return int(text.replace(",", ""))


@pytest.mark.parametrize("dialect", MODELS)
def test_the_line_stands_at_the_end_of_the_newest_message_only(dialect):
    with (
        Provider(window=WINDOW) as provider,
        foldline.http_client(httpx.Client(), window=WINDOW, reserve=300, context=0.5) as http,
    ):
        talk = Talk(http, provider.url, dialect, streams=False)
        grow(talk, provider, more=2)
        listed = talk.dialect.messages
        bodies = [json.loads(body) for body in provider.bodies]
        for body, report in zip(bodies, provider.bodies, strict=True):
            lines = LINE.findall(report.decode())
            if not lines:
                continue
            assert len(lines) == 1
            told = number_of(lines[0])
            assert told >= WINDOW / 2
            assert LINE.search(json.dumps(body[listed][-1])), "in the newest message"
        told = [bool(LINE.search(body.decode())) for body in provider.bodies]
        assert True in told
        assert False in told
        assert not LINE.search(json.dumps(talk.history)), "the client's history is its own"
        assert {*provider.statuses} == {200}


def test_in_anthropic_it_stands_behind_the_mark():
    with (
        Provider(window=WINDOW) as provider,
        foldline.http_client(httpx.Client(), window=WINDOW, reserve=300, context=0.0) as http,
    ):
        talk = Talk(http, provider.url, "anthropic", streams=False)
        mark = {"cache_control": {"type": "ephemeral"}}
        talk.history = [{"role": "user", "content": [{"type": "text", "text": "Hello.", **mark}]}]
        talk.ask()
        (said,) = json.loads(provider.bodies[0])["messages"]
        assert said["content"][0] == {"type": "text", "text": "Hello.", **mark}
        assert LINE.fullmatch(said["content"][1]["text"])
        assert len(said["content"]) == 2


def test_a_result_ends_with_it_and_the_rounds_of_recall_do_not_repeat_it():
    with (
        Provider(window=WINDOW) as provider,
        foldline.http_client(
            httpx.Client(), window=WINDOW, reserve=300, context=0.0, recall=True
        ) as http,
    ):
        talk = Talk(http, provider.url, "openai-chat", streams=False)
        grow(talk, provider)
        assert LINE.search(json.loads(provider.bodies[-1])["messages"][-1]["content"])
        answers = [{"content": None, "tool_calls": [call("recall", handle="log:3")]}, "Now I know."]
        provider.script = lambda _: answers.pop(0)
        assert talk.say("What was it?")[0] == "Now I know."
        assert len(LINE.findall(provider.bodies[-1].decode())) == 1
        provider.script = lambda _: "Yes."
        talk.say("Sure?")
        assert len(LINE.findall(provider.bodies[-1].decode())) == 1


def test_a_follower_tells_it_too():
    follower = foldline.Follower(window=8_000, context=0.0)
    given = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello."}]}
    plan = follower.plan(given, session="s")
    assert plan.request["messages"][0]["content"].startswith("Hello.\n\n[context: ")
    assert not plan.shown[0].same
    assert plan.shown[0].place == 0
    follower.close()


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "half"])
def test_a_share_that_is_none_is_refused(wrong):
    with pytest.raises(BadInput, match="share of the window"):
        foldline.http_client(httpx.Client(), context=wrong)

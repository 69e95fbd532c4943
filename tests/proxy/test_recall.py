"""The tool `recall`, offered and answered by us: what the model gets, what its client sees, what the log has.

Every dialect, streamed or not, through `http_client` and through the gateway.
"""

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import httpx
import pytest
from gateway_thread import Served
from recall_talk import LINES, MODELS, WAYS, WINDOW, Talk, call, grow, tools_of

import foldline
from foldline.core.log import Asked, Folded
from foldline.core.parts import calls_of
from foldline.errors import StoreFailed
from foldline.stores import event_log
from foldline.testing import Provider, Trouble
from foldline.testing import provider as provider_module


def handle_of(body):
    return re.search(r"log:\d+-\d+", json.dumps(body))[0]


@contextmanager
def opened(kind, provider, tmp_path):
    """An HTTP client and an address: wrapped, or plain and of a gateway."""
    store = str(tmp_path / "talks.db")
    if kind == "wrap":
        with foldline.http_client(
            httpx.Client(), store=store, window=WINDOW, reserve=300, recall=True
        ) as http:
            yield http, provider.url
    else:
        with (
            Served(provider.url, store=store, window=WINDOW, recall=True) as gateway,
            httpx.Client() as http,
        ):
            yield http, gateway.url


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{'stream' if way[1] else 'whole'}")
def way(request):
    return request.param


@pytest.mark.parametrize("kind", ["wrap", "gateway"])
def test_a_model_gets_back_what_was_folded_and_its_client_sees_none_of_it(kind, way, tmp_path):
    dialect, streams = way
    with Provider(window=WINDOW) as provider, opened(kind, provider, tmp_path) as (http, url):
        talk = Talk(http, url, dialect, streams=streams)
        grow(talk, provider)
        first = [b"[handoff" in body for body in provider.bodies].index(True)
        for number, body in enumerate(map(json.loads, provider.bodies)):
            offered = "recall" in json.dumps(body.get("tools"))
            assert offered == (number >= first), (
                f"offered from the first edit on: {number}, {first}"
            )
        assert (
            "`recall`" in provider.bodies[first].decode()
            or "recall(" in provider.bodies[first].decode()
        )
        rounds = []

        def look_up(body):
            rounds.append(body)
            if len(rounds) == 1:
                return {
                    "content": "Let me look.",
                    "tool_calls": [call("recall", handle=handle_of(body), grep="line 0:")],
                }
            return "Build 0 had test 0."

        provider.script = look_up
        words, calls = talk.say("Which test was first in build 0?")
        assert calls == []
        assert words.split() == ["Let", "me", "look.", "Build", "0", "had", "test", "0."]
        assert b"recall" not in talk.raw
        listed = talk.dialect.messages
        asked, again = (one[listed] for one in rounds)
        assert again[: len(asked)] == asked, "the second request begins with the first"
        assert "line 0: test 0 passed" in json.dumps(again[len(asked) :]), "from the log"
        # Later requests show the model all of it, where it was.
        provider.script = lambda _: "Yes."
        talk.say("Are you sure?")
        later = json.loads(provider.bodies[-1])[listed]
        assert later[: len(again)] == again
        assert "Build 0 had test 0." in json.dumps(later[len(again)])
        assert {*provider.statuses} == {200}


@pytest.mark.slow
@pytest.mark.parametrize("is_last", [False, True])
def test_beside_the_clients_own_calls_the_client_sees_only_its_own(is_last, way, tmp_path):
    dialect, streams = way
    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        talk = Talk(http, url, dialect, streams=streams)
        grow(talk, provider)
        asked = []

        def call_both(body):
            asked.append(body)
            both = [
                call("recall", 1, handle=handle_of(body), grep="line 0:"),
                call("read", 99, build=99),
            ]
            both = both[::-1] if is_last else both
            return {"content": "Both.", "tool_calls": both}

        provider.script = call_both
        assert talk.say("Compare build 0 with build 99.") == ("Both.", ["read"])
        assert b"recall" not in talk.raw
        provider.script = lambda _: "They are alike."
        talk.give(f"build 99\n{LINES}")
        listed = talk.dialect.messages
        later = json.loads(provider.bodies[-1])[listed]
        assert later[: len(asked[0][listed])] == asked[0][listed]
        tail = json.dumps(later[len(asked[0][listed]) :])
        assert tail.count("line 0: test 0 passed") >= 2, "both results"
        assert tail.index("recall") < tail.index("line 0: test 0 passed")
        assert not faults_of(talk.dialect, json.loads(provider.bodies[-1]))
        assert talk.say("Good.")[0] == "They are alike."
        assert {*provider.statuses} == {200}


def faults_of(dialect, body):
    """What the dialect's judge says of a body."""
    if dialect.name == "gemini":
        config = {"tools": body.get("tools"), "systemInstruction": body.get("systemInstruction")}
        body = {"model": "gemini-3-pro", "contents": body["contents"], "config": config}
    # The scripted provider gives all its items one id.
    return [fault for fault in dialect.list_faults(body) if not fault.startswith("unique")]


@pytest.mark.slow
def test_recalls_of_one_answer_are_bounded(way, tmp_path):
    dialect, streams = way
    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        talk = Talk(http, url, dialect, streams=streams)
        grow(talk, provider)
        before = len(provider.bodies)
        provider.script = lambda body: {
            "content": None,
            "tool_calls": [call("recall", len(provider.bodies), handle=handle_of(body))],
        }
        words, calls = talk.say("Look for ever.")
        assert calls == []
        assert words in ("", "[says nothing]")
        assert 3 <= len(provider.bodies) - before <= 12
        assert "recalled enough" in provider.bodies[-1].decode()
        provider.script = lambda _: "Fine."
        assert talk.say("And now?")[0] == "Fine."
        assert {*provider.statuses} == {200}


def test_a_client_with_a_recall_of_its_own_is_offered_no_other(tmp_path):
    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        tools = [*tools_of("openai-chat"), *tools_of("openai-chat", "mcp__foldline__recall")]
        talk = Talk(http, url, "openai-chat", streams=False, tools=tools)
        grow(talk, provider)
        last = json.loads(provider.bodies[-1])
        assert last["tools"] == tools
        assert "mcp__foldline__recall" in json.dumps(last["messages"])


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("trouble", [Trouble.ERROR, Trouble.RATE])
def test_a_fault_in_the_second_request_reaches_the_client(streams, trouble, tmp_path):
    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        talk = Talk(http, url, "openai-chat", streams=streams)
        grow(talk, provider)
        answers = [{"content": "Hm.", "tool_calls": [call("recall", handle="log:1")]}, trouble]
        provider.script = lambda _: answers.pop(0)
        talk.history.append(talk.dialect.write_question("What was it?"))
        answer = talk.post()
        if streams:
            assert b"event: error" in talk.raw
        else:
            assert answer.status_code == int(trouble.value)
        provider.script = lambda _: "It was fine."
        assert talk.ask()[0] == "It was fine."
        assert b"call_recall" not in provider.bodies[-1], "what nobody saw the end of is dropped"


@pytest.mark.slow
def test_what_the_log_has_can_be_rebuilt(way, tmp_path):
    dialect, streams = way
    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        talk = Talk(http, url, dialect, streams=streams)
        grow(talk, provider)
        answers = [
            {"content": "First.", "tool_calls": [call("recall", 1, handle="log:3")]},
            {"content": None, "tool_calls": [call("recall", 2, handle="log:999999")]},
            "Now I know.",
        ]
        provider.script = lambda _: answers.pop(0)
        words, _ = talk.say("What was it?")
        assert words.split() == ["First.", "Now", "I", "know."]
        grow(talk, provider, more=12)
        assert {*provider.statuses} == {200}
        history = foldline.session_of(http).history
        log = history.events()
        for one in log:
            if isinstance(one.event, Asked):
                history.sent(one.seq)
        assert any(isinstance(one.event, Folded) for one in log)


def grown(provider, http, url, dialect="openai-chat", *, streams=False):
    talk = Talk(http, url, dialect, streams=streams)
    grow(talk, provider)
    return talk


LOOK = {"content": "Let me look.", "tool_calls": [call("recall", 1, handle="log:2")]}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", ["wrap", "gateway"])
def test_calls_that_cannot_be_answered_end_the_answer(kind, streams, tmp_path, monkeypatch):
    with Provider(window=WINDOW) as provider, opened(kind, provider, tmp_path) as (http, url):
        talk = grown(provider, http, url, streams=streams)
        real, times = event_log.build_draft, iter([True])

        def fail_once(events, **more):
            if any(getattr(event, "more", False) for event in events) and next(times, False):
                raise StoreFailed("the disk is full")
            return real(events, **more)

        monkeypatch.setattr(event_log, "build_draft", fail_once)
        provider.script = lambda _: LOOK
        assert talk.say("Which?") == ("Let me look.", [])
        provider.script = lambda _: "Yes."
        assert talk.say("Sure?")[0] == "Yes."
        assert b"call_recall" not in provider.bodies[-1]
        assert len({*sessions_of(tmp_path)}) == 1, "it is no other conversation"


def sessions_of(tmp_path):
    """The names of the sessions in the store."""
    with sqlite3.connect(tmp_path / "talks.db") as disk:
        return [row[0] for row in disk.execute("select session from sessions")]


@pytest.mark.parametrize("dialect", MODELS)
def test_behind_an_event_that_nobody_can_read_our_calls_are_still_left_out(
    dialect, tmp_path, monkeypatch
):
    real = provider_module.written

    def write_garbage(*given):
        whole, events = real(*given)
        lines = [*events]
        lines.insert(len(lines) // 2, "data: {not json\n\n")
        return whole, iter(lines)

    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        talk = grown(provider, http, url, dialect, streams=True)
        monkeypatch.setattr(provider_module, "written", write_garbage)
        provider.script = lambda _: LOOK
        talk.history.append(talk.dialect.write_question("Which?"))
        talk.post()
        assert b"{not json" in talk.raw
        assert b"recall" not in talk.raw


def test_of_two_equal_requests_at_once_one_is_answered_with_recall(tmp_path):
    with Provider(window=WINDOW) as provider, opened("gateway", provider, tmp_path) as (http, url):
        http.headers["x-foldline-session"] = "one"
        talk = grown(provider, http, url)
        other = Talk(http, url, "openai-chat", streams=False)
        other.history = [*talk.history]
        provider.delay = 0.3
        provider.script = lambda body: "Found." if "call_recall" in json.dumps(body) else LOOK
        with ThreadPoolExecutor() as pool:
            answers = [
                one.result() for one in [pool.submit(each.say, "Which?") for each in (talk, other)]
            ]
        assert sorted(words for words, _ in answers) == ["Let me look.", "Let me look.\n\nFound."]
        provider.delay, provider.script = 0.0, lambda _: "Yes."
        for each in (talk, other):
            assert each.say("Sure?")[0] == "Yes."
            shown = json.loads(provider.bodies[-1])["messages"]
            assert ("call_recall" in json.dumps(shown)) == ("Found." in json.dumps(each.history))
            assert not faults_of(each.dialect, json.loads(provider.bodies[-1]))


def test_a_chain_goes_on_from_the_id_that_the_client_got():
    numbers = count()

    def number(answer):
        return {
            **({"content": answer} if isinstance(answer, str) else answer),
            "id": f"resp_{next(numbers)}",
        }

    with (
        Provider(window=WINDOW) as provider,
        foldline.http_client(
            httpx.Client(), window=WINDOW, reserve=300, recall=True, own_history=True
        ) as http,
    ):
        named, body = {}, {"model": "gpt-5"}
        answers = [*[f"Noted. {LINES}"] * 30, LOOK, "Found.", "Yes."]
        provider.script = lambda _: number(answers.pop(0))
        for turn in range(32):
            sent = {**body, **named, "input": f"{turn}: go on."}
            said = http.post(f"{provider.url}/v1/responses", json=sent, timeout=30).json()
            named = {"previous_response_id": said["id"]}
        assert not answers
        last = json.loads(provider.bodies[-1])
        assert "previous_response_id" not in last, "the history is ours"
        assert "Found." in json.dumps(last["input"])
        assert {*provider.statuses} == {200}


@pytest.mark.parametrize(("window", "words"), [(4_000, 20), (8_000, 45)])
def test_an_answer_that_recalled_much_can_be_continued(window, words):
    """Its calls and results stand whole while the client's own are open; then they are forgotten."""
    with (
        Provider(window=window) as provider,
        foldline.http_client(httpx.Client(), window=window, reserve=300, recall=True) as http,
    ):
        talk = grown(provider, http, provider.url)
        rounds = count(1)

        def recall_much(_):
            if (number := next(rounds)) <= 7:
                looks = [call("recall", number * 10 + at, handle="log:3-60") for at in range(2)]
                return {"content": "Looking. " * words, "tool_calls": looks}
            return {"content": "Now read.", "tool_calls": [call("read", 77, build=1)]}

        provider.script = recall_much
        talk.say("Which one is it? Answer in French.")
        asked = [body for body in provider.bodies if b"call_recall" in body]
        assert all(b"Answer in French." in body for body in asked), "what was asked is in sight"
        provider.script = lambda _: "Done."
        if calls_of(talk.said.parts):
            assert talk.give(LINES)[0] == "Done."
        assert talk.say("Go on.")[0] == "Done."
        assert {*provider.statuses} == {200}


def test_a_retry_by_another_thread_after_a_fault_is_the_same_conversation(tmp_path):
    with Provider(window=WINDOW) as provider, opened("wrap", provider, tmp_path) as (http, url):
        talk = grown(provider, http, url)
        answers = [LOOK, Trouble.ERROR, "Found."]
        provider.script = lambda _: answers.pop(0)
        talk.history.append(talk.dialect.write_question("Which?"))
        assert talk.post().status_code == 500
        with ThreadPoolExecutor(max_workers=1) as pool:
            assert pool.submit(talk.ask).result()[0] == "Found."
        assert len({*sessions_of(tmp_path)}) == 1

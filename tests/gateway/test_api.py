"""Sessions over HTTP, on a real port: every verb, turns, keys, disconnects, two processes."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from api_server import serving
from serving import address_of, an_empty_schema
from waiting import within

import foldline
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool, said
from foldline.apps.gateway.api.schemas import FoldRecordSchema
from foldline.core import log
from foldline.core.log import UsageReported
from foldline.dialects.provider_errors import Fault
from foldline.errors import BadInput, ModelFailed
from foldline.models.clients import client
from foldline.session.fold_records import FoldRecord
from foldline.session.spending import Cap, Caps
from foldline.testing import ScriptedModel
from foldline.testing.provider import Provider, Trouble

LONG = "Many words are said here, and more of them, until the window is full. "
CLIENTS = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class Slow(ScriptedModel):
    """A model that speaks some words and then waits until it is let go on."""

    def __init__(self, **more):
        super().__init__(lambda _: "done", **more)
        self.begun, self.go_on, self.ended = (threading.Event() for _ in range(3))

    async def say(self, request, *, heard=None):
        """Some words, and the answer when it may be given."""
        if heard:
            heard("Let me think")
        self.begun.set()
        try:
            while not self.go_on.is_set():  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.01)
        finally:
            self.ended.set()
        return await super().say(request, heard=heard)


def calling(name, call_id="c1", **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def kinds(events):
    return [one["event"]["kind"] for one in events]


def words(events, kind):
    return [one["event"]["parts"][0]["text"] for one in events if one["event"]["kind"] == kind]


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "talks.db")


def test_a_message_is_answered_and_the_log_keeps_it():
    with serving() as api:
        made = api.made("talk", system="Be brief.", window=16_000)
        assert (made["model"], made["window"], made["at"]) == ("scripted", 16_000, 1)
        got = api.say("talk", "Hello")
        assert (got["ended"], got["words"], got["at"], got["answer"]) == ("answered", "ok", 2, 4)
        assert got["usage"]["input"] > 0
        assert got["tokens"] == api.ok("GET", "/sessions/talk/tokens")["total"]
        assert kinds(api.events("talk")) == [
            "opened", "instructed", "user_said", "asked", "model_said", "usage_reported",
        ]  # fmt: skip
        assert api.call("POST", "/sessions", {"name": "talk", "model": "scripted"})[0] == 409
        named = api.ok("POST", "/sessions", {"model": "scripted"})["name"]
        page = api.ok("GET", "/sessions?limit=1")
        assert [one["name"] for one in page["sessions"]] == [min("talk", named)]
        rest = api.ok("GET", f"/sessions?after={page['after']}")
        assert [one["name"] for one in rest["sessions"]] == [max("talk", named)]


@pytest.mark.parametrize("forgotten", ["tenant", "owner", "admin", "words", "models", "is_valid"])
def test_a_mount_that_forgets_who_asks_is_refused(forgotten):
    with serving() as api:
        api.made("talk")
        api.say("talk", "Hello")
        before = api.events("talk")
        api.forgotten = forgotten
        assert api.call("GET", "/sessions/talk/events")[0] == 500
        assert api.call("POST", "/sessions/talk/messages", {"text": "More"})[0] == 500
        assert api.call("GET", "/sessions")[0] == 500
        api.forgotten = None
        assert api.events("talk") == before


def test_every_verb_does_what_the_library_does():  # noqa: PLR0915 - there are many
    """DESIGN §9: the same verbs everywhere."""
    with serving(model=ScriptedModel(lambda _: LONG * 10, name="scripted")) as api:
        api.made("t", window=20_000)
        for n in range(8):
            api.say("t", f"Message {n} of the pangolin. {LONG * 12}")
        one = "/sessions/t"
        preview = api.ok("POST", f"{one}/fold", {"preview": True})
        assert preview["loss"]["before"] > preview["loss"]["after"]
        assert not preview["folded"]
        before = api.ok("GET", f"{one}/tokens")["total"]
        folded = api.ok("POST", f"{one}/fold", {"focus": "the pangolin"})
        assert folded["before"] == before > folded["after"] == api.ok("GET", one)["tokens"]
        assert folded["loss"]["left"]["answers"]
        drawn = api.ok("GET", f"{one}/context")
        assert [fold["at"] for fold in drawn["folds"]] == [folded["edit"]]
        assert sum(run["tokens"] for run in drawn["runs"]) == drawn["total"]
        assert api.ok("GET", f"{one}/context", accept="image/svg+xml").startswith("<svg")
        undone = api.ok("POST", f"{one}/undo")
        assert (undone["undone"], undone["after"]) == (folded["edit"], pytest.approx(before, abs=2))
        redone = api.ok("POST", f"{one}/redo")
        assert (redone["undone"], redone["after"]) == (undone["redo"], folded["after"])
        assert api.call("POST", f"{one}/redo")[0] == 404
        assert api.call("POST", f"{one}/undo", {"edit": 2})[0] == 404
        first = next(e["seq"] for e in api.events("t") if e["event"]["kind"] == "user_said")
        assert api.ok("POST", f"{one}/pin", {"place": f"log:{first}"})["pins"] == [first]
        assert api.ok("POST", f"{one}/unpin", {"place": first})["pins"] == []
        last = api.ok("GET", one)["at"]
        answer = max(e["seq"] for e in api.events("t") if e["event"]["kind"] == "model_said")
        taken = api.ok("POST", f"{one}/exclude", {"places": [answer]})
        assert taken["after"] < taken["before"]
        assert taken["edit"] == last + 1
        assert "Message 0" in api.ok("GET", f"{one}/recall?handle=log:{first}")["text"]
        assert api.call("GET", f"{one}/recall?handle=log:99999")[0] == 404
        found = api.ok("GET", f"{one}/search?words=pangolin&limit=3")["found"]
        assert len(found) == 3
        assert "pangolin" in found[0]["snippet"]
        turns = api.ok("GET", f"{one}/history")
        assert len(turns["turns"]) == 8
        made = {one["at"]: one for one in turns["folds"]}
        assert [*made] == [folded["edit"]]
        assert made[folded["edit"]]["standing"]
        assert made[folded["edit"]]["ratio"] == folded["ratio"] > 1
        assert made[folded["edit"]]["first_turn"] == 1
        sent = api.ok("GET", f"{one}/requests/{turns['turns'][3]['asked']}")
        assert sent == api.model.requests[3]
        put = api.ok("PUT", f"{one}/instructions", {"system": ["One.", "Two."], "tools": [CLIENTS]})
        assert put == api.ok("GET", f"{one}/instructions")
        assert (put["system"], put["tools"][0]["name"]) == (["One.", "Two."], "look")
        assert api.ok("PUT", f"{one}/instructions", {"tools": []})["system"] == ["One.", "Two."]
        bill = api.ok("GET", f"{one}/cost")
        assert bill["calls"] == 8
        assert bill["input"] == sum(turn["input"] for turn in turns["turns"])
        fork = api.ok("POST", f"{one}/fork", {"to": "u", "at": first})
        assert (fork["name"], fork["at"]) == ("u", first + 1)
        assert api.call("POST", f"{one}/fork", {"to": "u"})[0] == 409
        exported = api.ok("GET", f"{one}/export").splitlines()
        assert [json.loads(line) for line in exported] == [e["event"] for e in api.events("t")]
        assert "Message 0" in api.ok("GET", f"{one}/export?format=markdown")
        assert api.ok("GET", f"{one}/export?format=openai&sight=true")["messages"]
        events = len(api.events("t"))
        assert api.ok("DELETE", one)["events"] == events
        assert api.call("GET", one)[0] == 404
        assert api.call("POST", "/sessions", {"name": "t", "model": "scripted"})[0] == 410
        assert api.call("DELETE", one)[0] == 404


def test_r14_a_model_that_is_too_small_changes_nothing_and_another_holds_for_good(file):
    with serving(file) as api:
        api.made("t", window=100_000, system=LONG * 300)
        api.say("t", "Hello")
        status, body = api.call("PUT", "/sessions/t/model", {"model": "tiny", "window": 1_000})
        assert (status, body["error"]["kind"]) == (413, "overflow")
        assert api.ok("GET", "/sessions/t")["model"] == "scripted"
        got = api.ok("PUT", "/sessions/t/model", {"model": "other", "window": 50_000})
        assert (got["model"], got["window"]) == ("other", 50_000)
    with serving(file) as api:
        got = api.ok("GET", "/sessions/t")
        assert (got["model"], got["window"]) == ("other", 50_000)


def test_moments_are_told_as_they_happen_and_resumed_from_the_log():
    """Server-sent events; ids are places in the log, `Last-Event-ID` goes on behind one."""
    ran = []

    async def look(arguments):
        ran.append(arguments)
        return said("found it")

    tool = Tool(name="find", description="", schema={"type": "object"}, run=look)
    model = ScriptedModel([calling("find", where="here"), "It is here."])
    with serving(model=model, tools_of=lambda _: [tool]) as api:
        api.made("t", tools=[])
        told = [*api.streamed("/sessions/t/messages", {"text": "Where?"})]
        shown = [kind for kind, _, _ in told if kind != "speaking"]
        assert shown == ["accepted", "answered", "calling", "called", "answered", "ended"]
        assert "".join(d["words"] for kind, _, d in told if kind == "speaking") == "It is here."
        assert (ran, told[3][2]["words"]) == ([{"where": "here"}], "found it")
        ids = [at for _, at, _ in told if at is not None]
        assert ids == sorted(ids)
        end = told[-1][2]
        assert (end["ended"], end["words"]) == ("answered", "It is here.")
        whole = api.events("t")
        assert ids[-1] == whole[-1]["seq"]
        resumed = api.streamed(
            "/sessions/t/events", method="GET", headers={"Last-Event-ID": f"{ids[1]}"}
        )
        assert [at for _, at, _ in resumed] == [*range(ids[1] + 1, len(whole))]
        assert api.ok("GET", "/sessions/t/events?after=1&limit=2")["after"] == 3
        stream = api.ok("POST", "/sessions/t/events", {"text": "a notice", "speaker": "notice"})
        last = api.streamed(f"/sessions/t/events?after={stream['at'] - 1}", method="GET")
        assert [(kind, data["speaker"]) for kind, _, data in last] == [("user_said", "notice")]


def test_a_client_runs_its_own_tools_and_posts_their_results():
    two = calling("look", "a", n=1)
    two["tool_calls"] += calling("look", "b", n=2)["tool_calls"]
    model = ScriptedModel([two, "Both are there."])
    with serving(model=model) as api:
        api.made("t", tools=[CLIENTS])
        got = api.say("t", "Look twice.", once="k")
        assert got["ended"] == "calls"
        assert [(one["id"], json.loads(one["arguments"])) for one in got["calls"]] == [
            ("a", {"n": 1}), ("b", {"n": 2}),
        ]  # fmt: skip
        assert api.say("t", "Look twice.", once="k")["calls"] == got["calls"]  # not asked again

        def result(one, path):
            body = {"role": "tool", "tool_call_id": one, "content": f"result {one}"}
            return api.ok("POST", f"/sessions/t/{path}", {"message": body})

        assert result("a", "messages")["ended"] == "calls"  # the other is still out
        assert len(model.requests) == 1
        assert result("b", "events")["calls"] == []
        done = api.ok("POST", "/sessions/t/messages", {})
        assert (done["ended"], done["words"]) == ("answered", "Both are there.")
        results = [m["content"] for m in model.requests[1]["messages"] if m["role"] == "tool"]
        assert results == ["result a", "result b"]
        assert model.requests[1]["tools"] == model.requests[0]["tools"]
        assert api.call("POST", "/sessions/t/messages", {})[0] == 400  # nothing stands unanswered


def test_who_calls_the_provider_themselves_gets_the_request_and_adds_the_answer():
    with serving(model=lambda *_: pytest.fail("nobody is to be asked")) as api:
        api.made("t", system="Be brief.")
        api.ok("POST", "/sessions/t/events", {"text": "Hello"})
        sent = api.ok("POST", "/sessions/t/request", {"parameters": {"temperature": 0.5}})
        at = int(api.headers["x-foldline-asked"])
        assert (sent["temperature"], sent["messages"][-1]["content"]) == (0.5, "Hello")
        assert api.ok("GET", f"/sessions/t/requests/{at}") == sent
        answer = {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
                  "usage": {"prompt_tokens": 21, "completion_tokens": 2}}  # fmt: skip
        api.ok("POST", "/sessions/t/events", {"message": answer})
        assert words(api.events("t"), "model_said") == ["Hi."]
        assert api.ok("GET", "/sessions/t/cost")["input"] == 21
        assert api.call("POST", "/sessions/t/request", {"parameters": {"messages": []}})[0] == 400


def test_r81_what_is_sent_twice_is_there_once_and_answered_once():
    model = ScriptedModel([f"answer {n}" for n in range(9)])
    with serving(model=model) as api:
        api.made("t")
        first = api.say("t", "One", once="a")
        api.say("t", "Two")
        again = api.ok(
            "POST", "/sessions/t/messages", {"text": "One"}, headers={"Idempotency-Key": "a"}
        )
        assert (again["words"], again["at"], again["answer"]) == (
            "answer 0", first["at"], first["answer"],
        )  # fmt: skip
        assert words(api.events("t"), "user_said") == ["One", "Two"]
        assert len(model.requests) == 2
        both = {"text": "x", "once": "a"}
        assert (
            api.call("POST", "/sessions/t/messages", both, headers={"Idempotency-Key": "b"})[0]
            == 400
        )


def test_r28_r29_a_message_during_a_turn_is_queued_and_answered_in_order():
    """One turn at a time; whoever makes it goes on with what came in."""
    model = Slow()
    with serving(model=model) as api, ThreadPoolExecutor() as beside:
        api.made("t")
        first = beside.submit(api.say, "t", "First")
        assert model.begun.wait(10)
        status, queued = api.call("POST", "/sessions/t/messages", {"text": "Second"})
        assert (status, queued["ended"]) == (202, "queued")
        status, busy = api.call("POST", "/sessions/t/fold", {})
        assert (status, busy["error"]["kind"]) == (409, "busy")
        assert api.headers["retry-after"]
        assert api.ok("GET", "/sessions/t")["busy"]
        waiting = beside.submit(api.say, "t", "Third", wait=True)
        folding = beside.submit(api.ok, "POST", "/sessions/t/fold?wait=true", {})
        assert within(lambda: len(words(api.events("t"), "user_said")) == 3)
        model.go_on.set()
        assert first.result()["words"].endswith("done")
        assert waiting.result()["ended"] == "answered"
        assert not folding.result()["folded"]
        assert within(lambda: not api.ok("GET", "/sessions/t")["busy"])
        assert words(api.events("t"), "user_said") == ["First", "Second", "Third"]
        said = [m["content"] for m in model.requests[-1]["messages"] if m["role"] == "user"]
        assert [one for one in said if one in ("First", "Second", "Third")] == said
        assert len(said) == 3


def test_a_queued_message_is_answered_though_nobody_asks_again():
    model = Slow()
    with serving(model=model) as api, ThreadPoolExecutor() as beside:
        api.made("t")
        model.go_on.set()
        zero = api.say("t", "Zero", once="z")
        model.go_on.clear()
        model.begun.clear()
        beside.submit(api.say, "t", "First")
        assert model.begun.wait(10)
        at = api.ok("POST", "/sessions/t/messages", {"text": "Second", "once": "s"})["at"]
        again = api.say("t", "Zero", once="z")  # answered before: nobody need wait for that
        assert (again["ended"], again["answer"]) == ("answered", zero["answer"])
        model.go_on.set()
        assert within(lambda: len(words(api.events("t"), "model_said")) == 3)
        again = api.say("t", "Second", once="s")
        assert (again["ended"], again["at"], len(model.requests)) == ("answered", at, 3)


def test_over_a_real_port_a_call_upstream_ends_with_its_client():
    """A-08: the provider sees the client hang up; asked again, it answers."""
    with Provider([Trouble.TIMEOUT, "It is noon."]) as provider:

        def upstream(name, _):
            return client(name, base_url=f"{provider.url}/v1", api_key="none")

        with serving(model=upstream) as api:
            api.ok("POST", "/sessions", {"name": "t", "model": "gpt-5"})
            line = api.connection()
            body = json.dumps({"text": "What time is it?", "once": "k"})
            line.request("POST", "/sessions/t/messages", body, {"content-type": "application/json"})
            assert within(lambda: provider.bodies)
            line.close()
            assert within(lambda: provider.left)
            assert within(lambda: not api.ok("GET", "/sessions/t")["busy"])
            got = api.say("t", "What time is it?", once="k")
            assert (got["ended"], got["words"]) == ("answered", "It is noon.")
            told = json.loads(provider.bodies[-1])["messages"]
            assert [one["content"] for one in told] == ["What time is it?"]


def test_at_the_end_turns_may_end_and_are_stopped_then():
    model = Slow()
    with serving(model=model) as api, ThreadPoolExecutor() as beside:
        api.made("t", on_disconnect="continue")
        turn = beside.submit(api.call, "POST", "/sessions/t/messages", {"text": "Go"})
        assert model.begun.wait(10)
        asyncio.run_coroutine_threadsafe(api.api.close(seconds=0.1), api.loop).result(10)
        assert model.ended.is_set()
        assert turn.result()[0] == 503
        assert [e["event"].get("stop") for e in api.events("t")][-1] == "cancelled"
        assert not api.api.pool._tasks


@pytest.mark.parametrize("streams", [True, False])
def test_a08_a_turn_whose_client_has_gone_pauses_and_keeps_what_happened(streams):
    model = Slow()
    with serving(model=model) as api:
        api.made("t")
        line = api.connection()
        body = json.dumps({"text": "Go", "once": "k", "stream": streams})
        line.request("POST", "/sessions/t/messages", body, {"content-type": "application/json"})
        assert model.begun.wait(10)
        line.close()
        assert model.ended.wait(10)  # the upstream call is stopped
        assert within(lambda: not api.ok("GET", "/sessions/t")["busy"])
        heard = [e["event"] for e in api.events("t") if e["event"]["kind"] == "model_said"]
        assert [(one["stop"], one["parts"][0]["text"]) for one in heard] == [
            ("cancelled", "Let me think")
        ]
        model.go_on.set()
        got = api.say("t", "Go", once="k")
        assert got["ended"] == "answered"
        asked = model.requests[-1]["messages"]
        assert [one["content"] for one in asked[:2]] == ["Go", "Let me think"]
        assert "Go on with it" in asked[2]["content"]  # said by nobody: a notice
        assert api.say("t", "Go", once="k")["answer"] == got["answer"]
        assert len(model.requests) == 1


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("by", ["session", "message"])
def test_a08_or_it_goes_on(streams, by):
    model = Slow()
    with serving(model=model) as api:
        api.made("t", **({"on_disconnect": "continue"} if by == "session" else {}))
        line = api.connection()
        body = {"text": "Go", "stream": streams}
        body |= {"on_disconnect": "continue"} if by == "message" else {}
        line.request(
            "POST", "/sessions/t/messages", json.dumps(body), {"content-type": "application/json"}
        )
        assert model.begun.wait(10)
        line.close()
        time.sleep(0.3)
        assert not model.ended.is_set()
        model.go_on.set()
        assert within(lambda: words(api.events("t"), "model_said") == ["done"])


def refusing(_, __):
    raise BadInput("there is no upstream for this model; the operator names them")


@pytest.mark.parametrize(
    ("model", "more", "status", "kind"),
    [
        (refusing, {}, 400, "bad_input"),
        (ScriptedModel([ModelFailed("scripted", Fault("other", "No. sk-proj-" + "a1B2" * 12))]), {}, 502, "model_failed"),
        (ScriptedModel([ModelFailed("scripted", Fault("auth", "bad key canary-key"))]), {}, 502, "model_failed"),
        (None, {"caps": Caps(call=Cap(tokens=1))}, 402, "spent"),
        (ScriptedModel([RuntimeError("canary-key in /etc/secret")]), {}, 500, "fault"),
    ],
)  # fmt: skip
def test_what_goes_wrong_has_one_form_and_tells_no_secret(model, more, status, kind):
    with serving(model=model, **more) as api:
        api.made("t")
        got, body = api.call("POST", "/sessions/t/messages", {"text": "Hello"})
        assert (got, body["error"]["kind"]) == (status, kind)
        assert {*body} == {"error"}
        assert {*body["error"]} == {"kind", "message", "way_out"}
        assert "canary" not in json.dumps(body)
        assert "a1B2a1B2" not in json.dumps(body)
        told = [*api.streamed("/sessions/t/messages", {"text": "Hello"})] if status == 402 else []
        assert [kind for kind, _, _ in told][-1:] == (["error"] if told else [])


def test_a_parameter_may_have_any_name():
    with serving() as api:
        api.made("t")
        api.ok("POST", "/sessions/t/events", {"text": "Hello"})
        api.ok("POST", "/sessions/t/request", {"parameters": {"self": 1}})


@pytest.mark.parametrize(
    ("method", "path", "raw", "status", "words"),
    [
        ("POST", "/sessions", b"{not json", 400, "no JSON"),
        ("POST", "/sessions", b"[]", 400, "Expected `object`"),
        ("POST", "/sessions", b'{"model": "m", "name": "a/b"}', 400, "no name of a session"),
        ("POST", "/sessions", b'{"model": "m", "name": "a\\u0000"}', 400, "no name of a session"),
        ("POST", "/sessions", b'{"model": "m", "name": ".."}', 400, "names something else"),
        ("POST", "/sessions", b'{"model": "m", "polcy": "x"}', 400, "did you mean 'policy'?"),
        ("POST", "/sessions", b'{"model": "m", "policy": "x"}', 400, "no policy"),
        ("POST", "/sessions", b'{"model": "m", "carry": "nobody"}', 400, "carry on from"),
        ("POST", "/sessions", b'{"model": "m", "carry": "t", "parts": ["all"]}', 400, "give some of: summary"),
        ("POST", "/sessions", b'{"model": "m", "parts": ["pins"]}', 400, "that `carry` names"),
        ("POST", "/sessions", b'{"model": "m", "tools": [{}]}', 400, "tool"),
        ("POST", "/sessions", b"\xff", 400, "no JSON"),
        ("POST", "/sessions", b"[" * 100_000, 400, ""),
        ("POST", "/sessions/t/messages", b'{"message": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, 400, ""),
        ("POST", "/sessions/t/messages", b'{"message": {"role": "nobody"}}', 400, ""),
        ("POST", "/sessions/t/request", b'{"parameters": {"self": 1}}', 400, "nothing was said"),
        ("GET", "/sessions?limt=3", None, 400, "did you mean 'limit'?"),
        ("GET", "/sessions?limit=3&limit=4", None, 400, "twice"),
        ("GET", "/sessions?limit=x", None, 400, "Expected `int`"),
        ("GET", "/sessions/%ff", None, 400, "no UTF-8"),
        ("GET", "/sessions/a%00b", None, 400, "no name of a session"),
        ("GET", "/sessions/" + "n" * 201, None, 400, "no name of a session"),
        ("GET", "/sessions/t/requests/x", None, 400, "no place"),
        ("GET", "/sessions/t/requests/" + "9" * 400, None, 400, "no place"),
        ("GET", "/sessionsx", None, 404, "nothing at this address"),
        ("PUT", "/sessions/t/fold", b"{}", 405, "takes POST"),
        ("GET", "/sessions/t", b"{}", 400, "nobody reads"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place_and_a_way_out(
    method, path, raw, status, words
):
    with serving() as api:
        api.made("t")
        got, body = api.call(method, path, raw=raw, headers={"content-type": "application/json"})
        assert (got, words in json.dumps(body)) == (status, True), body
        assert len(api.ok("GET", "/sessions")["sessions"]) == 1  # nothing was left behind


def test_a_body_of_another_kind_or_size_is_refused():
    with serving(body=1_000) as api:
        api.made("t")
        assert (
            api.call("POST", "/sessions/t/fold", raw=b"{}", headers={"content-type": "text/plain"})[
                0
            ]
            == 415
        )
        assert api.call("POST", "/sessions/t/messages", {"text": "x" * 2_000})[0] == 413


def test_only_so_many_sessions_are_held_open_and_nothing_of_an_erased_one():
    with serving(most=4) as api:
        for n in range(12):
            api.made(f"s{n}")
            api.say(f"s{n}", "Hello")
        assert len(api.api.pool) <= 5
        assert api.say("s0", "Again")["at"] > 2
        api.ok("DELETE", "/sessions/s0")
        assert "s0" not in [name.session for name in api.api.pool._kept]


def one_session_in_two_processes(address):
    """What one wrote the other goes on with; one turn at a time, on both together."""
    slow, long = Slow(), ScriptedModel(lambda _: LONG * 40, name="scripted")
    with (
        serving(address, long) as one,
        serving(address, slow) as two,
        ThreadPoolExecutor() as beside,
    ):
        one.made("t", window=60_000)
        for n in range(14):
            one.say("t", f"Message {n}.")
        slow.go_on.set()
        assert two.say("t", "From two.")["words"].endswith("done")
        assert "From two." in json.dumps(one.ok("GET", "/sessions/t/events?after=5&limit=1000"))
        folded = two.ok("POST", "/sessions/t/fold", {})
        assert folded["folded"]
        assert one.ok("GET", "/sessions/t")["tokens"] == folded["after"]
        assert one.say("t", "And on.")["ended"] == "answered"
        sent = one.model.requests[-1]["messages"]
        assert (
            sent == one.ok("GET", f"/sessions/t/requests/{one.events('t')[-3]['seq']}")["messages"]
        )
        two.ok("PUT", "/sessions/t/model", {"model": "scripted-2", "window": 30_000})
        assert one.ok("GET", "/sessions/t")["window"] == 30_000
        slow.begun.clear()
        slow.go_on.clear()
        first = beside.submit(two.say, "t", "Slowly.")
        assert slow.begun.wait(10)
        status, queued = one.call("POST", "/sessions/t/messages", {"text": "Meanwhile."})
        assert (status, queued["ended"]) == (202, "queued")
        assert one.call("POST", "/sessions/t/undo", {})[0] == 409
        slow.go_on.set()
        first.result()
        assert within(lambda: "Meanwhile." in json.dumps(slow.requests[-1]))
        assert within(lambda: one.call("POST", "/sessions/t/pin", {"place": 1})[0] == 200)
        one.ok("DELETE", "/sessions/t?wait=true")
        assert two.call("GET", "/sessions/t")[0] == 404
        assert len(two.api.pool) == 0


def test_two_processes_on_one_session(file):
    one_session_in_two_processes(file)


@pytest.mark.real
def test_two_gateways_on_one_session_of_postgresql():
    with an_empty_schema() as schema:
        one_session_in_two_processes(address_of(schema))


def test_a_turn_that_is_longer_than_its_lease_keeps_its_session(file):
    slow = Slow()
    with (
        serving(file, slow, lease=0.4) as one,
        serving(file) as two,
        ThreadPoolExecutor() as beside,
    ):
        one.made("t")
        first = beside.submit(one.say, "t", "Slowly.")
        assert slow.begun.wait(10)
        for _ in range(5):
            time.sleep(0.3)
            assert two.call("POST", "/sessions/t/fold", {})[0] == 409
        slow.go_on.set()
        assert first.result()["ended"] == "answered"
        assert two.call("POST", "/sessions/t/fold?wait=true", {})[0] == 200


CANARY = "canary-7c1f"


def test_no_tenant_sees_guesses_or_touches_anothers_sessions():
    """On every route: another tenant's session is as one that never was."""
    from foldline.apps.gateway.api.routes import ROUTES  # noqa: PLC0415

    with serving() as api:
        body = {"name": "secret", "model": "scripted", "system": CANARY}
        api.ok("POST", "/sessions", body, tenant="a")
        api.ok("POST", "/sessions/secret/messages", {"text": CANARY}, tenant="a")
        before = api.events("secret", tenant="a")
        bodies = {
            "pin": {"place": 2}, "unpin": {"place": 2}, "exclude": {"places": [2]},
            "model": {"model": "x"}, "messages": {"text": "hi"}, "events": {"text": "hi"},
        }  # fmt: skip
        queries = {"recall": "?handle=log:2", "search": f"?words={CANARY}&everywhere=true"}
        for route in ROUTES:
            if not route.path:
                continue
            verb = route.path.split("/")[-1]
            asked = {"body": bodies.get(verb, {})} if route.body else {}
            answers = []
            for name in ("secret", "nosuch"):
                path = f"/sessions{route.path}{queries.get(verb, '')}".format(
                    name=name, at=3, owner="bob"
                )
                status, got = api.call(route.method, path, tenant="b", **asked)
                answers.append((status, json.dumps(got).replace(name, "NAME")))
                assert CANARY not in answers[-1][1]
            assert answers[0] == answers[1]
            assert answers[0][0] == 404, (route.path, answers[0])
        api.ok("POST", "/sessions", {"name": "own", "model": "scripted"}, tenant="b")
        found = api.ok("GET", f"/sessions/own/search?words={CANARY}&everywhere=true", tenant="b")
        assert found["found"] == []
        assert [one["name"] for one in api.ok("GET", "/sessions", tenant="b")["sessions"]] == [
            "own"
        ]
        carried = {"name": "c", "model": "scripted", "carry": "secret", "parts": ["summary"]}
        assert api.call("POST", "/sessions", carried, tenant="b")[0] == 400
        # The same name is free for another, and is another session.
        api.ok("POST", "/sessions", {"name": "secret", "model": "scripted"}, tenant="b")
        api.ok("DELETE", "/sessions/secret", tenant="b")
        assert api.events("secret", tenant="a") == before


def test_m10_a_session_is_made_with_chosen_parts_of_another():
    """M-10, P4-16: the answer says how many tokens each part takes."""
    with serving(model=ScriptedModel(lambda _: "ok", name="scripted")) as api:
        api.made("monday")
        api.say("monday", "Fix the parser, please.")
        at = api.ok("POST", "/sessions/monday/events", {"text": "Never touch the lexer."})["at"]
        api.ok("POST", "/sessions/monday/pin", {"place": at})
        made = api.made("tuesday", carry="monday", parts=["pins"])
        assert [*made["carried"]] == ["pins"]
        assert made["carried"]["pins"] > 0
        opened, said = (one["event"] for one in api.events("tuesday")[:2])
        assert (opened["origin"], opened["carried"]) == ("monday", ["pins"])
        assert "Never touch the lexer." in said["parts"][0]["text"]
        assert "Fix the parser" not in said["parts"][0]["text"]
        whole = api.made("wednesday", carry="monday")
        assert [*whole["carried"]] == ["summary", "pins", "files", "facts"]
        assert api.made("thursday")["carried"] is None
        assert api.ok("GET", "/sessions/tuesday")["carried"] is None


def test_a47_over_http_it_is_the_same_path(file):
    """A-47: the same conversation straight and over HTTP: the same events, the same requests."""
    talk = [f"Message {n}: look at page {n}. {LONG * 20}" for n in range(10)]

    def script():
        asked = 0

        def answer(_):
            nonlocal asked
            asked += 1
            return (
                calling("find", f"c{asked}", page=asked)
                if asked % 2
                else f"Page {asked} is read. {LONG * 5}"
            )

        return ScriptedModel(answer)

    async def find(arguments):
        return said(f"Page {arguments['page']} says: {LONG * 30}")

    tool = Tool(name="find", description="", schema={"type": "object"}, run=find)

    async def straight(model):
        opened = foldline.aopen(
            ":memory:", model="scripted", window=12_000, system="Read.", tools=[tool.offered]
        )
        async with opened as session:
            agent = Agent(session, model, tools=[tool])
            for one in talk:
                await agent.turn(one)
            return [
                json.loads(log.encode_event(event)) for _, event in await session.history.events()
            ]

    one, other = script(), script()
    events = asyncio.run(straight(one))
    with serving(file, other, tools_of=lambda _: [tool]) as api:
        api.made("t", window=12_000, system="Read.", tools=[])
        for at, words in enumerate(talk):
            api.say("t", words)
            if at == 5:  # and nothing depends on what the process remembers
                api.api.pool.drop_session(next(iter(api.api.pool._kept)))
        assert [one["event"] for one in api.events("t")] == events
    assert any(event["kind"] == "folded" for event in events)
    assert other.requests == one.requests


def test_m12_the_record_of_a_fold_that_a_model_told_is_written_whole():
    """M-12: the usage and the price of its narrative, beside the rest."""
    made = FoldRecord(
        at=9, time=3.0, lo=0, hi=7, start_time=1.0, end_time=2.0, first_turn=1, last_turn=2,
        messages=5, before=900, after=90, why="due", quoted=2, facts=3, model="gpt-5-mini",
        used=UsageReported(input=800, output=40), dollars=0.0003,
    )  # fmt: skip
    shown = msgspec.to_builtins(msgspec.convert(made, FoldRecordSchema, from_attributes=True))
    assert shown["used"] == {"input": 800, "output": 40, "cache_read": None, "cache_write": None, "reasoning": None}  # fmt: skip
    assert (shown["ratio"], shown["dollars"], shown["model"]) == (10.0, 0.0003, "gpt-5-mini")

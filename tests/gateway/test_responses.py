"""OpenAI's Responses through the gateway: planned with headers, compacted, counted, and loud where it is not planned."""

import http.client
import json
import logging
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import sleep

import pytest
from gateway_thread import Served
from scripted import start_provider

from foldline.dialects.client_messages import FoldMark

PATH = "/v1/responses"
WINDOW = 8_000
PAGE = "The run printed nothing of note, and the file is as it was. " * 40


@pytest.fixture
def provider(tmp_path):
    with start_provider(tmp_path) as provider:
        yield provider


@pytest.fixture
def gateway(provider, tmp_path):
    with Served(provider.url, store=str(tmp_path / "talks.db"), window=WINDOW) as gateway:
        yield gateway


def post(gateway, path=PATH, *, key="sk-one", codex="", **fields):
    """One request: the status, our own headers, and the answer's bytes."""
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    if codex:
        headers |= {"user-agent": "codex_exec/0.166.0", "session-id": codex}
    client.request("POST", path, json.dumps({"model": "gpt-5", **fields}), headers)
    answer = client.getresponse()
    body = answer.read()
    told = {name.lower()[11:]: value for name, value in answer.getheaders() if name.lower().startswith("x-foldline-")}  # fmt: skip
    client.close()
    return answer.status, told, body


def talk(gateway, turns, **more):
    """A conversation of some turns; its items."""
    items = []
    for number in range(turns):
        items.append({"role": "user", "content": f"{number}: {PAGE}"})
        status, told, body = post(gateway, input=items, **more)
        assert status == 200, body
        assert told["session"]
        items += json.loads(body)["output"]
    return items


def compact(gateway, items, **more):
    """Ask as Codex does; our headers, and the item."""
    trigger = {"type": "compaction_trigger"}
    status, told, body = post(gateway, input=[*items, trigger], **more)
    assert status == 200, body
    (item,) = json.loads(body)["output"]
    return told, item


def test_it_is_planned_and_says_so(gateway, provider):
    talk(gateway, 12)
    status, told, _ = post(gateway, input="Hello")
    assert (status, told["edits"]) == (200, "0")
    assert any("[handoff: log:" in raw for raw in provider.list_sent())


def test_a_trigger_is_answered_by_a_fold_and_never_reaches_the_upstream(gateway, provider):
    items = talk(gateway, 4)
    asked = len(provider.list_sent())
    told, item = compact(gateway, items)
    assert told["patches"] == "compaction=1"
    assert told["edits"] == "1"
    assert FoldMark.parse(item["encrypted_content"])
    assert len(provider.list_sent()) == asked
    status, told, _ = post(gateway, input=[item, {"role": "user", "content": "Go on."}])
    assert (status, told["patches"]) == (200, "fold=1,history=1")
    assert "foldline:1:" not in provider.list_sent()[-1]
    assert "[handoff: log:" in provider.list_sent()[-1]


def test_a_streamed_trigger_is_answered_by_a_stream(gateway):
    items = [*talk(gateway, 2), {"type": "compaction_trigger"}]
    _, _, body = post(gateway, input=items, stream=True)
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]  # fmt: skip
    assert [one["sequence_number"] for one in events] == [*range(len(events))]
    assert [one["item"]["type"] for one in events if one["type"].endswith("item.done")] == ["compaction"]  # fmt: skip
    assert events[-1]["type"] == "response.completed"


def test_a_second_compaction_covers_the_first(gateway, provider):
    _, first = compact(gateway, talk(gateway, 3))
    more = [first, {"role": "user", "content": "More, please."}]
    status, _, body = post(gateway, input=more)
    assert status == 200
    _, second = compact(gateway, [*more, *json.loads(body)["output"]])
    status, _, _ = post(gateway, input=[second, {"role": "user", "content": "And now?"}])
    assert status == 200
    sent = json.loads(provider.list_sent()[-1])["input"]
    assert "More, please." in json.dumps(sent)
    assert sent[-1]["content"] == "And now?"


def test_nobody_elses_fold_is_opened(gateway, provider):
    _, item = compact(gateway, talk(gateway, 3))
    status, told, _ = post(
        gateway, key="sk-two", input=[item, {"role": "user", "content": "What was it?"}]
    )
    assert status == 400  # the provider's: it knows no such item
    assert told["unplanned"] == "unreadable"
    assert "nothing of note" not in provider.list_sent()[-1]
    # Nor by a mark that names the right log under a digest of one's own.
    mark = FoldMark.parse(item["encrypted_content"])
    _, own = compact(gateway, [{"role": "user", "content": "Mine."}], key="sk-two")
    forged = mark._replace(chain=FoldMark.parse(own["encrypted_content"]).chain)
    item = {"type": "compaction", "encrypted_content": forged.encode()}
    status, told, _ = post(gateway, key="sk-two", input=[item, {"role": "user", "content": "And?"}])
    assert (status, told["unplanned"]) == (400, "unreadable")


def test_a_client_that_forks_its_conversation_takes_the_fold_along(gateway, provider):
    items = talk(gateway, 3, codex="one")
    _, item = compact(gateway, items, codex="one")
    seen = set()
    for codex in ("one", "two", "two", "one", "two"):
        asked = [item, {"role": "user", "content": f"Go on as {codex}."}]
        status, told, _ = post(gateway, codex=codex, input=asked)
        assert status == 200
        assert "[handoff: log:" in provider.list_sent()[-1]
        seen.add((codex, told["session"]))
    assert len(seen) == 2  # each has a log of its own, and stays in it


def test_a_short_history_is_compacted_too_and_nothing_is_edited(gateway, provider):
    told, item = compact(gateway, [{"role": "user", "content": "Hi."}])
    assert told["edits"] == "0"
    status, _, _ = post(gateway, input=[item, {"role": "user", "content": "Well?"}])
    assert status == 200
    sent = json.loads(provider.list_sent()[-1])["input"]
    assert [one["content"] for one in sent] == ["Hi.", "Well?"]


def test_a_compaction_threshold_is_kept_by_folding_before_it(gateway):
    items = []
    for number in range(8):
        items.append({"role": "user", "content": f"{number}: {PAGE}"})
        managed = [{"type": "compaction", "compact_threshold": 3_000}]
        status, told, body = post(gateway, input=items, context_management=managed)
        assert status == 200
        assert int(told["tokens"]) < 3_000
        items += json.loads(body)["output"]


def test_a_count_is_ours_where_the_upstream_has_none(gateway):
    status, told, body = post(gateway, "/v1/responses/input_tokens", input=PAGE)
    assert (status, told["patches"]) == (200, "count=1")
    assert json.loads(body)["object"] == "response.input_tokens"
    assert 400 < json.loads(body)["input_tokens"] < 900


@pytest.mark.parametrize(
    "state",
    [{"previous_response_id": "resp_of_another"}, {"conversation": "conv_1"}, {"background": True}],
    ids=lambda one: next(iter(one)),
)
def test_what_only_the_server_knows_is_relayed_and_said_once(gateway, state, caplog):
    with caplog.at_level(logging.WARNING, "foldline.gateway"):
        for _ in range(3):
            _, told, _ = post(gateway, input="Go on.", **state)
            assert told["unplanned"] == "server-state"
    said = [one for one in caplog.records if "relayed as they come" in one.message]
    assert len(said) == 1


@contextmanager
def start_relay(upstream, answer):
    """A relay that answers by itself, once, a request that says REFUSE ME."""
    left = [1]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if b"REFUSE ME" in body and left:
                left.pop()
                got = answer(body)
            else:
                headers = {"content-type": "application/json"}
                asked = urllib.request.Request(upstream + self.path, body, headers)  # noqa: S310
                with urllib.request.urlopen(asked, timeout=20) as response:  # noqa: S310
                    got = response.read()
            self.send_response(200)
            kind = "text/event-stream" if got.startswith((b"data:", b"event:")) else "application/json"  # fmt: skip
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(got)))
            self.end_headers()
            for piece in got.splitlines(keepends=True):
                self.wfile.write(piece)
                self.wfile.flush()
                sleep(0.005)  # so that each event comes by itself

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fail_in_stream():
    """A stream that announces an answer, and then says that the input is too long."""
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model. Please adjust your input and try again."}  # fmt: skip
    begun = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "sequence_number": 0, "response": begun}
    yield {"type": "response.in_progress", "sequence_number": 1, "response": begun}
    failed = {**begun, "status": "failed", "error": error}
    yield {"type": "response.failed", "sequence_number": 2, "response": failed}


def test_a_refusal_inside_a_stream_is_healed_too(provider, tmp_path):
    refused = []

    def answer(request):
        text = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in fail_in_stream())
        refused.append(request)
        return text

    with start_relay(provider.url, answer) as relay, Served(relay, store=str(tmp_path / "t.db")) as gateway:  # fmt: skip
        items = talk(gateway, 6)
        status, told, body = post(gateway, input=[*items, {"role": "user", "content": "REFUSE ME"}], stream=True)  # fmt: skip
    assert len(refused) == 1
    assert status == 200
    assert b"response.completed" in body
    assert b"response.failed" not in body
    assert "fold=1" in told["patches"]

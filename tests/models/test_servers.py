"""What servers say of themselves: each shape on a real port, and the real model (A-02, R-07)."""

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from foldline.errors import ModelFailed
from foldline.models.clients import client
from foldline.models.servers import ask, fetch_model_names, fetch_report


@contextmanager
def serving(pages):
    """A server that has these pages: JSON, or bytes as they are."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def entries(**fields):
    return {"/v1/models": {"object": "list", "data": [{"id": "other"}, {"id": "me", **fields}]}}


SAYINGS = {
    "vllm": (entries(max_model_len=32_768), 32_768, "/v1/models max_model_len"),
    "llama.cpp": (
        entries(meta={"n_ctx_train": 131_072})
        | {"/props": {"default_generation_settings": {"n_ctx": 8_192}}},
        8_192,
        "/props default_generation_settings.n_ctx",
    ),
    "llama.cpp, no props": (
        entries(meta={"n_ctx_train": 131_072}),
        131_072,
        "/v1/models meta.n_ctx_train",
    ),
    "lm studio": (
        entries()
        | {
            "/api/v0/models": {
                "data": [{"id": "me", "max_context_length": 40_960, "loaded_context_length": 4_096}]
            }
        },
        4_096,
        "/api/v0/models loaded_context_length",
    ),
    "lm studio, not loaded": (
        entries() | {"/api/v0/models": {"data": [{"id": "me", "max_context_length": 40_960}]}},
        40_960,
        "/api/v0/models max_context_length",
    ),
    "ollama": (
        {
            "/v1/models": {"data": [{"id": "me:latest", "owned_by": "library"}]},
            "/api/ps": {"models": [{"name": "me:latest", "context_length": 16_384}]},
        },
        16_384,
        "/api/ps context_length",
    ),
    "ollama, its own setting": (
        entries()
        | {
            "/api/show": {
                "parameters": "temperature 1\nnum_ctx    12000\n",
                "model_info": {"llama.context_length": 131_072},
            }
        },
        12_000,
        "/api/show num_ctx",
    ),
    "ollama, not loaded": (
        entries() | {"/api/show": {"model_info": {"llama.context_length": 131_072}}},
        131_072,
        "/api/show model_info context_length",
    ),
    "together": (
        {"/v1/models": [{"id": "me", "context_length": 65_536}]},
        65_536,
        "/v1/models context_length",
    ),
}


@pytest.mark.parametrize("name", SAYINGS)
def test_each_server_is_understood(name):
    pages, window, source = SAYINGS[name]
    with serving(pages) as url:
        for base in (url, f"{url}/v1", f"{url}/v1/"):
            said = fetch_report(base, "me")
            assert said is not None
            assert (said.window, said.source) == (window, source)
        assert asyncio.run(ask(url, "ollama/me")) == said


def test_prices_and_the_largest_answer():
    pricing = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}
    top = {"context_length": 200_000, "max_completion_tokens": 64_000}
    with serving(entries(context_length=1_000_000, top_provider=top, pricing=pricing)) as url:
        said = fetch_report(url, "maker/me")
    assert said is not None
    assert (said.window, said.max_output) == (200_000, 64_000)
    assert said.prices is not None
    assert (said.prices.input, said.prices.output, said.prices.read) == (3.0, 15.0, 0.3)
    with serving(entries(context_length=1_000, pricing={"input": 0.2, "output": 0.6})) as url:
        said = fetch_report(url, "me")
    assert said is not None
    assert said.prices is not None
    assert (said.prices.input, said.prices.output) == (0.2, 0.6)


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"/v1/models": b"<html>"},
        {"/v1/models": b"[" * 100_000},
        {"/v1/models": {"data": "many"}},
        {"/v1/models": {"data": [None, 7, {"id": "me", "max_model_len": "large"}]}},
        entries(max_model_len=-1),
        entries(max_model_len=True),
        entries(max_model_len=7, context_length=float("1e30")),
        entries(pricing={"prompt": "-1", "completion": None}),
        entries() | {"/props": {"default_generation_settings": []}, "/api/show": ["x"]},
    ],
)
def test_nonsense_says_nothing(pages):
    with serving(pages) as url:
        assert fetch_report(url, "me") is None


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "file:///etc", "nonsense", "", "http://[::"])
def test_nobody_says_nothing(url):
    assert fetch_report(url, "me", seconds=0.5) is None


@contextmanager
def moved():
    """A server that redirects to a second one: its address, the other's, and what reached each."""
    reached = []

    class Moved(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            reached.append((self.server.server_port, self.headers.get("authorization")))
            self.send_response(307)
            self.send_header("location", f"http://127.0.0.1:{other.server_port}/v1/else")
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Moved) as one,
        ThreadingHTTPServer(("127.0.0.1", 0), Moved) as other,
    ):
        threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            for server in (one, other)
        ]
        for thread in threads:
            thread.start()
        try:
            yield one.server_port, other.server_port, reached
        finally:
            for server in (one, other):
                server.shutdown()


@pytest.mark.parametrize(
    "fetch", [fetch_report, lambda url, _, key: fetch_model_names(url, key=key)]
)
def test_no_key_follows_a_server_to_another(fetch):
    with moved() as (port, _, reached):
        fetch(f"http://127.0.0.1:{port}/v1", "me", key="sk-secret")
    assert reached
    assert {to for to, _ in reached} == {port}
    assert reached[0][1] == "Bearer sk-secret"


@pytest.mark.parametrize("name", ["gpt-6.1-sol", "claude-sonnet-5-5", "gemini-3-pro"])
def test_no_conversation_follows_a_server_to_another(name):
    said = [{"role": "user", "content": "secret words"}]
    request = {"contents": [{"role": "user", "parts": [{"text": "secret words"}]}]}
    request = request if name.startswith("gemini") else {"messages": said}
    request |= {"max_tokens": 9} if name.startswith("claude") else {}

    async def ask_it(port):
        model = client(name, base_url=f"http://127.0.0.1:{port}", api_key="k")
        try:
            await model.say(request)
        finally:
            await model.close()

    with moved() as (port, other, reached), pytest.raises(ModelFailed) as failed:
        asyncio.run(ask_it(port))
    assert f"has moved to http://127.0.0.1:{other}/v1/else" in str(failed.value)
    assert {to for to, _ in reached} == {port}

"""`foldline models` with the user's own file, and beside what a server says."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture
def url():
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            entry = {"id": "gpt-5", "max_model_len": 32_768}
            self.wfile.write(json.dumps({"data": [entry, {"id": "other"}]}).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_is_asked_and_shown_beside(cli, url):
    ended = cli("models", "gpt-5", "--ask", url).tidy()
    assert ended.code == 0
    told = " ".join(ended.out.split())
    assert "window 400,000" in told
    assert "says: window 32,768 (/v1/models max_model_len); its word goes first" in told
    body = cli("models", "gpt-5", "--ask", url, "--json").json
    assert (body["server"]["window"], body["resolved"]["window"]) == (32_768, 400_000)


def test_a_server_that_is_not_there_is_told_so(cli, url):
    ended = cli("models", "gpt-5", "--ask", "http://127.0.0.1:1").tidy()
    assert ended.code == 0
    told = " ".join(ended.out.split())
    way = "start it, or correct --ask"
    assert f"http://127.0.0.1:1 cannot be reached (Connection refused); {way}" in told
    body = cli("models", "gpt-5", "--ask", "http://127.0.0.1:1", "--json").json
    assert way in body["server"]["fault"]
    for there in (url, url.replace("http://", "http://me:secret@")):
        silent = cli("models", "unknown", "--ask", there)
        assert "says nothing of it" in " ".join(silent.out.split())


@pytest.mark.parametrize(
    "given", ["notaurl", "127.0.0.1:8080", "http://", "http://a b/", "http://[x"]
)
def test_what_is_no_address_is_refused(cli, given):
    ended = cli("models", "gpt-5", "--ask", given).tidy()
    assert ended.code == 2
    assert "is no address; write --ask http://127.0.0.1:8080/v1" in ended.err


def test_the_own_file_is_shown(cli, tmp_path, monkeypatch):
    file = tmp_path / "m.toml"
    file.write_text('["gpt-5"]\nwindow = 50_000\n')
    monkeypatch.setenv("FOLDLINE_MODELS", str(file))
    told = " ".join(cli("models", "gpt-5").out.split())
    assert "window 50,000" in told
    assert "your own file says its window" in told
    assert "the catalogue's window is 400,000" in told
    assert cli("models", "gpt-5", "--json").json["resolved"]["own"] == ["window"]
    file.write_text("nonsense")
    ended = cli("models", "gpt-5")
    assert ended.code != 0
    assert "is no TOML" in " ".join(ended.err.split())

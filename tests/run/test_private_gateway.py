"""The process of a run's gateway: what happens while it starts."""

import os
import sys
from contextlib import contextmanager

import pytest

from foldline.apps.run.private_gateway import PrivateGateway
from foldline.errors import BadInput

SERVE = """
import http.server, os, pathlib, signal, socket, sys
tries = pathlib.Path({tries!r})
tries.write_text(tries.read_text() + ("p" if "--plain" in sys.argv else "f"))
{first}
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("", 0), Page, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[-1]))
server.serve_forever()
"""


@contextmanager
def gateway(folder, first):
    """A gateway that does something else first; yields it, and a file of how often it was started."""
    tries, program = folder / "tries", folder / "serve.py"
    tries.write_text("")
    program.write_text(SERVE.format(tries=str(tries), first=first))
    made = PrivateGateway(
        [sys.executable, str(program)], folder / "gateway.log", environment=os.environ
    )
    try:
        yield made, tries
    finally:
        made.stop()


def test_one_that_is_killed_while_it_starts_is_started_again(tmp_path):
    first = "if len(tries.read_text()) < 3: os.kill(os.getpid(), signal.SIGKILL)"
    with gateway(tmp_path, first) as (made, tries):
        made.start()
        assert (made.is_plain, made.restarts, tries.read_text()) == (False, 2, "fff")


def test_one_that_is_always_killed_only_relays_and_says_why(tmp_path):
    first = 'if "--plain" not in sys.argv: os.kill(os.getpid(), signal.SIGKILL)'
    with gateway(tmp_path, first) as (made, tries):
        made.start()
        assert (made.is_plain, made.fault) == (True, "its process was killed (signal 9)")
        assert tries.read_text() == "fffp"


def test_one_that_says_what_is_wrong_is_asked_no_more(tmp_path):
    with gateway(tmp_path, 'sys.exit("foldline: foldline.toml:1: no")') as (made, tries):
        with pytest.raises(BadInput, match=r"^foldline\.toml:1: no$"):
            made.start()
        assert tries.read_text() == "fp"
        made.stop()  # a second time, as a run does in the end: it is no fault


def test_one_that_breaks_shows_the_end_of_its_log(tmp_path):
    with (
        gateway(tmp_path, 'raise ImportError("no _ssl")') as (made, _),
        pytest.raises(BadInput, match=r"(?s)did not start:.*ImportError: no _ssl"),
    ):
        made.start()

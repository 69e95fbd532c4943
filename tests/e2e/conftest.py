"""A real model server for each test run: started here on a free port, ended by its process id."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".rig" / "model" / "bin" / "python"
WINDOW = 2_048
NARROW = 1_024


@dataclass(frozen=True)
class ModelServer:
    """Where the model listens, and what it says of itself."""

    url: str
    window: int

    def post(self, path: str, body: dict) -> dict:
        """Ask the server's own endpoints, beside the SDK."""
        request = urllib.request.Request(  # noqa: S310
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)

    def tokens(self, text: str) -> int:
        """How many tokens a text is to this model."""
        return len(self.post("/tokenize", {"content": text})["tokens"])


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """`foldline` with the extra `chat`, installed from the built wheel; or what `FOLDLINE_PROGRAM` names."""
    if given := os.environ.get("FOLDLINE_PROGRAM"):
        return given
    folder = tmp_path_factory.mktemp("wheel")

    def run(*command):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    run("uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    run("uv", "venv", "--quiet", "--python", sys.executable, "env")
    run(
        "uv", "pip", "install", "--quiet", "--compile-bytecode",
        "--python", folder / "env" / "bin" / "python", f"{wheel}[chat]",
    )  # fmt: skip
    return folder / "env" / "bin" / "foldline"


@pytest.fixture(scope="session")
def model_server(tmp_path_factory) -> Iterator[ModelServer]:
    with serving(tmp_path_factory.mktemp("model")) as server:
        yield server


@pytest.fixture(scope="session")
def terse_server(tmp_path_factory) -> Iterator[ModelServer]:
    """The same model, whose answers are short."""
    with serving(tmp_path_factory.mktemp("terse"), "--longest", "40") as server:
        yield server


@pytest.fixture(scope="session")
def narrow_server(tmp_path_factory) -> Iterator[ModelServer]:
    """The same model with half the window: over it in half the time."""
    with serving(tmp_path_factory.mktemp("narrow"), window=NARROW) as server:
        yield server


@pytest.fixture
def endless_server(tmp_path) -> Iterator[ModelServer]:
    """The same model, which never comes to an end: what it is asked decides nothing."""
    with serving(tmp_path, "--longest", "1000", "--endless") as server:
        yield server


@contextmanager
def serving(folder: Path, *options: str, window: int = WINDOW) -> Iterator[ModelServer]:
    """The server, in a process of its own."""
    if not PYTHON.exists():
        pytest.fail("the model's environment is missing; make it with: just model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    command = [
        PYTHON,
        Path(__file__).with_name("local_model.py"),
        "--port",
        str(port),
        "--window",
        str(window),
        "--threads",
        "1"
        if "PYTEST_XDIST_WORKER" in os.environ
        else "2",  # two that share cores wait for each other
        *options,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        )
    try:
        server = ModelServer(f"http://127.0.0.1:{port}", window)
        for _ in range(300):
            if process.poll() is not None:
                break
            try:
                urllib.request.urlopen(server.url + "/health", timeout=5).close()  # noqa: S310
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                yield server
                return
        pytest.fail(f"the model server did not start:\n{log.read_text(errors='replace')[-2000:]}")
    finally:
        process.terminate()
        process.wait(timeout=20)

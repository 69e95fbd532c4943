"""What the programs in this folder share: the turns, the shell tool, Foldline's options, and a recording.

A turn is a line of JSON on standard input, and its result one on standard output, as Claude Code's stream-json.
With AGENT_WINDOW the client goes through Foldline; without it the same program runs plain.
"""

import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import foldline

BASE, KEY = os.environ["AGENT_BASE"], os.environ["AGENT_KEY"]
CLIENT = {"base_url": f"{BASE}/v1", "api_key": KEY, "max_retries": 0}
"""What an OpenAI client is made with."""
SYSTEM = "You are a coding agent. Use bash."
GPT, CLAUDE, GEMINI = "gpt-5", "claude-sonnet-4-5", "gemini-3-pro-preview"
IS_PLAIN = "AGENT_WINDOW" not in os.environ
_RECORDING = Path(os.environ["AGENT_RECORDING"])


def run_bash(command: str) -> str:
    """Run a command."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout  # noqa: PLW1510, S607


def list_options() -> dict[str, Any]:
    """Foldline's options."""
    return {"store": os.environ["AGENT_STORE"], "window": int(os.environ["AGENT_WINDOW"])}


def wrap_client(client: Any, **more: Any) -> Any:
    """An SDK's client through Foldline, or as it is; what it is told to send is recorded."""
    wrapped = client if IS_PLAIN else foldline.wrap(client, **list_options(), **more)
    google = getattr(wrapped, "_api_client", None)
    record_requests(google._async_httpx_client if google else wrapped._client)
    return wrapped


def make_http_client(*, is_async: bool = False) -> Any:
    """An HTTP client through Foldline, or a plain one; what it is told to send is recorded."""
    if IS_PLAIN:
        import openai  # noqa: PLC0415 - not every framework brings it

        client = openai.DefaultAsyncHttpxClient() if is_async else openai.DefaultHttpxClient()
    else:
        make = foldline.async_http_client if is_async else foldline.http_client
        client = make(**list_options())
    record_requests(client)
    return client


def record_requests(http_client: Any) -> None:
    """Write each request as the framework sent it, before Foldline sees it, and what came back.

    Each is numbered in a header, which finds it again at the upstream.
    """
    numbers = count(1)

    def number(request: Any) -> None:
        request.headers["x-tap"] = str(next(numbers))

    def write(response: Any) -> None:
        request = response.request
        exchange = {
            "number": int(request.headers["x-tap"]),
            "path": request.url.path,
            "raw": request.content.decode(),
            "status": response.status_code,
            "answer": response.text,
        }
        with _RECORDING.open("a") as file:
            file.write(json.dumps(exchange) + "\n")

    def read_and_write(response: Any) -> None:
        response.read()
        write(response)

    async def number_async(request: Any) -> None:
        number(request)

    async def read_and_write_async(response: Any) -> None:
        await response.aread()
        write(response)

    is_async = hasattr(http_client, "aclose")
    on_request = number_async if is_async else number
    on_response = read_and_write_async if is_async else read_and_write
    http_client.event_hooks = {"request": [on_request], "response": [on_response]}


def take_turns(take_turn: Callable[[str], str | Coroutine[Any, Any, str]]) -> None:
    """Take a turn for each line of standard input; coroutines all in one event loop."""
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            try:
                said = take_turn(json.loads(line)["message"]["content"])
                text, is_error = (runner.run(said) if inspect.iscoroutine(said) else said), False
            except Exception as error:  # noqa: BLE001 - whatever the framework raises is the turn's result
                text, is_error = repr(error), True
            print(json.dumps({"type": "result", "is_error": is_error, "result": text}), flush=True)

"""A loop of our own over litellm: `litellm_agent.py [stream]`; streamed it is also async."""

import json
import sys
from typing import Any

import litellm
from job import CLIENT, GPT, SYSTEM, run_bash, take_turns, wrap_client
from openai import AsyncOpenAI, OpenAI

IS_STREAM = "stream" in sys.argv
client = wrap_client((AsyncOpenAI if IS_STREAM else OpenAI)(**CLIENT))
_COMMAND = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}
_BASH = {"name": "bash", "description": "Run a command.", "parameters": _COMMAND}
FIXED: dict[str, Any] = {
    "model": f"openai/{GPT}",
    "tools": [{"type": "function", "function": _BASH}],
    "client": client,
    "max_retries": 0,
}
messages: list[Any] = [{"role": "system", "content": SYSTEM}]


def run_calls(answer: Any) -> bool:
    """Keep the answer and the results of its calls; whether there were any."""
    said = answer.choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    for call in said.tool_calls or ():
        printed = run_bash(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": printed})
    return bool(said.tool_calls)


def take_turn(prompt: str) -> str:
    """Call tools until the model answers, and give the answer."""
    messages.append({"role": "user", "content": prompt})
    while run_calls(litellm.completion(messages=messages, **FIXED)):
        pass
    return messages[-1]["content"]


async def stream_turn(prompt: str) -> str:
    """The same by pieces."""
    messages.append({"role": "user", "content": prompt})
    goes_on = True
    while goes_on:
        stream = await litellm.acompletion(messages=messages, stream=True, **FIXED)
        pieces = [piece async for piece in stream]
        goes_on = run_calls(litellm.stream_chunk_builder(pieces))
    return messages[-1]["content"]


take_turns(stream_turn if IS_STREAM else take_turn)

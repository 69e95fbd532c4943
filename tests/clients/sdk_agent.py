"""An agent of our own over Anthropic's SDK: streamed, with thinking and one tool.

A turn is a line of JSON on standard input, and its result one on standard output, as Claude Code's stream-json.
"""

import json
import os
import subprocess
import sys
from typing import Any

import anthropic

_COMMAND = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}
FIXED: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 8_000,
    "system": "You are a coding agent. Use bash.",
    "thinking": {"type": "enabled", "budget_tokens": 2_000},
    "tools": [{"name": "bash", "description": "Run a command.", "input_schema": _COMMAND}],
}


def take_turn(client: anthropic.Anthropic, messages: list[Any], prompt: str) -> str:
    """Call tools until the model answers, and give the answer."""
    messages.append({"role": "user", "content": prompt})
    while True:
        with client.messages.stream(messages=messages, **FIXED) as stream:
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": [one.to_dict() for one in answer.content]})
        calls = [one for one in answer.content if one.type == "tool_use"]
        if not calls:
            return answer.content[-1].text
        results = []
        for call in calls:
            printed = subprocess.check_output(["bash", "-c", call.input["command"]], text=True)  # noqa: S607
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": printed})
        messages.append({"role": "user", "content": results})


def main() -> None:
    """Take a turn for each line of standard input."""
    base, key = os.environ["AGENT_BASE"], os.environ["AGENT_KEY"]
    client = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0)
    messages: list[Any] = []
    for line in sys.stdin:
        try:
            text, is_error = (
                take_turn(client, messages, json.loads(line)["message"]["content"]),
                False,
            )
        except anthropic.AnthropicError as error:
            text, is_error = str(error), True
        print(json.dumps({"type": "result", "is_error": is_error, "result": text}), flush=True)


if __name__ == "__main__":
    main()

"""Your own loop with one tool, over OpenAI chat: Foldline is three lines of it.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/loop_openai.py "What is examples/README.md about?"

OPENAI_BASE_URL names any server that speaks OpenAI chat, MODEL another model than gpt-6-luna.
"""

import json
import os
import sys
from pathlib import Path

from openai import OpenAI

import foldline

HERE = Path(__file__).parent
TASK = sys.argv[1] if len(sys.argv) > 1 else "What is in README.md? Look, then say it in a line."
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "The text of a file of this folder.",
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}


def read(name: str) -> str:
    """What the tool does: files of this folder, and no others."""
    path = HERE / Path(name).name
    return path.read_text() if path.is_file() else f"there is no file {name!r} here"


client = OpenAI()
s = foldline.open(  # 1: a log, in memory or in a file
    ":memory:", model=os.environ.get("MODEL", "gpt-6-luna"), system="Be brief.", tools=[TOOL]
)
s.add(TASK)
while True:
    reply = s.create(client)  # 2: planned, so it fits; the answer goes in
    message = reply.choices[0].message
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        if call.type != "function":
            continue
        print("call:", call.function.name, call.function.arguments)
        words = read(json.loads(call.function.arguments).get("name", ""))
        s.add({"role": "tool", "tool_call_id": call.id, "content": words})  # 3: and so do results
print("answer:", message.content)
print("window:", s.report)

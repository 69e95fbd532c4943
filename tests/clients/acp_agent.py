"""gemini-cli as editors run it, one process for all turns: `acp_agent.py PROGRAM MODEL`.

A turn is a line of JSON on standard input, and its result one on standard output, as Claude Code's stream-json.
Between us and the agent are the messages of the Agent Client Protocol, JSON-RPC by lines.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_numbers = itertools.count()


def call(agent: subprocess.Popen, method: str, **params: Any) -> tuple[dict[str, Any], str]:
    """Call a method of the agent; its result, and what the agent said meanwhile."""
    number, text = next(_numbers), ""
    asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    agent.stdin.write(json.dumps(asked) + "\n")
    agent.stdin.flush()
    for line in agent.stdout:
        if not line.startswith("{"):  # it warns of its terminal there
            continue
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            if "error" in message:
                raise RuntimeError(message["error"])
            return message["result"], text
        update = (message.get("params") or {}).get("update") or {}
        if update.get("sessionUpdate") == "agent_message_chunk":
            text += update["content"].get("text", "")
    raise RuntimeError("the agent has ended")


def main() -> None:
    """Take a turn for each line of standard input."""
    program, model = sys.argv[1:]
    pipe = subprocess.PIPE
    command = [program, "--acp", "-m", model, "--yolo", "--skip-trust"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as agent:
        call(agent, "initialize", protocolVersion=1, clientCapabilities={})
        session, _ = call(agent, "session/new", cwd=str(Path.cwd()), mcpServers=[])
        for line in sys.stdin:
            prompt = [{"type": "text", "text": json.loads(line)["message"]["content"]}]
            try:
                _, text = call(
                    agent, "session/prompt", sessionId=session["sessionId"], prompt=prompt
                )
                is_error = False
            except RuntimeError as error:
                text, is_error = str(error), True
            print(json.dumps({"type": "result", "is_error": is_error, "result": text}), flush=True)
        agent.stdin.close()


if __name__ == "__main__":
    main()

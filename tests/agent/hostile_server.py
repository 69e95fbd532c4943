"""An MCP server over stdio that does whatever servers should not do; no SDK, one line a message.

python hostile_server.py NOTES [WAY]: NOTES is a file to which it writes each start and each cancel;
WAY is how it starts: well, dead, mute, garbage, once (dead from its second start on).
"""

import base64
import json
import os
import sys
import time
from pathlib import Path

NOTES = Path(sys.argv[1])
WAY = sys.argv[2] if len(sys.argv) > 2 else "well"
PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    + (3000).to_bytes(4) * 2
    + b"\x08\x02\0\0\0"
    + b"\x07" * (5 * 2**20)
)
ODD = [
    {"type": "text", "text": "plain \U0001f600"},
    {"type": "audio", "data": base64.b64encode(b"RIFF1234").decode(), "mimeType": "audio/wav"},
    {"type": "image", "data": "*** no base64 ***", "mimeType": "image/png"},
    {"type": "image", "data": "AAAA", "mimeType": "text/html"},
    {"type": "image", "data": "", "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
    {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "JVBERg=="}},
    {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "description": "a link"},
    {"type": "hologram", "frames": [1, 2, 3]},
    {"type": "text", "text": 5},
]  # fmt: skip
tools = ["echo", "die", "hang", "doze", "big", "picture", "deep", "odd", "structured", "twice", "wrong", "grow", "chatter", "refuse", "*", "naïve tool"]  # fmt: skip


def note(words):
    with NOTES.open("a") as file:
        file.write(words + "\n")


def send(body):
    sys.stdout.write(
        (body if isinstance(body, str) else json.dumps({"jsonrpc": "2.0", **body})) + "\n"
    )
    sys.stdout.flush()


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def answer(number, name, given):
    match name:
        case "die":
            sys.stderr.write("I am dying\n")
            os._exit(3)
        case "doze":
            note("dozing")
            time.sleep(3600)
        case "hang":
            note("hanging")
            return
        case "big":
            result = text("0123456789abcde\n" * (10 * 2**16))
        case "picture":
            result = {"content": [{"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}]}  # fmt: skip
        case "deep":
            depth = given.get("depth", 100_000)
            nested = '{"a":' * depth + "1" + "}" * depth
            result = f'{{"content":[],"structuredContent":{nested}}}'
            if given.get("last"):
                send(f'{{"result":{result},"jsonrpc":"2.0","id":{number}}}')
            else:
                send(f'{{"jsonrpc":"2.0","id":{number},"result":{result}}}')
            return
        case "odd":
            result = {"content": ODD}
        case "structured":
            result = {"structuredContent": {"rows": [1, 2]}}
        case "twice":
            result = {**text('{"rows": [1, 2]}'), "structuredContent": {"rows": [1, 2]}}
        case "wrong":
            result = {**text("no such row"), "isError": True}
        case "grow":
            tools.append(f"grown{len(tools)}")
            send({"method": "notifications/tools/list_changed"})
            result = text("grown")
        case "chatter":
            send("this is no JSON")
            send('{"jsonrpc": "2.0"')
            send("[1, 2")
            result = text("chattered")
        case "refuse":
            send({"id": number, "error": {"code": -32602, "message": "not with these arguments"}})
            return
        case _:
            result = text(
                json.dumps([name, given, os.environ.get("SECRET", "-"), "HOME" in os.environ])
            )
    send({"id": number, "result": result})


def listed():
    schema = {"type": "object", "properties": {"words": {"type": "string"}}}
    hints = {"readOnlyHint": True}
    demands = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    return [
        {"name": name, "description": f"It does {name}.", "inputSchema": schema}
        | ({"annotations": hints} if name == "echo" else {})
        | ({"outputSchema": demands} if name == "structured" else {})
        for name in tools
    ]


note(f"started {os.getpid()}")
if WAY == "dead" or (WAY == "once" and NOTES.read_text().count("started") > 1):
    sys.stderr.write("no licence found\n")
    sys.exit(1)
if WAY == "mute":
    time.sleep(3600)
if WAY == "garbage":
    for _ in range(1000):
        sys.stdout.write("Welcome to the \x1b[31mserver\x1b[0m!\n")
for line in sys.stdin:
    message = json.loads(line)
    number, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "initialize":
            about = {"name": "hostile", "version": "1"}
            able = {"tools": {"listChanged": True}}
            send({"id": number, "result": {"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about}})  # fmt: skip
        case "tools/list":
            send({"id": number, "result": {"tools": listed()}})
        case "tools/call":
            answer(number, params["name"], params.get("arguments", {}))
        case "notifications/cancelled":
            note("cancelled")
        case _ if number is not None:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})

"""The recorded sessions that several benches read, by name.

Knows the files of the shared folder, and how messages become events. Refuses to know what is measured on them.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from made.generated import generate_coding_session

from foldline.core.log import Event, Instructed, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Call, Text
from foldline.importers import read
from foldline.lab.recorded import Recorded, convert_imported


def text(shared: Path, name: str) -> str:
    """A recorded file."""
    with gzip.open(shared / "data" / name, "rt") as file:
        return file.read()


def join_sessions(name: str, sessions: Sequence[Recorded]) -> Recorded:
    """Join several sessions into one; each continues with its first user message."""
    first, *rest = sessions
    more = (
        event
        for session in rest
        for event in session.events
        if not isinstance(event, Opened | Instructed)
    )
    return Recorded(name, first.model, (*first.events, *more))


def swe(shared: Path) -> Recorded:
    """The 22 SWE-agent runs as one session."""
    runs = read(text(shared, "swe_agent_demo_trajs.jsonl.gz"), "swe.jsonl")
    return join_sessions("swe, 22 runs", [convert_imported(one) for one in runs])


def chats(shared: Path) -> list[Recorded]:
    """Every tau-bench chat, in the file's order."""
    body = text(shared, "tau_bench_gpt4o_airline.json.gz")
    return [convert_imported(one) for one in read(body, "tau.json")]


def pi(shared: Path, which: str) -> Recorded:
    """A real session of the `pi` agent: opus45 or sonnet45."""
    file = f"pi_session_{which}.jsonl"
    return convert_imported(read(text(shared, f"{file}.gz"), file)[0])


def by_name(name: str, shared: Path) -> Recorded:
    """`swe`, `tau:N` (40 chats from the Nth on as one), `pi:opus45`, `pi:sonnet45` or `coding:SEED`."""
    kind, _, which = name.partition(":")
    match kind:
        case "swe":
            found = swe(shared)
        case "tau":
            first = int(which)
            found = join_sessions(name, chats(shared)[first : first + 40])
        case "pi":
            found = pi(shared, which)
        case "coding":
            found = generate_coding_session(int(which)).recorded
        case _:
            raise SystemExit(f"no session is called {name!r}")
    return replace(found, name=name)


def events_of(messages: Sequence[dict[str, Any]]) -> Iterator[Event]:
    """Messages of Chat Completions, as a log has them."""
    for one in messages:
        match one["role"]:
            case "user":
                yield UserSaid((Text(one["content"]),))
            case "tool":
                yield ToolReturned(one["tool_call_id"], (Text(one["content"]),))
            case _:
                calls = [
                    Call(call["id"], call["function"]["name"], call["function"]["arguments"])
                    for call in one.get("tool_calls") or ()
                ]
                text = [Text(one["content"])] if one.get("content") else []
                yield ModelSaid((*text, *calls))

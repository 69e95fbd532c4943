"""Real sessions of six kinds: all of each is there, counted as its file counts, and can be sent.

Run with `-s` to see what each file gave and what it could not.
"""

import gzip
import json
import re
from collections import Counter

import pytest

from foldline.core import log, rules
from foldline.core.log import (
    Checkpointed,
    Instructed,
    Interrupted,
    ModelSaid,
    ModelSwitched,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Text, Thought, calls_of
from foldline.core.request import render
from foldline.dialects import openai_chat as wire
from foldline.importers import read
from foldline.testing import view_of

SEPARATOR = re.compile(r"^===== record \d+ =====$", re.MULTILINE)


def opened(shared, name):
    with gzip.open(shared / "data" / name, "rt") as file:
        return file.read()


def traced(shared, name):
    """A trace's records as the agent's own lines."""
    records = SEPARATOR.split(opened(shared, f"tracelab_{name}_trace.json.gz"))[1:]
    return [json.loads(record) for record in records]


def sendable(session):
    """The view of a session, closed, is one that every provider takes; its events keep."""
    for event in session.events:
        assert log.decode_event(log.encode_event(event)) == event
    view = view_of(session.events)
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    rules.check_view(view)
    assert wire.list_faults(json.loads(wire.encode_request(render(view), {}))["messages"]) == []


def told(sessions, *kinds):
    """Every text of some kinds of events."""
    return Counter(
        part.text
        for session in sessions
        for event in session.events
        if isinstance(event, kinds)
        for part in event.parts
        if isinstance(part, Text)
    )


def of(session, kind):
    return [event for event in session.events if isinstance(event, kind)]


def show(name, sessions):
    kinds = Counter(log.event_kind_of(event) for session in sessions for event in session.events)
    notes = Counter()
    for note in (note for session in sessions for note in session.notes):
        what, _, number = re.sub(r" \(first: .*\)$", "", note).rpartition(": ")
        notes[what] += int(number)
    print(f"\n{name}: {len(sessions)} sessions, {dict(kinds)}; not carried: {dict(notes)}")


def test_every_chat_of_tau_bench(shared):
    text = opened(shared, "tau_bench_gpt4o_airline.json.gz")
    sessions = read(text, "tau.json")
    show("tau-bench", sessions)
    assert len(sessions) == 200
    messages = [message for run in json.loads(text) for message in run["traj"]]
    for role, kind in (("user", UserSaid), ("tool", ToolReturned), ("system", Instructed)):
        assert told(sessions, kind) == Counter(m["content"] for m in messages if m["role"] == role)
    spoken = Counter(m["content"] for m in messages if m["role"] == "assistant" and m["content"])
    assert +told(sessions, ModelSaid) == spoken
    assert not any(of(session, Interrupted) or session.notes for session in sessions)
    for session in sessions:
        sendable(session)


def test_every_run_of_swe_agent(shared):
    text = opened(shared, "swe_agent_demo_trajs.jsonl.gz")
    runs = [json.loads(line) for line in text.splitlines()]
    sessions = read(text, "runs.jsonl")
    show("SWE-agent", sessions)
    assert [session.name for session in sessions] == [run["id"] for run in runs]
    for run, session in zip(runs, sessions, strict=True):
        steps = run["trajectory"]
        assert [e.parts[0].text for e in of(session, ToolReturned)] == [
            step["observation"] for step in steps
        ]
        calls = [call for e in of(session, ModelSaid) for call in calls_of(e.parts)]
        assert [json.loads(call.arguments)["command"] for call in calls] == [
            step["action"] for step in steps
        ]
        roles = [message["role"] for message in run["history"]]
        first = run["history"][: roles.index("assistant")]
        assert told([session], Instructed, UserSaid) >= Counter(m["content"] for m in first)
        if not steps:
            seen = told([session], UserSaid, ModelSaid, Instructed)
            assert seen == Counter(message["content"] for message in run["history"])
        sendable(session)
    assert sum(len(of(session, ToolReturned)) for session in sessions) == 227


@pytest.mark.parametrize(
    ("name", "calls", "paid", "apart"),
    [("opus45", 484, 42.60, (2, 5)), ("sonnet45", 453, 30.33, (0, 2))],
)
def test_sessions_of_pi(shared, name, calls, paid, apart):
    """A-40, R-43: every call's usage, and their sum is what the file counts."""
    text = opened(shared, f"pi_session_{name}.jsonl.gz")
    records = [json.loads(line) for line in text.splitlines()]
    (session,) = sessions = read(text, name)
    show(f"pi {name}", sessions)
    messages = [record["message"] for record in records if record["type"] == "message"]
    usages = [message["usage"] for message in messages if message["role"] == "assistant"]
    reports = of(session, UsageReported)
    assert len(reports) == len(usages) == len(of(session, ModelSaid)) == calls
    assert sum(one["cost"]["total"] for one in usages) == pytest.approx(paid, abs=0.005)
    for field, keys in (
        ("input", ("input", "cacheRead", "cacheWrite")),
        ("cache_read", ("cacheRead",)),
        ("cache_write", ("cacheWrite",)),
        ("output", ("output",)),
    ):
        truth = sum(one[key] for one in usages for key in keys)
        print(f"  {field}: {truth:,}")
        assert sum(getattr(report, field) for report in reports) == truth
    for role, kind in (("user", UserSaid), ("toolResult", ToolReturned), ("assistant", ModelSaid)):
        texts = Counter(
            block["text"]
            for message in messages
            if message["role"] == role
            for block in message["content"]
            if block["type"] == "text"
        )
        assert told(sessions, kind) >= texts
    ran = [message for message in messages if message["role"] == "bashExecution"]
    shell = [e.parts[0].text for e in of(session, UserSaid) if e.author == "shell"]
    assert all(one["output"] in said for one, said in zip(ran, shell, strict=True))
    signed = [
        block["thinkingSignature"]
        for message in messages
        if message["role"] == "assistant"
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    parts = [part for event in of(session, ModelSaid) for part in event.parts]
    assert [part.signature for part in parts if isinstance(part, Thought)] == signed
    kept = Counter(event.label for event in of(session, Checkpointed))
    assert (kept["compaction"], len(of(session, ModelSwitched))) == apart
    assert kept["thinking"] == 1 + sum(r["type"] == "thinking_level_change" for r in records)
    sendable(session)


def test_a_trace_of_claude_code(shared):
    records = traced(shared, "claude")
    sessions = read("\n".join(map(json.dumps, records)))
    show("Claude Code", sessions)
    (session,) = sessions
    messages = [record["message"] for record in records if "message" in record]
    usages = {m["id"]: m["usage"] for m in messages if m["role"] == "assistant"}
    assert len(of(session, ModelSaid)) == len(of(session, UsageReported)) == len(usages) == 10
    inside = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert sum(report.input for report in of(session, UsageReported)) == sum(
        usage[key] for usage in usages.values() for key in inside
    )
    blocks = [block for m in messages if isinstance(m["content"], list) for block in m["content"]]
    results = Counter(block["content"] for block in blocks if block["type"] == "tool_result")
    assert told(sessions, ToolReturned) == results
    assert results.total() == 9
    said = Counter(m["content"] for m in messages if isinstance(m["content"], str))
    assert told(sessions, UserSaid) == said
    spoken = Counter(block["text"] for block in blocks if block["type"] == "text")
    assert told(sessions, ModelSaid) == spoken
    parts = [part for event in of(session, ModelSaid) for part in event.parts]
    assert [part.signature for part in parts if isinstance(part, Thought)] == [
        block["signature"] for block in blocks if block["type"] == "thinking"
    ]
    assert session.model == "anthropic/claude-opus-4-8"
    assert not of(session, Interrupted)
    sendable(session)


def test_a_trace_of_codex(shared):
    records = traced(shared, "codex")
    sessions = read("\n".join(map(json.dumps, records)))
    show("Codex", sessions)
    (session,) = sessions
    items = [record["payload"] for record in records if record["type"] == "response_item"]
    outputs = Counter(item["output"] for item in items if item["type"] == "function_call_output")
    assert told(sessions, ToolReturned) == outputs
    texts = {
        role: Counter(
            block["text"]
            for item in items
            if item["type"] == "message" and item["role"] == role
            for block in item["content"]
        )
        for role in ("user", "assistant", "developer")
    }
    assert told(sessions, UserSaid) == texts["user"]
    assert told(sessions, ModelSaid) == texts["assistant"]
    base = records[0]["payload"]["base_instructions"]["text"]
    view = view_of(session.events)
    assert [part.text for part in view.newest.parts] == [base, *texts["developer"]]
    totals = [
        record["payload"]["info"]["total_token_usage"]
        for record in records
        if record["payload"].get("type") == "token_count"
    ]
    reports = of(session, UsageReported)
    assert len(reports) == len(of(session, ModelSaid)) == 9
    for field, key in (
        ("input", "input_tokens"),
        ("cache_read", "cached_input_tokens"),
        ("output", "output_tokens"),
        ("reasoning", "reasoning_output_tokens"),
    ):
        assert sum(getattr(report, field) for report in reports) == totals[-1][key]
    calls = [call for event in of(session, ModelSaid) for call in calls_of(event.parts)]
    assert calls == [
        Call(item["call_id"], item["name"], item["arguments"])
        for item in items
        if item["type"] == "function_call"
    ]
    sendable(session)

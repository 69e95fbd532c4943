"""A model is told to recall what was cut only where it has a tool for that; broken variants are caught."""

import json
import re
from contextlib import suppress

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

import foldline
from foldline.core.log import ModelSaid, ToolReturned
from foldline.core.parts import Call, Text
from foldline.testing.provider import Provider

LEADS_BACK = re.compile(r"\[(?:cut; )?whole: |\brecall")
CUT = re.compile(
    r"^\[(?:truncated|result masked|taken out|conversation truncated|handoff: )", re.MULTILINE
)
WORDS = st.integers(2, 900).map(lambda n: " ".join(f"value_{n}_{at}" for at in range(n)))
POLICIES = ["steady", "thrifty", "three-layer", "classic", "sliding", "window", "confirm"]


def list_texts(node):
    """Every text in a request's JSON but its tools."""
    match node:
        case str():
            yield node
        case list():
            for one in node:
                yield from list_texts(one)
        case dict():
            for one in node.values():
                yield from list_texts(one)


def must_lead_back_only_with_a_tool(request):
    """Check a request; return whether something was cut in it."""
    names = [json.dumps(tool) for tool in request.get("tools") or []]
    texts = [*list_texts(request["messages"])]
    if any('"recall"' in name for name in names):
        for text in texts:
            if CUT.search(text):
                assert LEADS_BACK.search(text), text
    else:
        assert not [text for text in texts if LEADS_BACK.search(text)]
    return any(CUT.search(text) for text in texts)


def run_session(policy, steps, *, offered):
    tools = [foldline.RECALL_TOOL] if offered else []
    cut = 0
    with foldline.open(":memory:", model="m", window=3_000, reserve=100, policy=policy, tools=tools) as s:  # fmt: skip
        for at, (kind, words) in enumerate(steps):
            if kind == "user":
                s.add(words)
            else:
                s.add(
                    ModelSaid((Call(f"c{at}", "bash", json.dumps({"cmd": f"cat file_{at}.py"})),))
                )
                s.add(ToolReturned(f"c{at}", (Text(words),), ok=at % 3 > 0))
            with suppress(foldline.Overflow):
                cut += must_lead_back_only_with_a_tool(s.request())
                s.add({"role": "assistant", "content": f"done {at}"})
        if s.history.turns():
            with suppress(foldline.FoldlineError):
                s.history.exclude(s.add("a secret"))
                cut += must_lead_back_only_with_a_tool(s.request())
    return cut


MANY = [("user" if at % 4 == 0 else "result", f"value_{at} " * 400) for at in range(16)]
LONG = [("result", f"value_{at} " * 60) for at in range(14)]
"""One turn of many calls, of which `three-layer` masks the oldest."""
STEPS = st.lists(st.tuples(st.sampled_from(["user", "result", "result"]), WORDS), min_size=2, max_size=12)  # fmt: skip


@given(policy=st.sampled_from(POLICIES), steps=STEPS, offered=st.booleans())
def test_a_session_leads_back_only_with_a_tool(policy, steps, offered):
    run_session(policy, steps, offered=offered)


@pytest.mark.parametrize("offered", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_preset_cuts_here(policy, offered):
    """The property above is about something."""
    assert run_session(policy, MANY, offered=offered)


@pytest.mark.parametrize("offered", [False, True])
def test_a_clients_conversation_leads_back_only_with_a_tool(offered):
    """Also in the very request from which on the tool is offered."""
    with Provider(window=3_000) as provider:
        with foldline.http_client(
            httpx.Client(), window=3_000, reserve=100, recall=offered
        ) as http:
            said = [{"role": "user", "content": "Look around."}]
            for at in range(8):
                call = {
                    "id": f"c{at}",
                    "type": "function",
                    "function": {"name": "bash", "arguments": "{}"},
                }
                said += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": f"c{at}", "content": f"value_{at} " * 700},
                ]
                tools = [
                    {
                        "type": "function",
                        "function": {"name": "bash", "parameters": {"type": "object"}},
                    }
                ]
                http.post(f"{provider.url}/v1/chat/completions", json={"model": "m", "messages": said, "tools": tools})  # fmt: skip
        cut = [must_lead_back_only_with_a_tool(json.loads(body)) for body in provider.bodies]
    assert sum(cut) > 3


MUTANTS = [
    ("foldline.core.item", "recall=event.clip.recall", "recall=True"),
    ("foldline.core.ledger.fact_pages", "_TITLES[kind] if recall else", "_TITLES[kind] if True else"),
    ("foldline.core.plan", "mask.mask_results(view, free, recall=offers_recall(view, facts))", "mask.mask_results(view, free)"),
    ("foldline.core.plan", "    return facts.recall or bool(find_recall_tool(view.newest.tools))", "    return facts.recall"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(MUTANTS)))
def test_the_law_catches(index):
    module, line, instead = MUTANTS[index]

    def is_caught():
        for policy in POLICIES:
            for offered in (False, True):
                try:
                    run_session(policy, MANY, offered=offered)
                    run_session(policy, LONG, offered=offered)
                except AssertionError:
                    return True
        return False

    with broken(module, line, instead):
        assert is_caught()

"""Law 4 where a request ends with the model's own words: paused, begun for it, cut, or simply done.

The requests are those that a session gives, not only the blocks of a view: what is put behind the
last answer, so that a provider takes the request, is part of the prefix from then on.
"""

import json

from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.dialects import anthropic

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}  # fmt: skip
MODELS = ["claude-sonnet-4-5", "claude-opus-4-6", "claude-3-haiku-20240307", "anthropic/claude-new"]


def answer(stop, *blocks):
    """An answer as the API gives it."""
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "c", "content": [*blocks],
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def text(words):
    return {"type": "text", "text": words}


def numbered(said, number):
    """A message whose calls have an id of their own."""
    if isinstance(said, str) or isinstance(said["content"], str):
        return said
    own = {"id": f"srvtoolu_{number}"}
    return {**said, "content": [{**one, **(own if "id" in one else {})} for one in said["content"]]}


STEPS = st.one_of(
    st.builds(lambda words: ("add", words), WORDS),
    st.builds(lambda words: ("add", {"role": "user", "content": words}), WORDS),
    st.builds(lambda words: ("add", {"role": "assistant", "content": words}), WORDS),
    st.builds(
        lambda stop, words: ("add", answer(stop, text(words))),
        st.sampled_from(["end_turn", "max_tokens", "pause_turn", "stop_sequence", "refusal"]),
        WORDS,
    ),
    st.just(("add", answer("pause_turn", text("Let me look."), SEARCH))),
    st.just(("add", {"role": "assistant", "content": [SEARCH]})),
    st.builds(lambda words: ("result", words), WORDS),
    st.just(("request", {})),
    st.just(("request", {"thinking": {"type": "enabled", "budget_tokens": 1_024}})),
)


def said(request):
    """The fixed parts, and every block with who says it, without cache marks."""
    found = []
    for message in request["messages"]:
        content = message["content"]
        for block in [text(content)] if isinstance(content, str) else content:
            kept = {key: value for key, value in block.items() if key != "cache_control"}
            found.append((message["role"], json.dumps(kept, sort_keys=True)))
    return (request.get("system"), request.get("tools")), found


@given(st.sampled_from(MODELS), st.lists(STEPS, max_size=14))
def test_a_request_begins_with_the_one_before(model, steps):
    with foldline.open(":memory:", model=model, system="Be brief.", window=100_000) as s:
        s.add("go")
        before, found = None, []
        for number, (verb, given_) in enumerate([*steps, ("request", {}), ("add", "next"), ("request", {})]):  # fmt: skip
            if verb == "add":
                s.add(numbered(given_, number))
            elif verb == "result":
                call = {"type": "tool_use", "id": f"t{number}", "name": "run", "input": {}}
                s.add({"role": "assistant", "content": [call]})
                result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [text(given_)]}  # fmt: skip
                s.add({"role": "user", "content": [result]})
            else:
                request = s.request(**given_)
                fixed, blocks = said(request)
                wrong = anthropic.list_faults(request["messages"], system=request["system"])
                assert [one for one in wrong if not one.startswith("last")] == []
                if before is not None:
                    assert fixed == before[0]
                    assert blocks[: len(found)] == found, "what was sent is sent again"
                before, found = (fixed, blocks), blocks

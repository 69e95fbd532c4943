"""The comparison of what a client sent with what came: it lets patches pass, and nothing else."""

import json

import pytest
from comparison import Kept, compare_prefixes, compare_requests, count_new_bytes, split

MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "a line that a tool printed\n" * 50
HANDOFF = {
    "role": "user",
    "content": [{"type": "text", "text": "[handoff: log:0-3 was folded]\n…", **MARK}],
}
STUB = "[result masked — ~300 tokens removed]\n[whole: log:2; exit 0]"


def make_request() -> dict:
    """A request with two rounds of a tool."""
    messages = [{"role": "user", "content": "Begin."}]
    for n in range(2):
        thought = {"type": "thinking", "thinking": f"hm {n}", "signature": "s"}
        call = {"type": "tool_use", "id": f"c{n}", "name": "bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{n} {LONG}"}
        messages.append({"role": "assistant", "content": [thought, call]})
        messages.append({"role": "user", "content": [result]})
    thinking = {"type": "enabled", "budget_tokens": 900}
    return {
        "model": "m",
        "max_tokens": 1000,
        "system": "s",
        "messages": messages,
        "thinking": thinking,
        "x": [1],
    }


def compare(change) -> tuple[int, list[str]]:
    """How many messages a change patched, and what is wrong with it."""
    sent, got = make_request(), make_request()
    found = compare_requests(json.dumps(sent), json.dumps(change(got) or got))
    return len(found.patches), found.faults


def fold(got):
    got["messages"][0:3] = [HANDOFF]


def mask(got):
    got["messages"][2]["content"][0]["content"] = STUB


def leave_thinking_out(got):
    del got["messages"][1]["content"][0]


def fold_and_mask(got):
    got["messages"][4]["content"][0]["content"] = STUB
    fold(got)


def lower(got):
    got["max_tokens"] = 500
    got["thinking"]["budget_tokens"] = 400


@pytest.mark.parametrize(
    ("patch", "messages"),
    [(fold, 1), (mask, 1), (leave_thinking_out, 1), (fold_and_mask, 2), (lower, 0)],
)
def test_patches_pass(patch, messages):
    assert compare(patch) == (messages, [])


def drop_a_message(got):
    del got["messages"][1:3]


def fold_the_newest(got):
    got["messages"][:] = [HANDOFF]


def change_a_text(got):
    got["messages"][0]["content"] = "Begin, please."


def shorten_without_a_handle(got):
    got["messages"][2]["content"][0]["content"] = "…"


def change_thinking(got):
    got["messages"][1]["content"][0]["thinking"] = "ho"


def mark_a_block(got):
    got["messages"][4]["content"][0] |= MARK


def raise_a_limit(got):
    got["max_tokens"] = 2000


def change_the_system(got):
    got["system"] = "S"


def drop_an_unknown_field(got):
    del got["x"]


def change_the_order(got):
    got["model"] = got.pop("model")


@pytest.mark.parametrize(
    "defect",
    [
        drop_a_message, fold_the_newest, change_a_text, shorten_without_a_handle, change_thinking, mark_a_block,
        raise_a_limit, change_the_system, drop_an_unknown_field, change_the_order,
    ],
)  # fmt: skip
def test_defects_do_not(defect):
    assert compare(defect)[1]


def test_spaces_count():
    sent = make_request()
    assert compare_requests(json.dumps(sent), json.dumps(sent, separators=(",", ":"))).faults


def test_split_keeps_every_byte():
    raw = '{ "a" : [1, "}"],"b":{"c":null} }'
    found = split(raw)
    assert found.names == ("a", "b")
    assert "".join(a + b for a, b in zip(found.frame, (*found.values, ""), strict=True)) == raw


def write_requests(*lists) -> list[str]:
    """Requests with these messages."""
    return [json.dumps({"messages": messages}) for messages in lists]


def test_a_prefix_is_broken_where_the_upstream_lost_more_than_the_client_changed():
    sent = write_requests(["a"], ["a", "b"], ["a", "b", "c"])
    got = write_requests(["a"], ["X", "b"], ["X", "b", "c"])
    same, none, edit = compare_prefixes(sent, sent, [set()] * 3), [set()] * 3, [set(), {"X"}, {"X"}]
    assert (same.share, same.edited, same.broken) == (1, [], [])
    assert compare_prefixes(sent, got, none).broken == [1]
    assert compare_prefixes(sent, got, edit).broken == []
    assert compare_prefixes(sent, got, edit).edited == [1]
    assert compare_prefixes(sent, got, [{"X"}] * 3).broken == [1]


def test_a_moved_mark_and_a_list_for_a_text_are_no_new_bytes():
    plain = {"role": "user", "content": "hello"}
    marked = {"role": "user", "content": [{"type": "text", "text": "hello", **MARK}]}
    assert count_new_bytes(write_requests([plain], [marked])) == count_new_bytes(
        write_requests([plain])
    )


ITEM_HANDOFF = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "[handoff: log:0-3 was folded]\n…"}],
}
OWN_COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "foldline:1:s:3"}


def make_round(n: int) -> list[dict]:
    """Reasoning, a call and its output."""
    return [
        {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": "g"},
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "b", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": f"{n} {LONG}"},
    ]  # fmt: skip


def make_items(*more: dict) -> dict:
    """A request over Responses with two rounds of a tool."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    return {"model": "m", "store": False, "input": [said, *make_round(0), *make_round(1), *more]}


def compare_items(change, *more: dict, kept: Kept | None = None) -> tuple[int, list[str]]:
    """How many items a change patched, and what is wrong with it."""
    sent, got = make_items(*more), make_items(*more)
    change(got["input"])
    found = compare_requests(json.dumps(sent), json.dumps(got), kept)
    return len(found.patches), found.faults


def fold_items(items):
    items[0:4] = [ITEM_HANDOFF]


def mask_output(items):
    items[3]["output"] = STUB


def leave_reasoning_out(items):
    del items[1], items[1]["id"]


def leave_half_of_a_call_out(items):
    del items[2]


def change_reasoning(items):
    items[1]["encrypted_content"] = "h"


def drop_an_id(items):
    del items[2]["id"]


def change_arguments(items):
    items[2]["arguments"] = "{ }"


@pytest.mark.parametrize(
    ("patch", "items"), [(fold_items, 1), (mask_output, 1), (leave_reasoning_out, 1)]
)
def test_patches_of_items_pass(patch, items):
    assert compare_items(patch) == (items, [])


@pytest.mark.parametrize(
    "defect", [leave_half_of_a_call_out, change_reasoning, drop_an_id, change_arguments]
)
def test_defects_of_items_do_not(defect):
    assert compare_items(defect)[1]


def test_a_compaction_of_our_own_may_be_opened_to_a_handoff_and_to_what_was_sent_before():
    kept, earlier = Kept(), make_round(7)
    kept.record(json.dumps({"input": earlier}), "", [])

    def open_it(items):
        items[-1:] = [ITEM_HANDOFF, *earlier]

    def open_a_foreign_one(items):
        items[-1:] = [ITEM_HANDOFF, *make_round(8)]

    def make_it_something_else(items):
        items[-1:] = [{**ITEM_HANDOFF, "content": "A summary."}]

    assert compare_items(open_it, OWN_COMPACTION, kept=kept) == (4, [])
    assert compare_items(open_a_foreign_one, OWN_COMPACTION, kept=kept)[1]
    assert compare_items(make_it_something_else, OWN_COMPACTION, kept=kept)[1]
    assert compare_items(open_it, {**OWN_COMPACTION, "encrypted_content": "gAAAA"}, kept=kept)[1]


def test_a_chain_may_be_written_out():
    kept, (reasoning, call, output) = Kept(), make_round(0)
    first = json.dumps({"model": "m", "input": "Go."})
    kept.record(first, "resp_1", [reasoning, call])
    sent = json.dumps({"model": "m", "previous_response_id": "resp_1", "input": [output]})
    said = {"type": "message", "role": "user", "content": "Go."}
    whole = {"model": "m", "store": False, "input": [said, reasoning, call, output]}
    assert not compare_requests(sent, json.dumps(whole, indent=1), kept).faults
    assert compare_requests(sent, json.dumps({**whole, "input": [said, output]}), kept).faults
    assert compare_requests(sent, json.dumps({**whole, "model": "n"}), kept).faults
    assert compare_requests(sent, sent.replace("resp_1", "resp_2"), kept).faults
    folded = {**whole, "input": [ITEM_HANDOFF, {**output, "output": STUB}]}
    assert compare_requests(sent, json.dumps(folded), kept).faults == []


def test_a_reference_may_be_written_out():
    kept, (reasoning, call, output) = Kept(), make_round(0)
    kept.record(json.dumps({"input": []}), "resp_1", [reasoning, call])
    sent = {"input": [{"type": "item_reference", "id": "rs_0"}, call, output]}
    got = {"input": [reasoning, call, output]}
    assert not compare_requests(json.dumps(sent), json.dumps(got), kept).faults


def make_gemini_request() -> dict:
    """A request over Gemini with two rounds of a tool."""
    contents = [{"parts": [{"text": "Begin."}], "role": "user"}]
    for n in range(2):
        call = {"functionCall": {"id": f"c{n}", "name": "bash", "args": {}}}
        result = {"functionResponse": {"id": f"c{n}", "name": "bash", "response": {"output": LONG}}}
        contents.append({"parts": [{**call, "thoughtSignature": "s"}], "role": "model"})
        contents.append({"parts": [result], "role": "user"})
    return {"contents": contents, "generationConfig": {"maxOutputTokens": 1000, "topK": 64}}


def fold_contents(got):
    got["contents"][0:3] = [{"role": "user", "parts": [{"text": HANDOFF["content"][0]["text"]}]}]


def mask_a_response(got):
    got["contents"][2]["parts"][0]["functionResponse"]["response"] = {"output": STUB}


def lower_in_the_configuration(got):
    got["generationConfig"]["maxOutputTokens"] = 500


@pytest.mark.parametrize(
    ("patch", "contents"),
    [(fold_contents, 1), (mask_a_response, 1), (lower_in_the_configuration, 0)],
)
def test_patches_of_contents_pass(patch, contents):
    sent, got = make_gemini_request(), make_gemini_request()
    patch(got)
    found = compare_requests(json.dumps(sent), json.dumps(got))
    assert (len(found.patches), found.faults) == (contents, [])


def drop_a_signature(got):
    del got["contents"][1]["parts"][0]["thoughtSignature"]


def rename_a_response(got):
    got["contents"][2]["parts"][0]["functionResponse"]["id"] = "d"


def change_the_configuration(got):
    got["generationConfig"]["topK"] = 32


@pytest.mark.parametrize("defect", [drop_a_signature, rename_a_response, change_the_configuration])
def test_defects_of_contents_are_faults(defect):
    sent, got = make_gemini_request(), make_gemini_request()
    defect(got)
    assert compare_requests(json.dumps(sent), json.dumps(got)).faults

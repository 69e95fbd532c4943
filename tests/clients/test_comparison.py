"""The comparison of what a client sent with what came: it lets patches pass, and nothing else."""

import json

import pytest
from comparison import compare_prefixes, compare_requests, count_new_bytes, split

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

"""A-08: the papers' names as they stand, and what to write instead of a wrong one."""

import tomllib

import pytest

from foldline.core.policy import Masking
from foldline.core.settings import read
from foldline.errors import BadInput

PAPER = """
policy = "three-layer"

[model]
provider = "anthropic"
name = "claude-sonnet-5.5"
max_input_tokens = 180000
max_output_tokens = 8000

[session]
on_disconnect = "pause"
max_tool_iterations = 25

[session.context]
max_history_tokens = 20000
max_tool_result_tokens = 8000
tool_result_truncation = "both"
tool_result_keep_first = 2
tool_result_keep_last = 5

[context.tools.bash]
max_tool_result_tokens = 3000
tool_result_truncation = "tail"

[compaction]
enabled = true
invocation_threshold = 5
overlap_size = 2
token_threshold = 700000
safety_ratio = 0.7
prompt_template = "file://summary.txt"
"""


def test_a_whole_file():
    found = read(tomllib.loads(PAPER))
    policy = found.policy
    assert (found.model, found.window, found.reserve) == (
        "anthropic/claude-sonnet-5.5",
        180_000,
        8_000,
    )
    assert (policy.name, policy.fill, policy.mask) == ("three-layer", 20_000, Masking(2, 5))
    assert (policy.clip.tokens, policy.clip.how) == (8_000, "both")
    assert (policy.clipping("bash").tokens, policy.clipping("bash").how) == (3_000, "tail")
    assert policy.clipping("other") == policy.clip
    assert (policy.turns, policy.soft, policy.soft_tokens, policy.soft_of) == (
        5,
        0.7,
        700_000,
        "window",
    )
    assert policy.of == "room"  # the other tiers keep what they are shares of
    assert (found.policy.overlap, found.prompt_template) == (2, "file://summary.txt")
    assert (found.max_tool_iterations, found.on_disconnect) == (25, "pause")


def test_nothing_is_the_default():
    assert read({}).policy.name == "steady"


def test_dots_and_tables_are_the_same():
    assert read({"model.name": "m", "model.provider": "p"}) == read(
        {"model": {"provider": "p", "name": "m"}}
    )


def test_a_name_with_a_slash_keeps_it():
    for given in (
        {"name": "meta/llama-4", "provider": "router"},
        {"provider": "router", "name": "meta/llama-4"},
    ):
        assert read({"model": given}).model == "router/meta/llama-4"


def test_zero_means_none_where_it_may():
    found = read(
        {
            "session": {"context": {"max_history_tokens": 0}},
            "compaction": {"invocation_threshold": 0},
        }
    )
    assert found.policy.fill is None
    assert found.policy.turns is None
    off = read({"session": {"context": {"tool_result_keep_first": 0, "tool_result_keep_last": 0}}})
    assert off.policy.mask == Masking(0, 0)  # which masks nothing


def test_compaction_can_be_switched_off():
    policy = read({"compaction": {"enabled": False}}).policy
    assert (policy.start, policy.priced) == ("off", None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"session": {"context": {"max_tool_result_tokens": 0}}}, "above 0"),
        (
            {"session": {"context": {"max_tool_result_tokns": 5}}},
            "did you mean 'session.context.max_tool_result_tokens'",
        ),
        (
            {"session": {"context": {"tool_result_truncation": "middle"}}},
            "head, tail, both, lines, ends",
        ),
        ({"compaction": {"safety_ratio": 70}}, "between 0 and 1, like 0.7"),
        ({"compaction": {"enabled": "yes"}}, "true or false"),
        ({"model": {"name": 5}}, "in quotes"),
        ({"model": {"max_input_tokens": -5}}, "whole number"),
        ({"session": {"on_disconnect": "die"}}, "pause or continue"),
        ({"policy": "stedy"}, "choose one of"),
        ({"colour": "blue"}, "known are"),
        ({"context": {"tools": {"bash": {"cap": 5}}}}, "no setting"),
        ({"compact_threshold": True}, "between 0 and 1"),
    ],
)
def test_a_wrong_setting_says_what_to_write(given, says):
    with pytest.raises(BadInput, match=says):
        read(given)

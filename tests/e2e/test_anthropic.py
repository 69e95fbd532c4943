"""The other dialect against a real server, through the official client."""

import anthropic
import pytest

import foldline
from foldline.dialects import anthropic as wire

TURNS = 20


@pytest.mark.real
@pytest.mark.long
def test_a_conversation_outlives_its_window_in_the_other_dialect(narrow_server):
    """Turns past 1,024 tokens on /v1/messages: every request is taken, and within the window."""
    largest = 0
    with (
        anthropic.Anthropic(base_url=narrow_server.url, api_key="none") as client,
        foldline.open(
            ":memory:",
            model="claude-smollm2",
            system="Be brief.",
            window=narrow_server.window,
            reserve=64,
        ) as s,
    ):
        for turn in range(TURNS):
            s.add(f"Turn {turn}. " + "The test run printed nothing of note. " * 6)
            asked = s.request(max_tokens=8)
            assert not wire.list_faults(asked["messages"])
            reply = client.messages.create(**asked)
            counted = reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)
            largest = max(largest, counted + reply.usage.output_tokens)
            s.add(reply)
        assert s.edits
        assert s.history.sent(s.asked) == asked
    print(f"\n/v1/messages: {TURNS} turns, largest request with its answer {largest} of 1024")
    assert largest <= narrow_server.window

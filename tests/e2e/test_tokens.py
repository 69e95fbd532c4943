"""The estimate beside a real tokenizer: never far below, so that requests fit."""

import pytest

from foldline.core.tokens import count_tokens

SAMPLES = {
    "prose": "The quick brown fox jumps over the lazy dog, and nobody is surprised any more. " * 20,
    "code": "def plan(view: View, facts: Facts) -> Plan:\n    return Ready(render(view), ())\n"
    * 20,
    "json": '{"id": "call_12", "type": "function", "arguments": {"path": "src/a.py", "n": 3}}\n'
    * 20,
    "log": "2026-11-15T01:02:03.456Z INFO worker[3711] handled request id=1eef in 997 ms\n" * 20,
}


@pytest.mark.real
@pytest.mark.parametrize("name", SAMPLES)
def test_estimate(model_server, name):
    """Crude on purpose until usage is learned: digits weigh most on this tokenizer."""
    ratio = count_tokens(SAMPLES[name]) / model_server.tokens(SAMPLES[name])
    assert 0.75 <= ratio <= 1.6

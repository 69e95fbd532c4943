"""The README's example, run as it stands, against a real model through the official client."""

import asyncio
import re
from pathlib import Path

import pytest

from foldline.core.log import Asked, UsageReported
from foldline.core.spine import Range

README = Path(__file__).parents[2] / "README.md"


def block() -> str:
    """The README's Python example."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return code


@pytest.mark.real
def test_a_conversation_outlives_its_window(model_server, monkeypatch, capsys):
    """The walking skeleton: 60 turns at 2,048 tokens, and the same talk without Foldline."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model_server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    names: dict = {}
    exec(compile(block(), str(README), "exec"), names)  # noqa: S102
    s = names["s"]
    session = s.aio
    events = asyncio.run(session.live.events(Range(0, session.live.view.head)))
    asked = [(seq, event) for seq, event in events if isinstance(event, Asked)]
    counted = [event for _, event in events if isinstance(event, UsageReported)]
    assert len(asked) == len(counted) == 60
    assert {usage.asked for usage in counted} == {seq for seq, _ in asked}

    # Every request was within the window by the server's own count, with room for the answer.
    assert max(usage.input + usage.output for usage in counted) <= model_server.window
    # Learned from the server's own counts, the estimate is right.
    believed = [event.tokens for _, event in asked]
    errors = [abs(b / usage.input - 1) for b, usage in zip(believed, counted, strict=True)]
    late = sorted(errors[3:])
    p95 = late[int(len(late) * 0.95)]
    assert p95 <= 0.05
    # Far more was said than the window holds, and folds made it fit.
    assert sum(usage.input - usage.cache_read for usage in counted) > 4 * model_server.window
    assert s.edits
    # Most of each request was read from the server's own cache: the prefix stands still.
    hits = sum(usage.cache_read for usage in counted) / sum(usage.input for usage in counted)
    assert hits > 0.5
    # Every request can be had again, byte for byte (law 5), and nothing is lost (law 3).
    for seq, _ in asked:
        s.history.sent(seq)
    assert s.recall("log:2") == names["message"](0)

    said = capsys.readouterr().out
    assert "without foldline" in said
    assert "exceeds the available context size (2048 tokens)" in said
    with capsys.disabled():
        worst = max(usage.input for usage in counted)
        print(
            f"\n60 turns at {model_server.window} tokens: largest request {worst}, cache hits {hits:.0%}, p95 error of the estimate {p95:.1%}\n{said}"
        )

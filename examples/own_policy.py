"""A policy of your own: a preset with other numbers. Policies are data, one engine runs them all.

Start it:   pip install foldline
            python examples/own_policy.py

No model is asked: the same conversation is planned under both, and their reports are shown.
"""

from dataclasses import replace

import foldline
from foldline.core.policy import STEADY, Clipping, Tail

OURS = replace(
    STEADY,
    name="ours",
    hard=0.80,  # edit above this share of room, and bring it down to `rest`
    rest=0.30,
    tail=Tail(groups=3),  # so much stays verbatim where a fold was due
    clip=Clipping(600, "both"),  # one result may take so much when it arrives
    clips={"sql": Clipping(200, "head")},  # and a result of this tool less
)


def rows(turn: int) -> str:
    """What a database answers: far too much."""
    return "\n".join(f"{turn}.{row}|item {row}|in stock" for row in range(300))


for policy in (STEADY, OURS):
    s = foldline.open(":memory:", model="gpt-6-luna", window=16_000, reserve=1_000, policy=policy)
    for turn in range(20):
        s.add(f"What is in stock on day {turn}?")
        s.request()
        call = {"name": "sql", "arguments": f'{{"query": "stock of day {turn}"}}'}
        calls = [{"id": f"c{turn}", "type": "function", "function": call}]
        s.add({"role": "assistant", "content": None, "tool_calls": calls})
        s.add({"role": "tool", "tool_call_id": f"c{turn}", "content": rows(turn)})
        s.request()
        s.add({"role": "assistant", "content": "300 items."})
    shown = len(str(s.request()["messages"][-2]["content"]))
    print(f"{policy.name}: a result shows {shown:,} of {len(rows(0)):,} characters")
    print(f"{policy.name}: {len(s.edits)} folds stand; {s.report}")

"""A fold looked at before it is made, made, taken back, and made again; and what it cut, recalled.

Start it:   pip install foldline
            python examples/undo_and_recall.py

No model is asked: a fold keeps facts without one.
"""

import foldline

s = foldline.open(":memory:", model="gpt-6-luna", system="You mend parsers.")
for step in range(1, 13):
    s.add(f"Step {step}: run the tests. Never touch parser/v{step}.py.")
    s.request()
    call = {"name": "shell", "arguments": f'{{"command": "pytest tests/v{step}"}}'}
    s.add(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{step}", "type": "function", "function": call}],
        }
    )
    log = "\n".join(f"case {case} of step {step} was run and passed" for case in range(60))
    s.add({"role": "tool", "tool_call_id": f"c{step}", "content": f"{log}\n60 passed"})
    s.request()
    s.add({"role": "assistant", "content": f"Step {step} passes."})

print("before:", s.report)
loss = s.fold(preview=True)
print("a fold would take away:", loss)
s.fold()
print("folded:", s.report)
rule = "Never touch parser/v1.py."
print("the first rule is still in the request:", rule in str(s.request()["messages"]))
redo = s.undo()
print("undone:", s.report)
s.undo(redo)
print("redone:", s.report)
print("recalled:", s.recall('recall("log:5", grep="case 59")'))
print("found:", s.history.search("parser v7")[0].words)

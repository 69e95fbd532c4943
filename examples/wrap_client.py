"""A program that keeps its own list of messages and streams, with one line changed: `wrap`.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/wrap_client.py

The window is 2,000 tokens on purpose, so that a fold comes within a dozen turns; without `window=`
the catalogue is asked. MODEL and OPENAI_BASE_URL choose the model and the server.
"""

import os

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

import foldline

MODEL = os.environ.get("MODEL", "gpt-6-luna")
client = foldline.wrap(OpenAI(), window=2_000)  # the line that changed
history: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Answer in five words at most."}
]
for turn in range(12):
    build = "\n".join(f"[{turn}.{line}] compiled, no warnings" for line in range(20))
    history.append({"role": "user", "content": f"Build {turn} printed:\n{build}\nAll fine?"})
    said = ""
    for chunk in client.chat.completions.create(model=MODEL, messages=history, stream=True):
        piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
        print(piece, end="", flush=True)
        said += piece
    print()
    history.append({"role": "assistant", "content": said})

s = foldline.session_of(client)
print(f"the program's own list has {len(history)} messages")
print(f"folds: {len(s.edits)}; the last request: {s.report}")
print("still there:", s.recall("log:2").splitlines()[0])

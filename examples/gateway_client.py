"""A program that knows nothing of Foldline: only its base_url is the gateway's.

Start it:   pip install 'foldline[gateway]' openai
            foldline serve --upstream https://api.openai.com --store sessions.db --window 4000
            OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=… \
                python examples/gateway_client.py

The same works from any language. MODEL chooses the model.
"""

import os

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

MODEL = os.environ.get("MODEL", "gpt-6-luna")
client = OpenAI()
characters = 0
history: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Answer in five words at most."}
]
for turn in range(15):
    build = "\n".join(f"[{turn}.{line}] compiled, no warnings" for line in range(45))
    words = f"Build {turn} printed:\n{build}\nAll fine?"
    history.append({"role": "user", "content": words})
    reply = client.chat.completions.create(model=MODEL, messages=history)
    answer = reply.choices[0].message.content or ""
    history.append({"role": "assistant", "content": answer})
    characters += len(words) + len(answer)
    arrived = reply.usage.prompt_tokens if reply.usage else 0
    print(f"turn {turn}: {arrived} tokens arrived, {characters:,} characters of history")

"""A program that knows nothing of Foldline: only its base_url is the gateway's.

Start it:   pip install 'foldline[gateway]' openai
            foldline serve --upstream https://api.openai.com --store sessions.db --window 4000
            OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=… \
                python examples/gateway_client.py

The same works from any language. MODEL chooses the model.
"""

import os

from openai import OpenAI

MODEL = os.environ.get("MODEL", "gpt-5-mini")
client = OpenAI()
history = [{"role": "system", "content": "Answer in five words at most."}]
for turn in range(15):
    build = "\n".join(f"[{turn}.{line}] compiled, no warnings" for line in range(45))
    history.append({"role": "user", "content": f"Build {turn} printed:\n{build}\nAll fine?"})
    reply = client.chat.completions.create(model=MODEL, messages=history)
    history.append({"role": "assistant", "content": reply.choices[0].message.content})
    print(f"turn {turn}: {reply.usage.prompt_tokens} tokens arrived,", end=" ")
    print(f"{sum(len(one['content']) for one in history):,} characters of history")

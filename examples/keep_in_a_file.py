"""A conversation in one file, gone on with tomorrow: one message a run.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/keep_in_a_file.py chat.db "My name is Ann."
            OPENAI_API_KEY=… python examples/keep_in_a_file.py chat.db "What is my name?"

Nothing is held between two runs but the file. MODEL and OPENAI_BASE_URL choose model and server.
"""

import os
import sys

from openai import OpenAI

import foldline

if len(sys.argv) != 3:
    sys.exit(__doc__)
address, words = sys.argv[1:]

with foldline.open(address, model=os.environ.get("MODEL", "gpt-6-luna"), system="Be brief.") as s:
    before = s.history.turns()
    if before:
        print(f"we have talked {len(before)} times; it began with: {before[0].words}")
    s.add(words)
    reply = s.create(OpenAI())
    print("answer:", reply.choices[0].message.content)
    print("kept:", s.report)

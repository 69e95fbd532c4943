"""A fold that a model tells in words, every line of it proven against the log.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/narrative.py

A session with a summarizer asks for narratives in the background; `fold()` by hand waits for its
own. A line with a path, number or quotation that is not in the log is left out; where more than
half of the lines are, the model is asked once more, with the reasons. MODEL and OPENAI_BASE_URL
choose the model and the server.
"""

import os

import foldline
from foldline.core.log import Folded

MODEL = os.environ.get("MODEL", "gpt-6-luna")
WORK = (
    ("Make the date parser accept 2026-W46.", "The pattern in dates/iso.py lacks week dates."),
    ("Keep Python 3.11 working.", "Noted: no syntax newer than 3.11."),
    ("Add a test first.", "tests/test_iso.py has test_week_dates; it fails as it should."),
    ("Now mend it.", "dates/iso.py reads week dates; test_week_dates passes."),
    ("What is left?", "The changelog, and the same in dates/rfc.py."),
)

with foldline.open(":memory:", model=MODEL, summarizer=MODEL) as s:
    for words, answer in WORK:
        s.add(words)
        s.request()
        s.add({"role": "assistant", "content": answer + " I looked at every caller of it." * 40})
    loss = s.fold(focus="what must keep working")
    print("left the window:", loss)
    fold = s.history.events(s.edits[-1], s.edits[-1])[0].event
    if isinstance(fold, Folded):
        print("told by:", fold.by or "nobody: what was told is not in the log")
        print(fold.text)

"""Which agent wrote a file, and the sessions in it.

Knows every source and asks each. Refuses to know their records.
"""

from collections.abc import Sequence

from foldline.errors import WireError
from foldline.importers import (
    anthropic_messages,
    claude_code,
    codex,
    foldline_jsonl,
    openai_messages,
    pi,
    swe_agent,
)
from foldline.importers.base import Imported, Notes, Record, Source, stem
from foldline.importers.lines import records

# The most particular first: a run of SWE-agent also holds a list of messages.
SOURCES: tuple[Source, ...] = (
    codex,
    claude_code,
    pi,
    swe_agent,
    anthropic_messages,
    openai_messages,
    foldline_jsonl,
)
_NAMES: tuple[tuple[str, Source], ...] = (
    ("rollout-", codex),
    (".traj", swe_agent),
    (".claude/", claude_code),
    (".pi/", pi),
)


def detect(text: str, name: str = "") -> str:
    """The kind of a session file, by what it holds; the name decides between equals."""
    return _source(records(text, Notes()), name).KIND


def read(text: str, name: str = "") -> list[Imported]:
    """The sessions of a file's text; `name` is the file's, and helps to call them.

    The kind is found by what is in it: Claude Code, Codex, pi, SWE-agent, messages of OpenAI's or
    Anthropic's form, or our own log. A broken line is left out and noted; `WireError` where nothing
    can be read.
    """
    notes = Notes()
    found = records(text, notes)
    source = _source(found, name)
    return source.read(found, name, notes)


def _source(found: Sequence[Record], name: str) -> Source:
    """The source that most records look like."""
    votes = [sum(source.claims(record.body) for record in found) for source in SOURCES]
    most = max(votes)
    if not most:
        place = found[0].place or "line 1" if found else "line 1"
        known = ", ".join(source.KIND for source in SOURCES)
        raise WireError(
            f"{place} of {stem(name) or 'the file'} is no record of {known}", path=place
        )
    named = [source for part, source in _NAMES if part in name]
    likely = [source for source, count in zip(SOURCES, votes, strict=True) if count == most]
    return next((source for source in named if source in likely), likely[0])

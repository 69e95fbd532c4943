"""What a person wrote or a tool printed, without what agents write around it.

Agents add reminders, the state of the machine and whole files of instructions to what their user
said, and frames of their own to what a tool printed. A title made of those says nothing of the
conversation, and neither does a fact of a handoff. Messages themselves stay as they are.
"""

import re
from collections.abc import Iterable, Iterator

from foldline.core.parts import Part, render_parts

_MOST = 200_000  # characters that are read: a title is in none behind them
_BLOCKS = (
    # Claude Code
    *("system-reminder", "local-command-caveat", "ide_opened_file", "ide_selection"),
    # Codex
    *("environment_context", "user_instructions", "INSTRUCTIONS", "subagent_notification", "skill"),
    # gemini-cli
    "session_context",
)
_BEGIN = re.compile(rf"<({'|'.join(_BLOCKS)})(?:\s[^<>]*)?>")
_REMINDER = re.compile(r"<(system-reminder)>")
# Lines around what a tool printed: what they say of its outcome is read before they go.
_FRAMES = re.compile(
    # Codex
    r"\A(?:(?:Chunk ID: \w+|Wall time: [\d.]+ seconds?|Original token count: \d+"
    r"|Process (?:exited with code -?\d+|running with session ID \d+))\n)+Output:(?:\n|\Z)"
    # Claude Code
    r"|[ ]?\(file state is current in your context[^()\n]*\)"
    # gemini-cli and qwen
    r"|^(?:(?:Error|Signal|Background PIDs): \(none\)|Process Group PGID: \d+)(?:\n|\Z)",
    re.MULTILINE,
)
_HEADING = re.compile(r"\s*# AGENTS\.md instructions[^\n]*\n")


def read_own_words(parts: Iterable[Part]) -> str:
    """Read what a person wrote, on one line; "" if all of it is an agent's."""
    text = "".join(_iterate_outside(render_parts(parts)[:_MOST], _BEGIN))
    heading = _HEADING.match(text)
    return " ".join(text[heading.end() if heading else 0 :].split())


def strip_frames(printed: str) -> str:
    """Return what a tool printed without what agents write around it."""
    if "<system-reminder>" in printed:
        printed = "".join(_iterate_outside(printed, _REMINDER))
    return _FRAMES.sub("", printed)


def _iterate_outside(text: str, begin: re.Pattern[str]) -> Iterator[str]:
    """Yield the text outside of blocks; one that does not end is not a block."""
    at, endless = 0, set[str]()
    place = at
    while found := begin.search(text, place):
        name, place = found[1], found.end()
        if name in endless:
            continue
        end = text.find(f"</{name}>", place)
        if end < 0:
            endless.add(name)
            continue
        yield f"{text[at : found.start()]} "
        at = place = end + len(f"</{name}>")
    yield text[at:]

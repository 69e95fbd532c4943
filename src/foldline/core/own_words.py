"""What a person wrote in a message, without what agents write around it in the person's role.

Agents add reminders, the state of the machine and whole files of instructions to what their user
said. A title made of those says nothing of the conversation. Used for titles alone: models get all.
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
_HEADING = re.compile(r"\s*# AGENTS\.md instructions[^\n]*\n")


def read_own_words(parts: Iterable[Part]) -> str:
    """Read what a person wrote, on one line; "" if all of it is an agent's."""
    text = "".join(_iterate_outside(render_parts(parts)[:_MOST]))
    heading = _HEADING.match(text)
    return " ".join(text[heading.end() if heading else 0 :].split())


def _iterate_outside(text: str) -> Iterator[str]:
    """Yield what stands outside of blocks; one that does not end is none."""
    at, endless = 0, set[str]()
    place = at
    while found := _BEGIN.search(text, place):
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

"""Find lines about a failure or an exit status: they are needed later, whatever is cut."""

import re
from collections.abc import Iterator

from foldline.core.edits.structure.sample import Printed
from foldline.core.tokens import count_tokens

_LINE = 200  # characters of one error line
_PIECE = 16_384  # characters that are searched at a time
# Linear on any text: this runs on whatever a tool prints.
_FAULT = re.compile(
    r"\b[Ee]rror\b|[a-z]Error\b|Exception\b|\bFAILED\b|\bFATAL\b|\bERROR\b|\bTraceback\b|\bpanic\b"
    r"|\bexit(?:ed)? (?:with |code |status |with code |with status )?\d"
)
_SIGNS = ("rror", "xception", "FAIL", "FATAL", "ERR", "raceback", "panic", "exit")
_ANYWHERE: dict[str, re.Pattern[str]] = dict.fromkeys(_SIGNS, re.compile(""))


def is_fault(line: str) -> bool:
    """Whether a line is about a failure or an exit status."""
    return any(sign in line for sign in _SIGNS) and _FAULT.search(line) is not None


def select_fault_lines(text: str, tokens: int) -> str:
    """Select the last distinct lines about a failure or an exit status, in their order."""
    kept: list[str] = []
    for line in _iterate_fault_lines(text):
        tokens -= count_tokens(line) + 1
        if tokens < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _iterate_fault_lines(text: str) -> Iterator[str]:
    """Yield those lines from the end, reading only as many pieces as are needed."""
    seen: set[str] = set()
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, max(end - _PIECE, 0)) + 1
        piece = text[start:end]
        end = start
        signs = [sign for sign in _SIGNS if sign in piece]
        for whole in reversed(piece.splitlines() if signs else ()):
            line = whole.strip()[:_LINE]
            if line not in seen and any(sign in line for sign in signs):
                seen.add(line)
                if _FAULT.search(line):
                    yield line


def list_fault_places(printed: Printed, tokens: int) -> list[int]:
    """List the places of those lines, the last first, as far as `tokens` allow."""
    seen: set[str] = set()
    found: list[int] = []
    for place in reversed(printed.find_lines(_ANYWHERE)):
        line = printed.plain[place][:_LINE].strip()
        if line not in seen and is_fault(line):
            seen.add(line)
            tokens -= count_tokens(line) + 1
            if tokens < 0:
                break
            found.append(place)
    return found

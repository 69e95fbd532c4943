"""Cutting text to a size: its head, its tail, both ends, or whole lines.

Knows characters, lines and token estimates. Refuses to know why something is cut.
"""

from collections.abc import Callable

from foldline.core.tokens import count


def head(text: str, tokens: int) -> str:
    """The beginning, at most `tokens` long, ending at a line's end where one is near."""
    size = _fitting(text, tokens, lambda n: text[:n])
    if size >= len(text):
        return text
    line_end = text.rfind("\n", size // 2, size)
    return text[: line_end if line_end > 0 else size]


def tail(text: str, tokens: int) -> str:
    """The end, at most `tokens` long, beginning at a line's start where one is near."""
    size = _fitting(text, tokens, lambda n: text[len(text) - n :])
    if size >= len(text):
        return text
    start = len(text) - size
    line_end = text.find("\n", start, start + size // 2)
    return text[line_end + 1 if line_end >= 0 else start :]


def both(text: str, tokens: int) -> tuple[str, str]:
    """The two ends, half of `tokens` each."""
    first = head(text, tokens // 2)
    return first, tail(text[len(first) :], tokens - tokens // 2)


def lines(text: str, keep: int) -> tuple[str, int, str]:
    """The first and last `keep` lines, and how many were left out between them."""
    every = text.splitlines(keepends=True)
    if len(every) <= 2 * keep:
        return text, 0, ""
    return "".join(every[:keep]), len(every) - 2 * keep, "".join(every[len(every) - keep :])


def _fitting(text: str, tokens: int, piece: Callable[[int], str]) -> int:
    """How many characters of a piece fit, within a few per cent, in a few counts."""
    if tokens <= 0:
        return 0
    if len(text) <= tokens // 2 or (whole := count(text)) <= tokens:
        return len(text)  # no class of text takes two tokens a character
    low, high = 0, len(text)
    size = len(text) * tokens // whole
    for _ in range(12):
        if count(piece(size)) <= tokens:
            low = size
        else:
            high = size
        if high - low <= max(8, low // 32):
            break
        size = (low + high) // 2
    return low

"""Cutting text to a size: its head, its tail, both ends, or whole lines.

Knows characters, lines and token estimates. Refuses to know why something is cut.
"""

from collections.abc import Callable

from foldline.core.tokens import count

_MOST = 3  # tokens: no class of text takes more a character
_FEWEST = 12  # characters: not even of blanks do more go to a token
_USUAL = 4  # characters: most texts have fewer to a token, so that the first piece is too long


def head(text: str, tokens: int) -> str:
    """The beginning, at most `tokens` long, ending at a line's end where one is near."""
    size = _fitting(len(text), tokens, lambda n: text[:n])
    if size >= len(text):
        return text
    line_end = text.rfind("\n", size // 2, size)
    return _lined(text[:line_end] if line_end > 0 else "", text[:size], tokens)


def tail(text: str, tokens: int, *, start: int = 0) -> str:
    """The end, at most `tokens` long, beginning at a line's start where one is near.

    It never reaches to before `start`, where a head that is kept may end.
    """
    size = _fitting(len(text) - start, tokens, lambda n: text[len(text) - n :])
    if size >= len(text) - start:
        return text[start:]
    first = len(text) - size
    line_end = text.find("\n", first, first + size // 2)
    return _lined(text[line_end + 1 :] if line_end >= 0 else "", text[first:], tokens)


def both(text: str, tokens: int) -> tuple[str, str]:
    """The two ends, half of `tokens` each."""
    first = head(text, tokens // 2)
    return first, tail(text, tokens - tokens // 2, start=len(first))


def lines(text: str, keep: int) -> tuple[str, int, str]:
    """The first and last `keep` lines, and how many were left out between them."""
    every = text.splitlines(keepends=True)
    if len(every) <= 2 * keep:
        return text, 0, ""
    return "".join(every[:keep]), len(every) - 2 * keep, "".join(every[len(every) - keep :])


def _lined(lines: str, piece: str, tokens: int) -> str:
    """Whole lines, unless they weigh more than the piece: blanks make letters words."""
    return lines if lines and count(lines) <= tokens else piece


def _fitting(length: int, tokens: int, piece: Callable[[int], str]) -> int:
    """How many of so many characters fit, within a few per cent, in a few counts of a piece.

    A whole that cannot fit is not counted: it may be a thousand times of what is kept.
    """
    if tokens <= 0:
        return 0
    if length <= tokens // _MOST:
        return length
    if length <= tokens * _FEWEST and count(piece(length)) <= tokens:
        return (
            length  # asked first: a part may weigh more than the whole, as a word without its blank
        )
    low, high = 0, min(length, tokens * _USUAL)
    while (taken := count(piece(high))) <= tokens:
        if high == length:
            return length
        low, high = high, min(length, 2 * high)
    size = high
    for _ in range(12):
        # By proportion, a little below what is allowed; by halves where the text is uneven.
        size = size * tokens * 63 // (taken * 64)
        size = size if low < size < high else (low + high) // 2
        taken = count(piece(size))
        if taken <= tokens:
            low = size
        else:
            high = size
        if high - low <= max(8, low // 32) or 0 <= tokens - taken <= tokens // 32:
            break
    return low

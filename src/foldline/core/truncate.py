"""Cut text to a size: its head, its tail, both ends, or whole lines."""

from collections.abc import Callable

from foldline.core.tokens import count_tokens

_MOST = 3  # tokens per character, for any text
_FEWEST = 12  # characters per token, even of blanks
_USUAL = 4  # characters per token: most texts have fewer, so the first piece is too long


def truncate_to_head(text: str, tokens: int) -> str:
    """Keep the beginning, at most `tokens` long, up to a line's end if one is near."""
    size = _find_fitting_length(len(text), tokens, lambda n: text[:n])
    if size >= len(text):
        return text
    line_end = text.rfind("\n", size // 2, size)
    return _choose_whole_lines(text[:line_end] if line_end > 0 else "", text[:size], tokens)


def truncate_to_tail(text: str, tokens: int, *, start: int = 0) -> str:
    """Keep the end, at most `tokens` long, from a line's start if one is near.

    It never begins before `start`, where a head that is kept may end.
    """
    size = _find_fitting_length(len(text) - start, tokens, lambda n: text[len(text) - n :])
    if size >= len(text) - start:
        return text[start:]
    first = len(text) - size
    line_end = text.find("\n", first, first + size // 2)
    return _choose_whole_lines(text[line_end + 1 :] if line_end >= 0 else "", text[first:], tokens)


def truncate_to_ends(text: str, tokens: int) -> tuple[str, str]:
    """Keep both ends, half of `tokens` each."""
    first = truncate_to_head(text, tokens // 2)
    return first, truncate_to_tail(text, tokens - tokens // 2, start=len(first))


def truncate_to_lines(text: str, *, head: int, tail: int) -> tuple[str, int, str]:
    """Keep the first and last lines; also return how many were left out between them."""
    every = text.splitlines(keepends=True)
    if len(every) <= head + tail:
        return text, 0, ""
    return "".join(every[:head]), len(every) - head - tail, "".join(every[len(every) - tail :])


def _choose_whole_lines(lines: str, piece: str, tokens: int) -> str:
    """Choose whole lines, unless they exceed `tokens`: a part may count more than the whole."""
    return lines if lines and count_tokens(lines) <= tokens else piece


def _find_fitting_length(length: int, tokens: int, piece: Callable[[int], str]) -> int:
    """Find how many characters fit, within a few per cent, by counting few pieces.

    A whole that cannot fit is not counted: it may be a thousand times what is kept.
    """
    if tokens <= 0:
        return 0
    if length <= tokens // _MOST:
        return length
    # The whole first: a part may count more, such as a word without its blank.
    if length <= tokens * _FEWEST and count_tokens(piece(length)) <= tokens:
        return length
    low, high = 0, min(length, tokens * _USUAL)
    while (taken := count_tokens(piece(high))) <= tokens:
        if high == length:
            return length
        low, high = high, min(length, 2 * high)
    size = high
    for _ in range(12):
        # By proportion, a little below what is allowed; by halves where the text is uneven.
        size = size * tokens * 63 // (taken * 64)
        size = size if low < size < high else (low + high) // 2
        taken = count_tokens(piece(size))
        if taken <= tokens:
            low = size
        else:
            high = size
        if high - low <= max(8, low // 32) or 0 <= tokens - taken <= tokens // 32:
            break
    return low

"""How many tokens a text is, estimated by the classes of its bytes.

Knows text. Refuses to know models: what a provider reported is compared with this elsewhere.

Weights lean high, because an estimate that is too low overflows and one that is too high only folds
a little early. Measured against o200k, cl100k and SmolLM2 in `tests/core/test_tokens.py`.
"""

import re
from collections.abc import Iterable

from foldline.core.log import Call, Gap, Media, Part, Text, Thought

MESSAGE = 6  # what a chat template puts around one message
_MEDIA = 1_600  # one image at the resolution that providers scale down to

# Base64, hashes and other unbroken runs split into two or three characters a token.
_DENSE = re.compile(rb"[A-Za-z0-9+/=_\-]{25,}")
_LETTERS = bytes(range(0x41, 0x5B)) + bytes(range(0x61, 0x7B))
_DIGITS = b"0123456789"
_BLANK = b" \t\r\n"
_HIGH = bytes(range(0x80, 0x100))


def count(text: str) -> int:
    """Estimate one text."""
    body = text.encode("utf-8", "surrogatepass")
    size = len(body)
    if not size:
        return 0
    dense = sum(len(run) for run in _DENSE.findall(body)) if size > 25 else 0  # noqa: PLR2004
    letters = size - len(body.translate(None, _LETTERS))
    digits = size - len(body.translate(None, _DIGITS))
    blank = size - len(body.translate(None, _BLANK))
    high = size - len(body.translate(None, _HIGH))
    marks = size - letters - digits - blank - high
    thousandths = (
        245 * letters + 900 * digits + 130 * blank + 480 * high + 650 * marks + 480 * dense
    )
    return thousandths // 1000 + 1


def count_parts(parts: Iterable[Part]) -> int:
    """Estimate a message's parts, without what a template puts around them."""
    total = 0
    for part in parts:
        match part:
            case Text(text) | Gap(text) | Thought(text):
                total += count(text)
            case Call(_, name, arguments):
                total += count(name) + count(arguments) + MESSAGE
            case Media():
                total += _MEDIA
    return total

"""How many tokens something is: estimated by classes of bytes, corrected by what was reported.

Knows text, and how an estimate is corrected. Refuses to know models and prices.

The estimate is a weighted sum of byte classes and of places where two classes meet, fitted once
on recorded sessions, code, data and 19 languages to lean high: too low overflows, too high only
folds a little early. On every kind of content that the tests name it is between 0.95 and 1.6 times
the tokens of o200k. No loop in Python runs over characters. A provider's own count of a request is
the truth for that request; `Learned` carries it, and the ratio that corrects what came after.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from statistics import median

import msgspec

from foldline.core.media import media_tokens
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought, Tool

MESSAGE = 6
"""What a chat template puts around one message."""

# Thousandths of a token. Classes are bytes; a letter outside ASCII counts once, at its first byte.
_SMALL = 167  # a small letter
_CAPITAL = 500
_DIGIT = 600
_BLANK = 300
_END = 800  # of a line
_MARK = 1210  # every other mark
_CONTROL = 1500  # control characters: colours, spinners
_MARKS = -1170  # marks come two to a token, more only when they repeat
_BLANKS = -420  # indents come many to a token
_SPLIT = 1000  # a letter before a digit
_DENSE = 415  # more, where letters stand in runs that are no words
_WORD = 9  # letters to a mark or blank, above which they are no words
_SCRIPTS = {  # the most usual first: the search ends where every letter has found its class
    b"s": 2800,  # symbols: U+2000 to U+2FFF
    b"l": 1350,  # Latin with accents
    b"z": 900,  # Han
    b"j": 825,  # kana
    b"g": 370,  # Greek, Cyrillic
    b"k": 835,  # Hangul
    b"e": 1800,  # emoji and everything beyond
    b"f": 1700,  # full width and private forms
    b"h": 385,  # Hebrew, Arabic
    b"t": 460,  # Thai, Devanagari and their neighbours
    b"q": 2200,  # U+1000 to U+1FFF
}
_BLOCKS = {  # where a block differs much from its class
    b"t": {b"\xe0\xbc": 1500, b"\xe0\xbd": 1500},  # Tibetan
    b"q": {b"\xe1\x83": -1760},  # Georgian
    b"s": {
        b"\xe2\x80": -1900,  # dashes and quotation marks
        b"\xe2\x94": -2100,  # lines and boxes
        b"\xe2\x95": -2100,
    },
}
_LAST = (  # the last byte of each run of bytes that are of one class
    (0x08, "c"), (0x09, " "), (0x0A, "\n"), (0x0C, "c"), (0x0D, "\n"), (0x1F, "c"), (0x20, " "),
    (0x2F, "."), (0x39, "0"), (0x40, "."), (0x5A, "A"), (0x60, "."), (0x7A, "a"), (0x7E, "."),
    (0x7F, "c"), (0xBF, "_"), (0xC7, "l"), (0xD3, "g"), (0xDF, "h"), (0xE0, "t"), (0xE1, "q"),
    (0xE2, "s"), (0xE3, "j"), (0xE9, "z"), (0xED, "k"), (0xEF, "f"), (0xFF, "e"),
)  # fmt: skip


def _class(byte: int) -> int:
    """The class of a byte, as the byte that stands for it."""
    return ord(next(name for last, name in _LAST if byte <= last))


_CLASSES = bytes(_class(byte) for byte in range(256))
_BLOCK, _STRIDE = 4_096, 16_384  # above some size every fourth block is counted for all
_PLACES, _ROUGH = 512, 64  # blocks and their characters, where a rough count will do
_GOLDEN = 0.6180339887498949  # its multiples, less their wholes, are spread evenly and never repeat
_SHORT = 64  # characters: names of tools, empty arguments, stubs, said again and again


def count(text: str) -> int:
    """Estimate one text."""
    if len(text) <= _SHORT:
        return _short(text)
    body = text.encode("utf-8", "surrogatepass")
    size = len(body)
    if size <= 4 * _STRIDE:
        return _thousandths(body) // 1000 + 1
    sample = b"".join([body[at : at + _BLOCK] for at in range(0, size, _STRIDE)])
    return _thousandths(sample) * size // (len(sample) * 1000) + 1


@lru_cache(maxsize=1_024)
def _short(text: str) -> int:
    body = text.encode("utf-8", "surrogatepass")
    return _thousandths(body) // 1000 + 1 if body else 0


def roughly(text: str, *, above: int) -> int:
    """Estimate one text; within 2 % where it is large and far above so many tokens.

    That takes a time that does not grow with the text: many small blocks, at places that follow no
    period, since rows of a table are all of one length.
    """
    if len(text) > 8 * _PLACES * _ROUGH:
        room = len(text) - _ROUGH
        places = [int(n * _GOLDEN % 1 * room) for n in range(_PLACES)]
        sample = "".join([text[at : at + _ROUGH] for at in places])
        body = sample.encode("utf-8", "surrogatepass")
        about = _thousandths(body) * len(text) // (len(sample) * 1000) + 1
        if about > 2 * above:
            return about
    return count(text)


def _thousandths(body: bytes) -> int:
    # Flat, and no count that must be nothing: most texts are short, and there each call tells.
    number = body.translate(_CLASSES).count
    capitals, digits, marks = number(b"A"), number(b"0"), number(b".")
    blanks, ends, controls = number(b" "), number(b"\n"), number(b"c")
    total = _CAPITAL * capitals + _DIGIT * digits + _MARK * marks
    total += _BLANK * blanks + _END * ends + _CONTROL * controls
    if marks > 1:
        total += _MARKS * number(b"..")
    if blanks > 1:
        total += _BLANKS * number(b"  ")
    if digits:
        total += _SPLIT * (number(b"a0") + number(b"A0"))
    breaks = blanks + ends + marks + controls
    letters = len(body) - digits - breaks
    if not body.isascii():
        ascii_letters = capitals + number(b"a")
        total += _foreign(body, number, letters - ascii_letters - number(b"_"))
        letters = ascii_letters
    return total + _SMALL * (letters - capitals) + _DENSE * max(0, letters - _WORD * breaks)


def _foreign(body: bytes, number: Callable[[bytes], int], letters: int) -> int:
    """What so many letters outside ASCII weigh."""
    total = 0
    for name, weight in _SCRIPTS.items():
        if found := number(name):
            total += weight * found
            for start, more in _BLOCKS.get(name, {}).items():
                total += more * body.count(start)
            letters -= found
            if not letters:
                break
    return total


def count_parts(parts: Iterable[Part]) -> int:
    """Estimate a message's parts, without what a template puts around them."""
    total = 0
    for part in parts:
        match part:
            case Text() | Gap() | Thought():
                total += count(part.text)
            case Call():
                total += count(part.name) + count(part.arguments) + MESSAGE
            case Media():
                total += media_tokens(part)
    return total


def count_tools(tools: Iterable[Tool]) -> int:
    """Estimate tools' definitions, which providers render in a form of their own."""
    return sum(
        count(tool.name) + count(tool.description) + count(tool.schema) + 2 * MESSAGE
        for tool in tools
    )


_BOUNDS = 0.4, 3.0
_SAMPLES = 9
_LEAST = 64  # tokens that must have come between two reports for a ratio to say something
_TELLING = 512  # tokens below which a request is mostly what the provider adds
_TRUNCATED = 0.6  # of what was expected: below that the server has cut the prompt
_MARGIN = 0.10
_LEAST_MARGIN = 0.02


class Learned(msgspec.Struct, frozen=True):
    """What reports have taught about one model: a bounded ratio, and the last count as an anchor.

    `estimate` and `reported` belong to the newest request that was counted; both are 0 where an
    edit lies between it and now. Ratios are taken between two counted requests with no edit
    between, so a constant that a provider adds does not bend them; their median keeps one bogus
    report from moving much.
    """

    ratio: float = 1.0
    ratios: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    estimate: int = 0
    reported: int = 0

    def tokens(self, estimate: int) -> int:
        """What a request that is estimated at so much will be counted as."""
        if self.reported:
            return max(self.reported + round((estimate - self.estimate) * self.ratio), 1)
        return round(estimate * self.ratio)

    def truncated(self, estimate: int, reported: int) -> bool:
        """Whether a count is so low that the server must have cut what it was sent.

        Below the bare estimate too: where a first report was far too high, what it has taught would
        make every later one look cut.
        """
        return reported < _TRUNCATED * min(self.tokens(estimate), estimate)

    def report(self, estimate: int, reported: int) -> "Learned":
        """Learn from a request's count, unless it is no count of what was sent."""
        if reported <= 0 or estimate <= 0 or self.truncated(estimate, reported):
            return self
        error = abs(self.tokens(estimate) / reported - 1)
        ratios = self.ratios
        if self.reported and estimate - self.estimate >= _LEAST:
            ratios = (*ratios, _within((reported - self.reported) / (estimate - self.estimate)))
        elif not self.reported and estimate >= _TELLING:
            ratios = (*ratios, _within(reported / estimate))
        ratios = ratios[-_SAMPLES:]
        return Learned(
            ratio=median(ratios) if ratios else self.ratio,
            ratios=ratios,
            errors=(*self.errors, error)[-_SAMPLES:],
            estimate=estimate,
            reported=reported,
        )

    def edited(self) -> "Learned":
        """The same after an edit: the count of the last request no longer holds, its ratio does."""
        telling = self.estimate >= _TELLING
        overall = _within(self.reported / self.estimate) if telling else self.ratio
        return msgspec.structs.replace(self, ratio=overall, estimate=0, reported=0)

    @property
    def margin(self) -> float:
        """The share of the window to keep free: 10 % at first, then what the last errors want."""
        known = len(self.errors) >= 3  # noqa: PLR2004 - one report may be a coincidence
        return min(max(1.5 * max(self.errors), _LEAST_MARGIN), _MARGIN) if known else _MARGIN


def _within(ratio: float) -> float:
    return min(max(ratio, _BOUNDS[0]), _BOUNDS[1])

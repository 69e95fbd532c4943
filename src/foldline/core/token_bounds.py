"""Bound the tokens of a text from above, before any provider has counted one.

`tokens.count_tokens` estimates what a text will cost; this says what it may cost at most. It is a
weighted sum of byte classes and of places where two classes meet, like the estimate, with weights
that a linear program chose so that no text of thousands lies above its bound: 100 languages,
code, data and what machines print, by o200k and cl100k. No token of such a tokenizer is shorter
than a byte, so a bound never exceeds the bytes. A text is bounded piece by piece: a table
behind a page of prose is not averaged with it.

Whether a text fits is decided by `count_cautiously`: by its estimate where tokenizers agree (code,
data, and the languages that they are trained on), and by its bound, less what the margin for
errors holds, where they do not.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from foldline.core.tokens import weigh_bytes

# Thousandths of a token. Classes are bytes; a letter outside ASCII counts once, at its first byte.
_ASCII = {
    b"A": 1031,
    b"0": 967,
    b" ": 532,
    b"\n": 1690,
    b".": 1360,
    b"'": 803,  # apostrophes and hyphens, which join words
    b"\t": 705,
    b"c": 972,  # control characters
}
_PAIRS = {  # where two classes meet
    b"..": -1135,
    b"  ": -507,
    b". ": -485,
    b".\n": -1690,
    b"\n\n": -2237,
    b" a": 543,
    b" A": 936,
    b" 0": 991,
    b"0a": 1070,
    b"00": -943,
    b"Aa": -352,
    b"AA": -905,
}
_SCRIPTS = {
    b"l": 475,  # Latin with accents
    b"s": 2873,  # symbols: U+2000 to U+2FFF
    b"y": 895,  # Cyrillic
    b"z": 1600,  # Han
    b"u": 2300,  # marks of Latin-1
    b"x": 1655,  # Latin, second block
    b"j": 3100,  # U+3000 to U+3FFF, with rare Han
    b"k": 2178,  # Hangul
    b"g": 1101,  # Greek
    b"h": 1272,  # Hebrew, Arabic
    b"t": 2100,  # the scripts of India, Thai, Lao, Tibetan
    b"m": 2780,  # marks that stand on letters
    b"e": 4119,  # emoji and everything beyond
    b"f": 3000,  # full width and private forms
    b"q": 3191,  # U+1000 to U+1FFF
    b"i": 2300,  # Latin, third block, and phonetic letters
    b"Y": 1742,  # rare Cyrillic
    b"r": 2096,  # Armenian
    b"U": 2112,  # Syriac, Thaana, N'Ko
    b"K": 2893,  # U+A000 to U+AFFF
}
_BLOCKS = {  # where a block differs much from its class
    b"t": {
        b"\xe0\xa4": -922,  # Devanagari
        b"\xe0\xa5": -922,
        b"\xe0\xa6": -683,  # Bengali
        b"\xe0\xa7": -683,
        b"\xe0\xac": 820,  # Odia
        b"\xe0\xad": 820,
        b"\xe0\xae": -578,  # Tamil
        b"\xe0\xaf": -578,
        b"\xe0\xb8": -990,  # Thai
        b"\xe0\xb9": -990,
        b"\xe0\xba": 200,  # Lao
        b"\xe0\xbb": 200,
        b"\xe0\xbc": 300,  # Tibetan
        b"\xe0\xbd": 300,
    },
    b"q": {
        b"\xe1\x83": -1095,  # Georgian
        b"\xe1\xba": -868,  # Latin with two accents
        b"\xe1\xbb": -868,
    },
    b"s": {
        b"\xe2\x80": -1281,  # dashes and quotation marks
        b"\xe2\x94": -1239,  # lines and boxes
        b"\xe2\x95": -1239,
    },
    b"j": {
        b"\xe3\x80": -1900,  # marks
        b"\xe3\x81": -1850,  # kana
        b"\xe3\x82": -1850,
        b"\xe3\x83": -1850,
    },
    b"f": {b"\xef\xb8": -856, b"\xef\xbc": -856, b"\xef\xbd": -856},  # signs of emoji, full width
}
_LAST = (  # the last byte of each run of bytes that are of one class
    (0x08, "c"), (0x09, "\t"), (0x0A, "\n"), (0x0C, "c"), (0x0D, "\n"), (0x1F, "c"), (0x20, " "),
    (0x26, "."), (0x27, "'"), (0x2C, "."), (0x2D, "'"), (0x2F, "."), (0x39, "0"), (0x40, "."),
    (0x5A, "A"), (0x60, "."), (0x7A, "a"), (0x7E, "."), (0x7F, "c"), (0xBF, "_"), (0xC2, "u"),
    (0xC3, "l"), (0xC5, "x"), (0xCB, "i"), (0xCD, "m"), (0xCF, "g"), (0xD1, "y"), (0xD3, "Y"),
    (0xD6, "r"), (0xDB, "h"), (0xDF, "U"), (0xE0, "t"), (0xE1, "q"), (0xE2, "s"), (0xE3, "j"),
    (0xE9, "z"), (0xEA, "K"), (0xED, "k"), (0xEF, "f"), (0xFF, "e"),
)  # fmt: skip
_CLASSES = "".join(
    next(name for last, name in _LAST if byte <= last) for byte in range(256)
).encode("ascii")
_COMMON_HAN = tuple(sign.encode() for sign in "的是在不了一有人中の")
_BY_COMMON = 20  # signs that each of these vouches for
_RARE_HAN = 1100  # more for a sign that none vouches for
_ACCENTS = (b"l", b"u", b"x", b"i", b"m")
_KNOWN = (  # pieces of English and of code
    b" the", b" to ", b" and", b" of ", b" in ", b"ing", b"tion", b"ed ", b"self", b"return",
    b"def ", b"import", b"function", b"name", b"null", b"const", b"true", b"type", b"class",
    b"this",
)  # fmt: skip
_BY_WORD = 15  # small letters that such a piece vouches for
_BY_MARK = 3  # and each mark inside a line: code is made of words that tokenizers know
_BY_ACCENT = -5  # and each accent: they do not stand in English
_UNKNOWN = 341  # a small letter that nothing vouches for; others come with their blank
_HARSH = 894  # more for each where vowels are too few for words
_PER_VOWEL = 3
_CARE = 1030  # thousandths, for what no tuning text showed
_PIECE = 4_096
_PLAIN = 0.65  # of plain text are small letters and blanks
_MOST_UNKNOWN = 0.5  # of its letters


_AGREED = 1.3  # times its estimate: tokenizers agree on a text whose bound is not above that
_BY_MARKS = 20  # bytes of data for each of its marks, at most
_SURELY = 0.9  # of its bound: the margin for errors holds the rest
_COMMON_HANGUL = tuple(sign.encode() for sign in "이다의는에을를가고")
_COMMON_WORDS = frozenset(  # of languages in Latin script
    (
        "the to and of in that is for it on with as are be this was by or from not you have at "
        "an can if will which your der die und den das ist nicht zu ein eine von mit für auf im "
        "dem werden wird des sich oder auch de la que el los las et les le est du en un una por "
        "para con del se no une dans pour sur par au pas il che di per della non è da dei do os "
        "não em e o a ao com um és și în este pe cu să nu mai het een van op niet voor zijn och "
        "att som det är av till på för inte med og er ikke w na nie się z jest i że je v si nebo "
        "pro ako sa u za koji ili što od ne ve bir bu için ile olarak olan daha her veya değil az "
        "hogy nem egy ja ei on tai kuin että oli yang dan dengan untuk tidak ini dari của và các "
        "được là có cho trong"
    )
    .encode()
    .split()
)
_SEEN = 1_024  # bytes of a piece
_BY_COMMON_WORD = 20  # letters that such a word vouches for
_MOST_UNSURE = 0.5  # of the letters of a text on which tokenizers agree
_UNSURE = b"iUKefmr"  # classes that few tokenizers know
_BY_JOINED = 9  # letters for which a mark that stands on one speaks: decomposed text is rare
_NO_SIGNS = b"_su"  # classes: what follows the first byte of a letter, and marks
_NO_LETTERS = _NO_SIGNS + b"A0 \n.'\tc"
_VOUCHED = (  # classes of which only some letters are known: by these, each for so many
    (b"z", _BY_COMMON, _COMMON_HAN),
    (b"k", _BY_COMMON, _COMMON_HANGUL),
    (b"q", 1, tuple(bytes((0xE1, n)) for n in (0x80, 0x81, 0x83, 0x9E, 0x9F, 0xBA, 0xBB))),
    (
        b"t",
        1,
        tuple(bytes((0xE0, n)) for n in (*range(0xA4, 0xAC), *range(0xAE, 0xB6), 0xB8, 0xB9)),
    ),
)


class _Size(NamedTuple):
    """What a piece of a text may take."""

    most: int
    is_plain: bool
    cautious: int


def bound_tokens(text: str) -> int:
    """Bound the tokens of a text from above."""
    return sum(_size_piece(piece).most for piece in _split_text(text))


def count_cautiously(text: str) -> int:
    """Count the tokens by which it is decided whether a text fits."""
    return sum(_size_piece(piece).cautious for piece in _split_text(text))


def count_plain_tokens(text: str) -> int:
    """Count those pieces of a text that are plain English or code.

    All tokenizers know such words, so one count of them says much about the others.
    """
    return sum(size.cautious for size in map(_size_piece, _split_text(text)) if size.is_plain)


def _split_text(text: str) -> list[bytes]:
    body = text.encode("utf-8", "surrogatepass")
    return [body[at : at + _PIECE] for at in range(0, len(body), _PIECE)]


@lru_cache(maxsize=512)
def _size_piece(body: bytes) -> _Size:
    number = body.translate(_CLASSES).count
    total = sum(weight * number(name) for name, weight in _ASCII.items())
    total += sum(weight * number(pair) for pair, weight in _PAIRS.items())
    accents = unknown = 0
    if not body.isascii():
        total += _bound_foreign_letters(body, number)
        accents = sum(map(number, _ACCENTS))
    if small := number(b"a"):
        marks = number(b".") - number(b". ")
        words = sum(map(body.count, _KNOWN))
        known = max(_BY_WORD * words + _BY_MARK * marks + _BY_ACCENT * accents, 0)
        unknown = max(small - known, 0)
        vowels = len(body) - len(body.translate(None, b"aeiou"))
        total += _UNKNOWN * unknown + _HARSH * max(small - _PER_VOWEL * vowels, 0)
    plain = small + number(b" ") > _PLAIN * len(body) and unknown < _MOST_UNKNOWN * small
    most = min(max(total, 0) * _CARE // 1_000_000 + 1, len(body))
    # No tokenizer of these has fewer tokens than words.
    estimate = max(weigh_bytes(body) // 1000 + 1, number(b" a") + number(b" A"))
    plain = plain or (most <= estimate and _BY_MARKS * number(b".") > len(body))
    if most > _AGREED * estimate and (plain or _is_common_language(body)):
        return _Size(most, plain, estimate)
    return _Size(most, plain, max(estimate, int(_SURELY * most)))


def _is_common_language(body: bytes) -> bool:
    """Whether the middle of a text is words of languages that all tokenizers of today know."""
    start = max(len(body) - _SEEN, 0) // 2
    body = body[start : start + _SEEN]
    kinds = body.translate(_CLASSES)
    number = kinds.count
    letters = len(kinds.translate(None, _NO_LETTERS))
    if letters + number(b" ") <= _PLAIN * len(kinds.translate(None, _NO_SIGNS)):
        return False
    common = sum(map(_COMMON_WORDS.__contains__, body.lower().split()))
    latin = number(b"a") + number(b"l") + number(b"x")
    unsure = max(latin - _BY_COMMON_WORD * common, 0)
    if not body.isascii():
        unsure += len(kinds) - len(kinds.translate(None, _UNSURE))
        unsure += _BY_JOINED * number(b"m")
        for name, most, signs in _VOUCHED:
            if found := number(name):
                unsure += max(found - most * sum(map(body.count, signs)), 0)
    return unsure < _MOST_UNSURE * letters


def _bound_foreign_letters(body: bytes, number: Callable[[bytes], int]) -> int:
    total = 0
    for name, weight in _SCRIPTS.items():
        if found := number(name):
            total += weight * found
            for start, more in _BLOCKS.get(name, {}).items():
                total += more * body.count(start)
    if han := number(b"z"):
        common = sum(map(body.count, _COMMON_HAN))
        total += _RARE_HAN * max(han - _BY_COMMON * common, 0)
    return total

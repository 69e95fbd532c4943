"""Split text into passages, and weigh how much a later question could want each of them.

A passage is a sentence, a line, or a piece of a long list. Its weight is what it says that nothing
else says: rare words, together with a value such as a number, a name or a code. So log lines that
differ in their numbers alone, thanks and greetings weigh little, and "the ledger database listens
on port 6120" weighs much. Words are rare or common within the texts that are weighed together.
"""
# ruff: noqa: RUF001, SIM905 - marks of other scripts; a list of words

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt
from typing import NamedTuple

from foldline.core.tokens import count_tokens

# Linear on any text: no two neighbours of a pattern can match the same character.
_ENDS = re.compile(r"\n+|(?<=[.!?])\s+|(?<=[。！？])")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_LIST_ENDS = re.compile(r"(?<=[;；])\s*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DIGITS = re.compile(r"\d+")
_NUMBERED = re.compile(r"[^\W\d]*\d[\w.-]*")  # words with digits are values, not subjects
# Ids, hashes and long numbers: who wants to know them wants them exactly.
_CODES = re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{10,}|\b\d{4,}\b")
_VALUE = re.compile(
    r"\d|https?:|[\"'`“«]\S|\S@\S|\b[a-z]{3,}-[a-z]{3,}|(?<=[\w,;:)] )[A-Z][a-z]|[a-z][A-Z]"
    r"|\w[_/]\w|[A-Z]{2}|[=→]"
)
_DECIDED = re.compile(
    r"\b(?:agreed|always|chose|decided|decide to|going with|instead of|must|never|no longer|only"
    r"|opted for|prefer|renamed|settled on|will use|from now on|actually|correction)\b",
    re.IGNORECASE,
)
_PLAIN = frozenset(
    "about after again all also am an and any are as at be been before but by can could did do does"
    " for from get go had has have he her here him his how if in into is it its just let like me"
    " more my next no not now of off ok on one or our out over please she should so some than thank"
    " thanks that the their them then there these they this to too up us very was we were what when"
    " where which while who will with would yes you your".split()
)
_LOOK = 65_536  # characters of one text that are split
_LONGEST = 400  # characters of one passage
_LONG = 16  # characters of a line whose repetition says nothing
_FRAME = 5  # tokens of the handle in front of a passage
_NO_VALUE, _DECISION, _SHOWN, _PASTED = 0.35, 1.5, 2.0, 0.3  # factors on the weight
_CODE = 1.0  # what a code says, in rare words
_NEAR = 24  # passages with one word that are compared
_COMMON = 100  # passages with one word, above which it says nothing of what they are about
_PARTLY = 0.7  # of that, if what is repeated is most of the newer passage
_SAME = 0.4  # of an old passage's weight that a newer one must repeat to be about the same thing


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text: where it begins and ends, and its words."""

    start: int
    end: int
    text: str
    is_pasted: bool = False
    """True between fences: text that was pasted, not said."""


def split_passages(text: str) -> list[Passage]:
    """Split a text into its sentences and lines, without blanks around them."""
    found: list[Passage] = []
    text = text[:_LOOK]
    fences = [one.start() for one in _FENCE.finditer(text)]
    for start, stop in _split_at(_ENDS, text, 0, len(text)):
        # Parts of a sentence belong together; those of a long list do not.
        is_list = stop - start > _LONGEST // 2
        for lo, hi in _split_at(_LIST_ENDS, text, start, stop) if is_list else [(start, stop)]:
            for at in range(lo, hi, _LONGEST):
                piece = text[at : min(at + _LONGEST, hi)]
                if words := piece.strip():
                    begin = at + len(piece) - len(piece.lstrip())
                    is_pasted = bisect_right(fences, begin) % 2 == 1
                    found.append(Passage(begin, begin + len(words), words, is_pasted))
    return found


def _split_at(ends: re.Pattern[str], text: str, start: int, stop: int) -> list[tuple[int, int]]:
    """Split a stretch of text at every end; return where the pieces begin and stop."""
    found = [*ends.finditer(text, start, stop)]
    starts = [start, *(one.end() for one in found)]
    return [*zip(starts, (*(one.start() for one in found), stop), strict=True)]


def weigh_passages(
    texts: Sequence[str], *, shown: int = 0, pasted: Collection[int] = ()
) -> list[float]:
    """Weigh passages, oldest first, by what each says among all of them, for each of its tokens.

    Passages that differ in their numbers alone share their weight. One that is about the same thing
    as an older one weighs at least as much, and more if that is one of the first `shown`, which the
    model sees anyway: a value must not stand without its correction. Those at the places `pasted`
    weigh less: what a person says of a log comes before the log.
    """
    return _weigh_passages(tuple(texts), shown, tuple(pasted))


class _PassageRead(NamedTuple):
    """What a passage says by itself."""

    words: frozenset[str]
    frame: str
    """Without its numbers."""
    codes: int
    factor: float
    tokens: int
    has_value: bool


@lru_cache(maxsize=16_384)  # a fold reads the same passages for each of its sizes
def _read_passage(text: str) -> _PassageRead:
    value = has_value(text)
    factor = (1.0 if value else _NO_VALUE) * (_DECISION if _DECIDED.search(text) else 1.0)
    codes = min(len(_CODES.findall(text)), 2)
    return _PassageRead(
        find_words(text), _DIGITS.sub("0", text), codes, factor, count_tokens(text), value
    )


@lru_cache(maxsize=8)
def _weigh_passages(texts: tuple[str, ...], shown: int, pasted: tuple[int, ...]) -> list[float]:
    every = [_read_passage(text) for text in texts]
    count = Counter(word for said in every for word in said.words)
    most = log(len(texts) + 2)
    rarity = {word: (log((len(texts) + 2) / times) / most) ** 2 for word, times in count.items()}
    alike = Counter(said.frame for said in every)
    weights = [
        (sum(rarity[word] for word in said.words) + _CODE * said.codes)
        * said.factor
        / sqrt(alike[said.frame])
        / (said.tokens + _FRAME)
        for said in every
    ]
    for at in range(shown):
        weights[at] *= _SHOWN
    for at in pasted:
        weights[at] *= _PASTED
    return [
        max((weights[at], *(1.01 * weights[older] for older in corrected)))
        for at, corrected in enumerate(_relate_passages(every, count))
    ]


def find_corrected(texts: Sequence[str]) -> list[list[int]]:
    """For each passage, oldest first, find the older ones that are about the same thing.

    Both state a value, and they share the words that are rarest among all.
    """
    return _find_corrected(tuple(texts))


@lru_cache(maxsize=8)
def _find_corrected(texts: tuple[str, ...]) -> list[list[int]]:
    every = [_read_passage(text) for text in texts]
    return _relate_passages(every, Counter(word for said in every for word in said.words))


def _relate_passages(every: Sequence[_PassageRead], count: Mapping[str, int]) -> list[list[int]]:
    rarity = {word: 1 / max(times - 1, 1) for word, times in count.items()}  # two share it at least
    about = [_SAME * sum(rarity[word] for word in said.words) for said in every]
    partly = [_PARTLY * weight for weight in about]
    seen: dict[str, deque[int]] = {
        word: deque(maxlen=_NEAR) for word, times in count.items() if 1 < times <= _COMMON
    }
    corrected: list[list[int]] = []
    for at, said in enumerate(every):
        shared: dict[int, float] = {}
        for word in said.words if said.has_value else ():
            if (places := seen.get(word)) is not None:
                weight = rarity[word]
                for older in places:
                    shared[older] = shared.get(older, 0.0) + weight
                places.append(at)
        corrected.append(
            [
                older
                for older, weight in shared.items()
                if weight >= partly[older] and (weight >= about[older] or weight >= about[at])
            ]
        )
    return corrected


def has_value(text: str) -> bool:
    """Whether a passage states something exact: a number, a name, a code, a path, a quotation."""
    return _VALUE.search(text) is not None


def find_words(text: str) -> frozenset[str]:
    """Find the words of a passage that say something, without numbers, in lower case."""
    return frozenset(_WORD.findall(_NUMBERED.sub(" ", text.casefold()))) - _PLAIN


def find_repeated(messages: Sequence[Sequence[str]]) -> list[list[bool]]:
    """For each passage of each message, whether an earlier message says the same.

    Only whole sentences and long lines count: a brace or a bullet repeats nothing.
    """
    seen: set[str] = set()
    repeated: list[list[bool]] = []
    for passages in messages:
        plain = [" ".join(text.casefold().split()) for text in passages]
        repeated.append([text in seen for text in plain])
        seen.update(text for text in plain if len(text) >= _LONG or text[-1:] in ".!?。")
    return repeated

"""The terms that a text is indexed and searched by: words, parts of words, pieces of unspaced text.

    "Two parsers in parse_count.py"  →  two, parser, in, parse_count.py, pars, count, py

- Case, accents and forms of letters (such as ligatures) are ignored.
- English words lose their ending: `stem_word`.
- Identifiers, paths and codes are terms as a whole, and so are their parts.
- Chinese, Japanese, Korean, Thai and other scripts that put no space between words are indexed by
  one, two and three characters, and searched by two and three; by one where there is only one.

A term is a number, the first 64 bits of a hash: a word of a megabyte takes as much room as any, and
every store can keep it. All stores use this module, so they find the same. Whoever changes what a
text's terms are makes every index wrong: increase the schema's version, and clear the index there.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from typing import cast

MOST_TERMS = 128
"""Terms of a query that count; further ones are ignored."""
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua980-\ua9df\uaa60-\uaadf\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_LETTERS = rf"(?:[^\W{_UNSPACED}]|[\u0900-\u0963\u0966-\u0dff])+"  # the second: vowels of India
_RUNS = re.compile(rf"[{_UNSPACED}]+|{_LETTERS}(?:['./\\:@-]+{_LETTERS})*")
"""Unspaced text, or letters with the signs that hold an identifier, a path or a code together."""
_BLANKS = str.maketrans(dict.fromkeys('!"#$%&()*+,;<=>?[]^`{|}~', " "))
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_SHORT_FORM = re.compile(r"(n't)\b|'(?:s|d|m|re|ve|ll)\b", re.IGNORECASE)
_WORDS = re.compile(r"\S+")
_PARTS = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
_MOST_HUMPS = 6  # a word with more is no identifier but encoded data
_LONG = 40  # longer tokens are not remembered
_REMEMBERED = 200_000
_STOP = """
    a about after again all also am an and any are as at be because been before being but by can
    cannot cant could did didnt do does doesnt doing dont down each few for from further had has
    have having he her here hers him his how i if im in into is isnt it its itself just me more
    most my myself no nor not of off on once only or other our ours out over own please same she
    should so some such tell than that the their theirs them then there these they this those
    through to too under until up us very was wasnt we were what when where which while who whom
    whose why will with would you your yours yourself
"""
STOP_WORDS = tuple(_STOP.split())
"""English words that say little by themselves."""


def count_terms(text: str) -> Counter[int]:
    """Count the terms of a text."""
    found = Counter(map(_terms.__getitem__, split_tokens(text)))
    for terms in [one for one in found if type(one) is tuple]:
        count = found.pop(terms)
        for term in terms:
            found[term] += count
    return cast("Counter[int]", found)


def split_tokens(text: str) -> list[str]:
    """Split a text at blanks and at signs that hold no word together."""
    return fold_letters(text).translate(_BLANKS).split()


def list_token_terms(token: str) -> tuple[int, ...]:
    """List the terms of what `split_tokens` gives."""
    found = _terms[token]
    return found if isinstance(found, tuple) else (found,)


def list_query_terms(query: str) -> list[int]:
    """List the terms of a query; stop words only if there is nothing else."""
    names = (name for token in fold_letters(query).split() for name in _list_names(token, _ASKED))
    terms = list(dict.fromkeys(map(_hash_term, names)))
    telling = [term for term in terms if term not in STOP_TERMS]
    return (telling or terms)[:MOST_TERMS]


def find_terms(text: str, terms: Collection[int]) -> list[int]:
    """Find where words begin in a text that have one of some terms."""
    words = _WORDS.finditer(fold_letters(text).translate(_BLANKS))
    return [one.start() for one in words if not {*list_token_terms(one[0])}.isdisjoint(terms)]


def fold_letters(text: str) -> str:
    """Remove accents and forms of letters; case is kept, because it divides identifiers."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text).replace("\u2019", "'")
    # Composed again: the syllables of Korean and the voiced kana of Japanese.
    return unicodedata.normalize("NFC", _ACCENTS.sub("", plain))


def stem_word(word: str) -> str:
    """Remove the ending of an English word, so that its forms are one term.

    In this order: the plural (`ies`, `es` behind s, x, z, ch and sh, `s`), then `ing` or `ed` with
    the doubled letter before it, then a last `e`; a last `y` becomes `i`. What `ing` and `ed` leave
    must have three letters with a vowel. Names and words of other languages may lose an ending too,
    which does no harm: it is the same ending in the text and in the query. Irregular forms
    (`went`) are left alone.
    """
    if len(word) <= _STEM or not word.isascii() or not word.isalpha():
        return word
    if word.endswith(("ies", "ied")) and len(word) > _STEM + 1:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        left = word.removesuffix(ending)
        if left != word and len(left) >= _STEM and not _VOWELS.isdisjoint(left):
            doubled = left[-1] == left[-2] and left[-1] not in "lsz"
            word = left[:-1] if doubled else left
            break
    if word.endswith("e") and len(word) > _STEM:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > _STEM else word


_VOWELS = frozenset("aeiouy")
_STEM = 3  # the fewest letters of a stem
_INDEXED, _ASKED = (1, 2, 3), (2, 3)  # characters of a piece of unspaced text


def _list_names(token: str, sizes: Sequence[int] = _INDEXED) -> list[str]:
    """List the names in a token, the text between two blanks: words, their parts, pieces."""
    if token.isalpha() and token.isascii() and token.islower():  # most are
        return [stem_word(token)]
    names: list[str] = []
    for run in _RUNS.findall(token):
        if not _is_unspaced(run):
            names += _list_word_names(run)
            continue
        for size in sizes if len(run) > 1 else (1,):
            names += [run[at : at + size] for at in range(len(run) - size + 1)]
    return names


_is_unspaced = re.compile(f"[{_UNSPACED}]").match


def _list_word_names(word: str) -> list[str]:
    """List the stems of a word's parts, and the whole of what has several."""
    plain = _SHORT_FORM.sub(lambda found: "nt" if found[1] else "", word)
    names: list[str] = []
    for part in _PARTS.findall(plain):
        humps = _HUMPS.findall(part) if not (part.islower() or part.isupper()) else []
        whole = part.casefold()
        if 1 < len(humps) <= _MOST_HUMPS and "".join(humps) == part:
            names.append(whole)
            names += [stem_word(one.casefold()) for one in humps]
        else:
            names.append(stem_word(whole))
    return names if len(names) == 1 else [plain.casefold(), *names]


class _TokenTerms(dict[str, int | tuple[int, ...]]):
    """Remembers the terms of each token; a single term is kept without a tuple."""

    def __missing__(self, token: str) -> int | tuple[int, ...]:
        terms = tuple(map(_hash_term, _list_names(token)))
        found = terms[0] if len(terms) == 1 else terms
        if len(token) <= _LONG:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[token] = found
        return found


_terms = _TokenTerms()


def _hash_term(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


STOP_TERMS = frozenset(_hash_term(stem_word(word)) for word in STOP_WORDS)

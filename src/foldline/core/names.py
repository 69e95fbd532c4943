"""Names in a text: paths, identifiers, codes; what an agent writes again by its exact spelling.

Knows what looks like a name. Refuses to know which of them matter.
"""

import re
from collections import Counter

_WORD = re.compile(r"[\w./-]{4,80}")  # linear on any text: this runs on whatever a tool prints


def names(text: str) -> Counter[str]:
    """The names in a text, and how often each occurs."""
    # A pattern is slow and logs repeat themselves: what stands between blanks is searched once.
    pieces = Counter(text.split())
    words = Counter(_WORD.findall(" ".join(pieces)))
    for piece, times in pieces.items():
        if times > 1:
            for word in _WORD.findall(piece):
                words[word] += times - 1
    found: Counter[str] = Counter()
    for word, times in words.items():
        name = word.strip("./-")
        if name != word and word.startswith("/"):
            name = "/" + name
        if len(name) > 2 and code_like(name):  # noqa: PLR2004 - shorter ones are found anywhere
            found[name] += times
    return found


def code_like(name: str) -> bool:
    """A path, a dotted or underscored name, one with a capital inside, or letters with digits."""
    if name.isalpha() and name[1:].islower():
        return False  # a plain word: the most usual, so asked first
    if not any(c.isalpha() for c in name):
        return False  # a mere number
    if any(c.isdigit() for c in name):
        return True
    marked = any(mark in name for mark in "/_.") or any(c.isupper() for c in name[1:])
    return marked and any(c.islower() for c in name)

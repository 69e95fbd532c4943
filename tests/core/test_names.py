"""Names in a text."""

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from foldline.core.names import count_names

WORD = re.compile(r"[\w./-]{4,80}")


def first_code_like(name):
    if not any(c.isalpha() for c in name):
        return False
    if any(c.isdigit() for c in name):
        return True
    marked = any(mark in name for mark in "/_.") or any(c.isupper() for c in name[1:])
    return marked and any(c.islower() for c in name)


def first_names(text):
    """As it was first written: the pattern over all of the text."""
    found = Counter()
    for word, times in Counter(WORD.findall(text)).items():
        name = word.rstrip("./-") if word.startswith("/") else word.strip("./-")
        if len(name) > 2 and first_code_like(name):
            found[name] += times
    return found


FRAGMENTS = st.one_of(
    st.sampled_from("aZ1É日 \n\x1c\u2003ǅ-./_;"),
    st.sampled_from(["word ", "Parser", "aB", "/src/x.py ", "test_1", "a" * 90, "0x1f, ", "ab_c"]),
)


@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=60).map("".join)))
def test_the_same_names_as_by_one_search(text):
    """As many times each, and in the order they come."""
    assert list(count_names(text * 2).items()) == list(first_names(text * 2).items())


@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=60).map("".join)))
def test_a_name_stands_in_the_text_as_it_is_spelled(text):
    """A ledger that tells another spelling tells nothing that could be written again."""
    assert all(name in text for name in count_names(text))


def test_a_hidden_folder_keeps_its_dot():
    assert count_names("see ~/.pi/agent/nord.json.") == {"/.pi/agent/nord.json": 1}


def test_names_and_plain_words():
    text = "Saw src/a.py:3, saw src/a.py again; HTTPError in (parse_it). Plain words, 1234, v2.13"
    assert count_names(text) == {"src/a.py": 2, "HTTPError": 1, "parse_it": 1, "v2.13": 1}

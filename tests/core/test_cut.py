"""Cuts: what is kept fits, and little that would fit is left out."""

from hypothesis import example, given
from hypothesis import strategies as st

from foldline.core import truncate
from foldline.core.tokens import count_tokens

FRAGMENTS = st.one_of(
    st.sampled_from("aZ1É日☃ሰ \n;"),
    st.sampled_from(["word ", "a" * 90, " " * 40, "{};", "b" * 200, "line\n", "\n\n\n", "x1y2z3"]),
)
TEXTS = st.builds(
    lambda parts, times: "".join(parts) * times,
    st.lists(FRAGMENTS, max_size=60),
    st.sampled_from((1, 7, 60)),
)


@given(TEXTS, st.integers(0, 400))
@example("word ", 1)
@example("☃" * 100, 200)
def test_what_is_kept_fits(text, tokens):
    """At most so many tokens, of every kind of text: also where a line's end is chosen."""
    first, last = truncate.truncate_to_head(text, tokens), truncate.truncate_to_tail(text, tokens)
    assert text.startswith(first)
    assert text.endswith(last)
    assert max(count_tokens(first), count_tokens(last)) <= tokens
    if count_tokens(text) <= tokens:
        assert first == last == text


@given(TEXTS, st.integers(2, 400))
def test_both_ends_never_overlap(text, tokens):
    first, last = truncate.truncate_to_ends(text, tokens)
    assert len(first) + len(last) <= len(text)
    assert text.startswith(first)
    assert text.endswith(last)
    assert truncate.truncate_to_tail(text, tokens, start=len(first)) in text[len(first) :]


def test_what_is_kept_is_nearly_all_that_fits():
    """Also of a text that is a thousand times as long, and of blanks, which weigh little."""
    for text in (
        "some words of prose, " * 50_000,
        " " * 1_000_000,
        "日本語" * 20_000,
        "f" * 500_000,
    ):
        for tokens in (20, 600, 2_500):
            assert tokens * 0.9 <= count_tokens(truncate.truncate_to_head(text, tokens)) <= tokens
            assert tokens * 0.9 <= count_tokens(truncate.truncate_to_tail(text, tokens)) <= tokens

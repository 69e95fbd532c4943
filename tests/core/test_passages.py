"""Passages: how a text is split, and what weighs."""

from hypothesis import given
from hypothesis import strategies as st

from foldline.core.passages import find_corrected, find_repeated, split_passages, weigh_passages

FACT = "The ledger database listens on port 6120."
NOISE = [f"08:{n:02d} probe harbor latency={n * 7}ms ok" for n in range(40)]


@given(st.text(max_size=2_000))
def test_passages_are_pieces_of_the_text_in_order(text):
    at = 0
    for one in split_passages(text):
        assert text[one.start : one.end] == one.text == one.text.strip()
        assert one.start >= at
        at = one.end
    kept = "".join("".join(one.text.split()) for one in split_passages(text))
    assert kept == "".join(text.split())


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_texts_can_be_weighed(texts):
    weights = weigh_passages(texts)
    assert len(weights) == len(texts)
    assert all(weight >= 0 for weight in weights)
    assert weights == weigh_passages(texts)


def test_a_list_is_split_and_a_sentence_is_not():
    assert len(split_passages("Forget that; the port is 6120.")) == 1
    listed = "; ".join(f"parameter-{n}=value-{n * 7919}" for n in range(20))
    assert len(split_passages(listed)) == 20


def test_a_fact_outweighs_log_lines_and_thanks():
    texts = [*NOISE[:20], FACT, "Thanks, that is fine.", *NOISE[20:]]
    weights = weigh_passages(texts)
    assert max(weights) == weights[20]
    assert weights[20] > 3 * sorted(weights)[-2]


def test_a_correction_weighs_at_least_what_it_corrects():
    newer = (
        "Update: the ledger database is on port 7311 since this morning, as the old one was taken."
    )
    texts = [FACT, *NOISE, newer]
    assert find_corrected(texts)[-1] == [0]
    weights = weigh_passages(texts)
    assert weights[-1] > weights[0]
    other = "The atlas cache was moved to the host violet-otter."
    assert find_corrected([FACT, other])[-1] == []


def test_what_an_earlier_message_said_is_repeated():
    messages = [["Go on please.", "}"], ["Go on please.", "}", "Now the port."]]
    assert find_repeated(messages) == [[False, False], [True, False, False]]
    assert find_repeated([["Fine.", "Fine."]]) == [[False, False]], "within one message all stays"

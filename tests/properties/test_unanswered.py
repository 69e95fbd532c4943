"""What nobody has answered is sent whole where it fits, and fills the window where it does not."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.budget import limits, measure_budget
from foldline.core.log import Clipped, Folded
from foldline.core.names import format_handle
from foldline.core.parts import text_of
from foldline.core.plan import Blocked, Facts, Ready
from foldline.core.policy import PRESETS, STEADY
from foldline.core.tokens import MESSAGE
from foldline.lab.policy_run import Planned
from foldline.testing import calls, model, result, user

CLIP, PLAN = "foldline.core.edits.clip", "foldline.core.plan"
KINDS = {
    "prose": "Most of the tests pass when the file is read in one piece, and nobody complained. ",
    "hex": "00000010  4f 6e 20 74 68 65 20 6d  61 74 20 69 74 20 73 61\n",
    "Russian": "Обычно это скучное чтение, но на прошлой неделе он сообщил нам, что тест не проходит. ",
    "code": "def push(self, item: str) -> str | None:\n    return self._items[self._next]\n",
    "signs": "∀∃∈∉∑∏√∞≈≠≤≥⊂⊃∪∩→⇒⇔∂∇\n",
}


def count_bytes(text):
    return -(-len(text.encode()) // 3)


def count_letters(text):
    return -(-len(text) // 4)


def count_generously(text):
    return -(-len(text) // 2)


COUNTS = (count_bytes, count_letters, count_generously)
texts = st.tuples(st.sampled_from([*KINDS]), st.floats(0.01, 1.5))
windows = st.sampled_from((2_048, 8_192, 32_768))
presets = st.sampled_from(sorted(set(PRESETS) - {"off"}))


def write(kind, tokens, count, place):
    """Write a text of about so many tokens, that begins with its place."""
    size = max(int(tokens * 400 / count(KINDS[kind] * 400 + " ") * len(KINDS[kind])), 1)
    return f"{place:04}. " + (KINDS[kind] * (2 + size // len(KINDS[kind])))[:size]


def check_one(text, window, count, before=0, preset="steady"):
    """A first or a later message that fits by the model's own count is whole."""
    talk = Planned(Facts(limits(window, None, tokenizer=count), PRESETS[preset]))
    for turn in range(before):
        talk.add(user(f"turn {turn}"))
        talk.ask(talk.plan())
        talk.add(model(KINDS["prose"] * 3))
    kind, share = text
    text = write(kind, share * 0.8 * window, count, 1)
    talk.add(user(text))
    made = talk.plan()
    assert isinstance(made, Ready)
    talk.ask(made)
    room = measure_budget(talk.view, talk.facts.limits).room - MESSAGE - 800 * bool(before)
    shown = talk.view.items[-1]
    true = sum(count(text_of(item.parts)) + MESSAGE for item in talk.view.items)
    assert true <= room + MESSAGE + 800, "above room"
    if count(text) <= room:
        assert text_of(shown.parts) == text, "cut though it fits"
    else:
        assert count(text_of(shown.parts)) >= 0.85 * room, "cut by more than what is missing"


@given(texts, windows, st.sampled_from(COUNTS), st.integers(0, 3), presets)
def test_a_message_that_fits_by_the_models_own_count_is_whole(text, window, count, before, preset):
    check_one(text, window, count, before, preset)


def check_several(documents, window, count, policy=STEADY):
    """Unanswered messages are all there, whole if they fit together; else they fill room."""
    facts = Facts(limits(window, None, tokenizer=count), policy)
    talk = Planned(facts)
    tally = count or facts.limits.count
    said = [
        write(kind, share * 0.8 * window, tally, place)
        for place, (kind, share) in enumerate(documents)
    ]
    for text in said:
        talk.add(user(text))
    made = talk.plan()
    assert isinstance(made, Ready)
    talk.ask(made)
    room = measure_budget(talk.view, facts.limits).room
    shown = [text_of(item.parts) for item in talk.view.items]
    sizes = [tally(text) for text in shown]
    true = sum(sizes) + MESSAGE * len(shown)
    assert [text[:5] for text in shown] == [text[:5] for text in said], "a message is missing"
    assert true <= room, "above room"
    whole = sum(map(tally, said)) + MESSAGE * len(said)
    cut = [size for text, size in zip(said, sizes, strict=True) if text not in shown]
    if whole <= room:
        assert shown == said, "cut though all of it fits"
        assert not any(isinstance(event, Clipped | Folded) for event in made.events)
    else:
        assert true >= 0.85 * room - 40 * len(cut), "the window is not filled"
        left = [size for text, size in zip(said, sizes, strict=True) if text in shown]
        assert max(left, default=0) <= max(cut) * 1.15 + 16, "not fair"
        # All that are cut have the same share.
        assert all(one >= 0.8 * other - 16 for one, other in pairwise(sorted(cut, reverse=True)))
        assert made.report.clipped


@given(st.lists(texts, min_size=2, max_size=9), windows, st.sampled_from((*COUNTS, None)))
def test_several_unanswered_messages_fill_the_window(documents, window, count):
    check_several(documents, window, count)


BIG = [("prose", 0.6)] * 3


@pytest.mark.parametrize(
    ("module", "line", "instead", "check"),
    [
        (PLAN, "if facts.policy.folds and (\n", "if False and (\n", "several"),
        (CLIP, "        share = left // (len(rest) - at)\n", "        share = left\n", "several"),
        (CLIP, "max(size, 1) * _AIM", "max(size, 1) * 0.5", "several"),
        (PLAN, 'how="both", most=room,', 'how="both", cap=room,', "one"),
        ("foldline.core.budget", "used=used, doubt=0,", "doubt=0,", "one"),
    ],
)
def test_the_laws_catch(module, line, instead, check):
    """No shares, unfair ones, deep cuts, the estimate beside the exact count, a fold for nothing."""

    def run():
        if check == "several":
            check_several(BIG, 8_192, count_letters)
        else:
            check_one(("Russian", 0.97), 8_192, count_letters)
            check_one(("signs", 0.97), 8_192, count_letters)

    run()
    with broken(module, line, instead), pytest.raises(AssertionError):
        run()


def test_no_unanswered_message_is_folded_while_all_of_them_fit():
    """Three documents that fit by their estimate, above what a policy calls hard."""
    with broken(PLAN, "if edit is None and (is_crowded or budget.used > budget.room):", "if True:"):
        assert any(isinstance(event, Folded) for event in fill_room().plan().events)
    assert not any(isinstance(event, Folded) for event in fill_room().plan().events)


def fill_room():
    """Messages that fill room to more than what a policy calls hard."""
    talk = Planned(Facts(limits(8_192, None), replace(STEADY, hard=0.9)))
    for place in range(3):
        talk.add(user(write("code", 0.312 * 0.8 * 8_192, talk.facts.limits.count, place)))
    return talk


@pytest.mark.parametrize("size", [0.3, 0.7, 2.0])
def test_results_and_messages_that_came_meanwhile_share_the_room(size):
    """A message beside a call whose results come behind it: no cut lies between them."""
    facts = Facts(limits(4_096, None), STEADY)
    talk = Planned(facts, user("go"), calls("a", "b"))
    tokens = size * 0.8 * 4_096
    talk.add(user(write("prose", tokens, facts.limits.count, 1)))
    talk.add(result("a", write("code", tokens, facts.limits.count, 2)))
    talk.add(result("b", write("code", tokens, facts.limits.count, 3)))
    talk.add(user(write("prose", tokens, facts.limits.count, 4)))
    made = talk.plan()
    assert not isinstance(made, Blocked)
    talk.ask(made)
    budget = measure_budget(talk.view, facts.limits)
    assert budget.used <= budget.room
    shown = [text_of(item.parts)[:4] for item in talk.view.items if item.role in ("user", "result")]
    assert shown[-4:] == ["0002", "0003", "0001", "0004"]


def check_cut_is_told():
    """A newest user message that is cut is named by the report: a field, a warning, its line."""
    whole = write("prose", 0.3 * 0.8 * 4_096, limits(4_096, None).count, 1)
    large = write("prose", 2 * 4_096, limits(4_096, None).count, 2)
    for texts_, cut in (([whole], 0), ([large], 1), ([whole, large], 1), ([large, large], 2)):
        talk = Planned(Facts(limits(4_096, None), STEADY))
        talk.add(*map(user, texts_))
        report = talk.plan().report
        assert len(report.clipped) == cut
        assert report.clipped == tuple(range(len(texts_) + 1 - cut, len(texts_) + 1))
        handles = [format_handle(seq) for seq in report.clipped]
        assert [any(one in warning for warning in report.warnings) for one in handles] == [
            True
        ] * cut
        assert all(one in str(report) for one in handles)
        assert len(report.warnings) == cut


def test_a_cut_of_the_newest_message_is_told():
    check_cut_is_told()


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ('item.role == "user" and item.state == "clipped"]', "False]"),
        ("*(_describe_cut(view, item) for item in clipped)", "*()"),
        ("{sizes}{cut}", "{sizes}"),
    ],
)
def test_the_check_catches_a_silent_cut(line, instead):
    with broken("foldline.core.request", line, instead), pytest.raises(AssertionError):
        check_cut_is_told()

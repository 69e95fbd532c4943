"""Every preset on its paper's own worked examples."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.budget import estimate_request, limits, measure_budget
from foldline.core.fold_selection import count_most_messages
from foldline.core.log import Asked, Masked, UsageReported, UserSaid
from foldline.core.parts import text_of
from foldline.core.plan import Ready
from foldline.core.policy import (
    CLASSIC,
    CONFIRM,
    OFF,
    PRESETS,
    SLIDING,
    STEADY,
    THREE_LAYER,
    THRIFTY,
    WINDOW,
)
from foldline.core.prices import FREE, UNKNOWN
from foldline.core.tokens import count_tokens
from foldline.dialects import openai_chat as wire
from foldline.session.model_facts import build_facts
from foldline.testing import Planned, calls, model, result, user

PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "


class Talk(Planned):
    """A conversation under one preset."""

    def __init__(self, policy, window=128_000, prices=UNKNOWN):
        facts = build_facts("", window=window, reserve=None, policy=policy)
        super().__init__(replace(facts, prices=prices))

    def send(self):
        """Plan and send."""
        made = self.plan()
        assert isinstance(made, Ready)
        self.ask(made)
        return made

    def calibrate(self):
        """Reports that agree with the estimate: the margin shrinks from 10 % to 2 %."""
        for _ in range(4):
            self.append(user(PROSE * 3), model("ok"))
            size = estimate_request(self.view)
            self.append(Asked(self.view.head, "", "", 0, estimate=size), UsageReported(input=size))
        return self

    def fill_to(self, share):
        """Answered messages until that share of the window is used."""
        budget = measure_budget(self.view, self.facts.limits)
        while budget.request < share * budget.limits.window:
            size = int(share * budget.limits.window - budget.request)
            self.append(user(PROSE * max(min(size // 40, 60), 1)), model("ok"))
            budget = measure_budget(self.view, self.facts.limits)


@pytest.mark.parametrize(("turns", "folds"), [(3, 0), (5, 1), (12, 2)])
def test_sliding_folds_every_five_turns(turns, folds):
    """A-31: theta = 5; what is due is done when the next turn begins."""
    talk = Talk(SLIDING)
    for turn in range(turns):
        talk.add(user(f"question {turn} " * 30))
        talk.send()
        talk.add(model(f"answer {turn} " * 30))
    talk.add(user("and now?"))
    talk.send()
    assert len(talk.folds()) == folds
    assert all(fold.why == "due" and fold.after <= 520 for fold in talk.folds())


def test_three_layer_masks_the_middle_results():
    """A-13: before each call, of the current turn, the first 2 and the last 5 stay."""
    talk = Talk(THREE_LAYER)
    talk.add(user("go"))
    for n in range(9):
        talk.send()
        talk.add(calls(f"c{n}"), result(f"c{n}", f"output {n} " * 80))
    talk.send()
    states = [item.state for item in talk.view.items if item.role == "result"]
    assert states == ["whole"] * 2 + ["masked"] * 2 + ["whole"] * 5
    assert sum(isinstance(event, Masked) for event in talk.events) == 2  # sticky: each result once


def test_three_layer_says_how_many_messages_it_left_out():
    """A-21, A-04: newest first up to the cap, once a turn, a notice in the system's role."""
    talk = Talk(replace(THREE_LAYER, fill=60))
    for n in range(24):
        talk.append(user(f"question {n} " * 20), model(f"answer {n} " * 20))
    talk.append(user("and now?"))
    assert len(talk.view.items) == 49
    made = talk.send()
    said = [text_of(item.parts) for item in made.request.items]
    assert said[0].splitlines()[0] == "[conversation truncated — 48 older messages omitted]"
    talk = Talk(replace(THREE_LAYER, fill=120))
    for n in range(24):
        talk.append(user(f"question {n} " * 20), model(f"answer {n} " * 20))
    talk.append(user("and now?"))
    made = talk.send()
    said = [text_of(item.parts) for item in made.request.items]
    assert said[0].splitlines()[0] == "[conversation truncated — 47 older messages omitted]"
    assert said[1:] == ["answer 23 " * 20, "and now?"]
    assert b'"role":"system"' in wire.encode_blocks(made.request)[0]


def test_three_layer_counts_on_over_merges():
    """47 older messages, left out in two folds, are still 47."""
    talk = Talk(replace(THREE_LAYER, fill=400))
    total = 0
    for n in range(30):
        talk.add(user(f"question {n} " * 15))
        talk.send()
        talk.add(model(f"answer {n} " * 15))
        total += 2
    assert len(talk.folds()) > 2
    newest = talk.folds()[-1]
    live = sum(item.state != "folded" for item in talk.view.items)
    assert newest.messages + live == total


@pytest.mark.parametrize(
    ("policy", "below", "above"),
    [(CLASSIC, 0.68, 0.72), (WINDOW, 0.78, 0.82), (SLIDING, 0.68, 0.72)],
    ids=lambda value: getattr(value, "name", value),
)
def test_thresholds(policy, below, above):
    """A-05: fold at 70 %, summarise at 80 %, each of the whole window, at a turn's end."""
    policy = replace(policy, turns=None)
    for share, folds in ((below, 0), (above, 1)):
        talk = Talk(policy, window=128_000).calibrate()
        talk.fill_to(share)
        talk.append(user("and now?"))
        talk.send()
        assert len(talk.folds()) == folds, share


def test_window_keeps_the_last_twenty_messages():
    """A-33, A-03, P4-12: verbatim."""
    talk = Talk(WINDOW, window=128_000).calibrate()
    talk.fill_to(0.82)
    talk.append(*(one for n in range(10) for one in (user(f"q{n}"), model(f"a{n}"))), user("now?"))
    talk.send()
    roles = [item.role for item in talk.view.items]
    assert roles[0] == "handoff"
    assert len(roles) == 21


@pytest.mark.parametrize(
    ("window", "reserve"), [(200_000, 2_000), (128_000, 2_000), (8_192, 1_024), (8_000, 1_000)]
)
def test_window_reserves_little(window, reserve):
    """M-7, P4-06, P4-07: 2,000 of large models, 1,000 of small ones; about 4,000 stay free."""
    talk = Talk(WINDOW, window=window)
    assert talk.facts.limits.reserve == reserve
    talk.calibrate()
    budget = measure_budget(talk.view, talk.facts.limits)
    assert window - budget.room - budget.system - budget.tools <= 0.16 * window
    if window >= 128_000:  # P4-09
        assert reserve + budget.margin >= 4_000


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_preset_reserves_more_than_an_eighth(name):
    """M-7: unless the user says so."""
    for window in (1_000, 2_048, 4_096, 8_192, 32_768, 131_072, 1_000_000):
        assert Talk(PRESETS[name], window=window).facts.limits.reserve <= window // 8
    asked = build_facts("", window=8_000, reserve=3_000, policy=PRESETS[name])
    assert asked.limits.reserve == 3_000


def test_confirm_asks_first_and_then_is_understood():
    """A-36, A-33: nothing is folded at 92 % until somebody says so; then the literal texts."""
    talk = Talk(CONFIRM, window=128_000)
    talk.calibrate().fill_to(0.80)
    talk.append(user("hello"))
    assert not talk.plan().report.due
    talk.append(model("yes"))
    talk.fill_to(0.92)
    talk.append(user("and now?"))
    made = talk.plan()
    assert (made.report.pressure, made.report.due, made.events) == ("soft", True, ())
    talk.facts = replace(talk.facts, now=True)
    made = talk.send()
    said = [text_of(item.parts) for item in made.request.items]
    assert said[0].startswith("[Conversation summary from compaction]: ")
    assert said[1] == (
        "Understood, I have the context from our previous conversation. "
        "How can I continue helping you?"
    )
    assert made.request.items[1].role == "model"
    assert said[-1] == "and now?"
    talk.add(model("here you are " * 500), user("more"))
    talk.facts = replace(talk.facts, now=True)
    again = talk.send()  # folds over an acknowledged fold, and stays valid
    assert [item.role for item in again.request.items] == ["handoff", "model", "user"]


def test_off_counts_and_warns_and_ends_in_a_typed_error():
    talk = Talk(OFF, window=8_000)
    talk.fill_to(0.60)
    assert talk.plan().report.pressure == "calm"
    assert talk.plan().events == ()
    talk.fill_to(0.95)
    assert not isinstance(talk.plan(), Ready)


@pytest.mark.parametrize("reports", [False, True])
def test_a_person_is_asked_or_warned_before_it_is_full(reports):
    """A-36: with the limits that a session really gets, calm, warn and soft come before hard."""
    for policy, expected in ((CONFIRM, "soft"), (OFF, "warn")):
        talk = Talk(policy, window=64_000)
        if reports:
            talk.calibrate()
        seen = []
        for _ in range(600):
            talk.append(user("word " * 300))
            made = talk.plan()
            if not isinstance(made, Ready) or made.events:
                break
            seen.append(made.report.pressure)
            talk.append(model("ok"))
        assert expected in seen


def test_heartbeats_are_no_turns():
    talk = Talk(SLIDING)
    for n in range(5):
        talk.add(user(f"beat {n}", speaker="heartbeat"))
    talk.add(model("fine"), user("hello"))
    talk.send()
    assert not talk.folds()


def test_the_users_words_stay_whole_where_they_fit():
    """A-33: 20,000 tokens of them in `classic`; in `steady` the task that the cap was sized for."""
    talk = Talk(CLASSIC, window=400_000)
    for n in range(50):
        talk.append(user(f"rule {n}: " + f"never forget this {n} " * 60), model("yes " * 300))
    talk.facts = replace(talk.facts, now=True)
    talk.append(user("go"))
    talk.send()
    assert len(talk.folds()[0].verbatim) == 50
    assert "# The user said" in talk.folds()[0].text
    talk = Talk(STEADY, window=200_000)
    task = "task: " + "".join(f"do exactly this {n}, " for n in range(1_000))
    talk.add(user(task))
    for n in range(90):
        talk.send()
        talk.add(calls(f"c{n}"), result(f"c{n}", "line of output, checked\n" * 300))
    assert talk.folds()
    assert task.strip() in talk.folds()[0].text


def test_user_messages_are_not_clipped_by_a_rule_for_results():
    talk = Talk(CLASSIC)
    talk.add(user("\n".join(f"rule {n}" for n in range(300))))
    assert talk.events[-1].clip is None


def test_only_the_priced_presets_are_priced():
    priced = {name for name, preset in PRESETS.items() if preset.priced}
    assert priced == {"steady", "thrifty"}
    assert (STEADY.hard, THRIFTY.hard) == (1.0, 1.0)  # what fits is not folded


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("window", [4_000, 32_000])
def test_every_preset_fits_and_stays_valid(name, window):
    """Laws 1 and 2 for all of them: 60 turns with calls, results of all sizes."""
    talk = Talk(PRESETS[name], window=window)
    for turn in range(60):
        talk.add(user(f"task {turn} " * (1 + turn % 20)))
        for step in range(turn % 4):
            talk.add(
                calls(f"c{turn}_{step}"), result(f"c{turn}_{step}", "line of output\n" * (turn * 7))
            )
            made = talk.plan()
            if name == "off" and not isinstance(made, Ready):
                return
            talk.send()
        made = talk.plan()
        if name == "off" and not isinstance(made, Ready):
            return
        made = talk.send()
        assert made.report.total <= window - made.report.reserve - made.report.margin
        assert sum(made.report.parts.values()) == made.report.total
        talk.add(model(f"done {turn}"))


def test_a_crowd_of_small_messages_calls_for_an_edit():
    """A-07: reaching the derived limit triggers a fold; no live item is ever evicted."""
    talk = Talk(THREE_LAYER, window=8_000)
    most = count_most_messages(talk.facts.limits, THREE_LAYER)
    assert most == 100
    for n in range(50):
        talk.append(user(f"q{n}"), model(f"a{n}"))
    assert talk.plan().folded is None
    talk.append(user("now?"))
    talk.send()
    assert len(talk.folds()) == 1
    assert len(talk.view.items) < most


@pytest.mark.parametrize(
    ("known", "papers", "ours"),
    [
        ({"window": 4_000, "reserve": 400}, 100, 400),
        ({"window": 128_000, "reserve": 12_800}, 1_280, 4_000),
        ({"window": 128_100, "reserve": 1}, 1_280, 4_000),
        ({"window": 400_000, "reserve": 20_000, "max_input": 150_000}, 1_500, 4_000),
        ({"window": 1_000_000, "reserve": None}, 2_000, 4_000),
        ({"window": None, "reserve": None}, 1_000, 1_000),
    ],
)
def test_the_most_messages_come_from_the_largest_input(known, papers, ours):
    """P2-13, M-16: clamp(2·⌊max_input/200⌋, 100, 2000) in the paper's preset, whatever is reserved."""
    found = limits(**known)
    assert count_most_messages(found, THREE_LAYER) == papers
    assert count_most_messages(found, STEADY) == ours


def test_a_chat_that_fits_is_not_folded_for_its_many_messages():
    """P2-13: why only the paper's preset has its number: 60 tokens a message are a usual chat."""
    talk = Talk(STEADY, window=128_000, prices=FREE)
    while measure_budget(talk.view, talk.facts.limits).request < 0.6 * 128_000:
        talk.append(user(PROSE * 3), model(PROSE))
    talk.append(user("now?"))
    assert len(talk.view.items) > count_most_messages(talk.facts.limits, THREE_LAYER)
    assert talk.plan().folded is None


def say(number, tokens):
    """A message of about so many tokens, and no more, that no other repeats."""
    pieces = [f" keep value {number}-{n} as it is." for n in range(tokens // 9 + 1)]
    words = [f"rule {number}:", *pieces]
    while len(words) > 1 and (over := count_tokens("".join(words)) - tokens) > 0:
        del words[-max(over // 12, 1) :]
    return "".join(words)


@pytest.mark.parametrize(
    ("window", "reports", "full", "why"),
    [(64_000, True, 75, "due"), (128_000, True, 75, "due"), (128_000, False, 75, "due"), (128_000, False, 90, "forced")],
)  # fmt: skip
@pytest.mark.parametrize("size", [100, 500, 2_000])
def test_classic_keeps_the_newest_words_whole(size, window, reports, full, why):
    """M-11, P1-27, P1-30: 20,000 tokens of them, none cut, in their order, in sight or quoted."""
    talk = Talk(CLASSIC, window=window)
    count = 20_000 // size
    said = [say(n, size) for n in range(count)]
    answer = say("answer", (window * full // 100 - 20_000) // count)
    for words in said:
        talk.append(user(words), model(answer))
    if reports:
        size = estimate_request(talk.view)
        for _ in range(3):
            talk.append(Asked(talk.view.head, "", "", 0, estimate=size), UsageReported(input=size))
    talk.append(user("go"))
    fold = talk.send().folded
    assert fold.why == why
    in_sight = [item for item in talk.view.items if item.role == "user"][:-1]
    assert (len(fold.verbatim) + len(in_sight), fold.clipped) == (count, ())
    places = [fold.text.index(words) for words in said[: len(fold.verbatim)]]
    assert places == sorted(places)


@given(st.lists(st.integers(10, 2_000), min_size=1, max_size=50))
def test_classic_cuts_only_the_oldest_of_what_does_not_fit(sizes):
    """P1-27, P1-28, P1-30: newest first, the one that does not fit is cut; the first task stays."""
    talk = Talk(CLASSIC, window=200_000)
    for n, size in enumerate(sizes):
        talk.append(user(say(n, size)), model("yes, I will. " * 200))
    talk.append(user("go"))
    talk.facts = replace(talk.facts, now=True)
    fold = talk.plan().folded
    assert fold.why == "due"
    first, *others = [seq for seq, event in enumerate(talk.events) if isinstance(event, UserSaid)][
        :-1
    ]
    kept, left = [first], 20_000
    for seq in reversed(others):
        left -= count_tokens(text_of(talk.events[seq].parts))
        if left < 0:
            assert {*fold.clipped} <= {seq}
            break
        kept.append(seq)
    assert sorted(fold.verbatim) == sorted(kept)

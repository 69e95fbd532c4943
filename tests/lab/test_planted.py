"""What was planted is found where it is, and every probe can fail."""

from dataclasses import replace
from functools import cache

import pytest
from made.generated import generate_coding_session
from made.truth import Correction, FileTouch, Truth, apply_file_touch
from mutants import broken
from probes.planted import Agreement, is_resurrected, measure_planted

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import OFF, STEADY, THREE_LAYER, THRIFTY
from foldline.core.prices import Prices
from foldline.lab.kept_names import words_of
from foldline.lab.policy_run import Ours
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Offer, ReplayPiece, replay_session

PRICES = Prices(1.0, 0.10, 1.25, 5.0)
SEED, SMALL = 7, {"calls": 100, "tokens": 60_000}


@cache
def session():
    return generate_coding_session(SEED, **SMALL)


def facts(policy):
    return Facts(limits(200_000, None), policy, PRICES)


def found(policy=THRIFTY, kind=Ours):
    return measure_planted(
        replay_session(session().recorded, kind(session().recorded, facts(policy))), session().truth
    )


@pytest.mark.parametrize("policy", [STEADY, THRIFTY], ids=lambda policy: policy.name)
def test_what_must_hold_holds(policy):
    made = found(policy)
    assert made.constraints.used > 100
    assert made.constraints.percent == 100
    assert made.corrections.used
    assert made.corrections.percent == 100
    assert made.resurrected == 0
    assert made.files.f1 >= 0.99
    assert made.shown.f1 >= 0.99
    assert made.todos.percent == 100
    assert all(kept.percent == 100 for kept in made.from_users)


def test_nothing_is_missed_where_everything_is_sent():
    made = found(OFF)
    kept = (made.constraints, made.at_end, *made.from_users, *made.from_results, made.corrections)
    assert all(one.percent == 100 for one in (*kept, made.todos, made.questions))
    assert made.files.f1 == made.shown.f1 == 1
    assert made.files.true > 50


class Forgetful:
    """Sends the newest message and nothing else."""

    name = "forgetful"

    def __init__(self, recorded, _facts):
        self.last = recorded.events[1]

    def take(self, event):
        """Keep this one."""
        self.last = event

    def offer(self, *, seconds, missed):  # noqa: ARG002 - the protocol's
        """Only that."""
        return Offer(
            [ReplayPiece(0, 1, ""), ReplayPiece(id(self.last), 1, words_of(self.last.parts))]
        )


def test_who_forgets_everything_is_seen_to():
    made = found(kind=Forgetful)
    assert made.constraints.percent < 10
    assert made.at_end.percent < 10
    assert made.corrections.percent < 20
    assert made.todos.percent < 30
    assert made.files.recall < 0.1
    assert made.files.f1 < 0.1


class Rewriting(Ours):
    """Tells in its own words what the user forbade, once it stands in a handoff."""

    def offer(self, *, seconds, missed):
        """Ours, and then that."""
        offer = super().offer(seconds=seconds, missed=missed)
        return replace(
            offer, pieces=[piece._replace(text=self.told(piece.text)) for piece in offer.pieces]
        )

    def told(self, text):
        """In other words."""
        return (
            text.replace("Never touch", "Avoid touching").replace("never", "not")
            if "[handoff" in text
            else text
        )


def test_a_rewritten_rule_is_caught():
    assert any("ever" in rule.text for rule in session().truth.constraints)
    assert found().constraints.percent == 100
    assert found(kind=Rewriting).constraints.percent < 100


class Stale(Ours):
    """Says at the end of every request what held in the beginning."""

    def offer(self, *, seconds, missed):
        """Ours, and then that."""
        offer = super().offer(seconds=seconds, missed=missed)
        stale = "\n".join(f"The {one.key} is {one.old}." for one in session().truth.corrections)
        return replace(offer, pieces=[*offer.pieces, ReplayPiece("stale", 9, stale)])


def test_an_old_value_that_comes_back_is_caught():
    assert found().resurrected == 0
    assert found(kind=Stale).resurrected > 5


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("the limit is A\nthe limit is no longer A: the limit is B", False),
        ("the limit is B\nthe limit is A", True),
        ("the limit is A", True),
        ("the limit is B\nthe name is A", False),  # says nothing of the limit
        ("the limit is B\nA", False),  # a mere name states nothing
        ("", False),
    ],
)
def test_resurrected(text, back):
    assert is_resurrected(Correction(0, "limit", "A", "B"), text) == back


@pytest.mark.parametrize(
    ("module", "line", "instead"),
    [
        ("foldline.core.ledger.fact_pages", 'if new.text.startswith("read"):', "if False:"),
        ("foldline.core.ledger.collect", "done = doing.touches if outcome.ok else ()", "done = doing.touches if True else ()"),
        ("foldline.core.ledger.collect", "if touch.to:", "if False:"),
        ("foldline.core.ledger.fact_pages", 'key=lambda fact: (fact.text.startswith("read"), -fact.seq))', "key=lambda fact: -fact.seq)[:3]"),
    ],
)  # fmt: skip
def test_a_ledger_that_is_wrong_about_files_is_caught(module, line, instead):
    with broken(module, line, instead):
        assert found().files.f1 < 0.99


def test_a_fold_without_words_is_seen_to():
    """The paper's fold says only that something is gone: rules and files are, too."""
    made = found(replace(THREE_LAYER, fill=8_000))
    assert made.constraints.percent < 100
    assert made.shown.precision > 0.9
    assert made.shown.recall < 0.9


def test_agreement_by_hand():
    agreement = Agreement()
    agreement.compare_belief(
        7, {"a": "read", "b": "written", "x": "read"}, {"a": "read", "b": "removed"}
    )
    assert (agreement.precision, agreement.recall, agreement.f1) == (1 / 3, 1 / 2, 2 / 5)
    assert agreement.wrong == [(7, "b", "written", "removed"), (7, "x", "read", "")]


def test_states_of_files():
    files = {}
    for path, state in [
        ("a", "read"),
        ("a", "written"),
        ("a", "read"),
        ("b", "removed"),
        ("b", "read"),
    ]:
        apply_file_touch(files, path, state)
    assert files == {"a": "written", "b": "read"}
    truth = Truth("", (), (), (), (FileTouch(1, "a", "read"), FileTouch(3, "a", "removed")), ())
    assert [truth.collect_file_states(call) for call in (0, 1, 3)] == [
        {},
        {"a": "read"},
        {"a": "removed"},
    ]


def test_no_request_holds_nothing():
    empty = replay_session(Recorded("empty", "m", ()), Ours(Recorded("empty", "m", ()), facts(OFF)))
    assert measure_planted(empty, session().truth).constraints.used == 0

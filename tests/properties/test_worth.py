"""Law 7: an edit is forced, or pays, or comes when the cache is cold; and the bill is the lower for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.budget import limits, measure_budget
from foldline.core.edits.fold.span import estimate_growth, find_paying_fold
from foldline.core.log import Folded
from foldline.core.plan import Facts, Ready
from foldline.core.policy import STEADY, THRIFTY
from foldline.core.prices import Prices
from foldline.testing import Planned, calls, model, result, user

EAGER = replace(THRIFTY, priced=replace(THRIFTY.priced, gain=200))
PRICES = st.builds(
    lambda r, w: Prices(3.0, 3.0 * r, 3.0 * w, 15.0),
    st.sampled_from((0.10, 0.05, 0.025)),
    st.sampled_from((1.0, 1.25)),
)
TURNS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from((20, 200, 600))), min_size=1, max_size=30
)


class Billed(Planned):
    """A conversation billed as a provider with a prefix cache would."""

    def __init__(self, facts, *, cold_every=0):
        super().__init__(facts)
        self.cold_every = cold_every
        self.bill = 0.0
        self.cached = 0
        self.made = []
        self.requests = 0

    def call(self):
        """Plan, send, pay."""
        self.requests += 1
        cold = bool(self.cold_every) and self.requests % self.cold_every == 0
        facts = replace(self.facts, cache="cold" if cold else "warm")
        before = measure_budget(self.view, facts.limits)
        ready = self.plan(facts)
        assert isinstance(ready, Ready)
        total, prices = ready.report.total, facts.prices
        cached = 0 if cold else self.cached
        for event in ready.events:
            if isinstance(event, Folded):
                size = estimate_growth(self.view), self._behind(event)
                self.made.append((event, before, facts, size))
                # What stands behind the fold, and the handoff itself, are written anew.
                cached = min(cached, total - event.after - self._behind(event))
        self.bill += prices.read * cached + prices.write * (total - cached)
        self.cached = total
        self.ask(ready, counted=lambda made: made.report.total)

    def _behind(self, fold):
        return sum(item.tokens for item in self.view.items if item.role != "handoff") - fold.before

    def turns(self, turns):
        """Whole turns: a task, so many calls with results of that size, an answer."""
        for turn, (steps, size) in enumerate(turns):
            self.add(user(f"Task {turn}: do the next thing and tell me."))
            for step in range(steps):
                self.call()
                self.add(calls(f"c{turn}_{step}", text="Looking at it."))
                self.add(result(f"c{turn}_{step}", f"line{turn} of the output\n" * size))
            self.call()
            self.add(model(f"Done with {turn}."))
        return self


def worth_it(turns, prices, *, cold_every=0, policy=EAGER):
    talk = Billed(Facts(limits(60_000, None), policy, prices), cold_every=cold_every).turns(turns)
    for event, before, facts, (grows, behind) in talk.made:
        gain = event.before - event.after
        assert gain > 0, "a fold that does not shrink"
        assert event.why, "an edit without a reason"
        if event.why == "forced":
            assert before.used > before.compute_tier(policy.hard), (
                "called forced, and nothing forced it"
            )
            continue
        assert gain >= 0.9 * policy.priced.gain, "gains too little"
        assert gain >= 0.9 * policy.priced.gain_share * before.convert_to_estimate(before.request)
        if event.why == "cold":
            assert facts.cache == "cold", "called cold, and it was not"
            continue
        # Not before the size at which a cycle of growing and folding costs least (DESIGN 5).
        request = before.convert_to_estimate(before.request)
        cost = (prices.w - prices.r) * (event.after + behind)
        cheapest = request - gain + (2 * grows * cost / prices.r) ** 0.5
        assert request >= 0.93 * cheapest, "folded too early to pay"
        assert event.pays_after is not None


@given(TURNS, PRICES, st.sampled_from((0, 0, 7)), st.sampled_from((EAGER, THRIFTY)))
def test_law_7(turns, prices, cold_every, policy):
    """R-15, R-46, R-47."""
    worth_it(turns, prices, cold_every=cold_every, policy=policy)


MOMENT = "foldline.core.edits.fold.span"


@pytest.mark.parametrize(
    ("module", "line", "instead"),
    [
        (MOMENT, "growth=estimate_growth(view), cost=cost", "growth=0.0, cost=cost"),
        (MOMENT, "if gain < max(rule.gain, rule.gain_share * request):", "if False:"),
        (MOMENT, 'if cache == "cold" and request >= rule.floor:', "if True:"),
        ("foldline.core.plan", 'is_full = pressure == "hard" or is_crowded', "is_full = True"),
    ],
)  # fmt: skip
def test_law_7_catches(module, line, instead):
    prices = Prices(3.0, 0.075, 3.75, 15.0)
    scripts = [{"policy": EAGER}, {"policy": THRIFTY, "cold_every": 3}]

    def every():
        for script in scripts:
            worth_it([(6, 20)] * 25, prices, **script)

    every()
    with broken(module, line, instead), pytest.raises(AssertionError):
        every()


class Pasted(Planned):
    """Turns in which a user pastes long texts, and how a fold was planned beside how it was built."""

    def run(self, turns, size):
        """Return for each fold the request at which it was made, and the first that it would pay at."""
        open_views, found = [], []
        for turn in range(turns):
            words = " ".join(f"record{turn}x{n} holds {n * 7919 % 9973}" for n in range(size // 10))
            self.add(user(f"Tell me what is odd in these records: {words}"))
            request = measure_budget(self.view, self.facts.limits).request
            open_views.append((self.view.copy(), request))
            made = self.plan(replace(self.facts, cache="warm"))
            if made.folded:
                paying = (then for view, then in open_views if self.pays(view, then, made.folded))
                found.append((request, next(paying)))
                open_views = []
            self.ask(made, counted=lambda one: one.report.total)
            self.add(model(f"Nothing is odd in {turn}."))
        return found

    def pays(self, view, request, built):
        """Whether a fold pays with the handoff as it was built."""
        known = {"prices": self.facts.prices, "cache": "warm", "most": 1_000_000, "narrative": 0.0}
        moment = find_paying_fold(
            view, self.facts.policy.priced, request=request, handoff=built.after, **known
        )
        return moment is not None and moment.ripe


def folds_in_time(policy):
    prices = Prices(3.0, 0.30, 3.75, 15.0)
    for turns, size in ((60, 1_500), (40, 6_000)):
        found = Pasted(Facts(limits(400_000, None), policy, prices)).run(turns, size)
        assert found, "nothing was folded"
        for request, first in found:
            assert request <= 1.35 * first, f"folded at {request:,}, and paid from {first:,} on"


def test_a_fold_is_planned_with_the_handoff_that_is_built():
    """Of long pastes a handoff quotes some, and of merged facts it holds some: it comes no later for them."""
    folds_in_time(THRIFTY)


def test_a_fold_in_time_catches():
    line = "return most, min(words + again, MOST_WORDS) + facts + _FRAME"
    with broken(MOMENT, line, "return most, most"), pytest.raises(AssertionError):
        folds_in_time(THRIFTY)


MOST = {"thrifty": (0.40, 0.50, 0.62), "steady": (0.46, 0.57, 0.69)}


@pytest.mark.parametrize("policy", [STEADY, THRIFTY], ids=lambda policy: policy.name)
def test_the_bill_is_lower(policy):
    """~200 calls and ~120k tokens beside sending everything, at three prices of a cached read."""
    for r, most in zip((0.10, 0.05, 0.025), MOST[policy.name], strict=True):
        prices = Prices(3.0, 3.0 * r, 3.75, 15.0)
        plain = Billed(Facts(limits(1_000_000, None), replace(policy, priced=None), prices)).turns(
            [(4, 110)] * 40
        )
        folded = Billed(Facts(limits(1_000_000, None), policy, prices)).turns([(4, 110)] * 40)
        share = folded.bill / plain.bill
        print(
            f"{policy.name} r={r}: {share:.0%} of sending everything, {len(folded.made)} folds, "
            f"{plain.requests} calls, {plain.cached:,} tokens"
        )
        assert not plain.made
        assert share <= most


@given(st.integers(2_000, 60_000), st.floats(0.5, 0.98), st.integers(1, 40))
def test_no_loops(window, hard, size):
    """R-17: whatever the settings, folds are bounded by what came in, never one a call."""
    policy = replace(STEADY, hard=hard, rest=hard / 2, priced=None)
    talk = Billed(Facts(limits(window, None), policy)).turns([(3, size)] * 12)
    came_in = sum(e.clip.shown if getattr(e, "clip", None) else 30 for e in talk.events)
    least = 0.05 * measure_budget(talk.view, talk.facts.limits).room
    assert len(talk.made) <= 2 + 3 * came_in / max(least, 20)
    assert len(talk.made) <= talk.requests * 0.7

"""A trial: one session under one policy, and what it would have cost and kept.

Trials and results can be pickled, so any executor of `concurrent.futures`, a cluster's too, can map
`run_trial` over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import Policy
from foldline.core.prices import PICO, Prices, price_tokens
from foldline.lab.bill.cache import Billed, CacheRules, compute_bills
from foldline.lab.fake_summarizer import Teller
from foldline.lab.kept_names import RetentionProbe, measure_retention
from foldline.lab.policy_run import Ours
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Contender, Replayed, replay_session

_RECALL_TOKENS = 60  # of an answer that calls `recall`


@dataclass(frozen=True, slots=True)
class Trial:
    """One session under one of our policies, with a provider's cache and prices."""

    session: Recorded
    policy: Policy
    rules: CacheRules
    window: int
    teller: Teller | None = None


class TrialFold(msgspec.Struct, frozen=True):
    """A fold of a trial: at which call, and its tokens before and after."""

    call: int
    why: str
    messages: int
    before: int
    after: int


class TrialResult(msgspec.Struct, frozen=True):
    """The result of a trial."""

    session: str
    policy: str
    calls: int
    dollars: float
    output_dollars: float
    """Of `dollars`, for the recorded answers: the same under every policy."""
    beside_dollars: float
    """Of `dollars`, for calls beside the conversation, such as summaries."""
    lost: dict[str, float]
    """Dollars by cause for tokens that were sent before and not read from the cache."""
    sizes: tuple[int, ...]
    """Tokens of each request, in order."""
    spent: tuple[float, ...]
    """Dollars of each call, in order."""
    edits: tuple[TrialFold, ...]
    retention: RetentionProbe
    blocked: int = 0
    """Calls that could not be made to fit."""
    read_dollars: float = 0.0
    """Dollars for tokens read from the cache."""
    again_dollars: float = 0.0
    """Dollars for tokens that the call before had sent too, and that were written again."""
    recall_dollars: float = 0.0
    """Not in `dollars`: what reading back would cost, by one call more before each answer that
    reuses what was out of sight."""

    @property
    def input_dollars(self) -> float:
        """Dollars for everything but the recorded answers: what a policy can change."""
        return self.dollars - self.output_dollars

    @property
    def new_dollars(self) -> float:
        """Dollars for tokens sent for the first time."""
        known = self.read_dollars + self.again_dollars + self.beside_dollars
        return self.input_dollars - known


def run_trial(trial: Trial) -> TrialResult:
    """Run one trial; deterministic."""
    # A bill has prices, if only assumed ones: the policy acts upon them.
    prices = replace(trial.rules.prices, free=False)
    facts = Facts(limits(trial.window, None, step=prices.step), trial.policy, prices)
    ours = Ours(trial.session, facts, teller=trial.teller)
    return evaluate_contender(trial.session, ours, trial.rules)


def evaluate_contender(session: Recorded, contender: Contender, rules: CacheRules) -> TrialResult:
    """Replay, bill and probe a session under any contender."""
    made = replay_session(session, contender)
    return evaluate_replay(made, measure_retention(made), rules)


def evaluate_replay(made: Replayed, kept: RetentionProbe, rules: CacheRules) -> TrialResult:
    """Bill a replay; one replay serves all prices if the contender ignores them."""
    billed = compute_bills([step.sent for step in made.steps], rules)
    at = rules.prices.at
    folds = (
        TrialFold(at, fold.why, fold.messages, fold.before, fold.after)
        for at, step in enumerate(made.steps)
        for fold in step.folds
    )
    return TrialResult(
        session=made.recorded.name,
        policy=made.policy,
        calls=len(billed),
        dollars=sum(call.dollars for call in billed),
        output_dollars=sum(price_tokens(at(call.input), output=call.output) for call in billed)
        / PICO,
        beside_dollars=sum(call.beside for call in billed),
        lost=_sum_lost_dollars(billed),
        sizes=tuple(round(call.input) for call in billed),
        spent=tuple(call.dollars for call in billed),
        edits=tuple(folds),
        retention=kept,
        blocked=made.blocked,
        read_dollars=sum(price_tokens(at(call.input), read=call.read) for call in billed) / PICO,
        again_dollars=sum(price_tokens(at(call.input), write=call.again) for call in billed) / PICO,
        recall_dollars=sum(
            _price_recall(billed[call], tokens, at(billed[call].input))
            for call, tokens in kept.missing.items()
        ),
    )


def _price_recall(call: Billed, tokens: int, prices: Prices) -> float:
    """Price a call that reads something back: the request once more, what it writes and gets."""
    price = price_tokens(prices, read=call.input, write=tokens, output=_RECALL_TOKENS)
    return price / PICO


def _sum_lost_dollars(billed: Sequence[Billed]) -> dict[str, float]:
    lost: dict[str, float] = {}
    for call in billed:
        if call.lost:
            cause = call.cause or "too short"
            lost[cause] = lost.get(cause, 0) + call.lost
    return lost

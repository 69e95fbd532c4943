"""Many sessions under many policies: what each would have cost and kept, wherever it is computed.

Knows what a trial is and what comes of it. Refuses to know where it runs: trials and results are
pickled, so any executor of `concurrent.futures` can map `run` over them, a cluster's too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import Policy
from foldline.lab.bill.cache import Billed, CacheRules, bill
from foldline.lab.fake_summarizer import Teller
from foldline.lab.policy_run import Ours
from foldline.lab.probes.kept import RetentionProbe, retention
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Contender, Replayed, replay


@dataclass(frozen=True, slots=True)
class Trial:
    """One session under one of our policies, with some provider's cache and prices."""

    session: Recorded
    policy: Policy
    rules: CacheRules
    window: int
    teller: Teller | None = None


class TrialFold(msgspec.Struct, frozen=True):
    """A fold of a trial: at which call, what it took and what it left."""

    call: int
    why: str
    messages: int
    before: int
    after: int


class TrialResult(msgspec.Struct, frozen=True):
    """What came of a trial; dollars of all its calls, and what each call took."""

    session: str
    policy: str
    calls: int
    dollars: float
    output_dollars: float
    """Of it, what the recorded answers cost: the same under every policy."""
    beside_dollars: float
    """Of it, for calls beside the conversation: summaries."""
    lost: dict[str, float]
    """Dollars by cause that tokens cost because they were sent before and not read again."""
    sizes: tuple[int, ...]
    """Tokens of each request, in order."""
    spent: tuple[float, ...]
    """Dollars of each call, in order."""
    edits: tuple[TrialFold, ...]
    retention: RetentionProbe
    blocked: int = 0
    """Calls that could not be made to fit."""
    read_dollars: float = 0.0
    """For tokens that were read from the cache."""
    again_dollars: float = 0.0
    """For tokens that the call before had sent too, and that were written once more."""

    @property
    def input_dollars(self) -> float:
        """All but what the recorded answers cost: what a policy can change."""
        return self.dollars - self.output_dollars

    @property
    def new_dollars(self) -> float:
        """For tokens that were sent for the first time."""
        known = self.read_dollars + self.again_dollars + self.beside_dollars
        return self.input_dollars - known


def run(trial: Trial) -> TrialResult:
    """One trial, from its session's events alone; the same every time."""
    prices = trial.rules.prices
    facts = Facts(limits(trial.window, None, step=prices.step), trial.policy, prices)
    ours = Ours(trial.session, facts, teller=trial.teller)
    return judged(trial.session, ours, trial.rules)


def judged(session: Recorded, contender: Contender, rules: CacheRules) -> TrialResult:
    """A session under any contender: replayed, billed and probed."""
    made = replay(session, contender)
    return priced(made, retention(made), rules)


def priced(made: Replayed, kept: RetentionProbe, rules: CacheRules) -> TrialResult:
    """A replay at some prices: for those who decide without them, one replay does for all."""
    billed = bill([step.sent for step in made.steps], rules)
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
        output_dollars=sum(call.output * at(call.input).output for call in billed) / 1e6,
        beside_dollars=sum(call.beside for call in billed),
        lost=_lost(billed),
        sizes=tuple(round(call.input) for call in billed),
        spent=tuple(call.dollars for call in billed),
        edits=tuple(folds),
        retention=kept,
        blocked=made.blocked,
        read_dollars=sum(call.read * at(call.input).read for call in billed) / 1e6,
        again_dollars=sum(call.again * at(call.input).write for call in billed) / 1e6,
    )


def _lost(billed: Sequence[Billed]) -> dict[str, float]:
    found: dict[str, float] = {}
    for call in billed:
        if call.lost:
            found[call.cause or "too short"] = found.get(call.cause or "too short", 0) + call.lost
    return found

"""Compare policies over sessions: which tasks to run, and what their results add up to.

Every policy is compared with the calls as they were made, and with sending everything each time.
Means have bootstrap intervals. They resample sessions, not calls, as the calls of one session
depend on each other.

Trials and results can be pickled, so any executor of `concurrent.futures`, a cluster's too, can map
`run_trial` over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import NamedTuple

import msgspec

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import OFF, Policy, named
from foldline.core.prices import PICO, Prices, price_tokens
from foldline.lab.bill.cache import Billed, CacheRules, compute_bills, rules_for
from foldline.lab.bill.costs import build_cost_report
from foldline.lab.kept_names import KeptShare, RetentionProbe, measure_retention
from foldline.lab.policy_run import RECORDED, AsRecorded, Ours, Teller
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Contender, Replayed, replay_session
from foldline.models.catalog import find

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


_DRAWS = 2_000
_SHARE = 0.95


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


def estimate_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Estimate the mean of one value per session; the same seed gives the same interval."""
    if not values:
        raise ValueError("no values: give one for each session")
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    means = sorted(fmean(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    outside = int(_DRAWS * (1 - _SHARE) / 2)
    return Interval(fmean(values), means[outside], means[_DRAWS - 1 - outside])


EVERYTHING = OFF.name
_ENDLESS = 1_000_000_000  # a window that holds everything, though no model has it


@dataclass(frozen=True, slots=True)
class Case:
    """A session, and the prices and window for its replay."""

    session: Recorded
    prices: Prices
    window: int
    source: str = ""
    """The file it is from; "" for our own store."""
    agent: str = ""
    """The coding agent that wrote it; "" if that is not known."""
    priced_as: str = ""
    """The model whose prices these are; "" if they were given or are assumed."""
    window_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One session under one policy; can be pickled."""

    case: Case
    policy: str
    narratives: bool = False
    """Whether folds bill a model's summary, if the policy wants one."""


def make_tasks(cases: Sequence[Case], policies: Sequence[str], *, narratives: bool) -> list[Task]:
    """Make a task for every session: as recorded, with everything sent, and per policy."""
    every = dict.fromkeys((RECORDED, EVERYTHING, *policies))
    return [
        # A copy without its cached properties, which are larger to pickle than the session.
        Task(replace(case, session=replace(case.session)), policy, narratives=narratives)
        for case in cases
        for policy in every
    ]


def run_task(task: Task) -> TrialResult:
    """Run one task; deterministic."""
    case = task.case
    rules = _make_cache_rules(case)
    if task.policy == RECORDED:
        return evaluate_contender(case.session, AsRecorded(case.session), rules)
    policy = named(task.policy)
    teller = Teller(policy.narrative) if task.narratives and policy.narrative else None
    window = _ENDLESS if policy is OFF else case.window
    return run_trial(Trial(case.session, policy, rules, window, teller))


class Compared(msgspec.Struct, frozen=True):
    """One session's facts, and its results in the order of the policies."""

    session: str
    source: str
    agent: str
    model: str
    calls: int
    counts: bool
    """Whether the record has the provider's counts."""
    dated: bool
    """Whether it has the times of calls; else the cache never expires."""
    window: int
    window_assumed: bool
    prices: Prices
    priced_as: str
    recorded_dollars: float | None
    """The cost by the recorded counts, at these prices."""
    folded: bool
    """Whether any policy folded something."""
    results: tuple[TrialResult, ...]

    def result_of(self, policy: str) -> TrialResult:
        """Return the result under a policy."""
        return next(one for one in self.results if one.policy == policy)


class Total(msgspec.Struct, frozen=True):
    """A policy over all sessions."""

    policy: str
    dollars: float
    percent: float
    """The difference from the baseline; below zero is cheaper."""
    new_dollars: float
    read_dollars: float
    again_dollars: float
    output_dollars: float
    beside_dollars: float
    recall_dollars: float
    """Not in `dollars`: reading back what was reused although it was out of sight."""
    recalls: int
    """The calls that this takes."""
    folds: int
    tokens_folded: int
    tokens_left: int
    """Tokens of the handoffs in their place."""
    names: KeptShare
    lines: KeptShare
    peak: int
    over: int
    """Calls larger than the window: a provider would have refused them."""
    blocked: int

    @property
    def kept_names(self) -> float:
        """Percent of the reused names that were in the request."""
        return self.names.percent

    @property
    def kept_lines(self) -> float:
        """Percent of the reused long lines that were in the request."""
        return self.lines.percent


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of all sessions and policies."""

    sessions: tuple[Compared, ...]
    totals: tuple[Total, ...]
    baseline: str
    chosen: str
    """The policy that the headline is about."""
    narratives: bool = False
    fixed: tuple[str, ...] = ()
    """What the user set: prices, window."""

    @property
    def recorded_dollars(self) -> float | None:
        """The cost by the recorded counts; None if no session has any."""
        known = [one.recorded_dollars for one in self.sessions if one.recorded_dollars is not None]
        return sum(known) if known else None

    @property
    def paid(self) -> float:
        """What the sessions cost: by the recorded counts where there are any, else simulated."""
        return sum(
            one.result_of(self.baseline).dollars
            if one.recorded_dollars is None
            else one.recorded_dollars
            for one in self.sessions
        )

    @property
    def predicted(self) -> float:
        """What they would have cost: in the proportion of the simulator's bills.

        The errors of its model of the provider's cache are in both bills.
        """
        billed = self.total_of(self.baseline).dollars
        return self.paid * self.total_of(self.chosen).dollars / billed if billed else 0.0

    @property
    def counted(self) -> int:
        """Sessions whose record has counts."""
        return sum(one.counts for one in self.sessions)

    @property
    def small(self) -> int:
        """Sessions in which no policy folded anything."""
        return sum(not one.folded for one in self.sessions)

    def total_of(self, policy: str) -> Total:
        """Return a policy's total."""
        return next(one for one in self.totals if one.policy == policy)


def build_comparison(
    cases: Sequence[Case],
    results: Sequence[TrialResult],
    *,
    narratives: bool = False,
    fixed: tuple[str, ...] = (),
) -> Comparison:
    """Build a comparison from the results, in the order of their tasks."""
    each = len(results) // len(cases)
    rows = [results[at : at + each] for at in range(0, len(results), each)]
    sessions = tuple(_compare_session(case, row) for case, row in zip(cases, rows, strict=True))
    policies = [one.policy for one in rows[0]]
    baseline = RECORDED if any(one.counts for one in sessions) else EVERYTHING
    if baseline == EVERYTHING and not any(one.result_of(RECORDED).edits for one in sessions):
        policies.remove(RECORDED)  # estimated from the same events, it equals EVERYTHING
    whole = sum(one.result_of(baseline).dollars for one in sessions)
    totals = tuple(_sum_policy(name, sessions, whole) for name in policies)
    ours = [name for name in policies if name not in (RECORDED, EVERYTHING)]
    chosen = ours[0] if ours else EVERYTHING
    return Comparison(sessions, totals, baseline, chosen, narratives=narratives, fixed=fixed)


def _make_cache_rules(case: Case) -> CacheRules:
    return rules_for(case.session.model, case.prices)


def _compare_session(case: Case, results: Sequence[TrialResult]) -> Compared:
    session = case.session
    rules = _make_cache_rules(case)

    def choose_rules(model: str) -> CacheRules:
        """Each call at its own model's prices, unless the prices were given."""
        is_other = case.priced_as == session.model != model
        found = rules_for(model, find(model).prices) if is_other else rules
        # A replay is billed at assumed prices, too, so what it is compared with has to be.
        return replace(found, prices=replace(found.prices, is_known=True))

    report = build_cost_report(session, rules, by_model=choose_rules) if session.counts else None
    return Compared(
        session=session.name,
        source=case.source,
        agent=case.agent,
        model=session.model,
        calls=results[0].calls,
        counts=session.counts,
        dated=any(call.time for call in session.calls),
        window=case.window,
        window_assumed=case.window_assumed,
        prices=case.prices,
        priced_as=case.priced_as,
        recorded_dollars=report.total if report else None,
        folded=any(result.edits for result in results if result.policy != RECORDED),
        results=tuple(results),
    )


def _sum_policy(policy: str, sessions: Sequence[Compared], whole: float) -> Total:
    rows = [(one.window, one.result_of(policy)) for one in sessions]
    results = [result for _, result in rows]
    dollars = sum(one.dollars for one in results)
    return Total(
        policy=policy,
        dollars=dollars,
        percent=100 * (dollars / whole - 1) if whole else 0.0,
        new_dollars=sum(one.new_dollars for one in results),
        read_dollars=sum(one.read_dollars for one in results),
        again_dollars=sum(one.again_dollars for one in results),
        output_dollars=sum(one.output_dollars for one in results),
        beside_dollars=sum(one.beside_dollars for one in results),
        recall_dollars=sum(one.recall_dollars for one in results),
        recalls=sum(len(one.retention.missing) for one in results),
        folds=sum(len(one.edits) for one in results),
        tokens_folded=sum(edit.before for one in results for edit in one.edits),
        tokens_left=sum(edit.after for one in results for edit in one.edits),
        names=sum((one.retention.names for one in results), KeptShare()),
        lines=sum((one.retention.lines for one in results), KeptShare()),
        peak=max((max(one.sizes, default=0) for one in results), default=0),
        over=sum(size > window for window, one in rows for size in one.sizes),
        blocked=sum(one.blocked for one in results),
    )

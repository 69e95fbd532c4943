"""Sessions under policies, side by side: what is run for that, and what it adds up to.

Knows what everything is compared with: the calls as they were made, and sending all of it each
time. Refuses to know where trials run, and how a comparison is shown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from foldline.core.policy import OFF, named
from foldline.core.prices import Prices
from foldline.lab.bill.cache import CacheRules
from foldline.lab.bill.costs import costs
from foldline.lab.bill.providers import rules_for
from foldline.lab.fake_summarizer import Teller
from foldline.lab.probes.kept import KeptShare
from foldline.lab.recorded import Recorded
from foldline.lab.recorded_run import RECORDED, AsRecorded
from foldline.lab.trials import Trial, TrialResult, judged, run

EVERYTHING = OFF.name
_ENDLESS = 1_000_000_000  # a window in which everything is sent, whatever the model would say


@dataclass(frozen=True, slots=True)
class Case:
    """A session, and what it is replayed under."""

    session: Recorded
    prices: Prices
    window: int
    source: str = ""
    """The file it is from, or nothing for the own store."""
    priced_as: str = ""
    """The model whose prices these are; nothing where they were given or are assumed."""
    window_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One session under one policy: what is sent to whoever computes it."""

    case: Case
    policy: str
    narratives: bool = False
    """Whether folds ask a model for a summary, where the policy wants one; its cost is billed."""


def tasks(cases: Sequence[Case], policies: Sequence[str], *, narratives: bool) -> list[Task]:
    """Every session as recorded, with everything sent, and under each policy."""
    every = dict.fromkeys((RECORDED, EVERYTHING, *policies))
    return [
        # Without what was computed here: it is larger than the session, and made again in no time.
        Task(replace(case, session=replace(case.session)), policy, narratives=narratives)
        for case in cases
        for policy in every
    ]


def work(task: Task) -> TrialResult:
    """One task; the same every time and everywhere."""
    case = task.case
    rules = _rules(case)
    if task.policy == RECORDED:
        return judged(case.session, AsRecorded(case.session), rules)
    policy = named(task.policy)
    telling = task.narratives and policy.narrative
    teller = Teller(policy.narrative) if telling else None
    window = _ENDLESS if policy is OFF else case.window
    return run(Trial(case.session, policy, rules, window, teller))


class Compared(msgspec.Struct, frozen=True):
    """One session: what is known of it, and its results in the order of the policies."""

    session: str
    source: str
    model: str
    calls: int
    counts: bool
    """Whether the record says what the provider counted."""
    dated: bool
    """Whether it says when calls were made: else the cache is never too old."""
    window: int
    window_assumed: bool
    prices: Prices
    priced_as: str
    recorded_dollars: float | None
    """By the recorded counts, at these prices."""
    folded: bool
    """Whether any policy found something to fold."""
    results: tuple[TrialResult, ...]

    def under(self, policy: str) -> TrialResult:
        """Its result under a policy."""
        return next(one for one in self.results if one.policy == policy)


class Total(msgspec.Struct, frozen=True):
    """A policy over all sessions."""

    policy: str
    dollars: float
    percent: float
    """More (or, below zero, less) than what it is compared with."""
    new_dollars: float
    read_dollars: float
    again_dollars: float
    output_dollars: float
    beside_dollars: float
    folds: int
    tokens_folded: int
    tokens_left: int
    """What stood in their place."""
    names: KeptShare
    lines: KeptShare
    peak: int
    over: int
    """Calls that were larger than the window: no provider would have taken them."""
    blocked: int

    @property
    def kept_names(self) -> float:
        """Percent of the names used again that were in front."""
        return self.names.percent

    @property
    def kept_lines(self) -> float:
        """Percent of the long lines written again that were in front."""
        return self.lines.percent


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it."""

    sessions: tuple[Compared, ...]
    totals: tuple[Total, ...]
    baseline: str
    chosen: str
    """The policy that is spoken of first."""
    narratives: bool = False
    fixed: tuple[str, ...] = field(default=())
    """What a person set: prices, window."""

    @property
    def recorded_dollars(self) -> float | None:
        """What the recorded counts say; None where no session has any."""
        known = [one.recorded_dollars for one in self.sessions if one.recorded_dollars is not None]
        return sum(known) if known else None

    @property
    def counted(self) -> int:
        """Sessions whose record has counts."""
        return sum(one.counts for one in self.sessions)

    @property
    def small(self) -> int:
        """Sessions in which no policy found anything to fold."""
        return sum(not one.folded for one in self.sessions)

    def total(self, policy: str) -> Total:
        """A policy's."""
        return next(one for one in self.totals if one.policy == policy)


def compared(
    cases: Sequence[Case],
    results: Sequence[TrialResult],
    *,
    narratives: bool = False,
    fixed: tuple[str, ...] = (),
) -> Comparison:
    """Results, in the order of their tasks, as one comparison."""
    each = len(results) // len(cases)
    rows = [results[at : at + each] for at in range(0, len(results), each)]
    sessions = tuple(_session(case, row) for case, row in zip(cases, rows, strict=True))
    policies = [one.policy for one in rows[0]]
    baseline = RECORDED if any(one.counts for one in sessions) else EVERYTHING
    if baseline == EVERYTHING and not any(one.under(RECORDED).edits for one in sessions):
        policies.remove(RECORDED)  # estimated from the same events, it is the same thing
    whole = sum(one.under(baseline).dollars for one in sessions)
    totals = tuple(_total(name, sessions, whole) for name in policies)
    ours = [name for name in policies if name not in (RECORDED, EVERYTHING)]
    chosen = ours[0] if ours else EVERYTHING
    return Comparison(sessions, totals, baseline, chosen, narratives=narratives, fixed=fixed)


def _rules(case: Case) -> CacheRules:
    return rules_for(case.session.model, case.prices)


def _session(case: Case, results: Iterable[TrialResult]) -> Compared:
    session, told = case.session, tuple(results)
    return Compared(
        session=session.name,
        source=case.source,
        model=session.model,
        calls=told[0].calls,
        counts=session.counts,
        dated=any(call.time for call in session.calls),
        window=case.window,
        window_assumed=case.window_assumed,
        prices=case.prices,
        priced_as=case.priced_as,
        recorded_dollars=costs(session, _rules(case)).total if session.counts else None,
        folded=any(one.edits for one in told if one.policy != RECORDED),
        results=told,
    )


def _total(policy: str, sessions: Sequence[Compared], whole: float) -> Total:
    rows = [(one.window, one.under(policy)) for one in sessions]
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
        folds=sum(len(one.edits) for one in results),
        tokens_folded=sum(edit.before for one in results for edit in one.edits),
        tokens_left=sum(edit.after for one in results for edit in one.edits),
        names=sum((one.retention.names for one in results), KeptShare()),
        lines=sum((one.retention.lines for one in results), KeptShare()),
        peak=max((max(one.sizes, default=0) for one in results), default=0),
        over=sum(size > window for window, one in rows for size in one.sizes),
        blocked=sum(one.blocked for one in results),
    )

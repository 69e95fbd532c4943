"""Watchers of folds and narratives, and vetoes on folds.

    foldline.watch(print)                                     # every fold and narrative
    live.passes.watchers.append(print)                        # those of one session
    live.passes.vetoes.append(lambda fold: "not on Fridays")  # a reason forbids it; None allows it

A pass is one fold, or one request for a narrative. `metrics` counts and traces them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from foldline.core.log import Event, Folded
from foldline.core.plan import Facts, Ready
from foldline.core.policy import limit_to_forced_folds
from foldline.errors import BadInput, FoldlineError, Vetoed
from foldline.session.log_lines import log_failed_fold, log_narrative, log_veto
from foldline.stores.base import Name

if TYPE_CHECKING:
    from foldline.models.summarize import Narrative


class Pass(NamedTuple):
    """One fold or narrative: its trigger, its sizes and its outcome."""

    kind: Literal["fold", "narrative"]
    name: Name
    model: str
    trigger: str
    """A fold's reason: forced, full (nobody had said yes, and it could not be sent otherwise),
    pays, cold, due; a narrative's form: prefix, pieces or none."""
    outcome: str
    """A fold's: applied, vetoed or failed; a narrative's: told, rejected, failed, skipped."""
    reason: str = ""
    before: int = 0
    """Tokens of what was folded; for a narrative its input."""
    after: int = 0
    """Tokens of the handoff; for a narrative its output."""
    cached: int = 0
    """Tokens of a narrative's input that came from the provider's cache."""
    seconds: float = 0.0

    @property
    def ratio(self) -> float:
        """Tokens before ÷ after."""
        return self.before / self.after if self.after else 0.0


Watcher: TypeAlias = Callable[[Pass], object]
Veto: TypeAlias = Callable[[Folded], str | None]
"""Returns why a fold must not be made, or None."""
Planning: TypeAlias = Callable[[Facts], Awaitable[Ready]]
_watchers: dict[object, Watcher] = {}  # of every session of this process


def watch(watcher: Watcher) -> Callable[[], None]:
    """Call a watcher for every fold and narrative of all sessions of this process.

    It is called with a `Pass`: those of sessions that are open now, of later ones, and of
    conversations through `wrap` or a gateway. Call the returned function to end this.

        foldline.watch(metrics.prometheus())    # from foldline.session import metrics
        end = foldline.watch(print)
        end()

    An error of a watcher is logged, and stops nothing.
    """
    if not callable(watcher):  # pyright: ignore[reportUnnecessaryComparison]
        raise BadInput(f"{watcher!r} cannot be called; give a function of one `Pass`")
    key = object()
    _watchers[key] = watcher

    def end_watch() -> None:
        _watchers.pop(key, None)

    return end_watch


class Passes:
    """The watchers and vetoes of a session."""

    def __init__(self, name: Name) -> None:
        self.watchers: list[Watcher] = []
        self.vetoes: list[Veto] = []
        self._name = name
        self._planned = 0.0  # seconds that the newest plan took

    async def plan_allowed_folds(self, plan: Planning, facts: Facts, model: str) -> Ready:
        """Plan without vetoed folds; raises `Vetoed` if the plan needs one."""
        begun = perf_counter()
        ready = await plan(facts)
        self._planned = perf_counter() - begun
        found = self._find_veto(ready.events)
        if found is None:
            return ready
        fold, why = found
        self._notify_watchers(_of_fold(fold, self._name, model, outcome="vetoed", reason=why))
        if facts.now:
            raise Vetoed(why)
        ready = await plan(replace(facts, policy=limit_to_forced_folds(facts.policy)))
        if self._find_veto(ready.events) is not None:
            raise Vetoed(why)
        log_veto(self._name, why)
        return ready

    def report_folds(self, events: Sequence[Event], model: str) -> None:
        """Notify watchers of the folds among appended events."""
        for fold in _select_folds(events) if self.watchers or _watchers else ():
            made = _of_fold(fold, self._name, model, outcome="applied")
            self._notify_watchers(made._replace(seconds=self._planned))

    def report_failed_fold(self, fault: FoldlineError, model: str, trigger: str = "forced") -> None:
        """Notify watchers of a fold that could not be made, and log it."""
        log_failed_fold(self._name, fault)
        self._notify_watchers(
            Pass(
                kind="fold",
                name=self._name,
                model=model,
                trigger=trigger,
                outcome="failed",
                reason=type(fault).__name__,
                seconds=self._planned,
            )
        )

    def report_narrative(self, one: "Narrative", model: str, seconds: float) -> None:
        """Notify watchers of a narrative, and log one that is not there."""
        used, by = one.used, one.prepared.by if one.prepared else ""
        log_narrative(self._name, one, by or model)
        self._notify_watchers(
            Pass(
                kind="narrative",
                name=self._name,
                model=by or model,
                trigger=one.form or "none",
                outcome=one.outcome,
                reason=one.reason,
                before=used.input or 0,
                after=used.output or 0,
                cached=used.cache_read or 0,
                seconds=seconds,
            )
        )

    def _find_veto(self, events: Sequence[Event]) -> tuple[Folded, str] | None:
        reasons = ((fold, veto(fold)) for fold in _select_folds(events) for veto in self.vetoes)
        return next(((fold, why) for fold, why in reasons if why), None)

    def _notify_watchers(self, one: Pass) -> None:
        for watcher in (*self.watchers, *_watchers.values()):
            try:
                watcher(one)
            except Exception:  # a watcher's error must not stop a session
                import logging  # noqa: PLC0415 - slow to import, and this is rare

                logging.getLogger("foldline").exception("a watcher of passes failed")


def _select_folds(events: Sequence[Event]) -> list[Folded]:
    return [event for event in events if isinstance(event, Folded)]


def _of_fold(fold: Folded, name: Name, model: str, *, outcome: str, reason: str = "") -> Pass:
    return Pass(
        kind="fold",
        name=name,
        model=model,
        trigger=fold.why,
        outcome=outcome,
        reason=reason,
        before=fold.before,
        after=fold.after,
    )

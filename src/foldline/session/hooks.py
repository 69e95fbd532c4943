"""What is seen of each pass over a session, and who may forbid one: A-48, R-76.

    live.passes.watchers.append(print)                        # told of every fold and narrative
    live.passes.vetoes.append(lambda fold: "not on Fridays")  # a reason forbids it; None allows it

A pass is one fold, or one wish for a narrative. Knows what there is to tell of it. Refuses to know
who listens: `metrics` counts and traces. Whoever wants a change adds an event to the session.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from foldline.core.log import Event, Folded
from foldline.core.plan import Facts, Ready
from foldline.core.policy import unforced
from foldline.errors import Vetoed
from foldline.stores.base import Name

if TYPE_CHECKING:
    from foldline.models.summarize import Narrative


class Pass(NamedTuple):
    """One fold or narrative: why, how large before and after, and what became of it."""

    kind: Literal["fold", "narrative"]
    name: Name
    model: str
    trigger: str
    """A fold's reason: forced, pays, cold, due; a narrative's form: prefix, pieces or none."""
    outcome: str
    """A fold's: applied or vetoed; a narrative's: told, rejected, failed, skipped."""
    reason: str = ""
    before: int = 0
    """Tokens of what was folded; of a narrative: what its questions took."""
    after: int = 0
    """Tokens of the handoff; of a narrative: its answers."""
    cached: int = 0
    """Tokens of a narrative's questions that the provider had in its cache."""
    seconds: float = 0.0

    @property
    def ratio(self) -> float:
        """Tokens before ÷ after: A-30."""
        return self.before / self.after if self.after else 0.0


Watcher: TypeAlias = Callable[[Pass], object]
Veto: TypeAlias = Callable[[Folded], str | None]
"""Why a fold must not be made, or None."""
Planning: TypeAlias = Callable[[Facts], Awaitable[Ready]]


class Passes:
    """Who watches a session's passes, and who may forbid one."""

    def __init__(self, name: Name) -> None:
        self.watchers: list[Watcher] = []
        self.vetoes: list[Veto] = []
        self._name = name
        self._planned = 0.0  # seconds that the newest plan took

    async def allowed(self, plan: Planning, facts: Facts, model: str) -> Ready:
        """A plan without folds that somebody forbids; `Vetoed` where it needs one."""
        begun = perf_counter()
        ready = await plan(facts)
        self._planned = perf_counter() - begun
        found = self._forbidden(ready.events)
        if found is None:
            return ready
        fold, why = found
        self._tell(_of_fold(fold, self._name, model, outcome="vetoed", reason=why))
        if fold.why == "forced" or facts.now:
            raise Vetoed(why)
        ready = await plan(replace(facts, policy=unforced(facts.policy)))
        if self._forbidden(ready.events) is not None:
            raise Vetoed(why)
        return ready

    def made(self, events: Sequence[Event], model: str) -> None:
        """Tell of the folds among events that were appended."""
        for fold in _folds(events) if self.watchers else ():
            made = _of_fold(fold, self._name, model, outcome="applied")
            self._tell(made._replace(seconds=self._planned))

    def told(self, one: "Narrative", model: str, seconds: float) -> None:
        """Tell of a wish for a narrative."""
        used, by = one.used, one.prepared.by if one.prepared else ""
        self._tell(
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

    def _forbidden(self, events: Sequence[Event]) -> tuple[Folded, str] | None:
        """The first fold among some events that somebody forbids, and why."""
        found = ((fold, veto(fold)) for fold in _folds(events) for veto in self.vetoes)
        return next(((fold, why) for fold, why in found if why), None)

    def _tell(self, one: Pass) -> None:
        for watch in self.watchers:
            try:
                watch(one)
            except Exception:  # what goes wrong there must not stop a session
                import logging  # noqa: PLC0415 - slow to import, and this is rare

                logging.getLogger("foldline").exception("a watcher of passes failed")


def _folds(events: Sequence[Event]) -> list[Folded]:
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

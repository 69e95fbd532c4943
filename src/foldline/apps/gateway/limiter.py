"""Enforces the operator's limits before a model is asked.

    admission = await limiter.admit_call(caller, CallEstimate(1, 40_000, 120_000_000_000))
    … the call …
    limiter.settle_call(admission, tokens=12_000, pico=30_000_000_000)

`admit_call` raises `Refusal` with the time after which to ask again. What a call may take at most
is reserved, and replaced by what it took.

A process takes its allowances from the store (`limit_counters`), in advance where plenty is left:
so most calls cost no statement. While the store is away it goes on with what it holds, and with
what it was given for the last minute, for `LASTING` seconds; then the tenant's setting decides
whether calls pass uncounted or are refused.

What tenants and owners have stored is measured once a minute:

    sizes = StoredSizes(store)
    sizes.find_size("acme", "alice")        # as known; None before the first measurement

One process measures for all: it lists the tenant's sessions and writes the sums into the side
table. A tenant whose list takes long is measured less often. So a limit on stored bytes holds to
what is written in a minute.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import uniform
from time import gmtime, monotonic, strftime, time
from typing import Final, NamedTuple

import msgspec

from foldline.apps.gateway.allowances import MEASURES, Measure, Part, find_window_end
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limit_counters import LimitCounters, SharedCounter
from foldline.core.prices import PICO
from foldline.errors import FoldlineError
from foldline.session.stored_session import cancel_tasks
from foldline.settings.limit_rules import ChosenLimit, LimitRule, choose_limits
from foldline.stores.base import Name, Store

LASTING: Final = 60.0
"""Seconds for which known allowances are used while the store is away."""
_PATIENCE = 10.0  # seconds that a call waits for the store
_TRIES = 50  # trades for one call: others of this process may be faster
_SHORT = 60  # seconds up to which SDKs wait by themselves
_AGAIN = 0.5  # seconds between two trades that give nothing
_BRIEFLY = 0.5  # seconds that it waits when the store is known to be away
_BUSY = 1.0  # seconds after which to ask again where others may give something back
_TICK = 0.5  # seconds between two looks at what is idle or expires
_QUIET = 20.0  # seconds after which what nobody uses is given back
_FRESH = 15.0  # seconds after which the count of a limit with a warning is read again
_AFTER_STORED = 120  # seconds after which stored bytes have been measured again
_KNOWN = 20_000  # callers whose limits are remembered
_log = logging.getLogger("foldline.limits")


class LimitedCaller(NamedTuple):
    """Whose call it is, and of which model."""

    tenant: str
    owner: str = ""
    key: str = ""
    model: str = ""


class CallEstimate(NamedTuple):
    """The most that a call may take."""

    tokens: int = 0
    pico: int = 0
    sent: int = 0
    """Of the tokens: those of the input."""
    sent_pico: int = 0
    """Of the money: that for the input."""

    def find_need(self, measure: Measure) -> int:
        """Return what the call needs of a measure."""
        if measure.is_money:
            return self.pico
        return self.tokens if measure.name == "tokens_per_minute" else 1


_NOTHING: Final = CallEstimate()


@dataclass(frozen=True, slots=True)
class BoundLimit:
    """A limit of a caller, and where it is counted."""

    chosen: ChosenLimit
    measure: Measure
    counter: SharedCounter

    def format_amount(self, amount: int) -> str:
        """Format an amount of what is counted."""
        return f"{amount / PICO:.2f}" if self.measure.is_money else f"{amount}"


class TakenPart(NamedTuple):
    """What was reserved of one part."""

    bound: BoundLimit
    part: Part
    need: int


@dataclass(slots=True)
class Admission:
    """A call that may be made."""

    taken: list[TakenPart] = field(default_factory=list[TakenPart])
    warnings: list[str] = field(default_factory=list[str])
    """What the client is told of limits that are nearly reached."""
    estimate: CallEstimate = _NOTHING
    is_open: bool = True

    def encode_headers(self) -> list[tuple[bytes, bytes]]:
        """Encode the warnings as headers of the answer."""
        return [(b"x-foldline-limit", _encode_text(one)) for one in self.warnings]


class Limiter:
    """The limits of all calls of one process."""

    def __init__(
        self,
        store: Store,
        rules: Sequence[LimitRule] = (),
        *,
        passes_faults: Callable[[str], bool] = lambda _tenant: False,
        clock: Callable[[], float] = time,
    ) -> None:
        """`passes_faults` says whether a tenant's calls pass while the store is away."""
        self._rules = tuple(rules)
        self._passes_faults, self._clock = passes_faults, clock
        self._counters = LimitCounters(store)
        self._sizes = StoredSizes(store, clock=clock)
        self._stored: dict[LimitedCaller, tuple[ChosenLimit, ...]] = {}
        """The limits of stored bytes of those who have any."""
        self._bound: dict[LimitedCaller, tuple[BoundLimit, ...]] = {}
        self._full: dict[tuple[int, str], tuple[int, float, float]] = {}
        """By counter and measure: what was refused, until when, and when to ask again."""
        self._away_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.refused: Counter[tuple[str, str, str]] = Counter()
        """Calls that were refused, by tenant, measure and what is counted apart."""
        self.uncounted = 0
        """Calls that passed while the store was away."""

    def count_trades(self) -> int:
        """Count the trades with the store so far."""
        return self._counters.count_trades()

    @property
    def has_rules(self) -> bool:
        """Whether there are limits at all."""
        return bool(self._rules)

    def set_rules(self, rules: Sequence[LimitRule]) -> None:
        """Put other rules in force; what was used so far counts."""
        if tuple(rules) == self._rules:
            return
        self._rules = tuple(rules)
        known = [*self._bound]
        self._bound.clear()
        self._stored.clear()
        self._full.clear()
        for caller in known:
            self.bind_limits(caller)
        for counter in self._counters.list_counters():
            counter.is_stale = True

    def start_trading(self) -> None:
        """Begin to give back what is idle, inside the event loop of the gateway."""
        self._task = asyncio.create_task(self._keep_trading())

    async def end_trading(self) -> None:
        """Report what was used, and give everything back."""
        if self._task is not None:
            await cancel_tasks(self._task)
        await self._sizes.stop_measuring()
        held = [one for one in self._counters.list_counters() if _has_something(one)]
        for counter in held:
            if counter.is_trading:
                await self._wait_for_trade(counter)
        await asyncio.gather(*(self._wait_for_trade(one, ending=True) for one in held))

    def bind_limits(self, caller: LimitedCaller) -> tuple[BoundLimit, ...]:
        """Return the limits of a caller, and where they are counted."""
        bound = self._bound.get(caller)
        if bound is None:
            if len(self._bound) >= _KNOWN:
                self._bound.clear()
                self._stored.clear()
            bound = self._bound[caller] = self._bind_caller(caller)
        return bound

    def _bind_caller(self, caller: LimitedCaller) -> tuple[BoundLimit, ...]:
        found: list[BoundLimit] = []
        stored: list[ChosenLimit] = []
        for chosen in choose_limits(self._rules, caller._asdict()):
            measure = MEASURES.get(chosen.measure)
            if measure is None:
                stored.append(chosen)
                continue
            counter = self._counters.get_counter(chosen.counted_tenant, chosen.describe_subject())
            counter.used_at = self._clock()  # it is not forgotten before the call has used it
            counter.limits[measure] = chosen.limit
            found.append(BoundLimit(chosen, measure, counter))
        if stored:
            self._stored[caller] = tuple(stored)
        return tuple(found)

    def check_full(self, caller: LimitedCaller, estimate: CallEstimate = _NOTHING) -> None:
        """Refuse a call at once if a limit is known to be reached: nothing is reserved."""
        if not self._full:
            return
        now = self._clock()
        for bound in self.bind_limits(caller):
            full = self._find_full(bound, max(estimate.find_need(bound.measure), 1), now)
            if full is not None:
                raise self._make_refusal(bound, full, now)

    async def admit_call(self, caller: LimitedCaller, estimate: CallEstimate) -> Admission:
        """Reserve what a call may take of all its limits; raises `Refusal`."""
        bounds = self.bind_limits(caller)
        warnings = self._check_stored(caller)
        if not bounds:
            return Admission(warnings=warnings)
        admission = await self._reserve_or_wait(caller, bounds, estimate)
        admission.warnings += warnings
        return admission

    async def _reserve_or_wait(
        self, caller: LimitedCaller, bounds: Sequence[BoundLimit], estimate: CallEstimate
    ) -> Admission:
        waiting: list[BoundLimit] = []
        try:
            for _ in range(_TRIES):
                lacking = self._find_lacking(bounds, estimate)
                if not lacking:
                    return self._reserve_needs(bounds, estimate)
                now = self._clock()
                for bound in lacking:
                    need = estimate.find_need(bound.measure)
                    full = self._find_full(bound, need, now)
                    if full is not None:
                        raise self._make_refusal(bound, full, now)
                    if bound not in waiting:  # from here on every trade asks for it, too
                        waiting.append(bound)
                        bound.counter.wait_for(bound.measure, need)
                if not await self._trade_for(lacking, estimate):
                    return self._go_without_store(caller, bounds, estimate)
            return self._refuse_lacking(bounds, estimate)
        finally:
            for bound in waiting:
                bound.counter.wait_for(bound.measure, -estimate.find_need(bound.measure))

    def needs_estimate(self, caller: LimitedCaller) -> bool:
        """Whether limits of a caller depend on the model that it asks, or on how much."""
        if any(bound.measure.depends_on_body for bound in self.bind_limits(caller)):
            return True
        return any(rule.counts_some_model(caller._asdict()) for rule in self._rules)

    def has_limits(self, caller: LimitedCaller) -> bool:
        """Whether any limit holds for a caller."""
        return bool(self.bind_limits(caller) or caller in self._stored)

    def _check_stored(self, caller: LimitedCaller) -> list[str]:
        """Refuse a call whose tenant or owner has stored too much; return warnings."""
        warnings: list[str] = []
        for chosen in self._stored.get(caller, ()):
            owner = caller.owner if "owner" in chosen.dimensions else ""
            size = self._sizes.find_size(caller.tenant, owner)
            if size is None:
                continue
            level = _format_level(chosen, f"{size}", f"{chosen.limit}", size)
            if size >= chosen.limit:
                self.refused[_make_labels(chosen)] += 1
                words = (
                    f"{chosen.describe_subject()} has stored {size:,} bytes, and may store "
                    f"{chosen.limit:,}; erase sessions, or ask the gateway's operator for more"
                )
                headers = (
                    (b"x-foldline-limit", _encode_text(level)),
                    (b"x-should-retry", b"false"),
                )
                raise Refusal(429, "limit_spent", words, retry=_AFTER_STORED, headers=headers)
            if chosen.soft is not None and size >= chosen.soft * chosen.limit:
                warnings.append(level)
        return warnings

    def settle_call(self, admission: Admission, *, tokens: int, pico: int) -> None:
        """Count what a call took, instead of what was reserved for it; once."""
        if not admission.is_open:
            return
        admission.is_open = False
        took = CallEstimate(tokens, pico)
        for bound, part, need in admission.taken:
            part.settle_need(need, took.find_need(bound.measure) if bound.measure.adds_up else 0)
            counter = bound.counter
            if self._task is None or counter.is_trading:
                continue
            if part.keeps_too_much(bound.chosen.limit, self._clock()):
                self._start_trade(counter)

    def _reserve_needs(self, bounds: Iterable[BoundLimit], estimate: CallEstimate) -> Admission:
        admission, now = Admission(estimate=estimate), self._clock()
        is_away = self._away_since is not None
        for bound in bounds:
            part = bound.counter.get_part(bound.measure, now, is_away=is_away)
            need = estimate.find_need(bound.measure)
            part.reserve_need(need)
            bound.counter.used_at = now
            admission.taken.append(TakenPart(bound, part, need))
            self._add_warning(bound, part, admission, now)
        return admission

    def _add_warning(self, bound: BoundLimit, part: Part, admission: Admission, now: float) -> None:
        soft = bound.chosen.soft
        if soft is None:
            return
        used = part.find_spent()
        if used >= soft * bound.chosen.limit:
            admission.warnings.append(_describe_level(bound, used))
        elif used >= soft * bound.chosen.limit / 2 and now - part.traded > _FRESH and self._task:
            self._start_trade(bound.counter)

    def _find_lacking(
        self, bounds: Iterable[BoundLimit], estimate: CallEstimate
    ) -> list[BoundLimit]:
        now, is_away = self._clock(), self._away_since is not None
        return [
            bound
            for bound in bounds
            if estimate.find_need(bound.measure)
            > bound.counter.get_part(bound.measure, now, is_away=is_away).find_left(now)
        ]

    async def _trade_for(self, lacking: Sequence[BoundLimit], estimate: CallEstimate) -> bool:
        """Trade for what a call lacks; False if the store is away."""
        counters = {id(bound.counter): bound.counter for bound in lacking}
        now = self._clock()
        for counter in counters.values():
            counter.used_at = now
        if not all(await asyncio.gather(*map(self._wait_for_trade, counters.values()))):
            return False
        now = self._clock()
        for bound in lacking:
            need = estimate.find_need(bound.measure)
            part = bound.counter.get_part(bound.measure, now)
            if need > part.free - part.reserved:
                self._note_full(bound, part, need, now)
        return True

    async def _wait_for_trade(self, counter: SharedCounter, *, ending: bool = False) -> bool:
        """Wait for a trade, but not for long; it goes on if the store is slow."""
        task = self._start_trade(counter, ending=ending)
        patience = _PATIENCE if self._away_since is None else _BRIEFLY
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            self._report_away(None)
            return False
        return not task.cancelled() and task.exception() is None

    def _start_trade(self, counter: SharedCounter, *, ending: bool = False) -> "asyncio.Task[None]":
        if counter.is_trading:
            return counter.start_trade(self._clock)
        task = counter.start_trade(self._clock, ending=ending)
        task.add_done_callback(self._end_trade)
        return task

    def _end_trade(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            if not isinstance(fault, FoldlineError | OSError):
                _log.error("a fault of the limits themselves", exc_info=fault)
            self._report_away(fault)
        elif self._away_since is not None:
            _log.warning("limits are counted in the store again")
            self._away_since = None

    def _report_away(self, fault: BaseException | None) -> None:
        if self._away_since is None:
            self._away_since = monotonic()
            _log.warning(
                "limits cannot be counted in the store (%s): known allowances last for %d s",
                type(fault).__name__ if fault else "no answer", LASTING,
            )  # fmt: skip

    def _note_full(self, bound: BoundLimit, part: Part, need: int, now: float) -> None:
        """Note that a need cannot be met; what is only reserved may come back at any time."""
        if part.spent + part.used + need > bound.chosen.limit:
            until = again = find_window_end(bound.measure.window, part.window)
        else:
            until, again = now + uniform(_AGAIN, 2 * _AGAIN), now + _BUSY  # noqa: S311 - no secret
        if not bound.measure.adds_up:
            until, again = now + _AGAIN, now + _BUSY
        self._full[id(bound.counter), bound.measure.name] = need, until, again

    def _find_full(self, bound: BoundLimit, need: int, now: float) -> float | None:
        """Return when to ask again if a need is known not to be met."""
        place = id(bound.counter), bound.measure.name
        noted = self._full.get(place)
        if noted is None:
            return None
        least, until, again = noted
        if now >= until:
            del self._full[place]
            return None
        return again if need >= least else None

    def _refuse_lacking(self, bounds: Sequence[BoundLimit], estimate: CallEstimate) -> Admission:
        """Refuse a call for which no trade was enough."""
        lacking = self._find_lacking(bounds, estimate)
        if not lacking:
            return self._reserve_needs(bounds, estimate)
        now = self._clock()
        found = [self._find_full(one, estimate.find_need(one.measure), now) for one in lacking]
        again = [when or now + _BUSY for when in found]
        last = max(range(len(lacking)), key=again.__getitem__)
        raise self._make_refusal(lacking[last], again[last], now)

    def _make_refusal(self, bound: BoundLimit, again: float, now: float) -> Refusal:
        chosen = bound.chosen
        self.refused[_make_labels(chosen)] += 1
        part = bound.counter.get_part(bound.measure, now)
        wait = math.ceil(again - now)
        limit = bound.format_amount(chosen.limit)
        used = bound.format_amount(part.spent + part.used)
        words = (
            f"the limit of {limit} {_name_measure(bound.measure)} of "
            f"{chosen.describe_subject()} is reached: {used} used"
        )
        headers = [(b"x-foldline-limit", _encode_text(_describe_level(bound, part.find_spent())))]
        code = "limit_reached"
        if wait > _SHORT:  # SDKs would ask again much sooner
            words += strftime("; it begins anew at %Y-%m-%d %H:%M UTC", gmtime(again))
            headers.append((b"x-should-retry", b"false"))
            code = "limit_spent"
        elif bound.measure.window:  # not all at once
            wait = min(wait + int(uniform(0, 3)), _SHORT)  # noqa: S311 - no secret
        return Refusal(429, code, words, retry=max(wait, 1), headers=tuple(headers))

    def _go_without_store(
        self, caller: LimitedCaller, bounds: Sequence[BoundLimit], estimate: CallEstimate
    ) -> Admission:
        """Admit or refuse a call while the store is away."""
        away = monotonic() - self._away_since if self._away_since is not None else 0.0
        if away <= LASTING and not self._find_lacking(bounds, estimate):
            return self._reserve_needs(bounds, estimate)
        if self._passes_faults(caller.tenant):
            self.uncounted += 1
            return self._reserve_needs(bounds, estimate)
        words = "this call's limits cannot be counted now: the gateway's store is away; ask again"
        raise Refusal(503, "limits_away", words, retry=1)

    async def _keep_trading(self) -> None:
        while True:
            await asyncio.sleep(_TICK * uniform(0.8, 1.2))  # noqa: S311 - no secret
            try:
                self._look_around()
            except Exception:  # noqa: BLE001 - what is given back too late is no reason to end
                _log.exception("a fault of the limits themselves")

    def _look_around(self) -> None:
        """Trade where something is idle, expires, or is counted under other limits."""
        now = self._clock()
        for counter in self._counters.list_counters():
            if counter.is_trading:
                continue
            if counter.is_stale or self._is_due(counter, now):
                is_quiet = now - counter.used_at > _QUIET
                if not _has_something(counter) and is_quiet:
                    self._forget_counter(counter)
                else:
                    self._start_trade(counter, ending=is_quiet)

    def _is_due(self, counter: SharedCounter, now: float) -> bool:
        is_quiet = now - counter.used_at > _QUIET
        for measure, limit in counter.limits.items():
            part = counter.parts.get(measure.name)
            if part is None:
                continue
            if measure.window and now >= find_window_end(measure.window, part.window):
                if is_quiet and not part.reserved:  # nobody counts that window any more
                    del counter.parts[measure.name]
                continue
            if (part.held or part.used) and (part.until - now < measure.lasting / 2 or is_quiet):
                return True
            if part.keeps_too_much(limit, now) and now - part.traded > _TICK:
                return True
            if measure.adds_up and part.must_report(limit, now):
                return True
        return is_quiet and not _has_something(counter)

    def _forget_counter(self, counter: SharedCounter) -> None:
        self._counters.drop_counter(counter)
        self._bound = {
            caller: bounds
            for caller, bounds in self._bound.items()
            if all(one.counter is not counter for one in bounds)
        }

    def list_levels(self) -> Mapping[tuple[str, str, str], float]:
        """Return how full the fullest limit is, by tenant, measure and what is counted apart."""
        found: dict[tuple[str, str, str], float] = {}
        now = self._clock()
        for bounds in [*self._bound.values()]:
            for bound in bounds:
                chosen, part = bound.chosen, bound.counter.parts.get(bound.measure.name)
                if part is None or (
                    bound.measure.window
                    and now >= find_window_end(bound.measure.window, part.window)
                ):
                    continue
                place = _make_labels(chosen)
                share = part.find_spent() / bound.chosen.limit if bound.chosen.limit else 1.0
                found[place] = max(found.get(place, 0.0), share)
        return found


def _has_something(counter: SharedCounter) -> bool:
    return any(counter.waiting.values()) or any(
        one.held or one.used or one.reserved or one.sent is not None
        for one in counter.parts.values()
    )


def _make_labels(chosen: ChosenLimit) -> tuple[str, str, str]:
    """Return the labels of a limit's metrics."""
    return chosen.counted_tenant, chosen.measure, "+".join(chosen.dimensions)


def _encode_text(text: str) -> bytes:
    """Encode a header's value; names may have any letters."""
    return text.encode("ascii", "backslashreplace")


def _name_measure(measure: Measure) -> str:
    return measure.name.replace("_", " ")


def _describe_level(bound: BoundLimit, used: int) -> str:
    limit = bound.format_amount(bound.chosen.limit)
    return _format_level(bound.chosen, bound.format_amount(used), limit, used)


def _format_level(chosen: ChosenLimit, amount: str, limit: str, used: int) -> str:
    share = used / chosen.limit if chosen.limit else 1.0
    subject = chosen.describe_subject()
    return f"{chosen.measure}; {subject}; used={amount}; limit={limit}; share={share:.2f}"


SPACE: Final = "limits"
_KEY = "stored"
_EVERY = 60.0  # seconds between two measurements of a tenant
_SHARE = 50  # of its time, the part that a process measures at most: one of so many
_PAGE = 1_000  # sessions that are listed at a time


class TenantSizes(msgspec.Struct, array_like=True, frozen=True):
    """What a tenant has stored."""

    due: float = 0.0
    """When it is to be measured again."""
    total: int = 0
    owners: dict[str, int] = {}


class StoredSizes:
    """What tenants have stored, as one process knows it."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, TenantSizes] = {}
        self._looked: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def find_size(self, tenant: str, owner: str = "") -> int | None:
        """Return what a tenant, or one of its owners, has stored; None if that is not known."""
        if self._clock() - self._looked.get(tenant, 0.0) > _EVERY:
            self._looked[tenant] = self._clock()
            task = self._tasks[tenant] = asyncio.create_task(self._renew_sizes(tenant))
            task.add_done_callback(_take_fault)
        known = self._known.get(tenant)
        if known is None:
            return None
        return known.owners.get(owner, 0) if owner else known.total

    async def stop_measuring(self) -> None:
        """Stop measuring."""
        await cancel_tasks(*self._tasks.values())

    async def _renew_sizes(self, tenant: str) -> None:
        """Read what was measured; measure anew if that is due and no other process does it."""
        place = Name(tenant, "")
        entry = await self._store.get(place, SPACE, _KEY)
        sizes = msgspec.msgpack.decode(entry.value, type=TenantSizes) if entry else TenantSizes()
        if entry is not None:
            self._known[tenant] = sizes
        if self._clock() < sizes.due:
            return
        claimed = msgspec.structs.replace(sizes, due=self._clock() + _EVERY)
        version = entry.version if entry else 0
        body = msgspec.msgpack.encode(claimed)
        if not await self._store.put(place, SPACE, _KEY, body, version=version):
            return  # another process measures
        begun = monotonic()
        measured = await self.measure_tenant(tenant)
        pause = max((monotonic() - begun) * _SHARE, _EVERY)
        self._known[tenant] = msgspec.structs.replace(measured, due=self._clock() + pause)
        await self._store.put(place, SPACE, _KEY, msgspec.msgpack.encode(self._known[tenant]))

    async def measure_tenant(self, tenant: str) -> TenantSizes:
        """Sum the sizes of a tenant's sessions."""
        total, owners, after = 0, dict[str, int](), ""
        while listed := await self._store.sessions(tenant, after=after, limit=_PAGE):
            for one in listed:
                total += one.size
                owners[one.owner] = owners.get(one.owner, 0) + one.size
            after = listed[-1].session
            await asyncio.sleep(0)
        return TenantSizes(0.0, total, owners)


def _take_fault(task: "asyncio.Task[None]") -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None and not isinstance(fault, FoldlineError | OSError):
        _log.error("stored bytes were not measured", exc_info=fault)

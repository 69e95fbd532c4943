"""What the calls of a session took and cost, by its provider's counts: every sum reads it here.

    bill = Bill(find_prices)                        # the catalogue's, or others
    for seq, event in log:
        charge = bill.apply_event(seq, event)       # one call or narrative, or None
    bill.sums.dollars, bill.narratives.dollars

A call is an answer that was asked for, or that a provider counted: what a client's own history
brings back is none. Every answer of an imported session is a call. What a fork copies was paid by
the session that it is copied from. Money is counted in whole picodollars, so that sums are exact.
`spending` enforces caps.
"""

from asyncio import Lock
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from foldline.core.log import (
    Asked,
    Event,
    Folded,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.prices import Prices
from foldline.session.spending import compute_cost
from foldline.session.usage_records import UsageSums

if TYPE_CHECKING:
    from foldline.session.session import AsyncSession

_STEP = 2_000  # events read at once


class Charges(Protocol):
    """Sums that charges are added to."""

    calls: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    pico: int
    estimated: int
    unpriced: int


class Charge(NamedTuple):
    """One call of a model, or the narrative of a fold.

    An answer is yielded when it is logged, and again with its count, as a `correction`.
    """

    seq: int
    """The place of the answer, or of the fold."""
    model: str
    usage: UsageReported | None
    """None if it was not counted."""
    pico: int | None
    """Picodollars; None if it was not counted, or if its model has no known price."""
    is_narrative: bool = False
    is_correction: bool = False

    def add_to(self, sums: Charges) -> None:
        """Add it to sums of calls."""
        sums.calls += not self.is_correction
        if self.usage is None:
            sums.estimated += 1
            return
        sums.estimated -= self.is_correction
        if _is_nothing(self.usage):
            sums.calls -= 1
            return
        given = self.usage.input or 0
        read = min(self.usage.cache_read or 0, given)
        sums.input += given
        sums.output += self.usage.output or 0
        sums.cache_read += read
        sums.cache_write += min(self.usage.cache_write or 0, given - read)
        sums.unpriced += self.pico is None
        sums.pico += self.pico or 0


class Bill:
    """Reads a log event by event; `priced` returns the prices of a model."""

    def __init__(self, priced: "Callable[[str], Prices] | None" = None) -> None:
        self._priced = priced or find_prices
        self.model = ""
        self._models: list[tuple[int, str]] = []
        """Each model, and since when the session has had it."""
        self._last_asked = -1
        self.sums, self.narratives = UsageSums(), UsageSums()
        """Of all, and of the narratives among them."""
        self.assumed = False
        """Whether one of the prices is a guess."""
        self._is_import = False
        self._asked: Asked | None = None
        self._said: tuple[int, bool] | None = None
        """The newest answer until it is counted: its place, and whether it was yielded."""

    def apply_event(self, seq: int, event: Event) -> Charge | None:
        """Add the next event; return what it adds to the bill."""
        charge: Charge | None = None
        match event:
            case Opened(model=model, origin=origin):
                self.model, self._is_import = model, origin.startswith("import:")
                self._models, self._last_asked = [(seq, model)], -1
                self.sums, self.narratives = UsageSums(), UsageSums()
                self._asked = self._said = None
            case ModelSwitched(model=model):
                self.model = model
                self._models.append((seq, model))
            case Asked():
                self._asked, self._said, self._last_asked = event, None, seq
            case UserSaid() | ToolReturned() if self._asked and self._asked.proxied:
                self._asked = None  # it was not answered, and the client went on
            case ModelSaid():
                is_call = self._asked is not None or self._is_import
                charge = Charge(seq, self.model, None, None) if is_call else None
                self._asked, self._said = None, (seq, is_call)
            case UsageReported():
                place, is_correction = self._said or (seq, False)
                asked = self._last_asked if event.asked is None else event.asked
                model = self._find_model_at(seq if asked < 0 else asked)
                charge = self._charge(place, model, event)._replace(is_correction=is_correction)
                self._asked = self._said = None
            case Folded(by=by, used=used) if by and used is not None:
                charge = self._charge(seq, by, used)._replace(is_narrative=True)
                charge.add_to(self.narratives)
            case _:
                pass
        if charge is not None:
            charge.add_to(self.sums)
        return charge

    def _find_model_at(self, seq: int) -> str:
        return next((model for at, model in reversed(self._models) if at <= seq), self.model)

    def _charge(self, seq: int, model: str, usage: UsageReported) -> Charge:
        prices = self._priced(model)
        self.assumed = self.assumed or (prices.is_known and prices.assumed)
        is_priced = prices.is_known and usage.input is not None
        return Charge(seq, model, usage, compute_cost(prices, usage).pico if is_priced else None)


def find_prices(model: str) -> Prices:
    """Return the prices of a model by the user's file and the catalogue."""
    from foldline.models.catalog import resolve_model  # noqa: PLC0415 - a tenth of an import's time

    return resolve_model(model).prices


def _is_nothing(usage: UsageReported) -> bool:
    """Whether a call broke off before anything was sent."""
    return usage.input == 0 and not (usage.output or usage.cache_read or usage.cache_write)


class SessionBill:
    """The bill of an open session, counted up to a place in its log."""

    def __init__(self, session: "AsyncSession") -> None:
        self.bill = Bill(self._find_prices)
        self._session, self._at, self._counting = session, 0, Lock()

    @property
    def known(self) -> float | None:
        """The dollars; None if no call has a price."""
        sums = self.bill.sums
        return sums.dollars if sums.calls > sums.unpriced + sums.estimated else None

    async def catch_up(self) -> UsageSums:
        """Count what was logged since the last time; return the sums."""
        async with self._counting:  # else two who wait would count the same events
            head = self._session.live.view.head
            while self._at <= head:
                upto = min(self._at + _STEP - 1, head)
                for seq, event in await self._session.history.events(self._at, upto):
                    self.bill.apply_event(seq, event)
                self._at = upto + 1
        return self.bill.sums

    def _find_prices(self, model: str) -> Prices:
        live = self._session.live
        return live.facts.prices if model == live.view.model else find_prices(model)

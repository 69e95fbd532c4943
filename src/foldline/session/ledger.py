"""What the calls of a session took and cost, by its provider's counts: every total is read here.

    ledger = Ledger()                               # at the catalogue's prices, or at others
    for seq, event in log:
        charge = ledger.apply_event(seq, event)           # an answer or a narrative, or None
    ledger.sum_charges("answer", "narrative").dollars

An answer is charged if it was asked for, or if a provider counted it; one that a client's own
history brings back is not. Every answer of an imported session is charged. What a fork copies was
paid by the session that it is copied from. Amounts are whole picodollars, so that sums are exact;
`core.prices.price_tokens` computes them. `spending` enforces caps.
"""

from asyncio import Lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

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
from foldline.core.prices import Prices, split_usage
from foldline.session.usage_records import UsageSums

if TYPE_CHECKING:
    from foldline.session.session import AsyncSession

PricesOf: TypeAlias = Callable[[str], Prices]
"""Returns the prices of a model."""
ChargeKind: TypeAlias = Literal["answer", "narrative"]
_STEP = 2_000  # events read at once


class Charge(NamedTuple):
    """One answer of a model, or the narrative of a fold.

    An answer is charged when it is logged, and again with its count, as a `correction`.
    """

    seq: int
    """The place of the answer, or of the fold."""
    model: str
    kind: ChargeKind = "answer"
    usage: UsageReported | None = None
    """None if it was not counted."""
    amount: int | None = None
    """Picodollars; None if it was not counted, or if its model has no known price."""
    is_correction: bool = False

    @property
    def calls(self) -> int:
        """How many calls it adds: none as a correction, and -1 if nothing was sent after all."""
        return 1 - self.is_correction - self._is_empty

    @property
    def _is_empty(self) -> bool:
        """Whether the call broke off before anything was sent."""
        used = self.usage
        if used is None or used.input != 0:
            return False
        return not (used.output or used.cache_read or used.cache_write)

    def add_to(self, sums: UsageSums) -> None:
        """Add it to sums of calls."""
        sums.calls += self.calls
        if self.usage is None:
            sums.estimated += 1
            return
        sums.estimated -= self.is_correction
        if not self._is_empty:
            sums.add_tokens(split_usage(self.usage), self.amount)


class Ledger:
    """Reads a log event by event."""

    def __init__(self, prices_of: PricesOf | None = None) -> None:
        self._prices_of = prices_of or find_prices
        self.model = ""
        self._models: list[tuple[int, str]] = []
        """Each model, and since when the session has had it."""
        self._last_asked = -1
        self._sums: dict[ChargeKind, UsageSums] = {}
        self.assumed = False
        """Whether one of the prices is a guess."""
        self._is_import = False
        self._asked: Asked | None = None
        self._said: tuple[int, bool] | None = None
        """The newest answer until it is counted: its place, and whether it was charged."""

    def apply_event(self, seq: int, event: Event) -> Charge | None:
        """Apply the next event; return its charge."""
        charge: Charge | None = None
        match event:
            case Opened(model=model, origin=origin):
                self.model, self._is_import = model, origin.startswith("import:")
                self._models, self._last_asked = [(seq, model)], -1
                self._sums.clear()
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
                charge = Charge(seq, self.model) if is_call else None
                self._asked, self._said = None, (seq, is_call)
            case UsageReported():
                place, is_correction = self._said or (seq, False)
                asked = self._last_asked if event.asked is None else event.asked
                model = self._find_model_at(seq if asked < 0 else asked)
                charge = Charge(place, model, "answer", event, is_correction=is_correction)
                self._asked = self._said = None
            case Folded(by=by, used=used) if by and used is not None:
                charge = Charge(seq, by, "narrative", used)
            case _:
                pass
        if charge is not None:
            charge = self._price(charge)
            charge.add_to(self._sums.setdefault(charge.kind, UsageSums()))
        return charge

    def sum_charges(self, *kinds: ChargeKind) -> UsageSums:
        """Sum the charges of some kinds; of all kinds if none is named."""
        found = UsageSums()
        for kind in kinds or self._sums:
            found.merge(self._sums.get(kind, UsageSums()))
        return found

    def _find_model_at(self, seq: int) -> str:
        return next((model for at, model in reversed(self._models) if at <= seq), self.model)

    def _price(self, charge: Charge) -> Charge:
        if charge.usage is None:
            return charge
        prices = self._prices_of(charge.model)
        self.assumed = self.assumed or (prices.is_known and prices.assumed)
        return charge._replace(amount=price_usage(prices, charge.usage))


def find_prices(model: str) -> Prices:
    """Return the prices of a model by the user's file and the catalogue."""
    from foldline.models.catalog import resolve_model  # noqa: PLC0415 - a tenth of an import's time

    return resolve_model(model).prices


def price_usage(prices: Prices, usage: UsageReported | None) -> int | None:
    """Price a call in picodollars; None if it was not counted, or if the prices are not known."""
    if usage is None or usage.input is None or not prices.is_known:
        return None
    return split_usage(usage).compute_price(prices)


class SessionLedger(Ledger):
    """The ledger of an open session."""

    def __init__(self, session: "AsyncSession") -> None:
        super().__init__(self._find_prices)
        self._session, self._at, self._counting = session, 0, Lock()

    async def catch_up(self) -> UsageSums:
        """Apply what was logged since the last time; return the total."""
        async with self._counting:  # else two who wait would count the same events
            head = self._session.live.view.head
            while self._at <= head:
                upto = min(self._at + _STEP - 1, head)
                for seq, event in await self._session.history.events(self._at, upto):
                    self.apply_event(seq, event)
                self._at = upto + 1
        return self.sum_charges()

    def _find_prices(self, model: str) -> Prices:
        """Return the catalogue's prices, as all views do, else those that the server reports."""
        found, live = find_prices(model), self._session.live
        return live.facts.prices if not found.is_known and model == live.view.model else found

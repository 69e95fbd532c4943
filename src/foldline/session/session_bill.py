"""Tokens and dollars that a session has used so far, by its provider's counts.

Each call has the price of the model that was asked. `spending` enforces caps.
"""

from asyncio import Lock
from dataclasses import dataclass, field

from foldline.core.log import Folded, ModelSwitched, Opened, UsageReported
from foldline.core.prices import UNKNOWN, Prices
from foldline.session.session import AsyncSession

_MILLION = 1_000_000
_STEP = 2_000  # events read at once


@dataclass(slots=True)
class Bill:
    """Tokens and dollars, counted up to a place in the log."""

    session: AsyncSession
    input: int = 0
    read: int = 0
    written: int = 0
    output: int = 0
    calls: int = 0
    dollars: float = 0.0
    assumed: bool = False
    """Whether one of the prices is a guess."""
    unpriced: int = 0
    """Calls of models without a known price."""
    ready: bool = False
    _at: int = 0
    _counting: Lock = field(default_factory=Lock)
    _model: str = ""
    _prices: dict[str, Prices] = field(default_factory=dict[str, Prices])

    @property
    def known(self) -> float | None:
        """The dollars; None if no call has a price."""
        return self.dollars if self.ready and self.calls > self.unpriced else None

    async def catch_up(self) -> None:
        """Count what was logged since the last time."""
        async with self._counting:  # else two who wait would count the same events
            await self._count_events()

    async def _count_events(self) -> None:
        head = self.session.live.view.head
        while self._at <= head:
            upto = min(self._at + _STEP - 1, head)
            for _, event in await self.session.history.events(self._at, upto):
                match event:
                    case Opened(model) | ModelSwitched(model):
                        self._model = model
                    case UsageReported():
                        self._count_usage(event, self._model)
                    case Folded(by=by, used=used) if by and used is not None:
                        self._count_usage(used, by)  # its narrative
                    case _:
                        pass
            self._at = upto + 1
        self.ready = True

    def _count_usage(self, used: UsageReported, model: str) -> None:
        tokens = used.input or 0
        read = min(used.cache_read or 0, tokens)
        write = min(used.cache_write or 0, tokens - read)
        self.input += tokens
        self.read += read
        self.written += write
        self.output += used.output or 0
        self.calls += 1
        prices = self._resolve_prices(model)
        if prices == UNKNOWN:
            self.unpriced += 1
            return
        at = prices.at(tokens)
        fresh = (tokens - read - write) * at.input
        long = min(used.cache_write_long or 0, write)
        cached = read * at.read + (write - long) * at.write + long * at.long_write
        self.dollars += (fresh + cached + (used.output or 0) * at.output) / _MILLION
        self.assumed = self.assumed or at.assumed

    def _resolve_prices(self, model: str) -> Prices:
        live = self.session.live
        if model == live.view.model:
            return live.facts.prices
        if model not in self._prices:
            from foldline.models.catalog import resolve_model  # noqa: PLC0415 - few switch models

            self._prices[model] = resolve_model(model).prices
        return self._prices[model]

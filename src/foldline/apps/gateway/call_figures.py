"""What one call took: tokens as the provider counted them, dollars, what edits saved.

    note.figures.tokens, note.figures.sums.dollars     # known once the call is over

`CallMeter` reads each answer of the upstream along, planned or not, and prices it at the end, when
nobody waits any more. What no provider counted is estimated. `draw.course` compares with sending
everything, as it does for `foldline history --over-time` and `foldline run`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec

from foldline.apps.gateway.limits import Copy
from foldline.apps.gateway.plan_request import PlannedExchange, find_route
from foldline.apps.gateway.provider_routes import list_path_models
from foldline.core.log import Asked, UsageReported
from foldline.core.prices import UNKNOWN, Prices, split_usage
from foldline.core.tokens import count_parts
from foldline.dialects import base
from foldline.dialects.base import Dialect, Vendor
from foldline.dialects.json_slices import Json
from foldline.dialects.usage_reader import UsageReader
from foldline.draw.course import CourseStep, TokensTaken, estimate_everything, price_step
from foldline.errors import WireError
from foldline.models.catalog import resolve_model
from foldline.proxy.spared_tokens import SparedTokens
from foldline.session.log_handle import Live
from foldline.session.usage_records import UsageSums

PricesOf: TypeAlias = Callable[[str], Prices]
_ASKING: Final = (
    "/completions", "/embeddings", "/complete", "/rerank", ":embedContent", ":predict",
)  # fmt: skip
"""How paths end, beside those of conversations, at which models are asked."""
_NEAR = 300  # bytes at both ends of a body in which a model is looked for first
_FIRST: Final = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\]{1,200})"\s*[,}]')
_LAST: Final = re.compile(rb',\s*"model"\s*:\s*"([^"\\]{1,200})"\s*\}\s*$')
_MOST = 64_000_000  # bytes of an answer that are decoded and read
_REFUSED = 400
_FRESH, _MODELS = 10.0, 1_000  # seconds that prices are kept, and for how many models
_LONGEST = 100  # letters of a model's name
_BYTES = 4  # of a request for each token, where nobody counted
_KINDS: Final = {401: "auth", 403: "auth", 429: "rate", 503: "overloaded", 529: "overloaded"}
_SERVERS = 500


class _Named(msgspec.Struct):
    model: Any = None


_decode_named = msgspec.json.Decoder(_Named).decode


@dataclass(slots=True)
class CallFigures:
    """What one call took, as far as it is known."""

    model: str = ""
    upstream: str = ""
    """The upstream's name, or the host of its address."""
    provider: str = ""
    """The vendor whose API was asked."""
    sums: UsageSums = field(default_factory=UsageSums)
    """Of this call alone; a session's turn may ask its model several times."""

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.sums.input + self.sums.output

    def count_error(self, kind: str) -> None:
        """Count that there was no good answer."""
        self.sums.errors = {**self.sums.errors, kind: self.sums.errors.get(kind, 0) + 1}

    def add_usage(
        self, usage: UsageReported, prices: Prices, *, tokens_in: int, tokens_out: int
    ) -> UsageReported:
        """Add what an answer took: the reported usage, or estimates where it lacks counts.

        Returns the usage with both.
        """
        self.sums.estimated += usage.input is None
        tokens = split_usage(usage, tokens_in=tokens_in, tokens_out=tokens_out)
        self.sums.add_tokens(tokens, tokens.compute_price(prices) if prices.is_known else None)
        return msgspec.structs.replace(usage, input=tokens.input, output=tokens.output)


class CallPrices:
    """The catalogue's prices by model, kept for seconds: the operator's file may change them."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Prices]] = {}

    def __call__(self, model: str) -> Prices:
        """Return a model's prices."""
        now = monotonic()
        since, prices = self._kept.get(model, (-_FRESH, UNKNOWN))
        if now - since < _FRESH:
            return prices
        prices = resolve_model(model).prices if model else UNKNOWN
        if len(self._kept) >= _MODELS:
            self._kept.clear()
        self._kept[model] = now, prices
        return prices


def asks_model(method: str, path: str) -> bool:
    """Whether a request asks a model, and is no request to count, list or keep something."""
    if method != "POST" or base.find_count_dialect(path) or path.endswith("/count_tokens"):
        return False
    known = base.find_path_dialect(path) is not None or bool(find_route(path))
    return known or path.endswith(_ASKING)


class CallMeter:
    """Reads the answers to one call along, and sums what they took."""

    __slots__ = (
        "_copy",
        "_dialect",
        "_prices_of",
        "_reader",
        "_sent",
        "body",
        "figures",
        "is_sent",
        "planned",
    )

    def __init__(self, prices_of: PricesOf, dialect: Dialect, upstream: str) -> None:
        self.figures = CallFigures(upstream=upstream, provider=dialect.vendor.name)
        self.planned: PlannedExchange | None = None
        """The call's plan, if it has one."""
        self.body = b""
        """The client's request."""
        self.is_sent = False
        """Whether an upstream answered."""
        self._prices_of, self._dialect = prices_of, dialect
        self._reader: UsageReader | None = None
        self._copy: Copy | None = None
        self._sent = 0

    def begin_answer(self, status: int, encoding: bytes, *, sent: int) -> None:
        """Begin to read an answer, to a request of so many bytes."""
        self._end_answer()
        self.is_sent = True
        if status < _REFUSED:
            self._reader = UsageReader(self._dialect.parse_usage)
            self._copy = Copy(encoding, most=_MOST) if encoding else None
            self._sent = sent

    def receive_chunk(self, chunk: bytes) -> None:
        """Read the next bytes of the answer."""
        if self._reader is not None:
            self._reader.feed(chunk if self._copy is None else self._copy.feed(chunk))

    def end_call(self, path: str, *, error: str = "") -> CallFigures:
        """Sum the call, now that it is over; `error` says why it had no good answer."""
        self._name_model(path)
        self._end_answer()
        figures, planned = self.figures, self.planned
        figures.sums.calls += 1
        if error:
            figures.count_error(error)
        if planned is not None:
            figures.sums.healed += planned.exchange.healed
            figures.sums.stored += planned.exchange.live.take_written()
        return figures

    def _name_model(self, path: str) -> None:
        planned = self.planned
        model = planned.exchange.model if planned is not None else find_model(self.body, path)
        self.figures.model = model[:_LONGEST]

    def _end_answer(self) -> None:
        reader, self._reader = self._reader, None
        if reader is None:
            return
        usage, figures = reader.close() or UsageReported(), self.figures
        if self.planned is None:
            prices, tokens = self._prices_of(figures.model), self._sent // _BYTES
            figures.add_usage(usage, prices, tokens_in=tokens, tokens_out=reader.events)
            return
        exchange = self.planned.exchange
        output = count_parts(exchange.heard) if exchange.heard else reader.events
        prices = self._prices_of(exchange.model)
        sent = exchange.report.total
        usage = figures.add_usage(usage, prices, tokens_in=sent, tokens_out=output)
        if exchange.spared is not None and prices.is_known:
            estimate = exchange.report.estimate
            figures.sums.saved_pico += compute_saved(
                exchange.spared, usage, prices, model=exchange.model, estimate=estimate
            )


class TurnMeter:
    """Sums what the model calls of a request to the session API took, and of turns that outlive it.

    `report` takes figures that nobody waits for any more.
    """

    def __init__(
        self,
        prices_of: PricesOf,
        name_upstream: Callable[[Vendor], str],
        report: Callable[["TurnMeter"], None],
    ) -> None:
        self.figures = CallFigures()
        self.session = ""
        """The session that was asked."""
        self._prices_of, self._name_upstream, self._report = prices_of, name_upstream, report
        self._is_over = False

    def add_answer(self, model: str, dialect: Dialect, answer: Json, live: Live) -> None:
        """Add one answer of a model, to a session's newest request."""
        self._name_call(model, dialect)
        try:
            usage = dialect.parse_usage(answer) or UsageReported()
        except WireError:
            usage = UsageReported()
        asked = live.view.held.get(live.view.asked)
        tokens = asked.tokens if isinstance(asked, Asked) else 0
        self.figures.add_usage(usage, self._prices_of(model), tokens_in=tokens, tokens_out=0)
        self.figures.sums.calls += 1
        self.figures.sums.stored += live.take_written()

    def add_error(self, model: str, dialect: Dialect, kind: str) -> None:
        """Add a call that had no good answer."""
        self._name_call(model, dialect)
        self.figures.sums.calls += 1
        self.figures.count_error(kind)

    def end_request(self) -> CallFigures | None:
        """Return what was summed so far, if a model was asked; the rest is reported later."""
        self._is_over = True
        return self._take_figures()

    def end_turn(self) -> None:
        """Report what came after the request was over."""
        if self._is_over and self.figures.sums.calls:
            self._report(self)

    def _name_call(self, model: str, dialect: Dialect) -> None:
        self.figures.model = model[:_LONGEST]
        self.figures.upstream = self._name_upstream(dialect.vendor)
        self.figures.provider = dialect.vendor.name

    def _take_figures(self) -> CallFigures | None:
        if not self.figures.sums.calls:
            return None
        taken, self.figures = self.figures, CallFigures()
        return taken


def compute_saved(
    spared: SparedTokens, usage: UsageReported, prices: Prices, *, model: str, estimate: int
) -> int:
    """Compute by how much sending everything would have cost more, in picodollars; or less."""
    sent, before = usage.input or 0, spared.before
    ratio = sent / estimate if estimate else 1.0
    everything = estimate_everything(sent, spared.gone, ratio=ratio)
    taken = (TokensTaken("fold", 0, spared.gone, 0),) if spared.is_edited else ()
    step = CourseStep(0, 0, model, sent, usage.output or 0, everything, usage, taken)
    held = max(everything - round(spared.new * ratio), 0)
    last = CourseStep(0, 0, before.model, before.input, 0, held) if before.input else None
    cached = before.cached or bool(usage.cache_read)
    writes = before.wrote or bool(usage.cache_write)
    priced = price_step(step, last, prices, cached=cached, writes=writes)
    return (priced.all_pico or 0) - (priced.pico or 0)


def choose_usage_dialect(dialect: Dialect | None, vendor: Vendor, path: str) -> Dialect:
    """Choose the dialect in which an answer reports usage, where its request is in none."""
    if dialect is not None:
        return dialect
    if "anthropic" in path:  # Claude, asked at another provider's address
        return base.get_dialect(base.ANTHROPIC)
    return next(one for one in base.list_dialects() if one.vendor == vendor)


def find_model(body: bytes, path: str) -> str:
    """Find the model that a request names; "" if it cannot be read."""
    if found := list_path_models(path):
        return found[0]
    # SDKs write it first or last: then a large body need not be read.
    named = _FIRST.match(body[:_NEAR]) or _LAST.search(body[-_NEAR:])
    if named is not None:
        return named[1].decode("utf-8", "replace")
    try:
        given = _decode_named(body).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return given if isinstance(given, str) else ""


def find_error(status: int) -> str:
    """Return the kind of error that a provider's status means; "" if it means none."""
    if status < _REFUSED:
        return ""
    return _KINDS.get(status) or ("server" if status >= _SERVERS else "request")

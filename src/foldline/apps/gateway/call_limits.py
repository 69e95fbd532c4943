"""What a call of a model may take at most, and what it took: between the relay and the limiter.

    admission = await limits.admit_request(client, request, body, planned)     # raises `Refusal`
    limits.settle_request(admission, tokens=…, pico=…, was_answered=…)

The input of a planned request is known to the token; of others the bytes are counted. The answer
counts as long as it may become: as the request says, else as its model's own limit.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.call_figures import CallFigures
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limiter import Admission, CallEstimate, LimitedCaller, Limiter
from foldline.apps.gateway.plan_request import PlannedExchange
from foldline.apps.gateway.provider_routes import list_path_models
from foldline.core.log import UsageReported
from foldline.core.prices import Prices
from foldline.dialects.base import Dialect, choose_model_dialect, parse_any_message
from foldline.dialects.json_slices import find_fields
from foldline.errors import Limited, WireError
from foldline.models.catalog import resolve_model
from foldline.models.port import Heard, Json, Model
from foldline.session.spending import estimate_cost
from foldline.stores.beside import run_beside

_BYTES: Final = 3  # of a request for each token: rather too many tokens than too few
_ANSWER: Final = 8_192  # tokens of an answer that nothing limits
_BOUNDS: Final = (
    "max_completion_tokens", "max_tokens", "max_output_tokens", "max_tokens_to_sample",
)  # fmt: skip
_NO_ANSWER: Final = ("embed", "moderation", "rerank")
"""Parts of paths of requests whose answer is no text."""
_MANY = 128  # answers that one request may ask for
_FEW = 1_000  # models whose limits are remembered


class RequestedModel(NamedTuple):
    """What a request says of the model that it asks."""

    name: str = ""
    output: int | None = None
    """The most tokens of one answer, if it says."""
    answers: int = 1


class CallLimits:
    """The limits of a gateway's calls."""

    def __init__(self, limiter: Limiter, prices_of: Callable[[str], Prices]) -> None:
        self.limiter = limiter
        self.prices_of = prices_of
        self._longest: dict[str, int | None] = {}

    def check_client(self, client: Client) -> None:
        """Refuse a request at once if a limit is known to be reached, whatever its model."""
        self.limiter.check_full(_make_caller(client, ""))

    async def admit_request(
        self,
        client: Client,
        path: str,
        body: bytes | None,
        *,
        dialect: Dialect | None,
        planned: PlannedExchange | None = None,
    ) -> Admission | None:
        """Reserve what a request may take; raises `Refusal`. A body of None cannot be read.

        Returns None if no limit holds for the call.
        """
        if planned is not None:
            exchange = planned.exchange
            asked = RequestedModel(exchange.model, exchange.most_output, exchange.answers)
            sent = exchange.report.total
        else:
            asked = None
            if body is not None:
                read = partial(read_asked_model, body, dialect)
                asked = await run_beside(read, size=len(body))
            in_path = list_path_models(path)
            if asked is None or not (asked.name or in_path):
                self._refuse_unreadable(client)
                asked = RequestedModel()
            if in_path:
                asked = asked._replace(name=in_path[0])
            sent = -(-len(body or b"") // _BYTES)
        caller = _make_caller(client, asked.name)
        if not self.limiter.has_limits(caller):
            return None
        answers = not any(one in path for one in _NO_ANSWER)
        return await self.limiter.admit_call(
            caller, self.estimate_call(asked, sent, answers=answers)
        )

    def _refuse_unreadable(self, client: Client) -> None:
        """Refuse a body that does not say what it asks, where limits depend on that."""
        if self.limiter.needs_estimate(_make_caller(client, "")):
            words = (
                "limits hold for this key, and the body does not say to us which model it asks, "
                "and for how much: send JSON that names a model, and each field once"
            )
            raise Refusal(400, "unreadable", words)

    def estimate_call(
        self, asked: RequestedModel, sent: int, *, answers: bool = True
    ) -> CallEstimate:
        """Estimate the most that a call takes: all input anew, and the longest answer."""
        output = 0
        if answers:
            longest = self._find_longest(asked.name)
            output = min(asked.output or longest or _ANSWER, longest or asked.output or _ANSWER)
            output *= min(max(asked.answers, 1), _MANY)
        prices = self.prices_of(asked.name)
        if not prices.is_known:
            return CallEstimate(sent + output, 0, sent, 0)
        pico = estimate_cost(prices, sent, output).pico
        return CallEstimate(sent + output, pico, sent, estimate_cost(prices, sent, 0).pico)

    def settle_request(
        self, admission: Admission, *, tokens: int, pico: int, was_lost: bool = False
    ) -> None:
        """Count what a call took; of one that was given up unheard, all that was sent."""
        if was_lost and not tokens:
            tokens, pico = admission.estimate.sent, admission.estimate.sent_pico
        self.limiter.settle_call(admission, tokens=tokens, pico=pico)

    def limit_model(
        self, model: Model, client: Client, record: Callable[[CallFigures], None] | None = None
    ) -> "LimitedModel":
        """Return a model whose calls count to a client's limits; `record` takes their figures."""
        return LimitedModel(model, self, client, record)

    def _find_longest(self, model: str) -> int | None:
        """Return the longest answer of a model, if it is known."""
        if model not in self._longest:
            if len(self._longest) >= _FEW:
                self._longest.clear()
            self._longest[model] = resolve_model(model).max_output if model else None
        return self._longest[model]


class LimitedModel:
    """A model whose calls the limits count: of the session API, and of narrators."""

    def __init__(
        self,
        model: Model,
        limits: CallLimits,
        client: Client,
        record: Callable[[CallFigures], None] | None,
    ) -> None:
        self._model, self._limits, self._client, self._record = model, limits, client, record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """Ask the model, if the limits allow it; raises `Limited` if they do not."""
        body = msgspec.json.encode(request)
        asked = _read_parameters(request)._replace(name=self._model.name)
        caller = _make_caller(self._client, asked.name)
        estimate = self._limits.estimate_call(asked, -(-len(body) // _BYTES))
        try:
            admission = await self._limits.limiter.admit_call(caller, estimate)
        except Refusal as refusal:
            raise Limited(refusal.message, status=refusal.status, seconds=refusal.retry) from None
        sent = estimate.sent
        figures = self._count_tokens(UsageReported(), sent, 0)  # if nobody hears the answer
        try:
            answer = await self._model.say(request, heard=heard)
            figures = self._count_tokens(self._read_usage(answer), sent, estimate.tokens - sent)
        except Exception:
            figures = CallFigures()  # a refusal of the provider costs nothing
            raise
        finally:
            sums = figures.sums
            self._limits.limiter.settle_call(admission, tokens=figures.tokens, pico=sums.pico)
            if self._record is not None and sums.calls:
                self._record(figures)
        return answer

    def _read_usage(self, answer: Json) -> UsageReported:
        own = choose_model_dialect(self._model.name)
        try:
            events = parse_any_message(answer, own=own, saw=None, asked=None)
        except WireError:
            return UsageReported()
        return next((one for one in events if isinstance(one, UsageReported)), UsageReported())

    def _count_tokens(self, usage: UsageReported, sent: int, output: int) -> CallFigures:
        figures, prices = CallFigures(self._model.name), self._limits.prices_of(self._model.name)
        figures.sums.calls = 1
        figures.add_usage(usage, prices, tokens_in=sent, tokens_out=output)
        return figures

    async def close(self) -> None:
        """Do nothing: the model is closed by whoever opened it."""


def read_asked_model(body: bytes, dialect: Dialect | None) -> RequestedModel | None:
    """Read from a body which model it asks, and how long the answers may be.

    Returns None if servers may read it otherwise.
    """
    bounds = dialect.bounds if dialect is not None else _BOUNDS
    wanted = {"model", "n", *(one.partition(".")[0] for one in (*bounds, *_BOUNDS))}
    fields: dict[str, Any] = {}
    try:
        for name, place in find_fields(body).items():
            if name in wanted:
                fields[name] = msgspec.json.decode(body[place.start : place.end])
                if isinstance(fields[name], dict):
                    find_fields(body, place)
    except (WireError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _read_parameters(fields, dialect)


def _read_parameters(fields: Mapping[str, Any], dialect: Dialect | None = None) -> RequestedModel:
    found = dialect.find_bound(fields) if dialect is not None else None
    given = [fields.get(one) for one in _BOUNDS]
    stated = [one for one in (*given, found[1] if found else None) if type(one) is int and one > 0]
    name, answers = fields.get("model"), fields.get("n")
    return RequestedModel(
        name.removeprefix("models/") if isinstance(name, str) else "",
        max(stated, default=None),
        answers if type(answers) is int else 1,
    )


def _make_caller(client: Client, model: str) -> LimitedCaller:
    return LimitedCaller(client.tenant, client.owner, client.name, model)

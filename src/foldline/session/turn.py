"""One call of a model for a session: planned, paid for, and planned again after a refusal.

    answer = await reply(session, model, heard=print)

A request that is refused for its length is edited and sent once more. A call that ends early
leaves a usable log: the words heard so far, if any, as an answer that was cut or cancelled. The
caller runs tools.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from foldline.core.log import ModelSaid, Stop, UsageReported, begins_turn
from foldline.core.parts import Text, replace_surrogates
from foldline.core.plan import Facts
from foldline.core.tokens import count_tokens
from foldline.core.view import View
from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.dialects.provider_errors import Fault, of_exception
from foldline.errors import BadInput, FoldlineError, ModelFailed, Overflow, WireError
from foldline.models.port import AnswerListener, Heard, Json, Model
from foldline.models.retries import PATIENT, Patience, call_with_retries
from foldline.session import model_facts, planning, refusals
from foldline.session.session import AsyncSession
from foldline.session.spending import Reserved, Spending


class _Planned(NamedTuple):
    request: Json
    tokens: int
    most: int
    """The most tokens of the answer."""
    filled: float | None
    """The share of the window that it takes."""


async def reply(
    session: AsyncSession,
    model: Model,
    *,
    patience: Patience = PATIENT,
    spending: Spending | None = None,
    heard: Heard | None = None,
    **parameters: Any,
) -> Json:
    """Ask a model to continue a session, add its answer, and return it.

    If the provider refuses the request as too long, the window that it states forces an edit, and
    it is asked once more. Raises `ModelFailed`, `Spent` or `Overflow`.
    """
    one = _Turn(session, model, parameters, spending=spending or session.live.spending)
    planned = await one.plan_first()
    try:
        return await one.call_model(planned, patience, heard)
    except ModelFailed as failed:
        instead = None if failed.begun else await one.plan_replacement(planned, failed)
        if instead is None:
            raise
    return await one.call_model(instead, patience, heard)


def turn_of(view: View) -> int:
    """Return where the newest turn began: the place of the last message but notices, or -1."""
    said = [seq for seq, event in view.held.items() if begins_turn(event)]
    folded = [start for fold in view.list_folds().values() for start in fold.starts[-1:]]
    return max((*said, *folded), default=-1)


class _Turn:
    """One call of a model, and a second one if the first was refused."""

    def __init__(
        self, session: AsyncSession, model: Model, parameters: Json, *, spending: Spending | None
    ) -> None:
        self._session, self._live, self._model = session, session.live, model
        self._parameters, self._spending = parameters, spending
        self._dialect: Dialect = base.find_view_dialect(self._live.view)
        address = getattr(model, "base_url", None)
        self._address = address if isinstance(address, str) else None
        own = base.find_client_dialect(model)
        if own.name != self._dialect.name:
            raise BadInput(
                f"the session is {self._live.view.model!r}'s and {model.name!r} speaks another "
                "dialect; switch() the session to that model first"
            )

    async def plan_first(self) -> _Planned:
        """Plan the first request."""
        async with self._live.lock:
            return await self._plan_request(self._live.facts)

    async def plan_replacement(self, planned: _Planned, failed: ModelFailed) -> _Planned | None:
        """Plan a request in place of one that was refused; None if no edit helps."""
        fault = _classify_failure(failed, planned.filled)
        with suppress(Overflow):  # the provider's own error says more
            return await refusals.heal_refusal(self._live, fault, self._plan_request)
        return None

    async def _plan_request(self, facts: Facts) -> _Planned:
        live, dialect = self._live, self._dialect
        facts, parameters = model_facts.fit_answer_limit(
            facts, dialect, self._parameters, streams=True
        )
        stated = dialect.find_bound(parameters)
        body = await planning.plan_and_record_request(
            live, parameters, dialect=dialect, facts=facts, address=self._address
        )
        tokens = live.report.total if live.report else 0
        most = stated[1] if stated else facts.limits.reserve
        return _Planned(msgspec.json.decode(body), tokens, most, refusals.measure_fill(live))

    async def call_model(self, planned: _Planned, patience: Patience, heard: Heard | None) -> Json:
        """Reserve the cost, call the model, and record its answer."""
        reserved = await self._reserve_call(planned)
        words: list[str] = []

        def receive_piece(piece: str) -> None:
            words.append(piece)
            if heard is not None:
                heard(piece)

        listener: Heard = receive_piece
        if isinstance(heard, AnswerListener):
            listener = replace(heard, words=receive_piece)
        try:
            answer = await call_with_retries(
                self._model,
                planned.request,
                patience=patience,
                heard=listener if heard else None,
            )
        except BaseException as fault:
            failed = isinstance(fault, ModelFailed)
            await self._record_partial_answer("".join(words), stop="cut" if failed else "cancelled")
            used = UsageReported(input=planned.tokens, output=count_tokens("".join(words)))
            refused = isinstance(fault, ModelFailed) and not fault.silent and not words
            await self._settle_call(reserved, used, free=refused)
            raise
        usage: UsageReported | None = None
        try:
            usage = self._parse_usage(answer)
            await self._session.add(answer)
        finally:
            await self._settle_call(reserved, usage)
        return answer

    def _parse_usage(self, answer: Json) -> UsageReported | None:
        try:
            events = base.parse_any_message(answer, own=self._dialect, saw=None, asked=None)
        except WireError as fault:
            words = f"an answer that cannot be read: {fault}"
            raise ModelFailed(self._model.name, Fault("other", words)) from fault
        return next((event for event in events if isinstance(event, UsageReported)), None)

    async def _record_partial_answer(self, words: str, *, stop: Stop) -> None:
        """Record the words of an answer that broke off: a person may have read them."""
        view = self._live.view
        if not words.strip():
            return
        said = ModelSaid(
            (Text(replace_surrogates(words)),), saw=view.shown if view.awaited else None, stop=stop
        )
        with suppress(FoldlineError):  # the error that ended the call matters more
            await self._session.add(said)

    async def _reserve_call(self, planned: _Planned) -> Reserved | None:
        if self._spending is None:
            return None
        turn, prices = turn_of(self._live.view), self._live.facts.prices
        return await self._spending.reserve_call(
            planned.tokens, planned.most, turn=turn, prices=prices
        )

    async def _settle_call(
        self, reserved: Reserved | None, usage: UsageReported | None, *, free: bool = False
    ) -> None:
        """Count a call's cost as reported or estimated; nothing if it is `free`."""
        if self._spending is None or reserved is None:
            return
        if free:
            await self._spending.release(reserved)
        else:
            await self._spending.settle_call(reserved, usage)


def _classify_failure(failed: ModelFailed, filled: float | None) -> Fault:
    """Classify a failure, now that it is known how full the window was."""
    fault: Fault = failed.fault
    if fault.kind == "other" and failed.__cause__ is not None:
        return of_exception(failed.__cause__, filled=filled)
    return fault

"""One answer of a model, into its session: asked, paid for, and asked again where it was too much.

    answer = await reply(session, model, heard=print)

Orders the steps and nothing else: the session plans, `spending` holds the caps, `models.retries`
calls, `healing` heals an overflow, once a call (R-13). Refuses to run tools: who loops does that.

Whatever ends a call early leaves a log that goes on (R-53): the words that were heard, if any, as
an answer that was cut or cancelled, and nothing else of it.
"""

from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from foldline.core.log import ModelSaid, Stop, UsageReported, by_user
from foldline.core.parts import Text, sound
from foldline.core.plan import Facts
from foldline.core.tokens import count
from foldline.core.view import View
from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.dialects.provider_errors import Fault, of_exception
from foldline.errors import BadInput, FoldlineError, ModelFailed, WireError
from foldline.models.port import Heard, Json, Model
from foldline.models.retries import PATIENT, Patience, call
from foldline.session import answer_limit, planning
from foldline.session import healing as refused
from foldline.session.session import AsyncSession
from foldline.session.spending import Reserved, Spending


class _Planned(NamedTuple):
    """What to send, and what it is believed to take."""

    request: Json
    tokens: int
    most: int
    """What the answer may take."""
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
    """Ask a model to go on with a session, and take in its answer; gives the answer too.

    Where the provider says that it is too much, what is learned of its window forces an edit, and
    it is asked once more. Raises `ModelFailed`, `Spent` or `Overflow`.
    """
    one = _Turn(session, model, parameters, spending=spending or session.live.spending)
    planned = await one.first()
    try:
        return await one.ask(planned, patience, heard)
    except ModelFailed as failed:
        instead = None if failed.begun else await one.instead(planned, failed)
        if instead is None:
            raise
    return await one.ask(instead, patience, heard)


def turn_of(view: View) -> int:
    """Where the newest turn began: the place of the last message of a person, or -1."""
    said = [seq for seq, event in view.held.items() if by_user(event)]
    folded = [start for fold in view.folds().values() for start in fold.starts[-1:]]
    return max((*said, *folded), default=-1)


class _Turn:
    """One call of a model, and the second one where the first was refused."""

    def __init__(
        self, session: AsyncSession, model: Model, parameters: Json, *, spending: Spending | None
    ) -> None:
        self._session, self._live, self._model = session, session.live, model
        self._parameters, self._spending = parameters, spending
        self._dialect: Dialect = base.speaking(self._live.view.model)
        if base.speaking(model.name) is not self._dialect:
            raise BadInput(
                f"the session is {self._live.view.model!r}'s and {model.name!r} speaks another "
                "dialect; switch() the session to that model first"
            )

    async def first(self) -> _Planned:
        """The request that the session plans."""
        async with self._live.lock:
            return await self._plan(self._live.facts)

    async def instead(self, planned: _Planned, failed: ModelFailed) -> _Planned | None:
        """What to send in place of a request that was refused; None if nothing heals it."""
        return await refused.healed(self._live, _suspected(failed, planned.filled), self._plan)

    async def _plan(self, facts: Facts) -> _Planned:
        live, dialect = self._live, self._dialect
        facts, given = answer_limit.answerable(facts, dialect, self._parameters, streams=True)
        stated = answer_limit.stated(dialect, given)
        body = await planning.ask(live, given, dialect=dialect, facts=facts)
        tokens = live.report.total if live.report else 0
        most = stated[1] if stated else facts.limits.reserve
        return _Planned(msgspec.json.decode(body), tokens, most, refused.filled(live))

    async def ask(self, planned: _Planned, patience: Patience, heard: Heard | None) -> Json:
        """Pay, call, and take in what came."""
        reserved = await self._reserve(planned)
        words: list[str] = []

        def hearing(piece: str) -> None:
            words.append(piece)
            if heard is not None:
                heard(piece)

        try:
            answer = await call(
                self._model, planned.request, patience=patience, heard=hearing if heard else None
            )
        except BaseException as fault:
            failed = isinstance(fault, ModelFailed)
            await self._left("".join(words), stop="cut" if failed else "cancelled")
            used = UsageReported(input=planned.tokens, output=count("".join(words)))
            refused = isinstance(fault, ModelFailed) and not fault.silent and not words
            await self._settle(reserved, used, free=refused)
            raise
        usage: UsageReported | None = None
        try:
            usage = self._usage(answer)
            await self._session.add(answer)
        finally:
            await self._settle(reserved, usage)
        return answer

    def _usage(self, answer: Json) -> UsageReported | None:
        try:
            events = base.events(answer, own=self._dialect, saw=None, asked=None)
        except WireError as fault:
            words = f"an answer that cannot be read: {fault}"
            raise ModelFailed(self._model.name, Fault("other", words)) from fault
        return next((event for event in events if isinstance(event, UsageReported)), None)

    async def _left(self, words: str, *, stop: Stop) -> None:
        """Take in what was heard of an answer that broke off: a person may have read it."""
        view = self._live.view
        if not words.strip():
            return
        said = ModelSaid((Text(sound(words)),), saw=view.shown if view.awaited else None, stop=stop)
        with suppress(FoldlineError):  # what ended the call is told, not that its rest is lost
            await self._session.add(said)

    async def _reserve(self, planned: _Planned) -> Reserved | None:
        if self._spending is None:
            return None
        turn, prices = turn_of(self._live.view), self._live.facts.prices
        return await self._spending.before(planned.tokens, planned.most, turn=turn, prices=prices)

    async def _settle(
        self, reserved: Reserved | None, usage: UsageReported | None, *, free: bool = False
    ) -> None:
        """Count what was used: nothing by a call that was refused, else as told or estimated."""
        if self._spending is None or reserved is None:
            return
        if free:
            await self._spending.release(reserved)
        else:
            await self._spending.after(reserved, usage)


def _suspected(failed: ModelFailed, filled: float | None) -> Fault:
    """A failure's meaning, once it is known how full the window was: R-12."""
    fault: Fault = failed.fault
    if fault.kind == "other" and failed.__cause__ is not None:
        return of_exception(failed.__cause__, filled=filled)
    return fault

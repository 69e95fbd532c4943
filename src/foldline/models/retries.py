"""Calling a model until it answers: how often, and how long.

Knows which failures pass by themselves, and that nothing is asked again once somebody has heard a
part of the answer. Refuses to know sessions: what an overflow calls for is `session.turn`'s.
Nothing here is random, unless a generator is given. Cancelled, the call under way ends at once.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from time import monotonic

from foldline.dialects.provider_errors import Fault
from foldline.errors import ModelFailed
from foldline.models.port import Heard, Json, Model


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a model is asked, and how long is waited; times are in seconds."""

    tries: int = 4
    """How often it is asked at most."""
    first: float = 0.5
    """Before the second try; each later one waits twice as long."""
    longest: float = 30.0
    """The most that is waited before a try: a provider that asks for more is not asked again."""
    call: float = 600.0
    """For one answer."""
    whole: float = 1_200.0
    """For all tries and what lies between them."""

    def pause(self, tried: int, fault: Fault, random: Random | None = None) -> float:
        """How long to wait behind a try that failed; as long as the provider asks, at least."""
        own = min(self.first * 2.0 ** (tried - 1), self.longest)
        own = random.uniform(0.0, own) if random else own
        return max(own, fault.retry_after or 0.0)


PATIENT = Patience()
PASSING = ("rate", "overloaded", "unreachable")
"""The kinds of faults that pass by themselves."""


async def call(
    model: Model,
    request: Json,
    *,
    patience: Patience = PATIENT,
    heard: Heard | None = None,
    random: Random | None = None,
) -> Json:
    """The answer to a request; `ModelFailed` where there is none in time.

    With `random`, pauses are drawn from nothing to their full length, so that many callers who were
    refused together do not come back together.
    """
    until = monotonic() + patience.whole
    tried = 0
    while True:
        tried += 1
        left = until - monotonic()
        try:
            return await _once(model, request, seconds=min(patience.call, left), heard=heard)
        except ModelFailed as failed:
            pause = patience.pause(tried, failed.fault, random)
            late = pause > patience.longest or monotonic() + pause >= until
            if failed.begun or tried >= patience.tries or late or not passes(failed.fault):
                raise
        await asyncio.sleep(pause)


def passes(fault: Fault) -> bool:
    """Whether the same request may be answered later."""
    hopeless = fault.kind == "rate" and (fault.count or 0) > (fault.limit or fault.count or 0)
    return fault.kind in PASSING and not hopeless


async def _once(model: Model, request: Json, *, seconds: float, heard: Heard | None) -> Json:
    begun = False

    def hearing(words: str) -> None:
        nonlocal begun
        begun = True
        if heard is not None:
            heard(words)

    try:
        async with asyncio.timeout(seconds):
            return await model.say(request, heard=hearing if heard else None)
    except TimeoutError:
        what = "the rest of the answer" if begun else "an answer"
        late = Fault("overloaded", f"{what} was waited for {seconds:.3g} seconds, and did not come")
        raise ModelFailed(model.name, late, begun=begun, silent=True) from None

"""Calls a model with retries and time limits.

Only failures that pass by themselves are retried, and never once a part of the answer was heard.
Overflows are left to `session.turn`. Pauses of calls are random only if a generator is given.
Cancelling ends the call in progress at once. `Outage` is for what is tried again until it works.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from time import monotonic

from foldline.dialects.provider_errors import Fault
from foldline.errors import ModelFailed
from foldline.models.port import AnswerListener, Heard, Json, Model


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits on retries; times are in seconds."""

    tries: int = 4
    """Maximum number of calls."""
    first: float = 0.5
    """Pause before the second try; doubles with each further one."""
    longest: float = 30.0
    """Longest pause: if a provider asks for more, there is no further try."""
    call: float = 600.0
    """Time for one answer."""
    whole: float = 1_200.0
    """Time for all tries and the pauses between them."""

    def pause(self, tried: int, fault: Fault, random: Random | None = None) -> float:
        """Return the pause after a failed try, at least as long as the provider asks."""
        own = min(self.first * 2.0 ** (tried - 1), self.longest)
        own = random.uniform(0.0, own) if random else own
        return max(own, fault.retry_after or 0.0)


PATIENT = Patience()
PASSING = ("rate", "overloaded", "unreachable")
"""The kinds of faults that pass by themselves."""


class Outage:
    """Something that cannot be reached: how long to wait before each try, and a line per state.

    Pauses double up to `longest` and are drawn between half and all of that, so that many programs
    do not come back together. Lines report its begin, every new reason and its end, not each try.
    """

    def __init__(
        self,
        what: str,
        tell: Callable[[str], object],
        *,
        first: float = 0.5,
        longest: float = 60.0,
        random: Random | None = None,
    ) -> None:
        self._what, self._tell = what, tell
        self._first, self._longest = first, longest
        self._random = random or Random()  # noqa: S311 - pauses need no secrecy
        self._state = ""
        self._tries, self._since = 0, 0.0

    def note_failure(self, why: str, *, state: str = "down") -> float:
        """Note a failed try; returns the seconds to wait; only a new `state` is reported."""
        if state != self._state:
            self._tell(f"{self._what}: {why}; tried again, less and less often")
            self._since = self._since or monotonic()
            self._state = state
        self._tries += 1
        whole = min(self._first * 2.0 ** min(self._tries - 1, 40), self._longest)
        return self._random.uniform(whole / 2, whole)

    def note_success(self) -> None:
        """Note that it works."""
        if self._state:
            took, tries = monotonic() - self._since, self._tries
            self._tell(f"{self._what}: it works again, after {took:.0f} s and {tries:,} tries")
        self._state, self._tries, self._since = "", 0, 0.0


async def call_with_retries(
    model: Model,
    request: Json,
    *,
    patience: Patience = PATIENT,
    heard: Heard | None = None,
    random: Random | None = None,
) -> Json:
    """Return the answer to a request; raises `ModelFailed` if there is none in time.

    With `random`, pauses are drawn between 0 and their full length, so that many callers who were
    refused together do not come back together.
    """
    until = monotonic() + patience.whole
    tried = 0
    while True:
        tried += 1
        left = until - monotonic()
        try:
            return await _call_once(model, request, seconds=min(patience.call, left), heard=heard)
        except ModelFailed as failed:
            pause = patience.pause(tried, failed.fault, random)
            late = pause > patience.longest or monotonic() + pause >= until
            if failed.begun or tried >= patience.tries or late or not is_retryable(failed.fault):
                raise
            if isinstance(heard, AnswerListener):
                heard.retried(failed.fault.message or failed.fault.kind, pause)
        await asyncio.sleep(pause)


def is_retryable(fault: Fault) -> bool:
    """Whether the same request may succeed later."""
    hopeless = fault.kind == "rate" and (fault.count or 0) > (fault.limit or fault.count or 0)
    return fault.kind in PASSING and not hopeless


async def _call_once(model: Model, request: Json, *, seconds: float, heard: Heard | None) -> Json:
    begun = False

    def hear_words(words: str) -> None:
        nonlocal begun
        begun = True
        if heard is not None:
            heard(words)

    listener: Heard = hear_words
    if isinstance(heard, AnswerListener):
        listener = replace(heard, words=hear_words)
    try:
        async with asyncio.timeout(seconds):
            return await model.say(request, heard=listener if heard else None)
    except TimeoutError:
        what = "the rest of the answer" if begun else "an answer"
        late = Fault("overloaded", f"{what} was waited for {seconds:.3g} seconds, and did not come")
        raise ModelFailed(model.name, late, begun=begun, silent=True) from None

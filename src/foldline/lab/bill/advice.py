"""What to do about calls that found no cache, in one line for each cause.

Knows what a person can change. Refuses to know sessions.
"""

from foldline.lab.bill.cache import Cause

_SAYS: dict[Cause, str] = {
    "model": "a cache belongs to one model: finish a turn with the model that began it, and switch "
    "where a fold is due anyway",
    "system": "keep the system prompt's bytes as they were: put date, time and ids at the end, in "
    "the newest message",
    "tools": "send the same tools in the same order from the first call on, also those that are "
    "not allowed yet",
    "thinking": "choose the level of thinking before the first call, or change it where a fold is "
    "due anyway",
    "restart": "an agent that comes back should send the bytes it sent before: keep the system "
    "prompt of the session, do not build it anew",
    "edit": "nothing to do: what an edit leaves is written once; rarer edits write less",
    "too short": "nothing to do: a prefix below the provider's minimum is never kept, and it costs "
    "little",
    "out of reach": "set a mark at least every 19 blocks: from a mark only 20 blocks are looked at",
    "missed": "nothing in the record explains it: the provider had dropped it, or bytes changed "
    "that the record does not hold",
}
_GUESSED: dict[Cause, str] = {
    "system": "a person spoke, little time had gone by, the messages were the same, and yet "
    "nothing was found: so what stands before them had changed, which this record does not hold. "
    "An agent that is started anew often writes the time into its system prompt: look for a clock, "
    "a date or an id there, and put it at the end, in the newest message",
    "edit": "the agent left out what it had sent before, such as thinking of earlier turns: what "
    "stands behind that is written again",
    "restart": "another process went on with the session: it should send the bytes that were sent "
    "before, also of the system prompt",
}


def advice(cause: Cause, *, sure: bool, seconds: float, longer: tuple[float, float] | None) -> str:
    """One line; `longer` is the longer life on offer, and the dollars that it would have saved."""
    if cause == "expired":
        return _expired(seconds, longer)
    said = _SAYS if sure else {**_SAYS, **_GUESSED}
    return said.get(cause, "")


def _expired(seconds: float, longer: tuple[float, float] | None) -> str:
    said = f"more than {span(seconds)} had gone by"
    if longer is None:
        return f"{said}: fold then, the cache is gone anyway"
    life, saved = longer
    if saved > 0:
        return f"{said}: a cache of {span(life)} would have saved ${saved:.2f} in all"
    return (
        f"{said}: a cache of {span(life)} would not have paid: ${-saved:.2f} more in all, for its "
        "dearer writes. Fold then instead: the cache is gone anyway"
    )


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    units = ((hours, "h"), (minutes, "m"), (rest, "s"))
    said = [f"{number}{unit}" for number, unit in units if number]
    return " ".join(said[:2]) or "0s"

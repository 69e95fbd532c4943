"""How long an answer may be: as a caller says it, and as the window can keep it free.

Knows what each dialect calls that, and what its SDK takes. Refuses to know who asks: a session, a
wrapped client's `Exchange` and `turn.reply` all stand on this.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from foldline.core.budget import keeping
from foldline.core.plan import Facts
from foldline.dialects.base import Dialect

_UNSTREAMED = 20_000  # tokens: Anthropic's SDK takes no more for an answer in one piece
Bound = tuple[str, int]
"""How long the answer may be, and what the caller calls that."""


def stated(dialect: Dialect, parameters: Mapping[str, Any]) -> Bound | None:
    """How long the answer may be, as the parameters say it."""
    for name in dialect.bounds:
        most = parameters.get(name)
        if isinstance(most, msgspec.Raw):
            try:
                most = msgspec.json.decode(most, type=int | None)
            except msgspec.DecodeError:
                continue
        if type(most) is int and most > 0:
            return name, most
    return None


def answerable(
    facts: Facts, dialect: Dialect, parameters: Mapping[str, Any], *, streams: bool = False
) -> tuple[Facts, dict[str, Any]]:
    """Facts that keep free what the parameters let an answer take, and those as they can be kept.

    Where they must say it and do not, it is all that is kept free, as far as the model gives so
    much; less if it comes in one piece.
    """
    kept = facts.limits.reserve
    most = min(kept, facts.limits.max_output or kept)
    most = most if streams or parameters.get("stream") else min(most, _UNSTREAMED)
    given = dialect.parameters(parameters, most=most)
    bound = stated(dialect, given)
    if bound is not None and bound[1] > kept:
        facts = replace(facts, limits=keeping(facts.limits, bound[1]))
    return facts, within(given, bound, reserve=facts.limits.reserve)


def within(parameters: Mapping[str, Any], bound: Bound | None, *, reserve: int) -> dict[str, Any]:
    """The parameters; what cannot be kept free for the answer cannot be asked for: R-04."""
    if bound is None or reserve >= bound[1]:
        return {**parameters}
    return {**parameters, bound[0]: reserve}

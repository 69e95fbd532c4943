"""What decisions rest on: the preset, and what is believed of the model.

Knows whose word goes first: the user's, the server's, the user's file, the catalogue, the family's;
what an error has taught (`core.budget.learned`) wins where it is smaller. Refuses to know sessions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from foldline.core.budget import Source, limits
from foldline.core.log import Setting
from foldline.core.plan import Facts
from foldline.core.policy import Policy, named
from foldline.errors import BadInput

if TYPE_CHECKING:
    from foldline.models.servers import Reported


def known(
    model: str,
    *,
    window: int | None,
    reserve: int | None,
    policy: str | Policy,
    reported: "Reported | None" = None,
) -> Facts:
    """What decisions rest on: the preset, and what user, server and catalogue say of the model."""
    from foldline.models.overrides import believed  # noqa: PLC0415 - a tenth of an import's time

    for what, said in (("window", window), ("reserve", reserve)):
        if said is not None and type(said) is not int:
            raise BadInput(f"{what}={said!r} is no number of tokens; give a whole number")
    preset = policy if isinstance(policy, Policy) else named(policy)
    found = believed(model)
    size, source, most = found.window, found.source, found.max_input
    words: tuple[tuple[int | None, Source], ...] = (
        (reported.window if reported else None, "provider"),
        (window, "user"),
    )
    for said, whose in words:
        if said is not None and said > 0:
            # More than the catalogue knows of: its other limit is as old.
            size, source, most = said, whose, most if said <= (found.window or 0) else None
    prices = reported.prices if reported and reported.prices else found.prices
    limit = limits(
        size,
        reserve or preset.reserve,
        source=source,
        max_input=most,
        step=prices.step,
        max_output=(reported.max_output if reported else None) or found.max_output,
    )
    return Facts(limit, preset, prices)


def of_session(model: str, settings: Mapping[str, Setting]) -> Facts:
    """The facts that a stored session names: as it was opened, or as it was left."""
    window, reserve, policy = (settings.get(key) for key in ("window", "reserve", "policy"))
    return known(
        model,
        window=cast("int | None", window),
        reserve=cast("int | None", reserve),
        policy=cast("str | None", policy) or "steady",
    )

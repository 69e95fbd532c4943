"""What decisions rest on: the preset, and what the user or the catalogue says of the model.

Knows where each number comes from. Refuses to know sessions.
"""

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import named
from foldline.models.catalog import find


def known(model: str, *, window: int | None, reserve: int | None, policy: str) -> Facts:
    """What decisions rest on: the preset, and what the user or the catalogue says of the model."""
    preset, found = named(policy), find(model)
    given = window is not None and window > 0
    limit = limits(
        window if given else found.window,
        reserve or preset.reserve,
        source="user" if given else found.source,
        max_input=None if given else found.max_input,
        step=found.prices.step,
    )
    return Facts(limit, preset, found.prices)

"""Carrying on: an earlier session's record as the first words of a new one (A-24).

Knows how a whole session is told in one handoff. Refuses to choose: who opens a session says
whether anything is carried, and from where; a fresh start is the default.
"""

from foldline.core import fold_selection
from foldline.core.budget import measure
from foldline.core.fold_selection import Facts, Need
from foldline.core.log import UserSaid
from foldline.core.parts import Text
from foldline.errors import BadInput
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.stores.base import Name, Store


def nothing_to_carry(name: Name) -> BadInput:
    """What is said where a session to carry on from is not there, or is empty."""
    return BadInput(f"there is nothing in a session {name.session!r} to carry on from")


async def carried(store: Store, name: Name, *, facts: Facts) -> UserSaid:
    """What the new session is told of the old one: its record, made without a model."""
    live = await Live.open(store, name, facts=facts)
    if not live.view.items:
        raise nothing_to_carry(name)
    budget = measure(live.view, facts.limits)
    made = fold_selection.record(live.view, budget, facts)
    while isinstance(made, Need):
        facts = await planning.fetched(live, facts, made)
        made = fold_selection.record(live.view, budget, facts)
    told = made.within(budget.estimated(budget.room * facts.policy.handoff)).text
    head = (
        f"[carried on from session {name.session!r}: a record of it. "
        "Its handles are that session's, not this one's]"
    )
    return UserSaid((Text(f"{head}\n{told}"),), speaker="notice")

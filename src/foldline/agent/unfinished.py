"""What was left unanswered, or in the middle of an answer, by a process that is no longer there.

Knows which answers came to their end, and what an agent is told that goes on behind one that did
not. Refuses to know who asks: the HTTP call site and the scheduler look here.
"""

from collections.abc import AsyncGenerator

from foldline.core.log import ModelSaid
from foldline.core.spine import Range
from foldline.session.session import AsyncSession

BROKEN = ("cancelled", "cut")
"""Stops of an answer that did not come to its end."""
_PAGE = 200  # events that are read at a time
_GO_ON = "[The answer was stopped here. Go on with it.]"


async def answers(session: AsyncSession, place: int) -> AsyncGenerator[tuple[int, ModelSaid]]:
    """What models said to its end that were shown the message at a place, oldest first."""
    live = session.live
    for lo in range(place + 1, live.view.head + 1, _PAGE):
        for seq, event in await live.events(Range(lo, min(lo + _PAGE - 1, live.view.head))):
            if not isinstance(event, ModelSaid) or event.stop in BROKEN:
                continue
            if event.saw is None or event.saw >= place:
                yield seq, event


async def told_to_go_on(session: AsyncSession) -> None:
    """Behind a model's own words: not every provider takes a request that ends in them."""
    await session.add(_GO_ON, speaker="notice")

"""One of several processes that write to one session: the child of `test_processes.py`.

    python writing.py ADDRESS WHO APPENDS

Half of its messages come in as a bot's do, with a key and no lease; the others go through a view, and
whoever loses opens the session again. Every tenth message it asks, which folds when that is due. Prints
its conflicts and folds; any other error ends it.
"""

import asyncio
import json
import sys

from foldline.core.budget import limits
from foldline.core.log import Folded
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.errors import Conflict
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import model, user

NAME = Name("acme", "shared")
FACTS = Facts(limits(8_000, 400), STEADY)


def words(who: str, at: int) -> str:
    """A message that tells who wrote it, and which it was."""
    return f"<{who}:{at}> " + f"look at module_{at} and say what you find there " * 6


async def write(address: str, who: str, count: int) -> dict[str, int]:
    """Write them all, once each."""
    store = store_at(address)
    live = await Live.open(store, NAME, facts=FACTS)
    told = {"conflicts": 0, "folds": 0}

    async def surely(work):
        nonlocal live
        while True:
            try:
                return await work(live)
            except Conflict:
                told["conflicts"] += 1
                live = await Live.open(store, NAME, facts=FACTS)

    async def turn(through):
        before = through.view.head
        await planning.plan_and_record_request(through, {}, dialect=OPENAI)
        made = await event_log.read_events(
            store, NAME, event_log.Range(before + 1, through.view.head)
        )
        told["folds"] += sum(isinstance(event, Folded) for _, event in made)

    for at in range(count):
        said = user(words(who, at))
        if at % 2:
            for _ in range(1 + at % 3):  # delivered again, sometimes
                await event_log.append_events(store, NAME, [said], once=f"{who}:{at}")
        else:
            await surely(lambda through, said=said: through.receive_events(said))
        if at % 10 == 9:
            await surely(turn)
            await surely(lambda through: through.receive_events(model("I looked.")))
    await store.close()
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3])))))

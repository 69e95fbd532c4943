"""Take back a `-p` message that nobody answered, and say what to do about it.

The log keeps the message, and no later request shows it: who repeats the command says it once. A
session that was begun for it is erased.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from foldline.apps.chat.chat_parts import ChatSeat
from foldline.apps.cli.build_agent import Wish, erase_unused_sessions
from foldline.core.edits.undo import rewind_view
from foldline.core.log import Event, ModelSaid, UserSaid
from foldline.core.spine import Range
from foldline.errors import FoldlineError, ModelFailed
from foldline.session.session import AsyncSession

_WAYS = {
    "rate": "the provider asks to slow down: wait, then repeat it",
    "overloaded": "the server failed, or has too much to do: wait a moment, then repeat it",
    "unreachable": "then repeat it",
    "tokens": "`foldline fold {session}` makes room, --model NAME takes another model",
}
_OTHER = "--model NAME takes another model; `foldline models` lists names"


@asynccontextmanager
async def erase_unanswered(wish: Wish, name: str) -> AsyncGenerator[None]:
    """Erase a session that was begun for a message, if nobody answered it."""
    try:
        yield
    except FoldlineError:
        if wish.is_nameless:
            await erase_unused_sessions(wish.desk, [name])
        raise


@asynccontextmanager
async def withdraw_unanswered(seat: ChatSeat) -> AsyncGenerator[None]:
    """Take a message that is added meanwhile out of the model's sight if nobody answers it."""
    session = seat.agent.session
    start = session.live.view.head
    try:
        yield
    except FoldlineError as fault:
        with suppress(FoldlineError):  # the error that ended the turn matters more
            await _withdraw_message(session, start)
        if isinstance(fault, ModelFailed):
            fault.add_note(_choose_way(fault, seat))
        raise
    await _withdraw_message(session, start)


async def _withdraw_message(session: AsyncSession, start: int) -> None:
    """Take the first message since `start` out of sight, if no model said anything since."""
    live = session.live

    async def decide_rewind() -> Sequence[Event]:
        since = [one for one in live.view.iterate_newest(ModelSaid, UserSaid) if one[0] > start]
        said = [at for at, one in since if isinstance(one, UserSaid) and one.speaker == "human"]
        if not said or any(isinstance(one, ModelSaid) for _, one in since):
            return []
        return [rewind_view(live.view, dropped=[Range(said[-1], said[-1])])]

    async with live.lock:
        await live.append_decision(decide_rewind)


def _choose_way(fault: ModelFailed, seat: ChatSeat) -> str:
    kind = fault.fault.kind
    if kind == "auth" and seat.explain_key is not None:
        return seat.explain_key()
    return _WAYS.get(kind, _OTHER).format(session=seat.agent.session.live.name.session)

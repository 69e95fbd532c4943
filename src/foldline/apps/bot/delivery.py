"""What of a log was answered, and what of its answers was delivered: kept beside it in the store.

    track = await Track.load(store, name)
    await track.look(live)          # reads what is new in the log
    track.pending                   # whether something stands unanswered
    track.undelivered               # answers that nobody has seen

Knows that an answer is shown in messages whose numbers are kept before it is written into them: a
message may be edited twice to the same words, so that no answer is shown twice, whenever we are
killed. Refuses to know Telegram.
"""

from collections import OrderedDict, deque

import msgspec

from foldline.core.log import Asked, Event, ModelSaid, UserSaid
from foldline.core.parts import calls_of, spoken
from foldline.core.spine import Range
from foldline.session.log_handle import Live
from foldline.stores.base import Name, Store

SPACE = "telegram"
_KEY = "out"
_PAGE = 200  # events that are read at a time
_KNOWN = 400  # messages whose places are kept, for pins by reply
AUTHOR = "foldline"
"""Of notices that end a turn without an answer."""


class _Kept(msgspec.Struct):
    """As the store has it."""

    upto: int = -1
    """All up to here was looked at, and every answer in it is delivered."""
    said: int = -1
    """The newest message that wants an answer."""
    covered: int = -1
    """The newest place that an answer has seen."""
    shown: int = -1
    """The newest place that a request has shown."""
    draft: list[int] = []
    """Messages that were sent for the next answer."""
    known: list[tuple[int, int]] = []
    """Messages in the chat, and where each is in the log."""


class Track:
    """One session's."""

    def __init__(self, store: Store, name: Name, kept: _Kept) -> None:
        self._store, self._name = store, name
        self._upto, self._at = kept.upto, kept.upto
        self._said, self._covered, self._shown = kept.said, kept.covered, kept.shown
        self.draft: list[int] = kept.draft
        """The messages that the next answer is written into."""
        self.undelivered: deque[tuple[int, ModelSaid]] = deque()
        self._known: OrderedDict[int, int] = OrderedDict(kept.known)
        self._written = kept.upto

    @classmethod
    async def load(cls, store: Store, name: Name) -> "Track":
        """As it was kept, or new."""
        return cls(store, name, await _kept(store, name))

    @property
    def pending(self) -> bool:
        """Whether a message stands that no answer has seen."""
        return self._said > self._covered

    @property
    def still(self) -> bool:
        """Whether there is nothing to answer and nothing to deliver."""
        return not self.pending and not self.undelivered

    def know(self, message: int, place: int) -> None:
        """Which place of the log a message in the chat is."""
        self._known[message] = place
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)

    def place(self, message: int) -> int | None:
        """Where a message is in the log, if that is known."""
        return self._known.get(message)

    async def look(self, live: Live) -> None:
        """Read what is new in the log."""
        head = live.view.head
        while self._at < head:
            upto = min(self._at + _PAGE, head)
            for seq, event in await live.events(Range(self._at + 1, upto)):
                self.take(seq, event)
            self._at = upto

    def take(self, seq: int, event: Event) -> None:
        """Take one event into account."""
        match event:
            case UserSaid(speaker="notice"):
                if event.author == AUTHOR:  # the turn ended without an answer
                    self._covered = max(self._covered, self._shown)
            case Asked(at=at):
                self._shown = max(self._shown, at)
            case UserSaid():
                self._said = max(self._said, seq)
            case ModelSaid():
                if not calls_of(event.parts):
                    saw = seq if event.saw is None else event.saw
                    self._covered = max(self._covered, saw)
                if spoken(event.parts).strip():
                    self.undelivered.append((seq, event))
            case _:
                pass

    async def drafted(self, message: int) -> None:
        """A message was sent for the next answer."""
        self.draft.append(message)
        await self._put()

    async def delivered(self) -> None:
        """The oldest answer stands in its messages."""
        seq, _ = self.undelivered.popleft()
        self._upto = seq
        for message in self.draft:
            self.know(message, seq)
        self.draft = []
        await self.seen()

    async def emptied(self) -> None:
        """What was sent for an answer was used for something else."""
        self.draft = []
        await self._put()

    async def seen(self) -> None:
        """Note how far all is done."""
        self._upto = self._upto if self.undelivered else max(self._at, self._upto)
        if self._upto != self._written:
            await self._put()

    async def _put(self) -> None:
        kept = _Kept(
            self._upto,
            self._said,
            self._covered,
            self._shown,
            self.draft,
            [*self._known.items()],
        )
        await self._store.put(self._name, SPACE, _KEY, msgspec.json.encode(kept))
        self._written = self._upto


async def _kept(store: Store, name: Name) -> _Kept:
    entry = await store.get(name, SPACE, _KEY)
    return _Kept() if entry is None else msgspec.json.decode(entry.value, type=_Kept)


async def done_upto(store: Store, name: Name) -> int:
    """How far all of a session is done, for who looks for work."""
    return (await _kept(store, name)).upto

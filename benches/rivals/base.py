"""What every peer has in common when it decides in a replay: messages in, a request out, one counter.

Knows how a recorded event becomes a message that any library can hold, and how what a library would send
is counted as ours is. Refuses to know how a library decides: that is its own code, called by its own doors.

A message that came through unchanged weighs what our counter says of the event, a changed or new one what
our counter says of its text. What a model thought is not given to the libraries (2 % of one session), but
it is weighed with the message that it belongs to. A call that was broken off gets a result that says so,
because every provider wants one.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid, by_user
from foldline.core.parts import Call, Part, Text, Tool, calls_of, spoken_text_of
from foldline.core.tokens import MESSAGE, count_parts, count_tokens, count_tools
from foldline.lab.bill.cache import Aside
from foldline.lab.kept_names import words_of
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Offer, ReplayPiece

SUMMARY = 500
"""Tokens of a scripted summary, where a library asks for no other size."""
TRIES = 400
"""How often a library may reduce before one call: some take one result at a time."""
_WIDTH = 200
_HEAD = "What happened so far:"
_BROKEN = Text("Interrupted: the conversation went on before there was a result.")


class Said(NamedTuple):
    """A message as the libraries are given it; `at` is its place among all that were taken."""

    at: int
    text: str
    calls: tuple[Call, ...] = ()
    """With ids of our own: recorded runs that were joined use some ids twice."""


class Returned(NamedTuple):
    """A call's result."""

    at: int
    call_id: str
    name: str
    text: str
    ok: bool = True


class Shown(NamedTuple):
    """A message of a library's request: one that was taken, as it was or with another text, or a new one."""

    at: int | None
    text: str | None = None
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a message weighs as it was recorded."""

    tokens: float
    words: str


class Scribe:
    """The model that is asked for summaries: sentences of what it was given, and the bill for each."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self.asides: list[Aside] = []
        self.asked = 0

    def tell(self, messages: Iterable[str], *, prompt: str, tokens: int = SUMMARY) -> str:
        """First lines of the messages, evenly over all of them; of an earlier summary every line."""
        lines = [line for message in messages for line in _firsts(message)]
        step = max(sum(map(count_tokens, lines)) / tokens, 1.0)
        kept, room = list[str](), tokens
        for place in range(int(len(lines) / step)):
            line = lines[int(place * step)]
            room -= count_tokens(line)
            if room >= 0:
                kept.append(f"- {line}")
        told = "\n".join([_HEAD, *kept])
        fresh = count_tokens(prompt) + MESSAGE
        self.asides.append(Aside(0.0, fresh * self._ratio, count_tokens(told) * self._ratio))
        self.asked += 1
        return told

    def billed(self) -> tuple[Aside, ...]:
        """Every call since the last bill."""
        asides, self.asides = tuple(self.asides), []
        return asides


def _firsts(message: str) -> Iterator[str]:
    _, head, told = message.partition(_HEAD)
    for line in told.splitlines() if head else ():
        if line.startswith("- "):
            yield line[2:]
    lines = message.strip().splitlines()
    if lines and not head:
        yield " ".join(lines[0].split())[:_WIDTH]


class Peer:
    """A library as a contender; what it does with messages is in the classes below this one."""

    package: ClassVar[str]
    label: ClassVar[str]
    note: ClassVar[str] = ""
    """Its settings, and what of them is not its default."""

    def __init__(self, recorded: Recorded, window: int) -> None:
        self.window = window
        self.over = 0
        """Requests that were larger than the window; a provider would have refused them."""
        self.cuts = 0
        """Requests that were not the one before and something behind it: the cache was broken."""
        self.total = 0.0
        """Tokens of the last request, as a provider would report them."""
        self._last: list[Hashable] = []
        self.scribe = Scribe(recorded.scale.ratio)
        self._scale = recorded.scale
        self._weighed: list[Weighed] = []
        self._system: tuple[Part, ...] = ()
        self._tools: tuple[Tool, ...] = ()
        self._open: dict[str, Call] = {}
        """Calls without a result, by the id that the record has."""
        self._results: list[Returned] = []
        self.start()

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label

    def take(self, event: Event) -> None:
        """Something happened: given to the library as its own objects."""
        match event:
            case Instructed():
                self._system, self._tools = event.parts, event.tools
            case UserSaid():
                self._settle()
                if by_user(event):
                    self.turn_ended()
                self.user(Said(self._weigh(event.parts), spoken_text_of(event.parts)))
            case ModelSaid():
                self._settle()
                at = self._weigh(event.parts)
                calls = calls_of(event.parts)
                own = tuple(
                    Call(f"call_{at}_{n}", c.name, c.arguments) for n, c in enumerate(calls)
                )
                self._open = {c.id: mine for c, mine in zip(calls, own, strict=True)}
                self.model(Said(at, spoken_text_of(event.parts), own))
            case ToolReturned():
                call = self._open.pop(event.call_id, None)
                if call is not None:
                    at = self._weigh(event.parts)
                    text = spoken_text_of(event.parts)
                    self._results.append(Returned(at, call.id, call.name, text, event.ok))
            case _:
                pass

    def offer(self, *, seconds: float, missed: bool) -> Offer:  # noqa: ARG002 - no peer asks for these
        """What the library would send; where a provider refuses it, after what the library does then."""
        self._settle()
        self.before_call()
        pieces = self._pieces()
        tries = 0
        while self.total > self.window and tries < TRIES and self.refused():
            pieces, tries = self._pieces(), tries + 1
        self.over += self.total > self.window
        keys = [piece.key for piece in pieces]
        self.cuts += keys[: len(self._last)] != self._last
        self._last = keys
        return Offer(pieces, asides=self.scribe.billed())

    # What a library is asked, each by its own doors.

    def start(self) -> None:
        """Make what is needed for a session."""

    def user(self, said: Said) -> None:
        """Take in a message of the user."""
        raise NotImplementedError

    def model(self, said: Said) -> None:
        """Take in an answer of the model."""
        raise NotImplementedError

    def results(self, batch: Sequence[Returned]) -> None:
        """Take in the results of one answer's calls."""
        raise NotImplementedError

    def turn_ended(self) -> None:
        """The agent has answered, and the user speaks again."""

    def before_call(self) -> None:
        """Do what is done before every call of the model."""

    def request(self) -> Iterable[Shown]:
        """What would be sent now."""
        raise NotImplementedError

    def refused(self) -> bool:
        """The request was too large: whether something was done about it."""
        return False

    # How it is counted: as ours is.

    def _settle(self) -> None:
        """Hand over what has returned; what has not by now was broken off."""
        for call in self._open.values():
            at = self._weigh((_BROKEN,))
            self._results.append(Returned(at, call.id, call.name, _BROKEN.text, ok=False))
        batch, self._results, self._open = self._results, [], {}
        if batch:
            self.results(batch)

    def _weigh(self, parts: tuple[Part, ...]) -> int:
        tokens = (count_parts(parts) + MESSAGE) * self._scale.ratio
        self._weighed.append(Weighed(tokens, words_of(parts)))
        return len(self._weighed) - 1

    def _pieces(self) -> list[ReplayPiece]:
        fixed = count_parts(self._system) + count_tools(self._tools)
        size = max(self._scale.fixed, 0) + fixed * self._scale.ratio
        pieces = [ReplayPiece(("front", self._system, self._tools), size, words_of(self._system))]
        pieces += [self._piece(shown) for shown in self.request()]
        self.total = sum(piece.tokens for piece in pieces)
        return pieces

    def _piece(self, shown: Shown) -> ReplayPiece:
        if shown.at is not None and shown.text is None:
            known = self._weighed[shown.at]
            return ReplayPiece((shown.at, None), known.tokens, known.words)
        text = shown.text or ""
        key = (shown.role if shown.at is None else shown.at, text)
        return ReplayPiece(key, (count_tokens(text) + MESSAGE) * self._scale.ratio, text)


class Everything(Peer):
    """Nobody decides: all of it is sent, whatever the window."""

    package, label = "", "everything"

    def start(self) -> None:
        """Nothing is held but places."""
        self._shown: list[Shown] = []

    def user(self, said: Said) -> None:
        """One more."""
        self._shown.append(Shown(said.at))

    model = user

    def results(self, batch: Sequence[Returned]) -> None:
        """Some more."""
        self._shown += [Shown(result.at) for result in batch]

    def request(self) -> Iterable[Shown]:
        """All."""
        return self._shown

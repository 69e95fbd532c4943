"""Why a call found no cache, what to do about it, and which bytes of the prefix changed.

A provider's cache depends on the model, the tools, the system prompt, thinking, the messages and
the time. What the record shows is reported as a fact. Where it is silent, the counts still say
something: if not even the front (system prompt and tools) was found at the first call of a turn,
the front had changed, and that is reported as a guess.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from foldline.core.log import (
    Asked,
    Checkpointed,
    Clipped,
    Event,
    Excluded,
    Folded,
    Instructed,
    Masked,
    ModelSaid,
    ModelSwitched,
    Opened,
    Rewound,
    ToolReturned,
    Undone,
    UserSaid,
    by_user,
)
from foldline.core.parts import Tool, text_of
from foldline.core.tokens import count_tokens
from foldline.importers.source import Mark
from foldline.lab.bill.cache import CacheRules, Cause
from foldline.lab.recorded import Recorded, RecordedCall

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


def choose_advice(
    cause: Cause, *, sure: bool, seconds: float, longer: tuple[float, float] | None
) -> str:
    """Choose a line of advice; `longer` is a longer cache lifetime, and the dollars it saves."""
    if cause == "expired":
        return _explain_expiry(seconds, longer)
    advice = _SAYS if sure else {**_SAYS, **_GUESSED}
    return advice.get(cause, "")


def _explain_expiry(seconds: float, longer: tuple[float, float] | None) -> str:
    said = f"more than {format_duration(seconds)} had gone by"
    if longer is None:
        return f"{said}: fold then, the cache is gone anyway"
    life, saved = longer
    if saved > 0:
        return f"{said}: a cache of {format_duration(life)} would have saved ${saved:.2f} in all"
    return (
        f"{said}: a cache of {format_duration(life)} would not have paid: ${-saved:.2f} "
        f"more in all, for its "
        "dearer writes. Fold then instead: the cache is gone anyway"
    )


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    units = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return " ".join([f"{number}{unit}" for number, unit in units if number][:2]) or "0s"


Kind: TypeAlias = Literal[
    "time", "date", "id", "counter", "path", "order", "order of keys", "more", "less", "words"
]
_AROUND = 24  # characters of context on each side
_FAR = 60  # characters around a difference in which a pattern may begin or end
_MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("id", re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)),
    (
        "time",
        re.compile(
            r"(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[ap]m\b)?",
            re.IGNORECASE,
        ),
    ),
    ("time", re.compile(r"\b1[5-9]\d{8}(?:\d{3}|\.\d+)?\b")),  # seconds or milliseconds since 1970
    ("date", re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b")),
    (
        "date",
        re.compile(
            rf"\b(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?(?:{_MONTH})[a-z]*\.? \d{{1,2}}"
            rf"(?:,? \d{{4}})?|\b\d{{1,2}}\.? (?:{_MONTH})[a-z]*\.?(?: \d{{4}})?",
            re.IGNORECASE,
        ),
    ),
    ("date", re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", re.IGNORECASE)),
    ("path", re.compile(r"(?:[A-Za-z]:\\|~?/|\.{1,2}/)[\w.~@+\\/-]+")),
    ("id", re.compile(r"\b(?=[0-9a-z_-]*\d)(?=[0-9a-z_-]*[a-z])[0-9a-z_-]{8,}\b", re.IGNORECASE)),
    ("counter", re.compile(r"\d[\d,.]*")),
)


@dataclass(frozen=True, slots=True)
class Volatile:
    """A place in the front whose bytes changed from one request to the next."""

    at: int
    """The place in the log of the call with the changed bytes."""
    where: Literal["system", "tools"]
    kind: Kind
    offset: int
    """How many characters before it were the same; the cache ends here."""
    before: str
    """The text before the difference."""
    old: str
    new: str
    times: int = 1
    """In how many calls it changed."""

    @property
    def shown(self) -> str:
        """The new bytes in their context, with a bar where the difference begins."""
        return f"…{self.before}|{self.new}…"


def collect_volatile_places(events: Sequence[Event]) -> tuple[Volatile, ...]:
    """Collect what changed in the front between calls, each kind of change once."""
    found: dict[tuple[str, Kind], Volatile] = {}
    for one in _iterate_changes(events):
        known = found.get((one.where, one.kind))
        found[one.where, one.kind] = replace(known, times=known.times + 1) if known else one
    return tuple(found.values())


def _is_imported(events: Sequence[Event]) -> bool:
    first = events[0] if events else None
    return isinstance(first, Opened) and first.origin.startswith("import:")


def _iterate_changes(events: Sequence[Event]) -> Iterator[Volatile]:
    imported = _is_imported(events)
    now: Instructed | None = None
    sent: Instructed | None = None
    for at, event in enumerate(events):
        if isinstance(event, Instructed):
            now = event
        elif isinstance(event, ModelSaid) and now is not None:
            if sent is not None and now != sent:
                yield from _compare_instructions(at, sent, now, grows=imported)
            sent = now


def _compare_instructions(
    at: int, old: Instructed, new: Instructed, *, grows: bool
) -> Iterator[Volatile]:
    if old.tools != new.tools:
        yield _compare_tools(at, old.tools, new.tools)
    was, now = text_of(old.parts), text_of(new.parts)
    if was != now and not (grows and now.startswith(was)):
        yield find_first_difference(was, now, at=at)


def find_first_difference(old: str, new: str, *, at: int = 0) -> Volatile:
    """Find the first place where two texts differ, and classify it."""
    place = _count_common_prefix(old, new)
    kind, begin = _classify_difference(old, new, place)
    # From the beginning of what changed: "12:03:4|5" says less than the whole time does.
    before = new[max(begin - _AROUND, 0) : place]
    texts = (before, old[place : place + _AROUND], new[place : place + _AROUND])
    before, was, now = (text.replace("\n", " ⏎ ") for text in texts)
    return Volatile(at, "system", kind, place, before, was, now)


def _classify_difference(old: str, new: str, place: int) -> tuple[Kind, int]:
    for kind, pattern in _PATTERNS:
        was, now = (_find_covering_match(text, place, pattern) for text in (old, new))
        if was and now and was.group() != now.group():
            return kind, min(was.start(), now.start())
    if place in (len(old), len(new)):
        return ("more" if place == len(old) else "less"), place
    if sorted(old.splitlines()) == sorted(new.splitlines()):
        return "order", place
    return "words", place


def _find_covering_match(text: str, place: int, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Find the match that a place lies in, or at the end of."""
    lo = max(place - _FAR, 0)
    for match in pattern.finditer(text, lo, place + _FAR):
        if match.start() <= place <= match.end():
            return match
    return None


def _count_common_prefix(old: str, new: str) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _compare_tools(at: int, old: tuple[Tool, ...], new: tuple[Tool, ...]) -> Volatile:
    was, now = _render_tools(old), _render_tools(new)
    place = _count_common_prefix(was, now)
    names = {tool.name for tool in old} ^ {tool.name for tool in new}
    if names:
        gone, come = sorted(names & {t.name for t in old}), sorted(names & {t.name for t in new})
        kind: Kind = "more" if not gone else "less" if not come else "words"
        return Volatile(at, "tools", kind, place, "", ", ".join(gone), ", ".join(come))
    if sorted(old, key=repr) == sorted(new, key=repr):
        order = [", ".join(tool.name for tool in tools) for tools in (old, new)]
        return Volatile(at, "tools", "order", place, "", order[0], order[1])
    if [_normalise_tool(tool) for tool in old] == [_normalise_tool(tool) for tool in new]:
        return replace(find_first_difference(was, now, at=at), where="tools", kind="order of keys")
    return replace(find_first_difference(was, now, at=at), where="tools")


def _render_tools(tools: Sequence[Tool]) -> str:
    return "\n".join(f"{tool.name}: {tool.description} {tool.schema}" for tool in tools)


def _normalise_tool(tool: Tool) -> object:
    """Return a tool in a form that ignores the order of its schema's keys."""
    try:
        return tool.name, tool.description, msgspec.json.decode(tool.schema)
    except msgspec.DecodeError:
        return tool


_THINKING = ("thinking", "reasoning", "reasoning_effort", "output_config", "effort")
"""Request parameters that set the level of thinking."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """The settings of a request, beside its messages."""

    model: str = ""
    instructed: Instructed = field(default_factory=Instructed)
    thinking: str = ""
    life: float = 0.0
    """The cache lifetime it asked for, in seconds; 0: not on record."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What happened between a call and the last billed call before it."""

    at: int
    state: RequestState
    before: RequestState
    turn: bool
    """Whether the user said something."""
    edited: str = ""
    """Which edit was made, if any."""
    wrote: int = 0
    """The estimated tokens that edits put in place of others."""
    restarted: str = ""
    """What the file says about another process."""
    at_once: bool = False
    """Whether two answers came with no message between: two processes were running."""


class ColdCause(NamedTuple):
    """The cause of a cold call."""

    cause: Cause
    sure: bool = True
    """Whether the record says so; else it is a guess from the counts."""
    detail: str = ""


def collect_call_contexts(recorded: Recorded) -> dict[int, CallContext]:
    """Return what preceded every call, by its place; unbilled calls leave no state."""
    billed = {call.at for call in recorded.calls if call.input or not recorded.counts}
    walk, found = _LogWalk(_is_imported(recorded.events)), dict[int, CallContext]()
    marks = sorted(recorded.marks, key=lambda mark: mark.at)
    for at, event in enumerate(recorded.events):
        while marks and marks[0].at <= at:
            walk.apply_mark(marks.pop(0))
        if isinstance(event, ModelSaid):
            found[at] = walk.record_call(at, billed=at in billed)
        else:
            walk.apply_event(event)
    return found


@dataclass(slots=True)
class _LogWalk:
    """The state of a walk through a log."""

    grows: bool
    """Whether the log is imported: its instructions come piece by piece."""
    now: RequestState = field(default_factory=RequestState)
    before: RequestState = field(default_factory=RequestState)
    chosen: str = ""
    """The level of thinking from the next turn on."""
    turn: bool = False
    spoken: bool = True
    """Whether the model got a message since its last answer."""
    edited: str = ""
    wrote: int = 0
    restarted: str = ""

    def apply_mark(self, mark: Mark) -> None:
        match mark.kind:
            case "restart":
                self.restarted = mark.detail
            case "life":
                self.now = replace(self.now, life=float(mark.detail))
            case "thinking":
                self.chosen = mark.detail
                self.now = replace(self.now, thinking=mark.detail)

    def record_call(self, at: int, *, billed: bool) -> CallContext:
        """Return what preceded an answer, and start over if it was billed."""
        made = CallContext(
            at,
            self.now,
            self.before,
            self.turn,
            edited=self.edited,
            wrote=self.wrote,
            restarted=self.restarted,
            at_once=not self.spoken,
        )
        self.spoken = False
        if billed:
            self.before, self.turn = self.now, False
            self.edited, self.wrote, self.restarted = "", 0, ""
        return made

    def apply_event(self, event: Event) -> None:
        """Apply any event but an answer."""
        match event:
            case Opened(model) | ModelSwitched(model):
                self.now = replace(self.now, model=model)
            case Instructed() if not event.aside:
                instructed = _choose_front(self.now.instructed, event, grows=self.grows)
                self.now = replace(self.now, instructed=instructed)
            case Checkpointed("thinking", level):
                self.chosen = level
            case Checkpointed("compaction"):
                self.edited = "a compaction"  # its summary is one of the call's messages
            case Asked():
                self.chosen = parse_thinking_parameters(event)
                self.now = replace(self.now, thinking=self.chosen)
            case UserSaid() | ToolReturned():
                self.spoken = True
                if by_user(event):
                    # Agents apply a new level with the user's next message: changed during a
                    # turn, it leaves that turn's requests as they were.
                    self.turn = True
                    self.now = replace(self.now, thinking=self.chosen)
            case Folded():
                self.edited, self.wrote = "a fold", self.wrote + count_tokens(event.text)
            case Masked() | Clipped() | Excluded() | Undone() | Rewound():
                self.edited = "an edit"
            case _:
                pass


def _choose_front(before: Instructed, now: Instructed, *, grows: bool) -> Instructed:
    """Return the front from here on; instructions that only grow are sent further on."""
    same = now.tools == before.tools and now.parts[: len(before.parts)] == before.parts
    return before if grows and before.parts and same else now


def parse_thinking_parameters(event: Asked) -> str:
    """Return a request's thinking parameters as JSON, or "none"."""
    try:
        given = msgspec.json.decode(event.parameters, type=dict[str, Any])
    except msgspec.DecodeError:
        return ""
    parameters = {key: given[key] for key in _THINKING if key in given}
    return msgspec.json.encode(parameters, order="sorted").decode() if parameters else "none"


def find_cold_cause(  # noqa: PLR0913 - everything that a cache depends on
    now: CallContext,
    call: RecordedCall,
    before: RecordedCall | None,
    *,
    gap: float,
    front: float,
    rules: CacheRules,
) -> ColdCause:
    """Find why a call missed the cache; a cause that explains all of it comes first.

    `front` is the size of its system prompt and tools, as far as it is known.
    """
    if before is None:
        return ColdCause("first")
    on_record = find_recorded_change(now)
    if on_record.cause:
        return on_record
    if now.edited:
        return ColdCause("edit", detail=now.edited)
    if gap > rules.seconds:
        return ColdCause("expired", detail=f"a cache lives {format_duration(rules.seconds)}")
    if (before.input or 0) < rules.least:
        return ColdCause("too short", detail=f"{before.input or 0:,} of {rules.least:,} tokens")
    return _guess_cold_cause(now, call, before, front=front, rules=rules)


def find_recorded_change(now: CallContext) -> ColdCause:
    """Find the change at the front that the record itself shows."""
    old, new = now.before, now.state
    if old.model and new.model != old.model:
        return ColdCause(
            "model", detail=f"{_strip_provider(old.model)} → {_strip_provider(new.model)}"
        )
    if new.instructed.tools != old.instructed.tools:
        return ColdCause("tools")
    if (new.instructed.parts, new.instructed.native) != (
        old.instructed.parts,
        old.instructed.native,
    ):
        return ColdCause("system")
    if now.restarted:
        return ColdCause("restart", detail=now.restarted)
    if old.thinking and new.thinking != old.thinking:
        return ColdCause("thinking", detail=_describe_level_change(old.thinking, new.thinking))
    return ColdCause("")


def _guess_cold_cause(
    now: CallContext, call: RecordedCall, before: RecordedCall, *, front: float, rules: CacheRules
) -> ColdCause:
    """Guess the cause from the counts where the record says nothing."""
    if now.at_once:
        return ColdCause("restart", sure=False, detail="two processes at once")
    if (call.input or 0) < (before.input or 0):
        if call.read >= rules.least:
            return ColdCause("edit", sure=False, detail="less was sent than before")
        return ColdCause("restart", sure=False, detail="an older state was sent")
    if call.read < rules.least:
        if now.turn:
            alone = front >= rules.least  # then it would have been found without the messages
            detail = "not even the front was found" if alone else "nothing was found"
            return ColdCause("system", sure=False, detail=detail)
        return ColdCause("missed", detail="nothing found, inside a turn")
    return ColdCause("missed", detail=f"{call.read:,} of {before.input or 0:,} tokens found")


def _describe_level_change(old: str, new: str) -> str:
    plain = all(len(one) <= 12 for one in (old, new))  # noqa: PLR2004 - a level, not parameters
    return f"{old} → {new}" if plain else "other parameters"


def _strip_provider(model: str) -> str:
    return model.rpartition("/")[2]

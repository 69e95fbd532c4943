"""Probe: whether a request held the names and lines that the answer then reused.

For every call of a replay, the names that look like code and the long lines of the recorded answer
that had occurred earlier are searched in the request that the policy would have sent. Exact text,
no judgement: a model may overlook a name that is there, or recall one that is not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid, by_user
from foldline.core.names import count_names
from foldline.core.parts import Call, Part, Thought, text_of
from foldline.core.tokens import count_tokens
from foldline.lab.replay import Replayed


@dataclass(slots=True)
class KeptShare:
    """How much of what was reused was still in the request."""

    used: int = 0
    there: int = 0

    def count_use(self, *, there: bool) -> None:
        """Count one thing that was reused."""
        self.used += 1
        self.there += there

    def __add__(self, other: "KeptShare") -> "KeptShare":
        return KeptShare(self.used + other.used, self.there + other.there)

    @property
    def percent(self) -> float:
        """The share in percent; 100 if nothing was reused."""
        return 100 * self.there / self.used if self.used else 100.0


@dataclass(slots=True)
class RetentionProbe:
    """How much a policy kept of what the agent reused."""

    names: KeptShare = field(default_factory=KeptShare)
    from_results: KeptShare = field(default_factory=KeptShare)
    """Names that had occurred only in tool results."""
    lines: KeptShare = field(default_factory=KeptShare)
    turn_lines: KeptShare = field(default_factory=KeptShare)
    """Lines that had occurred in the same user turn."""
    missing: dict[int, int] = field(default_factory=dict[int, int])
    """By call, the tokens of what was reused although it was out of sight."""


def measure_retention(replayed: Replayed) -> RetentionProbe:
    """Measure call by call what was still in the request."""
    found, past = RetentionProbe(), _Past()
    calls = {id(step.answer): at for at, step in enumerate(replayed.steps)}
    for event in replayed.recorded.events:
        if isinstance(event, ModelSaid) and (call := calls.get(id(event))) is not None:
            shown = "\n".join(replayed.steps[call].texts)
            if missing := _count_reuse(found, past, event, shown):
                found.missing[call] = count_tokens("\n".join(missing))
        past.add_event(event)
    return found


class _Past:
    """The names and lines that have occurred so far."""

    def __init__(self) -> None:
        self.names: dict[str, bool] = {}
        """Every name, and whether it occurred only in results."""
        self.lines: dict[str, int] = {}
        """Every long line, and the turn it last occurred in."""
        self.turn = 0

    def add_event(self, event: Event) -> None:
        if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
            return
        self.turn += by_user(event)
        words = words_of(event.parts)
        is_result = isinstance(event, ToolReturned)
        for name in count_names(words):
            self.names[name] = is_result and self.names.get(name, True)
        for line in lines_of(words):
            self.lines[line] = self.turn


def _count_reuse(found: RetentionProbe, past: _Past, answer: ModelSaid, shown: str) -> list[str]:
    """Count what an answer reuses; return what of it was out of sight."""
    words = words_of(answer.parts)
    missing: list[str] = []
    for name in count_names(words):
        if name in past.names:
            there = name in shown
            missing += [] if there else [name]
            found.names.count_use(there=there)
            if past.names[name]:
                found.from_results.count_use(there=there)
    for line in lines_of(words):
        if line in past.lines:
            there = line in shown
            missing += [] if there else [line]
            found.lines.count_use(there=there)
            if past.lines[line] == past.turn:
                found.turn_lines.count_use(there=there)
    return missing


LONG = 25  # characters of a line that is recognised again


def words_of(parts: Iterable[Part]) -> str:
    """Return text and call arguments; JSON strings as text, so that their lines are lines."""
    return "\n".join(
        _render_arguments(part.arguments) if isinstance(part, Call) else text_of((part,))
        for part in parts
        if not isinstance(part, Thought)
    )


def lines_of(words: str) -> set[str]:
    """Return the lines of a text that are long enough to be recognised again."""
    return {line for raw in words.splitlines() if len(line := raw.strip()) >= LONG}


def _render_arguments(arguments: str) -> str:
    try:
        return "\n".join(iterate_strings(msgspec.json.decode(arguments)))
    except msgspec.DecodeError:
        return arguments


def iterate_strings(value: Any) -> Iterator[str]:
    """Yield the texts, numbers and other values of some JSON, without the names of its fields."""
    match value:
        case str():
            yield value
        case dict():
            for one in cast("dict[str, Any]", value).values():
                yield from iterate_strings(one)
        case list():
            for one in cast("list[Any]", value):
                yield from iterate_strings(one)
        case _:
            yield str(value)

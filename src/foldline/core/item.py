"""One item: what a model is shown of one event.

Knows clips, stubs and speakers' tags. Refuses to know the item's neighbours.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from foldline.core.log import Folded, Instructed, ToolReturned, UserSaid
from foldline.core.parts import Gap, Media, Native, Part, Text, retold, text_of
from foldline.core.tokens import MESSAGE, count, count_parts

Role: TypeAlias = Literal["system", "user", "model", "result", "handoff"]
State: TypeAlias = Literal["whole", "clipped", "masked", "folded", "interrupted", "late"]
LOST = "[interrupted, outcome unknown: whether this call had an effect is not known]"
NAMED = "[instructions: "
"""How the first line of a piece of instructions begins that has a name, and ends with `]`."""
CUT_AGAIN = "[truncated: the provider took no more]"
"""What stands in a message that was cut once more, after a refusal."""
_TAGS = ("[human", "[notice", "[heartbeat", "[cron")


class Item(msgspec.Struct, frozen=True):
    """One thing in the model's sight; `seq` is the event it shows, `parts` what is shown of it."""

    seq: int
    role: Role
    parts: tuple[Part, ...]
    tokens: int
    state: State = "whole"
    call_id: str = ""
    ok: bool = True
    native: Native | None = None
    in_system: bool = False
    """Whether a handoff is said in the system's role."""


def make(  # noqa: PLR0913 - the fields of one item
    seq: int,
    role: Role,
    parts: tuple[Part, ...],
    *,
    state: State = "whole",
    call_id: str = "",
    ok: bool = True,
    native: Native | None = None,
) -> Item:
    """An item with its size; a provider's own JSON may say more than the parts do."""
    tokens = count_parts(parts)
    if native is not None and not any(isinstance(part, Media) for part in parts):
        tokens = max(tokens, count(native.body))
    return Item(seq, role, parts, tokens + MESSAGE, state, call_id, ok, native)


def handoff(seq: int, event: Folded) -> list[Item]:
    """What stands for a fold: its text, and the answer that a preset may want behind it."""
    said = make(seq, "handoff", (Text(event.text),), state="folded")
    found = [msgspec.structs.replace(said, in_system=event.system)]
    if event.reply:
        found.append(make(seq, "model", (Text(event.reply),), state="folded"))
    return found


def user(seq: int, event: UserSaid, stub: str | None) -> Item | None:
    """A message, with a tag that says who spoke where that is not simply the user."""
    parts, state = _shown(seq, event, stub)
    if not any(isinstance(part, Media) or text_of((part,)).strip() for part in parts):
        return None  # blank: no provider takes it
    speaker = tag(event, text_of(parts))
    # A message in its own JSON names its author there; who else speaks, only a tag can say.
    tagged = tag(msgspec.structs.replace(event, author=""), text_of(parts)) if event.native else ""
    native = event.native if state == "whole" and not tagged else None
    return make(
        seq,
        "user",
        _joined((Text(speaker), *parts)) if speaker else parts,
        state=state,
        native=native,
    )


def result(seq: int, event: ToolReturned, stub: str | None, *, call_id: str) -> Item:
    """A call's result, under the id that the call is shown with."""
    parts, state = _shown(seq, event, stub)
    native = event.native if state == "whole" and call_id == event.call_id else None
    return make(seq, "result", parts, state=state, call_id=call_id, ok=event.ok, native=native)


def late(seq: int, event: ToolReturned, stub: str | None) -> Item:
    """A result that no call waits for: told, never paired."""
    parts, _ = _shown(seq, event, stub)
    outcome = "ok" if event.ok else "error"
    head = Text(f"[notice]\nLate result of call {event.call_id!r} ({outcome}):")
    return make(seq, "user", _joined((head, *parts)), state="late")


def lost(seq: int, call_id: str) -> Item:
    """What stands for the result of a call that nobody answered."""
    return make(seq, "result", (Text(LOST),), state="interrupted", call_id=call_id, ok=False)


def note(seq: int, event: Instructed, told: tuple[Part, ...]) -> Item:
    """Instructions that changed in mid-talk, where `told` were the ones before."""
    if not event.parts:
        words = "[the earlier instructions no longer hold]"
    elif told and event.parts[: len(told)] == told:
        words = f"[further instructions, from here on]\n{retold(event.parts[len(told) :])}"
    else:
        words = _changes(event.parts, told) or (
            f"[new instructions, from here on]\n{retold(event.parts)}"
        )
    native = event.native[-1] if event.native else None
    return make(seq, "system", (Text(words),), native=native)


def _changes(parts: tuple[Part, ...], told: tuple[Part, ...]) -> str:
    """What differs from what was told, piece by piece; "" where such a piece has no name: R-60."""
    new = [part for part in parts if part not in told]
    gone = [part for part in told if part not in parts]
    names = [*map(_name, new), *map(_name, gone)]
    if not all(names) or not any(part in told for part in parts):
        return ""
    ends = sorted({*names} - {*map(_name, parts)})
    lines = [f"[no longer in force: {name}" for name in (one.removeprefix(NAMED) for one in ends)]
    if new:
        lines.append("[changed instructions, from here on, each instead of what had its name]")
    return "\n".join((*lines, retold(new))).rstrip("\n") or "[the instructions hold as they are]"


def _name(part: Part) -> str:
    """The line that names a piece of instructions, where it has one."""
    line = part.text.partition("\n")[0] if isinstance(part, Text) else ""
    return line if line.startswith(NAMED) and line.endswith("]") else ""


def tag(event: UserSaid, words: str) -> str:
    """Who speaks; words that only look like a tag get one too, so that nobody can pose as cron."""
    author = " ".join(event.author.replace("[", "(").replace("]", ")").split())
    if event.speaker == "human" and not author and not words.lstrip().startswith(_TAGS):
        return ""
    return f"[{event.speaker}: {author}]" if author else f"[{event.speaker}]"


def _shown(
    seq: int, event: UserSaid | ToolReturned, stub: str | None
) -> tuple[tuple[Part, ...], State]:
    if stub is not None and CUT_AGAIN in stub:
        media = (part for part in event.parts if isinstance(part, Media))
        return (Text(stub), *media), "clipped"
    if stub is not None:
        return (Text(stub),), "masked"
    if event.clip is None:
        return event.parts, "whole"
    outcome = "" if isinstance(event, UserSaid) else "; ok" if event.ok else "; error"
    where = f"[whole: log:{seq}{outcome}]"
    marked = (
        Text(f"{part.text}\n{where}") if isinstance(part, Gap) else part
        for part in event.clip.parts
    )
    return _joined(marked), "clipped"


def _joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Neighbouring texts as one, by line ends."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(last, Text) and isinstance(part, Text):
            joined[-1] = Text(f"{last.text}\n{part.text}")
        else:
            joined.append(part)
    return tuple(joined)

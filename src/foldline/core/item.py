"""One item: what a model is shown of one event, with its clip, stub or speaker's tag."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

from foldline.core.log import Folded, Instructed, ToolReturned, UserSaid
from foldline.core.names import format_way_back
from foldline.core.parts import Gap, Media, Native, Part, Text, render_parts, text_of
from foldline.core.token_bounds import count_cautiously, count_plain_tokens
from foldline.core.tokens import MESSAGE, count_parts, count_tokens

Role: TypeAlias = Literal["system", "user", "model", "result", "handoff"]
State: TypeAlias = Literal["whole", "clipped", "masked", "folded", "interrupted", "late"]
LOST = "[interrupted, outcome unknown: whether this call had an effect is not known]"
NAMED = "[instructions: "
"""How the first line of a named piece of instructions begins; it ends with `]`."""
CUT_AGAIN = "[truncated: the provider took no more]"
"""The marker in a message that was cut once more, after a refusal."""
CUT_TO_SHARE = "[truncated: the window holds no more of it]"
"""The marker in a message that was cut so that all unanswered ones fit together."""
_TAGS = ("[human", "[notice", "[heartbeat", "[cron")


class Item(msgspec.Struct, frozen=True):
    """One message in the model's sight: `seq` is its event, `parts` what is shown of it."""

    seq: int
    role: Role
    parts: tuple[Part, ...]
    tokens: int
    state: State = "whole"
    call_id: str = ""
    ok: bool = True
    native: Native | None = None
    in_system: bool = False
    """Whether a handoff is sent in the system's role."""


def make_item(  # noqa: PLR0913 - the fields of one item
    seq: int,
    role: Role,
    parts: tuple[Part, ...],
    *,
    state: State = "whole",
    call_id: str = "",
    ok: bool = True,
    native: Native | None = None,
) -> Item:
    """Make an item with its size; a provider's own JSON may say more than the parts do."""
    tokens = _count_shown(parts, native, count_tokens)
    return Item(seq, role, parts, tokens, state, call_id, ok, native)


def bound_item(item: Item, count: Callable[[str], int]) -> tuple[int, int]:
    """Bound an item's tokens from above: all of them, and those that are plain English or code.

    None are plain by an exact `count`: it says all there is to know.
    """
    plain = count_parts(item.parts, count_plain_tokens) if count is count_cautiously else 0
    return _count_shown(item.parts, item.native, count), plain


def _count_shown(
    parts: tuple[Part, ...], native: Native | None, count: Callable[[str], int]
) -> int:
    tokens = count_parts(parts, count)
    if native is not None and not any(isinstance(part, Media) for part in parts):
        tokens = max(tokens, count(native.body))
    return tokens + MESSAGE


def make_handoff_items(seq: int, event: Folded) -> list[Item]:
    """Make the items of a fold: its text, and the answer that a preset may put behind it."""
    handoff = make_item(seq, "handoff", (Text(event.text),), state="folded")
    made = [msgspec.structs.replace(handoff, in_system=event.system)]
    if event.reply:
        made.append(make_item(seq, "model", (Text(event.reply),), state="folded"))
    return made


def make_user_item(seq: int, event: UserSaid, stub: str | None) -> Item | None:
    """Make a message, with a tag for any speaker but the user; None if it is blank."""
    parts, state = _choose_shown_parts(seq, event, stub)
    if not any(isinstance(part, Media) or text_of((part,)).strip() for part in parts):
        return None  # blank: no provider takes it
    words = text_of(parts)
    native = event.native if state == "whole" else None
    if native and format_speaker_tag(msgspec.structs.replace(event, author=""), words):
        native = None  # the provider's JSON names an author itself, but no other speaker
    if tag := format_speaker_tag(event, words):
        parts = _join_texts((Text(tag), *parts))
    return make_item(seq, "user", parts, state=state, native=native)


def make_result_item(seq: int, event: ToolReturned, stub: str | None, *, call_id: str) -> Item:
    """Make a call's result, under the id that the call is shown with."""
    parts, state = _choose_shown_parts(seq, event, stub)
    native = event.native if state == "whole" and call_id == event.call_id else None
    return make_item(seq, "result", parts, state=state, call_id=call_id, ok=event.ok, native=native)


def make_late_item(seq: int, event: ToolReturned, stub: str | None) -> Item:
    """Make a notice of a result that no call waits for."""
    parts, _ = _choose_shown_parts(seq, event, stub)
    outcome = "ok" if event.ok else "error"
    head = Text(f"[notice]\nLate result of call {event.call_id!r} ({outcome}):")
    return make_item(seq, "user", _join_texts((head, *parts)), state="late")


def make_lost_item(seq: int, call_id: str) -> Item:
    """Make the result of an unanswered call."""
    return make_item(seq, "result", (Text(LOST),), state="interrupted", call_id=call_id, ok=False)


def make_instruction_item(seq: int, event: Instructed, before: tuple[Part, ...]) -> Item:
    """Make the item for instructions that changed mid-conversation; `before` had been in force."""
    if not event.parts:
        words = "[the earlier instructions no longer hold]"
    elif before and event.parts[: len(before)] == before:
        words = f"[further instructions, from here on]\n{render_parts(event.parts[len(before) :])}"
    else:
        words = _render_changes(event.parts, before) or (
            f"[new instructions, from here on]\n{render_parts(event.parts)}"
        )
    native = event.native[-1] if event.native else None
    return make_item(seq, "system", (Text(words),), native=native)


def _render_changes(parts: tuple[Part, ...], before: tuple[Part, ...]) -> str:
    """Render the pieces that changed; "" if one of them has no name or all are new."""
    new = [part for part in parts if part not in before]
    gone = [part for part in before if part not in parts]
    names = [*map(_name_of, new), *map(_name_of, gone)]
    if not all(names) or not any(part in before for part in parts):
        return ""
    ends = sorted({*names} - {*map(_name_of, parts)})
    lines = [f"[no longer in force: {name.removeprefix(NAMED)}" for name in ends]
    if new:
        lines.append("[changed instructions, from here on, each instead of what had its name]")
    words = "\n".join((*lines, render_parts(new))).rstrip("\n")
    return words or "[the instructions hold as they are]"


def _name_of(part: Part) -> str:
    """Return the line that names a piece of instructions, or ""."""
    line = part.text.partition("\n")[0] if isinstance(part, Text) else ""
    return line if line.startswith(NAMED) and line.endswith("]") else ""


def format_speaker_tag(event: UserSaid, words: str) -> str:
    """Format who speaks; words that look like a tag get one too, so no message can pose as cron."""
    author = " ".join(event.author.replace("[", "(").replace("]", ")").split())
    if event.speaker == "human" and not author and not words.lstrip().startswith(_TAGS):
        return ""
    return f"[{event.speaker}: {author}]" if author else f"[{event.speaker}]"


def _choose_shown_parts(
    seq: int, event: UserSaid | ToolReturned, stub: str | None
) -> tuple[tuple[Part, ...], State]:
    if stub is not None and (CUT_AGAIN in stub or CUT_TO_SHARE in stub):
        media = (part for part in event.parts if isinstance(part, Media))
        return (Text(stub), *media), "clipped"
    if stub is not None:
        return (Text(stub),), "masked"
    if event.clip is None:
        return event.parts, "whole"
    outcome = "" if isinstance(event, UserSaid) else "ok" if event.ok else "error"
    where = format_way_back(
        seq, outcome=outcome, again="read the rest in parts", recall=event.clip.recall
    )
    marked = (
        Text(f"{part.text}\n{where}") if isinstance(part, Gap) else part
        for part in event.clip.parts
    )
    return _join_texts(marked), "clipped"


def _join_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join neighbouring texts by line ends."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(last, Text) and isinstance(part, Text):
            joined[-1] = Text(f"{last.text}\n{part.text}")
        else:
            joined.append(part)
    return tuple(joined)

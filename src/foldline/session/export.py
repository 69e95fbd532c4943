"""A session written out for others to read: its log, a provider's messages, a text for people.

Knows the forms. Refuses to know where they go.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from foldline.core import log, rules
from foldline.core.log import Event, Logged, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Media, Text, Thought
from foldline.core.plan import after
from foldline.core.request import render
from foldline.core.spine import Spine
from foldline.core.view import View, load
from foldline.dialects import base
from foldline.errors import BadInput
from foldline.session.session import AsyncSession

Format: TypeAlias = Literal["jsonl", "openai", "anthropic", "markdown"]


def exported(seen: AsyncSession, events: list[Logged], form: Format, *, sight: bool) -> bytes:
    """A session's events in a form; with `sight` as the model sees it now, edits and all."""
    if sight and form in ("jsonl", "markdown"):
        raise BadInput(f"as the model sees it goes with openai or anthropic, not {form}")
    if form == "jsonl":
        return b"".join(log.encode(event) + b"\n" for _, event in events)
    if form == "markdown":
        return _markdown(seen.live.name.session, events).encode()
    view = seen.live.view if sight else _whole(events)
    closed = after(view, rules.closing(view))
    dialect = base.named(base.OPENAI.name if form == "openai" else "anthropic")
    bounds = dialect.parameters({}, most=seen.live.facts.limits.reserve)
    fields = msgspec.json.decode(msgspec.json.encode(bounds), type=dict[str, msgspec.Raw])
    return msgspec.json.format(dialect.encode(render(closed), fields), indent=2) + b"\n"


def _whole(events: list[Logged]) -> View:
    """The conversation as if nothing had ever been edited or clipped."""
    whole: dict[int, Event] = {
        seq: msgspec.structs.replace(event, clip=None)
        if isinstance(event, UserSaid | ToolReturned) and event.clip is not None
        else event
        for seq, event in events
    }
    return load(Spine(), whole, head=events[-1].seq)


def _markdown(name: str, events: list[Logged]) -> str:
    lines = [f"# {name}", ""]
    turns = 0
    for seq, event in events:
        match event:
            case UserSaid(parts):
                turns += log.by_user(event)
                who = f"Turn {turns}" if log.by_user(event) else event.speaker.capitalize()
                lines += [f"## {who} (log:{seq})", "", *_blocks(parts)]
            case ModelSaid(parts):
                lines += [f"### Model (log:{seq})", "", *_blocks(parts)]
            case ToolReturned(call_id, parts):
                lines += [f"### Result of {call_id} (log:{seq})", "", *_fenced(_plain(parts))]
            case log.Folded():
                span = event.change.span
                lines += [f"> folded log:{span.lo}-{span.hi} at log:{seq}", ""]
            case _:
                pass
    return "\n".join(lines)


def _blocks(parts: tuple[Any, ...]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        match part:
            case Call(_, name, arguments):
                lines += [f"Calls `{name}`:", "", *_fenced(arguments)]
            case Thought(text):
                lines += [*(f"> {line}" for line in text.split("\n")), ""]
            case _:
                lines += [_plain((part,)), ""]
    return lines


def _plain(parts: tuple[Any, ...]) -> str:
    said: list[str] = []
    for part in parts:
        match part:
            case Text(text):
                said.append(text)
            case Media(form):
                said.append(f"[{form}]")
            case _:
                said.append(getattr(part, "text", ""))
    return "\n".join(said)


def _fenced(text: str) -> list[str]:
    """A block of code, behind more marks than the text has in a row."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence, ""]

"""Exports a session: its log as JSONL, a provider's messages, or Markdown for people."""

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


def export_session(seen: AsyncSession, events: list[Logged], form: Format, *, sight: bool) -> bytes:
    """Export a session's events; with `sight` as the model sees them now, with edits."""
    if sight and form in ("jsonl", "markdown"):
        raise BadInput(f"as the model sees it goes with openai or anthropic, not {form}")
    if form == "jsonl":
        return b"".join(log.encode_event(event) + b"\n" for _, event in events)
    if form == "markdown":
        return _render_markdown(seen.live.name.session, events).encode()
    view = seen.live.view if sight else _build_unedited_view(events)
    closed = after(view, rules.make_closing_events(view))
    dialect = base.resolve_named_dialect("openai-chat" if form == "openai" else form)
    bounds = dialect.build_parameters({}, most=seen.live.facts.limits.reserve)
    fields = msgspec.json.decode(msgspec.json.encode(bounds), type=dict[str, msgspec.Raw])
    return msgspec.json.format(dialect.encode_request(render(closed), fields), indent=2) + b"\n"


def _build_unedited_view(events: list[Logged]) -> View:
    """Build the view as if nothing had ever been edited or clipped."""
    whole: dict[int, Event] = {
        seq: msgspec.structs.replace(event, clip=None)
        if isinstance(event, UserSaid | ToolReturned) and event.clip is not None
        else event
        for seq, event in events
    }
    return load(Spine(), whole, head=events[-1].seq)


def _render_markdown(name: str, events: list[Logged]) -> str:
    lines = [f"# {name}", ""]
    turns = 0
    for seq, event in events:
        match event:
            case UserSaid(parts):
                turns += log.begins_turn(event)
                who = event.speaker.capitalize()
                if log.begins_turn(event):
                    who = f"Turn {turns}" + ("" if log.by_user(event) else f" by {event.speaker}")
                lines += [f"## {who} (log:{seq})", "", *_render_blocks(parts)]
            case ModelSaid(parts):
                lines += [f"### Model (log:{seq})", "", *_render_blocks(parts)]
            case ToolReturned(call_id, parts):
                lines += [
                    f"### Result of {call_id} (log:{seq})",
                    "",
                    *_render_code_block(_render_plain(parts)),
                ]
            case log.Folded():
                span = event.change.span
                lines += [f"> folded log:{span.lo}-{span.hi} at log:{seq}", ""]
            case _:
                pass
    return "\n".join(lines)


def _render_blocks(parts: tuple[Any, ...]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        match part:
            case Call(_, name, arguments):
                lines += [f"Calls `{name}`:", "", *_render_code_block(arguments)]
            case Thought(text):
                lines += [*(f"> {line}" for line in text.split("\n")), ""]
            case _:
                lines += [_render_plain((part,)), ""]
    return lines


def _render_plain(parts: tuple[Any, ...]) -> str:
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


def _render_code_block(text: str) -> list[str]:
    """Render a code block, fenced with more backticks than the text has in a row."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence, ""]

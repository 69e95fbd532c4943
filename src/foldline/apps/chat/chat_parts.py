"""The parts of a chat: the agent with what was found for it, and the face that a person sees.

`cli.build_agent` makes the agent.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from foldline.agent.approval import Approvals
from foldline.agent.checkpoints import Checkpoints
from foldline.agent.instructions import Instructions
from foldline.agent.loop import Agent
from foldline.apps.cli.output import format_age, format_size, measure_terminal, truncate_line
from foldline.core.log import ModelSaid, Stop
from foldline.core.parts import render_parts
from foldline.core.view import View
from foldline.dialects.json_slices import dict_of, list_of
from foldline.draw.wording import (
    clean_line,
    measure_width,
    shorten_model_name,
    truncate_to_width,
)
from foldline.models.port import Json, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSeat:
    """What a chat works with."""

    agent: Agent
    models: Callable[[str], Model]
    """Makes the client of another model, for `/model`."""
    instructions: Instructions | None = None
    approvals: Approvals | None = None
    checkpoints: Checkpoints | None = None
    list_models: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Asks the session's server which models it has."""
    explain_key: Callable[[], str] | None = None
    """Says where to correct the key that the session's server gets."""
    notes: Sequence[str] = ()
    """Remarks to show before the first line."""


class RecentSession(NamedTuple):
    """A session that can be gone on with."""

    name: str
    title: str
    """What was said first."""
    changed: float
    size: int
    model: str


def render_recent_sessions(recent: Sequence[RecentSession]) -> list[str]:
    """Render a numbered list: name, title, age, size, model."""
    lines: list[str] = []
    for at, one in enumerate(recent, 1):
        tail = f" · {format_age(one.changed)} · {format_size(one.size)}"
        tail += f" · {shorten_model_name(one.model)}"
        room = max(measure_terminal() - measure_width(clean_line(tail)) - 4, 10)
        head = truncate_to_width(clean_line(f"{one.name}: {one.title}"), room)
        lines.append(truncate_line(f"  {at} ", f"{head}{tail}"))
    return lines


def read_answer_after(view: View, place: int) -> str:
    """Return the words of the newest answer after a place of the log; "" if there is none."""
    newest = next(view.iterate_newest(ModelSaid), None)
    return render_parts(newest[1].parts) if newest is not None and newest[0] > place else ""


def describe_cut(what: str, handle: str, *, recall: bool) -> str:
    """Say that something was too large for the window, and where all of it is."""
    more = ", and the model can recall it" if recall else "; the model has no tool to recall it"
    return f"{what} was too large for the window and is cut; {handle} has all of it{more}"


def describe_stop(stop: Stop | None, answer: Json) -> str:
    """Say why an answer is not whole; "" if it is."""
    if stop == "length":
        return "the answer ended at its length limit; --reserve raises it"
    if stop == "refused" and _is_filtered(answer):
        return "the provider's content filter ended the answer"
    return "the model refused to answer" if stop == "refused" else ""


def _is_filtered(answer: Json) -> bool:
    """Whether the provider's filter ended a refused answer, not the model itself."""
    choice = dict_of(next(iter(list_of(answer.get("choices"))), None))
    reasons = (choice.get("finish_reason"), dict_of(answer.get("incomplete_details")).get("reason"))
    return "content_filter" in reasons or "candidates" in answer or "promptFeedback" in answer


class ChatFace(Protocol):
    """Where a person writes and reads: `InputLine` in a capable terminal, else `Plain`."""

    bar: Callable[[int], list[tuple[str, str]]]
    words: "Callable[[str], Iterable[tuple[str, str]]] | None"
    stop: Callable[[], object] | None
    expand: Callable[[], object] | None
    """Shows what was folded away last."""
    expands: str
    """The key or the command that does so."""
    stops_at_question: bool
    """Whether Ctrl-C at a question also stops the work under way."""

    async def said(self) -> str | None:
        """Return what the person enters next, or None if they leave."""
        ...

    async def ask(self, question: str, *, secret: bool = False) -> str | None:
        """Return the answer to a question, or None."""
        ...

    def put_back(self, text: str) -> None:
        """Keep a text that answered no question for when the question is over."""
        ...

    def above(self, text: str) -> None:
        """Write finished text."""
        ...

    def live(self, text: "str | Callable[[], str]") -> None:
        """Show unfinished text."""
        ...

    def refresh(self) -> None:
        """Redraw what changes by itself."""
        ...

    def renew_completions(self) -> None:
        """Complete again where nothing was chosen yet."""
        ...

    def leave(self) -> None:
        """End as if the person had left."""
        ...

    @property
    def columns(self) -> int:
        """The width."""
        ...

    @property
    def rows(self) -> int:
        """The height."""
        ...

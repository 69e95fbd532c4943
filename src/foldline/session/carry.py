"""Carry on from an earlier session: its record, or chosen parts of it, opens or enters another.

    summary   the user's words, the narrative, decisions, tasks, what the model said
    pins      the pinned messages, word for word
    files     the files that were read, written and removed, with their last states
    facts     commands, tests, errors, links and names

The record is made without a model, like a fold's handoff, and is added as a notice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from foldline.core import fold_selection
from foldline.core.budget import measure_budget
from foldline.core.edits import fold
from foldline.core.fold_selection import Need
from foldline.core.log import Event, SettingsChanged, UserSaid
from foldline.core.parts import Fact, Text
from foldline.core.plan import Facts
from foldline.core.tokens import count_tokens
from foldline.errors import BadInput, OtherHost
from foldline.session import planning
from foldline.session.host import host_settings, record_host, recorded_host
from foldline.session.log_handle import Live
from foldline.stores.base import Name, Store

_BLOCKS: dict[str, tuple[str, ...]] = {
    "summary": ("words", "narrative", "next", "todo", "decision", "said"),
    "pins": ("pins",),
    "files": ("file", "where"),
    "facts": ("test", "call", "error", "command", "link", "name", "found"),
}
PARTS = tuple(_BLOCKS)
"""The parts that can be carried on."""
_PART_OF = {block: part for part, blocks in _BLOCKS.items() for block in blocks}


@dataclass(frozen=True, slots=True)
class Carried:
    """What is carried on from a session: the message that says it, and its size by part."""

    session: str
    parts: tuple[str, ...]
    """The parts that were chosen."""
    tokens: dict[str, int]
    """The tokens of each chosen part."""
    message: UserSaid

    @property
    def total(self) -> int:
        """The tokens of the whole message."""
        return sum(count_tokens(one.text) for one in self.message.parts if isinstance(one, Text))

    def __str__(self) -> str:
        sizes = ", ".join(f"{part} {tokens:,}" for part, tokens in self.tokens.items())
        return f"{self.total:,} tokens of session {self.session!r}: {sizes}"


def read_parts(chosen_parts: object) -> tuple[str, ...]:
    """Read the chosen parts, a list or words with commas between them; None chooses all."""
    if chosen_parts is None:
        return PARTS
    words = (
        chosen_parts.replace(",", " ").split() if isinstance(chosen_parts, str) else chosen_parts
    )
    if not isinstance(words, list | tuple | set | frozenset):
        raise BadInput(f"parts={chosen_parts!r} is no list; give some of: {', '.join(PARTS)}")
    chosen = cast("Sequence[object]", words)
    if unknown := [one for one in chosen if one not in PARTS]:
        raise BadInput(f"there is no part {unknown[0]!r}; give some of: {', '.join(PARTS)}")
    if not chosen:
        raise BadInput(f"no part is named; give some of: {', '.join(PARTS)}, or leave it out")
    return tuple(part for part in PARTS if part in chosen)


def nothing_to_carry(name: Name) -> BadInput:
    """Make the error for a session to carry on from that is missing or empty."""
    return BadInput(f"there is nothing in a session {name.session!r} to carry on from")


async def build_carried(
    store: Store, name: Name, *, facts: Facts, parts: Sequence[str] = PARTS
) -> Carried:
    """Build the message that carries a session on; raises `BadInput` if there is nothing to."""
    live = await Live.open(store, name, facts=facts)
    if not live.view.items:
        raise nothing_to_carry(name)
    budget = measure_budget(live.view, facts.limits)
    draft = fold_selection.build_whole_draft(live.view, budget, facts)
    while isinstance(draft, Need):
        facts = await planning.fetch_needed_events(live, facts, draft)
        draft = fold_selection.build_whole_draft(live.view, budget, facts)
    cap = budget.convert_to_estimate(budget.room * facts.policy.handoff)
    material = _choose_material(draft.material, parts)
    handoff = fold.build_handoff(draft.span.range, material, cap=cap)
    tokens = dict.fromkeys(parts, 0)
    for block, text in handoff.blocks:
        if _PART_OF[block] in tokens and block != "next":
            tokens[_PART_OF[block]] += count_tokens(text)
    if not any(tokens.values()):
        raise BadInput(
            f"session {name.session!r} has none of these to carry on: {', '.join(parts)}"
        )
    what = "it" if len(parts) == len(PARTS) else f"its {', '.join(parts)}"
    head = (
        f"[carried on from session {name.session!r}: a record of {what}. "
        "Its handles are that session's, not this one's]"
    )
    message = UserSaid((Text(f"{head}\n{handoff.text}"),), speaker="notice")
    return Carried(name.session, tuple(parts), tokens, message)


def _choose_material(whole: fold.Material, parts: Sequence[str]) -> fold.Material:
    """Choose what belongs to some parts; a pinned message is among the user's words, too."""
    words, pins = whole.words, whole.pins
    if "pins" not in parts:
        said = (one for one in pins if isinstance(one.event, UserSaid))
        words, pins = sorted((*words, *said), key=lambda one: one.seq), ()
    tells = "summary" in parts
    return replace(
        whole,
        words=words if tells else (),
        pins=pins,
        lines=whole.lines if tells else (),
        focus=whole.focus if tells else "",
        facts=_choose_facts(whole.facts, parts),
        tasks=whole.tasks if tells else (),
        recall="",  # its handles are the earlier session's: no tool here gives them back
    )


def _choose_facts(facts: Sequence[Fact], parts: Sequence[str]) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if _PART_OF[fact.kind] in parts)


async def carry_into(live: Live, session: str, *, parts: Sequence[str]) -> Carried:
    """Add the record of another session of the same tenant to an open one, as a notice.

    Words that were sent to one host go to no other: raises `OtherHost` if the two differ.
    """
    carried, events = await prepare_carry(live, session, parts=parts)
    await live.receive_events(*events, carried.message)
    return carried


async def prepare_carry(
    live: Live, session: str, *, parts: Sequence[str]
) -> tuple[Carried, list[Event]]:
    """Build what would be carried into an open session, and the events that go before it."""
    if session == live.name.session:
        raise BadInput(f"session {session!r} cannot carry on from itself; name another")
    name = live.name._replace(session=session)
    earlier = await Live.open(live.store, name, facts=live.facts)
    here, there = recorded_host(live.view.settings), recorded_host(earlier.view.settings)
    events: list[Event] = []
    if there is not None:
        if here is None:
            settings = {**live.view.settings, **host_settings(earlier.view.settings)}
            events.append(SettingsChanged(settings))
        elif record_host(live.view.settings, there) is not None:
            raise OtherHost(
                f"session {session!r} is asked at {there.base_url}, and this one at "
                f"{here.base_url}; begin another session to carry it on"
            )
    return await build_carried(live.store, name, facts=live.facts, parts=parts), events

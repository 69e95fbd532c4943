"""The laws as functions over a conversation: each raises AssertionError where it is broken."""

import asyncio
import hashlib
import re

import msgspec

from foldline.core import recall, rules
from foldline.core import spine as spines
from foldline.core.item import Item
from foldline.core.log import (
    Asked,
    Edit,
    Excluded,
    Instructed,
    Logged,
    ModelSaid,
    ModelSwitched,
    Opened,
    Pinned,
    ToolReturned,
    Unpinned,
    UserSaid,
)
from foldline.core.parts import Part, Thought, retold, spoken, text_of
from foldline.core.request import render
from foldline.core.spine import Range
from foldline.core.view import View, load, spine_at
from foldline.dialects import anthropic
from foldline.dialects import openai_chat as wire
from foldline.dialects.base import named
from foldline.session.planning import say_to_go_on
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore
from foldline.testing.logs import Conversation, Sent
from foldline.testing.oracle import judge_program
from foldline.testing.programs import ProgramResult

HANDLE = re.compile(r"log:(\d+)(?:-(\d+))?")
NAME = Name("tenant", "session")


def nothing_lost(talk: Conversation) -> None:
    """Law 3: what the model does not see whole has a handle in its sight, and comes back by it."""
    items = (*talk.view.items, *talk.view.waiting)
    whole = {item.seq: text_of(item.parts) for item in items if item.state in ("whole", "late")}
    covered: set[int] = set()
    for item in items:
        for lo, hi in HANDLE.findall(text_of(item.parts)):
            covered.update(range(int(lo), int(hi or lo) + 1))
    for seq, event in talk.log:
        if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
            continue
        # A signed thought that an edit made invalid is left out: by the API it still comes back.
        words = text_of(part for part in event.parts if not isinstance(part, Thought))
        again = recall.show([Logged(seq, event)])
        assert words in again, f"recall of {seq} is not the original"
        if words.strip() and words not in whole.get(seq, ""):
            assert seq in covered, f"event {seq} is not in sight and has no handle"


def valid(talk: Conversation) -> None:
    """Law 2: whatever was edited, the dialect's own rules find nothing wrong with the request."""
    view = talk.view.copy()
    for event in rules.closing(view):
        view.append(view.head + 1, event)
    request = render(view)
    body = msgspec.json.decode(wire.encode(request, {}))
    found = wire.faults(body["messages"], tools=body.get("tools", ()))
    nothing = not request.items and not retold(request.system).strip()
    silent = ["empty: there are no messages"] * nothing
    assert found == silent, found
    for event in say_to_go_on(view, {}, dialect=named(anthropic.DIALECT)):
        view.append(view.head + 1, event)
    request = render(view)
    if anthropic.is_silent(request):
        return
    body = msgspec.json.decode(anthropic.encode(request, {}))
    fixed = {key: body[key] for key in ("tools", "system") if key in body}
    assert not (found := anthropic.faults(body["messages"], **fixed)), found


def flat(talk: Conversation) -> None:
    """Law 6: a view and a store's tail hold what is live and what stands, never the rest."""
    view, spine = talk.view, talk.view.spine
    ranges = (one for one in spine.segments if isinstance(one, Range))
    live = {seq for one in ranges for seq in range(one.lo, min(one.hi or view.head, view.head) + 1)}
    wanted = live | {*spines.needs(spine)}
    # The edit that laid the view is held too, though it is shown through the spine only.
    assert {*view.held} <= wanted | {view.head}, "the view holds more than is live"
    assert len(asyncio.run(_tail(talk))) <= len(wanted), "a tail reads more than is live"


def words_survive(talk: Conversation) -> None:
    """Law 8: what folds quote of the user is verbatim; cut words have their handle behind them."""
    for fold in talk.view.folds().values():
        for seq in (*fold.verbatim, *fold.clipped):
            event = talk.events[seq]
            assert isinstance(event, UserSaid | ModelSaid | ToolReturned)
            words = spoken(event.parts)
            if seq in fold.verbatim:
                plain = "\n".join(words.splitlines()) in fold.text.replace("\n> ", "\n")
                assert words in fold.text or plain, f"{seq} is not quoted as it was said"
            else:
                quoted = fold.text.split(f"log:{seq}: ", 1)[1].split(f"\n[cut; whole: log:{seq}]")
                head = quoted[0].rsplit("] ", 1)[-1] if quoted[0].startswith("[") else quoted[0]
                assert len(quoted) > 1, f"{seq} is cut without a handle"
                assert words.startswith(head), f"{seq} is rewritten"


def still(talk: Conversation) -> None:
    """Law 4: with nothing edited or switched between, a request begins with the one before."""
    for one, two in zip(talk.sent, talk.sent[1:], strict=False):
        if one.changes == two.changes:
            for before, after in zip(one.blocks, two.blocks, strict=True):
                assert after[: len(before)] == before, f"{two.asked} rewrites {one.asked}"


def same(talk: Conversation) -> None:
    """Law 5: every request sent is rendered again, in turns from the log and a store's tail."""
    for sent in talk.sent[::2]:
        events = dict(talk.log[: sent.at + 1])
        view = load(spine_at(talk.log, sent.at), events, head=sent.at)
        assert _digest(view) == sent.sha256, f"the request at {sent.asked} differs"
    for sent, view in asyncio.run(_from_store(talk)):
        assert _digest(view) == sent.sha256, f"the tail of the request at {sent.asked} differs"


def one_way(talk: Conversation) -> None:
    """However a view came to be, it equals the one loaded from its spine."""
    spine = spine_at(talk.log, talk.view.head)
    fresh = load(spine, dict(talk.log), head=len(talk.events) - 1)
    for name, value in vars(fresh).items():
        assert getattr(talk.view, name) == value, f"{name} differs from a fresh load"
    assert fresh.tokens == sum(item.tokens for item in fresh.items), "the sum of tokens is off"


def in_force(talk: Conversation) -> None:
    """Model, instructions, tools and pins are the newest in the log, whatever was folded."""
    model, newest, pins = "", Instructed(), set[int]()
    for event in talk.events:
        match event:
            case Opened() | ModelSwitched():
                model = event.model
            case Instructed():
                newest = event
            case Pinned(seq):
                pins.add(seq)
            case Unpinned(seq):
                pins.discard(seq)
            case _:
                pass
    view = talk.view
    assert (view.model, view.newest, {*view.pins}) == (model, newest, pins)
    told = [view.instructions.parts, *_notes(view)]
    sight = "\n".join(text_of(parts) for parts in told)
    for part in newest.parts:
        assert text_of((part,)) in sight, "the newest instructions are not in sight"
    if not newest.parts:
        assert not told[-1] or "no longer hold" in sight, "withdrawn instructions still stand"
    if newest.replaces:
        assert view.instructions == newest, "instructions that were replaced still stand"


def sendable(talk: Conversation) -> None:
    """Closing what is open makes any view sendable, however broken its log."""
    view = talk.view.copy()
    for event in rules.closing(view):
        view.append(view.head + 1, event)
    rules.check(view)


def not_taken_for_answered(talk: Conversation) -> None:
    """A message that nobody has been shown stands behind every answer that did not see it."""
    items = list(enumerate((*talk.view.items, *talk.view.waiting)))
    answers = {item.seq: place for place, item in items if item.role == "model"}
    messages = {item.seq: place for place, item in items if item.role == "user"}
    seen = -1
    for seq, event in talk.log:
        match event:
            case Asked(at):
                seen = max(seen, at)
            case ModelSaid():
                seen = max(seen, seq if event.saw is None else event.saw)
                for late in range(seen + 1, seq) if seq in answers else ():
                    behind = messages.get(late, answers[seq] + 1) > answers[seq]
                    assert behind, f"{late} stands before the answer {seq}, which did not see it"
            case _:
                pass


def signed(talk: Conversation) -> None:
    """R-24: a signed thought is as it came, and behind the very words it came behind, or absent."""
    before: list[Item] = []
    for item in talk.view.items:
        event = talk.events[item.seq]
        shown = [part for part in item.parts if isinstance(part, Thought) and part.signature]
        if item.role == "model" and item.state != "folded" and shown:
            assert isinstance(event, ModelSaid)
            assert all(part in event.parts for part in shown), f"{item.seq} altered a thought"
            at = item.seq - 1
            then = load(spine_at(talk.log, at), dict(talk.log[: at + 1]), head=at)
            # The answer itself closed what was open: those stubs came with it.
            ahead = [one for one in before if one.seq != item.seq]
            places = {one.seq for one in ahead}
            same = [one for one in (*then.items, *then.waiting) if one.seq in places]
            assert same == ahead, f"the thought at {item.seq} stands behind other words"
        before.append(item)


def kept_out(talk: Conversation) -> None:
    """What a person excluded is in nobody's sight: not as it was, quoted, told or named."""
    view = talk.view
    masks = (view.held[at] for at in view.spine.masks)
    hidden = {stub.seq for mask in masks if isinstance(mask, Excluded) for stub in mask.stubs}
    hidden |= {seq for fold in view.folds().values() for seq in fold.excluded}
    sight = "\n".join(text_of(item.parts) for item in (*view.items, *view.waiting))
    for seq in hidden:
        event = talk.events[seq]
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            words = " ".join(spoken(event.parts).split()[:3])
            assert not words or f"{words} " not in f"{sight} ", f"{seq} was excluded, is in sight"


def undo_restores(talk: Conversation) -> None:
    """Taking the newest edit back gives the request that stood without it, byte for byte."""
    edits = [(seq, event) for seq, event in talk.log if isinstance(event, Edit)]
    if not edits:
        return
    seq, edit = edits[-1]
    before = spine_at(talk.log, seq - 1)
    without = load(before, dict(talk.log), head=talk.view.head)
    if talk.undo(seq):
        assert _digest(talk.view) == _digest(without), f"undoing {seq} does not restore"
        redo = len(talk.events) - 1
        with_edit = load(edit.spine, dict(talk.log), head=redo)
        if not talk.undo(redo):  # refused where it would bring excluded words into sight again
            assert any(isinstance(event, Excluded) for event in talk.events), f"{seq}: no redo"
            return
        assert _digest(talk.view) == _digest(with_edit), f"redoing {seq} does not restore"


def transparent(result: ProgramResult) -> None:
    """Law 9: a proxied request is the client's own, with patches that are reported."""
    found = judge_program(result).violations
    lines = "\n".join(str(one) for one in found[:5])
    assert not found, f"{len(found)} violations of law 9, played by {result.program}:\n{lines}"


def _notes(view: View) -> list[tuple[Part, ...]]:
    return [item.parts for item in (*view.items, *view.waiting) if item.role == "system"]


def _digest(view: View) -> str:
    return hashlib.sha256(wire.encode(render(view), {})).hexdigest()


async def _tail(talk: Conversation) -> list[Logged]:
    store = SqliteStore(":memory:")
    await event_log.append(store, NAME, talk.events, after=-1)
    tail = await event_log.tail(store, NAME)
    await store.close()
    return list(tail.events)


async def _from_store(talk: Conversation) -> list[tuple[Sent, View]]:
    store = SqliteStore(":memory:")
    await event_log.append(store, NAME, talk.events, after=-1)
    found: list[tuple[Sent, View]] = []
    for sent in talk.sent[1::2]:
        tail = await event_log.tail(store, NAME, at=sent.at)
        found.append((sent, tail.view()))
    await store.close()
    return found


ALL = (
    valid,
    nothing_lost,
    still,
    same,
    one_way,
    in_force,
    sendable,
    not_taken_for_answered,
    signed,
    flat,
    words_survive,
    kept_out,
    undo_restores,
)
"""Every law, to be asked in this order: the last one goes on with the conversation."""

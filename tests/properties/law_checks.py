"""The laws as functions over a conversation: each raises AssertionError where it is broken."""

import asyncio
import hashlib
import re
from collections import defaultdict

import msgspec
from client_programs import ProgramResult
from spine_at import spine_at
from transparency_oracle import judge_program

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
from foldline.core.parts import Part, Thought, render_parts, spoken_text_of, text_of
from foldline.core.request import render
from foldline.core.spine import Range
from foldline.core.view import View, load
from foldline.dialects.base import Dialect, get_dialect
from foldline.dialects.openai_chat.dialect import DIALECT as CHAT  # which writes no thoughts
from foldline.session.planning import say_to_go_on
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore
from foldline.testing.logs import Conversation, Sent

HANDLE = re.compile(r"log:(\d+)(?:-(\d+))?")
NAME = Name("tenant", "session")
RESPONSES = get_dialect("openai-responses")


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
        # Part by part: a thought may stand between words.
        words = [text_of((part,)) for part in event.parts if not isinstance(part, Thought)]
        again = recall.render_recall([Logged(seq, event)])
        assert all(one in again for one in words), f"recall of {seq} is not the original"
        if any(one.strip() and one not in whole.get(seq, "") for one in words):
            assert seq in covered, f"event {seq} is not in sight and has no handle"


def valid(talk: Conversation) -> None:
    """Law 2: whatever was edited, no dialect's own rules find anything wrong with the request."""
    for dialect in talk.dialects:
        assert not (found := list_faults(talk, dialect)), f"{dialect.name}: {found}"


def list_faults(talk: Conversation, dialect: Dialect) -> list[str]:
    """What a dialect's own rules find in what would be sent now; nothing if that is nothing."""
    view = talk.view.copy()
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    for event in say_to_go_on(view, {}, dialect=dialect):
        view.append(view.head + 1, event)
    request = render(view)
    if dialect.is_silent(request):
        return []
    return dialect.list_faults(msgspec.json.decode(dialect.encode_request(request, {})))


def flat(talk: Conversation) -> None:
    """Law 6: a view and a store's tail hold what is live and what stands, never the rest."""
    view, spine = talk.view, talk.view.spine
    ranges = (one for one in spine.segments if isinstance(one, Range))
    live = {seq for one in ranges for seq in range(one.lo, min(one.hi or view.head, view.head) + 1)}
    wanted = live | {*spines.list_needed_events(spine)}
    # The edit that laid the view is held too, though it is shown through the spine only.
    assert {*view.held} <= wanted | {view.head}, "the view holds more than is live"
    assert len(asyncio.run(_tail(talk))) <= len(wanted), "a tail reads more than is live"


def words_survive(talk: Conversation) -> None:
    """Law 8: what folds quote of the user is verbatim; `…` stands where words are left out."""
    for fold in talk.view.list_folds().values():
        for seq in (*fold.verbatim, *fold.clipped):
            event = talk.events[seq]
            assert isinstance(event, UserSaid | ModelSaid | ToolReturned)
            words = spoken_text_of(event.parts)
            if seq in fold.verbatim:
                plain = "\n".join(words.splitlines()) in fold.text.replace("\n> ", "\n")
                assert words in fold.text or plain, f"{seq} is not quoted as it was said"
            else:
                quoted = re.split(r"\n(?=log:|# )", fold.text.split(f"\nlog:{seq}: ", 1)[1])[0]
                pieces = re.sub(r"^\[[^\]]*\] ", "", quoted).replace("\n> ", "\n").split("…")
                assert len(pieces) > 1, f"{seq} is cut without a sign"
                shown, at = render_parts(event.parts), 0  # media are named
                for piece in pieces:
                    at = shown.find(piece.strip(), at)
                    assert at >= 0, f"{seq} is rewritten"


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
        assert _digest(view, talk.dialect) == sent.sha256, f"the request at {sent.asked} differs"
    for sent, view in asyncio.run(_from_store(talk)):
        assert _digest(view, talk.dialect) == sent.sha256, (
            f"the tail of the request at {sent.asked} differs"
        )


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
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    rules.check_view(view)


def whole_groups(talk: Conversation) -> None:
    """No fold may end between a call and its result."""
    for cut in rules.cut_points(talk.view, unanswered=True):
        behind = talk.view.items[cut.index :][:1]
        assert not behind or behind[0].role != "result", f"a fold may end before {behind[0].seq}"


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
            is_free = all(part.free for part in shown)  # bound to its provider alone
            assert is_free or same == ahead, f"the thought at {item.seq} stands behind other words"
        before.append(item)


def sealed(talk: Conversation) -> None:
    """Reasoning goes back with its sealed text and the item that followed it, or not at all."""
    came: dict[str, list[tuple[str, str]]] = defaultdict(list)  # an id may come again
    for event in talk.events:
        if isinstance(event, ModelSaid) and event.native and event.native.dialect == RESPONSES.name:
            items = msgspec.json.decode(event.native.body)
            texts = iter([part.signature for part in event.parts if isinstance(part, Thought)])
            for item, following in zip(items, [*items[1:], {}], strict=True):
                if item.get("type") in ("reasoning", "compaction"):
                    came[item["id"]].append((next(texts), following.get("id", "")))
    request = render(talk.view)
    if RESPONSES not in talk.dialects or RESPONSES.is_silent(request):
        return
    body = msgspec.json.decode(RESPONSES.encode_request(request, {}))
    for item, following in zip(body["input"], [*body["input"][1:], {}], strict=True):
        if item.get("type") == "reasoning":
            wanted = came[item["id"]]
            found = item.get("encrypted_content"), following.get("id", "")
            assert found in wanted, f"{item['id']} is sent with {found}, it came with {wanted}"


def kept_out(talk: Conversation) -> None:
    """What a person excluded is in nobody's sight: not as it was, quoted, told or named."""
    view = talk.view
    masks = (view.held[at] for at in view.spine.masks)
    hidden = {stub.seq for mask in masks if isinstance(mask, Excluded) for stub in mask.stubs}
    hidden |= {seq for fold in view.list_folds().values() for seq in fold.excluded}
    sight = "\n".join(text_of(item.parts) for item in (*view.items, *view.waiting))
    for seq in hidden:
        event = talk.events[seq]
        if isinstance(event, UserSaid) and event.speaker == "notice":
            continue  # a session says the same again where it must
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            words = " ".join(spoken_text_of(event.parts).split()[:3])
            assert not words or f"{words} " not in f"{sight} ", f"{seq} was excluded, is in sight"


def undo_restores(talk: Conversation) -> None:
    """Taking the newest edit back gives the request that stood without it, byte for byte."""
    edits = [(seq, event) for seq, event in talk.log if isinstance(event, Edit)]
    if not edits:
        return
    seq, edit = edits[-1]
    before = spine_at(talk.log, seq - 1)
    without = load(before, dict(talk.log), head=talk.view.head)
    # What was thought behind the edit is bound to it, and is not shown without it: see `signed`.
    thought = any(
        isinstance(part, Thought) and part.signature
        for event in talk.events[seq:]
        if isinstance(event, ModelSaid)
        for part in event.parts
    )
    dialect = CHAT if thought else talk.dialect
    if talk.undo(seq):
        same = _digest(talk.view, dialect) == _digest(without, dialect)
        assert same, f"undoing {seq} does not restore"
        redo = len(talk.events) - 1
        with_edit = load(edit.spine, dict(talk.log), head=redo)
        if not talk.undo(redo):  # refused where it would bring excluded words into sight again
            assert any(isinstance(event, Excluded) for event in talk.events), f"{seq}: no redo"
            return
        same = _digest(talk.view, dialect) == _digest(with_edit, dialect)
        assert same, f"redoing {seq} does not restore"


def transparent(result: ProgramResult) -> None:
    """Law 9: a proxied request is the client's own, with patches that are reported."""
    found = judge_program(result).violations
    lines = "\n".join(str(one) for one in found[:5])
    assert not found, f"{len(found)} violations of law 9, played by {result.program}:\n{lines}"


def _notes(view: View) -> list[tuple[Part, ...]]:
    return [item.parts for item in (*view.items, *view.waiting) if item.role == "system"]


def _digest(view: View, dialect: Dialect) -> str:
    return hashlib.sha256(dialect.encode_request(render(view), {})).hexdigest()


async def _tail(talk: Conversation) -> list[Logged]:
    store = SqliteStore(":memory:")
    await event_log.append_events(store, NAME, talk.events, after=-1)
    tail = await event_log.read_tail(store, NAME)
    await store.close()
    return list(tail.events)


async def _from_store(talk: Conversation) -> list[tuple[Sent, View]]:
    store = SqliteStore(":memory:")
    await event_log.append_events(store, NAME, talk.events, after=-1)
    found: list[tuple[Sent, View]] = []
    for sent in talk.sent[1::2]:
        tail = await event_log.read_tail(store, NAME, at=sent.at)
        found.append((sent, tail.build_view()))
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
    sealed,
    flat,
    words_survive,
    kept_out,
    undo_restores,
)
"""Every law, to be asked in this order: the last one goes on with the conversation."""

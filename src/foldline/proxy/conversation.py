"""One client's conversation: its log, what of a request is new to it, and what is sent of it.

    request → matched with the log's row → events to append → planned → patched → recorded

Knows one log. Refuses to know which one a request belongs to (`conversations`), and HTTP.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from foldline.core import spine as spines
from foldline.core.budget import keeping, measure
from foldline.core.edits.clip import reclip
from foldline.core.edits.rewind import covered, rewind
from foldline.core.log import (
    Asked,
    Event,
    Folded,
    Instructed,
    Linked,
    Pinned,
    Unpinned,
    UsageReported,
)
from foldline.core.parts import Proxied, Text, spoken
from foldline.core.plan import Facts, Ready, admit, after
from foldline.core.policy import unforced
from foldline.core.request import Report
from foldline.core.request import report as report_of
from foldline.core.spine import FoldAt, Range
from foldline.core.view import View
from foldline.dialects.client_messages import short
from foldline.errors import Overflow, Vetoed
from foldline.proxy.identity import Caller, Scope
from foldline.proxy.match import Match, match_row
from foldline.proxy.patch import AnswerLimit, Patched, patch_request
from foldline.proxy.request import ClientRequest
from foldline.session import answer_limit, planning
from foldline.session.client_row import (
    ClientMessage,
    ClientRow,
    chain_of,
    count_upto,
    digest_shown,
    read_messages,
    read_on,
    read_row,
)
from foldline.session.log_handle import Live

if TYPE_CHECKING:
    from foldline.proxy.exchange import Flight
    from foldline.session.spending import Reserved

T = TypeVar("T")
_log = logging.getLogger("foldline.proxy")
_ENDLESS = 1_000_000_000  # tokens: nothing is clipped to fit that
_LARGE = 200_000  # bytes that are new: read beside the event loop
_LONG_PROMPT = 500  # characters: an instruction to summarise is never shorter


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """What is sent of a request, and what was decided for it."""

    patched: Patched
    report: Report
    asked: int
    """Where it was recorded; -1 where it was not."""
    edits: int
    """How many edits were made for this very request."""
    unplanned: str = ""
    """Why it is sent without a plan, in a word: overflow, conflict, compaction."""


class Conversation:
    """One log, and the request of its client that is under way."""

    def __init__(self, live: Live, scope: Scope) -> None:
        self.live, self.scope = live, scope
        live.shared = True
        self.busy = False
        """Whether a request is being planned or answered."""
        self.flight: Flight | None = None
        self.caller: Caller | None = None
        """The thread or task that asked last, where that is known."""
        self.fixed: tuple[str, str] | None = None
        """Digests of the instructions and tools that the log has; None: whatever it has."""
        self.hashes: list[bytes] = []
        """Of the bytes of each message of the last request."""
        self.noted: tuple[int, str] = (0, "")
        """How many messages every process was last told of, and their digest."""
        self.links: list[str] = []
        """Side conversations that began since the last request."""
        self._chains: dict[int, tuple[int, str]] = {}
        self._row: ClientRow | None = None
        self._reserved: Reserved | None = None

    async def match(self, request: ClientRequest, *, known: int = 0) -> Match:
        """What of a request the log has; folds are opened where it is known to have more."""
        await self._resolve_folds()
        view = self.live.view
        self._row = read_on(view, self._row, self._chains)
        found = match_row(self._row.pieces, request, shown=view.shown)
        if found.closed and (found.fresh or known):
            return await self._match_opened(request, found.closed)
        return found

    async def catch_up(self) -> bool:
        """Take in what other processes have written; whether they have."""
        if self.busy:
            return False
        async with self.live.lock:
            before = self.live.view.head
            await self.live.catch_up()
            self.fixed = None
            return self.live.view.head > before

    async def _match_opened(self, request: ClientRequest, edits: Sequence[int]) -> Match:
        """The same with some folds opened: the request does not begin with what they stand for."""
        view = self.live.view
        opened, fetched = await self._open_folds(edits)
        work = view.copy()
        work.held.update(fetched)
        work.append(work.head + 1, rewind(work, dropped=(), opened=opened))
        found = match_row(read_row(work, self._chains), request, shown=view.shown)
        return found._replace(opened=opened, fetched=fetched)

    async def _open_folds(self, edits: Sequence[int]) -> tuple[dict[int, Folded], dict[int, Event]]:
        """Some folds, also those that they have merged, and the events that they stand for."""
        opened: dict[int, Folded] = {}
        wanted = [*edits]
        while wanted:
            folds = {at: self.live.view.held.get(at) for at in wanted}
            missing = [Range(at, at) for at, fold in folds.items() if fold is None]
            folds.update(dict(await self.live.events(*missing)) if missing else {})
            wanted = list[int]()
            for at, fold in folds.items():
                if isinstance(fold, Folded):
                    opened[at] = fold
                    wanted += [one.edit for one in fold.change.took if isinstance(one, FoldAt)]
        ranges = [*covered([FoldAt(at) for at in edits], opened)]
        events: dict[int, Event] = {**opened}
        return opened, {**events, **dict(await self.live.events(*ranges))}

    async def _resolve_folds(self) -> None:
        """Find out what folds stand for that were made by hand, behind the proxy's back."""
        view = self.live.view
        chain: tuple[int, str] = (0, "")
        for segment in view.spine.segments:
            if not isinstance(segment, FoldAt):
                if any(not fold.chain for fold in view.folds().values()):
                    last = view.head if segment.hi is None else segment.hi
                    held = {seq: view.held[seq] for seq in range(segment.lo, last + 1)}
                    chain = chain_of(read_messages(held), count=chain[0], chain=chain[1])
                continue
            fold = view.fold_at(segment.edit)
            if not fold.chain and segment.edit not in self._chains:
                opened, fetched = await self._open_folds([segment.edit])
                spans = covered(fold.change.took, opened)
                places = [seq for one in spans for seq in range(one.lo, (one.hi or one.lo) + 1)]
                events = {seq: fetched[seq] for seq in places if seq in fetched}
                self._chains[segment.edit] = chain_of(
                    read_messages(events), count=chain[0], chain=chain[1]
                )
            chain = self._chains.get(segment.edit, (fold.upto, fold.chain))

    async def plan(
        self, request: ClientRequest, match: Match, facts: Facts, *, summary: int | None = None
    ) -> PlannedRequest:
        """Decide what is sent of a request, and record it with what is new: one append.

        `summary` is the message, by its place in the body, in which the client has summed up what
        it said before.
        """
        live = self.live
        limit = answer_limit.stated(request.dialect, request.parameters)
        if limit is not None and limit[1] < facts.limits.reserve:
            facts = replace(facts, limits=keeping(facts.limits, limit[1]))
        if _thinks_in_loop(request):
            facts = replace(facts, policy=unforced(facts.policy))
        facts = replace(facts, stable=match.stable)
        live.facts = facts

        new = sum(request.places[at].end - request.places[at].start for at in _new(request, match))
        enter = partial(self._enter, request, match, summary=summary)
        entering, work = await _run_beside(partial(enter, facts), size=new)
        try:
            ready = await planning.plan(live, facts, view=work)
        except (Overflow, Vetoed) as fault:
            _log.warning("%s: a request may not fit, and is sent: %s", live.name.session, fault)
            endless = replace(facts.limits, window=_ENDLESS, max_input=None)
            entering, work = enter(replace(facts, limits=endless))
            ready = None
        unplanned = "" if ready else "overflow"
        return await self._record(request, entering, work, ready, unplanned=unplanned)

    def _enter(
        self, request: ClientRequest, match: Match, facts: Facts, *, summary: int | None
    ) -> tuple[list[Event], View]:
        """What a request brings into the log, and the view behind it."""
        live, events = self.live, list[Event]()
        work = live.view.copy()
        work.held.update(match.fetched)

        def take(event: Event) -> None:
            events.append(event)
            work.append(work.head + 1, event)

        for event in live.beginning(request.model):
            take(event)
        for session in self.links:
            take(Linked(session))
        if summary is not None and live.view.head >= 0:
            take(rewind(work, dropped=(), everything=True, compacted=True))
        elif match.dropped or match.opened:
            gone = [Range(one.first, one.last) for one in match.dropped]
            take(rewind(work, dropped=gone, opened=match.opened))
        for pinned in [seq for seq in work.pins if not _is_shown(work, seq)]:
            take(Unpinned(pinned))
        if self.fixed != request.fixed:
            told = request.form.read_instructions(
                {name: request.field(name) for name in ("system", "tools") if request.field(name)},
                [request.raw(at) for at in request.leading],
            )
            if told != work.newest and (told.parts or told.tools or work.newest != Instructed()):
                take(told)
        summed_up = None
        for at in _new(request, match):
            for event in request.form.read_message(request.raw(at), request.described[at]):
                summed_up = work.head + 1 if summary == at else summed_up
                for one in admit(work, event, facts):
                    take(one)
        if summed_up is not None:  # the client's own summary is kept as a user's words are
            take(Pinned(summed_up))
        return events, work

    async def _record(  # noqa: PLR0913 - a request, and what was decided of it
        self,
        request: ClientRequest,
        entering: Sequence[Event],
        work: View,
        ready: Ready | None,
        *,
        thoughtless: bool = False,
        answer: int | None = None,
        unplanned: str = "",
    ) -> PlannedRequest:
        """Patch a request as it was planned, and record it with what came in before."""
        live = self.live
        edits: list[Event] = [*ready.events] if ready else []
        report = ready.report if ready else report_of(work, measure(work, live.facts.limits))
        before = read_on(work, self._row, self._chains)
        for at, event in enumerate(edits):
            if isinstance(event, Folded):
                upto = count_upto(before.pieces, event.change.span.hi or 0)
                edits[at] = msgspec.structs.replace(event, upto=upto, chain=request.chain[upto - 1])
        view = after(work, edits)
        row = read_on(view, before, self._chains).pieces
        limit = _limit(request, report, answer=answer)
        patched = patch_request(request, view, row, limit=limit, thoughtless=thoughtless)
        asked = Asked(
            at=view.head,
            dialect=request.dialect.name,
            sha256=digest_shown(view, row),
            encoder=request.dialect.encoder,
            parameters=msgspec.json.encode(request.parameters).decode(),
            tokens=report.total,
            estimate=report.estimate,
            relayed=True,
            proxied=self._describe(request, patched),
        )
        await self.reserve(report, view)
        await live.append([*entering, *edits, asked])
        self.links, self.fixed = [], request.fixed
        self.hashes = request.hashes
        live.report, live.touched = report, time()
        if ready is not None and ready.ask is not None and live.narrator is not None:
            live.narrator.wanted(live, ready.ask)
        made = len(report.edits) + sum(_clips(event) for event in entering)
        return PlannedRequest(patched, report, live.view.asked, made, unplanned)

    async def reserve(self, report: Report, view: View) -> None:
        """Set aside what a call may take, where there is a cap; `Spent` where that is passed."""
        if self.live.spending is None or self._reserved is not None:
            return
        from foldline.session.turn import turn_of  # noqa: PLC0415 - few have caps

        facts, turn = self.live.facts, turn_of(view)
        self._reserved = await self.live.spending.before(
            report.total, facts.limits.reserve, turn=turn, prices=facts.prices
        )

    async def settle(self, usage: UsageReported | None, *, free: bool = False) -> None:
        """Count what a call took: as it was told, or as estimated; nothing where it is `free`."""
        reserved, self._reserved = self._reserved, None
        if reserved is None or self.live.spending is None:
            return
        if free:
            await self.live.spending.release(reserved)
        else:
            await self.live.spending.after(reserved, usage)

    async def heal_length(self, request: ClientRequest, smaller: Facts) -> PlannedRequest | None:
        """Another request in place of one that was refused for its length; None: none is smaller.

        What is newest may have to be cut, harder than when it came: by its bytes, since no token is
        less than one. Otherwise all of it is planned anew under `smaller` limits.
        """
        work, entering = self.live.view.copy(), list[Event]()
        facts = replace(smaller, stable=None)
        found = reclip(work, self.live.facts.limits)
        if found is not None:
            event, limits = found
            entering.append(event)
            work.append(work.head + 1, event)
            facts = replace(facts, limits=limits)
        try:
            ready = await planning.plan(self.live, facts, view=work)
        except (Overflow, Vetoed):
            return None  # the provider's own words say more
        return await self._record(request, entering, work, ready)

    async def heal_answer(self, request: ClientRequest, answer: int) -> PlannedRequest:
        """The same request with a shorter answer: only that was too much."""
        return await self._record(request, [], self.live.view.copy(), None, answer=answer)

    async def heal_thinking(self, request: ClientRequest) -> PlannedRequest:
        """The same request without any thinking behind an edit: its signatures are refused."""
        return await self._record(request, [], self.live.view.copy(), None, thoughtless=True)

    def show(self, request: ClientRequest, match: Match) -> Patched:
        """The request under the edits that stand, without recording anything."""
        facts = replace(self.live.facts, policy=unforced(self.live.facts.policy))
        _, work = self._enter(request, match, facts, summary=None)
        return patch_request(request, work, read_row(work, self._chains))

    def _describe(self, request: ClientRequest, patched: Patched) -> Proxied:
        system, tools = request.fixed
        fields = msgspec.json.encode(request.parameters)
        return Proxied(
            body=short(patched.body),
            chain=request.chain[-1],
            messages=len(request.chained),
            system=system,
            tools=tools,
            fields=short(fields),
            patches=patched.kinds,
            marks=tuple(at for at, one in enumerate(request.described) if one.marked),
            same=_same(self.hashes, request.hashes),
        )

    def last_answers(self) -> list[str]:
        """The words of the newest answers in sight."""
        answers = [item for item in self.live.view.items if item.role == "model"]
        return [spoken(item.parts) for item in answers[-4:]]

    def count_known(self, request: ClientRequest) -> int:
        """How many messages of a request are in sight, wherever they stand."""
        row = read_row(self.live.view, self._chains)
        links = {piece.link for piece in row if isinstance(piece, ClientMessage)}
        return sum(digest in links for digest in request.digests)

    def is_compaction(self, request: ClientRequest, match: Match) -> bool:
        """Whether a request asks to sum up the history that it repeats.

        By its structure: all of the last request again, whose last message now has one long text
        more behind what it said; the answer to that request is not there.
        """
        if match.fresh != len(request.digests) - 1 or not match.dropped:
            return False
        before = [one for one in match.dropped if not one.is_aside][0:1]
        if not before or match.common != match.fresh:
            return False
        held = {**match.fetched, **self.live.view.held}
        places = range(before[0].first, before[0].last + 1)
        old = _said([held[seq] for seq in places if seq in held])
        at = request.chained[-1]
        if request.described[at].role != "user":
            return False
        new = _said(request.form.read_message(request.raw(at), request.described[at]))
        return (
            len(new) == len(old) + 1
            and new[: len(old)] == old
            and isinstance(new[-1], str)
            and len(new[-1]) >= _LONG_PROMPT
        )


def _is_shown(view: View, seq: int) -> bool:
    """Whether an event is in sight, or a fold stands for it."""
    spans = [one.change.span for one in view.folds().values()]
    here = Range(seq, seq)
    return spines.shows(view.spine, seq) or any(spines.overlap(one, here) for one in spans)


def _said(events: Sequence[Event]) -> list[object]:
    """What some events of one message say, piece by piece."""
    found: list[object] = []
    for event in events:
        call_id = getattr(event, "call_id", "")
        parts = getattr(event, "parts", ())
        if call_id:
            found.append(
                (call_id, *(part.text.strip() for part in parts if isinstance(part, Text)))
            )
        else:
            found += [part.text.strip() for part in parts if isinstance(part, Text)]
    return found


def _new(request: ClientRequest, match: Match) -> list[int]:
    """The messages of a request that its log does not have, by their place in the body."""
    return sorted({*request.chained[match.fresh :], *match.asides})


def _clips(event: Event) -> bool:
    return getattr(event, "clip", None) is not None


def _same(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """How many messages two requests begin with that have the very same bytes."""
    if now[: len(before)] == [*before]:
        return len(before)
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(before), len(now)))


def _limit(request: ClientRequest, report: Report, *, answer: int | None) -> AnswerLimit | None:
    """How long the answer may be, where what the client asks for cannot fit."""
    stated = answer_limit.stated(request.dialect, request.parameters)
    if stated is None:
        return None
    name, asked = stated
    if answer is not None:
        return AnswerLimit(name, asked, max(min(answer, asked), 1))
    if report.total + asked <= report.window or report.total >= report.window:
        return None  # it fits, or nothing would make it fit: then it goes as it came
    least = min(report.reserve, asked)
    return AnswerLimit(name, asked, max(report.window - report.total - report.margin, least, 1))


def _thinks_in_loop(request: ClientRequest) -> bool:
    """Whether a tool loop is under way whose thinking the API wants as it was."""
    thinking = request.field("thinking")
    if not thinking.startswith(b"{"):
        return False
    fields: dict[str, Any] = msgspec.json.decode(thinking)
    kind = fields.get("type")
    return kind == "enabled" and request.form.is_results(request.raw(request.chained[-1]))


async def _run_beside(work: Callable[[], T], *, size: int) -> T:
    """Do some work; beside the event loop, where it is much."""
    if size < _LARGE:
        return work()
    from asyncio import to_thread  # noqa: PLC0415 - half of the time of an import

    return await to_thread(work)

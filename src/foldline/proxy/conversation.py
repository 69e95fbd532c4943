"""One client's conversation: compares requests with its log, plans and records them.

    request → matched with the log's row → events to append → planned → patched → recorded

`conversations` decides which conversation a request belongs to.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foldline.core import plan as plans
from foldline.core import spine as spines
from foldline.core.budget import measure_budget, replace_reserve
from foldline.core.cold_cache import (
    LONG_LIFETIME,
    USUAL_LIFETIME,
    ColdCall,
    replace_write_price,
)
from foldline.core.edits.clip import clip_newest_messages
from foldline.core.edits.fold.ask import find_recall_tool
from foldline.core.edits.undo import iterate_covered_ranges, rewind_view
from foldline.core.item import Item
from foldline.core.log import (
    Asked,
    Event,
    Folded,
    Instructed,
    Linked,
    ModelSaid,
    Pinned,
    SettingsChanged,
    Unpinned,
    UsageReported,
)
from foldline.core.parts import Call, Proxied, Text, spoken_text_of
from foldline.core.plan import Facts, Need, Ready, admit, after
from foldline.core.policy import limit_to_forced_folds
from foldline.core.request import Report
from foldline.core.request import build_report as report_of
from foldline.core.spine import FoldAt, Range
from foldline.core.view import View
from foldline.dialects.base import Dialect, choose_model_dialect
from foldline.dialects.client_messages import FoldMark, chain_on, digest_bytes, item_of
from foldline.errors import BrokenView, Conflict, Overflow, Vetoed
from foldline.proxy.client_request import OBJECT, ClientRequest, weigh_request
from foldline.proxy.identity import Caller, Scope
from foldline.proxy.index import Match, match_row
from foldline.proxy.patch import AnswerLimit, Patched, patch_request
from foldline.proxy.spared_tokens import (
    NO_CALL_BEFORE,
    CallBefore,
    MessageSizes,
    SparedTokens,
    find_call_before,
)
from foldline.session import planning, recall_tool
from foldline.session.client_row import (
    EDITED,
    ClientMessage,
    ClientRow,
    FoldedMessages,
    chain_of,
    count_upto,
    digest_shown,
    is_said,
    read_messages,
    read_on,
    read_row,
)
from foldline.session.cold_call import estimate_planned_call
from foldline.session.log_handle import Live, Settings
from foldline.session.recall_tool import is_recall
from foldline.stores import event_log
from foldline.stores.beside import LARGE, run_beside

if TYPE_CHECKING:
    from foldline.proxy.exchange import Flight
    from foldline.session.spending import Reserved

_log = logging.getLogger("foldline.proxy")
_ENDLESS = 1_000_000_000  # tokens: a window for which nothing is clipped
_FILLED = 0.7  # of room: fuller requests are rare where folds pay before they are forced
_NEW = 12_000  # bytes that take as long as a message that is new
_ONE = msgspec.Raw(b"1")
_LONG_PROMPT = 500  # characters: an instruction to summarize is never shorter


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """The body to send, and the decisions behind it."""

    patched: Patched
    report: Report
    asked: int
    """Where it was recorded; -1 if it was not."""
    edits: int
    """How many edits were made for this request."""
    unplanned: str = ""
    """Why it is sent without a plan, in a word: overflow, conflict, compaction."""
    offers_recall: bool = False
    """Whether the tool `recall` is offered with it, which the client does not know."""
    cold: ColdCall | None = None
    """Its price, if the provider's cache has expired since the last request."""
    spared: SparedTokens | None = None
    """How much larger the client's own request is; None if nothing was taken out of it."""


class _PatchedPlan(NamedTuple):
    """A request as it is sent, and what is recorded of it."""

    patched: Patched
    view: View
    edits: Sequence[Event]
    report: Report
    asked: Asked
    offers: bool


class Conversation:
    """One log, and the request of its client that is under way."""

    def __init__(
        self, live: Live, scope: Scope, *, recall: bool = False, context: float | None = None
    ) -> None:
        self.live, self.scope = live, scope
        self._recall, self._context = recall, context
        self._takes_tool: tuple[str, bool] = ("", False)
        live.shared = True
        self.busy = False
        """Whether a request is being planned or answered."""
        self.flight: Flight | None = None
        self.caller: Caller | None = None
        """The thread or task that asked last, if known."""
        self.fixed: tuple[str, str] | None = None
        """Digests of the log's instructions and tools; None if unknown."""
        self.hashes: list[bytes] = []
        """Hashes of the last request's messages."""
        self.noted: tuple[int, str] = (0, "")
        """How many messages were last published to every process, and their digest."""
        self.links: list[str] = []
        """Side conversations that began since the last request."""
        self._chains: dict[int, tuple[int, str]] = {}
        self._said: tuple[int, set[str]] = (-1, set())
        self._has_warned = False
        self._row: ClientRow | None = None
        self._reserved: Reserved | None = None
        self._answer = 0 if _has_lowered_budget(live.view) else inf
        """Tokens: the least room that an answer has had so far."""
        self._sizes = MessageSizes()
        self._before: tuple[CallBefore, Sequence[int]] = NO_CALL_BEFORE, ()
        """The call before, and the indexes of the messages that came since."""

    async def match_request(self, request: ClientRequest, *, known: int = 0) -> Match:
        """Compare a request with the log; opens folds if the log is known to have more of it."""
        await self._resolve_folds()
        size = weigh_request(request)
        view = self.live.view if size < LARGE else self.live.view.copy()  # it may go on meanwhile

        def compare() -> tuple[ClientRow, Match]:
            row = read_on(view, self._row, self._chains)
            return row, match_row(row.pieces, request, shown=view.shown, head=view.head)

        self._row, match = await run_beside(compare, size=size)
        if match.closed and (match.fresh or known):
            return await self._match_opened(request, match.closed)
        return match

    async def catch_up(self) -> bool:
        """Read what other processes have written; return whether there was anything."""
        if self.busy:
            return False
        async with self.live.lock:
            before = self.live.view.head
            await self.live.catch_up()
            has_grown = self.live.view.head > before
            self.fixed = None if has_grown else self.fixed
            return has_grown

    async def _match_opened(self, request: ClientRequest, edits: Sequence[int]) -> Match:
        """Compare with some folds opened: the request does not begin with what they replace."""
        view = self.live.view
        opened, fetched = await self._open_folds(edits)
        work = view.copy()
        work.held.update(fetched)

        def compare() -> Match:
            shown, head = work.shown, work.head
            work.append(head + 1, rewind_view(work, dropped=(), opened=opened))
            return match_row(read_row(work, self._chains), request, shown=shown, head=head)

        match = await run_beside(compare, size=weigh_request(request) + len(fetched) * OBJECT)
        return match._replace(opened=opened, fetched=fetched)

    async def _open_folds(self, edits: Sequence[int]) -> tuple[dict[int, Folded], dict[int, Event]]:
        """Read folds, the folds merged into them, and the events that they replace."""
        opened: dict[int, Folded] = {}
        wanted = [*edits]
        while wanted:
            folds = {at: self.live.view.held.get(at) for at in wanted}
            missing = [Range(at, at) for at, fold in folds.items() if fold is None]
            folds.update(dict(await self.live.read_events(*missing)) if missing else {})
            wanted = list[int]()
            for at, fold in folds.items():
                if isinstance(fold, Folded):
                    opened[at] = fold
                    wanted += [one.edit for one in fold.change.took if isinstance(one, FoldAt)]
        ranges = [*iterate_covered_ranges([FoldAt(at) for at in edits], opened)]
        events: dict[int, Event] = {**opened}
        return opened, {**events, **dict(await self.live.read_events(*ranges))}

    async def _resolve_folds(self) -> None:
        """Find the messages behind folds that were made by hand, without the proxy."""
        view = self.live.view
        chain: tuple[int, str] = (0, "")
        for segment in view.spine.segments:
            if not isinstance(segment, FoldAt):
                if any(not fold.chain for fold in view.list_folds().values()):
                    last = view.head if segment.hi is None else segment.hi
                    held = {seq: view.held[seq] for seq in range(segment.lo, last + 1)}
                    chain = chain_of(read_messages(held), count=chain[0], chain=chain[1])
                continue
            fold = view.fold_at(segment.edit)
            if not fold.chain and segment.edit not in self._chains:
                opened, fetched = await self._open_folds([segment.edit])
                spans = iterate_covered_ranges(fold.change.took, opened)
                places = [seq for one in spans for seq in range(one.lo, (one.hi or one.lo) + 1)]
                events = {seq: fetched[seq] for seq in places if seq in fetched}
                self._chains[segment.edit] = chain_of(
                    read_messages(events), count=chain[0], chain=chain[1]
                )
            chain = self._chains.get(segment.edit, (fold.upto, fold.chain))

    async def plan_request(
        self, request: ClientRequest, match: Match, facts: Facts, *, summary: int | None = None
    ) -> PlannedRequest:
        """Plan a request, and record it with what is new in one append.

        `summary` is the index in the body of the client's own summary of what was before.
        """
        live = self.live
        limit = request.dialect.find_bound(request.parameters)
        if limit is not None and limit[1] < facts.limits.reserve:
            facts = replace(facts, limits=replace_reserve(facts.limits, limit[1]))
        if threshold := _find_threshold(request):
            most = min(threshold, facts.limits.max_input or threshold)
            facts = replace(facts, limits=replace(facts.limits, max_input=most))
        offered = self._can_offer_recall(request)
        facts = replace(facts, stable=match.stable, recall=offered)
        seconds = time() - live.touched
        if live.view.asked >= 0 and seconds > USUAL_LIFETIME:
            facts = _apply_cache_lifetime(request, facts)
        live.facts = facts

        added = _list_new_messages(request, match)
        self._before = find_call_before(live.view), added
        new = _weigh_messages(request, added)
        enter = partial(self._admit_request, request, match, summary=summary)
        endless = replace(facts.limits, window=_ENDLESS, max_input=None, source="default")
        if request.is_relayed:
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "%s: requests are sent as they come: %s; `own_history` would plan them",
                    live.name.session,
                    "they name what their server keeps",
                )
            enter = partial(enter, replace(facts, limits=endless))
            entering, work = await run_beside(enter, size=new)
            return await self._record_request(
                request, entering, work, None, unplanned="server-state"
            )
        entering, work = await run_beside(partial(enter, facts), size=new)
        live.facts = planning.limit_in_loop(facts, work, request.parameters, request.dialect)
        facts, may_fold = live.facts, live.facts is facts
        if await self._must_offer_recall(request, work, facts):
            enter = partial(enter, offers=True)
            entering, work = await run_beside(partial(enter, facts), size=new)
        unplanned = ""
        try:
            ready = await planning.plan_next_request(live, facts, view=work)
        except (Overflow, Vetoed) as fault:
            less = self._forget_recalls(match)
            if less is not None:
                return await self.plan_request(request, less, facts, summary=summary)
            _log.warning("%s: a request may not fit, and is sent: %s", live.name.session, fault)
            relaxed = partial(enter, replace(facts, limits=endless))
            entering, work = await run_beside(relaxed, size=new)
            ready, unplanned = None, "overflow"
        except BrokenView as fault:  # the edits in force stay
            _log.warning("%s: a request is not edited further: %s", live.name.session, fault)
            ready, unplanned = None, "brokenview"
        cold = ready and await estimate_planned_call(
            live, facts, work, ready, seconds=seconds, may_fold=may_fold
        )
        made = await self._record_request(request, entering, work, ready, unplanned=unplanned)
        return replace(made, cold=cold)

    async def fold_history(
        self, request: ClientRequest, match: Match, facts: Facts
    ) -> tuple[FoldMark, int]:
        """Fold what a client asks to compact, without a call.

        Returns the mark that names it, and how many edits were made.

        If nothing can be folded, the mark names the messages as they are.
        """
        live = self.live
        offered = self._can_offer_recall(request)
        live.facts = facts = replace(facts, stable=None, recall=offered)
        enter = partial(self._admit_request, request, match, facts, summary=None)
        entering, work = await run_beside(enter, size=weigh_request(request))
        try:
            ready = await planning.plan_next_request(live, replace(facts, now=True), view=work)
        except (Overflow, Vetoed, BrokenView) as fault:
            _log.warning("%s: a history is kept as it is: %s", live.name.session, fault)
            ready = None

        def count_edits() -> list[Event]:
            before = read_on(work, self._row, self._chains)
            return _count_folded_messages(request, before, ready.events if ready else ())

        edits = await run_beside(count_edits, size=weigh_request(request))
        await live.append([*entering, *edits])
        self.links, self.fixed, self.hashes = [], request.fixed, []
        live.touched = time()
        name, place = live.name.session, live.view.head
        return FoldMark(name, place, len(request.chain), request.chain[-1]), len(edits)

    async def find_mark(self, place: int) -> FoldMark | None:
        """Return the mark of the history up to a place, as the log showed it there."""
        tail = await event_log.read_tail(self.live.store, self.live.name, at=place)
        messages, chain = 0, ""
        for piece in read_row(await tail.load_view(), self._chains):
            if isinstance(piece, FoldedMessages):
                messages, chain = piece.upto, piece.chain
            elif not piece.is_aside:
                messages, chain = messages + 1, chain_on(chain, piece.link)
        return FoldMark(self.live.name.session, place, messages, chain) if messages else None

    async def rank_request(self, request: ClientRequest) -> int:
        """Count the messages of a request that the log shows; 0 if one of its marks has no fold."""
        match = await self.match_request(request)
        marked = sum(request.described[at].role == "fold" for at in request.chained)
        return match.fresh if match.fresh >= marked else 0

    async def write_history(
        self, mark: FoldMark, dialect: Dialect, *, instructed: bool = False
    ) -> list[bytes] | None:
        """Write the messages that a mark names; None if the log shows others by now.

        Messages that are folded are written as one mark: the fold takes its place. With
        `instructed` the instructions among them are written too: the client does not send them.
        """
        await self._resolve_folds()
        view = self.live.view
        self._row = read_on(view, self._row, self._chains)
        messages, chain = 0, ""
        written: list[bytes] = []
        if instructed and view.newest.native:
            written += dialect.write_instructions(view.newest)
        for piece in self._row.pieces:
            if messages >= mark.messages and not (instructed and piece.last <= mark.place):
                break
            if isinstance(piece, FoldedMessages):
                if piece.upto > mark.messages:  # a later fold: the client has the rest
                    return [*written, dialect.write_mark(mark)]
                messages, chain = piece.upto, piece.chain
                written.append(dialect.write_mark(mark._replace(messages=messages, chain=chain)))
            elif piece.is_aside:
                aside = view.held[piece.first]
                if instructed and isinstance(aside, Instructed):
                    written += dialect.write_instructions(aside)
            else:
                messages, chain = messages + 1, chain_on(chain, piece.link)
                events = [view.held[seq] for seq in range(piece.first, piece.last + 1)]
                if piece.is_joined:
                    answers = (_hide_recalls(one) for one in events if isinstance(one, ModelSaid))
                    written.append(
                        b",".join(dialect.write_message([one]) for one in answers if one.parts)
                    )
                else:
                    written.append(
                        dialect.write_message([item_of(e) for e in events if is_said(e)])
                    )
        return written if chain == mark.chain else None

    async def has_said(self, digests: Sequence[str], place: int) -> set[str]:
        """Return those of some digests that a message of this log up to a place has."""
        if self._said[0] < place:
            found = await self.live.read_events(Range(max(self._said[0], 0), place))
            links = {getattr(event, "link", "") for _, event in found}
            self._said = place, self._said[1] | links
        return {digest for digest in digests if digest in self._said[1]}

    def _admit_request(
        self,
        request: ClientRequest,
        match: Match,
        facts: Facts,
        *,
        summary: int | None,
        offers: bool = False,
    ) -> tuple[list[Event], View]:
        """Return the events that a request adds to the log, and the view after them.

        `offers` says that the tool `recall` is offered from here on. Raises `Conflict` if the log
        went on since they were compared.
        """
        live, events = self.live, list[Event]()
        if live.view.head != match.head:
            raise Conflict(live.name.session, match.head, live.view.head)
        work = live.view.copy()
        work.held.update(match.fetched)

        def append_event(event: Event) -> None:
            events.append(event)
            work.append(work.head + 1, event)

        usual = choose_model_dialect(request.model).name == request.dialect.name
        spoken: Settings = {} if usual else {"dialect": request.dialect.name}
        window: Settings = {"window": facts.limits.window} if facts.limits.source == "user" else {}
        for event in live.make_opening_events(request.model, settings={**spoken, **window}):
            append_event(event)
        if not window.items() <= work.settings.items():
            append_event(SettingsChanged({**work.settings, **window}))
        for session in self.links:
            append_event(Linked(session))
        if summary is not None and live.view.head >= 0:
            append_event(rewind_view(work, dropped=(), everything=True, compacted=True))
        elif match.dropped or match.opened:
            gone = [Range(one.first, one.last) for one in match.dropped]
            append_event(rewind_view(work, dropped=gone, opened=match.opened))
        for pinned in [seq for seq in work.pins if not _is_shown(work, seq)]:
            append_event(Unpinned(pinned))
        was_offered = self._is_offered(request, work)
        offers = offers or was_offered
        if self.fixed != request.fixed or offers != was_offered:
            new = request.read_instructions()
            if offers:
                new = msgspec.structs.replace(new, tools=(*new.tools, recall_tool.make_tool()))
            if new != work.newest and (new.parts or new.tools or work.newest != Instructed()):
                append_event(new)
        summed_up = None
        for at in _list_new_messages(request, match):
            for event in request.read_message(at):
                summed_up = work.head + 1 if summary == at else summed_up
                for one in admit(work, event, facts):
                    append_event(one)
        if summed_up is not None:  # the client's own summary is kept like a user's words
            append_event(Pinned(summed_up))
        return events, work

    def _can_offer_recall(self, request: ClientRequest) -> bool:
        """Whether the tool `recall` may be offered: the client has none, and can have another."""
        if not self._recall or request.is_relayed or request.prefill:
            return False
        if bytes(request.parameters.get("n", _ONE)) != b"1":
            return False
        tools = request.fixed[1]
        if self._takes_tool[0] != tools:
            has_own = find_recall_tool(request.read_instructions().tools)
            self._takes_tool = tools, not has_own and _add_recall_tool(request) is not None
        return self._takes_tool[1]

    def _is_offered(self, request: ClientRequest, view: View) -> bool:
        """Whether the tool `recall` is offered with a view's requests, and is ours."""
        names = (tool.name for tool in view.newest.tools)
        return self._can_offer_recall(request) and plans.RECALL in names

    async def _must_offer_recall(self, request: ClientRequest, view: View, facts: Facts) -> bool:
        """Whether the tool `recall` is offered from this request on: it is the first with edits."""
        if not self._can_offer_recall(request) or self._is_offered(request, view):
            return False
        if any(item.state in EDITED for item in (*view.items, *view.waiting)):
            return True
        made = await planning.compute_plan(view, facts)
        return isinstance(made, Need) or (isinstance(made, Ready) and bool(made.report.edits))

    def _forget_recalls(self, match: Match) -> Match | None:
        """Match a request as if no answer had called `recall`: then less has to fit.

        From the first such answer on, the log takes all messages again as the client has them. None
        if there is no such answer.
        """
        at, pieces = 0, self._row.pieces if self._row and not match.opened else []
        for index, piece in enumerate(pieces):
            if isinstance(piece, FoldedMessages):
                at = piece.upto
            elif piece.is_joined:
                rest = [one for one in pieces[index:] if isinstance(one, ClientMessage)]
                if at >= match.fresh or len(rest) < len(pieces) - index:
                    return None
                said = [one for one in rest if not one.is_aside and one not in match.dropped]
                dropped = [*match.dropped, *said]
                return match._replace(common=min(match.common, at), fresh=at, dropped=dropped)
            elif not piece.is_aside:
                at += 1
        return None

    async def plan_round(self, request: ClientRequest) -> PlannedRequest:
        """Plan the same request again, behind which a call of ours was answered.

        Raises `Overflow` if that does not fit. What the client asked is never folded here.
        """
        facts, work = self.live.facts, self.live.view.copy()
        said = [one for one in read_row(work, self._chains) if isinstance(one, ClientMessage)]
        newest = [one for one in said if not (one.is_aside or one.is_open)][-1:]
        stable = newest[0].first - 1 if newest else -1
        facts = replace(facts, policy=limit_to_forced_folds(facts.policy), stable=stable)
        ready = await planning.plan_next_request(self.live, facts, view=work)
        self._before = find_call_before(work), ()
        return await self._record_request(request, [], work, ready)

    async def _record_request(  # noqa: PLR0913 - a request and its plan
        self,
        request: ClientRequest,
        entering: Sequence[Event],
        work: View,
        ready: Ready | None,
        *,
        answer: int | None = None,
        unplanned: str = "",
    ) -> PlannedRequest:
        """Patch a request as planned, and record it with the new events."""
        size = weigh_request(request)
        patch = partial(self._patch_planned, request, work, ready, answer=answer)
        made = await run_beside(patch, size=size)
        live, view, edits, report = self.live, made.view, made.edits, made.report
        await self.reserve_spending(report, view)
        await live.append([*entering, *edits, made.asked])
        self.links, self.fixed = [], request.fixed
        self.hashes = request.hashes
        live.report, live.touched = report, time()
        if ready is not None and ready.ask is not None and live.narrator is not None:
            live.narrator.schedule_narrative(live, ready.ask)
        clips = sum(getattr(event, "clip", None) is not None for event in entering)
        count = len(report.edits) + clips
        planned = PlannedRequest(
            made.patched, report, live.view.asked, count, unplanned, made.offers
        )
        measure = partial(self._measure_spared, request, view, planned)
        unsized = self._sizes.count_unsized(request) * _NEW
        return replace(planned, spared=await run_beside(measure, size=size + unsized))

    def _patch_planned(
        self,
        request: ClientRequest,
        work: View,
        ready: Ready | None,
        *,
        answer: int | None,
    ) -> "_PatchedPlan":
        """Apply a plan to a request; nothing is recorded."""
        live = self.live
        before = read_on(work, self._row, self._chains)
        edits = _count_folded_messages(request, before, ready.events if ready else ())
        report = ready.report if ready else report_of(work, measure_budget(work, live.facts.limits))
        view = after(work, edits)
        row = read_on(view, before, self._chains).pieces
        limit = _find_answer_limit(request, report, live.facts, answer=answer, known=self._answer)
        self._answer = min(self._answer, limit.allowed if limit else inf)
        offers = self._is_offered(request, view)
        if request.is_relayed:
            patched = Patched(request.original)
        else:
            tools = _add_recall_tool(request) if offers else None
            patched = patch_request(
                request,
                view,
                row,
                limit=limit,
                thoughtless=self._leaves_out_thinking(),
                tools=tools,
                tail=_tell_context(report, self._context),
            )
            if request.original:
                patched.kinds["history"] = 1
        asked = Asked(
            at=view.head,
            dialect=request.dialect.name,
            sha256=digest_shown(view, row),
            encoder=request.dialect.encoder,
            parameters=msgspec.json.encode(request.parameters).decode(),
            tokens=report.total,
            estimate=report.estimate,
            relayed=True,
            proxied=self._describe_request(request, patched),
        )
        return _PatchedPlan(patched, view, edits, report, asked, offers)

    def _measure_spared(
        self, request: ClientRequest, view: View, planned: PlannedRequest
    ) -> SparedTokens | None:
        before, new = self._before
        found = self._sizes.measure_spared(request, view, planned.patched.kinds, new)
        return found and found._replace(before=before, is_edited=bool(planned.report.edits))

    async def reserve_spending(self, report: Report, view: View) -> None:
        """Reserve the most that a call may cost, if there is a cap; raises `Spent`."""
        if self.live.spending is None or self._reserved is not None:
            return
        from foldline.session.turn import turn_of  # noqa: PLC0415 - few have caps

        facts, turn = self.live.facts, turn_of(view)
        self._reserved = await self.live.spending.reserve_call(
            report.total, facts.limits.reserve, turn=turn, prices=facts.prices
        )

    async def settle_spending(self, usage: UsageReported | None, *, free: bool = False) -> None:
        """Count a call's cost as reported, or else as estimated; nothing if it is `free`."""
        reserved, self._reserved = self._reserved, None
        if reserved is None or self.live.spending is None:
            return
        if free:
            await self.live.spending.release(reserved)
        else:
            await self.live.spending.settle_call(reserved, usage)

    async def heal_length(self, request: ClientRequest, smaller: Facts) -> PlannedRequest | None:
        """Plan a smaller request after one was refused for its length; None if there is none.

        The newest messages may have to be clipped harder than when they came: by bytes, since no
        token is less than one. Otherwise everything is planned again under `smaller` limits.
        """
        work, entering = self.live.view.copy(), list[Event]()
        facts = replace(smaller, stable=None)
        clipped = clip_newest_messages(
            work, self.live.facts.limits, recall=plans.offers_recall(work, facts)
        )
        if clipped is not None:
            event, limits = clipped
            entering.append(event)
            work.append(work.head + 1, event)
            facts = replace(facts, limits=limits)
        try:
            ready = await planning.plan_next_request(self.live, facts, view=work)
        except (Overflow, Vetoed, BrokenView):
            return None  # the provider's own error says more
        return await self._record_request(request, entering, work, ready)

    async def heal_answer(self, request: ClientRequest, answer: int) -> PlannedRequest:
        """Plan the same request with a shorter answer, as only that was too long."""
        return await self._record_request(request, [], self.live.view.copy(), None, answer=answer)

    async def heal_thinking(self, request: ClientRequest) -> PlannedRequest:
        """Plan the same request without thinking after an edit: its signatures were refused."""
        return await self._record_request(request, [], self.live.view.copy(), None)

    def _leaves_out_thinking(self) -> bool:
        """Whether thinking behind an edit would be refused: by the model's name, or as it was."""
        return self.live.view.binds_thinking or self.live.facts.binds_thinking

    def patch_without_recording(self, request: ClientRequest, match: Match) -> Patched:
        """Apply the edits in force to a request, without recording anything."""
        if request.is_relayed:
            return Patched(request.original)
        facts = replace(self.live.facts, policy=limit_to_forced_folds(self.live.facts.policy))
        _, work = self._admit_request(request, match, facts, summary=None)
        thoughtless = self._leaves_out_thinking()
        return patch_request(request, work, read_row(work, self._chains), thoughtless=thoughtless)

    def match_held(self, request: ClientRequest) -> Match | None:
        """Compare a request with what this process holds; None if that says too little."""
        view = self.live.view
        row = read_on(view, self._row, self._chains).pieces
        match = match_row(row, request, shown=view.shown, head=view.head)
        return None if match.closed or not match.common else match

    def _describe_request(self, request: ClientRequest, patched: Patched) -> Proxied:
        system, tools = request.fixed
        fields = msgspec.json.encode(request.parameters)
        return Proxied(
            body=digest_bytes(patched.body),
            chain=request.chain[-1],
            messages=len(request.chained),
            system=system,
            tools=tools,
            fields=digest_bytes(fields),
            patches=patched.kinds,
            marks=tuple(at for at, one in enumerate(request.described) if one.marked),
            same=_count_same_messages(self.hashes, request.hashes),
        )

    def last_answers(self) -> list[str]:
        """Return the text of the newest visible answers."""
        answers = [item for item in self.live.view.items if item.role == "model"]
        return [spoken_text_of(item.parts) for item in answers[-4:]]

    def count_known(self, request: ClientRequest) -> int:
        """Count the messages of a request that the view shows, in any order."""
        row = read_row(self.live.view, self._chains)
        links = {piece.link for piece in row if isinstance(piece, ClientMessage)}
        return sum(digest in links for digest in request.digests)

    def is_compaction(self, request: ClientRequest, match: Match) -> bool:
        """Whether a request asks to summarize the history that it repeats.

        Such a request repeats the last one without its answer, and its last message has one more
        long text at the end.
        """
        if match.fresh != len(request.digests) - 1 or not match.dropped:
            return False
        before = next((one for one in match.dropped if not one.is_aside), None)
        if before is None or match.common != match.fresh:
            return False
        held = {**match.fetched, **self.live.view.held}
        said = [held[seq] for seq in range(before.first, before.last + 1) if seq in held]
        if any(isinstance(event, ModelSaid) for event in said):
            return False  # only the answer is left out: the newest message is another
        old = _collect_texts(said)
        at = request.chained[-1]
        if request.described[at].role != "user":
            return False
        new = _collect_texts(request.read_message(at))
        return (
            len(new) == len(old) + 1
            and new[: len(old)] == old
            and isinstance(new[-1], str)
            and len(new[-1]) >= _LONG_PROMPT
        )


def _tell_context(report: Report, least: float | None) -> str:
    """Say how full the window is; "" if it is less full than asked for."""
    if least is None or report.total < least * report.window:
        return ""
    return f"[context: {report.total:,} of {report.window:,} tokens]"


def _add_recall_tool(request: ClientRequest) -> bytes | None:
    """Add the tool `recall` to the client's tools; None if it cannot stand there."""
    tools = request.extract_field(request.dialect.fixed[1])
    return request.dialect.add_tool(tools, recall_tool.make_tool())


def _is_shown(view: View, seq: int) -> bool:
    """Whether an event is visible, or covered by a fold."""
    spans = [one.change.span for one in view.list_folds().values()]
    here = Range(seq, seq)
    return spines.is_shown(view.spine, seq) or any(spines.has_overlap(one, here) for one in spans)


def _hide_recalls(said: ModelSaid) -> Item:
    """Return a part of a joined answer as its client has it."""
    parts = (one for one in said.parts if not (isinstance(one, Call) and is_recall(one)))
    return Item(0, "model", tuple(parts), 0)


def _collect_texts(events: Sequence[Event]) -> list[object]:
    """Collect the texts of one message's events; a tool result's as one tuple."""
    collected: list[object] = []
    for event in events:
        call_id = getattr(event, "call_id", "")
        parts = getattr(event, "parts", ())
        texts = [part.text.strip() for part in parts if isinstance(part, Text)]
        collected += [(call_id, *texts)] if call_id else texts
    return collected


def _list_new_messages(request: ClientRequest, match: Match) -> list[int]:
    """List the indexes in the body of messages that the log does not have."""
    return sorted({*request.chained[match.fresh :], *match.asides})


def _count_folded_messages(
    request: ClientRequest, row: ClientRow, edits: Sequence[Event]
) -> list[Event]:
    """Write into new folds how many of the client's messages they end with, and their digest."""
    counted: list[Event] = []
    for event in edits:
        if isinstance(event, Folded):
            upto = count_upto(row.pieces, event.change.span.hi or 0)
            chain = request.chain[upto - 1]
            counted.append(msgspec.structs.replace(event, upto=upto, chain=chain))
        else:
            counted.append(event)
    return counted


def _count_same_messages(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """Count the leading messages of two requests that are equal byte for byte."""
    if now[: len(before)] == [*before]:
        return len(before)
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(before), len(now)))


def _has_lowered_budget(view: View) -> bool:
    """Whether the thinking budget of the newest request was lowered: then it stays lowered."""
    asked = view.held.get(view.asked)
    return isinstance(asked, Asked) and bool(asked.proxied and asked.proxied.lowers_budget)


def _find_answer_limit(
    request: ClientRequest, report: Report, facts: Facts, *, answer: int | None, known: float
) -> AnswerLimit | None:
    """Return the answer limit that fits, and the thinking that fits in all of the conversation.

    `known` is the least room that an answer has had in it.
    """
    stated = request.dialect.find_bound(request.parameters)
    if stated is None:
        return None
    name, asked = stated
    least = min(report.reserve, asked)
    full, policy = report.window, facts.policy
    if policy.folds:  # without folds a conversation fills its window anyway
        margin = int(full * facts.limits.margin)
        held = full - report.reserve - margin if policy.of == "room" else full
        full -= round(held * _FILLED) + margin
    full = min(full, known)
    if answer is not None:
        return AnswerLimit(name, asked, max(min(answer, asked), 1), least, full)
    if report.total >= report.window:
        return None  # no limit would make it fit: it goes as it came
    if report.total + asked <= report.window:
        return AnswerLimit(name, asked, asked, least, full)
    allowed = max(report.window - report.total - report.margin, least, 1)
    return AnswerLimit(name, asked, allowed, least, full)


def _find_threshold(request: ClientRequest) -> int | None:
    """Find from how many tokens on the client wants its server to compact: we fold before that."""
    return request.dialect.find_threshold(request.parameters)


def _apply_cache_lifetime(request: ClientRequest, facts: Facts) -> Facts:
    """Apply the cache lifetime that the client asks for, and its price."""
    lifetime = request.cache_lifetime
    if lifetime is None:
        return facts
    prices = replace_write_price(facts.prices) if lifetime == LONG_LIFETIME else facts.prices
    return replace(facts, lifetime=lifetime, prices=prices)


def _weigh_messages(request: ClientRequest, messages: Sequence[int]) -> int:
    """Say how many bytes take as long to read as some new messages."""
    return sum(request.places[at].end - request.places[at].start + _NEW for at in messages)

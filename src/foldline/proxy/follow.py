"""Plans requests whose history somebody else keeps: a framework, or a loop with a list of its own.

    follower = foldline.Follower(store="chats.db", window=32_000)
    plan = follower.plan({"model": model, "messages": messages})
    for shown in plan.shown:
        ...  # messages[shown.place] as it was given if shown.same, else shown.message
    follower.record_usage(plan, input=1_204, output=88)

The request is given whole, each time, as the provider would get it. What is new of it is added to
the log; where it was edited or branched, so is the log. As with `wrap`, a conversation is found by
its history, or by the name that `session=` gives. Unlike `wrap`, nothing is sent from here.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from foldline.core.log import UsageReported
from foldline.core.request import Report
from foldline.dialects import base
from foldline.dialects.base import Dialect, PathFacts
from foldline.dialects.json_slices import Json, Splice, find_fields, find_values
from foldline.dialects.provider_errors import of_exception
from foldline.errors import BadInput, FoldlineError
from foldline.proxy.client_request import ServerStateError
from foldline.proxy.conversations import MOST
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Scope, check_name, current_name
from foldline.proxy.transport import AWAY, UNPLANNED
from foldline.proxy.wrap import Options, check_options, make_conversations
from foldline.session.refusals import measure_fill
from foldline.session.session import AsyncSession, Session
from foldline.session.sync import Face, make_sync
from foldline.stores.base import Name

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.session.log_handle import Live

_log = logging.getLogger("foldline.follow")


class PlannedMessage(NamedTuple):
    """One message of a planned request."""

    message: Json
    """As it is to be sent."""
    place: int | None
    """Which of the given messages it is; None if Foldline wrote it in place of several."""
    same: bool
    """Whether it is just as it was given."""


@dataclass(frozen=True, slots=True)
class FollowPlan:
    """A request as it is to be sent."""

    request: Json
    """The whole of it; as it was given where nothing was edited."""
    shown: list[PlannedMessage]
    """Its messages, and where they come from."""
    edits: int = 0
    """How many edits were made for this request."""
    unplanned: str = ""
    """Why it is sent as it was given, in a word; "" if it was planned."""
    report: Report | None = None
    """How the window is used; None if it was not planned."""
    call: "FollowCall | None" = field(default=None, repr=False)
    """What `record_usage` and `heal` need; None if it was not planned."""

    @property
    def is_edited(self) -> bool:
        """Whether any message differs from what was given."""
        return not all(one.same for one in self.shown)

    @property
    def session(self) -> str:
        """The name of the log, for `open_session` and `answer_recall`; "" if it was not planned."""
        return self.call.exchange.session if self.call else ""


class FollowCall(NamedTuple):
    """A planned request as it was given."""

    exchange: Exchange
    dialect: Dialect
    given: Mapping[str, Any]
    body: bytes


class NewestPlans:
    """The plans whose answers are awaited, by the framework's own name of each call or run.

    Of calls that never end the oldest are forgotten.
    """

    def __init__(self, most: int = MOST) -> None:
        self._plans: OrderedDict[str, FollowPlan] = OrderedDict()
        self._most = most

    def put(self, name: object, plan: FollowPlan) -> None:
        """Remember a plan under a name."""
        self._plans[str(name)] = plan
        self._plans.move_to_end(str(name))
        while len(self._plans) > self._most:
            self._plans.popitem(last=False)

    def take(self, name: object) -> FollowPlan | None:
        """Return the plan of a name, and forget it."""
        return self._plans.pop(str(name), None)


class AsyncFollower:
    """Plans requests whose history somebody else keeps.

    Takes the options of `wrap`, but for `session`, `own_history` and `recall`.
    """

    def __init__(self, **options: "Unpack[Options]") -> None:
        check_options(options)
        if {"session", "own_history", "recall"} & options.keys():
            raise BadInput(
                "a follower takes no session, own_history or recall: give the session to each "
                "plan, and offer foldline.RECALL_TOOL in your program"
            )
        self._conversations = make_conversations(options)
        self._on_store_error = options.get("on_store_error", "raise")
        self._newest: OrderedDict[str, Live] = OrderedDict()

    async def plan(
        self,
        request: Mapping[str, Any],
        *,
        session: str | None = None,
        dialect: str = "openai-chat",
    ) -> FollowPlan:
        """Plan a request, and record it with what is new in it.

        `request` has the model, the whole history, and whatever else the provider gets, in its
        `dialect`. `session` names the conversation, otherwise `foldline.conversation` does, or it
        is found by the history, from the model's first answer on. Histories under one name that
        share no beginning, as a sub-agent's, get logs of their own. What cannot be read is returned
        as it was given, and `unplanned` says why.
        """
        session = current_name() if session is None else check_name(session)
        spoken = base.get_dialect(base.must_be_dialect(dialect))
        body, path = _encode_request(spoken, request)
        scope = Scope(session=session)
        why, exchange = "fault", None
        try:
            exchange = await self._conversations.start_exchange(
                spoken, body, scope=scope, path=path
            )
        except (*UNPLANNED, *AWAY) as fault:
            if isinstance(fault, AWAY) and self._on_store_error == "raise":
                raise
            _log.warning("%s: a request is not planned: %s", session or "unnamed", fault)
            why = "store" if isinstance(fault, AWAY) else "unreadable"
            why = "server-state" if isinstance(fault, ServerStateError) else why
        except FoldlineError:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours is no reason to refuse a request
            _log.exception("%s: a request is not planned by a fault of our own", session)
        if exchange is None:
            exchange = await self._conversations.start_unrecorded(
                spoken, body, why=why, scope=scope, path=path
            )
        if exchange is None:
            return _build_unplanned(spoken, request, why)
        # Nobody may ever tell how the call ends, so other requests do not wait for it.
        await exchange.release()
        if session:
            self._newest[session] = exchange.live
            self._newest.move_to_end(session)
            while len(self._newest) > MOST:  # others are opened again
                self._newest.popitem(last=False)
        return _build_plan(FollowCall(exchange, spoken, request, body))

    async def record_usage(
        self,
        plan: FollowPlan,
        *,
        input: int | None = None,  # noqa: A002 - as the event has it
        output: int | None = None,
        cache_read: int | None = None,
        cache_write: int | None = None,
    ) -> None:
        """Record what the provider counted: it corrects the estimates. `input` is all of it."""
        if plan.call is not None and (input or output):
            usage = UsageReported(
                asked=plan.call.exchange.asked,
                input=input,
                cache_read=cache_read,
                cache_write=cache_write,
                output=output,
            )
            await plan.call.exchange.record_usage(usage)

    async def heal(self, plan: FollowPlan, error: Exception) -> FollowPlan:
        """Return a smaller request after the provider refused one as too long.

        Raises the error itself if it is about something else, or if nothing makes it smaller.
        """
        if plan.call is None:
            raise error
        exchange = plan.call.exchange
        fault = of_exception(error, filled=measure_fill(exchange.live))
        if not await exchange.plan_again(fault):
            raise error
        return _build_plan(plan.call)

    async def answer_recall(self, arguments: Mapping[str, Any] | str, *, session: str) -> str:
        """Answer a call of the tool `foldline.RECALL_TOOL` from a session's log."""
        return await (await self.open_session(session)).answer_recall(arguments)

    async def open_session(self, name: str) -> AsyncSession:
        """Return the newest conversation of a name: its report, its edits, undo and recall.

        The store belongs to the follower: leave the session open.
        """
        live = self._newest.get(name)
        if live is not None:
            return AsyncSession(self._conversations.find_newer(live))
        live = await self._conversations.open_stored(Name("local", check_name(name)))
        if live is None:
            raise BadInput(f"nothing was planned in the conversation {name!r} yet")
        return AsyncSession(live)

    async def close(self) -> None:
        """Close the store; the logs stay."""
        await self._conversations.close()


class Follower(Face[AsyncFollower]):
    """Plans requests whose history somebody else keeps, for code that does not await.

    `aio` is the same follower for code that does, in the same process: it runs on another event
    loop, so one conversation is planned through one of the two.
    """

    def __init__(self, **options: "Unpack[Options]") -> None:
        super().__init__(AsyncFollower(**options))

    plan = make_sync(AsyncFollower.plan)
    record_usage = make_sync(AsyncFollower.record_usage)
    heal = make_sync(AsyncFollower.heal)
    answer_recall = make_sync(AsyncFollower.answer_recall)
    close = make_sync(AsyncFollower.close)
    _open = make_sync(AsyncFollower.open_session)

    def open_session(self, name: str) -> Session:
        """Return the newest conversation of a name: its report, its edits, undo and recall."""
        return Session(self._open(name))


def _encode_request(dialect: Dialect, request: Mapping[str, Any]) -> tuple[bytes, PathFacts | None]:
    """Encode a request as a body, and as what its path would say."""
    given = dict(request)
    path = None
    if dialect.names_in_path:
        path = PathFacts(str(given.pop("model", "")), streams=False)
    try:
        return msgspec.json.encode(given), path
    except (TypeError, UnicodeEncodeError, ValueError, RecursionError) as fault:
        raise BadInput(f"the request is not JSON: {fault}") from fault


def _list_given(dialect: Dialect, request: Mapping[str, Any]) -> list[Json]:
    given: Any = request.get(dialect.messages)
    return [*given] if isinstance(given, list | tuple) else []


def _build_unplanned(dialect: Dialect, request: Mapping[str, Any], why: str) -> FollowPlan:
    given = _list_given(dialect, request)
    shown = [PlannedMessage(message, at, same=True) for at, message in enumerate(given)]
    return FollowPlan(dict(request), shown, unplanned=why)


def _build_plan(call: FollowCall) -> FollowPlan:
    exchange, given = call.exchange, _list_given(call.dialect, call.given)
    shown = _find_places(call.dialect, given, call.body, exchange.splices)
    sent: Json = msgspec.json.decode(exchange.body)
    if call.dialect.names_in_path and "model" in call.given:
        sent = {"model": call.given["model"], **sent}
    return FollowPlan(sent, shown, exchange.edits, exchange.unplanned, exchange.report, call)


def _find_places(
    dialect: Dialect, given: list[Json], body: bytes, splices: list[Splice]
) -> list[PlannedMessage]:
    """Find which of the given messages each message of a patched body is."""
    within = find_fields(body)[dialect.messages]
    if not given:
        return []
    places = find_values(body, within)
    inside = sorted(one for one in splices if within.start <= one.start < within.end)
    shown: list[PlannedMessage] = []
    at = 0
    for splice in inside:
        while at < len(places) and places[at].start < splice.start:
            shown.append(PlannedMessage(given[at], at, same=True))
            at += 1
        first = at
        while at < len(places) and places[at].end <= splice.end:
            at += 1
        shown += _pair_written(given, range(first, at), splice.put)
    return [*shown, *(PlannedMessage(given[n], n, same=True) for n in range(at, len(places)))]


def _pair_written(given: list[Json], replaced: range, put: bytes) -> list[PlannedMessage]:
    """Pair what Foldline wrote with the messages that it replaces, one by one where it can."""
    written: list[Json] = msgspec.json.decode(b"[" + put.strip(b",") + b"]")
    if len(written) != len(replaced):
        return [PlannedMessage(one, None, same=False) for one in written]
    shown: list[PlannedMessage] = []
    for at, one in zip(replaced, written, strict=True):
        is_kin = all(one.get(key) == given[at].get(key) for key in ("role", "type", "call_id"))
        is_kin = is_kin and one.get("tool_call_id") == given[at].get("tool_call_id")
        same = is_kin and one == given[at]
        shown.append(PlannedMessage(given[at] if same else one, at if is_kin else None, same=same))
    return shown

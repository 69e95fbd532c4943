"""Plan a request as part of its conversation, and record the answer on its way back.

All of `proxy` that the gateway uses is used here. Without conversations nothing is planned: every
request is relayed as it came (`--plain`). A request that carries a conversation and is not planned
is answered with the reason: its client would otherwise take the gateway's silence for a plan.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.limits import Copy
from foldline.core.cold_cache import ColdCall
from foldline.dialects.base import Dialect, PathFacts, is_signed
from foldline.errors import BrokenView, Conflict, Erased, FoldlineError, WireError
from foldline.proxy.client_request import ServerStateError
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Scope, family_of

_log = logging.getLogger("foldline.gateway")
_CONVERSATIONS: Final = (
    "/chat/completions", "/v1/messages",
    "/responses", "/responses/compact",  # OpenAI's
    ":generateContent", ":streamGenerateContent",  # Gemini's
    ":rawPredict", ":streamRawPredict",  # Claude at Vertex
    "/invoke", "/invoke-with-response-stream", "/converse", "/converse-stream",  # Bedrock's
)  # fmt: skip
_WHY: Final = {
    "dialect": "conversations of this API are not planned",
    "signed": "a body that was changed would not match its signature",
    "unreadable": "the body cannot be read",
    "server-state": "it refers to what its server keeps, so that it is no whole history",
    "brokenview": "its log cannot be shown",
    "conflict": "others keep writing to its log",
    "erased": "its log was erased meanwhile",
    "log-unreadable": "its log is damaged, or sealed with a key that is not here",
    "store-away": "the conversation cannot be kept now",
    "fault": "a fault of the gateway itself",
}
"""Reasons that are warned of here; `proxy` warns of the others itself."""
IN_FORCE: Final = ("brokenview", "conflict", "erased", "store-away", "fault")
"""Reasons for which a request goes out with the edits in force."""
_REMEMBERED = 10_000  # warnings, so that none is repeated
_HELD = 1_000_000  # bytes of a refusal that are read before it is passed on
_HEARD = 64_000_000  # bytes of an answer that are decoded and read


def find_route(path: str) -> str:
    """Return the ending of a path that takes conversations, or "" for other paths."""
    plain = unquote(path).rstrip("/")
    return next((one for one in _CONVERSATIONS if plain.endswith(one)), "")


def find_reason(path: str, headers: Iterable[tuple[bytes, bytes]], dialect: Dialect | None) -> str:
    """Say in a word why a posted conversation is not planned; "" if it is, or is none."""
    if dialect is None and not find_route(path):
        return ""
    if is_signed(headers):
        return "signed"
    return "dialect" if dialect is None else ""


class Warnings:
    """Warns once per client, route and reason that requests are relayed as they come."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str, str, str]] = set()

    def warn_once(self, client: Client, path: str, reason: str) -> None:
        """Log the warning, unless it was logged before."""
        route = find_route(path) or "other"
        warning = (client.tenant, client.name or client.scope, route, reason)
        if reason not in _WHY or warning in self._said:
            return
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said.add(warning)
        who = f"key {client.name}" if client.name else "a client"
        _log.warning(
            "%s: requests to …%s are relayed as they come (%s): %s; this is said once",
            who, route, reason, _WHY[reason],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanHeaders:
    """What clients and operators learn about the plan of a request."""

    session: str = ""
    tokens: int = 0
    edits: int = 0
    """Edits made for this very request."""
    unplanned: str = ""
    """Why it was sent without a plan, in a word."""
    patches: dict[str, int] = field(default_factory=dict[str, int])
    """How many patches of each kind were made in what the client sent."""
    cold: ColdCall | None = None
    """Its price, if the provider's cache has expired since the last request."""

    def encode_headers(self) -> list[tuple[bytes, bytes]]:
        """Encode them as headers of the answer."""
        headers: list[tuple[bytes, bytes]] = []
        if self.session:
            headers += [
                (b"x-foldline-session", self.session.encode()),
                (b"x-foldline-tokens", str(self.tokens).encode()),
                (b"x-foldline-edits", str(self.edits).encode()),
            ]
        if self.patches:
            kinds = ",".join(f"{kind}={count}" for kind, count in sorted(self.patches.items()))
            headers.append((b"x-foldline-patches", kinds.encode()))
        if self.cold is not None:
            prices = self.cold.list_dollars().items()
            dollars = "; ".join(f"{name}={one:.4f}" for name, one in prices)
            headers.append((b"x-foldline-cold", dollars.encode()))
        if self.unplanned:
            headers.append((b"x-foldline-unplanned", self.unplanned.encode()))
        return headers


async def plan_exchange(  # noqa: PLR0913 - a request, and whose it is
    conversations: Conversations,
    dialect: Dialect,
    body: bytes,
    *,
    client: Client,
    session: str,
    headers: Sequence[tuple[bytes, bytes]],
    fold_from: int,
    path: PathFacts | None = None,
) -> "PlannedExchange | PlanHeaders":
    """Plan a request, or say why it cannot be planned: the provider may take it as it came."""
    scope = build_scope(client, session, headers)
    try:
        exchange = await conversations.start_exchange(
            dialect, body, scope=scope, fold_from=fold_from, path=path
        )
        return PlannedExchange(exchange)
    except ServerStateError:
        return PlanHeaders(unplanned="server-state")
    except WireError:
        return PlanHeaders(unplanned="unreadable")
    except (BrokenView, Conflict, Erased) as fault:
        return PlanHeaders(unplanned=type(fault).__name__.lower())


def build_scope(client: Client, session: str, headers: Sequence[tuple[bytes, bytes]]) -> Scope:
    """Say whose conversation the request may continue.

    A bearer token may be renewed in the middle of a conversation, so a client that names its
    conversations by ids that nobody can guess is known by those instead.
    """
    family = family_of(headers)
    has_bearer = any(
        name == b"authorization" and value[:7].lower() == b"bearer " for name, value in headers
    )
    key = "" if client.owner or (family and has_bearer) else client.scope
    holder = f"folds of {client.owner or client.scope}"
    return Scope(client.tenant, key, session, client.owner, family, holder)


def make_plan_headers(exchange: Exchange) -> PlanHeaders:
    """Describe what was done with a request."""
    return PlanHeaders(
        exchange.session,
        exchange.report.total,
        exchange.edits,
        exchange.unplanned,
        exchange.patches,
        exchange.cold,
    )


class PlannedExchange:
    """An exchange that reads its answer along, whatever the answer is encoded in."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.begun = False
        self.held: list[bytes] = []
        """Chunks that came before the answer had opened, as they came."""
        self._copy = Copy(b"", most=_HEARD)
        self._size = 0

    def start_response(self, status: int, encoding: bytes) -> None:
        """Begin to read an answer."""
        self.begun = True
        self.held, self._size = [], 0
        self._copy = Copy(encoding, most=_HEARD)
        self.exchange.start_response(status)

    @property
    def opened(self) -> bool:
        """Whether the answer may be passed on: no other request will be sent instead."""
        if self.exchange.opened or not self._copy.readable:
            return True
        return self._size > _HELD and not self.exchange.rewrites

    @property
    def complete(self) -> bool:
        """Whether all of the answer was read, though its bytes may go on."""
        return self.exchange.complete

    @property
    def relayed(self) -> bool:
        """Whether the upstream gets what the client sent, byte for byte."""
        return self.exchange.relayed

    def receive_chunk(self, chunk: bytes) -> bytes:
        """Read a chunk of the answer; return what the client gets of it."""
        if not self.opened:
            self.held.append(chunk)
            self._size += len(chunk)
        if not self._copy.readable:
            return chunk
        piece = self._copy.feed(chunk)
        passed = self.exchange.receive_chunk(piece) if piece else b""
        return passed if self.exchange.rewrites else chunk

    def list_held(self) -> list[bytes]:
        """List the chunks that were held back, as the client gets them."""
        rewrites = self.exchange.rewrites and self._copy.readable
        return self.exchange.list_held() if rewrites else self.held

    async def heal_refusal(self) -> bool:
        """Whether to send another request instead; not if that one cannot be recorded."""
        try:
            return await self.exchange.heal_refusal()
        except FoldlineError as fault:
            _log.warning("a refusal was not healed: %s", fault)
            return False

    async def answer_calls(self) -> bool:
        """Answer calls of `recall`; return whether there is another request to send."""
        try:
            return await self.exchange.answer_calls()
        except FoldlineError as fault:
            _log.warning("a recall was not answered: %s", fault)
            return False

    async def end_response(self) -> None:
        """Record what was read: no more comes."""
        if self.begun and self._copy.readable:
            await self.exchange.end_response()
        else:
            self.exchange.mark_unanswered()

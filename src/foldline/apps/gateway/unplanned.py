"""Requests that carry a conversation and are not planned: why, and that it is said.

Knows the routes of APIs whose conversations are relayed as they come. A client of one of them would
otherwise take the gateway's silence for a plan. Refuses to know what a request says.
"""

import logging
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from foldline.apps.gateway.keys import Client
from foldline.dialects.base import Dialect
from foldline.dialects.signatures import is_signed

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
}
"""By the reasons that are warned of here; `proxy` says the others itself."""
_REMEMBERED = 10_000  # warnings that are known to have been said


def find_route(path: str) -> str:
    """The kind of conversation that a path takes, as its ending; nothing where it takes none."""
    plain = unquote(path).rstrip("/")
    return next((one for one in _CONVERSATIONS if plain.endswith(one)), "")


def find_reason(path: str, headers: Iterable[tuple[bytes, bytes]], dialect: Dialect | None) -> str:
    """Why a posted conversation is not planned, in a word; nothing where it is, or is none."""
    if dialect is None and not find_route(path):
        return ""
    if is_signed(headers):
        return "signed"
    return "dialect" if dialect is None else ""


class Warnings:
    """Says once for each client, route and reason that requests are relayed as they come."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str, str, str]] = set()

    def warn(self, client: Client, path: str, reason: str) -> None:
        """Say it, unless it was said."""
        route = find_route(path) or "other"
        one = (client.tenant, client.name or client.scope, route, reason)
        if reason not in _WHY or one in self._said:
            return
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said.add(one)
        who = f"key {client.name}" if client.name else "a client"
        _log.warning(
            "%s: requests to …%s are relayed as they come (%s): %s; this is said once",
            who, route, reason, _WHY[reason],
        )  # fmt: skip

"""Guard the sessions of a gateway without keys: programs of this machine reach them, no web page.

A page in a browser of this machine can send requests to a loopback port: across sites, or as its
own site if its name is made to mean 127.0.0.1 (DNS rebinding). So a request has to name this
machine as its host, come from no other site, and show the token of whoever started the gateway.
"""

import hmac
import os
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from foldline.apps.gateway.api_keys import OWN_HEADER, PREFIX, Secret, token_of
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limits import Message
from foldline.errors import BadInput

VARIABLE: Final = "FOLDLINE_TOKEN"
"""The variable that fixes the token, for scripts."""
_SHORTEST = 16  # signs of a token
_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))
_HTTP = 80


def make_token(environment: Mapping[str, str] = os.environ) -> Secret:
    """Make the token of one start: the environment's, else a random one."""
    given = environment.get(VARIABLE)
    if given is None:
        return Secret(f"{PREFIX}local-{secrets.token_urlsafe(32)}")
    # With our prefix it is never relayed: a token sent to the wrong route reaches no provider.
    is_ours = given.startswith(PREFIX) and len(given) >= len(PREFIX) + _SHORTEST
    if not is_ours or not given.isascii() or not given.isprintable() or " " in given:
        raise BadInput(
            f"{VARIABLE} is no token: write {PREFIX} and at least {_SHORTEST} signs without "
            "blanks, or leave it out and take the one that is printed"
        )
    return Secret(given)


def check_request(scope: Message, token: Secret) -> None:
    """Refuse a request that may be a web page's, or that does not show the token."""
    check_site(scope)
    _check_token(scope, token)


def check_site(scope: Message) -> None:
    """Refuse a request to another name than this machine's, or from a page of another site."""
    server = scope.get("server") or ("", 0)
    names = _NAMES | {_format_host(server[0])}
    _check_host(_list_header_values(scope, b"host"), names)
    _check_origin(_list_header_values(scope, b"origin"), names, port=server[1])


def _check_host(hosts: list[str], names: frozenset[str]) -> None:
    host, colon, port = _split_port(hosts[0]) if len(hosts) == 1 else ("", "", "")
    if host not in names or (colon and not port.isdecimal()):
        raise Refusal(
            403,
            "bad_host",
            "sessions are shown under a name of this machine alone: localhost, 127.0.0.1 or [::1]",
        )


def _check_origin(origins: list[str], names: frozenset[str], *, port: int | None) -> None:
    """Refuse other sites: programs send no `Origin`, browsers do on cross-site requests."""
    for origin in origins:
        try:
            parts = urlsplit(origin)
            same = (
                parts.scheme == "http"
                and _format_host(parts.hostname or "") in names
                and (parts.port or _HTTP) == port
                and parts.username is None
                and not (parts.path or parts.query or parts.fragment)
            )
        except ValueError:
            same = False
        if not same:
            raise Refusal(403, "bad_origin", "sessions are not shown to pages of other sites")


def _check_token(scope: Message, token: Secret) -> None:
    wanted = token.reveal().encode()
    shown = [
        token_of(name, value).encode("utf-8", "surrogateescape")
        for name, value in scope["headers"]
        if name in (b"authorization", OWN_HEADER)
    ]
    if not any([hmac.compare_digest(one, wanted) for one in shown]):  # noqa: C419 - each is compared
        raise Refusal(
            401,
            "bad_token",
            "sessions ask for the token that `foldline serve` printed at its start: send it as "
            f"bearer token or as X-Foldline-Key; {VARIABLE} in its environment fixes it",
        )


def _list_header_values(scope: Message, header: bytes) -> list[str]:
    values = [value for name, value in scope["headers"] if name == header]
    return [value.decode("latin-1").strip().lower() for value in values]


def _split_port(host: str) -> tuple[str, str, str]:
    """Split into host, colon and port; an IPv6 address keeps its brackets."""
    if host.startswith("[") and "]" in host:
        address, _, rest = host.partition("]")
        colon, port = rest[:1], rest[1:]
        return (f"{address}]", colon, port) if colon in ("", ":") else ("", "", "")
    return host.partition(":")


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host

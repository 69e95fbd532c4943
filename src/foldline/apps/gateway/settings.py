"""What an operator decides: upstreams, limits, who may come in.

Knows how each is written down and which of it cannot be. Refuses to take any of it from a client.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from foldline.apps.gateway.keys import Keys, Secret
from foldline.apps.gateway.network import Network
from foldline.errors import BadInput
from foldline.session.spending import Caps

OnDisconnect: TypeAlias = Literal["pause", "continue"]
"""What becomes of an answer whose client is gone: it is broken off, or read to its end (A-08)."""
OPENAI, ANTHROPIC, ANY = "openai", "anthropic", ""
_VERSION = "/v1"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """How much, how many, and how long at most."""

    body: int = 32_000_000
    """Bytes of a request, and of what a compressed one unfolds to."""
    held: int = 1_000_000_000
    """Bytes of all requests that are here at a time."""
    headers: int = 65_536
    """Bytes of a request's line and headers."""
    each: int = 1_000
    """Requests of one key at a time."""
    retries: int = 2
    """Times that an upstream is asked again before it has answered."""
    head_seconds: float = 20.0
    """For a client to send its headers."""
    body_seconds: float = 60.0
    """And its body."""
    connect_seconds: float = 10.0
    first_seconds: float = 600.0
    """For an upstream to begin its answer; one that is not streamed is long in the making."""
    idle_seconds: float = 300.0
    """Without a byte of an answer that has begun, or without a client that takes one."""
    drain_seconds: float = 30.0
    """For answers under way to end when the gateway does."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider's address, as its SDK is given it."""

    host: str
    """With the scheme before it."""
    path: str = ""
    key: Secret | None = None
    """The operator's own key, for clients that show one of the gateway's."""

    def base(self, speaks: str) -> str:
        """An SDK's `base_url`: OpenAI's has the version in it, Anthropic's has it in each path."""
        if speaks == OPENAI:
            return f"{self.host}{self.path or _VERSION}"
        return f"{self.host}{self.path.removesuffix(_VERSION)}"

    def at(self, path: str, speaks: str) -> str:
        """Where a client's path is: OpenAI's clients say `/v1` for whatever the base ends in."""
        if speaks == OPENAI and path.startswith(f"{_VERSION}/"):
            return f"{self.base(OPENAI)}{path.removeprefix(_VERSION)}"
        return f"{self.base(ANTHROPIC)}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All of it."""

    upstreams: Mapping[str, Upstream]
    """By dialect; `ANY` is for what has none of its own."""
    keys: Keys | None = None
    """The gateway's own keys; none: whoever reaches it may use it with a provider's key."""
    token: Secret | None = None
    """What the session API asks for where there are no keys: `local_access.make_token`."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    network: Network = field(default_factory=Network)
    """The way to upstreams: `network.read_network` reads it from the environment."""
    on_disconnect: OnDisconnect = "pause"
    tenant: str = "local"
    """Whose sessions they are where no key of ours says so."""
    fold_from: Mapping[str, int] = field(default_factory=dict[str, int])
    """From how many tokens on requests are edited that could be sent as they are: by how a client's
    user agent begins; "" is for all others."""
    caps: Caps | None = None
    """The most that sessions of the session API may spend. What is relayed is the client's."""

    def fold_from_for(self, agent: bytes) -> int:
        """From how many tokens on requests of a client are edited."""
        name = agent.decode("latin-1").lower()
        found = (begins for begins in self.fold_from if begins and name.startswith(begins))
        return self.fold_from.get(max(found, key=len, default=""), 0)

    def upstream(self, dialect: str) -> Upstream | None:
        """Where a dialect is spoken."""
        return self.upstreams.get(dialect) or self.upstreams.get(ANY)


def upstreams(
    given: Sequence[str], environment: Mapping[str, str] = os.environ
) -> dict[str, Upstream]:
    """Addresses as an operator writes them: `URL`, `openai=URL`, `anthropic=URL`.

    A key is read from `FOLDLINE_UPSTREAM_KEY`, or `FOLDLINE_UPSTREAM_KEY_OPENAI` for one of them.
    """
    found: dict[str, Upstream] = {}
    for one in given:
        name, is_named, url = one.partition("=")
        if not is_named or "/" in name:
            name, url = ANY, one
        if name not in (ANY, OPENAI, ANTHROPIC):
            raise BadInput(f"--upstream {one!r}: write openai=URL, anthropic=URL, or a URL alone")
        if name in found:
            raise BadInput(f"--upstream {one!r}: there is one for {name or 'all'} already")
        variable = "FOLDLINE_UPSTREAM_KEY" + (f"_{name.upper()}" if name else "")
        key = environment.get(variable) or environment.get("FOLDLINE_UPSTREAM_KEY")
        found[name] = Upstream(*_address(url), Secret(key) if key else None)
    if not found:
        raise BadInput("no upstream: write --upstream https://api.openai.com")
    return found


def fold_from(given: Sequence[str]) -> dict[str, int]:
    """Numbers of tokens as an operator writes them: `60000`, `claude-cli=120000`."""
    found: dict[str, int] = {}
    for one in given:
        agent, _, tokens = one.rpartition("=")
        if not tokens.isascii() or not tokens.isdigit():
            raise BadInput(f"--fold-from {one!r}: write TOKENS, or AGENT=TOKENS")
        found[agent.lower()] = int(tokens)
    return found


def _address(url: str) -> tuple[str, str]:
    """The host with its scheme, and the path."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as fault:
        raise BadInput(f"--upstream {url!r} is no address: {fault}") from fault
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"--upstream {url!r}: write http://HOST:PORT or https://HOST")
    if parts.username or parts.password:
        raise BadInput(
            "an upstream's address with a name or password in it is seen by others; "
            "put the key into FOLDLINE_UPSTREAM_KEY"
        )
    if parts.query or parts.fragment:
        raise BadInput(f"--upstream {url!r}: an address ends before its ? and #")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{port}" if port else host
    return f"{parts.scheme}://{place}", parts.path.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether only this machine comes by there."""
    return host in _LOOPBACK


def must_be_closed(host: str, *, keys: Keys | None, is_open: bool) -> None:
    """Refuse to stand where strangers come by without asking who they are."""
    if is_loopback(host) or keys is not None or is_open:
        return
    raise BadInput(
        f"at {host} anybody could use this gateway: give --keys FILE, which "
        "`foldline keys add NAME --keys FILE` makes, or say --open where something else guards it"
    )

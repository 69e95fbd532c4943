"""The operator's settings of a gateway: upstreams, limits, keys. No client can change them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from foldline.apps.gateway.api_keys import KeySource, Secret
from foldline.apps.gateway.current_settings import CurrentSettings
from foldline.apps.gateway.network import Network
from foldline.apps.gateway.provider_routes import RouteFilter
from foldline.dialects.base import Vendor, list_vendors
from foldline.errors import BadInput
from foldline.session.spending import Caps
from foldline.settings.tree import GatewayTable

OnDisconnect: TypeAlias = Literal["pause", "continue"]
"""What happens to an answer whose client is gone: it is broken off, or read to its end."""
ANY = ""
"""Names the upstream of vendors that have none of their own."""
_VERSION = "/v1"  # some operators write it behind every address
_DEFAULTS = GatewayTable()
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """The most that requests may take, in bytes, number and seconds."""

    body: int = 32_000_000
    """Bytes of a request's body, also after it is decompressed."""
    held: int = _DEFAULTS.max_memory
    """Bytes of memory for requests under way and idle conversations."""
    messages: int = _DEFAULTS.max_messages
    """Messages of a request."""
    values: int = _DEFAULTS.max_values
    """JSON values of a request."""
    headers: int = 65_536
    """Bytes of a request's line and headers."""
    each: int = 1_000
    """Requests of one key at a time."""
    retries: int = 2
    """How often an upstream that has not answered is asked again."""
    head_seconds: float = 20.0
    """For a client to send its headers."""
    body_seconds: float = 60.0
    """For a client to send its body."""
    connect_seconds: float = 10.0
    first_seconds: float = 600.0
    """For an upstream to begin its answer; one that is not streamed takes long to begin."""
    idle_seconds: float = 300.0
    """During an answer, without a byte from the upstream or without the client taking one."""
    drain_seconds: float = 30.0
    """For answers under way to end when the gateway stops."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider's address, as its SDK would be given it."""

    host: str
    """With the scheme in front."""
    path: str = ""
    key: Secret | None = None
    """The operator's own key, for clients that present one of the gateway's."""

    def build_base_url(self, vendor: Vendor) -> str:
        """Build an SDK's `base_url`: OpenAI's holds the version, Anthropic's does not."""
        if vendor.version:
            return f"{self.host}{self.path or vendor.version}"
        return f"{self.host}{self.path.removesuffix(_VERSION)}"

    def build_url(self, path: str, vendor: Vendor) -> str:
        """Build the URL of a client's path; an OpenAI client's `/v1` stands for the base path."""
        if vendor.version and path.startswith(f"{vendor.version}/"):
            return f"{self.build_base_url(vendor)}{path.removeprefix(vendor.version)}"
        return f"{self.host}{self.path.removesuffix(_VERSION)}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of a gateway."""

    upstreams: Mapping[str, Upstream]
    """By vendor; `ANY` serves those that have none of their own."""
    keys: KeySource | None = None
    """The gateway's own keys; without them anyone who reaches it may use a provider's key."""
    token: Secret | None = None
    """The session API's token if there are no keys: see `local_access.make_token`."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    passage: RouteFilter | None = None
    """What may pass; None: with keys the default routes, and without keys, where clients show
    their own provider's, all."""
    network: Network = field(default_factory=Network)
    """How upstreams are reached: `network.read_network` reads it from the environment."""
    on_disconnect: OnDisconnect = "pause"
    tenant: str = "local"
    """Who owns sessions if no key says so."""
    fold_from: Mapping[str, int] = field(default_factory=dict[str, int])
    """From how many tokens on requests are edited although they fit: by the beginning of a client's
    user agent; "" is for all others."""
    relays_faults: bool = False
    """Whether a request that cannot be planned, by a fault of the store, is relayed as it came;
    else it is refused, so that no conversation grows past what is recorded."""
    caps: Caps | None = None
    """The most that sessions of the session API may spend; relayed requests are not counted."""
    current: CurrentSettings | None = None
    """The settings of sessions, as the terminal reads them, by tenant; None: as each session's log
    says."""

    def get_passage(self) -> RouteFilter:
        """Return what may pass."""
        return self.passage or RouteFilter(is_open=self.keys is None)

    def relays_without_store(self, tenant: str) -> bool:
        """Whether a tenant's requests are relayed while their conversations cannot be kept."""
        if self.relays_faults or self.current is None:
            return self.relays_faults
        return self.current.find_tenant(tenant).gateway.on_store_failure == "open"

    def fold_from_for(self, agent: bytes) -> int:
        """Return from how many tokens on a client's requests are edited."""
        name = agent.decode("latin-1").lower()
        found = (begins for begins in self.fold_from if begins and name.startswith(begins))
        return self.fold_from.get(max(found, key=len, default=""), 0)

    def name_upstream(self, vendor: Vendor) -> str:
        """Return the name of the upstream that `find_upstream` finds, or its host."""
        if vendor.name in self.upstreams or ANY not in self.upstreams:
            return vendor.name
        return self.upstreams[ANY].host.partition("://")[2]

    def find_upstream(self, vendor: Vendor) -> Upstream | None:
        """Return the upstream that speaks as a vendor does."""
        return self.upstreams.get(vendor.name) or self.upstreams.get(ANY)


def parse_upstreams(
    given: Sequence[str], environment: Mapping[str, str] = os.environ
) -> dict[str, Upstream]:
    """Parse addresses as an operator writes them: `URL`, `openai=URL`, `anthropic=URL`.

    Keys are read from `FOLDLINE_UPSTREAM_KEY`, or `FOLDLINE_UPSTREAM_KEY_OPENAI` for one vendor.
    """
    found: dict[str, Upstream] = {}
    for one in given:
        name, is_named, url = one.partition("=")
        if not is_named or "/" in name:
            name, url = ANY, one
        if name != ANY and name not in list_vendors():
            ways = ", ".join(f"{vendor}=URL" for vendor in list_vendors())
            raise BadInput(f"--upstream {one!r}: write {ways}, or a URL alone")
        if name in found:
            raise BadInput(f"--upstream {one!r}: there is one for {name or 'all'} already")
        variable = "FOLDLINE_UPSTREAM_KEY" + (f"_{name.upper()}" if name else "")
        key = environment.get(variable) or environment.get("FOLDLINE_UPSTREAM_KEY")
        found[name] = Upstream(*_parse_address(url), Secret(key) if key else None)
    if not found:
        raise BadInput("no upstream: write --upstream https://api.openai.com")
    return found


def fold_from(given: Sequence[str]) -> dict[str, int]:
    """Parse numbers of tokens as an operator writes them: `60000`, `claude-cli=120000`."""
    found: dict[str, int] = {}
    for one in given:
        agent, _, tokens = one.rpartition("=")
        if not tokens.isascii() or not tokens.isdigit():
            raise BadInput(f"--fold-from {one!r}: write TOKENS, or AGENT=TOKENS")
        found[agent.lower()] = int(tokens)
    return found


def _parse_address(url: str) -> tuple[str, str]:
    """Split a URL into the host with its scheme, and the path."""
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
    """Whether only this machine can connect to `host`."""
    return host in _LOOPBACK


def must_be_closed(host: str, *, has_keys: bool, is_open: bool) -> None:
    """Refuse to listen beyond loopback without keys, unless that is asked for."""
    if is_loopback(host) or has_keys or is_open:
        return
    raise BadInput(
        f"at {host} anybody could use this gateway: give --keys store, with keys that "
        "`foldline keys add NAME` makes, or say --open where something else guards it"
    )

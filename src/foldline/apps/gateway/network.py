"""How upstreams are reached: through which proxy, and whose certificates are trusted.

Reads HTTP_PROXY, HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR. aiohttp's own `trust_env`
is not used: it also reads ~/.netrc, and would send the operator's login from there with the
request of a client that has none.
"""

import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit

from yarl import URL

from foldline.apps.gateway.api_keys import Secret
from foldline.errors import BadInput

_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy's address, and its login apart: an address may be shown, a login never."""

    address: str
    login: Secret | None = None
    """The value of `Proxy-Authorization`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How to connect; by default directly, and with the system's certificates."""

    proxies: Mapping[str, Proxy] = field(default_factory=dict[str, Proxy])
    """By the scheme of the upstream's address."""
    no_proxy: str = ""
    """Hosts that are reached without a proxy, as NO_PROXY lists them."""
    tls: ssl.SSLContext | None = None

    def find_proxy(self, url: URL) -> Proxy | None:
        """Return the proxy for a URL, if it needs one."""
        entries = self.no_proxy.replace(",", " ").lower().split()
        if any(_is_named(url, entry) for entry in entries):
            return None
        return self.proxies.get(url.scheme)


def _is_named(url: URL, listed: str) -> bool:
    """Whether an entry of NO_PROXY covers a URL: by host, domain, port or network."""
    host = (url.host or "").lower()
    if listed == "*" or listed.strip("[]") == host:
        return True
    if listed in (f"{host}:{url.port}", f"[{host}]:{url.port}"):
        return True
    if "/" in listed:
        try:
            return ip_address(host) in ip_network(listed, strict=False)
        except ValueError:
            return False
    domain = listed.removeprefix("*").removeprefix(".")
    return host == domain or host.endswith(f".{domain}")


def read_network(
    environment: Mapping[str, str] = os.environ, *, ca: str | Path | None = None
) -> Network:
    """Read the network settings from the environment; `ca` is trusted in addition."""
    found = {scheme: _read_proxy(environment, scheme) for scheme in _SCHEMES}
    return Network(
        proxies={scheme: proxy for scheme, proxy in found.items() if proxy is not None},
        no_proxy=_read_variable(environment, "no_proxy")[1],
        tls=make_tls(environment, ca=ca),
    )


def make_tls(environment: Mapping[str, str], *, ca: str | Path | None = None) -> ssl.SSLContext:
    """Build the TLS context; a file without certificates is refused."""
    file, folder = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
    try:
        # With files given, no others are loaded: the variables replace the system's certificates.
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as fault:
        raise _bad_file(f"SSL_CERT_FILE={file}", fault) from fault
    if ca is not None:
        try:
            context.load_verify_locations(cafile=ca)
        except OSError as fault:
            raise _bad_file(f"--ca {ca}", fault) from fault
    return context


def _bad_file(where: str, fault: OSError) -> BadInput:
    if isinstance(fault, ssl.SSLError):
        return BadInput(f"{where} holds no certificate; write a CA's certificates there, as PEM")
    return BadInput(f"{where} cannot be read: {fault.strerror}")


def _read_proxy(environment: Mapping[str, str], scheme: str) -> Proxy | None:
    name, value = _read_variable(environment, f"{scheme}_proxy")
    if not value:
        return None
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = None, None, None
    if parts is None or not host or parts.scheme not in _SCHEMES:
        # The value is not shown: it may hold a password.
        raise BadInput(f"{name} is no address of an HTTP proxy; write http://HOST:PORT")
    host = f"[{host}]" if ":" in host else host
    login = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = Secret(f"Basic {b64encode(pair.encode()).decode()}")
    return Proxy(f"{parts.scheme}://{host}{f':{port}' if port else ''}", login)


def _read_variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """Read a variable by its lower-case name, else by its upper-case one, as curl does."""
    name = name if name in environment else name.upper()
    return name, environment.get(name, "").strip()

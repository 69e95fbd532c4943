"""Addresses of model servers: read, compared, and found where nobody names one.

Knows which variable an SDK reads its address from, and where it goes without one. Refuses to know
sessions: `session.host` keeps a session at its address.
"""

import os
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from foldline.dialects import base
from foldline.errors import BadInput

VARIABLES = {"openai-chat": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
"""What each SDK reads its address from, by dialect."""
DEFAULTS = {"openai-chat": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""Where each SDK goes where nobody says otherwise."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PORTS = {"http": 80, "https": 443}


def dialect_of(model: str) -> str:
    """The name of the dialect that a model is asked in: `openai-chat` or `anthropic`."""
    return base.speaking(model).name


def environment_address(dialect: str, env: Mapping[str, str] = os.environ) -> str | None:
    """The address that the environment names for a dialect's SDK."""
    return env.get(VARIABLES[dialect]) or None


def normalize_address(url: str) -> str:
    """Scheme, host, port and path in one spelling; without a user's name, a key or a query."""
    found = _parse(url)
    host = _host(found)
    shown = f"[{host}]" if ":" in host else host
    port = "" if found.port in (None, _PORTS[found.scheme]) else f":{found.port}"
    return f"{found.scheme}://{shown}{port}{found.path.rstrip('/')}"


def is_same_address(one: str, other: str) -> bool:
    """Whether two addresses are one server's; this machine's names are one on the same port."""
    return _compared(one) == _compared(other)


def _compared(url: str) -> tuple[str, str, int, str]:
    found = _parse(url)
    host = _host(found)
    port = _PORTS[found.scheme] if found.port is None else found.port
    return found.scheme, "localhost" if host in _LOOPBACK else host, port, found.path.rstrip("/")


def _host(found: SplitResult) -> str:
    return (found.hostname or "").rstrip(".")


def _parse(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        known = found.scheme in _PORTS and bool(_host(found)) and found.port != 0
    except ValueError:
        found, known = urlsplit(""), False
    if not known or not url.isprintable() or " " in url:
        shown = url.rpartition("@")[2]  # what stands before it may be a password
        raise BadInput(f"{shown!r} is no address; write --base-url http://127.0.0.1:8080/v1")
    return found

"""Whether the gateway lives, is ready, and what it counts.

Knows three paths that are never an upstream's. Refuses to ask upstreams: one that is away takes no
gateway out of a balancer.
"""

import asyncio
from time import monotonic

import msgspec

from foldline.apps.gateway.audit import Figures
from foldline.errors import FoldlineError
from foldline.stores.base import Store

ALIVE, READY, FIGURES = "/healthz", "/readyz", "/metrics"
PATHS = frozenset((ALIVE, READY, FIGURES))
_SECONDS = 2.0  # for the store to answer
_LASTS = 1.0  # second that an answer of the store stands: asking often costs it nothing


class GatewayHealth:
    """How it is."""

    def __init__(self, store: Store | None, figures: Figures | None, *, tenant: str) -> None:
        self._store, self._figures, self._tenant = store, figures, tenant
        self._asked, self._answered = -_LASTS, True
        self.draining = False
        """Whether it is about to end: balancers should look elsewhere."""

    async def page(self, path: str) -> tuple[int, bytes, bytes]:
        """Status, kind and body of a page."""
        if path == FIGURES:
            if self._figures is None:
                return 404, b"text/plain", b"no figures: pip install 'foldline[metrics]'\n"
            return 200, b"text/plain; version=0.0.4; charset=utf-8", self._figures.text()
        if path == ALIVE:
            return 200, b"application/json", b'{"status":"alive"}'
        if self.draining:
            status = "draining"
        else:
            status = "ready" if await self._reachable() else "store away"
        body = msgspec.json.encode({"status": status})
        return 200 if status == "ready" else 503, b"application/json", body

    async def _reachable(self) -> bool:
        if self._store is None:
            return True
        if monotonic() - self._asked >= _LASTS:
            self._asked = monotonic()
            try:
                async with asyncio.timeout(_SECONDS):
                    await self._store.sessions(self._tenant, limit=1)
            except (FoldlineError, OSError, TimeoutError):
                self._answered = False
            else:
                self._answered = True
        return self._answered

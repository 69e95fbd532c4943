"""A gateway on a real port, in this process: for tests of clients and of the gateway itself.

with Served(upstream.url, store=":memory:") as gateway:
    client = OpenAI(base_url=gateway.url + "/v1", api_key="none")
    sessions = httpx.get(gateway.url + "/sessions", headers=gateway.headers)
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

from foldline.apps.gateway import local_access, server
from foldline.apps.gateway.asgi import Gateway
from foldline.apps.gateway.audit import Audit
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.core.plan import Facts
from foldline.proxy.conversations import Conversations
from foldline.session.model_facts import build_facts
from foldline.stores.open_store import store_at


class Served:
    """A gateway in a thread of its own, with sessions in a store, or none."""

    gateway: Gateway
    conversations: Conversations | None

    def __init__(
        self,
        upstream: str | GatewaySettings,
        *,
        store: str | None = None,
        window: int | None = None,
        audit: Path | None = None,
        recall: bool = False,
    ) -> None:
        self._settings = (
            upstream
            if isinstance(upstream, GatewaySettings)
            else GatewaySettings(upstreams=parse_upstreams([upstream], {}))
        )
        self._store, self._window, self._audit = store, window, audit
        self._recall = recall
        self._listening = server.open_socket("127.0.0.1", 0)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers: dict[str, str] = {}
        """What a request for sessions carries where the gateway has no keys."""
        if self._settings.keys is None:
            token = self._settings.token or local_access.make_token({})
            self._settings = replace(self._settings, token=token)
            self.headers = {"authorization": f"Bearer {token.reveal()}"}
        self._ready = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: server.Served | None = None

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """What SIGTERM does."""
        if self._loop is not None and self._server is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._server.stop)

    def _made(self) -> Gateway:
        store = store_at(self._store) if self._store is not None else None
        self.conversations = None
        if store is not None:
            self.conversations = Conversations(store, self._facts, shared=True, recall=self._recall)
        return Gateway(
            self._settings,
            store=store,
            conversations=self.conversations,
            sessions=True,
            audit=Audit(self._audit) if self._audit is not None else None,
        )

    def _facts(self, model: str) -> Facts:
        return build_facts(model, window=self._window, reserve=None, policy="steady")

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self.gateway = self._made()
            self._server = server.Served(self.gateway)
            self._ready.set()
            await self._server.serve(sockets=[self._listening])

        server.set_up_logging()
        with asyncio.Runner(loop_factory=_uvloop()) as runner:
            runner.run(serve())


def _uvloop() -> Any:
    import uvloop  # noqa: PLC0415 - of the extra

    return uvloop.new_event_loop

"""The pages of this machine: reached under its own name alone, with the ticket.

`foldline ui` serves them by themselves. A gateway without keys mounts them under the same rules.
"""

import hmac
from typing import Any

from foldline.apps.gateway import local_access
from foldline.apps.gateway.api.pool import Pool
from foldline.apps.gateway.api_keys import Client, KeySource, Secret, digest_of
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.settings import GatewaySettings
from foldline.apps.pages.access import CheckDigest, SignIns
from foldline.apps.pages.page_call import HEADERS, compile_templates
from foldline.apps.pages.pages_app import PagesApp
from foldline.stores.base import Store


def check_local_token(token: Secret | None, *, tenant: str) -> CheckDigest:
    """Return a check that takes the token for the operator of this machine."""
    known = digest_of(token.reveal()) if token is not None else ""

    async def check(digest: str) -> Client | None:
        is_known = bool(known) and hmac.compare_digest(digest, known)
        return Client(tenant, "", role="admin") if is_known else None

    return check


def check_keys(keys: KeySource) -> CheckDigest:
    """Return a check by the gateway's keys, as they are at each request."""

    async def check(digest: str) -> Client | None:
        return await keys.identify(digest, anew=True)

    return check


def make_sign_ins(settings: GatewaySettings, *, port: int, store: Store | None) -> SignIns:
    """Make the sign-ins of a gateway: by its keys, or by the token of this start.

    They are kept in the store, so that each of several processes at one port knows them.
    """
    keys, token = settings.keys, settings.token
    return SignIns(
        check_local_token(token, tenant=settings.tenant) if keys is None else check_keys(keys),
        cookie=name_cookie(port),
        may_edit=True,
        token=token if keys is None else None,
        side=store,
        tenant=settings.tenant,
    )


def name_cookie(port: int) -> str:
    """Name the cookie of a port: browsers send a machine's cookies to all of its ports."""
    return f"foldline-{port}"


class LocalPages:
    """The pages of `foldline ui` as an ASGI application."""

    def __init__(self, pool: Pool, sign_ins: SignIns) -> None:
        self._pages = PagesApp(pool, sign_ins)
        self._pool = pool

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or the lifespan of the process."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        try:
            local_access.check_site(scope)
        except Refusal as refusal:
            await _send_refusal(send, refusal)
            return
        await self._pages(scope, receive, send)

    async def _run_lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        compile_templates()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._pages.close()
        await self._pool.close()
        await self._pool.place.store.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _send_refusal(send: Any, refusal: Refusal) -> None:
    body = refusal.message.encode()
    given = (("content-type", "text/plain; charset=utf-8"), *HEADERS)
    headers = [(name.encode(), value.encode()) for name, value in given]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

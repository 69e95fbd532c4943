"""The pages as one ASGI application: its table of pages, signing in, and errors.

    app = PagesApp(pool, sign_ins)       # mounted behind a check of hosts
    await app.close()

Only a browser that is signed in reaches a page. A change is posted from a form
of a page, and only by those who may edit.

`foldline ui` serves them by themselves. A gateway without keys mounts them under the same rules.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from foldline.apps.gateway import local_access
from foldline.apps.gateway.api.api_call import Misfit, build_error_answer, read_body
from foldline.apps.gateway.api.pool import Pool
from foldline.apps.gateway.api_keys import Client, KeySource, Secret, digest_of
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.settings import GatewaySettings
from foldline.apps.pages import change_pages, fleet_pages, session_pages, what_if
from foldline.apps.pages.access import CheckDigest, SignIns, Visitor, holds_form_word, is_from_here
from foldline.apps.pages.figures import FiguresKept
from foldline.apps.pages.page_call import (
    HEADERS,
    PageAnswer,
    PageCall,
    compile_templates,
    load_static,
    parse_pairs,
    render_outside,
)
from foldline.apps.pages.session_list import SessionLists
from foldline.apps.pages.session_pages import Searches
from foldline.stores.base import Store

Show = Callable[[PageCall], Awaitable[PageAnswer]]
_FORM = 32_768  # bytes of a form
_STATIC: Final = {
    "/static/pages.css": ("pages.css", "text/css; charset=utf-8"),
    "/static/pages.js": ("pages.js", "text/javascript; charset=utf-8"),
    "/static/mark.svg": ("mark.svg", "image/svg+xml"),
}
READ: Final[dict[str, Show]] = {
    "/": session_pages.show_sessions,
    "/search": session_pages.show_search,
    "/session": session_pages.show_session,
    "/picture.svg": session_pages.show_picture,
    "/original": session_pages.show_original,
    "/edit": session_pages.show_edit,
    "/change.svg": session_pages.show_change_picture,
    "/fold": change_pages.show_fold,
    "/undo": change_pages.show_undo,
    "/pin": change_pages.show_pin,
    "/what-if": what_if.show_choice,
    "/fleet": fleet_pages.show_fleet,
    "/fleet.csv": fleet_pages.export_fleet,
}
"""Pages that change nothing."""
CHANGE: Final[dict[str, Show]] = {
    "/fold": change_pages.fold,
    "/undo": change_pages.undo,
    "/pin": change_pages.pin,
}
"""Changes, for those who may edit."""
COMPUTE: Final[dict[str, Show]] = {"/what-if": what_if.compare}
"""Posted because it takes seconds; it changes nothing."""


class PagesApp:
    """All pages of a store."""

    def __init__(self, pool: Pool, sign_ins: SignIns) -> None:
        self._pool, self.sign_ins = pool, sign_ins
        figures = FiguresKept(pool.place.store, pool.place.facts_of_tenant)
        self._lists, self._searches = SessionLists(pool.place.store, figures), Searches()

    async def close(self) -> None:
        """Stop what runs in the background; the store stays open."""
        await self._lists.close()
        await self._searches.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        root: str = scope.get("root_path", "")
        self._lists.figures.step_aside()
        try:
            answer = await self._answer(scope, receive, root)
        except Refusal as refusal:
            answer = _render_fault(refusal.status, refusal.message, root)
        except Exception as fault:  # noqa: BLE001 - every error becomes a page
            found = build_error_answer(fault)
            error = found.body.error
            words = "; ".join(part for part in (error.message, error.way_out) if part)
            answer = _render_fault(found.status, words, root)
        await _send_answer(send, answer, scope["method"])

    async def _answer(self, scope: Any, receive: Any, root: str) -> PageAnswer:
        path, method = scope["path"].removeprefix(root) or "/", scope["method"]
        if path in _STATIC and method in ("GET", "HEAD"):
            name, media = _STATIC[path]
            return PageAnswer(load_static(name), media)
        if method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, "bad_method", f"{method[:20]} is not answered here")
        if path in ("/enter", "/sign-in", "/sign-out"):
            return await self._sign(scope, receive, path, root)
        visitor = await self.sign_ins.find_visitor(scope)
        if visitor is None:
            return render_outside("sign_in.html", root, status=401, fault="")
        pairs = parse_pairs(scope.get("query_string", b""), what="address")
        call = PageCall(self._pool, self._lists, self._searches, visitor, root, dict(pairs))
        if method == "POST":
            return await self._change(call, scope, receive, path)
        if path not in READ:
            raise Refusal(
                404, "no_page", "there is no such page; the list of sessions is the first"
            )
        return await READ[path](call)

    async def _change(self, call: PageCall, scope: Any, receive: Any, path: str) -> PageAnswer:
        pairs = await self._read_form(scope, receive)
        form = dict(pairs)
        if not holds_form_word(call.visitor, form.get("word", "")):
            raise Refusal(403, "bad_form", "this form is not of this visit; open the page again")
        if path not in CHANGE and path not in COMPUTE:
            raise Refusal(405, "bad_method", "nothing is changed here")
        chosen = tuple(value for key, value in pairs if key == "policy")
        call = replace(call, form=form, chosen=chosen)
        if path in CHANGE:
            call.must_edit()
            return await CHANGE[path](call)
        return await COMPUTE[path](call)

    async def _read_form(self, scope: Any, receive: Any) -> list[tuple[str, str]]:
        if not is_from_here(scope):
            raise Refusal(403, "bad_origin", "a change is only taken from a page of this address")
        media = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        if media.partition(b";")[0].strip().lower() != b"application/x-www-form-urlencoded":
            raise Misfit(415, "a form is sent as application/x-www-form-urlencoded")
        return parse_pairs(await read_body(receive, most=_FORM), what="form")

    async def _sign(self, scope: Any, receive: Any, path: str, root: str) -> PageAnswer:
        """Sign in by a ticket or a key, or sign out."""
        visitor = await self.sign_ins.find_visitor(scope)
        if path == "/enter":
            ticket = dict(parse_pairs(scope["query_string"], what="address")).get("ticket", "")
            word = await self.sign_ins.redeem_ticket(ticket) if scope["method"] == "GET" else None
            if word is None and visitor is None:
                return render_outside("sign_in.html", root, status=401, fault="used")
            # No redirect: a browser that comes from elsewhere would follow it without the cookie.
            return self._set_cookie(scope, word, root, "enter.html")
        if scope["method"] != "POST":
            return render_outside("sign_in.html", root, fault="")
        form = dict(await self._read_form(scope, receive))
        if path == "/sign-out":
            return await self._sign_out(scope, visitor, form, root)
        word = await self.sign_ins.sign_in(
            form.get("key", "").strip(), tenant=form.get("tenant", "").strip()
        )
        if word is None:
            return render_outside("sign_in.html", root, status=401, fault="unknown")
        return self._set_cookie(scope, word, root, "enter.html")

    async def _sign_out(
        self, scope: Any, visitor: Visitor | None, form: dict[str, str], root: str
    ) -> PageAnswer:
        if visitor is not None and not holds_form_word(visitor, form.get("word", "")):
            raise Refusal(403, "bad_form", "this form is not of this visit; open the page again")
        await self.sign_ins.sign_out(scope)
        return self._set_cookie(scope, "", root, "sign_in.html")

    def _set_cookie(self, scope: Any, word: str | None, root: str, template: str) -> PageAnswer:
        page = render_outside(template, root, fault="")
        if word is None:
            return page
        # A proxy that ends TLS hands requests on as http; the browser still names what it sees.
        origins = [value for name, value in scope["headers"] if name == b"origin"]
        secure = scope.get("scheme") == "https" or origins[:1] == [b"https://" + _find_host(scope)]
        cookie = self.sign_ins.format_cookie(word, path=root or "/", secure=secure)
        refresh = (("refresh", f"0; url={root}/"),) if template == "enter.html" else ()
        return PageAnswer(page.body, headers=(("set-cookie", cookie), *refresh))


def _find_host(scope: Any) -> bytes:
    return next((value for name, value in scope["headers"] if name == b"host"), b"")


def _render_fault(status: int, words: str, root: str) -> PageAnswer:
    if status >= 500:  # noqa: PLR2004 - faults of ours
        logging.getLogger("foldline.pages").warning("a page failed: %s", words)
    return render_outside("fault.html", root, status=status, words=words)


async def _send_answer(send: Any, answer: PageAnswer, method: str) -> None:
    body = b"" if method == "HEAD" else answer.body
    headers = [
        ("content-type", answer.media),
        ("content-length", str(len(answer.body))),
        *HEADERS,
        *answer.headers,
    ]
    pairs = [
        (name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


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

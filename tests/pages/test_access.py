"""Who sees a page and who changes something: signing in, cookies, keys, roles, and forged forms."""

import asyncio

import pytest
from browsing import HOST, ORIGIN, Browser, opened
from logs import conversation, fold, write

from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.apps.pages.pages_app import CHANGE, COMPUTE, READ, PagesApp, make_sign_ins
from foldline.stores.open_store import store_at

POSTED = {"/fold": {}, "/undo": {}, "/pin": {"at": 2, "on": 1}, "/what-if": {"policy": "thrifty"}}
"""What the form of each page that is posted holds besides the session; a new one is named here."""


def test_every_posted_page_is_in_these_tests():
    assert POSTED.keys() == CHANGE.keys() | COMPUTE.keys()


def test_a_ticket_signs_one_browser_in_once():
    async def work():
        async with opened() as browser:
            ticket = browser.sign_ins.issue_ticket()
            first, second = Browser(browser.app), Browser(browser.app)
            came = await first.get("/enter", ticket=ticket)
            cookie = came.headers["set-cookie"]
            assert came.status == 200
            assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
            assert (await first.get("/")).status == 200
            assert ticket not in cookie
            assert browser.token.reveal() not in cookie
            again = await second.get("/enter", ticket=ticket)
            assert again.status == 401
            assert "set-cookie" not in again.headers
            assert (await second.get("/")).status == 401
            for wrong in ("", "x", ticket[:-1], "\udcff"):
                assert (await second.ask("GET", f"/enter?ticket={wrong!a}")).status == 401

    asyncio.run(work())


@pytest.mark.parametrize("path", [*READ, "/nothing"])
def test_nobody_sees_a_page_without_signing_in(path):
    async def work():
        async with opened() as browser:
            await write(browser.store, "canary", conversation(1))
            stranger = Browser(browser.app)
            for cookie in (
                "",
                "foldline-8123=",
                "foldline-8123=x",
                f"other={browser.cookie}",
                "a=b; ;=;\x7f",
            ):
                stranger.cookie = cookie
                came = await stranger.get(path, name="canary")
                assert came.status == 401
                assert "canary" not in came.text

    asyncio.run(work())


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8123", "127.0.0.1.evil.example", "", None]
)
def test_another_name_of_this_machine_is_refused(host):
    """DNS rebinding: also the pages that ask for no cookie."""

    async def work():
        async with opened() as browser:
            for path in ("/", "/sign-in", "/static/pages.css"):
                came = await browser.ask("GET", path, headers={"host": host})
                assert came.status == 403

    asyncio.run(work())


async def rig(browser):
    """A session with a fold, and the form that each page posts."""
    await write(browser.store, "mine", conversation(12))
    at = await fold(browser.store, "mine")
    return {path: {"name": "mine", "at": at, **more} for path, more in POSTED.items()}


@pytest.mark.parametrize("path", POSTED)
def test_a_forged_form_changes_nothing(path):
    """Each check alone must stop it: the word of the form, the origin, the kind of the body."""

    async def work():
        async with opened() as browser:
            forms = await rig(browser)
            word = (
                await browser.get("/undo", name="mine", at=forms["/undo"]["at"])
            ).page.find_form("/undo")[1]["word"]
            good = {**forms[path], "word": word}
            before = await browser.store.head(("local", "mine"))
            other = Browser(browser.app)
            await other.get("/enter", ticket=browser.sign_ins.issue_ticket())
            theirs = (await other.get("/")).page.find_form("/sign-out")[1]["word"]
            assert theirs != word
            for fields in (
                {**good, "word": ""},
                {**good, "word": theirs},
                {**good, "word": word[:-1]},
                forms[path],
            ):
                assert (await browser.post(path, fields)).status == 403
            for headers in (
                {"origin": None},
                {"origin": "null"},
                {"origin": "http://127.0.0.1:9999"},
                {"origin": "http://evil.example"},
                {"origin": f"{ORIGIN}.evil.example"},
                {"sec_fetch_site": "cross-site"},
                {"sec_fetch_site": "same-site"},
                {"sec_fetch_site": "none"},
            ):
                assert (await browser.post(path, good, **headers)).status == 403, headers
            assert (await browser.post(path, good, content_type="text/plain")).status == 415
            browser.cookie, kept = "", browser.cookie
            assert (await browser.post(path, good)).status == 401
            assert await browser.store.head(("local", "mine")) == before
            browser.cookie = kept
            assert (await browser.post(path, good)).status in (200, 303, 409)

    asyncio.run(work())


@pytest.mark.parametrize("path", CHANGE)
def test_read_only_pages_change_nothing(path):
    async def work():
        async with opened(edit=False) as browser:
            forms = await rig(browser)
            before = await browser.store.head(("local", "mine"))
            word = (await browser.get("/")).page.find_form("/sign-out")[1]["word"]
            came = await browser.post(path, {**forms[path], "word": word})
            assert came.status == 403
            assert "--edit" in came.text
            assert await browser.store.head(("local", "mine")) == before
            asking = await browser.get(path, name="mine", at=forms[path]["at"])
            assert asking.status == 200
            assert "<button>" not in asking.text.partition('<main id="main">')[2]
            now = await browser.get("/session", name="mine", at="now")
            for change in ("/undo", "/pin", "/fold"):
                assert f'href="{change}?' not in now.text

    asyncio.run(work())


@pytest.mark.parametrize("path", CHANGE)
def test_a_page_is_changed_by_no_address(path):
    """What a GET shows is a question."""

    async def work():
        async with opened() as browser:
            forms = await rig(browser)
            word = (await browser.get("/")).page.find_form("/sign-out")[1]["word"]
            before = await browser.store.head(("local", "mine"))
            for method in ("GET", "HEAD", "PUT", "DELETE"):
                await browser.ask(
                    method, f"{path}?name=mine&at={forms[path]['at']}&on=1&word={word}"
                )
            assert await browser.store.head(("local", "mine")) == before

    asyncio.run(work())


def test_keys_show_their_owners_sessions_and_no_others(tmp_path):
    """Under a gateway's keys: a foreign session is as one that is not there, on every page."""

    async def work():
        keys = {who: create_key(tmp_path / "keys", who, tenant="acme") for who in ("alice", "bob")}
        keys["ops"] = create_key(tmp_path / "keys", "ops", tenant="acme", role="admin")
        keys["stranger"] = create_key(tmp_path / "keys", "eve", tenant="other", role="admin")
        settings = GatewaySettings(
            upstreams=parse_upstreams(["http://127.0.0.1:1"], {}), keys=Keys(tmp_path / "keys")
        )
        store = store_at(":memory:")
        pages = PagesApp(
            Pool(PoolPlace(store=store, model_of=None)),
            make_sign_ins(settings, port=8123, store=store),
        )
        await write(store, "alices", conversation(12), owner="alice", tenant="acme")
        browsers = {who: Browser(pages, root="/ui") for who in keys}
        for who, browser in browsers.items():
            assert (await browser.post("/sign-in", {"key": "fl-wrong"})).status == 401
            assert (await browser.post("/sign-in", {"key": keys[who]})).status == 200
            assert keys[who] not in browser.cookie
        for path in READ:
            for who in ("bob", "stranger"):
                came = await browsers[who].get(path, name="alices", at=3)
                gone = await browsers[who].get(path, name="never-was", at=3)
                assert came.status == gone.status, path
                assert came.text.replace("alices", "never-was").replace(
                    browsers[who].cookie, ""
                ) == gone.text.replace(browsers[who].cookie, "")
                if path not in ("/", "/fleet", "/fleet.csv"):
                    assert came.status == 404, path
        for who in ("alice", "ops"):
            assert (await browsers[who].get("/session", name="alices")).status == 200
            assert "alices" in (await browsers[who].get("/")).text
        assert (await browsers["alice"].get("/fleet", tenant="other")).status == 403
        assert (await browsers["alice"].get("/fleet")).status == 200
        assert (await browsers["ops"].get("/fleet")).status == 200
        for path, more in POSTED.items():
            word = (await browsers["bob"].get("/")).page.find_form("/ui/sign-out")[1]["word"]
            fields = {"name": "alices", "at": 2, **more, "word": word}
            assert (await browsers["bob"].post(path, fields)).status == 404, path
        lines = (tmp_path / "keys").read_text().splitlines(keepends=True)
        (tmp_path / "keys").write_text("".join(line for line in lines if "alice" not in line))
        assert (await browsers["alice"].get("/")).status == 401
        await pages.close()
        await store.close()

    asyncio.run(work())


def test_signing_out_forgets_the_browser():
    async def work():
        async with opened() as browser:
            kept = browser.cookie
            page = await browser.get("/")
            assert (await browser.post("/sign-out", {"word": "x"})).status == 403
            assert (await browser.get("/")).status == 200
            gone = await browser.submit(page, "/sign-out")
            assert "Max-Age=0" in gone.headers["set-cookie"]
            browser.cookie = kept
            assert (await browser.get("/")).status == 401

    asyncio.run(work())


def test_a_key_is_never_taken_from_a_foreign_form():
    """Or a site could sign a browser in under a key of its own."""

    async def work():
        async with opened() as browser:
            stranger = Browser(browser.app)
            given = {"key": browser.token.reveal()}
            for origin in (None, "null", "http://evil.example", f"http://{HOST}.evil.example"):
                came = await stranger.post("/sign-in", given, origin=origin)
                assert came.status == 403
                assert "set-cookie" not in came.headers
            assert "Secure" not in (await stranger.post("/sign-in", given)).headers["set-cookie"]
            behind = Browser(browser.app._pages)  # a gateway behind a proxy that ends TLS
            came = await behind.post("/sign-in", given, origin=f"https://{HOST}")
            assert "; Secure" in came.headers["set-cookie"]

    asyncio.run(work())

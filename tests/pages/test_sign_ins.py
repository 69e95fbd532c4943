"""A browser is signed in at all processes of a gateway: in the store, as digests, and no longer than its key."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from browsing import HOST, Browser, a_store, opened
from logs import conversation, write

from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api_keys import Keys, Secret, create_key
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.apps.pages import access
from foldline.apps.pages.access import SignIns
from foldline.apps.pages.pages_app import PagesApp, check_local_token, make_sign_ins
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

TOKEN = Secret("fl-local-the-token-of-this-start")


def process(store, *, keys=None, token=None):
    """What one process of a gateway has: pages of its own, and the store of all."""
    settings = GatewaySettings(
        upstreams=parse_upstreams(["http://127.0.0.1:1"], {}), keys=keys, token=token
    )
    sign_ins = make_sign_ins(settings, port=8123, store=store)
    pages = PagesApp(Pool(PoolPlace(store=store, model_of=None)), sign_ins)
    pages.keys = keys
    return pages


@asynccontextmanager
async def processes(count=2, **given):
    """So many processes at one store."""
    with a_store() as store:
        made = [process(store, **given) for _ in range(count)]
        try:
            yield store, made
        finally:
            for one in made:
                await one.close()
            await store.close()


def at(browser, pages):
    """The same browser, whose next request another process takes."""
    other = Browser(pages, root=browser.root)
    other.cookie = browser.cookie
    return other


@pytest.mark.usefixtures("kind")
def test_a_browser_is_signed_in_at_every_process(tmp_path):
    async def work():
        create_key(tmp_path / "keys", "ops", tenant="acme", role="admin")
        key = create_key(tmp_path / "keys", "amy", tenant="acme")
        async with processes(keys=Keys(tmp_path / "keys")) as (store, (one, two)):
            await write(store, "amys", conversation(3), owner="amy", tenant="acme")
            browser = Browser(one, root="/ui")
            assert (await browser.post("/sign-in", {"key": key})).status == 200
            other = at(browser, two)
            assert "amys" in (await other.get("/")).text
            # A form that one process has shown is taken by the other.
            asking = await browser.get("/pin", name="amys", at=2)
            word = asking.page.find_form("/ui/pin")[1]["word"]
            given = {"name": "amys", "at": 2, "on": 1, "word": word}
            assert (await other.post("/pin", given)).status == 303
            assert (await other.post("/sign-out", {"word": word})).status == 200
            assert (await browser.get("/")).status == 401

    asyncio.run(work())


@pytest.mark.usefixtures("kind")
def test_a_ticket_signs_in_once_at_all_processes():
    """Also if all are asked at the same moment."""

    async def work():
        async with processes(4, token=TOKEN) as (_, made):
            ticket = made[0].sign_ins.issue_ticket()
            came = await asyncio.gather(
                *(Browser(one, root="/ui").get("/enter", ticket=ticket) for one in made * 3)
            )
            assert sorted(one.status for one in came) == [200] + [401] * 11
            assert sum("set-cookie" in one.headers for one in came) == 1
            second = made[3].sign_ins.issue_ticket()
            browser = Browser(made[1], root="/ui")
            assert (await browser.get("/enter", ticket=second)).status == 200
            assert (await at(browser, made[2]).get("/")).status == 200

    asyncio.run(work())


def test_a_removed_key_is_refused_by_all_at_once(tmp_path):
    """At the next request, not after a second."""

    async def work():
        path = tmp_path / "keys"
        create_key(path, "ops", tenant="acme", role="admin")
        key = create_key(path, "amy", tenant="acme")
        with a_store() as store:
            made = [process(store, keys=Keys(path)) for _ in range(2)]
            browser = Browser(made[0], root="/ui")
            await browser.post("/sign-in", {"key": key})
            for pages in made:
                assert (await at(browser, pages).get("/")).status == 200
            lines = path.read_text().splitlines(keepends=True)
            path.write_text(lines[0])
            for pages in made:
                assert (await at(browser, pages).get("/")).status == 401
            path.write_text("".join(lines))
            assert (await browser.get("/")).status == 200
            for pages in made:
                await pages.close()
            await store.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ticket: ticket[:-1] + ("0" if ticket[-1] != "0" else "1"),
        lambda ticket: "f" + ticket,  # good for longer
        lambda ticket: ticket.replace(".", "", 1),
        lambda ticket: ticket.partition(".")[2],
        lambda ticket: f"{ticket}.",
        lambda _: "ffffffffff.x.",
        lambda _: "\udcff",
        lambda _: "é.é.é",
        lambda _: "",
        lambda _: "..",
    ],
)
def test_a_ticket_that_was_not_issued_signs_nobody_in(wrong):
    async def work():
        sign_ins = SignIns(check_local_token(TOKEN, tenant="local"), cookie="c", may_edit=False, token=TOKEN)  # fmt: skip
        ticket = sign_ins.issue_ticket()
        assert await sign_ins.redeem_ticket(wrong(ticket)) is None
        other = SignIns(check_local_token(TOKEN, tenant="local"), cookie="c", may_edit=False, token=Secret("fl-other"))  # fmt: skip
        assert await sign_ins.redeem_ticket(other.issue_ticket()) is None
        assert await sign_ins.redeem_ticket(ticket) is not None
        assert await sign_ins.redeem_ticket(ticket) is None

    asyncio.run(work())


def scope_of(cookie):
    return {"headers": [(b"cookie", f"c={cookie}".encode()), (b"host", HOST.encode())]}


def test_sign_ins_end(monkeypatch):
    """A ticket after a week, a browser after twelve hours in which it showed nothing."""

    async def work():
        now = [1_700_000_000.0]
        monkeypatch.setattr(access, "time", lambda: now[0])
        sign_ins = SignIns(check_local_token(TOKEN, tenant="local"), cookie="c", may_edit=False, token=TOKEN)  # fmt: skip
        late, good = sign_ins.issue_ticket(), sign_ins.issue_ticket()
        now[0] += 7 * 86_400 - 60
        cookie = await sign_ins.redeem_ticket(good)
        assert cookie
        now[0] += 120
        assert await sign_ins.redeem_ticket(late) is None
        for _ in range(40):
            now[0] += 3_600
            assert await sign_ins.find_visitor(scope_of(cookie))
        now[0] += 12 * 3_600 + 1
        assert await sign_ins.find_visitor(scope_of(cookie)) is None

    asyncio.run(work())


def test_what_is_kept_signs_nobody_in(tmp_path):
    """Neither the key nor the cookie's word nor a ticket stands in the file."""

    async def work():
        store = store_at(str(tmp_path / "s.db"))
        pages = process(store, token=TOKEN)
        ticket = pages.sign_ins.issue_ticket()
        browser = Browser(pages, root="/ui")
        assert (await browser.get("/enter", ticket=ticket)).status == 200
        word = re.search("[.](.+)", browser.cookie)[1]
        entry = await store.get(Name("local", ""), "sign-ins", browser.cookie.partition("=")[2].partition(".")[0])  # fmt: skip
        assert entry is not None
        await pages.close()
        await store.close()
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        for secret in (TOKEN.reveal(), word, ticket, ticket.split(".")[1]):
            assert secret.encode() not in kept
        form_word = (await _form_word(browser, tmp_path)).encode()
        assert form_word not in kept

    asyncio.run(work())


async def _form_word(browser, folder):
    """The word of the forms, from another process; it does not tell the cookie."""
    store = store_at(str(folder / "s.db"))
    pages = process(store, token=TOKEN)
    page = await at(browser, pages).get("/")
    word = page.page.find_form("/ui/sign-out")[1]["word"]
    assert browser.cookie.partition(".")[2] not in page.text
    await pages.close()
    await store.close()
    return word


def test_sign_ins_take_little_room():
    """However often somebody signs in: the oldest browsers are forgotten."""

    async def work():
        async with opened() as browser:
            first = browser.cookie.partition("=")[2]
            for _ in range(70):
                cookie = await browser.sign_ins.sign_in(browser.token.reveal())
            place = first.partition(".")[0]
            assert cookie.partition(".")[0] == place
            kept = (await browser.store.get(Name("local", ""), "sign-ins", place)).value
            assert len(kept) < 10_000
            assert (await browser.get("/")).status == 401
            browser.cookie = f"foldline-8123={cookie}"
            assert (await browser.get("/")).status == 200

    asyncio.run(work())


@pytest.mark.parametrize("cookie", ["\0.x", "a" * 32 + ".\0" * 30, f"{'a' * 32}.{'é' * 30}", "g" * 32 + "." + "x" * 43, "'; drop table side; --"])  # fmt: skip
@pytest.mark.usefixtures("kind")
def test_an_odd_cookie_asks_the_store_for_nothing(cookie):
    async def work():
        async with opened() as browser:
            browser.cookie = f"foldline-8123={cookie}"
            came = await browser.ask("GET", "/", headers={"cookie": browser.cookie})
            assert came.status == 401

    asyncio.run(work())

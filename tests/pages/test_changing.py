"""Changes from the pages: each asks first, does what it says, and can be taken back."""

import asyncio
import re

import pytest
from browsing import opened
from logs import conversation, write

from foldline.session.stored_session import hold_stored_session, open_stored_session
from foldline.stores.base import Name

NAME = Name("local", "mine")

pytestmark = pytest.mark.usefixtures("kind")


async def head_of(browser):
    return (await browser.store.head(NAME)).seq


async def edits_of(browser):
    return (await open_stored_session(browser.store, NAME)).edits


def test_a_fold_is_previewed_made_and_taken_back():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(14))
            before = await head_of(browser)
            preview = await browser.get("/fold", name="mine")
            assert "Nothing was written" in preview.text
            assert re.search(r"[\d,]+ tokens become [\d,]+", preview.text)
            assert await head_of(browser) == before
            made = await browser.submit(preview, "/fold", focus="the parser")
            assert made.status == 303
            (edit,) = await edits_of(browser)
            assert made.headers["location"] == f"/edit?name=mine&at={edit}&done=folded"
            shown = await browser.ask("GET", made.headers["location"])
            assert "Folded." in shown.text
            asking = await browser.get("/undo", name="mine", at=edit)
            assert re.search(r"[\d,]+ messages of [\d,]+ tokens", asking.text)
            assert await edits_of(browser) == [edit]
            undone = await browser.submit(asking, "/undo")
            assert undone.status == 303
            assert await edits_of(browser) == []
            shown = await browser.ask("GET", undone.headers["location"])
            assert "Taken back." in shown.text
            redo = int(re.search(r"at=(\d+)", undone.headers["location"])[1])
            again = await browser.submit(await browser.get("/undo", name="mine", at=redo), "/undo")
            assert again.status == 303
            assert await edits_of(browser) == [edit]

    asyncio.run(work())


def test_a_message_is_pinned_and_unpinned():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(3))
            asking = await browser.get("/pin", name="mine", at=2)
            assert "Look at parser.py. 1" in asking.text
            pins = []
            for _ in range(2):
                came = await browser.submit(await browser.get("/pin", name="mine", at=2), "/pin")
                assert came.status == 303
                pins.append(sorted((await open_stored_session(browser.store, NAME)).live.view.pins))
            assert pins == [[2], []]
            wrong = await browser.submit(asking, "/pin", at="1")
            assert wrong.status == 404

    asyncio.run(work())


def test_what_cannot_be_done_is_said_and_writes_nothing():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(1, size=1))
            before = await head_of(browser)
            preview = await browser.get("/fold", name="mine")
            assert "Nothing to fold" in preview.text
            assert 'action="/fold"' not in preview.text
            word = preview.page.find_form("/sign-out")[1]["word"]
            for path, fields, status in (
                ("/fold", {}, 409),
                ("/undo", {"at": "3"}, 404),
                ("/undo", {"at": "x"}, 400),
                ("/undo", {"at": "9999"}, 404),
                ("/pin", {"at": "9999", "on": "1"}, 404),
            ):
                came = await browser.post(path, {"name": "mine", "word": word, **fields})
                assert came.status == status, (path, came.text)
            assert await head_of(browser) == before

    asyncio.run(work())


def test_a_session_that_another_process_holds_is_busy():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(14))
            preview = await browser.get("/fold", name="mine")
            other = await open_stored_session(browser.store, NAME)
            async with hold_stored_session(other):
                came = await browser.submit(preview, "/fold")
            assert came.status == 409
            assert await edits_of(browser) == []

    asyncio.run(work())


def test_policies_are_compared_side_by_side():
    async def work():
        async with opened(edit=False) as browser:
            await write(browser.store, "mine", conversation(14))
            before = await head_of(browser)
            asking = await browser.get("/what-if", name="mine")
            came = await browser.submit(asking, "/what-if", policy=["thrifty", "classic"])
            assert came.status == 200
            text = " ".join(came.page.text.split())
            for policy in ("as recorded", "off", "thrifty", "classic"):
                assert re.search(rf"{policy} \$[\d.]+", text), policy
            assert "Tokens of each call" in text
            assert (await browser.submit(asking, "/what-if", policy=["off"])).status == 400
            assert (await browser.submit(asking, "/what-if", policy=["nonsense"])).status == 400
            assert (
                await browser.submit(
                    asking, "/what-if", policy=["steady", "thrifty", "classic", "window"]
                )
            ).status == 400
            assert await head_of(browser) == before

    asyncio.run(work())


def test_a_log_too_long_to_wait_for_is_not_replayed(monkeypatch):
    async def work():
        async with opened() as browser:
            monkeypatch.setattr("foldline.apps.pages.what_if._MOST_EVENTS", 50)
            await write(browser.store, "mine", conversation(14))
            asking = await browser.get("/what-if", name="mine")
            assert "too long" in asking.text
            word = asking.page.find_form("/sign-out")[1]["word"]
            came = await browser.post(
                "/what-if", {"name": "mine", "policy": "steady", "word": word}
            )
            assert came.status == 413

    asyncio.run(work())

"""A person at the pages, in a real browser: from the list to a fold, its undo, and other policies.

Only with Chromium: `just pages shots` looks at every page in it, too.
"""

import asyncio
import shutil
from contextlib import AsyncExitStack

import pytest
from logs import conversation, write
from page_shots import ask_page, inspect, open_page, serve, set_size
from site_shots import NAMES, browsed

from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]


class Person:
    """Somebody who looks and clicks."""

    def __init__(self, page, url):
        self.page, self.url = page, url

    async def read(self):
        """What stands on the page."""
        return " ".join((await ask_page(self.page, "document.body.innerText")).split())

    async def run(self, script):
        """Do something that leads to another page, and wait for it."""
        self.page.loaded.clear()
        await ask_page(self.page, script)
        await asyncio.wait_for(self.page.loaded.wait(), 90)
        return await self.read()

    async def follow(self, words, nth=0):
        """Click a link or a button by what stands on it."""
        picked = f"""[...document.querySelectorAll('main a, main button')]
            .filter((one) => one.innerText.trim() === {words!r})[{nth}]"""
        assert await ask_page(self.page, f"Boolean({picked})"), (words, await self.read())
        return await self.run(f"{picked}.click()")

    async def fill(self, field, value):
        """Write into a field."""
        await ask_page(self.page, f"document.querySelector('#{field}').value = {value!r}")


async def edits_of(path):
    store = store_at(str(path))
    found = (await open_stored_session(store, Name("local", "parser"))).edits
    await store.close()
    return found


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_session_is_found_folded_and_compared(tmp_path, scripts):  # noqa: PLR0915 - one way through
    """The same way with scripts and without; then the slider's button is pressed by hand."""
    path = tmp_path / "s.db"

    async def fill():
        store = store_at(str(path))
        await write(store, "parser", conversation(14))
        await write(store, "other", conversation(1, words="Something else."))
        await store.close()

    async def work():
        async with AsyncExitStack() as stack:
            url, entrance = await serve(stack, path, "--edit")
            page = await browsed(stack, CHROMIUM)
            await set_size(page, 1440, "light")
            await open_page(page, entrance)
            await asyncio.sleep(1.0)  # it leads on to the list by itself
            blocked = [] if scripts else ["*.js"]  # all that the pages have
            await page.do("Network.setBlockedURLs", urls=blocked)
            person = Person(page, url)

            # Find a session, and slide.
            await open_page(page, url)
            await person.fill("q", "pars")
            assert "1 of 2 sessions" in await person.follow("Show")
            assert "Request at log:" in await person.follow("parser")
            await person.fill("at", "9")
            assert "Request at log:9" in await person.follow("Go")
            assert "Request at log:12" in await person.follow("Next ›")
            assert "Request at log:9" in await person.follow("‹ Previous")
            if scripts:
                slide = "const at = document.querySelector('#at'); at.value = 15;"
                told = await person.run(f"{slide} at.dispatchEvent(new Event('change'))")
                assert "Request at log:15" in told

            # Preview, fold, and look at what was lost.
            await person.follow("Preview a fold")
            assert await edits_of(path) == []
            told = await person.follow("Fold now")
            assert "Folded." in told
            (edit,) = await edits_of(path)
            assert "What stands in its place" in told
            await ask_page(
                page, "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
            )
            handle = await ask_page(page, "document.querySelector('.handles a').innerText")
            assert f"The original of {handle}" in await person.follow(handle)

            # Slide to the fold, and take it back.
            await open_page(page, f"{url}/session?name=parser&at=now")
            assert f"folded at log:{edit}" in await person.read()
            await person.follow("undo")
            assert await edits_of(path) == [edit]
            assert "Taken back." in await person.follow("Take it back")
            assert await edits_of(path) == []

            # Other policies.
            await open_page(page, f"{url}/session?name=parser")
            await person.follow("What if")
            assert "thrifty" in await person.follow("Compare")
            assert (
                await inspect(page, url, 390, "dark", tmp_path / "compared.png") == []
                or not scripts
            )
            assert all(one.startswith((url, "data:")) for one in page.asked)
            assert not [one for one in page.faults if scripts or "pages.js" not in one]

    asyncio.run(fill())
    asyncio.run(work())

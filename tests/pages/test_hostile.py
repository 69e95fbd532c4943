"""A log whose every text wants to harm: pages show it as text, in bounds, and load nothing from elsewhere."""

import asyncio
import re
import unicodedata

import pytest
from browsing import opened, settled
from hypothesis import given
from hypothesis import strategies as st
from logs import HOSTILE, conversation, fold, hostile_events, write
from markupsafe import escape

from foldline.apps.pages import page_call
from foldline.apps.pages.pages_app import READ
from foldline.apps.pages.safe_text import fit_text, shorten_line, show_controls

NAME = f"h {HOSTILE}".replace("\0", "").replace("\u2028", "")[:400]
SCRIPT = {"src": "/static/pages.js", "defer": None}
POLICY = "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def check(answer):
    """What must hold of every page, whatever it shows."""
    page = answer.page
    assert len(answer.body) <= 300_000
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"
    for tag, attrs in page.elements:
        assert tag in KNOWN, tag
        assert tag != "script" or attrs == SCRIPT
        assert not [name for name in attrs if name.startswith("on") or name == "style"], (
            tag,
            attrs,
        )
        assert tag != "meta" or attrs.keys() <= {"charset", "name", "content"}
    for link in page.list_links():
        assert re.match(r"/(?!/)|#[a-z]+$", link), link
    # A field's value is what is sent back: it stays as it is.
    named = [
        value or ""
        for _, attrs in page.elements
        for name, value in attrs.items()
        if name != "value"
    ]
    odd = {
        letter
        for letter in page.text + "".join(named)
        if unicodedata.category(letter) in UNSEEN and letter not in "\n\t"
    }
    assert not odd, odd


KNOWN = set(
    """
    html head meta title link script body a header div img nav form input button main h1 h2 p span bdi section
    label output svg rect dl dt dd b table thead tr th tbody td i details summary article pre ul li ol select
    option code fieldset legend figure figcaption path circle text g line polyline
    """.split()  # noqa: SIM905 - read as words
)


def test_every_page_shows_a_hostile_log_as_text():
    async def work():
        async with opened() as browser:
            events = hostile_events(300_000)
            await write(browser.store, NAME, events, owner=f"o {HOSTILE}"[:200].replace("\0", ""))
            await settled(browser)
            asked = [*({"at": at} for at in (0, 1, 2, 4, 5, 7, 8)), {"at": "now"}]
            seen = 0
            for path in READ:
                for more in asked:
                    came = await browser.get(path, name=NAME, **more)
                    if came.headers["content-type"] == page_call.HTML:
                        check(came)
                        seen += came.status == 200
            assert seen > 25
            shown = await browser.get("/session", name=NAME, at=8)
            assert "</pre></script><script>alert(1)</script>" in shown.page.text
            assert "{{ 7 * 7 }}" in shown.page.text
            for address in (
                f"?q={HOSTILE[:60]!a}",
                "?sort=x",
                "?page=9x",
                "?live=1",
                "?owner=%00%ff",
                "?model=" + "%3C" * 900,
            ):
                check(await browser.ask("GET", f"/{address}".replace(" ", "%20")))
            for path in ("/session", "/original", "/edit", "/fold", "/undo", "/pin", "/what-if"):
                for more in ({"name": ""}, {"name": "\0"}, {"name": HOSTILE}, {"name": NAME, "at": "-1"}, {"name": NAME, "at": "9" * 30}, {"name": NAME, "at": "²"}, {"name": NAME, "at": 10**9}):  # fmt: skip
                    came = await browser.get(path, **more)
                    assert came.status < 500, (path, more, came.text)
                    check(came)

    asyncio.run(work())


def test_a_fold_of_hostile_texts_is_shown_as_text():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(14, words=HOSTILE))
            preview = await browser.get("/fold", name="mine")
            check(preview)
            at = await fold(browser.store, "mine")
            for path in ("/edit", "/undo", "/session", "/original"):
                came = await browser.get(path, name="mine", at=at)
                assert came.status == 200
                check(came)
            compared = await browser.submit(
                await browser.get("/what-if", name="mine"), "/what-if", policy=["thrifty"]
            )
            assert compared.status == 200
            check(compared)

    asyncio.run(work())


def test_pictures_hold_no_script():
    async def work():
        async with opened() as browser:
            await write(browser.store, NAME, hostile_events(10))
            came = await browser.get("/picture.svg", name=NAME)
            assert came.status == 200
            assert came.headers["content-security-policy"] == POLICY
            drawn = came.page
            assert {tag for tag, _ in drawn.elements} <= {
                "svg",
                "title",
                "defs",
                "pattern",
                "rect",
                "text",
                "path",
            }
            assert not {
                name
                for _, attrs in drawn.elements
                for name in attrs
                if re.match("on|style|.*href", name)
            }

    asyncio.run(work())


def test_a_line_without_an_end_is_read_page_by_page():
    """Nothing is left out between two pages, and the last one ends."""

    async def work():
        async with opened() as browser:
            events = hostile_events(400_000)
            await write(browser.store, "mine", events)
            whole, shown, address = len(events[7].parts[0].text), 0, "/original?name=mine&at=7"
            pages = 0
            while address:
                came = await browser.ask("GET", address)
                check(came)
                pages += 1
                shown += came.text.partition("<pre")[2].partition("</pre>")[0].count("&lt;")
                more = [link for link in came.page.list_links() if "from=" in link]
                address = more[-1] if more and int(more[-1].rpartition("=")[2]) > 0 else ""
            assert pages > 10
            assert shown == events[7].parts[0].text.count("<")
            assert whole > 400_000

    asyncio.run(work())


def test_a_line_of_ten_megabytes_makes_no_large_page():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", hostile_events(10_000_000))
            for path, at in (("/session", 8), ("/original", 7)):
                came = await browser.get(path, name="mine", at=at)
                assert came.status == 200
                check(came)

    asyncio.run(work())


@given(st.text(st.characters(), max_size=300), st.integers(10, 400), st.integers(0, 200))
def test_a_fitted_text_is_bounded_and_loses_nothing(text, most, start):
    fitted = fit_text(text, most, start=start)
    assert len(str(escape(fitted.shown)).encode("utf-8")) <= most
    end = len(text) - fitted.left
    assert fitted.shown == show_controls(text[start:end])
    assert end > start or start >= len(text), "a page that shows nothing would not end"


@given(st.text(st.characters(), max_size=200))
def test_shown_texts_hold_nothing_unseen(text):
    shown = show_controls(text)
    assert not [
        letter
        for letter in shown
        if unicodedata.bidirectional(letter)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    ]
    assert not [
        letter
        for letter in shown
        if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"
    ]
    assert len(shorten_line(text, 20)) <= 20


def test_no_two_texts_are_shown_alike():
    """A control character stays visible: `a` with an escape is not shown as `a`."""
    for letter in "\x00\x1b\x7f\x9b\u202e\u2066\u200b\ufeff\u2028\r":
        assert show_controls(f"a{letter}b") not in ("ab", "a b")
    assert show_controls("a\r\nb\tc") == "a\nb\tc"


@pytest.mark.parametrize("name", ["pages.js", "pages.css"])
def test_what_all_pages_share_is_small_and_asks_for_nothing(name):
    body = page_call.load_static(name).decode()
    assert len(body) < 30_000
    assert not re.search(r"https?:|//\w|url\(|@import|innerHTML|eval|fetch|XMLHttp", body)

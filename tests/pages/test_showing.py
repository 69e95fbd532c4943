"""What the pages show: the list in every order, a session at a call, folds before and after, the fleet."""

import asyncio
import csv
import io
import re

import pytest
from browsing import opened, settled
from logs import MODEL, asked, conversation, fold, write

from foldline.apps.pages import logged_calls, session_pages
from foldline.apps.pages.session_list import ORDERS, PER_PAGE
from foldline.core.log import Masked, ModelSaid, Opened, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Clip, Gap, Stub, Text
from foldline.core.spine import Change, Range, Spine

pytestmark = pytest.mark.usefixtures("kind")


def priced(model, tokens, words="Hello."):
    """A session of one call."""
    said = UsageReported(input=tokens, cache_read=0, output=10)
    return [
        Opened(model),
        UserSaid((Text(words),)),
        asked(1, tokens),
        ModelSaid((Text("Yes."),)),
        said,
    ]


def list_names(answer):
    """The sessions of a list, in its order."""
    return re.findall(r'<td class="left who"><a href="/session\?name=([\w-]+)"', answer.text)


async def fill(browser):
    """Four sessions that every order puts differently."""
    await write(browser.store, "beta", priced("anthropic/claude-opus-4-5", 90_000), owner="zoe")
    await write(
        browser.store, "alpha", priced("openai/gpt-5.1", 1_000, "A needle in it."), owner="amy"
    )
    await write(browser.store, "delta", conversation(9), owner="bob")
    await write(browser.store, "gamma", priced(MODEL, 40_000))
    await settled(browser)


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("changed", ["gamma", "delta", "alpha", "beta"]),
        ("opened", ["gamma", "delta", "alpha", "beta"]),
        ("name", ["alpha", "beta", "delta", "gamma"]),
        ("owner", ["alpha", "delta", "beta", "gamma"]),
        ("size", ["delta", "gamma", "beta", "alpha"]),
        ("cost", ["delta", "beta", "gamma", "alpha"]),
        ("fullness", ["delta", "beta", "gamma", "alpha"]),
        ("model", ["beta", "delta", "gamma", "alpha"]),
    ],
)
def test_the_list_stands_in_any_order(order, wanted):
    async def work():
        async with opened() as browser:
            await fill(browser)
            came = list_names(await browser.get("/", sort=order))
            if order in ("size", "cost", "fullness"):
                figures = browser.app._pages._lists.figures.of_tenant("local").known
                listed = {
                    one.session: one
                    for one in (await browser.app._pages._lists.list_all("local", None))[0]
                }
                value = {
                    "size": lambda name: listed[name].size,
                    "cost": lambda name: figures[name].dollars,
                    "fullness": lambda name: figures[name].fullness,
                }[order]
                wanted.sort(key=value, reverse=True)
            if order == "model":
                assert came[0] == "beta"
                assert came[-1] == "alpha"
                assert {*came} == {*wanted}
            else:
                assert came == wanted

    asyncio.run(work())


def test_every_order_is_offered_and_tested():
    marks = test_the_list_stands_in_any_order.pytestmark[0].args[1]
    assert {one for one, _ in marks} == {*ORDERS}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"q": "ALPH"}, {"alpha"}),
        ({"q": "needle"}, {"alpha"}),
        ({"q": "zoe"}, {"beta"}),
        ({"q": "opus"}, {"beta"}),
        ({"owner": "amy"}, {"alpha"}),
        ({"owner": "am"}, set()),
        ({"model": "CLAUDE"}, {"beta", "delta", "gamma"}),
        ({"model": "claude", "owner": "zoe"}, {"beta"}),
        ({"q": "nothing like it"}, set()),
    ],
)
def test_the_list_is_narrowed(given, wanted):
    async def work():
        async with opened() as browser:
            await fill(browser)
            came = await browser.get("/", **given)
            assert {*list_names(came)} == wanted
            assert ("No session fits" in came.text) == (not wanted)

    asyncio.run(work())


def test_the_list_is_paged_and_each_session_is_on_one_page():
    async def work():
        async with opened() as browser:
            names = [f"s-{at:03}" for at in range(PER_PAGE * 2 + 7)]
            for name in names:
                await write(browser.store, name, [Opened(MODEL)])
            await settled(browser)
            found = [
                name
                for page in (1, 2, 3)
                for name in list_names(await browser.get("/", sort="name", page=page))
            ]
            assert found == names
            assert list_names(await browser.get("/", sort="name", page=99)) == found[-7:]

    asyncio.run(work())


def test_what_is_not_known_yet_is_said_and_stands_behind():
    async def work():
        async with opened() as browser:
            await fill(browser)
            lists = browser.app._pages._lists
            known = lists.figures.of_tenant("local").known
            assert "are known of" not in (await browser.get("/")).text
            kept = known["beta"]
            lists.figures.of_tenant("local").drop("beta")
            assert kept.dollars == max(kept.dollars, *(one.dollars for one in known.values()))
            came = await browser.get("/", sort="cost")
            assert "known of 3 of 4" in came.text
            assert list_names(came)[-1] == "beta"

    asyncio.run(work())


def test_a_live_list_comes_again_and_shows_what_is_new():
    async def work():
        async with opened() as browser:
            await fill(browser)
            came = await browser.get("/", live=1)
            assert came.headers["refresh"] == "5"
            assert "refresh" not in (await browser.get("/")).headers
            await write(browser.store, "new-one", priced(MODEL, 500))
            for kept in browser.app._pages._lists._kept.values():
                kept.read_at = -100.0  # as if some seconds had gone by
            assert list_names(await browser.get("/", live=1))[0] == "new-one"

    asyncio.run(work())


def test_a_call_shows_its_count_its_cost_and_its_cache():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(3))
            came = await browser.get("/session", name="mine", at=12)
            text = " ".join(came.page.text.split())
            assert "Request at log:12" in text
            assert "8,000 reported" in text
            assert "Cache: 50\u00a0% read" in " ".join(came.page.text.split(" "))
            assert "Hit" in text
            # 4,000 fresh at $3, 4,000 read at $0.30, 50 out at $15, per million.
            assert "$0.0140" in text
            assert "What it answered" in text
            assert "Done with 2." in text

    asyncio.run(work())


def test_a_call_that_nobody_counted_has_the_estimate_of_its_window():
    """As an imported session of plain messages: not "0 estimated" above a full table (outside, 8)."""

    async def look():
        async with opened() as browser:
            plain = [Opened(MODEL), UserSaid((Text("Look. " * 900),)), ModelSaid((Text("Yes."),))]
            await write(browser.store, "plain", plain)
            answer = await browser.get("/session?name=plain")
            (shown,) = re.findall(
                r"<dt>Tokens</dt><dd>([\d,]+) <span class=.soft.>estimated", answer.text
            )
            assert int(shown.replace(",", "")) > 500

    asyncio.run(look())


def test_a_call_is_compared_with_the_one_before():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(14))
            at = await fold(browser.store, "mine")
            now = await browser.get("/session", name="mine", at="now")
            text = " ".join(now.page.text.split())
            assert f"folded at log:{at}" in text
            assert "− removed" in text
            assert f'href="/edit?name=mine&amp;at={at}"' in now.text
            early = await browser.get("/session", name="mine", at=9)
            assert "− removed" not in early.page.text
            assert "+ added" in early.page.text

    asyncio.run(work())


def test_what_was_cut_opens_to_its_original():
    """A clip, and a mask: the page names the state, and leads to all of it."""

    async def work():
        async with opened() as browser:
            whole = "\n".join(f"line {at} of the output" for at in range(5_000))
            cut = Clip(
                (Text("line 0 of the output"), Gap("[cut: 4,998 lines]"), Text("the last line")),
                how="lines",
                whole=30_000,
                shown=20,
            )
            events = [
                Opened(MODEL),
                UserSaid((Text("Run it."),)),
                ModelSaid((Call("c1", "run", "{}"), Call("c2", "run", "{}"))),
                ToolReturned("c1", (Text(whole),), clip=cut),
                ToolReturned("c2", (Text("the masked words"),)),
                Masked(
                    (Stub(4, "[masked: log:4]"),),
                    Change(Range(4, 4), masks_on=(5,)),
                    Spine((Range(0),), (5,)),
                ),
                asked(5),
                ModelSaid((Text("It ran."),)),
            ]
            await write(browser.store, "mine", events)
            came = await browser.get("/session", name="mine", at=6)
            text = came.page.text
            assert "[cut: 4,998 lines]" in text
            assert "line 2500" not in text
            assert "clipped" in text
            assert "masked" in text
            assert came.text.count(">original</a>") == 2
            original = await browser.get("/original", name="mine", at=3)
            assert "line 2500 of the output" in original.page.text
            assert (
                "the masked words" in (await browser.get("/original", name="mine", at=4)).page.text
            )

    asyncio.run(work())


def test_a_fold_is_shown_before_and_after_with_what_it_lost():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(14))
            at = await fold(browser.store, "mine")
            came = await browser.get("/edit", name="mine", at=at)
            text = " ".join(came.page.text.split())
            assert re.search(r"Before: [\d,]+ / 64,000", text)
            assert re.search(r"After: [\d,]+ / 64,000", text)
            assert re.search(r"[\d,]+ tokens become [\d,]+", text)
            assert "Results: " in text
            handles = re.findall(r'href="/original\?name=mine&amp;at=(\d+)"', came.text)
            assert len(handles) > 5
            assert (await browser.get("/original", name="mine", at=handles[0])).status == 200
            assert (await browser.get("/change.svg", name="mine", at=at)).headers[
                "content-type"
            ] == "image/svg+xml"
            assert (await browser.get("/edit", name="mine", at=3)).status == 404

    asyncio.run(work())


def test_messages_of_a_long_view_are_paged():
    async def work():
        async with opened() as browser:
            await write(browser.store, "mine", conversation(40, size=1))
            shown = set()
            parts = 0
            for part in range(1, 20):
                came = await browser.get("/session", name="mine", at="now", part=part)
                found = {*re.findall(r'aria-label="\w+ at log:(\d+)"', came.text)}
                if found <= shown:
                    break
                assert not shown & found
                shown |= found
                parts += 1
            assert parts == 6
            assert len(shown) == 40 * 4

    asyncio.run(work())


def test_the_fleet_sums_what_the_sessions_cost():
    async def work():
        async with opened() as browser:
            await fill(browser)
            came = await browser.get("/fleet")
            figures = browser.app._pages._lists.figures.of_tenant("local").known
            total = sum(one.dollars for one in figures.values() if one.dollars)
            text = " ".join(came.page.text.split())
            assert f"${total:.4f} for 21 calls of tenant local" in text
            assert "there are no usage rows for these days" in text
            # 40,000 at $3 and 10 at $15 per million.
            assert figures["gamma"].dollars == pytest.approx(0.12015)
            dearest = text.partition("The dearest")[2]
            assert dearest.index("beta") < dearest.index("gamma") < dearest.index("alpha")
            rows = [
                *csv.DictReader(io.StringIO((await browser.get("/fleet.csv", by="session")).text))
            ]
            assert {row["session"] for row in rows} == {*figures}
            assert sum(float(row["dollars"]) for row in rows) == pytest.approx(total, abs=1e-4)
            rows = [*csv.DictReader(io.StringIO((await browser.get("/fleet.csv")).text))]
            assert {row["source"] for row in rows} == {"logs"}
            assert {row["owner"] for row in rows} == {"", "amy", "bob", "zoe"}
            assert sum(float(row["dollars"]) for row in rows) == pytest.approx(total, abs=1e-4)

    asyncio.run(work())


def test_no_name_is_a_formula_in_a_spreadsheet():
    async def work():
        async with opened() as browser:
            for name in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)"):
                await write(browser.store, name, priced(MODEL, 500))
            await settled(browser)
            rows = [
                *csv.DictReader(io.StringIO((await browser.get("/fleet.csv", by="session")).text))
            ]
            assert len(rows) == 4
            assert all(row["session"].startswith("'") for row in rows)

    asyncio.run(work())


async def searched(browser, **asked):
    """What a search found, asked for again as the page does by itself."""
    while "Still searching" in (came := await browser.get("/search", **asked)).text:
        assert came.headers["refresh"] == "2"
    return came


def test_a_search_that_takes_long_is_told(monkeypatch):
    """The page comes at once, and what is found when it is; many at once are refused, not queued."""
    monkeypatch.setattr(session_pages, "_GOING", 3)

    async def work():
        async with opened() as browser:
            await fill(browser)
            store, gate = browser.store, asyncio.Event()
            search, asked = store.search, []

            async def wait_and_search(*args, **given):
                asked.append(args[1])
                await gate.wait()
                return await search(*args, **given)

            monkeypatch.setattr(store, "search", wait_and_search, raising=False)
            for words in ("needle", "needle", "hay", "straw"):
                came = await browser.get("/search", q=words, name="alpha")
                assert came.status == 200
                assert "Still searching" in came.text
                assert came.headers["refresh"] == "2"
            assert (await browser.get("/search", q="too much", name="alpha")).status == 503
            assert asked == ["needle", "hay", "straw"]
            gate.set()
            assert "A needle in it." in (await searched(browser, q="needle", name="alpha")).text
            assert "No message" in (await searched(browser, q="too much", name="alpha")).text

    asyncio.run(work())


def test_messages_are_found_by_their_words(kind):
    """In all sessions, and in one; an encrypted store says that it searches one at a time."""

    async def work():
        async with opened() as browser:
            await fill(browser)
            await write(browser.store, "other", priced(MODEL, 900, "Nothing alike."))
            inside = await searched(browser, q="needle", name="alpha")
            assert [*re.findall(r"<bdi>(A needle in it\.)</bdi>", inside.text)] == [
                "A needle in it."
            ]
            assert 'href="/original?name=alpha&amp;at=1"' in inside.text
            nothing = await searched(browser, q="needle", name="other")
            assert "No message has any of these words" in nothing.text
            everywhere = await searched(browser, q="needle")
            assert everywhere.status == 200
            if kind.startswith("encrypted"):
                assert "encrypted" in everywhere.text
                assert "choose one" in everywhere.text
            else:
                assert 'href="/session?name=alpha&amp;at=1"' in everywhere.text
            assert (await browser.get("/search", q="x", name="never-was")).status == 404
            listed = await browser.get("/", q="needle")
            assert 'href="/search?q=needle"' in listed.text
            page = await browser.get("/session", name="alpha")
            assert page.page.find_form("/search")[1]["name"] == "alpha"

    asyncio.run(work())


def test_every_message_of_a_view_without_bounds_is_reached(monkeypatch):
    """Never folded, and too large to be shown at once: earlier messages are one link away, and back."""
    monkeypatch.setattr(logged_calls, "_HELD", 300)
    monkeypatch.setattr(logged_calls, "NEWEST", 100)

    async def work():
        async with opened() as browser:
            events = conversation(80, size=1)
            await write(browser.store, "mine", events)
            address, seen, pages = "/session?name=mine&at=now", [], 0
            while address:
                came = await browser.ask("GET", address)
                assert len(came.body) < 300_000
                seen = [
                    *map(int, re.findall(r'aria-label="\w+ at log:(\d+)"', came.text)),
                    *seen,
                ]
                more = re.search(r'href="([^"]+)#messages">‹ Earlier', came.text)
                address = more[1].replace("&amp;", "&") if more else ""
                pages += 1
            wanted = [
                at
                for at, event in enumerate(events)
                if isinstance(event, UserSaid | ModelSaid | ToolReturned)
            ]
            assert seen == wanted
            assert pages > 10
            first = re.search(r'href="([^"]+)#messages">Later', came.text)[1].replace("&amp;", "&")
            back = await browser.ask("GET", first)
            places = [*map(int, re.findall(r'aria-label="\w+ at log:(\d+)"', back.text))]
            assert places[0] > 30

    asyncio.run(work())

"""The fleet: from usage rows and from logs, by who may see whose, with gaps, as a page and as CSV."""

import asyncio
import csv
import io
import re
import sys
import time
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from browsing import Browser, a_store, opened
from hypothesis import given
from hypothesis import strategies as st
from logs import HOSTILE, MODEL, conversation, write
from test_hostile import check

from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.apps.pages import access, fleet_pages, pages_app
from foldline.apps.pages.fleet_sums import find_added
from foldline.apps.pages.pages_app import make_sign_ins
from foldline.errors import StoreFailed
from foldline.session.usage_records import (
    ADDED_SECONDS,
    UsageGroup,
    UsageRecorder,
    UsageSums,
)

DAY = 86_400
DOLLAR = 10**12


def name_day(ago=0):
    """The name of a day so many days ago."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago * DAY))


async def record(store, tenant, owner, model, *, ago=0, calls=1, seconds=(), **sums):  # noqa: PLR0913
    """Usage as a gateway writes it, so many days ago."""
    recorder = UsageRecorder(store, clock=lambda: time.time() - ago * DAY)
    made = UsageSums(calls=calls, **sums)
    for one in seconds:
        made.count_added(one)
    recorder.add(tenant, UsageGroup(owner, "key", model, "up"), made)
    await recorder.flush()


async def read_fleet(browser, path="/fleet", **given):
    """The page once nothing is read any more."""
    for _ in range(200):
        came = await browser.get("/fleet", **given)
        if came.status != 200 or not re.search("still being read|Known of", came.text):
            return came if path == "/fleet" else await browser.get(path, **given)
        await asyncio.sleep(0.02)
    raise AssertionError("the fleet is read for ever")


def read_text(answer):
    """The words of a page."""
    return " ".join(answer.page.text.split())


async def read_rows(browser, **given):
    """The rows of the exported file."""
    came = await read_fleet(browser, "/fleet.csv", **given)
    assert came.status == 200
    return [*csv.DictReader(io.StringIO(came.text))]


@pytest.mark.usefixtures("kind")
def test_the_page_and_its_file_show_every_figure_of_usage():
    async def work():
        async with opened() as browser:
            await record(
                browser.store, "local", "amy", "m-one", calls=40, input=8_000, cache_read=6_000,
                output=500, pico=3 * DOLLAR, saved_pico=2 * DOLLAR, folds=4, healed=7,
                errors={"overloaded": 3, "timeout": 1}, seconds=[0.004] * 36 + [0.09] * 4,
            )  # fmt: skip
            await record(browser.store, "local", "ben", "m-two", ago=3, pico=DOLLAR, unpriced=1)
            came = await read_fleet(browser)
            text = read_text(came)
            assert "$4.00 for 41 calls of tenant local" in text
            assert "From usage rows, which the gateway and the session API write." in text
            models = text.partition("Models")[2].partition("Owners")[0]
            one = "m-one $3.00 $2.00 40 8k 75 % 500 4 7 4 ≤ 5 ms / ≤ 100 ms usage"
            assert one in models
            assert models.index("m-one") < models.index("m-two")
            assert one.replace("m-one", "amy") in text.partition("Owners")[2]
            errors = text.partition("Errors, by kind")[2]
            assert "overloaded 3 7.3 % m-one timeout 1 2.4 % m-one" in errors
            rows = {row["owner"]: row for row in await read_rows(browser)}
            assert rows["amy"] == {
                "tenant": "local", "owner": "amy", "day": name_day(), "model": "m-one",
                "source": "usage", "calls": "40", "input": "8000", "cache_read": "6000",
                "cache_share": "0.7500", "output": "500", "dollars": "3.000000",
                "saved_dollars": "2.000000", "folds": "4", "healed": "7", "errors": "4",
                "errors_by_kind": "overloaded=3; timeout=1", "added_p50_ms": "5",
                "added_p95_ms": "100", "calls_without_price": "0",
            }  # fmt: skip
            assert rows["ben"]["day"] == name_day(3)
            assert rows["ben"]["added_p50_ms"] == ""

    asyncio.run(work())


@pytest.mark.usefixtures("kind")
def test_a_day_of_an_owner_is_counted_once():
    """Usage where there is some, else logs; both would count a call of the gateway twice."""

    async def work():
        async with opened() as browser:
            await write(browser.store, "amys", conversation(3), owner="amy")
            await write(browser.store, "bens", conversation(3), owner="ben")
            logged = {row["owner"]: row for row in await read_rows(browser)}
            assert {row["source"] for row in logged.values()} == {"logs"}
            assert {row["healed"] for row in logged.values()} == {""}
            assert "there are no usage rows" in read_text(await read_fleet(browser))
            await record(browser.store, "local", "amy", "m-one", calls=5, pico=DOLLAR)
            for one in list(browser.app._pages._lists.usage._days):
                del browser.app._pages._lists.usage._days[one]  # as if seconds had gone by
            rows = {row["owner"]: row for row in await read_rows(browser)}
            assert rows["amy"]["source"] == "usage"
            assert rows["amy"]["calls"] == "5"
            assert rows["ben"] == logged["ben"]
            text = read_text(await read_fleet(browser))
            assert "From usage rows and from logs" in text
            models = text.partition("Models")[2].partition("Owners")[0]
            assert re.search(r"m-one \$1\.00 \$0 5 .* usage", models)
            there = int(logged["ben"]["calls"])
            assert f"for {5 + there} calls" in text
            assert re.search(rf"{MODEL} \S+ – {there} .* – – – logs", models)

    asyncio.run(work())


def test_days_without_calls_are_gaps():
    """Not side by side, as days a year apart were (outside, 17)."""

    async def work():
        async with opened() as browser:
            for ago in (0, 2, 20, 45):
                await record(browser.store, "local", "amy", "m", ago=ago, pico=DOLLAR)
            came = await read_fleet(browser)
            places = [
                int(attrs["x"])
                for tag, attrs in came.page.elements
                if tag == "rect" and attrs.get("class") == "day"
            ]
            assert places == [(29 - ago) * 20 + 3 for ago in (20, 2, 0)]
            text = read_text(came)
            assert f"{name_day(29)} to {name_day()}" in text
            assert f"{name_day(19)} to {name_day(3)} no calls" in text
            assert f"{name_day(1)} no calls" in text
            strokes = re.search(r'<path d="([^"]+)"', came.text)[1]
            assert [int(one) for one in re.findall(r"M(\d+) ", strokes)] == [
                4 * (29 - ago) + 2 for ago in (20, 2, 0)
            ]
            earlier = next(one for one in came.page.list_links() if "/fleet?until" in one)
            assert earlier == f"/fleet?until={name_day(30)}"
            before = read_text(await read_fleet(browser, until=name_day(30)))
            assert f"$1.00 for 1 call of tenant local, {name_day(59)} to {name_day(30)}" in before
            long = await read_fleet(browser, days=90)
            assert "$4.00 for 4 calls" in read_text(long)

    asyncio.run(work())


def test_old_logs_are_shown_where_nothing_is_new(monkeypatch):
    async def work():
        async with opened() as browser:
            await write(browser.store, "old", conversation(2))
            now = time.time()
            monkeypatch.setattr(fleet_pages, "time", lambda: now + 400 * DAY)
            text = read_text(await read_fleet(browser))
            assert f"{name_day(29)} to {name_day()}" in text
            assert "No calls" not in text

    asyncio.run(work())


@pytest.mark.parametrize(
    "given",
    [{"days": "8"}, {"days": "x"}, {"until": "yesterday"}, {"until": "9" * 30}, {"until": "2026-13-01"}],
)  # fmt: skip
def test_a_wrong_address_is_refused(given):
    async def work():
        async with opened() as browser:
            assert (await browser.get("/fleet", **given)).status == 400
            assert (await browser.get("/fleet.csv", **given)).status == 400
            assert (await browser.get("/fleet.csv", by="x")).status == 400
            for until in ("0001-01-01", "1970-01-01", "9999-12-31"):
                assert (await read_fleet(browser, until=until)).status == 200

    asyncio.run(work())


def test_usage_that_cannot_be_read_is_said(monkeypatch):
    async def work():
        async with opened() as browser:

            async def fail(*_, **__):
                raise StoreFailed("the disk is gone")

            monkeypatch.setattr("foldline.apps.pages.fleet_sums.read_usage", fail)
            text = read_text(await read_fleet(browser))
            assert "Some usage cannot be read: the disk is gone" in text
            came = await browser.get("/fleet.csv")
            assert "partial" in came.headers["content-disposition"]

    asyncio.run(work())


@pytest.mark.usefixtures("kind")
def test_hostile_names_of_usage_are_text():
    """Tenants, owners, models and kinds of errors; 3,000 of them make no large page."""

    async def work():
        async with opened() as browser:
            name = HOSTILE.replace("\0", "")[:300]
            for at in range(3):
                await record(
                    browser.store, "local", f"{at}{name}", name, pico=DOLLAR, errors={name: 2}
                )
            recorder = UsageRecorder(browser.store)
            for at in range(3_000):
                group = UsageGroup(f"{at}{name[:50]}", "", f"=m{at}", "")
                recorder.add("local", group, UsageSums(calls=1, pico=at))
            await recorder.flush()
            came = await read_fleet(browser, days=90)
            assert came.status == 200
            check(came)
            assert "</script><script>" in came.page.text
            assert len(came.body) < 100_000
            file = (await browser.get("/fleet.csv")).text
            assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2066]", file)
            rows = [*csv.DictReader(io.StringIO(file))]
            assert len(rows) == 3_003
            assert all(row["model"].startswith(("'=", "</pre>")) for row in rows)

    asyncio.run(work())


@given(st.lists(st.floats(0, 4), min_size=1, max_size=60), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_where_the_histogram_says(seconds, share):
    sums = UsageSums()
    for one in seconds:
        sums.count_added(one)
    ordered, found = sorted(seconds), find_added(sums, share)
    exact = next(one for at, one in enumerate(ordered, 1) if at >= share * len(ordered))
    if found.is_longer:
        assert exact > ADDED_SECONDS[-1]
    else:
        below = max((one for one in ADDED_SECONDS if one < found.most), default=-1.0)
        assert below < exact <= found.most


SEEN = {
    "alice": {"alice"},
    "bob": {"bob"},
    "reader": {"alice", "bob", "carol"},
    "admin": {"alice", "bob", "carol"},
    "eve": {"eve"},
    "operator": {"alice", "bob", "carol", "eve"},
}
"""By key: whose figures it sees. All are of acme but eve, who is a client of other, and the operator."""
ROLES = {"reader": "reader", "admin": "admin", "operator": "operator"}


@asynccontextmanager
async def a_gateway(folder):
    """Browsers that are signed in with a key of each role."""
    with a_store() as store:
        tenants = {"eve": "other", "operator": "ops"}
        keys = {
            who: create_key(
                folder / "keys", who, tenant=tenants.get(who, "acme"), role=ROLES.get(who, "client")
            )
            for who in SEEN
        }
        settings = GatewaySettings(
            upstreams=parse_upstreams(["http://127.0.0.1:1"], {}), keys=Keys(folder / "keys")
        )
        pages = pages_app.PagesApp(
            Pool(PoolPlace(store=store, model_of=None)),
            make_sign_ins(settings, port=8123, store=store),
        )
        browsers = {who: Browser(pages, root="/ui") for who in keys}
        for who, browser in browsers.items():
            tenant = "acme" if who == "operator" else ""
            came = await browser.post("/sign-in", {"key": keys[who], "tenant": tenant})
            assert came.status == 200
        try:
            yield store, browsers
        finally:
            await pages.close()
            await store.close()


async def check_rights(folder):
    """Every role sees the figures of its own, and no others."""
    async with a_gateway(folder) as (store, browsers):
        for owner, tenant in (("alice", "acme"), ("bob", "acme"), ("eve", "other")):
            await record(
                store, tenant, owner, f"canary-{owner}", pico=DOLLAR, errors={f"canary-{owner}": 1}
            )
        for owner, tenant in (("alice", "acme"), ("carol", "acme"), ("eve", "other")):
            await write(store, f"canary-{owner}-log", conversation(2), owner=owner, tenant=tenant)
        for who, wanted in SEEN.items():
            shown = await read_fleet(browsers[who])
            assert {*re.findall(r"canary-(\w+)", shown.text)} == wanted, who
            assert {row["owner"] for row in await read_rows(browsers[who])} == wanted, who
            dollars = len(wanted - {"carol"})
            total = sum(float(row["dollars"]) for row in await read_rows(browsers[who]))
            assert total == pytest.approx(dollars, abs=0.2 if "carol" in wanted else 1e-6)
            sessions = {row["owner"] for row in await read_rows(browsers[who], by="session")}
            assert sessions == (wanted - {"eve"} if who == "operator" else wanted) - {"bob"}, who
            table = "Tenants" in read_text(shown)
            assert table == (who == "operator")
            for path in ("/fleet", "/fleet.csv"):
                for tenant in ("acme", "other", "ops", "never-was"):
                    came = await browsers[who].get(path, tenant=tenant)
                    is_own = tenant == ("other" if who == "eve" else "acme")
                    if who == "operator":
                        expected = 200 if tenant in ("acme", "other") else 404
                    else:
                        expected = 200 if is_own else 403
                    assert came.status == expected, (who, path, tenant)
        theirs = await read_fleet(browsers["operator"], tenant="other")
        assert {*re.findall(r"canary-(\w+)", theirs.text)} == {"eve"}
        assert "canary-eve-log" in theirs.text
        assert "/ui/session?name=canary-eve-log" not in theirs.text, (
            "it is not of this visit's tenant"
        )


@pytest.mark.usefixtures("kind")
def test_each_role_sees_the_fleet_of_its_own(tmp_path):
    asyncio.run(check_rights(tmp_path))


MUTANTS = {
    "a client sees usage of all": (fleet_pages, "if _may_see(visitor, one.owner)]", "]"),
    "a client sees logs of all": (fleet_pages, "    if visitor.sees_all:\n        return figures", "    return figures"),
    "owners are not compared": (fleet_pages, "visitor.sees is None or visitor.sees == owner", "True"),
    "anybody names a tenant": (fleet_pages, 'if wanted not in ("", visitor.tenant):', "if False:"),
    "anybody sees all tenants": (fleet_pages, "if not visitor.reaches_all:", "if False:"),
    "an operator names what is not there": (fleet_pages, "if wanted not in found:", "if False:"),
    "an operator sees one tenant": (access, 'client.rights.reaches == "all",\n            )', "False)"),
    "every key is an operator's": (access, 'client.rights.reaches == "all",\n            )', "True)"),
    "every admin is an operator": (access, 'client.rights.reaches == "all",\n            )', 'client.rights.reaches != "own")'),
}  # fmt: skip
"""Checks that are taken out of the code, each by itself."""


def load_mutant(module, line, instead, monkeypatch):
    """The module as it would be with another line."""
    text = Path(module.__file__).read_text()
    assert text.count(line) == 1, line
    mutant = module_from_spec(spec_from_loader("mutant_of_pages", loader=None))
    monkeypatch.setitem(sys.modules, "mutant_of_pages", mutant)  # dataclasses look there
    exec(compile(text.replace(line, instead), "mutant", "exec"), mutant.__dict__)  # noqa: S102
    return mutant


@pytest.mark.parametrize("name", MUTANTS)
def test_a_right_that_is_not_checked_is_missed(name, tmp_path, monkeypatch):
    mutant = load_mutant(*MUTANTS[name], monkeypatch)
    if MUTANTS[name][0] is access:
        monkeypatch.setattr(access.SignIns, "find_visitor", mutant.SignIns.find_visitor)
    else:
        monkeypatch.setitem(pages_app.READ, "/fleet", mutant.show_fleet)
        monkeypatch.setitem(pages_app.READ, "/fleet.csv", mutant.export_fleet)
    with pytest.raises(AssertionError):
        asyncio.run(check_rights(tmp_path))

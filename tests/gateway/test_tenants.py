"""G-8, G-10: a gateway treats each tenant as its own table says, and reads that again by itself."""

import asyncio
import json
import os
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from time import monotonic, sleep

import pytest
from gateway_thread import Served
from program import PROGRAM
from raw_upstream import Upstream

from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.asgi import GatewayHealth
from foldline.apps.gateway.current_settings import CurrentSettings
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.errors import StoreFailed
from foldline.proxy.conversations import Conversations
from foldline.settings.layers import load_settings
from foldline.testing import Provider

TENANTS = """
[gateway.tenants.small]
model.max_input_tokens = 4000
on_store_failure = "open"

[gateway.tenants.large]
model.max_input_tokens = 400000
"""
LONG = [
    {"role": role, "content": f"{at} " + "the quick brown fox " * 120}
    for at in range(20)
    for role in ("user", "assistant")
][:-1]


@contextmanager
def serving(folder, upstream, *options):
    """A gateway as a process, what it says on standard error, and its port."""
    heard: list[str] = []
    process = subprocess.Popen(
        [PROGRAM, "serve", "--port", "0", "--store", "talks.db", "--upstream", upstream, *options],
        cwd=folder, env={**os.environ, "XDG_CONFIG_HOME": str(folder), "FOLDLINE_UPSTREAM_KEY": "theirs"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    listener = threading.Thread(target=lambda: heard.extend(process.stderr), daemon=True)
    listener.start()
    try:
        shown = ""
        while "pages" not in shown:
            line = process.stdout.readline()
            assert line, f"it did not start: {shown} {heard}"
            shown += line
        yield process, int(re.search(r":(\d+)/v1", shown)[1]), heard
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        listener.join()
        process.stdout.close()
        process.stderr.close()


def post(port, path, body, key):
    """Status, answer and headers."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers)  # fmt: skip
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused), refused.headers


def count_edits(port, key, words="a"):
    """How many edits a long conversation gets."""
    body = {"model": "m", "messages": [{"role": "user", "content": words}, *LONG[1:]]}
    status, _, headers = post(port, "/v1/chat/completions", body, key)
    assert status == 200
    return int(headers["X-Foldline-Edits"])


def wait_for(found, seconds=20.0):
    """Wait until something is so."""
    until = monotonic() + seconds
    while not (one := found()):
        assert monotonic() < until
        sleep(0.05)
    return one


def settings_say(folder, text):
    """Write the operator's file, in one piece."""
    (folder / "foldline").mkdir(exist_ok=True)
    (folder / "foldline" / "new").write_text(text)
    (folder / "foldline" / "new").replace(folder / "foldline" / "foldline.toml")


def test_g10_each_tenant_has_its_own_settings_and_they_are_read_again(tmp_path):
    """Policy, window and summarizer are the file's; a change counts at the next request."""
    settings_say(tmp_path, TENANTS)
    keys = {name: create_key(tmp_path / "keys", name, tenant=name) for name in ("small", "large")}
    with (
        Provider() as provider,
        serving(tmp_path, provider.url, "--keys", "keys") as (process, port, heard),
    ):
        assert count_edits(port, keys["small"]) > 0
        assert count_edits(port, keys["large"]) == 0
        settings_say(tmp_path, TENANTS.replace("400000", "4000"))
        wait_for(lambda: any("a settings file has changed" in line for line in heard))
        assert any("gateway.tenants.large.model.max_input_tokens" in line for line in heard)
        assert count_edits(port, keys["large"], "b") > 0

        settings_say(tmp_path, 'policy = "none of ours"')
        wait_for(lambda: any("the settings stay as they were" in line for line in heard))
        assert count_edits(port, keys["large"], "c") > 0

        settings_say(tmp_path, TENANTS)
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: any("SIGHUP: settings are read again" in line for line in heard))
        assert count_edits(port, keys["large"], "d") == 0
        late = create_key(tmp_path / "keys", "late", tenant="small")
        wait_for(lambda: any("keys is read again: 3 keys" in line for line in heard) or post(port, "/v1/chat/completions", {"model": "m", "messages": LONG[:1]}, late)[0] == 200)  # fmt: skip
        assert count_edits(port, late, "e") > 0
        assert "theirs" not in "".join(heard)


def test_g8_retention_is_each_tenant_s_own_and_begins_when_it_is_set(tmp_path):
    """Of three tenants one has a rule, another gets one while the gateway runs."""
    rule = "[retention]\nevery_hours = 0.0001\n[gateway.tenants.one]\nretention.sessions = 1\n"
    settings_say(tmp_path, rule)
    names = ("one", "two", "three")
    keys = {name: create_key(tmp_path / "keys", name, tenant=name) for name in names}

    def sessions(port, key):
        headers = {"authorization": f"Bearer {key}"}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/sessions", headers=headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310
            return sorted(one["name"] for one in json.load(answer)["sessions"])

    with Provider() as provider:
        with serving(tmp_path, provider.url, "--keys", "keys") as (_, port, _):
            for key in keys.values():
                for session in ("a", "b", "c"):
                    assert post(port, "/sessions", {"name": session, "model": "m"}, key)[0] == 201
        with serving(tmp_path, provider.url, "--keys", "keys") as (_, port, heard):
            wait_for(lambda: sessions(port, keys["one"]) == ["c"])
            assert sessions(port, keys["two"]) == sessions(port, keys["three"]) == ["a", "b", "c"]
            assert any("retention erased 2 sessions of one" in line for line in heard)


def test_g8_a_rule_that_is_set_later_counts_too():
    """`run_retention` asks for the rule each time it looks."""
    from foldline.session.retention import run_retention  # noqa: PLC0415 - only here
    from foldline.settings.tree import RetentionSettings  # noqa: PLC0415
    from foldline.stores.base import Name, Receipt  # noqa: PLC0415
    from foldline.stores.open_store import store_at  # noqa: PLC0415

    rules = {"one": RetentionSettings(), "two": RetentionSettings()}
    asked: list[str] = []

    async def run():
        store, is_asked = store_at(":memory:"), asyncio.Event()

        async def retain(tenant, _rule):
            asked.append(tenant)
            is_asked.set()
            return Receipt((), 0, 0)

        store.retain = retain
        async with run_retention(store, lambda: rules, rules.get, notify=print, look=0.01):
            await asyncio.sleep(0.1)
            assert asked == []
            rules["two"] = RetentionSettings(days=1)
            await is_asked.wait()
            looked = await store.get(Name("two", ""), "retention", "next")
            assert looked is not None
        await store.close()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert set(asked) == {"two"}


class Away:
    """A store that does not answer: what plans a request waits, and what looks at it fails."""

    def __init__(self, patch):
        self.is_away, self.waited = False, 0
        self.looks: list[bool] = []
        begin = Conversations.start_exchange
        reach = GatewayHealth.can_reach_store

        async def start_exchange(conversations, *given, **named):
            if self.is_away:
                self.waited += 1
                await asyncio.sleep(3.0)
                raise StoreFailed("gone")
            return await begin(conversations, *given, **named)

        async def can_reach_store(health):
            if self.looks:
                return self.looks.pop(0)
            return not self.is_away and await reach(health)

        patch.setattr(Conversations, "start_exchange", start_exchange)
        patch.setattr(GatewayHealth, "can_reach_store", can_reach_store)


@pytest.fixture
def gateway_of_two(tmp_path, monkeypatch):
    """A gateway of two tenants, one of which fails open, and its store."""
    settings_say(tmp_path, TENANTS)
    keys = {name: create_key(tmp_path / "keys", name, tenant=name) for name in ("small", "large")}
    away = Away(monkeypatch)
    with Upstream() as upstream:
        settings = GatewaySettings(
            upstreams=parse_upstreams([upstream.url], {}),
            keys=Keys(tmp_path / "keys"),
            current=CurrentSettings(load_settings(tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})),
        )  # fmt: skip
        with Served(settings, store=":memory:") as gateway:
            yield gateway, keys, away, upstream


def test_g10_a_tenant_fails_open_or_closed_while_the_store_is_away(gateway_of_two):
    gateway, keys, away, upstream = gateway_of_two
    body = {"model": "m", "messages": LONG[:1]}
    for is_away in (False, True, False):
        away.is_away = is_away
        asked = {name: post(gateway.port, "/v1/chat/completions", body, key) for name, key in keys.items()}  # fmt: skip
        assert asked["small"][0] == 200
        unplanned = asked["small"][2]["X-Foldline-Unplanned"]
        assert unplanned == ("store-away" if is_away else None)
        assert asked["large"][0] == (503 if is_away else 200)
    assert away.waited == 1  # the tenant that fails open did not wait for the store
    assert [json.loads(one.body)["messages"] for one in upstream.asked] == [LONG[:1]] * 5


def test_g10_a_store_that_goes_away_while_a_request_is_planned_holds_it_up_for_a_moment(
    gateway_of_two,
):
    gateway, keys, away, _ = gateway_of_two
    away.is_away, away.looks = True, [True]
    began = monotonic()
    status, _, headers = post(
        gateway.port, "/v1/chat/completions", {"model": "m", "messages": LONG[:1]}, keys["small"]
    )
    assert status == 200
    assert headers["X-Foldline-Unplanned"] == "store-away"
    assert away.waited == 1
    assert monotonic() - began < 2.9

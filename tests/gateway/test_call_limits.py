"""G-4: the operator's limits hold for relayed traffic and for the session API, in every dialect's own words.

The official SDKs show what they do with a refusal: a minute's limit is waited for, a spent month is not.
"""

import http.client
import json
import time

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types

from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.current_settings import CurrentSettings
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.settings.layers import load_settings
from foldline.testing import Provider
from foldline.testing.gateways import Served

SAID = [{"role": "user", "content": "Hello"}]
CHAT = {"model": "gpt-5", "max_completion_tokens": 100, "messages": SAID}
MESSAGES = {"model": "claude-opus-4-6", "max_tokens": 100, "messages": SAID}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


class Rig:
    """A gateway with limits, and keys of two owners."""

    def __init__(self, folder, provider, text):
        self.folder, self.file = folder, folder / "foldline" / "foldline.toml"
        self.file.parent.mkdir()
        self.file.write_text(text)
        keys = folder / "keys"
        self.keys = {name: create_key(keys, name, tenant="acme") for name in ("alice", "bob")}
        self.current = CurrentSettings(self.load(), self.load, files=(self.file,))
        settings = GatewaySettings(
            upstreams=parse_upstreams([provider.url], {"FOLDLINE_UPSTREAM_KEY": "sk"}),
            keys=Keys(keys),
            current=self.current,
        )
        self.served = Served(settings, store=str(folder / "sessions.db"))

    def load(self):
        """The settings as the file has them."""
        return load_settings(self.folder, env={"XDG_CONFIG_HOME": str(self.folder)})

    def ask(self, path, body, who="alice", **headers):
        """Status, headers and body of one request."""
        line = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=30)
        given = {"x-foldline-key": self.keys[who], "content-type": "application/json", **headers}
        line.request("POST", path, json.dumps(body).encode(), given)
        answer = line.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        line.close()
        return found

    def chat(self, who="alice", **more):
        """One call in OpenAI's dialect."""
        return self.ask("/v1/chat/completions", {**CHAT, **more}, who)

    def close(self):
        """End the gateway."""
        self.served.__exit__()


@pytest.fixture
def rig(tmp_path):
    """Makes gateways with limits as a file says."""
    with Provider() as provider:
        made = []

        def make(text):
            one = Rig(tmp_path, provider, text)
            made.append(one)
            one.served.__enter__()
            one.provider = provider
            if (left := 60 - time.time() % 60) < 3:  # what is asked in two minutes is counted twice
                time.sleep(left)
            return one

        yield make
        for one in made:
            one.close()


def limits(**table):
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in table.items())
    return f"[[gateway.limits]]\n{lines}\n"


SHAPES = {
    "openai": ("/v1/chat/completions", CHAT, lambda body: body["error"]["code"]),
    "responses": ("/v1/responses", {"model": "gpt-5", "input": "Hello"}, lambda body: body["error"]["code"]),
    "anthropic": ("/v1/messages", MESSAGES, lambda body: (body["type"], body["error"]["type"])),
    "google": ("/v1beta/models/gemini-2.5-pro:generateContent", GEMINI, lambda body: (body["error"]["code"], body["error"]["status"])),
}  # fmt: skip
WORDS = {
    "openai": "rate_limit_exceeded",
    "responses": "rate_limit_exceeded",
    "anthropic": ("error", "rate_limit_error"),
    "google": (429, "RESOURCE_EXHAUSTED"),
}


@pytest.mark.parametrize("vendor", SHAPES)
def test_a_limit_refuses_in_the_providers_own_shape_before_the_upstream_is_asked(rig, vendor):
    one = rig(limits(owner="*", requests_per_minute=1))
    path, body, read = SHAPES[vendor]
    assert one.ask(path, body)[0] == 200
    asked = len(one.provider.bodies)
    status, headers, told = one.ask(path, body)
    assert (status, read(json.loads(told))) == (429, WORDS[vendor])
    assert 1 <= int(headers["retry-after"]) <= 60
    assert headers["x-foldline-error"] == "limit_reached"
    assert headers["x-foldline-limit"].startswith("requests_per_minute; tenant acme, owner alice")
    assert len(one.provider.bodies) == asked
    assert one.ask(path, body, "bob")[0] == 200


def test_a_minutes_limit_is_waited_for_by_the_official_sdks(rig, monkeypatch):
    """They read Retry-After; the pause itself is cut short here."""
    one = rig(limits(owner="*", requests_per_minute=1))
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        one.file.write_text(limits(owner="*", requests_per_minute=len(pauses) + 1))
        while one.current.tables.limits[0].limits["requests_per_minute"] != len(pauses) + 1:
            real_sleep(0.01)

    real_sleep = time.sleep
    monkeypatch.setattr("openai._base_client.time.sleep", pause)
    headers = {"x-foldline-key": one.keys["alice"]}
    asked = openai.OpenAI(base_url=f"{one.served.url}/v1", api_key="x", default_headers=headers)
    for _ in range(3):
        assert asked.chat.completions.create(**CHAT).choices[0].message.content
    assert len(pauses) == 2
    assert all(0 < one <= 60 for one in pauses)


def test_a_spent_month_is_told_at_once_by_the_official_sdks(rig):
    one = rig(limits(owner="*", dollars_per_month=0, soft=0.5))
    headers = {"x-foldline-key": one.keys["alice"]}
    begun = time.monotonic()
    with openai.OpenAI(
        base_url=f"{one.served.url}/v1", api_key="x", default_headers=headers
    ) as sdk:
        with pytest.raises(openai.RateLimitError, match="per month of tenant acme") as told:
            sdk.chat.completions.create(**CHAT)
        assert told.value.code == "insufficient_quota"
        with pytest.raises(openai.RateLimitError):
            sdk.responses.create(model="gpt-5", input="Hello")
    sdk = anthropic.Anthropic(base_url=one.served.url, api_key="x", default_headers=headers)
    with sdk, pytest.raises(anthropic.RateLimitError, match="it begins anew at"):
        sdk.messages.create(**MESSAGES)
    options = types.HttpOptions(base_url=one.served.url, headers=headers)
    sdk = genai.Client(api_key="x", http_options=options)
    with sdk, pytest.raises(google_errors.ClientError) as refused:
        sdk.models.generate_content(model="gemini-2.5-pro", contents="Hello")
    assert (refused.value.code, refused.value.status) == (429, "RESOURCE_EXHAUSTED")
    assert one.provider.bodies == []
    assert sum(one.served.gateway.call_limits.limiter.refused.values()) == 4  # none asked twice
    assert time.monotonic() - begun < 30


def test_tokens_and_dollars_are_counted_as_the_provider_counts_them(rig):
    one = rig(limits(owner="*", tokens_per_minute=1_000_000, dollars_per_day=100, soft=0.000001))
    status, headers, body = one.chat()
    assert status == 200
    usage = json.loads(body)["usage"]
    one.chat()  # the first is settled by now
    found = {part.measure.name: part for part in one.served.gateway.call_limits.limiter.bind_limits(
        next(iter(one.served.gateway.call_limits.limiter._bound)))}  # fmt: skip
    parts = {name: bound.counter.parts[name] for name, bound in found.items()}
    deadline = time.monotonic() + 5
    while any(part.reserved for part in parts.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    used = {name: part.spent + part.used for name, part in parts.items()}
    assert used["tokens_per_minute"] == 2 * usage["total_tokens"]
    price = 1.25 * usage["prompt_tokens"] + 10 * usage["completion_tokens"]
    assert used["dollars_per_day"] == pytest.approx(2 * price * 10**6, rel=0.01)
    _, headers, _ = one.chat()
    assert "tenant acme, owner alice; used=" in headers["x-foldline-limit"]


def test_a_refused_call_leaves_the_conversation_as_it_was(rig):
    one = rig(limits(owner="*", requests_per_minute=2))
    assert one.chat()[0] == 200
    assert one.chat("bob")[0] == 200
    assert one.chat()[0] == 200
    assert one.chat()[0] == 429
    one.file.write_text("")
    deadline = time.monotonic() + 10
    while one.current.tables.limits and time.monotonic() < deadline:
        time.sleep(0.02)
    assert one.chat()[0] == 200


def test_limits_hold_for_the_session_api_too(rig):
    one = rig(limits(owner="*", requests_per_minute=1))
    for name in ("a", "b"):
        assert one.ask("/sessions", {"name": name, "model": "gpt-5"})[0] < 300
    assert one.ask("/sessions/a/messages", {"text": "Hello"})[0] == 200
    status, headers, body = one.ask("/sessions/b/messages", {"text": "Hello"})
    assert (status, json.loads(body)["error"]["kind"]) == (429, "limited")
    assert 1 <= int(headers["retry-after"]) <= 60


def test_counting_tokens_and_listing_models_cost_nothing(rig):
    one = rig(limits(owner="*", requests_per_minute=1))
    for _ in range(3):
        assert one.ask("/v1/messages/count_tokens", MESSAGES)[0] != 429


def test_metrics_say_how_full_limits_are_and_what_they_refuse(rig):
    one = rig(limits(owner="*", requests_per_minute=4))
    for _ in range(5):
        one.chat()
    text = one.served.gateway._figures.render_metrics("acme").decode()
    assert 'foldline_limit_used_ratio{by="tenant+owner",limit="requests_per_minute",tenant="acme"} 1.0' in text  # fmt: skip
    assert 'foldline_limit_refused_total{by="tenant+owner",limit="requests_per_minute",tenant="acme"} 1.0' in text  # fmt: skip
    assert "foldline_limit" not in one.served.gateway._figures.render_metrics("globex").decode()

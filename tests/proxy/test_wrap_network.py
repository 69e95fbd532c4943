"""A wrapped client goes out by its inner client's way: the same proxy, the same certificates."""

import asyncio
import json
import ssl

import anthropic
import httpx2
import openai
import pytest
from proxying import ForwardProxy, make_company
from raw_upstream import Upstream, head

import foldline
from foldline.testing.provider import Provider, written

SAID = [{"role": "user", "content": "Hello"}]
CLIENTS = {
    "openai": (openai.OpenAI, openai.AsyncOpenAI),
    "anthropic": (anthropic.Anthropic, anthropic.AsyncAnthropic),
}


def ask(client):
    """One question to a client of either SDK."""
    if hasattr(client, "chat"):
        return client.chat.completions.create(model="m", messages=SAID)
    return client.messages.create(model="m", max_tokens=9, messages=SAID)


def ask_and_close(client):
    """The same of a client of either kind."""
    if isinstance(client, openai.OpenAI | anthropic.Anthropic):
        with client:
            return ask(client)

    async def both():
        async with client:
            return await ask(client)

    return asyncio.run(both())


@pytest.mark.parametrize("way", ["environment", "its own"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("sdk", CLIENTS)
def test_a_wrapped_client_keeps_its_proxy(sdk, is_async, way, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    make = CLIENTS[sdk][is_async]
    with ForwardProxy() as proxy, Provider() as provider:
        # A name that nobody but the proxy knows.
        base = provider.url.replace("127.0.0.1", "api.example.test") + ("/v1" if sdk == "openai" else "")  # fmt: skip
        given = {"base_url": base, "api_key": "none", "max_retries": 0}
        if way == "environment":
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
        else:
            inner = httpx2.AsyncClient if is_async else httpx2.Client
            given["http_client"] = inner(proxy=proxy.url)
        ask_and_close(foldline.wrap(make(**given)))
        assert len(proxy.asked) == len(provider.bodies) == 1
        assert proxy.asked[0][1].startswith(base)


def test_a_wrapped_client_keeps_its_certificates(tmp_path):
    company = make_company(tmp_path)
    whole, _ = written("openai", {"model": "m"}, {"content": "Hi."}, 9)
    body = json.dumps(whole).encode()
    tls = ssl.create_default_context(cafile=company.ca)
    with (
        ForwardProxy() as proxy,
        Upstream(lambda _: [head(length=len(body)) + body], tls=company.tls) as upstream,
    ):
        http = httpx2.Client(proxy=proxy.url, verify=tls)
        base = upstream.url.replace("127.0.0.1", "api.example.test") + "/v1"
        client = openai.OpenAI(base_url=base, api_key="none", max_retries=0, http_client=http)
        assert ask_and_close(foldline.wrap(client)).choices[0].message.content == "Hi."
        assert [one[0] for one in proxy.asked] == ["CONNECT"]

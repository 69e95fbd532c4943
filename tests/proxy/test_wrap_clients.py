"""Every kind of client that the two SDKs have: it works, or it is refused with the reason."""

import inspect

import anthropic
import openai
import pytest
from test_wrap_names import name_of

import foldline
from foldline.core.tokens import count_tokens
from foldline.errors import BadInput
from foldline.session.spending import Cap, Caps
from foldline.testing.provider import Provider

KEY = "none"
WORDS = "The run printed nothing of note, and the file is as it was. " * 12
CHAT = {
    "OpenAI": lambda url: {"base_url": f"{url}/v1", "api_key": KEY},
    "AzureOpenAI": lambda url: {"azure_endpoint": url, "api_version": "2026-01-01", "api_key": KEY},
    "BedrockOpenAI": lambda url: {"base_url": f"{url}/v1", "api_key": KEY},
}
MESSAGES = {
    "Anthropic": lambda url: {"base_url": url, "api_key": KEY},
    "AnthropicFoundry": lambda url: {"base_url": url, "api_key": KEY},
    "AnthropicAWS": lambda url: {"base_url": url, "api_key": KEY, "workspace_id": "w"},
    "AnthropicBedrockMantle": lambda url: {"base_url": url, "api_key": KEY},
    "AnthropicGoogleCloud": lambda url: {"base_url": url, "token_provider": lambda: KEY, "project": "p", "workspace_id": "w"},
}  # fmt: skip
REFUSED = {
    "AnthropicBedrock": ({"api_key": KEY, "aws_region": "r"}, "it speaks Bedrock's InvokeModel"),
    "AnthropicVertex": ({"region": "r", "project_id": "p", "access_token": KEY}, "rawPredict"),
}
AWS = {"aws_access_key": "k", "aws_secret_key": "s", "aws_region": "r"}
SIGNING = {
    "AnthropicAWS": AWS | {"workspace_id": "w"},
    "AnthropicBedrock": AWS,
    "AnthropicBedrockMantle": AWS,
    "BedrockOpenAI": {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "aws_region": "us-east-1",
    },
}


@pytest.fixture
def anyio_backend():
    return "asyncio"


def both(kinds):
    return [f"{how}{name}" for name in kinds for how in ("", "Async")]


def find_kind(name):
    return getattr(openai, name, None) or getattr(anthropic, name)


def list_kinds():
    """Every kind of client that the SDKs name."""
    names = [
        one for one in (*dir(openai), *dir(anthropic)) if "OpenAI" in one or "Anthropic" in one
    ]
    return {one for one in names if hasattr(find_kind(one), "with_options")}


def test_no_kind_is_forgotten():
    """A new release of an SDK may have more."""
    assert list_kinds() == {*both(CHAT), *both(MESSAGES), *both(REFUSED)}


async def finish(made):
    return await made if inspect.isawaitable(made) else made


async def talk(ask, provider, client):
    """Far past the window: folded, if it is planned at all."""
    history = []
    for turn in range(12):
        history.append({"role": "user", "content": f"{turn} {WORDS}"})
        await finish(ask(model="m", messages=history))
        history.append({"role": "assistant", "content": "ok"})
    session = foldline.session_of(client)
    assert name_of(session) == "mine"
    assert session.edits
    assert max(count_tokens(body.decode()) for body in provider.bodies) <= 2_000
    await finish(client.close())


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("name", both(CHAT))
@pytest.mark.parametrize("verb", ["create", "parse"])
async def test_openais_kinds_work(name, verb):
    with Provider() as provider:
        made = find_kind(name)(**CHAT[name.removeprefix("Async")](provider.url))
        client = foldline.wrap(made, window=2_000, session="mine")
        assert isinstance(client, type(made))
        await talk(getattr(client.chat.completions, verb), provider, client)


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("name", both(MESSAGES))
@pytest.mark.parametrize("beta", [False, True])
async def test_anthropics_kinds_work(name, beta):
    with Provider() as provider:
        made = find_kind(name)(**MESSAGES[name.removeprefix("Async")](provider.url))
        client = foldline.wrap(made, window=2_000, session="mine")
        messages = client.beta.messages if beta else client.messages
        await talk(lambda **more: messages.create(max_tokens=9, **more), provider, client)


@pytest.mark.parametrize("name", both(REFUSED))
def test_kinds_with_paths_of_their_own_are_refused(name):
    given, reason = REFUSED[name.removeprefix("Async")]
    with pytest.raises(BadInput, match=f"cannot wrap a {name}: .*{reason}"):
        foldline.wrap(find_kind(name)(**given))


@pytest.mark.parametrize("name", both(SIGNING))
def test_kinds_that_sign_are_refused(name):
    client = find_kind(name)(**SIGNING[name.removeprefix("Async")])
    with pytest.raises(BadInput, match=f"cannot wrap a {name}: it signs every request"):
        foldline.wrap(client)


@pytest.mark.anyio
async def test_an_http_client_plans_what_is_sent_through_it():
    """As a framework uses one: it makes the SDK's client by itself."""
    with Provider() as provider:
        given = {"base_url": f"{provider.url}/v1", "api_key": KEY}
        for http, kind in (
            (foldline.http_client(window=2_000, session="mine"), openai.OpenAI),
            (foldline.async_http_client(window=2_000, session="mine"), openai.AsyncOpenAI),
        ):
            client = kind(http_client=http, **given)
            await talk(client.chat.completions.create, provider, client)


def test_an_http_client_sends_by_the_one_it_is_given():
    with Provider() as provider:
        inner = openai.DefaultHttpxClient(headers={"x-mine": "1"})
        http = foldline.http_client(inner, session="mine")
        with openai.OpenAI(http_client=http, base_url=f"{provider.url}/v1", api_key=KEY) as client:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
            assert name_of(foldline.session_of(http)) == "mine"
        assert inner.is_closed


@pytest.mark.parametrize("given", [object(), "text", 5])
def test_what_is_no_client_is_refused_in_words(given):
    with pytest.raises(BadInput, match="is no client of httpx"):
        foldline.http_client(given)
    with pytest.raises(BadInput, match="cannot wrap a"):
        foldline.wrap(given)


def test_an_option_that_is_not_there_is_named():
    with pytest.raises(TypeError, match="unknown option 'windows'; there are: store, session"):
        foldline.http_client(windows=5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": -3}, {"window": "a"}, {"reserve": 0}, {"fold_from": -1}, {"summarizer": 5}, {"caps": 5},
        {"caps": Caps(user=Cap(tokens=5))}, {"store": 5}, {"session": ""}, {"policy": 3}, {"policy": "none"},
    ],
)  # fmt: skip
def test_wrong_options_are_refused_at_once_and_in_words(wrong):
    with pytest.raises(BadInput):
        foldline.http_client(**wrong)

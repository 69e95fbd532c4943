"""Names with a provider before them: what is sent, to whom, and with whose key: M-9."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldline
from foldline.dialects import base
from foldline.dialects.model_names import PROVIDERS, split_provider, write_model_name
from foldline.errors import BadInput, OtherHost
from foldline.models.clients import client, default_address
from foldline.models.summarize import Tellers
from foldline.session import planning
from foldline.session.host import Host, choose_host, make_teller
from foldline.session.turn import reply
from foldline.testing import Provider

OWN = "http://127.0.0.1:8000/v1"
ROUTER = "https://openrouter.ai/api/v1"
CHAT, ANTHROPIC, GEMINI = "openai-chat", "anthropic", "gemini"
NAMES = [
    # The papers' forms, and those of daily use, where the prefix says who is asked.
    ("ollama/llama3.2", None, "llama3.2", CHAT),
    ("ollama/llama3.2:1b", None, "llama3.2:1b", CHAT),
    ("ollama_chat/qwen3:8b", None, "qwen3:8b", CHAT),
    ("openai/gpt-4o", None, "gpt-4o", CHAT),
    ("OpenAI/gpt-4o", None, "gpt-4o", CHAT),
    ("anthropic/claude-sonnet-5-5", None, "claude-sonnet-5-5", ANTHROPIC),
    ("gemini/2.5-flash", None, "gemini-2.5-flash", GEMINI),
    ("gemini/gemini-2.5-flash", None, "gemini-2.5-flash", GEMINI),
    ("gemini/gemma-4-31b-it", None, "gemma-4-31b-it", GEMINI),
    ("google/gemini-3.8-flash", None, "gemini-3.8-flash", GEMINI),
    ("google/2.5-pro", None, "gemini-2.5-pro", GEMINI),
    ("vertex_ai/gemini-2.5-pro", None, "gemini-2.5-pro", GEMINI),
    ("vertex/gemini-2.5-pro", None, "gemini-2.5-pro", GEMINI),
    ("vertex_ai/claude-sonnet-4-5@20250929", None, "claude-sonnet-4-5@20250929", ANTHROPIC),
    ("claude-sonnet-4-5@20250929", None, "claude-sonnet-4-5@20250929", ANTHROPIC),
    ("bedrock/anthropic.claude-x-v1:0", None, "anthropic.claude-x-v1:0", ANTHROPIC),
    ("bedrock/us.anthropic.claude-x-v1:0", None, "us.anthropic.claude-x-v1:0", ANTHROPIC),
    ("bedrock/converse/eu.anthropic.claude-x", None, "eu.anthropic.claude-x", ANTHROPIC),
    ("us.anthropic.claude-x-v1:0", None, "us.anthropic.claude-x-v1:0", ANTHROPIC),
    ("eu.anthropic.claude-x-v1:0", None, "eu.anthropic.claude-x-v1:0", ANTHROPIC),
    ("global.anthropic.claude-x-v1:0", None, "global.anthropic.claude-x-v1:0", ANTHROPIC),
    ("openrouter/anthropic/claude-x", None, "anthropic/claude-x", CHAT),
    ("openrouter/google/gemini-3.8-flash", None, "google/gemini-3.8-flash", CHAT),
    ("groq/llama-3.3-70b-versatile", None, "llama-3.3-70b-versatile", CHAT),
    ("groq/openai/gpt-oss-120b", None, "openai/gpt-oss-120b", CHAT),
    ("deepseek/deepseek-chat", None, "deepseek-chat", CHAT),
    ("xai/grok-4.7", None, "grok-4.7", CHAT),
    ("mistral/mistral-large-latest", None, "mistral-large-latest", CHAT),
    ("azure/my-deployment", None, "my-deployment", CHAT),
    ("together_ai/meta-llama/Llama-4", None, "meta-llama/Llama-4", CHAT),
    # Names that begin like a prefix and are whole.
    ("openrouter/auto", None, "openrouter/auto", CHAT),
    ("groq/compound-mini", None, "groq/compound-mini", CHAT),
    ("openai/gpt-oss-20b", None, "openai/gpt-oss-20b", CHAT),
    ("google/gemma-4-31b-it", None, "google/gemma-4-31b-it", CHAT),
    ("meta-llama/Llama-3.1-8B", None, "meta-llama/Llama-3.1-8B", CHAT),
    ("gpt-4o", None, "gpt-4o", CHAT),
    ("ollama/", None, "ollama/", CHAT),
    # A server of one's own has names with slashes too.
    ("meta-llama/Llama-3.1-8B", OWN, "meta-llama/Llama-3.1-8B", CHAT),
    ("openai/gpt-oss-20b", OWN, "openai/gpt-oss-20b", CHAT),
    ("openai/gpt-4o", OWN, "openai/gpt-4o", CHAT),
    ("openai/gpt-4o", "https://notopenai.com/v1", "openai/gpt-4o", CHAT),
    ("deepseek/deepseek-chat", OWN, "deepseek/deepseek-chat", CHAT),
    ("bedrock/anthropic.claude-x", OWN, "bedrock/anthropic.claude-x", CHAT),
    # … but Ollama is always somebody's own, and these two SDKs take no prefix.
    ("ollama/llama3.2", "http://gpu.lan:9/v1", "llama3.2", CHAT),
    ("anthropic/claude-x", OWN, "claude-x", ANTHROPIC),
    ("google/gemini-3.8-flash", OWN, "gemini-3.8-flash", GEMINI),
    # A provider's own address, by its host.
    ("openai/gpt-4o", "https://eu.api.openai.com/v1", "gpt-4o", CHAT),
    ("openai/gpt-4o", ROUTER, "openai/gpt-4o", CHAT),
    ("anthropic/claude-x", ROUTER, "anthropic/claude-x", CHAT),
    ("google/gemini-3.8-flash", ROUTER, "google/gemini-3.8-flash", CHAT),
    ("openrouter/anthropic/claude-x", ROUTER, "anthropic/claude-x", CHAT),
    ("azure/mine", "https://me.openai.azure.com/openai/v1", "mine", CHAT),
    (
        "gemini/2.5-flash",
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "gemini-2.5-flash",
        CHAT,
    ),
]
KEYS = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GROQ_API_KEY", "AZURE_OPENAI_ENDPOINT")


@pytest.fixture(autouse=True)
def _no_servers_of_the_environment(monkeypatch):
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "address", "sent", "dialect"), NAMES)
def test_names(name, address, sent, dialect):
    """M-9: the name that is sent, and the dialect it is sent in."""
    assert write_model_name(name, address) == sent
    assert base.choose_dialect(name, None, address=address).name == dialect
    assert write_model_name(sent, address or default_of(name)) == sent, "taken off once"


def default_of(name):
    provider, _ = split_provider(name)
    return (provider and provider.address) or "https://api.openai.com/v1"


PREFIXES = [prefix for provider in PROVIDERS for prefix in provider.prefixes]
WORD = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)


@given(st.lists(WORD, min_size=1, max_size=3), st.sampled_from([None, OWN, ROUTER]))
def test_a_prefix_that_names_nobody_stays(words, address):
    name = "/".join(words)
    if words[0] not in PREFIXES or len(words) == 1:
        assert write_model_name(name, address) == name


@given(st.sampled_from(PREFIXES), WORD, WORD)
def test_only_the_first_prefix_goes(prefix, maker, word):
    """Whatever is behind it is the provider's own name for the model."""
    name = f"{prefix}/{maker}/{word}"
    assert write_model_name(name) in (name, f"{maker}/{word}")


@pytest.mark.parametrize(
    ("name", "_address", "sent", "dialect"), [one for one in NAMES if not one[1]]
)
def test_a_session_sends_the_providers_name_and_keeps_the_given_one(name, _address, sent, dialect):
    s = foldline.open(":memory:", model=name, window=50_000)
    s.add("hello")
    request = s.request()
    assert request["model"] == sent
    assert next(iter(request)) == "model"
    assert s.aio.live.view.model == name
    asked = s.history.events()[-1]
    assert asked.event.dialect == dialect
    assert s.history.sent(asked.seq) == request, "law 5: rebuilt, byte for byte"


def test_requests_that_were_sent_with_a_prefix_are_rebuilt_with_it(monkeypatch):
    """Law 5 for logs of 0.1.0: their requests had the session's own name."""
    s = foldline.open(":memory:", model="openai/gpt-4o")
    s.add("hello")
    with monkeypatch.context() as patch:
        patch.setattr(planning, "_name_model", lambda *_: {})
        before = s.request()
    s.add([{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "more"}])
    after = s.request()
    assert (before["model"], after["model"]) == ("openai/gpt-4o", "gpt-4o")
    asked = [seq for seq, event in s.history.events() if type(event).__name__ == "Asked"]
    assert [s.history.sent(seq) for seq in asked] == [before, after]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("ollama/llama3.2", "llama3.2"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("openai/my-model", "openai/my-model"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b"),
    ],
)
def test_an_agent_asks_a_server_by_its_own_name(name, sent):
    """The server's address is the client's: the session knows none."""

    async def talk(url):
        async with foldline.aopen(":memory:", model=name) as session:
            model = client(name, base_url=f"{url}/v1")
            await session.add("hello")
            await reply(session, model)
            asked = [one for one in await session.history.events() if hasattr(one.event, "sha256")]
            again = await session.history.sent(asked[0].seq)
            await model.close()
        return again["model"]

    with Provider(["Hello."]) as provider:
        assert asyncio.run(talk(provider.url)) == sent
        assert provider.asked[0]["model"] == sent


def test_a_summarizer_is_asked_by_its_own_name():
    async def fold(url):
        teller = client("ollama/llama3.2", base_url=f"{url}/v1")
        async with foldline.aopen(
            ":memory:", model="gpt-4o", window=8_000, summarizer=Tellers((teller,))
        ) as session:
            for turn in range(6):
                await session.add(f"question {turn} " * 300)
                await session.add({"role": "assistant", "content": "Yes. " * 200})
            await session.fold()
        await teller.close()

    with Provider(lambda _: "They asked, and I said yes.") as provider:
        asyncio.run(fold(provider.url))
        assert {body["model"] for body in provider.asked} == {"llama3.2"}


@pytest.mark.parametrize(
    ("name", "variable", "address"),
    [
        ("groq/llama-3.3-70b", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
        ("openrouter/anthropic/claude-x", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
        ("deepseek/deepseek-flash", "DEEPSEEK_API_KEY", "https://api.deepseek.com"),
        ("xai/grok-4.7", "XAI_API_KEY", "https://api.x.ai/v1"),
        ("mistral/mistral-large-4", "MISTRAL_API_KEY", "https://api.mistral.ai/v1"),
        ("together_ai/meta-llama/L", "TOGETHER_API_KEY", "https://api.together.xyz/v1"),
    ],
)
def test_a_prefix_names_the_server_and_its_key(name, variable, address, monkeypatch):
    """Another provider's key is not sent to it."""
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-anthropic")
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(BadInput, match=f"set {variable}"):
        client(name)
    monkeypatch.setenv(variable, "its-own")
    made = client(name)
    assert made.base_url == address
    assert made.dialect.name == "openai-chat"
    assert key_of(made) == "its-own"
    assert key_of(client(name, api_key="given")) == "given"
    assert choose_host("s", name, recorded=None, named=None).base_url == address


def key_of(made):
    """The key that a client of OpenAI's SDK would send."""
    return made.close_sdk.__self__.api_key


def test_ollama_needs_no_key_and_gets_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    made = client("ollama/llama3.2")
    assert (made.base_url, key_of(made)) == ("http://127.0.0.1:11434/v1", "none")


def test_the_environments_address_goes_first(monkeypatch):
    """A relay that the user has set up is asked, by the name that was given."""
    with Provider(["Hello."]) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        made = client("groq/llama-3.3-70b")

        async def ask():
            await made.say({"messages": [{"role": "user", "content": "hi"}]})
            await made.close()

        asyncio.run(ask())
        assert provider.asked[0]["model"] == "groq/llama-3.3-70b"


def test_azure_is_where_its_endpoint_is(monkeypatch):
    with pytest.raises(BadInput, match="AZURE_OPENAI_ENDPOINT"):
        client("azure/mine")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com/")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "of-azure")
    made = client("azure/mine")
    assert (made.base_url, key_of(made)) == ("https://me.openai.azure.com/openai/v1", "of-azure")


@pytest.mark.parametrize(
    "name",
    ["bedrock/anthropic.claude-x", "us.anthropic.claude-x", "claude-x@20250929", "vertex/claude-x"],
)
def test_what_only_a_cloud_can_sign_is_told_at_once(name, monkeypatch):
    """It would be sent to Anthropic, who does not know the name."""
    with pytest.raises(BadInput, match="AnthropicBedrock, or write --base-url"):
        client(name)
    assert client(name, base_url=OWN).name == name
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert default_address("vertex_ai/gemini-3.8-flash") is None


def test_a_session_at_openai_does_not_go_on_elsewhere_unasked():
    at = Host("https://api.openai.com/v1", "openai-chat")
    with pytest.raises(OtherHost, match="asked as groq's are"):
        choose_host("s", "groq/llama-3.3-70b", recorded=at, named=None)
    assert choose_host("s", "openai/gpt-4o", recorded=at, named=None) == at
    router = Host(ROUTER, "openai-chat", ROUTER)
    assert choose_host("s", "anthropic/claude-x", recorded=router, named=None) == router


def test_a_summarizer_at_a_relay_speaks_as_the_relay_does(monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    teller = make_teller("anthropic/claude-haiku-5-5", Host(ROUTER, "openai-chat", ROUTER))
    assert teller.dialect.name == "openai-chat"

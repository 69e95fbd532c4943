"""Names of models as people write them, and as the server that is asked knows them.

    write_model_name("openai/gpt-6.1-sol")               gpt-6.1-sol
    write_model_name("openrouter/openai/gpt-6.1-sol")    openai/gpt-6.1-sol
    write_model_name("gemini/2.5-flash")                 gemini-2.5-flash
    write_model_name("openai/gpt-oss-20b", "http://127.0.0.1:8000/v1")   as it is: vLLM's own name

A prefix is taken off where it names the provider that is asked. Servers have names with slashes
too, so a prefix stays if another server is asked. A session keeps the name as it was given:
windows and prices are looked up by it.
"""

import re
from dataclasses import dataclass

_CLAUDE = re.compile(r"claude|([a-z0-9-]+\.)?anthropic\.")
_CLOUD = re.compile(r"([a-z0-9-]+\.)?anthropic\.|claude.*@")
_GEMINI = re.compile(r"gemini-")
_VERSIONED = re.compile(r"claude-(?:([a-z]+)-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")
_GOOGLE = re.compile(r"^(?:google/|gemini/|vertex_ai/|vertex/|models/)+")
_GOOGLE_HOST = "googleapis.com"
_VERTEX_HOSTS, _BEDROCK_HOSTS = ("aiplatform.googleapis.com",), ("amazonaws.com",)
_VERSION = re.compile(r"\d+(\.\d+)?-[a-z]")
_HOST = re.compile(r"^https?://(?:[^/@?#]*@)?(\[[^\]]*\]|[^/:?#]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """Who serves models, by the prefixes that name it."""

    prefixes: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    """How the hosts of its addresses end."""
    address: str = ""
    """Where it is asked as OpenAI's chat is; "" if a vendor's SDK knows it, or only the user."""
    variable: str = ""
    """The environment variable of its key."""
    dialect: str = "openai-chat"
    """The dialect of its models; "" if that depends on the model."""
    is_local: bool = False
    """Whether it is a program that people run themselves, at any address."""
    own: tuple[str, ...] = ()
    """How its models' own names begin where these begin with the prefix."""


PROVIDERS = (
    ModelProvider(("openai",), ("openai.com",), own=("openai/gpt-oss",)),
    ModelProvider(("anthropic",), ("anthropic.com",), dialect="anthropic"),
    ModelProvider(("google", "gemini", "models"), (_GOOGLE_HOST,), dialect=""),
    ModelProvider(("vertex_ai", "vertex"), _VERTEX_HOSTS, dialect=""),
    ModelProvider(("bedrock/converse", "bedrock/invoke", "bedrock"), _BEDROCK_HOSTS, dialect=""),
    ModelProvider(("azure",), ("azure.com",), variable="AZURE_OPENAI_API_KEY"),
    ModelProvider(
        ("openrouter",), ("openrouter.ai",), "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"
    ),
    ModelProvider(
        ("groq",),
        ("groq.com",),
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        own=("groq/compound",),
    ),
    ModelProvider(("deepseek",), ("deepseek.com",), "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    ModelProvider(("xai",), ("x.ai",), "https://api.x.ai/v1", "XAI_API_KEY"),
    ModelProvider(("mistral",), ("mistral.ai",), "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    ModelProvider(
        ("together_ai", "together"),
        ("together.xyz", "together.ai"),
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
    ),
    ModelProvider(
        ("fireworks_ai",),
        ("fireworks.ai",),
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
    ),
    ModelProvider(
        ("cerebras",), ("cerebras.ai",), "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"
    ),
    ModelProvider(
        ("moonshot",),
        ("moonshot.ai", "moonshot.cn"),
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
    ),
    ModelProvider(("ollama", "ollama_chat"), address="http://127.0.0.1:11434/v1", is_local=True),
    ModelProvider(("lm_studio", "lmstudio"), address="http://127.0.0.1:1234/v1", is_local=True),
    ModelProvider(("hosted_vllm", "vllm"), address="http://127.0.0.1:8000/v1", is_local=True),
)
"""Every provider that a prefix may name; the longer prefixes of each first."""


def split_provider(model: str) -> tuple[ModelProvider | None, str]:
    """Split a name into the provider that its prefix names, and the rest."""
    lower = model.lower()
    for provider in PROVIDERS:
        for prefix in provider.prefixes:
            if lower.startswith(f"{prefix}/") and len(model) > len(prefix) + 1:
                return provider, model[len(prefix) + 1 :]
    return None, model


def find_address_provider(address: str) -> ModelProvider | None:
    """Return whose address it is, if it is that of a provider we know."""
    found = _HOST.match(address)
    host = f".{found[1].lower().rstrip('.')}" if found else ""
    served = [one for one in PROVIDERS if host.endswith(tuple(f".{end}" for end in one.hosts))]
    return max(served, key=lambda one: len(max(one.hosts, key=len)), default=None)


def write_model_name(model: str, address: str | None = None) -> str:
    """Return a model's name as the server at an address knows it.

    Without an address the model is asked where its name says.
    """
    provider, rest = split_provider(model)
    if provider is None or model.lower().startswith(provider.own or "\0"):
        return model
    if "openrouter" in provider.prefixes and "/" not in rest:
        return model  # "openrouter/auto" is a model of its own
    if not _is_asked(provider, model, address):
        return model
    return strip_google_prefix(model) if names_gemini(model) else rest


def is_relayed(model: str, address: str) -> bool:
    """Whether a prefix names another provider than the one that is asked, which relays to it."""
    return split_provider(model)[0] is not None and write_model_name(model, address) == model


def is_served_elsewhere(model: str, address: str) -> bool:
    """Whether a prefix names a provider, and the address is another provider's own."""
    provider, _ = split_provider(model)
    served = find_address_provider(address)
    if provider is None or served is None or served == provider:
        return False
    return bool(provider.address) and not served.address


def _is_asked(provider: ModelProvider, model: str, address: str | None) -> bool:
    """Whether the provider that a prefix names is the one that is asked."""
    if address is None:
        return "google" not in provider.prefixes or names_gemini(model)
    served = find_address_provider(address)
    if served is not None:
        return served == provider or (
            names_gemini(model) and served.hosts[0].endswith(_GOOGLE_HOST)
        )
    return provider.is_local or provider.dialect == "anthropic" or names_gemini(model)


def binds_thinking(model: str) -> bool:
    """Whether a model binds its signed thinking to the exact words before it.

    Claude does since Fable 5.1. Earlier models, and those of others, sign the thinking alone.
    """
    found = _VERSIONED.search(model.lower())
    if found is None:
        return False
    version = int(found[2]), int(found[3] or 0)
    return version >= (5, 1) and (found[1], version) != ("mythos", (5, 1))


def names_claude(model: str) -> bool:
    """Whether a name is that of a Claude, as Anthropic, Bedrock or Vertex write it."""
    provider, rest = split_provider(model)
    if provider is not None and (provider.dialect or "google" in provider.prefixes):
        return provider.dialect == "anthropic"
    return _CLAUDE.match(rest.lower()) is not None


def needs_cloud_client(model: str) -> bool:
    """Whether a name is one of a cloud's, whose requests only the cloud's own client can sign."""
    provider, rest = split_provider(model)
    if provider is not None and provider.hosts in (_BEDROCK_HOSTS, _VERTEX_HOSTS):
        return not names_gemini(model)
    return provider is None and _CLOUD.match(rest.lower()) is not None


def names_gemini(model: str) -> bool:
    """Whether a name is that of a Gemini, or of any model of the Gemini API."""
    lower = model.lower()
    bare = strip_google_prefix(lower)
    return _GEMINI.match(bare) is not None or lower.startswith("gemini/")


def strip_google_prefix(model: str) -> str:
    """Return a model's name as Google's API knows it; "gemini/2.5-flash" is gemini-2.5-flash."""
    bare = _GOOGLE.sub("", model)
    return f"gemini-{bare}" if bare != model and _VERSION.match(bare) else bare

"""Protocols of the SDKs' clients, so that no SDK is imported and answers keep their types.

client.chat.completions.create(…)    openai.OpenAI, AzureOpenAI, and their async forms
client.responses.create(…)           the same, for a session opened with dialect="openai-responses"
client.messages.create(…)            anthropic.Anthropic, AnthropicBedrock, …
client.models.generate_content(…)    google.genai.Client, and its `aio`
"""

from typing import Any, Protocol, TypeVar

from foldline.dialects.base import Dialect
from foldline.errors import BadInput

R_co = TypeVar("R_co", covariant=True)


class Creates(Protocol[R_co]):
    """`client.messages` or `client.chat.completions`."""

    def create(self, *args: Any, **parameters: Any) -> R_co:
        """Send a request and return its answer."""
        ...


class HasCompletions(Protocol[R_co]):
    """`client.chat`."""

    @property
    def completions(self) -> Creates[R_co]:
        """The chat completions."""
        ...


class OpenAIClient(Protocol[R_co]):
    """A client of OpenAI's SDK."""

    @property
    def chat(self) -> HasCompletions[R_co]:
        """The chat API."""
        ...


class AnthropicClient(Protocol[R_co]):
    """A client of Anthropic's SDK."""

    @property
    def messages(self) -> Creates[R_co]:
        """The messages API."""
        ...


class Generates(Protocol[R_co]):
    """`client.models` of Google's SDK."""

    def generate_content(self, *args: Any, **parameters: Any) -> R_co:
        """Send a request and return its answer."""
        ...


class GoogleClient(Protocol[R_co]):
    """A client of Google's SDK."""

    @property
    def models(self) -> Generates[R_co]:
        """The models."""
        ...


def find_create(client: Any, *, model: str, dialect: Dialect) -> Any:
    """Find the client's method that takes a model's requests."""
    api = client
    try:
        for name in dialect.sdk_method:
            api = getattr(api, name)
    except AttributeError:
        raise BadInput(
            f"{model!r} is asked by a client of {dialect.vendor.title}'s SDK, and this is a "
            f"{type(client).__name__}; give such a client, or switch() to another model"
        ) from None
    return api


def must_not_stream(parameters: dict[str, Any]) -> None:
    """Raise if the parameters ask for a stream."""
    if parameters.get("stream"):
        raise BadInput(
            "create(stream=True) would give pieces, and a session adds whole answers; give "
            "request(stream=True) to the client and add() what came, or stream by foldline.wrap()"
        )

"""The SDKs' clients, as far as a session calls them: by their shape, so that no SDK is imported.

    client.chat.completions.create(…)    openai.OpenAI, AzureOpenAI, and their async forms
    client.messages.create(…)            anthropic.Anthropic, AnthropicBedrock, …

Knows where each client is asked, and that its answer keeps its own type. Refuses to know requests.
"""

from typing import Any, Protocol, TypeVar

from foldline.dialects.base import OPENAI, Dialect
from foldline.errors import BadInput

R_co = TypeVar("R_co", covariant=True)


class Creates(Protocol[R_co]):
    """Where an SDK is asked: `client.messages`, `client.chat.completions`."""

    def create(self, *args: Any, **parameters: Any) -> R_co:
        """Send a request, and give its answer."""
        ...


class HasCompletions(Protocol[R_co]):
    """`client.chat`."""

    @property
    def completions(self) -> Creates[R_co]:
        """Where chats are asked."""
        ...


class OpenAIClient(Protocol[R_co]):
    """A client of OpenAI's SDK."""

    @property
    def chat(self) -> HasCompletions[R_co]:
        """What has the completions."""
        ...


class AnthropicClient(Protocol[R_co]):
    """A client of Anthropic's SDK."""

    @property
    def messages(self) -> Creates[R_co]:
        """Where messages are asked."""
        ...


def find_create(client: Any, *, model: str, dialect: Dialect) -> Any:
    """The method of a client that a model's requests are given to."""
    try:
        asked = client.chat.completions if dialect is OPENAI else client.messages
    except AttributeError:
        whose = "OpenAI's" if dialect is OPENAI else "Anthropic's"
        raise BadInput(
            f"{model!r} is asked by a client of {whose} SDK, and this is a "
            f"{type(client).__name__}; give such a client, or switch() to another model"
        ) from None
    return asked.create


def must_not_stream(parameters: dict[str, Any]) -> None:
    """Raise where an answer is asked for in pieces."""
    if parameters.get("stream"):
        raise BadInput(
            "create(stream=True) would give pieces, and a session adds whole answers; give "
            "request(stream=True) to the client and add() what came, or stream by foldline.wrap()"
        )

"""Copies clients of Google's SDK, with HTTP clients that plan: the SDK has no way to do this.

A client of Google's holds parts (`models`, `chats`, `aio`), and all refer to one connection.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# ruff: noqa: SLF001

from collections.abc import Callable
from copy import copy
from typing import Any


def is_google(client: object) -> bool:
    """Whether a client is one of Google's SDK."""
    return hasattr(getattr(client, "_api_client", None), "_httpx_client")


def wrap_google(client: Any, wrap_http: Callable[[Any], Any]) -> Any:
    """Copy a client whose calls pass through other HTTP clients."""
    own: Any = client._api_client
    made: Any = copy(own)
    made._httpx_client = wrap_http(own._httpx_client)
    made._async_httpx_client = wrap_http(own._async_httpx_client)
    made.aclose = made._async_httpx_client.aclose  # the SDK leaves one open that it was given
    # A client that was given one uses it; any other may use aiohttp instead.
    given = {"httpx_async_client": made._async_httpx_client}
    made._http_options = own._http_options.model_copy(update=given)
    wrapped: Any = _copy_parts(client, own, made)
    wrapped.foldline = made._httpx_client.foldline
    wrapped.original = client  # it closes its connections when nobody has it any more
    wrapped.aio.foldline = made._async_httpx_client.foldline
    return wrapped


def _copy_parts(whole: Any, own: Any, made: Any) -> Any:
    """Copy an object and those of its parts that refer to the client's connection."""
    copied: Any = copy(whole)
    for name, part in vars(whole).items():
        if part is own:
            setattr(copied, name, made)
        elif getattr(part, "_api_client", None) is own:
            setattr(copied, name, _copy_parts(part, own, made))
    return copied

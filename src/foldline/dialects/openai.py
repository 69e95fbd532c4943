"""The rules of all dialects of OpenAI: address, keys, errors, and how parts and ids are written."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from foldline.core.item import Item
from foldline.core.parts import Call, Part
from foldline.dialects.base import Vendor
from foldline.dialects.json_slices import Json
from foldline.dialects.tools import append_digest, render_part

LONGEST_NAME: Final = 64
LONGEST_TEXT: Final = 10_485_760
ADDRESSES: Final = ("https://", "http://", "data:")
"""How the addresses of pictures begin."""

_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_SERVER = 500
_SPENT = "limit_spent"
"""The code of a gateway's error that no waiting for seconds mends."""


def encode_error(status: int, code: str, message: str) -> Json:
    """Write an error as OpenAI's SDK reads it."""
    plain = "server_error" if status >= _SERVER else "invalid_request_error"
    kind, said = _ERRORS.get(status, (plain, code))
    if code == _SPENT:
        kind = said = "insufficient_quota"
    return {"error": {"message": message, "type": kind, "param": None, "code": said}}


VENDOR = Vendor(
    name="openai",
    title="OpenAI",
    address="https://api.openai.com/v1",
    variable="OPENAI_BASE_URL",
    key_header=(b"authorization", "Bearer "),
    encode_error=encode_error,
    version="/v1",
)


def render_parts(parts: Iterable[Part]) -> str:
    """Render parts as text: media are named, calls left out."""
    return "\n".join(render_part(part) for part in parts if not isinstance(part, Call))


def iterate_groups(items: Sequence[Item]) -> Iterator[tuple[Item, list[Item]]]:
    """Yield every item with the results after it."""
    start = 0
    for end in range(1, len(items) + 1):
        if end == len(items) or items[end].role != "result":
            yield items[start], list(items[start + 1 : end])
            start = end


def shorten_id(call_id: str, longest: int, *, stem: int, taken: Iterable[str] = ()) -> str:
    """Return a valid call id: one that is too long is shortened, always in the same way."""
    if len(call_id) <= longest:
        return call_id
    return append_digest(call_id[:stem], call_id, digits=16, taken=taken)


def is_picture_address(url: str) -> bool:
    """Whether a picture is at this address, or in it."""
    return url.startswith(ADDRESSES) and not url.endswith(";base64,")


def list_text_faults(at: str, text: object) -> list[str]:
    """List the faults of a text."""
    if not isinstance(text, str):
        return [f"part: {at} has a text that is not a string"]
    return [f"long: {at} has a text of {len(text)} signs"] * (len(text) > LONGEST_TEXT)

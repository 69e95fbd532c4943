"""What all dialects of OpenAI share: its address, its keys, its errors."""

from foldline.dialects.base import Vendor
from foldline.dialects.json_slices import Json

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

"""What the gateway itself answers: in the shape that the client's SDK knows.

Knows how each dialect writes an error. Refuses to speak for the upstream: whatever that answers
passes as it came, and only answers of ours carry `X-Foldline-Error`.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from foldline.apps.gateway.settings import ANTHROPIC

_OPENAI: Final = {
    401: ("invalid_request_error", "invalid_api_key"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_OURS = 500


@dataclass(slots=True)
class Refusal(Exception):  # noqa: N818 - named for what happened
    """A request that goes no further."""

    status: int
    code: str
    """One word for scripts, in `X-Foldline-Error`."""
    message: str
    retry: int | None = None
    """Seconds to come back after."""
    close: bool = False
    """Whether the connection ends with it: the rest of what was sent is not wanted."""

    def body(self, dialect: str) -> bytes:
        """The error as the dialect's SDK reads it."""
        if dialect == ANTHROPIC:
            kind = _ANTHROPIC.get(self.status, "api_error")
            error: dict[str, Any] = {"type": kind, "message": self.message}
            return msgspec.json.encode({"type": "error", "error": error})
        plain = "server_error" if self.status >= _OURS else "invalid_request_error"
        kind, code = _OPENAI.get(self.status, (plain, self.code))
        error = {"message": self.message, "type": kind, "param": None, "code": code}
        return msgspec.json.encode({"error": error})

    def headers(self, length: int) -> list[tuple[bytes, bytes]]:
        """What stands over it."""
        made = [
            (b"content-type", b"application/json"),
            (b"content-length", str(length).encode()),
            (b"x-foldline-error", self.code.encode()),
        ]
        if self.status == 401:  # noqa: PLR2004 - unauthorized
            made.append((b"www-authenticate", b"Bearer"))
        if self.retry is not None:
            made.append((b"retry-after", str(self.retry).encode()))
        if self.close:
            made.append((b"connection", b"close"))
        return made

"""Errors of the gateway itself, in the shape that the client's SDK reads.

Errors of the upstream pass as they came; only ours carry `X-Foldline-Error`.
"""

from dataclasses import dataclass

import msgspec

from foldline.dialects.base import Vendor


@dataclass(slots=True)
class Refusal(Exception):  # noqa: N818 - named for what happened
    """The gateway refuses a request."""

    status: int
    code: str
    """One word for scripts, in `X-Foldline-Error`."""
    message: str
    retry: int | None = None
    """Seconds after which the client may ask again."""
    close: bool = False
    """Whether to close the connection: the rest of the request is not wanted."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """More headers of the answer."""

    def encode_body(self, vendor: Vendor) -> bytes:
        """Encode the error as the vendor's SDK reads it."""
        return msgspec.json.encode(vendor.encode_error(self.status, self.code, self.message))

    def encode_headers(self, length: int) -> list[tuple[bytes, bytes]]:
        """Encode the headers of an answer with a body of `length` bytes."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(length).encode()),
            (b"x-foldline-error", self.code.encode()),
            *self.headers,
        ]
        if self.status == 401:  # noqa: PLR2004 - unauthorized
            headers.append((b"www-authenticate", b"Bearer"))
        if self.retry is not None:
            headers.append((b"retry-after", str(self.retry).encode()))
        if self.close:
            headers.append((b"connection", b"close"))
        return headers

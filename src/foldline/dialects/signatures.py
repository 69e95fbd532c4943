"""Detects requests whose headers sign their body, so that not a byte of it may change.

Bedrock's clients sign every request. The signatures themselves are not checked here.
"""

from collections.abc import Iterable
from typing import Final

_SCHEME: Final = b"aws4-"  # AWS4-HMAC-SHA256, AWS4-ECDSA-P256-SHA256
_DIGESTS: Final = frozenset(
    (b"x-amz-content-sha256", b"content-digest", b"repr-digest", b"digest", b"content-md5")
)


def is_signed(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request would be refused if its body changed."""
    for raw, value in headers:
        name = raw.lower()
        if name in _DIGESTS:
            return True
        if name == b"authorization" and value.strip().lower().startswith(_SCHEME):
            return True
    return False

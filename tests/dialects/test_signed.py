"""Which requests vouch for their body."""

import pytest

from foldline.dialects.base import is_signed

SIGNATURE = b"AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host;x-amz-date, Signature=0f"


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", SIGNATURE),
        (b"Authorization", b" aws4-hmac-sha256 Credential=AK"),
        (b"authorization", b"AWS4-ECDSA-P256-SHA256 Credential=AK"),
        (b"X-Amz-Content-SHA256", b"UNSIGNED-PAYLOAD"),
        (b"content-digest", b"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"),
        (b"Content-MD5", b"Q2hlY2sgSW50ZWdyaXR5IQ=="),
    ],
)
def test_signed(header):
    assert is_signed([(b"host", b"a"), header])


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer AWS4-HMAC-SHA256"),
        (b"authorization", b"AWS4"),
        (b"x-api-key", SIGNATURE),
        (b"x-amz-date", b"20260101T000000Z"),
        (b"x-amzn-bedrock-trace", b"ENABLED"),
    ],
)
def test_not_signed(header):
    assert not is_signed([header])
    assert not is_signed([])

"""What a client sends that nobody understands is never worse off here than through a pipe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken
from odd_clients import NAMES, play_history

from foldline.proxy import client_request


@pytest.mark.property
@pytest.mark.parametrize("dialect", NAMES)
def test_no_request_is_stuck_invalid_or_too_large(dialect):
    """Nor is anything lost that later requests depend on."""

    @given(st.integers(0, 1_000_000))
    def holds(seed):
        assert play_history(seed, dialect) == []

    holds()


PATCH = "foldline.proxy.patch"
FORM = "foldline.dialects.anthropic.dialect"
ITEMS = "foldline.dialects.openai_responses.dialect"
MUTANTS = [
    # What came without words is no fault; what nobody understands is carried.
    ("foldline.core.rules", 'if not item.parts and item.state != "whole":', "if not item.parts:", "anthropic", 2),
    (PATCH, "return KeptState(opaque)", "return KeptState()", "openai-chat", 0),
    ("foldline.dialects.openai_chat.dialect", "if role not in ROLES:", "if False:", "openai-chat", 0),
    # What later requests depend on.
    (PATCH, "splices += _place_controls(request, at, controls)", "pass", "anthropic", 4),
    (FORM, "references |= shown", "pass", "anthropic", 2),
    (FORM, 'uploads = [one for _, one in blocks if one.get("type") == "container_upload"]', "uploads = list[Json]()", "anthropic", 3),
    (ITEMS, "return KeptState([*kept.values()])", "return KeptState()", "openai-responses", 6),
]  # fmt: skip
"""Broken variants: a module, a line, what stands there instead, and histories that catch it."""


@pytest.mark.parametrize(("module", "line", "instead", "dialect", "seed"), MUTANTS)
def test_a_variant_is_caught(module, line, instead, dialect, seed):
    with broken(module, line, instead):
        client_request._seen.clear()
        client_request._recent._requests.clear()
        assert any(is_caught(at, dialect) for at in (seed, *range(60)))
    client_request._seen.clear()
    client_request._recent._requests.clear()


def is_caught(seed, dialect):
    try:
        return bool(play_history(seed, dialect))
    except Exception:  # noqa: BLE001 - a variant may fail anywhere
        return True

"""Windows and prices by name: A-02, A-03, R-07."""

import pytest

import foldline
from foldline.models import catalog
from foldline.models.catalog import find


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("anthropic/claude-sonnet-5.5", 1_000_000),
        ("claude-sonnet-5-5-20261001", 1_000_000),
        ("openai/gpt-5", 400_000),
        ("gpt-5-2025-08-07", 400_000),
        ("gpt-5.5", 1_000_000),
        ("openrouter/openai/gpt-4o", 128_000),
        # Families, where no catalogue knows the name.
        ("claude-of-tomorrow", 200_000),
        ("gpt-5.99-turbo-max", 400_000),
        ("gemini-1.5-pro-exp", 2_000_000),
        ("gemini-99", 1_000_000),
        ("ollama/mistral", 32_000),
        ("ollama/llama3.2:1b", 8_000),
        ("meta/llama-2-70b", 4_000),
        ("ollama/qwen3:8b", 131_072),
        ("x/grok-4-beta-9", 2_000_000),
        ("x/deepseek-v3-0999", 163_840),
        ("somebody/else", None),
    ],
)
def test_windows(name, window):
    assert find(name).window == window


def test_prices_and_steps():
    opus = find("anthropic/claude-sonnet-5.5").prices
    assert (opus.r, opus.w, opus.assumed) == (0.05, 1.25, False)
    stepped = find("gpt-5.5").prices
    assert stepped.step == 272_000
    assert find("somebody/else").prices.assumed


def test_three_numbers_are_kept_apart():
    gpt = find("gpt-5")
    assert (gpt.window, gpt.max_input, gpt.max_output) == (400_000, 272_000, 128_000)


def test_a_session_knows_its_model():
    s = foldline.open(":memory:", model="openai/gpt-5")
    assert (s.report.window, s.report.window_source) == (400_000, "catalogue")
    assert s.report.warnings == ()
    unknown = foldline.open(":memory:", model="somebody/else").report
    assert (unknown.window, unknown.window_source) == (128_000, "default")
    assert "give window=" in unknown.warnings[0]
    mine = foldline.open(":memory:", model="openai/gpt-5", window=50_000).report
    assert (mine.window, mine.window_source) == (50_000, "user")


def test_the_catalogue_says_what_it_is():
    known = catalog.read_edition()
    assert known.models == len(catalog.list_model_names()) > 200
    assert known.date
    assert catalog.explain_match("anthropic/claude-opus-4-5-20260101").startswith(
        "is claude-opus-4-5 "
    )
    assert catalog.explain_match("claude-opus-4-5-fast").startswith("begins with claude-opus-4-5 ")
    assert "family" in catalog.explain_match("llama-9-tiny")
    assert "no known family" in catalog.explain_match("zzz")

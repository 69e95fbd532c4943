"""R-43: one reader for what every server of the dialect reports."""

import pytest

from foldline.core.log import UsageReported
from foldline.dialects.openai_chat import parse_usage

BODIES = {
    "openai": (
        {"usage": {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
                   "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 64, "audio_tokens": 0},
                   "completion_tokens_details": {"reasoning_tokens": 192, "audio_tokens": 0,
                                                 "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}}},
        UsageReported(4, 2006, 1920, 64, 300, 192),
    ),
    "llama.cpp": (
        {"usage": {"completion_tokens": 12, "prompt_tokens": 59, "total_tokens": 71,
                   "prompt_tokens_details": {"cached_tokens": 40}},
         "timings": {"cache_n": 40, "prompt_n": 19, "prompt_ms": 31.2, "predicted_n": 12, "predicted_ms": 160.4}},
        UsageReported(4, 59, 40, None, 12),
    ),
    "llama.cpp, timings alone": (
        {"usage": None, "timings": {"cache_n": 236, "prompt_n": 1, "prompt_ms": 30.9, "predicted_n": 35}},
        UsageReported(4, 237, 236, None, 35),
    ),
    "vLLM": (
        {"usage": {"prompt_tokens": 31, "total_tokens": 41, "completion_tokens": 10, "prompt_tokens_details": None}},
        UsageReported(4, 31, None, None, 10),
    ),
    "vLLM, with details": (
        {"usage": {"prompt_tokens": 310, "total_tokens": 320, "completion_tokens": 10,
                   "prompt_tokens_details": {"cached_tokens": 256, "created_cache_tokens": 48, "multimodal_tokens": None},
                   "completion_tokens_details": {"reasoning_tokens": 3}}},
        UsageReported(4, 310, 256, 48, 10, 3),
    ),
    "Ollama": (
        {"usage": {"prompt_tokens": 26, "completion_tokens": 298, "total_tokens": 324}, "system_fingerprint": "fp_ollama"},
        UsageReported(4, 26, None, None, 298),
    ),
    "Ollama, its own endpoint": (
        {"message": {"role": "assistant", "content": "Hi"}, "done": True, "total_duration": 4883583458,
         "prompt_eval_count": 26, "prompt_eval_duration": 342546000, "eval_count": 282, "eval_duration": 4535599000},
        UsageReported(4, 26, None, None, 282),
    ),
    "Ollama, its own endpoint, all cached": (
        {"message": {"role": "assistant", "content": "Hi"}, "done": True, "eval_count": 282},
        UsageReported(4, None, None, None, 282),
    ),
    "DeepSeek": (
        {"usage": {"prompt_tokens": 1720, "completion_tokens": 83, "total_tokens": 1803, "prompt_cache_hit_tokens": 1664,
                   "prompt_cache_miss_tokens": 56, "completion_tokens_details": {"reasoning_tokens": 61}}},
        UsageReported(4, 1720, 1664, None, 83, 61),
    ),
    "OpenRouter": (
        {"usage": {"prompt_tokens": 194, "completion_tokens": 2, "total_tokens": 196, "cost": 0.95,
                   "cost_details": {"upstream_inference_cost": 19},
                   "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 100, "audio_tokens": 0},
                   "completion_tokens_details": {"reasoning_tokens": 0}}},
        UsageReported(4, 194, 0, 100, 2, 0),
    ),
    "Mistral": (
        {"usage": {"prompt_tokens": 16, "completion_tokens": 34, "total_tokens": 50, "prompt_audio_seconds": None}},
        UsageReported(4, 16, None, None, 34),
    ),
    "Groq": (
        {"usage": {"queue_time": 0.03, "prompt_tokens": 18, "prompt_time": 0.0007, "completion_tokens": 556,
                   "completion_time": 0.46, "total_tokens": 574, "total_time": 0.46}},
        UsageReported(4, 18, None, None, 556),
    ),
    "Groq, streamed": (
        {"x_groq": {"id": "req_01", "usage": {"prompt_tokens": 18, "completion_tokens": 9, "total_time": 0.1,
                                              "prompt_tokens_details": {"cached_tokens": 16}}}},
        UsageReported(4, 18, 16, None, 9),
    ),
    "none": ({"id": "x"}, None),
    "null": ({"usage": None}, None),
    "nonsense": ({"usage": {"prompt_tokens": "7", "completion_tokens": -1, "prompt_tokens_details": [],
                            "completion_tokens_details": {"reasoning_tokens": True}}}, None),
    "floats and giants": ({"usage": {"prompt_tokens": 7.0, "completion_tokens": 10**40}},
                          UsageReported(4, 7)),
}  # fmt: skip


@pytest.mark.parametrize("server", BODIES)
def test_usage(server):
    """Cached tokens are inside the prompt's; what is not stated is unknown, not 0."""
    body, expected = BODIES[server]
    assert parse_usage(body, asked=4) == expected

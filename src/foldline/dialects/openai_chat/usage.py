"""What a call took, as each server of this dialect counts it.

Knows where OpenAI, llama.cpp, vLLM, Ollama, DeepSeek, OpenRouter, Mistral and Groq put figures.
Refuses to know prices. A figure that is not stated is unknown, not 0; one that is no count neither
stops the answer from being read nor is believed.
"""

from typing import Any, cast

from foldline.core.log import UsageReported
from foldline.dialects.json_reader import Json

MOST = 2**53  # tokens: above, a number is a fault of the server


def usage(body: Json, *, asked: int | None) -> UsageReported | None:
    """The usage that a whole body reports, or None where it says nothing.

    Cached tokens are inside the prompt's in every one of these; reasoning is inside the output.
    """
    told = _object(body, "usage") or _object(_object(body, "x_groq"), "usage")
    timings = _object(body, "timings")  # llama.cpp; here the prompt's figure excludes the cache
    prompt = _object(told, "prompt_tokens_details")
    output = _object(told, "completion_tokens_details")
    report = UsageReported(
        asked=asked,
        input=_first(
            _count(told, "prompt_tokens"),
            _sum(_count(told, "prompt_cache_hit_tokens"), _count(told, "prompt_cache_miss_tokens")),
            _sum(_count(timings, "cache_n"), _count(timings, "prompt_n")),
            _count(body, "prompt_eval_count"),  # Ollama's own endpoint
        ),
        cache_read=_first(
            _count(prompt, "cached_tokens"),
            _count(told, "prompt_cache_hit_tokens"),
            _count(timings, "cache_n"),
        ),
        cache_write=_first(
            _count(prompt, "cache_write_tokens"), _count(prompt, "created_cache_tokens")
        ),
        output=_first(
            _count(told, "completion_tokens"),
            _count(timings, "predicted_n"),
            _count(body, "eval_count"),
        ),
        reasoning=_count(output, "reasoning_tokens"),
    )
    return None if report == UsageReported(asked=asked) else report


def _object(body: Json, name: str) -> Json:
    found = body.get(name)
    return cast("Json", found) if isinstance(found, dict) else {}


def _count(body: Json, name: str) -> int | None:
    found: Any = body.get(name)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if type(found) is int and 0 <= found <= MOST else None


def _first(*figures: int | None) -> int | None:
    return next((figure for figure in figures if figure is not None), None)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other

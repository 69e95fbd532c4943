"""Parses usage, wherever OpenAI, llama.cpp, vLLM, Ollama, DeepSeek and OpenRouter put it.

A missing figure is unknown, not 0; an invalid one is ignored.
"""

from foldline.core.log import UsageReported
from foldline.dialects.json_slices import Json, dict_of, parse_count


def parse_usage(body: Json, *, asked: int | None) -> UsageReported | None:
    """Return the usage that a whole body reports, or None.

    In every one of these, the prompt's tokens include the cached, and the output the reasoning.
    """
    usage = dict_of(body.get("usage")) or dict_of(dict_of(body.get("x_groq")).get("usage"))
    timings = dict_of(body.get("timings"))  # llama.cpp; its prompt figure excludes the cache
    prompt = dict_of(usage.get("prompt_tokens_details"))
    output = dict_of(usage.get("completion_tokens_details"))
    cache_hit = parse_count(usage, "prompt_cache_hit_tokens")
    cache_n = parse_count(timings, "cache_n")
    report = UsageReported(
        asked=asked,
        input=_find_first(
            parse_count(usage, "prompt_tokens"),
            _sum_counts(cache_hit, parse_count(usage, "prompt_cache_miss_tokens")),
            _sum_counts(cache_n, parse_count(timings, "prompt_n")),
            parse_count(body, "prompt_eval_count"),  # Ollama's own endpoint
        ),
        cache_read=_find_first(parse_count(prompt, "cached_tokens"), cache_hit, cache_n),
        cache_write=_find_first(
            parse_count(prompt, "cache_write_tokens"), parse_count(prompt, "created_cache_tokens")
        ),
        output=_find_first(
            parse_count(usage, "completion_tokens"),
            parse_count(timings, "predicted_n"),
            parse_count(body, "eval_count"),
        ),
        reasoning=parse_count(output, "reasoning_tokens"),
    )
    return None if report == UsageReported(asked=asked) else report


def _find_first(*figures: int | None) -> int | None:
    return next((figure for figure in figures if figure is not None), None)


def _sum_counts(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other

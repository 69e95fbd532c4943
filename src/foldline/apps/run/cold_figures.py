"""What a run paid for caches that had expired, by the provider's counts."""

from foldline.core.prices import Prices
from foldline.draw.course import CourseStep

_LEAST_READ = 0.5  # of what the call before had sent: with less its cache was gone


def measure_cold_call(before: CourseStep | None, step: CourseStep, prices: Prices) -> float:
    """Measure how many dollars more a call cost because the cache of the one before was gone.

    0 where an edit or a lowered thinking budget explains it: that is our cost; and where nothing
    had been cached.
    """
    used, last = step.usage, before.usage if before else None
    if before is None or last is None or used is None or step.model != before.model:
        return 0.0
    known = min(before.input, step.input)
    had_cache = before.read or last.cache_write or used.cache_write
    if not had_cache or step.breaks_cache_of(before) or step.read >= _LEAST_READ * known:
        return 0.0
    at = prices.at(step.input)
    write = at.long_write if used.cache_write_long else at.write
    price = write if used.cache_write else at.input
    return (known - step.read) * max(price - at.read, 0.0) / 1e6

"""Seeds over two processes, summed: what the campaigns share.

Knows chunks of seeds. Refuses to know what is asked of one.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

CHUNK = 100


def summed(
    many: Callable[[range], tuple[Counter[str], list[str]]], seeds: range
) -> tuple[Counter[str], list[str]]:
    """What some seeds give in all: what was counted, and what was found."""
    total, found = Counter[str](), list[str]()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(2) as pool:
        for seen, more in pool.map(many, chunks):
            total += seen
            found += more
    return total, found

"""Names the extra that an adapter needs, where its framework is missing."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def name_extra(extra: str) -> Generator[None]:
    """Say which extra brings what cannot be imported inside this block."""
    try:
        yield
    except ImportError as fault:
        raise ImportError(
            f"this adapter needs its framework: pip install 'foldline[{extra}]' ({fault})"
        ) from fault

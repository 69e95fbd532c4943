"""Handles: how a place in the session's own log is named, `log:12`, or a span of it, `log:12-40`.

Knows how to write one. Refuses to know how to read what a model makes of it: that is `recall`'s.
"""


def handle(lo: int, hi: int | None = None) -> str:
    """The handle of an event, or of a span."""
    return f"log:{lo}" if hi is None or hi == lo else f"log:{lo}-{hi}"

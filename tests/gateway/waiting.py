"""What happens beside a test, waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def within(what: Callable[[], Found], seconds: float = 30.0) -> Found:
    """What is found as soon as there is something, or what is found when the time is over."""
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.005)
    return found

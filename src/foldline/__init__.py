"""Foldline keeps an LLM agent's conversation inside its model's window.

    log     what happened, append-only                        core/log.py
     → view    the log folded into what the model would see   core/view.py
     → budget  how much of the window that may fill           core/budget.py
     → edits   clip, fold, and undo, each an event            core/edits/
     → request the view in a provider's own JSON              core/request.py, wire/

`open` gives a session; `aopen` the same with `await`; `wrap` plans what an SDK's client sends.
`plan` in `foldline.core.plan` is the expert's door.
"""

from typing import TYPE_CHECKING, Any

from foldline.core.request import Report
from foldline.errors import FoldlineError, Overflow
from foldline.run.open import aopen, open  # noqa: A004
from foldline.run.session import AsyncSession, Session

if TYPE_CHECKING:
    from foldline.run.wrap import wrap

__version__ = "0.1.0"
__all__ = [
    "AsyncSession",
    "FoldlineError",
    "Overflow",
    "Report",
    "Session",
    "aopen",
    "open",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """`wrap` is imported by those who use it."""
    if name == "wrap":
        from foldline.run.wrap import wrap  # noqa: PLC0415

        return wrap
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

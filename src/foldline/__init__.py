"""Foldline keeps an LLM agent's conversation inside its model's window.

    log     what happened, append-only                        core/log.py
     → view    the log folded into what the model would see   core/view.py
     → budget  how much of the window that may fill           core/budget.py
     → edits   clip, mask, fold; undo takes them back         core/edits/
     → request the view in a provider's own JSON              core/request.py, dialects/

`open` gives a session, `aopen` an async one. `wrap` plans the requests of an SDK's client,
`http_client` those of a framework, and a `Follower` those of a program that keeps its own history.
`watch` calls your function for every fold. Experts call `foldline.core.plan.plan` directly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldline.errors import FoldlineError, Overflow

if TYPE_CHECKING:
    from foldline.core.request import Report
    from foldline.proxy.follow import AsyncFollower, Follower
    from foldline.proxy.identity import conversation
    from foldline.proxy.wrap import async_http_client, http_client, session_of, wrap
    from foldline.session.hooks import watch
    from foldline.session.open import aopen, open  # noqa: A004
    from foldline.session.recall_tool import RECALL_TOOL
    from foldline.session.session import AsyncSession, Session

__version__ = "0.1.0"
__all__ = [
    "RECALL_TOOL",
    "AsyncFollower",
    "AsyncSession",
    "FoldlineError",
    "Follower",
    "Overflow",
    "Report",
    "Session",
    "aopen",
    "async_http_client",
    "conversation",
    "http_client",
    "open",
    "session_of",
    "watch",
    "wrap",
]
_LATER = {
    "RECALL_TOOL": "session.recall_tool",
    "AsyncFollower": "proxy.follow",
    "AsyncSession": "session.session",
    "Follower": "proxy.follow",
    "Report": "core.request",
    "Session": "session.session",
    "aopen": "session.open",
    "async_http_client": "proxy.wrap",
    "conversation": "proxy.identity",
    "http_client": "proxy.wrap",
    "open": "session.open",
    "session_of": "proxy.wrap",
    "watch": "session.hooks",
    "wrap": "proxy.wrap",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import foldline` stays fast."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List all names, including those not imported yet."""
    return sorted({*globals(), *__all__})

"""Errors as a person at a terminal is told of them: what happened, and the way out.

Knows every error that a turn or a command may end with. Refuses to know a traceback: what is no
error of ours is named and reported as a fault of foldline.
"""

from foldline.apps.cli.exit_codes import meaning
from foldline.errors import (
    BadInput,
    Busy,
    Conflict,
    FoldlineError,
    ModelFailed,
    Overflow,
    Spent,
    StoreFailed,
    Vetoed,
)

_WAYS = {
    "rate": "the provider asks to slow down: wait, then /retry",
    "overloaded": "nobody answers there now: is the server up? then /retry",
    "unreachable": "then /retry; /model NAME takes another model",
    "tokens": "/compact makes room, then /retry",
    "auth": "check the key, then /retry",
}
_AGAIN = "/retry asks again, /model NAME takes another model"


def told(fault: Exception) -> str:
    """One or two lines: what went wrong, and what to do about it."""
    said = meaning(fault)[1]
    way = _way(fault)
    return f"{said}\n{way}" if way else said


def _way(fault: Exception) -> str:
    match fault:
        case ModelFailed():
            return _WAYS.get(fault.fault.kind, _AGAIN)
        case Overflow():
            return "/compact or /model NAME with a larger window, then /retry"
        case Spent():
            return "nothing was sent; what you said is kept, /retry asks again"
        case Vetoed():
            return "/compaction-status tells more"
        case Busy() | Conflict():
            return "another terminal has this session: leave one of the two, and --continue"
        case StoreFailed():
            return "what was written before stays; `foldline doctor` looks at the store"
        case BadInput() if "API_KEY" in str(fault) or "extra" in str(fault):
            return "leave, set it, and `foldline chat --continue`; or /model NAME takes another"
        case FoldlineError() | OSError():
            return ""
        case _:
            return "the conversation is kept, and goes on"

"""Every error as a status and a body: {"error": {"kind", "message", "way_out"}}.

Knows what each error of the house means to a client. Refuses to tell what is not the client's: a
traceback, a path, a secret that a provider's message quotes.
"""

import logging
import math
import re
from typing import NamedTuple

from foldline import errors
from foldline.apps.gateway.api.schemas import Fault, Refusal
from foldline.errors import FoldlineError
from foldline.models.redact import redact


class NotFound(FoldlineError):  # noqa: N818 - named for what happened
    """There is nothing of that name, for this tenant."""


class Misfit(FoldlineError):  # noqa: N818
    """A request that HTTP itself can refuse: its method, its size, its kind of body."""

    def __init__(self, status: int, message: str, *, allow: str = "") -> None:
        self.status, self.allow = status, allow
        super().__init__(message)


class NameTaken(FoldlineError):  # noqa: N818
    """There is a session of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a session {name!r} already; choose another name, or use that")


class Stopped(FoldlineError):  # noqa: N818
    """A turn that the gateway ended itself."""

    def __init__(self) -> None:
        super().__init__("the gateway is going down and stopped the turn; post the message again")


class ErrorAnswer(NamedTuple):
    """What a client is told of an error."""

    status: int
    body: Refusal
    headers: tuple[tuple[str, str], ...] = ()


_STATUS: tuple[tuple[type[FoldlineError], int], ...] = (
    (NotFound, 404),
    (errors.BadHandle, 404),
    (errors.NotAnEdit, 404),
    (errors.BadInput, 400),
    (NameTaken, 409),
    (errors.Busy, 409),
    (errors.Conflict, 409),
    (errors.UndoFirst, 409),
    (errors.Vetoed, 409),
    (errors.OtherHost, 409),
    (errors.Erased, 410),
    (errors.Overflow, 413),
    (errors.Spent, 402),
    (errors.ModelFailed, 502),
    (errors.Unsupported, 501),
    (errors.FormatError, 501),
    (Stopped, 503),
    (errors.StoreFailed, 503),
    (errors.Sealed, 503),
)
STATUSES = tuple(sorted({405, 415, 500, *(status for _, status in _STATUS)}))
"""Every status that an error may have."""
_AGAIN: dict[type[FoldlineError], float] = {errors.Busy: 1.0, errors.StoreFailed: 1.0, Stopped: 1.0}
_BROKEN = "something is wrong in the gateway itself; its operator finds it in the log"


def told(fault: BaseException) -> ErrorAnswer:
    """What a client is told of an error; one that nobody expected is logged, and not told."""
    if isinstance(fault, Misfit):
        headers = (("allow", fault.allow),) if fault.allow else ()
        return ErrorAnswer(fault.status, _refusal("misfit", str(fault)), headers)
    if isinstance(fault, RecursionError):
        return ErrorAnswer(400, _refusal("bad_input", "nested too deeply"))
    for kind, status in _STATUS:
        if isinstance(fault, kind):
            return ErrorAnswer(status, _refusal(_name(kind), _said(fault)), _headers(kind, fault))
    logging.getLogger("foldline.gateway").error("a request failed", exc_info=fault)
    return ErrorAnswer(500, _refusal("fault", _BROKEN))


def _said(fault: FoldlineError) -> str:
    if not isinstance(fault, errors.ModelFailed):
        return str(fault)
    if fault.fault.kind == "auth":  # what a provider says of a key may quote it
        return f"{fault.model} gave no answer: its provider refused the operator's key"
    return redact(str(fault)).text


def _headers(kind: type[FoldlineError], fault: FoldlineError) -> tuple[tuple[str, str], ...]:
    again = _AGAIN.get(kind)
    if isinstance(fault, errors.ModelFailed):
        again = fault.fault.retry_after
    return () if again is None else (("retry-after", str(max(math.ceil(again), 1))),)


def _refusal(kind: str, words: str) -> Refusal:
    what, _, way_out = words.partition("; ")
    return Refusal(error=Fault(kind=kind, message=what, way_out=way_out))


def _name(kind: type[FoldlineError]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()

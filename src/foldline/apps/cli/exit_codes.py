"""How the command ends: its exit codes, and what each error means to a script.

Knows every error that may reach the command line. Refuses to know commands.
"""

from collections.abc import Callable

from foldline.errors import (
    Busy,
    Conflict,
    Erased,
    FoldlineError,
    FormatError,
    Overflow,
    StoreFailed,
)

DONE, NOTHING, USAGE, STORE, CONFLICT, TOO_LARGE, BUG, STOPPED = 0, 1, 2, 3, 4, 5, 70, 130
MEANINGS = {
    DONE: "done",
    NOTHING: "found nothing, or a check failed",
    USAGE: "wrong usage, or input that cannot be read",
    STORE: "the store cannot be used",
    CONFLICT: "somebody else wrote first, or holds it",
    TOO_LARGE: "it does not fit the window",
    BUG: "a fault of foldline itself",
    STOPPED: "interrupted",
}


class NothingFound(FoldlineError):  # noqa: N818 - named for what happened
    """What was asked for is not there."""


class Unusable(FoldlineError):  # noqa: N818
    """The store is not there, or is none of ours."""


_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((NothingFound, Erased), NOTHING),
    ((Conflict, Busy), CONFLICT),
    ((Overflow,), TOO_LARGE),
    ((Unusable, FormatError, StoreFailed), STORE),
    ((FoldlineError, OSError), USAGE),
)


def meaning(fault: Exception) -> tuple[int, str]:
    """The exit code of an error, and its one line."""
    for kinds, code in _CODES:
        if isinstance(fault, kinds):
            return code, _line(fault)
    return BUG, (
        f"unexpected {type(fault).__name__}: {_line(fault)}; this is a fault of foldline: "
        "FOLDLINE_DEBUG=1 shows where, please report it"
    )


def _line(fault: Exception) -> str:
    told: Callable[[Exception], str] = str
    if isinstance(fault, OSError) and fault.strerror:
        place = f"{fault.filename!s}: " if fault.filename else ""
        return f"{place}{fault.strerror}"
    return " ".join(told(fault).split())

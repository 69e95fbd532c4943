"""The exit codes of the command, and the code and message of every error."""

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
    """The session, setting or entry that was asked for does not exist."""


class Unusable(FoldlineError):  # noqa: N818
    """The store does not exist, or is not one of ours."""


_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((NothingFound, Erased), NOTHING),
    ((Conflict, Busy), CONFLICT),
    ((Overflow,), TOO_LARGE),
    ((Unusable, FormatError, StoreFailed), STORE),
    ((FoldlineError, OSError), USAGE),
)


def explain_error(fault: Exception) -> tuple[int, str]:
    """Return the exit code of an error, and its message in one line."""
    for kinds, code in _CODES:
        if isinstance(fault, kinds):
            return code, _describe_error(fault)
    return BUG, (
        f"unexpected {type(fault).__name__}: {_describe_error(fault)}; this is a fault of "
        "foldline: FOLDLINE_DEBUG=1 shows where, please report it"
    )


def _describe_error(fault: Exception) -> str:
    if isinstance(fault, OSError) and fault.strerror:
        place = f"{fault.filename!s}: " if fault.filename else ""
        return f"{place}{fault.strerror}"
    return " ".join(str(fault).split())

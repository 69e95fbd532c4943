"""The exit codes of the command, and the code and message of every error."""

from foldline.errors import (
    BadInput,
    Busy,
    Conflict,
    Erased,
    FoldlineError,
    FormatError,
    ModelFailed,
    Overflow,
    Spent,
    StoreFailed,
    Vetoed,
)

DONE, NOTHING, USAGE, STORE, CONFLICT, TOO_LARGE = 0, 1, 2, 3, 4, 5
UNANSWERED, LIMITED, REFUSED, BUG, STOPPED = 6, 7, 8, 70, 130
MEANINGS = {
    DONE: "done",
    NOTHING: "found nothing, or a check failed",
    USAGE: "wrong usage, or input that cannot be read",
    STORE: "the store cannot be used",
    CONFLICT: "somebody else wrote first, or holds it",
    TOO_LARGE: "it does not fit the window",
    UNANSWERED: "the model gave no answer: its key, the network, or its provider",
    LIMITED: "a limit was reached: tool rounds, a cap, the answer's length",
    REFUSED: "the model refused, or a hook did",
    BUG: "a fault of foldline itself",
    STOPPED: "interrupted",
}


class NothingFound(FoldlineError):  # noqa: N818 - named for what happened
    """The session, setting or entry that was asked for does not exist."""


class ServerSilent(BadInput):
    """The server that a person named does not answer; nothing was kept."""


class TooMuch(FoldlineError):  # noqa: N818
    """There is more than one message may carry; nothing was sent."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(
            f"{name} has more than {most:,} bytes; nothing was sent: take less of it (head, tail, "
            "grep), or name a file that the model can search"
        )


class Unusable(FoldlineError):  # noqa: N818
    """The store does not exist, or is not one of ours."""


_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((NothingFound, Erased), NOTHING),
    ((Conflict, Busy), CONFLICT),
    ((Overflow, TooMuch), TOO_LARGE),
    ((ModelFailed, ServerSilent), UNANSWERED),
    ((Spent,), LIMITED),
    ((Vetoed,), REFUSED),
    ((Unusable, FormatError, StoreFailed), STORE),
    ((FoldlineError, OSError), USAGE),
)


def explain_error(fault: Exception) -> tuple[int, str]:
    """Return the exit code of an error, and its message in one line, with its notes behind it."""
    for kinds, code in _CODES:
        if isinstance(fault, kinds):
            return code, "; ".join([_describe_error(fault), *getattr(fault, "__notes__", ())])
    return BUG, (
        f"unexpected {type(fault).__name__}: {_describe_error(fault)}; this is a fault of "
        "foldline: FOLDLINE_DEBUG=1 shows where, please report it"
    )


def _describe_error(fault: Exception) -> str:
    if isinstance(fault, OSError) and fault.strerror:
        place = f"{fault.filename!s}: " if fault.filename else ""
        return f"{place}{fault.strerror}"
    return " ".join(str(fault).split())

"""Every error Foldline raises, in one tree.

    FoldlineError
    ├── Overflow        the request cannot fit, and each part is named with its size
    ├── BrokenView      a view that no provider would take; a bug in an edit, not in your input
    ├── BadHandle       recall was asked for what is no handle of this session, or in no way it has
    ├── NotAnEdit       undo was asked for an event that is not an edit
    ├── UndoFirst       undo was asked for an edit that another edit covers
    ├── BadInput        add() or open() was given something it cannot read
    │   └── WireError   JSON that its dialect does not allow, with the place in it
    ├── Conflict        somebody else appended first; nothing was written
    ├── StoreFailed     the disk or the database refused; whether it was written is looked up
    ├── Busy            another worker holds the session
    ├── Erased          the session, or the place asked for, was erased
    ├── Sealed          encrypted bytes that no key at hand opens
    ├── Unsupported     this kind of store cannot do what was asked
    ├── ModelFailed     a model gave no answer, and what its provider said
    ├── Vetoed          a hook forbids the fold that a request needs
    ├── Spent           a call would pass a cap on tokens or money; it was not made
    └── FormatError     stored bytes that this release cannot read

An error names the thing, the place and the way out. Knows nothing of the rest of the house.
"""

from datetime import UTC, datetime
from typing import Any


class FoldlineError(Exception):
    """The root: catch this to catch everything that is ours."""


class Overflow(FoldlineError):  # noqa: N818 - named for what happened, as a caller would say it
    """The fixed and newest parts alone exceed what the window leaves."""

    def __init__(self, parts: dict[str, int], limit: int) -> None:
        self.parts = parts
        self.limit = limit
        sizes = ", ".join(f"{name} {size:,}" for name, size in parts.items())
        super().__init__(
            f"the request cannot be made to fit {limit:,} tokens: {sizes}; "
            "shorten the largest part, lower the reserve, or use a model with a larger window"
        )


class BrokenView(FoldlineError):  # noqa: N818
    """A view that breaks a rule of every provider."""


class BadHandle(FoldlineError):  # noqa: N818
    """Not a handle, one that this session's log does not hold, or no way to look at it."""


class NotAnEdit(FoldlineError):  # noqa: N818
    """There is no edit at this place."""


class UndoFirst(FoldlineError):  # noqa: N818
    """Another edit stands over this one."""

    def __init__(self, edit: int, over: int) -> None:
        self.edit = edit
        self.over = over
        super().__init__(f"the edit at {edit} no longer stands; undo the one at {over} first")


class BadInput(FoldlineError):  # noqa: N818
    """Something that no decoder of ours can read."""


class WireError(BadInput):
    """JSON of a client or a provider that its dialect does not allow; `path` says where in it."""

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class Conflict(FoldlineError):  # noqa: N818
    """The log moved on before this append, or the lease did."""

    def __init__(self, session: str, expected: int, found: int, *, of: str = "end") -> None:
        self.expected = expected
        self.found = found
        self.of = of
        super().__init__(
            f"session {session!r} was expected to end at {expected} and ends at {found}; "
            "another writer appended first: open the session again and repeat the call"
            if of == "end"
            else f"session {session!r} is held under fence {found}, this lease had {expected}; "
            "another worker took over: stop, and leave the session to it"
        )

    @classmethod
    def over(cls, session: str, fence: int, found: int) -> "Conflict":
        """The lease is another's now."""
        return cls(session, fence, found, of="fence")


class StoreFailed(FoldlineError):  # noqa: N818
    """The store could not do what it was asked: a full disk, a lock that nobody gives back."""


class Busy(FoldlineError):  # noqa: N818
    """A session is one worker's at a time."""

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} is held by another worker; "
            "wait until it is released or its lease runs out, and open it again"
        )


class Erased(FoldlineError):  # noqa: N818
    """What was asked for is gone for good."""

    def __init__(self, what: str, time: float) -> None:
        self.time = time
        on = f"{datetime.fromtimestamp(time, tz=UTC):%Y-%m-%d}"
        super().__init__(f"{what!r} was erased on {on}; nothing of it is left")


class Sealed(FoldlineError):  # noqa: N818
    """Another master key, a key that was destroyed, or bytes that were altered."""


class Unsupported(FoldlineError):  # noqa: N818
    """A store without this ability; the message says what it can do instead."""


class FormatError(FoldlineError):
    """Stored bytes from a newer release, or bytes that were never an event."""


class ModelFailed(FoldlineError):  # noqa: N818
    """A provider refused, broke off, or was silent for too long.

    `fault` is its meaning (`foldline.wire.faults.Fault`); `begun` says that some of the answer had
    come, so that asking again would say it twice; `silent` that nothing came in time, so that
    nobody knows whether it was worked on and will be billed.
    """

    def __init__(
        self, model: str, fault: Any, *, begun: bool = False, silent: bool = False
    ) -> None:
        self.model = model
        self.fault = fault
        self.begun = begun
        self.silent = silent
        super().__init__(f"{model} gave no answer ({fault.kind}): {fault.message}")


class Vetoed(FoldlineError):  # noqa: N818
    """Somebody forbids a fold without which the request does not fit, or that was asked for."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the fold was vetoed: {why}; take the veto away, or shorten the session")


class Spent(FoldlineError):  # noqa: N818
    """A cap that was set is reached: the call was not made."""

    def __init__(self, cap: str, *, spent: float, would: float, limit: float, unit: str) -> None:
        self.cap = cap
        self.limit = limit

        def told(amount: float) -> str:
            return f"${amount:,.4f}" if unit == "dollars" else f"{amount:,.0f} tokens"

        super().__init__(
            f"the cap per {cap} is {told(limit)}: {told(spent)} are spent and this call would take "
            f"{told(would)}; raise the cap, or wait until it begins anew"
        )

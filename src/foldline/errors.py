"""Every error Foldline raises, in one tree.

    FoldlineError
    ├── Overflow        the request cannot fit, and each part is named with its size
    ├── BrokenView      a view that no provider would accept: a bug of ours
    ├── BadHandle       recall got something that is no handle of this session
    ├── NotAnEdit       undo got an event that is not an edit
    ├── UndoFirst       undo got an edit that another edit covers
    ├── BadInput        add() or open() got something it cannot read
    │   └── WireError   JSON that its dialect does not allow, with the place in it
    ├── Conflict        another writer appended first; nothing was written
    ├── StoreFailed     the disk or the database refused, or went away
    ├── Busy            another worker holds the session
    ├── Erased          the session, or the requested place, was erased
    ├── Sealed          encrypted bytes that no available key opens
    ├── Unsupported     this kind of store cannot do this
    ├── ModelFailed     a model gave no answer, and what its provider said
    ├── Vetoed          a hook forbids the fold that a request needs
    ├── Spent           a call would exceed a cap on tokens or money; it was not made
    ├── Limited         a limit of the gateway's operator is reached; the call was not made
    ├── OtherHost       a request would go to another address than the session's; nothing was sent
    └── FormatError     stored bytes that this release cannot read

An error names the thing, the place and the way out.
"""

from datetime import UTC, datetime
from typing import Any


class FoldlineError(Exception):
    """The root: catch this to catch everything that Foldline raises on purpose."""


class Overflow(FoldlineError):  # noqa: N818 - named for what happened, as a caller would say it
    """The fixed and newest parts alone exceed what the window leaves; nothing was sent.

    Raised by `request()`, `undo()` and `switch()` where no edit makes the request fit, and at the
    limit under `policy="off"`. Shorten the largest part (system prompt, tools, the newest message),
    lower the reserve, or use a model with a larger window; the log is unchanged.
    """

    def __init__(self, parts: dict[str, int], limit: int) -> None:
        self.parts = parts
        """Each part of the request by its name, in tokens."""
        self.limit = limit
        """The most tokens that all parts together may take."""
        sizes = ", ".join(f"{name} {size:,}" for name, size in parts.items())
        super().__init__(
            f"the request cannot be made to fit {limit:,} tokens: {sizes}; "
            "shorten the largest part, lower the reserve, or use a model with a larger window"
        )


class BrokenView(FoldlineError):  # noqa: N818
    """A view that breaks a rule of every provider: a call without its result, an empty item.

    It is a bug of ours in an edit, or a part of the log is missing; never your input, which is
    repaired. Report it with its message.
    """


class BadHandle(FoldlineError):  # noqa: N818
    """Not a handle, a handle that this session's log does not hold, or an invalid query.

    Raised by `recall()`, `pin()` and `history.exclude()`. The message says where the log ends, or
    what a handle looks like: `log:12`, `log:3-9`.
    """


class NotAnEdit(FoldlineError):  # noqa: N818
    """There is no edit at this place: `undo()` reverts masks, folds, exclusions and undos.

    `session.edits` lists the edits that stand.
    """


class UndoFirst(FoldlineError):  # noqa: N818
    """Another edit covers this one: undo that one first, or leave both."""

    def __init__(self, edit: int, over: int) -> None:
        self.edit = edit
        """The edit to undo."""
        self.over = over
        """The edit that covers it."""
        super().__init__(f"the edit at {edit} no longer stands; undo the one at {over} first")


class BadInput(FoldlineError):  # noqa: N818
    """Input that cannot be read: a message for `add()`, a name, a number, a setting, an extra.

    Nothing was written. The message says what is allowed instead.
    """


class WireError(BadInput):
    """JSON of a client or a provider that its dialect does not allow, or a file that is no session.

    Fix what is at `path`. A wrapped client and the gateway forward such a request unchanged, and
    the provider judges it.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path
        """Where in the JSON: `$.messages[3].content`."""


class Conflict(FoldlineError):  # noqa: N818
    """Another writer or worker came first; nothing was written.

    With `of == "end"` another writer appended first: open the session again and repeat the call;
    open it with `exclusive=` if that happens often. With `of == "fence"` another worker took over:
    stop, and leave the session to it. With `of == "name"` a fork's name is taken: use another.
    """

    def __init__(self, session: str, expected: int, found: int, *, of: str = "end") -> None:
        self.expected = expected
        """The expected end of the log, or the fence of this lease."""
        self.found = found
        """The actual end or fence."""
        self.of = of
        """What was expected: `"end"`, `"fence"` or `"name"`."""
        words = {
            "end": f"session {session!r} was expected to end at {expected} and ends at {found}; "
            "another writer appended first: open the session again and repeat the call",
            "fence": f"session {session!r} is held under fence {found}, this lease had {expected}; "
            "another worker took over: stop, and leave the session to it",
            "name": f"there is a session {session!r} already; give the fork another name",
        }
        super().__init__(words[of])

    @classmethod
    def make_fence_conflict(cls, session: str, fence: int, found: int) -> "Conflict":
        """Make the error for a lease that another worker has taken over."""
        return cls(session, fence, found, of="fence")

    @classmethod
    def make_name_conflict(cls, session: str, found: int) -> "Conflict":
        """Make the error for a name that belongs to another session, which ends at `found`."""
        return cls(session, -1, found, of="name")


class StoreFailed(FoldlineError):  # noqa: N818
    """The store failed: a full disk, a lock, a server that went away.

    Fix the store, then repeat. If the connection ended during an append, nobody knows whether it
    was written: with `once=` repeating is safe, otherwise open the session and look.
    """


class Busy(FoldlineError):  # noqa: N818
    """Another worker holds the session, which only one may at a time.

    Wait until it is released or its lease runs out, and open it again. A message need not wait:
    `add(…, once=key)` works through a session that was opened without `exclusive=`.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} is held by another worker; "
            "wait until it is released or its lease runs out, and open it again"
        )


class Erased(FoldlineError):  # noqa: N818
    """The session was erased, or the events were trimmed, for good.

    Nothing brings it back. To start again, use another name.
    """

    def __init__(self, what: str, time: float) -> None:
        self.time = time
        """When it was erased, in seconds since 1970."""
        on = f"{datetime.fromtimestamp(time, tz=UTC):%Y-%m-%d}"
        super().__init__(f"{what!r} was erased on {on}; nothing of it is left")


class Sealed(FoldlineError):  # noqa: N818
    """Encrypted bytes that no available key opens: another master key, or altered bytes.

    Add the key that was used then to `FOLDLINE_ENCRYPT`, or to `older=` of `CryptStore`. If the
    bytes were altered, restore a backup.
    """


class Unsupported(FoldlineError):  # noqa: N818
    """This kind of store cannot do this; the message says what it can do instead.

    The only case is a search over all sessions of an encrypted store: search one session.
    """


class FormatError(FoldlineError):
    """Stored bytes of a newer release, bytes that are no event, or another program's database.

    Upgrade foldline, or check the address.
    """


class ModelFailed(FoldlineError):  # noqa: N818
    """A model gave no answer: its provider refused, broke off, or was silent for too long.

    Temporary faults were retried before this is raised. The log keeps what was received, as an
    answer that was cut. `fault.kind` says what to fix: `auth` the key; `rate` and `overloaded`:
    wait; `unreachable` the address or its server; `tokens`: the request was shortened once and is
    still too large.
    """

    def __init__(
        self, model: str, fault: Any, *, begun: bool = False, silent: bool = False
    ) -> None:
        self.model = model
        """The model that was asked."""
        self.fault = fault
        """The provider's error and its meaning: `foldline.dialects.provider_errors.Fault`."""
        self.begun = begun
        """Whether part of the answer had arrived: a retry would repeat it."""
        self.silent = silent
        """Whether nothing came in time: nobody knows if it was processed and will be billed."""
        super().__init__(f"{model} gave no answer ({fault.kind}): {fault.message}")


class Vetoed(FoldlineError):  # noqa: N818
    """A hook forbids a fold that the request needs to fit, or that a person asked for.

    Remove the veto, or shorten the session. Nothing was sent.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"the fold was vetoed: {why}; take the veto away, or shorten the session")


class Spent(FoldlineError):  # noqa: N818
    """A call would exceed a cap on tokens or money; it was not made.

    Raise the cap (`foldline.session.spending.Caps`), or wait until it is reset: a turn, a day.
    """

    def __init__(self, cap: str, *, spent: float, would: float, limit: float, unit: str) -> None:
        self.cap = cap
        """The cap's scope: call, turn, session, user or day."""
        self.limit = limit
        """How much it allows, in its own unit."""

        def format_amount(amount: float) -> str:
            return f"${amount:,.4f}" if unit == "dollars" else f"{amount:,.0f} tokens"

        super().__init__(
            f"the cap per {cap} is {format_amount(limit)}: {format_amount(spent)} are spent and "
            f"this call would take {format_amount(would)}; "
            "raise the cap, or wait until it begins anew"
        )


class Limited(FoldlineError):  # noqa: N818
    """A limit of the gateway's operator is reached: the call was not made.

    Ask again after `seconds`, or ask the operator for more.
    """

    def __init__(self, why: str, *, status: int = 429, seconds: int | None = None) -> None:
        self.status, self.seconds = status, seconds
        super().__init__(f"{why}; ask again later, or ask the gateway's operator for more")


class OtherHost(FoldlineError):  # noqa: N818
    """A request would go to another address than the one in the session's log.

    Nothing was sent. The message names both, and how to move the session: where its words go never
    changes without a person's consent.
    """

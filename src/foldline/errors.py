"""Every error Foldline raises, in one tree.

    FoldlineError
    ├── Overflow        the request cannot fit, and each part is named with its size
    ├── BrokenView      a view that no provider would take: a fault of ours
    ├── BadHandle       recall was asked for what is no handle of this session
    ├── NotAnEdit       undo was asked for an event that is not an edit
    ├── UndoFirst       undo was asked for an edit that another edit covers
    ├── BadInput        add() or open() was given something it cannot read
    │   └── WireError   JSON that its dialect does not allow, with the place in it
    ├── Conflict        somebody else appended first; nothing was written
    ├── StoreFailed     the disk or the database refused, or went away
    ├── Busy            another worker holds the session
    ├── Erased          the session, or the place asked for, was erased
    ├── Sealed          encrypted bytes that no key at hand opens
    ├── Unsupported     this kind of store cannot do what was asked
    ├── ModelFailed     a model gave no answer, and what its provider said
    ├── Vetoed          a hook forbids the fold that a request needs
    ├── Spent           a call would pass a cap on tokens or money; it was not made
    ├── OtherHost       a session would be asked at another address than its own; nothing was sent
    └── FormatError     stored bytes that this release cannot read

An error names the thing, the place and the way out. Knows nothing of the rest of the house.
"""

from datetime import UTC, datetime
from typing import Any


class FoldlineError(Exception):
    """The root: catch this to catch everything that Foldline raises on purpose."""


class Overflow(FoldlineError):  # noqa: N818 - named for what happened, as a caller would say it
    """The fixed and newest parts alone exceed what the window leaves; nothing was sent.

    Raised by `request()`, `undo()` and `switch()` where no edit makes it fit, and at the limit
    under `policy="off"`. Shorten the largest part (system words, tools, the newest message), lower
    the reserve, or take a model with a larger window; the log stays as it was.
    """

    def __init__(self, parts: dict[str, int], limit: int) -> None:
        self.parts = parts
        """Each part of the request by its name, in tokens."""
        self.limit = limit
        """What all of them together may take."""
        sizes = ", ".join(f"{name} {size:,}" for name, size in parts.items())
        super().__init__(
            f"the request cannot be made to fit {limit:,} tokens: {sizes}; "
            "shorten the largest part, lower the reserve, or use a model with a larger window"
        )


class BrokenView(FoldlineError):  # noqa: N818
    """A view that breaks a rule of every provider: a call without its result, an empty item.

    A fault of ours in an edit, or a log of which a part is missing; never what you put in, which is
    repaired. Report it with its message.
    """


class BadHandle(FoldlineError):  # noqa: N818
    """Not a handle, one that this session's log does not hold, or no way to look at it.

    Raised by `recall()`, `pin()` and `history.exclude()`. The message says where the log ends, or
    what a handle looks like: `log:12`, `log:3-9`.
    """


class NotAnEdit(FoldlineError):  # noqa: N818
    """There is no edit at this place: `undo()` takes back masks, folds, exclusions and undoings.

    `session.edits` lists those that stand.
    """


class UndoFirst(FoldlineError):  # noqa: N818
    """Another edit stands over this one: take that one back first, or leave both."""

    def __init__(self, edit: int, over: int) -> None:
        self.edit = edit
        """The edit that was asked for."""
        self.over = over
        """The edit that stands over it."""
        super().__init__(f"the edit at {edit} no longer stands; undo the one at {over} first")


class BadInput(FoldlineError):  # noqa: N818
    """Something that cannot be read: what `add()` was given, a name, a number, a setting, an extra.

    Nothing was written. The message says what may stand there instead.
    """


class WireError(BadInput):
    """JSON of a client or a provider that its dialect does not allow, or a file that is no session.

    Mend what stands at `path`. A wrapped client and the gateway send such a request on as it came,
    and the provider judges it.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path
        """Where in the JSON: `$.messages[3].content`."""


class Conflict(FoldlineError):  # noqa: N818
    """The log moved on before this append, or the lease did; nothing was written.

    With `of == "end"` another writer was first: open the session again and repeat the call; take it
    with `exclusive=` if that happens often. With `of == "fence"` another worker took over: stop,
    and leave the session to it. With `of == "name"` a fork's name is taken: give it another.
    """

    def __init__(self, session: str, expected: int, found: int, *, of: str = "end") -> None:
        self.expected = expected
        """Where the log was believed to end, or the fence that this lease had."""
        self.found = found
        """What it is."""
        self.of = of
        """`"end"`, `"fence"` or `"name"`: what was expected."""
        words = {
            "end": f"session {session!r} was expected to end at {expected} and ends at {found}; "
            "another writer appended first: open the session again and repeat the call",
            "fence": f"session {session!r} is held under fence {found}, this lease had {expected}; "
            "another worker took over: stop, and leave the session to it",
            "name": f"there is a session {session!r} already; give the fork another name",
        }
        super().__init__(words[of])

    @classmethod
    def over(cls, session: str, fence: int, found: int) -> "Conflict":
        """The lease is another's now."""
        return cls(session, fence, found, of="fence")

    @classmethod
    def taken(cls, session: str, found: int) -> "Conflict":
        """The name is another session's, which ends there."""
        return cls(session, -1, found, of="name")


class StoreFailed(FoldlineError):  # noqa: N818
    """The store could not do what it was asked: a full disk, a lock, a server that went away.

    Mend the store, then repeat. Whether an append was written is not known where its connection
    ended under it: with `once=` the repetition is safe, else open the session and look.
    """


class Busy(FoldlineError):  # noqa: N818
    """A session is one worker's at a time, and another holds it.

    Wait until it is released or its lease runs out, and open it again. A message need not wait:
    `add(…, once=key)` through a session that was opened without `exclusive=` takes it in.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} is held by another worker; "
            "wait until it is released or its lease runs out, and open it again"
        )


class Erased(FoldlineError):  # noqa: N818
    """What was asked for is gone for good: a session that was erased, or events that were trimmed.

    Nothing brings it back. A session that was erased needs another name to begin anew.
    """

    def __init__(self, what: str, time: float) -> None:
        self.time = time
        """When it was erased, in seconds since 1970."""
        on = f"{datetime.fromtimestamp(time, tz=UTC):%Y-%m-%d}"
        super().__init__(f"{what!r} was erased on {on}; nothing of it is left")


class Sealed(FoldlineError):  # noqa: N818
    """Encrypted bytes that no key at hand opens: another master key, or bytes that were altered.

    Give `CryptStore` the key that was used then, in `older=`. Where the bytes were altered, restore
    a backup.
    """


class Unsupported(FoldlineError):  # noqa: N818
    """This kind of store cannot do what was asked; the message says what it can do instead.

    Search over all sessions of an encrypted store is the case that there is: search one session.
    """


class FormatError(FoldlineError):
    """Stored bytes from a newer release, or bytes that were never an event, or another's database.

    Upgrade foldline, or look whether the address is the right one.
    """


class ModelFailed(FoldlineError):  # noqa: N818
    """A model gave no answer: its provider refused, broke off, or was silent for too long.

    What passes by itself was tried again before this is raised. The log goes on: what was heard is
    in it as an answer that was cut. `fault.kind` says what to mend: `auth` the key, `rate` and
    `overloaded` wait, `unreachable` the address or its server, `tokens` was healed once and is
    still too much.
    """

    def __init__(
        self, model: str, fault: Any, *, begun: bool = False, silent: bool = False
    ) -> None:
        self.model = model
        """The model that was asked."""
        self.fault = fault
        """What the provider said, and what it means: `foldline.dialects.provider_errors.Fault`."""
        self.begun = begun
        """Whether some of the answer had come: asking again would say it twice."""
        self.silent = silent
        """Whether nothing came in time: nobody knows if it was worked on and will be billed."""
        super().__init__(f"{model} gave no answer ({fault.kind}): {fault.message}")


class Vetoed(FoldlineError):  # noqa: N818
    """A hook forbids a fold without which the request does not fit, or that was asked for.

    Take the veto away, or shorten the session. Nothing was sent.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"the fold was vetoed: {why}; take the veto away, or shorten the session")


class Spent(FoldlineError):  # noqa: N818
    """A call would pass a cap on tokens or money; it was not made.

    Raise the cap (`foldline.session.spending.Caps`), or wait until it begins anew: a turn, a day.
    """

    def __init__(self, cap: str, *, spent: float, would: float, limit: float, unit: str) -> None:
        self.cap = cap
        """Which one: call, turn, session, user or day."""
        self.limit = limit
        """How much it allows, in its own unit."""

        def told(amount: float) -> str:
            return f"${amount:,.4f}" if unit == "dollars" else f"{amount:,.0f} tokens"

        super().__init__(
            f"the cap per {cap} is {told(limit)}: {told(spent)} are spent and this call would take "
            f"{told(would)}; raise the cap, or wait until it begins anew"
        )


class OtherHost(FoldlineError):  # noqa: N818
    """A session would be asked at another address than the one that its log names.

    Nothing was sent. The message names both, and how to move the session: a change of where its
    words go is asked for, it never happens by itself.
    """

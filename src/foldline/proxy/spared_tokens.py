"""How much larger a client's own request is than the one that is sent, estimated.

Sizes of messages are remembered by their hashes, and counted only for conversations in which
something is edited: each message once.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foldline.core.item import make_item
from foldline.core.log import Asked, Instructed, UsageReported
from foldline.core.tokens import MESSAGE, count_parts
from foldline.core.view import View
from foldline.proxy.client_request import ClientRequest
from foldline.session.client_row import is_said

_EDITS = frozenset(("fold", "clip", "stub"))  # patches by which less is sent


class CallBefore(NamedTuple):
    """The call before this one, as the log has it."""

    input: int = 0
    """0: this is the first."""
    model: str = ""
    cached: bool = False
    """Whether the provider said that it read from its cache."""
    wrote: bool = False
    """Whether it said that it wrote to it."""


NO_CALL_BEFORE = CallBefore()


class SparedTokens(NamedTuple):
    """A request as its client sent it, beside the one that is sent; in estimated tokens."""

    gone: int
    """What edits took out of it."""
    new: int
    """What the client added to its request before."""
    before: CallBefore = NO_CALL_BEFORE
    is_edited: bool = False
    """Whether the cache could not hold: more was edited than what is new."""


def find_call_before(view: View) -> CallBefore:
    """Find the newest call of a log."""
    if view.asked < 0:
        return NO_CALL_BEFORE
    reports = (one for one in reversed(view.held.values()) if isinstance(one, UsageReported))
    used = next(reports, UsageReported())
    asked = view.held.get(view.asked)
    guessed = asked.tokens if isinstance(asked, Asked) else 0
    return CallBefore(
        (used.input or guessed) or 1, view.model, bool(used.cache_read), bool(used.cache_write)
    )


class MessageSizes:
    """The sizes of a client's messages, of its newest request."""

    def __init__(self) -> None:
        self._hashes: list[bytes] = []
        self._sizes: list[int] = []

    def measure_spared(
        self,
        request: ClientRequest,
        view: View,
        kinds: Mapping[str, int],
        new: Sequence[int],
    ) -> SparedTokens | None:
        """Compare a request with the view that is sent; None if nothing is taken out of it.

        `kinds` are the patches that were made, and `new` the indexes of new messages.
        """
        if _EDITS.isdisjoint(kinds):
            return None
        sizes = self._count_sizes(request)
        whole = sum(sizes[len(request.leading) :])
        shown = view.tokens + sum(item.tokens for item in view.waiting)
        added = sum(sizes[at] for at in new if at < len(sizes))
        return SparedTokens(max(whole - shown, 0), added)

    def count_unsized(self, request: ClientRequest) -> int:
        """Return about how many messages of a request have to be read for that."""
        return max(len(request.hashes) - len(self._hashes), 0)

    def _count_sizes(self, request: ClientRequest) -> list[int]:
        pairs = enumerate(zip(self._hashes, request.hashes, strict=False))
        most = min(len(self._hashes), len(request.hashes))
        same = next((at for at, (old, now) in pairs if old != now), most)
        del self._sizes[same:]
        for at in range(same, len(request.hashes)):
            self._sizes.append(_count_message(request, at))
        self._hashes = request.hashes
        return self._sizes


def _count_message(request: ClientRequest, at: int) -> int:
    described = request.described[at]
    if described.role == "fold" or at < len(request.leading):
        return 0
    events = request.read_message(at)
    total = 0
    for event in events:
        if is_said(event):
            total += make_item(0, "user", event.parts, native=event.native).tokens
        elif isinstance(event, Instructed):
            total += count_parts(event.parts) + MESSAGE
    return total

"""Clip messages that are too large: when they arrive, and what nobody has answered once more.

A message that is too large by itself is clipped when it arrives. Several that nobody has answered
share the room of a request, and so do the newest ones of a request that a provider refused. Each
keeps a fair share, and is cut by no more than what is missing.

The view adds the handle and the outcome to a clip, because only it knows the message's place.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

import msgspec

from foldline.core import rules, truncate
from foldline.core.budget import (
    Budget,
    Limits,
    apply_learned_window,
    measure_budget,
    measure_free_room,
    measure_least_handoff,
)
from foldline.core.item import CUT_AGAIN, CUT_TO_SHARE, Item
from foldline.core.log import Clipped, ToolReturned, UserSaid
from foldline.core.names import count_names, format_way_back
from foldline.core.parts import Clip, Gap, Part, Stub, Text, text_of
from foldline.core.policy import How, LineLimits
from foldline.core.spine import Change, Range, apply_spine_change
from foldline.core.token_bounds import count_cautiously
from foldline.core.tokens import count_parts, count_tokens, count_tokens_roughly
from foldline.core.view import View

_LINES = LineLimits()
_LOOK = 131_072  # characters of the cut that are searched; recall finds the rest
_NEWEST = 0.7  # of room, for the newest messages of a request that was refused
_LEAST_BYTES = 240  # of one message: fewer say nothing
_HANDLE = 48  # characters of what a view adds to a clip: its handle, and how to see more
_LEAST_CLIP = 57  # tokens of any clip
_MARKER = 56  # tokens of the marker, its handle and line ends
_TRIES = 8  # to find the size that fills what is free
_FULL, _AIM = 0.96, 0.985  # of what is free: when to stop, and what to try next
_LEAST_SHARE = 100  # tokens of a message, the marker among them
_FAR = 16  # times what is free: no text has that many more estimated tokens than real ones


def clip_event(  # noqa: PLR0913 - how it is cut, and the limits of that
    event: UserSaid | ToolReturned,
    *,
    how: How,
    cap: float = inf,
    most: float = inf,
    count: Callable[[str], int] = count_cautiously,
    lines: LineLimits = _LINES,
    recall: bool = True,
) -> UserSaid | ToolReturned:
    """Add a clip to an event whose words exceed `cap` estimated tokens, or `most` by `count`.

    Cut by lines, they may not exceed `lines` either. The event keeps the whole; `recall` says
    whether the model has a tool that gives it back.
    """
    words = text_of(part for part in event.parts if isinstance(part, Text))
    least = min(cap, most)
    above = int(least) if least < inf else len(words)
    whole = count_tokens_roughly(words, above=above)  # far above that it is only mentioned
    # What is far too large by its estimate is not counted: an exact count takes its time.
    fits = whole <= cap and (
        _count_bytes(words) <= most or (whole <= _FAR * most and count(words) <= most)
    )
    if fits and not (how == "lines" and _is_long(words, lines)):
        return event
    texts = _fill(
        lambda tokens: _clip_words(words, tokens, whole, how, lines),
        min(cap, whole),
        most,
        count=count,
    )
    others = (part for part in event.parts if not isinstance(part, Text | Gap))
    if len(words) <= sum(len(text_of((part,))) for part in texts) + _HANDLE:
        return event  # the marker would be longer than what was cut
    shown = sum(count_tokens(text_of((part,))) for part in texts)
    return msgspec.structs.replace(event, clip=Clip((*texts, *others), how, whole, shown, recall))


def _fill(
    cut: Callable[[int], tuple[Part, ...]], cap: float, most: float, *, count: Callable[[str], int]
) -> tuple[Part, ...]:
    """Cut to at most `cap` estimated tokens and to at most `most` by `count`, but not far below."""
    tokens = max(int(min(cap, most)), _LEAST_CLIP)
    texts = cut(tokens)
    best: tuple[Part, ...] = ()
    for _ in range(_TRIES):
        size = count_parts(texts, count)
        if size <= most:
            best = texts
            if tokens >= cap or size >= _FULL * most:
                break
        if tokens <= _LEAST_CLIP:
            break
        aim = tokens * most / max(size, 1) * _AIM
        tokens = max(int(min(aim, cap)), _LEAST_CLIP)
        texts = cut(tokens)
    return best or texts


def _clip_words(words: str, cap: int, whole: int, how: How, lines: LineLimits) -> tuple[Part, ...]:
    keep = max(cap - _MARKER, 1)
    if how == "lines":
        return _clip_to_lines(words, keep, lines)
    return _clip_to_ends(words, keep, whole=whole, how=how)


def _clip_to_ends(words: str, keep: int, *, whole: int, how: How) -> tuple[Part, ...]:
    match how:
        case "ends":
            which, parts = "parts", _with_structure(words, keep)
            if parts is None:
                which, parts = "first+last", _with_errors(words, keep)
        case "tail":
            which, parts = "last", (Gap(""), Text(truncate.truncate_to_tail(words, keep)))
        case "both":
            first, last = truncate.truncate_to_ends(words, keep)
            which, parts = "first+last", (Text(first), Gap(""), Text(last))
        case _:
            which, parts = "first", (Text(truncate.truncate_to_head(words, keep)), Gap(""))
    gap = Gap(f"[truncated: kept {which} ~{count_parts(parts)} of ~{whole} tokens ({how})]")
    return tuple(gap if isinstance(part, Gap) else part for part in parts)


def _with_errors(words: str, keep: int) -> tuple[Part, ...]:
    """Keep head and tail, and between them what is needed later: error lines, names."""
    from foldline.core.edits.structure import select_fault_lines  # noqa: PLC0415 - few are clipped

    first = truncate.truncate_to_head(words, keep * 60 // 100)
    last = truncate.truncate_to_tail(words, keep * 25 // 100, start=len(first))
    start, end = len(first), len(words) - len(last)
    errors = select_fault_lines(words[max(start, end - _LOOK) : end], keep * 11 // 100)
    names = _select_cut_names(words[start : min(start + _LOOK, end)], first + last, keep * 4 // 100)
    middle = [Text(f"[errors in the cut]\n{errors}")] if errors else []
    middle += [Text(f"[names in the cut] {names}")] if names else []
    return (Text(first), Gap(""), *middle, Text(last))


def _with_structure(words: str, keep: int) -> tuple[Part, ...] | None:
    """Keep what matters most in a text of a known kind, and names of the rest."""
    from foldline.core.edits.structure import shorten_structure  # noqa: PLC0415 - few are clipped

    found = shorten_structure(words, keep * 95 // 100, look=_LOOK)
    if found is None or len(found.text) + _HANDLE >= len(words):
        return None
    names = _select_cut_names(found.cut, found.text, keep * 4 // 100)
    return (Gap(""), *([Text(f"[names in the cut] {names}")] if names else []), Text(found.text))


def _select_cut_names(text: str, shown: str, tokens: int) -> str:
    """Select names that only the cut part has: most frequent first, then shortest."""
    counted = count_names(text)
    kept: list[str] = []
    for name in sorted(counted, key=lambda name: (-counted[name], len(name), name)):
        if name in shown:
            continue
        tokens -= count_tokens(name) + 1
        if tokens < 0:
            break
        kept.append(name)
    return " ".join(kept)


def _is_long(words: str, limits: LineLimits) -> bool:
    return _count_bytes(words) > limits.bytes or len(words.splitlines()) > limits.lines


def _clip_to_lines(words: str, keep: int, limits: LineLimits) -> tuple[Part, ...]:
    total = len(words.splitlines())
    first, omitted, last = words, 0, ""
    if total > limits.lines:
        first, omitted, last = truncate.truncate_to_lines(words, head=limits.head, tail=limits.tail)
    title = Text(f"Total output lines: {total}")
    markers = [f"[... omitted {omitted} of {total} lines ...]"] if omitted else []
    if (
        count_tokens(first) + count_tokens(last) > keep
        or _count_bytes(first) + _count_bytes(last) > limits.bytes
    ):
        # Both limits hold at once: cut by lines first, then the ends of what is still too long.
        markers.append("[... truncated for length ...]")
        if not omitted:  # half of the text for each end: few tokens may be many bytes
            first, last = words[: len(words) // 2], words[len(words) // 2 :]
        half = max(limits.bytes // 2, 1)
        first = _first_bytes(truncate.truncate_to_head(first, keep // 2), half)
        last = _last_bytes(truncate.truncate_to_tail(last, keep - keep // 2), half)
    return (title, Text(first.rstrip("\n")), Gap("\n".join(markers)), Text(last))


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _first_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _last_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")


class _Marker(NamedTuple):
    """What stands where a message is cut: why, and whether the model can recall the rest."""

    words: str
    recall: bool


def clip_unanswered(view: View, budget: Budget, *, recall: bool, over: int = 0) -> Clipped | None:
    """Cut what nobody has answered to fair shares, where not all of it fits; None where it does.

    The event is to be appended next. Nothing else gives way but what can be folded. `over` is what
    the request exceeds its room by all the same: then that is cut, as far as anything is.
    """
    if budget.fits and not over:
        return None
    count = budget.limits.count
    settled, newest, kept = _split_newest_items(view)
    free = measure_free_room(view, budget, kept, of=budget.room)
    free -= measure_least_handoff(view, settled, budget)
    whole = sum(view.bound_item(item, count) for item in newest)
    free = whole - over if over else free
    if whole <= free:
        return None
    sizes = {item: count(_read_shown_words(item)) for item in newest}
    free -= sum(view.bound_item(item, count) - size for item, size in sizes.items())
    share = _compute_fair_share(sizes.values(), free)
    if share < _LEAST_SHARE and not over:
        return None  # so many small ones say nothing cut: the oldest are folded
    share = max(share, _LEAST_CLIP if over else _LEAST_SHARE)
    marker = _Marker(CUT_TO_SHARE, recall)
    return _clip_items(view, sizes, share, count=count, marker=marker)


def clip_newest_messages(
    view: View, limits: Limits, *, recall: bool
) -> tuple[Clipped, Limits] | None:
    """Cut the newest messages of a request that a provider refused; None if they are small.

    The event is to be appended next. Sizes are bytes here, which tokens never exceed; the returned
    limits are reduced by what the estimate may be too small by.
    """
    limits = apply_learned_window(limits, view.windows.get(view.model))
    _, newest, _ = _split_newest_items(view)
    sizes = {item: _count_bytes(_read_shown_words(item)) for item in newest}
    free = int(measure_budget(view, limits).room * _NEWEST)
    if sum(sizes.values()) <= free:
        return None
    share = max(_compute_fair_share(sizes.values(), free), _LEAST_BYTES)
    marker = _Marker(CUT_AGAIN, recall)
    clipped = _clip_items(view, sizes, share, count=_count_bytes, marker=marker)
    if clipped is None:
        return None
    left = sum(min(size, share) for size in sizes.values())
    unsure = max(left - sum(count_tokens(stub.text) for stub in clipped.stubs), 0)
    return clipped, replace(limits, window=limits.window - unsure)


def _split_newest_items(view: View) -> tuple[list[Item], list[Item], list[Item]]:
    """Return what can be folded, what came after the newest answer, and what stays beside it."""
    cut = next(rules.cuts_back(view), None)
    start = cut.index if cut else 0
    beside = [*view.items[start:], *view.waiting]
    answers = [at for at, item in enumerate(beside) if item.role == "model"]
    behind = beside[answers[-1] + 1 if answers else 0 :]
    newest = [one for one in behind if one.role in ("user", "result") and one.state != "folded"]
    kept = [one for one in beside if one not in newest]
    return view.items[:start], newest, kept


def _read_shown_words(item: Item) -> str:
    return text_of(part for part in item.parts if isinstance(part, Text))


def _compute_fair_share(sizes: Iterable[int], most: int) -> int:
    """Compute the size to which all must be cut so that together they stay within `most`."""
    left, rest = most, sorted(sizes)
    for at, size in enumerate(rest):
        share = left // (len(rest) - at)
        if size > share:
            return share
        left -= size
    return most


def _clip_items(
    view: View,
    sizes: Mapping[Item, int],
    share: int,
    *,
    count: Callable[[str], int],
    marker: _Marker,
) -> Clipped | None:
    """Build the event that cuts the items which exceed their share; None if there are none."""
    large = sorted((item for item, size in sizes.items() if size > share), key=lambda one: one.seq)
    stubs = [Stub(item.seq, _cut_to_ends(view, item, share, count, marker)) for item in large]
    if not stubs:
        return None
    change = Change(span=Range(stubs[0].seq, stubs[-1].seq), masks_on=(view.head + 1,))
    spine = apply_spine_change(view.spine, change)
    assert spine is not None, "a new mask stands nowhere yet"  # noqa: S101
    return Clipped(tuple(stubs), change, spine)


def _cut_to_ends(
    view: View, item: Item, share: int, count: Callable[[str], int], marker: _Marker
) -> str:
    """Keep both ends of a message, with its handle between them."""
    said = view.held[item.seq]
    whole = said.parts if isinstance(said, UserSaid | ToolReturned) else item.parts
    words = text_of(part for part in whole if isinstance(part, Text))
    middle = f"\n{marker.words}\n{format_way_back(item.seq, recall=marker.recall)}\n"

    def cut(tokens: int) -> tuple[Part, ...]:
        first, last = truncate.truncate_to_ends(words, max(tokens - _MARKER, 2))
        return (Text(f"{first}{middle}{last}"),)

    return text_of(_fill(cut, count_tokens(words), share, count=count))

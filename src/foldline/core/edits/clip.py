"""Clip messages that are too large, once, when they arrive; and once more after a refusal.

The view adds the handle and the outcome to a clip, because only it knows the message's place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

import msgspec

from foldline.core import rules, truncate
from foldline.core.budget import Budget, Limits, apply_learned_window, measure_budget
from foldline.core.item import CUT_AGAIN, Item
from foldline.core.log import Clipped, ToolReturned, UserSaid
from foldline.core.names import count_names, format_way_back
from foldline.core.parts import Clip, Gap, Part, Stub, Text, text_of
from foldline.core.policy import How, LineLimits
from foldline.core.spine import Change, Range, apply_spine_change
from foldline.core.token_bounds import bound_tokens
from foldline.core.tokens import MESSAGE, count_parts, count_tokens, count_tokens_roughly
from foldline.core.view import View

_LINES = LineLimits()
_LOOK = 131_072  # characters of the cut that are searched; recall finds the rest
_NEWEST = 0.7  # of room, for the newest messages of a request that was refused
_BESIDE_HANDOFF = 0.9  # of room, for the newest messages of a request that no fold makes fit
_LEAST_BYTES = 240  # of one message: fewer say nothing
_HANDLE = 48  # characters of what a view adds to a clip: its handle, and how to see more
_LEAST_CLIP = 57  # tokens of any clip
_MARKER = 56  # tokens of the marker, its handle and line ends


def clip_event(  # noqa: PLR0913 - how it is cut, and the limits of that
    event: UserSaid | ToolReturned,
    *,
    cap: int,
    how: How,
    most: float = inf,
    bound: Callable[[str], int] = bound_tokens,
    lines: LineLimits = _LINES,
    recall: bool = True,
) -> UserSaid | ToolReturned:
    """Add a clip to an event whose words exceed `cap` tokens, or may exceed `most` by their bound.

    Cut by lines, they may not exceed `lines` either. The event keeps the whole; `recall` says
    whether the model has a tool that gives it back.
    """
    words = text_of(part for part in event.parts if isinstance(part, Text))
    whole = count_tokens_roughly(words, above=cap)  # far above the cap it is only mentioned
    fits = whole <= cap and (_count_bytes(words) <= most or bound(words) <= most)
    if fits and not (how == "lines" and _is_long(words, lines)):
        return event
    texts = _clip_words(words, cap, whole, how, lines)
    while (size := count_parts(texts, bound)) > most and cap > _LEAST_CLIP:
        cap = max(int(cap * most / size * 31 / 32), _LEAST_CLIP)
        texts = _clip_words(words, cap, whole, how, lines)
    others = (part for part in event.parts if not isinstance(part, Text | Gap))
    if len(words) <= sum(len(text_of((part,))) for part in texts) + _HANDLE:
        return event  # the marker would be longer than what was cut
    shown = sum(count_tokens(text_of((part,))) for part in texts)
    return msgspec.structs.replace(event, clip=Clip((*texts, *others), how, whole, shown, recall))


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


def clip_newest_messages(
    view: View, limits: Limits, *, recall: bool = True
) -> tuple[Clipped, Limits] | None:
    """Cut the newest messages of a request that a provider refused; None if they are small.

    The event is to be appended next. Sizes are bytes here, which tokens never exceed; the returned
    limits are reduced by what the estimate may be too small by.
    """
    limits = apply_learned_window(limits, view.windows.get(view.model))
    budget = measure_budget(view, limits)
    newest = [item for item in _list_newest(view) if _can_be_cut(item)]
    sizes = {item.seq: _count_bytes(text_of(item.parts)) for item in newest}
    free = int(budget.room * _NEWEST)
    if sum(sizes.values()) <= free:
        return None
    share = _compute_fair_share(sizes.values(), free, least=_LEAST_BYTES)
    large = [item for item in newest if sizes[item.seq] > share]
    stubs = [
        Stub(item.seq, _cut_bytes(_read_words(view, item), item, share, recall=recall))
        for item in large
    ]
    if not stubs:
        return None
    left = sum(min(size, share) for size in sizes.values())
    unsure = max(left - sum(count_tokens(stub.text) for stub in stubs), 0)
    return _build_clipped(view, stubs), replace(limits, window=limits.window - unsure)


def clip_to_room(view: View, budget: Budget, *, recall: bool) -> Clipped | None:
    """Cut the newest messages, each to its fair share of the room, beside the smallest handoff.

    For a request that no fold makes fit. The event is to be appended next; None if none is larger
    than its share.
    """
    newest = _list_newest(view)
    cut = [item for item in newest if _can_be_cut(item)]
    free = budget.convert_to_estimate(budget.room * _BESIDE_HANDOFF) - _LEAST_CLIP
    free -= sum(item.tokens for item in newest if item not in cut)
    share = _compute_fair_share([item.tokens for item in cut], free, least=_LEAST_CLIP)
    stubs: list[Stub] = []
    for item in cut:
        words, most = _read_words(view, item), share - MESSAGE
        if item.tokens <= share or not words:
            continue
        size = _count_bytes(words)
        text = words
        while (tokens := count_tokens(text)) > most and size > _LEAST_BYTES:
            size = min(size * most // tokens, size - _LEAST_BYTES)
            text = _cut_bytes(words, item, size, recall=recall)
        if tokens + MESSAGE < item.tokens:
            stubs.append(Stub(item.seq, text))
    return _build_clipped(view, stubs) if stubs else None


def _list_newest(view: View) -> list[Item]:
    """List the items that no fold takes."""
    return [*view.items[rules.find_protected_start(view) :], *view.waiting]


def _can_be_cut(item: Item) -> bool:
    return item.role in ("user", "result") and item.state in ("whole", "clipped", "late")


def _build_clipped(view: View, stubs: Sequence[Stub]) -> Clipped:
    seqs = [stub.seq for stub in stubs]
    change = Change(span=Range(min(seqs), max(seqs)), masks_on=(view.head + 1,))
    spine = apply_spine_change(view.spine, change)
    assert spine is not None, "a new mask stands nowhere yet"  # noqa: S101
    return Clipped(tuple(stubs), change, spine)


def _compute_fair_share(sizes: Iterable[int], most: int, *, least: int) -> int:
    """Compute the size to which all must be cut so that together they stay within `most`."""
    left, rest = most, sorted(sizes)
    for at, size in enumerate(rest):
        share = left // (len(rest) - at)
        if size > share:
            return max(share, least)
        left -= size
    return max(most, least)


def _read_words(view: View, item: Item) -> str:
    said = view.held[item.seq]
    whole = said.parts if isinstance(said, UserSaid | ToolReturned) else item.parts
    return text_of(part for part in whole if isinstance(part, Text))


def _cut_bytes(words: str, item: Item, size: int, *, recall: bool) -> str:
    """Keep both ends of a message, with its handle between them."""
    half = max(size - _MARKER * 2, _LEAST_BYTES) // 2
    where = f"{CUT_AGAIN}\n{format_way_back(item.seq, recall=recall)}"
    return f"{_first_bytes(words, half)}\n{where}\n{_last_bytes(words, half)}"

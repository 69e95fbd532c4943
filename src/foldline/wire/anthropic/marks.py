"""Cache marks: where the provider shall remember the prefix, at most four.

Knows the rules of breakpoints: they are looked for over 20 blocks, and not every block takes one.
Refuses to know the conversation: marks stand at the ends of what changes seldom, and of all.
"""

from collections.abc import Iterable, Sequence

from foldline.wire.anthropic import forms
from foldline.wire.reading import Json

MOST = 4
_LOOK_BACK = 19  # blocks: a mark finds what an earlier request wrote at most so far behind it
_TAKES = {"text", "image", "document", "tool_use", "tool_result"}
_MARK = {"type": "ephemeral"}


def mark(tools: list[Json], system: list[Json], messages: Sequence[list[Json]]) -> None:
    """Put marks on blocks, in place: on the fixed part, on the first message, and on the end.

    The first message holds the folds, which change seldom. The end has two, so that a step of many
    blocks still finds what the request before it wrote. Marks of the client's own stay alone.
    """
    if any("cache_control" in block for block in (*tools, *system, *_all(messages))):
        return
    fixed = system or tools
    wanted = [(fixed, len(fixed) - 1)] if fixed else []
    flat = [(blocks, place) for blocks in messages for place in range(len(blocks))]
    last = len(flat) - 1
    ends = {len(messages[0]) - 1 if messages else -1, last - _LOOK_BACK, last}
    for end in sorted(end for end in ends if end >= 0):
        takes = (flat[at] for at in range(end, -1, -1) if _takes(flat[at][0][flat[at][1]]))
        wanted += [place] if (place := next(takes, None)) else []
    for blocks, place in wanted[:MOST]:
        blocks[place] = {**blocks[place], "cache_control": _MARK}


def _takes(block: Json) -> bool:
    return forms.kind(block) in _TAKES and (forms.kind(block) != "text" or bool(block.get("text")))


def _all(messages: Iterable[list[Json]]) -> Iterable[Json]:
    return (block for blocks in messages for block in blocks)

"""Draw what the model sees before and after an edit, as SVG: two bars and a table.

The kind of edit does not matter: both pictures begin and end the same, and what lies between them
in one became what lies between in the other.
"""

from itertools import groupby
from textwrap import wrap

from foldline.core.edits.fold import Loss
from foldline.core.names import format_count
from foldline.draw import wording
from foldline.draw.picture import KINDS, Picture, Run, fill_cells
from foldline.draw.svg import (
    COLOURS,
    EDGE,
    INK,
    LETTER,
    LINE,
    PALE,
    WIDTH,
    draw_box,
    draw_card,
    draw_text,
)

_ACROSS = WIDTH - 2 * EDGE
_BEFORE, _AFTER, _HIGH = 108, 208, 40
_ROW = 25
_NAME, _WAS, _IS, _NOTE = 52, 232, 330, 362
_FACTS = {
    "file": "file",
    "command": "command",
    "test": "test",
    "error": "error",
    "decision": "decision",
    "todo": "task",
    "link": "link",
    "name": "name",
}


def change_svg(before: Picture, after: Picture, *, lost: Loss | None) -> str:
    """Draw both pictures on one card."""
    title = f"{before.total:,} tokens become {after.total:,}"
    body = [
        draw_text(EDGE, 40, title, size=19, bold=True),
        draw_text(WIDTH - EDGE, 40, wording.format_model_name(before), ink=PALE, end=True),
        draw_text(EDGE, 63, _render_subtitle(before, lost), ink=PALE),
        *_draw_bar(before, _BEFORE, "before", row=_BEFORE - 8),
        *_draw_change(
            before, after, count_common_tokens(before, after), "folded into" if lost else "become"
        ),
        *_draw_bar(after, _AFTER, "after", row=_AFTER + _HIGH + 18),
    ]
    table, y = _draw_table(before, after, _AFTER + _HIGH + 54, lost)
    return draw_card([*body, *table], y + 14, label=title)


def count_common_tokens(before: Picture, after: Picture) -> tuple[int, int]:
    """Count the tokens that are the same at the beginning, and at the end, of both."""
    head = _count_common_prefix(before.runs, after.runs)
    tail = _count_common_prefix(before.runs[::-1], after.runs[::-1])
    return head, min(tail, before.total - head, after.total - head)


def _count_common_prefix(left: tuple[Run, ...], right: tuple[Run, ...]) -> int:
    found = 0
    for one, other in zip(left, right, strict=False):
        if (one.kind, one.state) != (other.kind, other.state) or one.kind == "handoffs":
            return found + (min(one.tokens, other.tokens) if one == other else 0)
        found += min(one.tokens, other.tokens)
        if one.items != other.items:  # the edit begins or ends inside this run
            return found
    return found


def _render_subtitle(before: Picture, lost: Loss | None) -> str:
    pays = None if lost is None else lost.pays_after
    paid = "" if pays is None else f" · pays for itself after {pays:.1f} calls"
    return f"policy {before.policy} · window {before.window:,} · nothing is deleted{paid}"


def _draw_bar(drawn: Picture, y: int, name: str, *, row: int) -> list[str]:
    found = [
        draw_text(EDGE, row, name, bold=True),
        draw_text(WIDTH - EDGE, row, wording.format_picture_usage(drawn), end=True, mono=True),
    ]
    x = EDGE
    for fill, run in groupby(fill_cells(drawn, _ACROSS)):
        wide = len(list(run))
        found.append(draw_box(x, y, wide, _HIGH, COLOURS[fill]))
        x += wide
    return found


def _draw_change(before: Picture, after: Picture, same: tuple[int, int], how: str) -> list[str]:
    """Draw bands from the upper bar to the lower: what changed, and what follows unchanged."""
    head, tail = same
    top, foot = _BEFORE + _HIGH, _AFTER
    half = (top + foot) / 2

    def x_of(tokens: int) -> float:
        return EDGE + _ACROSS * min(tokens / before.window, 1.0)

    def draw_band(start: tuple[int, int], end: tuple[int, int], ink: str, dense: float) -> str:
        (a, d), (b, c) = map(x_of, start), map(x_of, end)
        return (
            f'<path d="M{a:g} {top}H{b:g}C{b:g} {half:g} {c:g} {half:g} {c:g} {foot}'
            f'H{d:g}C{d:g} {half:g} {a:g} {half:g} {a:g} {top}Z" '
            f'fill="{ink}" fill-opacity="{dense}"/>'
        )

    cut = before.total - tail, after.total - tail
    changed = x_of(head) + 10, half - 6
    return [
        draw_band((head, head), cut, COLOURS["handoffs"], 0.25),
        draw_band(cut, (before.total, after.total), PALE, 0.14),
        draw_text(*changed, f"{cut[0] - head:,} tokens {how} {cut[1] - head:,}", size=12),
    ]


def _draw_table(
    before: Picture, after: Picture, y: int, lost: Loss | None
) -> tuple[list[str], int]:
    heads = ((_NAME, "part", False), (_WAS, "before", True), (_IS, "after", True))
    found = [draw_text(x, y, name, ink=PALE, size=11, end=end) for x, name, end in heads]
    y += 6
    for kind in KINDS:
        was, now = (sum(run.tokens for run in one.select_runs(kind)) for one in (before, after))
        if not was and not now:
            continue
        y += _ROW - 3
        found.append(
            f'<rect x="{EDGE}" y="{y - 11}" width="13" height="13" rx="2" fill="{COLOURS[kind]}"/>'
        )
        found.append(draw_text(_NAME, y, kind))
        found.append(draw_text(_WAS, y, f"{was:,}", end=True, mono=True))
        found.append(draw_text(_IS, y, f"{now:,}", end=True, mono=True, bold=True))
        notes = (
            wrap(_describe_kept(lost), int((WIDTH - EDGE - _NOTE) / LETTER))
            if kind == "handoffs"
            else []
        )
        for at, note in enumerate(notes):
            y += 18 if at else 0
            found.append(draw_text(_NOTE, y, note, ink=PALE))
    if lost is not None:
        y += 12
        found.append(draw_box(EDGE, y, _ACROSS, 1, LINE))
        y += 20
        for line in _describe_lost(lost):
            found.append(draw_text(EDGE, y, line, ink=INK))
            y += 20
        y -= 14
    return found, y


def _describe_kept(lost: Loss | None) -> str:
    if lost is None:
        return ""
    facts = [
        format_count(lost.facts[kind], name)
        for kind, name in _FACTS.items()
        if lost.facts.get(kind)
    ]
    verbatim = [f"{format_count(lost.quoted, 'message')} verbatim"] if lost.quoted else []
    return ", ".join([*verbatim, *facts])


def _describe_lost(lost: Loss) -> list[str]:
    """Describe what left the model's sight, one line per kind."""
    return [
        f"{format_count(len(left), kind.removesuffix('s'))}, "
        f"{sum(one.tokens for one in left):,} tokens, out of sight; "
        f"each comes back by its handle: {left[0].handle} … {left[-1].handle}"
        for kind, left in lost.left.items()
    ]

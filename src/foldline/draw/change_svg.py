"""What the model sees before and after an edit, as SVG: two bars, what became what, what is kept.

Knows two pictures of one window and where they differ. Refuses to know which edit it was: whatever
stands at the beginning and at the end of both is the same, and what lies between became the other.
"""

from itertools import groupby
from textwrap import wrap

from foldline.core.edits.fold import Loss
from foldline.core.saying import many
from foldline.draw import words
from foldline.draw.paper import EDGE, INK, LETTER, LINE, PALE, WIDTH, box, card, text
from foldline.draw.picture import KINDS, Picture, Run, cells
from foldline.draw.svg import COLOURS

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
    """Both pictures on one card."""
    title = f"{before.total:,} tokens become {after.total:,}"
    body = [
        text(EDGE, 40, title, size=19, bold=True),
        text(WIDTH - EDGE, 40, words.model(before), ink=PALE, end=True),
        text(EDGE, 63, _under(before, lost), ink=PALE),
        *_bar(before, _BEFORE, "before", row=_BEFORE - 8),
        *_became(before, after, alike(before, after), "folded into" if lost else "become"),
        *_bar(after, _AFTER, "after", row=_AFTER + _HIGH + 18),
    ]
    table, y = _table(before, after, _AFTER + _HIGH + 54, lost)
    return card([*body, *table], y + 14, label=title)


def alike(before: Picture, after: Picture) -> tuple[int, int]:
    """How many tokens of both are the same at the beginning, and at the end."""
    head = _same(before.runs, after.runs)
    tail = _same(before.runs[::-1], after.runs[::-1])
    return head, min(tail, before.total - head, after.total - head)


def _same(left: tuple[Run, ...], right: tuple[Run, ...]) -> int:
    found = 0
    for one, other in zip(left, right, strict=False):
        if (one.kind, one.state) != (other.kind, other.state) or one.kind == "handoffs":
            return found + (min(one.tokens, other.tokens) if one == other else 0)
        found += min(one.tokens, other.tokens)
        if one.items != other.items:  # the edit begins or ends inside of it
            return found
    return found


def _under(before: Picture, lost: Loss | None) -> str:
    pays = None if lost is None else lost.pays_after
    paid = "" if pays is None else f" · pays for itself after {pays:.1f} calls"
    return f"policy {before.policy} · window {before.window:,} · nothing is deleted{paid}"


def _bar(drawn: Picture, y: int, name: str, *, row: int) -> list[str]:
    found = [
        text(EDGE, row, name, bold=True),
        text(WIDTH - EDGE, row, words.usage(drawn), end=True, mono=True),
    ]
    x = EDGE
    for fill, run in groupby(cells(drawn, _ACROSS)):
        wide = len(list(run))
        found.append(box(x, y, wide, _HIGH, COLOURS[fill]))
        x += wide
    return found


def _became(before: Picture, after: Picture, same: tuple[int, int], how: str) -> list[str]:
    """What became what: the part that changed, and what stays as it is behind it."""
    head, tail = same
    top, foot = _BEFORE + _HIGH, _AFTER
    half = (top + foot) / 2

    def x(tokens: int) -> float:
        return EDGE + _ACROSS * min(tokens / before.window, 1.0)

    def band(start: tuple[int, int], end: tuple[int, int], ink: str, dense: float) -> str:
        (a, d), (b, c) = map(x, start), map(x, end)
        return (
            f'<path d="M{a:g} {top}H{b:g}C{b:g} {half:g} {c:g} {half:g} {c:g} {foot}'
            f'H{d:g}C{d:g} {half:g} {a:g} {half:g} {a:g} {top}Z" '
            f'fill="{ink}" fill-opacity="{dense}"/>'
        )

    cut = before.total - tail, after.total - tail
    changed = x(head) + 10, half - 6
    return [
        band((head, head), cut, COLOURS["handoffs"], 0.25),
        band(cut, (before.total, after.total), PALE, 0.14),
        text(*changed, f"{cut[0] - head:,} tokens {how} {cut[1] - head:,}", size=12),
    ]


def _table(before: Picture, after: Picture, y: int, lost: Loss | None) -> tuple[list[str], int]:
    heads = ((_NAME, "part", False), (_WAS, "before", True), (_IS, "after", True))
    found = [text(x, y, name, ink=PALE, size=11, end=end) for x, name, end in heads]
    y += 6
    for kind in KINDS:
        was, now = (sum(run.tokens for run in one.of(kind)) for one in (before, after))
        if not was and not now:
            continue
        y += _ROW - 3
        found.append(
            f'<rect x="{EDGE}" y="{y - 11}" width="13" height="13" rx="2" fill="{COLOURS[kind]}"/>'
        )
        found.append(text(_NAME, y, kind))
        found.append(text(_WAS, y, f"{was:,}", end=True, mono=True))
        found.append(text(_IS, y, f"{now:,}", end=True, mono=True, bold=True))
        notes = (
            wrap(_kept(lost), int((WIDTH - EDGE - _NOTE) / LETTER)) if kind == "handoffs" else []
        )
        for at, note in enumerate(notes):
            y += 18 if at else 0
            found.append(text(_NOTE, y, note, ink=PALE))
    if lost is not None:
        y += 12
        found.append(box(EDGE, y, _ACROSS, 1, LINE))
        y += 20
        for line in _out(lost):
            found.append(text(EDGE, y, line, ink=INK))
            y += 20
        y -= 14
    return found, y


def _kept(lost: Loss | None) -> str:
    if lost is None:
        return ""
    facts = [many(lost.facts[kind], name) for kind, name in _FACTS.items() if lost.facts.get(kind)]
    verbatim = [f"{many(lost.quoted, 'message')} verbatim"] if lost.quoted else []
    return ", ".join([*verbatim, *facts])


def _out(lost: Loss) -> list[str]:
    """What left the model's sight, a line a kind."""
    return [
        f"{many(len(left), kind.removesuffix('s'))}, "
        f"{sum(one.tokens for one in left):,} tokens, out of sight; "
        f"each comes back by its handle: {left[0].handle} … {left[-1].handle}"
        for kind, left in lost.left.items()
    ]

"""Draw the pictures of docs/concepts: `just drawings`.

Knows what each page's drawing shows, in the inks of `foldline.draw`. Each is an SVG on a
light card of its own, so that it can be read on a dark page too, and its smallest letters are 12
pixels high where the card is 360 wide. `--png FOLDER` also renders them, for a person to look
at.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from foldline.draw.svg import COLOURS, INK, LINE, NEW, PALE, SEEN, draw_box, draw_text, escape_xml

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDE, EDGE, SMALL, PLAIN, LARGE = 720, 28, 24, 26, 32
EDIT, PAPER = COLOURS["handoffs"], "#ffffff"
_MARKS = (
    ("margin", 45, "#eef0f3", 3, "#b7c0ca"),
    ("reserve", -45, "#d9dfe6", 6, "#b3bdc8"),
)


def card(body: Iterable[str], high: int, label: str) -> str:
    """An SVG file; the label is for those who do not see it."""
    patterns = "".join(
        f'<pattern id="{name}" width="12" height="12" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate({turn})"><rect width="12" height="12" fill="{ground}"/>'
        f'<rect width="{thick}" height="12" fill="{ink}"/></pattern>'
        for name, turn, ground, thick, ink in _MARKS
    )
    said = escape_xml(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{high}" '
        f'viewBox="0 0 {WIDE} {high}" role="img" aria-label="{said}">\n<title>{said}</title>\n'
        f"<defs>{patterns}"
        '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{PALE}"/></marker></defs>\n'
        f'<rect x="0.5" y="0.5" width="{WIDE - 1}" height="{high - 1}" rx="12" fill="{PAPER}" '
        f'stroke="{LINE}"/>\n' + "\n".join(filter(None, body)) + "\n</svg>\n"
    )


def words(x, y, said, **how):
    """Words from x on."""
    return draw_text(x, y, said, **{"size": SMALL, **how})


def middle(x, y, said, **how):
    """Words around x."""
    return words(x, y, said, **how).replace("<text ", '<text text-anchor="middle" ')


def arrow(*points: tuple[float, float]) -> str:
    """A line with a tip at its end."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    return (
        f'<path d="M{path}" fill="none" stroke="{PALE}" stroke-width="3" marker-end="url(#tip)"/>'
    )


def line(x, y, to_x, to_y, **how):
    """A thin line."""
    ink, dash = how.get("ink", PALE), ' stroke-dasharray="7 6"' if how.get("dashed") else ""
    return f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g}" stroke="{ink}" stroke-width="2"{dash}/>'


def frame(x, y, wide, high, **how):
    """A rounded box."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="8" '
        f'fill="{how.get("fill", PAPER)}" stroke="{how.get("ink", LINE)}" stroke-width="2"/>'
    )


def band(points: Iterable[tuple[float, float]], fill: str) -> str:
    """A filled shape between some points."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="M{path} Z" fill="{fill}" fill-opacity="0.16"/>'


def flow() -> str:
    """The five words, from left to right."""
    body, step = [], (WIDE - 2 * EDGE) / 5
    kinds = ("user", "model", "results", "model", "user", "model", "results", "model")
    for n, name in enumerate(("log", "view", "budget", "edits", "request")):
        x = EDGE + n * step
        body += [
            frame(x + 4, 74, step - 20, 172),
            middle(x + step / 2 - 6, 54, name, size=30, bold=True),
        ]
        if n:
            body.append(arrow((x - 15, 160), (x + 2, 160)))
    x = EDGE + 22
    body += [draw_box(x, 92 + 17 * n, 78, 11, COLOURS[kind]) for n, kind in enumerate(kinds)]
    x += step
    body += [
        draw_box(x, 92, 78, 62, EDIT),
        *(draw_box(x, 160 + 17 * n, 78, 11, COLOURS[kind]) for n, kind in enumerate(kinds[4:])),
    ]
    x += step
    shares = (("system", 12), ("user", 34), ("model", 26), ("free", 42), ("reserve", 22))
    y = 92
    for kind, high in shares:
        body.append(draw_box(x, y, 78, high, COLOURS[kind]))
        y += high
    x += step
    body += [draw_box(x, 92 + 12 * n, 78, 8, COLOURS[kind]) for n, kind in enumerate(kinds[:4])]
    body += [arrow((x + 39, 146), (x + 39, 176)), draw_box(x, 186, 78, 36, EDIT)]
    x += step
    body += [
        middle(x + 39, 122, "{", size=PLAIN, bold=True),
        *(draw_box(x, 136 + 17 * n, 78, 11, SEEN) for n in range(3)),
        draw_box(x, 187, 78, 11, NEW),
        middle(x + 39, 228, "}", size=PLAIN, bold=True),
    ]
    first, fourth = EDGE + step / 2 - 6, EDGE + 3.5 * step - 6
    body += [
        arrow((fourth, 250), (fourth, 288), (first, 288), (first, 252)),
        middle((first + fourth) / 2, 322, "every edit is one more event of the log"),
    ]
    return card(body, 346, "log, view, budget, edits, request: an edit becomes an event of the log")


ROWS = (
    ("0", "opened", "", "system"),
    ("1", "instructed", "Be brief.", "system"),
    ("2", "user said", "Make the tests pass.", "user"),
    ("3", "asked", "sha256 of what was sent", "free"),
    ("4", "model said", "calls pytest", "model"),
    ("5", "usage reported", "1,204 in, 31 out", "free"),
    ("6", "tool returned", "2 failed …", "results"),
    ("7", "model said", "Fixed: it was the lexer.", "model"),
    ("8", "user said", "And the docs?", "user"),
    ("9", "folded", "0 to 7, and its text", "handoffs"),
)


def log() -> str:
    """Events in one order, an edit among them, and the open end."""
    body = [words(EDGE, 48, "the log of a session", size=LARGE, bold=True)]
    for n, (seq, kind, said, fill) in enumerate(ROWS):
        y = 72 + 44 * n
        body += [
            words(EDGE, y + 27, seq, ink=PALE),
            draw_box(EDGE + 30, y, 14, 38, COLOURS[fill]),
            words(EDGE + 58, y + 27, kind, size=PLAIN, bold=True),
            words(EDGE + 306, y + 27, said, ink=PALE),
        ]
    y = 72 + 44 * len(ROWS)
    body += [
        arrow((EDGE + 37, y + 4), (EDGE + 37, y + 50)),
        words(EDGE + 58, y + 36, "added at the end, never changed"),
    ]
    return card(body, y + 66, "ten events from opened to folded; the log only grows")


def view() -> str:
    """The log on the left, what the model sees of it on the right."""
    kinds = (*("user", "model", "results", "model", "user", "model"), "handoffs", "user", "model")
    names = (
        "user",
        "model, call",
        "result",
        "model",
        "user",
        "model",
        "folded 0-3",
        "user",
        "model",
    )
    left, right, wide = EDGE, 410, 282
    body = [
        words(left, 48, "log", size=LARGE, bold=True),
        words(right, 48, "view", size=LARGE, bold=True),
    ]
    for n, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        y = 70 + 40 * n
        body += [
            draw_box(left + 30, y, 14, 34, COLOURS[kind]),
            words(left, y + 25, str(n), ink=PALE),
            words(left + 56, y + 25, name),
        ]
    body += [
        band([(left + 230, 70), (right - 10, 70), (right - 10, 144), (left + 230, 224)], EDIT),
        band([(left + 230, 230), (right - 10, 156), (right - 10, 232), (left + 230, 304)], PALE),
        band([(left + 230, 350), (right - 10, 236), (right - 10, 312), (left + 230, 424)], PALE),
        draw_box(right, 70, 14, 74, EDIT),
        words(right + 26, 100, "handoff of 0-3", bold=True),
        words(right + 26, 132, "the text of event 6", ink=PALE),
    ]
    for n, seq in enumerate((4, 5, 7, 8)):
        y = 158 + 40 * n
        body += [
            draw_box(right, y, 14, 34, COLOURS[kinds[seq]]),
            words(right + 26, y + 25, f"{seq} {names[seq]}"),
        ]
    body += [
        words(right, 366, "spine", bold=True),
        frame(right, 380, 116, 42, ink=EDIT),
        middle(right + 58, 409, "fold 6"),
        frame(right + 126, 380, wide - 126, 42),
        middle(right + 126 + (wide - 126) / 2, 409, "range 4…"),
    ]
    return card(
        body, 446, "nine events of the log; the view shows a handoff for 0 to 3, then 4, 5, 7 and 8"
    )


def budget() -> str:
    """The window as one bar, and what room is."""
    body = [words(EDGE, 48, "the window", size=LARGE, bold=True)]
    parts = (
        ("system", 40),
        ("tools", 64),
        ("handoffs", 70),
        ("user", 60),
        ("model", 60),
        ("results", 50),
        ("free", 200),
        ("margin", 40),
        ("reserve", 80),
    )
    x, across, places = EDGE, WIDE - 2 * EDGE, {}
    for name, share in parts:
        wide = share * across / sum(size for _, size in parts)
        places[name] = (x, wide)
        body.append(draw_box(x, 110, wide, 72, COLOURS[name]))
        x += wide
    start, end = places["handoffs"][0], places["margin"][0]
    room = end - start
    for share, name in ((0.70, "warn"), (0.92, "hard")):
        at = start + share * room
        body += [line(at, 96, at, 182, ink=INK, dashed=True), middle(at, 88, name)]
    body += [
        line(start, 206, end, 206),
        line(start, 196, start, 216),
        line(end, 196, end, 216),
        middle((start + end) / 2, 240, "room: what the conversation may fill", bold=True),
    ]
    legend = (
        ("system", "system"), ("tools", "tools"), ("reserve", "reserve for the answer"),
        ("handoffs", "handoffs"), ("user", "user"), ("margin", "margin for the count"),
        ("model", "model"), ("results", "results"), ("free", "free"),
    )  # fmt: skip
    for n, (kind, name) in enumerate(legend):
        x, y = EDGE + (0, 168, 318)[n % 3], 274 + 42 * (n // 3)
        body += [frame(x, y, 26, 26, fill=COLOURS[kind]), words(x + 36, y + 22, name)]
    return card(
        body, 414, "the window: system, tools, room with its tiers warn and hard, margin, reserve"
    )


def edits() -> str:
    """Clip, mask and fold, each before and after."""
    body = [
        words(EDGE + 120, 46, "before", ink=PALE, size=PLAIN),
        words(EDGE + 410, 46, "after", ink=PALE, size=PLAIN),
    ]
    model, results, user = COLOURS["model"], COLOURS["results"], COLOURS["user"]
    left, right, y = EDGE + 120, EDGE + 410, 66
    body += [
        words(EDGE, y + 54, "clip", size=LARGE, bold=True),
        draw_box(left, y, 180, 92, results),
        draw_box(right, y, 180, 14, results),
        words(right, y + 46, "[whole: log:6; ok]"),
        draw_box(right, y + 62, 180, 10, results),
        arrow((left + 200, y + 46), (right - 22, y + 46)),
        words(left, y + 122, "a result too large, as it arrives", ink=PALE),
    ]
    y = 226
    body += [words(EDGE, y + 54, "mask", size=LARGE, bold=True)]
    for n in range(3):
        body += [
            draw_box(left, y + 33 * n, 180, 6, model),
            draw_box(left, y + 8 + 33 * n, 180, 18, results),
            draw_box(right, y + 33 * n, 180, 6, model),
        ]
    body += [
        *(frame(right + 1, y + 10 + 33 * n, 178, 13, fill="#eef0f3") for n in range(2)),
        draw_box(right, y + 74, 180, 18, results),
        arrow((left + 200, y + 46), (right - 22, y + 46)),
        words(left, y + 122, "old results become stubs, in one batch", ink=PALE),
    ]
    y = 386
    body += [words(EDGE, y + 54, "fold", size=LARGE, bold=True)]
    fills = (user, model, results, model, user, model)
    body += [draw_box(left, y + 16 * n, 180, 12, fill) for n, fill in enumerate(fills)]
    body += [
        draw_box(right, y, 180, 56, EDIT),
        words(right + 36, y + 36, "handoff", ink=PAPER, bold=True),
        *(draw_box(right, y + 64 + 16 * n, 180, 12, fill) for n, fill in enumerate(fills[4:])),
        arrow((left + 200, y + 46), (right - 22, y + 46)),
        words(left, y + 122, "the oldest span becomes one record", ink=PALE),
    ]
    return card(
        body,
        534,
        "clip: a result shortened; mask: results become stubs; fold: a span becomes a handoff",
    )


def request() -> str:
    """Two requests, one behind the other, and one behind a fold."""
    body = []
    plan = (
        ("request 7", "", [("system", 60), ("user", 120), ("model", 130)], 310, 0),
        (
            "request 8",
            "begins with the bytes of 7",
            [("system", 60), ("user", 120), ("model", 130), ("results", 90)],
            310,
            90,
        ),
        (
            "request 9, behind a fold",
            "new from the handoff on",
            [("system", 60), ("handoffs", 80), ("model", 60), ("results", 60)],
            60,
            200,
        ),
    )
    for n, (name, note, parts, kept, fresh) in enumerate(plan):
        y, x = 50 + 136 * n, EDGE
        body += [words(EDGE, y, name, size=PLAIN, bold=True)]
        for kind, wide in parts:
            body.append(draw_box(x, y + 16, wide * 1.5 - 2, 40, COLOURS[kind]))
            x += wide * 1.5
        cold = n == 0
        body += [
            draw_box(EDGE, y + 60, (0 if cold else kept) * 1.5, 10, SEEN),
            draw_box(
                EDGE + (0 if cold else kept) * 1.5, y + 60, (kept if cold else fresh) * 1.5, 10, NEW
            ),
        ]
        if note:
            body.append(draw_text(WIDE - EDGE, y, note, size=SMALL, ink=PALE, end=True))
    y = 50 + 136 * 3 - 26
    body += [
        draw_box(EDGE, y, 40, 12, SEEN),
        words(EDGE + 54, y + 14, "read from the cache"),
        draw_box(EDGE + 330, y, 40, 12, NEW),
        words(EDGE + 384, y + 14, "new, paid in full"),
    ]
    return card(
        body,
        y + 40,
        "request 8 begins with the bytes of 7; after a fold request 9 is new but for the system",
    )


DRAWINGS = {
    "flow": flow,
    "log": log,
    "view": view,
    "budget": budget,
    "edits": edits,
    "request": request,
}


def main() -> None:
    """Write all of them."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--png", type=Path, help="a folder for PNGs as well")
    asked.add_argument("--width", type=int, default=WIDE, help="of the PNGs, in pixels")
    given = asked.parse_args()
    for name, drawn in DRAWINGS.items():
        made = drawn()
        (FOLDER / f"concept-{name}.svg").write_text(made)
        if given.png:
            import resvg_py  # noqa: PLC0415 - only to look at them

            given.png.mkdir(parents=True, exist_ok=True)
            (given.png / f"concept-{name}.png").write_bytes(
                bytes(resvg_py.svg_to_bytes(svg_string=made, width=given.width))
            )


if __name__ == "__main__":
    main()
